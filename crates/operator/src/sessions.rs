//! The commands `sessions list` and `sessions end`, which ask a running server.

use std::process::ExitCode;

use http::Method;
use serde_json::Value;

use crate::client::check_url;
use crate::output::{Stop, load_for, print, print_json};
use crate::request::{ListFormat, RunningServer, SessionsCommand, Which};
use crate::running::{self, Place, encoded};
use crate::table::table;
use crate::terminal::remark;

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
    if let Some(url) = &server.url {
        check_url(url)?;
    }
    let config = load_for(server.settings, NEEDED)?.config;
    let place = Place {
        url: server.url.as_deref(),
        ca: server.ca.as_deref(),
        within: None,
    };
    running::ask(&config, place, method, &format!("/sessions{rest}"))
        .map_err(|it| Stop::Failed(it.into_failure()))
}
