//! `subscriptions/listen`: what is heard, in which order, and how it ends.

use crate::house::{Program, WAYS, call};
use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpServer, MODERN, SseStream, StdioServer};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn filter(notifications: Value) -> Value {
    json!({ "notifications": notifications })
}

fn subscription(message: &Value) -> &Value {
    &message["params"]["_meta"][SUBSCRIPTION]
}

fn is_acknowledged(message: &Value, id: &Value, accepted: &Value) {
    assert_eq!(
        message["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(subscription(message), id);
    assert_eq!(message["params"]["notifications"], *accepted);
}

fn is_ended(message: &Value, id: &Value) {
    assert_eq!(message["id"], *id, "{message}");
    assert_eq!(message["result"]["resultType"], "complete", "{message}");
    assert_eq!(message["result"]["_meta"][SUBSCRIPTION], *id, "{message}");
}

async fn listen_over_http(server: &HttpServer, notifications: Value) -> (SseStream, Value) {
    let mut client = server.client();
    client.speak(MODERN);
    let message = client
        .voice
        .request("subscriptions/listen", filter(notifications));
    let stream = client.stream(&client.post_of(&message)).await;
    (stream, message["id"].clone())
}

async fn listen_over_stdio(server: &mut StdioServer, notifications: Value) -> Value {
    let message = server
        .voice
        .request("subscriptions/listen", filter(notifications));
    server.send(&message).await;
    message["id"].clone()
}

/// A change that happens as soon as the acknowledgement is seen is heard of; a change of another
/// list is not, whichever of the two comes first.
#[tokio::test]
async fn who_listens_hears_what_was_asked_for_and_nothing_else() {
    let rows = [
        ("toolsListChanged", "notifications/tools/list_changed"),
        ("promptsListChanged", "notifications/prompts/list_changed"),
    ];
    let changes = ["test_trigger_tool_change", "test_trigger_prompt_change"];
    for (wanted, expected) in rows {
        let wanted = json!({ wanted: true });
        let server = Program::Suite.http().await;
        let mut trigger = server.client();
        let (mut stream, id) = listen_over_http(&server, wanted.clone()).await;
        is_acknowledged(&stream.message().await, &id, &wanted);
        for tool in changes {
            let done = trigger
                .post_modern("tools/call", call(tool, json!({})))
                .await;
            let _ = done.result();
        }
        let heard = stream.message().await;
        assert_eq!(
            (&heard["method"], subscription(&heard)),
            (&json!(expected), &id)
        );

        let mut server = Program::Suite.stdio();
        server.open(MODERN).await;
        let id = listen_over_stdio(&mut server, wanted.clone()).await;
        is_acknowledged(&server.receive().await, &id, &wanted);
        let mut heard = Vec::new();
        for tool in changes {
            let done = server.request("tools/call", call(tool, json!({}))).await;
            heard.extend(done.earlier);
        }
        let listed = server.request("tools/list", Value::Null).await;
        heard.extend(listed.earlier);
        assert!(!heard.is_empty());
        for heard in heard {
            assert_eq!(
                (&heard["method"], subscription(&heard)),
                (&json!(expected), &id)
            );
        }
    }
}

/// Several on one connection are told apart, and giving one up leaves the others.
#[tokio::test]
async fn who_gives_up_listening_hears_no_more() {
    let mut server = Program::Suite.stdio();
    server.open(MODERN).await;
    let wanted = json!({ "toolsListChanged": true });
    let first = listen_over_stdio(&mut server, wanted.clone()).await;
    is_acknowledged(&server.receive().await, &first, &wanted);
    let second = listen_over_stdio(&mut server, wanted.clone()).await;
    is_acknowledged(&server.receive().await, &second, &wanted);
    let cancelled = json!({ "requestId": first });
    server.notify("notifications/cancelled", cancelled).await;
    let change = call("test_trigger_tool_change", json!({}));
    let changed = server.request("tools/call", change).await;
    let listed = server.request("tools/list", Value::Null).await;
    let heard: Vec<_> = changed.earlier.iter().chain(&listed.earlier).collect();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(subscription(heard[0]), &second);
}

#[tokio::test]
async fn a_server_told_to_stop_ends_what_is_listened_to_gracefully() {
    let mut server = Program::Fixture.http().await;
    let wanted = json!({ "toolsListChanged": true });
    let mut streams = Vec::new();
    for _ in 0..5 {
        let (mut stream, id) = listen_over_http(&server, wanted.clone()).await;
        is_acknowledged(&stream.message().await, &id, &wanted);
        streams.push((stream, id));
    }
    server.process().signal("TERM").await;
    for (mut stream, id) in streams {
        let rest = stream.rest().await;
        assert_eq!(rest.len(), 1, "{rest:?}");
        is_ended(&rest[0], &id);
    }
    assert!(server.wait_exit(GENEROUS).await.success());

    for told in ["TERM", "end of input"] {
        let mut server = Program::Fixture.stdio();
        server.open(MODERN).await;
        let id = listen_over_stdio(&mut server, wanted.clone()).await;
        is_acknowledged(&server.receive().await, &id, &wanted);
        match told {
            "TERM" => server.process().signal("TERM").await,
            _ => server.close_input(),
        }
        let rest = server.receive_rest().await;
        assert!(!rest.is_empty(), "{told}");
        is_ended(&rest[0], &id);
        assert!(server.wait_exit(GENEROUS).await.success());
    }
}

/// Without tasks on offer, ids of tasks have no meaning, and a subscription to them is not
/// acknowledged.
#[tokio::test]
async fn what_is_not_offered_cannot_be_listened_to() {
    let wanted = json!({
        "toolsListChanged": true,
        "promptsListChanged": true,
        "taskIds": ["t"],
        "somethingNew": true,
    });
    let accepted = json!({ "toolsListChanged": true });
    let server = Program::Fixture.http().await;
    let (mut stream, id) = listen_over_http(&server, wanted.clone()).await;
    is_acknowledged(&stream.message().await, &id, &accepted);
    let mut server = Program::Fixture.stdio();
    server.open(MODERN).await;
    let id = listen_over_stdio(&mut server, wanted).await;
    is_acknowledged(&server.receive().await, &id, &accepted);
}
#[tokio::test]
async fn tasks_are_listened_to_by_those_who_know_tasks() {
    for way in WAYS {
        let mut peer = Program::Suite.open(way, MODERN, "{}").await;
        let params = filter(json!({ "taskIds": ["t"], "toolsListChanged": true }));
        let answer = peer.ask("subscriptions/listen", params).await;
        assert_eq!(answer.earlier, Vec::<Value>::new());
        answer.is_error(-32021, 400, "no tasks declared");
        let required = &answer.response["error"]["data"]["requiredCapabilities"];
        let extension = &required["extensions"]["io.modelcontextprotocol/tasks"];
        assert!(extension.is_object(), "{required}");
    }
}
