//! Parts of a configuration that a command uses: mistakes elsewhere do not stop it.

use crate::problem::{Problem, Severity};

/// Part of the configuration that must be correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// All of it, as for a server.
    Everything,
    /// Listed keys, with everything below and above them.
    Keys(&'static [&'static str]),
}

impl Needs {
    /// Returns true if a problem concerns a part that is needed.
    ///
    /// A problem without a key concerns every part: it is one of the file itself. So does an
    /// unknown key that was probably meant as a needed one: `ledgr.path` would lead an operator to
    /// another ledger than the server's.
    ///
    /// A mistake without a key spoils everything: it is one of the file itself. So does a key that
    /// nobody knows, if what is needed was probably meant by it: `ledgr.path` would lead an operator
    /// to another ledger than the server's.
    pub(crate) fn concerns(self, problem: &Problem) -> bool {
        let Self::Keys(needed) = self else {
            return true;
        };
        let Some(key) = &problem.key else {
            return true;
        };
        let keys = [Some(key), problem.meant.as_ref()];
        let mut keys = keys.into_iter().flatten();
        keys.any(|key| key.is_empty() || needed.iter().any(|it| is_on_the_way(key, it)))
    }

    /// Turns an error that concerns no needed part into a warning that says so.
    pub(crate) fn soften(self, problem: &mut Problem) {
        if problem.severity == Severity::Error && !self.concerns(problem) {
            problem.severity = Severity::Warning;
            problem.message += "; this command does not need it, but the server does not start";
        }
    }
}

/// Returns true if one of the two keys is at or below the other.
fn is_on_the_way(one: &str, other: &str) -> bool {
    let is_at = |long: &str, short: &str| {
        let rest = long.strip_prefix(short);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    is_at(one, other) || is_at(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    #[test]
    fn a_mistake_concerns_what_is_at_or_below_or_above_it() {
        let needs = Needs::Keys(&["ledger", "governance.approvals"]);
        let at = |key: &str| Problem::error(Origin::Default, "").key(key);
        for key in [
            "ledger",
            "ledger.path",
            "governance",
            "governance.approvals",
            "governance.approvals.http_token",
            "",
        ] {
            assert!(needs.concerns(&at(key)), "{key}");
        }
        for key in ["ledgers", "http.port", "governance.clients", "led"] {
            assert!(!needs.concerns(&at(key)), "{key}");
            assert!(Needs::Everything.concerns(&at(key)), "{key}");
        }
        assert!(needs.concerns(&Problem::error(Origin::Default, "")));
        assert!(needs.concerns(&at("ledgr.path").meant("ledger.path")));
        assert!(!needs.concerns(&at("htp.port").meant("http.port")));
    }
}
