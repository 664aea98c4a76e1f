//! Ledger entries about the server itself.

use std::path::Path;

use data_encoding::HEXLOWER;
use gateway::PinEvent;
use identity::KeyChange;
use ledger::{MAX_DETAIL_BYTES, Note, NoteKind, Recorder};
use mcp_server::system_clock;
use serde_json::{Value, json};

use config::{Change, Config, Durability, Origin, Problem, Severity};

/// Act of a person, for the ledger.
#[derive(Debug, Clone, Copy)]
pub struct Act<'a> {
    /// Name of the person, as it was proved.
    pub by: &'a str,
    /// Act, in a word such as `upstream_recheck`.
    pub what: &'a str,
    /// Subject of the act; empty where that is plain.
    pub subject: &'a str,
    /// Proof of who the person is, and the address it came from.
    pub proof: &'a str,
    /// More about the act: an object, or null.
    pub more: &'a Value,
}

impl Act<'_> {
    pub(super) fn actor(&self) -> String {
        format!("operator:{}", self.by)
    }

    pub(super) fn detail(&self) -> String {
        let mut detail = serde_json::json!({ "what": self.what, "proof": self.proof });
        for (name, value) in self.more.as_object().into_iter().flatten() {
            detail[name] = value.clone();
        }
        detail.to_string()
    }
}

/// Rules have taken the place of others.
pub(super) struct PolicyChange<'a> {
    /// The versions before and after.
    pub(super) versions: (u64, u64),
    /// Cause of the change: `file`, `signal`, `vault`, `desk`, `host_file`, `skills`, or `offer` for tools and resources that came
    /// or went.
    pub(super) cause: &'a str,
    /// The configuration file.
    pub(super) file: &'a Path,
    /// The settings that differ.
    pub(super) changes: &'a [Change],
}

/// Says that the server begins to serve. Waits until it is on record.
pub(super) async fn started(
    recorder: &Recorder,
    program: &str,
    config: &Config,
    file: &Path,
    version: u64,
) {
    let detail = json!({
        "version": program,
        "process": std::process::id(),
        "transport": config.transport,
        "durability": match config.ledger.durability {
            Durability::Strict => "strict",
            Durability::Relaxed => "relaxed",
        },
        "file": file.display().to_string(),
    });
    let note = Note {
        policy_version: version,
        detail: &detail.to_string(),
        ..Note::new(system_clock(), NoteKind::SERVER_STARTED)
    };
    if let Err(error) = recorder.note(&note).await {
        tracing::error!(%error, "the ledger does not say that the server has started");
    }
}

/// Says that the server ends, once nothing is served any more.
pub(super) fn stopped(recorder: &Recorder, program: &str, version: u64) {
    let detail = json!({
        "version": program,
        "process": std::process::id(),
    });
    hand_over(recorder, NoteKind::SERVER_STOPPED, "", version, &detail);
}

/// Says that rules take the place of others. Handed over before they do, it stands in the ledger
/// before the first call that they judge.
pub(super) fn policy_changed(recorder: &Recorder, change: &PolicyChange<'_>) {
    let (from, to) = change.versions;
    let keys: Vec<&str> = change.changes.iter().map(|it| it.key.as_str()).collect();
    let file = change.file.display().to_string();
    let base = json!({ "from": from, "to": to, "cause": change.cause, "settings": keys.len() });
    let with = |name: &str, value: Value| {
        let mut detail = base.clone();
        detail[name] = value;
        detail
    };
    // What would be cut is said in fewer words.
    let detail = [
        with("changes", json!(change.changes)),
        with("keys", json!(keys)),
    ]
    .into_iter()
    .find(|detail| detail.to_string().len() <= MAX_DETAIL_BYTES)
    .unwrap_or(base);
    hand_over(recorder, NoteKind::POLICY_CHANGED, &file, to, &detail);
}

/// Records that the content of the file cannot be put in force.
pub(super) fn policy_rejected(
    recorder: &Recorder,
    version: u64,
    cause: &str,
    file: &Path,
    problems: &[Problem],
) {
    let errors = problems.iter().filter(|it| it.severity == Severity::Error);
    let told: Vec<Value> = errors
        .map(|problem| {
            let (line, column) = match &problem.origin {
                Origin::File(at) => (Some(at.line), Some(at.column)),
                _ => (None, None),
            };
            let message = &problem.message;
            json!({ "message": message, "key": problem.key, "line": line, "column": column })
        })
        .collect();
    let count = told.len();
    let file = file.display().to_string();
    let mut detail = json!({ "cause": cause, "count": count, "problems": told });
    if MAX_DETAIL_BYTES < detail.to_string().len() {
        let first = detail["problems"][0].take();
        detail["problems"] = json!([first]);
    }
    hand_over(recorder, NoteKind::POLICY_REJECTED, &file, version, &detail);
}

/// Records that a key was made, changed or revoked: its id, its principal, and its new state.
pub(super) fn key_changed(recorder: &Recorder, version: u64, change: &KeyChange) {
    let detail = json!({ "id": change.id, "what": change.what });
    let (kind, subject) = (NoteKind::KEY_CHANGED, change.principal.as_str());
    hand_over(recorder, kind, subject, version, &detail);
}

