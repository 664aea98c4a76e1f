//! Sessions of legacy servers over HTTP.

use crate::{
    service::Accepts,
    support::{LONG, Raw, Talk, initialized, options, text, told, until},
};
use mcp_client::{CallOptions, Connection, Dial, Error, Options, RawJson};
use mcp_protocol::model::{LoggingLevel, ServerNotification, SubscriptionFilter};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// A server that forgets its sessions, and what else a test can change about it.
#[derive(Default)]
struct Forgetful {
    sessions: AtomicUsize,
    refuses_initialize: AtomicBool,
    hangs_initialize: AtomicBool,
    refuses_subscriptions: AtomicBool,
    /// Has the streams of events end.
    hang_up: Notify,
    /// Has a change of the tools told on the stream of events.
    change: Notify,
}

impl Forgetful {
    fn forget(&self) {
        self.sessions.fetch_add(1, Ordering::SeqCst);
        self.hang_up.notify_waiters();
    }

    fn is(&self, which: &AtomicBool) -> bool {
        which.load(Ordering::SeqCst)
    }

    async fn start(self: &Arc<Self>) -> Raw {
        let state = Arc::clone(self);
        Raw::start(move |asked, mut talk: Talk| {
            let state = Arc::clone(&state);
            Box::pin(async move {
                let session = format!("s{}", state.sessions.load(Ordering::SeqCst));
                let what = asked.what();
                if what == "server/discover" {
                    return talk.legacy(&asked).await;
                }
                if what == "initialize" {
                    if state.is(&state.hangs_initialize) {
                        return talk.gone().await;
                    }
                    if state.is(&state.refuses_initialize) {
                        return talk.respond(503, "", "starting").await;
                    }
                    let header = format!("mcp-session-id: {session}\r\n");
                    let result = asked.answer(initialized("2025-11-25"));
                    return talk.json_with(&header, &result).await;
                }
                if asked.header("mcp-session-id") != session {
                    return talk.respond(404, "", "no such session").await;
                }
                match what {
                    "GET" => {
                        talk.stream().await;
                        talk.raw(": hello\n\n").await;
                        tokio::select! {
                            () = state.hang_up.notified() => {}
                            () = state.change.notified() => {
                                let method = "notifications/tools/list_changed";
                                talk.event(&json!({ "jsonrpc": "2.0", "method": method })).await;
                                talk.gone().await;
                            }
                        }
                    }
                    "resources/subscribe" if state.is(&state.refuses_subscriptions) => {
                        talk.json(&asked.error(-32602, "no such resource")).await;
                    }
                    "tools/call" => {
                        // Another id than that of the session means nothing outside of `initialize`.
                        let header = "mcp-session-id: another\r\n";
                        talk.json_with(header, &asked.answer(text(&session))).await;
                    }
                    _ => talk.legacy(&asked).await,
                }
            })
        })
        .await
    }
}

async fn call(connection: &Connection) -> Result<String, Error> {
    let options = CallOptions::default();
    let result = connection.call("any", RawJson::EMPTY_OBJECT, &options);
    Ok(format!("{:?}", result.await?.content))
}

async fn open(raw: &Raw, options: Options) -> Connection {
    let dial = Dial::url(&raw.url);
    Connection::open(&dial, options).await.unwrap()
}

fn about(uri: &str) -> SubscriptionFilter {
    SubscriptionFilter {
        resource_subscriptions: vec![uri.to_owned()],
        tools_list_changed: true,
        ..SubscriptionFilter::default()
    }
}

