use crate::{
    IncludeSkill, NoResources, Prompts, Resources, StaticPrompts, describe::Described, lists::Lists,
};
use adapter_skills::SkillCatalog;
use adapter_tools::ToolSet;
use std::{sync::Arc, time::Duration};

/// Everything on offer at one time. A change of it is another offer, with empty caches: a list can
/// never be older than what it lists (Property 11).
#[derive(Debug)]
pub struct Offer {
    tools: ToolSet,
    described: Vec<Described>,
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
        Self {
            tools,
            described,
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

    /// The resources.
    pub fn resources(&self) -> &Arc<dyn Resources> {
        &self.resources
    }

    pub(crate) fn described(&self) -> &[Described] {
        &self.described
    }
}
