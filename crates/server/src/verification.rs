//! Verification of the ledger while the server serves: what is appended, and slowly all of it, archives included.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ledger::{Follower, PublicKey, ReadLedger, SigningKey, Trust, verify_while};
use mcp_server::{Component, ComponentState, Metrics, ReadingKind};

use super::store::{checkpoints_file, open_reader, sealed_every};
use super::timestamps::verify_timestamps;
use crate::{Failure, with_causes};
use config::Config;

/// Name in `/health` of the component for a ledger that cannot be verified.
pub(super) const COMPONENT: &str = "ledger_verification";

/// Name in `/health` of the component for a ledger that was verified and is damaged.
pub(super) const INTEGRITY: &str = "ledger_integrity";

/// Longest time between two looks at what was appended, and between a start and the first pass.
const NEW_EVERY: Duration = Duration::from_secs(10);
const FIRST_AFTER: Duration = Duration::from_secs(60);

/// Longest rest at one time, however much was done before it.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Passes that are begun again because segments were deleted meanwhile, before the fault is believed.
const MAX_DISTURBED: usize = 3;

/// Verifies the ledger of a server until it is dropped.
#[derive(Debug)]
pub(super) struct Verifying {
    thread: Thread,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    is_over: bool,
    /// Time from which the last complete pass is, or the start of the server before there is one.
    verified_at: Instant,
    /// Number of complete passes.
    passes: u64,
    /// Number of entries that passes have looked at.
    entries: u64,
    /// Fault that the last pass or look has found.
    wrong: Option<String>,
    /// The reasons why new entries, and why all entries, could not be verified.
    failed: [Option<String>; 2],
}

/// Places in [`State::failed`].
const NEW: usize = 0;
const ALL: usize = 1;

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Rests for so long, or until all is over; tells whether to go on.
    fn rest(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::park_timeout(left);
        }
        false
    }

    fn is_wrong(&self, wrong: String) {
        let mut state = self.state();
        if state.wrong.as_ref() != Some(&wrong) {
            tracing::error!(fault = wrong, "the ledger is damaged");
            state.wrong = Some(wrong);
        }
    }

    fn has_failed(&self, part: usize, failure: &Failure) {
        let why = with_causes(&**failure);
        tracing::error!(error = why, "the ledger could not be verified");
        self.state().failed[part] = Some(why);
    }
}

impl Verifying {
    /// Begins, if the configuration says how often all of it is verified.
    ///
    /// # Errors
    ///
    /// When a key cannot be read, or the thread cannot be started.
    pub(super) fn begin(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(every) = config.ledger.verification.every_seconds else {
            return Ok(None);
        };
        let own = config.ledger.checkpoint.key.as_deref();
        let own = own.map(SigningKey::public_path);
        let keys = own.iter().chain(&config.ledger.verification.keys);
        let keys = keys.map(|path| PublicKey::load(path));
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                is_over: false,
                verified_at: Instant::now(),
                passes: 0,
                entries: 0,
                wrong: None,
                failed: [None, None],
            }),
        });
        let verifier = Verifier {
            config: config.clone(),
            keys: keys.collect::<Result<_, _>>()?,
            shared: Arc::clone(&shared),
            every: Duration::from_secs(every),
        };
        let thread = thread::Builder::new()
            .name("verify".to_owned())
            .spawn(move || verifier.run())?;
        let thread = thread.thread().clone();
        Ok(Some(Self { thread, shared }))
    }

    /// Components of `/health`: one that fails while the ledger cannot be verified, and one that fails while it is
    /// damaged.
    pub(super) fn components(&self) -> [Component; 2] {
        let component = |name, of: fn(&State) -> Option<String>| {
            let shared = Arc::clone(&self.shared);
            Component::new(move || {
                let detail = of(&shared.state());
                ComponentState {
                    name,
                    ok: detail.is_none(),
                    detail,
                }
            })
        };
        [
            component(COMPONENT, |state| {
                state.failed.iter().flatten().next().cloned()
            }),
            component(INTEGRITY, |state| state.wrong.clone()),
        ]
    }

    /// Adds to the server's metrics how far verification has come.
    pub(super) fn read(&self, metrics: &Metrics) {
        #[expect(clippy::cast_precision_loss, reason = "for a diagram")]
        fn number(value: u64) -> f64 {
            value as f64
        }
        let shared = Arc::clone(&self.shared);
        metrics.read_one(
            ReadingKind::Gauge,
            "owlclaw_mcp_ledger_verification_age_seconds",
            "Time since the last complete verification of the ledger began; since the start of the server before the first.",
            move || shared.state().verified_at.elapsed().as_secs_f64(),
        );
        let shared = Arc::clone(&self.shared);
        metrics.read_one(
            ReadingKind::Counter,
            "owlclaw_mcp_ledger_verifications_total",
            "Complete verifications of the ledger that found no fault.",
            move || number(shared.state().passes),
        );
        let shared = Arc::clone(&self.shared);
        metrics.read_one(
            ReadingKind::Counter,
            "owlclaw_mcp_ledger_verified_entries_total",
            "Entries that verifications of the whole ledger have looked at.",
            move || number(shared.state().entries),
        );
    }
}

