//! Several servers over one PostgreSQL, where any of them answers any request.

use crate::{
    support::{Site, call, run, text},
    tasks::{created, ended, knowing, task},
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{
    GENEROUS, HttpClient, HttpConnection, HttpRequest, HttpServer, Postgres, SseStream, wait_until,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

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
                "governance": {"tools": {"append": {"risk": ["financial"]}}},
            }));
            let app = site.read("app.py");
            site.write("app.py", format!("{app}\n{ASKING}"));
            site.skill("stock", "counting", "");
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
    let begun = Instant::now();
    loop {
        let seen = task(client, id).await;
        if seen["status"] == status {
            return seen;
        }
        assert!(begun.elapsed() < GENEROUS, "{seen} never is {status}");
        sleep(Duration::from_millis(20)).await;
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

/// Gives each connection to the next server, whoever comes, and passes over those that do not answer.
struct Balancer {
    address: SocketAddr,
    /// Servers that have got connections, in order.
    chosen: Arc<Mutex<Vec<usize>>>,
    _accepting: JoinSet<()>,
}

impl Balancer {
    async fn before(servers: &[HttpServer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let servers: Vec<_> = servers.iter().map(HttpServer::address).collect();
        let (next, chosen) = (AtomicUsize::new(0), Arc::<Mutex<Vec<_>>>::default());
        let mut accepting = JoinSet::new();
        let seen = Arc::clone(&chosen);
        accepting.spawn(async move {
            let mut carried = JoinSet::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                for _ in 0..servers.len() {
                    let server = next.fetch_add(1, Ordering::Relaxed) % servers.len();
                    if let Ok(mut stream) = TcpStream::connect(servers[server]).await {
                        seen.lock().unwrap().push(server);
                        carried.spawn(async move {
                            let _ = copy_bidirectional(&mut client, &mut stream).await;
                        });
                        break;
                    }
                }
            }
        });
        Self {
            address,
            chosen,
            _accepting: accepting,
        }
    }

    fn client(&self) -> HttpClient {
        HttpClient::new(self.address)
    }

    /// The server that got the last connection.
    fn last(&self) -> usize {
        *self.chosen.lock().unwrap().last().unwrap()
    }
}

#[tokio::test]
async fn a_session_goes_on_behind_a_balancer_without_stickiness_while_a_node_is_killed() {
    let Some(mut nodes) = Nodes::start(3).await else {
        return;
    };
    let balancer = Balancer::before(&nodes.servers).await;
    let mut client = balancer.client().with_header("X-MCP-Client-ID", "anna");
    client.voice.capabilities = json!({"elicitation": {}});
    let opened = client.initialize("2025-11-25").await;
    assert_eq!(opened.result()["protocolVersion"], "2025-11-25");
    let session = client.session().unwrap().to_owned();
    let initialized = client
        .voice
        .notification("notifications/initialized", json!({}));
    assert_eq!(
        client.exchange(&client.post_of(&initialized)).await.status,
        202
    );
    for round in 0..6 {
        let answer = client
            .post_legacy("tools/call", call("echo", json!({"text": "there"})))
            .await;
        assert!(
            answer.result()["isError"] != true,
            "round {round}: {}",
            answer.response()
        );
    }
    let mut used = balancer.chosen.lock().unwrap().clone();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used, [0, 1, 2]);

    // Another principal has no such session, anywhere.
    let mut mallory = balancer.client().with_header("X-MCP-Client-ID", "mallory");
    mallory.speak("2025-11-25");
    mallory.set_session(Some(&session));
    let ping = mallory.voice.request("ping", json!({}));
    for _ in 0..3 {
        assert_eq!(mallory.exchange(&mallory.post_of(&ping)).await.status, 404);
    }

    // What it subscribes to through one server it hears of through another, which has the session already.
    let uri = "skill://stock/counting";
    let mut here = client.clone().moved_to(nodes.servers[1].address());
    let subscribed = here.post_legacy("resources/subscribe", json!({"uri": uri}));
    assert!(subscribed.await.result().is_object());
    let there = client.clone().moved_to(nodes.servers[2].address());
    hears_of(there.listen().await, &nodes.sites[2], "counting").await;

    // What a call asks is answered through another server than the one that waits.
    let choose = client
        .voice
        .request("tools/call", call("choose", json!({})));
    let mut stream = client.stream(&client.post_of(&choose)).await;
    let asking = balancer.last();
    let question = stream.message().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let said = json!({"action": "accept", "content": {"colour": "green"}});
    let said = json!({"jsonrpc": "2.0", "id": question["id"], "result": said});
    assert_eq!(client.exchange(&client.post_of(&said)).await.status, 202);
    assert_ne!(balancer.last(), asking);
    let answer = stream.message().await;
    assert_eq!(text(&answer["result"]), "green", "{answer}");

    // Also if no server hears of others at that moment.
    let choose = client
        .voice
        .request("tools/call", call("choose", json!({})));
    let mut stream = client.stream(&client.post_of(&choose)).await;
    let asking = balancer.last();
    let question = stream.message().await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    assert_ne!(nodes.postgres.sql(cut).trim(), "0");
    let said = json!({"action": "accept", "content": {"colour": "blue"}});
    let said = json!({"jsonrpc": "2.0", "id": question["id"], "result": said});
    let other = nodes.servers[(asking + 1) % 3].address();
    let there = client.clone().moved_to(other);
    while there.exchange(&there.post_of(&said)).await.status != 202 {
        sleep(Duration::from_millis(10)).await;
    }
    let answer = stream.message().await;
    assert_eq!(text(&answer["result"]), "blue", "{answer}");

    // So is a call cancelled.
    let nap = client
        .voice
        .request("tools/call", call("nap", json!({"seconds": 600})));
    let mut napping = HttpConnection::connect(client.address()).await.unwrap();
    let request = client.post_of(&nap);
    napping.send_bytes(&request.to_bytes()).await.unwrap();
    wait_until("it runs", GENEROUS, || nodes.noted("naps") == ["begun"]).await;
    let napper = balancer.last();
    let cancel = json!({"requestId": nap["id"]});
    let cancel = client.voice.notification("notifications/cancelled", cancel);
    assert_eq!(client.exchange(&client.post_of(&cancel)).await.status, 202);
    assert_ne!(balancer.last(), napper);
    wait_until("it was cancelled", GENEROUS, || {
        nodes.noted("naps") == ["begun", "cancelled"]
    })
    .await;
    drop(napping);

    // A server dies, and the session goes on.
    nodes.servers[0].process().signal("KILL").await;
    nodes.servers[0].wait_exit(GENEROUS).await;
    for _ in 0..4 {
        let answer = client.post_legacy("tools/list", json!({})).await;
        assert!(answer.result()["tools"].is_array());
    }

    // A stream of another server is not gone on with, and that is said.
    let resume = HttpRequest::get("/mcp")
        .header("accept", "text/event-stream")
        .header("last-event-id", "77-1");
    assert_eq!(client.exchange(&client.dress(resume)).await.status, 400);

    // Ended through one, it is over on all, and does not come back.
    let end = client.dress(HttpRequest::new("DELETE", "/mcp"));
    assert_eq!(client.exchange(&end).await.status, 204);
    let ping = client.voice.request("ping", json!({}));
    for server in &nodes.servers[1..] {
        let there = client.clone().moved_to(server.address());
        let begun = Instant::now();
        while there.exchange(&there.post_of(&ping)).await.status != 404 {
            assert!(begun.elapsed() < GENEROUS, "it is not over");
        }
    }
}

