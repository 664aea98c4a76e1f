//! Servers over HTTP that misbehave: each ends in a clear error within its deadline.

use crate::support::{
    Asked, LEGACY, LONG, MODERN, Raw, Talk, complete, discovered, initialized, options, text, told,
    until,
};
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use mcp_client::{
    Attempt, Authorize, Bounds, CallOptions, Connection, Dial, Error, HttpTransport, Options,
    Progress, RawJson, Unauthorized, UrlDial,
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

fn patient() -> Options {
    let mut options = options();
    options.bounds.probe_http = Duration::from_secs(1);
    options
}

/// Outcome of connecting, listing and calling: `ok` and the text of the result, or the error with its causes.
async fn outcome(dial: &Dial, options: Options) -> String {
    let started = Instant::now();
    let tried = async {
        let connection = Connection::open(dial, options).await?;
        connection.tools().await?;
        let options = CallOptions {
            progress: Some(Progress::new(|_, _, _| {})),
            ..CallOptions::default()
        };
        let result = connection.call("any", RawJson::EMPTY_OBJECT, &options);
        let content = result.await?.content;
        connection.close().await;
        Ok::<_, Error>(format!("ok {content:?}"))
    };
    let tried = tried.await.unwrap_or_else(|error| told(&error));
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
    assert!(tried.len() < 1500, "an error must be short: {tried}");
    tried
}

/// Runs a script for each case, a few at once, and compares what became of the connection.
async fn all(
    cases: &'static [(&'static str, &'static str)],
    script: impl Fn(&'static str, Asked, Talk) -> BoxFuture<'static, ()> + Copy + Send + Sync + 'static,
) {
    for group in cases.chunks(8) {
        let tried = group.iter().map(|(how, _)| async move {
            let raw = Raw::start(move |asked, talk| script(how, asked, talk)).await;
            let mut options = patient();
            if how.starts_with("list: ") {
                // Fifty pages on a machine under load.
                options.bounds.timeout = LONG;
            }
            outcome(&Dial::url(&raw.url), options).await
        });
        let tried = futures_util::future::join_all(tried).await;
        for ((how, expected), text) in group.iter().zip(tried) {
            assert!(
                text.contains(expected),
                "{how}: {text}\nexpected: {expected}"
            );
        }
    }
}

/// Writes `bytes` again and again until the client has gone.
async fn endlessly(talk: &mut Talk, bytes: &str) {
    let many = bytes.repeat(1 + 65_536 / bytes.len());
    while talk.raw(&many).await {}
}

async fn slowly(talk: &mut Talk, text: &str) {
    for byte in text.bytes() {
        if !talk.raw([byte]).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";

#[tokio::test]
async fn answers_that_are_no_http() {
    fn script(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            match how {
                "closes" => {}
                "silent" => talk.gone().await,
                "slow headers" => slowly(&mut talk, &JSON.repeat(100)).await,
                "another protocol" => {
                    talk.raw("SSH-2.0-OpenSSH_9.2\r\n\r\n").await;
                    talk.gone().await;
                }
                "no headers" => {
                    talk.raw("{\"jsonrpc\":\"2.0\"}\r\n\r\n").await;
                }
                "endless headers" => {
                    talk.raw(JSON).await;
                    endlessly(&mut talk, "x-more: and more\r\n").await;
                }
                "one endless header" => {
                    talk.raw(JSON).await;
                    talk.raw("x-more: ").await;
                    endlessly(&mut talk, "more").await;
                }
                "many headers" => {
                    talk.raw(JSON).await;
                    talk.raw("x-more: 1\r\n".repeat(200) + "\r\n{}").await;
                }
                "bad header" => {
                    talk.raw("HTTP/1.1 200 OK\r\nx\0y: 1\r\n\r\n").await;
                }
                "endless information" => {
                    endlessly(&mut talk, "HTTP/1.1 100 Continue\r\n\r\n").await
                }
                "another protocol is agreed" => {
                    talk.raw("HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")
                        .await;
                    talk.gone().await;
                }
                "two lengths" => {
                    talk.raw(JSON).await;
                    talk.raw("content-length: 2\r\ncontent-length: 3\r\n\r\n{}")
                        .await;
                }
                "no number" => {
                    talk.raw(JSON).await;
                    talk.raw("content-length: -1\r\n\r\n{}").await;
                }
                "an enormous length" => {
                    talk.raw(JSON).await;
                    talk.raw("content-length: 99999999999\r\n\r\n{}").await;
                    talk.gone().await;
                }
                "cut off" => {
                    talk.raw(JSON).await;
                    talk.raw("content-length: 5000\r\n\r\n{\"jsonrpc\":").await;
                }
                "a chunk cut off" => {
                    talk.raw(JSON).await;
                    talk.raw("transfer-encoding: chunked\r\n\r\nff\r\n{\"json")
                        .await;
                }
                "chunks without an end" => {
                    talk.raw(JSON).await;
                    talk.raw("transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")
                        .await;
                }
                "a bad chunk" => {
                    talk.raw(JSON).await;
                    talk.raw("transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n")
                        .await;
                }
                "an endless body" => {
                    talk.raw(JSON).await;
                    talk.raw("connection: close\r\n\r\n").await;
                    endlessly(&mut talk, "  ").await;
                }
                "a slow body" => {
                    talk.raw(JSON).await;
                    talk.raw("connection: close\r\n\r\n").await;
                    slowly(&mut talk, &asked.answer(json!({})).to_string().repeat(10)).await;
                }
                "compressed" => {
                    let body = "\x1f\x08\x00".repeat(100);
                    talk.respond(
                        200,
                        "content-type: application/json\r\ncontent-encoding: gzip\r\n",
                        &body,
                    )
                    .await;
                }
                "trailers" => {
                    talk.raw(JSON).await;
                    talk.raw("transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
                        .await;
                    endlessly(&mut talk, "x-more: and more\r\n").await;
                }
                _ => unreachable!("{how}"),
            }
        })
    }
    all(
        &[
            (
                "closes",
                "the connection broke before the service had answered",
            ),
            ("silent", "`initialize` was not answered within 3s"),
            ("slow headers", "`initialize` was not answered within 3s"),
            ("another protocol", "invalid HTTP version parsed"),
            ("no headers", "invalid HTTP version parsed"),
            ("endless headers", "message head is too large"),
            ("one endless header", "message head is too large"),
            ("many headers", "message head is too large"),
            ("bad header", "invalid HTTP header parsed"),
            ("endless information", "was not answered"),
            ("another protocol is agreed", "HTTP 101"),
            ("two lengths", "invalid content-length parsed"),
            ("no number", "invalid content-length parsed"),
            (
                "an enormous length",
                "the answer has more than 1048576 bytes",
            ),
            ("cut off", "error reading a body"),
            ("a chunk cut off", "error reading a body"),
            ("chunks without an end", "error reading a body"),
            ("a bad chunk", "error reading a body"),
            ("an endless body", "the answer has more than 1048576 bytes"),
            ("a slow body", "`initialize` was not answered within 3s"),
            ("compressed", "its answer is compressed (gzip)"),
            ("trailers", "error reading a body"),
        ],
        script,
    )
    .await;
}

#[tokio::test]
async fn statuses_and_redirections() {
    fn script(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let html = "content-type: text/html\r\n";
            let to = |place: &str| format!("location: {place}\r\n");
            match how {
                "a page" => talk.respond(200, html, "<h1>Welcome</h1>").await,
                "an error page" => {
                    talk.respond(500, html, &"<h1>Sorry</h1>".repeat(9999))
                        .await
                }
                "nothing" => talk.respond(200, "", "").await,
                "a slow complaint" => {
                    talk.raw("HTTP/1.1 502 X\r\nconnection: close\r\n\r\nbad ga")
                        .await;
                    talk.gone().await;
                }
                "taken" => talk.respond(202, "", "").await,
                "no content" => talk.respond(204, "", "").await,
                "an image" => {
                    talk.respond(200, "content-type: image/png\r\n", "\u{89}PNG")
                        .await
                }
                "unauthorized" => talk.respond(401, "www-authenticate: Bearer\r\n", "").await,
                "forbidden" => talk.respond(403, "", "go away").await,
                "refused in JSON-RPC" => {
                    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32006,"message":"a key is needed"}}"#;
                    talk.respond(401, "", body).await
                }
                "refused by OAuth" => {
                    let body = r#"{"error":"invalid_token","error_description":"it is over"}"#;
                    talk.respond(401, "", body).await
                }
                "busy" => {
                    talk.respond(429, "retry-after: 999999\r\n", "too many")
                        .await
                }
                "another host" => talk.respond(307, &to("http://127.0.0.2:1/mcp"), "").await,
                "another port" => talk.respond(308, &to("http://127.0.0.1:1/mcp"), "").await,
                "another scheme" => talk.respond(307, &to("file:///etc/passwd"), "").await,
                "nowhere" => talk.respond(307, "", "").await,
                "a relative place" => talk.respond(307, &to("mcp"), "").await,
                "a relative place found" => match asked.path.as_str() {
                    "/mcp" => talk.respond(307, &to("./a/../b?c=d"), "").await,
                    "/b?c=d" => talk.respond(500, "", "here it is").await,
                    path => unreachable!("{path}"),
                },
                "round and round" => {
                    talk.respond(307, &to(&format!("{}x", asked.path)), "")
                        .await
                }
                "found" => talk.respond(302, &to("http://127.0.0.2:1/mcp"), "").await,
                _ => unreachable!("{how}"),
            }
        })
    }
    all(
        &[
            ("a page", "it sent what is no message: <h1>Welcome</h1>"),
            ("an error page", "HTTP 500: <h1>Sorry</h1>"),
            ("a slow complaint", "HTTP 502: bad ga"),
            ("nothing", "it sent what is no message"),
            ("taken", "answered with HTTP 202 and nothing else"),
            ("no content", "answered with HTTP 204 and nothing else"),
            ("an image", "it sent what is no message"),
            ("unauthorized", "HTTP 401): no key or token was sent"),
            ("forbidden", "HTTP 403): no key or token was sent: go away"),
            (
                "refused in JSON-RPC",
                "HTTP 401): no key or token was sent: a key is needed",
            ),
            (
                "refused by OAuth",
                "HTTP 401): no key or token was sent: it is over",
            ),
            ("busy", "HTTP 429: too many (Retry-After: 999999)"),
            (
                "another host",
                "redirects to cannot be used, since it is on another server: http://127.0.0.2:1/mcp",
            ),
            (
                "another port",
                "redirects to cannot be used, since it is on another server: http://127.0.0.1:1/mcp",
            ),
            (
                "another scheme",
                "redirects to cannot be used, since it is no address: file:///etc/passwd",
            ),
            ("nowhere", "it redirects and names no place"),
            ("a relative place", "`max_redirects` (3)"),
            ("a relative place found", "HTTP 500: here it is"),
            ("round and round", "`max_redirects` (3)"),
            ("found", "HTTP 302: it redirects to http://127.0.0.2:1/mcp"),
        ],
        script,
    )
    .await;
}

