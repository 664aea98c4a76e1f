//! All skills of one directory at one time.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use crate::{
    content::{Content, ReadError},
    filter::SkillFilter,
    problem::Problem,
    scan::{self, ScanOptions},
    skill::{Skill, SkillFile},
    uri::{SkillUri, SkillUriError},
};

/// All skills that one scan found, by URI. It never changes; a change on disk is a new catalogue.
#[derive(Clone, Debug, Default)]
pub struct SkillCatalog {
    /// In the order of their URIs.
    skills: Vec<Arc<Skill>>,
    by_name: HashMap<String, usize>,
    /// Every URI that can be read, in canonical form.
    by_uri: HashMap<String, Target>,
}

/// What a URI leads to, by index.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// The `SKILL.md` of a skill.
    Document(usize),
    /// A file of the skill `of`. Its owner is the innermost skill whose directory it lies in.
    File {
        of: usize,
        file: usize,
        owner: usize,
    },
}

/// Two catalogues are equal when clients could not tell them apart.
impl PartialEq for SkillCatalog {
    fn eq(&self, other: &Self) -> bool {
        self.skills == other.skills
    }
}

/// What a URI leads to.
#[derive(Clone, Copy, Debug)]
pub struct Resolved<'a> {
    /// The skill, or that whose file it is: what permissions and limits are about. Of nested skills
    /// it is the innermost one, so nobody reads a skill's files through the skill around it.
    pub skill: &'a Arc<Skill>,
    /// The file, unless it is the skill's own `SKILL.md`.
    pub file: Option<&'a SkillFile>,
}

/// A URI leads to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// It could not lead anywhere.
    #[error("not the URI of a skill")]
    Invalid(#[from] SkillUriError),
    /// There is no such skill, or no such file.
    #[error("there is no {0}")]
    NotFound(SkillUri),
}

impl SkillCatalog {
    /// Looks through a directory. Total: what is wrong with one file is a [`Problem`], and takes
    /// nothing else down with it. Blocks on the disk.
    #[must_use]
    pub fn scan(options: &ScanOptions) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let skills = scan::scan(options, &mut problems);
        (Self::of(skills), problems)
    }

    fn of(mut skills: Vec<Skill>) -> Self {
        skills.sort_by(|a, b| a.uri.cmp(&b.uri));
        let mut by_uri = HashMap::new();
        // Skills come before files: a file can have the URI of a skill where a category and a
        // skill share a directory's name, and a skill must not be hidden by another one's file.
        for (index, skill) in skills.iter().enumerate() {
            by_uri.insert(skill.uri.to_string(), Target::Document(index));
        }
        for (index, skill) in skills.iter().enumerate() {
            let document = skill.document_uri().to_string();
            by_uri.entry(document).or_insert(Target::Document(index));
        }
        let by_directory: HashMap<_, _> = skills
            .iter()
            .enumerate()
            .filter_map(|(index, skill)| Some((skill.path().parent()?.to_owned(), index)))
            .collect();
        for (of, skill) in skills.iter().enumerate() {
            for (file, it) in skill.files.iter().enumerate() {
                // By the path and not by the URI, since a skill nested in a flat one has a URI
                // that is not below the other's.
                let mut above = it.path().ancestors().skip(1);
                let owner = above.find_map(|directory| by_directory.get(directory).copied());
                let owner = owner.unwrap_or(of);
                let target = Target::File { of, file, owner };
                by_uri.entry(it.uri.to_string()).or_insert(target);
            }
        }
        let by_name = skills
            .iter()
            .enumerate()
            .map(|(index, skill)| (skill.name().to_owned(), index))
            .collect();
        Self {
            skills: skills.into_iter().map(Arc::new).collect(),
            by_name,
            by_uri,
        }
    }

    /// The skills, in the order of their URIs.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Skill>> {
        self.skills.iter()
    }

    /// The skills that meet a filter, in the order of their URIs.
    pub fn matching<'a>(&'a self, filter: &'a SkillFilter) -> impl Iterator<Item = &'a Arc<Skill>> {
        self.skills.iter().filter(|skill| filter.matches(skill))
    }

    /// How many skills there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.skills.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// The skill of this name in its front matter, and so that of the tool of this name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<Skill>> {
        self.by_name.get(name).map(|index| &self.skills[*index])
    }

    /// What a URI leads to: a skill (`skill://category/name`, or with `/SKILL.md` after it), or
    /// another file in its directory. A look-up and nothing else; no part of `uri` becomes a path.
    ///
    /// # Errors
    ///
    /// [`ResolveError`], if it leads nowhere.
    pub fn resolve(&self, uri: &str) -> Result<Resolved<'_>, ResolveError> {
        // Most clients send back what a list gave them, letter for letter.
        if let Some(target) = self.by_uri.get(uri) {
            return Ok(self.resolved(*target));
        }
        let parsed: SkillUri = uri.parse()?;
        match self.by_uri.get(&parsed.to_string()) {
            Some(target) => Ok(self.resolved(*target)),
            None => Err(ResolveError::NotFound(parsed)),
        }
    }

    /// Every file of a skill by its URI, its `SKILL.md` first and then in the order of their paths,
    /// and what is there: above all the skill whose permission it needs. What cannot be read at the
    /// URI it has in this skill, because something else is there, is left out.
    pub fn files_of<'a>(
        &'a self,
        skill: &'a Skill,
    ) -> impl Iterator<Item = (SkillUri, Resolved<'a>)> {
        let document = (skill.document_uri(), skill.path());
        let files = skill.files.iter().map(|it| (it.uri.clone(), it.path()));
        std::iter::once(document)
            .chain(files)
            .filter_map(|(uri, path)| {
                let found = self.resolved(*self.by_uri.get(&uri.to_string())?);
                let path_there = found.file.map_or(found.skill.path(), SkillFile::path);
                (path_there == path).then_some((uri, found))
            })
    }

    fn resolved(&self, target: Target) -> Resolved<'_> {
        match target {
            Target::Document(skill) => Resolved {
                skill: &self.skills[skill],
                file: None,
            },
            Target::File { of, file, owner } => Resolved {
                skill: &self.skills[owner],
                file: Some(&self.skills[of].files[file]),
            },
        }
    }
}

impl<'a> Resolved<'a> {
    /// The one URI that lists have for it.
    #[must_use]
    pub fn uri(&self) -> &'a SkillUri {
        self.file.map_or(&self.skill.uri, |file| &file.uri)
    }

    /// Its media type.
    #[must_use]
    pub fn mime_type(&self) -> &'static str {
        let of_skill = self.skill.mime_type();
        self.file.map_or(of_skill, SkillFile::mime_type)
    }

    /// Its size when it was found, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.map_or(self.skill.size(), SkillFile::size)
    }

    /// Its SHA-256 when it was found, 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn etag(&self) -> &'a str {
        self.file.map_or(self.skill.etag(), SkillFile::etag)
    }

    /// When it was last modified before it was found, where the file system says so.
    #[must_use]
    pub fn last_modified(&self) -> Option<SystemTime> {
        let of_skill = self.skill.last_modified();
        self.file.map_or(of_skill, SkillFile::last_modified)
    }

    /// Reads it as it is now, which may be newer than the catalogue. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`ReadError`], if the file is gone, was replaced, or cannot be read.
    pub fn read(&self) -> Result<Content, ReadError> {
        match self.file {
            Some(file) => file.read(),
            None => self.skill.read(),
        }
    }
}
