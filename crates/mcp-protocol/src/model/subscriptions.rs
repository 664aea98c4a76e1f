use super::Task;
use serde::{Deserialize, Serialize};

/// What a client wants to hear of.
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
    /// Whether nothing would ever be heard.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a service will tell of what `subscriptions/listen` asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listening {
    /// What it agrees to.
    pub accepted: SubscriptionFilter,
    /// How the tasks among it are now, each with how many times it has changed. What a task was
    /// before that is not told any more.
    pub tasks: Vec<(u64, Task)>,
}
