//! Helpers that tests share: wire peers and the official schemas. Never shipped.
//!
//! [`StdioServer`] and [`HttpServer`] drive a real child process, [`LinePeer`] and [`HttpClient`]
//! a server in the same process. [`Postgres`] is a database that can be killed. All of them look at every message they receive through
//! [`Schemas`] as soon as they know the revision that is spoken, so a test about anything is also
//! a test that what was said is well-formed. A failed expectation panics, as an assertion does,
//! and says what the server wrote to its stderr.
//!
//! Deliberately absent: a client that forgives. Nothing here retries, reconnects or guesses.

mod child;
#[cfg(feature = "otlp")]
mod collector;
mod conversation;
mod dialogue;
mod examples;
mod http;
mod port;
#[cfg(target_os = "linux")]
mod postgres;
mod receiver;
mod schema;
mod stdio;
mod wait;
mod websocket;

pub use child::{ChildProcess, resident_bytes, wait_idle};
#[cfg(feature = "otlp")]
pub use collector::{CollectedRequest, CollectedSpan, Collector, CollectorAnswer};
pub use conversation::{Conversation, Reply, Voice, failure_of, succeeded};
pub use dialogue::Dialogue;
pub use examples::{Example, examples};
pub use http::{
    Answer, Body, HttpClient, HttpConnection, HttpRequest, HttpResponse, HttpServer, OldSse,
    SseEvent, SseParser, SseStream, encode_header_value,
};
pub use port::{Port, free_port};
#[cfg(target_os = "linux")]
pub use postgres::Postgres;
pub use receiver::{Answering, Received, Receiver};
pub use schema::{MODERN, REVISIONS, Schemas};
pub use stdio::{LinePeer, StdioServer};
pub use wait::{GENEROUS, wait_until};
pub use websocket::{Closed, WebSocketPeer};
