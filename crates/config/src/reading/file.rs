//! The layer of the file: a walk through the document, side by side with the shape.

use std::collections::BTreeSet;
use std::path::Path;

use figment::value::{Dict, Value as Setting};

use crate::Environment;
use crate::environment::interpolate::{
    Reference, ReferenceSource, first_credential, interpolate, vault_references,
    with_absolute_files,
};
use crate::environment::known_secrets_of;
use crate::layer::{Layer, Origins, child, join};
use crate::nearest::nearest;
use crate::problem::Problem;
use crate::reading::document::{Document, Key, Node, Value};
use crate::reading::shape::{Format, Keys, Leaf, ROOT_KEY, Shape, settings};
use crate::sections::secret::Secret;

/// The most keys of a section that are listed for who writes something else in its place.
const MAX_KEYS_TOLD: usize = 12;

/// Takes over everything that fits and reports everything that does not.
///
/// `base` is where relative paths begin.
pub(crate) fn layer(
    document: &Document<'_>,
    keys: &Keys,
    environment: &Environment,
    base: &Path,
    problems: &mut Vec<Problem>,
) -> Layer {
    let mut walk = Walk {
        document,
        keys,
        enclosing: Vec::new(),
        environment,
        base,
        problems,
        origins: Origins::new(),
        secret_lines: BTreeSet::new(),
        references: Vec::new(),
        unresolved: Vec::new(),
    };
    let values = walk.top();
    let mut layer = Layer::new("configuration file", values, walk.origins);
    layer.secret_lines = walk.secret_lines;
    layer.references = walk.references;
    layer.unresolved = walk.unresolved;
    layer
}

/// Returns true for sections of rules, without which everything would be allowed.
fn guards(path: &str) -> bool {
    let first = path.split('.').next().unwrap_or_default();
    matches!(first, "" | "governance" | "identity")
}

/// The upstream that a key belongs to.
fn upstream_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("upstreams.")?;
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').map(|(name, _)| name),
        None => rest.split_once('.').map(|(name, _)| name),
    }
}

/// Returns true for the keys of an upstream in which credentials of clients may stand.
fn takes_credentials(path: &str) -> bool {
    upstream_of(path).is_some() && (path.contains(".headers.") || path.contains(".env."))
}

/// The text with `x` in the place of each credential of a client: what it is for each client is known when it calls.
fn without_credentials(text: &str) -> String {
    let mut without = String::new();
    let mut rest = text;
    while let Some((before, _, after)) = first_credential(rest) {
        without.push_str(before);
        without.push('x');
        rest = after;
    }
    without + rest
}

/// Returns true if a text has a reference that begins like this.
fn refers(text: &str, beginning: &str) -> bool {
    text.match_indices(beginning)
        .any(|(at, _)| !text[..at].ends_with('$'))
}

/// The secrets in the value of a reference, wherever they stand. Variables are some, unless a name says otherwise: programs
/// are given much in their environment that is none.
fn known_secrets<'v>(path: &str, reference: &Reference, value: &'v str) -> Vec<&'v str> {
    let is_environment =
        path.contains(".env.") || path.contains(".args[") || path.ends_with(".url");
    match reference.source {
        ReferenceSource::Default => Vec::new(),
        ReferenceSource::Environment if reference.reference.starts_with("vault:") => vec![value],
        ReferenceSource::Environment if is_environment => {
            let last = path.rsplit('.').next().unwrap_or_default();
            let names = [reference.reference.as_str(), last];
            names
                .iter()
                .flat_map(|name| known_secrets_of(name, value))
                .collect()
        }
        _ => vec![value],
    }
}

struct Walk<'a> {
    document: &'a Document<'a>,
    keys: &'a Keys,
    /// The sections around the present one, with their paths, outermost first.
    enclosing: Vec<(String, &'a Keys)>,
    environment: &'a Environment,
    base: &'a Path,
    problems: &'a mut Vec<Problem>,
    origins: Origins,
    secret_lines: BTreeSet<usize>,
    references: Vec<(String, Reference)>,
    unresolved: Vec<(String, String)>,
}

