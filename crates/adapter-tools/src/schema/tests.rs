use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::time::{Duration, Instant};

/// `count` members of the same value.
fn many(count: usize, name: &str, value: Value) -> Value {
    (0..count)
        .map(|number| (format!("{name}{number}"), value.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// A schema in which every one of `levels` definitions applies the next one twice.
fn doubling(keyword: &str, levels: usize) -> Value {
    let reference = |level: usize| json!({"$ref": format!("#/$defs/{level}")});
    let mut definitions: serde_json::Map<_, _> = (0..levels)
        .map(|level| {
            let twice = json!([reference(level + 1), reference(level + 1)]);
            (level.to_string(), json!({keyword: twice}))
        })
        .collect();
    definitions.insert(levels.to_string(), json!({"type": "string"}));
    json!({"type": "object", "properties": {"a": reference(0)}, "$defs": definitions})
}

/// A schema of references that lead to references.
fn chain(length: usize) -> Value {
    let mut definitions: serde_json::Map<_, _> = (0..length)
        .map(|at| {
            (
                at.to_string(),
                json!({"$ref": format!("#/$defs/{}", at + 1)}),
            )
        })
        .collect();
    definitions.insert(length.to_string(), json!({"type": "object"}));
    json!({"type": "object", "$ref": "#/$defs/0", "$defs": definitions})
}

/// Description of what is wrong with `value`, and the time it took to find out.
fn refusal(schema: &CheckedSchema, value: &Value) -> (Option<String>, Duration) {
    let bytes = value.to_string().len();
    let began = Instant::now();
    let refused = schema.check(value, bytes, 20).err();
    let first = refused.map(|(violations, _)| violations[0].to_string());
    (first, began.elapsed())
}

/// `inside`, that deep in members named `name`.
fn deep(levels: usize, name: &str, inside: Value) -> Value {
    (0..levels).fold(inside, |value, _| json!({name: value}))
}

#[test]
fn a_schema_that_cannot_be_used_is_named() {
    let mut deep = json!({});
    for _ in 0..MAX_SCHEMA_DEPTH {
        deep = json!({"not": deep});
    }
    let rows = [
        (json!({}), "root"),
        (json!({"type": ["object", "null"]}), "root"),
        (json!({"type": "object", "not": deep}), "deeper"),
        (
            json!({"type": "object", "title": "x".repeat(MAX_SCHEMA_BYTES)}),
            "bytes",
        ),
        (
            json!({"type": "object", "$schema": "http://json-schema.org/draft-04/schema#"}),
            "draft-04",
        ),
        (json!({"type": "object", "$schema": 7}), "dialect `7`"),
        (
            json!({"type": "object", "properties": {"a": {"type": "strin"}}}),
            "/properties/a/type",
        ),
        (
            json!({"type": "object", "$ref": "#/$defs/nowhere"}),
            "/$defs/nowhere",
        ),
        (
            json!({"type": "object", "$ref": "https://example.com/a"}),
            "example.com",
        ),
        (
            json!({"type": "object", "$ref": "file:///etc/passwd"}),
            "passwd",
        ),
        (
            json!({"type": "object", "patternProperties": {"(": {}}}),
            "(",
        ),
        (
            json!({"type": "object", "properties": {"a": {"minLength": -1}}}),
            "/properties/a/minLength",
        ),
        (
            json!({"type": "object", "properties": {"a": {"items": [{}]}}}),
            "/properties/a/items",
        ),
        (
            json!({"type": "object", "$dynamicRef": "https://example.com/a#b"}),
            "leads out of the schema",
        ),
        (
            json!({"type": "object", "$id": "https://example.com/a", "$ref": "b"}),
            "the reference `b` at `/$ref` leads out",
        ),
        (
            json!({"type": "object", "$defs": {"a": {"$id": "https://example.com/a"}}}),
            "/$defs/a/$id",
        ),
        (
            json!({"type": "object", "$ref": "#nowhere"}),
            "`#nowhere` leads nowhere",
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "a".repeat(MAX_PATTERN_LENGTH + 1)}}),
            "patterns",
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "(((a{1,99}){1,99}){1,99}){1,99}"}}),
            "/propertyNames/pattern",
        ),
        (
            json!({"type": "object", "patternProperties": many(MAX_SCHEMA_PATTERNS + 1, "^a", json!({}))}),
            "patterns",
        ),
        (doubling("allOf", 20), "too long"),
        (doubling("anyOf", 20), "too long"),
        (doubling("oneOf", 20), "too long"),
        (chain(5000), "too long"),
        (
            json!({"type": "object", "properties": {"a": {"enum": vec![json!([1]); 20_000]}}}),
            "too long",
        ),
    ];
    for (schema, named) in rows {
        let error = compile(&schema).expect_err(named).to_string();
        assert!(error.contains(named), "{named}: {error}");
    }
}

