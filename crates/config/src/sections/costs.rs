//! Settings of costs that are known only after their calls.

use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::Origins;
use crate::problem::{Origin, Problem};
use crate::sections::Config;
use crate::sections::secret::Secret;

/// Costs that are read elsewhere once calls have ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// Costs of traces in Langfuse. Without its address none are read.
    pub langfuse: Langfuse,
}

/// Costs of the traces that handlers report, read by the public API of Langfuse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Langfuse {
    /// The address of Langfuse, without a path: `https://cloud.langfuse.com`. Plain `http://` is for addresses on this
    /// machine.
    pub url: Option<Secret>,
    /// The public key of the project, `pk-lf-…`.
    pub public_key: Option<Secret>,
    /// The secret key of the project, `sk-lf-…`.
    pub secret_key: Option<Secret>,
    /// The part of the API that is asked.
    pub api: LangfuseApi,
    /// Seconds from the end of a call to the first time that its trace is read. The cost is settled once it was read
    /// twice and was the same.
    #[schemars(range(min = 1, max = 3600))]
    pub after_seconds: u64,
    /// Hours after which a cost that could not be read stays what was counted.
    #[schemars(range(min = 1, max = 720))]
    pub give_up_hours: u64,
}

/// Part of Langfuse's public API that tells costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LangfuseApi {
    /// `GET /api/public/v2/observations`, of Langfuse Cloud and of version 4.
    #[default]
    Observations,
    /// `GET /api/public/traces/{id}`, of servers of one's own before version 4.
    Traces,
}

impl Default for Langfuse {
    fn default() -> Self {
        Self {
            url: None,
            public_key: None,
            secret_key: None,
            api: LangfuseApi::default(),
            after_seconds: 30,
            give_up_hours: 24,
        }
    }
}

impl Langfuse {
    /// Reason why credentials must not be sent to this address, as a clause that follows a key.
    pub fn address_fault(url: &Uri) -> Option<&'static str> {
        let host = http_client::bare(url.host().unwrap_or_default());
        let is_here = host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|it| it.is_loopback());
        if url.scheme_str() == Some("http") && !is_here {
            return Some(
                "is plain http to another machine, which would send the keys in the clear",
            );
        }
        let path = url.path_and_query().map_or("", |it| it.as_str());
        (!["", "/"].contains(&path)).then_some(
            "has a path; it is the address of Langfuse alone, since the API is added to it",
        )
    }
}

/// Checks the section.
pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let langfuse = &config.costs.langfuse;
    let error = |key: &str, message: String| {
        let origin = origins.get(key).cloned().unwrap_or(Origin::Default);
        Problem::error(origin, message).key(key).without_line()
    };
    let keys = [
        (&langfuse.public_key, "costs.langfuse.public_key"),
        (&langfuse.secret_key, "costs.langfuse.secret_key"),
    ];
    let Some(url) = &langfuse.url else {
        for (_, key) in keys.iter().filter(|(secret, _)| secret.is_some()) {
            let message = format!("`{key}` is for Langfuse, and there is no `costs.langfuse.url`");
            let hint = "set `costs.langfuse.url`, or leave the key out";
            problems.push(error(key, message).hint(hint));
        }
        return;
    };
    for (_, key) in keys.iter().filter(|(secret, _)| secret.is_none()) {
        let message = format!("`costs.langfuse.url` is set, and there is no `{key}`");
        let hint = "keys are made in the project settings of Langfuse; refer to one by `${vault:NAME}` or `${NAME}`";
        problems.push(error("costs.langfuse.url", message).hint(hint));
    }
    let key = "costs.langfuse.url";
    if !url.may_begin_with(&["https://", "http://"]) {
        let message = format!("`{key}` must begin with https:// or http://");
        problems.push(error(key, message).hint("write `https://cloud.langfuse.com`"));
    } else if let Some(why) = url.url_fault(&["https", "http"]) {
        problems.push(error(key, format!("`{key}` cannot be used: {why}")));
    } else if let Some(why) = url
        .reveal(&config.environment)
        .and_then(|it| http_client::parse_url(it.trim(), &["https", "http"]).ok())
        .and_then(|it| Langfuse::address_fault(&it))
    {
        let hint =
            "write `https://cloud.langfuse.com`, or the `https://` address of your own server";
        problems.push(error(key, format!("`{key}` {why}")).hint(hint));
    }
}
