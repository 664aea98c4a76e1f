//! Searches over files, skills and others: what is found, by whom, and how the index follows.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod support;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use adapter_skills::{ScanOptions, SkillCatalog};
use adapter_tools::{ToolCx, ToolError};
use mcp_protocol::model::Resource;
use mcp_server::{ResourceEntry, ToolSource};
use resources::{Files, FilesOptions, FolderOptions, Search};
use serde_json::{Value, json};
use support::MayRead;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

struct Fixture {
    search: Search,
    files: Files,
    skills: SkillCatalog,
}

fn put(directory: &Path, path: &str, content: &str) {
    let path = directory.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn open(place: &Path) -> Fixture {
    let options = FolderOptions::new(place.join("notes"));
    let files = Files::open(
        [("notes".to_owned(), options)].into(),
        FilesOptions::new(place.join("kept.db")),
    )
    .unwrap();
    let search = Search::open(&place.join("search.db"), Some(&files)).unwrap();
    let (skills, _) = SkillCatalog::scan(&ScanOptions::new(place.join("skills")));
    Fixture {
        search,
        files,
        skills,
    }
}

fn library() -> (TempDir, Fixture) {
    let place = tempfile::tempdir().unwrap();
    put(
        place.path(),
        "notes/refunds.md",
        "# Refunds\nGifts are refunded within thirty days.",
    );
    put(
        place.path(),
        "notes/private/margins.md",
        "Margins of refunds and gifts: refund refund refund.",
    );
    put(
        place.path(),
        "notes/opening.txt",
        "Open on holidays. Ask for Zoë.",
    );
    put(place.path(), "notes/监控.md", "交易监控需要每天检查。");
    put(place.path(), "notes/blob.bin", "refund\0");
    put(
        place.path(),
        "skills/service/refund-policy/SKILL.md",
        "---\nname: refund-policy\ndescription: When money is given back.\ntags: [money]\n---\nThirty days.\n",
    );
    let fixture = open(place.path());
    (place, fixture)
}

impl Fixture {
    async fn current(&self) {
        let began = Instant::now();
        while !self.search.is_current() {
            assert!(began.elapsed() < PATIENCE, "the index is never current");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn ask(&self, may: &'static [&'static str], arguments: Value) -> Result<Value, String> {
        let tool = self.search.tools(&self.skills).tools.remove(0);
        self.current().await;
        let cx = ToolCx::new("ada", "1").with_resources(Arc::new(MayRead(may.to_vec())));
        let arguments = tool
            .check(arguments.to_string().into())
            .map_err(|error| format!("{error:?}"))?;
        match tool.execute(cx, arguments).await {
            Ok(output) => Ok(serde_json::from_str(output.structured.unwrap().get()).unwrap()),
            Err(ToolError::Failed(failure)) => Err(failure.message),
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn found(&self, query: &str) -> BTreeSet<String> {
        let said = self.ask(&[""], json!({"query": query})).await.unwrap();
        uris(&said).into_iter().collect()
    }

    /// Asks until exactly these are found.
    async fn finds(&self, query: &str, expected: &[&str]) {
        let expected: BTreeSet<_> = expected.iter().map(|it| (*it).to_owned()).collect();
        let began = Instant::now();
        loop {
            let found = self.found(query).await;
            if found == expected {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{query}: {found:?}, not {expected:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn uris(said: &Value) -> Vec<String> {
    let results = said["results"].as_array().unwrap().iter();
    results
        .map(|it| it["uri"].as_str().unwrap().to_owned())
        .collect()
}

const REFUNDS: &str = "files://notes/refunds.md";
const MARGINS: &str = "files://notes/private/margins.md";
const POLICY: &str = "skill://service/refund-policy";

#[tokio::test]
async fn resources_are_found_by_names_and_texts_the_best_first() {
    let (_place, it) = library();
    let said = it.ask(&[""], json!({"query": "refund"})).await.unwrap();
    assert_eq!(
        uris(&said),
        [REFUNDS, POLICY, MARGINS],
        "a name counts more than a text"
    );
    assert_eq!(
        (&said["total"], &said["matched"]),
        (&json!(3), &json!("all"))
    );
    let relevance: Vec<_> = said["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["relevance"].as_f64().unwrap())
        .collect();
    assert!(
        (relevance[0] - 1.0).abs() < 1e-9 && relevance.is_sorted_by(|a, b| a >= b),
        "{relevance:?}"
    );
    let said = it
        .ask(&[""], json!({"query": "thirty days gifts"}))
        .await
        .unwrap();
    assert_eq!(uris(&said), [REFUNDS]);
    let highlight = said["results"][0]["highlights"][0].as_str().unwrap();
    assert_eq!(
        highlight,
        "# Refunds **Gifts** are refunded within **thirty** **days**."
    );
    assert_eq!(it.found("holid* as*").await.len(), 1);
    assert_eq!(
        it.found("zoe").await,
        ["files://notes/opening.txt".to_owned()].into()
    );
    assert_eq!(
        it.found("监控").await,
        ["files://notes/监控.md"]
            .map(|it| it.replace("监控", "%E7%9B%91%E6%8E%A7"))
            .into()
    );
    assert_eq!(it.found("\"open on holidays\"").await.len(), 1);
    assert!(it.found("\"holidays open\"").await.is_empty());
    // Where no document has all words, any will do.
    let said = it
        .ask(&[""], json!({"query": "holidays unheard-of"}))
        .await
        .unwrap();
    assert_eq!((uris(&said).len(), &said["matched"]), (1, &json!("any")));
}

#[tokio::test]
async fn what_a_caller_may_not_know_is_neither_found_nor_counted() {
    let (_place, it) = library();
    let open = it
        .ask(
            &["files://notes/refunds", "skill:"],
            json!({"query": "refund"}),
        )
        .await
        .unwrap();
    assert_eq!(uris(&open), [REFUNDS, POLICY]);
    assert_eq!(
        (&open["total"], &open["totalIsExact"], &open["nextOffset"]),
        (&json!(2), &json!(true), &Value::Null)
    );
    assert!((open["results"][0]["relevance"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    let none = it
        .ask(&["files://notes/opening"], json!({"query": "margins"}))
        .await
        .unwrap();
    let absent = it
        .ask(&["files://notes/opening"], json!({"query": "unheard"}))
        .await
        .unwrap();
    assert_eq!(none, absent);
    assert_eq!(none["total"], 0);
}

#[tokio::test]
async fn results_are_filtered_and_paged() {
    let (_place, it) = library();
    for (filter, expected) in [
        (json!({"kind": "skill"}), vec![POLICY]),
        (
            json!({"kind": "file", "uri": "files://notes/private/"}),
            vec![MARGINS],
        ),
        (json!({"category": "service"}), vec![POLICY]),
        (json!({"tag": "money"}), vec![POLICY]),
        (json!({"tag": "mon"}), vec![]),
        (
            json!({"mediaType": "text/", "category": "notes"}),
            vec![REFUNDS, MARGINS],
        ),
        (json!({"mediaType": "application/"}), vec![]),
        (
            json!({"modifiedSince": "2000-01-01"}),
            vec![REFUNDS, POLICY, MARGINS],
        ),
        (json!({"modifiedSince": "2999-01-01T00:00:00Z"}), vec![]),
    ] {
        let mut asked = filter.clone();
        asked["query"] = json!("refund");
        let said = it.ask(&[""], asked).await.unwrap();
        assert_eq!(uris(&said), expected, "{filter}");
    }
    let mut seen = Vec::new();
    let mut offset = json!(0);
    while !offset.is_null() {
        let said = it
            .ask(
                &[""],
                // For JSON Schema it is an integer.
                json!({"query": "refund", "limit": 1.0, "offset": offset}),
            )
            .await
            .unwrap();
        assert_eq!(said["total"], 3);
        seen.extend(uris(&said));
        offset = said["nextOffset"].clone();
    }
    assert_eq!(seen, [REFUNDS, POLICY, MARGINS]);
    for wrong in [
        json!({"query": "a", "limit": 0}),
        json!({"query": "a", "modifiedSince": "yesterday"}),
        json!({"query": "a", "sql": "x"}),
        json!({"query": "\"*()"}),
    ] {
        assert!(it.ask(&[""], wrong.clone()).await.is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn queries_are_words_and_never_statements() {
    let (_place, it) = library();
    for query in [
        "' OR 1=1 --",
        "\" OR \"",
        "refund) OR (content MATCH x",
        "name:refund",
        "NEAR(refund gifts)",
        "refund*'; DROP TABLE document; --",
        "{name body}: x",
        "^refund",
        "-refund",
        "NOT refund",
        "\u{0}refund\u{0}",
        "%",
        "_",
        "\u{2}\u{3}",
    ] {
        let _fine = it.ask(&[""], json!({"query": query})).await;
        let conditions = ["uri", "tag", "category", "mediaType"];
        for condition in conditions {
            let mut asked = json!({"query": "refund"});
            asked[condition] = json!(query);
            assert_eq!(
                it.ask(&[""], asked).await.unwrap()["total"],
                0,
                "{condition} {query}"
            );
        }
    }
    assert_eq!(it.found("refund").await.len(), 3);
}

#[tokio::test]
async fn the_index_follows_changes_and_survives_restarts() {
    let (place, it) = library();
    it.finds("sesame", &[]).await;
    put(place.path(), "notes/new.txt", "sesame");
    it.finds("sesame", &["files://notes/new.txt"]).await;
    fs::rename(
        place.path().join("notes/new.txt"),
        place.path().join("notes/moved.txt"),
    )
    .unwrap();
    it.finds("sesame", &["files://notes/moved.txt"]).await;
    put(place.path(), "notes/moved.txt", "poppy");
    it.finds("sesame", &[]).await;
    it.finds("poppy", &["files://notes/moved.txt"]).await;
    let told = ResourceEntry {
        resource: Resource {
            uri: "upstream://weather".to_owned(),
            name: "weather".to_owned(),
            description: Some("Poppy fields forecast".to_owned()),
            ..Resource::default()
        },
        ..ResourceEntry::default()
    };
    it.search.offered(&[told]);
    it.finds("poppy", &["files://notes/moved.txt", "upstream://weather"])
        .await;
    it.search.offered(&[]);
    it.finds("poppy", &["files://notes/moved.txt"]).await;
    drop(it);
    // Changed while nobody looked: one file of three.
    put(place.path(), "notes/moved.txt", "caraway");
    fs::remove_file(place.path().join("notes/opening.txt")).unwrap();
    fs::remove_dir_all(place.path().join("skills/service")).unwrap();
    let it = wait_open(place.path()).await;
    it.finds("caraway", &["files://notes/moved.txt"]).await;
    it.finds("poppy", &[]).await;
    it.finds("holidays", &[]).await;
    it.finds("refund", &[REFUNDS, MARGINS]).await;
}

/// Opens again what another thread may still be about to let go.
async fn wait_open(place: &Path) -> Fixture {
    let began = Instant::now();
    loop {
        let options = FolderOptions::new(place.join("notes"));
        let files = Files::open(
            [("notes".to_owned(), options)].into(),
            FilesOptions::new(place.join("kept.db")),
        )
        .unwrap();
        match Search::open(&place.join("search.db"), Some(&files)) {
            Ok(search) => {
                let (skills, _) = SkillCatalog::scan(&ScanOptions::new(place.join("skills")));
                return Fixture {
                    search,
                    files,
                    skills,
                };
            }
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn an_index_that_is_none_is_not_overwritten() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("search.db");
    fs::write(&path, "my only copy".repeat(100)).unwrap();
    let error = Search::open(&path, None).unwrap_err();
    assert_eq!(error.to_string(), "resources.search.path");
    assert!(
        fs::read_to_string(&path)
            .unwrap()
            .starts_with("my only copy")
    );
}

/// A measure: `cargo test -p resources --release --test search -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "measures; wants a release build and a quiet machine"]
async fn a_hundred_thousand_documents() {
    let place = tempfile::tempdir().unwrap();
    let mut random = 7_u64;
    let mut next = move |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Few words are frequent, most are rare.
        let part = (random >> 33) as f64 / f64::from(1_u32 << 31);
        (part * part * part * below as f64) as u64
    };
    for number in 0..100_000 {
        let words: Vec<_> = (0..120).map(|_| format!("w{}", next(20_000))).collect();
        put(
            place.path(),
            &format!("notes/{}/{number}.txt", number % 300),
            &words.join(" "),
        );
    }
    fs::create_dir_all(place.path().join("skills")).unwrap();
    let options = || FolderOptions {
        max_files: 200_000,
        ..FolderOptions::new(place.path().join("notes"))
    };
    for round in ["first", "second"] {
        let began = Instant::now();
        let files = Files::open(
            [("notes".to_owned(), options())].into(),
            FilesOptions::new(place.path().join("kept.db")),
        )
        .unwrap();
        println!("{round}: files listed in {:?}", began.elapsed());
        let began = Instant::now();
        let search = Search::open(&place.path().join("search.db"), Some(&files)).unwrap();
        println!("{round}: index opened in {:?}", began.elapsed());
        while !search.is_current() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!(
            "{round}: {} documents current after {:?}",
            search.count().unwrap(),
            began.elapsed()
        );
        let (skills, _) = SkillCatalog::scan(&ScanOptions::new(place.path().join("skills")));
        let it = Fixture {
            search,
            files,
            skills,
        };
        let mut times = Vec::new();
        for number in 0..200_u32 {
            let query = format!("w{} w{}", number * 97 % 20_000, number * 31 % 5_000);
            it.current().await;
            let began = Instant::now();
            let said = it.ask(&["files:"], json!({"query": query})).await.unwrap();
            times.push((began.elapsed(), said["total"].as_u64().unwrap()));
        }
        times.sort();
        println!(
            "{round}: p50 {:?}, p90 {:?}, most {:?}",
            times[100], times[180], times[199]
        );
        let _kept = &it.files;
        drop(it);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
