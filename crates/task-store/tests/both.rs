//! Claims that hold for every store: each is tried on all of them.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{
    LIMITS, begun, block_on, completed, lease, new_sqlite, next, not_over, on_postgres, states,
    task,
};
use futures_util::future::join_all;
use std::{collections::HashSet, error::Error as _, thread};
use task_store::{
    Begun, CreateError, LimitKind, MAX_LISTED, MAX_RECORD_BYTES, MemoryTaskStore, TaskId,
    TaskLimits, TaskRecord, TaskState, TaskStore,
};

macro_rules! on_all_stores {
    ($($claim:ident)*) => {
        mod memory {
            $(#[test]
            fn $claim() {
                super::block_on(super::$claim(&super::MemoryTaskStore::new()));
            })*
        }
        mod sqlite {
            $(#[test]
            fn $claim() {
                let (store, _directory) = super::new_sqlite();
                super::block_on(super::$claim(&store));
            })*
        }
        mod postgres {
            $(#[test]
            fn $claim() {
                super::on_postgres(async |store| super::$claim(store).await);
            })*
        }
    };
}

on_all_stores! {
    a_created_task_is_found_as_it_was
    creating_the_same_again_changes_nothing
    a_name_has_one_task
    only_a_storable_first_record_is_created
    limits_hold_while_many_create_at_once
    the_limit_of_all_counts_everybody
    what_has_expired_does_not_count
    a_step_follows_the_one_before_it
    nothing_follows_a_terminal_state
    one_of_those_who_make_the_same_step_succeeds
    updating_the_same_again_changes_nothing
    what_never_changes_cannot_be_changed
    what_cannot_be_stored_is_not_updated
    pages_are_complete_and_in_order
    a_list_is_of_one_principal_and_revision
    a_list_has_no_texts_of_states
    a_page_has_a_bound
    what_is_removed_is_gone
    only_what_has_expired_is_removed
    what_is_unfinished_is_told_oldest_first
    a_task_is_not_taken_from_whoever_has_it
    one_of_those_who_claim_a_task_gets_it
    whoever_lost_a_task_comes_too_late
    a_lease_is_renewed_for_all_tasks_of_an_owner_and_for_no_other
    what_is_over_cannot_be_begun_again
}

async fn a_created_task_is_found_as_it_was(store: &dyn TaskStore) {
    for (state, message) in states()
        .into_iter()
        .zip([None, Some(""), Some("half of it\0, 会")].iter().cycle())
    {
        let mut task = task(7);
        (task.updated_us, task.expires_us) = (8, i64::MAX as u64);
        (task.state, task.message) = (state, message.map(str::to_owned));
        store.create(task.clone(), begun(), LIMITS).await.unwrap();
        assert_eq!(store.get(task.id.clone()).await.unwrap(), Some(task));
    }
    assert_eq!(store.get(TaskId::random()).await.unwrap(), None);
}

async fn creating_the_same_again_changes_nothing(store: &dyn TaskStore) {
    let one = TaskLimits {
        max_total: 1,
        max_per_principal: 1,
    };
    let task = task(7);
    store.create(task.clone(), begun(), one).await.unwrap();
    store.create(task.clone(), begun(), one).await.unwrap();
    assert_eq!(not_over(store).await, [task]);
}

async fn a_name_has_one_task(store: &dyn TaskStore) {
    let task = task(7);
    store.create(task.clone(), begun(), LIMITS).await.unwrap();
    let mut other = task.clone();
    other.principal = "bob".to_owned();
    assert_eq!(
        refusal(store, other).await,
        "there is another task of this name"
    );
    let later = next(&task, completed());
    assert!(store.update(later.clone()).await.unwrap());
    refusal(store, task.clone()).await;
    assert_eq!(store.get(task.id).await.unwrap(), Some(later));
}

async fn only_a_storable_first_record_is_created(store: &dyn TaskStore) {
    for sequence in [0, 2] {
        let wrong = TaskRecord {
            sequence,
            ..task(7)
        };
        assert_eq!(refusal(store, wrong).await, "a task begins with sequence 1");
    }
    let too_late = 1 << 63;
    for wrong in [
        task(too_late),
        TaskRecord {
            updated_us: too_late,
            ..task(7)
        },
        TaskRecord {
            expires_us: u64::MAX,
            ..task(7)
        },
    ] {
        assert!(refusal(store, wrong).await.contains("2^63"));
    }
    let large = TaskRecord {
        message: Some("x".repeat(MAX_RECORD_BYTES)),
        ..task(7)
    };
    assert!(refusal(store, large).await.contains("bytes"));
    assert_eq!(not_over(store).await, []);
}

