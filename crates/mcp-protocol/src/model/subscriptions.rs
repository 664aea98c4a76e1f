use super::Task;
use serde::{Deserialize, Serialize};

/// Changes that a client subscribes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionFilter {
    /// Changes of the list of tools.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tools_list_changed: bool,
    /// Changes of the list of prompts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prompts_list_changed: bool,
    /// Changes of the list of resources.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resources_list_changed: bool,
    /// Changes of single resources, by URI.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
    /// Changes of tasks, by id; of the Tasks extension.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub task_ids: Vec<String>,
}

impl SubscriptionFilter {
    /// Returns true if the filter lets no change through.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Answer of a service to `subscriptions/listen`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listening {
    /// Changes that it agrees to announce.
    pub accepted: SubscriptionFilter,
    /// Present states of the tasks among them, each with its number of changes so far. Earlier
    /// states are not sent any more.
    pub tasks: Vec<(u64, Task)>,
}
