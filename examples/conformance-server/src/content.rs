//! Answers of every kind, and resources. Names and texts are the suite's.

use adapter_tools::{
    Arguments, Content, Executor, NoArguments, Tool, ToolCx, ToolError, ToolOutput,
};
use mcp_protocol::model::{ResourceContents, ResourceTemplate};
use mcp_server::StaticResources;
use serde_json::json;
use std::{future::Future, pin::Pin};

/// A red pixel.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// Words that an argument may be completed to.
pub(crate) const WORDS: [&str; 3] = ["paris", "park", "party"];
/// Silence: a header without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

pub(crate) fn tools() -> Vec<Tool> {
    vec![
        // The first one takes nothing and always succeeds: the suite calls it to see headers refused.
        says("test_simple_text", "Answers with text.", || {
            vec![Content::text("This is a simple text response for testing.")]
        }),
        says("test_image_content", "Answers with an image.", || {
            vec![Content::image(PNG, "image/png")]
        }),
        says("test_audio_content", "Answers with sound.", || {
            vec![Content::audio(WAV, "audio/wav")]
        }),
        says("test_embedded_resource", "Answers with a resource.", || {
            vec![Content::embedded_text(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )]
        }),
        says(
            "test_multiple_content_types",
            "Answers with text, an image and a resource.",
            || {
                vec![
                    Content::text("Multiple content types test:"),
                    Content::image(PNG, "image/png"),
                    Content::embedded_text(
                        "test://mixed-content-resource",
                        "application/json",
                        r#"{"test":"data","value":123}"#,
                    ),
                ]
            },
        ),
        Tool::native("test_error_handling", |_cx, _: NoArguments| async {
            Err::<String, _>(ToolError::failed(
                "This tool intentionally returns an error for testing",
            ))
        })
        .describe("Always fails."),
        Tool::new(
            "json_schema_2020_12_tool",
            schema_2020_12(),
            Says(|| vec![Content::text("ok")]),
        )
        .describe("Has a schema that uses what JSON Schema 2020-12 has."),
    ]
}

pub(crate) fn resources() -> StaticResources {
    StaticResources::new()
        .text(
            "test://static-text",
            "Static text",
            "text/plain",
            "This is the content of the static text resource.",
        )
        .bytes("test://static-binary", "Static binary", "image/png", &png())
        .text(
            "test://watched-resource",
            "Watched resource",
            "text/plain",
            "Watched.",
        )
        .template(
            ResourceTemplate {
                uri_template: "test://template/{id}/data".to_owned(),
                name: "Template".to_owned(),
                description: Some("Data by id.".to_owned()),
                mime_type: Some("application/json".to_owned()),
                ..ResourceTemplate::default()
            },
            |uri| {
                let id = uri
                    .strip_prefix("test://template/")?
                    .strip_suffix("/data")?;
                let data =
                    json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                Some(ResourceContents {
                    uri: uri.to_owned(),
                    mime_type: Some("application/json".to_owned()),
                    text: Some(data.to_string()),
                    blob: None,
                    meta: None,
                })
            },
        )
}

/// A tool that takes nothing and always says the same.
fn says(name: &'static str, description: &'static str, what: fn() -> Vec<Content>) -> Tool {
    let schema = json!({ "type": "object", "properties": {} });
    Tool::new(name, schema, Says(what)).describe(description)
}

struct Says(fn() -> Vec<Content>);

impl Executor for Says {
    fn execute<'a>(
        &'a self,
        _cx: ToolCx,
        _arguments: Arguments,
    ) -> Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send + 'a>> {
        Box::pin(async { Ok((self.0)().into()) })
    }
}

fn schema_2020_12() -> serde_json::Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {
                    "street": { "type": "string" },
                    "city": { "type": "string" }
                }
            }
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" }
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false
    })
}

fn png() -> Vec<u8> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.decode(PNG).expect("the constant is Base64")
}
