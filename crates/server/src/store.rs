//! Stores of calls and of counters: a file of this server, or a database that several servers
//! share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use age_format::Identity;
use cluster::{Cluster, ClusterOptions};
use data_encoding::HEXLOWER;
use futures_util::future::BoxFuture;
use governance::{MemoryQuota, Micros, Policy, PolicySpec, Seed, Timestamp};
use ledger::{
    CheckpointOptions, Checkpoints, Continuity, ContinuityError, Digest, Durability, LedgerReader,
    LedgerStore, Note, NoteKind, OpenError, PostgresLedger, PostgresOptions, PostgresReader,
    ReadLedger, Recorder, RecorderOptions, SealedEvery, SigningKey, SqliteLedger,
    begin_checkpoints, check_continuity, check_signed, check_witness, check_witness_file,
};
use mcp_server::{Component, ComponentState, McpServer, system_clock};
use quota_postgres::{Comparison, PostgresQuota, QuotaOptions, TimeSource, UseRecord};
use serde_json::json;

use super::late_costs;
use super::ledger_use::{LedgerUse, is_late_cost, kind_of, recorded_use, used};
use super::quotas::Quotas;
use super::timestamps;
use super::witness::{self, Witness};
use crate::Failure;
use config::Config;

/// Type of the MCP server that this program serves.
pub(super) type ServedMcpServer = McpServer<Quotas>;

/// Time for which a killed process may still hold its ledger.
const UNLOCKING: Duration = Duration::from_millis(500);

/// The record and the counters.
#[derive(Debug)]
pub(super) struct Stores {
    pub(super) recorder: Recorder,
    pub(super) quotas: Quotas,
    /// Task that tells the witness of checkpoints, if there is one.
    pub(super) witness: Option<Witness>,
}

/// Another server has the ledger.
#[derive(Debug, thiserror::Error)]
#[error(
    "{why}; every server needs a ledger of its own: set ledger.path, or MCP_SERVER_LEDGER__PATH where \
     clients share a configuration"
)]
pub(super) struct LedgerInUse {
    pub(super) why: String,
}

/// The ledger is not the one that the file of checkpoints is of.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}. Put back the ledger and the checkpoints that belong together; if this ledger is to be gone \
     on with all the same: `owlclaw-mcp ledger accept-rollback --by NAME --reason TEXT`, which is \
     put on record"
)]
struct NotContinued(
    ContinuityError,
    /// Hash of the checkpoint of the witness that contradicts it, if the witness does.
    Option<Digest>,
);

/// Opens both stores. `policy` decides which use on record in the ledger is counted.
pub(super) async fn open(config: &Config, policy: &Arc<Policy>) -> Result<Stores, Failure> {
    if let Some(url) = database(config)? {
        return open_database(config, policy, &url).await;
    }
    let quotas = MemoryQuota::new(config.governance.max_clients);
    let witness = Witness::begin(config)?;
    let recorder = open_file(config, policy, &quotas, witness.as_ref())?;
    Ok(Stores {
        recorder,
        quotas: Quotas::memory(quotas),
        witness,
    })
}

/// Opens what servers share beside the ledger, if they do.
pub(super) async fn open_cluster(config: &Config) -> Result<Option<Cluster>, Failure> {
    match database(config)? {
        Some(url) => Ok(Some(Cluster::open(&url, ClusterOptions::default()).await?)),
        None => Ok(None),
    }
}

/// Opens the ledger to read it, also beside a server that writes to it.
///
/// # Errors
///
/// When the ledger cannot be read.
pub fn open_reader(config: &Config) -> Result<Box<dyn ReadLedger + Send>, Failure> {
    let archive = config.ledger.archive.directory.clone();
    let identities = identities(config)?;
    Ok(match database(config)? {
        Some(url) => {
            let database = database_options(config, &url)?;
            let reader = PostgresReader::open(&database)?.with_archive(archive);
            Box::new(reader.with_identities(identities))
        }
        None => {
            let reader = LedgerReader::open(&config.ledger.path)?.with_archive(archive);
            Box::new(reader.with_identities(identities))
        }
    })
}

