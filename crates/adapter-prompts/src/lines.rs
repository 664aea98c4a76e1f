//! Line breaks of templates: a line that holds nothing but tags and comments leaves nothing behind, and every other line
//! keeps its end and its indentation.
//!
//! The template engine takes the line break after any tag and the blanks before it. What is kept of them is said by a `+`
//! in the tag, so that the lines of the template, which errors name, stay what they are.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// The template that is compiled for the text of an author.
pub(crate) fn kept(source: &str, includes: &BTreeMap<String, Arc<str>>) -> String {
    let mut out = String::with_capacity(source.len() + 16);
    for line in lines(source) {
        line.write(source, includes, &mut out);
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// `{{ … }}`
    Output,
    /// `{% … %}`
    Tag,
    /// `{# … #}`
    Comment,
}

struct Piece {
    kind: Kind,
    range: Range<usize>,
}

impl Piece {
    /// A tag or a comment, which leaves no text itself.
    fn is_mark(&self) -> bool {
        matches!(self.kind, Kind::Tag | Kind::Comment)
    }

    /// The byte where a sign may stand: behind its beginning, and before its end.
    fn signs(&self, source: &str) -> (Option<u8>, Option<u8>) {
        let bytes = &source.as_bytes()[self.range.clone()];
        let sign = |at: usize| bytes.get(at).copied().filter(|it| b"+-".contains(it));
        (sign(2), bytes.len().checked_sub(3).and_then(sign))
    }

    /// The file that this tag puts in.
    fn included<'a>(&self, source: &'a str) -> Option<&'a str> {
        let tag = source[self.range.clone()].strip_prefix("{%")?;
        let tag = tag.trim_start_matches(['-', '+']).trim_start();
        let name = tag.strip_prefix("include")?.trim_start();
        let quote = name.chars().next().filter(|it| ['"', '\''].contains(it))?;
        name[1..].split_once(quote).map(|(name, _)| name)
    }
}

/// The pieces between two line breaks that are not inside of a tag.
#[derive(Default)]
struct Line {
    pieces: Vec<Piece>,
    line_break: Range<usize>,
}

impl Line {
    fn is_blank(piece: &Piece, source: &str) -> bool {
        piece.kind == Kind::Text && source[piece.range.clone()].trim().is_empty()
    }

    /// True for nothing but tags and comments, and at least one.
    fn is_bare(&self, source: &str) -> bool {
        let mut pieces = self.pieces.iter();
        self.pieces.iter().any(Piece::is_mark)
            && pieces.all(|it| it.is_mark() || Self::is_blank(it, source))
    }

    fn write(&self, source: &str, includes: &BTreeMap<String, Arc<str>>, out: &mut String) {
        let is_bare = self.is_bare(source);
        let has_plus = self.pieces.iter().any(|it| {
            let (begin, end) = it.signs(source);
            it.is_mark() && (begin == Some(b'+') || end == Some(b'+'))
        });
        if is_bare && has_plus {
            // The author says what stays.
            let pieces = self.pieces.iter();
            pieces.for_each(|it| out.push_str(&source[it.range.clone()]));
            out.push_str(&source[self.line_break.clone()]);
            return;
        }
        let last = self.pieces.len().saturating_sub(1);
        for (index, piece) in self.pieces.iter().enumerate() {
            let text = &source[piece.range.clone()];
            if !piece.is_mark() {
                if !is_bare || index == 0 {
                    out.push_str(text);
                }
                continue;
            }
            let (begin, end) = piece.signs(source);
            // Blanks before the first piece of a line that has text.
            let is_indented = index == 1 && Self::is_blank(&self.pieces[0], source);
            let keeps_begin = !is_bare && is_indented && begin.is_none();
            let closes = match is_bare {
                // Blanks behind it are left out.
                true => !self.pieces[index + 1..].iter().any(Piece::is_mark),
                false => index == last,
            };
            let has_break = match is_bare {
                true => {
                    let mut files = self.pieces.iter().rev();
                    let file = files.find_map(|it| it.included(source));
                    file.is_none_or(|it| ends_with_break(it, includes))
                }
                false => {
                    let file = piece.included(source);
                    file.is_some_and(|it| ends_with_break(it, includes))
                }
            };
            let keeps_end = closes && !has_break && end.is_none() && !self.line_break.is_empty();
            // What is shorter, or has no end, is refused when it is compiled.
            let (Some(opening), Some(inner), Some(closing)) = (
                text.get(..2),
                text.get(2..text.len().saturating_sub(2)),
                text.get(text.len().saturating_sub(2).max(2)..),
            ) else {
                out.push_str(text);
                continue;
            };
            out.push_str(opening);
            if keeps_begin {
                out.push('+');
            }
            out.push_str(inner);
            if keeps_end {
                out.push_str(" +");
            }
            out.push_str(closing);
        }
        out.push_str(&source[self.line_break.clone()]);
    }
}

