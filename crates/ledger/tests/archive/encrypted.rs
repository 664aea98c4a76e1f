//! Segments that are encrypted: nothing of them is in clear anywhere, and who has no identity is told so.

use crate::{
    Fixture, SEGMENT_ENTRIES, answers, compare_each_step, kill_at_each_step,
    support::aged::{DAY_US, DAYS, assert_same},
    until_said,
};
use age_format::{Identity, decrypt};
use ledger::*;
use rusqlite::Connection;
use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

/// Texts of the entries and their index, and what marks a file of SQLite.
const CLEAR: [&str; 6] = [
    "client-",
    "tool/number-",
    "DE02120300000000202051",
    "paid",
    "policy_changed",
    "SQLite format",
];

impl Fixture {
    /// A reader without the identity.
    fn outsider(&self) -> LedgerReader {
        LedgerReader::open(self.path()).unwrap()
    }

    /// Verifies as somebody does who has no identity.
    fn verify_from_outside(&self) -> Report {
        let mut reader = self.outsider();
        reader.leave_unread();
        self.verify_by(&mut reader)
    }

    fn verify_by(&self, reader: &mut LedgerReader) -> Report {
        let keys = [self.key.public().clone()];
        let checkpoints = self.checkpoints();
        let trust = Trust {
            keys: &keys,
            checkpoints: Some(&checkpoints),
            ..Trust::default()
        };
        verify(reader, trust).unwrap()
    }

    fn segment(&self, number: u64) -> PathBuf {
        self.archive().join(format!("ledger-{number:06}.segment"))
    }

    /// Options of an archive whose segments can be read.
    fn reading(&self) -> ArchiveOptions {
        ArchiveOptions {
            identities: self.identity.clone().into_iter().collect(),
            ..self.options(Some(self.key.clone()))
        }
    }

    fn step(&self, archiver: &mut Archiver) -> Archived {
        archiver.step(self.days_ago(2), self.now_us).unwrap()
    }
}

fn assert_nothing_in_clear(directory: &Path, when: &str) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let content = fs::read(&path).unwrap();
        for text in CLEAR {
            let is_there = content.windows(text.len()).any(|it| it == text.as_bytes());
            assert!(!is_there, "{when}: {text} in {}", path.display());
        }
    }
}

#[test]
fn every_answer_is_the_same_at_each_step() {
    let fixture = Fixture::encrypted();
    compare_each_step(&fixture);
    assert_nothing_in_clear(&fixture.archive(), "at the end");
}

#[test]
fn a_kill_at_any_step_loses_and_doubles_nothing() {
    kill_at_each_step(&Fixture::encrypted());
}

