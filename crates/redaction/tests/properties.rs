//! Properties that hold for every text.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use redaction::{BadSpec, Redactor, Spec};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

fn redactor() -> Redactor {
    Redactor::new(&Spec::default(), [9; 32]).unwrap()
}

/// Secrets by their looks, and a part of each that must be nowhere.
const BY_LOOKS: [(&str, &str); 10] = [
    ("5555 5555 5555 4444", "5555 5555"),
    ("5555555555554444", "5555555"),
    ("Bearer mF9B5f41JqMcZ", "mF9B5f41"),
    ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "QWxhZGRpbj"),
    ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "0123456789abc"),
    ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    (
        "-----BEGIN PRIVATE KEY-----\nMIIEvQ\"x\\y\n-----END PRIVATE KEY-----",
        "MIIEvQ",
    ),
    ("amqp://shop:s3cr3t-w0rd@queue/x", "s3cr3t-w0rd"),
    ("password='cl\u{e9}-of-\u{1f511}-and-more'", "-and-more"),
    (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzZWNyZXQifQ.c2lnbmF0dXJl",
        "eyJzdWIi",
    ),
];

const BY_NAME: [&str; 6] = [
    "password",
    "dbPassword",
    "X-API-Key",
    "client_secret",
    "Authorization",
    "PIN",
];

/// Value that has one of those names.
const NAMED: &str = "plain-words-only";

/// A word that is no secret and no name of one.
fn word() -> impl Strategy<Value = String> {
    "[a-mé会😀 ]{0,6}"
}

fn planted_text() -> impl Strategy<Value = String> {
    (word(), prop::sample::select(&BY_LOOKS[..]), word())
        .prop_map(|(before, (secret, _), after)| format!("{before} {secret} {after}"))
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => word(), 1 => planted_text()]
}

/// JSON with secrets anywhere: in strings, names and numbers, behind names, and in JSON in strings.
fn planted() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        word().prop_map(Value::from),
        planted_text().prop_map(Value::from),
        Just(json!(5_555_555_555_554_444_u64)),
        (prop::sample::select(&BY_NAME[..]), 0..3).prop_map(|(name, depth)| (0..depth)
            .fold(json!({ name: NAMED }), |inner, _| json!({ name: [inner] }))),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((name(), inner.clone()), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
            inner.prop_map(|inner| inner.to_string().into()),
        ]
    })
}

/// Writes JSON, with every character escaped for which `escapes` says so.
fn write(value: &Value, escapes: &mut impl Iterator<Item = bool>, out: &mut String) {
    let string = |text: &str, escapes: &mut dyn Iterator<Item = bool>, out: &mut String| {
        out.push('"');
        for character in text.chars() {
            if escapes.next().unwrap_or_default()
                || character < ' '
                || matches!(character, '"' | '\\')
            {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            } else {
                out.push(character);
            }
        }
        out.push('"');
    };
    match value {
        Value::String(text) => string(text, escapes, out),
        Value::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                out.push_str(if at == 0 { " " } else { " , " });
                write(element, escapes, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (at, (name, member)) in members.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ",\n" });
                string(name, escapes, out);
                out.push_str(" :");
                write(member, escapes, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// All that a text of JSON says, and what JSON in its strings says.
fn said(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            out.push_str(text);
            out.push('\n');
            if let Ok(inner @ (Value::Array(_) | Value::Object(_) | Value::String(_))) =
                serde_json::from_str(text)
            {
                said(&inner, out);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|it| said(it, out)),
        Value::Object(members) => members.iter().for_each(|(name, it)| {
            said(&Value::from(name.as_str()), out);
            said(it, out);
        }),
        other => out.push_str(&other.to_string()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_secret_is_left_however_it_is_hidden(
        value in planted(),
        escapes in prop::collection::vec(prop::bool::weighted(0.2), 1..64),
    ) {
        let mut text = String::new();
        write(&value, &mut escapes.iter().copied().cycle(), &mut text);
        prop_assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), &value);

        let redactor = redactor();
        let redacted = redactor.json("tool/a", &text);
        let parsed: Value = serde_json::from_str(&redacted).expect("it is JSON still");
        let mut all = redacted.clone().into_owned();
        said(&parsed, &mut all);
        for trace in BY_LOOKS.iter().map(|it| it.1).chain([NAMED, "5555555555554444"]) {
            prop_assert!(!all.contains(trace), "{} is in {}", trace, redacted);
        }
        // Once is enough.
        prop_assert_eq!(&redactor.json("tool/a", &redacted), &redacted);
        // As text it is read the same way.
        if text.starts_with(['{', '[']) {
            prop_assert_eq!(redactor.text(&text), redacted);
        }
    }

    #[test]
    fn without_secrets_nothing_changes(
        members in prop::collection::vec((any::<String>(), any::<String>(), -1_000_000_000_000_i64..1_000_000_000_000), 0..6),
    ) {
        let value: Value = members
            .into_iter()
            .map(|(name, text, number)| (format!("x{name}z"), json!([text, number, { "a": null }])))
            .collect();
        let text = value.to_string();
        prop_assert!(matches!(redactor().json("", &text), Cow::Borrowed(_)));
    }

    #[test]
    fn any_text_is_redacted_without_harm(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24)) {
        let text = pieces.concat();
        let redactor = redactor();
        let redacted = redactor.text(&text);
        let json = serde_json::to_string(&text).unwrap();
        let inner: String = serde_json::from_str(&redactor.json("", &json)).unwrap();
        prop_assert_eq!(inner, redacted);
        let _ = redactor.json("", &text);
        let _ = redaction::digest(&text);
    }

    #[test]
    fn what_a_pointer_leads_to_is_taken_out_as_a_whole(value in planted(), choices: Vec<prop::sample::Index>) {
        // Somewhere in it.
        let (mut pointer, mut place) = (String::new(), String::new());
        let mut at = &value;
        for choice in choices {
            match at {
                Value::Array(elements) if !elements.is_empty() => {
                    let index = choice.index(elements.len());
                    let segment = format!("/{index}");
                    pointer.push_str(if index % 2 == 0 { &segment } else { "/*" });
                    place.push_str(&segment);
                    at = &elements[index];
                }
                Value::Object(members) if !members.is_empty() => {
                    let (name, member) = members.iter().nth(choice.index(members.len())).unwrap();
                    let segment = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
                    pointer.push_str(&segment);
                    place.push_str(&segment);
                    at = member;
                }
                _ => break,
            }
        }
        let spec = Spec {
            built_in_keys: false,
            detectors: redaction::Detectors::none(),
            pointers: [("tool/a*".to_owned(), vec![pointer.clone()])].into(),
            ..Spec::default()
        };
        let redactor = Redactor::new(&spec, [9; 32]).unwrap();
        let text = value.to_string();
        prop_assert_eq!(redactor.json("tool/b", &text), &*text);
        let redacted: Value = serde_json::from_str(&redactor.json("tool/ab", &text)).unwrap();
        let there = redacted.pointer(&place).unwrap();
        prop_assert!(there.as_str().is_some_and(|it| it.starts_with("[redacted value ")), "{} {}", pointer, redacted);
    }
}

