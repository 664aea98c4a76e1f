//! A server in this process, and a service whose every move can be seen.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part of it, and a test fails by panicking"
)]

use jsonrpc_core::{ErrorCode, RawJson};
use mcp_protocol::model::{
    CallToolResult, ClientRequest, Content, Implementation, ListToolsResult, ReadResourceResult,
    ResourcesCapability, ServerCapabilities, ServerResult, Tool,
};
use mcp_service::{
    Engine, EngineLimits, McpError, ProgressReporter, RequestCx, ServerIdentity, Service,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use testkit::{GENEROUS, HttpClient};
use tokio::{
    net::TcpListener,
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::timeout,
};
use transport_http::{HttpLimits, HttpOptions, HttpServer};

/// Counts of events in the calls of tools that take their time.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) begun: AtomicUsize,
    pub(crate) dropped: AtomicUsize,
    pub(crate) finished: AtomicUsize,
    /// Number of messages that flooding calls have sent.
    pub(crate) floods: AtomicUsize,
    pub(crate) moved: Notify,
    /// Lets a stuck call go on.
    pub(crate) release: Notify,
    pub(crate) reporter: Mutex<Option<ProgressReporter>>,
    pub(crate) principals: Mutex<Vec<String>>,
}

impl Seen {
    /// Waits until `count` says `at_least`.
    pub(crate) async fn wait(&self, count: &AtomicUsize, at_least: usize) {
        let waiting = async {
            loop {
                let moved = self.moved.notified();
                if at_least <= count.load(Ordering::SeqCst) {
                    return;
                }
                moved.await;
            }
        };
        timeout(GENEROUS, waiting)
            .await
            .expect("it happens in time");
    }

    fn add(&self, count: &AtomicUsize) {
        count.fetch_add(1, Ordering::SeqCst);
        self.moved.notify_waiters();
    }
}

/// Number of messages of [`MUCH`] after which a call counts as flooding: more than all buffers
/// between it and its client hold.
pub(crate) const FLOODED: usize = 40;

/// So many messages of a kilobyte.
pub(crate) const MUCH: usize = 256;

