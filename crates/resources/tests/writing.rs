//! Tools that write to files: what they do, what they refuse, and how it is undone.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    sync::Arc,
};

use adapter_tools::{CallMeter, Tool, ToolCx, ToolError};
use mcp_server::ToolSource;
use resources::{Files, FilesOptions, FolderOptions, OwnFiles};
use serde_json::{Value, json};
use support::MayRead;
use tempfile::TempDir;

struct Fixture {
    place: TempDir,
    files: Files,
}

fn fixture() -> Fixture {
    let place = tempfile::tempdir().unwrap();
    for directory in ["notes", "fixed", "outside"] {
        fs::create_dir(place.path().join(directory)).unwrap();
    }
    fs::write(place.path().join("outside/a.txt"), "SECRET").unwrap();
    fs::write(place.path().join("fixed/a.txt"), "fixed").unwrap();
    let files = open(place.path());
    Fixture { place, files }
}

fn open(place: &Path) -> Files {
    let folders = [
        (
            "notes".to_owned(),
            FolderOptions {
                writable: true,
                versions: 3,
                max_bytes: 100,
                exclude: vec!["fixed/**".to_owned()],
                ..FolderOptions::new(place.join("notes"))
            },
        ),
        ("fixed".to_owned(), FolderOptions::new(place.join("fixed"))),
    ];
    Files::open(folders.into(), FilesOptions::new(place.join("kept.db"))).unwrap()
}

impl Fixture {
    fn tool(&self, name: &str) -> Tool {
        let tools = self.files.tools(&Default::default()).tools;
        tools.into_iter().find(|it| it.name() == name).unwrap()
    }

    /// Calls a tool as somebody who may read what begins with `may`; answer and note for the record.
    async fn call_as(
        &self,
        may: &'static str,
        name: &str,
        arguments: Value,
    ) -> (Result<Value, String>, String) {
        let meter = Arc::new(CallMeter::default());
        let cx = ToolCx::metered("ada", "1", Arc::clone(&meter))
            .with_resources(Arc::new(MayRead(vec![may])));
        let tool = self.tool(name);
        let arguments = tool.check(arguments.to_string().into()).unwrap();
        let outcome = match tool.execute(cx, arguments).await {
            Ok(output) => Ok(serde_json::from_str(output.structured.unwrap().get()).unwrap()),
            Err(ToolError::Failed(failure)) => Err(failure.message),
            Err(error) => panic!("{error:?}"),
        };
        (outcome, meter.told().unwrap_or_default())
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<Value, String> {
        self.call_as("files:", name, arguments).await.0
    }

    fn on_disk(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.place.path().join(path)).ok()
    }
}

