//! Programs as tools.

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, MODERN, StdioServer, wait_until};

use crate::support::{Site, call, names, run, text};

/// A site with these commands, each a script `NAME.sh` for the shell.
fn site(scripts: &[(&str, &str, Value)]) -> Site {
    let mut commands = json!({});
    for (name, _, more) in scripts {
        let mut command = json!({"run": ["/bin/sh", format!("{name}.sh")]});
        for (key, value) in more.as_object().unwrap() {
            match key.as_str() {
                "arguments" => command["run"]
                    .as_array_mut()
                    .unwrap()
                    .extend(value.as_array().unwrap().clone()),
                _ => command[key] = value.clone(),
            }
        }
        commands[*name] = command;
    }
    // Some of them do not end by themselves.
    let shutdown = json!({"drain_seconds": 1});
    let site = Site::new(json!({"commands": commands, "shutdown": shutdown}));
    for (name, script, _) in scripts {
        site.write(&format!("{name}.sh"), script);
    }
    site
}

async fn ask(server: &mut StdioServer, tool: &str, arguments: Value) -> Value {
    server
        .request("tools/call", call(tool, arguments))
        .await
        .result()
        .clone()
}

/// The process whose number a script wrote into `name`, once it has.
async fn process(site: &Site, name: &str) -> i32 {
    wait_until("it runs", GENEROUS, || site.read(name).ends_with('\n')).await;
    site.read(name).trim().parse().unwrap()
}

fn is_alive(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap().trim_start().chars().next();
    state.is_some_and(|state| state != 'Z')
}

async fn has_ended(process: i32) {
    wait_until("it has ended", GENEROUS, || !is_alive(process)).await;
}

#[tokio::test]
async fn a_command_is_a_tool_like_any_other() {
    for version in ["2025-06-18", MODERN] {
        let site = site(&[(
            "stock-export",
            "printf '{\"all\": \"%s\"}' \"$*\"; echo counted >&2",
            json!({
                "description": "Exports the stock.\n",
                "arguments": ["--warehouse={warehouse}", ["--since", "{since}"]],
                "input_schema": {
                    "type": "object",
                    "properties": {"warehouse": {"type": "string"}, "since": {"type": "integer"}},
                    "required": ["warehouse"],
                },
                "read_only": true,
                "timeout_seconds": 7,
            }),
        )]);
        let mut server = site.stdio();
        server.open(version).await;
        assert!(server.stderr().contains("commands       stock-export"));
        let listed = server.request("tools/list", Value::Null).await;
        let tools = listed.result()["tools"].as_array().unwrap();
        let tool = tools
            .iter()
            .find(|tool| tool["name"] == "stock-export")
            .unwrap();
        assert_eq!(tool["description"], "Exports the stock.");
        assert_eq!(tool["annotations"], json!({"readOnlyHint": true}));
        assert_eq!(tool["inputSchema"]["required"], json!(["warehouse"]));
        assert!(names(listed.result(), "tools", "name").contains(&"echo".to_owned()));

        let answer = ask(
            &mut server,
            "stock-export",
            json!({"warehouse": "a; b", "since": 3}),
        )
        .await;
        let expected = json!({"all": "--warehouse=a; b --since 3"});
        assert_eq!(answer["structuredContent"], expected, "{answer}");
        let answer = ask(&mut server, "stock-export", json!({"warehouse": "$HOME"})).await;
        assert_eq!(
            answer["structuredContent"],
            json!({"all": "--warehouse=$HOME"})
        );
        wait_until("it is in the log", GENEROUS, || {
            server.stderr().lines().any(|line| {
                line.contains("\"counted\"") && line.contains("\"tool\":\"stock-export\"")
            })
        })
        .await;
        drop(server);
        assert_eq!(site.outcomes("stock-export"), ["succeeded", "succeeded"]);
    }
    let site = site(&[("count", "", json!({"timeout_seconds": 7}))]);
    let said = run(site.command(&["tools", "list", "--format", "json"])).await;
    let rows: Vec<Value> = serde_json::from_str(&said.output).unwrap();
    let row = rows.iter().find(|row| row["name"] == "count").unwrap();
    assert_eq!(
        (&row["kind"], &row["timeout_seconds"]),
        (&json!("command"), &json!(7))
    );
}

