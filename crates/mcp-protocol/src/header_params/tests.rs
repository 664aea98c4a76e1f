use super::*;
use proptest::prelude::*;
use serde_json::json;

fn read(schema: Value) -> Result<MirroredParams, BadAnnotation> {
    MirroredParams::of_schema(&schema)
}

fn sample() -> MirroredParams {
    let schema = json!({
        "type": "object",
        "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "query": { "type": "string" },
            "limits": {
                "type": "object",
                "properties": { "rows": { "type": "integer", "x-mcp-header": "Rows" } }
            },
            "dry": { "anyOf": [{ "type": "boolean" }, { "type": "null" }], "x-mcp-header": "dry-run" },
            "old": { "type": ["boolean", "null"], "x-mcp-header": "old" }
        }
    });
    read(schema).unwrap()
}

/// Description of what is wrong with a call with `arguments` and these headers; empty if it is
/// right.
fn compare(arguments: &Value, headers: &[(&str, &str)]) -> String {
    let params = RawJson::from_value(&json!({ "name": "t", "arguments": arguments })).unwrap();
    let compared = sample().compare(&params, |name| {
        let values = headers.iter().filter(|(header, _)| *header == name);
        values.map(|(_, value)| value.as_bytes()).collect()
    });
    compared.map_or_else(|error| error.to_string(), |()| String::new())
}

/// Arguments, headers, and what is wrong with them; nothing if they fit.
type Row<'a> = (Value, &'a [(&'a str, &'a str)], &'a str);

#[test]
fn headers_must_say_what_the_arguments_are() {
    const REGION: &str = "mcp-param-region";
    const ROWS: &str = "mcp-param-rows";
    const DRY: &str = "mcp-param-dry-run";
    let region = |text: &str| json!({ "region": text });
    let rows = |number: Value| json!({ "limits": { "rows": number } });
    let dry = |truth: Value| json!({ "dry": truth });
    #[rustfmt::skip]
    let rows: &[Row<'_>] = &[
        (json!({}), &[], ""),
        (json!({ "query": "x" }), &[("mcp-param-query", "y")], ""),
        (region("us-west1"), &[(REGION, "us-west1")], ""),
        (region("us-west1"), &[(REGION, "us-west1"), (REGION, "us-west1")], ""),
        (region("us-west1"), &[(REGION, "us-west1"), (REGION, "eu")], "twice"),
        (region("us-west1"), &[(REGION, "US-WEST1")], "is not"),
        (region("us-west1"), &[], "is missing"),
        (region(""), &[(REGION, "")], ""),
        (region(""), &[], "is missing"),
        (json!({}), &[(REGION, "")], "its argument is not"),
        (json!({ "region": null }), &[(REGION, "null")], "its argument is not"),
        (json!({ "region": null }), &[], ""),
        (region("Hello"), &[(REGION, "=?base64?SGVsbG8=?=")], ""),
        (region("Hello"), &[(REGION, "=?base64?SGVsbG8?=")], "encoded"),
        (region("Hello"), &[(REGION, "=?base64?SGVs!!!bG8=?=")], "encoded"),
        (region("Hello"), &[(REGION, "=?base64?//8=?=")], "encoded"),
        (region("Hello"), &[(REGION, "=?BASE64?SGVsbG8=?=")], "is not"),
        (region("SGVsbG8="), &[(REGION, "SGVsbG8=")], ""),
        (region("=?base64?SGVsbG8="), &[(REGION, "=?base64?SGVsbG8=")], ""),
        (region("=?base64?SGVsbG8=?="), &[(REGION, "=?base64?SGVsbG8=?=")], "is not"),
        (region("größe"), &[(REGION, "größe")], "encoded"),
        (region("größe"), &[(REGION, "=?base64?Z3LDtsOfZQ==?=")], ""),
        (rows(json!(42)), &[(ROWS, "42")], ""),
        (rows(json!(42)), &[(ROWS, "42.0")], ""),
        (rows(json!(42.0)), &[(ROWS, "42")], ""),
        (rows(json!(-7)), &[(ROWS, "-7")], ""),
        (rows(json!(-7)), &[(ROWS, "7")], "is not"),
        (rows(json!(42)), &[(ROWS, "0x2a")], "is not"),
        (rows(json!(42)), &[(ROWS, "+42")], "is not"),
        (rows(json!(42)), &[(ROWS, "42 ")], ""),
        (rows(json!(42)), &[(ROWS, "")], "is not"),
        (rows(json!(9_007_199_254_740_993_i64)), &[(ROWS, "9007199254740992")], "is not"),
        (rows(json!(42)), &[], "is missing"),
        (json!({ "limits": 7 }), &[], ""),
        (json!({ "limits": {} }), &[(ROWS, "1")], "its argument is not"),
        (dry(json!(true)), &[(DRY, "true")], ""),
        (dry(json!(false)), &[(DRY, "False")], "is not"),
        (dry(json!(false)), &[(DRY, "0")], "is not"),
        (dry(json!([true])), &[(DRY, "true")], "is not"),
    ];
    for (arguments, headers, expected) in rows {
        let found = compare(arguments, headers);
        let fits = if expected.is_empty() {
            found.is_empty()
        } else {
            found.contains(expected)
        };
        assert!(fits, "{arguments} with {headers:?}: {found:?}");
    }
}

