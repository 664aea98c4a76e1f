//! Templates: compiled when their files are read, rendered within bounds.

use std::{collections::BTreeMap, error::Error as StdError, io, path::PathBuf, sync::Arc};

use documents::nearest_of;
use minijinja::{
    Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value as TemplateValue,
    syntax::SyntaxConfig, value::ValueKind,
};
use serde_json::Value;

use crate::{
    argument::{self, Argument},
    front::Role,
};

/// The most bytes that all messages of a prompt may have once they are filled in.
pub const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// Steps of one rendering, which also bound its memory: about 64 bytes each.
const FUEL: u64 = 100_000;
/// Deepest nesting of a rendering; an include counts as several levels.
const MAX_RECURSION: usize = 150;
/// Deepest nesting of a value that is written as JSON.
const MAX_VALUE_DEPTH: usize = 32;

const UNWRITABLE: &str = "there is no value to write";
const CURE: &str = "give the argument a default, or ask with `{% if … %}`";

/// One version of a prompt, ready to be filled in.
#[derive(Debug)]
pub struct PromptVersion {
    /// Name of the prompt.
    pub name: String,
    /// The version.
    pub version: String,
    /// Name for people.
    pub title: Option<String>,
    /// Purpose.
    pub description: Option<String>,
    /// Category.
    pub category: Option<String>,
    /// Tags.
    pub tags: Vec<String>,
    /// Author.
    pub author: Option<String>,
    /// Arguments, in the order of the file.
    pub arguments: Vec<Argument>,
    /// Path of the file.
    pub path: PathBuf,
    /// The files that it includes, by their names.
    pub includes: Vec<String>,
    /// SHA-256 of the file; with includes, of a line for each file as `sha256sum` writes it.
    pub digest: [u8; 32],
    /// Text of the file.
    pub source: Arc<str>,
    pub(crate) sections: Vec<Section>,
    pub(crate) environment: Environment<'static>,
}

/// One message of a file: its speaker, the name of its template, and the line that it begins on.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) role: Role,
    pub(crate) template: String,
    pub(crate) line: u64,
}

/// A message that was filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Role of the speaker.
    pub role: Role,
    /// Text of the message.
    pub text: String,
}

/// A prompt cannot be filled in.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Arguments are missing, unknown, or of no use: each with its name and the cure. For who has sent them.
    #[error("{}", .0.join("; "))]
    Arguments(Vec<String>),
    /// The template fails: the file and line, and what is wrong. For operators.
    #[error("{0}")]
    Template(String),
}

impl PromptVersion {
    /// Fills in the prompt.
    ///
    /// # Errors
    ///
    /// [`RenderError`].
    pub fn render(&self, sent: &BTreeMap<String, String>) -> Result<Vec<Message>, RenderError> {
        let values = self.values(sent).map_err(RenderError::Arguments)?;
        self.render_values(&values).map_err(RenderError::Template)
    }

    /// Suggestions for an argument of which this much is typed; `None` if there is no such argument.
    #[must_use]
    pub fn suggestions(&self, argument: &str, typed: &str) -> Option<Vec<String>> {
        let argument = self.arguments.iter().find(|it| it.name == argument)?;
        Some(argument.suggestions(typed))
    }

