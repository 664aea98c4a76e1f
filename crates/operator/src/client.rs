//! `client …`: any server of anybody's, by its address or by the program that it is.

pub(crate) mod contact;
mod desk;
mod interrupt;
mod shown;
pub(crate) mod sign_in;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use mcp_client::{CallOptions, Connection, Error, Progress, RawJson};
use mcp_protocol::ProtocolVersion;
use mcp_protocol::encode::{Encoder, encode_notification};
use mcp_protocol::model::{
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    ServerResult, SubscriptionFilter,
};
use serde_json::{Value, json};

pub(crate) use contact::Contact;

use crate::answer::{Answer, Told};
use crate::arguments::{members, object};
use crate::exact::{self, Members};
use crate::output::{FAILED, Stop, print, print_bytes, print_exactly};
use crate::request::{AnyServer, ClientCommand, ListFormat, ReportFormat};
use crate::terminal::{is_read, relay, remark, tell};
use config::{nearest, printable};
use server::{Failure, json_text};

/// Time for cancellations to be sent before an interrupted connection is closed.
const CANCELLING: Duration = Duration::from_millis(200);

/// Carries out a command on a server of anybody's.
///
/// # Errors
///
/// When the server cannot be reached, does not keep to the protocol, or standard output cannot be written.
pub fn client(command: ClientCommand) -> Result<ExitCode, Stop> {
    match command {
        ClientCommand::Ping { server, format } => {
            let told = speak(&contact(&server)?, ping)?;
            conclude(told, format, shown::greeting)
        }
        ClientCommand::Tools { server, format } => {
            let told = speak(&contact(&server)?, async |connection| {
                let tools = connection.tools().await;
                response(tools.map(|tools| {
                    ServerResult::ListTools(ListToolsResult {
                        tools,
                        ..ListToolsResult::default()
                    })
                }))
            })?;
            conclude(told, format.into(), shown::tools)
        }
        ClientCommand::Call {
            tool,
            args,
            server,
            format,
        } => {
            let arguments = object(args.as_deref(), "--args").map_err(Stop::Wrong)?;
            let options = CallOptions {
                progress: Some(Progress::new(shown::tell_progress)),
                ..CallOptions::default()
            };
            let answer = call_tool(&contact(&server)?, &tool, arguments, &options)?;
            finish(&answer, format)
        }
        ClientCommand::Resources { server, format } => {
            let told = speak(&contact(&server)?, resources)?;
            conclude(told, format.into(), shown::resources)
        }
        ClientCommand::Read {
            uri,
            server,
            format,
        } => {
            let told = speak(&contact(&server)?, async |connection| {
                let read = connection.read(uri.as_str()).await;
                response(read.map(ServerResult::ReadResource))
            })?;
            match format {
                ReportFormat::Text if !is_read() && told.result().is_some() => {
                    let read = told.result().unwrap_or(&Value::Null);
                    print_bytes(&shown::bytes(read).map_err(Stop::Failed)?)
                }
                format => conclude(told, format, shown::contents),
            }
        }
        ClientCommand::Prompts {
            name: None,
            server,
            format,
            ..
        } => {
            let told = speak(&contact(&server)?, async |connection| {
                let prompts = connection.prompts().await;
                response(prompts.map(|prompts| {
                    ServerResult::ListPrompts(ListPromptsResult {
                        prompts,
                        ..ListPromptsResult::default()
                    })
                }))
            })?;
            conclude(told, format, shown::prompts)
        }
        ClientCommand::Prompts {
            name: Some(name),
            args,
            server,
            format,
        } => {
            let given: Members = members(args.as_deref(), "--args").map_err(Stop::Wrong)?;
            // Arguments of prompts are texts.
            let given = given.into_iter().map(|(name, value)| {
                let text = serde_json::from_str(value.get());
                (name, text.unwrap_or_else(|_| value.get().to_owned()))
            });
            let given = given.collect();
            let told = speak(&contact(&server)?, async |connection| {
                let prompt = connection.prompt(name, given).await;
                response(prompt.map(ServerResult::GetPrompt))
            })?;
            conclude(told, format, shown::messages)
        }
        ClientCommand::Listen {
            resources,
            count,
            server,
            format,
        } => {
            let contact = contact(&server)?;
            speak(&contact, async |connection| {
                listen(connection, resources, count, format).await
            })
        }
        ClientCommand::Login {
            url,
            scopes,
            port,
            no_browser,
            timeout,
            ca,
            identity,
        } => {
            contact::check_url(&url).map_err(Stop::Wrong)?;
            let way = sign_in::Way {
                port,
                no_browser,
                timeout: Duration::from_secs(timeout),
            };
            sign_in::login(&url, scopes, &way, ca.as_deref(), &identity)
        }
        ClientCommand::Logout { url, identity } => {
            contact::check_url(&url).map_err(Stop::Wrong)?;
            sign_in::logout(&url, &identity)
        }
    }
}

