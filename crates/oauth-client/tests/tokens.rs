//! Tokens are got, used, renewed and kept, from an authorization server on a socket.

#![allow(clippy::unwrap_used)]

mod support;

use oauth_client::{
    Assertion, AuthorizationError, Authorizer, ClientIdentity, Dpop, ExchangeOptions, Exchanger,
    FileStore, Grant, IdentityProvider, MemoryStore, Options, Recipient, Secret, SubjectKind,
    TokenStore,
};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use support::{Answer, Issuer, Protected, Site, claims, headless};

async fn world() -> (Issuer, Protected) {
    let issuer = Issuer::start().await;
    let server = Protected::start(&issuer).await;
    (issuer, server)
}

/// Has `seconds` pass for the tokens of a server.
async fn age(store: &dyn TokenStore, server: &str, seconds: u64) {
    for mut credentials in store.load(server).await.unwrap() {
        credentials.tokens.as_mut().unwrap().issued_at -= seconds;
        store.save(&credentials).await.unwrap();
    }
}

/// An authorizer with a token of an hour, of which `seconds` have passed.
async fn signed_in(issuer: &Issuer, server: &Protected, seconds: u64) -> Authorizer {
    issuer.set(|it| it.expires_in = Some(3_600));
    let options = Options {
        store: Arc::new(MemoryStore::default()),
        ..headless()
    };
    server
        .call(&server.authorizer(options.clone()))
        .await
        .unwrap();
    age(&*options.store, &server.url(), seconds).await;
    server.authorizer(options)
}

#[tokio::test]
async fn a_sign_in_is_bound_to_its_server_and_to_who_began_it() {
    let (issuer, server) = world().await;
    let authorizer = server.authorizer(headless());
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    let asked = issuer.site.asked("/authorize");
    assert_eq!(asked.len(), 1);
    let asked = asked[0].fields();
    assert_eq!(asked["resource"], server.url());
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["scope"], "mcp offline_access");
    assert_eq!(asked["prompt"], "consent");
    assert!(43 <= asked["state"].len(), "{asked:?}");
    assert!(asked["redirect_uri"].starts_with("http://127.0.0.1:"));
    let tokens = issuer.site.asked("/token");
    assert_eq!(tokens.len(), 1);
    assert_eq!(tokens[0].fields()["resource"], server.url());
    let registered = issuer.site.asked("/register");
    let registered = registered[0].json();
    assert_eq!(registered["application_type"], "native");
    assert_eq!(registered["token_endpoint_auth_method"], "none");
    assert_eq!(
        registered["grant_types"],
        json!(["authorization_code", "refresh_token"])
    );
    // Nothing is sent before the server has asked for it.
    assert_eq!(server.site.asked("/mcp")[0].header("authorization"), None);
}

#[tokio::test]
async fn a_sign_in_beforehand_asks_for_what_the_server_wants() {
    let (issuer, server) = world().await;
    let metadata = format!(
        "{}/.well-known/oauth-protected-resource/mcp",
        server.site.url
    );
    let challenge = format!("Bearer resource_metadata=\"{metadata}\", scope=\"special\"");
    server.set(|it| it.challenge = challenge);
    let authorizer = server.authorizer(headless());
    authorizer.login().await.unwrap();
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    let asked = issuer.site.asked("/authorize");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].fields()["scope"], "special offline_access");
}

#[tokio::test]
async fn a_server_that_names_no_scope_is_asked_for_none() {
    let (issuer, server) = world().await;
    server.set(|it| it.metadata = json!({"scopes_supported": null}));
    assert_eq!(
        server.call(&server.authorizer(headless())).await.unwrap(),
        200
    );
    let asked = issuer.site.asked("/authorize")[0].fields();
    assert!(!asked.contains_key("scope"), "{asked:?}");
    let mut options = headless();
    options.scopes = vec!["mine".to_owned()];
    assert_eq!(server.call(&server.authorizer(options)).await.unwrap(), 200);
    let asked = issuer.site.asked("/authorize")[1].fields();
    assert_eq!(asked["scope"], "mine offline_access");
}

#[tokio::test]
async fn a_token_outlives_the_process_in_a_file() {
    let (issuer, server) = world().await;
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        store: Arc::new(FileStore::at(directory.path().join("tokens"))),
        ..headless()
    };
    server.call(&server.authorizer(options())).await.unwrap();
    let again = server.authorizer(Options {
        grant: Grant::Stored,
        ..options()
    });
    assert_eq!(server.call(&again).await.unwrap(), 200);
    assert_eq!(issuer.site.asked("/authorize").len(), 1);
    assert_eq!(server.site.asked("/mcp").len(), 3);
    again.logout().await.unwrap();
    let gone = server.call(&again).await.unwrap_err();
    assert!(matches!(gone, AuthorizationError::LoginNeeded(_)), "{gone}");
}

