//! Tokens for a user at another server, in exchange for the token that the user's client has shown here (RFC 8693).

use crate::{
    AuthorizationError, Secret, Verdict,
    address::Address,
    clock::now,
    token::{self, ClientAt, ClientProof, Given},
    web::Web,
};
use http::{HeaderMap, HeaderValue, StatusCode, header::AUTHORIZATION};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::Instant};

/// Seconds for which a token is used whose life the authorization server does not tell.
const UNTOLD_SECONDS: u64 = 300;
/// A token is renewed so many seconds before it ends, or a fifth of its life if that is less.
const MARGIN_SECONDS: u64 = 60;
/// Time for which a refusal is told to all who ask.
const REST: Duration = Duration::from_secs(1);

const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// Settings of an exchange of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeOptions {
    /// The server that the tokens are for: they go nowhere else.
    pub server: String,
    /// Token endpoint of the authorization server that exchanges them. Subject tokens go there, and nowhere else.
    pub token_endpoint: String,
    /// The client there.
    pub client_id: String,
    /// Secret of the client (HTTP Basic).
    pub client_secret: Secret,
    /// `audience` of the request; without one, none is named.
    pub audience: Option<String>,
    /// `resource` of the request (RFC 8707); without one, the server's address.
    pub resource: Option<String>,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// Kind of the subject token.
    pub subject: SubjectKind,
    /// The authorization server that takes what is got as an assertion for its own token (ID-JAG); without one, what is got
    /// is the token.
    pub recipient: Option<Recipient>,
}

/// Kind of a subject token (RFC 8693, section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubjectKind {
    /// `…:access_token`.
    #[default]
    AccessToken,
    /// `…:jwt`.
    Jwt,
    /// `…:id_token`.
    IdToken,
}

/// The authorization server of the other server, which takes the identity provider's word for a user
/// (enterprise-managed authorization).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// Issuer, for which the assertion is made.
    pub issuer: String,
    /// Token endpoint.
    pub token_endpoint: String,
    /// The client there.
    pub client_id: String,
    /// Secret of the client (HTTP Basic).
    pub client_secret: Secret,
}

/// Exchanges tokens of users. Cheap to clone.
#[derive(Clone)]
pub struct Exchanger(Arc<Inner>);

struct Inner {
    options: ExchangeOptions,
    server: Address,
    endpoint: Address,
    recipient: Option<Address>,
    web: Web,
    tell: fn(&str),
}

impl Exchanger {
    /// An exchanger that has `tell` told of each secret before it is sent anywhere. `authorities` are certificate authorities
    /// besides those of the system: PEM, may be empty.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`] for addresses that tokens cannot be sent to.
    pub fn new(
        options: ExchangeOptions,
        authorities: &[u8],
        tell: fn(&str),
    ) -> Result<Self, AuthorizationError> {
        let parsed = |text: &str, what: &str| {
            let why = || {
                let why = format!("{what} is not an absolute address of http or https");
                AuthorizationError::Options(why)
            };
            Address::parse(text).ok_or_else(why)
        };
        let server = match options.server.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            _ => options.server.clone(),
        };
        let server = parsed(&server, "the server's address")?;
        let endpoint = parsed(&options.token_endpoint, "the token endpoint")?;
        let recipient = options.recipient.as_ref();
        let recipient = recipient
            .map(|it| parsed(&it.token_endpoint, "the recipient's token endpoint"))
            .transpose()?;
        let mut named = vec![&endpoint];
        named.extend(&recipient);
        let web = Web::new(&named, &[], false, authorities)?;
        for address in named {
            web.check(&address.to_string(), "the user")?;
        }
        if !server.is_private_on_the_way() {
            return Err(AuthorizationError::Address {
                address: server.without_query(),
                named_by: "the user",
                why: "it is not https, so that a token would be sent in the clear",
            });
        }
        Ok(Self(Arc::new(Inner {
            options,
            server,
            endpoint,
            recipient,
            web,
            tell,
        })))
    }

    /// The tokens for one subject token, of which none was asked for yet.
    #[must_use]
    pub fn tokens(&self, subject: Secret) -> ExchangedTokens {
        (self.0.tell)(subject.reveal());
        ExchangedTokens(Arc::new(OfSubject {
            exchanger: self.clone(),
            subject,
            state: Mutex::default(),
        }))
    }
}

