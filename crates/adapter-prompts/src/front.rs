//! The file of a prompt: front matter, then the messages.

use std::path::Path;

use documents::{Document, nearest, parse_yaml};
use serde_json::{Map, Value};

use crate::{
    argument::{Argument, Kind, MAX_VALUE_BYTES, as_sent},
    problem::Problem,
    version::{is_name, is_version},
};

/// The longest file of a prompt, and of an include, in bytes.
pub const MAX_FILE_BYTES: u64 = 256 * 1024;
/// The most arguments.
const MAX_ARGUMENTS: usize = 64;
/// The most messages.
const MAX_MESSAGES: usize = 64;

const KEYS: [&str; 8] = [
    "name",
    "title",
    "description",
    "version",
    "category",
    "tags",
    "author",
    "arguments",
];
const ARGUMENT_KEYS: [&str; 14] = [
    "name",
    "title",
    "description",
    "type",
    "required",
    "default",
    "enum",
    "examples",
    "minimum",
    "maximum",
    "min_length",
    "max_length",
    "min_items",
    "max_items",
];

/// Role of the speaker of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The word for it, as in a heading of the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// The parts of a file.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) category: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) author: Option<String>,
    pub(crate) arguments: Vec<Argument>,
    /// Of each message its role, its template, and the line that it begins on.
    pub(crate) messages: Vec<(Role, String, u64)>,
}

/// Reads the file of the prompt `name`.
pub(crate) fn parse(path: &Path, name: &str, text: &str) -> Result<Parts, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // Nothing has to be said about a prompt.
    let empty = ["---\n---\n", "---\r\n---\r\n"].iter();
    let empty = empty.filter_map(|it| text.strip_prefix(it)).next();
    let empty = empty.map(|body| Document {
        frontmatter: "",
        body,
    });
    let document = empty.map_or_else(|| Document::split(text), Ok);
    let document = document.map_err(|error| {
        let hint = "begin the file with a line of exactly `---`, then `description: …`, and end the front \
                    matter with another such line";
        Problem::new(path, error.to_string(), hint).at(Some(1))
    })?;
    let front = parse_yaml(document.frontmatter).map_err(|error| {
        let hint = "check the indentation, and put quotes around texts that hold `: `, ` #` or `{`";
        // The front matter begins on the second line.
        let line = error.position.map(|(line, _)| line + 1);
        let what = format!("the front matter cannot be read: {}", error.message);
        Problem::new(path, what, hint).at(line)
    })?;
    let front = match front {
        Value::Object(front) => front,
        Value::Null => Map::new(),
        _ => {
            let hint = "write one `field: value` per line";
            let what = "the front matter is not a map of fields";
            return Err(Problem::new(path, what, hint).at(Some(2)));
        }
    };
    // The front matter begins on the second line.
    let at = |key: &str, problem: Problem| {
        let line = match key.split_once('/') {
            Some((argument, key)) => line_of_argument(document.frontmatter, argument, key),
            None => line_of(document.frontmatter, key),
        };
        problem.at(line.map(|line| line + 1))
    };
    let fields = Fields {
        path,
        place: String::new(),
        map: &front,
    };
    let read = || -> Result<Parts, (String, Problem)> {
        fields.only(&KEYS)?;
        if let Some(own) = fields.text("name")?
            && own != name
        {
            let what = format!("`name` is `{own}`, and the file's name says `{name}`");
            let hint = "give both one name, or leave `name` out";
            return Err(("name".to_owned(), Problem::new(path, what, hint)));
        }
        let version = fields.text("version")?;
        if let Some(version) = version.as_ref().filter(|it| !is_version(it)) {
            let what = format!("`version` cannot be `{version}`");
            let hint =
                "write letters, digits, `.`, `-`, `_` and `+`, in quotes: `version: \"1.0\"`";
            return Err(("version".to_owned(), Problem::new(path, what, hint)));
        }
        Ok(Parts {
            title: fields.text("title")?,
            description: fields.text("description")?,
            category: fields.text("category")?,
            author: fields.text("author")?,
            tags: fields.list("tags")?.iter().map(as_sent).collect(),
            arguments: arguments(&fields)?,
            version,
            messages: Vec::new(),
        })
    };
    let mut parts = read().map_err(|(key, problem)| at(&key, problem))?;
    let before = text.len() - document.body.len();
    let first_line = 1 + text[..before].matches('\n').count() as u64;
    parts.messages = messages(path, document.body, first_line)?;
    Ok(parts)
}

