//! HTTP services as resources: what is asked, where requests cannot be led, and which changes are told.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use adapter_tools::{ToolCx, ToolError};
use http_client::{AllowPrivate, Client, ClientOptions, Reach};
use mcp_protocol::model::{Complete, CompletionReference, ReadResource, ReadResourceResult};
use mcp_server::{ReadFailure, ToolSource};
use resources::{Endpoint, ServiceOptions, Services, Variable};
use serde_json::json;
use support::MayRead;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Answers each request with what `answer` makes of its head: everything after the version in the status line.
struct Site {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept) = (Arc::new(answer), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = stream.read_u8().await else {
                            return;
                        };
                        head.push(byte);
                    }
                    let head = String::from_utf8(head).unwrap();
                    kept.lock().unwrap().push(head.clone());
                    let told = [b"HTTP/1.1 ".as_slice(), &answer(&head)].concat();
                    let _hung_up = stream.write_all(&told).await;
                });
            }
        });
        Self { port, seen }
    }

    fn take_seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

fn told(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
        .into()
}

fn client(allowed: &[&str]) -> Client {
    Client::new(ClientOptions {
        reach: Reach::Public(AllowPrivate::parse(allowed).unwrap()),
        ..ClientOptions::default()
    })
    .unwrap()
}

fn endpoint(path: &str) -> Endpoint {
    Endpoint {
        path: path.to_owned(),
        ..Endpoint::default()
    }
}

fn options(base_url: String, endpoints: &[(&str, Endpoint)]) -> ServiceOptions {
    let resources = endpoints.iter().cloned();
    ServiceOptions {
        resources: resources.map(|(name, it)| (name.to_owned(), it)).collect(),
        timeout: Duration::from_secs(5),
        max_bytes: 10_000,
        ..ServiceOptions::new(base_url)
    }
}

fn open(options: ServiceOptions) -> Services {
    Services::open(
        [("shop".to_owned(), options)].into(),
        &client(&["127.0.0.1"]),
    )
    .unwrap()
}

async fn read(services: &Services, uri: &str) -> Result<ReadResourceResult, ReadFailure> {
    let read = ReadResource {
        uri: uri.to_owned(),
        ..ReadResource::default()
    };
    services.resources().unwrap().read(read).await
}

async fn text(services: &Services, uri: &str) -> String {
    let read = read(services, uri).await.unwrap();
    read.contents[0].text.clone().unwrap()
}

fn why(failure: ReadFailure) -> String {
    match failure {
        ReadFailure::Unreadable(error) => error.to_string(),
        ReadFailure::Values(why) => format!("values: {why}"),
        other => other.to_string(),
    }
}

