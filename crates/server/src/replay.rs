//! Recent calls decided again, by the rules in force and by others, so that an operator sees what a change would have
//! done.
//!
//! Both sets of rules begin with the counters as they were, and count what they let happen: the calls that ran at their
//! recorded costs and durations. Nothing is called and nothing is recorded.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use adapter_tools::Tool;
use governance::{
    Ask, Check, Confirmation, Ending, Explanation, Governor, MemoryQuota, Micros, Permit, Policy,
    Seed, Step, StepOutcome, Timestamp,
};
use identity::{KeyFile, KeyFileError};
use ledger::{CallId, CallRecord, Cursor, Filter, Outcome, ReadLedger, UNKNOWN_CAPABILITY};
use mcp_server::{Offer, tool_capability};

use super::build::Server;
use super::ledger_use::kind_of;
use crate::Failure;

/// Calls that are read at once.
const PAGE: usize = 500;
/// Calls of which the differences are told; of further ones the number is.
const MAX_TOLD: usize = 500;
/// Beginning of what stands where a secret was.
const REDACTED: &str = "[redacted ";

/// Outcome of deciding recent calls again.
#[derive(Debug, Default)]
pub struct Replay {
    /// Calls that were decided again.
    pub calls: usize,
    /// Time at which the first of them began: microseconds since the epoch, UTC; 0 without any.
    pub first_us: u64,
    /// True if there were more in the time that was asked for, which are older.
    pub is_partial: bool,
    /// Number of calls that would be decided differently.
    pub different: usize,
    /// Calls that would be decided differently, the newest first; the last 500.
    pub differing: Vec<Differing>,
    /// Number of calls that cannot be told: a condition asks about arguments that are not whole on record.
    pub undecided: usize,
    /// Number of calls that the rules in force decide differently than is on record: other rules were in force then, or
    /// roles of tokens and certificates counted, which are not on record.
    pub unlike_record: usize,
    /// Number of calls of clients without an API key, whose roles are not on record and count for nothing here.
    pub without_roles: usize,
}

/// Call that would be decided differently.
#[derive(Debug, Clone)]
pub struct Differing {
    /// Name of the call.
    pub call: CallId,
    /// Time at which it began: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Client.
    pub principal: String,
    /// Capability, as `kind/name`.
    pub capability: String,
    /// Decision by the rules in force.
    pub before: Decided,
    /// Decision by the others.
    pub after: Decided,
}

/// Decision on a call, and the rule that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Decision.
    pub verdict: Verdict,
    /// Rule in words, where one refuses or asks for a confirmation.
    pub rule: Option<String>,
}

/// Decision of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Leave to happen.
    Allowed,
    /// Question to a person.
    ToBeConfirmed(Confirmation),
    /// Refusal for this reason.
    Refused(governance::Reason),
}

/// Fate of a call, by the record.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// Refusal.
    Refused,
    /// Refusal of its arguments.
    Invalid,
    /// Run that ended at this time (milliseconds), at this cost.
    Ran(u64, Micros, Ending),
}

/// Call on record.
struct Past {
    call: CallId,
    at_us: u64,
    principal: String,
    capability: String,
    kind: ledger::Kind,
    arguments: Option<String>,
    /// Arguments are as they were.
    is_whole: bool,
    fate: Fate,
}

