//! Prompts on offer.

use adapter_tools::{Answers, Askable, Needed, ToolCx, ToolError};
use futures_util::future::BoxFuture;
use ledger::Digest;
use mcp_protocol::model::{Complete, Completion, CompletionReference, GetPromptResult, Prompt};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Prompts on offer at one time. A change of them is another value.
pub trait Prompts: fmt::Debug + Send + Sync {
    /// All that are listed, in a fixed order. None for what only completes arguments of templates.
    fn entries(&self) -> &[Prompt] {
        &[]
    }

    /// Fills in a prompt. Its name is one of the entries', and its required arguments are there.
    fn get(&self, _cx: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>> {
        let why = "there is no such prompt".to_owned();
        Box::pin(std::future::ready(Err(PromptFailure::Arguments(why))))
    }

    /// True if filling in a prompt may read resources, on behalf of its caller.
    fn takes_context(&self, _name: &str) -> bool {
        false
    }

    /// Completions of an argument of a prompt or of a resource template, best first; `None` for a
    /// reference to nothing.
    fn complete(&self, _request: &Complete) -> Option<Vec<String>> {
        None
    }

    /// The same for prompts that ask elsewhere what to suggest, on behalf of the caller of `cx`. Called
    /// for what the caller may see, with a deadline.
    fn suggest<'a>(
        &'a self,
        _cx: ToolCx,
        request: &'a Complete,
    ) -> BoxFuture<'a, Option<Completion>> {
        let values = self.complete(request);
        Box::pin(std::future::ready(values.map(|values| Completion {
            values,
            ..Completion::default()
        })))
    }

    /// Name of the entry under which `name` is governed and recorded: its own, or that of the prompt
    /// of which it names a version. `None` if there is no such prompt.
    fn governed_by(&self, name: &str) -> Option<String> {
        let mut entries = self.entries().iter();
        entries.find(|it| it.name == name).map(|it| it.name.clone())
    }

    /// A digest of all that is filled in under `name`, for the record of each use; `None` if there is
    /// no text that could be compared, as in code.
    fn definition(&self, _name: &str) -> Option<Digest> {
        None
    }

    /// Place of the definition of an entry, for operators.
    fn place(&self, _name: &str) -> Option<String> {
        None
    }

    /// Entries that cannot be used, each with the reason for operators. They are listed, and every use
    /// of them is refused.
    fn held(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// True if variables of resource templates are completed, whether or not there are prompts.
    fn completes_resources(&self) -> bool {
        false
    }

    /// True if clients are told that the server has prompts, which may also be while there are none.
    fn is_announced(&self) -> bool {
        !self.entries().is_empty()
    }
}

/// A prompt that is being filled in.
#[derive(Clone, Debug)]
pub struct PromptCx {
    /// Name of the prompt.
    pub name: String,
    /// With what.
    pub arguments: BTreeMap<String, String>,
    /// Questions that the client answers.
    pub askable: Askable,
    /// Answers of the client to earlier questions.
    pub answers: Arc<Answers>,
    /// The call: its caller and deadline, and ways to report to the caller.
    pub call: ToolCx,
}

/// Reason why a prompt was not filled in.
#[derive(Debug, thiserror::Error)]
pub enum PromptFailure {
    /// Answers of the client are needed.
    #[error("the prompt needs input")]
    NeedsInput(Needed),
    /// The arguments make no sense, for their sender.
    #[error("{0}")]
    Arguments(String),
    /// The prompt is held back, as was found out when it was asked for. The reason is for operators.
    #[error("the prompt is held back: {0}")]
    Held(String),
    /// The prompt cannot be filled in, for a reason that its handler tells the client.
    #[error("{0}")]
    Told(String),
    /// The handler was late, too busy or lost, as it can be for a tool.
    #[error(transparent)]
    Handler(ToolError),
    /// The prompt is broken, which no client can help.
    #[error("the prompt cannot be filled in")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Prompts that are functions, for servers written in Rust.
#[derive(Default)]
pub struct StaticPrompts {
    entries: Vec<Prompt>,
    fill: BTreeMap<String, Fill>,
    completions: Vec<(CompletionReference, String, Suggest)>,
}

type Fill = Box<dyn Fn(&PromptCx) -> Result<GetPromptResult, PromptFailure> + Send + Sync>;
type Suggest = Box<dyn Fn(&Complete) -> Vec<String> + Send + Sync>;

impl StaticPrompts {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a prompt. A later one of the same name takes the place of an earlier one.
    #[must_use]
    pub fn prompt(
        mut self,
        prompt: Prompt,
        fill: impl Fn(&PromptCx) -> Result<GetPromptResult, PromptFailure> + Send + Sync + 'static,
    ) -> Self {
        self.entries.retain(|entry| entry.name != prompt.name);
        self.fill.insert(prompt.name.clone(), Box::new(fill));
        self.entries.push(prompt);
        self
    }

    /// Adds how an argument may go on.
    #[must_use]
    pub fn complete(
        mut self,
        reference: CompletionReference,
        argument: &str,
        suggest: impl Fn(&Complete) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.completions
            .push((reference, argument.to_owned(), Box::new(suggest)));
        self
    }
}

impl fmt::Debug for StaticPrompts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticPrompts")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl Prompts for StaticPrompts {
    fn entries(&self) -> &[Prompt] {
        &self.entries
    }

    fn get(&self, cx: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>> {
        let filled = match self.fill.get(&cx.name) {
            Some(fill) => fill(&cx),
            None => Err(PromptFailure::Arguments(
                "there is no such prompt".to_owned(),
            )),
        };
        Box::pin(std::future::ready(filled))
    }

    fn complete(&self, request: &Complete) -> Option<Vec<String>> {
        let mut known = match &request.reference {
            CompletionReference::Prompt { name } => self.fill.contains_key(name),
            CompletionReference::Resource { .. } => false,
        };
        for (reference, argument, suggest) in &self.completions {
            if *reference == request.reference {
                known = true;
                if *argument == request.argument {
                    return Some(suggest(request));
                }
            }
        }
        // An argument nobody completes is no mistake: there is nothing to suggest.
        known.then(Vec::new)
    }
}
