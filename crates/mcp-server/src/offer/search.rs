//! The search view: a few tools by which a client finds and calls all others.
//!
//! A call through `call_tool_read`, `call_tool_write` or `call_tool_destructive` is rewritten to the call of the tool
//! that it names before anything else looks at it ([`SearchView::unwrap`]). What is left of the way it came is
//! [`CallTool::at_most`], the gravest effect that the tool may have.

mod index;
mod signature;
mod words;

use crate::{
    names::tool_capability,
    offer::tool_listing::{Described, IncludeSkill},
};
use adapter_skills::SkillCatalog;
use adapter_tools::{Annotations, Arguments, Executor, Tool, ToolCx, ToolError, ToolOutput};
use futures_util::{FutureExt, future::BoxFuture};
use governance::{Caller, Kind, PatternError, PatternSet, Policy, Risk, ViewId};
use index::{Document, Index};
use jsonrpc_core::RawJson;
use mcp_protocol::model::{CallTool, Effect};
use mcp_service::Principal;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Tools of an answer if its client does not say how many.
pub(crate) const DEFAULT_RESULTS: usize = 8;
/// The most tools of an answer.
pub(crate) const MAX_RESULTS: usize = 25;
/// The most tools that are described at once.
const MAX_DESCRIBED: usize = 5;
/// The most characters of a query.
const MAX_QUERY: usize = 1_000;

/// The most views of callers that are kept, and of sets of tools that they see.
const MAX_VIEWS: usize = 4_096;
const MAX_INDICES: usize = 64;

/// Weights of a word, by its place.
const IN_NAME: f32 = 3.0;
const IN_TITLE: f32 = 2.0;
const IN_DESCRIPTION: f32 = 1.0;
const IN_SKILL: f32 = 1.5;
const IN_PARAMETER: f32 = 0.7;
const IN_PARAMETER_DESCRIPTION: f32 = 0.3;

/// Levels of nested parameters that are searched.
const MAX_DEPTH: usize = 3;

pub(crate) const SEARCH: &str = "search_tools";
pub(crate) const DESCRIBE: &str = "describe_tools";

/// The tool of the search view that calls others up to this effect.
pub(crate) const fn caller_for(effect: Effect) -> &'static str {
    match effect {
        Effect::Read => "call_tool_read",
        Effect::Write => "call_tool_write",
        Effect::Destructive => "call_tool_destructive",
    }
}

const EFFECTS: [Effect; 3] = [Effect::Read, Effect::Write, Effect::Destructive];

/// The effect of a tool as far as it is known: `risk` is that of the rules, and annotations are the tool's own or
/// those of an upstream that is trusted. A tool of which nothing is known may do anything, as the protocol has it.
pub(crate) fn effect_of(tool: &Tool, risk: Risk) -> Effect {
    let says = tool.annotations();
    let reads = says.read_only == Some(true) || (risk.read_only && says.read_only.is_none());
    let destroys = says.destructive == Some(true);
    if reads && !destroys && !risk.is_mutating() {
        Effect::Read
    } else if says.destructive == Some(false) && !risk.financial {
        Effect::Write
    } else {
        Effect::Destructive
    }
}

/// Clients that are shown the search view, and what they are shown besides.
#[derive(Clone, Debug)]
pub struct SearchView {
    clients: PatternSet,
    roles: BTreeSet<String>,
    direct: PatternSet,
    tools: Vec<Tool>,
    described: Vec<Described>,
}

/// Settings of a [`SearchView`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchOptions {
    /// Names of the clients that have it, as patterns.
    pub clients: Vec<String>,
    /// Roles whose clients have it.
    pub roles: Vec<String>,
    /// Names of the tools that are listed besides, as patterns.
    pub direct: Vec<String>,
}