impl Server {
    /// Decides the calls since `since_us` (microseconds since the epoch, UTC) again, at most the last `most` of them.
    /// Blocks the thread for seconds.
    ///
    /// # Errors
    ///
    /// When the ledger or the file of keys cannot be read.
    pub fn replay(
        &self,
        reader: &mut dyn ReadLedger,
        rules: &Arc<Policy>,
        since_us: u64,
        most: usize,
    ) -> Result<Replay, Failure> {
        let roles = self.roles_of_keys()?;
        let (calls, is_partial) = past(reader, since_us, most)?;
        let begin = match (is_partial, calls.last()) {
            (true, Some(first)) => first.at_us,
            _ => since_us,
        };
        let begin = Timestamp(begin / 1_000);
        let others = self.config.governance.max_clients;
        let side = |policy: &Arc<Policy>, reader: &mut dyn ReadLedger| {
            let quota = MemoryQuota::new(others);
            seed(reader, policy, &quota, begin)?;
            Ok::<_, Failure>(Side {
                governor: Governor::new(Arc::clone(policy), Arc::new(quota)),
                policy: Arc::clone(policy),
                running: BTreeMap::new(),
            })
        };
        let in_force = side(&self.policy(), reader)?;
        let other = side(rules, reader)?;
        let estimates = estimates(&self.offer());
        let mut replay = again(&calls, [in_force, other], &roles, &estimates);
        replay.is_partial = is_partial;
        Ok(replay)
    }

    /// Roles that API keys give, by their clients.
    fn roles_of_keys(&self) -> Result<HashMap<String, Vec<Arc<str>>>, Failure> {
        let mut roles: HashMap<String, Vec<Arc<str>>> = HashMap::new();
        let Some(keys) = &self.config.identity.api_keys else {
            return Ok(roles);
        };
        let records = match KeyFile::at(&keys.file).list() {
            Err(KeyFileError::Missing(_)) => Vec::new(),
            records => records?,
        };
        for record in records {
            let known = roles.entry(record.principal).or_default();
            for role in record.roles {
                let role: Arc<str> = role.into();
                if !known.contains(&role) {
                    known.push(role);
                }
            }
        }
        Ok(roles)
    }
}

/// Expected costs that tools state themselves, by their capabilities.
fn estimates(offer: &Offer) -> HashMap<String, Micros> {
    let tools = offer.tools().iter();
    let stated = |tool: &Tool| {
        let estimate = tool.estimated_cost_micros()?;
        Some((tool_capability(tool.name()), Micros(estimate)))
    };
    tools.filter_map(stated).collect()
}

/// Calls since a time, the newest first, and whether there were more than `most`.
fn past(
    reader: &mut dyn ReadLedger,
    since_us: u64,
    most: usize,
) -> Result<(Vec<Past>, bool), Failure> {
    let mut found = Vec::new();
    let mut before: Option<Cursor> = None;
    // Calls that nothing is decided of are read as well.
    let mut left = most.saturating_mul(4).max(PAGE);
    loop {
        let filter = Filter {
            since_us: Some(since_us),
            before,
            ..Filter::default()
        };
        let page = reader.recent(PAGE, filter)?;
        before = page.last().map(CallRecord::cursor);
        let is_last = page.len() < PAGE;
        for past in page.into_iter().filter_map(Past::of) {
            if found.len() == most {
                return Ok((found, true));
            }
            found.push(past);
        }
        if is_last {
            return Ok((found, false));
        }
        left = left.saturating_sub(PAGE);
        if left == 0 {
            return Ok((found, true));
        }
    }
}

impl Past {
    /// A call that rules decide on; `None` for others.
    fn of(record: CallRecord) -> Option<Self> {
        let CallRecord {
            call,
            started,
            ended,
            ..
        } = record;
        // What clients do to tasks, and answers that are told again, are not decided on.
        if started.replay_of.is_some() || started.capability.starts_with("task/") {
            return None;
        }
        let end_of = |micros: u64| (started.at_us + micros) / 1_000;
        let fate = match &ended {
            // It runs, or nobody knows when it ended.
            None => Fate::Ran(
                u64::MAX,
                Micros(started.estimated_cost_micros),
                Ending::GivenUp,
            ),
            Some(ended) => {
                let ran = |ending| {
                    let cost = Micros(ended.cost_micros);
                    Fate::Ran(end_of(ended.duration_us), cost, ending)
                };
                match &ended.outcome {
                    Outcome::Denied { reason } if reason == UNKNOWN_CAPABILITY => return None,
                    Outcome::Denied { .. } => Fate::Refused,
                    Outcome::Invalid => Fate::Invalid,
                    Outcome::Succeeded => ran(Ending::Succeeded),
                    Outcome::Failed | Outcome::TimedOut => ran(Ending::Failed),
                    Outcome::Cancelled | Outcome::Abandoned | Outcome::Unknown => {
                        ran(Ending::GivenUp)
                    }
                }
            }
        };
        let text = started.arguments.text;
        let is_cut = started.arguments.cut.is_some();
        Some(Self {
            call,
            at_us: started.at_us,
            principal: started.principal,
            capability: started.capability,
            kind: started.kind,
            is_whole: !is_cut && !text.contains(REDACTED),
            arguments: (!is_cut && !text.is_empty()).then_some(text),
            fate,
        })
    }
}

