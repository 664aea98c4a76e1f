//! Every way to what is on offer, for callers who may not have it: nothing runs, nothing is answered of it, and all is on
//! record.

use crate::{
    house::{Call, Client, House, Place, SPOKEN, Setup, policy, reason_of},
    tasks_house::{self, EXTENSION, LEGACY},
};
use adapter_tools::{Annotations, Elicited, Needed, Tool, ToolCx, ToolError};
use futures_util::future::{BoxFuture, pending, ready};
use governance::{
    CapabilityFacts, Micros, PatternSet, Policy, PolicySpec, Quota, RateLimits, Rules,
};
use ledger::Outcome;
use mcp_protocol::model::{
    GetPromptResult, ListResources, Prompt, PromptMessage, ReadResource, ReadResourceResult,
    ResourceContents, ResourceTemplate, Role,
};
use mcp_server::{
    Filter, FilterRule, Filtered, Filters, Passing, Phase, PromptFailure, ReadFailure,
    ResourceEntry, Resources, ResultLimit, ResultOptions, ResultRule, SearchOptions, StaticPrompts,
    StaticResources,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use testkit::MODERN;

/// Stands in all that is not to be answered.
const CANARY: &str = "the canary of what is refused";
const APPS: &str = "io.modelcontextprotocol/ui";

/// Reason for refusing the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Hidden,
    Denied,
    Held,
    TooMany,
    TooDear,
    /// A hold is found by the executor.
    TurnsOutHeld,
    /// A filter of requests says no, fails, or does not answer.
    Filter(Mood),
    /// A filter of results does: what was done is not answered.
    Withheld(Mood),
}

/// Conduct of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Refuses = 1,
    Fails = 2,
    Hangs = 3,
}

const REASONS: [Why; 12] = [
    Why::Hidden,
    Why::Denied,
    Why::Held,
    Why::TooMany,
    Why::TooDear,
    Why::TurnsOutHeld,
    Why::Filter(Mood::Refuses),
    Why::Filter(Mood::Fails),
    Why::Filter(Mood::Hangs),
    Why::Withheld(Mood::Refuses),
    Why::Withheld(Mood::Fails),
    Why::Withheld(Mood::Hangs),
];

/// State of what is on offer, for reasons that no rule has.
#[derive(Clone, Debug, Default)]
struct State {
    /// Number of times that anything ran.
    runs: Arc<AtomicUsize>,
    /// Other than 0 if it turns out to be held.
    held: Arc<AtomicUsize>,
    /// Moods of the filters of requests and of results; 0 lets all pass.
    moods: Arc<[AtomicUsize; 2]>,
}

/// The reason of holds.
const HELD: &str = "`tool/work` of `up` has changed";

impl State {
    /// Notes that it runs, or the reason why it does not.
    fn run(&self) -> Result<(), String> {
        if self.held.load(Ordering::SeqCst) != 0 {
            return Err(HELD.to_owned());
        }
        self.runs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn set(&self, why: Why) {
        let mood =
            |phase: usize, mood: Mood| self.moods[phase].store(mood as usize, Ordering::SeqCst);
        match why {
            Why::TurnsOutHeld => self.held.store(1, Ordering::SeqCst),
            Why::Filter(it) => mood(0, it),
            Why::Withheld(it) => mood(1, it),
            _ => {}
        }
    }
}

impl Filter for State {
    fn filter<'a>(&'a self, passing: Passing<'a>) -> BoxFuture<'a, Result<Filtered, String>> {
        let phase = usize::from(passing.phase == Phase::Response);
        match self.moods[phase].load(Ordering::SeqCst) {
            0 => Box::pin(ready(Ok(Filtered::Passed))),
            1 => Box::pin(ready(Ok(Filtered::Refused("no".to_owned())))),
            2 => Box::pin(ready(Err("it is broken".to_owned()))),
            _ => Box::pin(pending()),
        }
    }
}

/// Resources that may turn out to be held.
#[derive(Debug)]
struct Documents {
    inner: Arc<StaticResources>,
    state: State,
}

impl Resources for Documents {
    fn entries(&self) -> &[ResourceEntry] {
        self.inner.entries()
    }

