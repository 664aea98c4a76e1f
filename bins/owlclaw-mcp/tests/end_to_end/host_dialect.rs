//! The dialect of founding document 004: its requests are those of MCP in all but their form.

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpClient, HttpRequest, HttpServer, SseStream};

use super::gateway::UPSTREAM;
use crate::support::{END, Site, outcome};

/// A client of the dialect.
struct Peer {
    http: HttpClient,
    name: &'static str,
    session: Option<String>,
}

impl Peer {
    async fn new(server: &HttpServer, name: &'static str) -> Self {
        let mut peer = Self {
            http: server.client(),
            name,
            session: None,
        };
        let created = peer.result("create_session", json!({})).await;
        let session = created["session_id"].as_str().unwrap();
        assert!(session.starts_with("session-"), "{created}");
        peer.session = Some(session.to_owned());
        peer
    }

    /// Posts a body; gives the status and what was answered.
    async fn post(&self, body: &str) -> (u16, Value) {
        let request = HttpRequest::post("/host", body).header("x-mcp-client-id", self.name);
        let answer = self.http.exchange(&request).await;
        let body = match answer.text() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap(),
        };
        (answer.status, body)
    }

    async fn send(&self, mut message: Value) -> Value {
        message["jsonrpc"] = "2.0".into();
        message["id"] = 7.into();
        if let Some(session) = &self.session {
            message["session"] = session.as_str().into();
        }
        let (status, answer) = self.post(&message.to_string()).await;
        assert_eq!((status, &answer["id"]), (200, &json!(7)), "{answer}");
        answer
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        self.send(json!({"method": method, "params": params})).await
    }

    async fn result(&self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    async fn failure(&self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params).await;
        assert!(answer.get("result").is_none(), "{method}: {answer}");
        answer["error"].take()
    }

    async fn code(&self, method: &str, params: Value) -> i64 {
        let failure = self.failure(method, params).await;
        assert!(failure["data"]["category"].is_string(), "{failure}");
        failure["code"].as_i64().unwrap()
    }

    async fn invoke(&self, tool: &str, parameters: Value) -> Value {
        let call = json!({"name": tool, "parameters": parameters});
        self.ask("invoke_tool", call).await
    }

    async fn events(&self) -> SseStream {
        let request = HttpRequest::get("/host/events")
            .header("x-mcp-client-id", self.name)
            .header("x-session-id", self.session.as_deref().unwrap());
        let mut stream = self.http.stream(&request).await;
        stream.wait_comment(0).await;
        stream
    }
}

/// The next notification of one of these methods.
async fn told(stream: &mut SseStream, methods: &[&str]) -> Value {
    loop {
        let event = tokio::time::timeout(GENEROUS, stream.next_event()).await;
        let event = event.unwrap().expect("the stream goes on");
        assert_eq!(event.event.as_deref(), Some("notification"));
        let message: Value = serde_json::from_str(&event.data).unwrap();
        if methods.contains(&message["method"].as_str().unwrap()) {
            return message;
        }
    }
}

fn site(more: Value) -> Site {
    let mut settings = json!({
        "http": {"host_dialect": {"enabled": true}},
        "tasks": {"enabled": true},
        "resources": {
            "files": {"notes": {"path": "notes", "writable": true}, "closed": {"path": "closed"}},
            "search": {"enabled": true},
        },
    });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    let site = Site::new(settings);
    site.write("notes/a.txt", "first words");
    site.write("closed/a.txt", "closed");
    site.write("notes/deep/b.bin", b"\x00\xff");
    site
}

#[tokio::test]
async fn it_is_not_spoken_unless_it_is_wanted() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    for request in [
        HttpRequest::post("/host", "{}"),
        HttpRequest::get("/host/events"),
    ] {
        assert_eq!(server.client().exchange(&request).await.status, 404);
    }
}