/// Changes a skill until that is told on a stream.
async fn hears_of(mut stream: SseStream, site: &Site, skill: &str) {
    let uri = format!("skill://stock/{skill}");
    let hearing = tokio::spawn(async move {
        loop {
            let told = stream.message().await;
            if told["method"] == "notifications/resources/updated" && told["params"]["uri"] == uri {
                return;
            }
        }
    });
    let begun = Instant::now();
    for version in 0.. {
        // The news of a subscription may come after a change.
        site.skill("stock", skill, &format!("version: {version}\n"));
        sleep(Duration::from_millis(100)).await;
        if hearing.is_finished() {
            break;
        }
        assert!(begun.elapsed() < GENEROUS, "no change is heard of");
    }
    hearing.await.unwrap();
}

#[tokio::test]
async fn a_change_that_one_node_sees_is_told_to_subscribers_of_all() {
    let Some(nodes) = Nodes::start(2).await else {
        return;
    };
    let mut client = nodes.servers[1].client();
    let opened = client.initialize("2025-06-18").await;
    assert!(opened.result().is_object());
    let initialized = client
        .voice
        .notification("notifications/initialized", json!({}));
    assert_eq!(
        client.exchange(&client.post_of(&initialized)).await.status,
        202
    );
    let subscribe = json!({"uri": "skill://stock/counting"});
    let subscribed = client.post_legacy("resources/subscribe", subscribe).await;
    assert!(subscribed.result().is_object());
    // Each has files of its own, and only the first one's change.
    hears_of(client.listen().await, &nodes.sites[0], "counting").await;
}

