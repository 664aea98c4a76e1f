//! Tools as lists have them.

use crate::{
    names::tool_capability,
    offer::{apps::is_for_model, skill_facts::risk_level},
};
use adapter_skills::{RiskLevel, SkillCatalog};
use adapter_tools::Tool;
use governance::{Caller, Hints, Kind, Policy};
use jsonrpc_core::RawJson;
use ledger::Digest;
use mcp_protocol::model::{self, ResultMeta, TaskSupport, ToolAnnotations};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

/// The part of a skill's text in the description of the tool of the same name (decision D16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeSkill {
    /// All of it, up to 8 KiB.
    #[default]
    Full,
    /// The beginning of the skill, up to 1 KiB.
    Excerpt,
    /// The URI of the skill.
    Link,
    /// No part of the skill.
    None,
}

impl IncludeSkill {
    fn max_bytes(self) -> usize {
        match self {
            Self::Full => 8 * 1024,
            Self::Excerpt => 1024,
            Self::Link | Self::None => 0,
        }
    }
}

/// A tool as all clients see it; only the limits on it differ between them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Described {
    tool: model::Tool,
    risk: Option<&'static str>,
    timeout: Duration,
    is_for_model: bool,
}

/// Icons of a tool, apart from those that are none.
fn icons(tool: &Tool) -> Vec<model::Icon> {
    let icons = tool.icons().iter();
    let icons = icons.filter_map(|icon| match model::Icon::deserialize(icon) {
        Ok(icon) => Some(icon),
        Err(error) => {
            tracing::warn!(tool = tool.name(), %error, "an icon is left out");
            None
        }
    });
    icons.collect()
}

impl Described {
    pub(crate) fn new(
        tool: &Tool,
        skills: Option<&SkillCatalog>,
        include: IncludeSkill,
        default_timeout: Duration,
    ) -> Self {
        let skill = skills.and_then(|skills| skills.by_name(tool.own_name()));
        let mut description = tool.description().to_owned();
        if description.is_empty()
            && let Some(skill) = skill
        {
            description = skill.description().to_owned();
        }
        if let Some(skill) = skill
            && include != IncludeSkill::None
        {
            let excerpt = skill.excerpt_at_line(include.max_bytes());
            if !excerpt.text.trim().is_empty() {
                description.push_str("\n\n");
                description.push_str(excerpt.text.trim_end());
            }
            if excerpt.is_cut {
                description.push_str("\n\nThe whole text: ");
                description.push_str(&skill.uri().to_string());
            }
        }
        let annotations = tool.annotations();
        let annotations = ToolAnnotations {
            read_only_hint: annotations.read_only,
            destructive_hint: annotations.destructive,
            idempotent_hint: annotations.idempotent,
            open_world_hint: annotations.open_world,
            ..ToolAnnotations::default()
        };
        let mut meta = ResultMeta::default();
        for (key, value) in tool.meta() {
            meta.insert(key.clone(), value);
        }
        let raw = |schema: String| {
            RawJson::from_bytes(schema.into()).expect("a tree of values serializes")
        };
        Self {
            tool: model::Tool {
                name: tool.name().to_owned(),
                title: tool.title().map(str::to_owned),
                description: (!description.is_empty()).then_some(description),
                input_schema: raw(tool.input_schema_text()),
                output_schema: tool.output_schema_text().map(raw),
                annotations: (annotations != ToolAnnotations::default()).then_some(annotations),
                task_support: TaskSupport::default(),
                icons: icons(tool),
                meta,
            },
            risk: risk_level(tool, skill.map(|it| &**it)).map(RiskLevel::as_str),
            timeout: tool.timeout().unwrap_or(default_timeout),
            is_for_model: is_for_model(tool),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.tool.name
    }

    /// False if it is offered to pages of apps alone.
    pub(crate) fn is_for_model(&self) -> bool {
        self.is_for_model
    }

    /// The description as it is listed.
    pub(crate) fn description(&self) -> &str {
        self.tool.description.as_deref().unwrap_or_default()
    }

    /// The tool as it is, without limits of any caller.
    pub(crate) fn plain(&self) -> &model::Tool {
        &self.tool
    }

    /// All that a model may need of the tool.
    pub(crate) fn for_model(&self) -> serde_json::Value {
        let tool = &self.tool;
        let mut told = json!({ "name": tool.name, "inputSchema": tool.input_schema });
        if let Some(title) = &tool.title {
            told["title"] = json!(title);
        }
        if let Some(description) = &tool.description {
            told["description"] = json!(description);
        }
        if let Some(schema) = &tool.output_schema {
            told["outputSchema"] = json!(schema);
        }
        told
    }

    /// A digest of the tool's entry in the list, apart from members that depend on the client.
    pub(crate) fn definition_digest(&self) -> Digest {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Definition<'a> {
            name: &'a str,
            title: Option<&'a str>,
            description: Option<&'a str>,
            input_schema: &'a RawJson,
            output_schema: Option<&'a RawJson>,
            annotations: Option<&'a ToolAnnotations>,
            #[serde(rename = "_meta")]
            meta: &'a ResultMeta,
        }
        let tool = &self.tool;
        let definition = Definition {
            name: &tool.name,
            title: tool.title.as_deref(),
            description: tool.description.as_deref(),
            input_schema: &tool.input_schema,
            output_schema: tool.output_schema.as_ref(),
            annotations: tool.annotations.as_ref(),
            meta: &tool.meta,
        };
        let definition = serde_json::to_string(&definition);
        redaction::digest(&definition.expect("JSON and texts serialize"))
    }

    /// The part that hosts put before a model: name, description and arguments.
    pub(crate) fn model_text(&self) -> String {
        let description = self.tool.description.as_deref().unwrap_or_default();
        let arguments = self.tool.input_schema.as_str();
        format!("{}\n{description}\n{arguments}", self.tool.name)
    }

    /// The tool as one caller sees it: with the limits that hold for it (decision D17).
    pub(crate) fn seen_by(
        &self,
        caller: Caller<'_>,
        policy: &Policy,
        is_async: bool,
    ) -> model::Tool {
        let hints = policy.hints(caller, &tool_capability(&self.tool.name), Kind::Tool);
        let Hints {
            max_calls_per_minute,
            max_calls_per_day,
            estimated_cost,
            max_cost_per_call,
            confirmation,
            risk,
        } = hints;
        let risks: Vec<_> = risk.names().collect();
        let mut tool = self.tool.clone();
        tool.meta.insert(
            "io.owlclaw/governance",
            &json!({
                "max_calls_per_minute": max_calls_per_minute,
                "max_calls_per_day": max_calls_per_day,
                "estimated_cost": estimated_cost.to_string(),
                "max_cost_per_call": max_cost_per_call.map(|most| most.to_string()),
                "risk": self.risk,
                "risks": risks,
                "requires_confirmation": confirmation.is_some(),
                "confirmation": confirmation.map(governance::Confirmation::as_str),
                "timeout_seconds": self.timeout.as_secs_f64(),
                "supports_async": is_async,
            }),
        );
        tool
    }
}
