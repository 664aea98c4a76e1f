//! Vaults in real files, with real processes that write them and are killed.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use vault::{Key, Name, Secret, Vault, VaultError};

struct Place {
    _directory: tempfile::TempDir,
    vault: PathBuf,
    key_file: PathBuf,
    key: Key,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let vault = directory.path().join("vault");
    let key_file = directory.path().join("vault.key");
    let key = vault::write_new_key(&key_file).unwrap();
    Vault::create(&vault, &key).unwrap();
    Place {
        _directory: directory,
        vault,
        key_file,
        key,
    }
}

fn set(place: &Place, name: &str, value: &str) {
    let name: Name = name.parse().unwrap();
    vault::edit(
        &place.vault,
        || Ok(place.key.clone()),
        |it| it.set(&name, Secret::new(value)).map(drop),
    )
    .unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn secrets_are_set_replaced_removed_and_stand_nowhere_in_the_file() {
    let place = place();
    set(&place, "A", "canary-one");
    set(&place, "team/b.c-d", "canary-two");
    set(&place, "A", "canary-three\nof two lines \u{e9}");
    let vault = Vault::open(&place.vault, &place.key).unwrap();
    let names: Vec<_> = vault.entries().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["A", "team/b.c-d"]);
    assert_eq!(
        vault.get("A").unwrap().reveal(),
        "canary-three\nof two lines \u{e9}"
    );
    assert!(!format!("{vault:?}{:?}", place.key).contains("canary"));
    assert!(!format!("{:?}", place.key).contains(place.key.text().as_str()));
    let was_there = vault::edit(
        &place.vault,
        || Ok(place.key.clone()),
        |it| Ok::<_, VaultError>(it.remove("A")),
    );
    assert!(was_there.unwrap());
    let vault = Vault::open(&place.vault, &place.key).unwrap();
    assert!(vault.get("A").is_none());
    let content = fs::read_to_string(&place.vault).unwrap();
    assert!(!content.contains("canary") && !content.contains("team"));
    assert_eq!((mode(&place.vault), mode(&place.key_file)), (0o600, 0o600));
}

#[test]
fn files_that_others_can_use_are_refused_with_the_cure() {
    let place = place();
    for (path, mode) in [
        (&place.vault, 0o640),
        (&place.vault, 0o604),
        (&place.key_file, 0o644),
        (&place.key_file, 0o620),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let key = Key::read(&place.key_file);
        let error = key.and_then(|key| Vault::open(&place.vault, &key).map(drop));
        let said = error.unwrap_err().to_string();
        let cure = format!("chmod 600 {}", path.display());
        assert!(said.contains(&cure) && said.contains("mode"), "{said}");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let key = Key::read(&place.key_file).unwrap();
    assert_eq!(key, place.key);
    Vault::open(&place.vault, &key).unwrap();
}

#[test]
fn a_vault_that_is_damaged_anywhere_is_refused_and_left_as_it_is() {
    let place = place();
    set(&place, "A", "canary");
    let whole = fs::read(&place.vault).unwrap();
    let is_refused = |content: &[u8]| {
        fs::write(&place.vault, content).unwrap();
        let name: Name = "B".parse().unwrap();
        let edited = vault::edit(
            &place.vault,
            || Ok(place.key.clone()),
            |it| it.set(&name, Secret::new("x")).map(drop),
        );
        let opened = Vault::open(&place.vault, &place.key);
        let created = Vault::create(&place.vault, &place.key);
        assert!(matches!(created, Err(VaultError::Exists(_))), "{created:?}");
        assert_eq!(fs::read(&place.vault).unwrap(), content);
        assert_eq!(edited.is_err(), opened.is_err());
        opened.is_err()
    };
    for length in 0..whole.len() {
        assert!(is_refused(&whole[..length]), "cut to {length} bytes");
    }
    for at in 0..whole.len() {
        for bit in [1, 0x20] {
            let mut changed = whole.clone();
            changed[at] ^= bit;
            assert!(is_refused(&changed), "bit {bit} of byte {at}");
        }
    }
    let mut longer = whole.clone();
    longer.extend(b"AAAA\n");
    assert!(is_refused(&longer));
    let newer = String::from_utf8(whole.clone())
        .unwrap()
        .replacen("/1\n", "/2\n", 1);
    assert!(is_refused(newer.as_bytes()));
    let error = Vault::open(&place.vault, &place.key).unwrap_err();
    assert!(matches!(error, VaultError::Newer { .. }), "{error}");
}

#[test]
fn another_key_is_told_from_damage() {
    let place = place();
    let other = Key::generate().unwrap();
    let error = Vault::open(&place.vault, &other).unwrap_err();
    assert!(matches!(error, VaultError::OtherKey { .. }), "{error}");
    for text in ["", "abc", &"0".repeat(64), &"g".repeat(64), &"A".repeat(43)] {
        assert!(Key::parse(text, "here").is_err(), "{text}");
    }
    let digits = "0123456789abcdef".repeat(4);
    let base64 = "ASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4mrze8=";
    assert_eq!(
        Key::parse(&digits, "here").unwrap(),
        Key::parse(base64, "here").unwrap()
    );
}

#[test]
fn a_program_gives_the_key_and_its_failure_is_told() {
    let place = place();
    let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let path = place.key_file.to_str().unwrap();
    assert_eq!(Key::of_command(&words(&["cat", path])).unwrap(), place.key);
    for command in [
        &["/nowhere/program"][..],
        &["false"],
        &["echo", "nothing"],
        &[],
    ] {
        let error = Key::of_command(&words(command)).unwrap_err();
        assert!(matches!(error, VaultError::Key { .. }), "{error}");
    }
}

#[test]
fn a_rotation_changes_the_key_and_nothing_else() {
    let place = place();
    set(&place, "A", "canary");
    let new = Key::generate().unwrap();
    vault::rotate(
        &place.vault,
        || Key::read(&place.key_file),
        &new,
        Some(&place.key_file),
    )
    .unwrap();
    let error = Vault::open(&place.vault, &place.key).unwrap_err();
    assert!(matches!(error, VaultError::OtherKey { .. }), "{error}");
    let key = Key::read_for(&place.vault, &place.key_file).unwrap();
    assert_eq!(key, new);
    let vault = Vault::open(&place.vault, &key).unwrap();
    assert_eq!(vault.get("A").unwrap().reveal(), "canary");
    let left = fs::read_dir(place.vault.parent().unwrap()).unwrap();
    let mut left: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["vault", "vault.key", "vault.lock"]);
}

