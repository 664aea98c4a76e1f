//! Lists of upstreams: how they are read, kept, cleaned and read again.

use crate::support::{
    ALL, GENEROUS, Site, call, call_as, speaking, spec, state, text, tool, tools, until,
};
use adapter_skills::SkillCatalog;
use adapter_tools::{Askable, Content, Progress, Question, Tool, ToolCx, ToolError};
use gateway::{Reach, State, UpstreamSpec, offered_uri, scheme_key};
use mcp_protocol::model::{Complete, CompletionReference, ReadResource};
use mcp_server::{PromptCx, ToolSource};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::time::sleep;

#[tokio::test]
async fn lists_come_from_what_is_stored_and_wait_for_no_upstream() {
    let site = Site::new();
    let specs = || vec![spec("up", site.upstream.path())];
    let gateway = site.gateway(specs());
    gateway.first_look(GENEROUS).await;
    let before: Vec<String> = tools(&gateway)
        .iter()
        .map(|it| it.name().to_owned())
        .collect();
    gateway.shut_down().await;
    for entry in fs::read_dir(site.stored()).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(
        fs::metadata(site.stored()).unwrap().permissions().mode() & 0o777,
        0o700
    );

    // It never answers again.
    site.set("hang", true);
    let began = Instant::now();
    let gateway = site.gateway(specs());
    gateway.first_look(GENEROUS).await;
    let after: Vec<String> = tools(&gateway)
        .iter()
        .map(|it| it.name().to_owned())
        .collect();
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(after, before);
    assert_eq!(state(&gateway, "up"), State::Known);
    assert_eq!(site.read("started").lines().count(), 1);

    // Another server under the same name has other lists.
    let mut other = spec("up", site.upstream.path());
    let Reach::Child { arguments, .. } = &mut other.reach else {
        panic!()
    };
    arguments.insert(0, "-u".to_owned());
    gateway.apply(vec![other]);
    assert!(tools(&gateway).is_empty());
    gateway.shut_down().await;
}

#[tokio::test]
async fn items_without_a_name_and_with_texts_that_are_too_long_are_left_out() {
    let site = Site::new();
    site.set("wordy", true);
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    let left_out = gateway.status()[0].left_out.join("\n");
    assert!(left_out.contains("its name is empty"), "{left_out}");
    assert!(
        left_out.contains("has 20000 bytes, of at most 16384"),
        "{left_out}"
    );
    // One cannot be called, and counts as none that is offered.
    let status = gateway.status().remove(0);
    let [broken] = &status.unusable[..] else {
        panic!("{status:?}")
    };
    assert!(broken.contains("mcp_up_broken"), "{broken}");
    let (set, _) = adapter_tools::ToolSet::collect(tools(&gateway));
    assert_eq!(status.tools, set.len());
    let names = tools(&gateway);
    let is_odd = |it: &Tool| matches!(it.name(), "mcp_up_" | "mcp_up_wordy");
    assert!(!names.iter().any(is_odd));
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_list_that_changes_is_read_again_and_told() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    let mut changes = gateway.changes().unwrap();
    changes.mark_unchanged();
    call(&gateway, "mcp_up_grow", json!({})).await.unwrap();
    tokio::time::timeout(GENEROUS, changes.changed())
        .await
        .unwrap()
        .unwrap();
    let answer = call(&gateway, "mcp_up_grown", json!({})).await.unwrap();
    assert_eq!(text(&answer), "new");
    // The program begins anew, and without the tool.
    gateway.recheck("up").await.unwrap();
    // A list that is what it was changes nothing.
    changes.mark_unchanged();
    gateway.recheck("up").await.unwrap();
    assert!(!changes.has_changed().unwrap());
    gateway.shut_down().await;
}

