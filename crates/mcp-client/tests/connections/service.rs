//! A server of our own in this process, over streams and WebSockets.

use crate::support::{LONG, until};
use futures_util::future::{BoxFuture, join_all};
use jsonrpc_core::RawJson;
use mcp_client::{CallOptions, Connection, Dial, Handlers, Options, Progress, Speak};
use mcp_protocol::{
    Era, ProtocolVersion,
    model::{
        CallToolResult, ClientCapabilities, ClientRequest, Content, ElicitAction, ElicitResult,
        ElicitationCapability, Implementation, InputRequest, InputResponse, ListToolsResult,
        LoggingLevel, ResourcesCapability, ServerCapabilities, ServerNotification, ServerResult,
        SubscriptionFilter, Tool,
    },
};
use mcp_service::{
    Change, Engine, EngineLimits, McpError, Principal, RequestCx, ServerIdentity, Service,
};
use serde_json::json;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, sync::Notify};
use transport_stdio::StdioOptions;
use transport_ws::{Identify, Identifying, WebSocketOptions, WebSockets};

/// `gate` waits until it is opened, `progress` reports, `ask` asks a legacy client, `log` logs, and
/// everything else is answered with its arguments.
#[derive(Clone)]
pub(crate) struct Tools {
    engine: Arc<Engine<Served>>,
    pub(crate) state: Arc<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) gate: Notify,
    pub(crate) started: AtomicUsize,
    pub(crate) dropped: AtomicUsize,
}

struct Served(Arc<State>);

struct CountDrop(Arc<State>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Service<ClientRequest> for Served {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        let call = match request {
            ClientRequest::CallTool(call) => call,
            ClientRequest::ListTools(_) => {
                let tool = |name: &str| Tool {
                    name: name.to_owned(),
                    title: None,
                    description: None,
                    input_schema: RawJson::from_bytes(r#"{"type":"object"}"#.into()).unwrap(),
                    output_schema: None,
                    annotations: None,
                    icons: Vec::new(),
                    task_support: Default::default(),
                    meta: Default::default(),
                };
                return Ok(ServerResult::ListTools(ListToolsResult {
                    tools: vec![tool("echo"), tool("gate")],
                    ..ListToolsResult::default()
                }));
            }
            _ => return Ok(ServerResult::Empty),
        };
        let mut text = call.arguments.as_str().to_owned();
        match call.name.as_str() {
            "gate" => {
                let _counted = CountDrop(Arc::clone(&self.0));
                self.0.started.fetch_add(1, Ordering::SeqCst);
                self.0.gate.notified().await;
            }
            "progress" => {
                let reporter = cx.progress_reporter().unwrap();
                reporter.report(1.0, Some(2.0), Some("half"));
                tokio::task::yield_now().await;
                reporter.report(2.0, Some(2.0), None);
            }
            "log" => {
                if let Some(log) = cx.log_reporter() {
                    log.log(LoggingLevel::Info, Some("tool"), RawJson::NULL);
                }
            }
            "ask" => {
                let question = InputRequest::ElicitForm {
                    message: "Sure?".to_owned(),
                    requested_schema: RawJson::from_value(
                        &json!({ "type": "object", "properties": {} }),
                    )
                    .unwrap(),
                };
                text = match cx.ask(&question, None).await {
                    Ok(answer) => answer.as_str().to_owned(),
                    Err(error) => error.to_string(),
                };
            }
            _ => {}
        }
        Ok(ServerResult::CallTool(CallToolResult {
            content: vec![Content::text(text)],
            ..CallToolResult::default()
        }))
    }
}

struct Known;

impl Identify for Known {
    fn identify(&self) -> Identifying<'_> {
        Box::pin(async { Some(Principal::new("tester")) })
    }
}

impl Default for Tools {
    fn default() -> Self {
        let state = Arc::<State>::default();
        let identity = ServerIdentity {
            info: Implementation {
                name: "in-process".into(),
                version: "1".into(),
                ..Implementation::default()
            },
            capabilities: ServerCapabilities {
                tools: true,
                resources: Some(ResourcesCapability { subscribe: true }),
                logging: true,
                ..ServerCapabilities::default()
            },
            instructions: None,
            discover_ttl_ms: 0,
        };
        let limits = EngineLimits::default();
        Self {
            engine: Engine::new(Served(Arc::clone(&state)), identity, limits),
            state,
        }
    }
}

