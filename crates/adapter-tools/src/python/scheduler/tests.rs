use super::*;
use serde_json::Value;

fn scheduler(change: impl FnOnce(&mut PythonOptions)) -> Scheduler {
    let mut options = PythonOptions::new("app.py", ".");
    change(&mut options);
    Scheduler::new(&options)
}

fn submit(
    scheduler: &Scheduler,
    name: &str,
    cx: ToolCx,
) -> Result<(u64, oneshot::Receiver<Answer>), ToolError> {
    let (answer, answered) = oneshot::channel();
    let call = Call {
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

/// The frames that are in the outbox, as `name` of a call or `-id` of a cancellation.
fn written(scheduler: &Scheduler) -> Vec<String> {
    let mut frames = scheduler.lock().outbox.split();
    let mut seen = Vec::new();
    while !frames.is_empty() {
        let length = u32::from_be_bytes(*frames.first_chunk::<4>().unwrap()) as usize;
        let frame: Value = serde_json::from_slice(&frames[4..4 + length]).unwrap();
        seen.push(match frame["name"].as_str() {
            Some(name) => name.to_owned(),
            None => format!("-{}", frame["id"]),
        });
        let _ = frames.split_to(4 + length);
    }
    seen
}

fn answer(scheduler: &Scheduler, id: u64) {
    scheduler.answered(id, || Ok(ToolOutput::text("x")));
}

fn lost() -> ToolError {
    ToolError::broken("lost")
}

#[tokio::test]
async fn asynchronous_calls_run_beside_each_other_and_synchronous_ones_alone() {
    let scheduler = scheduler(|_| {});
    scheduler.worker_is_there();
    let calls: Vec<_> = ["a", "b", "sync1", "c", "sync2"]
        .map(|name| begin(&scheduler, name))
        .into();
    assert_eq!(written(&scheduler), ["a", "b", "sync1"]);
    answer(&scheduler, calls[0].0);
    assert_eq!(
        written(&scheduler),
        Vec::<String>::new(),
        "a synchronous call runs"
    );
    answer(&scheduler, calls[2].0);
    assert_eq!(written(&scheduler), ["c", "sync2"]);
}

#[tokio::test]
async fn calls_wait_for_a_worker_in_order_and_survive_its_loss_if_they_had_not_begun() {
    let scheduler = scheduler(|options| options.max_concurrent = 1);
    let (_first, mut first_answer) = begin(&scheduler, "a");
    let (_second, mut second_answer) = begin(&scheduler, "b");
    assert!(written(&scheduler).is_empty());
    scheduler.worker_is_there();
    assert_eq!(written(&scheduler), ["a"]);
    assert!(!scheduler.worker_is_gone(lost), "it had answered nothing");
    assert!(first_answer.try_recv().unwrap().is_err());
    assert!(second_answer.try_recv().is_err(), "it waits");
    scheduler.worker_is_there();
    assert_eq!(written(&scheduler), ["b"]);
    scheduler.refuse_waiting(lost);
    assert!(
        second_answer.try_recv().is_err(),
        "it runs, so it does not wait"
    );
    scheduler.stop();
    assert!(second_answer.try_recv().unwrap().is_err());
    assert!(submit(&scheduler, "c", ToolCx::new("anna", "1")).is_err());
}

#[tokio::test]
async fn the_line_is_bounded_in_calls_and_in_bytes() {
    let scheduler = scheduler(|options| {
        options.max_concurrent = 1;
        options.max_waiting = 2;
        options.max_waiting_bytes = 4;
    });
    scheduler.worker_is_there();
    let (running, _answer) = begin(&scheduler, "a");
    let (waiting, _answer) = begin(&scheduler, "b");
    let _third = begin(&scheduler, "c");
    let refused = submit(&scheduler, "d", ToolCx::new("anna", "1")).unwrap_err();
    assert!(matches!(refused, ToolError::Busy { .. }));
    scheduler.abandon(waiting);
    let _fourth = begin(&scheduler, "d");
    answer(&scheduler, running);
    assert_eq!(written(&scheduler), ["a", "c"]);
    assert_eq!(scheduler.lock().waiting_bytes, 2);
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_not_begun() {
    let scheduler = scheduler(|_| {});
    let over = ToolCx::new("anna", "1").with_deadline(std::time::Instant::now());
    let (_id, mut answered) = submit(&scheduler, "late", over).unwrap();
    scheduler.worker_is_there();
    assert!(written(&scheduler).is_empty());
    assert!(matches!(
        answered.try_recv().unwrap(),
        Err(ToolError::TimedOut)
    ));
}

#[tokio::test]
async fn a_call_given_up_is_cancelled_once_and_costs_until_it_has_ended() {
    let scheduler = scheduler(|_| {});
    scheduler.worker_is_there();
    let cx = ToolCx::new("anna", "1");
    let meter = Arc::clone(cx.meter());
    let (id, _answered) = submit(&scheduler, "a", cx).unwrap();
    assert_eq!(written(&scheduler), ["a"]);
    scheduler.abandon(id);
    scheduler.abandon(id);
    let outgoing = scheduler.next_outgoing().await;
    assert!(outgoing.interrupt);
    assert_eq!(
        outgoing
            .frames
            .windows(6)
            .filter(|bytes| bytes == b"cancel")
            .count(),
        1
    );
    scheduler.with_meter(id, |meter| meter.add_cost_micros(5));
    assert!(scheduler.context(id).is_none(), "nobody wants its progress");
    answer(&scheduler, id);
    scheduler.with_meter(id, |meter| meter.add_cost_micros(5));
    assert_eq!(meter.cost_micros(), Some(5));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_has_the_grace_to_end() {
    let scheduler = scheduler(|_| {});
    scheduler.worker_is_there();
    let (first, _a) = begin(&scheduler, "a");
    let (second, _b) = begin(&scheduler, "b");
    scheduler.abandon(first);
    let hour = Duration::from_secs(3600);
    let begun = Instant::now();
    scheduler.expired().await;
    assert_eq!(begun.elapsed().as_secs(), 2);
    answer(&scheduler, first);
    assert!(
        tokio::time::timeout(hour, scheduler.expired())
            .await
            .is_err(),
        "it has ended"
    );
    answer(&scheduler, second);
}

#[tokio::test(start_paused = true)]
async fn what_a_synchronous_call_holds_up_is_not_blamed_for_it() {
    let scheduler = scheduler(|_| {});
    scheduler.worker_is_there();
    let (held_up, _a) = begin(&scheduler, "a");
    let (holds_up, _b) = begin(&scheduler, "sync");
    scheduler.abandon(held_up);
    let hour = Duration::from_secs(3600);
    assert!(
        tokio::time::timeout(hour, scheduler.expired())
            .await
            .is_err()
    );
    answer(&scheduler, holds_up);
    let begun = Instant::now();
    scheduler.expired().await;
    assert_eq!(begun.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_synchronous_call_that_does_not_end_is_noticed_whatever_was_cancelled_before() {
    let scheduler = scheduler(|_| {});
    scheduler.worker_is_there();
    let (held_up, _a) = begin(&scheduler, "a");
    let (stuck, _b) = begin(&scheduler, "sync");
    scheduler.abandon(held_up);
    scheduler.abandon(stuck);
    let begun = Instant::now();
    scheduler.expired().await;
    assert_eq!(begun.elapsed().as_secs(), 2);
}
