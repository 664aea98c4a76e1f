//! File, environment and command line, one over the other, seen through the program.

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

const FILE: &str = "\
mcp_server:
  transport: http
  http:
    port: 9001
    cors: {allowed_origins: ['https://file.example']}
  tools: {default_timeout_seconds: 100}
  governance:
    default_quota: {monthly_budget: 0.1, max_cost_per_call: 9007199254.740993}
    clients: {ci: {quota: {max_calls_per_day: 5}}}
";

fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("mcp-server.yaml"), FILE).expect("it can be written");
    directory
}

/// `config show` with these variables and flags.
fn shown(directory: &TempDir, variables: &[(&str, &str)], flags: &[&str]) -> Vec<Value> {
    let output = Command::new(assert_cmd::cargo::cargo_bin!("owlclaw-mcp"))
        .current_dir(directory.path())
        .env_clear()
        .envs(variables.iter().copied())
        .args(["config", "show", "--format", "json"])
        .args(flags)
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    serde_json::from_slice(&output).expect("it prints JSON")
}

#[track_caller]
fn check(settings: &[Value], key: &str, value: Value, origin: Value) {
    let setting = settings
        .iter()
        .find(|setting| setting["key"] == key)
        .expect("it is a key");
    assert_eq!(
        (&setting["value"], &setting["origin"]),
        (&value, &origin),
        "{key}"
    );
}

fn in_file(line: u32, column: u32) -> Value {
    serde_json::json!({ "file": { "file": "mcp-server.yaml", "line": line, "column": column } })
}

fn in_variable(name: &str) -> Value {
    serde_json::json!({ "environment": name })
}

fn in_flag(name: &str) -> Value {
    serde_json::json!({ "command_line": name })
}

#[test]
fn the_file_wins_over_the_defaults_and_keeps_amounts_exact() {
    let settings = shown(&directory(), &[], &[]);
    check(&settings, "http.port", 9001.into(), in_file(4, 11));
    check(&settings, "http.host", "127.0.0.1".into(), "default".into());
    let quota = "governance.default_quota";
    check(
        &settings,
        &format!("{quota}.monthly_budget"),
        "0.10".into(),
        in_file(8, 37),
    );
    let exact = "9007199254.740993".into();
    check(
        &settings,
        &format!("{quota}.max_cost_per_call"),
        exact,
        in_file(8, 61),
    );
    check(
        &settings,
        &format!("{quota}.max_calls_per_day"),
        1000.into(),
        "default".into(),
    );
    for (key, value) in [
        ("http.max_session_replay_events", 256.into()),
        ("http.max_session_replay_bytes", 1_048_576.into()),
        ("http.max_replay_bytes", 67_108_864.into()),
        ("http.stream_retry_milliseconds", 1_000.into()),
        ("http.stream_after_milliseconds", 1_000.into()),
        ("http.old_sse", true.into()),
    ] {
        check(&settings, key, value, "default".into());
    }
    let client = "governance.clients.ci.quota.max_calls_per_day";
    check(&settings, client, 5.into(), in_file(9, 47));
}

