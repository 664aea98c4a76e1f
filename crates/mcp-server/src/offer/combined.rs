//! Resources of several sources as one.

use crate::offer::{
    resources::{ReadFailure, ResourceEntry, Resources},
    skills::SkillIndex,
};
use adapter_tools::ToolCx;
use futures_util::future::BoxFuture;
use ledger::Digest;
use mcp_protocol::model::{ListResources, ReadResource, ReadResourceResult, ResourceTemplate};
use std::sync::Arc;

/// Resources of several kinds as one offer. Where two have the same URI, the earlier part's is
/// listed and read.
#[derive(Debug)]
pub struct CombinedResources {
    parts: Vec<Arc<dyn Resources>>,
    entries: Vec<ResourceEntry>,
    /// For each part, the place of its entries in `entries`; `None` for those that are not there.
    places: Vec<Vec<Option<usize>>>,
    templates: Vec<ResourceTemplate>,
    skills: Option<SkillIndex>,
}

impl CombinedResources {
    /// All of `parts`, in their order.
    pub fn new(parts: Vec<Arc<dyn Resources>>) -> Self {
        let mut entries = Vec::new();
        let mut places = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let earlier = &parts[..number];
            let mut of_part = Vec::new();
            for entry in part.entries() {
                let uri = &entry.resource.uri;
                let taken = earlier.iter().any(|it| it.canonical(uri).is_some());
                of_part.push((!taken).then_some(entries.len()));
                if !taken {
                    entries.push(entry.clone());
                }
            }
            places.push(of_part);
        }
        let templates = parts.iter().flat_map(|part| part.templates().to_vec());
        let with_skills: Vec<_> = parts.iter().filter_map(|part| part.skills()).collect();
        Self {
            entries,
            places,
            templates: templates.collect(),
            skills: (!with_skills.is_empty()).then(|| SkillIndex::joined(with_skills)),
            parts,
        }
    }

    /// The part that has something at `uri`.
    fn part(&self, uri: &str) -> Option<&Arc<dyn Resources>> {
        self.parts.iter().find(|it| it.canonical(uri).is_some())
    }

    /// The first answer. All are asked, so that the time does not say which of them has one.
    fn of_all(&self, ask: impl Fn(&dyn Resources) -> Option<String>) -> Option<String> {
        let answers = self.parts.iter().map(|part| ask(&**part));
        answers.fold(None, Option::or)
    }
}

impl Resources for CombinedResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    /// A filter that some parts cannot make sense of, such as a pattern of another scheme, lets
    /// nothing of theirs through.
    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        let mut matching = Vec::new();
        let mut refusal = None;
        let mut understood = self.parts.is_empty();
        for (part, places) in self.parts.iter().zip(&self.places) {
            match part.matching(filter) {
                Ok(indices) => {
                    understood = true;
                    matching.extend(indices.into_iter().filter_map(|index| places[index]));
                }
                Err(why) => refusal = refusal.or(Some(why)),
            }
        }
        match refusal {
            Some(why) if !understood => Err(why),
            _ => Ok(matching),
        }
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        self.of_all(|part| part.canonical(uri))
    }

    fn governed_by(&self, uri: &str) -> Option<String> {
        self.of_all(|part| part.governed_by(uri))
    }

    fn family(&self, uri: &str) -> Option<String> {
        self.of_all(|part| part.family(uri))
    }

    fn definition(&self, uri: &str) -> Option<Digest> {
        self.part(uri)?.definition(uri)
    }

    fn meant_by_pages(&self, uri: &str) -> Vec<String> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.meant_by_pages(uri)).collect()
    }

    fn tells_of_changes(&self, uri: &str) -> bool {
        self.part(uri).is_none_or(|part| part.tells_of_changes(uri))
    }

    fn hear_absent(&self, uri: &str) -> Result<(), String> {
        self.part(uri).map_or(Ok(()), |part| part.hear_absent(uri))
    }

    fn hear<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), String>> {
        match self.part(uri) {
            Some(part) => part.hear(uri),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn takes_context(&self, uri: &str) -> bool {
        self.parts.iter().any(|part| part.takes_context(uri))
    }

    fn skills(&self) -> Option<&SkillIndex> {
        self.skills.as_ref()
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        match self.part(&read.uri) {
            Some(part) => Arc::clone(part).read(read),
            None => Box::pin(std::future::ready(Err(ReadFailure::NotFound))),
        }
    }

    fn read_for(
        self: Arc<Self>,
        cx: ToolCx,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        match self.part(&read.uri) {
            Some(part) => Arc::clone(part).read_for(cx, read),
            None => Box::pin(std::future::ready(Err(ReadFailure::NotFound))),
        }
    }
}