/// The line, counted from 1, that sets `key` in `text`, as far as that shows without reading it as YAML.
pub(crate) fn line_of(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line =
        lines.position(|line| value_of(line.trim_start_matches([' ', '-', '{']), key).is_some());
    line.map(|line| line as u64 + 1)
}

/// The line that sets `key` of an argument, else the one that names the argument.
fn line_of_argument(text: &str, argument: &str, key: &str) -> Option<u64> {
    let parts = |line: &str| {
        let parts = line.split([',', '{', '}']);
        let parts = parts.map(|it| it.trim_start_matches([' ', '-']).to_owned());
        parts.collect::<Vec<_>>()
    };
    let has = |line: &str, key: &str| parts(line).iter().any(|it| value_of(it, key).is_some());
    let is_name = |line: &str| {
        let parts = parts(line);
        let mut names = parts.iter().filter_map(|it| value_of(it, "name"));
        names.any(|it| it.trim_matches(['"', '\'']) == argument)
    };
    let lines: Vec<&str> = text.lines().collect();
    let named = lines.iter().position(|line| is_name(line))?;
    let begins = |line: &str| line.trim_start().starts_with("- ");
    let first = (0..=named)
        .rev()
        .find(|&at| begins(lines[at]))
        .unwrap_or(named);
    let rest = lines[first + 1..].iter().position(|line| begins(line));
    let end = rest.map_or(lines.len(), |rest| first + 1 + rest);
    let line = (first..end)
        .find(|&at| has(lines[at], key))
        .unwrap_or(named);
    Some(line as u64 + 1)
}

/// The text behind `key:` at the beginning of `line`.
fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(key)?.trim_start();
    rest.strip_prefix(':').map(str::trim)
}

fn arguments(fields: &Fields<'_>) -> Result<Vec<Argument>, (String, Problem)> {
    let mut arguments: Vec<Argument> = Vec::new();
    for (index, declared) in fields.list("arguments")?.iter().enumerate() {
        let place = format!("arguments[{index}]");
        let Value::Object(map) = declared else {
            let hint = "write `- name: …` with its fields below";
            return Err(fields.wrong("arguments", format!("`{place}` is no map of fields"), hint));
        };
        let name = map.get("name").and_then(Value::as_str).unwrap_or_default();
        let own = Fields {
            path: fields.path,
            place: match name {
                "" => format!("{place}."),
                name => format!("argument `{name}`: "),
            },
            map,
        };
        let of_argument = |(key, problem)| (format!("{name}/{key}"), problem);
        own.only(&ARGUMENT_KEYS).map_err(of_argument)?;
        let is_variable = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
            && name
                .bytes()
                .all(|it| it.is_ascii_alphanumeric() || it == b'_')
            && is_name(&name.replace('_', "-").replacen('-', "x", 1));
        if !is_variable || RESERVED.contains(&name) {
            let hint = "give it a name of letters, digits and `_`, which no word of the template language is";
            let what = format!("`{place}.name` cannot be `{name}`");
            return Err(fields.wrong("arguments", what, hint));
        }
        if arguments.iter().any(|it| it.name == name) {
            let what = format!("the argument `{name}` is declared twice");
            return Err(fields.wrong("arguments", what, "leave one of the two out"));
        }
        arguments.push(argument(&own, name).map_err(of_argument)?);
        if arguments.len() > MAX_ARGUMENTS {
            let what = format!("there are more than {MAX_ARGUMENTS} arguments");
            return Err(fields.wrong("arguments", what, "take an object for several of them"));
        }
    }
    Ok(arguments)
}

/// Names that mean something else in templates.
const RESERVED: [&str; 16] = [
    "true", "false", "none", "True", "False", "None", "and", "or", "not", "in", "is", "if", "else",
    "loop", "self", "super",
];

