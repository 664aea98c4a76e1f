//! Digests of what a text of JSON says, whatever way it is written.

mod number;
mod verbatim;

use crate::{
    scan::{NotJson, Scanner, Text, Token},
    string,
};
use sha2::{Digest as _, Sha256};
use std::{borrow::Cow, cmp::Ordering, fmt::Write as _, ops::Range};

/// A text is not JSON, so it has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text is not JSON")]
pub struct Malformed;

/// SHA-256 digest of a text of JSON in its canonical form: that of RFC 8785 (JCS), so that other
/// programs can compute it of the same value with common libraries, whatever the order of members,
/// the spaces and the escapes.
///
/// Two texts that somebody who reads them could take for different values have different digests.
/// RFC 8785 does not go that far, since it knows numbers only as doubles and refuses what is not
/// I-JSON (RFC 7493). So there are five additions to it:
///
/// * Integers keep all of their digits, where JCS rounds those beyond 2^53: in Python and as an `i64`
///   in Rust, 9007199254740993 is not 9007199254740992.
/// * A number that is written as a fraction or with an exponent, but is whole, ends in `.0` where
///   JCS has the digits of an integer: in Python `1.0` and `1` are a `float` and an `int`, which
///   print differently. For the same reason `-0` is `-0` and `-0.0` is `-0.0`, and what is too large
///   for a double is left as it is written.
/// * A fraction that is not how its double is printed, with as many digits as needed or with 17, keeps all of its
///   digits, as an integer with an exponent: 100000000000000000.49 is `10000000000000000049e-2`.
/// * Members of the same name all stay, in their order. Readers differ in whether they take the
///   first, the last or none, so that none can be left out.
/// * A surrogate that is alone in an escape stays an escape, `\ud800`, as JavaScript writes it.
///
/// No text has a canonical form with any of these that is also the form of another text. Where a
/// text has none of them, the digest is that of its JCS.
///
/// The time is that of sorting, the memory in proportion to the text, and nesting costs no stack.
///
/// # Errors
///
/// [`Malformed`] if it is not JSON.
///
/// ```
/// use redaction::canonical_digest;
///
/// let digest = canonical_digest(r#"{"b": 1e2, "a": "\u00e9"}"#)?;
/// assert_eq!(digest, canonical_digest(r#"{"a":"é","b":100.0}"#)?);
/// assert_ne!(digest, canonical_digest(r#"{"a":"é","b":100}"#)?);
/// # Ok::<(), redaction::Malformed>(())
/// ```
pub fn canonical_digest(json: &str) -> Result<[u8; 32], Malformed> {
    if verbatim::is_canonical(json) {
        return Ok(Sha256::digest(json).into());
    }
    let mut hasher = Buffered::default();
    write(json, &mut hasher).map_err(|NotJson| Malformed)?;
    Ok(hasher.finish())
}

/// A digest for any text: its [`canonical_digest`], and of what is not JSON a digest of its bytes,
/// which is that of no text of JSON.
#[must_use]
pub fn digest(text: &str) -> [u8; 32] {
    canonical_digest(text).unwrap_or_else(|Malformed| {
        // No text has this byte, so no canonical form begins with it.
        let mut hasher = Sha256::new_with_prefix([0xFF]);
        hasher.update(text);
        hasher.finalize().into()
    })
}

/// The canonical form.
pub(crate) fn canonical(json: &str) -> Result<String, NotJson> {
    let mut form = Vec::with_capacity(json.len());
    write(json, &mut form)?;
    Ok(String::from_utf8(form).expect("surrogates that are alone are escaped"))
}

/// Destination of a canonical form.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The most bytes that are gathered before they are hashed.
const BUFFER_BYTES: usize = 4096;

/// Hashes many small pieces as few larger ones.
#[derive(Default)]
struct Buffered {
    hasher: Sha256,
    waiting: Vec<u8>,
}

impl Buffered {
    fn finish(mut self) -> [u8; 32] {
        self.hasher.update(&self.waiting);
        self.hasher.finalize().into()
    }
}

