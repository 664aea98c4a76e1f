//! Directories of skills.

use adapter_skills::SkillUri;
use mcp_protocol::model::{DIRECTORY_MIME_TYPE, Resource};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// The directories of skills, by URI. Only those with files in them, or below, are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Directories(HashMap<String, Directory>);

#[derive(Clone, Debug, Default)]
struct Directory {
    /// The skills it lies in, by the URI whose permission they need. One of them must be visible:
    /// the directory of a hidden skill is as unknown as the skill, even if another is nested in it.
    within: BTreeSet<Arc<str>>,
    /// The skills whose files lie in it or below. One of them must be visible, too: a directory with
    /// nothing but a hidden skill in it would tell of that.
    owners: BTreeSet<Arc<str>>,
    children: BTreeMap<String, Child>,
}

#[derive(Clone, Debug)]
struct Child {
    /// The skill that must be visible; `None` for a directory, which says so itself.
    owner: Option<Arc<str>>,
    resource: Resource,
}

impl Directory {
    fn is(&self, visible: &impl Fn(&str) -> bool) -> bool {
        let any = |skills: &BTreeSet<Arc<str>>| skills.iter().any(|skill| visible(skill));
        any(&self.within) && any(&self.owners)
    }
}

impl Directories {
    /// Adds the directories that lead from `skill` to one of its files. `within` and `owner` are
    /// the URIs whose permissions the skill and the file need.
    pub(super) fn add(
        &mut self,
        skill: &SkillUri,
        within: &Arc<str>,
        file: &SkillUri,
        resource: Resource,
        owner: &Arc<str>,
    ) {
        let segments = file.segments();
        let mut child = Child {
            owner: Some(Arc::clone(owner)),
            resource,
        };
        for depth in (skill.segments().len()..segments.len()).rev() {
            let Ok(uri) = SkillUri::from_segments(&segments[..depth]) else {
                // The beginning of a URI has at least the segments of the skill's.
                return;
            };
            let directory = self.0.entry(uri.to_string()).or_default();
            directory.within.insert(Arc::clone(within));
            directory.owners.insert(Arc::clone(owner));
            directory
                .children
                .entry(segments[depth].clone())
                .or_insert(child);
            child = Child {
                owner: None,
                resource: Resource {
                    uri: uri.to_string(),
                    name: uri.name().to_owned(),
                    mime_type: Some(DIRECTORY_MIME_TYPE.to_owned()),
                    ..Resource::default()
                },
            };
        }
    }

    /// Adds those of another catalogue, where there are none yet.
    pub(super) fn extend(&mut self, others: &Self) {
        for (uri, directory) in &others.0 {
            if !self.0.contains_key(uri) {
                self.0.insert(uri.clone(), directory.clone());
            }
        }
    }

    /// The visible entries of a directory, in the order of the names.
    pub(super) fn read(&self, uri: &str, visible: impl Fn(&str) -> bool) -> Option<Vec<&Resource>> {
        let directory = self.0.get(uri).filter(|it| it.is(&visible))?;
        let children = directory
            .children
            .values()
            .filter(|child| match &child.owner {
                Some(owner) => visible(owner),
                None => {
                    let below = self.0.get(&child.resource.uri);
                    below.is_some_and(|it| it.is(&visible))
                }
            });
        Some(children.map(|child| &child.resource).collect())
    }
}
