//! Tokens about which an issuer is asked, which answers as a test says.

use identity::{
    AskIssuer, Asked, Introspection, IntrospectionOptions, IssuerOptions, KeySource, Means,
    Rejection,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

const ISSUER: &str = "https://login.example";
const RESOURCE: &str = "https://tools.example/mcp";
const EXPIRES: u64 = 10_000;
const REMEMBER: u64 = 30;

/// An issuer whose answer can be changed, and which counts questions.
#[derive(Clone)]
struct Scripted {
    answer: Arc<Mutex<Result<String, String>>>,
    delay: Duration,
    asked: Arc<AtomicUsize>,
}

impl Scripted {
    fn new(answer: &Value) -> Self {
        Self {
            answer: Arc::new(Mutex::new(Ok(answer.to_string()))),
            delay: Duration::ZERO,
            asked: Arc::default(),
        }
    }

    fn says(&self, answer: Result<&Value, &str>) {
        let answer = answer.map(Value::to_string).map_err(str::to_owned);
        *self.answer.lock().unwrap() = answer;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn introspection(&self) -> Introspection {
        let issuer = IssuerOptions {
            resource: Some(RESOURCE.to_owned()),
            principal_prefix: "corp:".to_owned(),
            required_scopes: vec!["tools".to_owned()],
            ..IssuerOptions::new("corp", ISSUER, KeySource::Issuer)
        };
        let options = IntrospectionOptions {
            issuer,
            remember: Duration::from_secs(REMEMBER),
        };
        Introspection::new(options, self.clone()).unwrap()
    }
}

impl AskIssuer for Scripted {
    fn ask<'a>(&'a self, _token: &'a str) -> Asked<'a> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.delay).await;
            let answer = self.answer.lock().unwrap().clone();
            Ok(Some(answer.map(String::into_bytes)?).filter(|it| it != b"null"))
        })
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn noon() -> SystemTime {
    at(1_000)
}

fn active() -> Value {
    json!({
        "active": true, "iss": ISSUER, "sub": "mary", "aud": RESOURCE, "scope": "tools other",
        "exp": EXPIRES, "token_type": "Bearer",
    })
}

fn with(member: &str, value: Value) -> Value {
    let mut answer = active();
    match value.is_null() {
        true => drop(answer.as_object_mut().unwrap().remove(member)),
        false => answer[member] = value,
    }
    answer
}

#[tokio::test]
async fn an_answer_makes_an_identity_and_is_used_again_for_a_while() {
    let issuer = Scripted::new(&active());
    let introspection = issuer.introspection();
    assert_eq!(introspection.verify("opaque", noon()), None);
    let identity = introspection.verify_later("opaque", noon).await.unwrap();
    assert_eq!(&*identity.principal, "corp:mary");
    assert_eq!(
        identity.means,
        Means::Introspection {
            issuer: "corp".into()
        }
    );
    assert!(introspection.is_known("opaque") && !introspection.is_known("other"));

    let again = |seconds| introspection.verify("opaque", at(seconds));
    assert_eq!(again(1_000 + REMEMBER - 1), Some(Ok(Arc::clone(&identity))));
    assert_eq!(again(1_000 + REMEMBER), None);
    assert_eq!(issuer.asked(), 1);

    // It is taken back, which shows when the answer is forgotten.
    issuer.says(Ok(&json!({"active": false})));
    fn later() -> SystemTime {
        at(1_000 + REMEMBER)
    }
    let refused = introspection
        .verify_later("opaque", later)
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        Rejection::Invalid {
            why: "the token is not active"
        }
    );
    assert!(!introspection.is_known("opaque"));
    assert_eq!(issuer.asked(), 2);
}

#[tokio::test]
async fn an_answer_says_which_key_a_token_is_bound_to() {
    for (binding, expected) in [(json!({"jkt": "x"}), Some("x")), (Value::Null, None)] {
        let issuer = Scripted::new(&with("cnf", binding));
        let introspection = issuer.introspection();
        let identity = introspection.verify_later("opaque", noon).await.unwrap();
        assert_eq!(identity.bound_to.as_deref(), expected);
        let again = introspection.verify("opaque", noon()).unwrap().unwrap();
        assert_eq!(again.bound_to.as_deref(), expected, "remembered");
    }
}

#[tokio::test]
async fn a_token_expires_while_its_answer_is_remembered() {
    let issuer = Scripted::new(&with("exp", json!(1_010)));
    let introspection = issuer.introspection();
    introspection.verify_later("opaque", noon).await.unwrap();
    // The leeway is thirty seconds.
    let introspection_at = |seconds| introspection.verify("opaque", at(seconds));
    assert!(introspection_at(1_029).unwrap().is_ok());
    let options = IntrospectionOptions {
        remember: Duration::from_secs(600),
        issuer: IssuerOptions {
            resource: Some(RESOURCE.to_owned()),
            ..IssuerOptions::new("corp", ISSUER, KeySource::Issuer)
        },
    };
    let introspection = Introspection::new(options, issuer).unwrap();
    introspection.verify_later("opaque", noon).await.unwrap();
    let refused = introspection
        .verify("opaque", at(1_040))
        .unwrap()
        .unwrap_err();
    assert_eq!(
        refused,
        Rejection::Invalid {
            why: "the token has expired"
        }
    );
}

