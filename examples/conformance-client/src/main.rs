//! The client that the official conformance suite runs: `conformance-client URL`.
//!
//! The suite says by `MCP_CONFORMANCE_SCENARIO` what is looked at, by `MCP_CONFORMANCE_PROTOCOL_VERSION`
//! which revision, and by `MCP_CONFORMANCE_CONTEXT` what else a scenario needs.

use futures_util::future::BoxFuture;
use mcp_client::{CallOptions, Connection, Dial, Handlers, Options, Speak, UrlDial, json};
use mcp_protocol::{
    Era, ProtocolVersion,
    model::{
        ClientCapabilities, ElicitAction, ElicitResult, ElicitationCapability, FormValue,
        InputRequest, InputResponse, SKILLS_EXTENSION, Tool,
    },
};
use oauth_client::{
    Assertion, Authorizer, Grant, HeadlessBrowser, IdentityProvider, Login, Secret, SigningKey,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, env, error::Error, process::ExitCode, sync::Arc};

type Outcome = Result<(), Box<dyn Error>>;

/// Accepts every form, with the defaults that it names.
struct Accepts {
    skills: bool,
}

impl Handlers for Accepts {
    fn capabilities(&self) -> ClientCapabilities {
        let skills = self
            .skills
            .then(|| (SKILLS_EXTENSION.to_owned(), json!({})));
        ClientCapabilities {
            elicitation: Some(ElicitationCapability {
                form: true,
                url: false,
            }),
            extensions: skills.into_iter().collect(),
            ..ClientCapabilities::default()
        }
    }

    fn answer(&self, question: InputRequest) -> BoxFuture<'_, Result<InputResponse, String>> {
        let answer = match question {
            InputRequest::ElicitForm {
                requested_schema, ..
            } => Ok(InputResponse::Elicit(ElicitResult {
                content: Some(defaults(&requested_schema.parse().unwrap_or_default())),
                ..ElicitResult::without_content(ElicitAction::Accept)
            })),
            _ => Err("only forms are answered".to_owned()),
        };
        Box::pin(async { answer })
    }
}

/// The fields of a form as its defaults fill them in, and what is required beyond that.
fn defaults(schema: &Value) -> BTreeMap<String, FormValue> {
    let mut filled = BTreeMap::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let value = match (&field["default"], field["type"].as_str()) {
            (Value::Null, Some("boolean")) => json!(true),
            (Value::Null, Some("integer" | "number")) => json!(1),
            (Value::Null, Some("string")) => field["enum"].get(0).cloned().unwrap_or(json!("text")),
            (Value::Null, _) => continue,
            (default, _) => default.clone(),
        };
        if let Ok(value) = serde_json::from_value::<FormValue>(value) {
            filled.insert(name.clone(), value);
        }
    }
    filled
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&*error);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "the suite shows it")]
fn complain(error: &dyn Error) {
    let mut cause = Some(error);
    while let Some(error) = cause {
        eprintln!("{error}");
        cause = error.source();
    }
}

async fn run() -> Outcome {
    let url = env::args().next_back().filter(|it| it.starts_with("http"));
    let url = url.ok_or("the last argument must be the server's URL")?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let version = env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").unwrap_or_default();
    let context = env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|_| "null".to_owned());
    let context: Value = serde_json::from_str(&context)?;
    let speak = match version.parse::<ProtocolVersion>() {
        // Skills came with the modern era; the suite names no revision for them.
        _ if scenario.contains("sep-2640") => Speak::Probe,
        Ok(version) if version.era() == Era::Legacy => Speak::Only(version),
        _ => Speak::Probe,
    };
    let options = Options {
        handlers: Arc::new(Accepts {
            skills: scenario.contains("sep-2640"),
        }),
        speak,
        ..Options::default()
    };
    let mut dial = UrlDial::new(&url);
    if scenario.starts_with("auth/") {
        let authorizer = Authorizer::new(&url, authorization(&scenario, &context)?)?;
        dial.authorize = Some(Arc::new(authorizer));
    }
    let connection = Connection::open(&Dial::Url(dial), options).await?;
    let result = act(&connection, &scenario, &context).await;
    connection.close().await;
    result
}