#[tokio::test]
async fn answers_to_a_call_that_are_none() {
    fn script(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if asked.what() != "tools/call" {
                return talk.legacy(&asked).await;
            }
            let json = "content-type: application/json\r\n";
            let mut other = asked.answer(text("no"));
            other["id"] = json!(4711);
            let good = asked.answer(text("good"));
            match how {
                "another id" => talk.json(&other).await,
                "a string for an id" => {
                    other["id"] = json!(asked.message["id"].to_string());
                    talk.json(&other).await;
                }
                "two messages" => talk.respond(200, json, &format!("{good}{good}")).await,
                "a mark of UTF-8" => talk.respond(200, json, &format!("\u{feff}{good}")).await,
                "a batch with rubbish" => talk.json(&json!([good, 7])).await,
                "null" => talk.json(&Value::Null).await,
                "deep" => talk.respond(200, json, &"[".repeat(100_000)).await,
                "no text" => {
                    talk.raw(JSON).await;
                    let body = good.to_string().replace("good", "g\u{1}d").into_bytes();
                    let body: Vec<u8> = body
                        .iter()
                        .map(|it| if *it == 1 { 0xff } else { *it })
                        .collect();
                    talk.raw(format!("content-length: {}\r\n\r\n", body.len()))
                        .await;
                    talk.raw(body).await;
                }
                "too much" => talk.json(&asked.answer(text(&"x".repeat(2 << 20)))).await,
                "of another method" => talk.json(&asked.answer(json!({ "tools": [] }))).await,
                "a question instead" => {
                    let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "roots/list" });
                    talk.json(&question).await;
                }
                "an error that is none" => {
                    let body = json!({ "jsonrpc": "2.0", "id": asked.message["id"], "error": 7 });
                    talk.json(&body).await;
                }
                "an endless error" => {
                    talk.json(&asked.error(-32000, &"x".repeat(500_000))).await;
                }
                _ => unreachable!("{how}"),
            }
        })
    }
    all(
        &[
            ("another id", "it answered another request than was sent"),
            ("a string for an id", "ok ["),
            ("two messages", "it sent what is no answer"),
            ("a mark of UTF-8", "ok ["),
            ("a batch with rubbish", "ok ["),
            ("null", "it sent what is no answer"),
            ("deep", "it sent what is no answer"),
            ("no text", "it sent what is no answer"),
            ("too much", "the answer has more than 1048576 bytes"),
            (
                "of another method",
                "the result of `tools/call` does not fit",
            ),
            (
                "a question instead",
                "it answered another request than was sent",
            ),
            ("an error that is none", "it sent what is no answer"),
            ("an endless error", "the server answered: xxx"),
        ],
        script,
    )
    .await;
}