#[test]
fn the_environment_wins_over_the_file_in_both_spellings() {
    let directory = directory();
    for name in ["MCP_SERVER_HTTP_PORT", "MCP_SERVER_HTTP__PORT"] {
        let settings = shown(&directory, &[(name, "9002")], &[]);
        check(&settings, "http.port", 9002.into(), in_variable(name));
        check(&settings, "transport", "http".into(), in_file(2, 14));
    }
    let variables = [
        ("MCP_SERVER_TRANSPORT", "stdio"),
        ("MCP_SERVER_TOOLS_TIMEOUT", "7"),
        ("MCP_SERVER_SKILLS_DIR", "/skills"),
        ("MCP_SERVER_GOVERNANCE_ENABLED", "false"),
        (
            "MCP_SERVER_HTTP__CORS__ALLOWED_ORIGINS",
            "https://a.example, https://b.example",
        ),
        (
            "MCP_SERVER_GOVERNANCE__DEFAULT_QUOTA__MONTHLY_BUDGET",
            "12.50",
        ),
        ("MCP_SERVER_DEVELOPMENT", "true"),
        ("MCP_SERVER_HTTP__OLD_SSE", "false"),
        // As little as may be: nothing is kept, by one session or by all.
        ("MCP_SERVER_HTTP__MAX_REPLAY_BYTES", "0"),
        ("MCP_SERVER_HTTP__STREAM_AFTER_MILLISECONDS", "0"),
    ];
    let settings = shown(&directory, &variables, &[]);
    let rows = [
        ("transport", "stdio".into()),
        ("tools.default_timeout_seconds", 7.into()),
        ("resources.skills_dir", "/skills".into()),
        ("governance.enabled", false.into()),
        // A list is replaced, not added to.
        (
            "http.cors.allowed_origins",
            serde_json::json!(["https://a.example", "https://b.example"]),
        ),
        ("governance.default_quota.monthly_budget", "12.50".into()),
        ("development", true.into()),
        ("http.old_sse", false.into()),
        ("http.max_replay_bytes", 0.into()),
        ("http.stream_after_milliseconds", 0.into()),
    ];
    for ((key, value), (variable, _)) in rows.into_iter().zip(variables) {
        check(&settings, key, value, in_variable(variable));
    }
}

#[test]
fn the_command_line_wins_over_everything() {
    let variables = [
        ("MCP_SERVER_HTTP_PORT", "9002"),
        ("MCP_SERVER_TRANSPORT", "http"),
        ("MCP_SERVER_HTTP__HOST", "0.0.0.0"),
        ("MCP_SERVER_APP", "environment:app"),
        ("MCP_SERVER_SKILLS_DIR", "/environment"),
    ];
    let flags = [
        "--port=9003",
        "--transport=stdio",
        "--host=::1",
        "--app=flag:app",
        "--skills-dir=/flag",
    ];
    let settings = shown(&directory(), &variables, &flags);
    check(&settings, "http.port", 9003.into(), in_flag("--port"));
    check(
        &settings,
        "transport",
        "stdio".into(),
        in_flag("--transport"),
    );
    check(&settings, "http.host", "::1".into(), in_flag("--host"));
    check(&settings, "app", "flag:app".into(), in_flag("--app"));
    check(
        &settings,
        "resources.skills_dir",
        "/flag".into(),
        in_flag("--skills-dir"),
    );
}

#[test]
fn json_is_taken_with_its_types_and_secrets_stay_where_they_are() {
    let file = "\
mcp_server:
  commands:
    export:
      description: |
        First line.
        Second line.
      run: [bin/export, '--since={since}', ['--to', '${WHERE}{to}']]
      env: {TOKEN: 'Bearer ${TOKEN}'}
      input_schema:
        type: object
        properties:
          since: {type: integer, minimum: 1, enum: [1, '2', null, true, 1.5], pattern: '^${x}$'}
          to: {}
";
    let directory = directory();
    std::fs::write(directory.path().join("mcp-server.yaml"), file).expect("it can be written");
    let settings = shown(&directory, &[("TOKEN", "s3cret"), ("WHERE", "at-")], &[]);
    let key = |name: &str| format!("commands.export.{name}");
    let is = |name: &str, value: Value, place: (u32, u32)| {
        check(&settings, &key(name), value, in_file(place.0, place.1));
    };
    let program = directory.path().join("bin/export");
    let run = serde_json::json!([program, "--since={since}", ["--to", "at-{to}"]]);
    is("description", "First line.\nSecond line.\n".into(), (5, 9));
    is("run", run, (7, 12));
    is("env.TOKEN", "Bearer ${TOKEN}".into(), (8, 20));
    let since = "input_schema.properties.since";
    is(&format!("{since}.minimum"), 1.into(), (12, 43));
    let choices = serde_json::json!([1, "2", null, true, 1.5]);
    is(&format!("{since}.enum"), choices, (12, 52));
    is(&format!("{since}.pattern"), "^${x}$".into(), (12, 88));
}
