use crate::ClientError;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use std::sync::Arc;

/// Trusts the system's authorities and those in `authorities`, which is PEM.
pub(crate) fn client_config(authorities: &[u8]) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "certificate authorities of the system cannot be read");
    }
    roots.add_parsable_certificates(native.certs);
    if !authorities.is_empty() {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            let certificate =
                certificate.map_err(|error| ClientError::Authorities(error.to_string().into()))?;
            let added = roots.add(certificate);
            added.map_err(|error| ClientError::Authorities(error.into()))?;
        }
        if roots.len() == before {
            return Err(ClientError::NoAuthorities);
        }
    }
    // Named, so that another provider in the same program makes no difference.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ClientError::Tls)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
