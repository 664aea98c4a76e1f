//! Every revision of a client with every revision of an upstream, for all that the bridge passes on.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_client::{
    CallOptions, Connection, Dial, Handlers, HttpTransport, OnTask, Options, Progress, RawJson,
    Speak, Subscription, UrlDial,
};
use mcp_protocol::{
    ProtocolVersion,
    model::{
        CallToolResult, ClientCapabilities, Complete, CompletionReference, Content,
        ElicitationCapability, InputRequest, InputResponse, ListRootsResult, LoggingLevel, Root,
        SamplingCapability, ServerNotification, SubscriptionFilter,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::GENEROUS;
use tokio::time::{Instant, sleep, timeout};

use super::gateway::{UPSTREAM, site};
use crate::support::Site;

/// Cell of the table in docs/gateway.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Passes,
    /// The revision of the client or of the upstream does not have it: a question is refused, a task is waited for.
    Refused,
}

type Done = Result<Seen, String>;
type Cell = for<'a> fn(&'a Pair<'a>) -> Pin<Box<dyn Future<Output = Done> + 'a>>;

/// A client and an upstream, and the way from one to the other.
struct Pair<'a> {
    site: &'a Site,
    client: &'a Connection,
    heard: &'a Heard,
    upstream: String,
}

/// Messages that a client has heard, and its answers to questions.
#[derive(Default)]
pub(super) struct Heard {
    logged: Mutex<Vec<LoggingLevel>>,
}

impl Handlers for Heard {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            roots: true,
            sampling: Some(SamplingCapability::default()),
            elicitation: Some(ElicitationCapability {
                form: true,
                url: true,
            }),
            ..ClientCapabilities::default()
        }
    }

    fn answer(
        &self,
        question: InputRequest,
    ) -> Pin<Box<dyn Future<Output = Result<InputResponse, String>> + Send + '_>> {
        let answer = match question {
            InputRequest::ElicitForm { .. } => InputResponse::Elicit(read(json!({
                "action": "accept", "content": {"name": "form-answer"},
            }))),
            InputRequest::ElicitUrl { .. } => {
                InputResponse::Elicit(read(json!({"action": "accept"})))
            }
            InputRequest::CreateMessage(_) => InputResponse::CreateMessage(read(json!({
                "role": "assistant", "model": "m",
                "content": {"type": "text", "text": "sample-answer"},
            }))),
            InputRequest::ListRoots => InputResponse::ListRoots(ListRootsResult {
                roots: vec![Root {
                    uri: "file:///root-answer".to_owned(),
                    ..Root::default()
                }],
                ..ListRootsResult::default()
            }),
        };
        Box::pin(async { Ok(answer) })
    }

    fn notified(&self, notification: &ServerNotification) {
        if let ServerNotification::Log { level, .. } = notification {
            self.logged.lock().unwrap().push(*level);
        }
    }
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl Pair<'_> {
    fn tool(&self, name: &str) -> String {
        format!("mcp_{}_{name}", self.upstream)
    }

    fn uri(&self, uri: &str) -> String {
        format!("mcp.{}+{uri}", self.upstream)
    }

    fn file(&self, name: &str) -> String {
        self.site.read(&format!("{}/{name}", self.upstream))
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let options = CallOptions::default();
        let arguments = mcp_client::json(&arguments).unwrap();
        let called = self.client.call(self.tool(tool), arguments, &options).await;
        called.map(|it| said(&it)).map_err(|it| told(&it))
    }

    /// Calls a tool that asks the client.
    async fn asks(&self, tool: &str, answer: &str) -> Done {
        let said = self.call(tool, json!({})).await?;
        match said.contains(answer) {
            true => Ok(Seen::Passes),
            false if said.contains("error") || said.contains("has not declared") => {
                Ok(Seen::Refused)
            }
            false => Err(said),
        }
    }
}

fn said(result: &CallToolResult) -> String {
    match &result.content[..] {
        [Content::Text { text, .. }] => text.clone(),
        other => format!("{other:?}"),
    }
}

fn told(error: &mcp_client::Error) -> String {
    format!("{error}: {error:?}")
}

fn passes_if(is_so: bool, otherwise: impl std::fmt::Debug) -> Done {
    match is_so {
        true => Ok(Seen::Passes),
        false => Err(format!("{otherwise:?}")),
    }
}

async fn until(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + GENEROUS;
    while Instant::now() < end {
        if is_so() {
            return true;
        }
        sleep(Duration::from_millis(5)).await;
    }
    false
}

