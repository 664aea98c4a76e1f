//! A server with a few tools, in-memory stores, and clients on in-memory connections.

use adapter_skills::SkillCatalog;
use adapter_tools::{Arguments, Executor, Repeat, Tool, ToolCx, ToolError, ToolOutput, ToolSet};
use futures_util::future::BoxFuture;
use governance::{Governor, MemoryQuota, Policy, PolicySpec, Rules, Timestamp, Usage};
use ledger::{
    Appended, Durability, Ended, Event, Group, LedgerStore, MemoryLedger, Outcome, Recorder,
    RecorderOptions, Started, StoreError, Tail,
};
use mcp_protocol::model::Implementation;
use mcp_server::{
    CombinedResources, Filters, McpServer, NoResources, Offer, Options, Parts, Prompts, Resources,
    ResultLimits, ResultOptions, SearchOptions, SearchView, StaticPrompts, Tasks, ToolSource,
    redactor_of_this_process,
};
use mcp_service::Principal;
use serde_json::{Map, Value, json};
use std::{
    cell::Cell,
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use testkit::{Conversation, GENEROUS, LinePeer, MODERN, wait_until};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
};
use transport_stdio::{StdioOptions, serve};

/// Every revision there is, and the one of the founding documents.
pub(crate) const SPOKEN: [&str; 6] = [
    "1.0",
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    MODERN,
];

/// Returns true if several messages may share a line.
pub(crate) fn has_batches(version: &str) -> bool {
    matches!(version, "1.0" | "2024-11-05" | "2025-03-26")
}

/// True if violations of a tool's schema are results (decision D3).
pub(crate) fn has_error_results(version: &str) -> bool {
    version == "2025-11-25" || version == MODERN
}

/// Reason why a call was refused, if it was.
pub(crate) fn reason_of(answer: &Value) -> Option<&str> {
    let told = answer.pointer("/result/_meta/io.owlclaw~1error/reason");
    told.or_else(|| answer.pointer("/error/data/reason"))?
        .as_str()
}

thread_local! {
    /// Each test has a thread, and so a clock, of its own. 2026-03-10T08:00:00Z.
    static NOW_US: Cell<u64> = const { Cell::new(1_773_129_600_000_000) };
}

pub(crate) fn now_us() -> u64 {
    NOW_US.get()
}

/// Lets time pass for governance and the ledger.
pub(crate) fn pass(time: Duration) {
    let micros = u64::try_from(time.as_micros()).unwrap();
    NOW_US.set(NOW_US.get() + micros);
}

/// Sets the clock back.
pub(crate) fn turn_back(time: Duration) {
    let micros = u64::try_from(time.as_micros()).unwrap();
    NOW_US.set(NOW_US.get() - micros);
}