#[tokio::test]
async fn streams_of_events_that_misbehave() {
    fn script(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if asked.what() != "tools/call" {
                return talk.legacy(&asked).await;
            }
            talk.stream().await;
            let good = asked.answer(text("good"));
            let notification = |method: &str, params: Value| {
                format!(
                    "data: {}\n\n",
                    json!({ "jsonrpc": "2.0", "method": method, "params": params })
                )
            };
            match how {
                "nothing" => {}
                "comments" => slowly(&mut talk, &": still here\n\n".repeat(99)).await,
                "silent" => talk.gone().await,
                "one endless line" => endlessly(&mut talk, "data: x").await,
                "an endless event" => endlessly(&mut talk, "data: x\n").await,
                "an endless comment" => {
                    talk.raw(": ").await;
                    endlessly(&mut talk, "x").await;
                }
                "an endless name" => {
                    talk.raw("event: ").await;
                    endlessly(&mut talk, "x").await;
                }
                "rubbish" => endlessly(&mut talk, "data: rubbish\n\n").await,
                "no text" => {
                    talk.raw(b"data: \xff\xfe\n\n").await;
                    talk.event(&good).await;
                }
                "other ids" => {
                    let mut other = good;
                    other["id"] = json!(4711);
                    endlessly(&mut talk, &format!("data: {other}\n\n")).await;
                }
                "twice" => {
                    talk.raw(format!("data: {good}\n\ndata: {good}\n\n")).await;
                }
                "only events of other names" => {
                    endlessly(&mut talk, "event: other\ndata: {}\n\n").await;
                }
                "log messages" => {
                    let log = json!({ "level": "info", "data": "x" });
                    endlessly(&mut talk, &notification("notifications/message", log)).await;
                }
                "progress" => {
                    let token = &asked.message["params"]["_meta"]["progressToken"];
                    let progress = json!({ "progressToken": token, "progress": 1 });
                    endlessly(&mut talk, &notification("notifications/progress", progress)).await;
                }
                "questions" => {
                    let question = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
                    endlessly(&mut talk, &format!("data: {question}\n\n")).await;
                }
                "deep" => {
                    talk.raw(format!("data: {}\n\n", "[".repeat(100_000))).await;
                }
                "the answer in pieces" => {
                    for byte in format!("data: {good}\r\r").bytes() {
                        talk.raw([byte]).await;
                    }
                    talk.gone().await;
                }
                _ => unreachable!("{how}"),
            }
        })
    }
    all(
        &[
            ("nothing", "the stream ended before the answer"),
            ("comments", "`tools/call` was not answered within 3s"),
            ("silent", "`tools/call` was not answered within 3s"),
            ("one endless line", "`max_message` (1048576)"),
            ("an endless event", "`max_message` (1048576)"),
            ("an endless comment", "`max_message` (1048576)"),
            ("an endless name", "`max_message` (1048576)"),
            ("rubbish", "`max_notifications` (1000)"),
            ("no text", "ok ["),
            ("other ids", "`max_unexpected` (1000)"),
            ("twice", "ok ["),
            ("only events of other names", "was not answered"),
            ("log messages", "`max_notifications` (1000)"),
            ("progress", "`max_notifications` (1000)"),
            ("questions", "`max_notifications` (1000)"),
            ("deep", "the stream ended before the answer"),
            ("the answer in pieces", "ok ["),
        ],
        script,
    )
    .await;
}

