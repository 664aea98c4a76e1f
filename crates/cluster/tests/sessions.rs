//! Sessions that several servers go on with.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use cluster::{Cluster, ClusterOptions, Difference, News};
use std::time::Duration;
use testkit::{GENEROUS, Postgres};
use tokio::{
    sync::broadcast,
    time::{sleep, timeout},
};

const IDLE: Duration = Duration::from_secs(60);

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|&it| it.to_owned()).collect()
}

fn difference(before: &[&str], now: &[&str]) -> Difference {
    Difference::between(&names(before), &names(now))
}

async fn until(news: &mut broadcast::Receiver<News>, expected: impl Fn(&News) -> bool) -> News {
    let told = async {
        loop {
            let told = news.recv().await.unwrap();
            if expected(&told) {
                return told;
            }
        }
    };
    timeout(GENEROUS, told).await.unwrap()
}

#[tokio::test]
async fn a_session_is_taken_up_by_its_principal_alone_and_does_not_come_back_after_its_end() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let here = Cluster::open(&url, ClusterOptions::default())
        .await
        .unwrap();
    let there = Cluster::open(&url, ClusterOptions::default())
        .await
        .unwrap();
    let mut heard = there.news();
    until(&mut heard, |it| *it == News::Missed).await;
    let none = Difference::default();
    let keep = async |node: &Cluster, state: &str, resources: &Difference| {
        node.keep_session("s", ("anna", state), resources, &none)
            .await
            .unwrap();
    };
    keep(&here, "new", &difference(&[], &["a", "b"])).await;
    until(&mut heard, |it| *it == News::Session("s".into())).await;
    assert_eq!(
        there.take_session_up("s", "mallory", IDLE).await.unwrap(),
        None
    );
    assert_eq!(
        there.take_session_up("t", "anna", IDLE).await.unwrap(),
        None
    );
    let mut lives = 0;
    for _ in 1..=2 {
        let taken = there
            .take_session_up("s", "anna", IDLE)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(taken.state.as_str(), "new");
        assert!(lives < taken.lives, "no two lives have one number");
        lives = taken.lives;
    }
    // Of two that change it at once, neither undoes what the other has done.
    keep(&here, "newer", &difference(&["a", "b"], &["a", "b", "c"])).await;
    keep(&there, "newest", &difference(&["a", "b"], &["b"])).await;
    let mut now = here.session("s").await.unwrap().unwrap();
    now.resources.sort();
    assert_eq!(
        (now.state.as_str(), now.resources),
        ("newest", names(&["b", "c"]))
    );
    // Another principal cannot change it.
    let stolen = here.keep_session("s", ("mallory", "stolen"), &none, &none);
    stolen.await.unwrap();
    assert_eq!(here.session("s").await.unwrap().unwrap().state, "newest");

    there.end_session("s").await.unwrap();
    keep(&here, "late", &difference(&[], &["a"])).await;
    assert_eq!(here.session("s").await.unwrap(), None);
    assert_eq!(
        there.take_session_up("s", "anna", IDLE).await.unwrap(),
        None
    );
    let database = url.rsplit('/').next().unwrap();
    let left = "SELECT state || array_length(resources, 1)::text FROM owlclaw_cluster.session";
    assert_eq!(
        postgres.sql_in(database, left),
        "",
        "nothing is left of what it said"
    );
}

#[tokio::test]
async fn a_session_that_nobody_uses_is_over_and_one_that_is_touched_is_not() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let options = ClusterOptions {
        lease: Duration::from_secs(1),
        ..ClusterOptions::default()
    };
    let node = Cluster::open(&url, options).await.unwrap();
    let none = Difference::default();
    for id in ["used", "unused"] {
        node.keep_session(id, ("anna", "{}"), &none, &none)
            .await
            .unwrap();
    }
    let database = url.rsplit('/').next().unwrap();
    let pass = "UPDATE owlclaw_cluster.session SET last_used = last_used - interval '1 hour'";
    postgres.sql_in(database, pass);
    node.touch_sessions(&names(&["used"]), &[30_000])
        .await
        .unwrap();
    assert_eq!(
        node.take_session_up("unused", "anna", IDLE).await.unwrap(),
        None
    );
    // Right after a start others may still write what they did while the database was out of reach.
    node.sweep_sessions(IDLE).await.unwrap();
    assert_ne!(node.session("unused").await.unwrap(), None);
    let swept = async {
        while node.session("unused").await.unwrap().is_some() {
            sleep(Duration::from_millis(100)).await;
            node.sweep_sessions(IDLE).await.unwrap();
        }
    };
    timeout(GENEROUS, swept).await.unwrap();
    let taken = node.take_session_up("used", "anna", IDLE).await.unwrap();
    assert!(taken.is_some());
}

#[tokio::test]
async fn what_a_client_says_to_one_server_gets_to_the_others_for_a_moment() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let here = Cluster::open(&url, ClusterOptions::default())
        .await
        .unwrap();
    let there = Cluster::open(&url, ClusterOptions::default())
        .await
        .unwrap();
    let mut heard = there.news();
    until(&mut heard, |it| *it == News::Missed).await;
    // Far more than a notification can hold.
    let body = vec![b'x'; 100_000];
    here.pass_on("s", &body).await.unwrap();
    let told = until(&mut heard, |it| matches!(it, News::Said(..))).await;
    let News::Said(number, session) = told else {
        unreachable!()
    };
    assert_eq!(&*session, "s");
    let passed_on = there.passed_on(number).await.unwrap();
    assert!(passed_on.is_some_and(|it| it == body));
    // Who has missed the news reads all of it.
    let sessions = ["s".into(), "other".into()];
    let all = there.all_passed_on(&sessions, 0).await.unwrap();
    assert_eq!(all, [(number, "s".into())]);
    let all = there.all_passed_on(&sessions, number).await.unwrap();
    assert_eq!(all, []);
    let all = there.all_passed_on(&sessions[1..], 0).await.unwrap();
    assert_eq!(all, []);
    let database = url.rsplit('/').next().unwrap();
    let pass =
        "UPDATE owlclaw_cluster.session_message SET sent_at = sent_at - interval '11 minutes'";
    postgres.sql_in(database, pass);
    here.sweep_sessions(IDLE).await.unwrap();
    assert!(there.passed_on(number).await.unwrap().is_none());
}
