//! Life of workers: start, death, return and end.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use adapter_tools::{
    Repeat, ToolCx, ToolError,
    python::{PythonApp, StartError, WorkerState},
};
use common::{App, LONG, Running, fixtures, has_ended, is_alive};
use serde_json::json;
use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Asserts that it is a crash after which the call may be repeated, and gives its message and detail.
fn crash(error: ToolError) -> (String, String) {
    match error {
        ToolError::Crashed {
            message,
            repeat,
            detail,
        } if repeat != Repeat::Never => (message, detail),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_worker_that_dies_takes_its_own_calls_with_it_and_comes_back() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let pid = shop.pid().await;
    let sleeping = shop.call("sleep", json!({"seconds": 600}));
    let dying = async {
        shop.has_seen("slept").await;
        shop.call("exit", json!({"status": 3})).await
    };
    let (sleeping, dying) = tokio::join!(sleeping, dying);
    for error in [sleeping.unwrap_err(), dying.unwrap_err()] {
        let (message, detail) = crash(error);
        assert!(message.contains("exit status 3"), "{message}");
        assert!(!message.contains("last words"), "{message}");
        assert!(detail.contains("these are my last words"), "{detail}");
    }
    // This one comes while there is no worker, and waits.
    assert_ne!(shop.pid().await, pid);
    assert_eq!(
        shop.is(|state| *state == WorkerState::Ready).await,
        WorkerState::Ready
    );
}

#[tokio::test]
async fn a_worker_that_is_killed_is_told_by_its_signal() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let (message, _) = crash(shop.call("signal", json!({})).await.unwrap_err());
    assert!(message.contains("SIGKILL (9)"), "{message}");
    assert_eq!(shop.text("text", json!({})).await, "hello you");
}

#[tokio::test]
async fn a_call_that_cannot_be_stopped_costs_the_worker() {
    let app = App::shop();
    let mut options = app.options();
    options.grace = Duration::from_millis(300);
    let shop = Running::start(options).await;
    let pid = shop.pid().await;
    let other = shop.call("sleep", json!({"seconds": 600}));
    let spin = async {
        shop.has_seen("slept").await;
        // One that is given up before it has begun costs nobody anything.
        loop {
            let soon = Duration::from_millis(200);
            let given_up = tokio::time::timeout(soon, shop.call("spin", json!({})));
            assert!(given_up.await.is_err());
        }
    };
    let other = tokio::select! {
        other = other => other,
        () = spin => unreachable!("it goes on for ever"),
    };
    let (message, _) = crash(other.unwrap_err());
    assert!(message.contains("did not end"), "{message}");
    assert_ne!(shop.pid().await, pid);
    has_ended(pid).await;
}

#[tokio::test]
async fn shutting_down_ends_the_worker_and_answers_what_is_left() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let pid = shop.pid().await;
    let sleeping = shop.call("sleep", json!({"seconds": 600}));
    let ending = async {
        shop.has_seen("slept").await;
        tokio::join!(shop.python.shutdown(), shop.python.shutdown());
    };
    let (sleeping, ()) = tokio::join!(sleeping, ending);
    let (message, _) = crash(sleeping.unwrap_err());
    assert!(message.contains("shutting down"), "{message}");
    assert!(!is_alive(pid));
    assert_eq!(*shop.python.state().borrow(), WorkerState::Stopped);
    let late = shop.call("text", json!({})).await.unwrap_err();
    assert!(late.is_retryable(), "it was not begun: {late:?}");
    crash(late);
    shop.python.shutdown().await;
}

#[tokio::test]
async fn dropping_the_application_ends_the_worker() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let pid = shop.pid().await;
    drop(shop);
    has_ended(pid).await;
}

#[test]
fn dropping_the_runtime_ends_the_worker() {
    let app = App::shop();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let (shop, pid) = first.block_on(async {
        let shop = Running::start(app.options()).await;
        let pid = shop.pid().await;
        (shop, pid)
    });
    drop(first);
    runtime().block_on(async {
        has_ended(pid).await;
        // And nobody waits for ever.
        crash(shop.call("text", json!({})).await.unwrap_err());
        shop.python.shutdown().await;
    });
}

#[tokio::test]
async fn the_worker_lives_in_a_private_directory_and_leaves_nothing_behind() {
    let app = App::shop();
    let shop = Running::start(app.options()).await;
    let who = shop.json("who", json!({})).await;
    let package = Path::new(who["package"].as_str().unwrap());
    let directory = package.ancestors().nth(2).unwrap();
    let mode = directory.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "it is the server's own");
    shop.python.shutdown().await;
    assert!(!directory.exists());
    let left: Vec<_> = std::fs::read_dir(app.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["app.py"]);
}

#[tokio::test]
async fn what_the_working_directory_has_is_not_run_before_the_application() {
    let app = App::shop();
    for name in ["runpy.py", "asyncio.py", "re.py"] {
        let text = "raise SystemExit('not of Python')\n";
        std::fs::write(app.directory.path().join(name), text).unwrap();
    }
    let shop = Running::start(app.options()).await;
    shop.python.shutdown().await;
}

async fn refusal(options: adapter_tools::python::PythonOptions) -> StartError {
    let start = tokio::time::timeout(LONG, PythonApp::start(options));
    start.await.expect("it hangs").expect_err("it starts")
}

#[tokio::test]
async fn an_application_that_cannot_be_loaded_is_told_with_its_traceback() {
    let app =
        App::new("import sys\nprint('about to fail', file=sys.stderr)\nimport no_such_module\n");
    let error = refusal(app.options()).await;
    assert!(error.to_string().contains("no_such_module"), "{error}");
    let details = error.details();
    assert!(details.contains("line 3"), "{details}");
    assert!(details.contains("about to fail"), "{details}");
}

