//! Watchers, and what MCP says without being asked, as notifications (rows 51, 75, 91, 104 and 105 of document 004).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use mcp_service::{McpService, Principal};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    dialect::{
        methods::Call,
        resources::{described, is_meant},
        servers::{OWN, upstream},
        session::Session,
        sessions::Host,
        tools::status,
    },
    failure::{Failure, TOO_MANY},
};

/// The most resources that the watchers of one session look at together.
const MAX_WATCHED: usize = 500;

const EVENTS: [&str; 3] = ["created", "updated", "deleted"];

/// Resources that a session wants to be told of.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    kind: Option<String>,
    id: Option<String>,
    path: Option<String>,
    events: BTreeSet<String>,
    /// The resources that were there when it looked last, as they are described.
    there: BTreeMap<String, Value>,
}

impl Watcher {
    fn means(&self, uri: &str) -> bool {
        self.id.as_deref().is_none_or(|it| it == uri)
            && is_meant(uri, self.kind.as_deref(), self.path.as_deref())
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Watch {
    r#type: Option<String>,
    id: Option<String>,
    path: Option<String>,
    #[serde(default)]
    events: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unwatch {
    watcher_id: String,
}

fn by_uri(listed: Vec<Value>) -> BTreeMap<String, Value> {
    let uri = |it: &Value| it["uri"].as_str().unwrap_or_default().to_owned();
    listed.into_iter().map(|it| (uri(&it), it)).collect()
}

impl<S: McpService> Call<'_, S> {
    /// `watch_resources`.
    pub(crate) async fn watch_resources(&self) -> Result<Value, Failure> {
        let asked: Watch = self.request.params()?;
        let params = self.request.params::<Value>()?;
        if let Some(unknown) = asked
            .events
            .iter()
            .find(|it| !EVENTS.contains(&it.as_str()))
        {
            let unknown: String = unknown.chars().take(50).collect();
            let why = format!("there is no event `{unknown}`: `created`, `updated`, `deleted`");
            return Err(Failure::params(why));
        }
        if let Some(kind) = &asked.r#type {
            self.check_type(kind).await?;
        }
        if let Some(id) = &asked.id
            && !is_meant(id, asked.r#type.as_deref(), asked.path.as_deref())
        {
            return Err(Failure::params(
                "`id` is none of this `type` and `path`; leave them out",
            ));
        }
        let events: BTreeSet<_> = match asked.events.is_empty() {
            true => EVENTS.map(str::to_owned).into(),
            false => asked.events.into_iter().collect(),
        };
        let most = self.host.options.max_watchers;
        let too_many = || {
            let why = format!("too many watchers: {most} for each session");
            Failure::new(TOO_MANY, why)
        };
        if most <= self.session.known().watchers.len() {
            return Err(too_many());
        }
        let mut watcher = Watcher {
            kind: asked.r#type,
            id: asked.id,
            path: asked.path,
            events,
            there: BTreeMap::new(),
        };
        let listed = self.host.there(self.session, self.principal).await?;
        watcher.there = listed
            .into_iter()
            .filter(|(uri, _)| watcher.means(uri))
            .collect();
        // An address that is in no list, such as one of a template, can be watched if it can be read.
        if let Some(id) = watcher
            .id
            .clone()
            .filter(|it| !watcher.there.contains_key(it))
        {
            self.subscribe(&id).await?;
            self.session.known().subscribed.insert(id.clone());
            watcher.there.insert(id.clone(), json!({ "uri": id }));
        }
        let id = format!("watcher-{}", uuid::Uuid::new_v4());
        {
            let mut known = self.session.known();
            let watched: BTreeSet<_> = known
                .watchers
                .values()
                .chain([&watcher])
                .flat_map(|it| it.there.keys())
                .collect();
            if most <= known.watchers.len() {
                return Err(too_many());
            }
            if MAX_WATCHED < watched.len() {
                let why = format!("more than {MAX_WATCHED} resources would be watched: narrow it");
                return Err(Failure::new(TOO_MANY, why));
            }
            known.watchers.insert(id.clone(), watcher);
        }
        let refused = self.host.settle(self.session, self.principal, true).await;
        let (is_one, mut left_out) = {
            let known = self.session.known();
            let own = known.watchers.get(&id);
            let is_own = |uri: &String| own.is_some_and(|it| it.there.contains_key(uri));
            let left_out = refused.into_iter().filter(|(uri, _)| is_own(uri));
            (
                own.is_some_and(|it| it.id.is_some()),
                left_out.collect::<Vec<_>>(),
            )
        };
        let is_fatal = |failure: &Failure| is_one || !failure.is_of_one_resource();
        if let Some(at) = left_out.iter().position(|(_, it)| is_fatal(it)) {
            self.session.known().watchers.remove(&id);
            self.host.settle(self.session, self.principal, false).await;
            return Err(left_out.swap_remove(at).1);
        }
        let mut answer = json!({ "watcher_id": id, "params": params });
        if !left_out.is_empty() {
            let left_out = left_out.into_iter().map(|(uri, _)| uri);
            answer["left_out"] = left_out.collect::<Vec<_>>().into();
        }
        Ok(answer)
    }

    async fn subscribe(&self, uri: &str) -> Result<(), Failure> {
        let params = json!({ "uri": uri });
        self.ask("resources/subscribe", params).await.map(drop)
    }

    /// `unwatch_resources`, which the document forgets.
    pub(crate) async fn unwatch_resources(&self) -> Result<Value, Failure> {
        let Unwatch { watcher_id } = self.request.params()?;
        if self.session.known().watchers.remove(&watcher_id).is_none() {
            return Err(Failure::params("there is no such watcher"));
        }
        self.host.settle(self.session, self.principal, false).await;
        Ok(json!({ "watcher_id": watcher_id, "status": "unwatched" }))
    }
}

impl<S: McpService> Host<S> {
    /// The resources that a client may know of.
    async fn there(
        &self,
        session: &Session,
        principal: &Principal,
    ) -> Result<BTreeMap<String, Value>, Failure> {
        let listed = self
            .list(session, principal, "resources/list", "resources", json!({}))
            .await?;
        Ok(by_uri(listed))
    }

    /// Subscribes to what watchers look at now, and no longer to the rest. Gives what is refused now; all else is
    /// subscribed to nevertheless. What was refused before is asked for again where that is wanted.
    async fn settle(
        &self,
        session: &Session,
        principal: &Principal,
        again: bool,
    ) -> Vec<(String, Failure)> {
        // What is noted as subscribed to has been asked for, and nobody else asks meanwhile.
        let _turn = session.settling.lock().await;
        let (fresh, over) = {
            let mut known = session.known();
            let is_updated = |it: &&Watcher| it.id.is_some() || it.events.contains("updated");
            let watchers = known.watchers.values().filter(is_updated);
            let wanted: BTreeSet<String> =
                watchers.flat_map(|it| it.there.keys().cloned()).collect();
            if again {
                known.refused.clear();
            }
            known.refused.retain(|it| wanted.contains(it));
            let fresh = wanted.difference(&known.subscribed);
            let fresh: Vec<_> = fresh
                .filter(|it| !known.refused.contains(*it))
                .cloned()
                .collect();
            let over: Vec<_> = known.subscribed.difference(&wanted).cloned().collect();
            (fresh, over)
        };
        for uri in over {
            let params = json!({ "uri": uri });
            // What is not subscribed to any more, since it is gone, is as good.
            let _ = self
                .ask(session, principal, "resources/unsubscribe", params)
                .await;
            session.known().subscribed.remove(&uri);
        }
        let mut refused = Vec::new();
        for uri in fresh {
            let params = json!({ "uri": uri });
            let heard = self
                .ask(session, principal, "resources/subscribe", params)
                .await;
            let mut known = session.known();
            match heard {
                Ok(_) => {
                    known.subscribed.insert(uri);
                }
                Err(failure) => {
                    known.refused.insert(uri.clone());
                    refused.push((uri, failure));
                }
            }
        }
        refused
    }

    /// Passes on what MCP has said in a session.
    pub(crate) async fn pass_on(self: &Arc<Self>, session: &Arc<Session>, message: Value) {
        let Some(principal) = session.known().principal.clone() else {
            return;
        };
        let params = &message["params"];
        let uri = params["uri"].as_str();
        match message["method"].as_str().unwrap_or_default() {
            "notifications/resources/updated" => {
                let updated = uri.map(str::to_owned);
                self.look(session, &principal, updated.as_deref()).await;
            }
            "notifications/resources/list_changed" => {
                changed(session, "resources");
                self.look(session, &principal, None).await;
            }
            "notifications/tools/list_changed" => changed(session, "tools"),
            "notifications/prompts/list_changed" => changed(session, "prompts"),
            "notifications/progress" => {
                let token = params["progressToken"].as_str().unwrap_or_default();
                let task = session.known().tasks.get(token).cloned();
                let Some(task) = task else { return };
                let told = json!({
                    "task_id": task, "status": "running",
                    "progress": fraction(params), "message": params["message"],
                });
                session.tell("tool_progress", told, Some(OWN));
            }
            "notifications/tasks/status" => self.task_changed(session, &principal, params).await,
            "notifications/message" => {
                let told = json!({
                    "level": params["level"], "logger": params["logger"], "data": params["data"],
                });
                session.tell("alert", told, Some(OWN));
            }
            _ => {}
        }
    }

    /// Looks what has become of the resources that watchers look at, one of which has changed.
    async fn look(&self, session: &Session, principal: &Principal, updated: Option<&str>) {
        if session.known().watchers.is_empty() {
            return;
        }
        let there = match self.there(session, principal).await {
            Ok(there) => there,
            Err(failure) => {
                tracing::debug!(session = %session.id, ?failure, "watchers cannot look");
                return;
            }
        };
        let mut told = Vec::new();
        {
            let mut known = session.known();
            for (id, watcher) in &mut known.watchers {
                let is_listed = |uri: &String| there.contains_key(uri);
                let gone: Vec<_> = watcher
                    .there
                    .iter()
                    .filter(|(uri, it)| !is_listed(uri) && it.get("name").is_some())
                    .map(|(uri, it)| (uri.clone(), it.clone()))
                    .collect();
                for (uri, resource) in gone {
                    watcher.there.remove(&uri);
                    told.push((id.clone(), "deleted", resource));
                }
                for (uri, resource) in &there {
                    // No more than a session may watch.
                    let is_full = MAX_WATCHED <= watcher.there.len();
                    if !watcher.means(uri) || (is_full && !watcher.there.contains_key(uri)) {
                        continue;
                    }
                    let before = watcher.there.insert(uri.clone(), resource.clone());
                    if before.is_none_or(|it| it.get("name").is_none()) && updated != Some(uri) {
                        told.push((id.clone(), "created", resource.clone()));
                    } else if updated == Some(uri) {
                        told.push((id.clone(), "updated", resource.clone()));
                    }
                }
                // One that is in no list.
                if let Some(uri) = updated.filter(|it| !there.contains_key(*it))
                    && let Some(resource) = watcher.there.get(uri)
                {
                    told.push((id.clone(), "updated", resource.clone()));
                }
            }
            told.retain(|(id, event, _)| known.watchers[id].events.contains(*event));
        }
        for (id, event, resource) in told {
            let source = upstream(&resource).unwrap_or(OWN).to_owned();
            let params = json!({
                "watcher_id": id, "event": event, "resource": described(&resource),
            });
            session.tell("resource_changed", params, Some(&source));
        }
        // A list that has changed may have become one of what the client may now read.
        let refused = self.settle(session, principal, updated.is_none()).await;
        for (uri, failure) in refused {
            match failure.is_of_one_resource() {
                true => {
                    tracing::debug!(session = %session.id, uri, ?failure, "a resource is left out by watchers")
                }
                false => {
                    tracing::warn!(session = %session.id, uri, ?failure, "a resource cannot be watched")
                }
            }
        }
    }

    /// Tells that a task has got on, or is over.
    async fn task_changed(&self, session: &Session, principal: &Principal, task: &Value) {
        let id = &task["taskId"];
        let status = status(&task["status"]);
        if matches!(status, "completed" | "error") {
            let params = json!({ "taskId": id });
            let result = self.ask(session, principal, "tasks/result", params).await;
            let failure = match result {
                Ok(result) if result["isError"] == true => Failure::of_result(&result),
                Ok(result) => {
                    let told =
                        json!({ "task_id": id, "result": crate::dialect::tools::output(&result) });
                    session.tell("tool_completed", told, Some(OWN));
                    return forget(session, id);
                }
                Err(failure) => failure,
            };
            let told = json!({ "task_id": id, "error": failure.into_json() });
            session.tell("tool_error", told, Some(OWN));
            return forget(session, id);
        }
        let message = &task["statusMessage"];
        let told = json!({ "task_id": id, "status": status, "message": message });
        session.tell("tool_progress", told, Some(OWN));
        if status == "cancelled" {
            forget(session, id);
        }
    }
}

/// Forgets the token of a task that is over.
fn forget(session: &Session, task: &Value) {
    session.known().tasks.retain(|_, it| task != it.as_str());
}

/// Progress as a part of one, if it is known how much there is.
fn fraction(params: &Value) -> Value {
    let (done, total) = (params["progress"].as_f64(), params["total"].as_f64());
    match (done, total) {
        (Some(done), Some(total)) if 0.0 < total => json!((done / total).clamp(0.0, 1.0)),
        _ => params["progress"].clone(),
    }
}

/// Tells a session that is connected to a server that there is something else on offer.
fn changed(session: &Session, list: &str) {
    if session.known().connected.is_empty() {
        return;
    }
    let timestamp = crate::dialect::session::seconds(SystemTime::now());
    let params = json!({ "list": list, "timestamp": timestamp });
    session.tell("capabilities_changed", params, Some(OWN));
}