/// The identities that open encrypted segments of the archive, if any are named.
///
/// # Errors
///
/// When what names them is not there, or has none.
pub(super) fn identities(config: &Config) -> Result<Vec<Identity>, Failure> {
    let Some(secret) = &config.ledger.archive.identity else {
        return Ok(Vec::new());
    };
    let text = secret.reveal(&config.environment);
    let text =
        text.ok_or("ledger.archive.identity refers to something that is not there, or is empty")?;
    age_format::identities(&text)
        .map_err(|why| format!("ledger.archive.identity cannot be used: {why}").into())
}

/// The ledger for the act of a command, in the database or in a file that no server has; `None` while a server has it.
///
/// # Errors
///
/// When it cannot be opened, or is not the one of its checkpoints.
pub(super) async fn open_beside(config: &Config) -> Result<Option<Recorder>, Failure> {
    let whole = config.clone();
    if let Some(url) = database(config)? {
        let database = database_options(config, &url)?;
        let store = tokio::task::spawn_blocking(move || {
            let store = PostgresLedger::open(&database)?;
            continuity(&whole)?;
            Ok::<_, Failure>(store)
        });
        let hook = checkpoints(config, true, None)?;
        let store = store.await??;
        return Ok(Some(Recorder::spawn_with_hook(
            store,
            options(config),
            hook,
        )?));
    }
    let store = tokio::task::spawn_blocking(move || {
        let store = match SqliteLedger::open(&whole.ledger.path, durability(&whole)) {
            Err(OpenError::Locked { .. }) => return Ok(None),
            opened => opened?,
        };
        continuity(&whole)?;
        Ok::<_, Failure>(Some(store))
    });
    let Some(store) = store.await?? else {
        return Ok(None);
    };
    let hook = checkpoints(config, false, None)?;
    Ok(Some(Recorder::spawn_with_hook(
        store,
        options(config),
        hook,
    )?))
}

/// The address of the database, if there is one; it may hold a password.
///
/// # Errors
///
/// When the address refers to a variable that is not set.
pub fn database(config: &Config) -> Result<Option<String>, Failure> {
    let Some(url) = &config.ledger.url else {
        return Ok(None);
    };
    match url.reveal(&config.environment) {
        Some(url) => Ok(Some(url)),
        None => Err("ledger.url refers to a variable that is not there, or is empty".into()),
    }
}

/// Options of the database at this address.
///
/// # Errors
///
/// When the TLS files of the configuration cannot be read.
pub fn database_options(config: &Config, url: &str) -> Result<PostgresOptions, Failure> {
    let options = PostgresOptions::new(url)?;
    Ok(options.with_durability(durability(config)))
}

/// Name of the component of `/health` for the counters.
pub(super) const QUOTAS: &str = "quotas";

/// Component of `/health` for the counters.
pub(super) fn quota_component(quotas: Arc<Quotas>) -> Component {
    Component::new(move || {
        let ok = quotas.is_available();
        let detail = match ok {
            true => quotas.raised(),
            false => Some("use cannot be counted, so that no call is admitted".to_owned()),
        };
        ComponentState {
            name: QUOTAS,
            ok,
            detail,
        }
    })
}

/// Name in `/health` of the table of counted clients.
pub(super) const CLIENTS: &str = "clients";

/// Time for which `/health` reports refused newcomers after the last one.
const CROWDED_MS: u64 = 60 * 1_000;

/// The part of `/health` about counted clients; `None` where they have no bound.
pub(super) fn crowd_component(quotas: Arc<Quotas>) -> Option<Component> {
    quotas.crowd()?;
    Some(Component::new(move || {
        let refused = quotas.crowd().filter(|crowd| {
            let now_ms = system_clock() / 1_000;
            now_ms.saturating_sub(crowd.refused_at.0) < CROWDED_MS
        });
        ComponentState {
            name: CLIENTS,
            ok: refused.is_none(),
            detail: refused.map(|crowd| {
                format!(
                    "newcomers are refused: the use of {} clients is counted, of at most {} that the \
                     configuration does not name, and none can be forgotten before its limits have \
                     room again; raise governance.max_clients, or have clients identify themselves",
                    crowd.strangers, crowd.max_strangers
                )
            }),
        }
    }))
}

