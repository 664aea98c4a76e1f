use super::*;
use proptest::prelude::*;
use serde_json::Value as Json;

fn form(json: &str) -> String {
    canonical(json).unwrap()
}

#[test]
fn the_example_of_rfc_8785_is_as_it_says() {
    // Section 3.2.2, and the result in 3.2.3 and 3.2.4. Its first number is 333333333.33333329 there, which is not how
    // its double is printed, and keeps its digits here.
    let input = r#"{
        "numbers": [333333333.33333331, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,"#,
        r#"1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
    );
    assert_eq!(form(input), expected);
}

#[test]
fn control_characters_are_written_as_rfc_8785_says() {
    // Section 3.2.2.2.
    let input = r#""\u0008\u0009\u000a\u000c\u000d\u0000\u001f\u0022\u005c\u007f""#;
    assert_eq!(
        form(input),
        "\"\\b\\t\\n\\f\\r\\u0000\\u001f\\\"\\\\\u{7f}\""
    );
}

#[test]
fn members_are_sorted_as_rfc_8785_says() {
    // Section 3.2.3.
    let input = r#"{
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let order = [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ];
    for input in [input.to_owned(), unescaped(input)] {
        let form = form(&input);
        let places: Vec<_> = order.iter().map(|it| form.find(it).unwrap()).collect();
        assert!(places.is_sorted(), "{form}");
    }
}

/// The same with characters in the place of escapes, where that may be.
fn unescaped(json: &str) -> String {
    json.replace(r"\u20ac", "\u{20ac}")
        .replace(r"\ufb33", "\u{fb33}")
        .replace(r"\ud83d\ude00", "\u{1f600}")
        .replace(r"\u0080", "\u{80}")
        .replace(r"\u00f6", "\u{f6}")
}

