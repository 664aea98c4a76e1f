//! Servers: this one and its upstreams, as far as a client may know of them (rows 44 to 48 of document 004).

use std::collections::{BTreeMap, BTreeSet};

use mcp_service::McpService;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    dialect::{
        methods::{Call, unknown_target},
        resources::{kind, operations},
    },
    failure::Failure,
};

/// Name of this server among its upstreams.
pub(crate) const OWN: &str = "owlclaw";

/// Facts of the lists of MCP about one server.
#[derive(Default)]
struct Server {
    tools: Vec<Value>,
    prompts: Vec<Value>,
    kinds: BTreeSet<String>,
}

/// The upstream that an item of a list comes from; `None` for this server's own.
pub(crate) fn upstream(item: &Value) -> Option<&str> {
    let origin = item.pointer("/_meta/io.owlclaw~1upstream/name");
    origin.and_then(Value::as_str)
}

fn source(item: &Value) -> String {
    upstream(item).unwrap_or(OWN).to_owned()
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Discover {
    capabilities: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    server_id: String,
}

impl<S: McpService> Call<'_, S> {
    /// True if the client may use anything of a server.
    pub(crate) async fn knows(&self, server: &str) -> Result<bool, Failure> {
        for (method, key) in [
            ("tools/list", "tools"),
            ("resources/list", "resources"),
            ("prompts/list", "prompts"),
        ] {
            let listed = self.list(method, key, json!({})).await?;
            if listed.iter().any(|it| source(it) == server) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Servers of which the client may use anything, with what it may use.
    async fn servers(&self) -> Result<BTreeMap<String, Value>, Failure> {
        let mut servers: BTreeMap<String, Server> = BTreeMap::new();
        servers.insert(OWN.to_owned(), Server::default());
        for tool in self.list("tools/list", "tools", json!({})).await? {
            let server = servers.entry(source(&tool)).or_default();
            server.tools.push(crate::dialect::tools::described(tool));
        }
        for prompt in self.list("prompts/list", "prompts", json!({})).await? {
            let server = servers.entry(source(&prompt)).or_default();
            server
                .prompts
                .push(crate::dialect::prompts::described(&prompt));
        }
        for resource in self.list("resources/list", "resources", json!({})).await? {
            let server = servers.entry(source(&resource)).or_default();
            let uri = resource["uri"].as_str().unwrap_or_default();
            server.kinds.insert(kind(uri).to_owned());
        }
        Ok(servers
            .into_iter()
            .map(|(id, server)| {
                let mut capabilities = Map::new();
                let mut has = |key: &str, items: Vec<Value>| {
                    if !items.is_empty() {
                        capabilities.insert(key.to_owned(), items.into());
                    }
                };
                let kinds = server.kinds.iter();
                let kinds = kinds.map(|it| json!({ "type": it, "operations": operations(it) }));
                has("resource_types", kinds.collect());
                has("tools", server.tools);
                has("prompts", server.prompts);
                let described = json!({
                    "id": id,
                    "name": id,
                    "description": match id == OWN {
                        true => "This server.",
                        false => "A server behind it.",
                    },
                    "capabilities": capabilities,
                });
                (id, described)
            })
            .collect())
    }

    /// `discover_servers`: those that have all of the required capabilities.
    pub(crate) async fn discover_servers(&self) -> Result<Value, Failure> {
        let asked: Discover = self.request.params()?;
        let mut servers = self.servers().await?;
        let has = |it: &Value, key: &String| it["capabilities"].get(key).is_some();
        servers.retain(|_, it| asked.capabilities.iter().all(|key| has(it, key)));
        Ok(json!({ "servers": servers }))
    }

    /// `connect_server`: the session is told from then on when what servers offer has changed.
    pub(crate) async fn connect_server(&self) -> Result<Value, Failure> {
        let Named { server_id } = self.request.params()?;
        let mut servers = self.servers().await?;
        let server = servers.remove(&server_id).ok_or_else(unknown_target)?;
        self.session.known().connected.insert(server_id.clone());
        Ok(json!({
            "status": "connected",
            "server_info": {
                "id": server_id, "name": server["name"], "capabilities": server["capabilities"],
            },
        }))
    }

    /// `disconnect_server`.
    pub(crate) fn disconnect_server(&self) -> Result<Value, Failure> {
        let Named { server_id } = self.request.params()?;
        match self.session.known().connected.remove(&server_id) {
            true => Ok(json!({ "status": "disconnected" })),
            false => Err(Failure::params(
                "the session is not connected to this server",
            )),
        }
    }
}