#[tokio::test]
async fn an_application_that_ends_while_it_is_loaded_is_told_by_its_status() {
    let app = App::new("import os, sys\nprint('bye', file=sys.stderr)\nos._exit(7)\n");
    let error = refusal(app.options()).await;
    assert!(
        matches!(&error, StartError::Ended { status, .. } if status == "exit status 7"),
        "{error:?}"
    );
    assert!(error.details().contains("bye"));
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let app = App::shop();
    let mut options = app.options();
    options.interpreter = PathBuf::from("/no/such/python");
    let error = refusal(options).await;
    assert!(matches!(error, StartError::NoInterpreter(_)), "{error:?}");

    let mut options = app.options();
    options.root = PathBuf::from("/no/such/directory");
    let error = refusal(options).await;
    assert!(matches!(error, StartError::NoRoot(_)), "{error:?}");

    let mut options = app.options();
    options.app = "missing.py".to_owned();
    let error = refusal(options).await;
    assert!(error.to_string().contains("missing.py"), "{error}");

    let mut options = app.options();
    options.interpreter = PathBuf::from("/bin/false");
    let error = refusal(options).await;
    assert!(
        matches!(&error, StartError::Ended { status, .. } if status == "exit status 1"),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_application_that_takes_too_long_is_ended() {
    let app = App::new(
        "import os, time\nprint(os.getpid(), flush=True)\n\
        open('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n",
    );
    let mut options = app.options();
    options.start_timeout = Duration::from_secs(5);
    let error = refusal(options).await;
    assert!(
        matches!(&error, StartError::TimedOut { place: Some(place), .. } if place == "app.py, line 4"),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .ends_with("the import was at app.py, line 4"),
        "{error}"
    );
    let pid = std::fs::read_to_string(app.directory.path().join("pid")).unwrap();
    has_ended(pid.parse().unwrap()).await;
}

fn fake(how: &str) -> adapter_tools::python::PythonOptions {
    let mut options = adapter_tools::python::PythonOptions::new(how, fixtures());
    options.package = Some(fixtures().join("fake_worker"));
    (options.workers, options.threads) = (1, 1);
    options.grace = Duration::from_millis(200);
    options.min_backoff = Duration::from_millis(10);
    options
}

#[tokio::test]
async fn who_does_not_know_the_nonce_or_the_version_is_no_worker() {
    for (how, ends_by_itself) in [
        ("silent", false),
        ("stranger", true),
        ("newer", true),
        ("wrong role", true),
        ("worker stranger", true),
        ("other worker", true),
    ] {
        let mut options = fake(how);
        options.start_timeout = Duration::from_secs(if ends_by_itself { 30 } else { 1 });
        let error = refusal(options).await;
        match error {
            // It was hung up on, and fell over that.
            StartError::Ended { .. } if ends_by_itself => {}
            StartError::TimedOut { .. } if !ends_by_itself => {}
            error => panic!("{how}: {error:?}"),
        }
    }
    for how in ["early", "worker early"] {
        let error = refusal(fake(how)).await;
        assert!(matches!(error, StartError::Protocol(_)), "{error:?}");
    }
    let error = refusal(fake("no fork")).await;
    assert!(error.to_string().contains("too many processes"), "{error}");
}

#[tokio::test]
async fn a_worker_that_talks_nonsense_is_replaced() {
    for how in ["garbage", "huge", "no id"] {
        let fake = Running::start(fake(how)).await;
        let (message, _) = crash(fake.call("x", json!({})).await.unwrap_err());
        assert!(message.contains("broke the protocol"), "{how}: {message}");
        fake.is(|state| *state == WorkerState::Ready).await;
    }
    let half = Running::start(fake("half")).await;
    let (message, _) = crash(half.call("x", json!({})).await.unwrap_err());
    assert!(message.contains("exit status 5"), "{message}");
}

#[tokio::test]
async fn what_nobody_asked_for_is_ignored() {
    let fake = Running::start(fake("unasked")).await;
    assert_eq!(fake.text("x", json!({})).await, "after all");
}

#[tokio::test]
async fn a_result_may_be_deeper_than_any_stack() {
    let deep = Running::start(fake("deep")).await;
    assert_eq!(deep.text("x", json!({})).await.len(), 2_000_000);
}

#[tokio::test]
async fn a_worker_that_talks_without_end_is_ended_in_time() {
    for kind in ["progress", "cost", "log", "pong"] {
        let flood = Running::start(fake(&format!("flood of {kind}"))).await;
        let deadline = std::time::Instant::now() + Duration::from_millis(300);
        let cx = ToolCx::new("anna", "1").with_deadline(deadline);
        let error = flood.call_with(cx, "x", json!({})).await.unwrap_err();
        assert!(matches!(error, ToolError::TimedOut), "{kind}: {error:?}");
        let lost = flood.health_is(|health| health.last_loss.is_some()).await;
        let cause = lost.last_loss.unwrap().cause;
        assert!(cause.contains("did not end"), "{kind}: {cause}");
    }
}

#[tokio::test]
async fn a_worker_that_does_not_listen_is_killed_at_the_end() {
    let fake = Running::start(fake("deaf")).await;
    let call = fake.call("x", json!({}));
    let end = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        fake.python.shutdown().await;
    };
    let (call, ()) = tokio::join!(call, end);
    crash(call.unwrap_err());
}
