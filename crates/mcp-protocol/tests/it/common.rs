//! Helpers that the tests of the vocabulary share.

use jsonrpc_core::RawJson;
use mcp_protocol::{
    Encoder, ProtocolVersion,
    client::{Answer, Answered},
    model::{
        DIRECTORY_READ, ResourcesCapability, SKILLS_EXTENSION, ServerCapabilities, ServerResult,
        TasksCapability,
    },
};
use serde_json::{Value, json};

/// A server that has everything.
pub(crate) fn everything() -> ServerCapabilities {
    ServerCapabilities {
        tools: true,
        resources: Some(ResourcesCapability { subscribe: true }),
        prompts: true,
        completions: true,
        logging: true,
        tasks: Some(TasksCapability { list: true }),
        extensions: [(SKILLS_EXTENSION.to_owned(), json!({ DIRECTORY_READ: true }))].into(),
        ..ServerCapabilities::default()
    }
}

pub(crate) fn raw(value: &Value) -> RawJson {
    RawJson::from_value(value).expect("a tree of values serializes")
}

pub(crate) fn value(raw: &RawJson) -> Value {
    raw.parse().expect("it is JSON")
}

/// Answer, as a server would send it again. `None` for answers that our servers word in their own
/// way.
pub(crate) fn again(answered: &Answered) -> Option<ServerResult> {
    Some(match answered.answer.clone() {
        Answer::Empty => ServerResult::Empty,
        Answer::ListTools(it) => ServerResult::ListTools(it),
        Answer::CallTool(it) => ServerResult::CallTool(it),
        Answer::ListResources(it) => ServerResult::ListResources(it),
        Answer::ListResourceTemplates(it) => ServerResult::ListResourceTemplates(it),
        Answer::ReadResource(it) => ServerResult::ReadResource(it),
        Answer::ListSkills(it) => ServerResult::ListSkills(it),
        Answer::GetSkill(it) => ServerResult::GetSkill(it),
        Answer::ReadDirectory(it) => ServerResult::ReadDirectory(it),
        Answer::ListPrompts(it) => ServerResult::ListPrompts(it),
        Answer::GetPrompt(it) => ServerResult::GetPrompt(it),
        Answer::Complete(it) => ServerResult::Complete(it),
        Answer::InputRequired(it) => ServerResult::InputRequired(it),
        Answer::CreateTask(it) => ServerResult::CreateTask(Box::new(it)),
        Answer::Task(it) => ServerResult::Task(Box::new(it)),
        Answer::ListTasks(it) => ServerResult::ListTasks(it),
        Answer::Initialize(_) | Answer::Discover(_) => return None,
    })
}

/// A result, written by a server that says who it is only if `answered` does.
pub(crate) fn written(version: ProtocolVersion, answered: &Answered) -> Option<Value> {
    let encoder = match &answered.server_info {
        Some(info) => Encoder::new(info),
        None => Encoder::anonymous(),
    };
    if let Some(subscription) = &answered.subscription {
        return Some(value(&encoder.listen_ended(subscription)));
    }
    let result = encoder.result(version, &again(answered)?);
    Some(value(&result.expect("the vocabulary serializes")))
}
