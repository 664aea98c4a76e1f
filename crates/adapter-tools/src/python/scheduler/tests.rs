use super::*;
use bytes::BytesMut;
use serde_json::Value;

/// The only generation, or the first.
const FIRST: u64 = 1;

fn scheduler(has_async: bool, change: impl FnOnce(&mut PythonOptions)) -> Arc<Scheduler> {
    let mut options = PythonOptions::new("app.py", ".");
    options.workers = 4;
    change(&mut options);
    let scheduler = Scheduler::new(&options);
    scheduler.switch_to(FIRST, has_async, 1);
    Arc::new(scheduler)
}

fn submit(
    scheduler: &Scheduler,
    name: &str,
    cx: ToolCx,
) -> Result<(u64, oneshot::Receiver<Answer>), ToolError> {
    let (answer, answered) = oneshot::channel();
    let call = Call {
        kind: Kind::Tool,
        name: name.into(),
        is_async: !name.starts_with("sync"),
        arguments: Bytes::from_static(b"{}"),
        cx,
        answer,
    };
    Ok((scheduler.submit(call)?, answered))
}

fn begin(scheduler: &Scheduler, name: &str) -> (u64, oneshot::Receiver<Answer>) {
    submit(scheduler, name, ToolCx::new("anna", "1")).unwrap()
}

fn begin_all<const N: usize>(
    scheduler: &Scheduler,
    names: [&str; N],
) -> [(u64, oneshot::Receiver<Answer>); N] {
    names.map(|name| begin(scheduler, name))
}

/// The frames of an outbox, as `name` of a call, `-id` of a cancellation, or `?` of the question whether
/// the worker is there.
fn frames(mut frames: BytesMut) -> Vec<String> {
    let mut seen = Vec::new();
    while !frames.is_empty() {
        let length = u32::from_be_bytes(*frames.first_chunk::<4>().unwrap()) as usize;
        let frame: Value = serde_json::from_slice(&frames[4..4 + length]).unwrap();
        seen.push(match frame["name"].as_str() {
            Some(name) => name.to_owned(),
            None if frame["type"] == "ping" => "?".to_owned(),
            None => format!("-{}", frame["id"]),
        });
        let _ = frames.split_to(4 + length);
    }
    seen
}

/// Frames to be written to a worker.
fn written(scheduler: &Scheduler, place: &Place) -> Vec<String> {
    let mut state = scheduler.lock();
    frames(place.seat(&mut state).unwrap().outbox.split())
}

fn answer(place: &Place, id: u64) {
    place.answered(id, || Ok(ToolOutput::text("x")));
}

fn lost() -> ToolError {
    ToolError::broken("lost")
}

#[tokio::test]
async fn asynchronous_calls_run_beside_each_other_and_synchronous_ones_alone() {
    let scheduler = scheduler(true, |_| {});
    let place = scheduler.sit(FIRST, 0);
    let calls: Vec<_> = ["a", "b", "sync1", "c", "sync2"]
        .map(|name| begin(&scheduler, name))
        .into();
    assert_eq!(written(&scheduler, &place), ["a", "b", "sync1"]);
    answer(&place, calls[0].0);
    assert_eq!(
        written(&scheduler, &place),
        Vec::<String>::new(),
        "a synchronous call runs"
    );
    answer(&place, calls[2].0);
    assert_eq!(written(&scheduler, &place), ["c", "sync2"]);
}

#[tokio::test]
async fn calls_wait_for_a_worker_in_order_and_survive_its_loss_if_they_had_not_begun() {
    let scheduler = scheduler(true, |options| options.max_concurrent = 1);
    let [(_, mut first), (_, mut second)] = begin_all(&scheduler, ["a", "b"]);
    let place = scheduler.sit(FIRST, 0);
    assert_eq!(written(&scheduler, &place), ["a"]);
    let left = place.leave(Blame::Everybody, lost);
    assert!(!left.had_answered && left.running.len() == 1);
    assert!(first.try_recv().unwrap().is_err());
    assert!(second.try_recv().is_err(), "it waits");
    let place = scheduler.sit(FIRST, 0);
    assert_eq!(written(&scheduler, &place), ["b"]);
    scheduler.refuse_waiting(lost);
    assert!(second.try_recv().is_err(), "it runs, so it does not wait");
    scheduler.stop();
    assert!(second.try_recv().unwrap().is_err());
    assert!(submit(&scheduler, "c", ToolCx::new("anna", "1")).is_err());
}

