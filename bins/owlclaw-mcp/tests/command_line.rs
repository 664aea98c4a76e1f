//! The program from outside: words, streams, exit codes.

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// Standard output, standard error and the exit code.
struct Said {
    output: String,
    messages: String,
    code: i32,
}

fn directory(file: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("mcp-server.yaml"), file).expect("it can be written");
    directory
}

fn say(mut program: Command, directory: &TempDir, words: &str) -> Said {
    let output = program
        .current_dir(directory.path())
        .env_clear()
        .args(words.split_whitespace())
        .write_stdin("")
        .timeout(std::time::Duration::from_secs(60))
        .output()
        .expect("the program starts");
    Said {
        output: String::from_utf8(output.stdout).expect("it prints text"),
        messages: String::from_utf8(output.stderr).expect("it prints text"),
        code: output.status.code().expect("it exits"),
    }
}

fn owlclaw_mcp(directory: &TempDir, words: &str) -> Said {
    say(
        Command::new(assert_cmd::cargo::cargo_bin!("owlclaw-mcp")),
        directory,
        words,
    )
}

fn owlclaw(directory: &TempDir, words: &str) -> Said {
    say(
        Command::new(assert_cmd::cargo::cargo_bin!("owlclaw")),
        directory,
        words,
    )
}

#[test]
fn help_and_version_are_data() {
    let directory = directory("");
    let version = owlclaw_mcp(&directory, "--version");
    let expected = concat!("owlclaw-mcp ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!((version.output.as_str(), version.code), (expected, 0));
    assert!(version.messages.is_empty());

    let help = owlclaw_mcp(&directory, "--help");
    for word in ["start", "config", "tools", "resources", "Exit codes:"] {
        assert!(
            help.output.contains(word),
            "{word} is missing from\n{}",
            help.output
        );
    }
    assert_eq!((help.messages.as_str(), help.code), ("", 0));

    let help = owlclaw_mcp(&directory, "start --help").output;
    for word in [
        "--transport",
        "--port",
        "--host",
        "--config",
        "--skills-dir",
        "--app",
        "8080",
    ] {
        assert!(help.contains(word), "{word} is missing from\n{help}");
    }
}

#[test]
fn wrong_usage_exits_with_2_and_leaves_standard_output_alone() {
    let directory = directory("");
    for words in [
        "",
        "config",
        "serve",
        "start --prot 1",
        "start --port 65536",
        "start --transport carrier-pigeon",
        "tools list --format yaml",
    ] {
        let said = owlclaw_mcp(&directory, words);
        assert_eq!((said.code, said.output.as_str()), (2, ""), "{words}");
        assert!(
            said.messages.contains("Usage:") || said.messages.contains("--help"),
            "{words}"
        );
    }
    assert!(
        owlclaw_mcp(&directory, "start --prot 1")
            .messages
            .contains("--port")
    );
}

#[test]
fn a_good_configuration_is_ok_and_summed_up() {
    let directory = directory("mcp_server: {transport: http, http: {port: 9001}}");
    for said in [
        owlclaw_mcp(&directory, "config validate"),
        owlclaw(&directory, "mcp-server config validate"),
    ] {
        assert_eq!((said.code, said.messages.as_str()), (0, ""));
        let lines: Vec<&str> = said.output.lines().collect();
        assert_eq!(lines[0], "ok");
        assert!(lines[1].ends_with("/mcp-server.yaml"), "{}", said.output);
        assert_eq!(lines[3], "address        http://127.0.0.1:9001/mcp");
    }
}

#[test]
fn a_bad_configuration_is_taken_apart_and_exits_with_2() {
    let directory = directory("mcp_server:\n  http:\n    prot: 9001\n    port: x\n");
    let expected = "\
error: unknown key `http.prot`
 --> mcp-server.yaml:3:5
  |
3 |     prot: 9001
  |     ^^^^
hint: did you mean `http.port`?

error: `http.port` must be an integer from 0 to 65535, found `x`
 --> mcp-server.yaml:4:11
  |
4 |     port: x
  |           ^

error: the configuration is not valid (2 errors)
";
    for said in [
        owlclaw_mcp(&directory, "config validate"),
        owlclaw_mcp(&directory, "start"),
        owlclaw(&directory, "mcp-server start"),
    ] {
        assert_eq!((said.code, said.output.as_str()), (2, ""));
        assert_eq!(said.messages, expected);
    }
    // What is listed has nothing to do with them, which is said all the same.
    for words in ["tools list", "resources list"] {
        let said = owlclaw_mcp(&directory, words);
        assert_eq!(said.code, 0, "{}", said.messages);
        assert!(said.messages.contains("warning: unknown key `http.prot`"));
    }
    // The same mistakes, elsewhere.
    let said = owlclaw_mcp(&directory, "config validate --config nowhere.yaml");
    assert_eq!(said.code, 2);
    assert!(
        said.messages.contains("--> nowhere.yaml\n"),
        "{}",
        said.messages
    );
}

#[test]
fn problems_are_data_for_programs() {
    let directory = directory("mcp_server:\n  http: {prot: 9001}\n");
    let said = owlclaw_mcp(&directory, "config validate --format json");
    assert_eq!((said.code, said.messages.as_str()), (2, ""));
    let report: Value = serde_json::from_str(&said.output).expect("it prints JSON");
    let expected = serde_json::json!({
        "ok": false,
        "problems": [{
            "severity": "error",
            "message": "unknown key `http.prot`",
            "key": "http.prot",
            "origin": { "file": { "file": "mcp-server.yaml", "line": 2, "column": 10 } },
            "hint": "did you mean `http.port`?",
        }],
    });
    assert_eq!(report, expected);

    let said = owlclaw_mcp(
        &directory,
        "config validate --format json --config=/dev/null",
    );
    let report: Value = serde_json::from_str(&said.output).expect("it prints JSON");
    assert_eq!(
        (said.code, &report["ok"], &report["file"]),
        (0, &true.into(), &"/dev/null".into())
    );
}

#[test]
fn the_schema_knows_every_key_that_is_shown() {
    let directory = directory("");
    let schema = owlclaw_mcp(&directory, "config schema").output;
    let schema: Value = serde_json::from_str(&schema).expect("it prints JSON");
    let settings = owlclaw_mcp(&directory, "config show --format json").output;
    let settings: Vec<Value> = serde_json::from_str(&settings).expect("it prints JSON");
    assert!(settings.len() > 40);
    for setting in settings {
        let key = setting["key"].as_str().expect("a key is text");
        let found = key
            .split('.')
            .fold(&schema["properties"]["mcp_server"], |schema, name| {
                &schema["properties"][name]
            });
        assert!(found["description"].is_string(), "{key}: {found}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("owlclaw-mcp"))
        .args(["config", "schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).as_ref()
        ),
        (Some(0), "")
    );
}

#[test]
fn validate_tells_what_is_of_no_use_in_files_of_hosts() {
    let directory = directory("mcp_server:\n  upstreams_files: [mcp.json, missing.json]\n");
    let text =
        r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x", "dissabled": true}}}"#;
    std::fs::write(directory.path().join("mcp.json"), text).unwrap();
    let said = owlclaw_mcp(&directory, "config validate");
    assert_eq!(said.code, 0, "{}", said.messages);
    for part in [
        "mcp.json: `b` is left out: `dissabled`",
        "missing.json: it is not there",
    ] {
        let is_told = said
            .messages
            .lines()
            .any(|it| it.starts_with("warning: ") && it.contains(part));
        assert!(is_told, "{part}: {}", said.messages);
    }
}

#[test]
fn validate_says_where_the_server_can_be_reached() {
    let reached = |http: &str| {
        let directory = directory(&format!("mcp_server:\n  transport: http\n  http: {http}\n"));
        let said = owlclaw_mcp(&directory, "config validate");
        assert_eq!(said.code, 0, "{}", said.messages);
        let lines = said.output.lines().chain(said.messages.lines());
        let lines = lines.filter(|line| line.starts_with("address") || line.starts_with("unix"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        reached("{port: 9000}"),
        ["address        http://127.0.0.1:9000/mcp"]
    );
    assert_eq!(
        reached("{tls: {enabled: true, cert_file: c.pem, key_file: k.pem}}"),
        ["address        https://127.0.0.1:8080/mcp"]
    );
    assert_eq!(
        reached("{tcp: false, unix_socket: /run/owlclaw.sock}"),
        ["unix socket    /run/owlclaw.sock"]
    );
}
