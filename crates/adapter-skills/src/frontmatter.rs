//! Front matter: the YAML at the top of a `SKILL.md`.

mod fields;
mod misplaced;
mod owlclaw;
mod tools;

use std::collections::BTreeMap;

use documents::{Document, SplitError, YamlError, parse_yaml};
use serde_json::{Map, Value};

pub use self::{
    fields::BadField,
    misplaced::rule_meant,
    owlclaw::{Constraints, OwlclawBlock, Prerequisites, RiskLevel, TaskHint, ToolHints},
    tools::ToolDeclaration,
};

/// The longest name of a skill, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// A front matter, read.
///
/// Where it deviates from what OwlClaw's Python reads: YAML 1.2 has no booleans but `true` and
/// `false` and no dates, so `yes` stays text in [`raw`](Self::raw) (fields that are booleans accept
/// it), and a key that occurs twice is an error instead of being overwritten.
#[derive(Clone, Debug, PartialEq)]
pub struct Frontmatter {
    /// `name`, which is also the name of the tool that the skill belongs to. Never empty.
    pub name: String,
    /// `description`. Never empty.
    pub description: String,
    /// `title`, or `metadata.title`.
    pub title: Option<String>,
    /// `metadata.author`, or `author`.
    pub author: Option<String>,
    /// `metadata.version`, or `version`.
    pub version: Option<String>,
    /// `industry`, or `metadata.industry`.
    pub industry: Option<String>,
    /// `license`, or `metadata.license`.
    pub license: Option<String>,
    /// `metadata.tags`, then those of `tags` that are not among them.
    pub tags: Vec<String>,
    /// The tools it declares, by name.
    pub tools: BTreeMap<String, ToolDeclaration>,
    /// The `owlclaw:` block.
    pub owlclaw: OwlclawBlock,
    /// Complete front matter, as it is written.
    pub raw: Map<String, Value>,
}

/// A front matter that makes no skill.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontmatterError {
    /// There is none.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// Not YAML, or beyond a bound.
    #[error("the front matter cannot be read: {0}")]
    Yaml(YamlError),
    /// YAML, but no map.
    #[error("the front matter is not a map of fields")]
    NotAMap,
    /// `name` or `description` is not there.
    #[error("`{field}` is missing")]
    Missing {
        /// Name of the field.
        field: &'static str,
    },
    /// `name` or `description` is empty, or no text.
    #[error("`{field}` is {problem}")]
    Unfit {
        /// Name of the field.
        field: &'static str,
        /// Description of what is wrong.
        problem: &'static str,
        /// The line in the file, counted from 1.
        line: Option<u64>,
    },
}

impl FrontmatterError {
    /// Line and column in the file, both counted from 1, where known.
    #[must_use]
    pub fn position(&self) -> Option<(u64, Option<u64>)> {
        match self {
            Self::Split(SplitError::NoFrontmatter) => Some((1, None)),
            Self::Split(SplitError::Unterminated) | Self::NotAMap | Self::Missing { .. } => None,
            Self::Yaml(error) => error.position.map(|(line, column)| (line, Some(column))),
            Self::Unfit { line, .. } => line.map(|line| (line, None)),
        }
    }

    /// Advice on what to do about it, in one sentence.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Split(SplitError::NoFrontmatter) => {
                "begin the file with a line of exactly `---`, then `name:` and `description:`"
            }
            Self::Split(SplitError::Unterminated) => {
                "end the front matter with a line of exactly `---`"
            }
            Self::Yaml(_) => {
                "check the indentation, and put quotes around texts that hold `: ` or ` #`"
            }
            Self::NotAMap => "write one `field: value` per line",
            Self::Missing { .. } => "`name` and `description` are both required",
            Self::Unfit { .. } => {
                "write a text that is not empty, in quotes if it looks like a number"
            }
        }
    }
}

impl Frontmatter {
    /// Reads the front matter at the top of a whole file, and says which fields were ignored.
    ///
    /// # Errors
    ///
    /// [`FrontmatterError`], with lines counted from the first one of `text`.
    pub fn parse(text: &str) -> Result<(Self, Vec<BadField>), FrontmatterError> {
        Self::parse_document(&Document::split(text)?)
    }

    /// Reads the front matter of a document that is split already.
    ///
    /// # Errors
    ///
    /// [`FrontmatterError`], but never [`FrontmatterError::Split`].
    pub fn parse_document(
        document: &Document<'_>,
    ) -> Result<(Self, Vec<BadField>), FrontmatterError> {
        let value = parse_yaml(document.frontmatter).map_err(|mut error| {
            // The opening `---` is the file's first line.
            error.position = error.position.map(|(line, column)| (line + 1, column));
            FrontmatterError::Yaml(error)
        })?;
        let Value::Object(raw) = value else {
            return Err(FrontmatterError::NotAMap);
        };
        let name = required(&raw, "name", document.frontmatter)?;
        let description = required(&raw, "description", document.frontmatter)?;
        let unfit_name = if name.len() > MAX_NAME_BYTES {
            Some("too long")
        } else {
            name.contains(char::is_control)
                .then_some("a text with control characters")
        };
        if let Some(problem) = unfit_name {
            return Err(FrontmatterError::Unfit {
                field: "name",
                problem,
                line: line_of("name", document.frontmatter),
            });
        }
        let (frontmatter, mut complaints) = Self::read(raw, name, description);
        for complaint in &mut complaints {
            complaint.line = line_of_path(&complaint.field, document.frontmatter);
        }
        Ok((frontmatter, complaints))
    }

