//! Servers read every request that a client writes.

use crate::{carried, common::everything, vocabulary::*};
use mcp_protocol::{
    Era, Method, ProtocolVersion,
    client::{EncodeError, OutgoingMeta, encode_request},
    decode_request,
    model::*,
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
};
use std::borrow::Cow;

fn retry() -> impl Strategy<Value = InputRetry> {
    (
        btree_map(text(), object(), 0..2),
        option::weighted(0.2, text()),
    )
        .prop_map(|(responses, state)| InputRetry { responses, state })
}

/// Mostly none, for most revisions have none.
fn seldom_retry() -> impl Strategy<Value = InputRetry> {
    prop_oneof![2 => Just(InputRetry::default()), 1 => retry()]
}

fn page() -> impl Strategy<Value = Page> {
    option::of(text()).prop_map(|cursor| Page { cursor })
}

fn request() -> impl Strategy<Value = ClientRequest> {
    let task = option::weighted(0.2, option::of(any::<u64>()))
        .prop_map(|task| task.map(|ttl_ms| TaskRequest { ttl_ms }));
    let call =
        (text(), object(), seldom_retry(), task).prop_map(|(name, arguments, retry, task)| {
            ClientRequest::CallTool(CallTool {
                name,
                arguments,
                retry,
                task,
                at_most: None,
            })
        });
    let initialize = (text(), client_capabilities(), implementation()).prop_map(
        |(protocol_version, capabilities, client_info)| {
            ClientRequest::Initialize(Box::new(Initialize {
                protocol_version,
                capabilities,
                client_info,
            }))
        },
    );
    let optional = || option::of(text());
    let resources = (optional(), optional(), optional(), optional()).prop_map(
        |(cursor, category, tag, uri)| {
            ClientRequest::ListResources(ListResources {
                cursor,
                category,
                tag,
                uri,
            })
        },
    );
    let range = (any::<u64>(), option::of(any::<u64>()))
        .prop_map(|(offset, length)| ByteRange { offset, length });
    let read = (text(), option::of(range), optional(), seldom_retry()).prop_map(
        |(uri, range, if_none_match, retry)| {
            ClientRequest::ReadResource(ReadResource {
                uri,
                range,
                if_none_match,
                retry,
            })
        },
    );
    let prompt = (text(), btree_map(text(), text(), 0..3), seldom_retry()).prop_map(
        |(name, arguments, retry)| {
            ClientRequest::GetPrompt(GetPrompt {
                name,
                arguments,
                retry,
            })
        },
    );
    let reference = prop_oneof![
        text().prop_map(|name| CompletionReference::Prompt { name }),
        text().prop_map(|uri| CompletionReference::Resource { uri }),
    ];
    let complete = (reference, text(), text(), btree_map(text(), text(), 0..2)).prop_map(
        |(reference, argument, value, context)| {
            ClientRequest::Complete(Complete {
                reference,
                argument,
                value,
                context,
            })
        },
    );
    let update = (text(), retry()).prop_map(|(id, answers)| {
        let answers = InputRetry {
            state: None,
            ..answers
        };
        ClientRequest::UpdateTask(UpdateTask { id, answers })
    });
    let directory = (text(), optional())
        .prop_map(|(uri, cursor)| ClientRequest::ReadDirectory(ReadDirectory { uri, cursor }));
    let of_text = (text(), 0..6).prop_map(|(text, which)| match which {
        0 => ClientRequest::Subscribe(text),
        1 => ClientRequest::Unsubscribe(text),
        2 => ClientRequest::GetSkill(text),
        3 => ClientRequest::GetTask(text),
        4 => ClientRequest::CancelTask(text),
        _ => ClientRequest::AwaitTask(text),
    });
    let of_page = (page(), 0..5).prop_map(|(page, which)| match which {
        0 => ClientRequest::ListTools(page),
        1 => ClientRequest::ListResourceTemplates(page),
        2 => ClientRequest::ListSkills(page),
        3 => ClientRequest::ListPrompts(page),
        _ => ClientRequest::ListTasks(page),
    });
    prop_oneof![
        3 => call,
        1 => initialize,
        1 => resources,
        2 => read,
        2 => prompt,
        1 => complete,
        1 => update,
        1 => directory,
        2 => of_text,
        2 => of_page,
        1 => log_level().prop_map(ClientRequest::SetLevel),
        1 => filter().prop_map(ClientRequest::Listen),
        1 => Just(ClientRequest::Discover),
        1 => Just(ClientRequest::Ping),
    ]
}

