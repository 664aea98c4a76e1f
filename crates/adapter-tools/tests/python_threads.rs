//! Synchronous handlers in threads of one process.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use adapter_tools::{ToolCx, ToolError, python::PythonOptions};
use common::{App, LONG, Running, app_with};
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const HEAD: &str = "import asyncio, os, sqlite3, sys, threading, time\nimport owlclaw_worker\n";

fn threaded(app: &App) -> PythonOptions {
    let mut options = app.options();
    options.threads = 64;
    options
}

async fn start(body: &str) -> (App, Running) {
    let app = App::new(&app_with(&format!("{HEAD}{body}")));
    let running = Running::start(threaded(&app)).await;
    (app, running)
}

const SLEEPERS: &str = "
@app.handler('wait')
def wait(seconds: float): threading.Event().wait(seconds)
@app.handler('rest')
def rest(seconds: float = 0.5):
    time.sleep(seconds)
    return os.getpid()
@app.handler('who')
async def who(): return {'pid': os.getpid()}
@app.handler('quick')
def quick(): return os.getpid()
";

#[tokio::test]
async fn sixteen_handlers_of_half_a_second_take_little_more_than_half_a_second() {
    let (_app, shop) = start(SLEEPERS).await;
    let pid = shop.pid().await;
    let begun = Instant::now();
    let calls = (0..16).map(|_| shop.json("rest", json!({})));
    let pids = futures_util::future::join_all(calls).await;
    assert!(pids.iter().all(|one| *one == json!(pid)));
    // One after the other they would take eight seconds.
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn what_one_call_keeps_in_memory_the_next_one_finds() {
    let (_app, shop) = start(
        "todo = []\n\
        @app.handler('add')\ndef add(what: str):\n    todo.append(what)\n    return len(todo)\n\
        @app.handler('list')\nasync def every(): return todo\n",
    )
    .await;
    for number in 1..=9 {
        assert_eq!(
            shop.json("add", json!({"what": "tea"})).await,
            json!(number)
        );
    }
    assert_eq!(
        shop.json("list", json!({})).await.as_array().unwrap().len(),
        9
    );
}

#[tokio::test]
async fn a_synchronous_handler_may_run_an_event_loop() {
    let (_app, shop) = start(
        "async def later(): \n    await asyncio.sleep(0)\n    return 'later'\n\
        @app.handler('run')\ndef run(): return asyncio.run(later())\n\
        @app.handler('hidden')\ndef hidden(): return later()\n",
    )
    .await;
    assert_eq!(shop.text("run", json!({})).await, "later");
    assert_eq!(shop.text("hidden", json!({})).await, "later");
}

#[tokio::test]
async fn calls_of_one_client_that_hang_leave_threads_to_others() {
    let app = App::new(&app_with(&format!("{HEAD}{SLEEPERS}")));
    let mut options = threaded(&app);
    options.threads = 8;
    let shop = Running::start(options).await;
    let hang = |_| shop.call_with(ToolCx::new("anna", "1"), "rest", json!({"seconds": 600}));
    let hanging = futures_util::future::join_all((0..100).map(hang));
    let others = async {
        shop.health_is(|health| health.calls_waiting >= 94).await;
        for client in ["ben", "carl", "dora"] {
            for _ in 0..20 {
                let cx = ToolCx::new(client, "2");
                shop.call_with(cx, "quick", json!({})).await.unwrap();
            }
        }
    };
    tokio::select! {
        _ = hanging => panic!("they hang"),
        () = others => {}
    }
}

#[tokio::test]
async fn a_handler_in_a_thread_is_interrupted_at_its_deadline() {
    let (_app, shop) = start(
        "seen = []\n\
        @app.handler('seen')\ndef look(): return seen\n\
        @app.handler('who')\nasync def who(): return {'pid': os.getpid()}\n\
        @app.handler('loop')\ndef loop():\n    try:\n        while True: time.sleep(0.001)\n\
        \x20   finally: seen.append('interrupted')\n",
    )
    .await;
    let pid = shop.pid().await;
    let cx = ToolCx::new("anna", "1").with_deadline(Instant::now() + Duration::from_millis(300));
    let error = shop.call_with(cx, "loop", json!({})).await.unwrap_err();
    assert!(matches!(error, ToolError::TimedOut), "{error:?}");
    shop.has_seen("interrupted").await;
    assert_eq!(shop.pid().await, pid);
}

#[tokio::test]
async fn a_handler_that_cannot_be_interrupted_is_abandoned_and_costs_nobody_else_anything() {
    let app = App::new(&app_with(&format!("{HEAD}{SLEEPERS}")));
    let mut options = threaded(&app);
    (options.threads, options.grace) = (2, Duration::from_millis(100));
    let shop = Running::start(options).await;
    let pid = shop.pid().await;
    for _ in 0..4 {
        let cx =
            ToolCx::new("anna", "1").with_deadline(Instant::now() + Duration::from_millis(100));
        let error = shop
            .call_with(cx, "wait", json!({"seconds": 600}))
            .await
            .unwrap_err();
        assert!(matches!(error, ToolError::TimedOut), "{error:?}");
    }
    // All threads have been taken more than once by now.
    assert_eq!(shop.json("quick", json!({})).await, json!(pid));
    assert_eq!(shop.pid().await, pid);
    assert_eq!(shop.python.health().losses, 0);
}

#[tokio::test]
async fn a_worker_that_holds_the_interpreter_is_killed() {
    let app = App::new(&app_with(&format!(
        "{HEAD}{SLEEPERS}@app.handler('spin')\ndef spin(): return sum(range(10**12))\n"
    )));
    let mut options = threaded(&app);
    options.grace = Duration::from_millis(500);
    let shop = Running::start(options).await;
    let pid = shop.pid().await;
    let cx = ToolCx::new("anna", "1").with_deadline(Instant::now() + Duration::from_millis(100));
    let error = shop.call_with(cx, "spin", json!({})).await.unwrap_err();
    assert!(matches!(error, ToolError::TimedOut), "{error:?}");
    let next = async {
        // What runs when the worker is killed is told so.
        loop {
            if let Ok(output) = shop.call("quick", json!({})).await {
                return common::text(&output);
            }
        }
    };
    let next = tokio::time::timeout(LONG, next).await.unwrap();
    assert_ne!(next, pid.to_string());
}

#[tokio::test]
async fn an_exit_in_a_handler_ends_its_call_only() {
    let (_app, shop) = start(
        "@app.handler('leave')\ndef leave(): sys.exit(3)\n\
        @app.handler('who')\nasync def who(): return {'pid': os.getpid()}\n",
    )
    .await;
    let pid = shop.pid().await;
    let error = shop.call("leave", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("SystemExit"), "{error}");
    assert_eq!(shop.pid().await, pid);
}

#[tokio::test]
async fn progress_from_a_thread_arrives_and_what_it_prints_is_its_own() {
    let (_app, shop) = start(
        "@app.handler('steps')\ndef steps():\n    for step in range(100):\n        owlclaw_worker.progress(step, 100)\n\
        \x20       print(step)\n    return owlclaw_worker.caller().principal\n",
    )
    .await;
    let calls = (0..8).map(|number| {
        let shop = &shop;
        async move {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&seen);
            let who = format!("client-{number}");
            let cx = ToolCx::new(who.as_str(), "1").with_progress(Arc::new(move |progress| {
                sink.lock().unwrap().push(progress.progress)
            }));
            let output = shop.call_with(cx, "steps", json!({})).await.unwrap();
            assert_eq!(common::text(&output), who);
            let expected: Vec<_> = (0..100).map(f64::from).collect();
            assert_eq!(*seen.lock().unwrap(), expected);
        }
    });
    futures_util::future::join_all(calls).await;
}

