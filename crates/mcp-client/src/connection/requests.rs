//! Requests that are under way, and the rounds in which one is answered.

use crate::{
    CallOptions, Connection, Error,
    wire::shared::{Carrier, Listener, Open, Outcome, Shared},
    wire::{
        http::{HttpLink, mirrored},
        link::{Claim, Link, Out},
    },
};
use futures_util::future::{AbortHandle, Abortable, Aborted};
use jsonrpc_core::{Id, Message, RawJson};
use mcp_protocol::{
    Era, Method, ProtocolVersion,
    client::{
        Answer, Answered, OutgoingMeta, ServerError, decode_result, encode_client_notification,
        encode_input_response, encode_request, mirrored_headers,
    },
    model::{
        ClientCapabilities, ClientNotification, ClientRequest, InputRequest, InputRequired,
        InputRetry,
    },
};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

/// The time that a request has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) within: Duration,
}

impl Deadline {
    pub(crate) fn within(within: Duration) -> Self {
        // More than a timer can count to is as good as for ever.
        let at = Instant::now() + within.min(Duration::from_secs(365 * 86_400));
        Self { at, within }
    }
}

/// A request that is under way. Dropping it cancels the request.
pub(crate) struct Flight {
    shared: Arc<Shared>,
    pub(crate) id: i64,
    kind: Method,
    version: ProtocolVersion,
    sent: bool,
    claim: Option<Claim>,
    pub(crate) answer: oneshot::Receiver<Outcome>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let was_open = self.shared.forget(self.id);
        // What was not written yet is not written any more.
        let is_unsent = self.claim.as_ref().is_some_and(Claim::take);
        if !was_open || is_unsent || !self.sent || self.kind == Method::Initialize {
            return;
        }
        let link = self.shared.link();
        // Over HTTP, the modern era cancels by closing the connection, which is done.
        if link.http().is_some() && self.version.era() == Era::Modern {
            return;
        }
        let cancelled = ClientNotification::Cancelled {
            request: Id::Number(self.id),
            reason: None,
        };
        if let Ok(notification) = encode_client_notification(self.version, &cancelled) {
            link.reply(&self.shared, Message::Notification(notification));
        }
    }
}

impl Connection {
    /// Sends a request in revision `version`, without waiting for the answer.
    pub(crate) async fn start(
        &self,
        version: ProtocolVersion,
        request: &ClientRequest,
        options: &CallOptions,
        deadline: Deadline,
        changes: Option<Arc<Listener>>,
    ) -> Result<Flight, Error> {
        let (mut flight, out) = self.enter(version, request, options, deadline, changes)?;
        let shared = self.shared();
        match timeout_at(deadline.at, shared.link().send(shared, out)).await {
            Ok(sent) => sent?,
            Err(_) => return Err(self.timed_out(flight.kind, deadline)),
        }
        flight.sent = true;
        Ok(flight)
    }

    /// Enters a request that is to be sent.
    fn enter(
        &self,
        version: ProtocolVersion,
        request: &ClientRequest,
        options: &CallOptions,
        deadline: Deadline,
        changes: Option<Arc<Listener>>,
    ) -> Result<(Flight, Out), Error> {
        let shared = self.shared();
        let id = shared.next_id();
        // A legacy server was told who asks, and for what, when the session began.
        let is_modern = version.era() == Era::Modern;
        let capabilities = is_modern.then(|| self.capabilities(options.capabilities.as_ref()));
        let meta = OutgoingMeta {
            client_info: is_modern.then(|| Cow::Borrowed(&self.options().client_info)),
            capabilities: match &capabilities {
                Some(capabilities) => Cow::Borrowed(capabilities),
                None => Cow::Owned(ClientCapabilities::default()),
            },
            log_level: self.options().log_level,
            progress_token: options.progress.as_ref().map(|_| Id::Number(id)),
            entries: Cow::Borrowed(&options.meta),
        };
        let outgoing = encode_request(version, request, &meta)?;
        let mut headers = Vec::new();
        if shared.link().http().is_some() {
            for (name, value) in mirrored_headers(version, request) {
                headers.push(mirrored(shared, name, &value)?);
            }
            if let ClientRequest::CallTool(call) = request
                && version.era() == Era::Modern
            {
                let listed = self.listed();
                let params = listed.mirrored.get(&call.name);
                for (name, value) in params
                    .map(|it| it.headers_of(&call.arguments))
                    .into_iter()
                    .flatten()
                {
                    headers.push(mirrored(shared, &name, &value)?);
                }
            }
        }
        let claim = shared.link().http().is_none().then(Claim::default);
        let (answer, answered) = oneshot::channel();
        shared.open(
            id,
            Open {
                answer: Some(answer),
                claim: claim.clone(),
                progress: options.progress.clone(),
                changes,
                notifications: 0,
                task: None,
            },
        )?;
        let flight = Flight {
            shared: Arc::clone(shared),
            id,
            kind: outgoing.kind,
            version,
            sent: false,
            claim: claim.clone(),
            answer: answered,
        };
        let out = Out {
            message: Message::Request(outgoing.into_request(Id::Number(id))),
            id: Some(id),
            claim,
            headers,
            until: deadline.at,
            opens: matches!(request, ClientRequest::Initialize(_)),
        };
        Ok((flight, out))
    }

