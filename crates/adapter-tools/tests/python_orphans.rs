//! No process of an application outlives what started it, however that ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{App, Running, eventually, has_ended, is_alive, kill, parent};
use serde_json::json;
use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// Variable with the directory of the application that `holder` is to hold.
const DIRECTORY: &str = "TEST_APPLICATION_DIRECTORY";

/// No test: a server that the tests below kill.
#[tokio::test]
#[ignore = "it is started by other tests"]
async fn holder() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let mut options = adapter_tools::python::PythonOptions::new("app.py", PathBuf::from(directory));
    options.workers = 3;
    let shop = Running::start(options).await;
    shop.has_workers(3).await;
    let _ = tokio::join!(
        shop.call("spin", json!({})),
        shop.call("children", json!({})),
        shop.call("sync_pid_after", json!({"file": "never"})),
    );
}

fn hold(app: &App) -> Child {
    holding(app).spawn().unwrap()
}

fn holding(app: &App) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["holder", "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, app.directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Waits until handlers are stuck and have children, and gives all processes that there are.
async fn family(app: &App) -> Vec<i64> {
    app.wait_for("spinning", 1).await;
    app.wait_for("inside", 2).await;
    app.wait_for("family", 3).await;
    let mut pids = app.pids("family");
    let launcher = parent(pids[0]);
    assert_eq!(parent(pids[2]), launcher, "it has adopted the daemon");
    pids.extend(app.pids("spinning"));
    pids.extend(app.pids("inside"));
    pids.push(launcher);
    for pid in &pids {
        assert!(is_alive(*pid));
    }
    pids
}

#[tokio::test]
async fn nothing_is_left_of_a_server_that_is_killed() {
    let app = App::pool_shop();
    let mut server = hold(&app);
    let pids = family(&app).await;
    kill(i64::from(server.id()));
    server.wait().unwrap();
    for pid in pids {
        has_ended(pid).await;
    }
}

/// A directory that a killed server cannot remove is removed by the next start; one that another
/// server uses stays.
#[tokio::test]
async fn the_directory_of_a_server_that_is_killed_goes_with_the_next_start() {
    let temporary = tempfile::tempdir().unwrap();
    let directories = || -> BTreeSet<PathBuf> {
        let entries = std::fs::read_dir(temporary.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let apps = [App::pool_shop(), App::pool_shop(), App::pool_shop()];
    let hold = |app| {
        holding(app)
            .env("TMPDIR", temporary.path())
            .spawn()
            .unwrap()
    };
    let mut running = hold(&apps[0]);
    family(&apps[0]).await;
    let used = directories();
    assert_eq!(used.len(), 1);
    let mut killed = hold(&apps[1]);
    family(&apps[1]).await;
    kill(i64::from(killed.id()));
    killed.wait().unwrap();
    let left: BTreeSet<_> = &directories() - &used;
    assert_eq!(left.len(), 1);
    let mut next = hold(&apps[2]);
    eventually("it is removed", || left.is_disjoint(&directories())).await;
    family(&apps[2]).await;
    assert!(used.is_subset(&directories()));
    assert_eq!(directories().len(), 2);
    for server in [&mut running, &mut next] {
        kill(i64::from(server.id()));
        server.wait().unwrap();
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_server_that_is_killed_while_an_import_hangs() {
    let app = App::new(
        "import os\nwith open('pid', 'a') as pid:\n    pid.write('%d\\n' % os.getpid())\n\
        sum(range(10**12))\n",
    );
    let mut server = hold(&app);
    app.wait_for("pid", 1).await;
    kill(i64::from(server.id()));
    server.wait().unwrap();
    has_ended(app.pids("pid")[0]).await;
}

#[tokio::test]
async fn nothing_is_left_of_an_application_that_is_shut_down_or_dropped() {
    for is_dropped in [false, true] {
        let app = App::pool_shop();
        let shop = Running::start(app.pool(3)).await;
        shop.has_workers(3).await;
        let calls = async {
            tokio::join!(
                shop.call("spin", json!({})),
                shop.call("children", json!({})),
                shop.call("sync_pid_after", json!({"file": "never"})),
            )
        };
        let pids = tokio::select! {
            _ = calls => panic!("they do not end"),
            pids = family(&app) => pids,
        };
        if is_dropped {
            drop(shop);
        } else {
            shop.python.shutdown().await;
            for pid in &pids {
                assert!(!is_alive(*pid), "{pid} is left");
            }
        }
        for pid in pids {
            has_ended(pid).await;
        }
    }
}

/// A child that a handler started in its own group ends with its worker, and not only with the
/// server.
#[tokio::test]
async fn children_in_the_group_of_a_worker_end_with_it() {
    let app = App::pool_shop();
    let mut options = app.pool(1);
    options.grace = std::time::Duration::from_millis(200);
    let shop = Running::start(options).await;
    tokio::select! {
        _ = shop.call("children", json!({})) => panic!("it does not end"),
        () = app.wait_for("inside", 1) => {}
    }
    let [worker, child] = app.pids("family")[..2] else {
        panic!("no family")
    };
    kill(worker);
    has_ended(child).await;
    assert_ne!(shop.pid().await, worker);
}