#[tokio::test]
async fn lists_over_http_that_do_not_end() {
    fn script(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if asked.what() != "tools/list" {
                return talk.modern(&asked).await;
            }
            let id = &asked.message["id"];
            let page = |tools: Vec<Value>, cursor: String| {
                let page = json!({ "tools": tools, "nextCursor": cursor, "ttlMs": 0, "cacheScope": "private" });
                complete(page)
            };
            let tool = |at: usize| json!({ "name": format!("t{id}-{at}"), "inputSchema": { "type": "object" } });
            let page = match how {
                "list: pages" => page(Vec::new(), id.to_string()),
                "list: one page" => page(vec![tool(0)], "again".to_owned()),
                "list: two pages" => {
                    let at = asked.message["params"]["cursor"].as_str() == Some("a");
                    page(Vec::new(), if at { "b" } else { "a" }.to_owned())
                }
                "list: items" => page((0..2000).map(tool).collect(), id.to_string()),
                "list: a long cursor" => page(Vec::new(), format!("{id}{}", "x".repeat(50_000))),
                _ => unreachable!("{how}"),
            };
            talk.json(&asked.answer(page)).await;
        })
    }
    all(
        &[
            ("list: pages", "`max_pages` (50)"),
            ("list: one page", "a page leads to itself"),
            ("list: two pages", "`max_pages` (50)"),
            ("list: items", "`max_items` (10000)"),
            ("list: a long cursor", "`max_pages` (50)"),
        ],
        script,
    )
    .await;
}