async fn calls(pair: &Pair<'_>) -> Done {
    let said = pair.call("echo", json!({"text": "hi"})).await?;
    passes_if(said == "hi", said)
}

async fn lists(pair: &Pair<'_>) -> Done {
    let tools = pair.client.tools().await.map_err(|it| told(&it))?;
    let resources = pair.client.resources().await.map_err(|it| told(&it))?;
    let templates = pair.client.resource_templates().await;
    let templates = templates.map_err(|it| told(&it))?;
    let prompts = pair.client.prompts().await.map_err(|it| told(&it))?;
    let has = [
        tools.iter().any(|it| it.name == pair.tool("echo")),
        resources
            .iter()
            .any(|it| it.uri == pair.uri("file:///a.txt")),
        templates
            .iter()
            .any(|it| it.uri_template == pair.uri("file:///{name}")),
        prompts.iter().any(|it| it.name == pair.tool("greet")),
    ];
    passes_if(has == [true; 4], has)
}

async fn reads(pair: &Pair<'_>) -> Done {
    let uri = pair.uri("file:///a.txt");
    let read = pair
        .client
        .read(uri.clone())
        .await
        .map_err(|it| told(&it))?;
    let contents = &read.contents[0];
    let is_right =
        contents.uri == uri && contents.text.as_deref() == Some("content of file:///a.txt");
    passes_if(is_right, contents)
}

async fn prompts(pair: &Pair<'_>) -> Done {
    let arguments = BTreeMap::from([("who".to_owned(), "Ana".to_owned())]);
    let got = pair.client.prompt(pair.tool("greet"), arguments).await;
    let got = got.map_err(|it| told(&it))?;
    let is_right =
        matches!(&got.messages[0].content, Content::Text { text, .. } if text == "Hello Ana");
    passes_if(is_right, got)
}

async fn completes(pair: &Pair<'_>) -> Done {
    for (reference, own) in [
        (
            CompletionReference::Prompt {
                name: pair.tool("greet"),
            },
            "greet",
        ),
        (
            CompletionReference::Resource {
                uri: pair.uri("file:///{name}"),
            },
            "file:///{name}",
        ),
    ] {
        let complete = Complete {
            reference,
            argument: "who".to_owned(),
            value: "A".to_owned(),
            context: BTreeMap::new(),
        };
        let completion = pair.client.complete(complete).await;
        let completion = completion.map_err(|it| told(&it))?;
        if completion.values != [own, "Ax"] {
            return Err(format!("{completion:?}"));
        }
    }
    Ok(Seen::Passes)
}

pub(super) async fn next_update(subscription: &mut Subscription) -> Result<String, String> {
    loop {
        let next = timeout(GENEROUS, subscription.next()).await;
        match next.map_err(|_| "nothing was heard")? {
            Ok(Some(ServerNotification::ResourceUpdated { uri })) => return Ok(uri),
            Ok(Some(_)) => {}
            Ok(None) => return Err("the subscription has ended".to_owned()),
            Err(error) => return Err(told(&error)),
        }
    }
}

async fn subscribes(pair: &Pair<'_>) -> Done {
    let uri = pair.uri("file:///a.txt");
    let filter = SubscriptionFilter {
        resource_subscriptions: vec![uri.clone()],
        ..SubscriptionFilter::default()
    };
    let listening = pair.client.listen(filter).await;
    let mut subscription = listening.map_err(|it| told(&it))?;
    let accepted = &subscription.accepted().resource_subscriptions;
    if *accepted != [uri.clone()] {
        return Err(format!("accepted {accepted:?}"));
    }
    pair.call("touch", json!({"text": "file:///a.txt"})).await?;
    let updated = next_update(&mut subscription).await?;
    passes_if(updated == uri, updated)
}

async fn asks_by_form(pair: &Pair<'_>) -> Done {
    pair.asks("ask", "form-answer").await
}

async fn asks_by_url(pair: &Pair<'_>) -> Done {
    pair.asks("ask_url", "accept").await
}

async fn samples(pair: &Pair<'_>) -> Done {
    pair.asks("sample", "sample-answer").await
}

async fn asks_for_roots(pair: &Pair<'_>) -> Done {
    pair.asks("roots", "root-answer").await
}

