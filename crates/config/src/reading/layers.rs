//! Layers of files: a system declares servers, a domain enables, disables and overrides them, a session changes what is
//! no rule (founding document 003, §5).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Text;
use crate::environment;
use crate::layer::{Layer, Origins, origin_near};
use crate::problem::{Origin, Problem};
use crate::reading::document::{Document, Key, Node, Value};
use crate::reading::shape::ROOT_KEY;

/// Key by which a domain names the file of its system.
const INHERIT: &str = "inherit";
/// Key at the top of a file in the form of document 003.
const SCHEMA: &str = "schema";
/// The only schema of that form.
const SCHEMA_5: &str = "mcp-config-v5";
/// Servers in a file of that form.
const SERVERS: &str = "servers";
/// Ending of the name of a session's file, in the place of that of the file beside it.
const LOCAL: &str = "local.yaml";

/// Rank of a file among the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Declares servers, and has all rules.
    System,
    /// Enables, disables and overrides what its system declares.
    Domain,
    /// Changes what is no rule, on the machine of a developer.
    Session,
}

impl Rank {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Domain => "domain",
            Self::Session => "session",
        }
    }
}

/// A file that is read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) text: Text,
    pub(crate) rank: Rank,
    /// Beginning of the relative paths in it.
    pub(crate) base: PathBuf,
}

/// Sections of rules, and keys of an upstream that are rules, which a session cannot set.
const RULES: [&str; 6] = [
    "governance",
    "identity",
    "ledger",
    "redaction",
    "vault",
    "alerts",
];
const UPSTREAM_RULES: [&str; 10] = [
    "allow",
    "deny",
    "hold",
    "trust",
    "risk",
    "risks",
    "accept_changes",
    "credentials",
    "isolation",
    "prefix",
];
/// Keys of an upstream that a domain can set.
const OF_DOMAINS: [&str; 2] = ["enabled", "env"];

/// The files of the layers, the lowest first: the system that `main` inherits from, `main`, and the session's file
/// beside it.
pub(crate) fn sources(main: Text, path: &Path, problems: &mut Vec<Problem>) -> Vec<Source> {
    let base = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
    let session = path.with_extension(LOCAL);
    let read = |path: &Path, problems: &mut Vec<Problem>| {
        let text = crate::reading::text(path, path, true, problems)?;
        Some(Text {
            name: path.display().to_string(),
            text,
        })
    };
    let mut found = Vec::new();
    let mut rank = Rank::System;
    if let Some((system, at)) = inherited(&main) {
        rank = Rank::Domain;
        let system = environment::absolute(&base(path), &system);
        match read(&system, problems) {
            Some(text) if inherits(&text) => {
                let message = format!(
                    "`{INHERIT}` leads to {}, which inherits itself: a system inherits from nothing",
                    system.display()
                );
                problems.push(Problem::error(at, message));
            }
            Some(text) => found.push(Source {
                text,
                rank: Rank::System,
                base: base(&system),
            }),
            None => {}
        }
    }
    found.push(Source {
        text: main,
        rank,
        base: base(path),
    });
    if session != path && session.is_file() {
        found.extend(read(&session, problems).map(|text| Source {
            text,
            rank: Rank::Session,
            base: base(path),
        }));
    }
    found
}

/// The file that a text inherits from, and where it says so. `inherit` with another value than a text leads to no file:
/// [`normalize`] refuses it.
fn inherited(text: &Text) -> Option<(PathBuf, Origin)> {
    let document = Document::parse(&text.name, &text.text, &mut Vec::new())?;
    let node = value_of_inherit(&document)?;
    match &node.value {
        Value::Scalar(path) if !path.is_empty() => {
            Some((PathBuf::from(path), document.origin(node.at)))
        }
        _ => None,
    }
}

/// True if a text has `inherit`, whatever its value is.
fn inherits(text: &Text) -> bool {
    let document = Document::parse(&text.name, &text.text, &mut Vec::new());
    document.is_some_and(|it| value_of_inherit(&it).is_some())
}

fn value_of_inherit<'a>(document: &'a Document<'_>) -> Option<&'a Node> {
    let Value::Mapping(entries) = &document.root.value else {
        return None;
    };
    let (_, node) = entries.iter().find(|(key, _)| key.name == INHERIT)?;
    Some(node)
}

