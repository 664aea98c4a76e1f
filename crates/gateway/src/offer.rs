use crate::{
    IncludeSkill, MirroredParams, NoResources, Prompts, Resources, StaticPrompts,
    describe::Described, lists::Lists,
};
use adapter_skills::SkillCatalog;
use adapter_tools::{Tool, ToolSet};
use std::{collections::HashMap, error::Error, sync::Arc, time::Duration};

/// Everything on offer at one time. A change of it is another offer, with empty caches: a list can
/// never be older than what it lists (Property 11).
#[derive(Debug)]
pub struct Offer {
    tools: ToolSet,
    described: Vec<Described>,
    /// Of the tools that have any, by name.
    mirrored: HashMap<String, MirroredParams>,
    resources: Arc<dyn Resources>,
    prompts: Arc<dyn Prompts>,
    pub(crate) lists: Lists,
}

impl Offer {
    /// Puts together what is on offer. `skills` are what tool descriptions take text from.
    pub fn new(
        tools: ToolSet,
        resources: Arc<dyn Resources>,
        skills: Option<&SkillCatalog>,
        include: IncludeSkill,
        default_timeout: Duration,
    ) -> Self {
        let described = tools
            .iter()
            .map(|tool| Described::new(tool, skills, include, default_timeout))
            .collect();
        let mirrored = tools.iter().filter_map(mirrored).collect();
        Self {
            tools,
            described,
            mirrored,
            resources,
            prompts: Arc::new(StaticPrompts::new()),
            lists: Lists::default(),
        }
    }

    /// Tools and nothing else.
    pub fn of_tools(tools: ToolSet, default_timeout: Duration) -> Self {
        Self::new(
            tools,
            Arc::new(NoResources),
            None,
            IncludeSkill::None,
            default_timeout,
        )
    }

    /// With these prompts besides.
    #[must_use]
    pub fn with_prompts(mut self, prompts: Arc<dyn Prompts>) -> Self {
        self.prompts = prompts;
        self
    }

    /// The prompts.
    pub fn prompts(&self) -> &Arc<dyn Prompts> {
        &self.prompts
    }

    /// The tools.
    pub fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// What hosts put before a model to tell it of a tool: its name, its description with what it
    /// has of its skill, and the schema of its arguments. `None` if there is no such tool.
    pub fn model_text(&self, tool: &str) -> Option<String> {
        let described = self.described.iter().find(|it| it.name() == tool)?;
        Some(described.model_text())
    }

    /// Which arguments of a tool are repeated in HTTP headers, if any are.
    pub fn mirrored(&self, tool: &str) -> Option<&MirroredParams> {
        self.mirrored.get(tool)
    }

    /// The resources.
    pub fn resources(&self) -> &Arc<dyn Resources> {
        &self.resources
    }

    pub(crate) fn described(&self) -> &[Described] {
        &self.described
    }
}

fn mirrored(tool: &Tool) -> Option<(String, MirroredParams)> {
    match MirroredParams::of_schema(tool.input_schema()) {
        Ok(mirrored) => (!mirrored.is_empty()).then(|| (tool.name().to_owned(), mirrored)),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn Error,
                tool = tool.name(),
                "headers are not compared with this tool's arguments, and clients may not show it"
            );
            None
        }
    }
}
