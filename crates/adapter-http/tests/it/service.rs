//! A service in the test's own process: real sockets, and answers made by a function.

#![allow(dead_code, clippy::unwrap_used)]

use adapter_http::{BoundTool, Bounds};
use adapter_tools::{Tool, ToolCx, ToolError, ToolOutput};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use http_client::{AllowPrivate, Client, ClientOptions, Reach};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};

pub(crate) type Answer = Response<BoxBody<Bytes, std::io::Error>>;
type Handler = Arc<dyn Fn(&Seen) -> Answer + Send + Sync>;

/// Request that the service received.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    handler: Handler,
}

impl Service {
    /// A service that answers each request by `handler`, until the runtime ends.
    pub(crate) async fn start(handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            connections: Arc::default(),
            handler: Arc::new(handler),
        };
        let accepting = service.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(accepting.clone().serve(stream));
            }
        });
        service
    }

    /// Serves one connection; for those that were wrapped first.
    pub(crate) async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let answer = service_fn(move |request: Request<Incoming>| {
            let service = self.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body
                    .collect()
                    .await
                    .map(|it| it.to_bytes())
                    .unwrap_or_default();
                let seen = Seen {
                    method: parts.method,
                    target: parts.uri.to_string(),
                    headers: parts.headers,
                    body: String::from_utf8(body.to_vec()).unwrap(),
                };
                service.seen.lock().unwrap().push(seen.clone());
                Ok::<_, Infallible>((service.handler)(&seen))
            }
        });
        // A client that goes away is part of the tests.
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), answer)
            .await;
    }

    pub(crate) fn with_handler(
        address: SocketAddr,
        handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self {
            address,
            seen: Arc::default(),
            connections: Arc::default(),
            handler: Arc::new(handler),
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self, rest: &str) -> String {
        format!("http://{}{rest}", self.address)
    }
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> BoxBody<Bytes, std::io::Error> {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed()
}

pub(crate) fn answer(status: u16, media: &str, body: impl Into<Bytes>) -> Answer {
    Response::builder()
        .status(status)
        .header("content-type", media)
        .body(full(body))
        .unwrap()
}

pub(crate) fn json(status: u16, body: Value) -> Answer {
    answer(status, "application/json", body.to_string())
}

/// A client that may talk to this machine.
pub(crate) fn client() -> Client {
    client_with(|_| {})
}

pub(crate) fn client_with(change: impl FnOnce(&mut ClientOptions)) -> Client {
    let mut options = ClientOptions {
        reach: Reach::Public(AllowPrivate::parse(["127.0.0.1"]).unwrap()),
        ..ClientOptions::default()
    };
    change(&mut options);
    Client::new(options).unwrap()
}

pub(crate) const TOKEN: &str = "tok-Zm9vYmFy";

pub(crate) fn secrets(name: &str) -> Option<String> {
    (name == "TOKEN").then(|| TOKEN.to_owned())
}

pub(crate) fn bound(client: &Client, binding: &Value) -> Tool {
    bound_with(client, binding, None, Bounds::default())
}

pub(crate) fn bound_with(
    client: &Client,
    binding: &Value,
    parameters: Option<&Value>,
    bounds: Bounds,
) -> Tool {
    let tool = BoundTool {
        name: "t",
        description: "",
        parameters,
        binding,
    };
    adapter_http::bind(tool, client, bounds, &secrets)
        .unwrap()
        .0
}

pub(crate) async fn call(tool: &Tool, arguments: Value) -> Result<ToolOutput, ToolError> {
    call_as(tool, ToolCx::new("anna", "call-1"), arguments).await
}

pub(crate) async fn call_as(
    tool: &Tool,
    cx: ToolCx,
    arguments: Value,
) -> Result<ToolOutput, ToolError> {
    let arguments = tool.check(arguments.to_string().into()).unwrap();
    tool.execute(cx, arguments).await
}

/// The structured part of an answer.
pub(crate) fn structured(output: &ToolOutput) -> Value {
    serde_json::from_str(output.structured.as_ref().unwrap().get()).unwrap()
}

/// The text of an answer.
pub(crate) fn text(output: &ToolOutput) -> &str {
    match output.content.as_slice() {
        [adapter_tools::Content::Text { text, .. }] => text,
        other => panic!("{other:?}"),
    }
}
