//! Rules that a front matter states where nothing reads them.

use documents::{nearest, nearest_of};
use serde_json::{Map, Value};

use super::{
    fields::{BadField, HELD, asks_for_approval, boolean_of, has_words_of},
    owlclaw::{CONSTRAINTS, GOVERNING, OF_THE_CONFIGURATION, RiskLevel, place_of_rule},
};

/// Keys that are hardly ever anything but rules. They are looked for at any depth.
const RULES: [&str; 11] = [
    "requires_confirmation",
    "risk_level",
    "migration_weight",
    "trading_hours_only",
    "max_daily_calls",
    "cooldown_seconds",
    "estimated_cost",
    "max_calls_per_day",
    "max_calls_per_minute",
    "max_cost_per_call",
    "max_running",
];

/// Names of maps that state rules, at the top or under `metadata`. All that governs is looked for in them.
const BLOCKS: [&str; 11] = [
    "owlclaw",
    "governance",
    "mcp_server",
    "policy",
    "policies",
    "rule",
    "rules",
    "limit",
    "limits",
    "constraints",
    "quota",
];

/// Keys that speak of the skill itself at the top, and are common words elsewhere.
const AT_THE_TOP: [&str; 4] = ["confirm", "confirmation", "enabled", "disabled"];

/// Names of maps that declare tools, with the names of parameters among their keys.
const TOOLS: [&str; 2] = ["tools", "tools_schema"];

/// Names of values in which keys are names of parameters or data of others.
const DATA: [&str; 18] = [
    "args",
    "arguments",
    "binding",
    "body",
    "config",
    "const",
    "default",
    "enum",
    "env",
    "example",
    "examples",
    "headers",
    "input_schema",
    "output_schema",
    "parameters",
    "params",
    "properties",
    "returns",
];

/// The most that are reported of one skill: one is enough to hold its tool back.
const MOST: usize = 16;

/// Surroundings of the keys of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Around {
    /// The front matter itself.
    Top,
    /// `metadata`, where a block may stand.
    Metadata,
    /// A block of rules, or something in one.
    Block,
    /// Declarations of tools.
    Tools,
    /// All other kinds.
    Other,
}

/// Complains about every rule that stands neither in the `owlclaw:` block nor where another complaint has
/// found it. A rule that the block has too, with the same value, is in force.
pub(super) fn look_everywhere(top: &Map<String, Value>, complaints: &mut Vec<BadField>) {
    let block = top.get("owlclaw").and_then(Value::as_object);
    let mut search = Search {
        block,
        complaints,
        left: MOST,
    };
    for (key, value) in top.iter().filter(|(key, _)| *key != "prerequisites") {
        if key == "owlclaw" {
            search.block();
        } else {
            search.member(key, value, key, Around::Top);
        }
    }
}

struct Search<'a, 'b> {
    block: Option<&'a Map<String, Value>>,
    complaints: &'b mut Vec<BadField>,
    left: usize,
}

impl Search<'_, '_> {
    /// Looks below the keys of the block and of its constraints, which are read elsewhere.
    fn block(&mut self) {
        for (key, value) in self.block.into_iter().flatten() {
            let path = format!("owlclaw.{key}");
            match (key.as_str(), value) {
                ("prerequisites", _) => {}
                ("constraints", Value::Object(constraints)) => {
                    for (key, value) in constraints {
                        self.below(key, value, &format!("{path}.{key}"), Around::Block);
                    }
                }
                _ => self.below(key, value, &path, Around::Block),
            }
        }
    }

    /// Judges one key, or what is below it.
    fn member(&mut self, key: &str, value: &Value, path: &str, around: Around) {
        if self.left == 0 || value.is_null() || self.is_told(path) {
            return;
        }
        let Some(rule) = rule_of(key, value, around) else {
            return self.below(key, value, path, around);
        };
        if !self.is_in_force(rule, value) {
            self.complain(path, place_of_rule(rule).unwrap_or_default());
        }
    }

    fn below(&mut self, key: &str, value: &Value, path: &str, around: Around) {
        let name = words_of(bare(key)).join("_");
        let name = name.as_str();
        if DATA.contains(&name) {
            return;
        }
        let is_block = || BLOCKS.contains(&name) || nearest(name, &BLOCKS[..2]).is_some();
        let around = match around {
            Around::Block => Around::Block,
            _ if TOOLS.contains(&name) => Around::Tools,
            Around::Tools => Around::Tools,
            Around::Top | Around::Metadata if is_block() => Around::Block,
            Around::Top if name == "metadata" => Around::Metadata,
            Around::Top | Around::Metadata | Around::Other => Around::Other,
        };
        self.inside(value, path, around);
    }

