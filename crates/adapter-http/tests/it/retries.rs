//! Number of attempts for a request.

use crate::service::{Seen, Service, answer, bound, call, call_as, client, json as answer_json};
use adapter_tools::{Errand, OpenErrand, Repeat, ToolCx, ToolError, TraceErrands};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// A service that answers with these statuses, one after the other, and then 200.
async fn service(statuses: &'static [u16]) -> Service {
    let next = AtomicUsize::new(0);
    Service::start(move |_| {
        let status = statuses.get(next.fetch_add(1, Ordering::SeqCst));
        answer_json(*status.unwrap_or(&200), json!({}))
    })
    .await
}

fn binding(service: &Service, method: &str, more: Value) -> Value {
    let mut binding = json!({
        "type": "http", "method": method, "url": service.url("/"),
        "retry": {"max_attempts": 3, "backoff_ms": 1},
    });
    binding
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    binding
}

#[tokio::test]
async fn only_what_may_be_done_twice_is_sent_twice() {
    let key = json!({"idempotency_header": "Idempotency-Key"});
    let rows: Vec<(&str, &'static [u16], Value, usize, bool)> = vec![
        ("GET", &[503, 502], json!({}), 3, true),
        ("GET", &[503, 503, 503], json!({}), 3, false),
        ("PUT", &[504], json!({}), 2, true),
        ("DELETE", &[429], json!({}), 2, true),
        ("GET", &[500], json!({}), 1, false),
        ("GET", &[404], json!({}), 1, false),
        (
            "GET",
            &[503],
            json!({"retry": {"max_attempts": 1}}),
            1,
            false,
        ),
        ("POST", &[503], json!({}), 1, false),
        ("PATCH", &[503], json!({}), 1, false),
        ("POST", &[503], key, 2, true),
        // It says of itself that this is an answer.
        (
            "GET",
            &[503],
            json!({"response_mapping": {"status_codes": {"503": "success"}}}),
            1,
            true,
        ),
    ];
    for (method, statuses, more, times, is_answered) in rows {
        let service = service(statuses).await;
        let tool = bound(&client(), &binding(&service, method, more));
        let result = call(&tool, json!({})).await;
        assert_eq!(service.seen().len(), times, "{method} {statuses:?}");
        assert_eq!(result.is_ok(), is_answered, "{method} {statuses:?}");
    }
}

#[tokio::test]
async fn only_what_was_not_done_may_be_called_again_whatever_the_tool_does() {
    let key = || json!({"idempotency_header": "Idempotency-Key"});
    let rows: Vec<(&str, &'static [u16], Value, bool)> = vec![
        ("GET", &[503, 503, 503], json!({}), true),
        ("PUT", &[502, 503, 503], json!({}), true),
        ("POST", &[429], json!({}), true),
        // A proxy answers so where the connection to the service breaks.
        ("POST", &[503], json!({}), false),
        ("POST", &[500], json!({}), false),
        // Another call has another key.
        ("POST", &[500], key(), false),
        ("POST", &[429, 429, 429], key(), true),
        // The first attempt may have been carried out.
        ("POST", &[502, 429, 429], key(), false),
    ];
    for (method, statuses, more, is_sure) in rows {
        let service = service(statuses).await;
        let tool = bound(&client(), &binding(&service, method, more));
        let error = call(&tool, json!({})).await.unwrap_err();
        let is_unknown = matches!(
            error,
            ToolError::Crashed {
                repeat: Repeat::IfIdempotent,
                ..
            }
        );
        assert_eq!(
            (error.is_retryable(), is_unknown),
            (is_sure, !is_sure),
            "{method} {statuses:?}: {error:?}"
        );
    }
    let service = Service::start(|_| {
        let mut busy = answer(503, "text/plain", "");
        busy.headers_mut()
            .insert("retry-after", "5".parse().unwrap());
        busy
    })
    .await;
    let tool = bound(&client(), &binding(&service, "POST", json!({})));
    let error = call(&tool, json!({})).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
}

#[tokio::test]
async fn every_attempt_has_the_same_names() {
    let service = service(&[503, 503]).await;
    let more = json!({"idempotency_header": "Idempotency-Key"});
    let tool = bound(&client(), &binding(&service, "POST", more));
    // Two clients count their calls alike, and neither is the other's repetition.
    for caller in ["anna", "bert"] {
        call_as(&tool, ToolCx::new(caller, "call-9"), json!({}))
            .await
            .unwrap();
    }
    let seen = service.seen();
    let (of_anna, of_bert) = seen.split_at(3);
    let names = |of: &[Seen], header: &str| -> BTreeSet<String> {
        of.iter().map(|it| it.header(header).to_owned()).collect()
    };
    assert_eq!(names(&seen, "x-request-id"), ["call-9".to_owned()].into());
    let keys = [of_anna, of_bert].map(|of| names(of, "idempotency-key"));
    assert!(keys.iter().all(|keys| keys.len() == 1), "{keys:?}");
    assert!(keys[0].is_disjoint(&keys[1]), "{keys:?}");
}