/// Compares the ledger with its file of checkpoints; `None` where there is no such file.
///
/// # Errors
///
/// When a server must not continue the ledger.
pub fn continuity(config: &Config) -> Result<Option<Continuity>, Failure> {
    let witnessed = [witness::last(config)?, timestamps::last(config)?];
    let witnessed: Vec<_> = witnessed.into_iter().flatten().collect();
    let file = checkpoints_file(config);
    let witness_file = config.ledger.witness.file.as_deref();
    if file.is_none() && witnessed.is_empty() && witness_file.is_none() {
        return Ok(None);
    }
    let mut reader = match config.ledger.url.is_none() && !config.ledger.path.exists() {
        true => None,
        false => Some(open_reader(config)?),
    };
    let wrong = |error, witness| match error {
        // These say nothing of what was done to it.
        ContinuityError::File { .. } | ContinuityError::Ledger(_) => Failure::from(error),
        error => NotContinued(error, witness).into(),
    };
    for (checkpoint, place) in &witnessed {
        let ledger = reader.as_mut().map(|it| it.as_mut() as &mut dyn ReadLedger);
        check_witness(ledger, checkpoint, place)
            .map_err(|error| wrong(error, Some(checkpoint.hash)))?;
    }
    if let Some(reader) = &mut reader {
        timestamps::check_file(config, reader.as_mut()).map_err(|error| wrong(error, None))?;
    }
    if let Some(path) = witness_file {
        let ledger = reader.as_mut().map(|it| it.as_mut() as &mut dyn ReadLedger);
        match check_witness_file(ledger, path) {
            Ok(Continuity { last: None, .. }) => {
                let path = path.display();
                tracing::info!(%path, "the file of the ledger's witness begins");
            }
            Ok(_) => {}
            Err(ContinuityError::File { file, source }) if config.ledger.witness.required => {
                return Err(format!(
                    "the file of the ledger's witness, {}, cannot be read: {source}. Without it nobody knows whether \
                     this ledger is an earlier copy; to start all the same, set ledger.witness.required to false",
                    file.display()
                )
                .into());
            }
            Err(ContinuityError::File { file, source }) => {
                let (path, error) = (file.display(), source);
                tracing::error!(%path, %error, "the file of the ledger's witness cannot be read");
            }
            Err(error) => return Err(wrong(error, None)),
        }
    }
    let Some(file) = file else {
        return Ok(None);
    };
    let ledger = reader.as_mut().map(|it| it.as_mut() as &mut dyn ReadLedger);
    let checked = check_continuity(ledger, &file).map_err(|error| wrong(error, None))?;
    if let Some(keys) = witness::trusted_keys(config)? {
        let ledger = reader.as_mut().map(|it| it.as_mut() as &mut dyn ReadLedger);
        let line = checked.last.as_ref().map(|last| (&*file, last));
        check_signed(ledger, config.ledger.url.is_none(), line, &keys)
            .map_err(|error| wrong(error, None))?;
    }
    if let Some(from) = &checked.moved_from {
        tracing::warn!(
            from = %from.display(),
            to = %file.display(),
            "checkpoints of the ledger go into another file than before: keep both"
        );
    }
    Ok(Some(checked))
}

/// The file that checkpoints are written to; a database has no place beside it.
pub(super) fn checkpoints_file(config: &Config) -> Option<PathBuf> {
    match config.ledger.url {
        Some(_) => config.ledger.checkpoint.file.clone(),
        None => Some(config.ledger.checkpoints_file()),
    }
}

/// Accepts a ledger that is not the one that its file of checkpoints belongs to: records the
/// operator and the reason, and sets the file aside, and those of the witness and of time-stamps where they contradict
/// the ledger. Returns the fault that was found, and the present paths of the files.
///
/// # Errors
///
/// When nothing is wrong, a server has the ledger, or it cannot be written.
pub fn accept_rollback<'a>(
    config: &'a Config,
    by: &'a str,
    reason: &'a str,
) -> BoxFuture<'a, Result<(String, Vec<PathBuf>), Failure>> {
    accept(config, by, reason, None)
}

