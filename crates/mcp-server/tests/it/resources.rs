//! Reading resources (R7, decisions D18 to D20).

use crate::house::{Place, SPOKEN, Setup, policy};
use adapter_skills::{ScanOptions, SkillCatalog};
use governance::{PolicySpec, RateLimits, Rules};
use ledger::{Kind, Outcome};
use mcp_server::{SkillResources, StaticResources};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc};
use tempfile::TempDir;
use testkit::{MODERN, succeeded};

pub(crate) const REFUNDS: &str = "---\nname: refunds\ndescription: How to refund.\ntags: [money]\n---\n# Refunds\n\nÄrger vermeiden.\n";
pub(crate) const URI: &str = "skill://shop/refunds";

/// A directory with two skills, and some bytes beside one of them.
pub(crate) fn skills() -> (TempDir, Arc<SkillResources>) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("skills");
    write(&root, "shop/refunds/SKILL.md", REFUNDS.as_bytes());
    write(&root, "shop/refunds/logo.png", &[0x89, b'P', 0, 255]);
    let other = "---\nname: pallets\ndescription: How to stack.\n---\nStack.\n";
    write(&root, "depot/pallets/SKILL.md", other.as_bytes());
    let (catalog, problems) = SkillCatalog::scan(&ScanOptions::new(&root));
    assert!(problems.is_empty(), "{problems:?}");
    (
        directory,
        Arc::new(SkillResources::new(Arc::new(catalog), 600_000)),
    )
}

