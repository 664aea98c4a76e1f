//! Calls of tools, reads and prompts: what reaches the upstream, and what comes back.

use crate::support::{
    GENEROUS, Site, call, call_as, is_alive, spec, state, text, tool, tools, until, url_spec,
};
use adapter_tools::{Askable, Content, Progress, ToolCx, ToolError};
use gateway::{Gateway, Reach, State, offered_uri, scheme_key};
use mcp_protocol::model::ReadResource;
use mcp_server::{PromptCx, PromptFailure, ReadFailure, ToolSource};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

#[tokio::test]
async fn tools_have_names_of_the_document_and_are_called_by_their_own() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up-one", site.upstream.path())]);
    assert_eq!(state(&gateway, "up-one"), State::Configured);
    assert!(tools(&gateway).is_empty());
    gateway.first_look(GENEROUS).await;
    assert_eq!(state(&gateway, "up-one"), State::Ready);

    let echo = tool(&gateway, "mcp_up_one_echo");
    assert_eq!(echo.description(), "[MCP:up-one] Does echo.");
    assert_eq!(echo.title(), Some("T echo"));
    assert_eq!(
        echo.icons(),
        [json!({"src": "https://example.com/echo.png"})]
    );
    let origin = &echo.meta()["io.owlclaw/upstream"];
    assert_eq!(
        (&origin["name"], &origin["tool"]),
        (&json!("up-one"), &json!("echo"))
    );
    // The word of the upstream is told, and not believed.
    assert_eq!(echo.annotations().read_only, None);
    assert_eq!(origin["annotations"]["readOnlyHint"], true);
    let cx = ToolCx::new("ana", "1");
    let meter = Arc::clone(cx.meter());
    let answer = call_as(&gateway, cx, "mcp_up_one_echo", json!({"text": "hi"}))
        .await
        .unwrap();
    assert_eq!(
        (text(&answer), &answer.meta["example.com/kept"]),
        ("hi", &json!(1))
    );
    assert_eq!(
        meter.place(),
        Some("upstream up-one, tool echo, revision 2025-11-25")
    );
    let unfit = tools(&gateway)
        .into_iter()
        .find(|it| it.name().starts_with("mcp_up_one_unfit_name_"))
        .unwrap();
    let answer = call(&gateway, unfit.name(), json!({})).await.unwrap();
    assert_eq!(text(&answer), "found");
    let answer = call(&gateway, "mcp_up_one_link", json!({})).await.unwrap();
    let Content::ResourceLink(link) = &answer.content[0] else {
        panic!()
    };
    assert_eq!(link.uri, "mcp.up-one+file:///a.txt");
    let annotations = link.about.annotations.clone().map(|it| Value::Object(*it));
    let said = json!({"audience": ["user"], "priority": 0.5});
    assert_eq!(annotations, Some(said), "without a time that is none");
    let Content::Resource { resource, about } = &answer.content[1] else {
        panic!()
    };
    assert_eq!(
        about.meta.clone().map(|it| Value::Object(*it)),
        Some(json!({
            "example.com/of": "block",
            "ui": {"resourceUri": "ui://mcp.up-one/app/x"},
        })),
        "without what only this server says"
    );
    assert_eq!(
        resource.meta.as_ref().map(|it| &it["example.com/of"]),
        Some(&json!("contents"))
    );
    let failed = call(&gateway, "mcp_up_one_fail", json!({})).await.unwrap();
    assert!(failed.is_error);
    match call(&gateway, "mcp_up_one_refuse", json!({})).await {
        Err(ToolError::Failed(failure)) => {
            assert!(failure.message.contains("not today"), "{failure}");
            assert_eq!(failure.details.unwrap()["data"]["why"], "closed");
        }
        other => panic!("{other:?}"),
    }
    gateway.shut_down().await;
    assert!(!is_alive(site.read("started").trim()));
}

