// Shared by the fuzz target and the test that replays the corpus.

use bytes::{Bytes, BytesMut};
use jsonrpc_core::{Frame, Invalid, Limits, Message, Payload, decode, encode, encode_batch};

/// Small enough that inputs of a fuzzer exceed each of them.
const TIGHT: Limits = Limits {
    max_frame: 128,
    max_batch: 2,
    max_depth: 3,
};

/// Property of decoding: for any bytes, decoding ends without a panic, and a decoded message
/// survives being encoded and decoded again.
pub(crate) fn holds(frame: &[u8]) {
    let frame = Bytes::copy_from_slice(frame);
    let loose = decode(&frame, Limits::default());
    let tight = decode(&frame, TIGHT);
    match &loose {
        Ok(payload) => survives(&frame, payload),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(tight.is_err(), "a tighter bound accepts more");
        }
    }
    if let Ok(tight) = tight {
        let loose = loose.expect("a wider bound accepts no less");
        assert_eq!(
            format!("{tight:?}"),
            format!("{loose:?}"),
            "a bound changes the meaning"
        );
    }
}

fn survives(frame: &Bytes, payload: &Payload) {
    let elements = match payload {
        Payload::Single(element) => std::slice::from_ref(element),
        Payload::Batch(elements) => {
            assert!(!elements.is_empty(), "a batch is never empty");
            elements.as_slice()
        }
    };
    for element in elements {
        match element {
            Ok(message) => assert_eq!(&again(&encoded(frame, message)), message),
            Err(invalid) => answerable(invalid),
        }
    }
    let messages: Vec<&Message> = elements.iter().flatten().collect();
    if !messages.is_empty() {
        let mut batch = BytesMut::new();
        encode_batch(messages.iter().copied(), &mut batch);
        let Payload::Batch(back) = roomy(&batch.freeze()) else {
            panic!("a batch comes back as one");
        };
        let back: Vec<_> = back
            .iter()
            .map(|element| element.as_ref().expect("a message"))
            .collect();
        assert_eq!(back, messages);
    }
}

/// Encodes a message in both ways there are, which agree.
fn encoded(frame: &Bytes, message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    encode(message, &mut out);
    let out = out.freeze();
    assert_eq!(Frame::message(message).into_bytes(), out);
    // One line in, one line out: stdio depends on it.
    assert!(
        frame.contains(&b'\n') || !out.contains(&b'\n'),
        "a newline appeared"
    );
    out
}

/// Invalid input can be answered, and the answer is a message.
fn answerable(invalid: &Invalid) {
    let response = jsonrpc_core::Response {
        id: invalid.id.clone(),
        outcome: Err(invalid.error.clone()),
    };
    let response = Message::Response(response);
    let mut out = BytesMut::new();
    encode(&response, &mut out);
    assert!(!out.contains(&b'\n'), "an error says a newline");
    assert_eq!(again(&out.freeze()), response);
}

fn again(frame: &Bytes) -> Message {
    match roomy(frame) {
        Payload::Single(Ok(message)) => message,
        other => panic!("{frame:?} came back as {other:?}"),
    }
}

/// Decodes where what was encoded may be a little larger, deeper and more than what came.
fn roomy(frame: &Bytes) -> Payload {
    let limits = Limits::default();
    let limits = Limits {
        max_frame: 8 * limits.max_frame,
        max_depth: limits.max_depth + 1,
        ..limits
    };
    decode(frame, limits).expect("what was encoded is JSON")
}
