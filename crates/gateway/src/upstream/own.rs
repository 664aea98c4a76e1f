//! Connections with the credentials of one client: how they are opened, and what is told if there are none.

use crate::{
    Credentials,
    catalogue::Catalogue,
    credentials::{Bindings, Filled},
    exchange::{Exchanged, Subject},
    tokens::has_login,
    upstream::{
        ClientKey, MAX_CLIENTS, Upstream, has_room, locked, now,
        slot::{Down, Live, Slot, Wants},
        state::MAX_ERROR,
    },
};
use adapter_tools::Askable;
use mcp_client::{Authorize, Dial, Error};
use oauth_client::{
    AuthorizationError, Authorizer, ExchangeOptions, ExchangedTokens, Exchanger, Secret,
};
use serde::Serialize;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::sleep;
use vault::ClientSecrets;

/// Pauses between two looks for a client with whose credentials the lists can be read.
const LOOKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Most clients whose connections are tried to read lists of which nothing is known.
const MAX_TRIED: usize = 8;

/// A client that an upstream cannot be used for, since its own credential is missing or was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedClient {
    /// Name of the client.
    pub client: String,
    /// Seconds since the epoch at which it was found out.
    pub since: u64,
    /// Reason, for people.
    pub why: String,
    /// Advice.
    pub cure: String,
}

/// The way to an upstream for one connection.
pub(crate) struct Way {
    pub(crate) dial: Dial,
    pub(crate) authorizer: Option<Authorizer>,
    /// The credentials, if they are those of one client.
    pub(crate) own: Option<Own>,
}

/// Credentials of one client that a connection was opened with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Own {
    /// Secrets, by their digest.
    Filled([u8; 32]),
    /// Tokens that it has signed in for, or that were got in exchange for its own.
    Tokens,
}

/// Reason why a connection was not opened.
pub(crate) enum Unopened {
    /// The attempt has failed.
    Failed(Error),
    /// The client has no credential that could be tried.
    Refused(String),
}

impl From<Error> for Unopened {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Upstream {
    /// True if each client has credentials of its own.
    pub(crate) fn has_own(&self) -> bool {
        self.spec.credentials != Credentials::Shared
    }

    /// True if users of clients give their credentials themselves.
    pub(crate) fn asks_users(&self) -> bool {
        matches!(
            self.spec.credentials,
            Credentials::SignedIn | Credentials::PerClient(_)
        )
    }

    /// Secrets of clients, where there is a place for them.
    pub(crate) fn secrets(&self) -> Option<&Arc<ClientSecrets>> {
        self.secrets.as_ref()
    }

    /// The address at which a client's person gives its credential; `None` without a server that browsers reach.
    pub(crate) fn sign_in_address(&self, client: &Arc<str>) -> Option<String> {
        let is_asked = self.asks_users() && !client.is_empty();
        let sign_ins = self.sign_ins.as_ref().filter(|_| is_asked)?;
        sign_ins.address(&self.spec.name, client)
    }

    /// Notes that a client's person has given another credential: what was wrong with the one before is over.
    pub(crate) fn bound(&self, client: &str) {
        self.accepted(client);
        for (key, slot) in &*locked(&self.of_clients) {
            if *key.principal == *client {
                slot.forgive();
            }
        }
        // Nobody may be waiting for it.
        let _ = self.bindings.send(client.into());
    }

    /// Places of secrets of clients, if each client has its own.
    fn bindings(&self) -> Option<&Bindings> {
        match &self.spec.credentials {
            Credentials::Shared | Credentials::SignedIn | Credentials::Exchanged(_) => None,
            Credentials::PerClient(bindings) => Some(bindings),
        }
    }