#[tokio::test]
async fn the_old_transport_misused() {
    fn script(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if asked.verb == "POST" {
                return match how {
                    "posts refused" => talk.respond(500, "", "").await,
                    "relative" if asked.path == "/mcp?session=1" => talk.respond(500, "", "").await,
                    _ => talk.respond(202, "", "").await,
                };
            }
            let endpoint = |place: &str| format!("event: endpoint\ndata: {place}\n\n");
            talk.stream().await;
            match how {
                "no place" => talk.gone().await,
                "ends" => {}
                "another host" => {
                    talk.raw(endpoint("http://127.0.0.2:1/post")).await;
                    talk.gone().await;
                }
                "a password" => {
                    let place = format!("http://a:b@{}/post", asked.header("host"));
                    talk.raw(endpoint(&place)).await;
                    talk.gone().await;
                }
                "relative" => {
                    talk.raw(endpoint("?session=1")).await;
                    talk.gone().await;
                }
                "another scheme" => {
                    talk.raw(endpoint("javascript:alert(1)")).await;
                    talk.gone().await;
                }
                "an endless place" => {
                    talk.raw("event: endpoint\ndata: ").await;
                    endlessly(&mut talk, "/").await;
                }
                "posts refused" | "never answers" => {
                    talk.raw(endpoint("/post")).await;
                    talk.gone().await;
                }
                "ends in between" => {
                    talk.raw(endpoint("/post")).await;
                }
                "rubbish" => {
                    talk.raw(endpoint("/post")).await;
                    endlessly(&mut talk, "data: rubbish\n\n").await;
                }
                _ => unreachable!("{how}"),
            }
        })
    }
    for (how, expected) in [
        ("no place", "the stream has not named a place to post to"),
        (
            "ends",
            "the stream ended before it named a place to post to",
        ),
        (
            "another host",
            "the place to post to cannot be used, since it is on another server: http://127.0.0.2:1/post",
        ),
        (
            "another scheme",
            "the place to post to cannot be used, since it is no address: javascript",
        ),
        (
            "a password",
            "cannot be used, since it has a user or a password before the host",
        ),
        (
            "relative",
            "a message could not be posted: it answered with HTTP 500",
        ),
        ("an endless place", "`max_message`"),
        (
            "posts refused",
            "a message could not be posted: it answered with HTTP 500",
        ),
        ("never answers", "`initialize` was not answered"),
        ("ends in between", "the stream has ended"),
        ("rubbish", "`max_rubbish`"),
    ] {
        let raw = Raw::start(move |asked, talk| script(how, asked, talk)).await;
        let mut dial = UrlDial::new(&raw.url);
        dial.transport = HttpTransport::Sse;
        let mut options = patient();
        options.bounds.timeout = Duration::from_secs(1);
        options.bounds.probe = Duration::from_millis(300);
        let text = outcome(&Dial::Url(dial), options).await;
        assert!(text.contains(expected), "{how}: {text}");
    }
}

#[tokio::test]
async fn a_server_found_to_have_the_old_transport_is_told_of_by_what_it_did_there() {
    fn script(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            match (asked.verb.as_str(), how) {
                ("POST", _) => talk.respond(405, "", "post nothing").await,
                (_, "refused") => talk.respond(404, "", "").await,
                (_, "ends") => talk.stream().await,
                _ => {
                    talk.stream().await;
                    talk.raw("event: endpoint\ndata: http://127.0.0.2:1/x\n\n")
                        .await;
                    talk.gone().await;
                }
            }
        })
    }
    for (how, expected) in [
        (
            "refused",
            "HTTP 405: post nothing; HTTP+SSE is refused, too (HTTP 404)",
        ),
        (
            "ends",
            "the stream ended before it named a place to post to",
        ),
        ("another host", "it is on another server"),
    ] {
        let raw = Raw::start(move |asked, talk| script(how, asked, talk)).await;
        let text = outcome(&Dial::url(&raw.url), patient()).await;
        assert!(text.contains(expected), "{how}: {text}");
    }
}

#[tokio::test]
async fn a_late_answer_disturbs_nothing() {
    let raw = Raw::start(|asked, mut talk| {
        Box::pin(async move {
            let is_late = asked.message["params"]["name"] == "late";
            if is_late {
                talk.stream().await;
                tokio::time::sleep(Duration::from_millis(600)).await;
                talk.event(&asked.answer(text("late"))).await;
                return;
            }
            talk.legacy(&asked).await;
        })
    })
    .await;
    let connection = Connection::open(&Dial::url(&raw.url), patient())
        .await
        .unwrap();
    let hurried = CallOptions {
        timeout: Some(Duration::from_millis(200)),
        ..CallOptions::default()
    };
    let late = connection.call("late", RawJson::EMPTY_OBJECT, &hurried);
    let error = late.await.unwrap_err().to_string();
    assert_eq!(error, "`tools/call` was not answered within 200ms");
    raw.wait("notifications/cancelled", 1).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    let unhurried = CallOptions::default();
    let next = connection.call("next", RawJson::EMPTY_OBJECT, &unhurried);
    assert!(format!("{:?}", next.await.unwrap()).contains("ok"));
    assert_eq!(connection.requests_under_way(), 0);
}

