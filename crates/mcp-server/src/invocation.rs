pub(crate) mod answer;
pub(crate) mod call_report;
pub(crate) mod failure;
pub(crate) mod handover;
pub(crate) mod outcome;
pub(crate) mod quota_hints;
pub(crate) mod refusal;
pub(crate) mod verdict;

use crate::names::{prompt_capability, resource_capability, tool_capability};
use crate::{
    invocation::{call_report::Tally, handover::Handover},
    offer::Offer,
};
use adapter_tools::{Answers, Needed};
use governance::{Kind, Micros};
use jsonrpc_core::RawJson;
use ledger::{Binding, Digest};
use mcp_protocol::Method;
use mcp_protocol::model::{CallToolResult, GetPromptResult, ReadResource, ReadResourceResult};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

/// A call of something on offer.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// What is called.
    pub target: Target,
    /// How policies and the ledger name it: `tool/NAME` or `resource/URI`.
    pub capability: String,
    /// The arguments as they were sent.
    pub arguments: RawJson,
    /// What was on offer when the call came; a change of it does not touch calls under way.
    pub offer: Arc<Offer>,
    /// What the client was asked before, and has answered.
    pub answers: Option<Arc<Answers>>,
    /// What makes a task of the call, where it can become one.
    pub handover: Option<Arc<Handover>>,
    /// The task it is called for, if that is there already.
    pub task: Option<Arc<str>>,
    /// Whether it was begun before, by a process that has not ended it. Under an idempotency key it
    /// is the same call, whose end nobody knew.
    pub is_rerun: bool,
    /// What the call uses up, whatever becomes of it.
    pub tally: Arc<Tally>,
}

/// What is called.
#[derive(Clone, Debug)]
pub enum Target {
    /// A tool, by name.
    Tool(String),
    /// A resource.
    Resource(ReadResource),
    /// A prompt, by name, with its arguments.
    Prompt(String, BTreeMap<String, String>),
}

/// What a call results in.
#[derive(Clone, Debug)]
pub enum Invoked {
    /// A tool has answered.
    Tool(CallToolResult),
    /// A resource was read.
    Resource(ReadResourceResult),
    /// A prompt was filled in.
    Prompt(GetPromptResult),
    /// More is needed from the client's side; nothing else has come of it.
    NeedsInput(Needed),
    /// Somebody at the client's side is to confirm it first; it has not begun.
    NeedsConfirmation(Needed),
}

impl Invocation {
    /// A call of the tool `name`.
    pub fn tool(offer: Arc<Offer>, name: String, arguments: RawJson) -> Self {
        Self {
            capability: tool_capability(&name),
            target: Target::Tool(name),
            arguments,
            offer,
            answers: None,
            handover: None,
            task: None,
            is_rerun: false,
            tally: Arc::default(),
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
            capability,
            target: Target::Resource(read),
            arguments,
            offer,
            answers: None,
            handover: None,
            task: None,
            is_rerun: false,
            tally: Arc::default(),
        }
    }

    /// A prompt to be filled in.
    pub fn prompt(
        offer: Arc<Offer>,
        name: String,
        arguments: BTreeMap<String, String>,
        as_sent: RawJson,
    ) -> Self {
        Self {
            capability: prompt_capability(&name),
            target: Target::Prompt(name, arguments),
            arguments: as_sent,
            offer,
            answers: None,
            handover: None,
            task: None,
            is_rerun: false,
            tally: Arc::default(),
        }
    }

    /// Which of a principal's limits it counts against.
    pub fn kind(&self) -> Kind {
        match self.target {
            Target::Tool(_) => Kind::Tool,
            // Both are read, and neither does anything.
            Target::Resource(_) | Target::Prompt(..) => Kind::Resource,
        }
    }

    /// Whether there is such a thing at all.
    pub fn exists(&self) -> bool {
        match &self.target {
            Target::Tool(name) => self.offer.tools().get(name).is_some(),
            Target::Resource(read) => self.offer.resources().canonical(&read.uri).is_some(),
            Target::Prompt(name, _) => self
                .offer
                .prompts()
                .entries()
                .iter()
                .any(|it| it.name == *name),
        }
    }

    /// What the tool itself says that a call costs.
    pub fn estimate(&self) -> Option<Micros> {
        match &self.target {
            Target::Tool(name) => {
                let tool = self.offer.tools().get(name)?;
                tool.estimated_cost_micros().map(Micros)
            }
            Target::Resource(_) | Target::Prompt(..) => None,
        }
    }

    /// The task that it is, if it is one by now.
    pub(crate) fn task(&self) -> Option<&str> {
        let handover = self.handover.as_deref();
        self.task.as_deref().or_else(|| handover?.task())
    }

    /// A digest of what is called, as it is defined now; of tools alone.
    pub fn definition(&self) -> Option<Digest> {
        match &self.target {
            Target::Tool(name) => self.offer.definition(name),
            Target::Resource(_) | Target::Prompt(..) => None,
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
        let tool = match &self.target {
            Target::Tool(name) => self.offer.tools().get(name),
            _ => None,
        };
        match tool.and_then(|tool| tool.without_nulls(sent)) {
            Some(taken) => Cow::Owned(taken),
            None => Cow::Borrowed(sent),
        }
    }

    /// A digest of what the arguments say, however they are written.
    pub fn arguments_digest(&self) -> Digest {
        redaction::digest(self.arguments.as_str())
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
