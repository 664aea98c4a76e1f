//! The version-neutral vocabulary, one file per feature.

mod annotations;
mod answers;
mod apps;
mod cache;
mod capabilities;
mod completion;
mod content;
pub(crate) mod error;
mod form;
mod input;
mod lifecycle;
pub(crate) mod meta;
mod notifications;
mod prompts;
mod read;
mod resources;
mod sampling;
mod skills;
mod subscriptions;
mod tasks;
mod tools;

pub use self::{
    annotations::{Annotations, Icon, IconTheme},
    answers::{ElicitAction, ElicitResult, FormValue, InputResponse, ListRootsResult, Root},
    apps::{APP_MEDIA_TYPE, APP_META, APP_META_OLD, APP_SCHEME, APPS_EXTENSION},
    cache::{CacheHint, CacheScope},
    capabilities::{
        ClientCapabilities, ElicitationCapability, ResourcesCapability, SamplingCapability,
        ServerCapabilities,
    },
    completion::{Complete, Completion, CompletionReference},
    content::{Content, ResourceContents},
    form::{Choice, Choices, Form, FormField, FormKind},
    input::{InputRequest, InputRequired, InputRetry},
    lifecycle::{DiscoverResult, Implementation, Initialize, InitializeResult},
    meta::{LoggingLevel, RequestMeta, ResultMeta},
    notifications::{ClientNotification, ServerNotification},
    prompts::{
        GetPrompt, GetPromptResult, ListPromptsResult, Prompt, PromptArgument, PromptMessage, Role,
    },
    resources::{
        ByteRange, ListResourceTemplatesResult, ListResources, ListResourcesResult, ReadResource,
        ReadResourceResult, Resource, ResourceTemplate,
    },
    sampling::{
        CreateMessage, CreateMessageResult, IncludeContext, ModelHint, ModelPreferences,
        SamplingContent, SamplingMessage, ToolChoice, ToolChoiceMode,
    },
    skills::{
        DIRECTORY_MIME_TYPE, DIRECTORY_READ, GetSkillResult, ListSkillsResult, ReadDirectory,
        ReadDirectoryResult, SKILLS_EXTENSION, SkillEntry, SkillResource,
    },
    subscriptions::{Listening, SubscriptionFilter},
    tasks::{
        ListTasksResult, RELATED_TASK, TASKS_EXTENSION, Task, TaskRequest, TaskState, TaskSupport,
        TasksCapability, UpdateTask,
    },
    tools::{CallTool, CallToolResult, Effect, ListToolsResult, Tool, ToolAnnotations},
};

pub(crate) use self::read::{
    Object, all_objects, object, object_or_null, objects, or_default, present, raw, raw_if_present,
    raw_object, raw_object_or_null, whole,
};

pub(crate) use self::input::InputParams;

use jsonrpc_core::RawJson;

/// Requests of a client, in any revision.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant documents its payload")]
pub enum ClientRequest {
    Initialize(Box<Initialize>),
    Discover,
    Ping,
    ListTools(Page),
    CallTool(CallTool),
    ListResources(ListResources),
    ListResourceTemplates(Page),
    ReadResource(ReadResource),
    /// `resources/subscribe`, of one URI.
    Subscribe(String),
    /// `resources/unsubscribe`, of one URI.
    Unsubscribe(String),
    ListSkills(Page),
    /// `skills/get`, by the URI of its `SKILL.md`.
    GetSkill(String),
    ReadDirectory(ReadDirectory),
    ListPrompts(Page),
    GetPrompt(GetPrompt),
    Complete(Complete),
    /// `logging/setLevel`.
    SetLevel(LoggingLevel),
    /// `subscriptions/listen`.
    Listen(SubscriptionFilter),
    /// `tasks/get`, by id.
    GetTask(String),
    UpdateTask(UpdateTask),
    /// `tasks/cancel`, by id.
    CancelTask(String),
    /// `tasks/result`, by id.
    AwaitTask(String),
    ListTasks(Page),
}

/// Results of a server, before they are shaped for a revision.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant documents its payload")]
pub enum ServerResult {
    Empty,
    Initialize(InitializeResult),
    Discover(DiscoverResult),
    ListTools(ListToolsResult),
    CallTool(CallToolResult),
    ListResources(ListResourcesResult),
    ListResourceTemplates(ListResourceTemplatesResult),
    ReadResource(ReadResourceResult),
    ListSkills(ListSkillsResult),
    GetSkill(GetSkillResult),
    ReadDirectory(ReadDirectoryResult),
    ListPrompts(ListPromptsResult),
    GetPrompt(GetPromptResult),
    Complete(Completion),
    /// More is needed from the client; modern revisions alone know it.
    InputRequired(InputRequired),
    /// The call goes on as a task; only for clients that know tasks.
    CreateTask(Box<Task>),
    /// State of a task.
    Task(Box<Task>),
    ListTasks(ListTasksResult),
    /// Acknowledged subscription. Not sent: the engine acknowledges it.
    Listening(Listening),
    /// A result that [`crate::Encoder::result`] has already shaped for the request's revision, such
    /// as a list that is the same for many requests.
    Encoded(RawJson),
}

/// Page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Page {
    /// Cursor to continue at; opaque. `None` for the first page.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub cursor: Option<String>,
}
