//! Findings of verification, for each change that an attacker with the file in hand could make.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use data_encoding::HEXLOWER;
use ledger::{
    Approval, ApprovalFilter, ApprovalId, ApprovalState, Approver, CallId, Checkpoint,
    CheckpointOptions, Checkpoints, Claim, ContinuityError, Decision, Digest, Durability, End,
    Fault, Follower, KeyClaim, Kind, LedgerReader, MAX_PAGE_ROWS, NewApproval, Note, NoteKind,
    OfflineApprovals, Outcome, PublicKey, ReadLedger, Recorder, RecorderOptions, Report,
    SealedEvery, SignatureError, SigningKey, SqliteLedger, Start, Tail, Trust, Verdict,
    VerifyError, check_continuity, check_witness_file, verify, verify_telling,
};
use rusqlite::{Connection, params};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

const LONG: Duration = Duration::from_secs(60);
const CALLS: u64 = 40;
const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Far in the future, so that nothing expires while the test runs.
const NOW_US: u64 = 1 << 51;

/// A ledger, its checkpoints and its key.
struct Files {
    directory: tempfile::TempDir,
    public: PublicKey,
    used: ApprovalId,
}

impl Files {
    fn path(&self) -> PathBuf {
        self.directory.path().join("ledger.sqlite")
    }

    fn checkpoints(&self) -> PathBuf {
        self.directory.path().join("ledger.checkpoints")
    }

    fn key(&self) -> Arc<SigningKey> {
        Arc::new(SigningKey::load(&self.directory.path().join("key")).unwrap())
    }

    fn connection(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// Copy of the files, to be tampered with.
    fn copied(&self) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for file in ["ledger.sqlite", "ledger.checkpoints", "key"] {
            fs::copy(
                self.directory.path().join(file),
                directory.path().join(file),
            )
            .unwrap();
        }
        Self {
            directory,
            public: self.public.clone(),
            used: self.used,
        }
    }

    fn verify(&self, keys: bool, file: bool) -> Report {
        let mut reader = LedgerReader::open(self.path()).unwrap();
        let keys = if keys {
            std::slice::from_ref(&self.public)
        } else {
            &[]
        };
        let checkpoints = self.checkpoints();
        let trust = Trust {
            keys,
            checkpoints: file.then_some(&*checkpoints),
            ..Trust::default()
        };
        verify(&mut reader, trust).unwrap()
    }

    fn serve(&self) -> Recorder {
        let store = SqliteLedger::open(self.path(), Durability::Strict).unwrap();
        let checkpoints = Checkpoints::new(CheckpointOptions {
            entries: 20,
            file: Some(self.checkpoints()),
            key: Some(self.key()),
            ..CheckpointOptions::default()
        });
        let options = RecorderOptions {
            now: || NOW_US,
            ..RecorderOptions::default()
        };
        Recorder::spawn_with_hook(store, options, checkpoints).unwrap()
    }

    /// Stops serving, and leaves everything indexed and in one file.
    fn close(&self, runtime: &tokio::runtime::Runtime, recorder: &Recorder) {
        runtime
            .block_on(async { tokio::time::timeout(LONG, recorder.close()).await })
            .unwrap()
            .unwrap();
        drop(SqliteLedger::open(self.path(), Durability::Strict).unwrap());
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn start<'a>(number: u64, arguments: &'a str) -> Start<'a> {
    let at_us = NOW_US - DAY_US + number * DAY_US / CALLS;
    Start {
        request_id: "17",
        trace_id: Some("0af7651916cd43dd8448eb211c80319c"),
        arguments,
        estimated_cost_micros: 10,
        ..Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/pay")
    }
}

const BINDING: Digest = [7; 32];

fn new_approval() -> NewApproval {
    NewApproval {
        id: ApprovalId::random(),
        binding: BINDING,
        principal: "alice".to_owned(),
        capability: "tool/pay".to_owned(),
        arguments: r#"{"amount":5}"#.to_owned(),
        policy_version: u64::MAX,
        reason: "it moves money".to_owned(),
        needs: Approver::Operator,
        requested_us: NOW_US,
        expires_us: NOW_US + DAY_US,
    }
}

async fn approve(recorder: &Recorder, approval: NewApproval) -> Approval {
    let made = recorder.request_approval(&approval).await.unwrap();
    recorder
        .decide_approval(made.id, Verdict::new(Decision::Approve, "bob", NOW_US))
        .await
        .unwrap()
}

/// Waits until the server has seen that the time of an approval has run out.
fn has_expired(files: &Files) {
    let mut reader = LedgerReader::open(files.path()).unwrap();
    let filter = ApprovalFilter {
        state: Some(ApprovalState::Expired),
        ..ApprovalFilter::default()
    };
    let begun = Instant::now();
    while reader.approvals(1, filter).unwrap().is_empty() {
        assert!(begun.elapsed() < LONG);
        thread::sleep(Duration::from_millis(5));
    }
}

