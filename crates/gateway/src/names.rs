//! Names under which tools, prompts and resources of upstreams are offered, and back.
//!
//! A name is found in a table and never split: `mcp_a_b_c` may be `b_c` of `a`, or `c` of `a_b`. Who has a
//! name keeps it, over restarts too, since rules are about it; who comes later gets a suffix.

use data_encoding::HEXLOWER;
use redaction::is_misleading;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The most characters of a name: some clients take no more.
pub const MAX_NAME: usize = 64;
/// Hexadecimal digits of a suffix.
const DIGITS: usize = 8;
/// The most names of one upstream that are kept for items which it lists no more.
pub(crate) const MAX_GONE: usize = 10_000;

/// The form of names: text with `{tool}`, and `{server}` mostly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameTemplate(String);

impl Default for NameTemplate {
    fn default() -> Self {
        Self("mcp_{server}_{tool}".to_owned())
    }
}

impl NameTemplate {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// The mistake in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.matches("{tool}").count() != 1 {
            return Err("it must have `{tool}` once".to_owned());
        }
        let rest = text.replacen("{tool}", "", 1).replacen("{server}", "", 1);
        if !rest.chars().all(is_legal) {
            return Err(
                "besides `{tool}` and `{server}` once, it may have A-Z a-z 0-9 _ . -".to_owned(),
            );
        }
        if MAX_NAME / 2 < rest.len() {
            return Err(format!(
                "more than {} characters are too many",
                MAX_NAME / 2
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The template of an upstream whose names begin with `prefix`.
    #[must_use]
    pub fn with_prefix(prefix: &str) -> Self {
        let prefix: String = prefix.chars().filter(|it| is_legal(*it)).collect();
        Self(format!("{prefix}{{tool}}"))
    }

    /// The text with which all names of `server` begin.
    #[must_use]
    pub fn beginning(&self, server: &str) -> String {
        let before = self.0.split("{tool}").next().unwrap_or_default();
        let legal = |it: char| if is_legal(it) && it != '-' { it } else { '_' };
        let server: String = server.chars().map(legal).collect();
        before.replacen("{server}", &server, 1)
    }

    /// The name that `item` of `server` would have if it were alone. One that cannot be kept as it is has a
    /// suffix, which depends on nothing else.
    fn of(&self, server: &str, item: &str) -> String {
        let part = |text: &str| -> String {
            let legal = |it: char| if is_legal(it) { it } else { '_' };
            text.chars().map(legal).collect()
        };
        let server_part = part(server).replace('-', "_");
        let name = self.0.replacen("{server}", &server_part, 1);
        let name = name.replacen("{tool}", &part(item), 1);
        let is_kept = name.len() <= MAX_NAME && !item.is_empty() && item.chars().all(is_legal);
        if is_kept {
            name
        } else {
            suffixed(&name, server, item)
        }
    }
}

fn is_legal(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_-.".contains(character)
}

/// `name` with digits that tell `item` of `server` apart from all others.
fn suffixed(name: &str, server: &str, item: &str) -> String {
    let mut name: String = name.chars().take(MAX_NAME - DIGITS - 1).collect();
    name.push('_');
    name.push_str(&digits(&[server, item]));
    name
}

pub(crate) fn digits(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    HEXLOWER.encode(&digest.finalize()[..DIGITS / 2])
}

/// Names of items of one kind, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NameTable {
    names: BTreeMap<String, Origin>,
    /// Number of changes since it was read.
    #[serde(skip)]
    changes: u64,
}

/// Upstream and item that a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The upstream's name.
    pub server: String,
    /// The item's own name there.
    pub item: String,
}

impl NameTable {
    /// Number of changes of the table since it was read; an item whose name and neighbours are as before makes none.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The name of `item` of `server`: the one that it has, or a new one. Items that are new together are to
    /// come sorted, so that the outcome is the same each time.
    pub fn assign(&mut self, template: &NameTemplate, server: &str, item: &str) -> String {
        let origin = Origin {
            server: server.to_owned(),
            item: item.to_owned(),
        };
        let plain = template.of(server, item);
        let with_suffix = suffixed(&plain, server, item);
        let is_own = |name: &String| self.names.get(name) == Some(&origin);
        if is_own(&plain) {
            return plain;
        }
        if is_own(&with_suffix) && self.names.contains_key(&plain) {
            return with_suffix;
        }
        // A name of another form, from before the configuration changed, is free for others. So is one with a suffix when
        // the item that had the plain name is none any more: rules about that are about this item now, as if it had been
        // alone.
        self.names.retain(|_, it| *it != origin);
        let name = match self.names.contains_key(&plain) {
            false => plain,
            // Taken as well only if somebody has chosen an item's name for that.
            true => with_suffix,
        };
        self.names.entry(name.clone()).or_insert(origin);
        self.changes += 1;
        name
    }