/// Refuses an `inherit` that was not followed: the rules of the system that it means would not be in force.
fn check_inherit(document: &Document<'_>, rank: Rank, problems: &mut Vec<Problem>) {
    let Some(node) = value_of_inherit(document) else {
        return;
    };
    let (message, hint) = match rank {
        // Its value was followed to the system.
        Rank::Domain => return,
        Rank::Session => (
            format!("`{INHERIT}` cannot stand in the file of a session"),
            "a session stands over the file that it is named after: leave the key out",
        ),
        Rank::System => match &node.value {
            Value::Scalar(path) if !path.is_empty() => (
                format!(
                    "`{INHERIT}` leads to another file, which is not read here: what follows from a domain is known with \
                     its system alone, and servers are declared there"
                ),
                "name the file of the system",
            ),
            value => (
                format!(
                    "`{INHERIT}` must be the path of one file, that of the system, found {}",
                    value.describe()
                ),
                "write `inherit: PATH`; without the key the file is a system itself",
            ),
        },
    };
    problems.push(
        Problem::error(document.origin(node.at), message)
            .key(INHERIT)
            .hint(hint),
    );
}

/// Brings a document into the form of this program: takes `inherit` out, and reads `servers` of document 003 as
/// upstreams. Returns the reasons why upstreams cannot be used, by their names.
pub(crate) fn normalize(
    document: &mut Document<'_>,
    rank: Rank,
    problems: &mut Vec<Problem>,
) -> Vec<(String, String)> {
    check_inherit(document, rank, problems);
    let mut unusable = Vec::new();
    let Value::Mapping(entries) = &mut document.root.value else {
        return unusable;
    };
    let has = |entries: &[(Key, Node)], name: &str| entries.iter().any(|(key, _)| key.name == name);
    if has(entries, ROOT_KEY) || !(has(entries, SERVERS) || has(entries, SCHEMA)) {
        entries.retain(|(key, _)| key.name != INHERIT);
        return unusable;
    }
    let mut upstreams = None;
    for (key, node) in std::mem::take(entries) {
        let is_known = match (key.name.as_str(), &node.value) {
            (INHERIT | "version", _) => true,
            (SCHEMA, Value::Scalar(schema)) => schema == SCHEMA_5,
            (SERVERS, _) => {
                upstreams = Some((key, node));
                continue;
            }
            _ => false,
        };
        if !is_known {
            problems.push(Problem::error(
                document.origin(key.at),
                format!(
                    "`{}` is unknown in a file of the form `{SCHEMA}: {SCHEMA_5}`; keys are `version`, `{SCHEMA}`, \
                     `{INHERIT}` and `{SERVERS}`",
                    key.name
                ),
            ));
        }
    }
    let Some((key, mut node)) = upstreams else {
        return unusable;
    };
    if let Value::Mapping(servers) = &mut node.value {
        for (name, server) in servers {
            if let Some(why) = of_003(name, server) {
                unusable.push((name.name.clone(), why));
            }
        }
    }
    let at = key.at;
    let named = |name: &str, node: Node| {
        let key = Key {
            name: name.to_owned(),
            at,
        };
        Node::mapping(at, vec![(key, node)])
    };
    document.root = named(ROOT_KEY, named("upstreams", node));
    unusable
}

/// Brings an entry of `servers` into the form of an upstream; the reason if it cannot be used.
fn of_003(name: &Key, server: &mut Node) -> Option<String> {
    let mut unusable = None;
    let mut not_here = |why: String| {
        unusable.get_or_insert(why);
    };
    let Value::Mapping(entries) = &mut server.value else {
        // Told where the document is read.
        return None;
    };
    let mut kept = Vec::new();
    let mut settings: Vec<(Key, Node)> = Vec::new();
    for (mut key, mut node) in std::mem::take(entries) {
        match (key.name.as_str(), &mut node.value) {
            ("type", Value::Scalar(kind)) if kind == "external" => {}
            ("type", Value::Scalar(kind)) => not_here(format!(
                "`servers.{}.type` is `{kind}`: a class of another runtime cannot be run here; give the server a \
                 `command`, or a `url`, with `type: external`",
                name.name
            )),
            ("module" | "class", _) => {}
            ("transport", Value::Scalar(kind)) if kind == "stdio" => {}
            ("transport", Value::Scalar(kind)) if kind == "websocket" => {}
            ("tools", _) => {
                key.name = "allow".to_owned();
                kept.push((key, node));
            }
            ("permissions", _) => {
                if let Some(why) = restricts(&node) {
                    not_here(format!(
                        "`servers.{}.permissions` restricts {why}, which is not enforced here: state it under \
                         `governance`, and leave it out",
                        name.name
                    ));
                }
            }
            ("config" | "override", Value::Mapping(members)) => settings.append(members),
            _ => kept.push((key, node)),
        }
    }
    if !settings.is_empty() {
        // Parameters of a server reach it by its environment.
        let at = settings[0].0.at;
        let key = Key {
            name: "env".to_owned(),
            at,
        };
        match kept.iter_mut().find(|(key, _)| key.name == "env") {
            Some((
                _,
                Node {
                    value: Value::Mapping(env),
                    ..
                },
            )) => env.extend(settings),
            _ => kept.push((key, Node::mapping(at, settings))),
        }
    }
    *entries = kept;
    unusable
}