#[tokio::test]
async fn what_a_service_answers_is_read() {
    let site = Site::start(|head| match head.split(' ').nth(1).unwrap() {
        "/api/suppliers" => told("200 OK", "content-type: application/json\r\n", "[1]"),
        "/api/stock/TEA%2D1" | "/api/stock/TEA-1?site=north" => told(
            "200 OK",
            "content-type: text/plain; charset=utf-8\r\n",
            "seven",
        ),
        "/api/picture" => [
            b"200 OK\r\nconnection: close\r\ncontent-type: image/png\r\ncontent-length: 3\r\n\r\n"
                .to_vec(),
            vec![0, 255, 1],
        ]
        .concat(),
        "/api/untyped" => told("200 OK", "content-type: a b c\r\n", "{}"),
        "/api/empty" => told("204 No Content", "", ""),
        "/api/echo" => {
            let token = head
                .lines()
                .find_map(|it| it.strip_prefix("authorization: "));
            told("200 OK", "", token.unwrap())
        }
        "/api/large" => told("200 OK", "", &"x".repeat(10_001)),
        "/api/packed" => told("200 OK", "content-encoding: gzip\r\n", "x"),
        "/api/refused" => told("422 Unprocessable", "", ""),
        "/api/locked" => told("401 Unauthorized", "", ""),
        "/api/broken" => told("500 Oh", "", "secret stack"),
        "/api/half" => b"200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec(),
        _ => told("404 Not Found", "", "nothing"),
    })
    .await;
    redaction::know(["canary-of-services"]);
    let names = [
        "suppliers",
        "picture",
        "untyped",
        "empty",
        "echo",
        "large",
        "packed",
        "refused",
        "locked",
        "broken",
        "half",
        "absent",
    ];
    let mut endpoints: Vec<_> = names.map(|it| (it, endpoint(&format!("/{it}")))).into();
    let typed = Endpoint {
        media_type: Some("application/json".to_owned()),
        description: Some("Typed here.".to_owned()),
        ..endpoint("/untyped")
    };
    endpoints.push(("typed", typed));
    endpoints.push(("stock", endpoint("/stock/{sku}?site={site}")));
    let headers = BTreeMap::from([(
        "Authorization".to_owned(),
        "Bearer canary-of-services".to_owned(),
    )]);
    let options = ServiceOptions {
        headers,
        ..options(format!("http://127.0.0.1:{}/api/", site.port), &endpoints)
    };
    assert!(!format!("{options:?}").contains("canary"), "{options:?}");
    let shop = open(options);
    assert!(!format!("{shop:?}").contains("canary"));
    let offered = shop.resources().unwrap();
    let listed = |uri: &str| offered.entries().iter().any(|it| it.resource.uri == uri);
    assert!(listed("api://shop/suppliers") && !listed("api://shop/stock"));
    let templates: Vec<_> = offered
        .templates()
        .iter()
        .map(|it| &it.uri_template)
        .collect();
    assert_eq!(templates, ["api://shop/stock{?site,sku}"]);
    // Nothing was asked before somebody has read.
    assert!(site.take_seen().is_empty());

    let suppliers = read(&shop, "api://shop/suppliers").await.unwrap();
    assert_eq!(
        suppliers.contents[0].mime_type.as_deref(),
        Some("application/json")
    );
    assert_eq!(suppliers.contents[0].text.as_deref(), Some("[1]"));
    let head = site.take_seen().pop().unwrap();
    for line in [
        "GET /api/suppliers HTTP/1.1",
        "authorization: Bearer canary-of-services",
        "accept-encoding: identity",
    ] {
        assert!(head.lines().any(|it| it == line), "{head}");
    }
    assert_eq!(
        text(&shop, "api://shop/stock?site=north&sku=TEA-1").await,
        "seven"
    );
    let picture = read(&shop, "api://shop/picture").await.unwrap();
    assert_eq!(picture.contents[0].blob.as_deref(), Some("AP8B"));
    let untyped = read(&shop, "api://shop/untyped").await.unwrap();
    assert_eq!(
        untyped.contents[0].mime_type.as_deref(),
        Some("application/octet-stream")
    );
    let typed = read(&shop, "api://shop/typed").await.unwrap();
    assert_eq!(
        typed.contents[0].mime_type.as_deref(),
        Some("application/json")
    );
    assert_eq!(text(&shop, "api://shop/empty").await, "");
    let echo = text(&shop, "api://shop/echo").await;
    assert!(
        echo.starts_with("Bearer ") && !echo.contains("canary"),
        "{echo}"
    );
    for (name, expected) in [
        ("large", "more than 10000 bytes"),
        ("packed", "encodes its answer"),
        ("refused", "values: the service does not take these values"),
        ("locked", "refuses the server's credentials"),
        ("broken", "the status 500"),
        ("half", "connection broke"),
        ("absent", "no such resource"),
        ("stock", "values: the value `sku` is missing"),
        ("stock?sku=", "values: the value `sku` is missing"),
        (
            "stock?sku=1&shelf=2",
            "values: there is no variable `shelf`",
        ),
        ("unknown", "no such resource"),
        ("suppliers/1", "no such resource"),
    ] {
        let said = why(read(&shop, &format!("api://shop/{name}"))
            .await
            .unwrap_err());
        assert!(said.contains(expected), "{name}: {said}");
        assert!(
            !said.contains("stack") && !said.contains("canary"),
            "{said}"
        );
    }
    assert_eq!(
        offered
            .governed_by("API://shop/stock?sku=%31&site=x")
            .as_deref(),
        Some("api://shop/stock")
    );
    assert_eq!(
        offered
            .canonical("API://shop/stock?sku=%31&site=x")
            .as_deref(),
        Some("api://shop/stock?site=x&sku=1")
    );
}

