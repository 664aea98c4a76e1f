use super::{ClientCapabilities, Object, object, present, raw};
use crate::{ProtocolError, RequestedVersion, TraceContext};
use jsonrpc_core::{Id, RawJson};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// The `_meta` of a request: what it says about itself.
#[derive(Clone, Debug, Default)]
pub struct RequestMeta {
    /// The version this one request is written in; absent from legacy peers.
    pub protocol_version: Option<RequestedVersion>,
    /// Capabilities of the client that the server may use while this one request is handled.
    pub client_capabilities: Option<ClientCapabilities>,
    /// From which severity on the client wants to hear log messages about this request.
    pub log_level: Option<LoggingLevel>,
    /// Ties progress notifications to the request: a string or an integer of the client's choice.
    pub progress_token: Option<Id>,
    /// Place in a distributed trace where the caller makes it (SEP-414); one that cannot be read
    /// counts as none.
    pub trace: Option<TraceContext>,
    /// `io.owlclaw/idempotencyKey`: what the client calls this one call, so that it can be sent again
    /// without being done again. JSON text as it was sent, not checked.
    pub idempotency_key: Option<Box<str>>,
}

/// Severity of a log message, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "named by RFC 5424")]
pub enum LoggingLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<Object<Wire<'a>>>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    protocol_version: Option<Cow<'a, str>>,
    #[serde(
        default,
        rename = "io.modelcontextprotocol/clientCapabilities",
        deserialize_with = "object"
    )]
    client_capabilities: Option<ClientCapabilities>,
    #[serde(
        borrow,
        default,
        rename = "io.modelcontextprotocol/clientInfo",
        deserialize_with = "object"
    )]
    client_info: Option<ClientInfo<'a>>,
    #[serde(
        default,
        rename = "io.modelcontextprotocol/logLevel",
        deserialize_with = "present"
    )]
    log_level: Option<LoggingLevel>,
    #[serde(default, rename = "progressToken", deserialize_with = "present")]
    progress_token: Option<Id>,
    // Not ours to refuse: a trace context that is no string is no trace context.
    #[serde(borrow, default)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tracestate: Option<&'a RawValue>,
    // What to say of one that cannot be used is for those who know what it is for.
    #[serde(
        borrow,
        default,
        rename = "io.owlclaw/idempotencyKey",
        deserialize_with = "present"
    )]
    idempotency_key: Option<&'a RawValue>,
}

/// Checked, and then forgotten: nothing may depend on it (2026-07-28, basic/index).
#[derive(Deserialize)]
#[expect(dead_code, reason = "reading them is the check")]
struct ClientInfo<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    version: Cow<'a, str>,
}

impl RequestMeta {
    /// Reads the `_meta` of `params`; a missing one is empty.
    ///
    /// # Errors
    ///
    /// [`ProtocolError::InvalidMeta`] when `params` is no object or a key reserved by the protocol
    /// holds something else: such a request must not be mistaken for a legacy one.
    pub fn of(params: &RawJson) -> Result<Self, ProtocolError> {
        let invalid = |reason: String| ProtocolError::InvalidMeta { reason };
        // One pass over all there is: this runs for every request.
        let Object(envelope): Object<Envelope<'_>> =
            params.parse().map_err(|error| invalid(error.to_string()))?;
        let Some(Object(wire)) = envelope.meta else {
            return Ok(Self::default());
        };
        drop(wire.client_info);
        Ok(Self {
            protocol_version: wire.protocol_version.as_deref().map(RequestedVersion::from),
            client_capabilities: wire.client_capabilities,
            log_level: wire.log_level,
            progress_token: wire.progress_token,
            trace: trace(wire.traceparent, wire.tracestate),
            idempotency_key: wire.idempotency_key.map(|raw| raw.get().into()),
        })
    }
}

fn trace(parent: Option<&RawValue>, state: Option<&RawValue>) -> Option<TraceContext> {
    let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
    let state = state.and_then(text);
    TraceContext::parse(&text(parent?)?, state.as_deref())
}

