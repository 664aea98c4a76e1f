//! Alerts that are sent to a real receiver, which is not always well.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read, Write},
    net::TcpListener,
    time::{Duration, Instant, SystemTime},
};

use alerts::{
    Alerts, Condition, Event, MAX_WAITING, Moment, Observation, Severity, Timing, WebhookOptions,
    WebhookState, sign,
};
use http::HeaderMap;
use serde_json::Value;
use testkit::{Answering, GENEROUS, Received, Receiver, wait_until};

const SECRET: &str = "whsec_of_the_tests";

fn webhook(receiver: &Receiver) -> WebhookOptions {
    WebhookOptions {
        name: "pager".to_owned(),
        url: receiver.url("/hook?token=x").parse().unwrap(),
        secret: SECRET.to_owned(),
        headers: HeaderMap::new(),
        events: Vec::new(),
        authorities: Vec::new(),
        timeout: GENEROUS,
        pause: Duration::from_millis(1),
        give_up_after: GENEROUS,
    }
}

fn alerts(webhooks: Vec<WebhookOptions>) -> Alerts {
    let timing = Timing {
        settle: Duration::ZERO,
        repeat: None,
    };
    Alerts::start(webhooks, timing, "here", "1.2.3").unwrap()
}

fn now() -> Moment {
    Moment {
        at: SystemTime::now(),
        uptime: Duration::ZERO,
    }
}

fn wrong(event: Event, subject: usize) -> Observation {
    Observation {
        condition: Condition::about(event, subject.to_string()),
        severity: Severity::Critical,
        stage: 0,
        detail: "it is away".to_owned(),
    }
}

fn state(alerts: &Alerts) -> WebhookState {
    let [state] = alerts.webhooks().try_into().unwrap();
    state
}

async fn until(alerts: &Alerts, what: &str, holds: impl Fn(&WebhookState) -> bool) {
    wait_until(what, GENEROUS, || holds(&state(alerts))).await;
}

/// Computes what a receiver has to, from nothing but what it has received and the secret.
fn is_signed(received: &Received) -> bool {
    let signature = received.header("x-owlclaw-signature").unwrap();
    let time = signature.split(',').next().unwrap();
    let time: u64 = time.strip_prefix("t=").unwrap().parse().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    assert!(now.unwrap().as_secs().abs_diff(time) < 300, "{signature}");
    signature == sign(SECRET, time, &received.body)
}

fn told(received: &[Received]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let bodies = received.iter().map(Received::json);
    bodies
        .map(|body| (text(&body["key"]), text(&body["state"])))
        .collect()
}

#[tokio::test]
async fn an_alert_is_signed_and_arrives_once_and_so_does_its_end() {
    let receiver = Receiver::start().await;
    let mut options = webhook(&receiver);
    options
        .headers
        .insert("authorization", "Bearer let-me-in".parse().unwrap());
    let alerts = alerts(vec![options]);
    for _ in 0..3 {
        alerts.observe(now(), [wrong(Event::LedgerUnavailable, 1)]);
    }
    assert_eq!(alerts.raised(), 1);
    alerts.observe(now(), []);
    alerts.observe(now(), []);
    let received = receiver.wait(2).await;
    until(&alerts, "both count as delivered", |it| it.delivered == 2).await;
    assert_eq!(received.len(), 2);
    assert_eq!(receiver.received().len(), 2);
    let key = "ledger_unavailable:1".to_owned();
    let expected = [
        (key.clone(), "raised".to_owned()),
        (key, "recovered".to_owned()),
    ];
    assert_eq!(told(&received), expected);
    for received in &received {
        assert!(is_signed(received));
        let mut forged = received.clone();
        forged.body[10] ^= 1;
        assert!(!is_signed(&forged));
        assert_eq!(received.target, "POST /hook?token=x");
        assert_eq!(received.header("content-type"), Some("application/json"));
        assert_eq!(received.header("authorization"), Some("Bearer let-me-in"));
        assert_eq!(
            received.header("x-owlclaw-event"),
            Some("ledger_unavailable")
        );
        let id = received.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(received.header("x-owlclaw-delivery"), Some(&*id));
        assert_eq!(received.json()["server"]["name"], "here");
    }
    assert_eq!(alerts.raised(), 0);
}

