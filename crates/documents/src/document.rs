//! Split of a document into front matter and Markdown.

/// The text of a document, in its two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// The YAML between the two `---` lines, without them. It begins on line 2 of the file.
    pub frontmatter: &'a str,
    /// Text after the closing line; may be empty.
    pub body: &'a str,
}

/// A text is no document with front matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The first line is not `---`.
    #[error("the file does not start with a `---` line")]
    NoFrontmatter,
    /// There is no second `---` line.
    #[error("the front matter is not closed by a `---` line")]
    Unterminated,
}

/// The start of a text, cut between two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excerpt<'a> {
    /// Text that is left.
    pub text: &'a str,
    /// True if anything was cut off.
    pub is_cut: bool,
}

impl<'a> Document<'a> {
    /// Splits `text` exactly where OwlClaw does, whose expression is
    /// `^---\r?\n(.*?)\r?\n---(?:\r?\n(.*))?$` on the text without its byte order mark, `.` being
    /// any character. So neither `---` line may have trailing spaces, and a front matter needs at
    /// least one line, if an empty one.
    ///
    /// # Errors
    ///
    /// [`SplitError`], if there is no front matter.
    pub fn split(text: &'a str) -> Result<Self, SplitError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let rest = text
            .strip_prefix("---\n")
            .or_else(|| text.strip_prefix("---\r\n"))
            .ok_or(SplitError::NoFrontmatter)?;
        for (end, _) in rest.match_indices("\n---") {
            let after = &rest[end + "\n---".len()..];
            let body = if after.is_empty() {
                Some(after)
            } else {
                after
                    .strip_prefix('\n')
                    .or_else(|| after.strip_prefix("\r\n"))
            };
            if let Some(body) = body {
                let frontmatter = &rest[..end];
                let frontmatter = frontmatter.strip_suffix('\r').unwrap_or(frontmatter);
                return Ok(Self { frontmatter, body });
            }
        }
        Err(SplitError::Unterminated)
    }
}

/// As many whole lines of `text` as fit into `max_bytes`. If not even the first line does, as many
/// of its characters as do.
#[must_use]
pub fn excerpt_at_line(text: &str, max_bytes: usize) -> Excerpt<'_> {
    if text.len() <= max_bytes {
        return Excerpt {
            text,
            is_cut: false,
        };
    }
    let end = text.floor_char_boundary(max_bytes);
    // A line that ends exactly here is whole: its line break is the next byte.
    let fits = &text[..end];
    let whole_lines = if text[end..].starts_with('\n') {
        end
    } else {
        fits.rfind('\n').map_or(end, |newline| newline + 1)
    };
    Excerpt {
        text: &text[..whole_lines],
        is_cut: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts<'a> = Result<(&'a str, &'a str), SplitError>;

    #[test]
    fn front_matter_is_split_as_the_expression_does() {
        let rows: [(&str, Parts<'_>); 17] = [
            ("---\na: 1\n---\nbody", Ok(("a: 1", "body"))),
            ("---\r\na: 1\r\n---\r\nbody\r\n", Ok(("a: 1", "body\r\n"))),
            ("\u{feff}---\na: 1\n---\n", Ok(("a: 1", ""))),
            ("---\na: 1\n---", Ok(("a: 1", ""))),
            ("---\n\n---\n", Ok(("", ""))),
            ("---\na\n--- \nb\n---\nc", Ok(("a\n--- \nb", "c"))),
            ("---\na\n----\nb\n---\nc", Ok(("a\n----\nb", "c"))),
            ("---\na\n---\nb\n---\nc", Ok(("a", "b\n---\nc"))),
            // The line break before the closing line is not there to be matched twice.
            ("---\n---\n", Err(SplitError::Unterminated)),
            ("---\n---\na: 1\n---\n", Ok(("---\na: 1", ""))),
            ("---\na: 1\n", Err(SplitError::Unterminated)),
            ("---\na: 1\n---\rbody", Err(SplitError::Unterminated)),
            ("--- \na: 1\n---\n", Err(SplitError::NoFrontmatter)),
            ("\n---\na: 1\n---\n", Err(SplitError::NoFrontmatter)),
            ("# Title", Err(SplitError::NoFrontmatter)),
            ("", Err(SplitError::NoFrontmatter)),
            ("---", Err(SplitError::NoFrontmatter)),
        ];
        for (text, expected) in rows {
            let document = Document::split(text);
            let parts = document.map(|it| (it.frontmatter, it.body));
            assert_eq!(parts, expected, "{text:?}");
        }
    }

    #[test]
    fn an_excerpt_ends_with_a_line() {
        let rows = [
            ("one\ntwo\n", 8, "one\ntwo\n", false),
            ("one\ntwo\n", 7, "one\ntwo", true),
            ("one\ntwo\n", 6, "one\n", true),
            ("one\ntwo\n", 3, "one", true),
            ("one\ntwo\n", 2, "on", true),
            ("one", 0, "", true),
            ("", 0, "", false),
            ("交易监控", 7, "交易", true),
            ("a\n交易", 3, "a\n", true),
        ];
        for (text, max_bytes, expected, is_cut) in rows {
            let excerpt = excerpt_at_line(text, max_bytes);
            assert_eq!(excerpt.text, expected, "{text:?} to {max_bytes}");
            assert_eq!(excerpt.is_cut, is_cut, "{text:?} to {max_bytes}");
        }
    }
}
