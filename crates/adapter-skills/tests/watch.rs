//! A catalogue follows its directory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path, sync::Arc, time::Duration};

use adapter_skills::{ScanOptions, SkillCatalog, WatchOptions, watch};
use tokio::sync::watch::Receiver;

/// Time that an event may take before a test gives up on it. Less than the interval at which all is
/// compared anyway, which would find changes that were not announced.
const PATIENCE: Duration = Duration::from_secs(25);

fn skill(root: &Path, name: &str, description: &str) {
    let directory = root.join(name);
    fs::create_dir_all(&directory).unwrap();
    let text = format!("---\nname: {name}\ndescription: '{description}'\n---\n");
    fs::write(directory.join("SKILL.md"), text).unwrap();
}

fn options(root: &Path) -> WatchOptions {
    let mut options = WatchOptions::new(ScanOptions::new(root));
    options.quiet_period = Duration::from_millis(50);
    options.poll_interval = Duration::from_millis(50);
    options
}

fn summary(catalog: &SkillCatalog) -> String {
    let each = catalog
        .iter()
        .map(|it| format!("{}={}", it.name(), it.description()));
    each.collect::<Vec<_>>().join(" ")
}

async fn wait_for(receiver: &mut Receiver<Arc<SkillCatalog>>, expected: &str) {
    let is_there = receiver.wait_for(|catalog| summary(catalog) == expected);
    let waited = tokio::time::timeout(PATIENCE, is_there).await;
    assert!(waited.is_ok_and(|it| it.is_ok()), "never {expected:?}");
}

async fn follows(options: WatchOptions) {
    let root = options.scan.root().to_owned();
    fs::create_dir(&root).unwrap();
    skill(&root, "a", "1");
    let (mut receiver, guard) = watch(options).unwrap();
    assert_eq!(summary(&receiver.borrow()), "a=1");
    assert!(!receiver.has_changed().unwrap());

    skill(&root, "a", "2");
    wait_for(&mut receiver, "a=2").await;
    skill(&root, "b", "1");
    wait_for(&mut receiver, "a=2 b=1").await;
    fs::write(root.join("b/SKILL.md"), "broken").unwrap();
    wait_for(&mut receiver, "a=2").await;
    skill(&root, "b", "mended");
    wait_for(&mut receiver, "a=2 b=mended").await;
    fs::rename(root.join("b"), root.join("c")).unwrap();
    fs::remove_dir_all(root.join("a")).unwrap();
    wait_for(&mut receiver, "b=mended").await;

    fs::write(root.join("c/notes.md"), "x").unwrap();
    let has_file = receiver.wait_for(|catalog| {
        let skill = catalog.by_name("b").unwrap();
        skill.files().iter().any(|file| file.size() == 1)
    });
    assert!(tokio::time::timeout(PATIENCE, has_file).await.is_ok());

    fs::remove_dir_all(&root).unwrap();
    wait_for(&mut receiver, "").await;
    fs::create_dir(&root).unwrap();
    skill(&root, "again", "1");
    wait_for(&mut receiver, "again=1").await;
    skill(&root, "again", "2");
    wait_for(&mut receiver, "again=2").await;

    drop(guard);
    let closed = async { while receiver.changed().await.is_ok() {} };
    assert!(tokio::time::timeout(PATIENCE, closed).await.is_ok());
}

#[tokio::test]
async fn announced_changes_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    follows(options(&directory.path().join("skills"))).await;
}

#[tokio::test]
async fn polled_changes_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(&directory.path().join("skills"));
    options.poll_only = true;
    follows(options).await;
}

#[tokio::test]
async fn a_directory_that_appears_later_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("not/yet");
    let (mut receiver, _guard) = watch(options(&root)).unwrap();
    assert!(receiver.borrow().is_empty());
    fs::create_dir_all(&root).unwrap();
    skill(&root, "a", "1");
    wait_for(&mut receiver, "a=1").await;
    skill(&root, "b", "1");
    wait_for(&mut receiver, "a=1 b=1").await;
}

#[tokio::test]
async fn a_directory_that_goes_leaves_its_rules() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("skills");
    skill(&root, "a", "1");
    let (mut receiver, guard) = watch(options(&root)).unwrap();
    let is_known = |catalog: &SkillCatalog| catalog.rules().any(|(tool, _)| tool == "a");
    let is_held = |catalog: &SkillCatalog| catalog.hold_of("b", |_| true).is_some();
    fs::rename(&root, directory.path().join("away")).unwrap();
    wait_for(&mut receiver, "").await;
    guard.forget();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lost = Arc::clone(&receiver.borrow_and_update());
    assert!(is_known(&lost) && is_held(&lost));
    // With a file, it says that there are no skills; empty, it may be a volume that is not mounted.
    let new = directory.path().join("new");
    fs::create_dir(&new).unwrap();
    fs::write(new.join("README.md"), "No skills any more.").unwrap();
    fs::rename(&new, &root).unwrap();
    let is_there = receiver.wait_for(|catalog| !is_held(catalog));
    let waited = tokio::time::timeout(PATIENCE, is_there).await;
    assert!(waited.is_ok_and(|it| it.is_ok_and(|catalog| is_known(&catalog))));
    guard.forget();
    let is_forgotten = receiver.wait_for(|catalog| !is_known(catalog));
    let waited = tokio::time::timeout(PATIENCE, is_forgotten).await;
    assert!(waited.is_ok_and(|it| it.is_ok()));
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_is_switched_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    skill(&one, "a", "1");
    skill(&two, "a", "2");
    let link = directory.path().join("skills");
    std::os::unix::fs::symlink(&one, &link).unwrap();
    let (mut receiver, _guard) = watch(options(&link)).unwrap();
    assert_eq!(summary(&receiver.borrow()), "a=1");
    let new = directory.path().join("new");
    std::os::unix::fs::symlink(&two, &new).unwrap();
    fs::rename(&new, &link).unwrap();
    wait_for(&mut receiver, "a=2").await;
}

#[tokio::test]
async fn only_a_change_is_published() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    skill(root, "a", "1");
    let (mut receiver, _guard) = watch(options(root)).unwrap();
    // Neither is anything to a catalogue, but both are announced.
    fs::write(root.join("unrelated.txt"), "x").unwrap();
    fs::write(root.join("a/.hidden"), "x").unwrap();
    let published = tokio::time::timeout(Duration::from_secs(1), receiver.changed());
    assert!(published.await.is_err());
    skill(root, "b", "1");
    wait_for(&mut receiver, "a=1 b=1").await;
}