#[tokio::test]
async fn asynchronous_calls_share_the_first_worker_while_they_are_few() {
    let scheduler = scheduler(true, |options| options.max_concurrent = 10);
    let places = [0, 1, 2].map(|slot| scheduler.sit(FIRST, slot));
    let count = |places: &[Place; 3]| {
        let state = scheduler.lock();
        places
            .each_ref()
            .map(|place| state.seats[place.at()].as_ref().unwrap().running)
    };
    let mut calls = Vec::new();
    for expected in [[8, 0, 0], [8, 8, 0], [8, 8, 8], [10, 9, 9], [10, 10, 10]] {
        while count(&places) != expected {
            calls.push(begin(&scheduler, "a"));
            assert!(calls.len() < 31, "{:?}", count(&places));
        }
    }
    let (_, mut waits) = begin(&scheduler, "a");
    assert_eq!(scheduler.lock().queue.len(), 1);
    answer(&places[1], calls[8].0);
    assert_eq!(scheduler.lock().queue.len(), 0);
    assert!(waits.try_recv().is_err());
}

#[tokio::test]
async fn synchronous_calls_begin_from_the_last_worker_on_and_leave_one() {
    let scheduler = scheduler(true, |_| {});
    let places = [0, 1, 2].map(|slot| scheduler.sit(FIRST, slot));
    let written = || {
        places
            .each_ref()
            .map(|place| written(&scheduler, place).join(" "))
    };
    let calls = begin_all(&scheduler, ["a", "sync1", "sync2", "sync3", "b"]);
    assert_eq!(written(), ["a b", "sync2", "sync1"], "sync3 holds b up not");
    answer(&places[1], calls[2].0);
    assert_eq!(written(), ["", "sync3", ""]);
}

const NONE: [&str; 0] = [];