impl Drop for Verifying {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.thread.unpark();
    }
}

/// The part that works, on a thread of its own.
struct Verifier {
    config: Config,
    keys: Vec<PublicKey>,
    shared: Arc<Shared>,
    every: Duration,
}

/// Reader of what is appended, and the time of the last look.
struct Following {
    follower: Follower,
    reader: Option<Box<dyn ReadLedger + Send>>,
    looked: Option<Instant>,
}

impl Verifier {
    fn run(&self) {
        // Calls come first, also where cores are few.
        #[cfg(target_os = "linux")]
        if let Err(error) = rustix::process::setpriority_process(None, 19) {
            tracing::debug!(%error, "verification of the ledger has the priority of calls");
        }
        let mut following = Following {
            follower: Follower::default(),
            reader: None,
            looked: None,
        };
        let new_every = self.every.min(NEW_EVERY);
        self.follow(&mut following);
        let mut next = Instant::now() + self.every.min(FIRST_AFTER);
        while self.shared.rest(new_every) {
            self.follow(&mut following);
            if next <= Instant::now() {
                let began = Instant::now();
                match self.pass(&mut following) {
                    Ok(()) => {}
                    Err(failure) => self.shared.has_failed(ALL, &failure),
                }
                next = (began + self.every).max(Instant::now());
            }
        }
    }

    /// Rests as long as the work since `begun` asks for; tells whether to go on.
    fn rest_after(&self, begun: Instant) -> bool {
        let percent = self.config.ledger.verification.cpu_percent.clamp(1, 100);
        let rest = begun.elapsed() * (100 - percent) / percent;
        self.shared.rest(rest.min(LONGEST_REST))
    }

    /// Looks at what was appended, if it is time.
    fn follow(&self, following: &mut Following) {
        let new_every = self.every.min(NEW_EVERY);
        if (following.looked).is_some_and(|looked| looked.elapsed() < new_every) {
            return;
        }
        following.looked = Some(Instant::now());
        if let Err(failure) = self.look(following) {
            following.reader = None;
            self.shared.has_failed(NEW, &failure);
        }
    }

    fn look(&self, following: &mut Following) -> Result<(), Failure> {
        let reader = match &mut following.reader {
            Some(reader) => reader,
            none => none.insert(open_reader(&self.config)?),
        };
        let mut begun = Instant::now();
        let found = following
            .follower
            .look(reader.as_mut(), &self.keys, &mut || {
                let goes_on = self.rest_after(begun);
                begun = Instant::now();
                goes_on
            })?;
        // A file may be exchanged under its name; a database is asked anew by itself.
        if self.config.ledger.url.is_none() {
            following.reader = None;
        }
        self.shared.state().failed[NEW] = None;
        if let Some(wrong) = found {
            self.shared.is_wrong(wrong.to_string());
        }
        Ok(())
    }