impl From<ListFormat> for ReportFormat {
    fn from(format: ListFormat) -> Self {
        match format {
            ListFormat::Table => Self::Text,
            ListFormat::Json => Self::Json,
        }
    }
}

fn contact(server: &AnyServer) -> Result<Contact, Stop> {
    Contact::of(server).map_err(Stop::Wrong)
}

/// Refuses a `--url` that is not one of HTTP. The URL may hold a secret and is not repeated.
pub(crate) fn check_url(url: &str) -> Result<(), Stop> {
    let read = http_client::parse_url(url, &["http", "https"]);
    read.map(drop).map_err(|why| Stop::Wrong(bad_url(why)))
}

fn bad_url(why: http_client::BadUrl) -> Failure {
    format!("--url cannot be used: {why}; write one such as https://mcp.example/mcp").into()
}

/// Reason why work on a connection ended early.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The client's.
    Client(Error),
    /// The command's.
    Stop(Stop),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Connects, does `work` and closes the connection. SIGINT ends the work, and cancels on the server what
/// is under way.
pub(crate) fn speak<T>(
    contact: &Contact,
    work: impl AsyncFnOnce(&Connection) -> Result<T, Ended>,
) -> Result<T, Stop> {
    let failed = |failure: Failure| Stop::Failed(failure);
    // A reader of our output that stops does not stop the clock and the signals.
    let _busy = relay::begin();
    let _speaking = interrupt::watch();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(error.into()))?;
    let ended = runtime.block_on(async {
        let dial = contact.dial().await.map_err(failed)?;
        let opened = tokio::select! {
            opened = Connection::open(&dial, contact.options.clone()) => opened,
            _ = tokio::signal::ctrl_c() => return Err(Stop::Signalled),
        };
        let connection = opened.map_err(|error| failed(contact.failure(&error)))?;
        let done = tokio::select! {
            done = work(&connection) => done.map_err(|ended| match ended {
                Ended::Client(error) => failed(contact.failure(&error)),
                Ended::Stop(stop) => stop,
            }),
            _ = tokio::signal::ctrl_c() => Err(Stop::Signalled),
        };
        for (list, item) in connection.left_out() {
            remark(&format!(
                "warning: {list}: {} is left out",
                printable(&item.to_string())
            ));
        }
        if matches!(done, Err(Stop::Signalled)) {
            tokio::time::sleep(CANCELLING).await;
        }
        connection.close().await;
        done
    });
    // A line that is still read from the terminal is not waited for.
    runtime.shutdown_background();
    ended
}

