//! No message of a server makes a client panic.

use crate::vocabulary::json_value;
use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

#[path = "../../../../fuzz/properties/client.rs"]
mod client;

/// The specification's examples, and what is in them: what a random change leaves nearly right.
static EXAMPLES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut values = Vec::new();
    for example in testkit::examples() {
        for part in ["params", "result", "error"] {
            values.extend(example.value.get(part).cloned());
        }
        values.push(example.value);
    }
    values
});

/// Change of one value inside of another.
#[derive(Clone, Debug)]
enum Change {
    Replace(Value),
    Remove,
    Duplicate,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => json_value().prop_map(Change::Replace),
        1 => Just(Change::Remove),
        1 => Just(Change::Duplicate),
    ]
}

/// Number of values inside of `value`, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// Changes the value that is `left` values from here.
fn apply(value: &Value, left: &mut usize, change: &Change) -> Vec<Value> {
    let here = *left == 0;
    *left = left.wrapping_sub(1);
    if here {
        return match change {
            Change::Replace(other) => vec![other.clone()],
            Change::Remove => Vec::new(),
            Change::Duplicate => vec![value.clone(), value.clone()],
        };
    }
    vec![match value {
        Value::Array(values) => {
            let values = values.iter().flat_map(|it| apply(it, left, change));
            Value::Array(values.collect())
        }
        Value::Object(members) => {
            let mut changed = Map::new();
            for (key, member) in members {
                let mut them = apply(member, left, change);
                match (them.len(), them.pop()) {
                    (1, Some(one)) => changed.insert(key.clone(), one),
                    (2, Some(one)) => changed.insert(key.clone(), Value::from(vec![one; 2])),
                    _ => None,
                };
            }
            Value::Object(changed)
        }
        other => other.clone(),
    }]
}

proptest! {
    #[test]
    fn whatever_the_json_is(value in json_value()) {
        client::holds(value.to_string().as_bytes());
    }

    #[test]
    fn whatever_the_bytes_are(bytes in any::<Vec<u8>>()) {
        client::holds(&bytes);
    }

    #[test]
    fn whatever_is_done_to_an_example(
        which in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), change()), 1..4),
    ) {
        let mut value = which.get(&EXAMPLES).clone();
        for (place, change) in changes {
            let mut left = place.index(count(&value));
            value = apply(&value, &mut left, &change).pop().unwrap_or(Value::Null);
        }
        client::holds(value.to_string().as_bytes());
    }

    #[test]
    fn wherever_an_example_is_cut_or_hit(
        which in any::<Index>(),
        place in any::<Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut text = which.get(&EXAMPLES).to_string().into_bytes();
        let place = place.index(text.len());
        text[place] = byte;
        if cut {
            text.truncate(place);
        }
        client::holds(&text);
    }
}

/// Each value in the seeds of the fuzzer, which have one of everything, is replaced by each of
/// these.
#[test]
fn whichever_value_is_another() {
    let others = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(0.5),
        json!(1e300),
        json!(""),
        json!([[]]),
        json!({ "type": "object" }),
    ];
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/client");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        // What fuzzing has added where it ran is named by its digest, and may be thousands.
        let name = path.file_name().unwrap().to_string_lossy();
        if name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        let text = std::fs::read(&path).unwrap();
        let Ok(value) = serde_json::from_slice::<Value>(&text) else {
            continue;
        };
        for place in 0..self::count(&value) {
            for other in &others {
                let changed = apply(&value, &mut place.clone(), &Change::Replace(other.clone()));
                client::holds(changed[0].to_string().as_bytes());
                count += 1;
            }
        }
    }
    assert!(1000 < count, "only {count} values");
}

/// The claim would hold if nothing were ever read.
#[test]
fn examples_are_understood() {
    let mut count = 0;
    for example in testkit::examples() {
        let said = match example.definition.as_str() {
            // They say nothing but that they are there.
            "SubscriptionsListenResultResponse" => continue,
            name if name.ends_with("ListChangedNotification") => continue,
            name if name.ends_with("ResultResponse") => &example.value["result"],
            name if name.ends_with("Notification") => &example.value["params"],
            _ => continue,
        };
        let understood = client::holds(said.to_string().as_bytes());
        assert!(0 < understood, "{}", example.name);
        count += 1;
    }
    assert_eq!(count, 15);
}

/// Depth is bounded where frames are read; whoever does not is safe all the same.
#[test]
fn depth_is_survived() {
    for depth in [100, 127, 128, 129, 10_000] {
        let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        for frame in [
            r#"{"content":[],"structuredContent":DEEP,"_meta":{"a":DEEP}}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"metadata":{"a":DEEP}}}}}"#,
            r#"{"mode":"form","message":"","requestedSchema":{"a":DEEP}}"#,
            r#"{"level":"info","data":DEEP}"#,
            r#"{"taskId":"","status":"completed","createdAt":"","lastUpdatedAt":"","result":{"a":DEEP}}"#,
            r#"{"capabilities":{"experimental":{"a":DEEP}},"protocolVersion":"","supportedVersions":DEEP}"#,
            "DEEP",
        ] {
            client::holds(frame.replace("DEEP", &deep).as_bytes());
        }
    }
}
