//! Limits of results: what a client is shown of one that is too long, and the rest, which it can read.

mod excerpt;
pub(crate) mod kept;
mod read_tool;
pub(crate) mod tokens;

use crate::{
    Clock,
    offer::{
        resources::Resources,
        results::{
            excerpt::{Document, Excerpt, Room},
            kept::{Kept, KeptResult, NotKept, Saved},
        },
        tool_source::{SourceTools, ToolSource},
    },
    system_clock,
};
use adapter_skills::SkillCatalog;
use adapter_tools::{Tool, ToolError};
use governance::{PatternError, PatternSet};
use jsonrpc_core::RawJson;
use ledger::Cut;
use mcp_protocol::{
    ProtocolVersion,
    model::{CallToolResult, Content, Resource, ResultMeta},
};
use mcp_service::{Principal, RequestCx};
use redaction::Redactor;
use serde_json::json;
use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

pub(crate) use read_tool::READ_RESULT;

/// Member of the `_meta` of a result that was shortened.
const META_KEY: &str = "io.owlclaw/result";

/// Limits of results, and the results that exceeded them.
#[derive(Debug)]
pub struct ResultLimits {
    rules: Vec<Rule>,
    kept: Arc<Kept>,
    tool: Tool,
}

/// Settings of [`ResultLimits`].
#[derive(Clone, Debug)]
pub struct ResultOptions {
    /// Rules. All that fit a call hold: the smallest number of each kind.
    pub rules: Vec<ResultRule>,
    /// Time for which a result is kept.
    pub keep: Duration,
    /// The most bytes of all results that are kept, and of those of one client. The oldest make room.
    pub max_bytes: u64,
    /// See [`max_bytes`](Self::max_bytes).
    pub max_bytes_per_client: u64,
    /// The longest result that is kept in memory; longer ones are files.
    pub memory_bytes: usize,
    /// The directory of the files, for this server alone: files of an earlier one are removed. `None`: all results are
    /// in memory.
    pub directory: Option<PathBuf>,
    /// Tells the time.
    pub clock: Clock,
}

impl Default for ResultOptions {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            keep: Duration::from_secs(60 * 60),
            max_bytes: 256 << 20,
            max_bytes_per_client: 64 << 20,
            memory_bytes: 64 << 10,
            directory: None,
            clock: system_clock,
        }
    }
}

/// A limit for results of some tools that some clients get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultRule {
    /// Names of clients, as patterns. Without any, and without roles: all clients.
    pub clients: Vec<String>,
    /// Roles whose clients are meant.
    pub roles: Vec<String>,
    /// Names of tools, as patterns. Without any: all tools.
    pub tools: Vec<String>,
    /// Names of tools that are not meant, as patterns.
    pub except: Vec<String>,
    /// The limit.
    pub limit: ResultLimit,
}

/// A limit of what a client is shown of a result: of its content, and of its structured content likewise, since hosts
/// show a model one of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultLimit {
    /// The most characters; no fewer than [`LEAST_CHARACTERS`](Self::LEAST_CHARACTERS) count.
    pub characters: Option<usize>,
    /// The most [estimated tokens](crate::estimated_tokens); no fewer than [`LEAST_TOKENS`](Self::LEAST_TOKENS) count.
    pub tokens: Option<usize>,
    /// Leave out structured content that is too long even if its tool promises structured content by an output schema.
    pub breaks_schema: bool,
}

impl ResultLimit {
    /// The fewest characters that a limit can be: the note about the rest needs some.
    pub const LEAST_CHARACTERS: usize = 1_000;
    /// The fewest tokens.
    pub const LEAST_TOKENS: usize = 300;

    /// Both limits, the smaller number of each kind.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let least = |a: Option<usize>, b: Option<usize>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            characters: least(self.characters, other.characters),
            tokens: least(self.tokens, other.tokens),
            breaks_schema: self.breaks_schema || other.breaks_schema,
        }
    }
}

#[derive(Debug)]
struct Rule {
    clients: PatternSet,
    roles: BTreeSet<String>,
    is_for_all: bool,
    tools: Option<PatternSet>,
    except: PatternSet,
    limit: ResultLimit,
}

impl Rule {
    fn new(rule: &ResultRule) -> Result<Self, PatternError> {
        Ok(Self {
            clients: PatternSet::new(&rule.clients)?,
            roles: rule.roles.iter().cloned().collect(),
            is_for_all: rule.clients.is_empty() && rule.roles.is_empty(),
            tools: match rule.tools.is_empty() {
                true => None,
                false => Some(PatternSet::new(&rule.tools)?),
            },
            except: PatternSet::new(&rule.except)?,
            limit: ResultLimit {
                characters: rule
                    .limit
                    .characters
                    .map(|it| it.max(ResultLimit::LEAST_CHARACTERS)),
                tokens: rule
                    .limit
                    .tokens
                    .map(|it| it.max(ResultLimit::LEAST_TOKENS)),
                ..rule.limit
            },
        })
    }