#[tokio::test]
async fn a_call_whose_upstream_dies_is_lost_and_the_next_one_finds_another() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    for round in 1..=3 {
        let lost = call(&gateway, "mcp_up_die", json!({})).await;
        let Err(ToolError::Lost { message, .. }) = lost else {
            panic!("{lost:?}")
        };
        assert!(
            message.contains("outcome of the call is unknown"),
            "{message}"
        );
        let answer = call(&gateway, "mcp_up_echo", json!({"text": "hi"}))
            .await
            .unwrap();
        assert_eq!(text(&answer), "hi");
        // It was sent once.
        assert_eq!(site.read("count").len(), round);
    }
    let status = gateway.status();
    assert_eq!((status[0].calls_lost, status[0].connected), (3, 4));
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_bad_answer_ends_no_call_but_its_own_and_is_shown_to_no_other_client() {
    let site = Site::new();
    let (_server, url) = site.http().await;
    let child = Site::new();
    let gateway = site.gateway(vec![
        spec("child", child.upstream.path()),
        url_spec("http", &url),
    ]);
    gateway.first_look(GENEROUS).await;
    for (upstream, begun, bad) in [
        ("child", child.path("begun"), &["no number", "no text"][..]),
        (
            "http",
            site.path("begun"),
            &["no number", "no text", "503"][..],
        ),
    ] {
        let (slow, shape) = (
            format!("mcp_{upstream}_slow"),
            format!("mcp_{upstream}_shape"),
        );
        let other = call(&gateway, &slow, json!({"n": 3}));
        let all_bad = async {
            until("it runs", || begun.exists()).await;
            for what in bad {
                let lost = call(&gateway, &shape, json!({"text": what})).await;
                let Err(ToolError::Lost { message, detail }) = lost else {
                    panic!("{upstream}, {what}: {lost:?}")
                };
                let is_lost = message.contains("it answered with HTTP 503");
                assert_eq!(is_lost, *what == "503", "{upstream}, {what}: {message}");
                let status = format!("{:?} {:?} {detail}", gateway.status(), gateway.health());
                assert!(!status.contains("Jane"), "{upstream}, {what}: {status}");
                assert_eq!(state(&gateway, upstream) == State::Ready, !is_lost);
            }
        };
        let (answer, ()) = tokio::join!(other, all_bad);
        assert_eq!(text(&answer.unwrap()), "done", "{upstream}");
    }
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_call_that_a_busy_server_refuses_may_be_made_again_when_that_says() {
    let site = Site::new();
    let (_server, url) = site.http().await;
    let gateway = site.gateway(vec![url_spec("up", &url)]);
    gateway.first_look(GENEROUS).await;
    let busy = call(&gateway, "mcp_up_echo", json!({"text": "429"})).await;
    let Err(error @ ToolError::Unavailable { .. }) = busy else {
        panic!("{busy:?}")
    };
    assert!(error.is_retryable());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert!(error.to_string().contains("HTTP 429"), "{error}");
    assert_eq!(state(&gateway, "up"), State::Ready);
    gateway.shut_down().await;
}

#[tokio::test]
async fn progress_and_log_messages_reach_the_caller() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    let heard: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let said: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (hears, says) = (Arc::clone(&heard), Arc::clone(&said));
    let cx = ToolCx::new("ana", "1")
        .with_progress(Arc::new(move |it| hears.lock().unwrap().push(it)))
        .with_log(Arc::new(move |_, _, data| {
            says.lock().unwrap().push(data.clone())
        }));
    call_as(&gateway, cx.clone(), "mcp_up_progress", json!({}))
        .await
        .unwrap();
    assert_eq!(heard.lock().unwrap().len(), 3);
    call_as(&gateway, cx, "mcp_up_log", json!({}))
        .await
        .unwrap();
    assert_eq!(*said.lock().unwrap(), [json!("said")]);
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_there() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    {
        let slow = call(&gateway, "mcp_up_slow", json!({"n": 30}));
        let mut slow = std::pin::pin!(slow);
        tokio::select! {
            _ = &mut slow => panic!("it is slow"),
            () = until("it has begun", || !site.read("begun").is_empty()) => {}
        }
    }
    until("it is told", || !site.read("cancelled").is_empty()).await;
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_call_whose_task_is_forgotten_may_have_been_done() {
    let site = Site::new();
    site.set("forgets_tasks", true);
    let mut up = spec("up", site.upstream.path());
    if let Reach::Child { environment, .. } = &mut up.reach {
        environment.push(("REVISION".to_owned(), "2026-07-28".to_owned()));
    }
    let gateway = site.gateway(vec![up]);
    gateway.first_look(GENEROUS).await;
    let error = call(&gateway, "mcp_up_long", json!({"n": 600})).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ToolError::Lost { .. }), "{error:?}");
    assert!(site.read("tasks").contains("created task-1"));
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_connection_that_takes_all_of_a_calls_time_leaves_the_call_unsent() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    gateway.shut_down().await;
    // Its tools are known, and it is silent from the start.
    site.set("hang", true);
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    let time = Duration::from_secs(3);
    let cx = ToolCx::new("ana", "1").with_deadline(Instant::now() + time);
    let calling = call_as(&gateway, cx, "mcp_up_echo", json!({"text": "hi"}));
    // Whoever gives the call up then cannot know that nothing was sent.
    let error = tokio::time::timeout(time, calling).await.unwrap();
    let error = error.unwrap_err();
    assert!(matches!(error, ToolError::Unavailable { .. }), "{error:?}");
    gateway.shut_down().await;
}

