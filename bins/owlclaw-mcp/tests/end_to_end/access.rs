//! Every method, on every transport, for everybody who might ask: nothing is answered to who has not
//! proved who they are, nothing to who lacks the role for it, and nobody has a session of others.

use std::collections::BTreeSet;

use mcp_protocol::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::{Conversation, GENEROUS, HttpClient, HttpRequest, HttpServer, MODERN, WebSocketPeer};

use crate::support::{Site, call, outcome, run};

const LEGACY: &str = "2025-11-25";
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// Tool that only clerks may call, and that leaves a mark at each call; below it, the resource that
/// only clerks may read.
const TOOL: &str = "append";
const SKILL: &str = "skill://stock/count";
/// Both show by it.
const MARK: &str = "a-mark-for-clerks";

/// Keys by what they are for; each secret is its id, repeated.
const CLARA: &str = "a1a1a1a1a1a1";
const CLARA_WITHOUT_ROLE: &str = "a2a2a2a2a2a2";
const PETER: &str = "b1b1b1b1b1b1";
const OLGA: &str = "c1c1c1c1c1c1";
const OTTO: &str = "d1d1d1d1d1d1";
const EXPIRED: &str = "e1e1e1e1e1e1";
const REVOKED: &str = "f1f1f1f1f1f1";
const NOBODYS: &str = "090909090909";

fn key(id: &str) -> String {
    let secret: String = id.chars().cycle().take(43).collect();
    format!("owl_{id}_{secret}")
}

/// A shop where clerks have a tool and a document that others do not know of. Who has failed to
/// prove who they are would have every role.
fn shop() -> Site {
    let site = Site::new(json!({
        "http": {"websocket": {"enabled": true}},
        "identity": {"api_keys": {"file": "keys.json"}, "stdio": "required"},
        "tasks": {"enabled": true},
        "governance": {
            "default": {
                "tools": {"allow": ["look-up"]},
                "resources": {"allow": ["skill://help/*"]},
            },
            "roles": {
                "clerk": {
                    "tools": {"allow": [TOOL, "linger"]},
                    "resources": {"allow": ["skill://stock/*"]},
                },
            },
            "tools": {"linger": {"confirmation": "operator"}},
        },
    }));
    site.skill("help", "hours", "");
    site.skill("stock", "count", &format!("tags: [{MARK}]\n"));
    let record = |id: &str, principal: &str, roles: &[&str], more: Value| {
        let digest = Sha256::digest(key(id));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut record = json!({
            "id": id, "digest": digest, "principal": principal, "roles": roles,
            "created": LONG_AGO,
        });
        for (name, value) in more.as_object().unwrap() {
            record[name] = value.clone();
        }
        record
    };
    let none = || json!({});
    let all = ["clerk", "operator"];
    let keys = json!({"version": 1, "keys": [
        record(CLARA, "clara", &["clerk"], none()),
        record(CLARA_WITHOUT_ROLE, "clara", &["another server's"], none()),
        record(PETER, "peter", &[], none()),
        record(OLGA, "olga", &["clerk"], none()),
        record(OTTO, "otto", &all, none()),
        record(EXPIRED, "xaver", &all, json!({"expires": LONG_AGO})),
        record(REVOKED, "xaver", &all, json!({"revoked": LONG_AGO})),
    ]});
    // What everybody may call waits for it.
    site.write("gate", "");
    site.write("keys.json", keys.to_string());
    let only_ours = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(site.path("keys.json"), only_ours).unwrap();
    site
}

