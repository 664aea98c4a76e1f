//! Keys of issuers that say themselves where these are.

use crate::forge::{NOW, Pair, claims, options};
use identity::{FetchKeys, Fetched, IssuerOptions, Issuers, KeySource, Rejection};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

const SERVER: &str = "https://login.example/.well-known/oauth-authorization-server/realms/corp";
const PROVIDER: &str = "https://login.example/.well-known/openid-configuration/realms/corp";
const BEHIND: &str = "https://login.example/realms/corp/.well-known/openid-configuration";
const KEYS: &str = "https://keys.example/corp";

/// The network, as far as it is known.
#[derive(Default)]
struct Places {
    documents: Mutex<HashMap<String, Value>>,
    asked: Mutex<Vec<String>>,
}

impl Places {
    fn say(&self, place: &str, document: Value) {
        let mut documents = self.documents.lock().unwrap();
        documents.insert(place.to_owned(), document);
    }

    fn forget(&self, place: &str) {
        self.documents.lock().unwrap().remove(place);
    }

    /// Paths requested since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl FetchKeys for Places {
    fn fetch<'a>(&'a self, source: &'a KeySource) -> Fetched<'a> {
        Box::pin(async move {
            let KeySource::Url(place) = source else {
                panic!("{source:?} is no place");
            };
            self.asked.lock().unwrap().push(place.clone());
            let document = self.documents.lock().unwrap().get(place).cloned();
            let document = document.ok_or("the answer is 404")?;
            Ok(document.to_string().into_bytes())
        })
    }
}

fn metadata(keys: &str) -> Value {
    json!({"issuer": crate::forge::ISSUER, "jwks_uri": keys, "authorization_endpoint": "x"})
}

fn set(pair: &Pair, id: &str) -> Value {
    json!({ "keys": [pair.jwk(id)] })
}

fn token(pair: &Pair, id: &str) -> String {
    let mut lasting = claims();
    lasting["exp"] = json!(NOW + 1_000_000);
    pair.token(&json!({"alg": "ES256", "kid": id}), &lasting)
}

/// An issuer that is asked itself, by a clock of its own.
fn kept(places: &Arc<Places>, clock: fn() -> SystemTime) -> Arc<Issuers> {
    let options = IssuerOptions {
        keys: KeySource::Issuer,
        ..options()
    };
    let issuers = Arc::new(Issuers::new(vec![options]).unwrap());
    let fetch: Arc<dyn FetchKeys> = Arc::clone(places) as _;
    tokio::spawn(Arc::clone(&issuers).keep(0, fetch, clock));
    issuers
}

fn at(clock: &AtomicU64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::SeqCst))
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        // The clock of the runtime goes on by itself when everybody waits.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_found_where_the_issuer_says_and_followed_when_they_move() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW);
    let clock = || at(&CLOCK);
    let (first, second, third) = (Pair::p256(), Pair::p256(), Pair::p256());
    let places = Arc::new(Places::default());
    places.say(BEHIND, metadata(KEYS));
    places.say(KEYS, set(&first, "a"));
    let issuers = kept(&places, clock);
    until(|| issuers.health(clock())[0].ok).await;
    assert_eq!(places.asked(), [SERVER, PROVIDER, BEHIND, KEYS]);
    assert!(
        issuers
            .verify(&token(&first, "a"), clock())
            .unwrap()
            .is_ok()
    );

    // Other keys at the same place: the issuer is not asked again where that is.
    places.say(KEYS, set(&second, "b"));
    CLOCK.fetch_add(10, Ordering::SeqCst);
    let fresh = token(&second, "b");
    assert!(issuers.verify_later(&fresh, clock).await.is_ok());
    assert_eq!(places.asked(), [KEYS]);
    assert!(
        issuers
            .verify(&token(&first, "a"), clock())
            .is_none_or(|it| it.is_err())
    );

    // They are gone: it is asked at once where they are now, and what comes first counts.
    let moved = "https://keys.example/moved";
    places.forget(KEYS);
    places.say(PROVIDER, metadata(moved));
    places.say(moved, set(&third, "c"));
    let third = token(&third, "c");
    CLOCK.fetch_add(900, Ordering::SeqCst);
    until(|| issuers.verify(&third, clock()).is_some_and(|it| it.is_ok())).await;
    assert_eq!(places.asked(), [KEYS, SERVER, PROVIDER, moved]);

    // After an hour it is asked even if nothing seems to be wrong.
    places.say(SERVER, metadata(KEYS));
    places.say(KEYS, set(&first, "d"));
    CLOCK.fetch_add(3_600, Ordering::SeqCst);
    assert!(
        issuers
            .verify_later(&token(&first, "d"), clock)
            .await
            .is_ok()
    );
    assert_eq!(places.asked(), [SERVER, KEYS]);
}

