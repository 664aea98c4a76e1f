use crate::{
    Answers, Askable, CallMeter, Errand, Hop, LogLevel, OpenErrand, TraceErrands, meter::MeterUse,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Instant,
};

/// Receiver of progress. Called on the tool's own path, so it must neither block nor panic.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// Receiver of log messages for the caller: severity, logger and message. Called on the tool's own
/// path, so it must neither block nor panic.
pub type LogSink = Arc<dyn Fn(LogLevel, Option<&str>, &Value) + Send + Sync>;

/// Lets go of the caller's connection. It is called on the tool's own path and must neither block nor
/// panic.
pub type StreamReleaseSink = Arc<dyn Fn() + Send + Sync>;

/// The way of a call to become a task. Called on the tool's own path, so nothing of it may block or panic.
pub trait TaskHandle: Send + Sync {
    /// Makes a task of the call.
    fn begin(&self);

    /// Has another process that takes the task over, once it is one, go on with the call by `resume`.
    fn keep(&self, resume: Value);

    /// The value that an earlier process has given to [`keep`](Self::keep), if this call goes on with a call of it.
    fn resume(&self) -> Option<&Value>;

    /// True if the call is given up here because another process goes on with it.
    fn is_left(&self) -> bool;
}

/// Names, in lower case, and values of headers.
pub type Headers = Arc<Vec<(Arc<str>, Box<str>)>>;

/// Context of a call for its executor: facts about the call, and ways to report to the caller.
///
/// A call is given up by dropping the executor's future; only a function on a blocking thread has to
/// look at [`is_cancelled`](Self::is_cancelled).
///
/// Its facts are in one place of memory, since it goes through many hands.
#[derive(Clone)]
pub struct ToolCx(Box<CallFacts>);

/// Facts about a call, of its [`ToolCx`].
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "its context has one")]
pub struct CallFacts {
    /// Caller: the principal that governs quotas.
    pub principal: Arc<str>,
    /// Roles of the caller that its proof of identity vouches for, sorted; `None` if there are none.
    pub roles: Option<Arc<[Arc<str>]>>,
    /// Id of the request. Its client has chosen it: two clients may have the same.
    pub request_id: Arc<str>,
    /// Time from which the answer is no longer wanted.
    pub deadline: Option<Instant>,
    /// Place of the call in a distributed trace: the value of `traceparent` for requests to other
    /// systems (W3C Trace Context).
    pub traceparent: Option<Arc<str>>,
    /// Value of `tracestate` for such requests.
    pub tracestate: Option<Arc<str>>,
    /// Id of the client's session, where there is one.
    pub session: Option<Arc<str>>,
    /// The transport of the request: `stdio`, `http` or `websocket`.
    pub transport: Option<&'static str>,
    /// Headers of its request over HTTP that handlers are told, names in lower case. They prove
    /// nothing.
    pub headers: Option<Headers>,
    /// `_meta` of the request, a JSON object, if its client has put something there besides what the protocol itself
    /// reads. It proves nothing.
    pub request_meta: Option<Bytes>,
    /// Token that has proved who the caller is, where an upstream wants another in exchange for it (RFC 8693). It is for the
    /// authorization server that exchanges it, and for nobody else.
    pub subject_token: Option<Arc<str>>,
    progress: Option<ProgressSink>,
    log: Option<LogSink>,
    stream_release: Option<StreamReleaseSink>,
    task: Option<Arc<dyn TaskHandle>>,
    errands: Option<Arc<dyn TraceErrands>>,
    askable: Askable,
    answers: Option<Arc<Answers>>,
    reads: Option<Arc<dyn ReadResources>>,
    meter: MeterUse,
}

/// Resources of the server as the caller of a tool can read them.
pub trait ReadResources: Send + Sync {
    /// Reads a resource on behalf of the caller: by its permissions, and on record. The result is that of
    /// `resources/read` as JSON; the error is for the handler's author.
    fn read(self: Arc<Self>, uri: String) -> BoxFuture<'static, Result<Value, String>>;

    /// Tests if the caller may know of and read the resource at `uri`, which need not be there. `uri` is the address by
    /// which rules know it.
    fn permits(&self, uri: &str) -> bool;
}

/// Progress of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Grows from report to report.
    pub progress: f64,
    /// Value at the end, if it is known.
    pub total: Option<f64>,
    /// Description of the current work.
    pub message: Option<String>,
}

impl ToolCx {
    /// The context of the call `request_id` by `principal`, without deadline, trace or progress.
    pub fn new(principal: impl Into<Arc<str>>, request_id: impl Into<Arc<str>>) -> Self {
        Self::metered(principal, request_id, Arc::default())
    }

