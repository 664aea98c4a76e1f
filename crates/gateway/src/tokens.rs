//! Tokens of upstreams: where they are kept, and that they are known for secrets; and what is kept of all clients.

use data_encoding::HEXLOWER;
use oauth_client::{Credentials, FileStore, Held, Pending, Registration, StoreError, TokenStore};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use vault::{Belongings, ClientSecrets, Name, Secret, VaultError};

/// Beginning of the names that tokens are kept under.
const LOGIN: &str = "login/";
/// Beginning of the names that registrations are kept under.
const REGISTRATION: &str = "registration/";
/// The one for whom a registration is, and tokens of all clients.
const ALL: &str = "*";
/// Beginning of the owners of tokens that all clients share. No name of an upstream has a slash.
const SHARED: &str = "shared/";

/// A credential that is kept, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCredential {
    /// Name of the upstream.
    pub upstream: String,
    /// Client whose it is; `None` if all clients share it.
    pub client: Option<String>,
    /// Name under which it is kept.
    pub name: String,
    /// Kind of credential.
    pub kind: KeptKind,
    /// Time when it was first kept, in seconds since 1970.
    pub since: u64,
    /// Time when it was last set or renewed, in seconds since 1970.
    pub changed_at: u64,
}

/// Kind of a [`KeptCredential`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptKind {
    /// Secret that was given.
    Secret,
    /// Tokens of a sign-in.
    Login {
        /// Authorization server that has given them.
        issuer: String,
        /// Time when the access token expires, in seconds since 1970, if that is known.
        expires_at: Option<u64>,
        /// True if another access token can be got without a person.
        is_renewed: bool,
    },
    /// Sign-in of which no token is left that could be used.
    EndedLogin,
}

/// Credentials at upstreams, in the order of upstreams and clients. Registrations at authorization servers are nobody's,
/// and are not among them. Reads files.
///
/// # Errors
///
/// [`VaultError`] if the vault or a file of a client cannot be opened.
pub fn kept_credentials(secrets: &ClientSecrets) -> Result<Vec<KeptCredential>, VaultError> {
    let mut found = Vec::new();
    for own in secrets.all()? {
        let (upstream, client) = match own.upstream.strip_prefix(SHARED) {
            Some(upstream) => (upstream, None),
            None if own.upstream.contains('/') => continue,
            None => (own.upstream.as_str(), Some(own.client.clone())),
        };
        for (name, entry) in own.entries() {
            found.push(KeptCredential {
                upstream: upstream.to_owned(),
                client: client.clone(),
                name: name.to_owned(),
                kind: kind_of(name, &entry.value),
                since: entry.created_at,
                changed_at: entry.changed_at,
            });
        }
    }
    found.sort_by(|one, other| {
        let key = |it: &KeptCredential| (it.upstream.clone(), it.client.clone(), it.name.clone());
        key(one).cmp(&key(other))
    });
    Ok(found)
}

fn kind_of(name: &str, value: &Secret) -> KeptKind {
    if !name.starts_with(LOGIN) {
        return KeptKind::Secret;
    }
    let login = serde_json::from_str::<Credentials>(value.reveal()).ok();
    let login = login.and_then(|it| Some((it.issuer, it.tokens?)));
    match login {
        None => KeptKind::EndedLogin,
        Some((issuer, tokens)) => KeptKind::Login {
            issuer,
            expires_at: tokens
                .expires_in
                .map(|it| tokens.issued_at.saturating_add(it)),
            is_renewed: tokens.refresh_token.is_some(),
        },
    }
}

