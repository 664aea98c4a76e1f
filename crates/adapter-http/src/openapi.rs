//! The operations of a service that an OpenAPI document describes.
//!
//! Documents are of version 3.0 or 3.1, in JSON or YAML, and complete: a `$ref` that leads out of one
//! is not followed. What cannot be called as described, such as an upload in several parts, is left
//! out with a warning that says why; the others become tools.
//!
//! ```
//! use adapter_http::openapi::{self, ServiceOptions};
//! use http_client::{Client, ClientOptions};
//!
//! let document = r#"
//! openapi: 3.1.0
//! servers: [{url: "https://pets.example.com/v1"}]
//! paths:
//!   /pets/{id}:
//!     get:
//!       operationId: getPet
//!       summary: Tells of one pet.
//!       parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
//! "#;
//! let client = Client::new(ClientOptions::default())?;
//! let options = ServiceOptions { prefix: "pets_".to_owned(), ..ServiceOptions::default() };
//! let (tools, warnings, _) = openapi::tools(document, &options, &client)?;
//! assert_eq!((tools[0].name(), warnings.len()), ("pets_getPet", 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod document;
mod operation;
mod parameters;
mod request;
mod schema;
mod select;

pub use self::select::{Selection, Unmatched};

use crate::{FixedHeaders, Mode, Retry, UrlError, UrlTemplate, binding::Bounds};
use adapter_tools::Tool;
use document::Document;
use http::{HeaderName, Method};
use http_client::{Client, HostError};
use operation::Skipped;
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// A document with more bytes is refused.
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// More operations than these are refused: no model chooses well among so many tools.
pub const MAX_OPERATIONS: usize = 500;
/// Longer names are cut, since clients take no longer ones.
const MAX_NAME: usize = 64;

/// Options of a service: how it is called, and which of its operations are tools.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Address that paths are appended to; without one, the document's first server.
    pub base_url: Option<String>,
    /// Prefix of the names of its tools.
    pub prefix: String,
    /// Conditions that an operation must match.
    pub include: Selection,
    /// Conditions that an operation must not match.
    pub exclude: Selection,
    /// Sent with each request.
    pub headers: FixedHeaders,
    /// Treatment of requests that change something.
    pub mode: Mode,
    /// Longest time of one attempt.
    pub timeout: Duration,
    /// Retries of a request that may be repeated.
    pub retry: Retry,
    /// Header for a key by which the service recognises repetitions.
    pub idempotency_header: Option<HeaderName>,
    /// True to promise clients the output schemas of the document. Services often do not keep to
    /// that, and an answer that breaks a promise is a failure.
    pub output_schemas: bool,
    /// Bounds on answers.
    pub bounds: Bounds,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            base_url: None,
            prefix: String::new(),
            include: Selection::default(),
            exclude: Selection::default(),
            headers: FixedHeaders::default(),
            mode: Mode::default(),
            timeout: Duration::from_secs(30),
            retry: Retry::default(),
            idempotency_header: None,
            output_schemas: false,
            bounds: Bounds::default(),
        }
    }
}

/// Reason why a document gives no tools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenApiError {
    /// A document of more than [`MAX_DOCUMENT_BYTES`].
    #[error("the document has more than {MAX_DOCUMENT_BYTES} bytes")]
    TooLarge,
    /// Text that is neither JSON nor YAML.
    #[error("the document cannot be read: {0}")]
    Syntax(String),
    /// A version that is not supported.
    #[error("the document is not of OpenAPI 3.0 or 3.1: it says {0}")]
    Version(String),
    /// A first server that cannot be taken as it is.
    #[error("the document's first server is {0}; say `base_url`")]
    NoBaseUrl(&'static str),
    /// The base URL is none.
    #[error("the base URL `{url}` cannot be used")]
    BaseUrl {
        /// Address that was given.
        url: String,
        /// Description of what is wrong with it.
        #[source]
        error: UrlError,
    },
    /// The base URL has more than scheme, host and path.
    #[error("the base URL `{0}` must have neither a query nor places for arguments")]
    BaseUrlParts(String),
    /// The service may not be talked to.
    #[error("the service may not be talked to")]
    Host(#[source] HostError),
    /// More operations are selected than [`MAX_OPERATIONS`].
    #[error(
        "{0} operations would become tools, and at most {MAX_OPERATIONS} may: select some with \
         `include` and `exclude`"
    )]
    TooMany(usize),
}

const METHODS: [(&str, Method); 7] = [
    ("get", Method::GET),
    ("head", Method::HEAD),
    ("options", Method::OPTIONS),
    ("post", Method::POST),
    ("put", Method::PUT),
    ("patch", Method::PATCH),
    ("delete", Method::DELETE),
];

/// An operation as the document has it.
struct Found<'d> {
    path: &'d str,
    method: &'static str,
    verb: Method,
    /// Path item, which holds for all operations at the path.
    item: &'d Value,
    operation: &'d Value,
}

/// Tools of a document, what was left out of it and why, and the patterns that match no operation.
pub type Described = (Vec<Tool>, Vec<String>, Vec<Unmatched>);

