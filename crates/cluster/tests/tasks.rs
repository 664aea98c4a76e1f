//! Tasks of servers that share them: leases by the database's clock, news, answers on their way.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use cluster::{Cluster, ClusterOptions, News, OpenError};
use futures_util::StreamExt;
use std::time::Duration;
use task_store::{
    Begun, Lease, SharedTasks, TaskId, TaskLimits, TaskNews, TaskRecord, TaskState, TaskStore,
};
use testkit::{GENEROUS, Postgres};
use tokio::time::{sleep, timeout};

/// As long as a test can wait for it to end, and long enough for a busy machine to renew it.
const LEASE: Duration = Duration::from_millis(600);

async fn node(url: &str) -> Cluster {
    let options = ClusterOptions {
        lease: LEASE,
        ..ClusterOptions::default()
    };
    Cluster::open(url, options).await.unwrap()
}

fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_micros() as u64
}

fn task() -> TaskRecord {
    TaskRecord {
        id: TaskId::random(),
        principal: "alice".to_owned(),
        capability: "tool/report".to_owned(),
        protocol_version: "2026-07-28".to_owned(),
        created_us: now_us(),
        updated_us: now_us(),
        expires_us: now_us() + 3_600_000_000,
        sequence: 1,
        state: TaskState::Working,
        message: None,
    }
}

fn lease(owner: &str, time: Duration) -> Lease {
    Lease {
        owner: owner.to_owned(),
        until_us: now_us() + time.as_micros() as u64,
    }
}

fn begun(owner: &str) -> Begun {
    Begun {
        lease: lease(owner, LEASE),
        call: None,
    }
}

fn next(task: &TaskRecord, state: TaskState) -> TaskRecord {
    TaskRecord {
        sequence: task.sequence + 1,
        state,
        ..task.clone()
    }
}

#[tokio::test]
async fn a_lease_ends_by_the_databases_clock_and_is_judged_only_by_who_could_have_renewed_its_own()
{
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let first = node(&url).await.tasks();
    let task = task();
    first
        .create(task.clone(), begun("a"), TaskLimits::default())
        .await
        .unwrap();
    // The clock of whoever asks does not matter.
    assert_eq!(first.lapsed(u64::MAX).await.unwrap(), []);
    let again = next(&task, TaskState::Working);
    let early = first
        .claim(again.clone(), lease("b", LEASE), u64::MAX)
        .await;
    assert_eq!(early.unwrap(), None);
    sleep(LEASE + LEASE / 4).await;
    // One that has only just come cannot say whether the database was away meanwhile.
    let newcomer = node(&url).await.tasks();
    assert_eq!(newcomer.lapsed(0).await.unwrap(), []);
    assert_eq!(first.lapsed(0).await.unwrap().len(), 1);
    let claimed = first.claim(again.clone(), lease("b", LEASE), 0).await;
    assert_eq!(claimed.unwrap().unwrap().attempt, 2);
    // The owner before comes too late, whatever it has to say.
    let done = TaskState::Completed {
        result: "{}".to_owned(),
        is_error: false,
    };
    assert!(!first.update(next(&task, done.clone())).await.unwrap());
    assert!(!first.show(task.clone()).await.unwrap());
    assert_eq!(first.renew(lease("a", LEASE)).await.unwrap(), []);
    // What is given up can be had at once, by anybody.
    first
        .renew(Lease {
            owner: "b".to_owned(),
            until_us: 0,
        })
        .await
        .unwrap();
    assert_eq!(newcomer.lapsed(0).await.unwrap().len(), 1);
    assert!(first.update(next(&again, done)).await.unwrap());
    assert_eq!(newcomer.lapsed(0).await.unwrap(), []);
}