/// Forgets a credential, once nobody renews it any more, so that it does not come back. Returns true if there was one, and
/// the tokens that are forgotten with it.
pub(crate) async fn forget(
    secrets: &Arc<ClientSecrets>,
    credential: &KeptCredential,
) -> Result<(bool, Option<Credentials>), StoreError> {
    let KeptCredential {
        upstream,
        client,
        name,
        ..
    } = credential.clone();
    let tokens = SealedTokens::new(Arc::clone(secrets), upstream, client.as_deref());
    let _held = match name.starts_with(LOGIN) {
        true => Some(tokens.hold("").await?),
        false => None,
    };
    blocking(move || {
        let (upstream, client) = tokens.owner();
        let own = tokens.secrets.of(&upstream, client)?;
        let login = own.as_ref().and_then(|it| it.get(&name));
        let login = login.filter(|_| name.starts_with(LOGIN));
        let login = login.and_then(|it| serde_json::from_str::<Credentials>(it.reveal()).ok());
        let read = login.map(|it| Ok::<_, StoreError>((tokens.read(&it.server)?, it.issuer)));
        let read = read.transpose()?;
        let login = read.and_then(|(all, issuer)| all.into_iter().find(|it| it.issuer == issuer));
        Ok((tokens.secrets.remove(&upstream, client, &name)?, login))
    })
    .await
}

/// A store whose tokens and secrets are known to redaction from the moment that they are read from it or come to it.
#[derive(Clone, Debug)]
pub(crate) struct Known(pub(crate) Arc<dyn TokenStore>);

fn note(credentials: &Credentials) {
    let registered = credentials.registration.as_ref();
    if let Some(secret) = registered.and_then(|it| it.client_secret.as_ref()) {
        redaction::know_token(secret.reveal());
    }
    if let Some(tokens) = &credentials.tokens {
        redaction::know_token(tokens.access_token.reveal());
        let others = [&tokens.refresh_token, &tokens.dpop_key];
        for secret in others.into_iter().flatten() {
            redaction::know_token(secret.reveal());
        }
    }
}

impl TokenStore for Known {
    fn load<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Vec<Credentials>, StoreError>> {
        Box::pin(async move {
            let loaded = self.0.load(server).await?;
            loaded.iter().for_each(note);
            Ok(loaded)
        })
    }

    fn hold<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Held, StoreError>> {
        self.0.hold(server)
    }

    fn save<'a>(&'a self, credentials: &'a Credentials) -> Pending<'a, Result<(), StoreError>> {
        note(credentials);
        self.0.save(credentials)
    }

    fn remove<'a>(
        &'a self,
        server: &'a str,
        issuer: &'a str,
    ) -> Pending<'a, Result<(), StoreError>> {
        self.0.remove(server, issuer)
    }
}

/// Tokens in files that are there only as long as there are no sealed ones: who signs in for the upstream takes the place of
/// who has signed in for its address.
#[derive(Debug)]
pub(crate) struct Unless {
    pub(crate) sealed: SealedTokens,
    pub(crate) files: FileStore,
}

impl TokenStore for Unless {
    fn load<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Vec<Credentials>, StoreError>> {
        Box::pin(async move {
            let sealed = self.sealed.load(server).await?;
            match sealed.iter().any(|it| it.tokens.is_some()) {
                true => Ok(Vec::new()),
                false => self.files.load(server).await,
            }
        })
    }

    fn hold<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Held, StoreError>> {
        self.files.hold(server)
    }

    fn save<'a>(&'a self, credentials: &'a Credentials) -> Pending<'a, Result<(), StoreError>> {
        self.files.save(credentials)
    }

    fn remove<'a>(
        &'a self,
        server: &'a str,
        issuer: &'a str,
    ) -> Pending<'a, Result<(), StoreError>> {
        self.files.remove(server, issuer)
    }
}

/// Keeps tokens for one upstream, of one client or of all, encrypted beside the vault.
///
/// Tokens are kept by issuer, upstream and client. What an authorization server has registered belongs to the upstream
/// and is used for all clients: one registration for sign-ins that come back to this machine, and one for each address
/// that they come back to otherwise.
#[derive(Clone, Debug)]
pub struct SealedTokens {
    secrets: Arc<ClientSecrets>,
    upstream: String,
    client: Option<String>,
    /// Beginning of the names of registrations that a sign-in uses; `None` for tokens that are only used and renewed.
    registrations: Option<String>,
}

