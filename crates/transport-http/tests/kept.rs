//! Legacy sessions that outlive the server, and what is kept of them when.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Running, start};
use mcp_service::Change;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    future::ready,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};
use testkit::{GENEROUS, HttpClient, HttpRequest, SseStream, wait_until};
use transport_http::{HttpLimits, HttpOptions, PersistSessions, PersistedSession};

/// Keeps sessions for as long as the test runs, and counts how often it is asked to.
#[derive(Debug, Default)]
struct Kept {
    sessions: Mutex<HashMap<Arc<str>, PersistedSession>>,
    asked: AtomicUsize,
}

impl Kept {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn len(&self) -> usize {
        self.sessions.lock().unwrap().len()
    }

    fn only(&self) -> PersistedSession {
        let sessions = self.sessions.lock().unwrap();
        assert_eq!(sessions.len(), 1);
        sessions.values().next().unwrap().clone()
    }

    /// As if all had been used so much earlier.
    fn age(&self, by: Duration) {
        for session in self.sessions.lock().unwrap().values_mut() {
            session.last_used -= by;
        }
    }
}

/// Keeper that a server is given.
struct Keeper(Arc<Kept>);

impl PersistSessions for Keeper {
    fn load(&self) -> Vec<PersistedSession> {
        self.0.sessions.lock().unwrap().values().cloned().collect()
    }

    fn put(&self, session: &PersistedSession) {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let mut sessions = self.0.sessions.lock().unwrap();
        sessions.insert(Arc::clone(&session.id), session.clone());
    }

    fn touch(&self, id: &str, last_used: SystemTime) {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(session) = self.0.sessions.lock().unwrap().get_mut(id) {
            session.last_used = last_used;
        }
    }

    fn remove(&self, id: &str) {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        self.0.sessions.lock().unwrap().remove(id);
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }
}

async fn begin(kept: &Arc<Kept>, limits: HttpLimits) -> Running {
    start(HttpOptions {
        keep_sessions: Some(Arc::new(Keeper(Arc::clone(kept)))),
        limits,
        ..HttpOptions::default()
    })
    .await
}

/// Ends a server gracefully.
async fn end(mut running: Running) {
    running.stop();
    running.stopped().await;
}

/// The same client, of another server.
fn moved(client: &HttpClient, to: &Running) -> HttpClient {
    client.clone().moved_to(to.client().address())
}

async fn own_stream(client: &HttpClient, last: Option<&str>) -> SseStream {
    let get = HttpRequest::get("/mcp").header("accept", "text/event-stream");
    let get = match last {
        Some(last) => get.header("last-event-id", last),
        None => get,
    };
    client.stream(&client.dress(get)).await
}

/// Subjects of the next `count` messages of a stream, and the name of the last.
async fn hears(stream: &mut SseStream, count: usize) -> (Vec<String>, String) {
    let (mut heard, mut last) = (Vec::new(), String::new());
    while heard.len() < count {
        let event = stream.next_event().await.expect("the stream goes on");
        last = event.id.clone().unwrap_or(last);
        if !event.data.is_empty() {
            let said: Value = serde_json::from_str(&event.data).unwrap();
            let uri = said["params"]["uri"].as_str().map(str::to_owned);
            heard.push(uri.unwrap_or_else(|| said["method"].as_str().unwrap().to_owned()));
        }
    }
    (heard, last)
}

const TOOLS: &str = "notifications/tools/list_changed";
const RESOURCES: &str = "notifications/resources/list_changed";