#[test]
fn nothing_is_ever_written_in_clear() {
    let fixture = Fixture::encrypted();
    let mut archiver = fixture.archiver();
    let (mut written, mut partial) = (0, 0);
    loop {
        let archived = archiver.step_telling(fixture.days_ago(2), fixture.now_us, &mut |step| {
            let files = fs::read_dir(fixture.archive()).unwrap();
            let names = files.map(|it| it.unwrap().file_name().into_string().unwrap());
            partial += names.filter(|it| it.ends_with(".partial")).count();
            if matches!(step, ArchiveStep::Copied | ArchiveStep::Named) {
                assert_nothing_in_clear(&fixture.archive(), &format!("{step:?}"));
            }
        });
        match archived.unwrap() {
            Archived::Nothing => break,
            Archived::Written { .. } => written += 1,
            Archived::TakenOut { .. } => {}
        }
    }
    assert!(3 <= written && written <= partial, "{written} {partial}");
    // The line in front is all that can be read.
    let content = fs::read(fixture.segment(1)).unwrap();
    let end = content.iter().position(|it| *it == b'\n').unwrap();
    let line: serde_json::Value = serde_json::from_slice(&content[..end]).unwrap();
    let names: Vec<_> = line.as_object().unwrap().keys().cloned().collect();
    let expected = [
        "at_us",
        "bytes",
        "encrypted",
        "first_sequence",
        "key",
        "last_hash",
        "last_sequence",
        "previous_hash",
        "segment",
        "sha256",
        "signature",
    ];
    let mut names = names;
    names.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn behind_the_seal_is_a_file_of_age_with_a_segment_that_can_take_its_place() {
    let fixture = Fixture::encrypted();
    let expected = answers(&fixture);
    fixture.archive_all(fixture.days_ago(2));
    let path = fixture.segment(1);
    let content = fs::read(&path).unwrap();
    let end = content.iter().position(|it| *it == b'\n').unwrap();
    let identity = fixture.identity.clone().unwrap();
    let mut segment = Vec::new();
    decrypt(&[identity], &content[end + 1..])
        .unwrap()
        .read_to_end(&mut segment)
        .unwrap();
    fs::write(&path, &segment).unwrap();
    assert_same(&answers(&fixture), &expected, "decrypted");
    fixture.assert_sound();
    fixture.write(|_| until_said(&fixture));
    fixture.assert_sound();
}

#[test]
fn who_has_no_identity_is_told_which_segment_is_not_read() {
    let fixture = Fixture::encrypted();
    let before = answers(&fixture);
    fixture.archive_all(fixture.days_ago(2));
    let other = vec![Identity::generate().unwrap()];
    for mut reader in [
        fixture.outsider(),
        fixture.outsider().with_identities(other),
    ] {
        let refused = |error: QueryError| {
            let QueryError::Store(source) = error else {
                panic!("{error}")
            };
            let said = source.to_string();
            assert!(
                said.contains(".segment is encrypted") && said.contains("--identity"),
                "{said}"
            );
        };
        refused(reader.recent(usize::MAX, Filter::default()).unwrap_err());
        refused(reader.notes(usize::MAX, NoteFilter::default()).unwrap_err());
        refused(reader.groups(0).unwrap_err());
        refused(reader.indexed_calls(0).unwrap_err());
        refused(reader.call(before.calls.last().unwrap().call).unwrap_err());
        // What concerns no segment is answered as before.
        let filter = Filter {
            since_us: Some(fixture.days_ago(1)),
            ..Filter::default()
        };
        assert!(!reader.recent(usize::MAX, filter).unwrap().is_empty());
        assert_eq!(reader.count().unwrap(), before.counts);
        assert_eq!(reader.open_calls().unwrap(), before.open);
        let usage = reader.usage_since(0, std::time::Duration::MAX).unwrap();
        assert_eq!(usage, before.usage[0]);
    }
}

#[test]
fn a_ledger_is_verified_without_an_identity_as_far_as_it_is_not_encrypted() {
    let fixture = Fixture::encrypted();
    let mut archiver = fixture.archiver();
    // The first segment is taken out in several parts.
    assert!(matches!(
        fixture.step(&mut archiver),
        Archived::Written { .. }
    ));
    let mut parts = 0;
    loop {
        let archived = fixture.step(&mut archiver);
        let report = fixture.verify_from_outside();
        assert_eq!(report.first_wrong, None, "{archived:?}");
        assert_eq!(report.deleted, 0);
        match archived {
            Archived::TakenOut { through, .. } => assert_eq!(report.unread, through),
            Archived::Written { .. } => {}
            Archived::Nothing => break,
        }
        parts += 1;
    }
    assert!(6 < parts, "{parts}");
    drop(archiver);
    let outside = fixture.verify_from_outside();
    let inside = fixture.verify();
    assert!(2 * SEGMENT_ENTRIES < outside.unread, "{}", outside.unread);
    assert_eq!(inside.unread, 0);
    assert_eq!(
        (outside.entries, outside.head, outside.sealed_through),
        (inside.entries, inside.head, inside.sealed_through)
    );
    // What was archived is on record with the digest of its file.
    fixture.write(|_| until_said(&fixture));
    assert_eq!(fixture.verify_from_outside().first_wrong, None);
    fixture.assert_sound();
}

#[test]
fn a_file_that_is_not_the_one_that_was_sealed_is_found_with_and_without_an_identity() {
    let fixture = Fixture::encrypted();
    fixture.archive_all(fixture.days_ago(2));
    let path = fixture.segment(2);
    let whole = fs::read(&path).unwrap();
    let segment = fixture.reader().segments().unwrap()[1].clone();
    let altered = Wrong {
        sequence: Some(segment.last_sequence),
        what: Fault::SegmentAltered,
    };
    let end = whole.iter().position(|it| *it == b'\n').unwrap();
    let payload = end + 300;
    for (what, change) in [
        (
            "header",
            &(|content: &mut Vec<u8>| content[end + 60] ^= 1) as &dyn Fn(&mut Vec<u8>),
        ),
        ("content", &|content| content[payload] ^= 1),
        ("cut off", &|content| content.truncate(whole.len() - 1)),
        ("longer", &|content| content.push(0)),
    ] {
        let mut content = whole.clone();
        change(&mut content);
        fs::write(&path, content).unwrap();
        assert_eq!(
            fixture.verify().first_wrong.as_ref(),
            Some(&altered),
            "{what}"
        );
        let outside = fixture.verify_from_outside();
        assert_eq!(outside.first_wrong.as_ref(), Some(&altered), "{what}");
    }
    // A seal that fits another file is not signed.
    let line = String::from_utf8(whole[..end].to_vec()).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&line).unwrap();
    let bytes = value["bytes"].as_u64().unwrap();
    value["bytes"] = (bytes - 1).into();
    let forged = [value.to_string().as_bytes(), &whole[end..]].concat();
    fs::write(&path, forged).unwrap();
    let wrong = fixture.verify_from_outside().first_wrong.unwrap();
    assert_eq!(wrong.what, Fault::Signature(SignatureError::Wrong));
    // Nor is one whose signature was left out: no note in the ledger has told of it yet.
    let mut value: serde_json::Value = serde_json::from_str(&line).unwrap();
    for name in ["key", "signature"] {
        value.as_object_mut().unwrap().remove(name);
    }
    let unsigned = [value.to_string().as_bytes(), &whole[end..]].concat();
    fs::write(&path, unsigned).unwrap();
    let wrong = fixture.verify_from_outside().first_wrong.unwrap();
    assert_eq!(wrong.what, Fault::Signature(SignatureError::Missing));
    assert_eq!(wrong.sequence, Some(segment.last_sequence));
    assert_eq!(fixture.verify().first_wrong, None);
    // A segment of another place is refused, and one that is gone is named.
    fs::copy(fixture.segment(1), &path).unwrap();
    let mut reader = fixture.outsider();
    reader.leave_unread();
    let wrong = verify(&mut reader, Trust::default()).unwrap().first_wrong;
    let wrong = wrong.unwrap().to_string();
    assert!(wrong.contains("ledger-000002.segment"), "{wrong}");
    fs::remove_file(&path).unwrap();
    let gone = verify(&mut reader, Trust::default()).unwrap_err();
    let VerifyError::Ledger(QueryError::Store(source)) = gone else {
        panic!("{gone}")
    };
    assert!(source.to_string().contains("is not there"), "{source}");
    fs::write(&path, &whole).unwrap();
    fixture.assert_sound();
}

