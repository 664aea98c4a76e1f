use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use oauth_client::{AuthorizationError, Authorizer, Verdict};
use std::{error::Error, time::Duration};

/// Authorization of requests over HTTP.
pub trait Authorize: Send + Sync + 'static {
    /// The authorization of one request, which may be sent several times.
    fn attempt(&self) -> Box<dyn Attempt>;
}

/// The authorization of one request.
pub trait Attempt: Send + Sync {
    /// Adds to the headers what proves who sends the request, if that is known. Called before each try, so
    /// that a proof can be made for it.
    ///
    /// # Errors
    ///
    /// A reason for not sending the request.
    fn authorize<'a>(
        &'a mut self,
        method: &'a Method,
        url: &'a str,
        headers: &'a mut HeaderMap,
    ) -> BoxFuture<'a, Result<(), Unauthorized>>;

    /// Takes the status and headers of the answer, whatever they are; true if the request is to be sent
    /// again.
    ///
    /// # Errors
    ///
    /// A reason for giving up.
    fn judge<'a>(
        &'a mut self,
        status: StatusCode,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<bool, Unauthorized>>;
}

/// Reason why a request is not authorized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unauthorized {
    /// A refusal: somebody has to sign in, or to correct the credentials.
    Refused(String),
    /// A fault of what the proof comes from, such as metadata that contradict each other: a sign-in does not help.
    Misconfigured {
        /// Reason, in words.
        reason: String,
        /// Act that helps, in words.
        cure: String,
    },
    /// An outage of whoever gives the proof: the same may succeed later without anybody doing anything.
    Unavailable {
        /// Reason, in words.
        reason: String,
        /// Time after which to try again, if that is known.
        retry_after: Option<Duration>,
    },
}

impl From<String> for Unauthorized {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

impl From<AuthorizationError> for Unauthorized {
    fn from(error: AuthorizationError) -> Self {
        let reason = with_causes(&error);
        match error.cure() {
            Some(cure) => Self::Misconfigured { reason, cure },
            None if error.is_temporary() => Self::Unavailable {
                reason,
                retry_after: error.retry_after(),
            },
            None => Self::Refused(reason),
        }
    }
}

/// Tokens of an authorization server.
impl Authorize for Authorizer {
    fn attempt(&self) -> Box<dyn Attempt> {
        Box::new(Self::attempt(self))
    }
}

impl Attempt for oauth_client::Attempt {
    fn authorize<'a>(
        &'a mut self,
        method: &'a Method,
        url: &'a str,
        headers: &'a mut HeaderMap,
    ) -> BoxFuture<'a, Result<(), Unauthorized>> {
        Box::pin(async { Ok(Self::authorize(self, method, url, headers).await?) })
    }

    fn judge<'a>(
        &'a mut self,
        status: StatusCode,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<bool, Unauthorized>> {
        Box::pin(async move { Ok(Self::judge(self, status, headers).await? == Verdict::Repeat) })
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
