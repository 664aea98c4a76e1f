//! A small server by the official Rust SDK: `rmcp-tried [PORT]`. Without a port it speaks over standard streams.
#![allow(deprecated, reason = "requests of the server's own are part of the older revisions")]

use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::*,
    service::{RequestContext, SubscriptionContext},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{error::Error, fs::OpenOptions, io::Write, sync::Arc};
use tokio::sync::watch;

const NOTE: &str = "tried://note";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

#[derive(Clone)]
struct Tried {
    touched: Arc<watch::Sender<()>>,
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn capabilities() -> ServerCapabilities {
    let all = json!({ "tools": {}, "prompts": {}, "resources": { "subscribe": true, "listChanged": true } });
    serde_json::from_value(all).unwrap()
}

fn mark(path: &str, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{text}")
}

impl Tried {
    async fn run(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let arguments = Value::from(request.arguments.unwrap_or_default());
        let failed = |error: &dyn Error| ErrorData::internal_error(error.to_string(), None);
        Ok(match &*request.name {
            "add" => {
                let number = |name: &str| arguments[name].as_f64().unwrap_or_default();
                (number("a") + number("b")).to_string()
            }
            "count" => {
                let steps = arguments["steps"].as_u64().unwrap_or_default();
                if let Some(token) = context.meta.get_progress_token() {
                    for step in 1..=steps {
                        let progress = json!({
                            "progressToken": token, "progress": step, "total": steps, "message": format!("step {step}"),
                        });
                        context.peer.notify_progress(read(progress)?).await.map_err(|it| failed(&it))?;
                    }
                }
                "counted".to_owned()
            }
            "rest" => {
                let path = arguments["mark"].as_str().unwrap_or_default();
                mark(path, "begun").map_err(|it| failed(&it))?;
                context.ct.cancelled().await;
                mark(path, "cancelled").map_err(|it| failed(&it))?;
                "rested".to_owned()
            }
            "ask" => {
                let asked = context.peer.create_elicitation(read(sure())?).await.map_err(|it| failed(&it))?;
                let content = json!(asked.content);
                format!("sure: {}", content["sure"])
            }
            "sample" => {
                let said = context.peer.create_message(read(sampled())?).await.map_err(|it| failed(&it))?;
                format!("sampled: {}", json!(said)["content"]["text"].as_str().unwrap_or_default())
            }
            "touch" => {
                self.touched.send_replace(());
                "touched".to_owned()
            }
            _ => return Err(ErrorData::invalid_params("there is no such tool", None)),
        })
    }
}

fn sure() -> Value {
    let form = json!({ "type": "object", "properties": { "sure": { "type": "boolean" } }, "required": ["sure"] });
    json!({ "mode": "form", "message": "Sure?", "requestedSchema": form })
}

fn sampled() -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "Say it." } }], "maxTokens": 10 })
}

impl ServerHandler for Tried {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(capabilities())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let names = ["add", "count", "rest", "ask", "sample", "touch"];
        let tools = names.map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
        read(json!({ "tools": tools }))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_modern = json!(context.meta).get(VERSION).is_some();
        let asked = match &*request.name {
            "ask" if is_modern => Some(json!({ "method": "elicitation/create", "params": sure() })),
            "sample" if is_modern => Some(json!({ "method": "sampling/createMessage", "params": sampled() })),
            _ => None,
        };
        let text = match (asked, &request.input_responses) {
            (Some(asked), None) => {
                let required = InputRequiredResult::from_input_requests(read(json!({ "it": asked }))?);
                return Ok(CallToolResponse::InputRequired(required));
            }
            (Some(_), Some(answers)) => {
                let answer = answers.get("it").cloned().unwrap_or_default();
                match &*request.name {
                    "ask" => format!("sure: {}", answer["content"]["sure"]),
                    _ => format!("sampled: {}", answer["content"]["text"].as_str().unwrap_or_default()),
                }
            }
            (None, _) => self.run(request, context).await?,
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        read(json!({ "resources": [{ "uri": NOTE, "name": "note" }] }))
    }

    async fn read_resource(
        &self,
        _: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read: ReadResourceResult = read(json!({ "contents": [{ "uri": NOTE, "text": "a note" }] }))?;
        Ok(read.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        read(json!({ "prompts": [{ "name": "greet", "arguments": [{ "name": "name", "required": true }] }] }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = json!(request.arguments);
        let text = format!("Greet {}.", arguments["name"].as_str().unwrap_or_default());
        let prompt = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] });
        let prompt: GetPromptResult = read(prompt)?;
        Ok(prompt.into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let mut touched = self.touched.subscribe();
        let peer = context.peer;
        tokio::spawn(async move {
            while touched.changed().await.is_ok() {
                if peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(NOTE)).await.is_err() {
                    break;
                }
            }
        });
        Ok(())
    }

    fn accepted_subscription_filter(&self, asked: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(asked.supported_by(&capabilities()))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut touched = self.touched.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = touched.changed() => {
                    if changed.is_err() || context.sink().notify_resource_updated(NOTE).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Tried { touched: Arc::new(watch::Sender::new(())) };
    let Some(port) = std::env::args().nth(1) else {
        server.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    };
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