/// Counts use before `begin`, as a server that starts then does.
fn seed(
    reader: &mut dyn ReadLedger,
    policy: &Policy,
    quota: &MemoryQuota,
    begin: Timestamp,
) -> Result<(), Failure> {
    let month = policy.calendar().month_of(begin).start;
    let mut usage = Vec::new();
    for interval in policy.seed_intervals(begin, month) {
        let (from, until) = (interval.from.0, interval.until.0.min(begin.0));
        if from < until {
            let between = from * 1_000..until * 1_000;
            usage.extend(reader.usage_between(between, interval.resolution)?);
        }
    }
    usage.retain(|used| !used.capability.starts_with("task/"));
    let seeds = usage.iter().map(|used| Seed {
        principal: &used.principal,
        capability: &used.capability,
        kind: kind_of(used),
        at: Timestamp(used.latest_us / 1_000),
        calls: u32::try_from(used.calls).unwrap_or(u32::MAX),
        cost: Micros(used.cost_micros),
        dearest: Micros(used.dearest_micros),
    });
    quota.seed(policy, begin, seeds);
    Ok(())
}

/// A set of rules, and what it has let happen.
struct Side {
    governor: Governor<MemoryQuota>,
    policy: Arc<Policy>,
    /// Calls that run, by their ends and their numbers.
    running: BTreeMap<(u64, usize), (Permit<MemoryQuota>, Micros, Ending)>,
}

impl Side {
    /// Decides on a call, and counts it if it happens.
    fn decide(&mut self, number: usize, ask: Ask<'_>, fate: Fate) -> Decided {
        while let Some(first) = self.running.first_entry()
            && first.key().0 <= ask.now.0
        {
            let ((end, _), (permit, cost, ending)) = first.remove_entry();
            permit.settle(cost, ending, Timestamp(end));
        }
        let permit = match self.governor.admit_now(ask) {
            Ok(permit) => permit,
            Err(denial) => {
                return Decided {
                    verdict: Verdict::Refused(denial.reason),
                    rule: None,
                };
            }
        };
        let decided = Decided {
            verdict: match permit.confirmation() {
                Some(who) => Verdict::ToBeConfirmed(who),
                None => Verdict::Allowed,
            },
            rule: permit.confirmation_rule().map(str::to_owned),
        };
        match (fate, decided.verdict) {
            (Fate::Ran(end, cost, ending), _) => {
                self.running.insert((end, number), (permit, cost, ending));
            }
            (Fate::Invalid, _) => {
                permit.settle_at_zero();
            }
            // Nobody knows whether somebody would have confirmed it.
            (Fate::Refused, Verdict::ToBeConfirmed(_)) => permit.release(),
            // It would have run, at what it was expected to cost.
            (Fate::Refused, _) => drop(permit),
        }
        decided
    }

    /// The rule that refuses a call, for which nothing was counted.
    fn refusing(&self, ask: Ask<'_>) -> Option<String> {
        let Explanation { steps, .. } = self.governor.explain_now(ask);
        let mut steps = steps.into_iter();
        let refused = steps.find(|it| matches!(it.outcome, StepOutcome::Refused(_)))?;
        Some(format!("{}: {}", refused.check, refused.rule))
    }

