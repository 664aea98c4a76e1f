//! Clients over standard input and output: that of this process, and those of others that share the
//! server.
//!
//! A ledger in a file has one server. The process that starts first owns it and listens on a socket
//! beside the ledger; those that start later relay their clients to it, and one of them takes its place
//! when it ends.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, stdin};
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jsonrpc_core::{ErrorCode, ErrorObject};
use mcp_service::Principal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use transport_stdio::{
    End, Guest, Joined, Ownership, RelayError, RelayOptions, SharedSocket, StandardInput,
    StdioOptions, refuse, relay, standard_streams,
};

use super::build::Server;
use super::identity::StdioKey;
use super::in_code::InCode;
use super::lifecycle::Lifecycle;
use crate::Failure;
use config::{Config, ErrorStyle, Loaded, Source, Transport};

/// Name of the client unless `MCP_CLIENT_ID` names another (decision D7).
const DEFAULT_CLIENT: &str = "stdio-client";
/// Time for which two processes may read different versions of a configuration that was just changed.
const SETTLING: Duration = Duration::from_secs(2);
/// More keys are not named.
const MAX_NAMED: usize = 5;

/// Greeting of a process that asks to share the server of another.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    /// Name and version of the program.
    program: String,
    /// Name of the client.
    client: String,
    key: Option<String>,
    settings: BTreeMap<String, Value>,
}

/// State of a server on standard input and output, besides its parts.
#[derive(Debug, Default)]
pub(super) struct Seat {
    _ownership: Option<Ownership>,
    guests: Option<mpsc::Receiver<Guest>>,
    /// The client of this process, if it was relayed to another before: it is one of the guests.
    client: Option<JoinHandle<Result<(), RelayError>>>,
}

/// Waits until this process is to serve, and relays its client until then; `None` if its client has gone
/// before.
pub(super) async fn seat(
    parts: &InCode,
    source: &Source,
    loaded: Loaded,
    lifecycle: &Lifecycle,
) -> Result<Option<(Loaded, Seat)>, Failure> {
    let config = &loaded.config;
    // What is in a database is shared by servers anyway.
    if config.transport != Transport::Stdio || config.ledger.url.is_some() {
        return Ok(Some((loaded, Seat::default())));
    }
    let path = &config.ledger.path;
    let mut path = path.canonicalize().unwrap_or_else(|_| path.clone());
    path.as_mut_os_string().push(".sock");
    let socket = SharedSocket::new(path);
    let client = principal()?;
    let key = StdioKey::of_environment()?;
    let program = parts.program();
    let greet = move |loaded: &Loaded| {
        let greeting = Greeting {
            program: program.clone(),
            client: client.as_str().to_owned(),
            key: key.clone(),
            settings: loaded.config.of_serving(),
        };
        serde_json::to_vec(&greeting).unwrap_or_default()
    };
    let stream = match socket.join(&greet(&loaded)).await? {
        Joined::Owner(ownership) => return Ok(Some((loaded, Seat::of(ownership, None)?))),
        Joined::Relayed(stream) => stream,
    };
    let options = RelayOptions {
        max_line: config.http.max_body_bytes,
        max_waiting: StdioOptions::default().max_unsent,
        lost_calls_as_results: config.tools.error_style != ErrorStyle::Protocol,
    };
    let (input, output) = standard_streams()?;
    tracing::info!(
        transport = "stdio",
        "another process has the ledger: its server serves this client"
    );
    lifecycle.serving();
    lifecycle.ready();
    let (owner, mut ownerships) = mpsc::channel(1);
    let mut relaying = {
        let (lifecycle, source, loaded) = (lifecycle.clone(), source.clone(), loaded.clone());
        let input = Input::new(input, &lifecycle);
        tokio::spawn(async move {
            // The configuration may be another one by the time the owner is.
            let greeting = || greet(&source.reload(&loaded).unwrap_or_else(|_| loaded.clone()));
            let stop = lifecycle.asked();
            relay(
                &socket, stream, greeting, owner, input, output, stop, options,
            )
            .await
        })
    };
    tokio::select! {
        relayed = &mut relaying => {
            relayed??;
            tracing::info!("served");
            Ok(None)
        }
        Some(ownership) = ownerships.recv() => {
            tracing::info!("the server's process has ended: this one takes its place");
            let loaded = source.reload(&loaded).unwrap_or(loaded);
            Ok(Some((loaded, Seat::of(ownership, Some(relaying))?)))
        }
    }
}

