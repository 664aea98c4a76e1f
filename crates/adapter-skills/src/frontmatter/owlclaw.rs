//! The `owlclaw:` block: how a skill's calls are governed.

use std::time::Duration;

use serde_json::{Map, Value};

use documents::nearest;

use super::{
    fields::{BadField, Fields, HELD, IGNORED},
    misplaced::{bare, is_nearly, look_everywhere, states, words_of},
};

/// Values of an `owlclaw:` block. Without such a block, the default.
///
/// A value that governs and cannot be read is reported with [`BadField::holds`], so that its tool is
/// held back, and is taken as the strictest it could have been:
/// [`requires_confirmation`](Self::requires_confirmation) is set, and an unknown `risk_level` is
/// [`RiskLevel::Critical`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwlclawBlock {
    /// `spec_version`.
    pub spec_version: Option<String>,
    /// `task_type`, which the ledger records.
    pub task_type: Option<String>,
    /// `constraints`.
    pub constraints: Constraints,
    /// `risk_level`.
    pub risk_level: RiskLevel,
    /// `requires_confirmation`, here or under `constraints` (where examples have it). If neither is
    /// given, true from [`RiskLevel::High`] on; if both are, true when either is.
    pub requires_confirmation: bool,
    /// `migration_weight`: how much of the work is left to the tool, from 0, which is none, to 100.
    pub migration_weight: Option<u8>,
    /// Hints for clients about calls of the tool of the skill's name.
    pub hints: ToolHints,
    /// `focus`, one text or a list.
    pub focus: Vec<String>,
    /// `trigger`, as written: `cron("0 9 * * 1-5")`. Nothing here acts on it.
    pub trigger: Option<String>,
    /// `prerequisites`, or those at the top of the front matter.
    pub prerequisites: Prerequisites,
    /// `binding` as it is written, for the adapter that runs such tools.
    pub binding: Option<Value>,
}

/// `owlclaw.constraints`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    /// Calls are allowed in trading hours only.
    pub trading_hours_only: bool,
    /// The most calls a day.
    pub max_daily_calls: Option<u64>,
    /// The least time between two calls; `cooldown_seconds` in the file, which are whole.
    pub cooldown: Option<Duration>,
    /// Expected cost of a call, in the configured currency, as decimal digits: `0.05`.
    pub estimated_cost: Option<String>,
}

/// `owlclaw.idempotent`, `read_only`, `destructive`, `open_world`, `task` and `timeout_seconds`: what
/// a skill says of the tool of its name. What cannot be read of `idempotent` and `task` is as good as
/// not said; the others hold the tool back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolHints {
    /// Calling it twice does no more than calling it once.
    pub idempotent: Option<bool>,
    /// The tool changes nothing.
    pub read_only: Option<bool>,
    /// The tool's changes may destroy data.
    pub destructive: Option<bool>,
    /// The tool deals with an open set of things, such as the web.
    pub open_world: Option<bool>,
    /// Support for answering its calls by a task.
    pub task: Option<TaskHint>,
    /// Time that a call may take: from one second to a day.
    pub timeout: Option<Duration>,
}

/// Support for calls as tasks, whose results are fetched later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskHint {
    /// Never: `forbidden`.
    Forbidden,
    /// Calls become tasks where the caller knows tasks: `optional`.
    Optional,
    /// Always: `required`.
    Required,
}

/// The longest `owlclaw.timeout_seconds`: a day.
const MAX_TIMEOUT_SECONDS: u64 = 24 * 60 * 60;

impl ToolHints {
    fn read(fields: &mut Fields<'_, '_>) -> Self {
        Self {
            idempotent: fields.hint("idempotent", IGNORED),
            read_only: fields.hint("read_only", HELD),
            destructive: fields.hint("destructive", HELD),
            open_world: fields.hint("open_world", HELD),
            task: read_task(fields),
            timeout: read_timeout(fields),
        }
    }
}

fn read_task(fields: &mut Fields<'_, '_>) -> Option<TaskHint> {
    let word = fields.get("task")?.as_str().unwrap_or_default();
    let hint = match word.trim().to_ascii_lowercase().as_str() {
        "forbidden" => Some(TaskHint::Forbidden),
        "optional" => Some(TaskHint::Optional),
        "required" => Some(TaskHint::Required),
        _ => None,
    };
    if hint.is_none() {
        fields.complain("task", "forbidden, optional or required", IGNORED);
    }
    hint
}

