//! The table of the dialect's methods.

use std::sync::Arc;

use mcp_service::{McpService, Principal};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    dialect::{
        servers::OWN,
        session::{Session, seconds},
        sessions::Host,
    },
    failure::{DENIED, Failure, INVALID_PARAMS, UNKNOWN_METHOD, UNSUPPORTED},
    message::{Nothing, Request},
};

/// A request with its session, on behalf of its sender.
pub(crate) struct Call<'c, S> {
    pub(crate) host: &'c Arc<Host<S>>,
    pub(crate) session: &'c Arc<Session>,
    pub(crate) principal: &'c Principal,
    pub(crate) request: &'c Request,
}

impl<S: McpService> Call<'_, S> {
    /// Makes a request of MCP.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Value, Failure> {
        let (session, principal) = (self.session, self.principal);
        self.host.ask(session, principal, method, params).await
    }

    /// All items of a list of MCP.
    pub(crate) async fn list(
        &self,
        method: &str,
        key: &str,
        params: Value,
    ) -> Result<Vec<Value>, Failure> {
        let (session, principal) = (self.session, self.principal);
        self.host
            .list(session, principal, method, key, params)
            .await
    }

    /// The server that a request is for, unless it is this one.
    pub(crate) fn target(&self) -> Option<&str> {
        self.request.target.as_deref().filter(|it| *it != OWN)
    }

    /// Refuses a request for a server that its sender may not know of, and one that this server alone can carry out.
    async fn reaches_target(&self) -> Result<(), Failure> {
        let Some(target) = self.target() else {
            return Ok(());
        };
        if !self.knows(target).await? {
            return Err(unknown_target());
        }
        let why = match self.request.method.as_str() {
            "create_resource" | "update_resource" | "delete_resource" => {
                "resources of other servers are written by their own tools"
            }
            "search_resources" | "watch_resources" => {
                "this is done for the resources of all servers together: leave `target` out"
            }
            _ => return Ok(()),
        };
        Err(Failure::new(UNSUPPORTED, why))
    }
}

/// Outcome of a request, and the server that has answered it.
type Answered = (Result<Value, Failure>, Option<String>);

/// Carries out a request.
pub(crate) async fn carry_out<S: McpService>(
    host: &Arc<Host<S>>,
    principal: &Principal,
    request: &Request,
) -> Answered {
    match of_session(host, principal, request).await {
        Ok(answered) => answered,
        Err(failure) => (Err(failure), None),
    }
}

async fn of_session<S: McpService>(
    host: &Arc<Host<S>>,
    principal: &Principal,
    request: &Request,
) -> Result<Answered, Failure> {
    match request.method.as_str() {
        "create_session" => return Ok((create(host, principal, request).await, None)),
        "close_session" => return Ok((close(host, principal, request), None)),
        _ => {}
    }
    let session = &host.session(principal, request.session.as_deref())?;
    let _running = session.begin(principal, &host.options)?;
    let call = Call {
        host,
        session,
        principal,
        request,
    };
    let source = Some(request.target.clone().unwrap_or_else(|| OWN.to_owned()));
    if let Err(failure) = call.reaches_target().await {
        return Ok((Err(failure), None));
    }
    let outcome = match request.method.as_str() {
        "get_session_info" => return Ok((info(&call), None)),
        "discover_servers" => return Ok((call.discover_servers().await, None)),
        "connect_server" => return Ok((call.connect_server().await, None)),
        "disconnect_server" => return Ok((call.disconnect_server(), None)),
        "register_server" | "unregister_server" => Err(Failure::new(
            DENIED,
            "servers are the operator's: they are named under `upstreams` in the configuration",
        )),
        "read_resource" => call.read_resource().await,
        "list_resources" => call.list_resources().await,
        "search_resources" => call.search_resources().await,
        "create_resource" => call.create_resource().await,
        "update_resource" => call.update_resource().await,
        "delete_resource" => call.delete_resource().await,
        "watch_resources" => call.watch_resources().await,
        "unwatch_resources" => call.unwatch_resources().await,
        "get_resource_permissions" | "set_resource_permissions" => Err(Failure::new(
            UNSUPPORTED,
            "permissions are the operator's rules, and no property of a resource",
        )),
        "discover_tools" => call.discover_tools().await,
        "invoke_tool" => call.invoke_tool().await,
        "get_tool_status" => call.tool_status().await,
        "cancel_tool" => call.cancel_tool().await,
        "list_prompts" => call.list_prompts().await,
        "get_prompt" => call.get_prompt().await,
        "render_prompt" => call.render_prompt().await,
        "get_prompt_versions" => call.prompt_versions().await,
        method => {
            let method: String = method.chars().take(100).collect();
            let why = format!("there is no method `{method}`");
            return Ok((Err(Failure::new(UNKNOWN_METHOD, why)), None));
        }
    };
    Ok((outcome, source))
}

/// `create_session` (row 31).
async fn create<S: McpService>(
    host: &Arc<Host<S>>,
    principal: &Principal,
    request: &Request,
) -> Result<Value, Failure> {
    // Also an empty list, which would have to mean that nothing is permitted.
    if request.has("permissions") {
        return Err(Failure::params(
            "a client cannot say what it may: leave `permissions` out; the operator's rules hold",
        ));
    }
    let Nothing {} = request.params()?;
    let session = host.create(principal).await?;
    Ok(json!({
        "session_id": &*session.id,
        "expires_at": seconds(session.expires(&host.options)),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Close {
    session_id: Option<String>,
}

/// `close_session` (row 33).
fn close<S: McpService>(
    host: &Arc<Host<S>>,
    principal: &Principal,
    request: &Request,
) -> Result<Value, Failure> {
    let Close { session_id } = request.params()?;
    let id = session_id.as_deref().or(request.session.as_deref());
    let session = host.session(principal, id)?;
    let closed = json!({ "session_id": &*session.id, "reason": "closed" });
    session.tell("session_closed", closed, None);
    host.end(&session);
    Ok(json!({ "status": "closed" }))
}

/// `get_session_info` (rows 32 and 52).
fn info<S: McpService>(call: &Call<'_, S>) -> Result<Value, Failure> {
    let Nothing {} = call.request.params()?;
    let (session, options) = (call.session, &call.host.options);
    let known = session.known();
    let watchers: Vec<_> = known.watchers.keys().collect();
    Ok(json!({
        "session_id": &*session.id,
        "client_id": call.principal.as_str(),
        "state": session.state(options),
        "created_at": seconds(session.created),
        "last_activity": seconds(session.last_activity()),
        "expires_at": seconds(session.expires(options)),
        "connected_servers": known.connected,
        "watchers": watchers,
        "resource_limits": {
            "max_requests_per_minute": options.max_requests_per_minute,
            "max_concurrent_requests": options.max_concurrent_requests,
            "max_queued_bytes": options.max_queued_bytes,
            "max_watchers": options.max_watchers,
        },
    }))
}

/// The failure of a request whose target is no server that its sender may know of.
pub(crate) fn unknown_target() -> Failure {
    Failure::new(INVALID_PARAMS, "there is no such server")
}
