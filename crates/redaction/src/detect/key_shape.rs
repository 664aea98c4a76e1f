//! Keys of well-known services, by what they begin with.

use super::{Span, token::run_end};
use crate::placeholder::Label;

/// Shape of one kind of key.
#[derive(Debug)]
pub(super) struct KeyShape {
    pub(super) prefix: &'static str,
    /// Smallest number of characters after the prefix.
    fewest: usize,
    most: usize,
    characters: fn(u8) -> bool,
    /// Set if the text after the prefix must not read like words; for prefixes that prose has, too.
    is_wordy: bool,
    /// True if the prefix is harmless by itself, such as an address.
    keeps_prefix: bool,
}

const ANY: usize = usize::MAX;

/// Bytes of a key that are compared with words.
const LOOKED_AT: usize = 64;

/// A word without capitals inside and without digits is no longer than this.
const LONGEST_WORD: usize = 23;

const fn shape(
    prefix: &'static str,
    fewest: usize,
    most: usize,
    characters: fn(u8) -> bool,
) -> KeyShape {
    KeyShape {
        prefix,
        fewest,
        most,
        characters,
        is_wordy: false,
        keeps_prefix: false,
    }
}

const fn wordy(
    prefix: &'static str,
    fewest: usize,
    most: usize,
    characters: fn(u8) -> bool,
) -> KeyShape {
    KeyShape {
        prefix,
        fewest,
        most,
        characters,
        is_wordy: true,
        keeps_prefix: false,
    }
}

const fn after(prefix: &'static str, fewest: usize) -> KeyShape {
    KeyShape {
        prefix,
        fewest,
        most: ANY,
        characters: path,
        is_wordy: true,
        keeps_prefix: true,
    }
}

/// The shapes. No prefix is the beginning of another.
pub(super) const SHAPES: &[KeyShape] = &[
    // Our own: an id, a separator and 256 bits.
    shape("owl_", 56, 56, dashed),
    // AWS: access keys, long-term and temporary.
    shape("AKIA", 16, 16, capital),
    shape("ASIA", 16, 16, capital),
    shape("ABIA", 16, 16, capital),
    shape("ACCA", 16, 16, capital),
    // GitHub.
    shape("ghp_", 30, ANY, letter),
    shape("gho_", 30, ANY, letter),
    shape("ghu_", 30, ANY, letter),
    shape("ghs_", 30, ANY, letter),
    shape("ghr_", 30, ANY, letter),
    shape("github_pat_", 22, ANY, name),
    // GitLab.
    shape("glpat-", 20, ANY, dashed),
    shape("gldt-", 20, ANY, dashed),
    shape("glrt-", 20, ANY, dashed),
    shape("glptt-", 20, ANY, dashed),
    // Atlassian.
    shape("ATATT3", 60, ANY, signed),
    // Slack.
    wordy("xoxa-", 10, ANY, dashed),
    wordy("xoxb-", 10, ANY, dashed),
    wordy("xoxc-", 10, ANY, dashed),
    wordy("xoxd-", 10, ANY, dashed),
    wordy("xoxe", 10, ANY, dotted),
    wordy("xoxo-", 10, ANY, dashed),
    wordy("xoxp-", 10, ANY, dashed),
    wordy("xoxr-", 10, ANY, dashed),
    wordy("xoxs-", 10, ANY, dashed),
    wordy("xapp-", 10, ANY, dashed),
    after("hooks.slack.com/services/", 20),
    // Discord and Telegram.
    after("discord.com/api/webhooks/", 20),
    after("discordapp.com/api/webhooks/", 20),
    // Google.
    shape("AIza", 35, 35, dashed),
    wordy("ya29.", 30, ANY, dashed),
    shape("GOCSPX-", 20, ANY, dashed),
    // Stripe.
    shape("sk_live_", 16, ANY, letter),
    shape("sk_test_", 16, ANY, letter),
    shape("rk_live_", 16, ANY, letter),
    shape("rk_test_", 16, ANY, letter),
    shape("whsec_", 24, ANY, base64),
    // Model providers.
    wordy("sk-", 20, ANY, dashed),
    shape("hf_", 30, ANY, letter),
    shape("gsk_", 40, ANY, letter),
    shape("xai-", 60, ANY, letter),
    shape("pplx-", 40, ANY, letter),
    shape("r8_", 30, ANY, letter),
    // Mail.
    shape("SG.", 60, ANY, dotted),
    wordy("key-", 32, 32, lower_hexadecimal),
    // Packages and infrastructure.
    shape("npm_", 36, ANY, letter),
    shape("pypi-", 50, ANY, dashed),
    shape("dop_v1_", 64, 64, lower_hexadecimal),
    shape("dckr_pat_", 20, ANY, dashed),
    shape("hvs.", 24, ANY, dashed),
    shape("AGE-SECRET-KEY-1", 40, ANY, capital),
    // Shops.
    shape("shpat_", 32, ANY, letter),
    shape("shpca_", 32, ANY, letter),
    shape("shppa_", 32, ANY, letter),
    shape("shpss_", 32, ANY, letter),
    // Aliyun and Tencent Cloud.
    wordy("LTAI", 12, 24, letter),
    wordy("AKID", 32, 36, letter),
];

