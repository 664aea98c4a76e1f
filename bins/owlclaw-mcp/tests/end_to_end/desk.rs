//! The desk of operators: who is let in to which route, what its pages may do, and what it answers.

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpClient, HttpRequest, HttpResponse, HttpServer, MODERN};

use crate::support::{Site, call, run};

/// A server with a desk, and keys of people with different rights on it.
pub(crate) struct Bank {
    pub(crate) site: Site,
    pub(crate) server: HttpServer,
    keys: Vec<(&'static str, String)>,
}

impl Bank {
    async fn open() -> Self {
        Self::at(Site::new(Self::settings())).await
    }

    pub(crate) fn settings() -> Value {
        json!({
            "identity": {"api_keys": {"file": "keys.json"}},
            "desk": {
                "enabled": true,
                "port": 0,
                "clients": {"vera": "viewer", "abel": "approver", "agent": "approver"},
                "roles": {"clerk": "approver"},
            },
            "governance": {"tools": {
                "append": {"risk": ["financial"], "confirmation": "operator"},
            }},
        })
    }

    /// The same at a site with such settings.
    pub(crate) async fn at(site: Site) -> Self {
        let mut keys = Vec::new();
        for (name, roles) in [
            ("vera", &[][..]),
            ("abel", &[]),
            ("olga", &["--role", "operator"]),
            ("nora", &[]),
            ("agent", &[]),
        ] {
            let words = [&["keys", "create", "--principal", name], roles].concat();
            let made = run(site.command(&words)).await;
            assert_eq!(made.code, Some(0), "{}", made.messages);
            keys.push((name, made.output.trim().to_owned()));
        }
        let server = site.http().await;
        Self { site, server, keys }
    }

    pub(crate) fn key(&self, name: &str) -> &str {
        let found = self.keys.iter().find(|(it, _)| *it == name);
        &found.unwrap().1
    }

    fn desk(&self) -> HttpClient {
        HttpClient::new(desk_of(&self.site))
    }

    pub(crate) async fn ask(&self, request: HttpRequest) -> HttpResponse {
        self.desk().exchange(&request).await
    }

    pub(crate) async fn as_of(&self, name: &str, request: HttpRequest) -> HttpResponse {
        let key = format!("Bearer {}", self.key(name));
        self.ask(request.header("authorization", &key)).await
    }

    /// A session of this person, as a browser has one.
    pub(crate) async fn sign_in(&self, name: &str) -> Browser {
        let request = HttpRequest::post("/admin/v1/session", "");
        let response = self.as_of(name, request).await;
        assert_eq!(response.status, 200, "{}", response.text());
        Browser::of(&response)
    }

