//! Secrets of the vault and of references: resolved, told of, and found nowhere outside.

use std::path::Path;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ledger::{LedgerReader, NoteFilter, PostgresOptions, PostgresReader, ReadLedger};
use serde_json::{Value, json};
use testkit::{Collector, Conversation, GENEROUS, HttpRequest, Postgres, free_port, wait_until};
use tokio::time::Instant;

use crate::support::{Site, call, run, text};

pub(crate) const LEAKY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/leaky.py");

/// A value that stands nowhere else.
fn canary(name: &str) -> String {
    format!("qzx/{name}+7c4n4ry=81")
}

async fn set(site: &Site, name: &str, value: &str) {
    site.write("value", format!("{value}\n"));
    let said = run(site.command(&["vault", "set", name, "--file", "value"])).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    std::fs::remove_file(site.path("value")).unwrap();
}

fn site(upstreams: Value, more: Value) -> Site {
    let mut settings = json!({
        "app": null, "python": null, "upstreams": upstreams,
        "vault": {"path": "vault", "key_file": "vault.key"},
    });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    Site::new(settings)
}

async fn status(site: &Site, name: &str) -> Value {
    let said = run(site.command(&["upstream", "list", "--format", "json"])).await;
    let rows: Value =
        serde_json::from_str(&said.output).unwrap_or_else(|_| panic!("{}", said.messages));
    let rows = rows
        .as_array()
        .or_else(|| rows["upstreams"].as_array())
        .cloned();
    rows.into_iter()
        .flatten()
        .find(|it| it["name"] == name)
        .unwrap_or_else(|| panic!("{}", said.output))
}

