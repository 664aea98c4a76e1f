//! Archives of the ledger: written on command, or by a thread of the server once an hour.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use age_format::RecipientError;
use futures_util::future::BoxFuture;
use ledger::{
    ArchiveError, ArchiveOptions, Archived, Archiver, BackupError, Checkpoint, Holds, PublicKey,
    SigningKey,
};
use mcp_server::{Component, ComponentState, system_clock};

use crate::{
    Failure,
    store::{accept, database, database_options, identities},
    with_causes,
};
use config::Config;

/// Name in `/health` of the component for archives that the server writes by itself.
pub(super) const COMPONENT: &str = "ledger_archive";

/// Time between two looks for entries that are old enough.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Time between a start and the first look: a server that begins has other things to do.
const FIRST_AFTER: Duration = Duration::from_secs(60);

/// Pause after entries were taken out, as a multiple of the time that it took: appending goes first.
const PAUSES: u32 = 4;

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Outcome of archiving.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ArchiveReport {
    /// Paths of the segments that were written.
    pub written: Vec<PathBuf>,
    /// Number of entries that were taken out of the ledger.
    pub taken_out: u64,
    /// Names of the segments that were deleted.
    pub deleted: Vec<String>,
}

/// Opens the ledger of a configuration to archive it, beside servers or without one.
///
/// # Errors
///
/// When the ledger cannot be opened, is being archived, or is in PostgreSQL and no directory is named.
pub fn open_archiver(config: &Config) -> Result<Archiver, Failure> {
    let key = match &config.ledger.checkpoint.key {
        Some(path) => Some(Arc::new(SigningKey::load(path)?)),
        None => None,
    };
    let recipients = config.ledger.archive.recipients.iter();
    let recipients = recipients
        .map(|it| it.parse().map_err(|why| not_a_recipient(it, why)))
        .collect::<Result<Vec<_>, _>>()?;
    let options = ArchiveOptions {
        directory: config.ledger.archive_directory(),
        segment_entries: config.ledger.archive.segment_entries,
        key,
        recipients,
        identities: identities(config)?,
    };
    let Some(url) = database(config)? else {
        return Ok(Archiver::open(&config.ledger.path, options)?);
    };
    if config.ledger.archive.directory.is_none() {
        return Err(
            "set ledger.archive.directory: segments of a ledger in PostgreSQL are in one directory that all its servers reach"
                .into(),
        );
    }
    let database = database_options(config, &url)?;
    Ok(Archiver::in_database(&database, options)?)
}

/// Says which recipient cannot be used, without saying more of it than that.
fn not_a_recipient(text: &str, why: RecipientError) -> Failure {
    let shown: String = match why {
        RecipientError::Misspelt => text.chars().take(12).collect(),
        RecipientError::Identity | RecipientError::Other => String::new(),
    };
    format!("a recipient of the archive, `{shown}…`, cannot be used: {why}").into()
}

/// Opens the holds of a configuration's ledger, beside servers or without one.
///
/// # Errors
///
/// When the ledger cannot be opened.
pub fn open_holds(config: &Config) -> Result<Holds, Failure> {
    let archive = config.ledger.archive.directory.clone();
    let holds = match database(config)? {
        Some(url) => Holds::in_database(&database_options(config, &url)?, archive)?,
        None => Holds::open(&config.ledger.path, archive)?,
    };
    Ok(holds.with_identities(identities(config)?))
}

/// Archives what began before `before_us` (microseconds since the epoch, UTC), until nothing is left or `go_on`
/// tells otherwise. It blocks, and pauses so that a server that appends meanwhile waits little.
///
/// # Errors
///
/// When the ledger or the archive cannot be read or written. What was done before stays done.
pub fn archive(
    archiver: &mut Archiver,
    before_us: u64,
    go_on: &mut dyn FnMut(&ArchiveReport) -> bool,
) -> Result<ArchiveReport, Failure> {
    let mut report = ArchiveReport::default();
    while go_on(&report) {
        let begun = Instant::now();
        match archiver.step(before_us, system_clock())? {
            Archived::Nothing => break,
            Archived::Written { path, .. } => report.written.push(path),
            Archived::TakenOut { entries, .. } => {
                report.taken_out += entries;
                thread::sleep(begun.elapsed() * PAUSES);
            }
        }
    }
    Ok(report)
}

