//! Helpers that the tests with real Python processes share.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses some of these, and a helper of a test may fail"
)]

use adapter_tools::{
    Tool, ToolCx, ToolError, ToolOutput,
    python::{AppHealth, PythonApp, PythonOptions, WorkerState},
};
use bytes::Bytes;
use serde_json::Value;
use std::{fs, path::PathBuf, time::Duration};
use tempfile::TempDir;

/// Far longer than anything here takes: what does not happen until then does not happen.
pub const LONG: Duration = Duration::from_secs(60);

pub fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// An application in a directory of its own.
pub struct App {
    pub directory: TempDir,
}

impl App {
    pub fn new(source: &str) -> Self {
        let app = Self {
            directory: TempDir::new().unwrap(),
        };
        app.write(source);
        app
    }

    pub fn shop() -> Self {
        Self::new(&fs::read_to_string(fixtures().join("shop.py")).unwrap())
    }

    pub fn pool_shop() -> Self {
        Self::new(&fs::read_to_string(fixtures().join("pool.py")).unwrap())
    }

    pub fn touch(&self, name: &str) {
        fs::write(self.directory.path().join(name), "").unwrap();
    }

    /// The process numbers that handlers have left in a file.
    pub fn pids(&self, name: &str) -> Vec<i64> {
        let text = fs::read_to_string(self.directory.path().join(name)).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        whole.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Waits until so many have left theirs.
    pub async fn wait_for(&self, name: &str, count: usize) {
        eventually(name, || count <= self.pids(name).len()).await;
    }

    pub fn write(&self, source: &str) {
        fs::write(self.directory.path().join("app.py"), source).unwrap();
    }

    /// One worker, so that handlers share memory, and nothing happens by itself. Handlers may take their
    /// time to end, as they do on a busy machine.
    pub fn options(&self) -> PythonOptions {
        let mut options = PythonOptions::new("app.py", self.directory.path());
        options.workers = 1;
        options.watch = false;
        options.grace = LONG;
        options.threads = 1;
        options
    }

    /// So many workers.
    pub fn pool(&self, workers: usize) -> PythonOptions {
        let mut options = self.options();
        options.workers = workers;
        options
    }
}

/// A small application with the handlers that `body` defines.
pub fn app_with(body: &str) -> String {
    format!(
        "from owlclaw import OwlClaw\napp = OwlClaw('small')\napp.mount_skills('skills')\n{body}"
    )
}

/// A running application, with its tools at hand.
pub struct Running {
    pub python: PythonApp,
}

impl Running {
    pub async fn start(options: PythonOptions) -> Self {
        Self {
            python: PythonApp::start(options)
                .await
                .unwrap_or_else(|error| panic!("{error}\n{}", error.details())),
        }
    }

    pub fn tool(&self, name: &str) -> Tool {
        self.python
            .tools()
            .into_iter()
            .find(|tool| tool.name() == name)
            .unwrap()
    }

    pub async fn call(&self, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
        self.call_with(ToolCx::new("anna", "call-1"), name, arguments)
            .await
    }

    pub async fn call_with(
        &self,
        cx: ToolCx,
        name: &str,
        arguments: Value,
    ) -> Result<ToolOutput, ToolError> {
        let tool = self.tool(name);
        let arguments = tool.check(Bytes::from(arguments.to_string())).unwrap();
        tokio::time::timeout(LONG, tool.execute(cx, arguments))
            .await
            .expect("it hangs")
    }

    /// The answer of a call, which must be one.
    pub async fn text(&self, name: &str, arguments: Value) -> String {
        text(&self.call(name, arguments).await.unwrap())
    }

    pub async fn json(&self, name: &str, arguments: Value) -> Value {
        serde_json::from_str(&self.text(name, arguments).await).unwrap()
    }

    pub async fn pid(&self) -> i64 {
        self.json("who", serde_json::json!({})).await["pid"]
            .as_i64()
            .unwrap()
    }

    /// Waits until the handlers have seen `mark`.
    /// Whether a handler has left this mark.
    pub async fn sees(&self, mark: &str) -> bool {
        let seen = self.json("seen", serde_json::json!({})).await;
        seen.as_array().unwrap().iter().any(|one| one == mark)
    }

    pub async fn has_seen(&self, mark: &str) {
        let look = async {
            while !self.sees(mark).await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, look)
            .await
            .unwrap_or_else(|_| panic!("never seen: {mark}"));
    }

    /// Waits until so many workers take calls.
    pub async fn has_workers(&self, count: usize) {
        self.health_is(|health| health.workers_ready == count).await;
    }

    pub async fn health_is(&self, wanted: impl Fn(&AppHealth) -> bool) -> AppHealth {
        eventually("health", || wanted(&self.python.health())).await;
        self.python.health()
    }

    pub async fn is(&self, wanted: impl FnMut(&WorkerState) -> bool) -> WorkerState {
        let mut state = self.python.state();
        tokio::time::timeout(LONG, state.wait_for(wanted))
            .await
            .expect("never")
            .unwrap()
            .clone()
    }
}

pub fn text(output: &ToolOutput) -> String {
    match &output.content[..] {
        [adapter_tools::Content::Text { text, .. }] => text.clone(),
        other => panic!("not one text: {other:?}"),
    }
}

pub fn is_alive(pid: i64) -> bool {
    // A process that has ended and was not waited for is none any more.
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat
            .rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with('Z'),
        Err(_) => false,
    }
}

pub async fn has_ended(pid: i64) {
    eventually(&format!("the end of {pid}"), || !is_alive(pid)).await;
}

pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let look = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, look)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

pub fn parent(pid: i64) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    fields.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub fn kill(pid: i64) {
    let status = std::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}
