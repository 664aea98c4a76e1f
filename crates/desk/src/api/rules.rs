//! Rules: those in force, others in their place, and what those would have decided.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{Origin, Problem as Mistake, Rejected, Severity};
use data_encoding::HEXLOWER;
use http::{HeaderValue, StatusCode, header};
use ledger::system_now_us;
use operator::RulesFile;
use operator::look::{Cell, shown};
use operator::request::When;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use server::{Decided, Draft, Failure, Replay, Verdict, with_causes};
use sha2::{Digest, Sha256};

use crate::call::Call;
use crate::reply::{Problem, Reply};

/// Calls that are decided again unless asked for otherwise, and the most that may be asked for.
const CALLS: usize = 10_000;
const MAX_CALLS: usize = 50_000;
/// Time for which calls are decided again unless asked for otherwise.
const SINCE: &str = "1d";
/// Time within which the server takes a file up that was written.
const TAKEN_UP: Duration = Duration::from_secs(30);

/// Rules in force.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rules {
    /// Version, a digest of what they say.
    version: String,
    /// The section `governance` of the configuration with its defaults; secrets are left out.
    governance: Cell,
    /// The rules as they stand in the configuration file; `null` if they cannot be changed here.
    file: Option<RulesText>,
    /// Reason why they cannot be changed here.
    unchangeable: Option<String>,
    /// Time at which they were asked for, RFC 3339.
    at: String,
}

/// Rules as they stand in the configuration file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RulesText {
    /// Path of the file.
    path: String,
    /// The lines below `governance`, with their comments, without their indentation.
    text: String,
    /// SHA-256 of the text in hexadecimal digits, which is the answer's `ETag` as well.
    digest: String,
}

/// Other rules.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRules {
    /// The lines below `governance`, without their indentation.
    text: String,
}

/// Other rules, and calls to decide again by them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DryRunOf {
    /// The lines below `governance`, without their indentation.
    text: String,
    /// From when on calls are decided again: RFC 3339, a date, or how long ago; `1d` if not said.
    #[serde(default)]
    since: Option<String>,
    /// The most calls to decide again, the last ones: 10000 if not said, 50000 at most.
    #[serde(default)]
    calls: Option<usize>,
}

/// Outcome of checking other rules.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Checked {
    /// True if they can be put in force.
    is_valid: bool,
    /// Version that they would have; `null` if they cannot be used.
    version: Option<String>,
    /// Settings that would change: `key`, `from` and `to`.
    changes: Value,
    /// Keys of settings that would change at the next start.
    at_restart: Vec<String>,
    /// Mistakes and oddities.
    problems: Vec<RulesProblem>,
}

/// A mistake, or an oddity.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RulesProblem {
    /// `error` or `warning`.
    severity: &'static str,
    /// Description, a sentence.
    message: String,
    /// Key that it is about.
    key: Option<String>,
    /// Line of the rules, from 1; `null` if it is elsewhere.
    line: Option<usize>,
    /// Column of that line, from 1.
    column: Option<usize>,
    /// Place, for people.
    place: String,
    /// Advice.
    hint: Option<String>,
}

/// Outcome of deciding recent calls again.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DryRun {
    /// Calls that were decided again.
    calls: usize,
    /// Time at which the first of them began, RFC 3339; `null` without any.
    first: Option<String>,
    /// True if there were more in that time, which are older.
    is_partial: bool,
    /// Number of calls that would be decided differently.
    different: usize,
    /// The last 500 of these, the newest first.
    differing: Vec<DifferingCall>,
    /// Number of calls that cannot be told, since a condition asks about arguments that are not whole on record.
    undecided: usize,
    /// Number of calls that the rules in force decide differently than was decided: other rules were in force, or roles
    /// counted that are not on record.
    unlike_record: usize,
    /// Number of calls of clients without an API key, whose roles are not on record and count for nothing.
    without_roles: usize,
    /// Time of the outcome, RFC 3339.
    at: String,
}

/// Call that would be decided differently.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DifferingCall {
    /// Name of the call.
    call: String,
    /// Time at which it began, RFC 3339.
    time: String,
    /// Client.
    client: String,
    /// Capability, as `kind/name`.
    capability: String,
    /// Decision by the rules in force.
    before: Decision,
    /// Decision by the others.
    after: Decision,
}

/// Decision of rules on a call.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Decision {
    /// `allowed`, `to_be_confirmed` or `refused`.
    verdict: &'static str,
    /// Reason of a refusal, or who has to confirm.
    reason: Option<&'static str>,
    /// Rule in words.
    rule: Option<String>,
}

/// Outcome of a change.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Saved {
    /// True if the new rules are in force.
    in_force: bool,
    /// Reason why they are not.
    problem: Option<String>,
    /// Version of the rules in force.
    version: String,
    /// Digest of the text that was written.
    digest: String,
    /// Keys of settings that change at the next start.
    at_restart: Vec<String>,
}

fn digest(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text))
}