/// Says more and more, for ever.
async fn flood(seen: &Seen, cx: &RequestCx) {
    let reporter = cx.progress_reporter().expect("it is asked for progress");
    let text = "x".repeat(1000);
    for round in 0_u32.. {
        for step in 0..MUCH {
            let progress = f64::from(round) + step as f64 / MUCH as f64;
            reporter.report(1.0 + progress, None, Some(&text));
        }
        seen.add(&seen.floods);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

struct OnDrop(Arc<Seen>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.add(&self.0.dropped);
    }
}

pub(crate) struct Fake {
    pub(crate) seen: Arc<Seen>,
}

impl Service<ClientRequest> for Fake {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        let seen = &self.seen;
        seen.principals
            .lock()
            .unwrap()
            .push(cx.principal.to_string());
        let call = match request {
            ClientRequest::CallTool(call) => call,
            ClientRequest::ListTools(_) => {
                return Ok(ServerResult::ListTools(ListToolsResult {
                    tools: vec![Tool {
                        name: "echo".to_owned(),
                        title: None,
                        description: None,
                        input_schema: RawJson::from_bytes(r#"{"type":"object"}"#.into()).unwrap(),
                        output_schema: None,
                        annotations: None,
                        icons: Vec::new(),
                        task_support: Default::default(),
                        meta: Default::default(),
                    }],
                    ..ListToolsResult::default()
                }));
            }
            ClientRequest::ReadResource(_) => {
                return Ok(ServerResult::ReadResource(ReadResourceResult {
                    contents: Vec::new(),
                    meta: Default::default(),
                    cache: Default::default(),
                }));
            }
            _ => return Ok(ServerResult::Empty),
        };
        let mut result = CallToolResult::default();
        let mut text = call.arguments.as_str().to_owned();
        match call.name.as_str() {
            "echo" => {}
            "stuck" => {
                let _guard = OnDrop(Arc::clone(seen));
                *seen.reporter.lock().unwrap() = cx.progress_reporter();
                seen.add(&seen.begun);
                seen.release.notified().await;
                seen.add(&seen.finished);
            }
            "away" => {
                let _guard = OnDrop(Arc::clone(seen));
                cx.close_stream();
                seen.add(&seen.begun);
                seen.release.notified().await;
                seen.add(&seen.finished);
            }
            "flood" => {
                let _guard = OnDrop(Arc::clone(seen));
                seen.add(&seen.begun);
                tokio::select! {
                    () = flood(seen, cx) => {}
                    () = seen.release.notified() => {}
                }
                seen.add(&seen.finished);
            }
            // Its time begins when all buffers are full.
            "flood_in_time" => {
                let is_full = seen.floods.load(Ordering::SeqCst) + FLOODED;
                let end = async {
                    seen.wait(&seen.floods, is_full).await;
                    tokio::time::sleep(A_WHILE).await;
                };
                seen.add(&seen.begun);
                tokio::select! {
                    () = flood(seen, cx) => {}
                    () = end => {}
                }
                seen.add(&seen.finished);
            }
            "steps" => {
                let reporter = cx.progress_reporter();
                for step in 1..=3 {
                    if let Some(reporter) = &reporter {
                        reporter.report(f64::from(step), Some(3.0), Some("on the way"));
                    }
                    tokio::task::yield_now().await;
                }
            }
            "hint" => {
                cx.hint("RateLimit", "\"minute\";r=9;t=60".to_owned());
                cx.hint("X-Broken", "two\nlines".to_owned());
            }
            "big" => text = "x".repeat(300_000),
            "lines" => {
                if let Some(reporter) = cx.progress_reporter() {
                    reporter.report(1.0, None, None);
                }
                let meta = RawJson::from_bytes("{\n\"a\":\r\n1}".into()).unwrap();
                result.meta.insert_raw("com.example/lines", meta);
            }
            "panic" => panic!("as was asked for"),
            _ => {
                let error = McpError::new(ErrorCode::INVALID_PARAMS, "no such tool");
                return Err(error);
            }
        }
        result.content.push(Content::text(text));
        Ok(ServerResult::CallTool(result))
    }
}

/// A server of one listener, on the test's own runtime.
pub(crate) struct Running {
    pub(crate) server: HttpServer<Fake>,
    pub(crate) engine: Arc<Engine<Fake>>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) client: HttpClient,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

pub(crate) fn engine(seen: &Arc<Seen>) -> Arc<Engine<Fake>> {
    let identity = ServerIdentity {
        info: Implementation {
            name: "fake".to_owned(),
            version: "1".to_owned(),
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
    let service = Fake {
        seen: Arc::clone(seen),
    };
    Engine::new(service, identity, EngineLimits::default())
}

pub(crate) async fn start(options: HttpOptions) -> Running {
    let seen = Arc::<Seen>::default();
    let engine = engine(&seen);
    let server = HttpServer::new(Arc::clone(&engine), options);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = HttpClient::new(listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn({
        let server = server.clone();
        async move {
            server
                .serve(listener, async {
                    let _ = stopped.await;
                })
                .await;
        }
    });
    Running {
        server,
        engine,
        seen,
        client,
        stop: Some(stop),
        task,
    }
}

pub(crate) async fn start_with(limits: HttpLimits) -> Running {
    start(HttpOptions {
        limits,
        ..HttpOptions::default()
    })
    .await
}

impl Running {
    pub(crate) fn client(&self) -> HttpClient {
        self.client.clone()
    }

    /// Tells it to stop.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().expect("stopped once").send(());
    }

    /// Returns true if it stops within `limit`.
    pub(crate) async fn stops_within(&mut self, limit: Duration) -> bool {
        timeout(limit, &mut self.task).await.is_ok()
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(&mut self) {
        timeout(GENEROUS, &mut self.task)
            .await
            .expect("it stops")
            .unwrap();
    }
}

/// Not long, and long enough for what should not happen to happen.
pub(crate) const A_WHILE: Duration = Duration::from_millis(100);

/// Longer than any test waits.
pub(crate) const AN_HOUR: Duration = Duration::from_secs(3_600);
