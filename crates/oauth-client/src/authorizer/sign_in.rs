//! Grants that a person gives: the authorization code, and the client that it is given to.

use super::{
    Inner, State,
    grants::{OFFLINE_ACCESS, lacks},
};
use crate::{
    AuthorizationError, Landing, Login, Registration,
    address::{Address, form},
    clock::now,
    discovery::{AuthorizationServer, Resource},
    key,
    login::{Callback, Issuer},
    registration::register,
    token::{ClientAt, ClientProof},
};

impl Inner {
    /// Has a person sign in. Gives the client and what is sent for the code.
    pub(super) async fn sign_in(
        &self,
        state: &mut State,
        login: &Login,
        resource: &Resource,
        server: &AuthorizationServer,
        scopes: &[String],
    ) -> Result<(ClientAt, Vec<(&'static str, String)>), AuthorizationError> {
        let failed = |why: String| AuthorizationError::Login(why);
        let endpoint = server.authorization_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| lacks(server, "names no authorization endpoint"))?;
        let endpoint = self
            .web
            .check(endpoint, "the authorization server's metadata")?;
        if !server.has_pkce() {
            return Err(AuthorizationError::NoPkce(server.issuer.clone()));
        }
        let registration = state
            .credentials
            .as_ref()
            .and_then(|it| it.registration.clone());
        let back = match &login.landing {
            Some(landing) => Back::Landing(landing),
            None => Back::Port(bound(login.port, registration.as_ref()).await?),
        };
        let redirect_uri = back.redirect_uri().to_owned();
        let client = self.client(state, server, &redirect_uri, scopes).await?;
        let random = || key::random::<32>().ok_or(AuthorizationError::Cryptography);
        let (verifier, sent) = (random()?, random()?);
        let (scope, challenge) = (scopes.join(" "), key::sha256(&verifier));
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", &redirect_uri),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("state", &sent),
            ("resource", &resource.resource),
        ];
        if !scope.is_empty() {
            query.push(("scope", &scope));
        }
        // OpenID Connect, section 11: offline access is for those who have been asked.
        if scopes.iter().any(|it| it == OFFLINE_ACCESS) {
            query.push(("prompt", "consent"));
        }
        let separator = if endpoint.has_query() { '&' } else { '?' };
        let url = format!("{endpoint}{separator}{}", form(query));
        let issuer = Issuer {
            name: server.issuer.clone(),
            is_named: server.authorization_response_iss_parameter_supported == Some(true),
        };
        let answer = match back {
            Back::Port(callback) => {
                let answer = callback.answer(&*login.browser, &url, &sent, &issuer, login.timeout);
                answer.await?
            }
            Back::Landing(landing) => {
                let answer = landing.answer(&*login.browser, &url, &sent, login.timeout);
                answer.await?
            }
        };
        if let Some(error) = issuer.fault(&answer) {
            return Err(error);
        }
        if let Some(denied) = issuer.denial(&answer, &[&sent, &verifier]) {
            return Err(denied);
        }
        let code = answer.code.filter(|it| !it.is_empty());
        let code = code.ok_or_else(|| failed("the answer has no code".to_owned()))?;
        let fields = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
        ];
        Ok((client, fields))
    }

    /// The client for a sign-in: the configured one, its metadata document, or one that is registered.
    pub(super) async fn client(
        &self,
        state: &mut State,
        server: &AuthorizationServer,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<ClientAt, AuthorizationError> {
        let configured = &self.options.client;
        if configured.id.is_some() {
            return self.configured(server);
        }
        let takes_documents = server.client_id_metadata_document_supported == Some(true);
        if let Some(url) = configured.metadata_url.as_ref().filter(|_| takes_documents) {
            let key = configured.key.as_ref();
            // Without a key in use the client is a public one.
            let proof = ClientProof::choose(server, None, key, None).unwrap_or(ClientProof::None);
            let id = url.clone();
            return Ok(ClientAt { id, proof });
        }
        let kept = state
            .credentials
            .as_ref()
            .and_then(|it| it.registration.clone());
        let kept = kept.filter(|it| fits(it, redirect_uri, scopes));
        let registration = match kept {
            Some(registration) => registration,
            None => {
                let endpoint = server.registration_endpoint.as_deref();
                let no_client = || AuthorizationError::NoClient(server.issuer.clone());
                let endpoint = endpoint.ok_or_else(no_client)?;
                let endpoint = self
                    .web
                    .check(endpoint, "the authorization server's metadata")?;
                let name = &configured.name;
                register(&self.web, server, &endpoint, name, redirect_uri, scopes).await?
            }
        };
        let secret = registration.client_secret.as_ref();
        let method = registration.auth_method.as_deref();
        let proof = ClientProof::choose(server, secret, None, method)?;
        let id = registration.client_id.clone();
        if let Some(credentials) = &mut state.credentials
            && credentials.registration.as_ref() != Some(&registration)
        {
            credentials.registration = Some(registration);
            self.save_registration(state).await?;
        }
        Ok(ClientAt { id, proof })
    }
}

/// The place where the answer comes back to.
enum Back<'a> {
    Port(Callback),
    Landing(&'a Landing),
}

impl Back<'_> {
    fn redirect_uri(&self) -> &str {
        match self {
            Self::Port(callback) => &callback.redirect_uri,
            Self::Landing(landing) => landing.redirect_uri(),
        }
    }
}

/// The configured port; or the one that the client is registered with, if it is free; or any.
async fn bound(
    port: Option<u16>,
    registration: Option<&Registration>,
) -> Result<Callback, AuthorizationError> {
    let registered = registration.and_then(|it| Address::parse(&it.redirect_uri)?.port());
    let callback = match (port, registered) {
        (Some(port), _) => Callback::bind(Some(port)).await,
        (None, Some(port)) => match Callback::bind(Some(port)).await {
            Ok(callback) => Ok(callback),
            Err(_) => Callback::bind(None).await,
        },
        (None, None) => Callback::bind(None).await,
    };
    callback.map_err(|error| {
        let port = port.map_or_else(|| "a free port".to_owned(), |it| format!("port {it}"));
        AuthorizationError::Login(format!(
            "{port} of 127.0.0.1 cannot be listened on: {error}"
        ))
    })
}

/// Returns true if a registration is good for this sign-in.
fn fits(registration: &Registration, redirect_uri: &str, scopes: &[String]) -> bool {
    let is_alive = registration.secret_expires_at.is_none_or(|at| now() < at);
    let has = |scope: &String| registration.scope.split(' ').any(|it| it == scope);
    let may_ask = registration.scope.is_empty() || scopes.iter().all(has);
    is_alive && may_ask && registration.redirect_uri == redirect_uri
}