#[tokio::test]
async fn whatever_a_client_calls_its_call_it_is_sent() {
    let service = service(&[]).await;
    let tool = bound(&client(), &binding(&service, "POST", json!({})));
    let long = "x".repeat(100_000);
    for id in ["\"订单\"", r#""a\nb""#, "a\nb", &long] {
        let answered = call_as(&tool, ToolCx::new("anna", id), json!({})).await;
        assert!(answered.is_ok(), "{id:.20}: {answered:?}");
    }
    let sent: Vec<_> = service
        .seen()
        .iter()
        .map(|it| it.header("x-request-id").to_owned())
        .collect();
    assert_eq!(sent, ["", r#""a\nb""#, "", ""]);
}

#[tokio::test]
async fn a_service_that_says_when_is_believed_within_the_deadline() {
    let busy = |seconds: &'static str| {
        move |_: &crate::service::Seen| {
            let mut busy = answer(503, "text/plain", "");
            busy.headers_mut()
                .insert("retry-after", seconds.parse().unwrap());
            busy
        }
    };
    let service = Service::start(busy("30")).await;
    let tool = bound(&client(), &binding(&service, "GET", json!({})));
    let start = Instant::now();
    let cx = ToolCx::new("anna", "1").with_deadline(start + Duration::from_secs(20));
    let error = call_as(&tool, cx, json!({})).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    assert_eq!(service.seen().len(), 1);
    // It was not waited for in vain.
    assert!(start.elapsed() < Duration::from_secs(15));

    let next = AtomicUsize::new(0);
    let service = Service::start(move |_| {
        let mut answer = answer_json(200, json!({}));
        if next.fetch_add(1, Ordering::SeqCst) == 0 {
            *answer.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
            answer
                .headers_mut()
                .insert("retry-after", "1".parse().unwrap());
        }
        answer
    })
    .await;
    let tool = bound(&client(), &binding(&service, "GET", json!({})));
    let start = Instant::now();
    call(&tool, json!({})).await.unwrap();
    assert!(Duration::from_millis(900) < start.elapsed());
}

#[tokio::test]
async fn nobody_there_may_be_tried_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let binding = json!({
        "type": "http", "method": "POST", "url": format!("http://{address}/"),
    });
    let error = call(&bound(&client(), &binding), json!({}))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "the service cannot be reached");
    assert!(
        matches!(
            error,
            ToolError::Crashed {
                repeat: Repeat::Safe,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_a_write_unknown() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = std::sync::Arc::new(AtomicUsize::new(0));
    let counting = std::sync::Arc::clone(&accepted);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counting.fetch_add(1, Ordering::SeqCst);
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer).await;
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nab")
                .await;
        }
    });
    let client = client();
    for (method, times) in [("POST", 1), ("GET", 3)] {
        accepted.store(0, Ordering::SeqCst);
        let binding = json!({
            "type": "http", "method": method, "url": format!("http://{address}/"),
            "retry": {"max_attempts": 3, "backoff_ms": 1},
        });
        let error = call(&bound(&client, &binding), json!({}))
            .await
            .unwrap_err();
        let is_unknown = matches!(
            error,
            ToolError::Crashed {
                repeat: Repeat::IfIdempotent,
                ..
            }
        );
        assert!(is_unknown, "{method} {error:?}");
        assert_eq!(accepted.load(Ordering::SeqCst), times, "{method}");
    }
}

/// Keeps what it hears of requests, and numbers them.
#[derive(Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

struct Open(Arc<Mutex<Vec<String>>>, u32);

impl TraceErrands for Heard {
    fn begin(&self, errand: &Errand<'_>) -> Box<dyn OpenErrand> {
        assert_eq!((errand.method, errand.scheme), ("GET", "http"));
        assert_eq!((errand.host, errand.port.is_some()), ("127.0.0.1", true));
        Box::new(Open(Arc::clone(&self.0), errand.resent))
    }
}

impl OpenErrand for Open {
    fn traceparent(&self) -> String {
        format!("attempt-{}", self.1)
    }

    fn tracestate(&self) -> Option<String> {
        Some("a=1".to_owned())
    }

    fn answered(self: Box<Self>, status: u16) {
        self.0.lock().unwrap().push(format!("{} {status}", self.1));
    }

    fn failed(self: Box<Self>, kind: &'static str) {
        self.0.lock().unwrap().push(format!("{} {kind}", self.1));
    }
}

#[tokio::test]
async fn each_attempt_says_where_in_a_trace_it_is() {
    let service = service(&[503]).await;
    let tool = bound(&client(), &binding(&service, "GET", json!({})));
    let heard = Arc::new(Heard::default());
    let cx = ToolCx::new("anna", "call-7")
        .with_trace("the-call", None)
        .with_errands(Arc::clone(&heard) as _);
    call_as(&tool, cx, json!({})).await.unwrap();
    assert_eq!(*heard.0.lock().unwrap(), ["0 503", "1 200"]);
    let seen = service.seen();
    let parents: Vec<_> = seen.iter().map(|it| it.header("traceparent")).collect();
    assert_eq!(parents, ["attempt-0", "attempt-1"]);
    assert!(seen.iter().all(|it| it.header("tracestate") == "a=1"));
}
