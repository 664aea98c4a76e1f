//! One operation as a tool.

use super::{
    Found, ServiceOptions,
    document::Document,
    parameters::{Parameter, Place, parameters},
    request::{self, BODY, Coding, Shape},
    schema::{self, Direction},
};
use crate::{
    UrlTemplate,
    binding::annotations,
    call::{Body, Filled, Plan},
    mapping::ResponseMapping,
    url::UnfitArgument,
};
use adapter_tools::{Arguments, Executor, Tool, ToolCx, ToolError, ToolKind, ToolOutput, ToolSet};
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, header};
use http_client::Client;
use serde_json::{Map, Value, json};

/// Longer descriptions are cut, in characters.
const MAX_DESCRIPTION: usize = 4096;

/// Reason why an operation is no tool.
#[derive(Debug)]
pub(super) struct Skipped(pub(super) String);

/// Makes the tool. What is odd about it without being wrong goes to `odd`.
pub(super) fn tool(
    document: &Document,
    found: &Found<'_>,
    name: String,
    base: &str,
    options: &ServiceOptions,
    client: &Client,
    odd: &mut Vec<String>,
) -> Result<Tool, Skipped> {
    // Some authors tell operations of one path apart by fragments, which no server sees.
    let path = found.path.split('#').next().unwrap_or_default();
    // Right behind a host, anything else would be a part of its name.
    if !path.starts_with('/') {
        return Err(Skipped("its path does not begin with `/`".to_owned()));
    }
    let url = UrlTemplate::parse(&format!("{base}{path}"))
        .map_err(|error| Skipped(format!("its path cannot be used: {error}")))?;
    let parameters = parameters(document, found, options, odd)?;
    for argument in url.arguments() {
        let is_declared = |it: &&Parameter| it.place == Place::Path && it.name == argument;
        if parameters.iter().find(is_declared).is_none() {
            let why = format!("its path has `{{{argument}}}`, and no parameter is called so");
            return Err(Skipped(why));
        }
    }
    let written = request::body(document, found)?;

    let mut schemas: Vec<&Value> = parameters.iter().map(|it| &it.schema).collect();
    schemas.extend(written.iter().map(|body| body.schema));
    let mut expanded = schema::expand(document, &schemas, Direction::Request).map_err(Skipped)?;
    let body_schema = written.as_ref().and_then(|_| expanded.schemas.pop());
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (parameter, schema) in parameters.iter().zip(expanded.schemas) {
        properties.insert(parameter.argument.clone(), schema);
        if parameter.is_required {
            required.push(json!(parameter.argument));
        }
    }
    let mut body = None;
    if let (Some(written), Some(schema)) = (written, body_schema) {
        let taken: Vec<&str> = parameters.iter().map(|it| it.argument.as_str()).collect();
        let shape = match request::members(&schema, written.is_required, &taken) {
            Some(names) => {
                let members = schema["properties"].as_object().into_iter().flatten();
                properties.extend(members.map(|(name, member)| (name.clone(), member.clone())));
                required.extend(schema["required"].as_array().into_iter().flatten().cloned());
                Shape::Members(names)
            }
            None if taken.contains(&BODY) => {
                let why = format!("both its body and a parameter would be the argument `{BODY}`");
                return Err(Skipped(why));
            }
            None => {
                properties.insert(BODY.to_owned(), schema);
                if written.is_required {
                    required.push(json!(BODY));
                }
                Shape::Whole
            }
        };
        body = Some((written.coding, shape, written.is_required));
    }
    let mut input = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if !expanded.definitions.is_empty() {
        input["$defs"] = Value::Object(expanded.definitions);
    }

    let plan = Plan {
        client: client.clone(),
        method: found.verb.clone(),
        headers: options.headers.clone(),
        mode: options.mode,
        timeout: options.timeout,
        retry: options.retry,
        idempotency_header: options.idempotency_header.clone(),
        max_response_bytes: options.bounds.max_response_bytes,
        mapping: ResponseMapping::default(),
    };
    let timeout = plan.allowed_retry().longest(plan.timeout);
    let source = format!("{} {url}", found.verb);
    let executor = Operation {
        plan,
        url,
        parameters,
        body,
    };
    let mut tool = Tool::new(name, input, executor)
        .describe(description(found.operation))
        .with_annotations(annotations(&found.verb))
        .with_timeout(timeout)
        .with_source(source)
        .with_kind(ToolKind::Http);
    if options.output_schemas
        && let Some(schema) = output_schema(document, found, odd)
    {
        let promising = tool.clone().with_output_schema(schema);
        match ToolSet::new([promising.clone()]) {
            Ok(_) => tool = promising,
            Err(problem) => odd.push(format!("nothing is promised of its answers: {problem}")),
        }
    }
    Ok(tool)
}