#[tokio::test]
async fn a_hundred_calls_that_wait_make_one_sign_in_and_one_renewal() {
    let (issuer, server) = world().await;
    issuer.set(|it| it.delay = Duration::from_millis(100));
    let hundred = async |authorizer: Authorizer| {
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let (server, authorizer) = (server.clone(), authorizer.clone());
                tokio::spawn(async move { server.call(&authorizer).await })
            })
            .collect();
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), 200);
        }
    };
    hundred(server.authorizer(headless())).await;
    assert_eq!(issuer.grants(), ["authorization_code"]);
    hundred(signed_in(&issuer, &server, 4_000).await).await;
    let code = "authorization_code";
    assert_eq!(issuer.grants(), [code, code, "refresh_token"]);
}

#[tokio::test]
async fn a_renewal_that_fails_is_not_tried_by_everybody_who_waited() {
    let (issuer, server) = world().await;
    let authorizer = signed_in(&issuer, &server, 4_000).await;
    issuer.set(|it| {
        it.is_down = true;
        it.delay = Duration::from_millis(300);
    });
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let (server, authorizer) = (server.clone(), authorizer.clone());
            tokio::spawn(async move { server.call(&authorizer).await })
        })
        .collect();
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(error.is_temporary(), "{error}");
    }
    assert_eq!(issuer.grants(), ["authorization_code", "refresh_token"]);
    // The refresh token was kept.
    issuer.set(|it| it.is_down = false);
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(issuer.site.asked("/authorize").len(), 1);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends_and_used_while_that_fails() {
    let (issuer, server) = world().await;
    let authorizer = signed_in(&issuer, &server, 3_550).await;
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    let renewed = ["authorization_code", "refresh_token"];
    assert_eq!(issuer.grants(), renewed);
    let authorizer = signed_in(&issuer, &server, 3_550).await;
    issuer.set(|it| it.is_down = true);
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(
        issuer.grants(),
        [renewed, renewed].concat(),
        "no try for each call"
    );
}

/// The same, where nobody can be asked to sign in again.
async fn signed_in_before(issuer: &Issuer, server: &Protected, seconds: u64) -> Authorizer {
    issuer.set(|it| it.expires_in = Some(3_600));
    let options = Options {
        store: Arc::new(MemoryStore::default()),
        ..headless()
    };
    server
        .call(&server.authorizer(options.clone()))
        .await
        .unwrap();
    age(&*options.store, &server.url(), seconds).await;
    server.authorizer(Options {
        grant: Grant::Stored,
        ..options
    })
}

#[tokio::test]
async fn an_authorization_server_that_is_out_of_order_takes_no_login_away() {
    let (issuer, server) = world().await;
    let error = |code: &str| json!({"error": code}).to_string();
    for (status, body) in [
        (503, String::new()),
        (503, error("Service Unavailable")),
        (500, error("internal_error")),
        (502, "<html>".to_owned()),
        (429, error("too_many_requests")),
        (408, String::new()),
        (404, error("Not Found")),
        (403, "<html>".to_owned()),
        (302, String::new()),
        (200, "<html>".to_owned()),
        (400, error("temporarily_unavailable")),
    ] {
        let out = |it: &mut support::Books| it.token_answer = Some((status, body.clone()));
        // A token that lasts is used.
        issuer.set(|it| it.token_answer = None);
        let authorizer = signed_in_before(&issuer, &server, 3_550).await;
        issuer.set(out);
        for _ in 0..2 {
            assert_eq!(server.call(&authorizer).await.unwrap(), 200, "{body}");
        }
        issuer.set(|it| it.token_answer = None);
        // One that has ended, or that the server refuses, is renewed as soon as that can be done.
        for seconds in [4_000, 0] {
            let authorizer = signed_in_before(&issuer, &server, seconds).await;
            if seconds == 0 {
                issuer.set(|it| it.tokens.clear());
            }
            issuer.set(out);
            for _ in 0..2 {
                let error = server.call(&authorizer).await.unwrap_err();
                assert!(error.is_temporary(), "{status} {body}: {error}");
            }
            issuer.set(|it| it.token_answer = None);
            assert_eq!(server.call(&authorizer).await.unwrap(), 200, "{body}");
        }
    }
    // Metadata that is not there.
    for seconds in [4_000, 0] {
        let authorizer = signed_in_before(&issuer, &server, seconds).await;
        issuer.set(|it| {
            it.tokens.clear();
            it.is_down = true;
        });
        let error = server.call(&authorizer).await.unwrap_err();
        assert!(error.is_temporary(), "{error}");
        issuer.set(|it| it.is_down = false);
        assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    }
    assert_eq!(issuer.books.lock().unwrap().reused, 0);
    // What is a decision on the grant.
    for (status, body) in [
        (400, error("invalid_grant")),
        (403, error("invalid_grant")),
        (401, error("invalid_client")),
        (400, error("unauthorized_client")),
        (200, error("bad_refresh_token")),
    ] {
        let authorizer = signed_in_before(&issuer, &server, 4_000).await;
        issuer.set(|it| it.token_answer = Some((status, body.clone())));
        let error = server.call(&authorizer).await.unwrap_err();
        assert!(
            matches!(error, AuthorizationError::LoginNeeded(_)) && !error.is_temporary(),
            "{status} {body}: {error}"
        );
        issuer.set(|it| it.token_answer = None);
    }
}