#[test]
fn doubles_are_written_as_rfc_8785_says() {
    // Appendix B, the rows that are numbers of JSON.
    for (bits, expected) in [
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7fefffffffffffff, "1.7976931348623157e+308"),
        (0xffefffffffffffff, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xc340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44b52d02c7e14af5, "9.999999999999997e+22"),
        (0x44b52d02c7e14af6, "1e+23"),
        (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
        (0x444b1ae4d6e2ef4e, "999999999999999700000"),
        (0x444b1ae4d6e2ef4f, "999999999999999900000"),
        (0x444b1ae4d6e2ef50, "1e+21"),
        (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
        (0x3eb0c6f7a0b5ed8d, "0.000001"),
        (0x41b3de4355555553, "333333333.3333332"),
        (0x41b3de4355555554, "333333333.33333325"),
        (0x41b3de4355555555, "333333333.3333333"),
        (0x41b3de4355555556, "333333333.3333334"),
        (0x41b3de4355555557, "333333333.33333343"),
        (0xbecbf647612f3696, "-0.0000033333333333333333"),
        (0x43143ff3c1cb0959, "1424953923781206.2"),
    ] {
        let mut written = String::new();
        number::write_double(f64::from_bits(bits), &mut written);
        // Where it is written as an integer is, we add what sets it apart from one.
        assert_eq!(written.strip_suffix(".0").unwrap_or(&written), expected);
        assert_eq!(written.ends_with(".0"), !expected.contains(['.', 'e']));
        // And as an integer it is the same.
        if !expected.contains(['.', 'e']) {
            assert_eq!(form(expected), expected);
        }
    }
}

#[test]
fn what_is_the_same_has_the_same_digest() {
    for (a, b) in [
        ("{}", " {\n} "),
        (r#"{"a":1,"b":2}"#, r#"{ "b" : 2 , "a" : 1 }"#),
        (r#"{"a":{"c":[],"b":{}}}"#, r#"{"\u0061":{"b":{},"c":[]}}"#),
        (r#""é/""#, r#""\u00E9\/""#),
        ("1.50", "15e-1"),
        ("1e2", "100.0"),
        ("0.1", "0.10000000000000001"),
        ("333333333.33333331", "333333333.3333333"),
        ("100000000000000000.49", "10000000000000000049.0e-2"),
        ("0.0", "0e5"),
        ("1e-400", "0.1e-399"),
        (r#""\ud83d\uDE00""#, "\"😀\""),
    ] {
        assert_eq!(canonical_digest(a), canonical_digest(b), "{a} {b}");
        assert!(canonical_digest(a).is_ok(), "{a}");
    }
}

#[test]
fn what_somebody_may_see_differently_has_another_digest() {
    let texts = [
        "9007199254740992",
        "9007199254740993",
        "9007199254740992.0",
        "9007199254740993.0",
        "9007199254740994",
        "9007199254740994.0",
        "90071992547409930.5",
        "90071992547409937.5",
        "100000000000000000.49",
        "100000000000000000.01",
        "0.1",
        "0.1000000000000000055511151231257827",
        "0.12345678901234566",
        "0.12345678901234567",
        "4503599627370497.5",
        "4503599627370497.4",
        "333333333.33333329",
        "333333333.3333333",
        "1e-400",
        "2e-400",
        "100000000000000000000000",
        "1e23",
        "99999999999999991611392",
        "1",
        "1.0",
        "-1",
        "0",
        "-0",
        "0.0",
        "-0.0",
        "1e400",
        "1e500",
        "-1e400",
        "10e399",
        r#""1""#,
        "true",
        r#""true""#,
        "null",
        r#""""#,
        "[]",
        "{}",
        "[[]]",
        "[null]",
        r#"{"a":1}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":2,"a":1}"#,
        r#"{"a":2}"#,
        r#"{"a":1,"a":1}"#,
        r#"{"a":null}"#,
        r#"["a",1]"#,
        r#"["a:1"]"#,
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ufffd""#,
        r#""\\ud800""#,
        r#""\ud800\ud800""#,
        r#""\udc00\ud800""#,
        r#""\ud800\udc00""#,
        r#""é""#,
        r#""e\u0301""#,
        r#""a""#,
        r#""a\u0000""#,
        r#"[1,2]"#,
        r#"[2,1]"#,
        r#"[12]"#,
        "not JSON",
        "{",
        "",
        "\u{0}",
    ];
    for (place, a) in texts.iter().enumerate() {
        for b in &texts[..place] {
            assert_ne!(digest(a), digest(b), "{a} {b}");
        }
    }
}

#[test]
fn it_is_the_digest_of_the_form() {
    let long = format!(
        r#"{{"b":["{}","{}"],"a":[{}1]}}"#,
        "x".repeat(10_000),
        "é".repeat(5),
        "1,".repeat(9_000)
    );
    for json in [r#"{"b":1,"a":"x"}"#, &long] {
        let expected: [u8; 32] = Sha256::digest(form(json)).into();
        assert_eq!(canonical_digest(json), Ok(expected));
    }
    assert_eq!(canonical_digest("{"), Err(Malformed));
}

#[test]
fn depth_and_width_are_no_matter() {
    let deep = 200_000;
    let nested = format!("{}1{}", r#"{"b":1,"a":"#.repeat(deep), "}".repeat(deep));
    let sorted = format!("{}1{}", r#"{"a":"#.repeat(deep), r#","b":1}"#.repeat(deep));
    assert_eq!(form(&nested), sorted);
    let wide: Vec<_> = (0..200_000)
        .rev()
        .map(|it| format!(r#""{it:06}":0"#))
        .collect();
    assert!(form(&format!("{{{}}}", wide.join(","))).starts_with(r#"{"000000":0,"000001""#));
}

/// Values without what RFC 8785 says nothing about.
fn values() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (-9_007_199_254_740_992_i64..=9_007_199_254_740_992).prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Json::from),
            prop::collection::vec((any::<String>(), inner), 0..8)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn the_form_says_the_same_and_is_its_own_form(value in values()) {
        let form = form(&value.to_string());
        prop_assert_eq!(serde_json::from_str::<Json>(&form).unwrap(), value);
        prop_assert_eq!(canonical(&form).unwrap(), form);
    }

    #[test]
    fn different_values_have_different_digests(a in values(), b in values()) {
        let (x, y) = (canonical_digest(&a.to_string()), canonical_digest(&b.to_string()));
        prop_assert_eq!(x == y, a == b);
    }

    #[test]
    fn a_double_is_read_back_from_its_form(bits: u64) {
        let double = f64::from_bits(bits);
        if double.is_finite() {
            let mut written = String::new();
            number::write_double(double, &mut written);
            prop_assert_eq!(written.parse::<f64>().unwrap().to_bits(), bits);
        }
    }

    #[test]
    fn names_are_in_the_order_of_their_utf16(a: String, b: String) {
        let expected = a.encode_utf16().cmp(b.encode_utf16());
        prop_assert_eq!(compare_as_utf16(a.as_bytes(), b.as_bytes()), expected);
    }
}
