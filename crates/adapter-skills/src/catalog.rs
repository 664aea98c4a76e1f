//! All skills of one directory at one time.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use documents::ReadError;

use crate::{
    content::Content,
    filter::SkillFilter,
    hold::Hold,
    problem::Problem,
    scan::{self, ScanOptions, Scanned, Unfit, tools_of},
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
    /// The skill that governs a tool, by the tool's name: those that are there, and those that were.
    rules: BTreeMap<String, Arc<Skill>>,
    /// Tools named in files that cannot be used.
    holds: BTreeMap<String, Hold>,
    /// Tools with the name of the directory of such a file.
    holds_by_directory: BTreeMap<String, Hold>,
    /// Names of skills that differ from the name of their directory, by that directory.
    misnamed: BTreeMap<String, (String, Hold)>,
    /// Names that skills state rules for, by their letters and digits.
    alike: BTreeMap<String, (String, Hold)>,
    /// Files that cannot be used, by path.
    unfit: BTreeMap<PathBuf, Unfit>,
    /// Reason why there may be skills that were not found.
    incomplete: Option<Hold>,
    /// The directory, if nothing is in it.
    empty: Option<PathBuf>,
    /// Tools whose skill has a key that nothing reads where all others limit calls.
    unread: BTreeMap<String, Hold>,
    /// Skills that are not served because another one, which says the same of its tool, has their name.
    duplicates: Vec<Hold>,
    /// Tools whose skill was deleted.
    gone: BTreeMap<String, PathBuf>,
    /// Tools whose skill was there for an earlier process; nothing else is known of it.
    remembered: BTreeMap<String, (PathBuf, Hold)>,
}

const NAME_IT_SO: &str = "give the skill the name of the tool that it is about";

/// The letters and digits of a name, without their case.
fn letters(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Target of a URI, by index.
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

/// Two catalogues are equal when neither clients nor operators could tell them apart.
impl PartialEq for SkillCatalog {
    fn eq(&self, other: &Self) -> bool {
        self.skills == other.skills
            && self.rules == other.rules
            && self.holds == other.holds
            && self.holds_by_directory == other.holds_by_directory
            && self.misnamed == other.misnamed
            && self.alike == other.alike
            && self.incomplete == other.incomplete
            && self.unread == other.unread
            && self.duplicates == other.duplicates
            && self.gone == other.gone
            && self.remembered == other.remembered
    }
}

/// Target of a URI.
#[derive(Clone, Copy, Debug)]
pub struct Resolved<'a> {
    /// The skill, or that whose file it is: the one that permissions and limits apply to. Of nested
    /// skills it is the innermost one, so that no client reads a skill's files through the skill
    /// around it.
    pub skill: &'a Arc<Skill>,
    /// The file, unless it is the skill's own `SKILL.md`.
    pub file: Option<&'a SkillFile>,
}

