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
