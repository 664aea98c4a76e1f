//! Exchange of frames between the server and one worker while it lives.

use super::{
    ending::Ending,
    frames::{
        AskFrame, ContentValue, CostFrame, CostTraceFrame, ErrorFrame, Head, LogFrame,
        ProgressFrame, ReadFrame, put_cancel, put_shutdown,
    },
    launcher::send,
    log_pipes, money,
    scheduler::{Answer, BUSY, Place},
    worker::Worker,
};
use crate::{Failure, InvalidArguments, LogLevel, Needed, ToolCx, ToolError, ToolOutput};
use bytes::{Bytes, BytesMut};
use serde_json::{json, value::RawValue};
use std::{fmt::Display, time::Duration};
use tokio::time::Instant;

/// A handler that is interrupted just before it begins to wait in the kernel would hear of it only
/// when the wait is over. So it is interrupted again, after this and then twice as long each time.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(20);

/// Reason why a conversation is over.
#[derive(Debug)]
pub(super) enum Over {
    /// The worker closed the socket, usually by dying.
    Closed,
    /// The worker said what it must not say.
    Nonsense(String),
    /// A cancelled call did not end in time.
    Stuck,
    /// The launcher is gone, and the worker with it.
    LauncherLost,
    /// There is a newer generation, and nothing runs here any more.
    Retired,
    /// The worker is not needed any more, and gets no calls.
    Idle,
    /// The server wants no worker any more.
    Stopped,
}

/// The interval of `again`, at its time.
async fn passed(again: Option<(Instant, Duration)>) -> Duration {
    match again {
        Some((when, interval)) => {
            tokio::time::sleep_until(when).await;
            interval
        }
        None => std::future::pending().await,
    }
}

impl Worker {
    /// Talks to the worker until one of both is gone, or `end` says why.
    pub(super) async fn talk(&mut self, place: &Place, end: impl Future<Output = Over>) -> Over {
        let Self {
            reader,
            writer,
            process,
        } = self;
        let read = async {
            loop {
                match reader.next().await {
                    Ok(Some(frame)) => {
                        if let Err(why) = hear(place, &frame) {
                            return Over::Nonsense(why);
                        }
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                        return Over::Nonsense(error.to_string());
                    }
                    Ok(None) | Err(_) => return Over::Closed,
                }
            }
        };
        let write = async {
            // When to interrupt once more, and how long to wait after that.
            let mut again: Option<(Instant, Duration)> = None;
            loop {
                let mut outgoing = tokio::select! {
                    outgoing = place.next_outgoing() => outgoing,
                    interval = passed(again) => {
                        again = None;
                        if place.has_cancelled_calls() {
                            process.interrupt();
                            again = Some((Instant::now() + interval * 2, interval * 2));
                        }
                        continue;
                    }
                };
                if send(writer, &mut outgoing.frames).await.is_err() {
                    // The worker is gone, but what it said before may not have been read yet.
                    return std::future::pending().await;
                }
                if outgoing.interrupt {
                    process.interrupt();
                    again = Some((Instant::now() + INTERRUPT_AGAIN, INTERRUPT_AGAIN));
                }
            }
        };
        tokio::select! {
            over = read => over,
            over = write => over,
            () = place.expired() => Over::Stuck,
            over = end => over,
        }
    }

    /// Sees off a worker that is lost.
    pub(super) async fn end(mut self, over: &Over) -> Ending {
        match over {
            Over::Closed => self.process.wait_for_end().await,
            Over::Nonsense(_)
            | Over::Stuck
            | Over::LauncherLost
            | Over::Retired
            | Over::Idle
            | Over::Stopped => self.process.kill().await,
        }
    }

    /// Has the worker cancel the calls `running` and end, and kills it if it does not within `grace`.
    pub(super) async fn dismiss(mut self, running: &[u64], grace: Duration) {
        let until = Instant::now() + grace;
        let mut frames = BytesMut::new();
        for id in running {
            put_cancel(&mut frames, *id);
        }
        put_shutdown(&mut frames);
        // A worker that does not listen is killed below.
        let _ = tokio::time::timeout_at(until, send(&mut self.writer, &mut frames)).await;
        if !running.is_empty() {
            self.process.interrupt();
        }
        self.process
            .wait(until.saturating_duration_since(Instant::now()))
            .await;
    }
}

