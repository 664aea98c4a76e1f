//! Acts of commands, on record before they are done: in the ledger itself, or, while a server has it, in a file beside it
//! from which that server takes them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ledger::{Note, NoteKind, PostgresOpenError, RecordError, Recorder};
use mcp_server::system_clock;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinHandle;

use super::file_watch::FileWatch;
use super::notes::Act;
use super::store::{self, ServedMcpServer};
use crate::Failure;
use config::Config;

/// Pause before the ledger is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The most bytes of the file that are read.
const MAX_FILE: u64 = 8 * 1024 * 1024;

/// A command that changes a client's credential at an upstream.
#[derive(Debug, Clone, Copy)]
pub struct CredentialCommand<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// Client whose credential it is; `None` for the one that all clients share.
    pub client: Option<&'a str>,
    /// Action of the command, in a few words.
    pub what: &'a str,
    /// User of the operating system that runs it.
    pub user: &'a str,
    /// Proof of that, in words.
    pub proof: &'a str,
}

/// Way of a command's acts onto the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayToLedger {
    /// Into the ledger: what it does not take is not done.
    Ledger,
    /// The same, or into the file beside it while its database cannot be reached: the command may change what the database
    /// is reached by.
    LedgerOrFile,
    /// Into the file: where the database is cannot be told yet.
    File,
}

/// An act, as it waits for a server.
#[derive(Debug, Serialize, Deserialize)]
struct Waiting {
    at_us: u64,
    kind: String,
    actor: String,
    subject: String,
    detail: String,
}

/// The file of acts that wait.
fn file(config: &Config) -> PathBuf {
    let mut name = config.ledger.path.as_os_str().to_owned();
    name.push(".notes");
    PathBuf::from(name)
}

/// Puts a change of a credential on record. Waits until it is there for good.
///
/// # Errors
///
/// When it cannot be recorded, in which case it must not be done.
pub fn record_credential_command<'a>(
    config: &'a Config,
    command: CredentialCommand<'a>,
) -> BoxFuture<'a, Result<(), Failure>> {
    Box::pin(async move {
        let CredentialCommand {
            upstream, client, ..
        } = command;
        let detail = json!({
            "client": client, "upstream": upstream, "what": command.what, "proof": command.proof,
        });
        let waiting = Waiting {
            at_us: system_clock(),
            kind: NoteKind::CREDENTIAL_CHANGED.as_str().to_owned(),
            actor: format!("operator:{}", command.user),
            subject: format!("{upstream}/{}", client.unwrap_or("(all clients)")),
            detail: detail.to_string(),
        };
        put_on_record(config, WayToLedger::Ledger, vec![waiting]).await?;
        Ok(())
    })
}

/// Puts acts of a command on record. Waits until they are there for good. Returns the file in which they wait, where
/// the database of the ledger cannot be reached.
///
/// # Errors
///
/// When they cannot be recorded, in which case they must not be done.
pub fn record_command<'a>(
    config: &'a Config,
    way: WayToLedger,
    acts: &'a [Act<'a>],
) -> BoxFuture<'a, Result<Option<PathBuf>, Failure>> {
    let waiting = acts.iter().map(|act| Waiting {
        at_us: system_clock(),
        kind: NoteKind::OPERATOR_ACTED.as_str().to_owned(),
        actor: act.actor(),
        subject: act.subject.to_owned(),
        detail: act.detail(),
    });
    Box::pin(put_on_record(config, way, waiting.collect()))
}

async fn put_on_record(
    config: &Config,
    way: WayToLedger,
    acts: Vec<Waiting>,
) -> Result<Option<PathBuf>, Failure> {
    let is_written = match way {
        WayToLedger::Ledger => write(config, &acts).await?,
        WayToLedger::LedgerOrFile => match write(config, &acts).await {
            Err(error) if is_out_of_reach(&error) => {
                tracing::warn!(
                    error = &*error as &dyn std::error::Error,
                    "acts of commands wait in a file"
                );
                false
            }
            written => written?,
        },
        WayToLedger::File => false,
    };
    if is_written {
        return Ok(None);
    }
    let path = file(config);
    let place = path.clone();
    let appended = tokio::task::spawn_blocking(move || append(&place, &acts)).await?;
    appended.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    Ok((way != WayToLedger::Ledger).then_some(path))
}

/// True if what a command is about to change may be the reason why the database cannot be opened. All else, as that the
/// ledger is not the one of its checkpoints, is a reason to do nothing.
fn is_out_of_reach(error: &Failure) -> bool {
    matches!(
        error.downcast_ref(),
        Some(PostgresOpenError::Unreachable { .. } | PostgresOpenError::Refused { .. })
    )
}

/// Writes into the ledger itself. Returns false, and writes nothing, while a server has it.
async fn write(config: &Config, acts: &[Waiting]) -> Result<bool, Failure> {
    let Some(recorder) = store::open_beside(config).await? else {
        return Ok(false);
    };
    for act in acts {
        record(&recorder, act).await?;
    }
    recorder.close().await?;
    Ok(true)
}

async fn record(recorder: &Recorder, waiting: &Waiting) -> Result<(), RecordError> {
    let note = Note {
        actor: &waiting.actor,
        subject: &waiting.subject,
        detail: &waiting.detail,
        ..Note::new(waiting.at_us, NoteKind::named(waiting.kind.clone()))
    };
    recorder.note(&note).await
}

fn append(path: &Path, acts: &[Waiting]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).mode(0o600).open(path)?;
    file.lock()?;
    let mut lines = Vec::new();
    for act in acts {
        serde_json::to_writer(&mut lines, act)?;
        lines.push(b'\n');
    }
    file.write_all(&lines)?;
    file.sync_all()
}

/// Takes what commands have left for this server, until it is dropped.
#[derive(Debug)]
pub(super) struct CommandNotes(JoinHandle<()>);

impl Drop for CommandNotes {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl CommandNotes {
    pub(super) fn begin(config: &Config, mcp: &Arc<ServedMcpServer>) -> Self {
        let (path, mcp) = (file(config), Arc::clone(mcp));
        let mut watch = FileWatch::start(path.clone());
        Self(tokio::spawn(async move {
            loop {
                if let Err(error) = take(path.clone(), mcp.recorder()).await {
                    let file = path.display().to_string();
                    tracing::error!(file, %error, "acts of commands are not in the ledger yet; it is tried again");
                    tokio::time::sleep(TRY_AGAIN).await;
                    continue;
                }
                watch.changed().await;
            }
        }))
    }
}

/// Takes all acts out of the file once they are in the ledger. One that a crash comes between is there twice.
async fn take(path: PathBuf, recorder: &Recorder) -> Result<(), Failure> {
    let opened = tokio::task::spawn_blocking(move || open(path)).await??;
    let Some((file, text)) = opened else {
        return Ok(());
    };
    for line in text.lines() {
        match serde_json::from_str::<Waiting>(line) {
            Ok(waiting) => record(recorder, &waiting).await?,
            // A command that was killed leaves a part of a line, and has done nothing.
            Err(error) => {
                tracing::error!(%error, "an act of a command cannot be read, and is left out")
            }
        }
    }
    tokio::task::spawn_blocking(move || {
        file.set_len(0)?;
        file.sync_all()
    })
    .await??;
    Ok(())
}

/// The file, locked, and its text; `None` where nothing waits.
fn open(path: PathBuf) -> io::Result<Option<(File, String)>> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    file.lock()?;
    if MAX_FILE < file.metadata()?.len() {
        return Err(io::Error::other("it is too large to be one of commands"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    file.rewind()?;
    Ok((!text.is_empty()).then_some((file, text)))
}
