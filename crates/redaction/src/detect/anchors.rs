//! Search for all known prefixes of secrets in one pass.

use super::{Span, address::Addresses, assignment, key_shape::SHAPES, pem, token};
use crate::{names::Names, spec::Detectors};
use aho_corasick::{AhoCorasick, Input, MatchKind, packed};

/// Rule for the text after an anchor: which text there is a secret.
#[derive(Clone, Copy, Debug)]
enum Follows {
    Scheme,
    JsonWebToken,
    Pem,
    Putty,
    /// By its place in [`SHAPES`].
    Key(usize),
    Address,
    Telegram,
    /// A name stands before it.
    WideSign,
}

/// All that secrets begin with.
#[derive(Debug)]
pub(super) struct Anchors {
    automaton: AhoCorasick,
    follows: Vec<Follows>,
    /// Search that rules out most texts without any of them, many bytes at once. None where the
    /// processor cannot.
    signs: Option<packed::Searcher>,
}

impl Anchors {
    /// None if there is nothing to look for.
    pub(super) fn new(detectors: Detectors) -> Option<Self> {
        let mut anchors: Vec<(&str, Follows)> = Vec::new();
        if detectors.bearer_tokens {
            let schemes = ["earer ", "EARER ", "asic ", "ASIC ", "earer\t", "asic\t"];
            anchors.extend(schemes.map(|it| (it, Follows::Scheme)));
        }
        if detectors.json_web_tokens {
            // `{"`, `{ "` and `{` with a line break, in base64.
            anchors.extend(
                ["eyJ", "eyAi", "ewog", "ewoJ", "ew0K"].map(|it| (it, Follows::JsonWebToken)),
            );
        }
        if detectors.private_keys {
            anchors.extend(["-----BEGIN ", "---- BEGIN "].map(|it| (it, Follows::Pem)));
            anchors.push(("PuTTY-User-Key-File-", Follows::Putty));
        }
        if detectors.api_keys {
            anchors.extend(
                SHAPES
                    .iter()
                    .enumerate()
                    .map(|(place, shape)| (shape.prefix, Follows::Key(place))),
            );
            anchors.push((":AA", Follows::Telegram));
        }
        if detectors.connection_strings {
            anchors.push(("://", Follows::Address));
        }
        if detectors.assignments {
            anchors.extend(["：", "＝"].map(|it| (it, Follows::WideSign)));
        }
        if anchors.is_empty() {
            return None;
        }
        let (prefixes, follows): (Vec<_>, Vec<_>) = anchors.into_iter().unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .build(&prefixes)
            .expect("a hundred short prefixes make no large automaton");
        Some(Self {
            automaton,
            follows,
            signs: packed::Searcher::new(signs_of(prefixes)),
        })
    }

    /// Returns true if `text` may contain one of the anchors.
    pub(super) fn may_be_in(&self, text: &str) -> bool {
        match &self.signs {
            Some(signs) if signs.minimum_len() <= text.len() => signs.find(text).is_some(),
            _ => self.automaton.is_match(text),
        }
    }

    /// Finds the secrets in a text that begin with one of them.
    pub(super) fn find(&self, text: &str, names: &Names, spans: &mut Vec<Span>) {
        let bytes = text.as_bytes();
        let mut addresses = Addresses::default();
        let mut at = 0;
        while let Some(found) = self.automaton.find(Input::new(bytes).range(at..)) {
            let (start, end) = (found.start(), found.end());
            let span = match self.follows[found.pattern().as_usize()] {
                Follows::Scheme => token::after_scheme(bytes, start, end),
                Follows::JsonWebToken => token::json_web(bytes, start),
                Follows::Pem => pem::block(bytes, start, end),
                Follows::Putty => Some(pem::putty(bytes, start)),
                Follows::Key(place) => SHAPES[place].key(bytes, start),
                Follows::Address => addresses.password(bytes, start),
                Follows::Telegram => telegram(bytes, start),
                Follows::WideSign => assignment::after_wide_sign(text, start, end, names),
            };
            at = match span {
                Some(span) => {
                    spans.push(span);
                    span.end.max(start + 1)
                }
                None => start + 1,
            };
        }
    }
}

/// Strings of which every text that contains one of `prefixes` contains at least one: prefixes that
/// begin with the same letters are replaced by those letters, if hardly a word has them. The number
/// of strings that can be searched for at once is limited.
fn signs_of(mut prefixes: Vec<&str>) -> Vec<&str> {
    const BEGINNINGS: [&str; 3] = ["xox", "shp", "AKI"];
    for prefix in &mut prefixes {
        if let Some(beginning) = BEGINNINGS.iter().find(|it| prefix.starts_with(**it)) {
            *prefix = beginning;
        }
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes
}

/// The token of a bot: its number, a colon, and 35 characters that begin with `AA`.
fn telegram(text: &[u8], colon: usize) -> Option<Span> {
    let digits = text[..colon]
        .iter()
        .rev()
        .take(11)
        .take_while(|it| it.is_ascii_digit())
        .count();
    let secret = text.get(colon + 1..colon + 36)?;
    let is_token = (8..=10).contains(&digits)
        && secret
            .iter()
            .all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_'));
    is_token.then_some(Span {
        start: colon - digits,
        end: colon + 36,
        label: crate::placeholder::Label::ApiKey,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_for_at_once_is_in_all_that_is_looked_for() {
        let detectors = Detectors::default();
        let anchors = Anchors::new(detectors).unwrap();
        let mut prefixes: Vec<&str> = SHAPES.iter().map(|it| it.prefix).collect();
        prefixes.extend([
            "earer ",
            "asic\t",
            "eyJ",
            "ew0K",
            "---- BEGIN ",
            "://",
            ":AA",
            "：",
            "＝",
        ]);
        // There may be 64 at most.
        assert!(cfg!(not(target_arch = "x86_64")) || anchors.signs.is_some());
        for prefix in &prefixes {
            let text = format!("{}{prefix}{}", "x ".repeat(20), "y ".repeat(20));
            assert!(anchors.may_be_in(&text), "{prefix}");
            assert!(anchors.may_be_in(prefix), "{prefix}");
        }
        assert!(!anchors.may_be_in(&"nothing of it ".repeat(9)));
    }
}
