use super::error::ProtocolError;
use super::{CallTool, ClientCapabilities, InputRetry, Object, object, present, raw};
use crate::{RequestedVersion, TraceContext};
use jsonrpc_core::{Id, Member, RawJson, ReadParams, take_members};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, fmt, ops::Range};

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
    pub trace: Option<Box<TraceContext>>,
    /// `io.owlclaw/idempotencyKey`: what the client calls this one call, so that it can be sent again
    /// without being done again. JSON text as it was sent, not checked.
    pub idempotency_key: Option<Box<str>>,
    /// The whole of `_meta`, if handlers may look for something in it: a progress token, or members that are neither
    /// the protocol's nor ours.
    pub whole: Option<RawJson>,
    /// The rest of the parameters, where they are those of a plain call.
    pub(crate) call: Option<PlainCall>,
}

/// Places of the members of a call of a tool in the text of its parameters, where there is nothing beside them that
/// only a parser can read or refuse, as in nearly every call: found with `_meta`, so that nobody looks again.
#[derive(Clone, Debug)]
pub(crate) struct PlainCall {
    /// Address and length of the text.
    text: (usize, u32),
    name: Place,
    /// Empty if there are none.
    arguments: Place,
    /// True if there is a member `task`, which is part of a call in one revision.
    pub(crate) has_task: bool,
}

impl PlainCall {
    /// The name in these parameters; `None` if the call was found in others.
    fn name<'p>(&self, params: &'p RawJson) -> Option<&'p str> {
        let text = params.as_bytes();
        let name = text.get(range_of(self.name));
        std::str::from_utf8(name.filter(|_| address(text) == Some(self.text))?).ok()
    }

    /// The call of these parameters; `None` if it was found in others.
    pub(crate) fn of(&self, params: &RawJson) -> Option<CallTool> {
        Some(CallTool {
            name: self.name(params)?.to_owned(),
            arguments: match range_of(self.arguments) {
                none if none.is_empty() => RawJson::EMPTY_OBJECT,
                arguments => params.slice(arguments),
            },
            retry: InputRetry::default(),
            task: None,
            at_most: None,
        })
    }
}

/// Beginning and end of a part of a text of less than 4 GiB.
type Place = (u32, u32);

fn place_of(range: Range<usize>) -> Option<Place> {
    Some((range.start.try_into().ok()?, range.end.try_into().ok()?))
}

fn range_of((start, end): Place) -> Range<usize> {
    start as usize..end as usize
}

fn address(text: &[u8]) -> Option<(usize, u32)> {
    Some((text.as_ptr() as usize, u32::try_from(text.len()).ok()?))
}

/// Place of a part of `text`.
pub(crate) fn place(text: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

/// Reader of the metadata of a request, and of the places of a call's members, where nothing in them needs a parser, as
/// in nearly every request.
#[derive(Default)]
pub(crate) struct MetaReader<'a> {
    name: Option<&'a str>,
    arguments: Option<&'a str>,
    has_task: bool,
    /// True if only a parser can tell what the call says.
    is_odd_call: bool,
    /// True if only a parser can tell what `_meta` says.
    is_odd: bool,
    /// Text of `_meta`.
    meta: Option<&'a str>,
    /// True if there is something in it for handlers.
    has_more: bool,
    has_client_info: bool,
    traceparent: Option<&'a str>,
    tracestate: Option<&'a str>,
    found: RequestMeta,
    /// True once all members have been told.
    is_complete: bool,
}

impl MetaReader<'_> {
    /// The metadata; `None` if a parser has to read them.
    pub(crate) fn read(mut self) -> Option<RequestMeta> {
        if self.is_odd || !self.is_complete {
            return None;
        }
        if self.traceparent.is_some() {
            self.found.trace = trace(self.traceparent, self.tracestate);
        }
        Some(self.found)
    }
}