type Headers = Vec<(&'static str, String)>;

/// Every kind of client that has not authenticated.
fn strangers() -> Vec<(&'static str, Headers)> {
    let bearer = |key: &str| ("authorization", format!("Bearer {key}"));
    let wrong = key(CLARA).replacen("a1a1a1a1a1a1_a", "a1a1a1a1a1a1_b", 1);
    vec![
        ("none", vec![]),
        ("a name", vec![("x-mcp-client-id", "clara".to_owned())]),
        ("no scheme", vec![("authorization", key(CLARA))]),
        (
            "another scheme",
            vec![("authorization", "Basic Y2xhcmE6eA==".to_owned())],
        ),
        ("no key", vec![bearer("")]),
        ("half a key", vec![bearer("owl_a1a1a1a1a1a1_short")]),
        ("no token", vec![bearer("one.two.three")]),
        ("a wrong key", vec![bearer(&wrong)]),
        ("an unknown key", vec![bearer(&key(NOBODYS))]),
        ("an expired key", vec![bearer(&key(EXPIRED))]),
        ("a revoked key", vec![bearer(&key(REVOKED))]),
        ("a revoked key elsewhere", vec![("x-api-key", key(REVOKED))]),
        (
            "two at once",
            vec![bearer(&key(CLARA)), ("x-api-key", key(OLGA))],
        ),
        ("one twice", vec![bearer(&key(CLARA)), bearer(&key(OLGA))]),
    ]
}

/// Answers that the kinds of clients get from a method.
#[derive(Clone, Copy, PartialEq)]
enum Gets {
    /// Every client that is served gets the same kind of answer.
    All,
    /// Only clerks are told what has the mark in it.
    Mark,
    /// Only clerks get a result.
    Result,
}

/// Every method: what is asked, who gets it, and the eras that have it: modern, legacy.
fn methods() -> Vec<(&'static str, Value, Gets, [bool; 2])> {
    use Gets::{All, Mark, Result};
    const BOTH: [bool; 2] = [true, true];
    const NEW: [bool; 2] = [true, false];
    const OLD: [bool; 2] = [false, true];
    let uri = || json!({"uri": SKILL});
    let task = || json!({"taskId": "none-of-these"});
    vec![
        ("tools/call", call(TOOL, json!({"mark": MARK})), Mark, BOTH),
        ("tools/list", json!({}), Gets::Mark, BOTH),
        ("resources/read", uri(), Mark, BOTH),
        ("resources/list", json!({}), Mark, BOTH),
        ("resources/templates/list", json!({}), All, BOTH),
        ("resources/subscribe", uri(), Result, OLD),
        ("resources/unsubscribe", uri(), All, OLD),
        ("skills/list", json!({}), Mark, NEW),
        (
            "skills/get",
            json!({ "uri": format!("{SKILL}/SKILL.md") }),
            Mark,
            NEW,
        ),
        (
            "resources/directory/read",
            json!({"uri": SKILL}),
            Result,
            NEW,
        ),
        ("tasks/get", task(), All, BOTH),
        (
            "tasks/update",
            json!({"taskId": "none-of-these", "inputResponses": {}}),
            All,
            NEW,
        ),
        ("tasks/cancel", task(), All, BOTH),
        ("tasks/result", task(), All, OLD),
        ("tasks/list", json!({}), All, OLD),
        ("prompts/list", json!({}), All, BOTH),
        ("prompts/get", json!({"name": "none-of-these"}), All, BOTH),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}),
            All,
            BOTH,
        ),
        ("logging/setLevel", json!({"level": "info"}), All, OLD),
        ("initialize", json!({}), All, OLD),
        ("ping", json!({}), All, OLD),
        ("server/discover", json!({}), All, NEW),
        (
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
            All,
            NEW,
        ),
    ]
}

/// Returns true if `text` reveals anything that only clerks may see.
fn tells(method: &str, text: &str) -> bool {
    let shown = match method {
        "tools/list" => format!("\"{TOOL}\""),
        "resources/list" | "skills/list" | "skills/get" => format!("\"{SKILL}"),
        _ => MARK.to_owned(),
    };
    text.contains(&shown)
}

fn dressed(mut request: HttpRequest, headers: &Headers) -> HttpRequest {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request
}

fn with_key(id: &str) -> Headers {
    vec![("authorization", format!("Bearer {}", key(id)))]
}

fn as_holder(server: &HttpServer, id: &str) -> HttpClient {
    let bearer = format!("Bearer {}", key(id));
    server.client().with_header("authorization", &bearer)
}