#[tokio::test]
async fn a_program_has_what_it_was_given_and_a_session_of_its_own() {
    let site = site(&[(
        "look",
        "env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort
         echo session $(($(cut -d' ' -f6 /proc/$$/stat) == $$))
         echo pipe $((0x$(grep SigIgn: /proc/$$/status | cut -f2) & 0x1000))
         grep 'core file' /proc/$$/limits | tr -s ' ' | cut -d' ' -f1-6
         pwd",
        json!({
            "env": {"TOKEN": "Bearer ${SECRET}", "PATH": "/usr/bin:/bin"},
            "output": "lines",
            "cwd": "below",
        }),
    )]);
    site.write("below/look.sh", site.read("look.sh"));
    let mut command = site.command(&["start"]);
    command.env("SECRET", "s3cret").env("OTHER", "x");
    let mut server = StdioServer::spawn(command);
    server.open(MODERN).await;
    let answer = ask(&mut server, "look", json!({})).await;
    let below = site.path("below").canonicalize().unwrap();
    let expected = json!({"lines": [
        "PATH=/usr/bin:/bin",
        "TOKEN=Bearer s3cret",
        "session 1",
        // The signal for broken pipes is not ignored, as it is in the server.
        "pipe 0",
        "Max core file size 0 0",
        below,
    ]});
    assert_eq!(answer["structuredContent"], expected, "{answer}");

    let mut shown = site.command(&["config", "show"]);
    shown.env("SECRET", "s3cret");
    let shown = run(shown).await;
    assert!(
        shown.output.contains("Bearer ${SECRET}"),
        "{}",
        shown.messages
    );
    assert!(!shown.output.contains("s3cret") && !server.stderr().contains("s3cret"));
}

