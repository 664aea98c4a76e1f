//! The search view: what its clients are listed and find, and that calls through it are calls like any other.

use crate::{
    house::{Bench, Client, House, SPOKEN, Setup, has_batches, policy, reason_of},
    tasks_house::{self, EXTENSION, LEGACY},
};
use adapter_tools::{Annotations, TaskSupport, Tool};
use governance::{
    CapabilityFacts, Condition, Effect, Micros, PolicySpec, Quota, RateLimits, Risk, Rules,
};
use mcp_server::SearchOptions;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Instant};
use testkit::MODERN;

const OWN: [&str; 5] = [
    "search_tools",
    "describe_tools",
    "call_tool_read",
    "call_tool_write",
    "call_tool_destructive",
];

const CALLERS: [&str; 3] = ["call_tool_read", "call_tool_write", "call_tool_destructive"];

fn annotated(read_only: Option<bool>, destructive: Option<bool>) -> Annotations {
    Annotations {
        read_only,
        destructive,
        ..Annotations::default()
    }
}

fn tools(bench: &Bench) -> Vec<Tool> {
    let tool = |name: &'static str, says: Annotations| {
        let parameters = json!({
            "order": { "type": "string", "description": "Number of the order." },
            "note": { "type": "string" },
        });
        let tool = bench.tool(name, parameters, &["order"], |cx, _| async move {
            cx.add_cost_micros(5);
            Ok("done".into())
        });
        tool.with_annotations(says)
    };
    vec![
        tool("order-show", annotated(Some(true), None)).describe("Shows an order. At length."),
        tool("order-note", annotated(Some(false), Some(false)))
            .describe("Adds a note to an order."),
        tool("order-delete", annotated(None, Some(true))).describe("Deletes an order."),
        tool("order-unmarked", annotated(None, None)).describe("Does something with an order."),
        tool("order-secret", annotated(Some(true), None)).describe("Shows the zebra of an order."),
        // Its annotations say that it reads, and the rules say that it does not.
        tool("order-doubtful", annotated(Some(true), None))
            .describe("Says that it shows an order."),
        // The rules say that it reads.
        tool("order-audited", annotated(None, None)).describe("Shows who has seen an order."),
        tool("order-paid", annotated(Some(false), Some(false))).describe("Pays for an order."),
        tool("order-held", annotated(Some(true), None)).describe("Is held."),
        tool("order-poor", annotated(Some(true), None)).with_estimated_cost_micros(1_000_000),
        tool("order-rare", annotated(Some(true), None)).describe("Is called once a minute."),
        tool("order-denied", annotated(Some(true), None)).describe("Is denied."),
        tool("order-slow", annotated(Some(true), None)).with_task_support(TaskSupport::Required),
    ]
}

fn risk(risk: Risk) -> CapabilityFacts {
    CapabilityFacts {
        risk,
        ..CapabilityFacts::default()
    }
}

fn rules() -> PolicySpec {
    let mut spec = policy(Rules {
        hidden: vec!["tool/order-secret".to_owned()],
        deny: vec!["tool/order-denied".to_owned()],
        quota: Quota {
            monthly_budget: Some(Micros(500_000)),
            ..Quota::default()
        },
        ..Rules::default()
    });
    let facts = [
        (
            "order-doubtful",
            risk(Risk {
                mutating: true,
                ..Risk::default()
            }),
        ),
        (
            "order-audited",
            risk(Risk {
                read_only: true,
                ..Risk::default()
            }),
        ),
        (
            "order-paid",
            risk(Risk {
                financial: true,
                ..Risk::default()
            }),
        ),
        (
            "order-held",
            CapabilityFacts {
                held: Some("its definition has changed".into()),
                ..CapabilityFacts::default()
            },
        ),
        (
            "order-rare",
            CapabilityFacts {
                limits: RateLimits {
                    per_minute: Some(0),
                    per_day: None,
                },
                ..CapabilityFacts::default()
            },
        ),
    ];
    for (tool, facts) in facts {
        spec.capabilities.insert(format!("tool/{tool}"), facts);
    }
    spec
}

/// Clients whose names begin with `agent` have the search view.
async fn house() -> House {
    let setup = tasks_house::setup(tasks_house::options()).await;
    let mut more_tools = tools(&setup.bench);
    more_tools.extend(setup.more_tools);
    Setup {
        policy: rules(),
        more_tools,
        search_view: Some(SearchOptions {
            clients: vec!["agent*".to_owned()],
            roles: vec!["searcher".to_owned()],
            direct: vec!["order-s*".to_owned(), "search_tools".to_owned()],
        }),
        ..setup
    }
    .build()
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}

