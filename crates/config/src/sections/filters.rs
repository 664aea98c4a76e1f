//! Filters of calls.

use std::collections::BTreeMap;
use std::path::PathBuf;

use governance::When;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;
use crate::sections::secret::Secret;
use crate::{Config, Environment};

/// Schemes of addresses of filters.
const SCHEMES: &[&str] = &["https", "http"];

/// A filter: a rule with an expression, or an HTTP service, that looks at the arguments of calls before they are decided
/// on, or at their results before they are recorded and answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FilterSetting {
    /// Filters are asked in the order of this number, and of their names where it is the same.
    pub order: i32,
    /// Tools whose calls it looks at, by their names on offer, in which `*` stands for any text. If `tools`, `resources` and
    /// `prompts` are empty, it looks at all calls.
    #[schemars(extend("x-items" = "pattern"))]
    pub tools: Vec<String>,
    /// Resources whose reads it looks at, by the URIs that rules know them by, likewise.
    #[schemars(extend("x-items" = "pattern"))]
    pub resources: Vec<String>,
    /// Prompts whose use it looks at, likewise.
    #[schemars(extend("x-items" = "pattern"))]
    pub prompts: Vec<String>,
    /// Clients whose calls it looks at, as patterns. If `clients` and `roles` are empty, those of all.
    #[schemars(extend("x-items" = "pattern"))]
    pub clients: Vec<String>,
    /// Roles whose clients' calls it looks at.
    pub roles: Vec<String>,
    /// Part of a call that it looks at.
    pub on: FilterOn,
    /// Action of a rule. Either this or `url`.
    pub action: Option<FilterAction>,
    /// Expression (CEL) about `args`, `principal`, `roles` and `capability`, and of results about `result.text` and
    /// `result.is_error`. A rule does its action where this is true, or cannot be evaluated. Without one, always.
    pub when: Option<String>,
    /// Address of a service that is asked about each call. Either this or `action`.
    pub url: Option<Secret>,
    /// Headers that are sent along, such as `Authorization`.
    pub headers: BTreeMap<String, Secret>,
    /// Authorities that the service's certificate may come from besides the system's, PEM.
    #[schemars(extend("format" = "path"))]
    pub ca_file: Option<PathBuf>,
    /// Time for one call. A filter that takes longer has failed.
    #[schemars(range(min = 1, max = 60_000))]
    pub timeout_milliseconds: u64,
    /// Effect of its decisions: done, or only recorded.
    pub mode: FilterMode,
    /// Fate of a call about which the filter cannot decide.
    pub on_failure: OnFilterFailure,
}

/// Part of a call that a filter looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FilterOn {
    /// Arguments.
    #[default]
    Arguments,
    /// Results.
    Results,
    /// Arguments, and then the result.
    Both,
}

/// Action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FilterAction {
    /// The call is refused, or its result withheld.
    Refuse,
    /// Secrets are replaced, as they are in the ledger (`redaction`).
    Redact,
    /// Texts of the result are put between marks that say that they are data.
    Spotlight,
}

/// Effect of a filter's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FilterMode {
    /// Done.
    #[default]
    Enforce,
    /// Recorded, and not done.
    Audit,
}

/// Fate of a call about which a filter cannot decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFilterFailure {
    /// Refused.
    #[default]
    Refuse,
    /// Let go on, which is on record.
    Allow,
}

impl Default for FilterSetting {
    fn default() -> Self {
        Self {
            order: 0,
            tools: Vec::new(),
            resources: Vec::new(),
            prompts: Vec::new(),
            clients: Vec::new(),
            roles: Vec::new(),
            on: FilterOn::default(),
            action: None,
            when: None,
            url: None,
            headers: BTreeMap::new(),
            ca_file: None,
            timeout_milliseconds: 1_000,
            mode: FilterMode::default(),
            on_failure: OnFilterFailure::default(),
        }
    }
}