#[tokio::test]
async fn what_a_server_has_none_of_is_an_empty_list_and_no_unknown_method() {
    let server = site(json!({"tasks": {"enabled": false}})).http().await;
    let desk = Peer::new(&server, "desk").await;
    let prompts = desk.result("list_prompts", json!({})).await;
    assert_eq!(prompts, json!({"prompts": [], "total": 0}));
    for method in ["get_prompt", "render_prompt", "get_prompt_versions"] {
        assert_eq!(
            desk.code(method, json!({"id": "x"})).await,
            -32602,
            "{method}"
        );
    }
    for method in ["get_tool_status", "cancel_tool"] {
        let task = json!({"task_id": "x"});
        assert_eq!(desk.code(method, task).await, -32303, "{method}");
    }
    let server = site(json!({})).http().await;
    let desk = Peer::new(&server, "desk").await;
    let call = json!({"name": "search_resources", "parameters": {"query": "first"}, "async": true});
    let refused = desk.failure("invoke_tool", call).await;
    assert_eq!(
        (
            &refused["code"],
            &refused["data"]["category"],
            &refused["message"]
        ),
        (
            &json!(-32302),
            &json!("tool"),
            &json!("this tool cannot be called as a task")
        )
    );
}

#[tokio::test]
async fn requests_are_judged_counted_and_recorded_like_those_of_mcp() {
    let site = site(json!({
        "upstreams": {"up": {"command": "python3", "args": [UPSTREAM, "stdio", "up"]}},
        "gateway": {"first_start_seconds": 60},
        "governance": {
            "clients": {"desk": {"tools": {"hide": ["nap"], "deny": ["say"]}}},
            "tools": {"spend": {"max_calls_per_minute": 1}},
        },
    }));
    site.write("up/.keep", "");
    let server = site.http().await;
    let desk = Peer::new(&server, "desk").await;
    let echo = desk.invoke("echo", json!({"text": "é"})).await;
    assert_eq!(echo["result"], json!({"output": {"text": "é"}}));
    let session = desk.session.as_deref().unwrap();
    assert_eq!(
        (&echo["session"], &echo["source"]),
        (&json!(session), &json!("owlclaw"))
    );
    let mut answers = Vec::new();
    for (tool, parameters, code, category) in [
        ("none", json!({}), -32301, "tool"),
        ("nap", json!({"seconds": 0}), -32301, "tool"),
        (
            "say",
            json!({"way": "print", "hexadecimal": ""}),
            -32401,
            "permission",
        ),
        ("echo", json!({"text": 7}), -32302, "tool"),
        ("fail", json!({"why": "rain"}), -32000, "server"),
    ] {
        let answer = desk.invoke(tool, parameters).await;
        let error = &answer["error"];
        assert_eq!(error["code"], code, "{tool}: {error}");
        assert_eq!(error["data"]["category"], category, "{error}");
        answers.push(error.to_string().replace(tool, "TOOL"));
    }
    assert_eq!(answers[0], answers[1], "hidden is unknown");
    let _ = desk.invoke("spend", json!({"usd": "0.1"})).await;
    let limited = desk.invoke("spend", json!({"usd": "0.1"})).await;
    assert_eq!(limited["error"]["code"], -32429, "{limited}");
    assert!(
        limited["error"]["data"]["retry_after"].is_u64(),
        "{limited}"
    );
    // The same client has no more by MCP, since it is the same.
    let calls = site.calls();
    let ours: Vec<_> = calls
        .iter()
        .filter(|it| it.started.session.as_deref() == Some(session))
        .map(|it| (&*it.started.capability, outcome(it)))
        .collect();
    let expected = [
        ("tool/echo", "succeeded"),
        ("tool/none", "denied"),
        ("tool/nap", "denied"),
        ("tool/say", "denied"),
        ("tool/echo", "invalid"),
        ("tool/fail", "failed"),
        ("tool/spend", "succeeded"),
        ("tool/spend", "denied"),
    ];
    let expected = expected.map(|(tool, outcome)| (tool, outcome.to_owned()));
    assert_eq!(ours, expected);
    assert!(calls.iter().all(|it| &*it.started.principal == "desk"));

    // Servers, with what this client may use.
    let found = desk.result("discover_servers", json!({})).await;
    let own = found["servers"]["owlclaw"]["capabilities"]["tools"].to_string();
    assert!(
        own.contains("\"echo\"") && !own.contains("\"nap\""),
        "{own}"
    );
    let needs = json!({"capabilities": ["tools", "prompts"]});
    let found = desk.result("discover_servers", needs).await;
    let ids: Vec<_> = found["servers"].as_object().unwrap().keys().collect();
    assert_eq!(ids, ["up"], "prompts are the upstream's alone");
    let connected = desk
        .result("connect_server", json!({"server_id": "up"}))
        .await;
    assert_eq!(connected["status"], "connected");
    assert_eq!(
        desk.code("connect_server", json!({"server_id": "no"}))
            .await,
        -32602
    );
    let direct = json!({
        "method": "invoke_tool", "target": "up",
        "params": {"name": "echo", "parameters": {"text": "there"}},
    });
    let direct = desk.send(direct).await;
    assert_eq!(direct["result"]["output"], "there", "{direct}");
    assert_eq!(direct["source"], "up");
    let read =
        json!({"method": "read_resource", "target": "up", "params": {"id": "file:///a.txt"}});
    let read = desk.send(read).await;
    assert!(read["result"]["content"].is_string(), "{read}");
    for method in [
        "invoke_tool",
        "list_resources",
        "update_resource",
        "search_resources",
    ] {
        // What an unknown server is asked for is done nowhere.
        let elsewhere = json!({"method": method, "target": "no", "params": {}});
        assert_eq!(
            desk.send(elsewhere).await["error"]["code"],
            -32602,
            "{method}"
        );
    }
    for method in [
        "create_resource",
        "update_resource",
        "delete_resource",
        "watch_resources",
    ] {
        let theirs = json!({"method": method, "target": "up", "params": {"id": "files://w/a.txt"}});
        let refused = desk.send(theirs).await;
        assert_eq!(refused["error"]["code"], -32203, "{method}: {refused}");
    }
    assert_eq!(
        desk.code("register_server", json!({"id": "mine"})).await,
        -32402
    );

    // Sessions are their client's.
    let mut other = Peer::new(&server, "other").await;
    other.session = Some(session.to_owned());
    assert_eq!(other.code("discover_tools", json!({})).await, -32501);
    assert_eq!(
        other
            .code("close_session", json!({"session_id": session}))
            .await,
        -32501
    );
    let info = desk.result("get_session_info", json!({})).await;
    assert_eq!(
        (&info["state"], &info["client_id"]),
        (&json!("active"), &json!("desk"))
    );
    assert_eq!(info["connected_servers"], json!(["up"]));
    for permissions in [
        json!({"servers": [{"id": "up"}]}),
        json!({}),
        json!([]),
        json!(null),
        json!(7),
    ] {
        let params = json!({"permissions": permissions});
        let code = desk.code("create_session", params).await;
        assert_eq!(code, -32602, "{permissions}");
    }
    // A session by the header and another one by the message are no request that can be meant.
    for (header, code) in [("session-other", json!(-32600)), (session, json!(null))] {
        let info =
            json!({"jsonrpc": "2.0", "id": 1, "method": "get_session_info", "session": session});
        let request = HttpRequest::post("/host", info.to_string())
            .header("x-mcp-client-id", "desk")
            .header("x-session-id", header);
        let answer = desk.http.exchange(&request).await;
        let answer: Value = serde_json::from_str(answer.text()).unwrap();
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    let closed = desk
        .result("close_session", json!({"session_id": session}))
        .await;
    assert_eq!(closed["status"], "closed");
    assert_eq!(desk.code("discover_tools", json!({})).await, -32501);

    // Messages that are none, and several.
    assert_eq!(desk.post("{").await.1["error"]["code"], -32700);
    assert_eq!(desk.post("[]").await.1["error"]["code"], -32600);
    let one = json!({"jsonrpc": "2.0", "id": "a", "method": "create_session"});
    let two = json!({"jsonrpc": "2.0", "id": 2, "method": "no_method", "session": session});
    let told = json!({"jsonrpc": "2.0", "method": "create_session"});
    let (_, both) = desk.post(&json!([one, told, two]).to_string()).await;
    let ids: Vec<_> = both
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["id"])
        .collect();
    assert_eq!(ids, [&json!("a"), &json!(2)]);
    assert_eq!(desk.post(&told.to_string()).await, (202, Value::Null));
    let form = HttpRequest::post("/host", "{}").with("content-type", "text/plain");
    assert_eq!(server.client().exchange(&form).await.status, 415);
}