fn tag(digest: &str) -> HeaderValue {
    HeaderValue::try_from(format!("\"{digest}\"")).expect("digits are ASCII")
}

fn conflict(why: impl Into<String>) -> Problem {
    Problem::new(StatusCode::CONFLICT, why)
}

/// The rules in the file, as they are now.
async fn file(call: &Call<'_>) -> Result<Result<RulesFile, String>, Problem> {
    let server = &call.desk.server;
    let Some(path) = server.file() else {
        return Ok(Err("the configuration is given in code".to_owned()));
    };
    if !server.has_own_rules() {
        let why =
            "the rules stand in the file that this configuration inherits from: change them there";
        return Ok(Err(why.to_owned()));
    }
    let read = move || Ok(RulesFile::read(&path));
    call.desk.block(read).await
}

pub(crate) async fn show(call: Call<'_>) -> Result<Reply, Problem> {
    let server = &call.desk.server;
    let governance = serde_json::to_string(&server.governance())
        .map_err(|error| Problem::unavailable(&error))?;
    let (file, unchangeable) = match file(&call).await? {
        Ok(file) => (Some(file), None),
        Err(why) => (None, Some(why)),
    };
    let file = file.map(|it| RulesText {
        path: it.path().display().to_string(),
        text: it.rules().to_owned(),
        digest: digest(it.rules()),
    });
    let tag = file.as_ref().map(|it| tag(&it.digest));
    let reply = Reply::json(&Rules {
        version: format!("{:016x}", server.rules_version()),
        governance: Cell::of_json(&governance),
        file,
        unchangeable,
        at: shown(system_now_us()),
    });
    Ok(match tag {
        Some(tag) => reply.with(header::ETAG, tag),
        None => reply,
    })
}

/// The file with other rules in their place, and what a server would make of it.
async fn drafted(
    call: &Call<'_>,
    before: &RulesFile,
    text: &str,
) -> Result<(RulesFile, Result<Draft, Rejected>), Problem> {
    let after = before.with(text).map_err(Problem::bad)?;
    let (server, whole) = (Arc::clone(&call.desk.server), after.whole().to_owned());
    let draft = call.desk.block(move || Ok(server.draft(&whole))).await?;
    Ok((after, draft))
}

/// A mistake with its place in the rules.
fn problem(mistake: &Mistake, file: &RulesFile, path: Option<&Path>) -> RulesProblem {
    let at = match &mistake.origin {
        Origin::File(at) if path.is_some_and(|it| it.ends_with(&at.file)) => {
            file.within(at.line, at.column)
        }
        _ => None,
    };
    RulesProblem {
        severity: match mistake.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        message: mistake.message.clone(),
        key: mistake.key.clone(),
        line: at.map(|it| it.0),
        column: at.map(|it| it.1),
        place: match at {
            Some((line, column)) => format!("line {line}, column {column}"),
            None => mistake.origin.to_string(),
        },
        hint: mistake.hint.clone(),
    }
}

fn problems<'a>(
    call: &Call<'_>,
    file: &RulesFile,
    mistakes: impl IntoIterator<Item = &'a Mistake>,
) -> Vec<RulesProblem> {
    let path = call.desk.server.file();
    let mistakes = mistakes.into_iter();
    mistakes
        .map(|it| problem(it, file, path.as_deref()))
        .collect()
}

/// The first mistakes in a sentence, each with its place.
fn sentence(problems: &[RulesProblem]) -> String {
    let errors = problems.iter().filter(|it| it.severity == "error");
    let told = errors.take(3).map(|it| {
        let hint = it.hint.as_ref().map(|hint| format!(" ({hint})"));
        format!("{}: {}{}", it.place, it.message, hint.unwrap_or_default())
    });
    told.collect::<Vec<_>>().join("; ")
}

pub(crate) async fn check(call: Call<'_>) -> Result<Reply, Problem> {
    let asked: NewRules = call.body()?;
    let before = file(&call).await?.map_err(conflict)?;
    let (after, draft) = drafted(&call, &before, &asked.text).await?;
    Ok(Reply::json(&match draft {
        Ok(draft) => Checked {
            is_valid: true,
            version: Some(format!("{:016x}", draft.policy.version())),
            changes: json!(draft.changes),
            at_restart: draft.at_restart,
            problems: problems(&call, &after, &draft.warnings),
        },
        Err(Rejected { problems: mistakes }) => Checked {
            is_valid: false,
            version: None,
            changes: json!([]),
            at_restart: Vec::new(),
            problems: problems(&call, &after, &mistakes),
        },
    }))
}

/// Other rules that can be put in force.
async fn usable(
    call: &Call<'_>,
    before: &RulesFile,
    text: &str,
) -> Result<(RulesFile, Draft), Problem> {
    let (after, draft) = drafted(call, before, text).await?;
    match draft {
        Ok(draft) => Ok((after, draft)),
        Err(Rejected { problems: mistakes }) => {
            let why = sentence(&problems(call, &after, &mistakes));
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why))
        }
    }
}