/// Pieces of which hostile texts are composed.
const PIECES: [&str; 44] = [
    "password",
    "token",
    "pin",
    "=",
    ":",
    "\"",
    "'",
    "\\",
    "`",
    "[",
    "{",
    "}",
    "]",
    "<",
    ">",
    "</",
    "-",
    "--",
    "-----BEGIN ",
    "PRIVATE KEY-----",
    "-----END ",
    "://",
    "a://",
    "@",
    "/",
    "é",
    "会",
    "\u{a0}",
    "Bearer ",
    "Basic ",
    "eyJ",
    ".",
    "4111",
    "1111 ",
    "11",
    "\n",
    " ",
    "&",
    "[redacted card ",
    "0123456789abcdef]",
    "AKIA",
    "ghp_",
    ";",
    "b'",
];

#[test]
fn time_is_in_proportion_to_length() {
    const LENGTH: usize = 50_000;
    let spec = Spec {
        pointers: [(
            "*".to_owned(),
            vec!["/a/*/a/*/a".to_owned(), "/*/*/*".to_owned()],
        )]
        .into(),
        ..Spec::default()
    };
    let redactor = Redactor::new(&spec, [9; 32]).unwrap();
    let mut units: Vec<String> = PIECES.iter().map(|it| (*it).to_owned()).collect();
    for first in [
        "password",
        "pin ",
        "a://",
        "Bearer ",
        "4111-",
        "\\\"",
        "_",
        "password=",
        "\"pin\": \\\\",
        "=a&",
    ] {
        units.extend(
            ["=", ":", "\\\"", "a:b", "1111 ", "_", " ", "]", "'", "x"]
                .map(|second| format!("{first}{second}")),
        );
    }
    units.extend(
        [
            "{\"a\":",
            "[[",
            "\"\\u0070",
            "[\"{\\\"a\\\":",
            "eyJaaaaaaaaa.",
            "cookie: '",
            "-----BEGIN X-----",
            "auth:{ ",
            "auth：{ ",
            "auth: \"a ",
            "密码：{ ",
        ]
        .map(str::to_owned),
    );
    for unit in units {
        let text = unit.repeat(LENGTH / unit.len());
        let began = Instant::now();
        let _ = redactor.text(&text);
        let _ = redactor.json("tool/a", &text);
        let _ = redactor.json("tool/a", &json!({ "a": text }).to_string());
        let _ = redactor.json("tool/a", &json!({ text.as_str(): 1 }).to_string());
        let _ = redaction::digest(&text);
        // It takes far less than a second; of what takes the square of it some would take minutes.
        assert!(began.elapsed() < Duration::from_secs(120), "{unit:?}");
    }
}