/// Accepts as [`accept_rollback`] does, and with it what is wrong with a backup that was restored.
pub(super) fn accept<'a>(
    config: &'a Config,
    by: &'a str,
    reason: &'a str,
    altered: Option<String>,
) -> BoxFuture<'a, Result<(String, Vec<PathBuf>), Failure>> {
    Box::pin(async move {
        let found = continuity_error(config).await?;
        let (error, witness) = match found {
            Some(NotContinued(error, witness)) => (Some(error), witness),
            None => (None, None),
        };
        let what = error.as_ref().map(ToString::to_string);
        let what: Vec<_> = what.into_iter().chain(altered).collect();
        if what.is_empty() {
            return Err(
                "the ledger goes on from where its checkpoints say that it was: there is \
                    nothing to accept"
                    .into(),
            );
        }
        let what = what.join("; ");
        // Before the recorder puts a checkpoint on record that says nothing of these files.
        let others = config.clone();
        let others = tokio::task::spawn_blocking(move || contradicting(&others)).await??;
        let recorder = match database(config)? {
            Some(url) => {
                let database = database_options(config, &url)?;
                let store =
                    tokio::task::spawn_blocking(move || PostgresLedger::open(&database)).await??;
                let checkpoints = Checkpoints::new(unfiled(config, true)?);
                Recorder::spawn_with_hook(store, options(config), checkpoints)?
            }
            None => {
                let store = SqliteLedger::open(&config.ledger.path, durability(config))?;
                let checkpoints = Checkpoints::new(unfiled(config, false)?);
                Recorder::spawn_with_hook(store, options(config), checkpoints)?
            }
        };
        let now_us = system_clock();
        // A file that does not contradict the ledger stays.
        let file = checkpoints_file(config).filter(|_| error.is_some());
        let aside = |file: &PathBuf| {
            let mut name = file.as_os_str().to_owned();
            name.push(format!(".{}", now_us / 1_000_000));
            PathBuf::from(name)
        };
        let file_aside = file.as_ref().filter(|file| file.exists()).map(aside);
        let mut detail =
            json!({ "reason": reason, "what": what, "file": file, "set_aside": file_aside });
        let moved = others.iter();
        let moved = moved.map(|path| json!({ "file": path, "set_aside": aside(path) }));
        detail["others"] = moved.collect();
        if let Some(hash) = witness {
            // By this the next start knows that it was accepted.
            detail["witness"] = HEXLOWER.encode(&hash).into();
        }
        let note = Note {
            actor: by,
            detail: &detail.to_string(),
            ..Note::new(now_us, NoteKind::ROLLBACK_ACCEPTED)
        };
        recorder.note(&note).await?;
        recorder.close().await?;
        // Last: as long as it is there, nobody goes on without a word.
        let checkpoints = file.filter(|_| file_aside.is_some());
        let mut moved = Vec::new();
        for file in checkpoints.iter().chain(&others) {
            let to = aside(file);
            std::fs::rename(file, &to)
                .map_err(|error| format!("{} cannot be set aside: {error}", file.display()))?;
            moved.push(to);
        }
        // From here on an earlier ledger in the place of this one is refused again.
        if let Some(file) = checkpoints {
            let config = config.clone();
            let begun = tokio::task::spawn_blocking(move || {
                let key = config.ledger.checkpoint.key.as_deref();
                let key = key.map(SigningKey::load).transpose()?;
                let mut reader = open_reader(&config)?;
                begin_checkpoints(reader.as_mut(), &file, key.as_ref(), now_us)?;
                Ok::<_, Failure>(())
            });
            begun.await??;
        }
        Ok((what, moved))
    })
}

