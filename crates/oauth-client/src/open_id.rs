//! Sign-ins of people at a server of the embedder's own: the authorization code flow of OpenID Connect Core, with PKCE.

use crate::{
    AuthorizationError, Secret,
    address::{Address, form},
    discovery::{AuthorizationServer, authorization_server},
    key,
    login::{Answer, Issuer, is_same},
    token::{self, ClientAt, ClientProof},
    web::Web,
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// Time for which metadata of the issuer is used.
const FOUND: Duration = Duration::from_secs(600);

/// Settings of sign-ins at one issuer.
#[derive(Clone, Debug)]
pub struct OpenIdOptions {
    /// The issuer, as its metadata has it.
    pub issuer: String,
    /// The client that is registered there.
    pub client_id: String,
    /// Secret of the client; without one it is a public client, whose codes PKCE protects.
    pub client_secret: Option<Secret>,
    /// Scopes to ask for besides `openid`.
    pub scopes: Vec<String>,
    /// Certificate authorities besides those of the system: PEM. May be empty.
    pub authorities: Vec<u8>,
}

/// Sign-ins at one issuer.
pub struct OpenId {
    options: OpenIdOptions,
    web: Web,
    /// Metadata, and when it was read.
    metadata: Mutex<Option<(Instant, Arc<AuthorizationServer>)>>,
}

/// A sign-in that has begun. Its `Debug` form has none of its secrets.
#[derive(Clone)]
pub struct OpenIdRequest {
    /// The address that the person's browser goes to.
    pub url: String,
    /// `nonce`, which the ID token must have.
    pub nonce: String,
    redirect_uri: String,
    state: String,
    verifier: String,
    server: Arc<AuthorizationServer>,
}

/// Tokens of an issuer, of which nothing is verified.
#[derive(Clone, Debug)]
pub struct OpenIdAnswer {
    /// The ID token.
    pub id_token: Secret,
    /// Scopes that were granted.
    pub scopes: Vec<String>,
}

impl fmt::Debug for OpenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenId").field(&self.options.issuer).finish()
    }
}

impl fmt::Debug for OpenIdRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuer = &self.server.issuer;
        f.debug_tuple("OpenIdRequest").field(issuer).finish()
    }
}

impl OpenId {
    /// Sign-ins with these settings. The operator has named the issuer, so that its endpoints may be in any network.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError::Options`] for an issuer that has no address, or authorities that cannot be read.
    pub fn new(options: OpenIdOptions) -> Result<Self, AuthorizationError> {
        let issuer = Address::parse(&options.issuer).ok_or_else(|| {
            let why = format!("`{}` is not an absolute address of https", options.issuer);
            AuthorizationError::Options(why)
        })?;
        let everywhere = ["0.0.0.0/0".to_owned(), "::/0".to_owned()];
        let web = Web::new(&[&issuer], &everywhere, false, &options.authorities)?;
        Ok(Self {
            options,
            web,
            metadata: Mutex::default(),
        })
    }

