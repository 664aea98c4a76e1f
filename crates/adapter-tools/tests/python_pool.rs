//! Several workers of one application: who runs what, and who does not notice.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use adapter_tools::{
    Repeat, ToolCx, ToolError, ToolSet,
    python::{PythonOptions, StartMode, WorkerState},
};
use common::{App, LONG, Running, app_with, has_ended, kill, parent};
use serde_json::json;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

fn is_crash(error: &ToolError) -> bool {
    matches!(error, ToolError::Crashed { .. })
}

#[tokio::test]
async fn synchronous_handlers_run_beside_each_other_and_never_in_the_way_of_asynchronous_ones() {
    let app = App::pool_shop();
    let shop = Running::start(app.pool(3)).await;
    shop.has_workers(3).await;
    let block = || shop.json("sync_pid_after", json!({"file": "go"}));
    let others = async {
        app.wait_for("inside", 2).await;
        let mut pids = HashSet::new();
        for _ in 0..20 {
            pids.insert(shop.pid().await);
        }
        assert_eq!(pids.len(), 1, "few calls share one worker");
        app.touch("go");
        pids
    };
    let (one, two, three, asynchronous) = tokio::join!(block(), block(), block(), others);
    let synchronous: HashSet<_> = [one, two, three].map(|pid| pid.as_i64().unwrap()).into();
    assert_eq!(synchronous.len(), 2, "the third had to wait");
    assert!(synchronous.is_disjoint(&asynchronous));
}

#[tokio::test]
async fn an_asynchronous_handler_that_blocks_holds_up_nobody_in_other_workers() {
    let app = App::pool_shop();
    let shop = Running::start(app.pool(2)).await;
    shop.has_workers(2).await;
    let block = || shop.call("block_until", json!({"file": "go"}));
    let others = async {
        app.wait_for("inside", 1).await;
        // For so long nobody can tell; it is not that something happens meanwhile.
        tokio::time::sleep(Duration::from_millis(40)).await;
        let blocked = app.pids("inside")[0];
        for _ in 0..50 {
            assert_ne!(shop.pid().await, blocked);
        }
        assert_eq!(
            shop.text("greet_slowly", json!({"name": "x"})).await,
            "hello x"
        );
        app.touch("go");
    };
    let (blocked, ()) = tokio::join!(block(), others);
    blocked.unwrap();
}

#[tokio::test]
async fn a_worker_whose_handlers_await_goes_on_being_used() {
    let app = App::pool_shop();
    let shop = Running::start(app.pool(2)).await;
    shop.has_workers(2).await;
    let sleeping = shop.call("sleep_until", json!({"file": "go"}));
    let others = async {
        app.wait_for("inside", 1).await;
        tokio::time::sleep(Duration::from_millis(40)).await;
        let awaiting = app.pids("inside")[0];
        let look = async { while shop.pid().await != awaiting {} };
        tokio::time::timeout(LONG, look)
            .await
            .expect("it is passed by for ever");
        app.touch("go");
    };
    let (slept, ()) = tokio::join!(sleeping, others);
    slept.unwrap();
}

#[tokio::test]
async fn a_worker_that_dies_takes_nobody_elses_calls_with_it() {
    let app = App::pool_shop();
    let shop = Running::start(app.pool(2)).await;
    shop.has_workers(2).await;
    let sleeping = shop.call("sleep_until", json!({"file": "go"}));
    let dying = async {
        app.wait_for("inside", 1).await;
        let error = shop.call("kill_itself", json!({})).await.unwrap_err();
        let ToolError::Crashed {
            message,
            repeat,
            detail,
        } = error
        else {
            panic!("{error:?}")
        };
        assert!(message.contains("SIGKILL (9)"), "{message}");
        assert_eq!(repeat, Repeat::IfIdempotent);
        assert!(detail.contains("these are my last words"), "{detail}");
        let health = shop.python.health();
        assert!(health.last_loss.unwrap().cause.contains("SIGKILL"));
        assert_eq!(health.state, WorkerState::Ready, "the other one serves");
        shop.has_workers(2).await;
        app.touch("go");
    };
    let (slept, ()) = tokio::join!(sleeping, dying);
    slept.unwrap();
}

