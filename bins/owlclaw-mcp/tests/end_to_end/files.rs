//! Files of directories: offered, governed, recorded, completed, followed and written to.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Conversation, LinePeer, MODERN, REVISIONS, StdioServer};
use tokio::task::JoinSet;

use crate::support::{Site, call, names, outcome, run, text};

/// A site with a directory of notes that can be written to, and one of reports that cannot.
fn site(settings: Value) -> Site {
    let mut all = json!({"app": null, "resources": {"files": {
        "notes": {"path": "notes", "writable": true, "exclude": ["*.tmp"]},
        "reports": {"path": "reports", "include": ["**/*.csv"]},
    }}});
    for (key, value) in settings.as_object().unwrap() {
        all[key] = value.clone();
    }
    let site = Site::new(all);
    site.write("notes/a.txt", "first");
    site.write("notes/deep/b.md", "# Second\n");
    site.write("reports/2026/may.csv", "day,sum\n1,20\n");
    site.write("reports/2026/may.tmp", "not served");
    site
}

const ALL: [&str; 3] = [
    "files://notes/a.txt",
    "files://notes/deep/b.md",
    "files://reports/2026/may.csv",
];

async fn uris(peer: &mut impl Conversation) -> Vec<String> {
    let listed = peer.request("resources/list", json!({})).await;
    names(listed.result(), "resources", "uri")
}

async fn notified(peer: &mut LinePeer, method: &str) -> Value {
    loop {
        let message = peer.receive().await;
        if message["method"] == method {
            return message;
        }
    }
}

#[tokio::test]
async fn files_are_offered_read_and_completed_in_every_revision() {
    let site = site(json!({}));
    let server = site.http().await;
    for version in REVISIONS.into_iter().chain([MODERN]) {
        let mut client = server.client();
        client.open(version).await;
        assert_eq!(uris(&mut client).await, ALL, "{version}");
        let templates = client.request("resources/templates/list", json!({})).await;
        let templates = names(templates.result(), "resourceTemplates", "uriTemplate");
        let own = ["files://notes/{+path}", "files://reports/{+path}"];
        assert!(
            own.iter().all(|it| templates.iter().any(|has| has == it)),
            "{templates:?}"
        );
        let part = json!({"uri": ALL[2], "range": {"offset": 4, "length": 3}});
        let part = client.request("resources/read", part).await;
        let part = part.result();
        assert_eq!(part["contents"][0]["text"], "sum", "{version}");
        let etag = part["_meta"]["io.owlclaw/resource"]["etag"]
            .as_str()
            .unwrap();
        let again = json!({"uri": ALL[2], "ifNoneMatch": etag});
        let again = client.request("resources/read", again).await;
        assert_eq!(again.result()["contents"], json!([]), "{version}");
        for absent in [
            "files://notes/none.txt",
            "files://reports/2026/may.tmp",
            "files://notes/../ledger.db",
            "files://notes/%2e%2e/ledger.db",
        ] {
            let absent = client
                .request("resources/read", json!({"uri": absent}))
                .await;
            assert!(
                [-32002, -32602].contains(&absent.code()),
                "{version}: {absent:?}"
            );
        }
        let asked = json!({
            "ref": {"type": "ref/resource", "uri": "files://notes/{+path}"},
            "argument": {"name": "path", "value": "d"},
        });
        let suggested = client.request("completion/complete", asked).await;
        assert_eq!(
            suggested.result()["completion"]["values"],
            json!(["deep/"]),
            "{version}"
        );
    }
}

