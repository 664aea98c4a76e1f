//! A ledger that is changed while its server runs, and files of witnesses.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpRequest, HttpServer, MODERN, Receiver, wait_until};

use crate::support::{END, Said, Site, call, run};

async fn calls(server: &HttpServer, count: usize) {
    let mut client = server.client().with_header("x-mcp-client-id", "ana");
    client.open(MODERN).await;
    for _ in 0..count {
        let answer = client
            .request("tools/call", call("append", json!({"mark": "rent"})))
            .await;
        assert!(answer.response["result"].is_object(), "{}", answer.response);
    }
}

async fn stop(mut server: HttpServer) {
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
}

async fn component(server: &HttpServer, name: &str) -> (u16, Value) {
    let answer = server.client().exchange(&HttpRequest::get("/health")).await;
    let health = answer.json();
    let components = health["components"].as_array().unwrap();
    let ours = components.iter().find(|it| it["name"] == name);
    (answer.status, ours.cloned().unwrap_or_default())
}

async fn until_component(server: &HttpServer, name: &str, ok: bool) -> (u16, Value) {
    tokio::time::timeout(GENEROUS, async {
        loop {
            let found = component(server, name).await;
            if found.1["ok"] == ok {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{name} is not {ok}: {}", server.stderr()))
}

async fn metric(server: &HttpServer, name: &str) -> f64 {
    let answer = server
        .client()
        .exchange(&HttpRequest::get("/metrics"))
        .await;
    let text = String::from_utf8(answer.body).unwrap();
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn a_ledger_that_is_changed_under_its_server_is_told_in_health_by_an_alert_and_by_an_age() {
    let pager = Receiver::start().await;
    let site = Site::new(json!({
        "ledger": {"verification": {"every_seconds": 1, "cpu_percent": 50}},
        "alerts": {"min_seconds": 0, "webhooks": {"pager": {
            "url": pager.url("/hook"), "secret": "whsec_0123456789", "events": ["ledger_damaged"],
        }}},
    }));
    let server = site.http().await;
    calls(&server, 3).await;
    while metric(&server, "owlclaw_mcp_ledger_verifications_total").await < 1.0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(metric(&server, "owlclaw_mcp_ledger_verification_age_seconds").await < 60.0);
    let (_, before) = component(&server, "ledger_integrity").await;
    assert_eq!(before, json!({"name": "ledger_integrity", "ok": true}));

    let tamper = "import sqlite3, sys\n\
        with sqlite3.connect(sys.argv[1], timeout=30) as file:\n\
        \x20   body = file.execute('SELECT body FROM entry_group WHERE first_sequence = 1').fetchone()[0]\n\
        \x20   body = body[:-1] + bytes([body[-1] ^ 1])\n\
        \x20   file.execute('UPDATE entry_group SET body = ? WHERE first_sequence = 1', (body,))";
    let python = std::process::Command::new("python3")
        .args(["-c", tamper])
        .arg(site.path("ledger.db"))
        .status();
    assert!(python.unwrap().success());
    let (status, found) = until_component(&server, "ledger_integrity", false).await;
    assert_eq!(status, 200, "calls go on");
    let detail = found["detail"].as_str().unwrap();
    assert!(detail.starts_with("entry 1: "), "{detail}");
    let alert = || {
        let received = pager.received();
        let bodies = received.iter().map(|it| it.json());
        bodies
            .into_iter()
            .find(|body| body["key"] == "ledger_damaged")
    };
    wait_until("the alert", GENEROUS, || alert().is_some()).await;
    let alert = alert().unwrap();
    assert_eq!(
        (&alert["severity"], &alert["detail"]),
        (&json!("critical"), &json!(detail))
    );
    calls(&server, 1).await;
    stop(server).await;
}

/// Ends of `ledger verify --require-sealed`.
async fn verified(site: &Site) -> Said {
    run(site.command(&["ledger", "verify", "--require-sealed"])).await
}

#[tokio::test]
async fn a_ledger_that_a_witness_s_file_contradicts_is_refused_whether_ahead_missing_or_unreadable()
{
    let volume = tempfile::tempdir().unwrap();
    let file = volume.path().join("shop");
    let settings = |required: bool| {
        json!({"ledger": {"checkpoint": {"entries": 2},
            "witness": {"file": file, "required": required}}})
    };
    let site = Site::new(settings(true));
    let server = site.http().await;
    calls(&server, 3).await;
    stop(server).await;
    let sound = verified(&site).await;
    assert_eq!(sound.code, Some(0), "{}{}", sound.output, sound.messages);
    let named = format!("witness      {}", file.display());
    assert!(sound.output.contains(&named), "{}", sound.output);
    let files = ["ledger.db", "ledger.db.checkpoints"];
    let keep = || files.map(|file| std::fs::read(site.path(file)).unwrap());
    let put_back = |kept: &[Vec<u8>; 2]| {
        for (file, content) in files.iter().zip(kept) {
            site.write(file, content);
        }
        let _ = std::fs::remove_file(site.path("ledger.db-wal"));
    };
    let monday = keep();
    let server = site.http().await;
    calls(&server, 2).await;
    stop(server).await;
    let (tuesday, lines) = (keep(), std::fs::read(&file).unwrap());
    let start = ["start", "--transport", "http"];
    let refused = async |why: &str| {
        let said = run(site.command(&start)).await;
        assert_eq!(said.code, Some(1), "{}", said.messages);
        assert!(said.messages.contains(why), "{why}: {}", said.messages);
    };

    // The file is ahead of a ledger that was put back with its own file of checkpoints.
    put_back(&monday);
    refused("seals entry").await;
    assert_eq!(verified(&site).await.code, Some(1));

    // It is missing, cut off, or on a volume that is not there.
    put_back(&tuesday);
    std::fs::remove_file(&file).unwrap();
    refused("taken away").await;
    let lacking = verified(&site).await;
    assert_eq!(lacking.code, Some(1), "{}", lacking.output);
    assert!(lacking.output.contains("lacking"), "{}", lacking.output);
    let half = lines.iter().position(|it| *it == b'\n').unwrap() + 1;
    std::fs::write(&file, &lines[..half]).unwrap();
    refused("cut off").await;
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(site.path("elsewhere"), &file).unwrap();
    refused("links are not followed").await;
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, &lines).unwrap();

    // Somebody accepts an older one: the file is set aside, and the next start begins another.
    put_back(&monday);
    let accept = [
        "ledger",
        "accept-rollback",
        "--by",
        "ana",
        "--reason",
        "the disk is lost",
    ];
    let accepted = run(site.command(&accept)).await;
    assert_eq!(accepted.code, Some(0), "{}", accepted.messages);
    let aside = format!("set aside    {}.", file.display());
    assert!(accepted.output.contains(&aside), "{}", accepted.output);
    let server = site.http().await;
    calls(&server, 2).await;
    stop(server).await;
    assert!(file.exists());
    assert_eq!(verified(&site).await.code, Some(0));

    // Without `required` a volume that is gone is logged, and red in health until it is back.
    let place = volume.path().to_owned();
    let away = site.path("away");
    std::fs::rename(&place, &away).unwrap();
    refused("set ledger.witness.required to false").await;
    let text = site
        .read("mcp-server.yaml")
        .replace("\"required\":true", "\"required\":false");
    site.write("mcp-server.yaml", text);
    let server = site.http().await;
    calls(&server, 2).await;
    let (status, red) = until_component(&server, "ledger_witness", false).await;
    assert_eq!(status, 200);
    assert!(
        red["detail"]
            .as_str()
            .unwrap()
            .contains("cannot be written"),
        "{red}"
    );
    assert!(!place.exists(), "nothing is made in its place");
    std::fs::rename(&away, &place).unwrap();
    until_component(&server, "ledger_witness", true).await;
    stop(server).await;
    assert_eq!(verified(&site).await.code, Some(0));
}