/// Makes tools of the selected operations of `document`.
///
/// # Errors
///
/// [`OpenApiError`] when nothing can be made of the document as a whole.
pub fn tools(
    document: &str,
    options: &ServiceOptions,
    client: &Client,
) -> Result<Described, OpenApiError> {
    let document = Document::parse(document)?;
    let base = base_url(&document, options)?;
    let parsed = UrlTemplate::parse(&base).map_err(|error| OpenApiError::BaseUrl {
        url: base.clone(),
        error,
    })?;
    if base.contains('?') || parsed.arguments().next().is_some() {
        return Err(OpenApiError::BaseUrlParts(base));
    }
    client
        .check_host(parsed.host())
        .map_err(OpenApiError::Host)?;

    let mut warnings = Vec::new();
    let mut selected = operations(&document, &mut warnings);
    let unmatched = ["include", "exclude"].into_iter();
    let unmatched = unmatched.zip([&options.include, &options.exclude]);
    let unmatched = unmatched.flat_map(|(list, selection)| selection.unmatched(list, &selected));
    let unmatched = unmatched.collect();
    selected.retain(|it| options.include.includes(it) && !options.exclude.excludes(it));
    if MAX_OPERATIONS < selected.len() {
        return Err(OpenApiError::TooMany(selected.len()));
    }
    if selected.is_empty() {
        warnings.push("no operation is selected".to_owned());
    }
    let mut names = BTreeSet::new();
    let mut tools = Vec::new();
    for found in selected {
        let name = unique(&name(&found, &options.prefix), &mut names);
        let place = format!("{} {}", found.method.to_uppercase(), found.path);
        let mut odd = Vec::new();
        match operation::tool(&document, &found, name, &base, options, client, &mut odd) {
            Ok(tool) => tools.push(tool),
            Err(Skipped(why)) => warnings.push(format!("{place} is left out: {why}")),
        }
        warnings.extend(odd.into_iter().map(|odd| format!("{place}: {odd}")));
    }
    Ok((tools, warnings, unmatched))
}

/// All operations, by path and then in the order of [`METHODS`].
fn operations<'d>(document: &'d Document, warnings: &mut Vec<String>) -> Vec<Found<'d>> {
    let mut operations = Vec::new();
    for (path, item) in document.root()["paths"].as_object().into_iter().flatten() {
        if path.starts_with("x-") {
            continue;
        }
        let Some(item) = document.follow(item) else {
            warnings.push(format!("{path} is left out: its `$ref` leads nowhere"));
            continue;
        };
        for (method, verb) in METHODS {
            let operation = &item[method];
            if !operation.is_object() {
                continue;
            }
            operations.push(Found {
                path,
                method,
                verb,
                item,
                operation,
            });
        }
    }
    operations
}

fn base_url(document: &Document, options: &ServiceOptions) -> Result<String, OpenApiError> {
    let url = match &options.base_url {
        Some(url) => url.as_str(),
        None => match document.root()["servers"][0]["url"].as_str() {
            None => return Err(OpenApiError::NoBaseUrl("missing")),
            Some(url) if url.contains('{') => return Err(OpenApiError::NoBaseUrl("not literal")),
            Some(url) if !url.contains("://") => return Err(OpenApiError::NoBaseUrl("relative")),
            Some(url) => url,
        },
    };
    Ok(url.trim().trim_end_matches('/').to_owned())
}

/// `getPet`, or `get_pets_id` for an operation without a name, or without one that clients can write.
fn name(found: &Found<'_>, prefix: &str) -> String {
    let id = found.operation["operationId"].as_str().map(str::trim);
    let is_legible = |id: &&str| id.contains(|c: char| c.is_ascii_alphanumeric());
    let name = match id.filter(is_legible) {
        Some(id) => id.to_owned(),
        None => format!("{}_{}", found.method, found.path),
    };
    let mut legal = String::from(prefix);
    for c in name.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
            legal.push(c);
        } else if !legal.ends_with('_') {
            legal.push('_');
        }
    }
    cut(&mut legal, MAX_NAME);
    legal.trim_end_matches('_').to_owned()
}

/// The name, or the next free one that begins like it.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut unique = name.to_owned();
    let mut number = 1;
    while !taken.insert(unique.clone()) {
        number += 1;
        let suffix = format!("_{number}");
        unique = name.to_owned();
        cut(&mut unique, MAX_NAME - suffix.len());
        unique.push_str(&suffix);
    }
    unique
}

/// At most `bytes` of the text. A prefix can be anything, and is cut between its characters.
fn cut(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_client::ClientOptions;

    #[test]
    fn any_prefix_can_be_cut() {
        let document = r#"{"openapi": "3.1.0", "servers": [{"url": "https://h.example"}],
            "paths": {"/a": {"get": {}}, "/b": {"get": {}}}}"#;
        let client = Client::new(ClientOptions::default()).unwrap();
        for letters in 0..4 {
            let options = ServiceOptions {
                prefix: "x".repeat(letters) + &"会".repeat(30),
                ..ServiceOptions::default()
            };
            let (tools, ..) = tools(document, &options, &client).unwrap();
            assert!(tools.iter().all(|tool| tool.name().len() <= MAX_NAME));
        }
    }
}
