//! The table of failures: code, ledger, charge, metric, log, breaker, idempotency key and span of
//! each. `docs/errors.md` has the same table.

use crate::{
    filter::{FilterRefusal, Phase},
    invocation::{
        refusal::{BadKey, KeyTaken, TooGrave, Unconfirmed},
        verdict::{Ended, Severity},
    },
    offer::{prompts::PromptFailure, resources::ReadFailure},
};
use adapter_tools::{InvalidArguments, ToolError};
use governance::{Denial, Ending, Reason};
use ledger::{CallId, Outcome, RecordError, UNKNOWN_CAPABILITY};
use std::time::Duration;

/// Words for a call that asks in the last round that it may have.
pub(crate) const ASKS_FOR_EVER: &str = "the call asks again and again";

/// A failure of an invocation, before it is decided who is told what.
///
/// The ledger records it as it is. What a client is told of it depends on its revision.
#[derive(Debug, thiserror::Error)]
pub enum InvocationError {
    /// No such tool or resource exists.
    #[error("there is no such capability")]
    Unknown,
    /// Governance refused.
    #[error("refused")]
    Denied(#[source] Denial),
    /// The ledger cannot be written, so nothing was done.
    #[error("the call cannot be recorded")]
    Unrecorded(#[source] RecordError),
    /// A confirmation is needed and missing, so nothing was done.
    #[error("not confirmed")]
    Unconfirmed(#[source] Box<Unconfirmed>),
    /// The idempotency key cannot be used, so nothing was done.
    #[error("the idempotency key cannot be used")]
    BadKey(#[source] BadKey),
    /// The idempotency key is taken, so nothing was done.
    #[error("not done again")]
    KeyTaken(#[source] Box<KeyTaken>),
    /// The call came through a tool of the search view that makes none of such effect, so nothing was done.
    #[error("called by the wrong tool")]
    TooGrave(#[source] TooGrave),
    /// A filter has refused the call, so nothing was done, or withholds its result.
    #[error("filtered")]
    Filtered(#[source] Box<FilterRefusal>),
    /// The arguments do not fit the tool's schema, so nothing was done.
    #[error("the arguments do not fit")]
    Invalid(#[source] InvalidArguments),
    /// The deadline passed before the call had ended.
    #[error("not done within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The call has asked in every round that it may have.
    #[error("{ASKS_FOR_EVER}")]
    AsksForEver,
    /// The server stopped before the call had ended; it may have been done if it had begun.
    #[error("the server stopped before the call had ended")]
    Stopped {
        /// Name of the call in the ledger, unless it has not begun or runs without a record.
        call: Option<CallId>,
        /// False if it has waited to be confirmed, so that nothing was done.
        has_begun: bool,
    },
    /// The tool failed, or could not run.
    #[error("the tool did not answer")]
    Tool(#[source] ToolError),
    /// The resource cannot be read.
    #[error("the resource cannot be read")]
    Read(#[source] ReadFailure),
    /// The prompt cannot be filled in.
    #[error("the prompt cannot be filled in")]
    Prompt(#[source] PromptFailure),
}

/// The founding codes (R9).
pub(crate) const TOOL_NOT_FOUND: i32 = -32001;
pub(crate) const RESOURCE_NOT_FOUND: i32 = -32002;
pub(crate) const DENIED: i32 = -32003;
pub(crate) const TIMED_OUT: i32 = -32004;
pub(crate) const FAILED: i32 = -32005;
pub(crate) const INVALID_PARAMS: i32 = -32602;
pub(crate) const INTERNAL: i32 = -32603;

/// Cost of a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    /// No charge, and the call does not count: all that was reserved for it is given back.
    Released,
    /// No charge, and the call counts.
    Nothing,
    /// The metered cost, or else the estimate.
    Estimate,
}

/// Form in which the caller of a tool learns of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An error, in every revision.
    Error,
    /// A result since 2025-11-25, and an error before (decision D3).
    Arguments,
    /// A result, since the model behind the call can act upon it (decisions D4 and D40).
    Result,
}

/// Fate of the idempotency key of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyFate {
    /// The failure is kept, and is the answer to the same call made again.
    Keep,
    /// The key is free for the call to be made again.
    Free,
    /// The call may have been done, and there is no answer: an operator has to find out.
    Unknown,
}

/// Consequences of a failure: a row of [`InvocationError::meaning`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// Code of the founding table, whatever revision the caller speaks.
    pub(crate) code: i32,
    pub(crate) form: Form,
    /// Outcome in the ledger.
    pub(crate) outcome: Outcome<&'static str>,
    pub(crate) charge: Charge,
    pub(crate) breaker: Ending,
    pub(crate) key: KeyFate,
    /// Outcome in metrics.
    pub(crate) ended: Ended,
    /// Level of the line in the log.
    pub(crate) severity: Severity,
    /// Kind of fault in the log.
    pub(crate) kind: &'static str,
    /// `error.type` of the handler's span.
    pub(crate) span: &'static str,
}

type Effects = (Charge, Ending, KeyFate);

const fn row(
    (code, form): (i32, Form),
    outcome: Outcome<&'static str>,
    (charge, breaker, key): Effects,
    (ended, severity, kind, span): (Ended, Severity, &'static str, &'static str),
) -> Meaning {
    Meaning {
        code,
        form,
        outcome,
        charge,
        breaker,
        key,
        ended,
        severity,
        kind,
        span,
    }
}

const fn denied(reason: &'static str) -> Outcome<&'static str> {
    Outcome::Denied { reason }
}

/// Charge, breaker and idempotency key of a call that was refused.
const REFUSED: Effects = (Charge::Released, Ending::NotRun, KeyFate::Free);
/// The same of a call that was let through, and never reached a handler.
const NOT_RUN: Effects = (Charge::Nothing, Ending::NotRun, KeyFate::Free);
/// The same of a call whose handler has failed.
const DONE: Effects = (Charge::Estimate, Ending::Failed, KeyFate::Keep);
/// The same of a call that was carried out, and whose result is withheld.
const WITHHELD: Effects = (Charge::Estimate, Ending::Succeeded, KeyFate::Keep);
/// The same of a call whose handler may have done anything.
const MAYBE_DONE: Effects = (Charge::Estimate, Ending::Failed, KeyFate::Unknown);
/// The same of a document or prompt that is broken.
const UNREAD: Effects = (Charge::Nothing, Ending::Failed, KeyFate::Free);

/// The row of what turns out to be held back as it is called: that of every call of what is.
#[rustfmt::skip]
const HELD: Meaning = row((DENIED, Form::Result), denied("held"), REFUSED, (Ended::Refused, Severity::Warning, "denied", OTHER));

/// Span of what has no handler, and of what never reaches one.
const OTHER: &str = "_OTHER";

/// The row of what governance refuses.
#[rustfmt::skip]
pub(crate) fn meaning_of_denial(denial: &Denial) -> Meaning {
    let severity = match denial.reason {
        Reason::LedgerUnavailable | Reason::StoreUnavailable | Reason::Crowd => Severity::Error,
        _ => Severity::Warning,
    };
    row((DENIED, Form::Result), denied(denial.reason.as_str()), REFUSED, (Ended::Refused, severity, "denied", OTHER))
}

/// The rows of failures of tools, and of what else runs as they do.
#[rustfmt::skip]
fn meaning_of_tool(error: &ToolError) -> Meaning {
    use Form::{Arguments, Error, Result};
    use Outcome::{Failed, Invalid};
    use Severity::{Error as Fault, Warning};
    match error {
        ToolError::Rejected(_) => row((INVALID_PARAMS, Arguments), Invalid, NOT_RUN, (Ended::Invalid, Warning, "invalid_arguments", "invalid_arguments")),
        ToolError::TimedOut => row((TIMED_OUT, Result), Outcome::TimedOut, MAYBE_DONE, (Ended::TimedOut, Fault, "timed_out", "timeout")),
        ToolError::Failed(_) => row((FAILED, Result), Failed, DONE, (Ended::Error, Warning, "handler", "tool_error")),
        ToolError::Crashed { .. } => row((FAILED, Result), Failed, MAYBE_DONE, (Ended::Crashed, Fault, "crashed", "crashed")),
        ToolError::Unavailable { .. } => row((FAILED, Result), Failed, NOT_RUN, (Ended::Unavailable, Warning, "unavailable", "unavailable")),
        ToolError::Lost { .. } => row((FAILED, Result), Outcome::Unknown, MAYBE_DONE, (Ended::Crashed, Fault, "lost", "lost")),
        ToolError::Busy { .. } => row((FAILED, Result), Failed, NOT_RUN, (Ended::Unavailable, Warning, "busy", "busy")),
        ToolError::Suspended { .. } => row((FAILED, Result), Failed, NOT_RUN, (Ended::Unavailable, Warning, "suspended", "suspended")),
        // The runner makes a result of it, so this row is a fault of the server's.
        ToolError::NeedsInput(_) => row((INTERNAL, Error), Failed, (Charge::Estimate, Ending::NotRun, KeyFate::Free), (Ended::Asked, Warning, "needs_input", "internal_error")),
        // As for the next two, the runner makes a denial of it, which has the same row.
        ToolError::Held(_) => HELD,
        ToolError::Broken(_) => row((INTERNAL, Error), Failed, MAYBE_DONE, (Ended::Unavailable, Fault, "broken_tool", "internal_error")),
    }
}

impl InvocationError {
    /// The one table of failures: everything that follows from one but the words, which
    /// `answer.rs` has.
    #[rustfmt::skip]
    pub(crate) fn meaning(&self) -> Meaning {
        use Form::{Arguments, Error, Result};
        use Outcome::{Cancelled, Failed, Invalid};
        use Severity::{Error as Fault, Warning};
        match self {
            Self::Unknown => row((TOOL_NOT_FOUND, Error), denied(UNKNOWN_CAPABILITY), REFUSED, (Ended::Refused, Warning, "unknown", OTHER)),
            Self::Denied(denial) => meaning_of_denial(denial),
            Self::Unrecorded(_) => row((DENIED, Result), denied(Reason::LedgerUnavailable.as_str()), REFUSED, (Ended::Refused, Fault, "ledger", OTHER)),
            Self::Unconfirmed(_) => row((DENIED, Result), denied(Reason::Confirmation.as_str()), REFUSED, (Ended::Refused, Warning, "unconfirmed", OTHER)),
            Self::KeyTaken(taken) => row((DENIED, Result), denied(taken.reason()), REFUSED, (Ended::Refused, Warning, "idempotency_key", OTHER)),
            // Found before anything is counted, so it is a refusal for the ledger: many of them are
            // counted together.
            Self::BadKey(_) => row((INVALID_PARAMS, Error), denied("idempotency_bad_key"), REFUSED, (Ended::Invalid, Warning, "idempotency_key", OTHER)),
            Self::TooGrave(_) => row((INVALID_PARAMS, Result), denied("effect"), REFUSED, (Ended::Invalid, Warning, "effect", OTHER)),
            Self::Filtered(refusal) => match refusal.phase {
                Phase::Request => row((DENIED, Result), denied("filter"), REFUSED, (Ended::Refused, Warning, "filter", OTHER)),
                Phase::Response => row((FAILED, Result), Failed, WITHHELD, (Ended::Error, Warning, "filter", OTHER)),
            },
            Self::Invalid(_) => row((INVALID_PARAMS, Arguments), Invalid, NOT_RUN, (Ended::Invalid, Warning, "invalid_arguments", OTHER)),
            Self::TimedOut(_) => row((TIMED_OUT, Result), Outcome::TimedOut, MAYBE_DONE, (Ended::TimedOut, Fault, "timed_out", "timeout")),
            Self::AsksForEver => row((INTERNAL, Result), Failed, (Charge::Estimate, Ending::NotRun, KeyFate::Free), (Ended::Error, Warning, "asks_for_ever", "tool_error")),
            Self::Stopped { .. } => row((TIMED_OUT, Result), Cancelled, (Charge::Estimate, Ending::GivenUp, KeyFate::Unknown), (Ended::Cancelled, Warning, "stopped", "stopped")),
            Self::Tool(error) => meaning_of_tool(error),
            Self::Read(failure) => match failure {
                ReadFailure::NotFound => row((RESOURCE_NOT_FOUND, Error), Failed, NOT_RUN, (Ended::Error, Warning, "not_found", OTHER)),
                ReadFailure::Range(_) => row((INVALID_PARAMS, Error), Failed, NOT_RUN, (Ended::Invalid, Warning, "invalid_range", OTHER)),
                ReadFailure::Values(_) => row((INVALID_PARAMS, Error), Failed, NOT_RUN, (Ended::Invalid, Warning, "invalid_arguments", OTHER)),
                // As for tools.
                ReadFailure::NeedsInput(_) => row((INTERNAL, Error), Failed, NOT_RUN, (Ended::Asked, Warning, "needs_input", OTHER)),
                ReadFailure::Held(_) => HELD,
                ReadFailure::Handler(error) => meaning_of_tool(error),
                ReadFailure::TimedOut(limit) => InvocationError::TimedOut(*limit).meaning(),
                ReadFailure::Told(_) => row((INTERNAL, Error), Failed, UNREAD, (Ended::Error, Warning, "handler", OTHER)),
                ReadFailure::Unreadable(_) => row((INTERNAL, Error), Failed, UNREAD, (Ended::Unavailable, Fault, "unreadable_resource", OTHER)),
            },
            Self::Prompt(failure) => match failure {
                PromptFailure::Arguments(_) => row((INVALID_PARAMS, Error), Invalid, NOT_RUN, (Ended::Invalid, Warning, "invalid_arguments", OTHER)),
                // As for tools.
                PromptFailure::NeedsInput(_) => row((INTERNAL, Error), Failed, NOT_RUN, (Ended::Asked, Warning, "needs_input", OTHER)),
                PromptFailure::Held(_) => HELD,
                PromptFailure::Handler(error) => meaning_of_tool(error),
                PromptFailure::Told(_) => row((INTERNAL, Error), Failed, UNREAD, (Ended::Error, Warning, "handler", OTHER)),
                PromptFailure::Broken(_) => row((INTERNAL, Error), Failed, UNREAD, (Ended::Unavailable, Fault, "broken_prompt", OTHER)),
            },
        }
    }

    /// The whole story, for operators: every cause, in one line.
    pub(crate) fn for_the_record(&self) -> String {
        let mut text = match self {
            Self::Invalid(invalid) => violation_lines(invalid).join("; "),
            Self::Denied(denial) => return denial.for_the_record(),
            // That is an answer.
            Self::Tool(ToolError::Failed(_)) => "the tool failed".to_owned(),
            error => error.to_string(),
        };
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            if !matches!(self, Self::Invalid(_)) {
                text.push_str(": ");
                text.push_str(&error.to_string());
            }
            cause = error.source();
        }
        text
    }
}

pub(crate) fn violation_lines(invalid: &InvalidArguments) -> Vec<String> {
    let mut lines: Vec<_> = invalid
        .violations()
        .iter()
        .map(ToString::to_string)
        .collect();
    if invalid.is_truncated() {
        lines.push("and more".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invocation::refusal::{TakenBy, WhyUnconfirmed};
    use adapter_tools::{Needed, NoArguments, Repeat, Tool};
    use mcp_protocol::model::Effect;

    fn invalid() -> InvalidArguments {
        let tool = Tool::native("t", |_cx, _: NoArguments| async { Ok("") });
        tool.check("7".into()).expect_err("no object")
    }

    fn filtered(phase: Phase) -> Box<FilterRefusal> {
        Box::new(FilterRefusal {
            filter: "f".into(),
            phase,
            why: String::new(),
        })
    }

    /// One of each failure, with the words of `docs/errors.md` for it.
    fn failures() -> Vec<(&'static str, InvocationError)> {
        let second = Duration::from_secs(1);
        let tool = InvocationError::Tool;
        let crashed = ToolError::Crashed {
            message: String::new(),
            repeat: Repeat::Safe,
            detail: String::new(),
        };
        let unavailable = ToolError::Unavailable {
            message: String::new(),
            retry_after: Some(second),
            detail: String::new(),
        };
        let lost = ToolError::Lost {
            message: String::new(),
            detail: String::new(),
        };
        let unconfirmed = Unconfirmed {
            why: WhyUnconfirmed::Pending,
            approval: None,
            on_record: false,
        };
        let taken = KeyTaken {
            state: TakenBy::Done,
            call: CallId::new(0),
            answer: None,
            on_record: false,
        };
        let busy = ToolError::Busy {
            retry_after: second,
        };
        let suspended = ToolError::Suspended {
            retry_after: second,
        };
        let range = ReadFailure::Range(String::new());
        let arguments = PromptFailure::Arguments(String::new());
        vec![
            ("unknown, or not visible", InvocationError::Unknown),
            (
                "refused by governance",
                InvocationError::Denied(Denial::new(Reason::Permission)),
            ),
            (
                "the ledger cannot be written",
                InvocationError::Unrecorded(RecordError::Closed),
            ),
            (
                "not confirmed",
                InvocationError::Unconfirmed(Box::new(unconfirmed)),
            ),
            (
                "an idempotency key that is taken",
                InvocationError::KeyTaken(Box::new(taken)),
            ),
            (
                "an idempotency key that is malformed",
                InvocationError::BadKey(BadKey::Unfit),
            ),
            (
                "called by a tool of the search view for lesser effects",
                InvocationError::TooGrave(TooGrave {
                    effect: Effect::Destructive,
                    at_most: Effect::Read,
                }),
            ),
            (
                "refused by a filter",
                InvocationError::Filtered(filtered(Phase::Request)),
            ),
            (
                "withheld by a filter",
                InvocationError::Filtered(filtered(Phase::Response)),
            ),
            (
                "arguments that do not fit the schema",
                InvocationError::Invalid(invalid()),
            ),
            (
                "arguments that the tool refuses",
                tool(ToolError::Rejected(invalid())),
            ),
            (
                "not done by the deadline",
                InvocationError::TimedOut(second),
            ),
            (
                "the tool itself says that it is late",
                tool(ToolError::TimedOut),
            ),
            (
                "it asks in every round that it may have",
                InvocationError::AsksForEver,
            ),
            (
                "the server stops",
                InvocationError::Stopped {
                    call: None,
                    has_begun: true,
                },
            ),
            ("the handler fails", tool(ToolError::failed("no"))),
            ("the worker crashes", tool(crashed)),
            (
                "what carries out the tool cannot be reached",
                tool(unavailable),
            ),
            ("the answer of the tool is lost", tool(lost)),
            ("the tool is busy", tool(busy)),
            ("the tool is suspended", tool(suspended)),
            ("the tool cannot run", tool(ToolError::broken("x"))),
            (
                "questions that nobody asks",
                tool(ToolError::NeedsInput(Needed::default())),
            ),
            (
                "a resource that is gone",
                InvocationError::Read(ReadFailure::NotFound),
            ),
            ("a range behind the end", InvocationError::Read(range)),
            (
                "values that a resource does not take",
                InvocationError::Read(ReadFailure::Values(String::new())),
            ),
            (
                "a resource's questions that nobody asks",
                InvocationError::Read(ReadFailure::NeedsInput(Needed::default())),
            ),
            (
                "a resource that cannot be read",
                InvocationError::Read(ReadFailure::Unreadable("x".into())),
            ),
            (
                "a resource whose handler says why it cannot be read",
                InvocationError::Read(ReadFailure::Told(String::new())),
            ),
            (
                "a prompt's arguments make no sense",
                InvocationError::Prompt(arguments),
            ),
            (
                "a prompt that cannot be filled in",
                InvocationError::Prompt(PromptFailure::Broken("x".into())),
            ),
            (
                "a prompt whose handler says why it cannot be filled in",
                InvocationError::Prompt(PromptFailure::Told(String::new())),
            ),
            (
                "a prompt's questions that nobody asks",
                InvocationError::Prompt(PromptFailure::NeedsInput(Needed::default())),
            ),
        ]
    }

    #[test]
    fn a_tool_that_has_failed_is_recorded_as_one_that_has_answered() {
        let failed = InvocationError::Tool(ToolError::failed("upstream `u`: no"));
        assert_eq!(failed.for_the_record(), "the tool failed: upstream `u`: no");
        let late = InvocationError::Tool(ToolError::TimedOut).for_the_record();
        assert!(late.starts_with("the tool did not answer: "), "{late}");
    }

    /// A new failure does not compile here until [`failures`] has one of it.
    fn is_listed(error: &InvocationError) {
        match error {
            InvocationError::Unknown
            | InvocationError::Denied(_)
            | InvocationError::Unrecorded(_)
            | InvocationError::Unconfirmed(_)
            | InvocationError::BadKey(_)
            | InvocationError::KeyTaken(_)
            | InvocationError::TooGrave(_)
            | InvocationError::Filtered(_)
            | InvocationError::Invalid(_)
            | InvocationError::TimedOut(_)
            | InvocationError::AsksForEver
            | InvocationError::Stopped { .. }
            | InvocationError::Tool(
                ToolError::Failed(_)
                | ToolError::NeedsInput(_)
                | ToolError::Rejected(_)
                | ToolError::Crashed { .. }
                | ToolError::Unavailable { .. }
                | ToolError::Lost { .. }
                | ToolError::TimedOut
                | ToolError::Busy { .. }
                | ToolError::Suspended { .. }
                | ToolError::Held(_)
                | ToolError::Broken(_),
            )
            | InvocationError::Read(
                ReadFailure::NotFound
                | ReadFailure::Range(_)
                | ReadFailure::Values(_)
                | ReadFailure::NeedsInput(_)
                | ReadFailure::Held(_)
                | ReadFailure::Told(_)
                | ReadFailure::Handler(_)
                | ReadFailure::TimedOut(_)
                | ReadFailure::Unreadable(_),
            )
            | InvocationError::Prompt(
                PromptFailure::Arguments(_)
                | PromptFailure::NeedsInput(_)
                | PromptFailure::Held(_)
                | PromptFailure::Told(_)
                | PromptFailure::Handler(_)
                | PromptFailure::Broken(_),
            ) => {}
        }
    }

    #[test]
    fn the_documented_table_is_the_one_in_force() {
        let document = include_str!("../../../../docs/errors.md");
        let section = document
            .split_once("## Consequences of a failure")
            .expect("a section of this name")
            .1;
        let rows = section.lines().skip_while(|line| !line.starts_with("|---"));
        let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
        let documented: Vec<_> = rows.collect();
        let in_force: Vec<_> = failures()
            .into_iter()
            .map(|(words, error)| {
                is_listed(&error);
                let meaning = error.meaning();
                let outcome = match meaning.outcome {
                    Outcome::Denied { reason } => format!("`denied`: `{reason}`"),
                    outcome => format!("`{outcome}`"),
                };
                let form = match meaning.form {
                    Form::Error => "error",
                    Form::Arguments => "by revision",
                    Form::Result => "result",
                };
                let charge = match meaning.charge {
                    Charge::Released => "none, not counted",
                    Charge::Nothing => "none",
                    Charge::Estimate => "metered, or the estimate",
                };
                let breaker = match meaning.breaker {
                    Ending::Succeeded => "success",
                    Ending::Failed => "failure",
                    Ending::NotRun | Ending::GivenUp => "",
                };
                let key = match meaning.key {
                    KeyFate::Keep => "answered again",
                    KeyFate::Free => "none kept",
                    KeyFate::Unknown => "unknown",
                };
                let level = match meaning.severity {
                    Severity::Info => "info",
                    Severity::Warning => "warning",
                    Severity::Error => "error",
                };
                format!(
                    "| {words} | {} | {form} | {outcome} | {charge} | `{}` | {breaker} | {key} | \
                     {level}, `{}` | `{}` |",
                    meaning.code,
                    meaning.ended.as_str(),
                    meaning.kind,
                    meaning.span,
                )
                .replace("|  |", "| |")
            })
            .collect();
        assert!(
            documented == in_force,
            "docs/errors.md has another table; these rows are in force:\n{}",
            in_force.join("\n")
        );
    }
}
