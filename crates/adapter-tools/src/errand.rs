//! Requests of tools to other systems, as tracing sees them.

/// Traces what a tool asks of other systems. It is called on the tool's own path and must neither
/// block nor panic.
pub trait TraceErrands: Send + Sync {
    /// Begins the span of a request.
    fn begin(&self, errand: &Errand<'_>) -> Box<dyn OpenErrand>;
}

/// One HTTP request of a tool. What it says is left out on purpose: it may hold arguments and secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errand<'a> {
    /// The method.
    pub method: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The name or the address of who is asked.
    pub host: &'a str,
    /// The port, if the scheme's own is not meant.
    pub port: Option<u16>,
    /// Number of times the same request was sent before.
    pub resent: u32,
}

/// An errand that is under way. Dropping it says that the answer is not waited for any more.
pub trait OpenErrand: Send {
    /// Value of `traceparent`.
    fn traceparent(&self) -> String;

    /// Value of `tracestate`, if there is one.
    fn tracestate(&self) -> Option<String>;

    /// There is an answer, with this status.
    fn answered(self: Box<Self>, status: u16);

    /// There is no answer, for a reason of this kind.
    fn failed(self: Box<Self>, kind: &'static str);
}