/// State that the tools share.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    runs: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
    /// `wait` begins: one permit each.
    pub(crate) begun: Arc<Semaphore>,
    /// Opened for `wait` to end.
    pub(crate) gate: Arc<Notify>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            runs: Arc::default(),
            dropped: Arc::default(),
            begun: Arc::new(Semaphore::new(0)),
            gate: Arc::default(),
        }
    }

    /// Number of times that any tool ran.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// Number of calls of `wait` that are over, however they ended.
    pub(crate) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Until one more call of `wait` has begun.
    pub(crate) async fn begun(&self) {
        let begun = tokio::time::timeout(GENEROUS, self.begun.acquire());
        begun.await.expect("a call begins").unwrap().forget();
    }

    pub(crate) fn tools(&self) -> Vec<Tool> {
        let integer = json!({ "type": "integer" });
        let two = json!({ "a": integer, "b": integer });
        vec![
            self.tool("add", two, &["a", "b"], |_, it| async move {
                let sum = it["a"].as_i64().unwrap_or(0) + it["b"].as_i64().unwrap_or(0);
                Ok(json!({ "sum": sum }).into())
            })
            .describe("Adds two integers."),
            self.tool(
                "spend",
                json!({ "micros": integer }),
                &["micros"],
                |cx, it| async move {
                    cx.add_cost_micros(it["micros"].as_u64().unwrap_or(0));
                    Ok("spent".into())
                },
            ),
            self.tool(
                "priced",
                json!({}),
                &[],
                |_, _| async move { Ok("done".into()) },
            )
            .with_estimated_cost_micros(PRICE),
            self.tool(
                "fail",
                json!({ "micros": integer }),
                &[],
                |cx, it| async move {
                    if let Some(micros) = it.get("micros") {
                        cx.add_cost_micros(micros.as_u64().unwrap_or(0));
                    }
                    Err(ToolError::failed_with(
                        "the order is gone",
                        json!({ "order": 7 }),
                    ))
                },
            ),
            self.tool("crash", json!({}), &[], |_, _| async move {
                Err(ToolError::Crashed {
                    message: "the worker has died".to_owned(),
                    repeat: Repeat::IfIdempotent,
                    detail: "its last words: secret".to_owned(),
                })
            }),
            self.tool("busy", json!({}), &[], |_, _| async move {
                let retry_after = Duration::from_millis(1_500);
                Err(ToolError::Busy { retry_after })
            }),
            self.tool("suspended", json!({}), &[], |_, _| async move {
                let retry_after = Duration::from_millis(29_001);
                Err(ToolError::Suspended { retry_after })
            }),
            self.tool("broken", json!({}), &[], |_, _| async move {
                Err(ToolError::broken("a secret of the operator"))
            }),
            self.tool(
                "panic",
                json!({ "micros": integer }),
                &[],
                |cx, it| async move {
                    if let Some(micros) = it.get("micros") {
                        cx.add_cost_micros(micros.as_u64().unwrap_or(0));
                    }
                    panic!("as asked")
                },
            ),
            self.waiting_tool("wait"),
        ]
    }

    /// Spends `micros`, if given, and then waits until the gate is opened.
    fn waiting_tool(&self, name: &'static str) -> Tool {
        let bench = self.clone();
        let parameters = json!({ "micros": { "type": "integer" } });
        self.tool(name, parameters, &[], move |cx, it| {
            let bench = bench.clone();
            async move {
                let _counted = CountDrop(Arc::clone(&bench.dropped));
                if let Some(micros) = it.get("micros") {
                    cx.add_cost_micros(micros.as_u64().unwrap_or(0));
                }
                let opened = bench.gate.notified();
                bench.begun.add_permits(1);
                opened.await;
                Ok("waited".into())
            }
        })
        .with_estimated_cost_micros(PRICE)
    }

    /// A tool that counts its runs.
    pub(crate) fn tool<F, Fut>(
        &self,
        name: impl Into<std::borrow::Cow<'static, str>>,
        parameters: Value,
        required: &[&str],
        function: F,
    ) -> Tool
    where
        F: Fn(ToolCx, Map<String, Value>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let schema = json!({
            "type": "object",
            "properties": parameters,
            "required": required,
            "additionalProperties": false,
        });
        let runs = Arc::clone(&self.runs);
        Tool::new(name, schema, Function { function, runs })
    }
}

/// Cost that `priced` and `wait` report for a call.
pub(crate) const PRICE: u64 = 5_000;

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Function<F> {
    function: F,
    runs: Arc<AtomicUsize>,
}

impl<F, Fut> Executor for Function<F>
where
    F: Fn(ToolCx, Map<String, Value>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            self.runs.fetch_add(1, Ordering::SeqCst);
            (self.function)(cx, arguments.as_object().clone()).await
        })
    }
}

/// Options of a house.
pub(crate) struct Setup {
    pub(crate) policy: PolicySpec,
    pub(crate) options: Options,
    pub(crate) durability: Durability,
    pub(crate) more_tools: Vec<Tool>,
    pub(crate) resources: Arc<dyn Resources>,
    pub(crate) prompts: Arc<dyn Prompts>,
    pub(crate) tasks: Option<Arc<Tasks>>,
    pub(crate) search_view: Option<SearchOptions>,
    pub(crate) results: Option<ResultOptions>,
    pub(crate) tracing: Option<mcp_server::Tracing>,
    pub(crate) filters: Filters,
    pub(crate) max_principals: usize,
    pub(crate) ledger: MemoryLedger,
    pub(crate) bench: Bench,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policy: PolicySpec {
                ..PolicySpec::default()
            },
            options: Options {
                clock: now_us,
                ..Options::default()
            },
            durability: Durability::Strict,
            more_tools: Vec::new(),
            resources: Arc::new(NoResources),
            prompts: Arc::new(StaticPrompts::new()),
            tasks: None,
            search_view: None,
            results: None,
            tracing: None,
            filters: Filters::default(),
            max_principals: 100,
            ledger: MemoryLedger::default(),
            bench: Bench::new(),
        }
    }
}

/// A policy with the same rules for everybody.
pub(crate) fn policy(default: Rules) -> PolicySpec {
    PolicySpec {
        default,
        ..PolicySpec::default()
    }
}

pub(crate) struct House {
    pub(crate) mcp_server: Arc<McpServer<MemoryQuota>>,
    pub(crate) ledger: MemoryLedger,
    /// Lock that keeps the ledger from recording while it is held.
    pub(crate) ledger_gate: Arc<tokio::sync::Mutex<()>>,
    pub(crate) bench: Bench,
}

/// A ledger that can be made to take its time.
struct Gated {
    inner: MemoryLedger,
    gate: Arc<tokio::sync::Mutex<()>>,
}

