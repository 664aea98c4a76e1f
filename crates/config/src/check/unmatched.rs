//! Rules that match nothing on offer: a misspelt name forbids nothing, and would otherwise go
//! unnoticed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use governance::{PolicyFile, When, file::AccessRules};
use serde_json::Value;

use crate::check::family::pattern_meets_template;
use crate::check::pointers::astray;
use crate::layer::{Origins, child, origin_near};
use crate::nearest::nearest;
use crate::problem::{Origin, Problem, Severity, quoted};
use crate::sections::governance::UnmatchedRules;
use crate::{Config, Loaded, Redaction};

/// Names of the tools, resources and prompts that rules can match.
#[derive(Debug, Clone, Default)]
pub struct OnOffer {
    /// Tools, each with its name on offer and its name at its source.
    pub tools: Vec<(String, String)>,
    /// Names of the arguments of each tool that says all of them, by its name on offer.
    pub arguments: BTreeMap<String, BTreeSet<String>>,
    /// The schemas of the arguments of each tool and, where it has one, of its results, by its name on offer.
    pub schemas: BTreeMap<String, (Arc<Value>, Option<Arc<Value>>)>,
    /// The addresses of the resources.
    pub resources: Vec<String>,
    /// Templates of the addresses of families of resources (RFC 6570).
    pub templates: Vec<String>,
    /// The names of the prompts.
    pub prompts: Vec<String>,
    /// Patterns that select tools where those come from, and match nothing there.
    pub unmatched_filters: Vec<UnmatchedFilter>,
    /// Skills that state rules and are about no tool: the path of each, and its name.
    pub idle_skills: Vec<(String, String)>,
    /// Beginnings of names of which it is not known yet what there is, since an upstream was never heard of.
    /// Rules that begin so are not looked at.
    pub unheard: Vec<String>,
    /// Pairs of upstreams, each with its name and the beginning of its names, of which the second begins as the first.
    pub overlaps: Vec<[(String, String); 2]>,
}

impl OnOffer {
    /// Names of the arguments of all tools that patterns match; `None` if there is no such tool, or one that may have
    /// any argument, or one that is not known yet.
    fn arguments_of(&self, patterns: &[String]) -> Option<BTreeSet<&str>> {
        let matches = |name: &str| {
            let mut patterns = patterns.iter();
            patterns.any(|it| governance::pattern_matches(it, name))
        };
        if patterns.iter().any(|it| self.may_match_unheard(it)) {
            return None;
        }
        let mut tools = self.tools.iter().filter(|(name, _)| matches(name));
        let first = tools.next()?;
        let mut names = BTreeSet::new();
        for (name, _) in std::iter::once(first).chain(tools) {
            names.extend(self.arguments.get(name)?.iter().map(String::as_str));
        }
        Some(names)
    }

    fn may_match_unheard(&self, pattern: &str) -> bool {
        let fixed = pattern.split('*').next().unwrap_or_default();
        let is_open = fixed.len() < pattern.len();
        self.unheard.iter().any(|beginning| {
            pattern.starts_with(beginning.as_str()) || is_open && beginning.starts_with(fixed)
        })
    }
}

/// Beginnings of capabilities, by their kind.
const KINDS: [&str; 3] = ["tool/", "resource/", "prompt/"];

impl OnOffer {
    /// The names of all that is on offer, as expressions know them.
    fn capabilities(&self) -> BTreeSet<String> {
        let tools = self.tools.iter().map(|(name, _)| format!("tool/{name}"));
        let resources = self.resources.iter().map(|it| format!("resource/{it}"));
        let prompts = self.prompts.iter().map(|it| format!("prompt/{it}"));
        tools.chain(resources).chain(prompts).collect()
    }

