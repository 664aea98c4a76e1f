//! From a directory to its skills.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    ops::Bound,
    path::{Path, PathBuf},
};

use documents::{Document, Listing, Place, ReadError, excerpt_at_line};

use crate::{
    frontmatter::{BadField, Frontmatter, names_in},
    hold::Hold,
    host::Host,
    limits::Limits,
    media,
    problem::{Problem, ProblemKind},
    skill::{Facts, MAX_KEPT_BODY_BYTES, Skill, SkillFile},
    uri::{BadSegment, SKILL_FILE_NAME, SkillUri, check_segment},
};

/// The category of flat skills where the skills directory has no name that could be one, as `/`.
pub const FALLBACK_CATEGORY: &str = "skills";

/// Options of a scan.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    root: PathBuf,
    flat_category: Option<String>,
    pub(crate) is_required: bool,
    /// Bounds.
    pub limits: Limits,
    /// Facts that prerequisites are compared with.
    pub host: Host,
}

impl ScanOptions {
    /// The directory `root`, with default bounds, on the present [`Host`].
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            flat_category: None,
            is_required: false,
            limits: Limits::default(),
            host: Host::current(),
        }
    }

    /// With this category, one segment, for skills directly under the skills directory.
    ///
    /// # Errors
    ///
    /// [`BadSegment`], if it cannot be a segment.
    pub fn with_flat_category(mut self, category: &str) -> Result<Self, BadSegment> {
        check_segment(category)?;
        self.flat_category = Some(category.to_owned());
        Ok(self)
    }

    /// The same for a directory that is known to be there: if it cannot be opened, that holds back each
    /// tool whose rules it could state.
    #[must_use]
    pub fn required(self) -> Self {
        Self {
            is_required: true,
            ..self
        }
    }

    /// The skills directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The category of skills directly under the skills directory: the one configured, or the
    /// directory's own name, or [`FALLBACK_CATEGORY`].
    #[must_use]
    pub fn flat_category(&self) -> String {
        let name_of = |path: &Path| {
            let name = path.file_name()?.to_str()?;
            check_segment(name).ok().map(|()| name.to_owned())
        };
        // The name that people see comes first; `.` and `..` have none.
        self.flat_category
            .clone()
            .or_else(|| name_of(&self.root))
            .or_else(|| name_of(&fs::canonicalize(&self.root).ok()?))
            .unwrap_or_else(|| FALLBACK_CATEGORY.to_owned())
    }
}

/// Result of a scan.
#[derive(Default)]
pub(crate) struct Scanned {
    /// Skills, in the order of their paths.
    pub(crate) skills: Vec<Skill>,
    pub(crate) unfit: Vec<Unfit>,
    /// Reason why the catalogue may lack skills.
    pub(crate) incomplete: Option<Hold>,
    /// True if there is nothing at all in the directory.
    pub(crate) is_empty: bool,
    /// Tools whose skill has a key that nothing reads where all others limit calls.
    pub(crate) unread: Vec<(String, Hold)>,
    /// Skills that are not served because another one has their name.
    pub(crate) duplicates: Vec<Hold>,
}

/// A file that cannot be used as the skill that its author meant.
#[derive(Clone, Debug)]
pub(crate) struct Unfit {
    pub(crate) path: PathBuf,
    /// The tools that it says it is about.
    pub(crate) names: Vec<String>,
    /// The tool that it is about if it has the name of its directory.
    pub(crate) directory: Option<String>,
    pub(crate) hold: Hold,
}

impl Unfit {
    fn new(problem: &Problem, names: Vec<String>) -> Self {
        let is_document = problem.path.file_name().is_some_and(|it| {
            let without_dot = it.as_encoded_bytes().strip_prefix(b".");
            let is_hidden = without_dot == Some(SKILL_FILE_NAME.as_bytes());
            is_hidden || is_nearly_document(it) || is_like_document(it)
        });
        let directory = match is_document {
            true => problem.path.parent().and_then(Path::file_name),
            false => problem.path.file_name(),
        };
        let directory = directory.map(|it| it.to_string_lossy());
        Self {
            directory: directory.map(|it| it.trim_start_matches('.').to_owned()),
            path: problem.path.clone(),
            names,
            hold: Hold::new(problem),
        }
    }
}

