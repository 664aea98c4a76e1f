//! Filters of calls: what looks at the arguments of a call before it is decided on, or at its result before it is answered.

use futures_util::{FutureExt, future::BoxFuture};
use governance::{Caller, PatternSet};
use jsonrpc_core::RawJson;
use std::{collections::BTreeSet, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

/// The most characters of a filter's words that are passed on.
const MAX_WORDS: usize = 500;

/// Part of a call that a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The request, before anything is decided about the call.
    Request,
    /// The result, before it is recorded and answered.
    Response,
}

impl Phase {
    /// Name, as in the draft of interceptors (SEP-1763).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Request => "arguments",
            Self::Response => "result",
        }
    }
}

/// A call as filters see it.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    /// Part that is looked at.
    pub phase: Phase,
    /// Method of the protocol: `tools/call`, `resources/read` or `prompts/get`.
    pub method: &'a str,
    /// Name that policies and the ledger have for what is called.
    pub capability: &'a str,
    /// The caller.
    pub caller: Caller<'a>,
    /// All roles of the caller that rules know.
    pub roles: &'a [String],
    /// The session of a legacy client.
    pub session: Option<&'a str>,
    /// The trace that the call belongs to.
    pub trace_id: Option<&'a str>,
    /// Parameters of the request, as they go on: `name` and `arguments`, or `uri`.
    pub request: &'a RawJson,
    /// The result, in the shape of the newest revision; `None` in the first phase.
    pub result: Option<&'a RawJson>,
}

impl Passing<'_> {
    /// The part that a filter may change.
    #[must_use]
    pub fn payload(&self) -> &RawJson {
        self.result.unwrap_or(self.request)
    }
}

/// Decision of a filter.
#[derive(Clone, Debug, PartialEq)]
pub enum Filtered {
    /// The call goes on as it is.
    Passed,
    /// The call is refused, with the reason for its caller.
    Refused(String),
    /// The call goes on with this in the place of [`Passing::payload`].
    Changed(RawJson),
}

/// A validator or mutator of calls. One that fails, panics or takes too long refuses, unless its operator has it otherwise.
pub trait Filter: fmt::Debug + Send + Sync {
    /// Looks at a call.
    ///
    /// # Errors
    ///
    /// The reason why the filter could not decide, for the operator.
    fn filter<'a>(&'a self, passing: Passing<'a>) -> BoxFuture<'a, Result<Filtered, String>>;
}

/// A filter, and the calls that it is about.
#[derive(Clone, Debug)]
pub struct FilterRule {
    /// Name, for the ledger and for callers.
    pub name: Arc<str>,
    /// The filter.
    pub filter: Arc<dyn Filter>,
    /// Capabilities that it is about, as patterns such as `tool/mcp_github_*`.
    pub capabilities: PatternSet,
    /// Clients that it is about, as patterns; all, if this and `roles` are empty.
    pub clients: PatternSet,
    /// Roles whose clients it is about.
    pub roles: BTreeSet<String>,
    /// True if it looks at requests.
    pub on_requests: bool,
    /// True if it looks at results.
    pub on_results: bool,
    /// True if what it would do is recorded and not done.
    pub is_audit: bool,
    /// True if calls go on that it could not decide on.
    pub allows_on_failure: bool,
    /// Time that it may take for one call.
    pub timeout: Duration,
}

impl FilterRule {
    /// A filter of the arguments and results of every call of everybody, which may take a second.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, filter: impl Filter + 'static) -> Self {
        Self {
            name: name.into(),
            filter: Arc::new(filter),
            capabilities: PatternSet::new([&"*".to_owned()]).unwrap_or_default(),
            clients: PatternSet::default(),
            roles: BTreeSet::new(),
            on_requests: true,
            on_results: true,
            is_audit: false,
            allows_on_failure: false,
            timeout: Duration::from_secs(1),
        }
    }

    fn is_about(
        &self,
        phase: Phase,
        capability: &str,
        caller: Caller<'_>,
        roles: &[String],
    ) -> bool {
        let is_looked_at = match phase {
            Phase::Request => self.on_requests,
            Phase::Response => self.on_results,
        };
        let is_anybody = self.clients.is_empty() && self.roles.is_empty();
        let vouched = || caller.roles.iter().any(|it| self.roles.contains(&**it));
        let has_role = || vouched() || roles.iter().any(|it| self.roles.contains(it));
        is_looked_at
            && self.capabilities.matches(capability)
            && (is_anybody || self.clients.matches(caller.principal) || has_role())
    }
}