#[test]
fn writers_beside_rotations_find_the_key() {
    let place = place();
    set(&place, "A", "canary");
    let key = || Key::read_for(&place.vault, &place.key_file);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                let new = Key::generate().unwrap();
                vault::rotate(&place.vault, key, &new, Some(&place.key_file)).unwrap();
            }
        });
        for at in 0..40 {
            let name = format!("B{at}").parse().unwrap();
            let set = |it: &mut Vault| it.set(&name, Secret::new("value"));
            vault::edit::<_, VaultError>(&place.vault, key, set).unwrap();
        }
    });
    let vault = Vault::open(&place.vault, &key().unwrap()).unwrap();
    assert_eq!(vault.entries().count(), 41);
}

#[test]
fn a_rotation_that_was_cut_off_loses_no_key() {
    let place = place();
    set(&place, "A", "canary");
    let old = fs::read(&place.key_file).unwrap();
    let new = Key::generate().unwrap();
    vault::rotate(
        &place.vault,
        || Key::read(&place.key_file),
        &new,
        Some(&place.key_file),
    )
    .unwrap();
    // As if it had been killed after the vault and before the key was replaced.
    let next = place.key_file.with_file_name("vault.key.next");
    fs::rename(&place.key_file, &next).unwrap();
    fs::write(&place.key_file, &old).unwrap();
    fs::set_permissions(&place.key_file, fs::Permissions::from_mode(0o600)).unwrap();
    let found = Key::read_for(&place.vault, &place.key_file).unwrap();
    assert_eq!(found, new);
    let newest = Key::generate().unwrap();
    vault::rotate(
        &place.vault,
        || Ok(found.clone()),
        &newest,
        Some(&place.key_file),
    )
    .unwrap();
    assert_eq!(Key::read(&place.key_file).unwrap(), newest);
    assert!(!next.exists());
    Vault::open(&place.vault, &newest).unwrap();
}

/// Runs a test of this file that is a program for other tests.
fn program(name: &str, place: &Place) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([name, "--exact", "--ignored", "--nocapture"])
        .env("VAULT", &place.vault)
        .env("KEY_FILE", &place.key_file)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn given() -> (PathBuf, PathBuf) {
    let path = |name| PathBuf::from(std::env::var_os(name).unwrap());
    (path("VAULT"), path("KEY_FILE"))
}

