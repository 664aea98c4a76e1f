//! Estimate of the tokens that a text takes in a model's context.

/// The letters that a token of an English word has at most, on the whole.
const LETTERS: usize = 6;
/// The marks in a row that share a token, as `":"` and `},{` do.
const MARKS: usize = 3;

/// An estimate: every model cuts text in its own way. It follows what byte pair encodings have in
/// common: a word with the space before it is one token unless it is long, digits and marks go in
/// threes, and a character of Chinese is a token.
pub(super) fn estimate(text: &str) -> usize {
    let mut tokens = 0;
    let mut run = Run::default();
    for character in text.chars() {
        let kind = Kind::of(character);
        if kind != run.kind {
            tokens += run.tokens();
            run = Run { kind, length: 0 };
        }
        run.length += 1;
    }
    tokens + run.tokens()
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Space,
    Letters,
    Digits,
    Marks,
    Other,
}

impl Kind {
    fn of(character: char) -> Self {
        match character {
            ' ' | '\t' | '\r' | '\n' => Self::Space,
            'a'..='z' | 'A'..='Z' => Self::Letters,
            '0'..='9' => Self::Digits,
            _ if character.is_ascii() => Self::Marks,
            _ => Self::Other,
        }
    }
}

#[derive(Default)]
struct Run {
    kind: Kind,
    length: usize,
}

impl Run {
    fn tokens(&self) -> usize {
        match self.kind {
            // One space belongs to the word after it.
            Kind::Space => usize::from(1 < self.length),
            Kind::Letters => self.length.div_ceil(LETTERS),
            Kind::Digits | Kind::Marks => self.length.div_ceil(MARKS),
            Kind::Other => self.length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_marks_and_characters_count_as_models_count_them() {
        for (text, tokens) in [
            ("", 0),
            ("stock", 1),
            ("Shows what is in stock.", 6),
            ("internationalization", 4),
            (r#"{"type":"string"}"#, 5),
            ("2026", 2),
            ("查询库存", 4),
            ("\n\n", 1),
        ] {
            assert_eq!(estimate(text), tokens, "{text}");
        }
    }
}