async fn found(client: &mut Client, query: &str) -> String {
    text(&client.call("search_tools", json!({ "query": query })).await).to_owned()
}

fn through(by: &str, tool: &str) -> Value {
    json!({ "name": by, "arguments": { "name": tool, "arguments": { "order": "4711" } } })
}

#[tokio::test]
async fn the_view_is_a_clients_and_no_sessions() {
    let house = house().await;
    let expected: Vec<_> = OWN
        .into_iter()
        .chain(["order-show", "order-slow"])
        .collect();
    for version in SPOKEN {
        let mut agent = house.connect("agent-7", version).await;
        assert_eq!(agent.tool_names().await, expected, "{version}");
        let mut with_role = house.connect_with("carla", &["searcher"], version).await;
        assert_eq!(with_role.tool_names().await, expected, "{version}");
        // Others see what they saw, and for them there are no such tools.
        let mut other = house.connect("carla", version).await;
        let listed = other.tool_names().await;
        assert!(listed.contains(&"order-delete".to_owned()), "{listed:?}");
        assert!(
            !listed.iter().any(|it| OWN.contains(&it.as_str())),
            "{listed:?}"
        );
        for name in OWN {
            let unknown = other.call("nothing-there", json!({})).await;
            let answer = other.call(name, json!({ "query": "order" })).await;
            let as_unknown = answer["error"].to_string().replace(name, "nothing-there");
            assert_eq!(as_unknown, unknown["error"].to_string());
        }
    }
    let mut agent = house.connect("agent-7", MODERN).await;
    let tools = agent.list("tools/list", "tools").await;
    let says = |name: &str| {
        let tool = tools.iter().find(|it| it["name"] == name).unwrap();
        let hint = |hint: &str| tool["annotations"][hint].as_bool();
        (hint("readOnlyHint"), hint("destructiveHint"))
    };
    assert_eq!(
        OWN.map(says),
        [
            (Some(true), Some(false)),
            (Some(true), Some(false)),
            (Some(true), Some(false)),
            (Some(false), Some(false)),
            (Some(false), Some(true)),
        ]
    );
}

#[tokio::test]
async fn tools_are_found_and_described() {
    let house = house().await;
    let mut agent = house.connect("agent", MODERN).await;
    let lines = found(&mut agent, "show order").await;
    let first = lines.lines().next().unwrap();
    assert_eq!(
        first,
        "order-show(order: string, note?: string) [read] - Shows an order."
    );
    for (query, line) in [
        (
            "order-delete",
            "order-delete(order: string, note?: string) [destructive] - Deletes an order.",
        ),
        (
            "write a note",
            "order-note(order: string, note?: string) [write] - Adds a note to an order.",
        ),
        (
            "order-unmarked",
            "order-unmarked(order: string, note?: string) [destructive] - Does something with an order.",
        ),
        (
            "order-doubtful",
            "order-doubtful(order: string, note?: string) [destructive] - Says that it shows an order.",
        ),
        (
            "order-audited",
            "order-audited(order: string, note?: string) [read] - Shows who has seen an order.",
        ),
        (
            "order-paid",
            "order-paid(order: string, note?: string) [destructive] - Pays for an order.",
        ),
    ] {
        assert_eq!(found(&mut agent, query).await.lines().next(), Some(line));
    }
    let few = agent
        .call("search_tools", json!({ "query": "order", "limit": 2 }))
        .await;
    let few = text(&few);
    assert!(
        few.lines().count() == 3 && few.contains(" more fit less well"),
        "{few}"
    );
    assert!(
        found(&mut agent, "submarine")
            .await
            .starts_with("No tool fits.")
    );
    let names = json!({ "names": ["order-delete", "order-secret", "no-such"] });
    let described = agent.call("describe_tools", names).await;
    let described: Value = serde_json::from_str(text(&described)).unwrap();
    assert_eq!(described[0]["callBy"], "call_tool_destructive");
    assert_eq!(described[0]["inputSchema"]["required"], json!(["order"]));
    // Hidden and unknown are the same.
    assert_eq!(
        described[1],
        json!({ "name": "order-secret", "error": "unknown tool" })
    );
    assert_eq!(
        described[2],
        json!({ "name": "no-such", "error": "unknown tool" })
    );
    // Neither is on record, as lists are not.
    assert_eq!(house.record().await.len(), 0);
}

