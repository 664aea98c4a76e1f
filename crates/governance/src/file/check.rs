//! Mistakes in a policy file.

use super::{AccessRules, Condition, Confirmation, PartialQuota, PolicyFile, Risk, translate};
use crate::{condition::PreparedCondition, money::Micros, spec::BreakerSpec, windows::ZonedWindow};
use std::{collections::BTreeMap, error::Error, fmt};

/// A mistake in a policy file, with its place and its cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Path of the key: `clients.anna.roles`.
    pub key: String,
    /// Description, with the key in it.
    pub message: String,
    /// Advice.
    pub cure: String,
    /// A role that is not defined, if that is the mistake.
    pub unknown_role: Option<String>,
}

/// A policy file with mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFileError {
    /// Mistakes, at least one.
    pub mistakes: Vec<Mistake>,
}

impl Error for PolicyFileError {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.cure)
    }
}

impl fmt::Display for PolicyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut mistakes = self.mistakes.iter();
        if let Some(first) = mistakes.next() {
            write!(f, "{first}")?;
        }
        mistakes.try_for_each(|mistake| write!(f, "\n{mistake}"))
    }
}

/// `path.name`; a name that could be mistaken for more than one segment is quoted.
fn child(path: &str, name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let name = match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    };
    match path {
        "" => name,
        path => format!("{path}.{name}"),
    }
}

impl PolicyFile {
    /// Mistakes of the file, by keys that begin with `root`; none if it can be put
    /// in force.
    #[must_use]
    pub fn mistakes(&self, root: &str) -> Vec<Mistake> {
        let mut found = Found(Vec::new());
        let of = |section: &str, name: &str| child(&child(root, section), name);
        found.currency(child(root, "currency"), &self.currency);
        found.quota(&child(root, "default_quota"), self.default_quota.into());
        found.breaker(&child(root, "breaker"), self.breaker);
        let default = child(root, "default");
        found.access(&child(&default, "tools"), &self.default.tools);
        found.access(&child(&default, "resources"), &self.default.resources);
        found.access(&child(&default, "prompts"), &self.default.prompts);
        found.patterns(child(root, "confirm"), &self.confirm);
        for (name, role) in &self.roles {
            let path = of("roles", name);
            found.name(&path, name);
            found.quota(&child(&path, "quota"), role.quota);
            found.patterns(child(&path, "confirm"), &role.confirm);
            found.accesses(&path, [&role.tools, &role.resources, &role.prompts]);
        }
        for (name, client) in &self.clients {
            let path = of("clients", name);
            found.name(&path, name);
            found.quota(&child(&path, "quota"), client.quota);
            found.patterns(child(&path, "confirm"), &client.confirm);
            found.accesses(&path, [&client.tools, &client.resources, &client.prompts]);
            for role in &client.roles {
                if !self.roles.contains_key(role) {
                    let key = child(&path, "roles");
                    let roles = child(root, "roles");
                    found.0.push(Mistake {
                        message: format!("`{key}`: there is no role `{role}`"),
                        key,
                        cure: format!("roles are described under `{roles}`"),
                        unknown_role: Some(role.clone()),
                    });
                }
            }
        }
        for (path, conditions) in self.conditions(root) {
            for (name, condition) in conditions {
                found.condition(&child(&path, name), name, condition);
            }
        }
        let rules = || {
            let tools = self.tools.iter().map(|rule| ("tools", rule));
            tools.chain(self.prompts.iter().map(|rule| ("prompts", rule)))
        };
        for (section, (name, tool)) in rules() {
            let path = of(section, name);
            found.name(&path, name);
            for (key, limit) in [
                ("max_calls_per_minute", tool.max_calls_per_minute),
                ("max_calls_per_day", tool.max_calls_per_day),
            ] {
                found.range(child(&path, key), limit, 1..=MOST_CALLS);
            }
            found.range(child(&path, "max_running"), tool.max_running, MOST_RUNNING);
            let cooldown = child(&path, "cooldown_seconds");
            found.range(cooldown, tool.cooldown_seconds, 1..=31_536_000);
            if let Some(breaker) = tool.breaker {
                found.breaker(&child(&path, "breaker"), breaker);
            }
            if let Some(windows) = &tool.windows {
                found.windows(child(&path, "windows"), windows);
            }
        }
        found.windows(child(root, "trading_hours"), &self.trading_hours);
        for (section, (name, tool)) in rules() {
            let path = of(section, name);
            let risk = tool.risk.as_deref().unwrap_or_default();
            if risk.contains(&Risk::ReadOnly)
                && (risk.contains(&Risk::Mutating) || risk.contains(&Risk::Financial))
            {
                let message = format!("`{path}.risk`: what is `read_only` changes nothing");
                let cure = "leave out `read_only` or the other";
                found.add(child(&path, "risk"), message, cure);
            }
            if risk.contains(&Risk::Financial) && tool.confirmation == Some(Confirmation::None) {
                let message = format!("`{path}.confirmation`: what moves money must be confirmed");
                let cure = "take `financial` out of `risk`, if it does not move any";
                found.add(child(&path, "confirmation"), message, cure);
            }
        }
        found.0
    }

