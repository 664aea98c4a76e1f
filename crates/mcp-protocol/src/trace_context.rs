//! Place in a distributed trace at which a request is made: W3C Trace Context, level 2, as SEP-414
//! has it in `_meta` and HTTP in headers.

use std::fmt::{self, Write as _};

/// The most bytes of a `tracestate` that are passed on; the standard wants at least as many.
pub const MAX_TRACE_STATE_BYTES: usize = 512;
/// The most members of a `tracestate`; with more of them it is not valid.
const MAX_MEMBERS: usize = 32;
/// The most bytes of a key, and of a value, in a `tracestate`.
const MAX_MEMBER_PART_BYTES: usize = 256;
/// Larger members of a `tracestate` that is too long are the first to go.
const LARGE_MEMBER_BYTES: usize = 128;
/// Bytes that are read of a `tracestate`: as many as valid members can have with their separators.
const MAX_READ_BYTES: usize = 32 * 1024;

/// The length of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;
const SAMPLED: u8 = 0x01;
const RANDOM: u8 = 0x02;

/// Place in a distributed trace: the trace, the span above, and whether that is recorded. Always
/// valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// Reads a `traceparent` and the `tracestate` that came with it, whose members may have come
    /// apart. What is no valid `traceparent` is no context; a `tracestate` that is not valid is
    /// left out and changes nothing (W3C Trace Context, 3.3 and 4.3).
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let bytes = traceparent.as_bytes();
        let version = hex::<1>(bytes.get(..2)?)?[0];
        let has_known_end = match version {
            0 => bytes.len() == PARENT_BYTES,
            0xff => false,
            // A later version may say more, of which nothing is known.
            _ => bytes.get(PARENT_BYTES).is_none_or(|byte| *byte == b'-'),
        };
        let dashes = [2, 35, 52];
        if !has_known_end || dashes.iter().any(|at| bytes.get(*at) != Some(&b'-')) {
            return None;
        }
        let flags = hex::<1>(bytes.get(53..PARENT_BYTES)?)?[0];
        let flags = match version {
            0 => flags & (SAMPLED | RANDOM),
            _ => flags & SAMPLED,
        };
        let context = Self::new(hex(&bytes[3..35])?, hex(&bytes[36..52])?, flags)?;
        Some(context.with_state(tracestate))
    }

    /// A context of these ids; `None` where one of them is all zero, which is no id. Of `flags`, the
    /// lowest bit says that the span is recorded, and the next that the trace's id is random.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Option<Self> {
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self {
            trace_id,
            span_id,
            flags: flags & (SAMPLED | RANDOM),
            state: None,
        })
    }

    /// The same with another `tracestate`; without, if it is not valid.
    #[must_use]
    pub fn with_state(self, tracestate: Option<&str>) -> Self {
        Self {
            state: tracestate.and_then(state),
            ..self
        }
    }

    /// The trace.
    pub fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The span of it.
    pub fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// Returns true if the span is recorded, as far as the caller that began it knows.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Flags of a `traceparent`; see [`TraceContext::new`].
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// The trace's id as it is written: 32 hexadecimal digits.
    pub fn trace_id_text(&self) -> String {
        Hex(&self.trace_id).to_string()
    }

    /// The `traceparent` that says it, in version 00.
    pub fn traceparent(&self) -> String {
        format!(
            "00-{}-{}-{:02x}",
            Hex(&self.trace_id),
            Hex(&self.span_id),
            self.flags
        )
    }

    /// The `tracestate` that goes with it: at most [`MAX_TRACE_STATE_BYTES`], without what was too
    /// much.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// Digits of a known number, in lower case.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0.iter().try_for_each(|byte| {
            f.write_char(DIGITS[usize::from(byte >> 4)].into())?;
            f.write_char(DIGITS[usize::from(byte & 15)].into())
        })
    }
}

/// A `tracestate` as it is passed on; `None` if it is not valid, or empty.
fn state(text: &str) -> Option<Box<str>> {
    if MAX_READ_BYTES < text.len() {
        return None;
    }
    let mut members = Vec::new();
    for member in text.split(',') {
        let member = member.trim_matches([' ', '\t']);
        if member.is_empty() {
            continue;
        }
        let (key, value) = member.split_once('=')?;
        let is_again = |known: &&str| known.split('=').next() == Some(key);
        if !is_key(key)
            || !is_value(value)
            || members.len() == MAX_MEMBERS
            || members.iter().any(is_again)
        {
            return None;
        }
        members.push(member);
    }
    let length = |members: &[&str]| members.iter().map(|it| it.len() + 1).sum::<usize>();
    while MAX_TRACE_STATE_BYTES + 1 < length(&members) {
        let large = members.iter().rposition(|it| LARGE_MEMBER_BYTES < it.len());
        members.remove(large.unwrap_or(members.len() - 1));
    }
    (!members.is_empty()).then(|| members.join(",").into())
}

fn is_key(key: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_next = |byte: u8| is_first(byte) || b"_-*/@".contains(&byte);
    key.len() <= MAX_MEMBER_PART_BYTES
        && key.bytes().next().is_some_and(is_first)
        && key.bytes().all(is_next)
}

