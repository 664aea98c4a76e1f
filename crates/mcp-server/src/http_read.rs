//! Reads of resources for those who speak no MCP.

use crate::{
    invocation::failure::{DENIED, RESOURCE_NOT_FOUND},
    mcp_server::McpServer,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use governance::QuotaStore;
use jsonrpc_core::{ErrorCode, ErrorObject, Id, RawJson, Request};
use mcp_protocol::{
    Method, ProtocolVersion, RequestedVersion, TraceContext,
    model::{ClientCapabilities, RequestMeta},
};
use mcp_service::{Accepted, Principal, Reply, TransportKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Outcome of a read over plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlainRead {
    /// All of it.
    Content(PlainContent),
    /// The reader's own copy is current: the entity tag is still this, without quotes.
    NotModified(String),
}

/// A resource as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainContent {
    /// All of it.
    pub bytes: Bytes,
    /// MIME type, if it is known.
    pub mime_type: Option<String>,
    /// Changes whenever the content does, if there is such a thing; without quotes.
    pub etag: Option<String>,
}

/// Reason why nothing was read, as HTTP has it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainRefusal {
    /// The status: 404 for what does not exist, and for what the reader may not know of; 403, 429, 500
    /// or 503 otherwise.
    pub status: u16,
    /// Seconds after which another try is worth while.
    pub retry_after: Option<u64>,
    /// The error as a client of MCP gets it.
    pub error: ErrorObject,
}

/// The id of a request that has none of its own, in the ledger and in logs.
const ID: &str = "plain-read";

impl<Q: QuotaStore> McpServer<Q> {
    /// Reads a resource over plain HTTP (decision D20). It is a `resources/read` of the modern revision
    /// in all but its form: governed, counted and recorded as any other, and cancelled by dropping the
    /// future. `if_none_match` is the value of such a header.
    ///
    /// # Errors
    ///
    /// [`PlainRefusal`].
    pub async fn read_plainly(
        &self,
        principal: &Principal,
        uri: &str,
        if_none_match: Option<&str>,
        trace: Option<TraceContext>,
    ) -> Result<PlainRead, PlainRefusal> {
        let mut params = json!({ "uri": uri });
        if let Some(etags) = if_none_match {
            params["ifNoneMatch"] = json!(etags);
        }
        let request = Request {
            id: Id::String(ID.into()),
            method: Method::ReadResource.name().to_owned(),
            params: RawJson::from_value(&params).map_err(|_| broken())?,
        };
        let mut meta = Box::<RequestMeta>::default();
        meta.protocol_version = Some(RequestedVersion::Known(ProtocolVersion::V2026_07_28));
        meta.client_capabilities = Some(ClientCapabilities::default());
        let transport = TransportKind::Http;
        let engine = self.engine();
        let reply = match engine.accept_modern(principal, transport, request, meta, None, trace) {
            Accepted::Done(reply) => reply,
            Accepted::Pending(exchange) => exchange.await,
        };
        let Reply::One(answer) = reply else {
            return Err(broken());
        };
        match answer.response.outcome {
            Ok(result) => read(&result).ok_or_else(broken),
            Err(error) => Err(refusal(error)),
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    contents: Vec<Contents>,
    #[serde(rename = "_meta", default)]
    meta: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Contents {
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

fn read(result: &RawJson) -> Option<PlainRead> {
    let Answer { contents, meta } = serde_json::from_str(result.as_str()).ok()?;
    let about = meta.get("io.owlclaw/resource");
    let etag = about.and_then(|it| it["etag"].as_str()).map(str::to_owned);
    if about.is_some_and(|it| it["notModified"] == true) {
        return etag.map(PlainRead::NotModified);
    }
    let [contents] = <[Contents; 1]>::try_from(contents).ok()?;
    let bytes = match (contents.text, contents.blob) {
        (Some(text), _) => text.into_bytes(),
        (None, Some(blob)) => STANDARD.decode(blob).ok()?,
        (None, None) => return None,
    };
    Some(PlainRead::Content(PlainContent {
        bytes: bytes.into(),
        mime_type: contents.mime_type,
        etag,
    }))
}

fn refusal(error: ErrorObject) -> PlainRefusal {
    let data = error.data.as_ref();
    let data: Value = data
        .and_then(|data| serde_json::from_str(data.as_str()).ok())
        .unwrap_or_default();
    let retry_after = data["retry_after"].as_u64();
    let status = if data["code"] == RESOURCE_NOT_FOUND {
        404
    } else if error.code.0 == DENIED && retry_after.is_some() {
        429
    } else if data["retryable"] == true {
        503
    } else if error.code.0 == DENIED {
        403
    } else {
        500
    };
    PlainRefusal {
        status,
        retry_after,
        error,
    }
}

/// An answer that is none of those it can be.
fn broken() -> PlainRefusal {
    refusal(ErrorObject::new(
        ErrorCode::INTERNAL_ERROR,
        "internal error",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_status_that_http_has_for_them() {
        for (code, data, status) in [
            (-32602, json!({"code": -32002, "retryable": false}), 404),
            (-32003, json!({"retryable": false}), 403),
            (-32003, json!({"retryable": true, "retry_after": 7}), 429),
            (-32003, json!({"retryable": true}), 503),
            (-32603, json!({"retryable": true, "retry_after": 1}), 503),
            (-32004, json!({"retryable": true}), 503),
            (-32603, json!({"retryable": false}), 500),
            (-32602, json!({}), 500),
        ] {
            let error = ErrorObject::new(ErrorCode(code), "no").with(&data);
            let refused = refusal(error);
            assert_eq!(refused.status, status, "{code} {data}");
            assert_eq!(refused.retry_after, data["retry_after"].as_u64());
        }
        assert_eq!(broken().status, 500);
    }

    #[test]
    fn a_document_that_says_nothing_is_not_made_up() {
        for answer in [
            "{}",
            r#"{"contents":[]}"#,
            r#"{"contents":[{"uri":"a"}]}"#,
            r#"{"contents":[{"uri":"a","blob":"%"}]}"#,
            r#"{"contents":[{"uri":"a","text":""},{"uri":"b","text":""}]}"#,
            r#"{"contents":[],"_meta":{"io.owlclaw/resource":{"notModified":true}}}"#,
        ] {
            let answer = RawJson::from_bytes(answer.to_owned().into()).unwrap();
            assert_eq!(read(&answer), None, "{}", answer.as_str());
        }
    }
}
