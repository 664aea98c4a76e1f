//! The index of the Skills extension: skills, their files, and directories.
//!
//! All of it is made when a catalogue is, and asked by look-up alone: nothing that a client sends
//! becomes a path. What a principal is told is cut down to what it may see, file by file.

mod directories;

use crate::{clock::rfc3339, offer::skills::directories::Directories};
use adapter_skills::{Resolved, Skill, SkillCatalog, SkillUri};
use jsonrpc_core::RawJson;
use mcp_protocol::model::{Resource, SkillEntry, SkillResource};
use std::{collections::HashMap, sync::Arc};

/// The skills that hosts of skills are told of, at one time.
///
/// Those whose name is not that of their directory, or none that the Agent Skills specification
/// allows, are not among them; they are resources like any other.
#[derive(Clone, Debug, Default)]
pub struct SkillIndex {
    /// Skills in the order of the catalogue.
    skills: Vec<Arc<Published>>,
    by_uri: HashMap<String, usize>,
    directories: Directories,
}

/// One skill, the same for every client.
#[derive(Debug)]
struct Published {
    /// The URI of its `SKILL.md`.
    uri: String,
    /// The URI whose permission it needs.
    governed_by: Arc<str>,
    frontmatter: RawJson,
    files: Vec<PublishedFile>,
}

#[derive(Debug)]
struct PublishedFile {
    resource: SkillResource,
    /// The URI of the skill whose file it is, which may be one nested in this one.
    governed_by: Arc<str>,
}

impl SkillIndex {
    /// The index of a catalogue.
    pub fn new(catalog: &SkillCatalog) -> Self {
        let mut index = Self::default();
        for skill in catalog.iter() {
            if skill.has_standard_name() {
                index.add(catalog, skill);
            } else {
                tracing::info!(
                    path = %skill.path().display(),
                    "a skill is not told of to hosts of skills, because of its name"
                );
            }
        }
        index
    }

    fn add(&mut self, catalog: &SkillCatalog, skill: &Arc<Skill>) {
        let uri = skill.document_uri().to_string();
        let Ok(frontmatter) = RawJson::from_value(&skill.frontmatter().raw) else {
            // It was read from text, so it can be written as text.
            tracing::error!(uri, "a front matter cannot be written as JSON");
            return;
        };
        let governed_by: Arc<str> = skill.uri().to_string().into();
        let mut files = Vec::new();
        for (file_uri, found) in catalog.files_of(skill) {
            let owner: Arc<str> = match found.skill.uri() == skill.uri() {
                true => Arc::clone(&governed_by),
                false => found.skill.uri().to_string().into(),
            };
            let resource = as_resource(&file_uri, &found);
            files.push(PublishedFile {
                resource: SkillResource {
                    uri: resource.uri.clone(),
                    digest: format!("sha256:{}", found.etag()),
                    size: found.size(),
                },
                governed_by: Arc::clone(&owner),
            });
            self.directories
                .add(skill.uri(), &governed_by, &file_uri, resource, &owner);
        }
        self.push(Arc::new(Published {
            uri,
            governed_by,
            frontmatter,
            files,
        }));
    }

    fn push(&mut self, skill: Arc<Published>) {
        if !self.by_uri.contains_key(&skill.uri) {
            self.by_uri.insert(skill.uri.clone(), self.skills.len());
            self.skills.push(skill);
        }
    }

    /// The index of several catalogues. Of two entries with the same URI the earlier one is listed.
    pub fn joined<'a>(indices: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut joined = Self::default();
        for index in indices {
            for skill in &index.skills {
                joined.push(Arc::clone(skill));
            }
            joined.directories.extend(&index.directories);
        }
        joined
    }

    /// The skills of which `visible` is true, given the URI whose permission they need: their URIs
    /// and what [`entry`](Self::entry) takes.
    pub(crate) fn visible(
        &self,
        visible: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = (&str, usize)> {
        let skills = self.skills.iter().enumerate();
        skills
            .filter(move |(_, skill)| visible(&skill.governed_by))
            .map(|(index, skill)| (skill.uri.as_str(), index))
    }

    /// One skill as a client sees it: with those files that are `visible`, given the URI whose
    /// permission they need. Files of a nested skill may not be.
    pub(crate) fn entry(&self, index: usize, visible: impl Fn(&str) -> bool) -> SkillEntry {
        let skill = &self.skills[index];
        let files = skill.files.iter();
        SkillEntry {
            uri: skill.uri.clone(),
            frontmatter: skill.frontmatter.clone(),
            resources: files
                .filter(|file| visible(&file.governed_by))
                .map(|file| file.resource.clone())
                .collect(),
        }
    }

    /// The skill whose `SKILL.md` is at `uri`, however that is spelled, if it is `visible`.
    pub(crate) fn get(&self, uri: &str, visible: impl Fn(&str) -> bool) -> Option<SkillEntry> {
        let uri = canonical(uri)?;
        let index = self.by_uri.get(&uri).copied();
        // Asked in every case: which of the two it was must not show in the time.
        let governed_by = index.map_or(uri.as_str(), |index| &self.skills[index].governed_by);
        let is_visible = visible(governed_by);
        index
            .filter(|_| is_visible)
            .map(|index| self.entry(index, visible))
    }

    /// The visible entries of the directory at `uri`, however that is spelled; `None` if there is no
    /// directory, or none that is visible.
    pub(crate) fn directory(
        &self,
        uri: &str,
        visible: impl Fn(&str) -> bool,
    ) -> Option<Vec<&Resource>> {
        self.directories.read(&canonical(uri)?, visible)
    }
}

fn canonical(uri: &str) -> Option<String> {
    let uri: SkillUri = uri.parse().ok()?;
    Some(uri.to_string())
}

/// A file as one resource among others. A `SKILL.md` is called what its front matter says.
fn as_resource(uri: &SkillUri, found: &Resolved<'_>) -> Resource {
    let document = found.file.is_none().then_some(found.skill);
    Resource {
        uri: uri.to_string(),
        name: document.map_or(uri.name(), |skill| skill.name()).to_owned(),
        title: document.and_then(|skill| skill.title()).map(str::to_owned),
        description: document.map(|skill| skill.description().to_owned()),
        mime_type: Some(found.mime_type().to_owned()),
        size: Some(found.size()),
        last_modified: found.last_modified().and_then(rfc3339),
        ..Resource::default()
    }
}