impl LedgerStore for Gated {
    fn tail(&self) -> Tail {
        self.inner.tail()
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        let _open = self.gate.lock().await;
        self.inner.append(group).await
    }
}

impl Setup {
    pub(crate) fn build(self) -> House {
        let ledger = self.ledger;
        let ledger_gate = Arc::default();
        let gated = Gated {
            inner: ledger.clone(),
            gate: Arc::clone(&ledger_gate),
        };
        let recorder = RecorderOptions {
            durability: self.durability,
            now: now_us,
            ..RecorderOptions::default()
        };
        let mut tools = self.bench.tools();
        tools.extend(self.more_tools);
        let results = self.results.and_then(|it| ResultLimits::open(it).unwrap());
        let mut resources = self.resources;
        if let Some(results) = &results {
            tools.extend(results.tools(&SkillCatalog::default()).tools);
            let kept = ToolSource::resources(&**results).expect("results can be read");
            resources = Arc::new(CombinedResources::new(vec![kept, resources]));
        }
        let mut offer = offer(tools, resources).with_prompts(self.prompts);
        if let Some(results) = results {
            offer = offer.with_result_limits(results);
        }
        if let Some(options) = self.search_view {
            let view = SearchView::new(&options).unwrap().expect("a client has it");
            offer = offer.with_search_view(Arc::new(view), None);
        }
        let mcp_server = McpServer::new(
            Parts {
                info: Implementation {
                    name: "house".to_owned(),
                    version: "1".to_owned(),
                    ..Implementation::default()
                },
                instructions: None,
                offer,
                governor: Arc::new(Governor::new(
                    Policy::new(self.policy).unwrap(),
                    Arc::new(MemoryQuota::new(self.max_principals)),
                )),
                recorder: Recorder::spawn(gated, recorder).unwrap(),
                redactor: redactor_of_this_process(),
                tasks: self.tasks,
                tracing: self.tracing,
                components: Vec::new(),
                filters: self.filters,
                late_costs: None,
            },
            self.options,
        );
        House {
            mcp_server,
            ledger,
            ledger_gate,
            bench: self.bench,
        }
    }
}

pub(crate) fn offer(tools: Vec<Tool>, resources: Arc<dyn Resources>) -> Offer {
    let tools = ToolSet::new(tools).unwrap();
    let timeout = Duration::from_secs(300);
    Offer::new(
        tools,
        resources,
        None,
        mcp_server::IncludeSkill::None,
        timeout,
    )
}

/// A call as the ledger has it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) started: Started,
    pub(crate) ended: Ended,
}

impl Call {
    pub(crate) fn reason(&self) -> Option<&str> {
        match &self.ended.outcome {
            Outcome::Denied { reason } => Some(reason),
            _ => None,
        }
    }
}

impl House {
    /// A client on a connection of its own, past the handshake.
    pub(crate) async fn connect(&self, principal: &str, version: &str) -> Client {
        let mut client = self.join(principal, Duration::ZERO);
        client.open(version).await;
        client
    }

    /// One with roles that are vouched for.
    pub(crate) async fn connect_with(
        &self,
        principal: &str,
        roles: &[&str],
        version: &str,
    ) -> Client {
        let roles = roles.iter().map(|&role| role.into()).collect();
        let principal = Principal::new(principal).with_roles(roles);
        let mut client = self.join_as(principal, Duration::ZERO);
        client.open(version).await;
        client
    }

    /// A client that has said nothing yet. `drain` is how long its calls go on after it has left.
    pub(crate) fn join(&self, principal: &str, drain: Duration) -> Client {
        self.join_as(Principal::new(principal), drain)
    }

    fn join_as(&self, principal: Principal, drain: Duration) -> Client {
        const ROOM: usize = 1 << 20;
        let (input, server_input) = tokio::io::duplex(ROOM);
        let (server_output, output) = tokio::io::duplex(ROOM);
        let engine = Arc::clone(self.mcp_server.engine());
        let options = StdioOptions {
            drain,
            ..StdioOptions::default()
        };
        let serving = tokio::spawn(async move {
            let never = std::future::pending();
            let ended = serve(
                &engine,
                principal,
                server_input,
                server_output,
                never,
                options,
            );
            ended.await.expect("the peer takes what it is sent");
        });
        Client {
            peer: LinePeer::over(output, input),
            version: String::new(),
            serving,
        }
    }