#[tokio::test]
async fn a_lost_session_is_opened_again_once_and_told_what_the_old_one_was_told() {
    let state = Arc::new(Forgetful::default());
    let raw = state.start().await;
    let connection = open(&raw, options()).await;
    connection.set_level(LoggingLevel::Warning).await.unwrap();
    let subscription = connection.listen(about("a://b")).await.unwrap();
    assert!(call(&connection).await.unwrap().contains("s0"));

    state.sessions.fetch_add(1, Ordering::SeqCst);
    let before = raw.asked().len();
    let calls = (0..20).map(|_| call(&connection));
    for result in futures_util::future::join_all(calls).await {
        assert!(result.unwrap().contains("s1"));
    }
    let asked = raw.asked().split_off(before);
    let of = |what: &str| {
        let of = asked.iter().filter(|it| it.what() == what);
        of.cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("initialize").len(), 1);
    assert_eq!(of("initialize")[0].header("mcp-session-id"), "");
    assert_eq!(of("notifications/initialized").len(), 1);
    let levels = of("logging/setLevel");
    assert_eq!(levels.len(), 1);
    assert_eq!(levels[0].message["params"]["level"], "warning");
    assert_eq!(levels[0].header("mcp-session-id"), "s1");
    let subscribed = of("resources/subscribe");
    assert_eq!(subscribed.len(), 1);
    assert_eq!(subscribed[0].message["params"]["uri"], "a://b");
    let taken = of("tools/call");
    let taken = taken
        .iter()
        .filter(|it| it.header("mcp-session-id") == "s1");
    assert_eq!(taken.count(), 20);

    drop(subscription);
    raw.wait("resources/unsubscribe", 1).await;
    connection.close().await;
    let last = raw.asked().pop().unwrap();
    assert_eq!(
        (last.what(), last.header("mcp-session-id")),
        ("DELETE", "s1")
    );
}

#[tokio::test]
async fn a_session_that_cannot_be_opened_now_is_opened_by_a_later_call() {
    let state = Arc::new(Forgetful::default());
    let raw = state.start().await;
    let connection = open(&raw, options()).await;
    state.refuses_initialize.store(true, Ordering::SeqCst);
    state.sessions.fetch_add(1, Ordering::SeqCst);
    let error = call(&connection).await.unwrap_err();
    assert!(told(&error).contains("HTTP 503: starting"), "{error}");
    state.refuses_initialize.store(false, Ordering::SeqCst);
    assert!(call(&connection).await.unwrap().contains("s1"));
    assert!(connection.agreed().offer.tools.is_some());
}