impl SealedTokens {
    /// Tokens for the upstream of this name: of a client, or those that all clients share.
    pub fn new(
        secrets: Arc<ClientSecrets>,
        upstream: impl Into<String>,
        client: Option<&str>,
    ) -> Self {
        Self {
            secrets,
            upstream: upstream.into(),
            client: client.map(str::to_owned),
            registrations: None,
        }
    }

    /// The same for a sign-in that comes back to this address, or to a port of this machine.
    #[must_use]
    pub(crate) fn signing_in(self, address: Option<&str>) -> Self {
        Self {
            registrations: Some(address.map_or_else(String::new, returning_to)),
            ..self
        }
    }

    /// Owner of the tokens: upstream and client. No name of an upstream has a slash.
    fn owner(&self) -> (String, &str) {
        match &self.client {
            Some(client) => (self.upstream.clone(), client),
            None => (format!("{SHARED}{}", self.upstream), ALL),
        }
    }

    fn registrar(&self) -> (String, &str) {
        (format!("registration/{}", self.upstream), ALL)
    }

    fn read(&self, server: &str) -> Result<Vec<Credentials>, StoreError> {
        let (upstream, client) = self.owner();
        let found = kept(&self.secrets, &upstream, client, LOGIN)?;
        let mut found: Vec<Credentials> = found.into_iter().map(|(_, it)| it).collect();
        found.retain(|it| it.server == server);
        let (upstream, client) = self.registrar();
        let mut registered = kept(&self.secrets, &upstream, client, REGISTRATION)?;
        registered.retain(|(_, it)| it.server == server);
        for own in &mut found {
            let here = registered.iter().filter(|(_, it)| it.issuer == own.issuer);
            let mut here = here.filter_map(|(name, it)| Some((name, it.registration.as_ref()?)));
            let tokens = own.tokens.as_ref();
            own.registration = match (&self.registrations, tokens) {
                (None, Some(tokens)) => here.find(|(_, it)| it.client_id == tokens.client_id),
                (place, _) => here.find(|(name, _)| is_at(name, place.as_deref())),
            }
            .map(|(_, it)| it.clone());
        }
        for (name, registered) in registered {
            let is_known = found.iter().any(|it| it.issuer == registered.issuer);
            if !is_known && is_at(&name, self.registrations.as_deref()) {
                found.push(registered);
            }
        }
        found.sort_by_key(|it| std::cmp::Reverse((it.tokens.is_some(), it.saved_at)));
        Ok(found)
    }

    fn write(&self, credentials: &Credentials) -> Result<(), StoreError> {
        let id = id(&credentials.server, &credentials.issuer);
        let registration: Option<&Registration> = credentials.registration.as_ref();
        let (upstream, client) = self.registrar();
        let before = kept(&self.secrets, &upstream, client, REGISTRATION)?;
        let mut before = before
            .into_iter()
            .filter(|(_, it)| it.server == credentials.server && it.issuer == credentials.issuer);
        match registration {
            Some(registration) => {
                let name = format!(
                    "{REGISTRATION}{id}{}",
                    returning_to(&registration.redirect_uri)
                );
                let mut before = before.filter(|(it, _)| *it == name);
                let before = before.next().and_then(|(_, it)| it.registration);
                if before.as_ref() != Some(registration) {
                    let kept = Credentials {
                        tokens: None,
                        sign_in: None,
                        ..credentials.clone()
                    };
                    keep(&self.secrets, (&upstream, client), &name, &kept)?;
                }
            }
            // It was given up, since the authorization server does not know it any more.
            None => {
                let tokens = credentials.tokens.as_ref();
                let gone = before.find(|(name, it)| match (&self.registrations, tokens) {
                    (None, Some(tokens)) => {
                        let it = it.registration.as_ref();
                        it.is_some_and(|it| it.client_id == tokens.client_id)
                    }
                    (place, _) => is_at(name, place.as_deref()),
                });
                if let Some((name, _)) = gone {
                    self.secrets.remove(&upstream, client, &name)?;
                }
            }
        }
        let (upstream, client) = self.owner();
        let own = Credentials {
            registration: None,
            ..credentials.clone()
        };
        keep(
            &self.secrets,
            (&upstream, client),
            &format!("{LOGIN}{id}"),
            &own,
        )
    }
}