impl fmt::Debug for Exchanger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exchanger").field(&self.0.options).finish()
    }
}

impl Inner {
    async fn exchange(&self, subject: &Secret) -> Result<Given, AuthorizationError> {
        let options = &self.options;
        let scope = options.scopes.join(" ");
        let server = self.server.canonical();
        let resource = options.resource.as_deref().unwrap_or(&server);
        let wanted = match options.recipient {
            Some(_) => token::ID_JAG,
            None => ACCESS_TOKEN,
        };
        let mut fields = vec![
            ("grant_type", token::TOKEN_EXCHANGE),
            ("requested_token_type", wanted),
            ("subject_token", subject.reveal()),
            (
                "subject_token_type",
                match options.subject {
                    SubjectKind::AccessToken => ACCESS_TOKEN,
                    SubjectKind::Jwt => JWT,
                    SubjectKind::IdToken => token::ID_TOKEN,
                },
            ),
            ("resource", resource),
        ];
        let issuer = options.recipient.as_ref().map(|it| it.issuer.as_str());
        if let Some(audience) = issuer.or(options.audience.as_deref()) {
            fields.push(("audience", audience));
        }
        if !scope.is_empty() {
            fields.push(("scope", &scope));
        }
        let client = client(&options.client_id, &options.client_secret);
        let audience = &options.token_endpoint;
        let asked = token::ask(&self.web, &self.endpoint, audience, &client, &fields, None);
        let given = asked.await?;
        (self.tell)(given.access_token.reveal());
        let unusable = |address: &Address, why: &str| AuthorizationError::Token {
            address: address.without_query(),
            code: String::new(),
            why: why.to_owned(),
        };
        let is_others = |address: &Address, given: &Given| match given.access_token == *subject {
            false => Ok(()),
            true => {
                let why = "it gives back the token of the caller, which is not passed on";
                Err(unusable(address, why))
            }
        };
        is_others(&self.endpoint, &given)?;
        let kind = given.issued_token_type.as_deref();
        let (Some(recipient), Some(endpoint)) = (&options.recipient, &self.recipient) else {
            return match kind {
                Some(ACCESS_TOKEN | JWT) | None => Ok(given),
                Some(_) => Err(unusable(&self.endpoint, "what it gives is no access token")),
            };
        };
        if kind != Some(token::ID_JAG) {
            let why = "what it gives is no assertion for another server (ID-JAG)";
            return Err(unusable(&self.endpoint, why));
        }
        let mut fields = vec![
            ("grant_type", token::JWT_BEARER),
            ("assertion", given.access_token.reveal()),
            ("resource", resource),
        ];
        if !scope.is_empty() {
            fields.push(("scope", &scope));
        }
        let client = self::client(&recipient.client_id, &recipient.client_secret);
        let issuer = &recipient.issuer;
        let given = token::ask(&self.web, endpoint, issuer, &client, &fields, None).await?;
        (self.tell)(given.access_token.reveal());
        is_others(endpoint, &given)?;
        Ok(given)
    }
}

fn client(id: &str, secret: &Secret) -> ClientAt {
    ClientAt {
        id: id.to_owned(),
        proof: ClientProof::Basic(secret.clone()),
    }
}

/// Tokens for one subject token. Clones share them; however many requests wait for one at once, it is asked for once.
#[derive(Clone)]
pub struct ExchangedTokens(Arc<OfSubject>);

struct OfSubject {
    exchanger: Exchanger,
    subject: Secret,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    serial: u64,
    held: Option<Held>,
    refused: Option<(AuthorizationError, Instant)>,
}

struct Held {
    header: HeaderValue,
    /// Seconds since 1970.
    renew_at: u64,
    ends_at: u64,
}

impl fmt::Debug for ExchangedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExchangedTokens")
            .field(&self.0.exchanger)
            .finish()
    }
}

impl ExchangedTokens {
    /// The beginning of one request.
    #[must_use]
    pub fn attempt(&self) -> ExchangedAttempt {
        ExchangedAttempt {
            tokens: self.clone(),
            used: None,
            is_again: false,
        }
    }

