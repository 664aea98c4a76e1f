//! The tool that searches.

use std::sync::Arc;

use adapter_tools::{
    About, Annotations, Arguments, Content, Executor, ResourceLink, RiskClass, TaskSupport, Tool,
    ToolCx, ToolError, ToolOutput,
};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json, value::to_raw_value};

use crate::search::{
    index::{Conditions, Found, Hit},
    indexer::Indexer,
    words::{expressions, unspaced},
};

/// Name of the tool.
pub(crate) const SEARCH_RESOURCES: &str = "search_resources";

const DEFAULT_LIMIT: usize = 10;
const MAX_LIMIT: usize = 100;
const MAX_OFFSET: usize = 10_000;

struct SearchTool(Arc<Indexer>);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    query: String,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    category: Option<String>,
    #[serde(default)]
    tag: Option<String>,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    uri: Option<String>,
    #[serde(default)]
    modified_since: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    offset: Option<usize>,
}

pub(crate) fn tool(indexer: &Arc<Indexer>) -> Tool {
    let text = |description: &str| json!({ "type": "string", "maxLength": 1000, "description": description });
    let schema = json!({
        "type": "object",
        "properties": {
            "query": text("Words; those between double quotes belong together. word* stands for any end. Documents with all words come, or else those with any."),
            "kind": { "enum": ["file", "skill", "other"], "description": "Only files, skills, or other resources, which are known by name and description alone." },
            "category": text("Only of this category: that of a skill, or the root of files."),
            "tag": text("Only with this tag."),
            "mediaType": text("Only of media types that begin like this, such as text/ or application/pdf."),
            "uri": text("Only at addresses that begin like this."),
            "modifiedSince": { "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$", "description": "Only if changed since this time, in UTC: 2026-01-31 or 2026-01-31T12:00:00Z." },
            "limit": { "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": "Results of one answer; 10 unless given." },
            "offset": { "type": "integer", "minimum": 0, "maximum": MAX_OFFSET, "description": "Results to leave out; nextOffset of the answer before." },
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    Tool::new(SEARCH_RESOURCES, schema, SearchTool(Arc::clone(indexer)))
        .describe(
            "Searches the names, descriptions and texts of resources: files, skills and others. Read what was found with \
             resources/read.",
        )
        .with_annotations(Annotations {
            read_only: Some(true),
            destructive: Some(false),
            idempotent: Some(true),
            open_world: Some(false),
        })
        .with_risk(RiskClass::ReadOnly)
        .with_task_support(TaskSupport::Forbidden)
        .with_context(true)
}

impl Executor for SearchTool {
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let asked: Asked = serde_json::from_value(crate::with_integers(&arguments))
                .map_err(|error| ToolError::failed(error.to_string()))?;
            let indexer = Arc::clone(&self.0);
            let searching = tokio::task::spawn_blocking(move || search(&indexer, asked, &cx));
            searching.await.map_err(ToolError::broken)?
        })
    }
}

fn search(indexer: &Indexer, asked: Asked, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
    let Some((all, any)) = expressions(&asked.query) else {
        return Err(ToolError::failed_with(
            "`query` has no word to search for",
            json!({ "reason": "no_words" }),
        ));
    };
    let conditions = Conditions {
        kind: asked.kind,
        category: asked.category,
        tag: asked.tag,
        media_type: asked.media_type,
        uri: asked.uri,
        modified_since: asked.modified_since,
    };
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    let offset = asked.offset.unwrap_or(0).min(MAX_OFFSET);
    // Without somebody who vouches for the caller it finds nothing.
    let reads = cx.resources();
    let may_know = |uri: &str| reads.is_some_and(|it| it.permits(uri));
    let find = |expression: &str| {
        let found = indexer
            .index
            .find(expression, &conditions, offset, limit, &may_know);
        found.map_err(ToolError::broken)
    };
    let mut matched = "all";
    let mut found = find(&all)?;
    if found.total == 0 && any != all {
        matched = "any";
        found = find(&any)?;
    }
    let next = offset + found.hits.len();
    let has_more = next < found.total && !found.hits.is_empty();
    let results: Vec<_> = found.hits.iter().map(|it| result(it, &found)).collect();
    let said = json!({
        "results": results,
        "total": found.total,
        "totalIsExact": found.is_exact,
        "offset": offset,
        "limit": limit,
        "nextOffset": has_more.then_some(next),
        "matched": matched,
        "isCurrent": indexer.is_current(),
    });
    let raw = to_raw_value(&said).map_err(ToolError::broken)?;
    let output = ToolOutput::from_raw(raw);
    Ok(found.hits.into_iter().fold(output, |output, hit| {
        output.with_content(Content::ResourceLink(Box::new(ResourceLink {
            uri: hit.uri,
            size: hit.size.and_then(|it| u64::try_from(it).ok()),
            title: hit.title,
            name: unspaced(&hit.name),
            description: hit.description.as_deref().map(unspaced),
            mime_type: hit.media_type,
            icons: Vec::new(),
            about: About::default(),
        })))
    }))
}

fn result(hit: &Hit, found: &Found) -> Value {
    let relevance = match 0.0 < found.best {
        true => (hit.score / found.best * 1_000.0).round() / 1_000.0,
        false => 1.0,
    };
    // Marks of words that were found, which no text has by itself.
    let excerpt = unspaced(&hit.excerpt).replace(['\u{2}', '\u{3}'], "**");
    json!({
        "uri": hit.uri,
        "name": unspaced(&hit.name),
        "title": hit.title,
        "description": hit.description.as_deref().map(unspaced),
        "mimeType": hit.media_type,
        "category": hit.category,
        "size": hit.size,
        "lastModified": hit.modified,
        "relevance": relevance,
        "highlights": [excerpt.split_whitespace().collect::<Vec<_>>().join(" ")],
    })
}