    /// True if a condition is about the call.
    fn has_condition(&self, ask: Ask<'_>) -> bool {
        let is_condition = |step: &Step| step.check == Check::Condition;
        self.policy.explain(ask).iter().any(is_condition)
    }
}

/// Decides calls, the newest of which comes first, in their order: by the rules in force, and by others.
fn again(
    calls: &[Past],
    [mut in_force, mut other]: [Side; 2],
    roles: &HashMap<String, Vec<Arc<str>>>,
    estimates: &HashMap<String, Micros>,
) -> Replay {
    let mut replay = Replay {
        calls: calls.len(),
        first_us: calls.last().map_or(0, |it| it.at_us),
        ..Replay::default()
    };
    for (number, past) in calls.iter().rev().enumerate() {
        let known = roles.get(&past.principal);
        replay.without_roles += usize::from(known.is_none());
        let ask = Ask {
            principal: &past.principal,
            roles: known.map_or(&[], Vec::as_slice),
            capability: &past.capability,
            kind: match past.kind {
                ledger::Kind::Tool => governance::Kind::Tool,
                ledger::Kind::Resource | ledger::Kind::Other => governance::Kind::Resource,
            },
            estimate: estimates.get(&past.capability).copied(),
            now: Timestamp(past.at_us / 1_000),
            arguments: past.arguments.as_deref(),
        };
        let mut before = in_force.decide(number, ask, past.fate);
        let mut after = other.decide(number, ask, past.fate);
        if !past.is_whole && (in_force.has_condition(ask) || other.has_condition(ask)) {
            replay.undecided += 1;
            continue;
        }
        let may = !matches!(before.verdict, Verdict::Refused(_));
        replay.unlike_record += usize::from(match past.fate {
            Fate::Refused => before.verdict == Verdict::Allowed,
            Fate::Invalid | Fate::Ran(..) => !may,
        });
        if before.verdict == after.verdict {
            continue;
        }
        replay.different += 1;
        for (side, decided) in [(&in_force, &mut before), (&other, &mut after)] {
            if matches!(decided.verdict, Verdict::Refused(_)) {
                decided.rule = side.refusing(ask);
            }
        }
        if replay.differing.len() == MAX_TOLD {
            replay.differing.remove(0);
        }
        replay.differing.push(Differing {
            call: past.call,
            at_us: past.at_us,
            principal: past.principal.clone(),
            capability: past.capability.clone(),
            before,
            after,
        });
    }
    replay.differing.reverse();
    replay
}

#[cfg(test)]
mod tests {
    use super::*;
    use governance::PolicySpec;
    use serde_json::json;

    const MINUTE_US: u64 = 60_000_000;

    fn side(rules: serde_json::Value) -> Side {
        let spec: PolicySpec = serde_json::from_value(rules).unwrap();
        let policy = Arc::new(Policy::new(spec).unwrap());
        let quota = Arc::new(MemoryQuota::default());
        Side {
            governor: Governor::new(Arc::clone(&policy), quota),
            policy,
            running: BTreeMap::new(),
        }
    }

    /// Rules that allow everything.
    fn all() -> serde_json::Value {
        json!({"default": {"tools": {"allow": ["*"]}}})
    }

    /// A call that begins so many seconds into the day and runs for one.
    fn call(second: u64, tool: &str, arguments: &str) -> Past {
        let at_us = 1_700_000_000_000_000 + second * 1_000_000;
        Past {
            call: CallId::new(at_us),
            at_us,
            principal: "ana".to_owned(),
            capability: format!("tool/{tool}"),
            kind: ledger::Kind::Tool,
            is_whole: !arguments.contains(REDACTED),
            arguments: Some(arguments.to_owned()),
            fate: Fate::Ran(at_us / 1_000 + 1_000, Micros::units(1), Ending::Succeeded),
        }
    }

