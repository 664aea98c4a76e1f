//! The specification's own example messages, through the types and back.

use crate::common::{everything, raw, value, written};
use bytes::{Bytes, BytesMut};
use jsonrpc_core::{
    ErrorObject, Limits, Message, Notification, Payload, RawJson, Request, Response,
};
use mcp_protocol::{
    Method, ProtocolVersion,
    client::{
        Answer, Answered, Discovered, OutgoingMeta, ServerError, ServerOffer,
        decode_input_requests, decode_result, decode_server_notification,
        encode_client_notification, encode_input_response, encode_request,
    },
    decode_notification, decode_request, encode_input_requests, encode_notification,
    model::{
        ClientCapabilities, ClientNotification, Content, CreateMessage, Form, FormField,
        Implementation, InputRequest, InputResponse, ModelPreferences, RequestMeta,
        ResourceContents, Root, SamplingContent, SamplingMessage,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

const VERSION: ProtocolVersion = ProtocolVersion::V2026_07_28;

/// As many as the specification gives.
const EXAMPLES: usize = 129;

/// Examples whose decoded and encoded form differs from the original: the example, the member, and
/// the reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    (
        "CallToolResult/result-with-unstructured-text",
        "/isError",
        NOT_AN_ERROR,
    ),
    (
        "CallToolResultResponse/call-tool-result-response",
        "/result/isError",
        NOT_AN_ERROR,
    ),
    ("ElicitRequest/elicitation-request", "/params/mode", FORM),
    (
        "ElicitRequestFormParams/elicit-multiple-fields",
        "/mode",
        FORM,
    ),
    ("ElicitRequestFormParams/elicit-single-field", "/mode", FORM),
    (
        "InputRequests/elicitation-and-sampling-input-requests",
        "/github_login/params/mode",
        FORM,
    ),
    (
        "ListRootsRequest/list-roots-request",
        "/id",
        "its schema has no id, and nothing could be answered by it",
    ),
    (
        "ListRootsRequest/list-roots-request",
        "/params",
        "no parameters are written as an empty object",
    ),
    (
        "ReadResourceResultResponse/read-resource-result-response",
        "/result/cacheScope",
        UNSAID,
    ),
    (
        "ReadResourceResultResponse/read-resource-result-response",
        "/result/ttlMs",
        UNSAID,
    ),
];

const NOT_AN_ERROR: &str = "false is what its absence means";
const FORM: &str = "a form is what its absence means";
const UNSAID: &str = "the schema requires it, and the example lacks it";

#[test]
fn every_example_survives_the_types() {
    let mut seen = 0;
    let mut found = BTreeSet::new();
    for example in testkit::examples() {
        let name = format!("{}/{}", example.definition, example.name);
        let back = there_and_back(&example.definition, &example.value);
        different(&example.value, &back, "", &mut |pointer| {
            found.insert((name.clone(), pointer.to_owned()));
        });
        seen += 1;
    }
    assert_eq!(seen, EXAMPLES);
    let expected: BTreeSet<_> = DIFFERENCES
        .iter()
        .map(|(name, pointer, _)| ((*name).to_owned(), (*pointer).to_owned()))
        .collect();
    assert_eq!(found, expected);
}

/// Calls `report` with the pointer of each member that is not the same in both. JSON has one kind
/// of number: 50 is 50.0.
fn different(a: &Value, b: &Value, pointer: &str, report: &mut dyn FnMut(&str)) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let pointer = format!("{pointer}/{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => different(a, b, &pointer, report),
                    _ => report(&pointer),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                different(a, b, &format!("{pointer}/{index}"), report);
            }
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
        (a, b) if a == b => {}
        _ => report(pointer),
    }
}