#[tokio::test]
async fn a_handler_that_cannot_be_stopped_costs_its_own_worker_only() {
    let app = App::pool_shop();
    let mut options = app.pool(2);
    options.grace = Duration::from_millis(300);
    let shop = Running::start(options).await;
    shop.has_workers(2).await;
    let sleeping = shop.call("sleep_until", json!({"file": "go"}));
    let spinning = async {
        app.wait_for("inside", 1).await;
        // One that has not begun by then costs nobody anything.
        while app.pids("spinning").is_empty() {
            let deadline = Instant::now() + Duration::from_millis(200);
            let cx = ToolCx::new("anna", "1").with_deadline(deadline);
            let error = shop.call_with(cx, "spin", json!({})).await.unwrap_err();
            assert!(matches!(error, ToolError::TimedOut), "{error:?}");
        }
        let spinner = app.pids("spinning")[0];
        has_ended(spinner).await;
        shop.has_workers(2).await;
        app.touch("go");
    };
    let (slept, ()) = tokio::join!(sleeping, spinning);
    slept.unwrap();
    assert!(
        shop.python
            .health()
            .last_loss
            .unwrap()
            .cause
            .contains("did not end")
    );
}

#[tokio::test]
async fn a_tool_that_goes_on_crashing_is_suspended_and_no_other() {
    let app = App::pool_shop();
    let mut options = app.pool(2);
    options.min_backoff = Duration::from_millis(10);
    let shop = Running::start(options).await;
    for _ in 0..3 {
        shop.has_workers(2).await;
        let error = shop.call("kill_itself", json!({})).await.unwrap_err();
        assert!(is_crash(&error), "{error:?}");
    }
    let error = shop.call("kill_itself", json!({})).await.unwrap_err();
    assert!(matches!(error, ToolError::Suspended { .. }), "{error:?}");
    assert!(error.is_retryable() && Duration::from_secs(20) < error.retry_after().unwrap());
    shop.pid().await;
    let suspended = shop.python.health().suspended;
    assert_eq!(suspended.len(), 1);
    assert_eq!(suspended[0].name, "kill_itself");
    // Another code deserves another chance.
    shop.python.reload().await.unwrap();
    assert!(shop.python.health().suspended.is_empty());
}

#[tokio::test]
async fn when_the_launcher_is_lost_everything_is_and_comes_back() {
    let app = App::pool_shop();
    let shop = Running::start(app.pool(2)).await;
    shop.has_workers(2).await;
    let pid = shop.pid().await;
    let launcher = parent(pid);
    let sleeping = shop.call("sleep_until", json!({"file": "go"}));
    let losing = async {
        app.wait_for("inside", 1).await;
        common::kill(launcher);
    };
    let (slept, ()) = tokio::join!(sleeping, losing);
    let error = slept.unwrap_err();
    assert!(
        is_crash(&error) && error.to_string().contains("launcher"),
        "{error:?}"
    );
    has_ended(pid).await;
    // This one waits.
    assert_ne!(parent(shop.pid().await), launcher);
    let health = shop.python.health();
    assert!(health.suspended.is_empty(), "it was nobody's fault");
    assert_eq!(health.generation, 2);
}

#[tokio::test]
async fn an_edited_application_is_loaded_beside_the_old_one_which_finishes_what_it_runs() {
    let app = App::pool_shop();
    let mut options = app.pool(2);
    options.watch = true;
    let shop = Running::start(options).await;
    let mut version = shop.python.tools_version();
    version.mark_unchanged();
    let old = shop.pid().await;
    let sleeping = shop.call("sleep_until", json!({"file": "go"}));
    let editing = async {
        app.wait_for("inside", 1).await;
        app.write(
            "import os, time; [time.sleep(0.01) for _ in iter(lambda: os.path.exists('load'), True)]; \
             raise RuntimeError('not yet')\n",
        );
        shop.health_is(|health| health.reloading_since.is_some())
            .await;
        app.touch("load");
        let failed = shop
            .health_is(|health| health.failed_reload.is_some())
            .await;
        assert!(failed.reloading_since.is_none());
        let failed = failed.failed_reload.unwrap();
        assert!(failed.message.contains("not yet"), "{failed:?}");
        assert!(failed.details.contains("app.py\", line 1"), "{failed:?}");
        shop.pid().await;
        assert_eq!(shop.python.health().generation, 1, "the old one goes on");
        app.write(&app_with(
            "@app.handler('new')\nasync def new(): return 'new'\n",
        ));
        tokio::time::timeout(LONG, version.changed())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(shop.text("new", json!({})).await, "new");
        assert!(shop.python.health().failed_reload.is_none());
        assert_eq!(shop.python.health().generation, 2);
        app.touch("go");
    };
    let (slept, ()) = tokio::join!(sleeping, editing);
    slept.unwrap();
    has_ended(old).await;
}

#[tokio::test]
async fn nothing_is_lost_while_the_application_is_loaded_again_and_again() {
    let app = App::pool_shop();
    let shop = Running::start(app.pool(2)).await;
    let done = std::cell::Cell::new(false);
    let calls = async {
        let mut count = 0;
        while !done.get() {
            let name = count.to_string();
            let (one, two) = tokio::join!(
                shop.text("greet", json!({"name": name})),
                shop.text("greet_slowly", json!({"name": name}))
            );
            assert_eq!(one, format!("hello {name}"));
            assert_eq!(two, one);
            count += 1;
        }
        count
    };
    let reloads = async {
        for _ in 0..4 {
            shop.python.reload().await.unwrap();
        }
        done.set(true);
    };
    let (count, ()) = tokio::join!(calls, reloads);
    assert!(4 < count, "{count}");
    assert_eq!(shop.python.health().generation, 5);
    assert_eq!(
        *shop.python.tools_version().borrow(),
        0,
        "the tools are the same"
    );
}