#[tokio::test]
async fn answers_that_prove_too_little_let_nobody_in() {
    let check = async |answer: Value, expected: &str| {
        let issuer = Scripted::new(&answer);
        let outcome = issuer.introspection().verify_later("opaque", noon).await;
        let rejection = outcome.expect_err(&answer.to_string());
        assert!(
            rejection.to_string().contains(expected),
            "{answer}: {rejection}"
        );
    };
    check(json!({"active": false, "sub": "mary"}), "not active").await;
    check(
        with("aud", json!("https://other.example")),
        "another audience",
    )
    .await;
    check(with("aud", Value::Null), "another audience").await;
    check(with("iss", json!("https://evil.example")), "issuer").await;
    check(with("iss", json!(7)), "issuer").await;
    check(with("exp", Value::Null), "expires").await;
    check(with("exp", json!(900)), "expired").await;
    check(with("nbf", json!(5_000)), "not good yet").await;
    check(with("sub", Value::Null), "whose it is").await;
    check(with("scope", json!("other")), "lacks a scope").await;
    for other in [
        json!({"x5t#S256": "x"}),
        json!({"jkt": "x", "kid": "y"}),
        json!("x"),
    ] {
        check(with("cnf", other), "bound to something").await;
    }
    check(with("token_type", json!("refresh_token")), "another kind").await;
    check(with("typ", json!("Refresh")), "another kind").await;
    check(with("typ", json!(["Bearer"])), "another kind").await;
    for answer in [
        json!({"sub": "mary", "aud": RESOURCE, "exp": EXPIRES}),
        with("active", json!("true")),
        with("active", json!(1)),
        json!([true]),
        json!("active"),
    ] {
        check(answer, "cannot be asked").await;
    }
    // The issuer answers with status 400.
    check(Value::Null, "finds fault").await;
    let issuer = Scripted::new(&with("iss", Value::Null));
    issuer
        .introspection()
        .verify_later("opaque", noon)
        .await
        .unwrap();
}

#[tokio::test]
async fn tokens_of_other_issuers_are_not_shown_to_this_one() {
    let issuer = Scripted::new(&active());
    let introspection = issuer.introspection();
    // {"alg":"none"} . {"iss":"https://other.example"}
    let foreign = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL290aGVyLmV4YW1wbGUifQ.c2ln";
    let refused = introspection.verify_later(foreign, noon).await.unwrap_err();
    assert!(matches!(refused, Rejection::Invalid { .. }), "{refused:?}");
    assert_eq!(issuer.asked(), 0);
    let long = "x".repeat(20_000);
    introspection.verify_later(&long, noon).await.unwrap_err();
    assert_eq!(issuer.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_with_one_token_ask_once() {
    let issuer = Scripted {
        delay: Duration::from_secs(1),
        ..Scripted::new(&active())
    };
    let introspection = Arc::new(issuer.introspection());
    let ask = || {
        let introspection = Arc::clone(&introspection);
        tokio::spawn(async move { introspection.verify_later("opaque", noon).await })
    };
    // The one that asks goes away; another takes its place.
    let first = ask();
    let others: Vec<_> = (0..50).map(|_| ask()).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    first.abort();
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_eq!(issuer.asked(), 2);
    introspection.verify_later("opaque", noon).await.unwrap();
    assert_eq!(issuer.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_the_issuer_does_not_answer_only_remembered_tokens_are_accepted() {
    static NOW: AtomicU64 = AtomicU64::new(1_000);
    fn clock() -> SystemTime {
        at(NOW.load(Ordering::Relaxed))
    }
    let issuer = Scripted::new(&active());
    let introspection = issuer.introspection();
    introspection.verify_later("known", clock).await.unwrap();
    assert_eq!(introspection.failure(), None);

    issuer.says(Err("connection refused"));
    let refused = introspection.verify_later("new", clock).await.unwrap_err();
    assert!(
        matches!(refused, Rejection::Unavailable { .. }),
        "{refused:?}"
    );
    assert_eq!(
        introspection.failure().as_deref(),
        Some("connection refused")
    );
    assert!(introspection.verify("known", clock()).unwrap().is_ok());
    // It is left alone for a second.
    introspection
        .verify_later("newer", clock)
        .await
        .unwrap_err();
    assert_eq!(issuer.asked(), 2);

    NOW.store(1_001, Ordering::Relaxed);
    issuer.says(Ok(&active()));
    introspection.verify_later("new", clock).await.unwrap();
    assert_eq!(introspection.failure(), None);

    // A token that the issuer cannot tell anything of is no failure, and keeps nobody else out.
    issuer.says(Ok(&Value::Null));
    introspection.verify_later("odd", clock).await.unwrap_err();
    assert_eq!(introspection.failure(), None);
    issuer.says(Ok(&active()));
    introspection.verify_later("newest", clock).await.unwrap();

    let hanging = Scripted {
        delay: Duration::from_secs(60),
        ..issuer
    };
    let introspection = hanging.introspection();
    let began = tokio::time::Instant::now();
    let refused = introspection.verify_later("new", clock).await.unwrap_err();
    assert!(
        matches!(refused, Rejection::Unavailable { .. }),
        "{refused:?}"
    );
    assert_eq!(began.elapsed().as_secs(), 5);
    assert!(introspection.failure().unwrap().contains("5 s"));
}

#[test]
fn without_an_audience_tokens_for_any_service_would_be_accepted() {
    let options = IntrospectionOptions {
        issuer: IssuerOptions::new("corp", ISSUER, KeySource::Issuer),
        remember: Duration::from_secs(REMEMBER),
    };
    let refused = Introspection::new(options, Scripted::new(&active())).unwrap_err();
    assert_eq!(refused.to_string(), "`corp` has no audience");
}