/// Restriction that `permissions` of document 003 state, if there is one.
fn restricts(permissions: &Node) -> Option<&'static str> {
    let Value::Mapping(entries) = &permissions.value else {
        return Some("something");
    };
    let is_true = |node: &Node| matches!(&node.value, Value::Scalar(text) if text == "true");
    entries
        .iter()
        .find_map(|(key, node)| match key.name.as_str() {
            "read" | "write" if is_true(node) => None,
            "read" => Some("reading"),
            "write" => Some("writing"),
            "allowed_paths" | "denied_paths" => match &node.value {
                Value::Sequence(paths) if paths.is_empty() => None,
                _ => Some("paths"),
            },
            _ => Some("something that is not known"),
        })
}

/// Refuses what a layer may not set, naming both places.
pub(crate) fn check(rank: Rank, layer: &Layer, below: &Origins, problems: &mut Vec<Problem>) {
    if rank == Rank::System {
        return;
    }
    let mut told: BTreeMap<String, ()> = BTreeMap::new();
    for (key, origin) in &layer.origins {
        let mut parts = segments(key);
        let first = parts.next().unwrap_or_default();
        let (upstream, setting) = (parts.next(), parts.next());
        let (at, why) = match (rank, first, upstream, setting) {
            (_, "upstreams", None, _) => continue,
            (_, "upstreams", Some(name), _) if !below.contains_key(&upstream_key(name)) => (
                upstream_key(name),
                "it is not declared by the system, and no other layer can declare a server",
            ),
            (Rank::Domain, "upstreams", Some(_), None) => continue,
            (Rank::Domain, "upstreams", Some(_), Some(it)) if OF_DOMAINS.contains(&it) => continue,
            (Rank::Domain, ..) => (
                key.clone(),
                "a domain can set `enabled` and `env` of servers and nothing else",
            ),
            (_, "upstreams", Some(_), Some(it)) if UPSTREAM_RULES.contains(&it) => {
                (key.clone(), "it is a rule, which a session cannot change")
            }
            (_, "upstreams", ..) => continue,
            (_, first, ..) if RULES.contains(&first) => {
                (key.clone(), "it is a rule, which a session cannot change")
            }
            _ => continue,
        };
        // One problem for a section, and not one for each key in it.
        let is_told = told
            .keys()
            .any(|it| at == *it || at.starts_with(&format!("{it}.")));
        if is_told {
            continue;
        }
        let system = match origin_near(below, &at) {
            Origin::Default => "its default".to_owned(),
            place => place.to_string(),
        };
        let message = format!(
            "the {} cannot set `{at}`: {why} (system: {system})",
            rank.name()
        );
        problems.push(Problem::error(origin.clone(), message).key(&at));
        told.insert(at, ());
    }
}

fn upstream_key(name: &str) -> String {
    crate::layer::child("upstreams", name)
}

/// The parts of a key; a quoted one without its quotation marks.
fn segments(key: &str) -> impl Iterator<Item = &str> {
    let mut rest = key;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (part, after) = match rest.strip_prefix('"').and_then(|it| it.split_once('"')) {
            Some((part, after)) => (part, after),
            None => {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                rest.split_at(end)
            }
        };
        rest = after.strip_prefix('.').unwrap_or(after);
        if after.starts_with('[') {
            rest = "";
        }
        Some(part)
    })
}