    fn inside(&mut self, value: &Value, path: &str, around: Around) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    self.member(key, value, &format!("{path}.{key}"), around);
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.inside(item, path, around);
                }
            }
            // Of a block that is not indented as a map.
            Value::String(text) if around == Around::Block && !self.is_told(path) => {
                let text = text.to_lowercase().replace('-', "_");
                let is_rule = |rule: &&&str| text.contains(&format!("{rule}:"));
                if let Some(rule) = RULES.iter().find(is_rule) {
                    self.complain(path, place_of_rule(rule).unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    fn complain(&mut self, path: &str, place: String) {
        self.left = self.left.saturating_sub(1);
        self.complaints.push(BadField {
            field: path.to_owned(),
            expected: place.into(),
            consequence: HELD,
            line: None,
        });
    }

    /// True if the field, or one that it is in, is complained about already.
    fn is_told(&self, path: &str) -> bool {
        self.complaints.iter().any(|it| {
            let rest = path.strip_prefix(&it.field);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    fn is_in_force(&self, rule: &str, value: &Value) -> bool {
        let constraints = self.block.and_then(|it| it.get("constraints")?.as_object());
        let mut maps = self.block.into_iter().chain(constraints);
        maps.any(|it| it.get(rule) == Some(value))
    }
}

/// The rule that a key with this value states in these surroundings.
fn rule_of(key: &str, value: &Value, around: Around) -> Option<&'static str> {
    let key = bare(key);
    let words = words_of(key);
    let is_typed = |rule: &&'static str| states(rule, value);
    if let Some(rule) = RULES.into_iter().find(|rule| *rule == key) {
        // A parameter may have this name, and then has a type or a description.
        return Some(rule).filter(|rule| around != Around::Tools || is_typed(rule));
    }
    if let Some(rule) = RULES.into_iter().find(|it| is_nearly(&words, it)) {
        return Some(rule).filter(is_typed);
    }
    match around {
        Around::Top => {
            let mut words_of_the_top = AT_THE_TOP.into_iter();
            let rule = words_of_the_top.find(|it| is_nearly(&words, it) && is_typed(it));
            rule.or_else(|| approval(key, value))
        }
        Around::Block => {
            let of_configuration = OF_THE_CONFIGURATION.iter().map(|(rule, _)| *rule);
            let here = GOVERNING.into_iter().chain(CONSTRAINTS);
            // What is below these is looked at.
            let here = here.filter(|it| *it != "constraints");
            let mut all = here.clone().chain(of_configuration);
            let rule = all.find(|it| is_nearly(&words, it) && is_typed(it));
            let joined = words.join("_");
            rule.or_else(|| {
                let mut here = here;
                here.find(|it| has_words_of(it, &joined) && is_typed(it))
            })
            .or_else(|| approval(key, value))
        }
        Around::Metadata | Around::Tools | Around::Other => None,
    }
}

/// The rule that a key was probably meant to state, wherever it stands: one that is hardly ever anything but a rule, in any
/// spelling (`requiresConfirmation`, `max_daily_call`), `constraints`, or one that speaks of approval.
#[must_use]
pub fn rule_meant(key: &str) -> Option<&'static str> {
    let words = words_of(bare(key));
    let mut rules = RULES.into_iter().chain(["constraints"]);
    let meant = rules.find(|it| is_nearly(&words, it));
    meant.or_else(|| asks_for_approval(key).then_some("requires_confirmation"))
}

/// The rule that a key such as `needs_approval` states, if its value is true or false.
fn approval(key: &str, value: &Value) -> Option<&'static str> {
    let is_one = asks_for_approval(key) && boolean_of(value).is_some();
    is_one.then_some("requires_confirmation")
}

/// True if the value is one that the rule could have, and that limits something.
pub(super) fn states(rule: &str, value: &Value) -> bool {
    let text = value.as_str().map(str::trim);
    let is_list = value.is_array() || text.is_some();
    match rule {
        "enabled" => boolean_of(value) == Some(false),
        "disabled" => boolean_of(value) == Some(true),
        "requires_confirmation"
        | "trading_hours_only"
        | "read_only"
        | "destructive"
        | "open_world" => boolean_of(value).is_some(),
        "confirm" | "confirmation" => {
            let is_word = |it| ["none", "user", "operator", "always", "required"].contains(&it);
            boolean_of(value).is_some() || value.is_array() || text.is_some_and(is_word)
        }
        "risk_level" => text.and_then(RiskLevel::from_word).is_some(),
        "prerequisites" | "breaker" | "quota" => value.is_object(),
        "conditions" => value.is_object() || value.is_array(),
        "windows" | "allow" | "deny" | "hide" | "roles" => is_list || value.is_object(),
        // `10`, and `10 a day` as well.
        _ => {
            value.is_number() || text.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()))
        }
    }
}

/// The key without the name of the block before it: `risk_level` of `owlclaw.risk_level` and `owlclaw_risk_level`.
pub(super) fn bare(key: &str) -> &str {
    let rest = key
        .get(.."owlclaw".len())
        .filter(|it| it.eq_ignore_ascii_case("owlclaw"))
        .and_then(|it| key[it.len()..].strip_prefix(['.', '_', '-', '/', ':']))
        .unwrap_or(key);
    rest.strip_prefix("constraints.").unwrap_or(rest)
}

/// The words of a key, in small letters: those of `maxDailyCalls` and `max-daily-calls` are the same.
pub(super) fn words_of(key: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut was_small = false;
    for letter in key.chars() {
        if was_small && letter.is_uppercase() {
            spaced.push(' ');
        }
        was_small = letter.is_lowercase();
        spaced.extend(letter.to_lowercase());
    }
    let words = spaced.split(|it: char| !it.is_alphanumeric());
    words
        .filter(|it| !it.is_empty())
        .map(str::to_owned)
        .collect()
}

/// True if each word is spelt nearly as in the rule, or all of them written together are:
/// `require-confirmation` and `requiresconfirmation`, but not `estimated_time` for `estimated_cost`.
pub(super) fn is_nearly(words: &[String], rule: &'static str) -> bool {
    let of_rule = rule.split('_');
    if words.len() == of_rule.clone().count() {
        let mut pairs = words.iter().zip(of_rule);
        return pairs.all(|(word, it)| word == it || nearest(word, &[it]).is_some());
    }
    let [word] = words else { return false };
    let together = rule.replace('_', "");
    nearest_of(word, &mut std::iter::once(together.as_str())).is_some()
}
