//! Refused requests: how early they are refused, and in which words.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Running, start, start_with};
use http::{Method, StatusCode, request::Parts};
use mcp_service::Principal;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use testkit::{HttpRequest, HttpResponse, MODERN};
use transport_http::{
    Authenticate, Authentication, HttpLimits, HttpOptions, Peer, PlainResponse, SideBody,
    SideRequest, SideResponse, SideRoutes, refusal, side,
};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn ping() -> HttpRequest {
    HttpRequest::post("/mcp", PING)
}

/// Refused, as JSON-RPC says it and without an id.
fn assert_refused(response: &HttpResponse, status: u16, code: i64) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.media_type(), Some("application/json"));
    let body = response.json();
    assert_eq!(body["error"]["code"], code, "{body}");
    assert_eq!(body["jsonrpc"], "2.0");
    assert_eq!(body["error"]["data"]["retryable"], false, "{body}");
    assert!(body.get("id").is_none(), "{body}");
}

async fn exchange(running: &Running, request: &HttpRequest) -> HttpResponse {
    running.client.exchange(request).await
}

#[tokio::test]
async fn pages_of_strangers_are_refused() {
    let running = start(HttpOptions::default()).await;
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("host", "evil.example"),
    ] {
        for method in ["POST", "GET", "DELETE", "OPTIONS"] {
            let mut request = HttpRequest::new(method, "/mcp").with(name, value);
            if method == "POST" {
                request = ping().with(name, value);
            }
            let response = exchange(&running, &request).await;
            assert_refused(&response, 403, -32600);
            assert!(response.header("access-control-allow-origin").is_none());
        }
    }
    let side = HttpRequest::get("/health").with("origin", "https://evil.example");
    assert_refused(&exchange(&running, &side).await, 403, -32600);
    let friend = ping().with("origin", "http://localhost:3000");
    let response = exchange(&running, &friend).await;
    assert_eq!(response.status, 200);
    assert_eq!(
        response.header("access-control-allow-origin"),
        Some("http://localhost:3000")
    );
    let exposed = response.header("access-control-expose-headers").unwrap();
    // What a plain read is told is for pages as well, which may send `If-None-Match` and `Range`.
    for name in ["Mcp-Session-Id", "ETag", "Content-Range"] {
        assert!(exposed.split(", ").any(|it| it == name), "{exposed}");
    }
    assert_eq!(response.header("vary"), Some("Origin"));
}

#[tokio::test]
async fn browsers_are_told_before_they_call() {
    let running = start(HttpOptions {
        allowed_origins: vec!["https://app.example".to_owned()],
        cors_allowed_headers: vec![http::HeaderName::from_static("x-tenant")],
        ..HttpOptions::default()
    })
    .await;
    let request = HttpRequest::new("OPTIONS", "/mcp")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "content-type, mcp-param-region, x-other",
        );
    let response = exchange(&running, &request).await;
    assert_eq!((response.status, response.body.len()), (204, 0));
    assert_eq!(
        response.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert_eq!(response.header("access-control-max-age"), Some("600"));
    let methods = response.header("access-control-allow-methods").unwrap();
    assert_eq!(methods, "GET, POST, DELETE, OPTIONS");
    let headers = response
        .header("access-control-allow-headers")
        .unwrap()
        .to_ascii_lowercase();
    for name in [
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "authorization",
        "x-api-key",
        "x-tenant",
        "mcp-param-region",
    ] {
        assert!(headers.contains(name), "{name}: {headers}");
    }
    assert!(!headers.contains("x-other"));
    let nobody = exchange(&running, &HttpRequest::new("OPTIONS", "/mcp")).await;
    assert_eq!(
        (nobody.status, nobody.header("access-control-allow-methods")),
        (204, None)
    );
    // An error is readable for the page, too.
    let bad = HttpRequest::post("/mcp", "{").header("origin", "https://app.example");
    let response = exchange(&running, &bad).await;
    assert_refused(&response, 400, -32700);
    assert_eq!(
        response.header("access-control-allow-origin"),
        Some("https://app.example")
    );
}

