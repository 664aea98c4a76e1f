//! Several servers over one PostgreSQL, where any of them answers any request.

use crate::{
    support::{Site, text},
    tasks::{created, ended, knowing, task},
};
use serde_json::{Value, json};
use testkit::{GENEROUS, HttpClient, HttpServer, Postgres, wait_until};

/// A handler that asks, and one that may be called again, beside those of the workshop.
const ASKING: &str = r#"
import dataclasses
from owlclaw_worker import Context

@dataclasses.dataclass
class Answer:
    colour: str

@app.handler("choose")
async def choose(ctx: Context):
    note("choices", "asked")
    answer = await ctx.elicit("Which colour?", Answer)
    note("choices", answer.action)
    return answer.data.colour if answer.action == "accept" else answer.action
"#;

/// Servers over one database, each in a directory of its own.
struct Nodes {
    sites: Vec<Site>,
    servers: Vec<HttpServer>,
    postgres: Postgres,
}

impl Nodes {
    async fn start(count: usize) -> Option<Self> {
        let postgres = Postgres::start()?;
        let (mut sites, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let site = Site::new(json!({
                "ledger": {"path": null, "url": postgres.url()},
                "tasks": {"after_seconds": 0},
            }));
            let app = site.read("app.py");
            site.write("app.py", format!("{app}\n{ASKING}"));
            servers.push(site.http().await);
            sites.push(site);
        }
        Some(Self {
            sites,
            servers,
            postgres,
        })
    }

    fn knowing(&self, node: usize) -> HttpClient {
        knowing(self.servers[node].client())
    }

    /// Lines that handlers have written on all nodes.
    fn noted(&self, file: &str) -> Vec<String> {
        let all = self.sites.iter().flat_map(|site| {
            let text = site.read(file);
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        all.collect()
    }
}

#[tokio::test]
async fn a_task_is_seen_answered_and_cancelled_on_any_node() {
    let Some(nodes) = Nodes::start(2).await else {
        return;
    };
    let (mut here, mut there) = (nodes.knowing(0), nodes.knowing(1));

    // Its result is there wherever it is asked for, and its end is told there.
    let id = created(&mut here, "nap", json!({"seconds": 0.5})).await;
    let seen = ended(&mut there, &id).await;
    assert_eq!(text(&seen["result"]), "rested", "{seen}");
    let mut stranger = knowing(
        nodes.servers[1]
            .client()
            .with_header("X-MCP-Client-ID", "mallory"),
    );
    let answer = stranger
        .post_modern("tasks/get", json!({"taskId": id}))
        .await;
    assert_eq!(answer.code(), -32602);

    // What is cancelled elsewhere is stopped where it runs, and on record once.
    let id = created(&mut here, "nap", json!({"seconds": 600})).await;
    wait_until("it runs", GENEROUS, || {
        nodes.noted("naps") == ["begun", "over", "begun"]
    })
    .await;
    let done = there.post_modern("tasks/cancel", json!({"taskId": id}));
    assert_eq!(done.await.result()["resultType"], "complete");
    assert_eq!(task(&mut there, &id).await["status"], "cancelled");
    // Where it runs that is heard of a moment later.
    until(&mut here, &id, "cancelled").await;
    wait_until("it was stopped", GENEROUS, || {
        nodes.noted("naps").last().unwrap() == "cancelled"
    })
    .await;

    // What it asks is asked and answered elsewhere.
    for client in [&mut here, &mut there] {
        client.voice.capabilities["elicitation"] = json!({});
    }
    let id = created(&mut here, "choose", json!({})).await;
    let asked = until(&mut there, &id, "input_required").await;
    let (key, question) = asked["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    assert_eq!(question["params"]["message"], "Which colour?", "{asked}");
    let said = json!({"action": "accept", "content": {"colour": "green"}});
    let answers = json!({"taskId": id, "inputResponses": {key: said}});
    let taken = there.post_modern("tasks/update", answers).await;
    assert_eq!(taken.result()["resultType"], "complete");
    let seen = until(&mut there, &id, "completed").await;
    assert_eq!(text(&seen["result"]), "green", "{seen}");
    assert_eq!(nodes.noted("choices"), ["asked", "accept"]);
}

/// Asks how a task stands until it stands so.
async fn until(client: &mut HttpClient, id: &str, status: &str) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let seen = task(client, id).await;
        if seen["status"] == status {
            return seen;
        }
        assert!(begun.elapsed() < GENEROUS, "{seen} never is {status}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_task_of_a_node_that_was_killed_is_ended_by_another_and_never_run_twice() {
    let Some(mut nodes) = Nodes::start(2).await else {
        return;
    };
    let id = created(&mut nodes.knowing(0), "nap", json!({"seconds": 600})).await;
    wait_until("it runs", GENEROUS, || nodes.noted("naps") == ["begun"]).await;
    nodes.servers[0].process().signal("KILL").await;
    nodes.servers[0].wait_exit(GENEROUS).await;
    let mut there = nodes.knowing(1);
    assert_eq!(task(&mut there, &id).await["status"], "working");
    // The time of its lease, which is not waited for here.
    nodes
        .postgres
        .sql("UPDATE owlclaw_cluster.task_run SET lease_until_us = 0");
    let seen = ended(&mut there, &id).await;
    assert_eq!(seen["status"], "failed", "{seen}");
    assert_eq!(seen["error"]["data"]["retryable"], false, "{seen}");
    assert_eq!(nodes.noted("naps"), ["begun"]);
}