fn read_timeout(fields: &mut Fields<'_, '_>) -> Option<Duration> {
    let value = fields.get("timeout_seconds")?;
    let seconds = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(digits) => digits.trim().parse().ok(),
        _ => None,
    };
    let seconds = seconds.filter(|seconds| (1..=MAX_TIMEOUT_SECONDS).contains(seconds));
    if seconds.is_none() {
        fields.complain("timeout_seconds", "a whole number from 1 to 86400", HELD);
    }
    seconds.map(Duration::from_secs)
}

/// The keys of an `owlclaw:` block that something here or in OwlClaw reads, besides [`RISK`].
const KEYS: [&str; 18] = [
    "spec_version",
    "task_type",
    "constraints",
    "risk_level",
    "requires_confirmation",
    "migration_weight",
    "idempotent",
    "read_only",
    "destructive",
    "open_world",
    "task",
    "timeout_seconds",
    "focus",
    "trigger",
    "prerequisites",
    "env",
    "binding",
    "tools",
];

/// The key under which OwlClaw's migrations have a map. It is known, and nobody is advised to write it.
const RISK: &str = "risk";

/// Keys of the block that govern; none of them may be empty.
pub(super) const GOVERNING: [&str; 9] = [
    "constraints",
    "risk_level",
    "requires_confirmation",
    "migration_weight",
    "read_only",
    "destructive",
    "open_world",
    "timeout_seconds",
    "prerequisites",
];

/// Keys of `prerequisites` that are looked at.
const PREREQUISITES: [&str; 5] = ["env", "bins", "os", "python_packages", "config"];

const IN_THE_CONFIGURATION: &str = "under `governance.tools.<name>` in the server's configuration";

const OF_CLIENTS: &str = "under `governance`, for clients or roles, in the server's configuration";

const OF_QUOTAS: &str = "under `governance.default_quota`, or in the `quota` of a client or role, in the server's configuration";

const SWITCH: &str = "in `owlclaw.yaml`, as `skills.entries.<name>.enabled`";

/// Keys of the configuration, and where a skill says the same.
pub(super) const OF_THE_CONFIGURATION: [(&str, &str); 17] = [
    ("max_calls_per_day", "`owlclaw.constraints.max_daily_calls`"),
    ("confirmation", "`owlclaw.requires_confirmation`"),
    ("confirm", "`owlclaw.requires_confirmation`"),
    ("max_calls_per_minute", IN_THE_CONFIGURATION),
    ("windows", IN_THE_CONFIGURATION),
    ("max_running", IN_THE_CONFIGURATION),
    ("breaker", IN_THE_CONFIGURATION),
    ("max_cost_per_call", OF_QUOTAS),
    ("monthly_budget", OF_QUOTAS),
    ("quota", OF_CLIENTS),
    ("allow", OF_CLIENTS),
    ("deny", OF_CLIENTS),
    ("hide", OF_CLIENTS),
    ("roles", OF_CLIENTS),
    ("conditions", OF_CLIENTS),
    ("enabled", SWITCH),
    ("disabled", SWITCH),
];

/// The keys of `owlclaw.constraints`.
pub(super) const CONSTRAINTS: [&str; 5] = [
    "trading_hours_only",
    "max_daily_calls",
    "cooldown_seconds",
    "estimated_cost",
    "requires_confirmation",
];

/// All keys that govern, those of `owlclaw.constraints` first.
const RULES: [&str; 13] = [
    "trading_hours_only",
    "max_daily_calls",
    "cooldown_seconds",
    "estimated_cost",
    "requires_confirmation",
    "constraints",
    "risk_level",
    "migration_weight",
    "read_only",
    "destructive",
    "open_world",
    "timeout_seconds",
    "prerequisites",
];

/// Right place of a key that governs, for an author who has written it elsewhere.
fn place_of(key: &str) -> Option<String> {
    if GOVERNING.contains(&key) {
        return Some(format!("under `owlclaw`, as `owlclaw.{key}`"));
    }
    CONSTRAINTS
        .contains(&key)
        .then(|| format!("under `owlclaw.constraints`, as `owlclaw.constraints.{key}`"))
}

/// The same of a key outside of the block that is spelt nearly like one that governs, or has the block's name before it:
/// `requires-confirmation`, `owlclaw.requires_confirmation`, `owlclaw_risk_level`.
fn place_of_nearly(key: &str) -> Option<String> {
    let rest = bare(key);
    let words = words_of(rest);
    let mut rules = GOVERNING.into_iter().chain(CONSTRAINTS);
    let meant = rules.find(|it| is_nearly(&words, it));
    // Prerequisites have a place at the top as well.
    let meant = meant.filter(|it| *it != "prerequisites" || rest.len() < key.len());
    meant.and_then(place_of)
}

