//! Parameters of operations: what they are, and how their values are written.

use super::{Found, ServiceOptions, document::Document, operation::Skipped};
use crate::{binding::plain, header::is_of_connection, url::UnfitArgument};
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// An operation with more is no tool: each is compared with each other, and may be a large copy.
const MAX_PARAMETERS: usize = 256;

/// One parameter of an operation.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    /// Name of the tool's argument.
    pub(super) argument: String,
    /// Name of the service's parameter.
    pub(super) name: String,
    pub(super) place: Place,
    style: Style,
    pub(super) is_required: bool,
    /// As the document has it.
    pub(super) schema: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Path,
    Query,
    Header(HeaderName),
}

/// Notation of lists and maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// `a=1&a=2`, and a pair for each member.
    Repeated,
    /// `a=1,2`, and `k,v,k,v`.
    Joined(&'static str),
    /// `a[k]=v`.
    Deep,
    /// `a={"k":"v"}`.
    Json,
}

/// The parameters of an operation, those of its path included. Optional ones that cannot be sent are
/// left out and told in `odd`.
pub(super) fn parameters(
    document: &Document,
    found: &Found<'_>,
    options: &ServiceOptions,
    odd: &mut Vec<String>,
) -> Result<Vec<Parameter>, Skipped> {
    let mut parameters: Vec<Parameter> = Vec::new();
    let lists = [&found.item["parameters"], &found.operation["parameters"]];
    let entries = lists.iter().filter_map(|it| it.as_array()).map(Vec::len);
    if MAX_PARAMETERS < entries.sum() {
        let why = format!("it has more than {MAX_PARAMETERS} parameters");
        return Err(Skipped(why));
    }
    // The operation's own come last and take the place of the path's.
    for list in lists {
        for written in list.as_array().into_iter().flatten() {
            let written = document.follow(written).ok_or_else(|| {
                Skipped("the `$ref` of a parameter leads nowhere in the document".to_owned())
            })?;
            let name = written["name"].as_str().unwrap_or_default();
            let is_required = written["required"] == json!(true);
            match parameter(written, options) {
                Ok(None) => {}
                Ok(Some(parameter)) => {
                    // The place of a header is its name, whatever case it is written in.
                    let is_named = |name: &str| {
                        name == parameter.name || matches!(parameter.place, Place::Header(_))
                    };
                    let is_same =
                        |it: &Parameter| it.place == parameter.place && is_named(&it.name);
                    parameters.retain(|it| !is_same(it));
                    parameters.push(parameter);
                }
                Err(why) if is_required => {
                    return Err(Skipped(format!("its parameter `{name}` {why}")));
                }
                Err(why) => odd.push(format!("the parameter `{name}` is not offered: it {why}")),
            }
        }
    }
    name_arguments(&mut parameters);
    Ok(parameters)
}

/// `None` for what is not the caller's to say.
fn parameter(written: &Value, options: &ServiceOptions) -> Result<Option<Parameter>, String> {
    let name = written["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Err("has no name".to_owned());
    }
    let place = match written["in"].as_str().unwrap_or_default() {
        "path" => Place::Path,
        "query" => Place::Query,
        "header" => {
            let header: HeaderName = name.parse().map_err(|_| "is not a header".to_owned())?;
            // The first three by OpenAPI's own word; and nobody replaces what is configured.
            let is_ours = ["accept", "content-type", "authorization"].contains(&header.as_str())
                || is_of_connection(&header)
                || options.headers.values().contains_key(&header)
                || options.idempotency_header.as_ref() == Some(&header);
            if is_ours {
                return Ok(None);
            }
            Place::Header(header)
        }
        "cookie" => return Err("is a cookie, which is not supported".to_owned()),
        _ => return Err("is in an unknown place".to_owned()),
    };
    let (schema, style) = match written["content"].as_object() {
        Some(content) => {
            let (media, content) = content.iter().next().ok_or("has no content")?;
            if !media.contains("json") {
                return Err(format!("is `{media}`, which is not supported"));
            }
            (content["schema"].clone(), Style::Json)
        }
        None => (written["schema"].clone(), style(written, &place)?),
    };
    let schema = match schema {
        Value::Null => json!({}),
        schema => schema,
    };
    Ok(Some(Parameter {
        argument: name.to_owned(),
        name: name.to_owned(),
        is_required: written["required"] == json!(true) || place == Place::Path,
        place,
        style,
        schema: described(schema, &written["description"]),
    }))
}

fn style(written: &Value, place: &Place) -> Result<Style, String> {
    let default = match place {
        Place::Query => "form",
        Place::Path | Place::Header(_) => "simple",
    };
    let style = written["style"].as_str().unwrap_or(default);
    let explode = written["explode"].as_bool().unwrap_or(style == "form");
    match (style, explode) {
        ("form", true) => Ok(Style::Repeated),
        ("form", false) | ("simple", _) => Ok(Style::Joined(",")),
        ("spaceDelimited", false) => Ok(Style::Joined(" ")),
        ("pipeDelimited", false) => Ok(Style::Joined("|")),
        ("spaceDelimited" | "pipeDelimited", true) => Ok(Style::Repeated),
        ("deepObject", _) => Ok(Style::Deep),
        (other, _) => Err(format!("is in the style `{other}`, which is not supported")),
    }
}