    fn replayed(calls: &[Past], before: serde_json::Value, after: serde_json::Value) -> Replay {
        let (roles, estimates) = (HashMap::new(), HashMap::new());
        again(calls, [side(before), side(after)], &roles, &estimates)
    }

    #[test]
    fn what_other_rules_would_refuse_or_ask_about_is_told_with_the_rule() {
        let calls = [
            call(20, "pay", "{}"),
            call(10, "look", "{}"),
            call(0, "pay", "{}"),
        ];
        let replay = replayed(
            &calls,
            all(),
            json!({"default": {"tools": {"deny": ["pay"]}}, "confirm": ["look"]}),
        );
        assert_eq!(
            (replay.calls, replay.different, replay.unlike_record),
            (3, 3, 0)
        );
        let told: Vec<_> = replay.differing.iter().map(|it| &*it.capability).collect();
        assert_eq!(told, ["tool/pay", "tool/look", "tool/pay"]);
        let refused = &replay.differing[0].after;
        assert_eq!(
            refused.verdict,
            Verdict::Refused(governance::Reason::Permission)
        );
        assert!(
            refused.rule.as_ref().unwrap().contains("\"tool/pay\""),
            "{refused:?}"
        );
        let asked = &replay.differing[1].after;
        assert_eq!(asked.verdict, Verdict::ToBeConfirmed(Confirmation::User));
        assert!(asked.rule.as_ref().unwrap().contains("look"), "{asked:?}");
        assert_eq!(replay.differing[0].before.verdict, Verdict::Allowed);
    }

    #[test]
    fn limits_count_what_the_rules_let_happen_before() {
        // Two a minute: of five calls within a minute the last three are too many, and a minute later one is not.
        let mut calls: Vec<_> = (0..5).map(|it| call(it * 5, "look", "{}")).collect();
        calls.push(call(90, "look", "{}"));
        calls.reverse();
        let replay = replayed(
            &calls,
            all(),
            json!({"default_quota": {"max_calls_per_minute": 2}}),
        );
        assert_eq!(replay.different, 3, "{replay:?}");
        for differing in &replay.differing {
            let reason = governance::Reason::RateMinute;
            assert_eq!(differing.after.verdict, Verdict::Refused(reason));
            assert!(differing.at_us < calls[0].at_us - MINUTE_US / 2);
            let rule = differing.after.rule.as_ref().unwrap();
            assert!(rule.contains("0 of 2"), "{rule}");
        }
        // A budget counts recorded costs, and the cost of what it refuses is not spent.
        let replay = replayed(
            &calls,
            all(),
            json!({"default_quota": {"monthly_budget": 2.5}}),
        );
        assert_eq!(replay.different, 4, "{replay:?}");
    }

    #[test]
    fn conditions_on_arguments_that_are_not_whole_are_not_guessed() {
        let condition = json!({"conditions": {"large": {
            "tool": "pay", "when": "args.amount > 100", "effect": "deny",
        }}});
        let calls = [
            call(2, "pay", r#"{"amount": 500}"#),
            call(1, "pay", r#"{"amount": "[redacted secret 0123]"}"#),
            call(0, "pay", r#"{"amount": 5}"#),
        ];
        let replay = replayed(&calls, all(), condition);
        assert_eq!((replay.different, replay.undecided), (1, 1), "{replay:?}");
        let rule = replay.differing[0].after.rule.clone().unwrap();
        assert!(rule.contains("large"), "{rule}");
    }

    #[test]
    fn a_refusal_that_the_rules_in_force_do_not_explain_is_counted() {
        let mut refused = call(0, "look", "{}");
        refused.fate = Fate::Refused;
        let replay = replayed(&[refused], all(), all());
        assert_eq!((replay.unlike_record, replay.different), (1, 0));
    }
}
