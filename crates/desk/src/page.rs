//! The files of the page. They are in the program as they are in the repository, and have names that change
//! with what is in them, so that browsers keep them for ever; only the document is asked for again.

use std::io::{self, Write};
use std::sync::LazyLock;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Method, StatusCode, header, request::Parts};
use sha2::{Digest, Sha256};
use transport_http::SideBody;

use crate::reply::{Problem, Reply};
use crate::sign_in::BACK;

/// The most bytes that the page takes altogether, as browsers get it.
pub const MAX_PAGE_BYTES: usize = 100 * 1024;

/// Headers of every answer: nothing is loaded from elsewhere, nothing is run that is not a file of the
/// page, no page shows this one, and no address is told to others.
pub(crate) const SECURITY: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];

/// One file, as it is in the repository.
struct Source {
    name: &'static str,
    text: &'static str,
    media_type: &'static str,
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        Source {
            name: $name,
            text: include_str!(concat!("../page/", $name)),
            media_type: JAVASCRIPT,
        }
    };
}

/// In an order in which each file names only those before it.
const SOURCES: &[Source] = &[
    script!("preact.js"),
    script!("api.js"),
    script!("shown.js"),
    script!("parts.js"),
    script!("approvals.js"),
    script!("activity.js"),
    script!("pins.js"),
    script!("tools.js"),
    script!("upstreams.js"),
    script!("rules.js"),
    script!("tasks.js"),
    script!("keys.js"),
    script!("more.js"),
    script!("desk.js"),
    Source {
        name: "desk.css",
        text: include_str!("../page/desk.css"),
        media_type: "text/css; charset=utf-8",
    },
    Source {
        name: "icon.svg",
        text: include_str!("../page/icon.svg"),
        media_type: "image/svg+xml",
    },
];

const DOCUMENT: &str = include_str!("../page/index.html");

/// A file as it is sent.
#[derive(Debug, Clone)]
pub struct File {
    /// Path of its URL, which has a digest of its content.
    pub path: String,
    /// Content, with the names of other files as they are sent.
    pub content: Bytes,
    /// The same as gzip.
    pub compressed: Bytes,
    /// Media type.
    pub media_type: &'static str,
}

/// The files of the page; the document is the last.
pub fn files() -> &'static [File] {
    static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
        let mut files: Vec<(&str, File)> = Vec::new();
        for source in SOURCES {
            let text = named(source.text, &files);
            let digest = HEXLOWER.encode(&Sha256::digest(text.as_bytes())[..8]);
            let (stem, end) = source.name.rsplit_once('.').unwrap_or((source.name, ""));
            let file = File {
                path: format!("/desk/{stem}-{digest}.{end}"),
                compressed: compressed(&text),
                content: text.into(),
                media_type: source.media_type,
            };
            files.push((source.name, file));
        }
        let document = named(DOCUMENT, &files);
        let document = File {
            path: "/".to_owned(),
            compressed: compressed(&document),
            content: document.into(),
            media_type: "text/html; charset=utf-8",
        };
        let files = files.into_iter().map(|(_, file)| file);
        files.chain([document]).collect()
    });
    &FILES
}

/// A text as gzip.
fn compressed(text: &str) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(text.as_bytes());
    let written: io::Result<_> = written.and_then(|()| encoder.finish());
    written.expect("memory takes all that is written").into()
}

/// True if a client takes gzip.
fn takes_gzip(parts: &Parts) -> bool {
    let values = parts.headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|it| it.to_str().ok())
        .flat_map(|it| it.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=");
        let is_refused = weight.is_some_and(|it| it.trim().parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// The text with `./NAME` of each file as its path.
fn named(text: &str, files: &[(&str, File)]) -> String {
    files.iter().fold(text.to_owned(), |text, (name, file)| {
        text.replace(&format!("\"./{name}\""), &format!("\"{}\"", file.path))
    })
}

/// The answer to a request for a file; the document is at every path that is a view's.
pub(crate) fn answer(parts: &Parts) -> Reply {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "use GET");
        let allowed = HeaderValue::from_static("GET, HEAD");
        return problem.reply().with(header::ALLOW, allowed);
    }
    // An issuer sends browsers back to the page, with a code that belongs into no cache.
    let is_back = parts.uri.path().starts_with(BACK);
    let path = if is_back { "/" } else { parts.uri.path() };
    let Some(file) = files().iter().find(|it| it.path == path) else {
        return Problem::missing("there is nothing here").reply();
    };
    let is_compressed = takes_gzip(parts);
    let content = match is_compressed {
        true => &file.compressed,
        false => &file.content,
    };
    let mut reply = Reply::of(SideBody::Whole(content.clone()), file.media_type);
    if is_compressed {
        let gzip = HeaderValue::from_static("gzip");
        reply = reply.with(header::CONTENT_ENCODING, gzip);
    }
    let varies = HeaderValue::from_static("accept-encoding");
    let reply = reply.with(header::VARY, varies);
    let keep = match path {
        "/" if is_back => "no-store",
        "/" => "no-cache",
        _ => "public, max-age=31536000, immutable",
    };
    reply.with(header::CACHE_CONTROL, HeaderValue::from_static(keep))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_page_is_small() {
        let bytes: usize = files().iter().map(|it| it.compressed.len()).sum();
        assert!(bytes <= MAX_PAGE_BYTES, "{bytes}");
    }

    #[test]
    fn a_file_is_compressed_for_who_takes_that() {
        let file = files().last().unwrap();
        let mut whole = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&*file.compressed);
        io::Read::read_to_string(&mut decoder, &mut whole).unwrap();
        assert_eq!(whole.as_bytes(), &*file.content);
        for (accepted, is_compressed) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip;q=0, *", false),
            ("gzip;q=0.000", false),
            ("br", false),
            ("", false),
        ] {
            let request = http::Request::get("/").header(header::ACCEPT_ENCODING, accepted);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let Reply(response) = answer(&parts);
            let coding = response.headers().get(header::CONTENT_ENCODING);
            assert_eq!(coding.is_some(), is_compressed, "{accepted}");
            assert_eq!(response.headers()[header::VARY], "accept-encoding");
        }
    }

    #[test]
    fn every_file_that_is_named_is_there_under_its_digest() {
        let paths: Vec<&str> = files().iter().map(|it| it.path.as_str()).collect();
        for file in files() {
            let text = std::str::from_utf8(&file.content).unwrap();
            assert!(
                !text.contains("\"./"),
                "{}: a name has no digest",
                file.path
            );
            for named in text.split('"').filter(|it| it.starts_with("/desk/")) {
                assert!(paths.contains(&named), "{}: {named}", file.path);
            }
        }
    }
}
