//! API keys and their file.

use identity::{ApiKeys, KeyChange, KeyFile, KeyFileError, KeyState, NewKey, Rejection};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::PathBuf,
    thread,
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3_600);

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("below/keys.json");
    (directory, path)
}

fn for_principal(principal: &str) -> NewKey {
    NewKey {
        principal: principal.to_owned(),
        ..NewKey::default()
    }
}

fn why(keys: &ApiKeys, key: &str, now: SystemTime) -> String {
    keys.verify(key, now).unwrap_err().to_string()
}

#[test]
fn a_key_is_good_until_it_expires_or_is_taken_back() {
    let (_directory, path) = place();
    // A whole second, as the file has them, so that the end is the end to the moment.
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    let file = KeyFile::at(&path);
    let short = NewKey {
        roles: vec!["b".to_owned(), "a".to_owned()],
        lifetime: Some(HOUR),
        label: Some("for tests".to_owned()),
        ..for_principal("ana")
    };
    let short = file.create(short, now).unwrap();
    let long = file.create(for_principal("ben"), now).unwrap();
    let keys = ApiKeys::open(&path).unwrap();
    let identity = keys.verify(short.key.reveal(), now).unwrap();
    assert_eq!((&*identity.principal, identity.roles.len()), ("ana", 2));
    assert_eq!(keys.active(now), 2);

    let moment = Duration::from_nanos(1);
    assert!(keys.verify(short.key.reveal(), now + HOUR - moment).is_ok());
    assert_eq!(
        why(&keys, short.key.reveal(), now + HOUR),
        "the API key has expired"
    );
    assert!(keys.verify(long.key.reveal(), now + 10_000 * HOUR).is_ok());
    assert_eq!(keys.active(now + HOUR), 1);

    let revoked = file.revoke(long.key.id(), now).unwrap();
    assert_eq!(revoked.state(now), KeyState::Revoked);
    assert!(
        keys.verify(long.key.reveal(), now).is_ok(),
        "not read again yet"
    );
    let change = |what| KeyChange {
        id: long.key.id().to_owned(),
        principal: "ben".to_owned(),
        what,
    };
    assert_eq!(keys.reload().unwrap(), [change("revoked")]);
    assert_eq!(
        why(&keys, long.key.reveal(), now),
        "the API key has been revoked"
    );
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"ben\"", "\"bert\"")).unwrap();
    let bert = KeyChange {
        principal: "bert".to_owned(),
        ..change("changed")
    };
    assert_eq!(keys.reload().unwrap(), [bert], "it was revoked before");
    let again = file.revoke(long.key.id(), now).unwrap_err();
    assert!(matches!(
        again,
        KeyFileError::Over {
            state: KeyState::Revoked,
            ..
        }
    ));
    assert!(matches!(
        file.revoke("x", now),
        Err(KeyFileError::Unknown(_))
    ));
}

#[test]
fn who_came_with_a_key_hears_what_becomes_of_it() {
    let (_directory, path) = place();
    let (file, now) = (KeyFile::at(&path), SystemTime::now());
    let new = NewKey {
        roles: vec!["clerk".to_owned()],
        lifetime: Some(24 * HOUR),
        ..for_principal("ana")
    };
    type Change = fn(&mut serde_json::Value);
    let cases: [(&str, Change, Option<bool>); 7] = [
        ("as it was", |_| {}, Some(false)),
        ("its label", |key| key["label"] = "x".into(), Some(false)),
        (
            "its end",
            |key| key["expires"] = "2100-01-01T00:00:00Z".into(),
            Some(true),
        ),
        (
            "its roles",
            |key| key["roles"] = serde_json::json!(["chief"]),
            None,
        ),
        ("its principal", |key| key["principal"] = "ben".into(), None),
        (
            "its digest",
            |key| key["digest"] = "0".repeat(64).into(),
            None,
        ),
        (
            "revoked",
            |key| key["revoked"] = key["created"].clone(),
            None,
        ),
    ];
    for (what, change, expected) in cases {
        let made = file.create(new.clone(), now).unwrap();
        let keys = ApiKeys::open(&path).unwrap();
        let identity = keys.verify(made.key.reveal(), now).unwrap();
        let mut kept = identity.revocation.as_ref().unwrap().watched()[0].clone();
        assert_eq!(*kept.borrow_and_update(), identity.expires, "{what}");

        let mut content: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let list = content["keys"].as_array_mut().unwrap();
        change(
            list.iter_mut()
                .find(|it| it["id"] == made.key.id())
                .unwrap(),
        );
        fs::write(&path, content.to_string()).unwrap();
        // Reading it once more changes nothing.
        for _ in 0..2 {
            keys.reload().unwrap();
            let until = *kept.borrow();
            match (expected, kept.has_changed()) {
                (None, Err(_)) => {}
                (Some(moved), Ok(_)) => assert_eq!(until != identity.expires, moved, "{what}"),
                (expected, seen) => panic!("{what}: {expected:?}, {seen:?}"),
            }
        }
    }

    // One that is gone from the file was taken back as well.
    let made = file.create(new, now).unwrap();
    let keys = ApiKeys::open(&path).unwrap();
    let identity = keys.verify(made.key.reveal(), now).unwrap();
    fs::write(&path, "{\"version\": 1, \"keys\": []}").unwrap();
    keys.reload().unwrap();
    assert!(
        identity.revocation.as_ref().unwrap().watched()[0]
            .has_changed()
            .is_err()
    );
    // And whoever comes with a broken file in its place is as good as before.
    let made = file.create(for_principal("ben"), now).unwrap();
    let keys = ApiKeys::open(&path).unwrap();
    let identity = keys.verify(made.key.reveal(), now).unwrap();
    fs::write(&path, "{").unwrap();
    keys.reload().unwrap_err();
    assert!(
        identity.revocation.as_ref().unwrap().watched()[0]
            .has_changed()
            .is_ok()
    );
}