#[test]
fn a_segment_that_is_encrypted_anew_shows_by_the_note_about_it() {
    let fixture = Fixture::encrypted();
    let mut archiver = Archiver::open(&fixture.path(), fixture.options(None)).unwrap();
    assert!(matches!(
        fixture.step(&mut archiver),
        Archived::Written { .. }
    ));
    drop(archiver);
    // Somebody else's file with the same entries, as far as the chain and the seal tell: not signed.
    let other = Fixture {
        identity: fixture.identity.clone(),
        ..Fixture::new()
    };
    let mut again = Archiver::open(&other.path(), other.options(None)).unwrap();
    assert!(matches!(other.step(&mut again), Archived::Written { .. }));
    fixture.archive_all(fixture.days_ago(2));
    fixture.write(|_| until_said(&fixture));
    assert_eq!(fixture.verify_from_outside().first_wrong, None);
    fs::copy(other.segment(1), fixture.segment(1)).unwrap();
    for report in [fixture.verify(), fixture.verify_from_outside()] {
        let wrong = report.first_wrong.unwrap();
        assert_eq!(wrong.what, Fault::NotAsArchived);
        assert!(2 * SEGMENT_ENTRIES < wrong.sequence.unwrap());
    }
}

#[test]
fn a_segment_that_nobody_here_can_read_is_gone_on_with_only_if_it_is_what_was_sealed() {
    let fixture = Fixture::encrypted();
    let expected = answers(&fixture);
    let mut archiver = fixture.archiver();
    assert!(matches!(
        fixture.step(&mut archiver),
        Archived::Written { .. }
    ));
    assert!(matches!(
        fixture.step(&mut archiver),
        Archived::TakenOut { .. }
    ));
    drop(archiver);
    let path = fixture.segment(1);
    let whole = fs::read(&path).unwrap();
    let mut changed = whole.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&path, &changed).unwrap();
    let refused = fixture.archiver().step(fixture.days_ago(2), fixture.now_us);
    assert!(
        matches!(refused, Err(ArchiveError::Altered { .. })),
        "{refused:?}"
    );
    fs::write(&path, &whole).unwrap();
    assert!(matches!(
        fixture.step(&mut fixture.archiver()),
        Archived::TakenOut { .. }
    ));
    assert_same(&answers(&fixture), &expected, "gone on with");
    fixture.assert_sound();
    // With the identity the segment itself says it.
    assert!(matches!(
        fixture.step(&mut fixture.archiver()),
        Archived::Written { .. }
    ));
    let mut reading = Archiver::open(&fixture.path(), fixture.reading()).unwrap();
    assert!(matches!(
        fixture.step(&mut reading),
        Archived::TakenOut { .. }
    ));
    assert_same(&answers(&fixture), &expected, "with the identity");
    fixture.assert_sound();
}