    fn templates(&self) -> &[ResourceTemplate] {
        self.inner.templates()
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        self.inner.matching(filter)
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        self.inner.canonical(uri)
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        match self.state.run() {
            Ok(()) => Arc::clone(&self.inner).read(read),
            Err(why) => Box::pin(ready(Err(ReadFailure::Held(why)))),
        }
    }
}

/// A way to the tool `work`, to the resource `doc://work` or the prompt `work`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    FirstOfBatch,
    LastOfBatch,
    Search(usize),
    Task,
    /// With the answers to what the call has asked, when it was still let through.
    Retry,
    /// Once more under the idempotency key of a call that was let through.
    Again,
    /// By the name that the page of an app knows the tool by.
    App,
    /// The result that was too long, when the call was still let through: by address, and by the tool that reads on.
    Kept,
    KeptByTool,
    /// The resource that a result links to.
    Link,
    /// The resource, read by the handler of a tool that the caller may call.
    Handler,
    Prompt,
}

const WAYS: [Way; 15] = [
    Way::Direct,
    Way::FirstOfBatch,
    Way::LastOfBatch,
    Way::Search(0),
    Way::Search(1),
    Way::Search(2),
    Way::Task,
    Way::Retry,
    Way::Again,
    Way::App,
    Way::Kept,
    Way::KeptByTool,
    Way::Link,
    Way::Handler,
    Way::Prompt,
];

const CALLERS: [&str; 3] = ["call_tool_read", "call_tool_write", "call_tool_destructive"];

/// The subjects of the rules.
fn rules_names() -> Vec<String> {
    let names = [
        "tool/work",
        "tool/asks",
        "resource/doc://work",
        "prompt/work",
    ];
    names.map(str::to_owned).to_vec()
}

fn rules(why: Option<Why>) -> PolicySpec {
    let names = rules_names;
    let mut rules = Rules::default();
    let mut facts = None;
    match why {
        None | Some(Why::TurnsOutHeld | Why::Filter(_) | Why::Withheld(_)) => {}
        Some(Why::Hidden) => rules.hidden = names(),
        Some(Why::Denied) => rules.deny = names(),
        Some(Why::Held) => {
            facts = Some(CapabilityFacts {
                held: Some(HELD.into()),
                ..CapabilityFacts::default()
            });
        }
        Some(Why::TooMany) => {
            facts = Some(CapabilityFacts {
                limits: RateLimits {
                    per_minute: Some(0),
                    per_day: None,
                },
                ..CapabilityFacts::default()
            });
        }
        Some(Why::TooDear) => {
            rules.quota = Quota {
                monthly_budget: Some(Micros(0)),
                ..Quota::default()
            };
        }
    }
    let mut spec = policy(rules);
    for name in names() {
        if let Some(facts) = &facts {
            spec.capabilities.insert(name, facts.clone());
        }
    }
    spec
}

/// Runs of what is to be refused: of tools, reads and prompts.
struct Counted {
    house: House,
    state: State,
}

impl Counted {
    fn runs(&self) -> usize {
        self.state.runs.load(Ordering::SeqCst)
    }

    /// Refuses what is asked for from now on.
    fn refuse(&self, why: Why) {
        let policy = Policy::new(rules(Some(why))).unwrap();
        self.house.mcp_server.replace_policy(policy);
        self.state.set(why);
    }
}

fn tools(setup: &Setup, state: &State) -> Vec<Tool> {
    let bench = &setup.bench;
    let reads = Annotations {
        read_only: Some(true),
        ..Annotations::default()
    };
    let long = || format!("{CANARY}\n").repeat(100);
    let (of_work, of_asks) = (state.clone(), state.clone());
    vec![
        bench
            .tool("work", json!({}), &[], move |_, _| {
                let ran = of_work.run();
                async move {
                    ran.map_err(ToolError::Held)?;
                    Ok(long().into())
                }
            })
            .with_annotations(reads)
            .with_estimated_cost_micros(1_000)
            .with_meta("ui", json!({ "resourceUri": "ui://up/page" }))
            .with_meta(
                "io.owlclaw/upstream",
                json!({ "name": "up", "tool": "own-work" }),
            ),
        bench
            .tool("asks", json!({}), &[], move |cx: ToolCx, _| {
                let ran = of_asks.run();
                async move {
                    ran.map_err(ToolError::Held)?;
                    let schema = json!({ "type": "object", "properties": {} });
                    let asked = Needed::form("size", "Which?", schema);
                    match cx.answers().elicited("size", &asked) {
                        Some(Elicited::Accepted(_)) => Ok(CANARY.into()),
                        _ => Err(ToolError::NeedsInput(asked)),
                    }
                }
            })
            .with_estimated_cost_micros(1_000),
        Tool::native("reader", |cx, adapter_tools::NoArguments {}| async move {
            let reads = cx.resources().cloned().expect("it takes the context");
            let read = reads.read("doc://work".to_owned()).await;
            Ok(read.map_or_else(|why| why, |it| it.to_string()))
        })
        .with_context(true),
    ]
}

