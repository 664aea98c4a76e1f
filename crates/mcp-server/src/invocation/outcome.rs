//! Ends of calls, as budgets, breakers, metrics and the ledger see them. What follows from a failure
//! is in the table of `failure.rs`.

use crate::invocation::{
    Invoked,
    failure::{Charge, InvocationError},
    verdict::Ended,
};
use governance::Ending;
use mcp_protocol::{
    model::{CallToolResult, Content},
    write_plain_text,
};
use redaction::Redactor;
use std::borrow::Cow;

/// The answer of a tool as it is recorded: all that it has said, without secrets and without what the server adds.
///
/// Content is its list. Structured content that the content repeats to the letter stands alone, as nothing else was
/// answered. Anything else is an object with `content`, and with `structuredContent` and `_meta` where there are any.
/// Parts are redacted one by one, since pointers lead into each from its own beginning.
pub(crate) fn recorded_result<'a>(
    result: &'a CallToolResult,
    capability: &str,
    redactor: &Redactor,
) -> Cow<'a, str> {
    let structured = result.structured_content.as_ref();
    if let Some(structured) = structured
        && result.meta.is_empty()
        && repeats(&result.content, structured.as_str())
    {
        return redactor.json(capability, structured.as_str());
    }
    let kept = |text: String| match redactor.json(capability, &text) {
        Cow::Owned(without) => without,
        Cow::Borrowed(_) => text,
    };
    let content = kept(content_text(&result.content));
    if structured.is_none() && result.meta.is_empty() {
        return content.into();
    }
    let mut text = format!(r#"{{"content":{content}"#);
    if let Some(structured) = structured {
        text.push_str(r#","structuredContent":"#);
        text.push_str(&redactor.json(capability, structured.as_str()));
    }
    if !result.meta.is_empty() {
        let meta = serde_json::to_string(&result.meta).unwrap_or_default();
        text.push_str(r#","_meta":"#);
        text.push_str(&kept(meta));
    }
    text.push('}');
    text.into()
}

/// Tests if content says what structured content says, and nothing else. Structured content that could be taken for a
/// record of both is not said to.
fn repeats(content: &[Content], structured: &str) -> bool {
    let [
        Content::Text {
            text,
            annotations: None,
            meta,
        },
    ] = content
    else {
        return false;
    };
    meta.is_empty()
        && text == structured
        && !structured.contains("content\"")
        && !structured.contains("\\u")
}

fn content_text(content: &[Content]) -> String {
    let mut text = Vec::with_capacity(128);
    if write_plain_text(content, &mut text)
        && let Ok(text) = String::from_utf8(text)
    {
        return text;
    }
    serde_json::to_string(content).unwrap_or_default()
}

/// About how many bytes the answer of a tool has: all of it, structured content too.
pub(crate) fn size_of_result(result: &CallToolResult) -> usize {
    let content = result.content.iter().map(|it| match it {
        Content::Text { text, .. } => text.len(),
        Content::Image { data, .. } | Content::Audio { data, .. } => data.len(),
        Content::ResourceLink(link) => link.uri.len() + link.name.len(),
        Content::Resource { resource, .. } => {
            let bytes = resource.text.as_ref().or(resource.blob.as_ref());
            resource.uri.len() + bytes.map_or(0, String::len)
        }
    });
    let structured = result.structured_content.as_ref();
    let meta = result
        .meta
        .iter()
        .map(|(name, value)| name.len() + value.as_str().len());
    content.chain(meta).sum::<usize>() + structured.map_or(0, |it| it.as_str().len())
}

/// The cost of a call with this end.
pub(crate) fn charge_of(outcome: &Result<Invoked, InvocationError>) -> Charge {
    match outcome {
        // A handler that asks has run as well, and can be had to ask again and again.
        Ok(
            Invoked::Tool(_) | Invoked::Resource(_) | Invoked::Prompt(_) | Invoked::NeedsInput(_),
        ) => Charge::Estimate,
        Ok(Invoked::NeedsConfirmation(_)) => Charge::Released,
        Err(error) => error.meaning().charge,
    }
}

/// True if a call that was let through has not begun all the same.
pub(crate) fn never_began(outcome: &Result<Invoked, InvocationError>) -> bool {
    charge_of(outcome) == Charge::Released
}

/// The end of a call as breakers see it: the health of what was called.
pub(crate) fn ending_of(outcome: &Result<Invoked, InvocationError>) -> Ending {
    match outcome {
        Ok(Invoked::Tool(result)) if result.is_error => Ending::Failed,
        Ok(Invoked::Tool(_) | Invoked::Resource(_) | Invoked::Prompt(_)) => Ending::Succeeded,
        // The call has not done yet what it was made for.
        Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_)) => Ending::NotRun,
        Err(error) => error.meaning().breaker,
    }
}

/// The end of a call as metrics count it.
pub(crate) fn ended_as(outcome: &Result<Invoked, InvocationError>) -> Ended {
    match outcome {
        Ok(Invoked::Tool(result)) if result.is_error => Ended::Error,
        Ok(Invoked::Tool(_) | Invoked::Resource(_) | Invoked::Prompt(_)) => Ended::Ok,
        Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_)) => Ended::Asked,
        Err(error) => error.meaning().ended,
    }
}
