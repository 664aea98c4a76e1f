//! A client of one endpoint.

use std::net::SocketAddr;

use serde_json::Value;

use super::{
    HttpConnection, HttpRequest, HttpResponse, OldSse, SseEvent, SseStream, encode_header_value,
};
use crate::{
    conversation::{Conversation, Reply, Voice},
    dialogue::Dialogue,
    schema::MODERN,
};

/// The first revision that wants its name in a header.
const FIRST_WITH_VERSION_HEADER: &str = "2025-06-18";

/// A client that speaks HTTP to one MCP endpoint, each exchange on a connection of its own.
#[derive(Debug, Clone)]
pub struct HttpClient {
    address: SocketAddr,
    path: String,
    headers: Vec<(String, String)>,
    version: Option<String>,
    session: Option<String>,
    /// Parts that this client puts into its messages.
    pub voice: Voice,
}

/// Answer to one POST.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status and headers; the body too, unless it was a stream.
    pub http: HttpResponse,
    /// The messages, in the order they came: one for JSON, however many for a stream.
    pub messages: Vec<Value>,
    /// The events of a stream.
    pub events: Vec<SseEvent>,
}

impl Answer {
    /// The last message: the response, or the batch of them.
    ///
    /// # Panics
    ///
    /// If there was no message.
    #[must_use]
    pub fn response(&self) -> &Value {
        self.messages
            .last()
            .unwrap_or_else(|| panic!("no message: {self:?}"))
    }

    /// The result of the response.
    ///
    /// # Panics
    ///
    /// If it is an error.
    #[must_use]
    pub fn result(&self) -> &Value {
        let result = self.response().get("result");
        result.unwrap_or_else(|| panic!("not a result: {self:?}"))
    }

    /// The code of the error.
    ///
    /// # Panics
    ///
    /// If it is a result.
    #[must_use]
    pub fn code(&self) -> i64 {
        let code = self
            .response()
            .pointer("/error/code")
            .and_then(Value::as_i64);
        code.unwrap_or_else(|| panic!("not an error: {self:?}"))
    }

    fn into_reply(mut self) -> Reply {
        let response = self.messages.pop();
        let response = response.unwrap_or_else(|| panic!("no message: {self:?}"));
        Reply {
            earlier: self.messages,
            response,
        }
    }
}