#[tokio::test]
async fn what_a_modern_client_brings_back_opens_on_any_node() {
    let Some(nodes) = Nodes::start(3).await else {
        return;
    };
    let balancer = Balancer::before(&nodes.servers).await;
    let mut client = balancer.client().with_header("X-MCP-Client-ID", "anna");
    client.voice.capabilities = json!({"elicitation": {}});
    let mut params = call("append", json!({"mark": "one"}));
    let asked = client.post_modern("tools/call", params.clone()).await;
    assert_eq!(
        asked.result()["resultType"],
        "input_required",
        "{}",
        asked.response()
    );
    let asking = balancer.last();
    let keys = asked.result()["inputRequests"].as_object().unwrap().keys();
    let said = json!({"action": "accept", "content": {"confirm": true}});
    params["inputResponses"] = keys.map(|key| (key.clone(), said.clone())).collect();
    params["requestState"] = asked.result()["requestState"].clone();
    let done = client.post_modern("tools/call", params.clone()).await;
    assert_ne!(balancer.last(), asking);
    assert_eq!(
        done.result()["resultType"],
        "complete",
        "{}",
        done.response()
    );
    // What was agreed to once is not done twice, wherever it is asked for.
    client.post_modern("tools/call", params).await;
    let all = nodes
        .sites
        .iter()
        .map(|it| it.read("executed").lines().count());
    assert_eq!(all.sum::<usize>(), 1);
}

/// Steps of a client, as `tests/clients/plan.md` has them, between which a server is killed.
fn plan(url: &str, era: &str, knows_tasks: bool, killed: (u32, u16)) -> Value {
    let echo = |id: String| {
        let arguments = json!({"text": "there"});
        json!({"id": id, "do": "call", "tool": "echo", "arguments": arguments})
    };
    let mut steps: Vec<_> = (0..6).map(|it| echo(format!("before {it}"))).collect();
    let choose = if knows_tasks { "task" } else { "call" };
    steps.push(json!({
        "id": "asks", "do": choose, "tool": "choose", "arguments": {}, "keep": 90_000,
    }));
    // A balancer cannot know of a connection that the dying server still accepts, nor does the SDK send again.
    let (process, port) = killed;
    let kill = format!(
        "kill -KILL {process}; while (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>&-; do sleep 0.01; done"
    );
    let kill = ["bash".to_owned(), "-c".to_owned(), kill];
    steps.push(json!({"id": "killed", "do": "beside", "command": kill}));
    steps.extend((0..6).map(|it| echo(format!("after {it}"))));
    // Last, because the driver cancels every task from then on.
    if knows_tasks {
        let arguments = json!({"seconds": 600});
        steps.push(json!({
            "id": "stopped", "do": "cancel", "tool": "nap", "arguments": arguments, "keep": 90_000,
        }));
    }
    let said = if knows_tasks { "answers" } else { "confirms" };
    json!({
        "transport": "http", "era": era, "url": url, "timeout": 60, "steps": steps,
        // Each request has a connection of its own, and so a server.
        "headers": {"X-MCP-Client-ID": "anna", "Connection": "close"},
        said: {"Which colour?": {"colour": "green"}},
    })
}

