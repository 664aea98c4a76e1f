//! Alerts: webhooks that are sent a message when something fails.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Environment;
use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;
use crate::sections::secret::Secret;

/// Schemes of addresses that alerts are posted to.
const SCHEMES: &[&str] = &["https", "http"];

/// Webhooks that receive alerts of failures. Without a webhook no alert is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Alerts {
    /// Receivers of alerts, by names of your choice.
    pub webhooks: BTreeMap<String, Webhook>,
    /// Seconds for which a failure must last before its alert is sent, and for which it must be
    /// over before the end is reported.
    #[schemars(range(max = 3_600))]
    pub min_seconds: u64,
    /// Minutes after which an alert is repeated while the failure lasts; 0: never.
    #[schemars(range(max = 10_080))]
    pub repeat_minutes: u64,
    /// Minutes for which delivery of an alert is retried.
    #[schemars(range(min = 1, max = 10_080))]
    pub give_up_minutes: u64,
    /// Name of this server in alerts. Without it, the name of its machine.
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

/// Receiver of alerts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Webhook {
    /// Address that alerts are posted to. Never shown, since many such addresses are secrets.
    pub url: Secret,
    /// Key of the HMAC-SHA256 that signs each alert.
    pub secret: Secret,
    /// Events to send; all, if the list is empty.
    pub events: Vec<AlertEvent>,
    /// Headers that are sent along, such as `Authorization`.
    pub headers: BTreeMap<String, Secret>,
    /// Seconds that one attempt may take.
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

/// Event that an alert reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertEvent {
    /// Calls cannot be recorded.
    LedgerUnavailable,
    /// Verification has found the ledger to be damaged.
    LedgerDamaged,
    /// Use cannot be counted.
    QuotaStoreUnavailable,
    /// Processes of the application end again and again.
    WorkerCrashLoop,
    /// A client has spent 80 % of a month's budget.
    #[serde(rename = "budget_80")]
    Budget80,
    /// A client has spent all of it.
    #[serde(rename = "budget_100")]
    Budget100,
    /// A certificate expires soon.
    CertificateExpiry,
    /// The configuration was changed and is wrong.
    PolicyRejected,
    /// Clients cannot be authenticated, because keys or certificates they need are unavailable.
    IdentityUnavailable,
    /// Another component does not work.
    ComponentFailed,
}

/// Adds the problems of webhooks that can be found without connecting to them.
pub(crate) fn check(alerts: &Alerts, origins: &Origins, problems: &mut Vec<Problem>) {
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
        } else if let Some(why) = webhook.url.url_fault(SCHEMES) {
            let message = format!("`{path}.url` cannot be used: {why}");
            error(
                "url",
                message,
                "write one such as `https://hooks.example.com/x`",
            );
        }
        if webhook.secret == none {
            let message =
                format!("`{path}` has no `secret`, so that any sender could forge alerts");
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
    /// Address that alerts are posted to.
    ///
    /// # Errors
    ///
    /// The reason why the text is no address.
    pub fn address(&self, environment: &Environment) -> Result<Uri, String> {
        let url = self.url.reveal(environment);
        let url = url.ok_or("refers to a variable that is not set")?;
        let uri = http_client::parse_url(url.trim(), SCHEMES);
        uri.map_err(|why| format!("cannot be used: {why}"))
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
            ("https://h.example:99999/x", false),
            ("https://u:p@h.example/x", false),
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
