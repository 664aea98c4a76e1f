//! One receiver, and the task that sends it what it wants to know.

use crate::{Event, Notice, queue::Queue, sign};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_client::{Client, ClientError, ClientOptions, Reach, SendError, retry_after};
use std::{
    error::Error,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::{sync::watch, time::Instant};

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// The most bytes that are read of an answer, of which only the status matters.
const MAX_ANSWER: usize = 1 << 20;

/// A receiver.
#[derive(Clone)]
pub struct WebhookOptions {
    /// Name that the operator gave the webhook.
    pub name: String,
    /// Address that notices are posted to. May hold a secret, and is in no log.
    pub url: Uri,
    /// Key that notices are signed with.
    pub secret: String,
    /// Sent with each of them, besides what is sent anyway.
    pub headers: HeaderMap,
    /// Events to send; all, if the list is empty.
    pub events: Vec<Event>,
    /// Authorities that its certificate may come from besides those of the system: PEM. May be empty.
    pub authorities: Vec<u8>,
    /// Longest time of one attempt.
    pub timeout: Duration,
    /// The pause after the first attempt; twice as long after each further one, up to five minutes.
    pub pause: Duration,
    /// A notice is given up when it could not be delivered for so long.
    pub give_up_after: Duration,
}

impl fmt::Debug for WebhookOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookOptions")
            .field("name", &self.name)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// State of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookState {
    /// Name of the webhook.
    pub name: String,
    /// Notices that were delivered.
    pub delivered: u64,
    /// Notices that were not and will not be.
    pub undelivered: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Notices that wait, the one that is being sent not counted.
    pub waiting: usize,
    /// Reason why the last attempt failed, if it did.
    pub failing: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Webhook {
    options: WebhookOptions,
    /// Name of the server that sends the notice.
    server: String,
    version: String,
    client: Client,
    queue: Queue,
    /// There is no time left for pauses.
    closing: watch::Sender<bool>,
    delivered: AtomicU64,
    undelivered: AtomicU64,
    failures: AtomicU64,
    failing: Mutex<Option<String>>,
}

/// Reason why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("it cannot be sent")]
    Send(#[source] SendError),
    /// Another attempt may succeed, after so long if the receiver has said so.
    #[error("it answers {status}")]
    Failing {
        status: StatusCode,
        after: Option<Duration>,
    },
    /// Refusal by the receiver, which trying again will not change.
    #[error("it answers {0}, and will again")]
    Refused(StatusCode),
}

impl AttemptError {
    fn is_final(&self) -> bool {
        match self {
            Self::Send(error) => {
                matches!(error, SendError::BadAddress(_) | SendError::NotEncrypted)
            }
            Self::Failing { .. } => false,
            Self::Refused(_) => true,
        }
    }

    fn wanted_pause(&self) -> Option<Duration> {
        match self {
            Self::Failing { after, .. } => *after,
            Self::Send(_) | Self::Refused(_) => None,
        }
    }
}

impl Webhook {
    pub(crate) fn new(
        options: WebhookOptions,
        server: String,
        version: String,
    ) -> Result<Self, ClientError> {
        let client = Client::new(ClientOptions {
            reach: Reach::Any,
            authorities: options.authorities.clone(),
            connect_timeout: options.timeout,
            timeout: options.timeout,
            max_body: MAX_ANSWER,
            ..ClientOptions::default()
        })?;
        Ok(Self {
            options,
            server,
            version,
            client,
            queue: Queue::default(),
            closing: watch::Sender::new(false),
            delivered: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            failing: Mutex::default(),
        })
    }

    /// Has a notice sent, if the receiver wants to know of it.
    pub(crate) fn push(&self, notice: &Arc<Notice>) {
        let events = &self.options.events;
        if !events.is_empty() && !events.contains(&notice.condition.event) {
            return;
        }
        if let Some(lost) = self.queue.push(Arc::clone(notice)) {
            self.give_up(&lost, "too many wait");
        }
    }

    /// Sends what is there, until there will be nothing more.
    pub(crate) async fn run(self: Arc<Self>) {
        while let Some(notice) = self.queue.next().await {
            // What is dropped on the way was not delivered either.
            let on_the_way = OnTheWay {
                webhook: &self,
                notice: &notice,
                is_decided: false,
            };
            self.deliver(on_the_way).await;
        }
    }

    /// Takes nothing more, and tries what waits once.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
        self.queue.close();
    }

    /// Gives up what still waits.
    pub(crate) async fn give_up_rest(&self) {
        while let Some(notice) = self.queue.next().await {
            self.give_up(&notice, "the server has ended");
        }
    }

    pub(crate) fn state(&self) -> WebhookState {
        WebhookState {
            name: self.options.name.clone(),
            delivered: self.delivered.load(Ordering::Relaxed),
            undelivered: self.undelivered.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            waiting: self.queue.len(),
            failing: self.failing().clone(),
        }
    }

    async fn deliver(&self, mut on_the_way: OnTheWay<'_>) {
        let notice = on_the_way.notice;
        let body = notice.body(&self.server, &self.version);
        let body = Bytes::from(redaction::without_known_json(&body).into_owned());
        let give_up_at = Instant::now() + self.options.give_up_after;
        let mut pause = self.options.pause;
        let mut closing = self.closing.subscribe();
        loop {
            let error = match self.attempt(notice, body.clone()).await {
                Ok(()) => {
                    on_the_way.is_decided = true;
                    return self.reached();
                }
                Err(error) => error,
            };
            self.failed(&error);
            let until = Instant::now()
                + error
                    .wanted_pause()
                    .unwrap_or_default()
                    .max(pause)
                    .min(MAX_PAUSE);
            let is_last = error.is_final() || *closing.borrow_and_update() || give_up_at < until;
            if is_last {
                on_the_way.is_decided = true;
                return self.give_up(notice, &explain(&error));
            }
            // At the end of the server once more and at once: it may be back.
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                _ = closing.wait_for(|closing| *closing) => {}
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn attempt(&self, notice: &Notice, body: Bytes) -> Result<(), AttemptError> {
        let options = &self.options;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time = now.unwrap_or_default().as_secs();
        let signature = sign(&options.secret, time, &body);
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = options.url.clone();
        let headers = request.headers_mut();
        headers.clone_from(&options.headers);
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        let ours = [
            ("x-owlclaw-event", notice.condition.event.to_string()),
            ("x-owlclaw-delivery", notice.id.to_string()),
            ("x-owlclaw-signature", signature),
        ];
        for (name, value) in ours {
            let value = HeaderValue::try_from(value).expect("letters, digits and signs");
            headers.insert(name, value);
        }
        let sent = self.client.send(request).await;
        let response = sent.map_err(AttemptError::Send)?;
        let status = response.status();
        let may_change = status.is_server_error()
            || [
                StatusCode::REQUEST_TIMEOUT,
                StatusCode::TOO_EARLY,
                StatusCode::TOO_MANY_REQUESTS,
            ]
            .contains(&status);
        match may_change {
            _ if status.is_success() => Ok(()),
            true => {
                let after = retry_after(response.headers(), SystemTime::now(), MAX_PAUSE);
                Err(AttemptError::Failing { status, after })
            }
            false => Err(AttemptError::Refused(status)),
        }
    }

    fn reached(&self) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
        if self.failing().take().is_some() {
            tracing::info!(webhook = self.options.name, "a webhook works again");
        }
    }

    fn failed(&self, error: &AttemptError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let why = explain(error);
        let was_failing = self.failing().replace(why.clone()).is_some();
        // A receiver that is away for hours is told of once, and of each notice that it costs.
        if !was_failing {
            tracing::warn!(
                webhook = self.options.name,
                why,
                "a webhook does not take an alert; it is tried again"
            );
        }
    }

    fn give_up(&self, notice: &Notice, why: &str) {
        self.undelivered.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            webhook = self.options.name,
            alert = notice.condition.key(),
            state = ?notice.state,
            detail = notice.detail,
            why,
            "an alert could not be delivered"
        );
    }

    fn failing(&self) -> MutexGuard<'_, Option<String>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A notice that is being sent.
struct OnTheWay<'a> {
    webhook: &'a Webhook,
    notice: &'a Notice,
    is_decided: bool,
}

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        if !self.is_decided {
            self.webhook.give_up(self.notice, "the server has ended");
        }
    }
}

fn explain(error: &AttemptError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
