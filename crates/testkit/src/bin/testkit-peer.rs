//! A server that the testkit tries itself on: it answers as its arguments say, right or wrong.
//!
//! `testkit-peer stdio` speaks in lines, `testkit-peer http [PORT]` listens. A method that is no
//! method of MCP makes it misbehave: `break/json`, `break/result`, `break/twice`, `break/off`.

use std::{
    io::{BufRead, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
};

use serde_json::{Value, json};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = arguments
        .get(1)
        .map_or(0, |port| port.parse().expect("a port is a number"));
    match arguments.first().map(String::as_str) {
        Some("stdio") => stdio(),
        Some("http") => http(port),
        other => {
            say(&format!("cannot do {other:?}"));
            std::process::exit(3);
        }
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The answers to one message, as text.
fn answers(message: &Value) -> Vec<String> {
    let (id, method) = (
        &message["id"],
        message["method"].as_str().unwrap_or_default(),
    );
    let modern = !message["params"]["_meta"].is_null();
    let answer = |mut result: Value| {
        if modern {
            result["resultType"] = json!("complete");
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("public");
        }
        json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
    };
    if message.get("id").is_none() {
        return Vec::new();
    }
    match method {
        "initialize" => vec![answer(json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {},
            "serverInfo": {"name": "peer", "version": "1"},
        }))],
        "server/discover" => {
            vec![answer(
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}),
            )]
        }
        "ping" => vec![answer(json!({}))],
        "tools/list" => vec![answer(json!({"tools": []}))],
        "tools/call" => {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                                  "params": {"progressToken": 1, "progress": 1}});
            vec![progress.to_string(), answer(json!({"content": []}))]
        }
        "resources/list" => vec![answer(json!({"resources": "none"}))],
        "break/json" => vec!["{\"jsonrpc\"".to_owned()],
        "break/twice" => vec![answer(json!({})), answer(json!({}))],
        _ => vec![
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown"}})
                .to_string(),
        ],
    }
}

fn stdio() {
    say("reading");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("stdin is UTF-8");
        let message: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
        let mut output = std::io::stdout().lock();
        if message["method"] == "break/off" {
            write!(output, "{{").expect("stdout is open");
            break;
        }
        for answer in answers(&message) {
            writeln!(output, "{answer}").expect("stdout is open");
        }
    }
    say("input ended");
}

fn http(port: u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
    let port = listener.local_addr().expect("it is bound").port();
    say(&format!("listening on port {port}"));
    for stream in listener.incoming() {
        std::thread::spawn(move || {
            // A peer that hung up is no concern of this server.
            let _ = serve(stream?);
            std::io::Result::Ok(())
        });
    }
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = std::io::BufReader::new(stream.try_clone()?);
    let (mut line, mut length, mut request) = (String::new(), 0, None);
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap_or(0);
        }
        request.get_or_insert_with(|| line.clone());
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let message: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let answers = answers(&message);
    let get = request.is_some_and(|line| line.starts_with("GET "));
    if get {
        let first = "event: endpoint\ndata: /messages\n\n";
        return write!(
            stream,
            "{}{first}: still here\n\ndata: no message\n\n",
            head("text/event-stream", None)
        );
    }
    if message["method"] == "break/off" {
        return write!(stream, "{}{{", head("application/json", Some(100)));
    }
    match answers.as_slice() {
        [] => write!(stream, "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"),
        [answer] => write!(
            stream,
            "{}{answer}",
            head("application/json", Some(answer.len()))
        ),
        several => {
            write!(stream, "{}", head("text/event-stream", None))?;
            several
                .iter()
                .try_for_each(|answer| write!(stream, "data: {answer}\n\n"))
        }
    }
}

fn head(media_type: &str, length: Option<usize>) -> String {
    let length = length
        .map(|length| format!("content-length: {length}\r\n"))
        .unwrap_or_default();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\nmcp-session-id: s1\r\n{length}\r\n")
}