#[tokio::test]
async fn others_see_hear_and_answer_what_a_task_asks() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let here = node(&url).await.tasks();
    let mut heard_here = here.news();
    let there = node(&url).await.tasks();
    let mut heard_there = there.news();
    // Until both listen nothing can be heard.
    for heard in [&mut heard_here, &mut heard_there] {
        let told = timeout(GENEROUS, heard.next()).await.unwrap();
        assert_eq!(told, Some(TaskNews::Missed));
    }
    let task = task();
    here.create(task.clone(), begun("a"), TaskLimits::default())
        .await
        .unwrap();
    let refused = there
        .hand_over(task.id.clone(), "early".to_owned(), 10)
        .await;
    assert!(!refused.unwrap(), "nothing is asked");
    let asks = TaskRecord {
        state: TaskState::InputRequired {
            requests: r#"{"a":{}}"#.to_owned(),
        },
        message: Some("which?".to_owned()),
        ..task.clone()
    };
    assert!(here.show(asks.clone()).await.unwrap());
    let told = timeout(GENEROUS, heard_there.next()).await.unwrap();
    assert_eq!(told, Some(TaskNews::Changed(task.id.clone())));
    assert_eq!(there.get(task.id.clone()).await.unwrap(), Some(asks));
    for (said, taken) in [("first", true), ("more than that", false), ("next", true)] {
        let handed = there.hand_over(task.id.clone(), said.to_owned(), 9).await;
        assert_eq!(handed.unwrap(), taken, "{said}");
    }
    let told = timeout(GENEROUS, heard_here.next()).await.unwrap();
    assert_eq!(told, Some(TaskNews::Answered(task.id.clone())));
    assert_eq!(there.take_answers("b".to_owned()).await.unwrap(), []);
    let taken = here.take_answers("a".to_owned()).await.unwrap();
    let said: Vec<_> = taken.iter().map(|(_, said)| said.as_str()).collect();
    assert_eq!(said, ["first", "next"]);
    assert_eq!(here.take_answers("a".to_owned()).await.unwrap(), []);
}

#[tokio::test]
async fn a_database_that_comes_back_is_used_again_and_news_are_known_to_have_been_missed() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    let here = node(&postgres.url()).await;
    let mut news = here.news();
    let told = timeout(GENEROUS, news.recv()).await.unwrap();
    assert_eq!(told, Ok(News::Missed));
    let tasks = here.tasks();
    let task = task();
    tasks
        .create(task.clone(), begun("a"), TaskLimits::default())
        .await
        .unwrap();
    postgres.kill();
    tasks.get(task.id.clone()).await.unwrap_err();
    postgres.restart();
    assert_eq!(
        timeout(GENEROUS, news.recv()).await.unwrap(),
        Ok(News::Missed)
    );
    assert_eq!(
        tasks.get(task.id.clone()).await.unwrap(),
        Some(task.clone())
    );
    // Its lease is over, and its owner had no way to renew it.
    sleep(LEASE / 8).await;
    assert_eq!(tasks.renew(lease("a", LEASE)).await.unwrap(), [task.id]);
}

#[tokio::test]
async fn what_a_newer_program_made_is_left_alone() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    drop(node(&url).await);
    let database = url.rsplit('/').next().unwrap();
    let newer = "INSERT INTO owlclaw_cluster.migration (version) VALUES (99)";
    postgres.sql_in(database, newer);
    let refused = Cluster::open(&url, ClusterOptions::default()).await;
    assert!(
        matches!(refused, Err(OpenError::Newer { found: 99, .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn keys_are_the_same_everywhere_and_a_new_one_seals_once_everybody_has_it() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let (here, there) = tokio::join!(node(&url), node(&url));
    let (first, other) = tokio::join!(here.sealing_keys([1; 32]), there.sealing_keys([2; 32]));
    let (first, other) = (first.unwrap(), other.unwrap());
    assert_eq!(first, other);
    assert_eq!(first.len(), 1, "one of two that come at once");
    let database = url.rsplit('/').next().unwrap();
    let pass = |time: &str| {
        let sql = "UPDATE owlclaw_cluster.sealing_key SET made_at = made_at - interval";
        postgres.sql_in(database, &format!("{sql} '{time}'"));
    };
    let [old] = first[..] else { panic!() };
    pass("25 hours");
    let new = [3; 32];
    assert_eq!(here.sealing_keys(new).await.unwrap(), [old, new]);
    assert_eq!(there.sealing_keys([4; 32]).await.unwrap(), [old, new]);
    pass("3 hours");
    assert_eq!(there.sealing_keys([4; 32]).await.unwrap(), [new, old]);
    pass("21 hours");
    assert_eq!(there.sealing_keys([5; 32]).await.unwrap(), [new, [5; 32]]);
}
