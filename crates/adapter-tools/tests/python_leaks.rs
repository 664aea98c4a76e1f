//! Many lost workers leave nothing behind in the server. Alone in its process, whose descriptors
//! and children it counts.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{App, Running, eventually, kill};
use std::{fs, time::Duration};

/// More than any of what a worker takes could be missed among.
const LOSSES: usize = 50;

fn descriptors(process: &str) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// The children of a process, those included that nobody has waited for.
fn children(process: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let children = tasks.flatten().map(|task| {
        // A thread may have ended meanwhile.
        fs::read_to_string(task.path().join("children")).unwrap_or_default()
    });
    let children: Vec<_> = children.collect();
    let children = children.iter().flat_map(|text| text.split_whitespace());
    children.map(str::to_owned).collect()
}

fn resident_kilobytes(process: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let value = line.unwrap().split_whitespace().nth(1).unwrap();
    value.parse().unwrap()
}

#[tokio::test]
async fn workers_that_are_lost_again_and_again_leave_nothing_behind() {
    let app = App::pool_shop();
    let mut options = app.pool(2);
    options.min_backoff = Duration::from_millis(1);
    let shop = Running::start(options).await;
    shop.has_workers(2).await;
    let lose_one = async || {
        let last_loss = || shop.python.health().last_loss.map(|loss| loss.at);
        let before = last_loss();
        kill(shop.pid().await);
        eventually("it is missed", || last_loss() != before).await;
        shop.has_workers(2).await;
    };
    // What is needed once is needed by the first.
    for _ in 0..5 {
        lose_one().await;
    }
    let launcher = children("self").pop().unwrap();
    let count = || {
        let fds = (descriptors("self"), descriptors(&launcher));
        (fds, children("self").len(), children(&launcher).len())
    };
    let (before, kilobytes) = (
        count(),
        [resident_kilobytes("self"), resident_kilobytes(&launcher)],
    );
    assert_eq!((before.1, before.2), (1, 2), "a launcher and its workers");
    for _ in 0..LOSSES {
        lose_one().await;
    }
    eventually("all is as it was", || count() == before).await;
    for (process, before) in ["self", &launcher].into_iter().zip(kilobytes) {
        let grown = resident_kilobytes(process).saturating_sub(before);
        assert!(grown < 100 * LOSSES, "{process}: {grown} kB more");
    }
}