#[test]
fn references_that_lead_back_in_the_same_value_are_refused() {
    let rows = [
        (json!({"type": "object", "$ref": "#"}), ""),
        (
            json!({"type": "object", "allOf": [{"$ref": "#/$defs/a"}],
                   "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]},
                             "b": {"not": {"$ref": "#/$defs/a"}}}}),
            "/$defs/a",
        ),
        // Twice around, which a validator unrolled until memory ended.
        (
            json!({"type": "object", "$ref": "#/$defs/0", "$defs": {
                "0": {"allOf": [{"$ref": "#/$defs/0"}, {"$ref": "#/$defs/1"}]},
                "1": {"dependentSchemas": {"b": {"$ref": "#/$defs/5"}}},
                "5": {"additionalProperties": {"$ref": "#/$defs/5"}, "allOf": [{"$ref": "#"}]}}}),
            "",
        ),
    ];
    for (schema, pointer) in rows {
        let refused = compile(&schema).unwrap_err();
        let SchemaError::Circular { pointer: told } = &refused else {
            panic!("{refused}");
        };
        assert!(told.starts_with(pointer), "{told}");
    }
    compile(&json!({"type": "object", "properties": {"a": {"$ref": "#"}}})).unwrap();
}

#[test]
fn the_only_dialect_may_be_named() {
    for dialect in [DIALECT.to_owned(), format!("{DIALECT}#")] {
        compile(&json!({"type": "object", "$schema": dialect})).unwrap();
    }
}

#[test]
fn draft_7_is_understood_as_it_is_meant() {
    let draft_7 = |properties: Value| {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": properties,
            "definitions": {"short": {"type": "string", "maxLength": 2}},
            "required": ["a"],
            "additionalProperties": false,
        });
        compile(&schema).unwrap()
    };
    let pair =
        json!({"a": {"items": [{"type": "string"}, {"type": "number"}], "additionalItems": false}});
    let tied = json!({
        "a": {"dependencies": {"x": ["y"], "z": {"required": ["w"]}}},
        "items": {"type": "string"},
    });
    // What stands beside a reference does not count.
    let short = json!({"a": {"$ref": "#/definitions/short", "pattern": "^x"}});
    let rows = [
        (&pair, json!({"a": ["x", 1]}), true),
        (&pair, json!({"a": [1, "x"]}), false),
        (&pair, json!({"a": ["x", 1, 2]}), false),
        (&tied, json!({"a": {"x": 1, "y": 1}, "items": "x"}), true),
        (&tied, json!({"a": {"x": 1}}), false),
        (&tied, json!({"a": {"z": 1}}), false),
        (&tied, json!({"a": {}, "items": 1}), false),
        (&short, json!({"a": "ab"}), true),
        (&short, json!({"a": "abc"}), false),
        (&short, json!({}), false),
        (&short, json!({"a": "ab", "b": 1}), false),
    ];
    for (properties, value, fits) in rows {
        let schema = draft_7(properties.clone());
        assert_eq!(schema.check(&value, 100, 1).is_ok(), fits, "{value}");
        let raw = value.to_string();
        assert!(fits || !schema.plainly_fits(raw.as_bytes()), "{value}");
    }
    let beyond = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"items": [{"type": "string"}]}, "b": {"$ref": "#/properties/a/items/0"}},
    });
    compile(&beyond).unwrap_err();
}

/// Far more than a check may take here, unoptimised and on a busy machine, and far less than one
/// without a bound takes.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn patterns_take_no_time_to_speak_of() {
    let long = format!("{}!", "a".repeat(200_000));
    let short = &long[long.len() - 51..];
    for pattern in [
        "^(a+)+$",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        r"^(?=a)(a+)+$",
        r"^(a+)+\1$",
        r"(?<!x)(a|aa)+$",
    ] {
        let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"pattern": pattern}}}});
        let schema = compile(&schema).unwrap();
        for texts in [vec![short; 1], vec![short; 20_000], vec![&long; 20]] {
            let (refused, took) = refusal(&schema, &json!({"a": texts}));
            assert!(
                refused.is_some() && took < SOON,
                "{pattern}: {took:?} {refused:?}"
            );
        }
        let (refused, _) = refusal(&schema, &json!({"a": ["aaaa", "aaaa"]}));
        assert_eq!(refused.is_some(), pattern.contains('A'), "{refused:?}");
    }
}

