//! The manager of founding document 002: servers of a file as tools of an agent's registry.

use crate::{Gateway, GatewayOptions, HostFile, Status, UpstreamSpec, hosts};
use adapter_skills::SkillCatalog;
use adapter_tools::{Content, ResourceBody, Tool, ToolCx, ToolError, ToolOutput};
use futures_util::future::BoxFuture;
use mcp_client::UnknownServer;
use mcp_server::ToolSource;
use serde_json::{Map, Value};
use std::{collections::BTreeSet, fmt, path::PathBuf, sync::Arc, time::Duration};

/// Characters of a result that an agent is shown, if its registry says no other number.
pub const MAX_RESULT_CHARS: usize = 5_000;
/// Time that connecting may take before the servers that are there are registered without the others.
const CONNECT: Duration = Duration::from_secs(60);

/// A registry of an agent's tools.
pub trait ToolRegistry {
    /// True if there is a tool of this name.
    fn has(&self, name: &str) -> bool;

    /// Adds a tool.
    fn register(&mut self, tool: ToolDef);
}

/// A tool as an agent has it.
#[derive(Clone)]
pub struct ToolDef {
    /// Name, `mcp_{server}_{tool}`.
    pub name: String,
    /// Description, which begins with `[MCP:{server}] `.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// Characters of a result that the agent is shown.
    pub max_result_chars: usize,
    tool: Tool,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// There was no answer in time.
    TimedOut,
    /// The server, or its tool, has failed.
    Failed(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the tool did not answer in time"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CallError {}

impl fmt::Debug for ToolDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolDef")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ToolDef {
    fn of(tool: Tool) -> Self {
        Self {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            input_schema: (**tool.input_schema()).clone(),
            max_result_chars: MAX_RESULT_CHARS,
            tool,
        }
    }

    /// As the Chat Completions interface of OpenAI takes it. Its name is [`mcp_client::model_name`].
    #[must_use]
    pub fn openai(&self) -> Value {
        mcp_client::openai_tool(&self.name, &self.description, &self.input_schema)
    }

    /// As the Messages interface of Anthropic takes it, likewise.
    #[must_use]
    pub fn anthropic(&self) -> Value {
        mcp_client::anthropic_tool(&self.name, &self.description, &self.input_schema)
    }

    /// Calls it, and has the result as text. A result that says it is an error is one.
    pub fn call(
        &self,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, CallError>> {
        let tool = self.tool.clone();
        let max = self.max_result_chars;
        Box::pin(async move {
            let raw = Value::Object(arguments).to_string();
            let failed = |why: String| CallError::Failed(format!("`{}`: {why}", tool.name()));
            let checked = tool.check(raw.into()).map_err(|invalid| {
                let lines = invalid.violations().iter().map(ToString::to_string);
                failed(lines.collect::<Vec<_>>().join("; "))
            })?;
            let time = tool.timeout().unwrap_or(CONNECT);
            let called = tool.execute(ToolCx::new("agent", "1"), checked);
            let called = tokio::time::timeout(time, called).await;
            match called.unwrap_or(Err(ToolError::TimedOut)) {
                Ok(output) if output.is_error => Err(failed(result_text(&output))),
                Ok(output) => Ok(result_text(&output).chars().take(max).collect()),
                Err(ToolError::TimedOut) => Err(CallError::TimedOut),
                Err(error) => Err(failed(error.to_string())),
            }
        })
    }
}

/// A result as text: text, what is structured if no text says it, resources, and the names of what is neither.
#[must_use]
pub fn result_text(output: &ToolOutput) -> String {
    let mut parts: Vec<String> = Vec::new();
    for content in &output.content {
        if let Content::Text { text, .. } = content {
            parts.push(text.clone());
        }
    }
    if let Some(structured) = &output.structured
        && let Ok(value) = serde_json::from_str::<Value>(structured.get())
        && !parts
            .iter()
            .any(|it| serde_json::from_str::<Value>(it).is_ok_and(|it| it == value))
    {
        parts.push(serde_json::to_string_pretty(&value).unwrap_or_default());
    }
    for content in &output.content {
        match content {
            Content::Text { .. } => {}
            Content::Image { mime_type, .. } => parts.push(format!("[image content {mime_type}]")),
            Content::Audio { mime_type, .. } => parts.push(format!("[audio content {mime_type}]")),
            Content::ResourceLink(link) => parts.push(format!("[resource uri={}]", link.uri)),
            Content::Resource { resource, .. } => match &resource.body {
                ResourceBody::Text(text) => parts.push(text.clone()),
                ResourceBody::Blob(_) => parts.push(format!(
                    "[resource uri={} mime={}]",
                    resource.uri,
                    resource.mime_type.as_deref().unwrap_or("unknown")
                )),
            },
        }
    }
    parts.join("\n")
}

/// Places of the file with the manager's servers.
#[derive(Clone, Debug, Default)]
pub struct ManagerOptions {
    /// A file that is looked for after that of the variable `OWLCLAW_MCP_CONFIG`.
    pub config_path: Option<PathBuf>,
    /// The directory whose `mcp.json` is looked for after that.
    pub workspace_root: Option<PathBuf>,
    /// Options of the gateway.
    pub gateway: GatewayOptions,
}

/// Servers of a file as tools of an agent. What cannot be used is logged, and hinders nothing else.
#[derive(Debug, Default)]
pub struct McpManager {
    options: ManagerOptions,
    gateway: Option<Gateway>,
}

impl McpManager {
    /// A manager that has done nothing yet.
    #[must_use]
    pub fn new(options: ManagerOptions) -> Self {
        Self {
            options,
            gateway: None,
        }
    }

    /// Reads the file, connects all servers at once, and registers their tools; how many. A tool whose name
    /// is taken is left out.
    pub async fn initialize(&mut self, registry: &mut (dyn ToolRegistry + Send)) -> usize {
        let variable = |name: &str| std::env::var(name).ok();
        let options = &self.options;
        let path = hosts::find(
            options.config_path.as_deref(),
            options.workspace_root.as_deref(),
            variable,
        );
        let file = path
            .map(|path| HostFile::read(&path, variable))
            .unwrap_or_default();
        for warning in &file.warnings {
            tracing::warn!(
                warning,
                "a part of the configuration of servers is of no use"
            );
        }
        self.initialize_with(file.specs, registry).await
    }

    /// The same with servers that are known already.
    pub async fn initialize_with(
        &mut self,
        servers: Vec<UpstreamSpec>,
        registry: &mut (dyn ToolRegistry + Send),
    ) -> usize {
        self.shutdown().await;
        let gateway = Gateway::new(self.options.gateway.clone(), servers);
        gateway.connect_all(CONNECT).await;
        let found = gateway.tools(&SkillCatalog::default());
        for lost in &found.lost {
            tracing::warn!(
                tool = lost.tool,
                why = lost.why,
                "a tool of a server is left out"
            );
        }
        let (set, problems) = adapter_tools::ToolSet::collect(found.tools);
        for problem in &problems {
            tracing::warn!(%problem, "a tool of a server is left out");
        }
        let mut registered = 0;
        for tool in set.iter() {
            if registry.has(tool.name()) {
                tracing::warn!(
                    tool = tool.name(),
                    "a tool of a server is left out: its name is taken"
                );
                continue;
            }
            registry.register(ToolDef::of(tool.clone()));
            registered += 1;
        }
        self.gateway = Some(gateway);
        registered
    }

    /// Tools of these servers alone (founding document 003, §8).
    ///
    /// # Errors
    ///
    /// The name of a server that there is not.
    pub fn tools_of(&self, servers: &[&str]) -> Result<Vec<ToolDef>, UnknownServer> {
        let unknown = |name: &&str| UnknownServer((*name).to_owned());
        let Some(gateway) = &self.gateway else {
            return servers
                .first()
                .map_or(Ok(Vec::new()), |it| Err(unknown(it)));
        };
        let known = gateway.status();
        let mut wanted = BTreeSet::new();
        for server in servers {
            if known.iter().all(|it| it.name != *server) {
                return Err(unknown(server));
            }
            let names = gateway.tools_named(server).into_iter();
            wanted.extend(names.filter_map(|(_, offered)| offered));
        }
        let found = gateway.tools(&SkillCatalog::default());
        let (set, _) = adapter_tools::ToolSet::collect(found.tools);
        let tools = set.iter().filter(|it| wanted.contains(it.name()));
        Ok(tools.map(|it| ToolDef::of(it.clone())).collect())
    }

    /// Closes all connections.
    pub async fn shutdown(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.shut_down().await;
        }
    }

    /// Names of the servers that are connected.
    #[must_use]
    pub fn connected_servers(&self) -> Vec<String> {
        self.gateway
            .as_ref()
            .map(Gateway::connected)
            .unwrap_or_default()
    }

    /// Facts about each server.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        self.gateway
            .as_ref()
            .map(Gateway::status)
            .unwrap_or_default()
    }
}