    /// The name that `item` of `server` has, if it has one.
    #[must_use]
    pub fn given(&self, server: &str, item: &str) -> Option<&str> {
        let mut names = self.names.iter();
        let found = names.find(|(_, it)| it.server == server && it.item == item);
        found.map(|(name, _)| name.as_str())
    }

    /// The item that has the name which `item` of `server` would have had, if it has another for that.
    pub(crate) fn taken_by(
        &self,
        template: &NameTemplate,
        server: &str,
        item: &str,
    ) -> Option<(String, &Origin)> {
        let plain = template.of(server, item);
        let owner = self.names.get(&plain)?;
        ((&*owner.server, &*owner.item) != (server, item)).then_some((plain, owner))
    }

    /// Forgets names of items of `server` that are not there, if there are more than `most` of those.
    pub(crate) fn forget(&mut self, server: &str, most: usize, is_there: impl Fn(&str) -> bool) {
        let is_gone = |it: &Origin| it.server == server && !is_there(&it.item);
        if most < self.names.values().filter(|it| is_gone(it)).count() {
            self.names.retain(|_, it| !is_gone(it));
            self.changes += 1;
        }
    }

    /// Upstream and item that `name` stands for.
    #[must_use]
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.names.get(name)
    }

    /// Frees the names of all upstreams but those of which `is_kept` is true.
    pub fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        let before = self.names.len();
        self.names.retain(|_, it| is_kept(&it.server));
        self.changes += u64::from(self.names.len() != before);
    }
}

/// The part of a URI's scheme that stands for an upstream: a function of its name alone.
#[must_use]
pub fn scheme_key(server: &str) -> String {
    let mut is_exact = !server.is_empty();
    let legal = |it: char| match it {
        'a'..='z' | '0'..='9' | '-' => it,
        '_' => '.',
        _ => {
            is_exact = false;
            let lower = it.to_ascii_lowercase();
            if lower.is_ascii_alphanumeric() {
                lower
            } else {
                '-'
            }
        }
    };
    let key: String = server.chars().map(legal).collect();
    match is_exact {
        true => key,
        false => format!("{key}-{}", digits(&[server])),
    }
}

/// The URI, or template of URIs, under which `uri` of the upstream with this key is offered. `ui://` stays
/// `ui://`, since hosts know apps by it.
#[must_use]
pub fn offered_uri(key: &str, uri: &str) -> String {
    match uri.strip_prefix("ui://") {
        Some(rest) => format!("ui://mcp.{key}/{rest}"),
        None => format!("mcp.{key}+{uri}"),
    }
}

