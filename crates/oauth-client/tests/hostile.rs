//! Misbehaviour of servers, authorization servers and pages in browsers.

#![allow(clippy::unwrap_used)]

#[expect(dead_code, reason = "each file of tests uses a part")]
mod support;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header::WWW_AUTHENTICATE};
use oauth_client::{
    AuthorizationError, Authorizer, Browser, BrowserError, Grant, Login, Options, Pending,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use support::{Answer, Issuer, Protected, Site, headless};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

async fn world() -> (Issuer, Protected) {
    let issuer = Issuer::start().await;
    let server = Protected::start(&issuer).await;
    (issuer, server)
}

/// Error of an authorizer after a refusal with this challenge.
async fn refused(server: &str, challenge: &str) -> AuthorizationError {
    let authorizer = Authorizer::new(server, headless()).unwrap();
    let mut attempt = authorizer.attempt();
    let mut headers = HeaderMap::new();
    attempt
        .authorize(&Method::POST, server, &mut headers)
        .await
        .unwrap();
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_str(challenge).unwrap());
    attempt
        .judge(StatusCode::UNAUTHORIZED, &headers)
        .await
        .unwrap_err()
}

#[tokio::test]
async fn a_challenge_leads_to_no_private_network() {
    let inside = Site::start(|_, _| Answer::json(200, &json!({}))).await;
    let inside_https = inside.url.replace("http:", "https:");
    for place in [
        inside.url.as_str(),
        &inside_https,
        "https://169.254.169.254/latest",
        "https://10.0.0.1/x",
        "https://[::1]:1/x",
        "https://[fd00:ec2::254]/x",
        "https://localhost/x",
        "http://example.com/x",
        "file:///etc/passwd",
        "https://a@example.com/",
        "not an address",
    ] {
        let challenge = format!("Bearer resource_metadata=\"{place}\"");
        let error = refused("https://93.184.216.34/mcp", &challenge).await;
        assert!(
            matches!(error, AuthorizationError::Address { .. }),
            "{place}: {error}"
        );
    }
    // A server on this machine may name this machine, and no other network.
    let error = refused(
        "http://127.0.0.1:1/mcp",
        "Bearer resource_metadata=\"https://10.0.0.1/\"",
    );
    let error = error.await;
    assert!(
        matches!(error, AuthorizationError::Address { .. }),
        "{error}"
    );
    assert!(inside.asked("").is_empty());
}

#[tokio::test]
async fn metadata_leads_to_no_private_network_and_to_nothing_in_the_clear() {
    let (issuer, server) = world().await;
    for issuers in [
        "https://192.168.0.1",
        "http://as.example",
        "ftp://as.example",
        "https://10.1.1.1:8443/x",
    ] {
        server.set(|it| it.metadata = json!({"authorization_servers": [issuers]}));
        let error = server
            .call(&server.authorizer(headless()))
            .await
            .unwrap_err();
        assert!(
            matches!(error, AuthorizationError::Address { .. }),
            "{issuers}: {error}"
        );
    }
    server.set(|it| it.metadata = json!({}));
    for (name, address) in [
        ("token_endpoint", "http://as.example/token"),
        ("token_endpoint", "https://172.16.0.1/token"),
        ("authorization_endpoint", "javascript:alert(1)"),
        ("authorization_endpoint", "file:///etc/passwd"),
        ("authorization_endpoint", "https://192.168.0.1/reboot"),
        ("registration_endpoint", "https://169.254.169.254/"),
    ] {
        issuer.set(|it| it.metadata = json!({ name: address }));
        let error = server
            .call(&server.authorizer(headless()))
            .await
            .unwrap_err();
        assert!(
            matches!(error, AuthorizationError::Address { .. }),
            "{address}: {error}"
        );
    }
    assert!(issuer.site.asked("/token").is_empty());
}

#[tokio::test]
async fn a_server_in_the_clear_gets_no_token() {
    let error = refused("http://93.184.216.34/mcp", "Bearer").await;
    assert!(error.to_string().contains("in the clear"), "{error}");
}

