//! Passwords in addresses.

use super::Span;
use crate::placeholder::Label;

/// The fewest bytes of a user that is taken for a token; those of services have 20 and more.
const SHORTEST_TOKEN: usize = 20;
/// The fewest bytes of the part of it that is no word, between hyphens and the like.
const SHORTEST_PART: usize = 16;

/// Finds the password of `scheme://user:password@host`. Keeps where it has been, so that no part of
/// a text is read for more than one address.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// The end of the word that was looked at last.
    word_end: usize,
    /// Index of its last `@`.
    last_at: Option<usize>,
}

impl Addresses {
    /// The password of the address whose `://` is at `sign`.
    pub(super) fn password(&mut self, text: &[u8], sign: usize) -> Option<Span> {
        let start = sign + 3;
        let scheme = scheme(&text[..sign]);
        if scheme.is_empty() {
            return None;
        }
        let authority = authority_end(text, start);
        let strict = text[start..authority]
            .iter()
            .rposition(|it| *it == b'@')
            .map(|at| start + at);
        let at = match strict {
            Some(at) => at,
            // A path may have an `@`. Where there are no paths, or no port stands before it, who wrote the password
            // may have forgotten to encode a `/` in it.
            None if is_of_web(scheme) && !has_password(&text[start..authority]) => return None,
            None => self.last_at(text, start)?,
        };
        let Some(colon) = text[start..at].iter().position(|it| *it == b':') else {
            let user = &text[start..at];
            return (is_of_web(scheme) && is_token(user)).then_some(Span {
                start,
                end: at,
                label: Label::Password,
            });
        };
        let colon = start + colon;
        let span = Span {
            start: colon + 1,
            end: at,
            label: Label::Password,
        };
        let is_port = strict.is_none() && is_port(&text[span.start..span.end]);
        (span.start < span.end && !is_port).then_some(span)
    }

    /// The last `@` of the word that `start` is in, after it.
    fn last_at(&mut self, text: &[u8], start: usize) -> Option<usize> {
        if self.word_end <= start {
            self.word_end = super::token::run_end(text, start, |byte| !is_outside(byte));
            self.last_at = memchr::memrchr(b'@', &text[start..self.word_end]).map(|at| start + at);
        }
        self.last_at.filter(|at| start <= *at)
    }
}

/// Returns true if a user without a password is rather a token, as in `https://TOKEN@host`.
fn is_token(user: &[u8]) -> bool {
    let is_random =
        |part: &[u8]| SHORTEST_PART <= part.len() && part.iter().any(u8::is_ascii_digit);
    let mut parts = user.split(|it| matches!(it, b'-' | b'_' | b'.'));
    SHORTEST_TOKEN <= user.len()
        && parts.any(is_random)
        && !user.contains(&b'%')
        && super::token::is_token_alone(user)
}

/// The letters before `://`.
fn scheme(before: &[u8]) -> &[u8] {
    let length = before
        .iter()
        .rev()
        .take(32)
        .take_while(|it| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'-' | b'.'))
        .count();
    &before[before.len() - length..]
}

fn is_of_web(scheme: &[u8]) -> bool {
    const WEB: [&[u8]; 6] = [b"http", b"https", b"ws", b"wss", b"file", b"skill"];
    WEB.iter().any(|it| scheme.eq_ignore_ascii_case(it))
}

/// Returns true for the beginning of an address that cannot be a host and its port, as `user:pass` of `user:pass/word@host`.
fn has_password(beginning: &[u8]) -> bool {
    let port = beginning.iter().position(|it| *it == b':');
    let port = port.map_or(&[][..], |at| &beginning[at + 1..]);
    // `${PORT}`, `{port}`, `<port>`, and `PORT` alone stand for a number.
    let stands_for_one = matches!(port, [b'$' | b'{' | b'<', ..])
        || port.iter().all(|it| it.is_ascii_uppercase() || *it == b'_');
    !beginning.starts_with(b"[") && !stands_for_one && port.iter().any(|it| !it.is_ascii_digit())
}

/// Returns true if `rest` is what follows a host, and not a password with a `/` in it.
fn is_port(rest: &[u8]) -> bool {
    let digits = rest
        .iter()
        .take(6)
        .take_while(|it| it.is_ascii_digit())
        .count();
    0 < digits && matches!(rest.get(digits), Some(b'/' | b'?' | b'#' | b',') | None)
}

fn authority_end(text: &[u8], start: usize) -> usize {
    super::token::run_end(text, start, |byte| {
        !is_outside(byte) && !matches!(byte, b'/' | b'?' | b'#')
    })
}

/// Ends an address in running text.
fn is_outside(byte: u8) -> bool {
    byte <= b' ' || matches!(byte, b'"' | b'\'' | b'<' | b'>' | b'`')
}