    /// Looks at all there is.
    fn pass(&self, following: &mut Following) -> Result<(), Failure> {
        // One that is named must be there; the one beside a ledger is made with the first checkpoint.
        let file = checkpoints_file(&self.config);
        let is_named = self.config.ledger.checkpoint.file.is_some();
        let file = file.filter(|file| is_named || file.exists());
        for attempt in 1.. {
            let began = Instant::now();
            let mut reader = open_reader(&self.config)?;
            reader.leave_unread();
            let gaps = reader.gaps()?;
            let trust = Trust {
                keys: &self.keys,
                checkpoints: file.as_deref(),
                witness: self.config.ledger.witness.file.as_deref(),
                every: sealed_every(&self.config),
            };
            let (mut begun, mut told) = (began, 0);
            let report = verify_while(reader.as_mut(), trust, &mut |done, _| {
                self.shared.state().entries += done - told;
                told = done;
                self.follow(following);
                let goes_on = self.rest_after(begun);
                begun = Instant::now();
                goes_on
            })?;
            let Some(report) = report else { return Ok(()) };
            match report.first_wrong {
                // What was deleted by policy meanwhile is missed where it was.
                Some(_) if attempt <= MAX_DISTURBED && reader.gaps()? != gaps => {}
                Some(wrong) => {
                    self.shared.state().failed[ALL] = None;
                    self.shared.is_wrong(wrong.to_string());
                    return Ok(());
                }
                None => {
                    let stamps = verify_timestamps(&self.config, reader.as_mut())?;
                    if let Some(wrong) = stamps.and_then(|it| it.wrong) {
                        self.shared.state().failed[ALL] = None;
                        self.shared.is_wrong(format!("a time-stamp: {wrong}"));
                        return Ok(());
                    }
                    // What the follower has seen to be wrong, a pass by itself may not see.
                    let is_right = self.still_follows(following)?;
                    let mut state = self.shared.state();
                    state.verified_at = began;
                    state.failed[ALL] = None;
                    state.passes += 1;
                    if is_right && state.wrong.take().is_some() {
                        tracing::info!("the ledger is sound again");
                    }
                    return Ok(());
                }
            }
            if !self.shared.rest(Duration::ZERO) {
                break;
            }
        }
        Ok(())
    }

    /// Looks at what was appended now; true if nothing is wrong with it.
    fn still_follows(&self, following: &mut Following) -> Result<bool, Failure> {
        following.looked = Some(Instant::now());
        let mut reader = open_reader(&self.config)?;
        let found = (following.follower).look(reader.as_mut(), &self.keys, &mut || true)?;
        if let Some(wrong) = &found {
            self.shared.is_wrong(wrong.to_string());
        }
        Ok(found.is_none())
    }
}

