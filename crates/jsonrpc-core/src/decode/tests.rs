use super::*;
use crate::{encode, encode_batch};
use bytes::BytesMut;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    max_frame: 1024 * 1024,
    max_batch: 3,
    max_depth: 100,
};

fn frame(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn one(text: &str) -> Result<Message, Invalid> {
    match decode(&frame(text), LIMITS).unwrap() {
        Payload::Single(message) => message,
        Payload::Batch(_) => panic!("a batch"),
    }
}

fn encoded(message: &Message) -> String {
    let mut out = BytesMut::new();
    encode(message, &mut out);
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn params_share_the_frame() {
    let frame = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1.0}}"#);
    let Payload::Single(Ok(Message::Request(request))) = decode(&frame, LIMITS).unwrap() else {
        panic!()
    };
    assert!(
        frame
            .as_ptr_range()
            .contains(&request.params.as_bytes().as_ptr())
    );
    assert_eq!(request.params.as_bytes(), br#"{"a":1.0}"#);
}

#[test]
fn null_result_is_a_result_and_null_params_are_none() {
    let Message::Response(response) = one(r#"{"jsonrpc":"2.0","id":1,"result":null}"#).unwrap()
    else {
        panic!()
    };
    assert_eq!(response.outcome.unwrap().as_bytes(), b"null");
    let Message::Request(request) =
        one(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#).unwrap()
    else {
        panic!()
    };
    assert_eq!(request.params, RawJson::EMPTY_OBJECT);
}

#[test]
fn what_is_no_message_keeps_its_id_and_says_what_and_where() {
    #[rustfmt::skip]
    let rows = [
        (r#"{"jsonrpc":"1.0","id":"x","method":"m"}"#, Some(Id::from("x")), "`jsonrpc` must be \"2.0\" at line 1, column 1"),
        (r#"{"id":3,"method":"m"}"#, Some(Id::Number(3)), "`jsonrpc` is missing"),
        (r#"{"jsonrpc":"2.0","id":3}"#, Some(Id::Number(3)), "`method` is missing"),
        (r#"{"jsonrpc":"2.0","id":4,"method":7}"#, Some(Id::Number(4)), "expected a string at line 1, column 34"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"m","params":7}"#, Some(Id::Number(5)), "`params` must be an object or an array at line 1, column 47"),
        (r#"{"jsonrpc":"2.0","id":6,"method":"m","result":7}"#, Some(Id::Number(6)), "exactly one of"),
        (r#"{"jsonrpc":"2.0","result":7}"#, None, "exactly one of"),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","method":"n"}"#, Some(Id::Number(7)), "duplicate field `method`"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, None, "`id` must be a string or an integer at line 1, column 23"),
        ("{\"jsonrpc\":\"2.0\",\n \"id\":1.5,\"method\":\"m\"}", None, "`id` must be a string or an integer at line 2, column 7"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, None, "`id` must be"),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#, None, "`id` must be"),
        (r#"{"jsonrpc":"2.0","id":1e3,"method":"m"}"#, None, "`id` must be"),
        (r#"{"jsonrpc":"2.0","id":7.0,"method":"m"}"#, None, "`id` must be"),
        (r#"{"jsonrpc":"2.0","id":7.5,"result":{}}"#, None, "`id` must be"),
        (r#"{"jsonrpc":"2.0","id":1e30,"result":{}}"#, None, "`id` must be"),
        (r#"{"jsonrpc":"2.0","id":true,"result":{}}"#, None, "`id` must be"),
        ("7", None, "a message is a JSON object"),
        ("\"x\"", None, "a message is a JSON object"),
    ];
    for (text, id, why) in rows {
        let invalid = one(text).unwrap_err();
        assert_eq!(invalid.error.code, ErrorCode::INVALID_REQUEST, "{text}");
        assert_eq!(invalid.id, id, "{text}");
        assert!(
            invalid.error.message.contains(why),
            "{text}: {}",
            invalid.error.message
        );
    }
}

#[test]
fn an_answer_may_write_the_number_of_its_request_in_another_form() {
    for (written, number) in [
        ("7", 7),
        ("7.0", 7),
        ("7.000", 7),
        ("0.7e1", 7),
        ("1E3", 1_000),
        ("-7.0", -7),
        ("-0.0", 0),
        ("9007199254740992.0", 9_007_199_254_740_992),
    ] {
        for outcome in [r#""result":{}"#, r#""error":{"code":-1,"message":"no"}"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{written},{outcome}}}"#);
            let Ok(Message::Response(response)) = one(&text) else {
                panic!("{text}")
            };
            assert_eq!(response.id, Some(Id::Number(number)), "{text}");
        }
    }
}

#[test]
fn what_is_no_json_says_where() {
    #[rustfmt::skip]
    let rows: [(&[u8], &str); 6] = [
        (b"{nonsense", "not JSON: key must be a string at line 1, column 2"),
        (br#"{"jsonrpc":"2.0","id":1,"#, "not JSON: EOF while parsing an object at line 1, column 24"),
        (b"", "not JSON: EOF while parsing a value at line 1, column 1"),
        (b"[1,", "not JSON: EOF while parsing a value at line 1, column 3"),
        (b"{\"method\":7,\n\"id\":}", "not JSON: expected value at line 2, column 6"),
        (b"{\"a\":\"\xff\"}", "not UTF-8: invalid byte at line 1, column 7"),
    ];
    for (bytes, message) in rows {
        let error = decode(&Bytes::from_static(bytes), LIMITS).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.to_error_object().code, ErrorCode::PARSE_ERROR);
    }
}

#[test]
fn positions_in_a_batch_are_positions_in_the_frame() {
    let text = "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"},\n {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":7}]";
    let Payload::Batch(messages) = decode(&frame(text), LIMITS).unwrap() else {
        panic!()
    };
    assert!(messages[0].is_ok());
    let message = &messages[1].as_ref().unwrap_err().error.message;
    assert!(message.contains("line 2, column 35"), "{message}");
}

#[test]
fn bounds_hold() {
    let limits = Limits {
        max_frame: 10,
        ..LIMITS
    };
    assert!(matches!(
        decode(&frame("[1,2,3,4,5]"), limits),
        Err(DecodeError::TooLong {
            max: 10,
            actual: 11
        })
    ));
    assert!(matches!(
        decode(&frame("[1,2,3,4]"), LIMITS),
        Err(DecodeError::BatchTooLong { max: 3, actual: 4 })
    ));
    assert_eq!(
        decode(&frame(" [ ] "), LIMITS).unwrap_err(),
        DecodeError::EmptyBatch
    );
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}1{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let error = decode(&frame(&deep), LIMITS).unwrap_err();
    assert!(matches!(error, DecodeError::TooDeep { max: 100, .. }));
    assert_eq!(error.to_error_object().code, ErrorCode::INVALID_REQUEST);
    let fits = format!("{}1{}", "[".repeat(99), "]".repeat(99));
    let fits = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{fits}}}"#);
    let Message::Request(request) = one(&fits).unwrap() else {
        panic!()
    };
    request.params.parse::<serde_json::Value>().unwrap();
}

#[test]
fn a_plain_request_has_any_number_of_brackets_and_no_level_too_many() {
    let request = |arguments: &str| {
        let params = format!(r#"{{"arguments":{arguments}}}"#);
        frame(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#
        ))
    };
    let nested = |levels| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    // The message and its parameters are levels, too.
    assert!(decode(&request(&nested(98)), LIMITS).is_ok());
    let error = decode(&request(&nested(99)), LIMITS).unwrap_err();
    assert!(matches!(error, DecodeError::TooDeep { max: 100, .. }));
    let many = format!("[{}0]", "[],".repeat(300));
    assert!(decode(&request(&many), LIMITS).is_ok());
}

#[test]
fn ids_are_echoed_exactly() {
    for id in [
        "0",
        "-0",
        "-7",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "184467440737095516160000",
        r#""""#,
        r#""92""#,
        r#""\"\\\n""#,
        r#""é""#,
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        assert_eq!(encoded(&one(&text).unwrap()), text);
    }
    assert_ne!(Id::from_json("1"), Id::from_json("\"1\""));
}

#[test]
fn messages_round_trip_to_the_byte() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1,2]}"#,
        r#"{"jsonrpc":"2.0","method":"n","params":{"a": 1.50 }}"#,
        r#"{"jsonrpc":"2.0","method":"n"}"#,
        r#"{"jsonrpc":"2.0","id":"a","result":{"x":null}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no","data":[1]}}"#,
    ] {
        assert_eq!(encoded(&one(text).unwrap()), text);
    }
}

#[test]
fn a_long_result_is_spliced_and_not_copied() {
    let long = RawJson::from_value(&"x".repeat(100_000)).unwrap();
    let response = Response {
        id: Some(Id::Number(1)),
        outcome: Ok(long.clone()),
    };
    let pieces: Vec<_> = crate::Frame::response(&response).pieces().collect();
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces[1].as_ptr(), long.as_bytes().as_ptr());
    assert_eq!(
        pieces.concat(),
        encoded(&Message::Response(response)).into_bytes()
    );
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![
        any::<i64>().prop_map(Id::Number),
        "[1-9][0-9]{20,40}".prop_map(|digits| Id::BigNumber(digits.into())),
        any::<String>().prop_map(|text| Id::String(text.into())),
    ]
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::hash_map(any::<String>(), inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn params() -> impl Strategy<Value = RawJson> {
    prop::collection::hash_map(any::<String>(), value(), 0..4)
        .prop_map(|map| RawJson::from_value(&map).unwrap())
}

fn any_message() -> impl Strategy<Value = Message> {
    let error = (any::<i32>(), any::<String>(), prop::option::of(value())).prop_map(
        |(code, message, data)| ErrorObject {
            code: ErrorCode(code),
            message: message.into(),
            data: data.map(|data| RawJson::from_value(&data).unwrap()),
        },
    );
    prop_oneof![
        (id(), any::<String>(), params())
            .prop_map(|(id, method, params)| Message::Request(Request { id, method, params })),
        (any::<String>(), params())
            .prop_map(|(method, params)| Message::Notification(Notification { method, params })),
        (id(), value()).prop_map(|(id, result)| Message::Response(Response {
            id: Some(id),
            outcome: Ok(RawJson::from_value(&result).unwrap()),
        })),
        (prop::option::of(id()), error).prop_map(|(id, error)| Message::Response(Response {
            id,
            outcome: Err(error)
        })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Property 1: parse, serialize, parse is equivalent (R1.2, R13.5).
    #[test]
    fn decode_inverts_encode(message in any_message()) {
        let mut out = BytesMut::new();
        encode(&message, &mut out);
        let Payload::Single(Ok(decoded)) = decode(&out.freeze(), LIMITS).unwrap() else {
            panic!("no single message")
        };
        prop_assert_eq!(decoded, message);
    }

    #[test]
    fn batches_are_their_messages(messages in prop::collection::vec(any_message(), 1..=3)) {
        let mut out = BytesMut::new();
        encode_batch(&messages, &mut out);
        let Payload::Batch(decoded) = decode(&out.freeze(), LIMITS).unwrap() else {
            panic!("no batch")
        };
        let decoded: Vec<_> = decoded.into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(decoded, messages);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes.into(), LIMITS);
    }

    #[test]
    fn nothing_like_a_message_makes_it_panic(text in r#"[\[\]{}",:0-9a-z\\ \n]{0,80}"#) {
        let _ = decode(&frame(&text), LIMITS);
    }

    /// An error is always reported at a place that exists.
    #[test]
    fn cut_messages_say_where(message in any_message(), cut in 0.0..1.0_f64) {
        let whole = encoded(&message);
        let bytes = &whole.as_bytes()[..(whole.len() as f64 * cut) as usize];
        match decode(&Bytes::copy_from_slice(bytes), LIMITS) {
            Err(DecodeError::Syntax { position, .. } | DecodeError::Encoding { position }) => {
                prop_assert!(position.line == 1 && position.column <= bytes.len() + 1);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
