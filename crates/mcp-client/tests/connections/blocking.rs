//! Connections of callers without a runtime.

use crate::support::LONG;
use mcp_client::{CallOptions, Dial, Error, Options, RawJson, Speak, blocking::Connection};
use mcp_protocol::{ProtocolVersion, model::SubscriptionFilter};
use serde_json::json;
use std::{collections::BTreeMap, thread, time::Instant};

fn child(how: &str) -> Dial {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile.py");
    Dial::child("python3", [script, how])
}

fn legacy() -> Options {
    Options {
        speak: Speak::Only(ProtocolVersion::V2025_11_25),
        ..crate::support::options()
    }
}

#[test]
fn many_threads_share_a_connection() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/connections/child.py");
    let connection = Connection::open(&Dial::child("python3", [script]), legacy()).unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            let connection = connection.clone();
            scope.spawn(move || {
                for _ in 0..20 {
                    let arguments = mcp_client::json(&json!({ "at": 1 })).unwrap();
                    let result = connection.call("release", arguments, &CallOptions::default());
                    assert!(format!("{:?}", result.unwrap()).contains("0 never"));
                }
            });
        }
    });
    assert_eq!(connection.asynchronous().requests_under_way(), 0);
    connection.close();
}

#[test]
fn a_byte_order_mark_before_the_first_message_is_passed_over() {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/small.py");
    let marked = ["-c", r"printf '\357\273\277'; exec python3 $0", small];
    let connection = Connection::open(&Dial::child("sh", marked), Options::default()).unwrap();
    let version = connection.asynchronous().agreed().version;
    assert_eq!(version, ProtocolVersion::V2026_07_28);
    connection.close();
}

#[test]
fn every_method_waits_for_its_answer() {
    let connection = Connection::open(&child(""), legacy()).unwrap();
    assert_eq!(connection.tools().unwrap().len(), 0);
    let result = connection.call("any", RawJson::EMPTY_OBJECT, &CallOptions::default());
    assert!(format!("{:?}", result.unwrap()).contains("ok"));
    connection.wait(connection.asynchronous().ping()).unwrap();
    // The server answers none of these.
    assert!(matches!(
        connection.resources(),
        Err(Error::TimedOut { .. })
    ));
    assert!(matches!(connection.prompts(), Err(Error::TimedOut { .. })));
    assert!(matches!(
        connection.read("a://b"),
        Err(Error::TimedOut { .. })
    ));
    let prompt = connection.prompt("p", BTreeMap::new());
    assert!(matches!(prompt, Err(Error::TimedOut { .. })));
    let listening = connection
        .asynchronous()
        .listen(SubscriptionFilter::default());
    drop(connection.wait(listening).unwrap());
    connection.close();
}

#[test]
fn a_server_that_cannot_be_started_is_an_error() {
    let error = Connection::open(&Dial::child("/no/such/program", [""; 0]), legacy());
    assert!(matches!(error, Err(Error::Start { .. })));
}

#[test]
fn a_connection_that_is_dropped_closes_its_child_as_one_that_is_closed() {
    for close in [true, false] {
        let file = tempfile(close);
        // It writes a file when its input ends, which it could not if it were killed.
        let script = format!(
            "import sys, json\nfor line in sys.stdin:\n m = json.loads(line)\n if m.get('method') == 'initialize':\n  \
             print(json.dumps({{'jsonrpc': '2.0', 'id': m['id'], 'result': {{'protocolVersion': '2025-11-25', \
             'capabilities': {{}}, 'serverInfo': {{'name': 'n', 'version': '1'}}}}}}), flush=True)\n\
             open({file:?}, 'w').write('bye')\n"
        );
        let mut options = legacy();
        options.bounds.close_patience = LONG;
        let connection = Connection::open(&Dial::child("python3", ["-c", &script]), options);
        let connection = connection.unwrap();
        match close {
            true => connection.close(),
            false => drop(connection),
        }
        let started = Instant::now();
        while !file.exists() {
            assert!(started.elapsed() < LONG, "the child was killed");
            thread::sleep(std::time::Duration::from_millis(20));
        }
        std::fs::remove_file(file).unwrap();
    }
}

fn tempfile(close: bool) -> std::path::PathBuf {
    let name = format!("mcp-client-bye-{}-{close}", std::process::id());
    std::env::temp_dir().join(name)
}

#[tokio::test]
async fn a_connection_that_asynchronous_code_drops_does_not_panic() {
    let connection = thread::spawn(|| Connection::open(&child(""), legacy()).unwrap());
    drop(connection.join().unwrap());
}
