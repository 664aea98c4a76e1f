//! New tokens: which authorization server they are from, what they are asked for, and by which grant.

use super::{
    Inner, Obtained, State, add_scopes,
    tokens::{is_newer, usable},
};
use crate::{
    AuthorizationError, Challenge, Credentials, Dpop, Grant, IdentityProvider,
    discovery::{self, AuthorizationServer, Resource},
    dpop::Prover,
    token::{self, ClientAt, ClientProof},
};
use std::sync::Arc;

pub(super) const OFFLINE_ACCESS: &str = "offline_access";

impl Inner {
    /// Finds the authorization server anew, and gets a token of it.
    pub(super) async fn replace(
        &self,
        state: &mut State,
        challenge: &Challenge,
        may_refresh: bool,
        more: Vec<String>,
    ) -> Result<Obtained, AuthorizationError> {
        if !self.server.is_private_on_the_way() && !self.options.plain_http {
            return Err(AuthorizationError::Address {
                address: self.key.clone(),
                named_by: "the user",
                why: "it is not https, so that a token would be sent in the clear",
            });
        }
        let stored = self.stored().await?;
        self.heed(state, &stored);
        let named = challenge.resource_metadata.as_deref();
        let resource = discovery::resource(&self.web, &self.server, named).await?;
        let (resource, server) = match resource {
            Some(resource) => {
                let issuer = self.choose_issuer(&resource, state, &stored)?;
                let server = discovery::authorization_server(&self.web, &issuer).await?;
                (resource, server)
            }
            None => {
                let server = discovery::old_authorization_server(&self.web, &self.server).await?;
                let resource = Resource {
                    resource: self.key.clone(),
                    issuers: vec![server.issuer.clone()],
                    ..Resource::default()
                };
                self.choose_issuer(&resource, state, &stored)?;
                (resource, server)
            }
        };
        let here = stored.into_iter().find(|it| it.issuer == server.issuer);
        let of_here = |it: &&Credentials| it.issuer == server.issuer;
        let mine = state.credentials.as_ref().filter(of_here);
        match (mine, here) {
            // Another process has got another token meanwhile, which the server has not refused yet.
            (mine, Some(here))
                if may_refresh
                    && here.tokens.is_some()
                    && mine.is_none_or(|mine| is_newer(&here, mine)) =>
            {
                self.adopt(state, here);
                self.publish(state);
                if self.known().is_some_and(|known| usable(known.as_deref())) {
                    return Ok(Obtained::Renewed);
                }
            }
            (Some(_), _) => {}
            (None, Some(here)) => self.adopt(state, here),
            (None, None) => self.adopt(
                state,
                Credentials {
                    server: self.key.clone(),
                    issuer: server.issuer.clone(),
                    ..Credentials::default()
                },
            ),
        }
        if let Some(credentials) = &mut state.credentials {
            credentials
                .token_endpoint
                .clone_from(&server.token_endpoint);
            credentials.resource = Some(resource.resource.clone());
        }
        if may_refresh && let Some(obtained) = self.renew(state).await? {
            return Ok(obtained);
        }
        let scopes = self.scopes(state, challenge, &resource, &server, more);
        let tokens = state.credentials.as_ref().and_then(|it| it.tokens.as_ref());
        // Tokens that were bound once stay so, whatever a challenge leaves out.
        let is_bound = tokens.is_some_and(|it| it.dpop_key.is_some());
        let wants_dpop = challenge.dpop || resource.wants_dpop || is_bound;
        let prover = match self.options.dpop {
            Dpop::Always => true,
            Dpop::Asked => wants_dpop,
            Dpop::Never if wants_dpop => {
                return Err(AuthorizationError::Options(
                    "the server wants DPoP, which is switched off".to_owned(),
                ));
            }
            Dpop::Never => false,
        };
        let prover = match (prover, &state.prover) {
            (false, _) => None,
            (true, _)
                if server.dpop_signing_alg_values_supported.is_some() && !server.has_dpop() =>
            {
                return Err(AuthorizationError::Unsupported {
                    issuer: server.issuer,
                    lacks: "takes no proofs (DPoP) signed with ES256",
                });
            }
            (true, Some(prover)) => Some(Arc::clone(prover)),
            (true, None) => Some(Arc::new(Prover::generate()?)),
        };
        self.grant(state, &resource, &server, scopes, prover)
            .await?;
        Ok(Obtained::Granted)
    }