#[tokio::test]
async fn a_modern_call_that_is_dropped_hangs_up() {
    let raw = Raw::start(|asked, mut talk| {
        Box::pin(async move {
            match asked.what() {
                "tools/call" => {
                    talk.stream().await;
                    talk.gone().await;
                }
                _ => talk.modern(&asked).await,
            }
        })
    })
    .await;
    let connection = Connection::open(&Dial::url(&raw.url), patient())
        .await
        .unwrap();
    let options = CallOptions::default();
    let call = connection.call("any", RawJson::EMPTY_OBJECT, &options);
    let dropped = tokio::time::timeout(Duration::from_millis(500), call).await;
    assert!(dropped.is_err());
    raw.wait("tools/call", 1).await;
    until("the server sees it", || {
        raw.open.load(Ordering::SeqCst) == 0
    })
    .await;
    assert_eq!(raw.count("notifications/cancelled"), 0);
    assert_eq!(connection.requests_under_way(), 0);
}

#[tokio::test]
async fn a_call_that_reaches_a_bound_is_cancelled() {
    let raw = Raw::start(|asked, mut talk| {
        Box::pin(async move {
            match asked.what() {
                "tools/call" => {
                    talk.stream().await;
                    endlessly(&mut talk, "data: rubbish\n\n").await;
                }
                _ => talk.legacy(&asked).await,
            }
        })
    })
    .await;
    let connection = Connection::open(&Dial::url(&raw.url), patient())
        .await
        .unwrap();
    let options = CallOptions::default();
    let call = connection.call("any", RawJson::EMPTY_OBJECT, &options);
    assert!(told(&call.await.unwrap_err()).contains("`max_notifications`"));
    raw.wait("notifications/cancelled", 1).await;
    assert_eq!(connection.requests_under_way(), 0);
}

/// Authorization that always thinks that the next try succeeds.
struct Hopeful;

impl Authorize for Hopeful {
    fn attempt(&self) -> Box<dyn Attempt> {
        Box::new(Self)
    }
}

impl Attempt for Hopeful {
    fn authorize<'a>(
        &'a mut self,
        _: &'a Method,
        _: &'a str,
        _: &'a mut HeaderMap,
    ) -> BoxFuture<'a, Result<(), Unauthorized>> {
        Box::pin(async { Ok(()) })
    }

    fn judge<'a>(
        &'a mut self,
        status: StatusCode,
        _: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<bool, Unauthorized>> {
        Box::pin(async move { Ok(status == StatusCode::UNAUTHORIZED) })
    }
}

#[tokio::test]
async fn a_server_that_wants_ever_more_authorization() {
    let raw =
        Raw::start(|_, mut talk| Box::pin(async move { talk.respond(401, "", "").await })).await;
    let mut dial = UrlDial::new(&raw.url);
    dial.authorize = Some(Arc::new(Hopeful));
    let text = outcome(&Dial::Url(dial), patient()).await;
    assert!(text.contains("`max_authorizations` (8)"), "{text}");
    assert_eq!(raw.asked().len(), 9);
}

#[tokio::test]
async fn a_stream_of_changes_that_always_ends_is_not_opened_all_the_time() {
    let raw = Raw::start(|asked, mut talk| {
        Box::pin(async move {
            match asked.what() {
                "GET" => {
                    talk.stream().await;
                    talk.raw("retry: 0\nid: 1\ndata:\n\n").await;
                }
                _ => talk.legacy(&asked).await,
            }
        })
    })
    .await;
    let connection = Connection::open(&Dial::url(&raw.url), patient())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let opened = raw.count("GET");
    assert!((2..8).contains(&opened), "{opened} times");
    drop(connection);
}

#[tokio::test]
async fn a_subscription_tells_of_nothing_that_was_not_asked_for() {
    let raw = Raw::start(|asked, mut talk| {
        Box::pin(async move {
            if asked.what() != "subscriptions/listen" {
                return talk.modern(&asked).await;
            }
            let meta = json!({"io.modelcontextprotocol/subscriptionId": asked.message["id"]});
            let told = |what: &str, mut params: Value| {
                params["_meta"] = meta.clone();
                json!({"jsonrpc": "2.0", "method": format!("notifications/{what}"), "params": params})
            };
            let acknowledged = told(
                "subscriptions/acknowledged",
                json!({"notifications": {"toolsListChanged": true}}),
            );
            talk.stream().await;
            for event in [
                acknowledged.clone(),
                acknowledged,
                told("progress", json!({"progressToken": 1, "progress": 1})),
                told("resources/updated", json!({"uri": "a://b"})),
                told("prompts/list_changed", json!({})),
                told("tools/list_changed", json!({})),
            ] {
                talk.event(&event).await;
            }
            talk.gone().await;
        })
    })
    .await;
    let connection = Connection::open(&Dial::url(&raw.url), patient())
        .await
        .unwrap();
    let filter = mcp_protocol::model::SubscriptionFilter {
        tools_list_changed: true,
        ..Default::default()
    };
    let mut subscription = connection.listen(filter).await.unwrap();
    assert!(subscription.accepted().tools_list_changed);
    assert_eq!(
        subscription.next().await.unwrap(),
        Some(mcp_protocol::model::ServerNotification::ToolsListChanged)
    );
}

