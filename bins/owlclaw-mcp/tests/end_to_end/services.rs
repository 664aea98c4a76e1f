//! HTTP services as tools: bound by skills, and described by OpenAPI documents.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, MODERN, StdioServer, wait_until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{Site, call, log, names, run, text};

const TOKEN: &str = "tok-c2VjcmV0";

/// A service of orders: it answers with what it was asked, and 404 below `/missing`.
struct Orders {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Orders {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let orders = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
        };
        let requests = Arc::clone(&orders.requests);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&requests)));
            }
        });
        orders
    }

    /// Heads and bodies, as they came.
    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn url(&self, rest: &str) -> String {
        format!("http://{}{rest}", self.address)
    }
}

async fn serve(mut stream: TcpStream, requests: Arc<Mutex<Vec<String>>>) {
    let mut buffer = Vec::new();
    loop {
        let Some((request, length)) = whole(&buffer) else {
            let mut more = [0; 4096];
            match stream.read(&mut more).await {
                Ok(0) | Err(_) => return,
                Ok(read) => buffer.extend_from_slice(&more[..read]),
            }
            continue;
        };
        buffer.drain(..length);
        let target = request.split(' ').nth(1).unwrap().to_owned();
        let status = match target.starts_with("/missing") {
            true => "404 Not Found",
            false => "200 OK",
        };
        requests.lock().unwrap().push(request);
        let body = json!({"data": {"asked": target}, "message": "nothing there"}).to_string();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The first request in `buffer`, if it is all there, and how long it is.
fn whole(buffer: &[u8]) -> Option<(String, usize)> {
    let text = std::str::from_utf8(buffer).ok()?;
    let head = text.find("\r\n\r\n")? + 4;
    let length = text[..head]
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let whole = text.get(..head + length)?;
    Some((whole.to_owned(), head + length))
}

fn bind(site: &Site, name: &str, tool: &str, binding: &Value, more: &str) {
    let binding = binding.to_string();
    let text = format!(
        "---\nname: {name}\ndescription: About {name}.\ntools:\n  {tool}:\n    description: Does {tool}.\n    \
         order_id: string\n    binding: {binding}\n{more}---\n# {name}\n"
    );
    site.write(&format!("skills/orders/{name}/SKILL.md"), text);
}

fn start(site: &Site) -> StdioServer {
    let mut command = site.command(&["start"]);
    command.env("ORDERS_TOKEN", TOKEN);
    StdioServer::spawn(command)
}

async fn tools(server: &mut StdioServer) -> Vec<Value> {
    let listed = server.request("tools/list", Value::Null).await;
    listed.result()["tools"].as_array().unwrap().clone()
}

async fn ask(server: &mut StdioServer, tool: &str, arguments: Value) -> Value {
    let answer = server.request("tools/call", call(tool, arguments)).await;
    answer.result().clone()
}

fn allowing() -> Site {
    Site::new(json!({"services": {"allow_private": ["127.0.0.1"]}}))
}

#[tokio::test]
async fn a_skill_binds_a_tool_without_any_handler() {
    for version in ["2025-06-18", MODERN] {
        let orders = Orders::start().await;
        let site = allowing();
        let mut binding = json!({
            "type": "http", "method": "GET", "url": orders.url("/orders/{order_id}"),
            "headers": {"Authorization": "Bearer ${ORDERS_TOKEN}"},
            "response_mapping": {"path": "$.data"},
        });
        bind(&site, "order-desk", "fetch-order", &binding, "");
        let mut server = start(&site);
        server.open(version).await;
        let listed = tools(&mut server).await;
        let tool = listed
            .iter()
            .find(|it| it["name"] == "fetch-order")
            .unwrap();
        assert_eq!(tool["description"], "Does fetch-order.");
        assert_eq!(
            tool["inputSchema"]["properties"]["order_id"]["type"],
            "string"
        );
        assert_eq!(tool["annotations"]["readOnlyHint"], true);
        assert_eq!(
            tool["_meta"]["io.owlclaw/skill"],
            "skill://orders/order-desk"
        );

        let answer = ask(&mut server, "fetch-order", json!({"order_id": "A/1"})).await;
        assert_eq!(
            answer["structuredContent"],
            json!({"asked": "/orders/A%2F1"}),
            "{answer}"
        );
        let [request] = orders.requests().try_into().unwrap();
        assert!(
            request.contains(&format!("authorization: Bearer {TOKEN}\r\n")),
            "{request}"
        );
        assert!(request.contains("x-request-id: "), "{request}");

        // A skill that changes changes its tool.
        binding["url"] = json!(orders.url("/v2/{order_id}"));
        bind(&site, "order-desk", "fetch-order", &binding, "");
        wait_until("it is on offer", GENEROUS, || {
            server.stderr().contains("what is on offer has changed")
        })
        .await;
        let answer = ask(&mut server, "fetch-order", json!({"order_id": "7"})).await;
        assert_eq!(
            answer["structuredContent"],
            json!({"asked": "/v2/7"}),
            "{answer}"
        );
        assert!(!server.stderr().contains(TOKEN));
        drop(server);
        assert_eq!(site.outcomes("fetch-order"), ["succeeded", "succeeded"]);
        assert!(
            !String::from_utf8_lossy(&std::fs::read(site.path("ledger.db")).unwrap())
                .contains(TOKEN)
        );
    }
}

#[tokio::test]
async fn failures_of_a_service_are_the_tools() {
    let orders = Orders::start().await;
    let site = allowing();
    let binding =
        json!({"type": "http", "method": "GET", "url": orders.url("/missing/{order_id}")});
    bind(&site, "order-desk", "fetch-order", &binding, "");
    let shadow = json!({
        "type": "http", "method": "POST", "mode": "shadow", "url": orders.url("/orders"),
        "headers": {"X-API-Key": "${ORDERS_TOKEN}"},
    });
    bind(&site, "order-shadow", "create-order", &shadow, "");
    let mut server = start(&site);
    server.open("2025-11-25").await;
    let answer = ask(&mut server, "fetch-order", json!({"order_id": "7"})).await;
    assert_eq!(answer["isError"], true);
    assert_eq!(
        text(&answer),
        "the service answered 404 Not Found: nothing there"
    );
    let answer = ask(&mut server, "fetch-order", json!({"order_id": ".."})).await;
    assert_eq!(answer["isError"], true);
    assert_eq!(orders.requests().len(), 1);

    let answer = ask(&mut server, "create-order", json!({"order_id": "7"})).await;
    let told = &answer["structuredContent"];
    assert_eq!(told["status"], "shadow", "{answer}");
    assert_eq!(told["headers"], json!({"x-api-key": "${ORDERS_TOKEN}"}));
    assert_eq!(told["body"], json!({"order_id": "7"}));
    assert_eq!(orders.requests().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_bound_is_logged_and_a_handler_comes_first() {
    let orders = Orders::start().await;
    let site = Site::new(
        json!({"services": {"allow_private": ["127.0.0.1"], "allowed_secrets": ["ORDERS_TOKEN"]}}),
    );
    let get = |more: Value| {
        let mut binding =
            json!({"type": "http", "method": "GET", "url": orders.url("/{order_id}")});
        binding
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        binding
    };
    bind(&site, "fine", "fine", &get(json!({"querry": {}})), "");
    bind(
        &site,
        "unset",
        "unset",
        &get(json!({"headers": {"X-Key": "${NOT_SET}"}})),
        "",
    );
    // It is set, and no business of a skill's.
    bind(
        &site,
        "curious",
        "curious",
        &get(json!({"headers": {"X-Key": "${PATH}"}})),
        "",
    );
    bind(
        &site,
        "inside",
        "inside",
        &get(json!({"url": "http://10.0.0.1/{order_id}"})),
        "",
    );
    bind(
        &site,
        "table",
        "table",
        &json!({"type": "sql", "query": "select 1"}),
        "",
    );
    // The application has a handler of this name.
    bind(&site, "echoing", "echo", &get(json!({})), "");
    let mut server = start(&site);
    server.open(MODERN).await;
    let listed = server.request("tools/list", Value::Null).await;
    let listed = names(listed.result(), "tools", "name");
    assert!(listed.contains(&"fine".to_owned()), "{listed:?}");
    let unbound = ["unset", "curious", "inside", "table"];
    for name in unbound {
        assert!(!listed.contains(&name.to_owned()), "{name}: {listed:?}");
    }
    assert_eq!(listed.iter().filter(|it| *it == "echo").count(), 1);
    ask(&mut server, "echo", json!({"text": "hi", "order_id": "1"})).await;
    assert_eq!(orders.requests().len(), 0);

    let lines = log(&server.stderr());
    let error = |name: &str| {
        let line = lines
            .iter()
            .filter_map(|it| it["problem"].as_str())
            .find(|it| it.starts_with(&format!("the tool `{name}` (")));
        line.unwrap_or_else(|| panic!("{name} is not in the log: {lines:?}"))
            .to_owned()
    };
    // That is how it is meant to be, and nothing to warn about.
    let is_warned = |it: &Value| it["tool"] == "echo" && it["level"] == "WARN";
    assert!(!lines.iter().any(is_warned), "{lines:?}");
    assert!(error("unset").contains("`NOT_SET`, which is not set"));
    assert!(error("curious").contains("`PATH`"));
    assert!(error("inside").contains("services.allow_private"));
    assert!(error("table").contains("`sql`"));
    let odd = lines
        .iter()
        .filter(|it| it["warning"] == "`querry` is not known and was ignored");
    assert_eq!(odd.count(), 1);
}

#[tokio::test]
async fn a_bound_tool_is_governed_as_its_skill_says() {
    let orders = Orders::start().await;
    let site = allowing();
    let binding = json!({"type": "http", "method": "GET", "url": orders.url("/{order_id}")});
    bind(
        &site,
        "order-desk",
        "fetch-order",
        &binding,
        "owlclaw:\n  constraints: {max_daily_calls: 1}\n",
    );
    let mut server = start(&site);
    server.open("2025-11-25").await;
    ask(&mut server, "fetch-order", json!({"order_id": "1"})).await;
    let refused = server
        .request("tools/call", call("fetch-order", json!({"order_id": "1"})))
        .await;
    assert_eq!(refused.failure()["code"], -32003, "{refused:?}");
    assert_eq!(orders.requests().len(), 1);
}

const DOCUMENT: &str = "
openapi: 3.0.3
paths:
  /orders/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
    get: {operationId: getOrder, summary: Tells of an order., tags: [orders]}
    delete: {operationId: removeOrder, tags: [orders]}
  /orders:
    post:
      operationId: createOrder
      tags: [orders]
      requestBody:
        required: true
        content: {application/json: {schema: {type: object, required: [item], properties: {item: {type: string}, note: {type: string, nullable: true}}}}}
  /admin:
    get: {operationId: admin, tags: [admin]}
";

fn described(orders: &Orders, more: Value) -> Site {
    let mut service = json!({
        "document": "orders.yaml", "base_url": orders.url("/v1"), "prefix": "shop_",
        "include": {"tags": ["orders"]}, "exclude": {"methods": ["delete"]},
        "headers": {"Authorization": "Bearer ${ORDERS_TOKEN}"},
    });
    service
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let site = Site::new(
        json!({"services": {"allow_private": ["127.0.0.1"], "openapi": {"shop": service}}}),
    );
    site.write("orders.yaml", DOCUMENT);
    site
}

#[tokio::test]
async fn operations_of_a_document_are_tools() {
    let orders = Orders::start().await;
    let site = described(&orders, json!({}));
    let mut command = site.command(&["tools", "list", "--format", "json"]);
    command.env("ORDERS_TOKEN", TOKEN);
    let said = run(command).await;
    let rows: Vec<Value> = serde_json::from_str(&said.output).expect(&said.messages);
    let http: Vec<_> = rows
        .iter()
        .filter(|row| row["kind"] == "http")
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(http, ["shop_createOrder", "shop_getOrder"]);

    let mut server = start(&site);
    server.open(MODERN).await;
    let answer = ask(&mut server, "shop_getOrder", json!({"id": 7})).await;
    assert_eq!(
        answer["structuredContent"]["data"]["asked"], "/v1/orders/7",
        "{answer}"
    );
    ask(
        &mut server,
        "shop_createOrder",
        json!({"item": "bolt", "note": null}),
    )
    .await;
    let requests = orders.requests();
    assert!(requests[0].starts_with("GET /v1/orders/7 ") && requests[0].contains(TOKEN));
    assert!(
        requests[1].ends_with(r#"{"item":"bolt","note":null}"#),
        "{}",
        requests[1]
    );
    let unfit = ask(&mut server, "shop_getOrder", json!({"id": "x"})).await;
    assert_eq!(unfit["isError"], true);
    drop(server);
    assert_eq!(site.outcomes("shop_getOrder"), ["succeeded", "invalid"]);

    let mut shown = site.command(&["config", "show"]);
    shown.env("ORDERS_TOKEN", TOKEN);
    let shown = run(shown).await;
    assert!(shown.output.contains("Bearer ${ORDERS_TOKEN}") && !shown.output.contains(TOKEN));
}

#[tokio::test]
async fn a_service_that_cannot_be_offered_is_told_before_anything_is_served() {
    let orders = Orders::start().await;
    let rows = [
        (
            json!({"document": "nowhere.yaml"}),
            1,
            "nowhere.yaml: No such file",
        ),
        (
            json!({"document": "app.py"}),
            1,
            "services.openapi.shop: the document",
        ),
        (
            json!({"base_url": "http://10.1.2.3/"}),
            1,
            "services.allow_private",
        ),
        (
            json!({"headers": {"X-Key": "${NOT_SET}"}}),
            2,
            "`NOT_SET`, which is not set",
        ),
        (
            json!({"headers": {"Authorization": "Bearer abc"}}),
            2,
            "must refer to an environment variable",
        ),
        (json!({"document": ""}), 2, "services.openapi.shop"),
        (
            json!({"base_url": "https://{host}/"}),
            2,
            "services.openapi.shop.base_url",
        ),
        (json!({"retry": {"max_attempts": 11}}), 2, "from 1 to 10"),
        (
            json!({"idempotency_header": "Content-Length"}),
            2,
            "services.openapi.shop.idempotency_header",
        ),
        (
            json!({"prefix": "echo-as-", "include": {}, "exclude": {"operations": ["x"]}}),
            0,
            "",
        ),
    ];
    for (more, code, named) in rows {
        let site = described(&orders, more.clone());
        let mut command = site.command(&["tools", "list"]);
        command.env("ORDERS_TOKEN", TOKEN);
        let said = run(command).await;
        assert_eq!(said.code, Some(code), "{more}: {}", said.messages);
        assert!(said.messages.contains(named), "{more}: {}", said.messages);
        assert!(!said.messages.contains(TOKEN));
    }
    let lists = [
        ("\"all of it\"]", "services.allow_private"),
        (
            "\"127.0.0.1\"], \"allowed_hosts\": [\"h:80\"]",
            "services.allowed_hosts[0]",
        ),
    ];
    for (list, named) in lists {
        let site = described(&orders, json!({}));
        let text = site.read("mcp-server.yaml");
        site.write("mcp-server.yaml", text.replace("\"127.0.0.1\"]", list));
        let mut command = site.command(&["config", "validate"]);
        command.env("ORDERS_TOKEN", TOKEN);
        let said = run(command).await;
        assert_eq!(said.code, Some(2));
        assert!(said.messages.contains(named), "{}", said.messages);
    }
}
