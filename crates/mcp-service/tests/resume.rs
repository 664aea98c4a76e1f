//! Legacy sessions that go on in another process, which here is another engine.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use mcp_protocol::model::{
    ClientRequest, Implementation, LoggingLevel, ResourcesCapability, ServerCapabilities,
    ServerResult,
};
use mcp_service::{
    Accepted, Change, Connection, Engine, EngineLimits, McpError, Outbox, Principal, RequestCx,
    ServerIdentity, Service, SubscriptionLimits, TransportKind,
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

struct Nothing;

impl Service<ClientRequest> for Nothing {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, _: &RequestCx, _: ClientRequest) -> Result<ServerResult, McpError> {
        Ok(ServerResult::Empty)
    }
}

fn engine(subscriptions: SubscriptionLimits) -> Arc<Engine<Nothing>> {
    let identity = ServerIdentity {
        info: Implementation {
            name: "nothing".to_owned(),
            version: "1".to_owned(),
            ..Implementation::default()
        },
        capabilities: ServerCapabilities {
            tools: true,
            logging: true,
            resources: Some(ResourcesCapability { subscribe: true }),
            ..ServerCapabilities::default()
        },
        instructions: None,
        discover_ttl_ms: 0,
    };
    let limits = EngineLimits {
        subscriptions,
        ..EngineLimits::default()
    };
    Engine::new(Nothing, identity, limits)
}

fn connection() -> Arc<Connection> {
    let anna = Principal::new("anna");
    Connection::new(anna, TransportKind::Http, None, Outbox::default())
}

async fn send(engine: &Arc<Engine<Nothing>>, to: &Arc<Connection>, method: &str, params: Value) {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let frame = message.to_string().into();
    if let Accepted::Pending(exchange) = engine.accept(to, &frame, to.outbox()) {
        exchange.await;
    }
}

/// Messages that the client would receive, in short.
fn heard(connection: &Connection) -> Vec<String> {
    let mut heard = Vec::new();
    while let Some(frame) = connection.outbox().try_next() {
        let message: Value = serde_json::from_slice(&frame).unwrap();
        let uri = message["params"]["uri"].as_str();
        heard.push(uri.or(message["method"].as_str()).unwrap().to_owned());
    }
    heard
}

async fn opened(engine: &Arc<Engine<Nothing>>) -> Arc<Connection> {
    let connection = connection();
    let initialize = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {"url": {}}},
        "clientInfo": {"name": "c", "version": "1"},
    });
    send(engine, &connection, "initialize", initialize).await;
    connection
}

const TOOLS: &str = "notifications/tools/list_changed";
const RESOURCES: &str = "notifications/resources/list_changed";

#[tokio::test]
async fn every_change_is_told_and_what_was_agreed_on_goes_on_elsewhere() {
    let before = engine(SubscriptionLimits::default());
    assert_eq!(connection().state(), None, "nothing is agreed on yet");
    let first = opened(&before).await;
    let told = Arc::<AtomicUsize>::default();
    first.on_change({
        let told = Arc::clone(&told);
        move || {
            told.fetch_add(1, Ordering::SeqCst);
        }
    });
    for (count, (method, params)) in (1..).zip([
        ("logging/setLevel", json!({"level": "alert"})),
        ("resources/subscribe", json!({"uri": "x://1"})),
        ("resources/subscribe", json!({"uri": "x://2"})),
        ("resources/unsubscribe", json!({"uri": "x://1"})),
    ]) {
        send(&before, &first, method, params).await;
        assert_eq!(told.load(Ordering::SeqCst), count, "{method}");
    }
    for method in ["ping", "tools/list", "resources/list"] {
        send(&before, &first, method, json!({})).await;
    }
    assert_eq!(told.load(Ordering::SeqCst), 4, "of nothing else");
    let state = first.state().unwrap();
    assert_eq!(state.version.as_str(), "2025-11-25");
    assert_eq!(state.log_level, LoggingLevel::Alert);
    assert_eq!(state.resources, ["x://2"]);
    assert!(state.capabilities.elicitation.is_some_and(|it| it.url));

    let after = engine(SubscriptionLimits::default());
    let second = connection();
    after.resume(&second, state.clone()).unwrap();
    assert_eq!(second.state(), Some(state));
    assert_eq!(
        heard(&second),
        [TOOLS, RESOURCES, "x://2"],
        "announced again"
    );
    for uri in ["x://1", "x://2"] {
        after.publish(&Change::Resource(uri.to_owned()));
    }
    after.publish(&Change::Tools);
    assert_eq!(heard(&second), ["x://2", TOOLS]);
}

#[tokio::test]
async fn a_session_that_does_not_fit_leaves_nothing_behind() {
    let state = opened(&engine(SubscriptionLimits::default())).await.state();
    let full = engine(SubscriptionLimits {
        max_total: 0,
        ..SubscriptionLimits::default()
    });
    let connection = connection();
    full.resume(&connection, state.unwrap()).unwrap_err();
    assert_eq!(connection.state(), None);
    assert!(heard(&connection).is_empty());
}

#[tokio::test]
async fn roles_are_those_that_the_client_comes_back_with() {
    let engine = engine(SubscriptionLimits::default());
    let state = opened(&engine).await.state().unwrap();
    let connection = connection();
    engine.resume(&connection, state).unwrap();
    heard(&connection);
    let may_know = |principal: &Principal| principal.roles().iter().any(|it| &**it == "clerk");
    let publish = || {
        let subscriptions = engine.subscriptions();
        subscriptions.publish(&Change::Tools, may_know);
        heard(&connection)
    };
    assert!(publish().is_empty(), "none are known yet");
    let clerk = |name: &str| Principal::new(name).with_roles([Arc::from("clerk")].into());
    connection.come_back(&clerk("somebody else"));
    assert!(publish().is_empty(), "those of another are not its own");
    connection.come_back(&clerk("anna"));
    assert_eq!(publish(), [TOOLS]);
}
