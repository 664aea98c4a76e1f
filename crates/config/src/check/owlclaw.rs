//! Tools that an application's own `owlclaw.yaml` switches off, and limits that it states.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use adapter_skills::rule_meant;

use crate::environment::Environment;
use crate::layer::{Origins, child};
use crate::nearest::nearest;
use crate::problem::{Origin, Problem};
use crate::reading::document::{Document, Key, Node, Value};
use crate::sections::Config;
use crate::sections::application::Switches;
use crate::{Loaded, reading};

/// The variable that names the file, for OwlClaw as for this program.
const VARIABLE: &str = "OWLCLAW_CONFIG";
/// Sections that are read here.
const SECTIONS: [&str; 2] = ["skills", "governance"];
/// Name of the file, beside the application.
const FILE: &str = "owlclaw.yaml";

/// Reads the files of the application, if it has any. What they say that would have to be honoured and
/// cannot be is a problem.
pub(crate) fn switches(
    config: &Config,
    environment: &Environment,
    directory: &Path,
    origins: &Origins,
    problems: &mut Vec<Problem>,
) -> Switches {
    let mut switches = Switches::default();
    let Some(app) = &config.app else {
        return switches;
    };
    let named = environment.resolve(&format!("${{{VARIABLE}}}"));
    let named = named.filter(|name| !name.is_empty()).map(PathBuf::from);
    let is_named = named.is_some();
    let paths = match named {
        Some(named) => BTreeSet::from([directory.join(named)]),
        None => BTreeSet::from([directory.join(FILE), directory.join(beside(app))]),
    };
    for path in paths {
        let misnamed = path.with_extension("yml");
        if !is_named && misnamed.exists() {
            let message = format!("`{}` is not read", misnamed.display());
            let problem = Problem::error(Origin::Default, message);
            problems.push(problem.hint(format!(
                "OwlClaw reads `{FILE}`: rename it, or move it away"
            )));
        }
        // A link that leads nowhere is no file that is not there.
        let is_there = is_named || path.symlink_metadata().is_ok();
        let Some(text) = reading::text(&path, &path, is_there, problems) else {
            continue;
        };
        let name = path.display().to_string();
        if let Some(document) = Document::parse(&name, &text, problems) {
            take(&document, &mut switches, origins, problems);
            flatten(&document.root, "", &mut switches.settings);
        }
    }
    switches
}

/// Notes all settings below a node.
fn flatten(node: &Node, path: &str, settings: &mut BTreeMap<String, String>) {
    let text = match &node.value {
        Value::Nothing => return,
        Value::Scalar(text) => text.clone(),
        Value::Sequence(_) | Value::Mapping(_) => String::new(),
    };
    if let Value::Mapping(members) = &node.value {
        for (key, member) in members {
            let path = match path {
                "" => key.name.clone(),
                path => format!("{path}.{}", key.name),
            };
            flatten(member, &path, settings);
        }
    }
    if !path.is_empty() {
        settings.insert(path.to_owned(), text);
    }
}

