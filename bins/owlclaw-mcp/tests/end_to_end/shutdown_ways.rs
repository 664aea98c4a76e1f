//! Servers that are told to stop while they are called in every way that there is over HTTP, by a
//! client that nobody here wrote: curl, many requests at once.
#![allow(clippy::print_stdout, reason = "the figures are for whoever runs it")]

use std::{collections::HashSet, fmt::Write, process::Stdio};

use serde_json::{Value, json};
use testkit::{GENEROUS, HttpClient, HttpServer, MODERN, wait_until};
use tokio::process::{Child, Command};

use crate::support::{END, Site, call, run, text};
use crate::tls;

/// Calls that a client has to make; it gets to a part of them.
const CALLS: usize = 3_000;
/// So many of them at once.
const AT_ONCE: usize = 24;
/// The server is told to stop when so many have begun.
const BEGUN: usize = 3 * AT_ONCE;

/// A way to come to the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Http2,
    Tls,
    TlsHttp2,
    UnixSocket,
    UnixSocketHttp2,
}

const WAYS: [Way; 5] = [
    Way::Http2,
    Way::Tls,
    Way::TlsHttp2,
    Way::UnixSocket,
    Way::UnixSocketHttp2,
];

impl Way {
    fn site(self, shutdown: Value) -> Site {
        let settings = json!({ "shutdown": shutdown });
        match self {
            Self::Http2 => Site::new(settings),
            Self::Tls | Self::TlsHttp2 => tls::site_of(settings, json!({})).0,
            Self::UnixSocket | Self::UnixSocketHttp2 => {
                let mut settings = settings;
                settings["http"] = json!({"unix_socket": "owlclaw.sock"});
                Site::new(settings)
            }
        }
    }

    /// Address at which `mark` is called. In HTTP/2 without TLS every call has a connection of its
    /// own, by a name of its own: curl of some age cannot use such a connection twice.
    fn url(self, server: &HttpServer, mark: &str) -> String {
        let port = server.address().port();
        match self {
            Self::Tls | Self::TlsHttp2 => format!("https://localhost:{port}/mcp"),
            Self::UnixSocket => format!("http://localhost:{port}/mcp"),
            Self::Http2 | Self::UnixSocketHttp2 => format!("http://{mark}.localhost:{port}/mcp"),
        }
    }

    /// Options of curl for each request.
    fn options(self) -> &'static str {
        match self {
            Self::Http2 => "http2-prior-knowledge\n",
            Self::Tls => "http1.1\ncacert = authority.pem\n",
            Self::TlsHttp2 => "http2\ncacert = authority.pem\n",
            Self::UnixSocket => "http1.1\nunix-socket = owlclaw.sock\n",
            Self::UnixSocketHttp2 => "http2-prior-knowledge\nunix-socket = owlclaw.sock\n",
        }
    }

    fn version(self) -> &'static str {
        match self {
            Self::Tls | Self::UnixSocket => "1.1",
            Self::Http2 | Self::TlsHttp2 | Self::UnixSocketHttp2 => "2",
        }
    }

    /// One request after the other for curl, each with a file for its answer.
    fn script(self, server: &HttpServer, calls: &[(String, Value)]) -> String {
        let mut script = String::new();
        for (mark, params) in calls {
            if !script.is_empty() {
                script.push_str("next\n");
            }
            let message = json!({
                "jsonrpc": "2.0", "id": mark, "method": "tools/call", "params": params,
            });
            write!(
                script,
                "url = {url}\nsilent\n{options}output = answers/{mark}\n\
                 write-out = \"%{{http_code}} %{{http_version}}\\n\"\n\
                 header = \"host: localhost\"\n\
                 header = \"content-type: application/json\"\n\
                 header = \"accept: application/json, text/event-stream\"\n\
                 data = {data}\n",
                url = self.url(server, mark),
                options = self.options(),
                data = json!(message.to_string()),
            )
            .unwrap();
        }
        script
    }

    /// A curl that makes these calls.
    fn curl(self, site: &Site, server: &HttpServer, calls: &[(String, Value)]) -> Child {
        site.write("script", self.script(server, calls));
        std::fs::create_dir(site.path("answers")).unwrap();
        Command::new("curl")
            .args(["--disable", "--parallel", "--parallel-max"])
            .arg(AT_ONCE.to_string())
            .args(["--config", "script"])
            .current_dir(site.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("curl is there")
    }
}

/// Output of curl at its end.
async fn ended(curl: Child) -> String {
    let output = tokio::time::timeout(3 * GENEROUS, curl.wait_with_output()).await;
    String::from_utf8(output.expect("in time").unwrap().stdout).unwrap()
}