async fn web_socket(server: &HttpServer, headers: &Headers) -> Result<WebSocketPeer, u16> {
    WebSocketPeer::open_at(server.address(), "/mcp/ws", headers).await
}

/// The status, and what follows as far as it does not go on for ever.
async fn ask(server: &HttpServer, request: &HttpRequest) -> (u16, String, bool) {
    let asked = async {
        let (head, mut body) = server.client().connect().await.begin(request).await;
        let mut bytes = Vec::new();
        let is_stream = head.media_type() == Some("text/event-stream");
        while let Some(more) = body.next().await {
            bytes.extend(more);
            let text = String::from_utf8_lossy(&bytes);
            // What never ends begins with one of these.
            if is_stream && (text.contains("acknowledged") || text.contains("endpoint")) {
                break;
            }
        }
        let challenged = head.header("www-authenticate").is_some();
        (head.status, String::from_utf8(bytes).unwrap(), challenged)
    };
    tokio::time::timeout(GENEROUS, asked)
        .await
        .expect("an answer")
}

/// Asserts that nothing was done and nothing revealed.
async fn is_refused(server: &HttpServer, request: HttpRequest, what: &str) {
    for (state, headers) in strangers() {
        let (status, text, challenged) = ask(server, &dressed(request.clone(), &headers)).await;
        let what = format!("{what} with {state}: {status} {text}");
        assert!(matches!(status, 400 | 401), "{what}");
        assert!(challenged || status == 400, "{what}");
        for told in ["\"result\"", MARK, TOOL, SKILL, "clara", "xaver"] {
            assert!(!text.contains(told), "{what}");
        }
    }
}

#[test]
fn the_table_has_every_method_that_there_is() {
    let all: BTreeSet<_> = Method::ALL.iter().map(|method| method.name()).collect();
    assert!(20 < all.len());
    assert_eq!(all, methods().into_iter().map(|(name, ..)| name).collect());
}

#[tokio::test]
async fn nobody_is_answered_who_has_not_proved_who_they_are() {
    let site = shop();
    let server = site.http().await;
    let mut clara = as_holder(&server, CLARA);
    clara.open(LEGACY).await;
    let session = clara.session().unwrap().to_owned();
    let mut old = as_holder(&server, CLARA).open_old_sse("/sse").await;
    old.open("2024-11-05").await;

    for (method, params, _, [is_modern, is_legacy]) in methods() {
        if is_modern {
            let mut client = server.client();
            client.speak(MODERN);
            let message = client.voice.request(method, params.clone());
            is_refused(
                &server,
                client.post_of(&message),
                &format!("modern {method}"),
            )
            .await;
        }
        if is_legacy {
            let mut client = server.client();
            client.speak(LEGACY);
            let message = match method {
                "initialize" => client.voice.initialize(LEGACY),
                _ => client.voice.request(method, params.clone()),
            };
            let what = format!("legacy {method}");
            is_refused(&server, client.post_of(&message), &what).await;
            client.set_session(Some(&session));
            is_refused(
                &server,
                client.post_of(&message),
                &format!("{what} in a session"),
            )
            .await;
            let post = HttpRequest::post(&old.endpoint, message.to_string());
            is_refused(&server, post, &format!("old {method}")).await;
        }
    }
    let in_session = |method| {
        let request = HttpRequest::new(method, "/mcp").header("mcp-session-id", &session);
        request.header("accept", "text/event-stream")
    };
    is_refused(&server, in_session("GET"), "the stream of a session").await;
    is_refused(&server, in_session("DELETE"), "the end of a session").await;
    let stream = HttpRequest::get("/sse").header("accept", "text/event-stream");
    is_refused(&server, stream, "an old stream").await;
    for (method, target) in [
        ("GET", "/governance/stats"),
        ("GET", "/approvals"),
        (
            "POST",
            "/approvals/apr_0000000000000000000000?decision=approve",
        ),
        ("GET", "/metrics"),
        ("GET", "/resources/stock/count"),
    ] {
        is_refused(&server, HttpRequest::new(method, target), target).await;
    }
    for (state, headers) in strangers() {
        let refused = web_socket(&server, &headers).await.unwrap_err();
        assert!(matches!(refused, 400 | 401), "{state}: {refused}");
    }
    // Who watches over it needs no proof, and learns no more than that it is well.
    for target in ["/health", "/health/live", "/health/ready"] {
        let (status, text, _) = ask(&server, &HttpRequest::get(target)).await;
        assert_eq!(status, 200, "{target}: {text}");
        assert!(!text.contains("clara"), "{text}");
    }
    // Nothing was done, and nothing is on record as if it had been.
    assert_eq!(site.read("executed"), "");
    assert_eq!(site.calls().len(), 0);
    // And who has a session has it still.
    let listed = clara.request("tools/list", json!({})).await;
    assert!(tells("tools/list", &listed.result().to_string()));
    let listed = old.request("tools/list", json!({})).await;
    assert!(tells("tools/list", &listed.result().to_string()));
}

