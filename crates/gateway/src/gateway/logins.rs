//! Logins that nobody uses for a while: they are renewed all the same, since many authorization servers forget a refresh token
//! that they are not shown for days. No connection is opened for it.

use super::{Gateway, Inner};
use crate::{
    Credentials, KeptCredential, Tokens,
    store::with_causes,
    tokens::{self, has_login},
    upstream::{Upstream, now},
};
use futures_util::future::join_all;
use oauth_client::{
    AuthorizationError, Authorizer, ClientIdentity, KeptLogin, Options, StoreError,
};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::sleep;
use vault::ClientSecrets;

/// Pause between two looks at the clock. Where the machine sleeps, a timer does, too.
const TICK: Duration = Duration::from_secs(30);
/// Seconds after which there may be other logins.
const LOOK: u64 = 600;
/// The shortest and the longest pause after a renewal that has failed, in seconds.
const REST: (u64, u64) = (60, 3_600);

/// Owner of a login: an upstream, and a client of it unless all share it.
type Whose = (String, Option<Arc<str>>);

/// Facts about a login from one look to the next.
#[derive(Clone, Debug, Default)]
struct Known {
    failures: u32,
    /// Time before which it is left alone, in seconds since 1970.
    rests_until: u64,
    was_renewable: bool,
    /// True once it is noted that somebody has to sign in.
    is_noted: bool,
}

struct Keeper {
    gateway: Weak<Inner>,
    age: Duration,
    /// Source of the part of the age that each login has: several servers do not come at once.
    parts: RandomState,
    known: HashMap<Whose, Known>,
}

impl Gateway {
    /// Renews each login that has a refresh token when its access token was got longer ago than `age`, less up to a fifth of
    /// that, until the gateway is dropped. Of several processes that share the logins one does.
    pub fn keep_logins(&self, age: Duration) {
        let keeper = Keeper {
            gateway: Arc::downgrade(&self.0),
            age,
            parts: RandomState::new(),
            known: HashMap::new(),
        };
        self.0.runtime.spawn(keeper.run());
    }

    /// Forgets a credential, once nobody renews it any more, so that it does not come back, and has the authorization server
    /// revoke its tokens afterwards. Returns false if there is none.
    ///
    /// # Errors
    ///
    /// [`VaultError`](vault::VaultError) if the file of the client cannot be changed, and errors of waiting for a renewal.
    pub async fn forget(
        &self,
        secrets: &Arc<ClientSecrets>,
        credential: &KeptCredential,
    ) -> Result<bool, StoreError> {
        let (is_forgotten, login) = tokens::forget(secrets, credential).await?;
        if let Some(login) = login {
            let upstream = self.0.get(&credential.upstream);
            let client = upstream.map(|it| it.spec.identity_of_client().0);
            tokio::spawn(revoke(client.unwrap_or_default(), login));
        }
        Ok(is_forgotten)
    }
}

async fn revoke(client: ClientIdentity, tokens: oauth_client::Credentials) {
    let options = Options {
        client,
        ..Options::default()
    };
    let revoked = match Authorizer::new(&tokens.server, options) {
        Ok(authorizer) => authorizer.revoke(&tokens).await,
        Err(error) => Err(error),
    };
    if let Err(error) = revoked {
        let (server, error) = (tokens.server, with_causes(&error));
        tracing::warn!(
            server,
            error,
            "forgotten tokens are good where they were given until they end"
        );
    }
}

impl Keeper {
    async fn run(mut self) {
        let mut next = now();
        loop {
            sleep(TICK).await;
            let Some(gateway) = self.gateway.upgrade() else {
                return;
            };
            if next <= now() {
                next = self.look(&gateway).await;
            }
        }
    }

    /// Looks at all logins; returns when to look again.
    async fn look(&mut self, gateway: &Inner) -> u64 {
        let clients = clients(gateway).await;
        let upstreams = gateway.upstreams().into_values();
        let looked = upstreams.map(|it| self.look_at(it, &clients));
        let looked = join_all(looked).await.into_iter().flatten();
        let mut next = now() + LOOK;
        self.known = looked
            .map(|(whose, known, due)| {
                next = next.min(due.max(known.rests_until));
                (whose, known)
            })
            .collect();
        next
    }

