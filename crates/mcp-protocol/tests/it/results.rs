//! Clients read every result that a server writes.

use crate::{
    carried,
    common::{again, everything},
    vocabulary::*,
};
use jsonrpc_core::Id;
use mcp_protocol::{
    Encoder, Era, Method, ProtocolVersion,
    client::{Answer, ServerOffer, decode_result},
    model::*,
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
};

fn lists() -> impl Strategy<Value = (Method, ServerResult)> {
    let more = || option::of(text());
    prop_oneof![
        (vec(tool(), 0..3), more(), cache()).prop_map(|(tools, next_cursor, cache)| {
            let result = ListToolsResult {
                tools,
                next_cursor,
                cache,
            };
            (Method::ListTools, ServerResult::ListTools(result))
        }),
        (vec(prompt(), 0..3), more(), cache()).prop_map(|(prompts, next_cursor, cache)| {
            let result = ListPromptsResult {
                prompts,
                next_cursor,
                cache,
            };
            (Method::ListPrompts, ServerResult::ListPrompts(result))
        }),
        (vec(resource(), 0..3), more(), cache()).prop_map(|(resources, next_cursor, cache)| {
            let result = ListResourcesResult {
                resources,
                next_cursor,
                cache,
            };
            (Method::ListResources, ServerResult::ListResources(result))
        }),
        (vec(resource(), 0..3), more()).prop_map(|(resources, next_cursor)| {
            let result = ReadDirectoryResult {
                resources,
                next_cursor,
            };
            (Method::ReadDirectory, ServerResult::ReadDirectory(result))
        }),
        (vec(template(), 0..3), more(), cache()).prop_map(|(them, next_cursor, cache)| {
            let result = ListResourceTemplatesResult {
                resource_templates: them,
                next_cursor,
                cache,
            };
            (
                Method::ListResourceTemplates,
                ServerResult::ListResourceTemplates(result),
            )
        }),
        (vec(task(), 0..3), more()).prop_map(|(tasks, next_cursor)| {
            let result = ListTasksResult { tasks, next_cursor };
            (Method::ListTasks, ServerResult::ListTasks(result))
        }),
        (vec(skill(), 0..3), more(), cache()).prop_map(|(skills, next_cursor, cache)| {
            let result = ListSkillsResult {
                skills,
                next_cursor,
                cache,
            };
            (Method::ListSkills, ServerResult::ListSkills(result))
        }),
        (skill(), cache()).prop_map(|(skill, cache)| {
            (
                Method::GetSkill,
                ServerResult::GetSkill(GetSkillResult { skill, cache }),
            )
        }),
    ]
}

fn skill() -> impl Strategy<Value = SkillEntry> {
    let file = (text(), text(), any::<u64>()).prop_map(|(uri, digest, size)| SkillResource {
        uri,
        digest,
        size,
    });
    (text(), object(), vec(file, 0..3)).prop_map(|(uri, frontmatter, resources)| SkillEntry {
        uri,
        frontmatter,
        resources,
    })
}

fn answers() -> impl Strategy<Value = (Method, ServerResult)> {
    let called = (
        vec(content(), 0..3),
        option::of(any_raw()),
        any::<bool>(),
        meta(),
    )
        .prop_map(|(content, structured_content, is_error, meta)| {
            ServerResult::CallTool(CallToolResult {
                content,
                structured_content,
                is_error,
                meta,
            })
        });
    let completed = (vec(text(), 0..4), option::of(any::<u64>()), any::<bool>());
    let asked = (btree_map(text(), input_request(), 0..3), option::of(text())).prop_map(
        |(requests, state): (std::collections::BTreeMap<_, _>, Option<String>)| {
            // One of them at least.
            let state = state.or_else(|| requests.is_empty().then(String::new));
            ServerResult::InputRequired(InputRequired { requests, state })
        },
    );
    let asks = proptest::sample::select(vec![
        Method::CallTool,
        Method::GetPrompt,
        Method::ReadResource,
    ]);
    let empty = proptest::sample::select(vec![
        Method::Ping,
        Method::Subscribe,
        Method::Unsubscribe,
        Method::SetLevel,
        Method::UpdateTask,
    ]);
    prop_oneof![
        3 => called.prop_map(|result| (Method::CallTool, result)),
        2 => (option::of(text()), vec(prompt_message(), 0..3), meta()).prop_map(
            |(description, messages, meta)| {
                let result = GetPromptResult { description, messages, meta };
                (Method::GetPrompt, ServerResult::GetPrompt(result))
            }
        ),
        2 => (vec(contents(), 0..3), meta(), cache()).prop_map(|(contents, meta, cache)| {
            let result = ReadResourceResult { contents, meta, cache };
            (Method::ReadResource, ServerResult::ReadResource(result))
        }),
        1 => completed.prop_map(|(values, total, has_more)| {
            (Method::Complete, ServerResult::Complete(Completion { values, total, has_more }))
        }),
        2 => (asks, asked),
        1 => task().prop_map(|task| (Method::CallTool, ServerResult::CreateTask(Box::new(task)))),
        1 => task().prop_map(|task| (Method::GetTask, ServerResult::Task(Box::new(task)))),
        1 => empty.prop_map(|kind| (kind, ServerResult::Empty)),
    ]
}

