use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use oauth_client::{Authorizer, Verdict};
use std::error::Error;

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
    ) -> BoxFuture<'a, Result<(), String>>;

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
    ) -> BoxFuture<'a, Result<bool, String>>;
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
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async {
            let authorized = Self::authorize(self, method, url, headers).await;
            authorized.map_err(|error| with_causes(&error))
        })
    }

    fn judge<'a>(
        &'a mut self,
        status: StatusCode,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            match Self::judge(self, status, headers).await {
                Ok(verdict) => Ok(verdict == Verdict::Repeat),
                Err(error) => Err(with_causes(&error)),
            }
        })
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
