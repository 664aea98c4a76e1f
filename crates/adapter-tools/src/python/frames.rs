//! Frames from launchers and workers.

mod outgoing;

pub(super) use self::outgoing::{
    AnswersFrame, CallFrame, ForkFrame, TooLarge, put_answers, put_call, put_cancel, put_fork,
    put_ping, put_reap, put_shutdown,
};

use super::{AppCompletion, AppPrompt, AppResource};
use crate::{Annotations, Content, Question};
use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, io, path::PathBuf};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The version of the protocol that both ends must speak.
pub(super) const PROTOCOL: u64 = 2;
/// The largest frame either way, its length prefix not counted.
pub(super) const MAX_FRAME: usize = 16 * 1024 * 1024;
/// Bytes that are read at once.
const READ: usize = 64 * 1024;

/// Cuts a stream of bytes into frames.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// The next frame; `None` at the end of the stream, even in the middle of a frame: a process
    /// that dies does not finish its sentence.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(frame) = cut(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Takes the first frame out of `buffer`, if it is there to its end.
fn cut(buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let Some(prefix) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*prefix) as usize;
    if MAX_FRAME < length {
        let message = format!("a frame of {length} bytes, and {MAX_FRAME} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    if buffer.len() - 4 < length {
        // The rest will come; make room for it once and not again and again.
        buffer.reserve(4 + length - buffer.len());
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// Members that every frame begins with, and those of a result, the frame that matters for speed.
/// The value of a result is skipped over and kept as it is written.
#[derive(Debug, Deserialize)]
pub(super) struct Head<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(default)]
    pub(super) id: Option<u64>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) value: Option<&'a RawValue>,
}

/// serde takes `null` for an absent `Option`, but a handler may well return `None`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u64,
    pub(super) nonce: String,
    pub(super) pid: i32,
    pub(super) role: Role,
    /// The number of a worker.
    #[serde(default)]
    pub(super) worker: Option<u64>,
}

/// Role of a process that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Launcher,
    Worker,
}

/// Frames of a launcher about its workers, told apart by `type`.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum LauncherFrame {
    Forked {
        worker: u64,
        pid: i32,
    },
    ForkFailed {
        worker: u64,
        message: String,
    },
    Exited {
        worker: u64,
        #[serde(default)]
        code: Option<i32>,
        #[serde(default)]
        signal: Option<i32>,
    },
    Pong,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ready {
    pub(super) app: String,
    pub(super) python: String,
    pub(super) owlclaw: String,
    #[serde(default)]
    pub(super) import_ms: f64,
    pub(super) tools: Vec<ToolFrame>,
    #[serde(default)]
    pub(super) resources: Vec<AppResource>,
    #[serde(default)]
    pub(super) prompts: Vec<AppPrompt>,
    #[serde(default)]
    pub(super) completions: Vec<AppCompletion>,
    #[serde(default)]
    pub(super) states: Vec<StateFrame>,
    /// The directory of skills that it has mounted, absolute.
    #[serde(default)]
    pub(super) skills: Option<PathBuf>,
    #[serde(default)]
    pub(super) warnings: Vec<String>,
    /// Keys that it sets of the governance of OwlClaw's own agent, by their paths.
    #[serde(default)]
    pub(super) governance: Vec<String>,
    /// Signs that handlers keep state in memory.
    #[serde(default)]
    pub(super) changed_names: Vec<String>,
    /// Reasons why workers had better not be forked from the sender.
    #[serde(default)]
    pub(super) cannot_fork: Vec<String>,
    /// Reasons why synchronous handlers run on the main thread alone, one at a time.
    #[serde(default)]
    pub(super) one_thread: Vec<String>,
    /// The source files of the application.
    #[serde(default)]
    pub(super) files: Vec<PathBuf>,
}

impl Ready {
    /// Returns true if there is nothing for clients.
    pub(super) fn offers_nothing(&self) -> bool {
        self.tools.is_empty()
            && self.states.is_empty()
            && self.resources.is_empty()
            && self.prompts.is_empty()
    }

    /// Differences to what was offered before, for people: `tools: added a, changed b; prompts: removed c`.
    pub(super) fn changes_since(&self, before: &Self) -> String {
        // What merely stands in another line is the same.
        let tools = told(
            (&before.tools, &self.tools),
            |it| &it.name,
            |it| it.source = None,
        );
        let resources = told(
            (&before.resources, &self.resources),
            |it| &it.uri,
            |it| it.source = None,
        );
        let prompts = told(
            (&before.prompts, &self.prompts),
            |it| &it.name,
            |it| it.source = None,
        );
        let states = told((&before.states, &self.states), |it| &it.name, |_| ());
        let parts = [
            ("tools", tools),
            ("resources", resources),
            ("prompts", prompts),
            ("states", states),
        ];
        let parts = parts.into_iter().filter(|(_, told)| !told.is_empty());
        let mut told: Vec<_> = parts
            .map(|(kind, told)| format!("{kind}: {told}"))
            .collect();
        if self.completions != before.completions {
            told.push("completions".to_owned());
        }
        match told.is_empty() {
            true => "nothing of what is offered; the code alone".to_owned(),
            false => told.join("; "),
        }
    }