/// Takes over what one file says.
fn take(
    document: &Document<'_>,
    switches: &mut Switches,
    origins: &Origins,
    problems: &mut Vec<Problem>,
) {
    for (node, path, known) in [
        (Some(&document.root), "", &SECTIONS[..]),
        (below(&document.root, "skills"), "skills", &["entries"][..]),
    ] {
        if let Some(node) = node {
            misnamed(document, node, path, known, problems);
        }
    }
    elsewhere(document, problems);
    let mut unfit = |node: &Node, key: &str, expected: &str| {
        let found = node.value.describe();
        let message = format!("`{key}` must be {expected}, found {found}");
        problems.push(Problem::error(document.origin(node.at), message));
    };
    let skills = below(&document.root, "skills");
    let entries = skills.and_then(|skills| below(skills, "entries"));
    let all = [
        (FILE, Some(&document.root)),
        ("skills", skills),
        ("skills.entries", entries),
    ];
    for (key, node) in all {
        if let Some(node) = node
            && !matches!(node.value, Value::Nothing | Value::Mapping(_))
        {
            unfit(node, key, "a table");
        }
    }
    let entries = match entries.map(|it| &it.value) {
        Some(Value::Mapping(entries)) => entries.as_slice(),
        _ => &[],
    };
    for (tool, entry) in entries {
        let key = child("skills.entries", &tool.name);
        let place = |node: &Node| format!("{}: {key}", document.origin(node.at));
        let enabled = match &entry.value {
            Value::Mapping(_) => below(entry, "enabled"),
            // What it was to say is not known.
            Value::Nothing => {
                unfit(entry, &key, "true, false or a table");
                None
            }
            _ => Some(entry),
        };
        if let Some(enabled) = enabled {
            match truth(enabled) {
                Some(true) => {}
                Some(false) => drop(switches.off.insert(tool.name.clone(), place(enabled))),
                None => unfit(enabled, &key, "true or false"),
            }
        }
        if let Some(weight) = below(entry, "migration_weight") {
            match hundredths(weight) {
                Some(number) => {
                    // Of two files the stricter one holds.
                    let before = switches.weights.get(&tool.name);
                    if before.is_none_or(|(before, _)| number < *before) {
                        let said = (number, place(weight));
                        switches.weights.insert(tool.name.clone(), said);
                    }
                }
                None => unfit(weight, &key, "a whole number from 0 to 100"),
            }
        }
        if let Value::Mapping(members) = &entry.value {
            // Others are the skill's own settings.
            for (member, node) in members {
                let known = ["enabled", "migration_weight"];
                if !known.contains(&member.name.as_str())
                    && let Some(meant) = nearest(&member.name, known)
                {
                    unfit(
                        node,
                        &child(&key, &member.name),
                        &format!("called `{meant}`"),
                    );
                }
            }
        }
    }
    if let Some(governance) = below(&document.root, "governance") {
        limits(document, governance, "governance", origins, problems);
    }
}

/// Complains about rules of tools and switches in `skills` where nothing reads them.
fn elsewhere(document: &Document<'_>, problems: &mut Vec<Problem>) {
    const OFF: [&str; 6] = [
        "deny", "denied", "disable", "disabled", "exclude", "excluded",
    ];
    let mut unread = |node: &Node, key: &str, hint: String| {
        let message = format!("`{key}` is not read here, so that it limits nothing");
        problems.push(Problem::error(document.origin(node.at), message).hint(hint));
    };
    let switch = "switch a tool off by `skills.entries.NAME: false`";
    let switches_off = |name: &str, node: &Node| match name {
        "enabled" | "active" => truth(node) == Some(false),
        "status" => matches!(&node.value, Value::Scalar(word) if OFF.contains(&word.as_str())),
        _ => {
            let is_empty = match &node.value {
                Value::Nothing => true,
                Value::Sequence(items) => items.is_empty(),
                _ => truth(node) == Some(false),
            };
            OFF.contains(&name) && !is_empty
        }
    };
    let Some(skills) = below(&document.root, "skills") else {
        return;
    };
    for (name, node) in members(skills) {
        let key = child("skills", &name.name);
        if name.name == "entries" {
            for (tool, entry) in members(node) {
                let key = child(&key, &tool.name);
                for (member, node) in members(entry) {
                    let name = member.name.as_str();
                    let key = child(&key, name);
                    if ["enabled", "migration_weight"].contains(&name)
                        || nearest(name, ["enabled", "migration_weight"]).is_some()
                    {
                        continue;
                    }
                    if let Some(rule) = rule_meant(name) {
                        let hint = format!(
                            "write `{rule}` below `owlclaw:` in the SKILL.md of `{}`, or a rule in the \
                             configuration of this server",
                            tool.name
                        );
                        unread(node, &key, hint);
                    } else if switches_off(name, node) {
                        unread(node, &key, switch.to_owned());
                    }
                }
            }
            continue;
        }
        if switches_off(&name.name, node) {
            unread(node, &key, switch.to_owned());
        }
        let inner = members(node);
        let is_rule = |(name, node): &&(Key, Node)| {
            let name = name.name.as_str();
            // All of the calls is what there is without a weight.
            let is_whole = matches!(&node.value, Value::Scalar(word) if word.as_str() == "100");
            (name == "migration_weight" && !is_whole)
                || switches_off(name, node)
                || rule_meant(name).is_some()
        };
        if let Some((member, node)) = inner.iter().find(is_rule) {
            let key = child(&key, &member.name);
            unread(
                node,
                &key,
                format!("write it below `skills.entries.{}`", name.name),
            );
        }
    }
}