#[tokio::test]
async fn an_upstream_whose_secret_is_missing_is_held_until_the_vault_has_it() {
    let child = |name: &str| json!({"command": "python3", "args": [LEAKY, "stdio"], "env": {"LEAK_A": name}});
    let site = site(
        json!({"one": child("${vault:ONE}"), "two": child("nothing")}),
        json!({}),
    );
    assert_eq!(run(site.command(&["vault", "init"])).await.code, Some(0));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let listed = server
        .request("tools/list", json!({}))
        .await
        .result()
        .to_string();
    assert!(listed.contains("mcp_two_plain") && !listed.contains("mcp_one_plain"));
    let held = status(&site, "one").await;
    assert_eq!(held["state"], "held", "{held}");
    let reason = held.to_string();
    assert!(
        reason.contains("upstreams.one.env.LEAK_A") && reason.contains("vault set ONE"),
        "{reason}"
    );

    set(&site, "ONE", &canary("one")).await;
    wait_until("the upstream is taken up", GENEROUS, || {
        server.stderr().contains("\"cause\":\"vault\"")
    })
    .await;
    let mut answer = Value::Null;
    for _ in 0..100 {
        answer = server
            .request("tools/call", call("mcp_one_plain", json!({})))
            .await
            .response;
        if answer["result"]["isError"] == false {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(text(&answer["result"]), "[redacted secret]");

    let shown = run(site.command(&["config", "show"])).await.output;
    assert!(shown.contains("vault:ONE from the vault"), "{shown}");
    let mut command = site.command(&["config", "show"]);
    command.env("ONE", canary("two"));
    let shown = run(command).await.output;
    assert!(shown.contains("vault:ONE from the environment"), "{shown}");
    assert!(!shown.contains("7c4n4ry"), "{shown}");
}

#[tokio::test]
async fn a_reference_of_the_server_itself_that_cannot_be_resolved_keeps_it_from_starting() {
    let rows = [
        (
            json!({"ledger": {"url": "postgres://u:${vault:PG}@h/d"}}),
            "vault set PG",
        ),
        (
            json!({"governance": {"approvals": {"http_token": "${cmd:echo x}"}}}),
            "vault.allow_commands",
        ),
        (
            json!({"python": "${vault:PG}"}),
            "`config show` would print it",
        ),
        (
            json!({"logging": {"level": "${valt:PG}"}}),
            "did you mean `vault`?",
        ),
        (
            json!({"vault": {"key_file": "a", "key_variable": "B"}}),
            "two sources of one key",
        ),
    ];
    for (settings, expected) in rows {
        let site = site(json!({}), settings);
        if expected != "two sources of one key" {
            assert_eq!(
                run(site.command(&["vault", "init"])).await.code,
                Some(0),
                "{expected}"
            );
        }
        let said = run(site.command(&["start"])).await;
        assert_eq!(said.code, Some(2), "{expected}: {}", said.messages);
        assert!(
            said.messages.contains(expected),
            "{expected}: {}",
            said.messages
        );
    }
}

#[tokio::test]
async fn a_hosts_file_and_a_file_of_variables_are_taken_into_the_vault() {
    let site = site(json!({}), json!({"upstreams_files": ["mcp.json"]}));
    let (token, header) = (canary("token"), canary("header"));
    let host = format!(
        "{{ // of the host\n  \"mcpServers\": {{\n    \"leaky\": {{\"command\": \"python3\", \"args\": [{LEAKY:?}, \
         \"stdio\", \"--api-key\", \"{token}\"],\n      \"env\": {{\"LEAK_TOKEN\": \"{token}\", \"REGION\": \"eu\"}}}},\n    \
         \"web\": {{\"url\": \"http://127.0.0.1:1/mcp\", \"headers\": {{\"Authorization\": \"Bearer {header}\"}}}},\n  }}\n}}\n"
    );
    site.write("mcp.json", &host);
    site.write(
        ".env",
        format!("# of the shop\nexport DB_PASSWORD=\"{token}\"\nREGION=eu\n"),
    );
    assert_eq!(run(site.command(&["vault", "init"])).await.code, Some(0));
    let said = run(site.command(&["vault", "import", "mcp.json"])).await;
    assert!(
        said.output.contains("LEAK_TOKEN") && said.output.contains("WEB_TOKEN"),
        "{}",
        said.output
    );
    assert_eq!(site.read("mcp.json"), host);
    let mut told = said.output;
    for file in ["mcp.json", ".env"] {
        let said = run(site.command(&["vault", "import", file, "--write"])).await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
        told += &(said.output + &said.messages);
    }
    let written = site.read("mcp.json");
    let expected = host
        .replacen(&token, "${vault:LEAKY_API_KEY}", 1)
        .replace(&token, "${vault:LEAK_TOKEN}")
        .replace(&header, "${vault:WEB_TOKEN}");
    assert_eq!(written, expected);
    assert_eq!(
        site.read(".env"),
        "# of the shop\n# DB_PASSWORD is in the vault of owlclaw-mcp as DB_PASSWORD\nREGION=eu\n"
    );
    let listed = run(site.command(&["vault", "list"])).await.output;
    for name in ["DB_PASSWORD", "LEAKY_API_KEY", "LEAK_TOKEN", "WEB_TOKEN"] {
        assert!(listed.contains(name), "{listed}");
    }
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let answer = server
        .request("tools/call", call("mcp_leaky_hex", json!({})))
        .await;
    let answer = text(answer.result()).to_owned();
    assert_eq!(
        answer,
        "[redacted secret] 2d2d6170692d6b6579 [redacted secret]"
    );
    assert!(!(told + &listed).contains("7c4n4ry"));
}

/// The places of a text that have a canary, in the forms that are promised to be found.
fn leaks(text: &[u8], canaries: &[String]) -> Vec<String> {
    let has = |part: &str| memchr_find(text, part.as_bytes());
    let mut found = Vec::new();
    if has("7c4n4ry") {
        found.push("as it is".to_owned());
    }
    for canary in canaries {
        let percent = canary
            .replace('/', "%2F")
            .replace('+', "%2B")
            .replace('=', "%3D");
        let hexadecimal: String = canary.bytes().map(|it| format!("{it:02x}")).collect();
        for form in [percent, hexadecimal] {
            if has(&form) {
                found.push(form);
            }
        }
        for before in ["", "u", "us"] {
            let encoded = STANDARD.encode(format!("{before}{canary}"));
            // Without what depends on its neighbours.
            if has(&encoded[4..encoded.len() - 4]) {
                found.push(format!("{canary} in Base64 behind {before:?}"));
            }
        }
    }
    found
}

fn memchr_find(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|it| it == part)
}

pub(crate) fn files(directory: &Path, into: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, into),
            false => into.push(path),
        }
    }
}

