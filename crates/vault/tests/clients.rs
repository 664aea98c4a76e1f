//! Secrets of clients in real files.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};
use vault::{CLIENTS_KEY, ClientSecrets, Key, Name, Secret, Vault, VaultError};

struct Place {
    _directory: tempfile::TempDir,
    vault: PathBuf,
    key_file: PathBuf,
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
    }
}

fn secrets(place: &Place) -> ClientSecrets {
    let (vault, key_file) = (place.vault.clone(), place.key_file.clone());
    ClientSecrets::beside(&place.vault, move || Key::read_for(&vault, &key_file))
}

fn set(secrets: &ClientSecrets, upstream: &str, client: &str, value: &str) {
    let name: Name = "token".parse().unwrap();
    secrets
        .set(upstream, client, &name, Secret::new(value))
        .unwrap();
}

fn token(secrets: &ClientSecrets, upstream: &str, client: &str) -> Option<String> {
    let found = secrets.of(upstream, client).unwrap()?;
    Some(found.get("token")?.reveal().to_owned())
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|it| it.unwrap().path());
    paths
        .filter(|it| it.extension().is_some_and(|it| it == "vault"))
        .collect()
}

#[test]
fn each_client_has_its_own_and_nothing_of_another() {
    let place = place();
    let secrets = secrets(&place);
    assert!(secrets.all().unwrap().is_empty());
    // Names that would be one if they were only put together.
    set(&secrets, "git", "hub/ana", "canary-1");
    set(&secrets, "git/hub", "ana", "canary-2");
    set(&secrets, "git", "o'hara@example.com \u{e9}", "canary-3");
    let again = self::secrets(&place);
    assert_eq!(token(&again, "git", "hub/ana").unwrap(), "canary-1");
    assert_eq!(token(&again, "git/hub", "ana").unwrap(), "canary-2");
    assert_eq!(token(&again, "git", "hub"), None);
    assert_eq!(token(&again, "github", "ana"), None);
    let all = again.all().unwrap();
    let whose: Vec<_> = all.iter().map(|it| (&*it.upstream, &*it.client)).collect();
    assert_eq!(
        whose,
        [
            ("git", "hub/ana"),
            ("git", "o'hara@example.com \u{e9}"),
            ("git/hub", "ana")
        ]
    );
    assert_eq!(all[0].names().map(|it| it.0).collect::<Vec<_>>(), ["token"]);
    assert!(!format!("{all:?}{again:?}").contains("canary"));

    assert!(again.remove("git", "hub/ana", "token").unwrap());
    assert!(!again.remove("git", "hub/ana", "token").unwrap());
    assert_eq!(token(&secrets, "git", "hub/ana"), None);
    assert_eq!(again.all().unwrap().len(), 2);
    assert!(!again.remove("git/hub", "ana", "owlclaw/client").unwrap());
    let own: Name = "owlclaw/client".parse().unwrap();
    let renamed = again.set("git/hub", "ana", &own, Secret::new("hub/ana"));
    assert!(renamed.is_err());

    let directory = again.directory();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    for file in files(&directory) {
        assert_eq!(mode(&file), 0o600);
        let content = fs::read_to_string(&file).unwrap();
        assert!(!content.contains("canary") && !content.contains("ana"));
    }
}

#[test]
fn a_file_in_the_place_of_another_clients_is_refused() {
    let place = place();
    let secrets = secrets(&place);
    set(&secrets, "git", "ana", "canary-1");
    let first = files(&secrets.directory()).remove(0);
    set(&secrets, "git", "bob", "canary-2");
    let mut both = files(&secrets.directory());
    both.retain(|it| *it != first);
    fs::copy(&first, &both[0]).unwrap();
    for refused in [
        secrets.of("git", "bob").map(drop),
        secrets.all().map(drop),
        secrets
            .set("git", "bob", &"token".parse().unwrap(), Secret::new("x"))
            .map(drop),
    ] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("it is the file of another client"), "{said}");
    }
    assert_eq!(token(&secrets, "git", "ana").unwrap(), "canary-1");
}

#[test]
fn the_vault_is_sealed_anew_without_them_and_its_loss_is_told() {
    let place = place();
    let secrets = secrets(&place);
    set(&secrets, "git", "ana", "canary-1");
    let key = Key::read(&place.key_file).unwrap();
    let new = Key::generate().unwrap();
    vault::rotate(&place.vault, || Ok(key), &new, Some(&place.key_file)).unwrap();
    let after = self::secrets(&place);
    assert_eq!(token(&after, "git", "ana").unwrap(), "canary-1");
    set(&after, "git", "bob", "canary-2");
    assert_eq!(token(&secrets, "git", "bob").unwrap(), "canary-2");

    vault::edit(
        &place.vault,
        || Ok(new.clone()),
        |it| {
            assert!(it.remove(CLIENTS_KEY));
            Ok::<_, VaultError>(())
        },
    )
    .unwrap();
    let lost = self::secrets(&place);
    let told = lost.of("git", "ana").unwrap_err().to_string();
    assert!(told.contains("put it back from a backup"), "{told}");
    // A new key would make the loss last.
    let name: Name = "token".parse().unwrap();
    assert!(lost.set("git", "eve", &name, Secret::new("x")).is_err());
    let vault = Vault::open(&place.vault, &new).unwrap();
    assert!(vault.get(CLIENTS_KEY).is_none());
}

#[test]
fn without_a_vault_there_are_none_and_none_can_be_set() {
    let place = place();
    fs::remove_file(&place.vault).unwrap();
    let secrets = secrets(&place);
    assert_eq!(token(&secrets, "git", "ana"), None);
    let name: Name = "token".parse().unwrap();
    let refused = secrets.set("git", "ana", &name, Secret::new("x"));
    assert!(matches!(refused, Err(VaultError::Missing(_))));
    assert!(!secrets.directory().exists());
}

#[test]
fn a_link_to_a_vault_leads_to_the_secrets_of_its_clients() {
    let place = place();
    let link = place.vault.with_file_name("link");
    std::os::unix::fs::symlink(&place.vault, &link).unwrap();
    let (vault, key_file) = (link.clone(), place.key_file.clone());
    let by_link = ClientSecrets::beside(&link, move || Key::read_for(&vault, &key_file));
    set(&by_link, "crm", "ana", "hunter2");
    assert_eq!(
        token(&secrets(&place), "crm", "ana").as_deref(),
        Some("hunter2")
    );
    assert_eq!(by_link.directory(), secrets(&place).directory());
}
