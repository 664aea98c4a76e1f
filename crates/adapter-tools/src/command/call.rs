use super::{
    process::{Pipes, Process},
    stderr::StderrLog,
};
use bytes::Bytes;
use std::{future::Future, io, pin::pin, process::ExitStatus, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::ChildStdin,
    sync::oneshot,
};

/// Time to wait for the end of the output once the program has ended: processes it left behind may
/// hold the pipes open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// One call of a program, as the task that looks after it has it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) process: Process,
    pub(super) pipes: Pipes,
    /// Input of the program, if it has any.
    pub(super) input: Option<Bytes>,
    pub(super) max_output: usize,
    pub(super) grace: Duration,
    pub(super) stderr: StderrLog,
    /// Resolves when nobody wants the answer any more.
    pub(super) given_up: oneshot::Receiver<()>,
}

/// Outcome of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The program ended by itself.
    Ended {
        status: ExitStatus,
        output: Vec<u8>,
        /// The last lines of its standard error.
        last_words: String,
    },
    /// The program wrote more than it may, and was killed.
    TooMuch,
    /// The answer was not wanted any more; the program was asked to end, or killed.
    GivenUp,
    /// The end of the program cannot be known.
    Lost(io::Error),
}

/// The program wrote more than it may.
struct TooMuch;

impl Call {
    /// Talks with the program until it has ended, and sees to it that it does.
    pub(super) async fn carry_out(self) -> Outcome {
        let Self {
            mut process,
            pipes,
            input,
            max_output,
            grace,
            mut stderr,
            mut given_up,
        } = self;
        let mut output = Vec::new();
        let outcome = {
            // All three at once: a program that waits for one of them to be read may not read on.
            let mut talk = pin!(async {
                let feed = async {
                    feed(pipes.stdin, input).await;
                    Ok(())
                };
                let hear = async {
                    stderr.drain(pipes.stderr).await;
                    Ok(())
                };
                let collect = collect(pipes.stdout, &mut output, max_output);
                tokio::try_join!(feed, collect, hear).map(drop)
            });
            // Both pipes may be closed long before the program ends, and the other way round.
            let first = tokio::select! {
                biased;
                _ = &mut given_up => First::GivenUp,
                talked = &mut talk => First::Talked(talked),
                () = process.ended() => First::Ended,
            };
            match first {
                First::Talked(Err(TooMuch)) => Err(Outcome::TooMuch),
                First::Talked(Ok(())) => tokio::select! {
                    _ = &mut given_up => {
                        terminate(&mut process, grace, std::future::pending::<()>()).await;
                        Err(Outcome::GivenUp)
                    }
                    () = process.ended() => Ok(()),
                },
                First::Ended => match tokio::time::timeout(LAST_WORDS, talk).await {
                    Ok(Err(TooMuch)) => Err(Outcome::TooMuch),
                    Ok(Ok(())) | Err(_) => Ok(()),
                },
                First::GivenUp => {
                    // It may have something to write before it ends.
                    terminate(&mut process, grace, talk).await;
                    Err(Outcome::GivenUp)
                }
            }
        };
        let status = process.kill().await;
        match (outcome, status) {
            (Err(outcome), _) => outcome,
            (Ok(()), Err(error)) => Outcome::Lost(error),
            (Ok(()), Ok(status)) => Outcome::Ended {
                status,
                output,
                last_words: stderr.last_words(),
            },
        }
    }
}

enum First {
    Talked(Result<(), TooMuch>),
    Ended,
    GivenUp,
}

/// Asks the program to end and waits for that no longer than `grace`, while the talk goes on.
async fn terminate(process: &mut Process, grace: Duration, talk: impl Future) {
    process.terminate();
    let ended = process.ended();
    let talk = async {
        talk.await;
        std::future::pending::<()>().await;
    };
    let _ = tokio::time::timeout(grace, async {
        tokio::select! {
            () = ended => {}
            () = talk => {}
        }
    })
    .await;
}

/// Gives the program what it reads. One that does not want it may close the pipe.
async fn feed(stdin: Option<ChildStdin>, input: Option<Bytes>) {
    if let (Some(mut stdin), Some(input)) = (stdin, input) {
        let _ = stdin.write_all(&input).await;
    }
}

async fn collect(
    stream: impl AsyncRead + Unpin,
    output: &mut Vec<u8>,
    max: usize,
) -> Result<(), TooMuch> {
    let bound = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    // A pipe that breaks has nothing more to say either; the exit status tells the rest.
    let _ = stream.take(bound).read_to_end(output).await;
    match output.len() <= max {
        true => Ok(()),
        false => Err(TooMuch),
    }
}