    /// True if `text` is one of these `capabilities` or begins one, or may be that of what is not in a list.
    fn has_capability(
        &self,
        capabilities: &BTreeSet<String>,
        text: &str,
        is_beginning: bool,
    ) -> bool {
        let of_address = text.strip_prefix("resource/").map(|address| {
            let pattern = match is_beginning {
                true => format!("{address}*"),
                false => address.to_owned(),
            };
            let mut templates = self.templates.iter();
            templates.any(|it| pattern_meets_template(&pattern, it))
        });
        let unheard = self.unheard.iter().flat_map(|beginning| {
            let of_kind = |kind: &str| format!("{kind}{beginning}");
            ["tool/", "prompt/", "resource/"].map(of_kind)
        });
        let mut unheard = unheard;
        let is_listed = match is_beginning {
            true => capabilities.iter().any(|it| it.starts_with(text)),
            false => capabilities.contains(text),
        };
        is_listed
            || of_address == Some(true)
            || unheard.any(|it| text.starts_with(&it) || is_beginning && it.starts_with(text))
    }
}

/// All roles that rules and means of identification name.
fn known_roles(config: &Config) -> BTreeSet<&str> {
    let rules = &config.governance.rules;
    let identity = &config.identity;
    let clients = rules.clients.values().flat_map(|it| &it.roles);
    let jwt = identity.jwt.values().flat_map(|it| it.scopes.values());
    let introspection = identity.introspection.iter();
    let introspection = introspection.flat_map(|it| it.scopes.values());
    let certificates = identity.certificates.iter();
    let certificates = certificates.flat_map(|it| it.roles.values());
    let given = jwt.chain(introspection).chain(certificates).flatten();
    let own = identity.operator_roles.iter();
    let own = own.chain(&identity.metrics_roles);
    let all = rules.roles.keys().chain(clients).chain(given).chain(own);
    all.map(String::as_str).collect()
}

/// True if callers may bring along roles that the configuration does not name.
fn has_open_roles(config: &Config) -> bool {
    let identity = &config.identity;
    let mut jwt = identity.jwt.values();
    let introspection = identity.introspection.as_ref();
    identity.api_keys.is_some()
        || jwt.any(|it| it.roles_claim.is_some())
        || introspection.is_some_and(|it| it.roles_claim.is_some())
}

/// A pattern that matches nothing where tools come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedFilter {
    /// Key of the rule, or its place in another file.
    pub key: String,
    /// The pattern.
    pub pattern: String,
    /// The names that it was compared with.
    pub names: Vec<String>,
}

/// A rule that is about a tool, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAbout {
    /// Key of the rule.
    pub key: String,
    /// The pattern that matches the tool's name; of an `allow`, the patterns that do not.
    pub pattern: String,
    /// Place of the rule.
    pub origin: Origin,
}

/// A name or a pattern in the rules.
struct Rule<'a> {
    key: String,
    pattern: &'a str,
    kind: Kind,
}

/// Kind of what a rule is about.
#[derive(Clone, Copy)]
enum Kind {
    Tool,
    Resource,
    Prompt,
}

/// Rules over addresses in a spelling that no address has: they would match nothing.
pub(crate) fn check_addresses(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let rules = rules(&config.governance.rules, &config.redaction);
    let rules = rules.into_iter();
    let rules = rules.filter(|it| matches!(it.kind, Kind::Resource));
    let rules = rules.map(|it| (it.key, it.pattern));
    let filters = config.filters.iter().flat_map(|(name, filter)| {
        let section = child(&child("filters", name), "resources");
        let patterns = filter.resources.iter().enumerate();
        patterns.map(move |(index, it)| (format!("{section}[{index}]"), it.as_str()))
    });
    for (key, pattern) in rules.chain(filters) {
        if let Some(right) = config.resources.right_spelling(pattern) {
            let message =
                format!("`{key}`: `{pattern}` can match no address, since none is spelt so");
            let hint = format!("write `{right}`: docs/resources.md says how addresses are spelt");
            let origin = origin_near(origins, &key);
            problems.push(Problem::error(origin, message).key(key).hint(hint));
        }
    }
}

impl Loaded {
    /// The rules that match nothing of what is `offered`, as errors if the configuration has it so.
    pub fn unmatched(&self, offered: &OnOffer) -> Vec<Problem> {
        let mut found = self.unmatched_of(offered, |_| true);
        let severity = self.severity();
        let unmet = self.unmet_names(offered).into_iter();
        found.extend(unmet.map(|problem| Problem {
            severity,
            ..problem
        }));
        found
    }

    fn severity(&self) -> Severity {
        match self.config.governance.unmatched_rules {
            UnmatchedRules::Warn => Severity::Warning,
            UnmatchedRules::Error => Severity::Error,
        }
    }