impl SearchView {
    /// The view with these settings; `None` if no client has it.
    ///
    /// # Errors
    ///
    /// [`PatternError`], if a pattern is empty.
    pub fn new(options: &SearchOptions) -> Result<Option<Self>, PatternError> {
        if options.clients.is_empty() && options.roles.is_empty() {
            return Ok(None);
        }
        let tools = own_tools();
        let described = tools
            .iter()
            .map(|tool| Described::new(tool, None, IncludeSkill::None, Duration::ZERO));
        Ok(Some(Self {
            clients: PatternSet::new(&options.clients)?,
            roles: options.roles.iter().cloned().collect(),
            direct: PatternSet::new(&options.direct)?,
            described: described.collect(),
            tools,
        }))
    }

    /// The parts of the view's own tools that hosts put before a model.
    pub fn model_texts(&self) -> impl Iterator<Item = String> {
        self.described.iter().map(Described::model_text)
    }

    /// Tests if a client has this view.
    pub fn is_for(&self, principal: &Principal) -> bool {
        self.clients.matches(principal.as_str())
            || principal
                .roles()
                .iter()
                .any(|role| self.roles.contains(&**role))
    }

    /// Tests if a tool is listed besides the view's own.
    pub fn lists(&self, tool: &str) -> bool {
        self.direct.matches(tool) && self.own(tool).is_none()
    }

    /// The tool of the view of this name.
    pub(crate) fn own(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|it| it.name() == name)
    }

    /// The tools of the view, as they are listed.
    pub(crate) fn listed(&self) -> impl ExactSizeIterator<Item = &Described> {
        self.described.iter()
    }

    /// A call through a tool of the view as the call that it makes. Any other stays as it is; one that cannot be
    /// understood keeps no more of its arguments than what says why: they may hold secrets that only the tool they were
    /// meant for has rules for.
    pub(crate) fn unwrap(&self, principal: &Principal, call: &mut CallTool) {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wrapped<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow, default)]
            arguments: Option<&'a RawValue>,
        }
        let Some(effect) = EFFECTS.into_iter().find(|it| caller_for(*it) == call.name) else {
            return;
        };
        if !self.is_for(principal) {
            return;
        }
        let wrapped = call.arguments.parse::<Wrapped<'_>>().ok();
        let wrapped = wrapped.and_then(|it| {
            let arguments = match it.arguments {
                None => RawJson::EMPTY_OBJECT,
                Some(raw) if raw.get().starts_with('{') => call.arguments.child(raw),
                Some(_) => return None,
            };
            Some((it.name.into_owned(), arguments))
        });
        match wrapped {
            Some((name, arguments)) => {
                call.name = name;
                call.arguments = arguments;
                call.at_most = Some(effect);
            }
            None => call.arguments = misunderstood(&call.arguments),
        }
    }
}

/// The names of the members that arguments have, with values of the same kinds that say nothing, but for the name of the
/// tool that was meant.
fn misunderstood(arguments: &RawJson) -> RawJson {
    let Ok(Value::Object(mut members)) = arguments.parse() else {
        return RawJson::EMPTY_OBJECT;
    };
    for (name, value) in &mut members {
        *value = match value {
            Value::String(tool) if name == "name" => Value::String(std::mem::take(tool)),
            Value::String(_) => json!("…"),
            Value::Number(_) => json!(0),
            Value::Array(_) => json!([]),
            Value::Object(_) => json!({}),
            Value::Bool(_) | Value::Null => Value::Null,
        };
    }
    RawJson::from_serialized(Value::Object(members).to_string().into_bytes())
}

/// Carries nothing out: the calls of the view's own tools are answered, or rewritten, by the server.
struct Never;

impl Executor for Never {
    fn execute<'a>(
        &'a self,
        _: ToolCx,
        _: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async {
            Err(ToolError::broken(
                "a tool of the search view has no executor",
            ))
        }
        .boxed()
    }
}

