//! Random values of the vocabulary. They are small: what breaks a codec is what is there, not how
//! much of it.

use jsonrpc_core::{Id, RawJson};
use mcp_protocol::{ProtocolVersion, model::*};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use crate::common::raw;

pub(crate) fn version() -> impl Strategy<Value = ProtocolVersion> {
    select(ProtocolVersion::ALL.as_slice())
}

pub(crate) fn text() -> BoxedStrategy<String> {
    prop_oneof![
        4 => "[a-z]{0,6}",
        1 => "\\PC{0,6}",
        1 => "[\\x00-\\x1f\"\\\\/]{0,4}",
    ]
    .boxed()
}

/// Written and read exactly, which serde_json does not promise of every number.
pub(crate) fn number() -> impl Strategy<Value = f64> {
    (-8000_i32..8000).prop_map(|eighths| f64::from(eighths) / 8.0)
}

pub(crate) fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        number().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(text(), inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

pub(crate) fn any_raw() -> impl Strategy<Value = RawJson> {
    json_value().prop_map(|value| raw(&value))
}

pub(crate) fn object() -> impl Strategy<Value = RawJson> {
    btree_map(text(), json_value(), 0..3).prop_map(|map| raw(&json!(map)))
}

pub(crate) fn objects_by_name() -> impl Strategy<Value = BTreeMap<String, Value>> {
    btree_map("[a-z]{1,4}/[a-z]{1,4}", Just(json!({ "a": 1 })), 0..2)
}

pub(crate) fn id() -> impl Strategy<Value = Id> {
    prop_oneof![
        any::<i64>().prop_map(Id::Number),
        text().prop_map(|text| Id::String(text.into())),
        "[1-9][0-9]{20,24}".prop_map(|digits| Id::BigNumber(digits.into())),
    ]
}

pub(crate) fn meta() -> impl Strategy<Value = ResultMeta> {
    btree_map("com\\.example/[a-c]", any_raw(), 0..3).prop_map(|entries| {
        let mut meta = ResultMeta::default();
        for (key, value) in entries {
            meta.insert_raw(key, value);
        }
        meta
    })
}

pub(crate) fn cache() -> impl Strategy<Value = CacheHint> {
    let scope = select(vec![CacheScope::Public, CacheScope::Private]);
    (any::<u64>(), scope).prop_map(|(ttl_ms, scope)| CacheHint { ttl_ms, scope })
}

pub(crate) fn icons() -> impl Strategy<Value = Vec<Icon>> {
    let theme = option::of(select(vec![IconTheme::Light, IconTheme::Dark]));
    let icon = (text(), option::of(text()), vec(text(), 0..2), theme).prop_map(
        |(src, mime_type, sizes, theme)| Icon {
            src,
            mime_type,
            sizes,
            theme,
        },
    );
    vec(icon, 0..2)
}

fn role() -> impl Strategy<Value = Role> {
    select(vec![Role::User, Role::Assistant])
}

pub(crate) fn annotations() -> impl Strategy<Value = Option<Annotations>> {
    let some = (vec(role(), 0..3), option::of(number()), option::of(text())).prop_map(
        |(audience, priority, last_modified)| Annotations {
            audience,
            priority,
            last_modified,
        },
    );
    // Annotations that say nothing are not written.
    option::of(some).prop_map(|it| it.filter(|it| *it != Annotations::default()))
}

pub(crate) fn implementation() -> impl Strategy<Value = Implementation> {
    let optional = || option::of(text());
    (text(), text(), optional(), optional(), optional(), icons()).prop_map(
        |(name, version, title, description, website_url, icons)| Implementation {
            name,
            version,
            title,
            description,
            website_url,
            icons,
        },
    )
}

pub(crate) fn resource() -> impl Strategy<Value = Resource> {
    let named = (
        text(),
        text(),
        option::of(text()),
        option::of(text()),
        option::of(text()),
    );
    (
        named,
        option::of(any::<u64>()),
        annotations(),
        icons(),
        meta(),
    )
        .prop_map(
            |((uri, name, title, description, mime_type), size, annotations, icons, meta)| {
                let annotations = annotations.unwrap_or_default();
                Resource {
                    uri,
                    name,
                    title,
                    description,
                    mime_type,
                    size,
                    last_modified: annotations.last_modified,
                    audience: annotations.audience,
                    priority: annotations.priority,
                    icons,
                    meta,
                }
            },
        )
}

pub(crate) fn template() -> impl Strategy<Value = ResourceTemplate> {
    (resource(), annotations()).prop_map(|(like, annotations)| ResourceTemplate {
        uri_template: like.uri,
        name: like.name,
        title: like.title,
        description: like.description,
        mime_type: like.mime_type,
        annotations,
        icons: like.icons,
        meta: like.meta,
    })
}

pub(crate) fn contents() -> impl Strategy<Value = ResourceContents> {
    (
        text(),
        option::of(text()),
        text(),
        any::<bool>(),
        option::of(object()),
    )
        .prop_map(
            |(uri, mime_type, content, is_text, meta)| ResourceContents {
                uri,
                mime_type,
                text: is_text.then(|| content.clone()),
                blob: (!is_text).then_some(content),
                meta,
            },
        )
}

pub(crate) fn content() -> impl Strategy<Value = Content> {
    (
        0..5,
        text(),
        text(),
        annotations(),
        meta(),
        resource(),
        contents(),
    )
        .prop_map(
            |(kind, data, mime_type, annotations, meta, link, resource)| {
                let annotations = annotations.map(Box::new);
                match kind {
                    0 => Content::Text {
                        text: data,
                        annotations,
                        meta,
                    },
                    1 => Content::Image {
                        data,
                        mime_type,
                        annotations,
                        meta,
                    },
                    2 => Content::Audio {
                        data,
                        mime_type,
                        annotations,
                        meta,
                    },
                    3 => Content::ResourceLink(Box::new(link)),
                    _ => Content::Resource {
                        resource,
                        annotations,
                        meta,
                    },
                }
            },
        )
}

pub(crate) fn tool() -> impl Strategy<Value = Tool> {
    let hint = || option::of(any::<bool>());
    let annotations = (option::of(text()), hint(), hint(), hint(), hint()).prop_map(
        |(title, read_only_hint, destructive_hint, idempotent_hint, open_world_hint)| {
            ToolAnnotations {
                title,
                read_only_hint,
                destructive_hint,
                idempotent_hint,
                open_world_hint,
            }
        },
    );
    let support = select(vec![
        TaskSupport::Forbidden,
        TaskSupport::Optional,
        TaskSupport::Required,
    ]);
    let schema = || {
        select(vec![
            raw(&json!({"type": "object"})),
            raw(&json!({"type": "array"})),
        ])
    };
    let texts = (text(), option::of(text()), option::of(text()));
    let schemas = (schema(), option::of(schema()));
    (
        texts,
        schemas,
        option::of(annotations),
        support,
        icons(),
        meta(),
    )
        .prop_map(
            |(
                (name, title, description),
                (input_schema, output_schema),
                annotations,
                task_support,
                icons,
                meta,
            )| {
                Tool {
                    name,
                    title,
                    description,
                    input_schema,
                    output_schema,
                    annotations,
                    task_support,
                    icons,
                    meta,
                }
            },
        )
}

pub(crate) fn prompt() -> impl Strategy<Value = Prompt> {
    let argument = (
        text(),
        option::of(text()),
        option::of(text()),
        any::<bool>(),
    )
        .prop_map(|(name, title, description, required)| PromptArgument {
            name,
            title,
            description,
            required,
        });
    (resource(), vec(argument, 0..3)).prop_map(|(like, arguments)| Prompt {
        name: like.name,
        title: like.title,
        description: like.description,
        arguments,
        icons: like.icons,
        meta: like.meta,
    })
}

pub(crate) fn prompt_message() -> impl Strategy<Value = PromptMessage> {
    (role(), content()).prop_map(|(role, content)| PromptMessage { role, content })
}

fn sampling_content() -> impl Strategy<Value = SamplingContent> {
    let said = content().prop_filter("content for models", |content| {
        !matches!(content, Content::ResourceLink(_) | Content::Resource { .. })
    });
    let asked = (text(), text(), object(), meta()).prop_map(|(id, name, input, meta)| {
        SamplingContent::ToolUse {
            id,
            name,
            input,
            meta,
        }
    });
    let answered = (
        text(),
        vec(content(), 0..2),
        option::of(any_raw()),
        any::<bool>(),
        meta(),
    )
        .prop_map(
            |(tool_use_id, content, structured_content, is_error, meta)| {
                SamplingContent::ToolResult {
                    tool_use_id,
                    content,
                    structured_content,
                    is_error,
                    meta,
                }
            },
        );
    prop_oneof![3 => said.prop_map(SamplingContent::Content), 1 => asked, 1 => answered]
}

fn create_message() -> impl Strategy<Value = CreateMessage> {
    let message =
        (role(), vec(sampling_content(), 0..3), meta()).prop_map(|(role, content, meta)| {
            SamplingMessage {
                role,
                content,
                meta,
            }
        });
    let preferences =
        (vec(option::of(text()), 0..2), option::of(number())).prop_map(|(hints, cost_priority)| {
            ModelPreferences {
                hints: hints.into_iter().map(|name| ModelHint { name }).collect(),
                cost_priority,
                ..ModelPreferences::default()
            }
        });
    let choice = select(vec![
        ToolChoiceMode::Auto,
        ToolChoiceMode::Required,
        ToolChoiceMode::None,
    ])
    .prop_map(|mode| ToolChoice { mode });
    let context = select(vec![
        IncludeContext::None,
        IncludeContext::ThisServer,
        IncludeContext::AllServers,
    ]);
    let how = (
        option::of(text()),
        option::of(context),
        option::of(number()),
        any::<u64>(),
    );
    let with = (
        vec(text(), 0..2),
        option::of(object()),
        vec(tool(), 0..2),
        option::of(choice),
    );
    (vec(message, 0..3), option::of(preferences), how, with).prop_map(
        |(messages, model_preferences, how, with)| CreateMessage {
            messages,
            model_preferences,
            system_prompt: how.0,
            include_context: how.1,
            temperature: how.2,
            max_tokens: how.3,
            stop_sequences: with.0,
            metadata: with.1,
            // A model's tools are not tasks.
            tools: with
                .2
                .into_iter()
                .map(|tool| Tool {
                    task_support: TaskSupport::Forbidden,
                    ..tool
                })
                .collect(),
            tool_choice: with.3,
            meta: ResultMeta::default(),
        },
    )
}

pub(crate) fn input_request() -> impl Strategy<Value = InputRequest> {
    let form = (text(), btree_map(text(), json_value(), 0..3)).prop_map(|(message, schema)| {
        InputRequest::ElicitForm {
            message,
            requested_schema: RawJson::from_value(&schema).expect("a tree of values serializes"),
        }
    });
    let url = (text(), text(), text()).prop_map(|(message, url, elicitation_id)| {
        InputRequest::ElicitUrl {
            message,
            url,
            elicitation_id,
        }
    });
    let sample = create_message().prop_map(|message| {
        let params = message.to_params().expect("messages serialize");
        assert_eq!(
            CreateMessage::of(&params).expect("it was written so"),
            message
        );
        InputRequest::CreateMessage(params)
    });
    prop_oneof![form, url, sample, Just(InputRequest::ListRoots)]
}

pub(crate) fn input_response() -> impl Strategy<Value = InputResponse> {
    let field = prop_oneof![
        text().prop_map(FormValue::Text),
        any::<bool>().prop_map(FormValue::Boolean),
        any::<i64>().prop_map(|number| FormValue::Number(number.into())),
        vec(text(), 0..3).prop_map(FormValue::Many),
    ];
    let action = select(vec![
        ElicitAction::Accept,
        ElicitAction::Decline,
        ElicitAction::Cancel,
    ]);
    let elicited = (action, option::of(btree_map(text(), field, 0..3)), meta()).prop_map(
        |(action, content, meta)| ElicitResult {
            action,
            content,
            meta,
        },
    );
    let sampled = (
        role(),
        vec(sampling_content(), 0..3),
        text(),
        option::of(text()),
        meta(),
    )
        .prop_map(
            |(role, content, model, stop_reason, meta)| CreateMessageResult {
                role,
                content,
                model,
                stop_reason,
                meta,
            },
        );
    let root =
        (text(), option::of(text()), meta()).prop_map(|(uri, name, meta)| Root { uri, name, meta });
    let roots = (vec(root, 0..3), meta()).prop_map(|(roots, meta)| ListRootsResult { roots, meta });
    prop_oneof![
        elicited.prop_map(InputResponse::Elicit),
        sampled.prop_map(InputResponse::CreateMessage),
        roots.prop_map(InputResponse::ListRoots),
    ]
}

pub(crate) fn task() -> impl Strategy<Value = Task> {
    let completed = (object(), any::<bool>()).prop_map(|(result, is_error)| TaskState::Completed {
        result: raw(&json!({ "content": [], "isError": is_error, "structuredContent": result })),
        is_error,
    });
    let state = prop_oneof![
        Just(TaskState::Working),
        Just(TaskState::Cancelled),
        object().prop_map(|requests| TaskState::InputRequired { requests }),
        completed,
        object().prop_map(|error| TaskState::Failed { error }),
    ];
    let times = (
        text(),
        text(),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
    );
    (text(), state, option::of(text()), times).prop_map(|(id, state, status_message, times)| Task {
        id,
        state,
        status_message,
        created_at: times.0,
        last_updated_at: times.1,
        ttl_ms: times.2,
        poll_interval_ms: times.3,
    })
}

pub(crate) fn filter() -> impl Strategy<Value = SubscriptionFilter> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (flags, vec(text(), 0..3), vec(text(), 0..3)).prop_map(
        |(flags, resource_subscriptions, task_ids)| SubscriptionFilter {
            tools_list_changed: flags.0,
            prompts_list_changed: flags.1,
            resources_list_changed: flags.2,
            resource_subscriptions,
            task_ids,
        },
    )
}

pub(crate) fn log_level() -> impl Strategy<Value = LoggingLevel> {
    select(vec![
        LoggingLevel::Debug,
        LoggingLevel::Notice,
        LoggingLevel::Emergency,
    ])
}

pub(crate) fn client_capabilities() -> impl Strategy<Value = ClientCapabilities> {
    let sampling = (any::<bool>(), any::<bool>())
        .prop_map(|(context, tools)| SamplingCapability { context, tools });
    // Neither of both means forms.
    let elicitation = select(vec![(true, false), (false, true), (true, true)])
        .prop_map(|(form, url)| ElicitationCapability { form, url });
    (
        select(vec![(false, false), (true, false), (true, true)]),
        option::of(sampling),
        option::of(elicitation),
        objects_by_name(),
        objects_by_name(),
    )
        .prop_map(|(roots, sampling, elicitation, extensions, experimental)| {
            ClientCapabilities {
                roots: roots.0,
                roots_list_changed: roots.1,
                sampling,
                elicitation,
                extensions,
                experimental,
            }
        })
}