/// Asks everything as the holder of a key; whether it was told each time what only clerks are.
async fn check_answers(client: &mut impl Conversation, is_modern: bool, is_clerk: bool) -> usize {
    let mut calls = 0;
    for (method, params, gets, eras) in methods() {
        let has_it = eras[usize::from(!is_modern)];
        // The first takes a stream of its own, and the second stands at the beginning.
        if !has_it || ["subscriptions/listen", "initialize"].contains(&method) {
            continue;
        }
        let answer = client.request(method, params).await.response;
        let (text, what) = (answer["result"].to_string(), format!("{method}: {answer}"));
        match gets {
            Gets::All => assert!(!tells(method, &text), "{what}"),
            Gets::Mark => assert_eq!(tells(method, &text), is_clerk, "{what}"),
            Gets::Result => assert_eq!(answer["result"].is_object(), is_clerk, "{what}"),
        }
        calls += usize::from(method == "tools/call" && is_clerk);
    }
    calls
}

#[tokio::test]
async fn roles_are_enforced_on_every_transport() {
    let site = shop();
    let server = site.http().await;
    let mut calls = 0;
    for (holder, is_clerk) in [(CLARA, true), (PETER, false), (CLARA_WITHOUT_ROLE, false)] {
        for version in [MODERN, LEGACY] {
            let mut client = as_holder(&server, holder);
            client.open(version).await;
            calls += check_answers(&mut client, version == MODERN, is_clerk).await;
            let mut socket = web_socket(&server, &with_key(holder)).await.unwrap();
            socket.open(version).await;
            calls += check_answers(&mut *socket, version == MODERN, is_clerk).await;
        }
        let mut old = as_holder(&server, holder).open_old_sse("/sse").await;
        old.open("2024-11-05").await;
        let params = call(TOOL, json!({"mark": MARK}));
        for (method, params) in [("tools/call", params), ("tools/list", json!({}))] {
            let answer = old.request(method, params).await.response;
            let text = answer["result"].to_string();
            assert_eq!(tells(method, &text), is_clerk, "{answer}");
        }
        calls += usize::from(is_clerk);
    }
    let read = HttpRequest::get("/resources/stock/count");
    for (holder, is_clerk) in [(CLARA, true), (PETER, false), (CLARA_WITHOUT_ROLE, false)] {
        let (status, text, _) = ask(&server, &dressed(read.clone(), &with_key(holder))).await;
        let status_of_role = if is_clerk { 200 } else { 404 };
        assert_eq!(
            (status, text.contains(MARK)),
            (status_of_role, is_clerk),
            "{text}"
        );
    }
    assert_eq!(site.read("executed").lines().count(), calls);
    assert_eq!(calls, 5);
    let record = site.calls();
    let done = record.iter().filter(|call| outcome(call) != "denied");
    for call in done.clone() {
        let of = (&*call.started.principal, &*call.started.capability);
        assert!(
            of.0 == "clara" || !of.1.contains("stock") && !of.1.contains(TOOL),
            "{call:?}"
        );
    }
    let ran = done.filter(|call| call.started.capability == format!("tool/{TOOL}"));
    assert_eq!(ran.count(), calls);
}

