//! Private keys in files.

use super::Span;
use crate::placeholder::Label;
use memchr::memmem;

/// The longest name of what a PEM block contains.
const LONGEST_NAME: usize = 64;

/// The block that begins at `start`, if it is a private key: to its end, or to the end of the text.
pub(super) fn block(text: &[u8], start: usize, name: usize) -> Option<Span> {
    let rest = &text[name..];
    let name_end = memmem::find(&rest[..rest.len().min(LONGEST_NAME)], b"---")?;
    memmem::find(&rest[..name_end], b"PRIVATE KEY")?;
    let after = name + name_end;
    // What is escaped or cut in the middle has another end, or none.
    let end = memmem::find(&text[after..], b"---END ")
        .or_else(|| memmem::find(&text[after..], b"--- END "))
        .map(|found| {
            let end = after + found + 7;
            let line = &text[end..text.len().min(end + LONGEST_NAME)];
            let dashes = memmem::find(line, b"---").map_or(end, |found| end + found);
            super::token::run_end(text, dashes, |byte| byte == b'-')
        });
    Some(Span {
        start,
        end: end.unwrap_or(text.len()),
        label: Label::PrivateKey,
    })
}

/// A file of PuTTY's: to the end of the line of its last field, or of the text.
pub(super) fn putty(text: &[u8], start: usize) -> Span {
    let end = memmem::find(&text[start..], b"Private-MAC:").map(|found| {
        let mac = start + found;
        super::token::run_end(text, mac, |byte| {
            !matches!(byte, b'\n' | b'\r' | b'"' | b'\\')
        })
    });
    Span {
        start,
        end: end.unwrap_or(text.len()),
        label: Label::PrivateKey,
    }
}
