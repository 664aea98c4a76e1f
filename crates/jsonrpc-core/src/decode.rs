use crate::{
    ErrorCode, ErrorObject, Id, Invalid, Message, Notification, Payload, Position, RawJson,
    Request, Response, depth,
    members::{Member, Scanner},
    position::reason,
};
use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// Bounds on what [`decode`] accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes in one frame. A transport should stop reading there; this is the second gate.
    pub max_frame: usize,
    /// The most messages in one batch.
    pub max_batch: usize,
    /// The deepest nesting of arrays and objects, the message itself being one level. At most 127:
    /// serde_json reads no deeper.
    pub max_depth: usize,
}

impl Default for Limits {
    /// 4 MiB, 100 messages, 100 levels.
    fn default() -> Self {
        Self {
            max_frame: 4 * 1024 * 1024,
            max_batch: 100,
            max_depth: 100,
        }
    }
}

/// A frame that could not be split into messages at all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    /// Not JSON.
    #[error("not JSON: {reason} at {position}")]
    Syntax {
        /// Position of the error.
        position: Position,
        /// Description of what the parser expected.
        reason: String,
    },
    /// Not even text.
    #[error("not UTF-8: invalid byte at {position}")]
    Encoding {
        /// The first byte that is no text.
        position: Position,
    },
    /// Longer than accepted.
    #[error("the message is {actual} bytes long; at most {max} are accepted")]
    TooLong {
        /// The bound that was exceeded.
        max: usize,
        /// Number received.
        actual: usize,
    },
    /// Nested deeper than accepted.
    #[error("nested deeper than {max} levels at {position}")]
    TooDeep {
        /// The bound that was exceeded.
        max: usize,
        /// The first bracket beyond it.
        position: Position,
    },
    /// A batch of no messages.
    #[error("the batch is empty")]
    EmptyBatch,
    /// A batch of too many messages.
    #[error("the batch holds {actual} messages; at most {max} are accepted")]
    BatchTooLong {
        /// The bound that was exceeded.
        max: usize,
        /// Number received.
        actual: usize,
    },
}

impl DecodeError {
    /// The error to answer with.
    pub fn to_error_object(&self) -> ErrorObject {
        let code = match self {
            Self::Syntax { .. } | Self::Encoding { .. } => ErrorCode::PARSE_ERROR,
            Self::TooLong { .. }
            | Self::TooDeep { .. }
            | Self::EmptyBatch
            | Self::BatchTooLong { .. } => ErrorCode::INVALID_REQUEST,
        };
        ErrorObject::lasting(code, self.to_string())
    }
}

/// Reader of what a request says, told of it while the request is read for the first time, so that none looks for
/// it again.
pub trait ReadParams<'a> {
    /// A member of the parameters; `_meta` after its own members.
    fn member(&mut self, member: Member<'a>);

    /// A member of the object that the member `_meta` is.
    fn meta_member(&mut self, member: Member<'a>);

    /// All were told of the parameters `params`. If this is never called, what was told means nothing: only a
    /// parser can read the frame.
    fn all_read(&mut self, params: &RawJson);
}

/// Reader that takes no note.
impl ReadParams<'_> for () {
    fn member(&mut self, _: Member<'_>) {}
    fn meta_member(&mut self, _: Member<'_>) {}
    fn all_read(&mut self, _: &RawJson) {}
}

/// Decodes one frame.
///
/// # Errors
///
/// [`DecodeError`] when the frame cannot be split into messages. A value that is JSON but no
/// message is not an error here: it comes back as [`Invalid`], with its id if it had one.
pub fn decode(frame: &Bytes, limits: Limits) -> Result<Payload, DecodeError> {
    decode_with(frame, limits, &mut ())
}

/// Decodes one frame, as [`decode`], and tells `reader` what a single request says.
///
/// # Errors
///
/// As [`decode`] has them.
pub fn decode_with<'a>(
    frame: &'a Bytes,
    limits: Limits,
    reader: &mut impl ReadParams<'a>,
) -> Result<Payload, DecodeError> {
    if limits.max_frame < frame.len() {
        return Err(DecodeError::TooLong {
            max: limits.max_frame,
            actual: frame.len(),
        });
    }
    let text = std::str::from_utf8(frame).map_err(|error| DecodeError::Encoding {
        position: Position::of(frame, error.valid_up_to()),
    })?;
    if let Some(message) = plain_message(frame, text, limits.max_depth, reader) {
        return Ok(Payload::Single(Ok(message)));
    }
    if let Some(offset) = depth::first_excess(frame, limits.max_depth) {
        return Err(DecodeError::TooDeep {
            max: limits.max_depth,
            position: Position::of(frame, offset),
        });
    }
    if text.trim_start().starts_with('[') {
        return decode_batch(frame, text, limits);
    }
    match serde_json::from_str::<Wire<'_>>(text) {
        Ok(wire) => Ok(Payload::Single(message(frame, wire, 0))),
        Err(error) => {
            // Was it no message, or no JSON? The parser stops at the first of the two, so what
            // does not fit must be read once more to the end.
            syntax(frame, text)?;
            Ok(Payload::Single(Err(no_message(frame, text, 0, &error))))
        }
    }
}