    /// The way to the upstream, for all clients or for the one of `owner`.
    pub(crate) async fn way(self: &Arc<Self>, owner: Option<&ClientKey>) -> Result<Way, Unopened> {
        if !self.has_own() {
            let authorizer = self.authorizer().await?;
            return Ok(Way {
                dial: self.spec.dial(authorize(&authorizer), None),
                authorizer,
                own: None,
            });
        }
        let Some(owner) = owner.filter(|it| !it.principal.is_empty()) else {
            return Err(Unopened::Refused("no client calls".to_owned()));
        };
        if self.spec.credentials == Credentials::SignedIn {
            let authorizer = self.authorizer_of(&owner.principal).await;
            let authorizer = Some(authorizer.map_err(Unopened::Refused)?);
            return Ok(Way {
                dial: self.spec.dial(authorize(&authorizer), None),
                authorizer,
                own: Some(Own::Tokens),
            });
        }
        if let Credentials::Exchanged(options) = &self.spec.credentials {
            let subject = owner.subject.as_ref();
            let tokens = subject.ok_or("the client has proved who it is by no token".to_owned());
            let tokens = tokens.and_then(|it| self.exchanged_for(it, options));
            let tokens = Exchanged(tokens.map_err(Unopened::Refused)?);
            return Ok(Way {
                dial: self.spec.dial(Some(Arc::new(tokens)), None),
                authorizer: None,
                own: Some(Own::Tokens),
            });
        }
        let filled = self.filled(&owner.principal).await;
        let filled = filled.map_err(Unopened::Refused)?;
        Ok(Way {
            dial: self.spec.dial(None, Some(&filled)),
            authorizer: None,
            own: Some(Own::Filled(filled.digest)),
        })
    }

    /// Source of the tokens of a client that has signed in, one for all of its connections.
    async fn authorizer_of(&self, client: &Arc<str>) -> Result<Authorizer, String> {
        let secrets = self.secrets.as_ref().ok_or("there is no vault")?;
        let mut known = self.own_authorizers.lock().await;
        let was_refused = locked(&self.record)
            .refused
            .iter()
            .any(|it| *it.client == **client);
        if let Some(known) = known.get(client)
            && !was_refused
            && !known.is_superseded().await.unwrap_or(true)
        {
            return Ok(known.clone());
        }
        known.remove(client);
        let made = self.spec.authorizer_of(secrets, client).await;
        let made = made.map_err(|error| crate::store::with_causes(&error))?;
        let made = made.ok_or("the client has not signed in")?;
        if MAX_CLIENTS <= known.len() {
            known.clear();
        }
        known.insert(Arc::clone(client), made.clone());
        Ok(made)
    }

    /// Source of the tokens of all clients, or of one, without anything being connected.
    pub(crate) async fn kept_authorizer(
        &self,
        client: Option<&Arc<str>>,
    ) -> Result<Option<Authorizer>, AuthorizationError> {
        let Some(client) = client else {
            return self.shared_authorizer().await;
        };
        let Some(secrets) = &self.secrets else {
            return Ok(None);
        };
        let known = self.own_authorizers.lock().await.get(client).cloned();
        match known {
            Some(known) if !known.is_superseded().await? => Ok(Some(known)),
            _ => self.spec.authorizer_of(secrets, client).await,
        }
    }

    /// Tokens that are got in exchange for that of a caller, one source for all of its connections.
    fn exchanged_for(
        &self,
        subject: &Subject,
        options: &ExchangeOptions,
    ) -> Result<ExchangedTokens, String> {
        let exchanger = self.exchanger.get_or_init(|| {
            let made = Exchanger::new(options.clone(), &[], redaction::know_token);
            made.map_err(|error| crate::store::with_causes(&error))
        });
        let exchanger = exchanger.as_ref().map_err(Clone::clone)?;
        let mut known = locked(&self.exchanged);
        if MAX_CLIENTS <= known.len() && !known.contains_key(subject) {
            known.clear();
        }
        let tokens = known
            .entry(subject.clone())
            .or_insert_with(|| exchanger.tokens(Secret::new(&*subject.0)));
        Ok(tokens.clone())
    }

    /// Values of a client's own credentials.
    async fn filled(self: &Arc<Self>, client: &Arc<str>) -> Result<Filled, String> {
        let (upstream, client) = (Arc::clone(self), Arc::clone(client));
        let reading = tokio::task::spawn_blocking(move || {
            let bindings = upstream.bindings().ok_or("no client has its own")?;
            let secrets = upstream.secrets.as_ref().ok_or("there is no vault")?;
            let own = secrets
                .of(&upstream.spec.name, &client)
                .map_err(|error| error.to_string())?;
            bindings.filled(own.as_ref())
        });
        let unread = |_| Err("the server is ending".to_owned());
        reading.await.unwrap_or_else(unread)
    }

