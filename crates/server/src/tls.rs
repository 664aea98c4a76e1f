//! Certificates that change while the server runs (R3.10).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use mcp_server::{Component, ComponentState};
use tokio::signal::unix::{SignalKind, signal};
use transport_http::{Tls, TlsFiles};

use super::file_watch::FileWatch;
use crate::Failure;
use config::{Config, Transport};

/// Name of the component of `/health` for the certificates.
pub(super) const COMPONENT: &str = "certificate";

const DAY: u64 = 24 * 60 * 60;

/// Certificates in use, and the outcome of the last attempt to reload them.
#[derive(Debug)]
pub(super) struct Certificates {
    tls: Arc<Tls>,
    /// Reason why the content of the files is not in use.
    problem: Mutex<Option<String>>,
}

impl Certificates {
    /// Reads the files, if the server is to encrypt.
    pub(super) fn load(config: &Config) -> Result<Option<Arc<Self>>, Failure> {
        let tls = &config.http.tls;
        if config.transport != Transport::Http || !tls.enabled {
            return Ok(None);
        }
        // The configuration was checked for both.
        let (Some(certificate), Some(key)) = (tls.cert_file.clone(), tls.key_file.clone()) else {
            return Err("http.tls needs cert_file and key_file".to_owned().into());
        };
        let tls = Tls::load(TlsFiles {
            certificate,
            key,
            client_authorities: tls.client_ca_file.clone(),
            client_revocations: tls.client_crl_file.clone(),
            verify_client: tls.verify_client,
        })?;
        let certificates = Arc::new(Self {
            tls,
            problem: Mutex::default(),
        });
        tracing::info!(expires_in_days = certificates.days(), "certificates loaded");
        Ok(Some(certificates))
    }

    pub(super) fn tls(&self) -> &Arc<Tls> {
        &self.tls
    }

    /// Time at which the first of the certificates expires.
    pub(super) fn expires_at(&self) -> SystemTime {
        self.tls.expires_at()
    }

    /// For how many whole days they are valid still; `None` if they have expired.
    fn days(&self) -> Option<u64> {
        let left = self.expires_at().duration_since(SystemTime::now());
        left.ok().map(|left| left.as_secs() / DAY)
    }

    /// Component of `/health` for the certificates.
    pub(super) fn component(self: &Arc<Self>) -> Component {
        let certificates = Arc::clone(self);
        Component::new(move || certificates.state())
    }

    fn state(&self) -> ComponentState {
        let mut problems = Vec::new();
        if self.days().is_none() {
            problems.push("the certificate in use has expired".to_owned());
        }
        let expired = self.tls.revocations_expired(SystemTime::now());
        problems.extend(expired.map(|expired| expired.to_string()));
        problems.extend(self.problem().clone());
        ComponentState {
            name: COMPONENT,
            ok: problems.is_empty(),
            detail: (!problems.is_empty()).then(|| problems.join("; ")),
        }
    }

    fn problem(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files again whenever they change and at SIGHUP, for ever.
    pub(super) async fn follow(self: Arc<Self>) {
        let files = self.tls.files();
        let paths = [
            Some(&files.certificate),
            Some(&files.key),
            files.client_authorities.as_ref(),
            files.client_revocations.as_ref(),
        ];
        let mut watches: Vec<FileWatch> = paths
            .into_iter()
            .flatten()
            .map(|path| FileWatch::start(PathBuf::clone(path)))
            .collect();
        let mut hangup = signal(SignalKind::hangup()).ok();
        // What has changed since they were read and before they were watched.
        self.reload().await;
        loop {
            let hangup = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            let changes = watches.iter_mut().map(|watch| Box::pin(watch.changed()));
            tokio::select! {
                _ = hangup => {}
                _ = futures_util::future::select_all(changes) => {
                    // A certificate and its key are rarely replaced at the same instant.
                    tokio::time::sleep(BETWEEN_FILES).await;
                }
            }
            self.reload().await;
        }
    }

    async fn reload(&self) {
        let tls = Arc::clone(&self.tls);
        // A disk may hang, and nothing else must hang with it.
        let Ok(result) = tokio::task::spawn_blocking(move || tls.reload()).await else {
            return;
        };
        match result {
            Ok(is_new) => {
                let was_wrong = self.problem().take().is_some();
                if is_new || was_wrong {
                    tracing::info!(
                        expires_in_days = self.days(),
                        "certificates loaded; who comes now sees them"
                    );
                }
                if let Some(error) = self.tls.revocations_expired(SystemTime::now()) {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "client certificates are refused"
                    );
                }
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the certificates were not loaded again; those in use stay so"
                );
                *self.problem() = Some(error.to_string());
            }
        }
    }
}

/// Time to wait, after one of the files has changed, for the others to change.
const BETWEEN_FILES: Duration = Duration::from_millis(200);