    /// The issuer among those that the server names.
    pub(super) fn choose_issuer(
        &self,
        resource: &Resource,
        state: &State,
        stored: &[Credentials],
    ) -> Result<String, AuthorizationError> {
        let client = &self.options.client;
        let offered = |issuer: &&str| resource.issuers.iter().any(|it| it == issuer);
        let current = state.credentials.as_ref().map(|it| it.issuer.as_str());
        let mut known = current
            .into_iter()
            .chain(stored.iter().map(|it| it.issuer.as_str()));
        // Credentials that were given go to one authorization server: the configured, or the first.
        let has_given = client.id.is_some() || matches!(self.options.grant, Grant::Workload(_));
        let expected = match &client.issuer {
            Some(issuer) => Some(issuer.as_str()),
            None if has_given => current.or_else(|| known.next()),
            None => None,
        };
        if let Some(expected) = expected {
            if offered(&expected) {
                return Ok(expected.to_owned());
            }
            let named = resource.issuers.iter().take(4);
            let named: Vec<_> = named
                .map(|it| format!("`{}`", crate::error::said(it)))
                .collect();
            return Err(AuthorizationError::OtherIssuer {
                offered: named.join(", "),
                expected: expected.to_owned(),
            });
        }
        let known = known.find(offered).map(str::to_owned);
        Ok(known.unwrap_or_else(|| resource.issuers[0].clone()))
    }

    /// Scopes of the challenge, or those of the options, or those of the server's metadata; and what was
    /// asked for before, so that nothing is lost.
    pub(super) fn scopes(
        &self,
        state: &State,
        challenge: &Challenge,
        resource: &Resource,
        server: &AuthorizationServer,
        more: Vec<String>,
    ) -> Vec<String> {
        let tokens = state.credentials.as_ref().and_then(|it| it.tokens.as_ref());
        let mut scopes: Vec<String> = Vec::new();
        add_scopes(&mut scopes, more.iter().map(String::as_str));
        if scopes.is_empty() {
            let before = tokens.map(|it| it.requested.as_slice()).unwrap_or_default();
            add_scopes(&mut scopes, before.iter().map(String::as_str));
        }
        // A server that never listed it cannot be asked for it: another one may have.
        scopes.retain(|it| it != OFFLINE_ACCESS);
        add_scopes(&mut scopes, self.options.scopes.iter().map(String::as_str));
        match &challenge.scope {
            Some(scope) => add_scopes(&mut scopes, scope.split_ascii_whitespace()),
            None if scopes.is_empty() => {
                add_scopes(&mut scopes, resource.scopes.iter().map(String::as_str));
            }
            None => {}
        }
        let is_login = matches!(self.options.grant, Grant::Login(_));
        // Alone it would be asked for instead of what the server grants by default.
        if is_login
            && !scopes.is_empty()
            && server.supports_scope(OFFLINE_ACCESS)
            && server.may_refresh()
        {
            add_scopes(&mut scopes, [OFFLINE_ACCESS]);
        }
        scopes
    }

