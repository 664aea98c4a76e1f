//! Questions of upstreams to the clients of calls.

use crate::{pins::cleaned_definition, text::Cleaner};
use adapter_tools::{Askable, FormSchema, Question};
use mcp_protocol::model::{ClientCapabilities, InputRequest};
use serde_json::{Value, value::RawValue};

/// A question of an upstream, cleaned of what nobody sees.
pub(super) fn question(request: InputRequest) -> Question {
    let mut cleaner = Cleaner::new(true);
    match request {
        InputRequest::ElicitForm {
            mut message,
            requested_schema,
        } => {
            cleaner.text(&mut message);
            Question::Form {
                message,
                schema: FormSchema::from(
                    requested_schema
                        .parse::<Box<RawValue>>()
                        .unwrap_or_default(),
                )
                .changed(cleaned_definition),
            }
        }
        InputRequest::ElicitUrl {
            mut message, url, ..
        } => {
            cleaner.text(&mut message);
            Question::Url { message, url }
        }
        InputRequest::CreateMessage(mut params) => {
            cleaner.value(&mut params);
            Question::Sample(params)
        }
        InputRequest::ListRoots => Question::Roots,
    }
}

/// A question that needs one of the `required` capabilities and cannot be put to a client.
pub(super) fn undeclared(required: &ClientCapabilities, askable: Askable) -> Option<Question> {
    let elicitation = required.elicitation.unwrap_or_default();
    let message = String::new();
    let questions = [
        (required.sampling.is_some(), Question::Sample(Value::Null)),
        (required.roots, Question::Roots),
        (
            elicitation.url,
            Question::Url {
                message: message.clone(),
                url: String::new(),
            },
        ),
        (
            elicitation.form,
            Question::Form {
                message,
                schema: Value::Null.into(),
            },
        ),
    ];
    let mut questions = questions.into_iter();
    let (_, question) =
        questions.find(|(is_required, question)| *is_required && !question.is_askable(askable))?;
    Some(question)
}