#[tokio::test]
async fn answers_are_kept_as_the_service_allows() {
    let version = Arc::new(AtomicUsize::new(1));
    let now = Arc::clone(&version);
    let site = Site::start(move |head| {
        let now = now.load(Ordering::SeqCst);
        let has = |line: &str| head.lines().any(|it| it == line);
        let (path, body) = (head.split(' ').nth(1).unwrap(), format!("state {now}"));
        match path {
            "/tagged" if has(&format!("if-none-match: \"v{now}\"")) => {
                told("304 Not Modified", "", "")
            }
            "/tagged" => told("200 OK", &format!("etag: \"v{now}\"\r\n"), &body),
            "/dated" if has(&format!("if-modified-since: day {now}")) => {
                told("304 Not Modified", "", "")
            }
            "/dated" => told("200 OK", &format!("last-modified: day {now}\r\n"), &body),
            "/fresh" => told("200 OK", "cache-control: max-age=100\r\n", &body),
            "/never" => told(
                "200 OK",
                "etag: \"x\"\r\ncache-control: no-store\r\n",
                &body,
            ),
            _ => told("304 Not Modified", "", ""),
        }
    })
    .await;
    let names = ["tagged", "dated", "fresh", "never", "odd"];
    let endpoints = names.map(|it| (it, endpoint(&format!("/{it}"))));
    let shop = open(options(
        format!("http://127.0.0.1:{}", site.port),
        &endpoints,
    ));
    for (name, first, requests, later) in [
        ("tagged", "state 1", 2, "state 2"),
        ("dated", "state 1", 2, "state 2"),
        ("fresh", "state 1", 0, "state 1"),
        ("never", "state 1", 2, "state 2"),
    ] {
        version.store(1, Ordering::SeqCst);
        let uri = format!("api://shop/{name}");
        assert_eq!(text(&shop, &uri).await, first);
        assert_eq!(site.take_seen().len(), 1);
        assert_eq!(text(&shop, &uri).await, first, "{name}");
        version.store(2, Ordering::SeqCst);
        assert_eq!(text(&shop, &uri).await, later, "{name}");
        let seen = site.take_seen();
        assert_eq!(seen.len(), requests, "{name}: {seen:?}");
        let has_condition = seen.iter().all(|it| it.contains("\r\nif-"));
        assert_eq!(has_condition, name != "never", "{seen:?}");
    }
    let fresh = read(&shop, "api://shop/fresh").await.unwrap();
    assert!(
        (1..=100_000).contains(&fresh.cache.ttl_ms),
        "{:?}",
        fresh.cache
    );
    // "Not modified" is no answer to one who has nothing.
    let odd = why(read(&shop, "api://shop/odd").await.unwrap_err());
    assert!(odd.contains("304"), "{odd}");
}