#[tokio::test]
async fn resources_are_read_listed_searched_written_and_watched() {
    let site = site(json!({"governance": {"clients": {"guest": {
        "resources": {"hide": ["files://notes/deep/*"]}, "tools": {"deny": ["resource-*"]},
    }}}}));
    let server = site.http().await;
    let desk = Peer::new(&server, "desk").await;
    let guest = Peer::new(&server, "guest").await;
    const A: &str = "files://notes/a.txt";
    let read = desk.result("read_resource", json!({"id": A})).await;
    assert_eq!(read["content"], "first words");
    assert_eq!(
        (&read["type"], &read["metadata"]["size"]),
        (&json!("file"), &json!(11))
    );
    let without = json!({"id": A, "include_content": false});
    let without = desk.result("read_resource", without).await;
    assert!(without.get("content").is_none(), "{without}");
    let binary = json!({"id": "files://notes/deep/b.bin"});
    let bytes = desk.result("read_resource", binary.clone()).await;
    assert_eq!(
        (&bytes["content"], &bytes["metadata"]["encoding"]),
        (&json!("AP8="), &json!("base64"))
    );
    assert_eq!(guest.code("read_resource", binary).await, -32201);
    assert_eq!(
        desk.code("read_resource", json!({"id": "files://notes/no"}))
            .await,
        -32201
    );
    assert_eq!(
        desk.code("read_resource", json!({"id": A, "misspelt": 1}))
            .await,
        -32602
    );
    let listed = desk
        .result(
            "list_resources",
            json!({"type": "file", "limit": 1, "offset": 1}),
        )
        .await;
    assert_eq!(
        (
            &listed["total"],
            listed["resources"].as_array().unwrap().len()
        ),
        (&json!(3), 1)
    );
    let deep = json!({"path": "files://notes/deep"});
    assert_eq!(
        desk.result("list_resources", deep.clone()).await["total"],
        1
    );
    assert_eq!(guest.result("list_resources", deep).await["total"], 0);

    let mut events = desk.events().await;
    let watch = json!({"path": "/notes", "events": ["created", "updated", "deleted"]});
    let watcher = desk.result("watch_resources", watch).await["watcher_id"].take();
    assert_eq!(
        desk.code("watch_resources", json!({"events": ["eaten"]}))
            .await,
        -32602
    );
    let create = json!({
        "type": "file", "path": "files://notes", "content": "second words",
        "metadata": {"name": "c.txt"},
    });
    assert_eq!(guest.code("create_resource", create.clone()).await, -32401);
    let created = desk.result("create_resource", create.clone()).await;
    const C: &str = "files://notes/c.txt";
    assert_eq!(created["id"], C);
    assert_eq!(site.read("notes/c.txt"), "second words");
    assert_eq!(
        desk.code("create_resource", create).await,
        -32203,
        "it is there"
    );
    for (method, params, code, category) in [
        (
            "update_resource",
            json!({"id": "files://notes/none.txt", "content": "x"}),
            -32201,
            "resource",
        ),
        (
            "update_resource",
            json!({"id": "files://notes/none.txt", "content": "x", "if_match": "0"}),
            -32201,
            "resource",
        ),
        (
            "create_resource",
            json!({"id": "files://none/a.txt", "content": "x"}),
            -32201,
            "resource",
        ),
        (
            "update_resource",
            json!({"id": "files://closed/a.txt", "content": "x"}),
            -32203,
            "resource",
        ),
        (
            "create_resource",
            json!({"id": "files://closed/b.txt", "content": "x"}),
            -32203,
            "resource",
        ),
        ("search_resources", json!({"query": ""}), -32602, "protocol"),
        (
            "search_resources",
            json!({"query": "?!"}),
            -32602,
            "protocol",
        ),
    ] {
        let failure = desk.failure(method, params).await;
        assert_eq!(
            (&failure["code"], &failure["data"]["category"]),
            (&json!(code), &json!(category)),
            "{method}: {failure}"
        );
    }
    let event = told(&mut events, &["resource_changed"]).await;
    let params = &event["params"];
    assert_eq!(
        (&params["event"], &params["resource"]["id"]),
        (&json!("created"), &json!(C))
    );
    assert_eq!(
        (&params["watcher_id"], &event["session"]),
        (&watcher, &json!(desk.session))
    );
    let stale = json!({"id": C, "content": "third", "if_match": "0"});
    assert_eq!(desk.code("update_resource", stale).await, -32000);
    assert_eq!(site.read("notes/c.txt"), "second words");
    let update = json!({"id": C, "content": "third words"});
    let updated = desk.result("update_resource", update).await;
    assert_eq!(updated["id"], C);
    // What is told of the new state is not that of a list from before.
    let state = desk.result("read_resource", json!({"id": C})).await;
    for of in ["size", "modified", "etag"] {
        assert_eq!(updated["metadata"][of], state["metadata"][of], "{of}");
    }
    assert_eq!(updated["metadata"]["size"], "third words".len());
    let event = told(&mut events, &["resource_changed"]).await;
    assert_eq!(event["params"]["event"], "updated", "{event}");
    let renamed = json!({"id": C, "metadata": {"name": "d.txt"}});
    assert_eq!(desk.code("update_resource", renamed).await, -32203);
    // Its user has to confirm it, which the dialect has no word for: an operator does.
    let delete = json!({"id": C});
    let refused = desk.failure("delete_resource", delete).await;
    assert_eq!(
        (&refused["code"], &refused["data"]["reason"]),
        (&json!(-32402), &json!("confirmation"))
    );
    // What does nothing is not asked for, and spelt otherwise it does something.
    let dry = json!({"uri": C, "dryRun": true});
    let dry = desk.invoke("resource-delete", dry).await;
    assert_eq!(
        (
            &dry["result"]["output"]["status"],
            &dry["result"]["output"]["dryRun"]
        ),
        (&json!("deleted"), &json!(true)),
        "{dry}"
    );
    let dry = desk
        .invoke("resource-undo", json!({"uri": C, "dryRun": true}))
        .await;
    assert_eq!(dry["result"]["output"]["dryRun"], true, "{dry}");
    for arguments in [json!({"uri": C, "dryRun": false}), json!({"uri": C})] {
        let wet = desk.invoke("resource-delete", arguments).await;
        assert_eq!(wet["error"]["data"]["reason"], "confirmation", "{wet}");
    }
    assert_eq!(site.read("notes/c.txt"), "third words");
    std::fs::remove_file(site.path("notes/c.txt")).unwrap();
    // That there is something else at the address may be known before the list is.
    let event = loop {
        let event = told(&mut events, &["resource_changed"]).await;
        assert_eq!(event["params"]["resource"]["id"], C);
        if event["params"]["event"] != "updated" {
            break event;
        }
    };
    assert_eq!(event["params"]["event"], "deleted");
    let gone = desk
        .result("unwatch_resources", json!({"watcher_id": watcher}))
        .await;
    assert_eq!(gone["status"], "unwatched");
    assert_eq!(
        desk.code("unwatch_resources", json!({"watcher_id": watcher}))
            .await,
        -32602
    );
    assert_eq!(
        desk.code("set_resource_permissions", json!({"id": A}))
            .await,
        -32203
    );

    let end = std::time::Instant::now() + GENEROUS;
    let found = loop {
        let found = desk
            .result(
                "search_resources",
                json!({"query": "first", "type": "file"}),
            )
            .await;
        if found["total"] == 1 {
            break found;
        }
        assert!(std::time::Instant::now() < end, "{found}");
    };
    let result = &found["results"][0];
    assert_eq!(
        (&result["id"], &result["relevance"]),
        (&json!(A), &json!(1.0))
    );
    assert_eq!(result["highlight"]["content"][0], "**first** words");
    let written: Vec<_> = site.outcomes("resource-write");
    assert_eq!(
        written,
        ["failed", "failed", "failed", "failed", "succeeded"]
    );
    let deleted = site.outcomes("resource-delete");
    assert_eq!(
        deleted,
        ["denied", "succeeded", "denied", "denied"],
        "the second was dry"
    );
}

