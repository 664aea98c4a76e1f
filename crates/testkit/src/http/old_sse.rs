//! The HTTP transport of revision 2024-11-05: posts go one way, everything else comes on a stream.

use serde_json::Value;

use super::{HttpClient, HttpRequest, HttpResponse, SseStream};
use crate::conversation::{Conversation, Reply};

/// A client on the old transport.
#[derive(Debug)]
pub struct OldSse {
    client: HttpClient,
    stream: SseStream,
    /// Address to which the server wants messages to be posted.
    pub endpoint: String,
}

impl OldSse {
    pub(super) async fn open(client: HttpClient, mut stream: SseStream) -> Self {
        let first = stream
            .next_event()
            .await
            .expect("the stream begins with an event");
        assert_eq!(first.event.as_deref(), Some("endpoint"), "{first:?}");
        Self {
            client,
            stream,
            endpoint: first.data,
        }
    }

    /// Posts a frame; its answer, if any, comes on the stream.
    ///
    /// # Panics
    ///
    /// If the answer is no HTTP.
    pub async fn post(&mut self, frame: &[u8]) -> HttpResponse {
        self.stream.dialogue.sent(frame);
        let request = HttpRequest::post(&self.endpoint, frame);
        self.client.exchange(&self.client.dress(request)).await
    }

    /// The stream.
    pub fn stream(&mut self) -> &mut SseStream {
        &mut self.stream
    }

    async fn post_accepted(&mut self, message: &Value) {
        let response = self.post(message.to_string().as_bytes()).await;
        assert_eq!(response.status, 202, "{response:?}");
    }

    async fn reply_to(&mut self, message: Value) -> Reply {
        self.post_accepted(&message).await;
        let mut earlier = Vec::new();
        loop {
            let response = self.stream.message().await;
            if response.get("method").is_none() && response["id"] == message["id"] {
                return Reply { earlier, response };
            }
            earlier.push(response);
        }
    }
}

impl Conversation for OldSse {
    async fn open(&mut self, version: &str) -> Value {
        self.client.voice.speak(version);
        self.stream.dialogue.speak(version);
        let message = self.client.voice.initialize(version);
        let reply = self.reply_to(message).await;
        self.notify("notifications/initialized", serde_json::json!({}))
            .await;
        reply.result().clone()
    }

    async fn request(&mut self, method: &str, params: Value) -> Reply {
        let message = self.client.voice.request(method, params);
        self.reply_to(message).await
    }

    async fn notify(&mut self, method: &str, params: Value) {
        let message = self.client.voice.notification(method, params);
        self.post_accepted(&message).await;
    }

    async fn ask_raw(&mut self, frame: &[u8]) -> Value {
        self.post(frame).await;
        self.stream.message().await
    }
}