async fn counted() -> Counted {
    let setup = tasks_house::setup(tasks_house::options()).await;
    let state = State::default();
    let mut more_tools = tools(&setup, &state);
    more_tools.extend(setup.more_tools);
    let fills = state.clone();
    let template = ResourceTemplate {
        uri_template: "doc://{name}".to_owned(),
        name: "doc".to_owned(),
        ..ResourceTemplate::default()
    };
    let resources = StaticResources::new().template(template, move |uri| {
        uri.strip_prefix("doc://")?;
        Some(ResourceContents {
            uri: uri.to_owned(),
            mime_type: None,
            text: Some(CANARY.to_owned()),
            blob: None,
            meta: None,
        })
    });
    let prompt = Prompt {
        name: "work".to_owned(),
        ..Prompt::default()
    };
    let prompts = StaticPrompts::new().prompt(prompt, move |_| {
        fills.run().map_err(PromptFailure::Held)?;
        Ok(GetPromptResult {
            messages: vec![PromptMessage {
                role: Role::User,
                content: mcp_protocol::model::Content::text(CANARY),
            }],
            ..GetPromptResult::default()
        })
    });
    let house = Setup {
        policy: rules(None),
        more_tools,
        resources: Arc::new(Documents {
            inner: Arc::new(resources),
            state: state.clone(),
        }),
        filters: Filters::new(vec![FilterRule {
            capabilities: PatternSet::new(&rules_names()).unwrap(),
            timeout: Duration::from_millis(20),
            ..FilterRule::new("moody", state.clone())
        }]),
        prompts: Arc::new(prompts),
        search_view: Some(SearchOptions {
            clients: vec!["*".to_owned()],
            ..SearchOptions::default()
        }),
        results: Some(ResultOptions {
            rules: vec![ResultRule {
                limit: ResultLimit {
                    characters: Some(1_000),
                    ..ResultLimit::default()
                },
                ..ResultRule::default()
            }],
            clock: crate::house::now_us,
            ..ResultOptions::default()
        }),
        ..setup
    }
    .build();
    Counted { house, state }
}

/// The answer by a way, after what the way needs was done while the caller still might; `None` if the revision has no
/// such way.
async fn answer(
    counted: &Counted,
    client: &mut Client,
    version: &str,
    way: Way,
    why: Why,
) -> Option<(usize, usize, Value)> {
    let work = || json!({ "name": "work", "arguments": {} });
    let keyed = || json!({ "name": "work", "arguments": {}, "_meta": { "io.owlclaw/idempotencyKey": "k" } });
    let mut state = Value::Null;
    let mut uri = String::new();
    match way {
        Way::FirstOfBatch | Way::LastOfBatch
            if !Place::of(version).contains(&Place::LastOfBatch) =>
        {
            return None;
        }
        Way::Task if version != LEGACY && version != MODERN => return None,
        Way::Retry if version != MODERN => return None,
        Way::App if version != MODERN => return None,
        Way::Retry => {
            let asked = client.call("asks", json!({})).await;
            state = asked["result"]["requestState"].clone();
            assert!(state.is_string(), "{asked}");
        }
        Way::Again => {
            let done = client.ask("tools/call", keyed()).await;
            assert!(done.to_string().contains(CANARY), "{done}");
        }
        Way::Kept | Way::KeptByTool => {
            let done = client.ask("tools/call", work()).await.to_string();
            let begin = done.find("result://").unwrap_or_else(|| panic!("{done}"));
            uri = done[begin..begin + 41].to_owned();
        }
        _ => {}
    }
    let on_record = counted.house.record().await.len();
    counted.refuse(why);
    let before = counted.runs();
    // It is told that its lists have changed.
    client.settle().await;
    let through = |by: usize| json!({ "name": CALLERS[by], "arguments": work() });
    let answer = match way {
        Way::Direct => client.ask("tools/call", work()).await,
        Way::FirstOfBatch => {
            client
                .ask_at(Place::FirstOfBatch, "tools/call", work())
                .await
        }
        Way::LastOfBatch => {
            client
                .ask_at(Place::LastOfBatch, "tools/call", work())
                .await
        }
        Way::Search(by) => client.ask("tools/call", through(by)).await,
        Way::Task => {
            let mut call = work();
            match version {
                LEGACY => call["task"] = json!({}),
                _ => {
                    call["_meta"] = json!({
                        "io.modelcontextprotocol/clientCapabilities": { "extensions": { EXTENSION: {} } }
                    });
                }
            }
            client.ask("tools/call", call).await
        }
        Way::Retry => {
            let call = json!({
                "name": "asks", "arguments": {}, "requestState": state,
                "inputResponses": { "size": { "action": "accept", "content": {} } },
            });
            client.ask("tools/call", call).await
        }
        Way::Again => client.ask("tools/call", keyed()).await,
        Way::App => {
            client.voice.capabilities = json!({ "extensions": { APPS: {} } });
            client.call("own-work", json!({})).await
        }
        Way::Kept => client.ask("resources/read", json!({ "uri": uri })).await,
        Way::KeptByTool => client.call("read_result", json!({ "uri": uri })).await,
        Way::Link => {
            client
                .ask("resources/read", json!({ "uri": "doc://work" }))
                .await
        }
        Way::Handler => client.call("reader", json!({})).await,
        Way::Prompt => client.ask("prompts/get", json!({ "name": "work" })).await,
    };
    Some((before, on_record, answer))
}

