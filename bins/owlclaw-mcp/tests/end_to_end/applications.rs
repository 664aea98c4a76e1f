//! Applications that fail, shout, die and dawdle.
#![allow(clippy::print_stdout, reason = "the figures are for whoever runs it")]

use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Conversation, GENEROUS, MODERN, succeeded};
use tokio::time::Instant;

use crate::support::{END, Site, call, call_with_progress, names, outcome, run, text};

/// A site where a call may take a second, and a handler so many after that.
fn impatient(grace: u64) -> Site {
    Site::new(json!({
        "tools": {"default_timeout_seconds": 1}, "workers": {"grace_seconds": grace},
    }))
}

async fn is_served(peer: &mut impl Conversation) {
    let echoed = peer
        .request("tools/call", call("echo", json!({"text": "next"})))
        .await;
    assert_eq!(text(echoed.result()), r#"{"text":"next"}"#);
}

#[tokio::test]
async fn an_application_that_cannot_be_imported_is_shown_to_the_operator() {
    let cases = [
        (
            "import no_such_module\n",
            "No module named 'no_such_module'",
        ),
        ("def f(:\n", "SyntaxError"),
        ("raise ValueError('at home')\n", "ValueError: at home"),
        ("x = 1\n", "no OwlClaw application was found"),
        ("import os\nos._exit(7)\n", "exit status 7"),
    ];
    for (app, expected) in cases {
        let site = Site::with_app(app);
        for words in [
            &["start"][..],
            &["start", "--transport", "http"],
            &["tools", "list"],
        ] {
            let said = run(site.command(words)).await;
            assert_eq!((said.code, said.output.as_str()), (Some(1), ""), "{app}");
            assert!(said.messages.contains(expected), "{app}: {}", said.messages);
        }
        if app.starts_with("raise") {
            let said = run(site.command(&["start"])).await;
            assert!(
                said.messages.contains("app.py\\\", line 1"),
                "{}",
                said.messages
            );
        }
    }
}

#[tokio::test]
async fn a_handler_that_ends_its_process_costs_one_call() {
    for version in ["2025-06-18", "2025-11-25", MODERN] {
        let site = Site::new(json!({}));
        let mut server = site.stdio();
        server.open(version).await;
        let died = server
            .request("tools/call", call("die", json!({"status": 3})))
            .await;
        let error = died.failure();
        assert_eq!(
            (&error["code"], &error["data"]["retryable"]),
            (&json!(-32005), &json!(false)),
            "{version}"
        );
        assert!(
            error["message"].as_str().unwrap().contains("exit status 3"),
            "{error}"
        );
        is_served(&mut server).await;
        let calls = site.calls();
        let died = &calls[0];
        assert_eq!(died.started.capability, "tool/die");
        assert_eq!(died.started.arguments.text, r#"{"status":3}"#);
        let ended = died.ended.as_ref().expect("its end is in the ledger");
        assert_eq!(
            (ended.outcome.as_str(), ended.error_code),
            ("failed", Some(-32005))
        );
        assert!(ended.message.as_ref().unwrap().contains("exit status 3"));
        assert_eq!(site.outcomes("echo"), ["succeeded"]);
    }
}

#[tokio::test]
async fn a_handler_that_raises_says_why_and_shows_its_traceback_to_developers_only() {
    for development in [false, true] {
        let site = Site::new(json!({"development": development}));
        let server = site.http().await;
        let why = call("fail", json!({"why": "the shelf is empty"}));
        for version in ["2024-11-05", "2025-06-18", "2025-11-25", MODERN] {
            let mut client = server.client();
            client.open(version).await;
            let failed = client.request("tools/call", why.clone()).await;
            let result = failed.result();
            assert_eq!(result["isError"], true, "{version}");
            assert_eq!(text(result), "ValueError: the shelf is empty");
            let data = &result["_meta"]["io.owlclaw/error"];
            assert_eq!(data["retryable"], false, "{version}: {data}");
            let traceback = data["traceback"].as_str();
            assert_eq!(traceback.is_some(), development, "{version}: {data}");
            if let Some(traceback) = traceback {
                assert!(traceback.contains("app.py"), "{traceback}");
            } else {
                assert!(
                    !failed.response.to_string().contains("app.py"),
                    "{}",
                    failed.response
                );
            }
            is_served(&mut client).await;
        }
    }
}

#[tokio::test]
async fn results_that_are_no_json_fail_by_themselves() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    for (tool, arguments, expected) in [
        ("unserialisable", json!({}), "no JSON form"),
        ("large", json!({"megabytes": 20}), "too large"),
    ] {
        let failed = server.request("tools/call", call(tool, arguments)).await;
        let failure = failed.failure();
        assert_eq!(failure["code"], -32005, "{tool}");
        let message = failure["message"].as_str().unwrap();
        assert!(message.contains(expected), "{tool}: {message}");
        is_served(&mut server).await;
    }
    let large = server
        .request("tools/call", call("large", json!({"megabytes": 3})))
        .await;
    assert_eq!(text(large.result()).len(), 3 << 20);
    // The ledger keeps the beginning and a digest.
    let calls = site.calls();
    let ended = calls.last().unwrap().ended.as_ref().unwrap();
    assert!(ended.result.text.len() <= 16 * 1024);
    assert!(3 << 20 <= ended.result.cut.unwrap().whole_bytes);
}

#[tokio::test]
async fn a_call_beyond_its_deadline_is_answered_at_once_whatever_it_does() {
    for (tool, arguments) in [
        ("nap", json!({"seconds": 600})),
        ("block", json!({"seconds": 600})),
        ("spin", json!({})),
    ] {
        let site = impatient(1);
        let mut server = site.stdio();
        server.open("2025-11-25").await;
        let since = Instant::now();
        let late = server.request("tools/call", call(tool, arguments)).await;
        let took = since.elapsed();
        let failure = late.failure();
        assert_eq!(
            (&failure["code"], &failure["data"]["retryable"]),
            (&json!(-32004), &json!(false))
        );
        println!("{tool} is answered after {took:?}");
        assert!(Duration::from_millis(990) <= took, "{tool}: {took:?}");
        // A handler that nothing interrupts is killed after its grace, which may cost the next
        // call its own second or its worker; a client that repeats it is served.
        let served = async {
            loop {
                let next = call("echo", json!({"text": "next"}));
                let reply = server.request("tools/call", next).await;
                if succeeded(&reply.response) {
                    break;
                }
                let code = reply.failure()["code"].as_i64().unwrap();
                assert!([-32004, -32005].contains(&code), "{tool}");
            }
        };
        tokio::time::timeout(GENEROUS, served)
            .await
            .expect("the next call is served");
        assert_eq!(site.outcomes(tool), ["timed_out"]);
    }
    // Where it can, Python was told: on the main thread also a handler that waits in the kernel.
    let site = Site::new(json!({
        "tools": {"default_timeout_seconds": 1}, "workers": {"grace_seconds": 60, "threads": 1},
    }));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    for (tool, file, word) in [
        ("nap", "naps", "cancelled"),
        ("block", "blocks", "interrupted"),
    ] {
        // A call may be given up before its handler has begun, and then nobody is told.
        let told = async {
            while !site.read(file).contains(word) {
                server
                    .request("tools/call", call(tool, json!({"seconds": 600})))
                    .await;
            }
        };
        tokio::time::timeout(GENEROUS, told)
            .await
            .expect("it is interrupted");
    }
}

#[tokio::test]
async fn asynchronous_handlers_run_beside_each_other() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    // Neither returns before the other was called.
    for _ in 0..2 {
        let request = server.voice.request("tools/call", call("meet", json!({})));
        server.send(&request).await;
    }
    for answer in server.receive_many(2).await {
        assert_eq!(text(&answer["result"]), "met");
    }
    // A long call holds up neither other calls nor lists.
    let long = server
        .voice
        .request("tools/call", call("nap", json!({"seconds": 600})));
    server.send(&long).await;
    is_served(&mut server).await;
    let listed = server.request("tools/list", Value::Null).await;
    assert!(names(listed.result(), "tools", "name").contains(&"nap".to_owned()));
    assert_eq!(server.waiting(), 1);
}

