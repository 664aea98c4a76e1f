//! Prompts in the dialect (rows 112 to 118 of document 004).

use mcp_service::McpService;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    dialect::{
        methods::Call,
        servers::{OWN, upstream},
    },
    failure::Failure,
};

const VERSION: &str = "/_meta/io.owlclaw~1version";
const VERSIONS: &str = "/_meta/io.owlclaw~1versions";

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct List {
    category: Option<String>,
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Get {
    id: String,
    version: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Render {
    id: String,
    #[serde(default)]
    parameters: Map<String, Value>,
    version: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Versions {
    id: String,
}

/// A prompt of a list, as the document describes it.
pub(crate) fn described(prompt: &Value) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for argument in prompt["arguments"].as_array().into_iter().flatten() {
        let name = argument["name"].as_str().unwrap_or_default();
        let mut property = json!({ "type": "string" });
        if let Some(description) = argument.get("description") {
            property["description"] = description.clone();
        }
        properties.insert(name.to_owned(), property);
        if argument["required"] == true {
            required.push(name.to_owned());
        }
    }
    let mut metadata = Map::new();
    for (own, theirs) in [
        ("category", "/_meta/io.owlclaw~1category"),
        ("tags", "/_meta/io.owlclaw~1tags"),
        ("title", "/title"),
    ] {
        if let Some(value) = prompt.pointer(theirs) {
            metadata.insert(own.to_owned(), value.clone());
        }
    }
    json!({
        "id": prompt["name"],
        "version": prompt.pointer(VERSION),
        "description": prompt["description"],
        "parameters": { "type": "object", "properties": properties, "required": required },
        "metadata": metadata,
    })
}

fn no_prompt() -> Failure {
    Failure::params("there is no such prompt")
}

impl<S: McpService> Call<'_, S> {
    async fn prompts(&self) -> Result<Vec<Value>, Failure> {
        let mut prompts = self.list("prompts/list", "prompts", json!({})).await?;
        let target = self.request.target.as_deref();
        prompts.retain(|it| target.is_none_or(|target| target == upstream(it).unwrap_or(OWN)));
        Ok(prompts)
    }

    async fn prompt(&self, id: &str) -> Result<Value, Failure> {
        let prompts = self.prompts().await?;
        let own = "/_meta/io.owlclaw~1upstream/prompt";
        let is_it = |it: &Value| {
            it["name"] == id || (self.target().is_some() && it.pointer(own) == Some(&json!(id)))
        };
        let found = prompts.into_iter().find(is_it);
        found.ok_or_else(no_prompt)
    }

    /// `list_prompts`, by category and all of several tags.
    pub(crate) async fn list_prompts(&self) -> Result<Value, Failure> {
        let asked: List = self.request.params()?;
        let prompts = self.prompts().await?;
        let told = prompts.iter().map(described).filter(|it| {
            let (category, tags) = (&it["metadata"]["category"], &it["metadata"]["tags"]);
            let has = |tag: &String| {
                let mut tags = tags.as_array().into_iter().flatten();
                tags.any(|it| it == tag.as_str())
            };
            asked
                .category
                .as_ref()
                .is_none_or(|it| category == it.as_str())
                && asked.tags.iter().all(has)
        });
        let told: Vec<_> = told.collect();
        let total = told.len();
        Ok(json!({ "prompts": told, "total": total }))
    }

    /// `get_prompt`, without the template, which clients do not see.
    pub(crate) async fn get_prompt(&self) -> Result<Value, Failure> {
        let Get { id, version } = self.request.params()?;
        let prompt = self.prompt(&id).await?;
        let mut told = described(&prompt);
        if let Some(version) = version.map(Value::from).filter(|it| *it != told["version"]) {
            let versions = prompt.pointer(VERSIONS).and_then(Value::as_array);
            if !versions.is_some_and(|it| it.contains(&version)) {
                return Err(Failure::params("there is no such version of the prompt"));
            }
            told["version"] = version;
        }
        if let Some(versions) = prompt.pointer(VERSIONS) {
            told["versions"] = versions.clone();
        }
        Ok(told)
    }

    /// `render_prompt`.
    pub(crate) async fn render_prompt(&self) -> Result<Value, Failure> {
        let asked: Render = self.request.params()?;
        let name = match self.target() {
            Some(_) => {
                let prompt = self.prompt(&asked.id).await?;
                prompt["name"].as_str().unwrap_or_default().to_owned()
            }
            None => asked.id.clone(),
        };
        let name = match &asked.version {
            Some(version) => format!("{name}@{version}"),
            None => name,
        };
        // Arguments of MCP are texts; lists and objects are JSON in them.
        let arguments = asked.parameters.into_iter().map(|(name, value)| {
            let text = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            (name, Value::from(text))
        });
        let arguments: Map<_, _> = arguments.collect();
        let params = json!({ "name": name, "arguments": arguments });
        let filled = self.ask("prompts/get", params).await;
        let filled = filled.map_err(|failure| match failure.is_missing_method() {
            true => no_prompt(),
            false => failure,
        })?;
        let messages = filled["messages"].as_array().into_iter().flatten();
        let texts = messages.filter_map(|it| it["content"]["text"].as_str());
        let rendered = texts.collect::<Vec<_>>().join("\n\n");
        let version = filled.pointer(VERSION).cloned();
        Ok(json!({
            "id": asked.id,
            "version": version.or(asked.version.map(Value::from)),
            "rendered": rendered,
            "messages": filled["messages"],
        }))
    }

    /// `get_prompt_versions`.
    pub(crate) async fn prompt_versions(&self) -> Result<Value, Failure> {
        let Versions { id } = self.request.params()?;
        let prompt = self.prompt(&id).await?;
        let versions = prompt.pointer(VERSIONS).and_then(Value::as_array);
        let versions = versions.into_iter().flatten();
        Ok(json!({
            "id": id,
            "current_version": {
                "version": prompt.pointer(VERSION), "description": prompt["description"],
            },
            "versions": versions.map(|it| json!({ "version": it })).collect::<Vec<_>>(),
        }))
    }
}