#[tokio::test]
async fn a_flood_of_changes_keeps_no_call_from_its_answer() {
    let raw = Raw::start(|asked, mut talk| {
        Box::pin(async move {
            match asked.what() {
                "GET" => {
                    talk.stream().await;
                    let change = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
                    endlessly(&mut talk, &format!("data: {change}\n\n")).await;
                }
                _ => talk.legacy(&asked).await,
            }
        })
    })
    .await;
    let connection = Connection::open(&Dial::url(&raw.url), patient())
        .await
        .unwrap();
    let filter = mcp_protocol::model::SubscriptionFilter {
        tools_list_changed: true,
        ..Default::default()
    };
    let mut subscription = connection.listen(filter).await.unwrap();
    raw.wait("GET", 1).await;
    let options = CallOptions::default();
    let result = connection.call("any", RawJson::EMPTY_OBJECT, &options);
    assert!(format!("{:?}", result.await.unwrap()).contains("ok"));
    until("changes are dropped", || 0 < subscription.dropped()).await;
    assert!(subscription.next().await.unwrap().is_some());
}

#[tokio::test]
async fn another_server_in_the_place_of_this_one_is_spoken_to_as_it_wants() {
    for (before, after, refusal) in [
        (LEGACY, MODERN, (400, -32022)),
        (MODERN, LEGACY, (400, -32600)),
        (MODERN, LEGACY, (404, 0)),
    ] {
        let speaks = Arc::new(Mutex::new(before));
        let spoken = Arc::clone(&speaks);
        let raw = Raw::start(move |asked, mut talk| {
            let now = *spoken.lock().unwrap();
            Box::pin(async move {
                let version = asked.header("mcp-protocol-version");
                let is_other = !matches!(asked.what(), "initialize" | "server/discover")
                    && !version.is_empty()
                    && (version == MODERN) != (now == MODERN);
                let (status, code) = refusal;
                let json = "content-type: application/json\r\n";
                match (is_other, now) {
                    (true, _) if code == 0 => talk.respond(status, "", "").await,
                    (true, _) => {
                        let body = asked.error(code, "no").to_string();
                        talk.respond(status, json, &body).await;
                    }
                    (false, MODERN) if asked.what() == "initialize" => {
                        let body = asked.error(-32022, "no").to_string();
                        talk.respond(400, json, &body).await;
                    }
                    (false, MODERN) => talk.modern(&asked).await,
                    (false, _) => talk.legacy(&asked).await,
                }
            })
        })
        .await;
        let connection = Connection::open(&Dial::url(&raw.url), patient())
            .await
            .unwrap();
        assert_eq!(connection.agreed().version.as_str(), before);
        *speaks.lock().unwrap() = after;
        let calls = (0..5).map(|_| async {
            let options = CallOptions::default();
            connection
                .call("any", RawJson::EMPTY_OBJECT, &options)
                .await
        });
        for result in futures_util::future::join_all(calls).await {
            assert!(format!("{:?}", result.unwrap()).contains("ok"));
        }
        assert_eq!(connection.agreed().version.as_str(), after);
    }
}

#[tokio::test]
async fn a_server_that_refuses_what_it_says_it_speaks_is_asked_once_more() {
    let raw = Raw::start(|asked, mut talk| {
        Box::pin(async move {
            match asked.what() {
                "server/discover" => talk.json(&asked.answer(discovered(MODERN))).await,
                _ => {
                    let body = asked.error(-32022, "no").to_string();
                    talk.respond(400, "content-type: application/json\r\n", &body)
                        .await;
                }
            }
        })
    })
    .await;
    let text = outcome(&Dial::url(&raw.url), patient()).await;
    assert!(text.contains("the server answered: no (-32022)"), "{text}");
    assert_eq!(
        raw.whats(),
        ["server/discover", "tools/list", "server/discover"]
    );
}