/// True if a text, or a text in a list, has the name of a key that governs.
fn names_a_rule(value: &Value) -> bool {
    let text = value.to_string().to_lowercase().replace('-', "_");
    let mut rules = GOVERNING.iter().chain(&CONSTRAINTS);
    rules.any(|rule| text.contains(rule))
}

/// The same, also for the words of the configuration.
pub(super) fn place_of_rule(key: &str) -> Option<String> {
    let mut rules = OF_THE_CONFIGURATION.iter();
    let of_rule = rules.find(|(rule, _)| *rule == key);
    place_of(key).or_else(|| of_rule.map(|(_, place)| (*place).to_owned()))
}

/// Complains about every key that governs elsewhere, as `place` says of those that are not `known` here.
/// True if there is one.
fn misplaced(
    fields: &mut Fields<'_, '_>,
    known: &[&str],
    place: impl Fn(&str) -> Option<String>,
) -> bool {
    let unknown = fields
        .map
        .keys()
        .filter(|key| !known.contains(&key.as_str()));
    let found: Vec<_> = unknown
        .filter(|key| !is_idle_switch(key, fields.map))
        .filter_map(|key| Some((key.clone(), place(key)?)))
        .collect();
    for (key, place) in &found {
        fields.complain(key, place.clone(), HELD);
    }
    !found.is_empty()
}

/// True for a switch that switches nothing off: `enabled: true`.
fn is_idle_switch(key: &str, map: &Map<String, Value>) -> bool {
    ["enabled", "disabled"].contains(&key) && map.get(key).is_some_and(|it| !states(key, it))
}

/// Complains about keys at the top that would govern in the block, and about a block that is not
/// called `owlclaw`, or stands elsewhere.
fn look_at_top(top: &mut Fields<'_, '_>) {
    // A block without a value is one whose keys were not indented.
    if !misplaced(top, &["prerequisites"], place_of) {
        top.none_empty(&["owlclaw"]);
    }
    let metadata = top.map.get("metadata").and_then(|it| it.get("owlclaw"));
    let mut keys = metadata
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys);
    let is_nearly_one = |key: &str| {
        nearest(key, &GOVERNING)
            .or(nearest(key, &CONSTRAINTS))
            .is_some()
    };
    let is_text_of_rules = metadata.is_some_and(|it| !it.is_object() && names_a_rule(it));
    if is_text_of_rules || keys.any(|key| place_of_rule(key).is_some() || is_nearly_one(key)) {
        top.complain("metadata.owlclaw", "`owlclaw`, beside `metadata`", HELD);
    }
    top.none_empty(&["prerequisites"]);
    let metadata = top.map.get("metadata").and_then(Value::as_object);
    // What others write there is theirs, unless it has the name of a rule.
    let misplaced = metadata.into_iter().flat_map(Map::keys);
    let misplaced = misplaced.filter(|key| *key != "prerequisites");
    let misplaced =
        misplaced.filter_map(|key| Some((format!("metadata.{key}"), place_of_nearly(key)?)));
    let at_top = top.map.keys().filter(|key| *key != "prerequisites");
    let at_top = at_top.filter(|key| place_of(key).is_none());
    let at_top = at_top.filter_map(|key| Some((key.clone(), place_of_nearly(key)?)));
    let misplaced: Vec<_> = misplaced.chain(at_top).collect();
    for (key, place) in misplaced {
        top.complain(&key, place, HELD);
    }
    if metadata.is_some_and(|it| it.contains_key("prerequisites")) {
        let expected = "`prerequisites`, beside `metadata`";
        top.complain("metadata.prerequisites", expected, HELD);
    }
    let is_misspelt =
        |key: &&String| *key != "prerequisites" && nearest(key, &["prerequisites"]).is_some();
    if let Some(key) = top.map.keys().find(is_misspelt).cloned() {
        top.complain(&key, "`prerequisites`", HELD);
    }
    for key in ["require", "requires", "requirement", "requirements"] {
        // Where other products have what a skill needs.
        if top.map.get(key).is_some_and(has_prerequisites) {
            top.complain(key, "`prerequisites`", HELD);
        }
        let of_others = ["openclaw", "clawdbot"];
        for name in of_others {
            let needs = metadata.and_then(|it| it.get(name)?.get(key));
            if needs.is_some_and(has_prerequisites) {
                let field = format!("metadata.{name}.{key}");
                top.complain(&field, "`prerequisites`, beside `metadata`", IGNORED);
            }
        }
    }
    if !top.map.contains_key("owlclaw") {
        let block = top
            .map
            .keys()
            .find(|key| nearest(key, &["owlclaw"]).is_some());
        if let Some(block) = block.cloned() {
            top.complain(&block, "`owlclaw`", HELD);
        }
    }
    look_everywhere(top.map, top.complaints);
}