    pub(super) async fn grant(
        &self,
        state: &mut State,
        resource: &Resource,
        server: &AuthorizationServer,
        scopes: Vec<String>,
        prover: Option<Arc<Prover>>,
    ) -> Result<(), AuthorizationError> {
        let named_by = "the authorization server's metadata";
        let endpoint = server
            .token_endpoint
            .as_deref()
            .ok_or_else(|| lacks(server, "names no token endpoint"))?;
        let endpoint = self.web.check(endpoint, named_by)?;
        let options = &self.options;
        let scope = scopes.join(" ");
        let (client, fields) = match &options.grant {
            Grant::Stored => return Err(AuthorizationError::LoginNeeded(self.key.clone())),
            Grant::Login(login) => {
                let (client, fields) = self
                    .sign_in(state, login, resource, server, &scopes)
                    .await?;
                (client, fields)
            }
            Grant::ClientCredentials => {
                let client = self.configured(server)?;
                (
                    client,
                    vec![("grant_type", "client_credentials".to_owned())],
                )
            }
            Grant::Enterprise(provider) => {
                let client = self.configured(server)?;
                let granted = self.exchange(provider, resource, server, &scope).await?;
                let grant = ("grant_type", token::JWT_BEARER.to_owned());
                (client, vec![grant, ("assertion", granted)])
            }
            Grant::Workload(assertion) => {
                let client = match &options.client.id {
                    Some(_) => self.configured(server)?,
                    None => ClientAt {
                        id: String::new(),
                        proof: ClientProof::None,
                    },
                };
                let assertion = assertion.get(&server.issuer).await;
                let assertion = assertion.map_err(AuthorizationError::Assertion)?;
                let grant = ("grant_type", token::JWT_BEARER.to_owned());
                (
                    client,
                    vec![grant, ("assertion", assertion.reveal().to_owned())],
                )
            }
        };
        let mut fields = fields;
        fields.push(("resource", resource.resource.clone()));
        // The code has its scopes already.
        if !scope.is_empty() && !matches!(options.grant, Grant::Login(_)) {
            fields.push(("scope", scope));
        }
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let prover_of = prover.as_deref();
        let asked = token::ask(
            &self.web,
            &endpoint,
            &server.issuer,
            &client,
            &fields,
            prover_of,
        )
        .await;
        if let Err(error) = &asked
            && error.is_code("invalid_client")
            && let Some(credentials) = &mut state.credentials
        {
            credentials.registration = None;
        }
        let given = asked?;
        if matches!(options.grant, Grant::Login(_))
            && let Some(credentials) = &mut state.credentials
        {
            credentials.sign_in = crate::key::random::<16>();
        }
        // A renewal that is under way elsewhere is saved first, and this instead of it.
        let held = self.hold().await?;
        self.keep(state, given, &client, scopes, prover.as_ref(), held)
            .await
    }

    /// The client of the options.
    pub(super) fn configured(
        &self,
        server: &AuthorizationServer,
    ) -> Result<ClientAt, AuthorizationError> {
        let client = &self.options.client;
        let id = client.id.clone().unwrap_or_default();
        let proof = ClientProof::choose(server, client.secret.as_ref(), client.key.as_ref(), None)?;
        Ok(ClientAt { id, proof })
    }

    /// The company's assertion for its user (RFC 8693).
    pub(super) async fn exchange(
        &self,
        provider: &IdentityProvider,
        resource: &Resource,
        server: &AuthorizationServer,
        scope: &str,
    ) -> Result<String, AuthorizationError> {
        let endpoint = self.web.check(&provider.token_endpoint, "the user")?;
        let id_token = provider.id_token.get(&provider.client_id).await;
        let id_token = id_token.map_err(AuthorizationError::Assertion)?;
        let client = ClientAt {
            id: provider.client_id.clone(),
            proof: match &provider.client_secret {
                Some(secret) => ClientProof::Basic(secret.clone()),
                None => ClientProof::None,
            },
        };
        let mut fields = vec![
            ("grant_type", token::TOKEN_EXCHANGE),
            ("requested_token_type", token::ID_JAG),
            ("subject_token", id_token.reveal()),
            ("subject_token_type", token::ID_TOKEN),
            ("audience", &server.issuer),
            ("resource", &resource.resource),
        ];
        if !scope.is_empty() {
            fields.push(("scope", scope));
        }
        let asked = token::ask(
            &self.web,
            &endpoint,
            &provider.token_endpoint,
            &client,
            &fields,
            None,
        );
        let given = asked.await?;
        if given.issued_token_type.as_deref() != Some(token::ID_JAG) {
            return Err(AuthorizationError::Token {
                address: endpoint.without_query(),
                code: String::new(),
                why: "what the identity provider gives is no assertion for another server (ID-JAG)"
                    .to_owned(),
            });
        }
        Ok(given.access_token.reveal().to_owned())
    }
}

pub(super) fn lacks(server: &AuthorizationServer, lacks: &'static str) -> AuthorizationError {
    let issuer = server.issuer.clone();
    AuthorizationError::Unsupported { issuer, lacks }
}
