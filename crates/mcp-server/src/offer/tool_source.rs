//! Sources of tools.

use super::{prompts::Prompts, resources::Resources};
use crate::health::ComponentState;
use adapter_skills::SkillCatalog;
use adapter_tools::{Tool, ToolError, ToolSet};
use futures_util::future::BoxFuture;
use std::{fmt, future::ready, sync::Arc};
use tokio::sync::watch;

/// A source of tools: an application, configured programs, services, another server, or code.
///
/// A server asks all its sources for their tools when it starts, when the catalogue of skills has
/// changed, and when one of them reports a change.
pub trait ToolSource: fmt::Debug + Send + Sync {
    /// Tools of the source now, in a stable order, and definitions of which no tool can be made.
    ///
    /// Must not block. `skills` is the catalogue that the tools will be offered with: skills may bind
    /// tools, or declare their arguments.
    fn tools(&self, skills: &SkillCatalog) -> SourceTools;

    /// Resources of the source now.
    fn resources(&self) -> Option<Arc<dyn Resources>> {
        None
    }

    /// Prompts of the source now. Two sources with prompts of one name are a mistake.
    fn prompts(&self) -> Option<Arc<dyn Prompts>> {
        None
    }

    /// A number that changes whenever [`tools`](Self::tools), [`resources`](Self::resources) or
    /// [`prompts`](Self::prompts) may answer otherwise; `None` if they never change by themselves.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// State of the source for `/health`; `None`, always, if it cannot fail by itself. Must not block.
    fn health(&self) -> Option<ComponentState> {
        None
    }

    /// True if a tool of this source gives way to a tool of its name from a source that does not.
    /// Otherwise two tools of one name from two sources are a mistake.
    fn gives_way(&self) -> bool {
        false
    }

    /// Error for a request for something of this name that is not on offer, if the source cannot say yet whether it has
    /// it: what it has was never heard. Told to callers only that may see what has such a name. Must not block.
    fn absent(&self, _: Sought<'_>) -> Option<ToolError> {
        None
    }

    /// Ends what the source keeps running, once no call of its tools runs any more.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

/// Name of something that a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought<'a> {
    /// A tool, by name.
    Tool(&'a str),
    /// A resource, by URI.
    Resource(&'a str),
    /// A prompt, by name.
    Prompt(&'a str),
}

/// Tools of a source, and definitions of which no tool can be made.
#[derive(Clone, Debug, Default)]
pub struct SourceTools {
    /// Tools that can be called.
    pub tools: Vec<Tool>,
    /// Definitions of tools that cannot.
    pub lost: Vec<NotOffered>,
}

/// A tool that is written or configured, and not on offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOffered {
    /// Name of the tool.
    pub tool: String,
    /// Place of its definition.
    pub place: Option<String>,
    /// Reason.
    pub why: String,
}

impl From<Vec<Tool>> for SourceTools {
    fn from(tools: Vec<Tool>) -> Self {
        Self {
            tools,
            lost: Vec::new(),
        }
    }
}

/// Tools that never change.
impl ToolSource for ToolSet {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        self.iter().cloned().collect::<Vec<_>>().into()
    }
}