impl KeyShape {
    /// True if no letter or digit may stand before the prefix. Long prefixes that end in a sign are no
    /// ends of words, and the text after them is judged by its length.
    fn needs_boundary(&self) -> bool {
        !self.keeps_prefix
            && (self.is_wordy || self.prefix.len() < 4 || !self.prefix.ends_with(['_', '-', '.']))
    }

    /// The key that begins at `start`, if it is one.
    pub(super) fn key(&self, text: &[u8], start: usize) -> Option<Span> {
        if self.needs_boundary() && !is_boundary(text, start) {
            return None;
        }
        let secret = start + self.prefix.len();
        // Judged by no more than the fewest, so that what fails has cost little.
        let beginning = text.get(secret..secret + self.fewest)?;
        if !beginning.iter().all(|it| (self.characters)(*it)) {
            return None;
        }
        if self.is_wordy {
            let looked_at = &text[..text.len().min(secret + LOOKED_AT)];
            if reads_like_words(&text[secret..run_end(looked_at, secret, self.characters)]) {
                return None;
            }
        }
        let end = if self.most == ANY {
            run_end(text, secret, self.characters)
        } else {
            let end = (secret + self.most).min(text.len());
            let end = run_end(&text[..end], secret, self.characters);
            if text.get(end).is_some_and(|it| it.is_ascii_alphanumeric()) {
                return None;
            }
            end
        };
        let start = if self.keeps_prefix { secret } else { start };
        Some(Span {
            start,
            end,
            label: Label::ApiKey,
        })
    }
}

/// True if the text consists of words: parts of small letters, perhaps with a capital in front or all
/// in capitals, none longer than words are. One random key of 20 characters in a million is such.
pub(super) fn reads_like_words(text: &[u8]) -> bool {
    text.split(|it| !it.is_ascii_alphanumeric()).all(|word| {
        let has_capital_inside = word
            .windows(2)
            .any(|it| it[0].is_ascii_lowercase() && it[1].is_ascii_uppercase());
        word.len() <= LONGEST_WORD && !word.iter().any(u8::is_ascii_digit) && !has_capital_inside
    })
}

/// True if a word may begin at `start`: no part of one stands before it, or an escape does, as in JSON
/// within a text (`\nsk-…`, `\u0022sk-…`), a URL (`%20sk-…`) or colours (`␛[31msk-…`).
pub(super) fn is_boundary(text: &[u8], start: usize) -> bool {
    let hexadecimal = |it: &[u8]| it.iter().all(u8::is_ascii_hexdigit);
    match &text[..start] {
        [] => true,
        [.., last] if !last.is_ascii_alphanumeric() => true,
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'%', a, b] | [.., b'\\', b'x', a, b] => hexadecimal(&[*a, *b]),
        [.., b'\\', b'u', a, b, c, d] => hexadecimal(&[*a, *b, *c, *d]),
        before @ [.., b'm'] => {
            let code = before[..start - 1].iter().rev().take(16);
            let code = code.take_while(|it| it.is_ascii_digit() || **it == b';');
            before[..start - 1 - code.count()].ends_with(b"[")
        }
        _ => false,
    }
}

fn capital(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn lower_hexadecimal(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn dashed(byte: u8) -> bool {
    name(byte) || byte == b'-'
}

fn dotted(byte: u8) -> bool {
    dashed(byte) || byte == b'.'
}

fn base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

fn signed(byte: u8) -> bool {
    dashed(byte) || byte == b'='
}

fn path(byte: u8) -> bool {
    dashed(byte) || byte == b'/'
}