/// The client as the scenario has registered it, and its way to tokens.
fn authorization(scenario: &str, context: &Value) -> Result<oauth_client::Options, Box<dyn Error>> {
    let given = |name: &str| context[name].as_str().map(str::to_owned);
    let required = |name: &str| given(name).ok_or_else(|| format!("the context has no {name}"));
    let mut options = oauth_client::Options {
        allow_private: vec!["127.0.0.1".to_owned(), "localhost".to_owned()],
        ..oauth_client::Options::default()
    };
    let metadata = "https://conformance-test.local/client-metadata.json";
    options.client.metadata_url = Some(metadata.to_owned());
    options.client.id = given("client_id");
    options.client.secret = given("client_secret").map(Secret::from);
    options.client.issuer = given("issuer");
    if let Some(pem) = given("private_key_pem") {
        options.client.key = Some(Arc::new(SigningKey::from_pem(&pem)?));
    }
    options.grant = match scenario {
        it if it.contains("client-credentials") => Grant::ClientCredentials,
        it if it.contains("enterprise") => Grant::Enterprise(IdentityProvider {
            token_endpoint: required("idp_token_endpoint")?,
            client_id: required("idp_client_id")?,
            client_secret: None,
            id_token: Assertion::Fixed(required("idp_id_token")?.into()),
        }),
        it if it.contains("wif") => {
            Grant::Workload(Assertion::Fixed(required("valid_jwt")?.into()))
        }
        _ => Grant::Login(Login::new(HeadlessBrowser::new()?)),
    };
    Ok(options)
}

async fn act(connection: &Connection, scenario: &str, context: &Value) -> Outcome {
    if scenario.contains("sep-2640") {
        return skills(connection, scenario).await;
    }
    let tools = connection.tools().await?;
    if scenario == "initialize" {
        return Ok(());
    }
    if scenario == "http-standard-headers" {
        return everything(connection, &tools).await;
    }
    if let Some(calls) = context["toolCalls"].as_array() {
        for wanted in calls {
            let name = wanted["name"].as_str().ok_or("a call without a name")?;
            call(connection, name, &wanted["arguments"]).await?;
        }
        return Ok(());
    }
    for tool in &tools {
        let arguments = match tool.name.as_str() {
            // It is sent back what was received of another tool.
            "json_schema_echo" => {
                let schema: Value = tools[0].input_schema.parse()?;
                json!({ "schema": schema })
            }
            _ => arguments_for(tool)?,
        };
        call(connection, &tool.name, &arguments).await?;
    }
    Ok(())
}

async fn call(connection: &Connection, name: &str, arguments: &Value) -> Outcome {
    connection
        .call(name, json(arguments)?, &CallOptions::default())
        .await?;
    Ok(())
}

/// A value for each argument that a tool requires.
fn arguments_for(tool: &Tool) -> Result<Value, serde_json::Error> {
    let schema: Value = tool.input_schema.parse()?;
    let mut arguments = serde_json::Map::new();
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        let value = match schema["properties"][name]["type"].as_str() {
            Some("number" | "integer") => json!(2),
            Some("boolean") => json!(true),
            Some("object") => json!({}),
            Some("array") => json!([]),
            _ => json!("text"),
        };
        arguments.insert(name.to_owned(), value);
    }
    Ok(Value::Object(arguments))
}

/// A request of each kind that the server offers.
async fn everything(connection: &Connection, tools: &[Tool]) -> Outcome {
    for tool in tools {
        call(connection, &tool.name, &arguments_for(tool)?).await?;
    }
    let offer = &connection.agreed().offer;
    if offer.resources.is_some() {
        for resource in connection.resources().await? {
            connection.read(resource.uri).await?;
        }
    }
    if offer.prompts.is_some() {
        for prompt in connection.prompts().await? {
            let arguments = prompt.arguments.into_iter();
            let arguments = arguments.map(|it| (it.name, "text".to_owned())).collect();
            connection.prompt(prompt.name, arguments).await?;
        }
    }
    Ok(())
}

/// Lists skills, and reads the files of each unless the scenario watches that nobody does.
async fn skills(connection: &Connection, scenario: &str) -> Outcome {
    let skills = connection.skills().await?;
    if scenario.contains("no-prefetch") {
        return Ok(());
    }
    let mut refused = None;
    for skill in &skills {
        for file in &skill.resources {
            // `SKILL.md` is the first; nothing of a skill is read that is not what it says it is.
            if let Err(error) = connection.skill_file(skill, &file.uri).await {
                refused = Some(error);
                break;
            }
        }
    }
    match refused {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
}