    /// The rules about tools that match nothing of what upstreams are known to offer, and whose patterns begin
    /// like names of theirs, as `beginnings` has them.
    pub fn unmatched_upstreams(&self, known: &OnOffer, beginnings: &[String]) -> Vec<Problem> {
        self.unmatched_of(known, |rule| {
            let begins = |it: &String| !it.is_empty() && rule.pattern.starts_with(it.as_str());
            matches!(rule.kind, Kind::Tool) && beginnings.iter().any(begins)
        })
    }

    /// The rules about tools whose patterns no name can match, whatever is on offer. A name of a source that is offered
    /// under another one is left to [`Loaded::unmatched`], which knows that.
    pub fn impossible(&self) -> Vec<Problem> {
        let has_syntax = |it: &str| {
            let mut letters = it.chars();
            it.starts_with("tool/") || letters.any(|it| "?[]{}()!^$|\\".contains(it))
        };
        self.unmatched_of(&OnOffer::default(), |rule| {
            matches!(rule.kind, Kind::Tool) && has_syntax(rule.pattern)
        })
    }

    fn unmatched_of(
        &self,
        offered: &OnOffer,
        is_looked_at: impl Fn(&Rule<'_>) -> bool,
    ) -> Vec<Problem> {
        let config = &self.config;
        let severity = self.severity();
        let rules = rules(&config.governance.rules, &config.redaction);
        let is_unheard = |rule: &Rule<'_>| {
            let mut beginnings = offered.unheard.iter();
            beginnings.any(|it| rule.pattern.starts_with(it.as_str()))
        };
        let rules = rules
            .into_iter()
            .filter(|it| is_looked_at(it) && !is_unheard(it));
        let unmatched = rules.filter_map(|rule| {
            let (severity, message, hint) = match rule.kind {
                Kind::Resource | Kind::Prompt => {
                    let (names, families) = match rule.kind {
                        Kind::Resource => (&offered.resources, &*offered.templates),
                        _ => (&offered.prompts, &[][..]),
                    };
                    let mut meets = families.iter();
                    if meets.any(|it| pattern_meets_template(rule.pattern, it)) {
                        return None;
                    }
                    let names = names.iter().chain(families).map(String::as_str);
                    if !matches_none(rule.pattern, names.clone()) {
                        return None;
                    }
                    (severity, says_nothing(&rule), meant(rule.pattern, names))
                }
                Kind::Tool => {
                    let names = offered.tools.iter().map(|(name, _)| name.as_str());
                    if !matches_none(rule.pattern, names.clone()) {
                        return None;
                    }
                    let own = offered
                        .tools
                        .iter()
                        .find(|(_, own)| governance::pattern_matches(rule.pattern, own));
                    match own {
                        // It forbids what it says, and would be taken to do so.
                        Some((name, own)) => (
                            Severity::Error,
                            format!("`{}`: `{own}` is offered as `{name}`", rule.key),
                            format!("write `{name}`: rules name tools as clients see them"),
                        ),
                        None if let Some(odd) = never_in_names(rule.pattern) => (
                            Severity::Error,
                            format!(
                                "`{}`: `{}` can match no tool: no name has a `{odd}`",
                                rule.key, rule.pattern
                            ),
                            no_syntax(rule.pattern, names),
                        ),
                        None => (severity, says_nothing(&rule), meant(rule.pattern, names)),
                    }
                }
            };
            let origin = origin_near(&self.origins, &rule.key);
            let problem = Problem::warning(origin, message).key(rule.key).hint(hint);
            Some(Problem {
                severity,
                ..problem
            })
        });
        let filters = offered.unmatched_filters.iter().map(|filter| {
            let UnmatchedFilter {
                key,
                pattern,
                names,
            } = filter;
            let message = format!("`{key}`: `{pattern}` matches nothing there is");
            let word: String = pattern.split('*').collect();
            let hint = match nearest(&word, names.iter().map(String::as_str)) {
                // All that is in a directory.
                Some(name) if name.ends_with('/') => format!("did you mean `{name}**`?"),
                Some(name) => format!("did you mean `{name}`?"),
                None => "write it as it is called where it comes from, or leave it out".to_owned(),
            };
            let origin = origin_near(&self.origins, key);
            let problem = Problem::warning(origin, message).key(key).hint(hint);
            Problem {
                severity,
                ..problem
            }
        });
        let skills = offered.idle_skills.iter().map(|(path, name)| {
            let message = format!("{path}: it states rules for `{name}`, which is no tool's name");
            let own = offered.tools.iter().map(|(_, own)| own.as_str());
            let hint = match nearest(name, own) {
                Some(tool) => format!("did you mean `{tool}`?"),
                None => "give the skill the name of the tool that it is about".to_owned(),
            };
            let problem = Problem::warning(Origin::Default, message).hint(hint);
            Problem {
                severity,
                ..problem
            }
        });
        let overlapping = self.overlapping(offered);
        let unread = self.unread_arguments(offered).into_iter();
        let unread = unread.chain(self.lost_pointers(offered));
        let unread = unread.map(|problem| Problem {
            severity,
            ..problem
        });
        unmatched
            .chain(filters)
            .chain(skills)
            .chain(unread)
            .chain(overlapping)
            .collect()
    }

