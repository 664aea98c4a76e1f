//! `desk`: signs the user of this machine in.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, ExitCode, Stdio};

use bytes::Bytes;
use config::Config;
use http::{Method, Request, header};
use http_client::{Client, ClientOptions, Reach};
use operator::request::DeskCommand;
use operator::terminal::remark;
use operator::{Stop, load_for, print};
use serde_json::Value;
use server::{Failure, with_causes};

use crate::call::ROOT;
use crate::place::{Place, PlaceError};

/// Keys of the configuration that say where the desk is.
const NEEDED: &[&str] = &["desk", "http.tls", "ledger"];

/// Prints an address at which the desk signs in once, and opens it in a browser if somebody reads.
///
/// # Errors
///
/// When no desk is served, or it cannot be asked.
pub fn open(command: DeskCommand) -> Result<ExitCode, Stop> {
    let config = load_for(command.settings.clone(), NEEDED)?.config;
    let place = find(&config).map_err(Stop::Failed)?;
    let ticket = ticket(&config, &command, &place).map_err(Stop::Failed)?;
    let url = format!("{}/#/sign-in/{ticket}", place.url);
    if !command.no_open && io::stdout().is_terminal() {
        match show(&config, &url) {
            Ok(()) => {
                remark("the desk is opened in your browser; the address is good once, for a minute")
            }
            Err(error) => remark(&format!(
                "no browser can be opened ({error}): open the address yourself"
            )),
        }
    }
    print(&url)
}

fn find(config: &Config) -> Result<Place, Failure> {
    let hint = match config.desk.enabled {
        true => "start the server (`owlclaw-mcp start`), and run this as the user that it runs as",
        false => "add `desk: {enabled: true}` to the configuration, and start the server again",
    };
    match Place::find(config) {
        Ok(place) => Ok(place),
        Err(error @ PlaceError::Missing(_)) => Err(format!("{error}; {hint}").into()),
        Err(error) => Err(error.into()),
    }
}

/// A one-time sign-in at a desk.
fn ticket(config: &Config, command: &DeskCommand, place: &Place) -> Result<String, Failure> {
    let tls = &config.http.tls;
    // The server's own certificate may be one that nobody else vouches for.
    let own = tls.cert_file.as_deref().filter(|_| tls.enabled);
    let authorities = match command.ca.as_deref().or(own) {
        Some(path) => regular_file::read(path, regular_file::MAX_BYTES)
            .map_err(|error| format!("{}: {error}", path.display()))?,
        None => Vec::new(),
    };
    let client = Client::new(ClientOptions {
        reach: Reach::Any,
        authorities,
        ..ClientOptions::default()
    })?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{}{ROOT}/tickets", place.url))
        .header(header::AUTHORIZATION, format!("Bearer {}", place.secret))
        .body(Bytes::new())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let response = runtime.block_on(client.send(request)).map_err(|error| {
        let why = with_causes(&error);
        format!(
            "the desk of process {} does not answer: {why}; if that server was killed, start it again",
            place.process
        )
    })?;
    let told: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    match told["ticket"].as_str() {
        Some(ticket) if response.status().is_success() => Ok(ticket.to_owned()),
        _ => {
            let why = config::printable(told["error"].as_str().unwrap_or_default());
            Err(format!(
                "the desk at {} answers {}: {why}",
                place.url,
                response.status()
            )
            .into())
        }
    }
}

/// Opens an address by way of a file that only its owner can read: arguments of programs are no secret.
fn show(config: &Config, url: &str) -> io::Result<()> {
    let path = std::path::absolute(Place::way(config))?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    // The address has no character that would have to be escaped.
    write!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><title>OwlClaw desk</title>\
         <meta http-equiv=\"refresh\" content=\"0;url={url}\">"
    )?;
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let quiet = Stdio::null;
    let mut opening = Command::new(opener);
    let opening = opening
        .arg(&path)
        .stdin(quiet())
        .stdout(quiet())
        .stderr(quiet());
    opening.spawn().map(|_| ())
}