#[tokio::test]
async fn structured_content_that_is_no_object_is_passed_on_and_seen_by_all_clients() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    for (arguments, told) in [(json!({"text": "x"}), "two"), (json!({}), "[1, 2]")] {
        let output = call(&gateway, "mcp_up_shape", arguments).await.unwrap();
        assert_eq!(output.structured.as_ref().unwrap().get(), "[1, 2]");
        assert_eq!(output.content.len(), 1);
        assert_eq!(text(&output), told);
    }
    gateway.shut_down().await;
}

#[tokio::test]
async fn what_an_upstream_says_of_a_read_or_a_prompt_that_fails_is_told_to_the_client() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    let read = async |gateway: &Gateway, uri: &str| {
        let read = ReadResource {
            uri: offered_uri(&scheme_key("up"), uri),
            ..ReadResource::default()
        };
        gateway.resources().unwrap().read(read).await.unwrap_err()
    };
    let greeted = async |gateway: &Gateway| {
        let cx = PromptCx {
            name: "mcp_up_greet".to_owned(),
            arguments: [("who".to_owned(), "nobody".to_owned())].into(),
            askable: Askable::default(),
            answers: Arc::default(),
            call: ToolCx::new("ana", "1"),
        };
        gateway.prompts().unwrap().get(cx).await.unwrap_err()
    };
    // Sessions that begin before an upstream is known have to be told that there are prompts.
    assert!(
        gateway
            .prompts()
            .is_some_and(|it| it.is_announced() && it.entries().is_empty())
    );
    assert!(site.gateway(Vec::new()).prompts().is_none());
    gateway.connect_all(GENEROUS).await;
    let burning = read(&gateway, "file:///burning").await;
    let ReadFailure::Told(said) = burning else {
        panic!("{burning:?}")
    };
    assert_eq!(said, "upstream `up`: the disk is on fire");
    let missing = read(&gateway, "file:///missing").await;
    assert!(matches!(missing, ReadFailure::NotFound), "{missing:?}");
    let nobody = greeted(&gateway).await;
    let PromptFailure::Told(said) = nobody else {
        panic!("{nobody:?}")
    };
    assert_eq!(said, "upstream `up`: there is nobody to greet");
    gateway.shut_down().await;
    // Known from before, and not to be reached now.
    site.set("broken", true);
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    let unread = read(&gateway, "file:///a.txt").await;
    assert!(
        matches!(unread, ReadFailure::Handler(ToolError::Unavailable { .. })),
        "{unread:?}"
    );
    let unsaid = greeted(&gateway).await;
    assert!(
        matches!(
            unsaid,
            PromptFailure::Handler(ToolError::Unavailable { .. })
        ),
        "{unsaid:?}"
    );
    gateway.shut_down().await;
}
