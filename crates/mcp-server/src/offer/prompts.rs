//! Prompts on offer.

use adapter_tools::{Answers, Askable, Needed, ToolCx};
use futures_util::future::BoxFuture;
use mcp_protocol::model::{Complete, Completion, CompletionReference, GetPromptResult, Prompt};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Prompts on offer at one time. A change of them is another value.
pub trait Prompts: fmt::Debug + Send + Sync {
    /// All that are listed, in a fixed order.
    fn entries(&self) -> &[Prompt];

    /// Fills in a prompt. Its name is one of the entries', and its required arguments are there.
    fn get(&self, cx: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>>;

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

/// Prompts of several sources as one. Of two with one name, the earlier source's is listed and filled in.
#[derive(Debug)]
pub struct CombinedPrompts {
    parts: Vec<Arc<dyn Prompts>>,
    entries: Vec<Prompt>,
}

impl CombinedPrompts {
    /// All of `parts`, in their order.
    pub fn new(parts: Vec<Arc<dyn Prompts>>) -> Self {
        let mut entries: Vec<Prompt> = Vec::new();
        for entry in parts.iter().flat_map(|part| part.entries()) {
            if entries.iter().any(|other| other.name == entry.name) {
                tracing::warn!(
                    prompt = entry.name,
                    "another prompt has the same name; the first is offered"
                );
            } else {
                entries.push(entry.clone());
            }
        }
        Self { parts, entries }
    }

    fn part(&self, name: &str) -> Option<&Arc<dyn Prompts>> {
        let has = |part: &&Arc<dyn Prompts>| part.entries().iter().any(|it| it.name == name);
        self.parts.iter().find(has)
    }
}

impl Prompts for CombinedPrompts {
    fn entries(&self) -> &[Prompt] {
        &self.entries
    }

    fn get(&self, cx: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>> {
        match self.part(&cx.name) {
            Some(part) => part.get(cx),
            None => Box::pin(std::future::ready(Err(PromptFailure::Arguments(
                "there is no such prompt".to_owned(),
            )))),
        }
    }

    fn complete(&self, request: &Complete) -> Option<Vec<String>> {
        match &request.reference {
            CompletionReference::Prompt { name } => self.part(name)?.complete(request),
            CompletionReference::Resource { .. } => {
                self.parts.iter().find_map(|part| part.complete(request))
            }
        }
    }

    fn suggest<'a>(
        &'a self,
        cx: ToolCx,
        request: &'a Complete,
    ) -> BoxFuture<'a, Option<Completion>> {
        match &request.reference {
            CompletionReference::Prompt { name } => match self.part(name) {
                Some(part) => part.suggest(cx, request),
                None => Box::pin(std::future::ready(None)),
            },
            CompletionReference::Resource { .. } => Box::pin(async move {
                for part in &self.parts {
                    if let Some(found) = part.suggest(cx.clone(), request).await {
                        return Some(found);
                    }
                }
                None
            }),
        }
    }
}