impl<'a> Walk<'a> {
    fn top(&mut self) -> Dict {
        let root = &self.document.root;
        let entries = match &root.value {
            Value::Nothing => return Dict::new(),
            Value::Mapping(entries) => entries,
            other => {
                let found = other.describe();
                let message = format!("the file must begin with `{ROOT_KEY}:`, found {found}");
                self.problems
                    .push(Problem::error(self.document.origin(root.at), message));
                return Dict::new();
            }
        };
        let mut values = Dict::new();
        for (key, node) in entries {
            if key.name == ROOT_KEY {
                values = self.section(self.keys, node, "");
                continue;
            }
            let hint = match self.keys.contains_key(&key.name) {
                true => format!("move `{}` under `{ROOT_KEY}:`", key.name),
                false => format!("the only key at the top of the file is `{ROOT_KEY}`"),
            };
            // Whatever it was meant to hold is not there.
            self.unknown(key, &child("", &key.name), (Some(String::new()), hint));
        }
        values
    }

    fn section(&mut self, keys: &'a Keys, node: &Node, path: &str) -> Dict {
        let mut values = Dict::new();
        self.enclosing.push((path.to_owned(), keys));
        for (key, node) in self.entries(node, path, Some(keys)) {
            let name = child(path, &key.name);
            match keys.get(&key.name) {
                Some(shape) => {
                    if let Some(value) = self.value(shape, node, &name) {
                        values.insert(key.name.clone(), value);
                    }
                }
                None => {
                    let meant = self.meant(&key.name, keys, path);
                    self.unknown(key, &name, meant);
                }
            }
        }
        self.enclosing.pop();
        values
    }

    /// Names are the operator's; that they are names is all that can be asked of them.
    fn table(&mut self, shape: &'a Shape, node: &Node, path: &str, are_patterns: bool) -> Dict {
        let mut values = Dict::new();
        for (key, node) in self.entries(node, path, None) {
            let name = child(path, &key.name);
            let is_name = !key.name.is_empty()
                && key.name == key.name.trim()
                && !key.name.chars().any(char::is_control);
            let problem = |message: String| {
                Problem::error(self.document.origin(key.at), message).key(name.clone())
            };
            if !is_name {
                let message = format!("a name under `{path}` must be a text that is not empty");
                self.problems.push(problem(message));
            } else if key.name.contains('*') && !are_patterns {
                let message = format!("`{name}` is a name and cannot hold `*`");
                let hint = "patterns go into the lists `allow`, `deny` and `hide`";
                self.problems.push(problem(message).hint(hint));
            }
            if key.name.contains("${") {
                let message =
                    format!("`{name}` is a name, and a reference in one refers to nothing");
                let hint = "write the name itself: references stand in values alone";
                self.problems.push(problem(message).hint(hint));
            }
            if let Some(value) = self.value(shape, node, &name) {
                values.insert(key.name.clone(), value);
            }
        }
        values
    }

    fn value(&mut self, shape: &'a Shape, node: &Node, path: &str) -> Option<Setting> {
        if let Shape::Section(_) | Shape::Table(_) | Shape::Patterns(_) = shape {
            // What is missing in a section is told where the section is.
            let origin = self.document.origin(node.at);
            self.origins.insert(path.to_owned(), origin);
            let values = match shape {
                Shape::Section(keys) => self.section(keys, node, path),
                Shape::Table(entry) => self.table(entry, node, path, false),
                Shape::Patterns(entry) => self.table(entry, node, path, true),
                _ => Dict::new(),
            };
            // A section without a key says nothing, but an entry in a table exists by its name.
            return Some(values.into());
        }
        self.origins
            .insert(path.to_owned(), self.document.origin(node.at));
        match (shape, &node.value) {
            (Shape::List(leaf), Value::Sequence(elements)) => {
                let values = elements.iter().enumerate().filter_map(|(index, element)| {
                    self.leaf(leaf, element, &format!("{path}[{index}]"))
                });
                Some(values.collect::<Vec<_>>().into())
            }
            (Shape::Groups(leaf), Value::Sequence(elements)) => {
                let values = elements.iter().enumerate().filter_map(|(index, element)| {
                    let path = format!("{path}[{index}]");
                    match &element.value {
                        Value::Sequence(group) => {
                            let words = group.iter().enumerate().filter_map(|(index, word)| {
                                self.leaf(leaf, word, &format!("{path}[{index}]"))
                            });
                            Some(words.collect::<Vec<_>>().into())
                        }
                        _ => self.leaf(leaf, element, &path),
                    }
                });
                Some(values.collect::<Vec<_>>().into())
            }
            (Shape::Json, _) => {
                let value = self.json(node, path);
                Setting::serialize(value).ok()
            }
            (Shape::List(leaf) | Shape::Groups(leaf), other) => {
                let found = other.describe();
                let message = format!("`{path}` must be a list, found {found}");
                let hint = match other {
                    Value::Scalar(text) if matches!(shape, Shape::Groups(_)) => {
                        let words: Vec<&str> = text.split_whitespace().collect();
                        let words = crate::reading::document::shorten(&words.join(", "));
                        format!(
                            "write the program and its arguments as a list, `[{words}]`: no shell is asked"
                        )
                    }
                    Value::Scalar(text) => {
                        format!("write `[{}]`", crate::reading::document::shorten(text))
                    }
                    _ => format!("each element is {}", leaf.describe()),
                };
                self.misfit(node, path, message, Some(hint));
                None
            }
            (Shape::Single(leaf), _) => self.leaf(leaf, node, path),
            (Shape::Section(_) | Shape::Table(_) | Shape::Patterns(_), _) => None,
        }
    }

