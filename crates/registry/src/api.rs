//! A catalogue at the documented paths of a registry, for reading (`GET /v0.1/servers` and below).

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::catalogue::Entry;

/// Beginning of all paths.
pub const ROOT: &str = "/v0.1/servers";
/// Entries on a page where the request names no number.
const USUAL: usize = 30;
/// Most entries on a page.
const MOST: usize = 100;
/// Key of what a registry says about an entry.
const OFFICIAL: &str = "io.modelcontextprotocol.registry/official";

/// An answer: the status of HTTP, and a body of JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// 200, 400 or 404.
    pub status: u16,
    /// Body.
    pub body: Value,
}

impl Answer {
    fn refused(status: u16, error: impl Into<String>) -> Self {
        let error: String = error.into();
        Self {
            status,
            body: json!({ "error": error }),
        }
    }
}

/// True for paths that [`answer`] knows.
#[must_use]
pub fn is_path(path: &str) -> bool {
    path == ROOT
        || path
            .strip_prefix(ROOT)
            .is_some_and(|it| it.starts_with('/'))
}

/// The answer to a request for `path`, which [`is_path`], with the query behind `?`.
///
/// `entries` are those of [`crate::Catalogue::entries`], in that order.
#[must_use]
pub fn answer(path: &str, query: &str, entries: &[Entry]) -> Answer {
    let rest = path.strip_prefix(ROOT).unwrap_or_default();
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    if rest.is_empty() {
        return list(query, entries);
    }
    let Some(rest) = decoded(rest) else {
        return Answer::refused(400, "the path is not encoded as it should be");
    };
    let (name, version) = match rest.rsplit_once("/versions") {
        Some((name, "")) => (name, None),
        Some((name, version)) => (name, version.strip_prefix('/')),
        None => return Answer::refused(404, "there is nothing at this path"),
    };
    let mut versions: Vec<&Entry> = entries.iter().filter(|it| it.server.name == name).collect();
    // The newest first.
    versions.reverse();
    match version {
        None if versions.is_empty() => Answer::refused(404, "Server not found"),
        None => page(&versions, None),
        Some(wanted) => {
            let is_wanted = |it: &&&Entry| match wanted {
                "latest" => it.is_latest,
                wanted => it.server.version == wanted,
            };
            match versions.iter().find(is_wanted) {
                Some(entry) => Answer {
                    status: 200,
                    body: response(entry),
                },
                None => Answer::refused(404, "Server not found"),
            }
        }
    }
}

fn list(query: &str, entries: &[Entry]) -> Answer {
    let (mut limit, mut search, mut since, mut version, mut cursor) =
        (USUAL, None, None, None, None);
    for pair in query.split('&').filter(|it| !it.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(value) = decoded(&value.replace('+', " ")) else {
            return Answer::refused(400, format!("`{name}` is not encoded as it should be"));
        };
        match name {
            "limit" => match value.parse::<usize>() {
                Ok(wanted) if wanted >= 1 => limit = wanted.min(MOST),
                _ => return Answer::refused(400, "`limit` must be a number from 1 on"),
            },
            "search" => search = Some(value.to_lowercase()),
            "updated_since" => match value.replace(' ', "+").parse::<Timestamp>() {
                Ok(time) => since = Some(time),
                Err(_) => {
                    return Answer::refused(400, "`updated_since` must be a time as in RFC 3339");
                }
            },
            "version" => version = Some(value),
            "cursor" if value.is_empty() => {}
            "cursor" => match value.split_once(':') {
                Some((name, version)) => cursor = Some((name.to_owned(), version.to_owned())),
                None => return Answer::refused(400, "`cursor` is none that was given out"),
            },
            // Nothing here is deleted.
            "include_deleted" => {}
            // What is not known could be meant to leave something out.
            other => {
                return Answer::refused(400, format!("`{}` is not known", crate::shown(other)));
            }
        }
    }
    let is_wanted = |entry: &&Entry| {
        let name = entry.server.name.to_lowercase();
        search.as_ref().is_none_or(|it| name.contains(it))
            && since.is_none_or(|it| it <= entry.updated)
            && match version.as_deref() {
                None => true,
                Some("latest") => entry.is_latest,
                Some(wanted) => entry.server.version == wanted,
            }
    };
    let is_behind = |entry: &&Entry| {
        cursor.as_ref().is_none_or(|(name, version)| {
            let names = entry.server.name.as_str().cmp(name);
            let order =
                names.then_with(|| crate::catalogue::compare(&entry.server.version, version));
            order.is_gt()
        })
    };
    let mut found: Vec<&Entry> = entries
        .iter()
        .filter(is_wanted)
        .filter(is_behind)
        .take(limit + 1)
        .collect();
    let next = (found.len() > limit).then(|| {
        found.truncate(limit);
        let last = &found[limit - 1].server;
        format!("{}:{}", last.name, last.version)
    });
    page(&found, next)
}

