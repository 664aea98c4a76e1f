//! Calls that wait for a person's decision.

use std::fs;

use ledger::{
    Approval, ApprovalFilter, ApprovalId, ApprovalState, Decision, MAX_REASON_BYTES, ReadLedger,
    Verdict, system_now_us,
};

use super::lookup::told;
use super::sheet::Sheet;
use super::{desk, rows};
use crate::request::{ReportFormat, RowsFormat, StateName, Whose};
use config::Config;
use server::Failure;
use server::open_reader;

/// The longest that a name may be.
const MAX_BY_BYTES: usize = 256;
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
    let now_us = system_now_us();
    let found = approvals(&mut *reader, who, state, limit, now_us)?;
    let sheet = Sheet {
        columns: rows::APPROVAL,
        shown: &rows::APPROVAL_SHOWN,
        rows: found.iter().map(|it| rows::approval(it, now_us)).collect(),
    };
    Ok(sheet.print(format)?)
}

/// Approvals in a state as of `now_us`, the last that was asked for first, `limit` of them at most.
///
/// # Errors
///
/// When the ledger cannot be read.
pub fn approvals(
    reader: &mut dyn ReadLedger,
    who: &Whose,
    state: StateName,
    limit: usize,
    now_us: u64,
) -> Result<Vec<Approval>, Failure> {
    let capability = who.capability();
    let wanted = state.state();
    let filter = ApprovalFilter {
        principal: who.client.as_deref(),
        capability: capability.as_deref(),
        // What has run out may not say so itself yet.
        state: wanted.filter(|state| *state != ApprovalState::Expired),
        ..ApprovalFilter::default()
    };
    let mut found = reader.approvals(MAX_LOOKED_THROUGH, filter)?;
    found.retain(|it| wanted.is_none_or(|state| it.state_at(now_us) == state));
    found.truncate(limit);
    Ok(found)
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
    Ok(told(rows::APPROVAL, &row, format))
}

/// `approvals approve`, `approvals deny` and `approvals revoke`.
pub(crate) fn decide(
    config: &Config,
    id: ApprovalId,
    decision: Decision,
    by: &str,
    reason: Option<&str>,
    format: ReportFormat,
) -> Result<String, Failure> {
    let (by, reason) = who_and_why(by, reason)?;
    let verdict = Verdict {
        proof: Some(proof()),
        reason,
        ..Verdict::new(decision, by, system_now_us())
    };
    let decided = desk::decide(config, id, &verdict)?;
    let row = rows::approval(&decided, system_now_us());
    Ok(told(rows::APPROVAL, &row, format))
}

/// Name of the system's user that runs this command; `--by` proves nothing.
fn proof() -> String {
    let (name, user) = os_user();
    let name = name.map(|name| format!("{name}, ")).unwrap_or_default();
    format!("command line, name unproven; OS user {name}uid {user}")
}

/// The system's user that runs this process: its name, where it has one, and its number.
#[must_use]
pub fn os_user() -> (Option<String>, u32) {
    let user = rustix::process::getuid().as_raw();
    let names = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = names.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then_some(name)
    });
    (name.map(str::to_owned), user)
}

/// A name, and a reason of one line.
fn who_and_why(by: &str, reason: Option<&str>) -> Result<(String, Option<String>), Failure> {
    let has_control = |text: &str| text.chars().any(char::is_control);
    if by.trim().is_empty() || by.contains(':') || has_control(by) {
        // `user:` is how the ledger calls persons at clients.
        return Err("--by must be a name without a colon".into());
    }
    if by == "user" {
        return Err("--by must be the name of a person".into());
    }
    if MAX_BY_BYTES < by.len() {
        return Err(format!("--by has more than {MAX_BY_BYTES} bytes").into());
    }
    match reason.map(str::trim) {
        Some(reason) if has_control(reason) => Err("--reason must be one line".into()),
        Some(reason) if MAX_REASON_BYTES < reason.len() => {
            Err(format!("--reason has more than {MAX_REASON_BYTES} bytes").into())
        }
        reason => Ok((by.trim().to_owned(), reason.map(str::to_owned))),
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
            Self::Revoked => ApprovalState::Revoked,
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
            ("ana", None, Some(("ana", None))),
            (
                " ana ",
                Some(" called: back "),
                Some(("ana", Some("called: back"))),
            ),
            ("user", Some("x"), None),
            ("user:bob", None, None),
            ("", None, None),
            ("a\nb", None, None),
            ("ana", Some("a\u{1b}b"), None),
        ];
        for (by, reason, expected) in rows {
            let found = who_and_why(by, reason).ok();
            let found = found
                .as_ref()
                .map(|(by, why)| (by.as_str(), why.as_deref()));
            assert_eq!(found, expected, "{by:?} {reason:?}");
        }
        assert!(who_and_why("ana", Some(&"x".repeat(MAX_REASON_BYTES + 1))).is_err());
        assert!(who_and_why(&"x".repeat(MAX_BY_BYTES + 1), None).is_err());
    }

    #[test]
    fn the_deciders_user_name_comes_from_the_operating_system() {
        let user = rustix::process::getuid().as_raw();
        assert!(proof().ends_with(&format!("uid {user}")), "{}", proof());
        assert!(proof().contains("unproven"));
    }
}