#[tokio::test]
async fn files_are_created_replaced_moved_and_deleted() {
    let it = fixture();
    let (uri, moved) = ("files://notes/deep/a.txt", "files://notes/b/b.txt");
    let (created, record) = it
        .call_as(
            "files:",
            "resource-create",
            json!({"uri": uri, "text": "one"}),
        )
        .await;
    let created = created.unwrap();
    assert_eq!(
        (created["status"].as_str(), created["size"].as_u64()),
        (Some("created"), Some(3))
    );
    assert_eq!(it.on_disk("notes/deep/a.txt").unwrap(), "one");
    let etag = created["etag"].as_str().unwrap().to_owned();
    assert_eq!(
        record,
        format!("{uri} created: SHA-256 before none, after {etag}")
    );
    let again = it
        .call("resource-create", json!({"uri": uri, "text": "two"}))
        .await;
    assert!(again.unwrap_err().contains("is there already"));
    let (written, record) = it
        .call_as(
            "files:",
            "resource-write",
            json!({"uri": uri, "text": "two", "ifMatch": etag}),
        )
        .await;
    let written = written.unwrap();
    assert_eq!(
        (&written["status"], &written["etagBefore"]),
        (&json!("updated"), &json!(etag))
    );
    assert!(record.contains(&format!(
        "before {etag}, after {}",
        written["etag"].as_str().unwrap()
    )));
    let path = it.place.path().join("notes/deep/a.txt");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o662)).unwrap();
    it.call("resource-write", json!({"uri": uri, "text": "kept"}))
        .await
        .unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o662
    );
    it.call("resource-write", json!({"uri": uri, "text": "two"}))
        .await
        .unwrap();
    let stale = it
        .call(
            "resource-write",
            json!({"uri": uri, "text": "three", "ifMatch": etag}),
        )
        .await;
    assert!(stale.unwrap_err().contains("has changed"));
    assert_eq!(it.on_disk("notes/deep/a.txt").unwrap(), "two");
    let same = it
        .call("resource-write", json!({"uri": uri, "text": "two"}))
        .await
        .unwrap();
    assert_eq!(same["status"], "unchanged");
    it.call("resource-move", json!({"uri": uri, "to": moved}))
        .await
        .unwrap();
    assert_eq!(
        (it.on_disk("notes/deep/a.txt"), it.on_disk("notes/b/b.txt")),
        (None, Some("two".to_owned()))
    );
    let blob = it
        .call("resource-write", json!({"uri": moved, "blob": "/w=="}))
        .await
        .unwrap();
    assert_eq!(blob["size"], 1);
    assert_eq!(
        fs::read(it.place.path().join("notes/b/b.txt")).unwrap(),
        [255]
    );
    it.call("resource-delete", json!({"uri": moved}))
        .await
        .unwrap();
    assert_eq!(it.on_disk("notes/b/b.txt"), None);
    let gone = it.call("resource-delete", json!({"uri": moved})).await;
    assert!(gone.unwrap_err().contains("there is no resource"));
    // Nothing is left of unfinished writes.
    let left = fs::read_dir(it.place.path().join("notes/b"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_says_what_would_be_done() {
    let it = fixture();
    let uri = "files://notes/a.txt";
    let dry = json!({"uri": uri, "text": "one", "dryRun": true});
    let (said, record) = it.call_as("files:", "resource-create", dry).await;
    assert_eq!(
        (said.unwrap()["status"].as_str(), record.as_str()),
        (Some("created"), "")
    );
    assert_eq!(it.on_disk("notes/a.txt"), None);
    fs::write(it.place.path().join("notes/a.txt"), "one").unwrap();
    it.call(
        "resource-write",
        json!({"uri": uri, "text": "two", "dryRun": true}),
    )
    .await
    .unwrap();
    it.call("resource-delete", json!({"uri": uri, "dryRun": true}))
        .await
        .unwrap();
    let to = "files://notes/x/b.txt";
    it.call(
        "resource-move",
        json!({"uri": uri, "to": to, "dryRun": true}),
    )
    .await
    .unwrap();
    assert_eq!(it.on_disk("notes/a.txt").unwrap(), "one");
    assert!(!it.place.path().join("notes/x").exists());
    let refused = it
        .call(
            "resource-create",
            json!({"uri": uri, "text": "x", "dryRun": true}),
        )
        .await;
    assert!(
        refused.is_err(),
        "a dry run is refused what the call would be"
    );
    assert!(
        it.call("resource-undo", json!({"uri": uri})).await.is_err(),
        "nothing is kept"
    );
}

#[tokio::test]
async fn a_dry_run_promises_nothing_that_is_refused_then() {
    let it = fixture();
    let notes = it.place.path().join("notes");
    fs::write(notes.join("a.txt"), "a").unwrap();
    fs::write(notes.join("b.txt"), "b").unwrap();
    symlink("../outside", notes.join("linked")).unwrap();
    symlink("../outside/a.txt", notes.join("link.txt")).unwrap();
    fs::create_dir(notes.join("directory.txt")).unwrap();
    for (tool, mut arguments) in [
        (
            "resource-create",
            json!({"uri": "files://notes/a.txt/below.txt", "text": "x"}),
        ),
        (
            "resource-create",
            json!({"uri": "files://notes/linked/new.txt", "text": "x"}),
        ),
        (
            "resource-create",
            json!({"uri": "files://notes/link.txt", "text": "x"}),
        ),
        (
            "resource-create",
            json!({"uri": "files://notes/directory.txt", "text": "x"}),
        ),
        (
            "resource-move",
            json!({"uri": "files://notes/a.txt", "to": "files://notes/b.txt/a.txt"}),
        ),
        (
            "resource-move",
            json!({"uri": "files://notes/a.txt", "to": "files://notes/linked/a.txt"}),
        ),
        (
            "resource-move",
            json!({"uri": "files://notes/a.txt", "to": "files://notes/link.txt"}),
        ),
    ] {
        let refused = it.call(tool, arguments.clone()).await.unwrap_err();
        arguments["dryRun"] = json!(true);
        let dry = it.call(tool, arguments.clone()).await;
        assert_eq!(dry.unwrap_err(), refused, "{tool} {arguments}");
    }
    for (tool, mut arguments) in [
        (
            "resource-create",
            json!({"uri": "files://notes/deep/er/a.txt", "text": "x"}),
        ),
        (
            "resource-move",
            json!({"uri": "files://notes/a.txt", "to": "files://notes/other/a.txt"}),
        ),
    ] {
        let done = arguments.clone();
        arguments["dryRun"] = json!(true);
        it.call(tool, arguments).await.unwrap();
        it.call(tool, done).await.unwrap();
    }
    assert_eq!(it.on_disk("outside/a.txt").unwrap(), "SECRET");
}

#[tokio::test]
async fn a_directory_that_is_moved_away_is_neither_read_nor_written_to() {
    let it = fixture();
    let (notes, away) = (it.place.path().join("notes"), it.place.path().join("away"));
    fs::write(notes.join("a.txt"), "a").unwrap();
    fs::rename(&notes, &away).unwrap();
    let uri = "files://notes/a.txt";
    for (tool, arguments) in [
        ("resource-write", json!({"uri": uri, "text": "x"})),
        (
            "resource-create",
            json!({"uri": "files://notes/b.txt", "text": "x"}),
        ),
        (
            "resource-create",
            json!({"uri": "files://notes/b.txt", "text": "x", "dryRun": true}),
        ),
        ("resource-delete", json!({"uri": uri})),
    ] {
        let refused = it.call(tool, arguments).await.unwrap_err();
        assert!(
            refused.contains("there is no resource"),
            "{tool}: {refused}"
        );
    }
    assert_eq!(it.on_disk("away/a.txt").unwrap(), "a");
    assert_eq!(it.on_disk("away/b.txt"), None);
}

#[tokio::test]
async fn earlier_states_are_put_back_also_after_a_restart() {
    let mut it = fixture();
    let uri = "files://notes/a.txt";
    it.call("resource-create", json!({"uri": uri, "text": "1"}))
        .await
        .unwrap();
    for text in ["2", "3", "4"] {
        it.call("resource-write", json!({"uri": uri, "text": text}))
            .await
            .unwrap();
    }
    it.call("resource-delete", json!({"uri": uri}))
        .await
        .unwrap();
    let place = it.place;
    drop(it.files);
    it = Fixture {
        files: open(place.path()),
        place,
    };
    let undone = it.call("resource-undo", json!({"uri": uri})).await.unwrap();
    assert_eq!(
        (
            undone["status"].as_str(),
            it.on_disk("notes/a.txt").as_deref()
        ),
        (Some("restored"), Some("4"))
    );
    let versions = undone["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 3, "of each file three are kept");
    assert_eq!(versions[0]["size"], Value::Null, "the file was not there");
    let oldest = &versions[2]["version"];
    // For JSON Schema it is the same integer.
    let oldest: Value = serde_json::from_str(&format!("{oldest}.0")).unwrap();
    it.call("resource-undo", json!({"uri": uri, "version": oldest}))
        .await
        .unwrap();
    assert_eq!(it.on_disk("notes/a.txt").as_deref(), Some("3"));
    let other = it
        .call(
            "resource-undo",
            json!({"uri": "files://notes/b.txt", "version": oldest}),
        )
        .await;
    assert!(other.is_err(), "of another file");
}

#[tokio::test]
async fn nobody_writes_out_of_a_root_or_where_it_is_not_permitted() {
    let it = fixture();
    let notes = it.place.path().join("notes");
    symlink(it.place.path().join("outside"), notes.join("link")).unwrap();
    symlink(it.place.path().join("outside/a.txt"), notes.join("a.txt")).unwrap();
    fs::create_dir(notes.join("fixed")).unwrap();
    for uri in [
        "files://notes/link/a.txt",
        "files://notes/link/new.txt",
        "files://notes/a.txt",
        "files://notes/../outside/a.txt",
        "files://notes/%2e%2e/outside/a.txt",
        "files://notes/.hidden",
        "files://notes/%61.txt",
        "files://fixed/a.txt",
        "files://fixed/new.txt",
        "files://notes/fixed/a.txt",
        "files://unknown/a.txt",
        "/etc/passwd",
        "files://notes/x%2Fa.txt",
        "skill://a/b",
    ] {
        for (tool, arguments) in [
            ("resource-create", json!({"uri": uri, "text": "MINE"})),
            ("resource-write", json!({"uri": uri, "text": "MINE"})),
            ("resource-delete", json!({"uri": uri})),
            (
                "resource-move",
                json!({"uri": uri, "to": "files://notes/free.txt"}),
            ),
            ("resource-undo", json!({"uri": uri})),
        ] {
            assert!(it.call(tool, arguments).await.is_err(), "{tool} {uri}");
        }
    }
    fs::write(notes.join("mine.txt"), "mine").unwrap();
    for to in [
        "files://notes/link/new.txt",
        "files://fixed/new.txt",
        "files://notes/../x",
        "files://notes/.x",
    ] {
        let moved = it
            .call(
                "resource-move",
                json!({"uri": "files://notes/mine.txt", "to": to}),
            )
            .await;
        assert!(moved.is_err(), "{to}");
    }
    // What is wrong with the new address is not said of the old one.
    fs::write(notes.join("taken.txt"), "taken").unwrap();
    for (to, said) in [
        (
            "files://notes/taken.txt",
            "notes/taken.txt is there already",
        ),
        (
            "files://notes/taken.txt/new.txt",
            "notes/taken.txt/new.txt cannot be made",
        ),
        ("files://fixed/new.txt", "`fixed` are not to be written to"),
        ("files://none/new.txt", "no resource files://none/new.txt"),
    ] {
        let uri = "files://notes/mine.txt";
        let moved = it
            .call("resource-move", json!({"uri": uri, "to": to}))
            .await;
        let message = moved.unwrap_err();
        assert!(
            message.contains(said) && !message.contains(uri),
            "{to}: {message}"
        );
    }
    assert_eq!(it.on_disk("outside/a.txt").unwrap(), "SECRET");
    assert_eq!(it.on_disk("fixed/a.txt").unwrap(), "fixed");
    assert_eq!(
        fs::read_dir(it.place.path().join("outside"))
            .unwrap()
            .count(),
        1
    );
    // Rules may be about the text of the address, so it has one spelling.
    let spelt = json!({"uri": "files://notes/min%65.txt", "text": "x"});
    assert!(
        it.call("resource-write", spelt)
            .await
            .unwrap_err()
            .contains("is spelt files://notes/mine.txt")
    );
    // What a caller may not read looks to it like what is not there.
    let refused = |tool: &'static str, uri: &'static str| {
        let arguments = match tool {
            "resource-delete" => json!({"uri": uri}),
            _ => json!({"uri": uri, "text": "x"}),
        };
        it.call_as("files://notes/open/", tool, arguments)
    };
    for tool in ["resource-write", "resource-delete", "resource-create"] {
        let hidden = refused(tool, "files://notes/mine.txt").await.0.unwrap_err();
        let absent = refused(tool, "files://notes/none.txt").await.0.unwrap_err();
        assert_eq!(hidden.replace("mine", "none"), absent);
    }
    assert_eq!(it.on_disk("notes/mine.txt").unwrap(), "mine");
    let large = it
        .call(
            "resource-create",
            json!({"uri": "files://notes/l.txt", "text": "x".repeat(101)}),
        )
        .await;
    assert!(large.unwrap_err().contains("100 are allowed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_writers_that_expect_the_same_state_one_succeeds() {
    let it = Arc::new(fixture());
    let uri = "files://notes/a.txt";
    let created = it
        .call("resource-create", json!({"uri": uri, "text": "0"}))
        .await
        .unwrap();
    let etag = created["etag"].clone();
    let writers = (1..=8).map(|number| {
        let (it, etag) = (Arc::clone(&it), etag.clone());
        tokio::spawn(async move {
            let arguments = json!({"uri": uri, "text": number.to_string(), "ifMatch": etag});
            it.call("resource-write", arguments).await.is_ok()
        })
    });
    let mut succeeded = 0;
    for writer in writers.collect::<Vec<_>>() {
        succeeded += u32::from(writer.await.unwrap());
    }
    assert_eq!(succeeded, 1);
}

#[test]
fn what_destroys_is_confirmed_and_nothing_is_offered_where_nothing_can_be_written() {
    let it = fixture();
    let tools = it.files.tools(&Default::default()).tools;
    let confirmed = |tool: &Tool| {
        tool.rules()
            .iter()
            .any(|it| it["requires_confirmation"] == true)
    };
    let names: Vec<_> = tools
        .iter()
        .map(|it| (it.name().to_owned(), confirmed(it)))
        .collect();
    let expected = [
        ("resource-create", false),
        ("resource-write", false),
        ("resource-delete", true),
        ("resource-move", false),
        ("resource-undo", true),
    ];
    assert_eq!(names, expected.map(|(name, it)| (name.to_owned(), it)));
    let fixed = FolderOptions::new(it.place.path().join("fixed"));
    let files = Files::open(
        [("fixed".to_owned(), fixed)].into(),
        FilesOptions::new(it.place.path().join("none.db")),
    )
    .unwrap();
    assert!(files.tools(&Default::default()).tools.is_empty());
    assert!(!it.place.path().join("none.db").exists());
}

#[tokio::test]
async fn nothing_of_the_server_is_written_and_no_code_that_it_runs() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    for directory in ["data", "app", "notes"] {
        fs::create_dir(path.join(directory)).unwrap();
    }
    for file in ["data/ledger.db", "app/main.py", "notes/a.txt", "mcp.yaml"] {
        fs::write(path.join(file), "own").unwrap();
    }
    let options = FilesOptions {
        own: OwnFiles {
            kept: ["mcp.yaml", "data/ledger", "later/key"]
                .map(|it| path.join(it))
                .into(),
            code: vec![path.join("app")],
        },
        ..FilesOptions::new(path.join("data/ledger-resources.db"))
    };
    let all = FolderOptions {
        writable: true,
        ..FolderOptions::new(path)
    };
    let files = Files::open([("all".to_owned(), all)].into(), options).unwrap();
    let it = Fixture { place, files };
    for (tool, uri) in [
        ("resource-write", "files://all/mcp.yaml"),
        ("resource-create", "files://all/mcp.yaml"),
        ("resource-create", "files://all/mcp.yaml/x"),
        ("resource-write", "files://all/data/ledger.db"),
        ("resource-create", "files://all/data/ledger.db-wal"),
        ("resource-create", "files://all/later/key"),
        ("resource-create", "files://all/later/other"),
        ("resource-write", "files://all/app/main.py"),
        ("resource-create", "files://all/app/helper.py"),
        ("resource-create", "files://all/app/lib/helper.PY"),
    ] {
        for dry in [true, false] {
            let arguments = json!({ "uri": uri, "text": "x", "dryRun": dry });
            let said = it.call(tool, arguments).await;
            assert!(said.is_err(), "{tool} {uri}: {said:?}");
        }
    }
    for (from, to) in [
        ("files://all/notes/a.txt", "files://all/data/ledger.db-shm"),
        ("files://all/notes/a.txt", "files://all/app/lib/a.py"),
        ("files://all/mcp.yaml", "files://all/notes/b.txt"),
        ("files://all/app/main.py", "files://all/notes/b.txt"),
    ] {
        for dry in [true, false] {
            let arguments = json!({ "uri": from, "to": to, "dryRun": dry });
            let said = it.call("resource-move", arguments).await;
            assert!(said.is_err(), "{from} to {to}: {said:?}");
        }
    }
    let path = it.place.path();
    for file in ["data/ledger.db", "app/main.py", "notes/a.txt", "mcp.yaml"] {
        assert_eq!(
            fs::read_to_string(path.join(file)).unwrap(),
            "own",
            "{file}"
        );
    }
    // What was made on the way to a write that failed is gone again.
    assert!(!path.join("later").exists() && !path.join("app/lib").exists());
    let said = it.call(
        "resource-create",
        json!({ "uri": "files://all/app/a.txt", "text": "x" }),
    );
    assert_eq!(said.await.unwrap()["status"], "created");
}

#[tokio::test]
async fn what_is_written_where_nothing_is_followed_is_listed_and_told() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("notes")).unwrap();
    let notes = FolderOptions {
        writable: true,
        watch: false,
        ..FolderOptions::new(place.path().join("notes"))
    };
    let options = FilesOptions::new(place.path().join("kept.db"));
    let files = Files::open([("notes".to_owned(), notes)].into(), options).unwrap();
    let mut lists = files.changes().unwrap();
    let it = Fixture { place, files };
    let uri = "files://notes/a.txt";
    it.call("resource-create", json!({ "uri": uri, "text": "a" }))
        .await
        .unwrap();
    let patience = std::time::Duration::from_secs(10);
    let told = tokio::time::timeout(patience, it.files.changed()).await;
    assert_eq!(told.unwrap(), [uri.to_owned()].into());
    assert!(lists.has_changed().unwrap());
    lists.mark_unchanged();
    let listed = |it: &Fixture| {
        let resources = it.files.resources().unwrap();
        let entries = resources.entries().iter();
        entries
            .map(|it| it.resource.uri.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&it), [uri]);
    let moved = "files://notes/b.txt";
    it.call("resource-move", json!({ "uri": uri, "to": moved }))
        .await
        .unwrap();
    assert_eq!(listed(&it), [moved]);
    assert!(lists.has_changed().unwrap());
}

#[tokio::test]
async fn versions_are_numbered_file_by_file_and_stay_with_their_directory() {
    let it = fixture();
    let write = |uri: &'static str, text: &'static str| {
        it.call("resource-write", json!({ "uri": uri, "text": text }))
    };
    for uri in ["files://notes/a.txt", "files://notes/hidden.txt"] {
        it.call("resource-create", json!({ "uri": uri, "text": "0" }))
            .await
            .unwrap();
    }
    let said = write("files://notes/a.txt", "1").await.unwrap();
    let first = said["versions"][0]["version"].as_i64().unwrap();
    for text in ["1", "2", "3"] {
        write("files://notes/hidden.txt", text).await.unwrap();
    }
    let said = write("files://notes/a.txt", "2").await.unwrap();
    assert_eq!(said["versions"][0]["version"], first + 1, "{said}");
    // Another directory by the same name.
    let Fixture { place, files } = it;
    drop(files);
    let (notes, old) = (place.path().join("notes"), place.path().join("old"));
    fs::rename(&notes, &old).unwrap();
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("a.txt"), "of another").unwrap();
    let files = open(place.path());
    let it = Fixture { place, files };
    let said = it
        .call("resource-undo", json!({ "uri": "files://notes/a.txt" }))
        .await;
    assert!(said.unwrap_err().contains("no such earlier state"));
    let said = it
        .call(
            "resource-write",
            json!({ "uri": "files://notes/a.txt", "text": "x" }),
        )
        .await;
    assert_eq!(said.unwrap()["versions"].as_array().unwrap().len(), 1);
}