fn is_nearly_document(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(SKILL_FILE_NAME)
}

/// True for a name that was probably meant to be that of a skill's document, and is spelt otherwise than in its letters:
/// `SKILLS.md`, `SKIL.md`, `SKILL.markdown`, `SKILL.md.txt`, `SKILL .md`.
fn is_like_document(name: &OsStr) -> bool {
    const STEMS: [&str; 4] = ["skill", "skills", "skil", "skils"];
    const ENDS: [&str; 12] = [
        "md", "markdown", "mdown", "mkd", "mdx", "txt", "text", "yaml", "yml", "bak", "orig", "old",
    ];
    let Some(name) = name.to_str() else {
        return false;
    };
    let name: String = name.chars().filter(|it| !it.is_whitespace()).collect();
    let name = name.to_lowercase();
    let name = name.trim_end_matches('~');
    let parts = name.split(['.', '-', '_']).filter(|it| !it.is_empty());
    let stem: Vec<_> = parts.filter(|it| !ENDS.contains(it)).collect();
    let is_stem = |it: &str| STEMS.contains(&it) || has_its_letters(it);
    !name.starts_with('.') && matches!(stem.as_slice(), [stem] if is_stem(stem))
}

/// True for `skill` with its letters in another order.
fn has_its_letters(word: &str) -> bool {
    let mut letters: Vec<_> = word.chars().collect();
    letters.sort_unstable();
    letters == ['i', 'k', 'l', 'l', 's']
}

pub(crate) fn scan(options: &ScanOptions, problems: &mut Vec<Problem>) -> Scanned {
    let mut found = Vec::new();
    let listing = documents::list(&options.root, &options.limits.walk(), &mut found);
    let found = found.into_iter();
    problems.extend(found.map(|(path, problem)| Problem::new(path, problem.into())));
    let mut scan = Scan {
        options,
        flat_category: options.flat_category(),
        listing: &listing,
        facts: HashMap::new(),
        problems,
        unfit: Vec::new(),
        unread: Vec::new(),
    };
    let mut duplicates = Vec::new();
    for problem in scan.problems.iter() {
        // A skill may be behind each, under the name that can be seen.
        if matches!(
            problem.kind,
            ProblemKind::LinkOutside
                | ProblemKind::NotAFile
                | ProblemKind::Hidden
                | ProblemKind::Unlistable(_)
        ) {
            scan.unfit.push(Unfit::new(problem, Vec::new()));
        }
    }
    let mut skills: Vec<Skill> = Vec::new();
    let mut names: HashMap<String, usize> = HashMap::new();
    let mut uris: HashMap<SkillUri, PathBuf> = HashMap::new();
    let documents = listing
        .keys()
        .filter(|path| path.file_name().is_some_and(is_nearly_document));
    for document in documents {
        let path = options.root.join(document);
        if skills.len() >= options.limits.max_skills {
            let max_skills = options.limits.max_skills;
            scan.report(path, ProblemKind::TooManySkills { max_skills });
            break;
        }
        let (skill, complaints) = match scan.skill(document) {
            Ok(read) => read,
            Err(BadSkill { kind, names }) => {
                scan.unfit(path, kind, names);
                continue;
            }
        };
        let claimed = || tools_of(&skill.frontmatter).map(str::to_owned).collect();
        if let Some(kept) = names.get(skill.name()) {
            let kept = &skills[*kept];
            let (name, kept_path) = (skill.name().to_owned(), kept.path().to_owned());
            let kind = ProblemKind::DuplicateName {
                name,
                kept: kept_path,
            };
            // Which of the two governs is not known; if they say the same, that does not matter.
            match kept.frontmatter.owlclaw == skill.frontmatter.owlclaw {
                true => {
                    let problem = Problem::new(path, kind);
                    duplicates.push(Hold::new(&problem));
                    scan.problems.push(problem);
                }
                false => scan.unfit(path, kind, claimed()),
            }
        } else if let Some(kept) = uris.get(&skill.uri) {
            let (uri, kept) = (skill.uri.clone(), kept.clone());
            scan.unfit(path, ProblemKind::DuplicateUri { uri, kept }, claimed());
        } else {
            names.insert(skill.name().to_owned(), skills.len());
            uris.insert(skill.uri.clone(), path);
            scan.warn(&skill, complaints);
            skills.push(scan.with_files(skill, document));
        }
    }
    scan.nearly_named();
    let (unfit, unread) = (scan.unfit, scan.unread);
    let incomplete = problems.iter().find(|problem| {
        let is_required = options.is_required && problem.is_no_directory();
        is_required || problem.is_incomplete()
    });
    Scanned {
        skills,
        unfit,
        incomplete: incomplete.map(Hold::new),
        is_empty: is_empty(&options.root),
        unread,
        duplicates,
    }
}

