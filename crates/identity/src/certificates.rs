use crate::{
    Identity, Means, Rejection,
    identity::{MAX_PRINCIPAL, is_decent_name},
    pattern::matches,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

/// Name of a certificate that becomes the principal's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The URI among the alternative names, such as a SPIFFE id.
    SanUri,
    /// The DNS name among the alternative names.
    SanDns,
    /// The address of mail among the alternative names.
    SanEmail,
    /// The common name of the subject.
    CommonName,
}

/// Mapping of client certificates to principals.
#[derive(Clone, Debug)]
pub struct CertificateOptions {
    /// Name that counts.
    pub name: CertificateName,
    /// Prefix of the principal's name.
    pub principal_prefix: String,
    /// Roles, by patterns over principals in which `*` stands for any text. All that match count.
    pub roles: Vec<(String, Vec<Arc<str>>)>,
}

/// Client certificates, which TLS has verified already: nothing here looks at signatures.
#[derive(Clone, Debug)]
pub struct Certificates {
    options: CertificateOptions,
}

impl Certificates {
    /// Certificates by these rules.
    #[must_use]
    pub fn new(options: CertificateOptions) -> Self {
        Self { options }
    }

    /// Identity that `certificate`, in DER, belongs to.
    ///
    /// # Errors
    ///
    /// [`Rejection::Invalid`] if it cannot be read, is not good at `now` (a connection may outlive
    /// it), or has not exactly one name of the kind that counts: of several, which one is meant
    /// would be a guess.
    pub fn identify(&self, certificate: &[u8], now: SystemTime) -> Result<Identity, Rejection> {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
            return Rejection::invalid("the client certificate cannot be read");
        };
        let validity = certificate.validity();
        let (begins, ends) = (time(&validity.not_before), time(&validity.not_after));
        let (Some(begins), Some(ends)) = (begins, ends) else {
            return Rejection::invalid("the client certificate has no sound dates");
        };
        if now < begins || ends <= now {
            return Rejection::invalid("the client certificate is not good at this time");
        }
        let names = self.names(&certificate);
        let [name] = names.as_slice() else {
            return Rejection::invalid(
                "the client certificate has not exactly one name of the kind that counts here",
            );
        };
        let principal = format!("{}{name}", self.options.principal_prefix);
        if !is_decent_name(name) || MAX_PRINCIPAL < principal.len() {
            return Rejection::invalid(
                "the name in the client certificate cannot be a principal's",
            );
        }
        let mut roles: Vec<Arc<str>> = Vec::new();
        for (pattern, given) in &self.options.roles {
            if matches(pattern, &principal) {
                roles.extend(given.iter().cloned());
            }
        }
        roles.sort();
        roles.dedup();
        Ok(Identity {
            principal: principal.into(),
            roles: roles.into(),
            means: Means::Certificate,
            expires: Some(ends),
            revocation: None,
            bound_to: None,
        })
    }

    fn names(&self, certificate: &X509Certificate<'_>) -> Vec<String> {
        if self.options.name == CertificateName::CommonName {
            let names = certificate.subject().iter_common_name();
            // One that is no text is a name all the same, and fits nobody.
            return names
                .map(|name| name.as_str().unwrap_or_default().to_owned())
                .collect();
        }
        let extensions = certificate.extensions().iter();
        let alternatives = extensions.filter_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
            _ => None,
        });
        let wanted = |name: &GeneralName<'_>| match (self.options.name, name) {
            (CertificateName::SanUri, GeneralName::URI(name))
            | (CertificateName::SanEmail, GeneralName::RFC822Name(name)) => {
                Some((*name).to_owned())
            }
            // Case says nothing in these, and must not make two principals of one.
            (CertificateName::SanDns, GeneralName::DNSName(name)) => {
                Some(name.to_ascii_lowercase())
            }
            _ => None,
        };
        alternatives.flatten().filter_map(wanted).collect()
    }
}

fn time(time: &x509_parser::time::ASN1Time) -> Option<SystemTime> {
    let seconds = u64::try_from(time.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