/// A request or a result as nearly all are written: each member once, nothing that only a parser can read or refuse,
/// and no more than `max_depth` levels.
fn plain_message<'a>(
    frame: &Bytes,
    text: &'a str,
    max_depth: usize,
    reader: &mut impl ReadParams<'a>,
) -> Option<Message> {
    let (mut jsonrpc, mut id, mut method, mut params) = (None, None, None, None);
    let mut result = None;
    let mut scanner = Scanner::new(text);
    scanner.object(|scanner, name| {
        if name == "params" && scanner.is_at_object() {
            let read = scanner.taken(|scanner| read_params(scanner, reader))?;
            return params.replace((read, true)).is_none().then_some(());
        }
        let it = scanner.member(name)?;
        let is_plain = match name {
            "jsonrpc" => it.value == r#""2.0""# && jsonrpc.replace(()).is_none(),
            "id" => {
                let read = match it.plain_text() {
                    Some(text) => Some(Id::String(text.into())),
                    None => Id::of_digits(it.value),
                };
                read.is_some_and(|it| id.replace(it).is_none())
            }
            "method" => {
                let text = it.plain_text();
                text.is_some_and(|it| method.replace(it).is_none())
            }
            "params" => it.value.starts_with('[') && params.replace((it.value, false)).is_none(),
            "result" => result.replace(it.value).is_none(),
            "error" => false,
            _ => true,
        };
        is_plain.then_some(())
    })?;
    scanner.end()?;
    // Nearly every request has fewer brackets than it may have levels.
    if max_depth < scanner.brackets() && depth::first_excess(frame, max_depth).is_some() {
        return None;
    }
    let ((), id) = (jsonrpc?, id?);
    let (method, params) = match (method, params, result) {
        (Some(method), params, None) => (method.to_owned(), params),
        (None, None, Some(result)) => {
            return Some(Message::Response(Response {
                id: Some(id),
                outcome: Ok(RawJson::of_text(frame, result)),
            }));
        }
        _ => return None,
    };
    let params = match params {
        None => RawJson::EMPTY_OBJECT,
        Some((text, is_told)) => {
            let params = RawJson::of_text(frame, text);
            if is_told {
                reader.all_read(&params);
            }
            params
        }
    };
    Some(Message::Request(Request { id, method, params }))
}

/// The object that the parameters are.
fn read_params<'a>(scanner: &mut Scanner<'a>, reader: &mut impl ReadParams<'a>) -> Option<()> {
    scanner.object(|scanner, name| {
        let member = if name == "_meta" && scanner.is_at_object() {
            let meta = scanner.taken(|scanner| {
                scanner.object(|scanner, name| {
                    let member = scanner.member(name)?;
                    reader.meta_member(member);
                    Some(())
                })
            })?;
            Member::nested(name, meta)
        } else {
            scanner.member(name)?
        };
        reader.member(member);
        Some(())
    })
}

fn decode_batch(frame: &Bytes, text: &str, limits: Limits) -> Result<Payload, DecodeError> {
    let elements: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|error| DecodeError::Syntax {
            position: Position::within(frame, 0, &error),
            reason: reason(&error),
        })?;
    if elements.is_empty() {
        return Err(DecodeError::EmptyBatch);
    }
    if limits.max_batch < elements.len() {
        return Err(DecodeError::BatchTooLong {
            max: limits.max_batch,
            actual: elements.len(),
        });
    }
    let decode_element = |element: &RawValue| {
        let text = element.get();
        let start = text.as_ptr() as usize - frame.as_ptr() as usize;
        match serde_json::from_str::<Wire<'_>>(text) {
            Ok(wire) => message(frame, wire, start),
            Err(error) => Err(no_message(frame, text, start, &error)),
        }
    };
    Ok(Payload::Batch(
        elements.into_iter().map(decode_element).collect(),
    ))
}