fn argument(fields: &Fields<'_>, name: &str) -> Result<Argument, (String, Problem)> {
    let kind = match fields.text("type")? {
        None => Kind::String,
        Some(kind) => Kind::of(&kind).ok_or_else(|| {
            let hint = format!("write one of `{}`", Kind::NAMES.join("`, `"));
            fields.wrong("type", format!("`type` cannot be `{kind}`"), &hint)
        })?,
    };
    let is_list = matches!(kind, Kind::Array | Kind::Object);
    for (key, fits) in [
        ("minimum", matches!(kind, Kind::Integer | Kind::Number)),
        ("maximum", matches!(kind, Kind::Integer | Kind::Number)),
        ("min_length", kind == Kind::String),
        ("max_length", kind == Kind::String),
        ("min_items", is_list),
        ("max_items", is_list),
    ] {
        if !fits && fields.map.contains_key(key) {
            let what = format!("`{key}` bounds nothing of the type {}", kind.as_str());
            return Err(fields.wrong(key, what, "leave it out, or change `type`"));
        }
    }
    let length = |of_text: &str, of_list: &str| -> Result<Option<u64>, (String, Problem)> {
        Ok(fields.whole(of_text)?.or(fields.whole(of_list)?))
    };
    let argument = Argument {
        name: name.to_owned(),
        title: fields.text("title")?,
        description: fields.text("description")?,
        kind,
        required: fields.boolean("required")?.unwrap_or(false),
        default: fields.map.get("default").cloned(),
        choices: fields.list("enum")?.to_vec(),
        examples: fields.list("examples")?.to_vec(),
        minimum: fields.number("minimum")?,
        maximum: fields.number("maximum")?,
        min_length: length("min_length", "min_items")?,
        max_length: length("max_length", "max_items")?,
    };
    if argument.required && argument.default.is_some() {
        let hint = "leave out `required` or `default`";
        let what = "an argument with a default is not required".to_owned();
        return Err(fields.wrong("default", what, hint));
    }
    if let Some((key, what)) = contradiction(&argument, fields) {
        return Err(fields.wrong(key, what, "correct one of the two; no value would fit"));
    }
    let given = [
        ("enum", argument.choices.as_slice()),
        ("examples", argument.examples.as_slice()),
        ("default", argument.default.as_slice()),
    ];
    for (key, values) in given {
        for value in values {
            let kind = argument.kind.as_str();
            let fits = match argument.is_of_kind(value) {
                true => argument.check(value),
                false => Err(format!("`{name}`: `{value}` is no {kind}; write it as one")),
            };
            fits.map_err(|why| fields.wrong(key, format!("`{key}`: {why}"), "correct the value"))?;
        }
    }
    Ok(argument)
}

/// Bounds that no value satisfies: the field and what is wrong.
fn contradiction(argument: &Argument, fields: &Fields<'_>) -> Option<(&'static str, String)> {
    if fields.map.contains_key("enum") && argument.choices.is_empty() {
        return Some(("enum", "`enum` has no value".to_owned()));
    }
    let (mut least, mut most) = (argument.minimum, argument.maximum);
    if argument.kind == Kind::Integer {
        (least, most) = (least.map(f64::ceil), most.map(f64::floor));
    }
    if least.zip(most).is_some_and(|(least, most)| most < least) {
        let what = "no number is both at least `minimum` and at most `maximum`";
        return Some(("minimum", what.to_owned()));
    }
    let (least, most) = (argument.min_length?, argument.max_length);
    let (key, other) = match argument.kind {
        Kind::String => ("min_length", "max_length"),
        _ => ("min_items", "max_items"),
    };
    match most {
        Some(most) if most < least => Some((key, format!("`{key}` is greater than `{other}`"))),
        // Without a bound of its own a value has at most so many bytes.
        None if MAX_VALUE_BYTES < least => Some((
            key,
            format!("`{key}` is greater than {MAX_VALUE_BYTES}, and there is no `{other}`"),
        )),
        _ => None,
    }
}

/// One map of the front matter.
struct Fields<'a> {
    path: &'a Path,
    place: String,
    map: &'a Map<String, Value>,
}

