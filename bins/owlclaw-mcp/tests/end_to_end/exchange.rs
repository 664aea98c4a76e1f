//! Tokens that upstreams are shown in exchange for those of callers.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpClient, HttpServer, free_port, wait_until};

use crate::credentials::{becomes, lists, whoami};
use crate::support::{Site, call, run, text};

const ACCOUNTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/accounts.py");
const TOOL: &str = "mcp_crm_whoami";

struct World {
    site: Site,
    _accounts: tokio::process::Child,
}

fn caller(name: &str) -> String {
    format!("caller-{name}-7c4n4ry-0123456789abcdef0123456789abcdef")
}

impl World {
    async fn new() -> Self {
        let port = free_port();
        let base = format!("http://127.0.0.1:{port}");
        let exchange = json!({
            "token_endpoint": format!("{base}/token"), "client_id": "gateway",
            "client_secret_file": "secret", "audience": "crm", "scope": "read write",
        });
        let mut asserted = exchange.clone();
        asserted["assertion_for"] = json!({
            "issuer": format!("{base}/crm"), "token_endpoint": format!("{base}/token"),
            "client_id": "gateway", "client_secret_file": "secret",
        });
        let resource = "https://tools.example/mcp";
        let site = Site::new(json!({
            "app": null, "python": null,
            "identity": {
                "resource": resource, "api_keys": {"file": "keys.json"}, "shared_principals": true,
                "introspection": {
                    "issuer": base, "url": format!("{base}/introspect"), "client_id": "tools",
                    "client_secret": "${INTROSPECTION_SECRET}", "remember_seconds": 0,
                },
            },
            "upstreams": {
                "crm": {"url": format!("{base}/mcp"), "credentials": "exchange", "exchange": exchange},
                "jag": {"url": format!("{base}/mcp"), "credentials": "exchange", "exchange": asserted},
            },
        }));
        let names = ["ana", "bob", "eve"];
        let callers: serde_json::Map<_, _> =
            names.iter().map(|it| (caller(it), json!(it))).collect();
        site.write("callers.json", Value::from(callers).to_string());
        site.write("accounts.json", "{}");
        site.write("audience", resource);
        site.write("secret", "7c4n4ry-exchange\n");
        let accounts = tokio::process::Command::new("python3")
            .args([ACCOUNTS, "http", &port.to_string()])
            .current_dir(site.path(""))
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        wait_until("the upstream listens", GENEROUS, || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        })
        .await;
        Self {
            site,
            _accounts: accounts,
        }
    }

    async fn start(&self) -> HttpServer {
        let said = run(self.site.command(&["keys", "create", "--principal", "key"])).await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
        self.site.write("key", said.output.trim());
        let mut command = self.site.command(&["start", "--transport", "http"]);
        command.env("INTROSPECTION_SECRET", "not-a-secret");
        HttpServer::spawn(command, testkit::Port::Announced(crate::support::announced)).await
    }

    fn given(&self, kind: &str) -> Vec<Value> {
        let given = self.site.read("given");
        let lines = given.lines().map(|it| serde_json::from_str(it).unwrap());
        lines.filter(|it: &Value| it[0] == kind).collect()
    }
}

async fn client(server: &HttpServer, name: &str) -> HttpClient {
    let token = format!("Bearer {}", caller(name));
    let mut client = server.client().with_header("Authorization", &token);
    client.open("2025-06-18").await;
    client
}