#[tokio::test]
async fn what_is_held_is_not_subscribed_to_until_it_is_released() {
    const A: &str = "mcp.up+file:///a.txt";
    for revision in ["2025-11-25", "2026-07-28"] {
        let site = Site::new();
        let free = speaking(spec("up", site.upstream.path()), revision);
        let held = UpstreamSpec {
            hold: vec!["*".to_owned()],
            ..free.clone()
        };
        let gateway = site.gateway(vec![held.clone()]);
        let hear = async || gateway.resources().unwrap().hear(A).await;
        let subscribed = || site.read("subscribed").matches("file:///a.txt").count();
        let mut updates = gateway.updates();
        gateway.connect_all(GENEROUS).await;
        gateway.listen_to([A.to_owned()].into());
        let refused = hear().await.unwrap_err();
        assert!(refused.contains("held back by its operator"), "{refused}");
        assert_eq!(subscribed(), 0);
        // What could not be subscribed to may have changed meanwhile.
        gateway.apply(vec![free.clone()]);
        assert_eq!(updates.recv().await.unwrap(), A);
        hear().await.unwrap();
        assert_eq!(subscribed(), 1, "{}", site.read("subscribed"));
        let before = tool(&gateway, "mcp_up_touch");
        let uri = json!({"text": "file:///a.txt"});
        call(&gateway, "mcp_up_touch", uri).await.unwrap();
        assert_eq!(updates.recv().await.unwrap(), A);

        gateway.apply(vec![held]);
        gateway.connect_all(GENEROUS).await;
        // Another look at what is listened to, as when another client begins to listen.
        gateway.listen_to([A.to_owned(), "mcp.up+file:///b.txt".to_owned()].into());
        assert!(hear().await.is_err());
        drop(before);
        sleep(Duration::from_millis(500)).await;
        assert_eq!(subscribed(), 1, "{}", site.read("subscribed"));
        assert!(updates.try_recv().is_err());
        gateway.apply(vec![free]);
        assert_eq!(updates.recv().await.unwrap(), A);
        gateway.shut_down().await;
    }
}

#[tokio::test]
async fn what_is_not_offered_any_more_is_not_subscribed_to() {
    const A: &str = "mcp.up+file:///a.txt";
    for revision in ["2025-11-25", "2026-07-28"] {
        let site = Site::new();
        let all = speaking(spec("up", site.upstream.path()), revision);
        let gateway = site.gateway(vec![all.clone()]);
        gateway.connect_all(GENEROUS).await;
        let noted = |uri: &str| site.read("subscribed").matches(uri).count();
        gateway.resources().unwrap().hear(A).await.unwrap();
        let b = "mcp.up+file:///b.txt";
        gateway.listen_to([A.to_owned(), b.to_owned()].into());
        until("both are subscribed to", || 1 <= noted("/b.txt")).await;
        let before = noted("/a.txt");
        gateway.apply(vec![UpstreamSpec {
            deny: vec!["file:///a*".to_owned()],
            ..all
        }]);
        let of_b = noted("/b.txt");
        until("the other is subscribed to again", || {
            of_b < noted("/b.txt")
        })
        .await;
        assert_eq!(noted("/a.txt"), before, "{}", site.read("subscribed"));
        gateway.shut_down().await;
    }
}

#[tokio::test]
async fn a_definition_that_cannot_be_used_is_told_and_the_others_are_offered() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    let (set, problems) = adapter_tools::ToolSet::collect(tools(&gateway));
    assert!(set.get("mcp_up_echo").is_some());
    let [problem] = &problems[..] else {
        panic!("{problems:?}")
    };
    assert_eq!(problem.name, "mcp_up_broken");
    gateway.shut_down().await;
}

