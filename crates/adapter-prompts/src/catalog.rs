//! From a directory to its prompts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use data_encoding::HEXLOWER;
use documents::{Listing, Walk, nearest_of};
use sha2::{Digest, Sha256};

use crate::{
    front::{self, MAX_FILE_BYTES},
    lines,
    problem::Problem,
    template::{PromptVersion, Section, environment, included, what},
    version::{MAX_NAME_BYTES, compare, is_name, is_version},
};

/// Deepest level of a file below the directory.
const MAX_DEPTH: usize = 4;
/// The most files and directories that are looked at.
const MAX_ENTRIES: usize = 20_000;
/// The most prompts.
const MAX_PROMPTS: usize = 2_000;
/// The most versions of one prompt.
const MAX_VERSIONS: usize = 500;
/// The most files that one prompt includes.
const MAX_INCLUDES: usize = 32;
/// Deepest nesting of files that include others.
const MAX_INCLUDE_DEPTH: usize = 8;
/// The most bytes of a prompt with all that it includes.
const MAX_SOURCE_BYTES: usize = 1024 * 1024;

/// Version of a file that names none.
const FIRST_VERSION: &str = "1";
/// Name of the file that says which version is in force.
pub(crate) const CURRENT: &str = "current";
/// Name of the file with the history of a prompt, one JSON object on each line.
pub(crate) const HISTORY: &str = "history.jsonl";

/// Treatment of a prompt whose version in force cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Broken {
    /// Every use is refused.
    #[default]
    Refuse,
    /// The version that was in force when this process could last use it takes its place.
    LastGood,
}

/// Options of a scan.
#[derive(Clone, Debug)]
pub struct PromptOptions {
    pub(crate) root: PathBuf,
    /// Treatment of what cannot be used.
    pub broken: Broken,
}

impl PromptOptions {
    /// The prompts below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            broken: Broken::Refuse,
        }
    }

    pub(crate) fn listing(&self, problems: &mut Vec<Problem>) -> Listing {
        let walk = Walk {
            max_depth: MAX_DEPTH,
            max_entries: MAX_ENTRIES,
            document: None,
        };
        let mut found = Vec::new();
        let listing = documents::list(&self.root, &walk, &mut found);
        problems.extend(found.into_iter().map(|(path, problem)| {
            let hint = match &problem {
                documents::WalkProblem::NoDirectory(_) => {
                    "make the directory, or configure another one"
                }
                documents::WalkProblem::Unlistable(_) => {
                    "give the server's user the right to read it"
                }
                documents::WalkProblem::LinkOutside => {
                    "copy what it leads to into the directory of the prompts"
                }
                documents::WalkProblem::NotAFile => "a prompt is a regular file",
                documents::WalkProblem::Hidden => "take the dot away",
                _ => "configure a directory that holds prompts and little else",
            };
            Problem::new(path, problem.to_string(), hint)
        }));
        listing
    }
}

/// A prompt with all its versions.
#[derive(Clone, Debug)]
pub struct PromptEntry {
    name: String,
    place: PathBuf,
    /// Each with the reason why it cannot be used, if it cannot; the oldest first.
    versions: Vec<(String, Result<Arc<PromptVersion>, Problem>)>,
    /// The version in force.
    current: Result<Arc<PromptVersion>, Problem>,
    /// Reason why the version in force is not the one that the files say.
    stale: Option<Problem>,
}

impl PromptEntry {
    /// Name of the prompt.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file, or the directory with its versions.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The version in force.
    ///
    /// # Errors
    ///
    /// The reason why every use of the prompt is refused.
    pub fn current(&self) -> Result<&Arc<PromptVersion>, &Problem> {
        self.current.as_ref()
    }

    /// All versions, the oldest first, each with the reason why it cannot be used, if it cannot.
    pub fn versions(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&str, Result<&Arc<PromptVersion>, &Problem>)> {
        let versions = self.versions.iter();
        versions.map(|(version, read)| (version.as_str(), read.as_ref()))
    }

    /// Reason why an older text is in force than the files say, if so.
    #[must_use]
    pub fn stale(&self) -> Option<&Problem> {
        self.stale.as_ref()
    }
}