fn write(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn about(answer: &Value) -> &Value {
    &answer["result"]["_meta"]["io.owlclaw/resource"]
}

#[tokio::test]
async fn a_document_is_read_byte_for_byte_with_its_type_and_tag() {
    let (_directory, resources) = skills();
    for version in SPOKEN {
        let house = Setup {
            resources: resources.clone(),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let answer = client.ask("resources/read", json!({ "uri": URI })).await;
        let contents = answer["result"]["contents"].as_array().unwrap();
        assert_eq!(contents.len(), 1);
        assert_eq!(contents[0]["uri"], URI);
        assert_eq!(contents[0]["mimeType"], "text/markdown");
        assert_eq!(contents[0]["text"], REFUNDS);
        let about = about(&answer);
        assert_eq!(about["size"], REFUNDS.len());
        assert_eq!(about["etag"].as_str().unwrap().len(), 64);
        assert!(about["lastModified"].as_str().unwrap().ends_with('Z'));
        assert!(about.get("range").is_none() && about.get("notModified").is_none());
        let bytes = client
            .ask(
                "resources/read",
                json!({ "uri": "skill://shop/refunds/logo.png" }),
            )
            .await;
        assert_eq!(bytes["result"]["contents"][0]["blob"], "iVAA/w==");
        assert_eq!(bytes["result"]["contents"][0]["mimeType"], "image/png");
    }
}

#[tokio::test]
async fn listed_resources_can_be_read_and_are_as_listed() {
    let (_directory, resources) = skills();
    for version in SPOKEN {
        let house = Setup {
            resources: resources.clone(),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let listed = client.list("resources/list", "resources").await;
        assert_eq!(listed.len(), 2);
        for resource in listed {
            let answer = client
                .ask("resources/read", json!({ "uri": resource["uri"] }))
                .await;
            let contents = &answer["result"]["contents"][0];
            assert_eq!(contents["mimeType"], resource["mimeType"]);
            let size = contents["text"].as_str().unwrap().len();
            if version != "1.0" && version != "2024-11-05" || resource.get("size").is_some() {
                assert_eq!(resource["size"], size, "{version}: {resource}");
            }
            assert_eq!(
                resource["_meta"]["io.owlclaw/skill"]["etag"],
                about(&answer)["etag"]
            );
            assert!(resource["name"].is_string() && resource["description"].is_string());
        }
        for (filter, expected) in [
            (json!({ "category": "shop" }), vec![URI]),
            (json!({ "tag": "money" }), vec![URI]),
            (
                json!({ "uri": "skill://depot/*" }),
                vec!["skill://depot/pallets"],
            ),
            (json!({ "uri": "skill://depot/*", "tag": "money" }), vec![]),
        ] {
            let answer = client.ask("resources/list", filter.clone()).await;
            let listed = answer["result"]["resources"].as_array().unwrap().iter();
            let uris: Vec<_> = listed.map(|it| it["uri"].as_str().unwrap()).collect();
            assert_eq!(uris, expected, "{filter}");
        }
        let wrong = client
            .ask("resources/list", json!({ "uri": "nonsense" }))
            .await;
        assert_eq!(wrong["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn a_part_of_a_document_is_those_bytes() {
    let (_directory, resources) = skills();
    let house = Setup {
        resources,
        ..Setup::default()
    }
    .build();
    let mut client = house.connect("anna", MODERN).await;
    let size = REFUNDS.len();
    for (range, expected) in [
        (json!({ "offset": 0, "length": 3 }), 0..3),
        (json!({ "offset": 4 }), 4..size),
        (json!({ "offset": 4, "length": 1_000_000 }), 4..size),
        (json!({ "offset": size - 1, "length": 1 }), size - 1..size),
    ] {
        let params = json!({ "uri": URI, "range": range });
        let answer = client.ask("resources/read", params).await;
        assert_eq!(
            answer["result"]["contents"][0]["text"],
            REFUNDS[expected.clone()]
        );
        let told = json!({ "offset": expected.start, "length": expected.len(), "size": size });
        assert_eq!(about(&answer)["range"], told, "{answer}");
    }
    // Half a character is no text.
    let umlaut = REFUNDS.find('Ä').unwrap();
    let params = json!({ "uri": URI, "range": { "offset": umlaut, "length": 1 } });
    let answer = client.ask("resources/read", params).await;
    assert_eq!(answer["result"]["contents"][0]["blob"], "ww==", "{answer}");
    for bad in [
        json!({ "offset": size }),
        json!({ "offset": 0, "length": 0 }),
        json!({ "offset": -1 }),
        json!({ "offset": 0, "to": 3 }),
        json!("0-3"),
    ] {
        let answer = client
            .ask("resources/read", json!({ "uri": URI, "range": bad }))
            .await;
        assert_eq!(answer["error"]["code"], -32602, "{bad}: {answer}");
    }
}

#[tokio::test]
async fn an_unchanged_document_is_not_sent_again() {
    let (directory, resources) = skills();
    for version in SPOKEN {
        let house = Setup {
            resources: resources.clone(),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let first = client.ask("resources/read", json!({ "uri": URI })).await;
        let etag = about(&first)["etag"].as_str().unwrap().to_owned();
        for known in [
            etag.clone(),
            format!("\"{etag}\""),
            format!("W/\"{etag}\""),
            format!("\"old\", \"{etag}\""),
            "*".to_owned(),
        ] {
            let params = json!({ "uri": URI, "ifNoneMatch": known });
            let answer = client.ask("resources/read", params).await;
            assert_eq!(answer["result"]["contents"], json!([]), "{known}");
            assert_eq!(about(&answer)["notModified"], true);
            assert_eq!(about(&answer)["etag"], etag);
        }
        let params = json!({ "uri": URI, "ifNoneMatch": "\"old\"" });
        let answer = client.ask("resources/read", params).await;
        assert_eq!(answer["result"]["contents"][0]["text"], REFUNDS);
    }
    // A change on disk is a change of the tag, before anybody has looked through the directory.
    let house = Setup {
        resources,
        ..Setup::default()
    }
    .build();
    let mut client = house.connect("anna", MODERN).await;
    let first = client.ask("resources/read", json!({ "uri": URI })).await;
    let changed = REFUNDS.replace("Refunds", "Returns");
    write(
        &directory.path().join("skills"),
        "shop/refunds/SKILL.md",
        changed.as_bytes(),
    );
    let params = json!({ "uri": URI, "ifNoneMatch": about(&first)["etag"] });
    let answer = client.ask("resources/read", params).await;
    assert_eq!(answer["result"]["contents"][0]["text"], changed.as_str());
    assert_ne!(about(&answer)["etag"], about(&first)["etag"]);
}

#[tokio::test]
async fn what_is_not_there_is_unknown_however_it_is_asked_for() {
    let (directory, resources) = skills();
    for version in SPOKEN {
        for place in Place::of(version) {
            let house = Setup {
                resources: resources.clone(),
                ..Setup::default()
            }
            .build();
            let mut client = house.connect("anna", version).await;
            for uri in [
                "skill://shop/nothing",
                "skill://shop/refunds/../../etc/passwd",
                "skill://shop/refunds/%2e%2e/%2e%2e/x",
                "skill://",
                "file:///etc/passwd",
                "",
                "nonsense",
            ] {
                let params = json!({ "uri": uri });
                let answer = client.ask_at(*place, "resources/read", params).await;
                check_unknown(&answer["error"], uri, version);
                let last = house.record().await.pop().unwrap();
                assert_eq!(last.reason(), Some("unknown"));
                assert_eq!(last.started.capability, format!("resource/{uri}"));
            }
            assert!(house.usage().await.is_empty(), "nothing is used up");
        }
    }
    // Gone since it was found: as if it had never been there.
    fs::remove_file(directory.path().join("skills/shop/refunds/SKILL.md")).unwrap();
    for version in SPOKEN {
        let house = Setup {
            resources: resources.clone(),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let answer = client.ask("resources/read", json!({ "uri": URI })).await;
        check_unknown(&answer["error"], URI, version);
    }
}

fn check_unknown(error: &Value, uri: &str, version: &str) {
    assert_eq!(error["data"]["uri"], uri, "{version}: {error}");
    assert_eq!(error["data"]["retryable"], false);
    if version == MODERN {
        assert_eq!(error["code"], -32602, "{uri}");
        assert_eq!(error["data"]["code"], -32002, "{uri}");
    } else {
        assert_eq!(error["code"], -32002, "{version} {uri}");
    }
}

#[tokio::test]
async fn invisible_resources_and_absent_ones_are_told_apart_by_the_ledger_alone() {
    let (_directory, resources) = skills();
    for version in SPOKEN {
        for place in Place::of(version) {
            let mut answers = Vec::new();
            let rules = policy(Rules {
                hidden: vec![format!("resource/{URI}")],
                reads: RateLimits {
                    per_minute: Some(1),
                    per_day: None,
                },
                ..Rules::default()
            });
            let rest = StaticResources::new().text("doc://a", "a", "text/plain", "a");
            for (resources, reason) in [
                (
                    resources.clone() as Arc<dyn mcp_server::Resources>,
                    "not_visible",
                ),
                (Arc::new(rest), "unknown"),
            ] {
                let house = Setup {
                    policy: rules.clone(),
                    resources,
                    ..Setup::default()
                }
                .build();
                let mut client = house.connect("anna", version).await;
                for params in [
                    json!({ "uri": URI }),
                    json!({ "uri": URI }),
                    json!({ "uri": URI, "range": { "offset": 999_999 } }),
                    json!({ "uri": URI, "ifNoneMatch": "*" }),
                ] {
                    let answer = client.ask_at(*place, "resources/read", params).await;
                    answers.push(answer["error"].clone());
                    let last = house.record().await.pop().unwrap();
                    assert_eq!(last.reason(), Some(reason));
                }
                assert!(house.usage().await.is_empty(), "nothing is used up");
            }
            check_unknown(&answers[0], URI, version);
            assert!(
                answers.iter().all(|it| *it == answers[0]),
                "{version}: {answers:?}"
            );
        }
    }
}

#[tokio::test]
async fn reading_takes_permission_whatever_the_spelling() {
    let (_directory, resources) = skills();
    for version in SPOKEN {
        for place in Place::of(version) {
            let house = Setup {
                policy: policy(Rules {
                    deny: vec![format!("resource/{URI}")],
                    ..Rules::default()
                }),
                resources: resources.clone(),
                ..Setup::default()
            }
            .build();
            let mut client = house.connect("anna", version).await;
            for uri in [
                URI,
                "skill://shop/refunds/SKILL.md",
                "skill://shop/%72efunds",
            ] {
                let params = json!({ "uri": uri });
                let answer = client.ask_at(*place, "resources/read", params).await;
                assert_eq!(answer["error"]["code"], -32003, "{uri}: {answer}");
                assert_eq!(answer["error"]["data"]["reason"], "permission");
                let last = house.record().await.pop().unwrap();
                assert_eq!(last.reason(), Some("permission"));
                assert_eq!(last.started.capability, format!("resource/{URI}"));
            }
            let other = json!({ "uri": "skill://depot/pallets" });
            let answer = client.ask("resources/read", other).await;
            assert!(succeeded(&answer), "{answer}");
        }
    }
}

#[tokio::test]
async fn reads_have_limits_apart_from_calls() {
    let (_directory, resources) = skills();
    for version in SPOKEN {
        let house = Setup {
            policy: policy(Rules {
                reads: RateLimits {
                    per_minute: Some(2),
                    per_day: None,
                },
                ..Rules::default()
            }),
            resources: resources.clone(),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        for _ in 0..2 {
            let answer = client.ask("resources/read", json!({ "uri": URI })).await;
            assert!(succeeded(&answer), "{answer}");
        }
        let refused = client.ask("resources/read", json!({ "uri": URI })).await;
        assert_eq!(refused["error"]["code"], -32003);
        assert_eq!(refused["error"]["data"]["reason"], "rate_minute");
        assert!(refused["error"]["data"]["retry_after"].is_u64());
        for _ in 0..3 {
            let call = client.call("add", json!({ "a": 1, "b": 2 })).await;
            assert!(succeeded(&call));
        }
        let usage = house.usage_of("anna").await.unwrap();
        assert_eq!((usage.reads_total, usage.calls_total), (2, 3));
        let mut other = house.connect("bert", version).await;
        let answer = other.ask("resources/read", json!({ "uri": URI })).await;
        assert!(succeeded(&answer), "{answer}");
    }
}

#[tokio::test]
async fn a_read_is_on_record_with_uri_time_and_client_and_without_the_content() {
    let (_directory, resources) = skills();
    let house = Setup {
        resources,
        ..Setup::default()
    }
    .build();
    let mut client = house.connect("anna", "2025-06-18").await;
    let params = json!({ "uri": URI, "range": { "offset": 4, "length": 5 } });
    client.ask("resources/read", params.clone()).await;
    let call = house.record().await.pop().unwrap();
    assert_eq!(call.started.kind, Kind::Resource);
    assert_eq!(call.started.capability, format!("resource/{URI}"));
    assert_eq!(call.started.method, "resources/read");
    assert_eq!(call.started.principal, "anna");
    assert_eq!(call.started.at_us, crate::house::now_us());
    assert_eq!(call.started.request_id, "2");
    let asked: Value = serde_json::from_str(&call.started.arguments.text).unwrap();
    assert_eq!(asked, params);
    assert_eq!(call.ended.outcome, Outcome::Succeeded);
    assert_eq!(call.ended.cost_micros, 0);
    let mut result: Value = serde_json::from_str(&call.ended.result.text).unwrap();
    let digest = result[0]["digest"].take();
    assert_eq!(digest.as_str().map(str::len), Some(64));
    assert_eq!(result, json!([{ "uri": URI, "length": 5, "digest": null }]));
}

#[tokio::test]
async fn templates_are_listed_and_lead_to_what_they_say() {
    let template = mcp_protocol::model::ResourceTemplate {
        uri_template: "order://{number}".to_owned(),
        name: "order".to_owned(),
        ..Default::default()
    };
    let read = |uri: &str| {
        let number = uri.strip_prefix("order://")?;
        Some(mcp_protocol::model::ResourceContents {
            uri: uri.to_owned(),
            mime_type: Some("text/plain".to_owned()),
            text: Some(format!("order {number}")),
            blob: None,
            meta: None,
        })
    };
    for version in SPOKEN {
        let house = Setup {
            policy: PolicySpec {
                default: Rules {
                    deny: vec!["resource/order://13".to_owned()],
                    ..Rules::default()
                },
                ..PolicySpec::default()
            },
            resources: Arc::new(StaticResources::new().template(template.clone(), read)),
            ..Setup::default()
        }
        .build();
        let mut client = house.connect("anna", version).await;
        let templates = client
            .list("resources/templates/list", "resourceTemplates")
            .await;
        assert_eq!(templates[0]["uriTemplate"], "order://{number}");
        let answer = client
            .ask("resources/read", json!({ "uri": "order://12" }))
            .await;
        assert_eq!(answer["result"]["contents"][0]["text"], "order 12");
        let answer = client
            .ask("resources/read", json!({ "uri": "order://13" }))
            .await;
        assert_eq!(answer["error"]["data"]["reason"], "permission");
    }
}

#[tokio::test]
async fn a_secret_in_what_a_template_leaves_open_is_not_on_record() {
    let template = |uri: &str| mcp_protocol::model::ResourceTemplate {
        uri_template: uri.to_owned(),
        name: "doc".to_owned(),
        ..Default::default()
    };
    let read = |uri: &str| {
        Some(mcp_protocol::model::ResourceContents {
            uri: uri.to_owned(),
            mime_type: None,
            text: Some("x".to_owned()),
            blob: None,
            meta: None,
        })
    };
    let key = format!("sk-{}", "aB3".repeat(16));
    let denied = format!("doc://denied/{key}");
    let resources = StaticResources::new()
        .template(template("doc://{name}"), read)
        .template(template("{+any}"), read);
    let house = Setup {
        policy: PolicySpec {
            default: Rules {
                deny: vec![format!("resource/{denied}")],
                ..Rules::default()
            },
            ..PolicySpec::default()
        },
        resources: Arc::new(resources),
        ..Setup::default()
    }
    .build();
    let mut client = house.connect("anna", "2025-06-18").await;
    for (uri, begins, is_let) in [
        (
            format!("doc://{key}"),
            "resource/doc://[redacted api key ",
            true,
        ),
        (denied, "resource/doc://denied/[redacted api key ", false),
        (
            "x://ana:hunter2@h/y".to_owned(),
            "resource/x://ana:[redacted password ",
            true,
        ),
        ("doc://4711".to_owned(), "resource/doc://4711", true),
    ] {
        let answer = client.ask("resources/read", json!({ "uri": uri })).await;
        assert_eq!(succeeded(&answer), is_let, "{answer}");
        let call = house.record().await.pop().unwrap();
        let capability = &call.started.capability;
        assert!(capability.starts_with(begins), "{capability}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Property 7, down the wire: whatever the bytes, what is read is what is on disk.
    #[test]
    fn what_is_read_is_what_is_on_disk(
        body in proptest::collection::vec(any::<char>(), 0..200),
        cuts in proptest::collection::vec(0_usize..400, 0..4),
        version in proptest::sample::select(SPOKEN.to_vec()),
    ) {
        let body: String = body.into_iter().filter(|it| *it != '\0').collect();
        let document = format!("---\nname: x\ndescription: d\n---\n{body}");
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "c/x/SKILL.md", document.as_bytes());
        let (catalog, _) = SkillCatalog::scan(&ScanOptions::new(directory.path()));
        prop_assert_eq!(catalog.len(), 1);
        crate::house::block_on(async move {
            let house = Setup {
                resources: Arc::new(SkillResources::new(Arc::new(catalog), 0)),
                ..Setup::default()
            }
            .build();
            let mut client = house.connect("anna", version).await;
            let answer = client.ask("resources/read", json!({ "uri": "skill://c/x" })).await;
            let contents = &answer["result"]["contents"][0];
            assert_eq!(contents["text"], document.as_str());
            assert_eq!(contents["mimeType"], "text/markdown");
            // In pieces, and put together again.
            let bytes = document.as_bytes();
            let mut edges: Vec<_> = cuts.into_iter().filter(|at| *at < bytes.len()).collect();
            edges.extend([0, bytes.len()]);
            edges.sort_unstable();
            edges.dedup();
            let mut joined = Vec::new();
            for pair in edges.windows(2) {
                let range = json!({ "offset": pair[0], "length": pair[1] - pair[0] });
                let params = json!({ "uri": "skill://c/x", "range": range });
                let answer = client.ask("resources/read", params).await;
                let contents = &answer["result"]["contents"][0];
                match contents.get("text") {
                    Some(text) => joined.extend_from_slice(text.as_str().unwrap().as_bytes()),
                    None => joined.extend(from_base64(contents["blob"].as_str().unwrap())),
                }
            }
            assert_eq!(joined, bytes);
        });
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.decode(text).unwrap()
}
