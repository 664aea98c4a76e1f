//! Servers that misbehave: each ends in a clear error within its deadline.

use mcp_client::{Bounds, CallOptions, Connection, Dial, Error, Handlers, Options, RawJson, Speak};
use mcp_protocol::{
    ProtocolVersion,
    model::{ClientCapabilities, ElicitationCapability},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const LONGEST: Duration = Duration::from_secs(40);

fn server(how: &str) -> Dial {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile.py");
    Dial::child("python3", [script, how])
}

fn options() -> Options {
    Options {
        bounds: Bounds {
            max_message: 1 << 20,
            max_notifications: 1000,
            max_pages: 50,
            max_items: 10_000,
            timeout: Duration::from_secs(6),
            close_patience: Duration::from_millis(500),
            ..Bounds::default()
        },
        ..Options::default()
    }
}

/// Outcome of connecting, listing and calling: the text of the result, or the error with its causes.
async fn outcome(how: &str) -> Result<String, String> {
    let started = Instant::now();
    let tried = async {
        let mut options = options();
        if how.starts_with("modern_") {
            // A machine under load may start it too slowly for the probe.
            options.speak = Speak::Only(ProtocolVersion::V2026_07_28);
        }
        let connection = Connection::open(&server(how), options).await?;
        connection.tools().await?;
        let options = CallOptions {
            progress: Some(mcp_client::Progress::new(|_, _, _| {})),
            ..CallOptions::default()
        };
        let result = connection
            .call("any", RawJson::EMPTY_OBJECT, &options)
            .await?;
        connection.close().await;
        Ok::<_, Error>(format!("{:?}", result.content))
    };
    let tried = tried.await;
    assert!(
        started.elapsed() < LONGEST,
        "{how} took {:?}",
        started.elapsed()
    );
    tried.map_err(|error| {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    })
}

async fn all(cases: &[(&str, &str)]) {
    for group in cases.chunks(4) {
        let tried = group.iter().map(|(how, _)| outcome(how));
        let tried = futures_util::future::join_all(tried).await;
        for ((how, expected), tried) in group.iter().zip(tried) {
            let text = match &tried {
                Ok(text) => format!("ok {text}"),
                Err(error) => format!("error {error}"),
            };
            assert!(
                text.contains(expected),
                "{how}: {text}\nexpected: {expected}"
            );
            let ends = text.matches("the connection has ended").count();
            assert!(ends <= 1, "{how}: {text}");
            assert!(text.len() < 4000, "{how}: an error must be short");
        }
    }
}

#[tokio::test]
async fn servers_that_never_begin() {
    all(&[
        ("ends_at_once", "exit status: 3); cannot find the database"),
        ("is_killed", "signal: 9"),
        (
            "closes_output",
            "the server has closed the connection; no more output",
        ),
        ("ends_always", "expected initialize, but got initialize"),
        ("silent", "`initialize` was not answered"),
        ("never_reads", "`initialize` was not answered"),
        (
            "floods_rubbish",
            "`max_rubbish` (10000); it has sent what is no message: Starting up...",
        ),
        ("one_endless_line", "`max_message`"),
        ("floods_stderr", "`initialize` was not answered"),
        ("binary", "`max_rubbish`"),
        ("unknown_versions", "the server speaks 2031-01-01"),
        ("no_versions", "no version at all"),
        ("refuses_initialize", "out of order"),
        ("initialize_array", "the answer cannot be used"),
        ("initialize_no_version", "protocolVersion"),
        ("version_far_future", "the server speaks 2099-01-01"),
    ])
    .await;
}

#[tokio::test]
async fn servers_that_begin_oddly_are_served_all_the_same() {
    let hows = [
        "says_hello_first",
        "silent_probe",
        "ends_at_the_probe",
        "ends_after_the_probe",
        "closes_at_the_probe",
        "probe_null_id",
        "probe_odd_result",
        "probe_array",
        "unsupported_forever",
        "version_old",
        "version_modern",
        "string_ids",
        "answers_twice",
        "modern_honest",
    ];
    let cases: Vec<_> = hows.iter().map(|how| (*how, "ok [")).collect();
    all(&cases).await;
}

#[tokio::test]
async fn lists_that_do_not_end() {
    all(&[
        ("pages_without_end", "`max_pages` (50)"),
        ("page_to_itself", "a page leads to itself"),
        ("items_without_end", "`max_items` (10000)"),
        ("bytes_without_end", "`max_list_bytes` (33554432)"),
        ("tools_no_list", "the result of `tools/list` does not fit"),
    ])
    .await;
}

#[tokio::test]
async fn a_page_that_leads_to_itself_without_anything_new_is_the_end_of_a_list() {
    for (how, expected) in [
        ("empty_cursors", vec!["a"]),
        ("behind_an_empty_cursor", vec!["a", "b"]),
    ] {
        let connection = Connection::open(&server(how), options()).await.unwrap();
        let tools = connection.tools().await.unwrap();
        let names: Vec<_> = tools.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, expected, "{how}");
        let left_out = usize::from(how == "empty_cursors");
        assert_eq!(connection.left_out().len(), left_out, "{how}");
        connection.close().await;
    }
}