/// True for a map of what a skill needs: `{env: [TOKEN]}`.
fn has_prerequisites(value: &Value) -> bool {
    let mut keys = value.as_object().into_iter().flat_map(Map::keys);
    keys.any(|key| PREREQUISITES.contains(&key.as_str()))
}

fn read_weight(fields: &mut Fields<'_, '_>) -> Option<u8> {
    let value = fields.get("migration_weight")?;
    let weight = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(digits) => digits.trim().parse().ok(),
        _ => None,
    };
    let weight = weight.and_then(|weight| u8::try_from(weight).ok());
    let weight = weight.filter(|weight| *weight <= 100);
    if weight.is_none() {
        fields.complain("migration_weight", "a whole number from 0 to 100", HELD);
    }
    weight
}

/// Harm that a call can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RiskLevel {
    /// The default.
    #[default]
    Low,
    /// Between the two.
    Medium,
    /// Calls need confirmation unless the skill says otherwise.
    High,
    /// As high, and worse.
    Critical,
}

/// Conditions without which a skill is of no use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prerequisites {
    /// Environment variables that must be set and not empty.
    pub env: Vec<String>,
    /// Programs that must be found on the search path.
    pub bins: Vec<String>,
    /// Operating systems, one of which this must be; any if there are none.
    pub os: Vec<String>,
    /// Python packages that the application's interpreter must find: modules or distributions.
    pub python_packages: Vec<String>,
    /// Keys of the application's own settings that must be there, with the value they must have, if not
    /// any.
    pub config: Vec<(String, Option<String>)>,
}

impl RiskLevel {
    /// The word in files and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        [Self::Low, Self::Medium, Self::High, Self::Critical]
            .into_iter()
            .find(|level| level.as_str().eq_ignore_ascii_case(word))
    }
}

impl OwlclawBlock {
    /// Reads rules that stand elsewhere than in a `SKILL.md`, as a block that has them would say them.
    /// Of the complaints each is about a rule that cannot be understood.
    #[must_use]
    pub fn of_rules(rules: &Value) -> (Self, Vec<BadField>) {
        let mut complaints = Vec::new();
        let top = Map::from_iter([("owlclaw".to_owned(), rules.clone())]);
        let block = Self::read(&top, &mut complaints);
        (block, complaints)
    }

    /// True if it limits calls of its tools in any way.
    #[must_use]
    pub fn governs(&self) -> bool {
        self.constraints != Constraints::default()
            || self.risk_level != RiskLevel::default()
            || self.requires_confirmation
            || self.migration_weight.is_some_and(|weight| weight < 100)
            || self.hints.destructive == Some(true)
    }

    pub(super) fn read(top: &Map<String, Value>, complaints: &mut Vec<BadField>) -> Self {
        let no_complaints = complaints.len();
        let mut top = Fields {
            map: top,
            prefix: "",
            complaints,
        };
        look_at_top(&mut top);
        let block = top.map("owlclaw", HELD);
        let top_prerequisites = top.map("prerequisites", HELD);
        let Some(block) = block else {
            // Absent, or no map at all: then nothing is known of what it was to forbid.
            let is_unreadable =
                top.complaints.len() > no_complaints && top.map.contains_key("owlclaw");
            return Self {
                requires_confirmation: is_unreadable,
                prerequisites: Prerequisites::read(top_prerequisites.as_ref(), complaints),
                ..Self::default()
            };
        };
        let mut fields = Fields {
            map: &block,
            prefix: "owlclaw.",
            complaints,
        };
        let risk = fields.map.get(RISK);
        let is_other_risk = risk.is_some_and(|risk| !risk.is_object());
        if is_other_risk {
            // That of OwlClaw's migrations is a map.
            let place =
                "`risk_level`, or `governance.tools.<name>.risk` in the server's configuration";
            fields.complain(RISK, place, HELD);
        }
        let is_unclear = is_other_risk
            | fields.none_empty(&GOVERNING)
            | misplaced(&mut fields, &KEYS, place_of_rule)
            | fields.only(&KEYS, &RULES, place_of, |key| {
                key == RISK || place_of_rule(key).is_some() && !is_idle_switch(key, &block)
            });
        let (risk_level, risk_is_unreadable) = read_risk(&mut fields);
        let asked_for = fields.boolean("requires_confirmation");
        let read = Self {
            spec_version: fields.text("spec_version"),
            task_type: fields.text("task_type"),
            risk_level,
            focus: fields.texts("focus"),
            migration_weight: read_weight(&mut fields),
            hints: ToolHints::read(&mut fields),
            trigger: fields.text("trigger"),
            binding: fields.get("binding").cloned(),
            ..Self::default()
        };
        let constraints = fields.map("constraints", HELD);
        let constraints_are_missing = constraints.is_none() && fields.get("constraints").is_some();
        let prerequisites = fields.map("prerequisites", HELD).or(top_prerequisites);
        let prerequisites = Prerequisites::read(prerequisites.as_ref(), complaints);
        let (constraints, asked_for_there) =
            Constraints::read(&constraints.unwrap_or_default(), complaints);
        let requires_confirmation = match (asked_for, asked_for_there) {
            _ if constraints_are_missing || risk_is_unreadable || is_unclear => true,
            (Err(()), _) | (_, Err(())) => true,
            (Ok(Some(true)), _) | (_, Ok(Some(true))) => true,
            (Ok(Some(false)), _) | (_, Ok(Some(false))) => false,
            (Ok(None), Ok(None)) => risk_level >= RiskLevel::High,
        };
        Self {
            constraints,
            prerequisites,
            requires_confirmation,
            ..read
        }
    }
}

