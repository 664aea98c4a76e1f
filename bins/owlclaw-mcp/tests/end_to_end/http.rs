//! Parts of the HTTP transport beside the protocol: access, health, metrics, shutdown.

use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpRequest, HttpServer, MODERN, Port, REVISIONS, wait_until,
};

use crate::support::{END, Site, call, call_with_progress, log, names, run, text};

#[tokio::test]
async fn every_revision_is_spoken_over_http() {
    let site = Site::new(json!({}));
    site.skill("stock", "counting", "");
    let server = site.http().await;
    for version in REVISIONS.into_iter().chain(["1.0"]) {
        let mut client = server.client();
        let opened = client.open(version).await;
        if version == MODERN {
            assert!(client.session().is_none());
            assert_eq!(opened["supportedVersions"], json!([MODERN]));
        } else {
            assert!(client.session().is_some());
            assert_eq!(opened["protocolVersion"], version);
        }
        let tools = client.request("tools/list", Value::Null).await;
        assert!(names(tools.result(), "tools", "name").contains(&"echo".to_owned()));
        let echoed = client
            .request("tools/call", call("echo", json!({"text": version})))
            .await;
        assert_eq!(text(echoed.result()), json!({"text": version}).to_string());
        let read = client
            .request("resources/read", json!({"uri": "skill://stock/counting"}))
            .await;
        assert!(read.result()["contents"][0]["text"].is_string());
    }
    // Without any of it, as sloppy clients call.
    let mut sloppy = server.client();
    let tools = sloppy.request("tools/list", Value::Null).await;
    assert!(!names(tools.result(), "tools", "name").is_empty());
}

#[tokio::test]
async fn the_server_says_where_it_listens_and_listens_where_it_was_told() {
    let site = Site::new(json!({}));
    let port = testkit::free_port();
    let words = ["start", "--transport", "http", "--port", &port.to_string()];
    let mut server = HttpServer::spawn(site.command(&words), Port::Fixed(port)).await;
    server.client().open(MODERN).await;
    server.process().wait_stderr("serving").await;
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let lines = log(&server.stderr());
    let summary = lines[0]["lines"].to_string();
    assert!(
        summary.contains("http") && summary.contains("ledger.db"),
        "{summary}"
    );
    let serving = lines
        .iter()
        .find(|line| line["message"] == "serving")
        .unwrap();
    assert_eq!(serving["url"], format!("http://127.0.0.1:{port}/mcp"));
}

#[tokio::test]
async fn health_is_told_without_a_name() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let client = server.client();
    let health = client.exchange(&HttpRequest::get("/health")).await;
    assert_eq!(
        (health.status, health.media_type()),
        (200, Some("application/json"))
    );
    let health = health.json();
    assert_eq!(health["status"], "ok", "{health}");
    let parts = names(&health, "components", "name");
    for part in ["ledger", "application"] {
        assert!(parts.contains(&part.to_owned()), "{parts:?}");
    }
    let live = client.exchange(&HttpRequest::get("/health/live")).await;
    assert_eq!(live.status, 200);
    let posted = client.exchange(&HttpRequest::post("/health", "{}")).await;
    assert_eq!(
        (posted.status, posted.header("allow")),
        (405, Some("GET, HEAD"))
    );
}