/// Cancellations strike anywhere in the handler's code, and never in the worker's.
#[tokio::test]
async fn cancelled_calls_never_disturb_what_is_said_for_others() {
    let (_app, shop) = start(
        "@app.handler('busy')\ndef busy():\n    for step in range(10**9): owlclaw_worker.progress(step, message='x' * 300)\n\
        @app.handler('who')\nasync def who(): return {'pid': os.getpid()}\n\
        @app.handler('quick')\ndef quick(): return 'quick'\n",
    )
    .await;
    let pid = shop.pid().await;
    for number in 0..60_u64 {
        let cx = ToolCx::new("anna", "1")
            .with_deadline(Instant::now() + Duration::from_millis(1 + number % 7));
        let (late, quick) = tokio::join!(
            shop.call_with(cx, "busy", json!({})),
            shop.text("quick", json!({}))
        );
        assert!(matches!(late, Err(ToolError::TimedOut)), "{late:?}");
        assert_eq!(quick, "quick");
    }
    assert_eq!(shop.pid().await, pid);
}

#[tokio::test]
async fn a_connection_that_belongs_to_the_main_thread_keeps_handlers_there() {
    for place in [":memory:", "orders.db"] {
        let (_app, shop) = start(&format!(
            "class Store:\n    def __init__(self): self.connection = sqlite3.connect({place:?})\n\
            store = Store()\nstore.connection.execute('create table if not exists orders (name text)')\n\
            @app.handler('add')\ndef add(name: str):\n    store.connection.execute('insert into orders values (?)', (name,))\n\
            \x20   return store.connection.execute('select count(*) from orders').fetchone()[0]\n\
            @app.handler('where')\ndef where(): return threading.current_thread() is threading.main_thread()\n"
        ))
        .await;
        assert_eq!(shop.text("where", json!({})).await, "true");
        for number in 1..4 {
            assert_eq!(
                shop.json("add", json!({"name": "tea"})).await,
                json!(number)
            );
        }
        let warnings = shop.python.info().warnings;
        assert!(
            warnings
                .iter()
                .any(|one| one.contains("app.store.connection")),
            "{warnings:?}"
        );
    }
}
