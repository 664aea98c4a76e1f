use crate::ClientError;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// For how long clients made after one another share what was read of the system's authorities: reading takes 10 ms, and a
/// gateway makes a client for each of its upstreams.
const SHARED_FOR: Duration = Duration::from_secs(60);

static SYSTEM: Mutex<Option<(Instant, Arc<RootCertStore>)>> = Mutex::new(None);

/// Trusts the system's authorities and those in `authorities`, which is PEM.
pub(crate) fn client_config(authorities: &[u8]) -> Result<ClientConfig, ClientError> {
    let mut roots = system();
    if !authorities.is_empty() {
        let roots = Arc::make_mut(&mut roots);
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

/// The system's authorities, as they were within the last minute.
fn system() -> Arc<RootCertStore> {
    let mut kept = SYSTEM.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((read, roots)) = &*kept
        && read.elapsed() < SHARED_FOR
    {
        return Arc::clone(roots);
    }
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "certificate authorities of the system cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(native.certs);
    let roots = Arc::new(roots);
    *kept = Some((Instant::now(), Arc::clone(&roots)));
    roots
}