    /// Expressions that compare the capability with what is not on offer, or ask for a role that nobody has:
    /// `capability == 'pay'` is never true.
    fn unmet_names(&self, offered: &OnOffer) -> Vec<Problem> {
        let config = &self.config;
        let capabilities = offered.capabilities();
        let roles = known_roles(config);
        let conditions = config.governance.rules.conditions("governance");
        let conditions = conditions.iter().flat_map(|(section, conditions)| {
            let conditions = conditions.iter();
            conditions.map(move |(name, it)| (child(section, name), it.when.as_str()))
        });
        let filters = config.filters.iter();
        let filters =
            filters.filter_map(|(name, it)| Some((child("filters", name), it.when.as_deref()?)));
        let mut found = Vec::new();
        for (key, when) in conditions.chain(filters) {
            let Ok(when) = When::new(when, true) else {
                continue;
            };
            let key = child(&key, "when");
            let mut tell = |message: String, hint: String| {
                let origin = origin_near(&self.origins, &key);
                found.push(Problem::warning(origin, message).key(&key).hint(hint));
            };
            for (text, is_beginning) in when.capabilities() {
                if offered.has_capability(&capabilities, text, is_beginning) {
                    continue;
                }
                let of_kind = |kind| format!("{kind}{text}");
                let mut whole = KINDS.map(of_kind).into_iter();
                let without_kind = whole.find(|it| capabilities.contains(it));
                let names = capabilities.iter().map(String::as_str);
                let hint = match without_kind.as_deref().or_else(|| nearest(text, names)) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => "capabilities are called `tool/NAME`, `resource/URI` and `prompt/NAME`"
                        .to_owned(),
                };
                let what = match is_beginning {
                    true => "begins no capability that is on offer",
                    false => "is no capability that is on offer",
                };
                tell(format!("`{key}`: `{text}` {what}"), hint);
            }
            for role in when.roles().into_iter().filter(|it| !roles.contains(it)) {
                let near = nearest(role, roles.iter().copied());
                // What else keys and tokens bring along is not known.
                if near.is_none() && has_open_roles(config) {
                    continue;
                }
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "write the name of a role under `governance.roles`".to_owned(),
                };
                tell(format!("`{key}`: there is no role `{role}`"), hint);
            }
        }
        found
    }

    /// Expressions that read an argument which no tool has that they are about: `has(args.amuont)` is never true.
    fn unread_arguments(&self, offered: &OnOffer) -> Vec<Problem> {
        let config = &self.config;
        let conditions = config.governance.rules.conditions("governance");
        let conditions = conditions.iter().flat_map(|(section, conditions)| {
            conditions.iter().map(move |(name, it)| {
                let key = child(section, name);
                (key, std::slice::from_ref(&it.tool), it.when.as_str())
            })
        });
        let of_tools = config.filters.iter().filter(|(_, it)| {
            !it.tools.is_empty() && it.resources.is_empty() && it.prompts.is_empty()
        });
        let filters = of_tools.filter_map(|(name, it)| {
            let when = it.when.as_deref()?;
            Some((child("filters", name), it.tools.as_slice(), when))
        });
        let mut found = Vec::new();
        for (key, patterns, when) in conditions.chain(filters) {
            let Ok(when) = When::new(when, true) else {
                continue;
            };
            let Some(known) = offered.arguments_of(patterns) else {
                continue;
            };
            for name in when.arguments() {
                if known.contains(name) {
                    continue;
                }
                let key = child(&key, "when");
                let message = format!(
                    "`{key}`: no tool that {} matches has an argument `{name}`",
                    quoted(patterns, " or ")
                );
                let hint = match nearest(name, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "`tools list --format json` has the schemas of tools".to_owned(),
                };
                let origin = origin_near(&self.origins, &key);
                found.push(Problem::warning(origin, message).key(key).hint(hint));
            }
        }
        found
    }

    /// Pointers to secrets that lead to nothing in what the tools take and give which they are about. Of results without a
    /// schema nothing is known: there, a name that is like one of an argument is taken for a misspelling of it.
    fn lost_pointers(&self, offered: &OnOffer) -> Vec<Problem> {
        let pointers = self.config.redaction.pointers.iter();
        let pointers = pointers.filter(|(pattern, _)| !offered.may_match_unheard(pattern));
        let mut found = Vec::new();
        for (pattern, pointers) in pointers {
            let schemas = offered.schemas.iter();
            let schemas = schemas.filter(|(name, _)| governance::pattern_matches(pattern, name));
            let schemas: Vec<_> = schemas.map(|(_, schemas)| schemas).collect();
            if schemas.is_empty() {
                continue;
            }
            let results_are_known = schemas.iter().all(|(_, results)| results.is_some());
            for (index, pointer) in pointers.iter().enumerate() {
                let all = schemas.iter();
                let all = all.flat_map(|(arguments, results)| [Some(arguments), results.as_ref()]);
                let near: Option<Vec<_>> = all.flatten().map(|it| astray(it, pointer)).collect();
                let Some(near) = near else {
                    continue;
                };
                let near = nearest(pointer, near.iter().flatten().map(String::as_str));
                if near.is_none() && !results_are_known {
                    continue;
                }
                let key = format!("{}[{index}]", child("redaction.pointers", pattern));
                let message = format!(
                    "`{key}`: no tool that `{pattern}` matches {} anything at `{pointer}`",
                    if results_are_known {
                        "takes or gives"
                    } else {
                        "takes"
                    }
                );
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "`tools list --format json` has the schemas of tools".to_owned(),
                };
                let origin = origin_near(&self.origins, &key);
                found.push(Problem::warning(origin, message).key(key).hint(hint));
            }
        }
        found
    }

    /// Rules about names of one upstream that another's names fit as well.
    fn overlapping(&self, offered: &OnOffer) -> Vec<Problem> {
        let rules = rules(&self.config.governance.rules, &self.config.redaction);
        let mut found = Vec::new();
        for [(one, of_one), (other, of_other)] in &offered.overlaps {
            for rule in rules.iter().filter(|it| !matches!(it.kind, Kind::Resource)) {
                let fixed = rule.pattern.split('*').next().unwrap_or_default();
                if !fixed.starts_with(of_one.as_str()) {
                    continue;
                }
                let message = if fixed.starts_with(of_other.as_str()) {
                    format!(
                        "`{}`: `{}` fits names of upstream `{other}`, and those of upstream `{one}` that begin with `{}`",
                        rule.key,
                        rule.pattern,
                        &of_other[of_one.len()..],
                    )
                } else if of_other.starts_with(fixed) && fixed.len() < rule.pattern.len() {
                    format!(
                        "`{}`: `{}` fits names of upstream `{one}`, and those of upstream `{other}`",
                        rule.key, rule.pattern
                    )
                } else {
                    continue;
                };
                let hint = format!(
                    "give one of the two names of its own: `upstreams.{other}.prefix`, such as `{}-`",
                    other.replace('_', "-")
                );
                let origin = origin_near(&self.origins, &rule.key);
                let problem = Problem::warning(origin, message).key(rule.key.clone());
                found.push(problem.hint(hint));
            }
        }
        found
    }
}