#[tokio::test]
async fn a_session_goes_on_in_the_next_process() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let kept = Arc::<Kept>::default();
        let running = begin(&kept, HttpLimits::default()).await;
        let mut client = running.client();
        client.initialize(version).await;
        for uri in ["x://1", "x://2"] {
            client
                .post_legacy("resources/subscribe", json!({ "uri": uri }))
                .await;
        }
        client
            .post_legacy("resources/unsubscribe", json!({ "uri": "x://1" }))
            .await;
        let before = kept.only();
        assert_eq!(before.state.version.as_str(), version);
        assert_eq!((before.lives, &*before.id), (0, client.session().unwrap()));
        assert_eq!(before.state.resources, ["x://2"]);
        end(running).await;
        assert_eq!(kept.len(), 1, "the end of the server is not the session's");

        let running = begin(&kept, HttpLimits::default()).await;
        assert_eq!(running.server.sessions(), 1);
        let mut client = moved(&client, &running);
        let mut stream = own_stream(&client, None).await;
        // It may have missed something.
        let (heard, _) = hears(&mut stream, 3).await;
        assert_eq!(heard, [TOOLS, RESOURCES, "x://2"]);
        let listed = client.post_legacy("tools/list", json!({})).await;
        assert!(listed.response().get("result").is_some(), "{version}");
        let uri = "x://3";
        client
            .post_legacy("resources/subscribe", json!({ "uri": uri }))
            .await;
        for uri in ["x://1", "x://2", "x://3"] {
            running.engine.publish(&Change::Resource(uri.to_owned()));
        }
        running.engine.publish(&Change::Tools);
        let (heard, _) = hears(&mut stream, 3).await;
        assert_eq!(heard, ["x://2", "x://3", TOOLS], "{version}");
        let after = kept.only();
        assert_eq!(after.lives, 1);
        assert_eq!(after.state.resources, ["x://2", "x://3"]);
        assert_eq!(after.id, before.id);
    }
}

#[tokio::test]
async fn what_a_client_can_do_is_known_in_the_next_process() {
    let kept = Arc::<Kept>::default();
    let running = begin(&kept, HttpLimits::default()).await;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    end(running).await;
    let declared = json!({ "roots": { "listChanged": true }, "elicitation": { "url": {} } });
    let declared: mcp_protocol::model::ClientCapabilities =
        serde_json::from_value(declared).unwrap();
    {
        let mut sessions = kept.sessions.lock().unwrap();
        let session = sessions.values_mut().next().unwrap();
        session.state.capabilities = declared.clone();
        session.state.log_level = mcp_protocol::model::LoggingLevel::Alert;
    }
    let running = begin(&kept, HttpLimits::default()).await;
    let mut client = moved(&client, &running);
    client
        .post_legacy("resources/subscribe", json!({ "uri": "x://1" }))
        .await;
    let state = kept.only().state;
    assert_eq!(state.capabilities, declared);
    assert_eq!(
        state.log_level,
        mcp_protocol::model::LoggingLevel::Alert,
        "and what it wants to hear"
    );
}

#[tokio::test]
async fn a_request_in_a_session_asks_nothing_of_the_keeper() {
    let kept = Arc::<Kept>::default();
    let running = begin(&kept, HttpLimits::default()).await;
    let mut client = running.client();
    client.initialize("2025-06-18").await;
    assert_eq!(kept.asked(), 1);
    for _ in 0..200 {
        let params = json!({ "name": "echo", "arguments": {} });
        let answer = client.post_legacy("tools/call", params).await;
        assert!(answer.response().get("result").is_some());
    }
    assert_eq!(kept.asked(), 1);
}

#[tokio::test]
async fn what_has_ended_does_not_come_back() {
    let kept = Arc::<Kept>::default();
    let limits = HttpLimits {
        session_idle: Duration::from_secs(600),
        max_sessions: 2,
        ..HttpLimits::default()
    };
    let running = begin(&kept, limits).await;
    let mut client = running.client();
    client.initialize("2025-06-18").await;
    let request = HttpRequest::new("DELETE", "/mcp");
    let request = client.dress(request);
    assert_eq!(client.exchange(&request).await.status, 204);
    assert_eq!(kept.len(), 0, "ended by its client");

    client.initialize("2025-06-18").await;
    end(running).await;
    kept.age(Duration::from_secs(601));
    let running = begin(&kept, limits).await;
    assert_eq!((running.server.sessions(), kept.len()), (0, 0), "idle");

    let mut clients = Vec::new();
    for age in 0..2 {
        kept.age(Duration::from_secs(60));
        let mut client = running.client();
        client.initialize("2025-06-18").await;
        clients.push((age, client));
    }
    end(running).await;
    let running = begin(
        &kept,
        HttpLimits {
            max_sessions: 1,
            ..limits
        },
    )
    .await;
    assert_eq!((running.server.sessions(), kept.len()), (1, 1), "too many");
    end(running).await;
}

