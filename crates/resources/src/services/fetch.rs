//! One look at a service: a request, if what is kept is not fresh, and its answer.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use adapter_http::{FixedHeaders, begin_errand};
use adapter_skills::Content;
use adapter_tools::{ToolCx, ToolError};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_client::{Client, SendError};
use mcp_server::ReadFailure;

use crate::services::{
    cache::{Answer, Cache, Kept, freshness},
    endpoint::media_type,
};

/// Media type of an answer that does not name one.
const UNKNOWN: &str = "application/octet-stream";

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The service has nothing there.
    #[error("there is nothing of this name")]
    NotFound,
    /// Values that the service does not take.
    #[error("the service does not take these values (status {0})")]
    Refused(u16),
    /// No request could be sent, or no answer read.
    #[error(transparent)]
    Send(#[from] SendError),
    /// An answer to another request than this one.
    #[error(
        "the service leads elsewhere (status {0}), and that is not followed: configure where it leads to"
    )]
    Redirect(u16),
    /// Credentials that the service does not accept.
    #[error("the service refuses the server's credentials (status {0})")]
    Credentials(u16),
    /// Content in an encoding that was not asked for.
    #[error("the service encodes its answer, although it was asked not to")]
    Encoded,
    /// Any other status.
    #[error("the service answers with the status {0}")]
    Status(u16),
}

impl FetchError {
    /// Failure as the reader is told of it. What an operator has to mend is told by the log alone.
    pub(crate) fn told(self) -> ReadFailure {
        const PAUSE: Duration = Duration::from_secs(5);
        match &self {
            Self::NotFound => ReadFailure::NotFound,
            Self::Refused(_) => ReadFailure::Values(self.to_string()),
            Self::Send(SendError::TimedOut) => ReadFailure::Handler(ToolError::TimedOut),
            Self::Send(SendError::TooLarge(_) | SendError::LongHeaders) => {
                ReadFailure::Handler(ToolError::failed(self.to_string()))
            }
            Self::Send(
                SendError::Unreachable(cause) | SendError::Unsent(cause) | SendError::Broken(cause),
            ) => ReadFailure::Handler(ToolError::Unavailable {
                message: self.to_string(),
                retry_after: Some(PAUSE),
                detail: cause.to_string(),
            }),
            Self::Status(429 | 500..) => ReadFailure::Handler(ToolError::Unavailable {
                message: self.to_string(),
                retry_after: Some(PAUSE),
                detail: String::new(),
            }),
            _ => ReadFailure::Unreadable(self.into()),
        }
    }
}

/// Means by which a service is asked.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) client: Client,
    pub(crate) headers: FixedHeaders,
    pub(crate) cache: Cache,
    pub(crate) timeout: Duration,
    pub(crate) max_bytes: usize,
    pub(crate) max_age: Duration,
}

impl Fetch {
    /// Answer for a URL now, as far as the service lets one know: an answer that is fresh by its own word is not asked
    /// for again.
    pub(crate) async fn get(
        &self,
        url: &Uri,
        kind: Option<&str>,
        cx: Option<&ToolCx>,
    ) -> Result<Answer, FetchError> {
        let key = url.to_string();
        let kept = self.cache.get(&key);
        if let Some(kept) = &kept
            && Instant::now() < kept.answer.fresh_until
        {
            return Ok(kept.answer.clone());
        }
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = url.clone();
        *request.headers_mut() = self.asked(kind, kept.as_ref());
        let errand = cx.and_then(|cx| begin_errand(cx, &mut request, 0));
        let until = Instant::now() + self.timeout;
        let deadline = cx.and_then(|cx| cx.deadline);
        let until = deadline.map_or(until, |it| it.min(until));
        let sent = self
            .client
            .send_within(request, self.max_bytes, until.into());
        let sent = sent.await;
        if let Some(errand) = errand {
            match &sent {
                Ok(response) => errand.answered(response.status().as_u16()),
                Err(error) => errand.failed(error.kind()),
            }
        }
        let read = self.judged(sent?, kept, kind);
        match &read {
            Ok((kept, true)) => self.cache.put(&key, kept.clone()),
            // What is gone, or not to be kept, is not kept from before either.
            Ok((_, false)) | Err(FetchError::NotFound) => self.cache.remove(&key),
            Err(_) => {}
        }
        read.map(|(kept, _)| kept.answer)
    }