/// Returns true for a directory without anything, as is left of a volume that is unmounted: hidden entries and
/// `lost+found` are none.
fn is_empty(root: &Path) -> bool {
    let Ok(mut entries) = std::fs::read_dir(root) else {
        return true;
    };
    !entries.any(|entry| {
        entry.is_ok_and(|entry| {
            let name = entry.file_name();
            !name.as_encoded_bytes().starts_with(b".") && name != "lost+found"
        })
    })
}

/// The tools that a skill is about: that of its name, and those that it binds.
pub(crate) fn tools_of(frontmatter: &Frontmatter) -> impl Iterator<Item = &str> {
    let bound = frontmatter.tools.iter();
    let bound = bound.filter(|(_, declaration)| declaration.binding.is_some());
    std::iter::once(frontmatter.name.as_str()).chain(bound.map(|(name, _)| name.as_str()))
}

/// Line, counted from 1, of an `owlclaw:` block in the text below the front matter, outside of examples: a `---` above it has
/// ended the front matter too early.
fn block_in_body(body: &str) -> Option<usize> {
    // The character and length of the fence that an example began with.
    let mut example: Option<(char, usize)> = None;
    let found = body.lines().position(|line| {
        let start = line.trim_start();
        let of = start.chars().next().filter(|it| matches!(it, '`' | '~'));
        let fence = of.map(|of| (of, start.chars().take_while(|it| *it == of).count()));
        match (example, fence) {
            (None, Some((of, length))) if 3 <= length => example = Some((of, length)),
            (Some((opened, least)), Some((of, length))) if opened == of && least <= length => {
                example = None;
            }
            _ => {}
        }
        example.is_none() && line.starts_with("owlclaw:")
    });
    found.map(|line| line + 1)
}

/// Reason why a `SKILL.md` is no skill, with the tools that it names.
struct BadSkill {
    kind: ProblemKind,
    names: Vec<String>,
}

impl From<ProblemKind> for BadSkill {
    fn from(kind: ProblemKind) -> Self {
        let names = Vec::new();
        Self { kind, names }
    }
}

struct Scan<'a> {
    options: &'a ScanOptions,
    flat_category: String,
    listing: &'a Listing,
    /// Of files other than a skill's own document. A nested skill's files belong to every skill
    /// above it too, and are read once.
    facts: HashMap<&'a Path, Facts>,
    problems: &'a mut Vec<Problem>,
    unfit: Vec<Unfit>,
    unread: Vec<(String, Hold)>,
}

impl<'a> Scan<'a> {
    /// Reports why something cannot be the skill that is about the tools called `names`.
    fn unfit(&mut self, path: PathBuf, kind: ProblemKind, names: Vec<String>) {
        let problem = Problem::new(path, kind);
        self.unfit.push(Unfit::new(&problem, names));
        self.problems.push(problem);
    }