/// Refusal of a call or of its result by a filter.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the filter `{filter}` {} the {}: {why}", self.verb(), phase.noun())]
pub struct FilterRefusal {
    /// Name of the filter.
    pub filter: Arc<str>,
    /// Part of the call that it has looked at.
    pub phase: Phase,
    /// Reason, for the caller.
    pub why: String,
}

impl FilterRefusal {
    fn verb(&self) -> &'static str {
        match self.phase {
            Phase::Request => "refuses",
            Phase::Response => "withholds",
        }
    }
}

/// All filters, in their order.
#[derive(Clone, Debug, Default)]
pub struct Filters(Arc<[FilterRule]>);

impl Filters {
    /// Filters that are asked in this order, each about what those before it have left.
    #[must_use]
    pub fn new(rules: Vec<FilterRule>) -> Self {
        Self(rules.into())
    }

    /// True if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if any filter is about this part of such a call.
    pub(crate) fn are_about(
        &self,
        phase: Phase,
        capability: &str,
        caller: Caller<'_>,
        roles: &[String],
    ) -> bool {
        let mut rules = self.0.iter();
        rules.any(|it| it.is_about(phase, capability, caller, roles))
    }

    /// Asks all that are about a call, and notes what each has done. `fits` refuses what cannot take the payload's place.
    /// `None` if the payload is as it was.
    pub(crate) async fn ask(
        &self,
        passing: Passing<'_>,
        note: impl Fn(String) + Sync,
        digest: impl Fn(&str) -> String + Sync,
        fits: impl Fn(&RawJson) -> Result<(), String> + Sync,
    ) -> Result<Option<RawJson>, FilterRefusal> {
        let mut changed: Option<RawJson> = None;
        let Passing {
            phase,
            capability,
            caller,
            roles,
            ..
        } = passing;
        let rules = self.0.iter();
        for rule in rules.filter(|it| it.is_about(phase, capability, caller, roles)) {
            let now = match (phase, &changed) {
                (_, None) => passing,
                (Phase::Request, Some(changed)) => Passing {
                    request: changed,
                    ..passing
                },
                (Phase::Response, Some(changed)) => Passing {
                    result: Some(changed),
                    ..passing
                },
            };
            let asked = AssertUnwindSafe(rule.filter.filter(now)).catch_unwind();
            let decided = match tokio::time::timeout(rule.timeout, asked).await {
                Ok(Ok(decided)) => decided,
                Ok(Err(_panic)) => Err("it panicked".to_owned()),
                Err(_elapsed) => Err(format!("no answer within {:?}", rule.timeout)),
            };
            let decided = decided.and_then(|it| match it {
                Filtered::Changed(new) => fits(&new).map(|()| Filtered::Changed(new)),
                other => Ok(other),
            });
            let (name, noun) = (&rule.name, phase.noun());
            let refuse = |why: String| FilterRefusal {
                filter: Arc::clone(name),
                phase,
                why: why.chars().take(MAX_WORDS).collect(),
            };
            let would = if rule.is_audit { "would have " } else { "" };
            match decided {
                Ok(Filtered::Passed) => note(format!("filter {name}: passed the {noun}")),
                Ok(Filtered::Refused(why)) => {
                    note(format!("filter {name}: {would}refused the {noun}: {why}"));
                    if !rule.is_audit {
                        return Err(refuse(why));
                    }
                }
                Ok(Filtered::Changed(new)) => {
                    let [before, after] = [now.payload(), &new].map(|it| digest(it.as_str()));
                    note(format!(
                        "filter {name}: {would}changed the {noun}, sha256 {before} to {after}"
                    ));
                    if !rule.is_audit {
                        changed = Some(new);
                    }
                }
                Err(why) => {
                    tracing::warn!(
                        filter = &**name,
                        phase = phase.as_str(),
                        capability,
                        why,
                        "a filter failed"
                    );
                    let so = match rule.is_audit || rule.allows_on_failure {
                        true => "the call goes on",
                        false => "the call does not go on",
                    };
                    note(format!(
                        "filter {name}: failed for the {noun} ({why}); {so}"
                    ));
                    if !rule.is_audit && !rule.allows_on_failure {
                        return Err(refuse("it cannot decide now".to_owned()));
                    }
                }
            }
        }
        Ok(changed)
    }
}