impl<'a> ReadParams<'a> for MetaReader<'a> {
    fn member(&mut self, member: Member<'a>) {
        match member.name {
            "name" => match member.plain_text() {
                Some(text) => self.is_odd_call |= self.name.replace(text).is_some(),
                None => self.is_odd_call = true,
            },
            "arguments" => {
                self.is_odd_call |= !member.value.starts_with('{')
                    || self.arguments.replace(member.value).is_some();
            }
            "_meta" => {
                self.is_odd |= !member.value.starts_with('{');
                self.is_odd |= self.meta.replace(member.value).is_some();
            }
            "inputResponses" | "requestState" => self.is_odd_call = true,
            "task" => self.has_task = true,
            _ => {}
        }
    }

    fn meta_member(&mut self, it: Member<'a>) {
        let found = &mut self.found;
        self.has_more |= is_for_handlers(it.name);
        // Each at most once.
        let is_plain = match it.name {
            "io.modelcontextprotocol/protocolVersion" => {
                let version = it.plain_text().map(RequestedVersion::from);
                version.is_some_and(|it| found.protocol_version.replace(it).is_none())
            }
            "io.modelcontextprotocol/clientCapabilities" => {
                let declared = capabilities(it.value);
                declared.is_some_and(|it| found.client_capabilities.replace(it).is_none())
            }
            "io.modelcontextprotocol/clientInfo" => {
                is_client_info(it.value) && !std::mem::replace(&mut self.has_client_info, true)
            }
            "io.modelcontextprotocol/logLevel" => {
                let level = serde_json::from_str(it.value).ok();
                level.is_some_and(|it| found.log_level.replace(it).is_none())
            }
            "progressToken" => {
                let token = Id::from_json(it.value);
                token.is_some_and(|it| found.progress_token.replace(it).is_none())
            }
            "traceparent" => self.traceparent.replace(it.value).is_none(),
            "tracestate" => self.tracestate.replace(it.value).is_none(),
            "io.owlclaw/idempotencyKey" => found.idempotency_key.replace(it.value.into()).is_none(),
            _ => true,
        };
        self.is_odd |= !is_plain;
    }

    fn all_read(&mut self, params: &RawJson) {
        self.is_complete = true;
        let text = params.as_bytes();
        let whole = self.meta.filter(|_| self.has_more);
        self.found.whole = whole.map(|it| params.slice(place(text, it)));
        let call = |name| {
            Some(PlainCall {
                text: address(text)?,
                name: place_of(place(text, name))?,
                arguments: place_of(self.arguments.map_or(0..0, |it| place(text, it)))?,
                has_task: self.has_task,
            })
        };
        self.found.call = self.name.filter(|_| !self.is_odd_call).and_then(call);
    }
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
struct Whole<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
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
    /// [`ProtocolError::ParamsNoObject`], and [`ProtocolError::InvalidMeta`] when a key reserved by the
    /// protocol holds something else: such a request must not be mistaken for a legacy one.
    pub fn of(params: &RawJson) -> Result<Self, ProtocolError> {
        match Self::plain(params) {
            Some(meta) => Ok(meta),
            None => Self::parsed(params),
        }
    }

    /// Reads `_meta` without a parser, where nothing in it needs one. Everything beside `_meta` is skipped, but the
    /// places of a call's members are noted.
    fn plain(params: &RawJson) -> Option<Self> {
        let mut reader = MetaReader::default();
        let is_plain = take_members(params.as_str(), |it| {
            let is_plain = it.name != "_meta"
                || take_members(it.value, |it| {
                    reader.meta_member(it);
                    true
                });
            reader.member(it);
            is_plain
        });
        if !is_plain {
            return None;
        }
        reader.all_read(params);
        reader.read()
    }

    /// The name that a plain call has in `params`, of which these metadata are.
    pub fn name_in<'p>(&self, params: &'p RawJson) -> Option<&'p str> {
        self.call.as_ref()?.name(params)
    }

    /// Reads `_meta` with a parser, which says what is wrong.
    fn parsed(params: &RawJson) -> Result<Self, ProtocolError> {
        if params.as_str().starts_with('[') {
            return Err(ProtocolError::ParamsNoObject);
        }
        let invalid = |reason: String| ProtocolError::InvalidMeta { reason };
        let Object(envelope): Object<Envelope<'_>> =
            params.parse().map_err(|error| invalid(error.to_string()))?;
        let Some(Object(wire)) = envelope.meta else {
            return Ok(Self::default());
        };
        drop(wire.client_info);
        let Whole { meta } = params.parse().map_err(|error| invalid(error.to_string()))?;
        let whole = meta.map(|it| params.child(it));
        Ok(Self {
            protocol_version: wire.protocol_version.as_deref().map(RequestedVersion::from),
            client_capabilities: wire.client_capabilities,
            log_level: wire.log_level,
            progress_token: wire.progress_token,
            trace: trace(
                wire.traceparent.map(RawValue::get),
                wire.tracestate.map(RawValue::get),
            ),
            idempotency_key: wire.idempotency_key.map(|raw| raw.get().into()),
            whole: whole.filter(|it| {
                let members: Result<BTreeMap<Cow<'_, str>, IgnoredAny>, _> = it.parse();
                members.is_ok_and(|it| it.keys().any(|name| is_for_handlers(name)))
            }),
            call: None,
        })
    }
}