#[tokio::test]
async fn in_a_session_every_request_has_the_roles_of_its_own_key() {
    let site = shop();
    let server = site.http().await;
    let mut clara = as_holder(&server, CLARA);
    clara.open(LEGACY).await;
    let mut less = as_holder(&server, CLARA_WITHOUT_ROLE);
    less.speak(LEGACY);
    less.set_session(clara.session());
    for _ in 0..2 {
        let done = clara
            .request("tools/call", call(TOOL, json!({"mark": MARK})))
            .await;
        assert!(tells("tools/call", &done.result().to_string()));
        let refused = less
            .request("tools/call", call(TOOL, json!({"mark": MARK})))
            .await;
        let mut absent = less.request("tools/call", call("nothing", json!({}))).await;
        let as_absent = absent.error().to_string().replace("nothing", TOOL);
        assert_eq!(
            refused.error().to_string(),
            as_absent,
            "as what there is not"
        );
        absent = less.request("tools/list", json!({})).await;
        assert!(!tells("tools/list", &absent.result().to_string()));
    }
    assert_eq!(site.read("executed").lines().count(), 2);
}

#[tokio::test]
async fn a_session_of_somebody_else_is_as_good_as_none() {
    let site = shop();
    let server = site.http().await;
    let mut clara = as_holder(&server, CLARA);
    clara.open(LEGACY).await;
    let session = clara.session().unwrap().to_owned();
    let made_up = "0".repeat(session.len());
    let mut old = as_holder(&server, CLARA).open_old_sse("/sse").await;
    old.open("2024-11-05").await;
    let (_, old_session) = old.endpoint.split_once('=').unwrap();
    let no_old = old
        .endpoint
        .replace(old_session, &"0".repeat(old_session.len()));

    let same = async |theirs: HttpRequest, nobodys: HttpRequest, what: &str| {
        for holder in [OLGA, OTTO] {
            let of_clara = ask(&server, &dressed(theirs.clone(), &with_key(holder))).await;
            let of_nobody = ask(&server, &dressed(nobodys.clone(), &with_key(holder))).await;
            assert_eq!(of_clara.0, 404, "{what}: {}", of_clara.1);
            assert_eq!(of_clara, of_nobody, "{what}");
        }
    };
    for (method, params, _, [_, is_legacy]) in methods() {
        // One that begins a session does so whatever session is named.
        if !is_legacy || method == "initialize" {
            continue;
        }
        let mut client = server.client();
        client.speak(LEGACY);
        let message = client.voice.request(method, params);
        let in_session = |id: &str| {
            let mut client = client.clone();
            client.set_session(Some(id));
            client.post_of(&message)
        };
        same(in_session(&session), in_session(&made_up), method).await;
        let body = message.to_string();
        let posts = [&old.endpoint, &no_old].map(|it| HttpRequest::post(it, &body));
        let [theirs, nobodys] = posts;
        same(theirs, nobodys, &format!("old {method}")).await;
    }
    for method in ["GET", "DELETE"] {
        let of = |id: &str| {
            let request = HttpRequest::new(method, "/mcp").header("mcp-session-id", id);
            request.header("accept", "text/event-stream")
        };
        same(of(&session), of(&made_up), method).await;
    }
    assert_eq!((site.read("executed").len(), site.calls().len()), (0, 0));
    let listed = clara.request("tools/list", json!({})).await;
    assert!(tells("tools/list", &listed.result().to_string()));
    let listed = old.request("tools/list", json!({})).await;
    assert!(tells("tools/list", &listed.result().to_string()));
}

