//! TLS: certificates of the server and of clients.

mod error;
mod files;
mod revocations;

pub use self::{error::TlsError, files::TlsFiles};

use self::files::Loaded;
use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, UnixTime},
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{sync::watch, time::sleep};

/// TLS 1.2 and 1.3, with HTTP/2 and HTTP/1.1 above. What is read from its files can be read again
/// while it is in use: who is connected stays so, and who comes then sees what is new. Who has shown a
/// certificate that would not be accepted any more, be it revoked or its authority gone, is hung up on.
pub struct Tls {
    files: TlsFiles,
    current: ArcSwap<Loaded>,
    /// Changes with it.
    changes: watch::Sender<()>,
}

/// The certificates that a client has shown, and what that was verified with.
#[derive(Debug)]
pub(crate) struct PeerCertificates {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) by: Arc<Loaded>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`TlsError`], which names the file and what is wrong with it.
    pub fn load(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let loaded = files.load(SystemTime::now())?;
        let tls = Self {
            files,
            current: ArcSwap::from_pointee(loaded),
            changes: watch::Sender::new(()),
        };
        match tls.revocations_expired(SystemTime::now()) {
            Some(expired) => Err(expired),
            None => Ok(Arc::new(tls)),
        }
    }

    /// Reads the files again; tells whether they say something else than before.
    ///
    /// # Errors
    ///
    /// As [`Tls::load`], and what was in force stays so. That a list of revoked certificates has
    /// expired is no such error, for it is no reason to keep a certificate that is older as well: see
    /// [`revocations_expired`](Self::revocations_expired).
    pub fn reload(&self) -> Result<bool, TlsError> {
        let loaded = self.files.load(SystemTime::now())?;
        let differs = !self.current.load().is_same_as(&loaded);
        if differs {
            self.current.store(Arc::new(loaded));
            self.changes.send_replace(());
        }
        Ok(differs)
    }

    /// Time at which the first certificate of the chain in use expires.
    pub fn expires_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.current.load().expires_at)
    }

    /// Says if a list of revoked client certificates in use has expired at `now`. Then no certificate
    /// of that authority is accepted.
    pub fn revocations_expired(&self, now: SystemTime) -> Option<TlsError> {
        let until = Duration::from_secs(self.current.load().revocations_until?);
        let since = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let file = self.files.client_revocations.clone()?;
        let expired = since.checked_sub(until)?;
        Some(TlsError::RevocationsExpired {
            file,
            hours: expired.as_secs() / (60 * 60),
        })
    }

    /// The files that are read.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    pub(crate) fn current(&self) -> Arc<Loaded> {
        self.current.load_full()
    }

    /// Resolves when what a client has shown would not be accepted any more: with other files, or
    /// since a list of revoked certificates has expired. Says why.
    pub(crate) async fn distrusts(&self, shown: PeerCertificates) -> rustls::Error {
        let mut changes = self.changes.subscribe();
        let PeerCertificates { chain, by } = shown;
        let mut by = Some(by);
        loop {
            changes.borrow_and_update();
            let current = self.current();
            let was_expired = current.has_expired_revocations();
            let is_known = by.take().is_some_and(|by| by.is_same_as(&current));
            if (!is_known || was_expired)
                && let Err(why) = current.verify(&chain)
            {
                return why;
            }
            let expire = async {
                match current.revocations_until {
                    Some(until) if !was_expired => {
                        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(until);
                        let left = until.duration_since(SystemTime::now());
                        sleep(left.unwrap_or_default()).await;
                    }
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                // Its sender lives as long as this does.
                _ = changes.changed() => {}
                () = expire => {}
            }
        }
    }
}

impl Loaded {
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    fn has_expired_revocations(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.revocations_until
            .is_some_and(|until| now.is_ok_and(|now| until <= now.as_secs()))
    }

    fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let (Some((own, others)), Some(verifier)) = (chain.split_first(), &self.verifier) else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        verifier.verify_client_cert(own, others, UnixTime::now())?;
        Ok(())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}
