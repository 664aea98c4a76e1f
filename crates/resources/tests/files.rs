//! Directories of files, as servers offer them: what is read, what is not, and which changes are told.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use adapter_tools::{ToolCx, ToolError};
use mcp_protocol::model::{
    ByteRange, Complete, CompletionReference, ListResources, ReadResource, ReadResourceResult,
};
use mcp_server::{ReadFailure, ToolSource};
use resources::{Files, FilesOptions, FolderOptions, OwnFiles};
use serde_json::Value;
use support::MayRead;
use tempfile::TempDir;

/// Longest time in which a change is told, on a busy machine; on a quiet one it is 200 ms.
const PATIENCE: Duration = Duration::from_secs(10);

fn open(options: FolderOptions) -> Files {
    Files::open(
        [("notes".to_owned(), options)].into(),
        FilesOptions::new(Path::new("/nonexistent")),
    )
    .unwrap()
}

fn put(directory: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = directory.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

async fn read(files: &Files, read: ReadResource) -> Result<ReadResourceResult, ReadFailure> {
    files.resources().unwrap().read(read).await
}

async fn text(files: &Files, uri: &str) -> Option<String> {
    let asked = ReadResource {
        uri: uri.to_owned(),
        ..ReadResource::default()
    };
    match read(files, asked).await {
        Ok(result) => result.contents[0].text.clone(),
        Err(ReadFailure::NotFound) => None,
        Err(error) => panic!("{uri}: {error:?}"),
    }
}

fn listed(files: &Files) -> Vec<String> {
    let resources = files.resources().unwrap();
    let entries = resources.entries().iter();
    entries.map(|it| it.resource.uri.clone()).collect()
}

/// Waits until exactly these addresses were told, and no more for a while.
async fn told(files: &Files, expected: &[&str]) {
    let expected: BTreeSet<_> = expected.iter().map(|it| (*it).to_owned()).collect();
    let mut seen = BTreeSet::new();
    while seen != expected {
        let more = tokio::time::timeout(PATIENCE, files.changed()).await;
        let more = more.unwrap_or_else(|_| panic!("told of {seen:?}, not of {expected:?}"));
        seen.extend(more);
        assert!(seen.is_subset(&expected), "{seen:?}, not {expected:?}");
    }
}

/// A directory with a secret beside it, and every way to it that a file system has.
fn besieged() -> (TempDir, FolderOptions) {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "secret.txt", "SECRET");
    put(place.path(), "notes-secret/a.txt", "SECRET");
    put(place.path(), "notes/a.txt", "fine");
    put(place.path(), "notes/.env", "SECRET");
    put(place.path(), "notes/.git/config", "SECRET");
    put(place.path(), "notes/private/key.pem", "SECRET");
    let notes = place.path().join("notes");
    symlink("../secret.txt", notes.join("link.txt")).unwrap();
    symlink(place.path().join("secret.txt"), notes.join("absolute.txt")).unwrap();
    symlink("..", notes.join("up")).unwrap();
    symlink("/etc", notes.join("etc")).unwrap();
    symlink("a.txt", notes.join("inside.txt")).unwrap();
    let options = FolderOptions {
        exclude: vec!["private/**".to_owned()],
        ..FolderOptions::new(&notes)
    };
    (place, options)
}

