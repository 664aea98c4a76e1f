//! An offer that changes while it is served, and clients that hear of it.

use crate::{content, headers, input, prompts, reconnecting, skills, tasks, telling};
use adapter_tools::{NoArguments, Tool, ToolError, ToolProblem, ToolSet};
use governance::MemoryQuota;
use mcp_server::{IncludeSkill, McpServer, Offer, Options};
use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, Ordering},
};

/// Tools, resources and prompts that come and go.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    has_tool: AtomicBool,
    has_prompt: AtomicBool,
    /// The server holds the offer, and the offer's tools hold this.
    gateway: OnceLock<Weak<McpServer<MemoryQuota>>>,
}

impl Changes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Says whose offer it is that changes.
    pub(crate) fn watch(&self, gateway: &Arc<McpServer<MemoryQuota>>) {
        self.gateway.get_or_init(|| Arc::downgrade(gateway));
    }

    /// Offer of this moment. An offer never changes itself: a change is another offer.
    pub(crate) fn offer(self: &Arc<Self>) -> Result<Offer, ToolProblem> {
        let tools = content::tools()
            .into_iter()
            .chain(telling::tools())
            .chain(reconnecting::tools())
            .chain(input::tools())
            .chain(tasks::tools())
            .chain([headers::tool()])
            .chain(self.tools());
        let offer = Offer::new(
            ToolSet::new(tools)?,
            skills::and(content::resources()),
            None,
            IncludeSkill::None,
            Options::default().default_timeout,
        );
        let with_another = self.has_prompt.load(Ordering::Relaxed);
        Ok(offer.with_prompts(Arc::new(prompts::prompts(with_another))))
    }

    fn tools(self: &Arc<Self>) -> Vec<Tool> {
        let mut tools = vec![
            self.trigger("test_trigger_tool_change", "tools", |it| &it.has_tool),
            self.trigger("test_trigger_prompt_change", "prompts", |it| &it.has_prompt),
        ];
        if self.has_tool.load(Ordering::Relaxed) {
            let another = |_cx, _: NoArguments| async { Ok("Here today.") };
            tools.push(
                Tool::native("test_another_tool", another)
                    .describe("Is there only after every other change."),
            );
        }
        tools
    }

    fn trigger(
        self: &Arc<Self>,
        name: &'static str,
        what: &'static str,
        flag: fn(&Self) -> &AtomicBool,
    ) -> Tool {
        let changes = Arc::clone(self);
        Tool::native(name, move |_cx, _: NoArguments| {
            let changes = Arc::clone(&changes);
            async move {
                flag(&changes).fetch_xor(true, Ordering::Relaxed);
                changes.publish()?;
                Ok(format!("The list of {what} has changed."))
            }
        })
        .describe(format!("Changes the list of {what}."))
    }

    fn publish(self: &Arc<Self>) -> Result<(), ToolError> {
        let gateway = self.gateway.get().and_then(Weak::upgrade);
        let gateway = gateway.ok_or_else(|| ToolError::failed("nobody is served any more"))?;
        // Whoever listens is told by the server.
        gateway.replace_offer(self.offer().map_err(ToolError::broken)?);
        Ok(())
    }
}