#[tokio::test]
async fn it_is_tried_again_while_the_receiver_fails() {
    let receiver = Receiver::start().await;
    receiver.answer_next([
        Answering::Status(500),
        Answering::HangUp,
        Answering::Hang,
        Answering::Status(408),
        Answering::Status(425),
        Answering::Status(429),
        Answering::Status(503),
    ]);
    let mut options = webhook(&receiver);
    options.timeout = Duration::from_millis(300);
    let alerts = alerts(vec![options]);
    alerts.observe(now(), [wrong(Event::QuotaStoreUnavailable, 1)]);
    until(&alerts, "it is delivered", |it| it.delivered == 1).await;
    let received = receiver.wait(8).await;
    let ids = received.iter().map(|it| it.json()["id"].clone());
    let ids: Vec<_> = ids.collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert!(received.iter().all(is_signed));
    let state = state(&alerts);
    // An answer that comes late is none, and more may do so on a busy machine.
    assert!(7 <= state.failures, "{}", state.failures);
    assert_eq!(state.undelivered, 0);
    assert_eq!(state.failing, None);
}

#[tokio::test]
async fn each_pause_is_twice_as_long_as_the_one_before() {
    let receiver = Receiver::start().await;
    receiver.answer_next([Answering::Status(500); 5]);
    let mut options = webhook(&receiver);
    options.pause = Duration::from_millis(100);
    let alerts = alerts(vec![options]);
    let begun = Instant::now();
    alerts.observe(now(), [wrong(Event::LedgerUnavailable, 1)]);
    until(&alerts, "it is delivered", |it| it.delivered == 1).await;
    // 100, 200, 400, 800 and 1,600.
    let took = begun.elapsed();
    assert!(Duration::from_millis(3_100) <= took, "{took:?}");
}