    /// An approval that a client has asked for.
    async fn approval(&self, mark: &str) -> String {
        let key = format!("Bearer {}", self.key("agent"));
        let mut client = self.server.client().with_header("authorization", &key);
        client.open(MODERN).await;
        let arguments = json!({ "mark": mark });
        let answer = client
            .request("tools/call", call("append", arguments))
            .await;
        let data = &testkit::failure_of(&answer.response)["data"];
        data["approval"]["id"].as_str().unwrap().to_owned()
    }
}

/// Asks until it is so: nothing tells when.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = std::time::Instant::now() + GENEROUS;
    while !is_so().await {
        assert!(std::time::Instant::now() < end, "it never is that {what}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Address of the desk that a server of this site serves.
pub(crate) fn desk_of(site: &Site) -> std::net::SocketAddr {
    let place: Value = serde_json::from_str(&site.read("ledger.db.desk")).unwrap();
    let url = place["url"].as_str().unwrap();
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// Cookie and token of a session.
pub(crate) struct Browser {
    pub(crate) cookie: String,
    csrf: String,
}

impl Browser {
    fn of(response: &HttpResponse) -> Self {
        let cookie = response.header("set-cookie").unwrap();
        for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        // A cookie with an age is written to the disk of the browser.
        assert!(
            !cookie.contains("Max-Age") && !cookie.contains("Expires"),
            "{cookie}"
        );
        Self {
            cookie: cookie.split(';').next().unwrap().to_owned(),
            csrf: response.json()["csrf"].as_str().unwrap().to_owned(),
        }
    }

    /// The same with what the page of the session sends.
    pub(crate) fn dress(&self, bank: &Bank, request: HttpRequest) -> HttpRequest {
        let host = desk_of(&bank.site).to_string();
        let request = request
            .with("host", &host)
            .header("cookie", &self.cookie)
            .header("origin", &format!("http://{host}"));
        request.header("x-csrf-token", &self.csrf)
    }
}

pub(crate) fn get(path: &str) -> HttpRequest {
    HttpRequest::get(&format!("/admin/v1{path}"))
}

/// Every route with a path that exists as far as it can, and the least role that may use it.
fn table() -> Vec<(String, String, Option<&'static str>)> {
    let routes = desk::routes().iter();
    routes
        .map(|route| {
            let path = route.path.replace("{name}", "append");
            let path = path
                .replace("{id}", "apr_0000000000000000000000")
                .replace("{call}", "019a0000-0000-7000-8000-000000000000");
            let role = route.role.map(|it| it.as_str());
            (route.method.to_string(), format!("/admin/v1{path}"), role)
        })
        .collect()
}

#[tokio::test]
async fn every_route_takes_the_rights_that_the_table_says_and_says_nothing_to_others() {
    let bank = Bank::open().await;
    let rights = |role: &str| match role {
        "viewer" => 1,
        "approver" => 2,
        _ => 3,
    };
    let all = table();
    assert!(35 < all.len(), "{}", all.len());
    for (method, path, role) in &all {
        let request = || HttpRequest::new(method, path);
        if path.ends_with("/sign-in") {
            // Nobody has to be anybody yet to sign in, on the own page.
            let expected = if method == "GET" { 200 } else { 403 };
            for request in [request(), request().header("x-api-key", "nonsense")] {
                let response = bank.ask(request).await;
                assert_eq!(response.status, expected, "{method}: {}", response.text());
                assert_eq!(response.header("cache-control"), Some("no-store"));
                assert!(response.header("set-cookie").is_none());
            }
            let other = request().header("origin", "https://evil.example");
            assert_eq!(bank.ask(other).await.status, 403, "{method}");
            continue;
        }
        // Who shows nothing, a wrong key, a cookie of nobody, or a key without rights.
        let nobody = [
            (request(), 401),
            (
                request().header("authorization", "Bearer owl_wrong_key"),
                401,
            ),
            (request().header("x-api-key", "nonsense"), 401),
        ];
        for (request, status) in nobody {
            let response = bank.ask(request).await;
            assert_eq!(
                response.status,
                status,
                "{method} {path}: {}",
                response.text()
            );
            assert_eq!(response.header("cache-control"), Some("no-store"));
            assert!(response.header("set-cookie").is_none());
        }
        let response = bank.as_of("nora", request()).await;
        let expected = if path.ends_with("/tickets") { 401 } else { 403 };
        assert_eq!(
            response.status,
            expected,
            "{method} {path}: {}",
            response.text()
        );
        let Some(role) = role else { continue };
        for (name, has) in [("vera", 1), ("abel", 2)] {
            if path.ends_with("/activity") {
                // It goes on for as long as somebody listens, which takes rights.
                let key = format!("Bearer {}", bank.key(name));
                let request = request().header("authorization", &key);
                let mut stream = bank.desk().stream(&request).await;
                assert!(stream.next_event().await.is_some(), "{name}");
                continue;
            }
            let response = bank.as_of(name, request()).await;
            let refused = has < rights(role);
            assert_eq!(
                response.status == 403,
                refused,
                "{name}: {method} {path}: {}",
                response.text()
            );
            assert_ne!(response.status, 401, "{name}: {method} {path}");
        }
    }
    // Whoever is nobody is not told which paths there are, and others which methods.
    assert_eq!(bank.ask(get("/nothing")).await.status, 401);
    assert_eq!(bank.as_of("vera", get("/nothing")).await.status, 404);
    let wrong = bank
        .as_of("vera", HttpRequest::new("PUT", "/admin/v1/keys"))
        .await;
    assert_eq!(
        (wrong.status, wrong.header("allow")),
        (405, Some("GET, POST"))
    );
}

#[tokio::test]
async fn a_session_is_new_with_each_sign_in_and_ends_where_it_is_told_to() {
    let bank = Bank::open().await;
    let first = bank.sign_in("abel").await;
    let shown = |browser: &Browser| {
        let request = browser.dress(&bank, get("/session"));
        let bank = &bank;
        async move { bank.ask(request).await }
    };
    assert_eq!(shown(&first).await.json()["name"], "abel");
    // A cookie that somebody has put into the browser before is not the session's, and ends.
    let planted = HttpRequest::post("/admin/v1/session", "").header("cookie", &first.cookie);
    let second = Browser::of(&bank.as_of("abel", planted).await);
    assert_ne!(second.cookie, first.cookie);
    assert_ne!(second.csrf, first.csrf);
    assert_eq!(shown(&first).await.status, 401);
    // Two cookies of the name are one too many.
    let both = format!("{}; {}", second.cookie, second.cookie);
    assert_eq!(
        bank.ask(get("/session").header("cookie", &both))
            .await
            .status,
        401
    );

    let third = bank.sign_in("abel").await;
    let other = bank.sign_in("vera").await;
    let out = HttpRequest::new("DELETE", "/admin/v1/session?everywhere=1");
    let ended = bank.ask(third.dress(&bank, out)).await;
    assert_eq!((ended.status, &ended.json()["ended"]), (200, &json!(2)));
    assert!(ended.header("set-cookie").unwrap().contains("Max-Age=0"));
    for browser in [&second, &third] {
        assert_eq!(shown(browser).await.status, 401);
    }
    assert_eq!(shown(&other).await.json()["role"], "viewer");

    // A key that is revoked takes its sessions along.
    let list = run(bank.site.command(&["keys", "list", "--format", "json"])).await;
    let keys: Value = serde_json::from_str(&list.output).unwrap();
    let id = keys
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["principal"] == "vera")
        .unwrap();
    let revoked = run(bank
        .site
        .command(&["keys", "revoke", id["id"].as_str().unwrap()]))
    .await;
    assert_eq!(revoked.code, Some(0), "{}", revoked.messages);
    eventually("the session ends with its key", async || {
        shown(&other).await.status == 401
    })
    .await;
}

#[tokio::test]
async fn pages_of_others_neither_act_nor_read() {
    let bank = Bank::open().await;
    let browser = bank.sign_in("abel").await;
    let id = bank.approval("rent").await;
    let path = format!("/admin/v1/approvals/{id}/decision");
    let decide = || HttpRequest::post(&path, json!({"decision": "approve"}).to_string());
    let own = format!("http://{}", desk_of(&bank.site));
    let (cookie, csrf) = (&browser.cookie, &browser.csrf);
    let other_port = "http://127.0.0.1:1";
    let tried = [
        (
            "no token",
            decide().header("cookie", cookie).header("origin", &own),
        ),
        (
            "a wrong token",
            decide()
                .header("cookie", cookie)
                .header("origin", &own)
                .header("x-csrf-token", "x"),
        ),
        (
            "no origin",
            decide()
                .header("cookie", cookie)
                .header("x-csrf-token", csrf),
        ),
        (
            "another page of this machine",
            decide()
                .header("cookie", cookie)
                .header("origin", other_port)
                .header("x-csrf-token", csrf),
        ),
        (
            "a page of strangers",
            decide()
                .header("cookie", cookie)
                .header("origin", "https://evil.example")
                .header("x-csrf-token", csrf),
        ),
        (
            "a sandboxed page",
            decide()
                .header("cookie", cookie)
                .header("origin", "null")
                .header("x-csrf-token", csrf),
        ),
        (
            "a site of others",
            browser
                .dress(&bank, decide())
                .header("sec-fetch-site", "same-site"),
        ),
        (
            "a read across sites",
            browser
                .dress(&bank, get("/approvals"))
                .header("sec-fetch-site", "cross-site"),
        ),
        (
            "a rebound name",
            browser
                .dress(&bank, get("/approvals"))
                .with("host", "evil.example"),
        ),
        (
            "a key of a page of strangers",
            decide()
                .header("x-api-key", bank.key("abel"))
                .header("origin", "https://evil.example"),
        ),
    ];
    for (what, request) in tried {
        let response = bank.ask(request).await;
        assert_eq!(response.status, 403, "{what}: {}", response.text());
    }
    let pending = bank.as_of("vera", get("/approvals")).await.json();
    assert_eq!(pending["approvals"][0]["id"], id.as_str(), "{pending}");
    // A preflight allows nothing.
    let preflight = HttpRequest::new("OPTIONS", &path)
        .header("origin", "https://evil.example")
        .header("access-control-request-method", "POST");
    let preflight = bank.ask(preflight).await;
    assert!(preflight.header("access-control-allow-origin").is_none());
    // The page itself may.
    let done = bank.ask(browser.dress(&bank, decide())).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(done.json()["state"], "approved");
}

#[tokio::test]
async fn every_answer_keeps_others_from_framing_sniffing_and_keeping_it() {
    let bank = Bank::open().await;
    let mut requests: Vec<(String, HttpRequest, bool)> = desk::files()
        .iter()
        .map(|it| (it.path.clone(), HttpRequest::get(&it.path), true))
        .collect();
    requests.push(("an answer".to_owned(), get("/session"), false));
    requests.push(("nothing".to_owned(), HttpRequest::get("/nothing"), false));
    for (what, request, is_file) in requests {
        let response = bank.ask(request).await;
        let policy = response
            .header("content-security-policy")
            .unwrap_or_default();
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.contains(part), "{what}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(response.header(name), Some(value), "{what}");
        }
        let keep = response.header("cache-control").unwrap();
        let expected = match what.as_str() {
            "/" => "no-cache",
            _ if is_file => "public, max-age=31536000, immutable",
            _ => "no-store",
        };
        assert_eq!(keep, expected, "{what}");
        if is_file {
            assert_eq!(response.status, 200, "{what}");
            let text = response.text();
            // Nothing is inline, and nothing makes markup of text.
            let never = match what.as_str() {
                "/" => &["<script>", "<style", " style=", " onclick=", "javascript:"][..],
                _ => &[
                    "innerHTML",
                    "insertAdjacent",
                    "document.write",
                    "eval(",
                    "Function(",
                ][..],
            };
            for part in never.iter().filter(|_| !what.contains("preact")) {
                assert!(!text.contains(part), "{what}: {part}");
            }
        }
    }
}

#[tokio::test]
async fn a_decision_is_on_record_with_who_how_and_from_where() {
    let bank = Bank::open().await;
    let id = bank.approval("rent").await;
    let path = format!("/approvals/{id}");
    let shown = bank.as_of("vera", get(&path)).await.json();
    let approval = &shown["approval"];
    assert_eq!(
        (&approval["client"], &approval["state"]),
        (&json!("agent"), &json!("pending"))
    );
    assert_eq!(approval["arguments"], json!({"mark": "rent"}));
    let decide =
        |body: Value| HttpRequest::post(&format!("/admin/v1{path}/decision"), body.to_string());
    // Who wants to call may not agree to it, rights or not.
    let own = bank
        .as_of("agent", decide(json!({"decision": "approve"})))
        .await;
    assert_eq!(own.status, 403, "{}", own.text());
    // Another than what was looked at.
    let other = decide(json!({"decision": "approve", "binding": "00"}));
    assert_eq!(bank.as_of("abel", other).await.status, 409);
    let wrong = decide(json!({"decision": "perhaps"}));
    assert_eq!(bank.as_of("abel", wrong).await.status, 400);
    let body =
        json!({"decision": "approve", "reason": "called her", "binding": approval["binding"]});
    let done = bank.as_of("abel", decide(body)).await.json();
    assert_eq!(done["decided_by"], "operator:abel", "{done}");
    assert_eq!(done["decided_reason"], "called her");
    let proof = done["decided_proof"].as_str().unwrap();
    assert_eq!(
        proof,
        "API key of abel, approver of the desk, from 127.0.0.1"
    );
    let again = decide(json!({"decision": "deny"}));
    assert_eq!(bank.as_of("abel", again).await.status, 409);
    // The command says the same of it.
    let words = ["approvals", "show", &id, "--format", "json"];
    let told: Value = serde_json::from_str(&run(bank.site.command(&words)).await.output).unwrap();
    let mut same = done.clone();
    same["decided_by"] = told["decided_by"].clone();
    assert_eq!(told, same);
    // The next of the same client is shown beside it.
    let next = bank.approval("car").await;
    let shown = bank
        .as_of("vera", get(&format!("/approvals/{next}")))
        .await
        .json();
    assert_eq!(shown["agreed_before"]["arguments"]["mark"], "rent");
}

#[tokio::test]
async fn the_api_answers_as_its_document_says() {
    let bank = Bank::open().await;
    let id = bank.approval("rent").await;
    let document = bank.as_of("vera", get("/openapi.json")).await.json();
    let paths = document["paths"].as_object().unwrap();
    let calls = bank.as_of("vera", get("/calls?limit=1")).await.json();
    let call = calls["calls"][0]["call"].as_str().unwrap().to_owned();
    let mut checked = 0;
    for (template, operations) in paths {
        let Some(operation) = operations.get("get") else {
            continue;
        };
        let Some(schema) = operation.pointer("/responses/200/content/application~1json/schema")
        else {
            continue;
        };
        if template.contains("{name}") && template.contains("upstreams") {
            continue;
        }
        let path = template
            .replace("{name}", "append")
            .replace("{id}", &id)
            .replace("{call}", &call);
        let response = bank.as_of("olga", HttpRequest::get(&path)).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        let mut schema = schema.clone();
        let whole = json!({"$defs": document["components"]["schemas"]});
        // References lead into the document.
        let text = schema
            .to_string()
            .replace("#/components/schemas/", "#/$defs/");
        schema = serde_json::from_str(&text).unwrap();
        let definitions = whole
            .to_string()
            .replace("#/components/schemas/", "#/$defs/");
        let definitions: Value = serde_json::from_str(&definitions).unwrap();
        let schema = json!({"allOf": [schema], "$defs": definitions["$defs"]});
        let validator = jsonschema::validator_for(&schema).unwrap();
        let answer = response.json();
        let faults: Vec<_> = validator
            .iter_errors(&answer)
            .map(|it| it.to_string())
            .collect();
        assert!(faults.is_empty(), "{path}: {faults:?}: {answer}");
        checked += 1;
    }
    assert!(20 <= checked, "{checked}");
    // A filter that is misspelt would show everything.
    for wrong in [
        "/calls?clinet=x",
        "/calls?limit=0",
        "/calls?limit=501",
        "/calls?since=soon",
        "/tools?q=a&q=b",
        "/approvals?state=odd",
    ] {
        assert_eq!(bank.as_of("vera", get(wrong)).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn pages_of_lists_go_on_where_they_ended() {
    let bank = Bank::open().await;
    for mark in ["a", "b", "c"] {
        bank.approval(mark).await;
    }
    for (path, list, cursor) in [
        ("/approvals?limit=2", "approvals", "before"),
        ("/calls?limit=2", "calls", "before"),
        ("/tools?limit=2", "tools", "after"),
    ] {
        let (mut seen, mut next) = (Vec::new(), String::new());
        for _ in 0..20 {
            let more = if next.is_empty() {
                String::new()
            } else {
                format!("&{cursor}={next}")
            };
            let page = bank
                .as_of("vera", get(&format!("{path}{more}")))
                .await
                .json();
            let items = page[list].as_array().unwrap();
            assert!(items.len() <= 2);
            let name = |it: &Value| {
                it.get("id")
                    .or(it.get("call"))
                    .or(it.get("name"))
                    .unwrap()
                    .to_string()
            };
            seen.extend(items.iter().map(name));
            match page["next"].as_str() {
                Some(more) => next = more.to_owned(),
                None => break,
            }
        }
        let different: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!(different.len(), seen.len(), "{path}: {seen:?}");
        assert!(3 <= seen.len(), "{path}: {seen:?}");
    }
}

#[tokio::test]
async fn activity_comes_as_it_happens_and_goes_on_where_it_broke() {
    let bank = Bank::open().await;
    let key = format!("Bearer {}", bank.key("vera"));
    let request = || {
        get("/activity")
            .header("authorization", &key)
            .header("accept", "text/event-stream")
    };
    let mut stream = bank.desk().stream(&request()).await;
    bank.approval("rent").await;
    let mut last = String::new();
    let mut kinds = Vec::new();
    while !kinds.contains(&"ended".to_owned()) {
        let event = stream.next_event().await.unwrap();
        if event.event.as_deref() != Some("entry") {
            continue;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap();
        last = data["sequence"].to_string();
        kinds.push(data["event"].as_str().unwrap().to_owned());
        if data["event"] == "ended" {
            assert_eq!(data["call"]["client"], "agent");
            assert_eq!(data["call"]["outcome"], "denied");
        }
    }
    drop(stream);
    // What comes meanwhile is told to who comes back.
    bank.approval("car").await;
    let mut stream = bank
        .desk()
        .stream(&request().header("last-event-id", &last))
        .await;
    let mut seen = last.parse::<u64>().unwrap();
    let mut found = false;
    while !found {
        let event = stream.next_event().await.unwrap();
        if event.event.as_deref() != Some("entry") {
            continue;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap();
        let sequence = data["sequence"].as_u64().unwrap();
        assert!(seen < sequence, "{seen} {sequence}");
        seen = sequence;
        found = data["call"]["arguments"]["mark"] == "car";
    }
}

#[tokio::test]
async fn the_activity_of_a_key_ends_when_the_key_is_revoked() {
    let bank = Bank::open().await;
    let key = format!("Bearer {}", bank.key("vera"));
    let request = get("/activity").header("authorization", &key);
    let mut stream = bank.desk().stream(&request).await;
    let keys = bank.as_of("olga", get("/keys")).await.json();
    let keys = keys["keys"].as_array().unwrap();
    let of_vera = keys.iter().find(|it| it["principal"] == "vera").unwrap();
    let id = of_vera["id"].as_str().unwrap();
    // A connection on which nothing happens says that it goes on.
    let alive = async {
        while let Some(event) = stream.next_event().await {
            if event.event.as_deref() == Some("alive") {
                return true;
            }
        }
        false
    };
    assert!(alive.await);
    let revoke = HttpRequest::new("DELETE", &format!("/admin/v1/keys/{id}"));
    assert_eq!(bank.as_of("olga", revoke).await.status, 200);
    let ended = async { while stream.next_event().await.is_some() {} };
    tokio::time::timeout(GENEROUS, ended).await.unwrap();
}

#[tokio::test]
async fn what_a_request_has_too_much_or_misspelt_is_an_error_and_no_fact() {
    let bank = Bank::open().await;
    for path in [
        "/calls?outcome=suceeded",
        "/ledger/export?outcome=suceeded",
        "/notes?kind=operator_actd",
        "/keys?principal=ana",
        "/health?x=1",
    ] {
        let response = bank.as_of("vera", get(path)).await;
        assert_eq!(response.status, 400, "{path}: {}", response.text());
    }
    for path in ["/calls?outcome=open", "/notes?kind=task_created", "/keys"] {
        let response = bank.as_of("vera", get(path)).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
    }
    let id = bank.approval("rent").await;
    let path = format!("/admin/v1/approvals/{id}/decision");
    let decide = HttpRequest::post(&path, r#"["approve", "a", null]"#);
    assert_eq!(bank.as_of("abel", decide).await.status, 400);
    for name in ["operator:ben", "system"] {
        let body = json!({"principal": name}).to_string();
        let made = HttpRequest::post("/admin/v1/keys", body);
        let made = bank.as_of("olga", made).await;
        assert_eq!(made.status, 400, "{name}: {}", made.text());
    }
    // Classes of the rules are the risk of a tool that states none.
    let tool = bank.as_of("vera", get("/tools/append")).await.json();
    assert_eq!(tool["tool"]["risk"], "financial", "{tool}");
}

#[tokio::test]
async fn a_call_is_shown_with_what_proves_it() {
    let bank = Bank::open().await;
    bank.approval("rent").await;
    let calls = bank.as_of("vera", get("/calls?client=agent")).await.json();
    let call = calls["calls"][0]["call"].as_str().unwrap();
    eventually("the call is in the chain", async || {
        let shown = bank
            .as_of("vera", get(&format!("/calls/{call}")))
            .await
            .json();
        shown["proof"]["is_intact"] == json!(true)
    })
    .await;
    let verified = bank
        .as_of("vera", HttpRequest::post("/admin/v1/ledger/verify", ""))
        .await;
    assert_eq!(verified.json()["sound"], true, "{}", verified.text());
    let export = bank.as_of("vera", get("/ledger/export?client=agent")).await;
    let first: Value = serde_json::from_str(export.text().lines().next().unwrap()).unwrap();
    assert_eq!(first["call"], call);
}

#[tokio::test]
async fn what_operators_do_is_on_record_before_it_is_done() {
    let bank = Bank::open().await;
    let made = HttpRequest::post(
        "/admin/v1/keys",
        json!({"principal": "ci", "roles": [], "expires": "1d"}).to_string(),
    );
    let made = bank.as_of("olga", made).await.json();
    let (key, id) = (
        made["key"].as_str().unwrap(),
        made["record"]["id"].as_str().unwrap(),
    );
    let listed = bank.as_of("vera", get("/keys")).await;
    assert!(listed.text().contains(id) && !listed.text().contains(key));
    let revoke = HttpRequest::new("DELETE", &format!("/admin/v1/keys/{id}"));
    assert_eq!(
        bank.as_of("olga", revoke).await.json()["record"]["state"],
        "revoked"
    );
    let call = HttpRequest::post(
        "/admin/v1/tools/count/call",
        r#"{"arguments": {"text": "a b"}}"#,
    );
    let called = bank.as_of("olga", call).await;
    let notes = bank
        .as_of("vera", get("/notes?kind=operator_acted"))
        .await
        .json();
    let acts: Vec<_> = notes["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            (
                it["actor"].as_str().unwrap().to_owned(),
                it["detail"]["what"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let expected = |what: &str| ("operator:olga".to_owned(), what.to_owned());
    for what in ["key_create", "key_revoke"] {
        assert!(acts.contains(&expected(what)), "{acts:?}");
    }
    let proof = notes["notes"][0]["detail"]["proof"].as_str().unwrap();
    assert_eq!(
        proof,
        "API key of olga, operator of the desk, from 127.0.0.1"
    );
    // There is no such tool, which is the same to everybody who may ask.
    assert_eq!(called.status, 404, "{}", called.text());
    let call = HttpRequest::post(
        "/admin/v1/tools/echo/call",
        r#"{"arguments": {"value": 18446744073709551617.10}}"#,
    );
    let called = bank.as_of("olga", call).await;
    assert_eq!(called.status, 200, "{}", called.text());
    // Governed and recorded as the call of the person.
    let calls = bank.as_of("vera", get("/calls?client=olga")).await;
    assert!(
        calls.text().contains("18446744073709551617.10"),
        "{}",
        calls.text()
    );
}

#[tokio::test]
async fn the_command_signs_in_once_where_nobody_proves_anything() {
    let site = Site::new(json!({"desk": {"enabled": true, "port": 0}}));
    let none = run(site.command(&["desk"])).await;
    assert_eq!(none.code, Some(1));
    assert!(
        none.messages.contains("no desk is served"),
        "{}",
        none.messages
    );
    // Also beside a client on standard input and output.
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    let client = HttpClient::new(desk_of(&site));
    let said = run(site.command(&["desk"])).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    let ticket = said
        .output
        .trim()
        .rsplit_once("/#/sign-in/")
        .unwrap()
        .1
        .to_owned();
    let sign_in = || HttpRequest::post("/admin/v1/session", json!({"ticket": ticket}).to_string());
    let response = client.exchange(&sign_in()).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let session = response.json();
    assert_eq!(session["role"], "operator");
    assert!(
        session["proof"]
            .as_str()
            .unwrap()
            .starts_with("file of the server, read as OS user ")
    );
    let browser = Browser::of(&response);
    let page = get("/health").header("cookie", &browser.cookie);
    assert_eq!(client.exchange(&page).await.status, 200);
    // Once.
    assert_eq!(client.exchange(&sign_in()).await.status, 401);
    // A name that a client claims opens nothing, and neither does a wrong secret.
    let claimed = get("/health").header("x-mcp-client-id", "operator");
    assert_eq!(client.exchange(&claimed).await.status, 401);
    let wrong = HttpRequest::post("/admin/v1/tickets", "").header("authorization", "Bearer guess");
    assert_eq!(client.exchange(&wrong).await.status, 401);
    let mode = std::fs::metadata(site.path("ledger.db.desk")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
        0o600
    );
    server.close_input();
    server.wait_exit(crate::support::END).await;
    assert!(!site.path("ledger.db.desk").exists());
}

#[tokio::test]
async fn tasks_of_all_clients_are_seen_and_their_cancellation_is_on_record() {
    let mut settings = Bank::settings();
    settings["tasks"] = json!({"after_seconds": 0});
    let bank = Bank::at(Site::new(settings)).await;
    let key = format!("Bearer {}", bank.key("agent"));
    let mut client = crate::tasks::knowing(bank.server.client().with_header("authorization", &key));
    let id = crate::tasks::created(&mut client, "nap", json!({"seconds": 600})).await;
    let short = crate::tasks::created(&mut client, "nap", json!({"seconds": 0.1})).await;
    crate::tasks::ended(&mut client, &short).await;

    let list = async |query: &str| {
        let response = bank.as_of("vera", get(&format!("/tasks{query}"))).await;
        assert_eq!(response.status, 200, "{query}: {}", response.text());
        response.json()
    };
    let all = list("").await;
    let [newest, oldest] = &all["tasks"].as_array().unwrap()[..] else {
        panic!("{all}");
    };
    assert_eq!(
        (&newest["id"], &newest["state"]),
        (&json!(short), &json!("completed"))
    );
    assert_eq!(
        (&newest["owner"], &newest["attempt"]),
        (&json!(null), &json!(null))
    );
    assert_eq!(
        (&oldest["id"], &oldest["state"]),
        (&json!(id), &json!("working"))
    );
    assert_eq!(
        (&oldest["client"], &oldest["capability"]),
        (&json!("agent"), &json!("tool/nap"))
    );
    assert_eq!(oldest["owner"]["state"], "this", "{oldest}");
    assert_eq!(
        (&oldest["owner"]["has_lapsed"], &oldest["attempt"]),
        (&json!(false), &json!(1))
    );
    let text = all.to_string();
    assert!(
        !text.contains("rested"),
        "what came of a task is its client's: {text}"
    );
    // Page by page, and by filters.
    let first = list("?limit=1").await;
    assert_eq!(first["tasks"][0]["id"], json!(short));
    let second = list(&format!(
        "?limit=1&before={}",
        first["next"].as_str().unwrap()
    ))
    .await;
    assert_eq!(second["tasks"][0]["id"], json!(id));
    assert_eq!(
        list("?state=running").await["tasks"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(list("?client=nobody").await["tasks"], json!([]));
    for wrong in ["?state=runing", "?before=x", "?limit=0", "?clint=agent"] {
        let response = bank.as_of("vera", get(&format!("/tasks{wrong}"))).await;
        assert_eq!(response.status, 400, "{wrong}");
    }
    let nodes = bank.as_of("vera", get("/nodes")).await.json();
    assert_eq!(
        (&nodes["is_shared"], &nodes["nodes"][0]["state"]),
        (&json!(false), &json!("alive"))
    );
    assert_eq!(
        (&nodes["nodes"][0]["tasks"], &nodes["nodes"][0]["is_this"]),
        (&json!(1), &json!(true))
    );

    // Nothing is cancelled by those who may only look or decide.
    let cancel = |id: &str| HttpRequest::post(&format!("/admin/v1/tasks/{id}/cancel"), "");
    for name in ["vera", "abel"] {
        assert_eq!(bank.as_of(name, cancel(&id)).await.status, 403);
    }
    let cancelled = bank.as_of("olga", cancel(&id)).await;
    assert_eq!(
        (cancelled.status, cancelled.json()["outcome"].clone()),
        (200, json!("cancelled"))
    );
    assert_eq!(
        crate::tasks::task(&mut client, &id).await["status"],
        "cancelled"
    );
    assert_eq!(bank.as_of("olga", cancel(&id)).await.status, 409);
    assert_eq!(bank.as_of("olga", cancel("nothing")).await.status, 404);
    eventually("the handler was stopped", async || {
        bank.site.read("naps").contains("cancelled")
    })
    .await;
    let notes = bank
        .as_of("vera", get("/notes?kind=operator_acted"))
        .await
        .json();
    let acts = notes["notes"].as_array().unwrap();
    let acts: Vec<_> = acts
        .iter()
        .filter(|it| it["detail"]["what"] == "task_cancel")
        .collect();
    let [act] = acts[..] else { panic!("{notes}") };
    assert_eq!(
        (&act["actor"], &act["subject"]),
        (&json!("operator:olga"), &json!(id))
    );
    assert_eq!(act["detail"]["client"], "agent", "{act}");
}

#[tokio::test]
async fn without_being_asked_for_there_is_no_desk() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    assert!(!site.path("ledger.db.desk").exists());
    let response = server.client().exchange(&get("/session")).await;
    assert_eq!(response.status, 404);
}