#[tokio::test]
async fn what_may_be_read_is_watched_whatever_else_is_refused() {
    let site = site(json!({"governance": {"clients": {"desk": {
        "resources": {"deny": ["files://closed/*"]},
    }}}}));
    let server = site.http().await;
    let desk = Peer::new(&server, "desk").await;
    let mut events = desk.events().await;
    const DENIED: &str = "files://closed/a.txt";
    let one = json!({"id": DENIED});
    assert_eq!(desk.code("watch_resources", one.clone()).await, -32401);
    let all = desk
        .result("watch_resources", json!({"type": "file"}))
        .await;
    assert_eq!(all["left_out"], json!([DENIED]), "{all}");
    // A watcher of what is denied alone leaves those of the rest alone.
    assert_eq!(desk.code("watch_resources", one).await, -32401);
    let notes = desk
        .result("watch_resources", json!({"path": "files://notes"}))
        .await;
    assert!(notes.get("left_out").is_none(), "{notes}");
    site.write("closed/a.txt", "of which nothing is told");
    site.write("notes/a.txt", "other words");
    let mut watchers = Vec::new();
    for _ in 0..2 {
        let event = told(&mut events, &["resource_changed"]).await;
        let params = &event["params"];
        assert_eq!(
            (&params["event"], &params["resource"]["id"]),
            (&json!("updated"), &json!("files://notes/a.txt"))
        );
        watchers.push(params["watcher_id"].clone());
    }
    for watcher in [all, notes] {
        assert!(watchers.contains(&watcher["watcher_id"]), "{watchers:?}");
    }
}

