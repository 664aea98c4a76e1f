//! Tokens for a client of MCP servers: finding out who issues them, registering, signing in, renewing, keeping.
//!
//! An [`Authorizer`] belongs to one server. Each request takes an [`Attempt`] of it, which adds headers
//! before the request is sent, and says afterwards whether to send it again.
//!
//! # What holds
//!
//! * **Credentials belong to one issuer and one server.** What one authorization server gave is never shown
//!   to another; a token goes to the server that it was asked for, and nowhere else.
//! * **Metadata is a stranger's word.** No private network is reached because of it, nothing is sent in the
//!   clear, redirects are not followed, documents are bounded, and what is the metadata of another issuer or
//!   of another server is refused.
//! * **Sign-ins are bound to the one who began them**: PKCE with S256 always, `state`, and `iss` (RFC 9207).
//! * **However many requests need a token, it is asked for once**, and what one waited for and did not get,
//!   all who waited for it do not get. This holds for all processes that share a store.
//! * **No token and no secret is in a log, in an error or in a `Debug` form.**
//!
//! Standards: RFC 6749, 6750, 7523, 7591, 7636, 8414, 8693, 8707, 9207, 9449 and 9728, Client ID Metadata
//! Documents, and the authorization of all revisions of MCP since 2025-03-26 with its extensions. Deliberately
//! absent: messages of MCP, and sending the requests that are authorized.
//!
//! ```
//! use http::{HeaderMap, Method, StatusCode};
//! use oauth_client::{Authorizer, Grant, Login, Options, SystemBrowser, Verdict};
//!
//! # // A server that wants no token.
//! # async fn send(_: &HeaderMap) -> (StatusCode, HeaderMap) { (StatusCode::OK, HeaderMap::new()) }
//! # #[tokio::main]
//! # async fn main() -> Result<(), oauth_client::AuthorizationError> {
//! let browser = SystemBrowser::new(|url| eprintln!("Sign in at {url}"));
//! let grant = Grant::Login(Login::new(browser));
//! let server = "https://mcp.example/mcp";
//! let authorizer = Authorizer::new(server, Options { grant, ..Options::default() })?;
//!
//! let mut attempt = authorizer.attempt();
//! let answer = loop {
//!     let mut headers = HeaderMap::new();
//!     attempt.authorize(&Method::POST, server, &mut headers).await?;
//!     let (status, answered) = send(&headers).await;
//!     match attempt.judge(status, &answered).await? {
//!         Verdict::Deliver => break status,
//!         Verdict::Repeat => {}
//!     }
//! };
//! # assert_eq!(answer, StatusCode::OK);
//! # Ok(())
//! # }
//! ```

mod address;
mod authorizer;
mod challenge;
mod clock;
mod discovery;
mod dpop;
mod error;
mod exchange;
mod key;
mod login;
mod open_id;
mod options;
mod registration;
mod secret;
mod store;
mod token;
mod web;

pub use crate::{
    authorizer::{Attempt, Authorizer, KeptLogin, Verdict},
    challenge::Challenge,
    error::AuthorizationError,
    exchange::{
        ExchangeOptions, ExchangedAttempt, ExchangedTokens, Exchanger, Recipient, SubjectKind,
    },
    key::{BadKey, SigningKey},
    login::{Arrivals, Browser, BrowserError, HeadlessBrowser, Landing, ShownUrl, SystemBrowser},
    open_id::{OpenId, OpenIdAnswer, OpenIdOptions, OpenIdRequest},
    options::{
        Assertion, AssertionSource, ClientIdentity, Dpop, Grant, IdentityProvider, Login, Options,
    },
    secret::Secret,
    store::{
        Credentials, FileStore, Held, MemoryStore, Pending, Registration, StoreError, TokenStore,
        Tokens, hold_file, usual_directory,
    },
};
