use crate::{Content, ToolError};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};
use std::any::Any;

/// Answer of a tool.
#[derive(Clone, Debug, Default)]
pub struct ToolOutput {
    /// For the model to read.
    pub content: Vec<Content>,
    /// For programs: the text of one JSON object.
    pub structured: Option<Box<RawValue>>,
    /// True if the answer reports a failure of the tool; [`ToolError::Failed`] reports the same
    /// with less to show.
    pub is_error: bool,
    /// Members of the result's `_meta`.
    pub meta: Map<String, Value>,
}

/// Result of a native tool function: any type that serialises and has a schema, or a
/// [`ToolOutput`].
///
/// ```
/// # use adapter_tools::{NoArguments, Tool, ToolCx};
/// #[derive(serde::Serialize, schemars::JsonSchema)]
/// struct Sum {
///     total: i64,
/// }
///
/// Tool::native("sum", |_: ToolCx, _: NoArguments| async { Ok(Sum { total: 3 }) });
/// ```
///
/// Clients are told what an answer looks like, so to serialise is not enough:
///
/// ```compile_fail
/// # use adapter_tools::{NoArguments, Tool, ToolCx};
/// #[derive(serde::Serialize)]
/// struct Sum {
///     total: i64,
/// }
///
/// Tool::native("sum", |_: ToolCx, _: NoArguments| async { Ok(Sum { total: 3 }) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing that a tool can answer with",
    label = "not an answer",
    note = "derive `serde::Serialize` and `schemars::JsonSchema` for it, or return `ToolOutput`"
)]
pub trait IntoOutput {
    /// The schema of the answer as a program sees it, if it always is an object.
    fn output_schema() -> Option<Value>;

    /// The answer.
    ///
    /// # Errors
    ///
    /// [`ToolError::Broken`] when it does not serialise.
    fn into_output(self) -> Result<ToolOutput, ToolError>;
}

impl<T: Serialize + JsonSchema + 'static> IntoOutput for T {
    fn output_schema() -> Option<Value> {
        let schema =
            crate::schema::schema_of::<T>(schemars::generate::SchemaSettings::for_serialize);
        (schema.get("type").and_then(Value::as_str) == Some("object")).then_some(schema)
    }

    fn into_output(self) -> Result<ToolOutput, ToolError> {
        // A text is its own text; writing it as JSON and reading that would say the same.
        let mut output = Some(self);
        let any: &mut dyn Any = &mut output;
        if let Some(text) = any.downcast_mut::<Option<String>>().and_then(Option::take) {
            return Ok(ToolOutput::text(text));
        }
        let raw = to_raw_value(&output).map_err(ToolError::broken)?;
        Ok(ToolOutput::from_raw(raw))
    }
}

impl IntoOutput for ToolOutput {
    fn output_schema() -> Option<Value> {
        None
    }

    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

impl ToolOutput {
    /// Text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        Content::text(text).into()
    }

    /// A JSON value as an answer: a string is its own text; anything else is the text of its JSON,
    /// and an object is structured content besides.
    pub fn from_raw(value: Box<RawValue>) -> Self {
        match value.get().as_bytes().first() {
            Some(b'"') => {
                // A string that cannot be decoded (a lone surrogate) is shown as it is written.
                let text = serde_json::from_str(value.get());
                Self::text(text.unwrap_or_else(|_| value.get().to_owned()))
            }
            Some(b'{') => Self {
                content: vec![Content::text(value.get())],
                structured: Some(value),
                ..Self::default()
            },
            _ => Self::text(value.get()),
        }
    }

    /// Adds a block of content.
    #[must_use]
    pub fn with_content(mut self, content: Content) -> Self {
        self.content.push(content);
        self
    }

    /// Sets an entry of the result's `_meta`.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(key.into(), value.into());
        self
    }

    /// Says that the tool failed.
    #[must_use]
    pub fn into_error(mut self) -> Self {
        self.is_error = true;
        self
    }
}

impl From<Content> for ToolOutput {
    fn from(content: Content) -> Self {
        vec![content].into()
    }
}

impl From<Vec<Content>> for ToolOutput {
    fn from(content: Vec<Content>) -> Self {
        Self {
            content,
            ..Self::default()
        }
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<Value> for ToolOutput {
    fn from(value: Value) -> Self {
        let raw = to_raw_value(&value).expect("a `Value` has string keys only and serialises");
        Self::from_raw(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_structured_strings_are_themselves_and_the_rest_is_json() {
        let rows = [
            (json!({"a": 1}), r#"{"a":1}"#, true),
            (json!("it is \"so\""), "it is \"so\"", false),
            (json!([1, null]), "[1,null]", false),
            (json!(null), "null", false),
            (json!(1.5), "1.5", false),
        ];
        for (value, text, is_structured) in rows {
            let output = ToolOutput::from(value.clone());
            assert_eq!(output.content, [Content::text(text)]);
            assert_eq!(output.structured.is_some(), is_structured, "{value}");
        }
    }
}
