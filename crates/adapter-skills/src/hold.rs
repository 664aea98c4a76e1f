//! Reasons for holding a tool back.

use crate::problem::Problem;
use std::path::Path;

/// Reason why a tool is held back: a rule, skill or setting that was to govern it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The problem, with the path and the line. For operators.
    pub problem: String,
    /// The cure, in one sentence.
    pub hint: &'static str,
}

impl Hold {
    pub(crate) fn new(problem: &Problem) -> Self {
        Self {
            problem: problem.to_string(),
            hint: problem.hint(),
        }
    }

    /// A directory that had skills and has nothing any more.
    pub(crate) fn of_emptied(root: &Path) -> Self {
        Self {
            problem: format!(
                "{}: the skills directory has become empty, as a volume does that is not mounted",
                root.display()
            ),
            hint: "mount it or put the skills back; if all of them are gone on purpose, leave a file such as \
                   README.md in the directory and send SIGHUP to the server",
        }
    }

    /// A skill that is gone without its rules being known.
    pub(crate) fn of_lost(path: &Path) -> Self {
        Self {
            problem: format!(
                "{}: the tool had this skill, which is gone, and its rules with it",
                path.display()
            ),
            hint: "put the skill back; if it is gone on purpose, send SIGHUP to the server, or remove \
                   the tool's line from the file beside the ledger whose name ends with \
                   `-skills.jsonl` and start the server again",
        }
    }
}