#[tokio::test]
async fn a_server_that_refuses_the_severity_of_log_messages_is_connected_to() {
    let mut options = options();
    options.log_level = Some(mcp_protocol::model::LoggingLevel::Info);
    let connection = Connection::open(&server("refuses_levels"), options)
        .await
        .unwrap();
    let call = CallOptions::default();
    let called = connection.call("any", RawJson::EMPTY_OBJECT, &call).await;
    assert!(called.is_ok(), "{called:?}");
    connection.close().await;
}

#[tokio::test]
async fn lines_that_are_no_messages_are_counted_anew_after_each_answer() {
    let connection = Connection::open(&server("prints_with_each_call"), options())
        .await
        .unwrap();
    for _ in 0..3 {
        let call = CallOptions::default();
        let called = connection.call("any", RawJson::EMPTY_OBJECT, &call).await;
        assert!(called.is_ok(), "{called:?}");
    }
    connection.close().await;
}

#[tokio::test]
async fn tools_that_cannot_be_called_are_left_out() {
    let connection = Connection::open(&server("tools_unusable"), options()).await;
    let connection = connection.unwrap();
    let tools = connection.tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["none", "some"]);
    let left_out = connection.left_out();
    let left_out: Vec<_> = left_out.iter().map(|(_, it)| it.to_string()).collect();
    assert_eq!(left_out.len(), 3, "{left_out:?}");
    assert!(left_out[0].contains("its name is empty"), "{left_out:?}");
    assert!(left_out[1].contains("`list`") && left_out[1].contains("of type `object`"));
    connection.close().await;
}

#[tokio::test]
async fn calls_that_are_answered_badly() {
    all(&[
        ("answers_other_ids", "`tools/call` was not answered"),
        ("wrong_id_flood", "`max_unexpected`"),
        ("dies_in_call", "exit status: 7); Traceback: boom"),
        ("deep", "its answer is no message (nested deeper"),
        ("huge", "`max_message`"),
        ("result_and_error", "its answer is no message"),
        ("no_outcome", "its answer is no message"),
        ("two_ids", "its answer is no message"),
        ("no_content", "does not fit"),
        ("result_null", "does not fit"),
        ("error_is_text", "its answer is no message"),
        ("error_code_is_text", "its answer is no message"),
        ("error_code_is_long", "beyond (-2147483648)"),
        ("no_number", "its answer is no message (not JSON"),
        ("no_version_member", "its answer is no message"),
        ("progress_without_end", "`max_notifications` (1000)"),
        ("logs_without_end", "`max_notifications` (1000)"),
        (
            "asks_without_end",
            "the server does not read what it is answered",
        ),
        ("batch_of_rubbish", "`tools/call` was not answered"),
        ("waits", "`tools/call` was not answered"),
    ])
    .await;
}

#[tokio::test]
async fn questions_that_are_not_allowed() {
    all(&[
        ("asks_undeclared", "was not declared"),
        ("asks_nonsense", "-32601"),
        ("asks_with_text", "-32602"),
        ("modern_rounds_without_end", "`max_rounds` (16)"),
        ("modern_asks_nothing", "neither `inputRequests` nor"),
        ("modern_undeclared", "roots/list, which was not declared"),
        ("modern_odd_type", "was answered with a result of the type"),
        ("modern_asks_directly", "-32601"),
        ("modern_task_nonsense", "does not fit"),
        ("modern_task_of_others", "another task than was asked for"),
    ])
    .await;
}