#[tokio::test]
#[ignore = "wants the official clients, which tests/clients/run.sh installs: .ci/run runs it after that"]
async fn official_clients_go_on_behind_a_balancer_without_stickiness_while_a_node_is_killed() {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let cache = std::env::var("OWLCLAW_TEST_CACHE").unwrap_or(format!("{repository}/.cache"));
    for (client, driver, era, knows_tasks) in [
        ("python-2", "drive.py", "modern", true),
        ("python-2", "drive.py", "legacy", false),
        ("python-1", "drive_v1.py", "legacy", true),
    ] {
        let Some(nodes) = Nodes::start(3).await else {
            return;
        };
        let balancer = Balancer::before(&nodes.servers).await;
        let url = format!("http://{}/mcp", balancer.address);
        let killed = &nodes.servers[0];
        let killed = (killed.process().id().unwrap(), killed.address().port());
        let plan = plan(&url, era, knows_tasks, killed);
        nodes.sites[0].write("plan.json", plan.to_string());
        let output = tokio::process::Command::new(format!("{cache}/clients/{client}/bin/python"))
            .arg(format!("{repository}/tests/clients/python/{driver}"))
            .arg(nodes.sites[0].path("plan.json"))
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{client} {era}: {said}{errors}");
        let lines: Vec<Value> = said
            .lines()
            .map(|it| serde_json::from_str(it).unwrap())
            .collect();
        let of = |id: &str| lines.iter().find(|it| it["id"] == id).expect(id);
        for when in ["before", "after"] {
            for number in 0..6 {
                let step = of(&format!("{when} {number}"));
                assert_eq!(step["isError"], false, "{step}");
            }
        }
        let asks = of("asks");
        assert_eq!(asks["text"], "green", "{asks}");
        assert_eq!(asks["asked"], json!(["Which colour?"]), "{asks}");
        if knows_tasks {
            assert!(of("stopped").to_string().contains("cancelled"));
        }
        let chosen = balancer.chosen.lock().unwrap().clone();
        assert!(chosen.contains(&0) && chosen.contains(&1) && chosen.contains(&2));
    }
}

#[tokio::test]
async fn an_operator_sees_all_servers_and_cancels_a_task_of_another() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let (mut sites, mut servers, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        let site = Site::new(json!({
            "ledger": {"path": null, "url": postgres.url()},
            "tasks": {"after_seconds": 0},
            "identity": {"api_keys": {"file": "keys.json"}},
            "desk": {"enabled": true, "port": 0},
        }));
        let words = [
            "keys",
            "create",
            "--principal",
            "olga",
            "--role",
            "operator",
        ];
        let made = run(site.command(&words)).await;
        keys.push(format!("Bearer {}", made.output.trim()));
        servers.push(site.http().await);
        sites.push(site);
    }
    let desk = |node: usize| {
        let place: Value = serde_json::from_str(&sites[node].read("data/ledger.db.desk")).unwrap();
        let url = place["url"]
            .as_str()
            .unwrap()
            .strip_prefix("http://")
            .unwrap();
        HttpClient::new(url.parse().unwrap())
    };
    let ask = async |node: usize, request: HttpRequest| {
        let request = request.header("authorization", &keys[node]);
        let response = desk(node).exchange(&request).await;
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    };
    let get = |path: &str| HttpRequest::get(&format!("/admin/v1{path}"));
    let key = keys[0].clone();
    let mut client = knowing(servers[0].client().with_header("authorization", &key));
    let id = created(&mut client, "nap", json!({"seconds": 600})).await;
    let all = ask(1, get("/tasks")).await;
    let owner = &all["tasks"][0]["owner"];
    assert_eq!(
        (&owner["state"], &owner["has_lapsed"]),
        (&json!("alive"), &json!(false)),
        "{all}"
    );
    assert!(
        owner["name"].as_str().unwrap().starts_with("process "),
        "{all}"
    );
    let nodes = ask(1, get("/nodes")).await;
    let states: Vec<_> = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["state"].as_str().unwrap(), it["tasks"].as_u64().unwrap()))
        .collect();
    assert_eq!(states.len(), 2, "{nodes}");
    assert!(
        states.contains(&("alive", 1)) && states.contains(&("alive", 0)),
        "{nodes}"
    );

    let cancel = HttpRequest::post(&format!("/admin/v1/tasks/{id}/cancel"), "");
    assert_eq!(ask(1, cancel).await["outcome"], "cancelled");
    until(&mut client, &id, "cancelled").await;
    wait_until("it was stopped where it ran", GENEROUS, || {
        sites[0].read("naps").contains("cancelled")
    })
    .await;
    let acts = ask(0, get("/notes?kind=operator_acted")).await.to_string();
    assert!(acts.contains("task_cancel") && acts.contains(&id), "{acts}");

    // A server that stops says so.
    let mut first = servers.remove(0);
    first.process().signal("TERM").await;
    first.wait_exit(crate::support::END).await;
    let end = Instant::now() + GENEROUS;
    loop {
        let request = get("/nodes").header("authorization", &keys[1]);
        let nodes = desk(1).exchange(&request).await.json();
        let mut states = nodes["nodes"].as_array().unwrap().iter();
        if states.any(|it| it["state"] == "stopped" && it["is_this"] == false) {
            break;
        }
        assert!(Instant::now() < end, "{nodes}");
        sleep(Duration::from_millis(50)).await;
    }
}
