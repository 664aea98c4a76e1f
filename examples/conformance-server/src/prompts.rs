//! Prompts, and how their arguments may go on.

use crate::content::{PNG, WORDS};
use adapter_tools::{Elicited, Needed};
use mcp_protocol::model::{
    CompletionReference, Content, GetPromptResult, Prompt, PromptArgument, PromptMessage,
    ResourceContents, Role,
};
use mcp_server::{PromptCx, PromptFailure, StaticPrompts};
use serde_json::json;

/// All prompts, and one more if the list is to be another one.
pub(crate) fn prompts(with_another: bool) -> StaticPrompts {
    let prompts = StaticPrompts::new()
        .prompt(
            described("test_simple_prompt", "Says one thing.", &[]),
            |_| Ok(user([text("This is a simple prompt for testing.")])),
        )
        .prompt(
            described(
                "test_prompt_with_arguments",
                "Says its arguments.",
                &[
                    ("arg1", "First test argument"),
                    ("arg2", "Second test argument"),
                ],
            ),
            |cx| {
                let [first, second] = ["arg1", "arg2"].map(|name| argument(cx, name));
                let said = format!("Prompt with arguments: arg1='{first}', arg2='{second}'");
                Ok(user([text(said)]))
            },
        )
        .complete(
            CompletionReference::Prompt {
                name: "test_prompt_with_arguments".to_owned(),
            },
            "arg1",
            |asked| {
                let words = WORDS.iter().filter(|word| word.starts_with(&asked.value));
                words.map(|word| (*word).to_owned()).collect()
            },
        )
        .prompt(
            described(
                "test_prompt_with_embedded_resource",
                "Has a resource in it.",
                &[("resourceUri", "URI of the resource to embed")],
            ),
            |cx| {
                let resource = ResourceContents {
                    uri: argument(cx, "resourceUri").to_owned(),
                    mime_type: Some("text/plain".to_owned()),
                    text: Some("Embedded resource content for testing.".to_owned()),
                    blob: None,
                    meta: None,
                };
                Ok(user([
                    Content::resource(resource),
                    text("Please process the embedded resource above."),
                ]))
            },
        )
        .prompt(
            described("test_prompt_with_image", "Has an image in it.", &[]),
            |_| {
                let image = Content::image(PNG, "image/png");
                Ok(user([image, text("Please analyze the image above.")]))
            },
        )
        .prompt(
            described(
                "test_input_required_result_prompt",
                "Asks for its context first.",
                &[],
            ),
            ask_for_context,
        );
    if !with_another {
        return prompts;
    }
    let another = described(
        "test_another_prompt",
        "Is there only after every other change.",
        &[],
    );
    prompts.prompt(another, |_| Ok(user([text("Here today.")])))
}

/// A prompt asks as a tool does: it is filled in again once there is an answer.
fn ask_for_context(cx: &PromptCx) -> Result<GetPromptResult, PromptFailure> {
    let asked = Needed::form(
        "user_context",
        "What context should the prompt use?",
        json!({
            "type": "object",
            "properties": { "context": { "type": "string" } },
            "required": ["context"]
        }),
    );
    match cx.answers.elicited("user_context", &asked) {
        Some(Elicited::Accepted(form)) => {
            let said = format!("Use this context: {}", form["context"]);
            Ok(user([text(said)]))
        }
        Some(Elicited::Declined | Elicited::Cancelled) => {
            Ok(user([text("There is no context to use.")]))
        }
        None => Err(PromptFailure::NeedsInput(asked)),
    }
}

/// A required argument is there when a prompt is filled in.
fn argument<'a>(cx: &'a PromptCx, name: &str) -> &'a str {
    cx.arguments.get(name).map_or("", String::as_str)
}

fn described(name: &str, description: &str, required: &[(&str, &str)]) -> Prompt {
    let arguments = required.iter().map(|(name, description)| PromptArgument {
        name: (*name).to_owned(),
        description: Some((*description).to_owned()),
        required: true,
        ..PromptArgument::default()
    });
    Prompt {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        arguments: arguments.collect(),
        ..Prompt::default()
    }
}

fn text(text: impl Into<String>) -> Content {
    Content::text(text)
}

fn user<const N: usize>(said: [Content; N]) -> GetPromptResult {
    let messages = said.map(|content| PromptMessage {
        role: Role::User,
        content,
    });
    GetPromptResult {
        messages: messages.into(),
        ..GetPromptResult::default()
    }
}