/// A URI leads to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// A URI that can have no target.
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
        let scanned = scan::scan(options, &mut problems);
        let empty = scanned.is_empty.then(|| options.root().to_owned());
        let catalog = Self {
            empty,
            ..Self::of(scanned)
        };
        (catalog, problems)
    }

    fn of(scanned: Scanned) -> Self {
        let Scanned {
            mut skills,
            unfit,
            incomplete,
            unread,
            duplicates,
            ..
        } = scanned;
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
        let skills: Vec<_> = skills.into_iter().map(Arc::new).collect();
        let mut catalog = Self {
            skills,
            by_name,
            by_uri,
            incomplete,
            unread: unread.into_iter().rev().collect(),
            duplicates,
            ..Self::default()
        };
        for skill in &catalog.skills {
            catalog
                .rules
                .insert(skill.name().to_owned(), Arc::clone(skill));
        }
        for skill in &catalog.skills {
            for tool in tools_of(skill.frontmatter()) {
                let of_tool = catalog.rules.entry(tool.to_owned());
                of_tool.or_insert_with(|| Arc::clone(skill));
                if skill.frontmatter().owlclaw.governs() {
                    let problem = format!(
                        "{}: it states rules for `{tool}`, which is no tool's name, though nearly this \
                         one's",
                        skill.path().display()
                    );
                    let hint = NAME_IT_SO;
                    let alike = (tool.to_owned(), Hold { problem, hint });
                    catalog.alike.insert(letters(tool), alike);
                }
            }
            let directory = skill.path().parent().and_then(|it| it.file_name());
            let directory = directory.unwrap_or_default().to_string_lossy();
            if directory != skill.name() {
                let problem = format!(
                    "{}: the skill is named `{}`, which no tool is, and its directory is named as a \
                     tool",
                    skill.path().display(),
                    skill.name()
                );
                let hint = NAME_IT_SO;
                let misnamed = (skill.name().to_owned(), Hold { problem, hint });
                catalog.misnamed.insert(directory.into_owned(), misnamed);
            }
        }
        for unfit in unfit {
            for name in &unfit.names {
                let of_tool = catalog.holds.entry(name.clone());
                of_tool.or_insert_with(|| unfit.hold.clone());
            }
            if let Some(directory) = &unfit.directory {
                let of_tool = catalog.holds_by_directory.entry(directory.clone());
                of_tool.or_insert_with(|| unfit.hold.clone());
            }
            let path = unfit.path.clone();
            catalog.unfit.entry(path).or_insert(unfit);
        }
        catalog
    }

    /// A catalogue without skills that knows which tools had one, and where.
    pub(crate) fn remembering(known: BTreeMap<String, PathBuf>) -> Self {
        let remembered = known.into_iter().map(|(tool, path)| {
            let hold = Hold::of_lost(&path);
            (tool, (path, hold))
        });
        Self {
            remembered: remembered.collect(),
            ..Self::default()
        }
    }

    /// Makes this catalogue follow `before`: rules of skills that it had stay in force for their tools, and
    /// a tool whose skill could not be used stays held back when the file goes. With `forgets`, those of
    /// deleted files do not, if all files could be read; those of files that cannot be used any more
    /// always do. A directory that has become empty may be a volume that is not mounted: it is taken for one
    /// whose skills cannot be read.
    #[must_use]
    pub fn following(mut self, before: &Self, forgets: bool) -> Self {
        if before.knows_any() && self.incomplete.is_none() {
            self.incomplete = self.empty.as_deref().map(Hold::of_emptied);
        }
        let forgets = forgets && self.incomplete.is_none();
        for (tool, hold) in before.unread.iter().filter(|_| !forgets) {
            if !self.rules.contains_key(tool) {
                self.unread.insert(tool.clone(), hold.clone());
            }
        }
        let remembered = before.remembered.iter();
        let remembered = remembered.map(|(tool, (path, hold))| (tool, path, hold.clone()));
        let unusable = before.unusable().filter(|(tool, path)| {
            let is_usable = || {
                let mut skills = self.skills.iter();
                skills.any(|skill| skill.path() == *path) && !self.unfit.contains_key(*path)
            };
            // What such a file says of other names may have been a wrong guess.
            before.rules.contains_key(*tool) || !is_usable()
        });
        let unusable = unusable.map(|(tool, path)| (tool, path, Hold::of_lost(path)));
        let mut still = BTreeMap::new();
        for (tool, path, hold) in remembered.chain(unusable) {
            if self.rules.contains_key(tool) {
                continue;
            }
            // Another file may be about it that cannot be used, and may be gone the next time.
            let is_held = self.unfit.contains_key(path)
                || self.holds.contains_key(tool)
                || self.holds_by_directory.contains_key(tool)
                || self.misnamed.contains_key(tool)
                || self.incomplete.is_some();
            if is_held || !forgets {
                let unfit = self.unfit.get(path).map(|unfit| unfit.hold.clone());
                let hold = unfit.unwrap_or(hold);
                still.insert(tool.clone(), (path.clone(), hold));
            }
        }
        self.remembered = still;
        for (tool, skill) in &before.rules {
            let unfit = self.unfit.get(skill.path());
            match unfit {
                Some(unfit) => {
                    let of_tool = self.holds.entry(tool.clone());
                    of_tool.or_insert_with(|| unfit.hold.clone());
                }
                None if forgets => continue,
                None => {}
            }
            match self.rules.get(tool) {
                None => {
                    if unfit.is_none() {
                        self.gone.insert(tool.clone(), skill.path().to_owned());
                    }
                }
                // Those that were there before it broke.
                Some(now) if self.unfit.contains_key(now.path()) && before.is_known(tool) => {}
                Some(_) => continue,
            }
            self.rules.insert(tool.clone(), Arc::clone(skill));
        }
        self
    }

    /// True if there are skills that a later catalogue has to know of.
    fn knows_any(&self) -> bool {
        !(self.rules.is_empty() && self.remembered.is_empty() && self.unfit.is_empty())
    }

    /// Tools whose rules were never known, with the file that cannot be used.
    fn unusable(&self) -> impl Iterator<Item = (&String, &PathBuf)> {
        self.unfit.values().flat_map(|unfit| {
            let directory = unfit.directory.iter();
            let directory = directory.filter(|tool| !self.by_name.contains_key(*tool));
            let tools = unfit.names.iter().chain(directory);
            let tools = tools.filter(|tool| !self.is_known(tool));
            tools.map(|tool| (tool, &unfit.path))
        })
    }

    /// True if the rules of `tool` are those of a skill that could be used.
    fn is_known(&self, tool: &str) -> bool {
        self.rules.get(tool).is_some_and(|skill| {
            let is_unfit = self.unfit.contains_key(skill.path())
                && self.skills.iter().any(|it| Arc::ptr_eq(it, skill));
            !is_unfit && !self.remembered.contains_key(tool)
        })
    }

    /// Skills that state rules, and are about no tool.
    pub fn without_tool(
        &self,
        is_tool: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = &Arc<Skill>> {
        self.skills.iter().filter(move |skill| {
            let front = skill.frontmatter();
            front.owlclaw.governs() && !tools_of(front).any(&is_tool)
        })
    }

    /// Reason why the catalogue may lack skills, if it may.
    #[must_use]
    pub fn incomplete(&self) -> Option<&Hold> {
        self.incomplete.as_ref()
    }

    /// The skill that governs each tool, by the tool's name: the one of that name, or one that binds
    /// it. Where there is none any more, the one that was there last.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &Arc<Skill>)> {
        self.rules
            .iter()
            .map(|(tool, skill)| (tool.as_str(), skill))
    }

    /// Reason to hold `tool` back, if a file that should govern it cannot be used. `is_tool`
    /// returns true for names of tools.
    pub fn hold_of(&self, tool: &str, is_tool: impl Fn(&str) -> bool) -> Option<&Hold> {
        let said = self.holds.get(tool);
        if said.is_some() || self.by_name.contains_key(tool) {
            return said;
        }
        let misnamed = || {
            let (name, hold) = self.misnamed.get(tool)?;
            (!is_tool(name)).then_some(hold)
        };
        let alike = || {
            let (name, hold) = self.alike.get(&letters(tool))?;
            (!is_tool(name)).then_some(hold)
        };
        self.holds_by_directory
            .get(tool)
            .or_else(misnamed)
            .or_else(alike)
            .or_else(|| self.remembered.get(tool).map(|(_, hold)| hold))
            .or_else(|| {
                // A skill that is there may bind it.
                let is_governed = self.rules.contains_key(tool);
                self.incomplete.as_ref().filter(|_| !is_governed)
            })
    }

    /// Skills that are not served because another one, which says the same of its tool, has their name.
    #[must_use]
    pub fn duplicates(&self) -> &[Hold] {
        &self.duplicates
    }

    /// The key in the skill of `tool` that nothing reads, where all others limit calls, if there is one.
    #[must_use]
    pub fn unread_in(&self, tool: &str) -> Option<&Hold> {
        self.unread.get(tool)
    }

    /// Tools whose skill is not there any more, with where it was; its rules are still in force.
    pub fn gone(&self) -> impl Iterator<Item = (&str, &PathBuf)> {
        self.gone.iter().map(|(tool, path)| (tool.as_str(), path))
    }

    /// Tools whose skill was there for an earlier process and is not for this one, with where it was.
    pub(crate) fn remembered(&self) -> impl Iterator<Item = (&str, &Path)> {
        let remembered = self.remembered.iter();
        remembered.map(|(tool, (path, _))| (tool.as_str(), path.as_path()))
    }

    /// The skills, in the order of their URIs.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Skill>> {
        self.skills.iter()
    }

    /// The skills that meet a filter, in the order of their URIs.
    pub fn matching<'a>(&'a self, filter: &'a SkillFilter) -> impl Iterator<Item = &'a Arc<Skill>> {
        self.skills.iter().filter(|skill| filter.matches(skill))
    }

    /// Number of skills.
    #[must_use]
    pub fn len(&self) -> usize {
        self.skills.len()
    }

    /// Returns true if there are no skills.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// The skill of this name in its front matter, and so that of the tool of this name. Where there
    /// is none any more, the one that was there last.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<Skill>> {
        match self.by_name.get(name) {
            Some(index) => Some(&self.skills[*index]),
            None => self.rules.get(name).filter(|skill| skill.name() == name),
        }
    }

    /// Target of a URI: a skill (`skill://category/name`, or with `/SKILL.md` after it), or another
    /// file in its directory. A look-up and nothing else; no part of `uri` becomes a path.
    ///
    /// # Errors
    ///
    /// [`ResolveError`], if it leads nowhere.
    pub fn resolve(&self, uri: &str) -> Result<Resolved<'_>, ResolveError> {
        // Also where clients send back what a list gave them, letter for letter: the time must not say
        // what is there.
        let parsed: SkillUri = uri.parse()?;
        match self.by_uri.get(parsed.as_str()) {
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
                let found = self.resolved(*self.by_uri.get(uri.as_str())?);
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

    /// Media type.
    #[must_use]
    pub fn mime_type(&self) -> &'static str {
        let of_skill = self.skill.mime_type();
        self.file.map_or(of_skill, SkillFile::mime_type)
    }

    /// Size in bytes at the time of the scan.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.file.map_or(self.skill.size(), SkillFile::size)
    }

    /// SHA-256 at the time of the scan, 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn etag(&self) -> &'a str {
        self.file.map_or(self.skill.etag(), SkillFile::etag)
    }

    /// Time of the last modification before the scan, where the file system records it.
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
