//! Refusals of hidden and of unknown tools are alike: in their writes and in the time that they take.

use crate::house::{Client, House, Setup, policy};
use crate::tasks_house::{self, LEGACY, legacy, modern};
use adapter_skills::{ScanOptions, SkillCatalog};
use adapter_tools::TaskSupport;
use governance::Rules;
use jsonrpc_core::RawJson;
use ledger::DEFAULT_MAX_REFUSALS;
use mcp_server::{CombinedResources, SearchOptions, SkillResources, StaticResources};
use mcp_service::Principal;
use serde_json::{Value, json};
use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};
use testkit::MODERN;

/// Things of each kind that are hidden; each is asked for once.
const HIDDEN: usize = 400;
/// Longer than an answer takes, and shorter than clients wait.
const SOON: Duration = Duration::from_secs(20);

/// Skills that are hidden. No file of theirs is read after this.
static SKILLS: LazyLock<Arc<SkillCatalog>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..HIDDEN {
        let skill = directory.path().join(format!("secret/{number}"));
        std::fs::create_dir_all(&skill).unwrap();
        let text = format!("---\nname: '{number}'\ndescription: X.\n---\n");
        std::fs::write(skill.join("SKILL.md"), text).unwrap();
    }
    let (catalog, _) = SkillCatalog::scan(&ScanOptions::new(directory.path()));
    assert_eq!(catalog.len(), HIDDEN);
    Arc::new(catalog)
});

async fn house() -> House {
    let setup = Setup {
        policy: policy(Rules {
            hidden: vec![
                "tool/secret-*".to_owned(),
                "resource/doc://secret/*".to_owned(),
                "resource/skill://secret/*".to_owned(),
            ],
            ..Rules::default()
        }),
        ..tasks_house::setup(tasks_house::options()).await
    };
    let schema = || json!({ "region": { "type": "string", "x-mcp-header": "Region" } });
    let tool = |number: usize| {
        let name = format!("secret-{number}");
        let tool = setup
            .bench
            .tool(name, schema(), &[], |_, _| async { Ok("".into()) });
        match number % 2 {
            0 => tool.with_task_support(TaskSupport::Required),
            _ => tool,
        }
    };
    let resources = (0..HIDDEN).fold(StaticResources::new(), |all, number| {
        all.text(&format!("doc://secret/{number}"), "s", "text/plain", "s")
    });
    Setup {
        more_tools: (0..HIDDEN).map(tool).collect(),
        search_view: Some(SearchOptions {
            clients: vec!["*".to_owned()],
            ..SearchOptions::default()
        }),
        resources: Arc::new(CombinedResources::new(vec![
            Arc::new(SkillResources::new(Arc::clone(&SKILLS), 0)),
            Arc::new(resources),
        ])),
        ..setup
    }
    .build()
}

/// Request of a probe: a method, and its parameters for a name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Tool,
    /// With a parameter that asks for a task, or by a client that takes one.
    Task,
    /// With headers that repeat arguments.
    Mirrored,
    /// Through a tool of the search view.
    Through,
    Resource,
    Skill,
    /// Without a session, as by `GET /resources`.
    Plain,
}

async fn probe(house: &House, client: &mut Client, what: What, name: &str) -> Value {
    let call = json!({ "name": name, "arguments": {} });
    let (method, params) = match what {
        What::Tool => ("tools/call", call),
        What::Task if client.voice.is_modern() => ("tools/call", call),
        What::Task => {
            let task = json!({ "ttl": 60_000 });
            (
                "tools/call",
                json!({ "name": name, "arguments": {}, "task": task }),
            )
        }
        What::Mirrored => {
            let params = RawJson::from_value(&call).unwrap();
            let anna = Principal::new("anna");
            let compared = house
                .mcp_server
                .compare_headers(&anna, name, &params, |_| vec![&b"elsewhere"[..]]);
            compared.unwrap();
            ("tools/call", call)
        }
        What::Through => (
            "tools/call",
            json!({ "name": "call_tool_read", "arguments": call }),
        ),
        What::Plain => {
            let anna = Principal::new("anna");
            let read = house.mcp_server.read_plainly(&anna, name, None, None);
            let refused = tokio::time::timeout(SOON, read).await.unwrap().unwrap_err();
            return json!({ "error": { "code": refused.error.code.0 } });
        }
        What::Resource | What::Skill => ("resources/read", json!({ "uri": name })),
    };
    let asked = client.ask(method, params);
    let answer = tokio::time::timeout(SOON, asked).await;
    answer.unwrap_or_else(|_| panic!("{name} waits for what others do not wait for"))
}