#[test]
fn who_has_not_the_whole_key_learns_nothing() {
    let (_directory, path) = place();
    let (file, now) = (KeyFile::at(&path), SystemTime::now());
    let made = file.create(for_principal("ana"), now).unwrap();
    let keys = ApiKeys::open(&path).unwrap();
    let key = made.key.reveal();
    let unknown = key.replace(made.key.id(), "000000000000");
    let mut wrong = key.to_owned();
    let last = if wrong.pop() == Some('A') { 'B' } else { 'A' };
    wrong.push(last);
    assert_eq!(why(&keys, &unknown, now), why(&keys, &wrong, now));
    file.revoke(made.key.id(), now).unwrap();
    keys.reload().unwrap();
    assert_eq!(
        why(&keys, &unknown, now),
        why(&keys, &wrong, now),
        "not that it is revoked either"
    );
    for malformed in ["", "owl_", &key[1..], &format!("{key}x"), "owl_00_x"] {
        let outcome = keys.verify(malformed, now);
        assert!(
            matches!(outcome, Err(Rejection::Malformed { .. })),
            "{malformed}"
        );
    }
    // The file has what proves a key, and not the key.
    let secret = key.splitn(3, '_').nth(2).unwrap();
    assert!(!fs::read_to_string(&path).unwrap().contains(secret));
}

#[test]
fn a_key_that_is_replaced_is_good_until_its_owner_has_changed_over() {
    let (_directory, path) = place();
    let (file, now) = (KeyFile::at(&path), SystemTime::now());
    let new = NewKey {
        lifetime: Some(100 * HOUR),
        roles: vec!["a".to_owned()],
        ..for_principal("ana")
    };
    let old = file.create(new, now).unwrap();
    let later = now + 10 * HOUR;
    let new = file.rotate(old.key.id(), HOUR, later).unwrap();
    assert_eq!(new.record.replaces.as_deref(), Some(old.key.id()));
    let keys = ApiKeys::open(&path).unwrap();
    let verify = |key: &str, at| keys.verify(key, at).map(|it| it.principal.to_string());
    assert_eq!(verify(old.key.reveal(), later), Ok("ana".to_owned()));
    assert!(verify(old.key.reveal(), later + HOUR).is_err());
    assert_eq!(
        verify(new.key.reveal(), later + 99 * HOUR),
        Ok("ana".to_owned())
    );
    assert!(
        verify(new.key.reveal(), later + 100 * HOUR).is_err(),
        "it lives as long as the old one"
    );

    // Whoever has lost the new one takes the old one again, and is not left with its overlap.
    let again = file.rotate(old.key.id(), HOUR, later).unwrap();
    let keys = ApiKeys::open(&path).unwrap();
    let is_good = |at| keys.verify(again.key.reveal(), at).is_ok();
    assert!(is_good(later + 99 * HOUR) && !is_good(later + 100 * HOUR));

    let newest = file.rotate(new.key.id(), Duration::ZERO, later).unwrap();
    keys.reload().unwrap();
    let verify = |key: &str, at| keys.verify(key, at).map(|it| it.roles.len());
    assert_eq!(verify(newest.key.reveal(), later), Ok(1));
    assert!(verify(new.key.reveal(), later).is_err());
}

#[test]
fn a_file_that_is_changed_stays_its_owners() {
    const SERVER: u32 = 65_534;
    let (_directory, path) = place();
    let (file, now) = (KeyFile::at(&path), SystemTime::now());
    let key = file.create(for_principal("ana"), now).unwrap().key;
    let lock = path.with_extension("json.lock");
    let of = |path: &PathBuf| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
    };
    let (own_user, own_group, _) = of(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    // Only root can make it the file of a server that runs as somebody else.
    let (user, group) = match own_user {
        0 => (SERVER, SERVER),
        _ => (own_user, own_group),
    };
    chown(&path, Some(user), Some(group)).unwrap();
    file.rotate(key.id(), HOUR, now).unwrap();
    assert_eq!(of(&path), (user, group, 0o640));
    assert_eq!(of(&lock), (user, group, 0o600), "the lock that was there");

    fs::remove_file(&lock).unwrap();
    file.revoke(key.id(), now).unwrap();
    assert_eq!(of(&path), (user, group, 0o640));
    assert_eq!(of(&lock), (user, group, 0o600), "a new lock");

    // The server may have put a link there to what is not its own.
    let other = path.with_file_name("other");
    fs::write(&other, "").unwrap();
    let before = of(&other);
    fs::remove_file(&lock).unwrap();
    symlink(&other, &lock).unwrap();
    file.create(for_principal("ben"), now).unwrap();
    assert_eq!(of(&other), before);
    let mut names: Vec<_> = fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["keys.json", "keys.json.lock", "other"]);
}