/// True if a member of `_meta` is of use to handlers, which have the rest from elsewhere.
fn is_for_handlers(name: &str) -> bool {
    let is_ours = |it: &str| {
        it.starts_with("io.modelcontextprotocol/")
            || it.starts_with("io.owlclaw/")
            || it == "traceparent"
            || it == "tracestate"
    };
    !is_ours(name)
}

/// Capabilities that a client has declared; `None` if the text is no object of capabilities.
fn capabilities(json: &str) -> Option<ClientCapabilities> {
    if json == "{}" {
        return Some(ClientCapabilities::default());
    }
    let declared: Object<_> = serde_json::from_str(json).ok()?;
    Some(declared.0)
}

/// True if a [`ClientInfo`] is written plainly.
fn is_client_info(json: &str) -> bool {
    let (mut name, mut version) = (None, None);
    let is_plain = take_members(json, |it| {
        let slot = match it.name {
            "name" => &mut name,
            "version" => &mut version,
            _ => return true,
        };
        let text = it.plain_text();
        text.is_some_and(|it| slot.replace(it).is_none())
    });
    is_plain && name.is_some() && version.is_some()
}

fn trace(parent: Option<&str>, state: Option<&str>) -> Option<Box<TraceContext>> {
    let text = |raw: &str| serde_json::from_str::<String>(raw).ok();
    let state = state.and_then(text);
    TraceContext::parse(&text(parent?)?, state.as_deref()).map(Box::new)
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

    /// The values of the entries.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut RawJson> {
        self.0.iter_mut().map(|(_, value)| value)
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
    use jsonrpc_core::Limits;

    fn read(params: &str) -> Result<RequestMeta, ProtocolError> {
        RequestMeta::of(&RawJson::from_bytes(params.to_owned().into()).unwrap())
    }

    #[test]
    fn what_the_protocol_reserves_is_checked() {
        for bad in ["[]", r#"[{"_meta":{}}]"#] {
            let error = read(bad).unwrap_err();
            let expected = "invalid params: `params` must be an object";
            assert_eq!(error.to_string(), expected, "{bad}");
        }
        for bad in [
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

    #[test]
    fn metadata_are_kept_for_handlers_if_there_is_something_for_them() {
        let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        let parent = r#""traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01""#;
        let whole = |meta: &str| {
            let meta = read(&format!(r#"{{"_meta":{meta}}}"#)).unwrap();
            meta.whole.map(|it| it.as_str().to_owned())
        };
        for meta in [
            "{}".to_owned(),
            format!("{{{version},{parent},\"io.owlclaw/idempotencyKey\":\"k\"}}"),
        ] {
            assert_eq!(whole(&meta), None, "{meta}");
        }
        for meta in [
            format!(r#"{{{version},"progressToken":7}}"#),
            format!(r#"{{"shop/tenant":"a","t\u0061":1,{version}}}"#),
        ] {
            assert_eq!(whole(&meta), Some(meta));
        }
    }

    #[test]
    fn what_is_read_without_a_parser_is_what_a_parser_reads() {
        let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        let capabilities = r#""io.modelcontextprotocol/clientCapabilities""#;
        let info = r#""io.modelcontextprotocol/clientInfo""#;
        let mut plain = 0;
        for meta in [
            "{}".to_owned(),
            "null".to_owned(),
            "[]".to_owned(),
            format!("{{{version}}}"),
            format!("{{{version},{version}}}"),
            format!(r#"{{{version},{capabilities}:{{}},{info}:{{"name":"a","version":"1"}}}}"#),
            format!(r#"{{{version},{capabilities}:{{"roots":{{}},"sampling":{{}}}}}}"#),
            format!(r#"{{{version},{capabilities}:null}}"#),
            format!(r#"{{{version},{capabilities}:[]}}"#),
            format!(r#"{{{capabilities}:{{"roots":7}}}}"#),
            format!(r#"{{{info}:{{"name":"a\n","version":"1","title":[]}}}}"#),
            format!(r#"{{{info}:{{"name":"a"}}}}"#),
            format!(r#"{{{info}:{{"name":"a","name":"b","version":"1"}}}}"#),
            format!(r#"{{{info}:["a","1"]}}"#),
            r#"{"io.modelcontextprotocol/protocolVersion":null}"#.to_owned(),
            r#"{"io.modelcontextprotocol/protocolVersion":"\u0031"}"#.to_owned(),
            r#"{"io.modelcontextprotocol/logLevel":"debug","progressToken":7}"#.to_owned(),
            r#"{"io.modelcontextprotocol/logLevel":"loud"}"#.to_owned(),
            r#"{"progressToken":null}"#.to_owned(),
            r#"{"progressToken":"t","shop/tenant":{"a":[1]},"shop/tenant":2}"#.to_owned(),
            r#"{"a\u0062":1}"#.to_owned(),
            r#"{"progressToken":"t","progressToken":"t"}"#.to_owned(),
            r#"{"traceparent":null,"tracestate":"a=1","io.owlclaw/idempotencyKey":null}"#
                .to_owned(),
            r#"{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#
                .to_owned(),
            r#"{"x":"\"","\u0070rogressToken":"t"}"#.to_owned(),
        ] {
            for params in [
                format!(r#"{{"name":"x","_meta":{meta},"arguments":{{"_meta":{{}}}}}}"#),
                format!(r#"{{"_meta":{meta},"_meta":{{}}}}"#),
            ] {
                let raw = RawJson::from_bytes(params.clone().into()).unwrap();
                let parsed = RequestMeta::parsed(&raw);
                let found = RequestMeta::plain(&raw);
                // Read with the frame it is the same; the place in memory is another one.
                let frame =
                    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#).into();
                let received = crate::Received::decode(&frame, Limits::default()).unwrap();
                let names = |meta: Option<&RequestMeta>| {
                    let mut meta = meta?.clone();
                    let call = meta
                        .call
                        .take()
                        .map(|it| (it.name, it.arguments, it.has_task));
                    Some(format!("{meta:?} {call:?}"))
                };
                assert_eq!(
                    names(received.meta.as_deref()),
                    names(found.as_ref()),
                    "{params}"
                );
                if let Some(mut found) = found {
                    plain += 1;
                    found.call = None;
                    assert_eq!(format!("{found:?}"), format!("{:?}", parsed.unwrap()));
                }
            }
        }
        assert!(6 < plain, "{plain}");
    }
}