#[tokio::test]
async fn callers_tokens_are_exchanged_once_and_shown_to_no_upstream() {
    let world = World::new().await;
    let mut server = world.start().await;
    let mut ana = client(&server, "ana").await;
    let mut bob = client(&server, "bob").await;
    // The lists are read with the token of somebody who has called.
    lists(&mut ana, TOOL).await;
    for _ in 0..5 {
        let (one, other) = tokio::join!(whoami(&mut ana, TOOL), whoami(&mut bob, TOOL));
        assert_eq!(
            (text(&one), text(&other)),
            ("ana.exchanged", "bob.exchanged")
        );
    }
    let exchanged = world.given("token-exchange");
    let of_crm = |name: &str| {
        let of_crm = |it: &&Value| it[1] == name && it[2]["audience"] == "crm";
        exchanged.iter().filter(of_crm).count()
    };
    assert_eq!((of_crm("ana"), of_crm("bob")), (1, 1), "{exchanged:?}");
    let asked = exchanged
        .iter()
        .find(|it| it[2]["audience"] == "crm")
        .unwrap();
    assert_eq!(asked[2]["scope"], "read write");
    let kind = "urn:ietf:params:oauth:token-type:access_token";
    assert_eq!(asked[2]["subject_token_type"], kind);
    assert!(
        asked[2]["resource"].as_str().unwrap().ends_with("/mcp"),
        "{asked}"
    );
    // By way of an assertion for the authorization server of the upstream.
    lists(&mut ana, "mcp_jag_whoami").await;
    assert_eq!(
        text(&whoami(&mut ana, "mcp_jag_whoami").await),
        "ana.asserted"
    );
    let asserted = world.given("jwt-bearer");
    let of_ana = asserted.iter().filter(|it| it[1] == "ana");
    assert_eq!(of_ana.count(), 1, "{asserted:?}");

    // Who proves it by a key has nothing to exchange, and nothing of another is used.
    let key = world.site.read("key");
    let mut keyed = server.client().with_header("X-API-Key", &key);
    keyed.open("2025-06-18").await;
    let seen = world.site.read("seen").lines().count();
    let refused = whoami(&mut keyed, TOOL).await;
    assert!(
        text(&refused).contains("proves who it is by a token"),
        "{refused}"
    );
    assert_eq!(world.site.read("seen").lines().count(), seen);
    // A token that is not exchanged, and one that would be the caller's own.
    world.site.write("revoked", "eve");
    let mut eve = client(&server, "eve").await;
    let refused = whoami(&mut eve, TOOL).await;
    assert_eq!(refused["isError"], true, "{refused}");
    world.site.write("revoked", "");
    world.site.write("echo", "yes");
    let echoed = |it: &Value| it[1] == "eve" && it[2].is_object();
    while !world.given("token-exchange").iter().any(echoed) {
        let refused = whoami(&mut eve, TOOL).await;
        assert_eq!(refused["isError"], true, "{refused}");
    }
    let why = run(world.site.command(&["upstream", "list"])).await;
    world.site.write("echo", "");
    becomes(&mut eve, TOOL, "eve.exchanged").await;

    // What is said of a token is redacted.
    let said = ana
        .post_legacy("tools/call", call(TOOL, json!({"token": true})))
        .await;
    assert_eq!(text(said.result()), "it is [redacted secret]");
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let seen = world.site.read("seen");
    for name in ["ana", "bob", "eve"] {
        assert!(
            !seen.contains(&caller(name)),
            "the caller's token reached the upstream"
        );
    }
    assert!(!(server.stderr() + &why.output + &why.messages).contains("7c4n4ry"));
    let ledger = std::fs::read(world.site.path("ledger.db")).unwrap();
    assert!(!String::from_utf8_lossy(&ledger).contains("7c4n4ry"));
}

#[tokio::test]
async fn tokens_that_end_are_exchanged_anew() {
    let world = World::new().await;
    world.site.write("lifetime", "2");
    let server = world.start().await;
    let mut ana = client(&server, "ana").await;
    lists(&mut ana, TOOL).await;
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(4);
    let mut calls = 0;
    while tokio::time::Instant::now() < end {
        assert_eq!(text(&whoami(&mut ana, TOOL).await), "ana.exchanged");
        calls += 1;
    }
    let exchanged = world.given("token-exchange");
    let of_crm = |it: &&Value| it[2]["audience"] == "crm";
    let count = exchanged.iter().filter(of_crm).count();
    assert!(
        10 < calls && (2..=5).contains(&count),
        "{calls} calls, {count} exchanges"
    );
}
