//! A directory with an application, skills and a configuration, and the real program in it.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use ledger::{CallRecord, Filter, LedgerReader, ReadLedger};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{GENEROUS, HttpServer, Port, StdioServer};
use tokio::process::Command;

/// Handlers for every good and bad turn; see the file.
pub(crate) const WORKSHOP: &str = include_str!("workshop.py");

/// Time that the program may take to end once it was told to: as [`Site::new`] configures it, with
/// a margin for a busy machine. The five seconds of R2.7 are those of the default.
pub(crate) const END: Duration = Duration::from_secs(90);

/// Time that the program takes to end by its defaults, by R2.7, on a machine that is not busy.
pub(crate) const DEFAULT_END: Duration = Duration::from_secs(5);

/// Directory in which one server runs. Removed when dropped.
pub(crate) struct Site {
    directory: TempDir,
}

impl Site {
    /// A site with the workshop and what `settings` says beyond the defaults of these tests: what runs may
    /// end however little the machine lets it run, unless the test is about what does not.
    pub(crate) fn new(settings: Value) -> Self {
        let mut all = json!({
            "app": "app.py",
            "python": "python3",
            "resources": {"skills_dir": "skills"},
            "ledger": {"path": "ledger.db"},
            "http": {"port": 0},
            "shutdown": {"drain_seconds": 60},
            "workers": {"grace_seconds": 60},
            "governance": {"default_quota": {
                "max_calls_per_minute": 1_000_000, "max_calls_per_day": 1_000_000,
            }},
        });
        merge(&mut all, settings);
        let directory = tempfile::tempdir().unwrap();
        let site = Self { directory };
        fs::create_dir(site.path("skills")).unwrap();
        site.write("app.py", WORKSHOP);
        // JSON is YAML.
        let file = json!({"mcp_server": all}).to_string();
        site.write("mcp-server.yaml", file);
        site
    }

    /// A site with this application.
    pub(crate) fn with_app(app: &str) -> Self {
        let site = Self::new(json!({}));
        site.write("app.py", app);
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Puts a skill where `category` and `name` say, and returns its bytes.
    pub(crate) fn skill(&self, category: &str, name: &str, more: &str) -> String {
        let text = format!("---\nname: {name}\ndescription: About {name}.\n{more}---\n# {name}\n");
        self.write(&format!("skills/{category}/{name}/SKILL.md"), &text);
        text
    }

    /// The program, to be run here.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        program(
            env!("CARGO_BIN_EXE_owlclaw-mcp"),
            self.directory.path(),
            words,
        )
    }

    /// The program under its other name.
    pub(crate) fn owlclaw(&self, words: &[&str]) -> Command {
        program(env!("CARGO_BIN_EXE_owlclaw"), self.directory.path(), words)
    }

    /// The server on pipes.
    pub(crate) fn stdio(&self) -> StdioServer {
        StdioServer::spawn(self.command(&["start"]))
    }

    /// The server on pipes, for the client of this name.
    pub(crate) fn stdio_as(&self, client: &str) -> StdioServer {
        let mut command = self.command(&["start"]);
        command.env("MCP_CLIENT_ID", client);
        StdioServer::spawn(command)
    }

    /// The server on a port of its choice.
    pub(crate) async fn http(&self) -> HttpServer {
        let command = self.command(&["start", "--transport", "http"]);
        HttpServer::spawn(command, Port::Announced(announced)).await
    }

    /// The server on a port of its choice, by these words.
    pub(crate) async fn http_by(&self, words: &[&str]) -> HttpServer {
        HttpServer::spawn(self.command(words), Port::Announced(announced)).await
    }

    /// The kinds of the notes in the ledger, the newest first.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut reader = LedgerReader::open(self.path("ledger.db")).unwrap();
        let notes = reader
            .notes(usize::MAX, ledger::NoteFilter::default())
            .unwrap();
        notes.iter().map(|it| it.noted.kind.to_string()).collect()
    }

    /// Every call in the ledger, the oldest first.
    pub(crate) fn calls(&self) -> Vec<CallRecord> {
        let mut reader = LedgerReader::open(self.path("ledger.db")).expect("the ledger opens");
        let mut calls = reader
            .recent(usize::MAX, Filter::default())
            .expect("it is sound");
        calls.reverse();
        calls
    }

    /// Outcomes of the calls of `tool`, the oldest first; `open` for a call without an end.
    pub(crate) fn outcomes(&self, tool: &str) -> Vec<String> {
        let capability = format!("tool/{tool}");
        let calls = self.calls().into_iter();
        calls
            .filter(|call| call.started.capability == capability)
            .map(|call| outcome(&call))
            .collect()
    }
}

/// Outcome of a call, in the ledger's words; `open` if it has no end.
pub(crate) fn outcome(call: &CallRecord) -> String {
    let ended = call.ended.as_ref();
    ended.map_or_else(
        || "open".to_owned(),
        |ended| ended.outcome.as_str().to_owned(),
    )
}

/// Output of a command, and its exit status.
pub(crate) struct Said {
    pub(crate) output: String,
    pub(crate) messages: String,
    pub(crate) code: Option<i32>,
}

/// Runs a command to its end, its input empty.
pub(crate) async fn run(mut command: Command) -> Said {
    command
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let Output {
        status,
        stdout,
        stderr,
    } = tokio::time::timeout(GENEROUS, command.output())
        .await
        .expect("the command ends")
        .expect("the command starts");
    Said {
        output: String::from_utf8(stdout).expect("it prints text"),
        messages: String::from_utf8(stderr).expect("it prints text"),
        code: status.code(),
    }
}

/// The log lines, each of which must be a JSON object.
pub(crate) fn log(stderr: &str) -> Vec<Value> {
    let lines = stderr.lines().map(|line| {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}"));
        assert!(value.is_object(), "{line}");
        value
    });
    lines.collect()
}

/// Parameters of `tools/call`.
pub(crate) fn call(tool: &str, arguments: Value) -> Value {
    json!({"name": tool, "arguments": arguments})
}

/// Parameters of `tools/call` that ask for progress.
pub(crate) fn call_with_progress(tool: &str, arguments: Value, token: &str) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": token}})
}

/// The names in a list, in its order.
pub(crate) fn names(result: &Value, list: &str, key: &str) -> Vec<String> {
    let items = result[list]
        .as_array()
        .unwrap_or_else(|| panic!("no {list}: {result}"));
    items
        .iter()
        .map(|item| item[key].as_str().unwrap().to_owned())
        .collect()
}

/// The text of a tool's result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {result}"))
}

/// Puts `over` on top of `base`, key by key; `null` takes away what is there.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                match value {
                    Value::Null => drop(base.remove(&key)),
                    value => merge(base.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (base, over) => *base = over,
    }
}

fn program(path: &str, directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(path);
    command
        .args(words)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The port in the log line that says so.
pub(crate) fn announced(line: &str) -> Option<u16> {
    let line: Value = serde_json::from_str(line).ok()?;
    let address = line.get("address")?.as_str()?;
    address.rsplit_once(':')?.1.parse().ok()
}
