use super::*;
use crate::query::ReadLedger;
use crate::record::{
    codec,
    entry::{End, Kind, Outcome, Start},
};

/// A group of one call whose arguments take up `bytes`.
fn body(bytes: usize) -> (Vec<u8>, u64) {
    let (mut body, call, arguments) = (Vec::new(), CallId::new(7), "x".repeat(bytes));
    let start = Start {
        arguments: &arguments,
        ..Start::new(call, 7, "a", Kind::Tool, "tool/x")
    };
    codec::encode_start(&start, &mut body);
    codec::encode_end(call, &End::new(Outcome::Succeeded), &mut body);
    (body, 2)
}

async fn append(
    store: &mut SqliteLedger,
    (body, count): &(Vec<u8>, u64),
) -> Result<Uuid, StoreError> {
    let group = Group {
        id: Uuid::new_v4(),
        count: *count,
        body,
        charges: &[],
        operations: &[],
        durable: false,
    };
    store.append(group).await?;
    Ok(group.id)
}

/// Appends it again, as if it had been reported as failed.
async fn append_again(
    store: &mut SqliteLedger,
    id: Uuid,
    (body, count): &(Vec<u8>, u64),
) -> Result<Appended, StoreError> {
    let group = Group {
        id,
        count: *count,
        body,
        charges: &[],
        operations: &[],
        durable: false,
    };
    store.append(group).await
}

fn stored_groups(store: &SqliteLedger) -> i64 {
    let sql = "SELECT count(*) FROM entry_group";
    store
        .connection
        .as_ref()
        .unwrap()
        .connection
        .query_row(sql, [], |row| row.get(0))
        .unwrap()
}

#[tokio::test]
async fn a_ledger_that_another_program_shortens_is_not_written_on() {
    for (change, is_other_end) in [
        ("DELETE FROM entry_group WHERE first_sequence = 5", true),
        (
            "UPDATE entry_group SET hash = zeroblob(32) WHERE first_sequence = 5",
            true,
        ),
        (
            "INSERT INTO entry_group SELECT 7, count, hash, body, id FROM entry_group LIMIT 1",
            true,
        ),
        ("DELETE FROM operation_outcome", false),
        (
            "INSERT INTO unsaid_note VALUES (1, 1, 'retention', 'ana', 'x', '{}')",
            false,
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.sqlite");
        let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
        for number in 1..4 {
            append(&mut store, &body(number)).await.unwrap();
        }
        let other = Connection::open(&path).unwrap();
        other
            .execute("INSERT INTO operation_outcome VALUES (x'00', x'00')", [])
            .unwrap();
        store.tidy(1).await.unwrap();
        let expected = if is_other_end {
            "changed by another program"
        } else {
            ""
        };
        let said = |result: Result<(), StoreError>| {
            let error = result.err();
            let source = error.as_ref().and_then(|it| std::error::Error::source(it));
            source.map(ToString::to_string).unwrap_or_default()
        };
        other.execute(change, []).unwrap();
        if let Some(open) = &mut store.connection {
            open.looked = Instant::now().checked_sub(LOOK_EVERY).unwrap();
        }
        let appended = said(append(&mut store, &body(5)).await.map(drop));
        assert!(appended.contains(expected), "{change}: {appended}");
        assert_eq!(appended.is_empty(), !is_other_end, "{change}: {appended}");
        // Nor is it opened again.
        let tidied = said(store.tidy(2).await.map(drop));
        assert_eq!(tidied.is_empty(), !is_other_end, "{change}: {tidied}");
    }
}

#[tokio::test]
async fn a_group_stored_in_spite_of_an_error_is_not_stored_twice() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
    let second = body(2);
    append(&mut store, &body(1)).await.unwrap();
    let before = store.tail();
    let id = append(&mut store, &second).await.unwrap();
    let after = store.tail();
    // As if the second commit had been carried out and reported as failed.
    store.disconnect(before);
    append_again(&mut store, id, &second).await.unwrap();
    assert_eq!((store.tail(), stored_groups(&store)), (after, 2));
    // And as if somebody else had written something else in its place.
    store.disconnect(before);
    let error = append(&mut store, &body(3)).await.unwrap_err();
    assert!(
        std::error::Error::source(&error)
            .unwrap()
            .is::<ChangedError>()
    );
    drop(store);
    assert_eq!(
        SqliteLedger::open(&path, Durability::Strict)
            .unwrap()
            .tail(),
        after
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_taken_away_is_not_written_to_until_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let (path, away) = (directory.path().join("here"), directory.path().join("away"));
    let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
    append(&mut store, &body(1)).await.unwrap();
    let files = ["", "-wal", "-shm"];
    let rename = |from: &Path, to: &Path| {
        for suffix in files {
            let name = |path: &Path| format!("{}{suffix}", path.display());
            let _ = std::fs::rename(name(from), name(to));
        }
    };
    rename(&path, &away);
    let error = append(&mut store, &body(2)).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap();
    assert!(cause.is::<TakenAwayError>(), "{cause}");
    // Nor is an empty one made in its place.
    append(&mut store, &body(2)).await.unwrap_err();
    assert!(!path.exists());
    rename(&away, &path);
    append(&mut store, &body(2)).await.unwrap();
    assert_eq!(stored_groups(&store), 2);
}

#[tokio::test]
async fn a_full_disk_fails_and_an_emptied_one_works_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
    append(&mut store, &body(1)).await.unwrap();
    let connection = &store.connection.as_ref().unwrap().connection;
    // The limit belongs to the connection, which is opened anew after the failure.
    let pages: i64 = connection
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .unwrap();
    connection
        .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
        .unwrap();
    let tail = store.tail();
    let large = body(16_000);
    let error = append(&mut store, &large).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("full"), "{cause}");
    assert_eq!(store.tail(), tail);
    append(&mut store, &large).await.unwrap();
    assert_eq!(stored_groups(&store), 2);
}

