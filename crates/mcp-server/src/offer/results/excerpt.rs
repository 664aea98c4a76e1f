//! The part of a result that is shown, and the whole as a document.

use crate::offer::results::{ResultLimit, tokens::Counter};
use jsonrpc_core::RawJson;
use mcp_protocol::model::{Annotations, CallToolResult, Content, ResultMeta};
use std::borrow::Cow;

/// The name of links to results.
pub(super) const LINK_NAME: &str = "the whole result";

/// Tokens that an image counts as: about what a large one takes once hosts have scaled it down.
const IMAGE_TOKENS: usize = 1_600;
/// The same in characters.
const IMAGE_CHARACTERS: usize = 4 * IMAGE_TOKENS;
/// The longest data of an image, in base64, that counts so; hosts refuse longer ones.
const MAX_IMAGE: usize = 7 << 20;
/// Size of what stands around the text of an item after the first, such as `{"type":"text","text":""},`.
const FRAME_CHARACTERS: usize = 26;
const FRAME_TOKENS: usize = 8;
/// Room for the note about what is not shown, and for the link.
const NOTE_CHARACTERS: usize = 600;
const NOTE_TOKENS: usize = 220;
/// The fewest bytes of a text of which a part is shown.
const LEAST_PART: usize = 200;
/// The mark at the end of such a part.
const MARK: &str = " […]";

/// A result without the secrets that the process knows.
pub(super) fn without_known(mut result: CallToolResult) -> CallToolResult {
    if !redaction::knows_any() {
        return result;
    }
    let clean = |text: &mut String| {
        if let Cow::Owned(without) = redaction::without_known(text) {
            *text = without;
        }
    };
    let clean_bytes = |text: &mut String| {
        if let Cow::Owned(without) = redaction::without_known_base64(text) {
            *text = without;
        }
    };
    let clean_json = |raw: &RawJson| match redaction::without_known_json(raw.as_str()) {
        Cow::Owned(without) => RawJson::from_serialized(without.into_bytes()),
        Cow::Borrowed(_) => raw.clone(),
    };
    let clean_meta = |meta: &mut ResultMeta| {
        let mut without = ResultMeta::default();
        for (name, value) in meta.iter() {
            let name = redaction::without_known(name).into_owned();
            without.insert_raw(name, clean_json(value));
        }
        *meta = without;
    };
    for item in &mut result.content {
        match item {
            Content::Text {
                text,
                annotations,
                meta,
            } => {
                clean(text);
                times(annotations).for_each(clean);
                clean_meta(meta);
            }
            Content::Image {
                data,
                mime_type,
                annotations,
                meta,
            }
            | Content::Audio {
                data,
                mime_type,
                annotations,
                meta,
            } => {
                clean_bytes(data);
                clean(mime_type);
                times(annotations).for_each(clean);
                clean_meta(meta);
            }
            Content::ResourceLink(link) => {
                let texts = [&mut link.uri, &mut link.name].into_iter();
                let more = [
                    &mut link.title,
                    &mut link.description,
                    &mut link.mime_type,
                    &mut link.last_modified,
                ];
                let icons = link.icons.iter_mut().map(|it| &mut it.src);
                texts
                    .chain(more.into_iter().flatten())
                    .chain(icons)
                    .for_each(clean);
                clean_meta(&mut link.meta);
            }
            Content::Resource {
                resource,
                annotations,
                meta,
            } => {
                clean(&mut resource.uri);
                let more = [&mut resource.text, &mut resource.mime_type];
                resource.blob.iter_mut().for_each(clean_bytes);
                more.into_iter().flatten().for_each(clean);
                resource.meta.iter_mut().for_each(|it| *it = clean_json(it));
                times(annotations).for_each(clean);
                clean_meta(meta);
            }
        }
    }
    result.structured_content = result.structured_content.as_ref().map(clean_json);
    clean_meta(&mut result.meta);
    result
}

/// The time of the last change, which is a text of the tool as well.
fn times(annotations: &mut Option<Box<Annotations>>) -> impl Iterator<Item = &mut String> {
    let annotations = annotations.iter_mut();
    annotations.filter_map(|it| it.last_modified.as_mut())
}

/// Room for what is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    characters: usize,
    tokens: usize,
}

impl Room {
    pub(super) fn of(limit: ResultLimit) -> Self {
        Self {
            characters: limit.characters.unwrap_or(usize::MAX),
            tokens: limit.tokens.unwrap_or(usize::MAX),
        }
    }