/// Calls a tool. The answer to a name that the server does not have hints at one that it has.
pub(crate) fn call_tool(
    contact: &Contact,
    tool: &str,
    arguments: RawJson,
    options: &CallOptions,
) -> Result<Answer, Stop> {
    let told = speak(contact, async |connection| {
        let result = connection.call(tool, arguments, options).await;
        let is_error = result.as_ref().map_or(true, |result| result.is_error);
        let told = response(result.map(ServerResult::CallTool))?;
        // An answer that there is no such tool is worth another question.
        let hint = match is_error {
            true => connection.tools().await.ok().and_then(|tools| {
                let names: Vec<_> = tools.iter().map(|it| it.name.as_str()).collect();
                meant(tool, &names, "owlclaw-mcp client tools")
            }),
            false => None,
        };
        Ok((told, hint))
    });
    let (told, hint) = told?;
    Ok(Answer::of(told).with_hint(hint))
}

/// Advice on a tool that is not among those with these `names`, which the command `list` shows; none if it
/// is.
pub(crate) fn meant(tool: &str, names: &[&str], list: &str) -> Option<String> {
    if names.contains(&tool) {
        return None;
    }
    Some(match nearest(tool, names.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if names.is_empty() => "this client may see no tools".to_owned(),
        None => format!("`{list}` shows what there is"),
    })
}

