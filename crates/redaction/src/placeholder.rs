//! Placeholder that replaces a secret.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write as _;

/// Kind of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// By the name that stands before it.
    Secret,
    /// By a pointer.
    Value,
    Card,
    Token,
    Jwt,
    PrivateKey,
    ApiKey,
    /// Of an address.
    Password,
}

impl Label {
    const ALL: [Self; 8] = [
        Self::Secret,
        Self::Value,
        Self::Card,
        Self::Token,
        Self::Jwt,
        Self::PrivateKey,
        Self::ApiKey,
        Self::Password,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Value => "value",
            Self::Card => "card",
            Self::Token => "token",
            Self::Jwt => "jwt",
            Self::PrivateKey => "private key",
            Self::ApiKey => "api key",
            Self::Password => "password",
        }
    }
}

const BEGINNING: &str = "[redacted ";

/// The hexadecimal digits of a digest that are shown: 64 bits, so that among millions of values two
/// are not taken for the same.
const DIGITS: usize = 16;

/// Writes placeholders, with digests that only a holder of the key can make.
#[derive(Clone)]
pub(crate) struct Placeholders(Hmac<Sha256>);

impl Placeholders {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        Self(Hmac::new_from_slice(key).expect("a key of any length will do"))
    }

    /// A digest of a digest that only a holder of the key can make. It is none of those of
    /// placeholders, which are shorter.
    pub(crate) fn keyed(&self, digest: &[u8; 32]) -> [u8; 32] {
        let mut mac = self.0.clone();
        mac.update(digest);
        mac.finalize().into_bytes().into()
    }

    /// Appends what stands for `secret`. Cards that differ by their separators alone, and tokens
    /// with and without the word that says what they are, have the same digest.
    pub(crate) fn write(&self, label: Label, secret: &str, into: &mut String) {
        let mut mac = self.0.clone();
        if label == Label::Card {
            let digits: Vec<u8> = secret.bytes().filter(u8::is_ascii_digit).collect();
            mac.update(&digits);
        } else {
            mac.update(without_scheme(secret).as_bytes());
        }
        let digest = mac.finalize().into_bytes();
        into.push_str(BEGINNING);
        into.push_str(label.as_str());
        into.push(' ');
        for byte in &digest[..DIGITS / 2] {
            let _ = write!(into, "{byte:02x}");
        }
        into.push(']');
    }
}

/// `Bearer x` is the secret `x`.
fn without_scheme(secret: &str) -> &str {
    match secret.split_once(' ') {
        Some((scheme, rest))
            if ["bearer", "basic"]
                .iter()
                .any(|it| scheme.eq_ignore_ascii_case(it)) =>
        {
            rest.trim_start()
        }
        _ => secret,
    }
}

/// The length of the placeholder that `text` begins with, if it does. Nothing can be hidden in what
/// looks like one.
pub(crate) fn length_at_start(text: &str) -> Option<usize> {
    let rest = text.strip_prefix(BEGINNING)?;
    Label::ALL.iter().find_map(|label| {
        let digest = rest.strip_prefix(label.as_str())?.strip_prefix(' ')?;
        let digest = digest.as_bytes().get(..=DIGITS)?;
        let is_digest = digest[..DIGITS]
            .iter()
            .all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        (is_digest && digest[DIGITS] == b']')
            .then(|| BEGINNING.len() + label.as_str().len() + 1 + DIGITS + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placeholder(key: u8, label: Label, secret: &str) -> String {
        let mut text = String::new();
        Placeholders::new(&[key; 32]).write(label, secret, &mut text);
        text
    }

    #[test]
    fn digests_are_those_of_rfc_2104() {
        // HMAC-SHA256 with 32 bytes of 1 over "secret", by another implementation.
        assert_eq!(
            placeholder(1, Label::Secret, "secret"),
            "[redacted secret d0f96e0e09173c52]"
        );
    }

    #[test]
    fn equal_secrets_are_equal_and_other_keys_make_others() {
        let same = placeholder(1, Label::Card, "4111 1111 1111 1111");
        assert_eq!(same, placeholder(1, Label::Card, "4111-1111-1111-1111"));
        assert_ne!(same, placeholder(2, Label::Card, "4111 1111 1111 1111"));
        let digest = |text: &str| text.rsplit_once(' ').unwrap().1.to_owned();
        let bearer = placeholder(1, Label::Secret, "Bearer abc");
        assert_eq!(
            digest(&bearer),
            digest(&placeholder(1, Label::Token, "abc"))
        );
    }

    #[test]
    fn placeholders_are_known_again_and_nothing_else_is() {
        for label in Label::ALL {
            let text = placeholder(3, label, "x");
            assert_eq!(
                length_at_start(&format!("{text} y")),
                Some(text.len()),
                "{text}"
            );
        }
        for text in [
            "[redacted card]",
            "[redacted secret hunter2hunter2hu]",
            "[redacted secret 0123456789abcdef0]",
            "[redacted secret 0123456789abcde]",
            "[redacted hunter2 0123456789abcdef]",
            "[redacted é",
        ] {
            assert_eq!(length_at_start(text), None, "{text}");
        }
    }
}
