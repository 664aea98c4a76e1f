//! Failures in the dialect's codes (rows 12 and 13 of document 004).

use jsonrpc_core::ErrorObject;
use serde_json::{Map, Value, json};

/// A failure of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: i64,
    category: &'static str,
    message: String,
    data: Map<String, Value>,
}

pub(crate) const PARSE: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const UNKNOWN_METHOD: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const SERVER: i64 = -32000;
pub(crate) const NO_RESOURCE: i64 = -32201;
pub(crate) const UNSUPPORTED: i64 = -32203;
pub(crate) const NO_TOOL: i64 = -32301;
pub(crate) const BAD_ARGUMENTS: i64 = -32302;
pub(crate) const NO_TASK: i64 = -32303;
pub(crate) const NO_PERMISSION: i64 = -32401;
pub(crate) const DENIED: i64 = -32402;
pub(crate) const TOO_MANY: i64 = -32429;
pub(crate) const NO_SESSION: i64 = -32501;
pub(crate) const SESSION_REFUSED: i64 = -32502;

/// The family of a code, as `error.data.category` has it.
fn category(code: i64) -> &'static str {
    match code {
        PARSE | INVALID_REQUEST | UNKNOWN_METHOD | INVALID_PARAMS => "protocol",
        -32299..=-32200 => "resource",
        -32399..=-32300 => "tool",
        TOO_MANY => "limit",
        -32499..=-32400 => "permission",
        -32599..=-32500 => "session",
        _ => "server",
    }
}

impl Failure {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            category: category(code),
            message: message.into(),
            data: Map::new(),
        }
    }

    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.data.insert(key.to_owned(), value.into());
        self
    }

    /// The same failure as another of the dialect's, such as of a task that is not there.
    pub(crate) fn but(mut self, from: i64, to: i64) -> Self {
        if self.code == from {
            self.code = to;
            self.category = category(to);
        }
        self
    }

    /// The same failure of a tool of this server by the reason that the tool gives to programs, where the document has a
    /// code for it.
    pub(crate) fn by_reason(mut self) -> Self {
        let details = self.data.get("details");
        self.code = match details.and_then(|it| it["reason"].as_str()) {
            Some("not_found") => NO_RESOURCE,
            Some("read_only" | "exists" | "not_a_file") => UNSUPPORTED,
            Some("no_words") => INVALID_PARAMS,
            _ => return self,
        };
        self.category = category(self.code);
        self
    }

    /// True of a refusal that is about the one resource that was asked for, and says nothing of others.
    pub(crate) fn is_of_one_resource(&self) -> bool {
        matches!(
            self.code,
            NO_RESOURCE | NO_PERMISSION | DENIED | INVALID_PARAMS
        )
    }

    /// True where MCP has no such method here, and not where a method of that name refuses to be called like this.
    pub(crate) fn is_missing_method(&self) -> bool {
        self.code == UNKNOWN_METHOD && self.message.starts_with("method not found")
    }

    /// Failure that MCP has told of as an error.
    pub(crate) fn of_error(error: &ErrorObject) -> Self {
        let data = error.data.as_ref();
        let data = data.and_then(|it| serde_json::from_str(it.as_str()).ok());
        Self::of(i64::from(error.code.0), error.message.as_ref(), data)
    }

    /// Failure that MCP has told of as a result of a tool (`isError`).
    pub(crate) fn of_result(result: &Value) -> Self {
        let about = result.pointer("/_meta/io.owlclaw~1error").cloned();
        let texts = result["content"].as_array().into_iter().flatten();
        let texts: Vec<_> = texts.filter_map(|it| it["text"].as_str()).collect();
        let code = about.as_ref().and_then(|it| it["code"].as_i64());
        Self::of(code.unwrap_or(-32005), &texts.join("\n"), about)
    }

    fn of(code: i64, message: &str, data: Option<Value>) -> Self {
        let mut data = match data {
            Some(Value::Object(data)) => data,
            Some(other) => [("details".to_owned(), other)].into_iter().collect(),
            None => Map::new(),
        };
        // What MCP has no code of its own for is in its data.
        let number = data.get("code").and_then(Value::as_i64).unwrap_or(code);
        let reason = data.get("reason").and_then(Value::as_str);
        let own = match number {
            PARSE | INVALID_REQUEST | UNKNOWN_METHOD => number,
            INVALID_PARAMS if data.contains_key("violations") => BAD_ARGUMENTS,
            INVALID_PARAMS => INVALID_PARAMS,
            -32001 => NO_TOOL,
            -32002 => NO_RESOURCE,
            -32003 => match reason {
                Some("permission") => NO_PERMISSION,
                Some("rate_minute" | "rate_day" | "concurrency" | "cooldown") => TOO_MANY,
                _ => DENIED,
            },
            _ => SERVER,
        };
        data.insert("code".to_owned(), json!(number));
        Self {
            code: own,
            category: category(own),
            message: message.to_owned(),
            data,
        }
    }

    /// The member `error` of an answer.
    pub(crate) fn into_json(self) -> Value {
        let mut data = self.data;
        data.insert("category".to_owned(), self.category.into());
        json!({ "code": self.code, "message": self.message, "data": data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonrpc_core::ErrorCode;

    #[test]
    fn each_failure_of_mcp_has_a_code_and_a_category_of_the_document() {
        for (code, data, own, category) in [
            (-32602, json!({"code": -32001}), -32301, "tool"),
            (-32001, json!({}), -32301, "tool"),
            (
                -32602,
                json!({"code": -32002, "uri": "a:b"}),
                -32201,
                "resource",
            ),
            (-32602, json!({"violations": []}), -32302, "tool"),
            (-32602, json!({}), -32602, "protocol"),
            (
                -32003,
                json!({"reason": "permission"}),
                -32401,
                "permission",
            ),
            (-32003, json!({"reason": "budget"}), -32402, "permission"),
            (
                -32003,
                json!({"reason": "rate_minute", "retry_after": 7}),
                -32429,
                "limit",
            ),
            (-32004, json!({}), -32000, "server"),
            (-32603, json!(null), -32000, "server"),
        ] {
            let error = ErrorObject::new(ErrorCode(code), "no").with(&data);
            let failure = Failure::of_error(&error).into_json();
            assert_eq!(failure["code"], own, "{code} {data}");
            assert_eq!(failure["data"]["category"], category);
            assert_eq!(failure["data"]["retry_after"], data["retry_after"]);
        }
        let refused = json!({"isError": true, "content": [{"type": "text", "text": "wait"}],
            "_meta": {"io.owlclaw/error": {"code": -32003, "reason": "rate_day"}}});
        let failure = Failure::of_result(&refused).into_json();
        assert_eq!(
            (&failure["code"], &failure["message"]),
            (&json!(-32429), &json!("wait"))
        );
        assert_eq!(failure["data"]["code"], -32003);
        let failed = json!({"isError": true, "content": []});
        assert_eq!(Failure::of_result(&failed).code, SERVER);
    }
}