    /// Reports files that are probably meant as the document of a directory that has none. Below a skill, and in the
    /// skills directory itself, such a name is a likely one of other texts, so that only what has a front matter counts.
    fn nearly_named(&mut self) {
        let listing = self.listing;
        let has_document = |directory: &Path| {
            let mut files = listing
                .range::<Path, _>((Bound::Excluded(directory), Bound::Unbounded))
                .take_while(|(path, _)| path.starts_with(directory));
            files.any(|(path, _)| {
                path.parent() == Some(directory) && path.file_name().is_some_and(is_nearly_document)
            })
        };
        let alike = listing
            .keys()
            .filter(|path| path.file_name().is_some_and(is_like_document))
            .filter(|path| !path.file_name().is_some_and(is_nearly_document));
        for path in alike {
            let directory = path.parent().unwrap_or(Path::new(""));
            if has_document(directory) {
                continue;
            }
            let is_in_doubt = directory.as_os_str().is_empty()
                || directory
                    .ancestors()
                    .skip(1)
                    .any(|above| !above.as_os_str().is_empty() && has_document(above));
            if is_in_doubt && !self.has_front_matter(path) {
                continue;
            }
            let kind = ProblemKind::NearlyNamed;
            self.unfit(self.options.root.join(path), kind, Vec::new());
        }
    }

    fn has_front_matter(&self, path: &Path) -> bool {
        let place = self.place(path, self.options.limits.max_document_bytes);
        let read = place.and_then(|place| place.read());
        // What cannot be read may have one.
        read.map_or(true, |raw| raw.bytes.starts_with(b"---"))
    }

    fn report(&mut self, path: impl Into<PathBuf>, kind: ProblemKind) {
        self.problems.push(Problem::new(path, kind));
    }

    fn place(&self, relative: &Path, max_bytes: u64) -> Result<Place, ReadError> {
        let entry = self.listing.get(relative).ok_or(ReadError::Vanished)?;
        Ok(entry.place(&self.options.root, relative, max_bytes))
    }

    /// The skill of a `SKILL.md`, without its other files, and what is odd about it.
    fn skill(&self, document: &Path) -> Result<(Skill, Vec<BadField>), BadSkill> {
        let place = self
            .place(document, self.options.limits.max_document_bytes)
            .map_err(ProblemKind::Unreadable)?;
        let raw = place.read().map_err(ProblemKind::Unreadable)?;
        let bad = |kind| BadSkill {
            kind,
            names: names_in(&String::from_utf8_lossy(&raw.bytes)),
        };
        let directory = document.parent().unwrap_or(Path::new(""));
        if directory.as_os_str().is_empty() {
            return Err(bad(ProblemKind::SkillInRoot));
        }
        if document
            .file_name()
            .is_none_or(|name| name != SKILL_FILE_NAME)
        {
            return Err(bad(ProblemKind::Misspelt));
        }
        let uri = SkillUri::from_relative_directory(directory, &self.flat_category)
            .and_then(|uri| uri.join(Path::new(SKILL_FILE_NAME)).map(|_| uri))
            .map_err(|error| bad(ProblemKind::NoUri(error)))?;
        let text = std::str::from_utf8(&raw.bytes).map_err(|error| {
            bad(ProblemKind::NotUtf8 {
                valid_up_to: error.valid_up_to(),
            })
        })?;
        let parts = Document::split(text);
        let parts = parts.map_err(|error| bad(ProblemKind::Frontmatter(error.into())))?;
        let (frontmatter, complaints) = Frontmatter::parse_document(&parts)
            .map_err(|error| bad(ProblemKind::Frontmatter(error)))?;
        let mut complaints = complaints;
        let line = block_in_body(parts.body).map(|line| {
            let above = text.len() - parts.body.len();
            let above = text.as_bytes()[..above].iter().filter(|it| **it == b'\n');
            u64::try_from(above.count() + line).unwrap_or(u64::MAX)
        });
        complaints.extend(line.map(BadField::below_the_front_matter));
        let unmet = self.options.host.unmet(&frontmatter.owlclaw.prerequisites);
        if !unmet.is_empty() {
            return Err(BadSkill {
                kind: ProblemKind::Unmet { unmet },
                names: tools_of(&frontmatter).map(str::to_owned).collect(),
            });
        }
        let body = excerpt_at_line(
            parts.body.trim_start_matches(['\r', '\n']),
            MAX_KEPT_BODY_BYTES,
        );
        let skill = Skill {
            uri,
            frontmatter,
            body: body.text.to_owned(),
            body_is_cut: body.is_cut,
            facts: Facts::of(&raw.bytes, raw.last_modified),
            files: Vec::new(),
            place,
        };
        Ok((skill, complaints))
    }

