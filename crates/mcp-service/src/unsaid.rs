//! Secrets that the process knows, taken out of what clients are sent.

use bytes::Bytes;
use jsonrpc_core::{ErrorObject, RawJson};
use redaction::{knows_any, without_known, without_known_json};
use std::borrow::Cow;

/// The outcome of a request without known secrets: its result, and the whole response where that was encoded with it
/// and says the same.
pub(crate) fn outcome(
    outcome: Result<(RawJson, Option<Bytes>), ErrorObject>,
) -> Result<(RawJson, Option<Bytes>), ErrorObject> {
    if !knows_any() {
        return outcome;
    }
    match outcome {
        Ok((result, encoded)) => Ok(match json(&result) {
            Some(without) => (without, None),
            None => (result, encoded),
        }),
        Err(error) => Err(ErrorObject {
            code: error.code,
            message: match without_known(&error.message) {
                Cow::Borrowed(_) => error.message,
                Cow::Owned(without) => without.into(),
            },
            data: error.data.map(|data| json(&data).unwrap_or(data)),
        }),
    }
}

/// A message without known secrets.
pub(crate) fn frame(frame: Bytes) -> Bytes {
    if !knows_any() {
        return frame;
    }
    // Messages are encoded by us, and are text.
    let Ok(text) = std::str::from_utf8(&frame) else {
        return frame;
    };
    match without_known_json(text) {
        Cow::Borrowed(_) => frame,
        Cow::Owned(without) => without.into(),
    }
}

fn json(json: &RawJson) -> Option<RawJson> {
    match without_known_json(json.as_str()) {
        Cow::Borrowed(_) => None,
        Cow::Owned(without) => Some(RawJson::from_serialized(without.into_bytes())),
    }
}
