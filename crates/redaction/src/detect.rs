//! Secrets that are known by how they look, or by what stands before them in running text.
//!
//! Each detector looks at every byte at most a constant number of times: what begins like a secret
//! is judged by a bounded part of it, and what is one is passed over as a whole.

mod address;
mod anchors;
mod assignment;
mod card;
mod key_shape;
mod pem;
mod token;

use crate::{names::Names, placeholder::Label, spec::Detectors};
use anchors::Anchors;

/// A secret in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) label: Label,
}

/// Facts about a text that are known already, so that detectors can skip work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hints {
    /// There may be signs that stand between a name and its value.
    pub(crate) has_signs: bool,
    /// There are at most so many digits.
    pub(crate) digits: u32,
    /// There may be what secrets begin with.
    pub(crate) is_anchored: bool,
}

impl Hints {
    /// Hints that exclude nothing.
    pub(crate) const ALL: Self = Self {
        has_signs: true,
        digits: u32::MAX,
        is_anchored: true,
    };

    /// As [`Hints::of`], of a part of a text that has `digits`: they need not be counted again if they are too
    /// few for a card.
    #[inline]
    pub(crate) fn of_part(part: &str, is_anchored: bool, digits: u32) -> Self {
        if card::FEWEST_DIGITS <= digits {
            return Self::of(part, is_anchored);
        }
        Self {
            has_signs: memchr::memchr3(b':', b'=', b'>', part.as_bytes()).is_some(),
            digits,
            is_anchored,
        }
    }

    /// Hints from one pass over `text`.
    #[inline]
    pub(crate) fn of(text: &str, is_anchored: bool) -> Self {
        let (chunks, rest) = text.as_bytes().as_chunks::<64>();
        let (mut has_signs, mut digits) = look(rest);
        for chunk in chunks {
            let (signs, more) = look(chunk);
            has_signs |= signs;
            digits += more;
        }
        Self {
            has_signs: has_signs != 0,
            digits: u32::try_from(digits).unwrap_or(u32::MAX),
            is_anchored,
        }
    }
}

/// Signs found in a piece of at most 255 bytes, and its number of digits. Without branches, so that
/// it is done for many bytes at once.
#[inline]
fn look(piece: &[u8]) -> (u8, usize) {
    let (mut has_signs, mut digits) = (0, 0_u8);
    for byte in piece {
        has_signs |= u8::from(matches!(byte, b':' | b'=' | b'>'));
        digits += u8::from(byte.is_ascii_digit());
    }
    (has_signs, usize::from(digits))
}

#[derive(Debug)]
pub(crate) struct Detect {
    cards: bool,
    assignments: bool,
    anchors: Option<Anchors>,
}

impl Detect {
    pub(crate) fn new(detectors: Detectors) -> Self {
        Self {
            cards: detectors.cards,
            assignments: detectors.assignments,
            anchors: Anchors::new(detectors),
        }
    }

    /// Returns true if `text` may contain a prefix that secrets begin with.
    pub(crate) fn is_anchored(&self, text: &str) -> bool {
        self.anchors.as_ref().is_some_and(|it| it.may_be_in(text))
    }

    /// Returns true if the value of a name that may be that of a token is one.
    pub(crate) fn is_token(value: &str) -> bool {
        token::is_token_alone(value.as_bytes())
    }

    /// Returns true if a number of JSON is a card number.
    pub(crate) fn is_card(&self, number: &str) -> bool {
        self.cards && card::is_number(number)
    }

    /// The secrets in `text`, in order and apart from each other.
    pub(crate) fn find(&self, text: &str, hints: Hints, names: &Names) -> Vec<Span> {
        let mut spans = Vec::new();
        if self.assignments && hints.has_signs {
            assignment::find(text, names, &mut spans);
        }
        if hints.is_anchored
            && let Some(anchors) = &self.anchors
        {
            anchors.find(text, names, &mut spans);
        }
        if self.cards && card::FEWEST_DIGITS <= hints.digits {
            card::find(text.as_bytes(), &mut spans);
        }
        joined(spans)
    }
}

/// Makes one of those that overlap.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    if spans.len() < 2 {
        return spans;
    }
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let mut apart: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match apart.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => apart.push(span),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_look_sees_what_is_there(text in "[0-9a-z/:;<=>?é ]{0,300}") {
            let hints = Hints::of(&text, false);
            prop_assert_eq!(hints.has_signs, text.contains([':', '=', '>']));
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            prop_assert_eq!(hints.digits as usize, digits);
        }
    }
}
