//! Private keys that come in lines, one after another.

use crate::{Redactor, placeholder::Label};
use memchr::memmem;
use std::{borrow::Cow, sync::LazyLock};

/// The most lines after the first that belong to a private key. The longest of RSA, with 16,384 bits,
/// has 195.
const MAX_LINES: u32 = 200;

/// The fewest characters of base64 that are taken for a part of a key.
const FEWEST: usize = 20;

/// The longest name of what a PEM block contains.
const LONGEST_NAME: usize = 64;

/// Parts of the signs of the beginning and of the end of a key, one of which is in each: prepared once, and looked for
/// forwards, since nearly no line has any.
static SIGNS: LazyLock<[memmem::Finder<'static>; 5]> = LazyLock::new(|| {
    [
        "PRIVATE KEY",
        "--END ",
        "-- END ",
        "PuTTY-User-Key-File-",
        "Private-MAC:",
    ]
    .map(memmem::Finder::new)
});

/// A private key that has begun in a line of a log and not ended. A program that prints one prints
/// a line at a time, and lines of others come between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenKey {
    /// Number of lines that may follow.
    left: u32,
}

impl OpenKey {
    /// Takes what may be a part of the key that is open out of a line that `redactor` has seen as
    /// `redacted`: all base64 of 20 characters and more. `line` is the line before.
    #[must_use]
    pub fn go_on<'a>(
        &mut self,
        redactor: &Redactor,
        line: &str,
        redacted: Cow<'a, str>,
    ) -> Cow<'a, str> {
        let was_open = self.is_open();
        self.see(line);
        if !was_open || !redactor.finds_private_keys() {
            return redacted;
        }
        let mut out = String::new();
        let mut copied = 0;
        let mut start = 0;
        let bytes = redacted.as_bytes();
        while start < bytes.len() {
            let run = bytes[start..]
                .iter()
                .take_while(|it| is_base64(**it))
                .count();
            if FEWEST <= run {
                out.push_str(&redacted[copied..start]);
                redactor.write_placeholder(
                    Label::PrivateKey,
                    &redacted[start..start + run],
                    &mut out,
                );
                copied = start + run;
            }
            start += run + 1;
        }
        if copied == 0 {
            return redacted;
        }
        out.push_str(&redacted[copied..]);
        Cow::Owned(out)
    }

    /// True if a key has begun and not ended.
    pub(crate) fn is_open(self) -> bool {
        self.left != 0
    }

    /// Notes the beginning or the end of a key in the line.
    pub(crate) fn see(&mut self, line: &str) {
        let line = line.as_bytes();
        if !SIGNS.iter().any(|sign| sign.find(line).is_some()) {
            self.left = self.left.saturating_sub(1);
            return;
        }
        let latest = |signs: [&str; 2]| {
            let found = signs.map(|sign| memmem::rfind(line, sign.as_bytes()));
            found.into_iter().flatten().max()
        };
        let begins = memmem::rfind(line, b"PRIVATE KEY")
            .and_then(|name| {
                let from = name.saturating_sub(LONGEST_NAME);
                let sign = memmem::rfind(&line[from..name], b"-- BEGIN ");
                sign.or_else(|| memmem::rfind(&line[from..name], b"--BEGIN "))
                    .map(|at| from + at)
            })
            .max(memmem::rfind(line, b"PuTTY-User-Key-File-"));
        let ends = latest(["---END ", "--- END "]).max(memmem::rfind(line, b"Private-MAC:"));
        self.left = match (begins, ends) {
            (Some(begins), ends) if ends.is_none_or(|ends| ends < begins) => MAX_LINES,
            (_, Some(_)) => 0,
            _ => self.left.saturating_sub(1),
        };
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Detectors, Spec};

    fn lines(redactor: &Redactor, lines: &[String]) -> Vec<String> {
        let mut open = OpenKey::default();
        let redacted = lines
            .iter()
            .map(|line| open.go_on(redactor, line, redactor.text(line)).into_owned());
        redacted.collect()
    }

    fn texts(begin: &str, end: &str) -> Vec<String> {
        let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
        let line = |text: &str| format!("INFO a handler says line=\"{text}\" worker=1");
        let mut all = vec![line("before ABCDEFGHIJKLMNOPQRSTUVWXYZ"), line(begin)];
        all.extend((0..3).map(|_| line(body)));
        all.extend([
            line(&body[..24]),
            line(end),
            line("after ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        ]);
        all
    }

    #[test]
    fn a_key_in_lines_is_taken_out_from_its_first_to_its_last() {
        let redactor = Redactor::new(&Spec::default(), [1; 32]).unwrap();
        for (begin, end) in [
            (
                "-----BEGIN RSA PRIVATE KEY-----",
                "-----END RSA PRIVATE KEY-----",
            ),
            (
                "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----",
                "---- END SSH2 ENCRYPTED PRIVATE KEY ----",
            ),
            ("PuTTY-User-Key-File-3: ssh-ed25519", "Private-MAC: 00ff"),
        ] {
            let texts = texts(begin, end);
            let redacted = lines(&redactor, &texts);
            let all = redacted.join("\n");
            assert!(!all.contains("MIIE"), "{all}");
            assert!(all.contains("worker=1"), "{all}");
            assert_eq!((&redacted[0], redacted.last()), (&texts[0], texts.last()));
        }
    }

    #[test]
    fn lines_without_a_private_key_stay() {
        let redactor = Redactor::new(&Spec::default(), [1; 32]).unwrap();
        let texts = texts("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
        assert_eq!(lines(&redactor, &texts), texts);
        let spec = Spec {
            detectors: Detectors::none(),
            ..Spec::default()
        };
        let blind = Redactor::new(&spec, [1; 32]).unwrap();
        let texts = super::tests::texts("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
        assert_eq!(lines(&blind, &texts), texts);
    }

    #[test]
    fn a_key_that_never_ends_is_over_after_some_lines() {
        let redactor = Redactor::new(&Spec::default(), [1; 32]).unwrap();
        let long = "A".repeat(64);
        let mut texts = vec!["-----BEGIN PRIVATE KEY-----".to_owned()];
        texts.extend(vec![long.clone(); 300]);
        let redacted = lines(&redactor, &texts);
        let left = redacted.iter().filter(|it| **it == long).count();
        assert_eq!(left, 300 - MAX_LINES as usize);
        let whole = "-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----".to_owned();
        assert_eq!(lines(&redactor, &[whole, long.clone()])[1], long);
    }
}
