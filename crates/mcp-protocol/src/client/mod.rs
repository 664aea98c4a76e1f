//! The vocabulary from a client's side: requests written, results and what else a server says read.
//!
//! Nothing here sends anything. Whoever does keeps the [`Method`](crate::Method) of each request that is
//! under way, for its answer can only be read by it.
//!
//! ```
//! use mcp_protocol::{
//!     ProtocolVersion, RawJson,
//!     client::{Answer, OutgoingMeta, decode_result, encode_request, mirrored_headers},
//!     model::{CallTool, ClientRequest, Content},
//! };
//!
//! let version = ProtocolVersion::V2026_07_28;
//! let request = ClientRequest::CallTool(CallTool {
//!     name: "add".to_owned(),
//!     arguments: RawJson::from_bytes(r#"{"a":1,"b":2}"#.into())?,
//!     ..CallTool::default()
//! });
//! let headers = mirrored_headers(version, &request); // for HTTP alone
//! assert_eq!(headers[2], ("Mcp-Name", "add".into()));
//! let outgoing = encode_request(version, &request, &OutgoingMeta::default())?;
//! assert_eq!(outgoing.method(), "tools/call");
//!
//! let result = r#"{"resultType":"complete","content":[{"type":"text","text":"3"}]}"#;
//! let answered = decode_result(version, outgoing.kind, &RawJson::from_bytes(result.into())?)?;
//! let Answer::CallTool(result) = answered.answer else {
//!     panic!("neither a question nor a task");
//! };
//! assert_eq!(result.content, [Content::text("3")]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is deliberately absent: tasks of the client's own, which 2025-11-25 allowed a server to
//! ask for and nobody has after it. A client that does not declare them is not asked.

mod answer;
mod error;
mod headers;
mod incoming;
mod input;
mod meta;
mod notification;
mod offer;
mod plain;
mod request;
mod result;
mod task;

pub use self::{
    answer::encode_input_response,
    error::ServerError,
    headers::{header_value, mirrored_headers},
    incoming::{
        Asked, NotificationError, ServerRequest, Told, decode_server_notification,
        decode_server_request,
    },
    input::decode_input_requests,
    meta::OutgoingMeta,
    notification::encode_client_notification,
    offer::{Discovered, Initialized, ListOffer, ResourcesOffer, ServerOffer},
    request::{EncodeError, Outgoing, encode_request},
    result::{Answer, Answered, LeftOut, MAX_ITEM_BYTES, ResultError, decode_result},
};