#[tokio::test]
async fn operators_decide_by_their_role_and_in_their_name() {
    let site = shop();
    let server = site.http().await;
    let of = async |holder: &str, method: &str, target: &str| {
        let request = HttpRequest::new(method, target);
        let (status, text, _) = ask(&server, &dressed(request, &with_key(holder))).await;
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        (status, body)
    };
    let mut clara = as_holder(&server, CLARA);
    clara.open(MODERN).await;
    let params = call("linger", json!({"mark": "x"}));
    let waits = clara.request("tools/call", params).await;
    let id = waits.failure()["data"]["approval"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut otto = as_holder(&server, OTTO);
    otto.open(MODERN).await;
    let own = otto
        .request("tools/call", call("linger", json!({"mark": "y"})))
        .await;
    let own = own.failure()["data"]["approval"]["id"]
        .as_str()
        .unwrap()
        .to_owned();

    let approve = |id: &str| format!("/approvals/{id}?decision=approve&by=somebody-else");
    for (method, target) in [
        ("GET", "/approvals".to_owned()),
        ("GET", "/governance/stats".to_owned()),
        ("POST", approve(&id)),
    ] {
        for holder in [CLARA, PETER, OLGA] {
            assert_eq!(of(holder, method, &target).await.0, 403, "{target}");
        }
        assert_eq!(of(OTTO, method, &target).await.0, 200, "{target}");
    }
    let (_, approvals) = of(OTTO, "GET", "/approvals?state=approved").await;
    assert_eq!(
        approvals["approvals"][0]["decided_by"], "operator:otto",
        "{approvals}"
    );
    assert_eq!(
        of(OTTO, "POST", &approve(&own)).await.0,
        403,
        "nobody approves their own"
    );
    let deny = format!("/approvals/{own}?decision=deny");
    assert_eq!(
        of(OTTO, "POST", &deny).await.0,
        200,
        "but they may think better of it"
    );
    // Roles that no rule knows are told of, since one may be misspelt.
    let mut less = as_holder(&server, CLARA_WITHOUT_ROLE);
    less.open(MODERN).await;
    less.request("tools/call", call("look-up", json!({"what": "x"})))
        .await;
    let (_, stats) = of(OTTO, "GET", "/governance/stats").await;
    let names = stats["unknown_roles"]["names"].as_array().unwrap();
    assert!(names.contains(&json!("another server's")), "{stats}");
}

#[tokio::test]
async fn on_stdio_too_nobody_is_served_without_a_key_and_roles_count() {
    let site = shop();
    for id in [None, Some(EXPIRED), Some(REVOKED), Some(NOBODYS)] {
        let mut command = site.command(&["start"]);
        if let Some(id) = id {
            command.env("OWLCLAW_API_KEY", key(id));
        }
        let said = run(command).await;
        assert_ne!(said.code, Some(0), "{id:?}: {}", said.messages);
        assert_eq!(said.output, "");
        assert!(!said.messages.contains("_090909"), "{}", said.messages);
    }
    let mut calls = 0;
    for (holder, is_clerk) in [(CLARA, true), (PETER, false)] {
        for version in [MODERN, LEGACY] {
            let mut command = site.command(&["start"]);
            command.env("OWLCLAW_API_KEY", key(holder));
            let mut server = testkit::StdioServer::spawn(command);
            server.open(version).await;
            calls += check_answers(&mut server, version == MODERN, is_clerk).await;
            server.close_input();
            server.wait_exit(GENEROUS).await;
        }
    }
    assert_eq!((calls, site.read("executed").lines().count()), (2, 2));
}

#[tokio::test]
async fn it_can_be_asked_what_a_role_would_do() {
    let site = shop();
    for (roles, verdict) in [
        (&[][..], "refused"),
        (&["clerk"], "allowed"),
        (&["another server's", "clerk"], "allowed"),
    ] {
        let mut words = vec!["governance", "explain", "--as", "peter", "--tool", TOOL];
        words.extend(["--format", "json"]);
        words.extend(roles.iter().flat_map(|role| ["--role", *role]));
        let said = run(site.command(&words)).await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
        let told: Value = serde_json::from_str(&said.output).unwrap();
        assert_eq!(told["verdict"], verdict, "{told}");
    }
}