#[test]
fn depth_is_no_matter() {
    let deep = 100_000;
    let redactor = redactor();
    let nested = format!(
        "{}\"password=hunter2\"{}",
        r#"{"a":["#.repeat(deep),
        "]}".repeat(deep)
    );
    assert!(!redactor.json("", &nested).contains("hunter2"));
    let secret = format!(
        r#"{{"password": {}"hunter2"{}, "b": 1}}"#,
        "[".repeat(deep),
        "]".repeat(deep)
    );
    let redacted = redactor.json("", &secret);
    assert!(
        redacted.len() < 100 && redacted.ends_with(r#""b": 1}"#),
        "{redacted}"
    );
    // JSON in JSON in JSON: each level doubles the backslashes, and deeper than is looked it is text.
    let mut text = r#"{"password": "hunter2"}"#.to_owned();
    for level in 0..8 {
        assert!(!redactor.json("", &text).contains("hunter2"), "{level}");
        text = json!([text]).to_string();
    }
}

#[test]
fn names_and_pointers_decide() {
    let spec = Spec {
        keys: vec!["Tax-Number".to_owned(), "*nick".to_owned()],
        pointers: [
            (
                "tool/pay".to_owned(),
                vec![
                    "/to/0/iban".to_owned(),
                    "/notes/*".to_owned(),
                    "/a~1b/~0".to_owned(),
                ],
            ),
            ("resource/*".to_owned(), vec![String::new()]),
        ]
        .into(),
        ..Spec::default()
    };
    let redactor = Redactor::new(&spec, [9; 32]).unwrap();
    let redacted = |capability: &str, value: Value| -> Value {
        let json = redactor.json(capability, &value.to_string()).into_owned();
        serde_json::from_str(&json).unwrap()
    };
    let is_out = |value: &Value| {
        value
            .as_str()
            .is_some_and(|it| it.starts_with("[redacted "))
    };
    let given = json!({
        "taxNumber": 5, "my_tax_number": 5, "myNick": "x", "nickname": "x",
        "to": [{"iban": "DE1"}, {"iban": "DE2"}], "notes": [null, true, "", {"a": 1}], "a/b": {"~": 0, "": 0},
        "password": null, "secret": false, "token": "", "pin": 12, "credentials": {"user": "a"}, "otp": [1],
    });
    let paid = redacted("tool/pay", given.clone());
    for pointer in [
        "/taxNumber",
        "/myNick",
        "/to/0/iban",
        "/notes/0",
        "/notes/1",
        "/notes/2",
        "/notes/3",
        "/a~1b/~0",
        "/pin",
        "/credentials",
        "/otp",
    ] {
        assert!(
            is_out(&paid[pointer.split('/').nth(1).unwrap()])
                || is_out(paid.pointer(pointer).unwrap()),
            "{pointer} {paid}"
        );
    }
    for pointer in [
        "/my_tax_number",
        "/nickname",
        "/to/1/iban",
        "/a~1b/",
        "/password",
        "/secret",
        "/token",
    ] {
        assert_eq!(paid.pointer(pointer), given.pointer(pointer), "{pointer}");
    }
    let any = redactor.json_for_any(&given.to_string()).into_owned();
    assert!(
        !any.contains("DE1") && any.starts_with("\"[redacted value "),
        "{any}"
    );
    let other = redacted("tool/other", given.clone());
    assert_eq!(other["to"], given["to"]);
    assert!(is_out(&redacted("resource/x", json!({"a": 1}))));
    // In what a tool gives as text, too.
    let content = json!([{"type": "text", "text": json!({"to": [{"iban": "DE1"}]}).to_string()}]);
    assert!(!redacted("tool/pay", content).to_string().contains("DE1"));
    // However an object is written.
    let digest = |json: &str| redactor.json("", json).into_owned();
    assert_eq!(
        digest(r#"{"secret":{"b":1,"a":2}}"#),
        digest(r#"{"secret":{ "a" : 2, "\u0062": 1 }}"#)
    );

    for (spec, expected) in [
        (
            Spec {
                keys: vec!["_".to_owned()],
                ..Spec::default()
            },
            BadSpec::Key("_".to_owned()),
        ),
        (
            Spec {
                pointers: [(String::new(), vec![])].into(),
                ..Spec::default()
            },
            BadSpec::Pattern,
        ),
        (
            Spec {
                pointers: [("*".to_owned(), vec!["a".to_owned()])].into(),
                ..Spec::default()
            },
            BadSpec::Pointer {
                capability: "*".to_owned(),
                pointer: "a".to_owned(),
                problem: "it must be empty or begin with `/`",
            },
        ),
    ] {
        assert_eq!(Redactor::new(&spec, [0; 32]).unwrap_err(), expected);
    }
    assert!(!format!("{redactor:?}").contains("9, 9"));
}

#[test]
fn digests_with_a_key_need_the_key() {
    let other = Redactor::new(&Spec::default(), [8; 32]).unwrap();
    let (a, b) = (r#"{"a":1,"b":2}"#, r#"{"b":2, "a":1}"#);
    assert_eq!(redactor().digest(a), redactor().digest(b));
    assert_ne!(redactor().digest(a), other.digest(a));
    assert_ne!(redactor().digest(a), redaction::digest(a));
}