impl Seat {
    fn of(
        mut ownership: Ownership,
        client: Option<JoinHandle<Result<(), RelayError>>>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            guests: Some(ownership.guests()?),
            _ownership: Some(ownership),
            client,
        })
    }

    /// Resolves when the client of this process has gone before there is a server for it.
    pub(super) async fn client_gone(&mut self) -> Result<(), Failure> {
        match &mut self.client {
            Some(client) => Ok(client.await??),
            None => std::future::pending().await,
        }
    }
}

/// Serves the client of this process, and those of guests, until the former leaves.
pub(super) async fn serve(server: &Server, seat: &mut Seat) -> Result<(), Failure> {
    let lifecycle = &server.lifecycle;
    let guests = seat.guests.take();
    let Some(client) = seat.client.take() else {
        let key = StdioKey::of_environment()?;
        let key = StdioKey::of(key, &server.config, server.identification.as_ref())?;
        let principal = match &key {
            Some(key) => key.principal(),
            None => principal()?,
        };
        let own = serve_own(server, key, principal);
        let (served, ()) = tokio::join!(own, serve_guests(server, guests));
        return served;
    };
    server.mcp.keep_tasks();
    let relayed = async {
        let relayed = client.await;
        lifecycle.begin();
        relayed
    };
    let (relayed, ()) = tokio::join!(relayed, serve_guests(server, guests));
    Ok(relayed??)
}

async fn serve_own(
    server: &Server,
    key: Option<StdioKey>,
    principal: Principal,
) -> Result<(), Failure> {
    let lifecycle = &server.lifecycle;
    let (input, output) = standard_streams()?;
    tracing::info!(transport = "stdio", principal = %principal, "serving");
    server.mcp.keep_tasks();
    lifecycle.serving();
    lifecycle.ready();
    let stop = async {
        tokio::select! {
            () = lifecycle.asked() => {}
            () = ended(key.as_ref()) => lifecycle.begin(),
        }
    };
    let options = StdioOptions {
        drain: lifecycle.drain(),
        ..StdioOptions::default()
    };
    let input = Input::new(input, lifecycle);
    let engine = server.mcp.engine();
    let end = transport_stdio::serve(engine, principal, input, output, stop, options).await;
    lifecycle.begin();
    tell_end(end?);
    Ok(())
}

fn tell_end(end: End) {
    match end {
        End::DrainTimedOut { given_up } => {
            tracing::warn!(given_up, "some requests were not done in time");
        }
        End::InputEnded | End::Stopped => tracing::info!(?end, "served"),
    }
}

async fn ended(key: Option<&StdioKey>) {
    match key {
        Some(key) => key.ended().await,
        None => std::future::pending().await,
    }
}

/// Serves the clients of other processes, until the server stops and they are done.
async fn serve_guests(server: &Server, mut guests: Option<mpsc::Receiver<Guest>>) {
    let mut serving = FuturesUnordered::new();
    while let Some(waiting) = &mut guests {
        tokio::select! {
            guest = waiting.recv() => match guest {
                Some(guest) => serving.push(serve_guest(server, guest)),
                // No more can come.
                None => break,
            },
            Some(()) = serving.next() => {}
            // Those that come later are turned away, and come to the next owner.
            () = server.lifecycle.begun() => guests = None,
        }
    }
    while serving.next().await.is_some() {}
}

async fn serve_guest(server: &Server, guest: Guest) {
    let process = guest.process();
    let served = match admit(server, guest.greeting()).await {
        Ok((principal, key)) => serve_admitted(server, guest, principal, key).await,
        Err(why) => {
            let why = crate::with_causes(&*why);
            tracing::warn!(process, why, "another process cannot share this server");
            guest.refuse(&why).await.map_err(Failure::from)
        }
    };
    if let Err(error) = served {
        tracing::info!(
            process,
            error = &*error as &dyn std::error::Error,
            "a client of another process has gone"
        );
    }
}

async fn serve_admitted(
    server: &Server,
    guest: Guest,
    principal: Principal,
    key: Option<StdioKey>,
) -> Result<(), Failure> {
    let lifecycle = &server.lifecycle;
    let process = guest.process();
    let (stream, guest_input) = guest.accept().await?;
    tracing::info!(transport = "stdio", process, principal = %principal, "serving another process");
    let (input, output) = stream.into_split();
    let options = StdioOptions {
        drain: lifecycle.drain_left(),
        accept_unfinished: false,
        ..StdioOptions::default()
    };
    let engine = server.mcp.engine();
    let never = std::future::pending();
    let serving = transport_stdio::serve(engine, principal, input, output, never, options);
    let ending = async {
        tokio::select! {
            () = lifecycle.begun() => {}
            () = ended(key.as_ref()) => {}
        }
        guest_input.end();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        end = serving => tell_end(end?),
        () = ending => {}
    }
    Ok(())
}

