//! Several processes on standard input and output with one configuration: they share one server.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, MODERN, REVISIONS, StdioServer, failure_of, wait_until};

use crate::support::{DEFAULT_END, END, Site, call, names, outcome, run, text};

/// A budget that covers so many calls of `append`.
const COVERED: usize = 20;

fn site() -> Site {
    Site::new(json!({"governance": {
        "default_quota": {"monthly_budget": "0.20"},
        "tools": {"append": {"estimated_cost": "0.01"}},
    }}))
}

async fn append(server: &mut StdioServer, mark: &str) -> Value {
    let reply = server
        .request("tools/call", call("append", json!({"mark": mark})))
        .await;
    reply.response
}

/// Calls until the budget is spent; how often it was enough.
async fn spend(mut server: StdioServer, name: usize) -> (StdioServer, usize) {
    for count in 0.. {
        let answer = append(&mut server, &format!("{name}-{count}")).await;
        let is_success = answer["result"]["isError"] == false
            || answer["result"].get("content").is_some()
                && answer["result"].get("isError").is_none();
        if !is_success {
            assert!(answer.to_string().contains("budget"), "{answer}");
            return (server, count);
        }
    }
    unreachable!("budgets end")
}

#[tokio::test]
async fn five_processes_share_one_server_and_one_budget() {
    let site = site();
    let mut servers = Vec::new();
    for revision in REVISIONS {
        // All at once: whichever is first owns the server.
        servers.push((site.stdio_as("treasury"), revision));
    }
    let opened = servers.into_iter().map(|(mut server, revision)| {
        tokio::spawn(async move {
            server.open(revision).await;
            let tools = server.request("tools/list", Value::Null).await;
            assert!(names(tools.result(), "tools", "name").contains(&"append".to_owned()));
            server
        })
    });
    let mut ready = Vec::new();
    for server in opened.collect::<Vec<_>>() {
        ready.push(server.await.unwrap());
    }
    // Of another client, whom the process says.
    let mut other = site.stdio_as("ana");
    other.open("2025-11-25").await;
    let spending = ready.into_iter().enumerate();
    let spending: Vec<_> = spending
        .map(|(name, server)| tokio::spawn(spend(server, name)))
        .collect();
    let (mut done, mut succeeded) = (Vec::new(), 0);
    for spent in spending {
        let (server, count) = spent.await.unwrap();
        done.push(server);
        succeeded += count;
    }
    assert_eq!(succeeded, COVERED);
    assert_eq!(site.read("executed").lines().count(), COVERED);
    let answer = append(&mut other, "ana's").await;
    assert_eq!(text(&answer["result"]), "ana's");
    let last = site.calls().pop().unwrap();
    assert_eq!(last.started.principal, "ana");
    // Commands look into the ledger and decide as beside one server.
    for words in [&["ledger", "query"][..], &["approvals", "list"]] {
        let said = run(site.command(words)).await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
    }
    for server in &mut done {
        server.close_input();
    }
    for mut server in done {
        assert!(server.wait_exit(END).await.success(), "{}", server.stderr());
    }
    // The last one is the owner by now, if it was not before.
    assert_eq!(text(&append(&mut other, "alone").await["result"]), "alone");
    other.close_input();
    assert!(other.wait_exit(END).await.success());
    let verified = run(site.command(&["ledger", "verify"])).await;
    assert_eq!(verified.code, Some(0), "{}", verified.output);
}

#[tokio::test]
async fn an_owner_that_ends_answers_its_calls_and_another_process_takes_over() {
    let site = Site::new(json!({}));
    for revision in ["2025-06-18", MODERN] {
        let mut owner = site.stdio_as("first");
        owner.open("2025-11-25").await;
        let mut second = site.stdio_as("second");
        second.open(revision).await;
        let mut third = site.stdio_as("third");
        third.open(revision).await;
        let request = second
            .voice
            .request("tools/call", call("nap", json!({"seconds": 1.0})));
        second.send(&request).await;
        let naps = || site.read("naps").lines().any(|line| line == "begun");
        wait_until("the call runs", GENEROUS, naps).await;
        owner.close_input();
        let answer = second.receive_answer(&request["id"]).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        assert!(owner.wait_exit(END).await.success(), "{}", owner.stderr());
        // Neither is told anything, or has to begin anew.
        for server in [&mut second, &mut third] {
            let answer = append(server, "after").await;
            assert_eq!(text(&answer["result"]), "after", "{revision}");
        }
        std::fs::remove_file(site.path("naps")).unwrap();
        for mut server in [second, third] {
            server.close_input();
            assert!(server.wait_exit(END).await.success(), "{}", server.stderr());
        }
    }
    assert!(!site.path("ledger.db.sock").exists());
}