#[tokio::test]
async fn an_authorization_server_is_not_asked_before_it_wants_to_be() {
    let (issuer, server) = world().await;
    let renewals = || {
        let grants = issuer.grants();
        grants.iter().filter(|it| *it == "refresh_token").count()
    };
    let authorizer = signed_in_before(&issuer, &server, 4_000).await;
    issuer.set(|it| {
        it.token_answer = Some((429, String::new()));
        it.retry_after = Some(2);
    });
    for _ in 0..5 {
        let error = server.call(&authorizer).await.unwrap_err();
        let rest = error.retry_after().unwrap();
        assert!(rest <= Duration::from_secs(2), "{error}: {rest:?}");
    }
    assert_eq!(renewals(), 1);
    issuer.set(|it| it.token_answer = None);
    tokio::time::sleep(Duration::from_millis(2_050)).await;
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(renewals(), 2);
}

#[tokio::test]
async fn a_call_that_is_dropped_loses_no_refresh_token() {
    let (issuer, server) = world().await;
    let authorizer = signed_in(&issuer, &server, 4_000).await;
    issuer.set(|it| {
        it.delay = Duration::from_millis(300);
    });
    let call = server.call(&authorizer);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), call)
            .await
            .is_err()
    );
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(issuer.grants(), ["authorization_code", "refresh_token"]);
}

#[tokio::test]
async fn a_refresh_token_that_is_not_taken_any_more_leads_to_a_sign_in() {
    let (issuer, server) = world().await;
    let authorizer = signed_in(&issuer, &server, 4_000).await;
    issuer.set(|it| it.refuses_refresh = true);
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    let code = "authorization_code";
    assert_eq!(issuer.grants(), [code, "refresh_token", code]);
    assert_eq!(
        issuer.site.asked("/register").len(),
        1,
        "one registration is enough"
    );
}

#[tokio::test]
async fn a_client_that_is_configured_wrongly_takes_no_login_away() {
    let (issuer, server) = world().await;
    let client = |secret: &str| ClientIdentity {
        id: Some("given".to_owned()),
        secret: Some(Secret::new(secret.to_owned())),
        ..ClientIdentity::default()
    };
    let store: Arc<dyn TokenStore> = Arc::new(MemoryStore::default());
    let options = |secret: &str| Options {
        client: client(secret),
        store: Arc::clone(&store),
        ..headless()
    };
    issuer.set(|it| it.expires_in = Some(3_600));
    server
        .call(&server.authorizer(options("old")))
        .await
        .unwrap();
    let stored = |secret: &str| Options {
        grant: Grant::Stored,
        ..options(secret)
    };
    for code in ["invalid_client", "unauthorized_client"] {
        // As long as the token lasts it is used.
        for (seconds, status) in [(3_550, Some(200)), (50, None)] {
            age(&*store, &server.url(), seconds).await;
            let authorizer = server.authorizer(stored("old"));
            issuer.set(|it| it.token_answer = Some((401, json!({"error": code}).to_string())));
            let called = server.call(&authorizer).await;
            match status {
                Some(status) => assert_eq!(called.unwrap(), status, "{code}"),
                None => {
                    let error = called.unwrap_err();
                    assert!(
                        !error.is_temporary() && error.to_string().contains(code),
                        "{error}"
                    );
                    assert!(error.cure().is_some(), "{error}");
                }
            }
            issuer.set(|it| it.token_answer = None);
        }
        // And the login is as good as before once the settings are.
        let authorizer = server.authorizer(stored("new"));
        assert_eq!(server.call(&authorizer).await.unwrap(), 200, "{code}");
    }
    assert_eq!(issuer.site.asked("/authorize").len(), 1);
    assert_eq!(issuer.books.lock().unwrap().reused, 0);
}

