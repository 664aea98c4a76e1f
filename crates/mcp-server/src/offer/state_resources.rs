//! States of an application as resources.

use crate::offer::resources::{ReadFailure, ResourceEntry, Resources, names};
use data_encoding::HEXLOWER;
use futures_util::future::BoxFuture;
use jsonrpc_core::RawJson;
use mcp_protocol::model::{
    CacheHint, CacheScope, ListResources, ReadResource, ReadResourceResult, Resource,
    ResourceContents, ResultMeta,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{error::Error, fmt, sync::Arc};

/// The scheme of states.
const SCHEME: &str = "state://";
/// The most bytes of one state, as JSON: 4 MiB.
const MAX_STATE_BYTES: usize = 4 * 1024 * 1024;
/// Characters of a name that stay as they are in a URI (RFC 3986, 2.3).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A source of states.
pub trait States: fmt::Debug + Send + Sync {
    /// The state `name` as it is now, as JSON. Dropping the future gives up.
    fn read<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<RawJson, Box<dyn Error + Send + Sync>>>;
}

/// States as resources `state://NAME`, of type `application/json`. They are read from the
/// application each time, and their changes are not announced.
#[derive(Debug)]
pub struct StateResources {
    states: Arc<dyn States>,
    names: Vec<String>,
    entries: Vec<ResourceEntry>,
}

impl StateResources {
    /// The states called `names`, in the order of their names.
    pub fn new(states: Arc<dyn States>, names: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        let entries = names.iter().map(|name| ResourceEntry {
            resource: Resource {
                uri: uri(name),
                name: name.clone(),
                description: Some(format!("The application's state \"{name}\", as it is now.")),
                mime_type: Some("application/json".to_owned()),
                ..Resource::default()
            },
            ..ResourceEntry::default()
        });
        Self {
            entries: entries.collect(),
            states,
            names,
        }
    }

    /// The state at a URI, however that is spelled.
    fn name(&self, uri: &str) -> Option<&str> {
        let (scheme, name) = uri.split_at_checked(SCHEME.len())?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return None;
        }
        let name = percent_decode_str(name).decode_utf8().ok()?;
        let at = self
            .names
            .binary_search_by(|it| it.as_str().cmp(&name))
            .ok()?;
        Some(&self.names[at])
    }
}

fn uri(name: &str) -> String {
    format!("{SCHEME}{}", utf8_percent_encode(name, UNRESERVED))
}

impl Resources for StateResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    /// States have neither categories nor tags.
    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        if filter.category.is_some() || filter.tag.is_some() {
            return Ok(Vec::new());
        }
        let Some(pattern) = &filter.uri else {
            return Ok((0..self.entries.len()).collect());
        };
        if !pattern.starts_with(SCHEME) {
            return Err(format!("`uri` is no pattern of {SCHEME}"));
        }
        let fits = |uri: &str| match pattern.strip_suffix('*') {
            Some(prefix) => uri.starts_with(prefix),
            None => uri == pattern,
        };
        let entries = self.entries.iter().enumerate();
        Ok(entries
            .filter(|(_, entry)| fits(&entry.resource.uri))
            .map(|(index, _)| index)
            .collect())
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        self.name(uri).map(self::uri)
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move {
            let name = self.name(&read.uri).ok_or(ReadFailure::NotFound)?;
            if read.range.is_some() {
                // The next part would be of another state of things.
                return Err(ReadFailure::Range(
                    "a state is read as a whole: it has no `range`".to_owned(),
                ));
            }
            let state = self.states.read(name).await;
            let text = state.map_err(ReadFailure::Unreadable)?.as_str().to_owned();
            if MAX_STATE_BYTES < text.len() {
                let why = format!(
                    "a state of {} bytes; {MAX_STATE_BYTES} are allowed",
                    text.len()
                );
                return Err(ReadFailure::Unreadable(why.into()));
            }
            let etag = etag(&text);
            let mut about = json!({ "etag": etag, "size": text.len() });
            let known = read.if_none_match.as_deref();
            let is_known = known.is_some_and(|etags| names(etags, &etag));
            if is_known {
                about["notModified"] = json!(true);
            }
            let mut meta = ResultMeta::default();
            meta.insert("io.owlclaw/resource", &about);
            let contents = ResourceContents {
                uri: read.uri.clone(),
                mime_type: Some("application/json".to_owned()),
                text: Some(text),
                blob: None,
                meta: None,
            };
            Ok(ReadResourceResult {
                contents: if is_known { Vec::new() } else { vec![contents] },
                meta,
                cache: CacheHint {
                    ttl_ms: 0,
                    scope: CacheScope::Private,
                },
            })
        })
    }
}

