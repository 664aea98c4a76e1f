//! Answers of the API, and its problems.

use std::error::Error;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use transport_http::SideBody;

/// Answer of a route.
#[derive(Debug)]
pub(crate) struct Reply(pub(crate) Response<SideBody>);

/// Problem that a client is told of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) why: String,
}

/// Body of an answer that is a problem.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProblemBody {
    /// Description of what is wrong, in a sentence for people.
    pub(crate) error: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self {
            status,
            why: why.into(),
        }
    }

    pub(crate) fn unauthorized(why: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, why)
    }

    pub(crate) fn missing(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, why)
    }

    pub(crate) fn bad(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// Problem whose cause is only written to the log.
    pub(crate) fn unavailable(error: &(dyn Error + 'static)) -> Self {
        tracing::error!(error, "the desk could not answer");
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "this cannot be told at present; the log of the server says why",
        )
    }

    /// Problem with recording an act, which is not done. The ledger may have the act all the same: it is written once it can be.
    pub(crate) fn unrecorded(error: &(dyn Error + 'static)) -> Self {
        tracing::error!(error, "an act of the desk was not recorded in time");
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "nothing was done, since it could not be recorded in time; the ledger may still get its entry; the log of the server \
             says why",
        )
    }

    /// Problem with recording a decision, which is done when it is on record.
    pub(crate) fn undecided(error: &(dyn Error + 'static)) -> Self {
        tracing::error!(error, "a decision was not recorded in time");
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "whether this is decided is unknown, since it could not be recorded in time: it may still take effect, so look \
             again; the log of the server says why",
        )
    }

    pub(crate) fn reply(&self) -> Reply {
        let body = ProblemBody {
            error: self.why.clone(),
        };
        let Reply(mut response) = Reply::json(&body);
        *response.status_mut() = self.status;
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        Reply(response)
    }
}

impl Reply {
    /// JSON, without secrets that the process knows.
    pub(crate) fn json(value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value).expect("plain data serializes");
        let text = match redaction::knows_any() {
            true => redaction::without_known_json(&text).into_owned(),
            false => text,
        };
        Self::of(SideBody::Whole(text.into()), "application/json")
    }

    /// The same of a secret that is told this once.
    pub(crate) fn json_with_secret(value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value).expect("plain data serializes");
        Self::of(SideBody::Whole(text.into()), "application/json")
    }

    /// Bytes as they come.
    pub(crate) fn stream(
        pieces: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
        media_type: &'static str,
    ) -> Self {
        Self::of(SideBody::Stream(pieces), media_type)
    }

    pub(crate) fn of(body: SideBody, media_type: &'static str) -> Self {
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self(response)
    }

    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers_mut().insert(name, value);
        self
    }
}