/// As `version` has it; `None` if it does not.
fn carried(version: ProtocolVersion, mut request: ClientRequest) -> Option<ClientRequest> {
    let retry = match &request {
        ClientRequest::CallTool(it) => it.retry.clone(),
        ClientRequest::GetPrompt(it) => it.retry.clone(),
        ClientRequest::ReadResource(it) => it.retry.clone(),
        _ => InputRetry::default(),
    };
    let legacy = version.era() == Era::Legacy;
    if (legacy && !retry.is_empty()) || !Method::of(&request).exists_in(version) {
        return None;
    }
    match &mut request {
        ClientRequest::CallTool(CallTool { task: Some(_), .. })
            if version != ProtocolVersion::V2025_11_25 =>
        {
            return None;
        }
        ClientRequest::Complete(complete) if version < ProtocolVersion::V2025_06_18 => {
            complete.context.clear();
        }
        ClientRequest::Initialize(it) => {
            it.capabilities = carried::capabilities(version, it.capabilities.clone());
            it.client_info = carried::implementation(version, it.client_info.clone());
        }
        _ => {}
    }
    Some(request)
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn outgoing_meta() -> impl Strategy<Value = OutgoingMeta<'static>> {
    (
        option::of(implementation()),
        client_capabilities(),
        option::of(log_level()),
        option::of(id()),
        vec((text(), any_raw()), 0..2),
    )
        .prop_map(
            |(client_info, capabilities, log_level, progress_token, others)| {
                let mut entries = ResultMeta::default();
                for (key, value) in others {
                    entries.insert_raw(format!("com.example/{key}"), value);
                }
                entries.insert("traceparent", TRACE);
                // What the caller may not say twice.
                entries.insert("progressToken", &[7]);
                entries.insert("io.modelcontextprotocol/protocolVersion", "v999");
                OutgoingMeta {
                    client_info: client_info.map(Cow::Owned),
                    capabilities: Cow::Owned(capabilities),
                    log_level,
                    progress_token,
                    entries: Cow::Owned(entries),
                }
            },
        )
}

proptest! {
    #[test]
    fn a_server_reads_what_a_client_has_asked(
        version in version(),
        request in request(),
        meta in outgoing_meta(),
    ) {
        let Some(expected) = carried(version, request.clone()) else {
            let refused = encode_request(version, &request, &meta);
            let refused = matches!(refused, Err(EncodeError::NotInRevision { .. }));
            prop_assert!(refused);
            return Ok(());
        };
        let written = encode_request(version, &request, &meta).unwrap();
        let read = decode_request(version, &everything(), written.method(), &written.params);
        prop_assert_eq!(read.unwrap(), expected);

        let read = RequestMeta::of(&written.params).unwrap();
        prop_assert_eq!(read.progress_token, meta.progress_token);
        let trace = read.trace.map(|it| it.traceparent());
        prop_assert_eq!(trace.as_deref(), Some(TRACE));
        let modern = version.era() == Era::Modern;
        prop_assert_eq!(
            read.protocol_version.map(|it| it.as_str().to_owned()),
            modern.then(|| version.as_str().to_owned())
        );
        let capabilities = carried::capabilities(version, meta.capabilities.into_owned());
        prop_assert_eq!(read.client_capabilities, modern.then_some(capabilities));
        prop_assert_eq!(read.log_level, meta.log_level.filter(|_| modern));
    }
}

#[test]
fn a_request_is_written_by_the_name_it_is_read_by() {
    for kind in Method::ALL {
        let versions = ProtocolVersion::ALL.map(|version| kind.exists_in(version));
        assert!(versions.contains(&true), "{kind:?} is of no revision");
    }
}