#[tokio::test]
async fn no_address_leads_out_of_a_directory() {
    let (place, options) = besieged();
    let files = open(options);
    assert_eq!(listed(&files), ["files://notes/a.txt"]);
    assert_eq!(text(&files, "files://notes/a.txt").await.unwrap(), "fine");
    let outside = place.path().join("secret.txt");
    let mut paths = vec![
        outside.display().to_string(),
        format!("/{}", outside.display()),
        format!("..{}", outside.display()),
    ];
    for ways in [
        "..", "../", "./..", "up", "up/", "etc", "private", "a.txt/..",
    ] {
        for rest in [
            "secret.txt",
            "/secret.txt",
            "notes-secret/a.txt",
            "passwd",
            "key.pem",
            "../secret.txt",
        ] {
            paths.push(format!("{ways}/{rest}"));
            paths.push(format!("{ways}{rest}"));
        }
    }
    let plain = [
        "link.txt",
        "absolute.txt",
        "inside.txt",
        ".env",
        ".git/config",
        "private/key.pem",
        "-secret/a.txt",
        "../notes-secret/a.txt",
        "..\\secret.txt",
        "a.txt\0.md",
        "....//secret.txt",
        "..;/secret.txt",
        "／..／secret.txt",
        "‥/secret.txt",
        "%c0%ae%c0%ae/secret.txt",
        "private",
        "",
        "/",
        ".",
        "..",
    ];
    paths.extend(plain.map(str::to_owned));
    let encoded = |path: &str| path.replace('.', "%2e").replace('/', "%2F");
    let twice = |path: &str| encoded(path).replace('%', "%25");
    let dots = |path: &str| path.replace('.', "%2E");
    let mut tried = 0;
    for path in &paths {
        for path in [
            path.clone(),
            encoded(path),
            twice(path),
            dots(path),
            path.to_uppercase(),
        ] {
            for uri in [
                format!("files://notes/{path}"),
                format!("FILES://notes/{path}"),
                format!("files://notes{path}"),
                format!("files:///{path}"),
                format!("file://notes/{path}"),
                path.clone(),
            ] {
                assert_eq!(text(&files, &uri).await, None, "{uri}");
                tried += 1;
            }
        }
    }
    assert!(1_000 < tried);
}

#[tokio::test]
async fn what_is_no_regular_file_is_not_opened() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "directory/a.txt", "a");
    let pipe = place.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place.path().join("socket")).unwrap();
    let files = open(FolderOptions::new(place.path()));
    assert_eq!(listed(&files), ["files://notes/directory/a.txt"]);
    // A pipe would be waited for until somebody writes.
    for name in ["pipe", "socket", "directory"] {
        assert_eq!(
            text(&files, &format!("files://notes/{name}")).await,
            None,
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_swapped_for_a_link_meanwhile_leads_nowhere() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "outside/deep/a.txt", "SECRET");
    put(place.path(), "notes/inside/deep/a.txt", "fine");
    let notes = place.path().join("notes");
    let files = open(FolderOptions {
        watch: false,
        ..FolderOptions::new(&notes)
    });
    symlink(place.path().join("outside"), notes.join("link")).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let swaps = {
        let is_over = Arc::clone(&is_over);
        let (inside, link, spare) = (
            notes.join("inside"),
            notes.join("link"),
            notes.join("spare"),
        );
        thread::spawn(move || {
            let mut swaps = 0;
            while !is_over.load(Ordering::Relaxed) {
                fs::rename(&inside, &spare).unwrap();
                fs::rename(&link, &inside).unwrap();
                fs::rename(&inside, &link).unwrap();
                fs::rename(&spare, &inside).unwrap();
                swaps += 1;
            }
            swaps
        })
    };
    let (mut fine, mut none) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1)
        || (fine == 0 || none == 0) && began.elapsed() < PATIENCE
    {
        match text(&files, "files://notes/inside/deep/a.txt")
            .await
            .as_deref()
        {
            Some("fine") => fine += 1,
            None => none += 1,
            Some(other) => panic!("{other} was read through a link"),
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let swaps = swaps.join().unwrap();
    assert!(
        0 < fine && 0 < none && 100 < swaps,
        "{fine} reads, {none} misses, {swaps} swaps"
    );
}

#[tokio::test]
async fn contents_are_read_in_parts_and_once_if_they_stay() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "a.csv", "day,sum\n1,20\n");
    put(place.path(), "b.bin", [0, 159, 146, 150]);
    put(place.path(), "odd.log", "x");
    put(place.path(), "large.txt", "y".repeat(101));
    let files = open(FolderOptions {
        max_bytes: 100,
        types: vec![("*.log".to_owned(), "text/x-log".to_owned())],
        ..FolderOptions::new(place.path())
    });
    let asked = |name: &str| ReadResource {
        uri: format!("files://notes/{name}"),
        ..ReadResource::default()
    };
    let whole = read(&files, asked("a.csv")).await.unwrap();
    let about: Value = whole
        .meta
        .get("io.owlclaw/resource")
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(whole.contents[0].mime_type.as_deref(), Some("text/csv"));
    assert_eq!(about["size"], 13);
    let part = ReadResource {
        range: Some(ByteRange {
            offset: 4,
            length: Some(3),
        }),
        ..asked("a.csv")
    };
    let part = read(&files, part).await.unwrap();
    assert_eq!(part.contents[0].text.as_deref(), Some("sum"));
    let beyond = ReadResource {
        range: Some(ByteRange {
            offset: 14,
            length: None,
        }),
        ..asked("a.csv")
    };
    assert!(matches!(
        read(&files, beyond).await,
        Err(ReadFailure::Range(_))
    ));
    let known = ReadResource {
        if_none_match: about["etag"].as_str().map(str::to_owned),
        ..asked("a.csv")
    };
    assert!(
        read(&files, known.clone())
            .await
            .unwrap()
            .contents
            .is_empty()
    );
    put(place.path(), "a.csv", "day,sum\n1,21\n");
    assert_eq!(read(&files, known).await.unwrap().contents.len(), 1);
    let blob = read(&files, asked("b.bin")).await.unwrap();
    assert_eq!(blob.contents[0].blob.as_deref(), Some("AJ+Slg=="));
    assert_eq!(
        blob.contents[0].mime_type.as_deref(),
        Some("application/octet-stream")
    );
    let odd = read(&files, asked("odd.log")).await.unwrap();
    assert_eq!(odd.contents[0].mime_type.as_deref(), Some("text/x-log"));
    let large = read(&files, asked("large.txt")).await.unwrap_err();
    assert!(
        matches!(large, ReadFailure::Handler(ToolError::Failed(_)))
            && large.to_string().starts_with("the file has more than "),
        "{large:?}"
    );
    assert!(!listed(&files).contains(&"files://notes/large.txt".to_owned()));
}

