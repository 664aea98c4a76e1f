//! Calls of Python handlers that go on after they were answered.

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpClient, MODERN, wait_until};

use crate::support::{END, Site, call, run, text};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A client that knows tasks.
pub(super) fn knowing(mut client: HttpClient) -> HttpClient {
    client.speak(MODERN);
    client.voice.capabilities = json!({"extensions": {EXTENSION: {}}});
    client
}

pub(super) async fn created(client: &mut HttpClient, tool: &str, arguments: Value) -> String {
    let answer = client
        .post_modern("tools/call", call(tool, arguments))
        .await;
    let result = answer.result();
    assert_eq!(result["resultType"], "task", "{result}");
    assert_eq!(result["status"], "working");
    result["taskId"].as_str().unwrap().to_owned()
}

pub(super) async fn task(client: &mut HttpClient, id: &str) -> Value {
    let answer = client.post_modern("tasks/get", json!({"taskId": id})).await;
    answer.result().clone()
}

/// Waits for the end of a task as the server tells of it, which is what asking for it says as well.
pub(super) async fn ended(client: &mut HttpClient, id: &str) -> Value {
    let wanted = json!({"notifications": {"taskIds": [id]}});
    let listen = client.voice.request("subscriptions/listen", wanted);
    let mut stream = client.stream(&client.post_of(&listen)).await;
    loop {
        let told = stream.message().await;
        if told["method"] == "notifications/tasks" && told["params"]["status"] != "working" {
            let task = task(client, id).await;
            assert_eq!(told["params"]["status"], task["status"]);
            return task;
        }
    }
}

#[tokio::test]
async fn a_handler_that_takes_long_becomes_a_task_for_those_who_know_them() {
    let site = Site::new(json!({"tasks": {"after_seconds": 0}}));
    let server = site.http().await;
    let mut client = knowing(server.client());
    let id = created(&mut client, "nap", json!({"seconds": 0.3})).await;
    let task = ended(&mut client, &id).await;
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(text(&task["result"]), "rested");
    assert_eq!(site.outcomes("nap"), ["succeeded"]);

    let mut waiting = server.client();
    waiting.speak(MODERN);
    let answer = waiting
        .post_modern("tools/call", call("nap", json!({"seconds": 0.3})))
        .await;
    assert_eq!(text(answer.result()), "rested");
}

#[tokio::test]
async fn a_task_is_cancelled_and_its_handler_with_it() {
    let site = Site::new(json!({"tasks": {"after_seconds": 0}}));
    let server = site.http().await;
    let mut client = knowing(server.client());
    for (tool, file, mark) in [
        ("nap", "naps", "cancelled"),
        ("block", "blocks", "interrupted"),
    ] {
        let id = created(&mut client, tool, json!({"seconds": 60})).await;
        wait_until("it runs", GENEROUS, || site.read(file).contains("begun")).await;
        let done = client
            .post_modern("tasks/cancel", json!({"taskId": id}))
            .await;
        assert_eq!(done.result()["resultType"], "complete");
        assert_eq!(task(&mut client, &id).await["status"], "cancelled");
        wait_until("it was stopped", GENEROUS, || {
            site.read(file).contains(mark)
        })
        .await;
        // The handler hears of it before the record does.
        wait_until("it is recorded", GENEROUS, || {
            site.outcomes(tool) == ["cancelled"]
        })
        .await;
    }
    // What was done to tasks is on record, and is no call of the tool.
    let about = site.calls().into_iter();
    let about = about.filter(|it| it.started.method == "tasks/cancel");
    let about: Vec<_> = about.map(|it| it.started.capability).collect();
    assert_eq!(about, ["task/nap", "task/block"]);
}

