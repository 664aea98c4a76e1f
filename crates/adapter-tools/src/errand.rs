//! Requests of tools to other systems, as tracing sees them.

/// Traces what a tool asks of other systems. It is called on the tool's own path and must neither
/// block nor panic.
pub trait TraceErrands: Send + Sync {
    /// Begins the span of a request.
    fn begin(&self, errand: &Errand<'_>) -> Box<dyn OpenErrand>;

    /// Begins the span of a request to another MCP server; none for who traces HTTP alone.
    fn begin_hop(&self, _: &Hop<'_>) -> Option<Box<dyn OpenErrand>> {
        None
    }
}

/// One request of a tool to another MCP server, without what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop<'a> {
    /// The method.
    pub method: &'static str,
    /// Name that the server is configured under.
    pub upstream: &'a str,
    /// The name of the tool or the prompt there.
    pub item: Option<&'a str>,
    /// The revision that is spoken.
    pub revision: &'static str,
    /// True if the server is a program on pipes.
    pub is_child: bool,
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

    /// There is an answer, with this HTTP status; 0 where there are none.
    fn answered(self: Box<Self>, status: u16);

    /// There is no answer, for a reason of this kind.
    fn failed(self: Box<Self>, kind: &'static str);
}