/// A registry that is a list.
impl ToolRegistry for Vec<ToolDef> {
    fn has(&self, name: &str) -> bool {
        self.iter().any(|it| it.name == name)
    }

    fn register(&mut self, tool: ToolDef) {
        self.push(tool);
    }
}

impl<R: ToolRegistry> ToolRegistry for Arc<std::sync::Mutex<R>> {
    fn has(&self, name: &str) -> bool {
        self.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .has(name)
    }

    fn register(&mut self, tool: ToolDef) {
        self.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .register(tool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content() -> impl Strategy<Value = Content> {
        prop_oneof![
            ".{0,20}".prop_map(Content::text),
            "[a-z]{0,8}".prop_map(|data| Content::image(data, "image/png")),
            "[a-z]{1,8}".prop_map(|uri| Content::link(format!("x:{uri}"), uri)),
            ("[a-z]{1,8}", ".{0,20}").prop_map(|(uri, text)| Content::embedded_text(
                uri,
                "text/plain",
                text
            )),
        ]
    }

    proptest! {
        /// Property 5 of document 002.
        #[test]
        fn the_text_of_a_result_has_each_text_of_it(blocks in prop::collection::vec(content(), 0..6)) {
            let text = result_text(&ToolOutput::from(blocks.clone()));
            for block in blocks {
                match block {
                    Content::Text { text: one, .. } => prop_assert!(text.contains(&one)),
                    Content::ResourceLink(link) => prop_assert!(text.contains(&link.uri)),
                    Content::Resource { resource, .. } => {
                        let ResourceBody::Text(one) = resource.body else { unreachable!() };
                        prop_assert!(text.contains(&one));
                    }
                    _ => prop_assert!(text.contains("[image content image/png]")),
                }
            }
        }
    }
}