/// Takes note of what the worker says.
fn hear(place: &Place, frame: &Bytes) -> Result<(), String> {
    let head: Head<'_> = serde_json::from_slice(frame).map_err(unreadable)?;
    let id = || {
        head.id
            .ok_or_else(|| format!("`{:.32}` without an id", head.kind))
    };
    if !matches!(&*head.kind, "result" | "content" | "error") {
        place.heard(head.kind == "pong");
    }
    match &*head.kind {
        "result" => {
            let value = head.value.ok_or("a result without a value")?;
            place.answered(id()?, || Ok(output(value)));
        }
        "content" => {
            let value = head.value.ok_or("content without a value")?;
            place.answered(id()?, || content(value));
        }
        "error" => {
            let error: ErrorFrame = serde_json::from_slice(frame).map_err(unreadable)?;
            let id = id()?;
            let refused = match error.kind.as_str() {
                "not_askable" => place.refused(id),
                _ => Default::default(),
            };
            place.answered(id, || match refused.is_empty() {
                true => failure(error),
                // The client hears from the server which capability it lacks.
                false => Err(ToolError::NeedsInput(Needed {
                    questions: refused,
                    ..Needed::default()
                })),
            });
        }
        "progress" => {
            let report: ProgressFrame = serde_json::from_slice(frame).map_err(unreadable)?;
            if let Some(cx) = place.context(id()?) {
                cx.progress(report.progress, report.total, report.message);
            }
        }
        "cost" => {
            let cost: CostFrame = serde_json::from_slice(frame).map_err(unreadable)?;
            add(place, id()?, &cost);
        }
        "cost_trace" => {
            let frame: CostTraceFrame = serde_json::from_slice(frame).map_err(unreadable)?;
            note_trace(place, id()?, &frame.trace_id);
        }
        "ask" => {
            let asked: AskFrame = serde_json::from_slice(frame).map_err(unreadable)?;
            let questions = asked.questions.into_iter();
            place.asks(id()?, questions.map(|(key, it)| (key, it.into())).collect());
        }
        "read" => {
            let read: ReadFrame = serde_json::from_slice(frame).map_err(unreadable)?;
            read_resource(place, id()?, read);
        }
        "log" => {
            let entry: LogFrame = serde_json::from_slice(frame).map_err(unreadable)?;
            let cx = head.id.and_then(|id| place.context(id));
            if entry.to_client {
                if let Some(cx) = cx {
                    tell(&cx, entry);
                }
            } else {
                log(&entry, cx.as_ref().map(|cx| &*cx.request_id));
            }
        }
        "pong" => {}
        other => return Err(format!("a frame `{other:.32}`")),
    }
    Ok(())
}

fn unreadable(error: impl Display) -> String {
    format!("a frame that cannot be read: {error}")
}

fn output(value: &RawValue) -> ToolOutput {
    ToolOutput::from_raw(value.to_owned())
}

/// Makes the answer of the blocks that a handler has said. It may have made them itself.
fn content(value: &RawValue) -> Answer {
    let said: ContentValue = serde_json::from_str(value.get()).map_err(|error| {
        ToolError::failed(format!("the handler's blocks of content are none: {error}"))
    })?;
    if let Some(structured) = &said.structured
        && !structured.get().starts_with('{')
    {
        return Err(ToolError::failed(
            "the handler's structured content is no object",
        ));
    }
    Ok(ToolOutput {
        content: said.content,
        structured: said.structured,
        is_error: said.is_error,
        meta: said.meta,
    })
}

fn failure(error: ErrorFrame) -> Answer {
    let ErrorFrame {
        kind,
        exception,
        message,
        traceback,
        violations,
    } = error;
    match kind.as_str() {
        "no_such_tool" => {
            let why = format!("the application has no such handler: {message}");
            return Err(ToolError::broken(why));
        }
        "busy" => return Err(ToolError::Busy { retry_after: BUSY }),
        // Annotations can say more than the schema made from them.
        "invalid_arguments" => {
            let places = violations.into_iter().map(|it| (it.pointer, it.message));
            let refused = InvalidArguments::several(places)
                .unwrap_or_else(|| InvalidArguments::because(message));
            return Err(ToolError::Rejected(refused));
        }
        _ => {}
    }
    let message = match (exception.as_str(), message.as_str()) {
        // As Python shows an exception: the message alone may be no more than a name or a number.
        ("", _) => message,
        (_, "") => exception.clone(),
        // Raised to say just that.
        ("ToolError", _) => message,
        _ if kind == "told" => message,
        _ => format!("{exception}: {message}"),
    };
    let details = json!({ "kind": kind, "exception": exception });
    let traceback = Some(traceback).filter(|traceback| !traceback.is_empty());
    Err(ToolError::Failed(Failure {
        message,
        details: Some(details),
        traceback,
    }))
}

/// Reads a resource of the server for a handler, beside what else its worker says.
fn read_resource(place: &Place, id: u64, read: ReadFrame) {
    let Some((cx, scheduler)) = place.asks_server(id) else {
        return;
    };
    let ReadFrame { key, uri } = read;
    tokio::spawn(async move {
        let result = match cx.resources() {
            None => Err("resources of the server cannot be read here".to_owned()),
            Some(resources) => {
                let reading = std::sync::Arc::clone(resources).read(uri);
                match cx.deadline {
                    None => reading.await,
                    Some(deadline) => tokio::time::timeout_at(deadline.into(), reading)
                        .await
                        .unwrap_or_else(|_| Err("the time of the call is over".to_owned())),
                }
            }
        };
        scheduler.deliver(id, key, result);
    });
}