/// Complains about keys that were probably meant to be one of `known`, in another spelling or joined by dots, or that have
/// one below them in the wrong place: what they switch off would be on offer.
fn misnamed(
    document: &Document<'_>,
    node: &Node,
    path: &str,
    known: &[&'static str],
    problems: &mut Vec<Problem>,
) {
    let Value::Mapping(members) = &node.value else {
        return;
    };
    for (key, member) in members {
        let name = key.name.as_str();
        if known.contains(&name) {
            continue;
        }
        let first = name.split('.').next().unwrap_or(name);
        let meant = match known.contains(&first) {
            true => Some(first),
            false => nearest(first, known.iter().copied()),
        };
        let beneath =
            (name == "owlclaw").then(|| known.iter().find(|it| below(member, it).is_some()));
        let message = match (meant, beneath.flatten()) {
            (_, Some(inner)) => format!("`{}` must stand at the top", child(name, inner)),
            (Some(meant), None) if name.contains('.') => {
                let path = child(path, name);
                format!("`{path}` must be written as sections below `{meant}`, without dots")
            }
            (Some(meant), None) => {
                let (path, meant) = (child(path, name), child(path, meant));
                format!("`{path}` must be called `{meant}`")
            }
            (None, None) => continue,
        };
        problems.push(Problem::error(document.origin(key.at), message));
    }
}

/// Complains about rules and limits that are stated as if they held, unless the configuration has what
/// takes their place.
fn limits(
    document: &Document<'_>,
    node: &Node,
    path: &str,
    origins: &Origins,
    problems: &mut Vec<Problem>,
) {
    let Value::Mapping(entries) = &node.value else {
        return;
    };
    for (key, node) in entries {
        let path = child(path, &key.name);
        let own = match key.name.as_str() {
            // No limits by themselves.
            "budget_alert_thresholds" | "fail_policy" => continue,
            name if is_off(name, node) => continue,
            "circuit_breaker" | "breaker" => Some("governance.breaker"),
            "time" | "time_constraints" | "trading_hours" | "trading_hours_only" => {
                Some("governance.trading_hours")
            }
            "risk_confirmation" => Some("governance.confirm"),
            "max_calls_per_minute" | "rate_limit" | "rate" => {
                Some("governance.default_quota.max_calls_per_minute")
            }
            "max_calls_per_day" | "max_daily_calls" => {
                Some("governance.default_quota.max_calls_per_day")
            }
            "budget_limits" => Some("governance.clients"),
            "allow" | "deny" | "hide" | "visibility" => Some("governance.default"),
            "confirm" | "requires_confirmation" => Some("governance.confirm"),
            name if names(name, "budget") => Some("governance.default_quota.monthly_budget"),
            name if names(name, "allowed") || names(name, "denied") => Some("governance.default"),
            name if names(name, "max") || names(name, "limit") => Some("governance.default_quota"),
            name => match rule_meant(name) {
                Some("requires_confirmation" | "risk_level") => Some("governance.confirm"),
                Some(_) => Some("governance.tools"),
                None => None,
            },
        };
        let Some(own) = own else {
            limits(document, node, &path, origins, problems);
            continue;
        };
        if !is_set(origins, own) {
            let message = format!("`{path}` is not read here, so that it limits nothing");
            let hint = format!("set `{own}` in the configuration of this server");
            let problem = Problem::error(document.origin(node.at), message);
            problems.push(problem.key(own).hint(hint));
        }
    }
}

/// Returns true for one of OwlClaw's checks of its own agent that is switched off.
fn is_off(name: &str, node: &Node) -> bool {
    let checks = ["circuit_breaker", "risk_confirmation", "time"];
    checks.contains(&name) && below(node, "enabled").and_then(truth) == Some(false)
}

/// Returns true for a key that the configuration states, or states one below.
fn is_set(origins: &Origins, own: &str) -> bool {
    origins.keys().any(|key| {
        let rest = key.strip_prefix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

/// Keys of this program for keys below `app.configure(governance=...)`; the first that fits counts.
const EQUIVALENTS: [(&str, &str); 11] = [
    // No limits by themselves; what cannot be decided is refused here in any case.
    ("fail_policy", ""),
    ("high_cost_threshold", ""),
    ("budget_alert_thresholds", ""),
    ("budget_limits", "governance.clients"),
    ("budget", "governance.default_quota.monthly_budget"),
    (
        "max_calls_per_minute",
        "governance.default_quota.max_calls_per_minute",
    ),
    (
        "max_calls_per_day",
        "governance.default_quota.max_calls_per_day",
    ),
    (
        "max_daily_calls",
        "governance.default_quota.max_calls_per_day",
    ),
    ("circuit_breaker", "governance.breaker"),
    ("time", "governance.trading_hours"),
    ("risk", "governance.confirm"),
];

impl Loaded {
    /// Problems with what an application sets of the governance of OwlClaw's own agent, by paths as
    /// `visibility.budget.high_cost_threshold`. None of it holds for calls that come through this server,
    /// so each is an error until the configuration sets what takes its place.
    pub fn unheeded(&self, paths: &[String]) -> Vec<Problem> {
        let unheeded = paths.iter().filter_map(|path| {
            let fits = |(part, _): &&(&str, &str)| path.split('.').any(|it| names(it, part));
            let own = EQUIVALENTS.iter().find(fits).map(|(_, own)| *own);
            let own = own.unwrap_or("governance");
            if own.is_empty() {
                return None;
            }
            let key = format!("app.configure(governance=...): `{path}`");
            Some(match is_set(&self.origins, own) {
                true => {
                    let message = format!("{key} does not hold here; `{own}` does");
                    Problem::warning(Origin::Default, message)
                }
                false => {
                    let message = format!("{key} does not hold for calls through this server");
                    Problem::error(Origin::Default, message).hint(format!(
                        "say it as `{own}` in the configuration of this server, or take it out of the \
                         application"
                    ))
                }
            })
        });
        unheeded.collect()
    }
}

/// Compares a key with a word that it is, ends with or begins with: `monthly_budget`, `risk_confirmation`.
fn names(key: &str, part: &str) -> bool {
    let mut words = key.split('_');
    key == part || key.ends_with(&format!("_{part}")) || words.next() == Some(part)
}

fn beside(app: &str) -> PathBuf {
    let file = match app.find(".py:") {
        Some(at) => &app[..at + 3],
        None => app,
    };
    let file = Path::new(file);
    if file.extension().is_some_and(|extension| extension == "py") {
        return file.with_file_name(FILE);
    }
    // A module, `shop.app` or `shop.app:app`, is a file of the package `shop`.
    let module = app.split(':').next().unwrap_or_default();
    let package = module.rsplit_once('.').map_or("", |(package, _)| package);
    Path::new(&package.replace('.', "/")).join(FILE)
}

fn members(node: &Node) -> &[(Key, Node)] {
    match &node.value {
        Value::Mapping(members) => members,
        _ => &[],
    }
}

fn below<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Mapping(entries) => {
            let found = entries.iter().find(|(key, _)| key.name == name);
            found.map(|(_, node)| node)
        }
        _ => None,
    }
}

/// Also in the words of YAML 1.1, which is what Python reads.
fn truth(node: &Node) -> Option<bool> {
    let Value::Scalar(text) = &node.value else {
        return None;
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Some(true),
        "false" | "no" | "off" | "n" => Some(false),
        _ => None,
    }
}

fn hundredths(node: &Node) -> Option<u8> {
    let Value::Scalar(text) = &node.value else {
        return None;
    };
    text.parse().ok().filter(|weight| *weight <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_beside_the_application_however_that_is_named() {
        for (app, expected) in [
            ("app.py", "owlclaw.yaml"),
            ("shop/app.py:app", "shop/owlclaw.yaml"),
            ("shop.app", "shop/owlclaw.yaml"),
            ("a.b.app:make", "a/b/owlclaw.yaml"),
            ("app:app", "owlclaw.yaml"),
        ] {
            assert_eq!(beside(app), Path::new(expected), "{app}");
        }
    }

    #[test]
    fn a_switch_in_another_place_or_spelling_is_an_error() {
        for text in [
            "skill: {entries: {pay: {enabled: false}}}",
            "Skills: {entries: {pay: {enabled: false}}}",
            "skills: {entry: {pay: {enabled: false}}}",
            "skills: {Entries: {pay: {enabled: false}}}",
            "skills: {entries.pay.enabled: false}",
            "skills.entries.pay.enabled: false",
            "owlclaw: {skills: {entries: {pay: {enabled: false}}}}",
            "governence: {monthly_budget: 1}",
            "skills: {entries: {pay: }}",
        ] {
            let (mut switches, mut problems) = (Switches::default(), Vec::new());
            let document = Document::parse("owlclaw.yaml", text, &mut problems).unwrap();
            take(&document, &mut switches, &Origins::default(), &mut problems);
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        }
        for text in [
            "agent: {model: x}\nmemory: {}\nsecurity: {}\ntriggers: []\nintegrations: {}",
            "skills: {path: x, enabled: true, directories: [a]}",
        ] {
            let (mut switches, mut problems) = (Switches::default(), Vec::new());
            let document = Document::parse("owlclaw.yaml", text, &mut problems).unwrap();
            take(&document, &mut switches, &Origins::default(), &mut problems);
            assert!(problems.is_empty(), "{text}: {problems:?}");
        }
    }

    #[test]
    fn rules_and_switches_that_nothing_reads_are_errors() {
        for text in [
            "skills: {entries: {pay: {requires_confirmation: true}}}",
            "skills: {entries: {pay: {constraints: {max_daily_calls: 1}}}}",
            "skills: {entries: {pay: {risk_level: high}}}",
            "skills: {entries: {pay: {riskLevel: high}}}",
            "skills: {entries: {pay: {needs_approval: true}}}",
            "skills: {entries: {pay: {active: false}}}",
            "skills: {entries: {pay: {status: disabled}}}",
            "skills: {pay: {enabled: false}}",
            "skills: {pay: {requires_confirmation: true}}",
            "skills: {disabled: [pay]}",
            "- skills",
            "governance: {allowed_capabilities: [x]}",
            "governance: {risk_confirmation: {pay: true}}",
            "governance: {circuit_breaker: {threshold: 3}}",
            "governance: {time: {trading_hours_only: true}}",
            "governance: {migration_weight: 5}",
        ] {
            let (mut switches, mut problems) = (Switches::default(), Vec::new());
            let document = Document::parse("owlclaw.yaml", text, &mut problems).unwrap();
            take(&document, &mut switches, &Origins::default(), &mut problems);
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            assert_eq!(problems[0].severity, crate::Severity::Error, "{text}");
        }
        for text in [
            "skills: {entries: {pay: {timeout: 5, status: ready, region: eu}}}",
            "skills: {disabled: [], pay: {enabled: true}}",
            "governance: {circuit_breaker: {enabled: false}, fail_policy: open}",
        ] {
            let (mut switches, mut problems) = (Switches::default(), Vec::new());
            let document = Document::parse("owlclaw.yaml", text, &mut problems).unwrap();
            take(&document, &mut switches, &Origins::default(), &mut problems);
            assert!(problems.is_empty(), "{text}: {problems:?}");
        }
    }

    #[test]
    fn of_two_files_the_stricter_holds() {
        let mut switches = Switches::default();
        let mut problems = Vec::new();
        for text in [
            "skills: {entries: {pay: {migration_weight: 0}, note: {enabled: false}}}",
            "skills: {entries: {pay: {migration_weight: 100}, note: {enabled: true}}}",
        ] {
            let document = Document::parse("owlclaw.yaml", text, &mut problems).unwrap();
            let origins = Origins::default();
            take(&document, &mut switches, &origins, &mut problems);
        }
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(switches.weights["pay"].0, 0);
        assert!(switches.off.contains_key("note"));
    }
}
