//! Layers of files: a system declares servers, a domain enables, disables and overrides them, a session changes what
//! widens nothing (founding document 003, §5; decision D32).

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::Text;
use crate::environment;
use crate::layer::{Layer, Origins, origin_near};
use crate::problem::{Origin, Problem};
use crate::reading::document::{Document, Key, Node, Place, Value};
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
    /// Changes what widens nothing, on the machine of a developer.
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

/// A key that a session can set; [`NAME`] stands for a name of the operator's choice.
struct Permitted {
    key: &'static [&'static str],
    value: Option<bool>,
}

const fn any(key: &'static [&'static str]) -> Permitted {
    Permitted { key, value: None }
}

/// Part of a key that stands for a name.
const NAME: &str = "*";

/// All that a session can set. What is not here is refused, and so is each new key of the configuration: one that is added
/// here can neither widen what rules, pins, filters and identities leave, nor offer, run or reach anything more, nor show
/// more to clients or to others.
const OF_SESSIONS: [Permitted; 17] = [
    // Lines for the operator of the process, on its standard error; the record of calls is the ledger's.
    any(&["logging", "format"]),
    any(&["logging", "level"]),
    any(&["logging", "output"]),
    any(&["logging", "requests"]),
    // Another port of the same address, for several servers on the machine of a developer.
    any(&["http", "port"]),
    any(&["desk", "port"]),
    // Forms of lists and answers, in which the same stands.
    any(&["tools", "page_size"]),
    any(&["tools", "error_style"]),
    any(&["resources", "page_size"]),
    // A time after which progress is told of.
    any(&["tools", "async_threshold_seconds"]),
    // Times of the start and the end of the process. A call that is cancelled at the end is on record like each other.
    any(&["gateway", "first_start_seconds"]),
    any(&["shutdown", "drain_seconds"]),
    any(&["shutdown", "ready_delay_seconds"]),
    // Fewer upstreams.
    Permitted {
        key: &["upstreams", NAME, "enabled"],
        value: Some(false),
    },
    // Times of connections and calls, which no rule looks at.
    any(&["upstreams", NAME, "connect_timeout_seconds"]),
    any(&["upstreams", NAME, "idle_seconds"]),
    any(&["upstreams", NAME, "timeout_seconds"]),
];
/// Keys of an upstream that a domain can set.
const OF_DOMAINS: [&str; 2] = ["enabled", "env"];

/// The files of the layers, the lowest first: the system that `main` inherits from, `main`, and the session's file
/// beside it.
pub(crate) fn sources(main: Text, path: &Path, problems: &mut Vec<Problem>) -> Vec<Source> {
    let base = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
    let session = session_of(path);
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
        let system = place_of_system(path, &system);
        let known = problems.len();
        let text = read(&system, problems);
        // It is this file that is wrong, and no other is to be made.
        for problem in &mut problems[known..] {
            let hint = format!("`{INHERIT}` in {} names it: correct that", path.display());
            problem.hint = Some(hint);
        }
        match text {
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
    // A link that leads nowhere is a file that cannot be read.
    if let Some(session) = session
        .as_deref()
        .filter(|it| it.symlink_metadata().is_ok())
    {
        found.extend(read(session, problems).map(|text| Source {
            text,
            rank: Rank::Session,
            base: base(path),
        }));
    }
    let usual = path.with_extension(LOCAL);
    for near in near_sessions(path, &usual) {
        let message = format!(
            "{} is not read: the file of a session is {}",
            near.display(),
            usual.display()
        );
        problems.push(Problem::warning(Origin::Default, message).hint("rename it, or remove it"));
    }
    found
}

/// Place of the session's file beside the one at `path`, whether it is there or not; a session has none of its own.
pub(crate) fn session_of(path: &Path) -> Option<PathBuf> {
    Some(path.with_extension(LOCAL)).filter(|it| it != path)
}

/// Files beside the one at `path` that somebody may take for the file of its session.
fn near_sessions(path: &Path, session: &Path) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut near = Vec::new();
    for stem in [&*stem, &stem.replace('_', "-"), &stem.replace('-', "_")] {
        for ending in ["yaml", "yml", "json"] {
            for middle in [".local.", "-local.", "_local."] {
                near.push(path.with_file_name(format!("{stem}{middle}{ending}")));
            }
        }
    }
    near.sort();
    near.dedup();
    near.retain(|it| it != session && it != path && it.is_file());
    near
}