#[tokio::test]
async fn every_kind_of_change_is_told() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "a.txt", "a");
    put(place.path(), "b.txt", "b");
    put(place.path(), "d/c.txt", "c");
    let files = open(FolderOptions {
        include: vec!["*.txt".to_owned()],
        ..FolderOptions::new(place.path())
    });
    let mut lists = files.changes().unwrap();
    put(place.path(), "a.txt", "A");
    told(&files, &["files://notes/a.txt"]).await;
    // Of the same length within the same tick of the clock, and in place.
    put(place.path(), "a.txt", "B");
    told(&files, &["files://notes/a.txt"]).await;
    // And one that even the time of the change does not show.
    let file = fs::File::options()
        .write(true)
        .open(place.path().join("a.txt"))
        .unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    put(place.path(), "a.txt", "C");
    file.set_modified(before).unwrap();
    told(&files, &["files://notes/a.txt"]).await;
    assert!(!lists.has_changed().unwrap(), "no file has come or gone");
    put(place.path(), "new.txt", "n");
    put(place.path(), "new.csv", "not served");
    told(&files, &["files://notes/new.txt"]).await;
    lists.changed().await.unwrap();
    assert!(listed(&files).contains(&"files://notes/new.txt".to_owned()));
    fs::rename(place.path().join("b.txt"), place.path().join("d/e.txt")).unwrap();
    told(&files, &["files://notes/b.txt", "files://notes/d/e.txt"]).await;
    fs::rename(place.path().join("d"), place.path().join("f")).unwrap();
    let moved =
        ["d/c.txt", "d/e.txt", "f/c.txt", "f/e.txt"].map(|it| format!("files://notes/{it}"));
    told(&files, &moved.each_ref().map(String::as_str)).await;
    // In a directory that has moved, and in one that is made with all that is in it.
    put(place.path(), "f/c.txt", "changed");
    told(&files, &["files://notes/f/c.txt"]).await;
    put(place.path(), "x/y/z/1.txt", "1");
    put(place.path(), "x/y/z/2.txt", "2");
    told(
        &files,
        &["files://notes/x/y/z/1.txt", "files://notes/x/y/z/2.txt"],
    )
    .await;
    put(place.path(), "x/y/z/1.txt", "changed");
    told(&files, &["files://notes/x/y/z/1.txt"]).await;
    fs::remove_dir_all(place.path().join("x")).unwrap();
    told(
        &files,
        &["files://notes/x/y/z/1.txt", "files://notes/x/y/z/2.txt"],
    )
    .await;
    fs::remove_file(place.path().join("a.txt")).unwrap();
    told(&files, &["files://notes/a.txt"]).await;
    let rest = tokio::time::timeout(Duration::from_millis(300), files.changed()).await;
    assert!(rest.is_err(), "told again of {rest:?}");
}