/// Changes a ledger as somebody could who can write its file.
#[cfg(test)]
pub(super) fn change_file(path: &std::path::Path, sql: &str) {
    let code = "import sqlite3, sys\n\
                with sqlite3.connect(sys.argv[1], timeout=30) as file:\n\
                \x20   assert file.execute(sys.argv[2]).rowcount == 1";
    let python = std::process::Command::new("python3")
        .args(["-c", code])
        .arg(path)
        .arg(sql)
        .status();
    assert!(python.unwrap().success());
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ledger::{
        CallId, CheckpointOptions, Checkpoints, Durability, End, Kind, LedgerStore, Outcome,
        PostgresLedger, Recorder, RecorderOptions, SqliteLedger, Start,
    };
    use mcp_server::system_clock;
    use testkit::{GENEROUS, Postgres, wait_until};

    use super::*;
    use crate::store::database_options;

    fn config(directory: &Path) -> Config {
        let mut config = Config::default();
        config.ledger.path = directory.join("ledger.db");
        config.ledger.verification.every_seconds = Some(1);
        config.ledger.verification.cpu_percent = 50;
        config
    }

    /// A server's recorder, with checkpoints in the ledger alone.
    fn recorder(store: impl LedgerStore) -> Recorder {
        let options = CheckpointOptions {
            entries: 50,
            ..CheckpointOptions::default()
        };
        let checkpoints = Checkpoints::new(options);
        Recorder::spawn_with_hook(store, RecorderOptions::default(), checkpoints).unwrap()
    }

    async fn calls(recorder: &Recorder, count: usize) {
        for _ in 0..count {
            let at_us = system_clock();
            let start = Start::new(CallId::new(at_us), at_us, "ana", Kind::Tool, "tool/pay");
            let open = recorder.begin(&start).await.unwrap();
            open.finish(&End::new(Outcome::Succeeded)).await.unwrap();
        }
    }

    fn told(verifying: &Verifying) -> [Option<String>; 2] {
        verifying.components().map(|it| it.state().detail)
    }

    async fn passes(verifying: &Verifying, more: u64) {
        let passes = || verifying.shared.state().passes;
        let until = passes() + more;
        wait_until("a pass is complete", GENEROUS, || until <= passes()).await;
    }

    /// A fault of the ledger's integrity that says `what`.
    async fn found(verifying: &Verifying, what: &str) {
        let is_found = || {
            told(verifying)[1]
                .as_deref()
                .is_some_and(|it| it.contains(what))
        };
        wait_until(what, GENEROUS, is_found).await;
        assert_eq!(told(verifying)[0], None);
    }

    #[tokio::test]
    async fn a_row_that_is_changed_in_a_live_file_is_found_and_so_is_that_it_was_put_back() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let store = SqliteLedger::open(&config.ledger.path, Durability::Strict).unwrap();
        let recorder = recorder(store);
        calls(&recorder, 40).await;
        let verifying = Verifying::begin(&config).unwrap().unwrap();
        passes(&verifying, 1).await;
        calls(&recorder, 40).await;
        passes(&verifying, 1).await;
        assert_eq!(told(&verifying), [None, None]);
        assert!(160 <= verifying.shared.state().entries);

        let file = config.ledger.path.clone();
        let set = |principal: &str| {
            change_file(
                &file,
                &format!("UPDATE call SET principal = '{principal}' WHERE start_sequence = 1"),
            );
        };
        set("eve");
        found(&verifying, "entry 1: the table call says otherwise").await;
        let age = verifying.shared.state().verified_at;
        set("ana");
        let is_right = || told(&verifying) == [None, None];
        wait_until("it is right again", GENEROUS, is_right).await;
        assert!(age < verifying.shared.state().verified_at);

        // New entries go by the end that was seen, whatever stands before it.
        calls(&recorder, 1).await;
        change_file(
            &file,
            "UPDATE entry_group SET hash = zeroblob(32)
             WHERE first_sequence = (SELECT max(first_sequence) FROM entry_group)",
        );
        found(&verifying, "entr").await;
        drop(verifying);
        // The recorder writes no more if it notices the changed end as well.
        let _ = recorder.close().await;
    }

    #[tokio::test]
    async fn a_row_that_is_changed_in_a_database_is_found() {
        let Some(postgres) = Postgres::shared() else {
            return;
        };
        let url = postgres.fresh_database();
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path());
        config.ledger.url = Some(config::Secret::new(&url));
        let options = database_options(&config, &url).unwrap();
        let store = tokio::task::spawn_blocking(move || PostgresLedger::open(&options));
        let recorder = recorder(store.await.unwrap().unwrap());
        calls(&recorder, 40).await;
        let verifying = Verifying::begin(&config).unwrap().unwrap();
        passes(&verifying, 1).await;
        assert_eq!(told(&verifying), [None, None]);
        let (_, database) = url.rsplit_once('/').unwrap();
        let sql = "UPDATE owlclaw_ledger.call SET principal = 'eve' WHERE start_sequence = 1";
        postgres.sql_in(database, sql);
        found(&verifying, "entry 1: the table call says otherwise").await;
        drop(verifying);
        recorder.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_ledger_that_cannot_be_read_is_told_and_nothing_is_begun_without_a_setting() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path());
        let verifying = Verifying::begin(&config).unwrap().unwrap();
        let is_told = || told(&verifying)[0].is_some();
        wait_until("it cannot be read", GENEROUS, is_told).await;
        assert_eq!(told(&verifying)[1], None);
        drop(verifying);

        // A look at new entries does not hide that all of them could not be looked at.
        let store = SqliteLedger::open(&config.ledger.path, Durability::Strict).unwrap();
        let recorder = recorder(store);
        calls(&recorder, 3).await;
        config.ledger.checkpoint.file = Some(directory.path().join("gone"));
        let verifying = Verifying::begin(&config).unwrap().unwrap();
        let is_told = || {
            told(&verifying)[0]
                .as_deref()
                .is_some_and(|it| it.contains("gone"))
        };
        wait_until("the file is gone", GENEROUS, is_told).await;
        for _ in 0..20 {
            assert!(is_told());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        drop(verifying);
        recorder.close().await.unwrap();
        config.ledger.verification.every_seconds = None;
        assert!(Verifying::begin(&config).unwrap().is_none());
    }
}