    fn fits(&self, principal: &Principal, tool: &str) -> bool {
        let mut roles = principal.roles().iter();
        let is_for = self.is_for_all
            || self.clients.matches(principal.as_str())
            || roles.any(|role| self.roles.contains(&**role));
        let is_about = self.tools.as_ref().is_none_or(|tools| tools.matches(tool));
        is_for && is_about && !self.except.matches(tool)
    }
}

/// A call whose result has a limit.
#[derive(Clone, Debug)]
pub(crate) struct Limited {
    limit: ResultLimit,
    tool: Arc<str>,
    capability: Arc<str>,
    has_schema: bool,
}

impl ResultLimits {
    /// The limits with these settings; `None` if there is no rule. Makes the directory if it is missing, and removes what
    /// an earlier server has left in it.
    ///
    /// # Errors
    ///
    /// [`BadResultLimits`].
    pub fn open(options: ResultOptions) -> Result<Option<Arc<Self>>, BadResultLimits> {
        if options.rules.is_empty() {
            return Ok(None);
        }
        let rules = options.rules.iter().map(Rule::new);
        let rules = rules.collect::<Result<_, _>>()?;
        let kept = Arc::new(Kept::open(options)?);
        Ok(Some(Arc::new(Self {
            rules,
            tool: read_tool::tool(&kept),
            kept,
        })))
    }

    /// The limit of results of `tool` for a client, if there is one.
    pub fn limit(&self, principal: &Principal, tool: &str) -> Option<ResultLimit> {
        let rules = self.rules.iter().filter(|it| it.fits(principal, tool));
        let limits = rules.map(|it| it.limit);
        let limit = limits.reduce(ResultLimit::and)?;
        (limit.characters.is_some() || limit.tokens.is_some()).then_some(limit)
    }

    /// The capability whose result is kept at `uri` for a client.
    pub(crate) fn source(&self, principal: &Principal, uri: &str) -> Option<Arc<str>> {
        let kept = self.kept.find(principal.as_str(), uri)?;
        Some(Arc::clone(&kept.capability))
    }

    /// The call of a tool, if its result has a limit.
    pub(crate) fn of_call(
        &self,
        cx: &RequestCx,
        tool: &Tool,
        name: &Arc<str>,
        capability: &Arc<str>,
    ) -> Option<Limited> {
        Some(Limited {
            limit: self.limit(&cx.principal, name)?,
            tool: Arc::clone(name),
            capability: Arc::clone(capability),
            has_schema: tool.output_schema().is_some(),
        })
    }

    /// A result as its client is shown it, and what is to be put on record of the whole if that is more.
    pub(crate) async fn shorten(
        &self,
        cx: &RequestCx,
        call: &Limited,
        redactor: &Arc<Redactor>,
        result: CallToolResult,
    ) -> (CallToolResult, Option<Cut>) {
        let room = Room::of(call.limit);
        let structured = result.structured_content.as_ref().map(RawJson::as_str);
        let omits_structured = structured.is_some_and(|it| !room.holds(it))
            && (!call.has_schema || call.limit.breaks_schema);
        let sizes = result
            .meta
            .iter()
            .map(|(name, value)| name.len() + value.as_str().len());
        let omits_meta = !room.surely_holds(sizes.sum());
        if !omits_structured && !omits_meta && room.holds_all(&result.content) {
            return (result, None);
        }
        if *call.tool == *READ_RESULT
            && let Some(part) = read_tool::shortened(&result, room)
        {
            return (part, None);
        }
        // Before anything is cut: a part of a secret is not found by its value, and the rest can be read in small parts.
        let result = excerpt::without_known(result);
        let keeps_structured = result
            .structured_content
            .clone()
            .filter(|_| !omits_structured);
        let is_error = result.is_error;
        let meta = match omits_meta {
            true => ResultMeta::default(),
            false => result.meta.clone(),
        };
        let excerpt = Excerpt::of(&result.content, room.without_note());
        let document = Document::of(result);
        let offset = document.offset_of(&excerpt);
        let (saved, document_bytes) = self.keep(cx, call, redactor, document).await;
        let note = Note {
            excerpt: &excerpt,
            omits_structured,
            bytes: document_bytes,
            offset,
            kept: saved.kept.as_deref(),
            keep: self.kept.keep(),
        };
        let text = note.text(saved.why_not.as_ref());
        let mut shown = CallToolResult {
            content: excerpt.content,
            structured_content: keeps_structured,
            is_error,
            meta,
        };
        shown.content.push(Content::text(text));
        if let Some(kept) = &saved.kept {
            shown.meta.insert(
                META_KEY,
                &json!({
                    "uri": kept.uri(),
                    "bytes": document_bytes,
                    "sha256": saved.sha256,
                    "expires": crate::clock::rfc3339_millis(kept.expires_us),
                }),
            );
            if ProtocolVersion::V2025_06_18 <= cx.version {
                shown.content.push(Content::ResourceLink(Box::new(Resource {
                    uri: kept.uri(),
                    name: excerpt::LINK_NAME.to_owned(),
                    mime_type: Some(kept.mime_type.to_owned()),
                    size: Some(document_bytes),
                    ..Resource::default()
                })));
            }
        }
        let whole = Cut {
            whole_bytes: document_bytes,
            digest: saved.digest,
        };
        (shown, Some(whole))
    }

