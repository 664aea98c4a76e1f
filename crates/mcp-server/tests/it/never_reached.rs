//! Refused calls never reach their tools: for every tool and caller, in every revision, by every
//! transport, and wherever the request stands (Property 4).

use crate::house::{Bench, House, Place, SPOKEN, Setup, policy};
use adapter_tools::{Tool, ToolError};
use futures_util::future::BoxFuture;
use governance::{
    BreakerSpec, CapabilityFacts, Condition, Confirmation, Effect, Micros, PolicySpec, Quota,
    RateLimits, RoleRules, Rules, TimeWindows,
};
use mcp_protocol::model::{
    GetPromptResult, ListResources, Prompt, ReadResource, ReadResourceResult, Resource,
};
use mcp_server::{
    PromptCx, PromptFailure, Prompts, ReadFailure, ResourceEntry, Resources, SearchOptions,
};
use serde_json::{Value, json};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use testkit::{Conversation, HttpClient, MODERN, failure_of};
use transport_http::HttpOptions;

/// Counts what gets through to it.
#[derive(Clone, Debug, Default)]
struct Reached(Arc<AtomicUsize>);

impl Reached {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

const URI: &str = "test://papers/1";

#[derive(Debug)]
struct Papers {
    entries: Vec<ResourceEntry>,
    reached: Reached,
}

impl Resources for Papers {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn matching(&self, _: &ListResources) -> Result<Vec<usize>, String> {
        Ok(vec![0])
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        (uri == URI).then(|| URI.to_owned())
    }

    fn read(
        self: Arc<Self>,
        _: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        self.reached.add();
        Box::pin(async { Ok(ReadResourceResult::default()) })
    }
}

struct Letters {
    entries: Vec<Prompt>,
    reached: Reached,
}

impl fmt::Debug for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Letters")
    }
}

impl Prompts for Letters {
    fn entries(&self) -> &[Prompt] {
        &self.entries
    }

