//! One call, by way of everything that a client's call goes through, without serving other clients.

use bytes::{Bytes, BytesMut};
use jsonrpc_core::{Message, RawJson, encode};
use mcp_service::{Accepted, Connection, Outbox, Principal, Reply, TransportKind};

use super::build::Server;
use super::in_code::InCode;
use super::lifecycle::Lifecycle;
use super::rules::Rules;
use super::stdio;
use super::store::LedgerInUse;
use crate::Failure;
use crate::logging::Log;
use config::{Loaded, LogLevel, Source};

/// Builds a server, hands it one request of `client`, and another one if `again` makes one of the
/// response, and closes it when that is answered.
///
/// # Errors
///
/// When there can be no server; what is wrong with the call is in the response.
pub fn call(
    source: Source,
    mut loaded: Loaded,
    client: Option<Principal>,
    frame: &Bytes,
    again: fn(&RawJson) -> Option<Bytes>,
) -> Result<(RawJson, Option<RawJson>), Failure> {
    let principal = match client {
        Some(client) => client,
        None => stdio::principal()?,
    };
    // Nobody comes back for a task, and their store may be a server's.
    loaded.config.tasks.enabled = false;
    // What is told to webhooks is told by servers.
    loaded.config.alerts = config::Alerts::default();
    // The answer is what is asked for, and it says what went wrong with the call.
    let logging = &mut loaded.config.logging;
    logging.level = LogLevel::Error;
    let (log, level) = Log::start_adjustable(logging);
    let lifecycle = Lifecycle::watch(loaded.config.shutdown)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let answered = runtime.block_on(async {
        let rules = Rules::watch(source, loaded);
        let server = Server::build(InCode::default(), &rules, level, lifecycle.clone())
            .await
            .map_err(in_use)?;
        lifecycle.serving();
        let outbox = Outbox::default();
        let connection = Connection::new(principal, TransportKind::Stdio, None, outbox.clone());
        let ask = async |frame: &Bytes| {
            let accepted = server.mcp.engine().accept(&connection, frame, &outbox);
            let reply = match accepted {
                Accepted::Done(reply) => reply,
                Accepted::Pending(exchange) => tokio::select! {
                    reply = exchange => reply,
                    // Dropping the exchange cancels the call, and the ledger says so.
                    () = lifecycle.asked() => Reply::Nothing,
                },
            };
            match reply {
                Reply::One(answer) => {
                    let mut text = BytesMut::new();
                    encode(&Message::Response(answer.response), &mut text);
                    Ok(RawJson::from_serialized(text.to_vec()))
                }
                Reply::Nothing | Reply::Batch(_) => Err(Failure::from("the call was cancelled")),
            }
        };
        let response = ask(frame).await;
        let second = match response.as_ref().ok().and_then(again) {
            Some(frame) => ask(&frame).await.ok(),
            None => None,
        };
        connection.close();
        lifecycle.begin();
        // Whether all of it is closed cleanly is in the log.
        server.close().await;
        Ok((response?, second))
    });
    runtime.shutdown_background();
    log.flush();
    answered
}

/// The principal that `--as` names.
///
/// # Errors
///
/// When it is no name that a header could have.
pub fn principal_named(client: &str) -> Result<Principal, Failure> {
    let is_printable = client.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if client.trim().is_empty() || !is_printable || Principal::MAX_LENGTH < client.len() {
        let most = Principal::MAX_LENGTH;
        return Err(format!("--as must be printable ASCII, at most {most} bytes").into());
    }
    Ok(Principal::new(client.trim()))
}

/// A server that runs has the ledger: it is to be called itself.
fn in_use(failure: Failure) -> Failure {
    match failure.downcast::<LedgerInUse>() {
        Ok(in_use) => {
            let what = &in_use.why;
            format!("{what}; call the server that has it: --url http://HOST:PORT/mcp").into()
        }
        Err(other) => other,
    }
}
