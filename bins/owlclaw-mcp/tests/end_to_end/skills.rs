//! SKILL.md files as resources: bad ones, changing ones, many.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, SystemTime},
};

use proptest::{
    collection::vec,
    prelude::{Strategy, any},
    strategy::ValueTree,
    test_runner::{Config, RngSeed, TestRunner},
};
use serde_json::{Value, json};
use testkit::{Conversation, LinePeer, MODERN, REVISIONS, StdioServer};

use crate::support::{Site, log, names};

async fn uris(peer: &mut impl Conversation, params: Value) -> Vec<String> {
    let listed = peer.request("resources/list", params).await;
    names(listed.result(), "resources", "uri")
}

/// Property 7.
#[tokio::test]
async fn what_is_read_is_what_is_on_disk_byte_for_byte() {
    let site = Site::new(json!({"resources": {"page_size": 1000}}));
    let config = Config {
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    // With a zero byte it would be no text, and come as `blob`.
    let line = vec(any::<char>(), 0..60).prop_map(|line| {
        line.into_iter()
            .filter(|it| *it != '\0')
            .collect::<String>()
    });
    let body = (
        vec(line, 0..20),
        proptest::sample::select(vec!["\n", "\r\n"]),
        any::<bool>(),
    );
    let mut expected = Vec::new();
    for index in 0..128 {
        let (lines, end, has_mark) = body.new_tree(&mut runner).unwrap().current();
        let name = format!("skill-{index}");
        let mark = if has_mark { "\u{feff}" } else { "" };
        let head = [
            "---",
            &format!("name: {name}"),
            "description: Any.",
            "---",
            "",
        ]
        .join(end);
        let text = format!("{mark}{head}{}", lines.join(end));
        site.write(&format!("skills/any/{name}/SKILL.md"), &text);
        expected.push((format!("skill://any/{name}"), text));
    }
    let mut server = site.stdio();
    server.open(MODERN).await;
    assert_eq!(uris(&mut server, json!({})).await.len(), 128);
    for (uri, text) in expected {
        for uri in [uri.clone(), format!("{uri}/SKILL.md")] {
            let read = server.request("resources/read", json!({"uri": uri})).await;
            let contents = &read.result()["contents"];
            assert_eq!(contents[0]["text"], text, "{uri}");
            assert_eq!(contents[0]["mimeType"], "text/markdown");
            assert_eq!(contents.as_array().unwrap().len(), 1);
        }
    }
}

#[tokio::test]
async fn what_belongs_to_a_skill_is_readable_and_what_does_not_is_not() {
    let site = Site::new(json!({}));
    site.skill("stock", "counting", "");
    site.write("skills/stock/counting/assets/a.bin", [0, 255, 254, 10, 13]);
    site.write(
        "skills/stock/counting/references/rules ü.md",
        "Count \u{fc}.\r\n",
    );
    site.write("skills/stock/secret.txt", "not part of any skill");
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let mut read = async |uri: &str| server.request("resources/read", json!({"uri": uri})).await;
    let binary = read("skill://stock/counting/assets/a.bin").await;
    assert_eq!(binary.result()["contents"][0]["blob"], "AP/+Cg0=");
    let text = read("skill://stock/counting/references/rules%20%C3%BC.md").await;
    assert_eq!(text.result()["contents"][0]["text"], "Count \u{fc}.\r\n");
    for uri in [
        "skill://stock/secret.txt",
        "skill://stock/counting/../secret.txt",
        "skill://stock/counting/%2e%2e/secret.txt",
        "skill://stock/counting/..%2fsecret.txt",
        "skill://stock/counting//etc/passwd",
        "skill://stock/counting/assets",
        "skill://stock",
        "skill://",
        "",
    ] {
        let refused = read(uri).await;
        assert!(
            [-32002, -32602].contains(&refused.code()),
            "{uri}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn bad_skills_are_told_of_and_the_others_are_served() {
    let site = Site::new(json!({}));
    site.skill("stock", "good", "");
    site.write(
        "skills/stock/torn/SKILL.md",
        "---\nname: torn\ndescription: [\n---\n",
    );
    site.write("skills/stock/headless/SKILL.md", "# No frontmatter\n");
    site.write(
        "skills/stock/nameless/SKILL.md",
        "---\ndescription: Who?\n---\n",
    );
    site.write(
        "skills/stock/foreign/SKILL.md",
        b"---\nname: foreign\ndescription: \xff\xfe\n---\n",
    );
    site.write("skills/stock/empty/SKILL.md", "");
    fs::create_dir_all(site.path("skills/stock/directory/SKILL.md")).unwrap();
    fs::create_dir_all(site.path("skills/stock/dangling")).unwrap();
    std::os::unix::fs::symlink("/nowhere", site.path("skills/stock/dangling/SKILL.md")).unwrap();
    site.write(
        "skills/a/twin/SKILL.md",
        "---\nname: twin\ndescription: The first.\n---\n",
    );
    site.write(
        "skills/b/twin/SKILL.md",
        "---\nname: twin\ndescription: The second.\n---\n",
    );
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let listed = uris(&mut server, json!({})).await;
    assert!(
        listed.contains(&"skill://stock/good".to_owned()),
        "{listed:?}"
    );
    assert!(listed.contains(&"skill://a/twin".to_owned()), "{listed:?}");
    for bad in [
        "torn",
        "headless",
        "nameless",
        "foreign",
        "empty",
        "directory",
        "dangling",
    ] {
        let uri = format!("skill://stock/{bad}");
        assert!(!listed.contains(&uri), "{bad}");
        let read = server.request("resources/read", json!({"uri": uri})).await;
        assert_eq!(read.code(), -32002, "{bad}");
    }
    let read = server
        .request("resources/read", json!({"uri": "skill://stock/good"}))
        .await;
    assert!(
        read.result()["contents"][0]["text"]
            .as_str()
            .unwrap()
            .contains("# good")
    );
    server.close_input();
    server.wait_exit(crate::support::END).await;
    let lines = log(&server.stderr());
    let warnings: Vec<String> = lines
        .iter()
        .filter(|line| line["message"] == "a skill has a problem")
        .map(|line| line["error"].as_str().unwrap().to_owned())
        .collect();
    for bad in [
        "torn", "headless", "nameless", "foreign", "empty", "dangling", "twin",
    ] {
        let is_told = warnings
            .iter()
            .any(|it| it.contains(&format!("/{bad}/SKILL.md")));
        assert!(is_told, "{bad} is not among {warnings:#?}");
    }
}

async fn notified(peer: &mut LinePeer, method: &str) {
    while peer.receive().await["method"] != method {}
}

const CHANGED: &str = "notifications/resources/list_changed";

#[tokio::test]
async fn changed_skills_are_announced_on_stdio() {
    let site = Site::new(json!({}));
    site.skill("stock", "first", "");
    let mut server: StdioServer = site.stdio();
    server.open("2025-06-18").await;
    let uri = json!({"uri": "skill://stock/first"});
    let _ = server
        .request("resources/subscribe", uri.clone())
        .await
        .result();
    // Another spelling of the same.
    let spelled = "SKILL://stock/%66irst";
    let subscribe = server.request("resources/subscribe", json!({"uri": spelled}));
    let _ = subscribe.await.result();

    site.skill("stock", "second", "");
    notified(&mut server, CHANGED).await;
    let both = ["skill://stock/first", "skill://stock/second"];
    assert_eq!(uris(&mut server, json!({})).await, both);

    let edited = site.skill("stock", "first", "tags: [edited]\n");
    let mut told = BTreeSet::new();
    while told.len() < 2 {
        let notified = server.receive().await;
        if notified["method"] == "notifications/resources/updated" {
            told.insert(notified["params"]["uri"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(
        told,
        BTreeSet::from([spelled, "skill://stock/first"].map(str::to_owned))
    );
    let read = server.request("resources/read", uri.clone()).await;
    assert_eq!(read.result()["contents"][0]["text"], edited);
    assert_eq!(uris(&mut server, json!({"tag": "edited"})).await, both[..1]);

    fs::remove_dir_all(site.path("skills/stock/first")).unwrap();
    loop {
        notified(&mut server, CHANGED).await;
        if uris(&mut server, json!({})).await == both[1..] {
            break;
        }
    }
    assert_eq!(server.request("resources/read", uri).await.code(), -32002);
}

#[tokio::test]
async fn changed_skills_are_announced_on_the_stream_of_a_legacy_session() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut client = server.client();
    client.open("2025-06-18").await;
    let mut stream = client.listen().await;
    site.skill("stock", "new", "");
    while stream.message().await["method"] != CHANGED {}
    assert_eq!(uris(&mut client, json!({})).await, ["skill://stock/new"]);
}

#[tokio::test]
async fn changed_skills_are_announced_to_modern_clients_that_listen() {
    let site = Site::new(json!({}));
    let filter = json!({"notifications": {"resourcesListChanged": true}});

    let server = site.http().await;
    let mut client = server.client();
    client.speak(MODERN);
    let request = client.voice.request("subscriptions/listen", filter.clone());
    let mut stream = client.stream(&client.post_of(&request)).await;
    let acknowledged = stream.message().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    site.skill("stock", "over-http", "");
    assert_eq!(
        stream.message().await["method"],
        CHANGED,
        "and nothing that was not asked for"
    );
    assert_eq!(
        uris(&mut client, json!({})).await,
        ["skill://stock/over-http"],
        "{}",
        server.stderr()
    );
    drop(stream);
    drop(server);

    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.speak(MODERN);
    let request = server.voice.request("subscriptions/listen", filter);
    server.send(&request).await;
    notified(&mut server, "notifications/subscriptions/acknowledged").await;
    site.skill("stock", "over-stdio", "");
    notified(&mut server, CHANGED).await;
    assert_eq!(
        uris(&mut server, json!({})).await,
        ["skill://stock/over-stdio"]
    );
}

#[tokio::test]
async fn resources_are_found_by_category_tag_and_address() {
    let site = Site::new(json!({}));
    site.skill("stock", "counting", "tags: [daily, floor]\n");
    site.skill("stock", "ordering", "tags: [daily]\n");
    site.skill("sales", "report", "metadata: {tags: [monthly]}\n");
    let server = site.http().await;
    for version in ["2025-06-18", MODERN] {
        let mut client = server.client();
        client.open(version).await;
        let rows = [
            (
                json!({"category": "stock"}),
                vec!["stock/counting", "stock/ordering"],
            ),
            (
                json!({"tag": "daily"}),
                vec!["stock/counting", "stock/ordering"],
            ),
            (json!({"tag": "floor"}), vec!["stock/counting"]),
            (json!({"tag": "monthly"}), vec!["sales/report"]),
            (json!({"uri": "skill://sales/*"}), vec!["sales/report"]),
            (json!({"category": "stock", "tag": "monthly"}), vec![]),
            (json!({"category": "no-such"}), vec![]),
        ];
        for (filter, expected) in rows {
            let expected: Vec<_> = expected.iter().map(|it| format!("skill://{it}")).collect();
            assert_eq!(
                uris(&mut client, filter.clone()).await,
                expected,
                "{filter}"
            );
        }
    }
}

/// Every page of a list, and what is on each.
async fn pages(peer: &mut impl Conversation, list: &str, key: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut params = json!({});
    loop {
        let page = peer.request(&format!("{list}/list"), params).await;
        pages.push(names(page.result(), list, key));
        match page.result().get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn long_lists_come_in_pages() {
    let handlers: String = (0..250)
        .map(|index| format!("app.handler('tool-{index:03}')(lambda session: {index})\n"))
        .collect();
    let start = "from owlclaw import OwlClaw\napp = OwlClaw('many')\napp.mount_skills('skills')\n";
    let site = Site::with_app(&format!("{start}{handlers}"));
    for index in 0..120 {
        site.skill("many", &format!("skill-{index:03}"), "");
    }
    let server = site.http().await;
    for version in ["2025-06-18", MODERN] {
        let mut client = server.client();
        client.open(version).await;
        for (list, key, prefix, sizes) in [
            ("tools", "name", "tool-", vec![100, 100, 50]),
            ("resources", "uri", "skill://many/skill-", vec![50, 50, 20]),
        ] {
            let pages = pages(&mut client, list, key).await;
            assert_eq!(
                pages.iter().map(Vec::len).collect::<Vec<_>>(),
                sizes,
                "{version}"
            );
            let all: Vec<String> = pages.concat();
            let total: usize = sizes.iter().sum();
            let expected: Vec<_> = (0..total)
                .map(|index| format!("{prefix}{index:03}"))
                .collect();
            let mut sorted = all.clone();
            sorted.sort();
            assert_eq!(sorted, expected, "each once");
            assert_eq!(
                pages_again(&mut client, list, key).await,
                all,
                "in the same order"
            );
        }
    }
}

async fn pages_again(peer: &mut impl Conversation, list: &str, key: &str) -> Vec<String> {
    pages(peer, list, key).await.concat()
}

/// The description of the tool `echo`, which has a long skill.
async fn description(include: &str) -> String {
    let site = Site::new(json!({"tools": {"include_skill": include}}));
    let body = format!("Never repeat a password.\n{}", "More.\n".repeat(2_000));
    site.write(
        "skills/stock/echo/SKILL.md",
        format!("---\nname: echo\ndescription: About echoes.\n---\n{body}"),
    );
    let mut server = site.stdio();
    server.open(MODERN).await;
    let listed = server.request("tools/list", json!({})).await;
    let tools = listed.result()["tools"].as_array().unwrap();
    let echo = tools.iter().find(|tool| tool["name"] == "echo").unwrap();
    echo["description"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_tool_tells_what_its_skill_tells() {
    let (docstring, rule) = ("Gives back what it is given.", "Never repeat a password.");
    let uri = "The whole text: skill://stock/echo";
    for (include, bytes) in [("full", 7_168..8_400), ("excerpt", 512..1_200)] {
        let text = description(include).await;
        assert!(text.starts_with(docstring), "{include}: {text}");
        assert!(text.contains(rule), "{include}: {text}");
        assert!(text.ends_with(uri), "{include}: {text}");
        assert!(bytes.contains(&text.len()), "{include}: {}", text.len());
    }
    let text = description("link").await;
    assert!(!text.contains(rule) && text.ends_with(uri), "{text}");
    assert_eq!(description("none").await, docstring);
}

#[tokio::test]
async fn how_long_clients_may_keep_an_answer_is_configured() {
    let site = Site::new(json!({
        "tools": {"cache_ttl_seconds": 7},
        "resources": {"cache_ttl_seconds": 8},
    }));
    site.skill("stock", "counting", "");
    let mut server = site.stdio();
    server.open(MODERN).await;
    for (method, params, milliseconds) in [
        ("tools/list", json!({}), 7_000),
        ("resources/list", json!({}), 8_000),
        (
            "resources/read",
            json!({"uri": "skill://stock/counting"}),
            8_000,
        ),
    ] {
        let answer = server.request(method, params).await;
        assert_eq!(answer.result()["ttlMs"], milliseconds, "{method}");
    }
}

#[tokio::test]
async fn the_list_tells_when_a_skill_was_changed() {
    let site = Site::new(json!({}));
    site.skill("stock", "counting", "");
    let file = fs::File::options()
        .write(true)
        .open(site.path("skills/stock/counting/SKILL.md"))
        .unwrap();
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(951_825_600);
    file.set_modified(noon).unwrap();
    for version in REVISIONS {
        let mut server = site.stdio();
        server.open(version).await;
        let listed = server.request("resources/list", json!({})).await;
        let listed = &listed.result()["resources"][0];
        let told = &listed["_meta"]["io.owlclaw/skill"]["lastModified"];
        assert_eq!(told, "2000-02-29T12:00:00Z", "{version}");
        if version >= "2025-06-18" {
            let annotations = &listed["annotations"];
            assert_eq!(annotations["lastModified"], "2000-02-29T12:00:00Z");
        }
    }
}