#[tokio::test]
async fn states_are_read_by_name_and_by_a_tool() {
    let app = App::new(&app_with(
        "@app.state('stock')\ndef stock(): return {'apples': 3}\n\
        @app.state('later')\nasync def later(): return {'pears': 4}\n\
        @app.state('broken')\ndef broken(): raise ValueError('no stock')\n",
    ));
    let shop = Running::start(app.pool(2)).await;
    assert_eq!(shop.python.state_names(), ["broken", "later", "stock"]);
    let cx = || ToolCx::new("anna", "1");
    let stock = shop.python.read_state("stock", cx()).await.unwrap();
    assert_eq!(common::text(&stock), r#"{"apples":3}"#);
    let error = shop.python.read_state("broken", cx()).await.unwrap_err();
    assert!(error.to_string().contains("no stock"), "{error}");
    let error = shop.python.read_state("none", cx()).await.unwrap_err();
    assert!(matches!(error, ToolError::Broken(_)), "{error:?}");

    let tool = shop.python.query_state_tool().unwrap();
    assert!(!tool.is_async(), "some providers are not");
    assert_eq!(tool.annotations().read_only, Some(true));
    let (tools, problems) = ToolSet::collect([tool]);
    assert!(problems.is_empty());
    let tool = tools.get("query_state").unwrap();
    assert!(tool.check("{\"state_name\": \"none\"}".into()).is_err());
    let arguments = tool.check("{\"state_name\": \"later\"}".into()).unwrap();
    let later = tool.execute(cx(), arguments).await.unwrap();
    assert_eq!(common::text(&later), r#"{"pears":4}"#);

    let app = App::pool_shop();
    let shop = Running::start(app.options()).await;
    assert!(shop.python.query_state_tool().is_none());
}

#[tokio::test]
async fn states_that_came_or_went_make_another_version() {
    let app = App::new(&app_with("@app.state('one')\ndef one(): return {}\n"));
    let shop = Running::start(app.pool(1)).await;
    let version = || *shop.python.tools_version().borrow();
    shop.python.reload().await.unwrap();
    assert_eq!(version(), 0, "nothing is different");
    app.write(&app_with("@app.state('two')\ndef two(): return {}\n"));
    shop.python.reload().await.unwrap();
    assert_eq!(version(), 1);
    assert_eq!(shop.python.state_names(), ["two"]);
}

#[tokio::test]
async fn asynchronous_states_are_read_beside_each_other() {
    let source = "import asyncio, os\n\
        @app.state('one')\nasync def one():\n    met.append(1)\n\
        \x20   while len(met) < 2: await asyncio.sleep(0.001)\n    return {'pid': os.getpid()}\n\
        met = []\n";
    let app = App::new(&app_with(source));
    // Both have to be there for either to end.
    let shop = Running::start(app.pool(1)).await;
    assert!(shop.python.query_state_tool().unwrap().is_async());
    let read = || shop.python.read_state("one", ToolCx::new("anna", "1"));
    let both = async { tokio::join!(read(), read()) };
    let (one, other) = tokio::time::timeout(LONG, both)
        .await
        .expect("one waits for the other");
    assert_eq!(common::text(&one.unwrap()), common::text(&other.unwrap()));
}

#[tokio::test]
async fn an_application_that_cannot_be_forked_is_loaded_by_each_worker() {
    let source = app_with(
        "import os, threading\n\
        threading.Thread(target=threading.Event().wait, daemon=True).start()\n\
        loaded = os.getpid()\n\
        @app.handler('who')\nasync def who(): return {'pid': os.getpid(), 'loaded': loaded}\n",
    );
    let app = App::new(&source);
    for (start, loads_itself) in [
        (StartMode::Auto, true),
        (StartMode::Spawn, true),
        (StartMode::Fork, false),
    ] {
        let mut options = app.pool(2);
        options.start = start;
        let shop = Running::start(options).await;
        let who = shop.json("who", json!({})).await;
        assert_eq!(who["pid"] == who["loaded"], loads_itself, "{start:?}");
        shop.has_workers(2).await;
        shop.python.shutdown().await;
    }
}

#[tokio::test]
async fn an_application_that_is_loaded_by_each_worker_says_why_it_cannot_be() {
    let app = App::new("raise RuntimeError('no')\n");
    let mut options = app.pool(2);
    options.start = StartMode::Spawn;
    let error = adapter_tools::python::PythonApp::start(options)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no"), "{error}");
    assert!(error.details().contains("line 1"), "{error:?}");
}

#[tokio::test]
async fn memory_is_bounded_by_worker_and_not_by_machine() {
    let app = App::pool_shop();
    let mut options = app.pool(1);
    options.worker_memory = Some(1 << 30);
    let shop = Running::start(options).await;
    let pid = shop.pid().await;
    let error = shop.call("allocate", json!({"gigabytes": 4})).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("MemoryError"), "{error}");
    assert_eq!(shop.pid().await, pid);
}

const HOLDING: &str = "
import asyncio, os, time

def mark():
    with open('inside', 'a') as inside:
        inside.write('%d\\n' % os.getpid())

@app.handler('hold')
def hold(file: str):
    mark()
    while not os.path.exists(file):
        time.sleep(0.01)
    return os.getpid()
";

/// One worker, and up to `most` while calls wait.
fn elastic(app: &App, most: usize) -> PythonOptions {
    let mut options = app.options();
    options.max_workers = Some(most);
    options.start_after = Duration::from_millis(50);
    options.idle = Duration::from_millis(300);
    options
}

#[tokio::test]
async fn further_workers_are_there_while_calls_wait_and_end_when_they_are_idle() {
    let app = App::new(&app_with(HOLDING));
    let shop = Running::start(elastic(&app, 3)).await;
    let first = shop.json("hold", json!({"file": "app.py"})).await;
    let hold = || shop.call("hold", json!({"file": "go"}));
    let killing = async {
        app.wait_for("inside", 4).await;
        let health = shop.python.health();
        assert_eq!((health.workers, health.max_workers), (1, 3));
        assert_eq!((health.workers_ready, health.calls_waiting), (3, 1));
        let inside = app.pids("inside");
        let further = inside.iter().find(|pid| **pid != first.as_i64().unwrap());
        kill(*further.unwrap());
        // Another takes its place, for the call that waited.
        app.wait_for("inside", 5).await;
        app.touch("go");
    };
    let (one, two, three, four, ()) = tokio::join!(hold(), hold(), hold(), hold(), killing);
    let outcomes = [one, two, three, four];
    let crashed = outcomes.iter().filter(|it| it.is_err()).count();
    assert_eq!(crashed, 1, "{outcomes:?}");
    let health = shop.health_is(|it| it.workers_ready == 1).await;
    assert_eq!(health.losses, 1, "one that is idle is not lost");
    let again = shop.json("hold", json!({"file": "go"})).await;
    assert_eq!(again, first, "what is in memory stays");
}

#[tokio::test]
async fn a_further_worker_is_started_when_a_handler_blocks_the_loop_of_the_only_one() {
    let blocking = "
@app.handler('block')
async def block(file: str):
    hold(file)
@app.handler('who')
async def who():
    return os.getpid()
";
    let app = App::new(&app_with(&format!("{HOLDING}{blocking}")));
    let shop = Running::start(elastic(&app, 2)).await;
    let block = shop.call("block", json!({"file": "go"}));
    let others = async {
        app.wait_for("inside", 1).await;
        let blocked = app.pids("inside")[0];
        tokio::time::sleep(Duration::from_millis(40)).await;
        let behind = shop.call("who", json!({}));
        let beside = async {
            shop.has_workers(2).await;
            assert_ne!(shop.json("who", json!({})).await, json!(blocked));
            app.touch("go");
        };
        let (behind, ()) = tokio::join!(behind, beside);
        behind.unwrap();
    };
    let (blocked, ()) = tokio::join!(block, others);
    blocked.unwrap();
}

#[tokio::test]
async fn an_import_that_hangs_holds_up_neither_calls_nor_the_next_file() {
    let version = |number: u32| {
        app_with(&format!(
            "@app.handler('version')\nasync def version():\n    return {number}\n"
        ))
    };
    let app = App::new(&version(1));
    let mut hangs = 0;
    for mode in [StartMode::Fork, StartMode::Spawn] {
        app.write(&version(1));
        let mut options = app.options();
        (options.watch, options.start) = (true, mode);
        let running = Running::start(options).await;
        let hanging =
            "import os, time\nprint(os.getpid(), file=open('hangs', 'a'))\ntime.sleep(600)\n";
        app.write(&format!("{}{hanging}", version(2)));
        hangs += 1;
        app.wait_for("hangs", hangs).await;
        assert_eq!(running.text("version", json!({})).await, "1");
        // Far sooner than an import may take.
        app.write(&version(3));
        running.health_is(|health| health.generation == 2).await;
        assert_eq!(running.text("version", json!({})).await, "3");
        assert!(running.python.health().failed_reload.is_none());
    }
}