#[tokio::test]
async fn where_the_system_announces_nothing_changes_are_looked_for_and_health_says_so() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "a.txt", "a");
    let files = open(FolderOptions {
        poll_only: true,
        ..FolderOptions::new(place.path())
    });
    put(place.path(), "a.txt", "changed");
    told(&files, &["files://notes/a.txt"]).await;
    let health = files.health().unwrap();
    assert!(health.ok);
    assert!(health.detail.unwrap().contains("looked at every 200 ms"));
}

#[tokio::test]
async fn a_directory_that_is_replaced_is_followed() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "1/a.txt", "one");
    put(place.path(), "2/a.txt", "two");
    let current = place.path().join("current");
    symlink("1", &current).unwrap();
    let files = open(FolderOptions::new(&current));
    assert_eq!(text(&files, "files://notes/a.txt").await.unwrap(), "one");
    symlink("2", place.path().join("next")).unwrap();
    fs::rename(place.path().join("next"), &current).unwrap();
    told(&files, &["files://notes/a.txt"]).await;
    assert_eq!(text(&files, "files://notes/a.txt").await.unwrap(), "two");
    put(place.path(), "2/a.txt", "changed");
    told(&files, &["files://notes/a.txt"]).await;
    fs::remove_file(&current).unwrap();
    let began = Instant::now();
    while files.health().unwrap().ok {
        assert!(
            began.elapsed() < PATIENCE,
            "health never says that the directory is gone"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn paths_are_completed_with_what_the_caller_may_read() {
    let place = tempfile::tempdir().unwrap();
    for path in [
        "reports/may.csv",
        "reports/march.csv",
        "reports/old/2025.csv",
        "readme.md",
        "secret/a",
    ] {
        put(place.path(), path, "x");
    }
    let files = open(FolderOptions::new(place.path()));
    let suggested = async |typed: &str, may: &'static str| {
        let cx = ToolCx::new("ada", "1").with_resources(Arc::new(MayRead(vec![may])));
        let asked = Complete {
            reference: CompletionReference::Resource {
                uri: "files://notes/{+path}".to_owned(),
            },
            argument: "path".to_owned(),
            value: typed.to_owned(),
            context: BTreeMap::new(),
        };
        files
            .prompts()
            .unwrap()
            .suggest(cx, &asked)
            .await
            .unwrap()
            .values
    };
    assert_eq!(
        suggested("", "files:").await,
        ["readme.md", "reports/", "secret/"]
    );
    assert_eq!(
        suggested("reports/", "files:").await,
        ["reports/march.csv", "reports/may.csv", "reports/old/"]
    );
    assert_eq!(
        suggested("reports/ma", "files:").await,
        ["reports/march.csv", "reports/may.csv"]
    );
    assert_eq!(suggested("", "files://notes/reports").await, ["reports/"]);
    assert!(
        suggested("secret/", "files://notes/reports")
            .await
            .is_empty()
    );
}

#[test]
fn lists_are_filtered_by_directory_and_address() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "a/1.txt", "x");
    put(place.path(), "b.txt", "x");
    let files = open(FolderOptions::new(place.path()));
    let resources = files.resources().unwrap();
    let matching = |category: Option<&str>, uri: Option<&str>| {
        let filter = ListResources {
            category: category.map(str::to_owned),
            uri: uri.map(str::to_owned),
            ..ListResources::default()
        };
        resources.matching(&filter).unwrap()
    };
    assert_eq!(matching(None, None), [0, 1]);
    assert_eq!(matching(Some("notes"), None), [0, 1]);
    assert_eq!(matching(Some("others"), None), [0; 0]);
    assert_eq!(matching(None, Some("files://notes/a/*")), [0]);
    assert_eq!(matching(None, Some("files://notes/b.txt")), [1]);
}