fn own_tools() -> Vec<Tool> {
    let reads = Annotations {
        read_only: Some(true),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(false),
    };
    let search = Tool::new(
        SEARCH,
        json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_QUERY,
                    "description": "Words for what is to be done, or the name of a tool.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_RESULTS,
                    "description": format!("The most tools in the answer; {DEFAULT_RESULTS} unless given."),
                },
            },
            "required": ["query"],
            "additionalProperties": false,
        }),
        Never,
    )
    .describe(
        "Finds tools of this server that are not listed. Answers one line for each, best first: name(arguments) \
         [effect] - description. Call one by call_tool_read, call_tool_write or call_tool_destructive, as its \
         effect says; describe_tools tells all of its arguments where the line has `…`.",
    )
    .with_annotations(reads);
    let describe = Tool::new(
        DESCRIBE,
        json!({
            "type": "object",
            "properties": {
                "names": {
                    "type": "array",
                    "items": { "type": "string" },
                    "minItems": 1,
                    "maxItems": MAX_DESCRIBED,
                    "description": "Names as search_tools has them.",
                },
            },
            "required": ["names"],
            "additionalProperties": false,
        }),
        Never,
    )
    .describe("Tells the whole descriptions and the schemas of the arguments of tools that search_tools has found.")
    .with_annotations(reads);
    let mut tools = vec![search, describe];
    tools.extend(EFFECTS.map(|effect| {
        let (what, annotations) = match effect {
            Effect::Read => (
                "changes nothing",
                Annotations {
                    open_world: Some(true),
                    idempotent: None,
                    ..reads
                },
            ),
            Effect::Write => (
                "destroys nothing",
                Annotations {
                    read_only: Some(false),
                    destructive: Some(false),
                    idempotent: None,
                    open_world: Some(true),
                },
            ),
            Effect::Destructive => (
                "may change or destroy anything",
                Annotations {
                    read_only: Some(false),
                    destructive: Some(true),
                    idempotent: None,
                    open_world: Some(true),
                },
            ),
        };
        Tool::new(
            caller_for(effect),
            json!({
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "Name of the tool." },
                    "arguments": { "type": "object", "description": "Arguments of the tool." },
                },
                "required": ["name"],
                "additionalProperties": false,
            }),
            Never,
        )
        .describe(format!(
            "Calls a tool that {what}, with its own arguments, and answers what it answers."
        ))
        .with_annotations(annotations)
    }));
    tools
}

/// The tools of an offer, to be searched by those who have the view.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) view: Arc<SearchView>,
    documents: Vec<Document>,
    /// Name and arguments of each tool in one line, and its first sentence.
    lines: Vec<(String, String)>,
    /// Tools that are for pages of apps alone, by their places.
    of_pages: Vec<bool>,
    seen: Mutex<Seen>,
}

/// The part of the offer that callers see, indexed. Nothing of what a caller does not see is in its index, so that
/// neither the order of an answer nor its time tells of it.
#[derive(Debug, Default)]
struct Seen {
    policy_version: u64,
    by_view: HashMap<ViewId, Arc<Part>>,
    by_tools: HashMap<Arc<[u32]>, Arc<Part>>,
}

#[derive(Debug)]
struct Part {
    tools: Arc<[u32]>,
    index: Index,
}

impl Search {
    pub(crate) fn new(
        view: Arc<SearchView>,
        tools: &[(&Tool, &Described)],
        skills: Option<&SkillCatalog>,
    ) -> Self {
        let documents = tools
            .iter()
            .map(|(tool, described)| document(tool, described, skills));
        let lines = tools.iter().map(|(tool, described)| {
            let arguments = signature::arguments(tool.input_schema());
            let sentence = signature::first_sentence(described.description());
            (format!("{}{arguments}", tool.name()), sentence)
        });
        Self {
            documents: documents.collect(),
            lines: lines.collect(),
            of_pages: tools.iter().map(|(_, it)| !it.is_for_model()).collect(),
            seen: Mutex::default(),
            view,
        }
    }

