//! One test, any transport.

use std::future::Future;

use serde_json::{Map, Value, json};

use crate::schema::MODERN;

/// A client that talks with one server. Written against this, a test runs over stdio and HTTP.
///
/// Every message that comes is judged by the schema of the revision that was opened; a wrong one
/// panics.
pub trait Conversation: Send {
    /// Starts to speak a revision: by the handshake in a legacy one, by `server/discover` in the
    /// modern one. Gives the `result` of that.
    fn open(&mut self, version: &str) -> impl Future<Output = Value> + Send;

    /// Sends a request and waits for its answer. In the modern revision `params._meta` is filled
    /// in as far as the caller did not.
    fn request(&mut self, method: &str, params: Value) -> impl Future<Output = Reply> + Send;

    /// Sends a notification.
    fn notify(&mut self, method: &str, params: Value) -> impl Future<Output = ()> + Send;

    /// Sends bytes as one frame, a line or a body, as they are, and waits for one answer.
    fn ask_raw(&mut self, frame: &[u8]) -> impl Future<Output = Value> + Send;
}

/// An answer, and what came before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Notifications, and requests of the server, that came while waiting; on stdio also the
    /// answers to other requests.
    pub earlier: Vec<Value>,
    /// The response: an object with `result` or `error`.
    pub response: Value,
}

impl Reply {
    /// The result.
    ///
    /// # Panics
    ///
    /// If it is an error.
    #[must_use]
    pub fn result(&self) -> &Value {
        let result = self.response.get("result");
        result.unwrap_or_else(|| panic!("not a result: {}", self.response))
    }

    /// The error.
    ///
    /// # Panics
    ///
    /// If it is a result.
    #[must_use]
    pub fn error(&self) -> &Value {
        let error = self.response.get("error");
        error.unwrap_or_else(|| panic!("not an error: {}", self.response))
    }

    /// The error's code.
    ///
    /// # Panics
    ///
    /// If it is a result.
    #[must_use]
    pub fn code(&self) -> i64 {
        self.error()["code"].as_i64().expect("a code is an integer")
    }

    /// See [`failure_of`].
    #[must_use]
    pub fn failure(&self) -> Value {
        failure_of(&self.response)
    }
}

/// True if a response has a result without `isError`.
#[must_use]
pub fn succeeded(response: &Value) -> bool {
    let result = response.get("result");
    result.is_some_and(|result| result["isError"] != true)
}

/// The failure of a call of a tool as `{code, message, data}`: an error's, or that of a result with
/// `isError`, which has the same members in `_meta`.
///
/// # Panics
///
/// If the call did not fail, or the tool itself reported the failure.
#[must_use]
pub fn failure_of(response: &Value) -> Value {
    if let Some(error) = response.get("error") {
        return error.clone();
    }
    let result = &response["result"];
    let data = &result["_meta"]["io.owlclaw/error"];
    assert!(
        result["isError"] == true && data["code"].is_i64(),
        "not a failure: {response}"
    );
    let message = &result["content"][0]["text"];
    json!({ "code": data["code"], "message": message, "data": data })
}

/// Parts that a client puts into its messages: the next id, and in the modern revision its
/// identity.
#[derive(Debug, Clone)]
pub struct Voice {
    version: Option<String>,
    next_id: u64,
    /// Capabilities that the client declares: in the handshake, or with every modern request.
    pub capabilities: Value,
    /// The name it gives itself.
    pub client_info: Value,
}

impl Default for Voice {
    fn default() -> Self {
        Self {
            version: None,
            next_id: 1,
            capabilities: json!({}),
            client_info: json!({"name": "testkit", "version": "1"}),
        }
    }
}

impl Voice {
    /// From now on speaks this revision.
    pub fn speak(&mut self, version: &str) {
        self.version = Some(version.to_owned());
    }

    /// Returns true if the modern revision is spoken.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.version.as_deref() == Some(MODERN)
    }

    /// A request with an id of its own.
    #[must_use]
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": self.params(params)})
    }

    /// A notification.
    #[must_use]
    pub fn notification(&self, method: &str, params: Value) -> Value {
        json!({"jsonrpc": "2.0", "method": method, "params": params})
    }

    /// The `initialize` request of this client.
    #[must_use]
    pub fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "clientInfo": self.client_info,
        });
        self.request("initialize", params)
    }

    /// Adds the `_meta` that the modern revision asks for; what the caller wrote stays.
    fn params(&self, mut params: Value) -> Value {
        if params.is_null() {
            params = json!({});
        }
        let Some(object) = params.as_object_mut().filter(|_| self.is_modern()) else {
            return params;
        };
        let meta = object
            .entry("_meta")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(meta) = meta.as_object_mut() {
            let mut fill = |name: &str, value: &Value| {
                let key = format!("io.modelcontextprotocol/{name}");
                meta.entry(key).or_insert_with(|| value.clone());
            };
            fill("protocolVersion", &json!(MODERN));
            fill("clientCapabilities", &self.capabilities);
            fill("clientInfo", &self.client_info);
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{REVISIONS, Schemas};

    #[test]
    fn what_the_voice_says_is_valid_in_every_revision() {
        for version in REVISIONS {
            let mut voice = Voice::default();
            voice.speak(version);
            let mut said = vec![voice.request("tools/list", Value::Null)];
            if version != MODERN {
                said.push(voice.initialize(version));
                said.push(voice.notification("notifications/initialized", json!({})));
            }
            for message in said {
                let verdict = Schemas::load().check_client_message(version, None, &message);
                assert_eq!(verdict, Ok(()), "{message}");
            }
        }
    }

    #[test]
    fn what_the_caller_wrote_into_meta_stays() {
        let mut voice = Voice::default();
        voice.speak(MODERN);
        let key = "io.modelcontextprotocol/protocolVersion";
        let request = voice.request("tools/list", json!({"_meta": {key: "v999"}}));
        assert_eq!(request["params"]["_meta"][key], "v999");
    }
}