#[tokio::test]
async fn a_canary_in_each_credential_is_found_nowhere_after_calls_faults_and_crashes() {
    let collector = Collector::start().await;
    let port = free_port();
    let names = [
        "CHILD", "ARGUMENT", "HEADER", "TENANT", "HOOK", "HOOKPATH", "OTLP", "OPERATOR",
    ];
    let variable = canary("VARIABLE");
    let client = canary("CLIENT");
    let own = ["OWN", "OWNWEB"];
    let web = format!("http://127.0.0.1:{port}");
    let settings = json!({
        "identity": {"api_keys": {"file": "keys.json"}},
        "alerts": {"min_seconds": 0, "webhooks": {"pager": {
            "url": "http://127.0.0.1:1/${vault:HOOKPATH}", "secret": "${vault:HOOK}",
            "headers": {"Authorization": "${vault:HOOK}"}}}},
        "telemetry": {"otlp": {"endpoint": collector.endpoint(), "headers": {"Authorization": "${vault:OTLP}"}},
                      "sample_ratio": 1, "capture": "redacted"},
        "governance": {"approvals": {"http_token": "${vault:OPERATOR}"}, "default_quota": {
            "max_calls_per_minute": 1_000_000, "max_calls_per_day": 10_000_000}},
    });
    let site = site(
        json!({
            "child": {
                "command": "python3", "args": [LEAKY, "stdio", "${vault:ARGUMENT}"],
                "env": {"LEAK_A": "${vault:CHILD}", "LEAK_TOKEN": "${MY_TOKEN}"},
            },
            "web": {
                "url": format!("{web}/mcp"),
                "headers": {"Authorization": "Bearer ${vault:HEADER}", "X-Tenant-Key": "${vault:TENANT}"},
            },
            "own": {
                "command": "python3", "args": [LEAKY, "stdio"], "credentials": "per-client",
                "env": {"LEAK_A": "${credential:token}"},
            },
            "ownweb": {
                "url": format!("{web}/mcp"), "credentials": "per-client",
                "headers": {"Authorization": "Bearer ${credential:token}"},
            },
            "signed": {
                "url": format!("{web}/oauth"),
                "auth": {"client_id": "me", "client_secret_file": "client-secret"},
            },
        }),
        settings,
    );
    site.write("client-secret", format!("{client}\n"));
    assert_eq!(run(site.command(&["vault", "init"])).await.code, Some(0));
    for name in names {
        set(&site, name, &canary(name)).await;
    }
    let mut canaries: Vec<String> = names.iter().chain(&own).map(|it| canary(it)).collect();
    for name in own {
        site.write("value", canary(name));
        let upstream = name.to_lowercase();
        let words = [
            "upstream",
            "credential",
            "set",
            &upstream,
            "--client",
            "ana",
            "--file",
            "value",
        ];
        let said = run(site.command(&words)).await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
        std::fs::remove_file(site.path("value")).unwrap();
    }
    let key = run(site.command(&["keys", "create", "--principal", "ana", "--label", "ana"])).await;
    let key = key.output.trim().to_owned();
    canaries.extend([variable.clone(), client, key.clone()]);
    let _web = tokio::process::Command::new("python3")
        .args([LEAKY, "http", &port.to_string()])
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait_until("the web server listens", GENEROUS, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;

    let mut heard = String::new();
    let mut redacted = 0;
    for round in 0..2 {
        let mut command = site.command(&["start", "--transport", "http"]);
        command.env("MY_TOKEN", &variable);
        let mut server = testkit::HttpServer::spawn(
            command,
            testkit::Port::Announced(crate::support::announced),
        )
        .await;
        let mut client = server.client().with_header("X-API-Key", &key);
        client.open("2025-06-18").await;
        // The lists of these come with the first credential of a client, and not before the server serves.
        let mut listed = String::new();
        let until = Instant::now() + GENEROUS;
        while !(listed.contains("mcp_own_plain") && listed.contains("mcp_ownweb_plain")) {
            assert!(Instant::now() < until, "{listed}");
            listed = format!("{:?}\n", client.post_legacy("tools/list", json!({})).await);
            heard += &listed;
        }
        for method in ["tools/list", "resources/list"] {
            heard += &format!("{:?}\n", client.post_legacy(method, json!({})).await);
        }
        let tools = [
            "plain", "base64", "basic", "percent", "hex", "nested", "escaped", "name", "error",
            "refuse", "progress", "log",
        ];
        for turn in 0..12 {
            for tool in tools {
                for upstream in ["child", "web", "own", "ownweb"] {
                    let name = format!("mcp_{upstream}_{tool}");
                    let mut params = call(&name, json!({"said": variable, "turn": turn}));
                    params["_meta"] = json!({"progressToken": format!("{name}{turn}")});
                    let answer = format!("{:?}\n", client.post_legacy("tools/call", params).await);
                    redacted += usize::from(answer.contains("[redacted secret]"));
                    heard += &answer;
                }
            }
            if turn % 10 == 0 {
                for tool in [
                    "mcp_child_die",
                    "mcp_web_die",
                    "mcp_own_die",
                    "mcp_ownweb_die",
                    "mcp_signed_plain",
                ] {
                    let answer = client
                        .post_legacy("tools/call", call(tool, json!({})))
                        .await;
                    heard += &format!("{answer:?}\n");
                }
            }
        }
        let read = client
            .post_legacy("resources/read", json!({"uri": "mcp.child+file:///a"}))
            .await;
        heard += &format!("{read:?}\n");
        for path in [
            "/health",
            "/metrics",
            "/upstreams",
            "/upstreams/child",
            "/upstreams/web",
            "/upstreams/signed",
            "/upstreams/own",
            "/upstreams/ownweb",
        ] {
            let request = HttpRequest::get(path)
                .header("Authorization", &format!("Bearer {}", canary("OPERATOR")));
            heard += &format!("{:?}\n", server.client().exchange(&request).await);
        }
        // A configuration that is refused is told to the receiver of alerts, which is not there.
        let before = site.read("mcp-server.yaml");
        site.write(
            "mcp-server.yaml",
            before.replacen("\"upstreams\"", "\"upstream\"", 1),
        );
        wait_until("the mistake is told", GENEROUS, || {
            server.stderr().contains("is not valid")
        })
        .await;
        site.write("mcp-server.yaml", before);
        for words in [
            &["upstream", "list"][..],
            &["upstream", "why", "child"],
            &["upstream", "why", "signed"],
            &["upstream", "logs", "child"],
            &["upstream", "why", "own"],
            &["upstream", "logs", "own"],
            &["upstream", "credential", "list"],
            &["config", "show"],
            &["config", "validate"],
            &["doctor", "--no-import"],
            &["vault", "list"],
            &["governance", "stats"],
        ] {
            let mut command = site.command(words);
            command.env("MY_TOKEN", &variable);
            let said = run(command).await;
            heard += &format!("{words:?}: {}\n{}\n", said.output, said.messages);
        }
        match round {
            0 => server.process().signal("KILL").await,
            _ => server.process().signal("TERM").await,
        }
        server.wait_exit(GENEROUS).await;
        heard += &server.stderr();
    }
    assert!(800 < redacted, "{redacted} answers had a secret taken out");
    assert!(heard.contains("dying with [redacted secret]"));
    assert!(!heard.contains(&key));
    assert_eq!(
        leaks(heard.as_bytes(), &canaries),
        [""; 0],
        "{}",
        around(&heard)
    );
    let spans = format!("{:?}", collector.spans());
    assert!(spans.contains("mcp_child_plain") && spans.contains("[redacted"));
    assert_eq!(
        leaks(spans.as_bytes(), &canaries),
        [""; 0],
        "{}",
        around(&spans)
    );

    let mut all = Vec::new();
    files(&site.path(""), &mut all);
    assert!(all.iter().any(|it| it.ends_with("ledger.db")), "{all:?}");
    assert!(
        all.iter()
            .any(|it| it.to_string_lossy().contains("upstreams/")),
        "{all:?}"
    );
    for path in all.iter().filter(|it| !it.ends_with("client-secret")) {
        let content = std::fs::read(path).unwrap();
        assert_eq!(leaks(&content, &canaries), [""; 0], "{}", path.display());
    }
}

/// Text around the first canary.
fn around(text: &str) -> &str {
    let at = text.find("7c4n4ry").unwrap_or_default();
    let start = text[..at]
        .char_indices()
        .rev()
        .nth(300)
        .map_or(0, |(at, _)| at);
    let end = text[at..]
        .char_indices()
        .nth(60)
        .map_or(text.len(), |(end, _)| at + end);
    &text[start..end]
}

#[tokio::test]
async fn a_password_of_the_database_is_in_no_message_of_a_start_that_fails() {
    let site = site(
        json!({}),
        json!({"ledger": {"path": null, "url": "postgres://me:${vault:PG}@127.0.0.1:1/d"}}),
    );
    assert_eq!(run(site.command(&["vault", "init"])).await.code, Some(0));
    set(&site, "PG", &canary("PG")).await;
    for words in [
        &["start"][..],
        &["doctor", "--no-import"],
        &["ledger", "stats"],
        &["config", "show"],
    ] {
        let said = run(site.command(words)).await;
        let told = said.output + &said.messages;
        assert_eq!(
            leaks(told.as_bytes(), &[canary("PG")]),
            [""; 0],
            "{words:?}: {told}"
        );
    }
}

/// Changes of the vault by commands that are on record, the oldest first.
fn changes(mut reader: impl ReadLedger) -> Vec<String> {
    let filter = NoteFilter {
        kind: Some("operator_acted"),
        ..NoteFilter::default()
    };
    let mut notes = reader.notes(usize::MAX, filter).unwrap();
    notes.reverse();
    let notes = notes.into_iter().map(|it| {
        let it = it.noted;
        let detail: Value = serde_json::from_str(&it.detail.text).unwrap();
        assert!(it.actor.starts_with("operator:"), "{it:?}");
        let proof = detail["proof"].as_str().unwrap();
        assert!(proof.starts_with("command line, OS user "), "{detail}");
        format!("{} {}", detail["what"].as_str().unwrap(), it.subject)
    });
    notes.collect()
}

#[tokio::test]
async fn what_commands_do_with_the_vault_is_on_record_whether_a_server_runs_or_not() {
    let site = site(json!({}), json!({}));
    let on_record = || changes(LedgerReader::open(site.path("ledger.db")).unwrap());
    let refused = async |words: &[&str]| {
        let said = run(site.command(words)).await;
        assert_eq!(said.code, Some(1), "{words:?}: {}", said.messages);
        said.messages
    };
    assert_eq!(run(site.command(&["vault", "init"])).await.code, Some(0));
    // No server runs, and there is no ledger yet.
    set(&site, "ONE", &canary("one")).await;
    let mut expected = vec!["secret_set ONE".to_owned()];
    assert_eq!(on_record(), expected);
    // What is not done is not said to be.
    refused(&["vault", "remove", "TWO"]).await;
    refused(&["vault", "set", "one two"]).await;
    site.write("empty", "");
    refused(&["vault", "set", "TWO", "--file", "empty"]).await;
    refused(&["vault", "rotate", "--new-key-file", "empty"]).await;
    assert_eq!(on_record(), expected);

    // A server that runs has the ledger, and takes what commands have done.
    let mut server = site.http().await;
    set(&site, "TWO", &canary("two")).await;
    site.write("variables", format!("SHOP_TOKEN={}\n", canary("shop")));
    for words in [
        &["vault", "import", "variables"][..],
        &["vault", "import", "variables", "--write"],
        &["vault", "remove", "ONE"],
        &["vault", "rotate"],
        &["vault", "list"],
    ] {
        let said = run(site.command(words)).await;
        assert_eq!(said.code, Some(0), "{words:?}: {}", said.messages);
    }
    let vault = site.path("").canonicalize().unwrap().join("vault");
    expected.extend([
        "secret_set TWO".to_owned(),
        "secret_set SHOP_TOKEN".to_owned(),
        "secret_remove ONE".to_owned(),
        format!("vault_rotate {}", vault.display()),
    ]);
    wait_until("all of it is on record", GENEROUS, || {
        on_record() == expected
    })
    .await;
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;

    // Secrets that are put there for a configuration, and are taken out again.
    let token = canary("web");
    let host =
        json!({"mcpServers": {"web": {"url": "https://h/mcp", "headers": {"X-Api-Key": token}}}});
    site.write("host.json", host.to_string());
    let words = ["upstream", "import", "--vault", "host.json"];
    refused(&[&words[..], &["--dry-run"]].concat()).await;
    assert_eq!(on_record(), expected);
    let told = refused(&words).await;
    assert!(told.contains("it was left as it is"), "{told}");
    for what in ["secret_set", "secret_remove"] {
        expected.push(format!("{what} WEB_X_API_KEY"));
    }
    assert_eq!(on_record(), expected);

    // What cannot be recorded is not done.
    let mut settings: Value = serde_json::from_str(&site.read("mcp-server.yaml")).unwrap();
    settings["mcp_server"]["ledger"] = json!({"path": "host.json/ledger.db"});
    site.write("mcp-server.yaml", settings.to_string());
    let before = run(site.command(&["vault", "list"])).await.output;
    for words in [
        &["vault", "set", "THREE", "--file", "variables"][..],
        &["vault", "remove", "TWO"],
        &["vault", "rotate"],
    ] {
        let told = refused(words).await;
        assert!(told.contains("cannot be put on record"), "{told}");
    }
    assert_eq!(run(site.command(&["vault", "list"])).await.output, before);
    settings["mcp_server"]["ledger"] = json!({"durability": "none"});
    site.write("mcp-server.yaml", settings.to_string());
    let told = run(site.command(&["vault", "remove", "TWO"])).await;
    assert_eq!(told.code, Some(2), "{}", told.messages);
    assert!(told.messages.contains("ledger.durability"));
}

#[tokio::test]
async fn the_vault_that_has_the_address_of_the_ledger_is_changed_before_that_can_be_reached() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let ledger = json!({"path": null, "url": "${vault:LEDGER_URL}"});
    let site = site(json!({}), json!({"ledger": ledger}));
    let on_record =
        || changes(PostgresReader::open(&PostgresOptions::new(&postgres.url()).unwrap()).unwrap());
    let waiting = || site.read("data/ledger.db.notes").lines().count();
    assert_eq!(run(site.command(&["vault", "init"])).await.code, Some(0));
    // There is no address, and then a wrong one.
    set(&site, "ONE", &canary("one")).await;
    set(&site, "LEDGER_URL", "postgres://me:secret12@127.0.0.1:1/d").await;
    assert_eq!(waiting(), 2);
    site.write("value", postgres.url());
    let words = ["vault", "set", "LEDGER_URL", "--file", "value"];
    let said = run(site.command(&words)).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    assert!(said.messages.contains("ledger.db.notes has what is done"));
    // It is good: what was done before is still the server's to record.
    set(&site, "TWO", &canary("two")).await;
    assert_eq!(waiting(), 3);
    assert_eq!(on_record(), ["secret_set TWO"]);
    let _server = site.http().await;
    let expected = ["LEDGER_URL", "LEDGER_URL", "ONE", "TWO"].map(|it| format!("secret_set {it}"));
    wait_until("all of it is on record", GENEROUS, || {
        let mut found = on_record();
        found.sort();
        found == expected
    })
    .await;
    wait_until("nothing waits any more", GENEROUS, || waiting() == 0).await;
}
