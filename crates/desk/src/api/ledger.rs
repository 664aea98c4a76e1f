//! The ledger: its calls and events, as they come and as they were, and what proves them.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use futures_util::stream;
use ledger::{
    ApprovalId, CallId, Cursor, NoteFilter, NoteKind, ReadLedger, SigningKey, system_now_us,
};
use operator::look::{self, CallRow, Happenings, NoteRow, UsageRow, shown};
use operator::request::{CallFilter, ExportFormat, OUTCOMES, Stretch, When, Whose};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::Failure;
use tokio::sync::mpsc;

use super::{Count, limit, read};
use crate::call::{Call, EVENTS};
use crate::reply::{Problem, Reply};

/// Pause before the end of the ledger is looked at again.
const PAUSE: Duration = Duration::from_millis(250);
/// Silence after which an event says that a stream goes on: a connection to a server that hangs is silent, too.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Entries that wait for a slow reader of a stream.
const MAX_WAITING: usize = 1_000;
/// Entries that a stream begins with at most; what was before is listed.
const MAX_BACK: u64 = 1_000;
/// Pieces of an export that wait for a slow reader.
const MAX_PIECES: usize = 16;

/// Filter for calls.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CallQuery {
    /// Only those of this client.
    client: Option<String>,
    /// Only those of this tool.
    tool: Option<String>,
    /// Only those of the resource at this address.
    resource: Option<String>,
    /// Only those that ended like this, or are `open`.
    outcome: Option<String>,
    /// Only those that were refused for this reason.
    reason: Option<String>,
    /// From when on: RFC 3339, a date, or how long ago (`90m`, `12h`, `7d`).
    since: Option<String>,
    /// Until when, as above.
    until: Option<String>,
    /// Only those of this W3C trace.
    trace: Option<String>,
    /// Only those whose request had this id.
    request: Option<String>,
    /// Only those that named this approval.
    approval: Option<String>,
    /// Only those that took at least so many milliseconds.
    longer_than: Option<Count>,
    /// The most to list: 50 if not said, 500 at most. Without effect on an export.
    limit: Option<Count>,
    /// Go on where a page ended. Without effect on an export.
    before: Option<String>,
}

impl CallQuery {
    fn filter(&self) -> Result<CallFilter, Problem> {
        if let Some(outcome) = &self.outcome {
            super::one_of("outcome", outcome, &OUTCOMES)?;
        }
        Ok(CallFilter {
            who: Whose {
                client: self.client.clone(),
                tool: self.tool.clone(),
                resource: self.resource.clone(),
            },
            outcome: self.outcome.clone(),
            reason: self.reason.clone(),
            since: read::<When>("since", self.since.as_ref())?,
            until: read::<When>("until", self.until.as_ref())?,
            trace: self.trace.clone(),
            request: self.request.clone(),
            approval: read::<ApprovalId>("approval", self.approval.as_ref())?,
            longer_than: self.longer_than.map(|Count(count)| count),
        })
    }
}

/// Page of calls.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Calls {
    /// Calls, the newest first.
    calls: Vec<CallRow>,
    /// Value of `before` for the next page, if there is one.
    next: Option<String>,
    /// Time at which the ledger was asked, RFC 3339.
    at: String,
}

pub(crate) async fn calls(call: Call<'_>) -> Result<Reply, Problem> {
    let query: CallQuery = call.query()?;
    let (filter, most) = (query.filter()?, limit(query.limit)?);
    let before = read::<Cursor>("before", query.before.as_ref())?;
    let now_us = system_now_us();
    let found = call.desk.read(move |reader, _| {
        let records = look::calls(reader, filter, most, before)?;
        let next = records.last().filter(|_| records.len() == most);
        let next = next.map(|it| it.cursor().to_string());
        Ok((records.iter().map(CallRow::of).collect(), next))
    });
    let (calls, next) = found.await?;
    let at = shown(now_us);
    Ok(Reply::json(&Calls { calls, next, at }))
}

/// A call, and what proves its entries.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShownCall {
    /// The call.
    call: CallRow,
    /// Proof of the entry of its start; none if the entry cannot be found in the chain.
    proof: Option<Proof>,
    /// Events whose subject is the call or its approval.
    notes: Vec<NoteRow>,
}

/// Place of an entry in the chain.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Proof {
    /// Number of the entry.
    sequence: u64,
    /// The first entry of its group, whose entries have one hash.
    group_first: u64,
    /// The last of them.
    group_last: u64,
    /// SHA-256 of the chain before the group.
    hash_before: Option<String>,
    /// SHA-256 of the chain through the group, as stored.
    hash: String,
    /// True if the hash was made again of the entries and is the same.
    is_intact: bool,
    /// The last entry that a checkpoint in the ledger seals; this entry is sealed if that is not before it.
    sealed_through: u64,
}