/// Handlers that declare forms alone.
struct Forms;

impl Handlers for Forms {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            elicitation: Some(ElicitationCapability {
                form: true,
                url: false,
            }),
            ..ClientCapabilities::default()
        }
    }
}

#[tokio::test]
async fn a_way_of_asking_that_was_not_declared_is_a_bad_parameter() {
    for (handlers, code) in [
        (Arc::new(Forms) as Arc<dyn Handlers>, "-32602"),
        (Arc::new(mcp_client::NoHandlers), "-32601"),
    ] {
        let mut options = options();
        options.handlers = handlers;
        let connection = Connection::open(&server("asks_with_a_url"), options)
            .await
            .unwrap();
        let call = CallOptions::default();
        let result = connection.call("any", RawJson::EMPTY_OBJECT, &call);
        let told = format!("{:?}", result.await.unwrap().content);
        assert!(told.contains(code), "{told}");
        connection.close().await;
    }
}

#[tokio::test]
async fn a_task_that_has_no_time_left_is_cancelled_before_the_connection_is_closed() {
    for (how, version) in [
        ("modern_task_never", ProtocolVersion::V2026_07_28),
        ("task_never", ProtocolVersion::V2025_11_25),
    ] {
        let mut options = options();
        options.speak = Speak::Only(version);
        let connection = Connection::open(&server(how), options).await.unwrap();
        let call = CallOptions {
            timeout: Some(Duration::from_millis(300)),
            as_task: true,
            ..CallOptions::default()
        };
        let called = connection.call("any", RawJson::EMPTY_OBJECT, &call).await;
        let error = called.unwrap_err().to_string();
        assert!(
            error.starts_with(
                "`tools/call` was not answered within 300ms; the server has made a task of it"
            ),
            "{error}"
        );
        connection.clone().close().await;
        let said = connection.stderr();
        assert!(said.contains("asked to cancel a"), "{how}: {said}");
    }
    let mut options = options();
    options.speak = Speak::Only(ProtocolVersion::V2026_07_28);
    let connection = Connection::open(&server("modern_task_cancelled"), options)
        .await
        .unwrap();
    let call = CallOptions::default();
    let called = connection.call("any", RawJson::EMPTY_OBJECT, &call).await;
    assert_eq!(
        called.unwrap_err().to_string(),
        "the server has cancelled the task that it made of the call: the disk  is full"
    );
    connection.clone().close().await;
    let said = connection.stderr();
    assert!(!said.contains("asked to cancel"), "it is cancelled: {said}");
}

#[tokio::test]
async fn a_child_that_ignores_the_end_is_killed() {
    let connection = Connection::open(&server("ignores_the_end"), options())
        .await
        .unwrap();
    let started = Instant::now();
    connection.close().await;
    let took = started.elapsed();
    assert!(
        Duration::from_millis(900) < took && took < LONGEST,
        "{took:?}"
    );
}

