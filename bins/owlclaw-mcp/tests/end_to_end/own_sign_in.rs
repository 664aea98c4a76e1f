//! Credentials that clients' people give in their own browsers, and nobody for somebody else.

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpClient, HttpRequest, HttpResponse, HttpServer, free_port,
};

use crate::credentials::{World, lists, token, whoami};
use crate::support::{call, text};

const TOOL: &str = "mcp_sign_whoami";

/// A browser: it keeps one cookie of the gateway, and says where its forms are from.
struct Browser<'a> {
    server: &'a HttpServer,
    cookie: Option<String>,
}

impl<'a> Browser<'a> {
    fn new(server: &'a HttpServer) -> Self {
        Self {
            server,
            cookie: None,
        }
    }

    async fn send(&mut self, mut request: HttpRequest) -> HttpResponse {
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        let response = self.server.client().exchange(&request).await;
        if let Some(set) = response.header("set-cookie") {
            assert!(
                set.contains("HttpOnly") && set.contains("SameSite=Lax"),
                "{set}"
            );
            self.cookie = set.split(';').next().map(str::to_owned);
        }
        response
    }

    async fn get(&mut self, url: &str) -> HttpResponse {
        let origin = format!("http://{}", self.server.address());
        let target = url.strip_prefix(&origin).unwrap_or(url);
        self.send(HttpRequest::get(target)).await
    }

    async fn post(&mut self, target: &str, form: &str) -> HttpResponse {
        let origin = format!("http://{}", self.server.address());
        let request = HttpRequest::post(target, form)
            .header("content-type", "application/x-www-form-urlencoded");
        self.send(request.header("origin", &origin)).await
    }

    /// Proves who sits here, by the form on a page. Returns the page behind it.
    async fn prove(&mut self, page: &HttpResponse, key: &str) -> HttpResponse {
        assert_eq!(page.status, 200, "{}", page.text());
        let form = format!(
            "ticket={}&upstream={}&credential={key}",
            field(page, "ticket"),
            field(page, "upstream")
        );
        self.post("/sign-in/prove", &form).await
    }
}

/// The value of a field of the form on a page.
fn field(page: &HttpResponse, name: &str) -> String {
    let beginning = format!("name={name} value=\"");
    let (_, rest) = page
        .text()
        .split_once(&beginning)
        .expect("the field is there");
    rest.split('"').next().unwrap().to_owned()
}

/// The address that a page leads to.
fn link(page: &HttpResponse) -> String {
    assert_eq!(page.status, 200, "{}", page.text());
    let (_, rest) = page.text().split_once("href=\"").expect("a link");
    rest.split('"').next().unwrap().replace("&amp;", "&")
}

/// Signs in at the authorization server as a person; returns the address that leads back.
async fn consent(world: &World, url: &str, person: &str) -> String {
    world.site.write("browser", person);
    let (_, rest) = url.split_once("://").unwrap();
    let (host, target) = rest.split_once('/').unwrap();
    let client = HttpClient::new(host.parse().unwrap());
    let response = client
        .exchange(&HttpRequest::get(&format!("/{target}")))
        .await;
    response
        .header("location")
        .expect("it leads back")
        .to_owned()
}

