//! Problems of files, for the person who maintains them.

use std::{error::Error, fmt, path::PathBuf};

/// Reason why a file is not what its author meant. It names paths, so it is for operators and never for
/// clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file or directory.
    pub path: PathBuf,
    /// The line in the file, counted from 1, where known.
    pub line: Option<u64>,
    /// Description of what is wrong.
    pub what: String,
    /// The cure, in one sentence.
    pub hint: String,
}

impl Problem {
    pub(crate) fn new(
        path: impl Into<PathBuf>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            line: None,
            what: what.into(),
            hint: hint.into(),
        }
    }

    pub(crate) fn at(self, line: Option<u64>) -> Self {
        Self { line, ..self }
    }
}

impl fmt::Display for Problem {
    /// `path:line: what`, as compilers do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl Error for Problem {}