#[tokio::test]
async fn health_notices_a_lost_worker_and_that_it_is_back() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    let health = async || client.exchange(&HttpRequest::get("/health")).await;
    let becomes = async |status: u16, told: &str| {
        let end = tokio::time::Instant::now() + GENEROUS;
        loop {
            let health = health().await;
            if health.status == status && health.json().to_string().contains(told) {
                return;
            }
            let now = tokio::time::Instant::now();
            assert!(now < end, "never {status}: {}", health.json());
            // Health is asked for; nothing tells that it has changed.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    // An edit that is wrong does not matter before it has to be loaded, but is told.
    site.write("app.py", "import no_such_module\n");
    becomes(200, "could not be loaded again").await;
    assert_eq!(health().await.json()["status"], "degraded");
    let mut other = server.client();
    other.open(MODERN).await;
    let died = other
        .request("tools/call", call("die_with_all", json!({})))
        .await;
    assert_eq!(died.failure()["code"], -32005);
    becomes(503, "no_such_module").await;
    site.write("app.py", crate::support::WORKSHOP);
    becomes(200, "").await;
    let echoed = other
        .request("tools/call", call("echo", json!({"text": "back"})))
        .await;
    assert_eq!(text(echoed.result()), r#"{"text":"back"}"#);
    // So is an edit that leaves nothing.
    let empty = "from owlclaw import OwlClaw\napp = OwlClaw('empty')\napp.mount_skills('skills')\n";
    site.write("app.py", empty);
    becomes(200, "has registered nothing").await;
    assert_eq!(health().await.json()["status"], "degraded");
}

const TOLD: &str = r#"
from owlclaw import OwlClaw
from owlclaw_worker import Context, get_http_headers
app = OwlClaw("told")
app.mount_skills("skills")

@app.handler("sync")
def sync(ctx: Context) -> dict:
    """Says what it is told."""
    return {"headers": ctx.headers}

@app.handler("later")
async def later() -> dict:
    """Says what it is told."""
    return {"headers": get_http_headers()}
"#;

#[tokio::test]
async fn handlers_are_told_the_headers_that_the_operator_names_and_no_others() {
    let site = Site::new(json!({"http": {"pass_headers": ["X-Tenant", "x-shop", "x-absent"]}}));
    site.write("app.py", TOLD);
    let server = site.http().await;
    for version in REVISIONS {
        let mut client = server
            .client()
            .with_header("x-tenant", "t1")
            .with_header("X-Shop", "a")
            .with_header("x-shop", "b")
            .with_header("x-other", "no")
            .with_header("cookie", "no");
        client.open(version).await;
        for tool in ["sync", "later"] {
            let told = client.request("tools/call", call(tool, json!({}))).await;
            let expected = r#"{"headers":{"x-tenant":"t1","x-shop":"a, b"}}"#;
            assert_eq!(text(told.result()), expected, "{version} {tool}");
        }
        // A later request of the session has its own.
        let mut other = server.client();
        other.open(version).await;
        let told = other.request("tools/call", call("sync", json!({}))).await;
        assert_eq!(text(told.result()), r#"{"headers":{}}"#, "{version}");
    }
}

const META: &str = r#"
from owlclaw import OwlClaw
from owlclaw_worker import Context

app = OwlClaw("told")
app.mount_skills("skills")

@app.handler("meta")
def meta(ctx: Context) -> dict:
    """Says what its client has sent along."""
    sent = ctx.request_context.meta
    if sent is None:
        return {}
    return {"token": sent.progressToken, "tenant": sent.get("shop/tenant"), "user": getattr(sent, "user", None)}

@app.resource("told://meta")
async def read(ctx: Context) -> dict:
    return dict(ctx.meta)
"#;

#[tokio::test]
async fn handlers_are_told_the_metadata_of_a_request() {
    let site = Site::new(json!({
        "governance": {"default": {"tools": {"allow": ["*"]}, "resources": {"allow": ["told://*"]}}},
    }));
    site.write("app.py", META);
    let server = site.http().await;
    for version in REVISIONS {
        let mut client = server.client();
        client.open(version).await;
        let mut asked = call("meta", json!({}));
        let told = client.request("tools/call", asked.clone()).await;
        assert_eq!(text(told.result()), "{}", "{version}");
        asked["_meta"] = json!({"progressToken": "t", "shop/tenant": {"a": [1]}, "user": "ana"});
        let told = client.request("tools/call", asked).await;
        let expected = r#"{"token":"t","tenant":{"a":[1]},"user":"ana"}"#;
        assert_eq!(text(told.result()), expected, "{version}");
        let read = json!({"uri": "told://meta", "_meta": {"user": "ana"}});
        let read = client.request("resources/read", read).await;
        let contents = read.result()["contents"][0]["text"].as_str().unwrap();
        let contents: Value = serde_json::from_str(contents).unwrap();
        assert_eq!(contents["user"], "ana", "{version}");
    }
}

/// The value of one line of `/metrics`.
fn metric(text: &str, name: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.map_or(0.0, |value| value.trim().parse().unwrap())
}

#[tokio::test]
async fn metrics_move_with_what_is_done() {
    let site = Site::new(json!({"governance": {"default": {"tools": {"deny": ["spin"]}}}}));
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    for _ in 0..3 {
        let _ = client
            .request("tools/call", call("echo", json!({"text": "x"})))
            .await
            .result();
    }
    let _ = client
        .request("tools/call", call("fail", json!({"why": "x"})))
        .await
        .result();
    let _ = client
        .request("tools/call", call("spin", json!({})))
        .await
        .failure();
    let _ = client
        .request("tools/call", call("no-such", json!({})))
        .await
        .error();
    let metrics = client.exchange(&HttpRequest::get("/metrics")).await;
    assert_eq!(metrics.status, 200);
    assert!(
        metrics
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let text = metrics.text();
    let expected = [
        (
            "owlclaw_mcp_tool_calls_total{outcome=\"ok\",tool=\"echo\"}",
            3.0,
        ),
        (
            "owlclaw_mcp_tool_calls_total{outcome=\"error\",tool=\"fail\"}",
            1.0,
        ),
        ("owlclaw_mcp_denials_total{reason=\"permission\"}", 1.0),
        (
            "owlclaw_mcp_requests_total{code=\"0\",method=\"tools/call\"}",
            3.0,
        ),
        // Told by results, and counted as what they are.
        (
            "owlclaw_mcp_requests_total{code=\"-32005\",method=\"tools/call\"}",
            1.0,
        ),
        (
            "owlclaw_mcp_requests_total{code=\"-32003\",method=\"tools/call\"}",
            1.0,
        ),
        (
            "owlclaw_mcp_request_seconds_count{method=\"tools/call\"}",
            6.0,
        ),
        ("owlclaw_mcp_requests_in_flight", 0.0),
    ];
    for (name, value) in expected {
        assert_eq!(metric(text, name), value, "{name} in\n{text}");
    }
    assert!(
        !text.contains("no-such"),
        "names that clients send are no labels"
    );
    for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
        assert!(line.starts_with("# TYPE owlclaw_mcp_"), "{line}");
    }
}

#[tokio::test]
async fn an_address_that_others_reach_needs_authentication_or_a_decision() {
    let site = Site::new(json!({"http": {"host": "0.0.0.0"}}));
    let said = run(site.command(&["start", "--transport", "http"])).await;
    assert_eq!(
        (said.code, said.output.as_str()),
        (Some(2), ""),
        "{}",
        said.messages
    );
    assert!(
        said.messages.contains("allow_anonymous"),
        "{}",
        said.messages
    );
    let site = Site::new(json!({"http": {"host": "0.0.0.0", "allow_anonymous": true}}));
    let server = site.http().await;
    server.client().open(MODERN).await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let site = Site::new(json!({}));
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = run(site.command(&["start", "--transport", "http", "--port", &port])).await;
    assert_eq!(
        (said.code, said.output.as_str()),
        (Some(1), ""),
        "{}",
        said.messages
    );
    let address = format!("127.0.0.1:{port}");
    let mut lines = said.messages.lines();
    let told = lines.any(|line| line.contains(&address) && line.contains("in use"));
    assert!(told, "{}", said.messages);
    // What the doctor makes of it comes last.
    let last = said.messages.lines().last().unwrap();
    assert!(last.contains(&address), "{last}");
    assert!(last.contains("set http.port"), "{last}");
}

#[tokio::test]
async fn pages_of_strangers_may_not_call() {
    let site = Site::new(json!({"http": {"cors": {"allowed_origins": ["https://app.example"]}}}));
    let server = site.http().await;
    let client = server.client();
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let from = |origin: &str| HttpRequest::post("/mcp", &message).with("origin", origin);
    for origin in [
        "https://evil.example",
        "null",
        "http://app.example",
        "https://app.example.evil",
    ] {
        let refused = client.exchange(&from(origin)).await;
        assert_eq!(refused.status, 403, "{origin}");
        assert_eq!(refused.header("access-control-allow-origin"), None);
        assert_eq!(refused.json()["error"]["code"], -32600);
    }
    for origin in ["https://app.example", "http://localhost:5173"] {
        let served = client.exchange(&from(origin)).await;
        assert_eq!(served.status, 200, "{origin}");
        assert!(served.json()["result"]["tools"].is_array());
    }
    let served = client.exchange(&from("https://app.example")).await;
    assert_eq!(
        served.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    let host = HttpRequest::post("/mcp", &message).with("host", "evil.example");
    assert_eq!(client.exchange(&host).await.status, 403, "a rebound name");
    let preflight = |origin: &str| {
        HttpRequest::new("OPTIONS", "/mcp")
            .with("origin", origin)
            .with("access-control-request-method", "POST")
            .with("access-control-request-headers", "content-type")
    };
    let allowed = client.exchange(&preflight("https://app.example")).await;
    assert!(allowed.status < 300, "{allowed:?}");
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert_eq!(allowed.header("access-control-max-age"), Some("3600"));
    let refused = client.exchange(&preflight("https://evil.example")).await;
    assert_eq!(refused.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn a_server_told_to_stop_finishes_what_runs_and_ends_streams() {
    let site = Site::new(json!({}));
    let mut server = site.http().await;
    let mut client = server.client();
    client.open("2025-06-18").await;
    let stream = client.listen().await;
    let napping = {
        let mut client = client.clone();
        tokio::spawn(async move {
            client
                .request("tools/call", call("nap", json!({"seconds": 0.8})))
                .await
        })
    };
    wait_until("it naps", GENEROUS, || site.read("naps").contains("begun")).await;
    server.process().signal("TERM").await;
    let reply = napping.await.unwrap();
    assert_eq!(text(reply.result()), "rested");
    assert!(server.wait_exit(END).await.success(), "{}", server.stderr());
    assert_eq!(site.outcomes("nap"), ["succeeded"]);
    drop(stream);
}

#[tokio::test]
async fn a_session_that_was_ended_is_gone() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut client = server.client();
    client.open("2025-11-25").await;
    let ended = client
        .exchange(&client.dress(HttpRequest::new("DELETE", "/mcp")))
        .await;
    assert!(ended.status < 300, "{ended:?}");
    let message = client.voice.request("tools/list", Value::Null);
    let after = client.exchange(&client.post_of(&message)).await;
    assert_eq!(after.status, 404);
    client.open("2025-11-25").await;
    let _ = client.request("tools/list", Value::Null).await.result();
}

#[tokio::test]
async fn streams_are_as_the_configuration_has_them() {
    let settings = json!({"http": {
        "stream_after_milliseconds": 10, "stream_retry_milliseconds": 321, "old_sse": false,
    }});
    let site = Site::new(settings);
    let server = site.http().await;
    let mut client = server.client();
    let old = HttpRequest::get("/mcp/sse").header("accept", "text/event-stream");
    assert_eq!(client.exchange(&old).await.status, 404);
    client.open("2025-11-25").await;
    let nap = call("nap", json!({"seconds": 0.5}));
    let message = client.voice.request("tools/call", nap);
    let mut stream = client.stream(&client.post_of(&message)).await;
    let first = stream.next_event().await.unwrap();
    assert_eq!((first.retry, &*first.data), (Some(321), ""));
    drop(stream);
    let back = HttpRequest::get("/mcp")
        .header("accept", "text/event-stream")
        .header("last-event-id", &first.id.unwrap());
    let mut rest = client.stream(&client.dress(back)).await;
    rest.dialogue.sent(message.to_string().as_bytes());
    assert_eq!(text(&rest.message().await["result"]), "rested");

    // Where nothing is kept, nothing is promised.
    for limit in [
        "max_session_replay_events",
        "max_session_replay_bytes",
        "max_replay_bytes",
    ] {
        let site = Site::new(json!({"http": {"stream_after_milliseconds": 0, limit: 0}}));
        let server = site.http().await;
        let mut client = server.client();
        client.open("2025-11-25").await;
        let report = call_with_progress("report", json!({"steps": 2}), "t");
        let message = client.voice.request("tools/call", report);
        let answer = client.post(&client.post_of(&message)).await;
        assert!(answer.events.iter().all(|it| it.id.is_none()), "{answer:?}");
        assert_eq!(text(answer.result()), "done", "{limit}");
    }
}

/// Property 9.
#[tokio::test]
async fn streams_that_are_hung_up_on_leave_nothing_behind() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let descriptors = {
        let id = server.process().id().unwrap();
        move || std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count()
    };
    let before = descriptors();
    let mut legacy = server.client();
    legacy.open("2025-06-18").await;
    let mut modern = server.client();
    modern.speak(MODERN);
    let mut streams = Vec::new();
    for index in 0..120 {
        let filter = json!({"notifications": {"resourcesListChanged": true}});
        let request = match index % 3 {
            // A session has one stream, so each of these is of another.
            0 => {
                legacy.open("2025-06-18").await;
                streams.push(legacy.listen().await);
                continue;
            }
            1 => modern.voice.request("subscriptions/listen", filter),
            _ => {
                let asked = call_with_progress("report-forever", json!({}), "p");
                modern.voice.request("tools/call", asked)
            }
        };
        let mut stream = modern.stream(&modern.post_of(&request)).await;
        stream.message().await;
        streams.push(stream);
    }
    let open = descriptors();
    // The connection that found out whether the server listens may still have been counted.
    assert!(before + 115 <= open, "{before} before, {open} open");
    drop(streams);
    wait_until("the sockets are closed", GENEROUS, || {
        descriptors() <= before + 2
    })
    .await;
    let cancelled = vec!["cancelled".to_owned(); 40];
    wait_until("the calls were given up", GENEROUS, || {
        site.outcomes("report-forever") == cancelled
    })
    .await;
    // Nobody listens any more, and whoever comes next is served.
    site.skill("stock", "new", "");
    let mut stream = legacy.listen().await;
    site.skill("stock", "newer", "");
    stream.message().await;
    let metrics = server
        .client()
        .exchange(&HttpRequest::get("/metrics"))
        .await;
    assert_eq!(
        metric(metrics.text(), "owlclaw_mcp_requests_in_flight"),
        0.0
    );
}

const TOKEN: &str = "an operator's token of 32 characters";

#[tokio::test]
async fn the_longest_idle_session_is_evicted_and_operators_list_and_end_sessions() {
    let site = Site::new(json!({
        "http": {"max_sessions": 4, "limits": {"max_sessions_per_client": 2}},
        "governance": {"approvals": {"http_token": TOKEN}},
    }));
    let server = site.http().await;
    let named = async |name: &str| {
        let mut client = server.client().with_header("x-mcp-client-id", name);
        client.initialize("2025-11-25").await;
        client
    };
    let (mut first, second) = (named("ann").await, named("ann").await);
    first.post_legacy("ping", json!({})).await;
    let _stream = first.listen().await;
    named("ann").await;
    // The one that nobody had used since is gone, and says so.
    let gone = second.dress(HttpRequest::new("DELETE", "/mcp"));
    assert_eq!(second.exchange(&gone).await.status, 404);
    assert!(
        first
            .post_legacy("ping", json!({}))
            .await
            .result()
            .is_object()
    );

    let asked = async |words: &[&str]| {
        let url = format!("http://{}", server.address());
        run(site.command(&[&["sessions"], words, &["--url", &url]].concat())).await
    };
    let told = asked(&["list", "--format", "json"]).await;
    let told: Value = serde_json::from_str(&told.output).unwrap();
    assert_eq!((&told["open"], &told["evicted"]), (&json!(2), &json!(1)));
    let streaming = told["sessions"].as_array().unwrap().iter();
    let streaming: Vec<_> = streaming.filter(|it| it["streaming"] == true).collect();
    assert_eq!(streaming.len(), 1);
    assert_eq!(streaming[0]["id"], first.session().unwrap());
    assert_eq!(streaming[0]["client"], "ann");
    let table = asked(&["list", "--client", "bob"]).await;
    assert!(!table.output.contains("ann"), "{}", table.output);
    assert!(
        table.messages.contains("2 of at most 4"),
        "{}",
        table.messages
    );

    let health = server.client().exchange(&HttpRequest::get("/health")).await;
    let text = health.text();
    assert_eq!(health.status, 200, "{text}");
    assert!(
        text.contains("http.limits.max_sessions_per_client"),
        "{text}"
    );
    let metrics = server
        .client()
        .exchange(&HttpRequest::get("/metrics"))
        .await;
    assert!(
        metrics
            .text()
            .contains("owlclaw_mcp_http_evicted_sessions_total 1")
    );
    assert!(
        server.stderr().contains("idle longest"),
        "{}",
        server.stderr()
    );

    let ended = asked(&["end", first.session().unwrap()]).await;
    assert_eq!(ended.output, "1 ended\n", "{}", ended.messages);
    let gone = first.dress(HttpRequest::new("DELETE", "/mcp"));
    assert_eq!(first.exchange(&gone).await.status, 404);
    let twice = asked(&["end", first.session().unwrap()]).await;
    assert_eq!(twice.code, Some(1));
    assert!(
        twice.messages.contains("there is no such session"),
        "{}",
        twice.messages
    );
    assert_eq!(asked(&["end", "--client", "ann"]).await.output, "1 ended\n");

    let stranger = HttpRequest::get("/sessions").header("authorization", "Bearer wrong");
    assert_eq!(server.client().exchange(&stranger).await.status, 401);
}

#[tokio::test]
async fn an_http_error_has_the_id_of_the_request_if_it_could_be_read() {
    let site = Site::new(json!({"http": {"max_sessions": 1}}));
    let server = site.http().await;
    let mut client = server.client();
    client.initialize("2025-11-25").await;
    let ping = json!({"jsonrpc": "2.0", "id": "p-7", "method": "ping"}).to_string();
    let post = |path: &str| HttpRequest::post(path, &ping);
    let gone = post("/mcp").header("mcp-session-id", "gone");
    let modern = json!({"jsonrpc": "2.0", "id": "p-7", "method": "subscriptions/listen", "params": {
        "notifications": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let listen = HttpRequest::post("/mcp", modern.to_string())
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", "subscriptions/listen")
        .with("accept", "application/json");
    let version = post("/mcp").header("mcp-protocol-version", "1999-01-01");
    for (request, status) in [(gone, 404), (listen, 406), (version, 400)] {
        let refused = server.client().exchange(&request).await;
        assert_eq!(
            (refused.status, &refused.json()["id"]),
            (status, &json!("p-7"))
        );
    }
    let packed = post("/mcp").header("content-encoding", "gzip");
    let refused = server.client().exchange(&packed).await;
    assert_eq!(refused.status, 415);
    assert_eq!(refused.header("accept-encoding"), Some("identity"));
}