/// True if a process with this number is there and no zombie.
fn runs(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

#[tokio::test]
async fn a_child_and_its_own_children_end_with_the_connection() {
    let script = "sleep 600 & echo $! >&2; echo $$ >&2; exec sleep 600 1>&2";
    let dial = Dial::child("/bin/sh", ["-c", script]);
    let mut options = options();
    options.bounds.timeout = Duration::from_secs(2);
    options.bounds.probe = Duration::from_millis(200);
    let error = Connection::open(&dial, options)
        .await
        .unwrap_err()
        .to_string();
    let pids: Vec<_> = error
        .split(|it: char| !it.is_ascii_digit())
        .filter(|it| 2 < it.len())
        .collect();
    assert!(2 <= pids.len(), "{error}");
    let until = Instant::now() + LONGEST;
    while pids.iter().any(|pid| runs(pid)) {
        assert!(Instant::now() < until, "{pids:?} run on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_child_ends_when_this_process_is_killed() {
    const VICTIM: &str = "MCP_CLIENT_TEST_VICTIM";
    if let Ok(file) = std::env::var(VICTIM) {
        // This is the process that is killed. Its child does not notice that its input ends.
        let script = format!("echo $$ > {file}.new; mv {file}.new {file}; exec sleep 600");
        let mut options = options();
        options.bounds.timeout = Duration::from_secs(600);
        Connection::open(&Dial::child("/bin/sh", ["-c", &script]), options)
            .await
            .unwrap();
    }
    let file = std::env::temp_dir().join(format!("mcp-client-victim-{}", std::process::id()));
    let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_ends_when_this_process_is_killed"])
        .env(VICTIM, &file)
        .spawn()
        .unwrap();
    let until = Instant::now() + LONGEST;
    while !file.exists() {
        assert!(Instant::now() < until, "the child has not started");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let pid = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    std::fs::remove_file(&file).unwrap();
    assert!(runs(&pid));
    // The guard is started after the child.
    tokio::time::sleep(Duration::from_millis(500)).await;
    victim.kill().unwrap();
    victim.wait().unwrap();
    while runs(&pid) {
        assert!(Instant::now() < until, "{pid} runs on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_child_inherits_what_is_named_and_nothing_else() {
    const WITNESS: &str = "MCP_CLIENT_TEST_CANARY";
    if std::env::var_os(WITNESS).is_none() {
        // Environment variables of this process cannot be changed safely, so another one is started.
        let tested = "a_child_inherits_what_is_named_and_nothing_else";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", tested])
            .env(WITNESS, "secret")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("LD_LIBRARY_PATH", "/secret")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/connections/child.py");
    let dial = Dial::Child(mcp_client::ChildProgram {
        program: "/bin/sh".into(),
        arguments: vec![
            "-c".into(),
            format!("env >&2; exec python3 {script}").into(),
        ],
        environment: vec![
            ("GIVEN".into(), "1".into()),
            ("HOME".into(), "/given".into()),
        ],
        directory: Some("/".into()),
    });
    let connection = Connection::open(&dial, options()).await.unwrap();
    let arguments = RawJson::from_bytes(r#"{"at":0}"#.into()).unwrap();
    let call = CallOptions::default();
    let result = connection
        .call("environment", arguments, &call)
        .await
        .unwrap();
    let mcp_protocol::model::Content::Text { text, .. } = &result.content[0] else {
        panic!("{result:?}");
    };
    let told: serde_json::Value = serde_json::from_str(text).unwrap();
    let stderr = connection.stderr();
    let names = stderr.lines().filter_map(|it| Some(it.split_once('=')?.0));
    // The shell has some of its own.
    let of_shell = ["GIVEN", "PWD", "OLDPWD", "SHLVL", "_"];
    let allowed = |it: &&str| of_shell.contains(it) || mcp_client::INHERITED.contains(it);
    let foreign: Vec<_> = names.clone().filter(|it| !allowed(it)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(names.into_iter().any(|it| it == "GIVEN"), "{stderr}");
    assert!(!stderr.contains("secret"), "{stderr}");
    assert_eq!(told["home"], "/given");
    assert_eq!(told["group"], true, "it leads a process group of its own");
    assert_eq!(told["place"], "/");
    connection.close().await;
}

#[tokio::test]
async fn standard_error_is_kept_to_its_bound_and_quoted_from_its_end() {
    let script =
        "head -c 3000000 /dev/zero | tr '\\0' e >&2; echo >&2; echo the last line >&2; exit 9";
    let mut options = options();
    options.bounds.max_stderr = 10_000;
    let dial = Dial::child("/bin/sh", ["-c", script]);
    let error = Connection::open(&dial, options);
    let error = error.await.unwrap_err().to_string();
    assert!(error.contains("exit status: 9"), "{error}");
    assert!(error.ends_with("the last line"), "{error}");
    assert!(error.len() < 3000);

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile.py");
    let shell =
        format!("head -c 3000000 /dev/zero | tr '\\0' e >&2; exec python3 {script} modern_honest");
    let mut options = self::options();
    options.bounds.max_stderr = 10_000;
    options.speak = Speak::Only(ProtocolVersion::V2026_07_28);
    let connection = Connection::open(&Dial::child("/bin/sh", ["-c", &shell]), options)
        .await
        .unwrap();
    let kept = connection.stderr();
    assert!((1..=10_000).contains(&kept.len()), "{}", kept.len());
    connection.close().await;
}
