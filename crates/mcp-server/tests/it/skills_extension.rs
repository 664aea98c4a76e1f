//! The Skills extension of 2026-07-28, seen from the other end of a connection: what hosts of
//! skills are told, and what nobody is who may not see it.

use crate::house::{Client, House, SPOKEN, Setup, offer, policy};
use adapter_skills::{ScanOptions, SkillCatalog};
use governance::Rules;
use mcp_server::{CombinedResources, Options, Resources, SkillResources, StaticResources};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};
use tempfile::TempDir;
use testkit::{Conversation, MODERN, succeeded};

const EXTENSION: &str = "io.modelcontextprotocol/skills";
const LIST: &str = "skills/list";
const GET: &str = "skills/get";
const READ_DIRECTORY: &str = "resources/directory/read";

const FILES: &[(&str, &str)] = &[
    (
        "shop/refunds/SKILL.md",
        "---\nname: refunds\ndescription: How to refund.\nlicense: MIT\nallowed-tools: [Bash]\nmetadata:\n  version: '1.0'\n  deep: {list: [1, 2.5, true, null]}\nowlclaw:\n  task_type: x\n---\n# Refunds\n",
    ),
    ("shop/refunds/references/x.md", "# X\n"),
    ("shop/refunds/references/more/y.md", "# Y\n"),
    ("shop/refunds/a b.bin", "\u{0}\u{1}"),
    (
        "shop/refunds/steps/escalate/SKILL.md",
        "---\nname: escalate\ndescription: Whom to ask.\n---\nAsk.\n",
    ),
    ("shop/refunds/steps/escalate/who.md", "# Who\n"),
    (
        "depot/pallets/SKILL.md",
        "---\nname: pallets\ndescription: How to stack.\n---\nStack.\n",
    ),
    // Skills whose names hosts do not accept: resources, and no more.
    (
        "depot/other/SKILL.md",
        "---\nname: another\ndescription: d\n---\n",
    ),
    ("depot/other/z.md", "# Z\n"),
    (
        "depot/Stack_It/SKILL.md",
        "---\nname: Stack_It\ndescription: d\n---\n",
    ),
];

const REFUNDS: &str = "skill://shop/refunds/SKILL.md";
const ESCALATE: &str = "skill://shop/refunds/steps/escalate/SKILL.md";
const PALLETS: &str = "skill://depot/pallets/SKILL.md";

fn skills() -> (TempDir, Arc<dyn Resources>) {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), FILES);
    let (catalog, problems) = SkillCatalog::scan(&ScanOptions::new(directory.path()));
    // The name that is not the directory's is one; it is told of once, by the scan.
    assert_eq!(problems.len(), 1, "{problems:?}");
    let resources = SkillResources::new(Arc::new(catalog), 600_000);
    (directory, Arc::new(resources))
}