fn proof(reader: &mut dyn ReadLedger, sequence: u64) -> Result<Option<Proof>, Failure> {
    let group = reader.group_of(sequence)?;
    let Some(group) = group else {
        return Ok(None);
    };
    let before = match group.first_sequence {
        0 | 1 => Some([0; 32]),
        first => reader.hash_after(first - 1)?,
    };
    Ok(Some(Proof {
        sequence,
        group_first: group.first_sequence,
        group_last: group.first_sequence + group.count.max(1) - 1,
        hash_before: before.map(|it| HEXLOWER.encode(&it)),
        hash: HEXLOWER.encode(&group.hash),
        is_intact: before.is_some_and(|before| group.follows(&before)),
        sealed_through: sealed_through(reader)?,
    }))
}

/// The last entry that a checkpoint in the ledger seals, by what the checkpoint says of itself.
fn sealed_through(reader: &mut dyn ReadLedger) -> Result<u64, Failure> {
    let kind = NoteKind::CHECKPOINT;
    let filter = NoteFilter {
        kind: Some(kind.as_str()),
        ..NoteFilter::default()
    };
    let last = reader.notes(1, filter)?.pop();
    let detail = last.and_then(|it| serde_json::from_str(&it.noted.detail.text).ok());
    let through = detail.and_then(|it: serde_json::Value| it["sequence"].as_u64());
    Ok(through.unwrap_or_default())
}

pub(crate) async fn call(call: Call<'_>) -> Result<Reply, Problem> {
    let missing = || Problem::missing("the ledger has no such call");
    let id: CallId = call.name().parse().map_err(|_| missing())?;
    let found = call.desk.read(move |reader, _| {
        let Some(record) = reader.call(id)? else {
            return Ok(None);
        };
        let proof = proof(reader, record.sequence)?;
        let call = CallRow::of(&record);
        let subjects = [Some(call.call.clone()), call.approval.clone()];
        let mut notes = Vec::new();
        for subject in subjects.iter().flatten() {
            let filter = NoteFilter {
                subject: Some(subject),
                ..NoteFilter::default()
            };
            let found = reader.notes(50, filter)?;
            notes.extend(found.iter().map(|it| NoteRow::of(it.sequence, &it.noted)));
        }
        Ok(Some(ShownCall { call, proof, notes }))
    });
    Ok(Reply::json(&found.await?.ok_or_else(missing)?))
}

/// Filter for events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteQuery {
    /// Only those of this kind, such as `operator_acted`.
    kind: Option<String>,
    /// Only those by this actor.
    actor: Option<String>,
    /// Only those about this subject.
    subject: Option<String>,
    /// The most to list: 50 if not said, 500 at most.
    limit: Option<Count>,
    /// Go on where a page ended.
    before: Option<String>,
}

/// Page of events.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Notes {
    /// Events, the newest first.
    notes: Vec<NoteRow>,
    /// Value of `before` for the next page, if there is one.
    next: Option<String>,
    /// Time at which the ledger was asked, RFC 3339.
    at: String,
}

pub(crate) async fn notes(call: Call<'_>) -> Result<Reply, Problem> {
    let query: NoteQuery = call.query()?;
    if let Some(kind) = &query.kind {
        let all = NoteKind::ALL;
        let kinds = all.each_ref().map(NoteKind::as_str);
        super::one_of("kind", kind, &kinds)?;
    }
    let most = limit(query.limit)?;
    let before = read::<Cursor>("before", query.before.as_ref())?;
    let now_us = system_now_us();
    let found = call.desk.read(move |reader, _| {
        let filter = NoteFilter {
            kind: query.kind.as_deref(),
            actor: query.actor.as_deref(),
            subject: query.subject.as_deref(),
            before,
            ..NoteFilter::default()
        };
        let records = reader.notes(most, filter)?;
        let next = records.last().filter(|_| records.len() == most);
        let next = next.map(|it| it.cursor().to_string());
        let rows = records.iter();
        let rows = rows.map(|it| NoteRow::of(it.sequence, &it.noted)).collect();
        Ok((rows, next))
    });
    let (notes, next) = found.await?;
    let at = shown(now_us);
    Ok(Reply::json(&Notes { notes, next, at }))
}

