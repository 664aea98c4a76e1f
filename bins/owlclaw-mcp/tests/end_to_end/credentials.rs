//! Credentials of single clients at upstreams: each uses its own, and nobody another's.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use ledger::{LedgerReader, NoteFilter, ReadLedger as _};
use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpClient, HttpRequest, HttpServer, free_port, wait_until};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::{Instant, sleep};

use crate::desk::{desk_of, get};
use crate::support::{Site, call, names, run, text};

const ACCOUNTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/accounts.py");

/// A server that knows its callers, and a gateway to it as an address and as a program.
pub(crate) struct World {
    pub(crate) site: Site,
    accounts: Option<tokio::process::Child>,
    port: u16,
    keys: Vec<(&'static str, String)>,
}

pub(crate) fn token(name: &str) -> String {
    format!("canary-{name}-7c4n4ry")
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::listening(0).await
    }

    /// One whose gateway listens on this port.
    pub(crate) async fn listening(gateway: u16) -> Self {
        Self::with(gateway, json!({"enabled": false})).await
    }

    /// The same with these settings of the desk.
    async fn with(gateway: u16, desk: Value) -> Self {
        let port = free_port();
        let site = Site::new(json!({
            "desk": desk,
            "app": null, "python": null, "http": {"port": gateway},
            "identity": {"api_keys": {"file": "keys.json"}},
            "vault": {"path": "vault", "key_file": "vault.key"},
            "upstreams": {
                "web": {
                    "url": format!("http://127.0.0.1:{port}/mcp"), "credentials": "per-client",
                    "headers": {"Authorization": "Bearer ${credential:token}", "X-Shared": "of all"},
                },
                "sign": {"url": format!("http://127.0.0.1:{port}/mcp"), "credentials": "per-client"},
                "child": {
                    "command": "python3", "args": [ACCOUNTS, "stdio"], "credentials": "per-client",
                    "env": {"ACCOUNT_TOKEN": "${credential:token}"},
                },
            },
        }));
        assert_eq!(run(site.command(&["vault", "init"])).await.code, Some(0));
        let known = ["ana", "bob", "new-ana"].map(|it| (token(it), json!(it)));
        let known: serde_json::Map<_, _> = known.into_iter().collect();
        site.write("accounts.json", Value::from(known).to_string());
        let mut world = Self {
            site,
            accounts: None,
            port,
            keys: Vec::new(),
        };
        for name in ["ana", "bob", "eve"] {
            let words = ["keys", "create", "--principal", name, "--label", name];
            let said = run(world.site.command(&words)).await;
            assert_eq!(said.code, Some(0), "{}", said.messages);
            world.keys.push((name, said.output.trim().to_owned()));
        }
        world.start_accounts().await;
        world
    }

    pub(crate) async fn start_accounts(&mut self) {
        self.accounts = Some(accounts(&self.site, self.port).await);
    }

    pub(crate) fn client(&self, server: &HttpServer, name: &str) -> HttpClient {
        server.client().with_header("X-API-Key", self.key(name))
    }

    pub(crate) fn key(&self, name: &str) -> &str {
        let (_, key) = self.keys.iter().find(|it| it.0 == name).unwrap();
        key
    }

    async fn credential(&self, words: &[&str], value: &str) -> crate::support::Said {
        let words = [&["upstream", "credential"], words].concat();
        let mut file = std::fs::File::create(self.site.path("value")).unwrap();
        writeln!(file, "{value}").unwrap();
        let mut command = self.site.command(&words);
        if words[2] == "set" {
            command.args(["--file", "value"]);
        }
        let said = run(command).await;
        std::fs::remove_file(self.site.path("value")).unwrap();
        assert!(!format!("{}{}", said.output, said.messages).contains("7c4n4ry"));
        said
    }

    async fn set(&self, upstream: &str, client: &str, account: &str) {
        let said = self
            .credential(&["set", upstream, "--client", client], &token(account))
            .await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
    }

