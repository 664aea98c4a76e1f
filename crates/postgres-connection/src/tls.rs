//! Certificates that are accepted, and the one that is shown.

use crate::error::AddressError;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Names that a server may have.
#[derive(Clone, Copy)]
pub(crate) enum Names {
    /// The one by which it was reached.
    Compared,
    /// Any that one of the authorities has certified.
    Any,
}

/// Files that an address names.
#[derive(Default)]
pub(crate) struct Files {
    /// `sslrootcert`; `None` for the system's.
    pub(crate) authorities: Option<PathBuf>,
    /// `sslcert`.
    pub(crate) certificate: Option<PathBuf>,
    /// `sslkey`.
    pub(crate) key: Option<PathBuf>,
}

pub(crate) const AUTHORITIES: &str = "sslrootcert";
pub(crate) const CERTIFICATE: &str = "sslcert";
pub(crate) const KEY: &str = "sslkey";

pub(crate) fn client_config(names: Names, files: &Files) -> Result<ClientConfig, AddressError> {
    // Named, so that another provider in the same program makes no difference.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(AddressError::Certificates)?;
    let client = client_certificate(files)?;
    let roots = authorities(files.authorities.as_deref())?;
    let builder = match names {
        Names::Compared => builder.with_root_certificates(roots),
        Names::Any => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyName { roots, provider })),
    };
    match client {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(AddressError::Certificates),
    }
}

fn authorities(path: Option<&Path>) -> Result<RootCertStore, AddressError> {
    let mut roots = RootCertStore::empty();
    match path {
        Some(path) => {
            for certificate in certificates(AUTHORITIES, path)? {
                roots.add(certificate).map_err(AddressError::Certificates)?;
            }
        }
        None => {
            let native = rustls_native_certs::load_native_certs();
            for error in &native.errors {
                tracing::warn!(%error, "certificate authorities of the system cannot be read");
            }
            roots.add_parsable_certificates(native.certs);
            if roots.is_empty() {
                return Err(AddressError::NoAuthorities);
            }
        }
    }
    Ok(roots)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, AddressError> {
    regular_file::read(path, regular_file::MAX_BYTES).map_err(|source| AddressError::File {
        key,
        path: path.to_owned(),
        source,
    })
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, AddressError> {
    let pem = read(key, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(AddressError::Pem {
            key,
            what: "certificate",
            path: path.to_owned(),
        }),
    }
}

type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client_certificate(files: &Files) -> Result<Option<ClientCertificate>, AddressError> {
    let (chain, key) = match (&files.certificate, &files.key) {
        (None, None) => return Ok(None),
        (Some(chain), Some(key)) => (chain, key),
        _ => return Err(AddressError::Half),
    };
    const OTHERS: u32 = 0o077;
    let pem = read(KEY, key)?;
    if fs::metadata(key).is_ok_and(|it| it.permissions().mode() & OTHERS != 0) {
        return Err(AddressError::OpenKey(key.clone()));
    }
    let Ok(private) = PrivateKeyDer::from_pem_slice(&pem) else {
        return Err(AddressError::Pem {
            key: KEY,
            what: "private key",
            path: key.clone(),
        });
    };
    Ok(Some((certificates(CERTIFICATE, chain)?, private)))
}

/// Accepts each certificate that the authorities have signed, whatever name is in it: `verify-ca`.
#[derive(Debug)]
struct AnyName {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
