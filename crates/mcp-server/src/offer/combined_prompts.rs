//! Prompts of several sources as one.

use super::prompts::{PromptCx, PromptFailure, Prompts};
use adapter_tools::ToolCx;
use futures_util::future::{BoxFuture, ready};
use ledger::Digest;
use mcp_protocol::model::{Complete, Completion, CompletionReference, GetPromptResult, Prompt};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Prompts of several sources as one offer, ordered by source. A name that two sources have is listed
/// once and held: which of the two was meant is not known.
#[derive(Debug)]
pub struct CombinedPrompts {
    parts: Vec<Arc<dyn Prompts>>,
    entries: Vec<Prompt>,
    /// The part of each name.
    part_of: HashMap<String, usize>,
    /// Names of two sources, each with both places.
    duplicates: BTreeMap<String, String>,
}

impl CombinedPrompts {
    /// All of `parts`, in their order.
    #[must_use]
    pub fn new(parts: Vec<Arc<dyn Prompts>>) -> Self {
        let mut entries = Vec::new();
        let mut part_of = HashMap::new();
        let mut duplicates = BTreeMap::new();
        for (at, part) in parts.iter().enumerate() {
            for entry in part.entries() {
                let name = &entry.name;
                match part_of.get(name) {
                    Some(&other) if other != at => {
                        let place = |part: &Arc<dyn Prompts>| {
                            let place = part.place(name);
                            place.unwrap_or_else(|| "code".to_owned())
                        };
                        let places = (place(&parts[other]), place(part));
                        let why = format!(
                            "two prompts are called `{name}`: one in {}, one in {}; give one of them \
                             another name",
                            places.0, places.1
                        );
                        duplicates.insert(name.clone(), why);
                    }
                    Some(_) => {}
                    None => {
                        part_of.insert(name.clone(), at);
                        entries.push(entry.clone());
                    }
                }
            }
        }
        Self {
            parts,
            entries,
            part_of,
            duplicates,
        }
    }

    /// Names that two sources have, each with both places and the cure.
    #[must_use]
    pub fn duplicates(&self) -> &BTreeMap<String, String> {
        &self.duplicates
    }

    /// The part that has `name`, and the entry under which it is governed.
    fn part(&self, name: &str) -> Option<(&Arc<dyn Prompts>, String)> {
        let own = self.part_of.get(name).map(|&at| &self.parts[at]);
        match own {
            Some(part) => Some((part, name.to_owned())),
            None => self.parts.iter().find_map(|part| {
                let entry = part.governed_by(name)?;
                Some((part, entry))
            }),
        }
    }
}

impl Prompts for CombinedPrompts {
    fn entries(&self) -> &[Prompt] {
        &self.entries
    }

    fn get(&self, cx: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>> {
        match self.part(&cx.name) {
            Some((_, entry)) if self.duplicates.contains_key(&entry) => {
                let why = self.duplicates[&entry].clone();
                Box::pin(ready(Err(PromptFailure::Broken(why.into()))))
            }
            Some((part, _)) => part.get(cx),
            None => {
                let why = "there is no such prompt".to_owned();
                Box::pin(ready(Err(PromptFailure::Arguments(why))))
            }
        }
    }

    fn takes_context(&self, name: &str) -> bool {
        self.parts.iter().any(|part| part.takes_context(name))
    }

    fn complete(&self, request: &Complete) -> Option<Vec<String>> {
        match &request.reference {
            CompletionReference::Prompt { name } => self.part(name)?.0.complete(request),
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
                Some((_, entry)) if self.duplicates.contains_key(&entry) => {
                    Box::pin(ready(Some(Completion::default())))
                }
                Some((part, _)) => part.suggest(cx, request),
                None => Box::pin(ready(None)),
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

    fn governed_by(&self, name: &str) -> Option<String> {
        self.part(name).map(|(_, entry)| entry)
    }

    fn definition(&self, name: &str) -> Option<Digest> {
        self.part(name)?.0.definition(name)
    }

    fn place(&self, name: &str) -> Option<String> {
        self.part(name)?.0.place(name)
    }

    fn held(&self) -> Vec<(String, String)> {
        let of_parts = self.parts.iter().flat_map(|part| part.held());
        let own = of_parts.filter(|(name, _)| !self.duplicates.contains_key(name));
        let duplicates = self.duplicates.iter();
        own.chain(duplicates.map(|(name, why)| (name.clone(), why.clone())))
            .collect()
    }

    fn completes_resources(&self) -> bool {
        self.parts.iter().any(|part| part.completes_resources())
    }

    fn is_announced(&self) -> bool {
        self.parts.iter().any(|part| part.is_announced())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StaticPrompts;
    use adapter_tools::{Answers, Askable};

    fn named(names: &[&str]) -> Arc<dyn Prompts> {
        let prompts = names.iter().fold(StaticPrompts::new(), |prompts, name| {
            let prompt = Prompt {
                name: (*name).to_owned(),
                ..Prompt::default()
            };
            prompts.prompt(prompt, |cx| {
                Ok(GetPromptResult {
                    description: Some(cx.name.clone()),
                    ..GetPromptResult::default()
                })
            })
        });
        Arc::new(prompts)
    }

    #[tokio::test]
    async fn a_name_that_two_sources_have_is_held_and_both_places_are_named() {
        let combined = CombinedPrompts::new(vec![named(&["a", "b"]), named(&["b", "c"])]);
        let listed: Vec<_> = combined.entries().iter().map(|it| &*it.name).collect();
        assert_eq!(listed, ["a", "b", "c"]);
        let held = combined.held();
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].0, "b");
        assert!(held[0].1.contains("one in code, one in code"), "{held:?}");
        for (name, is_filled) in [("a", true), ("b", false), ("c", true), ("d", false)] {
            let cx = PromptCx {
                name: name.to_owned(),
                arguments: BTreeMap::new(),
                askable: Askable::default(),
                answers: Arc::new(Answers::default()),
                call: ToolCx::new("x", "1"),
            };
            assert_eq!(combined.get(cx).await.is_ok(), is_filled, "{name}");
        }
        assert_eq!(combined.governed_by("c").as_deref(), Some("c"));
        assert_eq!(combined.governed_by("d"), None);
    }
}
