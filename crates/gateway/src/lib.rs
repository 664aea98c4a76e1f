//! What is on offer, and what happens to every call of it.
//!
//! [`Gateway`] puts the parts together. A tool call and a resource read are both an [`Invocation`],
//! and every invocation passes the same layers, outermost first; `invocations.rs` is where their
//! order is written down:
//!
//! 1. [`Governed`]: refused and recorded as refused, or admitted and counted; or answered as before,
//!    if it comes again under its idempotency key;
//! 2. [`Confirmed`]: somebody agrees to it, if it needs that;
//! 3. [`Recorded`]: its start is on record before it runs, with the approval and the key it takes,
//!    and its end before it is answered;
//! 4. [`Timed`]: it has until its deadline;
//! 5. [`Runner`]: its arguments are checked, and it is carried out.
//!
//! Around all of them [`TracedCalls`] says of the span that the request is what has come of it.
//!
//! Only [`Governed`] makes an [`Admitted`], and what runs calls takes nothing else: there is no way
//! around it, for a batch element or a legacy call as little as for a modern one.

mod administration;
mod answer;
mod asking;
mod calls_counted;
mod clock;
mod confirmed;
mod cost;
mod cursor;
mod describe;
mod error;
mod facts;
mod figures;
mod gateway;
mod governed;
mod health;
mod invocation;
mod joined;
mod lists;
mod metrics;
mod mirrored;
mod names;
mod observed;
mod observer;
mod offer;
mod options;
mod outcome;
mod plain;
mod prompts;
mod quota_report;
mod readings;
mod record_start;
mod recorded;
mod refusal;
mod replay;
mod resources;
mod runner;
mod seal;
mod server;
mod skills;
mod states;
mod tasks;
mod timed;
mod traced;
mod verdict;

pub use crate::{
    administration::{MAX_APPROVALS, approval_json, approvals_json, statistics_json},
    clock::{Clock, rfc3339, system_clock},
    confirmed::Confirmed,
    cost::Tally,
    describe::IncludeSkill,
    error::{AnswerOptions, ErrorStyle, InvocationError},
    facts::{BrokenSkill, capability_facts, held, hold_back, own_rules, risk_level},
    gateway::{Gateway, GatewayEngine, Parts},
    governed::{Admitted, Governed},
    health::{Component, ComponentState, Health},
    invocation::{Invocation, Invoked, Target},
    joined::JoinedResources,
    metrics::Metrics,
    mirrored::{BadAnnotation, HeaderDiffers, MirroredParams},
    names::{caller_of, prompt_capability, resource_capability, tool_capability},
    observed::Observed,
    observer::RequestLog,
    offer::Offer,
    options::Options,
    plain::{PlainContent, PlainRead, PlainRefusal},
    prompts::{PromptCx, PromptFailure, Prompts, StaticPrompts},
    readings::{Buckets, Kind as ReadingKind, Samples},
    recorded::{Recorded, redactor_of_this_process},
    refusal::{BadKey, KeyTaken, PendingApproval, TakenBy, Unconfirmed, WhyUnconfirmed},
    resources::{
        NoResources, ReadFailure, ResourceEntry, Resources, SkillResources, StaticResources,
    },
    runner::Runner,
    server::Server,
    skills::SkillIndex,
    states::{StateResources, States},
    tasks::{CallEnd, Handover, RunHere, TaskCall, TaskOptions, TaskRunner, Tasks},
    timed::Timed,
    traced::{Capture, TracedCalls, TracedRequests, Tracing},
};

use governance::{Governor, QuotaStore};
use ledger::Recorder;
use mcp_service::GivingUp;
use redaction::Redactor;
use std::sync::Arc;

/// What every invocation passes, outermost first.
pub type Invocations<Q> = TracedCalls<Governed<Confirmed<Recorded<Timed<Runner>>>, Q>>;

/// Puts together what happens to every invocation.
pub(crate) fn invocations<Q: QuotaStore>(
    governor: Arc<Governor<Q>>,
    recorder: Recorder,
    redactor: Arc<Redactor>,
    observer: observer::Observer,
    tracer: Option<traced::tracer::Tracer>,
    options: &Options,
    giving_up: Arc<GivingUp>,
) -> Invocations<Q> {
    let clock = options.clock;
    let runner = Runner::new(options.progress_after);
    let timed = Timed::new(runner, options.default_timeout, giving_up);
    let recorded = Recorded::new(timed, recorder.clone(), Arc::clone(&redactor), clock);
    let confirmed = Confirmed::new(
        recorded,
        recorder.clone(),
        clock,
        options.approvals_expire,
        Arc::clone(&redactor),
    );
    let governed = Governed::new(confirmed, governor, recorder, redactor, observer, options);
    TracedCalls::new(governed, tracer)
}