#[tokio::test]
async fn patterns_that_stand_for_nothing_are_told() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "priv/p.txt", "p");
    put(place.path(), "a.txt", "a");
    fs::create_dir(place.path().join("empty")).unwrap();
    let exclude = [
        "prvi/**", "priv", "PRIV/**", "*.bak", "a.txt", "empty/**", ".git/**",
    ];
    let files = open(FolderOptions {
        include: vec!["*.md".to_owned(), "**".to_owned()],
        exclude: exclude.map(str::to_owned).into(),
        ..FolderOptions::new(place.path())
    });
    let idle = || -> Vec<_> {
        let idle = files.idle_patterns();
        idle.map(|it| format!("{} {}", it.list, it.pattern))
            .collect()
    };
    let expected = [
        "include *.md",
        "exclude prvi/**",
        "exclude priv",
        "exclude PRIV/**",
        "exclude *.bak",
    ];
    assert_eq!(idle(), expected);
    let names = files.idle_patterns().next().unwrap().names;
    assert!(names.contains(&"priv/".to_owned()), "{names:?}");
    // What is only asked for is not there.
    assert_eq!(text(&files, "files://notes/prvi/x").await, None);
    assert_eq!(idle(), expected);
    put(place.path(), "deep/x.bak", "x");
    let began = Instant::now();
    while idle().len() == expected.len() {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn mistakes_in_options_are_told_with_their_place() {
    let place = tempfile::tempdir().unwrap();
    let failure = |name: &str, options: FolderOptions| {
        let error = Files::open(
            [(name.to_owned(), options)].into(),
            FilesOptions::new(Path::new("/nonexistent")),
        )
        .unwrap_err();
        let cause = std::error::Error::source(&error).unwrap();
        format!("{error}: {cause}")
    };
    let fine = || FolderOptions::new(place.path());
    assert!(failure("No tes", fine()).starts_with("resources.files.No tes: `No tes` is no name"));
    let pattern = FolderOptions {
        include: vec!["../*".to_owned()],
        ..fine()
    };
    assert!(failure("notes", pattern).contains("leads nowhere"));
    let missing = FolderOptions::new(place.path().join("missing"));
    assert!(failure("notes", missing).contains("missing cannot be opened as a directory"));
    put(place.path(), "file", "x");
    assert!(
        failure("notes", FolderOptions::new(place.path().join("file")))
            .contains("cannot be opened")
    );
}

/// A measure: `cargo test -p resources --release -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; wants a release build and a quiet machine"]
async fn ten_thousand_changes_of_ten_thousand_files() {
    measure(10_000, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_missed_and_none_is_told_twice() {
    measure(300, 500).await;
}

/// Changes `changes` times one of `count` files, in turn, and compares what is told with what was done: each change is
/// told once, and a file changes again only when its last change was told.
async fn measure(count: usize, changes: usize) {
    let place = tempfile::tempdir().unwrap();
    let path = |at: usize| format!("d{}/{at}.txt", at % 100);
    for at in 0..count {
        put(place.path(), &path(at), "0");
    }
    // Not with the first look's clock tick.
    thread::sleep(Duration::from_millis(120));
    let began = Instant::now();
    let files = open(FolderOptions::new(place.path()));
    println!("{count} files opened in {:?}", began.elapsed());
    let done: Arc<std::sync::Mutex<BTreeMap<String, Instant>>> = Arc::default();
    let writer = {
        let (done, root) = (Arc::clone(&done), place.path().to_owned());
        thread::spawn(move || {
            let mut random = 7_u64;
            for change in 0..changes {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = usize::try_from(random >> 33).unwrap() % count;
                let uri = format!("files://notes/{}", path(at));
                // One that is not told yet would be told once for both changes.
                if done.lock().unwrap().contains_key(&uri) {
                    continue;
                }
                done.lock().unwrap().insert(uri, Instant::now());
                fs::write(root.join(path(at)), change.to_string()).unwrap();
                thread::sleep(Duration::from_micros(300));
            }
        })
    };
    let mut latencies = Vec::new();
    loop {
        let quiet = Duration::from_millis(if writer.is_finished() { 400 } else { 5_000 });
        let Ok(told) = tokio::time::timeout(quiet, files.changed()).await else {
            break;
        };
        let now = Instant::now();
        for uri in told {
            let changed = done.lock().unwrap().remove(&uri);
            let changed = changed.unwrap_or_else(|| panic!("{uri} was told twice"));
            latencies.push(now.duration_since(changed));
        }
    }
    writer.join().unwrap();
    let missed = done.lock().unwrap().len();
    assert_eq!(missed, 0, "changes were missed");
    latencies.sort();
    let at = |part: usize| latencies[(latencies.len() - 1) * part / 100];
    println!(
        "{} changes told; p50 {:?}, p99 {:?}, most {:?}",
        latencies.len(),
        at(50),
        at(99),
        at(100)
    );
    assert!(changes / 2 < latencies.len());
}

#[test]
fn directories_that_share_files_are_refused_unless_one_excludes_the_other() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    put(place, "notes/priv/a.txt", "a");
    std::os::unix::fs::symlink(place.join("notes"), place.join("link")).unwrap();
    let all = |exclude: &[&str]| FolderOptions {
        exclude: exclude.iter().map(|it| (*it).to_owned()).collect(),
        ..FolderOptions::new(place)
    };
    let notes = |path: &str| FolderOptions::new(place.join(path));
    for (outer, inner, expected) in [
        (
            all(&[]),
            notes("notes"),
            Some("its directory is `notes` of `all`"),
        ),
        (all(&[]), notes("notes/priv"), Some("`notes/priv` of `all`")),
        (all(&[]), notes("link"), Some("`notes` of `all`")),
        (
            all(&["notes"]),
            notes("notes"),
            Some("exclude: [\"notes/**\"]"),
        ),
        (
            all(&[]),
            all(&[]),
            Some("its directory is that of `all`, too"),
        ),
        (all(&["notes/**"]), notes("notes"), None),
        (notes("notes"), notes("notes/priv"), Some("`priv` of `all`")),
    ] {
        let roots = [("all".to_owned(), outer), ("notes".to_owned(), inner)];
        let opened = Files::open(roots.into(), FilesOptions::new("/nonexistent"));
        let error = opened.err().map(|error| {
            let cause = std::error::Error::source(&error).unwrap();
            format!("{error}: {cause}")
        });
        match expected {
            Some(expected) => assert!(
                error.as_ref().is_some_and(|it| it.contains(expected)),
                "{error:?}, not {expected}"
            ),
            None => assert_eq!(error, None),
        }
    }
}

#[tokio::test]
async fn the_files_of_the_server_are_not_there() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let own = [
        "mcp.yaml",
        "data/ledger.db",
        "data/ledger.db-wal",
        "data/ledger-tasks.db",
    ];
    for path in own
        .iter()
        .chain(&["data/ledger.db.redaction-key", "keys/a", "keys/b/c"])
    {
        put(place, path, "SECRET");
    }
    put(place, "data/notes.txt", "open");
    put(place, "data/ledgers.txt", "open");
    fs::hard_link(place.join("mcp.yaml"), place.join("linked.txt")).unwrap();
    let options = FilesOptions {
        own: OwnFiles {
            kept: ["mcp.yaml", "data/ledger", "keys"]
                .map(|it| place.join(it))
                .into(),
            ..OwnFiles::default()
        },
        ..FilesOptions::new("/nonexistent")
    };
    let roots = [("all".to_owned(), FolderOptions::new(place))];
    let files = Files::open(roots.into(), options.clone()).unwrap();
    assert_eq!(
        listed(&files),
        ["files://all/data/ledgers.txt", "files://all/data/notes.txt"]
    );
    for path in own
        .iter()
        .chain(&["data/ledger.db.redaction-key", "data/LEDGER.db"])
    {
        assert_eq!(
            text(&files, &format!("files://all/{path}")).await,
            None,
            "{path}"
        );
    }
    for path in ["keys/a", "keys/b/c", "linked.txt"] {
        assert_eq!(
            text(&files, &format!("files://all/{path}")).await,
            None,
            "{path}"
        );
    }
    let notes = text(&files, "files://all/data/notes.txt").await;
    assert_eq!(notes.as_deref(), Some("open"));
    // What comes later, by a name of theirs.
    put(place, "data/ledger-search.db", "SECRET");
    assert_eq!(
        text(&files, "files://all/data/ledger-search.db").await,
        None
    );
    let inside = [("keys".to_owned(), FolderOptions::new(place.join("keys/b")))];
    let error = Files::open(inside.into(), options).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap();
    assert!(
        cause.to_string().contains("belongs to the server itself"),
        "{cause}"
    );
}

#[tokio::test]
async fn nobody_listens_to_files_beyond_those_that_are_followed() {
    let place = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt", "c.txt"] {
        put(place.path(), name, name);
    }
    let files = open(FolderOptions {
        max_files: 2,
        ..FolderOptions::new(place.path())
    });
    let resources = files.resources().unwrap();
    assert_eq!(resources.hear("files://notes/a.txt").await, Ok(()));
    assert!(resources.tells_of_changes("files://notes/a.txt"));
    for uri in ["files://notes/c.txt", "files://notes/d.txt"] {
        assert!(resources.hear(uri).await.is_err(), "{uri}");
        assert!(!resources.tells_of_changes(uri), "{uri}");
        assert!(resources.hear_absent(uri).is_err(), "{uri}");
    }
    // Who may not know of it is told nothing of its being there.
    assert!(resources.hear_absent("files://notes/a.txt").is_err());
    let files = open(FolderOptions::new(place.path()));
    let resources = files.resources().unwrap();
    assert_eq!(resources.hear_absent("files://notes/d.txt"), Ok(()));
    assert_eq!(resources.hear("files://notes/d.txt").await, Ok(()));
}

