//! A running server as operators see it: what a program beside its listeners asks of it, and has it do. Methods return
//! boxed futures, so that the parts of the server are compiled in this crate and not again in each that awaits them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use adapter_skills::SkillCatalog;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use gateway::Gateway;
use governance::{Caller, Policy};
use http::request::Parts;
use jsonrpc_core::{Message, RawJson, encode};
use ledger::{ApprovalError, ApprovalId, Note, NoteKind, RecordError, Verdict};
use mcp_server::{CancelledTask, Health, Offer, system_clock, tool_capability};
use mcp_service::{Accepted, Connection, Outbox, Principal, Reply, TransportKind};
use serde_json::Value;
use task_store::{Overseen, TaskId, TaskRecord};
use transport_http::{Authenticate, SessionDesk, Tls};

use super::build::Server;
use super::explain::{Callee, Explained, judge};
use super::identity::BrowserSignIns;
use super::list::tool_row;
use super::logging::without_secrets;
use super::notes::{self, Act};
use super::sharing::{NodeState, ServerNode, node_name};
use crate::{Failure, ToolRow};
use config::{Config, Reference};

/// Program that serves operators beside the clients of a server, such as the desk.
pub trait Beside: fmt::Debug + Send + Sync {
    /// Begins to serve, before clients are. Dropping what is returned ends it at once.
    ///
    /// # Errors
    ///
    /// When it cannot be served, in which case the server does not start.
    fn begin(&self, server: &Arc<Server>) -> Result<Box<dyn ServedBeside>, Failure>;
}

/// Service that runs beside the clients of a server.
pub trait ServedBeside: Send {
    /// Ends it, in order.
    fn stop(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl Server {
    /// Configuration at the start.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// References in force, with the keys of the configuration whose values they stand in.
    pub fn references(&self) -> Vec<(String, Reference)> {
        self.reading.references()
    }

    /// Rules in force, as configured.
    pub fn governance(&self) -> config::Governance {
        let in_force = self.in_force.lock();
        in_force
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .governance
            .clone()
    }

    /// Rules in force, as they decide.
    pub fn policy(&self) -> Arc<Policy> {
        self.mcp.governor().policy()
    }

    /// Version of the rules in force.
    pub fn rules_version(&self) -> u64 {
        self.policy_version()
    }

    /// Authentication of clients; `None` where they prove nothing.
    pub fn authentication(&self) -> Option<Arc<dyn Authenticate>> {
        let identification = self.identification.clone();
        identification.map(|it| it as Arc<dyn Authenticate>)
    }

    /// Sign-ins of people in their browsers, if there is an issuer for it.
    pub fn sign_ins(&self) -> Option<&BrowserSignIns> {
        self.identification.as_ref()?.sign_ins()
    }

    /// Kind of the proof that a request has: `token`, `API key` or `client certificate`.
    pub fn kind_of_proof(request: &Parts) -> &'static str {
        super::identity::kind_of_proof(request)
    }

    /// Certificates of the HTTP transport.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        let certificates = self.certificates.as_ref();
        certificates.map(|it| Arc::clone(it.tls()))
    }

    /// State of the server and its parts.
    pub fn health(&self) -> Health {
        self.mcp.health()
    }