#[tokio::test]
async fn an_item_of_a_list_that_does_not_fit_hides_no_other_and_is_named() {
    let site = Site::new();
    site.set("odd", true);
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    // Of two of one name the first is offered.
    let echo = tool(&gateway, "mcp_up_echo");
    assert!(echo.description().ends_with("Does echo."));
    let is_there = |name: &str| tools(&gateway).iter().any(|it| it.name() == name);
    assert!(is_there("mcp_up_who_asks") && !is_there("mcp_up_flat"));
    assert_eq!(gateway.prompts().unwrap().entries().len(), 1);
    assert_eq!(gateway.resources().unwrap().entries().len(), 2);
    assert_eq!(gateway.resources().unwrap().templates().len(), 1);
    let left_out = gateway.status()[0].left_out.clone();
    assert_eq!(left_out.len(), 8, "{left_out:#?}");
    for part in [
        "tool number 1 of its page: missing field `name`",
        "tool number 2 of its page: invalid type",
        "tool `flat`: not an object",
        "tool number 4 of its page: invalid type: string",
        "tool `echo`: an item before it in the list has the same name",
        "prompt `greet`: invalid type",
        "resource number 1 of its page: invalid type",
        "template number 1 of its page: missing field `uriTemplate`",
    ] {
        let is_told = left_out.iter().any(|it| it.starts_with(part));
        assert!(is_told, "{part}: {left_out:#?}");
    }
    let health = gateway.health().unwrap();
    let detail = health.detail.unwrap_or_default();
    assert!(!health.ok && detail.contains("8 items"), "{detail}");
    let lost = ToolSource::tools(&gateway, &SkillCatalog::default()).lost;
    assert!(lost.iter().any(|it| it.tool == "flat"), "{lost:?}");
    gateway.shut_down().await;
    // What is stored says the same, and a list that is none changes nothing.
    site.set("no_list", true);
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    assert_eq!(gateway.status()[0].left_out, left_out);
    gateway.recheck("up").await.unwrap_err();
    assert_eq!(state(&gateway, "up"), State::Degraded);
    assert!(tools(&gateway).iter().any(|it| it.name() == "mcp_up_echo"));
    // It is over when the upstream says what fits.
    site.set("no_list", false);
    site.set("odd", false);
    gateway.recheck("up").await.unwrap();
    assert!(gateway.status()[0].left_out.is_empty());
    assert!(gateway.health().unwrap().ok);
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_list_that_is_refused_is_a_fault_and_the_one_before_is_kept() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    let templates = || gateway.resources().unwrap().templates().len();
    fs::write(site.path("refused"), "resources/templates/list -32601").unwrap();
    gateway.first_look(GENEROUS).await;
    // Not every server with resources has templates.
    assert_eq!((state(&gateway, "up"), templates()), (State::Ready, 0));
    site.set("refused", false);
    gateway.recheck("up").await.unwrap();
    assert_eq!((state(&gateway, "up"), templates()), (State::Ready, 1));
    for list in [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        fs::write(site.path("refused"), format!("{list} -32603")).unwrap();
        let why = gateway.recheck("up").await.unwrap_err();
        assert!(why.contains("not now"), "{why}");
        let status = gateway.status().remove(0);
        assert_eq!(status.state, State::Degraded, "{list}");
        assert!(status.error.unwrap().contains("not now"), "{list}");
        assert_eq!((templates(), status.prompts), (1, 1), "{list}");
    }
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_modern_upstream_whose_stream_of_changes_ends_is_asked_for_another() {
    let site = Site::new();
    let mut spec = spec("up", site.upstream.path());
    if let Reach::Child { environment, .. } = &mut spec.reach {
        environment.push(("REVISION".to_owned(), "2026-07-28".to_owned()));
    }
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    until("it listens", || site.read("subscribed").contains("listen")).await;
    // A change while nobody listens is found, and so is one afterwards.
    call(&gateway, "mcp_up_hang_up", json!({})).await.unwrap();
    let is_there = |name: &str| tools(&gateway).iter().any(|it| it.name() == name);
    until("it is listed", || is_there("mcp_up_unheard")).await;
    call(&gateway, "mcp_up_grow", json!({})).await.unwrap();
    until("it is told", || is_there("mcp_up_grown")).await;
    gateway.shut_down().await;
}

#[tokio::test]
async fn texts_of_an_upstream_are_cleaned_on_every_way_and_the_record_says_so() {
    let site = Site::new();
    site.set("dirty", true);
    let mut as_is = spec("raw", site.upstream.path());
    as_is.cleans_results = false;
    let gateway = site.gateway(vec![spec("up", site.upstream.path()), as_is]);
    gateway.connect_all(GENEROUS).await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (logged, reported) = (Arc::clone(&heard), Arc::clone(&heard));
    let cx = ToolCx::new("ana", "1")
        .with_log(Arc::new(move |_, logger, data| {
            let mut logged = logged.lock().unwrap();
            logged.push(logger.unwrap().to_owned());
            logged.push(data["said"].as_str().unwrap().to_owned());
        }))
        .with_progress(Arc::new(move |it: Progress| {
            reported.lock().unwrap().push(it.message.unwrap());
        }));
    let meter = Arc::clone(cx.meter());
    let output = call_as(&gateway, cx, "mcp_up_dirty", json!({}))
        .await
        .unwrap();
    let told = format!("{output:?}");
    assert!(
        !told.contains("u{1b}") && !told.contains("[31m") && !told.contains("u{202e}"),
        "{told}"
    );
    let Content::Text { text, .. } = &output.content[0] else {
        panic!()
    };
    assert_eq!(text, "abc");
    let structured = output.structured.unwrap();
    assert_eq!(
        structured.get(),
        r#"{"deep": ["abc"], "n": 1.2345678901234567e+19}"#
    );
    assert_eq!(*heard.lock().unwrap(), ["abc", "abc", "abc"]);
    let record = meter.told().unwrap();
    assert!(
        record.contains("invisible characters were removed"),
        "{record}"
    );

    let Err(ToolError::Failed(failure)) =
        call(&gateway, "mcp_up_dirty", json!({"text": "error"})).await
    else {
        panic!()
    };
    assert_eq!(failure.message, "upstream `up`: abc");
    assert_eq!(failure.details.unwrap()["data"]["why"], "abc");
    let cx = ToolCx::new("ana", "1").with_answers(ALL, None);
    let Err(ToolError::NeedsInput(needed)) =
        call_as(&gateway, cx, "mcp_up_dirty", json!({"text": "ask"})).await
    else {
        panic!()
    };
    let Question::Form { message, schema } = needed.questions.values().next().unwrap() else {
        panic!()
    };
    let text = schema.as_str();
    assert!(text.find("\"n\":") < text.find("\"a\":"), "{text}");
    let schema = schema.value();
    assert_eq!(
        (&**message, &schema["properties"]["n"]["description"]),
        ("abc", &json!("abc"))
    );
    // Values that clients send back are as they are.
    assert_ne!(schema["properties"]["n"]["enum"][0], "abc");

    let read = async |upstream: &str| {
        let uri = offered_uri(&scheme_key(upstream), "file:///dirty");
        let read = ReadResource {
            uri,
            ..ReadResource::default()
        };
        let page = gateway.resources().unwrap().read(read).await.unwrap();
        let about = page
            .meta
            .get("io.owlclaw/resource")
            .map(|it| it.as_str().to_owned());
        (page.contents[0].text.clone().unwrap(), about)
    };
    // Who reads it is told that it is not what the upstream has.
    let (text, about) = read("up").await;
    assert_eq!(text, "abc");
    assert!(about.is_some_and(|it| it.starts_with("{\"takenOut\":")));
    let (text, about) = read("raw").await;
    assert!(text != "abc" && about.is_none());
    let prompt = |upstream: &str| PromptCx {
        name: format!("mcp_{upstream}_greet"),
        arguments: [("who".to_owned(), "Ana".to_owned())].into(),
        askable: Askable::default(),
        answers: Arc::default(),
        call: ToolCx::new("ana", "1"),
    };
    let prompts = gateway.prompts().unwrap();
    let said = format!("{:?}", prompts.get(prompt("up")).await.unwrap().messages);
    assert!(said.contains("\"abc\""), "{said}");
    let complete = Complete {
        reference: CompletionReference::Prompt {
            name: "mcp_up_greet".to_owned(),
        },
        argument: "who".to_owned(),
        value: "A".to_owned(),
        context: BTreeMap::new(),
    };
    let suggested = prompts.suggest(ToolCx::new("ana", "1"), &complete).await;
    assert_eq!(suggested.unwrap().values, ["abc"]);
    // Names of resources and templates are for people, and nothing is found by them.
    let resources = gateway.resources().unwrap();
    let listed = resources.entries().iter().map(|it| &it.resource.name);
    let families = resources.templates().iter().map(|it| &it.name);
    let mut names: Vec<_> = listed.chain(families).filter(|it| *it != "x").collect();
    assert_eq!(names.len(), 4);
    names.dedup();
    assert_eq!(names, ["abc"]);
    let output = call(&gateway, "mcp_raw_dirty", json!({})).await.unwrap();
    assert!(format!("{output:?}").contains("u{202e}"));
    gateway.shut_down().await;
}