    /// The same, metered with `meter`, for a caller that needs it however the call ends.
    pub fn metered(
        principal: impl Into<Arc<str>>,
        request_id: impl Into<Arc<str>>,
        meter: Arc<CallMeter>,
    ) -> Self {
        Self(Box::new(CallFacts {
            principal: principal.into(),
            roles: None,
            request_id: request_id.into(),
            deadline: None,
            traceparent: None,
            tracestate: None,
            session: None,
            transport: None,
            headers: None,
            request_meta: None,
            subject_token: None,
            progress: None,
            log: None,
            stream_release: None,
            task: None,
            errands: None,
            askable: Askable::default(),
            answers: None,
            reads: None,
            meter: MeterUse::of(meter),
        }))
    }

    /// Sets the roles of the caller.
    #[must_use]
    pub fn with_roles(mut self, roles: Option<Arc<[Arc<str>]>>) -> Self {
        self.0.roles = roles;
        self
    }

    /// Sets when the answer is no longer wanted.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.0.deadline = Some(deadline);
        self
    }

    /// Sets where in a distributed trace the call is, `traceparent` and `tracestate`.
    #[must_use]
    pub fn with_trace(mut self, parent: impl Into<Arc<str>>, state: Option<&str>) -> Self {
        self.0.traceparent = Some(parent.into());
        self.0.tracestate = state.map(Into::into);
        self
    }

    /// Sets where progress goes; without it progress goes nowhere.
    #[must_use]
    pub fn with_progress(mut self, sink: ProgressSink) -> Self {
        self.0.progress = Some(sink);
        self
    }

    /// Sets where log messages for the caller go; without it they go nowhere.
    #[must_use]
    pub fn with_log(mut self, sink: LogSink) -> Self {
        self.0.log = Some(sink);
        self
    }

    /// Sets what lets go of the caller's connection; without it the caller keeps it.
    #[must_use]
    pub fn with_stream_release(mut self, sink: StreamReleaseSink) -> Self {
        self.0.stream_release = Some(sink);
        self
    }

    /// Sets what makes a task of the call; without it the call stays a call.
    #[must_use]
    pub fn with_task(mut self, task: Arc<dyn TaskHandle>) -> Self {
        self.0.task = Some(task);
        self
    }

    /// Sets who traces what the call asks of other systems; without it nobody does.
    #[must_use]
    pub fn with_errands(mut self, errands: Arc<dyn TraceErrands>) -> Self {
        self.0.errands = Some(errands);
        self
    }

    /// Says that another system is asked something now, to whoever traces that.
    pub fn begin_errand(&self, errand: &Errand<'_>) -> Option<Box<dyn OpenErrand>> {
        Some(self.0.errands.as_ref()?.begin(errand))
    }

    /// Says that another MCP server is asked something now, to whoever traces that.
    pub fn begin_hop(&self, hop: &Hop<'_>) -> Option<Box<dyn OpenErrand>> {
        self.0.errands.as_ref()?.begin_hop(hop)
    }

    /// Sets what the client can be asked, and what it has answered.
    #[must_use]
    pub fn with_answers(mut self, askable: Askable, answers: Option<Arc<Answers>>) -> Self {
        self.0.askable = askable;
        self.0.answers = answers;
        self
    }

    /// Sets how the tool reads resources of the server; without it it cannot.
    #[must_use]
    pub fn with_resources(mut self, reads: Arc<dyn ReadResources>) -> Self {
        self.0.reads = Some(reads);
        self
    }

    /// Resources of the server, for the caller.
    pub fn resources(&self) -> Option<&Arc<dyn ReadResources>> {
        self.0.reads.as_ref()
    }

    /// Sets the headers that handlers are told.
    #[must_use]
    pub fn with_headers(mut self, headers: Option<Headers>) -> Self {
        self.0.headers = headers;
        self
    }

    /// Sets the token that has proved who the caller is.
    #[must_use]
    pub fn with_subject_token(mut self, token: Option<Arc<str>>) -> Self {
        self.0.subject_token = token;
        self
    }

    /// Sets `_meta` of the request.
    #[must_use]
    pub fn with_request_meta(mut self, meta: Option<Bytes>) -> Self {
        self.0.request_meta = meta;
        self
    }

    /// Sets the id of the client's session.
    #[must_use]
    pub fn with_session(mut self, session: Option<Arc<str>>) -> Self {
        self.0.session = session;
        self
    }

    /// Sets the transport of the request.
    #[must_use]
    pub fn with_transport(mut self, transport: &'static str) -> Self {
        self.0.transport = Some(transport);
        self
    }

    /// Tells the caller something about the call, if it wants to hear that much. Never blocks.
    pub fn log(&self, level: LogLevel, logger: Option<&str>, data: &Value) {
        if let Some(sink) = &self.0.log {
            sink(level, logger, data);
        }
    }

    /// Lets go of the caller's connection while the call goes on: the caller comes back for what is
    /// said from here on, the result included. For calls that take long, whose connections are in
    /// the way. Does nothing where the caller would not come back: only clients of the revision
    /// 2025-11-25 do, over Streamable HTTP and within a session. Never blocks.
    pub fn close_stream(&self) {
        if let Some(sink) = &self.0.stream_release {
            sink();
        }
    }

    /// Has the caller wait no longer: it is answered with a task and fetches the result later, while
    /// the call goes on. For calls that are known to take long; the server may have the same idea
    /// without being told. Does nothing where the caller does not know tasks, or has one already.
    /// Never blocks.
    ///
    /// What is asked before this, by [`ToolError::NeedsInput`](crate::ToolError::NeedsInput), is asked
    /// while the caller waits, and what is asked after it by the task.
    pub fn continue_as_task(&self) {
        if let Some(task) = &self.0.task {
            task.begin();
        }
    }

    /// True if the call is a task, or can become one.
    pub fn can_be_task(&self) -> bool {
        self.0.task.is_some()
    }

    /// Says where the call is carried out, so that a server that takes the task over, if the call becomes one, goes on
    /// waiting for it: `resume` is the [`resume`](Self::resume) of that call.
    pub fn keep_elsewhere(&self, resume: Value) {
        if let Some(task) = &self.0.task {
            task.keep(resume);
        }
    }

    /// The place where the call is carried out already, if it was begun by a server that has ended: it must not be
    /// begun again.
    pub fn resume(&self) -> Option<&Value> {
        self.0.task.as_ref()?.resume()
    }

    /// True if the call is dropped because another server goes on waiting for it: what is carried out elsewhere must
    /// not be cancelled.
    pub fn is_left(&self) -> bool {
        self.0.task.as_ref().is_some_and(|it| it.is_left())
    }

    /// Kinds of questions that the client can be asked.
    pub fn askable(&self) -> Askable {
        self.0.askable
    }

    /// Answers of the client; empty on the first call.
    pub fn answers(&self) -> &Answers {
        static NONE: std::sync::LazyLock<Answers> = std::sync::LazyLock::new(Answers::default);
        self.0.answers.as_deref().unwrap_or(&NONE)
    }

    /// Reports progress to the caller, if it asked for that. Never blocks.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        if let Some(sink) = &self.0.progress {
            sink(Progress {
                progress,
                total,
                message,
            });
        }
    }

    /// Adds to what this call costs, in millionths of the configured currency.
    pub fn add_cost_micros(&self, micros: u64) {
        self.meter().add_cost_micros(micros);
    }

    /// Says which trace in Langfuse has the cost of the call, for the server to read once the call has ended. The first
    /// one counts.
    pub fn note_cost_trace(&self, trace: &str) {
        self.meter().note_cost_trace(trace);
    }

    /// Meter of the call's use.
    pub fn meter(&self) -> &Arc<CallMeter> {
        &self.0.meter.0
    }

    /// Returns true if the caller has given the call up. An asynchronous function is dropped then
    /// and need not ask; one that runs on a blocking thread cannot be stopped and should ask now
    /// and then.
    pub fn is_cancelled(&self) -> bool {
        self.0.meter.0.is_cancelled()
            || self
                .0
                .deadline
                .is_some_and(|deadline| deadline <= Instant::now())
    }
}

impl Deref for ToolCx {
    type Target = CallFacts;

    fn deref(&self) -> &CallFacts {
        &self.0
    }
}

impl DerefMut for ToolCx {
    fn deref_mut(&mut self) -> &mut CallFacts {
        &mut self.0
    }
}

impl fmt::Debug for ToolCx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCx")
            .field("principal", &self.principal)
            .field("request_id", &self.request_id)
            .field("deadline", &self.deadline)
            .field("traceparent", &self.traceparent)
            .field("tracestate", &self.tracestate)
            .field("meter", &self.meter.0)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_add_up_and_outlive_the_context() {
        let cx = ToolCx::new("anna", "1");
        let meter = Arc::clone(cx.meter());
        assert_eq!(meter.cost_micros(), None);
        cx.add_cost_micros(3);
        cx.clone().add_cost_micros(4);
        drop(cx);
        assert_eq!(meter.cost_micros(), Some(7));
        meter.add_cost_micros(u64::MAX);
        assert_eq!(meter.cost_micros(), Some(u64::MAX));
        assert_eq!(meter.take_cost_micros(), Some(u64::MAX));
        assert_eq!(meter.take_cost_micros(), None, "it is charged once");
        assert_eq!(meter.cost_micros(), None);
    }
}
