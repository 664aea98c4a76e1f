//! Connections to upstreams: when they are opened and ended, and whose they are.

use crate::support::{
    ALL, GENEROUS, Site, asking, call, call_as, is_alive, spec, state, text, tool, tools, until,
    url_spec,
};
use adapter_tools::{Askable, ToolCx, ToolError};
use bytes::Bytes;
use gateway::{Isolation, Reach, State, UpstreamSpec};
use mcp_server::ToolSource;
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;

#[tokio::test]
async fn a_dead_or_hanging_upstream_delays_no_other_and_says_what_is_wrong() {
    let site = Site::new();
    let dead = Site::new();
    dead.set("broken", true);
    let hanging = Site::new();
    hanging.set("hang", true);
    let gone = UpstreamSpec::new(
        "gone",
        Reach::Child {
            program: "/no/such/program".to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
        },
    );
    let specs = vec![
        spec("dead", dead.upstream.path()),
        gone,
        spec("hanging", hanging.upstream.path()),
        spec("up", site.upstream.path()),
    ];
    let gateway = site.gateway(specs);
    let began = Instant::now();
    gateway.first_look(Duration::from_secs(8)).await;
    assert!(began.elapsed() < Duration::from_secs(16));
    let answer = call(&gateway, "mcp_up_echo", json!({"text": "hi"}))
        .await
        .unwrap();
    assert_eq!(text(&answer), "hi");
    let status = gateway.status();
    let of = |name: &str| status.iter().find(|it| it.name == name).unwrap();
    assert_eq!(of("hanging").state, State::Connecting);
    assert_eq!(of("dead").state, State::Degraded);
    assert!(
        of("dead").error.as_ref().unwrap().contains("no licence"),
        "{:?}",
        of("dead")
    );
    assert_eq!(of("gone").state, State::Degraded);
    let health = gateway.health().unwrap();
    assert!(!health.ok && health.detail.unwrap().contains("gone degraded"));
    gateway.shut_down().await;
}

#[tokio::test]
async fn an_upstream_that_ends_at_the_probe_is_started_anew_and_not_probed_again() {
    let site = Site::new();
    site.set("strict", true);
    for starts in [2, 3] {
        let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
        gateway.first_look(GENEROUS).await;
        let arguments = json!({"text": "hi"});
        let answer = call(&gateway, "mcp_up_echo", arguments).await.unwrap();
        assert_eq!(text(&answer), "hi");
        let status = gateway.status();
        assert_eq!(status[0].state, State::Ready, "{:?}", status[0].error);
        // What the first gateway has learnt is stored with the lists.
        assert_eq!(site.read("started").lines().count(), starts);
        gateway.shut_down().await;
    }
}

#[tokio::test]
async fn one_attempt_is_made_for_many_and_all_share_one_child() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    call(&gateway, "mcp_up_die", json!({})).await.unwrap_err();
    let started = site.read("started").lines().count();
    let calls = (0..20).map(|at| {
        let cx = ToolCx::new(format!("client-{at}"), "1");
        call_as(&gateway, cx, "mcp_up_pid", json!({}))
    });
    let answers = futures_util::future::join_all(calls).await;
    let mut pids: Vec<_> = answers
        .iter()
        .map(|it| text(it.as_ref().unwrap()).to_owned())
        .collect();
    pids.dedup();
    assert_eq!(pids.len(), 1);
    assert_eq!(site.read("started").lines().count(), started + 1);
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_client_of_its_own_has_a_child_of_its_own() {
    let site = Site::new();
    let mut spec = spec("up", site.upstream.path());
    spec.isolation = Isolation::PerClient;
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    let mut pids = Vec::new();
    for client in ["ana", "bob", "ana"] {
        let cx = ToolCx::new(client, "1");
        let answer = call_as(&gateway, cx, "mcp_up_pid", json!({}))
            .await
            .unwrap();
        pids.push(text(&answer).to_owned());
    }
    assert!(pids[0] == pids[2] && pids[0] != pids[1], "{pids:?}");
    gateway.shut_down().await;
    assert!(!pids.iter().any(|it| is_alive(it)));
}