    fn get(&self, _: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>> {
        self.reached.add();
        Box::pin(async { Ok(GetPromptResult::default()) })
    }
}

/// A call through a tool of the search view.
const THROUGH: &str = "call_tool_destructive";

/// Calls, each with the name that the policy has for its target.
const CALLED: [(&str, &str); 4] = [
    ("tools/call", "tool/pay"),
    (THROUGH, "tool/pay"),
    ("resources/read", "resource/test://papers/1"),
    ("prompts/get", "prompt/letter"),
];

fn params(method: &str) -> Value {
    let pay = || json!({ "name": "pay", "arguments": { "amount": 7, "limit": null } });
    match method {
        "tools/call" => pay(),
        THROUGH => json!({ "name": THROUGH, "arguments": pay() }),
        "resources/read" => json!({ "uri": URI }),
        _ => json!({ "name": "letter" }),
    }
}

/// The method by which a call is made.
fn method_of(called: &'static str) -> &'static str {
    match called {
        THROUGH => "tools/call",
        method => method,
    }
}

/// Principals whose rules refuse.
const PRINCIPALS: [&str; 3] = ["named", "of_a_role", "stranger"];

/// One way to refuse, as rules and as what is known of the capability.
struct Way {
    name: &'static str,
    rules: fn(&str) -> Rules,
    facts: fn() -> CapabilityFacts,
    /// Calls that have to be made before, with their outcome.
    before: usize,
    /// Methods with which it can happen.
    methods: &'static [&'static str],
}

const EVERYWHERE: &[&str] = &["tools/call", THROUGH, "resources/read", "prompts/get"];
const TOOLS: &[&str] = &["tools/call", THROUGH];

fn no_facts() -> CapabilityFacts {
    CapabilityFacts::default()
}

fn condition(when: &str, effect: Effect) -> Condition {
    Condition {
        name: "small".to_owned(),
        capability: "*".to_owned(),
        when: when.to_owned(),
        effect,
    }
}

fn ways() -> Vec<Way> {
    let way = |name, rules: fn(&str) -> Rules, facts: fn() -> CapabilityFacts| Way {
        name,
        rules,
        facts,
        before: 0,
        methods: EVERYWHERE,
    };
    let open = |_: &str| Rules::default();
    vec![
        way(
            "hidden",
            |it| Rules {
                hidden: vec![it.to_owned()],
                ..Rules::default()
            },
            no_facts,
        ),
        way(
            "denied",
            |it| Rules {
                deny: vec![it.to_owned()],
                ..Rules::default()
            },
            no_facts,
        ),
        way(
            "not allowed",
            |_| Rules {
                allow: Vec::new(),
                ..Rules::default()
            },
            no_facts,
        ),
        way(
            "by a condition",
            |_| Rules {
                conditions: vec![condition("true", Effect::Deny)],
                ..Rules::default()
            },
            no_facts,
        ),
        Way {
            methods: TOOLS,
            ..way(
                "by a condition on the arguments",
                |_| Rules {
                    conditions: vec![condition(
                        "has(args.amount) && args.amount > 6",
                        Effect::Deny,
                    )],
                    ..Rules::default()
                },
                no_facts,
            )
        },
        Way {
            methods: TOOLS,
            ..way(
                "by a condition on what is left out, or null, which is the same to the tool",
                |_| Rules {
                    conditions: vec![condition("!has(args.limit)", Effect::Deny)],
                    ..Rules::default()
                },
                no_facts,
            )
        },
        way(
            "by a condition that fails",
            |_| Rules {
                conditions: vec![condition("args.nothing.there > 1", Effect::AllowOnly)],
                ..Rules::default()
            },
            no_facts,
        ),
        way(
            "to be confirmed by the rules",
            |it| Rules {
                confirm: vec![it.to_owned()],
                ..Rules::default()
            },
            no_facts,
        ),
        way("to be confirmed by an operator", open, || CapabilityFacts {
            confirmation: Some(Confirmation::Operator),
            ..no_facts()
        }),
        way("held back", open, || CapabilityFacts {
            held: Some("its skill is broken".into()),
            ..no_facts()
        }),
        way("closed", open, || CapabilityFacts {
            // It is a Tuesday, 08:00 UTC: afternoon there, after the exchange has closed.
            windows: Some(TimeWindows::trading_hours()),
            ..no_facts()
        }),
        Way {
            before: 1,
            ..way("too often", open, || CapabilityFacts {
                limits: RateLimits {
                    per_minute: Some(1),
                    per_day: None,
                },
                ..no_facts()
            })
        },
        Way {
            before: 1,
            ..way("too soon", open, || CapabilityFacts {
                cooldown: Some(Duration::from_secs(60)),
                ..no_facts()
            })
        },
        way("none at once", open, || CapabilityFacts {
            max_running: Some(0),
            ..no_facts()
        }),
        Way {
            methods: TOOLS,
            ..way(
                "too dear",
                |_| Rules {
                    quota: Quota {
                        max_cost_per_call: Some(Micros(1)),
                        ..Quota::default()
                    },
                    ..Rules::default()
                },
                || CapabilityFacts {
                    estimated_cost: Some(Micros(2)),
                    ..no_facts()
                },
            )
        },
        Way {
            methods: TOOLS,
            ..way(
                "no money",
                |_| Rules {
                    quota: Quota {
                        monthly_budget: Some(Micros(1)),
                        ..Quota::default()
                    },
                    ..Rules::default()
                },
                || CapabilityFacts {
                    estimated_cost: Some(Micros(2)),
                    ..no_facts()
                },
            )
        },
        Way {
            methods: TOOLS,
            before: 1,
            ..way("at rest", open, || CapabilityFacts {
                breaker: Some(BreakerSpec {
                    failures: 1,
                    rest: Duration::from_secs(60),
                }),
                ..no_facts()
            })
        },
    ]
}

/// The policy in which `principal` is refused that way and everybody else is not.
fn spec(way: &Way, principal: &str, capability: &str) -> PolicySpec {
    let rules = (way.rules)(capability);
    let mut spec = policy(Rules::default());
    spec.capabilities
        .insert(capability.to_owned(), (way.facts)());
    match principal {
        "named" => {
            spec.principals.insert(principal.to_owned(), rules);
        }
        "of_a_role" => {
            let Rules {
                visible,
                hidden,
                allow,
                deny,
                confirm,
                conditions,
                quota,
                reads,
                max_running,
                roles: _,
                default_limits: _,
                beside_roles: _,
            } = rules;
            let role = RoleRules {
                visible: visible.clone(),
                hidden,
                allow: allow.clone(),
                deny,
                confirm,
                conditions,
                quota,
                reads,
                max_running,
            };
            spec.roles.insert("clerk".to_owned(), role);
            let own = Rules {
                visible,
                allow,
                roles: vec!["clerk".to_owned()],
                ..Rules::default()
            };
            spec.principals.insert(principal.to_owned(), own);
        }
        _ => spec.default = rules,
    }
    spec
}

fn house(policy: PolicySpec, reached: &Reached, fails: bool) -> House {
    let bench = Bench::new();
    let counted = reached.clone();
    let pay: Tool = bench.tool(
        "pay",
        json!({ "amount": { "type": "integer" }, "limit": { "type": "integer" } }),
        &[],
        move |_, _| {
            counted.add();
            async move {
                match fails {
                    true => Err(ToolError::failed("as asked")),
                    false => Ok("paid".into()),
                }
            }
        },
    );
    let resource = Resource {
        uri: URI.to_owned(),
        name: "1".to_owned(),
        ..Resource::default()
    };
    let prompt = Prompt {
        name: "letter".to_owned(),
        ..Prompt::default()
    };
    Setup {
        policy,
        more_tools: vec![pay],
        bench,
        resources: Arc::new(Papers {
            entries: vec![ResourceEntry {
                resource,
                ..ResourceEntry::default()
            }],
            reached: reached.clone(),
        }),
        prompts: Arc::new(Letters {
            entries: vec![prompt],
            reached: reached.clone(),
        }),
        search_view: Some(SearchOptions {
            clients: vec!["*".to_owned()],
            ..SearchOptions::default()
        }),
        ..Setup::default()
    }
    .build()
}

/// Serves the house over HTTP as well; where.
async fn over_http(house: &House) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.expect("there is a port");
    let address = listener.local_addr().expect("it has an address");
    let engine = Arc::clone(house.mcp_server.engine());
    tokio::spawn(async move {
        let never = std::future::pending();
        transport_http::serve(engine, HttpOptions::default(), listener, never).await;
    });
    address
}

