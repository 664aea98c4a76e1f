//! The HTTP client of the server's own errands: keys of an issuer, traces, alerts.
//!
//! Where it goes is what an operator has configured, and nothing that a caller has said; tools that
//! are HTTP services have a client of their own, with other worries (`adapter-http`), and share with this
//! one how `Retry-After` is read.
//!
//! # What holds
//!
//! * **Everything has a bound**: connecting, the whole exchange, headers, the body.
//! * **No redirect is followed, no proxy asked, no cookie kept.** An answer comes from where the
//!   request was sent to, or there is none.
//! * **The authorities are those of the system** and the ones that were added; TLS 1.2 and 1.3.
//!
//! A request is sent once. Whether it may be sent again only its sender knows, and
//! [`SendError::was_sent`] tells it.
//!
//! ```no_run
//! use bytes::Bytes;
//! use http_client::{Client, ClientOptions};
//!
//! # async fn fetch() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(ClientOptions::default())?;
//! let request = http::Request::get("https://issuer.example/keys.json").body(Bytes::new())?;
//! let response = client.send(request).await?;
//! assert!(response.status().is_success());
//! # Ok(())
//! # }
//! ```

mod client;
mod error;
mod retry_after;
mod tls;

pub use client::{Client, ClientOptions, MAX_HEADER_BYTES};
pub use error::{ClientError, SendError};
pub use retry_after::retry_after;
