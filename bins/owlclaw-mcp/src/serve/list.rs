//! What the command line lists: the same offer and the same rules as clients get, without serving.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use adapter_skills::{SkillCatalog, SkillFilter};
use gateway::{resource_capability, tool_capability};
use governance::{Kind, Policy};

use super::sources::Sources;
use super::{build, policy};
use crate::Failure;
use crate::config::{Config, Micros};
use crate::listing::{ResourceFilter, ResourceRow, ToolRow, estimated_tokens};

/// The tools that `client` may see; all of them without one.
pub(crate) fn tools_list(config: Config, client: Option<String>) -> Result<Vec<ToolRow>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (catalog, policy) = catalog_and_policy(&config)?;
        let sources = Sources::start(&config, &catalog).await?;
        let offer = build::offer(&config, &sources, &catalog);
        let principal = client.as_deref().unwrap_or_default();
        let default_timeout = Duration::from_secs(config.tools.default_timeout_seconds);
        let rows = offer
            .tools()
            .iter()
            .filter(|tool| {
                client.is_none() || policy.visible(principal, &tool_capability(tool.name()))
            })
            .map(|tool| {
                let capability = tool_capability(tool.name());
                let hints = policy.hints(principal, &capability, Kind::Tool);
                let skill = catalog.by_name(tool.name());
                let owlclaw = skill.map(|skill| &skill.frontmatter().owlclaw);
                let description = match tool.description() {
                    "" => skill.map_or("", |skill| skill.description()),
                    description => description,
                };
                let model_text = offer.model_text(tool.name()).unwrap_or_default();
                ToolRow {
                    name: tool.name().to_owned(),
                    kind: tool.kind().as_str().to_owned(),
                    estimated_tokens: estimated_tokens(&model_text),
                    description: description.to_owned(),
                    risk: owlclaw.map(|block| block.risk_level.as_str().to_owned()),
                    requires_confirmation: hints.confirmation.is_some(),
                    confirmation: hints.confirmation.map(|who| who.as_str().to_owned()),
                    estimated_cost: Micros::parse(&hints.estimated_cost.to_string())
                        .ok()
                        .filter(|cost| cost.get() != 0),
                    max_calls_per_minute: hints.max_calls_per_minute,
                    max_calls_per_day: hints.max_calls_per_day,
                    timeout_seconds: tool.timeout().unwrap_or(default_timeout).as_secs(),
                    input_schema: (**tool.input_schema()).clone(),
                }
            })
            .collect();
        if let Some(app) = sources.app {
            app.shutdown().await;
        }
        Ok(rows)
    })
}

/// The resources that `client` may see and `filter` lets through; all of them without either.
pub(crate) fn resources_list(
    config: Config,
    client: Option<String>,
    filter: ResourceFilter,
) -> Result<Vec<ResourceRow>, Failure> {
    let (catalog, policy) = catalog_and_policy(&config)?;
    let filter = SkillFilter {
        category: filter.category,
        tag: filter.tag,
        uri: None,
    };
    let rows = catalog
        .matching(&filter)
        .filter(|skill| {
            client.as_deref().is_none_or(|client| {
                policy.visible(client, &resource_capability(&skill.uri().to_string()))
            })
        })
        .map(|skill| ResourceRow {
            uri: skill.uri().to_string(),
            name: skill.name().to_owned(),
            description: skill.description().to_owned(),
            mime_type: skill.mime_type().to_owned(),
            size: skill.size(),
            last_modified: skill.last_modified().map(rfc3339).unwrap_or_default(),
            tags: skill.tags().to_vec(),
        });
    Ok(rows.collect())
}

pub(super) fn catalog_and_policy(config: &Config) -> Result<(Arc<SkillCatalog>, Policy), Failure> {
    let (catalog, problems) = SkillCatalog::scan(&build::scan_options(config)?);
    for problem in problems {
        tracing::warn!(%problem, "a skill is not as it should be");
    }
    let policy = policy::policy(&config.governance, &catalog)?;
    Ok((Arc::new(catalog), policy))
}

fn rfc3339(time: SystemTime) -> String {
    gateway::rfc3339(time).unwrap_or_default()
}
