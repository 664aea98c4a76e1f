//! Servers from code: sources of tools that change, the runtime of an embedder, and mistakes.

use adapter_skills::SkillCatalog;
use adapter_tools::{
    Arguments, Executor, NoArguments, Tool, ToolCx, ToolError, ToolOutput, ToolSet,
};
use futures_util::future::{BoxFuture, ready};
use ledger::ReadLedger as _;
use mcp_server::{
    ComponentState, Filter, FilterRule, Filtered, Passing, Phase, SourceTools, ToolSource,
};
use serde_json::json;
use server::Server;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use testkit::{GENEROUS, HttpClient, HttpRequest, free_port, wait_until};
use tokio::sync::{oneshot, watch};

fn tool(name: &'static str) -> Tool {
    Tool::native(name, |_: ToolCx, _: NoArguments| async { Ok("done") })
}

/// A source whose tools are as many as its version says.
#[derive(Debug)]
struct Growing {
    version: watch::Receiver<u64>,
    is_closed: Arc<AtomicBool>,
}

impl ToolSource for Growing {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        let names = ["first", "second"].into_iter();
        let count = usize::try_from(*self.version.borrow()).expect("it is small");
        names.take(count).map(tool).collect::<Vec<_>>().into()
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.version.clone())
    }

    fn health(&self) -> Option<ComponentState> {
        Some(ComponentState {
            name: "growing",
            ok: *self.version.borrow() < 2,
            detail: None,
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.is_closed.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }
}

fn builder(directory: &Path) -> server::Builder {
    Server::builder("embedder", "1.2.3")
        .directory(directory)
        .ledger("ledger.db")
        .environment(config::Environment::default())
}

async fn names(client: &mut HttpClient) -> Vec<String> {
    let answer = client.post_modern("tools/list", json!({})).await;
    let tools = answer.result()["tools"].as_array().expect("tools").iter();
    tools
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_changes_is_offered_anew_and_closed_with_the_server() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let (grow, version) = watch::channel(1);
    let is_closed = Arc::new(AtomicBool::new(false));
    let source = Growing {
        version,
        is_closed: Arc::clone(&is_closed),
    };
    let port = free_port();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = builder(directory.path())
        .tools(source)
        .http(([127, 0, 0, 1], port))
        .serve_until(async { drop(stopped.await) });
    let client = async {
        let address = ([127, 0, 0, 1], port).into();
        wait_until("the server listens", GENEROUS, || {
            std::net::TcpStream::connect(address).is_ok()
        })
        .await;
        let mut client = HttpClient::new(address);
        assert_eq!(names(&mut client).await, ["first"]);
        let health = client.exchange(&HttpRequest::get("/health")).await;
        assert_eq!(health.status, 200, "{}", health.text());
        let server = client.post_modern("server/discover", json!({})).await;
        assert!(server.result().to_string().contains("embedder"));
        grow.send_replace(2);
        let until = tokio::time::Instant::now() + GENEROUS;
        while names(&mut client).await != ["first", "second"] {
            assert!(tokio::time::Instant::now() < until, "the change is seen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let health = client.exchange(&HttpRequest::get("/health")).await;
        assert_eq!(health.status, 503, "{}", health.text());
        assert!(health.text().contains("growing"));
        assert!(!is_closed.load(Ordering::Relaxed));
        stop.send(()).expect("the server runs");
    };
    let (served, ()) = tokio::join!(serving, client);
    assert!(served.expect("it is served"), "everything is on record");
    assert!(is_closed.load(Ordering::Relaxed));
}

/// The reason why a server with these settings does not start.
async fn refused(builder: server::Builder) -> String {
    let stop = std::future::ready(());
    let failure = builder.serve_until(stop).await;
    failure.expect_err("it does not start").to_string()
}

#[tokio::test]
async fn mistakes_in_code_keep_the_server_from_starting() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let builder = || builder(directory.path());
    for (wrong, why) in [
        (builder().set("http.portt", 1), "did you mean `http.port`"),
        (
            builder().set("tools", 1).set("tools.page_size", 1),
            "`tools` has a value and is no section",
        ),
        (
            builder()
                .settings("mcp_server: {governance: {default_quota: {max_calls_per_day: lots}}}"),
            "governance.default_quota.max_calls_per_day",
        ),
        (builder().skills("nowhere"), "resources.skills_dir"),
        (
            builder()
                .tools(ToolSet::new([tool("same")]).expect("a set"))
                .tools(ToolSet::new([tool("same")]).expect("a set")),
            "two tools are called `same`",
        ),
    ] {
        let said = refused(wrong).await;
        assert!(said.contains(why), "{said}");
    }
}

/// Refuses requests and results that have a word in them.
#[derive(Debug)]
struct Without {
    phase: Phase,
    word: &'static str,
}

impl Filter for Without {
    fn filter<'a>(&'a self, passing: Passing<'a>) -> BoxFuture<'a, Result<Filtered, String>> {
        let is_there = passing.payload().as_str().contains(self.word);
        Box::pin(ready(Ok(match passing.phase == self.phase && is_there {
            true => Filtered::Refused(format!("it has `{}`", self.word)),
            false => Filtered::Passed,
        })))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_from_code_stand_before_and_behind_each_call_and_are_on_record() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let echo = Tool::new("echo", schema, Echo(counted));
    let filter = |name: &str, phase, word| FilterRule::new(name, Without { phase, word });
    let port = free_port();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = builder(directory.path())
        .tools(ToolSet::new([echo]).expect("a set"))
        .filter(filter("first", Phase::Request, "secret"))
        .filter(filter("second", Phase::Response, "told"))
        .http(([127, 0, 0, 1], port))
        .serve_until(async { drop(stopped.await) });
    let client = async {
        let address = ([127, 0, 0, 1], port).into();
        wait_until("the server listens", GENEROUS, || {
            std::net::TcpStream::connect(address).is_ok()
        })
        .await;
        let mut client = HttpClient::new(address);
        let mut call = async |text: &str| {
            let call = json!({"name": "echo", "arguments": {"text": text}});
            let answer = client.post_modern("tools/call", call).await;
            (answer.result().to_string(), runs.load(Ordering::SeqCst))
        };
        let (refused, ran) = call("a secret").await;
        assert!(
            refused.contains(r#""filter":"first""#) && ran == 0,
            "{refused}"
        );
        let (withheld, ran) = call("a told one").await;
        assert!(
            withheld.contains(r#""filter":"second""#) && ran == 1,
            "{withheld}"
        );
        assert!(!withheld.contains("a told one"), "{withheld}");
        let (done, ran) = call("a word").await;
        assert!(done.contains("a word") && ran == 2, "{done}");
        stop.send(()).expect("the server runs");
    };
    let (served, ()) = tokio::join!(serving, client);
    assert!(served.expect("it is served"), "everything is on record");
    let path = directory.path().join("ledger.db");
    let mut reader = ledger::LedgerReader::open(path).expect("the ledger opens");
    let mut calls = reader
        .recent(9, ledger::Filter::default())
        .expect("it is sound");
    calls.reverse();
    let told = calls.iter().map(|it| {
        let ended = it.ended.as_ref().expect("it has ended");
        let message = ended.message.clone().unwrap_or_default();
        (ended.outcome.as_str().to_owned(), message)
    });
    let told: Vec<_> = told.collect();
    for ((outcome, message), (wanted, words)) in told.iter().zip([
        ("denied", "filter first: refused the arguments"),
        ("failed", "filter second: refused the result"),
        ("succeeded", "filter first: passed the arguments"),
    ]) {
        assert!(outcome == wanted && message.contains(words), "{told:?}");
    }
    assert_eq!(told.len(), 3, "{told:?}");
}

struct Echo(Arc<std::sync::atomic::AtomicUsize>);

impl Executor for Echo {
    fn execute<'a>(
        &'a self,
        _: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let text = arguments.as_object()["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Box::pin(ready(Ok(text.into())))
    }
}
