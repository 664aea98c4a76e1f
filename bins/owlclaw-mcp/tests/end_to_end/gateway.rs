//! Other servers behind this one: children and HTTP servers, by configuration alone.

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpConnection, HttpRequest, HttpServer, MODERN, StdioServer,
    failure_of, free_port, succeeded, wait_until,
};

use crate::{
    crash_loop::exchange,
    gateway_kills::serve,
    support::{Site, call, names, outcome, run, text},
};

pub(super) const UPSTREAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../crates/gateway/tests/upstream.py"
);

/// A server without an application, with these upstreams.
pub(super) fn site(upstreams: Value, more: Value) -> Site {
    let mut settings = json!({"app": null, "python": null, "upstreams": upstreams});
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    Site::new(settings)
}

/// A child that keeps its files in `directory` of the site.
fn child(directory: &str) -> Value {
    json!({"command": "python3", "args": [UPSTREAM, "stdio", directory]})
}

fn with_child(more: Value) -> Site {
    let site = site(json!({"up": child("up")}), more);
    site.write("up/.keep", "");
    site
}

pub(super) fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .trim_start()
        .chars()
        .next();
    state.is_some_and(|it| it != 'Z')
}

async fn ask(server: &mut StdioServer, method: &str, params: Value) -> Value {
    server.request(method, params).await.result().clone()
}

#[tokio::test]
async fn a_server_with_upstreams_alone_is_a_gateway_in_every_revision() {
    let site = with_child(json!({}));
    for version in [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        MODERN,
    ] {
        let mut server = site.stdio();
        server.open(version).await;
        let listed = ask(&mut server, "tools/list", json!({})).await;
        let tools = names(&listed, "tools", "name");
        assert!(tools.contains(&"mcp_up_echo".to_owned()), "{tools:?}");
        let answer = ask(
            &mut server,
            "tools/call",
            call("mcp_up_echo", json!({"text": "hi"})),
        )
        .await;
        assert_eq!(text(&answer), "hi");
        let listed = ask(&mut server, "resources/list", json!({})).await;
        let uris = names(&listed, "resources", "uri");
        assert!(
            uris.contains(&"mcp.up+file:///a.txt".to_owned()),
            "{uris:?}"
        );
        assert!(uris.contains(&"ui://mcp.up/app/x".to_owned()), "{uris:?}");
        let read = ask(
            &mut server,
            "resources/read",
            json!({"uri": "mcp.up+file:///other"}),
        )
        .await;
        assert_eq!(read["contents"][0]["text"], "content of file:///other");
        assert_eq!(read["contents"][0]["uri"], "mcp.up+file:///other");
        let missing = server
            .request("resources/read", json!({"uri": "mcp.up+file:///missing"}))
            .await;
        let absent = server
            .request("resources/read", json!({"uri": "mcp.no+file:///missing"}))
            .await;
        assert_eq!(missing.code(), absent.code());
        // Rules match one spelling, so the upstream is asked for no other.
        for spelling in [
            "file:///a/../other",
            "FILE:///other",
            "file:///%6Fther",
            "file:////other",
        ] {
            let uri = format!("mcp.up+{spelling}");
            let read = server
                .request("resources/read", json!({ "uri": uri }))
                .await;
            assert_eq!(read.code(), absent.code(), "{uri}");
        }
        let templates = ask(&mut server, "resources/templates/list", json!({})).await;
        let templates = names(&templates, "resourceTemplates", "uriTemplate");
        assert!(
            templates.contains(&"mcp.up+file:///{name}".to_owned()),
            "{templates:?}"
        );
        let listed = ask(&mut server, "prompts/list", json!({})).await;
        assert_eq!(names(&listed, "prompts", "name"), ["mcp_up_greet"]);
        let params = json!({"name": "mcp_up_greet", "arguments": {"who": "Ana"}});
        let prompt = ask(&mut server, "prompts/get", params).await;
        assert_eq!(prompt["messages"][0]["content"]["text"], "Hello Ana");
        let reference = json!({"type": "ref/prompt", "name": "mcp_up_greet"});
        let params = json!({"ref": reference, "argument": {"name": "who", "value": "A"}});
        let completion = ask(&mut server, "completion/complete", params).await;
        assert_eq!(completion["completion"]["values"], json!(["greet", "Ax"]));
    }
    let calls = site.calls();
    let echo = calls
        .iter()
        .find(|it| it.started.capability == "tool/mcp_up_echo")
        .unwrap();
    let message = echo.ended.as_ref().unwrap().message.as_deref();
    assert_eq!(message, Some("upstream up, tool echo, revision 2025-11-25"));
    let read = calls
        .iter()
        .find(|it| it.started.capability == "resource/mcp.up+file:///other");
    let message = read.unwrap().ended.as_ref().unwrap().message.as_deref();
    assert_eq!(
        message,
        Some("upstream up, resource file:///other, revision 2025-11-25")
    );
    assert!(
        calls
            .iter()
            .any(|it| it.started.capability == "prompt/mcp_up_greet")
    );
}