#[tokio::test]
async fn metadata_of_another_is_refused() {
    let (issuer, server) = world().await;
    for resource in [
        "https://evil.example/mcp",
        "",
        "x",
        &format!("{}/other", server.site.url),
    ] {
        server.set(|it| it.metadata = json!({"resource": resource}));
        let error = server
            .call(&server.authorizer(headless()))
            .await
            .unwrap_err();
        assert!(
            matches!(error, AuthorizationError::OtherResource { .. }),
            "{resource}: {error}"
        );
    }
    server.set(|it| it.metadata = json!({}));
    for other in [
        "https://evil.example".to_owned(),
        format!("{}/", issuer.site.url),
    ] {
        issuer.set(|it| it.metadata = json!({"issuer": other}));
        let error = server
            .call(&server.authorizer(headless()))
            .await
            .unwrap_err();
        // Both are named, and no time cures it.
        let expected = &issuer.site.url;
        let told = format!("is of the issuer `{other}` and not of `{expected}`");
        assert!(error.to_string().contains(&told), "{other}: {error}");
        let cure = error.cure().unwrap();
        assert!(cure.contains(&format!("`{other}`")), "{cure}");
        assert!(cure.contains(&format!("`{expected}`")), "{cure}");
        assert!(!error.is_temporary(), "{other}: {error}");
    }
    issuer.set(|it| it.metadata = json!({"issuer": ""}));
    let error = server.call(&server.authorizer(headless())).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("names no issuer"), "{error}");
    assert!(issuer.site.asked("/authorize").is_empty());
}

#[tokio::test]
async fn a_server_without_pkce_is_refused() {
    let (issuer, server) = world().await;
    for methods in [json!(null), json!([]), json!(["plain"])] {
        issuer.set(|it| it.metadata = json!({"code_challenge_methods_supported": methods}));
        let error = server
            .call(&server.authorizer(headless()))
            .await
            .unwrap_err();
        assert!(matches!(error, AuthorizationError::NoPkce(_)), "{error}");
    }
    assert!(issuer.site.asked("/authorize").is_empty());
    assert!(issuer.site.asked("/register").is_empty());
}

#[tokio::test]
async fn redirects_of_documents_are_not_followed() {
    let issuer = Issuer::start().await;
    let metadata = format!("{}/.well-known/oauth-authorization-server", issuer.site.url);
    let moved = Site::start(move |url, asked| match asked.path.as_str() {
        "/.well-known/oauth-protected-resource/mcp" => {
            let metadata =
                json!({"resource": format!("{url}/mcp"), "authorization_servers": [url]});
            Answer::json(200, &metadata)
        }
        "/mcp" => Answer::new(401, ""),
        _ => Answer::redirect(&metadata),
    });
    let moved = moved.await;
    let server = Protected {
        site: moved,
        ..Protected::start(&issuer).await
    };
    let error = server
        .call(&server.authorizer(headless()))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("redirects are not followed"),
        "{error}"
    );
    assert!(issuer.site.asked("").is_empty());
}