    /// The arguments that have a value.
    fn values<'a>(
        &'a self,
        sent: &BTreeMap<String, String>,
    ) -> Result<Vec<(&'a str, Value)>, Vec<String>> {
        let mut mistakes = Vec::new();
        for name in sent.keys() {
            let mut names = self.arguments.iter().map(|it| it.name.as_str());
            if !names.clone().any(|it| it == name) {
                let meant = nearest_of(name, &mut names);
                let cure = match meant {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "leave it out".to_owned(),
                };
                let name: String = name.chars().take(60).collect();
                mistakes.push(format!("`{name}`: there is no such argument; {cure}"));
            }
        }
        let mut values = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            let name = argument.name.as_str();
            match (sent.get(name), &argument.default) {
                (Some(sent), _) => match argument.read(sent) {
                    Ok(value) => values.push((name, value)),
                    Err(mistake) => mistakes.push(mistake),
                },
                (None, Some(default)) => values.push((name, default.clone())),
                (None, None) if argument.required => {
                    mistakes.push(format!("`{name}`: it is missing; send it"));
                }
                // Undefined, so that templates ask for it as they do elsewhere.
                (None, None) => {}
            }
        }
        match mistakes.is_empty() {
            true => Ok(values),
            false => Err(mistakes),
        }
    }

    fn render_values(&self, values: &[(&str, Value)]) -> Result<Vec<Message>, String> {
        let pairs = values
            .iter()
            .map(|(name, value)| (*name, argument::to_template(value)));
        let context = TemplateValue::from_pairs(pairs);
        let mut left = MAX_OUTPUT_BYTES;
        let mut messages = Vec::new();
        for section in &self.sections {
            let mut text = Bounded {
                text: Vec::new(),
                left,
            };
            let template = self.environment.get_template(&section.template);
            let rendered =
                template.and_then(|it| it.render_captured_to(context.clone(), &mut text).map(drop));
            rendered.map_err(|error| self.told(section, &error))?;
            left = text.left;
            let text = String::from_utf8_lossy(&text.text).trim().to_owned();
            // A section of which a condition leaves nothing is no message.
            if !text.is_empty() {
                let role = section.role;
                messages.push(Message { role, text });
            }
        }
        match messages.is_empty() {
            true => Err(format!("{}: all messages are empty", self.path.display())),
            false => Ok(messages),
        }
    }

    /// A mistake in a template that shows without the arguments of a client: a filter, test, function or file
    /// that does not exist.
    pub(crate) fn try_out(&self) -> Option<String> {
        let values: Vec<_> = self.arguments.iter().map(Argument::sample).collect();
        let values = values.iter().map(argument::to_template);
        let names = self.arguments.iter().map(|it| it.name.as_str());
        let context = TemplateValue::from_pairs(names.zip(values));
        self.sections.iter().find_map(|section| {
            let template = self.environment.get_template(&section.template).ok()?;
            let mut nowhere = io::sink();
            let error = template
                .render_captured_to(context.clone(), &mut nowhere)
                .err()?;
            let is_certain = matches!(
                innermost(&error).kind(),
                ErrorKind::UnknownFilter
                    | ErrorKind::UnknownTest
                    | ErrorKind::UnknownFunction
                    | ErrorKind::TemplateNotFound
            );
            is_certain.then(|| self.told(section, &error))
        })
    }

    /// An error of the template with its file and line.
    fn told(&self, section: &Section, error: &Error) -> String {
        let error = innermost(error);
        let path = self.path.display();
        let place = match (error.name(), error.line()) {
            (Some(name), Some(line)) if name == section.template => {
                format!("{path}:{}", section.line + line as u64 - 1)
            }
            (Some(name), Some(line)) => format!("{path}, in {name}:{line}"),
            _ => format!("{path}:{}", section.line),
        };
        format!("{place}: {}", what(error))
    }
}

/// Message of an error, without its place.
pub(crate) fn what(error: &Error) -> String {
    match error.kind() {
        ErrorKind::WriteFailure => format!("more than {MAX_OUTPUT_BYTES} bytes come out"),
        ErrorKind::OutOfFuel => "the template takes too many steps".to_owned(),
        ErrorKind::UndefinedError => match error.detail() {
            Some(detail) if detail != UNWRITABLE => format!("{detail}; {CURE}"),
            _ => format!("{UNWRITABLE}; {CURE}"),
        },
        kind => match error.detail() {
            Some(detail) => format!("{kind}: {detail}"),
            None => kind.to_string(),
        },
    }
}

/// The error in the file that it is about: that of an include, not of who includes it.
fn innermost(error: &Error) -> &Error {
    let mut error = error;
    while let Some(source) = error.source().and_then(|it| it.downcast_ref::<Error>()) {
        error = source;
    }
    error
}

/// An environment without templates, in which nothing can be reached.
pub(crate) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(write);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    // A file that is put in ends with the line break that its author wrote.
    syntax.keep_trailing_newline(true);
    if let Ok(syntax) = syntax.build() {
        environment.set_syntax(syntax);
    }
    // It writes all that the environment has, which is nothing to tell a model.
    environment.remove_global("debug");
    environment.add_filter("tojson", |value: TemplateValue| {
        to_json(&value, 0).map(|it| it.to_string())
    });
    environment
}