/// Reason why a task is not created, apart from limits.
async fn refusal(store: &dyn TaskStore, task: TaskRecord) -> String {
    match store.create(task, begun(), LIMITS).await.unwrap_err() {
        CreateError::Store(error) => error.source().unwrap().to_string(),
        other => panic!("{other:?}"),
    }
}

async fn limits_hold_while_many_create_at_once(store: &dyn TaskStore) {
    const THREADS: usize = 8;
    let limits = TaskLimits {
        max_total: 23,
        max_per_principal: 9,
    };
    // Each thread tries more than there may be, of two principals.
    let created: usize = thread::scope(|scope| {
        let create = |principal: &'static str| async move {
            let task = TaskRecord {
                principal: principal.to_owned(),
                ..task(7)
            };
            match store.create(task, begun(), limits).await {
                Ok(()) => true,
                Err(CreateError::TooMany { max: 9, what }) => {
                    assert_eq!(what, LimitKind::PerPrincipal);
                    false
                }
                Err(other) => panic!("{other:?}"),
            }
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(move || {
                    let all = (0..20).map(|number| create(["alice", "bob"][number % 2]));
                    let created = block_on(join_all(all));
                    created.into_iter().filter(|created| *created).count()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(created, 18);
    let unfinished = not_over(store).await;
    let of_alice = unfinished.iter().filter(|task| task.principal == "alice");
    assert_eq!((unfinished.len(), of_alice.count()), (18, 9));
}

async fn the_limit_of_all_counts_everybody(store: &dyn TaskStore) {
    let limits = TaskLimits {
        max_total: 3,
        max_per_principal: 2,
    };
    for (principal, expected) in [
        ("alice", None),
        ("alice", None),
        ("alice", Some((2, LimitKind::PerPrincipal))),
        ("bob", None),
        ("carol", Some((3, LimitKind::Total))),
    ] {
        let task = TaskRecord {
            principal: principal.to_owned(),
            ..task(7)
        };
        let refused = match store.create(task, begun(), limits).await {
            Ok(()) => None,
            Err(CreateError::TooMany { max, what }) => Some((max, what)),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(refused, expected);
    }
}

async fn what_has_expired_does_not_count(store: &dyn TaskStore) {
    let first = task(0);
    let cases = [
        TaskLimits {
            max_total: 1,
            max_per_principal: 9,
        },
        TaskLimits {
            max_total: 9,
            max_per_principal: 1,
        },
    ];
    store
        .create(first.clone(), begun(), cases[0])
        .await
        .unwrap();
    // A terminal state does not make it expire.
    let cancelled = next(&first, TaskState::Cancelled);
    assert!(store.update(cancelled).await.unwrap());
    for limits in cases {
        store
            .create(task(first.expires_us - 1), begun(), limits)
            .await
            .unwrap_err();
    }
    // Each begins when the one before it expires.
    store
        .create(task(first.expires_us), begun(), cases[0])
        .await
        .unwrap();
    store.create(task(2_000), begun(), cases[1]).await.unwrap();
}

async fn a_step_follows_the_one_before_it(store: &dyn TaskStore) {
    let first = task(7);
    assert!(!store.update(next(&first, completed())).await.unwrap());
    store.create(first.clone(), begun(), LIMITS).await.unwrap();
    for sequence in [0, 1, 3, i64::MAX as u64] {
        let wrong = TaskRecord {
            sequence,
            ..next(&first, completed())
        };
        assert!(!store.update(wrong).await.unwrap(), "{sequence}");
    }
    let mut known = first;
    for (state, message) in [
        (states().remove(1), Some("a question")),
        (TaskState::Working, None),
        (TaskState::Working, Some("half of it")),
        (states().remove(2), Some("done")),
    ] {
        known = TaskRecord {
            expires_us: known.expires_us + 5,
            message: message.map(str::to_owned),
            ..next(&known, state)
        };
        assert!(store.update(known.clone()).await.unwrap());
        let stored = store.get(known.id.clone()).await.unwrap();
        assert_eq!(stored, Some(known.clone()));
    }
}

async fn nothing_follows_a_terminal_state(store: &dyn TaskStore) {
    for state in states().into_iter().filter(TaskState::is_terminal) {
        let first = task(7);
        store.create(first.clone(), begun(), LIMITS).await.unwrap();
        let last = next(&first, state);
        assert!(store.update(last.clone()).await.unwrap());
        for state in states() {
            assert!(!store.update(next(&last, state)).await.unwrap());
        }
        assert_eq!(store.get(first.id).await.unwrap(), Some(last));
    }
}

async fn one_of_those_who_make_the_same_step_succeeds(store: &dyn TaskStore) {
    let first = task(7);
    store.create(first.clone(), begun(), LIMITS).await.unwrap();
    let steps = (0..20).map(|number| {
        let message = Some(number.to_string());
        TaskRecord {
            message,
            ..next(&first, completed())
        }
    });
    let steps: Vec<_> = steps.collect();
    let succeeded = join_all(steps.iter().map(|step| store.update(step.clone()))).await;
    let mut winners = (0..).zip(succeeded).filter(|(_, it)| *it.as_ref().unwrap());
    let (winner, _) = winners.next().unwrap();
    assert!(winners.next().is_none(), "two have made the same step");
    let stored = store.get(first.id).await.unwrap();
    assert_eq!(stored.as_ref(), steps.get::<usize>(winner));
}

async fn updating_the_same_again_changes_nothing(store: &dyn TaskStore) {
    for state in states() {
        let first = task(7);
        store.create(first.clone(), begun(), LIMITS).await.unwrap();
        let step = next(&first, state);
        for _ in 0..3 {
            assert!(store.update(step.clone()).await.unwrap());
        }
        assert_eq!(store.get(first.id).await.unwrap(), Some(step));
    }
}

async fn what_never_changes_cannot_be_changed(store: &dyn TaskStore) {
    let first = task(7);
    store.create(first.clone(), begun(), LIMITS).await.unwrap();
    let step = next(&first, completed());
    for other in [
        TaskRecord {
            principal: "bob".to_owned(),
            ..step.clone()
        },
        TaskRecord {
            capability: "tool/x".to_owned(),
            ..step.clone()
        },
        TaskRecord {
            protocol_version: "2025-11-25".to_owned(),
            ..step.clone()
        },
        TaskRecord {
            created_us: 8,
            ..step.clone()
        },
    ] {
        assert!(!store.update(other.clone()).await.unwrap(), "{other:?}");
    }
    assert_eq!(store.get(first.id.clone()).await.unwrap(), Some(first));
    assert!(store.update(step).await.unwrap());
}

async fn what_cannot_be_stored_is_not_updated(store: &dyn TaskStore) {
    let first = task(7);
    store.create(first.clone(), begun(), LIMITS).await.unwrap();
    let late = TaskRecord {
        expires_us: u64::MAX,
        ..next(&first, completed())
    };
    let error = store.update(late).await.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("2^63"));
    let result = "x".repeat(MAX_RECORD_BYTES);
    let is_error = false;
    let large = next(&first, TaskState::Completed { result, is_error });
    let error = store.update(large).await.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("bytes"));
    assert_eq!(store.get(first.id.clone()).await.unwrap(), Some(first));
}

async fn pages_are_complete_and_in_order(store: &dyn TaskStore) {
    let mut tasks: Vec<_> = [5, 5, 5, 9, 1, 5, 5].into_iter().map(task).collect();
    for task in &tasks {
        store.create(task.clone(), begun(), LIMITS).await.unwrap();
    }
    tasks.sort_by_key(|task| std::cmp::Reverse((task.created_us, task.id.clone())));
    for most in 1..=8 {
        let (mut listed, mut after) = (Vec::new(), None);
        while listed.len() <= tasks.len() {
            let page = list(store, "alice", after, most).await;
            assert!(page.len() <= most);
            let Some(last) = page.last() else { break };
            after = Some((last.created_us, last.id.clone()));
            listed.extend(page);
        }
        assert_eq!(listed, tasks, "by {most}");
    }
    // One that comes or goes between pages moves none of the others.
    let middle = (tasks[3].created_us, tasks[3].id.clone());
    store.create(task(6), begun(), LIMITS).await.unwrap();
    store.remove(middle.1.clone()).await.unwrap();
    assert_eq!(list(store, "alice", Some(middle), 9).await, tasks[4..]);
    // Places where no task is.
    let late = (u64::MAX, TaskId::random());
    assert_eq!(list(store, "alice", Some(late), 9).await.len(), 7);
    let early = (0, TaskId::random());
    assert_eq!(list(store, "alice", Some(early), 9).await, []);
    let last = TaskRecord {
        expires_us: i64::MAX as u64,
        created_us: i64::MAX as u64,
        ..task(7)
    };
    store.create(last.clone(), begun(), LIMITS).await.unwrap();
    let later = (1 << 63, "A".repeat(43).parse().unwrap());
    assert_eq!(list(store, "alice", Some(later), 1).await, [last]);
}

async fn list(
    store: &dyn TaskStore,
    principal: &str,
    after: Option<(u64, TaskId)>,
    most: usize,
) -> Vec<TaskRecord> {
    store
        .list(principal.to_owned(), "2026-07-28".to_owned(), after, most)
        .await
        .unwrap()
}

async fn a_list_is_of_one_principal_and_revision(store: &dyn TaskStore) {
    let mine = task(7);
    let of_bob = TaskRecord {
        principal: "bob".to_owned(),
        ..task(7)
    };
    let of_old = TaskRecord {
        protocol_version: "2025-11-25".to_owned(),
        ..task(7)
    };
    for task in [&mine, &of_bob, &of_old] {
        store.create(task.clone(), begun(), LIMITS).await.unwrap();
    }
    assert_eq!(list(store, "alice", None, 9).await, [mine]);
    assert_eq!(list(store, "bob", None, 9).await, [of_bob]);
    assert_eq!(list(store, "Alice", None, 9).await, []);
    assert_eq!(list(store, "%", None, 9).await, []);
}

async fn a_list_has_no_texts_of_states(store: &dyn TaskStore) {
    for state in states() {
        let task = TaskRecord {
            state: state.clone(),
            message: Some("a message".to_owned()),
            ..task(7)
        };
        store.create(task.clone(), begun(), LIMITS).await.unwrap();
        let mut listed = list(store, "alice", None, 9).await.remove(0);
        let expected = match state {
            TaskState::InputRequired { .. } => TaskState::InputRequired {
                requests: String::new(),
            },
            TaskState::Completed { is_error, .. } => TaskState::Completed {
                result: String::new(),
                is_error,
            },
            TaskState::Failed { .. } => TaskState::Failed {
                error: String::new(),
            },
            without => without,
        };
        assert_eq!(listed.state, expected);
        listed.state = task.state.clone();
        assert_eq!(listed, task);
        store.remove(task.id).await.unwrap();
    }
}

async fn a_page_has_a_bound(store: &dyn TaskStore) {
    let tasks = (0..MAX_LISTED as u64 + 1).map(task);
    for created in join_all(tasks.map(|task| store.create(task, begun(), LIMITS))).await {
        created.unwrap();
    }
    assert_eq!(
        list(store, "alice", None, usize::MAX).await.len(),
        MAX_LISTED
    );
    assert_eq!(list(store, "alice", None, 0).await, []);
}

async fn what_is_removed_is_gone(store: &dyn TaskStore) {
    let (first, second) = (task(7), task(7));
    for task in [&first, &second] {
        store.create(task.clone(), begun(), LIMITS).await.unwrap();
    }
    for _ in 0..2 {
        store.remove(first.id.clone()).await.unwrap();
        assert_eq!(store.get(first.id.clone()).await.unwrap(), None);
    }
    assert!(!store.update(next(&first, completed())).await.unwrap());
    assert_eq!(list(store, "alice", None, 9).await, [second]);
}

async fn only_what_has_expired_is_removed(store: &dyn TaskStore) {
    // Enough for more than one go.
    let tasks: Vec<_> = (0..300)
        .map(|number| TaskRecord {
            state: states().remove(number % 6),
            expires_us: number as u64,
            ..task(7)
        })
        .collect();
    for created in join_all(
        tasks
            .iter()
            .map(|task| store.create(task.clone(), begun(), LIMITS)),
    )
    .await
    {
        created.unwrap();
    }
    assert_eq!(store.remove_expired(249).await.unwrap(), 250);
    assert_eq!(store.remove_expired(249).await.unwrap(), 0);
    for task in &tasks {
        let is_kept = store.get(task.id.clone()).await.unwrap().is_some();
        assert_eq!(is_kept, 249 < task.expires_us);
    }
    assert_eq!(store.remove_expired(u64::MAX).await.unwrap(), 50);
}

async fn what_is_unfinished_is_told_oldest_first(store: &dyn TaskStore) {
    let mut tasks = Vec::new();
    for created_us in [5, 3, 3, 9] {
        for state in states() {
            let task = TaskRecord {
                state,
                ..task(created_us)
            };
            store.create(task.clone(), begun(), LIMITS).await.unwrap();
            tasks.push(task);
        }
    }
    tasks.retain(|task| matches!(task.state.name(), "working" | "input_required"));
    tasks.sort_by_key(|task| (task.created_us, task.id.clone()));
    assert_eq!(tasks.len(), 8);
    assert_eq!(not_over(store).await, tasks);
}

#[test]
fn names_of_states_differ_and_tell_the_terminal_ones() {
    let terminal: Vec<_> = states().iter().map(TaskState::is_terminal).collect();
    assert_eq!(terminal, [false, false, true, true, true, true]);
    let names: HashSet<_> = states().iter().map(TaskState::name).collect();
    assert_eq!(names.len(), 5);
}

/// A task that `owner` has until 100.
async fn owned(store: &dyn TaskStore, owner: &str) -> TaskRecord {
    let with = Begun {
        lease: lease(owner, 100),
        call: Some("what it was".to_owned()),
    };
    let first = task(7);
    store.create(first.clone(), with, LIMITS).await.unwrap();
    first
}

async fn a_task_is_not_taken_from_whoever_has_it(store: &dyn TaskStore) {
    let first = owned(store, "a").await;
    let again = next(&first, TaskState::Working);
    assert_eq!(store.lapsed(99).await.unwrap(), []);
    let claimed = store.claim(again.clone(), lease("b", 200), 99).await;
    assert_eq!(claimed.unwrap(), None);
    let lapsed = store.lapsed(100).await.unwrap();
    assert_eq!((&lapsed[0].record, lapsed[0].attempt), (&first, 1));
    for _ in 0..2 {
        // A second time, as after an error, it is the same and no attempt more.
        let claimed = store.claim(again.clone(), lease("b", 200), 100).await;
        let claimed = claimed.unwrap().expect("nobody has it");
        assert_eq!(claimed.attempt, 2);
        assert_eq!(claimed.call.as_deref(), Some("what it was"));
    }
    let claimed = store.claim(again.clone(), lease("c", 200), 100).await;
    assert_eq!(claimed.unwrap(), None);
    assert_eq!(store.get(first.id).await.unwrap(), Some(again));
    assert_eq!(store.lapsed(199).await.unwrap(), []);
}

async fn one_of_those_who_claim_a_task_gets_it(store: &dyn TaskStore) {
    let first = owned(store, "a").await;
    let mut latest = first;
    for round in 1..=3 {
        let now_us = 100 * round;
        let again = next(&latest, TaskState::Working);
        let owners: Vec<_> = (0..16).map(|number| format!("{round}.{number}")).collect();
        let claims = owners
            .iter()
            .map(|owner| store.claim(again.clone(), lease(owner, now_us + 100), now_us));
        let claims = join_all(claims).await;
        let taken: Vec<_> = claims.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(taken.len(), 1, "{taken:?}");
        assert_eq!(taken[0].attempt, round + 1);
        latest = again;
    }
}

async fn whoever_lost_a_task_comes_too_late(store: &dyn TaskStore) {
    let first = owned(store, "a").await;
    let again = next(&first, TaskState::Working);
    let claimed = store.claim(again.clone(), lease("b", 200), 100).await;
    assert!(claimed.unwrap().is_some());
    assert!(!store.update(next(&first, completed())).await.unwrap());
    assert_eq!(store.renew(lease("a", 300)).await.unwrap(), []);
    assert_eq!(store.lapsed(200).await.unwrap().len(), 1);
    assert!(store.update(next(&again, completed())).await.unwrap());
}

async fn a_lease_is_renewed_for_all_tasks_of_an_owner_and_for_no_other(store: &dyn TaskStore) {
    let mut mine = [owned(store, "a").await.id, owned(store, "a").await.id];
    let theirs = owned(store, "b").await;
    let over = owned(store, "a").await;
    assert!(store.update(next(&over, completed())).await.unwrap());
    let mut renewed = store.renew(lease("a", 200)).await.unwrap();
    renewed.sort();
    mine.sort();
    assert_eq!(renewed, mine);
    let lapsed = store.lapsed(199).await.unwrap();
    assert_eq!(lapsed.len(), 1);
    assert_eq!(lapsed[0].record, theirs);
    // They are given up by a lease that is over.
    store.renew(lease("a", 0)).await.unwrap();
    assert_eq!(store.lapsed(1).await.unwrap().len(), 2);
}

async fn what_is_over_cannot_be_begun_again(store: &dyn TaskStore) {
    let first = owned(store, "a").await;
    let ended = next(&first, completed());
    let error = store.claim(ended.clone(), lease("b", 200), 100).await;
    let error = error.unwrap_err();
    assert!(
        error.source().unwrap().to_string().contains("over"),
        "{error:?}"
    );
    assert!(store.update(ended.clone()).await.unwrap());
    let again = next(&ended, TaskState::Working);
    let claimed = store.claim(again, lease("b", 200), 100).await;
    assert_eq!(claimed.unwrap(), None);
    assert_eq!(store.lapsed(u64::MAX).await.unwrap(), []);
}