/// True if an answer may have what was answered before to the same client.
fn may_be_told_again(way: Way, why: Why) -> bool {
    // What is refused for now only was done, and is answered as before; reading it costs what reading costs.
    let is_for_now = !matches!(why, Why::Hidden | Why::Denied);
    // Filters are asked about the call; the rest of its result was let through.
    let is_past = match why {
        Why::Filter(_) => matches!(way, Way::Kept | Way::KeptByTool),
        _ => matches!(way, Way::Again | Way::Kept | Way::KeptByTool),
    };
    is_for_now && is_past
}

/// Reason of the refusal, as the record has it; `None` of what was done and is withheld.
fn recorded(why: Why) -> Option<&'static str> {
    Some(match why {
        Why::Hidden => "not_visible",
        Why::Denied => "permission",
        Why::Held | Why::TurnsOutHeld => "held",
        Why::TooMany => "rate_minute",
        Why::TooDear => "budget",
        Why::Filter(_) => "filter",
        Why::Withheld(_) => return None,
    })
}

/// Checks that the record has what was refused, and with which reason.
fn check_record(calls: &[Call], way: Way, why: Why, answer: &Value) {
    let about = || format!("{way:?} {why:?}: {answer} {calls:?}");
    let [first, rest @ ..] = calls else {
        panic!("nothing is on record: {}", about());
    };
    assert_eq!(first.started.principal, "agent");
    if may_be_told_again(way, why) && answer.to_string().contains(CANARY) {
        return;
    }
    // The tool whose handler reads is its caller's to call.
    let refused = match (way, rest) {
        (Way::Handler, [read]) => read,
        (_, []) => first,
        _ => panic!("{}", about()),
    };
    let message = refused.ended.message.as_deref().unwrap_or_default();
    match recorded(why) {
        // A result of what is hidden now is one that its caller may not read.
        Some("not_visible") if matches!(way, Way::Kept | Way::KeptByTool) => {
            assert_eq!(refused.reason(), Some("permission"), "{}", about());
        }
        // No offered name is put in the place of the page's, which is that of no tool.
        Some("not_visible") if way == Way::App => {
            assert_eq!(refused.reason(), Some("unknown"), "{}", about());
        }
        Some(reason) => assert_eq!(refused.reason(), Some(reason), "{}", about()),
        None => {
            assert_eq!(refused.ended.outcome, Outcome::Failed, "{}", about());
            assert!(message.contains("moody"), "{}", about());
            assert!(!refused.ended.result.text.contains(CANARY), "{}", about());
            return;
        }
    }
    assert_eq!(refused.ended.cost_micros, 0, "{}", about());
    if recorded(why) == Some("held") {
        assert!(message.contains(HELD), "{}", about());
    }
}

