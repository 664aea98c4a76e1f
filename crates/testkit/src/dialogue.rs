//! Requests on one wire that wait for an answer: finds the right definition for an answer, and
//! detects answers without a request.

use std::collections::HashMap;

use serde_json::Value;

use crate::schema::{MODERN, Schemas};

const META_VERSION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
const META_SUBSCRIPTION: &str = "/params/_meta/io.modelcontextprotocol~1subscriptionId";

/// Requests that are not yet answered. Without a revision (see [`Dialogue::speak`]) messages are
/// not judged, but answers are still matched with questions.
#[derive(Debug, Clone, Default)]
pub struct Dialogue {
    version: Option<String>,
    /// By the JSON text of the id. A test may use one id twice; the answers may come in any order.
    waiting: HashMap<String, Vec<Asked>>,
}

#[derive(Debug, Clone)]
struct Asked {
    method: Option<String>,
    modern: bool,
}

impl Dialogue {
    /// From now on every message is judged by this revision, except for what belongs to a request
    /// that named the modern one itself.
    pub fn speak(&mut self, version: &str) {
        self.version = Some(version.to_owned());
    }

    /// The revision that is spoken.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Number of requests that wait for an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(Vec::len).sum()
    }

    /// Notes what the client says. Anything is taken, the broken too: whatever has an id, or might
    /// be seen to have one, may be answered under it.
    pub fn sent(&mut self, frame: &[u8]) {
        if let Ok(message) = serde_json::from_slice(frame) {
            self.sent_message(&message);
        }
    }

    /// As [`Dialogue::sent`].
    pub fn sent_message(&mut self, message: &Value) {
        if let Value::Array(batch) = message {
            batch.iter().for_each(|element| self.sent_message(element));
        }
        let answers = message.get("result").or(message.get("error")).is_some();
        let Some(id) = message.get("id").filter(|id| !id.is_null()) else {
            return;
        };
        if answers && message.get("method").is_none() {
            return;
        }
        let asked = Asked {
            method: message["method"].as_str().map(str::to_owned),
            modern: message.pointer(META_VERSION).is_some(),
        };
        self.waiting.entry(id.to_string()).or_default().push(asked);
    }

    /// Judges what the server says.
    ///
    /// # Errors
    ///
    /// What is wrong with it: it does not fit the schema, or answers what was not asked or was
    /// answered already.
    pub fn received(&mut self, message: &Value) -> Result<(), String> {
        if let Value::Array(batch) = message {
            for (index, element) in batch.iter().enumerate() {
                self.received(element)
                    .map_err(|wrong| format!("/{index}{wrong}"))?;
            }
            // The elements are in order. Whether there may be batches at all is still to be seen.
            return match &self.version {
                Some(version) if version == "1.0" || version.as_str() <= "2025-03-26" => Ok(()),
                Some(version) => Err(format!("{version} has no batches")),
                None => Ok(()),
            };
        }
        let is_answer = message.get("method").is_none();
        let asked = if is_answer { self.take(message)? } else { None };
        let modern = match &asked {
            Some(asked) => asked.modern,
            None => message.pointer(META_SUBSCRIPTION).is_some(),
        };
        let version = if modern {
            Some(MODERN)
        } else {
            self.version.as_deref()
        };
        let Some(version) = version else {
            return Ok(());
        };
        let method = asked.as_ref().and_then(|asked| asked.method.as_deref());
        Schemas::load().check_server_message(version, method, message)
    }

    /// The question that an answer belongs to; none for an error that could not tell.
    fn take(&mut self, answer: &Value) -> Result<Option<Asked>, String> {
        let id = match answer.get("id") {
            Some(id) if !id.is_null() => id.to_string(),
            _ if answer.get("error").is_some() => return Ok(None),
            _ => return Err("/id: a result without an id answers nothing".to_owned()),
        };
        let Some(asked) = self.waiting.get_mut(&id) else {
            return Err(format!("/id: nothing waits for an answer to {id}"));
        };
        let first = asked.remove(0);
        if asked.is_empty() {
            self.waiting.remove(&id);
        }
        Ok(Some(first))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_judged_by_the_method_it_answers() {
        let mut dialogue = Dialogue::default();
        dialogue.speak("2025-06-18");
        dialogue.sent(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        dialogue.sent(br#"{"jsonrpc":"2.0","id":"1","method":"tools/list"}"#);
        let empty = |id: Value| json!({"jsonrpc": "2.0", "id": id, "result": {}});
        assert_eq!(dialogue.received(&empty(json!(1))), Ok(()));
        let wrong = dialogue.received(&empty(json!("1"))).unwrap_err();
        assert!(wrong.contains("tools"), "{wrong}");
        assert_eq!(dialogue.waiting(), 0);
    }

    #[test]
    fn what_nobody_asked_for_is_refused_and_so_is_a_second_answer() {
        let mut dialogue = Dialogue::default();
        let answer = json!({"jsonrpc": "2.0", "id": 7, "result": {}});
        assert!(
            dialogue
                .received(&answer)
                .unwrap_err()
                .contains("nothing waits")
        );
        dialogue.sent(br#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#);
        assert_eq!(dialogue.received(&json!([answer])), Ok(()));
        assert!(
            dialogue
                .received(&answer)
                .unwrap_err()
                .contains("nothing waits")
        );
    }

    #[test]
    fn a_request_that_names_the_modern_revision_is_answered_in_it() {
        let mut dialogue = Dialogue::default();
        dialogue.speak("2025-06-18");
        let meta = json!({"io.modelcontextprotocol/protocolVersion": MODERN});
        dialogue.sent_message(&json!({"id": 1, "method": "tools/list", "params": {"_meta": meta}}));
        let legacy = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}});
        assert!(dialogue.received(&legacy).unwrap_err().contains("required"));
    }
}
