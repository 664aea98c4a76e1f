//! Problems of a file or directory, for the person who maintains it.

use std::{error::Error, fmt, io, path::PathBuf};

use documents::{ReadError, WalkProblem};

use crate::{
    frontmatter::{BadField, FrontmatterError},
    host::Unmet,
    uri::{PathUriError, SKILL_FILE_NAME, SkillUri},
};

/// Problem that a scan met. All other skills are served all the same.
///
/// It names paths, so it is for operators and never for clients.
#[derive(Debug)]
pub struct Problem {
    /// The file or directory, below the skills directory as it was configured.
    pub path: PathBuf,
    /// The line in the file, counted from 1.
    pub line: Option<u64>,
    /// The column in the line, counted from 1.
    pub column: Option<u64>,
    /// Kind of the problem.
    pub kind: ProblemKind,
}

/// Severity of a problem: how much is not served because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file is served, but perhaps not as meant.
    Warning,
    /// A skill, or all of them, is not served.
    Error,
}

/// Kind of a problem.
#[derive(Debug, thiserror::Error)]
pub enum ProblemKind {
    /// The skills directory is not there, or is none.
    #[error("the skills directory cannot be opened")]
    NoDirectory(#[source] io::Error),
    /// A directory or the kind of an entry cannot be read.
    #[error("cannot be looked into")]
    Unlistable(#[source] io::Error),
    /// A file cannot be read.
    #[error("not served, because it cannot be read")]
    Unreadable(#[source] ReadError),
    /// A `SKILL.md` that is not UTF-8.
    #[error("not served, because it is not UTF-8 from byte {valid_up_to} on")]
    NotUtf8 {
        /// Bytes before the first bad one.
        valid_up_to: usize,
    },
    /// A directory, a pipe, a socket or a device named `SKILL.md`.
    #[error("not served, because it is not a regular file")]
    NotAFile,
    /// A file that is nearly called `SKILL.md`.
    #[error("not served, because a skill's file is called `SKILL.md`, in these letters")]
    Misspelt,
    /// A file that is probably meant as a `SKILL.md`, in a directory without one.
    #[error(
        "not served, because a skill's file is called `SKILL.md`; there is none in its directory"
    )]
    NearlyNamed,
    /// A `SKILL.md` that is hidden, or in a hidden directory.
    #[error("not served, because a name in its path begins with a dot")]
    Hidden,
    /// A symbolic link that leads outside of the skills directory, or nowhere.
    #[error("not followed, because the link does not lead to a place in the skills directory")]
    LinkOutside,
    /// A `SKILL.md` in the skills directory itself.
    #[error("not served, because the skills directory itself cannot be a skill")]
    SkillInRoot,
    /// No URI can name this path.
    #[error("not served, because the path has no URI")]
    NoUri(#[source] PathUriError),
    /// The front matter makes no skill.
    #[error("not served: {0}")]
    Frontmatter(FrontmatterError),
    /// A field of the front matter is not what it should be.
    #[error(transparent)]
    Field(BadField),
    /// The directory is named otherwise than the skill, which hosts of skills expect to be equal.
    #[error("the skill is named `{name}`, its directory is not")]
    OtherName {
        /// The name in the front matter.
        name: String,
    },
    /// Prerequisites are not met.
    #[error("not served, because {}", unmet.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unmet {
        /// At least one.
        unmet: Vec<Unmet>,
    },
    /// Another skill of this name comes first.
    #[error("not served, because the name `{name}` is taken by {}", kept.display())]
    DuplicateName {
        /// The name.
        name: String,
        /// The file that has it.
        kept: PathBuf,
    },
    /// Another skill with this URI comes first.
    #[error("not served, because {uri} is taken by {}", kept.display())]
    DuplicateUri {
        /// The URI.
        uri: SkillUri,
        /// The file that has it.
        kept: PathBuf,
    },
    /// Directories below are not looked into.
    #[error("not looked into, because it lies more than {max_depth} directories deep")]
    TooDeep {
        /// The bound.
        max_depth: usize,
    },
    /// The scan ended here.
    #[error("the scan ended here, after {max_entries} files and directories")]
    TooManyEntries {
        /// The bound.
        max_entries: usize,
    },
    /// Too many skills: the one named and those after it are not served.
    #[error("not served, nor are those after it, because there are more than {max_skills} skills")]
    TooManySkills {
        /// The bound.
        max_skills: usize,
    },
    /// Too many files of a skill: the one named and those after it are not served.
    #[error(
        "not served, nor are those after it, because the skill has more than {max_files} files"
    )]
    TooManyFiles {
        /// The bound.
        max_files: usize,
    },
    /// Too many bytes: the file named is not served.
    #[error("not served, because the skill's files have more than {max_bytes} bytes together")]
    TooManyBytes {
        /// The bound.
        max_bytes: u64,
    },
}