#[test]
fn an_integer_is_repeated_in_the_digits_it_was_written_in() {
    for (written, repeated) in [
        ("42", "42"),
        ("42.0", "42"),
        ("4.2e1", "42"),
        ("9007199254740993", "9007199254740993"),
        (
            "-123456789012345678901234567890",
            "-123456789012345678901234567890",
        ),
        (
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        ),
        ("1e22", "10000000000000000000000"),
    ] {
        let text = format!(r#"{{"a":{{"rows":7}},"limits":{{"more":[1],"rows":{written}}}}}"#);
        let arguments = RawJson::from_bytes(text.into()).unwrap();
        let headers = sample().headers_of(&arguments);
        let expected = [("mcp-param-rows".to_owned(), repeated.to_owned())];
        assert_eq!(headers, expected, "{written}");
        let params = format!(r#"{{"name":"t","arguments":{}}}"#, arguments.as_str());
        let params = RawJson::from_bytes(params.into()).unwrap();
        let compared = sample().compare(&params, |name| match name {
            "mcp-param-rows" => vec![repeated.as_bytes()],
            _ => Vec::new(),
        });
        assert_eq!(compared, Ok(()), "{written}");
    }
}

#[test]
fn what_is_no_call_is_left_to_the_method() {
    for params in ["{}", "[]", r#"{"arguments":[1]}"#, r#"{"arguments":null}"#] {
        let params = RawJson::from_bytes(params.into()).unwrap();
        assert_eq!(sample().compare(&params, |_| Vec::new()), Ok(()));
    }
}

#[test]
fn annotations_that_break_a_rule_are_named() {
    let property = |property: Value| json!({ "properties": { "a": property } });
    let annotated = json!({ "type": "string", "x-mcp-header": "A" });
    #[rustfmt::skip]
    let rows = [
        (property(json!({ "type": "string", "x-mcp-header": "" })), "names no header"),
        (property(json!({ "type": "string", "x-mcp-header": "a b" })), "names no header"),
        (property(json!({ "type": "string", "x-mcp-header": "a\r\nb" })), "names no header"),
        (property(json!({ "type": "string", "x-mcp-header": "ä" })), "names no header"),
        (property(json!({ "type": "string", "x-mcp-header": 7 })), "names no header"),
        (property(json!({ "type": "number", "x-mcp-header": "A" })), "no string, integer"),
        (property(json!({ "type": "object", "x-mcp-header": "A" })), "no string, integer"),
        (property(json!({ "type": ["string", "integer"], "x-mcp-header": "A" })), "no string, integer"),
        (property(json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }], "x-mcp-header": "A" })), "no string, integer"),
        (property(json!({ "x-mcp-header": "A" })), "no string, integer"),
        (json!({ "properties": { "a": annotated, "b": { "type": "string", "x-mcp-header": "a" } } }), "another property"),
        (json!({ "type": "string", "x-mcp-header": "A" }), "no property"),
        (property(json!({ "type": "array", "items": annotated })), "`/properties/a/items`"),
        (json!({ "anyOf": [{ "properties": { "a": annotated } }] }), "`/anyOf/0/properties/a`"),
        (json!({ "allOf": [property(annotated.clone())] }), "no property"),
        (json!({ "if": property(annotated.clone()) }), "no property"),
        (json!({ "not": property(annotated.clone()) }), "no property"),
        (json!({ "additionalProperties": annotated }), "no property"),
        (json!({ "$defs": { "a/b": annotated } }), "`/$defs/a~1b`"),
    ];
    for (schema, named) in rows {
        let problem = read(schema.clone()).expect_err(named).to_string();
        assert!(problem.contains(named), "{schema}: {problem}");
    }
}

#[test]
fn what_only_looks_like_an_annotation_is_none() {
    let schema = json!({
        "properties": {
            "x-mcp-header": { "type": "string" },
            "a": { "type": "object", "default": { "x-mcp-header": "" } },
            "b": { "enum": [{ "x-mcp-header": 7 }] }
        }
    });
    assert!(read(schema).unwrap().is_empty());
    assert!(read(json!(true)).unwrap().is_empty());
}

proptest! {
    /// Every text can be repeated, and no other text passes for it.
    #[test]
    fn an_encoded_text_is_that_text(text in any::<String>(), other in any::<String>()) {
        let encoded = format!("=?base64?{}?=", STANDARD.encode(&text));
        let arguments = json!({ "region": text });
        prop_assert_eq!(compare(&arguments, &[("mcp-param-region", &encoded)]), "");
        if other != text {
            let encoded = format!("=?base64?{}?=", STANDARD.encode(&other));
            prop_assert_ne!(compare(&arguments, &[("mcp-param-region", &encoded)]), "");
        }
    }
}