#[tokio::test]
async fn what_is_no_message_is_said_to_be_none() {
    let running = start(HttpOptions::default()).await;
    let rows: &[(&[u8], i64)] = &[
        (b"{", -32700),
        (b"", -32700),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} x",
            -32700,
        ),
        (b"\xff\xfe", -32700),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}",
            -32700,
        ),
        (b"7", -32600),
        (b"[]", -32600),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
    ];
    for (body, code) in rows {
        for version in [None, Some("2025-11-25"), Some(MODERN)] {
            let mut request = HttpRequest::post("/mcp", body);
            if let Some(version) = version {
                request = request.header("mcp-protocol-version", version);
            }
            assert_refused(&exchange(&running, &request).await, 400, *code);
        }
    }
    let nested = "[".repeat(10_000);
    let response = exchange(&running, &HttpRequest::post("/mcp", nested)).await;
    assert_refused(&response, 400, -32600);
    // With an id that can be read, the error has it.
    let response = exchange(
        &running,
        &HttpRequest::post("/mcp", r#"{"id":7,"method":"ping"}"#),
    )
    .await;
    assert_eq!((response.status, &response.json()["id"]), (400, &json!(7)));
    let big = r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"ping"}"#;
    let response = exchange(&running, &HttpRequest::post("/mcp", big)).await;
    assert!(
        response
            .text()
            .contains(r#""id":123456789012345678901234567890,"#)
    );
}

#[tokio::test]
async fn media_types_are_looked_at() {
    let running = start(HttpOptions::default()).await;
    let kinds = [
        ("text/plain", 415),
        ("application/json-seq", 415),
        ("application/json;charset=utf-8", 200),
    ];
    for (kind, status) in kinds {
        let response = exchange(&running, &ping().with("content-type", kind)).await;
        assert_eq!(response.status, status, "{kind}");
    }
    assert_refused(
        &exchange(&running, &ping().without("content-type")).await,
        415,
        -32600,
    );
    for (accept, status) in [("*/*", 200), ("application/json", 200), ("text/html", 406)] {
        let response = exchange(&running, &ping().with("accept", accept)).await;
        assert_eq!(response.status, status, "{accept}");
    }
    assert_eq!(
        exchange(&running, &ping().without("accept")).await.status,
        200
    );
}

#[tokio::test]
async fn methods_and_paths_that_are_not_there() {
    let running = start(HttpOptions::default()).await;
    for method in ["HEAD", "PUT", "PATCH", "BREW"] {
        let response = exchange(&running, &HttpRequest::new(method, "/mcp")).await;
        assert_eq!(response.status, 405, "{method}");
        assert_eq!(response.header("allow"), Some("GET, POST, DELETE, OPTIONS"));
    }
    for path in ["/", "/mcp/", "/mcp/sse/", "/health"] {
        let response = exchange(&running, &HttpRequest::get(path)).await;
        assert_refused(&response, 404, -32600);
        assert!(response.text().contains("/mcp"));
    }
}

