//! Outcome of a call.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::exact::{self, Members};
use config::printable;
use server::Failure;
use server::json_text;

/// Member of `_meta` with the code and reason of a refusal.
const TOLD: &str = "io.owlclaw/error";

/// A response of JSON-RPC: its result, or its error.
#[derive(Debug)]
pub(crate) struct Told {
    /// For display. A number may have lost digits.
    value: Value,
    /// `result` or `error`, as it was written.
    members: Members,
}

impl Told {
    /// Reads a response.
    ///
    /// # Errors
    ///
    /// When `response` is none.
    pub(crate) fn of(response: &str) -> Result<Self, Failure> {
        let value = exact::value(response)?;
        let mut members: Members = serde_json::from_str(response)?;
        let has_result = members.contains_key("result");
        members.retain(|name, _| match has_result {
            true => name == "result",
            false => name == "error",
        });
        match members.is_empty() {
            true => Err(format!("this is no answer to a call: {}", json_text(response)).into()),
            false => Ok(Self { value, members }),
        }
    }

    /// The response with this result.
    ///
    /// # Errors
    ///
    /// When the result is no JSON.
    pub(crate) fn result_of(result: &impl serde::Serialize) -> Result<Self, Failure> {
        let result = serde_json::to_string(result)?;
        Self::of(&format!("{{\"result\":{result}}}"))
    }

    /// The result, if it is one.
    pub(crate) fn result(&self) -> Option<&Value> {
        self.value.get("result")
    }

    /// The result or the error, with its name in front.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(&self.members).unwrap_or_default()
    }
}

/// The answer to a call.
#[derive(Debug)]
pub struct Answer {
    told: Told,
    /// Advice of ours on a failure.
    hint: Option<String>,
}

impl Answer {
    pub(crate) fn of(told: Told) -> Self {
        Self { told, hint: None }
    }

    /// The answer with advice on its failure.
    #[must_use]
    pub fn with_hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    /// Returns true if the call was made, and its tool succeeded.
    pub fn is_success(&self) -> bool {
        self.told
            .result()
            .is_some_and(|result| result["isError"] != true && !is_question(result))
    }

    /// The result or the error as JSON, with its name in front, and the advice. Numbers are as they were sent.
    pub fn json(&self) -> String {
        let mut members = self.told.members.clone();
        let hint = self
            .hint
            .as_ref()
            .and_then(|hint| serde_json::value::to_raw_value(hint).ok());
        members.extend(hint.map(|hint| ("hint".to_owned(), hint)));
        serde_json::to_string(&members).unwrap_or_default()
    }

    /// The tool's text, or the reason why there is none, as lines.
    pub fn text(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}\nhint: {}", self.plain_text(), printable(hint)),
            None => self.plain_text(),
        }
    }

    fn plain_text(&self) -> String {
        let Some(result) = self.told.result() else {
            let error = &self.told.value["error"];
            let message = error["message"].as_str().unwrap_or("no message");
            return failure(printable(message), &error["code"], &error["data"]);
        };
        if is_question(result) {
            return "the tool asks for more than its arguments, which only a client with a user \
                    can answer"
                .to_owned();
        }
        let said = said(result, &self.told.members["result"]);
        let told = &result["_meta"][TOLD];
        match told["reason"].is_string() {
            true => failure(said, &told["code"], told),
            false => said,
        }
    }
}

/// Text blocks of a result, which is `written` so.
fn said(result: &Value, written: &RawValue) -> String {
    let content = result["content"].as_array().cloned().unwrap_or_default();
    let structured = &result["structuredContent"];
    // Most tools say the same twice, for clients that know only text.
    if !structured.is_null() && content.iter().all(|part| says_the_same(part, structured)) {
        let members: Members = serde_json::from_str(written.get()).unwrap_or_default();
        let structured = members.get("structuredContent");
        return json_text(&exact::indented(structured.map_or("", |it| it.get())));
    }
    let parts = content.iter().map(shown);
    parts.collect::<Vec<_>>().join("\n")
}

/// Failure with its code and its details.
fn failure(message: String, code: &Value, data: &Value) -> String {
    let mut lines = vec![format!("{message} ({})", json_text(&code.to_string()))];
    if let Some(reason) = data["reason"].as_str() {
        lines.push(format!("reason: {}", printable(reason)));
    }
    if let Some(seconds) = data["retry_after"].as_f64() {
        lines.push(format!("hint: try again in {seconds} s"));
    }
    for violation in data["violations"].as_array().into_iter().flatten() {
        lines.push(format!("  {}", violation_text(violation)));
    }
    if let Some(hint) = data["hint"].as_str() {
        lines.push(format!("hint: {}", printable(hint)));
    }
    if let Some(how) = data["approval"]["how"].as_str() {
        lines.push(format!("hint: {}", printable(how)));
    }
    lines.join("\n")
}

