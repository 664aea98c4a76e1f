//! A call of something on offer.

pub(crate) mod answer;
pub(crate) mod call_report;
pub(crate) mod failure;
pub(crate) mod handover;
pub(crate) mod outcome;
pub(crate) mod own_resources;
pub(crate) mod quota_hints;
pub(crate) mod refusal;
pub(crate) mod verdict;

use crate::{
    filter::FilterRefusal,
    invocation::{call_report::CallReport, failure::InvocationError, handover::Handover},
    names::{prompt_capability, resource_capability, tool_capability},
    offer::{
        Offer, OfferedTool,
        prompts::PromptFailure,
        resources::ReadFailure,
        results::{Limited, READ_RESULT, ResultLimits},
        tool_source::Sought,
    },
};
use adapter_tools::{Answers, Needed, ReadResources};
use governance::{Kind, Micros};
use jsonrpc_core::RawJson;
use ledger::{Binding, Digest};
use mcp_protocol::Method;
use mcp_protocol::model::{
    APP_SCHEME, CallToolResult, Effect, GetPromptResult, ReadResource, ReadResourceResult,
};
use mcp_service::{Principal, RequestCx};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

/// A call of something on offer.
#[derive(Clone)]
pub struct Invocation {
    /// The tool, resource or prompt.
    pub target: Target,
    /// Name for policies and the ledger: `tool/NAME` or `resource/URI`.
    pub capability: Arc<str>,
    /// The arguments as they were sent.
    pub arguments: RawJson,
    /// The offer that was in force when the call came; a change of it does not touch calls under way.
    pub offer: Arc<Offer>,
    /// The tool that is called, if there is one of this name on offer: found once, for all layers.
    pub(crate) tool: Option<Arc<OfferedTool>>,
    /// Answers of the client to earlier questions.
    pub(crate) answers: Option<Arc<Answers>>,
    /// The way in which its handler reads resources of the server.
    pub(crate) reads: Option<Arc<dyn ReadResources>>,
    /// The way to become a task, where the call can.
    pub(crate) handover: Option<Arc<Handover>>,
    /// The gravest effect that the tool may have; `None`: any.
    pub(crate) at_most: Option<Effect>,
    /// False for the last round of a call that has asked too often: a question ends it.
    pub(crate) may_ask: bool,
    /// True if its caller may not know of it, whatever the rules say.
    pub(crate) is_hidden: bool,
    /// True if filters were to look at it and have not, since its caller may not make it.
    pub(crate) is_unfiltered: bool,
    /// Refusal by a filter.
    pub(crate) refused: Option<Box<FilterRefusal>>,
    /// The task it is called for, if that is there already.
    pub(crate) task: Option<Arc<str>>,
    /// True if the call was begun before, by a process that has not ended it. Under an idempotency key
    /// it is the same call, whose end is unknown.
    pub(crate) is_rerun: bool,
    /// Report on the call, written on its way through the layers.
    pub(crate) report: Arc<CallReport>,
}

/// Target of a call.
#[derive(Clone, Debug)]
pub enum Target {
    /// A tool, by name.
    Tool(Arc<str>),
    /// A resource.
    Resource(Box<ReadResource>),
    /// A prompt, by name, with its arguments.
    Prompt(String, BTreeMap<String, String>),
}

/// Result of a call.
#[derive(Clone, Debug)]
pub enum Invoked {
    /// A tool has answered.
    Tool(CallToolResult),
    /// A resource was read.
    Resource(ReadResourceResult),
    /// A prompt was filled in.
    Prompt(GetPromptResult),
    /// The handler needs answers of the client; nothing else has come of the call.
    NeedsInput(Needed),
    /// The client's user has to confirm the call first; it has not begun.
    NeedsConfirmation(Needed),
}

impl std::fmt::Debug for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invocation")
            .field("target", &self.target)
            .field("capability", &self.capability)
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}

impl Invocation {
    /// A call of the tool `name`.
    pub fn tool(offer: Arc<Offer>, name: &str, arguments: RawJson) -> Self {
        let tool = offer.offered(name).cloned();
        let (name, capability) = match &tool {
            Some(tool) => (Arc::clone(&tool.name), Arc::clone(&tool.capability)),
            None => (name.into(), tool_capability(name).into()),
        };
        Self {
            capability,
            tool,
            target: Target::Tool(name),
            arguments,
            offer,
            answers: None,
            reads: None,
            handover: None,
            at_most: None,
            may_ask: true,
            is_hidden: false,
            is_unfiltered: false,
            refused: None,
            task: None,
            is_rerun: false,
            report: Arc::default(),
        }
    }

    /// A read of a resource.
    pub fn resource(offer: Arc<Offer>, read: ReadResource, arguments: RawJson) -> Self {
        // Every spelling of a URI is governed and recorded as the one that lists have for it, and a
        // part of something, such as a file of a skill, as what it is a part of.
        let capability = offer.resources().governed_by(&read.uri).map_or_else(
            || resource_capability(&read.uri),
            |uri| resource_capability(&uri),
        );
        Self {
            capability: capability.into(),
            tool: None,
            target: Target::Resource(Box::new(read)),
            arguments,
            offer,
            answers: None,
            reads: None,
            handover: None,
            at_most: None,
            may_ask: true,
            is_hidden: false,
            is_unfiltered: false,
            refused: None,
            task: None,
            is_rerun: false,
            report: Arc::default(),
        }
    }