    pub(crate) fn timed_out(&self, kind: Method, deadline: Deadline) -> Error {
        Error::TimedOut {
            method: kind.name(),
            within: deadline.within,
            note: self.shared().note(),
        }
    }

    /// Waits for the answer to what was started.
    pub(crate) async fn finish(
        &self,
        mut flight: Flight,
        deadline: Deadline,
    ) -> Result<Answered, Error> {
        let outcome = match timeout_at(deadline.at, &mut flight.answer).await {
            Ok(Ok(outcome)) => outcome.map_err(|it| it.of_request(flight.kind.name()))?,
            Ok(Err(_)) => return Err(Error::closed("it was closed")),
            Err(_) => return Err(self.timed_out(flight.kind, deadline)),
        };
        match outcome {
            Ok(result) => Ok(decode_result(flight.version, flight.kind, &result)?),
            Err(error) => Err(Error::Server {
                meaning: ServerError::of(flight.version, &error),
                error,
            }),
        }
    }

    pub(crate) async fn once(
        &self,
        version: ProtocolVersion,
        request: &ClientRequest,
        options: &CallOptions,
        deadline: Deadline,
    ) -> Result<Answered, Error> {
        let flight = match self.shared().link() {
            Link::Http(link) => {
                let (mut flight, out) = self.enter(version, request, options, deadline, None)?;
                flight.sent = true;
                if version.era() == Era::Legacy
                    && let Some((is_answered, until)) = link.unheard()
                    && self.may_be_asked(request)
                {
                    let _ = timeout_at(until.min(deadline.at), is_answered.wait()).await;
                }
                self.exchange(link, &flight, out, deadline).await?;
                flight
            }
            Link::Duplex(_) => {
                let start = self.start(version, request, options, deadline, None);
                start.await?
            }
        };
        self.finish(flight, deadline).await
    }

    /// True if a legacy server may ask something before it answers.
    fn may_be_asked(&self, request: &ClientRequest) -> bool {
        use ClientRequest::{CallTool, GetPrompt, ReadResource};
        if !matches!(request, CallTool(_) | GetPrompt(_) | ReadResource(_)) {
            return false;
        }
        let declared = self.options().handlers.capabilities();
        declared.elicitation.is_some() || declared.sampling.is_some() || declared.roots
    }

    /// Sends a request over HTTP and has its answer delivered: here, or by a task if it is a stream, which is read
    /// whether or not the caller waits.
    async fn exchange(
        &self,
        link: &Arc<HttpLink>,
        flight: &Flight,
        out: Out,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let (shared, id) = (self.shared(), flight.id);
        let (part, registration) = AbortHandle::new_pair();
        shared.carried_by(id, Carrier::Part(part));
        let begun = Abortable::new(link.begin(shared, out, None), registration);
        match timeout_at(deadline.at, begun).await {
            // It was given up, and the flight knows why.
            Ok(Err(Aborted) | Ok(Ok(None))) => {}
            Ok(Ok(Ok(Some(stream)))) => {
                let (link, carrier) = (Arc::clone(link), Arc::clone(shared));
                let task = tokio::spawn(async move {
                    if let Err(error) = link.follow(&carrier, stream).await {
                        carrier.fail(id, error);
                    }
                });
                shared.carried_by(id, Carrier::Task(task.abort_handle()));
            }
            Ok(Ok(Err(error))) => shared.fail(id, error),
            Err(_) => return Err(self.timed_out(flight.kind, deadline)),
        }
        Ok(())
    }

    pub(crate) fn deadline(&self, options: &CallOptions) -> Deadline {
        Deadline::within(options.timeout.unwrap_or(self.options().bounds.timeout))
    }

