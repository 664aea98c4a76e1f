//! Envelopes of requests and answers (rows 8 to 11 and 14 of document 004).

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::failure::{Failure, INVALID_REQUEST};

/// A request, or a notification where it has no id.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: Option<Value>,
    pub(crate) method: String,
    params: Map<String, Value>,
    pub(crate) session: Option<String>,
    pub(crate) target: Option<String>,
}

impl Request {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// The answer to something that is no request.
    pub(crate) fn read(message: Value) -> Result<Self, Value> {
        let id = match message.get("id") {
            None => None,
            Some(id) if id.is_string() || id.is_i64() || id.is_u64() => Some(id.clone()),
            Some(_) => {
                return Err(refused(None, "an id is a string or an integer"));
            }
        };
        let wrong = |why: &str| Err(refused(id.clone(), why));
        let Value::Object(mut message) = message else {
            return wrong("a message is an object");
        };
        if message.get("jsonrpc") != Some(&json!("2.0")) {
            return wrong("`jsonrpc` must be \"2.0\"");
        }
        let Some(Value::String(method)) = message.remove("method") else {
            return wrong("`method` is missing");
        };
        let mut text = |member: &str| match message.remove(member) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(refused(id.clone(), &format!("`{member}` must be a string"))),
        };
        let (session, target) = (text("session")?, text("target")?);
        let params = match message.remove("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => {
                let failure = Failure::params("parameters have names here: `params` is an object");
                return Err(answer(id, Err(failure), None, None));
            }
        };
        Ok(Self {
            id,
            method,
            params,
            session,
            target,
        })
    }

    /// True if there is a parameter of this name, whatever its value.
    pub(crate) fn has(&self, parameter: &str) -> bool {
        self.params.contains_key(parameter)
    }

    /// The parameters as a type. One that it does not know is refused, since it would be ignored in silence.
    pub(crate) fn params<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        T::deserialize(Value::Object(self.params.clone()))
            .map_err(|error| Failure::params(format!("the parameters: {error}")))
    }
}

fn refused(id: Option<Value>, why: &str) -> Value {
    answer(id, Err(Failure::new(INVALID_REQUEST, why)), None, None)
}

/// The answer to a request, of a session, by a server.
pub(crate) fn answer(
    id: Option<Value>,
    outcome: Result<Value, Failure>,
    session: Option<&str>,
    source: Option<&str>,
) -> Value {
    let mut answer = json!({ "jsonrpc": "2.0", "id": id });
    match outcome {
        Ok(result) => answer["result"] = result,
        Err(failure) => answer["error"] = failure.into_json(),
    }
    if let Some(session) = session {
        answer["session"] = session.into();
    }
    if let Some(source) = source {
        answer["source"] = source.into();
    }
    answer
}

/// A parameter that is missing or null is not there.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Nothing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_told_so_with_its_id() {
        for (message, id, code) in [
            (json!(7), json!(null), -32600),
            (
                json!({"jsonrpc": "1.0", "id": 1, "method": "a"}),
                json!(1),
                -32600,
            ),
            (json!({"jsonrpc": "2.0", "id": "x"}), json!("x"), -32600),
            (
                json!({"jsonrpc": "2.0", "id": 1.5, "method": "a"}),
                json!(null),
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": null, "method": "a"}),
                json!(null),
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": 2, "method": "a", "session": 3}),
                json!(2),
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": 2, "method": "a", "params": [1]}),
                json!(2),
                -32602,
            ),
        ] {
            let answer = Request::read(message).unwrap_err();
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&id, &json!(code))
            );
        }
        let big =
            json!({"jsonrpc": "2.0", "id": u64::MAX, "method": "a", "target": "b", "more": 1});
        let read = Request::read(big).unwrap();
        assert_eq!(
            (read.id, read.target.as_deref()),
            (Some(json!(u64::MAX)), Some("b"))
        );
    }
}
