use super::{or_default, whole};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `completion/complete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complete {
    /// Of what an argument is to be completed.
    pub reference: CompletionReference,
    /// Name of the argument.
    pub argument: String,
    /// Text typed so far.
    pub value: String,
    /// Known values of other arguments; since 2025-06-18.
    pub context: BTreeMap<String, String>,
}

/// Prompt or resource template whose argument is completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum CompletionReference {
    /// A prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// Name of the prompt.
        name: String,
    },
    /// A family of resources.
    #[serde(rename = "ref/resource")]
    Resource {
        /// URI template, or the URI of a resource.
        uri: String,
    },
}

/// Possible completions of an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// The best ways, best first. Of more than [`Completion::MAX_VALUES`] only the first are sent.
    pub values: Vec<String>,
    /// Number of completions, if it is larger than that of [`values`](Self::values); a server need
    /// not give it otherwise.
    #[serde(default, deserialize_with = "whole")]
    pub total: Option<u64>,
    /// True if there are more than [`values`](Self::values) has, whether or not their number is
    /// known.
    #[serde(default, deserialize_with = "or_default")]
    pub has_more: bool,
}

impl Completion {
    /// The most values an answer may hold (all revisions).
    pub const MAX_VALUES: usize = 100;
}