fn write(root: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn house(resources: &Arc<dyn Resources>, rules: Rules) -> House {
    Setup {
        policy: policy(rules),
        resources: Arc::clone(resources),
        ..Setup::default()
    }
    .build()
}

fn hiding(hidden: &[&str]) -> Rules {
    Rules {
        hidden: hidden.iter().map(|it| format!("resource/{it}")).collect(),
        ..Rules::default()
    }
}

async fn listed(client: &mut Client) -> BTreeMap<String, Value> {
    let skills = client.list(LIST, "skills").await;
    let by_uri = |skill: Value| (skill["uri"].as_str().unwrap().to_owned(), skill);
    skills.into_iter().map(by_uri).collect()
}

fn uris(resources: &Value) -> Vec<&str> {
    let resources = resources.as_array().unwrap().iter();
    resources.map(|it| it["uri"].as_str().unwrap()).collect()
}

async fn directory(client: &mut Client, uri: &str) -> Value {
    let answer = client.ask(READ_DIRECTORY, json!({ "uri": uri })).await;
    assert!(succeeded(&answer), "{uri}: {answer}");
    assert_eq!(answer["result"]["resultType"], "complete");
    answer["result"]["resources"].clone()
}

/// Unknown, in the same words for whatever is not there and whatever may not be seen.
fn check_unknown(answer: &Value, uri: &str) {
    let expected = json!({
        "code": -32602,
        "message": "resource not found",
        "data": {
            "uri": uri,
            "code": -32002,
            "details": "there is no resource at this URI",
            "retryable": false,
        },
    });
    assert_eq!(answer["error"], expected, "{answer}");
}

#[tokio::test]
async fn it_is_declared_to_modern_clients_of_servers_with_skills() {
    let (_directory, resources) = skills();
    let house = house(&resources, Rules::default());
    for version in SPOKEN {
        let mut client = house.join("anna", Duration::ZERO);
        let opened = Conversation::open(&mut *client, version).await;
        let extensions = &opened["capabilities"]["extensions"];
        if version == MODERN {
            assert_eq!(*extensions, json!({ EXTENSION: { "directoryRead": true } }));
        } else {
            assert_eq!(*extensions, Value::Null, "{version}: {opened}");
        }
        assert!(opened["capabilities"]["resources"].is_object());
    }
}

#[tokio::test]
async fn elsewhere_its_methods_do_not_exist() {
    let (_directory, resources) = skills();
    let with = house(&resources, Rules::default());
    let without = Setup {
        resources: Arc::new(StaticResources::new().text("doc://a", "a", "text/plain", "a")),
        ..Setup::default()
    }
    .build();
    for version in SPOKEN {
        for house in [&with, &without] {
            if version == MODERN && std::ptr::eq(house, &with) {
                continue;
            }
            let mut client = house.connect("anna", version).await;
            for method in [LIST, GET, READ_DIRECTORY] {
                let params = json!({ "uri": REFUNDS });
                let answer = client.ask(method, params).await;
                assert_eq!(answer["error"]["code"], -32601, "{version} {method}");
            }
        }
    }
}

#[tokio::test]
async fn an_entry_has_the_front_matter_as_it_is_and_every_file() {
    let (root, resources) = skills();
    let house = house(&resources, Rules::default());
    let mut client = house.connect("anna", MODERN).await;
    let skills = listed(&mut client).await;
    let expected = [PALLETS, REFUNDS, ESCALATE];
    assert_eq!(skills.keys().collect::<Vec<_>>(), expected);
    assert_eq!(
        skills[REFUNDS]["frontmatter"],
        json!({
            "name": "refunds",
            "description": "How to refund.",
            "license": "MIT",
            "allowed-tools": ["Bash"],
            "metadata": { "version": "1.0", "deep": { "list": [1, 2.5, true, null] } },
            "owlclaw": { "task_type": "x" },
        })
    );
    // A nested skill has an entry of its own, and its files are files of the skill around it, too.
    assert_eq!(
        uris(&skills[REFUNDS]["resources"]),
        [
            REFUNDS,
            "skill://shop/refunds/a%20b.bin",
            "skill://shop/refunds/references/more/y.md",
            "skill://shop/refunds/references/x.md",
            ESCALATE,
            "skill://shop/refunds/steps/escalate/who.md",
        ]
    );
    assert_eq!(
        uris(&skills[ESCALATE]["resources"]),
        [ESCALATE, "skill://shop/refunds/steps/escalate/who.md"]
    );
    for skill in skills.values() {
        for file in skill["resources"].as_array().unwrap() {
            let uri = file["uri"].as_str().unwrap();
            let path = uri.strip_prefix("skill://").unwrap().replace("%20", " ");
            let bytes = fs::read(root.path().join(path)).unwrap();
            assert_eq!(file["size"], bytes.len(), "{uri}");
            let read = client.ask("resources/read", json!({ "uri": uri })).await;
            // Which is the SHA-256 of what is on disk now, or the tests of reading fail.
            let etag = &read["result"]["_meta"]["io.owlclaw/resource"]["etag"];
            let digest = format!("sha256:{}", etag.as_str().unwrap());
            assert_eq!(file["digest"], digest, "{uri}");
        }
    }
    // The other two are resources all the same.
    for uri in ["skill://depot/other", "skill://depot/Stack_It/SKILL.md"] {
        let read = client.ask("resources/read", json!({ "uri": uri })).await;
        assert!(succeeded(&read), "{read}");
    }
}

#[tokio::test]
async fn getting_a_skill_gives_what_the_list_has_and_is_no_read() {
    let (_directory, resources) = skills();
    let house = house(&resources, Rules::default());
    let mut client = house.connect("anna", MODERN).await;
    let skills = listed(&mut client).await;
    for (uri, entry) in &skills {
        let answer = client.ask(GET, json!({ "uri": uri })).await;
        let result = &answer["result"];
        assert_eq!(result["skill"], *entry);
        assert_eq!(result["resultType"], "complete");
        assert_eq!(
            (&result["ttlMs"], &result["cacheScope"]),
            (&json!(600_000), &json!("private"))
        );
        assert!(result.get("nextCursor").is_none());
    }
    let spelled = json!({ "uri": "SKILL://shop/%72efunds/SKILL.md" });
    let answer = client.ask(GET, spelled).await;
    assert_eq!(answer["result"]["skill"], skills[REFUNDS]);
    assert!(house.record().await.is_empty(), "nothing was read");
    assert!(house.usage().await.is_empty(), "nothing was used up");
}

#[tokio::test]
async fn what_is_no_skill_or_directory_is_unknown() {
    let (_directory, resources) = skills();
    let house = house(&resources, Rules::default());
    let mut client = house.connect("anna", MODERN).await;
    for uri in [
        "skill://shop/refunds",
        "skill://shop/refunds/references/x.md",
        "skill://shop/nothing/SKILL.md",
        "skill://depot/other/SKILL.md",
        "skill://depot/Stack_It/SKILL.md",
        "skill://shop/refunds/../../etc/SKILL.md",
        "skill://shop/refunds/%2e%2e/SKILL.md",
        "file:///etc/passwd",
        "",
    ] {
        check_unknown(&client.ask(GET, json!({ "uri": uri })).await, uri);
    }
    for uri in [
        REFUNDS,
        "skill://shop/refunds/references/x.md",
        "skill://shop/refunds/",
        "skill://shop/refunds/nothing",
        "skill://shop",
        "skill://depot/other",
        "skill://shop/refunds/references/..",
        "skill://shop/refunds/%2e%2e",
        "file:///etc",
        "",
    ] {
        check_unknown(
            &client.ask(READ_DIRECTORY, json!({ "uri": uri })).await,
            uri,
        );
    }
}

#[tokio::test]
async fn a_directory_has_its_direct_children_and_no_more() {
    let (_directory, resources) = skills();
    let house = house(&resources, Rules::default());
    let mut client = house.connect("anna", MODERN).await;
    let root = directory(&mut client, "skill://shop/refunds").await;
    assert_eq!(
        uris(&root),
        [
            REFUNDS,
            "skill://shop/refunds/a%20b.bin",
            "skill://shop/refunds/references",
            "skill://shop/refunds/steps",
        ]
    );
    let document = &root[0];
    assert_eq!(document["name"], "refunds");
    assert_eq!(document["description"], "How to refund.");
    assert_eq!(document["mimeType"], "text/markdown");
    assert_eq!(
        (&root[1]["name"], &root[1]["size"]),
        (&json!("a b.bin"), &json!(2))
    );
    for child in [&root[2], &root[3]] {
        assert_eq!(child["mimeType"], "inode/directory");
        assert!(child.get("size").is_none());
    }
    for (uri, children) in [
        (
            "skill://shop/refunds/references",
            vec![
                "skill://shop/refunds/references/more",
                "skill://shop/refunds/references/x.md",
            ],
        ),
        (
            "SKILL://shop/refunds/%72eferences/more",
            vec!["skill://shop/refunds/references/more/y.md"],
        ),
        (
            "skill://shop/refunds/steps",
            vec!["skill://shop/refunds/steps/escalate"],
        ),
        (
            "skill://shop/refunds/steps/escalate",
            vec![ESCALATE, "skill://shop/refunds/steps/escalate/who.md"],
        ),
        ("skill://depot/pallets", vec![PALLETS]),
    ] {
        assert_eq!(uris(&directory(&mut client, uri).await), children, "{uri}");
    }
}

#[tokio::test]
async fn a_hidden_skill_is_as_unknown_as_an_absent_one() {
    let (_directory, resources) = skills();
    let house = house(&resources, hiding(&["skill://shop/refunds"]));
    let mut client = house.connect("anna", MODERN).await;
    // The skill within is visible, and says nothing of the one around it.
    let skills = listed(&mut client).await;
    assert_eq!(skills.keys().collect::<Vec<_>>(), [PALLETS, ESCALATE]);
    check_unknown(&client.ask(GET, json!({ "uri": REFUNDS })).await, REFUNDS);
    for uri in [
        "skill://shop/refunds",
        "skill://shop/refunds/references",
        "skill://shop/refunds/steps",
    ] {
        check_unknown(
            &client.ask(READ_DIRECTORY, json!({ "uri": uri })).await,
            uri,
        );
    }
    for uri in [
        "skill://shop/refunds",
        REFUNDS,
        "skill://shop/refunds/references/x.md",
        "skill://shop/refunds/%72eferences/x.md",
        "skill://shop/refunds/a%20b.bin",
    ] {
        check_unknown(
            &client.ask("resources/read", json!({ "uri": uri })).await,
            uri,
        );
        let call = house.record().await.pop().unwrap();
        assert_eq!(call.reason(), Some("not_visible"), "{uri}");
        assert_eq!(call.started.capability, "resource/skill://shop/refunds");
        assert!(
            call.started.arguments.text.contains(uri),
            "what was asked for"
        );
    }
    let nested = "skill://shop/refunds/steps/escalate";
    assert_eq!(uris(&directory(&mut client, nested).await).len(), 2);
    let who = json!({ "uri": format!("{nested}/who.md") });
    let read = client.ask("resources/read", who).await;
    assert_eq!(read["result"]["contents"][0]["text"], "# Who\n");
    // Another principal's list was made before, or after: they do not share it.
    let absent = client
        .ask(GET, json!({ "uri": "skill://shop/gone/SKILL.md" }))
        .await;
    check_unknown(&absent, "skill://shop/gone/SKILL.md");
}

#[tokio::test]
async fn files_of_a_hidden_nested_skill_are_nobodys_files() {
    let (_directory, resources) = skills();
    let nested = "skill://shop/refunds/steps/escalate";
    let house = house(&resources, hiding(&[nested]));
    let mut client = house.connect("anna", MODERN).await;
    let skills = listed(&mut client).await;
    assert_eq!(skills.keys().collect::<Vec<_>>(), [PALLETS, REFUNDS]);
    let files = uris(&skills[REFUNDS]["resources"]);
    assert_eq!(files.len(), 4, "{files:?}");
    assert!(files.iter().all(|it| !it.contains("escalate")), "{files:?}");
    let get = client.ask(GET, json!({ "uri": REFUNDS })).await;
    assert_eq!(get["result"]["skill"], skills[REFUNDS]);
    // Nor is the directory that holds nothing else.
    let root = directory(&mut client, "skill://shop/refunds").await;
    assert!(
        !uris(&root).contains(&"skill://shop/refunds/steps"),
        "{root}"
    );
    for uri in ["skill://shop/refunds/steps", nested] {
        check_unknown(
            &client.ask(READ_DIRECTORY, json!({ "uri": uri })).await,
            uri,
        );
    }
    for uri in [
        nested,
        ESCALATE,
        "skill://shop/refunds/steps/escalate/who.md",
    ] {
        check_unknown(
            &client.ask("resources/read", json!({ "uri": uri })).await,
            uri,
        );
        let call = house.record().await.pop().unwrap();
        assert_eq!(call.started.capability, format!("resource/{nested}"));
    }
}

#[tokio::test]
async fn who_may_read_a_skill_may_read_its_files() {
    let (_directory, resources) = skills();
    let only = |name: &str| vec![format!("resource/{name}")];
    let house = house(
        &resources,
        Rules {
            visible: only("skill://shop/refunds"),
            allow: only("skill://shop/refunds"),
            ..Rules::default()
        },
    );
    for version in SPOKEN {
        let mut client = house.connect("anna", version).await;
        for (uri, readable) in [
            ("skill://shop/refunds", true),
            (REFUNDS, true),
            ("skill://shop/refunds/references/x.md", true),
            (ESCALATE, false),
            ("skill://shop/refunds/steps/escalate/who.md", false),
            (PALLETS, false),
        ] {
            let read = client.ask("resources/read", json!({ "uri": uri })).await;
            assert_eq!(succeeded(&read), readable, "{version} {uri}: {read}");
        }
    }
    let denying = Rules {
        deny: only("skill://shop/refunds"),
        ..Rules::default()
    };
    let house = self::house(&resources, denying);
    let mut client = house.connect("anna", MODERN).await;
    let file = json!({ "uri": "skill://shop/refunds/references/x.md" });
    let read = client.ask("resources/read", file).await;
    assert_eq!(read["error"]["data"]["reason"], "permission", "{read}");
    // What may be seen and not used is listed, as tools are.
    assert!(listed(&mut client).await.contains_key(REFUNDS));
}

#[tokio::test]
async fn each_principal_has_lists_of_its_own_and_pages_hold_whole_entries() {
    let (_directory, resources) = skills();
    let setup = Setup::default();
    let house = Setup {
        policy: governance::PolicySpec {
            principals: [("bert".to_owned(), hiding(&["skill://depot/pallets"]))].into(),
            ..Default::default()
        },
        options: Options {
            resources_page: 1,
            ..setup.options
        },
        resources: Arc::clone(&resources),
        ..setup
    }
    .build();
    let mut anna = house.connect("anna", MODERN).await;
    let mut bert = house.connect("bert", MODERN).await;
    // Twice, because the second time comes from the cache.
    for _ in 0..2 {
        assert_eq!(listed(&mut anna).await.len(), 3);
        assert_eq!(listed(&mut bert).await.len(), 2);
    }
    let first = anna.ask(LIST, json!({})).await;
    let first = &first["result"];
    assert_eq!(first["skills"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&first["ttlMs"], &first["cacheScope"]),
        (&json!(600_000), &json!("private"))
    );
    // A cursor of what the other sees goes on in what this one sees, as if that had gone.
    let cursor = first["nextCursor"].clone();
    let answer = bert.ask(LIST, json!({ "cursor": cursor })).await;
    let skills = answer["result"]["skills"].as_array().unwrap();
    assert_eq!(skills.len(), 1, "{answer}");
    assert!(!answer.to_string().contains("pallets"), "{answer}");
    for cursor in [json!("nonsense"), json!("")] {
        let answer = bert.ask(LIST, json!({ "cursor": cursor })).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let (mut children, mut params) = (Vec::new(), json!({ "uri": "skill://shop/refunds" }));
    loop {
        let answer = anna.ask(READ_DIRECTORY, params.clone()).await;
        let result = &answer["result"];
        assert!(
            result.get("ttlMs").is_none(),
            "the extension's text has none here"
        );
        children.extend(result["resources"].as_array().unwrap().clone());
        match result.get("nextCursor") {
            Some(cursor) => params["cursor"] = cursor.clone(),
            None => break,
        }
    }
    assert_eq!(children.len(), 4);
}

#[tokio::test]
async fn another_catalogue_is_told_of_at_once() {
    let (root, resources) = skills();
    let house = house(&resources, Rules::default());
    let mut client = house.connect("anna", MODERN).await;
    assert_eq!(listed(&mut client).await.len(), 3);
    fs::remove_dir_all(root.path().join("shop/refunds/steps")).unwrap();
    write(root.path(), &[("shop/refunds/new.md", "# New\n")]);
    let (catalog, _) = SkillCatalog::scan(&ScanOptions::new(root.path()));
    let resources = SkillResources::new(Arc::new(catalog), 0);
    house
        .mcp_server
        .replace_offer(offer(house.bench.tools(), Arc::new(resources)));
    let skills = listed(&mut client).await;
    assert_eq!(skills.keys().collect::<Vec<_>>(), [PALLETS, REFUNDS]);
    assert!(uris(&skills[REFUNDS]["resources"]).contains(&"skill://shop/refunds/new.md"));
    // Without any, the methods that were declared are there still, and have nothing to tell.
    let none = offer(house.bench.tools(), Arc::new(mcp_server::NoResources));
    house.mcp_server.replace_offer(none);
    assert!(listed(&mut client).await.is_empty());
    check_unknown(&client.ask(GET, json!({ "uri": REFUNDS })).await, REFUNDS);
}

#[tokio::test]
async fn skills_and_other_resources_are_one_offer() {
    let (_directory, skills) = skills();
    let documents = StaticResources::new()
        .text("doc://a", "a", "text/plain", "about a")
        .text(
            "skill://depot/pallets",
            "mine",
            "text/plain",
            "the earlier one",
        );
    let joined: Arc<dyn Resources> =
        Arc::new(CombinedResources::new(vec![Arc::new(documents), skills]));
    let house = house(&joined, hiding(&["skill://shop/refunds"]));
    let mut client = house.connect("anna", MODERN).await;
    assert_eq!(
        client.resource_uris().await,
        [
            "doc://a",
            "skill://depot/pallets",
            "skill://depot/Stack_It",
            "skill://depot/other",
            "skill://shop/refunds/steps/escalate",
        ]
    );
    for (uri, text) in [
        ("doc://a", "about a"),
        ("skill://depot/pallets", "the earlier one"),
        ("skill://depot/other/z.md", "# Z\n"),
    ] {
        let read = client.ask("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["result"]["contents"][0]["text"], text);
    }
    for hidden in ["skill://shop/refunds/references/x.md", "doc://b"] {
        check_unknown(
            &client.ask("resources/read", json!({ "uri": hidden })).await,
            hidden,
        );
    }
    assert_eq!(listed(&mut client).await.len(), 2);
    let nested = "skill://shop/refunds/steps/escalate";
    assert_eq!(uris(&directory(&mut client, nested).await).len(), 2);
    let templates = client
        .list("resources/templates/list", "resourceTemplates")
        .await;
    assert_eq!(templates.len(), 1);
    // A pattern is for those who know its scheme.
    for (pattern, expected) in [
        ("doc://*", vec!["doc://a"]),
        (
            "skill://depot/*",
            vec![
                "skill://depot/pallets",
                "skill://depot/Stack_It",
                "skill://depot/other",
            ],
        ),
    ] {
        let answer = client
            .ask("resources/list", json!({ "uri": pattern }))
            .await;
        assert_eq!(uris(&answer["result"]["resources"]), expected, "{pattern}");
    }
}

#[tokio::test]
async fn documents_are_listed_once_more_where_that_is_wanted_and_hidden_with_their_skills() {
    let directory = tempfile::tempdir().unwrap();
    for (path, front) in [
        (
            "shop/refunds",
            "name: refunds\ndescription: How to refund.\ntags: [money]",
        ),
        ("shop/odd", "name: Odd Name\ndescription: Named oddly."),
        ("depot/pallets", "name: pallets\ndescription: How to stack."),
    ] {
        let skill = directory.path().join(path);
        std::fs::create_dir_all(&skill).unwrap();
        std::fs::write(
            skill.join("SKILL.md"),
            format!("---\n{front}\n---\nText.\n"),
        )
        .unwrap();
    }
    let (catalog, _) = SkillCatalog::scan(&ScanOptions::new(directory.path()));
    let resources = SkillResources::new(Arc::new(catalog), 0).with_documents_listed();
    let resources: Arc<dyn Resources> = Arc::new(resources);
    let hidden = Rules {
        hidden: vec!["resource/skill://depot/pallets".to_owned()],
        ..Rules::default()
    };
    let uris = async |house: &House, params: Value| {
        let mut client = house.connect("anna", MODERN).await;
        let answer = client.ask("resources/list", params).await;
        let listed = answer["result"]["resources"].as_array().unwrap().clone();
        for resource in &listed {
            let read = client
                .ask("resources/read", json!({ "uri": resource["uri"] }))
                .await;
            assert_eq!(read["result"]["contents"][0]["uri"], resource["uri"]);
            let ours = resource.get("_meta").is_some();
            let document = resource["uri"].as_str().unwrap().ends_with("/SKILL.md");
            assert_ne!(ours, document, "{resource}");
        }
        let listed = listed
            .iter()
            .map(|it| it["uri"].as_str().unwrap().to_owned());
        listed.collect::<Vec<_>>()
    };
    let all = [
        "skill://depot/pallets",
        "skill://depot/pallets/SKILL.md",
        "skill://shop/odd",
        "skill://shop/refunds",
        "skill://shop/refunds/SKILL.md",
    ];
    let house_of_all = house(&resources, Rules::default());
    assert_eq!(uris(&house_of_all, json!({})).await, all);
    let tagged = uris(&house_of_all, json!({ "tag": "money" })).await;
    assert_eq!(tagged, all[3..]);
    assert_eq!(uris(&house(&resources, hidden), json!({})).await, all[2..]);
}
