//! Servers, and clients that speak the same way to each of them.

use serde_json::{Value, json};
use testkit::{Answer, Conversation, HttpClient, HttpServer, Port, REVISIONS, StdioServer};
use tokio::process::Command;

/// The legacy revisions, oldest first.
pub(crate) const LEGACY: &[&str] = REVISIONS.split_at(4).0;

/// The newest revision with a handshake.
pub(crate) const NEWEST_LEGACY: &str = "2025-11-25";

/// A client that can be asked everything.
pub(crate) const ASKABLE: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;

/// Server program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The fixture of the official suite: everything is on offer.
    Suite,
    /// The fixture of these tests: tools alone, and bad ones.
    Fixture,
}

/// Transport to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Http,
    Stdio,
}

pub(crate) const WAYS: [Way; 2] = [Way::Http, Way::Stdio];

/// One client and the server it has for itself.
#[derive(Debug)]
pub(crate) enum Peer {
    Http(HttpServer, HttpClient),
    Stdio(StdioServer),
}

/// Messages that a request has led to.
#[derive(Debug)]
pub(crate) struct Heard {
    /// The status, over HTTP.
    pub(crate) status: Option<u16>,
    /// Messages before the response.
    pub(crate) earlier: Vec<Value>,
    /// The response.
    pub(crate) response: Value,
}

impl Heard {
    pub(crate) fn result(&self) -> &Value {
        let result = self.response.get("result");
        result.unwrap_or_else(|| panic!("not a result: {self:?}"))
    }

    pub(crate) fn code(&self) -> i64 {
        let code = self.response.pointer("/error/code");
        let code = code.and_then(Value::as_i64);
        code.unwrap_or_else(|| panic!("not an error: {self:?}"))
    }

    /// Asserts that the response is a result that tells of a failure with this code.
    pub(crate) fn is_failure(&self, code: i64, what: &str) {
        let failure = testkit::failure_of(&self.response);
        let is_result = self.response.get("result").is_some();
        assert!(is_result && failure["code"] == code, "{what}: {self:?}");
    }

    /// Asserts that the response is this error, with this status where there are statuses.
    pub(crate) fn is_error(&self, code: i64, status: u16, what: &str) {
        assert_eq!(self.code(), code, "{what}: {self:?}");
        let has_status = self.status.is_none_or(|it| it == status);
        assert!(has_status, "{what}, {status} expected: {self:?}");
    }

    pub(crate) fn text(&self) -> &str {
        text(&self.response)
    }
}

pub(crate) fn text(response: &Value) -> &str {
    let text = response.pointer("/result/content/0/text");
    let text = text.and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("no text: {response}"))
}

impl Program {
    pub(crate) fn command(self) -> Command {
        Command::new(match self {
            Self::Suite => env!("CARGO_BIN_EXE_conformance-server"),
            Self::Fixture => env!("CARGO_BIN_EXE_wire-fixture"),
        })
    }

    pub(crate) fn stdio(self) -> StdioServer {
        self.stdio_with(&[])
    }

    /// As [`Program::stdio`], with words on its command line.
    pub(crate) fn stdio_with(self, words: &[&str]) -> StdioServer {
        let mut command = self.command();
        command.args(words);
        StdioServer::spawn(command)
    }

    pub(crate) async fn http(self) -> HttpServer {
        self.http_with(&[]).await
    }

    /// As [`Program::http`], with further words on its command line.
    pub(crate) async fn http_with(self, words: &[&str]) -> HttpServer {
        let mut command = self.command();
        let port = match self {
            Self::Suite => Port::Fixed(testkit::free_port()),
            Self::Fixture => Port::Announced(|line| {
                let port = line.strip_prefix("listening on ")?;
                port.parse().ok()
            }),
        };
        let word = match &port {
            Port::Fixed(port) => port.to_string(),
            Port::Announced(_) => "0".to_owned(),
        };
        command.args(["--port", &word]).args(words);
        HttpServer::spawn(command, port).await
    }