#[tokio::test]
async fn what_came_of_a_task_outlives_the_server_and_what_it_cut_short_is_said() {
    let site = Site::new(json!({
        "tasks": {"after_seconds": 0}, "shutdown": {"drain_seconds": 2},
    }));
    let mut server = site.http().await;
    let mut client = knowing(server.client());
    let done = created(&mut client, "nap", json!({"seconds": 0.1})).await;
    ended(&mut client, &done).await;
    let cut_short = created(&mut client, "nap", json!({"seconds": 600})).await;
    server.process().signal("KILL").await;
    server.wait_exit(GENEROUS).await;

    let mut server = site.http().await;
    let mut client = knowing(server.client());
    assert_eq!(text(&task(&mut client, &done).await["result"]), "rested");
    // Nothing says that its handler may be called twice.
    let failed = ended(&mut client, &cut_short).await;
    assert_eq!(failed["status"], "failed", "{failed}");
    let why = "the server stopped before the call had ended";
    assert_eq!(failed["error"]["message"], why);
    assert_eq!(failed["error"]["data"]["retryable"], false);

    // Told to stop, it says so itself, and ends in time.
    let running = created(&mut client, "nap", json!({"seconds": 600})).await;
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let server = site.http().await;
    let mut client = knowing(server.client());
    let failed = task(&mut client, &running).await;
    assert_eq!(failed["error"]["message"], why, "{failed}");
    let calls = site.calls();
    let last = calls.last().unwrap().call.to_string();
    assert_eq!(failed["error"]["data"]["call"], last, "{failed}");
    assert_eq!(site.outcomes("nap"), ["succeeded", "unknown", "cancelled"]);
}

/// Until the handler was entered so often.
async fn looked_up(site: &Site, times: usize) {
    wait_until("it runs", GENEROUS, || {
        site.read("looked-up").lines().count() == times
    })
    .await;
}

#[tokio::test]
async fn an_idempotent_call_is_begun_again_after_the_server_was_killed_or_stopped() {
    let site = Site::new(json!({
        "tasks": {"after_seconds": 0}, "shutdown": {"drain_seconds": 2},
    }));
    site.skill("c", "look-up", "owlclaw: {idempotent: true}\n");
    let mut server = site.http().await;
    let mut client = knowing(server.client());
    let id = created(&mut client, "look-up", json!({"what": "her order"})).await;
    looked_up(&site, 1).await;
    let stored = || std::fs::read(site.path("ledger-tasks.db-wal")).unwrap_or_default();
    let has_arguments = |bytes: &[u8]| bytes.windows(9).any(|it| it == b"her order");
    assert!(has_arguments(&stored()));
    server.process().signal("KILL").await;
    server.wait_exit(GENEROUS).await;

    // Told to stop, it leaves what was not done in time to the next one.
    let mut server = site.http().await;
    let mut client = knowing(server.client());
    looked_up(&site, 2).await;
    assert_eq!(task(&mut client, &id).await["status"], "working");
    server.process().signal("TERM").await;
    server.wait_exit(END + END).await;

    let mut server = site.http().await;
    let mut client = knowing(server.client());
    looked_up(&site, 3).await;
    assert_eq!(task(&mut client, &id).await["status"], "working");
    site.write("gate", "");
    let task = ended(&mut client, &id).await;
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(
        task["result"]["structuredContent"],
        json!({"found": "her order"})
    );
    assert_eq!(
        site.outcomes("look-up"),
        ["unknown", "cancelled", "succeeded"]
    );
    let calls = site.calls().into_iter();
    let mut requests = calls.map(|it| it.started.request_id).skip(1);
    assert_eq!(requests.next(), Some(format!("\"task/{id}/2\"")));
    assert_eq!(requests.next(), Some(format!("\"task/{id}/3\"")));
    // What the call was is not kept longer than it takes.
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let kept = std::fs::read(site.path("ledger-tasks.db")).unwrap();
    let arguments = br#"{"arguments":{"what":"her order"}"#;
    assert!(!kept.windows(arguments.len()).any(|it| it == arguments));
}

