//! What is wrong with rules that only all of them can show.

use std::collections::BTreeMap;

use governance::PolicySpec;

use super::environment::Environment;
use super::governance::Governance;
use super::layer::{Origins, child, origin_near};
use super::nearest::nearest;
use super::problem::Problem;
use super::rules::{Condition, Confirmation, MIN_TOKEN_CHARS, Risk};

pub(super) fn check(governance: &Governance, origins: &Origins, problems: &mut Vec<Problem>) {
    let mut error = |key: String, message: String, hint: Option<String>| {
        // What did not fit was left out, and is not missing.
        let is_known =
            |problem: &Problem| problem.key.as_ref().is_some_and(|it| it.starts_with(&key));
        if problems.iter().any(is_known) {
            return;
        }
        let origin = origin_near(origins, &key);
        problems.push(Problem::error(origin, message).key(key).hint_if(hint));
    };
    for (name, client) in &governance.clients {
        let key = child(&child("governance.clients", name), "roles");
        for role in &client.roles {
            if governance.roles.contains_key(role) {
                continue;
            }
            let message = format!("`{key}`: there is no role `{role}`");
            let hint = match nearest(role, governance.roles.keys().map(String::as_str)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "roles are described under `governance.roles`".to_owned(),
            };
            error(key.clone(), message, Some(hint));
        }
    }
    // What it refers to is looked at by the server that needs it.
    let token = governance.approvals.http_token.as_ref();
    let written = token.and_then(|token| token.reveal(&Environment::default()));
    if written.is_some_and(|token| token.trim().chars().count() < MIN_TOKEN_CHARS) {
        let key = "governance.approvals.http_token";
        let message = format!("`{key}` must have {MIN_TOKEN_CHARS} characters at least");
        let hint = "a shorter one could be guessed; `openssl rand -hex 32` makes a good one";
        error(key.to_owned(), message, Some(hint.to_owned()));
    }
    for (path, conditions) in all_conditions(governance) {
        for (name, condition) in conditions {
            if condition.when.trim().is_empty() {
                let path = child(&path, name);
                let message = format!("`{path}` has no `when`");
                let hint = "write an expression such as `when: args.amount > 1000`".to_owned();
                error(child(&path, "when"), message, Some(hint));
            } else if let Some(why) = misunderstood(name, condition) {
                let key = child(&child(&path, name), "when");
                let hint = "write an expression such as `args.amount > 1000`".to_owned();
                error(key.clone(), format!("`{key}`: {why}"), Some(hint));
            }
        }
    }
    let tools = governance.tools.iter();
    let windows = tools.filter_map(|(name, tool)| {
        let key = child(&child("governance.tools", name), "windows");
        Some((key, tool.windows.as_ref()?))
    });
    let trading_hours = (
        "governance.trading_hours".to_owned(),
        &governance.trading_hours,
    );
    for (key, windows) in windows.chain([trading_hours]) {
        if windows.iter().any(|it| it.zone != windows[0].zone) {
            let message = format!("`{key}`: the hours are in several time zones");
            let hint = "write all of them in one".to_owned();
            error(key, message, Some(hint));
        } else if windows.is_empty() {
            let message = format!("`{key}` must not be empty");
            let hint = "to forbid calls, use `deny` or `hide`".to_owned();
            error(key, message, Some(hint));
        }
    }
    for (name, tool) in &governance.tools {
        let path = child("governance.tools", name);
        let risk = tool.risk.as_deref().unwrap_or_default();
        if risk.contains(&Risk::ReadOnly)
            && (risk.contains(&Risk::Mutating) || risk.contains(&Risk::Financial))
        {
            let message = format!("`{path}.risk`: what is `read_only` changes nothing");
            let hint = "leave out `read_only` or the other".to_owned();
            error(child(&path, "risk"), message, Some(hint));
        }
        if risk.contains(&Risk::Financial) && tool.confirmation == Some(Confirmation::None) {
            let message = format!("`{path}.confirmation`: what moves money must be confirmed");
            let hint = "take `financial` out of `risk`, if it does not move any".to_owned();
            error(child(&path, "confirmation"), message, Some(hint));
        }
    }
}

/// Why an expression is none.
fn misunderstood(name: &str, condition: &Condition) -> Option<String> {
    let condition = governance::Condition {
        name: name.to_owned(),
        capability: condition.tool.clone(),
        when: condition.when.clone(),
        effect: governance::Effect::Deny,
    };
    let spec = PolicySpec {
        default: governance::Rules {
            conditions: vec![condition],
            ..governance::Rules::default()
        },
        ..PolicySpec::default()
    };
    let error = governance::Policy::new(spec).err()?;
    let mut deepest: &dyn std::error::Error = &error;
    while let Some(cause) = deepest.source() {
        deepest = cause;
    }
    Some(deepest.to_string())
}

/// All conditions, by the key of the table that they stand in.
pub(super) fn all_conditions(
    governance: &Governance,
) -> Vec<(String, &BTreeMap<String, Condition>)> {
    let of = |section: &str, name: &str| child(&child(section, name), "conditions");
    let everybody = ("governance.conditions".to_owned(), &governance.conditions);
    let roles = governance.roles.iter();
    let roles = roles.map(|(name, it)| (of("governance.roles", name), &it.conditions));
    let clients = governance.clients.iter();
    let clients = clients.map(|(name, it)| (of("governance.clients", name), &it.conditions));
    [everybody]
        .into_iter()
        .chain(roles)
        .chain(clients)
        .collect()
}