#[tokio::test]
async fn every_entry_is_chained_to_the_one_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
    for bytes in 1..4 {
        append(&mut store, &body(bytes)).await.unwrap();
    }
    let connection = &store.connection.as_ref().unwrap().connection;
    let mut select = connection
        .prepare("SELECT first_sequence, count, body, hash FROM entry_group ORDER BY 1")
        .unwrap();
    let mut groups = select.query([]).unwrap();
    let mut tail = Tail::default();
    while let Some(group) = groups.next().unwrap() {
        assert_eq!(group.get::<_, i64>(0).unwrap(), signed(tail.next_sequence));
        let body: Vec<u8> = group.get(2).unwrap();
        let count = codec::split(&body).count() as u64;
        assert_eq!(group.get::<_, i64>(1).unwrap(), signed(count));
        let mut changed = body.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_ne!(
            tail.after(&changed, count).hash,
            tail.after(&body, count).hash
        );
        tail = tail.after(&body, count);
        assert_eq!(group.get::<_, Digest>(3).unwrap(), tail.hash);
    }
    assert_eq!(tail, store.tail());
}

#[tokio::test]
async fn damage_is_told_and_not_built_upon() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let mut store = SqliteLedger::open(&path, Durability::Strict).unwrap();
    append(&mut store, &body(1)).await.unwrap();
    let connection = &store.connection.as_ref().unwrap().connection;
    connection
        .execute("UPDATE entry_group SET body = x'0100000009'", [])
        .unwrap();
    drop(store);
    let error = SqliteLedger::open(&path, Durability::Strict).unwrap_err();
    assert!(matches!(error, OpenError::Database { .. }), "{error:?}");
    let mut reader = crate::sqlite::reader::LedgerReader::open(&path).unwrap();
    assert!(reader.count().is_err());
}

#[tokio::test]
async fn a_log_that_somebody_s_reading_made_long_does_not_stay_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let mut store = SqliteLedger::open(&path, Durability::Relaxed).unwrap();
    append(&mut store, &body(1)).await.unwrap();
    let log_bytes =
        || std::fs::metadata(directory.path().join("ledger.sqlite-wal")).map(|it| it.len());
    let mut reader = Connection::open(&path).unwrap();
    let snapshot = reader.transaction().unwrap();
    let read = "SELECT count(*) FROM entry_group";
    let _: i64 = snapshot.query_row(read, [], |row| row.get(0)).unwrap();
    let large = body(16_000);
    let many = (large.0.repeat(64), large.1 * 64);
    let limit = u64::try_from(crate::sqlite::schema::MAX_KEPT_LOG_BYTES).unwrap();
    while log_bytes().unwrap() <= limit {
        append(&mut store, &many).await.unwrap();
    }
    drop(snapshot);
    // What is appended then begins the log anew, once all of it is in the ledger.
    for _ in 0..2 {
        append(&mut store, &many).await.unwrap();
    }
    assert!(log_bytes().unwrap() <= limit);
}