#[tokio::test]
async fn no_value_of_a_caller_leads_elsewhere() {
    let site = Site::start(|_| told("200 OK", "", "ok")).await;
    let checked = Variable {
        pattern: Some("[A-Z]{3}-[0-9]+".to_owned()),
        ..Variable::default()
    };
    let listed = Variable {
        values: vec!["north".to_owned(), "south".to_owned()],
        ..Variable::default()
    };
    let free = endpoint("/free/{sku}/end?site={site}&fixed=1");
    let strict = Endpoint {
        variables: BTreeMap::from([("sku".to_owned(), checked), ("site".to_owned(), listed)]),
        ..endpoint("/strict/{sku}?site={site}")
    };
    let base = format!("http://127.0.0.1:{}/api", site.port);
    let shop = open(options(base, &[("free", free), ("strict", strict)]));
    let hostile = [
        "../../admin",
        "..",
        ".",
        "%2e%2e",
        "%252e%252e",
        "..;/",
        "..%2fadmin",
        "a/../b",
        "\\..\\admin",
        "//evil.example/",
        "@evil.example",
        ":80",
        "#fragment",
        "?x=1",
        "&fixed=2",
        "a;b",
        "a=b",
        " ",
        "{site}",
        "${TOKEN}",
        "{{7*7}}",
        "$(id)",
        "http://169.254.169.254/",
        "a\r\nHost: evil",
        "a\nX: y",
        "\u{1}",
        "\u{2028}",
        "\u{ff0e}\u{ff0e}\u{ff0f}",
        "%00",
        "%0d%0aX:y",
        "+",
        "é",
    ];
    let encoded = |text: &str| {
        text.bytes()
            .map(|it| format!("%{it:02X}"))
            .collect::<String>()
    };
    let mut asked = 0;
    for text in hostile {
        let text = encoded(text);
        let uri = format!("api://shop/free?sku={text}&site={text}");
        let found = read(&shop, &uri).await;
        let seen = site.take_seen();
        match found {
            Ok(_) => {
                asked += 1;
                let head = &seen[0];
                let target = head.split(' ').nth(1).unwrap();
                let (path, query) = target.split_once('?').unwrap();
                let names: Vec<_> = path.split('/').collect();
                assert!(matches!(names[..], ["", "api", "free", _, "end"]), "{head}");
                let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-._~%".contains(&it);
                assert!(names[3].bytes().all(is_plain) && names[3] != "..", "{head}");
                assert!(
                    query.starts_with("site=") && query.ends_with("&fixed=1"),
                    "{head}"
                );
                assert_eq!(query.matches(['&', '=', '?', '#']).count(), 3, "{head}");
                let hosts = head
                    .lines()
                    .filter(|it| it.to_ascii_lowercase().starts_with("host:"));
                let expected = format!("host: 127.0.0.1:{}", site.port);
                assert_eq!(hosts.collect::<Vec<_>>(), [expected], "{head}");
            }
            Err(ReadFailure::Values(_) | ReadFailure::NotFound) => {
                assert!(seen.is_empty(), "{text}: {seen:?}")
            }
            Err(error) => panic!("{text}: {error:?}"),
        }
        for uri in [
            format!("api://shop/strict?sku={text}&site=north"),
            format!("api://shop/strict?sku=TEA-1&site={text}"),
            format!("api://shop/{text}"),
            format!("api://{text}/free?sku=1"),
            format!("api://shop/free/{text}?sku=1"),
            format!("api://shop/free?sku=1&{text}=1"),
        ] {
            assert!(read(&shop, &uri).await.is_err(), "{uri}");
            assert!(site.take_seen().is_empty(), "{uri}");
        }
    }
    assert!(10 < asked, "{asked}");
    assert!(
        read(&shop, "api://shop/strict?sku=TEA-12&site=south")
            .await
            .is_ok()
    );
    // The pattern is one of the whole value.
    for sku in ["TEA-12x", "xTEA-12", "TEA-", "TEA-1%0A", "tea-1"] {
        assert!(
            read(&shop, &format!("api://shop/strict?sku={sku}"))
                .await
                .is_err(),
            "{sku}"
        );
    }
    let long = "a".repeat(1_025);
    assert!(
        read(&shop, &format!("api://shop/free?sku={long}"))
            .await
            .is_err()
    );
    assert_eq!(site.take_seen().len(), 1);
}