    fn warn(&mut self, skill: &Skill, complaints: Vec<BadField>) {
        for complaint in complaints {
            match complaint.holds() {
                true => {
                    let names = tools_of(&skill.frontmatter).map(str::to_owned).collect();
                    let path = skill.path().to_owned();
                    self.unfit(path, ProblemKind::Field(complaint), names);
                }
                false => {
                    let is_unknown = complaint.is_unknown();
                    let problem = Problem::new(skill.path(), ProblemKind::Field(complaint));
                    if is_unknown {
                        let hold = Hold::new(&problem);
                        let tools = tools_of(&skill.frontmatter);
                        let unread = tools.map(|tool| (tool.to_owned(), hold.clone()));
                        self.unread.extend(unread);
                    }
                    self.problems.push(problem);
                }
            }
        }
        if skill.uri.name() != skill.name() {
            let name = skill.name().to_owned();
            self.report(skill.path(), ProblemKind::OtherName { name });
        }
    }

    fn with_files(&mut self, mut skill: Skill, document: &Path) -> Skill {
        let limits = self.options.limits;
        let directory = document.parent().unwrap_or(Path::new(""));
        let mut bytes_left = limits.max_bytes_per_skill.saturating_sub(skill.size());
        let listing = self.listing;
        let below = listing
            .range::<Path, _>((Bound::Excluded(directory), Bound::Unbounded))
            .map(|(path, _)| path.as_path())
            .take_while(|path| path.starts_with(directory))
            .filter(|path| *path != document);
        for path in below {
            let full_path = self.options.root.join(path);
            // `SKILL.md` is one of them.
            if skill.files.len() + 1 >= limits.max_files_per_skill {
                let max_files = limits.max_files_per_skill;
                self.report(full_path, ProblemKind::TooManyFiles { max_files });
                break;
            }
            match self.file(&skill, path, directory, bytes_left) {
                Ok(file) => {
                    bytes_left = bytes_left.saturating_sub(file.size());
                    skill.files.push(file);
                }
                Err(kind) => self.report(full_path, kind),
            }
        }
        skill
    }

    fn file(
        &mut self,
        skill: &Skill,
        path: &'a Path,
        directory: &Path,
        bytes_left: u64,
    ) -> Result<SkillFile, ProblemKind> {
        let relative = path.strip_prefix(directory).unwrap_or(path);
        let uri = skill.uri.join(relative).map_err(ProblemKind::NoUri)?;
        let max_bytes = self.options.limits.max_bytes_per_skill;
        let mut place = self
            .place(path, bytes_left)
            .map_err(ProblemKind::Unreadable)?;
        let facts = match self.facts.get(path) {
            Some(facts) if facts.size > bytes_left => {
                return Err(ProblemKind::TooManyBytes { max_bytes });
            }
            Some(facts) => facts.clone(),
            None => {
                let raw = place.read().map_err(|error| match error {
                    ReadError::TooLarge { .. } => ProblemKind::TooManyBytes { max_bytes },
                    error => ProblemKind::Unreadable(error),
                })?;
                let facts = Facts::of(&raw.bytes, raw.last_modified);
                self.facts.insert(path, facts.clone());
                facts
            }
        };
        // It may grow by a little until it is read.
        place.max_bytes = max_bytes;
        Ok(SkillFile {
            uri,
            mime_type: media::media_type(path, facts.is_text),
            facts,
            place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_examples_are_none_however_the_examples_are_fenced() {
        let block = "owlclaw:\n  risk_level: high\n";
        assert_eq!(block_in_body(&format!("\n---\n{block}")), Some(3));
        for (open, close) in [
            ("```", "```"),
            ("~~~", "~~~"),
            ("````\n```yaml", "```\n````"),
            ("~~~\n```", "```\n~~~"),
        ] {
            let example = format!("{open}\n{block}{close}\n");
            assert_eq!(block_in_body(&example), None, "{example}");
            let behind = format!("{example}{block}");
            assert!(block_in_body(&behind).is_some(), "{behind}");
        }
    }
}