#[test]
fn the_file_belongs_to_its_owner_alone() {
    let (_directory, path) = place();
    let (file, now) = (KeyFile::at(&path), SystemTime::now());
    assert!(matches!(
        ApiKeys::open(&path),
        Err(KeyFileError::Missing(_))
    ));
    assert!(matches!(file.list(), Err(KeyFileError::Missing(_))));
    assert!(matches!(
        file.revoke("x", now),
        Err(KeyFileError::File { .. } | KeyFileError::Missing(_))
    ));
    let made = file.create(for_principal("ana"), now).unwrap();
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    for (mode, expected) in [
        (0o644, false),
        (0o660, false),
        (0o620, false),
        (0o400, true),
        (0o440, true),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(ApiKeys::open(&path).is_ok(), expected, "{mode:o}");
    }
    // A link stays one, and what it leads to stays the owner's.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let link = path.with_file_name("link.json");
    symlink(&path, &link).unwrap();
    KeyFile::at(&link).revoke(made.key.id(), now).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(
        (mode(&path), file.list().unwrap()[0].state(now)),
        (0o600, KeyState::Revoked)
    );
}

#[test]
fn what_is_wrong_with_a_file_is_said_and_what_was_read_stays() {
    let (_directory, path) = place();
    let (file, now) = (KeyFile::at(&path), SystemTime::now());
    let made = file.create(for_principal("ana"), now).unwrap();
    let keys = ApiKeys::open(&path).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    let id = format!("\"{}\"", made.key.id());
    for (wrong, expected) in [
        (String::new(), "EOF"),
        (
            good.replace("\"version\": 1", "\"version\": 2"),
            "version is 2",
        ),
        (good.replace("\"principal\"", "\"principle\""), "principle"),
        (
            good.replace("\"ana\"", "\"a\\nb\""),
            "of key 1, its `principal`",
        ),
        (good.replace(&id, "\"x\""), "of key 1, its `id`"),
        (
            good.replace("\"digest\": \"", "\"digest\": \"x"),
            "of key 1, its `digest`",
        ),
        (
            good.replace(
                "\"created\": \"",
                "\"expires\": \"tomorrow\", \"created\": \"",
            ),
            "of key 1, its `created`",
        ),
        ("x".repeat(9 * 1024 * 1024), "longer"),
    ] {
        fs::write(&path, &wrong).unwrap();
        let error = keys.reload().unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(
            !error.contains(&made.record.created),
            "nothing of the file is quoted"
        );
        assert!(keys.verify(made.key.reveal(), now).is_ok());
        assert!(
            file.create(for_principal("ben"), now).is_err(),
            "nothing is written over"
        );
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(keys.reload(), Err(KeyFileError::Missing(_))));
    assert!(keys.verify(made.key.reveal(), now).is_ok());
    fs::write(&path, good).unwrap();
    // Written by somebody who did not mind who reads it.
    assert!(matches!(keys.reload(), Err(KeyFileError::Open { .. })));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(keys.reload().unwrap(), []);
}

#[test]
fn no_key_is_made_for_nobody() {
    let (_directory, path) = place();
    let (file, now) = (KeyFile::at(&path), SystemTime::now());
    let long = "x".repeat(257);
    for principal in ["", " ", "a\nb", " a", long.as_str()] {
        let outcome = file.create(for_principal(principal), now);
        assert!(
            matches!(outcome, Err(KeyFileError::NotAKey(_))),
            "{principal:?}"
        );
    }
    let role = NewKey {
        roles: vec![String::new()],
        ..for_principal("ana")
    };
    assert!(matches!(
        file.create(role, now),
        Err(KeyFileError::NotAKey(_))
    ));
    let life = NewKey {
        lifetime: Some(Duration::MAX),
        ..for_principal("ana")
    };
    assert!(matches!(
        file.create(life, now),
        Err(KeyFileError::NotAKey(_))
    ));
    assert!(!path.exists());
}

#[test]
fn keys_made_at_the_same_time_are_all_kept() {
    let (_directory, path) = place();
    let makers: Vec<_> = (0..4)
        .map(|maker| {
            let file = KeyFile::at(&path);
            thread::spawn(move || {
                for number in 0..8 {
                    let new = for_principal(&format!("p{maker}-{number}"));
                    file.create(new, SystemTime::now()).unwrap();
                }
            })
        })
        .collect();
    for maker in makers {
        maker.join().unwrap();
    }
    assert_eq!(KeyFile::at(&path).list().unwrap().len(), 32);
}