async fn ping(connection: &Connection) -> Result<Told, Ended> {
    let began = Instant::now();
    match connection.ping().await {
        // A server that refuses the method is there all the same.
        Ok(()) | Err(Error::Server { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let milliseconds = began.elapsed().as_secs_f64() * 1000.0;
    let agreed = connection.agreed();
    let info = agreed.server_info.as_ref();
    told(&json!({
        "name": info.map(|it| &it.name),
        "version": info.map(|it| &it.version),
        "revision": agreed.version.as_str(),
        "named": agreed.named,
        "capabilities": agreed.offer,
        "instructions": agreed.instructions,
        "milliseconds": (milliseconds * 100.0).round() / 100.0,
    }))
}

async fn resources(connection: &Connection) -> Result<Told, Ended> {
    let resources = match connection.resources().await {
        Ok(resources) => ServerResult::ListResources(ListResourcesResult {
            resources,
            ..ListResourcesResult::default()
        }),
        Err(error) => return response(Err(error)),
    };
    let templates = match connection.resource_templates().await {
        // Servers without templates need not know the method.
        Err(Error::Server { .. }) => return response(Ok(resources)),
        listed => ServerResult::ListResourceTemplates(ListResourceTemplatesResult {
            resource_templates: listed?,
            ..ListResourceTemplatesResult::default()
        }),
    };
    let mut all = written(&resources)?;
    all.extend(written(&templates)?);
    told(&all)
}

async fn listen(
    connection: &Connection,
    resources: Vec<String>,
    count: Option<u64>,
    format: ReportFormat,
) -> Result<ExitCode, Ended> {
    let agreed = connection.agreed();
    let offer = &agreed.offer;
    let tells = |list: Option<bool>| list.unwrap_or_default();
    let filter = SubscriptionFilter {
        tools_list_changed: tells(offer.tools.as_ref().map(|it| it.list_changed)),
        prompts_list_changed: tells(offer.prompts.as_ref().map(|it| it.list_changed)),
        resources_list_changed: tells(offer.resources.as_ref().map(|it| it.list_changed)),
        resource_subscriptions: resources,
        ..SubscriptionFilter::default()
    };
    let failed = |why: &str| Err(Ended::Stop(Stop::Failed(why.into())));
    if filter.is_empty() {
        return failed(
            "the server tells of no changes of its lists; name a resource with --resource",
        );
    }
    let wanted = filter.resource_subscriptions.clone();
    let mut subscription = match connection.listen(filter).await {
        Ok(subscription) => subscription,
        Err(error) => {
            let answer = Answer::of(response(Err(error))?);
            return Ok(finish(&answer, format)?);
        }
    };
    let accepted = subscription.accepted();
    for uri in &wanted {
        if !accepted.resource_subscriptions.contains(uri) {
            let uri = printable(uri);
            remark(&format!(
                "warning: the server does not tell of changes of {uri}"
            ));
        }
    }
    remark(&shown::listening(accepted));
    let mut heard = 0;
    while count.is_none_or(|count| heard < count) {
        let Some(change) = subscription.next().await? else {
            return failed("the server has ended the subscription");
        };
        heard += 1;
        let change = encode_notification(ProtocolVersion::NEWEST, &change, None);
        let params = change.params.as_str();
        let text = match format {
            ReportFormat::Json => {
                let method = json!(change.method);
                json_text(&format!(r#"{{"method":{method},"params":{params}}}"#))
            }
            ReportFormat::Text => {
                let params = exact::value(params).unwrap_or_default();
                shown::change(&change.method, &params)
            }
        };
        // A standard output that is not read keeps nobody from ending this.
        let printed = tokio::task::spawn_blocking(move || print(&text)).await;
        printed.map_err(|error| Stop::Failed(error.into()))??;
    }
    Ok(ExitCode::SUCCESS)
}

/// The response as JSON-RPC has it: a result in the form of the newest revision, whichever one the server
/// speaks, without what only caches need; or the server's error.
fn response(result: Result<ServerResult, Error>) -> Result<Told, Ended> {
    match result {
        Ok(result) => told(&written(&result)?),
        Err(Error::Server { error, .. }) => {
            let error = ErrorMembers {
                code: error.code.0,
                data: error.data.as_ref(),
                message: &error.message,
            };
            let error = serde_json::to_string(&error);
            let told = error.map_err(Failure::from);
            let told = told.and_then(|error| Told::of(&format!("{{\"error\":{error}}}")));
            told.map_err(|failure| Ended::Stop(Stop::Failed(failure)))
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(serde::Serialize)]
struct ErrorMembers<'a> {
    code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawJson>,
    message: &'a str,
}

/// The members of a result, as [`response`] has them.
fn written(result: &ServerResult) -> Result<Members, Ended> {
    let raw = Encoder::anonymous().result(ProtocolVersion::NEWEST, result);
    let members = raw.and_then(|raw| raw.parse::<Members>());
    let mut members = members.map_err(|error| Error::Protocol(error.to_string()))?;
    for name in ["resultType", "ttlMs", "cacheScope"] {
        members.remove(name);
    }
    Ok(members)
}

fn told(result: &impl serde::Serialize) -> Result<Told, Ended> {
    Told::result_of(result).map_err(|failure| Ended::Stop(Stop::Failed(failure)))
}

/// Prints a response: its result as text or JSON, or its error.
fn conclude(
    told: Told,
    format: ReportFormat,
    text: impl FnOnce(&Value) -> String,
) -> Result<ExitCode, Stop> {
    match (told.result(), format) {
        (Some(_), ReportFormat::Json) => print_exactly(&told.json()),
        (Some(result), ReportFormat::Text) => print(&text(result)),
        (None, _) => finish(&Answer::of(told), format),
    }
}

/// Prints the outcome of a call; the exit code says whether the call came to what it was to come to.
///
/// # Errors
///
/// When standard output cannot be written.
pub fn finish(answer: &Answer, format: ReportFormat) -> Result<ExitCode, Stop> {
    let code = match answer.is_success() {
        true => ExitCode::SUCCESS,
        false => FAILED.into(),
    };
    match format {
        ReportFormat::Json => print_exactly(&answer.json()).map(|_| code),
        ReportFormat::Text if answer.is_success() => print(&answer.text()).map(|_| code),
        ReportFormat::Text => {
            tell(&format!("error: {}", answer.text()));
            Ok(code)
        }
    }
}

/// Text of a stranger as lines that begin with `indent`, so that none of them passes for one of ours.
fn quoted(text: &str, indent: &str) -> String {
    let lines = text.trim().lines().map(printable);
    lines.collect::<Vec<_>>().join(&format!("\n{indent}"))
}
