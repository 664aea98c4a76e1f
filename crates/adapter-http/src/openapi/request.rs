//! Bodies of requests: how a tool's arguments become one.

use super::{Found, document::Document, operation::Skipped};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

/// The argument that is the body, where its members are not arguments themselves.
pub(super) const BODY: &str = "body";

/// The body of an operation, as the document has it.
#[derive(Clone, Debug)]
pub(super) struct Written<'d> {
    pub(super) coding: Coding,
    pub(super) is_required: bool,
    pub(super) schema: &'d Value,
}

/// Coding of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// JSON, under this media type.
    Json(String),
    Form,
}

/// Arguments that make up the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One, [`BODY`].
    Whole,
    /// Each of these arguments is a member of it.
    Members(Vec<String>),
}

/// Body of an operation; none if it takes none.
pub(super) fn body<'d>(
    document: &'d Document,
    found: &Found<'d>,
) -> Result<Option<Written<'d>>, Skipped> {
    static ANYTHING: Value = Value::Bool(true);
    let written = &found.operation["requestBody"];
    if written.is_null() {
        return Ok(None);
    }
    let written = document.follow(written).ok_or_else(|| {
        Skipped("the `$ref` of its body leads nowhere in the document".to_owned())
    })?;
    let is_required = written["required"].as_bool().unwrap_or(false);
    let content = written["content"].as_object();
    let medias = || content.into_iter().flatten();
    let coding = |media: &str| match media.split(';').next().unwrap_or_default().trim() {
        "application/json" | "*/*" | "application/*" => {
            Some(Coding::Json("application/json".into()))
        }
        json if json.ends_with("+json") => Some(Coding::Json(json.to_owned())),
        "application/x-www-form-urlencoded" => Some(Coding::Form),
        _ => None,
    };
    // JSON before forms, and plain JSON before its kin.
    let rank = |coding: &Coding| match coding {
        Coding::Json(media) if media == "application/json" => 0,
        Coding::Json(_) => 1,
        Coding::Form => 2,
    };
    let best = medias()
        .filter_map(|(media, content)| Some((coding(media)?, content)))
        .min_by_key(|(coding, _)| rank(coding));
    match best {
        Some((coding, content)) => {
            let schema = match &content["schema"] {
                Value::Null => &ANYTHING,
                schema => schema,
            };
            Ok(Some(Written {
                coding,
                is_required,
                schema,
            }))
        }
        None => {
            let names: Vec<_> = medias().map(|(media, _)| media.as_str()).collect();
            // Even if it is optional by the document, which is what one says who says nothing: an
            // upload without anything to upload is of no use.
            Err(Skipped(format!(
                "its body is `{}`, which is not supported",
                names.join("`, `")
            )))
        }
    }
}

/// Names of a body's members, if they can be arguments beside `taken`: the body is an object with
/// these members and no others, and its presence is unambiguous.
pub(super) fn members(schema: &Value, is_required: bool, taken: &[&str]) -> Option<Vec<String>> {
    const PLAIN: [&str; 10] = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "format",
    ];
    let schema = schema.as_object()?;
    let properties = schema.get("properties")?.as_object()?;
    let is_plain = schema.keys().all(|key| PLAIN.contains(&key.as_str()));
    let is_object = schema.get("type").is_none_or(|it| it == "object");
    let is_closed = matches!(
        schema.get("additionalProperties"),
        None | Some(Value::Bool(false))
    );
    let required = schema.get("required").and_then(Value::as_array);
    let is_clear = is_required || required.is_none_or(Vec::is_empty);
    let is_free = properties
        .keys()
        .all(|name| !taken.contains(&name.as_str()));
    let fits = is_plain && is_object && is_closed && is_clear && is_free;
    (fits && !properties.is_empty()).then(|| properties.keys().cloned().collect())
}

/// The members of `value` as a form: lists repeat their name, maps are JSON.
pub(super) fn form(value: &Map<String, Value>) -> String {
    let mut form = String::new();
    let mut push = |name: &str, value: &Value| {
        let text = match value {
            Value::Null => return,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if !form.is_empty() {
            form.push('&');
        }
        form.extend(utf8_percent_encode(name, NON_ALPHANUMERIC));
        form.push('=');
        form.extend(utf8_percent_encode(&text, NON_ALPHANUMERIC));
    };
    for (name, value) in value {
        match value {
            Value::Array(items) => items.iter().for_each(|item| push(name, item)),
            value => push(name, value),
        }
    }
    form
}