    /// Returns true if clients find the same in both.
    pub(super) fn offers_the_same(&self, other: &Self) -> bool {
        self.tools == other.tools
            && self.states == other.states
            && self.resources == other.resources
            && self.prompts == other.prompts
            && self.completions == other.completions
    }
}

/// Most names that are told of one kind of change.
const MAX_TOLD: usize = 20;

/// Names that were added, removed or mean something else now, apart from what `strip` takes away.
fn told<T: Clone + PartialEq>(
    (before, now): (&[T], &[T]),
    name: impl Fn(&T) -> &String,
    strip: impl Fn(&mut T),
) -> String {
    let is_same = |one: &T, other: &T| {
        let (mut one, mut other) = (one.clone(), other.clone());
        strip(&mut one);
        strip(&mut other);
        one == other
    };
    let of = |all: &'_ [T], named: &str| all.iter().position(|it| name(it) == named);
    let added = now.iter().filter(|it| of(before, name(it)).is_none());
    let removed = before.iter().filter(|it| of(now, name(it)).is_none());
    let changed = now
        .iter()
        .filter(|it| of(before, name(it)).is_some_and(|at| !is_same(&before[at], it)));
    let parts = [
        ("added", added.map(&name).collect::<Vec<_>>()),
        ("removed", removed.map(&name).collect()),
        ("changed", changed.map(&name).collect()),
    ];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let parts = parts.map(|(what, names)| {
        let shown: Vec<_> = names.iter().take(MAX_TOLD).map(|it| it.as_str()).collect();
        let more = names.len() - shown.len();
        let more = if 0 < more {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!("{what} {}{more}", shown.join(", "))
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// JSON as it is written, the order of members included.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Written(pub(super) Box<RawValue>);

impl PartialEq for Written {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ToolFrame {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) input_schema: Written,
    /// `handler` or `hints`.
    #[serde(default)]
    pub(super) schema_from: String,
    #[serde(default)]
    pub(super) output_schema: Option<Written>,
    #[serde(rename = "async")]
    pub(super) is_async: bool,
    /// True if its calls may read resources of the server.
    #[serde(default)]
    pub(super) context: bool,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) annotations: AnnotationsFrame,
    #[serde(default)]
    pub(super) tags: Vec<String>,
    #[serde(default)]
    pub(super) icons: Vec<serde_json::Value>,
    #[serde(default)]
    pub(super) meta: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(super) source: Option<String>,
    /// Rules that attributes of the handler state, as the `owlclaw:` block of a skill would.
    #[serde(default)]
    pub(super) rules: Vec<serde_json::Value>,
    /// Parameter that gets all arguments as one object, unless the schema names it.
    #[serde(default)]
    pub(super) whole: Option<String>,
    /// Both names of each parameter that has an alias.
    #[serde(default)]
    pub(super) aliased: Vec<String>,
    /// Reason why it cannot be offered.
    #[serde(default)]
    pub(super) refused: Option<String>,
}

/// Hints about a tool, by their names in the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AnnotationsFrame {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

impl From<AnnotationsFrame> for Annotations {
    fn from(frame: AnnotationsFrame) -> Self {
        Self {
            read_only: frame.read_only_hint,
            destructive: frame.destructive_hint,
            idempotent: frame.idempotent_hint,
            open_world: frame.open_world_hint,
        }
    }
}

fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The provider of a state.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct StateFrame {
    pub(super) name: String,
    #[serde(rename = "async")]
    pub(super) is_async: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Fatal {
    pub(super) message: String,
    #[serde(default)]
    pub(super) traceback: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorFrame {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) exception: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) traceback: String,
    /// Of arguments that are refused: each place and what is wrong there.
    #[serde(default)]
    pub(super) violations: Vec<ViolationFrame>,
}

/// A mistake in arguments.
#[derive(Debug, Deserialize)]
pub(super) struct ViolationFrame {
    pub(super) pointer: String,
    pub(super) message: String,
}

/// A result that is blocks of content, as the `value` of its frame.
#[derive(Debug, Deserialize)]
pub(super) struct ContentValue {
    pub(super) content: Vec<Content>,
    #[serde(default)]
    pub(super) structured: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) meta: serde_json::Map<String, serde_json::Value>,
    /// True if the handler says that it has failed.
    #[serde(default)]
    pub(super) is_error: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct ProgressFrame {
    pub(super) progress: f64,
    #[serde(default)]
    pub(super) total: Option<f64>,
    #[serde(default)]
    pub(super) message: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CostFrame {
    /// Absent for tokens whose price is not known.
    #[serde(default)]
    pub(super) usd: Option<String>,
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) tokens_in: Option<u64>,
    #[serde(default)]
    pub(super) tokens_out: Option<u64>,
}

/// Trace elsewhere that has the cost of a call.
#[derive(Debug, Deserialize)]
pub(super) struct CostTraceFrame {
    pub(super) trace_id: String,
}

/// Questions of a handler to the client, by keys.
#[derive(Debug, Deserialize)]
pub(super) struct AskFrame {
    pub(super) questions: BTreeMap<String, QuestionFrame>,
}

/// A question. The members of all kinds are read at once: a tagged enum would buffer the schema, and then it loses the
/// order of its members.
#[derive(Debug, Deserialize)]
struct QuestionMembers {
    kind: QuestionKind,
    message: Option<String>,
    schema: Option<crate::FormSchema>,
    url: Option<String>,
    params: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum QuestionKind {
    Form,
    Url,
    Sample,
    Roots,
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "QuestionMembers")]
pub(super) struct QuestionFrame(Question);

impl TryFrom<QuestionMembers> for QuestionFrame {
    type Error = &'static str;

    fn try_from(members: QuestionMembers) -> Result<Self, Self::Error> {
        let message = members.message.ok_or("missing field `message`");
        Ok(Self(match members.kind {
            QuestionKind::Form => Question::Form {
                message: message?,
                schema: members.schema.ok_or("missing field `schema`")?,
            },
            QuestionKind::Url => Question::Url {
                message: message?,
                url: members.url.ok_or("missing field `url`")?,
            },
            QuestionKind::Sample => {
                Question::Sample(members.params.ok_or("missing field `params`")?)
            }
            QuestionKind::Roots => Question::Roots,
        }))
    }
}

impl From<QuestionFrame> for Question {
    fn from(frame: QuestionFrame) -> Self {
        frame.0
    }
}

/// Request of a handler for a resource of the server.
#[derive(Debug, Deserialize)]
pub(super) struct ReadFrame {
    pub(super) key: String,
    pub(super) uri: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct LogFrame {
    pub(super) level: String,
    pub(super) message: String,
    /// True for a message to the client, and not to the server's log.
    #[serde(default)]
    pub(super) to_client: bool,
    #[serde(default)]
    pub(super) logger: Option<String>,
    /// Data that goes along with the message.
    #[serde(default)]
    pub(super) extra: Option<serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn ready(tools: &[(&str, &str, u32)], prompts: &[&str]) -> Ready {
        let tool = |(name, description, line): &(&str, &str, u32)| {
            json!({
                "name": name,
                "description": description,
                "input_schema": {},
                "async": false,
                "source": format!("app.py:{line}"),
            })
        };
        let prompt = |name: &&str| json!({ "name": name, "arguments": [], "async": false });
        let frame = json!({
            "app": "shop",
            "python": "3.11.0",
            "owlclaw": "bundled",
            "tools": tools.iter().map(tool).collect::<Vec<_>>(),
            "prompts": prompts.iter().map(prompt).collect::<Vec<_>>(),
        });
        serde_json::from_str(&frame.to_string()).unwrap()
    }

    #[test]
    fn changes_are_told_by_their_names() {
        let before = ready(&[("a", "A.", 1), ("b", "B.", 5), ("c", "C.", 9)], &["p"]);
        let rows = [
            (
                ready(&[("a", "A.", 2), ("b", "B.", 6), ("c", "C.", 10)], &["p"]),
                "nothing of what is offered; the code alone",
            ),
            (
                ready(&[("b", "Other.", 5), ("c", "C.", 9), ("d", "D.", 13)], &[]),
                "tools: added d; removed a; changed b; prompts: removed p",
            ),
        ];
        for (now, told) in rows {
            assert_eq!(now.changes_since(&before), told);
        }
    }

    #[test]
    fn a_result_keeps_its_value_as_it_is_written() {
        for value in ["null", "1.0", "{\"a\": [1]}", "\"x\""] {
            let frame =
                format!("{{\"type\":\"result\",\"id\":18446744073709551615,\"value\":{value}}}");
            let head: Head<'_> = serde_json::from_str(&frame).unwrap();
            assert_eq!(
                (head.id, head.value.unwrap().get()),
                (Some(u64::MAX), value)
            );
        }
        let head: Head<'_> = serde_json::from_str("{\"type\":\"pong\"}").unwrap();
        assert!(head.value.is_none() && head.id.is_none());
    }

    #[tokio::test]
    async fn a_length_beyond_the_bound_is_an_error_before_its_bytes_are_read() {
        let mut reader = FrameReader::new(&b"\x01\x00\x00\x01"[..]);
        assert_eq!(
            reader.next().await.unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }

    proptest! {
        /// Frames are the same however the stream is cut up.
        #[test]
        fn frames_survive_any_fragmentation(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8),
            steps in prop::collection::vec(1usize..40, 1..10),
        ) {
            let mut stream = Vec::new();
            for frame in &frames {
                stream.extend_from_slice(&u32::try_from(frame.len()).unwrap().to_be_bytes());
                stream.extend_from_slice(frame);
            }
            let mut buffer = BytesMut::new();
            let mut rest = &stream[..];
            let mut seen: Vec<Vec<u8>> = Vec::new();
            for step in steps.iter().cycle() {
                let (now, later) = rest.split_at((*step).min(rest.len()));
                buffer.extend_from_slice(now);
                rest = later;
                while let Some(frame) = cut(&mut buffer).unwrap() {
                    seen.push(frame.to_vec());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(seen, frames);
        }
    }
}