#[tokio::test]
async fn no_service_is_where_it_may_not_be() {
    let site = Site::start(|_| told("200 OK", "", "inside")).await;
    let port = site.port;
    // By addresses, by names that lead to one, and by all the ways to spell them.
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f000001",
        "0x7f.0.0.1",
        "2130706433",
        "0177.0.0.1",
        "017700000001",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "127.0.0.2",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "[fd00:ec2::254]",
        "[fe80::1]",
    ];
    let closed = client(&[]);
    for host in hosts {
        let options = options(format!("http://{host}:{port}"), &[("all", endpoint("/"))]);
        match Services::open([("shop".to_owned(), options)].into(), &closed) {
            Err(error) => assert!(
                error.to_string().contains("resources.services.shop: `"),
                "{error}"
            ),
            Ok(shop) => {
                let said = timeout(PATIENCE, read(&shop, "api://shop/all"))
                    .await
                    .unwrap();
                assert!(
                    matches!(
                        said,
                        Err(ReadFailure::Unreadable(_)
                            | ReadFailure::Handler(ToolError::Unavailable { .. }))
                    ),
                    "{host}: {said:?}"
                );
            }
        }
        assert!(site.take_seen().is_empty(), "{host}");
    }
    // What is no plain address of a service is none.
    for base in [
        format!("http://user@127.0.0.1:{port}"),
        format!("http://user:password@127.0.0.1:{port}"),
        format!("http://good.example@127.0.0.1:{port}"),
        format!("http://good.example:80@127.0.0.1:{port}"),
        format!("http://good.example\\@127.0.0.1:{port}"),
        format!("http://%31%32%37.0.0.1:{port}"),
        format!("http://127.0.0.1%2f:{port}"),
        format!("http://127.0.0.1%00.good.example:{port}"),
        format!("http://127.0.0.1:{port}#"),
        format!("http://127.0.0.1:{port}?"),
        format!("http://127.0.0.1:{port}/{{sku}}"),
        format!("http://{{host}}:{port}"),
        format!("http://${{HOST}}:{port}"),
        "http://127.0.0.1:0".to_owned(),
        "http://127.0.0.1:99999".to_owned(),
        "http:///path".to_owned(),
        "http://".to_owned(),
        "//127.0.0.1".to_owned(),
        "file:///etc/passwd".to_owned(),
        "ftp://127.0.0.1".to_owned(),
        "gopher://127.0.0.1".to_owned(),
        "unix:/run/docker.sock".to_owned(),
        "jar:http://127.0.0.1!/".to_owned(),
        String::new(),
    ] {
        let options = options(base.clone(), &[("all", endpoint("/"))]);
        // Also for one who may talk to this machine.
        let opened = Services::open(
            [("shop".to_owned(), options)].into(),
            &client(&["127.0.0.1"]),
        );
        if let Ok(shop) = opened {
            let said = read(&shop, "api://shop/all").await;
            assert!(said.is_err(), "{base}: {said:?}");
        }
        assert!(site.take_seen().is_empty(), "{base}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let inside = Site::start(|_| told("200 OK", "", "inside")).await;
    let port = inside.port;
    let site = Site::start(move |head| {
        let status = head.split(' ').nth(1).unwrap().trim_start_matches('/');
        let location = format!(
            "location: http://127.0.0.1:{port}/\r\nrefresh: 0; url=http://127.0.0.1:{port}/\r\n"
        );
        told(&format!("{status} Over there"), &location, "")
    })
    .await;
    let endpoints = ["300", "301", "302", "303", "305", "307", "308"]
        .map(|it| (it, endpoint(&format!("/{it}"))));
    let shop = open(options(
        format!("http://127.0.0.1:{}", site.port),
        &endpoints,
    ));
    for (name, _) in &endpoints {
        let said = why(read(&shop, &format!("api://shop/{name}"))
            .await
            .unwrap_err());
        assert!(said.contains(name), "{said}");
    }
    assert_eq!(site.take_seen().len(), endpoints.len());
    assert!(inside.take_seen().is_empty());
}

#[tokio::test]
async fn those_who_listen_are_told_of_changes_once() {
    let state = Arc::new(AtomicUsize::new(1));
    let now = Arc::clone(&state);
    let site = Site::start(move |_| match now.load(Ordering::SeqCst) {
        0 => told("503 Not now", "", ""),
        9 => told("404 Not Found", "", ""),
        now => told(
            "200 OK",
            &format!("etag: \"{now}\"\r\n"),
            &format!("state {now}"),
        ),
    })
    .await;
    let polled = Endpoint {
        poll: Some(Duration::from_millis(20)),
        ..endpoint("/stock/{sku}")
    };
    let base = format!("http://127.0.0.1:{}", site.port);
    let shop = open(options(
        base,
        &[("stock", polled), ("silent", endpoint("/silent"))],
    ));
    let offered = shop.resources().unwrap();
    let uri = "api://shop/stock?sku=1".to_owned();
    assert!(offered.tells_of_changes(&uri) && !offered.tells_of_changes("api://shop/silent"));
    assert!(offered.hear("api://shop/silent").await.is_err());
    assert!(offered.hear("api://shop/stock?sku=%31").await.is_err());
    assert!(offered.hear("api://shop/stock").await.is_err());
    offered.hear(&uri).await.unwrap();
    // Between the first look and the first one on behalf of those who listen.
    state.store(2, Ordering::SeqCst);
    shop.listen_to([&uri]);
    let told = async || timeout(PATIENCE, shop.changed()).await.unwrap();
    assert_eq!(told().await, [uri.clone()].into());
    // A service that fails has not changed, and is told of where operators look.
    state.store(0, Ordering::SeqCst);
    let is_ok = async |ok: bool| {
        let known = async {
            while shop.health().unwrap().ok != ok {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, known).await.unwrap();
    };
    is_ok(false).await;
    let detail = shop.health().unwrap().detail.unwrap();
    assert!(
        detail.contains("`shop`") && detail.contains("503"),
        "{detail}"
    );
    assert!(offered.hear(&uri).await.is_err());
    state.store(2, Ordering::SeqCst);
    is_ok(true).await;
    assert!(
        timeout(Duration::from_millis(100), shop.changed())
            .await
            .is_err()
    );
    state.store(9, Ordering::SeqCst);
    assert_eq!(told().await, [uri.clone()].into());
    state.store(3, Ordering::SeqCst);
    assert_eq!(told().await, [uri.clone()].into());
    assert_eq!(text(&shop, &uri).await, "state 3");
    // Nobody listens any more, and nobody is asked.
    shop.listen_to([]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    site.take_seen();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(site.take_seen().is_empty());
    shop.close().await;
}

#[tokio::test]
async fn values_are_suggested_to_those_who_may_read() {
    let listed = Variable {
        values: ["north", "south", "sea"].map(str::to_owned).into(),
        ..Variable::default()
    };
    let stock = Endpoint {
        variables: BTreeMap::from([("site".to_owned(), listed)]),
        ..endpoint("/stock?site={site}&sku={sku}")
    };
    let shop = open(options(
        "http://127.0.0.1:1".to_owned(),
        &[("stock", stock)],
    ));
    let suggested = async |may: &'static str, argument: &str, value: &str| {
        let cx = ToolCx::new("ada", "1").with_resources(Arc::new(MayRead(vec![may])));
        let asked = Complete {
            reference: CompletionReference::Resource {
                uri: "api://shop/stock{?site,sku}".to_owned(),
            },
            argument: argument.to_owned(),
            value: value.to_owned(),
            context: BTreeMap::new(),
        };
        shop.prompts()
            .unwrap()
            .suggest(cx, &asked)
            .await
            .unwrap()
            .values
    };
    assert_eq!(suggested("api://", "site", "s").await, ["south", "sea"]);
    assert!(suggested("api://", "sku", "").await.is_empty());
    assert!(suggested("db://", "site", "").await.is_empty());
    let offered = shop.resources().unwrap();
    assert_eq!(
        json!(offered.entries()[0].resource.uri),
        json!("api://shop/stock")
    );
}