    /// Converts the value at `node` to JSON, with the types that YAML gives it. Duplicate names
    /// were found before.
    fn json(&mut self, node: &Node, path: &str) -> serde_json::Value {
        self.origins
            .insert(path.to_owned(), self.document.origin(node.at));
        match &node.value {
            Value::Nothing => serde_json::Value::Null,
            Value::Scalar(text) => node.plain().unwrap_or_else(|| text.as_str().into()),
            Value::Sequence(elements) => elements
                .iter()
                .enumerate()
                .map(|(index, element)| self.json(element, &format!("{path}[{index}]")))
                .collect(),
            Value::Mapping(entries) => entries
                .iter()
                .map(|(key, node)| (key.name.clone(), self.json(node, &child(path, &key.name))))
                .collect(),
        }
    }

    fn leaf(&mut self, leaf: &Leaf, node: &Node, path: &str) -> Option<Setting> {
        let Value::Scalar(text) = &node.value else {
            let found = node.value.describe();
            let message = format!("`{path}` must be {}, found {found}", leaf.describe());
            let hint = match &node.value {
                Value::Nothing => Some(match self.document.tag_before(node.at) {
                    Some(tag) => format!(
                        "put quotes around it: `\"{tag}\"`; without them `{tag}` is a tag in YAML"
                    ),
                    None => "leave the key out for its default".to_owned(),
                }),
                _ => None,
            };
            self.misfit(node, path, message, hint);
            return None;
        };
        let is_secret = *leaf == Leaf::Text(Format::Secret);
        if is_secret && Secret::new(text.as_str()).is_written_out() {
            // Another mistake on the same line must not show it.
            self.secret_lines.insert(node.at.line());
        }
        let begun = with_absolute_files(text, self.base);
        let text = begun.as_ref().unwrap_or(text);
        if !is_secret && let Some(kind) = ["${vault:", "${cmd:"].iter().find(|it| refers(text, it))
        {
            let message =
                format!("`{path}` cannot refer to a secret: `config show` would print it");
            let hint = format!(
                "`{kind}…}}` is for keys that hold secrets, such as `env`, `headers` and `url`"
            );
            self.misfit(node, path, message, Some(hint));
            return None;
        }
        let plain = takes_credentials(path).then(|| without_credentials(text));
        let replaced = match interpolate(plain.as_deref().unwrap_or(text), self.environment) {
            Ok(replaced) => replaced,
            Err(error) => {
                let named = vault_references(text).map(|it| (path.to_owned(), it));
                self.references.extend(named);
                match upstream_of(path).filter(|_| is_secret) {
                    // One upstream is no reason to stop the others.
                    Some(upstream) => {
                        let upstream = upstream.to_owned();
                        self.hold(
                            node,
                            path,
                            upstream,
                            format!("`{path}` {error}"),
                            error.hint(),
                        );
                        return Some(text.clone().into());
                    }
                    None => {
                        self.misfit(node, path, format!("`{path}` {error}"), error.hint());
                        return None;
                    }
                }
            }
        };
        for (reference, value) in replaced.iter().flat_map(|it| &it.uses) {
            if is_secret {
                redaction::know(known_secrets(path, reference, value.reveal()));
            }
            self.references.push((path.to_owned(), reference.clone()));
        }
        let replaced = replaced.map(|it| it.text);
        let resolved = replaced.as_deref().unwrap_or(text);
        let is_reference = replaced.is_some();
        // Variables of programs may have several lines, as keys in PEM have.
        if is_secret && path.contains(".env.") && !resolved.contains('\0') {
            return Some(text.clone().into());
        }
        match leaf.coerce(resolved, self.base) {
            Ok(_) if is_secret => Some(text.clone().into()),
            Ok(value) => Some(value),
            Err(misfit) => {
                // What a variable holds may be a secret: the message shows the reference only.
                let found = node.value.describe();
                let message = match replaced {
                    None => format!("`{path}` {}, found {found}", misfit.expected),
                    Some(_) => format!(
                        "`{path}` {}, found what {found} stands for",
                        misfit.expected
                    ),
                };
                match upstream_of(path).filter(|_| is_secret && is_reference) {
                    Some(upstream) => {
                        self.hold(node, path, upstream.to_owned(), message, misfit.hint);
                        Some(text.clone().into())
                    }
                    None => {
                        self.misfit(node, path, message, misfit.hint);
                        None
                    }
                }
            }
        }
    }