fn is_value(value: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=';
    (1..=MAX_MEMBER_PART_BYTES).contains(&value.len()) && value.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn with_state(tracestate: &str) -> Option<String> {
        let context = TraceContext::parse(PARENT, Some(tracestate)).unwrap();
        context.tracestate().map(str::to_owned)
    }

    #[test]
    fn a_context_is_what_the_standard_says_it_is() {
        let context = TraceContext::parse(PARENT, None).unwrap();
        assert_eq!(context.trace_id_text(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(
            context.span_id(),
            [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]
        );
        assert!(context.is_sampled());
        assert_eq!(context.traceparent(), PARENT);
        // What a flag means that is not known is not known either.
        let flags = |flags: &str| {
            let text = format!("{}{flags}", &PARENT[..53]);
            TraceContext::parse(&text, None).map(|it| it.traceparent()[53..].to_owned())
        };
        assert_eq!(flags("00").as_deref(), Some("00"));
        assert_eq!(flags("03").as_deref(), Some("03"));
        assert_eq!(flags("ff").as_deref(), Some("03"));
        assert_eq!(flags("FF"), None);
        // A version that is not known is read as far as it is known.
        for text in [
            format!("cc{}", &PARENT[2..]),
            format!("01{}-more", &PARENT[2..]),
        ] {
            let read = TraceContext::parse(&text, None).map(|it| it.traceparent());
            assert_eq!(read.as_deref(), Some(PARENT), "{text}");
        }
    }

    #[test]
    fn what_is_no_context_is_none() {
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let zero_span = format!("{}-{}-01", &PARENT[..35], "0".repeat(16));
        for bad in [
            "",
            "00",
            "00-xyz",
            &PARENT[..54],
            &PARENT[1..],
            &format!("{PARENT}-00"),
            &format!("{PARENT} "),
            &format!(" {PARENT}"),
            &format!("ff{}", &PARENT[2..]),
            &format!("01{}more", &PARENT[2..]),
            &PARENT.to_uppercase(),
            &PARENT.replacen('-', "_", 1),
            &PARENT.replace("01", "0g"),
            &PARENT.replace('c', "é"),
            &zero_trace,
            &zero_span,
        ] {
            assert_eq!(TraceContext::parse(bad, None), None, "{bad}");
        }
    }

    #[test]
    fn a_state_is_passed_on_if_it_is_valid_and_the_trace_goes_on_if_not() {
        let rows = [
            (
                "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
                Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
            ),
            (" a=1 ,\t,b=x y,", Some("a=1,b=x y")),
            ("t@v=1,0/*-_=2", Some("t@v=1,0/*-_=2")),
            ("", None),
            (" , ", None),
            ("a", None),
            ("a=", None),
            ("=1", None),
            ("A=1", None),
            ("a=1=2", None),
            ("a=1,a=2", None),
            ("a=é", None),
            ("a=\u{7f}", None),
        ];
        for (text, expected) in rows {
            assert_eq!(with_state(text).as_deref(), expected, "{text}");
        }
        let many = |count: usize| {
            let members: Vec<_> = (0..count).map(|it| format!("k{it}=v")).collect();
            members.join(",")
        };
        assert_eq!(with_state(&many(32)), Some(many(32)));
        assert_eq!(with_state(&many(33)), None);
        let long = |length: usize| format!("k={}", "v".repeat(length));
        assert_eq!(with_state(&long(256)), Some(long(256)));
        assert_eq!(with_state(&long(257)), None);
    }

    #[test]
    fn of_a_state_that_is_too_long_the_large_and_the_last_go_first() {
        let member = |key: &str, length: usize| format!("{key}={}", "v".repeat(length));
        let (large, small) = (member("large", 200), member("small", 100));
        let others: Vec<_> = (0..4).map(|it| member(&format!("o{it}"), 90)).collect();
        let all = [&[large, small.clone()], &others[..]].concat().join(",");
        let kept = [&[small], &others[..]].concat().join(",");
        assert_eq!(with_state(&all), Some(kept));
        let many: Vec<_> = (0..10).map(|it| member(&format!("o{it}"), 97)).collect();
        assert_eq!(with_state(&many.join(",")), Some(many[..5].join(",")));
        // To the byte: five of 100 and four commas are 504.
        let with = |last: &str| with_state(&[&many[..5], &[last.to_owned()]].concat().join(","));
        assert_eq!(
            with("z=12345").map(|it| it.len()),
            Some(MAX_TRACE_STATE_BYTES)
        );
        assert_eq!(with("z=123456"), Some(many[..5].join(",")));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_alike_and_within_bounds(parent in "\\PC{0,60}", state in "[a-c=, \\PC]{0,600}") {
            prop_assert!(TraceContext::parse(&parent, None).is_none());
            let context = TraceContext::parse(PARENT, Some(&state)).unwrap();
            if let Some(kept) = context.tracestate() {
                prop_assert!(kept.len() <= MAX_TRACE_STATE_BYTES);
                let again = TraceContext::parse(&context.traceparent(), Some(kept));
                prop_assert_eq!(again.as_ref(), Some(&context));
            }
        }
    }
}