#[tokio::test]
async fn one_upstream_can_keep_its_uris_and_names() {
    let (mut plain, mut other) = (child("up"), child("other"));
    plain["uris"] = json!("as-is");
    other["prefix"] = json!("other_");
    let site = site(
        json!({"up": plain, "other": other}),
        json!({"gateway": {"names": "{tool}"}}),
    );
    site.write("up/.keep", "");
    site.write("other/.keep", "");
    let mut server = site.stdio();
    server.open(MODERN).await;
    let listed = ask(&mut server, "tools/list", json!({})).await;
    let tools = names(&listed, "tools", "name");
    let echoes = ["echo", "other_echo"].map(str::to_owned);
    assert!(echoes.iter().all(|it| tools.contains(it)), "{tools:?}");
    let listed = ask(&mut server, "resources/list", json!({})).await;
    let uris = names(&listed, "resources", "uri");
    for uri in [
        "file:///a.txt",
        "ui://app/x",
        "mcp.other+file:///a.txt",
        "ui://mcp.other/app/x",
    ] {
        assert!(uris.contains(&uri.to_owned()), "{uris:?}");
    }
    for (uri, own) in [
        ("file:///a.txt", "file:///a.txt"),
        ("mcp.other+file:///a.txt", "file:///a.txt"),
    ] {
        let read = ask(&mut server, "resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["contents"][0]["text"], format!("content of {own}"));
        assert_eq!(read["contents"][0]["uri"], uri);
    }
    let absent = json!({"uri": "mcp.no+file:///a.txt"});
    let absent = server.request("resources/read", absent).await;
    for other in [
        "mcp.up+file:///a.txt",
        "ui://mcp.up/app/x",
        "file:///b/../a.txt",
    ] {
        let read = json!({ "uri": other });
        let read = server.request("resources/read", read).await;
        assert_eq!(read.code(), absent.code(), "{other}");
    }
    drop(server);
    let origins: Vec<_> = site
        .calls()
        .iter()
        .filter_map(|it| {
            let message = it.ended.as_ref()?.message.as_deref()?;
            message.starts_with("upstream").then(|| message.to_owned())
        })
        .collect();
    let named = |upstream: &str| origins.iter().any(|it| it.contains(upstream));
    assert!(
        named("upstream up,") && named("upstream other,"),
        "{origins:?}"
    );
}

#[tokio::test]
async fn rules_budgets_and_the_ledger_hold_for_tools_of_upstreams() {
    let quota = json!({"max_calls_per_minute": 2, "max_calls_per_day": 100});
    let site = with_child(json!({"governance": {
        "default_quota": quota,
        "default": {"tools": {"hide": ["mcp_up_d*"]}},
    }}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let listed = ask(&mut server, "tools/list", json!({})).await;
    assert!(!names(&listed, "tools", "name").contains(&"mcp_up_die".to_owned()));
    let refused = server
        .request("tools/call", call("mcp_up_die", json!({})))
        .await;
    assert_eq!(refused.code(), -32001);
    for _ in 0..2 {
        ask(&mut server, "tools/call", call("mcp_up_count", json!({}))).await;
    }
    let refused = server
        .request("tools/call", call("mcp_up_count", json!({})))
        .await;
    assert_eq!(
        refused.failure()["data"]["reason"],
        "rate_minute",
        "{refused:?}"
    );
    assert_eq!(site.read("up/count"), "xx");
    drop(server);
    assert_eq!(
        site.outcomes("mcp_up_count"),
        ["succeeded", "succeeded", "denied"]
    );
}

#[tokio::test]
async fn classes_of_an_upstreams_tools_are_governed_and_what_is_held_is_refused() {
    let mut upstream = child("up");
    upstream["risks"] =
        json!({"external": ["echo"], "financial": ["*n*"], "read_only": ["pro*", "count"]});
    upstream["hold"] = json!(["d*"]);
    let mut held = child("other");
    held["hold"] = json!(["*"]);
    let site = site(json!({"up": upstream, "other": held}), json!({}));
    site.write("up/.keep", "");
    site.write("other/.keep", "");
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    for tool in ["mcp_up_die", "mcp_other_echo"] {
        let refused = server.request("tools/call", call(tool, json!({}))).await;
        assert_eq!(refused.failure()["data"]["reason"], "held", "{refused:?}");
    }
    let read = json!({"uri": "mcp.other+file:///a.txt"});
    let refused = server.request("resources/read", read).await;
    assert_eq!(refused.failure()["data"]["reason"], "held", "{refused:?}");
    // A client that cannot be asked moves no money.
    let refused = server
        .request("tools/call", call("mcp_up_count", json!({})))
        .await;
    let reason = &refused.failure()["data"]["reason"];
    assert!(reason.to_string().contains("confirm"), "{refused:?}");
    assert_eq!(site.read("up/count"), "");
    for _ in 0..60 {
        let echo = call("mcp_up_echo", json!({"text": "hi"}));
        ask(&mut server, "tools/call", echo).await;
    }
    let refused = server
        .request("tools/call", call("mcp_up_echo", json!({})))
        .await;
    assert_eq!(refused.failure()["data"]["reason"], "rate_minute");
    ask(
        &mut server,
        "tools/call",
        call("mcp_up_progress", json!({})),
    )
    .await;
}

#[tokio::test]
async fn a_call_whose_upstream_dies_is_unknown_on_record_and_not_made_again() {
    let site = with_child(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let lost = server
        .request("tools/call", call("mcp_up_die", json!({})))
        .await;
    let failure = lost.failure();
    assert_eq!(failure["data"]["outcome"], "unknown", "{failure}");
    assert_eq!(failure["data"]["retryable"], false);
    assert!(
        failure["message"]
            .as_str()
            .unwrap()
            .contains("may have been done"),
        "{failure}"
    );
    let answer = ask(
        &mut server,
        "tools/call",
        call("mcp_up_echo", json!({"text": "hi"})),
    )
    .await;
    assert_eq!(text(&answer), "hi");
    assert_eq!(site.read("up/count"), "x");
    drop(server);
    assert_eq!(site.outcomes("mcp_up_die"), ["unknown"]);
    let verified = run(site.command(&["ledger", "verify"])).await;
    assert!(
        verified.output.contains("sound"),
        "{}{}",
        verified.output,
        verified.messages
    );
}

#[tokio::test]
async fn a_dead_upstream_stops_no_start_and_no_other_tool() {
    let site = site(
        json!({
            "dead": {"command": "/no/such/program"},
            "hanging": child("hanging"),
            "up": child("up"),
        }),
        json!({"gateway": {"first_start_seconds": 4}}),
    );
    site.write("up/.keep", "");
    site.write("hanging/hang", "");
    let mut server = site.stdio();
    server.open(MODERN).await;
    let listed = ask(&mut server, "tools/list", json!({})).await;
    let tools = names(&listed, "tools", "name");
    assert!(tools.contains(&"mcp_up_echo".to_owned()), "{tools:?}");
    // What is stored is on offer although nothing answers.
    drop(server);
    site.write("up/hang", "");
    let mut server = site.stdio();
    server.open(MODERN).await;
    let listed = ask(&mut server, "tools/list", json!({})).await;
    assert_eq!(names(&listed, "tools", "name"), tools);
}

#[tokio::test]
async fn a_question_of_a_legacy_upstream_reaches_modern_and_legacy_clients() {
    let site = with_child(json!({}));
    // A modern client is answered with the question, and asks again.
    let mut server = site.stdio();
    server.voice.capabilities = json!({"elicitation": {}});
    server.open(MODERN).await;
    let params = call("mcp_up_ask", json!({}));
    let asked = ask(&mut server, "tools/call", params.clone()).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (key, question) = asked["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    assert_eq!(question["params"]["message"], "Who?");
    assert!(!asked["requestState"].as_str().unwrap().contains("waiting"));
    let mut answered = params.clone();
    answered["inputResponses"] = json!({key: {"action": "accept", "content": {"name": "Ana"}}});
    answered["requestState"] = asked["requestState"].clone();
    let answer = ask(&mut server, "tools/call", answered).await;
    assert!(text(&answer).contains("Ana"), "{answer}");
    drop(server);

    // A legacy client is asked by a request.
    let mut server = site.stdio();
    server.voice.capabilities = json!({"elicitation": {}});
    server.open("2025-06-18").await;
    let request = server.voice.request("tools/call", params.clone());
    server.send(&request).await;
    let question = server.receive().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({"action": "accept", "content": {"name": "Bob"}});
    let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    server.send(&reply).await;
    let answer = server.receive_answer(&request["id"]).await;
    assert!(text(&answer["result"]).contains("Bob"), "{answer}");
    drop(server);

    // One that cannot be asked is not.
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let answer = ask(&mut server, "tools/call", params).await;
    assert!(text(&answer).contains("has not declared"), "{answer}");
}

#[tokio::test]
async fn an_http_server_behind_a_gateway_is_asked_with_its_headers() {
    let upstream = Site::new(json!({}));
    let listening = upstream.http().await;
    let url = format!("http://{}/mcp", listening.address());
    let headers = json!({"X-MCP-Client-ID": "${NAME_OF_GATEWAY}"});
    let site = site(json!({"shop": {"url": url, "headers": headers}}), json!({}));
    let mut command = site.command(&["start"]);
    command.env("NAME_OF_GATEWAY", "the-gateway");
    let mut server = StdioServer::spawn(command);
    server.open("2025-06-18").await;
    let answer = ask(
        &mut server,
        "tools/call",
        call("mcp_shop_echo", json!({"text": "hi"})),
    )
    .await;
    assert!(answer.to_string().contains("hi"), "{answer}");
    drop(server);
    let calls = upstream.calls();
    let echo = calls
        .iter()
        .find(|it| it.started.capability == "tool/echo")
        .unwrap();
    assert_eq!(
        (echo.started.principal.as_str(), outcome(echo).as_str()),
        ("the-gateway", "succeeded")
    );
    assert_eq!(echo.started.protocol_version, MODERN);
}

/// A server over HTTP that wants a login as long as its directory has a file `login`, and its address.
async fn with_login(site: &Site) -> (tokio::process::Child, String) {
    site.write("remote/login", "");
    let server = tokio::process::Command::new("python3")
        .args([UPSTREAM, "http", "0"])
        .arg(site.path("remote"))
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let port = site.path("remote/port");
    let port = || std::fs::read_to_string(&port).unwrap_or_default();
    wait_until("it listens", GENEROUS, || !port().is_empty()).await;
    let url = format!("http://127.0.0.1:{}/mcp", port());
    (server, url)
}

#[tokio::test]
async fn an_upstream_that_needs_a_login_says_so_to_those_who_may_call_it() {
    let site = site(json!({}), json!({}));
    let (_remote, url) = with_login(&site).await;
    let mut file: Value = serde_json::from_str(&site.read("mcp-server.yaml")).unwrap();
    file["mcp_server"]["upstreams"] = json!({"bank": {"url": url}});
    file["mcp_server"]["governance"] = json!({
        "default": {"tools": {"allow": ["*"]}, "resources": {"allow": ["*"]}},
        "clients": {"bob": {"tools": {"deny": ["mcp_bank_*"]}}},
    });
    site.write("mcp-server.yaml", file.to_string());
    for version in [MODERN, "2025-06-18"] {
        let mut server = site.stdio_as("ana");
        server.open(version).await;
        let answer = server
            .request("tools/call", call("mcp_bank_echo", json!({})))
            .await;
        let told = text(answer.result());
        assert!(told.contains("upstream `bank` needs a login"), "{told}");
        let data = &answer.failure()["data"];
        assert_eq!(data["retryable"], false, "{answer:?}");
        assert_eq!(answer.failure()["code"], -32005, "{answer:?}");
        let read = json!({"uri": "mcp.bank+file:///a.txt"});
        let answer = server.request("resources/read", read).await;
        assert_eq!(answer.code(), -32603, "{version} {answer:?}");
        let unknown = server
            .request("tools/call", call("mcp_bonk_echo", json!({})))
            .await;
        assert!(
            unknown.error()["message"]
                .as_str()
                .unwrap()
                .contains("unknown tool")
        );
        drop(server);
        // A client that may not see its tools is told what it is told of any name.
        let mut server = site.stdio_as("bob");
        server.open(version).await;
        let mut told = Vec::new();
        for tool in ["mcp_bank_echo", "mcp_bonk_echo"] {
            let answer = server.request("tools/call", call(tool, json!({}))).await;
            told.push(answer.error().to_string().replace(tool, "TOOL"));
        }
        assert_eq!(told[0], told[1]);
        drop(server);
    }
    let outcomes = site.outcomes("mcp_bank_echo");
    assert_eq!(outcomes, ["denied"; 4]);
}

#[tokio::test]
async fn calls_of_an_upstreams_tools_cost_what_its_configuration_says() {
    let mut upstream = child("up");
    upstream["costs"] = json!({
        "usual": {"tools": ["*"], "cost": "0.01"},
        "counting": {"tools": ["cou*"], "cost": 0.25},
    });
    let site = site(
        json!({"up": upstream}),
        json!({"governance": {
            "default_quota": {"monthly_budget": 1, "max_calls_per_minute": 1000},
            "default": {"tools": {"allow": ["*"]}},
            "tools": {"mcp_up_pid": {"estimated_cost": "0.1"}},
        }}),
    );
    site.write("up/.keep", "");
    let mut server = site.stdio();
    server.open(MODERN).await;
    let listed = ask(&mut server, "tools/list", json!({})).await;
    let tools = listed["tools"].as_array().unwrap();
    let cost = |name: &str| {
        let tool = tools.iter().find(|it| it["name"] == name).unwrap();
        tool["_meta"]["io.owlclaw/governance"]["estimated_cost"].clone()
    };
    let costs = ["mcp_up_count", "mcp_up_echo", "mcp_up_pid"].map(cost);
    assert_eq!(json!(costs), json!(["0.25", "0.01", "0.1"]));
    for tool in ["mcp_up_count", "mcp_up_count", "mcp_up_count", "mcp_up_pid"] {
        ask(&mut server, "tools/call", call(tool, json!({}))).await;
    }
    let refused = server
        .request("tools/call", call("mcp_up_count", json!({})))
        .await;
    assert_eq!(refused.failure()["data"]["reason"], "budget", "{refused:?}");
    assert_eq!(site.read("up/count"), "xxx");
    drop(server);
    let calls = site.calls();
    let spent = calls
        .iter()
        .filter_map(|it| Some(it.ended.as_ref()?.cost_micros));
    assert_eq!(
        spent.collect::<Vec<_>>(),
        [250_000, 250_000, 250_000, 100_000, 0]
    );
}

#[tokio::test]
async fn an_upstream_that_comes_while_serving_is_offered_and_one_that_goes_is_not() {
    let site = with_child(json!({}));
    let before = site.read("mcp-server.yaml");
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let mut file: Value = serde_json::from_str(&before).unwrap();
    site.write("two/.keep", "");
    file["mcp_server"]["upstreams"]["two"] = child("two");
    file["mcp_server"]["upstreams"]["two"]["env"] = json!({"KEY": "hunter2"});
    let swap = |text: &str| {
        site.write("new.yaml", text);
        std::fs::rename(site.path("new.yaml"), site.path("mcp-server.yaml")).unwrap();
    };
    swap(&file.to_string());
    until_listed(&mut server, "mcp_two_echo", true).await;
    let pid = ask(&mut server, "tools/call", call("mcp_two_pid", json!({}))).await;
    let one = ask(&mut server, "tools/call", call("mcp_up_pid", json!({}))).await;
    swap(&before);
    until_listed(&mut server, "mcp_two_echo", false).await;
    wait_until("its child has ended", GENEROUS, || !is_alive(text(&pid))).await;
    assert!(is_alive(text(&one)));
    let stderr = server.stderr();
    drop(server);
    let exported = run(site.command(&["ledger", "export"])).await;
    assert!(!exported.output.contains("hunter2") && !stderr.contains("hunter2"));
    assert!(
        exported.output.contains("upstreams.two"),
        "{}",
        exported.output
    );
}

async fn until_listed(server: &mut StdioServer, tool: &str, is_wanted: bool) {
    let began = std::time::Instant::now();
    loop {
        let listed = ask(server, "tools/list", json!({})).await;
        if names(&listed, "tools", "name").contains(&tool.to_owned()) == is_wanted {
            return;
        }
        assert!(began.elapsed() < GENEROUS, "{tool}: {}", server.stderr());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn twenty_of_fifty_upstreams_that_do_not_answer_delay_nothing() {
    // One server is thirty of them.
    let port = free_port();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = free_port();
    let mut upstreams = json!({});
    for (kind, count, port) in [
        ("live", 30, port),
        ("silent", 10, silent.local_addr().unwrap().port()),
        ("dead", 10, nowhere),
    ] {
        for at in 0..count {
            let url = format!("http://127.0.0.1:{port}/mcp?{at}");
            upstreams[format!("{kind}{at}")] = json!({ "url": url });
        }
    }
    let site = site(upstreams, json!({"gateway": {"first_start_seconds": 1}}));
    site.write("up/.keep", "");
    let mut upstream = serve(&site, port);
    wait_until("the upstream answers", GENEROUS, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    for at in 0..30 {
        until_listed(&mut server, &format!("mcp_live{at}_append"), true).await;
    }
    // Far from the minute that connecting may take, whatever the machine does besides.
    for _ in 0..20 {
        let began = std::time::Instant::now();
        let listed = ask(&mut server, "tools/list", json!({})).await;
        let listed = names(&listed, "tools", "name");
        assert_eq!(listed.len(), 30, "{listed:?} {}", server.stderr());
        let mark = call("mcp_live29_append", json!({"mark": "a"}));
        let answer = ask(&mut server, "tools/call", mark).await;
        assert_eq!(text(&answer), "a", "{answer} {}", server.stderr());
        let took = began.elapsed();
        assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    }
    upstream.kill().unwrap();
    upstream.wait().unwrap();
}

#[tokio::test]
async fn twenty_clients_of_a_shared_upstream_make_one_child() {
    let site = with_child(json!({}));
    let mut server = site.http().await;
    let address = server.address();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..20 {
        clients.spawn(async move {
            let connection = HttpConnection::connect(address).await.unwrap();
            let params = call("mcp_up_pid", json!({}));
            let message =
                json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let request = HttpRequest::post("/mcp", message.to_string());
            let request = request.header("X-MCP-Client-ID", &format!("client-{client}"));
            exchange(connection, &request).await.unwrap().0
        });
    }
    let children = site.read("up/started");
    assert_eq!(children.lines().count(), 1);
    while let Some(answer) = clients.join_next().await {
        let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
        assert_eq!(text(&answer["result"]), children.trim(), "{answer}");
    }
    assert_eq!(site.read("up/started"), children);
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let mut principals: Vec<_> = site
        .calls()
        .into_iter()
        .map(|it| it.started.principal)
        .collect();
    principals.sort();
    principals.dedup();
    assert_eq!(principals.len(), 20);
}

/// Of one client: sessions of legacy revisions have a child each, requests without a session share one.
#[tokio::test]
async fn each_session_has_a_child_of_its_own_where_that_is_wanted() {
    let mut upstream = child("up");
    upstream["isolation"] = json!("per-session");
    let site = site(json!({ "up": upstream }), json!({}));
    site.write("up/.keep", "");
    let server = site.http().await;
    let mut pids = Vec::new();
    let call = json!({"name": "mcp_up_pid", "arguments": {}});
    for version in ["2025-11-25", "2025-03-26"] {
        let mut client = server.client();
        client.initialize(version).await;
        let mut again = Vec::new();
        for _ in 0..2 {
            let answer = client.post_legacy("tools/call", call.clone()).await;
            again.push(text(answer.result()).to_owned());
        }
        assert_eq!(again[0], again[1]);
        pids.push(again.remove(0));
    }
    for _ in 0..2 {
        let answer = server
            .client()
            .post_modern("tools/call", call.clone())
            .await;
        pids.push(text(answer.result()).to_owned());
    }
    assert!(pids[0] != pids[1] && pids[1] != pids[2], "{pids:?}");
    assert_eq!(pids[2], pids[3]);
}

#[tokio::test]
async fn an_upstream_over_websocket_is_called_and_found_again_after_its_restart() {
    let shop = Site::new(json!({"http": {"websocket": {"enabled": true}}}));
    let mut listening = shop.http().await;
    let address = listening.address();
    let site = site(
        json!({"shop": {"url": format!("ws://{address}/mcp/ws")}}),
        json!({}),
    );
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let called = call("mcp_shop_echo", json!({"text": "hi"}));
    let answer = ask(&mut server, "tools/call", called.clone()).await;
    assert_eq!(answer["isError"], Value::Null, "{answer}");
    listening.process().signal("KILL").await;
    listening.wait_exit(GENEROUS).await;
    let away = ask(&mut server, "tools/call", called.clone()).await;
    assert_eq!(away["isError"], true, "{away}");
    let port = address.port().to_string();
    let _listening = shop
        .http_by(&["start", "--transport", "http", "--port", &port])
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let answer = ask(&mut server, "tools/call", called).await;
    assert_eq!(answer["isError"], Value::Null, "{answer}");
    let outcomes = site.outcomes("mcp_shop_echo");
    assert!(
        outcomes[0] == "succeeded" && outcomes[2] == "succeeded" && outcomes.len() == 3,
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn no_child_outlives_a_killed_gateway_or_sees_its_environment() {
    let site = with_child(json!({}));
    let mut command = site.command(&["start"]);
    command.env("CANARY", "sings");
    let mut server = StdioServer::spawn(command);
    server.open("2025-06-18").await;
    let environment = ask(&mut server, "tools/call", call("mcp_up_env", json!({}))).await;
    assert!(!text(&environment).contains("sings"));
    let child = site.read("up/started").trim().to_owned();
    assert!(is_alive(&child));
    server.process().signal("KILL").await;
    wait_until("the child has ended", GENEROUS, || !is_alive(&child)).await;
}

#[tokio::test]
async fn mistakes_in_the_configuration_of_upstreams_are_told_with_place_and_cure() {
    let rows = [
        (json!({"a": {}}), "neither `command` nor `url`"),
        (
            json!({"a": {"command": "x", "url": "https://h"}}),
            "both `command` and `url`",
        ),
        (json!({"a": {"url": "ftp://h"}}), "must begin with http"),
        (
            json!({"a": {"url": "https://h:99999/mcp"}}),
            "`upstreams.a.url` cannot be used: its port",
        ),
        (
            json!({"a": {"url": "https://u:p@h/mcp"}}),
            "`upstreams.a.url` cannot be used: it has a user or a password",
        ),
        (
            json!({"a": {"command": "x", "headers": {"a": "b"}}}),
            "of no use with `command`",
        ),
        (json!({"a": {"command": "x", "comand": "y"}}), "comand"),
        (
            json!({
                "a": {"command": "x", "uris": "as-is"},
                "b": {"command": "x", "uris": "as-is"},
            }),
            "`upstreams.a` has that already",
        ),
        (json!({"a b": {"command": "x"}}), "no name for an upstream"),
        (
            json!({"a": {"command": "x", "env": {"K": "${valt:KEY}"}, "comand": "y"}}),
            "did you mean `vault`?",
        ),
    ];
    for (upstreams, expected) in rows {
        let site = site(upstreams, json!({}));
        let said = run(site.command(&["config", "validate"])).await;
        assert_ne!(said.code, Some(0), "{expected}");
        let told = said.output + &said.messages;
        assert!(told.contains(expected), "{expected}: {told}");
    }
}

#[tokio::test]
async fn a_file_of_a_host_is_read_as_it_is_and_its_bad_entries_are_left_out() {
    let site = site(
        json!({}),
        json!({"upstreams_files": ["mcp.json", "absent.json"]}),
    );
    site.write("up/.keep", "");
    let directory = site.path("up");
    let good =
        json!({"command": "python3", "args": [UPSTREAM, "stdio", directory], "disabled": false});
    let file = json!({"mcpServers": {"up": good, "bad": {"type": "pigeon"}}});
    site.write("mcp.json", format!("// of the editor\n{file}"));
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    let answer = ask(
        &mut server,
        "tools/call",
        call("mcp_up_echo", json!({"text": "hi"})),
    )
    .await;
    assert_eq!(text(&answer), "hi");
    let stderr = server.stderr();
    assert!(
        stderr.contains("`bad` is left out") && stderr.contains("absent.json"),
        "{stderr}"
    );
    // While it cannot be read, its servers stay, also when the rules change.
    site.write("mcp.json", "{");
    let rules = site.read("mcp-server.yaml");
    site.write("mcp-server.yaml", rules.replace("1000000", "1000001"));
    let changed = || server.stderr().contains("the rules have changed");
    wait_until("the rules change", GENEROUS, changed).await;
    assert!(server.stderr().contains("a host's file cannot be read"));
    let again = call("mcp_up_echo", json!({"text": "again"}));
    let answer = ask(&mut server, "tools/call", again).await;
    assert_eq!(text(&answer), "again");
    assert!(site.notes().contains(&"policy_rejected".to_owned()));
    // Upstreams of the configuration change all the same, as the record says.
    let changes = |site: &Site| {
        let notes = site.notes();
        notes.iter().filter(|it| *it == "policy_changed").count()
    };
    let before = changes(&site);
    let mut file: Value = serde_json::from_str(&site.read("mcp-server.yaml")).unwrap();
    site.write("other/.keep", "");
    file["mcp_server"]["upstreams"] = json!({"other": child("other")});
    site.write("mcp-server.yaml", file.to_string());
    until_listed(&mut server, "mcp_other_echo", true).await;
    // Once for the setting, and once for the rules that hold for the new tools.
    let both = || changes(&site) == before + 2;
    wait_until("both changes are on record", GENEROUS, both).await;
    let again = ask(
        &mut server,
        "tools/call",
        call("mcp_up_echo", json!({"text": "still"})),
    )
    .await;
    assert_eq!(text(&again), "still");
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// An upstream as a running server tells operators of it.
async fn told_of(server: &HttpServer, name: &str) -> Value {
    let request = HttpRequest::get("/upstreams");
    let request = request.header("authorization", &format!("Bearer {TOKEN}"));
    let told = server.client().exchange(&request).await.json();
    let mut all = told["upstreams"].as_array().unwrap().iter();
    all.find(|it| it["name"] == name).unwrap().clone()
}

fn signal(process: &str, name: &str) {
    let said = std::process::Command::new("kill")
        .args([name, process])
        .status();
    assert!(said.unwrap().success());
}

#[tokio::test]
async fn an_upstream_that_hangs_is_degraded_until_it_answers_again() {
    let mut upstream = child("up");
    upstream["timeout_seconds"] = json!(1);
    let more = json!({"governance": {"approvals": {"http_token": TOKEN}}});
    let site = site(json!({"up": upstream}), more);
    site.write("up/.keep", "");
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    let mut echo = async || {
        let arguments = json!({"text": "hi"});
        let answer = client.request("tools/call", call("mcp_up_echo", arguments));
        answer.await.response
    };
    let process = || site.read("up/started").lines().last().unwrap().to_owned();
    wait_until("the tools are known", GENEROUS, || {
        !site.read("up/started").is_empty()
    })
    .await;
    while !succeeded(&echo().await) {}
    assert_eq!(told_of(&server, "up").await["state"], "ready");

    for recheck in [false, true] {
        signal(&process(), "-STOP");
        let late = echo().await;
        let failure = failure_of(&late);
        assert_eq!(failure["code"], -32004, "{late}");
        // It may be done once it goes on, and is none that may be done twice.
        assert_eq!(
            (&failure["data"]["retryable"], &failure["data"]["outcome"]),
            (&json!(false), &json!("unknown")),
            "{late}"
        );
        let told = told_of(&server, "up").await;
        assert_eq!(told["state"], "degraded", "{told}");
        let reason = told["reason"].as_str().unwrap();
        assert!(reason.contains("has said nothing for 1 s"), "{reason}");
        let cure = told["cure"].as_str().unwrap();
        assert!(cure.contains("upstreams.up.timeout_seconds"), "{cure}");
        signal(&process(), "-CONT");
        if recheck {
            let path = "/upstreams/up?action=recheck";
            let request = HttpRequest::post(path, "");
            let request = request.header("authorization", &format!("Bearer {TOKEN}"));
            let done = server.client().exchange(&request).await;
            assert_eq!(done.status, 200, "{}", done.text());
        } else {
            assert!(succeeded(&echo().await));
        }
        let told = told_of(&server, "up").await;
        assert_eq!(
            (&told["state"], &told["error"]),
            (&json!("ready"), &Value::Null),
            "{told}"
        );
    }

    // One that answers others is well, however long a tool of it takes.
    let mut other = server.client();
    other.open(MODERN).await;
    let arguments = json!({"n": 3});
    let slow = other.request("tools/call", call("mcp_up_slow", arguments));
    let echoes = async {
        wait_until("the slow one has begun", GENEROUS, || {
            !site.read("up/begun").is_empty()
        })
        .await;
        assert!(succeeded(&echo().await));
    };
    let (late, ()) = tokio::join!(slow, echoes);
    assert_eq!(failure_of(&late.response)["code"], -32004);
    assert_eq!(told_of(&server, "up").await["state"], "ready");
}

#[tokio::test]
async fn an_answer_with_the_number_of_its_request_in_another_form_is_its_answer() {
    let site = with_child(json!({}));
    site.write("up/float_ids", "");
    let mut server = site.stdio();
    for version in ["2025-06-18"] {
        server.open(version).await;
        let arguments = json!({"text": "hi"});
        let answer = ask(&mut server, "tools/call", call("mcp_up_echo", arguments)).await;
        assert_eq!(text(&answer), "hi");
    }
}

#[tokio::test]
async fn names_of_many_upstreams_are_stored_at_once() {
    let names: Vec<String> = (0..5).map(|it| format!("up{it}")).collect();
    let upstreams = names.iter().map(|it| (it.clone(), child(it)));
    let upstreams: serde_json::Map<_, _> = upstreams.collect();
    let site = site(Value::Object(upstreams), json!({}));
    for name in &names {
        site.write(&format!("{name}/.keep"), "");
    }
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    for name in &names {
        until_listed(&mut server, &format!("mcp_{name}_echo"), true).await;
    }
    drop(server);
    // Their lists are known now, and their names are not. Each attempt to store them fails, and is told.
    let stored = site.path("upstreams");
    std::fs::remove_file(stored.join("names.json")).unwrap();
    for path in ["names.json/x", "names.json.damaged/x"] {
        std::fs::create_dir_all(stored.join(path)).unwrap();
    }
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    for name in &names {
        until_listed(&mut server, &format!("mcp_{name}_echo"), true).await;
    }
    let log = server.stderr();
    let failed = log
        .lines()
        .filter(|it| it.contains("cannot be stored") && it.contains("names.json"));
    // Names of tools, and names of prompts.
    let count = failed.count();
    assert!((1..=2).contains(&count), "{count}: {log}");
}

#[tokio::test]
async fn a_busy_upstream_is_not_asked_before_it_wants_to_be() {
    for (method, seconds) in [("tools/list", 2), ("initialize", 3)] {
        let site = site(
            json!({}),
            json!({"governance": {"approvals": {"http_token": TOKEN}}}),
        );
        let (_remote, url) = with_login(&site).await;
        std::fs::remove_file(site.path("remote/login")).unwrap();
        site.write("remote/busy", format!("{method} {seconds}"));
        let mut file: Value = serde_json::from_str(&site.read("mcp-server.yaml")).unwrap();
        file["mcp_server"]["upstreams"] = json!({"shop": {"url": url}});
        site.write("mcp-server.yaml", file.to_string());
        let server = site.http().await;
        let mut client = server.client();
        client.open(MODERN).await;
        // Calls do not lead to it either, and are told when to come back.
        let times = || -> Vec<f64> {
            let asked = site.read("remote/busy_asked");
            asked.lines().map(|it| it.parse().unwrap()).collect()
        };
        let mut echo = async || {
            let answer = client.request("tools/call", call("mcp_shop_echo", json!({"text": "hi"})));
            answer.await.response
        };
        let end = std::time::Instant::now() + GENEROUS;
        while times().len() < 3 {
            assert!(std::time::Instant::now() < end, "{method}: {:?}", times());
            let refused = echo().await;
            assert!(!succeeded(&refused), "{method}: {refused}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let told = told_of(&server, "shop").await;
        assert_eq!(told["state"], "degraded", "{told}");
        let reason = told["reason"].as_str().unwrap();
        assert!(
            reason.contains(&format!("Retry-After: {seconds}")),
            "{reason}"
        );
        for pair in times().windows(2) {
            let pause = pair[1] - pair[0];
            assert!(f64::from(seconds) - 0.1 <= pause, "{method}: {pause}");
        }
        // By itself, once it is well.
        std::fs::remove_file(site.path("remote/busy")).unwrap();
        let end = std::time::Instant::now() + GENEROUS;
        while !succeeded(&echo().await) {
            assert!(std::time::Instant::now() < end, "{method}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(told_of(&server, "shop").await["state"], "ready", "{method}");
    }
}
