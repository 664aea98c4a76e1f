//! Upstreams that want authorization.

use crate::support::{GENEROUS, Site, call, state, text, until, url_spec};
use gateway::{Reach, State, Tokens};
use mcp_server::{Sought, ToolSource};
use oauth_client::{Credentials, FileStore, Secret, TokenStore};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test]
async fn a_server_that_wants_authorization_says_so() {
    let site = Site::new();
    site.set("login", true);
    let (_server, url) = site.http().await;
    let gateway = site.gateway(vec![url_spec("up", &url)]);
    gateway.first_look(GENEROUS).await;
    assert_eq!(state(&gateway, "up"), State::LoginNeeded);
    let told = |sought| gateway.absent(sought).map(|it| it.to_string());
    let needs_login =
        "upstream `up` needs a login: its operator has to sign in; the call was not begun";
    for sought in [
        Sought::Tool("mcp_up_echo"),
        Sought::Prompt("mcp_up_greet"),
        Sought::Resource("mcp.up+file:///a.txt"),
    ] {
        assert_eq!(told(sought).as_deref(), Some(needs_login), "{sought:?}");
    }
    for other in ["mcp_up_", "mcp_other_echo", "echo"] {
        assert_eq!(told(Sought::Tool(other)), None, "{other}");
    }
    let mut narrow = url_spec("up", &url);
    narrow.deny = vec!["e*".to_owned()];
    gateway.apply(vec![narrow]);
    assert_eq!(told(Sought::Tool("mcp_up_echo")), None);
    let not_yet = "upstream `up` has not told its tools yet; the call was not begun";
    assert_eq!(told(Sought::Tool("mcp_up_pid")).as_deref(), Some(not_yet));
    let mut held = url_spec("up", &url);
    held.hold = vec!["*".to_owned()];
    gateway.apply(vec![held]);
    let held = "upstream `up` is held back by its operator; the call was not begun";
    assert_eq!(told(Sought::Tool("mcp_up_pid")).as_deref(), Some(held));
    let mut with_token = url_spec("up", &url);
    let Reach::Url { headers, .. } = &mut with_token.reach else {
        panic!()
    };
    headers.insert(http::header::AUTHORIZATION, "Bearer right".parse().unwrap());
    gateway.apply(vec![with_token]);
    gateway.first_look(GENEROUS).await;
    assert_eq!(state(&gateway, "up"), State::Ready);
    assert_eq!(
        told(Sought::Tool("mcp_up_unheard")),
        None,
        "its lists are known"
    );
    gateway.shut_down().await;
}

#[tokio::test]
async fn tokens_that_are_kept_are_used_as_soon_as_somebody_has_signed_in() {
    let site = Site::new();
    site.set("login", true);
    let (_server, url) = site.http().await;
    let tokens = site.gateway.path().join("tokens");
    let mut spec = url_spec("up", &url);
    spec.tokens = Tokens::Kept(tokens.clone());
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    assert_eq!(state(&gateway, "up"), State::LoginNeeded);
    let health = gateway.health().unwrap().detail.unwrap();
    let advice = format!("owlclaw-mcp client login --url {url}");
    assert!(health.contains(&advice), "{health}");
    let kept = Credentials {
        server: url.clone(),
        issuer: "http://127.0.0.1".to_owned(),
        tokens: Some(oauth_client::Tokens {
            access_token: Secret::new("right"),
            refresh_token: None,
            issued_at: 0,
            expires_in: None,
            requested: Vec::new(),
            client_id: "c".to_owned(),
            dpop_key: None,
        }),
        ..Credentials::default()
    };
    let store = FileStore::at(&tokens);
    store.save(&kept).await.unwrap();
    gateway.recheck("up").await.unwrap();
    let echo = || call(&gateway, "mcp_up_echo", json!({"text": "hi"}));
    assert_eq!(text(&echo().await.unwrap()), "hi");
    assert_eq!(state(&gateway, "up"), State::Ready);
    // Somebody else signs in: what was connected before is not used any more.
    let mut of_another = kept.clone();
    of_another.sign_in = Some("2".to_owned());
    store.save(&of_another).await.unwrap();
    until("it is left", || gateway.connected().is_empty()).await;
    assert_eq!(text(&echo().await.unwrap()), "hi");
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(gateway.connected(), ["up"], "nothing has changed meanwhile");
    // And signs out.
    store.remove(&kept.server, &kept.issuer).await.unwrap();
    until("it is left", || gateway.connected().is_empty()).await;
    let refused = echo().await.unwrap_err().to_string();
    assert!(refused.contains("`up` needs a login"), "{refused}");
    assert!(store.load(&kept.server).await.unwrap().is_empty());
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_client_with_a_secret_gets_a_token_once_for_many_calls() {
    let site = Site::new();
    site.set("login", true);
    let (_server, url) = site.http().await;
    let mut spec = url_spec("up", &url);
    spec.tokens = Tokens::Client {
        id: "gateway".to_owned(),
        secret: Secret::new("hunter2"),
        scopes: vec!["tools".to_owned()],
    };
    assert!(!format!("{spec:?}").contains("hunter2"));
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    let calls = (0..10).map(|_| call(&gateway, "mcp_up_echo", json!({"text": "hi"})));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(text(&answer.unwrap()), "hi");
    }
    let asked = site.read("tokens");
    assert_eq!(asked.lines().count(), 1, "{asked}");
    assert!(
        asked.contains("client_credentials") && asked.contains("tools"),
        "{asked}"
    );
    gateway.shut_down().await;
}