/// Most characters that are logged of a cost that cannot be read.
const MAX_TOLD_DIGITS: usize = 40;

fn add(place: &Place, id: u64, cost: &CostFrame) {
    // What is no amount is no less than any.
    let micros = |usd: &str| money::micros(usd).unwrap_or(u64::MAX);
    let micros = cost.usd.as_deref().map(micros);
    if micros == Some(u64::MAX) {
        let usd = cost.usd.as_deref().unwrap_or_default();
        let usd: String = usd.chars().take(MAX_TOLD_DIGITS).collect();
        tracing::warn!(
            usd,
            "a handler reported a cost that is no amount of money, or too large; the call is charged the largest amount"
        );
    }
    let is_metered = place.with_meter(id, |meter| {
        if let Some(micros) = micros {
            meter.add_cost_micros(micros);
        }
        meter.add_tokens(cost.tokens_in.unwrap_or(0), cost.tokens_out.unwrap_or(0));
        if let Some(model) = &cost.model {
            meter.note_model(model);
        }
    });
    if !is_metered {
        tracing::warn!(
            usd = cost.usd,
            "a handler reported a cost after the end of its call, or in a thread that knows of no call; no client \
             is charged for it"
        );
    }
}

/// Most bytes of the name of a trace.
const MAX_TRACE_BYTES: usize = 128;

fn note_trace(place: &Place, id: u64, trace: &str) {
    if trace.is_empty() || MAX_TRACE_BYTES < trace.len() {
        tracing::warn!(
            "a handler reported a trace of its costs whose name is empty or too long; it is not read"
        );
        return;
    }
    let is_metered = place.with_meter(id, |meter| meter.note_cost_trace(trace));
    if !is_metered {
        tracing::warn!(
            trace,
            "a handler reported the trace of its costs after the end of its call, or in a thread that knows of no \
             call; it is not read"
        );
    }
}

/// Tells the client what a handler logs for it.
fn tell(cx: &ToolCx, entry: LogFrame) {
    let level = match entry.level.as_str() {
        "debug" => LogLevel::Debug,
        "notice" => LogLevel::Notice,
        "warning" => LogLevel::Warning,
        "error" => LogLevel::Error,
        "critical" => LogLevel::Critical,
        "alert" => LogLevel::Alert,
        "emergency" => LogLevel::Emergency,
        _ => LogLevel::Info,
    };
    let data = match entry.extra {
        None => entry.message.into(),
        Some(extra) => json!({"msg": entry.message, "extra": extra}),
    };
    cx.log(level, entry.logger.as_deref(), &data);
}

fn log(entry: &LogFrame, request_id: Option<&str>) {
    let LogFrame { level, message, .. } = entry;
    log_pipes::cut(message, |line| match level.as_str() {
        "error" | "critical" => tracing::error!(target: "python", request_id, "{line}"),
        "warning" => tracing::warn!(target: "python", request_id, "{line}"),
        "debug" => tracing::debug!(target: "python", request_id, "{line}"),
        _ => tracing::info!(target: "python", request_id, "{line}"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_no_thread_could_be_started_for_was_not_begun() {
        let frame = r#"{"id":1,"kind":"busy","exception":"","message":"no thread","traceback":""}"#;
        let answer = failure(serde_json::from_str(frame).unwrap());
        assert!(matches!(answer, Err(ToolError::Busy { .. })));
    }

    #[test]
    fn places_of_refused_arguments_are_pointers() {
        let refused = |violations: String| {
            let frame = format!(
                r#"{{"id":1,"kind":"invalid_arguments","message":"/day: no date"{violations}}}"#
            );
            match failure(serde_json::from_str(&frame).unwrap()) {
                Err(ToolError::Rejected(refused)) => refused,
                other => panic!("{other:?}"),
            }
        };
        let told = |refused: &InvalidArguments| -> Vec<_> {
            let violations = refused.violations().iter();
            let told = violations.map(|it| (it.pointer().to_owned(), it.message().to_owned()));
            told.collect()
        };
        let one = r#"{"pointer":"/day","message":"no date"}"#;
        let with_places = refused(format!(r#","violations":[{one}]"#));
        assert_eq!(told(&with_places), [("/day".into(), "no date".into())]);
        let many = refused(format!(r#","violations":[{}]"#, [one; 21].join(",")));
        assert_eq!(many.violations().len(), InvalidArguments::MAX_VIOLATIONS);
        assert!(many.is_truncated());
        // What cannot be read at all has no place.
        let without = refused(String::new());
        assert_eq!(told(&without), [(String::new(), "/day: no date".into())]);
    }
}