/// Two servers, one after the other, with calls, refusals, notes, and approvals in every state.
fn made() -> Files {
    let directory = tempfile::tempdir().unwrap();
    let key = SigningKey::generate(&directory.path().join("key")).unwrap();
    let mut files = Files {
        public: key.public().clone(),
        directory,
        used: ApprovalId::random(),
    };
    let runtime = runtime();
    for server in 0..2 {
        let recorder = files.serve();
        runtime.block_on(async {
            for number in 0..CALLS {
                let arguments = format!(r#"{{"n":{}}}"#, 1000 + number);
                let call = recorder.begin(&start(number, &arguments)).await.unwrap();
                let end = End {
                    result: "true",
                    duration_us: 100 * number,
                    cost_micros: 9,
                    ..End::new(if number % 7 == 0 {
                        Outcome::Failed
                    } else {
                        Outcome::Succeeded
                    })
                };
                call.finish(&end).await.unwrap();
            }
            let refused = End::new(Outcome::Denied { reason: "budget" });
            recorder
                .refuse(&start(CALLS, "{}"), &refused)
                .await
                .unwrap();
            let mut note = Note::new(NOW_US, NoteKind::POLICY_CHANGED);
            note.subject = "rules";
            recorder.note(&note).await.unwrap();
            if server == 1 {
                return;
            }
            let used = approve(&recorder, new_approval()).await;
            let claims = [Claim::Approval {
                approval: used.id,
                binding: BINDING,
            }];
            for _ in 0..2 {
                let start = Start {
                    approval: Some(used.id),
                    ..start(CALLS, "{}")
                };
                // The second one is refused.
                if let Ok(call) = recorder.begin_claiming(&start, &claims).await {
                    call.finish(&End::new(Outcome::Succeeded)).await.unwrap();
                }
            }
            files.used = used.id;
            // The last one gives its key back.
            for (key, outcome) in [
                ("done", Outcome::Succeeded),
                ("failed", Outcome::Failed),
                ("refused", Outcome::Invalid),
            ] {
                // As a server has it: of what the arguments say, however they are written.
                let arguments = r#"{"to": "bob", "cost": "0.1"}"#;
                let digest = redaction::digest(arguments);
                let start = Start {
                    arguments_digest: Some(digest),
                    idempotency_key: Some(key),
                    key_until_us: Some(u64::MAX),
                    ..start(CALLS, arguments)
                };
                let claim = Claim::Key(KeyClaim {
                    principal: "alice".to_owned(),
                    key: key.to_owned(),
                    capability: "tool/pay".to_owned(),
                    digest,
                    call: start.call,
                    at_us: NOW_US,
                    until_us: u64::MAX,
                });
                let call = recorder.begin_claiming(&start, &[claim]).await.unwrap();
                let ended = call.finish_keeping(&End::new(outcome), Some("42"));
                ended.await.unwrap();
            }
            approve(
                &recorder,
                NewApproval {
                    binding: [8; 32],
                    ..new_approval()
                },
            )
            .await;
            let taken_back = NewApproval {
                binding: [11; 32],
                ..new_approval()
            };
            let taken_back = approve(&recorder, taken_back).await.id;
            let revoke = Verdict {
                proof: Some("token".to_owned()),
                reason: Some("too much".to_owned()),
                ..Verdict::new(Decision::Revoke, "carla", NOW_US)
            };
            recorder.decide_approval(taken_back, revoke).await.unwrap();
            for (binding, expires_us) in [([9; 32], NOW_US + DAY_US), ([10; 32], NOW_US)] {
                let approval = NewApproval {
                    binding,
                    expires_us,
                    ..new_approval()
                };
                recorder.request_approval(&approval).await.unwrap();
            }
        });
        if server == 0 {
            has_expired(&files);
        }
        files.close(&runtime, &recorder);
    }
    files
}

fn ledger() -> Files {
    static MADE: OnceLock<Files> = OnceLock::new();
    MADE.get_or_init(made).copied()
}

#[test]
fn what_nobody_touched_is_right() {
    let files = ledger();
    for (keys, file) in [(false, false), (true, false), (false, true), (true, true)] {
        let report = files.verify(keys, file);
        assert_eq!(report.first_wrong, None);
        assert!(report.is_ok());
        // The last entry is the checkpoint of the orderly close, which seals all before it.
        assert_eq!(report.sealed_through, report.entries - 1);
        let least = if file { 20 } else { 10 };
        assert!(least < report.checkpoints_checked, "{report:?}");
        assert_eq!(report.unreadable_lines, 0);
        let mut reader = LedgerReader::open(files.path()).unwrap();
        assert_eq!(Some(report.head), reader.last_hash().unwrap());
    }
    let mut reader = LedgerReader::open(files.path()).unwrap();
    let states = ["approved", "expired", "pending", "revoked", "used"];
    let mut found: Vec<_> = reader.approvals(9, Default::default()).unwrap();
    found.sort_by_key(|approval| approval.state.as_str());
    let found: Vec<_> = found
        .iter()
        .map(|approval| approval.state.as_str())
        .collect();
    assert_eq!(
        found, states,
        "approvals are there in every state that is compared"
    );
}

#[test]
fn an_index_of_many_calls_at_one_go_is_right() {
    let files = ledger();
    // An index of another version is made anew when the ledger is opened.
    let connection = files.connection();
    let sql = "UPDATE indexed SET version = 99";
    assert_eq!(connection.execute(sql, []).unwrap(), 1);
    drop(SqliteLedger::open(files.path(), Durability::Strict).unwrap());
    let calls: i64 = connection
        .query_row("SELECT count(*) FROM call", [], |row| row.get(0))
        .unwrap();
    assert!(CALLS <= calls.unsigned_abs());
    assert_eq!(files.verify(true, true).first_wrong, None);
}

/// A group: where it begins, its count, its hash and its body.
type Stored = (i64, i64, Digest, Vec<u8>);

fn groups(connection: &Connection) -> Vec<Stored> {
    let sql = "SELECT first_sequence, count, hash, body FROM entry_group ORDER BY 1";
    let mut select = connection.prepare(sql).unwrap();
    let rows = select.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn put(connection: &Connection, (first, count, hash, body): &Stored) {
    connection
        .execute(
            "INSERT OR REPLACE INTO entry_group (first_sequence, count, hash, body)
             VALUES (?1, ?2, ?3, ?4)",
            params![first, count, hash, body],
        )
        .unwrap();
}

fn replace(body: &mut [u8], from: &[u8], to: &[u8]) -> bool {
    assert_eq!(from.len(), to.len());
    let found = body.windows(from.len()).position(|window| window == from);
    if let Some(at) = found {
        body[at..at + to.len()].copy_from_slice(to);
    }
    found.is_some()
}

/// Changes the arguments of a call in the middle; tells in which group.
fn change_arguments(groups: &mut [Stored]) -> u64 {
    let changed = groups.iter_mut().find_map(|(first, _, _, body)| {
        replace(body, br#"{"n":1020}"#, br#"{"n":1021}"#).then_some(*first)
    });
    changed.unwrap() as u64
}

/// Makes the chain right again after a change; hashes in checkpoints, too, if `forges`.
fn rechain(connection: &Connection, groups: &mut [Stored], forges: bool) {
    let mut tail = Tail::default();
    let mut hashes = HashMap::<Digest, Digest>::new();
    for group in groups {
        let (first, count, hash, body) = group;
        tail.next_sequence = *first as u64;
        if forges {
            for (from, to) in &hashes {
                replace(
                    body,
                    HEXLOWER.encode(from).as_bytes(),
                    HEXLOWER.encode(to).as_bytes(),
                );
            }
        }
        tail = tail.after(body, *count as u64);
        hashes.insert(std::mem::replace(hash, tail.hash), tail.hash);
        put(connection, group);
    }
}

/// Removes from the index what is said about entries from this one on.
fn cut_index(connection: &Connection, from: i64) {
    connection
        .execute_batch(&format!(
            "DELETE FROM call WHERE start_sequence >= {from};
             DELETE FROM note WHERE sequence >= {from};
             UPDATE indexed SET through = {from} - 1;"
        ))
        .unwrap();
}

/// A group in the middle that holds nothing but one entry of a call.
fn middle(connection: &Connection) -> Stored {
    single(connection, 40)
}

/// The first such group after so many others.
fn single(connection: &Connection, after: usize) -> Stored {
    groups(connection)
        .into_iter()
        .skip(after)
        .find(|(_, count, _, body)| *count == 1 && !is_note(body))
        .unwrap()
}

fn is_note(body: &[u8]) -> bool {
    body.windows(6).any(|window| window == b"system")
}

/// Evidence for verification: here none but the ledger itself; below, a key, and a file.
const ALONE: (bool, bool) = (false, false);
const WITH_KEY: (bool, bool) = (true, false);
const WITH_FILE: (bool, bool) = (false, true);

/// Description of a change, the evidence, and the change itself, which returns the first wrong
/// entry and its fault.
type Tampering = (
    &'static str,
    (bool, bool),
    fn(&Files, &Connection) -> (Option<u64>, fn(&Fault) -> bool),
);

const TAMPERINGS: &[Tampering] = &[
    ("a call that succeeded is said to run", ALONE, |_, it| {
        key_differs(it, "state = 'running'")
    }),
    ("a key is said to have failed", ALONE, |_, it| {
        key_differs(it, "state = 'failed'")
    }),
    ("a key is in a state that there is not", ALONE, |_, it| {
        key_differs(it, "state = 'in_flight'")
    }),
    ("a key has another owner", ALONE, |_, it| {
        key_differs(it, "principal = 'eve'")
    }),
    ("a key is of another tool", ALONE, |_, it| {
        key_differs(it, "capability = 'tool/x'")
    }),
    ("a key has another name", ALONE, |_, it| {
        key_differs(it, "key = 'other'")
    }),
    ("a key is of a call that never was", ALONE, |_, it| {
        key_differs(it, "call = zeroblob(16)")
    }),
    ("a key is of no call at all", ALONE, |_, it| {
        key_differs(it, "call = zeroblob(3)")
    }),
    ("a key is of an empty call", ALONE, |_, it| {
        key_differs(it, "call = zeroblob(0)")
    }),
    ("a key is forgotten early", ALONE, |_, it| {
        key_differs(it, "until_us = 1")
    }),
    ("a key is for other arguments", ALONE, |_, it| {
        key_differs(it, "digest = zeroblob(32)")
    }),
    ("a key is for no arguments", ALONE, |_, it| {
        key_differs(it, "digest = zeroblob(3)")
    }),
    ("a key is gone", ALONE, |_, it| {
        let sql = "DELETE FROM idempotency_key WHERE key = 'done'";
        assert_eq!(it.execute(sql, []).unwrap(), 1);
        (None, |fault| {
            let table = "idempotency_key";
            *fault == Fault::TableDiffers { table }
        })
    }),
    ("a call holds a key of somebody else too", ALONE, |_, it| {
        let sql = "INSERT INTO idempotency_key SELECT 'eve', key, capability, digest, call, at_us,
            until_us, state, result FROM idempotency_key WHERE key = 'done'";
        assert_eq!(it.execute(sql, []).unwrap(), 1);
        (None, |fault| {
            let table = "idempotency_key";
            *fault == Fault::TableDiffers { table }
        })
    }),
    ("a byte of a body is changed", ALONE, |_, connection| {
        let mut groups = groups(connection);
        let at = change_arguments(&mut groups);
        groups.iter().for_each(|group| put(connection, group));
        (Some(at), |fault| *fault == Fault::Hash)
    }),
    ("a body is cut", ALONE, |_, connection| {
        let mut group = middle(connection);
        group.3.pop();
        put(connection, &group);
        (Some(group.0 as u64), |fault| {
            matches!(fault, Fault::Unreadable(_))
        })
    }),
    ("a body is emptied", ALONE, |_, connection| {
        let mut group = middle(connection);
        group.3.clear();
        put(connection, &group);
        (Some(group.0 as u64), |fault| *fault == Fault::Hash)
    }),
    ("a count is changed", ALONE, |_, connection| {
        let mut group = middle(connection);
        group.1 += 1;
        put(connection, &group);
        (Some(group.0 as u64), |fault| {
            *fault == Fault::Count { said: 2, found: 1 }
        })
    }),
    (
        "the count of the last group is raised",
        ALONE,
        |_, connection| {
            let mut group = groups(connection).pop().unwrap();
            group.1 += 5;
            put(connection, &group);
            (Some(group.0 as u64), |fault| {
                matches!(fault, Fault::Count { .. })
            })
        },
    ),
    ("a hash is changed", ALONE, |_, connection| {
        let mut group = middle(connection);
        group.2[0] ^= 1;
        put(connection, &group);
        (Some(group.0 as u64), |fault| *fault == Fault::Hash)
    }),
    ("the first group is deleted", ALONE, |_, connection| {
        connection
            .execute("DELETE FROM entry_group WHERE first_sequence = 1", [])
            .unwrap();
        (Some(1), |fault| matches!(fault, Fault::Missing { .. }))
    }),
    ("a group is deleted", ALONE, |_, connection| {
        let group = middle(connection);
        connection
            .execute(
                "DELETE FROM entry_group WHERE first_sequence = ?1",
                [group.0],
            )
            .unwrap();
        (Some(group.0 as u64), |fault| {
            matches!(fault, Fault::Missing { .. })
        })
    }),
    (
        "the last group is deleted, not from the index",
        ALONE,
        |_, connection| {
            let group = groups(connection).pop().unwrap();
            connection
                .execute(
                    "DELETE FROM entry_group WHERE first_sequence = ?1",
                    [group.0],
                )
                .unwrap();
            (Some(group.0 as u64), |fault| {
                *fault == Fault::IndexInvents { table: "note" }
            })
        },
    ),
    (
        "the last groups are deleted, from the index as well",
        WITH_FILE,
        |_, connection| {
            let groups = groups(connection);
            let from = groups[groups.len() - 20].0;
            connection
                .execute("DELETE FROM entry_group WHERE first_sequence >= ?1", [from])
                .unwrap();
            cut_index(connection, from);
            (Some(from as u64), |fault| {
                matches!(fault, Fault::Truncated { .. })
            })
        },
    ),
    ("everything is deleted", WITH_FILE, |_, connection| {
        connection.execute("DELETE FROM entry_group", []).unwrap();
        cut_index(connection, 1);
        (Some(1), |fault| matches!(fault, Fault::Truncated { .. }))
    }),
    ("two groups are swapped", ALONE, |_, connection| {
        let (one, other) = (single(connection, 30), single(connection, 60));
        put(connection, &(one.0, other.1, other.2, other.3.clone()));
        put(connection, &(other.0, one.1, one.2, one.3.clone()));
        (Some(one.0 as u64), |fault| *fault == Fault::Hash)
    }),
    ("a group is stored twice", ALONE, |_, connection| {
        let groups = groups(connection);
        let last = groups.last().unwrap();
        let next = last.0 + last.1;
        let twin = &groups[groups.len() / 2];
        put(connection, &(next, twin.1, twin.2, twin.3.clone()));
        (Some(next as u64), |fault| *fault == Fault::Hash)
    }),
    (
        "a group is stored again within another",
        ALONE,
        |_, connection| {
            let mut wide = groups(connection)
                .into_iter()
                .find(|group| 1 < group.1)
                .unwrap();
            wide.0 += 1;
            put(connection, &wide);
            (Some((wide.0 - 1 + wide.1) as u64), |fault| {
                matches!(fault, Fault::Repeated { .. })
            })
        },
    ),
    ("a group is put before the first", ALONE, |_, connection| {
        let group = middle(connection);
        put(connection, &(-3, group.1, group.2, group.3));
        (Some(1), |fault| matches!(fault, Fault::Repeated { .. }))
    }),
    (
        "a call is made up after the end, with a chain of its own",
        ALONE,
        |_, connection| {
            let groups = groups(connection);
            let last = groups.last().unwrap();
            let body = middle(connection).3;
            let next_sequence = (last.0 + last.1) as u64;
            let tail = Tail {
                next_sequence,
                hash: last.2,
            };
            put(
                connection,
                &(next_sequence as i64, 1, tail.after(&body, 1).hash, body),
            );
            (Some(next_sequence), |fault| *fault == Fault::NoCheckpoint)
        },
    ),
    (
        "the chain is made anew from an entry on",
        ALONE,
        |_, connection| {
            let mut groups = groups(connection);
            change_arguments(&mut groups);
            rechain(connection, &mut groups, false);
            (None, |fault| matches!(fault, Fault::NotAsSealed { .. }))
        },
    ),
    (
        "the chain and the checkpoints are made anew",
        WITH_KEY,
        |_, connection| {
            let mut groups = groups(connection);
            change_arguments(&mut groups);
            rechain(connection, &mut groups, true);
            (None, |fault| {
                *fault == Fault::Signature(SignatureError::Wrong)
            })
        },
    ),
    (
        "the chain and the checkpoints are made anew, and nobody signed",
        WITH_FILE,
        |_, connection| {
            let mut groups = groups(connection);
            change_arguments(&mut groups);
            rechain(connection, &mut groups, true);
            (None, |fault| matches!(fault, Fault::NotAsSealed { .. }))
        },
    ),
    (
        "signatures are taken away from a checkpoint on",
        WITH_KEY,
        |_, connection| {
            let mut groups = groups(connection);
            for (_, _, _, body) in groups.iter_mut().skip(40) {
                if replace(body, b"\"key\"", b"\"kay\"") {
                    assert!(replace(body, b"\"signature\"", b"\"signatyre\""));
                }
            }
            rechain(connection, &mut groups, true);
            (None, |fault| {
                *fault == Fault::Signature(SignatureError::Missing)
            })
        },
    ),
    (
        "all signatures are taken away",
        WITH_KEY,
        |_, connection| {
            let mut groups = groups(connection);
            for (_, _, _, body) in &mut groups {
                if replace(body, b"\"key\"", b"\"kay\"") {
                    assert!(replace(body, b"\"signature\"", b"\"signatyre\""));
                }
            }
            rechain(connection, &mut groups, true);
            (Some(1), |fault| {
                *fault == Fault::Signature(SignatureError::Missing)
            })
        },
    ),
    ("a checkpoint is made unreadable", ALONE, |_, connection| {
        let mut groups = groups(connection);
        let mut bodies = groups.iter_mut().skip(60).map(|group| &mut group.3);
        assert!(bodies.any(|body| replace(body, b"\"next_by\"", b"\"next_be\"")));
        rechain(connection, &mut groups, true);
        (None, |fault| *fault == Fault::BadCheckpoint)
    }),
    ("a line of the file is changed", WITH_FILE, |files, _| {
        let text = fs::read_to_string(files.checkpoints()).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        let changed = rest.replacen("\"hash\":\"", "\"hash\":\"0", 1);
        let end = changed.find("\"hash\":\"0").unwrap() + 8 + 64;
        let changed = format!("{first}\n{}{}", &changed[..end], &changed[end + 1..]);
        assert_eq!(changed.len(), text.len());
        fs::write(files.checkpoints(), changed).unwrap();
        (None, |fault| matches!(fault, Fault::NotAsSealed { .. }))
    }),
    ("the index has another principal", ALONE, |_, connection| {
        index_differs(connection, "principal = 'mallory'")
    }),
    (
        "the index has another capability",
        ALONE,
        |_, connection| index_differs(connection, "capability = 'tool/other'"),
    ),
    ("the index has another call", ALONE, |_, connection| {
        index_differs(connection, "call = x'00112233445566778899aabbccddeeff'")
    }),
    ("the index has another time", ALONE, |_, connection| {
        index_differs(connection, "started_us = started_us + 1")
    }),
    ("the index has another request", ALONE, |_, connection| {
        index_differs(connection, "request_id = '18'")
    }),
    ("the index has no trace", ALONE, |_, connection| {
        index_differs(connection, "trace_id = NULL")
    }),
    ("the index has an approval", ALONE, |_, connection| {
        index_differs(connection, "approval = 'x'")
    }),
    ("the index has another estimate", ALONE, |_, connection| {
        index_differs(connection, "estimated_cost_micros = 11")
    }),
    (
        "the index says that a start is elsewhere",
        ALONE,
        |_, connection| index_differs(connection, "start_offset = start_offset + 1"),
    ),
    ("the index has another outcome", ALONE, |_, connection| {
        end_differs(connection, "outcome = 'failed'")
    }),
    ("the index has another cost", ALONE, |_, connection| {
        end_differs(connection, "cost_micros = 0")
    }),
    ("the index has another duration", ALONE, |_, connection| {
        end_differs(connection, "duration_us = 1")
    }),
    ("the index has a reason", ALONE, |_, connection| {
        end_differs(connection, "reason = 'budget'")
    }),
    (
        "the index says that an end is elsewhere",
        ALONE,
        |_, connection| end_differs(connection, "end_length = end_length - 1"),
    ),
    ("the index does not have an end", ALONE, |_, connection| {
        end_differs(connection, "outcome = NULL, end_sequence = NULL")
    }),
    (
        "the index has the end of another call",
        ALONE,
        |_, connection| {
            let sequence = row(connection);
            let end = end_of(connection, sequence);
            let sql = "UPDATE call SET end_sequence = (SELECT max(end_sequence) FROM call)
             WHERE start_sequence = ?1";
            connection.execute(sql, [sequence]).unwrap();
            (Some(end), |fault| {
                *fault == Fault::IndexDiffers { table: "call" }
            })
        },
    ),
    (
        "the index has an end before its start",
        ALONE,
        |_, connection| index_differs(connection, "end_sequence = start_sequence - 1"),
    ),
    ("a row of the index is deleted", ALONE, |_, connection| {
        let sequence = row(connection);
        connection
            .execute("DELETE FROM call WHERE start_sequence = ?1", [sequence])
            .unwrap();
        (Some(sequence as u64), |fault| {
            *fault == Fault::NotIndexed { table: "call" }
        })
    }),
    ("a row of the index is made up", ALONE, |_, connection| {
        let sequence = row(connection);
        let end = end_of(connection, sequence);
        copy_row(connection, sequence, end as i64);
        (Some(end), |fault| {
            *fault == Fault::IndexInvents { table: "call" }
        })
    }),
    (
        "a row of the index is made up at the end",
        ALONE,
        |_, connection| {
            let last = groups(connection).pop().unwrap().0;
            copy_row(connection, row(connection), last);
            (Some(last as u64), |fault| {
                *fault == Fault::IndexInvents { table: "call" }
            })
        },
    ),
    (
        "a row of the index is made up beyond the end",
        ALONE,
        |_, connection| {
            copy_row(connection, row(connection), 1 << 40);
            (None, |fault| {
                *fault == Fault::TableDiffers { table: "indexed" }
            })
        },
    ),
    (
        "a row of the index is made up before the beginning",
        ALONE,
        |_, connection| {
            copy_row(connection, row(connection), -5);
            (Some(-5_i64 as u64), |fault| {
                *fault == Fault::IndexInvents { table: "call" }
            })
        },
    ),
    (
        "the index says that it goes less far",
        ALONE,
        |_, connection| {
            connection
                .execute("UPDATE indexed SET through = through - 50", [])
                .unwrap();
            (None, |fault| {
                *fault == Fault::TableDiffers { table: "indexed" }
            })
        },
    ),
    (
        "a note is another one in the index",
        ALONE,
        |_, connection| {
            let note = note(connection);
            connection
                .execute(
                    "UPDATE note SET actor = 'mallory' WHERE sequence = ?1",
                    [note],
                )
                .unwrap();
            (Some(note as u64), |fault| {
                *fault == Fault::IndexDiffers { table: "note" }
            })
        },
    ),
    ("a note is not in the index", ALONE, |_, connection| {
        let note = note(connection);
        connection
            .execute("DELETE FROM note WHERE sequence = ?1", [note])
            .unwrap();
        (Some(note as u64), |fault| {
            *fault == Fault::NotIndexed { table: "note" }
        })
    }),
    ("a sum is changed", ALONE, |_, connection| {
        sums_differ(
            connection,
            "UPDATE usage_day SET tally = (SELECT max(tally) FROM usage_day)",
        )
    }),
    ("a sum is damaged", ALONE, |_, connection| {
        sums_differ(connection, "UPDATE usage_day SET tally = x'00'")
    }),
    ("a sum is deleted", ALONE, |_, connection| {
        sums_differ(
            connection,
            "DELETE FROM usage_day WHERE day = (SELECT max(day) FROM usage_day)",
        )
    }),
    ("a sum is made up", ALONE, |_, connection| {
        sums_differ(
            connection,
            "INSERT INTO usage_day SELECT day + 9, principal, kind, capability, latest_us, used_calls,
                used_micros, dearest_micros, tally FROM usage_day LIMIT 1",
        )
    }),
    (
        "a sum of what was used is changed",
        ALONE,
        |_, connection| {
            sums_differ(
                connection,
                "UPDATE usage_day SET used_calls = used_calls - 1",
            )
        },
    ),
    (
        "the dearest call is made a cheap one",
        ALONE,
        |_, connection| {
            sums_differ(
                connection,
                "UPDATE usage_day SET dearest_micros = dearest_micros - 1",
            )
        },
    ),
    ("a sum of a month is made up", ALONE, |_, connection| {
        let sql = "INSERT INTO usage_month SELECT 7, principal, kind, capability, tally
            FROM usage_day LIMIT 1";
        assert_ne!(connection.execute(sql, []).unwrap(), 0);
        (None, |fault| {
            *fault
                == Fault::TableDiffers {
                    table: "usage_month",
                }
        })
    }),
    (
        "days are said to be in their months",
        ALONE,
        |_, connection| {
            let sql = "UPDATE indexed SET folded = 1 + (SELECT max(day) FROM usage_day)";
            connection.execute(sql, []).unwrap();
            (None, |fault| {
                *fault
                    == Fault::TableDiffers {
                        table: "usage_month",
                    }
            })
        },
    ),
    ("calls are miscounted", ALONE, |_, connection| {
        let sql = "UPDATE indexed SET calls = calls + 1";
        connection.execute(sql, []).unwrap();
        (None, |fault| {
            *fault == Fault::TableDiffers { table: "indexed" }
        })
    }),
    (
        "a used approval is made usable again",
        ALONE,
        |_, connection| {
            approval_differs(
                connection,
                "used",
                "state = 'approved', used_by = NULL, used_us = NULL",
            )
        },
    ),
    (
        "a used approval is said to be decided elsewhere",
        ALONE,
        |_, connection| {
            approval_differs(
                connection,
                "used",
                "state = 'approved', used_by = NULL, used_us = NULL, noted = 0",
            )
        },
    ),
    (
        "an approval is said to be used by another call",
        ALONE,
        |_, connection| {
            approval_differs(
                connection,
                "used",
                "used_by = (SELECT call FROM call LIMIT 1)",
            )
        },
    ),
    (
        "a pending approval is approved and said to be on record",
        ALONE,
        |_, connection| {
            approval_differs(
                connection,
                "pending",
                "state = 'approved', decided_by = 'bob', decided_us = 5",
            )
        },
    ),
    (
        "an approval is said to be somebody else's decision",
        ALONE,
        |_, connection| approval_differs(connection, "approved", "decided_by = 'alice'"),
    ),
    (
        "an approval that was taken back is approved again",
        ALONE,
        |_, connection| {
            approval_differs(
                connection,
                "revoked",
                "state = 'approved', revoked_by = NULL, revoked_us = NULL",
            )
        },
    ),
    (
        "an approval that was taken back is approved again, and nothing else is changed",
        ALONE,
        |_, connection| approval_differs(connection, "revoked", "state = 'approved'"),
    ),
    (
        "an approval is said to be taken back by somebody else",
        ALONE,
        |_, connection| approval_differs(connection, "revoked", "revoked_by = 'bob'"),
    ),
    (
        "an approval is said to be taken back for another reason",
        ALONE,
        |_, connection| approval_differs(connection, "revoked", "revoked_reason = 'none'"),
    ),
    (
        "an approval is said to be decided with a proof",
        ALONE,
        |_, connection| approval_differs(connection, "approved", "decided_proof = 'a token'"),
    ),
    (
        "an approval is said to be taken back that is not",
        ALONE,
        |_, connection| {
            approval_differs(
                connection,
                "approved",
                "state = 'revoked', revoked_by = 'carla', revoked_us = 5",
            )
        },
    ),
    (
        "an approval is made to be for another call",
        ALONE,
        |_, connection| {
            approval_differs(
                connection,
                "approved",
                "binding = x'0000000000000000000000000000000000000000000000000000000000000000'",
            )
        },
    ),
    (
        "an approval shows other arguments than it had",
        ALONE,
        |_, connection| approval_differs(connection, "pending", "arguments = '{\"amount\":1}'"),
    ),
    (
        "an approval may be decided by others",
        ALONE,
        |_, connection| approval_differs(connection, "pending", "needs = 'user'"),
    ),
    ("an approval lasts longer", ALONE, |_, connection| {
        approval_differs(connection, "pending", "expires_us = expires_us + 1")
    }),
    ("an expired approval is revived", ALONE, |_, connection| {
        approval_differs(connection, "expired", "state = 'pending'")
    }),
    (
        "the row of an approval is deleted",
        ALONE,
        |_, connection| {
            let sql = "SELECT sequence FROM note WHERE kind = 'approval_requested'
            ORDER BY sequence LIMIT 1 OFFSET 1";
            let sequence: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
            let sql = "DELETE FROM approval WHERE binding = ?1";
            assert_eq!(connection.execute(sql, [[8_u8; 32]]).unwrap(), 1);
            (Some(sequence as u64), |fault| {
                *fault == Fault::TableDiffers { table: "approval" }
            })
        },
    ),
    ("an approval is made up", ALONE, |_, connection| {
        connection
            .execute_batch(
                "CREATE TEMP TABLE copy AS SELECT * FROM approval WHERE state = 'approved';
                 UPDATE copy SET id = randomblob(16);
                 INSERT INTO main.approval SELECT * FROM copy;",
            )
            .unwrap();
        (None, |fault| {
            *fault == Fault::TableDiffers { table: "approval" }
        })
    }),
];

/// The row of the index about a call in the middle that succeeded.
fn row(connection: &Connection) -> i64 {
    let sql = "SELECT start_sequence FROM call WHERE outcome = 'succeeded' AND approval IS NULL
         ORDER BY start_sequence LIMIT 1 OFFSET 20";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn copy_row(connection: &Connection, from: i64, to: i64) {
    connection
        .execute_batch(&format!(
            "CREATE TEMP TABLE copy AS SELECT * FROM call WHERE start_sequence = {from};
             UPDATE copy SET start_sequence = {to}, call = randomblob(16);
             INSERT INTO main.call SELECT * FROM copy;"
        ))
        .unwrap();
}

fn note(connection: &Connection) -> i64 {
    let sql = "SELECT max(sequence) FROM note WHERE subject = 'rules'";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn update(connection: &Connection, set: &str) -> i64 {
    let sequence = row(connection);
    let sql = format!("UPDATE call SET {set} WHERE start_sequence = ?1");
    assert_eq!(connection.execute(&sql, [sequence]).unwrap(), 1);
    sequence
}

fn index_differs(connection: &Connection, set: &str) -> (Option<u64>, fn(&Fault) -> bool) {
    let sequence = update(connection, set);
    (Some(sequence as u64), |fault| {
        *fault == Fault::IndexDiffers { table: "call" }
    })
}

fn end_differs(connection: &Connection, set: &str) -> (Option<u64>, fn(&Fault) -> bool) {
    let end = end_of(connection, row(connection));
    update(connection, set);
    (Some(end), |fault| {
        *fault == Fault::IndexDiffers { table: "call" }
    })
}

fn end_of(connection: &Connection, start_sequence: i64) -> u64 {
    let sql = "SELECT end_sequence FROM call WHERE start_sequence = ?1";
    let end: i64 = connection
        .query_row(sql, [start_sequence], |row| row.get(0))
        .unwrap();
    end as u64
}

fn sums_differ(connection: &Connection, sql: &str) -> (Option<u64>, fn(&Fault) -> bool) {
    assert_ne!(connection.execute(sql, []).unwrap(), 0);
    (None, |fault| {
        *fault == Fault::TableDiffers { table: "usage_day" }
    })
}

fn key_differs(connection: &Connection, set: &str) -> (Option<u64>, fn(&Fault) -> bool) {
    let sql = format!("UPDATE idempotency_key SET {set} WHERE key = 'done'");
    assert_eq!(connection.execute(&sql, []).unwrap(), 1);
    (None, |fault| {
        let table = "idempotency_key";
        *fault == Fault::TableDiffers { table }
    })
}

fn approval_differs(
    connection: &Connection,
    state: &str,
    set: &str,
) -> (Option<u64>, fn(&Fault) -> bool) {
    let sql = format!("UPDATE approval SET {set} WHERE state = ?1");
    assert_eq!(connection.execute(&sql, [state]).unwrap(), 1);
    (None, |fault| {
        *fault == Fault::TableDiffers { table: "approval" }
    })
}

#[test]
fn whatever_is_done_to_a_ledger_shows() {
    let mut unexpected = Vec::new();
    for (what, (keys, file), tamper) in TAMPERINGS {
        let files = ledger();
        let connection = files.connection();
        let (sequence, is_expected) = tamper(&files, &connection);
        drop(connection);
        match files.verify(*keys, *file).first_wrong {
            None => unexpected.push(format!("{what}: nothing is found")),
            Some(wrong) if !is_expected(&wrong.what) => unexpected.push(format!("{what}: {wrong}")),
            Some(wrong) if sequence.is_some() && wrong.sequence != sequence => {
                unexpected.push(format!("{what}: {wrong}, and it was {sequence:?}"));
            }
            Some(_) => {}
        }
        if files.verify(true, true).is_ok() {
            unexpected.push(format!("{what}: more knowledge hides it"));
        }
    }
    assert_eq!(unexpected, [""; 0]);
}

/// The row is as it was again, and two calls have it.
#[test]
fn a_used_approval_that_is_used_again_shows() {
    let files = ledger();
    let connection = files.connection();
    let sql = "UPDATE approval SET state = 'approved', used_by = NULL, used_us = NULL
               WHERE state = 'used'";
    assert_eq!(connection.execute(sql, []).unwrap(), 1);
    drop(connection);
    let recorder = files.serve();
    let runtime = runtime();
    runtime.block_on(async {
        let claims = [Claim::Approval {
            approval: files.used,
            binding: BINDING,
        }];
        let start = Start {
            approval: Some(files.used),
            ..start(CALLS, "{}")
        };
        let call = recorder.begin_claiming(&start, &claims).await.unwrap();
        call.finish(&End::new(Outcome::Succeeded)).await.unwrap();
    });
    files.close(&runtime, &recorder);
    let wrong = files.verify(true, true).first_wrong.unwrap();
    assert_eq!(wrong.what, Fault::TableDiffers { table: "approval" });
}

/// More calls with keys than are read at once, and a second row of one of them, wherever a page ends.
#[test]
fn a_second_row_of_a_call_is_found_where_a_page_of_keys_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let store = SqliteLedger::open(&path, Durability::Relaxed).unwrap();
    let options = RecorderOptions {
        durability: Durability::Relaxed,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::spawn(store, options).unwrap();
    runtime().block_on(async {
        for number in 0..=MAX_PAGE_ROWS as u64 {
            let (key, start) = (format!("{number:04}"), start(number, "{}"));
            let claim = Claim::Key(KeyClaim {
                principal: "alice".to_owned(),
                key: key.clone(),
                capability: "tool/pay".to_owned(),
                digest: BINDING,
                call: start.call,
                at_us: start.at_us,
                until_us: u64::MAX,
            });
            let start = Start {
                idempotency_key: Some(&key),
                ..start
            };
            let call = recorder.begin_claiming(&start, &[claim]).await.unwrap();
            call.finish(&End::new(Outcome::Succeeded)).await.unwrap();
        }
        recorder.close().await.unwrap();
    });
    let connection = Connection::open(&path).unwrap();
    let first_wrong = || {
        let mut reader = LedgerReader::open(&path).unwrap();
        verify(&mut reader, Trust::default()).unwrap().first_wrong
    };
    assert_eq!(first_wrong(), None);
    for principal in ["aaron", "eve"] {
        for of in MAX_PAGE_ROWS - 2..=MAX_PAGE_ROWS {
            let sql = "INSERT INTO idempotency_key
                SELECT ?1, key, capability, digest, call, at_us, until_us, state, result
                FROM idempotency_key ORDER BY call LIMIT 1 OFFSET ?2";
            let changed = connection.execute(sql, params![principal, of as i64]);
            assert_eq!(changed.unwrap(), 1);
            let table = "idempotency_key";
            let what = first_wrong().map(|wrong| wrong.what);
            assert_eq!(
                what,
                Some(Fault::TableDiffers { table }),
                "{principal} {of}"
            );
            let sql = "DELETE FROM idempotency_key WHERE principal <> 'alice'";
            assert_eq!(connection.execute(sql, []).unwrap(), 1);
        }
    }
}

#[test]
fn a_rewritten_ledger_names_what_was_sealed_last() {
    let files = ledger();
    let connection = files.connection();
    let mut groups = groups(&connection);
    let changed = change_arguments(&mut groups);
    rechain(&connection, &mut groups, true);
    drop(connection);
    let wrong = files.verify(false, true).first_wrong.unwrap();
    let Fault::NotAsSealed { through } = wrong.what else {
        panic!("{wrong}");
    };
    let from = wrong.sequence.unwrap();
    assert!(
        from <= changed && changed <= through,
        "{from} {changed} {through}"
    );
    assert!(through - from <= 30, "{from} to {through}");
    // Nobody can tell by what the ledger says itself: that is what keys and files are for.
    assert!(files.verify(false, false).is_ok());
}

#[test]
fn who_has_seen_the_end_of_a_ledger_sees_that_it_is_rewritten_or_cut_off() {
    let files = ledger();
    let connection = files.connection();
    let look = |follower: &mut Follower| {
        let mut reader = LedgerReader::open(files.path()).unwrap();
        let keys = std::slice::from_ref(&files.public);
        follower.look(&mut reader, keys, &mut || true).unwrap()
    };
    let all = groups(&connection);
    let last = all.last().unwrap().0;
    let cut = |from: i64| {
        connection
            .execute("DELETE FROM entry_group WHERE first_sequence >= ?1", [from])
            .unwrap();
    };
    // What comes later is held against the end that was seen, and checkpoints among it against their keys.
    let half = all.len() / 2;
    cut(all[half].0);
    let mut follower = Follower::default();
    assert_eq!(look(&mut follower), None);
    let seen = all[half].0 as u64 - 1;
    assert_eq!(follower.last_sequence(), Some(seen));
    all[half..].iter().for_each(|group| put(&connection, group));
    assert_eq!(look(&mut follower), None);
    assert!(follower.last_sequence() >= Some(last as u64));

    let mut rewritten = all.clone();
    change_arguments(&mut rewritten);
    rechain(&connection, &mut rewritten, true);
    assert!(files.verify(false, false).is_ok());
    let wrong = look(&mut follower).unwrap().what;
    assert!(matches!(wrong, Fault::Rewritten { .. }), "{wrong}");

    all.iter().for_each(|group| put(&connection, group));
    assert_eq!(look(&mut follower), None);
    cut(last);
    let wrong = look(&mut follower).unwrap().what;
    assert!(matches!(wrong, Fault::Truncated { .. }), "{wrong}");

    // What was appended by somebody who does not know the end is no part of it.
    let mut follower = Follower::default();
    assert_eq!(look(&mut follower), None);
    let (first, count, hash, mut body) = all.last().unwrap().clone();
    *body.last_mut().unwrap() ^= 1;
    put(&connection, &(first, count, hash, body));
    let wrong = look(&mut follower).unwrap();
    assert_eq!(wrong.sequence, Some(first as u64));
    assert!(
        matches!(wrong.what, Fault::Hash | Fault::Unreadable(_)),
        "{wrong}"
    );
}

#[test]
fn what_comes_after_the_last_checkpoint_is_said_to_be_unsealed() {
    let files = ledger();
    let recorder = files.serve();
    let runtime = runtime();
    runtime.block_on(async {
        for number in 0..4 {
            let call = recorder.begin(&start(number, "{}")).await.unwrap();
            call.finish(&End::new(Outcome::Succeeded)).await.unwrap();
        }
    });
    // As it is in the middle of its work, or when it crashes.
    let report = files.verify(true, true);
    assert_eq!(report.first_wrong, None);
    // The checkpoint at its beginning proves itself.
    assert_eq!(report.entries - report.sealed_through, 9);
    assert_eq!((report.unsealed, report.is_sealed()), (8, false));
    files.close(&runtime, &recorder);
    let report = files.verify(true, true);
    assert_eq!(report.entries - report.sealed_through, 1);
    assert_eq!((report.unsealed, report.is_sealed()), (0, true));
}

/// Writes `groups` groups of one call each behind what is there, as somebody who has the file and not
/// the key can.
fn forge(files: &Files, groups: usize, step_us: u64) {
    let store = SqliteLedger::open(files.path(), Durability::Strict).unwrap();
    let recorder = Recorder::spawn(store, RecorderOptions::default()).unwrap();
    let runtime = runtime();
    runtime.block_on(async {
        for number in 0..groups as u64 {
            let at_us = NOW_US + number * step_us;
            let forged = Start::new(CallId::new(at_us), at_us, "eve", Kind::Tool, "tool/pay");
            // Of the same kind, only so many are written one by one.
            let reason = format!("budget {number}");
            let refused = End::new(Outcome::Denied { reason: &reason });
            recorder.refuse(&forged, &refused).await.unwrap();
        }
        recorder.close().await.unwrap();
    });
}

fn begun(files: &Files) -> Recorder {
    let recorder = files.serve();
    // The first checkpoint seals the first entry.
    runtime().block_on(async {
        recorder
            .note(&Note::new(NOW_US, NoteKind::SERVER_STARTED))
            .await
            .unwrap();
        recorder
            .note(&Note::new(NOW_US, NoteKind::POLICY_CHANGED))
            .await
            .unwrap();
    });
    recorder
}

/// Files with a key and nothing else.
fn empty() -> Files {
    let directory = tempfile::tempdir().unwrap();
    let key = SigningKey::generate(&directory.path().join("key")).unwrap();
    Files {
        public: key.public().clone(),
        directory,
        used: ApprovalId::random(),
    }
}

#[test]
fn nothing_is_never_sealed() {
    let files = empty();
    let recorder = files.serve();
    files.close(&runtime(), &recorder);
    assert!(!files.checkpoints().exists());
    let recorder = begun(&files);
    files.close(&runtime(), &recorder);
    let text = fs::read_to_string(files.checkpoints()).unwrap();
    assert!(!text.contains("\"sequence\":0,"), "{text}");
    let report = files.verify(true, true);
    assert!(report.is_sealed(), "{report:?}");
}

/// A checkpoint promises the next one with room for what may be on its way. That room is no leave
/// for a forger, who cannot make the next one.
#[test]
fn an_end_that_is_sealed_later_than_a_server_would_is_refused() {
    for (forged, step_us, every, expected) in [
        // Fewer than are sealed together: nobody can tell.
        (20, 0, (1_000, 3_600), None),
        (40, 0, (20, 3_600), Some(Fault::Unsealed)),
        // A checkpoint was due by the time that passed.
        (20, 1_000_000, (1_000, 3_600), None),
        (20, 3_600 * 1_000_000, (1_000, 3_600), Some(Fault::Unsealed)),
    ] {
        let files = empty();
        let recorder = begun(&files);
        files.close(&runtime(), &recorder);
        // As a crash leaves it: without the last checkpoint, which lets nothing come after it.
        let connection = files.connection();
        let last = groups(&connection).pop().unwrap();
        connection
            .execute(
                "DELETE FROM entry_group WHERE first_sequence = ?1",
                [last.0],
            )
            .unwrap();
        cut_index(&connection, last.0);
        drop(connection);
        let lines = fs::read_to_string(files.checkpoints()).unwrap();
        let (kept, _) = lines.trim_end().rsplit_once('\n').unwrap();
        fs::write(files.checkpoints(), format!("{kept}\n")).unwrap();
        assert_eq!(files.verify(true, true).first_wrong, None);
        forge(&files, forged, step_us);
        let mut reader = LedgerReader::open(files.path()).unwrap();
        let trust = Trust {
            keys: std::slice::from_ref(&files.public),
            every: Some(SealedEvery {
                entries: every.0,
                interval: Duration::from_secs(every.1),
            }),
            ..Trust::default()
        };
        let report = verify(&mut reader, trust).unwrap();
        let what = report.first_wrong.clone().map(|wrong| wrong.what);
        assert_eq!(what, expected, "{forged} {step_us} {every:?}: {report:?}");
        // It is never said to be proved.
        assert!(!report.is_sealed() && 2 * forged as u64 <= report.unsealed);
    }
}

#[test]
fn a_file_of_checkpoints_that_lost_lines_is_noticed() {
    // Not a copy: the ledger names the file by its path.
    let files = made();
    let whole = fs::read_to_string(files.checkpoints()).unwrap();
    assert_eq!(files.verify(true, true).file_lacks, None);
    let last = whole.trim_end().rfind('\n').unwrap();
    let last_but_one = whole[..last].rfind('\n').unwrap();
    for left in [&whole[..=last_but_one], &whole[..0]] {
        fs::write(files.checkpoints(), left).unwrap();
        let report = files.verify(true, true);
        assert_eq!(report.first_wrong, None);
        assert!(
            report.file_lacks.is_some() && !report.is_sealed(),
            "{report:?}"
        );
        let mut reader = LedgerReader::open(files.path()).unwrap();
        let error = check_continuity(Some(&mut reader), &files.checkpoints()).unwrap_err();
        assert!(matches!(error, ContinuityError::FileCut { .. }), "{error}");
    }
    // The last line may be missing: the crash came before it was written.
    fs::write(files.checkpoints(), &whole[..=last]).unwrap();
    assert_eq!(files.verify(true, true).file_lacks, None);
    fs::remove_file(files.checkpoints()).unwrap();
    assert!(files.verify(true, false).file_lacks.is_some());
    let mut reader = LedgerReader::open(files.path()).unwrap();
    let error = check_continuity(Some(&mut reader), &files.checkpoints()).unwrap_err();
    assert!(
        matches!(error, ContinuityError::FileCut { found: 0, .. }),
        "{error}"
    );
    // Another file than before begins anew.
    let elsewhere = files.directory.path().join("elsewhere");
    let checked = check_continuity(Some(&mut reader), &elsewhere).unwrap();
    assert_eq!(checked.moved_from, Some(files.checkpoints()));
}

#[test]
fn a_ledger_that_is_not_the_one_of_its_checkpoints_is_not_gone_on_with() {
    let files = ledger();
    let check = |files: &Files| {
        let mut reader = LedgerReader::open(files.path()).unwrap();
        check_continuity(Some(&mut reader), &files.checkpoints())
    };
    assert!(check(&files).is_ok());
    let error = check_continuity(None, &files.checkpoints()).unwrap_err();
    assert!(
        matches!(error, ContinuityError::RolledBack { last: 0, .. }),
        "{error}"
    );

    // Nothing but the last line says more than the ledger has.
    let connection = files.connection();
    let sealed = check(&files).unwrap().last.unwrap().sequence;
    let before: Vec<_> = groups(&connection)
        .into_iter()
        .filter(|it| (it.0 as u64) < sealed)
        .collect();
    let first_gone = before.last().unwrap().0;
    connection
        .execute(
            "DELETE FROM entry_group WHERE first_sequence >= ?1",
            [first_gone],
        )
        .unwrap();
    cut_index(&connection, first_gone);
    drop(connection);
    let error = check(&files).unwrap_err();
    assert!(
        matches!(error, ContinuityError::RolledBack { sealed: found, .. } if found == sealed),
        "{error}"
    );

    // Grown beyond it again, it is another one.
    forge(&files, 30, 0);
    let error = check(&files).unwrap_err();
    assert!(matches!(error, ContinuityError::Differs { .. }), "{error}");

    // A new one in its place.
    let other = empty();
    fs::copy(files.checkpoints(), other.checkpoints()).unwrap();
    drop(SqliteLedger::open(other.path(), Durability::Strict).unwrap());
    let error = check(&other).unwrap_err();
    assert!(
        matches!(error, ContinuityError::RolledBack { last: 0, .. }),
        "{error}"
    );
}

#[test]
fn every_line_of_the_file_is_compared_before_a_ledger_is_gone_on_with() {
    let files = ledger();
    let whole = fs::read_to_string(files.checkpoints()).unwrap();
    let lines: Vec<_> = whole.lines().map(str::to_owned).collect();
    assert!(3 < lines.len());
    let check = |lines: &[String]| {
        fs::write(files.checkpoints(), lines.join("\n")).unwrap();
        let mut reader = LedgerReader::open(files.path()).unwrap();
        let checked = check_continuity(Some(&mut reader), &files.checkpoints());
        let witnessed = check_witness_file(Some(&mut reader), &files.checkpoints());
        (checked, witnessed.map_err(|error| error.to_string()))
    };
    assert!(check(&lines).0.is_ok());
    let changed = |change: fn(&mut Checkpoint)| {
        let mut lines = lines.clone();
        let mut line = Checkpoint::from_json(&lines[1]).unwrap();
        change(&mut line);
        lines[1] = line.to_json();
        (lines, line.sequence)
    };

    // Of a ledger that forked, was put back and has grown beyond the fork again.
    let (lines_of_fork, forked) = changed(|line| line.hash[0] ^= 1);
    let (error, witnessed) = check(&lines_of_fork);
    let error = error.unwrap_err();
    assert!(
        matches!(error, ContinuityError::Differs { sealed, .. } if sealed == forked),
        "{error}"
    );
    assert_eq!(witnessed.unwrap_err(), error.to_string());

    let (lines_beyond, beyond) = changed(|line| line.sequence = 1 << 40);
    let (error, witnessed) = check(&lines_beyond);
    let error = error.unwrap_err();
    assert!(
        matches!(error, ContinuityError::RolledBack { sealed, .. } if sealed == beyond),
        "{error}"
    );
    assert_eq!(witnessed.unwrap_err(), error.to_string());

    let mut turned = lines.clone();
    turned.swap(0, 1);
    let (error, witnessed) = check(&turned);
    let error = error.unwrap_err();
    assert!(
        matches!(error, ContinuityError::Backwards { .. }),
        "{error}"
    );
    assert_eq!(witnessed.unwrap_err(), error.to_string());
}

#[test]
fn a_decision_beside_the_server_is_not_held_against_the_ledger() {
    let files = ledger();
    let pending = |files: &Files| {
        let mut reader = LedgerReader::open(files.path()).unwrap();
        let approvals = reader.approvals(9, Default::default()).unwrap();
        approvals
            .into_iter()
            .find(|it| it.state.as_str() == "pending")
            .unwrap()
            .id
    };
    let mut desk = OfflineApprovals::open(files.path()).unwrap();
    desk.decide(
        pending(&files),
        &Verdict::new(Decision::Deny, "carol", NOW_US),
    )
    .unwrap();
    drop(desk);
    assert_eq!(files.verify(true, true).first_wrong, None);
    let mut reader = LedgerReader::open(files.path()).unwrap();
    assert_eq!(
        reader.approval(files.used).unwrap().unwrap().state.as_str(),
        "used"
    );
    assert_eq!(reader.approval(ApprovalId::random()).unwrap(), None);
}

#[test]
fn what_was_over_long_ago_may_be_gone() {
    let files = ledger();
    let recorder = files.serve();
    let runtime = runtime();
    let old = NewApproval {
        requested_us: NOW_US - 31 * DAY_US,
        expires_us: NOW_US - 30 * DAY_US,
        binding: [20; 32],
        ..new_approval()
    };
    runtime.block_on(recorder.request_approval(&old)).unwrap();
    files.close(&runtime, &recorder);
    files
        .connection()
        .execute("DELETE FROM approval WHERE binding = ?1", [[20_u8; 32]])
        .unwrap();
    assert_eq!(files.verify(true, true).first_wrong, None);
}

#[test]
fn approvals_at_every_bound_are_not_held_against_the_ledger() {
    let files = ledger();
    let recorder = files.serve();
    let runtime = runtime();
    let asked = |binding| NewApproval {
        id: ApprovalId::random(),
        principal: "é".repeat(3_000),
        capability: "\u{1b}".repeat(30_000),
        arguments: "\u{1b}".repeat(16 * 1024),
        needs: Approver::User,
        expires_us: u64::MAX,
        binding: [binding; 32],
        ..new_approval()
    };
    let by = format!("user:{}", "é".repeat(3_000));
    runtime.block_on(async {
        let made = recorder.request_approval(&asked(20)).await.unwrap();
        let decision = Decision::Approve;
        recorder
            .decide_approval(made.id, Verdict::new(decision, &by, NOW_US))
            .await
            .unwrap();
        let made = recorder.request_approval(&asked(21)).await.unwrap();
        recorder
            .decide_approval(made.id, Verdict::new(Decision::Deny, "carol", NOW_US + 1))
            .await
            .unwrap();
    });
    assert_eq!(files.verify(true, true).first_wrong, None);
    files.close(&runtime, &recorder);
    assert_eq!(files.verify(true, true).first_wrong, None);
}

#[test]
fn an_open_call_that_the_index_ends_shows() {
    let files = ledger();
    let recorder = files.serve();
    let runtime = runtime();
    let begun = runtime.block_on(recorder.begin(&start(0, "{}"))).unwrap();
    // Once it is indexed.
    let connection = files.connection();
    connection.busy_timeout(LONG).unwrap();
    let sql = "UPDATE call SET outcome = 'succeeded', end_sequence = start_sequence + 1,
        cost_micros = 1, duration_us = 1 WHERE outcome IS NULL";
    let since = Instant::now();
    while connection.execute(sql, []).unwrap() == 0 {
        assert!(since.elapsed() < LONG);
        thread::sleep(Duration::from_millis(5));
    }
    runtime
        .block_on(recorder.note(&Note::new(NOW_US, NoteKind::POLICY_CHANGED)))
        .unwrap();
    let report = files.verify(true, true);
    let what = report.first_wrong.map(|wrong| wrong.what);
    assert_eq!(what, Some(Fault::IndexInvents { table: "call" }));
    drop(begun);
}

#[test]
fn groups_that_go_away_meanwhile_are_missed() {
    let files = ledger();
    let recorder = files.serve();
    let runtime = runtime();
    let arguments = "x".repeat(16_000);
    runtime.block_on(async {
        for number in 0..400 {
            let call = recorder.begin(&start(number, &arguments)).await.unwrap();
            call.finish(&End::new(Outcome::Succeeded)).await.unwrap();
        }
    });
    files.close(&runtime, &recorder);
    let connection = files.connection();
    let last = groups(&connection).pop().unwrap();
    let mut reader = LedgerReader::open(files.path()).unwrap();
    let mut pages = 0;
    let report = verify_telling(&mut reader, Trust::default(), &mut |_, _| {
        pages += 1;
        let sql = "DELETE FROM entry_group WHERE first_sequence = ?1";
        connection.execute(sql, [last.0]).unwrap();
    });
    assert!(1 < pages);
    let wrong = report.unwrap().first_wrong.unwrap();
    let through = (last.0 + last.1 - 1) as u64;
    assert_eq!(wrong.what, Fault::Truncated { through });
    assert_eq!(wrong.sequence, Some(last.0 as u64));
}

#[test]
fn a_key_that_others_have_signed_with_is_not_trusted() {
    let files = ledger();
    let other = SigningKey::generate(&files.directory.path().join("other")).unwrap();
    let mut reader = LedgerReader::open(files.path()).unwrap();
    let trust = Trust {
        keys: std::slice::from_ref(other.public()),
        ..Trust::default()
    };
    let wrong = verify(&mut reader, trust).unwrap().first_wrong.unwrap();
    assert_eq!(wrong.what, Fault::Signature(SignatureError::Untrusted));
    let missing = files.directory.path().join("no such file");
    let trust = Trust {
        checkpoints: Some(&missing),
        ..Trust::default()
    };
    let error = verify(&mut reader, trust).unwrap_err();
    assert!(matches!(error, VerifyError::Checkpoints { path, .. } if path == missing));
}

/// Makes calls of which some end long after they began, and uses an approval now and then.
async fn write_for_a_while(recorder: Recorder) {
    let mut open = Vec::new();
    for number in 0..2_000 {
        open.push(recorder.begin(&start(number % CALLS, "{}")).await.unwrap());
        if open.len() == 50 {
            for call in open.drain(..) {
                drop(call.finish(&End::new(Outcome::Succeeded)));
            }
        }
        if number % 100 == 0 {
            let approval = NewApproval {
                binding: [100 + (number / 100) as u8; 32],
                ..new_approval()
            };
            let approval = approve(&recorder, approval).await;
            let (approval, binding) = (approval.id, approval.binding);
            let start = Start {
                approval: Some(approval),
                ..start(1, "{}")
            };
            let claims = [Claim::Approval { approval, binding }];
            let call = recorder.begin_claiming(&start, &claims).await.unwrap();
            drop(call.finish(&End::new(Outcome::Succeeded)));
        }
    }
}

#[test]
fn a_server_that_writes_meanwhile_damages_nothing() {
    let files = ledger();
    let recorder = files.serve();
    let writer = {
        let recorder = recorder.clone();
        thread::spawn(move || runtime().block_on(write_for_a_while(recorder)))
    };
    let (mut last, mut grown) = (0, 0);
    while !writer.is_finished() {
        let report = files.verify(true, true);
        assert_eq!(report.first_wrong, None);
        grown += u32::from(last < report.entries);
        last = report.entries;
    }
    writer.join().unwrap();
    assert!(2 <= grown, "verified only {grown} times while it grew");
    files.close(&runtime(), &recorder);
    assert_eq!(files.verify(true, true).first_wrong, None);
}

#[test]
fn a_ledger_of_the_first_version_is_verified_before_and_after_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1.sqlite");
    fs::copy(fixture, &path).unwrap();
    let verified = || {
        let mut reader = LedgerReader::open(&path).unwrap();
        let calls = reader.recent(99, Default::default()).unwrap();
        let report = verify(&mut reader, Trust::default()).unwrap();
        assert_eq!(report.first_wrong, None);
        (calls, report)
    };
    let (calls, report) = verified();
    assert!(!calls.is_empty());
    drop(SqliteLedger::open(&path, Durability::Strict).unwrap());
    assert_eq!(verified(), (calls, report));
}