/// Returns true if a server can send this result: a client is not given what it has not asked for.
fn can_be(version: ProtocolVersion, kind: Method, result: &ServerResult) -> bool {
    kind.exists_in(version)
        && match result {
            ServerResult::InputRequired(_) => version.era() == Era::Modern,
            ServerResult::CreateTask(_) => Method::GetTask.exists_in(version),
            _ => true,
        }
}

/// The entries of its own that a result has.
fn meta_of(result: &ServerResult) -> Option<&ResultMeta> {
    match result {
        ServerResult::CallTool(it) => Some(&it.meta),
        ServerResult::GetPrompt(it) => Some(&it.meta),
        ServerResult::ReadResource(it) => Some(&it.meta),
        _ => None,
    }
}

proptest! {
    #[test]
    fn a_client_reads_what_a_server_has_written(
        version in version(),
        (kind, result) in prop_oneof![lists(), answers()],
        info in implementation(),
    ) {
        prop_assume!(can_be(version, kind, &result));
        let written = Encoder::new(&info).result(version, &result).unwrap();
        let read = decode_result(version, kind, &written).unwrap();
        prop_assert_eq!(again(&read), Some(carried::result(version, result.clone())));
        let modern = version.era() == Era::Modern;
        prop_assert_eq!(&read.server_info, &modern.then_some(info));
        if let Some(meta) = meta_of(&result) {
            prop_assert_eq!(&read.meta, meta);
        }
    }

    #[test]
    fn a_client_reads_what_a_server_offers(
        version in version(),
        info in implementation(),
        instructions in option::of(text()),
        cache in cache(),
        experimental in objects_by_name(),
    ) {
        let capabilities = ServerCapabilities { experimental, ..everything() };
        let shaped = serde_json::to_value(capabilities.shaped_for(version)).unwrap();
        let expected: ServerOffer = serde_json::from_value(shaped).unwrap();
        prop_assert!(expected.tools.is_some_and(|tools| tools.list_changed));
        prop_assert_eq!(expected.has_legacy_tasks(), version == ProtocolVersion::V2025_11_25);
        let (kind, result) = match version.era() {
            Era::Legacy => (Method::Initialize, ServerResult::Initialize(InitializeResult {
                protocol_version: version.as_str(),
                capabilities,
                instructions: instructions.clone(),
            })),
            Era::Modern => (Method::Discover, ServerResult::Discover(DiscoverResult {
                capabilities,
                instructions: instructions.clone(),
                cache,
            })),
        };
        let written = Encoder::new(&info).result(version, &result).unwrap();
        match decode_result(version, kind, &written).unwrap().answer {
            Answer::Initialize(read) => {
                prop_assert_eq!(read.protocol_version.as_str(), version.as_str());
                prop_assert_eq!(read.offer, expected);
                prop_assert_eq!(read.server_info, Some(carried::implementation(version, info)));
                prop_assert_eq!(read.instructions, instructions);
            }
            Answer::Discover(read) => {
                prop_assert_eq!(read.supported_versions, [version.as_str().into()]);
                prop_assert_eq!(read.offer, expected);
                prop_assert_eq!(read.instructions, instructions);
                prop_assert_eq!(read.cache, cache);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn a_client_knows_which_subscription_has_ended(id in id()) {
        let written = Encoder::anonymous().listen_ended(&id);
        let read = decode_result(ProtocolVersion::NEWEST, Method::Listen, &written).unwrap();
        prop_assert_eq!(read.answer, Answer::Empty);
        prop_assert_eq!(read.subscription, Some::<Id>(id));
    }
}
