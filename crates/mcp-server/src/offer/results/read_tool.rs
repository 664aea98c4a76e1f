//! The tool by which a model reads on in a result.

use crate::offer::{
    resources::ReadFailure,
    results::{
        excerpt::Room,
        kept::{Kept, Part, Span},
    },
};
use adapter_tools::{
    Annotations, Arguments, Content, Executor, TaskSupport, Tool, ToolCx, ToolError, ToolOutput,
};
use futures_util::future::BoxFuture;
use mcp_protocol::model::{self, ByteRange, CallToolResult};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// The tool that reads on in a result.
pub(crate) const READ_RESULT: &str = "read_result";

/// The most bytes that it answers.
const MOST: u64 = 256 << 10;
/// Member of the `_meta` of its answers.
const PART: &str = "io.owlclaw/part";

/// The place of what the tool has answered.
#[derive(Serialize, Deserialize)]
struct Place {
    uri: String,
    offset: u64,
    length: u64,
    size: u64,
}

struct ReadOn(Arc<Kept>);

impl Executor for ReadOn {
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let arguments = arguments.as_object();
            let uri = arguments.get("uri").and_then(Value::as_str).unwrap_or("");
            let number = |name: &str| arguments.get(name).and_then(whole);
            let kept = self.0.find(&cx.principal, uri).ok_or_else(|| {
                let minutes = self.0.keep().as_secs().div_ceil(60);
                ToolError::failed(format!(
                    "there is no result of this `uri`; results are kept for {minutes} minutes"
                ))
            })?;
            let span = match (number("line"), number("offset")) {
                (Some(_), Some(_)) => {
                    return Err(ToolError::failed("give either `line` or `offset`"));
                }
                (Some(first), None) => Span::Lines {
                    first,
                    count: number("lines").unwrap_or(u64::MAX),
                },
                (None, offset) => Span::Characters(ByteRange {
                    offset: offset.unwrap_or(0),
                    length: number("length"),
                }),
            };
            let uri = kept.uri();
            // What the call was limited by, whatever is said of this tool.
            let room = Room::of(kept.limit).without_note();
            let part = kept.part(Some(span), MOST).await;
            let Part {
                bytes,
                offset,
                size,
            } = part.map_err(|failure| match failure {
                ReadFailure::Range(why) => ToolError::failed(why),
                failure => ToolError::broken(failure),
            })?;
            let mut text = String::from_utf8_lossy(&bytes).into_owned();
            let mut length = bytes.len();
            if !room.holds(&text) {
                length = room.fitting(&text).map_or(0, str::len);
                text.truncate(length);
            }
            let place = Place {
                uri,
                offset,
                length: length as u64,
                size,
            };
            Ok(ToolOutput::text(text)
                .with_content(Content::text(place.note()))
                .with_meta(PART, json!(place)))
        })
    }
}

/// A whole number, also one that is written as `8000.0`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative and whole, by the schema"
)]
fn whole(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_f64().map(|it| it as u64))
}

impl Place {
    fn note(&self) -> String {
        let Self {
            offset,
            length,
            size,
            ..
        } = self;
        let end = offset + length;
        match end < *size {
            true => format!("[Bytes {offset} to {end} of {size}. Read on with offset {end}.]"),
            false => format!("[Bytes {offset} to {end} of {size}: this is the end.]"),
        }
    }
}

pub(super) fn tool(kept: &Arc<Kept>) -> Tool {
    let number = |least: u64, description: &str| json!({ "type": "integer", "minimum": least, "description": description });
    Tool::new(
        READ_RESULT,
        json!({
            "type": "object",
            "properties": {
                "uri": { "type": "string", "description": "As the note in the shortened result has it: result://…" },
                "offset": number(0, "The first byte to read; 0 unless given."),
                "length": number(1, "The most bytes to read; as many as can be shown unless given."),
                "line": number(1, "In place of `offset`: the first line to read, counted from 1."),
                "lines": number(1, "With `line`: the number of lines."),
            },
            "required": ["uri"],
            "additionalProperties": false,
        }),
        ReadOn(Arc::clone(kept)),
    )
    .describe(
        "Reads on in a result that was too long to be shown as a whole. The note in that result has `uri` and `offset`.",
    )
    .with_annotations(Annotations {
        read_only: Some(true),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(false),
    })
    .with_task_support(TaskSupport::Forbidden)
}

/// An answer of the tool that is too long for its client: less of the same, as it can be read on.
pub(super) fn shortened(result: &CallToolResult, room: Room) -> Option<CallToolResult> {
    let place: Place = result.meta.get(PART)?.parse().ok()?;
    let [model::Content::Text { text, .. }, _] = result.content.as_slice() else {
        return None;
    };
    let beginning = room.without_note().fitting(text)?;
    let place = Place {
        length: beginning.len() as u64,
        ..place
    };
    let mut shown = CallToolResult {
        content: vec![
            model::Content::text(beginning),
            model::Content::text(place.note()),
        ],
        ..CallToolResult::default()
    };
    shown.meta.insert(PART, &place);
    Some(shown)
}