/// The file that `inherit` in the file at `path` names: relative to the directory of that file, and if there is none, to the
/// directory that both begin at. Document 003 (§5.4) writes paths from the root of the repository: `src/runtime/…` in
/// `/srv/shop/src/domain/…` is `/srv/shop/src/runtime/…`. No other directory is looked in, so that nobody's file but one
/// beside the domain's is taken for the system.
fn place_of_system(path: &Path, system: &Path) -> PathBuf {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let beside = environment::absolute(directory, system);
    let Some(Component::Normal(first)) = system.components().next() else {
        return beside;
    };
    if beside.exists() {
        return beside;
    }
    let mut above = directory.ancestors();
    let root = above.find(|it| it.file_name() == Some(first));
    match root.and_then(Path::parent) {
        Some(root) => environment::absolute(root, system),
        None => beside,
    }
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

/// Refuses references to programs and files in a layer over the system, and takes them out, so that no program is run and
/// no file is read by the word of one.
fn check_references(document: &mut Document<'_>, rank: Rank, problems: &mut Vec<Problem>) {
    if rank == Rank::System {
        return;
    }
    let mut found = Vec::new();
    take_references(&mut document.root, &mut found);
    for (at, kind) in found {
        let message = format!(
            "the {} cannot refer to {kind}: which programs are run, and which files are read, is the system's to say",
            rank.name()
        );
        problems.push(
            Problem::error(document.origin(at), message).hint(
                "let the system refer to it, or put the value into the vault: `${vault:NAME}`",
            ),
        );
    }
}

fn take_references(node: &mut Node, found: &mut Vec<(Place, &'static str)>) {
    match &mut node.value {
        Value::Nothing => {}
        Value::Scalar(text) => {
            let kinds = [("${cmd:", "the output of a program"), ("${file:", "a file")];
            if let Some((_, kind)) = kinds.iter().find(|(it, _)| text.contains(it)) {
                found.push((node.at, *kind));
                text.clear();
            }
        }
        Value::Sequence(nodes) => {
            nodes.iter_mut().for_each(|it| take_references(it, found));
        }
        Value::Mapping(entries) => {
            let nodes = entries.iter_mut().map(|(_, it)| it);
            nodes.for_each(|it| take_references(it, found));
        }
    }
}

/// Brings a document into the form of this program: takes `inherit` out, and reads `servers` of document 003 as
/// upstreams. Returns the reasons why upstreams cannot be used, by their names.
pub(crate) fn normalize(
    document: &mut Document<'_>,
    rank: Rank,
    problems: &mut Vec<Problem>,
) -> Vec<(String, String)> {
    check_inherit(document, rank, problems);
    check_references(document, rank, problems);
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
            let hint = matches!(key.name.as_str(), "override" | "config" | "enabled")
                .then(|| format!("it belongs to one server: `{SERVERS}.NAME.{}`", key.name));
            let problem = Problem::error(
                document.origin(key.at),
                format!(
                    "`{}` is unknown in a file of the form `{SCHEMA}: {SCHEMA_5}`; keys are `version`, `{SCHEMA}`, \
                     `{INHERIT}` and `{SERVERS}`",
                    key.name
                ),
            );
            problems.push(problem.hint_if(hint));
        }
    }
    let Some((key, mut node)) = upstreams else {
        return unusable;
    };
    if let Value::Mapping(servers) = &mut node.value {
        for (name, server) in servers {
            let (unusable_here, twice) = of_003(name, server);
            for (at, message) in twice {
                problems.push(
                    Problem::error(document.origin(at), message)
                        .key(format!("servers.{}", name.name))
                        .hint("keep one of the two"),
                );
            }
            for Unusable { at, why, cure } in unusable_here {
                let name = &name.name;
                let message = format!("{why}; the upstream `{name}` is held");
                problems.push(Problem::warning(document.origin(at), message).hint(cure));
                // The first reason counts.
                unusable.push((name.clone(), format!("{why}: {cure}")));
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

/// Reason why an entry of `servers` cannot be used.
struct Unusable {
    at: Place,
    why: String,
    cure: &'static str,
}

/// Brings an entry of `servers` into the form of an upstream; the reasons if it cannot be used, and the places of what is
/// said twice. The order of its members decides nothing.
fn of_003(name: &Key, server: &mut Node) -> (Vec<Unusable>, Vec<(Place, String)>) {
    let (mut unusable, mut twice) = (Vec::new(), Vec::new());
    let Value::Mapping(entries) = &mut server.value else {
        // Told where the document is read.
        return (unusable, twice);
    };
    let mut kept: Vec<(Key, Node)> = Vec::new();
    let mut settings: Vec<(Key, Node)> = Vec::new();
    // Where parameters stand, by their names: they all become variables.
    let mut said: BTreeMap<String, &str> = BTreeMap::new();
    let mut say = |section: &'static str, members: &[(Key, Node)], twice: &mut Vec<_>| {
        for (key, _) in members {
            if let Some(other) = said.insert(key.name.clone(), section) {
                let (server, key, at) = (&name.name, &key.name, key.at);
                let message = format!(
                    "`servers.{server}.{other}.{key}` and `servers.{server}.{section}.{key}` are the same variable"
                );
                twice.push((at, message));
            }
        }
    };
    let has_allow = entries.iter().any(|(key, _)| key.name == "allow");
    for (mut key, mut node) in std::mem::take(entries) {
        match (key.name.as_str(), &mut node.value) {
            ("type", Value::Scalar(kind)) if kind == "external" => {}
            ("type", Value::Scalar(kind)) => unusable.push(Unusable {
                at: node.at,
                why: format!(
                    "`servers.{}.type` is `{kind}`, and a class of another runtime cannot be run here",
                    name.name
                ),
                cure: "give the server a `command`, or a `url`, with `type: external`",
            }),
            ("module" | "class", _) => {}
            ("transport", Value::Scalar(kind)) if kind == "stdio" => {}
            ("transport", Value::Scalar(kind)) if kind == "websocket" => {}
            ("tools", _) if has_allow => {
                let name = &name.name;
                let message = format!(
                    "`servers.{name}.tools` and `servers.{name}.allow` both say which tools may be used"
                );
                twice.push((key.at, message));
            }
            // As in files of hosts; an `allow` that is empty leaves all.
            ("tools", Value::Sequence(tools)) if tools.is_empty() => unusable.push(Unusable {
                at: key.at,
                why: format!(
                    "`servers.{}.tools` is empty, so that no tool may be used",
                    name.name
                ),
                cure: "name the tools, or set `enabled: false`",
            }),
            ("tools", _) => {
                key.name = "allow".to_owned();
                kept.push((key, node));
            }
            ("permissions", _) => {
                if let Some(what) = restricts(&node) {
                    unusable.push(Unusable {
                        at: key.at,
                        why: format!(
                            "`servers.{}.permissions` restricts {what}, which is not enforced here",
                            name.name
                        ),
                        cure: "state it under `governance`, and leave it out",
                    });
                }
            }
            ("config", Value::Mapping(members)) => {
                say("config", members, &mut twice);
                settings.append(members);
            }
            ("override", Value::Mapping(members)) => {
                say("override", members, &mut twice);
                settings.append(members);
            }
            ("env", Value::Mapping(members)) => {
                say("env", members, &mut twice);
                kept.push((key, node));
            }
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
    (unusable, twice)
}

/// Restriction that `permissions` of document 003 state, if there is one.
fn restricts(permissions: &Node) -> Option<&'static str> {
    let Value::Mapping(entries) = &permissions.value else {
        return Some("something");
    };
    let is_true = |node: &Node| matches!(&node.value, Value::Scalar(text) if text == "true");
    let is_empty = |node: &Node| matches!(&node.value, Value::Sequence(paths) if paths.is_empty());
    entries
        .iter()
        .find_map(|(key, node)| match key.name.as_str() {
            "read" | "write" if is_true(node) => None,
            "read" => Some("reading"),
            "write" => Some("writing"),
            "denied_paths" if is_empty(node) => None,
            // An empty list of those that are allowed leaves none.
            "allowed_paths" | "denied_paths" => Some("paths"),
            _ => Some("something that is not known"),
        })
}

/// Refuses what a layer may not set, naming both places.
pub(crate) fn check(
    rank: Rank,
    layer: &Layer,
    below: &Origins,
    ranks: &BTreeMap<String, Rank>,
    problems: &mut Vec<Problem>,
) {
    if rank == Rank::System {
        return;
    }
    let mut told: BTreeMap<String, ()> = BTreeMap::new();
    for (key, origin) in &layer.origins {
        let parts: Vec<_> = segments(key).collect();
        let (at, why) = match (rank, parts.as_slice()) {
            (_, ["upstreams"]) => continue,
            (_, ["upstreams", name, ..]) if !below.contains_key(&upstream_key(name)) => (
                upstream_key(name),
                "it is not declared by the system, and no other layer can declare a server"
                    .to_owned(),
            ),
            (Rank::Domain, ["upstreams", _, "env", name, ..]) if registry::is_steering(name) => (
                key.clone(),
                "this variable decides which code the server runs, where it comes from, or by which way, and so it is the \
                 system's"
                    .to_owned(),
            ),
            (Rank::Domain, ["upstreams", _]) => continue,
            (Rank::Domain, ["upstreams", _, it, ..]) if OF_DOMAINS.contains(it) => continue,
            (Rank::Domain, _) => (
                key.clone(),
                "a domain can set `enabled` and `env` of servers and nothing else".to_owned(),
            ),
            (_, parts) => match refused_of_session(parts, layer) {
                Some(why) => (key.clone(), why),
                None => continue,
            },
        };
        // One problem for a section, and not one for each key in it.
        let is_told = told.keys().any(|it| {
            let rest = at.strip_prefix(it.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        if is_told {
            continue;
        }
        let below = match origin_near(below, &at) {
            Origin::File(place) => {
                let of = ranks.get(&place.file).copied();
                let of = of.unwrap_or(Rank::System).name();
                format!("{of}: {}", Origin::File(place))
            }
            Origin::Default => "system: its default".to_owned(),
            place => format!("system: {place}"),
        };
        let message = format!("the {} cannot set `{at}`: {why} ({below})", rank.name());
        let hint = (rank == Rank::Session).then(|| {
            let all = OF_SESSIONS.iter().map(|it| it.key.join("."));
            let all: Vec<_> = all.map(|it| it.replace(NAME, "NAME")).collect();
            format!("a session can set `{}`", all.join("`, `"))
        });
        let problem = Problem::error(origin.clone(), message).key(&at);
        problems.push(problem.hint_if(hint));
        told.insert(at, ());
    }
}

/// Reason why a session cannot set a key; `None` if it can, and for a section in which it can set something.
fn refused_of_session(parts: &[&str], layer: &Layer) -> Option<String> {
    let is_at = |known: &[&str]| {
        let mut pairs = known.iter().zip(parts);
        pairs.all(|(known, part)| *known == NAME || known == part)
    };
    let within = OF_SESSIONS.iter().filter(|it| is_at(it.key));
    let mut why = Some("a session file cannot change permissions".to_owned());
    for it in within {
        if parts.len() < it.key.len() {
            return None;
        }
        if parts.len() == it.key.len() {
            why = match it.value {
                Some(value) if layer.flag(parts) != Some(value) => {
                    Some(format!("a session can set it to `{value}` alone"))
                }
                _ => None,
            };
        }
    }
    why
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
