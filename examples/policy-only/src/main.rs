//! A policy read from YAML that decides about calls and explains what it decides, without a server:
//! of OwlClaw, `governance` is all that is needed.

use governance::{Ask, Ending, Governor, MemoryQuota, Policy, PolicySpec, Timestamp};
use std::{
    error::Error,
    fmt::Write as _,
    io::{self, Write as _},
    sync::Arc,
};

const POLICY: &str = include_str!("../policy.yaml");

fn main() -> Result<(), Box<dyn Error>> {
    io::stdout().write_all(decisions()?.as_bytes())?;
    Ok(())
}

/// Decisions about some calls, a second apart, and an explanation of the last.
fn decisions() -> Result<String, Box<dyn Error>> {
    let spec: PolicySpec = serde_saphyr::from_str(POLICY)?;
    let governor = Governor::new(Policy::new(spec)?, Arc::new(MemoryQuota::default()));
    let calls = [
        ("bob", "tool/stock-count"),
        ("bob", "tool/stock-write-off"),
        ("bob", "tool/pay-in"),
        ("anna", "tool/pay-in"),
        ("anna", "tool/pay-in"),
        ("anna", "tool/pay-out"),
    ];
    let mut out = String::new();
    // 2026-11-23T09:00:00Z. A server reads its clock here.
    let mut now = Timestamp(1_795_424_400_000);
    for (principal, tool) in calls {
        write!(out, "{principal} {tool}: ")?;
        match governor.admit_now(Ask::new(principal, tool, now)) {
            Ok(permit) => match permit.confirmation() {
                Some(who) => {
                    // Nothing may begin, and nothing is charged, until somebody has confirmed it.
                    permit.release();
                    writeln!(out, "to be confirmed ({who})")?;
                }
                None => {
                    // Here the tool runs.
                    let cost = permit.reserved();
                    let left = permit.settle(cost, Ending::Succeeded, now).remaining;
                    let left = left.budget.unwrap_or_default();
                    writeln!(out, "admitted for {cost}, which leaves {left}")?;
                }
            },
            Err(denial) => writeln!(out, "refused: {denial}")?,
        }
        now.0 += 1_000;
    }
    for step in governor
        .explain_now(Ask::new("anna", "tool/pay-out", now))
        .steps
    {
        writeln!(out, "  {}: {}: {}", step.check, step.outcome, step.rule)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_decides_and_explains() {
        let expected = include_str!("../output.txt");
        assert_eq!(decisions().expect("the policy can be used"), expected);
    }

    /// Read by a YAML reader, a file is as strict as in a server: what was lost opens nothing.
    #[test]
    fn mistakes_in_yaml_are_refused_with_their_line() {
        let rows = [
            ("{}", "the policy is empty"),
            ("", "unexpected end of input"),
            ("default:\n", "line 1 column"),
            ("default:\n  tools:\n    deny:\n", "line 3 column"),
            ("clients:\n  anna:\n    tools: ~\n", "line 3 column"),
            ("clients:\n  anna:\n", "line 2 column"),
            (
                "currency: EUR\nclient: {}\n",
                "line 2 column 1: unknown field `client`",
            ),
            (
                "confirm: [x]\nconfirm: []\n",
                "line 2 column 1: duplicate mapping key",
            ),
            (
                "clients:\n  anna:\n    roles: [teller]\n",
                "`clients.anna.roles`: there is no role `teller`; roles are described under `roles`",
            ),
            (
                "default_quota:\n  monthly_budget: 9007199254.740993\n",
                "write an amount as large as this in quotes",
            ),
        ];
        for (text, expected) in rows {
            let error = serde_saphyr::from_str::<PolicySpec>(text).expect_err(text);
            let error = error.to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    /// CEL is asked, or the policy refused; a condition is never left out.
    #[test]
    fn conditions_need_their_feature() {
        let text = "conditions:\n  large: { tool: 'pay-*', when: args.amount > 500 }\n";
        let read = serde_saphyr::from_str::<PolicySpec>(text);
        assert_eq!(read.is_ok(), cfg!(feature = "conditions"));
        let Ok(spec) = read else {
            return;
        };
        let policy = Policy::new(spec).expect("it is sound");
        let ask = Ask::new("anna", "tool/pay-in", Timestamp(0));
        assert!(policy.check(ask.with_arguments(r#"{"amount": 5}"#)).is_ok());
        assert!(
            policy
                .check(ask.with_arguments(r#"{"amount": 501}"#))
                .is_err()
        );
        assert!(policy.check(ask).is_err(), "without an amount");
    }
}
