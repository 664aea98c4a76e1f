//! Deadlines and signs of life. Time is paused: what takes hours here takes no time.
//!
//! The ledger has a thread and a clock of its own, so nothing here waits for it.

use crate::house::{SPOKEN, Setup, now_us};
use adapter_tools::Annotations;
use ledger::{Durability, Outcome};
use mcp_server::Options;
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{failure_of, succeeded};

const HOUR: Duration = Duration::from_secs(3_600);
const LONG: Duration = Duration::from_secs(100 * 3_600);

fn setup(default_timeout: Duration) -> Setup {
    Setup {
        durability: Durability::Relaxed,
        options: Options {
            clock: now_us,
            default_timeout,
            ..Options::default()
        },
        ..Setup::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_past_its_deadline_is_given_up() {
    let by_default = Options::default().default_timeout;
    assert_eq!(by_default, Duration::from_secs(300));
    for version in SPOKEN {
        for (own, expected) in [(None, 300), (Some(7), 7), (Some(5_000), 5_000)] {
            let setup = setup(by_default);
            let slow = setup
                .bench
                .tool("slow", json!({}), &[], |cx, _| async move {
                    assert!(cx.deadline.is_some(), "the handler is told");
                    cx.add_cost_micros(17);
                    std::future::pending().await
                });
            let slow = match own {
                Some(seconds) => slow.with_timeout(Duration::from_secs(seconds)),
                None => slow,
            };
            // What is late may have been done: only what may be done twice is worth another try.
            let (read_only, idempotent) = match own {
                None => (None, None),
                Some(7) => (Some(true), None),
                Some(_) => (Some(false), Some(true)),
            };
            let slow = slow.with_annotations(Annotations {
                read_only,
                idempotent,
                ..Annotations::default()
            });
            let house = Setup {
                more_tools: vec![slow],
                ..setup
            }
            .build();
            let mut client = house.connect("anna", version).await;
            let began = tokio::time::Instant::now();
            client.begin_call("slow", json!({})).await;
            let answer = client.receive_within(LONG).await.unwrap();
            let took = began.elapsed().as_secs_f64();
            assert!(
                (took - f64::from(expected)).abs() < 1.0,
                "{took} {expected}"
            );
            assert_eq!(failure_of(&answer)["code"], -32004, "{version}: {answer}");
            let data = &failure_of(&answer)["data"];
            assert_eq!(data["retryable"], own.is_some(), "{answer}");
            assert_eq!(data["outcome"] == "unknown", own.is_none(), "{answer}");
            assert!(data["details"].is_string());
            tokio::time::resume();
            let record = house.record().await;
            assert_eq!(record[0].ended.outcome, Outcome::TimedOut);
            assert_eq!(record[0].ended.error_code, Some(-32004));
            assert_eq!(record[0].ended.cost_micros, 17);
            assert_eq!(house.usage_of("anna").await.unwrap().spent.0, 17);
            tokio::time::pause();
        }
    }
}

/// Messages of one call before its answer, and the answer.
async fn listen(
    client: &mut crate::house::Client,
    tool: &str,
    arguments: Value,
    token: Option<&str>,
) -> (Vec<Value>, Value) {
    let mut params = json!({ "name": tool, "arguments": arguments });
    if let Some(token) = token {
        params["_meta"] = json!({ "progressToken": token });
    }
    client.begin("tools/call", params).await;
    let mut said = Vec::new();
    loop {
        let message = client.receive_within(LONG).await.unwrap();
        if message.get("method").is_none() {
            return (said, message);
        }
        assert_eq!(message["method"], "notifications/progress");
        assert_eq!(message["params"]["progressToken"], "t");
        said.push(message["params"].clone());
    }
}

fn values(said: &[Value]) -> Vec<f64> {
    said.iter()
        .map(|it| it["progress"].as_f64().unwrap())
        .collect()
}

fn check_increasing(values: &[f64]) {
    assert!(
        values.windows(2).all(|pair| pair[0] < pair[1]),
        "{values:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_call_gives_signs_of_life_to_whom_asked_for_them() {
    for version in SPOKEN {
        let setup = setup(HOUR);
        let slow = setup.bench.tool("slow", json!({}), &[], |_, _| async move {
            tokio::time::sleep(Duration::from_secs(100)).await;
            Ok("done".into())
        });
        let quick = setup
            .bench
            .tool("quick", json!({}), &[], |_, _| async move {
                tokio::time::sleep(Duration::from_secs(29)).await;
                Ok("done".into())
            });
        let house = Setup {
            more_tools: vec![slow, quick],
            ..setup
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let (said, answer) = listen(&mut client, "slow", json!({}), Some("t")).await;
        assert!(succeeded(&answer));
        let told = values(&said);
        check_increasing(&told);
        let rounded: Vec<_> = told.iter().map(|it| it.round()).collect();
        assert_eq!(rounded, [30.0, 60.0, 90.0], "seconds, {version}");

        let (said, _) = listen(&mut client, "slow", json!({}), None).await;
        assert!(said.is_empty(), "nobody asked");
        let (said, _) = listen(&mut client, "quick", json!({}), Some("t")).await;
        assert!(said.is_empty(), "it was done in time");
        assert!(client.settle().await.is_empty(), "and nothing afterwards");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_reports_by_itself_needs_no_signs_of_life() {
    for version in SPOKEN {
        let setup = setup(HOUR);
        let steps = setup
            .bench
            .tool("steps", json!({}), &[], |cx, _| async move {
                for step in 1..=4_u8 {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    cx.progress(f64::from(step), Some(4.0), Some(format!("step {step}")));
                    // Left out: no more than before, and no number.
                    cx.progress(f64::from(step), Some(4.0), None);
                    cx.progress(f64::from(step) - 0.5, None, None);
                    cx.progress(f64::NAN, None, None);
                    cx.progress(f64::INFINITY, None, None);
                }
                Ok("done".into())
            });
        let house = Setup {
            more_tools: vec![steps],
            ..setup
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let (said, _) = listen(&mut client, "steps", json!({}), Some("t")).await;
        assert_eq!(values(&said), [1.0, 2.0, 3.0, 4.0], "{version}");
        for it in &said {
            assert_eq!(it["total"], 4.0);
        }
        let (said, _) = listen(&mut client, "steps", json!({}), None).await;
        assert!(said.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_that_cannot_be_sent_does_not_silence_the_signs_of_life() {
    let setup = setup(HOUR);
    // It counts to one, and begins when the seconds have long passed that.
    let late = setup
        .bench
        .tool("late", json!({}), &[], |cx, _| async move {
            tokio::time::sleep(Duration::from_secs(40)).await;
            cx.progress(0.5, Some(1.0), None);
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok("done".into())
        });
    let house = Setup {
        more_tools: vec![late],
        ..setup
    }
    .build();
    let mut client = house.connect("anna", "2025-06-18").await;
    let (said, _) = listen(&mut client, "late", json!({}), Some("t")).await;
    let told = values(&said);
    check_increasing(&told);
    assert_eq!(told.len(), 3, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reported_once_a_call_is_answered_or_cancelled() {
    use std::sync::{Arc, Mutex};
    let kept: Arc<Mutex<Vec<adapter_tools::ToolCx>>> = Arc::default();
    let setup = setup(HOUR);
    let keep = |name: &'static str, stays: bool| {
        let kept = Arc::clone(&kept);
        let begun = Arc::clone(&setup.bench.begun);
        setup.bench.tool(name, json!({}), &[], move |cx, _| {
            kept.lock().unwrap().push(cx.clone());
            begun.add_permits(1);
            async move {
                cx.progress(1.0, None, None);
                if stays {
                    std::future::pending::<()>().await;
                }
                Ok("done".into())
            }
        })
    };
    let more_tools = vec![keep("leave", false), keep("stay", true)];
    let house = Setup {
        more_tools,
        ..setup
    }
    .build();
    let mut client = house.connect("anna", "2025-06-18").await;
    let (said, _) = listen(&mut client, "leave", json!({}), Some("t")).await;
    assert_eq!(values(&said), [1.0]);
    let params = json!({ "name": "stay", "arguments": {}, "_meta": { "progressToken": "t" } });
    let id = client.begin("tools/call", params).await;
    assert_eq!(
        client.receive_within(LONG).await.unwrap()["params"]["progress"],
        1.0
    );
    client.cancel(&id).await;
    assert!(client.settle().await.is_empty());
    let kept = std::mem::take(&mut *kept.lock().unwrap());
    assert_eq!(kept.len(), 2);
    for cx in kept {
        cx.progress(99.0, None, None);
    }
    assert!(client.settle().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_too_slowly_misses_progress_and_no_answer() {
    let setup = setup(HOUR);
    let chatty = setup
        .bench
        .tool("chatty", json!({}), &[], |cx, _| async move {
            for step in 1..=5_000_u32 {
                cx.progress(f64::from(step), None, Some("x".repeat(1_000)));
            }
            Ok("done".into())
        });
    let house = Setup {
        more_tools: vec![chatty],
        ..setup
    }
    .build();
    let mut client = house.connect("anna", "2025-06-18").await;
    let (said, answer) = listen(&mut client, "chatty", json!({}), Some("t")).await;
    assert!(succeeded(&answer));
    check_increasing(&values(&said));
    assert!(
        (1..1_000).contains(&said.len()),
        "{} of 5000 fit",
        said.len()
    );
}
