use super::{or_default, whole};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `completion/complete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complete {
    /// Of what an argument is to be completed.
    pub reference: CompletionReference,
    /// Which argument.
    pub argument: String,
    /// What has been typed of it.
    pub value: String,
    /// What other arguments are known to be; since 2025-06-18.
    pub context: BTreeMap<String, String>,
}

/// Something that takes arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum CompletionReference {
    /// A prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// Its name.
        name: String,
    },
    /// A family of resources.
    #[serde(rename = "ref/resource")]
    Resource {
        /// Its URI template, or the URI of a resource.
        uri: String,
    },
}

/// How an argument may go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// The best ways, best first. Of more than [`Completion::MAX_VALUES`] only the first are sent.
    pub values: Vec<String>,
    /// How many ways there are, if more than [`values`](Self::values) has; a server need not say
    /// so of those that are in it.
    #[serde(default, deserialize_with = "whole")]
    pub total: Option<u64>,
    /// Whether there are more than [`values`](Self::values) has, be it known how many or not.
    #[serde(default, deserialize_with = "or_default")]
    pub has_more: bool,
}

impl Completion {
    /// The most values an answer may hold (all revisions).
    pub const MAX_VALUES: usize = 100;
}
