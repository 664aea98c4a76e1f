use super::{
    CommandOptions, Input,
    call::{Call, Outcome},
    guard, output,
    process::{self, Process},
    stderr::StderrLog,
};
use crate::{Arguments, Executor, Failure, Repeat, ToolCx, ToolError, ToolOutput, exit_status};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use std::{
    future::Future,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Time after which callers that are refused for want of room are told to retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Runner of a program, for a bounded number of calls at once.
#[derive(Debug)]
pub(super) struct Runner {
    options: CommandOptions,
    program: PathBuf,
    name: Arc<str>,
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The same, as what carries out calls of a tool.
#[derive(Debug)]
struct Calls(Arc<Runner>);

impl Executor for Calls {
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.0.execute(cx, arguments))
    }
}

impl Runner {
    pub(super) fn new(options: CommandOptions, program: PathBuf) -> Self {
        Self {
            name: options.name.as_str().into(),
            turns: Arc::new(Semaphore::new(options.max_concurrent.max(1))),
            waiting: AtomicUsize::new(0),
            options,
            program,
        }
    }

    pub(super) fn options(&self) -> &CommandOptions {
        &self.options
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn executor(self: &Arc<Self>) -> impl Executor + 'static {
        Calls(Arc::clone(self))
    }

    async fn execute(&self, cx: ToolCx, arguments: Arguments) -> Result<ToolOutput, ToolError> {
        let line = &self.options.line;
        let given = match line.has_placeholders() {
            true => arguments.exact_object().map_err(ToolError::Rejected)?,
            false => arguments.as_object(),
        };
        let rendered = line.render(given).map_err(ToolError::Rejected)?;
        let input = match self.options.input {
            Input::Json => Some(line_of(arguments.raw())),
            Input::None => None,
        };
        drop(arguments);
        let turn = self.turn(cx.deadline).await?;
        let spawned = Process::spawn(
            &self.options,
            &self.program,
            rendered,
            input.is_some(),
            &trace(&cx),
        );
        let (process, pipes) = spawned.map_err(|error| match process::is_shortage(&error) {
            true => {
                tracing::warn!(target: "command", tool = &*self.name, %error, "no process to spare");
                busy()
            }
            false => ToolError::broken(error),
        })?;
        let (give_up, given_up) = oneshot::channel::<()>();
        let (answer, answered) = oneshot::channel();
        let call = Call {
            process,
            pipes,
            input,
            max_output: self.options.max_output,
            grace: self.options.grace,
            stderr: StderrLog::new(Arc::clone(&self.name), Arc::clone(&cx.request_id)),
            given_up,
        };
        // In a task of its own, since the program must be seen to even where this is dropped.
        tokio::spawn(async move {
            let outcome = call.carry_out().await;
            // Not before the program is gone: it is what the bound is for.
            drop(turn);
            let _ = answer.send(outcome);
        });
        let outcome = until(cx.deadline, answered).await?;
        // From here on there is nothing to give up.
        drop(give_up);
        match outcome {
            Ok(outcome) => self.answer(outcome),
            Err(_) => Err(ToolError::broken("the call was lost")),
        }
    }

    /// Waits for one of the places at once, in the order of arrival.
    async fn turn(&self, deadline: Option<Instant>) -> Result<OwnedSemaphorePermit, ToolError> {
        if let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() {
            return Ok(turn);
        }
        let _place = Place::take(&self.waiting, self.options.max_waiting).ok_or_else(busy)?;
        let turn = until(deadline, Arc::clone(&self.turns).acquire_owned()).await?;
        turn.map_err(ToolError::broken)
    }

    fn answer(&self, outcome: Outcome) -> Result<ToolOutput, ToolError> {
        match outcome {
            Outcome::Ended {
                status,
                output,
                last_words,
            } => match status.code() {
                Some(code) if self.options.success.iter().any(|it| i32::from(*it) == code) => {
                    output::answer(output, self.options.output)
                }
                Some(code) => Err(self.failed(code, last_words)),
                None => Err(Self::crashed(status, last_words)),
            },
            Outcome::TooMuch => Err(ToolError::failed(format!(
                "the program wrote more than {} bytes and was ended",
                self.options.max_output
            ))),
            Outcome::GivenUp => Err(ToolError::TimedOut),
            Outcome::Lost(error) => Err(ToolError::broken(error)),
        }
    }

    fn failed(&self, code: i32, last_words: String) -> ToolError {
        let is_guard = self.options.guard.is_some() && code == i32::from(guard::REFUSED);
        if is_guard && let Some(why) = last_words.strip_prefix(guard::MARK) {
            return ToolError::broken(why.to_owned());
        }
        let mut message = format!("the program ended with exit status {code}");
        if self.options.stderr_in_errors && !last_words.is_empty() {
            message = format!("{message}: {last_words}");
        }
        ToolError::Failed(Failure {
            message,
            details: Some(serde_json::json!({ "exit_status": code })),
            traceback: (!last_words.is_empty()).then_some(last_words),
        })
    }

    fn crashed(status: ExitStatus, detail: String) -> ToolError {
        ToolError::Crashed {
            message: format!("the program was ended by {}", exit_status::describe(status)),
            // Who killed it may not be there the next time.
            repeat: Repeat::IfIdempotent,
            detail,
        }
    }
}

/// Environment variables with the call's place in a distributed trace.
fn trace(cx: &ToolCx) -> Vec<(&'static str, Arc<str>)> {
    let all = [
        ("TRACEPARENT", cx.traceparent.clone()),
        ("TRACESTATE", cx.tracestate.clone()),
    ];
    let there = all.into_iter();
    there.filter_map(|(name, it)| Some((name, it?))).collect()
}

fn busy() -> ToolError {
    ToolError::Busy {
        retry_after: RETRY_AFTER,
    }
}

async fn until<F: Future>(deadline: Option<Instant>, future: F) -> Result<F::Output, ToolError> {
    match deadline {
        None => Ok(future.await),
        Some(deadline) => tokio::time::timeout_at(deadline.into(), future)
            .await
            .map_err(|_| ToolError::TimedOut),
    }
}

/// On one line, for whoever reads lines. JSON has line breaks between its parts only, where a space
/// says the same.
fn line_of(raw: &Bytes) -> Bytes {
    let mut line = BytesMut::with_capacity(raw.len() + 1);
    line.extend_from_slice(raw);
    for byte in line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    line.extend_from_slice(b"\n");
    line.freeze()
}

/// One of the places of those who wait.
#[derive(Debug)]
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(taken: &'a AtomicUsize, max: usize) -> Option<Self> {
        let more = |count: usize| (count < max).then(|| count + 1);
        let taken_now = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken_now.ok().map(|_| Self(taken))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