#[tokio::test]
async fn tools_run_as_tasks_and_tell_of_their_end_and_prompts_are_rendered() {
    let site = site(json!({"prompts": {"dir": "prompts"}}));
    site.write(
        "prompts/greet/1.0.md",
        "---\ndescription: Greets.\ncategory: mail\ntags: [short]\narguments:\n  - name: who\n    required: true\n---\nHello {{ who }}!\n",
    );
    site.write(
        "prompts/greet/1.1.md",
        "---\ndescription: Greets.\ncategory: mail\ntags: [short]\narguments:\n  - name: who\n    required: true\n---\nDear {{ who }},\n",
    );
    let server = site.http().await;
    let desk = Peer::new(&server, "desk").await;
    let mut events = desk.events().await;
    let begin = json!({"name": "echo", "parameters": {"text": "later"}, "async": true});
    let begun = desk.result("invoke_tool", begin).await;
    assert_eq!(begun["status"], "running");
    let done = told(&mut events, &["tool_completed", "tool_error"]).await;
    assert_eq!(done["method"], "tool_completed", "{done}");
    assert_eq!(
        (&done["params"]["task_id"], &done["params"]["result"]),
        (&begun["task_id"], &json!({"text": "later"}))
    );
    let status = json!({"task_id": begun["task_id"]});
    let ended = desk.result("get_tool_status", status.clone()).await;
    assert_eq!(
        (&ended["status"], &ended["result"]["text"]),
        (&json!("completed"), &json!("later"))
    );
    let again = desk.result("cancel_tool", status.clone()).await;
    assert_eq!(again["message"], "Task already completed or failed");
    let failing = json!({"name": "fail", "parameters": {"why": "rain"}, "async": true});
    let failing = desk.result("invoke_tool", failing).await;
    let failed = told(&mut events, &["tool_completed", "tool_error"]).await;
    assert_eq!(
        (&failed["method"], &failed["params"]["task_id"]),
        (&json!("tool_error"), &failing["task_id"])
    );
    assert_eq!(failed["params"]["error"]["data"]["category"], "server");
    let long = json!({"name": "nap", "parameters": {"seconds": 600}, "async": true});
    let long = desk.result("invoke_tool", long).await;
    let task = json!({"task_id": long["task_id"]});
    assert_eq!(
        desk.result("get_tool_status", task.clone()).await["status"],
        "running"
    );
    let other = Peer::new(&server, "other").await;
    assert_eq!(other.code("get_tool_status", task.clone()).await, -32303);
    assert_eq!(
        desk.result("cancel_tool", task.clone()).await["status"],
        "cancelled"
    );
    assert_eq!(
        desk.result("get_tool_status", task).await["status"],
        "cancelled"
    );

    let listed = desk
        .result(
            "list_prompts",
            json!({"category": "mail", "tags": ["short"]}),
        )
        .await;
    assert_eq!(
        (&listed["total"], &listed["prompts"][0]["version"]),
        (&json!(1), &json!("1.1")),
        "{listed}"
    );
    assert_eq!(
        desk.result("list_prompts", json!({"tags": ["long"]})).await["total"],
        0
    );
    let render = json!({"id": "greet", "parameters": {"who": "Ana"}, "version": "1.0"});
    let rendered = desk.result("render_prompt", render).await;
    assert_eq!(rendered["rendered"].as_str().unwrap().trim(), "Hello Ana!");
    assert_eq!(rendered["version"], "1.0");
    let prompt = desk.result("get_prompt", json!({"id": "greet"})).await;
    assert!(prompt.get("template").is_none(), "{prompt}");
    let versions = desk
        .result("get_prompt_versions", json!({"id": "greet"}))
        .await;
    assert_eq!(versions["current_version"]["version"], "1.1");
    assert_eq!(
        versions["versions"].as_array().unwrap().len(),
        2,
        "{versions}"
    );
    assert_eq!(
        desk.code("get_prompt", json!({"id": "greet", "version": "9"}))
            .await,
        -32602
    );
}