#[tokio::test]
async fn a_memory_of_the_server_that_is_wrong_costs_a_probe() {
    use mcp_client::Speak;
    use mcp_protocol::ProtocolVersion;
    for (remembered, speaks) in [
        (ProtocolVersion::V2025_11_25, MODERN),
        (ProtocolVersion::V2026_07_28, LEGACY),
        (ProtocolVersion::V2024_11_05, LEGACY),
    ] {
        for refusal in ["error", "page", "nonsense"] {
            let raw = Raw::start(move |asked, mut talk| {
                Box::pin(async move {
                    match (speaks, asked.what()) {
                        (MODERN, "initialize") => match refusal {
                            "error" => talk.json(&asked.error(-32601, "no")).await,
                            "page" => talk.respond(200, "", "<h1>").await,
                            _ => talk.json(&asked.answer(json!([1]))).await,
                        },
                        (MODERN, _) => talk.modern(&asked).await,
                        (_, "initialize") => {
                            let version = asked.message["params"]["protocolVersion"].as_str();
                            let result = initialized(version.unwrap());
                            talk.json(&asked.answer(result)).await;
                        }
                        _ => talk.legacy(&asked).await,
                    }
                })
            })
            .await;
            let options = Options {
                speak: Speak::Remembered(remembered),
                ..patient()
            };
            let connection = Connection::open(&Dial::url(&raw.url), options).await;
            let version = connection.unwrap().agreed().version;
            let expected = match speaks {
                MODERN => MODERN,
                _ if remembered == ProtocolVersion::V2024_11_05 => "2024-11-05",
                _ => LEGACY,
            };
            assert_eq!(version.as_str(), expected, "{remembered} {refusal}");
        }
    }
}

#[tokio::test]
async fn bounds_on_requests_under_way_are_kept() {
    let raw = Raw::start(|asked, mut talk| {
        Box::pin(async move {
            match asked.what() {
                "tools/call" => talk.gone().await,
                _ => talk.modern(&asked).await,
            }
        })
    })
    .await;
    let mut options = patient();
    options.bounds = Bounds {
        max_open: 3,
        ..options.bounds
    };
    let connection = Connection::open(&Dial::url(&raw.url), options)
        .await
        .unwrap();
    let options = CallOptions {
        timeout: Some(Duration::from_secs(1)),
        ..CallOptions::default()
    };
    let calls = (0..5).map(|_| connection.call("any", RawJson::EMPTY_OBJECT, &options));
    let told: Vec<_> = futures_util::future::join_all(calls).await;
    let told: Vec<_> = told
        .into_iter()
        .map(|it| it.unwrap_err().to_string())
        .collect();
    let refused = told.iter().filter(|it| it.contains("`max_open` (3)"));
    assert_eq!(refused.count(), 2, "{told:?}");
    assert_eq!(connection.requests_under_way(), 0);
}

#[tokio::test]
async fn a_secret_that_a_server_repeats_is_in_no_error() {
    const TOKEN: &str = "tok-5ecret-123456";
    const KEY: &str = "key-5ecret-654321";
    fn script(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let echo = format!(
                "no {} {}",
                asked.header("authorization"),
                asked.header("x-key")
            );
            match (asked.what(), how) {
                ("tools/call", "error") => {
                    let mut error = asked.error(-32000, &echo);
                    error["error"]["data"] = json!({ "said": echo });
                    talk.json(&error).await;
                }
                ("tools/call", "status") => {
                    // The cut of a long text leaves no part of a secret.
                    let echo = format!("{}{echo}", "x".repeat(180));
                    talk.respond(500, "content-type: text/plain\r\n", &echo)
                        .await;
                }
                ("tools/call", "refused") => {
                    talk.respond(401, "content-type: text/plain\r\n", &echo)
                        .await;
                }
                ("tools/call", "stream") => {
                    talk.stream().await;
                    talk.event(
                        &json!({ "jsonrpc": "2.0", "id": asked.message["id"], "error": echo }),
                    )
                    .await;
                }
                ("tools/call", _) => {
                    let location = format!("location: http://{KEY}.example/\r\n");
                    talk.respond(307, &location, "").await;
                }
                _ => talk.modern(&asked).await,
            }
        })
    }
    for (how, expected) in [
        ("error", "no Bearer (secret) (secret)"),
        ("status", "500"),
        (
            "refused",
            "the credentials were refused: no Bearer (secret) (secret)",
        ),
        ("stream", "its answer is no message"),
        ("redirect", "http://(secret).example/"),
    ] {
        let raw = Raw::start(move |asked, talk| script(how, asked, talk)).await;
        let mut dial = UrlDial::new(&raw.url);
        let mut secret = |name: &'static str, value: &str| {
            let mut value = http::HeaderValue::try_from(value).unwrap();
            value.set_sensitive(true);
            dial.headers.insert(name, value);
        };
        secret("authorization", &format!("Bearer {TOKEN}"));
        secret("x-key", KEY);
        let connection = Connection::open(&Dial::Url(dial), patient()).await.unwrap();
        let options = CallOptions::default();
        let called = connection.call("any", RawJson::EMPTY_OBJECT, &options);
        let error = called.await.err().unwrap();
        let said = format!("{} {error:?}", told(&error));
        assert!(said.contains(expected), "{how}: {said}");
        assert!(
            !said.contains("5ecret") && !said.contains("tok-"),
            "{how}: {said}"
        );
    }
}