    pub(crate) async fn start(self, way: Way) -> Peer {
        match way {
            Way::Stdio => Peer::Stdio(self.stdio()),
            Way::Http => {
                let server = self.http().await;
                let client = server.client();
                Peer::Http(server, client)
            }
        }
    }

    /// Starts a server and opens a revision with it, as a client of these capabilities.
    pub(crate) async fn open(self, way: Way, version: &str, capabilities: &str) -> Peer {
        let mut peer = self.start(way).await;
        let capabilities = serde_json::from_str(capabilities).unwrap();
        match &mut peer {
            Peer::Http(_, client) => client.voice.capabilities = capabilities,
            Peer::Stdio(server) => server.voice.capabilities = capabilities,
        }
        peer.open(version).await;
        peer
    }
}

impl Peer {
    pub(crate) async fn open(&mut self, version: &str) -> Value {
        match self {
            Self::Http(_, client) => client.open(version).await,
            Self::Stdio(server) => server.open(version).await,
        }
    }

    /// A request of the revision that is spoken, not yet sent.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        match self {
            Self::Http(_, client) => client.voice.request(method, params),
            Self::Stdio(server) => server.voice.request(method, params),
        }
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Heard {
        let message = self.request(method, params);
        self.say(&message).await
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Heard {
        self.ask("tools/call", call(tool, arguments)).await
    }

    /// Sends a message as it is, and waits for its response.
    pub(crate) async fn say(&mut self, message: &Value) -> Heard {
        match self {
            Self::Http(_, client) => {
                let request = client.post_of(message);
                heard(client.post(&request).await)
            }
            Self::Stdio(server) => {
                server.send(message).await;
                let mut earlier = Vec::new();
                loop {
                    let message = server.receive().await;
                    if message.get("method").is_none() {
                        return Heard {
                            status: None,
                            earlier,
                            response: message,
                        };
                    }
                    earlier.push(message);
                }
            }
        }
    }

    /// Sends a message that is not answered.
    pub(crate) async fn tell(&mut self, message: &Value) {
        match self {
            Self::Http(_, client) => {
                let answer = client.post(&client.post_of(message)).await;
                let said = (answer.http.status, answer.http.body.len());
                assert_eq!(said, (202, 0), "{answer:?}");
            }
            Self::Stdio(server) => server.send(message).await,
        }
    }

    /// Sends bytes as a line or a body, and waits for the response and its text. Over HTTP the
    /// headers are those of `head`.
    pub(crate) async fn say_bytes(&mut self, head: &Value, bytes: &[u8]) -> (Heard, String) {
        match self {
            Self::Http(_, client) => {
                let request = client.post_of(head).body(bytes);
                let answer = client.post(&request).await;
                let text = answer.http.text().to_owned();
                (heard(answer), text)
            }
            Self::Stdio(server) => {
                server.send_line(bytes).await;
                let text = server.receive_text().await;
                let heard = Heard {
                    status: None,
                    earlier: Vec::new(),
                    response: serde_json::from_str(&text).unwrap(),
                };
                (heard, text)
            }
        }
    }

    /// Asserts that the server serves, and has sent nothing else meanwhile.
    pub(crate) async fn is_served(&mut self, after: &str) {
        let listed = self.ask("tools/list", Value::Null).await;
        assert_eq!(listed.earlier, Vec::<Value>::new(), "after {after}");
        let tools = listed.result()["tools"].as_array();
        assert!(tools.is_some_and(|tools| !tools.is_empty()), "{listed:?}");
    }
}

fn heard(mut answer: Answer) -> Heard {
    let response = answer.messages.pop();
    Heard {
        status: Some(answer.http.status),
        earlier: answer.messages,
        response: response.unwrap_or_else(|| panic!("no message: {:?}", answer.http)),
    }
}

pub(crate) fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

/// Parameters of a request that wants to hear how far it has come.
pub(crate) fn with_progress(mut params: Value) -> Value {
    params["_meta"] = json!({ "progressToken": "p" });
    params
}

/// Returns true if the revision has batches.
pub(crate) fn has_batches(version: &str) -> bool {
    version <= "2025-03-26"
}