/// The marks whose calls have a result.
fn answered(site: &Site, calls: &[(String, Value)]) -> HashSet<String> {
    let has_result = |mark: &String| {
        let answer = site.read(&format!("answers/{mark}"));
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        answer["id"] == json!(mark) && answer["result"].is_object()
    };
    let marks = calls.iter().map(|(mark, _)| mark);
    marks.filter(|mark| has_result(mark)).cloned().collect()
}

#[tokio::test]
async fn under_load_every_call_that_runs_is_answered_and_on_record_whichever_way_it_came() {
    for way in WAYS {
        let site = way.site(json!({}));
        let mut server = site.http().await;
        let calls = (0..CALLS).map(|index| {
            let mark = format!("m{index}");
            let tool = if index % 2 == 0 { "linger" } else { "append" };
            let params = call(tool, json!({ "mark": mark }));
            (mark, params)
        });
        let calls: Vec<_> = calls.collect();
        let curl = way.curl(&site, &server, &calls);
        wait_until("calls run", 3 * GENEROUS, || {
            BEGUN < site.read("executed").lines().count()
        })
        .await;
        server.process().signal("TERM").await;
        // It ends itself with another code when its time is over.
        let status = server.wait_exit(END).await;
        assert_eq!(status.code(), Some(0), "{way:?}: {}", server.stderr());
        let said = ended(curl).await;
        let answered = answered(&site, &calls);
        // Should all of them be over before, it has shown less, and says so.
        println!("{way:?}: {} of {CALLS} calls were answered", answered.len());
        let expected = format!("200 {}", way.version());
        let count = said.lines().filter(|line| *line == expected).count();
        assert!(answered.len() <= count, "{way:?}: {said}");
        crate::shutdown::nothing_is_lost(&site, &answered).await;
    }
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_whichever_way_it_was_called() {
    for way in WAYS {
        let site = way.site(json!({"drain_seconds": 600}));
        let mut server = site.http().await;
        let calls = [("nap".to_owned(), call("nap", json!({"seconds": 600})))];
        let curl = way.curl(&site, &server, &calls);
        wait_until("it naps", GENEROUS, || site.read("naps").contains("begun")).await;
        server.process().signal("TERM").await;
        server.process().wait_stderr("\"stopping\"").await;
        assert_eq!(site.outcomes("nap"), ["open"]);
        server.process().signal("TERM").await;
        let status = server.wait_exit(GENEROUS).await;
        assert_eq!(status.code(), Some(143), "{way:?}: {}", server.stderr());
        assert!(server.stderr().contains("ending at once"));
        ended(curl).await;
        assert!(answered(&site, &calls).is_empty(), "{way:?}");
        assert_eq!(site.outcomes("nap"), ["open"]);
    }
}

/// A client that knows tasks.
fn knowing(mut client: HttpClient) -> HttpClient {
    client.speak(MODERN);
    let extension = "io.modelcontextprotocol/tasks";
    client.voice.capabilities = json!({"extensions": {extension: {}}});
    client
}

#[tokio::test]
async fn tasks_that_run_when_it_stops_come_to_an_end_that_their_clients_can_ask_for() {
    let settings = json!({"tasks": {"after_seconds": 0}, "shutdown": {"drain_seconds": 1}});
    let site = Site::new(settings);
    let mut server = site.http().await;
    let mut client = knowing(server.client());
    let mut tasks = Vec::new();
    for round in 0..12 {
        // Some will be over in time, and some will not.
        let seconds = if round % 3 == 0 { 600.0 } else { 0.05 };
        let answer = client
            .post_modern("tools/call", call("nap", json!({"seconds": seconds})))
            .await;
        let result = answer.result();
        assert_eq!(result["resultType"], "task", "{result}");
        tasks.push((seconds, result["taskId"].as_str().unwrap().to_owned()));
    }
    wait_until("all nap", GENEROUS, || {
        12 == site.read("naps").matches("begun").count()
    })
    .await;
    server.process().signal("TERM").await;
    let status = server.wait_exit(GENEROUS).await;
    assert_eq!(status.code(), Some(0), "{}", server.stderr());

    let server = site.http().await;
    let mut client = knowing(server.client());
    for (seconds, id) in &tasks {
        let answer = client.post_modern("tasks/get", json!({"taskId": id})).await;
        let task = answer.result();
        if *seconds < 1.0 {
            assert_eq!(task["status"], "completed", "{task}");
            assert_eq!(text(&task["result"]), "rested");
        } else {
            assert_eq!(task["status"], "failed", "{task}");
            let why = "the server stopped before the call had ended";
            assert_eq!(task["error"]["message"], why);
        }
    }
    let outcomes = site.outcomes("nap");
    let count = |outcome: &str| outcomes.iter().filter(|it| *it == outcome).count();
    assert_eq!((count("succeeded"), count("cancelled")), (8, 4));
    let verified = run(site.command(&["ledger", "verify"])).await;
    assert_eq!(verified.code, Some(3), "{}", verified.messages);
}