async fn reports_progress(pair: &Pair<'_>) -> Done {
    let reported = Arc::<Mutex<Vec<f64>>>::default();
    let reports = Arc::clone(&reported);
    let options = CallOptions {
        progress: Some(Progress::new(move |progress, _, _| {
            reports.lock().unwrap().push(progress);
        })),
        ..CallOptions::default()
    };
    let tool = pair.tool("progress");
    let called = pair.client.call(tool, RawJson::EMPTY_OBJECT, &options);
    called.await.map_err(|it| told(&it))?;
    let reported = reported.lock().unwrap().clone();
    passes_if(reported.last() == Some(&3.0), reported)
}

async fn cancels(pair: &Pair<'_>) -> Done {
    let (begun, cancelled) = (pair.file("begun").len(), pair.file("cancelled").len());
    tokio::select! {
        said = pair.call("slow", json!({"n": 60})) => return Err(format!("it is slow: {said:?}")),
        has_begun = until(|| begun < pair.file("begun").len()) => if !has_begun {
            return Err("it does not begin".to_owned());
        }
    }
    let is_told = until(|| cancelled < pair.file("cancelled").len()).await;
    passes_if(is_told, "the upstream was not told")
}

async fn logs(pair: &Pair<'_>) -> Done {
    pair.heard.logged.lock().unwrap().clear();
    pair.call("log", json!({})).await?;
    let heard = || *pair.heard.logged.lock().unwrap() == [LoggingLevel::Warning];
    passes_if(until(heard).await, &pair.heard.logged)
}

/// A call that the upstream makes a task of is a task of ours for clients that know them, and others wait for it.
async fn becomes_a_task(pair: &Pair<'_>) -> Done {
    let ids = Arc::<Mutex<BTreeSet<String>>>::default();
    let told = Arc::clone(&ids);
    let options = CallOptions {
        as_task: true,
        on_task: Some(OnTask::new(move |task| {
            told.lock().unwrap().insert(task.id.clone());
        })),
        ..CallOptions::default()
    };
    let arguments = mcp_client::json(&json!({"n": 0.2})).unwrap();
    let called = pair.client.call(pair.tool("long"), arguments, &options);
    let result = said(&called.await.map_err(|it| self::told(&it))?);
    if result != "done" {
        return Err(result);
    }
    let theirs = pair.file("tasks");
    let ids = ids.lock().unwrap().clone();
    match ids.first() {
        _ if 1 < ids.len() => Err(format!("one call is several tasks: {ids:?}")),
        Some(id) if theirs.contains(id.as_str()) => Err(format!("{id} is the upstream's own")),
        Some(_) => Ok(Seen::Passes),
        None => Ok(Seen::Refused),
    }
}

const CELLS: [(&str, Cell); 14] = [
    ("call", |it| Box::pin(calls(it))),
    ("list", |it| Box::pin(lists(it))),
    ("read", |it| Box::pin(reads(it))),
    ("prompt", |it| Box::pin(prompts(it))),
    ("complete", |it| Box::pin(completes(it))),
    ("subscribe", |it| Box::pin(subscribes(it))),
    ("form", |it| Box::pin(asks_by_form(it))),
    ("url", |it| Box::pin(asks_by_url(it))),
    ("sampling", |it| Box::pin(samples(it))),
    ("roots", |it| Box::pin(asks_for_roots(it))),
    ("progress", |it| Box::pin(reports_progress(it))),
    ("cancel", |it| Box::pin(cancels(it))),
    ("log", |it| Box::pin(logs(it))),
    (TASK, |it| Box::pin(becomes_a_task(it))),
];
/// The cell that is asked of a gateway which makes a task of each call that can be one.
const TASK: &str = "task";

/// The rules of docs/gateway.md, "Revisions", as its table has them: the cell, the revision since which the client must
/// speak, and that since which the upstream must.
fn rules() -> BTreeMap<String, [ProtocolVersion; 2]> {
    let document = include_str!("../../../../docs/gateway.md");
    let rows = document.lines().filter_map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [cell, _, client, upstream] = cells[..] else {
            return None;
        };
        let since = |text: &str| match text {
            "any" => Some(ProtocolVersion::V2024_11_05),
            since => ProtocolVersion::ALL
                .into_iter()
                .find(|it| it.as_str() == since),
        };
        let cell = cell.strip_prefix('`')?.strip_suffix('`')?;
        Some((cell.to_owned(), [since(client)?, since(upstream)?]))
    });
    rows.collect()
}

fn expected(
    rules: &BTreeMap<String, [ProtocolVersion; 2]>,
    cell: &str,
    client: ProtocolVersion,
    upstream: ProtocolVersion,
) -> Seen {
    let [of_client, of_upstream] = rules[cell];
    match of_client <= client && of_upstream <= upstream {
        true => Seen::Passes,
        false => Seen::Refused,
    }
}