fn syntax(frame: &Bytes, text: &str) -> Result<(), DecodeError> {
    serde_json::from_str::<IgnoredAny>(text)
        .map(drop)
        .map_err(|error| DecodeError::Syntax {
            position: Position::within(frame, 0, &error),
            reason: reason(&error),
        })
}

/// JSON that does not have the members of a message, or has one of them twice.
fn no_message(frame: &Bytes, text: &str, start: usize, error: &serde_json::Error) -> Invalid {
    #[derive(Deserialize)]
    struct Identified<'a> {
        #[serde(borrow, default)]
        id: Option<&'a RawValue>,
    }
    let id = serde_json::from_str::<Identified<'_>>(text)
        .ok()
        .and_then(|identified| identified.id)
        .and_then(Id::read);
    let why = if text.trim_start().starts_with('{') {
        reason(error)
    } else {
        "a message is a JSON object".to_owned()
    };
    invalid(id, &why, Position::within(frame, start, error))
}

fn invalid(id: Option<Id>, why: &str, position: Position) -> Invalid {
    Invalid {
        id,
        error: ErrorObject::lasting(
            ErrorCode::INVALID_REQUEST,
            format!("not a JSON-RPC 2.0 message: {why} at {position}"),
        ),
    }
}

// One flat struct for all three shapes. `#[serde(untagged)]` and `#[serde(flatten)]` would buffer
// the value and so lose `RawValue`, and an untagged enum reports no reason when nothing matches.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Text<'a>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<WireError<'a>>,
}

#[derive(Deserialize)]
struct WireError<'a> {
    #[serde(deserialize_with = "code")]
    code: ErrorCode,
    #[serde(default)]
    message: String,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
}

/// A code of any size, so that its error is told.
fn code<'de, D: Deserializer<'de>>(d: D) -> Result<ErrorCode, D::Error> {
    i64::deserialize(d).map(ErrorCode::nearest)
}

/// Distinguishes a member that is `null` from one that is absent, which `Option` alone does not.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(d: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&'a RawValue>::deserialize(d).map(Some)
}

/// A string that borrows unless it has escapes. `Option<Cow<str>>` would always copy.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Makes a message of what stands at `start` in `frame`.
fn message(frame: &Bytes, wire: Wire<'_>, start: usize) -> Result<Message, Invalid> {
    let slice = |raw: &RawValue| RawJson::slice_of(frame, raw);
    let refuse = |id, why: &str, at: Option<&RawValue>| {
        let offset = at.map_or(start, |raw| {
            raw.get().as_ptr() as usize - frame.as_ptr() as usize
        });
        Err(invalid(id, why, Position::of(frame, offset)))
    };

    let id = match wire.id {
        None => None,
        // A request's is echoed as it was written. Whoever answers may have another way to write ours.
        Some(raw) => match wire
            .method
            .as_ref()
            .map_or_else(|| Id::read_in_answer(raw), |_| Id::read(raw))
        {
            Some(id) => Some(id),
            // An error response may carry a null id: its sender could not read ours.
            None if raw.get() == "null" && wire.error.is_some() => None,
            None => return refuse(None, "`id` must be a string or an integer", Some(raw)),
        },
    };
    match &wire.jsonrpc {
        Some(Text(version)) if version == "2.0" => {}
        Some(_) => return refuse(id, "`jsonrpc` must be \"2.0\"", None),
        None => return refuse(id, "`jsonrpc` is missing", None),
    }
    let params = match wire.params {
        None => RawJson::EMPTY_OBJECT,
        Some(raw) if raw.get().starts_with(['{', '[']) => slice(raw),
        Some(raw) => return refuse(id, "`params` must be an object or an array", Some(raw)),
    };
    match (wire.method, id, wire.result, wire.error) {
        (Some(Text(method)), Some(id), None, None) => Ok(Message::Request(Request {
            id,
            method: method.into_owned(),
            params,
        })),
        (Some(Text(method)), None, None, None) => Ok(Message::Notification(Notification {
            method: method.into_owned(),
            params,
        })),
        (None, Some(id), Some(result), None) => Ok(Message::Response(Response {
            id: Some(id),
            outcome: Ok(slice(result)),
        })),
        (None, id, None, Some(error)) => Ok(Message::Response(Response {
            id,
            outcome: Err(ErrorObject {
                code: error.code,
                message: error.message.into(),
                data: error.data.map(slice),
            }),
        })),
        (None, id, None, None) => refuse(id, "`method` is missing", None),
        (_, id, ..) => refuse(
            id,
            "it must have exactly one of `method`, `result` and `error`, and a result an `id`",
            None,
        ),
    }
}

#[cfg(test)]
mod tests;
