use super::Output;
use crate::{Content, ToolError, ToolOutput};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

/// Makes an answer of what a program wrote.
pub(super) fn answer(written: Vec<u8>, output: Output) -> Result<ToolOutput, ToolError> {
    let mut text = String::from_utf8(written).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ToolError::failed(format!("the program's output is not UTF-8 (at byte {at})"))
    })?;
    match output {
        Output::Auto => match object(&text) {
            Some(object) => Ok(ToolOutput::from_raw(object)),
            None => Ok(ToolOutput::text(without_end(&mut text))),
        },
        Output::Json => {
            let json = json(&text).map_err(|error| {
                ToolError::failed(format!("the program's output is not JSON: {error}"))
            })?;
            Ok(ToolOutput::from_raw(json))
        }
        Output::Text => Ok(ToolOutput::text(without_end(&mut text))),
        Output::Lines => {
            let lines: Vec<_> = text.lines().collect();
            let structured = to_raw_value(&json!({ "lines": lines }));
            Ok(ToolOutput {
                structured: Some(structured.map_err(ToolError::broken)?),
                content: vec![Content::text(without_end(&mut text))],
                ..ToolOutput::default()
            })
        }
    }
}

/// The schema of answers that are lines.
pub(super) fn lines_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"lines": {"type": "array", "items": {"type": "string"}}},
        "required": ["lines"],
    })
}

fn object(text: &str) -> Option<Box<RawValue>> {
    // Most texts are none, and need not be parsed to know.
    text.trim_ascii_start()
        .starts_with('{')
        .then(|| json(text).ok())?
}

/// One JSON value, to the letter. Parsing it bounds its depth, which keeping the text would not.
fn json(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::from_str::<Value>(text)?;
    RawValue::from_string(text.trim_ascii().to_owned())
}

/// Takes the line end off that programs end their output with.
fn without_end(text: &mut String) -> String {
    let mut text = std::mem::take(text);
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_read_as_it_was_promised() {
        let rows = [
            (
                Output::Auto,
                " {\"a\": 1.50}\n",
                "{\"a\": 1.50}",
                Some("{\"a\": 1.50}"),
            ),
            (Output::Auto, "[1]\n", "[1]", None),
            (Output::Auto, "{\"a\": NaN}\n", "{\"a\": NaN}", None),
            (
                Output::Auto,
                "{\"a\": 1} {\"b\": 2}\n",
                "{\"a\": 1} {\"b\": 2}",
                None,
            ),
            (Output::Auto, "", "", None),
            (Output::Json, "[1, 2]\n", "[1, 2]", None),
            (Output::Json, "\"a\\nb\"", "a\nb", None),
            (Output::Text, "{}\r\n", "{}", None),
            (Output::Text, " a\n\n", " a\n", None),
            (
                Output::Lines,
                "a\r\nb\n",
                "a\r\nb",
                Some("{\"lines\":[\"a\",\"b\"]}"),
            ),
            (Output::Lines, "", "", Some("{\"lines\":[]}")),
        ];
        for (output, written, text, structured) in rows {
            let answer = answer(written.into(), output).unwrap();
            assert_eq!(answer.content, [Content::text(text)], "{written:?}");
            let found = answer.structured.as_ref().map(|raw| raw.get());
            assert_eq!(found, structured, "{written:?}");
        }
    }

    #[test]
    fn output_that_is_not_what_was_promised_is_an_error() {
        let deep = "[".repeat(100_000);
        let rows: [(Output, &[u8], &str); 6] = [
            (Output::Json, b"", "is not JSON: EOF"),
            (Output::Json, b"{\"a\": NaN}", "is not JSON: expected value"),
            (Output::Json, b"{} {}", "is not JSON: trailing characters"),
            (
                Output::Json,
                deep.as_bytes(),
                "is not JSON: recursion limit",
            ),
            (Output::Text, b"caf\xe9", "is not UTF-8 (at byte 3)"),
            (Output::Auto, b"\xff", "is not UTF-8 (at byte 0)"),
        ];
        for (output, written, why) in rows {
            let error = answer(written.into(), output).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