fn name_of(version: ProtocolVersion) -> String {
    format!("r{}", version.as_str().replace('-', ""))
}

pub(super) async fn client(url: &str, version: ProtocolVersion, heard: &Arc<Heard>) -> Connection {
    let mut dial = UrlDial::new(url);
    dial.transport = HttpTransport::Streamable;
    let who = format!("client-{}", version.as_str()).parse().unwrap();
    dial.headers.insert("x-mcp-client-id", who);
    let options = Options {
        handlers: Arc::clone(heard) as Arc<dyn Handlers>,
        speak: Speak::Only(version),
        log_level: Some(LoggingLevel::Info),
        ..Options::default()
    };
    Connection::open(&Dial::Url(dial), options).await.unwrap()
}

#[tokio::test]
async fn every_client_revision_reaches_every_upstream_revision() {
    let upstreams = ProtocolVersion::ALL.map(|version| {
        let name = name_of(version);
        let spec = json!({
            "command": "python3", "args": [UPSTREAM, "stdio", name],
            "env": {"REVISION": version.as_str()},
        });
        (name, spec)
    });
    let upstreams = Value::Object(upstreams.into_iter().collect());
    let waiting = json!({"gateway": {"first_start_seconds": 60}});
    let mut as_tasks = waiting.clone();
    as_tasks["tasks"] = json!({"after_seconds": 0});
    let [site, tasks] = [waiting, as_tasks].map(|more| site(upstreams.clone(), more));
    for version in ProtocolVersion::ALL {
        for site in [&site, &tasks] {
            site.write(&format!("{}/.keep", name_of(version)), "");
        }
    }
    let (server, task_server) = tokio::join!(site.http(), tasks.http());
    let [url, task_url] = [&server, &task_server].map(|it| format!("http://{}/mcp", it.address()));
    let rules = rules();
    let cells: BTreeSet<_> = CELLS.iter().map(|(cell, _)| (*cell).to_owned()).collect();
    let documented: BTreeSet<_> = rules.keys().cloned().collect();
    assert_eq!(documented, cells, "docs/gateway.md has a row for each cell");
    let mut table = String::from("client     upstream  ");
    for (cell, _) in CELLS {
        table += &format!(" {cell:<9}");
    }
    let mut wrong = Vec::new();
    for spoken in ProtocolVersion::ALL {
        let heard = Arc::new(Heard::default());
        let of_tasks = client(&task_url, spoken, &heard).await;
        let client = client(&url, spoken, &heard).await;
        for upstream in ProtocolVersion::ALL {
            let pair = Pair {
                site: &site,
                client: &client,
                heard: &heard,
                upstream: name_of(upstream),
            };
            table += &format!("\n{} {}", spoken.as_str(), upstream.as_str());
            for (cell, run) in CELLS {
                let pair = match cell {
                    TASK => Pair {
                        site: &tasks,
                        client: &of_tasks,
                        heard: &heard,
                        upstream: name_of(upstream),
                    },
                    _ => Pair {
                        upstream: name_of(upstream),
                        ..pair
                    },
                };
                let done = timeout(2 * GENEROUS, run(&pair)).await;
                let done = done.unwrap_or_else(|_| Err("it hangs".to_owned()));
                let shown = match &done {
                    Ok(Seen::Passes) => "passes",
                    Ok(Seen::Refused) => "refused",
                    Err(_) => "FAILS",
                };
                table += &format!(" {shown:<9}");
                if done != Ok(expected(&rules, cell, spoken, upstream)) {
                    let pair = (spoken.as_str(), upstream.as_str());
                    wrong.push(format!("{pair:?} {cell}: {done:?}"));
                }
            }
        }
        client.close().await;
        of_tasks.close().await;
    }
    #[allow(clippy::print_stdout)]
    {
        println!("{table}");
    }
    assert!(wrong.is_empty(), "{table}\n{}", wrong.join("\n"));
    // What is said of a revision is what was spoken.
    for call in site.calls() {
        let message = call.ended.as_ref().and_then(|it| it.message.clone());
        if let Some(message) = message.filter(|it| it.starts_with("upstream r")) {
            let (name, revision) = message.split_once(',').unwrap();
            let digits = revision.rsplit(' ').next().unwrap().replace('-', "");
            assert_eq!(name, format!("upstream r{digits}"), "{message}");
        }
    }
}