/// A budget that is spent refuses what costs something, and neither reads nor prompts do.
fn is_refused(way: Way, why: Why) -> bool {
    why != Why::TooDear || !matches!(way, Way::Link | Way::Handler | Way::Prompt)
}

/// Each way, for each reason and in each revision, with a server of its own.
#[tokio::test]
async fn nothing_runs_for_who_is_refused_by_whichever_way() {
    for (way, why) in WAYS
        .into_iter()
        .flat_map(|way| REASONS.map(|why| (way, why)))
    {
        for version in SPOKEN.into_iter().filter(|_| is_refused(way, why)) {
            let counted = counted().await;
            let mut client = counted.house.join("agent", Duration::ZERO);
            client.voice.capabilities = json!({ "elicitation": {} });
            client.open(version).await;
            let asked = answer(&counted, &mut client, version, way, why).await;
            let Some((before, on_record, answer)) = asked else {
                continue;
            };
            let calls = counted.house.record().await.split_off(on_record);
            check_record(&calls, way, why, &answer);
            let is_done = matches!(why, Why::Withheld(_));
            let about = || format!("{way:?} {why:?} {version}: {answer}");
            assert!(is_done || counted.runs() == before, "{}", about());
            let told = answer.to_string();
            assert!(
                !told.contains(CANARY) || may_be_told_again(way, why),
                "{}",
                about()
            );
        }
    }
}

/// By each way that a revision has, what is refused above is done for who may have it.
#[tokio::test]
async fn the_same_runs_for_who_may_have_it() {
    let counted = counted().await;
    let mut client = counted.house.connect("agent", MODERN).await;
    for (method, params) in [
        ("tools/call", json!({ "name": "work", "arguments": {} })),
        (
            "tools/call",
            json!({ "name": CALLERS[0], "arguments": { "name": "work" } }),
        ),
        ("tools/call", json!({ "name": "reader", "arguments": {} })),
        ("resources/read", json!({ "uri": "doc://work" })),
        ("prompts/get", json!({ "name": "work" })),
    ] {
        let answer = client.ask(method, params).await;
        assert!(answer.to_string().contains(CANARY), "{answer}");
    }
    client.voice.capabilities = json!({ "extensions": { APPS: {} } });
    let answer = client.call("own-work", json!({})).await;
    assert!(answer.to_string().contains(CANARY), "{answer}");
}

/// A hold that an executor finds refuses the call as every later one is refused.
#[tokio::test]
async fn a_call_that_finds_a_hold_is_refused_like_one_of_what_is_held() {
    let asked = [
        (
            "tools/call",
            json!({ "name": "work", "arguments": {} }),
            "tool/work",
        ),
        (
            "resources/read",
            json!({ "uri": "doc://work" }),
            "resource/doc://work",
        ),
        ("prompts/get", json!({ "name": "work" }), "prompt/work"),
        (
            "tools/call",
            json!({ "name": "work", "arguments": {}, "_meta": { "io.owlclaw/idempotencyKey": "k" } }),
            "tool/work",
        ),
    ];
    for version in SPOKEN {
        for (method, params, capability) in &asked {
            let mut told = Vec::new();
            for why in [Why::TurnsOutHeld, Why::Held] {
                let counted = counted().await;
                let mut client = counted.house.connect("agent", version).await;
                counted.refuse(why);
                client.settle().await;
                let mut answer = client.ask(method, params.clone()).await;
                answer["id"] = json!(0);
                assert_eq!(
                    reason_of(&answer),
                    Some("held"),
                    "{version} {method}: {answer}"
                );
                assert!(answer.to_string().contains("upstream approve"), "{answer}");
                let calls = counted.house.record().await;
                let [call] = &calls[..] else {
                    panic!("{calls:?}");
                };
                let ended = &call.ended;
                told.push((
                    answer,
                    call.started.capability.clone(),
                    ended.outcome.clone(),
                    ended.message.clone(),
                    ended.error_code,
                    ended.cost_micros,
                ));
                assert_eq!(
                    (call.reason(), &*call.started.capability),
                    (Some("held"), *capability)
                );
                let usage = counted.house.usage_of("agent").await;
                assert!(usage.is_none_or(|it| it.calls_total == 0 && it.spent == Micros(0)));
                assert_eq!(counted.runs(), 0);
            }
            assert_eq!(told[0], told[1], "{version} {method}");
        }
    }
}
