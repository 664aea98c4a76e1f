//! Apps: tools that are not for a model, and names by which pages call the tools of their server.

use crate::names::UPSTREAM_META;
use adapter_tools::{Tool, ToolSet};
use mcp_protocol::model::{APP_META, APP_META_OLD};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// True if a tool says that `whom`, a model or the page of an app, may call it. One that says nothing is for both.
fn is_for(tool: &Tool, whom: &str) -> bool {
    match tool
        .meta()
        .get(APP_META)
        .and_then(|it| it.get("visibility"))
    {
        None | Some(Value::Null) => true,
        Some(Value::Array(those)) => those.iter().any(|it| it == whom),
        // What cannot be understood is kept from both.
        Some(_) => false,
    }
}

/// True if a tool is offered to models. The page of an app calls others for itself.
pub(crate) fn is_for_model(tool: &Tool) -> bool {
    is_for(tool, "model")
}

/// True if a tool has a page, or is meant for one.
fn is_of_app(tool: &Tool) -> bool {
    [APP_META, APP_META_OLD]
        .iter()
        .any(|it| tool.meta().contains_key(*it))
}

/// Tools of upstreams with apps, by their own names. A page has these names in its text, whatever name a gateway
/// offers the tools under.
#[derive(Debug, Default)]
pub(crate) struct PageNames {
    by_own_name: HashMap<String, Vec<Arc<str>>>,
    has_apps: bool,
}

impl PageNames {
    pub(crate) fn new(tools: &ToolSet) -> Self {
        let origin = |tool: &Tool| {
            let origin = tool.meta().get(UPSTREAM_META)?;
            let part = |name: &str| Some(origin.get(name)?.as_str()?.to_owned());
            Some((part("name")?, part("tool")?))
        };
        let of_apps = tools.iter().filter(|it| is_of_app(it));
        let with_apps: HashSet<String> = of_apps.filter_map(|it| Some(origin(it)?.0)).collect();
        let mut by_own_name: HashMap<_, Vec<Arc<str>>> = HashMap::new();
        for tool in tools.iter().filter(|it| is_for(it, "app")) {
            if let Some((upstream, own)) = origin(tool)
                && with_apps.contains(&upstream)
                && own != tool.name()
            {
                by_own_name.entry(own).or_default().push(tool.name().into());
            }
        }
        Self {
            by_own_name,
            has_apps: tools.iter().any(is_of_app),
        }
    }

    /// True if a tool has a page, or is meant for one.
    pub(crate) fn has_apps(&self) -> bool {
        self.has_apps
    }

    /// Names under which tools are offered that a page may mean by `name`.
    pub(crate) fn meant_by(&self, name: &str) -> &[Arc<str>] {
        self.by_own_name.get(name).map_or(&[], Vec::as_slice)
    }
}