impl Loaded {
    /// The rules that name the tool that is offered as `name`, in the order of the configuration; of `allow`, the
    /// default one if it leaves the tool out.
    pub fn rules_about(&self, name: &str) -> Vec<RuleAbout> {
        let rules = rules(&self.config.governance.rules, &self.config.redaction);
        let about = |rule: Rule<'_>| RuleAbout {
            origin: origin_near(&self.origins, &rule.key),
            pattern: rule.pattern.to_owned(),
            key: rule.key,
        };
        let naming = rules.into_iter().filter(|rule| {
            matches!(rule.kind, Kind::Tool)
                && !rule.key.contains(".allow[")
                && governance::pattern_matches(rule.pattern, name)
        });
        let mut found: Vec<_> = naming.map(about).collect();
        let allowed = &self.config.governance.rules.default.tools.allow;
        let mut patterns = allowed.iter();
        if !allowed.is_empty() && !patterns.any(|it| governance::pattern_matches(it, name)) {
            let key = "governance.default.tools.allow".to_owned();
            found.push(RuleAbout {
                origin: origin_near(&self.origins, &format!("{key}[0]")),
                pattern: allowed.join(", "),
                key,
            });
        }
        found
    }

    /// Place of a key, or of the first one below it.
    pub fn place(&self, key: &str) -> Origin {
        let is_below = |it: &str| {
            let rest = it.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let below = self.origins.iter().filter(|(it, _)| is_below(it));
        let first = below.map(|(_, origin)| origin).min_by_key(|it| match it {
            Origin::File(at) => at.line,
            _ => usize::MAX,
        });
        first.cloned().unwrap_or(Origin::Default)
    }
}