    /// Sends a request of any kind and waits for its answer. What the server asks on the way is answered
    /// by the handlers, a legacy session that was lost is opened anew once, and headers that were out of
    /// date are brought up to date once.
    ///
    /// # Errors
    ///
    /// [`Error`] when there is no result.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn request(
        &self,
        request: ClientRequest,
        options: &CallOptions,
    ) -> Result<Answer, Error> {
        let deadline = self.deadline(options);
        self.request_until(request, options, deadline).await
    }

    pub(crate) async fn request_until(
        &self,
        request: ClientRequest,
        options: &CallOptions,
        deadline: Deadline,
    ) -> Result<Answer, Error> {
        let answered = self.answered_until(request, options, deadline).await?;
        Ok(answered.answer)
    }

    pub(super) async fn answered_until(
        &self,
        mut request: ClientRequest,
        options: &CallOptions,
        deadline: Deadline,
    ) -> Result<Answered, Error> {
        let (mut reopened, mut listed) = (false, false);
        let mut rounds = 0;
        loop {
            let version = self.shared().version();
            let session = self.shared().link().http().and_then(|it| it.session());
            let required = match self.once(version, &request, options, deadline).await {
                Ok(Answered {
                    answer: Answer::InputRequired(required),
                    ..
                }) if !options.hands_over_questions => required,
                Ok(answered) => return Ok(answered),
                Err(Error::SessionLost) if !reopened => {
                    reopened = true;
                    let reopening = timeout_at(deadline.at, Box::pin(self.reopen(session))).await;
                    reopening.map_err(|_| self.timed_out(Method::of(&request), deadline))??;
                    continue;
                }
                Err(Error::Server {
                    meaning: ServerError::HeaderMismatch,
                    ..
                }) if !listed && matches!(request, ClientRequest::CallTool(_)) => {
                    listed = true;
                    Box::pin(self.tools_until(deadline)).await?;
                    continue;
                }
                Err(error) if !reopened && self.may_speak_otherwise(version, &error) => {
                    reopened = true;
                    let probing =
                        timeout_at(deadline.at, Box::pin(self.renegotiate(version))).await;
                    match probing {
                        Ok(true) => continue,
                        _ => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            };
            rounds += 1;
            if self.options().bounds.max_rounds < rounds {
                let most = self.options().bounds.max_rounds as u64;
                return Err(Error::bound("max_rounds", most));
            }
            let retry = timeout_at(deadline.at, Box::pin(self.answers(version, required))).await;
            let retry = retry.map_err(|_| self.timed_out(Method::of(&request), deadline))??;
            match &mut request {
                ClientRequest::CallTool(call) => call.retry = retry,
                ClientRequest::GetPrompt(get) => get.retry = retry,
                ClientRequest::ReadResource(read) => read.retry = retry,
                _ => return Err(Error::Protocol("it asks where it must not".to_owned())),
            }
        }
    }

    async fn answers(
        &self,
        version: ProtocolVersion,
        required: InputRequired,
    ) -> Result<InputRetry, Error> {
        Ok(InputRetry {
            responses: self.answer_all(version, required.requests).await?,
            state: required.state,
        })
    }

    /// Has the handlers answer questions of a modern server's.
    pub(crate) async fn answer_all(
        &self,
        version: ProtocolVersion,
        questions: BTreeMap<String, InputRequest>,
    ) -> Result<BTreeMap<String, RawJson>, Error> {
        let declared = self.options().handlers.capabilities();
        let mut responses = BTreeMap::new();
        for (key, question) in questions {
            if !question.is_declared_by(&declared) {
                let text = format!("it asks for {}, which was not declared", question.method());
                return Err(Error::Protocol(text));
            }
            let answer = self.options().handlers.answer(question).await;
            let answer = answer.map_err(Error::Unanswered)?;
            responses.insert(key, encode_input_response(version, &answer)?);
        }
        Ok(responses)
    }

    pub(crate) async fn notify(&self, notification: &ClientNotification) -> Result<(), Error> {
        let shared = self.shared();
        let encoded = encode_client_notification(shared.version(), notification)?;
        let out = Out {
            message: Message::Notification(encoded),
            id: None,
            claim: None,
            headers: Vec::new(),
            until: Deadline::within(self.options().bounds.timeout).at,
            opens: false,
        };
        let sent = shared.link().send(shared, out).await;
        sent.map_err(|it| {
            it.of_request(match notification {
                ClientNotification::Initialized => "notifications/initialized",
                _ => "a notification",
            })
        })
    }
}