#[tokio::test]
async fn a_client_is_asked_to_sign_in_and_its_call_goes_on() {
    let world = World::listening(free_port()).await;
    let mut server = world.site.http().await;
    let mut ana = world.client(&server, "ana");
    ana.open("2025-06-18").await;
    // Nobody's credential is there, so that no tool is known.
    let unheard = whoami(&mut ana, TOOL).await.to_string();
    let page = format!("http://{}/sign-in?upstream=sign", server.address());
    assert!(unheard.contains(&page), "{unheard}");

    let mut anas = Browser::new(&server);
    let first = anas.get(&page).await;
    assert_eq!(first.header("x-frame-options"), Some("DENY"));
    // Not by pages of others, and not without a proof.
    for origin in [
        None,
        Some("https://evil.example"),
        Some("null"),
        Some("http://127.0.0.1:1"),
    ] {
        let form = format!("ticket=&upstream=sign&credential={}", world.key("ana"));
        let mut request = HttpRequest::post("/sign-in/prove", form);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        assert_eq!(anas.send(request).await.status, 403, "{origin:?}");
    }
    let unproved = anas.prove(&first, "owl_wrong").await;
    assert_eq!(unproved.status, 401, "{}", unproved.text());
    assert!(anas.cookie.is_none());

    let authorize = link(&anas.prove(&first, world.key("ana")).await);
    let back = consent(&world, &authorize, "ana.person").await;
    // Another browser that was handed the address of the authorization server gives its account to nobody.
    let mut victims = Browser::new(&server);
    assert_eq!(victims.get(&back).await.status, 403);
    // Nor one that has a sign-in of its own under way.
    let first_of_eve = victims.get(&page).await;
    link(&victims.prove(&first_of_eve, world.key("eve")).await);
    let confused = victims.get(&back).await;
    assert_eq!(confused.status, 502, "{}", confused.text());
    assert_eq!(world.given("authorization_code").len(), 0);
    let done = anas.get(&back).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(anas.get(&back).await.status, 403, "it is good once");
    lists(&mut ana, TOOL).await;
    assert_eq!(text(&whoami(&mut ana, TOOL).await), "ana.person");

    // A client of 2025-11-25 is asked in the middle of its call.
    let mut bob = world.client(&server, "bob");
    bob.voice.capabilities = json!({"elicitation": {"url": {}}});
    bob.open("2025-11-25").await;
    let request = bob.voice.request("tools/call", call(TOOL, json!({})));
    let mut stream = bob.stream(&bob.post_of(&request)).await;
    let question = stream.message().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(question["params"]["mode"], "url", "{question}");
    let url = question["params"]["url"].as_str().unwrap().to_owned();
    assert!(!url.contains("bob") && url.contains("?ticket="), "{url}");
    let accepted = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
    assert_eq!(bob.exchange(&bob.post_of(&accepted)).await.status, 202);
    // Who follows the address of another client proves to be somebody else.
    let mut eves = Browser::new(&server);
    let lured = eves.get(&url).await;
    let refused = eves.prove(&lured, world.key("eve")).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(eves.cookie.is_none());
    let mut bobs = Browser::new(&server);
    let first = bobs.get(&url).await;
    let authorize = link(&bobs.prove(&first, world.key("bob")).await);
    assert_eq!(bobs.get(&url).await.status, 410, "it is good once");
    let back = consent(&world, &authorize, "bob.person").await;
    assert_eq!(bobs.get(&back).await.status, 200);
    let complete = stream.message().await;
    assert_eq!(
        complete["method"], "notifications/elicitation/complete",
        "{complete}"
    );
    let id = &question["params"]["elicitationId"];
    assert_eq!(&complete["params"]["elicitationId"], id);
    let answer = stream.message().await;
    assert_eq!(text(&answer["result"]), "bob.person", "{answer}");
    assert_eq!(text(&whoami(&mut ana, TOOL).await), "ana.person");

    // One of 2026-07-28 is asked by the result, and calls again; or declines.
    let mut eve = world.client(&server, "eve");
    eve.voice.capabilities = json!({"elicitation": {"url": {}}});
    let params = call(TOOL, json!({}));
    let asked = eve.post_modern("tools/call", params.clone()).await;
    let asked = asked.result().clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (key, question) = asked["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let url = question["params"]["url"].as_str().unwrap().to_owned();
    let again = |action: &str| {
        let mut again = params.clone();
        again["inputResponses"] = json!({key: {"action": action}});
        again["requestState"] = asked["requestState"].clone();
        again
    };
    let declined = eve.post_modern("tools/call", again("decline")).await;
    assert!(
        declined.response().to_string().contains("has declined"),
        "{declined:?}"
    );
    let mut eves = Browser::new(&server);
    let first = eves.get(&url).await;
    let authorize = link(&eves.prove(&first, world.key("eve")).await);
    let back = consent(&world, &authorize, "eve.person").await;
    let (answer, done) = tokio::join!(
        eve.post_modern("tools/call", again("accept")),
        eves.get(&back)
    );
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(text(answer.result()), "eve.person", "{answer:?}");
    // All use one registration, and each its own account.
    assert_eq!(world.given("registration").len(), 1);

    let signed_in = world.site.notes();
    let signed_in = signed_in.iter().filter(|it| *it == "credential_changed");
    assert_eq!(signed_in.count(), 3);
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    assert!(!server.stderr().contains("7c4n4ry"));
}

#[tokio::test]
async fn secrets_are_given_on_a_page_by_the_browser_that_proved_whose_they_are() {
    let world = World::listening(free_port()).await;
    let server = world.site.http().await;
    let page = format!("http://{}/sign-in?upstream=web", server.address());
    let mut anas = Browser::new(&server);
    let first = anas.get(&page).await;
    let form = anas.prove(&first, world.key("ana")).await;
    assert!(
        form.text().contains("name=\"secret.token\""),
        "{}",
        form.text()
    );
    let (csrf, secret) = (field(&form, "csrf"), token("ana"));
    let target = "/sign-in/secrets";
    let given = format!("csrf={csrf}&secret.token={secret}");
    // Another browser, and a form that is not of this page.
    let mut others = Browser::new(&server);
    assert_eq!(others.post(target, &given).await.status, 403);
    let forged = format!("csrf=00&secret.token={secret}");
    assert_eq!(anas.post(target, &forged).await.status, 403);
    let other_names = format!("csrf={csrf}&secret.other={secret}");
    let refused = anas.post(target, &other_names).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let form = anas.prove(&first, world.key("ana")).await;
    let given = format!("csrf={}&secret.token={secret}", field(&form, "csrf"));
    let done = anas.post(target, &given).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(!done.text().contains("7c4n4ry"));
    let mut ana = world.client(&server, "ana");
    ana.open("2025-06-18").await;
    lists(&mut ana, "mcp_web_whoami").await;
    assert_eq!(text(&whoami(&mut ana, "mcp_web_whoami").await), "ana");
    // A client that cannot be asked is told where to go.
    let mut bob = world.client(&server, "bob");
    bob.open("2025-06-18").await;
    let told = whoami(&mut bob, "mcp_web_whoami").await;
    assert!(text(&told).contains("/sign-in?ticket="), "{told}");
    assert_eq!(told["isError"], Value::Bool(true));
    // Of upstreams that want nothing of clients nothing is told.
    let mut bobs = Browser::new(&server);
    for upstream in ["nothing", "..", "%3Cscript%3E"] {
        let page = format!("/sign-in?upstream={upstream}");
        let first = bobs.get(&page).await;
        assert!(!first.text().contains("<script"), "{}", first.text());
        let form = format!(
            "ticket=&upstream={upstream}&credential={}",
            world.key("bob")
        );
        let refused = bobs.post("/sign-in/prove", &form).await;
        assert_eq!(refused.status, 404, "{}", refused.text());
    }
}
