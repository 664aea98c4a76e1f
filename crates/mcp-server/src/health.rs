//! State of the server and its components.

use serde::Serialize;
use std::{fmt, sync::Arc};

/// State of the server and of its parts, for `/health` (R3.9, R11.10).
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// `ok` only if every component is, `degraded` otherwise.
    pub status: &'static str,
    /// The server's version.
    pub version: String,
    /// Each part that can fail by itself.
    pub components: Vec<ComponentState>,
}

/// The state of one part.
#[derive(Clone, Debug, Serialize)]
pub struct ComponentState {
    /// Name of the component.
    pub name: &'static str,
    /// True if the component works now.
    pub ok: bool,
    /// A fault, or a remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A part whose state can be asked for at any time, and changes back when it recovers.
#[derive(Clone)]
pub struct Component(Arc<dyn Fn() -> ComponentState + Send + Sync>);

impl Component {
    /// A part; `state` must not block.
    pub fn new(state: impl Fn() -> ComponentState + Send + Sync + 'static) -> Self {
        Self(Arc::new(state))
    }

    /// State of the component now.
    pub fn state(&self) -> ComponentState {
        (self.0)()
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Component").field(&self.state()).finish()
    }
}

impl Health {
    pub(crate) fn of(version: &str, components: &[Component]) -> Self {
        let components: Vec<_> = components.iter().map(Component::state).collect();
        let ok = components.iter().all(|it| it.ok);
        Self {
            status: if ok { "ok" } else { "degraded" },
            version: version.to_owned(),
            components,
        }
    }

    /// True if every component works.
    pub fn is_ok(&self) -> bool {
        self.components.iter().all(|it| it.ok)
    }
}