#[tokio::test]
async fn of_too_many_those_used_last_go_on() {
    let kept = Arc::<Kept>::default();
    let limits = HttpLimits {
        max_sessions_per_principal: 2,
        ..HttpLimits::default()
    };
    let running = begin(&kept, HttpLimits::default()).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = running.client();
        client.initialize("2025-06-18").await;
        clients.push(client);
    }
    end(running).await;
    for (minutes, client) in (0..).zip(&clients) {
        let mut sessions = kept.sessions.lock().unwrap();
        let session = sessions.get_mut(client.session().unwrap()).unwrap();
        session.last_used -= Duration::from_secs(60 * minutes);
    }
    let running = begin(&kept, limits).await;
    assert_eq!((running.server.sessions(), kept.len()), (2, 2));
    let mut statuses = Vec::new();
    for client in &clients {
        let mut client = moved(client, &running);
        let message = client.voice.request("tools/list", json!({}));
        statuses.push(client.exchange(&client.post_of(&message)).await.status);
    }
    assert_eq!(statuses, [200, 200, 404]);
}

#[tokio::test]
async fn when_a_session_was_used_is_kept_without_a_request_having_to_say_it() {
    let kept = Arc::<Kept>::default();
    let limits = HttpLimits {
        session_idle: Duration::from_secs(2),
        ..HttpLimits::default()
    };
    let running = begin(&kept, limits).await;
    let mut client = running.client();
    client.initialize("2025-06-18").await;
    let began = kept.only().last_used;
    // Its stream is use enough.
    let _stream = own_stream(&client, None).await;
    wait_until("it is told", GENEROUS, || {
        kept.only().last_used.duration_since(began).unwrap() > limits.session_idle
    })
    .await;
}

#[tokio::test]
async fn no_event_is_taken_for_one_of_another_process() {
    let kept = Arc::<Kept>::default();
    let running = begin(&kept, HttpLimits::default()).await;
    let mut client = running.client();
    client.initialize("2025-11-25").await;
    let mut stream = own_stream(&client, None).await;
    let _beginning = stream.next_event().await;
    running.engine.publish(&Change::Tools);
    let (_, last) = hears(&mut stream, 1).await;
    assert_eq!(last, "0-1");
    let params = json!({ "name": "steps", "arguments": {}, "_meta": { "progressToken": "t" } });
    client.post_legacy("tools/call", params.clone()).await;
    drop(stream);
    end(running).await;

    let running = begin(&kept, HttpLimits::default()).await;
    let mut client = moved(&client, &running);
    // A stream with the number that one had before.
    client.post_legacy("tools/call", params).await;
    let get = HttpRequest::get("/mcp").header("accept", "text/event-stream");
    let lost = client.dress(get.header("last-event-id", "1-0"));
    assert_eq!(client.exchange(&lost).await.status, 400);
    // On its own stream nothing of this process has been read after `0-1`, whatever it is called.
    let mut stream = own_stream(&client, Some(&last)).await;
    let (heard, first_of_now) = hears(&mut stream, 2).await;
    assert_eq!(heard, [TOOLS, RESOURCES]);
    assert_ne!(first_of_now, "0-2");
    drop(stream);
    let mut stream = own_stream(&client, Some(&last)).await;
    assert_eq!(hears(&mut stream, 2).await.0, [TOOLS, RESOURCES], "again");
}

#[tokio::test]
async fn another_principal_has_no_use_for_it() {
    let kept = Arc::<Kept>::default();
    let running = begin(&kept, HttpLimits::default()).await;
    let mut client = running.client();
    client.initialize("2025-06-18").await;
    end(running).await;
    let running = begin(&kept, HttpLimits::default()).await;
    let mut client = moved(&client, &running);
    let message = client.voice.request("tools/list", json!({}));
    let request = client.post_of(&message);
    let stranger = request.clone().header("x-mcp-client-id", "somebody-else");
    assert_eq!(client.exchange(&stranger).await.status, 404);
    assert_eq!(client.exchange(&request).await.status, 200);
}