    /// The calls in the ledger, in the order they began, once all are over and stored: each has
    /// exactly one start and one end.
    pub(crate) async fn record(&self) -> Vec<Call> {
        let recorder = self.mcp_server.recorder();
        wait_until("everything is on record", GENEROUS, || {
            let health = recorder.health();
            health.open_calls == 0 && health.unwritten_entries == 0
        })
        .await;
        let mut order = Vec::new();
        let mut starts = BTreeMap::new();
        let mut ends = BTreeMap::new();
        for entry in self.ledger.entries() {
            match entry.event {
                Event::Started(started) => {
                    order.push(entry.call);
                    let before = starts.insert(entry.call, started);
                    assert!(before.is_none(), "{} begins twice", entry.call);
                }
                Event::Ended(ended) => {
                    assert!(starts.contains_key(&entry.call), "an end without a start");
                    let before = ends.insert(entry.call, ended);
                    assert!(before.is_none(), "{} ends twice", entry.call);
                }
                Event::Noted(_) => {}
            }
        }
        assert_eq!(starts.len(), ends.len(), "every start has an end");
        let call = |id| Call {
            started: starts[id].clone(),
            ended: ends[id].clone(),
        };
        order.iter().map(call).collect()
    }

    /// Use of all principals.
    pub(crate) async fn usage(&self) -> Vec<Usage> {
        let now = Timestamp(now_us() / 1_000);
        self.mcp_server.governor().usage(now).await.unwrap()
    }

    /// Use of one principal, if it is known.
    pub(crate) async fn usage_of(&self, principal: &str) -> Option<Usage> {
        let all = self.usage().await;
        all.into_iter().find(|usage| usage.principal == principal)
    }
}

/// A client, and the task that serves it.
pub(crate) struct Client {
    peer: LinePeer,
    version: String,
    pub(crate) serving: JoinHandle<()>,
}

impl Deref for Client {
    type Target = LinePeer;

    fn deref(&self) -> &LinePeer {
        &self.peer
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut LinePeer {
        &mut self.peer
    }
}

/// Place of a request: alone, or in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Alone,
    FirstOfBatch,
    LastOfBatch,
}

impl Place {
    /// Places that a revision has.
    pub(crate) fn of(version: &str) -> &'static [Self] {
        if has_batches(version) {
            &[Self::Alone, Self::FirstOfBatch, Self::LastOfBatch]
        } else {
            &[Self::Alone]
        }
    }
}

impl Client {
    pub(crate) async fn open(&mut self, version: &str) {
        version.clone_into(&mut self.version);
        self.peer.open(version).await;
    }

    /// The response to a request.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.peer.request(method, params).await.response
    }

    /// The response to a call.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
        .await
    }

    /// The response to a request, wherever it stands.
    pub(crate) async fn ask_at(&mut self, place: Place, method: &str, params: Value) -> Value {
        let request = self.peer.voice.request(method, params);
        let other = self.peer.voice.request("ping", Value::Null);
        let id = request["id"].clone();
        let batch = match place {
            Place::Alone => {
                self.peer.send(&request).await;
                return self.peer.receive_answer(&id).await;
            }
            Place::FirstOfBatch => json!([request, other]),
            Place::LastOfBatch => json!([other, request]),
        };
        self.peer.send(&batch).await;
        let answers = self.peer.receive().await;
        let mut answers = answers.as_array().expect("a batch").iter();
        let answer = answers.find(|answer| answer["id"] == id);
        answer.expect("an answer to each").clone()
    }

    /// Sends a request and does not wait; its id.
    pub(crate) async fn begin(&mut self, method: &str, params: Value) -> Value {
        let request = self.peer.voice.request(method, params);
        self.peer.send(&request).await;
        request["id"].clone()
    }

    /// Begins a call; its id.
    pub(crate) async fn begin_call(&mut self, tool: &str, arguments: Value) -> Value {
        self.begin(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
        .await
    }

    pub(crate) async fn cancel(&mut self, id: &Value) {
        let params = json!({ "requestId": id, "reason": "no longer wanted" });
        self.peer.notify("notifications/cancelled", params).await;
    }

    /// Waits until the server has read everything it was sent; returns the messages that had come
    /// by then.
    pub(crate) async fn settle(&mut self) -> Vec<Value> {
        let method = if self.version == MODERN {
            "server/discover"
        } else {
            "ping"
        };
        self.peer.request(method, Value::Null).await.earlier
    }

    /// All pages of a list.
    pub(crate) async fn list(&mut self, method: &str, member: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut params = json!({});
        loop {
            let reply = self.peer.request(method, params).await;
            let result = reply.result();
            all.extend(result[member].as_array().expect("a list").clone());
            match result.get("nextCursor") {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => return all,
            }
        }
    }

    pub(crate) async fn tool_names(&mut self) -> Vec<String> {
        let tools = self.list("tools/list", "tools").await;
        let names = tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.collect()
    }

    pub(crate) async fn resource_uris(&mut self) -> Vec<String> {
        let resources = self.list("resources/list", "resources").await;
        let uris = resources
            .iter()
            .map(|it| it["uri"].as_str().unwrap().to_owned());
        uris.collect()
    }
}

/// Runs a property's case on a runtime of its own.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}
