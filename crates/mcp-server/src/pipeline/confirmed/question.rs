//! The question whether a call may be made, and the answer to it.

use adapter_tools::{Answers, Elicited, Needed};
use serde_json::{Value, json};
use std::fmt::Write;

/// Under which key it is asked. Tools choose the keys of their own questions; one that chose this
/// would ask after the confirmation, and so never at the same time.
pub(crate) const KEY: &str = "io.owlclaw/confirm";

/// The call to be confirmed.
pub(crate) struct Question<'a> {
    /// The capability, as `tool/NAME`.
    pub(crate) capability: &'a str,
    /// JSON text for people, whole ([`redaction::folded`]).
    pub(crate) arguments: &'a str,
    /// The expected cost, in words; `None` if nothing.
    pub(crate) cost: Option<String>,
    /// Risks of the call, in words.
    pub(crate) risks: &'a [&'static str],
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Yes.
    Yes,
    /// No.
    No,
    /// The form was sent, and its field does not say yes.
    NotYes,
    /// The form was closed without an answer.
    Nothing,
}

impl Question<'_> {
    /// The text of the question, for people.
    pub(crate) fn message(&self) -> String {
        let (kind, name) = self
            .capability
            .split_once('/')
            .unwrap_or(("", self.capability));
        let mut message = format!("Allow this call of the {kind} `{}`?", shown(name));
        // Nothing in it looks like a line of ours: it is one line, whatever is in it.
        let _ = write!(message, "\nArguments: {}", self.arguments);
        if let Some(cost) = &self.cost {
            let _ = write!(message, "\nExpected cost: {cost}");
        }
        if !self.risks.is_empty() {
            let _ = write!(message, "\nRisk: {}", self.risks.join(", "));
        }
        message
    }

    /// The form.
    pub(crate) fn form(&self) -> Needed {
        let schema = json!({
            "type": "object",
            "properties": { "confirm": {
                "type": "boolean",
                "title": "Allow it, this once",
                "default": false,
            }},
            "required": ["confirm"],
        });
        Needed::form(KEY, self.message(), schema)
    }
}

/// The answer of the client's user; `None` if there is none that makes sense.
pub(crate) fn said(answers: &Answers) -> Option<Said> {
    // What does not fit the form is no yes, which is more than that there is no answer.
    let anything = Needed::form(KEY, "", json!({ "type": "object" }));
    Some(match answers.elicited(KEY, &anything)? {
        // Accepting a form is sending it; what it says is in its one field.
        Elicited::Accepted(content) => match content.get("confirm") {
            // More than was asked for is an answer to something else.
            Some(Value::Bool(true)) if content.len() == 1 => Said::Yes,
            _ => Said::NotYes,
        },
        Elicited::Declined => Said::No,
        Elicited::Cancelled => Said::Nothing,
    })
}

/// A name, with nothing in it that is not seen or changes how the rest is seen.
fn shown(name: &str) -> String {
    name.replace(redaction::is_misleading, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn question(arguments: &str) -> Question<'_> {
        Question {
            capability: "tool/transfer",
            arguments,
            cost: Some("5".to_owned()),
            risks: &["mutating", "financial"],
        }
    }

    #[test]
    fn the_message_shows_what_is_to_be_judged_and_nothing_that_misleads() {
        assert_eq!(
            question(r#"{"to":"anna"}"#).message(),
            "Allow this call of the tool `transfer`?\nArguments: {\"to\":\"anna\"}\n\
             Expected cost: 5\nRisk: mutating, financial"
        );
        let tricky = Question {
            capability: "tool/x\u{202e}\ny",
            ..question("{}")
        };
        let message = tricky.message();
        assert!(message.starts_with("Allow this call of the tool `x\u{fffd}\u{fffd}y`?\nArg"));
    }

    #[test]
    fn only_an_explicit_yes_is_one() {
        let with = |json: &str| Answers {
            responses: [(
                KEY.to_owned(),
                RawValue::from_string(json.to_owned()).unwrap(),
            )]
            .into(),
            state: None,
        };
        for (answer, means) in [
            (
                r#"{"action":"accept","content":{"confirm":true}}"#,
                Some(Said::Yes),
            ),
            (
                r#"{"action":"accept","content":{"confirm":"true"}}"#,
                Some(Said::NotYes),
            ),
            (
                r#"{"action":"accept","content":{"confirm":1}}"#,
                Some(Said::NotYes),
            ),
            (
                r#"{"action":"accept","content":{"confirm":true,"x":1}}"#,
                Some(Said::NotYes),
            ),
            (
                r#"{"action":"accept","content":{"confirm":false}}"#,
                Some(Said::NotYes),
            ),
            (r#"{"action":"accept","content":{}}"#, Some(Said::NotYes)),
            (r#"{"action":"accept"}"#, Some(Said::NotYes)),
            (
                r#"{"action":"decline","content":{"confirm":true}}"#,
                Some(Said::No),
            ),
            (r#"{"action":"cancel"}"#, Some(Said::Nothing)),
            (r#"{"content":{"confirm":true}}"#, None),
            (r#"{"action":"maybe"}"#, None),
            ("true", None),
        ] {
            assert_eq!(said(&with(answer)), means, "{answer}");
        }
        assert_eq!(said(&Answers::default()), None);
    }
}