    /// A prompt to be filled in.
    pub fn prompt(
        offer: Arc<Offer>,
        name: String,
        arguments: BTreeMap<String, String>,
        as_sent: RawJson,
    ) -> Self {
        // Every version of a prompt is governed and recorded as the prompt.
        let capability = match offer.prompts().governed_by(&name) {
            Some(entry) => prompt_capability(&entry),
            None => prompt_capability(&name),
        };
        Self {
            capability: capability.into(),
            tool: None,
            target: Target::Prompt(name, arguments),
            arguments: as_sent,
            offer,
            answers: None,
            reads: None,
            handover: None,
            at_most: None,
            may_ask: true,
            is_hidden: false,
            is_unfiltered: false,
            refused: None,
            task: None,
            is_rerun: false,
            report: Arc::default(),
        }
    }

    /// The kind of limits of a principal that the call counts against.
    pub fn kind(&self) -> Kind {
        match self.target {
            Target::Tool(_) => Kind::Tool,
            // Both are read, and neither does anything.
            Target::Resource(_) | Target::Prompt(..) => Kind::Resource,
        }
    }

    /// True if the target exists at all.
    pub fn exists(&self) -> bool {
        match &self.target {
            Target::Tool(_) => self.tool.is_some(),
            Target::Resource(read) => self.offer.resources().canonical(&read.uri).is_some(),
            Target::Prompt(name, _) => self.offer.prompts().governed_by(name).is_some(),
        }
    }

    /// Error for a target that does not exist, where nobody can say yet whether it does.
    pub(crate) fn absent(&self) -> Option<InvocationError> {
        let (offer, sought) = match &self.target {
            Target::Tool(name) => (&self.offer, Sought::Tool(name)),
            Target::Resource(read) => (&self.offer, Sought::Resource(&read.uri)),
            Target::Prompt(name, _) => (&self.offer, Sought::Prompt(name)),
        };
        let error = offer.absent(sought)?;
        Some(match &self.target {
            Target::Tool(_) => InvocationError::Tool(error),
            Target::Resource(_) => InvocationError::Read(ReadFailure::Unreadable(error.into())),
            Target::Prompt(..) => InvocationError::Prompt(PromptFailure::Broken(error.into())),
        })
    }

    /// The tool's own estimate of the call's cost.
    pub fn estimate(&self) -> Option<Micros> {
        let tool = &self.tool.as_ref()?.tool;
        tool.estimated_cost_micros().map(Micros)
    }

    /// The limit of its result, if there is one.
    pub(crate) fn limited_by(&self, cx: &RequestCx, results: &ResultLimits) -> Option<Limited> {
        let offered = self.tool.as_ref()?;
        results.of_call(cx, &offered.tool, &offered.name, &offered.capability)
    }

    /// The capability of the call whose result it reads, if that is kept for its caller.
    pub(crate) fn source(&self, principal: &Principal) -> Option<Arc<str>> {
        let results = self.offer.results()?;
        match &self.target {
            Target::Resource(read) => results.source(principal, &read.uri),
            Target::Tool(name) if **name == *READ_RESULT => {
                let arguments: Value = self.arguments.parse().ok()?;
                results.source(principal, arguments["uri"].as_str()?)
            }
            Target::Tool(_) | Target::Prompt(..) => None,
        }
    }

    /// The task that it is, if it is one by now.
    pub(crate) fn task(&self) -> Option<&str> {
        let handover = self.handover.as_deref();
        self.task.as_deref().or_else(|| handover?.task())
    }

    /// A digest of what is called, as it is defined now; of tools and prompts.
    pub fn definition(&self) -> Option<Digest> {
        match &self.target {
            Target::Prompt(name, _) => self.offer.prompts().definition(name),
            Target::Tool(_) | Target::Resource(_) => self.tool.as_ref().map(|it| it.definition),
        }
    }

    /// The same for the record: the digest of an approved definition, where that is not what is listed; of pages of apps, too.
    pub(crate) fn recorded_definition(&self) -> Option<Digest> {
        match &self.target {
            Target::Tool(_) => self.tool.as_ref().map(|it| it.recorded_definition),
            Target::Prompt(name, _) => self.offer.prompts().definition(name),
            Target::Resource(read) if read.uri.starts_with(APP_SCHEME) => {
                self.offer.resources().definition(&read.uri)
            }
            Target::Resource(_) => None,
        }
    }

    /// A digest of all that an approval of this call is for.
    pub fn binding(&self, principal: &str, policy_version: u64) -> Digest {
        let binding = Binding {
            principal,
            capability: &self.capability,
            definition: self.definition().unwrap_or_default(),
            arguments: self.arguments_digest(),
            policy_version,
        };
        binding.digest()
    }

    /// The arguments as what is called gets them: without nulls that count as members left out, so that no
    /// null makes a difference to a rule that it does not make to a handler.
    pub fn arguments_taken(&self) -> Cow<'_, str> {
        let sent = self.arguments.as_str();
        let tool = self.tool.as_ref();
        match tool.and_then(|it| it.tool.without_nulls(sent)) {
            Some(taken) => Cow::Owned(taken),
            None => Cow::Borrowed(sent),
        }
    }

    /// A digest of what the arguments say, however they are written.
    pub fn arguments_digest(&self) -> Digest {
        redaction::digest(self.arguments.as_str())
    }

    /// The way in which it was made, for the record, if that is another than by its own name.
    pub(crate) fn via(&self) -> Option<&'static str> {
        self.at_most.map(|_| "search")
    }

    /// The JSON-RPC method that asks for it.
    pub fn method(&self) -> Method {
        match self.target {
            Target::Tool(_) => Method::CallTool,
            Target::Resource(_) => Method::ReadResource,
            Target::Prompt(..) => Method::GetPrompt,
        }
    }
}