#[tokio::test(start_paused = true)]
async fn what_an_issuer_says_is_believed_of_itself_alone() {
    static CLOCK: AtomicU64 = AtomicU64::new(NOW);
    let clock = || at(&CLOCK);
    let (own, other) = (Pair::p256(), Pair::p256());
    let places = Arc::new(Places::default());
    let evil = "https://evil.example/keys";
    let mut claimed = metadata(evil);
    claimed["issuer"] = json!("https://login.example/realms/other");
    places.say(SERVER, claimed);
    places.say(PROVIDER, metadata("http://keys.example/corp"));
    places.say(evil, set(&other, "a"));
    let issuers = kept(&places, clock);
    until(|| issuers.health(clock())[0].failure.is_some()).await;
    let health = issuers.health(clock()).remove(0);
    let failure = health.failure.unwrap();
    assert!(!health.ok);
    assert!(
        failure.contains("another issuer") && failure.contains(SERVER),
        "{failure}"
    );
    assert_eq!(
        places.asked(),
        [SERVER, PROVIDER, BEHIND],
        "and nothing of what they name"
    );
    let outcome = issuers.verify_later(&token(&other, "a"), clock).await;
    assert!(
        matches!(outcome, Err(Rejection::Unavailable { .. })),
        "{outcome:?}"
    );

    // What is said in another place does.
    places.say(BEHIND, metadata(KEYS));
    places.say(KEYS, set(&own, "a"));
    CLOCK.fetch_add(900, Ordering::SeqCst);
    assert!(issuers.verify_later(&token(&own, "a"), clock).await.is_ok());
    assert!(issuers.health(clock())[0].ok);

    // A page that is there for everything tells less.
    let pages = Arc::new(Places::default());
    pages.say(SERVER, json!("welcome"));
    pages.say(BEHIND, json!({"issuer": crate::forge::ISSUER}));
    let issuers = kept(&pages, clock);
    until(|| issuers.health(clock())[0].failure.is_some()).await;
    let failure = issuers.health(clock()).remove(0).failure.unwrap();
    assert!(
        failure.contains(BEHIND) && failure.contains("jwks_uri"),
        "{failure}"
    );

    // Nothing there at all is told with the place that is asked first.
    let nothing = Arc::new(Places::default());
    let issuers = kept(&nothing, clock);
    until(|| issuers.health(clock())[0].failure.is_some()).await;
    let failure = issuers.health(clock()).remove(0).failure.unwrap();
    assert!(
        failure.contains(SERVER) && failure.contains("404"),
        "{failure}"
    );
}

#[test]
fn keys_are_fetched_from_https_or_this_machine_alone() {
    let rows = [
        ("https://login.example/keys", true, true),
        ("http://127.0.0.1:8080/keys", true, true),
        ("http://localhost/keys", true, true),
        ("http://login.example/keys", false, false),
        ("http://127.0.0.1.example/keys", false, false),
        ("ftp://login.example/keys", false, false),
        ("login.example", false, false),
        ("https://login.example/keys?x=1", true, false),
    ];
    for (address, is_safe, can_be_found) in rows {
        assert_eq!(KeySource::is_safe(address), is_safe, "{address}");
        assert_eq!(KeySource::can_be_found(address), can_be_found, "{address}");
    }
}