    pub(super) fn without_note(self) -> Self {
        self.without(NOTE_CHARACTERS, NOTE_TOKENS).unwrap_or(Self {
            characters: 0,
            tokens: 0,
        })
    }

    fn without(self, characters: usize, tokens: usize) -> Option<Self> {
        let less = |room: usize, taken: usize| match room {
            usize::MAX => Some(usize::MAX),
            room => room.checked_sub(taken),
        };
        Some(Self {
            characters: less(self.characters, characters)?,
            tokens: less(self.tokens, tokens)?,
        })
    }

    /// Tests if so many bytes of text are not too much, whatever they say: a character has one or more, and a token too.
    pub(super) fn surely_holds(self, bytes: usize) -> bool {
        bytes <= self.characters.min(self.tokens)
    }

    /// Tests if a text is not too long.
    pub(super) fn holds(self, text: &str) -> bool {
        self.surely_holds(text.len()) || self.after(text).is_ok()
    }

    /// Tests if all of a content is not too long.
    pub(super) fn holds_all(self, content: &[Content]) -> bool {
        let texts = content.iter().map(|it| match it {
            Content::Text { text, meta, .. } if meta.is_empty() => Some(text.len()),
            _ => None,
        });
        let bytes = texts.sum::<Option<usize>>();
        let frames = content.len().saturating_sub(1) * FRAME_CHARACTERS;
        bytes.is_some_and(|bytes| self.surely_holds(bytes + frames))
            || self.after_all(content).is_some()
    }

    fn after_all(self, content: &[Content]) -> Option<Self> {
        let mut items = content.iter().enumerate();
        items.try_fold(self, |room, (at, item)| room.after_item(item, at == 0))
    }

    /// The room that is left after a text, or the bytes of its longest beginning that fits.
    fn after(self, text: &str) -> Result<Self, usize> {
        let (mut counter, mut characters) = (Counter::default(), 0_usize);
        for (at, character) in text.char_indices() {
            counter.push(character);
            characters += 1;
            if self.characters < characters || self.tokens < counter.tokens() {
                return Err(at);
            }
        }
        self.without(characters, counter.tokens()).ok_or(0)
    }

    fn after_data(self, data: &str) -> Option<Self> {
        // Of base64, models make a token of about three characters in two.
        self.without(data.len(), data.len() / 3 * 2)
    }

    fn after_texts<'a>(self, texts: impl IntoIterator<Item = &'a String>) -> Option<Self> {
        let mut texts = texts.into_iter();
        texts.try_fold(self, |room, it| room.after(it).ok())
    }

    fn after_meta(self, meta: &ResultMeta) -> Option<Self> {
        let mut members = meta.iter();
        members.try_fold(self, |room, (name, value)| {
            room.after(name).ok()?.after(value.as_str()).ok()
        })
    }

    /// The room that is left after an item, with all that is sent of it: what stands around the text counts as well, but for
    /// the first item, so that a single text has all the room.
    fn after_item(self, item: &Content, is_first: bool) -> Option<Self> {
        let room = match is_first {
            true => self,
            false => self.without(FRAME_CHARACTERS, FRAME_TOKENS)?,
        };
        match item {
            Content::Text { text, meta, .. } => room.after(text).ok()?.after_meta(meta),
            Content::Image {
                data,
                mime_type,
                meta,
                ..
            } => {
                let room = room.after(mime_type).ok()?.after_meta(meta)?;
                match data.len() <= MAX_IMAGE {
                    true => room.without(IMAGE_CHARACTERS, IMAGE_TOKENS),
                    false => room.after_data(data),
                }
            }
            Content::Audio {
                data,
                mime_type,
                meta,
                ..
            } => {
                let room = room.after(mime_type).ok()?.after_meta(meta)?;
                room.after_data(data)
            }
            Content::ResourceLink(link) => {
                let texts = [&link.uri, &link.name].into_iter();
                let more = [&link.title, &link.description, &link.mime_type].into_iter();
                let icons = link.icons.iter().map(|it| &it.src);
                room.after_texts(texts.chain(more.flatten()).chain(icons))?
                    .after_meta(&link.meta)
            }
            Content::Resource { resource, meta, .. } => {
                let texts = [&resource.uri].into_iter().chain(&resource.mime_type);
                let mut room = room.after_texts(texts)?.after_meta(meta)?;
                if let Some(meta) = &resource.meta {
                    room = room.after(meta.as_str()).ok()?;
                }
                match (&resource.text, &resource.blob) {
                    (Some(text), _) => room.after(text).ok(),
                    (None, Some(blob)) => room.after_data(blob),
                    (None, None) => Some(room),
                }
            }
        }
    }

    /// The beginning of a text that fits, with a mark that there is more: to the end of a line, if one is near.
    pub(super) fn beginning(self, text: &str) -> Option<&str> {
        self.fitting(text).filter(|it| LEAST_PART <= it.len())
    }

    /// The same, however short it is.
    pub(super) fn fitting(self, text: &str) -> Option<&str> {
        let room = self.without(MARK.chars().count() + 1, 8)?;
        let end = room.after(text).err().filter(|it| *it != 0)?;
        let near = end - end / 4;
        let near = text.floor_char_boundary(near);
        let line = text[near..end].rfind('\n').map(|at| near + at + 1);
        Some(&text[..line.unwrap_or(end)])
    }
}