#[tokio::test]
async fn a_call_that_kills_the_server_again_and_again_is_given_up() {
    let site = Site::new(json!({"tasks": {"after_seconds": 0, "max_attempts": 2}}));
    site.skill("c", "look-up", "owlclaw: {read_only: true}\n");
    let mut server = site.http().await;
    let mut client = knowing(server.client());
    let id = created(&mut client, "look-up", json!({"what": "x"})).await;
    for attempt in 1..=2 {
        looked_up(&site, attempt).await;
        server.process().signal("KILL").await;
        server.wait_exit(GENEROUS).await;
        server = site.http().await;
    }
    let mut client = knowing(server.client());
    let task = ended(&mut client, &id).await;
    assert_eq!(task["status"], "failed", "{task}");
    assert_eq!(task["error"]["data"]["retryable"], false);
    assert_eq!(site.outcomes("look-up"), ["unknown", "unknown"]);
    assert_eq!(site.read("looked-up").lines().count(), 2);
}

#[tokio::test]
async fn on_pipes_the_next_server_goes_on_with_tasks_of_2025_11_25() {
    let site = Site::new(json!({}));
    site.skill("c", "look-up", "owlclaw: {idempotent: true}\n");
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    let mut params = call("look-up", json!({"what": "x"}));
    params["task"] = json!({"ttl": 600_000});
    let created = server.request("tools/call", params).await;
    let id = created.result()["task"]["taskId"].clone();
    looked_up(&site, 1).await;
    server.process().signal("KILL").await;
    server.wait_exit(GENEROUS).await;

    let mut server = site.stdio();
    server.open("2025-11-25").await;
    let params = json!({"taskId": id});
    let waiting = server.voice.request("tasks/result", params.clone());
    server.send(&waiting).await;
    let task = server.request("tasks/get", params).await;
    assert_eq!(task.result()["status"], "working");
    looked_up(&site, 2).await;
    site.write("gate", "");
    let answer = server.receive_answer(&waiting["id"]).await;
    assert_eq!(
        answer["result"]["structuredContent"],
        json!({"found": "x"}),
        "{answer}"
    );
}

#[tokio::test]
async fn on_pipes_clients_of_2025_11_25_choose_and_list() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    let opened = server.open("2025-11-25").await;
    let offered = &opened["capabilities"]["tasks"];
    let all = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
    assert_eq!(offered, &all);
    let mut params = call("nap", json!({"seconds": 0.2}));
    params["task"] = json!({"ttl": 60_000});
    let created = server.request("tools/call", params).await;
    let task = &created.result()["task"];
    assert_eq!(
        (&task["status"], &task["ttl"]),
        (&json!("working"), &json!(60_000))
    );
    let id = task["taskId"].clone();
    let result = server.request("tasks/result", json!({"taskId": id})).await;
    assert_eq!(text(result.result()), "rested");
    let listed = server.request("tasks/list", json!({})).await;
    let listed = &listed.result()["tasks"][0];
    assert_eq!(
        (&listed["taskId"], &listed["status"]),
        (&id, &json!("completed"))
    );
}

#[tokio::test]
async fn over_http_nobody_can_list_and_what_is_not_offered_does_not_exist() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let mut client = server.client();
    let opened = client.initialize("2025-11-25").await;
    assert_eq!(opened.result()["capabilities"]["tasks"].get("list"), None);
    assert_eq!(
        client.post_legacy("tasks/list", json!({})).await.code(),
        -32601
    );
    drop(server);

    let site = Site::new(json!({"tasks": {"enabled": false}}));
    let server = site.http().await;
    let mut client = knowing(server.client());
    let answer = client
        .post_modern("tasks/get", json!({"taskId": "x"}))
        .await;
    assert_eq!(answer.code(), -32601);
    assert!(!site.path("ledger-tasks.db").exists());
}

#[tokio::test]
async fn a_file_that_is_no_task_store_is_left_alone() {
    let site = Site::new(json!({"tasks": {"path": "elsewhere/tasks.db"}}));
    site.write("elsewhere/tasks.db", "something else");
    let said = run(site.command(&["start"])).await;
    assert_eq!(said.code, Some(1), "{}", said.messages);
    let last = said.messages.lines().last().unwrap();
    assert!(last.contains("is not a task store"), "{last}");
    assert_eq!(site.read("elsewhere/tasks.db"), "something else");
}