    /// True if a client's own credentials are others than those of this digest, or are there no more.
    pub(crate) async fn has_other(self: &Arc<Self>, client: &Arc<str>, digest: [u8; 32]) -> bool {
        !matches!(self.filled(client).await, Ok(filled) if filled.digest == digest)
    }

    /// Notes that a client's own credential is missing or was refused.
    pub(crate) fn refused(&self, client: &str, why: &str) -> Down {
        let cure = self.cure_for(client);
        let why = redaction::without_known(why);
        let why: String = why.chars().take(MAX_ERROR).collect();
        let mut record = locked(&self.record);
        let refused = RefusedClient {
            client: client.to_owned(),
            since: now(),
            why: why.clone(),
            cure: cure.clone(),
        };
        let is_known = match record.refused.iter_mut().find(|it| it.client == client) {
            Some(known) if known.why == why => true,
            Some(known) => {
                *known = refused;
                false
            }
            None => {
                if MAX_CLIENTS <= record.refused.len() {
                    record.refused.remove(0);
                }
                record.refused.push(refused);
                false
            }
        };
        drop(record);
        if !is_known {
            tracing::warn!(
                upstream = self.spec.name,
                client,
                why,
                cure,
                "a client cannot use an upstream"
            );
        }
        self.heard.send_replace(true);
        Down {
            reason: why,
            retry_after: None,
            wants: Wants::Own(format!(
                "needs a credential of this client's own, which is missing or refused: {cure}"
            )),
        }
    }

    /// Notes that a client's own credential is good.
    pub(crate) fn accepted(&self, client: &str) {
        locked(&self.record)
            .refused
            .retain(|it| it.client != client);
    }

    fn cure_for(&self, client: &str) -> String {
        let name = &self.spec.name;
        if let Credentials::Exchanged(options) = &self.spec.credentials {
            let endpoint = options.token_endpoint.split('?').next().unwrap_or_default();
            return format!("it proves who it is by a token that {endpoint} exchanges");
        }
        let plain = |it: char| it.is_ascii_alphanumeric() || "_-.@:/|".contains(it);
        let client = match !client.is_empty() && client.chars().all(plain) {
            true => client.to_owned(),
            false => format!("'{}'", client.replace('\'', r"'\''")),
        };
        let Some(names) = self.bindings().map(Bindings::names) else {
            return format!("`owlclaw-mcp upstream login {name} --client {client}`");
        };
        let command = format!("owlclaw-mcp upstream credential set {name} --client {client}");
        match names.len() {
            0 | 1 => format!("`{command}`"),
            _ => {
                let all = names.iter().map(|it| format!("`{command} --name {it}`"));
                all.collect::<Vec<_>>().join(" and ")
            }
        }
    }

    /// Reads the lists on the connection of a client that has credentials.
    pub(crate) async fn look_as_client(self: &Arc<Self>) -> Result<Arc<Live>, Down> {
        if matches!(self.spec.credentials, Credentials::Exchanged(_)) {
            let last = self.subjects.last().into_iter();
            return self
                .look_as(last.map(|(it, subject)| (it, Some(subject))))
                .await;
        }
        let upstream = Arc::clone(self);
        let found = tokio::task::spawn_blocking(move || {
            let all = upstream
                .secrets
                .as_ref()
                .map_or(Ok(Vec::new()), |it| it.all());
            let all = all.map_err(|error| error.to_string())?;
            let signs_in = upstream.spec.credentials == Credentials::SignedIn;
            let own = all
                .into_iter()
                .filter(|it| it.upstream == upstream.spec.name && (!signs_in || has_login(it)));
            Ok::<_, String>(own.map(|it| it.client).collect::<Vec<_>>())
        });
        let down = |reason: String| Down {
            reason,
            retry_after: None,
            wants: Wants::Nothing,
        };
        let clients = found
            .await
            .unwrap_or_else(|_| Ok(Vec::new()))
            .map_err(down)?;
        self.look_as(clients.into_iter().map(|it| (it.into(), None)))
            .await
    }