impl FilterSetting {
    /// Patterns of the names that rules have for what it looks at.
    #[must_use]
    pub fn capabilities(&self) -> Vec<String> {
        let of = |kind: &'static str, patterns: &[String]| -> Vec<String> {
            patterns.iter().map(|it| format!("{kind}/{it}")).collect()
        };
        let tools = of("tool", &self.tools);
        let resources = of("resource", &self.resources);
        let prompts = of("prompt", &self.prompts);
        let all = [tools, resources, prompts].concat();
        match all.is_empty() {
            true => vec!["*".to_owned()],
            false => all,
        }
    }

    /// Address and headers of the service.
    ///
    /// # Errors
    ///
    /// The end of a sentence that begins with the key of the filter.
    pub fn service(&self, environment: &Environment) -> Result<(Uri, HeaderMap), String> {
        let url = self.url.as_ref().and_then(|it| it.reveal(environment));
        let url = url.ok_or(".url refers to a variable that is not set")?;
        let uri = http_client::parse_url(url.trim(), SCHEMES);
        let uri = uri.map_err(|why| format!(".url cannot be used: {why}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let pair = || {
                let value = value.reveal(environment)?;
                let mut value = HeaderValue::try_from(value.trim()).ok()?;
                value.set_sensitive(true);
                Some((HeaderName::try_from(name.as_str()).ok()?, value))
            };
            let (name, value) = pair().ok_or_else(|| format!(".headers.{name} cannot be sent"))?;
            headers.insert(name, value);
        }
        Ok((uri, headers))
    }
}

/// Adds the problems of filters that can be found without asking them.
pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    for (name, filter) in &config.filters {
        let path = child("filters", name);
        config
            .governance
            .warn_of_unknown(&filter.roles, &child(&path, "roles"), origins, problems);
        let mut error = |key: &str, message: String, hint: &str| {
            let key = if key.is_empty() {
                path.clone()
            } else {
                child(&path, key)
            };
            let problem = Problem::error(origin_near(origins, &key), message).key(key);
            // The line may hold a secret.
            problems.push(problem.hint(hint).without_line());
        };
        match (&filter.action, &filter.url) {
            (None, None) => error(
                "",
                format!("`{path}` does nothing"),
                "write `action: refuse` with `when: …`, or `url: https://…` of a service",
            ),
            (Some(_), Some(_)) => error(
                "url",
                format!("`{path}` has both `action` and `url`"),
                "make two filters of it",
            ),
            (None, Some(url)) => {
                if !url.may_begin_with(&["https://", "http://"]) {
                    let message = format!("`{path}.url` must begin with `https://` or `http://`");
                    error("url", message, "write the whole address");
                } else if let Some(why) = url.url_fault(SCHEMES) {
                    let message = format!("`{path}.url` cannot be used: {why}");
                    error(
                        "url",
                        message,
                        "write one such as `https://filter.example.com/check`",
                    );
                }
                if filter.when.is_some() {
                    let message = format!(
                        "`{path}.when` is for rules, and a service is asked about each call"
                    );
                    error(
                        "when",
                        message,
                        "leave it out, or make a rule of the filter",
                    );
                }
            }
            (Some(action), None) => {
                if *action == FilterAction::Spotlight && filter.on != FilterOn::Results {
                    let message =
                        format!("`{path}` marks texts of results, and looks at arguments");
                    error("on", message, "write `on: results`");
                }
                if !filter.headers.is_empty() || filter.ca_file.is_some() {
                    let message = format!("`{path}` is a rule, which connects to nothing");
                    error("headers", message, "leave `headers` and `ca_file` out");
                }
            }
        }
        if let Some(when) = &filter.when {
            let about_result = filter.on == FilterOn::Results;
            if let Err(why) = When::new(when, about_result) {
                let hint = match filter.on {
                    FilterOn::Both => "`result` is known with `on: results` alone",
                    _ => "docs/filters.md says what expressions know",
                };
                error("when", format!("`{path}.when` cannot be used: {why}"), hint);
            }
        }
        for header in filter.headers.keys() {
            if HeaderName::try_from(header.as_str()).is_err() {
                let key = child("headers", header);
                let message = format!("`{path}.{key}` is no name of a header");
                error(&key, message, "write one such as `Authorization`");
            }
        }
        for (key, patterns) in [
            ("tools", &filter.tools),
            ("resources", &filter.resources),
            ("prompts", &filter.prompts),
            ("clients", &filter.clients),
        ] {
            if patterns.iter().any(String::is_empty) {
                let message = format!("`{path}.{key}` has an empty pattern, which fits nothing");
                error(key, message, "write a name, or `*`");
            }
        }
        if name.is_empty() {
            error("", "a filter has no name".to_owned(), "give it one");
        }
    }
}
