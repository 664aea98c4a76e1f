//! `doctor`: everything that keeps a server from serving is found before it does.

use serde_json::{Value, json};

use crate::support::{Said, Site, run};

async fn doctor(site: &Site, more: &[&str]) -> Said {
    let words = [&["doctor"], more].concat();
    run(site.command(&words)).await
}

/// The findings that are not as they should be: `state area: message | hint`.
async fn found(site: &Site, more: &[&str]) -> (bool, Vec<String>) {
    let said = doctor(site, &[more, &["--format", "json"]].concat()).await;
    let report: Value = serde_json::from_str(&said.output)
        .unwrap_or_else(|error| panic!("{error}: {} {}", said.output, said.messages));
    assert_eq!(said.code, Some(if report["ok"] == true { 0 } else { 1 }));
    let findings = report["findings"].as_array().unwrap().iter();
    let odd = findings.filter(|it| it["state"] != "ok").map(|it| {
        let text = |key: &str| it[key].as_str().unwrap_or("-").to_owned();
        format!(
            "{} {}: {} | {}",
            text("state"),
            text("area"),
            text("message"),
            text("hint")
        )
    });
    (report["ok"] == true, odd.collect())
}

#[tokio::test]
async fn a_server_that_would_serve_has_nothing_wrong() {
    let site = Site::new(json!({}));
    assert_eq!(found(&site, &[]).await, (true, Vec::new()));
    let said = doctor(&site, &[]).await;
    assert_eq!(said.code, Some(0), "{}", said.output);
    for part in [
        "configuration",
        "python",
        "application",
        "skills",
        "ledger",
        "0 errors, 0 warnings",
    ] {
        assert!(said.output.contains(part), "{part}: {}", said.output);
    }
    // What was asked of it has left nothing behind.
    assert!(!site.path("ledger.db").exists());
}

#[tokio::test]
async fn validation_refuses_an_engine_that_the_program_was_built_without() {
    let queues = json!({"long": {"tools": ["echo"]}});
    let site = Site::new(json!({
        "ledger": {"path": null, "url": "postgres://nobody@127.0.0.1:9/nothing"},
        "tasks": {"temporal": {"queues": queues}},
    }));
    for words in [
        &["config", "validate"][..],
        &["config", "validate", "--import"],
    ] {
        let said = run(site.command(words)).await;
        assert_ne!(said.code, Some(0), "{words:?}");
        let why = "`tasks.temporal`: this program was built without Temporal";
        assert!(said.messages.contains(why), "{words:?}: {}", said.messages);
    }
}

#[tokio::test]
async fn what_is_wrong_is_found_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let http = json!({"transport": "http", "http": {"port": port}});
    let rows: [(Value, &str); 7] = [
        (json!({"python": "./no-python"}), "error python: "),
        (json!({"app": "no_such_module"}), "error application: "),
        (json!({"tools": {"page_size": 2}}), "warning application: "),
        (
            json!({"resources": {"skills_dir": "nowhere"}}),
            "error application: resources.skills_dir: there is no directory ",
        ),
        (
            json!({"ledger": {"path": "/proc/owlclaw/ledger.db"}}),
            "error ledger: ",
        ),
        (
            http,
            "warning port: another process already listens on 127.0.0.1:",
        ),
        (
            json!({"ledger": {"path": null, "url": "postgres://u:hunter2@127.0.0.1:1/d"}}),
            "error database: ",
        ),
    ];
    for (settings, expected) in rows {
        let site = Site::new(settings.clone());
        let (_, found) = found(&site, &[]).await;
        let one = found.iter().find(|it| it.starts_with(expected));
        let one = one.unwrap_or_else(|| panic!("{settings}: {found:#?}"));
        assert!(!one.ends_with("| -"), "{one}");
        assert!(!one.contains("hunter2"), "{one}");
    }
}

#[tokio::test]
async fn a_configuration_that_is_wrong_does_not_hide_the_rest() {
    let site = Site::new(json!({"http": {"prot": 1}, "python": "./no-python"}));
    let (ok, found) = found(&site, &["--no-import"]).await;
    assert!(!ok);
    for part in ["unknown key `http.prot` | did you mean", "error python: "] {
        assert!(found.iter().any(|it| it.contains(part)), "{found:#?}");
    }
}

#[tokio::test]
async fn secrets_that_others_can_read_are_found() {
    use std::os::unix::fs::PermissionsExt;
    let site =
        Site::new(json!({"governance": {"approvals": {"http_token": "hunter2-hunter2-hunter2"}}}));
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(site.path("mcp-server.yaml"), mode(0o644)).unwrap();
    let (_, odd) = found(&site, &["--no-import"]).await;
    let secrets = odd.iter().find(|it| it.starts_with("warning secrets: "));
    let secrets = secrets.unwrap_or_else(|| panic!("{odd:#?}"));
    assert!(
        secrets.contains("chmod 600") && !secrets.contains("hunter2"),
        "{secrets}"
    );
    std::fs::set_permissions(site.path("mcp-server.yaml"), mode(0o600)).unwrap();
    let (_, odd) = found(&site, &["--no-import"]).await;
    assert!(!odd.iter().any(|it| it.contains("secrets")), "{odd:#?}");
}

#[tokio::test]
async fn a_ledger_that_was_taken_away_is_no_new_one() {
    let site = Site::new(json!({}));
    // What a server leaves beside its ledger.
    site.write("ledger.db.checkpoints", "");
    let (ok, odd) = found(&site, &["--no-import"]).await;
    assert!(!ok);
    let gone = odd.iter().find(|it| it.starts_with("error ledger: "));
    let gone = gone.unwrap_or_else(|| panic!("{odd:#?}"));
    assert!(
        gone.contains("was taken away") && gone.contains("Put back"),
        "{gone}"
    );
}

#[tokio::test]
async fn a_file_of_keys_that_is_wrong_is_mended_and_not_made() {
    let keys = json!({"transport": "http", "http": {"port": 0}, "identity": {"api_keys": {}}});
    let site = Site::new(keys);
    let hint = async |site: &Site| {
        let (_, odd) = found(site, &["--no-import"]).await;
        let found = odd.iter().find(|it| it.contains(" keys: "));
        found.unwrap_or_else(|| panic!("{odd:#?}")).clone()
    };
    assert!(hint(&site).await.contains("keys create"));
    std::fs::create_dir_all(site.path("data")).unwrap();
    site.write("data/api-keys.json", "{broken");
    let broken = hint(&site).await;
    assert!(
        broken.starts_with("error keys: ") && broken.contains("restore a copy"),
        "{broken}"
    );
}