/// End of the name of a registration whose sign-ins come back to this address: nothing for a port of this machine, where
/// one registration is as good as another.
fn returning_to(address: &str) -> String {
    match address.ends_with("/callback") && address.matches('/').count() == 3 {
        true => String::new(),
        false => format!("/{}", &id(address, "")[..16]),
    }
}

/// True for the name of a registration whose sign-ins come back to this place; a port of this machine without one.
fn is_at(name: &str, place: Option<&str>) -> bool {
    let rest = name.strip_prefix(REGISTRATION).unwrap_or_default();
    let end = rest.find('/').map_or("", |at| &rest[at..]);
    end == place.unwrap_or_default()
}

fn id(server: &str, issuer: &str) -> String {
    let mut digest = Sha256::new();
    digest.update((server.len() as u64).to_be_bytes());
    digest.update(server);
    digest.update(issuer);
    HEXLOWER.encode(&digest.finalize()[..16])
}

/// Credentials that are kept under names that begin so, with the names.
fn kept(
    secrets: &ClientSecrets,
    upstream: &str,
    client: &str,
    beginning: &str,
) -> Result<Vec<(String, Credentials)>, StoreError> {
    let Some(own) = secrets.of(upstream, client)? else {
        return Ok(Vec::new());
    };
    let read = |(name, value): (&str, &Secret)| {
        // The parser's own message may repeat what it has read.
        let unreadable = |_| format!("what is kept as `{name}` cannot be read: sign in again");
        let read = serde_json::from_str(value.reveal());
        read.map(|it| (name.to_owned(), it))
            .map_err(|error| unreadable(error).into())
    };
    own.values()
        .filter(|(name, _)| name.starts_with(beginning))
        .map(read)
        .collect()
}

fn keep(
    secrets: &ClientSecrets,
    (upstream, client): (&str, &str),
    name: &str,
    credentials: &Credentials,
) -> Result<(), StoreError> {
    let name: Name = name.parse()?;
    let text = Secret::new(serde_json::to_string(credentials)?);
    secrets.set(upstream, client, &name, text)?;
    Ok(())
}

/// True if a client has signed in at the upstream that these belong to.
pub(crate) fn has_login(own: &Belongings) -> bool {
    own.names().any(|(name, _)| name.starts_with(LOGIN))
}

impl TokenStore for SealedTokens {
    fn load<'a>(&'a self, server: &'a str) -> Pending<'a, Result<Vec<Credentials>, StoreError>> {
        let (store, server) = (self.clone(), server.to_owned());
        blocking(move || store.read(&server))
    }

    fn hold<'a>(&'a self, _: &'a str) -> Pending<'a, Result<Held, StoreError>> {
        let (upstream, client) = self.owner();
        let name = format!(".{}.renewal", id(&upstream, client));
        oauth_client::hold_file(self.secrets.directory().join(name))
    }

    fn save<'a>(&'a self, credentials: &'a Credentials) -> Pending<'a, Result<(), StoreError>> {
        let (store, credentials) = (self.clone(), credentials.clone());
        blocking(move || store.write(&credentials))
    }

    fn remove<'a>(
        &'a self,
        server: &'a str,
        issuer: &'a str,
    ) -> Pending<'a, Result<(), StoreError>> {
        let (store, name) = (self.clone(), format!("{LOGIN}{}", id(server, issuer)));
        blocking(move || {
            let (upstream, client) = store.owner();
            let removed: Result<bool, VaultError> = store.secrets.remove(&upstream, client, &name);
            Ok(removed.map(drop)?)
        })
    }
}