/// Copies the ledger of a configuration to a new file, also beside a server; returns the checkpoint of the copy's end.
///
/// # Errors
///
/// When the ledger is in PostgreSQL, cannot be read, or the file cannot be written.
pub fn backup(config: &Config, to: &Path) -> Result<Checkpoint, Failure> {
    in_a_file(config)?;
    let key = match &config.ledger.checkpoint.key {
        Some(path) => Some(SigningKey::load(path)?),
        None => None,
    };
    let path = &config.ledger.path;
    Ok(ledger::backup(path, to, key.as_ref(), system_clock())?)
}

/// Puts a backup in the place of the ledger of a configuration, which must not be there. `accepted` is who goes on
/// with a backup that the file of checkpoints contradicts, and why: it goes on record, and files that contradict it are
/// set aside, to where is returned besides.
///
/// # Errors
///
/// When the backup cannot be used, or the file of checkpoints contradicts it and nobody accepts that.
pub fn restore<'a>(
    config: &'a Config,
    from: &'a Path,
    accepted: Option<(&'a str, &'a str)>,
) -> BoxFuture<'a, Result<(Checkpoint, Vec<PathBuf>), Failure>> {
    Box::pin(async move {
        in_a_file(config)?;
        let public = config
            .ledger
            .checkpoint
            .key
            .as_deref()
            .map(SigningKey::public_path);
        let keys = public.iter().map(|path| PublicKey::load(path));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let checkpoints = config.ledger.checkpoints_file();
        let path = &config.ledger.path;
        let archive = config.ledger.archive.directory.as_deref();
        let is_accepted = accepted.is_some();
        let restored = ledger::restore(from, path, &checkpoints, &keys, archive, is_accepted);
        let restored = restored.map_err(|error| match error {
            BackupError::Contradicted(_) | BackupError::Altered(_) | BackupError::NotCompared(_) => {
                Failure::from(format!(
                    "{}. If the ledger is to be gone on with from this backup all the same, say who accepts that: \
                     --by NAME --reason TEXT, which is put on record",
                    with_causes(&error)
                ))
            }
            error => error.into(),
        })?;
        let altered = restored.altered.as_ref().map(|it| with_causes(it));
        let is_wrong = restored.contradicted.is_some() || altered.is_some();
        let aside = match accepted.filter(|_| is_wrong) {
            Some((by, reason)) => accept(config, by, reason, altered).await?.1,
            None => Vec::new(),
        };
        Ok((restored.checkpoint, aside))
    })
}

fn in_a_file(config: &Config) -> Result<(), Failure> {
    match config.ledger.url {
        None => Ok(()),
        Some(_) => Err(
            "this is for a ledger in a file, and ledger.url names a database: use the tools of PostgreSQL".into(),
        ),
    }
}

/// Archives by the settings, beside the server that it is part of.
#[derive(Debug)]
pub(super) struct Archiving {
    thread: Thread,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    /// The reason why the last attempt failed.
    failed: Option<String>,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Archiving {
    /// Begins, if the configuration says that the server archives by itself.
    pub(super) fn begin(config: &Config) -> Result<Option<Self>, Failure> {
        Self::begin_after(config, FIRST_AFTER)
    }

    fn begin_after(config: &Config, first_after: Duration) -> Result<Option<Self>, Failure> {
        let Some(after_days) = config.ledger.archive.after_days else {
            return Ok(None);
        };
        let (config, shared) = (config.clone(), Arc::<Shared>::default());
        let told = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("archive".to_owned())
            .spawn(move || {
                thread::park_timeout(first_after);
                while !told.state().is_over {
                    let done = by_policy(&config, after_days, &told);
                    if let Err(failure) = &done {
                        tracing::error!(
                            error = with_causes(&**failure),
                            "the ledger could not be archived; it is tried again in an hour"
                        );
                    }
                    told.state().failed = done.err().map(|failure| with_causes(&*failure));
                    thread::park_timeout(EVERY);
                }
            })?;
        let thread = thread.thread().clone();
        Ok(Some(Self { thread, shared }))
    }

    /// Component of `/health`, which fails while entries that are old enough cannot be archived.
    pub(super) fn component(&self) -> Component {
        let shared = Arc::clone(&self.shared);
        Component::new(move || {
            let failed = shared.state().failed.clone();
            ComponentState {
                name: COMPONENT,
                ok: failed.is_none(),
                detail: failed,
            }
        })
    }
}

impl Drop for Archiving {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.thread.unpark();
    }
}