impl Sink for Buffered {
    fn put(&mut self, bytes: &[u8]) {
        if BUFFER_BYTES < self.waiting.len() + bytes.len() {
            self.hasher.update(&self.waiting);
            self.waiting.clear();
        }
        if BUFFER_BYTES < bytes.len() {
            self.hasher.update(bytes);
        } else {
            self.waiting.extend_from_slice(bytes);
        }
    }
}

/// A value; members and elements are in [`Tree::children`].
#[derive(Clone, Copy)]
enum Value {
    /// As it is written, its quotes or brackets included: it is its own canonical form.
    Verbatim(usize, usize),
    Escaped(Text),
    Number(usize, usize),
    Array(usize, usize),
    Object(usize, usize),
}

/// A member, or an element, which has no name.
#[derive(Clone, Copy)]
struct Child {
    name: Option<Text>,
    value: Value,
}

impl Child {
    fn is_verbatim(&self) -> bool {
        matches!(self.value, Value::Verbatim(..)) && self.name.is_none_or(|it| !it.is_escaped)
    }
}

/// An object or array that is being read.
struct Open {
    name: Option<Text>,
    /// Index of its first byte.
    start: usize,
    /// Index of its first child.
    from: usize,
    is_object: bool,
    /// The spaces before its children.
    spaces: usize,
}

/// Parsed members of a text.
struct Tree<'a> {
    text: &'a str,
    children: Vec<Child>,
}

fn write(json: &str, sink: &mut impl Sink) -> Result<(), NotJson> {
    let mut tree = Tree {
        text: json,
        children: Vec::new(),
    };
    let root = tree.read()?;
    tree.write(root, sink);
    Ok(())
}

impl Tree<'_> {
    fn read(&mut self) -> Result<Value, NotJson> {
        let mut scanner = Scanner::new(self.text);
        // Those whose parents are still open.
        let mut waiting: Vec<Child> = Vec::new();
        let mut open: Vec<Open> = Vec::new();
        let mut name = None;
        while let Some(token) = scanner.next()? {
            let value = match token {
                Token::Name(text) => {
                    name = Some(text);
                    continue;
                }
                Token::Object(start) | Token::Array(start) => {
                    open.push(Open {
                        name: name.take(),
                        start,
                        from: waiting.len(),
                        is_object: matches!(token, Token::Object(_)),
                        spaces: scanner.spaces(),
                    });
                    continue;
                }
                Token::End(end) => {
                    let it = open.pop().ok_or(NotJson)?;
                    name = it.name;
                    let children = &mut waiting[it.from..];
                    let is_sorted = !it.is_object || self.sort(children);
                    if is_sorted
                        && it.spaces == scanner.spaces()
                        && children.iter().all(Child::is_verbatim)
                    {
                        waiting.truncate(it.from);
                        Value::Verbatim(it.start, end)
                    } else {
                        let start = self.children.len();
                        self.children.extend(waiting.drain(it.from..));
                        let end = self.children.len();
                        if it.is_object {
                            Value::Object(start, end)
                        } else {
                            Value::Array(start, end)
                        }
                    }
                }
                Token::String(text) if verbatim::is_string(self.text, text) => {
                    Value::Verbatim(text.start - 1, text.end + 1)
                }
                Token::String(text) => Value::Escaped(text),
                Token::Number(start, end) if verbatim::is_number(&self.text[start..end]) => {
                    Value::Verbatim(start, end)
                }
                Token::Number(start, end) => Value::Number(start, end),
                Token::Literal(start, end) => Value::Verbatim(start, end),
            };
            waiting.push(Child {
                name: name.take(),
                value,
            });
        }
        waiting.pop().map(|it| it.value).ok_or(NotJson)
    }

    /// Sorts members by their names; those of the same name stay in their order. Whether they have
    /// been in order.
    fn sort(&self, members: &mut [Child]) -> bool {
        let compare = |a: &Child, b: &Child| match (a.name, b.name) {
            (Some(a), Some(b)) => compare_as_utf16(&self.said(a), &self.said(b)),
            _ => Ordering::Equal,
        };
        if members
            .iter()
            .all(|it| it.name.is_none_or(|it| !it.is_escaped))
        {
            if members.is_sorted_by(|a, b| compare(a, b) != Ordering::Greater) {
                return true;
            }
            members.sort_by(compare);
        } else {
            // Escapes are resolved once, and not whenever two are compared.
            members.sort_by_cached_key(|it| {
                Utf16Order(
                    it.name
                        .map_or_else(Vec::new, |it| self.said(it).into_owned()),
                )
            });
        }
        false
    }

    /// Decoded value of a string, in WTF-8.
    fn said(&self, text: Text) -> Cow<'_, [u8]> {
        let raw = &self.text[text.range()];
        if text.is_escaped {
            Cow::Owned(string::decoded_bytes(raw))
        } else {
            Cow::Borrowed(raw.as_bytes())
        }
    }

    fn write(&self, root: Value, sink: &mut impl Sink) {
        let mut number = String::new();
        // Of each value that is open: what is left to be written of it, and how it ends.
        let mut open: Vec<(Range<usize>, &[u8])> = Vec::new();
        let mut next = Some(root);
        loop {
            match next.take() {
                Some(Value::Verbatim(start, end)) => sink.put(&self.text.as_bytes()[start..end]),
                Some(Value::Escaped(text)) => write_string(&self.said(text), sink),
                Some(Value::Number(start, end)) => {
                    number.clear();
                    number::write(&self.text[start..end], &mut number);
                    sink.put(number.as_bytes());
                }
                Some(Value::Array(start, end)) => {
                    sink.put(b"[");
                    open.push((start..end, b"]"));
                    next = self.child(&mut open, sink);
                    continue;
                }
                Some(Value::Object(start, end)) => {
                    sink.put(b"{");
                    open.push((start..end, b"}"));
                    next = self.child(&mut open, sink);
                    continue;
                }
                None => {
                    let Some((_, end)) = open.pop() else { return };
                    sink.put(end);
                }
            }
            if open.last().is_some_and(|(left, _)| !left.is_empty()) {
                sink.put(b",");
            }
            next = self.child(&mut open, sink);
        }
    }

    /// The next child of the innermost value that is open, its name written.
    fn child(&self, open: &mut [(Range<usize>, &[u8])], sink: &mut impl Sink) -> Option<Value> {
        let child = self.children[open.last_mut()?.0.next()?];
        if let Some(name) = child.name {
            if name.is_escaped {
                write_string(&self.said(name), sink);
            } else {
                sink.put(&self.text.as_bytes()[name.start - 1..=name.end]);
            }
            sink.put(b":");
        }
        Some(child.value)
    }
}