#[tokio::test]
async fn documents_without_an_end_are_not_read_to_it() {
    let endless = Site::start(|_, asked| match asked.path.as_str() {
        "/mcp" => Answer::new(401, ""),
        _ => Answer {
            is_endless: true,
            ..Answer::new(200, "{")
        },
    });
    let server = Protected {
        site: endless.await,
        ..Protected::start(&Issuer::start().await).await
    };
    let began = Instant::now();
    let error = server
        .call(&server.authorizer(headless()))
        .await
        .unwrap_err();
    assert!(matches!(error, AuthorizationError::Send { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(14));
}

#[tokio::test]
async fn documents_of_nonsense_end_in_words() {
    for nonsense in [
        "",
        "[]",
        "null",
        "{\"authorization_servers\": 1}",
        "<html>",
        "{\"resource\": []}",
    ] {
        let strange = Site::start(move |_, asked| match asked.path.as_str() {
            "/mcp" => Answer::new(401, ""),
            _ => Answer::new(200, nonsense),
        });
        let server = Protected {
            site: strange.await,
            ..Protected::start(&Issuer::start().await).await
        };
        // It is taken for a server of 2025-03-26, whose default endpoints are nonsense as well.
        let error = server
            .call(&server.authorizer(headless()))
            .await
            .unwrap_err();
        let is_in_words = matches!(
            error,
            AuthorizationError::Registration { .. } | AuthorizationError::Metadata { .. }
        );
        assert!(is_in_words, "{nonsense}: {error:?}");
    }
}

async fn sign_in_with(redirect: &[(&str, &str)]) -> (Issuer, AuthorizationError) {
    let (issuer, server) = world().await;
    let redirect = redirect
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let redirect: BTreeMap<String, String> = redirect.collect();
    issuer.set(|it| it.redirect = redirect);
    let mut options = headless();
    if let Grant::Login(login) = &mut options.grant {
        login.timeout = Duration::from_secs(2);
    }
    let error = server.call(&server.authorizer(options)).await.unwrap_err();
    assert!(
        matches!(
            error,
            AuthorizationError::Login(_)
                | AuthorizationError::Denied { .. }
                | AuthorizationError::WrongAnswer { .. }
        ),
        "{error}"
    );
    assert!(issuer.site.asked("/token").is_empty());
    (issuer, error)
}

#[tokio::test]
async fn answers_of_another_sign_in_or_server_are_refused() {
    let rows: &[(&[(&str, &str)], &str)] = &[
        (&[("iss", "https://evil.example")], "and not from"),
        (&[("iss", "")], "does not say which server"),
        (
            &[("iss", "https://evil.example"), ("error", "access_denied")],
            "and not from",
        ),
        (
            &[
                ("error", "access_denied"),
                ("error_description", "no%20way"),
            ],
            "access_denied: no way",
        ),
        (&[("code", "")], "no code"),
        (&[("state", "")], "answers 400"),
        (&[("state", "other")], "answers 400"),
        (&[("code", "a&code=b")], "answers 400"),
    ];
    for (redirect, expected) in rows {
        let (_, error) = sign_in_with(redirect).await;
        assert!(
            error.to_string().contains(expected),
            "{redirect:?}: {error}"
        );
        let is_of_another = redirect.iter().any(|(name, _)| *name == "iss");
        assert_eq!(
            error.cure().is_some(),
            is_of_another,
            "{redirect:?}: {error}"
        );
        assert!(!error.is_temporary(), "{redirect:?}: {error}");
    }
}

/// Course of a failure: it passes, somebody has to sign in, or somebody has to set something right.
fn becomes(error: &AuthorizationError) -> &'static str {
    match (error.is_temporary(), error.cure()) {
        (true, None) => "passes",
        (false, None) => "sign in",
        (false, Some(_)) => "set right",
        (true, Some(cure)) => panic!("{error}: {cure}"),
    }
}

#[tokio::test]
async fn failures_say_whether_they_pass_and_what_cures_them() {
    // At the authorization endpoint (RFC 6749, section 4.1.2.1).
    for (code, expected, word) in [
        ("access_denied", "sign in", ""),
        ("login_required", "sign in", ""),
        ("server_error", "passes", ""),
        ("temporarily_unavailable", "passes", ""),
        ("unauthorized_client", "set right", "allowed this way"),
        ("unsupported_response_type", "set right", "allowed this way"),
        ("invalid_scope", "set right", "`scope`"),
        ("invalid_target", "set right", "`resource`"),
        ("invalid_request", "set right", "log"),
    ] {
        let (issuer, error) = sign_in_with(&[("error", code)]).await;
        assert_eq!(becomes(&error), expected, "{error}");
        let told = error.to_string();
        assert!(
            told.contains(code) && told.contains(&issuer.site.url),
            "{told}"
        );
        assert!(error.cure().unwrap_or_default().contains(word), "{error:?}");
    }
    // At the token endpoint (section 5.2).
    let given = |more: Value| {
        let mut given = json!({"access_token": "a", "token_type": "bearer"});
        given
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        (200, given)
    };
    let refusal = |code: &str| (400, json!({"error": code}));
    let (issuer, server) = world().await;
    for ((status, body), expected, word) in [
        (refusal("invalid_grant"), "sign in", ""),
        (refusal("server_error"), "passes", ""),
        (refusal("invalid_client"), "set right", "identifier"),
        (
            refusal("unauthorized_client"),
            "set right",
            "allowed this way",
        ),
        (
            refusal("unsupported_grant_type"),
            "set right",
            "allowed this way",
        ),
        (refusal("invalid_scope"), "set right", "`scope`"),
        (refusal("invalid_target"), "set right", "`resource`"),
        ((503, json!({"error": "invalid_client"})), "passes", ""),
        (
            given(json!({"token_type": "mac"})),
            "set right",
            "correct what it gives",
        ),
        (
            given(json!({"token_type": "N_A"})),
            "set right",
            "correct what it gives",
        ),
        (
            given(json!({"access_token": ""})),
            "set right",
            "correct what it gives",
        ),
    ] {
        issuer.set(|it| it.token_answer = Some((status, body.to_string())));
        let error = server
            .call(&server.authorizer(headless()))
            .await
            .unwrap_err();
        assert_eq!(becomes(&error), expected, "{body}: {error}");
        assert!(
            error.cure().unwrap_or_default().contains(word),
            "{body}: {error:?}"
        );
        if let Some(kind) = body["token_type"].as_str().filter(|it| *it != "bearer") {
            assert!(
                error.to_string().contains(&kind.to_ascii_lowercase()),
                "{error}"
            );
        }
    }
    issuer.set(|it| it.token_answer = None);
    // In metadata.
    for (metadata, word) in [
        (json!({"token_endpoint": null}), "token endpoint"),
        (
            json!({"authorization_endpoint": null}),
            "authorization endpoint",
        ),
        (
            json!({"token_endpoint": "http://as.example/token"}),
            "it is not https",
        ),
        (
            json!({"authorization_endpoint": "http://as.example/a"}),
            "it is not https",
        ),
        (json!({"registration_endpoint": null}), "client identifier"),
        (
            json!({"code_challenge_methods_supported": ["plain"]}),
            "PKCE",
        ),
    ] {
        issuer.set(|it| it.metadata = metadata.clone());
        let error = server
            .call(&server.authorizer(headless()))
            .await
            .unwrap_err();
        assert_eq!(becomes(&error), "set right", "{metadata}: {error}");
        assert!(error.to_string().contains(word), "{metadata}: {error}");
    }
}

/// A browser in which other pages talk to the port before the answer comes.
#[derive(Debug)]
struct Crowded(Arc<Mutex<Vec<String>>>);

impl Browser for Crowded {
    fn open<'a>(&'a self, url: &'a str) -> Pending<'a, Result<(), BrowserError>> {
        Box::pin(async move {
            let (_, query) = url.split_once('?').unwrap();
            let fields = support::fields(query);
            let (state, back) = (&fields["state"], &fields["redirect_uri"]);
            let place = back
                .strip_prefix("http://")
                .unwrap()
                .split_once('/')
                .unwrap()
                .0;
            // Connections that say nothing, as browsers open them ahead.
            let _idle = [
                TcpStream::connect(place).await?,
                TcpStream::connect(place).await?,
            ];
            let long = "x".repeat(20_000);
            let lines = [
                format!("GET /callback?code=evil&state=guess{state} HTTP/1.1"),
                "GET /callback?code=evil HTTP/1.1".to_owned(),
                "GET /favicon.ico HTTP/1.1".to_owned(),
                format!("POST /callback?code=evil&state={state} HTTP/1.1"),
                format!("GET /{long} HTTP/1.1"),
                "\u{0}\u{1}".to_owned(),
                format!("GET /callback?code=good&state={state} HTTP/1.1"),
            ];
            for line in lines {
                let mut stream = TcpStream::connect(place).await?;
                stream
                    .write_all(format!("{line}\r\nhost: {place}\r\n\r\n").as_bytes())
                    .await?;
                let mut page = String::new();
                let _ = stream.read_to_string(&mut page).await;
                self.0
                    .lock()
                    .unwrap()
                    .push(page.lines().next().unwrap_or_default().to_owned());
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn pages_of_others_neither_end_a_sign_in_nor_answer_it() {
    let (issuer, server) = world().await;
    issuer.set(|it| it.metadata = json!({"authorization_response_iss_parameter_supported": null}));
    let pages = Arc::default();
    let authorizer = server.authorizer(Options {
        grant: Grant::Login(Login::new(Crowded(Arc::clone(&pages)))),
        ..Options::default()
    });
    // The code is none of this server's, which is how it is known to have been asked.
    let error = server.call(&authorizer).await.unwrap_err();
    assert!(error.to_string().contains("invalid_grant"), "{error}");
    let asked = issuer.site.asked("/token");
    assert_eq!(
        (asked.len(), asked[0].fields()["code"].as_str()),
        (1, "good")
    );
    let bad = "HTTP/1.1 400 Bad Request";
    let pages = pages.lock().unwrap();
    assert_eq!(pages[..3], [bad, bad, "HTTP/1.1 404 Not Found"]);
    assert_eq!(pages[3..6], ["", "", ""]);
}

/// A browser that comes back with `query` and keeps the page that it is shown.
#[derive(Debug)]
struct Shown(&'static str, Arc<Mutex<Option<JoinHandle<String>>>>);

impl Browser for Shown {
    fn open<'a>(&'a self, url: &'a str) -> Pending<'a, Result<(), BrowserError>> {
        let (_, query) = url.split_once('?').unwrap();
        let fields = support::fields(query);
        let back = fields["redirect_uri"].strip_prefix("http://").unwrap();
        let (place, path) = back.split_once('/').unwrap();
        let (place, state, query) = (place.to_owned(), &fields["state"], self.0);
        let target = format!("/{path}?state={state}&{query}");
        // The sign-in does not wait for it to read the page.
        let page = tokio::spawn(async move {
            let mut stream = TcpStream::connect(&place).await.unwrap();
            let head = format!("GET {target} HTTP/1.1\r\nhost: {place}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut page = String::new();
            stream.read_to_string(&mut page).await.unwrap();
            page
        });
        *self.1.lock().unwrap() = Some(page);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn a_person_is_told_that_the_answer_was_refused() {
    let refused = "Nobody is signed in";
    for (query, promises, expected) in [
        ("code=a", Value::Null, "The answer has arrived"),
        ("code=a", json!(true), refused),
        ("error=access_denied", Value::Null, refused),
        ("code=", Value::Null, refused),
        (
            "code=a&iss=https%3A%2F%2Fevil.example",
            Value::Null,
            refused,
        ),
    ] {
        let (issuer, server) = world().await;
        let promised = json!({"authorization_response_iss_parameter_supported": promises});
        issuer.set(|it| it.metadata = promised);
        let page = Arc::default();
        let authorizer = server.authorizer(Options {
            grant: Grant::Login(Login::new(Shown(query, Arc::clone(&page)))),
            ..Options::default()
        });
        server.call(&authorizer).await.unwrap_err();
        let page = page.lock().unwrap().take().unwrap();
        let page = page.await.unwrap();
        assert!(page.contains(expected), "{query}: {page}");
    }
}

#[tokio::test]
async fn the_time_of_a_sign_in_is_that_of_all_its_requests() {
    let (issuer, server) = world().await;
    issuer.set(|it| it.delay = Duration::from_secs(60));
    let mut options = headless();
    if let Grant::Login(login) = &mut options.grant {
        login.timeout = Duration::from_secs(1);
    }
    let began = Instant::now();
    let error = server.authorizer(options).login().await.unwrap_err();
    assert!(error.to_string().contains("not done within 1 s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn answers_of_a_token_endpoint_that_are_no_tokens_are_not_used() {
    let (issuer, server) = world().await;
    let bad = |token: Value, kind: &str| {
        (
            200,
            json!({"access_token": token, "token_type": kind}).to_string(),
        )
    };
    for answer in [
        (200, String::new()),
        (200, "{}".to_owned()),
        (200, "<html>".to_owned()),
        bad(json!(""), "Bearer"),
        bad(json!("a\r\nx-evil: 1"), "Bearer"),
        bad(json!("a b"), "Bearer"),
        bad(json!("x".repeat(20_000)), "Bearer"),
        bad(json!(1), "Bearer"),
        bad(json!("a"), "mac"),
        bad(json!("a"), "DPoP"),
        (302, String::new()),
        (500, "x".to_owned()),
    ] {
        issuer.set(|it| it.token_answer = Some(answer.clone()));
        let error = server
            .call(&server.authorizer(headless()))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                AuthorizationError::Token { .. } | AuthorizationError::OutOfOrder { .. }
            ),
            "{answer:.60?}: {error}"
        );
    }
    let calls = server.site.asked("/mcp");
    assert!(calls.iter().all(|it| it.header("authorization").is_none()));
}

#[tokio::test]
async fn secrets_are_in_no_error_and_in_no_debug_form() {
    let (issuer, server) = world().await;
    let mut options = headless();
    options.client.id = Some("bank".to_owned());
    options.client.secret = Some("hush-hush-hush".into());
    let authorizer = server.authorizer(options.clone());
    server.call(&authorizer).await.unwrap();
    let kept = options.store.load(&server.url()).await.unwrap();
    let shown = format!(
        "{authorizer:?} {:?} {kept:?} {options:?}",
        authorizer.attempt()
    );
    let mut secrets = vec!["hush-hush-hush".to_owned(), "refresh-".to_owned()];
    secrets.extend(issuer.books.lock().unwrap().tokens.keys().cloned());
    for secret in &secrets {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    // An authorization server that repeats what was sent to it.
    issuer.set(|it| it.tokens.clear());
    for (code, method) in [
        ("invalid_client", "client_secret_post"),
        ("invalid_client", "client_secret_basic"),
        ("hush-hush-hush", "client_secret_basic"),
    ] {
        let echo = json!({"error": code, "error_description": "not hush-hush-hush!"});
        issuer.set(|it| {
            it.token_answer = Some((401, echo.to_string()));
            it.metadata = json!({"token_endpoint_auth_methods_supported": [method]});
        });
        let authorizer = server.authorizer(Options {
            store: Options::default().store,
            ..options.clone()
        });
        let error = server.call(&authorizer).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(
            text.contains("left out") && !text.contains("hush-hush"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_token_goes_to_no_other_server() {
    let (_, server) = world().await;
    let authorizer = server.authorizer(headless());
    server.call(&authorizer).await.unwrap();
    let mut headers = HeaderMap::new();
    for other in [
        "https://evil.example/mcp",
        "http://127.0.0.1:1/mcp",
        "http://127.0.0.1",
    ] {
        let mut attempt = authorizer.attempt();
        let error = attempt
            .authorize(&Method::POST, other, &mut headers)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("another server"), "{error}");
    }
    assert!(headers.is_empty());
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let options = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        Authorizer::new("https://mcp.example/mcp", options)
            .unwrap_err()
            .to_string()
    };
    let without_client = options(|it| it.grant = Grant::ClientCredentials);
    assert!(without_client.contains("identifier"), "{without_client}");
    let without_id = options(|it| it.client.secret = Some("x".into()));
    assert!(without_id.contains("identifier"), "{without_id}");
    let plain = options(|it| it.client.metadata_url = Some("http://app.example/c".to_owned()));
    assert!(plain.contains("https"), "{plain}");
    let network = options(|it| it.allow_private = vec!["10.0.0.0/99".to_owned()]);
    assert!(network.contains("10.0.0.0/99"), "{network}");
    for server in ["mcp.example", "stdio:x", "https://a:b@mcp.example", ""] {
        assert!(
            Authorizer::new(server, Options::default()).is_err(),
            "{server}"
        );
    }
}