#[tokio::test]
async fn what_one_program_does_is_no_matter_to_others() {
    let python = |code: &str| json!({"run": ["python3", "-c", code], "max_memory_bytes": 200_000_000, "stderr_in_errors": true});
    let site = Site::new(json!({"commands": {
        "yes-sh": {"run": ["yes"]},
        "eat": python("x = bytearray(2_000_000_000)"),
        "die-sh": {"run": ["sh", "-c", "kill -SEGV $$"]},
        "fine": {"run": ["cat"]},
        "gone": {"run": ["./gone"]},
    }}));
    site.write("gone", "#!/no/such/interpreter\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(site.path("gone"), mode).unwrap();
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    let rows = [
        ("yes-sh", "wrote more than 1048576 bytes"),
        ("eat", "MemoryError"),
        ("die-sh", "SIGSEGV"),
        ("gone", ""),
    ];
    for (tool, why) in rows {
        let answer = server.request("tools/call", call(tool, json!({}))).await;
        let said = answer.response.to_string();
        assert!(said.contains(why), "{tool}: {said}");
        // What the operator has to mend is not the client's business.
        assert!(!said.contains("interpreter"), "{said}");
        let fine = ask(&mut server, "fine", json!({})).await;
        assert_eq!(fine["structuredContent"], json!({}), "{tool}");
    }
    wait_until("the operator is told", GENEROUS, || {
        server.stderr().contains("gone cannot be run: No such file")
    })
    .await;
}

#[tokio::test]
async fn many_clients_on_many_threads_are_answered() {
    let more = json!({"input_schema": {"mark": "string"}, "max_waiting": 100});
    let site = site(&[("copy", "cat", more)]);
    let server = site.http().await;
    let mut clients = tokio::task::JoinSet::new();
    for index in 0..12 {
        let mut client = server.client();
        clients.spawn(async move {
            client.open(MODERN).await;
            for round in 0..5 {
                let mark = json!({"mark": format!("{index}-{round}")});
                let answer = client
                    .request("tools/call", call("copy", mark.clone()))
                    .await;
                assert_eq!(answer.result()["structuredContent"], mark);
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    assert_eq!(site.outcomes("copy"), ["succeeded"; 60]);
}

#[tokio::test]
async fn a_cancelled_call_ends_its_program() {
    let site = site(&[("sleep-sh", "echo $$ > pid; exec sleep 1000", json!({}))]);
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let request = server
        .voice
        .request("tools/call", call("sleep-sh", json!({})));
    server.send(&request).await;
    let pid = process(&site, "pid").await;
    assert!(is_alive(pid));
    let cancel = json!({"requestId": request["id"]});
    server.notify("notifications/cancelled", cancel).await;
    has_ended(pid).await;
    // The answer is for nobody, and nobody waits until its end is recorded.
    wait_until("it is recorded", GENEROUS, || {
        site.outcomes("sleep-sh") == ["cancelled"]
    })
    .await;
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends_its_program() {
    let site = site(&[(
        "sleep-sh",
        "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done",
        json!({"timeout_seconds": 1}),
    )]);
    let mut server = site.stdio();
    server.open(MODERN).await;
    let answer = server
        .request("tools/call", call("sleep-sh", json!({})))
        .await;
    assert_ne!(
        answer.response["result"]["isError"], false,
        "{}",
        answer.response
    );
    has_ended(process(&site, "pid").await).await;
    assert_eq!(site.outcomes("sleep-sh"), ["timed_out"]);
}

#[tokio::test]
async fn a_program_does_not_outlive_the_server_however_that_ends() {
    for signal in ["TERM", "KILL"] {
        let site = site(&[(
            "sleep-sh",
            "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done",
            json!({}),
        )]);
        let mut server = site.stdio();
        server.open("2025-06-18").await;
        let request = server
            .voice
            .request("tools/call", call("sleep-sh", json!({})));
        server.send(&request).await;
        let pid = process(&site, "pid").await;
        server.process().signal(signal).await;
        server.wait_exit(GENEROUS).await;
        has_ended(pid).await;
    }
}

#[tokio::test]
async fn commands_that_cannot_be_are_told_at_the_start() {
    let skill = "tools_schema:\n  count: {parameters: {warehouse: string}}\n";
    let rows = [
        (
            json!({"run": ["./no"]}),
            "",
            "commands.count: there is no program `",
        ),
        (
            json!({"run": ["no-such-program"]}),
            "",
            "there is no program `no-such-program` on the search path",
        ),
        (
            json!({"run": ["./app.py"]}),
            "",
            "app.py` cannot be executed",
        ),
        (
            json!({"run": ["cat"], "cwd": "nowhere"}),
            "",
            "nowhere` to run it in",
        ),
        (
            json!({"run": ["cat", "{x}"]}),
            skill,
            "`{x}` is none of the tool's arguments",
        ),
        (
            json!({"run": ["cat", "{x}"]}),
            "",
            "`{x}` is none of the tool's arguments",
        ),
        (
            json!({"run": ["cat"], "input_schema": {"type": "object", "properties": {"a": {"type": "sting"}}}}),
            "",
            "the schema of its arguments cannot be used",
        ),
    ];
    for (command, skill, why) in rows {
        let site = Site::new(json!({"commands": {"count": command}}));
        site.skill("stock", "count", skill);
        for words in [&["start"][..], &["tools", "list"]] {
            let said = run(site.command(words)).await;
            assert_eq!(said.code, Some(1), "{command}");
            assert!(said.messages.contains(why), "{command}: {}", said.messages);
        }
    }

    // A handler of the application has that name; the operator is told where both are.
    let site = Site::new(json!({"commands": {"echo": {"run": ["cat"]}}}));
    let said = run(site.command(&["start"])).await;
    assert_eq!(said.code, Some(1));
    for part in [
        "two tools are called `echo`",
        "the python tool at app.py:",
        "the command tool at /",
    ] {
        assert!(said.messages.contains(part), "{}", said.messages);
    }
}

#[tokio::test]
async fn a_skill_can_say_what_a_command_takes() {
    let site = site(&[(
        "count",
        "echo \"$1\"",
        json!({"arguments": ["{warehouse}"]}),
    )]);
    site.skill(
        "stock",
        "count",
        "tools_schema:\n  count: {parameters: {warehouse: string}}\n",
    );
    let mut server = site.stdio();
    server.open(MODERN).await;
    let listed = server.request("tools/list", Value::Null).await;
    let tools = listed.result()["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == "count").unwrap();
    assert_eq!(tool["inputSchema"]["required"], json!(["warehouse"]));
    assert!(
        tool["description"]
            .as_str()
            .unwrap()
            .contains("About count.")
    );
    let answer = ask(&mut server, "count", json!({"warehouse": "north"})).await;
    assert_eq!(text(&answer), "north");
    let refused = server
        .request("tools/call", call("count", json!({"warehouse": "--help"})))
        .await;
    let said = refused.response.to_string();
    assert!(
        said.contains("/warehouse") && said.contains("does not begin with"),
        "{said}"
    );

    // A skill that changes its mind takes the tool with it, until it fits again.
    site.skill(
        "stock",
        "count",
        "tools_schema:\n  count: {parameters: {depot: string}}\n",
    );
    wait_until("the operator is told", GENEROUS, || {
        server
            .stderr()
            .contains("(commands.count) cannot be offered")
    })
    .await;
    let gone = async {
        loop {
            let listed = server.request("tools/list", Value::Null).await;
            if !names(listed.result(), "tools", "name").contains(&"count".to_owned()) {
                break;
            }
        }
    };
    tokio::time::timeout(GENEROUS, gone)
        .await
        .expect("it is gone");
}
