use crate::{
    ProtocolVersion, method,
    model::{ClientRequest, InputRetry},
};

/// What kind of request a client has made: all that is needed to read the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is a variant of `ClientRequest`")]
pub enum RequestKind {
    Initialize,
    Discover,
    Ping,
    ListTools,
    CallTool,
    ListResources,
    ListResourceTemplates,
    ReadResource,
    Subscribe,
    Unsubscribe,
    ListSkills,
    GetSkill,
    ReadDirectory,
    ListPrompts,
    GetPrompt,
    Complete,
    SetLevel,
    Listen,
    GetTask,
    UpdateTask,
    CancelTask,
    AwaitTask,
    ListTasks,
}

impl RequestKind {
    /// Every kind.
    pub const ALL: [Self; 23] = [
        Self::Initialize,
        Self::Discover,
        Self::Ping,
        Self::ListTools,
        Self::CallTool,
        Self::ListResources,
        Self::ListResourceTemplates,
        Self::ReadResource,
        Self::Subscribe,
        Self::Unsubscribe,
        Self::ListSkills,
        Self::GetSkill,
        Self::ReadDirectory,
        Self::ListPrompts,
        Self::GetPrompt,
        Self::Complete,
        Self::SetLevel,
        Self::Listen,
        Self::GetTask,
        Self::UpdateTask,
        Self::CancelTask,
        Self::AwaitTask,
        Self::ListTasks,
    ];

    /// The kind of `request`.
    pub fn of(request: &ClientRequest) -> Self {
        match request {
            ClientRequest::Initialize(_) => Self::Initialize,
            ClientRequest::Discover => Self::Discover,
            ClientRequest::Ping => Self::Ping,
            ClientRequest::ListTools(_) => Self::ListTools,
            ClientRequest::CallTool(_) => Self::CallTool,
            ClientRequest::ListResources(_) => Self::ListResources,
            ClientRequest::ListResourceTemplates(_) => Self::ListResourceTemplates,
            ClientRequest::ReadResource(_) => Self::ReadResource,
            ClientRequest::Subscribe(_) => Self::Subscribe,
            ClientRequest::Unsubscribe(_) => Self::Unsubscribe,
            ClientRequest::ListSkills(_) => Self::ListSkills,
            ClientRequest::GetSkill(_) => Self::GetSkill,
            ClientRequest::ReadDirectory(_) => Self::ReadDirectory,
            ClientRequest::ListPrompts(_) => Self::ListPrompts,
            ClientRequest::GetPrompt(_) => Self::GetPrompt,
            ClientRequest::Complete(_) => Self::Complete,
            ClientRequest::SetLevel(_) => Self::SetLevel,
            ClientRequest::Listen(_) => Self::Listen,
            ClientRequest::GetTask(_) => Self::GetTask,
            ClientRequest::UpdateTask(_) => Self::UpdateTask,
            ClientRequest::CancelTask(_) => Self::CancelTask,
            ClientRequest::AwaitTask(_) => Self::AwaitTask,
            ClientRequest::ListTasks(_) => Self::ListTasks,
        }
    }

    /// The method's name, as it appears on the wire.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Discover => "server/discover",
            Self::Ping => "ping",
            Self::ListTools => "tools/list",
            Self::CallTool => "tools/call",
            Self::ListResources => "resources/list",
            Self::ListResourceTemplates => "resources/templates/list",
            Self::ReadResource => "resources/read",
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
            Self::ListSkills => "skills/list",
            Self::GetSkill => "skills/get",
            Self::ReadDirectory => "resources/directory/read",
            Self::ListPrompts => "prompts/list",
            Self::GetPrompt => "prompts/get",
            Self::Complete => "completion/complete",
            Self::SetLevel => "logging/setLevel",
            Self::Listen => "subscriptions/listen",
            Self::GetTask => "tasks/get",
            Self::UpdateTask => "tasks/update",
            Self::CancelTask => "tasks/cancel",
            Self::AwaitTask => "tasks/result",
            Self::ListTasks => "tasks/list",
        }
    }

    /// Whether revision `version` has it. A server that speaks the revision need not offer it.
    pub fn exists_in(self, version: ProtocolVersion) -> bool {
        method::exists(version, self.method())
    }
}

/// What `request` answers of what its server has asked, if it is a kind that can.
pub(super) fn retry_of(request: &ClientRequest) -> Option<&InputRetry> {
    match request {
        ClientRequest::CallTool(call) => Some(&call.retry),
        ClientRequest::GetPrompt(get) => Some(&get.retry),
        ClientRequest::ReadResource(read) => Some(&read.retry),
        _ => None,
    }
}