/// The path of the key of an upstream.
pub fn upstream_key(name: &str) -> String {
    child("upstreams", name)
}

fn matches_none<'a>(pattern: &str, mut names: impl Iterator<Item = &'a str>) -> bool {
    // Everything is no misspelling, also where there is nothing.
    !pattern.bytes().all(|byte| byte == b'*')
        && !names.any(|name| governance::pattern_matches(pattern, name))
}

fn says_nothing(rule: &Rule<'_>) -> String {
    let kind = match rule.kind {
        Kind::Tool => "tool",
        Kind::Resource => "resource",
        Kind::Prompt => "prompt",
    };
    format!("`{}`: `{}` matches no {kind}", rule.key, rule.pattern)
}

fn meant<'a>(pattern: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    let word: String = pattern.split('*').collect();
    match nearest(&word, names) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "`tools list`, `resources list` and `prompts list` show what there is".to_owned(),
    }
}

/// The first character of a pattern that is in no name of a tool
/// ([`ToolSet::collect`](adapter_tools::ToolSet::collect)).
fn never_in_names(pattern: &str) -> Option<char> {
    let is_in_names = |it: char| it.is_ascii_alphanumeric() || "_.-*".contains(it);
    pattern.chars().find(|&it| !is_in_names(it))
}

fn no_syntax<'a>(pattern: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    match pattern.strip_prefix("tool/") {
        Some(name) => format!("write `{name}`: rules name tools without `tool/`"),
        None => format!("`*` is the only wildcard; {}", meant(pattern, names)),
    }
}