impl Tools {
    /// Serves one end of a pair, and gives the other one.
    pub(crate) fn serve_pair(&self) -> Dial {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move {
            let (input, output) = tokio::io::split(theirs);
            let forever = std::future::pending();
            let (who, options) = (Principal::new("tester"), StdioOptions::default());
            transport_stdio::serve(&engine, who, input, output, forever, options).await
        });
        Dial::pair(ours)
    }

    /// Serves WebSockets until the test ends.
    pub(crate) async fn serve_websocket(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/mcp/ws", listener.local_addr().unwrap());
        let engine = Arc::clone(&self.engine);
        let sockets = WebSockets::new(WebSocketOptions::default());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (engine, sockets) = (Arc::clone(&engine), Arc::clone(&sockets));
                tokio::spawn(async move {
                    crate::websocket::shake(&mut stream).await;
                    let place = sockets.enter(&Principal::new("tester")).unwrap();
                    let forever = std::future::pending();
                    transport_ws::serve(&engine, &place, &Known, stream, forever).await
                });
            }
        });
        url
    }

    pub(crate) fn change(&self, change: &Change) {
        self.engine.publish(change);
    }
}

/// Accepts every form, and keeps the log messages.
#[derive(Default)]
pub(crate) struct Accepts {
    logged: Mutex<Vec<LoggingLevel>>,
}

impl Handlers for Accepts {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            elicitation: Some(ElicitationCapability {
                form: true,
                url: false,
            }),
            ..ClientCapabilities::default()
        }
    }

    fn answer(&self, _: InputRequest) -> BoxFuture<'_, Result<InputResponse, String>> {
        let accepted = ElicitResult::without_content(ElicitAction::Accept);
        Box::pin(async { Ok(InputResponse::Elicit(accepted)) })
    }

    fn notified(&self, notification: &ServerNotification) {
        if let ServerNotification::Log { level, .. } = notification {
            self.logged.lock().unwrap().push(*level);
        }
    }
}