    /// The words of a failure as its client is shown them. What is left out is kept, too.
    pub(crate) async fn shorten_failure(
        &self,
        cx: &RequestCx,
        call: &Limited,
        redactor: &Arc<Redactor>,
        mut error: ToolError,
    ) -> (ToolError, Option<Cut>) {
        let room = Room::of(call.limit);
        if let ToolError::Failed(failure) = &mut error
            && let Some(details) = &failure.details
            && !room.holds(&details.to_string())
        {
            // It is in no text that hosts show; the message says what a model needs.
            failure.details = Some(json!({ "shortened": true }));
        }
        let message = match &mut error {
            ToolError::Failed(failure) => {
                if failure.details.is_none() && !room.holds(&failure.message) {
                    // The message would stand in their place once more.
                    failure.details = Some(json!({ "shortened": true }));
                }
                &mut failure.message
            }
            ToolError::Crashed { message, .. }
            | ToolError::Unavailable { message, .. }
            | ToolError::Lost { message, .. } => message,
            // Violations of a schema are of bounded length.
            _ => return (error, None),
        };
        if room.holds(message) {
            return (error, None);
        }
        let said = CallToolResult {
            content: vec![Content::text(std::mem::take(message))],
            is_error: true,
            ..CallToolResult::default()
        };
        let (shown, whole) = self.shorten(cx, call, redactor, said).await;
        let texts = shown.content.into_iter().filter_map(|it| match it {
            Content::Text { text, .. } => Some(text),
            _ => None,
        });
        *message = texts.collect::<Vec<_>>().join("\n");
        (error, whole)
    }

    async fn keep(
        &self,
        cx: &RequestCx,
        call: &Limited,
        redactor: &Arc<Redactor>,
        document: Document,
    ) -> (Saved, u64) {
        let bytes = document.text.len() as u64;
        let principal = Arc::clone(cx.principal.name());
        let kept = Arc::clone(&self.kept);
        let of = (Arc::clone(&call.capability), call.limit);
        let saved = kept.save(principal, of, document, redactor);
        let saved = saved.await;
        if let Some(NotKept::Unwritable(error)) = &saved.why_not {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                tool = &*call.tool,
                "a result that was shortened could not be kept"
            );
        }
        (saved, bytes)
    }
}

/// Results that are kept, and the tool that reads them.
impl ToolSource for ResultLimits {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        vec![self.tool.clone()].into()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(kept::KeptResources(Arc::clone(&self.kept))))
    }
}

/// Reason why limits of results cannot be in force.
#[derive(Debug, thiserror::Error)]
pub enum BadResultLimits {
    /// A pattern that is none.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A directory that cannot be used.
    #[error("{} cannot be used for results", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
}

/// Words for a model about what it is not shown.
struct Note<'a> {
    excerpt: &'a Excerpt,
    omits_structured: bool,
    bytes: u64,
    offset: u64,
    kept: Option<&'a KeptResult>,
    keep: Duration,
}

impl Note<'_> {
    fn text(&self, why_not: Option<&NotKept>) -> String {
        let Excerpt { shown, of, cut, .. } = self.excerpt;
        let bytes = self.bytes;
        let shown = match (of, cut) {
            (1, Some(cut)) => format!("the first {cut} of {bytes} bytes of this result are above"),
            (_, Some(_)) => format!(
                "{shown} of {of} items of this result are above, and the beginning of the next"
            ),
            (_, None) => format!("{shown} of {of} items of this result are above"),
        };
        let structured = match self.omits_structured {
            true => ", without its structured content",
            false => "",
        };
        let rest = match (self.kept, why_not) {
            (Some(kept), _) => format!(
                r#"Read on with the tool {READ_RESULT}: {{"uri":"{}","offset":{}}}. It has {bytes} bytes and is kept for {} minutes."#,
                kept.uri(),
                self.offset,
                self.keep.as_secs().div_ceil(60),
            ),
            (None, Some(why)) => format!("The rest was not kept: {why}."),
            (None, None) => "The rest was not kept.".to_owned(),
        };
        format!(
            "[Shortened: {shown}{structured}. The call was carried out: do not repeat it to see the rest. {rest}]"
        )
    }
}
