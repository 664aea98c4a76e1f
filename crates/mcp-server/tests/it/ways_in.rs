//! Every way to what is on offer, for callers who may not have it: nothing runs, and nothing is answered of it.

use crate::{
    house::{Bench, Client, House, Place, SPOKEN, Setup, block_on, policy},
    tasks_house::{self, EXTENSION, LEGACY},
};
use adapter_tools::{Annotations, Elicited, Needed, Tool, ToolError};
use governance::{CapabilityFacts, Micros, Policy, PolicySpec, Quota, RateLimits, Rules};
use mcp_protocol::model::{
    GetPromptResult, Prompt, PromptMessage, ResourceContents, ResourceTemplate, Role,
};
use mcp_server::{
    ResultLimit, ResultOptions, ResultRule, SearchOptions, StaticPrompts, StaticResources,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
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

fn rules(why: Option<Why>) -> PolicySpec {
    let names = || {
        let names = [
            "tool/work",
            "tool/asks",
            "resource/doc://work",
            "prompt/work",
        ];
        names.map(str::to_owned).to_vec()
    };
    let mut rules = Rules::default();
    let mut facts = None;
    match why {
        None => {}
        Some(Why::Hidden) => rules.hidden = names(),
        Some(Why::Denied) => rules.deny = names(),
        Some(Why::Held) => {
            facts = Some(CapabilityFacts {
                held: Some("its definition has changed".into()),
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
    other: Arc<AtomicUsize>,
}

impl Counted {
    fn runs(&self) -> usize {
        self.house.bench.runs() + self.other.load(Ordering::SeqCst)
    }
}

fn tools(bench: &Bench) -> Vec<Tool> {
    let reads = Annotations {
        read_only: Some(true),
        ..Annotations::default()
    };
    let long = || format!("{CANARY}\n").repeat(100);
    vec![
        bench
            .tool("work", json!({}), &[], move |_, _| async move {
                Ok(long().into())
            })
            .with_annotations(reads)
            .with_estimated_cost_micros(1_000)
            .with_meta("ui", json!({ "resourceUri": "ui://up/page" }))
            .with_meta(
                "io.owlclaw/upstream",
                json!({ "name": "up", "tool": "own-work" }),
            ),
        bench
            .tool("asks", json!({}), &[], |cx, _| async move {
                match cx.answers().elicited("size") {
                    Some(Elicited::Accepted(_)) => Ok(CANARY.into()),
                    _ => {
                        let schema = json!({ "type": "object", "properties": {} });
                        Err(ToolError::NeedsInput(Needed::form(
                            "size", "Which?", schema,
                        )))
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
    let other = Arc::<AtomicUsize>::default();
    let mut more_tools = tools(&setup.bench);
    more_tools.extend(setup.more_tools);
    let fills = Arc::clone(&other);
    let template = ResourceTemplate {
        uri_template: "doc://{name}".to_owned(),
        name: "doc".to_owned(),
        ..ResourceTemplate::default()
    };
    // It is asked what there is, too, so that not its runs count but what is answered.
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
        fills.fetch_add(1, Ordering::SeqCst);
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
        resources: Arc::new(resources),
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
    Counted { house, other }
}

/// The answer by a way, after what the way needs was done while the caller still might; `None` if the revision has no
/// such way.
async fn answer(
    counted: &Counted,
    client: &mut Client,
    version: &str,
    way: Way,
    why: Why,
) -> Option<(usize, Value)> {
    let work = || json!({ "name": "work", "arguments": {} });
    let keyed = || json!({ "name": "work", "arguments": {}, "_meta": { "io.owlclaw/idempotencyKey": "k" } });
    let refuse = || {
        let policy = Policy::new(rules(Some(why))).unwrap();
        counted.house.mcp_server.replace_policy(policy);
        counted.runs()
    };
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
    let before = refuse();
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
    Some((before, answer))
}

/// True if an answer may have what was answered before to the same client.
fn may_be_told_again(way: Way, why: Why) -> bool {
    // What is refused for now only was done, and is answered as before; reading it costs what reading costs.
    let is_for_now = !matches!(why, Why::Hidden | Why::Denied);
    is_for_now && matches!(way, Way::Again | Way::Kept | Way::KeptByTool)
}

/// A budget that is spent refuses what costs something, and neither reads nor prompts do.
fn is_refused(way: Way, why: Why) -> bool {
    why != Why::TooDear || !matches!(way, Way::Link | Way::Handler | Way::Prompt)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn nothing_runs_for_who_is_refused_by_whichever_way(
        way in proptest::sample::select(WAYS.to_vec()),
        why in proptest::sample::select(vec![Why::Hidden, Why::Denied, Why::Held, Why::TooMany, Why::TooDear]),
        version in proptest::sample::select(SPOKEN.to_vec()),
    ) {
        prop_assume!(is_refused(way, why));
        block_on(async {
            let counted = counted().await;
            let mut client = counted.house.join("agent", std::time::Duration::ZERO);
            client.voice.capabilities = json!({ "elicitation": {} });
            client.open(version).await;
            if let Some((before, answer)) = answer(&counted, &mut client, version, way, why).await {
                assert_eq!(counted.runs(), before, "{way:?} {why:?} {version}: {answer}");
                let told = answer.to_string();
                assert!(
                    !told.contains(CANARY) || may_be_told_again(way, why),
                    "{way:?} {why:?} {version}: {answer}"
                );
            }
        });
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
