//! The commands `sessions list` and `sessions end`, which ask a running server.

use std::path::Path;
use std::process::ExitCode;

use bytes::Bytes;
use http::{Method, Request, header};
use http_client::{Client, ClientOptions, Reach};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::output::{Stop, load_for, print, print_json};
use crate::request::{ListFormat, RunningServer, SessionsCommand, Which};
use crate::table::table;
use crate::terminal::remark;
use config::{Config, Environment};
use server::Failure;
use server::STDIO_KEY;

/// Parts of the configuration that name the server's address and its operators.
const NEEDED: &[&str] = &["http", "governance"];

/// Lists or ends sessions of a running server.
///
/// # Errors
///
/// When the configuration cannot be used, the command fails, or standard output cannot be written.
pub fn sessions(command: SessionsCommand) -> Result<ExitCode, Stop> {
    match command {
        SessionsCommand::List {
            server,
            client,
            format,
        } => {
            let told = ask(server, &Method::GET, &of_client(client.as_deref()))?;
            let rows = told["sessions"].as_array().cloned().unwrap_or_default();
            match format {
                ListFormat::Json => print_json(&told),
                ListFormat::Table => {
                    remark(&format!(
                        "{} of at most {} are open, at most {} of one client; {} were ended because they were \
                         idle longest, {} were refused",
                        told["open"],
                        told["max"],
                        told["max_per_client"],
                        told["evicted"],
                        told["refused"]
                    ));
                    print(&shown(&rows))
                }
            }
        }
        SessionsCommand::End { server, which } => {
            let path = match which {
                Which { id: Some(id), .. } => format!("/{}", encoded(&id)),
                Which { client, .. } => of_client(client.as_deref()),
            };
            let told = ask(server, &Method::DELETE, &path)?;
            print(&format!("{} ended", told["ended"]))
        }
    }
}

fn of_client(client: Option<&str>) -> String {
    client.map_or_else(String::new, |it| format!("?client={}", encoded(it)))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn shown(rows: &[Value]) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
        other => other.to_string(),
    };
    let names = [
        "id",
        "client",
        "version",
        "transport",
        "idle_seconds",
        "streaming",
        "requests",
    ];
    let heads = [
        "ID",
        "CLIENT",
        "VERSION",
        "TRANSPORT",
        "IDLE",
        "STREAM",
        "REQUESTS",
    ];
    let rows = rows
        .iter()
        .map(|row| names.iter().map(|name| text(&row[*name])).collect());
    table(&heads, rows.collect())
}

/// The server's answer to a request for `/sessions` and the path `rest`.
fn ask(server: RunningServer, method: &Method, rest: &str) -> Result<Value, Stop> {
    let config = load_for(server.settings, NEEDED)?.config;
    exchange(&config, server.url, server.ca.as_deref(), method, rest).map_err(Stop::Failed)
}

fn exchange(
    config: &Config,
    url: Option<String>,
    ca: Option<&Path>,
    method: &Method,
    rest: &str,
) -> Result<Value, Failure> {
    let base = match url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => address(config)?,
    };
    let request = Request::builder()
        .method(method)
        .uri(format!("{base}/sessions{rest}"))
        .header(
            header::AUTHORIZATION,
            format!("Bearer {}", credential(config)?),
        )
        .body(Bytes::new())?;
    let tls = &config.http.tls;
    // The server's own certificate may be one that nobody else vouches for.
    let own = tls.cert_file.as_deref().filter(|_| tls.enabled);
    let authorities = match ca.or(own) {
        Some(path) => std::fs::read(path)
            .map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?,
        None => Vec::new(),
    };
    let client = Client::new(ClientOptions {
        reach: Reach::Any,
        authorities,
        max_body: MAX_ANSWER,
        ..ClientOptions::default()
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let response = runtime
        .block_on(client.send(request))
        .map_err(|error| Failure::from(format!("{base}: {}", server::with_causes(&error))))?;
    let told: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    if response.status().is_success() {
        return Ok(told);
    }
    let why = match &told["error"] {
        Value::String(why) => why.clone(),
        error => error["message"].as_str().unwrap_or_default().to_owned(),
    };
    Err(format!(
        "the server at {base} answers with status {}: {why}",
        response.status()
    )
    .into())
}

/// The most bytes of an answer: as many sessions as a server may have take less.
const MAX_ANSWER: usize = 256 << 20;

fn address(config: &Config) -> Result<String, Failure> {
    let http = &config.http;
    if !http.tcp || http.port == 0 {
        return Err("`http.port` does not say where the server is: use --url".into());
    }
    let scheme = if http.tls.enabled { "https" } else { "http" };
    let host = match http.host {
        any if any.is_unspecified() && any.is_ipv6() => "[::1]".to_owned(),
        any if any.is_unspecified() => "127.0.0.1".to_owned(),
        std::net::IpAddr::V6(host) => format!("[{host}]"),
        host => host.to_string(),
    };
    Ok(format!("{scheme}://{host}:{}", http.port))
}

fn credential(config: &Config) -> Result<String, Failure> {
    if let Some(token) = &config.governance.approvals.http_token {
        let token = token.reveal(&Environment::of_process());
        let token =
            token.ok_or("governance.approvals.http_token refers to a variable that is not set")?;
        return Ok(token.trim().to_owned());
    }
    let key = std::env::var(STDIO_KEY).unwrap_or_default();
    match key.trim() {
        "" => Err(format!(
            "nothing shows the server that an operator asks: set governance.approvals.http_token in the \
             configuration, or {STDIO_KEY} to an API key with a role of identity.operator_roles"
        )
        .into()),
        key => Ok(key.to_owned()),
    }
}
