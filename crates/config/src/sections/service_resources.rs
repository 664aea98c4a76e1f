//! HTTP services as resources, as configured.

use std::collections::BTreeMap;
use std::time::Duration;

use resources::{Endpoint, ServiceOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;
use crate::sections::secret::Secret;
use crate::{Config, Environment};

/// An HTTP service whose answers are resources, `api://NAME/RESOURCE`. It is asked with `GET` and nothing else, within
/// the bounds of `services.allowed_hosts` and `services.allow_private`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceResources {
    /// Address that paths are appended to, such as `https://stock.example/api`.
    pub base_url: String,
    /// Headers of each request.
    pub headers: BTreeMap<String, Secret>,
    /// Resources of the service, by name.
    pub resources: BTreeMap<String, ServiceResource>,
    /// Longer answers are refused.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_bytes: usize,
    /// Seconds that one request may take.
    #[schemars(range(min = 1, max = 3_600))]
    pub timeout_seconds: u64,
    /// Bytes of answers that are kept, to ask for them again by `ETag` or `Last-Modified`. 0: none.
    #[schemars(range(max = 1_073_741_824))]
    pub cache_bytes: usize,
    /// Seconds for which an answer is not asked for again at most, however long the service calls it fresh.
    #[schemars(range(max = 86_400))]
    pub max_age_seconds: u64,
}

/// Resource, or family of resources, at one path of a service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceResource {
    /// Path and query, with `{name}` for what clients say: `/stock/{sku}?site={site}`.
    pub path: String,
    /// Description for models.
    #[schemars(extend("format" = "prose"))]
    pub description: Option<String>,
    /// The media type, in place of the one that answers name.
    pub media_type: Option<String>,
    /// Rules for what clients say, by name.
    pub variables: BTreeMap<String, ServiceVariable>,
    /// Seconds between two looks for changes while somebody listens. Without it, nobody is told of changes.
    #[schemars(range(min = 1, max = 86_400))]
    pub poll_seconds: Option<u64>,
}

/// A rule for what clients say.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceVariable {
    /// The values that it may have, which are suggested to clients. Empty: any.
    #[schemars(extend("x-items" = "prose"))]
    pub values: Vec<String>,
    /// A regular expression that the whole value has to match.
    #[schemars(extend("format" = "prose"))]
    pub pattern: Option<String>,
}

impl Default for ServiceResources {
    fn default() -> Self {
        let options = ServiceOptions::new("");
        Self {
            base_url: options.base_url,
            headers: BTreeMap::new(),
            resources: BTreeMap::new(),
            max_bytes: options.max_bytes,
            timeout_seconds: options.timeout.as_secs(),
            cache_bytes: options.cache_bytes,
            max_age_seconds: options.max_age.as_secs(),
        }
    }
}

impl ServiceResources {
    /// The same as options of a service.
    ///
    /// # Errors
    ///
    /// The name of the first header whose value refers to something that is not there.
    pub fn options(&self, environment: &Environment) -> Result<ServiceOptions, String> {
        let mut options = self.without_headers();
        for (name, value) in &self.headers {
            let value = value.reveal(environment).ok_or_else(|| name.clone())?;
            options.headers.insert(name.clone(), value);
        }
        Ok(options)
    }

    fn without_headers(&self) -> ServiceOptions {
        let resources = self.resources.iter().map(|(name, it)| {
            let variables = it.variables.iter().map(|(name, it)| {
                let rule = resources::Variable {
                    values: it.values.clone(),
                    pattern: it.pattern.clone(),
                };
                (name.clone(), rule)
            });
            let endpoint = Endpoint {
                path: it.path.clone(),
                description: it.description.clone(),
                media_type: it.media_type.clone(),
                variables: variables.collect(),
                poll: it.poll_seconds.map(Duration::from_secs),
            };
            (name.clone(), endpoint)
        });
        ServiceOptions {
            resources: resources.collect(),
            max_bytes: self.max_bytes,
            timeout: Duration::from_secs(self.timeout_seconds),
            cache_bytes: self.cache_bytes,
            max_age: Duration::from_secs(self.max_age_seconds),
            ..ServiceOptions::new(&self.base_url)
        }
    }
}

pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    for (name, service) in &config.resources.services {
        let path = child("resources.services", name);
        let mut error = |key: String, message: String, hint: &str| {
            let origin = origin_near(origins, &key);
            problems.push(Problem::error(origin, message).key(key).hint(hint));
        };
        if service.base_url.is_empty() {
            let message = format!("`{path}` has no `base_url`");
            let hint = "write `base_url: https://stock.example/api`";
            error(child(&path, "base_url"), message, hint);
            continue;
        }
        let hint = "see docs/resources.md for services";
        let options = match service.options(&config.environment) {
            Ok(options) => options,
            Err(header) => {
                let key = child(&child(&path, "headers"), &header);
                let message = format!("`{key}` is empty");
                error(
                    key,
                    message,
                    "set what it refers to, or leave the header out",
                );
                service.without_headers()
            }
        };
        if let Err(why) = options.check(name) {
            error(path.clone(), format!("`{path}`: {why}"), hint);
        }
    }
}
