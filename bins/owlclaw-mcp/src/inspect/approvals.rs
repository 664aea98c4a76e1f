//! Calls that wait until somebody decides.

use ledger::{ApprovalFilter, ApprovalId, ApprovalState, Decision, system_now_us};

use super::lookup::told;
use super::sheet::Sheet;
use super::{desk, rows};
use crate::Failure;
use crate::cli::{ReportFormat, RowsFormat, StateName, Whose};
use crate::config::Config;
use crate::serve::open_reader;

/// The longest that a name and a reason together may be.
const MAX_BY_BYTES: usize = 512;
/// Approvals that are looked through for those of a state.
const MAX_LOOKED_THROUGH: usize = 100_000;

/// `approvals list`.
pub(crate) fn list(
    config: &Config,
    who: &Whose,
    state: StateName,
    limit: usize,
    format: RowsFormat,
) -> Result<String, Failure> {
    let mut reader = open_reader(config)?;
    let capability = who.capability();
    let wanted = state.state();
    let filter = ApprovalFilter {
        principal: who.client.as_deref(),
        capability: capability.as_deref(),
        // What has run out may not say so itself yet.
        state: wanted.filter(|state| *state != ApprovalState::Expired),
        ..ApprovalFilter::default()
    };
    let now_us = system_now_us();
    let found = reader.approvals(MAX_LOOKED_THROUGH, filter)?;
    let found = found
        .iter()
        .filter(|it| wanted.is_none_or(|state| it.state_at(now_us) == state));
    let sheet = Sheet {
        columns: &rows::APPROVAL,
        shown: &rows::APPROVAL_SHOWN,
        rows: found
            .take(limit)
            .map(|it| rows::approval(it, now_us))
            .collect(),
    };
    Ok(sheet.print(format)?)
}

/// `approvals show`.
pub(crate) fn show(
    config: &Config,
    id: ApprovalId,
    format: ReportFormat,
) -> Result<String, Failure> {
    let found = open_reader(config)?.approval(id)?;
    let found = found.ok_or_else(|| format!("the ledger has no approval {id}"))?;
    let row = rows::approval(&found, system_now_us());
    Ok(told(&rows::APPROVAL, &row, format))
}

/// `approvals approve` and `approvals deny`.
pub(crate) fn decide(
    config: &Config,
    id: ApprovalId,
    decision: Decision,
    by: &str,
    reason: Option<&str>,
    format: ReportFormat,
) -> Result<String, Failure> {
    let by = who_and_why(by, reason)?;
    let decided = desk::decide(config, id, decision, &by)?;
    let row = rows::approval(&decided, system_now_us());
    Ok(told(&rows::APPROVAL, &row, format))
}

/// `NAME`, or `NAME: REASON`.
fn who_and_why(by: &str, reason: Option<&str>) -> Result<String, Failure> {
    let has_control = |text: &str| text.chars().any(char::is_control);
    if by.trim().is_empty() || by.contains(':') || has_control(by) {
        // A colon ends the name, and `user:` is how the ledger calls persons at clients.
        return Err("--by must be a name without a colon".into());
    }
    if by == "user" {
        return Err("--by must be the name of a person".into());
    }
    let by = match reason {
        Some(reason) if has_control(reason) => return Err("--reason must be one line".into()),
        Some(reason) => format!("{}: {}", by.trim(), reason.trim()),
        None => by.trim().to_owned(),
    };
    match by.len() <= MAX_BY_BYTES {
        true => Ok(by),
        false => Err(format!("--by and --reason have more than {MAX_BY_BYTES} bytes").into()),
    }
}

impl StateName {
    fn state(self) -> Option<ApprovalState> {
        Some(match self {
            Self::Pending => ApprovalState::Pending,
            Self::Approved => ApprovalState::Approved,
            Self::Denied => ApprovalState::Denied,
            Self::Used => ApprovalState::Used,
            Self::Expired => ApprovalState::Expired,
            Self::All => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_decides_is_a_name_and_nobody_at_a_client() {
        let rows = [
            ("ana", None, Some("ana")),
            (" ana ", Some(" called back "), Some("ana: called back")),
            ("user", Some("x"), None),
            ("user:bob", None, None),
            ("", None, None),
            ("a\nb", None, None),
            ("ana", Some("a\u{1b}b"), None),
        ];
        for (by, reason, expected) in rows {
            let found = who_and_why(by, reason).ok();
            assert_eq!(found.as_deref(), expected, "{by:?} {reason:?}");
        }
        assert!(who_and_why("ana", Some(&"x".repeat(MAX_BY_BYTES))).is_err());
    }
}