#[tokio::test]
async fn a_login_is_kept_whatever_requests_there_are() {
    let (issuer, server) = world().await;
    let renewals = || {
        let grants = issuer.grants();
        grants.iter().filter(|it| *it == "refresh_token").count()
    };
    let day = Duration::from_secs(86_400);
    let nobody = server.authorizer(Options::default());
    assert_eq!(nobody.keep_login(day).await.unwrap(), None);

    let store: Arc<dyn TokenStore> = Arc::new(MemoryStore::default());
    let options = || Options {
        store: Arc::clone(&store),
        ..headless()
    };
    issuer.set(|it| it.expires_in = Some(30 * 86_400));
    server.call(&server.authorizer(options())).await.unwrap();
    let kept = || {
        server.authorizer(Options {
            grant: Grant::Stored,
            ..options()
        })
    };
    // The token would be good for weeks.
    age(&*store, &server.url(), 86_300).await;
    let login = kept().keep_login(day).await.unwrap().unwrap();
    assert!(login.is_renewable);
    assert_eq!(renewals(), 0);
    // Two processes that share the store.
    age(&*store, &server.url(), 100).await;
    let (one, two) = (kept(), kept());
    let (of_one, of_two) = tokio::join!(one.keep_login(day), two.keep_login(day));
    assert_eq!(of_one.unwrap(), of_two.unwrap());
    assert_eq!(renewals(), 1);
    // Requests use what was got, and nobody has asked the server itself.
    let before = server.site.asked("/mcp").len();
    assert_eq!(server.call(&one).await.unwrap(), 200);
    assert_eq!(server.site.asked("/mcp").len(), before + 1);
    assert_eq!(renewals(), 1);

    // An outage takes nothing away.
    age(&*store, &server.url(), 90_000).await;
    let one = kept();
    issuer.set(|it| it.is_down = true);
    assert!(one.keep_login(day).await.unwrap_err().is_temporary());
    issuer.set(|it| it.is_down = false);
    let login = one.keep_login(day).await.unwrap().unwrap();
    assert!(login.is_renewable);
    assert_eq!(login.ends_at, Some(login.issued_at + 30 * 86_400));
    assert_eq!(renewals(), 3);
    // A refresh token that is not taken any more leaves the access token.
    age(&*store, &server.url(), 90_000).await;
    let one = kept();
    issuer.set(|it| it.refuses_refresh = true);
    for _ in 0..2 {
        let login = one.keep_login(day).await.unwrap().unwrap();
        assert!(!login.is_renewable && login.ends_at.is_some());
    }
    assert_eq!(renewals(), 4);
    assert_eq!(server.call(&one).await.unwrap(), 200);
    assert_eq!(issuer.site.asked("/authorize").len(), 1);
}

#[tokio::test]
async fn a_login_that_was_signed_out_elsewhere_does_not_come_back_by_its_registration() {
    let (issuer, server) = world().await;
    for seconds in [3_550, 4_000, 0] {
        issuer.set(|it| it.expires_in = Some(3_600));
        let store: Arc<dyn TokenStore> = Arc::new(MemoryStore::default());
        let options = Options {
            store: Arc::clone(&store),
            ..headless()
        };
        server
            .call(&server.authorizer(options.clone()))
            .await
            .unwrap();
        age(&*store, &server.url(), seconds).await;
        let authorizer = server.authorizer(Options {
            grant: Grant::Stored,
            ..options
        });
        // It has read the login when another process signs out, and leaves what is registered for others.
        issuer.set(|it| it.is_down = true);
        let _ = authorizer.keep_login(Duration::ZERO).await;
        issuer.set(|it| it.is_down = false);
        for mut credentials in store.load(&server.url()).await.unwrap() {
            credentials.tokens = None;
            credentials.saved_at = 0;
            store.save(&credentials).await.unwrap();
        }
        if seconds == 0 {
            issuer.set(|it| it.tokens.clear());
        }
        let renewals = issuer.grants().len();
        let gone = server.call(&authorizer).await.unwrap_err();
        assert!(matches!(gone, AuthorizationError::LoginNeeded(_)), "{gone}");
        assert_eq!(authorizer.keep_login(Duration::ZERO).await.unwrap(), None);
        assert_eq!(issuer.grants().len(), renewals, "{seconds}");
        let stored = store.load(&server.url()).await.unwrap();
        assert!(stored.iter().all(|it| it.tokens.is_none()), "{seconds}");
    }
}