#[tokio::test]
async fn nothing_of_a_hidden_tool_is_in_an_index() {
    let house = house().await;
    let mut agent = house.connect("agent", MODERN).await;
    for query in ["zebra", "order-secret", "secret", "zeb"] {
        assert!(
            !found(&mut agent, query).await.contains("secret"),
            "{query}"
        );
    }
    // Its words do not even count for others: with or without it, the answers are the same.
    let mut without = tasks_house::setup(tasks_house::options()).await;
    without.more_tools = tools(&without.bench)
        .into_iter()
        .filter(|it| it.name() != "order-secret")
        .collect();
    without.policy = rules();
    without.search_view = Some(SearchOptions {
        clients: vec!["*".to_owned()],
        ..SearchOptions::default()
    });
    let alone = Setup { ..without };
    let setup = tasks_house::setup(tasks_house::options()).await;
    let with = Setup {
        more_tools: tools(&setup.bench),
        policy: rules(),
        search_view: Some(SearchOptions {
            clients: vec!["*".to_owned()],
            ..SearchOptions::default()
        }),
        ..setup
    };
    let (alone, with) = (alone.build(), with.build());
    let (mut one, mut other) = (
        alone.connect("agent", MODERN).await,
        with.connect("agent", MODERN).await,
    );
    for query in [
        "show",
        "order",
        "shows the zebra",
        "who pays orders",
        "number note",
    ] {
        assert_eq!(
            found(&mut one, query).await,
            found(&mut other, query).await,
            "{query}"
        );
    }
}

/// A call through the view is on record, counted and answered as if it were made directly.
#[tokio::test]
async fn a_call_through_the_view_is_the_call_of_its_tool() {
    for version in SPOKEN {
        let house = house().await;
        let mut agent = house.connect("agent", version).await;
        let direct = agent.call("order-show", json!({ "order": "4711" })).await;
        let wrapped = agent
            .ask("tools/call", through("call_tool_read", "order-show"))
            .await;
        assert_eq!(
            direct["result"]["content"], wrapped["result"]["content"],
            "{version}"
        );
        let record = house.record().await;
        let [one, other] = &record[..] else {
            panic!("{record:?}");
        };
        assert_eq!(one.started.capability, "tool/order-show");
        assert_eq!(one.started.capability, other.started.capability);
        assert_eq!(one.started.arguments, other.started.arguments);
        assert_eq!(one.started.arguments_digest, other.started.arguments_digest);
        assert_eq!(one.ended.cost_micros, other.ended.cost_micros);
        assert_eq!(one.started.via, None);
        assert_eq!(other.started.via.as_deref(), Some("search"));
        let usage = house.usage_of("agent").await.unwrap();
        assert_eq!(usage.spent, Micros(10), "{version}");
    }
}