impl From<WalkProblem> for ProblemKind {
    fn from(problem: WalkProblem) -> Self {
        match problem {
            WalkProblem::NoDirectory(error) => Self::NoDirectory(error),
            WalkProblem::Unlistable(error) => Self::Unlistable(error),
            WalkProblem::NotAFile => Self::NotAFile,
            WalkProblem::LinkOutside => Self::LinkOutside,
            WalkProblem::Hidden => Self::Hidden,
            WalkProblem::TooDeep { max_depth } => Self::TooDeep { max_depth },
            WalkProblem::TooManyEntries { max_entries } => Self::TooManyEntries { max_entries },
        }
    }
}

impl Problem {
    pub(crate) fn new(path: impl Into<PathBuf>, kind: ProblemKind) -> Self {
        let position = match &kind {
            ProblemKind::Frontmatter(error) => error.position(),
            ProblemKind::Field(field) => field.line.map(|line| (line, None)),
            _ => None,
        };
        Self {
            path: path.into(),
            line: position.map(|(line, _)| line),
            column: position.and_then(|(_, column)| column),
            kind,
        }
    }

    /// True if a skill is lost or a tool is held back.
    #[must_use]
    pub fn severity(&self) -> Severity {
        let is_skill = self
            .path
            .file_name()
            .is_some_and(|it| it == SKILL_FILE_NAME);
        match self.kind {
            ProblemKind::NoDirectory(_)
            | ProblemKind::NotUtf8 { .. }
            | ProblemKind::SkillInRoot
            | ProblemKind::Frontmatter(_)
            | ProblemKind::Unmet { .. }
            | ProblemKind::DuplicateName { .. }
            | ProblemKind::DuplicateUri { .. }
            | ProblemKind::TooManyEntries { .. }
            | ProblemKind::Misspelt
            | ProblemKind::NearlyNamed
            | ProblemKind::Hidden
            | ProblemKind::TooManySkills { .. } => Severity::Error,
            ProblemKind::Field(ref field) if field.holds() => Severity::Error,
            ProblemKind::Unreadable(_) | ProblemKind::NoUri(_) | ProblemKind::NotAFile
                if is_skill =>
            {
                Severity::Error
            }
            ProblemKind::Unlistable(_)
            | ProblemKind::Unreadable(_)
            | ProblemKind::NotAFile
            | ProblemKind::LinkOutside
            | ProblemKind::NoUri(_)
            | ProblemKind::Field(_)
            | ProblemKind::OtherName { .. }
            | ProblemKind::TooDeep { .. }
            | ProblemKind::TooManyFiles { .. }
            | ProblemKind::TooManyBytes { .. } => Severity::Warning,
        }
    }

    /// Advice on what to do about it, in one sentence.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match &self.kind {
            ProblemKind::NoDirectory(_) => "create the directory, or configure another one",
            ProblemKind::Unlistable(_) | ProblemKind::Unreadable(ReadError::Io(_)) => {
                "give the server's user the right to read it"
            }
            ProblemKind::Unreadable(ReadError::TooLarge { .. }) => {
                "move long parts to files under `references/`"
            }
            ProblemKind::Unreadable(_) => "it changed during the scan; the next one decides",
            ProblemKind::NotUtf8 { .. } => "save the file as UTF-8",
            ProblemKind::Misspelt => "rename it to `SKILL.md`",
            ProblemKind::NearlyNamed => {
                "rename it to `SKILL.md`, or to a name that is less like it if it is no skill"
            }
            ProblemKind::Hidden => "take the dot away, or move it out of the skills directory",
            ProblemKind::NotAFile => "`SKILL.md` must be a regular file",
            ProblemKind::LinkOutside => "copy what it leads to into the skills directory",
            ProblemKind::SkillInRoot => {
                "move it into a directory of its own, or configure the directory above"
            }
            ProblemKind::NoUri(_) => {
                "rename it without control characters and backslashes, in UTF-8"
            }
            ProblemKind::Frontmatter(error) => error.hint(),
            ProblemKind::Field(_) => "correct the field, or remove it",
            ProblemKind::OtherName { .. } => {
                "give the directory and the skill one name, or hosts of skills are not told of it"
            }
            ProblemKind::Unmet { .. } => "provide what is missing and restart the server",
            ProblemKind::DuplicateName { .. } | ProblemKind::DuplicateUri { .. } => {
                "rename or remove one of the two"
            }
            ProblemKind::TooDeep { .. }
            | ProblemKind::TooManyEntries { .. }
            | ProblemKind::TooManySkills { .. } => {
                "configure a directory that holds skills and little else"
            }
            ProblemKind::TooManyFiles { .. } | ProblemKind::TooManyBytes { .. } => {
                "split the skill, or move large files out of it"
            }
        }
    }
}

impl Problem {
    /// True if the skills directory is not there.
    pub(crate) fn is_no_directory(&self) -> bool {
        matches!(self.kind, ProblemKind::NoDirectory(_))
    }

    /// True if skills may be missing whose names are not known.
    pub(crate) fn is_incomplete(&self) -> bool {
        matches!(
            self.kind,
            ProblemKind::Unlistable(_)
                | ProblemKind::TooDeep { .. }
                | ProblemKind::TooManyEntries { .. }
                | ProblemKind::TooManySkills { .. }
        )
    }
}

impl fmt::Display for Problem {
    /// `path:line:column: what`, as compilers do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl Error for Problem {
    /// The kind is said already, so what follows is its cause.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
    }
}
