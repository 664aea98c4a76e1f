//! Schedule of fetches of issuers' keys, and behaviour while keys cannot be fetched.

use crate::forge::{NOW, Pair, Source, claims, issuers, now, options};
use identity::{FetchKeys, IssuerOptions, Issuers, Rejection};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::Notify;

/// Issuers with a clock of their own, which `clock` reads.
async fn kept(
    options: IssuerOptions,
    source: &Arc<Source>,
    clock: fn() -> SystemTime,
) -> Arc<Issuers> {
    let issuers = Arc::new(Issuers::new(vec![options]).unwrap());
    let fetch: Arc<dyn FetchKeys> = Arc::clone(source) as _;
    tokio::spawn(Arc::clone(&issuers).keep(0, fetch, clock));
    issuers
}

/// A clock that a test sets. Each has one of its own, as functions have no state.
macro_rules! clock {
    ($name:ident) => {
        static $name: AtomicU64 = AtomicU64::new(NOW);
    };
}

fn at(clock: &AtomicU64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::SeqCst))
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        // The clock of the runtime goes on by itself when everybody waits.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_unknown_keys_is_one_fetch() {
    clock!(CLOCK);
    let clock = || at(&CLOCK);
    let (old, new) = (Pair::p256(), Pair::p256());
    let source = Source::of(&[old.jwk("old")]);
    let issuers = kept(options(), &source, clock).await;
    until(|| issuers.health(clock())[0].ok).await;
    assert_eq!(source.fetches(), 1);

    // Just fetched: nothing that anybody sends has it fetched again.
    let unknown = |kid: &str| new.token(&json!({"alg": "ES256", "kid": kid}), &claims());
    for number in 0..100 {
        let outcome = issuers
            .verify_later(&unknown(&format!("{number}")), clock)
            .await;
        assert!(
            matches!(outcome, Err(Rejection::Invalid { .. })),
            "{outcome:?}"
        );
    }
    assert_eq!(source.fetches(), 1);

    // After a while, all who wait share one fetch; who asks then is not kept waiting.
    CLOCK.fetch_add(10, Ordering::SeqCst);
    source.say(&[old.jwk("old"), new.jwk("new")]);
    let goes_on = Arc::new(Notify::new());
    *source.hangs.lock().unwrap() = Some(Arc::clone(&goes_on));
    let storm: Vec<_> = (0..500)
        .map(|number| {
            let kid = if number % 2 == 0 {
                "new".to_owned()
            } else {
                format!("{number}")
            };
            let (issuers, token) = (Arc::clone(&issuers), unknown(&kid));
            tokio::spawn(async move { issuers.verify_later(&token, || at(&CLOCK)).await })
        })
        .collect();
    until(|| source.fetches() == 2).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    // Who has a key that is known waits for nothing.
    let known = old.token(&json!({"alg": "ES256", "kid": "old"}), &claims());
    assert!(issuers.verify(&known, clock()).unwrap().is_ok());
    *source.hangs.lock().unwrap() = None;
    goes_on.notify_waiters();
    for (number, outcome) in storm.into_iter().enumerate() {
        let outcome = outcome.await.unwrap();
        assert_eq!(outcome.is_ok(), number % 2 == 0, "{number}: {outcome:?}");
    }
    assert_eq!(source.fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_hangs_keeps_nobody_for_longer_than_five_seconds() {
    let pair = Pair::p256();
    let source = Source::of(&[pair.jwk("a")]);
    *source.hangs.lock().unwrap() = Some(Arc::new(Notify::new()));
    let issuers = kept(options(), &source, now).await;
    let token = pair.token(&json!({"alg": "ES256", "kid": "a"}), &claims());
    assert_eq!(issuers.verify(&token, now()), None, "it is worth waiting");
    let began = tokio::time::Instant::now();
    let outcome = issuers.verify_later(&token, now).await;
    assert!(
        matches!(outcome, Err(Rejection::Unavailable { .. })),
        "{outcome:?}"
    );
    assert_eq!(began.elapsed().as_secs(), 5);
    assert!(!issuers.health(now())[0].ok);

    // The fetch itself is given up, and tried again by itself.
    *source.hangs.lock().unwrap() = None;
    until(|| source.fetches() == 2).await;
    let outcome = issuers.verify_later(&token, now).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    let health = &issuers.health(now())[0];
    assert_eq!((health.ok, health.keys, &health.failure), (true, 1, &None));
}

#[tokio::test(start_paused = true)]
async fn keys_that_cannot_be_fetched_again_are_believed_for_a_while() {
    clock!(CLOCK);
    let clock = || at(&CLOCK);
    let pair = Pair::p256();
    let source = Source::of(&[pair.jwk("a")]);
    let options = IssuerOptions {
        max_stale: Duration::from_secs(3_600),
        ..options()
    };
    let issuers = kept(options, &source, clock).await;
    until(|| issuers.health(clock())[0].ok).await;
    source.fail();
    let mut lasting = claims();
    lasting["exp"] = json!(NOW + 100_000);
    let token = pair.token(&json!({"alg": "ES256", "kid": "a"}), &lasting);
    assert!(issuers.verify(&token, clock()).unwrap().is_ok());

    CLOCK.fetch_add(3_600, Ordering::SeqCst);
    until(|| issuers.health(clock())[0].failure.is_some()).await;
    assert!(
        issuers.verify(&token, clock()).unwrap().is_ok(),
        "the last second"
    );
    let unknown = pair.token(&json!({"alg": "ES256", "kid": "b"}), &lasting);
    let outcome = issuers.verify_later(&unknown, clock).await;
    assert!(
        matches!(outcome, Err(Rejection::Unavailable { .. })),
        "{outcome:?}"
    );

    // A key may have been taken back meanwhile, so tokens that were believed are not any more.
    CLOCK.fetch_add(1, Ordering::SeqCst);
    let outcome = issuers.verify_later(&token, clock).await;
    assert!(
        matches!(outcome, Err(Rejection::Unavailable { .. })),
        "{outcome:?}"
    );
    assert!(!issuers.health(clock())[0].ok);

    source.say(&[pair.jwk("a")]);
    CLOCK.fetch_add(3_600, Ordering::SeqCst);
    assert!(issuers.verify_later(&token, clock).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_taken_back_takes_its_tokens_along() {
    clock!(CLOCK);
    let clock = || at(&CLOCK);
    let (old, new) = (Pair::p256(), Pair::ed25519());
    let source = Source::of(&[old.jwk("old")]);
    let issuers = kept(options(), &source, clock).await;
    until(|| issuers.health(clock())[0].ok).await;
    let mut lasting = claims();
    lasting["exp"] = json!(NOW + 100_000);
    let token = old.token(&json!({"alg": "ES256", "kid": "old"}), &lasting);
    assert!(issuers.verify(&token, clock()).unwrap().is_ok());

    source.say(&[new.jwk("new")]);
    CLOCK.fetch_add(900, Ordering::SeqCst);
    // The regular look: nobody asks for it.
    until(|| source.fetches() == 2).await;
    let outcome = issuers.verify_later(&token, clock).await;
    assert!(
        matches!(outcome, Err(Rejection::Invalid { .. })),
        "{outcome:?}"
    );
    let token = new.token(&json!({"alg": "EdDSA", "kid": "new"}), &lasting);
    assert!(issuers.verify(&token, clock()).unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_empty_key_set_revokes_all_tokens_of_its_issuer() {
    clock!(CLOCK);
    let clock = || at(&CLOCK);
    let pair = Pair::p256();
    let mut lasting = claims();
    lasting["exp"] = json!(NOW + 100_000);
    let token = pair.token(&json!({"alg": "ES256", "kid": "a"}), &lasting);
    let unusable = json!({"kty": "oct", "kid": "a", "k": "AAAA"});
    let source = Source::of(&[pair.jwk("a")]);
    let issuers = kept(options(), &source, clock).await;
    for none in [vec![], vec![unusable]] {
        source.say(&[pair.jwk("a")]);
        CLOCK.fetch_add(900, Ordering::SeqCst);
        until(|| issuers.health(clock())[0].ok).await;
        assert!(issuers.verify_later(&token, clock).await.is_ok());
        source.say(&none);
        CLOCK.fetch_add(900, Ordering::SeqCst);
        until(|| !issuers.health(clock())[0].ok).await;
        let outcome = issuers.verify_later(&token, clock).await;
        assert!(
            matches!(outcome, Err(Rejection::Invalid { .. })),
            "{outcome:?}"
        );
        let health = &issuers.health(clock())[0];
        assert_eq!(health.keys, 0);
        assert!(health.failure.as_ref().unwrap().contains("no key"));
    }
}

#[tokio::test]
async fn what_is_no_set_of_keys_replaces_none() {
    let pair = Pair::p256();
    let source = Source::of(&[pair.jwk("a")]);
    let issuers = issuers(vec![options()], &source).await;
    let token = pair.token(&json!({"alg": "ES256", "kid": "a"}), &claims());
    assert!(issuers.verify(&token, now()).unwrap().is_ok());
    let file = std::path::Path::new("/nowhere");
    // Not theirs, so nothing happens.
    issuers.refresh(file);
    assert_eq!(source.fetches(), 1);
}
