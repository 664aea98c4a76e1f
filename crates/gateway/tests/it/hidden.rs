//! Refusals of hidden and of unknown tools are alike: in their writes and in the time that they take.

use crate::house::{Client, House, Setup, policy};
use gateway::StaticResources;
use governance::Rules;
use ledger::DEFAULT_MAX_REFUSALS;
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testkit::MODERN;

/// Things of each kind that are hidden; each is asked for once.
const HIDDEN: usize = 400;
/// Longer than an answer takes, and shorter than clients wait.
const SOON: Duration = Duration::from_secs(20);

fn house() -> House {
    let setup = Setup {
        policy: policy(Rules {
            hidden: vec![
                "tool/secret-*".to_owned(),
                "resource/doc://secret/*".to_owned(),
            ],
            ..Rules::default()
        }),
        ..Setup::default()
    };
    let schema = || json!({});
    let tool = |number: usize| {
        let name = format!("secret-{number}");
        setup
            .bench
            .tool(name, schema(), &[], |_, _| async { Ok("".into()) })
    };
    let resources = (0..HIDDEN).fold(StaticResources::new(), |all, number| {
        all.text(&format!("doc://secret/{number}"), "s", "text/plain", "s")
    });
    Setup {
        more_tools: (0..HIDDEN).map(tool).collect(),
        resources: Arc::new(resources),
        ..setup
    }
    .build()
}

/// Request of a probe: a method, and its parameters for a name.
#[derive(Clone, Copy, Debug)]
enum What {
    Tool,
    Resource,
}

async fn probe(client: &mut Client, what: What, name: &str) -> serde_json::Value {
    let (method, params) = match what {
        What::Tool => ("tools/call", json!({ "name": name, "arguments": {} })),
        What::Resource => ("resources/read", json!({ "uri": name })),
    };
    let asked = client.ask(method, params);
    let answer = tokio::time::timeout(SOON, asked).await;
    answer.unwrap_or_else(|_| panic!("{name} waits for what others do not wait for"))
}

fn hidden(what: What, number: usize) -> String {
    match what {
        What::Tool => format!("secret-{number}"),
        What::Resource => format!("doc://secret/{number}"),
    }
}

fn absent(what: What, number: usize) -> String {
    match what {
        What::Tool => format!("absent-{number}"),
        What::Resource => format!("doc://absent/{number}"),
    }
}

async fn flooding(house: &House, version: &str) -> Client {
    let mut client = house.connect("anna", version).await;
    for number in 0..DEFAULT_MAX_REFUSALS as usize {
        probe(&mut client, What::Tool, &absent(What::Tool, number)).await;
    }
    client
}

#[tokio::test]
async fn refusals_of_hidden_and_unknown_tools_make_the_same_writes() {
    for version in ["2025-06-18", MODERN] {
        for what in [What::Tool, What::Resource] {
            let house = house();
            let mut client = flooding(&house, version).await;
            let written = house.ledger.entries().len();
            // From here on nothing can be written.
            let gate = house.ledger_gate.lock().await;
            for number in 0..5 {
                let one = probe(&mut client, what, &hidden(what, number)).await;
                let other = probe(&mut client, what, &absent(what, number)).await;
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

/// Each name is asked for once, turn by turn, so that a busy machine is as slow for the one as for the
/// other. Of 400 of each, chance alone leaves 0.43 to 0.57 once in thousands of times.
#[tokio::test]
async fn refusals_of_hidden_and_unknown_tools_take_the_same_time() {
    for what in [What::Tool, What::Resource] {
        let house = house();
        let mut client = flooding(&house, MODERN).await;
        let (mut of_hidden, mut of_absent) = (Vec::new(), Vec::new());
        for number in 0..HIDDEN {
            let mut timed = async |name: String| {
                let began = Instant::now();
                probe(&mut client, what, &name).await;
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
        assert!((0.42..0.58).contains(&longer), "{what:?}: {longer}");
    }
}