    /// Looks at the logins at one upstream; with each, when it is to be renewed.
    async fn look_at(
        &self,
        upstream: Arc<Upstream>,
        clients: &BTreeMap<String, Vec<Arc<str>>>,
    ) -> Vec<(Whose, Known, u64)> {
        let spec = &upstream.spec;
        let whose: Vec<Option<Arc<str>>> = match (&spec.credentials, &spec.tokens) {
            _ if upstream.is_out_of_use() => Vec::new(),
            (Credentials::SignedIn, _) => {
                let clients = clients.get(&spec.name).into_iter().flatten();
                clients.cloned().map(Some).collect()
            }
            (Credentials::Shared, Tokens::Kept(_)) => vec![None],
            _ => Vec::new(),
        };
        let mut looked = Vec::new();
        // The pause that its authorization server needs.
        let mut is_away = false;
        for client in whose {
            let whose = (spec.name.clone(), client);
            let mut known = self.known.get(&whose).cloned().unwrap_or_default();
            let mut due = 0;
            if !is_away && known.rests_until <= now() {
                let client = whose.1.as_ref();
                let age = self.age_of(&whose);
                let login = match upstream.kept_authorizer(client).await {
                    Ok(Some(authorizer)) => authorizer.keep_login(age).await,
                    Ok(None) => Ok(None),
                    Err(error) => Err(error),
                };
                match login {
                    Ok(login) => {
                        known.failures = 0;
                        let due_at = |it: KeptLogin| known.note(&upstream, client, it, age);
                        due = login.map_or(u64::MAX, due_at);
                    }
                    Err(error) => {
                        is_away = matches!(
                            error,
                            AuthorizationError::Send { .. } | AuthorizationError::OutOfOrder { .. }
                        );
                        known.failed(&upstream, client, &error);
                    }
                }
            } else if is_away {
                known.rests_until = known.rests_until.max(now() + REST.0);
            }
            looked.push((whose, known, due));
        }
        looked
    }

    /// The age at which a login is renewed.
    fn age_of(&self, whose: &Whose) -> Duration {
        let part = (self.parts.hash_one(whose) % 1_000) as f64 / 1_000.0;
        self.age.mul_f64(1.0 - part / 5.0)
    }
}

impl Known {
    /// Notes how a login is; returns when to look at it again.
    fn note(
        &mut self,
        upstream: &Arc<Upstream>,
        client: Option<&Arc<str>>,
        login: KeptLogin,
        age: Duration,
    ) -> u64 {
        if login.is_renewable {
            self.was_renewable = true;
            if std::mem::take(&mut self.is_noted) {
                upstream.has_login_again(client);
            }
            return login.issued_at.saturating_add(age.as_secs());
        }
        let ends_at = login.ends_at.unwrap_or(u64::MAX);
        // What never could be renewed ends as it was to.
        if self.was_renewable && !self.is_noted && ends_at <= now() {
            self.is_noted = true;
            upstream.has_lost_login(client);
        }
        match self.is_noted {
            true => u64::MAX,
            false => ends_at,
        }
    }

    fn failed(
        &mut self,
        upstream: &Upstream,
        client: Option<&Arc<str>>,
        error: &AuthorizationError,
    ) {
        let mut byte = [0];
        let _ = getrandom::fill(&mut byte);
        let pause = REST.0 << self.failures.min(8);
        let pause = pause.min(REST.1);
        let asked = error.retry_after().unwrap_or_default().as_secs();
        self.rests_until = now() + asked.max(pause - pause * u64::from(byte[0]) / 1_024);
        self.failures += 1;
        tracing::warn!(
            upstream = upstream.spec.name,
            client = client.map(|it| &**it),
            error = with_causes(error),
            cure = error.cure(),
            "a login that nobody uses cannot be renewed yet"
        );
    }
}

/// The clients that have signed in, by upstream.
async fn clients(gateway: &Inner) -> BTreeMap<String, Vec<Arc<str>>> {
    let Some(secrets) = gateway.options.clients.clone() else {
        return BTreeMap::new();
    };
    let upstreams = gateway.upstreams();
    let mut upstreams = upstreams.values();
    if !upstreams.any(|it| it.spec.credentials == Credentials::SignedIn) {
        return BTreeMap::new();
    }
    let all = tokio::task::spawn_blocking(move || secrets.all()).await;
    let mut clients = BTreeMap::<String, Vec<Arc<str>>>::new();
    match all {
        Ok(Ok(all)) => {
            for own in all.into_iter().filter(has_login) {
                let known = clients.entry(own.upstream).or_default();
                known.push(own.client.into());
            }
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "logins of clients cannot be read, and so not renewed");
        }
        Err(_) => {}
    }
    clients
}

impl Upstream {
    /// Notes that somebody has to sign in, since no token is left that is good.
    fn has_lost_login(&self, client: Option<&Arc<str>>) {
        let why = "its login has ended: the refresh token is not taken any more";
        match client {
            Some(client) => drop(self.refused(client, why)),
            None => self.failed(why, true),
        }
    }

    /// Notes that somebody has done so.
    fn has_login_again(&self, client: Option<&Arc<str>>) {
        match client {
            Some(client) => self.accepted(client),
            None if self.wants_login() => self.answered(),
            None => {}
        }
    }
}