#[tokio::test]
async fn calls_of_a_killed_owner_are_never_sent_again() {
    let site = Site::new(json!({}));
    for (round, revision) in ["2025-06-18", "2025-11-25", MODERN].into_iter().enumerate() {
        let _ = std::fs::remove_file(site.path("gate"));
        let mut owner = site.stdio_as("first");
        owner.open("2025-11-25").await;
        let mut second = site.stdio_as("second");
        second.open(revision).await;
        let what = format!("round {round}");
        let request = second
            .voice
            .request("tools/call", call("look-up", json!({"what": what})));
        second.send(&request).await;
        let runs = || site.read("looked-up").contains(&what);
        wait_until("the call runs", GENEROUS, runs).await;
        // The socket is left behind, as is a lock that nobody holds.
        owner.process().signal("KILL").await;
        let answer = second.receive_answer(&request["id"]).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let said = text(&answer["result"]).to_owned();
        assert!(
            said.contains("may have run") && said.contains("ledger"),
            "{said}"
        );
        site.write("gate", "");
        let answer = append(&mut second, "after").await;
        assert_eq!(text(&answer["result"]), "after");
        let looked_up = site.read("looked-up");
        assert_eq!(looked_up.lines().filter(|line| *line == what).count(), 1);
        let calls = site.calls();
        let lost = calls
            .iter()
            .rev()
            .find(|it| it.started.capability == "tool/look-up");
        assert_eq!(outcome(lost.unwrap()), "unknown");
        second.close_input();
        assert!(second.wait_exit(END).await.success(), "{}", second.stderr());
    }
}

#[tokio::test]
async fn owner_and_guests_end_in_time_when_their_client_leaves() {
    let site = Site::new(json!({"shutdown": null, "workers": null}));
    let mut owner = site.stdio_as("first");
    owner.open("2025-11-25").await;
    let mut second = site.stdio_as("second");
    second.open("2025-11-25").await;
    let mut third = site.stdio_as("third");
    third.open("2025-11-25").await;
    for (name, mut server) in [("relay", second), ("owner", owner), ("new owner", third)] {
        // Answered once there is an owner again.
        let _ = server.request("tools/list", Value::Null).await.result();
        // A call that goes on for longer than the process may.
        let request = server
            .voice
            .request("tools/call", call("nap", json!({"seconds": 60.0})));
        server.send(&request).await;
        server.close_input();
        // The client may still read, whichever process it has started.
        let answer = server.receive().await;
        assert_eq!(failure_of(&answer)["code"], -32004, "{name}: {answer}");
        let status = server.wait_exit(DEFAULT_END + Duration::from_secs(5)).await;
        assert!(status.success(), "{name}: {status} {}", server.stderr());
    }
}

#[tokio::test]
async fn a_process_with_another_configuration_is_refused_and_told_the_difference() {
    let site = Site::new(json!({}));
    let mut owner = site.stdio();
    owner.open("2025-11-25").await;
    let mut command = site.command(&["start"]);
    command.env("MCP_SERVER_TOOLS__DEFAULT_TIMEOUT_SECONDS", "7");
    let said = run(command).await;
    assert_eq!((said.code, said.output.as_str()), (Some(1), ""));
    let id = owner.process().id().unwrap();
    for expected in [
        format!("process {id}"),
        "tools.default_timeout_seconds".to_owned(),
        "MCP_SERVER_LEDGER__PATH".to_owned(),
    ] {
        assert!(said.messages.contains(&expected), "{}", said.messages);
    }
    // A change that the owner has in force is none.
    let file = site.read("mcp-server.yaml").replace("1000000", "1000001");
    site.write("mcp-server.yaml", file);
    let mut second = site.stdio();
    second.open("2025-11-25").await;
    let mut file: Value = serde_json::from_str(&site.read("mcp-server.yaml")).unwrap();
    file["mcp_server"]["upstreams"] = json!({"off": {"command": "cat", "enabled": false}});
    site.write("mcp-server.yaml", file.to_string());
    let mut another = site.stdio();
    another.open("2025-11-25").await;
    // Its log is its own.
    let mut command = site.command(&["start"]);
    command.env("MCP_SERVER_LOGGING__LEVEL", "DEBUG");
    let mut third = StdioServer::spawn(command);
    third.open("2025-11-25").await;
}