/// Reads an example of `definition` and writes it again.
fn there_and_back(definition: &str, example: &Value) -> Value {
    let of_method = |method: &str| client_params(method, example);
    match definition {
        "TextContent" | "ImageContent" | "AudioContent" | "ResourceLink" | "EmbeddedResource" => {
            by_serde::<Content>(example)
        }
        "TextResourceContents" | "BlobResourceContents" => by_serde::<ResourceContents>(example),
        "StringSchema"
        | "NumberSchema"
        | "BooleanSchema"
        | "UntitledSingleSelectEnumSchema"
        | "TitledSingleSelectEnumSchema"
        | "UntitledMultiSelectEnumSchema"
        | "TitledMultiSelectEnumSchema" => by_serde::<FormField>(example),
        "ClientCapabilities" => by_serde::<ClientCapabilities>(example),
        "ServerCapabilities" => by_serde::<ServerOffer>(example),
        "ModelPreferences" => by_serde::<ModelPreferences>(example),
        "CreateMessageRequestParams" => by_serde::<CreateMessage>(example),
        "SamplingMessage" => by_serde::<SamplingMessage>(example),
        "ToolUseContent" | "ToolResultContent" => by_serde::<SamplingContent>(example),
        "Root" => by_serde::<Root>(example),
        "Tool" => within("tools", Method::ListTools, example),
        "Resource" => within("resources", Method::ListResources, example),
        "CallToolRequestParams" => of_method("tools/call"),
        "CompleteRequestParams" => of_method("completion/complete"),
        "GetPromptRequestParams" => of_method("prompts/get"),
        "PaginatedRequestParams" => of_method("tools/list"),
        "CreateMessageRequest" | "ElicitRequest" | "ListRootsRequest" => question(example),
        "ElicitRequestFormParams" | "ElicitRequestURLParams" => {
            let request = json!({ "method": "elicitation/create", "params": example });
            question(&request)["params"].take()
        }
        "InputRequests" => questions(example),
        "CreateMessageResult" => answer(&InputRequest::CreateMessage(json!({})), example),
        "ListRootsResult" => answer(&InputRequest::ListRoots, example),
        "ElicitResult" => answer(&form(), example),
        "InputResponses" => json!({
            "github_login": answer(&form(), &example["github_login"]),
            "capital_of_france":
                answer(&InputRequest::CreateMessage(json!({})), &example["capital_of_france"]),
        }),
        "CancelledNotificationParams" => server_params("notifications/cancelled", example),
        "LoggingMessageNotificationParams" => server_params("notifications/message", example),
        "ProgressNotificationParams" => server_params("notifications/progress", example),
        "ResourceUpdatedNotificationParams" => {
            server_params("notifications/resources/updated", example)
        }
        "ParseError" | "InvalidParamsError" | "InternalError" | "MethodNotFoundError" => {
            let response = json!({ "jsonrpc": "2.0", "id": 1, "error": example });
            message(&response)["error"].take()
        }
        _ if definition.ends_with("Result") => result(kind_of(definition), example),
        _ if definition.ends_with("ResultResponse") => {
            let kind = kind_of(definition.trim_end_matches("Response"));
            let mut envelope = message(example);
            envelope["result"] = result(kind, &envelope["result"]);
            envelope
        }
        _ if example.get("jsonrpc").is_some() => message(example),
        _ => panic!("no type for {definition}"),
    }
}

fn by_serde<T: Serialize + DeserializeOwned>(example: &Value) -> Value {
    // Both from text and from a tree, of which serde makes different things.
    let of_tree: T = serde_json::from_value(example.clone()).expect("it fits its type");
    let of_text: T = serde_json::from_str(&example.to_string()).expect("it fits its type");
    let back = serde_json::to_value(of_text).expect("it serializes");
    assert_eq!(serde_json::to_value(of_tree).expect("it serializes"), back);
    back
}

/// One of a list.
fn within(list: &str, kind: Method, example: &Value) -> Value {
    result(kind, &json!({ list: [example] }))[list][0].take()
}

fn kind_of(definition: &str) -> Method {
    match definition {
        "CallToolResult" | "InputRequiredResult" => Method::CallTool,
        "CompleteResult" => Method::Complete,
        "DiscoverResult" => Method::Discover,
        "GetPromptResult" => Method::GetPrompt,
        "ListPromptsResult" => Method::ListPrompts,
        "ListResourceTemplatesResult" => Method::ListResourceTemplates,
        "ListResourcesResult" => Method::ListResources,
        "ListToolsResult" => Method::ListTools,
        "ReadResourceResult" => Method::ReadResource,
        "SubscriptionsListenResult" => Method::Listen,
        _ => panic!("nothing is answered with {definition}"),
    }
}

fn result(kind: Method, example: &Value) -> Value {
    let answered = decode_result(VERSION, kind, &raw(example)).expect("it is a result");
    match &answered.answer {
        Answer::Discover(discovered) => discovered_again(discovered, &answered),
        _ => written(VERSION, &answered).expect("a server can say it"),
    }
}

fn discovered_again(discovered: &Discovered, answered: &Answered) -> Value {
    let versions = discovered.supported_versions.iter();
    let mut again = json!({
        "resultType": "complete",
        "supportedVersions": versions.map(|it| it.as_str()).collect::<Vec<_>>(),
        "capabilities": discovered.offer,
        "ttlMs": discovered.cache.ttl_ms,
        "cacheScope": discovered.cache.scope,
        "_meta": { "io.modelcontextprotocol/serverInfo": answered.server_info },
    });
    if let Some(instructions) = &discovered.instructions {
        again["instructions"] = json!(instructions);
    }
    again
}

fn form() -> InputRequest {
    InputRequest::ElicitForm {
        message: String::new(),
        requested_schema: RawJson::EMPTY_OBJECT,
    }
}

