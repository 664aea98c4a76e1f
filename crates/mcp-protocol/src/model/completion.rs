use serde::Deserialize;
use std::collections::BTreeMap;

/// `completion/complete`.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The best ways, best first. Of more than [`Completion::MAX_VALUES`] only the first are sent.
    pub values: Vec<String>,
}

impl Completion {
    /// The most values an answer may hold (all revisions).
    pub const MAX_VALUES: usize = 100;
}