#[test]
fn a_pattern_that_looks_ahead_is_understood() {
    let schema = json!({"type": "object", "properties": {"a": {"pattern": "^(?!admin$)[a-z]+$"}}});
    let schema = compile(&schema).unwrap();
    assert_eq!(refusal(&schema, &json!({"a": "anna"})).0, None);
    let told = refusal(&schema, &json!({"a": "admin"})).0.unwrap();
    assert!(told.starts_with("/a: expected a match"), "{told}");
}

#[test]
fn values_deep_in_alternatives_that_look_alike_are_refused_in_time() {
    let kinds = json!([{"$ref": "#/$defs/add"}, {"$ref": "#/$defs/times"}]);
    let kind = |name: &str| {
        json!({"type": "object", "additionalProperties": false,
               "properties": {"op": {"const": name}, "left": {"anyOf": kinds}, "right": {"anyOf": kinds}}})
    };
    let schema = json!({"type": "object", "properties": {"e": {"anyOf": kinds}},
                        "$defs": {"add": kind("add"), "times": kind("times")}});
    let schema = compile(&schema).unwrap();
    let expression = |levels| json!({"e": deep(levels, "left", json!({"op": "times"}))});
    assert_eq!(refusal(&schema, &expression(8)).0, None);
    // Each level doubles it: the last would take longer than the machine will last.
    for levels in [18, 30, 62] {
        let (refused, took) = refusal(&schema, &expression(levels));
        let told = refused.unwrap();
        assert!(
            told.contains("too long") && took < SOON,
            "{levels}: {took:?} {told}"
        );
    }
}

#[test]
fn deep_values_of_a_recursive_schema_are_checked_to_the_bottom() {
    let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "end": {"type": "integer"}}});
    let schema = compile(&schema).unwrap();
    assert_eq!(
        refusal(&schema, &deep(62, "next", json!({"end": 1}))).0,
        None
    );
    let told = refusal(&schema, &deep(62, "next", json!({"end": "x"})))
        .0
        .unwrap();
    assert!(
        told.ends_with(r#"/end: expected integer, found string "x""#),
        "{told}"
    );
}

#[test]
fn recursion_through_many_references_is_refused_before_the_stack_ends() {
    let mut schema = chain(60);
    schema["$defs"]["60"] = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/0"}}});
    let schema = compile(&schema).unwrap();
    assert_eq!(refusal(&schema, &deep(4, "a", json!({}))).0, None);
    let told = refusal(&schema, &deep(62, "a", json!({}))).0.unwrap();
    assert!(told.contains("too long"), "{told}");
}

#[test]
fn large_schemas_and_large_values_are_checked_in_time() {
    let codes: Vec<_> = (0..10_000).map(|code| format!("code-{code}")).collect();
    let rows = [
        (
            json!({"type": "object", "properties": many(5000, "p", json!({"type": "integer"}))}),
            many(5000, "p", json!(1)),
            false,
        ),
        (
            json!({"type": "object", "properties": {"a": {"items": {"enum": codes}}}}),
            json!({"a": vec!["code-9999"; 1000]}),
            false,
        ),
        (
            json!({"type": "object", "properties": {"a": {"uniqueItems": true}}}),
            json!({"a": (0..100_000).map(|at| json!([at])).collect::<Vec<_>>()}),
            false,
        ),
        // As many errors as there are items: they are not all collected.
        (
            json!({"type": "object", "properties": {"a": {"items": {"type": "string"}}}}),
            json!({"a": vec![1; 1_000_000]}),
            true,
        ),
        (
            json!({"type": "object", "unevaluatedProperties": false, "properties": {"a": {"unevaluatedProperties": false}}}),
            json!({"a": many(100_000, "m", json!(1))}),
            true,
        ),
    ];
    for (number, (schema, value, is_refused)) in rows.into_iter().enumerate() {
        let schema = compile(&schema).unwrap();
        let (refused, took) = refusal(&schema, &value);
        assert_eq!(refused.is_some(), is_refused, "{number}: {refused:?}");
        assert!(took < SOON, "{number}: {took:?}");
    }
}