/// The prompts of a directory at one time.
#[derive(Clone, Debug, Default)]
pub struct PromptCatalog {
    entries: BTreeMap<String, PromptEntry>,
    problems: Vec<Problem>,
    /// Reason why prompts may be missing whose names are not known.
    incomplete: Option<Problem>,
    /// True if there was nothing in the directory, which is no problem where nothing was before.
    is_empty: bool,
}

impl PromptCatalog {
    /// Reads a directory. Blocks on the disk.
    #[must_use]
    pub fn scan(options: &PromptOptions) -> Self {
        let mut problems = Vec::new();
        let listing = options.listing(&mut problems);
        let incomplete = problems.iter().find(|problem| {
            let is_link = problem.path.is_symlink();
            !is_link
        });
        let is_empty = incomplete.is_none() && listing.is_empty();
        let incomplete = match is_empty {
            // As of a volume that is not mounted.
            true => Some(Problem::new(
                &options.root,
                "there is no file in it, and there were prompts before",
                "mount or restore it; if there are to be no prompts, start the server again",
            )),
            false => incomplete.cloned(),
        };
        let mut scan = Scan {
            root: &options.root,
            listing: &listing,
            files: BTreeMap::new(),
            entries: BTreeMap::new(),
            problems,
        };
        scan.links();
        scan.run();
        scan.empty_directories();
        let (entries, mut problems) = (scan.entries, scan.problems);
        for entry in entries.values() {
            let broken = entry
                .versions
                .iter()
                .filter_map(|(_, read)| read.as_ref().err());
            problems.extend(broken.chain(entry.current.as_ref().err()).cloned());
        }
        let mut told = BTreeSet::new();
        problems.retain(|problem| told.insert(problem.to_string()));
        Self {
            entries,
            problems,
            incomplete,
            is_empty,
        }
    }

    /// Follows the catalogue `before`: a prompt that cannot be read for now is held and not forgotten,
    /// and by the setting what was last in force stays so.
    #[must_use]
    pub fn following(mut self, before: &Self, broken: Broken) -> Self {
        if let Some(incomplete) = &self.incomplete {
            if self.is_empty && !before.entries.is_empty() {
                self.problems.push(incomplete.clone());
            }
            for (name, entry) in &before.entries {
                self.entries
                    .entry(name.clone())
                    .or_insert_with(|| PromptEntry {
                        current: Err(incomplete.clone()),
                        stale: None,
                        ..entry.clone()
                    });
            }
        }
        if broken == Broken::LastGood {
            for (name, entry) in &mut self.entries {
                if let Err(problem) = &entry.current
                    && let Some(Ok(last)) = before.entries.get(name).map(|it| &it.current)
                {
                    entry.stale = Some(problem.clone());
                    entry.current = Ok(Arc::clone(last));
                }
            }
        }
        self
    }

    /// All prompts, by name.
    pub fn iter(&self) -> impl Iterator<Item = &PromptEntry> {
        self.entries.values()
    }

    /// The prompt of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&PromptEntry> {
        self.entries.get(name)
    }

    /// The prompt that `name`, or `name@version`, is about, whether or not there is such a version.
    #[must_use]
    pub fn entry_of(&self, name: &str) -> Option<&PromptEntry> {
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        self.get(name)
    }

    /// The version in force of `name`, or the one that `name@version` says. `None` if there is none.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<Result<&Arc<PromptVersion>, &Problem>> {
        match name.split_once('@') {
            None => Some(self.get(name)?.current()),
            Some((name, version)) => {
                let mut versions = self.get(name)?.versions();
                versions
                    .find(|(it, _)| *it == version)
                    .map(|(_, read)| read)
            }
        }
    }

    /// The known name or version that was probably meant.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Option<&str> {
        nearest_of(name, &mut self.entries.keys().map(String::as_str))
    }

    /// Problems of the files, by path.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Prompts of which every use is refused, each with the reason.
    pub fn held(&self) -> impl Iterator<Item = (&str, &Problem)> {
        self.iter()
            .filter_map(|entry| Some((entry.name(), entry.current().err()?)))
    }

    /// True if both say the same, in the same state.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let told = |entry: &PromptEntry| {
            let versions = entry.versions.iter().map(|(version, read)| {
                (
                    version.clone(),
                    read.as_ref()
                        .map(|it| it.digest)
                        .map_err(Problem::to_string),
                )
            });
            let current = entry
                .current
                .as_ref()
                .map(|it| (it.version.clone(), it.digest));
            (
                current.map_err(Problem::to_string),
                entry.stale.clone(),
                versions.collect::<Vec<_>>(),
            )
        };
        self.problems == other.problems
            && self.entries.len() == other.entries.len()
            && self.entries.iter().all(|(name, entry)| {
                other
                    .entries
                    .get(name)
                    .is_some_and(|it| told(it) == told(entry))
            })
    }
}