#[tokio::test]
async fn changes_are_told_to_subscribers_of_both_eras() {
    let site = site(json!({}));
    let mut old: StdioServer = site.stdio();
    let initialized = old.open("2025-11-25").await;
    drop(initialized);
    let _ = old
        .request("resources/subscribe", json!({"uri": ALL[0]}))
        .await
        .result();
    let spelt = "files://notes/%61.txt";
    let subscribed = old.request("resources/subscribe", json!({"uri": spelt}));
    assert_eq!(*subscribed.await.result(), json!({}));
    site.write("notes/deep/b.md", "nobody listens");
    site.write("notes/a.txt", "changed");
    let updated = notified(&mut old, "notifications/resources/updated").await;
    let uri = updated["params"]["uri"].as_str().unwrap();
    assert!([ALL[0], spelt].contains(&uri), "{updated}");
    site.write("notes/c.txt", "new");
    notified(&mut old, "notifications/resources/list_changed").await;
    assert!(
        uris(&mut old)
            .await
            .contains(&"files://notes/c.txt".to_owned())
    );
    drop(old);

    let mut new: StdioServer = site.stdio();
    new.speak(MODERN);
    let filter = json!({"notifications": {"resourceSubscriptions": [ALL[0]]}});
    let request = new.voice.request("subscriptions/listen", filter);
    new.send(&request).await;
    notified(&mut new, "notifications/subscriptions/acknowledged").await;
    site.write("notes/a.txt", "changed again");
    let updated = notified(&mut new, "notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], ALL[0]);
}

#[tokio::test]
async fn who_may_not_see_a_file_cannot_tell_it_from_one_that_is_not_there() {
    let site = site(json!({"governance": {"clients": {
        "clerk": {
            "resources": {"allow": ["files://notes/*"], "hide": ["files://notes/deep/*", "files://reports/*"]},
            "tools": {"allow": ["resource-*"]},
        },
    }}}));
    let mut clerk = site.stdio_as("clerk");
    clerk.open("2025-11-25").await;
    assert_eq!(uris(&mut clerk).await, ["files://notes/a.txt"]);
    let hidden = clerk
        .request("resources/read", json!({"uri": ALL[1]}))
        .await;
    let absent = clerk
        .request("resources/read", json!({"uri": "files://notes/deep/c.md"}))
        .await;
    let words = |reply: &testkit::Reply| reply.error().to_string().replace("/c.md", "/b.md");
    assert_eq!(words(&hidden), words(&absent));
    let asked = json!({
        "ref": {"type": "ref/resource", "uri": "files://notes/{+path}"},
        "argument": {"name": "path", "value": ""},
    });
    let suggested = clerk.request("completion/complete", asked).await;
    assert_eq!(suggested.result()["completion"]["values"], json!(["a.txt"]));
    let refused = call("resource-write", json!({"uri": ALL[1], "text": "mine"}));
    let refused = clerk.request("tools/call", refused).await;
    assert!(
        text(refused.result()).contains("there is no resource"),
        "{refused:?}"
    );
    for uri in [ALL[1], "files://notes/deep/c.md"] {
        let subscribed = clerk.request("resources/subscribe", json!({"uri": uri}));
        assert_eq!(*subscribed.await.result(), json!({}), "{uri}");
    }
    drop(clerk);
    assert_eq!(site.read("notes/deep/b.md"), "# Second\n");
    let reads: Vec<_> = site
        .calls()
        .iter()
        .filter(|it| it.started.capability.starts_with("resource/"))
        .map(outcome)
        .collect();
    assert_eq!(reads, ["denied", "denied"]);
}

#[tokio::test]
async fn writes_are_on_record_with_digests_and_deletions_are_confirmed() {
    let site = site(json!({}));
    let mut peer: StdioServer = site.stdio();
    peer.voice.capabilities = json!({"elicitation": {}});
    peer.speak(MODERN);
    let new = call(
        "resource-create",
        json!({"uri": "files://notes/new.txt", "text": "one"}),
    );
    let created = peer.request("tools/call", new).await;
    let etag = created.result()["structuredContent"]["etag"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(site.read("notes/new.txt"), "one");
    let delete = call(
        "resource-delete",
        json!({"uri": "files://notes/new.txt", "ifMatch": etag}),
    );
    let asked = peer.request("tools/call", delete.clone()).await;
    assert_eq!(asked.result()["resultType"], "input_required", "{asked:?}");
    assert_eq!(
        site.read("notes/new.txt"),
        "one",
        "not before it is confirmed"
    );
    let mut confirmed = delete;
    confirmed["inputResponses"] =
        json!({"io.owlclaw/confirm": {"action": "accept", "content": {"confirm": true}}});
    confirmed["requestState"] = asked.result()["requestState"].clone();
    let deleted = peer.request("tools/call", confirmed).await;
    assert_eq!(
        deleted.result()["structuredContent"]["status"],
        "deleted",
        "{deleted:?}"
    );
    assert!(!site.path("notes/new.txt").exists());
    drop(peer);
    let noted: Vec<_> = site
        .calls()
        .into_iter()
        .filter_map(|it| it.ended?.message)
        .collect();
    assert!(
        noted.contains(&format!(
            "files://notes/new.txt created: SHA-256 before none, after {etag}"
        )),
        "{noted:?}"
    );
    assert!(
        noted.contains(&format!(
            "files://notes/new.txt deleted: SHA-256 before {etag}, after none"
        )),
        "{noted:?}"
    );
    assert!(site.path("ledger-resources.db").exists());
}

#[tokio::test]
async fn a_directory_that_cannot_be_served_keeps_the_server_from_starting() {
    for (root, expected) in [
        (json!({"path": "missing"}), "resources.files.notes"),
        (
            json!({"path": "notes", "include": ["../*"]}),
            "leads nowhere",
        ),
        (json!({}), "has no `path`"),
        (json!({"path": "notes", "exlude": ["*"]}), "exclude"),
    ] {
        let site = Site::new(json!({"app": null, "resources": {"files": {"notes": root}}}));
        site.write("notes/a.txt", "x");
        let said = run(site.command(&["start"])).await;
        assert_ne!(said.code, Some(0), "{}", said.messages);
        assert!(
            said.messages.contains(expected),
            "{expected}: {}",
            said.messages
        );
    }
}

#[tokio::test]
async fn searches_find_what_the_caller_may_read_and_follow_changes() {
    let site = site(json!({"governance": {"clients": {
        "clerk": {
            "resources": {"allow": ["files://notes/*", "skill://*"], "hide": ["files://notes/deep/*"]},
            "tools": {"allow": ["search_resources"]},
        },
    }}}));
    let configured = site
        .read("mcp-server.yaml")
        .replace("\"files\":{", "\"search\":{\"enabled\":true},\"files\":{");
    site.write("mcp-server.yaml", configured);
    site.write("notes/deep/b.md", "caraway is hidden");
    site.write("notes/a.txt", "caraway is on the shelf");
    site.skill("stock", "caraway", "");
    let mut clerk = site.stdio_as("clerk");
    clerk.open("2025-11-25").await;
    let mut search = async |query: &str, expected: &[&str]| {
        let began = std::time::Instant::now();
        loop {
            let asked = call("search_resources", json!({"query": query}));
            let reply = clerk.request("tools/call", asked).await;
            let said = &reply.result()["structuredContent"];
            let mut found = names(said, "results", "uri");
            found.sort();
            if found == expected && said["total"] == expected.len() {
                let links = reply.result()["content"].as_array().unwrap().len() - 1;
                assert_eq!(links, expected.len());
                return;
            }
            assert!(began.elapsed() < testkit::GENEROUS, "{query}: {said}");
        }
    };
    search("caraway", &["files://notes/a.txt", "skill://stock/caraway"]).await;
    site.write("notes/a.txt", "sold out");
    search("caraway", &["skill://stock/caraway"]).await;
    site.skill("stock", "cumin", "tags: [caraway-like]\n");
    search("cumin", &["skill://stock/cumin"]).await;
    drop(clerk);
    assert!(site.path("ledger-search.db").exists());
    let outcomes: std::collections::BTreeSet<_> =
        site.outcomes("search_resources").into_iter().collect();
    assert_eq!(outcomes, ["succeeded".to_owned()].into());
}

#[tokio::test]
async fn a_thousand_subscribers_are_each_told_of_a_change_once() {
    const SUBSCRIBERS: usize = 1_000;
    const AT_ONCE: usize = 50;
    // On a quiet machine it is 200 ms.
    const PATIENCE: Duration = Duration::from_secs(10);
    let site = site(json!({}));
    let server = site.http().await;
    let before = server.process().resident_bytes();
    let mut streams = Vec::new();
    for _ in 0..SUBSCRIBERS / AT_ONCE {
        let mut opened = JoinSet::new();
        for _ in 0..AT_ONCE {
            let mut client = server.client();
            client.speak(MODERN);
            opened.spawn(async move {
                let filter = json!({"notifications": {"resourceSubscriptions": [ALL[0]]}});
                let listen = client.voice.request("subscriptions/listen", filter);
                let mut stream = client.stream(&client.post_of(&listen)).await;
                let first = stream.message().await;
                assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
                stream
            });
        }
        streams.extend(opened.join_all().await);
    }
    for text in ["second", "third"] {
        let changed = Instant::now();
        site.write("notes/a.txt", text);
        let mut told = JoinSet::new();
        for mut stream in streams.drain(..) {
            told.spawn(async move {
                let told = stream.message().await;
                assert_eq!(told["method"], "notifications/resources/updated");
                assert_eq!(told["params"]["uri"], ALL[0]);
                (stream, changed.elapsed())
            });
        }
        let mut slowest = Duration::ZERO;
        for (stream, elapsed) in told.join_all().await {
            streams.push(stream);
            slowest = slowest.max(elapsed);
        }
        assert!(slowest < PATIENCE, "{slowest:?}");
    }
    let grown = server.process().resident_bytes().saturating_sub(before);
    assert!(grown < SUBSCRIBERS * 256 * 1024, "{grown}");
    // What was told twice would still be on its way, and come before the end.
    server.process().signal("TERM").await;
    for mut stream in streams {
        let messages = stream.rest().await;
        let mut messages = messages.iter();
        let again = messages.find(|it| it["method"] == "notifications/resources/updated");
        assert_eq!(again, None);
    }
}

#[tokio::test]
async fn a_pattern_of_files_that_hides_nothing_is_told_or_keeps_the_server_from_starting() {
    let settings = |treatment: &str, exclude: &str| {
        json!({
            "governance": {"unmatched_rules": treatment},
            "resources": {"files": {"notes": {"path": "notes", "exclude": ["deep/**", exclude]}}},
        })
    };
    let told = |exclude: &str| {
        format!("`resources.files.notes.exclude`: `{exclude}` matches nothing there is")
    };
    let strict = site(settings("error", "prvi/**"));
    strict.write("notes/priv/p.txt", "private");
    for words in [&["start"][..], &["doctor"]] {
        let said = run(strict.command(words)).await;
        assert_ne!(said.code, Some(0), "{words:?}");
        let all = said.output + &said.messages;
        let cure = "did you mean `priv/**`?";
        assert!(
            all.contains(&told("prvi/**")) && all.contains(cure),
            "{words:?}: {all}"
        );
        assert!(!all.contains("`deep/**`"), "{words:?}: {all}");
    }
    // A name of a directory is no pattern of what is in it.
    let free = site(settings("warn", "priv"));
    free.write("notes/priv/p.txt", "private");
    let said = run(free.command(&["doctor"])).await;
    let all = said.output + &said.messages;
    assert!(all.contains(&told("priv")), "{all}");
    let syntax = site(settings("warn", "[ab].txt"));
    let said = run(syntax.command(&["start"])).await;
    assert_ne!(said.code, Some(0));
    assert!(
        said.messages.contains("a pattern for each alternative"),
        "{}",
        said.messages
    );
}

#[tokio::test]
async fn the_files_of_the_server_are_no_resources_and_directories_share_nothing() {
    let all = json!({"all": {"path": ".", "writable": true}});
    let site = Site::new(json!({"app": null, "resources": {"files": all}}));
    site.write("notes/a.txt", "first");
    let mut client = site.stdio_as("clerk");
    client.open("2025-11-25").await;
    let offered = ["files://all/app.py", "files://all/notes/a.txt"];
    assert_eq!(uris(&mut client).await, offered);
    for path in [
        "mcp-server.yaml",
        "ledger.db",
        "ledger.db.redaction-key",
        "ledger-resources.db",
    ] {
        let uri = format!("files://all/{path}");
        let read = client.request("resources/read", json!({"uri": uri})).await;
        assert!(read.error().is_object(), "{path}");
        let write = call("resource-write", json!({"uri": uri, "text": "gone"}));
        let said = client.request("tools/call", write).await;
        assert_eq!(said.result()["isError"], true, "{path}");
    }
    let both = json!({"all": {"path": "."}, "notes": {"path": "notes"}});
    let site = Site::new(json!({"app": null, "resources": {"files": both}}));
    site.write("notes/a.txt", "first");
    for words in [&["config", "validate"][..], &["start"]] {
        let said = run(site.command(words)).await;
        assert_ne!(said.code, Some(0), "{words:?}");
        let all = said.output + &said.messages;
        let cure = "`resources.files.all.exclude: [\"notes/**\"]`";
        assert!(
            all.contains("is `notes` of `all`") && all.contains(cure),
            "{words:?}: {all}"
        );
    }
}

#[tokio::test]
async fn a_look_at_what_is_offered_makes_nothing_and_disturbs_no_server() {
    let site = site(json!({}));
    let configured = site
        .read("mcp-server.yaml")
        .replace("\"files\":{", "\"search\":{\"enabled\":true},\"files\":{");
    site.write("mcp-server.yaml", configured);
    let words = [
        &["doctor"][..],
        &["tools", "list"],
        &["resources", "list"],
        &[
            "governance",
            "explain",
            "--as",
            "ada",
            "--tool",
            "resource-write",
        ],
    ];
    let look = async |words: &[&str]| {
        let said = run(site.command(words)).await;
        assert!(
            !said.messages.contains("in use"),
            "{words:?}: {}",
            said.messages
        );
        said.output
    };
    for words in words {
        look(words).await;
        for made in [
            "ledger-resources.db",
            "ledger-search.db",
            "ledger-search.db.lock",
        ] {
            assert!(!site.path(made).exists(), "{words:?} made {made}");
        }
    }
    let mut server = site.stdio_as("ada");
    server.open("2025-11-25").await;
    assert_eq!(uris(&mut server).await, ALL);
    for words in words {
        look(words).await;
    }
    let listed = look(&["resources", "list"]).await;
    assert!(ALL.iter().all(|it| listed.contains(it)), "{listed}");
    let tools = look(&["tools", "list"]).await;
    assert!(
        tools.contains("resource-undo") && tools.contains("search_resources"),
        "{tools}"
    );
}