#[test]
fn a_file_under_the_name_of_the_next_segment_is_taken_for_it_only_if_it_is_signed() {
    let fixture = Fixture::encrypted();
    // As a process leaves it that is killed before the ledger lists it.
    let other = Fixture {
        identity: fixture.identity.clone(),
        ..Fixture::new()
    };
    let mut unsigned = Archiver::open(&other.path(), other.options(None)).unwrap();
    other.step(&mut unsigned);
    fs::create_dir(fixture.archive()).unwrap();
    fs::copy(other.segment(1), fixture.segment(1)).unwrap();
    let refused = fixture.archiver().step(fixture.days_ago(2), fixture.now_us);
    assert!(
        matches!(refused, Err(ArchiveError::Foreign(_))),
        "{refused:?}"
    );
    // Where nothing is signed nobody can tell what is in it: it is written anew, and kept aside.
    let expected = answers(&fixture);
    let found = fs::read(fixture.segment(1)).unwrap();
    let mut unsigned = Archiver::open(&fixture.path(), fixture.options(None)).unwrap();
    assert!(matches!(
        fixture.step(&mut unsigned),
        Archived::Written { .. }
    ));
    assert_ne!(fs::read(fixture.segment(1)).unwrap(), found);
    let aside = fs::read_dir(fixture.archive()).unwrap();
    let mut aside = aside.map(|it| it.unwrap().path());
    let aside = aside.find(|it| it.extension().is_some_and(|it| it == "unproved"));
    assert_eq!(fs::read(aside.unwrap()).unwrap(), found);
    while fixture.step(&mut unsigned) != Archived::Nothing {}
    assert_same(&answers(&fixture), &expected, "written anew");
}

#[test]
fn what_is_encrypted_is_deleted_by_who_can_read_it_and_a_hold_keeps_it() {
    let fixture = Fixture::encrypted();
    fixture.archive_all(fixture.days_ago(2));
    let segments = fixture.reader().segments().unwrap();
    let mut holds = Holds::open(&fixture.path(), None).unwrap();
    let of = HoldFilter {
        principal: Some("client-2".to_owned()),
        until_us: Some(fixture.days_ago(DAYS - 2)),
        ..HoldFilter::default()
    };
    holds.set(&of, "ana", "case 7", 5).unwrap();
    let delete =
        |archiver: &mut Archiver| archiver.delete(fixture.days_ago(1), fixture.now_us, "system");
    let refused = delete(&mut fixture.archiver());
    assert!(
        matches!(refused, Err(ArchiveError::Holds(_))),
        "{refused:?}"
    );
    assert_eq!(fixture.reader().segments().unwrap(), segments);
    let mut archiver = Archiver::open(&fixture.path(), fixture.reading()).unwrap();
    let deleted = delete(&mut archiver).unwrap();
    assert_eq!(deleted.len(), segments.len() - 1, "{deleted:?}");
    assert_eq!(fixture.reader().segments().unwrap(), segments[..1]);
    fixture.write(|_| until_said(&fixture));
    fixture.assert_sound();
    let report = fixture.verify_from_outside();
    assert_eq!(report.first_wrong, None);
    assert_eq!(report.unread, segments[0].last_sequence);
    assert_eq!(
        report.deleted,
        segments.last().unwrap().last_sequence - segments[0].last_sequence
    );
}

#[test]
fn a_call_that_has_another_end_by_now_is_not_guessed_at() {
    let fixture = Fixture::encrypted();
    // A server that starts ends as unknown what was open. What the last one has written stays in the ledger.
    for _ in 0..2 {
        let note = Note::new(fixture.now_us, NoteKind::POLICY_CHANGED);
        fixture.write(|recorder| async move {
            recorder.note(&note).await.unwrap();
        });
    }
    let options = || ArchiveOptions {
        segment_entries: 100_000,
        ..fixture.options(Some(fixture.key.clone()))
    };
    let (now_us, before_us) = (fixture.now_us + 4 * DAY_US, fixture.now_us + DAY_US);
    let step = |options| {
        let mut archiver = Archiver::open(&fixture.path(), options).unwrap();
        archiver.step(before_us, now_us)
    };
    assert!(matches!(step(options()), Ok(Archived::Written { .. })));
    // A server that was taken for dead says otherwise.
    let ends_later = "UPDATE call SET outcome = 'succeeded', end_sequence = 1000000 WHERE call =
        (SELECT call FROM call WHERE outcome = 'unknown' LIMIT 1)";
    let connection = Connection::open(fixture.path()).unwrap();
    assert_eq!(connection.execute(ends_later, []).unwrap(), 1);
    let refused = step(options());
    assert!(
        matches!(refused, Err(ArchiveError::Encrypted(_))),
        "{refused:?}"
    );
    let identities = fixture.identity.clone().into_iter().collect();
    let reading = ArchiveOptions {
        identities,
        ..options()
    };
    assert!(matches!(step(reading), Ok(Archived::TakenOut { .. })));
}

