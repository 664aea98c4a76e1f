//! Resources in the dialect (rows 81 to 92 of document 004).

use mcp_service::McpService;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    dialect::{methods::Call, servers::upstream},
    failure::{Failure, NO_RESOURCE, NO_TOOL, UNSUPPORTED},
};

/// The most resources of one answer.
const MAX_LIMIT: usize = 1_000;

/// Types that the document has a word of its own for, with the schemes of their addresses.
const WORDS: [(&str, &str); 3] = [("file", "files"), ("kb", "skill"), ("context", "state")];

/// Schemes of the server's own addresses.
const OWN_SCHEMES: [&str; 5] = ["files", "skill", "state", "db", "api"];

fn scheme(uri: &str) -> &str {
    uri.split("://").next().unwrap_or_default()
}

/// The document's type of what is at an address: its scheme, but for those that the document has a word of its own for.
pub(crate) fn kind(uri: &str) -> &str {
    let scheme = scheme(uri);
    let word = WORDS.iter().find(|(_, it)| *it == scheme);
    word.map_or(scheme, |(word, _)| word)
}

/// The scheme of the addresses of a type, which may be asked for by either.
fn scheme_of(kind: &str) -> &str {
    let known = WORDS.iter().find(|(it, _)| *it == kind);
    known.map_or(kind, |(_, scheme)| scheme)
}

/// Operations that a type of resources may have; which of them a client may is said by rules.
pub(crate) fn operations(kind: &str) -> &'static [&'static str] {
    match kind {
        "file" => &[
            "create", "read", "update", "delete", "list", "search", "watch",
        ],
        _ => &["read", "list", "search", "watch"],
    }
}

/// True for the addresses that `kind` and `path` name: `path` is the beginning of an address, or of what follows its
/// scheme, and ends where a segment does.
pub(crate) fn is_meant(uri: &str, of: Option<&str>, path: Option<&str>) -> bool {
    let begins = |text: &str, path: &str| {
        let rest = text.strip_prefix(path);
        rest.is_some_and(|it| it.is_empty() || path.ends_with('/') || it.starts_with(['/', '?']))
    };
    let is_under = |path: &str| {
        let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
        begins(uri, path) || begins(rest, path.strip_prefix('/').unwrap_or(path))
    };
    of.is_none_or(|it| scheme(uri) == scheme_of(it)) && path.is_none_or(is_under)
}

/// A resource of a list, as the document describes it.
pub(crate) fn described(resource: &Value) -> Value {
    let uri = resource["uri"].as_str().unwrap_or_default();
    let mut metadata = Map::new();
    for (own, theirs) in [
        ("name", "/name"),
        ("title", "/title"),
        ("description", "/description"),
        ("mime_type", "/mimeType"),
        ("size", "/size"),
        ("modified", "/annotations/lastModified"),
    ] {
        if let Some(value) = resource.pointer(theirs) {
            metadata.insert(own.to_owned(), value.clone());
        }
    }
    json!({ "id": uri, "type": kind(uri), "metadata": metadata })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    id: String,
    #[serde(default = "yes")]
    include_content: bool,
}