/// The `_meta` of a result, in the order it was put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultMeta(Vec<(Cow<'static, str>, RawJson)>);

impl ResultMeta {
    /// Adds an entry. A value that cannot be serialized is left out: a result must not fail for its
    /// trimmings.
    pub fn insert<T: Serialize + ?Sized>(&mut self, key: impl Into<Cow<'static, str>>, value: &T) {
        if let Ok(value) = RawJson::from_value(value) {
            self.insert_raw(key, value);
        }
    }

    /// Adds an entry that is serialized already.
    pub fn insert_raw(&mut self, key: impl Into<Cow<'static, str>>, value: RawJson) {
        self.0.push((key.into(), value));
    }

    /// Returns true if there are no metadata.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entry `key`.
    pub fn get(&self, key: &str) -> Option<&RawJson> {
        self.iter()
            .find(|(it, _)| *it == key)
            .map(|(_, value)| value)
    }

    /// Takes the entry `key` out.
    pub fn remove(&mut self, key: &str) -> Option<RawJson> {
        let index = self.0.iter().position(|(it, _)| it == key)?;
        Some(self.0.remove(index).1)
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }
}

impl Serialize for ResultMeta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ResultMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = ResultMeta;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResultMeta, A::Error> {
                let mut meta = ResultMeta::default();
                while let Some(key) = map.next_key::<String>()? {
                    let Raw(value) = map.next_value()?;
                    meta.insert_raw(key, value);
                }
                Ok(meta)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[derive(Deserialize)]
struct Raw(#[serde(deserialize_with = "raw")] RawJson);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(params: &str) -> Result<RequestMeta, ProtocolError> {
        RequestMeta::of(&RawJson::from_bytes(params.to_owned().into()).unwrap())
    }

    #[test]
    fn what_the_protocol_reserves_is_checked() {
        for bad in [
            "[]",
            r#"{"_meta":7}"#,
            r#"{"_meta":[]}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":null}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":[]}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"x"}}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/logLevel":"loud"}}"#,
            r#"{"_meta":{"progressToken":1.5}}"#,
            r#"{"_meta":{"progressToken":null}}"#,
        ] {
            assert!(
                matches!(read(bad), Err(ProtocolError::InvalidMeta { .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_trace_is_read_and_what_is_none_is_passed_over() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = |traceparent: &str, tracestate: &str| {
            let meta = read(&format!(
                r#"{{"_meta":{{"traceparent":{traceparent},"tracestate":{tracestate}}}}}"#
            ));
            let trace = meta.unwrap().trace?;
            Some((trace.traceparent(), trace.tracestate().map(str::to_owned)))
        };
        let quoted = format!("{parent:?}");
        let with_state = |state: Option<&str>| Some((parent.to_owned(), state.map(str::to_owned)));
        assert_eq!(read(&quoted, r#""a=1""#), with_state(Some("a=1")));
        for bad in ["7", "null", r#""A=1""#] {
            assert_eq!(read(&quoted, bad), with_state(None));
        }
        for bad in ["7", "null", r#""00-0""#] {
            assert_eq!(read(bad, r#""a=1""#), None);
        }
    }

    #[test]
    fn everything_else_is_passed_over_and_nothing_is_required() {
        assert!(read("{}").unwrap().protocol_version.is_none());
        assert!(
            read(r#"{"_meta":null}"#)
                .unwrap()
                .protocol_version
                .is_none()
        );
        let meta =
            read(r#"{"_meta":{"progressToken":"t","traceparent":7,"com.example/x":[1]}}"#).unwrap();
        assert_eq!(meta.progress_token, Some("t".into()));
        assert_eq!(meta.trace, None);
        assert_eq!(meta.idempotency_key, None);
        for key in [r#""k-1""#, "7", "[]", "null"] {
            let meta = read(&format!(
                r#"{{"_meta":{{"io.owlclaw/idempotencyKey":{key}}}}}"#
            ));
            assert_eq!(meta.unwrap().idempotency_key.as_deref(), Some(key));
        }
    }
}