fn is_locked(failure: &Failure) -> bool {
    let archive = failure.downcast_ref::<ArchiveError>();
    archive.is_some_and(|error| matches!(error, ArchiveError::Locked(_)))
}

fn by_policy(config: &Config, after_days: u64, shared: &Shared) -> Result<(), Failure> {
    let now_us = system_clock();
    let mut archiver = match open_archiver(config) {
        Ok(archiver) => archiver,
        // Another server of the same ledger is about it, or a command.
        Err(failure) if is_locked(&failure) && config.ledger.url.is_some() => return Ok(()),
        Err(failure) => return Err(failure),
    };
    let before_us = now_us.saturating_sub(after_days.saturating_mul(DAY_US));
    let report = archive(&mut archiver, before_us, &mut |_| !shared.state().is_over)?;
    if 0 < report.taken_out {
        tracing::info!(
            entries = report.taken_out,
            segments = report.written.len(),
            "entries of the ledger were archived"
        );
    }
    if let Some(days) = config.ledger.archive.delete_after_days {
        let before_us = now_us.saturating_sub(days.saturating_mul(DAY_US));
        let deleted = archiver.delete(before_us, now_us, "system")?;
        for file in deleted {
            tracing::warn!(
                segment = file,
                "a segment of the ledger's archive was deleted, as it is old enough"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ledger::{
        CallId, Durability, End, Kind, Outcome, PostgresLedger, Recorder, RecorderOptions,
        SqliteLedger, Start,
    };

    use super::*;

    /// Waits until `done` is so, for a minute at most.
    fn wait_until(mut done: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not done");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A configuration whose server archives by itself.
    fn policy(directory: &Path) -> Config {
        let mut config = Config::default();
        config.ledger.path = directory.join("ledger.db");
        config.ledger.archive.after_days = Some(50);
        config.ledger.archive.delete_after_days = Some(100);
        config.ledger.archive.segment_entries = 1_000;
        config
    }

    /// Makes 60 calls a day for 120 days.
    async fn fill(recorder: &Recorder) {
        for days in (0..120).rev() {
            for number in 0..60 {
                let at_us = system_clock() - days * DAY_US + number;
                let start = Start::new(CallId::new(at_us), at_us, "ana", Kind::Tool, "tool/pay");
                // Every tenth waits for the disk, so that groups of entries are small: a segment has whole ones.
                let open = match number % 10 {
                    0 => recorder.begin_durably(&start).await.unwrap(),
                    _ => recorder.begin(&start).await.unwrap(),
                };
                drop(open.finish(&End::new(Outcome::Succeeded)));
            }
        }
        // What is not in the table of calls yet is not archived yet.
        recorder.close().await.unwrap();
    }

    /// Such a configuration and its ledger in a file.
    async fn aged(directory: &Path) -> (Config, Recorder) {
        let config = policy(directory);
        let open = || {
            let store = SqliteLedger::open(&config.ledger.path, Durability::Relaxed).unwrap();
            Recorder::spawn(store, RecorderOptions::default()).unwrap()
        };
        fill(&open()).await;
        let recorder = open();
        (config, recorder)
    }

    fn is_written(config: &Config, number: u64) -> bool {
        let name = format!("ledger-{number:06}.segment");
        config.ledger.archive_directory().join(name).exists()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn servers_of_one_database_archive_and_delete_together() {
        let Some(postgres) = testkit::Postgres::shared() else {
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let mut config = policy(directory.path());
        let url = postgres.fresh_database();
        config.ledger.url = Some(config::Secret::new(&url));
        let unnamed = open_archiver(&config).unwrap_err().to_string();
        assert!(
            unnamed.starts_with("set ledger.archive.directory"),
            "{unnamed}"
        );
        config.ledger.archive.directory = Some(directory.path().join("archive"));
        let database = database_options(&config, &url).unwrap();
        let database = database.with_durability(Durability::Relaxed);
        let store = tokio::task::spawn_blocking(move || PostgresLedger::open(&database).unwrap());
        let recorder = Recorder::spawn(store.await.unwrap(), RecorderOptions::default()).unwrap();
        fill(&recorder).await;
        let before = crate::open_reader(&config).unwrap().count().unwrap();
        let servers = [(); 2].map(|()| {
            let archiving = Archiving::begin_after(&config, Duration::ZERO);
            archiving.unwrap().unwrap()
        });
        // Calls have two entries: 70 days are old enough for eight segments, of which the 20 oldest fill two.
        wait_until(|| is_written(&config, 7) && !is_written(&config, 2));
        assert!(!is_written(&config, 1) && is_written(&config, 3));
        for archiving in servers {
            let state = archiving.component().state();
            assert!(state.ok, "{:?}", state.detail);
        }
        let mut reader = crate::open_reader(&config).unwrap();
        assert_eq!(reader.count().unwrap().calls, before.calls);
        let report = ledger::verify(reader.as_mut(), ledger::Trust::default()).unwrap();
        assert_eq!(report.first_wrong, None);
        assert_ne!(report.deleted, 0);
        // While one process archives, a command says so, and a server leaves it to that one.
        let archiver = open_archiver(&config).unwrap();
        assert!(is_locked(&open_archiver(&config).unwrap_err()));
        by_policy(&config, 50, &Shared::default()).unwrap();
        drop(archiver);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_archives_and_deletes_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let (config, recorder) = aged(directory.path()).await;
        let archiving = Archiving::begin_after(&config, Duration::ZERO);
        let archiving = archiving.unwrap().unwrap();
        let written = |number| is_written(&config, number);
        // Calls have two entries: 70 days are old enough for eight segments, of which the 20 oldest fill two.
        wait_until(|| written(7) && !written(2));
        assert!(!written(1) && written(3));
        assert!(archiving.component().state().ok);
        drop(archiving);
        recorder.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_older_backup_needs_acceptance_also_after_one_that_was_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.ledger.path = directory.path().join("ledger.db");
        let file = config.ledger.checkpoints_file();
        let backups = ["monday", "tuesday"].map(|name| directory.path().join(name));
        for to in backups.iter().map(Some).chain([None]) {
            let recorder = crate::store::open_beside(&config).await.unwrap().unwrap();
            let at_us = system_clock();
            let start = Start::new(CallId::new(at_us), at_us, "ana", Kind::Tool, "tool/pay");
            let open = recorder.begin(&start).await.unwrap();
            open.finish(&End::new(Outcome::Succeeded)).await.unwrap();
            recorder.close().await.unwrap();
            if let Some(to) = to {
                backup(&config, to).unwrap();
            }
        }
        let lose = || {
            std::fs::remove_file(&config.ledger.path).unwrap();
            for log in ["ledger.db-wal", "ledger.db-shm"] {
                let _ = std::fs::remove_file(directory.path().join(log));
            }
        };
        let by = Some(("ana", "the disk is lost"));
        let [monday, tuesday] = &backups;
        lose();
        restore(&config, tuesday, None).await.unwrap_err();
        let (_, aside) = restore(&config, tuesday, by).await.unwrap();
        assert!(file.exists() && aside.len() == 1, "{aside:?}");
        lose();
        let refused = restore(&config, monday, None).await.unwrap_err();
        assert!(refused.to_string().contains("--by NAME"), "{refused}");
        restore(&config, monday, by).await.unwrap();
        // What somebody has altered in a backup goes on record with who accepts it.
        lose();
        std::fs::remove_file(&file).unwrap();
        let sql = "UPDATE call SET principal = 'eve' WHERE start_sequence = 1";
        crate::verification::change_file(tuesday, sql);
        restore(&config, tuesday, None).await.unwrap_err();
        let (_, aside) = restore(&config, tuesday, by).await.unwrap();
        assert_eq!(aside, [""; 0].map(PathBuf::from));
        let filter = ledger::NoteFilter {
            kind: Some("rollback_accepted"),
            ..ledger::NoteFilter::default()
        };
        let notes = crate::open_reader(&config)
            .unwrap()
            .notes(1, filter)
            .unwrap();
        let detail = &notes[0].noted.detail.text;
        assert!(detail.contains("the table call says otherwise"), "{detail}");
    }

    #[test]
    fn an_archive_that_cannot_be_written_is_told_in_health() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.ledger.path = directory.path().join("none/ledger.db");
        config.ledger.archive.after_days = Some(50);
        let archiving = Archiving::begin_after(&config, Duration::ZERO);
        let archiving = archiving.unwrap().unwrap();
        wait_until(|| !archiving.component().state().ok);
    }
}
