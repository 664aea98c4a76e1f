//! HTTP/1.1 by hand: a client library would refuse to say what a test must be able to say.

mod client;
mod connection;
mod message;
mod old_sse;
mod server;
mod sse;

pub use client::{Answer, HttpClient};
pub use connection::{Body, HttpConnection};
pub use message::{HttpRequest, HttpResponse, encode_header_value};
pub use old_sse::OldSse;
pub use server::HttpServer;
pub use sse::{SseEvent, SseParser, SseStream};
