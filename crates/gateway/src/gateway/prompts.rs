//! Prompts of upstreams, and the completion of arguments.

use super::by_uri::ByUri;
use crate::{
    catalogue::Digest,
    text::without_ours,
    upstream::{Upstream, call::Item},
};
use adapter_tools::{ToolCx, ToolError};
use futures_util::future::{BoxFuture, ready};
use mcp_protocol::{
    client::Answer,
    model::{
        self, ClientRequest, Complete, Completion, CompletionReference, GetPrompt, GetPromptResult,
        Prompt,
    },
};
use mcp_server::{PromptCx, PromptFailure, Prompts};
use std::{collections::HashMap, sync::Arc};

/// Prompts of all upstreams at one time.
#[derive(Debug, Default)]
pub(super) struct UpstreamPrompts {
    pub(super) entries: Vec<Prompt>,
    pub(super) origins: HashMap<String, (Arc<Upstream>, String)>,
    /// Names of prompts that are not to be used, each with the reason.
    pub(super) held: Vec<(String, String)>,
    /// Digests of the pinned definitions, by name.
    pub(super) pins: HashMap<String, Digest>,
    /// Upstreams that complete arguments.
    pub(super) completing: ByUri,
}

impl Prompts for UpstreamPrompts {
    fn entries(&self) -> &[Prompt] {
        &self.entries
    }

    fn get(&self, cx: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>> {
        let Some((upstream, name)) = self.origins.get(&cx.name) else {
            let why = "there is no such prompt".to_owned();
            return Box::pin(ready(Err(PromptFailure::Arguments(why))));
        };
        if let Some((_, why)) = self.held.iter().find(|(name, _)| *name == cx.name) {
            return Box::pin(ready(Err(PromptFailure::Held(why.clone()))));
        }
        Box::pin(async move {
            let item = Item {
                upstream,
                name,
                kind: "prompt",
            };
            let request = ClientRequest::GetPrompt(GetPrompt {
                name: name.clone(),
                arguments: cx.arguments,
                ..GetPrompt::default()
            });
            match item.ask(&cx.call, request).await {
                Ok(Answer::GetPrompt(mut result)) => {
                    without_ours(&mut result.meta);
                    for message in &mut result.messages {
                        match &mut message.content {
                            model::Content::Resource { resource, .. } => {
                                resource.uri = upstream.offered_uri(&resource.uri);
                            }
                            model::Content::ResourceLink(link) => {
                                link.uri = upstream.offered_uri(&link.uri);
                            }
                            _ => {}
                        }
                    }
                    Ok(result)
                }
                Ok(_) => Err(PromptFailure::Broken(
                    item.lost("a prompt was answered with something else", "")
                        .into(),
                )),
                Err(ToolError::NeedsInput(needed)) => Err(PromptFailure::NeedsInput(needed)),
                Err(ToolError::Held(why)) => Err(PromptFailure::Held(why)),
                Err(ToolError::Failed(failure)) => Err(PromptFailure::Told(failure.message)),
                Err(error @ (ToolError::TimedOut | ToolError::Unavailable { .. })) => {
                    Err(PromptFailure::Handler(error))
                }
                Err(ToolError::Rejected(invalid)) => {
                    let lines = invalid
                        .violations()
                        .iter()
                        .map(|it| it.message().to_owned());
                    Err(PromptFailure::Arguments(
                        lines.collect::<Vec<_>>().join("; "),
                    ))
                }
                Err(error) => Err(PromptFailure::Broken(error.into())),
            }
        })
    }

    fn held(&self) -> Vec<(String, String)> {
        self.held.clone()
    }

    /// Digest of the pinned definition.
    fn definition(&self, name: &str) -> Option<Digest> {
        self.pins.get(name).copied()
    }

    fn place(&self, name: &str) -> Option<String> {
        let (upstream, _) = self.origins.get(name)?;
        Some(format!("upstreams.{}", upstream.spec.name))
    }

    fn is_announced(&self) -> bool {
        true
    }

    fn suggest<'a>(
        &'a self,
        cx: ToolCx,
        request: &'a Complete,
    ) -> BoxFuture<'a, Option<Completion>> {
        let found = match &request.reference {
            // What is typed for a definition that nobody has approved stays here.
            CompletionReference::Prompt { name } if self.held.iter().any(|(it, _)| it == name) => {
                return Box::pin(ready(Some(Completion::default())));
            }
            CompletionReference::Prompt { name } => {
                self.origins.get(name).map(|(upstream, own)| {
                    let name = own.clone();
                    (upstream, CompletionReference::Prompt { name })
                })
            }
            CompletionReference::Resource { uri } => {
                let found = self.completing.origin(uri);
                let found = found.filter(|(upstream, uri)| upstream.spec.offers(uri));
                found.map(|(upstream, uri)| (upstream, CompletionReference::Resource { uri }))
            }
        };
        let Some((upstream, reference)) = found else {
            return Box::pin(ready(None));
        };
        if !self.completing.by_key.contains_key(&upstream.scheme_key) {
            return Box::pin(ready(Some(Completion::default())));
        }
        Box::pin(async move {
            let item = Item {
                upstream,
                name: &request.argument,
                kind: "completion of",
            };
            let asked = ClientRequest::Complete(Complete {
                reference,
                ..request.clone()
            });
            let deadline = cx.deadline;
            let asking = item.ask(&cx, asked);
            let answered = match deadline {
                Some(deadline) => match tokio::time::timeout_at(deadline.into(), asking).await {
                    Ok(answered) => answered,
                    Err(_late) => return Some(Completion::default()),
                },
                None => asking.await,
            };
            match answered {
                Ok(Answer::Complete(completion)) => Some(completion),
                // Nothing to suggest, which hinders nobody who types.
                _ => Some(Completion::default()),
            }
        })
    }
}