/// Length of the ledger, and how far it is sealed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Summary {
    /// Entries.
    entries: u64,
    /// Calls, refused ones included; those of the last entries may be missing.
    calls: u64,
    /// Calls that have not ended.
    open_calls: u64,
    /// Number of the last entry.
    last_sequence: u64,
    /// The last entry that a checkpoint seals; 0 if none does.
    sealed_through: u64,
    /// True if checkpoints are signed, with a key of the configuration.
    signs_checkpoints: bool,
    /// Public key of the checkpoints, if it is there to be read.
    public_key_file: Option<String>,
    /// Time at which the ledger was asked, RFC 3339.
    at: String,
}

pub(crate) async fn summary(call: Call<'_>) -> Result<Reply, Problem> {
    let now_us = system_now_us();
    let summary = call.desk.read(move |reader, config| {
        let (counts, extent) = (reader.count()?, reader.extent()?);
        let key = config.ledger.checkpoint.key.as_deref();
        Ok(Summary {
            entries: counts.entries,
            calls: counts.calls,
            open_calls: counts.open_calls,
            last_sequence: extent.last_sequence,
            sealed_through: sealed_through(reader)?,
            signs_checkpoints: key.is_some(),
            public_key_file: key.map(|it| SigningKey::public_path(it).display().to_string()),
            at: shown(now_us),
        })
    });
    Ok(Reply::json(&summary.await?))
}

pub(crate) async fn verify(call: Call<'_>) -> Result<Reply, Problem> {
    call.desk.record(call.who(), "ledger_verify", "").await?;
    let config = call.desk.server.config().clone();
    let verified = call.desk.block(move || look::verified(&config));
    Ok(Reply::json(&verified.await?))
}

pub(crate) async fn export(call: Call<'_>) -> Result<Reply, Problem> {
    let query: CallQuery = call.query()?;
    let filter = query.filter()?;
    call.desk.record(call.who(), "ledger_export", "").await?;
    let config = call.desk.server.config().clone();
    let (sender, mut receiver) = mpsc::channel(MAX_PIECES);
    tokio::task::spawn_blocking(move || {
        let output = Pieces(sender);
        let form = (ExportFormat::Json, look::ServerNames::new());
        let ended = look::export_to(&config, filter, output, form, false);
        // A reader that has gone is no failure.
        if let Err(error) = ended {
            tracing::info!(
                error = &error as &dyn std::error::Error,
                "an export ended early"
            );
        }
    });
    let pieces = stream::poll_fn(move |cx| receiver.poll_recv(cx));
    let reply = Reply::stream(Box::pin(pieces), "application/x-ndjson");
    let name = http::HeaderValue::from_static("attachment; filename=\"ledger.jsonl\"");
    Ok(reply.with(http::header::CONTENT_DISPOSITION, name))
}

/// Output that a stream reads.
struct Pieces(mpsc::Sender<Bytes>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let sent = self.0.blocking_send(Bytes::from(text.into_owned()));
        match sent {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Filter for use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageQuery {
    /// Only that of this client.
    client: Option<String>,
    /// Only that of this tool.
    tool: Option<String>,
    /// From when on; seven days ago if not said.
    since: Option<String>,
    /// Until when.
    until: Option<String>,
    /// `day` for a row for each day.
    by: Option<String>,
}

/// Use of capabilities by clients.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UsageRows {
    /// A row for each client and capability.
    usage: Vec<UsageRow>,
    /// Currency of costs and budgets.
    currency: String,
    /// Time at which the ledger was asked, RFC 3339.
    at: String,
}

pub(crate) async fn usage(call: Call<'_>) -> Result<Reply, Problem> {
    let query: UsageQuery = call.query()?;
    let by = match query.by.as_deref() {
        None => Stretch::Whole,
        Some("day") => Stretch::Day,
        Some(_) => return Err(Problem::bad("`by` is `day`")),
    };
    let stretch = (
        read::<When>("since", query.since.as_ref())?,
        read::<When>("until", query.until.as_ref())?,
    );
    let who = Whose {
        client: query.client,
        tool: query.tool,
        resource: None,
    };
    let policy = call.desk.server.policy();
    let currency = call.desk.server.governance().rules.currency.clone();
    let found = call
        .desk
        .read(move |reader, _| look::usage(reader, &policy, &who, stretch, by));
    Ok(Reply::json(&UsageRows {
        usage: found.await?,
        currency,
        at: shown(system_now_us()),
    }))
}

/// Place to stream from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Since {
    /// Number of the last entry that is known; without it, the stream begins with what comes. The header
    /// `Last-Event-ID`, which browsers send, wins.
    after: Option<Count>,
}

