//! Planners: a model behind an endpoint that is compatible with OpenAI's chat completions, or a script.

use bytes::Bytes;
use http::{Request, header};
use http_client::{Client, ClientOptions, Reach};
use mcp_protocol::model::Tool;
use serde_json::{Value, json};
use std::{collections::VecDeque, env, error::Error, time::Duration};

/// Steps of the planner that is no model.
const SCRIPT: &str = include_str!("../script.json");

/// A call that the planner wants made.
pub(crate) struct Call {
    id: Value,
    pub(crate) tool: String,
    /// The text of a JSON object.
    pub(crate) arguments: String,
}

/// One turn of the planner.
pub(crate) enum Turn {
    Calls(Vec<Call>),
    Answer(String),
}

/// A planner, and what it was told so far.
pub(crate) struct Planner {
    messages: Vec<Value>,
    mind: Mind,
}

enum Mind {
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
        question: &str,
        tools: impl Iterator<Item = &'a Tool>,
    ) -> Result<Self, Box<dyn Error>> {
        let mind = match env::var("OPENAI_BASE_URL") {
            Ok(base) => Mind::model(&base, tools)?,
            Err(_) => Mind::Script(serde_json::from_str(SCRIPT)?),
        };
        let messages = vec![json!({ "role": "user", "content": question })];
        Ok(Self { messages, mind })
    }

    /// The planner's next turn.
    pub(crate) async fn next(&mut self) -> Result<Turn, Box<dyn Error>> {
        let message = self.mind.next(&self.messages).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.map(|call| Call {
            id: call["id"].clone(),
            tool: text(&call["function"]["name"]),
            arguments: text(&call["function"]["arguments"]),
        });
        let (calls, answer) = (calls.collect::<Vec<_>>(), text(&message["content"]));
        self.messages.push(message);
        Ok(match calls.is_empty() {
            true => Turn::Answer(answer),
            false => Turn::Calls(calls),
        })
    }

    /// Tells the planner what has come of a call.
    pub(crate) fn tell(&mut self, call: &Call, text: &str) {
        let told = json!({ "role": "tool", "tool_call_id": call.id, "content": text });
        self.messages.push(told);
    }
}

impl Mind {
    fn model<'a>(
        base: &str,
        tools: impl Iterator<Item = &'a Tool>,
    ) -> Result<Self, Box<dyn Error>> {
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

    /// The next message: calls, or the answer.
    async fn next(&mut self, messages: &[Value]) -> Result<Value, Box<dyn Error>> {
        match self {
            Self::Script(steps) => {
                let step = steps.pop_front().ok_or("the script has ended")?;
                Ok(match step.get("tool") {
                    Some(tool) => call(messages.len(), tool, &step["arguments"]),
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

/// A call as a model asks for it.
fn call(id: usize, name: &Value, arguments: &Value) -> Value {
    json!({ "role": "assistant", "content": null, "tool_calls": [
        { "id": format!("call_{id}"), "type": "function",
          "function": { "name": name, "arguments": arguments.to_string() } }
    ]})
}
