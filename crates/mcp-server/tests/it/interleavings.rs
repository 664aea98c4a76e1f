//! Each id is answered at most once, and exactly once unless it was taken back.

use crate::house::{SPOKEN, Setup, block_on, has_batches};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use testkit::MODERN;

/// Step of a peer, its ids included: a few that come again and again.
#[derive(Clone, Debug)]
enum Step {
    Call { id: u8, tool: &'static str },
    Batch(Vec<u8>),
    Cancel(u8),
    Open,
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0_u8..5;
    let tool = proptest::sample::select(vec!["wait", "wait", "add", "panic", "fail", "nothing"]);
    prop_oneof![
        5 => (id.clone(), tool).prop_map(|(id, tool)| Step::Call { id, tool }),
        1 => proptest::collection::vec(id.clone(), 1..4).prop_map(Step::Batch),
        3 => id.prop_map(Step::Cancel),
        2 => Just(Step::Open),
        1 => Just(Step::Read),
    ]
}

fn request(version: &str, id: u8, tool: &str) -> Value {
    let mut params = json!({ "name": tool, "arguments": {} });
    if version == MODERN {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "1" },
        });
    }
    // Strings, so that they are none of the client's own.
    json!({ "jsonrpc": "2.0", "id": format!("i{id}"), "method": "tools/call", "params": params })
}

fn count_answers(messages: &[Value], answers: &mut BTreeMap<String, usize>) {
    for message in messages {
        match message {
            Value::Array(batch) => count_answers(batch, answers),
            message => {
                if let Some(id) = message["id"].as_str() {
                    *answers.entry(id.to_owned()).or_default() += 1;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// The peer that listens counts too: an answer that nobody waits for is no valid message.
    #[test]
    fn each_id_is_answered_at_most_once_whatever_comes_when(
        script in proptest::collection::vec(step(), 1..30),
        version in proptest::sample::select(SPOKEN.to_vec()),
        leaves_early in any::<bool>(),
    ) {
        block_on(async move {
            let house = Setup::default().build();
            let drain = if leaves_early { Duration::ZERO } else { Duration::from_secs(60) };
            let mut client = house.join("anna", drain);
            client.open(version).await;
            let (mut asked, mut answers) = (BTreeMap::<String, usize>::new(), BTreeMap::new());
            let mut cancelled = BTreeMap::<String, usize>::new();
            for step in &script {
                match step {
                    Step::Call { id, tool } => {
                        *asked.entry(format!("i{id}")).or_default() += 1;
                        client.send(&request(version, *id, tool)).await;
                    }
                    Step::Batch(ids) if has_batches(version) => {
                        let all = ids.iter().map(|id| request(version, *id, "wait"));
                        client.send(&Value::Array(all.collect())).await;
                        for id in ids {
                            *asked.entry(format!("i{id}")).or_default() += 1;
                        }
                    }
                    Step::Batch(_) => {}
                    Step::Cancel(id) => {
                        *cancelled.entry(format!("i{id}")).or_default() += 1;
                        client.cancel(&json!(format!("i{id}"))).await;
                    }
                    Step::Open => {
                        count_answers(&client.settle().await, &mut answers);
                        house.bench.gate.notify_waiters();
                    }
                    Step::Read => count_answers(&client.settle().await, &mut answers),
                }
            }
            client.close_input();
            let opening = async {
                loop {
                    house.bench.gate.notify_waiters();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let rest = tokio::select! {
                rest = client.receive_rest() => rest,
                () = opening => unreachable!(),
            };
            count_answers(&rest, &mut answers);
            for (id, asked) in &asked {
                let answered = answers.remove(id).unwrap_or(0);
                assert!(answered <= *asked, "{id}: {answered} of {asked}");
                if !leaves_early {
                    let taken_back = cancelled.get(id).copied().unwrap_or(0);
                    assert!(asked - answered <= taken_back, "{id}: {answered} of {asked}");
                }
            }
            assert!(answers.is_empty(), "answers to nothing: {answers:?}");
            // And nothing is left behind.
            let record = house.record().await;
            assert!(record.len() <= asked.values().sum());
            client.serving.await.unwrap();
            assert_eq!(house.mcp_server.engine().in_flight(), 0);
            assert!(house.mcp_server.engine().subscriptions().is_empty());
        });
    }
}