    /// Signs a client in as the account of a person, by the browser of that person.
    pub(crate) async fn sign_in(&self, client: &str, person: &str) {
        self.site.write("browser", person);
        signed_in(
            &self.site,
            &["sign", "--client", client],
            "is signed in at `sign`",
        )
        .await;
    }

    /// Grants that the authorization server has noted of this kind.
    pub(crate) fn given(&self, kind: &str) -> Vec<Value> {
        let given = self.site.read("given");
        let lines = given.lines().map(|it| serde_json::from_str(it).unwrap());
        lines.filter(|it: &Value| it[0] == kind).collect()
    }

    /// Requests that the upstream has seen: the account, headers and method of each.
    fn seen(&self) -> Vec<Value> {
        let seen = self.site.read("seen");
        let lines = seen.lines();
        lines.map(|it| serde_json::from_str(it).unwrap()).collect()
    }
}

/// Starts the upstream on this port, in the directory of `site`.
pub(crate) async fn accounts(site: &Site, port: u16) -> tokio::process::Child {
    let accounts = tokio::process::Command::new("python3")
        .args([ACCOUNTS, "http", &port.to_string()])
        .current_dir(site.path(""))
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    wait_until("the upstream listens", GENEROUS, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;
    accounts.unwrap()
}

/// Runs `upstream login` with these words, whose browser is sent where it wants, until it has told `expected`.
pub(crate) async fn signed_in(site: &Site, words: &[&str], expected: &str) {
    let words = [&["upstream", "login"], words, &["--no-browser"]].concat();
    let mut login = site.command(&words);
    login
        .env("HOME", site.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut login = login.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(login.stderr.take().unwrap()).lines();
    let url = loop {
        let line = lines.next_line().await.unwrap().expect("it has ended");
        if let Some((_, url)) = line.split_once("sign in at ") {
            break url.to_owned();
        }
    };
    let visit = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()";
    let mut browser = tokio::process::Command::new("python3");
    assert!(
        browser
            .args(["-c", visit, &url])
            .status()
            .await
            .unwrap()
            .success()
    );
    let said = login.wait_with_output().await.unwrap();
    let told = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.success() && told.contains(expected), "{told}");
    assert!(!told.contains("7c4n4ry"), "{told}");
}

pub(crate) async fn whoami(client: &mut HttpClient, tool: &str) -> Value {
    let answer = client
        .post_legacy("tools/call", call(tool, json!({})))
        .await;
    match &answer.response()["result"] {
        Value::Null => answer.response().clone(),
        result => result.clone(),
    }
}

/// Calls until the answer has this text.
pub(crate) async fn becomes(client: &mut HttpClient, tool: &str, expected: &str) -> Value {
    let end = Instant::now() + GENEROUS;
    loop {
        let answer = whoami(client, tool).await;
        if answer.to_string().contains(expected) {
            return answer;
        }
        assert!(Instant::now() < end, "never {expected}: {answer}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn listed(client: &mut HttpClient) -> Vec<String> {
    let answer = client.post_legacy("tools/list", json!({})).await;
    names(answer.result(), "tools", "name")
}

pub(crate) async fn lists(client: &mut HttpClient, tool: &str) {
    let end = Instant::now() + GENEROUS;
    while !listed(client).await.iter().any(|it| it == tool) {
        assert!(Instant::now() < end, "never {tool}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn each_client_uses_its_own_credential_and_nobody_anothers() {
    let mut world = World::new().await;
    let mut server = world.site.http().await;
    let mut ana = world.client(&server, "ana");
    let mut bob = world.client(&server, "bob");
    let mut eve = world.client(&server, "eve");
    for client in [&mut ana, &mut bob, &mut eve] {
        client.open("2025-06-18").await;
    }
    // Nobody's credential is there, and so nobody is asked.
    assert_eq!(listed(&mut ana).await, [""; 0]);
    assert!(world.seen().is_empty());

    for upstream in ["web", "child"] {
        let tool = &format!("mcp_{upstream}_whoami");
        world.set(upstream, "ana", "ana").await;
        lists(&mut ana, tool).await;
        assert_eq!(text(&whoami(&mut ana, tool).await), "ana");
        // A missing one is not made up for by another's.
        let before = world.seen().len();
        let refused = whoami(&mut bob, tool).await;
        assert_eq!(refused["isError"], true, "{refused}");
        let told = text(&refused);
        assert!(
            told.contains("needs a credential of this client's own")
                && told.contains(&format!(
                    "owlclaw-mcp upstream credential set {upstream} --client bob"
                )),
            "{told}"
        );
        assert!(!told.contains("ana"), "{told}");
        assert_eq!(world.seen().len(), before);
        world.set(upstream, "bob", "bob").await;
        becomes(&mut bob, tool, "\"bob\"").await;
        // Interleaved, each is who it is.
        for _ in 0..20 {
            let (one, other) = tokio::join!(whoami(&mut ana, tool), whoami(&mut bob, tool));
            assert_eq!((text(&one), text(&other)), ("ana", "bob"));
        }
        // What one client sees stays on offer beside what another sees, and is the upstream's to refuse.
        for own in ["ana", "bob"] {
            lists(&mut eve, &format!("mcp_{upstream}_only_for_{own}")).await;
        }
        let anothers = whoami(&mut bob, &format!("mcp_{upstream}_only_for_ana")).await;
        assert!(anothers.to_string().contains("Unknown tool"), "{anothers}");
        let uri = json!({"uri": format!("mcp.{upstream}+file:///me")});
        let read = bob.post_legacy("resources/read", uri.clone()).await;
        assert_eq!(read.result()["contents"][0]["text"], "bob");
        let unread = eve.post_legacy("resources/read", uri.clone()).await;
        assert!(unread.response()["error"].is_object(), "{unread:?}");
        let subscribed = bob.post_legacy("resources/subscribe", uri).await;
        let subscribed = subscribed.response().to_string();
        assert!(
            subscribed.contains("nothing is subscribed to"),
            "{subscribed}"
        );

        // A token that the upstream does not know, a new one, and none any more.
        world.set(upstream, "eve", "nobody").await;
        let expected = match upstream {
            "web" => "missing or refused",
            _ => "cannot be reached",
        };
        becomes(&mut eve, tool, expected).await;
        world.set(upstream, "ana", "new-ana").await;
        becomes(&mut ana, tool, "\"new-ana\"").await;
        let words = ["remove", upstream, "--client", "ana"];
        let removed = world.credential(&words, "").await;
        assert_eq!(removed.code, Some(0), "{}", removed.messages);
        becomes(&mut ana, tool, "--client ana").await;
        assert_eq!(text(&whoami(&mut bob, tool).await), "bob");
        assert_eq!(world.credential(&words, "").await.code, Some(1));
    }

    let status = run(world
        .site
        .command(&["upstream", "list", "--format", "json"]))
    .await;
    assert!(!status.output.contains("7c4n4ry"));
    let kept = world
        .credential(&["list", "--format", "json"], "")
        .await
        .output;
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let rows = kept["credentials"].as_array().unwrap();
    let rows: Vec<_> = rows
        .iter()
        .map(|it| format!("{} {} {}", it["upstream"], it["client"], it["name"]).replace('"', ""))
        .collect();
    assert_eq!(
        rows,
        [
            "child bob token",
            "child eve token",
            "web bob token",
            "web eve token"
        ]
    );

    // They outlive the server, and what the upstream was shown is nothing of the callers' own.
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let first = server.stderr();
    let server = world.site.http().await;
    let mut bob = world.client(&server, "bob");
    bob.open("2025-06-18").await;
    assert_eq!(text(&whoami(&mut bob, "mcp_web_whoami").await), "bob");
    assert_eq!(text(&whoami(&mut bob, "mcp_child_whoami").await), "bob");
    let seen = world.site.read("seen");
    assert!(seen.contains("of all"));
    for (_, key) in &world.keys {
        assert!(!seen.contains(key.as_str()));
    }
    assert!(!(first + &server.stderr()).contains("7c4n4ry"));
    drop(world.accounts.take());
}

#[tokio::test]
async fn clients_sign_in_themselves_and_stay_signed_in_until_the_grant_is_taken_back() {
    const TOOL: &str = "mcp_sign_whoami";
    let world = World::new().await;
    world.site.write("lifetime", "3");
    let mut server = world.site.http().await;
    let mut ana = world.client(&server, "ana");
    let mut bob = world.client(&server, "bob");
    for client in [&mut ana, &mut bob] {
        client.open("2025-06-18").await;
    }
    world.sign_in("ana", "ana.person").await;
    lists(&mut ana, TOOL).await;
    assert_eq!(text(&whoami(&mut ana, TOOL).await), "ana.person");
    let refused = whoami(&mut bob, TOOL).await;
    let told = text(&refused);
    assert!(
        told.contains("owlclaw-mcp upstream login sign --client bob"),
        "{told}"
    );
    world.sign_in("bob", "bob.person").await;
    becomes(&mut bob, TOOL, "bob.person").await;
    // One registration is the upstream's, whoever signs in.
    assert_eq!(world.given("registration").len(), 1);

    // Many calls at once, as the token ends: one renewal for all that wait, and each client's own.
    let count = |name: &str| {
        let renewed = world.given("refresh_token");
        renewed.iter().filter(|it| it[1] == name).count()
    };
    let before = (count("ana.person"), count("bob.person"));
    let end = Instant::now() + Duration::from_millis(6500);
    let mut calls = 0;
    while Instant::now() < end {
        let (one, other) = tokio::join!(whoami(&mut ana, TOOL), whoami(&mut bob, TOOL));
        assert_eq!((text(&one), text(&other)), ("ana.person", "bob.person"));
        calls += 1;
    }
    let renewed = (
        count("ana.person") - before.0,
        count("bob.person") - before.1,
    );
    assert!(10 < calls, "{calls}");
    for renewed in [renewed.0, renewed.1] {
        assert!(
            (1..=4).contains(&renewed),
            "{renewed} renewals within 6.5 s of tokens for 3 s"
        );
    }
    // What was renewed is known for a secret, too.
    let said = ana
        .post_legacy("tools/call", call(TOOL, json!({"token": true})))
        .await;
    assert_eq!(text(said.result()), "it is [redacted secret]");

    // The login outlives the server.
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let mut heard = server.stderr();
    let mut server = world.site.http().await;
    let mut ana = world.client(&server, "ana");
    ana.open("2025-06-18").await;
    assert_eq!(text(&whoami(&mut ana, TOOL).await), "ana.person");
    // Until it is taken back: the cure is told, and the other client goes on.
    world.site.write("revoked", "ana.person");
    let refused = becomes(&mut ana, TOOL, "login sign --client ana").await;
    assert_eq!(refused["isError"], true);
    let mut bob = world.client(&server, "bob");
    bob.open("2025-06-18").await;
    assert_eq!(text(&whoami(&mut bob, TOOL).await), "bob.person");
    let why = run(world.site.command(&["upstream", "list"])).await;
    heard += &(why.output + &why.messages);
    world.site.write("revoked", "");
    world.sign_in("ana", "ana.again").await;
    becomes(&mut ana, TOOL, "ana.again").await;
    let misspelt = ["upstream", "logout", "sign", "--client", "anna"];
    let said = run(world.site.command(&misspelt)).await;
    assert_eq!(said.code, Some(1), "{}", said.output);
    assert!(
        said.messages
            .contains("client `anna` is not signed in at `sign`; signed in are `ana`"),
        "{}",
        said.messages
    );
    let words = ["upstream", "logout", "sign", "--client", "ana"];
    let said = run(world.site.command(&words)).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    becomes(&mut ana, TOOL, "login sign --client ana").await;
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    heard += &server.stderr();
    assert!(!heard.contains("7c4n4ry"));
    let mut all = Vec::new();
    crate::secrets::files(&world.site.path(""), &mut all);
    for path in all {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_theirs = ["accounts.json", "seen", "given"].contains(&name.as_str());
        let content = std::fs::read(&path).unwrap();
        assert!(
            is_theirs || !String::from_utf8_lossy(&content).contains("7c4n4ry"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn what_credentials_cannot_mean_is_told_before_anything_is_served() {
    let own = "Bearer ${credential:token}";
    let http = json!({"transport": "http"});
    let keys = json!({"transport": "http", "identity": {"api_keys": {}}});
    let issuer = "https://login.example";
    let tokens = json!({"transport": "http", "identity": {
        "resource": "https://tools.example/mcp", "jwt": {"login": {"issuer": issuer}}}});
    let exchange = json!({"token_endpoint": format!("{issuer}/token"), "client_id": "a", "client_secret_file": "b"});
    let mut in_the_clear = exchange.clone();
    in_the_clear["token_endpoint"] = json!("http://login.example/token");
    let rows = [
        (
            http,
            json!({"url": "http://h/mcp", "credentials": "per-client", "headers": {"Authorization": own}}),
            "needs clients that prove who they are",
        ),
        (
            keys.clone(),
            json!({"url": "http://h/mcp", "headers": {"Authorization": own}}),
            "write `credentials: per-client` beside it",
        ),
        (
            keys.clone(),
            json!({"command": "x", "credentials": "per-client"}),
            "no variable has a credential of the client",
        ),
        (
            keys.clone(),
            json!({"url": "http://h/mcp", "credentials": "per-client", "headers": {"Authorization": "Bearer x"}}),
            "is one credential for all clients",
        ),
        (
            keys.clone(),
            json!({"url": "http://h/mcp", "credentials": "per-client", "headers": {"X-Key": "${credential:k}"},
                   "auth": {"client_id": "a", "client_secret_file": "b"}}),
            "take one of the two out",
        ),
        (
            keys.clone(),
            json!({"command": "x", "args": [own], "credentials": "per-client"}),
            "it is for `headers` and `env` of upstreams",
        ),
        (
            keys.clone(),
            json!({"url": "http://h/mcp", "credentials": "none", "headers": {"authorization": "x"}}),
            "is a credential, and `credentials` is `none`",
        ),
        (
            keys.clone(),
            json!({"url": "http://h/mcp", "credentials": "per-user"}),
            "must be one of `shared`, `per-client`, `exchange`, `none`",
        ),
        (
            keys.clone(),
            json!({"url": "http://h/mcp", "credentials": "exchange", "exchange": exchange}),
            "needs clients that prove who they are by tokens",
        ),
        (
            tokens.clone(),
            json!({"url": "http://h/mcp", "credentials": "exchange"}),
            "there is no `exchange`",
        ),
        (
            tokens.clone(),
            json!({"url": "http://h/mcp", "exchange": exchange}),
            "is of no use without `credentials: exchange`",
        ),
        (
            tokens.clone(),
            json!({"url": "http://h/mcp", "credentials": "exchange", "exchange": exchange,
                   "headers": {"Authorization": "Bearer x"}}),
            "is one credential for all clients, and `credentials` is `exchange`",
        ),
        (
            tokens.clone(),
            json!({"command": "x", "credentials": "exchange", "exchange": exchange}),
            "a program is shown no tokens",
        ),
        (
            tokens,
            json!({"url": "http://h/mcp", "credentials": "exchange", "exchange": in_the_clear}),
            "is no address that tokens may be sent to",
        ),
        (
            keys.clone(),
            json!({"url": "http://h/mcp", "credentials": "shared", "auth": {"client_id": "a"}}),
            "client_secret_file",
        ),
        (
            json!({"transport": "http", "gateway": {"public_url": "http://tools.example"},
                   "identity": {"api_keys": {}}}),
            json!({"url": "http://h/mcp"}),
            "is no origin that browsers may be sent to",
        ),
    ];
    for (settings, upstream, expected) in rows {
        let mut settings = settings;
        settings["app"] = Value::Null;
        settings["python"] = Value::Null;
        settings["upstreams"] = json!({"u": upstream});
        let site = Site::new(settings);
        let said = run(site.command(&["config", "validate"])).await;
        let told = said.output + &said.messages;
        assert!(told.contains(expected), "{expected}: {told}");
    }

    let site = Site::new(json!({
        "app": null, "python": null, "vault": {"path": "vault", "key_file": "vault.key"},
        "upstreams": {
            "all": {"url": "http://h/mcp"},
            "two": {"command": "x", "credentials": "per-client",
                    "env": {"A": "${credential:a}", "B": "x-${credential:b}"}},
        },
    }));
    let rows: [(&[&str], &str); 6] = [
        (&["set", "tow", "--client", "c"], "did you mean `two`?"),
        (
            &["set", "all", "--client", "c"],
            "write `credentials: per-client`",
        ),
        (
            &["set", "two", "--client", "c"],
            "say by --name which one of `a`, `b`",
        ),
        (
            &["set", "two", "--client", "c", "--name", "x"],
            "has no place for a credential `x`",
        ),
        (
            &["set", "two", "--client", "", "--name", "a"],
            "the name of the client is empty",
        ),
        (
            &["set", "two", "--client", "c", "--name", "a"],
            "owlclaw-mcp vault init",
        ),
    ];
    for (words, expected) in rows {
        let said = run(site.command(&[&["upstream", "credential"], words].concat())).await;
        assert_eq!(said.code, Some(1), "{expected}: {}", said.messages);
        assert!(
            said.messages.contains(expected),
            "{expected}: {}",
            said.messages
        );
    }
}

/// Changes of credentials that are on record, the oldest first: what was done, to whose, and by whom.
fn changes(site: &Site) -> Vec<(String, String)> {
    let mut reader = LedgerReader::open(site.path("ledger.db")).unwrap();
    let filter = NoteFilter {
        kind: Some("credential_changed"),
        ..NoteFilter::default()
    };
    let mut notes = reader.notes(usize::MAX, filter).unwrap();
    notes.reverse();
    let change = |it: ledger::NoteRecord| {
        let it = it.noted;
        let detail: Value = serde_json::from_str(&it.detail.text).unwrap();
        assert!(it.actor.starts_with("operator:"), "{it:?}");
        assert!(
            detail["proof"].as_str().unwrap().contains("OS user"),
            "{detail}"
        );
        (detail["what"].as_str().unwrap().to_owned(), it.subject)
    };
    notes.into_iter().map(change).collect()
}

#[tokio::test]
async fn what_commands_do_with_credentials_is_on_record_whether_a_server_runs_or_not() {
    let world = World::new().await;
    let done = |what: &str, whose: &str| (what.to_owned(), whose.to_owned());
    // No server runs, and there is no ledger yet.
    world.set("web", "ana", "ana").await;
    let mut expected = vec![done("set by command", "web/ana")];
    assert_eq!(changes(&world.site), expected);
    // What was not there is not removed, and not said to be.
    let said = world
        .credential(&["remove", "web", "--client", "bob"], "")
        .await;
    assert_eq!(said.code, Some(1), "{}", said.messages);
    assert_eq!(changes(&world.site), expected);

    // A server that runs has the ledger, and takes what commands have done.
    let mut server = world.site.http().await;
    world.set("web", "bob", "bob").await;
    world.sign_in("ana", "ana.person").await;
    let said = world
        .credential(&["remove", "web", "--client", "ana"], "")
        .await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    let words = ["upstream", "logout", "sign", "--client", "ana"];
    assert_eq!(run(world.site.command(&words)).await.code, Some(0));
    expected.extend([
        done("set by command", "web/bob"),
        done("signed in by command", "sign/ana"),
        done("removed by command", "web/ana"),
        done("signed out by command", "sign/ana"),
    ]);
    wait_until("all of it is on record", GENEROUS, || {
        changes(&world.site) == expected
    })
    .await;
    // And the server has let go of the file, which it would hold on to while it hangs.
    wait_until("nothing waits any more", GENEROUS, || {
        let notes = std::fs::File::open(world.site.path("ledger.db.notes")).unwrap();
        notes.try_lock().is_ok() && world.site.read("ledger.db.notes").is_empty()
    })
    .await;
    // One that hangs and is killed has not taken it: the next one does.
    server.process().signal("STOP").await;
    world.set("web", "ana", "ana").await;
    assert!(world.site.read("ledger.db.notes").contains("web/ana"));
    server.process().signal("KILL").await;
    server.wait_exit(GENEROUS).await;
    let mut server = world.site.http().await;
    expected.push(done("set by command", "web/ana"));
    wait_until("it is on record", GENEROUS, || {
        changes(&world.site) == expected
    })
    .await;
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let verified = run(world.site.command(&["ledger", "verify"])).await;
    assert_eq!(
        verified.code,
        Some(0),
        "{}{}",
        verified.output,
        verified.messages
    );

    // What cannot be recorded is not done.
    let mut settings: Value = serde_json::from_str(&world.site.read("mcp-server.yaml")).unwrap();
    settings["mcp_server"]["ledger"] = json!({"path": "accounts.json/ledger.db"});
    world.site.write("mcp-server.yaml", settings.to_string());
    let list = ["upstream", "credential", "list", "--format", "json"];
    let before = run(world.site.command(&list)).await.output;
    for words in [
        ["set", "web", "--client", "eve"],
        ["remove", "web", "--client", "bob"],
    ] {
        let said = world.credential(&words, &token("bob")).await;
        assert_eq!(said.code, Some(1), "{}", said.messages);
        assert!(
            said.messages.contains("nothing is changed"),
            "{}",
            said.messages
        );
    }
    assert_eq!(run(world.site.command(&list)).await.output, before);
}

#[tokio::test]
async fn credentials_are_told_and_forgotten_on_the_desk() {
    let desk = json!({
        "enabled": true, "port": 0, "clients": {"ana": "viewer", "bob": "operator"},
    });
    let world = World::with(0, desk).await;
    world.set("web", "ana", "ana").await;
    world.sign_in("bob", "bob").await;
    let server = world.site.http().await;
    let desk = desk_of(&world.site);
    let ask = async |name: &str, request: HttpRequest| {
        let request = request.header("x-api-key", world.key(name));
        let response = HttpClient::new(desk).exchange(&request).await;
        assert!(!response.text().contains("7c4n4ry"), "{}", response.text());
        response
    };
    let list = async |query: &str| {
        let told = ask("ana", get(&format!("/credentials{query}"))).await;
        assert_eq!(told.status, 200, "{}", told.text());
        told.json()
    };
    let find = async |upstream: &str, client: &str| {
        let told = list("?limit=500").await;
        let mut rows = told["credentials"].as_array().unwrap().iter();
        let found = rows.find(|it| it["upstream"] == upstream && it["client"] == client);
        found.cloned().unwrap_or(Value::Null)
    };
    let mut ana = world.client(&server, "ana");
    let mut bob = world.client(&server, "bob");
    let mut eve = world.client(&server, "eve");
    for client in [&mut ana, &mut bob, &mut eve] {
        client.open("2025-06-18").await;
    }
    becomes(&mut ana, "mcp_web_whoami", "\"ana\"").await;
    becomes(&mut bob, "mcp_sign_whoami", "\"bob\"").await;
    becomes(&mut eve, "mcp_web_whoami", "of this client's own").await;

    // Whose it is, of which kind, since when and until when; and no word of how good it is that nobody knows.
    let secret = find("web", "ana").await;
    assert_eq!(
        (&secret["kind"], &secret["name"], &secret["state"]),
        (&json!("secret"), &json!("token"), &json!("kept"))
    );
    assert_eq!(
        (&secret["works"], &secret["expires"]),
        (&json!(null), &json!(null))
    );
    let login = find("sign", "bob").await;
    assert_eq!(
        (&login["kind"], &login["state"], &login["is_renewed"]),
        (&json!("login"), &json!("kept"), &json!(true)),
        "{login}"
    );
    let since = login["since"].as_str().unwrap();
    assert!(since < login["expires"].as_str().unwrap(), "{login}");
    assert_eq!(
        login["issuer"],
        format!("http://127.0.0.1:{}", world.port),
        "{login}"
    );
    let missed = find("web", "eve").await;
    assert_eq!(
        (&missed["state"], &missed["works"], &missed["name"]),
        (&json!("missing"), &json!(false), &json!(""))
    );
    let cure = missed["cure"].as_str().unwrap();
    assert!(cure.contains("credential set web --client eve"), "{cure}");
    // Registrations at authorization servers are nobody's, and pages go on where they ended.
    let (mut seen, mut next) = (Vec::new(), String::new());
    loop {
        let page = list(&format!("?limit=1&after={next}")).await;
        let row = &page["credentials"][0];
        seen.push(format!("{} {}", row["upstream"], row["client"]).replace('"', ""));
        match page["next"].as_str() {
            Some(more) => next = more.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["sign bob", "web ana", "web eve"]);
    assert_eq!(list("?client=nobody").await["credentials"], json!([]));
    for wrong in ["?after=x", "?clint=ana"] {
        let told = ask("ana", get(&format!("/credentials{wrong}"))).await;
        assert_eq!(told.status, 400, "{wrong}");
    }

    // What the upstream refuses is told as such.
    world.set("web", "ana", "nobody").await;
    becomes(&mut ana, "mcp_web_whoami", "missing or refused").await;
    let refused = find("web", "ana").await;
    assert_eq!(
        (&refused["state"], &refused["works"]),
        (&json!("refused"), &json!(false))
    );

    let forget = |upstream: &str, client: Value, name: &Value| {
        let body = json!({"upstream": upstream, "client": client, "name": name});
        HttpRequest::post("/admin/v1/credentials/forget", body.to_string())
    };
    let by = |it: &Value| it["name"].clone();
    let not = ask("ana", forget("sign", json!("bob"), &by(&login))).await;
    assert_eq!(not.status, 403);
    for (upstream, client, name) in [
        ("sign", json!("bob"), json!("token")),
        ("sign", json!(null), by(&login)),
        ("registration/sign", json!("*"), by(&login)),
        ("web", json!("eve"), json!("")),
    ] {
        let not = ask("bob", forget(upstream, client, &name)).await;
        assert_eq!(not.status, 404, "{upstream}: {}", not.text());
    }
    for it in [&login, &refused] {
        let upstream = it["upstream"].as_str().unwrap();
        let done = ask("bob", forget(upstream, it["client"].clone(), &by(it))).await;
        assert_eq!(done.status, 200, "{}", done.text());
    }
    wait_until("its tokens are revoked", GENEROUS, || {
        world.given("revocation").len() == 2
    })
    .await;
    becomes(&mut bob, "mcp_sign_whoami", "login sign --client bob").await;
    let gone = find("sign", "bob").await;
    assert_eq!(
        (&gone["state"], &gone["name"], &gone["works"]),
        (&json!("login needed"), &json!(""), &json!(false)),
        "{gone}"
    );

    // Who has had it forgotten is on record.
    let notes = ask("ana", get("/notes?kind=operator_acted")).await.json();
    let act = &notes["notes"][0];
    assert_eq!(
        (&act["actor"], &act["subject"], &act["detail"]["what"]),
        (
            &json!("operator:bob"),
            &json!("web/ana"),
            &json!("credential_forget")
        )
    );
    let notes = ask("ana", get("/notes?kind=credential_changed")).await;
    let told = notes.text();
    for subject in ["web/ana", "sign/bob"] {
        assert!(told.contains(subject), "{told}");
    }
    assert_eq!(told.matches("forgotten on the desk").count(), 2, "{told}");
    assert!(!server.stderr().contains("7c4n4ry"));
}