fn hidden(what: What, number: usize) -> String {
    match what {
        What::Tool | What::Task | What::Mirrored | What::Through => format!("secret-{number}"),
        What::Resource => format!("doc://secret/{number}"),
        What::Skill | What::Plain => format!("skill://secret/{number}"),
    }
}

fn absent(what: What, number: usize) -> String {
    match what {
        What::Tool | What::Task | What::Mirrored | What::Through => format!("absent-{number}"),
        What::Resource => format!("doc://absent/{number}"),
        What::Skill | What::Plain => format!("skill://absent/{number}"),
    }
}

/// The kinds, with the revisions that know each.
const KINDS: [(What, &[&str]); 7] = [
    (What::Tool, &["2025-06-18", MODERN]),
    (What::Task, &[LEGACY, MODERN]),
    (What::Mirrored, &[MODERN]),
    (What::Through, &["2025-06-18", MODERN]),
    (What::Resource, &["2025-06-18", MODERN]),
    (What::Skill, &["2025-06-18", MODERN]),
    (What::Plain, &[MODERN]),
];

async fn flooding(house: &House, what: What, version: &str) -> Client {
    let mut client = match (what, version) {
        (What::Task, MODERN) => modern(house, "anna").await,
        (What::Task, _) => legacy(house, "anna").await,
        _ => house.connect("anna", version).await,
    };
    for number in 0..DEFAULT_MAX_REFUSALS as usize {
        probe(house, &mut client, What::Tool, &absent(What::Tool, number)).await;
    }
    client
}

#[tokio::test]
async fn refusals_of_hidden_and_unknown_tools_make_the_same_writes() {
    for (what, versions) in KINDS {
        for version in versions {
            let house = house().await;
            let mut client = flooding(&house, what, version).await;
            let written = house.ledger.entries().len();
            // From here on nothing can be written.
            let gate = house.ledger_gate.lock().await;
            for number in 0..5 {
                let one = probe(&house, &mut client, what, &hidden(what, number)).await;
                let other = probe(&house, &mut client, what, &absent(what, number)).await;
                assert_eq!(one["error"]["code"], other["error"]["code"]);
            }
            drop(gate);
            assert_eq!(house.ledger.entries().len(), written);
        }
    }
}

/// Probability that one of `these` took longer than one of `those`: a half, if nothing differs.
fn longer(these: &[Duration], those: &[Duration]) -> f64 {
    let wins = |one: &Duration| {
        let (below, equal) =
            those
                .iter()
                .fold((0.0, 0.0), |(below, equal), other| match other.cmp(one) {
                    std::cmp::Ordering::Less => (below + 1.0, equal),
                    std::cmp::Ordering::Equal => (below, equal + 1.0),
                    std::cmp::Ordering::Greater => (below, equal),
                });
        below + equal / 2.0
    };
    let all: f64 = these.iter().map(wins).sum();
    all / (these.len() * those.len()) as f64
}

/// Difference of the lower quartiles, as a part of one of them.
fn shift(these: &mut [Duration], those: &mut [Duration]) -> f64 {
    these.sort_unstable();
    those.sort_unstable();
    let quartile = |of: &[Duration]| of[of.len() / 4].as_secs_f64();
    (quartile(these) / quartile(those) - 1.0).abs()
}

/// Each name is asked for once, turn by turn, so that a busy machine is as slow for the one as for the
/// other. Of 400 of each, chance alone leaves 0.43 to 0.57 once in thousands of times. On a machine that
/// does nothing else a difference of a hundredth shows in that, and is none that a client could make use
/// of: it must be more than three hundredths, too.
#[tokio::test]
async fn refusals_of_hidden_and_unknown_tools_take_the_same_time() {
    for (what, versions) in KINDS {
        let house = house().await;
        let version = versions[if what == What::Task {
            0
        } else {
            versions.len() - 1
        }];
        let mut client = flooding(&house, what, version).await;
        let (mut of_hidden, mut of_absent) = (Vec::new(), Vec::new());
        for number in 0..HIDDEN {
            let mut timed = async |name: String| {
                let began = Instant::now();
                probe(&house, &mut client, what, &name).await;
                began.elapsed()
            };
            // Which comes first changes, since what comes second finds warmer caches.
            if number % 2 == 0 {
                of_hidden.push(timed(hidden(what, number)).await);
                of_absent.push(timed(absent(what, number)).await);
            } else {
                of_absent.push(timed(absent(what, number)).await);
                of_hidden.push(timed(hidden(what, number)).await);
            }
        }
        let longer = longer(&of_hidden, &of_absent);
        let shift = shift(&mut of_hidden, &mut of_absent);
        assert!(
            (0.42..0.58).contains(&longer) || shift < 0.03,
            "{what:?}: {longer}, {shift}"
        );
    }
}
