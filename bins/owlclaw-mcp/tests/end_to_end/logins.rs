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
    wait_until,
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
        Self::with(|_| settings).await
    }

    /// One with settings for an upstream at a port.
    async fn with(settings: impl FnOnce(u16) -> Value) -> Self {
        let port = free_port();
        let site = site(port, settings(port));
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

/// Time that passes for processes and for the authorization server.
struct Clock {
    passed: u64,
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    fn new(site: &Site) -> Self {
        site.write("clock", [0; 8]);
        Self {
            passed: 0,
            file: site.path("clock"),
            library: clocks(site),
        }
    }

    fn pass(&mut self, site: &Site, hours: u64) {
        self.passed += hours * HOUR;
        put(site, "ahead", &self.passed.to_string());
        // In place: the processes look into this file.
        let mut file = File::options().write(true).open(&self.file).unwrap();
        file.write_all(&self.passed.to_ne_bytes()).unwrap();
    }

    fn variables(&self) -> [(&'static str, &OsStr); 2] {
        [
            ("LD_PRELOAD", self.library.as_os_str()),
            ("AHEAD_FILE", self.file.as_os_str()),
        ]
    }
}

/// One process sees six weeks pass, by its wall clock and its monotonic clock, and so does the authorization server. From Monday
/// to Friday an access token ends before each call; nobody calls at weekends. Each refresh token is taken once and forgotten
/// after three days, and once a week the authorization server is out of order for as long as two access tokens last.
async fn six_weeks(hours: u64) {
    let renewed = json!({"gateway": {"renew_logins_hours": 0}});
    let world = World::new(renewed).await;
    put(&world.site, "lifetime", &(hours * HOUR).to_string());
    put(&world.site, "patience", &(3 * 24 * HOUR).to_string());
    world.sign_in().await;
    let mut clock = Clock::new(&world.site);
    let mut server = start(&world.site, &clock.variables()).await;
    let mut client = server.client();
    until(&mut client, "done", is_done).await;
    let (mut rotations, steps) = (0, 5 * 24 / hours);
    let out = steps / 2..steps / 2 + 2;
    for week in 0..6 {
        for step in 0..steps {
            clock.pass(&world.site, hours);
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
        clock.pass(&world.site, 2 * 24);
    }
    assert_eq!(clock.passed, 6 * 7 * 24 * HOUR);
    let last = ask(&mut client).await;
    assert!(is_done(last.response()), "{last:?}");
    assert_eq!(states(&server).await, ["ready"]);
    assert_eq!(world.given("refresh_token").len(), rotations + 1);
    // And so does the next process.
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let server = start(&world.site, &clock.variables()).await;
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

/// Two weeks without calls; each refresh token is forgotten after three days. Two servers share the login, whose access
/// token ends within hours.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_login_survives_holidays() {
    let world = World::new(json!({})).await;
    put(&world.site, "lifetime", &(8 * HOUR).to_string());
    put(&world.site, "patience", &(3 * 24 * HOUR).to_string());
    world.sign_in().await;
    let mut clock = Clock::new(&world.site);
    // Its lists are known afterwards, so that nothing but a call leads to a connection.
    let mut server = start(&world.site, &[]).await;
    until(&mut server.client(), "done", is_done).await;
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let path = |name: &str| world.site.path(name).to_str().unwrap().to_owned();
    let vault = json!({"path": path("vault"), "key_file": path("vault.key")});
    let gateway = json!({"directory": path("upstreams")});
    let there = site(world.port, json!({"vault": vault, "gateway": gateway}));
    let servers = [
        start(&world.site, &clock.variables()).await,
        start(&there, &clock.variables()).await,
    ];
    let renewals = || world.given("refresh_token").len();
    for day in 1..=14 {
        let before = renewals();
        if day == 5 {
            world.out(&json!({"/token": [503, {}, ""]}));
            clock.pass(&world.site, 24);
            let outages = || world.given("outage").len();
            wait_until("it is tried", GENEROUS, || 2 <= outages()).await;
            assert_eq!(renewals(), before);
            world.out(&json!({}));
        }
        clock.pass(&world.site, 24);
        wait_until("it is renewed", GENEROUS, || before < renewals()).await;
        // The other has seen it before more time passes.
        sleep(Duration::from_millis(500)).await;
    }
    // One of the two has renewed each time.
    assert_eq!(renewals(), 14);
    for server in &servers {
        assert_eq!(states(server).await, ["known"]);
        let answer = ask(&mut server.client()).await;
        assert!(is_done(answer.response()), "{answer:?}");
    }
    world.has_kept_its_login();

    // One that the authorization server does not take any more is told of before anybody calls.
    put(&world.site, "revoked", "all");
    clock.pass(&world.site, 24);
    for server in &servers {
        while states(server).await != ["login_needed"] {
            sleep(Duration::from_millis(20)).await;
        }
    }
    put(&world.site, "revoked", "");
    world.sign_in().await;
    clock.pass(&world.site, 1);
    for server in &servers {
        while states(server).await == ["login_needed"] {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The same for logins of clients, of which one is revoked.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn logins_of_clients_survive_holidays() {
    let world = World::with(|port| {
        let url = format!("http://127.0.0.1:{port}/mcp");
        json!({
            "identity": {"api_keys": {"file": "keys.json"}},
            "upstreams": {"up": {"url": url, "credentials": "per-client"}},
        })
    })
    .await;
    put(&world.site, "lifetime", &(8 * HOUR).to_string());
    put(&world.site, "patience", &(3 * 24 * HOUR).to_string());
    for client in ["ana", "bob"] {
        put(&world.site, "browser", client);
        let words = ["up", "--client", client];
        signed_in(&world.site, &words, "is signed in at `up`").await;
    }
    let create = ["keys", "create", "--principal", "ana"];
    assert_eq!(run(world.site.command(&create)).await.code, Some(0));
    let mut clock = Clock::new(&world.site);
    let server = start(&world.site, &clock.variables()).await;
    let renewed = |client: &str| {
        let renewals = world.given("refresh_token");
        let renewals = renewals.iter().filter(|it| it[1] == client);
        renewals.filter(|it| it[2] != "invalid_grant").count()
    };
    for day in 1..=4 {
        clock.pass(&world.site, 24);
        wait_until("both are renewed", GENEROUS, || {
            [renewed("ana"), renewed("bob")] == [day, day]
        })
        .await;
    }
    put(&world.site, "revoked", "bob");
    clock.pass(&world.site, 24);
    wait_until("the other is", GENEROUS, || renewed("ana") == 5).await;
    let begun = Instant::now();
    while !server.stderr().contains("its login has ended") {
        assert!(begun.elapsed() < GENEROUS, "{}", server.stderr());
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(renewed("bob"), 4);
}

/// Metadata that are of another issuer than the server names: no time cures that, and no sign-in.
#[tokio::test]
async fn a_wrong_issuer_is_told_with_both_names_and_what_cures_it() {
    let approvals = json!({"approvals": {"http_token": "the-operators-own-token-0123456789"}});
    let http = json!({"port": free_port()});
    let settings = json!({"transport": "http", "http": http, "governance": approvals});
    let world = World::new(settings).await;
    put(&world.site, "lifetime", "2");
    world.sign_in().await;
    let server = start(&world.site, &[]).await;
    let mut client = server.client();
    until(&mut client, "done", is_done).await;
    // It is looked at with the login that is kept.
    let doctor = async || {
        let mut command = world.site.command(&["doctor", "--no-import"]);
        command.env("HOME", world.site.path(""));
        run(command).await.output
    };
    let told = doctor().await;
    assert!(told.contains("2 tools are offered"), "{told}");
    let here = format!("http://127.0.0.1:{}", world.port);
    let other = "https://login.example.com/realms/shop";
    let metadata = json!({"issuer": other, "token_endpoint": format!("{here}/token")}).to_string();
    world.out(&json!({"/.well-known/oauth-authorization-server": [200, {}, metadata]}));
    put(&world.site, "revoked", "all");
    let failed = until(&mut client, "failed", has_failed).await;
    let failure = failure_of(failed.response());
    assert_eq!(failure["data"]["retryable"], false, "{failure}");
    let told = text(failed.result());
    assert!(
        told.contains("until what its tokens come from is set right"),
        "{told}"
    );
    assert_eq!(states(&server).await, ["degraded"]);
    let is_whole = |told: &str| {
        let issuers = format!("is of the issuer `{other}` and not of `{here}`");
        assert!(told.contains(&issuers), "{told}");
        let cure = format!(
            "has to name `{other}` as its authorization server, or that has to call itself `{here}`"
        );
        assert!(told.contains(&cure), "{told}");
        assert!(!told.contains("sign in with"), "{told}");
    };
    let health = HttpClient::new(server.address());
    is_whole(health.exchange(&HttpRequest::get("/health")).await.text());
    for words in [
        &["upstream", "why", "up"][..],
        &["doctor", "--no-import"],
        &["upstream", "login", "up", "--no-browser"],
    ] {
        let mut command = world.site.command(words);
        command.env("HOME", world.site.path(""));
        let said = run(command).await;
        is_whole(&(said.output + &said.messages));
    }
}

#[tokio::test]
async fn a_sign_out_is_told_to_the_authorization_server() {
    let world = World::new(json!({})).await;
    world.sign_in().await;
    let logout = async || {
        let mut command = world.site.command(&["upstream", "logout", "up"]);
        command.env("HOME", world.site.path(""));
        let said = run(command).await;
        (said.code, said.messages)
    };
    let revoked = || -> Vec<_> {
        let revoked = world.given("revocation").into_iter();
        revoked
            .map(|it| it[2].as_str().unwrap().to_owned())
            .collect()
    };
    let (code, told) = logout().await;
    assert!(code == Some(0) && !told.contains("warning"), "{told}");
    assert_eq!(revoked(), ["refresh_token", "access_token"]);
    let (code, told) = logout().await;
    assert!(
        code == Some(1) && told.contains("nobody is signed in at `up`"),
        "{told}"
    );
    assert_eq!(revoked().len(), 2);
    // Here the tokens are gone whatever becomes of it.
    world.sign_in().await;
    world.out(&json!({"/revoke": [503, {}, ""]}));
    let (code, told) = logout().await;
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("tokens are good where they were given until they end")
            && told.contains("503"),
        "{told}"
    );
    let list = ["upstream", "credential", "list"];
    let listed = run(world.site.command(&list)).await.output;
    assert!(listed.contains("no client has a credential"), "{listed}");
}