    fn asked(&self, kind: Option<&str>, kept: Option<&Kept>) -> HeaderMap {
        const ANY: HeaderValue =
            HeaderValue::from_static("application/json, text/*;q=0.9, */*;q=0.5");
        let mut headers = HeaderMap::new();
        let kind = kind.and_then(|it| HeaderValue::from_str(it).ok());
        headers.insert(header::ACCEPT, kind.unwrap_or(ANY));
        for (name, value) in self.headers.values() {
            headers.insert(name, value.clone());
        }
        let identity = HeaderValue::from_static("identity");
        headers.insert(header::ACCEPT_ENCODING, identity);
        if let Some(kept) = kept {
            if let Some(etag) = &kept.etag {
                headers.insert(header::IF_NONE_MATCH, etag.clone());
            }
            if let Some(modified) = &kept.last_modified {
                headers.insert(header::IF_MODIFIED_SINCE, modified.clone());
            }
        }
        headers
    }

    /// Meaning of an answer, and whether it may be kept.
    fn judged(
        &self,
        response: Response<Bytes>,
        kept: Option<Kept>,
        kind: Option<&str>,
    ) -> Result<(Kept, bool), FetchError> {
        let (parts, body) = response.into_parts();
        let fresh = freshness(&parts.headers, self.max_age);
        let fresh_until = Instant::now() + fresh.unwrap_or_default();
        match (parts.status, kept) {
            (StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION, _) => {}
            (StatusCode::NO_CONTENT, _) if body.is_empty() => {}
            (StatusCode::NOT_MODIFIED, Some(mut kept)) => {
                kept.answer.fresh_until = fresh_until;
                return Ok((kept, fresh.is_some()));
            }
            (StatusCode::NOT_FOUND | StatusCode::GONE, _) => return Err(FetchError::NotFound),
            (status, _) => {
                let code = status.as_u16();
                return Err(match code {
                    400 | 422 => FetchError::Refused(code),
                    401 | 403 | 407 => FetchError::Credentials(code),
                    301..=303 | 307 | 308 => FetchError::Redirect(code),
                    _ => FetchError::Status(code),
                });
            }
        }
        let encodings = parts.headers.get_all(header::CONTENT_ENCODING).iter();
        if encodings
            .into_iter()
            .any(|it| !it.as_bytes().eq_ignore_ascii_case(b"identity"))
        {
            return Err(FetchError::Encoded);
        }
        let named = parts.headers.get(header::CONTENT_TYPE);
        let named = named.and_then(|it| it.to_str().ok()).and_then(media_type);
        let kind = kind.or(named).unwrap_or(UNKNOWN);
        let validator = |name| parts.headers.get(name).cloned();
        let kept = Kept {
            answer: Answer {
                content: Arc::new(Content::new(told(kind, &body), None)),
                media_type: kind.into(),
                fresh_until,
            },
            etag: validator(header::ETAG),
            last_modified: validator(header::LAST_MODIFIED),
        };
        let is_of_use = fresh.is_some_and(|it| !it.is_zero())
            || kept.etag.is_some()
            || kept.last_modified.is_some();
        Ok((kept, fresh.is_some() && is_of_use))
    }
}

/// A body without the secrets that the service may have repeated.
fn told(kind: &str, body: &Bytes) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(body) else {
        return body.to_vec();
    };
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let is_json = essence.ends_with("/json") || essence.ends_with("+json");
    let text = match is_json {
        true => redaction::without_known_json(text),
        false => redaction::without_known(text),
    };
    text.into_owned().into_bytes()
}

/// A hash of what is at a URL, also of there being nothing; `None` if that is not known.
pub(crate) fn hash(read: &Result<Answer, FetchError>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    match read {
        Ok(answer) => (&answer.content.etag, &answer.media_type).hash(&mut hasher),
        Err(FetchError::NotFound) => {}
        Err(_) => return None,
    }
    Some(hasher.finish())
}
