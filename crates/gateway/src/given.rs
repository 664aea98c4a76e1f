//! Credentials that clients' people give in their own browsers.

use crate::{
    Credentials, Gateway, SealedTokens,
    credentials::Bindings,
    sign_ins::{SIGN_IN_LIFETIME, SignIns},
    store::with_causes,
    upstream::Upstream,
};
use oauth_client::{Arrivals, Browser, BrowserError, Landing, Login, Pending, Secret};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::mpsc, task::JoinHandle};
use vault::Name;

/// Time for finding out where to sign in.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of a secret that is given.
const MAX_GIVEN_BYTES: usize = 8 * 1024;

/// A credential of a client's own, as an upstream wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A sign-in of its person at the upstream's authorization server.
    SignIn,
    /// Secrets of these names.
    Secrets(Vec<String>),
}

/// A sign-in of a client's person that has begun.
#[derive(Debug)]
pub struct SigningIn {
    /// The address at which the person signs in.
    pub url: String,
    /// The hand for what comes back.
    pub arrivals: Arrivals,
    /// Ends with the sign-in; the error is for the person.
    pub outcome: JoinHandle<Result<(), String>>,
}

/// Hands over the address that somebody is to visit.
#[derive(Debug)]
struct HandOver(mpsc::Sender<String>);

impl Browser for HandOver {
    fn open<'a>(&'a self, url: &'a str) -> Pending<'a, Result<(), BrowserError>> {
        Box::pin(async move { Ok(self.0.send(url.to_owned()).await?) })
    }
}

impl Gateway {
    /// Addresses at which clients' people give their credentials.
    #[must_use]
    pub fn sign_ins(&self) -> Option<Arc<SignIns>> {
        self.options().sign_ins.clone()
    }

    /// Credential that each client gives for an upstream; `None` if there is no such upstream, or it wants nothing of clients.
    #[must_use]
    pub fn asks_clients(&self, upstream: &str) -> Option<Asked> {
        let upstream = self.own(upstream)?;
        match &upstream.spec.credentials {
            Credentials::Shared | Credentials::Exchanged(_) => None,
            Credentials::SignedIn => Some(Asked::SignIn),
            Credentials::PerClient(bindings) => Some(Asked::Secrets(names(bindings))),
        }
    }

    /// Begins the sign-in of a client's person, which comes back to `redirect_uri` within [`SIGN_IN_LIFETIME`]. The tokens
    /// are kept for the client once it has ended well, and used for its next call.
    ///
    /// # Errors
    ///
    /// The reason, for the person, why nobody can sign in.
    pub async fn sign_in(
        &self,
        upstream: &str,
        client: &str,
        redirect_uri: String,
    ) -> Result<SigningIn, String> {
        let own = self.own(upstream);
        let own = own.filter(|it| it.spec.credentials == Credentials::SignedIn);
        let own = own.ok_or("it has no sign-in")?;
        let secrets = own.secrets().ok_or("there is no vault")?;
        let (landing, arrivals) = Landing::new(redirect_uri);
        let (shown, mut urls) = mpsc::channel(1);
        let login = Login {
            landing: Some(landing),
            timeout: SIGN_IN_LIFETIME,
            ..Login::new(HandOver(shown))
        };
        let store = SealedTokens::new(Arc::clone(secrets), upstream, Some(client));
        let authorizer = own.spec.sign_in(store, login, Vec::new());
        let authorizer = authorizer.map_err(|error| with_causes(&error))?;
        let authorizer = authorizer.ok_or("it is a program, which has no sign-in")?;
        let client = client.to_owned();
        let mut outcome = tokio::spawn(async move {
            let signed_in = authorizer.login().await;
            if signed_in.is_ok() {
                own.bound(&client);
            }
            signed_in.map_err(|error| redaction::without_known(&with_causes(&error)).into_owned())
        });
        let url = tokio::select! {
            biased;
            Some(url) = urls.recv() => url,
            ended = &mut outcome => {
                let ended = ended.unwrap_or_else(|_| Err("it was given up".to_owned()));
                return Err(ended.err().unwrap_or_else(|| "there was nothing to sign in for".to_owned()));
            }
            () = tokio::time::sleep(PATIENCE) => {
                outcome.abort();
                return Err("its authorization server does not answer".to_owned());
            }
        };
        Ok(SigningIn {
            url,
            arrivals,
            outcome,
        })
    }

    /// Keeps secrets of a client for an upstream: each of the names that it [asks for](Self::asks_clients), and no other.
    ///
    /// # Errors
    ///
    /// The reason, for the person; without a secret.
    pub async fn bind(
        &self,
        upstream: &str,
        client: &str,
        values: BTreeMap<String, Secret>,
    ) -> Result<(), String> {
        let own = self.own(upstream).ok_or("it wants nothing of clients")?;
        let wanted = match &own.spec.credentials {
            Credentials::PerClient(bindings) => names(bindings),
            _ => return Err("it wants no secret".to_owned()),
        };
        if !values.keys().eq(wanted.iter()) {
            return Err(format!("it needs {}", wanted.join(", ")));
        }
        let secrets = Arc::clone(own.secrets().ok_or("there is no vault")?);
        let (name, client) = (upstream.to_owned(), client.to_owned());
        let setting = tokio::task::spawn_blocking(move || {
            // All of them, before any is kept.
            for (key, value) in &values {
                let value = value.reveal();
                if value.trim().is_empty() {
                    return Err(format!("`{key}` is empty"));
                }
                if MAX_GIVEN_BYTES < value.len() || value.chars().any(char::is_control) {
                    return Err(format!("`{key}` is too long, or has several lines"));
                }
            }
            for (key, value) in values {
                // Clients give as many as they like, and what is known of them has a bound.
                redaction::know_token(value.reveal());
                let key: Name = key.parse().map_err(|_| format!("`{key}` is no name"))?;
                let set = secrets.set(&name, &client, &key, vault::Secret::new(value.reveal()));
                set.map_err(|error| error.to_string())?;
            }
            own.bound(&client);
            Ok(())
        });
        let unset = |_| Err("the server is ending".to_owned());
        setting.await.unwrap_or_else(unset)
    }

    fn own(&self, upstream: &str) -> Option<Arc<Upstream>> {
        self.upstream(upstream)
            .filter(|it| it.spec.enabled && it.spec.unresolved.is_none() && it.has_own())
    }
}

fn names(bindings: &Bindings) -> Vec<String> {
    bindings.names().into_iter().map(str::to_owned).collect()
}