fn yes() -> bool {
    true
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct List {
    r#type: Option<String>,
    path: Option<String>,
    limit: Option<usize>,
    offset: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    r#type: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Metadata {
    name: Option<String>,
    /// Of a file it is told by its name.
    mime_type: Option<String>,
    encoding: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    id: Option<String>,
    r#type: Option<String>,
    path: Option<String>,
    content: Value,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    id: String,
    content: Option<Value>,
    #[serde(default)]
    metadata: Metadata,
    if_match: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    id: String,
    if_match: Option<String>,
}

/// The member of a tool's arguments that has a content.
fn content(content: &Value, metadata: &Metadata) -> Result<(&'static str, Value), Failure> {
    match (metadata.encoding.as_deref(), content) {
        (None | Some("utf-8"), Value::String(text)) => Ok(("text", text.as_str().into())),
        (None, other) => Ok(("text", other.to_string().into())),
        (Some("base64"), Value::String(text)) => Ok(("blob", text.as_str().into())),
        _ => Err(Failure::params(
            "`metadata.encoding` is `base64`, or is left out for texts",
        )),
    }
}

impl<S: McpService> Call<'_, S> {
    /// The address that is offered for what a client calls so: with a `target`, that server's own address also.
    async fn address(&self, id: &str) -> Result<String, Failure> {
        let Some(target) = self.target() else {
            return Ok(id.to_owned());
        };
        let listed = self.list("resources/list", "resources", json!({})).await?;
        let end = format!("+{id}");
        let is_it = |it: &&Value| {
            let uri = it["uri"].as_str().unwrap_or_default();
            upstream(it) == Some(target) && (uri == id || uri.ends_with(&end))
        };
        let found = listed.iter().find(is_it);
        let found = found.and_then(|it| it["uri"].as_str()).map(str::to_owned);
        found.ok_or_else(|| Failure::new(NO_RESOURCE, "the target has no such resource"))
    }

    /// `read_resource`: a read like any other, with or without the content.
    pub(crate) async fn read_resource(&self) -> Result<Value, Failure> {
        let Read {
            id,
            include_content,
        } = self.request.params()?;
        let uri = self.address(&id).await?;
        let read = self.ask("resources/read", json!({ "uri": uri })).await?;
        let found = &read["contents"][0];
        let mut answer = described(found);
        answer["id"] = id.into();
        if let Some(Value::Object(about)) = read.pointer("/_meta/io.owlclaw~1resource") {
            for (own, theirs) in [
                ("size", "size"),
                ("modified", "lastModified"),
                ("etag", "etag"),
            ] {
                if let Some(value) = about.get(theirs) {
                    answer["metadata"][own] = value.clone();
                }
            }
        }
        let is_blob = found.get("blob").is_some();
        if is_blob {
            answer["metadata"]["encoding"] = "base64".into();
        }
        if include_content {
            answer["content"] = found[if is_blob { "blob" } else { "text" }].clone();
        }
        Ok(answer)
    }

    /// Refuses a type that nothing here can be of.
    pub(crate) async fn check_type(&self, kind: &str) -> Result<(), Failure> {
        let wanted = scheme_of(kind);
        if OWN_SCHEMES.contains(&wanted) {
            return Ok(());
        }
        let listed = self.list("resources/list", "resources", json!({})).await?;
        let uris = listed.iter().filter_map(|it| it["uri"].as_str());
        if uris.map(scheme).any(|it| it == wanted) {
            return Ok(());
        }
        let kind: String = kind.chars().take(50).collect();
        Err(Failure::params(format!(
            "there is no type `{kind}`: `file`, `kb`, `context`, or the scheme of an address that is listed"
        )))
    }

    /// The resources that `kind`, `path` and the target name.
    pub(crate) async fn meant(
        &self,
        kind: Option<&str>,
        path: Option<&str>,
    ) -> Result<Vec<Value>, Failure> {
        if let Some(kind) = kind {
            self.check_type(kind).await?;
        }
        // As narrow as the list itself can be asked for.
        let params = match path.filter(|it| it.contains("://")) {
            Some(path) => json!({ "uri": format!("{path}*") }),
            None => json!({}),
        };
        let mut listed = self.list("resources/list", "resources", params).await?;
        let target = self.request.target.as_deref();
        listed.retain(|it| {
            let source = upstream(it).unwrap_or(crate::dialect::servers::OWN);
            let uri = it["uri"].as_str().unwrap_or_default();
            is_meant(uri, kind, path) && target.is_none_or(|it| it == source)
        });
        Ok(listed)
    }

    /// `list_resources`.
    pub(crate) async fn list_resources(&self) -> Result<Value, Failure> {
        let asked: List = self.request.params()?;
        let limit = asked.limit.unwrap_or(100).min(MAX_LIMIT);
        let found = self
            .meant(asked.r#type.as_deref(), asked.path.as_deref())
            .await?;
        let page = found.iter().skip(asked.offset).take(limit);
        Ok(json!({
            "resources": page.map(described).collect::<Vec<_>>(),
            "total": found.len(),
            "limit": limit,
            "offset": asked.offset,
        }))
    }

    /// Calls a tool of this server that does what the document has a method for.
    async fn by_tool(&self, tool: &str, arguments: Value) -> Result<Value, Failure> {
        let call = json!({ "name": tool, "arguments": arguments });
        let result = self.ask("tools/call", call).await;
        let result = result.map_err(|failure| match failure.code {
            NO_TOOL => Failure::new(UNSUPPORTED, "this operation is not offered here"),
            _ => failure.by_reason(),
        })?;
        match result["isError"] == true {
            true => Err(Failure::of_result(&result).by_reason()),
            false => Ok(result),
        }
    }

    /// `search_resources`.
    pub(crate) async fn search_resources(&self) -> Result<Value, Failure> {
        let asked: Search = self.request.params()?;
        let mut arguments = json!({ "query": asked.query, "offset": asked.offset });
        if let Some(limit) = asked.limit {
            arguments["limit"] = limit.into();
        }
        if let Some(kind) = &asked.r#type {
            self.check_type(kind).await?;
            arguments["uri"] = format!("{}://", scheme_of(kind)).into();
        }
        let found = self.by_tool("search_resources", arguments).await?;
        let found = &found["structuredContent"];
        let results = found["results"].as_array().into_iter().flatten();
        let results = results.map(|it| {
            let mut result = described(it);
            result["metadata"]["modified"] = it["lastModified"].clone();
            result["relevance"] = it["relevance"].clone();
            result["highlight"] = json!({ "content": it["highlights"] });
            result
        });
        Ok(json!({
            "results": results.collect::<Vec<_>>(),
            "total": found["total"],
            "limit": found["limit"],
            "offset": found["offset"],
        }))
    }

    /// Description of a resource after a write: as lists have it, but for its state, which is newer than any list.
    async fn written(&self, uri: &str, result: &Value) -> Value {
        let listed = self
            .list("resources/list", "resources", json!({ "uri": uri }))
            .await;
        let listed = listed.unwrap_or_default();
        let mut answer = match listed.iter().find(|it| it["uri"] == uri) {
            Some(found) => described(found),
            None => json!({ "id": uri, "type": kind(uri), "metadata": {} }),
        };
        if let Some(metadata) = answer["metadata"].as_object_mut() {
            let state = &result["structuredContent"];
            for (own, theirs) in [
                ("etag", "etag"),
                ("size", "size"),
                ("modified", "lastModified"),
            ] {
                match &state[theirs] {
                    Value::Null => drop(metadata.remove(own)),
                    value => drop(metadata.insert(own.to_owned(), value.clone())),
                }
            }
        }
        answer
    }

    /// `create_resource`: by its `id`, or by `path` and `metadata.name`.
    pub(crate) async fn create_resource(&self) -> Result<Value, Failure> {
        let asked: Create = self.request.params()?;
        let uri = match (&asked.id, &asked.path, &asked.metadata.name) {
            (Some(id), None, _) => id.clone(),
            (None, Some(path), Some(name)) if path.contains("://") => {
                format!("{}/{name}", path.trim_end_matches('/'))
            }
            _ => {
                return Err(Failure::params(
                    "a new resource has an `id`, such as `files://notes/a.txt`, or a `path` such as \
                     `files://notes` and a `metadata.name`",
                ));
            }
        };
        if !is_meant(&uri, asked.r#type.as_deref(), None) {
            return Err(Failure::params(format!("`{uri}` is not of this `type`")));
        }
        if asked.metadata.mime_type.is_some() && kind(&uri) != "file" {
            return Err(Failure::params(
                "`metadata.mime_type` cannot be chosen here",
            ));
        }
        let (member, content) = content(&asked.content, &asked.metadata)?;
        let arguments = json!({ "uri": uri, member: content });
        let result = self.by_tool("resource-create", arguments).await?;
        Ok(self.written(&uri, &result).await)
    }

    /// `update_resource`: its content; metadata are those of the file system.
    pub(crate) async fn update_resource(&self) -> Result<Value, Failure> {
        let asked: Update = self.request.params()?;
        let metadata = &asked.metadata;
        let Some(new) = &asked.content else {
            return Err(Failure::new(UNSUPPORTED, "metadata cannot be changed"));
        };
        if metadata.name.is_some() || metadata.mime_type.is_some() {
            return Err(Failure::new(UNSUPPORTED, "metadata cannot be changed"));
        }
        let (member, content) = content(new, metadata)?;
        let mut arguments = json!({ "uri": asked.id, member: content });
        if let Some(etag) = asked.if_match {
            arguments["ifMatch"] = etag.into();
        }
        let result = self.by_tool("resource-write", arguments).await?;
        Ok(self.written(&asked.id, &result).await)
    }

    /// `delete_resource`. Its user has to confirm it, by an operator where rules say so.
    pub(crate) async fn delete_resource(&self) -> Result<Value, Failure> {
        let asked: Delete = self.request.params()?;
        let mut arguments = json!({ "uri": asked.id });
        if let Some(etag) = asked.if_match {
            arguments["ifMatch"] = etag.into();
        }
        self.by_tool("resource-delete", arguments).await?;
        Ok(json!({ "id": asked.id, "status": "deleted" }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_where_a_segment_does() {
        for (uri, of, path, expected) in [
            ("files://data/a", Some("file"), None, true),
            ("files://data/a", Some("files"), None, true),
            ("skill://a/b", Some("kb"), None, true),
            ("skill://a/b", Some("skill"), None, true),
            ("files://data/a", Some("db"), None, false),
            ("files://data/a", None, Some("files://data"), true),
            ("files://data-secret/a", None, Some("files://data"), false),
            ("files://data/a", None, Some("/data"), true),
            ("files://data/a", None, Some("data/"), true),
            ("files://data-secret/a", None, Some("/data"), false),
            (
                "db://shop/queries/sold?month=1",
                None,
                Some("/shop/queries/sold"),
                true,
            ),
        ] {
            assert_eq!(is_meant(uri, of, path), expected, "{uri} {of:?} {path:?}");
        }
    }
}