/// The answer to a request of an HTTP client, wherever it stands.
async fn post_at(client: &mut HttpClient, place: Place, method: &str, params: Value) -> Value {
    let request = client.voice.request(method, params);
    let other = client.voice.request("ping", Value::Null);
    let id = request["id"].clone();
    let message = match place {
        Place::Alone => request,
        Place::FirstOfBatch => json!([request, other]),
        Place::LastOfBatch => json!([other, request]),
    };
    let answer = client.post(&client.post_of(&message)).await;
    let mut said = answer.messages.iter().flat_map(|it| match it {
        Value::Array(batch) => batch.clone(),
        one => vec![one.clone()],
    });
    let found = said.find(|it| it["id"] == id);
    found.unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

#[tokio::test]
async fn who_is_refused_never_reaches_what_they_call() {
    let mut refused = 0;
    for way in ways() {
        for (method, capability) in CALLED {
            if !way.methods.contains(&method) {
                continue;
            }
            for principal in PRINCIPALS {
                let says = format!("{}: {method} by {principal}", way.name);
                let reached = Reached::default();
                let fails = way.name == "at rest";
                let house = house(spec(&way, principal, capability), &reached, fails);
                let address = over_http(&house).await;
                let mut first = house.connect(principal, MODERN).await;
                for _ in 0..way.before {
                    first.ask(method_of(method), params(method)).await;
                }
                assert_eq!(reached.count(), way.before, "{says}");
                for version in SPOKEN {
                    for place in Place::of(version) {
                        let mut client = house.connect(principal, version).await;
                        let answer = client
                            .ask_at(*place, method_of(method), params(method))
                            .await;
                        assert!(failure_of(&answer)["code"].is_i64(), "{says}: {answer}");
                        let client = HttpClient::new(address);
                        let mut client = client.with_header("x-mcp-client-id", principal);
                        client.open(version).await;
                        let answer =
                            post_at(&mut client, *place, method_of(method), params(method)).await;
                        assert!(failure_of(&answer)["code"].is_i64(), "{says}: {answer}");
                        let now = reached.count();
                        assert_eq!(now, way.before, "{says} in {version}, {place:?}: {answer}");
                        refused += 2;
                    }
                }
                let record = house.record().await;
                let ran = record.iter().filter(|it| it.reason().is_none()).count();
                assert_eq!(ran, way.before, "{says}: {record:?}");
            }
        }
    }
    assert!(2_200 < refused, "{refused}");
}

/// The same requests get through where nothing refuses them: it is not the requests that are wrong.
#[tokio::test]
async fn who_is_not_refused_reaches_it_every_time() {
    for (method, _) in CALLED {
        let reached = Reached::default();
        let house = house(policy(Rules::default()), &reached, false);
        let address = over_http(&house).await;
        let mut sent = 0;
        for version in SPOKEN {
            for place in Place::of(version) {
                let mut client = house.connect("named", version).await;
                client
                    .ask_at(*place, method_of(method), params(method))
                    .await;
                let mut client = HttpClient::new(address);
                client.open(version).await;
                post_at(&mut client, *place, method_of(method), params(method)).await;
                sent += 2;
                assert_eq!(reached.count(), sent, "{method} in {version}, {place:?}");
            }
        }
    }
}