    /// Entries of a section, which has `keys` if their names are not the operator's.
    fn entries<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        keys: Option<&Keys>,
    ) -> &'n [(Key, Node)] {
        match &node.value {
            Value::Nothing if guards(path) => {
                let place = if path.is_empty() { ROOT_KEY } else { path };
                let message = format!("`{place}` must be a section, found nothing");
                let hint = "write what it holds below it, indented; or `{}`, if that is nothing";
                self.misfit(node, place, message, Some(hint.to_owned()));
                &[]
            }
            // `http:` with every key below it commented out.
            Value::Nothing => &[],
            Value::Mapping(entries) => entries,
            other => {
                let place = if path.is_empty() { ROOT_KEY } else { path };
                let message = format!("`{place}` must be a section, found {}", other.describe());
                let hint = keys.filter(|it| it.len() <= MAX_KEYS_TOLD).map(|keys| {
                    let names: Vec<&str> = keys.keys().map(String::as_str).collect();
                    format!(
                        "write below it what it holds, indented: {}",
                        names.join(", ")
                    )
                });
                self.misfit(node, place, message, hint);
                &[]
            }
        }
    }

    /// Holds an upstream whose secret cannot be used: it is no reason to stop the others.
    fn hold(
        &mut self,
        node: &Node,
        path: &str,
        upstream: String,
        why: String,
        hint: Option<String>,
    ) {
        let message = format!("{why}; the upstream `{upstream}` is held until it can be resolved");
        let problem = Problem::warning(self.document.origin(node.at), message);
        let problem = problem.key(path).without_line();
        let why = match &hint {
            Some(hint) => format!("{why}: {hint}"),
            None => why,
        };
        self.problems.push(problem.hint_if(hint));
        self.unresolved.push((upstream, why));
    }

    fn misfit(&mut self, node: &Node, path: &str, message: String, hint: Option<String>) {
        let problem = Problem::error(self.document.origin(node.at), message).key(path);
        self.problems.push(problem.hint_if(hint));
    }

    /// `meant` and `hint`: what was probably meant, if that can be guessed, and what to do.
    fn unknown(&mut self, key: &Key, path: &str, (meant, hint): (Option<String>, String)) {
        let origin = self.document.origin(key.at);
        let message = format!("unknown key `{path}`");
        let problem = Problem::error(origin, message).key(path).hint(hint);
        self.problems.push(Problem { meant, ..problem });
    }

    /// The key that was probably meant by `name` in the section at `path`, and what to say of it.
    fn meant(&self, name: &str, keys: &Keys, path: &str) -> (Option<String>, String) {
        let guess = |key: String| {
            let hint = format!("did you mean `{key}`?");
            (Some(key), hint)
        };
        if let Some(sibling) = nearest(name, keys.keys().map(String::as_str)) {
            return guess(child(path, sibling));
        }
        // A section too deep: `confirm` in the `tools` of a client is a key of the client.
        let mut enclosing = self.enclosing.iter().rev();
        if let Some((around, _)) =
            enclosing.find(|(around, keys)| !around.is_empty() && keys.contains_key(name))
        {
            return guess(child(around, name));
        }
        // The right key in the wrong place, if there are few such keys.
        let settings = settings(self.keys);
        let last = |path: &[&'a str]| path.last().copied();
        let similar = nearest(name, settings.iter().filter_map(|(path, _)| last(path)));
        let elsewhere = settings.iter().filter(|(path, _)| last(path) == similar);
        let mut elsewhere: Vec<_> = elsewhere.map(|(path, _)| join(path)).collect();
        match elsewhere.len() {
            1 => return guess(elsewhere.remove(0)),
            2..=3 if similar.is_some() => {
                let hint = format!("did you mean one of `{}`?", elsewhere.join("`, `"));
                return (None, hint);
            }
            _ => {}
        }
        let known: Vec<&str> = keys.keys().map(String::as_str).collect();
        (
            None,
            format!("known keys here are `{}`", known.join("`, `")),
        )
    }
}
