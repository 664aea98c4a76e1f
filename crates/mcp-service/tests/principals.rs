//! Every request is its sender's, with the roles that it has then.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use jsonrpc_core::{ErrorCode, Limits, Request, decode};
use mcp_protocol::model::{
    ClientRequest, Implementation, RequestMeta, ResourcesCapability, ServerCapabilities,
    ServerResult,
};
use mcp_service::{
    Accepted, Change, Connection, Engine, EngineLimits, McpError, Outbox, Principal, Reply,
    RequestCx, ServerIdentity, Service, TransportKind,
};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Says who has asked, in an error, unless a subscription is asked for.
struct WhoAsks;

impl Service<ClientRequest> for WhoAsks {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        match request {
            ClientRequest::Subscribe(_) => Ok(ServerResult::Empty),
            _ => Err(McpError::new(
                ErrorCode::INTERNAL_ERROR,
                format!("{:?}", cx.principal),
            )),
        }
    }
}

fn engine() -> Arc<Engine<WhoAsks>> {
    let identity = ServerIdentity {
        info: Implementation {
            name: "test".into(),
            version: "1".into(),
            ..Implementation::default()
        },
        capabilities: ServerCapabilities {
            tools: true,
            resources: Some(ResourcesCapability { subscribe: true }),
            ..ServerCapabilities::default()
        },
        instructions: None,
        discover_ttl_ms: 0,
    };
    Engine::new(WhoAsks, identity, EngineLimits::default())
}

fn anna(roles: &[&str]) -> Principal {
    let roles = roles.iter().map(|&role| role.into()).collect();
    Principal::new("anna").with_roles(roles)
}

fn request(id: i64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

struct Session {
    engine: Arc<Engine<WhoAsks>>,
    connection: Arc<Connection>,
}

impl Session {
    async fn of(principal: &Principal) -> Self {
        let connection = Connection::new(
            principal.clone(),
            TransportKind::Http,
            Some("s".into()),
            Outbox::default(),
        );
        let session = Self {
            engine: engine(),
            connection,
        };
        let params = json!({
            "protocolVersion": "2025-03-26",
            "capabilities": {},
            "clientInfo": { "name": "x", "version": "1" },
        });
        let opened = session
            .say(principal, &request(0, "initialize", params))
            .await;
        assert!(opened["result"].is_object(), "{opened}");
        session
    }

    async fn say(&self, principal: &Principal, message: &Value) -> Value {
        let payload = decode(&message.to_string().into(), Limits::default()).unwrap();
        let outbox = Outbox::default();
        let accepted =
            self.engine
                .accept_payload(&self.connection, principal, payload, &outbox, None);
        value(accepted).await
    }

    fn heard(&self) -> usize {
        std::iter::from_fn(|| self.connection.outbox().try_next()).count()
    }
}

async fn value(accepted: Accepted) -> Value {
    let reply = match accepted {
        Accepted::Done(reply) => reply,
        Accepted::Pending(exchange) => exchange.await,
    };
    frame(reply)
}

fn frame(reply: Reply) -> Value {
    let frame = reply.into_frame().expect("an answer");
    let bytes: Vec<u8> = frame.pieces().flat_map(|it| it.to_vec()).collect();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
async fn in_a_session_each_request_has_the_roles_that_it_came_with() {
    let session = Session::of(&anna(&["clerk"])).await;
    let list = request(1, "tools/list", json!({}));
    for roles in [&["clerk"][..], &[], &["auditor", "clerk"], &["auditor"]] {
        let told = session.say(&anna(roles), &list).await;
        assert_eq!(told["error"]["message"], format!("{:?}", anna(roles)));
        let told = session.say(&anna(roles), &json!([list])).await;
        assert_eq!(told[0]["error"]["message"], format!("{:?}", anna(roles)));
    }
}

#[tokio::test]
async fn nobody_else_can_use_a_session() {
    let session = Session::of(&anna(&["clerk"])).await;
    let other = Principal::new("bert").with_roles(["clerk".into()].into());
    let list = request(1, "tools/list", json!({}));
    for message in [&list, &json!([list])] {
        let told = session.say(&other, message).await;
        assert_eq!(told["error"]["code"], -32600, "{told}");
    }
    assert_eq!(
        session.connection.principal().roles(),
        anna(&["clerk"]).roles()
    );
}

#[tokio::test]
async fn what_a_session_hears_depends_on_the_roles_that_it_has_now() {
    let session = Session::of(&anna(&["clerk"])).await;
    let subscribe = request(1, "resources/subscribe", json!({ "uri": "a" }));
    session.say(&anna(&["clerk"]), &subscribe).await;
    let change = || {
        let subscriptions = session.engine.subscriptions();
        subscriptions.publish(&Change::Resource("a".to_owned()), |principal| {
            principal.roles().iter().any(|role| &**role == "clerk")
        });
        session.heard()
    };
    assert_eq!(change(), 1);
    let ping = request(2, "ping", json!({}));
    session.say(&anna(&[]), &ping).await;
    assert_eq!(change(), 0, "whatever was asked with fewer roles");
    session.say(&anna(&["clerk"]), &ping).await;
    assert_eq!(change(), 1);
}

/// As many seconds as a token lasts; nobody waits for them here.
const AN_HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_what_it_was_opened_with_has_expired() {
    let engine = engine();
    let params = json!({
        "notifications": { "toolsListChanged": true },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    });
    let listen = |principal: &Principal| {
        let params: jsonrpc_core::RawJson = jsonrpc_core::RawJson::from_value(&params).unwrap();
        let request = Request {
            id: jsonrpc_core::Id::Number(7),
            method: "subscriptions/listen".into(),
            params: params.clone(),
        };
        let meta = Box::new(RequestMeta::of(&params).unwrap());
        let outbox = Some(Outbox::default());
        value(engine.accept_modern(principal, TransportKind::Http, request, meta, outbox, None))
    };
    let long_ago = anna(&[]).until(UNIX_EPOCH);
    let ended = tokio::time::timeout(AN_HOUR, listen(&long_ago)).await;
    assert!(ended.expect("it ends")["result"].is_object());
    let began = tokio::time::Instant::now();
    let soon = anna(&[]).until(SystemTime::now() + AN_HOUR);
    let ended = tokio::time::timeout(AN_HOUR * 1_000, listen(&soon)).await;
    assert!(ended.expect("it ends")["result"].is_object());
    let took = began.elapsed();
    assert!(AN_HOUR / 2 < took && took <= AN_HOUR * 2, "{took:?}");
    assert!(engine.subscriptions().is_empty());
    // Without an end it goes on.
    let goes_on = tokio::time::timeout(AN_HOUR * 1_000, listen(&anna(&[])));
    assert!(goes_on.await.is_err());
}
