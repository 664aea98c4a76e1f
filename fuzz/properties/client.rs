// Shared by the fuzz target, the test that replays the corpus, and a test with random values.

use bytes::Bytes;
use jsonrpc_core::{ErrorCode, ErrorObject, RawJson};
use mcp_protocol::{
    Encoder, Method, ProtocolVersion,
    client::{
        Answer, Answered, ServerError, ServerRequest, decode_input_requests, decode_result,
        decode_server_notification, decode_server_request,
    },
    encode_input_request, encode_input_requests, encode_notification,
    model::{CreateMessage, Form, InputRequest, InputResponse, ServerResult},
};

const NOTIFICATIONS: [&str; 12] = [
    "notifications/progress",
    "notifications/message",
    "notifications/cancelled",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/subscriptions/acknowledged",
    "notifications/tasks",
    "notifications/tasks/status",
    "notifications/elicitation/complete",
    "notifications/unheard/of",
];

const REQUESTS: [&str; 5] = [
    "ping",
    "roots/list",
    "sampling/createMessage",
    "elicitation/create",
    "unheard/of",
];

const CODES: [i32; 5] = [-32002, -32020, -32021, -32022, -32042];

/// Property of reading a server's message: for any content, anywhere, reading ends without a panic;
/// and a message that a client understood can be encoded and understood again. Returns how many
/// readings understood something, without those that any object would do for.
pub(crate) fn holds(said: &[u8]) -> usize {
    let Ok(said) = RawJson::from_bytes(Bytes::copy_from_slice(said)) else {
        return 0;
    };
    let mut understood = 0;
    for version in ProtocolVersion::ALL {
        for kind in Method::ALL {
            understood += usize::from(result(version, kind, &said));
        }
        for method in NOTIFICATIONS {
            understood += usize::from(notification(version, method, &said));
        }
        for method in REQUESTS {
            understood += usize::from(request(version, method, &said));
        }
        if let Ok(requests) = decode_input_requests(version, &said) {
            requests.values().for_each(question);
            // What modern revisions alone write is read by all that have the questions.
            decode_input_requests(version, &encode_input_requests(&requests))
                .expect("it was understood before");
            understood += requests.len();
        }
        for code in CODES {
            let error = ErrorObject::new(ErrorCode(code), "").with_data(said.clone());
            understood += usize::from(match ServerError::of(version, &error) {
                ServerError::MissingClientCapability { required } => required != Default::default(),
                ServerError::UnsupportedVersion { supported, .. } => !supported.is_empty(),
                ServerError::ResourceNotFound { uri } => uri.is_some(),
                ServerError::UrlElicitationRequired { elicitations } => !elicitations.is_empty(),
                _ => false,
            });
        }
    }
    understood
}

fn result(version: ProtocolVersion, kind: Method, said: &RawJson) -> bool {
    let answered = match decode_result(version, kind, said) {
        Ok(answered) => answered,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    if let Some(result) = again(&answered) {
        let encoder = match &answered.server_info {
            Some(info) => Encoder::new(info),
            None => Encoder::anonymous(),
        };
        let said = encoder
            .result(version, &result)
            .expect("it can be said again");
        decode_result(version, kind, &said).expect("it was understood before");
    }
    answered.answer != Answer::Empty
}

/// Answer, as a server would send it again.
fn again(answered: &Answered) -> Option<ServerResult> {
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
        Answer::InputRequired(it) => {
            it.requests.values().for_each(question);
            ServerResult::InputRequired(it)
        }
        Answer::CreateTask(it) => ServerResult::CreateTask(Box::new(it)),
        Answer::Task(it) => ServerResult::Task(Box::new(it)),
        Answer::ListTasks(it) => ServerResult::ListTasks(it),
        Answer::Initialize(_) | Answer::Discover(_) => return None,
    })
}

fn notification(version: ProtocolVersion, method: &str, said: &RawJson) -> bool {
    match decode_server_notification(version, method, said) {
        Ok(None) => false,
        Ok(Some(told)) => {
            let said = encode_notification(version, &told.notification, told.subscription.as_ref());
            let again = decode_server_notification(version, &said.method, &said.params);
            assert!(again.expect("it was understood before").is_some());
            !method.ends_with("list_changed")
        }
        Err(error) => {
            assert_eq!(error.method, method);
            false
        }
    }
}

fn request(version: ProtocolVersion, method: &str, said: &RawJson) -> bool {
    match decode_server_request(version, method, said) {
        Ok(asked) => {
            if let ServerRequest::Input(input) = &asked.request {
                question(input);
                let said = encode_input_request(version, 1.into(), input, None);
                decode_server_request(version, &said.method, &said.params)
                    .expect("it was understood before");
                let _answer = InputResponse::of(input, &said.params);
            }
            !matches!(method, "ping" | "roots/list")
        }
        Err(error) => {
            // It can be answered.
            assert!(error.to_error_object().code.0 < 0);
            false
        }
    }
}

fn question(request: &InputRequest) {
    match request {
        InputRequest::ElicitForm {
            requested_schema, ..
        } => {
            if let Ok(form) = Form::of(requested_schema) {
                let again = RawJson::from_value(&form).expect("forms serialize");
                Form::of(&again).expect("it was understood before");
            }
        }
        InputRequest::CreateMessage(params) => {
            let message = CreateMessage::of(params).expect("it was looked at");
            message.to_params().expect("messages serialize");
        }
        InputRequest::ElicitUrl { .. } | InputRequest::ListRoots => {}
    }
}