    /// Reads the lists on the connection of the first of these clients that has one.
    async fn look_as(
        self: &Arc<Self>,
        clients: impl Iterator<Item = (Arc<str>, Option<Subject>)>,
    ) -> Result<Arc<Live>, Down> {
        let mut last = Down {
            reason: format!(
                "no client has a credential of its own yet, with which its lists could be read: {}",
                self.cure_for("NAME")
            ),
            retry_after: None,
            wants: Wants::Nothing,
        };
        for (principal, subject) in clients.take(MAX_TRIED) {
            let key = ClientKey {
                principal,
                session: None,
                subject,
                askable: Askable::default(),
            };
            let looked = match self.own_slot(key) {
                Ok(slot) => slot.look().await,
                Err(down) => Err(down),
            };
            match looked {
                Ok(live) => return Ok(live),
                Err(down) => last = down,
            }
        }
        Err(last)
    }

    /// The slot of one client, which is made if there is none.
    pub(crate) fn own_slot(self: &Arc<Self>, key: ClientKey) -> Result<Arc<Slot>, Down> {
        let mut slots = locked(&self.of_clients);
        if let Some(slot) = slots.get(&key) {
            return Ok(Arc::clone(slot));
        }
        let of_client = |slots: &HashMap<ClientKey, _>| {
            let own = slots.keys().filter(|it| it.principal == key.principal);
            own.count()
        };
        if !has_room(MAX_CLIENTS, slots.len(), of_client(&slots)) {
            // One that a call holds is about to have a connection.
            slots.retain(|_, slot| slot.live().is_some() || 1 < Arc::strong_count(slot));
        }
        if !has_room(MAX_CLIENTS, slots.len(), of_client(&slots)) {
            // Its session may have ended; nobody tells.
            let idle = slots
                .iter()
                .filter(|(it, slot)| it.principal == key.principal && Arc::strong_count(slot) == 1);
            let idle = idle.filter_map(|(key, slot)| Some((slot.live()?.desk.idle(), key)));
            let longest = idle.max_by_key(|(idle, _)| *idle);
            let longest = longest.filter(|(idle, _)| !idle.is_zero());
            if let Some(key) = longest.map(|(_, key)| key.clone()) {
                slots.remove(&key);
            }
        }
        let own = of_client(&slots);
        if !has_room(MAX_CLIENTS, slots.len(), own) {
            let all = slots.len();
            tracing::warn!(
                upstream = self.spec.name,
                client = &*key.principal,
                own,
                all,
                "a client has as many connections of its own as it may, and all are in use"
            );
            return Err(Down {
                reason: format!(
                    "{all} of at most {MAX_CLIENTS} connections for single clients are in use, {own} of them this client's, \
                     which may have no more than it leaves to others"
                ),
                retry_after: Some(Duration::from_secs(5)),
                wants: Wants::Room,
            });
        }
        let slot = Arc::new(Slot::start(self, Some(key.clone())));
        slots.insert(key, Arc::clone(&slot));
        Ok(slot)
    }

    /// Takes over the lists that were read on a client's own connection. What other clients see is kept, and so is what
    /// this client has never seen.
    pub(crate) fn listed_for_client(
        &self,
        own: &Arc<Catalogue>,
        before: Option<&Catalogue>,
        problem: Option<String>,
    ) {
        let _one_at_a_time = locked(&self.uniting);
        let others: Vec<_> = self
            .all_live()
            .iter()
            .filter_map(|it| it.lists.load_full())
            .filter(|it| !Arc::ptr_eq(it, own))
            .collect();
        let united = match self.catalogue() {
            Some(known) => known.united(own, before, &others),
            None => (**own).clone(),
        };
        self.listed(united, problem);
    }
}

fn authorize(authorizer: &Option<Authorizer>) -> Option<Arc<dyn Authorize>> {
    let authorizer = authorizer.clone()?;
    Some(Arc::new(authorizer))
}

/// Looks for a client with whose credentials the lists can be read, until they are known.
pub(crate) async fn find_lists(upstream: Weak<Upstream>) {
    let mut pause = LOOKS.0;
    loop {
        let Some(upstream) = upstream.upgrade() else {
            return;
        };
        if upstream.is_closed() || upstream.catalogue().is_some() {
            return;
        }
        if upstream.rests() {
            drop(upstream);
            sleep(LOOKS.0).await;
            continue;
        }
        pause = match upstream.look_as_client().await {
            Ok(_) => return,
            // Whoever sets the first credential waits for the tools.
            Err(down) if matches!(down.wants, Wants::Nothing | Wants::Room | Wants::Authority) => {
                LOOKS.0
            }
            Err(_) => (pause * 2).min(LOOKS.1),
        };
        drop(upstream);
        sleep(pause).await;
    }
}