impl HttpClient {
    /// A client of the endpoint `/mcp` at this address.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            path: "/mcp".to_owned(),
            headers: Vec::new(),
            version: None,
            session: None,
            voice: Voice::default(),
        }
    }

    /// The same client, of an endpoint elsewhere.
    #[must_use]
    pub fn with_path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// The same client with all it has agreed on, of a server that listens elsewhere.
    #[must_use]
    pub fn moved_to(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// The same client, with a header in every request, such as `authorization`.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The session that the handshake began, if the server has sessions.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Goes on in this session.
    pub fn set_session(&mut self, session: Option<&str>) {
        self.session = session.map(str::to_owned);
    }

    /// From now on judges every message by this revision, and speaks it.
    pub fn speak(&mut self, version: &str) {
        self.version = Some(version.to_owned());
        self.voice.speak(version);
    }

    /// A new connection.
    ///
    /// # Panics
    ///
    /// If nobody listens.
    pub async fn connect(&self) -> HttpConnection {
        HttpConnection::connect(self.address)
            .await
            .unwrap_or_else(|error| panic!("no connection to {}: {error}", self.address))
    }

    /// Any request, and the whole response; no message is looked at.
    ///
    /// # Panics
    ///
    /// As [`HttpConnection::exchange`].
    pub async fn exchange(&self, request: &HttpRequest) -> HttpResponse {
        self.connect().await.exchange(request).await.0
    }

    /// The POST that carries `message` in the revision that is spoken, with all the headers that
    /// it demands; change it as the test wants.
    #[must_use]
    pub fn post_of(&self, message: &Value) -> HttpRequest {
        let mut request = self.dress(HttpRequest::post(&self.path, message.to_string()));
        if self.voice.is_modern()
            && let Some(method) = message["method"].as_str()
        {
            request = request.header("mcp-method", method);
            let params = &message["params"];
            let name = match method {
                "tools/call" | "prompts/get" => params["name"].as_str(),
                "resources/read" => params["uri"].as_str(),
                "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str(),
                _ => None,
            };
            if let Some(name) = name {
                request = request.header("mcp-name", &encode_header_value(name));
            }
        }
        request
    }

    /// Adds what every request of this client has.
    #[must_use]
    pub fn dress(&self, mut request: HttpRequest) -> HttpRequest {
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        if let Some(version) = &self.version
            && version.as_str() >= FIRST_WITH_VERSION_HEADER
        {
            request = request.header("mcp-protocol-version", version);
        }
        request
    }

    /// Sends a POST and reads everything that comes back for it. Every message is judged.
    ///
    /// # Panics
    ///
    /// If the answer is no HTTP, or a message in it is not valid.
    pub async fn post(&self, request: &HttpRequest) -> Answer {
        self.post_over(self.connect().await, request).await.0
    }

    /// As [`HttpClient::post`], over a connection that is there already and can be used again.
    ///
    /// # Panics
    ///
    /// As [`HttpClient::post`].
    pub async fn post_over(
        &self,
        connection: HttpConnection,
        request: &HttpRequest,
    ) -> (Answer, HttpConnection) {
        let (mut http, mut body) = connection.begin(request).await;
        let mut dialogue = self.dialogue();
        dialogue.sent(request.body_bytes());
        if http.media_type() == Some("text/event-stream") {
            let mut stream = SseStream::new(&http, body, dialogue);
            let (mut messages, mut events) = (Vec::new(), Vec::new());
            while let Some(event) = stream.next_event().await {
                if !event.data.is_empty() {
                    messages.push(stream.read(&event));
                }
                events.push(event);
            }
            let answer = Answer {
                http,
                messages,
                events,
            };
            return (answer, stream.into_connection());
        }
        while let Some(bytes) = body.next().await {
            http.body.extend_from_slice(&bytes);
        }
        let mut messages = Vec::new();
        if http.media_type() == Some("application/json") {
            let message = http.json();
            if let Err(wrong) = dialogue.received(&message) {
                panic!("invalid message: {wrong}\n{http:?}");
            }
            messages.push(message);
        }
        let answer = Answer {
            http,
            messages,
            events: Vec::new(),
        };
        (answer, body.into_connection())
    }

    /// Sends a request of the modern revision.
    ///
    /// # Panics
    ///
    /// As [`HttpClient::post`].
    pub async fn post_modern(&mut self, method: &str, params: Value) -> Answer {
        self.speak(MODERN);
        let message = self.voice.request(method, params);
        self.post(&self.post_of(&message)).await
    }

    /// Sends a request of the legacy revision that was opened, in its session.
    ///
    /// # Panics
    ///
    /// As [`HttpClient::post`], and if no legacy revision is spoken.
    pub async fn post_legacy(&mut self, method: &str, params: Value) -> Answer {
        assert!(
            self.version.is_some() && !self.voice.is_modern(),
            "open a legacy revision first"
        );
        let message = self.voice.request(method, params);
        self.post(&self.post_of(&message)).await
    }

    /// Sends `initialize` and keeps the session that comes with the answer.
    ///
    /// # Panics
    ///
    /// As [`HttpClient::post`].
    pub async fn initialize(&mut self, version: &str) -> Answer {
        self.session = None;
        self.speak(version);
        let message = self.voice.initialize(version);
        // The header names what was negotiated, and nothing was yet.
        let answer = self
            .post(&self.post_of(&message).without("mcp-protocol-version"))
            .await;
        self.session = answer.http.header("mcp-session-id").map(str::to_owned);
        answer
    }

    /// Sends a POST whose answer is a stream, and reads that event by event.
    ///
    /// # Panics
    ///
    /// If the answer is no stream of events.
    pub async fn stream(&self, request: &HttpRequest) -> SseStream {
        let (head, body) = self.connect().await.begin(request).await;
        let mut dialogue = self.dialogue();
        dialogue.sent(request.body_bytes());
        SseStream::new(&head, body, dialogue)
    }

    /// The stream of `GET` on the endpoint, which legacy revisions have.
    ///
    /// # Panics
    ///
    /// If the answer is no stream of events.
    pub async fn listen(&self) -> SseStream {
        let request = HttpRequest::get(&self.path).header("accept", "text/event-stream");
        self.stream(&self.dress(request)).await
    }

    /// Opens the transport of 2024-11-05: a stream, and an address to post to.
    ///
    /// # Panics
    ///
    /// If the answer is no stream of events, or does not begin with an address.
    pub async fn open_old_sse(&self, path: &str) -> OldSse {
        let request = HttpRequest::get(path).header("accept", "text/event-stream");
        let mut client = self.clone();
        client.speak("2024-11-05");
        let stream = client.stream(&client.dress(request)).await;
        OldSse::open(client, stream).await
    }

    fn dialogue(&self) -> Dialogue {
        let mut dialogue = Dialogue::default();
        if let Some(version) = &self.version {
            dialogue.speak(version);
        }
        dialogue
    }
}

impl Conversation for HttpClient {
    async fn open(&mut self, version: &str) -> Value {
        if version == MODERN {
            self.session = None;
            return self
                .post_modern("server/discover", Value::Null)
                .await
                .result()
                .clone();
        }
        let answer = self.initialize(version).await;
        self.notify("notifications/initialized", serde_json::json!({}))
            .await;
        answer.result().clone()
    }

    async fn request(&mut self, method: &str, params: Value) -> Reply {
        let message = self.voice.request(method, params);
        self.post(&self.post_of(&message)).await.into_reply()
    }

    async fn notify(&mut self, method: &str, params: Value) {
        let message = self.voice.notification(method, params);
        let answer = self.post(&self.post_of(&message)).await;
        assert_eq!(
            (answer.http.status, answer.http.body.len()),
            (202, 0),
            "{answer:?}"
        );
    }

    async fn ask_raw(&mut self, frame: &[u8]) -> Value {
        let request = self.dress(HttpRequest::post(&self.path, frame));
        self.post(&request).await.into_reply().response
    }
}
