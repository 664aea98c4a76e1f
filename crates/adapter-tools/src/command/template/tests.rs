use super::*;
use proptest::prelude::*;
use serde_json::json;

fn words(run: &Value) -> Vec<Word> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let word = |value: &Value| match value {
        Value::Array(group) => Word::Group(group.iter().map(text).collect()),
        one => Word::One(text(one)),
    };
    run.as_array().unwrap().iter().map(word).collect()
}

fn line(run: &Value) -> CommandLine {
    CommandLine::parse(&words(run)).unwrap()
}

fn rendered(run: &Value, given: &Value) -> Result<Vec<String>, String> {
    let rendered = line(run).render(given.as_object().unwrap());
    rendered.map_err(|error| error.violations()[0].to_string())
}

#[test]
fn a_placeholder_fills_one_argument_whatever_the_value_is() {
    let nasty = "a b;$(rm -rf /)`x`'\"\n*|&>\\";
    let rows = [
        (json!(["p", "{x}"]), json!({"x": nasty}), json!([nasty])),
        (json!(["p", "{x}"]), json!({"x": ""}), json!([""])),
        (
            json!(["p", "--x={x}"]),
            json!({"x": "-rf"}),
            json!(["--x=-rf"]),
        ),
        (
            json!(["p", "{x}:{y}"]),
            json!({"x": 1, "y": true}),
            json!(["1:true"]),
        ),
        (
            json!(["p", "{{{x}}}", "a"]),
            json!({"x": 1}),
            json!(["{1}", "a"]),
        ),
        // Numbers that are integers to JSON Schema are integers to the program.
        (json!(["p", "{x}"]), json!({"x": 5.0}), json!(["5"])),
        (json!(["p", "{x}"]), json!({"x": 1e300}), json!(["1e+300"])),
        (
            json!(["p", "{x}"]),
            json!({"x": u64::MAX}),
            json!([u64::MAX.to_string()]),
        ),
        (
            json!(["p", "--x={x}"]),
            json!({"x": -2.5}),
            json!(["--x=-2.5"]),
        ),
        (
            json!(["p", "{x}"]),
            json!({"x": {"a": [1, null]}}),
            json!([r#"{"a":[1,null]}"#]),
        ),
        (
            json!(["p", "{x}"]),
            json!({"x": ["-a"]}),
            json!([r#"["-a"]"#]),
        ),
        // What is not given is left out, with its group.
        (json!(["p", "{x}", "y"]), json!({}), json!(["y"])),
        (
            json!(["p", "--x={x}", "y"]),
            json!({"x": null}),
            json!(["y"]),
        ),
        (json!(["p", ["--x", "{x}"], "y"]), json!({}), json!(["y"])),
        (
            json!(["p", ["--x", "{x}"], "y"]),
            json!({"x": 0}),
            json!(["--x", "0", "y"]),
        ),
        (json!(["p", ["{x}", "{y}"]]), json!({"x": 0}), json!([])),
        (
            json!(["p", "--dry-run{x?}"]),
            json!({"x": true}),
            json!(["--dry-run"]),
        ),
        (
            json!(["p", "--dry-run{x?}"]),
            json!({"x": false}),
            json!([]),
        ),
        (json!(["p", "--dry-run{x?}"]), json!({}), json!([])),
        (
            json!(["p", ["{x?}", "--dry", "run"]]),
            json!({"x": true}),
            json!(["--dry", "run"]),
        ),
        (
            json!(["p", ["{x?}", "--dry", "run"]]),
            json!({"x": false}),
            json!([]),
        ),
        (
            json!(["p", "{x?}--dry"]),
            json!({"x": true}),
            json!(["--dry"]),
        ),
        (json!(["p", ""]), json!({}), json!([""])),
        // Items.
        (
            json!(["p", "{x...}"]),
            json!({"x": ["a b", 2]}),
            json!(["a b", "2"]),
        ),
        (json!(["p", "{x...}", "y"]), json!({"x": []}), json!(["y"])),
        (json!(["p", ["--all", "{x...}"]]), json!({}), json!([])),
        // After `--` nothing is an option.
        (
            json!(["p", "--", "{x}", "{y...}"]),
            json!({"x": "-a", "y": ["-b"]}),
            json!(["--", "-a", "-b"]),
        ),
        (
            json!(["p", ["--", "{x}"]]),
            json!({"x": "-a"}),
            json!(["--", "-a"]),
        ),
    ];
    for (run, given, expected) in rows {
        let arguments = rendered(&run, &given).unwrap();
        assert_eq!(json!(arguments), expected, "{run} {given}");
    }
}

#[test]
fn what_a_program_could_misread_is_refused() {
    let option = "expected a value that does not begin with `-`, which would be an option";
    let rows = [
        (
            json!(["p", "{x}"]),
            json!({"x": "-rf"}),
            format!("/x: {option}"),
        ),
        (
            json!(["p", "{x}"]),
            json!({"x": -1}),
            format!("/x: {option}"),
        ),
        (
            json!(["p", "{x}{y}"]),
            json!({"x": "", "y": "-a"}),
            format!("/y: {option}"),
        ),
        (
            json!(["p", "{b?}{y}"]),
            json!({"b": true, "y": "-a"}),
            format!("/y: {option}"),
        ),
        (
            json!(["p", "{x...}"]),
            json!({"x": ["a", "--b"]}),
            format!("/x/1: {option}"),
        ),
        (
            json!(["p", "{x...}"]),
            json!({"x": [null]}),
            "/x/0: expected a value, found null".into(),
        ),
        // That group may be left out, and its `--` with it.
        (
            json!(["p", ["--", "{y}"], "{x}"]),
            json!({"x": "-a"}),
            format!("/x: {option}"),
        ),
        (
            json!(["p", "--x={x}"]),
            json!({"x": "a\u{0}b"}),
            "/x: expected a text without zero characters".into(),
        ),
    ];
    for (run, given, why) in rows {
        assert_eq!(rendered(&run, &given).unwrap_err(), why, "{run} {given}");
    }
    let long = "x".repeat(MAX_ARGUMENT + 1);
    let why = rendered(&json!(["p", "{x}"]), &json!({"x": long})).unwrap_err();
    assert!(why.contains("at most 100000 bytes"), "{why}");
    let many = vec!["x".repeat(1_000); 600];
    let why = rendered(&json!(["p", "{x...}"]), &json!({"x": many})).unwrap_err();
    assert!(why.contains("at most 524288 bytes"), "{why}");
}

#[test]
fn templates_that_cannot_be_meant_are_refused() {
    let rows = [
        (json!([]), "no program is named"),
        (json!([""]), "no program is named"),
        (json!([["p"]]), "no program is named"),
        (json!(["{p}"]), "the caller would choose the program: `{p}`"),
        (
            json!(["p", "{x"]),
            "`{x` has a brace that belongs to no placeholder",
        ),
        (
            json!(["p", "x}"]),
            "`x}` has a brace that belongs to no placeholder",
        ),
        (
            json!(["p", "{}"]),
            "`{}` has a brace that belongs to no placeholder",
        ),
        (
            json!(["p", "{a b}"]),
            "`{a b}` has a brace that belongs to no placeholder",
        ),
        (
            json!(["p", "--x={x...}"]),
            "`--x={x...}` becomes several arguments and cannot hold anything else",
        ),
        (
            json!(["p", "--{x}"]),
            "the caller would choose the option: `--{x}`",
        ),
        (
            json!(["p", "--{b?}{x}"]),
            "the caller would choose the option: `--{b?}{x}`",
        ),
        (
            json!(["p", "-{x}=1"]),
            "the caller would choose the option: `-{x}=1`",
        ),
    ];
    for (run, why) in rows {
        let error = CommandLine::parse(&words(&run)).unwrap_err();
        assert_eq!(error.to_string(), why, "{run}");
    }
}

#[test]
fn placeholders_are_properties_of_the_schema() {
    let schema = json!({"properties": {
        "a": {"type": "string"}, "b": {"type": "array"}, "c": {"type": "boolean"}, "d": {},
    }});
    let rows = [
        (json!(["p", "{a}{b}{c?}{d?}", "{d...}", "{b...}"]), None),
        (
            json!(["p", "{e}"]),
            Some("`{e}` is none of the tool's arguments"),
        ),
        (
            json!(["p", ["{a...}"]]),
            Some("`{a...}` wants the type array, and `a` has the type string"),
        ),
        (
            json!(["p", "{b?}"]),
            Some("`{b?}` wants the type boolean, and `b` has the type array"),
        ),
    ];
    for (run, why) in rows {
        let error = line(&run)
            .check(&schema)
            .err()
            .map(|error| error.to_string());
        assert_eq!(error.as_deref(), why, "{run}");
    }
    assert!(line(&json!(["p", "x"])).check(&json!({})).is_ok());
}

proptest! {
    #[test]
    fn no_value_becomes_an_option_or_a_second_argument(value in any::<String>(), prefix in any::<bool>()) {
        let run = if prefix { json!(["p", "--x={x}"]) } else { json!(["p", "{x}"]) };
        match rendered(&run, &json!({"x": value})) {
            Ok(arguments) => {
                let expected = if prefix { format!("--x={value}") } else { value.clone() };
                prop_assert_eq!(arguments, [expected]);
                prop_assert!(prefix || !value.starts_with('-'));
            }
            Err(_) => prop_assert!(value.starts_with('-') || value.contains('\0')),
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-{}.?a]{0,12}") {
        let _ = CommandLine::parse(&[Word::One("p".into()), Word::One(text)]);
    }
}
