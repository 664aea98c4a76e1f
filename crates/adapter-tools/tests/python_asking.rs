//! Python handlers that ask the client, and wait for its answers where they have asked.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use adapter_tools::{Answers, Askable, Needed, Question, ToolCx, ToolError, ToolOutput};
use common::{App, Running, app_with, text};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

const HANDLERS: &str = r#"
import asyncio
from dataclasses import dataclass
import owlclaw_worker
from owlclaw_worker import CannotAsk, Context

RUNS = []

@app.handler("asks")
async def asks(ctx: Context):
    RUNS.append("asks")
    owlclaw_worker.cost("0.5")
    try:
        said = await ctx.elicit("How many?", int)
    except asyncio.CancelledError:
        RUNS.append("given up")
        raise
    owlclaw_worker.cost("0.25")
    return "%s of %d as %s" % (said.data, len(RUNS), ctx.request_id)

@dataclass
class Parcel:
    weight: float
    address: str
    contents: str = "tea"

@app.handler("ships")
async def ships(ctx: Context):
    said = await ctx.elicit("Which parcel?", Parcel)
    return said.data.address

@app.handler("blocks")
def blocks(ctx: Context):
    return "%s" % asyncio.run(ctx.elicit("How many?", int)).data

@app.handler("careless")
async def careless(ctx: Context):
    await ctx.sample("hi")

@app.handler("runs")
async def runs():
    return RUNS
"#;

const FORM: Askable = Askable {
    form: true,
    url: false,
    sample: false,
    roots: false,
    pages: false,
};

fn cx(request: &str) -> ToolCx {
    ToolCx::new("anna", request).with_answers(FORM, None)
}

fn answered(request: &str, needed: &Needed, answer: Value) -> ToolCx {
    let raw = serde_json::value::to_raw_value(&answer).unwrap();
    let keys = needed.questions.keys();
    let answers = Answers {
        responses: keys.map(|key| (key.clone(), raw.clone())).collect(),
        state: needed.state.clone(),
    };
    ToolCx::new("anna", request).with_answers(FORM, Some(Arc::new(answers)))
}

fn seven() -> Value {
    json!({"action": "accept", "content": {"value": 7}})
}

async fn asked(running: &Running, name: &str, cx: ToolCx) -> Needed {
    match running.call_with(cx, name, json!({})).await {
        Err(ToolError::NeedsInput(needed)) => needed,
        other => panic!("{other:?}"),
    }
}

async fn started() -> (App, Running) {
    let app = App::new(&app_with(HANDLERS));
    let mut options = app.options();
    options.threads = 4;
    let running = Running::start(options).await;
    (app, running)
}

#[tokio::test]
async fn a_handler_goes_on_where_it_has_asked_and_each_call_is_charged_its_part() {
    let (_app, running) = started().await;
    let first = cx("first");
    let meter = Arc::clone(first.meter());
    let needed = asked(&running, "asks", first).await;
    assert_eq!(meter.cost_micros(), Some(500_000));
    assert!(!meter.is_in_use(), "nothing of the call that asked is left");
    assert!(
        matches!(needed.questions.values().next(), Some(Question::Form { message, .. }) if message == "How many?")
    );
    let second = answered("second", &needed, seven());
    let meter = Arc::clone(second.meter());
    let output = running.call_with(second, "asks", json!({})).await.unwrap();
    assert_eq!(text(&output), "7 of 1 as second");
    assert_eq!(meter.cost_micros(), Some(250_000));
    drop(needed);
    assert_eq!(running.text("runs", json!({})).await, r#"["asks"]"#);
}

#[tokio::test]
async fn synchronous_handlers_ask_from_their_threads() {
    let (_app, running) = started().await;
    let needed = asked(&running, "blocks", cx("first")).await;
    let output = running
        .call_with(answered("second", &needed, seven()), "blocks", json!({}))
        .await;
    assert_eq!(text(&output.unwrap()), "7");
}

#[tokio::test]
async fn answers_are_taken_once_by_the_same_caller_and_tool() {
    let (_app, running) = started().await;
    let needed = asked(&running, "asks", cx("first")).await;
    let gone = |outcome: Result<ToolOutput, ToolError>| match outcome {
        Err(ToolError::Crashed { message, .. }) => message.contains("does not wait any more"),
        _ => false,
    };
    let mut stranger = answered("x", &needed, seven());
    stranger.principal = "bob".into();
    assert!(gone(running.call_with(stranger, "asks", json!({})).await));
    let other_tool = answered("x", &needed, seven());
    assert!(gone(
        running.call_with(other_tool, "blocks", json!({})).await
    ));
    // Without the answer it is asked again.
    let mut incomplete = needed.clone();
    incomplete.questions.clear();
    let again = asked(&running, "asks", answered("second", &incomplete, seven())).await;
    assert_eq!(again.questions, needed.questions);
    let third = answered("third", &needed, seven());
    assert!(running.call_with(third, "asks", json!({})).await.is_ok());
    let fourth = answered("fourth", &needed, seven());
    assert!(gone(running.call_with(fourth, "asks", json!({})).await));
    let mut elsewhere = needed.clone();
    elsewhere.state = Some(json!({"waiting": 1, "process": "another"}));
    let fifth = answered("fifth", &elsewhere, seven());
    assert!(gone(running.call_with(fifth, "asks", json!({})).await));
}

#[tokio::test]
async fn a_form_has_its_fields_in_the_order_of_its_author() {
    let (_app, running) = started().await;
    let needed = asked(&running, "ships", cx("ships")).await;
    let Some(Question::Form { schema, .. }) = needed.questions.values().next() else {
        panic!("{needed:?}");
    };
    let text = schema.as_str();
    let places = ["weight", "address", "contents"].map(|it| text.find(&format!("\"{it}\":")));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{text}"
    );
}

