//! Servers as they say of themselves, and as others know them.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use cluster::{Cluster, ClusterOptions, NodeSign};
use task_store::{Begun, Lease, TaskId, TaskLimits, TaskRecord, TaskState, TaskStore};
use testkit::Postgres;

fn sign(id: &str) -> NodeSign<'_> {
    NodeSign {
        id,
        name: "process 1 on here",
        version: "1.2.3",
        sessions: Some(4),
    }
}

#[tokio::test]
async fn a_server_is_known_by_its_last_sign_of_life_until_it_stops_or_is_forgotten() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit('/').next().unwrap();
    let node = Cluster::open(&url, ClusterOptions::default())
        .await
        .unwrap();
    for id in ["a", "b", "c"] {
        node.show_node(sign(id)).await.unwrap();
    }
    let created_us = 1_000_000;
    let record = TaskRecord {
        id: TaskId::random(),
        principal: "anna".to_owned(),
        capability: "tool/nap".to_owned(),
        protocol_version: "2026-07-28".to_owned(),
        created_us,
        updated_us: created_us,
        expires_us: i64::MAX.unsigned_abs(),
        sequence: 1,
        state: TaskState::Working,
        message: None,
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_us = u64::try_from(now.unwrap().as_micros()).unwrap();
    let begun = |owner: &str, lasts_us| Begun {
        lease: Lease {
            owner: owner.to_owned(),
            until_us: now_us + lasts_us,
        },
        call: None,
    };
    let tasks = node.tasks();
    let limits = TaskLimits::default();
    tasks
        .create(record.clone(), begun("a", 60_000_000), limits)
        .await
        .unwrap();
    let lapsed = TaskRecord {
        id: TaskId::random(),
        created_us: created_us + 1,
        state: TaskState::InputRequired {
            requests: "{}".to_owned(),
        },
        ..record.clone()
    };
    tasks
        .create(lapsed.clone(), begun("b", 0), limits)
        .await
        .unwrap();
    let over = TaskRecord {
        sequence: 2,
        state: TaskState::Completed {
            result: "{\"large\":1}".to_owned(),
            is_error: false,
        },
        ..record.clone()
    };

    postgres.sql_in(
        database,
        "UPDATE owlclaw_cluster.node SET seen_at = clock_timestamp() - interval '40 seconds' WHERE id = 'b'",
    );
    postgres.sql_in(
        database,
        "UPDATE owlclaw_cluster.node SET seen_at = clock_timestamp() - interval '25 hours' WHERE id = 'c'",
    );
    node.show_node(sign("a")).await.unwrap();
    let known = node.nodes().await.unwrap();
    let [a, b] = &known[..] else {
        panic!("what was not heard of for a day is forgotten: {known:?}");
    };
    assert_eq!(
        (&*a.id, a.tasks, a.sessions, a.has_stopped),
        ("a", 1, Some(4), false)
    );
    assert_eq!((&*a.name, &*a.version), ("process 1 on here", "1.2.3"));
    assert!(a.silent_us < 20_000_000, "{a:?}");
    assert_eq!((&*b.id, b.tasks), ("b", 1));
    assert!(
        40_000_000 <= b.silent_us && b.silent_us < 70_000_000,
        "{b:?}"
    );

    // What is told of tasks is who has them, how long that lasts, and not what came of them.
    let seen = tasks.oversee(0, None, 10).await.unwrap();
    let shown: Vec<_> = seen
        .iter()
        .map(|it| {
            (
                it.record.id.clone(),
                it.run.as_ref().map(|it| (&*it.owner, it.left_us == 0)),
            )
        })
        .collect();
    let expected = [
        (lapsed.id.clone(), Some(("b", true))),
        (record.id.clone(), Some(("a", false))),
    ];
    assert_eq!(shown, expected);
    assert_eq!(
        tasks
            .oversee(0, Some((lapsed.created_us, lapsed.id)), 10)
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(tasks.update(over).await.unwrap());
    let seen = tasks.oversee(0, None, 10).await.unwrap();
    assert_eq!(seen[1].run, None);
    assert!(
        matches!(&seen[1].record.state, TaskState::Completed { result, .. } if result.is_empty())
    );

    // A server that stops has no life after that, whatever is still on its way.
    node.end_node("a").await.unwrap();
    node.show_node(sign("a")).await.unwrap();
    let known = node.nodes().await.unwrap();
    let a = known.iter().find(|it| it.id == "a").unwrap();
    assert_eq!((a.has_stopped, a.sessions, a.tasks), (true, None, 0));
}