/// A result that asks its client something.
fn is_question(result: &Value) -> bool {
    result["resultType"] == "input_required" || result["resultType"] == "inputRequired"
}

fn violation_text(violation: &Value) -> String {
    match violation.as_str() {
        Some(text) => printable(text),
        None => json_text(&violation.to_string()),
    }
}

fn says_the_same(part: &Value, structured: &Value) -> bool {
    let text = part["text"].as_str();
    text.is_some_and(|text| exact::value(text).is_ok_and(|it| it == *structured))
}

/// Part of a result for display. Line ends of a text stay; all other control characters are
/// removed.
pub(crate) fn shown(part: &Value) -> String {
    let text = part["text"].as_str().or(part["resource"]["text"].as_str());
    match text {
        Some(text) => text.lines().map(printable).collect::<Vec<_>>().join("\n"),
        None => {
            let kind = part["type"].as_str().unwrap_or("part");
            let about = part["mimeType"].as_str().or(part["uri"].as_str());
            printable(&format!("({kind} {})", about.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(result: Value) -> Answer {
        response(json!({"jsonrpc": "2.0", "id": 1, "result": result}))
    }

    fn response(response: Value) -> Answer {
        Answer::of(Told::of(&response.to_string()).unwrap())
    }

    #[test]
    fn numbers_keep_their_digits() {
        let result =
            r#"{"content":[],"structuredContent":{"n":123456789012345678901234567890,"x":1e400}}"#;
        let told = Told::of(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)).unwrap();
        let answer = Answer::of(told);
        assert_eq!(answer.json(), format!(r#"{{"result":{result}}}"#));
        assert_eq!(
            answer.text(),
            "{\n  \"n\": 123456789012345678901234567890,\n  \"x\": 1e400\n}"
        );
    }

    #[test]
    fn what_a_tool_says_is_shown_once_and_harmlessly() {
        let twice = answer(json!({
            "content": [{"type": "text", "text": "{\"count\":1}"}],
            "structuredContent": {"count": 1},
        }));
        assert_eq!(twice.text(), "{\n  \"count\": 1\n}");
        let parts = answer(json!({"content": [
            {"type": "text", "text": "one\n\u{1b}[2Jtwo"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        ]}));
        assert_eq!(parts.text(), "one\n\u{fffd}[2Jtwo\n(image image/png)");
        // JSON can say the same without the characters themselves.
        let structured = answer(json!({
            "content": [],
            "structuredContent": {"a": "\u{1b}[2J\u{202e}b"},
        }));
        assert_eq!(structured.text(), "{\n  \"a\": \"\\u001b[2J\\u202eb\"\n}");
        let error = response(json!({"error": {
            "code": "\u{9b}2J",
            "message": "no\u{1b}[2J",
            "data": {"violations": ["\u{202e}a", {"at": "\u{202e}b"}]},
        }}));
        assert_eq!(
            error.text(),
            "no\u{fffd}[2J (\"\\u009b2J\")\n  \u{fffd}a\n  {\"at\":\"\\u202eb\"}"
        );
        assert!(twice.is_success() && parts.is_success());
    }

    #[test]
    fn a_call_that_came_to_nothing_is_no_success() {
        assert!(!answer(json!({"content": [], "isError": true})).is_success());
        assert!(!answer(json!({"resultType": "input_required"})).is_success());
        let refused = response(json!({"error": {
            "code": -32003,
            "message": "refused",
            "data": {"reason": "rate_minute", "retry_after": 12, "violations": ["/a: must be text"]},
        }}));
        assert!(!refused.is_success());
        assert_eq!(
            refused.text(),
            "refused (-32003)\nreason: rate_minute\nhint: try again in 12 s\n  /a: must be text"
        );
        let refused = answer(json!({
            "content": [{"type": "text", "text": "refused"}],
            "isError": true,
            "_meta": {"io.owlclaw/error": {
                "code": -32003, "reason": "rate_minute", "retry_after": 12,
            }},
        }));
        assert!(!refused.is_success());
        assert_eq!(
            refused.text(),
            "refused (-32003)\nreason: rate_minute\nhint: try again in 12 s"
        );
        assert!(Told::of(r#"{"id": 1}"#).is_err());
    }
}