#[tokio::test]
async fn opening_a_session_again_counts_as_time_of_the_call() {
    let state = Arc::new(Forgetful::default());
    let raw = state.start().await;
    let connection = open(&raw, options()).await;
    state.hangs_initialize.store(true, Ordering::SeqCst);
    state.sessions.fetch_add(1, Ordering::SeqCst);
    let started = Instant::now();
    let options = CallOptions {
        timeout: Some(Duration::from_millis(300)),
        ..CallOptions::default()
    };
    let result = connection.call("any", RawJson::EMPTY_OBJECT, &options);
    let error = result.await.unwrap_err().to_string();
    assert_eq!(error, "`tools/call` was not answered within 300ms");
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_legacy_server_tells_of_changes_also_after_it_has_forgotten_the_session() {
    let state = Arc::new(Forgetful::default());
    let raw = state.start().await;
    let connection = open(&raw, options()).await;
    let filter = SubscriptionFilter {
        tools_list_changed: true,
        ..SubscriptionFilter::default()
    };
    let mut subscription = connection.listen(filter).await.unwrap();
    raw.wait("GET", 1).await;
    // The stream ends and the session with it; no call is made meanwhile.
    until("the stream is open", || 0 < raw.open.load(Ordering::SeqCst)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    state.forget();
    raw.wait("initialize", 2).await;
    let heard = async {
        loop {
            state.change.notify_waiters();
            let pause = Duration::from_millis(50);
            if let Ok(heard) = tokio::time::timeout(pause, subscription.next()).await {
                return heard;
            }
        }
    };
    let heard = tokio::time::timeout(LONG, heard).await.unwrap().unwrap();
    assert_eq!(heard, Some(ServerNotification::ToolsListChanged));
    connection.close().await;
    let error = subscription.next().await.unwrap_err().to_string();
    assert!(error.contains("it was closed"), "{error}");
}

/// A server whose stream of the session stands `late` after it was asked for. A call is answered with whether it did.
async fn late_stream(late: Duration) -> Raw {
    let stands = Arc::new(AtomicBool::new(false));
    Raw::start(move |asked, mut talk| {
        let stands = Arc::clone(&stands);
        Box::pin(async move {
            match asked.what() {
                "GET" => {
                    tokio::time::sleep(late).await;
                    stands.store(true, Ordering::SeqCst);
                    talk.stream().await;
                    talk.raw(": hello\n\n").await;
                    talk.gone().await;
                }
                "tools/call" => {
                    let stands = stands.load(Ordering::SeqCst).to_string();
                    talk.json(&asked.answer(text(&stands))).await;
                }
                _ => talk.legacy(&asked).await,
            }
        })
    })
    .await
}

fn accepts() -> Options {
    Options {
        handlers: Arc::new(Accepts::default()),
        ..options()
    }
}

#[tokio::test]
async fn a_call_that_may_be_asked_about_waits_for_the_stream_on_which_a_legacy_server_asks() {
    let raw = late_stream(Duration::from_millis(500)).await;
    let connection = open(&raw, accepts()).await;
    assert!(call(&connection).await.unwrap().contains("true"));
    // A client without answers is asked nothing.
    let raw = late_stream(LONG).await;
    let connection = open(&raw, options()).await;
    let started = Instant::now();
    assert!(call(&connection).await.unwrap().contains("false"));
    assert!(started.elapsed() < Duration::from_secs(1));
    // The wait has a bound.
    let raw = late_stream(LONG).await;
    let connection = open(&raw, accepts()).await;
    let answer = tokio::time::timeout(LONG / 2, call(&connection)).await;
    assert!(answer.unwrap().unwrap().contains("false"));
}

#[tokio::test]
async fn the_stream_of_a_session_takes_no_place_of_a_call() {
    let raw = Arc::new(Forgetful::default()).start().await;
    let mut options = options();
    options.bounds.max_open = 1;
    let connection = open(&raw, options).await;
    raw.wait("GET", 1).await;
    let answer = tokio::time::timeout(LONG, call(&connection)).await;
    assert!(answer.unwrap().unwrap().contains("s0"));
}

#[tokio::test]
async fn a_subscription_that_the_new_session_refuses_ends() {
    let state = Arc::new(Forgetful::default());
    let raw = state.start().await;
    let connection = open(&raw, options()).await;
    let mut subscription = connection.listen(about("a://b")).await.unwrap();
    state.refuses_subscriptions.store(true, Ordering::SeqCst);
    state.sessions.fetch_add(1, Ordering::SeqCst);
    assert!(call(&connection).await.unwrap().contains("s1"));
    let ended = tokio::time::timeout(LONG, subscription.next()).await;
    assert_eq!(ended.unwrap().unwrap(), None);
}

#[tokio::test]
async fn ids_of_sessions_that_are_none_are_refused() {
    for id in ["with space", "t\tab", "\u{e9}", &"x".repeat(5000)] {
        let header = format!("mcp-session-id: {id}\r\n");
        let raw = Raw::start(move |asked, mut talk| {
            let header = header.clone();
            Box::pin(async move {
                match asked.what() {
                    "initialize" => {
                        let result = asked.answer(initialized("2025-11-25"));
                        talk.json_with(&header, &result).await;
                    }
                    _ => talk.legacy(&asked).await,
                }
            })
        })
        .await;
        let error = Connection::open(&Dial::url(&raw.url), options()).await;
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("the id of the session is none"),
            "{id}: {error}"
        );
    }
}

#[tokio::test]
async fn a_legacy_server_is_told_the_severity_of_the_options() {
    let raw = Arc::new(Forgetful::default()).start().await;
    let with_level = Options {
        log_level: Some(LoggingLevel::Error),
        ..options()
    };
    open(&raw, with_level).await;
    let asked = raw.asked();
    let told = asked.iter().find(|it| it.what() == "logging/setLevel");
    assert_eq!(told.unwrap().message["params"]["level"], "error");
}