/// Answers one request after the other with these lines; each has a connection.
fn answer(listener: TcpListener, answers: [&'static str; 2]) {
    std::thread::spawn(move || {
        for lines in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut bytes = [0; 4096];
            let is_whole = |request: &[u8]| {
                let text = String::from_utf8_lossy(request);
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
                body.is_some_and(|it| serde_json::from_str::<Value>(it).is_ok())
            };
            while !is_whole(&request) {
                let count = stream.read(&mut bytes).unwrap();
                assert_ne!(count, 0);
                request.extend_from_slice(&bytes[..count]);
            }
            let answer =
                format!("HTTP/1.1 {lines}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
}

#[tokio::test]
async fn a_receiver_says_when_it_wants_to_be_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    answer(listener, ["503 Busy\r\nRetry-After: 3", "204 No Content"]);
    let receiver = Receiver::start().await;
    let mut options = webhook(&receiver);
    options.url = url.parse().unwrap();
    let alerts = alerts(vec![options]);
    let begun = Instant::now();
    alerts.observe(now(), [wrong(Event::LedgerUnavailable, 1)]);
    until(&alerts, "it is delivered", |it| it.delivered == 1).await;
    assert!(Duration::from_secs(3) <= begun.elapsed());
    assert_eq!(state(&alerts).failures, 1);
}

#[tokio::test]
async fn what_is_refused_or_takes_too_long_is_given_up_and_counted() {
    let receiver = Receiver::start().await;
    receiver.answer_next([Answering::Status(404), Answering::Status(302)]);
    let mut options = webhook(&receiver);
    options.give_up_after = Duration::from_secs(2);
    let alerts = alerts(vec![options]);
    alerts.observe(now(), [wrong(Event::LedgerUnavailable, 1)]);
    alerts.observe(now(), []);
    until(&alerts, "both are refused", |it| it.undelivered == 2).await;
    assert_eq!(receiver.received().len(), 2, "a refusal is final");

    receiver.answer_always(Answering::Status(500));
    alerts.observe(now(), [wrong(Event::LedgerUnavailable, 1)]);
    until(&alerts, "it is given up", |it| it.undelivered == 3).await;
    assert!(3 < receiver.received().len(), "it was tried again");
    assert!(state(&alerts).failing.unwrap().contains("500"));

    receiver.answer_always(Answering::Status(204));
    alerts.observe(now(), []);
    until(&alerts, "the next is delivered", |it| it.delivered == 1).await;
    assert_eq!(state(&alerts).failing, None);
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_neither_the_others_nor_whoever_observes() {
    let (dead, alive) = (Receiver::start().await, Receiver::start().await);
    dead.answer_always(Answering::Hang);
    let alerts = alerts(vec![webhook(&dead), webhook(&alive)]);
    dead_and_alive(&alerts, &alive).await;
    let [dead_state, alive_state] = alerts.webhooks().try_into().unwrap();
    assert_eq!(alive_state.delivered, 2 * EACH as u64);
    assert_eq!(dead_state.delivered, 0);
    assert_eq!(dead_state.waiting, MAX_WAITING);
    // One is on its way, the rest gave way to newer ones.
    let lost = 2 * EACH - 1 - MAX_WAITING;
    assert_eq!(dead_state.undelivered, lost as u64);
    let since = Instant::now();
    alerts.close(Duration::from_millis(100)).await;
    assert!(since.elapsed() < GENEROUS / 2);
    let undelivered = alerts.webhooks()[0].undelivered;
    assert_eq!(
        undelivered,
        2 * EACH as u64,
        "nothing is forgotten silently"
    );
}

/// So many conditions go wrong and are right again.
const EACH: usize = 200;

async fn dead_and_alive(alerts: &Alerts, alive: &Receiver) {
    let all = || (0..EACH).map(|it| wrong(Event::Budget80, it));
    alerts.observe(now(), all());
    // So that what waits is what this test says, and not what the scheduler does.
    alive.wait(EACH).await;
    alerts.observe(now(), []);
    alive.wait(2 * EACH).await;
    wait_until("all are delivered", GENEROUS, || {
        alerts.webhooks()[1].delivered == 2 * EACH as u64
    })
    .await;
}

#[tokio::test]
async fn a_receiver_gets_what_it_wants_to_know() {
    let receiver = Receiver::start().await;
    let mut options = webhook(&receiver);
    options.events = vec![Event::Budget100];
    let alerts = alerts(vec![options]);
    let all = [wrong(Event::Budget80, 1), wrong(Event::Budget100, 1)];
    alerts.observe(now(), all);
    alerts.close(GENEROUS).await;
    let expected = [("budget_100:1".to_owned(), "raised".to_owned())];
    assert_eq!(told(&receiver.received()), expected);
}

#[tokio::test]
async fn at_the_end_what_waits_is_tried_once_more() {
    let receiver = Receiver::start().await;
    receiver.answer_next([Answering::Status(500)]);
    let mut options = webhook(&receiver);
    options.pause = GENEROUS;
    options.give_up_after = 10 * GENEROUS;
    let alerts = alerts(vec![options]);
    alerts.observe(now(), [wrong(Event::LedgerUnavailable, 1)]);
    until(&alerts, "it has failed", |it| it.failures == 1).await;
    alerts.observe(now(), []);
    alerts.close(GENEROUS).await;
    let state = state(&alerts);
    assert_eq!((state.delivered, state.undelivered), (2, 0));
    let states: Vec<_> = told(&receiver.received())
        .into_iter()
        .map(|(_, state)| state)
        .collect();
    assert_eq!(states, ["raised", "raised", "recovered"]);
    alerts.observe(now(), [wrong(Event::LedgerUnavailable, 1)]);
    assert_eq!(alerts.webhooks()[0].undelivered, 1, "there is nobody left");
}