/// Time for a client to send `initialize` and be told why there is no server.
const REFUSING: Duration = Duration::from_secs(5);

/// Most characters of the reason that a client is sent.
const MAX_TOLD_CHARACTERS: usize = 2_048;

/// Sends the client that has started this program the reason why it does not serve. A terminal is
/// no client.
pub fn tell_client(why: &str) {
    if stdin().is_terminal() {
        return;
    }
    // Causes come from databases and from handlers' code, too.
    let why = mcp_server::redactor_of_this_process()
        .text(why)
        .into_owned();
    let why: String = why.chars().take(MAX_TOLD_CHARACTERS).collect();
    let error = ErrorObject::new(
        ErrorCode::INTERNAL_ERROR,
        format!("the server cannot start: {why}"),
    );
    let error = error.with(&json!({ "details": why, "retryable": false }));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return;
    };
    runtime.block_on(async {
        if let Ok((input, output)) = standard_streams() {
            // A client that has gone hears nothing.
            let _ = refuse(input, output, &error, REFUSING).await;
        }
    });
    // A thread that still reads standard input would hold the program up.
    runtime.shutdown_background();
}

/// Identifies the client of a guest, if it may be served.
async fn admit(server: &Server, greeting: &[u8]) -> Result<(Principal, Option<StdioKey>), Failure> {
    let holder = format!("process {} has the ledger", std::process::id());
    let greeting: Greeting =
        serde_json::from_slice(greeting).map_err(|_| format!("{holder} and another version"))?;
    let program = server.in_code.program();
    if greeting.program != program {
        return Err(format!("{holder} and is {program}: end it first").into());
    }
    let until = tokio::time::Instant::now() + SETTLING;
    loop {
        let differing = differing(&in_force(server).of_serving(), &greeting.settings);
        if differing.is_empty() {
            break;
        }
        if until < tokio::time::Instant::now() {
            return Err(format!(
                "{holder} and another configuration ({differing}): processes that share a ledger need the \
                 same one; end the other, or give this one a ledger of its own with ledger.path or \
                 MCP_SERVER_LEDGER__PATH"
            )
            .into());
        }
        tokio::time::sleep(SETTLING / 20).await;
    }
    let key = StdioKey::of(greeting.key, &server.config, server.identification.as_ref())?;
    let principal = match &key {
        Some(key) => key.principal(),
        None => named(&greeting.client)?,
    };
    Ok((principal, key))
}

fn in_force(server: &Server) -> Config {
    let in_force = server.in_force.lock();
    in_force.unwrap_or_else(PoisonError::into_inner).clone()
}

/// The keys of the settings that differ; nothing if none does.
fn differing(ours: &BTreeMap<String, Value>, theirs: &BTreeMap<String, Value>) -> String {
    let mut keys: Vec<&str> = ours
        .keys()
        .chain(theirs.keys())
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| ours.get(*key) != theirs.get(*key));
    let more = keys.len().saturating_sub(MAX_NAMED);
    keys.truncate(MAX_NAMED);
    let named = keys.join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Standard input; its end begins that of the process.
struct Input {
    input: StandardInput,
    lifecycle: Lifecycle,
}

impl Input {
    fn new(input: StandardInput, lifecycle: &Lifecycle) -> Self {
        Self {
            input,
            lifecycle: lifecycle.clone(),
        }
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.input).poll_read(cx, buffer);
        if read.is_ready() && buffer.filled().len() == before {
            self.lifecycle.begin();
        }
        read
    }
}

/// Principal on standard input, and on the command line.
pub(super) fn principal() -> Result<Principal, Failure> {
    match std::env::var("MCP_CLIENT_ID") {
        Ok(name) => named(&name),
        Err(std::env::VarError::NotPresent) => Ok(Principal::new(DEFAULT_CLIENT)),
        Err(std::env::VarError::NotUnicode(_)) => Err("MCP_CLIENT_ID is not UTF-8".into()),
    }
}

fn named(name: &str) -> Result<Principal, Failure> {
    if name.trim().is_empty() {
        return Ok(Principal::new(DEFAULT_CLIENT));
    }
    if Principal::MAX_LENGTH < name.len() {
        let most = Principal::MAX_LENGTH;
        return Err(format!("MCP_CLIENT_ID is longer than {most} bytes").into());
    }
    if !name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err("MCP_CLIENT_ID must be printable ASCII".into());
    }
    Ok(Principal::new(name.trim()))
}
