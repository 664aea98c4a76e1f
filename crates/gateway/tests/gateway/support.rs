//! Upstreams of these tests: a program in Python, and a gateway to it.

use adapter_skills::SkillCatalog;
use adapter_tools::{Answers, Askable, Content, Tool, ToolCx, ToolError, ToolOutput};
use bytes::Bytes;
use gateway::{Gateway, GatewayOptions, Reach, State, UpstreamSpec};
use http::HeaderMap;
use mcp_client::HttpTransport;
use mcp_server::ToolSource;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{process::Command, time::sleep};

pub(crate) const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream.py");
pub(crate) const GENEROUS: Duration = Duration::from_secs(30);

pub(crate) fn spec(name: &str, directory: &Path) -> UpstreamSpec {
    let arguments = [SCRIPT, "stdio", directory.to_str().unwrap()];
    UpstreamSpec::new(
        name,
        Reach::Child {
            program: "python3".to_owned(),
            arguments: arguments.map(str::to_owned).to_vec(),
            environment: Vec::new(),
            directory: None,
        },
    )
}

/// The same that speaks one revision.
pub(crate) fn speaking(mut spec: UpstreamSpec, revision: &str) -> UpstreamSpec {
    let Reach::Child { environment, .. } = &mut spec.reach else {
        unreachable!()
    };
    environment.push(("REVISION".to_owned(), revision.to_owned()));
    spec
}

pub(crate) fn url_spec(name: &str, url: &str) -> UpstreamSpec {
    UpstreamSpec::new(
        name,
        Reach::Url {
            url: url.to_owned(),
            headers: HeaderMap::new(),
            transport: HttpTransport::Streamable,
        },
    )
}

/// A directory for an upstream, and one for the gateway.
pub(crate) struct Site {
    pub(crate) upstream: TempDir,
    pub(crate) gateway: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self {
            upstream: tempfile::tempdir().unwrap(),
            gateway: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn options(&self) -> GatewayOptions {
        GatewayOptions {
            directory: Some(self.stored()),
            ..GatewayOptions::default()
        }
    }

    pub(crate) fn stored(&self) -> PathBuf {
        self.gateway.path().join("upstreams")
    }

    pub(crate) fn gateway(&self, specs: Vec<UpstreamSpec>) -> Gateway {
        Gateway::new(self.options(), specs)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.upstream.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn set(&self, name: &str, is_set: bool) {
        match is_set {
            true => fs::write(self.path(name), "").unwrap(),
            false => drop(fs::remove_file(self.path(name))),
        }
    }

    /// A server over HTTP, and its address.
    pub(crate) async fn http(&self) -> (tokio::process::Child, String) {
        self.http_at(0).await
    }

    pub(crate) async fn http_at(&self, port: u16) -> (tokio::process::Child, String) {
        self.set("port", false);
        let server = Command::new("python3")
            .args([SCRIPT, "http", &port.to_string()])
            .arg(self.upstream.path())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        until("it listens", || !self.read("port").is_empty()).await;
        (
            server,
            format!("http://127.0.0.1:{}/mcp", self.read("port")),
        )
    }
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < GENEROUS, "not so in time: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn tools(gateway: &Gateway) -> Vec<Tool> {
    gateway.tools(&SkillCatalog::default()).tools
}

pub(crate) fn tool(gateway: &Gateway, name: &str) -> Tool {
    let tools = tools(gateway);
    let found = tools.iter().find(|it| it.name() == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {tools:?}"))
        .clone()
}

pub(crate) async fn call_as(
    gateway: &Gateway,
    cx: ToolCx,
    name: &str,
    arguments: Value,
) -> Result<ToolOutput, ToolError> {
    let tool = tool(gateway, name);
    let arguments = tool.check(Bytes::from(arguments.to_string())).unwrap();
    tool.execute(cx, arguments).await
}

pub(crate) async fn call(
    gateway: &Gateway,
    name: &str,
    arguments: Value,
) -> Result<ToolOutput, ToolError> {
    call_as(gateway, ToolCx::new("ana", "1"), name, arguments).await
}

pub(crate) fn text(output: &ToolOutput) -> &str {
    match &output.content[..] {
        [Content::Text { text, .. }] => text,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn state(gateway: &Gateway, name: &str) -> State {
    let status = gateway.status();
    status.iter().find(|it| it.name == name).unwrap().state
}

pub(crate) fn is_alive(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .trim_start()
        .chars()
        .next();
    state.is_some_and(|it| it != 'Z')
}

pub(crate) const ALL: Askable = Askable {
    form: true,
    url: true,
    sample: true,
    roots: true,
    pages: true,
};

pub(crate) fn asking(askable: Askable, answers: Option<Answers>) -> ToolCx {
    ToolCx::new("ana", "1").with_answers(askable, answers.map(Arc::new))
}