/// The file of the witness and that of time-stamps, those that are there and contradict the ledger.
fn contradicting(config: &Config) -> Result<Vec<PathBuf>, Failure> {
    let mut reader = open_reader(config)?;
    let mut found = Vec::new();
    if let Some(path) = config.ledger.witness.file.as_deref() {
        match check_witness_file(Some(reader.as_mut()), path) {
            Ok(_) | Err(ContinuityError::File { .. }) => {}
            Err(ContinuityError::Ledger(error)) => return Err(error.into()),
            Err(_) => found.extend(path.exists().then(|| path.to_owned())),
        }
    }
    if let Some((checkpoint, path)) = timestamps::last(config)? {
        match check_witness(Some(reader.as_mut()), &checkpoint, &path) {
            Ok(()) => {}
            Err(ContinuityError::Ledger(error)) => return Err(error.into()),
            Err(_) => found.push(path),
        }
    }
    match timestamps::check_file(config, reader.as_mut()) {
        Err(ContinuityError::FileCut { file, .. }) if file.exists() && !found.contains(&file) => {
            found.push(file);
        }
        _ => {}
    }
    Ok(found)
}

/// The contradiction between a ledger and its checkpoints elsewhere, if there is one.
async fn continuity_error(config: &Config) -> Result<Option<NotContinued>, Failure> {
    let config = config.clone();
    let checked = tokio::task::spawn_blocking(move || continuity(&config)).await?;
    match checked.map_err(|failure| failure.downcast::<NotContinued>()) {
        Ok(_) => Ok(None),
        Err(Ok(wrong)) => Ok(Some(*wrong)),
        Err(Err(failure)) => Err(failure),
    }
}

/// Interval of the checkpoints of one server; several that share a ledger make checkpoints
/// independently.
pub fn sealed_every(config: &Config) -> Option<SealedEvery> {
    let checkpoint = &config.ledger.checkpoint;
    config.ledger.url.is_none().then(|| SealedEvery {
        entries: entries_between(checkpoint),
        interval: time_between(checkpoint),
    })
}

async fn open_database(
    config: &Config,
    policy: &Arc<Policy>,
    url: &str,
) -> Result<Stores, Failure> {
    // What calls have cost is settled with their ends, in one transaction.
    let database = database_options(config, url)?
        .with_charges(quota_postgres::SETTLEMENTS, quota_postgres::ORPHANS);
    let record = Arc::new(LedgerUse::new(database.clone(), Arc::clone(policy)));
    let whole = config.clone();
    // It blocks, and what it waits for is elsewhere.
    let store = tokio::task::spawn_blocking(move || {
        let store = PostgresLedger::open(&database)?;
        continuity(&whole)?;
        Ok::<_, Failure>(store)
    })
    .await??;
    // Of the counters and the ledger, which are in one database, the ledger is what cannot be changed.
    let uses = Arc::clone(&record) as Arc<dyn UseRecord>;
    let quotas = PostgresQuota::open_with_record(url, QuotaOptions::default(), uses).await?;
    let witness = Witness::begin(config)?;
    let checkpoints = checkpoints(config, true, witness.as_ref())?;
    let recorder = Recorder::spawn_with_hook(store, options(config), checkpoints)?;
    record.note_with(recorder.clone());
    Ok(Stores {
        recorder,
        quotas: Quotas::postgres(quotas, Some(record)),
        witness,
    })
}

fn open_file(
    config: &Config,
    policy: &Policy,
    quota: &MemoryQuota,
    witness: Option<&Witness>,
) -> Result<Recorder, Failure> {
    let path = &config.ledger.path;
    if !path.exists() {
        continuity(config)?;
    }
    let mut opened = SqliteLedger::open(path, durability(config));
    let until = Instant::now() + UNLOCKING;
    while let Err(OpenError::Locked { .. }) = opened
        && Instant::now() < until
    {
        std::thread::sleep(UNLOCKING / 20);
        opened = SqliteLedger::open(path, durability(config));
    }
    let store = opened.map_err(|error| match error {
        OpenError::Locked { .. } => Failure::from(LedgerInUse {
            why: error.to_string(),
        }),
        error => error.into(),
    })?;
    continuity(config)?;
    let interrupted = store.interrupted().len();
    if 0 < interrupted {
        tracing::warn!(
            calls = interrupted,
            "calls were cut short when the server ended last; they are recorded as unknown"
        );
    }
    seed(&mut LedgerReader::open(path)?, policy, quota)?;
    let checkpoints = checkpoints(config, false, witness)?;
    Ok(Recorder::spawn_with_hook(
        store,
        options(config),
        checkpoints,
    )?)
}