/// Longer than a worker may say nothing.
async fn silence_passes() {
    tokio::time::advance(seat::SILENCE + Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn asynchronous_calls_pass_by_a_silent_worker_until_it_says_that_it_is_there() {
    let scheduler = scheduler(true, |_| {});
    let places = [0, 1].map(|slot| scheduler.sit(FIRST, slot));
    let _awaits = begin_all(&scheduler, ["a", "b"]);
    assert_eq!(written(&scheduler, &places[0]), ["a", "b"]);
    silence_passes().await;
    let passing = begin_all(&scheduler, ["c", "d"]);
    assert_eq!(written(&scheduler, &places[1]), ["c", "d"]);
    assert_eq!(written(&scheduler, &places[0]), ["?"], "it is asked once");
    places[0].heard(true);
    let _meets = begin(&scheduler, "e");
    assert_eq!(written(&scheduler, &places[0]), ["e"]);
    // Other frames count as well, but do not answer the question.
    silence_passes().await;
    let _asks = begin(&scheduler, "f");
    places[0].heard(false);
    let _meets = begin(&scheduler, "g");
    silence_passes().await;
    answer(&places[1], passing[0].0);
    let _passes = begin(&scheduler, "h");
    assert_eq!(written(&scheduler, &places[0]), ["?", "g"]);
    assert_eq!(written(&scheduler, &places[1]), ["?", "f", "h"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_calls_is_not_silent_however_long_it_says_nothing() {
    let scheduler = scheduler(true, |_| {});
    let places = [0, 1].map(|slot| scheduler.sit(FIRST, slot));
    let (first, _answered) = begin(&scheduler, "a");
    answer(&places[0], first);
    silence_passes().await;
    let _calls = begin_all(&scheduler, ["b", "c"]);
    assert_eq!(written(&scheduler, &places[0]), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn where_all_workers_are_silent_the_one_with_the_fewest_calls_is_used() {
    let scheduler = scheduler(true, |_| {});
    let places = [0, 1].map(|slot| scheduler.sit(FIRST, slot));
    let _awaits = begin_all(&scheduler, ["a", "b"]);
    silence_passes().await;
    let _awaits = begin(&scheduler, "c");
    silence_passes().await;
    let _calls = begin_all(&scheduler, ["d", "e", "f"]);
    assert_eq!(written(&scheduler, &places[0]), ["a", "b", "?", "e"]);
    assert_eq!(written(&scheduler, &places[1]), ["c", "?", "d", "f"]);
}

#[tokio::test(start_paused = true)]
async fn a_synchronous_call_passes_by_a_silent_worker_too() {
    let scheduler = scheduler(false, |_| {});
    let places = [0, 1].map(|slot| scheduler.sit(FIRST, slot));
    let _few: Vec<_> = (0..seat::FEW).map(|_| begin(&scheduler, "a")).collect();
    let _one = begin(&scheduler, "b");
    silence_passes().await;
    places[0].heard(false);
    let _sync = begin(&scheduler, "sync");
    assert_eq!(written(&scheduler, &places[1]), ["b", "?"]);
    assert_eq!(written(&scheduler, &places[0]).last().unwrap(), "sync");
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_others_is_not_asked() {
    let scheduler = scheduler(true, |options| options.workers = 1);
    let place = scheduler.sit(FIRST, 0);
    let _awaits = begin(&scheduler, "a");
    silence_passes().await;
    let _meets = begin(&scheduler, "b");
    assert_eq!(written(&scheduler, &place), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn who_runs_a_synchronous_call_or_is_not_used_any_more_is_not_asked() {
    let scheduler = scheduler(true, |_| {});
    let old = scheduler.sit(FIRST, 0);
    let _awaits = begin(&scheduler, "a");
    scheduler.switch_to(2, true, 1);
    let places = [0, 1].map(|slot| scheduler.sit(2, slot));
    let _blocks = begin(&scheduler, "sync");
    silence_passes().await;
    let _passes = begin(&scheduler, "b");
    assert_eq!(written(&scheduler, &old), ["a"]);
    assert_eq!(written(&scheduler, &places[1]), ["sync"]);
    assert_eq!(written(&scheduler, &places[0]), ["b"]);
    assert_eq!(written(&scheduler, &places[0]), NONE);
}

#[tokio::test]
async fn a_worker_that_is_coming_back_is_waited_for_and_one_that_is_missing_is_not() {
    let scheduler = scheduler(true, |_| {});
    let first = scheduler.sit(FIRST, 0);
    let second = scheduler.sit(FIRST, 1);
    second.leave(Blame::Everybody, lost);
    let (_, _answered) = begin(&scheduler, "sync");
    assert!(written(&scheduler, &first).is_empty());
    scheduler.is_missing(FIRST, 1);
    assert_eq!(written(&scheduler, &first), ["sync"]);
}

#[tokio::test]
async fn without_asynchronous_handlers_no_worker_is_kept_for_them() {
    let scheduler = scheduler(false, |_| {});
    let places = [0, 1].map(|slot| scheduler.sit(FIRST, slot));
    let _calls = begin_all(&scheduler, ["sync1", "sync2"]);
    assert_eq!(written(&scheduler, &places[0]), ["sync2"]);
    assert_eq!(written(&scheduler, &places[1]), ["sync1"]);
}

#[tokio::test]
async fn the_next_generation_gets_what_waits_and_the_old_one_finishes_what_it_runs() {
    let scheduler = scheduler(true, |options| options.max_concurrent = 1);
    let old = scheduler.sit(FIRST, 0);
    let [(running, mut answered), (_, _waits)] = begin_all(&scheduler, ["a", "b"]);
    let new = scheduler.sit(2, 0);
    assert!(written(&scheduler, &new).is_empty());
    scheduler.switch_to(2, true, 1);
    assert_eq!(written(&scheduler, &new), ["b"]);
    assert_eq!(written(&scheduler, &old), ["a"]);
    assert!(answered.try_recv().is_err());
    let end = tokio::time::timeout(Duration::from_secs(60), old.idle());
    let (ended, ()) = tokio::join!(end, async { answer(&old, running) });
    assert!(ended.is_ok(), "it runs nothing any more");
    assert!(answered.try_recv().unwrap().is_ok());
    assert_eq!(scheduler.ready(), 1);
}

#[tokio::test]
async fn who_ran_alone_is_suspended_after_three_losses_and_tried_again() {
    let scheduler = scheduler(true, |_| {});
    for _ in 0..3 {
        let place = scheduler.sit(FIRST, 0);
        let _calls = begin_all(&scheduler, ["a", "b", "sync"]);
        place.leave(Blame::Everybody, lost);
        let place = scheduler.sit(FIRST, 0);
        let _alone = begin(&scheduler, "c");
        place.leave(Blame::Nobody, lost);
    }
    let refused = submit(&scheduler, "sync", ToolCx::new("anna", "1")).unwrap_err();
    assert!(
        matches!(refused, ToolError::Suspended { .. }),
        "{refused:?}"
    );
    assert!(refused.is_retryable());
    assert_eq!(refused.retry_after().unwrap().as_secs(), 29);
    let tripped: Vec<_> = scheduler
        .tripped()
        .into_iter()
        .map(|(_, name, _)| name.to_string())
        .collect();
    assert_eq!(tripped, ["sync"], "the others did not hold the worker");
    scheduler.forgive();
    begin(&scheduler, "sync");
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_is_given_up_in_line_leaves_the_next_one_to_be_tried() {
    let scheduler = scheduler(true, |_| {});
    for _ in 0..3 {
        let place = scheduler.sit(FIRST, 0);
        let _call = begin(&scheduler, "a");
        place.leave(Blame::Everybody, lost);
    }
    tokio::time::advance(Duration::from_secs(31)).await;
    let (trial, _answered) = begin(&scheduler, "a");
    assert!(submit(&scheduler, "a", ToolCx::new("anna", "1")).is_err());
    scheduler.abandon(trial);
    let (trial, _answered) = begin(&scheduler, "a");
    let place = scheduler.sit(FIRST, 0);
    answer(&place, trial);
    assert!(scheduler.tripped().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_stop_is_to_blame_alone() {
    let scheduler = scheduler(true, |_| {});
    for _ in 0..3 {
        let mut place = scheduler.sit(FIRST, 0);
        let [(_, _a), (stuck, _b)] = begin_all(&scheduler, ["a", "stuck"]);
        scheduler.abandon(stuck);
        place.expired().await;
        place.close();
        place.leave(Blame::Stuck, lost);
    }
    let tripped = scheduler.tripped();
    assert_eq!(tripped.len(), 1);
    assert_eq!(&*tripped[0].1, "stuck");
}

#[tokio::test]
async fn a_line_that_was_printed_is_the_requests_whose_call_says_so_or_that_has_the_worker() {
    let scheduler = scheduler(true, |_| {});
    let place = scheduler.sit(FIRST, 0);
    let requests = place.requests();
    let call = |name: &str, request: &str| submit(&scheduler, name, ToolCx::new("anna", request));
    let (first, _a) = call("a", "r1").unwrap();
    assert_eq!(requests.of(Some(first)).as_deref(), Some("r1"));
    assert_eq!(requests.of(None), None);
    answer(&place, first);
    assert_eq!(
        requests.of(Some(first)).as_deref(),
        Some("r1"),
        "it is late"
    );
    let (exclusive, _b) = call("sync", "r2").unwrap();
    assert_eq!(requests.of(Some(99)).as_deref(), Some("r2"));
    assert_eq!(requests.of(None).as_deref(), Some("r2"));
    answer(&place, exclusive);
    assert_eq!(requests.of(None), None);
    place.leave(Blame::Nobody, lost);
    let _other = scheduler.sit(FIRST, 0);
    assert_eq!(requests.of(Some(first)), None, "another worker");
}

#[tokio::test]
async fn the_line_is_bounded_in_calls_and_in_bytes() {
    let scheduler = scheduler(true, |options| {
        options.max_concurrent = 1;
        options.max_waiting = 2;
        options.max_waiting_bytes = 4;
    });
    let place = scheduler.sit(FIRST, 0);
    let (running, _answer) = begin(&scheduler, "a");
    let (waiting, _answer) = begin(&scheduler, "b");
    let _third = begin(&scheduler, "c");
    let refused = submit(&scheduler, "d", ToolCx::new("anna", "1")).unwrap_err();
    assert!(matches!(refused, ToolError::Busy { .. }));
    scheduler.abandon(waiting);
    let _fourth = begin(&scheduler, "d");
    answer(&place, running);
    assert_eq!(written(&scheduler, &place), ["a", "c"]);
    assert_eq!(scheduler.lock().queue.bytes(), 2);
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_not_begun() {
    let scheduler = scheduler(true, |_| {});
    let over = ToolCx::new("anna", "1").with_deadline(std::time::Instant::now());
    let (_id, mut answered) = submit(&scheduler, "late", over).unwrap();
    let place = scheduler.sit(FIRST, 0);
    assert!(written(&scheduler, &place).is_empty());
    assert!(matches!(
        answered.try_recv().unwrap(),
        Err(ToolError::TimedOut)
    ));
}

#[tokio::test]
async fn a_call_given_up_is_cancelled_once_and_costs_until_it_has_ended() {
    let scheduler = scheduler(true, |_| {});
    let place = scheduler.sit(FIRST, 0);
    let cx = ToolCx::new("anna", "1");
    let meter = Arc::clone(cx.meter());
    let (id, _answered) = submit(&scheduler, "a", cx).unwrap();
    assert_eq!(written(&scheduler, &place), ["a"]);
    scheduler.abandon(id);
    scheduler.abandon(id);
    let outgoing = place.next_outgoing().await;
    assert!(outgoing.interrupt);
    assert_eq!(
        outgoing
            .frames
            .windows(6)
            .filter(|bytes| bytes == b"cancel")
            .count(),
        1
    );
    place.with_meter(id, |meter| meter.add_cost_micros(5));
    assert!(place.context(id).is_none(), "nobody wants its progress");
    answer(&place, id);
    place.with_meter(id, |meter| meter.add_cost_micros(5));
    assert_eq!(meter.cost_micros(), Some(5));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_has_the_grace_to_end() {
    let scheduler = scheduler(true, |_| {});
    let place = scheduler.sit(FIRST, 0);
    let (first, _a) = begin(&scheduler, "a");
    let (second, _b) = begin(&scheduler, "b");
    scheduler.abandon(first);
    let hour = Duration::from_secs(3600);
    let begun = Instant::now();
    place.expired().await;
    assert_eq!(begun.elapsed().as_secs(), 2);
    answer(&place, first);
    assert!(
        tokio::time::timeout(hour, place.expired()).await.is_err(),
        "it has ended"
    );
    answer(&place, second);
}

#[tokio::test(start_paused = true)]
async fn what_a_synchronous_call_holds_up_is_not_blamed_for_it() {
    let scheduler = scheduler(true, |_| {});
    let place = scheduler.sit(FIRST, 0);
    let (held_up, _a) = begin(&scheduler, "a");
    let (holds_up, _b) = begin(&scheduler, "sync");
    scheduler.abandon(held_up);
    let hour = Duration::from_secs(3600);
    assert!(tokio::time::timeout(hour, place.expired()).await.is_err());
    answer(&place, holds_up);
    let begun = Instant::now();
    place.expired().await;
    assert_eq!(begun.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_synchronous_call_that_does_not_end_is_noticed_whatever_was_cancelled_before() {
    let scheduler = scheduler(true, |_| {});
    let place = scheduler.sit(FIRST, 0);
    let (held_up, _a) = begin(&scheduler, "a");
    let (stuck, _b) = begin(&scheduler, "sync");
    scheduler.abandon(held_up);
    scheduler.abandon(stuck);
    let begun = Instant::now();
    place.expired().await;
    assert_eq!(begun.elapsed().as_secs(), 2);
}

/// A scheduler with one worker, in which synchronous calls have threads.
fn threaded(threads: usize, change: impl FnOnce(&mut PythonOptions)) -> (Arc<Scheduler>, Place) {
    let scheduler = scheduler(true, change);
    scheduler.switch_to(FIRST, true, threads);
    let place = scheduler.sit(FIRST, 0);
    (scheduler, place)
}

fn begin_for(scheduler: &Scheduler, who: &str) -> (u64, oneshot::Receiver<Answer>) {
    submit(scheduler, "sync", ToolCx::new(who, "1")).unwrap()
}

#[tokio::test]
async fn each_principal_has_three_times_as_many_threads_as_are_left() {
    let (scheduler, place) = threaded(16, |_| {});
    let held = || scheduler.lock().held.clone();
    let mut calls = Vec::new();
    for _ in 0..20 {
        calls.push(begin_for(&scheduler, "anna"));
    }
    assert_eq!(held()["anna"], 12);
    for _ in 0..20 {
        begin_for(&scheduler, "ben");
    }
    assert_eq!(held()["ben"], 3);
    begin_for(&scheduler, "carl");
    assert_eq!(held()["carl"], 1);
    assert_eq!(scheduler.calls(), (8 + 17, 16));
    for (id, _) in calls.drain(..12) {
        answer(&place, id);
    }
    let held = held();
    assert!(
        3 < held["ben"] && 3 < held["anna"],
        "those that waited: {held:?}"
    );
    assert!(
        held.values().sum::<usize>() < 16,
        "one is left for the next: {held:?}"
    );
    place.leave(Blame::Nobody, lost);
    assert!(scheduler.lock().held.is_empty());
}

#[tokio::test]
async fn nobody_fills_the_line_alone() {
    let (scheduler, _place) = threaded(2, |options| options.max_waiting = 8);
    let submit = |who| submit(&scheduler, "sync", ToolCx::new(who, "1"));
    let mut taken = 0;
    while submit("anna").is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 2 + 6, "two run");
    assert!(submit("ben").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_is_abandoned_if_its_worker_answers_and_the_worker_ended_else() {
    for answers in [true, false] {
        let (scheduler, place) = threaded(4, |options| options.grace = Duration::from_secs(1));
        let (id, waiter) = begin(&scheduler, "sync");
        drop(waiter);
        scheduler.abandon(id);
        assert_eq!(written(&scheduler, &place), ["sync", "-1", "?"]);
        place.heard(false);
        if answers {
            place.heard(true);
        }
        let expired = tokio::time::timeout(Duration::from_secs(5), place.expired()).await;
        assert_eq!(expired.is_err(), answers);
        if answers {
            assert!(scheduler.lock().held.is_empty());
            tokio::time::timeout(Duration::from_secs(1), place.idle())
                .await
                .unwrap();
            answer(&place, id);
            let mut state = scheduler.lock();
            let seat = place.seat(&mut state).unwrap();
            assert_eq!((seat.abandoned, seat.running, seat.threads), (0, 0, 0));
        }
    }
}

/// A scheduler with one worker, and another one while calls have waited for a second.
fn elastic() -> Arc<Scheduler> {
    scheduler(false, |options| {
        (options.workers, options.max_workers) = (1, Some(2));
        options.start_after = Duration::from_secs(1);
    })
}

/// Time after which this generation runs short; `None` if it does not within a minute.
async fn short_after(scheduler: &Scheduler, generation: u64) -> Option<Duration> {
    let begun = Instant::now();
    let short = scheduler.runs_short(generation);
    let is_short = tokio::time::timeout(Duration::from_secs(60), short).await;
    is_short.ok().map(|()| begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn another_worker_is_needed_once_calls_have_waited_without_a_break() {
    let scheduler = elastic();
    let first = scheduler.sit(FIRST, 0);
    let [(running, _one), (waits, _other)] = begin_all(&scheduler, ["sync1", "sync2"]);
    tokio::time::advance(Duration::from_millis(400)).await;
    assert_eq!(
        short_after(&scheduler, 2).await,
        None,
        "of another generation"
    );
    scheduler.abandon(waits);
    assert_eq!(short_after(&scheduler, FIRST).await, None, "nobody waits");
    let (_, _other) = begin(&scheduler, "sync3");
    let after = short_after(&scheduler, FIRST).await;
    assert_eq!(after, Some(Duration::from_secs(1)));
    // What the second one leaves waiting has to wait as long for a third.
    let (_, _third) = begin(&scheduler, "sync4");
    let second = scheduler.sit(FIRST, 1);
    assert_eq!(written(&scheduler, &second), ["sync3"]);
    assert_eq!(short_after(&scheduler, FIRST).await, after);
    answer(&first, running);
    assert_eq!(written(&scheduler, &first), ["sync1", "sync4"]);
    assert_eq!(short_after(&scheduler, FIRST).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_further_worker_gets_calls_when_the_first_has_some_and_none_once_it_was_idle() {
    let scheduler = elastic();
    scheduler.switch_to(FIRST, false, 64);
    let first = scheduler.sit(FIRST, 0);
    let further = scheduler.sit(FIRST, 1);
    let few: Vec<_> = (0..9).map(|_| begin(&scheduler, "sync")).collect();
    assert_eq!(written(&scheduler, &first).len(), 8);
    assert_eq!(written(&scheduler, &further), ["sync"]);
    let idle = further.idle_for(Duration::from_secs(60));
    let ended = async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        answer(&further, few.last().unwrap().0);
        Instant::now()
    };
    let (_, ended) = tokio::join!(idle, ended);
    assert_eq!(ended.elapsed(), Duration::from_secs(60));
    let _more: Vec<_> = (0..9).map(|_| begin(&scheduler, "sync")).collect();
    let written = written(&scheduler, &first);
    assert_eq!(written.iter().filter(|it| *it == "sync").count(), 9);
}