/// A parameter's own description is the better one.
fn described(mut schema: Value, description: &Value) -> Value {
    if let (Some(schema), Value::String(_)) = (schema.as_object_mut(), description) {
        schema.insert("description".to_owned(), description.clone());
    }
    schema
}

/// Parameters of the same name in two places become two arguments. One that is called like what
/// another one has become is moved on, too.
fn name_arguments(parameters: &mut [Parameter]) {
    let mut taken = BTreeSet::new();
    for parameter in parameters {
        let place = match parameter.place {
            Place::Path => "path",
            Place::Query => "query",
            Place::Header(_) => "header",
        };
        let mut number = 1;
        while !taken.insert(parameter.argument.clone()) {
            parameter.argument = match number {
                1 => format!("{}_{place}", parameter.name),
                _ => format!("{}_{place}_{number}", parameter.name),
            };
            number += 1;
        }
    }
}

impl Parameter {
    /// The pairs of the query for `value`.
    pub(super) fn pairs(&self, value: &Value) -> Result<Vec<(String, String)>, UnfitArgument> {
        let name = || self.name.clone();
        let unfit = || UnfitArgument::NotPlain(self.argument.clone());
        match (value, self.style) {
            (Value::Null, _) => Ok(Vec::new()),
            (value, Style::Json) => Ok(vec![(name(), value.to_string())]),
            (Value::Array(items), Style::Repeated | Style::Deep) => {
                let item = |item: &Value| Ok((name(), plain(item).ok_or_else(unfit)?));
                items.iter().map(item).collect()
            }
            (Value::Object(members), Style::Repeated | Style::Deep) => {
                let pair = |(key, value): (&String, &Value)| {
                    let key = match self.style {
                        Style::Deep => format!("{}[{key}]", self.name),
                        _ => key.clone(),
                    };
                    Ok((key, plain(value).ok_or_else(unfit)?))
                };
                members.iter().map(pair).collect()
            }
            (value, _) => Ok(vec![(name(), self.items(value)?.join(self.separator()))]),
        }
    }

    /// The items of `value`, to be parted by commas.
    pub(super) fn items(&self, value: &Value) -> Result<Vec<String>, UnfitArgument> {
        let unfit = || UnfitArgument::NotPlain(self.argument.clone());
        let plain = |value: &Value| plain(value).ok_or_else(unfit);
        match value {
            value if self.style == Style::Json => Ok(vec![value.to_string()]),
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => items.iter().map(plain).collect(),
            Value::Object(members) => flat(members).map(|value| plain(&value)).collect(),
            value => Ok(vec![plain(value)?]),
        }
    }

    /// The value of the header for `value`.
    pub(super) fn header(&self, value: &Value) -> Result<HeaderValue, UnfitArgument> {
        let text = self.items(value)?.join(",");
        HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| UnfitArgument::NotPlain(self.argument.clone()))
    }

    fn separator(&self) -> &'static str {
        match self.style {
            Style::Joined(separator) => separator,
            Style::Repeated | Style::Deep | Style::Json => ",",
        }
    }
}

/// Keys and values in turn.
fn flat(members: &Map<String, Value>) -> impl Iterator<Item = Value> {
    members
        .iter()
        .flat_map(|(key, value)| [Value::String(key.clone()), value.clone()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn arguments(of_path: Value, of_operation: Value) -> Vec<(String, String)> {
        let document = Document::parse("openapi: 3.1.0").unwrap();
        let item = json!({"parameters": of_path});
        let operation = json!({"parameters": of_operation});
        let found = Found {
            path: "/",
            method: "get",
            verb: Method::GET,
            item: &item,
            operation: &operation,
        };
        let options = ServiceOptions::default();
        let all = parameters(&document, &found, &options, &mut Vec::new());
        let Ok(all) = all else {
            panic!("nothing of this is left out");
        };
        all.into_iter().map(|it| (it.argument, it.name)).collect()
    }

    #[test]
    fn no_two_parameters_are_one_argument() {
        let at = |name: &str, place: &str| json!({"name": name, "in": place, "schema": {}});
        let all = [
            at("id", "path"),
            at("id_query", "path"),
            at("id", "query"),
            at("id", "header"),
            at("id_header", "query"),
        ];
        let all = arguments(json!([]), json!(all));
        let names: BTreeSet<_> = all.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), all.len(), "{all:?}");
    }

    #[test]
    fn a_header_is_the_same_in_any_case() {
        let header = |name: &str| json!([{"name": name, "in": "header", "schema": {}}]);
        let all = arguments(header("X-Tenant"), header("x-tenant"));
        assert_eq!(all, [("x-tenant".to_owned(), "x-tenant".to_owned())]);
    }
}