fn rules<'a>(file: &'a PolicyFile, redaction: &'a Redaction) -> Vec<Rule<'a>> {
    let mut rules = Vec::new();
    let mut list = |section: String, patterns: &'a [String], kind| {
        rules.extend(patterns.iter().enumerate().map(|(index, pattern)| Rule {
            key: format!("{section}[{index}]"),
            pattern,
            kind,
        }));
    };
    let mut access = |section: &str, lists: [Option<&'a AccessRules>; 3]| {
        let kinds = [
            ("tools", Kind::Tool),
            ("resources", Kind::Resource),
            ("prompts", Kind::Prompt),
        ];
        for ((name, kind), rules) in kinds.into_iter().zip(lists) {
            let Some(AccessRules { allow, deny, hide }) = rules else {
                continue;
            };
            for (list_name, patterns) in [("allow", allow), ("deny", deny), ("hide", hide)] {
                list(format!("{section}.{name}.{list_name}"), patterns, kind);
            }
        }
    };
    let default = &file.default;
    access(
        "governance.default",
        [&default.tools, &default.resources, &default.prompts].map(Some),
    );
    for (name, role) in &file.roles {
        let section = child("governance.roles", name);
        let lists = [&role.tools, &role.resources, &role.prompts];
        access(&section, lists.map(Option::as_ref));
    }
    for (name, client) in &file.clients {
        let section = child("governance.clients", name);
        let lists = [&client.tools, &client.resources, &client.prompts];
        access(&section, lists.map(Option::as_ref));
    }
    list("governance.confirm".to_owned(), &file.confirm, Kind::Tool);
    for (name, role) in &file.roles {
        let section = child("governance.roles", name);
        list(format!("{section}.confirm"), &role.confirm, Kind::Tool);
    }
    for (name, client) in &file.clients {
        let section = child("governance.clients", name);
        list(format!("{section}.confirm"), &client.confirm, Kind::Tool);
    }
    for (section, conditions) in file.conditions("governance") {
        rules.extend(conditions.iter().map(|(name, condition)| Rule {
            key: child(&child(&section, name), "tool"),
            pattern: &condition.tool,
            kind: Kind::Tool,
        }));
    }
    let of_tools = file.tools.keys();
    let of_tools = of_tools.map(|name| (child("governance.tools", name), name));
    let pointers = redaction.pointers.keys();
    let pointers = pointers.map(|name| (child("redaction.pointers", name), name));
    rules.extend(of_tools.chain(pointers).map(|(key, pattern)| Rule {
        key,
        pattern,
        kind: Kind::Tool,
    }));
    let of_prompts = file.prompts.keys().map(|name| Rule {
        key: child("governance.prompts", name),
        pattern: name,
        kind: Kind::Prompt,
    });
    rules.extend(of_prompts);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, Text, load_texts};

    fn told(governance: &str, when: &str) -> Vec<String> {
        let text = format!(
            "mcp_server:\n  governance:\n    unmatched_rules: error\n    roles: {{teller: {{}}}}\n    conditions:\n      c: {{when: \"{when}\", effect: deny}}\n{governance}"
        );
        let text = Text {
            name: "mcp-server.yaml".to_owned(),
            text,
        };
        let directory = std::env::temp_dir();
        let loaded = load_texts(&[text], &Environment::default(), &directory).unwrap();
        let offered = OnOffer {
            tools: vec![("pay".to_owned(), "pay".to_owned())],
            prompts: vec!["greet".to_owned()],
            templates: vec!["doc://{name}".to_owned()],
            unheard: vec!["shop-".to_owned()],
            ..OnOffer::default()
        };
        let problems = loaded.unmatched(&offered);
        assert!(problems.iter().all(|it| it.severity == Severity::Error));
        let said = problems
            .iter()
            .map(|it| format!("{} {}", it.message, it.hint.clone().unwrap_or_default()));
        said.collect()
    }

    #[test]
    fn names_in_expressions_that_nothing_has_are_told() {
        for (when, expected) in [
            ("capability == 'tool/pya'", "did you mean `tool/pay`?"),
            ("capability == 'pay'", "did you mean `tool/pay`?"),
            ("capability in ['tool/pay', 'greet']", "`prompt/greet`?"),
            (
                "capability.startsWith('tool/delet')",
                "begins no capability",
            ),
            ("'telller' in roles", "did you mean `teller`?"),
            ("'accountant' in roles", "no role `accountant`"),
        ] {
            let said = told("", when);
            assert!(said.len() == 1 && said[0].contains(expected), "{said:?}");
        }
        for when in [
            "capability == 'tool/pay' && 'teller' in roles",
            "capability == 'tool/shop-order'",
            "capability == 'resource/doc://a'",
            "capability.startsWith('prompt/') || 'operator' in roles",
        ] {
            assert_eq!(told("", when), [""; 0], "{when}");
        }
        // Keys may have roles that only their file knows.
        let keys = "  identity: {api_keys: {file: keys.json}}\n";
        assert_eq!(told(keys, "'accountant' in roles"), [""; 0]);
        assert_eq!(told(keys, "'telller' in roles").len(), 1);
    }
}