/// Each level takes three times as long as the one inside it.
#[test]
fn what_looks_at_what_is_left_over_again_and_again_is_refused() {
    let nested = |levels: usize| {
        let inside = json!({"properties": {"a": true}});
        let mut schema = (0..levels).fold(
            inside,
            |inside, _| json!({"allOf": [inside], "unevaluatedProperties": {"type": "integer"}}),
        );
        schema["type"] = json!("object");
        compile(&schema)
    };
    let schema = nested(5).unwrap();
    assert_eq!(refusal(&schema, &json!({"a": 1, "b": 2})).0, None);
    assert_eq!(nested(9).unwrap_err(), SchemaError::TooIntricate);
}

#[test]
fn references_by_anchor_and_by_pointer_lead_where_they_say() {
    let schema = json!({
        "$id": "https://example.com/order", "type": "object",
        "properties": {
            "a": {"$ref": "#whole"}, "b": {"$ref": "#/$defs/a~1b%20c"},
            "c": {"$ref": "https://example.com/order#/$defs/n"}, "d": {"$dynamicRef": "#whole"},
        },
        "$defs": {"n": {"$anchor": "whole", "type": "integer"}, "a/b c": {"type": "string"}},
    });
    let schema = compile(&schema).unwrap();
    assert_eq!(
        refusal(&schema, &json!({"a": 1, "b": "x", "c": 2, "d": 3})).0,
        None
    );
    for (member, wrong) in [
        ("a", json!("x")),
        ("b", json!(1)),
        ("c", json!("x")),
        ("d", json!("x")),
    ] {
        let told = refusal(&schema, &json!({member: wrong})).0.unwrap();
        assert!(told.starts_with(&format!("/{member}: expected")), "{told}");
    }
}

/// Subschemas that refer to each other, and to themselves, in all ways.
fn any_subschema() -> impl Strategy<Value = Value> {
    let reference = (0..6_usize).prop_map(|to| json!({"$ref": format!("#/$defs/{to}")}));
    let leaf = prop_oneof![
        4 => reference,
        1 => Just(json!({"type": "integer"})),
        1 => Just(json!({"type": ["object", "array"]})),
        1 => Just(json!({"$ref": "#"})),
        1 => Just(json!(false)),
        1 => Just(json!({"pattern": "^(?=a)(a+)+$"})),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let keyword = |names: &[&'static str]| prop::sample::select(names.to_vec());
        let lists = keyword(&["allOf", "anyOf", "oneOf", "prefixItems"]);
        let maps = keyword(&["properties", "patternProperties", "dependentSchemas"]);
        let singles = keyword(&[
            "not",
            "if",
            "then",
            "else",
            "items",
            "contains",
            "additionalProperties",
            "propertyNames",
            "unevaluatedProperties",
            "unevaluatedItems",
        ]);
        prop_oneof![
            (lists, prop::collection::vec(inner.clone(), 1..4))
                .prop_map(|(name, all)| json!({name: all})),
            (
                maps,
                prop::collection::btree_map("[ab]", inner.clone(), 1..3)
            )
                .prop_map(|(name, all)| json!({name: all})),
            (singles, inner.clone(), inner)
                .prop_map(|(name, one, other)| json!({name: one, "allOf": [other]})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any references between subschemas: either the schema or the value is refused, or the
    /// check is over soon. On a stack as small as those of the server's threads.
    #[test]
    fn no_schema_and_no_value_keep_a_thread(
        definitions in prop::collection::vec(any_subschema(), 6),
        levels in 0..40_usize,
        in_array in any::<bool>(),
    ) {
        let definitions: serde_json::Map<_, _> =
            definitions.into_iter().enumerate().map(|(at, one)| (at.to_string(), one)).collect();
        let schema = json!({"type": "object", "$ref": "#/$defs/0", "$defs": definitions});
        let mut value = json!({"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "b": 1});
        for _ in 0..levels {
            value = if in_array { json!({"a": [value, 1], "b": [2]}) } else { json!({"a": value, "b": {"a": 1}}) };
            if in_array && value.to_string().len() > 2000 {
                break;
            }
        }
        let began = Instant::now();
        if let Ok(schema) = compile(&schema) {
            let _ = refusal(&schema, &value);
        }
        let took = began.elapsed();
        prop_assert!(took < SOON, "{took:?}: {value}");
    }
}