/// Writes a value: a text as it is, `true` and `false`, a list or an object as JSON. Nothing is no text.
fn write(
    out: &mut Output<'_>,
    _state: &mut State<'_, '_>,
    value: &TemplateValue,
) -> Result<(), Error> {
    let failed = |_| Error::from(ErrorKind::WriteFailure);
    if let Some(text) = value.as_str() {
        return out.write_str(text).map_err(failed);
    }
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => {
            Err(Error::new(ErrorKind::UndefinedError, UNWRITABLE))
        }
        // As clients send it; minijinja has the words of Python.
        ValueKind::Bool => out
            .write_str(if value.is_true() { "true" } else { "false" })
            .map_err(failed),
        ValueKind::Number => out.write_fmt(format_args!("{value}")).map_err(failed),
        _ => {
            let json = to_json(value, 0)?;
            out.write_fmt(format_args!("{json}")).map_err(failed)
        }
    }
}

fn to_json(value: &TemplateValue, depth: usize) -> Result<Value, Error> {
    if depth > MAX_VALUE_DEPTH {
        let why = "the value is nested too deeply";
        return Err(Error::new(ErrorKind::BadSerialization, why));
    }
    Ok(match value.kind() {
        ValueKind::Undefined | ValueKind::None => Value::Null,
        ValueKind::Bool => Value::Bool(value.is_true()),
        ValueKind::Number => match (value.as_i64(), value.is_integer()) {
            (Some(number), true) => Value::from(number),
            _ => serde_json::from_str(&value.to_string()).unwrap_or(Value::Null),
        },
        ValueKind::Map => {
            let mut members = serde_json::Map::new();
            for key in value.try_iter()? {
                let member = value.get_item(&key)?;
                members.insert(key.to_string(), to_json(&member, depth + 1)?);
            }
            Value::Object(members)
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?;
            let items = items.map(|item| to_json(&item, depth + 1));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        _ => Value::from(value.to_string()),
    })
}

/// A text that does not grow beyond what is left for it.
struct Bounded {
    text: Vec<u8>,
    left: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len());
        self.left = left.ok_or(io::ErrorKind::StorageFull)?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Names of files in the tags of `source` that put others in, and the line of each. The name must be one text
/// in quotes, so that the files of a prompt are known before it is filled in.
///
/// # Errors
///
/// The line of a tag whose name is not written so.
pub(crate) fn included(source: &str) -> Result<BTreeMap<String, u64>, u64> {
    let mut names = BTreeMap::new();
    for (at, _) in source.match_indices("{%") {
        let line = || 1 + source[..at].matches('\n').count() as u64;
        let tag = source[at + 2..].trim_start_matches(['-', '+']).trim_start();
        let Some(rest) = ["include", "import", "from", "extends"]
            .iter()
            .find_map(|word| tag.strip_prefix(word))
        else {
            continue;
        };
        if rest.starts_with(|next: char| next.is_alphanumeric() || next == '_') {
            continue;
        }
        let rest = rest.trim_start();
        let quote = rest.chars().next().filter(|it| ['"', '\''].contains(it));
        let (name, rest) = quote
            .and_then(|quote| rest[1..].split_once(quote))
            .ok_or_else(line)?;
        let end = rest.find("%}").ok_or_else(line)?;
        // Whatever follows may not choose another file: `"a" ~ b`, `"a" if b else "c"`.
        let mut words = rest[..end].trim_end_matches(['-', '+']).split_whitespace();
        if !matches!(
            words.next(),
            None | Some("ignore" | "with" | "without" | "as" | "import")
        ) {
            return Err(line());
        }
        names.entry(name.to_owned()).or_insert_with(line);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_names_in_quotes() {
        for (source, expected) in [
            ("{% include \"_a.md\" %}", Ok(vec!["_a.md"])),
            (
                "{%- include '_a.md' -%} {% include \"_b/c.md\" %}",
                Ok(vec!["_a.md", "_b/c.md"]),
            ),
            (
                "{% import \"_m.md\" as m %}{% from '_n.md' import x %}",
                Ok(vec!["_m.md", "_n.md"]),
            ),
            ("{% includes %}{% if a %}", Ok(vec![])),
            ("a\n{% include name %}", Err(2)),
            ("{% include \"_a\" ~ name %}", Err(1)),
            ("{% include \"_a.md\" if x else y %}", Err(1)),
            ("{% include [\"_a.md\", name] %}", Err(1)),
            ("{% include \"_a.md", Err(1)),
        ] {
            let owned = |it: Vec<&str>| it.into_iter().map(str::to_owned).collect::<Vec<_>>();
            let expected = expected.map(owned);
            let found = included(source).map(|it| it.into_keys().collect());
            assert_eq!(found, expected, "{source}");
        }
    }
}