pub(crate) async fn dry_run(call: Call<'_>) -> Result<Reply, Problem> {
    let asked: DryRunOf = call.body()?;
    let since = asked.since.unwrap_or_else(|| SINCE.to_owned());
    let since = super::read::<When>("since", Some(&since))?.map_or(0, |When(since)| since);
    let most = asked.calls.unwrap_or(CALLS);
    if !(1..=MAX_CALLS).contains(&most) {
        return Err(Problem::bad(format!("`calls` is from 1 to {MAX_CALLS}")));
    }
    let before = file(&call).await?.map_err(conflict)?;
    let (_, draft) = usable(&call, &before, &asked.text).await?;
    let server = Arc::clone(&call.desk.server);
    let replayed = call
        .desk
        .read(move |reader, _| server.replay(reader, &draft.policy, since, most));
    let Replay {
        calls,
        first_us,
        is_partial,
        different,
        differing,
        undecided,
        unlike_record,
        without_roles,
    } = replayed.await?;
    let differing = differing.into_iter().map(|it| DifferingCall {
        call: it.call.to_string(),
        time: shown(it.at_us),
        client: it.principal,
        capability: it.capability,
        before: decision(it.before),
        after: decision(it.after),
    });
    Ok(Reply::json(&DryRun {
        calls,
        first: (calls != 0).then(|| shown(first_us)),
        is_partial,
        different,
        differing: differing.collect(),
        undecided,
        unlike_record,
        without_roles,
        at: shown(system_now_us()),
    }))
}

fn decision(decided: Decided) -> Decision {
    let (verdict, reason) = match decided.verdict {
        Verdict::Allowed => ("allowed", None),
        Verdict::ToBeConfirmed(who) => ("to_be_confirmed", Some(who.as_str())),
        Verdict::Refused(reason) => ("refused", Some(reason.as_str())),
    };
    Decision {
        verdict,
        reason,
        rule: decided.rule,
    }
}

/// Digest of the text that a request is to change.
fn precondition(call: &Call<'_>) -> Result<String, Problem> {
    let values = call.request.parts().headers.get_all(header::IF_MATCH);
    let mut values = values.iter();
    match (values.next(), values.next()) {
        (Some(value), None) => {
            let value = value.to_str().unwrap_or_default().trim();
            Ok(value.trim_matches('"').to_owned())
        }
        _ => Err(Problem::new(
            StatusCode::PRECONDITION_REQUIRED,
            "`If-Match` says which rules were looked at: the `ETag` of `GET /rules`",
        )),
    }
}

pub(crate) async fn save(call: Call<'_>) -> Result<Reply, Problem> {
    let asked: NewRules = call.body()?;
    let looked_at = precondition(&call)?;
    let desk = call.desk;
    // Two that look at the same text do not both replace it.
    let _turn = desk.writing.lock().await;
    let before = file(&call).await?.map_err(conflict)?;
    let old = digest(before.rules());
    if looked_at != old {
        let why = "the rules have changed since you looked at them: look again";
        return Err(Problem::new(StatusCode::PRECONDITION_FAILED, why));
    }
    let (after, draft) = usable(&call, &before, &asked.text).await?;
    if after.whole() == before.whole() {
        return Err(conflict("this is what the file says already"));
    }
    let digest = digest(after.rules());
    let server = &desk.server;
    let path = after.path().display().to_string();
    let keys: Vec<&str> = draft.changes.iter().map(|it| it.key.as_str()).collect();
    let act = json!({
        "before": old,
        "after": digest,
        "from": server.rules_version(),
        "to": draft.policy.version(),
        "settings": keys.len() + draft.at_restart.len(),
    });
    desk.record_more(call.who(), "rules_save", &path, &act)
        .await?;
    let written = desk.block(move || Ok::<_, Failure>(after.replace(&before)));
    if let Err(why) = written.await? {
        let act = json!({ "before": old, "after": digest, "why": why });
        desk.record_more(call.who(), "rules_not_saved", &path, &act)
            .await?;
        return Err(conflict(why));
    }
    let problem = match tokio::time::timeout(TAKEN_UP, server.look_again()).await {
        Ok(taken_up) => taken_up.err(),
        Err(_) => Some("the server has not taken the file up yet: see its health".to_owned()),
    };
    let reply = Reply::json(&Saved {
        in_force: problem.is_none(),
        problem,
        version: format!("{:016x}", server.rules_version()),
        digest: digest.clone(),
        at_restart: draft.at_restart,
    });
    Ok(reply.with(header::ETAG, tag(&digest)))
}

pub(crate) async fn limits(call: Call<'_>) -> Result<Reply, Problem> {
    match call.desk.server.usage().await {
        Ok(usage) => Ok(Reply::json(&usage)),
        Err(failure) => {
            tracing::error!(error = with_causes(&*failure), "use cannot be told");
            let why = "the counters cannot be reached, so what is used is unknown";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why))
        }
    }
}