fn description(operation: &Value) -> String {
    let text = |key: &str| operation[key].as_str().unwrap_or_default().trim();
    let (summary, description) = (text("summary"), text("description"));
    let mut whole = summary.to_owned();
    if !whole.is_empty() && !description.is_empty() {
        whole.push_str("\n\n");
    }
    if description != summary {
        whole.push_str(description);
    }
    if operation["deprecated"] == json!(true) {
        whole.insert_str(0, "Deprecated. ");
    }
    whole.trim().chars().take(MAX_DESCRIPTION).collect()
}

/// Schema of a good answer, if the document says that it always is a JSON object.
fn output_schema(document: &Document, found: &Found<'_>, odd: &mut Vec<String>) -> Option<Value> {
    let responses = found.operation["responses"].as_object()?;
    let good = ["200", "201", "202", "2XX", "2xx"]
        .iter()
        .find_map(|status| responses.get(*status))?;
    let content = document.follow(good)?["content"].as_object()?;
    let schema = &content.get("application/json")?["schema"];
    if schema.is_null() {
        return None;
    }
    match schema::expand(document, &[schema], Direction::Response) {
        Ok(mut expanded) => {
            let mut schema = expanded.schemas.pop()?;
            if schema["type"] != "object" {
                return None;
            }
            if !expanded.definitions.is_empty() {
                schema["$defs"] = Value::Object(expanded.definitions);
            }
            Some(schema)
        }
        Err(why) => {
            odd.push(format!("nothing is promised of its answers: {why}"));
            None
        }
    }
}

/// Handler of an operation's calls.
struct Operation {
    plan: Plan,
    url: UrlTemplate,
    parameters: Vec<Parameter>,
    /// Coding of the body, the arguments it is made of, and whether there always is one.
    body: Option<(Coding, Shape, bool)>,
}

impl Executor for Operation {
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let given = arguments.exact_object().map_err(ToolError::Rejected)?;
            let filled = self
                .filled(given)
                .map_err(|unfit| ToolError::failed(unfit.to_string()))?;
            drop(arguments);
            self.plan.call(&cx, filled).await
        })
    }
}

impl Operation {
    fn filled(&self, arguments: &Map<String, Value>) -> Result<Filled, UnfitArgument> {
        let given = |parameter: &Parameter| {
            let value = arguments.get(&parameter.argument);
            value.filter(|value| !value.is_null())
        };
        let in_path = |name: &str| {
            let mut parameters = self.parameters.iter();
            let parameter = parameters.find(|it| it.place == Place::Path && it.name == name);
            match parameter.and_then(|it| Some((it, given(it)?))) {
                Some((parameter, value)) => parameter.items(value),
                None => Ok(Vec::new()),
            }
        };
        let mut query = Vec::new();
        let mut headers = HeaderMap::new();
        for parameter in &self.parameters {
            match (&parameter.place, given(parameter)) {
                (Place::Query, Some(value)) => query.extend(parameter.pairs(value)?),
                (Place::Header(name), Some(value)) => {
                    headers.insert(name, parameter.header(value)?);
                }
                _ => {}
            }
        }
        let uri = self.url.render(&in_path, &query)?;
        let body = self.body(arguments, &mut headers);
        Ok(Filled { uri, headers, body })
    }

    fn body(&self, arguments: &Map<String, Value>, headers: &mut HeaderMap) -> Body {
        let Some((coding, shape, is_required)) = &self.body else {
            return Body::None;
        };
        let value = match shape {
            Shape::Whole => arguments.get(BODY).cloned(),
            Shape::Members(names) => {
                let given = names
                    .iter()
                    .filter_map(|name| Some((name.clone(), arguments.get(name)?.clone())));
                let members: Map<_, _> = given.collect();
                (*is_required || !members.is_empty()).then_some(Value::Object(members))
            }
        };
        let Some(value) = value else {
            return Body::None;
        };
        match (coding, &value) {
            (Coding::Form, Value::Object(members)) => Body::Form(request::form(members)),
            (Coding::Form, other) => Body::Form(other.as_str().unwrap_or_default().to_owned()),
            (Coding::Json(media), value) => {
                if let Ok(media) = HeaderValue::from_str(media) {
                    headers.insert(header::CONTENT_TYPE, media);
                }
                Body::Json(value.to_string().into())
            }
        }
    }
}
