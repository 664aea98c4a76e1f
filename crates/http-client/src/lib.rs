//! The HTTP client for all requests that the server makes: of tools that are services, and for keys of
//! issuers, traces and alerts.
//!
//! # What holds
//!
//! * **A client goes where its [`Reach`] says**: to hosts of a list, to public addresses, or anywhere. The
//!   address that is connected to is checked, and not a name that may lead elsewhere a moment later. If
//!   one address of a host is forbidden, none is connected to.
//! * **Everything has a bound**: connections, connecting, the whole exchange, headers, the body.
//! * **No redirect is followed, no proxy asked, no cookie kept.** An answer comes from where the
//!   request was sent to, or there is none.
//! * **The authorities are those of the system** and the ones that were added; TLS 1.2 and 1.3.
//!
//! A request is sent once. Whether it may be sent again only its sender knows, and
//! [`SendError::was_sent`] tells it.
//!
//! ```no_run
//! use bytes::Bytes;
//! use http_client::{Client, ClientOptions, Reach};
//!
//! # async fn fetch() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(ClientOptions { reach: Reach::Any, ..ClientOptions::default() })?;
//! let request = http::Request::get("https://issuer.example/keys.json").body(Bytes::new())?;
//! let response = client.send(request).await?;
//! assert!(response.status().is_success());
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
mod connect;
mod error;
mod host;
mod pool;
mod reach;
mod retry_after;
mod tls;
mod url;

pub use address::{AllowPrivate, BadAllowance, is_public};
pub use client::{BodyStream, Client, ClientOptions, Connection, USER_AGENT};
pub use error::{ClientError, MAX_HEADER_BYTES, SendError};
pub use host::{HostList, bare};
pub use reach::{HostError, Reach};
pub use retry_after::retry_after;
pub use url::{BadUrl, check_url, parse_url};