/// Uses a connection of each revision for all that the server has.
pub(crate) async fn speaks(dial: impl AsyncFn() -> Dial, tools: &Tools) {
    for version in [
        ProtocolVersion::V2024_11_05,
        ProtocolVersion::V2025_03_26,
        ProtocolVersion::V2025_06_18,
        ProtocolVersion::V2025_11_25,
        ProtocolVersion::V2026_07_28,
    ] {
        let handlers = Arc::new(Accepts::default());
        let options = Options {
            speak: Speak::Only(version),
            handlers: Arc::clone(&handlers) as Arc<dyn Handlers>,
            log_level: Some(LoggingLevel::Info),
            ..Options::default()
        };
        let connection = Connection::open(&dial().await, options).await.unwrap();
        assert_eq!(connection.agreed().version, version);
        let info = connection.agreed().server_info.clone();
        assert_eq!(info.unwrap().name, "in-process");
        connection.ping().await.unwrap();
        assert_eq!(connection.tools().await.unwrap().len(), 2);

        // Many at once, each with its own answer.
        let none = CallOptions::default();
        let call = |at: usize| {
            let arguments = mcp_client::json(&json!({ "at": at })).unwrap();
            connection.call("echo", arguments, &none)
        };
        let results = join_all((0..200).map(call)).await;
        for (at, result) in results.into_iter().enumerate() {
            let expected = Content::text(json!({ "at": at }).to_string());
            assert_eq!(result.unwrap().content, [expected], "{version}");
        }

        let reported = Arc::<Mutex<Vec<(f64, Option<f64>)>>>::default();
        let reports = Arc::clone(&reported);
        let with_progress = CallOptions {
            progress: Some(Progress::new(move |progress, total, _| {
                reports.lock().unwrap().push((progress, total));
            })),
            ..CallOptions::default()
        };
        let result = connection.call("progress", RawJson::EMPTY_OBJECT, &with_progress);
        result.await.unwrap();
        assert_eq!(
            *reported.lock().unwrap(),
            [(1.0, Some(2.0)), (2.0, Some(2.0))]
        );

        let result = connection.call("log", RawJson::EMPTY_OBJECT, &none);
        result.await.unwrap();
        assert_eq!(
            *handlers.logged.lock().unwrap(),
            [LoggingLevel::Info],
            "{version}"
        );

        if ProtocolVersion::V2025_06_18 <= version && version.era() == Era::Legacy {
            let result = connection.call("ask", RawJson::EMPTY_OBJECT, &none);
            let content = result.await.unwrap().content;
            assert!(format!("{content:?}").contains("accept"), "{content:?}");
        }

        // A call that is dropped is given up by the server.
        let (started, dropped) = (&tools.state.started, &tools.state.dropped);
        let before = (
            started.load(Ordering::SeqCst),
            dropped.load(Ordering::SeqCst),
        );
        let calls =
            join_all((0..50).map(|_| connection.call("gate", RawJson::EMPTY_OBJECT, &none)));
        let all_started = until("all calls run", || {
            before.0 + 50 <= started.load(Ordering::SeqCst)
        });
        tokio::select! {
            _ = calls => panic!("they are answered"),
            () = all_started => {}
        }
        assert_eq!(connection.requests_under_way(), 0);
        until("all calls are given up", || {
            before.1 + 50 <= dropped.load(Ordering::SeqCst)
        })
        .await;

        // Changes, of lists and of one resource.
        let filter = SubscriptionFilter {
            tools_list_changed: true,
            resource_subscriptions: vec!["a://b".to_owned()],
            ..SubscriptionFilter::default()
        };
        let mut subscription = connection.listen(filter.clone()).await.unwrap();
        assert_eq!(subscription.accepted(), &filter);
        tools.change(&Change::Prompts);
        tools.change(&Change::Tools);
        tools.change(&Change::Resource("a://other".to_owned()));
        tools.change(&Change::Resource("a://b".to_owned()));
        let mut next = async || {
            let next = tokio::time::timeout(LONG, subscription.next()).await;
            next.unwrap().unwrap().unwrap()
        };
        // In either order: a server may tell of lists later.
        let heard = [next().await, next().await];
        assert!(
            heard.contains(&ServerNotification::ToolsListChanged),
            "{version}: {heard:?}"
        );
        let uri = "a://b".to_owned();
        let changed = |it: &ServerNotification| matches!(it, ServerNotification::ResourceUpdated { uri: its, .. } if *its == uri);
        assert!(heard.iter().any(changed), "{version}: {heard:?}");
        drop(subscription);
        until("nothing is under way", || {
            connection.requests_under_way() == 0
        })
        .await;
        let clone = connection.clone();
        connection.close().await;
        assert!(clone.is_closed());
        let error = clone.ping().await.unwrap_err().to_string();
        assert!(error.contains("it was closed"), "{error}");
    }
}

#[tokio::test]
async fn our_own_server_is_spoken_to_over_a_pair_of_streams() {
    let tools = Tools::default();
    speaks(async || tools.serve_pair(), &tools).await;
}

#[tokio::test]
async fn our_own_server_is_spoken_to_over_a_websocket() {
    let tools = Tools::default();
    let url = tools.serve_websocket().await;
    speaks(async || Dial::url(&url), &tools).await;
}

#[tokio::test]
async fn a_pair_is_dialled_once() {
    let tools = Tools::default();
    let dial = tools.serve_pair();
    let connection = Connection::open(&dial, Options::default()).await.unwrap();
    assert_eq!(connection.agreed().version, ProtocolVersion::V2026_07_28);
    let error = Connection::open(&dial, Options::default())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("a pair can be dialled once"),
        "{error}"
    );
}

#[tokio::test]
async fn the_other_end_of_a_pair_that_goes_away_ends_every_call() {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let gone = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        drop(theirs);
    });
    let error = Connection::open(&Dial::pair(ours), Options::default())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the server has closed the connection"),
        "{error}"
    );
    gone.await.unwrap();
}
