//! Parts of a server that are given in code, not configured.

use std::sync::Arc;

use mcp_protocol::model::Implementation;
use mcp_server::{FilterRule, TaskRunner, ToolSource};

/// Name, instructions, sources of tools and filters of a server.
#[derive(Debug, Clone)]
pub(crate) struct InCode {
    pub(crate) info: Implementation,
    pub(crate) instructions: String,
    pub(crate) sources: Vec<Arc<dyn ToolSource>>,
    /// Behind those of the configuration.
    pub(crate) filters: Vec<FilterRule>,
    /// Decides where calls of tasks are carried out, if not here.
    pub(crate) runner: Option<Arc<dyn TaskRunner>>,
}

impl Default for InCode {
    fn default() -> Self {
        Self {
            info: Implementation {
                name: "owlclaw-mcp-server".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                title: Some("OwlClaw".to_owned()),
                ..Implementation::default()
            },
            instructions: "Tools are business functions; each call is governed and recorded. \
                           Resources (skill://) say how and when to use them: read before you act."
                .to_owned(),
            sources: Vec::new(),
            filters: Vec::new(),
            runner: None,
        }
    }
}

impl InCode {
    /// Name and version, by which processes that share a server tell each other.
    pub(crate) fn program(&self) -> String {
        format!("{} {}", self.info.name, self.info.version)
    }
}