/// True if what a file puts in ends with a line break of its own.
fn ends_with_break(name: &str, includes: &BTreeMap<String, Arc<str>>) -> bool {
    let Some(source) = includes.get(name) else {
        return true;
    };
    let lines = lines(source);
    let Some(line) = lines.last() else {
        return false;
    };
    if !line.line_break.is_empty() {
        return true;
    }
    // Files do not include themselves, which has been looked for.
    let file = line
        .pieces
        .iter()
        .rev()
        .find(|it| !Line::is_blank(it, source));
    match file.and_then(|it| it.included(source)) {
        Some(file) => ends_with_break(file, includes),
        None => line.is_bare(source) && lines.len() > 1,
    }
}

fn lines(source: &str) -> Vec<Line> {
    let mut lines = vec![Line::default()];
    for piece in pieces(source) {
        let mut from = piece.range.start;
        if piece.kind == Kind::Text {
            let text = &source[piece.range.clone()];
            for (at, _) in text.match_indices('\n') {
                let at = piece.range.start + at;
                let end = match at > from && source.as_bytes()[at - 1] == b'\r' {
                    true => at - 1,
                    false => at,
                };
                if let Some(line) = lines.last_mut() {
                    line.push(Kind::Text, from..end);
                    line.line_break = end..at + 1;
                }
                lines.push(Line::default());
                from = at + 1;
            }
        }
        if let Some(line) = lines.last_mut() {
            line.push(piece.kind, from..piece.range.end);
        }
    }
    // Behind the last line break is no line.
    if lines.last().is_some_and(|it| it.pieces.is_empty()) {
        lines.pop();
    }
    lines
}

impl Line {
    fn push(&mut self, kind: Kind, range: Range<usize>) {
        if !range.is_empty() {
            self.pieces.push(Piece { kind, range });
        }
    }
}

fn pieces(source: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut is_raw = false;
    while at < source.len() {
        let rest = &source[at..];
        let begin = match is_raw {
            true => rest
                .match_indices("{%")
                .map(|it| it.0)
                .find(|it| word(&rest[*it..]) == "endraw"),
            false => ["{{", "{%", "{#"]
                .iter()
                .filter_map(|it| rest.find(it))
                .min(),
        };
        let begin = at + begin.unwrap_or(rest.len());
        if at < begin {
            let range = at..begin;
            found.push(Piece {
                kind: Kind::Text,
                range,
            });
        }
        if begin == source.len() {
            break;
        }
        let rest = &source[begin..];
        let (kind, length) = match &rest[..2] {
            "{{" => (Kind::Output, end(rest, "}}")),
            "{%" => (Kind::Tag, end(rest, "%}")),
            _ => (Kind::Comment, rest[2..].find("#}").map(|it| it + 4)),
        };
        is_raw = kind == Kind::Tag && word(rest) == "raw";
        at = begin + length.unwrap_or(rest.len());
        let range = begin..at;
        found.push(Piece { kind, range });
    }
    found
}

/// The first word of a tag.
fn word(tag: &str) -> &str {
    let tag = tag[2..].trim_start_matches(['-', '+']).trim_start();
    let end = tag.find(|it: char| !it.is_alphanumeric() && it != '_');
    &tag[..end.unwrap_or(tag.len())]
}