/// The part of a content that is shown: whole items from the first on, and the beginning of a text that is too long
/// for any room.
#[derive(Debug)]
pub(super) struct Excerpt {
    pub(super) content: Vec<Content>,
    /// Number of whole items.
    pub(super) shown: usize,
    /// Number of all items.
    pub(super) of: usize,
    /// Bytes of the next item's text that are shown.
    pub(super) cut: Option<usize>,
}

impl Excerpt {
    pub(super) fn of(content: &[Content], room: Room) -> Self {
        let mut left = room;
        let mut excerpt = Self {
            content: Vec::new(),
            shown: 0,
            of: content.len(),
            cut: None,
        };
        for item in content {
            if let Some(after) = left.after_item(item, excerpt.shown == 0) {
                left = after;
                excerpt.content.push(item.clone());
                excerpt.shown += 1;
                continue;
            }
            if let Content::Text { text, .. } = item
                && room.after(text).is_err()
                && let Some(beginning) = left.beginning(text)
            {
                excerpt.cut = Some(beginning.len());
                excerpt
                    .content
                    .push(Content::text(format!("{beginning}{MARK}")));
            }
            break;
        }
        excerpt
    }
}

/// The whole of a result as one text.
///
/// A single text is itself. Everything else is JSON with an item of the content on each line: the list of content, or an
/// object with `content`, `structuredContent` and `_meta`.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) text: String,
    pub(super) mime_type: &'static str,
    /// Offsets of the items, in bytes.
    items: Vec<u64>,
    is_single: bool,
}

impl Document {
    pub(super) fn of(result: CallToolResult) -> Self {
        let CallToolResult {
            mut content,
            structured_content: structured,
            meta,
            ..
        } = result;
        if let [
            Content::Text {
                text,
                annotations: None,
                meta: of_text,
            },
        ] = content.as_mut_slice()
            && of_text.is_empty()
            && meta.is_empty()
            && structured.as_ref().is_none_or(|it| it.as_str() == text)
        {
            return Self {
                mime_type: match structured.is_some() {
                    true => "application/json",
                    false => "text/plain",
                },
                text: std::mem::take(text),
                items: vec![0],
                is_single: true,
            };
        }
        let mut bytes = Vec::new();
        let has_more = structured.is_some() || !meta.is_empty();
        bytes.extend_from_slice(if has_more { b"{\"content\":[" } else { b"[" });
        let mut items = Vec::new();
        for (at, item) in content.drain(..).enumerate() {
            bytes.extend_from_slice(if at == 0 { b"\n" } else { b",\n" });
            items.push(bytes.len() as u64);
            // Content is plain data.
            let _ = serde_json::to_writer(&mut bytes, &item);
        }
        bytes.extend_from_slice(b"\n]");
        if let Some(structured) = structured {
            bytes.extend_from_slice(b",\n\"structuredContent\":");
            items.push(bytes.len() as u64);
            bytes.extend_from_slice(RawJson::as_str(&structured).as_bytes());
        }
        if !meta.is_empty() {
            bytes.extend_from_slice(b",\n\"_meta\":");
            let _ = serde_json::to_writer(&mut bytes, &meta);
        }
        if has_more {
            bytes.push(b'}');
        }
        Self {
            text: String::from_utf8(bytes).unwrap_or_default(),
            mime_type: "application/json",
            items,
            is_single: false,
        }
    }