/// The level, and whether one was given that cannot be read.
fn read_risk(fields: &mut Fields<'_, '_>) -> (RiskLevel, bool) {
    let Some(value) = fields.get("risk_level") else {
        return (RiskLevel::default(), false);
    };
    match value.as_str().map(str::trim).and_then(RiskLevel::from_word) {
        Some(level) => (level, false),
        None => {
            fields.complain("risk_level", "low, medium, high or critical", HELD);
            (RiskLevel::Critical, true)
        }
    }
}

impl Constraints {
    /// The second is whether confirmation is asked for; `Err` if any constraint is unreadable.
    fn read(
        map: &Map<String, Value>,
        complaints: &mut Vec<BadField>,
    ) -> (Self, Result<Option<bool>, ()>) {
        let mut fields = Fields {
            map,
            prefix: "owlclaw.constraints.",
            complaints,
        };
        let is_unclear = fields.none_empty(&CONSTRAINTS)
            | misplaced(&mut fields, &CONSTRAINTS, place_of_rule)
            | fields.only(&CONSTRAINTS, &RULES, place_of, |key| {
                place_of_rule(key).is_some() && !is_idle_switch(key, map)
            });
        let trading_hours_only = fields.boolean("trading_hours_only");
        let max_daily_calls = fields.whole_number("max_daily_calls");
        let cooldown = fields.whole_number("cooldown_seconds");
        let estimated_cost = fields.decimal("estimated_cost");
        let confirmation = fields.boolean("requires_confirmation");
        let is_readable = !is_unclear
            && trading_hours_only.is_ok()
            && max_daily_calls.is_ok()
            && cooldown.is_ok()
            && estimated_cost.is_ok();
        let constraints = Self {
            trading_hours_only: trading_hours_only.map_or(true, |it| it.unwrap_or(false)),
            max_daily_calls: max_daily_calls.unwrap_or_default(),
            cooldown: cooldown.unwrap_or_default().map(Duration::from_secs),
            estimated_cost: estimated_cost.unwrap_or_default(),
        };
        let confirmation = if is_readable { confirmation } else { Err(()) };
        (constraints, confirmation)
    }
}

impl Prerequisites {
    fn read(map: Option<&Map<String, Value>>, complaints: &mut Vec<BadField>) -> Self {
        let Some(map) = map else {
            return Self::default();
        };
        let mut fields = Fields {
            map,
            prefix: "prerequisites.",
            complaints,
        };
        fields.none_empty(&PREREQUISITES);
        let unknown = fields.map.keys();
        let unknown = unknown.filter(|key| !PREREQUISITES.contains(&key.as_str()));
        for key in unknown.cloned().collect::<Vec<_>>() {
            let expected = match nearest(&key, &PREREQUISITES) {
                Some(meant) => format!("`{meant}`"),
                None => format!("one of `{}`", PREREQUISITES.join("`, `")),
            };
            fields.complain(&key, expected, HELD);
        }
        Self {
            env: fields.texts_or("env", HELD),
            bins: fields.texts_or("bins", HELD),
            os: fields.texts_or("os", HELD),
            python_packages: fields.texts_or("python_packages", HELD),
            config: fields.settings("config"),
        }
    }
}