#[test]
fn a_deletion_that_only_an_unread_segment_tells_of_is_not_called_wrong() {
    let fixture = Fixture::encrypted();
    fixture.archive_all(fixture.days_ago(DAYS - 4));
    let mut deleting = Archiver::open(&fixture.path(), fixture.reading()).unwrap();
    let before_us = fixture.days_ago(DAYS - 4);
    let deleted = deleting.delete(before_us, fixture.now_us, "ana").unwrap();
    drop(deleting);
    assert!(!deleted.is_empty());
    fixture.write(|_| until_said(&fixture));
    let told = fixture.verify_from_outside();
    assert_eq!((told.first_wrong, told.unread), (None, 0));
    assert_ne!(told.deleted, 0);
    // The note about it is archived in turn.
    archive_the_rest(&fixture, fixture.options(Some(fixture.key.clone())), 1);
    let outside = fixture.verify_from_outside();
    assert_eq!((outside.first_wrong, outside.deleted), (None, 0));
    assert!(told.deleted < outside.unread, "{}", outside.unread);
    let inside = fixture.verify();
    assert_eq!((inside.first_wrong, inside.unread), (None, 0));
    assert_eq!(inside.deleted, told.deleted);
}

/// Archives all but the last entries, as if so many days had gone by, and some more.
fn archive_the_rest(fixture: &Fixture, options: ArchiveOptions, days: u64) {
    // What the last server has written stays in the ledger.
    for _ in 0..2 {
        let note = Note::new(fixture.now_us, NoteKind::POLICY_CHANGED);
        fixture.write(|recorder| async move {
            recorder.note(&note).await.unwrap();
        });
    }
    let before_us = fixture.now_us + days * DAY_US;
    let now_us = before_us + 3 * DAY_US;
    let mut archiver = Archiver::open(&fixture.path(), options).unwrap();
    while archiver.step(before_us, now_us).unwrap() != Archived::Nothing {}
}

#[test]
fn a_hold_that_was_lifted_in_an_unread_segment_is_not_called_wrong() {
    let fixture = Fixture::encrypted();
    let hold = |holds: &mut Holds, at_us| {
        let of = HoldFilter {
            principal: Some("client-2".to_owned()),
            ..HoldFilter::default()
        };
        holds.set(&of, "ana", "case 7", at_us).unwrap()
    };
    let mut holds = Holds::open(&fixture.path(), None).unwrap();
    let number = hold(&mut holds, fixture.now_us);
    fixture.write(|_| until_said(&fixture));
    // A segment that everybody can read has its note, and one that nobody can read the note that lifts it.
    let plain = ArchiveOptions {
        recipients: Vec::new(),
        segment_entries: 100_000,
        ..fixture.options(Some(fixture.key.clone()))
    };
    archive_the_rest(&fixture, plain, 1);
    holds
        .lift(number, "ana", "settled", fixture.now_us + 1)
        .unwrap();
    fixture.write(|_| until_said(&fixture));
    archive_the_rest(&fixture, fixture.options(Some(fixture.key.clone())), 5);
    let outside = fixture.verify_from_outside();
    assert_eq!(outside.first_wrong, None);
    assert_ne!(outside.unread, 0);
    fixture.assert_sound();
    // One that was set later is missed.
    hold(&mut holds, fixture.now_us + 9 * DAY_US);
    fixture.write(|_| until_said(&fixture));
    assert_eq!(fixture.verify_from_outside().first_wrong, None);
    let connection = Connection::open(fixture.path()).unwrap();
    connection.execute("DELETE FROM legal_hold", []).unwrap();
    let wrong = fixture.verify_from_outside().first_wrong.unwrap();
    assert_eq!(
        wrong.what,
        Fault::TableDiffers {
            table: "legal_hold"
        }
    );
}
