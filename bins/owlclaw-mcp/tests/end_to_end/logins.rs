//! Logins at upstreams that last: through outages of their authorization server, for any number of callers, and for weeks.

use std::{
    ffi::OsStr,
    fs::File,
    io::Write as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{
    Answer, GENEROUS, HttpClient, HttpRequest, HttpServer, Port, Postgres, failure_of, free_port,
};
use tokio::{process::Child, task::JoinSet, time::sleep};

use crate::{
    credentials::{accounts, signed_in},
    support::{Site, announced, call, run, text},
};

const TOOL: &str = "mcp_up_whoami";

/// An upstream with its authorization server, and a gateway to it that is signed in for all clients.
struct World {
    site: Site,
    port: u16,
    _accounts: Child,
}

impl World {
    async fn new(settings: Value) -> Self {
        let port = free_port();
        let site = site(port, settings);
        assert_eq!(run(site.command(&["vault", "init"])).await.code, Some(0));
        let accounts = accounts(&site, port).await;
        site.write("browser", "all");
        Self {
            site,
            port,
            _accounts: accounts,
        }
    }

    async fn sign_in(&self) {
        signed_in(&self.site, &["up"], "signed in at `up`").await;
    }

    /// Puts what is at these paths out of order: a status, or 0 for no answer, headers, and a text.
    fn out(&self, paths: &Value) {
        put(&self.site, "outage", &paths.to_string());
    }

    /// Notes of the authorization server of this kind.
    fn given(&self, kind: &str) -> Vec<Value> {
        let given = self.site.read("given");
        let whole = given.lines().filter(|it| it.ends_with(']'));
        let lines = whole.map(|it| serde_json::from_str(it).unwrap());
        lines.filter(|it: &Value| it[0] == kind).collect()
    }

    /// Asserts that nobody was asked to sign in again, and no refresh token was shown twice or refused.
    fn has_kept_its_login(&self) {
        assert_eq!(self.given("authorization_code").len(), 1);
        assert_eq!(self.given("reuse"), [Value::Null; 0]);
        let renewals = self.given("refresh_token");
        let refused = renewals.iter().filter(|it| it[2] == "invalid_grant");
        assert_eq!(refused.count(), 0, "{renewals:?}");
    }
}

fn site(port: u16, settings: Value) -> Site {
    let mut all = json!({
        "app": null, "python": null,
        "vault": {"path": "vault", "key_file": "vault.key"},
        "upstreams": {"up": {"url": format!("http://127.0.0.1:{port}/mcp")}},
    });
    for (name, value) in settings.as_object().unwrap() {
        all[name] = value.clone();
    }
    Site::new(all)
}

/// The server of a site, with these variables.
async fn start(site: &Site, variables: &[(&str, &OsStr)]) -> HttpServer {
    let mut command = site.command(&["start", "--transport", "http"]);
    command.env("HOME", site.path(""));
    command.envs(variables.iter().copied());
    HttpServer::spawn(command, Port::Announced(announced)).await
}

/// Replaces a file as a whole.
fn put(site: &Site, name: &str, content: &str) {
    let new = format!("{name}.new");
    site.write(&new, content);
    std::fs::rename(site.path(&new), site.path(name)).unwrap();
}

async fn ask(client: &mut HttpClient) -> Answer {
    client
        .post_modern("tools/call", call(TOOL, json!({})))
        .await
}

/// Calls until the answer is like this.
async fn until(client: &mut HttpClient, what: &str, is_so: impl Fn(&Value) -> bool) -> Answer {
    let begun = Instant::now();
    loop {
        let answer = ask(client).await;
        if is_so(answer.response()) {
            return answer;
        }
        assert!(begun.elapsed() < GENEROUS, "never {what}: {answer:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn is_done(answer: &Value) -> bool {
    let result = &answer["result"];
    result["isError"] != true && result["content"][0]["text"] == "all"
}

fn has_failed(answer: &Value) -> bool {
    answer["result"]["isError"] == true
}

/// States of the upstream that hold, by the server's metrics.
async fn states(server: &HttpServer) -> Vec<String> {
    let client = HttpClient::new(server.address());
    let answer = client.exchange(&HttpRequest::get("/metrics")).await;
    let lines = answer.text().lines();
    let holds =
        lines.filter(|it| it.starts_with("owlclaw_mcp_upstream_state") && it.ends_with(" 1"));
    let state = |it: &str| it.split('"').nth(3).unwrap().to_owned();
    holds.map(state).collect()
}

/// The failure is for the moment, and nobody is sent to sign in.
fn is_for_the_moment(answer: &Answer) {
    let failure = failure_of(answer.response());
    assert_eq!(failure["data"]["retryable"], true, "{failure}");
    let seconds = failure["data"]["retry_after"].as_f64();
    assert!(
        seconds.is_some_and(|it| 0.0 < it && it <= 60.0),
        "{failure}"
    );
    let told = text(answer.result());
    assert!(
        told.contains("its authorization server is out of order") && !told.contains("login"),
        "{told}"
    );
}

#[tokio::test]
async fn an_outage_of_an_authorization_server_is_no_missing_login() {
    let world = World::new(json!({})).await;
    put(&world.site, "lifetime", "2");
    world.sign_in().await;
    let mut server = start(&world.site, &[]).await;
    let mut client = server.client();
    until(&mut client, "done", is_done).await;
    let error = |code: &str| json!({"error": code}).to_string();
    for out in [
        json!([503, {"Retry-After": "1"}, ""]),
        json!([503, {}, error("Service Unavailable")]),
        json!([500, {}, error("internal_error")]),
        json!([429, {"Retry-After": "1"}, error("too_many_requests")]),
        json!([404, {}, "<html>"]),
        json!([0, {}, ""]),
    ] {
        world.out(&json!({"/token": out}));
        let failed = until(&mut client, "failed", has_failed).await;
        is_for_the_moment(&failed);
        assert_eq!(states(&server).await, ["degraded"], "{out}");
        world.out(&json!({}));
        until(&mut client, "done", is_done).await;
        assert_eq!(states(&server).await, ["ready"], "{out}");
    }

    // The same for a server that starts meanwhile, and for one whose metadata cannot be read.
    for paths in [
        json!({"/token": [503, {}, ""]}),
        json!({"/token": [503, {}, ""], "/.well-known": [503, {}, ""]}),
    ] {
        server.process().signal("TERM").await;
        server.wait_exit(GENEROUS).await;
        world.out(&paths);
        sleep(Duration::from_secs(3)).await;
        server = start(&world.site, &[]).await;
        client = server.client();
        is_for_the_moment(&until(&mut client, "failed", has_failed).await);
        assert_eq!(states(&server).await, ["degraded"]);
        world.out(&json!({}));
        until(&mut client, "done", is_done).await;
    }
    world.has_kept_its_login();

    // A grant that is gone is told as what it is.
    put(&world.site, "revoked", "all");
    let failed = until(&mut client, "failed", has_failed).await;
    let failure = failure_of(failed.response());
    assert_eq!(failure["data"]["retryable"], false, "{failure}");
    let told = text(failed.result());
    assert!(told.contains("upstream `up` needs a login"), "{told}");
    assert_eq!(states(&server).await, ["login_needed"]);
}

/// Callers at once.
const CALLERS: usize = 1_000;
/// Seconds that an access token lasts.
const LIFETIME: f64 = 3.0;

#[tokio::test]
async fn a_thousand_callers_over_two_servers_make_one_renewal_a_rotation() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let ledger = json!({"path": null, "url": postgres.url()});
    let world = World::new(json!({"ledger": ledger})).await;
    put(&world.site, "lifetime", &LIFETIME.to_string());
    put(&world.site, "late", "0.5");
    world.sign_in().await;
    // Another server in a directory of its own, which shares the vault and the database.
    let shared = |name: &str| world.site.path(name).to_str().unwrap().to_owned();
    let vault = json!({"path": shared("vault"), "key_file": shared("vault.key")});
    let there = site(world.port, json!({"ledger": ledger, "vault": vault}));
    let servers = [start(&world.site, &[]).await, start(&there, &[]).await];
    let mut clients = Vec::new();
    for at in 0..CALLERS {
        let client = servers[at % servers.len()].client();
        clients.push(client.with_header("X-MCP-Client-ID", &format!("caller-{at}")));
    }
    for client in &mut clients[..2] {
        until(client, "done", is_done).await;
    }
    for round in 0..3 {
        // Its token has ended when all of them come.
        sleep(Duration::from_secs_f64(LIFETIME + 0.5)).await;
        let before = world.given("refresh_token").len();
        let mut calls = JoinSet::new();
        for mut client in clients.drain(..) {
            calls.spawn(async move {
                let answer = ask(&mut client).await;
                (client, answer)
            });
        }
        while let Some(called) = calls.join_next().await {
            let (client, answer) = called.unwrap();
            assert!(is_done(answer.response()), "round {round}: {answer:?}");
            clients.push(client);
        }
        let after = world.given("refresh_token").len();
        assert!(before < after, "round {round}: none of {before} renewals");
    }
    world.has_kept_its_login();
    // Each renewal has replaced a token that had ended: nobody else has renewed the same.
    let renewals = world.given("refresh_token");
    let times: Vec<_> = renewals.iter().map(|it| it[3].as_f64().unwrap()).collect();
    assert!(
        times.windows(2).all(|it| LIFETIME - 1.0 < it[1] - it[0]),
        "{times:?}"
    );
}

const HOUR: u64 = 3_600;

/// Makes the library that puts the clocks of a program ahead, by the C compiler with which this was linked.
fn clocks(site: &Site) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/ahead.c");
    let library = site.path("ahead.so");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-o"]);
    let status = compiler.arg(&library).arg(source).status().unwrap();
    assert!(status.success());
    library
}

/// One process sees six weeks pass, by its wall clock and its monotonic clock, and so does the authorization server. From Monday
/// to Friday an access token ends before each call; nobody calls at weekends. Each refresh token is taken once and forgotten
/// after three days, and once a week the authorization server is out of order for as long as two access tokens last.
async fn six_weeks(hours: u64) {
    let world = World::new(json!({})).await;
    put(&world.site, "lifetime", &(hours * HOUR).to_string());
    put(&world.site, "patience", &(3 * 24 * HOUR).to_string());
    world.sign_in().await;
    world.site.write("clock", [0; 8]);
    let (library, clock) = (clocks(&world.site), world.site.path("clock"));
    let mut passed = 0;
    let mut pass = |hours: u64| {
        passed += hours * HOUR;
        put(&world.site, "ahead", &passed.to_string());
        // In place: the process looks into this file.
        let mut file = File::options().write(true).open(&clock).unwrap();
        file.write_all(&passed.to_ne_bytes()).unwrap();
    };
    let variables = [
        ("LD_PRELOAD", library.as_os_str()),
        ("AHEAD_FILE", clock.as_os_str()),
    ];
    let mut server = start(&world.site, &variables).await;
    let mut client = server.client();
    until(&mut client, "done", is_done).await;
    let (mut rotations, steps) = (0, 5 * 24 / hours);
    let out = steps / 2..steps / 2 + 2;
    for week in 0..6 {
        for step in 0..steps {
            pass(hours);
            if step == out.start {
                world.out(&json!({"/token": [503, {}, ""]}));
            } else if step == out.end {
                world.out(&json!({}));
            }
            let answer = ask(&mut client).await;
            if out.contains(&step) {
                is_for_the_moment(&answer);
                continue;
            }
            let response = answer.response();
            assert!(is_done(response), "week {week}, step {step}: {response}");
            rotations += 1;
        }
        pass(2 * 24);
    }
    assert_eq!(passed, 6 * 7 * 24 * HOUR);
    let last = ask(&mut client).await;
    assert!(is_done(last.response()), "{last:?}");
    assert_eq!(states(&server).await, ["ready"]);
    assert_eq!(world.given("refresh_token").len(), rotations + 1);
    // And so does the next process.
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let server = start(&world.site, &variables).await;
    until(&mut server.client(), "done", is_done).await;
    world.has_kept_its_login();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_stays_signed_in_for_six_weeks() {
    six_weeks(8).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "takes minutes: cargo test -p owlclaw-mcp --test end_to_end -- --ignored six_weeks_of_hours"]
async fn a_process_stays_signed_in_for_six_weeks_of_hours() {
    six_weeks(1).await;
}