struct Scan<'a> {
    root: &'a Path,
    listing: &'a Listing,
    /// Texts that were read, by path.
    files: BTreeMap<PathBuf, Result<Arc<str>, Problem>>,
    entries: BTreeMap<String, PromptEntry>,
    problems: Vec<Problem>,
}

impl Scan<'_> {
    /// Holds the prompts that links are meant to be which lead out of the directory.
    fn links(&mut self) {
        for problem in self.problems.clone() {
            let Ok(relative) = problem.path.strip_prefix(self.root) else {
                continue;
            };
            let mut parts = relative.components();
            let first = parts
                .next()
                .map(|it| it.as_os_str().to_string_lossy().into_owned());
            let Some(first) = first.filter(|_| !is_part(relative)) else {
                continue;
            };
            let name = first.strip_suffix(".md").unwrap_or(&first);
            if is_name(name) {
                self.hold(name, problem);
            }
        }
    }

    fn hold(&mut self, name: &str, problem: Problem) {
        let entry = PromptEntry {
            name: name.to_owned(),
            place: problem.path.clone(),
            versions: Vec::new(),
            current: Err(problem),
            stale: None,
        };
        self.entries.insert(name.to_owned(), entry);
    }

    fn run(&mut self) {
        let mut singles = BTreeMap::new();
        let mut families: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for relative in self.listing.keys() {
            let file = relative
                .file_name()
                .map(|it| it.to_string_lossy().into_owned());
            let file = file.unwrap_or_default();
            if is_part(relative) || file == "README.md" {
                continue;
            }
            let folders: Vec<_> = relative
                .parent()
                .into_iter()
                .flat_map(Path::components)
                .collect();
            let stem = file.strip_suffix(".md");
            match (folders.as_slice(), stem) {
                ([], Some(name)) => {
                    singles.insert(name.to_owned(), relative.clone());
                }
                ([folder], Some(_)) => {
                    let family = folder.as_os_str().to_string_lossy().into_owned();
                    families.entry(family).or_default().push(relative.clone());
                }
                ([folder], None) if [CURRENT, HISTORY].contains(&file.as_str()) => {
                    let family = folder.as_os_str().to_string_lossy().into_owned();
                    families.entry(family).or_default();
                }
                ([], None) => {
                    let hint = "a prompt is `NAME.md`; move other files elsewhere";
                    self.odd(
                        relative,
                        "not read, because its name does not end with `.md`",
                        hint,
                    );
                }
                ([_], None) => {
                    let hint = "versions are `NAME/VERSION.md`; move other files elsewhere";
                    self.odd(
                        relative,
                        "not read, because it is no version of a prompt",
                        hint,
                    );
                }
                _ => {
                    let hint = "prompts are `NAME.md` or `NAME/VERSION.md`; what they include may lie deeper \
                                below a directory whose name begins with `_`";
                    self.odd(
                        relative,
                        "not read, because it lies too deep for a prompt",
                        hint,
                    );
                }
            }
        }
        let names: BTreeSet<String> = singles.keys().chain(families.keys()).cloned().collect();
        for (count, name) in names.into_iter().enumerate() {
            let single = singles.get(&name);
            let family = families.get(&name);
            let place = single.cloned().unwrap_or_else(|| PathBuf::from(&name));
            if !is_name(&name) {
                let what = format!(
                    "`{name}` cannot be a prompt's name, which has at most {MAX_NAME_BYTES} letters, digits, \
                     `.`, `_` and `-`"
                );
                self.odd(&place, what, "rename it");
                continue;
            }
            if count >= MAX_PROMPTS {
                let what = format!(
                    "not read, nor what comes after it, as there are more than {MAX_PROMPTS}"
                );
                self.odd(&place, what, "move some of them to another server");
                break;
            }
            // Already held for a link.
            if self.entries.contains_key(&name) {
                continue;
            }
            match (single, family) {
                (Some(single), Some(_)) => {
                    let what = format!("the prompt is also a directory, `{name}/`");
                    let hint = format!("move the file to `{name}/VERSION.md`");
                    let problem = Problem::new(self.root.join(single), what, hint);
                    self.hold(&name, problem);
                }
                (Some(single), None) => {
                    let read = self.read(&name, single, None);
                    let version = read
                        .as_ref()
                        .map_or(FIRST_VERSION, |it| &it.version)
                        .to_owned();
                    let entry = PromptEntry {
                        place: self.root.join(single),
                        current: read.clone(),
                        versions: vec![(version, read)],
                        stale: None,
                        name: name.clone(),
                    };
                    self.entries.insert(name, entry);
                }
                (None, files) => {
                    let files = files.cloned().unwrap_or_default();
                    let entry = self.family(&name, &files);
                    self.entries.insert(name, entry);
                }
            }
        }
    }

    /// Holds the prompts that directories without a file are meant to be.
    fn empty_directories(&mut self) {
        let Ok(entries) = std::fs::read_dir(self.root) else {
            return;
        };
        let is_directory = |it: &std::fs::DirEntry| it.file_type().is_ok_and(|it| it.is_dir());
        let names = entries.flatten().filter(is_directory);
        let mut names: Vec<_> = names.map(|it| PathBuf::from(it.file_name())).collect();
        names.sort();
        for relative in names {
            let name = relative.to_string_lossy().into_owned();
            let has_files = self.listing.keys().any(|it| it.starts_with(&relative));
            if has_files || is_part(&relative) || name.starts_with('.') {
                continue;
            }
            let hint = "add a version, `NAME/VERSION.md`, or delete the directory";
            let problem = Problem::new(self.root.join(&relative), "there is no version", hint);
            match is_name(&name) {
                true if self.entries.contains_key(&name) => {}
                true => self.hold(&name, problem),
                false => self.problems.push(problem),
            }
        }
    }

    fn odd(&mut self, relative: &Path, what: impl Into<String>, hint: impl Into<String>) {
        let path = self.root.join(relative);
        self.problems.push(Problem::new(path, what, hint));
    }

    /// A prompt that is a directory of versions.
    fn family(&mut self, name: &str, files: &[PathBuf]) -> PromptEntry {
        let place = self.root.join(name);
        let mut versions = Vec::new();
        for file in files.iter().take(MAX_VERSIONS) {
            let stem = file.file_stem().map(|it| it.to_string_lossy().into_owned());
            let version = stem.unwrap_or_default();
            let read = match is_version(&version) {
                true => self.read(name, file, Some(&version)),
                false => {
                    let what = format!("`{version}` cannot be a version");
                    let hint = "rename it: letters, digits, `.`, `-`, `_` and `+`";
                    Err(Problem::new(self.root.join(file), what, hint))
                }
            };
            versions.push((version, read));
        }
        versions.sort_by(|(a, _), (b, _)| compare(a, b));
        let current = self.current(name, &place, &versions);
        let current = match files.len() > MAX_VERSIONS {
            false => current,
            true => {
                let what = format!("there are more than {MAX_VERSIONS} versions");
                Err(Problem::new(&place, what, "delete the oldest"))
            }
        };
        PromptEntry {
            name: name.to_owned(),
            place,
            versions,
            current,
            stale: None,
        }
    }

    /// The version that `current` names, else the highest.
    fn current(
        &mut self,
        name: &str,
        place: &Path,
        versions: &[(String, Result<Arc<PromptVersion>, Problem>)],
    ) -> Result<Arc<PromptVersion>, Problem> {
        let pin = Path::new(name).join(CURRENT);
        if self.listing.contains_key(&pin) {
            let pinned = self.text(&pin)?;
            let pinned = pinned.trim_start_matches('\u{feff}').trim();
            let mut versions = versions.iter();
            return match versions.find(|(version, _)| version == pinned) {
                Some((_, read)) => read.clone(),
                None => {
                    let what = format!(
                        "there is no version `{}`",
                        pinned.chars().take(64).collect::<String>()
                    );
                    let hint = "write the version of one of the files beside it, or delete the file, so that \
                                the highest is in force";
                    Err(Problem::new(self.root.join(pin), what, hint))
                }
            };
        }
        match versions.last() {
            Some((_, read)) => read.clone(),
            None => {
                let hint = "add a version, `NAME/VERSION.md`, or delete the directory";
                Err(Problem::new(place, "there is no version", hint))
            }
        }
    }

    fn text(&mut self, relative: &Path) -> Result<Arc<str>, Problem> {
        if let Some(read) = self.files.get(relative) {
            return read.clone();
        }
        let path = self.root.join(relative);
        let read = match self.listing.get(relative) {
            None => {
                let hint = "write the path of a file below the directory of the prompts whose name, or a \
                            directory of it, begins with `_`";
                Err(Problem::new(&path, "there is no such file", hint))
            }
            Some(entry) => match entry.place(self.root, relative, MAX_FILE_BYTES).read() {
                Err(error) => {
                    let hint = match error {
                        documents::ReadError::TooLarge { .. } => {
                            "shorten it, or include parts of it"
                        }
                        _ => "give the server's user the right to read it",
                    };
                    Err(Problem::new(&path, error.to_string(), hint))
                }
                Ok(read) => String::from_utf8(read.bytes)
                    .map(Arc::from)
                    .map_err(|error| {
                        let at = error.utf8_error().valid_up_to();
                        let what = format!("it is not UTF-8 from byte {at} on");
                        Problem::new(&path, what, "save the file as UTF-8")
                    }),
            },
        };
        self.files.insert(relative.to_owned(), read.clone());
        read
    }

    fn read(
        &mut self,
        name: &str,
        relative: &Path,
        version: Option<&str>,
    ) -> Result<Arc<PromptVersion>, Problem> {
        let path = self.root.join(relative);
        let source = self.text(relative)?;
        let parts = front::parse(&path, name, &source)?;
        if let (Some(own), Some(version)) = (&parts.version, version)
            && own != version
        {
            let what = format!("`version` is `{own}`, and the file's name says `{version}`");
            let problem = Problem::new(path, what, "rename the file, or correct `version`");
            return Err(problem.at(front::line_of(&source, "version")));
        }
        let version = version
            .or(parts.version.as_deref())
            .unwrap_or(FIRST_VERSION);
        let mut environment = environment();
        let mut includes = BTreeMap::new();
        for (_, text, line) in &parts.messages {
            self.include(&path, text, *line, &mut Vec::new(), &mut includes)?;
        }
        let bytes = source.len() + includes.values().map(|it| it.len()).sum::<usize>();
        if bytes > MAX_SOURCE_BYTES {
            let what =
                format!("with all that it includes it has more than {MAX_SOURCE_BYTES} bytes");
            return Err(Problem::new(path, what, "shorten what it includes"));
        }
        let broken = |place: &Path, error: &minijinja::Error, first: u64| {
            let line = error.line().map(|line| first + line as u64 - 1);
            let hint = "correct the template; its language is that of Jinja";
            Problem::new(place, what(error), hint).at(line)
        };
        for (included, text) in &includes {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            environment
                .add_template_owned(included.clone(), lines::kept(text, &includes))
                .map_err(|error| broken(&self.root.join(included), &error, 1))?;
        }
        let mut sections = Vec::new();
        for (index, (role, text, line)) in parts.messages.into_iter().enumerate() {
            // No include can have this name, which is no path.
            let template = format!("message {}", index + 1);
            environment
                .add_template_owned(template.clone(), lines::kept(&text, &includes))
                .map_err(|error| broken(&path, &error, line))?;
            sections.push(Section {
                role,
                template,
                line,
            });
        }
        let known: BTreeSet<&str> = parts.arguments.iter().map(|it| it.name.as_str()).collect();
        let globals: BTreeSet<&str> = environment.globals().map(|(name, _)| name).collect();
        for section in &sections {
            let Ok(template) = environment.get_template(&section.template) else {
                continue;
            };
            // What an include sets, or a loop around one, is not seen here; it is when it is filled in.
            let mut unknown: Vec<_> = template.undeclared_variables(false).into_iter().collect();
            unknown.retain(|it| !known.contains(it.as_str()) && !globals.contains(it.as_str()));
            unknown.sort();
            if let Some(unknown) = unknown.first()
                && includes
                    .values()
                    .all(|text| !text.contains(unknown.as_str()))
            {
                let what = format!("`{unknown}` is no argument");
                let meant = nearest_of(unknown, &mut known.iter().copied());
                let hint = match meant {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("declare it: `arguments: [{{name: {unknown}}}]`"),
                };
                let lines = source.lines().enumerate().skip(section.line as usize - 1);
                let line = lines
                    .into_iter()
                    .find(|(_, line)| line.contains(unknown.as_str()));
                let line = line.map(|(line, _)| line as u64 + 1);
                return Err(Problem::new(path, what, hint).at(line));
            }
        }
        let version = PromptVersion {
            name: name.to_owned(),
            version: version.to_owned(),
            title: parts.title,
            description: parts.description,
            category: parts.category,
            tags: parts.tags,
            author: parts.author,
            arguments: parts.arguments,
            digest: digest(relative, &source, &includes),
            includes: includes.into_keys().collect(),
            path: path.clone(),
            source,
            sections,
            environment,
        };
        match version.try_out() {
            Some(what) => {
                let place = format!("{}", path.display());
                let what = what.strip_prefix(&place).unwrap_or(&what);
                let what = what.trim_start_matches([':', ',', ' ']).to_owned();
                Err(Problem::new(path, what, "correct the template"))
            }
            None => Ok(Arc::new(version)),
        }
    }

    /// Collects what `text` includes, and what that does.
    fn include(
        &mut self,
        path: &Path,
        text: &str,
        first_line: u64,
        above: &mut Vec<String>,
        all: &mut BTreeMap<String, Arc<str>>,
    ) -> Result<(), Problem> {
        let names = included(text).map_err(|line| {
            let what = "the name of an included file must be one text in quotes";
            let hint = "write `{% include \"_file.md\" %}`; which files a prompt has is known before it is used";
            Problem::new(path, what, hint).at(Some(first_line + line - 1))
        })?;
        for (name, line) in names {
            let here = Some(first_line + line - 1);
            if above.contains(&name) {
                let what = format!("`{name}` includes itself: {} → {name}", above.join(" → "));
                return Err(Problem::new(path, what, "take one of these includes out").at(here));
            }
            let is_usable = is_part(Path::new(&name));
            if !is_usable || !self.listing.contains_key(Path::new(&name)) {
                let what = format!("it includes `{name}`, which is not there");
                let hint = "write the path of a file below the directory of the prompts whose name, or a \
                            directory of it, begins with `_`";
                return Err(Problem::new(path, what, hint).at(here));
            }
            if above.len() >= MAX_INCLUDE_DEPTH {
                let what =
                    format!("files include others more than {MAX_INCLUDE_DEPTH} levels deep");
                return Err(Problem::new(path, what, "put them together").at(here));
            }
            let source = self.text(Path::new(&name))?;
            all.insert(name.clone(), Arc::clone(&source));
            if all.len() > MAX_INCLUDES {
                let what = format!("it includes more than {MAX_INCLUDES} files");
                return Err(Problem::new(path, what, "put some of them together").at(here));
            }
            above.push(name.clone());
            let place = self.root.join(&name);
            self.include(&place, &source, 1, above, all)?;
            above.pop();
        }
        Ok(())
    }
}

/// True for files that prompts include: one of the names on the way begins with `_`.
fn is_part(relative: &Path) -> bool {
    let mut names = relative.components();
    names.any(|it| it.as_os_str().as_encoded_bytes().first() == Some(&b'_'))
}

/// The digest of a file, or, with what it includes, of the lines that `sha256sum` writes for all of them.
fn digest(relative: &Path, source: &str, includes: &BTreeMap<String, Arc<str>>) -> [u8; 32] {
    if includes.is_empty() {
        return Sha256::digest(source).into();
    }
    let own = relative.to_string_lossy();
    let files = includes.iter().map(|(name, text)| (name.as_str(), &**text));
    let mut lines = String::new();
    for (name, text) in std::iter::once((&*own, source)).chain(files) {
        let digest = HEXLOWER.encode(&Sha256::digest(text));
        let _ = writeln!(lines, "{digest}  {name}");
    }
    Sha256::digest(lines).into()
}