#[tokio::test]
async fn a_suspended_owner_is_waited_for_and_then_named() {
    let site = Site::new(json!({}));
    let mut owner = site.stdio();
    owner.open("2025-11-25").await;
    owner.process().signal("STOP").await;
    let said = run(site.command(&["start"])).await;
    owner.process().signal("CONT").await;
    assert_eq!((said.code, said.output.as_str()), (Some(1), ""));
    let id = owner.process().id().unwrap();
    let named = said.messages.contains(&format!("process {id}"));
    assert!(
        named && said.messages.contains("does not answer"),
        "{}",
        said.messages
    );
    let mut second = site.stdio();
    second.open("2025-11-25").await;
    assert_eq!(
        text(&append(&mut second, "goes on").await["result"]),
        "goes on"
    );
}

/// A program that reads what the socket sends to a process of another user.
const STRANGER: &str = r#"
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
peer = socket.socket(socket.AF_UNIX)
try:
    peer.connect(sys.argv[1])
    peer.sendall(b"{}\n")
    print(peer.recv(100))
except OSError as error:
    print(type(error).__name__)
"#;

#[tokio::test]
async fn the_socket_refuses_processes_of_other_users() {
    let site = Site::new(json!({}));
    // What is there and is no socket is left alone, and so is a server without one.
    site.write("ledger.db.sock", "mine");
    let mut alone = site.stdio();
    alone.open("2025-11-25").await;
    alone.close_input();
    assert!(alone.wait_exit(END).await.success());
    assert_eq!(site.read("ledger.db.sock"), "mine");
    std::fs::remove_file(site.path("ledger.db.sock")).unwrap();

    let mut owner = site.stdio();
    owner.open("2025-11-25").await;
    let socket = site.path("ledger.db.sock");
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(mode(&site.path("ledger.db.sock.lock")), 0o600);
    if !std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.contains("\nUid:\t0\t0\t0\t0"))
    {
        return;
    }
    let directory = socket.parent().unwrap();
    for (mode, expected) in [(0o600, "PermissionError"), (0o666, "b''")] {
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(mode)).unwrap();
        let mut command = tokio::process::Command::new("python3");
        command.args(["-c", STRANGER]).arg(&socket);
        let said = run(command).await;
        let hung_up = ["ConnectionResetError", "BrokenPipeError"].contains(&said.output.trim());
        assert!(
            said.output.trim() == expected || hung_up && mode == 0o666,
            "{mode:o}: {} {}",
            said.output,
            said.messages
        );
    }
    let warned = || owner.stderr().contains("another user");
    wait_until("it is told", GENEROUS, warned).await;
}

#[tokio::test]
async fn a_long_path_is_shared_like_any_other() {
    let deep = "directory-with-a-long-name/".repeat(6);
    let site = Site::new(json!({"ledger": {"path": format!("{deep}ledger.db")}}));
    let mut owner = site.stdio_as("first");
    owner.open("2025-11-25").await;
    let mut second = site.stdio_as("second");
    second.open("2025-11-25").await;
    assert_eq!(text(&append(&mut second, "far").await["result"]), "far");
}

#[tokio::test]
async fn each_process_authenticates_its_client_with_its_own_key() {
    let site = Site::new(json!({
        "identity": {"api_keys": {"file": "keys.json"}, "stdio": "required"},
    }));
    let mut keys = Vec::new();
    for client in ["ana", "ben"] {
        let said = run(site.command(&["keys", "create", "--principal", client])).await;
        keys.push(said.output.trim().to_owned());
    }
    let start = |key: &str| {
        let mut command = site.command(&["start"]);
        command.env("OWLCLAW_API_KEY", key);
        // What a client claims counts for nothing.
        command.env("MCP_CLIENT_ID", "ana");
        command
    };
    let mut owner = StdioServer::spawn(start(&keys[0]));
    owner.open("2025-11-25").await;
    let mut second = StdioServer::spawn(start(&keys[1]));
    second.open("2025-11-25").await;
    assert_eq!(
        text(&append(&mut second, "proved").await["result"]),
        "proved"
    );
    assert_eq!(site.calls().pop().unwrap().started.principal, "ben");
    for command in [site.command(&["start"]), start("owl_0_nobody")] {
        let said = run(command).await;
        assert_eq!((said.code, said.output.as_str()), (Some(1), ""));
        assert!(
            said.messages.contains("OWLCLAW_API_KEY"),
            "{}",
            said.messages
        );
    }
    let listed = run(site.command(&["keys", "list", "--format", "json"])).await;
    let listed: Value = serde_json::from_str(&listed.output).unwrap();
    let rows = listed.as_array().unwrap();
    let of_ben = rows.iter().find(|row| row["principal"] == "ben").unwrap();
    let id = of_ben["id"].as_str().unwrap();
    let revoked = run(site.command(&["keys", "revoke", id])).await;
    assert_eq!(revoked.code, Some(0), "{}", revoked.messages);
    assert!(!second.wait_exit(END).await.success());
    assert_eq!(text(&append(&mut owner, "stays").await["result"]), "stays");
}