#[tokio::test]
async fn clients_keep_no_content_that_may_change() {
    let place = tempfile::tempdir().unwrap();
    put(place.path(), "a.txt", "a");
    for watch in [true, false] {
        let files = open(FolderOptions {
            watch,
            ..FolderOptions::new(place.path())
        });
        let asked = ReadResource {
            uri: "files://notes/a.txt".to_owned(),
            ..ReadResource::default()
        };
        let result = read(&files, asked).await.unwrap();
        assert_eq!(result.cache.ttl_ms, 0, "watch: {watch}");
    }
}

#[tokio::test]
async fn a_secret_in_bytes_is_read_neither_as_a_whole_nor_in_parts() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let secret = "canary-of-bytes-in-files";
    redaction::know([secret]);
    let place = tempfile::tempdir().unwrap();
    let bytes = [b"\x00\xff", secret.as_bytes(), b"\xfe"].concat();
    put(place.path(), "a.png", &bytes);
    put(place.path(), "a.txt", format!("before {secret} after"));
    let files = open(FolderOptions::new(place.path()));
    let part = async |uri: &str, range: Option<ByteRange>| {
        let asked = ReadResource {
            uri: uri.to_owned(),
            range,
            ..ReadResource::default()
        };
        let mut found = read(&files, asked).await.unwrap();
        let found = found.contents.remove(0);
        match found.blob {
            Some(blob) => STANDARD.decode(blob).unwrap(),
            None => found.text.unwrap().into_bytes(),
        }
    };
    let whole = part("files://notes/a.png", None).await;
    assert_eq!(whole, [b"\x00\xff", &[b'*'; 24][..], b"\xfe"].concat());
    for offset in 0..bytes.len() {
        let range = ByteRange {
            offset: offset as u64,
            length: Some(9),
        };
        let end = bytes.len().min(offset + 9);
        let found = part("files://notes/a.png", Some(range)).await;
        assert_eq!(found, whole[offset..end], "{offset}");
    }
    let range = ByteRange {
        offset: 0,
        length: Some(12),
    };
    let found = part("files://notes/a.txt", Some(range)).await;
    assert_eq!(found, b"before *****");
}