fn page(entries: &[&Entry], next: Option<String>) -> Answer {
    let servers: Vec<Value> = entries.iter().map(|it| response(it)).collect();
    let mut metadata = json!({ "count": servers.len() });
    if let Some(next) = next {
        metadata["nextCursor"] = next.into();
    }
    Answer {
        status: 200,
        body: json!({ "servers": servers, "metadata": metadata }),
    }
}

fn response(entry: &Entry) -> Value {
    json!({
        "server": entry.server.raw,
        "_meta": { OFFICIAL: {
            "status": "active",
            "publishedAt": entry.added.to_string(),
            "updatedAt": entry.updated.to_string(),
            "isLatest": entry.is_latest,
        } },
    })
}

/// A text without percent encoding; `None` if it has a bad one.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = behind.get(..2)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerJson;

    fn entries() -> Vec<Entry> {
        let all = [
            ("a", "1.0.0"),
            ("a", "1.1.0"),
            ("b", "2.0.0"),
            ("c.d", "0.1.0"),
        ];
        let mut entries: Vec<Entry> = all
            .iter()
            .enumerate()
            .map(|(at, (name, version))| {
                let time = Timestamp::from_second(i64::try_from(at).unwrap() * 3_600).unwrap();
                let raw = json!({"name": format!("com.example/{name}"), "version": version, "description": "d"});
                Entry {
                    server: ServerJson::of(raw).unwrap(),
                    added: time,
                    updated: time,
                    source: String::new(),
                    sha256: String::new(),
                    is_latest: at > 0,
                }
            })
            .collect();
        entries[0].is_latest = false;
        entries
    }

    fn told(path: &str, query: &str) -> Vec<String> {
        let answer = answer(path, query, &entries());
        assert_eq!(answer.status, 200, "{path}?{query}: {}", answer.body);
        let servers = answer.body["servers"].as_array().unwrap().iter();
        let name = |it: &Value| format!("{}", it["server"]["version"]).replace('"', "");
        servers.map(name).collect()
    }

    #[test]
    fn lists_are_filtered() {
        assert_eq!(told(ROOT, ""), ["1.0.0", "1.1.0", "2.0.0", "0.1.0"]);
        assert_eq!(told(ROOT, "version=latest"), ["1.1.0", "2.0.0", "0.1.0"]);
        assert_eq!(told(ROOT, "version=2.0.0"), ["2.0.0"]);
        assert_eq!(told(ROOT, "search=C.D"), ["0.1.0"]);
        assert_eq!(
            told(ROOT, "updated_since=1970-01-01T02:00:00Z"),
            ["2.0.0", "0.1.0"]
        );
        assert_eq!(
            told(ROOT, "updated_since=1970-01-01T03%3A00%3A00%2B01:00"),
            ["2.0.0", "0.1.0"]
        );
        for path in ["com.example%2Fa/versions", "com.example/a/versions"] {
            assert_eq!(told(&format!("{ROOT}/{path}"), ""), ["1.1.0", "1.0.0"]);
        }
    }

    #[test]
    fn pages_have_each_entry_once() {
        for limit in 1..6 {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let query = format!("limit={limit}&cursor={cursor}");
                let page = answer(ROOT, &query, &entries()).body;
                let servers = page["servers"].as_array().unwrap();
                assert!(servers.len() <= limit && page["metadata"]["count"] == servers.len());
                seen.extend(servers.iter().map(|it| it["server"].to_string()));
                match page["metadata"]["nextCursor"].as_str() {
                    Some(next) => cursor = next.replace('/', "%2F"),
                    None => break,
                }
            }
            let all: Vec<_> = entries()
                .iter()
                .map(|it| it.server.raw.to_string())
                .collect();
            assert_eq!(seen, all, "{limit}");
        }
    }

    #[test]
    fn one_version_is_answered_or_the_reason() {
        let one = |path: &str| answer(&format!("{ROOT}/{path}"), "", &entries());
        let latest = one("com.example%2Fa/versions/latest");
        assert_eq!(latest.body["server"]["version"], "1.1.0");
        assert_eq!(latest.body["_meta"][OFFICIAL]["isLatest"], true);
        assert_eq!(
            one("com.example%2Fa/versions/1.0.0").body["server"]["version"],
            "1.0.0"
        );
        for (path, status) in [
            ("com.example%2Fx/versions", 404),
            ("com.example%2Fa/versions/9", 404),
            ("com.example%2Fa", 404),
            ("%zz/versions", 400),
        ] {
            assert_eq!(one(path).status, status, "{path}");
        }
        for query in [
            "limit=0",
            "limit=x",
            "updated_since=x",
            "cursor=x",
            "sort=name",
            "search=%zz",
        ] {
            assert_eq!(answer(ROOT, query, &entries()).status, 400, "{query}");
        }
    }
}