/// The length of what ends with `closing` outside of quotes.
fn end(text: &str, closing: &str) -> Option<usize> {
    let mut quote = None;
    let mut is_escaped = false;
    for (at, it) in text.char_indices().skip(2) {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if it == '\\' => is_escaped = true,
            Some(open) if it == open => quote = None,
            Some(_) => {}
            None if it == '"' || it == '\'' => quote = Some(it),
            None if text[at..].starts_with(closing) => return Some(at + closing.len()),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(source: &str, files: &[(&str, &str)]) -> String {
        let files = files.iter();
        let includes: BTreeMap<String, Arc<str>> = files
            .map(|(name, text)| ((*name).to_owned(), Arc::from(*text)))
            .collect();
        let mut environment = crate::template::environment();
        for (name, text) in &includes {
            let added = environment.add_template_owned(name.clone(), kept(text, &includes));
            assert!(added.is_ok(), "{text}");
        }
        let template = kept(source, &includes);
        let compiled = environment.template_from_str(&template);
        let context = [("n", 5)].into_iter().collect::<BTreeMap<_, _>>();
        match compiled.and_then(|it| it.render(context)) {
            Ok(text) => text,
            Err(error) => panic!("{template}: {error}"),
        }
    }

    #[test]
    fn a_line_with_text_keeps_its_end_and_its_indentation() {
        for (source, expected) in [
            (
                "Total: {% if n %}{{ n }}{% endif %}\nPay now.",
                "Total: 5\nPay now.",
            ),
            ("a {# c #}\nb", "a \nb"),
            ("{# c #}a{##}\nb", "a\nb"),
            (
                "{% for i in [1, 2] %}{{ i }},{% endfor %}\nend",
                "1,2,\nend",
            ),
            ("  {% if n %}x{% endif %}\ny", "  x\ny"),
            ("x {% if n %}\r\ny{% endif %}\r\nz", "x \r\ny\r\nz"),
            ("a{% set b = '%}' %}\n{{ b }}", "a\n%}"),
            ("a {% raw %}\n{{ n }}{% endraw %}\nb", "a \n{{ n }}\nb"),
            ("a{% if n -%}\n  b{% endif %}\nc", "ab\nc"),
        ] {
            assert_eq!(rendered(source, &[]), expected, "{source:?}");
        }
    }

    #[test]
    fn a_line_of_tags_and_comments_leaves_nothing() {
        for (source, expected) in [
            ("a\n  {% if n %}  \nb\n{% endif %}{# c #}\nc", "a\nb\nc"),
            ("{% if n %} {# c #}\nb\n\t{% endif %}\n", "b\n"),
            ("{#\n several\n lines\n#}\nb", "b"),
            ("{% set b = [\n1\n] %}\nb", "b"),
            ("{% raw %}\n{% if %}\n{% endraw %}\nb", "{% if %}\nb"),
            ("a\n{% if n +%}\nb{% endif %}", "a\n\nb"),
            ("{% if n %}\r\nb\r\n{% endif %}\r\nc", "b\r\nc"),
        ] {
            assert_eq!(rendered(source, &[]), expected, "{source:?}");
        }
    }

    #[test]
    fn an_included_file_ends_its_line_once() {
        let files = [
            ("_open.md", "open"),
            ("_line.md", "line\n"),
            ("_if.md", "{% if n %}\nif\n{% endif %}"),
            ("_none.md", "{% if not n %}\nif\n{% endif %}\n"),
            ("_both.md", "{% include '_line.md' %}"),
            ("_glue.md", "n: {% if n %}{{ n }}{% endif %}\nnext\n"),
        ];
        for (source, expected) in [
            ("{% include '_open.md' %}\nb", "open\nb"),
            ("{% include '_line.md' %}\nb", "line\nb"),
            ("{% include '_if.md' %}\nb", "if\nb"),
            ("{% include '_none.md' %}\nb", "b"),
            ("{% include '_both.md' %}\nb", "line\nb"),
            ("{% include '_glue.md' %}\nb", "n: 5\nnext\nb"),
            ("a {% include '_open.md' %}\nb", "a open\nb"),
            ("a {% include '_line.md' %}\nb", "a line\nb"),
            ("a {% include '_open.md' %} c\nb", "a open c\nb"),
        ] {
            assert_eq!(rendered(source, &files), expected, "{source:?}");
        }
    }

    #[test]
    fn what_is_no_template_stays_as_it_is() {
        for source in [
            "{% if", "{{ x", "{# x", "a {%\n", "{%%}\n", "{##}", "{#}\n", "{", "{%+%}\nb", "", "\n",
        ] {
            let kept = kept(source, &BTreeMap::new());
            assert_eq!(
                kept.matches('\n').count(),
                source.matches('\n').count(),
                "{source:?}: {kept:?}"
            );
        }
    }
}