#[tokio::test]
async fn one_client_leaves_room_for_connections_of_others() {
    let site = Site::new();
    let (_server, url) = site.http().await;
    let mut spec = url_spec("up", &url);
    spec.isolation = Isolation::PerSession;
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    let call = async |client: &str, session: usize| {
        let session: Arc<str> = session.to_string().into();
        let cx = ToolCx::new(client, "1").with_session(Some(session));
        call_as(&gateway, cx, "mcp_up_echo", json!({"text": "x"})).await
    };
    // One that has not been used for longest makes room for the last one.
    for session in 0..=128 {
        call("greedy", session).await.unwrap();
    }
    site.set("hang", true);
    let mut busy = Box::pin(futures_util::future::join_all(
        (1..=128).map(|session| call("greedy", session)),
    ));
    let some_time = sleep(Duration::from_secs(1));
    tokio::select! {
        _ = &mut busy => panic!("it answers"),
        () = some_time => {}
    }
    let refused = call("greedy", 129).await;
    let Err(ToolError::Unavailable { detail, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert!(detail.contains("128 of them this client's"), "{detail}");
    site.set("hang", false);
    // The connections that it has go on, and others have theirs.
    assert!(busy.await.iter().all(Result::is_ok));
    call("greedy", 128).await.unwrap();
    for client in ["ana", "bob"] {
        call(client, 0).await.unwrap();
    }
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_session_of_its_own_has_a_child_of_its_own_and_so_has_what_else_can_be_asked() {
    let site = Site::new();
    let mut spec = spec("up", site.upstream.path());
    spec.isolation = Isolation::PerSession;
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    let pid = async |session: Option<&str>, askable| {
        let cx = asking(askable, None).with_session(session.map(Into::into));
        let answer = call_as(&gateway, cx, "mcp_up_pid", json!({})).await;
        text(&answer.unwrap()).to_owned()
    };
    let none = Askable::default();
    let one = pid(Some("one"), none).await;
    assert_eq!(pid(Some("one"), none).await, one);
    let two = pid(Some("two"), none).await;
    let without = pid(None, none).await;
    let asked = pid(Some("one"), ALL).await;
    let pids = [one, two, without, asked];
    let different: std::collections::HashSet<_> = pids.iter().collect();
    assert_eq!(different.len(), 4, "{pids:?}");
    // What each upstream was told is what its client can be asked.
    for (askable, is_told) in [(none, false), (ALL, true)] {
        let cx = asking(askable, None).with_session(Some("one".into()));
        let told = call_as(&gateway, cx, "mcp_up_who_asks", json!({})).await;
        assert_eq!(text(&told.unwrap()).contains("sampling"), is_told);
    }
    gateway.shut_down().await;
}

#[tokio::test]
async fn an_idle_child_is_ended_and_started_on_use() {
    let site = Site::new();
    let mut spec = spec("up", site.upstream.path());
    spec.idle = Duration::from_secs(1);
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    let first = site.read("started").trim().to_owned();
    until("it has ended", || !is_alive(&first)).await;
    assert_eq!(state(&gateway, "up"), State::Known);
    // One that works is not idle.
    let answer = call(&gateway, "mcp_up_slow", json!({"n": 3}))
        .await
        .unwrap();
    assert_eq!(text(&answer), "done");
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_child_sees_nothing_of_our_environment_but_what_is_named() {
    // Every test of this file has Cargo's variables.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let site = Site::new();
    let mut spec = spec("up", site.upstream.path());
    let Reach::Child { environment, .. } = &mut spec.reach else {
        panic!()
    };
    environment.push(("NAMED".to_owned(), "yes".to_owned()));
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    let answer = call(&gateway, "mcp_up_env", json!({})).await.unwrap();
    let seen: Value = serde_json::from_str(text(&answer)).unwrap();
    assert_eq!(seen["NAMED"], "yes");
    assert_eq!(seen.get("CARGO_MANIFEST_DIR"), None);
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_forgotten_session_is_opened_again_and_the_call_made_once() {
    let site = Site::new();
    let (_server, url) = site.http().await;
    let gateway = site.gateway(vec![url_spec("up", &url)]);
    gateway.first_look(GENEROUS).await;
    call(&gateway, "mcp_up_count", json!({})).await.unwrap();
    let sessions = site.read("sessions").len();
    for round in 1..=3 {
        site.set("forget", true);
        let calls = (0..5).map(|_| call(&gateway, "mcp_up_count", json!({})));
        for answer in futures_util::future::join_all(calls).await {
            assert_eq!(text(&answer.unwrap()), "counted");
        }
        assert_eq!(site.read("count").len(), 1 + 5 * round);
        assert_eq!(site.read("sessions").len(), sessions + round);
    }
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_server_that_was_restarted_is_found_again() {
    let site = Site::new();
    let (mut server, url) = site.http().await;
    let port: u16 = site.read("port").parse().unwrap();
    let gateway = site.gateway(vec![url_spec("up", &url)]);
    gateway.first_look(GENEROUS).await;
    call(&gateway, "mcp_up_echo", json!({"text": "hi"}))
        .await
        .unwrap();
    server.kill().await.unwrap();
    let refused = call(&gateway, "mcp_up_count", json!({})).await;
    let Err(ToolError::Unavailable {
        message,
        retry_after,
        ..
    }) = refused
    else {
        panic!("{refused:?}")
    };
    assert!(
        message.contains("not begun") && retry_after.is_some(),
        "{message}"
    );
    assert_eq!(state(&gateway, "up"), State::Degraded);
    assert_eq!(site.read("count"), "");
    let (_server, _) = site.http_at(port).await;
    let began = Instant::now();
    while call(&gateway, "mcp_up_count", json!({})).await.is_err() {
        sleep(Duration::from_millis(20)).await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(site.read("count"), "x");
    assert_eq!(state(&gateway, "up"), State::Ready);
    gateway.shut_down().await;
}

#[tokio::test]
async fn an_address_that_refuses_at_once_is_tried_again_soon() {
    let site = Site::new();
    let (mut server, url) = site.http().await;
    let gateway = site.gateway(vec![url_spec("up", &url)]);
    gateway.first_look(GENEROUS).await;
    // It ends in the middle of a call, and the connection is left.
    call(&gateway, "mcp_up_die", json!({})).await.unwrap_err();
    // Until then connections are taken.
    server.wait().await.unwrap();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let refused = call(&gateway, "mcp_up_count", json!({})).await;
        let Err(ToolError::Unavailable { retry_after, .. }) = refused else {
            panic!("{refused:?}");
        };
        let pause = retry_after.unwrap();
        pauses.push(pause);
        sleep(pause).await;
    }
    let shortest = pauses[2..].iter().min().unwrap();
    assert!(*shortest < Duration::from_millis(400), "{pauses:?}");
    assert!(
        pauses[2..].iter().all(|it| Duration::from_millis(30) < *it),
        "{pauses:?}"
    );
    gateway.shut_down().await;
}

#[tokio::test]
async fn what_is_configured_anew_takes_effect_and_the_rest_stays_connected() {
    let site = Site::new();
    let other = Site::new();
    let one = spec("one", site.upstream.path());
    let two = spec("two", other.upstream.path());
    let gateway = site.gateway(vec![one.clone()]);
    gateway.first_look(GENEROUS).await;
    gateway.apply(vec![one.clone(), two.clone()]);
    gateway.first_look(GENEROUS).await;
    assert_eq!(gateway.connected(), ["one", "two"]);
    let mut narrow = two;
    narrow.allow = vec!["e*".to_owned()];
    narrow.deny = vec!["env".to_owned()];
    narrow.prefix = Some("2-".to_owned());
    gateway.apply(vec![one, narrow]);
    let names: Vec<String> = tools(&gateway)
        .iter()
        .map(|it| it.name().to_owned())
        .collect();
    let of_two: Vec<_> = names
        .iter()
        .filter(|it| !it.starts_with("mcp_one_"))
        .collect();
    assert_eq!(of_two, ["2-echo"]);
    assert_eq!(site.read("started").lines().count(), 1);
    gateway.apply(Vec::new());
    assert!(tools(&gateway).is_empty());
    let pids = site.read("started") + &other.read("started");
    until("the children have ended", || !pids.lines().any(is_alive)).await;
}

#[tokio::test]
async fn a_connection_belongs_to_one_configuration_and_is_never_that_of_another() {
    let site = Site::new();
    let spec = spec("up", site.upstream.path());
    let gateway = site.gateway(vec![spec.clone()]);
    gateway.first_look(GENEROUS).await;
    let pid = async |client: &str| {
        let answer = call_as(&gateway, ToolCx::new(client, "1"), "mcp_up_pid", json!({})).await;
        text(&answer.unwrap()).to_owned()
    };
    let mut pids = vec![pid("ana").await];
    gateway.apply(vec![spec.clone()]);
    assert_eq!(pid("ana").await, pids[0], "nothing has changed");
    let changes: [fn(&mut UpstreamSpec); 5] = [
        |it| {
            if let Reach::Child { arguments, .. } = &mut it.reach {
                arguments.insert(0, "-u".to_owned());
            }
        },
        |it| {
            if let Reach::Child { environment, .. } = &mut it.reach {
                environment.push(("KEY".to_owned(), "of ana".to_owned()));
            }
        },
        |it| {
            if let Reach::Child { environment, .. } = &mut it.reach {
                environment[0].1 = "of bob".to_owned();
            }
        },
        |it| {
            if let Reach::Child { directory, .. } = &mut it.reach {
                *directory = Some("/".into());
            }
        },
        |it| it.isolation = Isolation::PerClient,
    ];
    let mut now = spec;
    for (at, change) in changes.iter().enumerate() {
        let before = tool(&gateway, "mcp_up_pid");
        change(&mut now);
        gateway.apply(vec![now.clone()]);
        // A call that was let through by the offer of before does not begin on what is being closed.
        let arguments = before.check(Bytes::from("{}")).unwrap();
        let late = before.execute(ToolCx::new("ana", "1"), arguments).await;
        assert!(
            matches!(late, Err(ToolError::Unavailable { .. })),
            "{late:?}"
        );
        gateway.connect_all(GENEROUS).await;
        let new = pid("ana").await;
        assert!(!pids.contains(&new), "change {at}: {new} of {pids:?}");
        pids.push(new);
    }
    let of_bob = pid("bob").await;
    assert!(!pids.contains(&of_bob));
    assert_eq!(pid("ana").await, *pids.last().unwrap());
    let (last, before) = pids.split_last().unwrap();
    until("the others have ended", || {
        !before.iter().any(|it| is_alive(it))
    })
    .await;
    assert!(is_alive(last) && is_alive(&of_bob));
    gateway.shut_down().await;
}