    /// Conditions, by the key of the table that they stand in.
    #[must_use]
    pub fn conditions(&self, root: &str) -> Vec<(String, &BTreeMap<String, Condition>)> {
        let of =
            |section: &str, name: &str| child(&child(&child(root, section), name), "conditions");
        let everybody = (child(root, "conditions"), &self.conditions);
        let roles = self.roles.iter();
        let roles = roles.map(|(name, it)| (of("roles", name), &it.conditions));
        let clients = self.clients.iter();
        let clients = clients.map(|(name, it)| (of("clients", name), &it.conditions));
        std::iter::once(everybody)
            .chain(roles)
            .chain(clients)
            .collect()
    }
}

const MOST_CALLS: u64 = 1_000_000_000;
const MOST_RUNNING: std::ops::RangeInclusive<u64> = 1..=1_000_000;

struct Found(Vec<Mistake>);

impl Found {
    fn add(&mut self, key: String, message: String, cure: &str) {
        self.0.push(Mistake {
            key,
            message,
            cure: cure.to_owned(),
            unknown_role: None,
        });
    }

    /// A name that is none would belong to no client, role or tool.
    fn name(&mut self, path: &str, name: &str) {
        if name.is_empty() || name != name.trim() || name.chars().any(char::is_control) {
            let message = format!("`{path}`: a name must be a text that is not empty");
            let cure = "leave out spaces before and after it";
            self.add(path.to_owned(), message, cure);
        } else if name.contains('*') {
            let message = format!("`{path}` is a name and cannot hold `*`");
            let cure = "patterns go into the lists `allow`, `deny` and `hide`";
            self.add(path.to_owned(), message, cure);
        }
    }

    fn accesses(&mut self, path: &str, lists: [&Option<AccessRules>; 3]) {
        for (key, rules) in ["tools", "resources", "prompts"].into_iter().zip(lists) {
            if let Some(rules) = rules {
                self.access(&child(path, key), rules);
            }
        }
    }

    fn access(&mut self, path: &str, rules: &AccessRules) {
        for (key, patterns) in [
            ("allow", &rules.allow),
            ("deny", &rules.deny),
            ("hide", &rules.hide),
        ] {
            self.patterns(child(path, key), patterns);
        }
    }

    fn patterns(&mut self, key: String, patterns: &[String]) {
        if !patterns.iter().all(|pattern| is_pattern(pattern)) {
            let message = format!("`{key}`: a pattern must not be empty");
            let cure = "leave it out, or the spaces before and after it, which match nothing";
            self.add(key, message, cure);
        }
    }

    fn currency(&mut self, key: String, currency: &str) {
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            let message = format!("`{key}` must be three capital letters such as `USD`");
            self.add(key, message, "write the code of the currency");
        }
    }

    fn quota(&mut self, path: &str, quota: PartialQuota) {
        for (key, amount) in [
            ("monthly_budget", quota.monthly_budget),
            ("max_cost_per_call", quota.max_cost_per_call),
        ] {
            if amount == Some(Micros::ZERO) {
                let key = child(path, key);
                let message = format!("`{key}` must be more than zero");
                self.add(key, message, "to forbid calls, use `deny` or `hide`");
            }
        }
        for (key, limit) in [
            ("max_calls_per_minute", quota.max_calls_per_minute),
            ("max_calls_per_day", quota.max_calls_per_day),
        ] {
            self.range(child(path, key), limit, 1..=MOST_CALLS);
        }
        self.range(child(path, "max_running"), quota.max_running, MOST_RUNNING);
    }

    fn breaker(&mut self, path: &str, breaker: BreakerSpec) {
        let key = child(path, "failures");
        self.range(key, Some(breaker.failures), 0..=1_000_000);
        let key = child(path, "rest_seconds");
        self.range(key, Some(breaker.rest.as_secs()), 1..=86_400);
    }

    fn range(
        &mut self,
        key: String,
        number: Option<impl Into<u64>>,
        range: std::ops::RangeInclusive<u64>,
    ) {
        if number.is_some_and(|number| !range.contains(&number.into())) {
            let (least, most) = range.into_inner();
            let message = format!("`{key}` must be an integer from {least} to {most}");
            self.add(key, message, "leave the key out for its default");
        }
    }

    fn condition(&mut self, path: &str, name: &str, condition: &Condition) {
        let key = child(path, "when");
        if !is_pattern(&condition.tool) {
            self.patterns(child(path, "tool"), std::slice::from_ref(&condition.tool));
        } else if condition.when.trim().is_empty() {
            let message = format!("`{path}` has no `when`");
            let cure = "write an expression such as `when: args.amount > 1000`";
            self.add(key, message, cure);
        } else if let Err(error) = PreparedCondition::new(&translate::condition(name, condition)) {
            let mut deepest: &dyn Error = &error;
            while let Some(cause) = deepest.source() {
                deepest = cause;
            }
            let message = format!("`{key}`: {deepest}");
            let cure = "write an expression such as `args.amount > 1000`";
            self.add(key, message, cure);
        }
    }

    fn windows(&mut self, key: String, windows: &[ZonedWindow]) {
        if windows.iter().any(|it| it.zone != windows[0].zone) {
            let message = format!("`{key}`: the hours are in several time zones");
            self.add(key, message, "write all of them in one");
        } else if windows.is_empty() {
            let message = format!("`{key}` must not be empty");
            self.add(key, message, "to forbid calls, use `deny` or `hide`");
        }
    }
}

/// A space at an end is invisible and matches nothing.
fn is_pattern(pattern: &str) -> bool {
    !pattern.is_empty() && pattern == pattern.trim() && !pattern.chars().any(char::is_control)
}