    /// Use of its limits by every principal, as of now.
    ///
    /// # Errors
    ///
    /// When the counters cannot be reached.
    pub fn usage(&self) -> BoxFuture<'_, Result<Value, Failure>> {
        Box::pin(async move { Ok(self.mcp.usage_json().await?) })
    }

    /// Upstreams.
    pub fn gateway(&self) -> &Gateway {
        self.sources.gateway()
    }

    /// The end of the standard error of an upstream, without secrets; `None` where there is none.
    pub fn stderr_of(&self, upstream: &str) -> Option<String> {
        self.gateway()
            .stderr(upstream)
            .map(|it| without_secrets(&it))
    }

    /// Tools, resources and prompts on offer.
    pub fn offer(&self) -> Arc<Offer> {
        self.mcp.offer()
    }

    /// Skills.
    pub fn skills(&self) -> Arc<SkillCatalog> {
        Arc::clone(&self.skills.borrow())
    }

    /// Tool on offer of this name, as the rules have it for any client.
    pub fn tool(&self, name: &str) -> Option<ToolRow> {
        let (offer, skills) = (self.offer(), self.skills());
        let policy = self.policy();
        let timeout = Duration::from_secs(self.config.tools.default_timeout_seconds);
        let tool = offer.tools().get(name)?;
        Some(tool_row(&offer, &policy, &skills, timeout, "", tool))
    }

    /// True if all calls of a tool are refused until an operator mends something.
    pub fn is_held(&self, tool: &str) -> bool {
        self.policy().held(&tool_capability(tool)).is_some()
    }

    /// Sessions of legacy clients over HTTP, while it serves.
    pub fn sessions(&self) -> Option<&SessionDesk> {
        self.live_sessions.get()
    }

    /// A page of the tasks of all clients, the newest first; `None` where calls become none.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn tasks<'a>(
        &'a self,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<Overseen>>, Failure>> {
        Box::pin(async move {
            match self.mcp.tasks() {
                Some(tasks) => Ok(Some(tasks.oversee(after, most).await?)),
                None => Ok(None),
            }
        })
    }

    /// The task of this name.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn task<'a>(
        &'a self,
        id: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<TaskRecord>, Failure>> {
        Box::pin(async move {
            match self.mcp.tasks() {
                Some(tasks) => Ok(tasks.record_of(id).await?),
                None => Ok(None),
            }
        })
    }

    /// Cancels a task; `None` if there is none of this name.
    ///
    /// # Errors
    ///
    /// When it cannot be said that it is cancelled.
    pub fn cancel_task<'a>(
        &'a self,
        id: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<CancelledTask>, Failure>> {
        Box::pin(async move {
            match self.mcp.tasks() {
                Some(tasks) => Ok(tasks.cancel(id).await?),
                None => Ok(None),
            }
        })
    }

    /// The servers that share the ledger's database, or this one alone.
    ///
    /// # Errors
    ///
    /// When the database cannot be asked.
    pub fn nodes(&self) -> BoxFuture<'_, Result<Vec<ServerNode>, Failure>> {
        Box::pin(async move {
            if let Some(sharing) = &self.sharing {
                return sharing.nodes().await;
            }
            let tasks = self.mcp.tasks();
            let health = self.health();
            Ok(vec![ServerNode {
                id: tasks.map(|it| it.owner().to_owned()).unwrap_or_default(),
                name: node_name(),
                version: health.version,
                state: NodeState::Alive,
                is_this: true,
                sessions: self
                    .sessions()
                    .and_then(|it| u64::try_from(it.overview().open).ok()),
                tasks: tasks.map_or(0, |it| u64::try_from(it.running()).unwrap_or(u64::MAX)),
                age: None,
                silent: Duration::ZERO,
            }])
        })
    }

    /// True if other servers may share the ledger's database.
    pub fn may_have_others(&self) -> bool {
        self.sharing.is_some()
    }

    /// Decision on a call that is not made: by the rules and the counters in force.
    ///
    /// # Errors
    ///
    /// When the ledger or the counters cannot be read.
    pub fn explain<'a>(
        &'a self,
        caller: Caller<'a>,
        callee: Callee<'a>,
        arguments: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Explained, Failure>> {
        Box::pin(async move {
            let (offer, governor) = (self.offer(), self.mcp.governor());
            judge(&self.config, &offer, governor, caller, callee, arguments).await
        })
    }

    /// Decides an approval, or revokes a decision. The ledger names the person `operator:` and the name
    /// in `verdict`.
    ///
    /// # Errors
    ///
    /// [`ApprovalError`]: it cannot be decided, or nobody can say whether it was.
    pub fn decide_approval<'a>(
        &'a self,
        approval: ApprovalId,
        verdict: Verdict,
    ) -> BoxFuture<'a, Result<(), ApprovalError>> {
        Box::pin(async move {
            let decided = self.mcp.decide_approval(approval, verdict).await;
            decided.map(|_| ())
        })
    }

    /// Puts an act on record before it is done. Waits until the ledger has it.
    ///
    /// # Errors
    ///
    /// When it cannot be recorded, in which case it must not be done.
    pub fn record<'a>(&'a self, act: Act<'a>) -> BoxFuture<'a, Result<(), RecordError>> {
        Box::pin(async move {
            let note = Note {
                actor: &act.actor(),
                subject: act.subject,
                policy_version: self.policy_version(),
                detail: &act.detail(),
                ..Note::new(system_clock(), NoteKind::OPERATOR_ACTED)
            };
            self.mcp.recorder().note(&note).await
        })
    }

    /// Records that a client, or all clients, have no such credential at an upstream any more, as an operator has had it.
    pub fn note_forgotten(&self, client: Option<&str>, upstream: &str) {
        let (recorder, client) = (self.mcp.recorder(), client.unwrap_or("(all clients)"));
        let version = self.policy_version();
        notes::credential_changed(recorder, version, client, upstream, "forgotten on the desk");
    }

    /// Calls by way of everything that a client's call goes through; `frame` is a JSON-RPC request.
    /// Dropping the future cancels the call.
    ///
    /// # Errors
    ///
    /// When the frame is no single request; what is wrong with the call is in the response.
    pub fn call_as<'a>(
        &'a self,
        principal: Principal,
        frame: &'a Bytes,
    ) -> BoxFuture<'a, Result<RawJson, Failure>> {
        Box::pin(async move {
            let outbox = Outbox::default();
            let connection = Connection::new(principal, TransportKind::Http, None, outbox.clone());
            let reply = match self.mcp.engine().accept(&connection, frame, &outbox) {
                Accepted::Done(reply) => reply,
                Accepted::Pending(exchange) => exchange.await,
            };
            connection.close();
            match reply {
                Reply::One(answer) => {
                    let mut text = BytesMut::new();
                    encode(&Message::Response(answer.response), &mut text);
                    Ok(RawJson::from_serialized(text.to_vec()))
                }
                Reply::Nothing | Reply::Batch(_) => Err("the call was cancelled".into()),
            }
        })
    }

    /// Resolves when the server stops.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let lifecycle = self.lifecycle.clone();
        async move { lifecycle.begun().await }
    }
}
