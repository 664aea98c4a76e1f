//! Lists hold what their reader may see, whole and fresh (Properties 6 and 11, decision D25).

use crate::house::{Client, House, SPOKEN, Setup, block_on, offer, policy};
use futures_util::future::BoxFuture;
use governance::{Micros, Policy, PolicySpec, Quota, Rules};
use mcp_protocol::model::{
    CompletionReference, GetPromptResult, ListResources, Prompt, ReadResource, ReadResourceResult,
    ResourceTemplate,
};
use mcp_server::{
    CombinedResources, NoResources, Options, ReadFailure, ResourceEntry, Resources, StaticPrompts,
    StaticResources,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use testkit::{LinePeer, MODERN, succeeded};

fn hiding(hidden: &[&str]) -> Rules {
    Rules {
        hidden: hidden.iter().map(|&it| it.to_owned()).collect(),
        ..Rules::default()
    }
}

fn documents(names: &[&str]) -> Arc<dyn Resources> {
    let add = |all: StaticResources, name: &&str| {
        all.text(
            &format!("doc://{name}"),
            name,
            "text/plain",
            format!("about {name}"),
        )
    };
    Arc::new(names.iter().fold(StaticResources::new(), add))
}

#[tokio::test]
async fn two_clients_see_what_each_may_see() {
    for version in SPOKEN {
        let house = Setup {
            policy: PolicySpec {
                principals: [
                    (
                        "anna".to_owned(),
                        hiding(&["tool/spend", "resource/doc://b"]),
                    ),
                    ("bert".to_owned(), hiding(&["tool/*", "resource/doc://a"])),
                ]
                .into(),
                ..PolicySpec::default()
            },
            resources: documents(&["a", "b", "c"]),
            ..Setup::default()
        }
        .build();
        let all: Vec<_> = house
            .bench
            .tools()
            .iter()
            .map(|it| it.name().to_owned())
            .collect();
        let mut anna = house.connect("anna", version).await;
        let mut bert = house.connect("bert", version).await;
        let mut carl = house.connect("carl", version).await;
        let most: Vec<_> = all.iter().filter(|it| *it != "spend").cloned().collect();
        // Twice, because the second time comes from the cache.
        for _ in 0..2 {
            assert_eq!(anna.tool_names().await, most, "{version}");
            assert!(bert.tool_names().await.is_empty(), "{version}");
            assert_eq!(carl.tool_names().await, all, "{version}");
            assert_eq!(anna.resource_uris().await, ["doc://a", "doc://c"]);
            assert_eq!(bert.resource_uris().await, ["doc://b", "doc://c"]);
            assert_eq!(
                carl.resource_uris().await,
                ["doc://a", "doc://b", "doc://c"]
            );
        }
    }
}

#[tokio::test]
async fn what_may_be_seen_and_not_used_is_listed() {
    let house = Setup {
        policy: policy(Rules {
            deny: vec!["*".to_owned()],
            ..Rules::default()
        }),
        resources: documents(&["a"]),
        ..Setup::default()
    }
    .build();
    let mut client = house.connect("anna", MODERN).await;
    assert_eq!(client.tool_names().await.len(), house.bench.tools().len());
    assert_eq!(client.resource_uris().await, ["doc://a"]);
}

#[tokio::test]
async fn each_tool_tells_of_the_limits_on_it() {
    let quota = Quota {
        max_calls_per_minute: Some(7),
        max_calls_per_day: Some(70),
        max_cost_per_call: Some(Micros(500_000)),
        ..Quota::default()
    };
    for version in SPOKEN {
        let house = Setup {
            policy: PolicySpec {
                default_estimated_cost: Micros(20_000),
                ..policy(Rules {
                    quota,
                    ..Rules::default()
                })
            },
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        for tool in client.list("tools/list", "tools").await {
            let hints = &tool["_meta"]["io.owlclaw/governance"];
            assert_eq!(hints["max_calls_per_minute"], 7, "{version}: {tool}");
            assert_eq!(hints["max_calls_per_day"], 70);
            assert_eq!(hints["max_cost_per_call"], "0.5");
            assert_eq!(hints["timeout_seconds"], 300.0);
            assert_eq!(hints["supports_async"], true);
        }
    }
}

#[tokio::test]
async fn a_cursor_that_is_none_of_the_list_is_refused() {
    for version in SPOKEN {
        let setup = Setup::default();
        let house = Setup {
            policy: policy(hiding(&["tool/spend"])),
            options: Options {
                tools_page: 1,
                resources_page: 1,
                ..setup.options
            },
            resources: documents(&["a", "b"]),
            ..setup
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let digits_of = |name: &str| {
            let digits: Vec<_> = name.bytes().map(|byte| format!("{byte:02x}")).collect();
            digits.concat()
        };
        let mut next = async |method: &str| {
            let page = client.ask(method, json!({})).await;
            let cursor = page["result"]["nextCursor"].as_str();
            cursor.expect("two pages").to_owned()
        };
        let of_tools = next("tools/list").await;
        let of_resources = next("resources/list").await;
        for (method, first, other) in [
            ("tools/list", 't', &of_resources),
            ("resources/list", 'r', &of_tools),
            ("resources/templates/list", 'u', &of_tools),
            ("resources/templates/list", 'u', &of_resources),
        ] {
            let hidden = format!("{first}{}", digits_of("spend"));
            let absent = format!("{first}{}", digits_of("nothing"));
            let [odd, none, wide] = ["6", "zz", "é0"].map(|it| format!("{first}{it}"));
            let mut answers = Vec::new();
            for cursor in ["", "x", &odd, &none, &wide, &hidden, &absent, other] {
                let answer = client.ask(method, json!({ "cursor": cursor })).await;
                assert_eq!(
                    answer["error"]["code"], -32602,
                    "{method} {cursor} {version}"
                );
                answers.push(answer["error"].clone());
            }
            assert!(
                answers.iter().all(|it| *it == answers[0]),
                "and says the same of all"
            );
            for cursor in [json!(5), json!(null), json!([])] {
                let answer = client.ask(method, json!({ "cursor": cursor })).await;
                assert_eq!(
                    answer["error"]["code"], -32602,
                    "{method} {cursor} {version}"
                );
            }
        }
    }
}

#[tokio::test]
async fn by_default_there_are_100_tools_and_50_resources_on_a_page() {
    let setup = Setup::default();
    let own = setup.bench.tools().len();
    let more = (own..101).map(|n| {
        let nothing = |_, _| async { Ok("".into()) };
        setup
            .bench
            .tool(format!("more-{n}"), json!({}), &[], nothing)
    });
    let more_tools = more.collect();
    let names: Vec<_> = (0..51).map(|n| format!("{n:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let house = Setup {
        more_tools,
        resources: documents(&names),
        ..setup
    }
    .build();
    let mut client = house.connect("anna", "2024-11-05").await;
    let page = client.ask("tools/list", json!({})).await;
    assert_eq!(page["result"]["tools"].as_array().unwrap().len(), 100);
    assert!(page["result"]["nextCursor"].is_string());
    assert_eq!(client.tool_names().await.len(), 101);
    let page = client.ask("resources/list", json!({})).await;
    assert_eq!(page["result"]["resources"].as_array().unwrap().len(), 50);
    assert_eq!(client.resource_uris().await.len(), 51);
}

#[tokio::test]
async fn a_modern_list_says_how_long_it_may_be_kept_and_by_whom() {
    let house = Setup {
        resources: documents(&["a"]),
        ..Setup::default()
    }
    .build();
    let mut client = house.connect("anna", MODERN).await;
    for (method, ttl_ms) in [("tools/list", 300_000), ("resources/list", 600_000)] {
        let answer = client.ask(method, json!({})).await;
        assert_eq!(answer["result"]["cacheScope"], "private");
        assert_eq!(answer["result"]["ttlMs"], ttl_ms);
    }
}

/// Changes of both lists, whatever the revision.
async fn hear_of_changes(client: &mut Client, version: &str) -> Value {
    if version == MODERN {
        let all =
            json!({ "notifications": { "toolsListChanged": true, "resourcesListChanged": true } });
        let id = client.begin("subscriptions/listen", all).await;
        let acknowledged = client.receive().await;
        assert_eq!(
            acknowledged["method"],
            "notifications/subscriptions/acknowledged"
        );
        id
    } else {
        Value::Null
    }
}

fn methods(messages: &[Value]) -> Vec<&str> {
    let of = |it: &'_ Value| it["method"].as_str().map(str::to_owned);
    assert!(messages.iter().all(|it| of(it).is_some()), "{messages:?}");
    messages
        .iter()
        .filter_map(|it| it["method"].as_str())
        .collect()
}

const TOOLS: &str = "notifications/tools/list_changed";
const RESOURCES: &str = "notifications/resources/list_changed";

#[tokio::test]
async fn another_offer_is_announced_and_listed_at_once() {
    for version in SPOKEN {
        let house = Setup {
            resources: documents(&["a"]),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let listen = hear_of_changes(&mut client, version).await;
        assert!(client.tool_names().await.contains(&"add".to_owned()));
        assert_eq!(client.resource_uris().await, ["doc://a"]);

        let tools = house.bench.tools().into_iter().take(1).collect();
        house
            .mcp_server
            .replace_offer(offer(tools, documents(&["a", "b"])));
        let told = client.receive_many(2).await;
        assert_eq!(methods(&told), [TOOLS, RESOURCES], "{version}");
        if version == MODERN {
            for message in &told {
                let meta = &message["params"]["_meta"];
                assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], listen);
            }
        }
        assert_eq!(client.tool_names().await, ["add"]);
        assert_eq!(client.resource_uris().await, ["doc://a", "doc://b"]);

        // Of tools that are the same nobody is told.
        let tools = house.bench.tools().into_iter().take(1).collect();
        house
            .mcp_server
            .replace_offer(offer(tools, documents(&["a"])));
        let mut told = client.receive_many(1).await;
        told.extend(client.settle().await);
        assert_eq!(methods(&told), [RESOURCES], "{version}");
    }
}

#[tokio::test]
async fn another_policy_is_announced_and_listed_at_once() {
    for version in SPOKEN {
        let house = Setup {
            resources: documents(&["a", "b"]),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        hear_of_changes(&mut client, version).await;
        assert!(client.tool_names().await.contains(&"add".to_owned()));
        assert_eq!(client.resource_uris().await.len(), 2);

        let next = policy(hiding(&["tool/add", "resource/doc://a"]));
        house.mcp_server.replace_policy(Policy::new(next).unwrap());
        assert_eq!(methods(&client.receive_many(2).await), [TOOLS, RESOURCES]);
        assert!(!client.tool_names().await.contains(&"add".to_owned()));
        assert_eq!(client.resource_uris().await, ["doc://b"]);
    }
}

#[tokio::test]
async fn a_modern_client_that_did_not_ask_hears_nothing() {
    let house = Setup::default().build();
    let mut client = house.connect("anna", MODERN).await;
    house
        .mcp_server
        .replace_offer(offer(house.bench.tools(), Arc::new(NoResources)));
    assert!(client.settle().await.is_empty());
}

#[tokio::test]
async fn a_list_is_the_same_bytes_until_something_changes() {
    let house = Setup::default().build();
    let (input, server_input) = tokio::io::duplex(1 << 20);
    let (server_output, mut output) = tokio::io::duplex(1 << 20);
    let engine = Arc::clone(house.mcp_server.engine());
    let principal = mcp_service::Principal::new("anna");
    tokio::spawn(async move {
        let never = std::future::pending();
        let options = transport_stdio::StdioOptions::default();
        transport_stdio::serve(
            &engine,
            principal,
            server_input,
            server_output,
            never,
            options,
        )
        .await
    });
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut input = input;
    let mut ask = async || {
        let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n";
        input.write_all(line).await.unwrap();
        let mut bytes = Vec::new();
        while bytes.last() != Some(&b'\n') {
            bytes.push(output.read_u8().await.unwrap());
        }
        bytes
    };
    let first = ask().await;
    assert_eq!(ask().await, first);
    let tools = house.bench.tools().into_iter().skip(1).collect();
    house
        .mcp_server
        .replace_offer(offer(tools, Arc::new(NoResources)));
    assert_ne!(ask().await, first);
}

#[tokio::test]
async fn a_list_follows_the_version_of_the_policy() {
    for version in SPOKEN {
        let house = Setup {
            resources: documents(&["a", "b"]),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let tools = client.tool_names().await;
        let uris = client.resource_uris().await;
        // Behind the server's back, so that nothing but the version tells it.
        let governor = house.mcp_server.governor();
        let next = policy(hiding(&["tool/add", "resource/doc://a"]));
        governor.replace_policy(Policy::new(next).unwrap());
        assert!(!client.tool_names().await.contains(&"add".to_owned()));
        assert_eq!(client.resource_uris().await, ["doc://b"]);
        governor.replace_policy(Policy::new(policy(Rules::default())).unwrap());
        assert_eq!(client.tool_names().await, tools, "{version}");
        assert_eq!(client.resource_uris().await, uris, "{version}");
    }
}

/// Counts how often a list is made of it.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Resources>,
    lists: AtomicUsize,
}

impl Resources for Counting {
    fn entries(&self) -> &[ResourceEntry] {
        self.inner.entries()
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.matching(filter)
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        self.inner.canonical(uri)
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Arc::clone(&self.inner).read(read)
    }
}

#[tokio::test]
async fn a_list_is_made_once_for_each_view_and_version_of_the_policy() {
    for version in SPOKEN {
        let resources = Arc::new(Counting {
            inner: documents(&["a", "b"]),
            lists: AtomicUsize::new(0),
        });
        let made = || resources.lists.load(Ordering::Relaxed);
        let rules = |cost: u64| PolicySpec {
            principals: [
                ("bert".to_owned(), Rules::default()),
                ("carl".to_owned(), hiding(&["resource/doc://a"])),
            ]
            .into(),
            default_estimated_cost: Micros(cost),
            ..policy(Rules::default())
        };
        let house = Setup {
            resources: resources.clone(),
            policy: rules(0),
            ..Setup::default()
        }
        .build();
        let mut clients = Vec::new();
        for principal in ["anna", "bert", "carl"] {
            clients.push(house.connect(principal, version).await);
        }
        let mut list_all = async || {
            for _ in 0..2 {
                for (client, count) in clients.iter_mut().zip([2, 2, 1]) {
                    assert_eq!(client.resource_uris().await.len(), count, "{version}");
                }
            }
        };
        list_all().await;
        // Anna and Bert see the same.
        assert_eq!(made(), 2, "{version}");
        // Behind the server's back, so that nothing but the version tells it.
        let governor = house.mcp_server.governor();
        governor.replace_policy(Policy::new(rules(7)).unwrap());
        list_all().await;
        assert_eq!(made(), 4, "{version}");
        // Rules that were in force before are the same rules.
        governor.replace_policy(Policy::new(rules(0)).unwrap());
        list_all().await;
        assert_eq!(made(), 4, "{version}");
    }
}

#[tokio::test]
async fn who_listens_to_a_resource_hears_of_its_change_if_it_may_know_of_it() {
    for version in SPOKEN {
        let house = Setup {
            policy: PolicySpec {
                principals: [("bert".to_owned(), hiding(&["resource/doc://a"]))].into(),
                ..PolicySpec::default()
            },
            resources: documents(&["a", "b"]),
            ..Setup::default()
        }
        .build();
        let mut anna = house.connect("anna", version).await;
        let mut bert = house.connect("bert", version).await;
        if version == MODERN {
            let params = json!({ "notifications": { "resourceSubscriptions": ["doc://a"] } });
            for client in [&mut anna, &mut bert] {
                client.begin("subscriptions/listen", params.clone()).await;
                client.receive().await;
            }
        } else {
            let answer = anna
                .ask("resources/subscribe", json!({ "uri": "doc://a" }))
                .await;
            assert!(succeeded(&answer), "{answer}");
            // What is hidden and what is not there is refused in the same words.
            let hidden = bert
                .ask("resources/subscribe", json!({ "uri": "doc://a" }))
                .await;
            assert_eq!(hidden["error"]["code"], -32002);
            let absent = bert
                .ask("resources/subscribe", json!({ "uri": "doc://x" }))
                .await;
            let told = |answer: &Value| answer["error"].to_string().replace("doc://x", "doc://a");
            assert_eq!(told(&hidden), told(&absent));
        }
        house.mcp_server.resource_changed("doc://b");
        house.mcp_server.resource_changed("doc://a");
        let updated = anna.receive().await;
        assert_eq!(updated["method"], "notifications/resources/updated");
        assert_eq!(updated["params"]["uri"], "doc://a");
        assert!(bert.settle().await.is_empty(), "{version}");
        if version != MODERN {
            anna.ask("resources/unsubscribe", json!({ "uri": "doc://a" }))
                .await;
            house.mcp_server.resource_changed("doc://a");
            assert!(anna.settle().await.is_empty());
        }
    }
}

#[tokio::test]
async fn who_may_see_a_resource_and_not_read_it_is_refused_and_not_told_that_there_is_none() {
    let denying = Rules {
        deny: vec!["resource/doc://a".to_owned()],
        ..Rules::default()
    };
    for version in SPOKEN.into_iter().filter(|it| *it != MODERN) {
        let house = Setup {
            policy: policy(denying.clone()),
            resources: documents(&["a", "b"]),
            ..Setup::default()
        }
        .build();
        let mut anna = house.connect("anna", version).await;
        for method in ["resources/subscribe", "resources/read"] {
            let refused = anna.ask(method, json!({ "uri": "doc://a" })).await;
            let error = &refused["error"];
            assert_eq!(
                (&error["code"], &error["data"]["reason"]),
                (&json!(-32003), &json!("permission")),
                "{method}: {refused}"
            );
        }
    }
}

#[tokio::test]
async fn who_may_not_read_a_resource_any_more_hears_of_it_no_more() {
    let denying = |what: &[&str]| Rules {
        deny: what.iter().map(|&it| it.to_owned()).collect(),
        ..Rules::default()
    };
    for version in SPOKEN {
        let house = Setup {
            resources: documents(&["a", "b"]),
            ..Setup::default()
        }
        .build();
        let mut clients = [
            house.connect("anna", version).await,
            house.connect("bert", version).await,
        ];
        for client in &mut clients {
            if version == MODERN {
                let params = json!({ "notifications": { "resourceSubscriptions": ["doc://a"] } });
                client.begin("subscriptions/listen", params).await;
                client.receive().await;
            } else {
                let uri = json!({ "uri": "doc://a" });
                let answer = client.ask("resources/subscribe", uri).await;
                assert!(succeeded(&answer), "{answer}");
            }
        }
        let [anna, bert] = &mut clients;
        let mut news = house
            .mcp_server
            .engine()
            .subscriptions()
            .resources_changed();
        let steps: [(&[&str], &[&str], bool); 4] = [
            (&[], &[], true),
            (&["resource/doc://a"], &["resource/doc://a"], false),
            (&["resource/doc://a"], &[], true),
            (&[], &["resource/doc://*"], false),
        ];
        for (default, of_anna, hears) in steps {
            news.mark_unchanged();
            let spec = PolicySpec {
                principals: [("anna".to_owned(), denying(of_anna))].into(),
                ..policy(denying(default))
            };
            house.mcp_server.replace_policy(Policy::new(spec).unwrap());
            assert!(news.has_changed().unwrap());
            let is_heard = !house.mcp_server.heard_resources().is_empty();
            assert_eq!(is_heard, hears || default.is_empty(), "{version}");
            house.mcp_server.resource_changed("doc://a");
            for (client, is_told) in [(&mut *anna, hears), (&mut *bert, default.is_empty())] {
                let said = client.settle().await;
                let updates = said
                    .iter()
                    .filter(|it| it["method"] == "notifications/resources/updated");
                assert_eq!(updates.count(), usize::from(is_told), "{version} {said:?}");
            }
        }
    }
}

/// A family of resources at which anything may come: `doc://…`, governed one by one.
#[derive(Debug)]
struct Family(Arc<dyn Resources>, [ResourceTemplate; 1]);

impl Family {
    fn of(resources: Arc<dyn Resources>) -> Self {
        let template = ResourceTemplate {
            uri_template: "doc://{name}".to_owned(),
            name: "doc".to_owned(),
            ..ResourceTemplate::default()
        };
        Self(resources, [template])
    }
}

impl Resources for Family {
    fn entries(&self) -> &[ResourceEntry] {
        self.0.entries()
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.1
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        self.0.matching(filter)
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        uri.starts_with("doc://").then(|| uri.to_owned())
    }

    fn family(&self, uri: &str) -> Option<String> {
        uri.starts_with("doc://").then(|| "doc://{name}".to_owned())
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Arc::clone(&self.0).read(read)
    }
}

#[tokio::test]
async fn subscriptions_do_not_tell_what_is_hidden_from_what_is_not_there() {
    let hidings = [
        vec!["resource/doc://a", "resource/note://a"],
        vec!["resource/doc://*", "resource/note://*"],
    ];
    for version in SPOKEN {
        for hidden in &hidings {
            let house = Setup {
                policy: PolicySpec {
                    principals: [("bert".to_owned(), hiding(hidden))].into(),
                    ..PolicySpec::default()
                },
                resources: Arc::new(CombinedResources::new(vec![
                    Arc::new(Family::of(documents(&["a"]))),
                    Arc::new(StaticResources::new().text("note://a", "a", "text/plain", "a")),
                ])),
                ..Setup::default()
            }
            .build();
            let mut bert = house.connect("bert", version).await;
            for (is_there, absent) in [("doc://a", "doc://x"), ("note://a", "note://x")] {
                let mut told = Vec::new();
                for uri in [is_there, absent] {
                    let answer = if version == MODERN {
                        let params = json!({ "notifications": { "resourceSubscriptions": [uri] } });
                        bert.begin("subscriptions/listen", params).await;
                        bert.receive().await["params"]["notifications"].to_string()
                    } else {
                        let answer = bert.ask("resources/subscribe", json!({ "uri": uri })).await;
                        format!("{}{}", answer["result"], answer["error"])
                    };
                    told.push(answer.replace(absent, is_there));
                }
                assert_eq!(told[0], told[1], "{version} {hidden:?}");
            }
            house.mcp_server.resource_changed("doc://a");
            assert!(bert.settle().await.is_empty(), "{version}");
        }
    }
}

#[tokio::test]
async fn completions_of_what_may_not_be_read_are_those_of_what_is_not_there() {
    let uris = ["doc://{name}", "doc://a", "doc://b", "DOC://b", "note://a"];
    let suggesting = |all: StaticPrompts, uri: &str| {
        let reference = CompletionReference::Resource {
            uri: uri.to_owned(),
        };
        all.complete(reference, "name", |_| vec!["x".to_owned()])
    };
    // Completion is declared with prompts.
    let with_prompt = || {
        let prompt = Prompt {
            name: "greet".to_owned(),
            ..Prompt::default()
        };
        StaticPrompts::new().prompt(prompt, |_| Ok(GetPromptResult::default()))
    };
    // What is denied, and what is completed.
    let cases: [(&[&str], &[&str]); 4] = [
        (&[], &["doc://{name}", "doc://a", "doc://b"]),
        (&["resource/doc://a"], &["doc://{name}", "doc://b"]),
        // A template stands for all that it yields.
        (&["resource/doc://{name}"], &[]),
        (&["resource/doc://*"], &[]),
    ];
    for version in SPOKEN {
        for (denied, completed) in &cases {
            let rules = Rules {
                deny: denied.iter().map(|&it| it.to_owned()).collect(),
                ..Rules::default()
            };
            let house = Setup {
                policy: policy(rules),
                resources: Arc::new(Family::of(documents(&["a"]))),
                prompts: Arc::new(uris.into_iter().fold(with_prompt(), suggesting)),
                ..Setup::default()
            }
            .build();
            let mut client = house.connect("anna", version).await;
            let mut told = Vec::new();
            for uri in uris {
                let asked = json!({
                    "ref": { "type": "ref/resource", "uri": uri },
                    "argument": { "name": "name", "value": "" },
                });
                let answer = client.ask("completion/complete", asked).await;
                match succeeded(&answer) {
                    true => told.push(uri),
                    false => assert_eq!(
                        (&answer["error"]["code"], &answer["error"]["message"]),
                        (
                            &json!(-32602),
                            &json!("invalid params: `ref` leads nowhere")
                        )
                    ),
                }
            }
            assert_eq!(told, *completed, "{version} {denied:?}");
        }
    }
}

/// A name of up to three parts, so that prefixes overlap.
fn name() -> impl Strategy<Value = String> {
    "[ab]{1,2}(\\.[ab]{1,2}){0,1}"
}

fn plain_tools(house: &House, names: &[String]) -> Vec<adapter_tools::Tool> {
    let make = |name: &String| {
        house
            .bench
            .tool(name.clone(), json!({}), &[], |_, _| async {
                Ok("done".into())
            })
    };
    names.iter().map(make).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Property 6, for lists of any size and pages of any size; what is not listed is unknown.
    #[test]
    fn exactly_the_visible_are_listed_without_gap_or_repetition(
        names in proptest::collection::btree_set(name(), 0..12),
        hidden in proptest::collection::vec(name(), 0..4),
        prefix in proptest::option::of("[ab]"),
        page in 1_usize..6,
        version in proptest::sample::select(SPOKEN.to_vec()),
    ) {
        block_on(async move {
            let mut patterns = Vec::new();
            for name in &hidden {
                patterns.push(format!("tool/{name}"));
                patterns.push(format!("resource/doc://{name}"));
            }
            if let Some(prefix) = &prefix {
                patterns.push(format!("tool/{prefix}*"));
                patterns.push(format!("resource/doc://{prefix}*"));
            }
            let setup = Setup::default();
            let names: Vec<String> = names.into_iter().collect();
            let some: Vec<_> = names.iter().map(String::as_str).collect();
            let house = Setup {
                policy: policy(Rules { hidden: patterns, ..Rules::default() }),
                options: Options { tools_page: page, resources_page: page, ..setup.options },
                ..setup
            }
            .build();
            house.mcp_server.replace_offer(offer(plain_tools(&house, &names), documents(&some)));
            let is_hidden = |name: &String| {
                hidden.contains(name) || prefix.as_ref().is_some_and(|it| name.starts_with(it))
            };
            let (unseen, seen): (Vec<_>, Vec<_>) = names.into_iter().partition(is_hidden);
            let mut client = house.connect("anna", version).await;
            for _ in 0..2 {
                assert_eq!(client.tool_names().await, seen);
                let uris: Vec<_> = seen.iter().map(|name| format!("doc://{name}")).collect();
                assert_eq!(client.resource_uris().await, uris);
            }
            for name in &unseen {
                let answer = client.call(name, json!({})).await;
                let code = if version == MODERN { -32602 } else { -32001 };
                assert_eq!(answer["error"]["code"], code);
            }
            assert_eq!(house.bench.runs(), 0);
            for name in &seen {
                assert!(succeeded(&client.call(name, json!({})).await));
            }
        });
    }

    /// Property 11: a list is never older than the last change, whoever asks and whatever changed.
    #[test]
    fn no_list_outlives_a_change(
        script in proptest::collection::vec((any::<bool>(), 0_u8..16), 1..8),
        version in proptest::sample::select(SPOKEN.to_vec()),
    ) {
        block_on(async move {
            const NAMES: [&str; 4] = ["a", "b", "c", "d"];
            let chosen = |bits: u8| -> Vec<&str> {
                (0..4).filter(|bit| bits & (1 << bit) != 0).map(|bit| NAMES[bit]).collect()
            };
            let house = Setup::default().build();
            let (mut on_offer, mut hidden) = (NAMES.to_vec(), Vec::new());
            let tools = |names: &[&str]| {
                let names: Vec<_> = names.iter().map(|&it| it.to_owned()).collect();
                plain_tools(&house, &names)
            };
            house.mcp_server.replace_offer(offer(tools(&on_offer), documents(&on_offer)));
            let mut anna = house.connect("anna", version).await;
            let mut bert = house.connect("bert", version).await;
            hear_of_changes(&mut anna, version).await;
            for (is_offer, bits) in script {
                // The same tools are no change of theirs.
                let mut told = vec![TOOLS, RESOURCES];
                if is_offer {
                    if on_offer == chosen(bits) {
                        told.remove(0);
                    }
                    on_offer = chosen(bits);
                    house.mcp_server.replace_offer(offer(tools(&on_offer), documents(&on_offer)));
                } else {
                    hidden = chosen(bits);
                    let patterns = hidden.iter().flat_map(|name| {
                        [format!("tool/{name}"), format!("resource/doc://{name}")]
                    });
                    let rules = Rules { hidden: patterns.collect(), ..Rules::default() };
                    let policy = Policy::new(PolicySpec {
                        principals: [("anna".to_owned(), rules)].into(),
                        ..PolicySpec::default()
                    });
                    house.mcp_server.replace_policy(policy.unwrap());
                }
                assert_eq!(methods(&anna.receive_many(told.len()).await), told);
                let seen: Vec<_> = on_offer.iter().filter(|it| !hidden.contains(it)).collect();
                let uris = |names: &[&str]| -> Vec<_> {
                    names.iter().map(|name| format!("doc://{name}")).collect()
                };
                let seen: Vec<&str> = seen.into_iter().copied().collect();
                assert_eq!(anna.tool_names().await, seen);
                assert_eq!(anna.resource_uris().await, uris(&seen));
                assert_eq!(bert.tool_names().await, on_offer);
                assert_eq!(bert.resource_uris().await, uris(&on_offer));
            }
        });
    }
}

/// The name that a peer gives itself does not decide what it sees.
#[tokio::test]
async fn what_a_client_calls_itself_changes_nothing() {
    let house = Setup {
        policy: PolicySpec {
            default: hiding(&["tool/add"]),
            principals: [("admin".to_owned(), Rules::default())].into(),
            ..PolicySpec::default()
        },
        ..Setup::default()
    }
    .build();
    for version in SPOKEN {
        let mut client = house.join("anna", std::time::Duration::ZERO);
        let peer: &mut LinePeer = &mut client;
        peer.voice.client_info = json!({ "name": "admin", "version": "1" });
        client.open(version).await;
        assert!(!client.tool_names().await.contains(&"add".to_owned()));
    }
}
