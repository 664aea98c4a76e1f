//! Traces of the real program, in a collector that reads them strictly.

use serde_json::{Value, json};
use testkit::{
    CollectedSpan, Collector, CollectorAnswer, Conversation, GENEROUS, HttpServer, MODERN, Port,
    free_port, wait_until,
};
use tokio::time::Instant;

use crate::support::{END, Site, announced, call, log, text};

const IN_HEADERS: &str = "00-11111111111111111111111111111111-aaaaaaaaaaaaaaaa-01";
const IN_META: &str = "00-22222222222222222222222222222222-bbbbbbbbbbbbbbbb-01";

const APP: &str = r#"
import asyncio
import os

import owlclaw_worker
from owlclaw import OwlClaw

app = OwlClaw("traced")
app.mount_skills("skills")

@app.handler("where")
async def where() -> dict:
    return owlclaw_worker.trace_context()

@app.handler("sell")
def sell(password: str) -> dict:
    owlclaw_worker.cost("0.25", model="m-1", tokens_in=7, tokens_out=3)
    return {"sold": 1, "token": password}

@app.handler("look-up")
async def look_up() -> dict:
    with open("looked-up", "a") as file:
        file.write("begun\n")
    while not os.path.exists("gate"):
        await asyncio.sleep(0.01)
    return owlclaw_worker.trace_context()
"#;

/// A site whose traces go to `endpoint`, with what else `telemetry` and `settings` say.
fn site(endpoint: &str, telemetry: Value, mut settings: Value) -> Site {
    settings["telemetry"] = telemetry;
    settings["telemetry"]["otlp"]["endpoint"] = json!(endpoint);
    let site = Site::new(settings);
    site.write("app.py", APP);
    site
}

/// The one of this kind in this trace.
fn of<'a>(spans: &'a [CollectedSpan], trace: &str, kind: &str) -> &'a CollectedSpan {
    let mut found = spans
        .iter()
        .filter(|it| it.kind == kind && it.trace_id == trace[3..35]);
    let span = found
        .next()
        .unwrap_or_else(|| panic!("{kind} of {trace} in {spans:#?}"));
    assert_eq!(found.next(), None);
    span
}

fn structured(result: &Value) -> Value {
    serde_json::from_str(text(result)).unwrap()
}

#[tokio::test]
async fn a_call_over_http_is_in_the_trace_of_its_message_and_else_in_that_of_its_headers() {
    let collector = Collector::start().await;
    let site = site(&collector.endpoint(), json!({}), json!({}));
    let server = site.http().await;
    let client = || server.client().with_header("traceparent", IN_HEADERS);
    let mut modern = client().with_header("tracestate", "vendor=1");
    modern.open(MODERN).await;
    let mut params = call("where", json!({}));
    params["_meta"] = json!({ "traceparent": IN_META, "tracestate": "mine=2" });
    let answer = modern.post_modern("tools/call", params).await;
    let told = structured(answer.result());
    let mut legacy = client();
    legacy.open("2025-06-18").await;
    let answer = legacy
        .post_legacy("tools/call", call("where", json!({})))
        .await;
    let told_in_session = structured(answer.result());

    let both = |spans: &[CollectedSpan]| {
        let tools = spans.iter().filter(|it| it.kind == "internal");
        let calls = spans.iter().filter(|it| it.name == "tools/call where");
        tools.count() == 2 && calls.count() == 2
    };
    let mut spans = collector.until("both calls are there", both).await;
    spans.retain(|it| it.attributes.contains_key("gen_ai.tool.name"));
    let (request, tool) = (
        of(&spans, IN_META, "server"),
        of(&spans, IN_META, "internal"),
    );
    assert_eq!(request.parent_span_id, IN_META[36..52]);
    let link = (IN_HEADERS[3..35].to_owned(), IN_HEADERS[36..52].to_owned());
    assert_eq!(request.links, [link]);
    assert_eq!(
        (&*request.trace_state, &*tool.trace_state),
        ("mine=2", "mine=2")
    );
    assert_eq!(request.text("network.transport"), "tcp");
    assert_eq!(request.text("mcp.protocol.version"), MODERN);
    assert_eq!(tool.parent_span_id, request.span_id);
    assert!(tool.duration() <= request.duration());
    // The handler is below its own span.
    let parent = format!("00-{}-{}-01", tool.trace_id, tool.span_id);
    assert_eq!(
        told,
        json!({ "traceparent": parent, "tracestate": "mine=2" })
    );

    let (request, tool) = (
        of(&spans, IN_HEADERS, "server"),
        of(&spans, IN_HEADERS, "internal"),
    );
    assert_eq!(request.parent_span_id, IN_HEADERS[36..52]);
    assert_eq!(request.links, []);
    assert!(request.attributes.contains_key("mcp.session.id"));
    let parent = format!("00-{}-{}-01", tool.trace_id, tool.span_id);
    assert_eq!(told_in_session, json!({ "traceparent": parent }));

    // Whoever has the trace finds the call, and the lines of the log.
    let traces: Vec<_> = site
        .calls()
        .into_iter()
        .map(|it| it.started.trace_id)
        .collect();
    let expected = [IN_META, IN_HEADERS].map(|it| Some(it[3..35].to_owned()));
    assert_eq!(traces, expected);
    let lines = log(&server.process().stderr());
    for trace in [IN_META, IN_HEADERS] {
        let trace = json!(trace[3..35]);
        assert!(
            lines.iter().any(|line| line["trace_id"] == trace),
            "{lines:#?}"
        );
    }
}