/// Data of an event of the stream.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Activity {
    /// `started`, `ended` or `noted`.
    event: &'static str,
    /// Number of the entry.
    sequence: u64,
    /// The call as it is with this entry, if it is about one.
    call: Option<CallRow>,
    /// The event, if it is not about a call.
    note: Option<NoteRow>,
}

pub(crate) async fn activity(call: Call<'_>) -> Result<Reply, Problem> {
    let query: Since = call.query()?;
    let headers = &call.request.parts().headers;
    let last = headers.get("last-event-id").and_then(|it| it.to_str().ok());
    let last = last.and_then(|it| it.parse::<u64>().ok());
    let after = last.or(query.after.map(|Count(count)| count));
    let config = call.desk.server.config().clone();
    let (end, skipped) = call
        .desk
        .read(move |reader, _| {
            let end = reader.extent()?.last_sequence;
            let after = after.unwrap_or(end).min(end);
            let from = after.max(end.saturating_sub(MAX_BACK));
            Ok((from, from - after))
        })
        .await?;
    let desk = std::sync::Arc::clone(call.desk);
    let who = call.who().clone();
    let (sender, mut receiver) = mpsc::channel(MAX_WAITING);
    if skipped != 0 {
        let event = format!("event: lagged\ndata: {{\"skipped\":{skipped}}}\n\n");
        // It is empty still.
        let _ = sender.try_send(Bytes::from(event));
    }
    tokio::spawn(async move {
        let mut stopping = desk.stopping.subscribe();
        // Of a key or a token; a session ends with it, too.
        let proof = futures_util::future::OptionFuture::from(who.principal.end());
        let ended = async {
            if proof.await.is_none() {
                std::future::pending::<()>().await;
            }
        };
        let following = follow(&config, end, &sender, || desk.sign_in.is_good(&who));
        tokio::select! {
            () = following => {}
            () = ended => {}
            _ = stopping.wait_for(|it| *it) => {}
        }
    });
    let begins = stream::iter([Bytes::from_static(b"retry: 2000\n\n")]);
    let events = stream::poll_fn(move |cx| receiver.poll_recv(cx));
    let events = futures_util::StreamExt::chain(begins, events);
    Ok(Reply::stream(Box::pin(events), EVENTS))
}

/// Sends entries as they come, for as long as there is somebody to read them who may.
async fn follow(
    config: &config::Config,
    after: u64,
    sender: &mpsc::Sender<Bytes>,
    is_good: impl Fn() -> bool,
) {
    let mut happenings: Option<Happenings> = None;
    let (mut next, mut silent) = (after + 1, Duration::ZERO);
    while !sender.is_closed() && is_good() {
        let (config, known) = (config.clone(), happenings.take());
        let looked = tokio::task::spawn_blocking(move || {
            let mut happenings = match known {
                Some(known) => known,
                None => Happenings::from(server::open_reader(&config)?, next),
            };
            let mut found = Vec::new();
            while found.len() < MAX_WAITING
                && let Some(happening) = happenings.next()?
            {
                found.push(happening);
            }
            Ok::<_, Failure>((happenings, found))
        });
        let event = match looked.await {
            Ok(Ok((known, found))) => {
                happenings = Some(known);
                for happening in &found {
                    next = happening.sequence + 1;
                    silent = Duration::ZERO;
                    if sender.send(event_of(happening)).await.is_err() {
                        return;
                    }
                }
                None
            }
            Ok(Err(failure)) => {
                tracing::error!(
                    error = &*failure as &dyn std::error::Error,
                    "activity cannot be read"
                );
                Some("event: failed\ndata: {}\n\n")
            }
            Err(_) => Some("event: failed\ndata: {}\n\n"),
        };
        if event.is_none() && KEEP_ALIVE <= silent {
            silent = Duration::ZERO;
            let alive = Bytes::from_static(b"event: alive\ndata: {}\n\n");
            if sender.send(alive).await.is_err() {
                return;
            }
        }
        if let Some(event) = event
            && sender
                .send(Bytes::from_static(event.as_bytes()))
                .await
                .is_err()
        {
            return;
        }
        tokio::time::sleep(PAUSE).await;
        silent += PAUSE;
    }
}

fn event_of(happening: &look::Happening) -> Bytes {
    let activity = Activity {
        event: happening.event(),
        sequence: happening.sequence,
        call: happening.call(),
        note: happening.note(),
    };
    let text = serde_json::to_string(&activity).expect("plain data serializes");
    let text = match redaction::knows_any() {
        true => redaction::without_known_json(&text).into_owned(),
        false => text,
    };
    let sequence = happening.sequence;
    Bytes::from(format!("id: {sequence}\nevent: entry\ndata: {text}\n\n"))
}
