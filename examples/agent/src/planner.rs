//! Planners: a model behind an endpoint that is compatible with OpenAI's chat completions, or a script.

use bytes::Bytes;
use http::{Request, header};
use http_client::{Client, ClientOptions, Reach};
use mcp_protocol::model::Tool;
use serde_json::{Value, json};
use std::{collections::VecDeque, env, error::Error, time::Duration};

/// Steps of the planner that is no model.
const SCRIPT: &str = include_str!("../script.json");

pub(crate) enum Planner {
    /// A model, and the tools that it may call.
    Model {
        client: Client,
        url: String,
        key: String,
        model: String,
        tools: Vec<Value>,
    },
    /// The steps that are left.
    Script(VecDeque<Value>),
}

impl Planner {
    /// The model that the environment names (`OPENAI_BASE_URL`, `OPENAI_API_KEY`, `OPENAI_MODEL`), or the
    /// script.
    pub(crate) fn choose<'a>(
        tools: impl Iterator<Item = &'a Tool>,
    ) -> Result<Self, Box<dyn Error>> {
        let Ok(base) = env::var("OPENAI_BASE_URL") else {
            return Ok(Self::Script(serde_json::from_str(SCRIPT)?));
        };
        let offered = tools.map(|tool| {
            let parameters: Value = tool.input_schema.parse().unwrap_or_default();
            json!({ "type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": parameters,
            }})
        });
        Ok(Self::Model {
            // A model may be in the house, and takes its time.
            client: Client::new(ClientOptions {
                reach: Reach::Any,
                timeout: Duration::from_secs(300),
                ..ClientOptions::default()
            })?,
            url: format!("{}/chat/completions", base.trim_end_matches('/')),
            key: env::var("OPENAI_API_KEY").unwrap_or_default(),
            model: env::var("OPENAI_MODEL").unwrap_or_else(|_| "default".to_owned()),
            tools: offered.collect(),
        })
    }

    /// The planner's next message: calls, or the answer.
    pub(crate) async fn next(&mut self, messages: &[Value]) -> Result<Value, Box<dyn Error>> {
        match self {
            Self::Script(steps) => {
                let step = steps.pop_front().ok_or("the script has ended")?;
                Ok(match step.get("tool") {
                    Some(tool) => super::call(messages.len(), tool, &step["arguments"]),
                    None => json!({ "role": "assistant", "content": step["answer"] }),
                })
            }
            Self::Model {
                client,
                url,
                key,
                model,
                tools,
            } => {
                let body = json!({ "model": model, "messages": messages, "tools": tools });
                let request = Request::post(url.as_str())
                    .header(header::CONTENT_TYPE, "application/json")
                    .header(header::AUTHORIZATION, format!("Bearer {key}"))
                    .body(Bytes::from(body.to_string()))?;
                let response = client.send(request).await?;
                let (status, body) = (response.status(), response.body());
                let answer: Value = serde_json::from_slice(body).unwrap_or_default();
                match answer["choices"][0]["message"].clone() {
                    Value::Null => Err(format!("the model's endpoint answers {status}").into()),
                    message => Ok(message),
                }
            }
        }
    }
}
