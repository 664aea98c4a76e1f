//! Results of calls that are read without a parser, as nearly all are written.

use super::{
    Answer, Answered,
    meta::{SERVER_INFO, SUBSCRIPTION_ID},
};
use crate::{
    Era, ProtocolVersion,
    model::{CallToolResult, Content, Implementation, Object, ResultMeta, meta::place},
};
use jsonrpc_core::{Id, Member, RawJson, take_items, take_members};

/// The result of a call of a tool; `None` if only a parser can read or refuse it.
pub(super) fn called(version: ProtocolVersion, result: &RawJson) -> Option<Answered> {
    let mut it = Called {
        result,
        is_modern: version.era() == Era::Modern,
        is_complete: None,
        content: None,
        structured_content: None,
        is_error: None,
        meta: None,
        server_info: None,
        subscription: None,
    };
    if !take_members(result.as_str(), |member| it.member(member).is_some()) {
        return None;
    }
    if it.content.is_none() && it.structured_content.is_none() {
        return None;
    }
    let meta = it.meta.unwrap_or_default();
    Some(Answered {
        answer: Answer::CallTool(CallToolResult {
            content: it.content.unwrap_or_default(),
            structured_content: it.structured_content,
            is_error: it.is_error.unwrap_or_default(),
            meta: meta.clone(),
        }),
        server_info: it.server_info,
        subscription: it.subscription,
        meta,
        left_out: Vec::new(),
        as_sent: Vec::new(),
        bytes: result.as_str().len(),
    })
}

/// The members of a result that were read, each at most once.
struct Called<'a> {
    result: &'a RawJson,
    is_modern: bool,
    is_complete: Option<()>,
    content: Option<Vec<Content>>,
    structured_content: Option<RawJson>,
    is_error: Option<bool>,
    meta: Option<ResultMeta>,
    server_info: Option<Implementation>,
    subscription: Option<Id>,
}

impl Called<'_> {
    fn member(&mut self, member: Member<'_>) -> Option<()> {
        match member.name {
            "resultType" => {
                let is_complete = member.plain_text()? == "complete";
                once(&mut self.is_complete, is_complete.then_some(())?)
            }
            "content" => {
                let mut blocks = Vec::new();
                let are_read = take_items(member.value, |block| {
                    let read = content(block);
                    read.map(|it| blocks.push(it)).is_some()
                });
                once(&mut self.content, are_read.then_some(blocks)?)
            }
            "structuredContent" if member.value != "null" => {
                let structured = self.part(member.value);
                once(&mut self.structured_content, structured)
            }
            "isError" => match member.value {
                "true" => once(&mut self.is_error, true),
                "false" => once(&mut self.is_error, false),
                _ => None,
            },
            "_meta" => {
                let mut meta = ResultMeta::default();
                let are_read =
                    take_members(member.value, |it| self.meta_member(it, &mut meta).is_some());
                once(&mut self.meta, are_read.then_some(meta)?)
            }
            "structuredContent" | "task" | "ttlMs" | "cacheScope" => None,
            _ => Some(()),
        }
    }

    fn meta_member(&mut self, member: Member<'_>, meta: &mut ResultMeta) -> Option<()> {
        match member.name {
            SERVER_INFO if self.is_modern => {
                once(&mut self.server_info, server_info(member.value)?)
            }
            SUBSCRIPTION_ID if self.is_modern => {
                let id = serde_json::from_str(member.value).ok()?;
                once(&mut self.subscription, id)
            }
            name => {
                meta.insert_raw(name.to_owned(), self.part(member.value));
                Some(())
            }
        }
    }

    /// A part of the result, which shares its text.
    fn part(&self, text: &str) -> RawJson {
        self.result.slice(place(self.result.as_bytes(), text))
    }
}

/// Puts `value` where there is none yet.
fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

fn content(block: &str) -> Option<Content> {
    let (mut kind, mut text, mut data, mut mime_type) = (None, None, None, None);
    let is_plain = take_members(block, |member| {
        let slot = match member.name {
            "type" => &mut kind,
            "text" => &mut text,
            "data" => &mut data,
            "mimeType" => &mut mime_type,
            "annotations" | "_meta" => return false,
            _ => return true,
        };
        slot.replace(member).is_none()
    });
    let kind = kind.as_ref().and_then(Member::plain_text);
    match (kind, text, data, mime_type) {
        (Some("text"), Some(text), ..) if is_plain => Some(Content::text(string(text)?)),
        (Some("image"), _, Some(data), Some(mime_type)) if is_plain => {
            Some(Content::image(string(data)?, string(mime_type)?))
        }
        _ => serde_json::from_str(block).ok(),
    }
}

fn string(member: Member<'_>) -> Option<String> {
    match member.plain_text() {
        Some(text) => Some(text.to_owned()),
        None => serde_json::from_str(member.value).ok(),
    }
}

fn server_info(json: &str) -> Option<Implementation> {
    let (mut name, mut version) = (None, None);
    let is_plain = take_members(json, |member| {
        let slot = match member.name {
            "name" => &mut name,
            "version" => &mut version,
            _ => return false,
        };
        let text = member.plain_text();
        text.is_some_and(|it| slot.replace(it.to_owned()).is_none())
    });
    match (name, version) {
        (Some(name), Some(version)) if is_plain => Some(Implementation {
            name,
            version,
            ..Implementation::default()
        }),
        _ => {
            let Object(info) = serde_json::from_str(json).ok()?;
            Some(info)
        }
    }
}