    fn read(raw: Map<String, Value>, name: String, description: String) -> (Self, Vec<BadField>) {
        let mut complaints = Vec::new();
        let mut fields = fields::Fields {
            map: &raw,
            prefix: "",
            complaints: &mut complaints,
        };
        let metadata = fields.map("metadata", fields::IGNORED).unwrap_or_default();
        let [title, author, version, industry, license] =
            ["title", "author", "version", "industry", "license"].map(|key| fields.text(key));
        let more_tags = fields.texts("tags");
        let mut fields = fields::Fields {
            map: &metadata,
            prefix: "metadata.",
            complaints: &mut complaints,
        };
        let mut tags = fields.texts("tags");
        tags.extend(more_tags);
        let frontmatter = Self {
            name,
            description,
            title: title.or_else(|| fields.text("title")),
            author: fields.text("author").or(author),
            version: fields.text("version").or(version),
            industry: industry.or_else(|| fields.text("industry")),
            license: license.or_else(|| fields.text("license")),
            tags: without_repetitions(tags),
            tools: tools::read(&raw, &mut complaints),
            owlclaw: OwlclawBlock::read(&raw, &mut complaints),
            raw,
        };
        (frontmatter, complaints)
    }
}

fn required(
    raw: &Map<String, Value>,
    field: &'static str,
    source: &str,
) -> Result<String, FrontmatterError> {
    let unfit = |problem| FrontmatterError::Unfit {
        field,
        problem,
        line: line_of(field, source),
    };
    match raw.get(field) {
        None => Err(FrontmatterError::Missing { field }),
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Some(Value::String(_) | Value::Null) => Err(unfit("empty")),
        Some(_) => Err(unfit("not a text")),
    }
}

/// The line of a top-level field in the file.
fn line_of(field: &str, source: &str) -> Option<u64> {
    let starts = |line: &str| {
        let rest = line.strip_prefix(field);
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    let line = source.lines().position(starts)?;
    u64::try_from(line).ok().map(|line| line + 2)
}

/// The line in the file of a field below others, or of the last of those above it that has a line of
/// its own.
fn line_of_path(path: &str, source: &str) -> Option<u64> {
    let starts = |line: &str, field: &str| {
        let rest = line.trim_start().strip_prefix(field);
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    let mut from = 0;
    let mut found = None;
    for field in path.split('.') {
        let below = source.lines().enumerate().skip(from);
        let Some((line, _)) = below.into_iter().find(|(_, line)| starts(line, field)) else {
            break;
        };
        found = Some(line);
        from = line;
    }
    found
        .and_then(|line| u64::try_from(line).ok())
        .map(|line| line + 2)
}

/// Every text that a `SKILL.md` which cannot be read may have meant as its name, or as that of a tool
/// that it binds: what stands behind a `name:`, wherever that is.
pub(crate) fn names_in(text: &str) -> Vec<String> {
    const MAX_LOOKED_AT: usize = 64 * 1024;
    const MAX_NAMES: usize = 64;
    const KEY: &str = "name";
    /// Line ends of any program, since those that YAML does not know may be why it cannot be read.
    const LINE_ENDS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
    // Only what YAML could be: the Markdown below is prose.
    let text = &text[..text.floor_char_boundary(MAX_LOOKED_AT)];
    let text = Document::split(text).map_or(text, |document| document.frontmatter);
    let mut names = Vec::new();
    let lower = text.to_ascii_lowercase();
    for (at, _) in lower.match_indices(KEY) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || "_-".contains(before)) {
            continue;
        }
        let after = text[at + KEY.len()..].trim_start_matches(['"', '\'', ' ', '\t']);
        let Some(value) = after.strip_prefix([':', '=']) else {
            continue;
        };
        let value = value.split(LINE_ENDS).next().unwrap_or_default();
        let value = value.split([',', '}', '#']).next().unwrap_or_default();
        let value = value.trim().trim_matches(['"', '\'', '[', ']']).trim();
        if !value.is_empty() && value.len() <= MAX_NAME_BYTES && names.len() < MAX_NAMES {
            names.push(value.to_owned());
        }
    }
    names
}

fn without_repetitions(tags: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let is_new = |tag: &String| seen.insert(tag.clone());
    tags.into_iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests;
