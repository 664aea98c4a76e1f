//! Texts that PostgreSQL does not take as they are.
//!
//! Its texts hold every character but the first, U+0000, which callers may well send. It is stored
//! as two others, and so is the first of those, for everything to be read back as it was.

use std::borrow::Cow;

/// Escape character. Of private use: texts hardly ever contain it.
const ESCAPE: char = '\u{E000}';

/// A text as it is stored.
pub(super) fn stored(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => out.extend([ESCAPE, '0']),
            ESCAPE => out.extend([ESCAPE, '1']),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

/// A text as it was.
pub(super) fn restored(text: String) -> String {
    if !text.contains(ESCAPE) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE => match characters.next() {
                Some('0') => out.push('\0'),
                Some('1') => out.push(ESCAPE),
                // Not written here; let it be seen.
                other => {
                    out.push(ESCAPE);
                    out.extend(other);
                }
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_text_is_restored(text in "[\\x00\u{E000}01aé]{0,12}") {
            let kept = stored(&text).into_owned();
            prop_assert!(!kept.contains('\0'));
            prop_assert_eq!(restored(kept), text);
        }
    }
}
