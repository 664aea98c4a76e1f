use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};

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