/// True if a URI is the one plain spelling of what it names: lower case in scheme and host, a host where the scheme wants
/// one, of which none is `.` or ends like that, no user, no default port, no `.`, `..` or empty segment (so no slash at
/// the end, but for `file:///`), no backslash, control character or character that nobody sees, no percent-encoding of what needs none, of a slash
/// or in lower case (RFC 3986, 6.2.2 and 6.2.3), and no fragment, which is not part of the name. A file has no host and
/// no query, and an absolute path (RFC 8089).
pub(crate) fn is_plain(uri: &str) -> bool {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let Some((scheme, rest)) = uri[..end].split_once(':') else {
        return false;
    };
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let is_lower = |text: &str| !text.bytes().any(|it| it.is_ascii_uppercase() || it == b'%');
    let is_step = |it: &str| !matches!(it, "" | "." | "..");
    // `x://` and `x://host/` are other spellings of `x:` and `x://host`.
    let has_plain_path = match path.strip_prefix('/') {
        Some("") => rest == "///",
        Some(path) => path.split('/').all(is_step),
        None if path.is_empty() => !authority.is_empty(),
        None => path.split('/').all(is_step),
    };
    let (default_ports, needs_host): (&[&str], bool) = match scheme {
        "http" | "ws" => (&["", "80"], true),
        "https" | "wss" => (&["", "443"], true),
        "ui" => (&[""], true),
        _ => (&[""], false),
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let lacks_host = needs_host && host.is_empty();
    let has_plain_authority = !lacks_host
        && !authority.contains('@')
        && !host.ends_with('.')
        && port.is_none_or(|port| !default_ports.contains(&port) && !port.starts_with('0'));
    let is_plain_file = || rest.starts_with("///") && end == uri.len();
    is_lower(scheme)
        && has_plain_authority
        && (scheme != "file" || is_plain_file())
        && !uri.contains('#')
        && !uri.ends_with('?')
        && is_lower(authority)
        && has_plain_path
        && !uri.contains(|it: char| it.is_control() || it.is_whitespace() || it == '\\')
        && !decoded(uri).contains(is_misleading)
        && uri.split('%').skip(1).all(is_needed)
}

/// A URI without percent-encoding.
fn decoded(uri: &str) -> String {
    let mut parts = uri.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2);
        match digits.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            None => bytes.extend(part.as_bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// True if the encoded byte at the beginning of `after`, which follows a `%`, needs to be encoded.
fn is_needed(after: &str) -> bool {
    let Some(digits) = after.get(..2).filter(|it| {
        let mut digits = it.bytes();
        digits.all(|it| it.is_ascii_digit() || (b'A'..=b'F').contains(&it))
    }) else {
        return false;
    };
    let byte = u8::from_str_radix(digits, 16).unwrap_or_default();
    let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !is_unreserved && !byte.is_ascii_control() && byte != b'/' && byte != b'\\'
}

/// The key of the upstream and the URI there of what is offered as `uri`; `None` if it is no such URI.
#[must_use]
pub fn original_uri(uri: &str) -> Option<(&str, String)> {
    if let Some(rest) = uri.strip_prefix("ui://mcp.") {
        let (key, rest) = rest.split_once('/')?;
        return Some((key, format!("ui://{rest}")));
    }
    let (key, original) = uri.strip_prefix("mcp.")?.split_once('+')?;
    let is_key = key
        .bytes()
        .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b".-".contains(&it));
    (is_key && !original.is_empty() && !original.starts_with("ui://"))
        .then(|| (key, original.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_that_is_free_again_is_that_of_the_item_which_had_to_do_without() {
        let (template, mut table) = (NameTemplate::default(), NameTable::default());
        let plain = table.assign(&template, "h-h", "echo");
        let twin = table.assign(&template, "h_h", "echo");
        assert_ne!(plain, twin);
        assert_eq!(table.assign(&template, "h_h", "echo"), twin);
        table.keep(|it| it == "h_h");
        assert_eq!(table.assign(&template, "h_h", "echo"), plain);
        assert_eq!(table.taken_by(&template, "h_h", "echo"), None);
        assert_eq!(table.origin(&twin), None);
    }

    proptest! {
        /// Property 4 of document 002, by the table: names of the document's form are not reversible as text.
        #[test]
        fn each_name_leads_back_to_its_server_and_tool(
            pairs in prop::collection::btree_set(("[ab_-]{1,4}", "[ab_]{1,4}"), 1..30),
        ) {
            let template = NameTemplate::default();
            let mut table = NameTable::default();
            let named: Vec<_> = pairs
                .iter()
                .map(|(server, tool)| (table.assign(&template, server, tool), server, tool))
                .collect();
            let names: std::collections::BTreeSet<_> = named.iter().map(|it| &it.0).collect();
            prop_assert_eq!(names.len(), pairs.len());
            for (name, server, tool) in &named {
                let origin = table.origin(name).unwrap();
                prop_assert_eq!((&origin.server, &origin.item), (*server, *tool));
                prop_assert_eq!(&table.clone().assign(&template, server, tool), name);
            }
        }
    }

    #[test]
    fn a_name_has_the_form_of_the_document_and_is_found_in_the_table() {
        let mut table = NameTable::default();
        let template = NameTemplate::default();
        assert_eq!(
            table.assign(&template, "web-search", "search"),
            "mcp_web_search_search"
        );
        let origin = table.origin("mcp_web_search_search").unwrap();
        assert_eq!(
            (origin.server.as_str(), origin.item.as_str()),
            ("web-search", "search")
        );
        assert_eq!(table.origin("mcp_web_search"), None);
    }

    #[test]
    fn who_has_a_name_keeps_it_whoever_comes_later() {
        let template = NameTemplate::default();
        let mut table = NameTable::default();
        let first = table.assign(&template, "a_b", "c");
        assert_eq!(first, "mcp_a_b_c");
        let second = table.assign(&template, "a", "b_c");
        assert_ne!(second, first);
        assert!(second.starts_with("mcp_a_b_c_"), "{second}");
        // Over a restart, and in another order.
        let stored = serde_json::to_string(&table).unwrap();
        let mut again: NameTable = serde_json::from_str(&stored).unwrap();
        assert_eq!(again.assign(&template, "a", "b_c"), second);
        assert_eq!(again.assign(&template, "a_b", "c"), first);
        assert_eq!(serde_json::to_string(&again).unwrap(), stored);
        // One whose upstream is gone is free.
        again.keep(|server| server == "a");
        assert_eq!(again.origin(&first), None);
    }

    #[test]
    fn names_are_legal_and_short_whatever_they_are_made_of() {
        let template = NameTemplate::default();
        let mut table = NameTable::default();
        let long = "x".repeat(200);
        let items = [
            "a b",
            "a/b",
            "a\u{1b}b",
            "退款",
            "",
            &long,
            &format!("{long}y"),
        ];
        let mut names = std::collections::BTreeSet::new();
        for item in items {
            let name = table.assign(&template, "s", item);
            assert!(
                name.len() <= MAX_NAME && name.chars().all(is_legal),
                "{name}"
            );
            assert!(names.insert(name));
        }
    }

    #[test]
    fn a_template_says_its_mistake() {
        assert!(NameTemplate::parse("{server}.{tool}").is_ok());
        for wrong in [
            "mcp",
            "{tool}{tool}",
            "{server} {tool}",
            "{x}_{tool}",
            &("x".repeat(40) + "{tool}"),
        ] {
            assert!(NameTemplate::parse(wrong).is_err(), "{wrong}");
        }
        let mut table = NameTable::default();
        assert_eq!(
            table.assign(&NameTemplate::with_prefix("gh-"), "github", "list"),
            "gh-list"
        );
    }

    #[test]
    fn a_resource_has_one_plain_spelling() {
        for plain in [
            "file:///a/b.txt",
            "file:///",
            "https://example.org",
            "https://example.org/a?x=%20y",
            "https://example.org:8080/a",
            "docs:greeting",
            "ui://app/x",
            "note:///%C3%A9/a",
        ] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in [
            "FILE:///a",
            "file:///a/../etc/passwd",
            "file:///a/./b",
            "file:////etc/passwd",
            "file:///a//b",
            "file:///%65tc/passwd",
            "file:///a%2Fb",
            "file:///a/%2E%2E/b",
            "file:///a%2e",
            "file:///%c3%a9",
            "file:///a\\b",
            "file:///a%5Cb",
            "file:///a\u{1}",
            "file:///\u{200b}a",
            "file:///a\u{ad}b",
            "file:///\u{202e}a",
            "file:///a\u{200d}b",
            "file:///a\u{fe0f}",
            "file:///%E2%80%8Ba",
            "file:///a%00",
            "file:///a%",
            "https://Example.org/",
            "a:b/..",
            "file://localhost/etc/passwd",
            "file:/etc/passwd",
            "file:etc/passwd",
            "file://user@/etc/passwd",
            "file://:80/etc/passwd",
            "file:///etc/passwd?a",
            "file:///etc/passwd#",
            "file:///etc/passwd?",
            "https://example.org:443/a",
            "https://example.org:/a",
            "https://u@example.org/a",
            "https://example.org/a#z",
            "docs://a?",
            "a",
            "file:///etc/secret/",
            "file:////",
            "https://example.org/",
            "https://example.org/a/",
            "https://example.org./a",
            "https://example.org:0443/a",
            "https:///a",
            "https:a",
            "ui://",
            "ui://page/",
            "ui:///page",
            "ui://./page",
            "ui://../page",
            "ui:page",
            "docs://../a",
            "docs:",
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }

    #[test]
    fn a_uri_is_found_again() {
        for server in [
            "docs",
            "web-search",
            "my_server",
            "My Server",
            "a.b",
            "a_b",
            "a-b",
            "é",
        ] {
            let key = scheme_key(server);
            for uri in [
                "file:///a/b?c#d",
                "ui://app/x",
                "docs://{path}",
                "greeting",
                "mcp.docs+a:b",
                "ui://mcp.x/y",
            ] {
                let offered = offered_uri(&key, uri);
                assert_eq!(
                    original_uri(&offered),
                    Some((key.as_str(), uri.to_owned())),
                    "{offered}"
                );
            }
        }
        let keys = ["a_b", "a-b", "a.b", "A_b", "ab"].map(scheme_key);
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len(), "{keys:?}");
        for other in [
            "skill://a",
            "mcp.docs",
            "mcp.+",
            "mcp.Docs+a:b",
            "mcp.docs+ui://a",
            "ui://app/x",
            "ui://mcp.x",
        ] {
            assert_eq!(original_uri(other), None, "{other}");
        }
    }
}