/// Records that a client has another credential of its own at an upstream, or none any more; without a word of it.
pub(super) fn credential_changed(
    recorder: &Recorder,
    version: u64,
    client: &str,
    upstream: &str,
    what: &str,
) {
    let detail = json!({ "client": client, "upstream": upstream, "what": what });
    let (kind, subject) = (NoteKind::CREDENTIAL_CHANGED, format!("{upstream}/{client}"));
    hand_over(recorder, kind, &subject, version, &detail);
}

/// Records that a definition of an upstream is held, or was approved.
pub(super) fn pin_changed(recorder: &Recorder, version: u64, event: &PinEvent) {
    let (kind, item) = match event {
        PinEvent::Held(item) => (NoteKind::DEFINITION_HELD, item),
        PinEvent::Approved(item) => (NoteKind::DEFINITION_APPROVED, item),
    };
    let subject = format!("{}/{}/{}", item.upstream, item.kind.as_str(), item.name);
    let pin = &item.pin;
    let detail = json!({
        "pinned": pin.digest,
        "held": pin.held.as_ref().map(|it| &it.digest),
        "changes": pin.held.as_ref().map(|it| &it.changes),
        "same_as": pin.held.as_ref().and_then(|it| it.same_as.as_ref()),
        "approved": pin.approved,
        "stopped": pin.stopped,
    });
    hand_over(recorder, kind, &subject, version, &detail);
}

/// Records that a prompt has another version in force, or another text of it; none, where it cannot be used.
pub(super) fn prompt_changed(
    recorder: &Recorder,
    version: u64,
    name: &str,
    from: Option<&(String, [u8; 32])>,
    to: Option<&(String, [u8; 32])>,
) {
    let shown = |it: Option<&(String, [u8; 32])>| {
        it.map(|(version, digest)| json!({ "version": version, "digest": HEXLOWER.encode(digest) }))
    };
    let detail = json!({ "from": shown(from), "to": shown(to) });
    hand_over(recorder, NoteKind::PROMPT_CHANGED, name, version, &detail);
}

/// Says that counters in PostgreSQL were lower than the ledger, and have been raised.
pub(super) fn counters_raised(recorder: &Recorder, detail: &Value) {
    hand_over(recorder, NoteKind::COUNTERS_RAISED, "", 0, detail);
}

fn hand_over(recorder: &Recorder, kind: NoteKind, subject: &str, version: u64, detail: &Value) {
    let note = Note {
        subject,
        policy_version: version,
        detail: &detail.to_string(),
        ..Note::new(system_clock(), kind.clone())
    };
    if let Err(error) = recorder.note_later(&note) {
        tracing::error!(%error, note = %kind, "the ledger does not say so");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Event, MemoryLedger, RecorderOptions};

    async fn noted(note: impl FnOnce(&Recorder)) -> (NoteKind, Value) {
        let store = MemoryLedger::default();
        let recorder = Recorder::spawn(store.clone(), RecorderOptions::default()).unwrap();
        note(&recorder);
        recorder.close().await.unwrap();
        let entries = store.entries();
        let [entry] = entries.as_slice() else {
            panic!("{entries:?}")
        };
        let Event::Noted(noted) = &entry.event else {
            panic!("{entry:?}")
        };
        assert_eq!(noted.detail.cut, None);
        let detail = serde_json::from_str(&noted.detail.text).unwrap();
        (noted.kind.clone(), detail)
    }

    fn changes(count: usize, length: usize) -> Vec<Change> {
        let change = |number| Change {
            key: format!("governance.clients.c{number}.quota.max_calls_per_day"),
            from: Some(json!("x".repeat(length))),
            to: None,
        };
        (0..count).map(change).collect()
    }

    #[tokio::test]
    async fn a_change_is_told_in_as_many_words_as_fit() {
        let rows = [
            (2, 10, Some("changes")),
            (2, MAX_DETAIL_BYTES, Some("keys")),
            (1_000, 10, None),
        ];
        for (count, length, told) in rows {
            let changes = changes(count, length);
            let change = PolicyChange {
                versions: (1, 2),
                cause: "file",
                file: Path::new("/x"),
                changes: &changes,
            };
            let (kind, detail) = noted(|recorder| policy_changed(recorder, &change)).await;
            assert_eq!(kind, NoteKind::POLICY_CHANGED);
            assert_eq!(detail["settings"], count);
            for name in ["changes", "keys"] {
                let has_it = told == Some(name);
                assert_eq!(detail[name].is_array(), has_it, "{count} {length}: {name}");
            }
        }
    }

    #[tokio::test]
    async fn a_rejection_names_line_and_column() {
        let problem = Problem::error(Origin::Default, "x".repeat(MAX_DETAIL_BYTES / 2));
        let problems = vec![problem; 3];
        let (_, detail) =
            noted(|it| policy_rejected(it, 7, "signal", Path::new("/x"), &problems)).await;
        assert_eq!(detail["count"], 3);
        assert_eq!(detail["problems"].as_array().unwrap().len(), 1);
    }
}