#[tokio::test]
async fn a_handler_is_given_up_with_its_question_unless_it_is_to_go_on_waiting() {
    let (_app, running) = started().await;
    let kept = asked(&running, "asks", cx("kept")).await;
    kept.waiting.as_ref().unwrap().go_on();
    let answers = answered("later", &kept, seven());
    drop(kept);
    let dropped = asked(&running, "asks", cx("dropped")).await;
    drop(dropped);
    common::eventually("it is given up", || {
        running.python.health().calls_running == 1
    })
    .await;
    assert_eq!(
        running.text("runs", json!({})).await,
        r#"["asks","asks","given up"]"#
    );
    let output = running.call_with(answers, "asks", json!({})).await;
    assert_eq!(text(&output.unwrap()), "7 of 3 as later");
}

#[tokio::test]
async fn a_client_that_has_not_declared_it_is_not_asked() {
    let (_app, running) = started().await;
    let needed = asked(&running, "careless", cx("first")).await;
    // The server refuses the call with the error for a missing capability.
    assert!(matches!(
        needed.questions.values().next(),
        Some(Question::Sample(_))
    ));
    assert_eq!(needed.waiting, None);
}

#[tokio::test]
async fn a_handler_whose_process_is_gone_does_not_wait() {
    let (_app, running) = started().await;
    let needed = asked(&running, "asks", cx("first")).await;
    running.python.reload().await.unwrap();
    let mut state = running.python.state();
    let _ = state.wait_for(|_| true).await;
    common::eventually("the old worker ends", || {
        running.python.health().calls_running == 0
    })
    .await;
    let outcome = running
        .call_with(answered("second", &needed, seven()), "asks", json!({}))
        .await;
    assert!(matches!(outcome, Err(ToolError::Crashed { .. })));
}

#[tokio::test]
async fn so_many_handlers_wait_and_no_more() {
    let (_app, running) = started().await;
    let first = asked(&running, "asks", cx("first")).await;
    let other = ToolCx::new("bob", "bob").with_answers(FORM, None);
    let bobs = asked(&running, "asks", other).await;
    let mut others = Vec::new();
    for number in 0..255 {
        others.push(asked(&running, "asks", cx(&number.to_string())).await);
    }
    common::eventually("one is given up", || {
        running.python.health().calls_running == 256
    })
    .await;
    // Of the one who has most of them, the one that has waited longest.
    let outcome = running
        .call_with(answered("again", &first, seven()), "asks", json!({}))
        .await;
    assert!(matches!(outcome, Err(ToolError::Crashed { .. })));
    let mut again = answered("again", &bobs, seven());
    again.principal = "bob".into();
    assert!(running.call_with(again, "asks", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_further_worker_is_not_idle_while_a_handler_waits_there_for_answers() {
    let hold = "
import os, time
@app.handler('hold')
def hold():
    while not os.path.exists('go'):
        time.sleep(0.01)
";
    let app = App::new(&app_with(&format!("{HANDLERS}{hold}")));
    let mut options = app.options();
    options.max_workers = Some(2);
    options.start_after = Duration::from_millis(50);
    options.idle = Duration::from_millis(200);
    let running = Running::start(options).await;
    let asking = async {
        // The first worker runs the other call alone.
        let needed = asked(&running, "asks", cx("first")).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(running.python.health().workers_ready, 2);
        let second = answered("second", &needed, seven());
        let output = running.call_with(second, "asks", json!({})).await.unwrap();
        assert_eq!(text(&output), "7 of 1 as second");
        running.has_workers(1).await;
        app.touch("go");
    };
    let (held, ()) = tokio::join!(running.call("hold", json!({})), asking);
    held.unwrap();
}