#[tokio::test]
async fn langfuse_gets_what_it_shows_tools_and_costs_by() {
    let collector = Collector::start().await;
    let telemetry = json!({
        "otlp": { "headers": { "Authorization": "${LANGFUSE_AUTH}" } },
        "service_name": "shop",
        "capture": "redacted",
        "resource": { "deployment.environment.name": "staging" },
    });
    let endpoint = format!("{}/api/public/otel", collector.endpoint());
    let site = site(&endpoint, telemetry, json!({}));
    let mut command = site.command(&["start", "--transport", "http"]);
    command.env("LANGFUSE_AUTH", "Basic cGstbGY6c2stbGY=");
    let server = HttpServer::spawn(command, Port::Announced(announced)).await;
    let mut client = server.client();
    client.open(MODERN).await;
    let params = call("sell", json!({ "password": "hunter2" }));
    let _ = client.post_modern("tools/call", params).await.result();
    let is_there = |spans: &[CollectedSpan]| spans.iter().any(|it| it.kind == "internal");
    let spans = collector.until("the tool is there", is_there).await;
    let request = &collector.requests()[0];
    assert_eq!(request.path, "/api/public/otel/v1/traces");
    assert_eq!(request.headers["authorization"], "Basic cGstbGY6c2stbGY=");
    let tool = spans.iter().find(|it| it.kind == "internal").unwrap();
    assert_eq!(tool.text("langfuse.observation.type"), "tool");
    let cost = tool.text("langfuse.observation.cost_details");
    assert_eq!(cost, r#"{"total":0.25}"#);
    assert_eq!(tool.attributes["owlclaw.cost"], 0.25);
    assert_eq!(tool.attributes["gen_ai.usage.input_tokens"], 7);
    assert_eq!(tool.attributes["gen_ai.usage.output_tokens"], 3);
    assert_eq!(tool.text("gen_ai.response.model"), "m-1");
    assert_eq!(tool.text("user.id"), site.calls()[0].started.principal);
    for key in ["langfuse.observation.input", "langfuse.observation.output"] {
        let value: Value = serde_json::from_str(tool.text(key)).unwrap();
        assert!(value.is_object(), "{key}: {value}");
    }
    assert_eq!(tool.resource["service.name"], "shop");
    assert_eq!(tool.resource["deployment.environment.name"], "staging");
    assert!(!format!("{spans:?}").contains("hunter2"), "{spans:#?}");
    // The header is a secret, and stays one.
    assert!(!server.process().stderr().contains("cGstbGY6c2stbGY="));
}

#[tokio::test]
async fn a_command_is_told_where_in_the_trace_it_is() {
    let collector = Collector::start().await;
    let commands = json!({ "commands": { "where-cmd": {
        "run": ["/bin/sh", "where.sh"], "output": "text",
    } } });
    let site = site(&collector.endpoint(), json!({}), commands);
    site.write(
        "where.sh",
        "printf '%s %s' \"$TRACEPARENT\" \"$TRACESTATE\"",
    );
    let mut server = site.stdio();
    server.open(MODERN).await;
    let mut params = call("where-cmd", json!({}));
    params["_meta"] = json!({ "traceparent": IN_META, "tracestate": "mine=2" });
    let answer = server.request("tools/call", params).await;
    let told = text(answer.result()).to_owned();
    let spans = collector.spans_of(2).await;
    let tool = of(&spans, IN_META, "internal");
    assert_eq!(
        told,
        format!("00-{}-{}-01 mine=2", tool.trace_id, tool.span_id)
    );
}

#[tokio::test]
async fn what_waits_is_sent_at_the_end_and_a_collector_that_hangs_holds_up_nothing() {
    for hangs in [false, true] {
        let collector = Collector::start().await;
        let site = site(&collector.endpoint(), json!({}), json!({}));
        let mut server = site.http().await;
        let mut client = server.client();
        client.open(MODERN).await;
        if hangs {
            collector.answer_next(std::iter::repeat_n(CollectorAnswer::Hang, 9));
            let answer = client.post_modern("tools/call", call("where", json!({})));
            let _ = answer.await.result();
            collector.requested(1).await;
        }
        let begun = Instant::now();
        for _ in 0..20 {
            let answer = client.post_modern("tools/call", call("where", json!({})));
            let _ = answer.await.result();
        }
        assert!(begun.elapsed() < GENEROUS / 2, "{:?}", begun.elapsed());
        server.process().signal("TERM").await;
        assert!(server.wait_exit(END).await.success());
        let spans = collector.spans();
        let tools = spans.iter().filter(|it| it.kind == "internal").count();
        assert_eq!(tools, if hangs { 0 } else { 20 });
        assert_eq!(site.calls().len(), if hangs { 21 } else { 20 });
    }
}

#[tokio::test]
async fn a_collector_may_be_down_at_the_start_and_come_later() {
    let port = free_port();
    let site = site(&format!("http://127.0.0.1:{port}"), json!({}), json!({}));
    let mut server = site.stdio();
    server.open(MODERN).await;
    let answer = server.request("tools/call", call("where", json!({})));
    let _ = answer.await.result();
    let collector = Collector::at(port).await;
    let spans = collector.spans_of(2).await;
    assert!(spans.iter().any(|it| it.name == "tools/call where"));
    assert!(
        spans
            .iter()
            .all(|it| !it.attributes.contains_key("gen_ai.tool.call.arguments"))
    );
}

#[tokio::test]
async fn a_task_is_in_the_trace_that_it_was_asked_in_and_so_is_what_the_next_server_does_for_it() {
    const EXTENSION: &str = "io.modelcontextprotocol/tasks";
    let collector = Collector::start().await;
    let settings = json!({"tasks": {"after_seconds": 0}, "shutdown": {"drain_seconds": 1}});
    let site = site(&collector.endpoint(), json!({}), settings);
    site.skill("c", "look-up", "owlclaw: {idempotent: true}\n");
    let mut server = site.http().await;
    let mut client = server.client().with_header("traceparent", IN_HEADERS);
    client.speak(MODERN);
    client.voice.capabilities = json!({"extensions": {EXTENSION: {}}});
    let answer = client
        .post_modern("tools/call", call("look-up", json!({})))
        .await;
    let task = answer.result()["taskId"].clone();
    let looked_up = async |times: usize| {
        wait_until("it runs", GENEROUS, || {
            site.read("looked-up").lines().count() == times
        })
        .await;
    };
    looked_up(1).await;
    server.process().signal("TERM").await;
    assert!(server.wait_exit(GENEROUS).await.success());

    let server = site.http().await;
    looked_up(2).await;
    site.write("gate", "");
    let is_over = |spans: &[CollectedSpan]| {
        let reruns = spans
            .iter()
            .filter(|it| it.kind == "internal" && it.name == "tools/call look-up");
        reruns.count() == 1
    };
    let mut spans = collector.until("the task is over", is_over).await;
    spans.retain(|it| it.trace_id == IN_HEADERS[3..35]);
    let one = |name: &str, kind: &str, parent: &str| {
        let mut found = spans
            .iter()
            .filter(|it| it.name == name && it.kind == kind && it.parent_span_id == parent);
        let span = found
            .next()
            .unwrap_or_else(|| panic!("{kind} {name} below {parent} in {spans:#?}"));
        assert_eq!(found.next(), None);
        assert_eq!(span.attributes["owlclaw.task.id"], task, "{span:#?}");
        span
    };
    let request = one("tools/call look-up", "server", &IN_HEADERS[36..52]);
    let cut_short = one("execute_tool look-up", "internal", &request.span_id);
    assert!(cut_short.is_error, "{cut_short:#?}");
    let again = one("tools/call look-up", "internal", &request.span_id);
    assert!(!again.is_error, "{again:#?}");
    let tool = one("execute_tool look-up", "internal", &again.span_id);
    assert!(!tool.is_error, "{tool:#?}");

    // The handler is below the span of the call that it runs for.
    let mut client = server.client();
    client.speak(MODERN);
    client.voice.capabilities = json!({"extensions": {EXTENSION: {}}});
    let params = json!({ "taskId": task });
    let answer = client.post_modern("tasks/get", params).await;
    let parent = format!("00-{}-{}-01", tool.trace_id, tool.span_id);
    let told = &answer.result()["result"]["structuredContent"];
    assert_eq!(told, &json!({ "traceparent": parent }));
    let traces = site.calls().into_iter();
    let mut traces = traces.filter(|it| it.started.capability == "tool/look-up");
    let of_trace =
        |it: ledger::CallRecord| it.started.trace_id == Some(IN_HEADERS[3..35].to_owned());
    assert!(traces.by_ref().all(of_trace));
}

#[tokio::test]
async fn a_call_of_an_upstream_has_a_client_span_which_the_upstream_is_told_of() {
    const UPSTREAM: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../crates/gateway/tests/upstream.py"
    );
    let collector = Collector::start().await;
    let upstream = json!({"command": "python3", "args": [UPSTREAM, "stdio", "."]});
    let site = site(
        &collector.endpoint(),
        json!({}),
        json!({"upstreams": {"up": upstream}}),
    );
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    let mut params = call("mcp_up_meta", json!({}));
    params["_meta"] = json!({ "traceparent": IN_META, "tracestate": "mine=2" });
    let answer = client.post_modern("tools/call", params).await;
    let told = structured(answer.result());
    let mut params = call("mcp_up_refuse", json!({}));
    params["_meta"] = json!({ "traceparent": IN_HEADERS });
    client.post_modern("tools/call", params).await;

    let both = |spans: &[CollectedSpan]| {
        let hops = spans.iter().filter(|it| it.kind == "client");
        let tools = spans.iter().filter(|it| it.kind == "internal");
        hops.count() == 2 && tools.count() == 2
    };
    let spans = collector.until("both calls are there", both).await;
    let (tool, hop) = (
        of(&spans, IN_META, "internal"),
        of(&spans, IN_META, "client"),
    );
    assert_eq!(hop.name, "tools/call meta");
    assert_eq!(hop.parent_span_id, tool.span_id);
    assert_eq!(hop.text("owlclaw.upstream.name"), "up");
    assert_eq!(hop.text("gen_ai.tool.name"), "meta");
    assert_eq!(hop.text("mcp.protocol.version"), "2025-11-25");
    assert_eq!(hop.text("network.transport"), "pipe");
    let parent = format!("00-{}-{}-01", hop.trace_id, hop.span_id);
    assert_eq!(
        (&told["traceparent"], &told["tracestate"]),
        (&json!(parent), &json!("mine=2"))
    );
    let refused = of(&spans, IN_HEADERS, "client");
    assert!(refused.is_error);
    assert_eq!(refused.text("error.type"), "server_error");
}