fn questions(example: &Value) -> Value {
    let requests = decode_input_requests(VERSION, &raw(example)).expect("they are questions");
    for request in requests.values() {
        match request {
            InputRequest::ElicitForm {
                requested_schema, ..
            } => {
                let form = Form::of(requested_schema).expect("it is a form");
                assert!(!form.fields.is_empty());
                let back = serde_json::to_value(form).expect("forms serialize");
                assert_eq!(back, requested_schema.parse::<Value>().expect("it is JSON"));
            }
            InputRequest::CreateMessage(params) => {
                let typed = CreateMessage::of(params).expect("it is a message");
                assert_eq!(&typed.to_params().expect("messages serialize"), params);
            }
            InputRequest::ElicitUrl { .. } | InputRequest::ListRoots => {}
        }
    }
    value(&encode_input_requests(&requests))
}

fn question(example: &Value) -> Value {
    questions(&json!({ "key": example }))["key"].take()
}

fn answer(request: &InputRequest, example: &Value) -> Value {
    let response = InputResponse::of(request, &raw(example)).expect("it is an answer");
    value(&encode_input_response(VERSION, &response).expect("the revision has it"))
}

fn client_params(method: &str, example: &Value) -> Value {
    let params = raw(example);
    let meta = RequestMeta::of(&params).expect("its `_meta` is in order");
    let request = decode_request(VERSION, &everything(), method, &params).expect("it is a request");
    let info = &example["_meta"]["io.modelcontextprotocol/clientInfo"];
    let info: Option<Implementation> =
        serde_json::from_value(info.clone()).expect("it says who it is");
    let version = meta.protocol_version.expect("it says its version");
    assert_eq!(version.as_str(), VERSION.as_str());
    let meta = OutgoingMeta {
        client_info: info.map(Cow::Owned),
        capabilities: Cow::Owned(meta.client_capabilities.expect("it says what it can do")),
        log_level: meta.log_level,
        progress_token: meta.progress_token,
        ..OutgoingMeta::default()
    };
    let outgoing = encode_request(VERSION, &request, &meta).expect("the revision has it");
    assert_eq!(outgoing.method(), method);
    value(&outgoing.params)
}

fn server_params(method: &str, example: &Value) -> Value {
    let params = raw(example);
    let told = decode_server_notification(VERSION, method, &params)
        .expect("it fits")
        .expect("the revision has it");
    let back = encode_notification(VERSION, &told.notification, told.subscription.as_ref());
    assert_eq!(back.method, method);
    if let Some(notification @ ClientNotification::Cancelled { .. }) =
        decode_notification(method, &params)
    {
        // Clients say the same.
        let said = encode_client_notification(VERSION, &notification).expect("clients say it");
        assert_eq!(
            (said.method, value(&said.params)),
            (back.method, value(&back.params))
        );
    }
    value(&back.params)
}

/// A whole message, through the envelope, too.
fn message(example: &Value) -> Value {
    let frame = Bytes::from(example.to_string());
    let Payload::Single(Ok(message)) =
        jsonrpc_core::decode(&frame, Limits::default()).expect("it is JSON")
    else {
        panic!("one message: {example}");
    };
    let back = match message {
        Message::Request(request) => Message::Request(Request {
            params: again(&client_params(&request.method, &value(&request.params))),
            ..request
        }),
        Message::Notification(it) => Message::Notification(Notification {
            params: again(&server_params(&it.method, &value(&it.params))),
            ..it
        }),
        Message::Response(response) => {
            if let Err(error) = &response.outcome {
                error_is_understood(error);
            }
            Message::Response(Response { ..response })
        }
    };
    let mut out = BytesMut::new();
    jsonrpc_core::encode(&back, &mut out);
    serde_json::from_slice(&out).expect("what was encoded is JSON")
}

fn again(params: &Value) -> RawJson {
    raw(params)
}

/// An error's view says what its data say.
fn error_is_understood(error: &ErrorObject) {
    let data: BTreeMap<String, Value> = error
        .data
        .as_ref()
        .map(|data| data.parse().expect("it is an object"))
        .unwrap_or_default();
    match ServerError::of(VERSION, error) {
        ServerError::MissingClientCapability { required } => {
            assert_eq!(json!(required), data["requiredCapabilities"]);
        }
        ServerError::UnsupportedVersion {
            supported,
            requested,
        } => {
            let supported: Vec<_> = supported.iter().map(|it| it.as_str()).collect();
            assert_eq!(json!(supported), data["supported"]);
            assert_eq!(json!(requested), data["requested"]);
        }
        ServerError::Other(code) => panic!("{code} is an official error"),
        view => assert!(data.is_empty() || view == ServerError::MethodNotFound),
    }
}