fn etag(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says its own name, and of `broken` nothing.
    #[derive(Debug)]
    struct Echo;

    impl States for Echo {
        fn read<'a>(
            &'a self,
            name: &'a str,
        ) -> BoxFuture<'a, Result<RawJson, Box<dyn Error + Send + Sync>>> {
            Box::pin(async move {
                if name == "broken" {
                    return Err("it is broken".into());
                }
                Ok(RawJson::from_value(&json!({ "i am": name }))?)
            })
        }
    }

    fn states() -> Arc<StateResources> {
        let names = ["till", "broken", "库存 a/b"].map(str::to_owned);
        Arc::new(StateResources::new(Arc::new(Echo), names))
    }

    async fn read(uri: &str, etag: Option<&str>) -> Result<ReadResourceResult, ReadFailure> {
        let read = ReadResource {
            uri: uri.to_owned(),
            if_none_match: etag.map(str::to_owned),
            ..ReadResource::default()
        };
        states().read(read).await
    }

    #[test]
    fn each_name_has_one_address_and_each_address_one_name() {
        let states = states();
        for (entry, name) in states.entries().iter().zip(["broken", "till", "库存 a/b"]) {
            let uri = &entry.resource.uri;
            assert!(uri.is_ascii() && !uri[8..].contains('/'), "{uri}");
            assert_eq!(states.name(uri), Some(name));
            assert_eq!(states.canonical(uri).as_ref(), Some(uri));
        }
        assert_eq!(
            states.canonical("STATE://%74ill").as_deref(),
            Some("state://till")
        );
        for stranger in [
            "state://",
            "state://no",
            "skill://till",
            "till",
            "state://till/",
            "状态",
        ] {
            assert_eq!(states.canonical(stranger), None, "{stranger}");
        }
    }

    #[tokio::test]
    async fn a_state_is_read_as_it_is_now_and_once_if_it_stays() {
        let result = read("state://till", None).await.unwrap();
        assert_eq!(
            result.contents[0].text.as_deref(),
            Some(r#"{"i am":"till"}"#)
        );
        let etag = etag(r#"{"i am":"till"}"#);
        let again = read("state://till", Some(&etag)).await.unwrap();
        assert!(again.contents.is_empty());
        let other = read("state://till", Some("other")).await.unwrap();
        assert_eq!(other.contents.len(), 1);
        assert!(matches!(
            read("state://broken", None).await,
            Err(ReadFailure::Unreadable(_))
        ));
        assert!(matches!(
            read("state://no", None).await,
            Err(ReadFailure::NotFound)
        ));
    }

    #[test]
    fn filters_of_their_own_scheme_are_understood() {
        let matching = |category: Option<&str>, uri: Option<&str>| {
            states().matching(&ListResources {
                category: category.map(str::to_owned),
                uri: uri.map(str::to_owned),
                ..ListResources::default()
            })
        };
        assert_eq!(matching(None, None), Ok(vec![0, 1, 2]));
        assert_eq!(matching(None, Some("state://*")), Ok(vec![0, 1, 2]));
        assert_eq!(matching(None, Some("state://t*")), Ok(vec![1]));
        assert_eq!(matching(None, Some("state://broken")), Ok(vec![0]));
        assert_eq!(matching(Some("sales"), None), Ok(vec![]));
        assert!(matching(None, Some("skill://*")).is_err());
    }
}
