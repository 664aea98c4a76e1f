//! An MCP server without sockets and files: its offer, and the layers that every call passes.
//!
//! [`McpServer`] puts the parts together. A tool call, a resource read and a prompt are an
//! [`Invocation`], and every invocation passes the same layers, outermost first. Their order is
//! written down once, in `invocations` below:
//!
//! 1. `Governed` has filters look at the request, which may change it; then it refuses the call and
//!    records the refusal, or admits and counts the call, or answers it as before if it comes again
//!    under its idempotency key;
//! 2. `Confirmed` waits for a confirmation, if the call needs one;
//! 3. `Recorded` puts the beginning on record before the call runs, with the approval and the key
//!    that it takes, and the end before it is answered;
//! 4. `Limited` shortens a result that is too long for its client, and keeps the whole;
//! 5. `FilteredResults` has filters look at the result;
//! 6. `Timed` ends the call at its deadline;
//! 7. `Runner` checks the arguments and carries the call out.
//!
//! Around them `TracedCalls` adds the decision and the cost to the request's span.
//!
//! Only `Governed` makes an `Admitted`, and the layers below take nothing else: no call gets
//! around governance, neither an element of a batch nor a legacy call.

mod admin_json;
mod clock;
mod filter;
mod gauges;
mod health;
mod http_read;
mod input;
mod invocation;
mod mcp_server;
mod names;
mod observe;
mod offer;
mod options;
mod pipeline;
mod server;
mod tasks;
mod trace;

pub use crate::{
    admin_json::{MAX_APPROVALS, approval_json, approvals_json, statistics_json},
    clock::{Clock, rfc3339, system_clock},
    filter::{Filter, FilterRefusal, FilterRule, Filtered, Filters, Passing, Phase},
    health::{Component, ComponentState, Health},
    http_read::{PlainContent, PlainRead, PlainRefusal},
    invocation::{
        Invocation, Invoked, Target,
        answer::{AnswerOptions, ErrorStyle},
        failure::InvocationError,
        refusal::{
            BadKey, KeyTaken, PendingApproval, TakenBy, TooGrave, Unconfirmed, WhyUnconfirmed,
        },
    },
    mcp_server::{McpEngine, McpServer, Parts},
    names::{UPSTREAM_META, caller_of, prompt_capability, resource_capability, tool_capability},
    observe::{
        calls::RequestLog,
        metrics::Metrics,
        pull_collector::{Buckets, Kind as ReadingKind, Samples},
    },
    offer::{
        Offer,
        combined::CombinedResources,
        combined_prompts::CombinedPrompts,
        prompts::{PromptCx, PromptFailure, Prompts, StaticPrompts},
        resources::{
            NoResources, ReadFailure, ResourceEntry, Resources, SkillResources, StaticResources,
            UNHEARD, content_result,
        },
        results::{
            BadResultLimits, ResultLimit, ResultLimits, ResultOptions, ResultRule,
            tokens::estimated_tokens,
        },
        search::{SearchOptions, SearchView},
        skill_facts::{BrokenSkill, capability_facts, held, hold_back, own_rules, risk_level},
        skills::SkillIndex,
        state_resources::{StateResources, States},
        tool_listing::IncludeSkill,
        tool_source::{NotOffered, Sought, SourceTools, ToolSource},
    },
    options::Options,
    pipeline::{
        late_cost::{AwaitedCost, LateCosts},
        recorded::{PROMPT_VERSION, redactor_of_this_process},
    },
    tasks::{
        oversight::CancelledTask,
        recovery::{TakenUp, TaskAtWork},
        registry::{TaskOptions, Tasks},
        runner::{CallEnd, QueueError, RunHere, Standing, TaskCall, TaskQueue, TaskRunner},
    },
    trace::tracer::{Capture, Tracing},
};

use crate::{
    observe::calls::Observer,
    pipeline::{
        confirmed::Confirmed,
        filtered::{FilteredResults, Filtering},
        governed::Governed,
        limited::Limited,
        recorded::Recorded,
        runner::Runner,
        timed::Timed,
        unanswered::ChargesUnanswered,
    },
    trace::{TracedCalls, tracer::Tracer},
};
use governance::{Governor, QuotaStore};
use ledger::Recorder;
use mcp_service::GivingUp;
use redaction::Redactor;
use std::sync::Arc;

/// The layers that every invocation passes, outermost first.
pub(crate) type Invocations<Q> =
    TracedCalls<Governed<Confirmed<Recorded<Limited<FilteredResults<Timed<Runner>, Q>>>>, Q>>;

/// Puts the layers together: the one place where their order is written down.
#[expect(
    clippy::too_many_arguments,
    reason = "the parts that layers are made of, each once"
)]
pub(crate) fn invocations<Q: QuotaStore>(
    governor: Arc<Governor<Q>>,
    recorder: Recorder,
    redactor: Arc<Redactor>,
    observer: Observer,
    tracer: Option<Tracer>,
    options: &Options,
    filters: Filters,
    giving_up: Arc<GivingUp>,
    results: Option<Arc<ResultLimits>>,
    late_costs: Option<Arc<dyn LateCosts>>,
) -> Invocations<Q> {
    let clock = options.clock;
    let runner = Runner::new(options.progress_after);
    let timed = Timed::new(runner, options.default_timeout, Arc::clone(&giving_up));
    let filtering = Filtering::new(filters, Arc::clone(&governor), Arc::clone(&redactor));
    let filtered = FilteredResults::new(timed, filtering.clone());
    let limited = Limited::new(filtered, results.clone(), Arc::clone(&redactor));
    let unanswered = Arc::new(ChargesUnanswered {
        governor: Arc::clone(&governor),
        recorder: recorder.clone(),
        redactor: Arc::clone(&redactor),
        clock,
    });
    let recorded = Recorded::new(
        limited,
        recorder.clone(),
        Arc::clone(&redactor),
        clock,
        unanswered,
        late_costs,
        giving_up,
    );
    let confirmed = Confirmed::new(
        recorded,
        recorder.clone(),
        clock,
        options.approvals_expire,
        Arc::clone(&redactor),
    );
    let governed = Governed::new(
        confirmed, governor, recorder, redactor, observer, options, results, filtering,
    );
    TracedCalls::new(governed, tracer)
}