#[tokio::test]
async fn a_body_too_long_is_refused_before_it_is_read() {
    const MAX: usize = 1024;
    const HUGE: usize = 100 * 1024 * 1024;
    let running = start_with(HttpLimits {
        max_body_bytes: MAX,
        ..HttpLimits::default()
    })
    .await;
    let padded = |length: usize| format!("{PING}{}", " ".repeat(length - PING.len()));
    let exact = HttpRequest::post("/mcp", padded(MAX));
    assert_eq!(exchange(&running, &exact).await.status, 200);
    let longer = HttpRequest::post("/mcp", padded(MAX + 1));
    let response = exchange(&running, &longer).await;
    assert_refused(&response, 413, -32600);
    assert!(response.text().contains("1024"), "{}", response.text());

    // Announced, and not one byte of it sent.
    let mut connection = running.client.connect().await;
    let announced = HttpRequest::post("/mcp", "").with("content-length", &HUGE.to_string());
    connection.send_bytes(&announced.to_bytes()).await.unwrap();
    assert_eq!(connection.read_head().await.unwrap().status, 413);

    // Not even asked for.
    let mut connection = running.client.connect().await;
    let expecting = announced.clone().header("expect", "100-continue");
    connection.send_bytes(&expecting.to_bytes()).await.unwrap();
    assert_eq!(connection.read_head().await.unwrap().status, 413);
    assert!(!String::from_utf8_lossy(&connection.read_to_end().await).contains("HTTP/1.1 100"));

    // Not announced: refused as soon as it is too much, and a client that only writes at first
    // still gets to read why.
    let mut connection = running.client.connect().await;
    let chunked = ping()
        .without("content-length")
        .header("transfer-encoding", "chunked")
        .to_bytes();
    connection
        .send_bytes(&chunked[..chunked.len() - PING.len()])
        .await
        .unwrap();
    let chunk = [&b"10000\r\n"[..], &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..HUGE / 0x10000 {
        connection.send_bytes(&chunk).await.unwrap();
    }
    assert_eq!(connection.read_head().await.unwrap().status, 413);
}

#[tokio::test]
async fn a_body_in_pieces_is_one_body() {
    let running = start(HttpOptions::default()).await;
    let mut connection = running.client.connect().await;
    let bytes = ping().to_bytes();
    let body = bytes.len() - PING.len();
    for piece in [
        &bytes[..10],
        &bytes[10..body],
        &bytes[body..body + 5],
        &bytes[body + 5..body + 20],
        &bytes[body + 20..],
    ] {
        connection.send_bytes(piece).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(connection.read_head().await.unwrap().status, 200);
}

#[tokio::test]
async fn slow_clients_are_not_waited_for() {
    let running = start_with(HttpLimits {
        header_timeout: Duration::from_millis(300),
        body_timeout: Duration::from_millis(100),
        ..HttpLimits::default()
    })
    .await;
    // Nothing, half a head, and a request followed by nothing.
    for sent in [
        &b""[..],
        b"POST /mcp HTTP/1.1\r\nhost: local",
        &ping().to_bytes(),
    ] {
        let is_whole = sent.ends_with(b"}");
        // Whoever is not let run before it has sent all is slow as well.
        let mut attempts = 0;
        loop {
            let mut connection = running.client.connect().await;
            connection.send_bytes(sent).await.unwrap();
            let rest = String::from_utf8(connection.read_to_end().await).unwrap();
            if rest.contains("200 OK") == is_whole {
                break;
            }
            attempts += 1;
            assert!(is_whole && attempts < 20, "{rest}");
        }
    }
    let mut connection = running.client.connect().await;
    let bytes = ping().to_bytes();
    connection
        .send_bytes(&bytes[..bytes.len() - 3])
        .await
        .unwrap();
    assert_eq!(connection.read_head().await.unwrap().status, 408);
    let rest = String::from_utf8(connection.read_to_end().await).unwrap();
    assert!(rest.contains(r#""retryable":true"#), "{rest}");
    assert_eq!(running.server.connections(), 0);
}

#[tokio::test]
async fn a_request_that_takes_long_is_not_a_slow_client() {
    let running = start_with(HttpLimits {
        header_timeout: Duration::from_millis(50),
        ..HttpLimits::default()
    })
    .await;
    let seen = &running.seen;
    let mut client = running.client();
    client.speak(MODERN);
    let message = client
        .voice
        .request("tools/call", json!({ "name": "stuck", "arguments": {} }));
    let bytes = client.post_of(&message).to_bytes();
    // Whoever is not let run between the two is slow indeed.
    let mut attempts = 0;
    let mut connection = loop {
        let mut connection = client.connect().await;
        let asking = async {
            if connection.send_bytes(&bytes).await.is_ok() {
                let _ = connection.read_head().await;
            }
        };
        tokio::select! {
            () = seen.wait(&seen.begun, 1) => break connection,
            () = asking => {}
        }
        attempts += 1;
        assert!(attempts < 50, "nobody is quick enough");
    };
    tokio::time::sleep(Duration::from_millis(250)).await;
    seen.release.notify_one();
    assert_eq!(connection.read_head().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_head_too_long_is_refused() {
    let running = start(HttpOptions::default()).await;
    let long = ping().header("x-long", &"x".repeat(40 * 1024));
    let response = exchange(&running, &long).await;
    assert_eq!(response.status, 431);
}

#[tokio::test]
async fn connections_are_bounded() {
    let running = start_with(HttpLimits {
        max_connections: 2,
        ..HttpLimits::default()
    })
    .await;
    let (_, first) = running.client.connect().await.exchange(&ping()).await;
    let (_, second) = running.client.connect().await.exchange(&ping()).await;
    let mut third = running.client.connect().await;
    assert_eq!(third.read_head().await.unwrap().status, 503);
    drop(second);
    let (response, _) = first.exchange(&ping()).await;
    assert_eq!(response.status, 200);
}

#[tokio::test]
async fn an_authenticator_decides_who_calls() {
    let authenticate = |parts: &http::request::Parts, peer: &transport_http::Peer| match parts
        .headers
        .get("authorization")
        .map(|value| value.as_bytes())
    {
        Some(b"Bearer good") => Ok(peer.named("good")),
        _ => {
            let mut response = refusal(http::StatusCode::UNAUTHORIZED, "who are you?");
            let challenge = http::HeaderValue::from_static("Bearer");
            response.headers_mut().insert("www-authenticate", challenge);
            Err(Box::new(response))
        }
    };
    let running = start(HttpOptions {
        authenticate: Arc::new(authenticate),
        side_routes: Some(Arc::new(Routes)),
        ..HttpOptions::default()
    })
    .await;
    let mut client = running.client();
    let refused = client.post_modern("tools/list", json!({})).await.http;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    // Clients that look for the error by the id of their request find it, where the body is small.
    for (id, text, answered) in [
        (json!(7), "", json!(7)),
        (json!("seven"), "", json!("seven")),
        (json!(8), "x".repeat(70_000).as_str(), Value::Null),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "ping", "params": {"text": text}});
        let refused = exchange(&running, &HttpRequest::post("/mcp", body.to_string())).await;
        assert_eq!(refused.status, 401);
        assert_eq!(refused.json()["error"]["message"], "who are you?");
        assert_eq!(refused.json()["id"], answered);
    }
    let refused = exchange(&running, &HttpRequest::post("/mcp", "{\"id\": 9")).await;
    assert_refused(&refused, 401, -32600);
    let mut client = running.client().with_header("authorization", "Bearer good");
    assert_eq!(
        client
            .post_modern("tools/list", json!({}))
            .await
            .http
            .status,
        200
    );
    assert_eq!(*running.seen.principals.lock().unwrap(), ["good"]);

    // A side route asks only if it wants to know.
    assert_eq!(
        exchange(&running, &HttpRequest::get("/health"))
            .await
            .text(),
        "fine"
    );
    assert_eq!(
        exchange(&running, &HttpRequest::get("/me")).await.status,
        401
    );
    let me = HttpRequest::get("/me").header("authorization", "Bearer good");
    assert_eq!(exchange(&running, &me).await.text(), "good");
    assert_eq!(
        exchange(&running, &HttpRequest::new("HEAD", "/health"))
            .await
            .status,
        200
    );
    assert_eq!(
        exchange(&running, &HttpRequest::get("/else")).await.status,
        404
    );
}

#[tokio::test]
async fn a_side_route_reads_a_bounded_body_and_may_stream() {
    let running = start(HttpOptions {
        side_routes: Some(Arc::new(Routes)),
        ..HttpOptions::default()
    })
    .await;
    let said = exchange(&running, &HttpRequest::post("/said", "12345678")).await;
    assert_eq!((said.status, said.text()), (200, "1234567812345678"));
    let long = exchange(&running, &HttpRequest::post("/said", "123456789")).await;
    assert_eq!(long.status, 413);
    // Of other routes the body is not read.
    let me = HttpRequest::get("/health").body("123456789");
    assert_eq!(exchange(&running, &me).await.text(), "fine");
}

struct Routes;

impl SideRoutes for Routes {
    fn max_body(&self, parts: &Parts) -> usize {
        if parts.uri.path() == "/said" { 8 } else { 0 }
    }

    fn handle<'a>(&'a self, request: SideRequest<'a>) -> Option<SideResponse<'a>> {
        let parts = request.parts();
        if parts.uri.path() == "/said" {
            return Some(Box::pin(async move {
                // Twice, in two pieces.
                let pieces = [request.body().clone(), request.body().clone()];
                let stream = futures_util::stream::iter(pieces);
                http::Response::new(SideBody::Stream(Box::pin(stream)))
            }));
        }
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return None;
        }
        match parts.uri.path() {
            "/health" => Some(Box::pin(async { side(PlainResponse::new("fine".into())) })),
            "/me" => Some(Box::pin(async move {
                side(match request.principal().await {
                    Ok(principal) => PlainResponse::new(principal.as_str().to_owned().into()),
                    Err(refused) => *refused,
                })
            })),
            _ => None,
        }
    }
}

#[tokio::test]
async fn the_parameters_of_a_call_can_be_compared_with_their_headers() {
    struct Check;
    impl transport_http::HeaderParams for Check {
        fn check(
            &self,
            _: &mcp_service::Principal,
            tool: &str,
            params: &jsonrpc_core::RawJson,
            headers: &http::HeaderMap,
        ) -> Result<(), String> {
            assert_eq!(tool, "echo");
            let params: Value = params.parse().unwrap();
            let region = headers
                .get("mcp-param-region")
                .map(|value| value.to_str().unwrap());
            if params["arguments"]["region"].as_str() == region {
                return Ok(());
            }
            Err("Mcp-Param-Region is not the argument `region`".to_owned())
        }
    }
    let running = start(HttpOptions {
        header_params: Some(Arc::new(Check)),
        ..HttpOptions::default()
    })
    .await;
    let mut client = running.client();
    client.speak(MODERN);
    let params = json!({ "name": "echo", "arguments": { "region": "north" } });
    let message = client.voice.request("tools/call", params);
    let request = client.post_of(&message);
    let refused = client.exchange(&request).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (400, &json!(-32020))
    );
    let good = request.header("mcp-param-region", "north");
    assert_eq!(client.exchange(&good).await.status, 200);
}

/// Knows everybody, after a while.
struct Slowly;

impl Authenticate for Slowly {
    fn authenticate<'a>(&'a self, request: &'a Parts, _: &'a Peer) -> Authentication<'a> {
        let name = request.headers.get("x-name").cloned();
        Authentication::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            match name {
                Some(name) => Ok(Principal::new(name.to_str().unwrap())),
                None => Err(Box::new(refusal(StatusCode::UNAUTHORIZED, "who are you?"))),
            }
        }))
    }
}

#[tokio::test]
async fn authentication_may_take_a_while() {
    let running = start(HttpOptions {
        authenticate: Arc::new(Slowly),
        ..HttpOptions::default()
    })
    .await;
    let mut client = running.client().with_header("x-name", "ana");
    client.initialize("2025-11-25").await;
    assert_eq!(
        client
            .post_legacy("tools/list", Value::Null)
            .await
            .http
            .status,
        200
    );
    let principals = running.seen.principals.lock().unwrap().clone();
    assert_eq!(principals, ["ana"]);
    let nobody = HttpRequest::post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!(exchange(&running, &nobody).await.status, 401);
    // Another's session is as good as none, whoever asks.
    let mut other = running.client().with_header("x-name", "bob");
    other.speak("2025-11-25");
    other.set_session(client.session());
    assert_eq!(
        other
            .post_legacy("tools/list", Value::Null)
            .await
            .http
            .status,
        404
    );
}