    /// The places of the tools that `caller` sees and that fit, best first; and how many fit.
    pub(crate) fn find<'t>(
        &self,
        caller: Caller<'_>,
        policy: &Policy,
        names: impl Iterator<Item = &'t str>,
        query: &str,
        most: usize,
    ) -> (Vec<usize>, usize) {
        let part = self.part(caller, policy, names);
        let (found, matching) = part.index.find(query, most);
        let places = found
            .into_iter()
            .map(|number| part.tools[number as usize] as usize);
        (places.collect(), matching)
    }

    /// One line about a tool.
    pub(crate) fn line(&self, place: usize, effect: Effect) -> String {
        let (head, sentence) = &self.lines[place];
        let effect = effect_name(effect);
        match sentence.is_empty() {
            true => format!("{head} [{effect}]"),
            false => format!("{head} [{effect}] - {sentence}"),
        }
    }

    fn part<'t>(
        &self,
        caller: Caller<'_>,
        policy: &Policy,
        names: impl Iterator<Item = &'t str>,
    ) -> Arc<Part> {
        let view = policy.view_of(caller);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.policy_version != policy.version() {
            *seen = Seen {
                policy_version: policy.version(),
                ..Seen::default()
            };
        }
        if let Some(part) = seen.by_view.get(&view) {
            return Arc::clone(part);
        }
        let tools: Arc<[u32]> = (0..)
            .zip(names)
            .filter(|(_, name)| policy.visible(caller, &tool_capability(name)))
            .map(|(place, _)| place)
            .filter(|place| !self.of_pages[*place as usize])
            .collect();
        let part = match seen.by_tools.get(&tools) {
            Some(part) => Arc::clone(part),
            None => {
                let index = Index::new(tools.iter().map(|place| &self.documents[*place as usize]));
                if MAX_INDICES <= seen.by_tools.len() {
                    seen.by_tools.clear();
                    seen.by_view.clear();
                }
                let part = Arc::new(Part {
                    tools: Arc::clone(&tools),
                    index,
                });
                seen.by_tools.insert(tools, Arc::clone(&part));
                part
            }
        };
        if MAX_VIEWS <= seen.by_view.len() {
            seen.by_view.clear();
        }
        seen.by_view.insert(view, Arc::clone(&part));
        part
    }
}

/// The effect of a tool under a policy, for a caller.
pub(crate) fn effect_for(tool: &Tool, caller: Caller<'_>, policy: &Policy) -> Effect {
    let capability = tool_capability(tool.name());
    effect_of(tool, policy.hints(caller, &capability, Kind::Tool).risk)
}

/// The word for an effect in answers.
pub(crate) const fn effect_name(effect: Effect) -> &'static str {
    match effect {
        Effect::Read => "read",
        Effect::Write => "write",
        Effect::Destructive => "destructive",
    }
}

fn document(tool: &Tool, described: &Described, skills: Option<&SkillCatalog>) -> Document {
    let mut document = Document::new(tool.name());
    document.add(tool.name(), IN_NAME);
    document.add(tool.title().unwrap_or_default(), IN_TITLE);
    // Without its skill, of which only a part may be in the description.
    match tool.description() {
        "" => document.add(described.description(), IN_DESCRIPTION),
        own => document.add(own, IN_DESCRIPTION),
    }
    if let Some(skill) = skills.and_then(|skills| skills.by_name(tool.own_name())) {
        document.add(skill.description(), IN_SKILL);
        document.add(skill.title().unwrap_or_default(), IN_SKILL);
        let owlclaw = &skill.frontmatter().owlclaw;
        document.add(owlclaw.trigger.as_deref().unwrap_or_default(), IN_SKILL);
        for text in skill.tags().iter().chain(&owlclaw.focus) {
            document.add(text, IN_SKILL);
        }
    }
    parameters(tool.input_schema(), MAX_DEPTH, &mut document);
    document
}

fn parameters(schema: &Value, depth: usize, document: &mut Document) {
    let Some(properties) = schema
        .get("properties")
        .and_then(Value::as_object)
        .filter(|_| 0 < depth)
    else {
        return;
    };
    for (name, schema) in properties {
        document.add(name, IN_PARAMETER);
        let description = schema.get("description").and_then(Value::as_str);
        document.add(description.unwrap_or_default(), IN_PARAMETER_DESCRIPTION);
        parameters(schema, depth - 1, document);
        if let Some(items) = schema.get("items") {
            parameters(items, depth - 1, document);
        }
    }
}