fn blocking<'a, T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Pending<'a, Result<T, StoreError>> {
    Box::pin(async move { tokio::task::spawn_blocking(work).await? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oauth_client::Tokens;
    use std::time::Duration;
    use vault::{Key, Vault};

    fn some(issuer: &str, token: &str) -> Credentials {
        Credentials {
            server: "http://s/mcp".to_owned(),
            issuer: issuer.to_owned(),
            registration: Some(Registration {
                client_id: "registered".to_owned(),
                client_secret: Some("canary-registered".into()),
                secret_expires_at: None,
                auth_method: None,
                redirect_uri: "http://127.0.0.1:1/callback".to_owned(),
                scope: String::new(),
            }),
            tokens: Some(Tokens {
                access_token: token.into(),
                refresh_token: Some("canary-refresh".into()),
                issued_at: 1,
                expires_in: Some(60),
                requested: Vec::new(),
                client_id: "registered".to_owned(),
                dpop_key: None,
            }),
            saved_at: 1,
            ..Credentials::default()
        }
    }

    #[tokio::test]
    async fn a_sign_in_for_the_upstream_takes_the_place_of_one_for_its_address() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vault");
        let key = Key::generate().unwrap();
        Vault::create(&path, &key).unwrap();
        let secrets = Arc::new(ClientSecrets::beside(&path, move || Ok(key.clone())));
        let server = "http://s/mcp";
        let unless = Unless {
            sealed: SealedTokens::new(secrets, "up", None),
            files: FileStore::at(directory.path().join("files")),
        };
        unless
            .save(&some("http://i", "of-the-address"))
            .await
            .unwrap();
        let has_tokens = async || {
            let kept = unless.load(server).await.unwrap();
            kept.iter().any(|it| it.tokens.is_some())
        };
        assert!(has_tokens().await);
        let mine = some("http://i", "of-the-upstream");
        unless.sealed.save(&mine).await.unwrap();
        assert!(!has_tokens().await, "they are superseded");
        unless.sealed.remove(server, "http://i").await.unwrap();
        assert!(has_tokens().await);
    }

    #[tokio::test]
    async fn tokens_are_the_clients_and_a_registration_is_the_upstreams() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vault");
        let key = Key::generate().unwrap();
        Vault::create(&path, &key).unwrap();
        let secrets = Arc::new(ClientSecrets::beside(&path, move || Ok(key.clone())));
        let store = |client| SealedTokens::new(Arc::clone(&secrets), "up", client);
        let (ana, bob, all) = (store(Some("ana")), store(Some("bob")), store(None));
        let server = "http://s/mcp";
        let first = some("http://i", "canary-access-of-ana");
        ana.save(&first).await.unwrap();
        assert_eq!(
            ana.load(server).await.unwrap(),
            std::slice::from_ref(&first)
        );
        assert!(ana.load("http://other/mcp").await.unwrap().is_empty());
        for other in [&bob, &all, &store(Some("*")), &store(Some("shared/up"))] {
            let seen = other.load(server).await.unwrap();
            assert_eq!(seen.len(), 1, "the registration");
            assert_eq!(seen[0].registration, first.registration);
            assert_eq!(seen[0].tokens, None);
        }
        let elsewhere = SealedTokens::new(Arc::clone(&secrets), "other", Some("ana"));
        assert!(elsewhere.load(server).await.unwrap().is_empty());
        // A client's tokens are renewed by one at a time, other clients' meanwhile.
        let held = ana.hold(server).await.unwrap();
        bob.hold(server).await.unwrap();
        let again = store(Some("ana"));
        let waits = Duration::from_millis(100);
        assert!(
            tokio::time::timeout(waits, again.hold(server))
                .await
                .is_err()
        );
        drop(held);
        again.hold(server).await.unwrap();
        // Another issuer, and a registration that is given up.
        let second = Credentials {
            registration: None,
            ..some("http://i2", "canary-2")
        };
        ana.save(&second).await.unwrap();
        assert_eq!(ana.load(server).await.unwrap().len(), 2);
        let unregistered = Credentials {
            registration: None,
            ..first.clone()
        };
        ana.save(&unregistered).await.unwrap();
        assert!(bob.load(server).await.unwrap().is_empty());
        ana.remove(server, "http://i").await.unwrap();
        assert_eq!(
            ana.load(server).await.unwrap(),
            std::slice::from_ref(&second)
        );

        // What is kept is told without its values, and each is forgotten by itself.
        secrets
            .set(
                "up",
                "bob",
                &"token".parse().unwrap(),
                Secret::new("canary-bob"),
            )
            .unwrap();
        all.save(&some("http://i", "canary-all")).await.unwrap();
        let told = || {
            let kept = kept_credentials(&secrets).unwrap();
            assert!(!format!("{kept:?}").contains("canary"));
            kept
        };
        let [shared, of_ana, of_bob] = &told()[..] else {
            panic!("{:?}", told())
        };
        let login = |issuer: &str| KeptKind::Login {
            issuer: issuer.to_owned(),
            expires_at: Some(61),
            is_renewed: true,
        };
        assert_eq!((&shared.client, &shared.kind), (&None, &login("http://i")));
        assert_eq!(
            (of_ana.client.as_deref(), &of_ana.kind),
            (Some("ana"), &login("http://i2"))
        );
        assert_eq!(
            (of_bob.client.as_deref(), &of_bob.kind),
            (Some("bob"), &KeptKind::Secret)
        );
        // What is being renewed is not forgotten before that has ended.
        let held = ana.hold(server).await.unwrap();
        let forgetting = tokio::time::timeout(waits, forget(&secrets, of_ana));
        assert!(forgetting.await.is_err());
        drop(held);
        for it in [shared, of_ana, of_bob] {
            assert!(forget(&secrets, it).await.unwrap().0);
            assert!(!forget(&secrets, it).await.unwrap().0);
        }
        assert_eq!(told(), []);
        ana.save(&second).await.unwrap();
        for file in std::fs::read_dir(secrets.directory()).unwrap() {
            let text = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains("canary"));
        }

        // Sign-ins that come back to a server's address have a registration of their own, and renewals the one that the
        // tokens were got with.
        let web = "https://tools.example/sign-in/callback";
        let signing_in = |client, address| store(client).signing_in(address);
        ana.save(&first).await.unwrap();
        let by_web = Credentials {
            registration: first.registration.clone().map(|it| Registration {
                client_id: "by-web".to_owned(),
                redirect_uri: web.to_owned(),
                ..it
            }),
            tokens: first.tokens.clone().map(|it| Tokens {
                client_id: "by-web".to_owned(),
                ..it
            }),
            ..first.clone()
        };
        signing_in(Some("bob"), Some(web))
            .save(&by_web)
            .await
            .unwrap();
        let known = async |store: SealedTokens| {
            let loaded = store.load(server).await.unwrap();
            let here = loaded.into_iter().find(|it| it.issuer == "http://i");
            here.and_then(|it| it.registration).map(|it| it.client_id)
        };
        for client in ["ana", "bob", "new"] {
            let at = known(signing_in(Some(client), Some(web))).await;
            assert_eq!(at.as_deref(), Some("by-web"), "{client}");
            let at = known(signing_in(Some(client), None)).await;
            assert_eq!(at.as_deref(), Some("registered"), "{client}");
            let elsewhere = signing_in(Some(client), Some("https://b.example/sign-in/callback"));
            assert_eq!(known(elsewhere).await, None, "{client}");
        }
        assert_eq!(
            known(store(Some("ana"))).await.as_deref(),
            Some("registered")
        );
        assert_eq!(known(store(Some("bob"))).await.as_deref(), Some("by-web"));
        let unregistered = Credentials {
            registration: None,
            ..by_web
        };
        bob.save(&unregistered).await.unwrap();
        assert_eq!(known(store(Some("bob"))).await, None);
        assert_eq!(
            known(store(Some("ana"))).await.as_deref(),
            Some("registered")
        );

        let known = Known(Arc::new(all));
        known
            .save(&some("http://i", "canary-access-of-all"))
            .await
            .unwrap();
        for secret in [
            "canary-access-of-all",
            "canary-refresh",
            "canary-registered",
        ] {
            assert_eq!(redaction::without_known(secret), redaction::KNOWN);
        }
    }
}
