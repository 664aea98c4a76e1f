//! Bounds that a service cannot break.

use crate::service::{Service, answer, bound, bound_with, call, call_as, client, client_with};
use adapter_http::Bounds;
use adapter_tools::{ToolCx, ToolError};
use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

fn get(service: &Service) -> Value {
    json!({"type": "http", "method": "GET", "url": service.url("/"), "retry": {"max_attempts": 1}})
}

#[tokio::test]
async fn an_answer_is_read_to_its_bound_and_no_further() {
    let produced = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&produced);
    let service = Service::start(move |seen| {
        if seen.target == "/fits" {
            return answer(200, "text/plain", vec![b'x'; 10_000]);
        }
        if seen.target == "/announced" {
            return answer(200, "text/plain", vec![b'x'; 10_001]);
        }
        let counting = Arc::clone(&counting);
        let endless = stream::repeat_with(move || {
            counting.fetch_add(1, Ordering::SeqCst);
            Ok(Frame::data(Bytes::from(vec![b'x'; 1000])))
        });
        Response::builder()
            .header("content-type", "text/plain")
            .body(BodyExt::boxed(StreamBody::new(endless)))
            .unwrap()
    })
    .await;
    let client = client();
    let bounds = Bounds {
        max_response_bytes: 10_000,
    };
    for (path, is_read) in [("/fits", true), ("/announced", false), ("/endless", false)] {
        let mut binding = get(&service);
        binding["url"] = json!(service.url(path));
        let tool = bound_with(&client, &binding, None, bounds);
        let result = call(&tool, json!({})).await;
        assert_eq!(result.is_ok(), is_read, "{path}");
        if let Err(error) = result {
            assert_eq!(error.to_string(), "the answer has more than 10000 bytes");
        }
    }
    // What the sockets hold, and not more.
    assert!(produced.load(Ordering::SeqCst) < 100_000);
}

#[tokio::test]
async fn a_slow_drip_ends_with_the_deadline() {
    let service = Service::start(|_| {
        let drip = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok(Frame::data(Bytes::from_static(b"x"))), ()))
        });
        Response::new(BodyExt::boxed(StreamBody::new(drip)))
    })
    .await;
    let mut binding = get(&service);
    binding["timeout_ms"] = json!(200);
    let start = Instant::now();
    let error = call(&bound(&client(), &binding), json!({}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::TimedOut), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(10));
    // The caller's own deadline holds as well.
    binding["timeout_ms"] = json!(3_600_000);
    let cx = ToolCx::new("anna", "1").with_deadline(Instant::now() + Duration::from_millis(200));
    let error = call_as(&bound(&client(), &binding), cx, json!({}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::TimedOut), "{error:?}");
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    let service = Service::start(|_| {
        let mut answer = answer(200, "text/plain", "x");
        answer
            .headers_mut()
            .insert("x-long", "x".repeat(80_000).parse().unwrap());
        answer
    })
    .await;
    let error = call(&bound(&client(), &get(&service)), json!({}))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("headers have more than"),
        "{error:?}"
    );
}

#[tokio::test]
async fn one_connection_serves_calls_that_follow_each_other() {
    let service = Service::start(|_| answer(200, "text/plain", "x")).await;
    let client = client();
    for _ in 0..5 {
        // Tools that are made anew share the client's connections.
        call(&bound(&client, &get(&service)), json!({}))
            .await
            .unwrap();
    }
    assert_eq!((service.seen().len(), service.connections()), (5, 1));
}

#[tokio::test]
async fn a_host_gets_no_more_connections_than_it_may_have() {
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (counting, maximum) = (Arc::clone(&open), Arc::clone(&most));
    let service = Service::start(move |_| {
        let now = 1 + counting.fetch_add(1, Ordering::SeqCst);
        maximum.fetch_max(now, Ordering::SeqCst);
        let counting = Arc::clone(&counting);
        let late = stream::once(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            counting.fetch_sub(1, Ordering::SeqCst);
            Ok(Frame::data(Bytes::from_static(b"x")))
        });
        Response::new(BodyExt::boxed(StreamBody::new(late)))
    })
    .await;
    let client = client_with(|options| options.max_connections = 3);
    let tool = bound(&client, &get(&service));
    let calls = (0..12).map(|_| call(&tool, json!({})));
    for result in futures_util::future::join_all(calls).await {
        result.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(service.connections() <= 3, "{}", service.connections());
}

#[tokio::test]
async fn a_call_that_is_given_up_closes_its_connection() {
    let (asked, mut is_asked) = unbounded_channel();
    let (dropped, mut is_dropped) = unbounded_channel();
    let service = Service::start(move |_| {
        asked.send(()).unwrap();
        let told = OnDrop(dropped.clone());
        let never = stream::once(async move {
            let _told = told;
            std::future::pending().await
        });
        Response::new(BodyExt::boxed(StreamBody::new(never)))
    })
    .await;
    let mut binding = get(&service);
    binding["timeout_ms"] = json!(3_600_000);
    let tool = bound(&client(), &binding);
    tokio::select! {
        _ = call(&tool, json!({})) => panic!("there is no answer"),
        _ = is_asked.recv() => {}
    }
    let told = tokio::time::timeout(Duration::from_secs(20), is_dropped.recv()).await;
    assert_eq!(told, Ok(Some(())));
}

struct OnDrop(UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}