#[tokio::test]
async fn sessions_are_bounded_outlive_a_restart_and_are_told_of_it() {
    let site = site(json!({"http": {"port": 0, "host_dialect": {
        "enabled": true, "max_sessions_per_client": 2, "max_requests_per_minute": 5,
        "state_file": "host.json",
    }}}));
    let mut server = site.http().await;
    let desk = Peer::new(&server, "desk").await;
    let more = Peer::new(&server, "desk").await;
    assert_eq!(more.code("create_session", json!({})).await, -32502);
    for _ in 0..5 {
        let _ = more.result("get_session_info", json!({})).await;
    }
    let refused = more.failure("get_session_info", json!({})).await;
    assert_eq!(
        (&refused["code"], &refused["data"]["category"]),
        (&json!(-32429), &json!("limit"))
    );
    assert!(refused["data"]["retry_after"].is_u64(), "{refused}");
    let _ = desk
        .result("connect_server", json!({"server_id": "owlclaw"}))
        .await;
    let mut first = desk.events().await;
    let mut events = desk.events().await;
    assert_eq!(
        first.next_event().await.map(|it| it.data),
        None,
        "one stream each"
    );
    server.process().signal("TERM").await;
    let soon = told(&mut events, &["prepare_shutdown", "host_shutdown"]).await;
    assert_eq!(
        (&soon["method"], &soon["params"]["timeout"]),
        (&json!("prepare_shutdown"), &json!(60))
    );
    let now = told(&mut events, &["prepare_shutdown", "host_shutdown"]).await;
    assert_eq!(
        (&now["method"], &now["params"]["reason"]),
        (&json!("host_shutdown"), &json!("normal_shutdown"))
    );
    assert_eq!(events.next_event().await.map(|it| it.data), None);
    assert_eq!(server.wait_exit(END).await.code(), Some(0));

    let stored: Value = serde_json::from_str(&site.read("host.json")).unwrap();
    let session = &stored["sessions"][desk.session.as_deref().unwrap()];
    assert_eq!(
        (&session["client_id"], &session["connected_servers"]),
        (&json!("desk"), &json!(["owlclaw"]))
    );
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(site.path("host.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let server = site.http().await;
    let back = Peer {
        http: server.client(),
        name: "desk",
        session: desk.session.clone(),
    };
    let info = back.result("get_session_info", json!({})).await;
    assert_eq!(info["connected_servers"], json!(["owlclaw"]));
    assert_eq!(info["created_at"], session["created_at"]);
    let echo = back.invoke("echo", json!({"text": "again"})).await;
    assert_eq!(echo["result"]["output"]["text"], "again");
    let thief = Peer {
        http: server.client(),
        name: "thief",
        session: desk.session.clone(),
    };
    assert_eq!(thief.code("get_session_info", json!({})).await, -32501);
    drop(server);
    site.write("host.json", "{broken");
    let said = crate::support::run(site.command(&["start", "--transport", "http"])).await;
    assert_ne!(said.code, Some(0));
    assert!(
        said.messages.contains("http.host_dialect.state_file"),
        "{}",
        said.messages
    );
}

#[tokio::test]
async fn permission_records_are_rules_for_the_dialect_and_for_mcp() {
    let site = site(json!({"governance": {"permission_records": {"desk": "desk.json"}}}));
    site.write(
        "desk.json",
        r#"{"servers": [{"id": "owlclaw", "tool": []}]}"#,
    );
    let start = || crate::support::run(site.command(&["start", "--transport", "http"]));
    let said = start().await;
    assert_ne!(said.code, Some(0));
    assert!(
        said.messages.contains("desk.json") && said.messages.contains("line 1 column"),
        "{}",
        said.messages
    );
    let record = json!({"session_id": "session-1", "permissions": [{
        "server": "owlclaw",
        "resources": [
            {"type": "file", "path": "/notes", "operations": ["read", "list"]},
            {"type": "file", "path": "/notes/deep", "operations": ["write"]},
        ],
        "tools": [{"name": "echo", "operations": ["invoke"]}],
    }]});
    site.write("desk.json", record.to_string());
    let server = site.http().await;
    let desk = Peer::new(&server, "desk").await;
    let tools = desk.result("discover_tools", json!({})).await;
    let tools = crate::support::names(&tools, "tools", "name");
    assert_eq!(tools, ["echo", "resource-create", "resource-write"]);
    let echo = desk.invoke("echo", json!({"text": "a"})).await;
    assert_eq!(echo["result"]["output"]["text"], "a", "{echo}");
    let refused = desk.invoke("append", json!({"mark": "a"})).await;
    assert_eq!(
        refused["error"]["code"], -32301,
        "what is not permitted does not exist: {refused}"
    );
    assert_eq!(site.read("executed"), "");
    let create = |path: &str| json!({"id": format!("files://notes/{path}"), "content": "x"});
    assert_eq!(desk.code("create_resource", create("c.txt")).await, -32401);
    let created = desk.result("create_resource", create("deep/c.txt")).await;
    assert_eq!(created["id"], "files://notes/deep/c.txt");
    assert_eq!(site.read("notes/c.txt"), "");
    assert_eq!(site.read("notes/deep/c.txt"), "x");
    let delete = json!({"id": "files://notes/deep/c.txt"});
    assert_eq!(desk.code("delete_resource", delete).await, -32203);
    let mut client = server.client().with_header("x-mcp-client-id", "desk");
    client.open(testkit::MODERN).await;
    let refused = client
        .request(
            "tools/call",
            crate::support::call("append", json!({"mark": "a"})),
        )
        .await;
    assert_eq!(refused.failure()["data"]["code"], -32001, "{refused:?}");
    let other = Peer::new(&server, "other").await;
    let done = other.invoke("append", json!({"mark": "a"})).await;
    assert!(done.get("error").is_none(), "{done}");
}