#[test]
#[ignore = "a program for other tests: adds one to each of two values until it is killed"]
fn count() {
    let (path, key_file) = given();
    let times = std::env::var("TIMES").map_or(usize::MAX, |it| it.parse().unwrap());
    for _ in 0..times {
        let key = Key::read_for(&path, &key_file).unwrap();
        vault::edit(
            &path,
            || Ok(key.clone()),
            |it| {
                let value = it
                    .get("A")
                    .map_or(0, |it| it.reveal().parse::<u64>().unwrap());
                for name in ["A", "B"] {
                    it.set(&name.parse().unwrap(), Secret::new((value + 1).to_string()))?;
                }
                Ok::<_, VaultError>(())
            },
        )
        .unwrap();
    }
}

#[test]
#[ignore = "a program for other tests: changes the key until it is killed"]
fn change_keys() {
    let (path, key_file) = given();
    loop {
        let key = Key::read_for(&path, &key_file).unwrap();
        let new = Key::generate().unwrap();
        vault::rotate(&path, || Ok(key.clone()), &new, Some(&key_file)).unwrap();
    }
}

#[test]
fn a_writer_that_is_killed_at_any_moment_leaves_a_whole_vault() {
    for name in ["count", "change_keys"] {
        let place = place();
        let (mut last, mut keys) = (0, std::collections::BTreeSet::new());
        for round in 0..25_u64 {
            let mut child = program(name, &place).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(20_000 + 1_337 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            let key = Key::read_for(&place.vault, &place.key_file).unwrap();
            keys.insert(key.id());
            let vault = Vault::open(&place.vault, &key).unwrap();
            let value = |name| vault.get(name).map_or(0, |it| it.reveal().parse().unwrap());
            let (a, b): (u64, u64) = (value("A"), value("B"));
            assert!(a == b && last <= a, "{last} {a} {b}");
            last = a;
        }
        assert!(0 < last || 10 < keys.len(), "nothing was written meanwhile");
        let left = fs::read_dir(place.vault.parent().unwrap()).unwrap();
        // A draft of the last writer at most, and of the key's.
        assert!(left.count() <= 6);
    }
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let place = place();
    let mut children: Vec<_> = (0..4)
        .map(|_| program("count", &place).env("TIMES", "25").spawn().unwrap())
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let vault = Vault::open(&place.vault, &place.key).unwrap();
    assert_eq!(vault.get("A").unwrap().reveal(), "100");
}

#[test]
fn a_lock_that_is_held_is_told_and_ends_with_its_process() {
    let place = place();
    assert!(!vault::is_locked(&place.vault));
    vault::edit(
        &place.vault,
        || Ok(place.key.clone()),
        |_| {
            assert!(vault::is_locked(&place.vault));
            Ok::<_, VaultError>(())
        },
    )
    .unwrap();
    assert!(!vault::is_locked(&place.vault));
}

#[test]
fn a_link_to_a_vault_stays_a_link() {
    let place = place();
    let link = place.vault.with_file_name("link");
    std::os::unix::fs::symlink(&place.vault, &link).unwrap();
    let name: Name = "A".parse().unwrap();
    vault::edit(
        &link,
        || Ok(place.key.clone()),
        |it| it.set(&name, Secret::new("x")).map(drop),
    )
    .unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(
        Vault::open(&place.vault, &place.key)
            .unwrap()
            .get("A")
            .is_some()
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]
    #[test]
    fn any_secrets_come_back(entries in proptest::collection::btree_map("[A-Za-z0-9_./-]{1,20}", "(?s).{1,80}", 0..8)) {
        let place = place();
        vault::edit(&place.vault, || Ok(place.key.clone()), |it| {
            for (name, value) in &entries {
                it.set(&name.parse().unwrap(), Secret::new(value.as_str()))?;
            }
            Ok::<_, VaultError>(())
        }).unwrap();
        let vault = Vault::open(&place.vault, &place.key).unwrap();
        let found: std::collections::BTreeMap<_, _> = vault
            .entries()
            .map(|(name, entry)| (name.to_string(), entry.value.reveal().to_owned()))
            .collect();
        proptest::prop_assert_eq!(found, entries);
    }
}