#[tokio::test]
async fn with_one_thread_synchronous_handlers_run_one_at_a_time() {
    let site = Site::new(json!({"workers": {"threads": 1}}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    for _ in 0..10 {
        let request = server.voice.request("tools/call", call("alone", json!({})));
        server.send(&request).await;
    }
    for answer in server.receive_many(10).await {
        assert_eq!(text(&answer["result"]), "1");
    }
}

/// An application that keeps its state in memory, as it comes: sixteen slow calls run at once, and what one stores
/// the next one finds.
#[tokio::test]
async fn synchronous_handlers_run_at_once_and_share_their_memory() {
    let site = Site::with_app(
        "import time\nfrom owlclaw import OwlClaw\napp = OwlClaw('todo')\napp.mount_skills('skills')\ntodo = []\n\
        @app.handler('add')\ndef add(what: str):\n    time.sleep(0.5)\n    todo.append(what)\n    return len(todo)\n\
        @app.handler('list')\ndef every(): return todo\n",
    );
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    server.request("tools/call", call("list", json!({}))).await;
    let since = Instant::now();
    for number in 0..16 {
        let asked = call("add", json!({"what": format!("task {number}")}));
        let request = server.voice.request("tools/call", asked);
        server.send(&request).await;
    }
    server.receive_many(16).await;
    let took = since.elapsed();
    println!("sixteen calls of half a second took {took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    let listed = server.request("tools/call", call("list", json!({}))).await;
    let todo: Vec<String> = serde_json::from_str(text(listed.result())).unwrap();
    assert_eq!(todo.len(), 16);
}

#[tokio::test]
async fn pictures_and_messages_of_handlers_reach_the_client() {
    let site = Site::with_app(
        "from owlclaw import OwlClaw\nfrom owlclaw_worker import Context, Image\n\
        app = OwlClaw('draws')\napp.mount_skills('skills')\n\
        @app.handler('draw')\ndef draw(what: str, ctx: Context):\n    ctx.warning('drawing ' + what)\n\
        \x20   return [what, Image(data=b'PNG', format='png')]\n\
        @app.handler('count')\ndef count():\n    for number in range(3): yield number\n",
    );
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    let level = json!({"level": "debug"});
    let set = server.request("logging/setLevel", level).await;
    assert_eq!(set.result(), &json!({}));
    let drawn = server
        .request("tools/call", call("draw", json!({"what": "tea"})))
        .await;
    assert_eq!(
        drawn.result()["content"],
        json!([
            {"type": "text", "text": "tea"},
            {"type": "image", "data": "UE5H", "mimeType": "image/png"},
        ])
    );
    let told = &drawn.earlier[0];
    assert_eq!(told["method"], "notifications/message");
    assert_eq!(
        (&told["params"]["level"], &told["params"]["data"]),
        (&json!("warning"), &json!("drawing tea"))
    );
    let counted = server
        .request("tools/call", call_with_progress("count", json!({}), "mine"))
        .await;
    assert_eq!(text(counted.result()), "[0,1,2]");
    assert_eq!(counted.earlier.len(), 3, "{:?}", counted.earlier);
}

#[tokio::test]
async fn progress_reaches_who_asked_for_it_and_nobody_else() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let other = Site::new(json!({}));
    let http = other.http().await;
    check_progress(&mut server).await;
    for version in ["2025-06-18", MODERN] {
        let mut client = http.client();
        client.open(version).await;
        check_progress(&mut client).await;
    }
    server.close_input();
    assert!(server.wait_exit(END).await.success());
}

async fn check_progress(peer: &mut impl Conversation) {
    let asked = call_with_progress("report", json!({"steps": 3}), "mine");
    let reply = peer.request("tools/call", asked).await;
    assert_eq!(text(reply.result()), "done");
    let told: Vec<_> = reply
        .earlier
        .iter()
        .map(|it| {
            assert_eq!(it["method"], "notifications/progress");
            let params = &it["params"];
            assert_eq!(
                (&params["progressToken"], &params["total"]),
                (&json!("mine"), &json!(3.0))
            );
            params["progress"].as_f64().unwrap()
        })
        .collect();
    assert_eq!(told, [1.0, 2.0, 3.0]);
    let reply = peer
        .request("tools/call", call("report", json!({"steps": 3})))
        .await;
    assert_eq!((text(reply.result()), reply.earlier.len()), ("done", 0));
}

#[tokio::test]
async fn a_long_call_reports_by_itself() {
    // R5.8 with one second instead of thirty.
    let site = Site::new(json!({"tools": {"async_threshold_seconds": 1}}));
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    let asked = call_with_progress("nap", json!({"seconds": 1.4}), "long");
    let reply = client.request("tools/call", asked).await;
    assert_eq!(text(reply.result()), "rested");
    assert!(!reply.earlier.is_empty());
    assert_eq!(reply.earlier[0]["params"]["progressToken"], "long");
}

const LIBRARY: &str = r#"
import asyncio, pathlib
from owlclaw import OwlClaw
from owlclaw_worker import Context, PromptError, ResourceError as Told, ToolResult
app = OwlClaw("library")
app.mount_skills("skills")
pathlib.Path("books").mkdir(exist_ok=True)
pathlib.Path("books/emma").write_text("Emma")
pathlib.Path("secret").write_text("TOP")

@app.resource("books://read{?path}")
def book(path: str = "emma"): return pathlib.Path("books", path).read_text()

@app.completion("books://read{?path}", "path")
def paths(value: str): return [str(one) for one in pathlib.Path("books", value).iterdir()]

@app.resource("books://twice/{path}")
async def twice(path: str, ctx: Context):
    return 2 * (await ctx.read_resource("books://read?path=" + path))[0].content

@app.resource("books://itself")
async def itself(ctx: Context): return (await ctx.read_resource("books://itself"))[0].content

@app.prompt
async def praise(ctx: Context) -> str: return "Praise " + (await ctx.read_resource("books://twice/emma"))[0].content

@app.resource("books://slow")
async def slow(): await asyncio.sleep(60)

@app.prompt
async def dawdle() -> str: await asyncio.sleep(60)

@app.resource("books://lent")
def lent(): raise Told("it is lent until Monday")

@app.prompt
def unfit() -> str: raise PromptError("nobody has read it")

@app.resource("books://broken")
def broken(): raise ValueError("the password is hunter2")

class ResourceError(Exception): ...

@app.resource("books://of-others")
def of_others(): raise ResourceError("the password is hunter2")

@app.handler("refuse")
def refuse(): return ToolResult(content="no such book", is_error=True)
"#;

fn library() -> Site {
    let everything = json!({"allow": ["*"]});
    let site = Site::new(json!({
        "governance": {"default": {"resources": everything, "prompts": everything}},
        "tools": {"default_timeout_seconds": 2},
    }));
    site.write("app.py", LIBRARY);
    site
}

fn last_outcome(site: &Site, capability: &str) -> String {
    let calls = site.calls().into_iter().rev();
    let mut calls = calls.filter(|it| it.started.capability == capability);
    outcome(&calls.next().expect("it is on record"))
}

#[tokio::test]
async fn values_of_every_variable_stay_where_a_handler_puts_them() {
    let site = library();
    let mut peer = site.stdio();
    peer.open(MODERN).await;
    let read = async |peer: &mut testkit::StdioServer, uri: &str| {
        peer.request("resources/read", json!({"uri": uri})).await
    };
    let found = read(&mut peer, "books://read?path=emma").await;
    assert_eq!(found.result()["contents"][0]["text"], "Emma");
    let absolute = site.path("secret").display().to_string();
    for path in [
        "../secret",
        "..%2fsecret",
        "%2e%2e/secret",
        "%252e%252e%252fsecret",
        "emma/../../secret",
        "./emma",
        &absolute,
        "emma%00",
    ] {
        let uri = format!("books://read?path={path}");
        assert_eq!(read(&mut peer, &uri).await.code(), -32602, "{uri}");
    }
    for (typed, suggested) in [("", 1), ("..", 0), ("../", 0), ("/", 0), ("%2e%2e/", 0)] {
        let asked = json!({
            "ref": {"type": "ref/resource", "uri": "books://read{?path}"},
            "argument": {"name": "path", "value": typed},
        });
        let answer = peer.request("completion/complete", asked).await;
        let values = &answer.result()["completion"]["values"];
        assert_eq!(values.as_array().map(Vec::len), Some(suggested), "{typed}");
    }
}

#[tokio::test]
async fn resources_and_prompts_read_resources_as_their_caller_may() {
    let site = library();
    let mut peer = site.stdio();
    peer.open(MODERN).await;
    let twice = json!({"uri": "books://twice/emma"});
    let twice = peer.request("resources/read", twice).await;
    assert_eq!(twice.result()["contents"][0]["text"], "EmmaEmma");
    let praise = json!({"name": "praise", "arguments": {}});
    let praise = peer.request("prompts/get", praise).await;
    let said = &praise.result()["messages"][0]["content"]["text"];
    assert_eq!(said, "Praise EmmaEmma");
    // Each read is a call of its own.
    let calls = site.calls().into_iter();
    let inner = calls.filter(|it| it.started.capability == "resource/books://read?path=emma");
    assert_eq!(inner.count(), 2);
    let itself = json!({"uri": "books://itself"});
    let itself = peer.request("resources/read", itself).await;
    assert_eq!(itself.code(), -32602);
    let calls = site.calls().into_iter();
    let nested = calls.filter(|it| it.started.capability == "resource/books://itself");
    assert_eq!(nested.count(), 9);
}

#[tokio::test]
async fn reads_and_prompts_fail_as_tools_do_and_say_what_their_handlers_have_for_clients() {
    let site = library();
    let mut peer = site.stdio();
    peer.open(MODERN).await;
    let read = |name: &str| ("resources/read", json!({"uri": format!("books://{name}")}));
    let prompt = |name: &str| ("prompts/get", json!({"name": name, "arguments": {}}));
    for (method, params) in [read("slow"), prompt("dawdle")] {
        let late = peer.request(method, params).await;
        assert_eq!(late.code(), -32004, "{method}");
        assert_eq!(late.failure()["data"]["retryable"], true, "{method}");
    }
    assert_eq!(last_outcome(&site, "resource/books://slow"), "timed_out");
    assert_eq!(last_outcome(&site, "prompt/dawdle"), "timed_out");
    for ((method, params), expected) in [
        (read("lent"), "it is lent until Monday"),
        (prompt("unfit"), "nobody has read it"),
        (read("broken"), "internal error"),
        (read("of-others"), "internal error"),
    ] {
        let failed = peer.request(method, params).await;
        assert_eq!(failed.code(), -32603, "{expected}");
        let failure = failed.failure().to_string();
        assert_eq!(failed.failure()["message"], expected);
        assert!(!failure.contains("hunter2"), "{failure}");
    }
    let refused = peer.request("tools/call", call("refuse", json!({}))).await;
    assert_eq!(refused.result()["isError"], true);
    assert_eq!(text(refused.result()), "no such book");
    assert_eq!(site.outcomes("refuse"), ["failed"]);
}