#[tokio::test]
async fn a_sign_out_revokes_the_tokens_where_they_were_given() {
    let (issuer, server) = world().await;
    let revocation = format!("{}/revoke", issuer.site.url);
    let store: Arc<dyn TokenStore> = Arc::new(MemoryStore::default());
    let authorizer = server.authorizer(Options {
        store: Arc::clone(&store),
        ..headless()
    });
    let told = async || {
        server.call(&authorizer).await.unwrap();
        let mut unrevoked = authorizer.logout().await.unwrap();
        assert!(store.load(&server.url()).await.unwrap().is_empty());
        assert!(unrevoked.len() <= 1, "{unrevoked:?}");
        unrevoked.pop().map(|it| it.to_string())
    };
    issuer.set(|it| it.metadata = json!({"revocation_endpoint": revocation}));
    assert_eq!(told().await, None);
    let asked = issuer.site.asked("/revoke");
    let kinds = asked.iter().map(|it| {
        let fields = it.fields();
        assert!(fields["client_id"].starts_with("client-"), "{fields:?}");
        let kind = fields["token_type_hint"].clone();
        let beginning = kind.strip_suffix("token").unwrap().replace('_', "-");
        assert!(fields["token"].starts_with(&beginning), "{fields:?}");
        kind
    });
    let kinds: Vec<_> = kinds.collect();
    assert_eq!(kinds, ["refresh_token", "access_token"]);
    assert!(issuer.books.lock().unwrap().tokens.is_empty());
    // Nobody has signed in.
    assert!(authorizer.logout().await.unwrap().is_empty());
    assert_eq!(issuer.site.asked("/revoke").len(), 2);

    // One that keeps access tokens is told of the other.
    let answer = |status: u16, code: &str| Some((status, json!({"error": code}).to_string()));
    issuer.set(|it| it.revocation_answer = ("access_token", answer(400, "unsupported_token_type")));
    assert_eq!(told().await, None);
    // Whatever goes wrong there, nobody is signed in here, and it is told.
    for (given, expected) in [
        (
            answer(400, "unsupported_token_type"),
            "revokes no tokens of this kind",
        ),
        (
            answer(401, "invalid_client"),
            "does not revoke the tokens: invalid_client",
        ),
        (answer(503, ""), "does not revoke the tokens"),
        (Some((404, "<html>".to_owned())), "the answer is 404"),
    ] {
        issuer.set(|it| it.revocation_answer = ("refresh_token", given));
        let why = told().await.unwrap();
        assert!(why.contains(expected), "{why}");
        assert!(!why.contains("refresh-"), "{why}");
    }
    for (metadata, expected) in [
        (json!({}), "revokes no tokens"),
        (
            json!({"revocation_endpoint": "http://as.example/revoke"}),
            "it is not https",
        ),
    ] {
        issuer.set(|it| it.metadata = metadata);
        let why = told().await.unwrap();
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test]
async fn an_access_token_is_used_to_its_end_without_a_refresh_token() {
    let (issuer, server) = world().await;
    let authorizer = signed_in(&issuer, &server, 3_550).await;
    issuer.set(|it| it.refuses_refresh = true);
    for _ in 0..3 {
        assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    }
    assert_eq!(issuer.grants(), ["authorization_code", "refresh_token"]);
}

#[tokio::test]
async fn a_token_that_the_server_revoked_is_renewed_once() {
    let (issuer, server) = world().await;
    let authorizer = server.authorizer(headless());
    server.call(&authorizer).await.unwrap();
    issuer.set(|it| it.tokens.clear());
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(issuer.grants(), ["authorization_code", "refresh_token"]);
    // A server that takes no token at all is not asked for ever.
    server.set(|it| it.challenge = "Bearer error=\"invalid_token\"".to_owned());
    let other = Issuer::start().await;
    server.set(|it| {
        it.metadata = json!({"authorization_servers": [issuer.site.url]});
        it.issuer = other;
    });
    let refused = server.call(&authorizer).await.unwrap_err();
    assert!(
        matches!(refused, AuthorizationError::Rejected(_)),
        "{refused}"
    );
    let code = "authorization_code";
    assert_eq!(
        issuer.grants(),
        [code, "refresh_token", "refresh_token", code]
    );
}

#[tokio::test]
async fn processes_with_one_store_share_what_each_of_them_renews() {
    let (issuer, server) = world().await;
    issuer.set(|it| it.expires_in = Some(3_600));
    let store: Arc<dyn TokenStore> = Arc::new(MemoryStore::default());
    let options = || Options {
        store: Arc::clone(&store),
        ..headless()
    };
    server.call(&server.authorizer(options())).await.unwrap();
    age(&*store, &server.url(), 4_000).await;
    let (one, two) = (server.authorizer(options()), server.authorizer(options()));
    server.call(&one).await.unwrap();
    server.call(&two).await.unwrap();
    assert_eq!(issuer.grants(), ["authorization_code", "refresh_token"]);
    // One whose token the server refuses, too.
    issuer.set(|it| it.tokens.clear());
    server.call(&one).await.unwrap();
    server.call(&two).await.unwrap();
    let refresh = "refresh_token";
    assert_eq!(issuer.grants(), ["authorization_code", refresh, refresh]);
}

/// As many programs at once as a desktop application starts, on a store of files.
async fn at_once(server: &Protected, authorizers: Vec<Authorizer>) {
    let calls = authorizers.into_iter().map(|authorizer| {
        let server = server.clone();
        tokio::spawn(async move { server.call(&authorizer).await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn however_many_share_a_store_each_refresh_token_is_used_once() {
    let (issuer, server) = world().await;
    issuer.set(|it| {
        it.expires_in = Some(3_600);
        it.detects_reuse = true;
    });
    let directory = tempfile::tempdir().unwrap();
    let store = || FileStore::at(directory.path().join("tokens"));
    let start = || {
        server.authorizer(Options {
            store: Arc::new(store()),
            ..headless()
        })
    };
    server.call(&start()).await.unwrap();
    issuer.set(|it| it.delay = Duration::from_millis(50));
    let mut expected = vec!["authorization_code"];
    for _ in 0..3 {
        // The token has ended when they start.
        age(&store(), &server.url(), 4_000).await;
        let started: Vec<_> = (0..8).map(|_| start()).collect();
        at_once(&server, started.clone()).await;
        expected.push("refresh_token");
        assert_eq!(issuer.grants(), expected);
        // The server refuses the token that all of them have.
        issuer.set(|it| it.tokens.clear());
        at_once(&server, started).await;
        expected.push("refresh_token");
        assert_eq!(issuer.grants(), expected);
    }
    assert_eq!(issuer.books.lock().unwrap().reused, 0);
    assert_eq!(issuer.site.asked("/authorize").len(), 1);
}

#[tokio::test]
async fn one_who_is_refused_leaves_the_tokens_that_are_not_its_own() {
    let (issuer, server) = world().await;
    issuer.set(|it| it.expires_in = Some(3_600));
    let store: Arc<dyn TokenStore> = Arc::new(MemoryStore::default());
    let options = || Options {
        store: Arc::clone(&store),
        grant: Grant::Stored,
        ..headless()
    };
    let other = Options {
        store: Arc::new(MemoryStore::default()),
        ..headless()
    };
    server
        .call(&server.authorizer(other.clone()))
        .await
        .unwrap();
    for credentials in other.store.load(&server.url()).await.unwrap() {
        store.save(&credentials).await.unwrap();
    }
    let authorizer = server.authorizer(options());
    server.call(&authorizer).await.unwrap();
    // A program that holds nothing renews, on a machine whose clock is behind.
    age(&*other.store, &server.url(), 4_000).await;
    server
        .call(&server.authorizer(other.clone()))
        .await
        .unwrap();
    for mut credentials in other.store.load(&server.url()).await.unwrap() {
        credentials.saved_at -= 1_000;
        store.save(&credentials).await.unwrap();
    }
    let kept = store.load(&server.url()).await.unwrap();
    let newest = kept[0].tokens.clone().unwrap().access_token;
    issuer.set(|it| it.tokens.retain(|token, _| token == newest.reveal()));
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(store.load(&server.url()).await.unwrap(), kept);
}

#[tokio::test]
async fn more_scopes_are_asked_for_beside_those_there_are_and_only_once() {
    let (issuer, server) = world().await;
    let authorizer = server.authorizer(headless());
    server.call(&authorizer).await.unwrap();
    server.set(|it| it.needs = "write".to_owned());
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    let asked = issuer.site.asked("/authorize");
    let scope: BTreeSet<_> = asked[1].fields()["scope"]
        .split(' ')
        .map(str::to_owned)
        .collect();
    let expected = ["mcp", "offline_access", "write"].map(str::to_owned);
    assert_eq!(scope, BTreeSet::from(expected));
    // A sign-in that is needed later asks for all of them, too.
    issuer.set(|it| {
        it.tokens.clear();
        it.refuses_refresh = true;
    });
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    let asked = issuer.site.asked("/authorize");
    assert_eq!(asked.len(), 3);
    assert!(asked[2].fields()["scope"].contains("write"), "{asked:?}");
    // One that was granted and does not help is not asked for again.
    issuer.set(|it| it.tokens.values_mut().for_each(String::clear));
    let refused = server.call(&authorizer).await.unwrap_err();
    assert!(
        matches!(&refused, AuthorizationError::Scope(it) if it == "write"),
        "{refused}"
    );
    assert_eq!(issuer.site.asked("/authorize").len(), 3);
}

#[tokio::test]
async fn another_authorization_server_is_shown_nothing_of_the_first() {
    let (issuer, server) = world().await;
    let authorizer = server.authorizer(headless());
    server.call(&authorizer).await.unwrap();
    let second = Issuer::start().await;
    server.set(|it| it.issuer = second.clone());
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(second.site.asked("/register").len(), 1);
    let first = issuer.site.asked("/authorize")[0].fields()["client_id"].clone();
    for asked in second.site.asked("") {
        let all = format!("{asked:?}");
        assert!(!all.contains(&first) && !all.contains("refresh-"), "{all}");
    }
}

#[tokio::test]
async fn a_client_that_is_registered_beforehand_goes_to_its_issuer_alone() {
    let (issuer, server) = world().await;
    let options = |issuer: Option<String>| Options {
        client: ClientIdentity {
            id: Some("bank".to_owned()),
            secret: Some("hush hush".into()),
            issuer,
            ..ClientIdentity::default()
        },
        ..headless()
    };
    let authorizer = server.authorizer(options(Some(issuer.site.url.clone())));
    let unpinned = server.authorizer(options(None));
    for authorizer in [&authorizer, &unpinned] {
        assert_eq!(server.call(authorizer).await.unwrap(), 200);
    }
    let basic = issuer.site.asked("/token")[0]
        .header("authorization")
        .unwrap()
        .to_owned();
    // bank:hush%20hush
    assert_eq!(basic, "Basic YmFuazpodXNoJTIwaHVzaA==");
    assert!(issuer.site.asked("/register").is_empty());
    let evil = Issuer::start().await;
    server.set(|it| it.issuer = evil.clone());
    for authorizer in [&authorizer, &unpinned] {
        let refused = server.call(authorizer).await.unwrap_err();
        assert!(
            matches!(refused, AuthorizationError::OtherIssuer { .. }),
            "{refused}"
        );
    }
    assert!(evil.site.asked("").is_empty());
}

#[tokio::test]
async fn a_metadata_document_is_the_client_where_that_is_supported() {
    let (issuer, server) = world().await;
    issuer.set(|it| it.metadata = json!({"client_id_metadata_document_supported": true}));
    let mut options = headless();
    let document = "https://app.example/client.json".to_owned();
    options.client.metadata_url = Some(document.clone());
    server.call(&server.authorizer(options)).await.unwrap();
    assert_eq!(
        issuer.site.asked("/authorize")[0].fields()["client_id"],
        document
    );
    assert!(issuer.site.asked("/register").is_empty());
}

#[tokio::test]
async fn proofs_are_fresh_bound_and_carry_the_nonce() {
    let (issuer, server) = world().await;
    issuer.set(|it| {
        it.nonce = Some("first".to_owned());
        it.expires_in = Some(3_600);
    });
    server.set(|it| it.challenge = "DPoP algs=\"ES256\"".to_owned());
    let store: Arc<dyn TokenStore> = Arc::new(MemoryStore::default());
    let options = || Options {
        store: Arc::clone(&store),
        ..headless()
    };
    let authorizer = server.authorizer(options());
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    assert_eq!(issuer.site.asked("/token").len(), 2, "one for the nonce");
    age(&*store, &server.url(), 4_000).await;
    issuer.set(|it| it.nonce = Some("second".to_owned()));
    // Another process renews with the same key.
    assert_eq!(
        server.call(&server.authorizer(options())).await.unwrap(),
        200
    );
    let mut keys = BTreeSet::new();
    let mut proofs = BTreeSet::new();
    let (tokens, calls) = (issuer.site.asked("/token"), server.site.asked("/mcp"));
    for asked in tokens.iter().chain(&calls) {
        let Some(proof) = asked.header("dpop") else {
            assert_eq!(asked.header("authorization"), None);
            continue;
        };
        keys.insert(proof.split('.').next().unwrap().to_owned());
        assert!(proofs.insert(proof.to_owned()));
        let claims = claims(proof);
        assert_eq!(claims["htm"], "POST");
        let is_call = asked.path == "/mcp";
        assert_eq!(claims["ath"].is_string(), is_call);
        let site = if is_call { &server.site } else { &issuer.site };
        assert_eq!(claims["htu"], format!("{}{}", site.url, asked.path));
    }
    assert_eq!((keys.len(), proofs.len()), (1, 6));
    assert_eq!(claims(tokens[3].header("dpop").unwrap())["nonce"], "second");
    assert!(
        calls[1]
            .header("authorization")
            .unwrap()
            .starts_with("DPoP ")
    );
}

#[tokio::test]
async fn a_token_that_should_be_bound_and_is_not_is_not_used() {
    let (issuer, server) = world().await;
    issuer.set(|it| it.is_unbound = true);
    let options = |dpop| Options { dpop, ..headless() };
    let authorizer = server.authorizer(options(Dpop::Always));
    let refused = server.call(&authorizer).await.unwrap_err().to_string();
    assert!(refused.contains("not bound"), "{refused}");
    server.set(|it| it.challenge = "DPoP".to_owned());
    let refused = server.call(&server.authorizer(options(Dpop::Never))).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("switched off"), "{refused}");
    let calls = server.site.asked("/mcp");
    assert!(calls.iter().all(|it| it.header("authorization").is_none()));
}

#[tokio::test]
async fn a_program_signs_in_by_itself_and_again_when_its_token_ends() {
    let (issuer, server) = world().await;
    issuer.set(|it| it.expires_in = Some(3_600));
    let options = Options {
        grant: Grant::ClientCredentials,
        client: ClientIdentity {
            id: Some("program".to_owned()),
            secret: Some("hush".into()),
            ..ClientIdentity::default()
        },
        ..Options::default()
    };
    server
        .call(&server.authorizer(options.clone()))
        .await
        .unwrap();
    age(&*options.store, &server.url(), 3_590).await;
    server.call(&server.authorizer(options)).await.unwrap();
    assert_eq!(issuer.grants(), ["client_credentials"; 2]);
    let asked = issuer.site.asked("/token");
    assert_eq!(asked[0].fields()["resource"], server.url());
    assert_eq!(asked[0].fields()["scope"], "mcp");
    // No call has met a refusal in between.
    assert_eq!(server.site.asked("/mcp").len(), 3);
}

#[tokio::test]
async fn a_company_vouches_for_its_user() {
    let (issuer, server) = world().await;
    let company = Site::start(|_, _| {
        let jag = "urn:ietf:params:oauth:token-type:id-jag";
        let given =
            json!({"access_token": "the.jag.x", "issued_token_type": jag, "token_type": "N_A"});
        Answer::json(200, &given)
    });
    let company = company.await;
    let directory = tempfile::tempdir().unwrap();
    let id_token = directory.path().join("id_token");
    std::fs::write(&id_token, "the.id.token\n").unwrap();
    let authorizer = server.authorizer(Options {
        grant: Grant::Enterprise(IdentityProvider {
            token_endpoint: format!("{}/token", company.url),
            client_id: "at-company".to_owned(),
            client_secret: None,
            id_token: Assertion::File(id_token),
        }),
        client: ClientIdentity {
            id: Some("at-server".to_owned()),
            secret: Some("hush".into()),
            ..ClientIdentity::default()
        },
        ..Options::default()
    });
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    let exchange = company.asked("/token")[0].fields();
    assert_eq!(exchange["audience"], issuer.site.url);
    assert_eq!(exchange["resource"], server.url());
    assert_eq!(exchange["subject_token"], "the.id.token");
    assert_eq!(exchange["client_id"], "at-company");
    let grant = issuer.site.asked("/token")[0].fields();
    assert_eq!(grant["assertion"], "the.jag.x");
    assert!(!grant.values().any(|it| it.contains("the.id.token")));
}

#[tokio::test]
async fn a_callers_token_that_the_second_server_gives_back_is_not_passed_on() {
    let company = Site::start(|_, _| {
        let jag = "urn:ietf:params:oauth:token-type:id-jag";
        let given =
            json!({"access_token": "the.jag.x", "issued_token_type": jag, "token_type": "N_A"});
        Answer::json(200, &given)
    });
    let company = company.await;
    let repeats = Site::start(|_, _| {
        let given = json!({"access_token": "the.callers.token", "token_type": "Bearer"});
        Answer::json(200, &given)
    });
    let repeats = repeats.await;
    let options = ExchangeOptions {
        server: "http://127.0.0.1:1/mcp".to_owned(),
        token_endpoint: format!("{}/token", company.url),
        client_id: "gateway".to_owned(),
        client_secret: "hush".into(),
        audience: None,
        resource: None,
        scopes: Vec::new(),
        subject: SubjectKind::default(),
        recipient: Some(Recipient {
            issuer: repeats.url.clone(),
            token_endpoint: format!("{}/token", repeats.url),
            client_id: "gateway".to_owned(),
            client_secret: "hush".into(),
        }),
    };
    let exchanger = Exchanger::new(options, &[], |_| {}).unwrap();
    let tokens = exchanger.tokens("the.callers.token".into());
    let mut headers = http::HeaderMap::new();
    let refused = tokens
        .attempt()
        .authorize("http://127.0.0.1:1/mcp", &mut headers)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("gives back the token of the caller"),
        "{refused}"
    );
    assert!(refused.contains(&repeats.url), "{refused}");
    assert!(headers.is_empty());
}

#[tokio::test]
async fn a_workload_shows_its_assertion_once() {
    let (issuer, server) = world().await;
    let secret = Secret::new("the.workload.jwt");
    let authorizer = server.authorizer(Options {
        grant: Grant::Workload(Assertion::Fixed(secret)),
        ..Options::default()
    });
    issuer.set(|it| it.token_answer = Some((400, json!({"error": "invalid_grant"}).to_string())));
    let refused = server.call(&authorizer).await.unwrap_err();
    assert!(refused.to_string().contains("invalid_grant"), "{refused}");
    assert_eq!(issuer.grants().len(), 1);
    issuer.set(|it| it.token_answer = None);
    assert_eq!(server.call(&authorizer).await.unwrap(), 200);
    let asked = issuer.site.asked("/token")[1].fields();
    assert_eq!(asked["assertion"], "the.workload.jwt");
    assert!(!asked.contains_key("client_id"));
}

#[tokio::test]
async fn a_person_who_has_signed_out_elsewhere_is_not_signed_in_again_by_a_renewal() {
    let (issuer, server) = world().await;
    let store: Arc<dyn TokenStore> = Arc::new(MemoryStore::default());
    let options = |grant| Options {
        store: Arc::clone(&store),
        grant,
        ..headless()
    };
    let sign_in = async || {
        let person = server.authorizer(options(headless().grant));
        person.login().await.unwrap();
        person
    };
    let person = sign_in().await;
    let running = server.authorizer(options(Grant::Stored));
    assert_eq!(server.call(&running).await.unwrap(), 200);
    assert!(!running.is_superseded().await.unwrap());
    // Another sign-in, and not a renewal, takes the place of this one.
    issuer.set(|it| it.tokens.clear());
    assert_eq!(server.call(&running).await.unwrap(), 200);
    assert!(!running.is_superseded().await.unwrap());
    let person_again = sign_in().await;
    assert!(running.is_superseded().await.unwrap());
    drop((person, running));
    let running = server.authorizer(options(Grant::Stored));
    assert_eq!(server.call(&running).await.unwrap(), 200);
    person_again.logout().await.unwrap();
    assert!(running.is_superseded().await.unwrap());
    // Whatever leads to a renewal, the tokens do not come back.
    issuer.set(|it| it.tokens.clear());
    let before = issuer.grants().len();
    let gone = server.call(&running).await.unwrap_err();
    assert!(matches!(gone, AuthorizationError::LoginNeeded(_)), "{gone}");
    assert_eq!(issuer.grants().len(), before);
    assert!(store.load(&server.url()).await.unwrap().is_empty());
}
