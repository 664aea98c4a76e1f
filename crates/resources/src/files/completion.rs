//! Completion of paths in the templates of directories of files.

use std::{collections::BTreeSet, sync::Arc};

use adapter_tools::ToolCx;
use futures_util::future::{BoxFuture, ready};
use mcp_protocol::model::{Complete, Completion, CompletionReference};
use mcp_server::Prompts;

use crate::files::{
    folder::Folder,
    offered::{VARIABLE, template},
};

/// The most suggestions of one answer (MCP 2026-07-28, completion).
const MAX_VALUES: usize = 100;
/// The most paths that are looked at for one answer.
const MAX_LOOKED_AT: usize = 10_000;

/// Suggestions for the paths of files: names of one directory at a time, those of directories with a slash at the end.
/// Callers are suggested what they may read.
#[derive(Debug)]
pub(crate) struct PathCompletion(pub(crate) Arc<[Arc<Folder>]>);

impl PathCompletion {
    fn paths(folder: &Folder, typed: &str, may_read: impl Fn(&str) -> bool) -> Completion {
        let mut values = BTreeSet::new();
        let mut looked_at = 0;
        let mut has_more = false;
        folder.beginning_with(typed, |path| {
            looked_at += 1;
            if MAX_LOOKED_AT < looked_at || MAX_VALUES < values.len() {
                has_more = true;
                return false;
            }
            if may_read(&folder.address(path)) {
                let path = path.as_str();
                let end = path[typed.len()..].find('/');
                let end = end.map_or(path.len(), |it| typed.len() + it + 1);
                values.insert(path[..end].to_owned());
            }
            true
        });
        has_more |= MAX_VALUES < values.len();
        Completion {
            total: (!has_more).then_some(values.len() as u64),
            values: values.into_iter().take(MAX_VALUES).collect(),
            has_more,
        }
    }
}

impl Prompts for PathCompletion {
    fn suggest<'a>(
        &'a self,
        cx: ToolCx,
        request: &'a Complete,
    ) -> BoxFuture<'a, Option<Completion>> {
        let CompletionReference::Resource { uri } = &request.reference else {
            return Box::pin(ready(None));
        };
        let Some(folder) = self.0.iter().find(|it| template(it) == *uri) else {
            return Box::pin(ready(None));
        };
        let found = match (cx.resources(), request.argument == VARIABLE) {
            (Some(reads), true) => Self::paths(folder, &request.value, |uri| reads.permits(uri)),
            // Nobody vouches for the caller.
            _ => Completion::default(),
        };
        Box::pin(ready(Some(found)))
    }

    fn completes_resources(&self) -> bool {
        true
    }
}
