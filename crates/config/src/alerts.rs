//! Whom to tell what has failed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Environment;
use super::layer::{Origins, child, origin_near};
use super::problem::Problem;
use super::secret::Secret;

/// Whom to tell what has failed, and when. Without a webhook nobody is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Alerts {
    /// Who is told, by a name of your choice.
    pub webhooks: BTreeMap<String, Webhook>,
    /// What is wrong is told when it has lasted for so many seconds, and counts as over when it has
    /// been over for as long.
    #[schemars(range(max = 3_600))]
    pub min_seconds: u64,
    /// What stays wrong is told again after so many minutes; 0: never.
    #[schemars(range(max = 10_080))]
    pub repeat_minutes: u64,
    /// What cannot be delivered is tried again for so many minutes.
    #[schemars(range(min = 1, max = 10_080))]
    pub give_up_minutes: u64,
    /// What this server is called in alerts. Without it, the name of its machine.
    pub server: Option<String>,
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            webhooks: BTreeMap::new(),
            min_seconds: 10,
            repeat_minutes: 240,
            give_up_minutes: 60,
            server: None,
        }
    }
}

/// One that is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Webhook {
    /// Where alerts are posted to. Never shown, since many of these are secrets.
    pub url: Secret,
    /// What they are signed with: the key of an HMAC-SHA256.
    pub secret: Secret,
    /// Which of them; all, if it is empty.
    pub events: Vec<AlertEvent>,
    /// Headers that are sent along, such as `Authorization`.
    pub headers: BTreeMap<String, Secret>,
    /// How many seconds one attempt may take.
    #[schemars(range(min = 1, max = 60))]
    pub timeout_seconds: u64,
    /// Authorities that its certificate may come from besides the system's, PEM.
    #[schemars(extend("format" = "path"))]
    pub ca_file: Option<PathBuf>,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            url: Secret::new(""),
            secret: Secret::new(""),
            events: Vec::new(),
            headers: BTreeMap::new(),
            timeout_seconds: 10,
            ca_file: None,
        }
    }
}

/// What can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertEvent {
    /// Calls cannot be recorded.
    LedgerUnavailable,
    /// Use cannot be counted.
    QuotaStoreUnavailable,
    /// Processes of the application end again and again.
    WorkerCrashLoop,
    /// Somebody has spent 80 % of a month's budget.
    #[serde(rename = "budget_80")]
    Budget80,
    /// Somebody has spent all of it.
    #[serde(rename = "budget_100")]
    Budget100,
    /// A certificate expires soon.
    CertificateExpiry,
    /// The configuration was changed and is wrong.
    PolicyRejected,
    /// Nobody can be authenticated who should be.
    IdentityUnavailable,
    /// Something else does not work.
    ComponentFailed,
}

/// What is wrong with webhooks that can be known without talking to them.
pub(super) fn check(alerts: &Alerts, origins: &Origins, problems: &mut Vec<Problem>) {
    for (name, webhook) in &alerts.webhooks {
        let path = child("alerts.webhooks", name);
        let mut error = |key: &str, message: String, hint: &str| {
            let key = child(&path, key);
            let origin = origin_near(origins, &key);
            // The line may hold a secret.
            let problem = Problem::error(origin, message).key(key).without_line();
            problems.push(problem.hint(hint));
        };
        let none = Secret::new("");
        if webhook.url == none {
            let hint = "write `url: https://…`, or `url: ${VARIABLE}`";
            error("url", format!("`{path}` has no `url`"), hint);
        } else if !webhook.url.may_begin_with(&["https://", "http://"]) {
            let message = format!("`{path}.url` must begin with `https://` or `http://`");
            error("url", message, "write the whole address");
        }
        if webhook.secret == none {
            let message = format!("`{path}` has no `secret`, so that anybody could send alerts");
            let hint = "write `secret: ${VARIABLE}`, and give its value to the receiver";
            error("secret", message, hint);
        }
        for header in webhook.headers.keys() {
            if HeaderName::try_from(header.as_str()).is_err() {
                let key = child("headers", header);
                let message = format!("`{path}.{key}` is no name of a header");
                error(&key, message, "write one such as `Authorization`");
            }
        }
    }
}

impl Webhook {
    /// Where alerts are posted to; why that is no address.
    ///
    /// # Errors
    ///
    /// The reason why the text is no address.
    pub fn address(&self, environment: &Environment) -> Result<Uri, &'static str> {
        let url = self.url.reveal(environment);
        let url = url.ok_or("refers to a variable that is not set")?;
        let uri: Uri = url.trim().parse().map_err(|_| "is not an address")?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        match uri.host() {
            Some(host) if is_known && !host.is_empty() => Ok(uri),
            _ => Err("must be a whole address of `http` or `https`"),
        }
    }

    /// The headers that are sent along; the name of one that cannot be.
    ///
    /// # Errors
    ///
    /// The reason why a header cannot be sent.
    pub fn headers(&self, environment: &Environment) -> Result<http::HeaderMap, String> {
        let mut headers = http::HeaderMap::new();
        for (name, value) in &self.headers {
            let pair = || {
                let value = value.reveal(environment)?;
                let mut value = HeaderValue::try_from(value.trim()).ok()?;
                value.set_sensitive(true);
                Some((HeaderName::try_from(name.as_str()).ok()?, value))
            };
            let (name, value) = pair().ok_or_else(|| name.clone())?;
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_can_be_chosen() {
        for event in alerts::Event::ALL {
            let named: Result<AlertEvent, _> = serde_json::from_value(event.as_str().into());
            assert!(named.is_ok(), "{event}");
        }
    }

    #[test]
    fn an_address_is_whole() {
        let environment = Environment::from([("HOOK", "https://h.example/x?token=1")]);
        let rows = [
            ("${HOOK}", true),
            ("http://127.0.0.1:9/hook", true),
            ("${MISSING}", false),
            ("ftp://h/", false),
            ("/hook", false),
            ("http://", false),
            ("http://a b/", false),
        ];
        for (url, is_right) in rows {
            let webhook = Webhook {
                url: Secret::new(url),
                ..Webhook::default()
            };
            assert_eq!(webhook.address(&environment).is_ok(), is_right, "{url}");
        }
    }
}