    /// The place from which on `excerpt` does not show it.
    pub(super) fn offset_of(&self, excerpt: &Excerpt) -> u64 {
        match (self.is_single, excerpt.cut) {
            (true, Some(cut)) => cut as u64,
            (true, None) => 0,
            (false, _) => self.items.get(excerpt.shown).copied().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimated_tokens;
    use proptest::prelude::*;
    use serde_json::Value;

    fn item() -> impl Strategy<Value = Content> {
        let text = prop_oneof![
            "[a-zé \n]{0,40}",
            "[a-z0-9{}:,]{0,3000}",
            "([a-zÀ-ž ]{0,60}\n){0,60}",
            "[\u{4e00}-\u{4fff}]{0,1500}",
        ];
        prop_oneof![
            6 => text.prop_map(Content::text),
            1 => (1_usize..20_000).prop_map(|it| Content::image("A".repeat(it), "image/png")),
            1 => (1_usize..3_000).prop_map(|it| Content::audio("A".repeat(it), "audio/wav")),
        ]
    }

    fn text(content: &[Content]) -> String {
        let texts = content.iter().filter_map(|it| match it {
            Content::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    proptest! {
        #[test]
        fn an_excerpt_is_a_beginning_that_fits(
            content in proptest::collection::vec(item(), 0..6),
            characters in proptest::option::of(1_000_usize..6_000),
            tokens in proptest::option::of(300_usize..2_500),
        ) {
            let room = Room::of(ResultLimit { characters, tokens, breaks_schema: false });
            let excerpt = Excerpt::of(&content, room.without_note());
            let shown = text(&excerpt.content);
            prop_assert!(shown.chars().count() + NOTE_CHARACTERS <= characters.unwrap_or(usize::MAX));
            prop_assert!(estimated_tokens(&shown) + NOTE_TOKENS <= tokens.unwrap_or(usize::MAX));
            prop_assert_eq!(&excerpt.content[..excerpt.shown], &content[..excerpt.shown]);
            if excerpt.shown < content.len() && excerpt.cut.is_none() {
                // The next item does not fit, or fits alone and is left to be read.
                let next = &content[excerpt.shown];
                let left = room.without_note().after_all(&content[..excerpt.shown]).unwrap();
                prop_assert!(left.after_item(next, excerpt.shown == 0).is_none());
            }
            if let Some(cut) = excerpt.cut {
                let Content::Text { text, .. } = &content[excerpt.shown] else {
                    panic!("a text is cut");
                };
                let Content::Text { text: shown, .. } = excerpt.content.last().unwrap() else {
                    panic!("a text is shown");
                };
                prop_assert_eq!(shown, &format!("{}{MARK}", &text[..cut]));
            }
            // Nothing is lost of the whole, and each item has its place in it.
            let whole = Document::of(CallToolResult {
                content: content.clone(),
                structured_content: None,
                is_error: false,
                meta: ResultMeta::default(),
            });
            if let [Content::Text { text, .. }] = content.as_slice() {
                prop_assert_eq!(&whole.text, text);
            } else {
                let back: Value = serde_json::from_str(&whole.text).unwrap();
                prop_assert_eq!(back, serde_json::to_value(&content).unwrap());
                prop_assert_eq!(whole.items.len(), content.len());
                for (item, at) in content.iter().zip(&whole.items) {
                    let item = serde_json::to_string(item).unwrap();
                    prop_assert!(whole.text[usize::try_from(*at).unwrap()..].starts_with(&item));
                }
            }
        }
    }

    #[test]
    fn all_that_is_sent_of_an_item_counts() {
        let long = "x".repeat(5_000);
        let link = |change: fn(&mut mcp_protocol::model::Resource, String)| {
            let mut link = Box::default();
            change(&mut link, "x".repeat(5_000));
            Content::ResourceLink(link)
        };
        let embedded = mcp_protocol::model::ResourceContents {
            uri: "file:///a".to_owned(),
            mime_type: Some(long.clone()),
            text: Some("a".to_owned()),
            blob: None,
            meta: None,
        };
        let room = Room::of(ResultLimit {
            characters: Some(4_000),
            tokens: None,
            breaks_schema: false,
        });
        for item in [
            Content::image("AAAA", long.clone()),
            Content::audio("AAAA", long),
            Content::resource(embedded),
            link(|it, long| it.title = Some(long)),
            link(|it, long| it.mime_type = Some(long)),
            link(|it, long| it.meta.insert("k", &long)),
        ] {
            assert!(!room.holds_all(std::slice::from_ref(&item)), "{item:?}");
        }
        // Items that say nothing are sent as well.
        let empty = vec![Content::text(""); 1_000];
        assert!(!room.holds_all(&empty));
        let shown = Excerpt::of(&empty, room).content;
        let bytes = serde_json::to_string(&shown).unwrap().len();
        assert!(bytes <= 4_100 && 3_000 < bytes, "{bytes}");
        assert!(room.holds_all(&[Content::text("x".repeat(4_000))]));
    }
}