/// Arguments in the name of the parameter that gets them all are judged, recorded and approved as the tool gets them.
#[tokio::test]
async fn wrapped_arguments_are_judged_and_recorded_as_the_tool_gets_them() {
    let condition = |name: &str, when: &str, effect| Condition {
        name: name.to_owned(),
        capability: "tool/pay".to_owned(),
        when: when.to_owned(),
        effect,
    };
    for version in SPOKEN {
        let bench = Bench::new();
        let pay = bench.tool("pay", json!({}), &[], |_, arguments| async move {
            Ok(Value::Object(arguments).to_string().into())
        });
        let pay = pay
            .with_input_schema(json!({ "type": "object" }))
            .with_whole("session");
        let house = Setup {
            policy: policy(Rules {
                conditions: vec![
                    condition(
                        "large",
                        "has(args.amount) && args.amount > 10",
                        Effect::Deny,
                    ),
                    condition("to", "has(args.to)", Effect::Confirm),
                ],
                ..Rules::default()
            }),
            more_tools: vec![pay],
            search_view: Some(SearchOptions {
                clients: vec!["agent".to_owned()],
                ..SearchOptions::default()
            }),
            bench,
            ..Setup::default()
        }
        .build();
        for principal in ["anna", "agent"] {
            let mut client = house.connect(principal, version).await;
            let mut call = async |arguments: Value| {
                let sent = json!({ "name": "pay", "arguments": arguments });
                let sent = match principal {
                    "agent" => json!({ "name": "call_tool_destructive", "arguments": sent }),
                    _ => sent,
                };
                client.ask("tools/call", sent).await
            };
            let refused = call(json!({ "session": { "amount": 11 } })).await;
            assert_eq!(reason_of(&refused), Some("permission"), "{refused}");
            let asked = call(json!({ "session": { "to": "bob" } })).await;
            assert_eq!(reason_of(&asked), Some("confirmation"), "{asked}");
            let done = call(json!({ "session": { "amount": 3 } })).await;
            assert_eq!(text(&done), r#"{"amount":3}"#, "{version}");
            // A wrapping that does not come off is no way past a condition.
            for arguments in [
                json!({ "session": { "session": { "amount": 11 } } }),
                json!({ "session": { "amount": 11 }, "amount": 3 }),
                json!({ "session": [11] }),
            ] {
                let refused = call(arguments).await;
                assert!(refused.to_string().contains("/session: is no argument"));
            }
        }
        let record = house.record().await;
        let recorded = |text: &str| {
            let all = record.iter().map(|it| &it.started);
            all.filter(|it| it.arguments.text == text).count()
        };
        assert_eq!(recorded(r#"{"amount":3}"#), 2, "{version}: {record:?}");
        assert_eq!(house.bench.runs(), 2, "{version}");
    }
}

#[tokio::test]
async fn a_key_is_the_same_by_every_way() {
    let house = house().await;
    let mut agent = house.connect("agent", "2025-06-18").await;
    let key = json!({ "io.owlclaw/idempotencyKey": "k-1" });
    for (number, mut call) in [
        through("call_tool_read", "order-show"),
        through("call_tool_destructive", "order-show"),
        json!({ "name": "order-show", "arguments": { "order": "4711" } }),
    ]
    .into_iter()
    .enumerate()
    {
        call["_meta"] = key.clone();
        let answer = agent.ask("tools/call", call).await;
        assert_eq!(text(&answer), "done", "{number}");
        assert_eq!(house.bench.runs(), 1);
    }
}

/// A tool of the view makes no graver calls than it says, alone, in a batch and as a task.
#[tokio::test]
async fn a_tool_of_the_view_makes_no_graver_calls_than_it_says() {
    let grave = [
        ("call_tool_read", "order-note"),
        ("call_tool_read", "order-delete"),
        ("call_tool_read", "order-unmarked"),
        ("call_tool_read", "order-doubtful"),
        ("call_tool_read", "order-paid"),
        ("call_tool_write", "order-delete"),
        ("call_tool_write", "order-unmarked"),
        ("call_tool_write", "order-doubtful"),
        ("call_tool_write", "order-paid"),
    ];
    for version in SPOKEN {
        let house = house().await;
        let mut agent = house.connect("agent", version).await;
        for (by, tool) in grave {
            for answer in ways_in(&mut agent, version, through(by, tool)).await {
                let told = answer.to_string();
                assert!(
                    told.contains("call it by call_tool_"),
                    "{version}, {by}, {tool}: {told}"
                );
                assert!(told.contains("-32602"), "{version}, {by}, {tool}: {told}");
            }
        }
        assert_eq!(house.bench.runs(), 0, "{version}");
        let record = house.record().await;
        assert!(
            !record.is_empty() && record.iter().all(|it| it.reason() == Some("effect")),
            "{record:?}"
        );
        // A refusal uses nothing up.
        assert!(
            house
                .usage_of("agent")
                .await
                .is_none_or(|it| it.spent == Micros(0))
        );
        // By a tool for graver effects they are made.
        for (by, tool) in [
            ("call_tool_read", "order-show"),
            ("call_tool_read", "order-audited"),
            ("call_tool_write", "order-show"),
            ("call_tool_write", "order-note"),
            ("call_tool_destructive", "order-show"),
            ("call_tool_destructive", "order-delete"),
        ] {
            let before = house.bench.runs();
            let answer = agent.ask("tools/call", through(by, tool)).await;
            assert_eq!(text(&answer), "done", "{by} {tool}: {answer}");
            assert_eq!(house.bench.runs(), before + 1);
        }
    }
}

/// The answers to a call that is made alone, in a batch, and as a task, as far as a revision has them.
async fn ways_in(agent: &mut Client, version: &str, params: Value) -> Vec<Value> {
    let mut answers = vec![agent.ask("tools/call", params.clone()).await];
    if has_batches(version) {
        let place = crate::house::Place::LastOfBatch;
        answers.push(agent.ask_at(place, "tools/call", params.clone()).await);
    }
    if version == LEGACY {
        let mut as_task = params.clone();
        as_task["task"] = json!({ "ttl": 60_000 });
        answers.push(agent.ask("tools/call", as_task).await);
    }
    if version == MODERN {
        let mut as_task = params;
        as_task["_meta"] = json!({
            "io.modelcontextprotocol/clientCapabilities": { "extensions": { EXTENSION: {} } }
        });
        answers.push(agent.ask("tools/call", as_task).await);
    }
    answers
}

/// Callers who are refused are refused by every way in, and nothing runs.
#[tokio::test]
async fn the_refused_are_refused_by_every_way_in() {
    let refused = [
        ("order-secret", None),
        ("no-such-tool", None),
        ("order-denied", Some("permission")),
        ("order-held", Some("held")),
        ("order-poor", Some("budget")),
        ("order-rare", Some("rate_minute")),
    ];
    for version in SPOKEN {
        let house = house().await;
        let mut agent = house.connect("agent", version).await;
        for (tool, reason) in refused {
            let direct = json!({ "name": tool, "arguments": { "order": "4711" } });
            let calls = CALLERS.map(|by| through(by, tool));
            for call in calls.into_iter().chain([direct]) {
                for answer in ways_in(&mut agent, version, call).await {
                    match reason {
                        Some(_) => {
                            assert_eq!(reason_of(&answer), reason, "{version} {tool} {answer}")
                        }
                        None => {
                            let unknown = format!("unknown tool: {tool}");
                            assert_eq!(answer["error"]["message"], unknown, "{version} {answer}");
                        }
                    }
                }
            }
        }
        assert_eq!(house.bench.runs(), 0, "{version}");
        let record = house.record().await;
        // Hidden and unknown ones under the name that was meant, and never under that of the view's tool.
        for call in &record {
            assert!(
                call.reason().is_some() && call.started.capability.starts_with("tool/order-")
                    || call.started.capability == "tool/no-such-tool",
                "{call:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_is_wrong_is_told_with_the_schema_that_was_needed() {
    for version in SPOKEN {
        let house = house().await;
        let mut agent = house.connect("agent", version).await;
        let call = json!({ "name": "call_tool_read", "arguments": { "name": "order-show", "arguments": { "oder": 1 } } });
        for answer in ways_in(&mut agent, version, call).await {
            let told = match answer.pointer("/result/task/taskId") {
                Some(task) => agent.ask("tasks/result", json!({ "taskId": task })).await,
                None => answer,
            };
            let told = told.to_string();
            assert!(
                told.contains("The arguments of order-show are described")
                    && told.contains("Number of the order"),
                "{version}: {told}"
            );
        }
        // The wrapping itself.
        for wrong in [
            json!({ "tool": "order-show" }),
            json!({ "name": 7 }),
            json!({ "name": "order-show", "arguments": "{}" }),
            json!({ "name": "order-show", "arguments": [], "password": "hunter22" }),
        ] {
            let answer = agent.call("call_tool_read", wrong).await.to_string();
            assert!(
                answer.contains("Name of the tool.") || version == "1.0" || version < "2025-11-25",
                "{version}: {answer}"
            );
            assert!(answer.contains("-32602"), "{answer}");
        }
        // What is wrong is said, and what the tool takes that was meant; but nothing of one that is hidden.
        for (wrong, why) in [
            (json!({ "tool": "order-show" }), "which is missing"),
            (json!({ "name": 7 }), "/name: expected string, found number"),
            (
                json!({ "name": "order-show", "arguments": "{\"number\":1}" }),
                "/arguments: expected object, found string",
            ),
            (
                json!({ "name": "order-show", "arguments": {}, "why": "hunter22" }),
                "found \\\"why\\\"",
            ),
        ] {
            let is_named = wrong["name"].is_string();
            let answer = agent.call("call_tool_read", wrong).await.to_string();
            assert!(
                answer.contains(why) && !answer.contains("hunter22"),
                "{version}: {answer}"
            );
            assert_eq!(answer.contains("Number of the order"), is_named, "{answer}");
        }
        assert_eq!(house.bench.runs(), 0);
        let record = house.record().await;
        let wrapped = record
            .iter()
            .filter(|it| it.started.capability == "tool/call_tool_read");
        assert_eq!(wrapped.count(), 8);
        assert!(
            record
                .iter()
                .all(|it| !it.started.arguments.text.contains("hunter22")),
            "{record:?}"
        );
        for wrong in [
            json!({}),
            json!({ "query": "" }),
            json!({ "query": "x", "limit": 0 }),
        ] {
            let answer = agent.call("search_tools", wrong).await.to_string();
            assert!(answer.contains("-32602"), "{answer}");
        }
    }
}

/// A task that is begun again after a restart is held to what its caller said.
#[tokio::test]
async fn a_modern_task_through_the_view_is_a_task_of_its_tool() {
    let house = house().await;
    let mut agent = house.connect("agent", MODERN).await;
    let mut call = through("call_tool_read", "order-slow");
    let refused = agent.ask("tools/call", call.clone()).await;
    assert!(
        refused.get("error").is_some(),
        "its client knows no tasks: {refused}"
    );
    assert_eq!(house.bench.runs(), 0);
    call["_meta"] = json!({
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { EXTENSION: {} } }
    });
    let answer = agent.ask("tools/call", call).await;
    assert!(answer.get("result").is_some(), "{answer}");
    let record = house.record().await;
    assert!(
        record
            .iter()
            .all(|it| it.started.capability == "tool/order-slow"),
        "{record:?}"
    );
}

/// Measures searches among the tools of packaged servers, which `tests/search-view/collect.py` collects, with the
/// queries of `tests/search-view/golden.tsv`:
/// `OWLCLAW_SEARCH_CORPUS=DIRECTORY/tools.json cargo test --release -p mcp-server --test it -- --ignored --nocapture
/// golden`.
#[tokio::test]
#[ignore = "measures; wants a corpus, a release build and a quiet machine"]
#[expect(clippy::print_stdout, reason = "what was measured is printed")]
async fn golden_queries_find_their_tools() {
    let corpus =
        std::env::var("OWLCLAW_SEARCH_CORPUS").expect("OWLCLAW_SEARCH_CORPUS names a corpus");
    let corpus: BTreeMap<String, Vec<Value>> =
        serde_json::from_str(&std::fs::read_to_string(corpus).unwrap()).unwrap();
    let golden = include_str!("../../../../tests/search-view/golden.tsv");
    let house = Setup::default();
    let mut more_tools = Vec::new();
    for (server, tools) in &corpus {
        for tool in tools {
            // As a gateway offers it.
            let name = format!("mcp_{server}_{}", tool["name"].as_str().unwrap()).replace('-', "_");
            let description = tool["description"].as_str().unwrap_or_default();
            let made = house
                .bench
                .tool(name, json!({}), &[], |_, _| async { Ok("".into()) });
            more_tools.push(
                made.with_input_schema(tool["inputSchema"].clone())
                    .with_title(tool["title"].as_str().unwrap_or_default().to_owned())
                    .describe(format!("[MCP:{server}] {description}")),
            );
        }
    }
    let (tools, _) = adapter_tools::ToolSet::collect(more_tools);
    let count = tools.iter().count();
    let house = Setup {
        more_tools: tools.iter().cloned().collect(),
        search_view: Some(SearchOptions {
            clients: vec!["*".to_owned()],
            ..SearchOptions::default()
        }),
        ..house
    }
    .build();
    let mut agent = house.connect("agent", MODERN).await;
    let (mut first, mut among_three, mut characters, mut times) =
        (0.0, 0.0, Vec::new(), Vec::new());
    let queries: Vec<_> = golden
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .collect();
    for (query, expected) in &queries {
        let expected: Vec<_> = expected
            .split(',')
            .map(|it| format!("mcp_{}(", it.replace(['/', '-'], "_")))
            .collect();
        let began = Instant::now();
        let answer = found(&mut agent, query).await;
        times.push(began.elapsed());
        characters.push(answer.chars().count());
        let place = answer
            .lines()
            .position(|line| expected.iter().any(|it| line.starts_with(it)));
        first += f64::from(u8::from(place == Some(0)));
        among_three += f64::from(u8::from(place.is_some_and(|it| it < 3)));
    }
    characters.sort_unstable();
    times.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "a few queries")]
    let all = queries.len() as f64;
    let (first, among_three) = (first / all, among_three / all);
    let (median, most) = (
        characters[characters.len() / 2],
        characters[characters.len() - 1],
    );
    println!(
        "{count} tools, {all} queries: R@1 {first:.3}, R@3 {among_three:.3}; an answer has {median} characters \
         (median; {most} at most); a request takes {:?} (median)",
        times[times.len() / 2]
    );
    assert!(
        0.74 <= first && 0.88 <= among_three,
        "{first} {among_three}"
    );
    // At four characters a token.
    assert!(median <= 4 * 700, "{median}");
}