    /// The header with a token that lasts, and its serial.
    async fn ready(&self) -> Result<(HeaderValue, u64), AuthorizationError> {
        let mut state = self.0.state.lock().await;
        let state = &mut *state;
        if let Some(held) = state.held.as_ref().filter(|it| now() < it.renew_at) {
            return Ok((held.header.clone(), state.serial));
        }
        let given = match rests(&state.refused) {
            Some(refused) => Err(refused),
            None => self.0.exchanger.0.exchange(&self.0.subject).await,
        };
        match given.and_then(|it| held(&it)) {
            Ok(held) => {
                state.serial += 1;
                state.refused = None;
                let header = held.header.clone();
                state.held = Some(held);
                Ok((header, state.serial))
            }
            Err(error) => {
                if rests(&state.refused).is_none() {
                    state.refused = Some((error.clone(), Instant::now()));
                }
                match &state.held {
                    // The one before is good while the authorization server is away.
                    Some(held) if error.is_temporary() && now() < held.ends_at => {
                        Ok((held.header.clone(), state.serial))
                    }
                    _ => Err(error),
                }
            }
        }
    }
}

/// A refusal that is still told to all who ask, or the error of a server that has said when it wants to be asked again.
fn rests(refused: &Option<(AuthorizationError, Instant)>) -> Option<AuthorizationError> {
    let (error, at) = refused.as_ref()?;
    let wanted = error.retry_after();
    let rest = wanted.unwrap_or(REST).max(REST).checked_sub(at.elapsed())?;
    (!rest.is_zero()).then(|| match wanted {
        Some(_) => error.clone().after(rest),
        None => error.clone(),
    })
}

fn held(given: &Given) -> Result<Held, AuthorizationError> {
    if !matches!(
        given.token_type.to_ascii_lowercase().as_str(),
        "bearer" | ""
    ) {
        return Err(AuthorizationError::Login(
            "the token that is got in exchange is of a type that is not known here".to_owned(),
        ));
    }
    let value = format!("Bearer {}", given.access_token.reveal());
    let mut header = HeaderValue::try_from(value).map_err(|_| AuthorizationError::Cryptography)?;
    header.set_sensitive(true);
    let lasts = given.expires_in().unwrap_or(UNTOLD_SECONDS);
    let ends_at = now().saturating_add(lasts);
    Ok(Held {
        header,
        renew_at: ends_at - MARGIN_SECONDS.min(lasts / 5),
        ends_at,
    })
}

/// One request and its repetition.
#[derive(Debug)]
pub struct ExchangedAttempt {
    tokens: ExchangedTokens,
    used: Option<u64>,
    is_again: bool,
}

impl ExchangedAttempt {
    /// Adds the token to the headers of a request to `address`, which is got if there is none that lasts.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`], the reason why there is none.
    pub async fn authorize(
        &mut self,
        address: &str,
        headers: &mut HeaderMap,
    ) -> Result<(), AuthorizationError> {
        headers.remove(AUTHORIZATION);
        let server = &self.tokens.0.exchanger.0.server;
        if Address::parse(address).is_none_or(|it| it.origin() != server.origin()) {
            let text = "the request goes to another server than its token is for";
            return Err(AuthorizationError::Options(text.to_owned()));
        }
        let (header, serial) = self.tokens.ready().await?;
        headers.insert(AUTHORIZATION, header);
        self.used = Some(serial);
        Ok(())
    }

    /// Looks at the status of an answer: after 401 the token is exchanged anew, once.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError::Rejected`], if the server refuses that one, too.
    pub async fn judge(&mut self, status: StatusCode) -> Result<Verdict, AuthorizationError> {
        if status != StatusCode::UNAUTHORIZED {
            return Ok(Verdict::Deliver);
        }
        let mut state = self.tokens.0.state.lock().await;
        if self.used == Some(state.serial) {
            state.held = None;
        }
        if self.is_again {
            let why = "the token that was got in exchange".to_owned();
            return Err(AuthorizationError::Rejected(why));
        }
        self.is_again = true;
        Ok(Verdict::Repeat)
    }
}