/// Checkpoints of the ledger: when they are written, and with which key. `shared` states that other
/// servers append to it.
fn checkpoints(
    config: &Config,
    shared: bool,
    witness: Option<&Witness>,
) -> Result<Checkpoints, Failure> {
    Ok(Checkpoints::new(CheckpointOptions {
        file: checkpoints_file(config),
        witness: witness.map(Witness::checkpoints),
        witnessed: match witness {
            Some(witness) => witness.witnessed(),
            None => witness::witnessed(config),
        },
        stamped: witness
            .and_then(Witness::stamped)
            .or_else(|| timestamps::stamped(config)),
        ..unfiled(config, shared)?
    }))
}

/// The same, in the ledger alone.
fn unfiled(config: &Config, shared: bool) -> Result<CheckpointOptions, Failure> {
    let checkpoint = &config.ledger.checkpoint;
    let key = match &checkpoint.key {
        Some(path) => Some(Arc::new(SigningKey::load(path)?)),
        None => None,
    };
    Ok(CheckpointOptions {
        entries: entries_between(checkpoint),
        interval: time_between(checkpoint),
        file: None,
        key,
        shared,
        max_unwritten: options(config).max_unwritten,
        witness: None,
        witnessed: None,
        stamped: None,
    })
}

/// Zero is never.
fn entries_between(checkpoint: &config::Checkpoint) -> u64 {
    match checkpoint.entries {
        0 => u64::MAX,
        entries => entries,
    }
}

/// Zero is never.
fn time_between(checkpoint: &config::Checkpoint) -> Duration {
    match checkpoint.minutes {
        0 => Duration::MAX,
        minutes => Duration::from_secs(minutes * 60),
    }
}

fn durability(config: &Config) -> Durability {
    match config.ledger.durability {
        config::Durability::Strict => Durability::Strict,
        config::Durability::Relaxed => Durability::Relaxed,
    }
}

fn options(config: &Config) -> RecorderOptions {
    RecorderOptions {
        // As clients are answered, by the table of docs/errors.md.
        claim_refusal_code: Some(-32003),
        durability: durability(config),
        max_wait: Duration::from_secs(config.ledger.max_wait_seconds),
        ..RecorderOptions::default()
    }
}

/// Counts the use on record in the ledger, so that a restart frees no quota: the whole month for
/// budgets, and the last day call by call as far as limits can depend on it.
pub(super) fn seed(
    reader: &mut dyn ReadLedger,
    policy: &Policy,
    quota: &MemoryQuota,
) -> Result<(), Failure> {
    let now = Timestamp(system_clock() / 1_000);
    let usage = used(reader, policy, now, policy.calendar().month_of(now).start)?;
    let seeds = usage.iter().map(|used| Seed {
        principal: &used.principal,
        capability: &used.capability,
        kind: kind_of(used),
        at: Timestamp(used.latest_us / 1_000),
        calls: match is_late_cost(used) {
            true => 0,
            false => u32::try_from(used.calls).unwrap_or(u32::MAX),
        },
        cost: Micros(used.cost_micros),
        dearest: Micros(used.dearest_micros),
    });
    quota.seed(policy, now, seeds);
    // What is counted of calls until their costs are known; their own entries cost nothing.
    for cost in late_costs::left(reader, system_clock())? {
        quota.seed(
            policy,
            now,
            [Seed {
                principal: &cost.principal,
                capability: &cost.capability,
                kind: governance::Kind::Tool,
                at: Timestamp(cost.at_us / 1_000),
                calls: 0,
                cost: Micros(cost.counted_micros),
                dearest: Micros(cost.counted_micros),
            }],
        );
    }
    Ok(())
}

/// Compares the counters in the database with the ledger; `None` where there are none.
///
/// # Errors
///
/// When the ledger or the counters cannot be read.
pub fn compare_counters(config: &Config) -> Result<Option<Comparison>, Failure> {
    let Some(url) = database(config)? else {
        return Ok(None);
    };
    let policy = Policy::new(PolicySpec::default())?;
    let recorded = recorded_use(open_reader(config)?.as_mut(), &policy)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(quota_postgres::compare(
        &url,
        &recorded,
        TimeSource::Database,
    ))?)
}
