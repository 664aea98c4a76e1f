//! Credentials of clients: each its own, at an upstream that all of them use.

use http::{HeaderName, HeaderValue};
use oauth_client::ExchangeOptions;
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeSet, fmt};
use vault::{Belongings, Secret};

/// Credentials that an upstream is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Credentials {
    /// One for all clients: what [`Reach`](crate::Reach) and [`Tokens`](crate::Tokens) have.
    #[default]
    Shared,
    /// Each client's own, on a connection of its own, in these places. A client without its own is refused.
    PerClient(Bindings),
    /// Tokens of each client that has signed in at the authorization server of an address, likewise. A client that
    /// [`Tokens::Client`](crate::Tokens) has is what it signs in by.
    SignedIn,
    /// Tokens that an authorization server gives in exchange for those by which callers have proved who they are, on a
    /// connection for each of these. A caller that has proved itself by none is refused.
    Exchanged(Box<ExchangeOptions>),
}

/// Places of credentials of the client that calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bindings {
    /// Headers of each request to an address.
    pub headers: Vec<(HeaderName, Template)>,
    /// Environment variables of a program.
    pub environment: Vec<(String, Template)>,
}

/// A text that credentials of the client that calls stand in.
#[derive(Clone, Default, PartialEq)]
pub struct Template(Vec<TemplatePart>);

/// Part of a [`Template`].
#[derive(Clone, PartialEq)]
pub enum TemplatePart {
    /// Text, the same for all clients; it may be secret.
    Text(String),
    /// Name of a credential.
    Credential(String),
}

/// The name of a credential alone, since a text may be secret.
impl fmt::Debug for TemplatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text"),
            Self::Credential(name) => f.debug_tuple("Credential").field(name).finish(),
        }
    }
}

/// Names alone, since a text may be secret.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.names()).finish()
    }
}

impl Template {
    /// A template of these parts.
    pub fn new(parts: impl IntoIterator<Item = TemplatePart>) -> Self {
        Self(parts.into_iter().collect())
    }

    fn names(&self) -> BTreeSet<&str> {
        let names = self.0.iter().filter_map(|it| match it {
            TemplatePart::Text(_) => None,
            TemplatePart::Credential(name) => Some(name.as_str()),
        });
        names.collect()
    }

    /// The text for a client; `None` if it lacks a credential.
    fn filled(&self, own: &Belongings) -> Option<String> {
        let parts = self.0.iter().map(|it| match it {
            TemplatePart::Text(text) => Some(text.as_str()),
            TemplatePart::Credential(name) => own.get(name).map(Secret::reveal),
        });
        parts.collect()
    }
}

/// Values for one client.
pub(crate) struct Filled {
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) environment: Vec<(String, String)>,
    /// Digest of the values, by which it is noticed that they are others.
    pub(crate) digest: [u8; 32],
}

impl Bindings {
    /// Names of the credentials that each client needs.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&str> {
        let headers = self.headers.iter().map(|(_, it)| it);
        let all = headers.chain(self.environment.iter().map(|(_, it)| it));
        all.flat_map(Template::names).collect()
    }

    /// The values for a client, which is to be told of as `None` if it has no credentials at all.
    ///
    /// # Errors
    ///
    /// Text that names what is missing, or cannot be sent.
    pub(crate) fn filled(&self, own: Option<&Belongings>) -> Result<Filled, String> {
        let has = |name: &&&str| own.is_none_or(|it| it.get(name).is_none());
        let names = self.names();
        let missing: Vec<_> = names
            .iter()
            .filter(has)
            .map(|it| format!("`{it}`"))
            .collect();
        let Some(own) = own.filter(|_| missing.is_empty()) else {
            return Err(format!(
                "the client has no {} of its own",
                missing.join(", ")
            ));
        };
        // What is sent is known for a secret before it is sent.
        for value in names.iter().filter_map(|it| own.get(it)) {
            let value = value.reveal();
            match value.trim().contains('\n') {
                // Operators alone set these. A token is known by its end, which all keys in PEM share.
                true => redaction::know([value]),
                false => redaction::know_token(value),
            }
        }
        let mut digest = Sha256::new();
        let mut note = |name: &str, value: &str| {
            for text in [name, value] {
                digest.update((text.len() as u64).to_be_bytes());
                digest.update(text);
            }
        };
        let mut headers = Vec::new();
        for (name, template) in &self.headers {
            let value = template.filled(own).unwrap_or_default();
            note(name.as_str(), &value);
            let mut value = HeaderValue::try_from(value).map_err(|_| {
                format!(
                    "the client's credential for `{name}` has characters that a header cannot have"
                )
            })?;
            value.set_sensitive(true);
            headers.push((name.clone(), value));
        }
        let mut environment = Vec::new();
        for (name, template) in &self.environment {
            let value = template.filled(own).unwrap_or_default();
            if value.contains('\0') {
                return Err(format!(
                    "the client's credential for `{name}` has a character that no variable can have"
                ));
            }
            note(name, &value);
            environment.push((name.clone(), value));
        }
        Ok(Filled {
            headers,
            environment,
            digest: digest.finalize().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault::{ClientSecrets, Key, Vault};

    #[test]
    fn values_are_the_clients_own_or_what_is_missing_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vault");
        let key = Key::generate().unwrap();
        Vault::create(&path, &key).unwrap();
        let secrets = ClientSecrets::beside(&path, move || Ok(key.clone()));
        let set = |name: &str, value: &str| {
            let name = name.parse().unwrap();
            secrets.set("u", "ana", &name, Secret::new(value)).unwrap();
            secrets.of("u", "ana").unwrap()
        };
        let own = |name: &str| TemplatePart::Credential(name.to_owned());
        let text = |text: &str| TemplatePart::Text(text.to_owned());
        let header = Template::new([text("Basic "), own("user"), text(":"), own("key")]);
        let bindings = Bindings {
            headers: vec![(http::header::AUTHORIZATION, header)],
            environment: vec![("KEY".to_owned(), Template::new([own("key")]))],
        };
        let missing = |own: Option<&Belongings>| bindings.filled(own).err();
        let told = "the client has no `key`, `user` of its own".to_owned();
        assert_eq!(missing(None), Some(told));
        let first = set("user", "ana");
        let told = "the client has no `key` of its own".to_owned();
        assert_eq!(missing(first.as_ref()), Some(told));
        let both = set("key", "canary-of-bindings");
        let filled = bindings.filled(both.as_ref()).unwrap();
        assert_eq!(filled.headers[0].1, "Basic ana:canary-of-bindings");
        assert!(filled.headers[0].1.is_sensitive());
        assert_eq!(
            filled.environment,
            [("KEY".to_owned(), "canary-of-bindings".to_owned())]
        );
        assert_eq!(
            redaction::without_known("it is canary-of-bindings"),
            format!("it is {}", redaction::KNOWN)
        );
        let other = set("user", "bob");
        assert_ne!(
            bindings.filled(other.as_ref()).unwrap().digest,
            filled.digest
        );
        let unfit = set("user", "two\nlines");
        let told = missing(unfit.as_ref()).unwrap();
        assert!(
            told.contains("that a header cannot have") && !told.contains("lines"),
            "{told}"
        );
        assert!(!format!("{bindings:?}").contains("Basic"));
    }
}