    /// The client at the issuer.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.options.client_id
    }

    /// Begins a sign-in whose answer comes back to `redirect_uri`.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`] for an issuer that cannot be asked, or cannot do this.
    pub async fn begin(&self, redirect_uri: &str) -> Result<OpenIdRequest, AuthorizationError> {
        let server = self.server().await?;
        let lacks = |lacks| AuthorizationError::Unsupported {
            issuer: server.issuer.clone(),
            lacks,
        };
        let endpoint = server.authorization_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| lacks("names no authorization endpoint"))?;
        let endpoint = self.web.check(endpoint, "the issuer's metadata")?;
        // Many providers support it and do not say so. One that says what it supports is believed.
        if server.code_challenge_methods_supported.is_some() && !server.has_pkce() {
            return Err(AuthorizationError::NoPkce(server.issuer.clone()));
        }
        let random = || key::random::<32>().ok_or(AuthorizationError::Cryptography);
        let (state, nonce, verifier) = (random()?, random()?, random()?);
        let (challenge, scope) = (key::sha256(&verifier), self.scopes().join(" "));
        let query = form([
            ("response_type", "code"),
            ("client_id", &self.options.client_id),
            ("redirect_uri", redirect_uri),
            ("scope", &scope),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let separator = if endpoint.has_query() { '&' } else { '?' };
        Ok(OpenIdRequest {
            url: format!("{endpoint}{separator}{query}"),
            nonce,
            redirect_uri: redirect_uri.to_owned(),
            state,
            verifier,
            server,
        })
    }

    /// Exchanges the code in `query`, which the browser has brought back, for tokens.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`] for an answer that is none to `request` or not of its issuer, that is an error, or whose code
    /// the issuer does not take.
    pub async fn finish(
        &self,
        request: &OpenIdRequest,
        query: &str,
    ) -> Result<OpenIdAnswer, AuthorizationError> {
        let failed = |why: String| AuthorizationError::Login(why);
        let answer = request
            .read(query)
            .ok_or_else(|| failed("the answer belongs to another sign-in".to_owned()))?;
        let server = &request.server;
        let issuer = Issuer {
            name: server.issuer.clone(),
            is_named: server.authorization_response_iss_parameter_supported == Some(true),
        };
        if let Some(error) = issuer.fault(&answer) {
            return Err(error);
        }
        let sent = [&*request.state, &*request.verifier, &*request.nonce];
        if let Some(denied) = issuer.denial(&answer, &sent) {
            return Err(denied);
        }
        let code = answer.code.filter(|it| !it.is_empty());
        let code = code.ok_or_else(|| failed("the answer has no code".to_owned()))?;
        let lacks = |lacks| AuthorizationError::Unsupported {
            issuer: server.issuer.clone(),
            lacks,
        };
        let endpoint = server.token_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| lacks("names no token endpoint"))?;
        let endpoint = self.web.check(endpoint, "the issuer's metadata")?;
        let client = ClientAt {
            id: self.options.client_id.clone(),
            proof: ClientProof::choose(server, self.options.client_secret.as_ref(), None, None)?,
        };
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &request.redirect_uri),
            ("code_verifier", &request.verifier),
        ];
        let given = token::ask(&self.web, &endpoint, &server.issuer, &client, &fields, None);
        let given = given.await?;
        let scopes = match given.scope.as_str() {
            Some(scope) => scope.split(' ').map(str::to_owned).collect(),
            // RFC 6749, section 5.1: those that were asked for.
            None => self.scopes(),
        };
        let id_token = given.id_token.ok_or_else(|| AuthorizationError::Token {
            address: endpoint.without_query(),
            code: String::new(),
            why: "the answer has no ID token".to_owned(),
        })?;
        Ok(OpenIdAnswer { id_token, scopes })
    }

    fn scopes(&self) -> Vec<String> {
        let mut scopes = vec!["openid".to_owned()];
        for scope in &self.options.scopes {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        scopes
    }

    /// The metadata, asked for once by all who wait.
    async fn server(&self) -> Result<Arc<AuthorizationServer>, AuthorizationError> {
        let mut metadata = self.metadata.lock().await;
        if let Some((at, server)) = &*metadata
            && at.elapsed() < FOUND
        {
            return Ok(Arc::clone(server));
        }
        let server = Arc::new(authorization_server(&self.web, &self.options.issuer).await?);
        *metadata = Some((Instant::now(), Arc::clone(&server)));
        Ok(server)
    }
}

impl OpenIdRequest {
    /// Returns true if `query` answers this request; others say nothing about it.
    #[must_use]
    pub fn is_answered_by(&self, query: &str) -> bool {
        self.read(query).is_some()
    }

    fn read(&self, query: &str) -> Option<Answer> {
        let (state, answer) = Answer::read(query).ok()?;
        is_same(&state?, &self.state).then_some(answer)
    }
}
