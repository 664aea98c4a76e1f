use std::fmt;

/// A place in a frame, for people: lines and columns count from one, columns in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The byte within the line, from 1.
    pub column: usize,
}

impl Position {
    /// The position of the byte at `offset`; beyond the end, the end.
    pub(crate) fn of(frame: &[u8], offset: usize) -> Self {
        let before = &frame[..offset.min(frame.len())];
        let line_start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |newline| newline + 1);
        Self {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + before.len() - line_start,
        }
    }

    /// The position, in the whole frame, of a parser's error in the part that begins at `start`.
    pub(crate) fn within(frame: &[u8], start: usize, error: &serde_json::Error) -> Self {
        let origin = Self::of(frame, start);
        // serde_json reports column 0 for the very beginning of a line.
        let column = error.column().max(1);
        if error.line() <= 1 {
            Self {
                line: origin.line,
                column: origin.column + column - 1,
            }
        } else {
            Self {
                line: origin.line + error.line() - 1,
                column,
            }
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A parser's message without the position it appends, which is relative to the part it was given.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.rfind(" at line ") {
        text.truncate(at);
    }
    text
}