/// Bytes of WTF-8 in the order of their UTF-16 (RFC 8785, 3.2.3): that of the bytes, but for
/// characters beyond U+FFFF, which in UTF-16 begin with D800 to DBFF and come before U+E000.
fn compare_as_utf16(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: u8| match byte {
        0xEE | 0xEF => u16::from(byte) + 0x100,
        byte => u16::from(byte),
    };
    match a.iter().zip(b).position(|(a, b)| a != b) {
        Some(at) => rank(a[at]).cmp(&rank(b[at])),
        None => a.len().cmp(&b.len()),
    }
}

#[derive(PartialEq, Eq)]
struct Utf16Order(Vec<u8>);

impl Ord for Utf16Order {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_as_utf16(&self.0, &other.0)
    }
}

impl PartialOrd for Utf16Order {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Writes a string that says this, in WTF-8 (RFC 8785, 3.2.2.2).
pub(crate) fn write_string(said: &[u8], sink: &mut impl Sink) {
    sink.put(b"\"");
    let mut encoded = String::with_capacity(said.len());
    let mut rest = said;
    loop {
        let surrogate = rest
            .windows(3)
            .position(|it| it[0] == 0xED && 0xA0 <= it[1]);
        let (text, after) = rest.split_at(surrogate.unwrap_or(rest.len()));
        let text = std::str::from_utf8(text).expect("all but surrogates is UTF-8");
        string::encode(text, &mut encoded);
        let [_, high, low, after @ ..] = after else {
            break;
        };
        let code = 0xD000 | u32::from(high & 0x3F) << 6 | u32::from(low & 0x3F);
        let _ = write!(encoded, "\\u{code:04x}");
        rest = after;
    }
    sink.put(encoded.as_bytes());
    sink.put(b"\"");
}

#[cfg(test)]
mod tests;