type Read<T> = Result<T, (String, Problem)>;

impl Fields<'_> {
    fn wrong(&self, key: &str, what: String, hint: &str) -> (String, Problem) {
        let what = format!("{}{what}", self.place);
        (key.to_owned(), Problem::new(self.path, what, hint))
    }

    fn only(&self, known: &[&'static str]) -> Read<()> {
        let Some(key) = self.map.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let hint = match nearest(key, known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the fields are `{}`", known.join("`, `")),
        };
        Err(self.wrong(key, format!("`{key}` is not known"), &hint))
    }

    /// Text; numbers are taken as they are written, so that `version: 2` is one.
    fn text(&self, key: &str) -> Read<Option<String>> {
        match self.map.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => {
                Ok(Some(text.trim().to_owned()))
            }
            Some(Value::Number(number)) if number.is_u64() => Ok(Some(number.to_string())),
            Some(_) => Err(self.wrong(
                key,
                format!("`{key}` is no text"),
                "write a text that is not empty, in quotes if it looks like a number",
            )),
        }
    }

    fn list(&self, key: &str) -> Read<&[Value]> {
        match self.map.get(key) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(self.wrong(key, format!("`{key}` is no list"), "write `[a, b]`")),
        }
    }

    fn boolean(&self, key: &str) -> Read<Option<bool>> {
        match self.map.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => {
                let what = format!("`{key}` is neither `true` nor `false`");
                Err(self.wrong(key, what, "write one of the two"))
            }
        }
    }

    fn whole(&self, key: &str) -> Read<Option<u64>> {
        match self.map.get(key).map(Value::as_u64) {
            None => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            Some(None) => {
                let what = format!("`{key}` is no whole number");
                Err(self.wrong(key, what, "write digits"))
            }
        }
    }

    fn number(&self, key: &str) -> Read<Option<f64>> {
        match self.map.get(key).map(Value::as_f64) {
            None => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            Some(None) => Err(self.wrong(key, format!("`{key}` is no number"), "write digits")),
        }
    }
}

/// The messages of a body: one of the user, or one below each heading `## user` and `## assistant`.
fn messages(path: &Path, body: &str, first_line: u64) -> Result<Vec<(Role, String, u64)>, Problem> {
    let mut messages: Vec<(Role, String, u64)> = Vec::new();
    let mut before = String::new();
    for (index, line) in body.split_inclusive('\n').enumerate() {
        let number = first_line + index as u64;
        let heading = line.trim_end().strip_prefix("## ").map(str::trim);
        let role = match heading {
            Some("user") => Some(Role::User),
            Some("assistant") => Some(Role::Assistant),
            Some(other) => {
                let word = other.to_lowercase();
                if ["user", "assistant", "system"].contains(&word.as_str()) {
                    let what = format!("`## {other}` is no role");
                    let hint = "write `## user` or `## assistant`, in these letters; MCP has no other roles";
                    return Err(Problem::new(path, what, hint).at(Some(number)));
                }
                None
            }
            None => None,
        };
        match (role, messages.last_mut()) {
            (Some(role), _) => messages.push((role, String::new(), number + 1)),
            (None, Some((_, text, _))) => text.push_str(line),
            (None, None) => before.push_str(line),
        }
    }
    if messages.is_empty() {
        messages.push((Role::User, before, first_line));
    } else if !before.trim().is_empty() {
        let what = "there is text before the first message";
        let hint = "move it below `## user` or `## assistant`";
        return Err(Problem::new(path, what, hint).at(Some(first_line)));
    }
    if let Some((role, _, line)) = messages.iter().find(|(_, text, _)| text.trim().is_empty()) {
        let what = format!("a message of the {} is empty", role.as_str());
        let hint = "write its text below the front matter or heading";
        return Err(Problem::new(path, what, hint).at(Some(*line)));
    }
    if messages.len() > MAX_MESSAGES {
        let what = format!("there are more than {MAX_MESSAGES} messages");
        return Err(Problem::new(path, what, "leave some of them out"));
    }
    Ok(messages)
}
