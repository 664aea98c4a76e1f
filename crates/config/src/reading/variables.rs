//! The layer of the environment.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use figment::value::Value;

use crate::environment::Environment;
use crate::layer::{Layer, join};
use crate::nearest::nearest;
use crate::problem::{Origin, Problem};
use crate::reading::coerce::Misfit;
use crate::reading::shape::{Format, Keys, Leaf, Shape, settings};

/// Prefix of every variable of this program.
const PREFIX: &str = "MCP_SERVER_";
/// The sections that restrict calls, as names of variables begin.
const RULES: [&str; 4] = ["GOVERNANCE", "IDENTITY", "LEDGER", "REDACTION"];
/// Separator between a section and its key.
const SEPARATOR: &str = "__";

/// The short names, kept from the first design.
const SHORT_NAMES: [(&str, &[&str]); 5] = [
    ("MCP_SERVER_TRANSPORT", &["transport"]),
    ("MCP_SERVER_HTTP_PORT", &["http", "port"]),
    (
        "MCP_SERVER_TOOLS_TIMEOUT",
        &["tools", "default_timeout_seconds"],
    ),
    ("MCP_SERVER_SKILLS_DIR", &["resources", "skills_dir"]),
    ("MCP_SERVER_GOVERNANCE_ENABLED", &["governance", "enabled"]),
];

/// Takes over every variable that names a key, in either spelling.
///
/// `base` is where relative paths begin.
pub(crate) fn layer(
    environment: &Environment,
    keys: &Keys,
    base: &Path,
    problems: &mut Vec<Problem>,
) -> Layer {
    let settings = settings(keys);
    let mut known: BTreeMap<String, (&[&str], &Shape)> = settings
        .iter()
        .map(|(path, shape)| (long_name(path), (path.as_slice(), *shape)))
        .collect();
    for (name, short_path) in SHORT_NAMES {
        if let Some((_, shape)) = settings.iter().find(|(path, _)| path == short_path) {
            known.insert(name.to_owned(), (short_path, *shape));
        }
    }

    let mut layer = Layer::empty("environment");
    let mut set: BTreeMap<&[&str], (&str, &OsStr)> = BTreeMap::new();
    for (name, value) in ours(environment) {
        let origin = Origin::Environment(name.to_owned());
        let Some(&(path, shape)) = known.get(name) else {
            problems.push(unknown(name, &known));
            continue;
        };
        let key = join(path);
        let problem = |message: String| Problem::error(origin.clone(), message).key(&key);
        if let Some((other, before)) = set.insert(path, (name, value)) {
            if before != value {
                let message = format!("`{key}` is set by `{other}` and, differently, by `{name}`");
                problems.push(problem(message).hint("unset one of the two"));
            }
            continue;
        }
        let Some(text) = value.to_str() else {
            problems.push(problem(format!("`{key}` must be text")));
            continue;
        };
        match read(shape, text, base) {
            Ok(value) => layer.set(path, value, origin),
            Err(misfit) => {
                let message = match shape {
                    Shape::Single(Leaf::Text(Format::Secret)) => {
                        format!("`{key}` {}", misfit.expected)
                    }
                    _ => {
                        let found = crate::reading::document::shorten(text);
                        format!("`{key}` {}, found `{found}`", misfit.expected)
                    }
                };
                problems.push(problem(message).hint_if(misfit.hint));
            }
        }
    }
    layer
}

/// Variables of this program, misspelt ones in small letters included. An empty one counts as absent: that is how files for containers
/// unset one.
fn ours(environment: &Environment) -> impl Iterator<Item = (&str, &OsStr)> {
    let has_prefix = |name: &str| {
        let prefix = name.get(..PREFIX.len());
        prefix.is_some_and(|it| it.eq_ignore_ascii_case(PREFIX))
    };
    let all = environment.all();
    all.filter(move |(name, value)| has_prefix(name) && !value.is_empty())
}

fn long_name(path: &[&str]) -> String {
    format!("{PREFIX}{}", path.join(SEPARATOR).to_uppercase())
}

/// A list is written with commas.
fn read(shape: &Shape, text: &str, base: &Path) -> Result<Value, Misfit> {
    if !matches!(shape, Shape::Single(Leaf::Text(Format::Secret))) {
        written_out(text)?;
    }
    match shape {
        // What a variable holds is data: nothing in it refers to another one.
        Shape::Single(leaf @ Leaf::Text(Format::Secret)) => {
            leaf.coerce(&text.replace("${", "$${"), base)
        }
        Shape::Single(leaf) => leaf.coerce(text, base),
        Shape::List(leaf) => {
            let element = |text: &str| leaf.coerce(text.trim(), base);
            Ok(text
                .split(',')
                .map(element)
                .collect::<Result<Vec<_>, _>>()?
                .into())
        }
        Shape::Section(_)
        | Shape::Table(_)
        | Shape::Patterns(_)
        | Shape::Groups(_)
        | Shape::Json => Err(Misfit {
            expected: "cannot be set in the environment".into(),
            hint: Some("write it into the file".into()),
        }),
    }
}

/// Refuses a reference in a variable or a flag. References are for the file: the program that sets
/// a variable or a flag can look up others itself, and an operator who expects them to be followed
/// must not get a directory called `${HOME}`.
pub(crate) fn written_out(text: &str) -> Result<(), Misfit> {
    match text.contains("${") {
        true => Err(Misfit {
            expected: "must be written out here, since references are followed in the file alone"
                .into(),
            hint: Some("write the value itself, or put the reference into the file".into()),
        }),
        false => Ok(()),
    }
}

/// A warning, since the prefix may be shared with another program; an error for a name with a section and
/// a key, or with a section of rules, which is meant for this program: a rule must not be ignored.
fn unknown(name: &str, known: &BTreeMap<String, (&[&str], &Shape)>) -> Problem {
    let origin = Origin::Environment(name.to_owned());
    let capital = name.to_uppercase();
    let is_below = |table: &str| {
        capital
            .strip_prefix(table)
            .is_some_and(|rest| rest.starts_with(SEPARATOR))
    };
    let table = known.iter().find(|(table, (_, shape))| {
        matches!(shape, Shape::Table(_) | Shape::Patterns(_)) && is_below(table)
    });
    if let Some((_, (path, _))) = table {
        let message = format!("`{}` cannot be set in the environment", join(path));
        return Problem::error(origin, message)
            .key(join(path))
            .hint("write it into the file");
    }
    let message = format!("the environment variable `{name}` is unknown and ignored");
    let rest = capital.trim_start_matches(PREFIX);
    let is_ours = rest.contains(SEPARATOR) || RULES.iter().any(|section| rest.starts_with(section));
    let problem = match is_ours {
        true => Problem::error(
            origin,
            format!("the environment variable `{name}` is unknown"),
        ),
        false => Problem::warning(origin, message),
    };
    // Without the prefix, which would make everything alike.
    let candidates = known.keys().filter_map(|name| name.strip_prefix(PREFIX));
    match nearest(rest, candidates) {
        Some(candidate) => problem.hint(format!("did you mean `{PREFIX}{candidate}`?")),
        None => problem.hint(format!("a section and its key are joined by `{SEPARATOR}`")),
    }
}
