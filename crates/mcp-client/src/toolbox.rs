use crate::{CallOptions, Connection, Dial, Error, Options, RawJson};
use data_encoding::HEXLOWER;
use futures_util::future::{join_all, try_join_all};
use mcp_protocol::model::{CallToolResult, Tool};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Member of `_meta` in which a gateway says whose a tool is.
const UPSTREAM: &str = "io.owlclaw/upstream";

/// Tools of several servers under one roof, for callers that choose a tool by its name, such as a model.
///
/// A tool has the name that its server gives it. If a server before has the name, it is `NAME_2`, and so on, in the order
/// of the servers. The lists are those of the moment at which the servers were connected.
#[derive(Debug)]
pub struct Toolbox {
    servers: Vec<Connection>,
    /// Each tool under the name of the toolbox, with its own name and the place of its server.
    tools: Vec<(Tool, String, usize)>,
}

impl Toolbox {
    /// Connects the servers at once, and reads their lists.
    ///
    /// # Errors
    ///
    /// The first [`Error`] of any of them.
    pub async fn open(
        servers: impl IntoIterator<Item = Dial>,
        options: &Options,
    ) -> Result<Self, Error> {
        let opening = servers.into_iter().map(async |dial| {
            let connection = Connection::open(&dial, options.clone()).await?;
            let tools = connection.tools().await?;
            Ok::<_, Error>((connection, tools))
        });
        let mut found = Self {
            servers: Vec::new(),
            tools: Vec::new(),
        };
        for (connection, tools) in try_join_all(opening).await? {
            for mut tool in tools {
                let own = tool.name.clone();
                let mut nth = 1;
                while found.find(&tool.name).is_some() {
                    nth += 1;
                    tool.name = format!("{own}_{nth}");
                }
                found.tools.push((tool, own, found.servers.len()));
            }
            found.servers.push(connection);
        }
        Ok(found)
    }

    /// All tools, by the names under which they are called here.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().map(|(tool, _, _)| tool)
    }

    /// Tools of these servers behind a gateway, which says in `_meta` whose each tool is
    /// (founding document 003, §8).
    ///
    /// # Errors
    ///
    /// [`UnknownServer`] for a server of which there is no tool: its name may be misspelt, or it may be away.
    pub fn tools_of(&self, servers: &[&str]) -> Result<Vec<&Tool>, UnknownServer> {
        let mut found = Vec::new();
        for server in servers {
            let before = found.len();
            found.extend(
                self.tools()
                    .filter(|tool| server_of(tool).as_deref() == Some(server)),
            );
            if found.len() == before {
                return Err(UnknownServer((*server).to_owned()));
            }
        }
        Ok(found)
    }

    fn find(&self, name: &str) -> Option<&(Tool, String, usize)> {
        self.tools.iter().find(|(tool, _, _)| tool.name == name)
    }

    /// Calls a tool, by its name or by that of [`model_name`], with arguments as the text of a JSON object.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTool`], [`Error::Arguments`], and those of [`Connection::call`].
    pub async fn call(
        &self,
        name: &str,
        arguments: &str,
        options: &CallOptions,
    ) -> Result<CallToolResult, Error> {
        let (_, own, at) = self
            .find(name)
            // A model has the name as it was given it.
            .or_else(|| {
                self.tools
                    .iter()
                    .find(|(tool, ..)| model_name(&tool.name) == name)
            })
            .ok_or_else(|| Error::UnknownTool(name.to_owned()))?;
        let arguments =
            RawJson::from_bytes(arguments.to_owned().into()).map_err(Error::Arguments)?;
        self.servers[*at].call(own, arguments, options).await
    }

    /// Closes all connections.
    pub async fn close(self) {
        join_all(self.servers.into_iter().map(Connection::close)).await;
    }
}

/// A server of which a toolbox has no tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool of a server `{0}`")]
pub struct UnknownServer(pub String);

/// The server behind a gateway that a tool is of; `None` where it is the server's own.
#[must_use]
pub fn server_of(tool: &Tool) -> Option<String> {
    let origin = tool.meta.get(UPSTREAM)?;
    let origin: Value = origin.parse().ok()?;
    origin["name"].as_str().map(str::to_owned)
}

/// The longest name of a function that the interfaces of models take.
const MAX_MODEL_NAME: usize = 64;

/// The name of a tool as models take it: letters, digits, `_` and `-`, 64 at most. Another name has `_` for what cannot be in
/// it, and eight digits of its digest, so that two are not the same.
#[must_use]
pub fn model_name(name: &str) -> String {
    let is_legal = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    if name.len() <= MAX_MODEL_NAME && name.chars().all(is_legal) {
        return name.to_owned();
    }
    let legal = name.chars().map(|it| if is_legal(it) { it } else { '_' });
    let legal: String = legal.take(MAX_MODEL_NAME - 9).collect();
    let digest = Sha256::digest(name.as_bytes());
    format!("{legal}_{}", HEXLOWER.encode(&digest[..4]))
}

/// A tool as the Chat Completions interface of OpenAI takes it in `tools`.
#[must_use]
pub fn openai_tool(name: &str, description: &str, input_schema: &Value) -> Value {
    json!({ "type": "function", "function": {
        "name": model_name(name),
        "description": description,
        "parameters": input_schema,
    } })
}

/// A tool as the Messages interface of Anthropic takes it in `tools`.
#[must_use]
pub fn anthropic_tool(name: &str, description: &str, input_schema: &Value) -> Value {
    json!({
        "name": model_name(name),
        "description": description,
        "input_schema": input_schema,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_models_take_and_stay_different() {
        for name in ["mcp_github_create-issue", "a"] {
            assert_eq!(model_name(name), name);
        }
        let long = "x".repeat(65);
        let names = [
            "a.b",
            "a_b",
            "a-b",
            "a..b",
            "ä",
            "",
            &long,
            &format!("{long}y"),
        ]
        .map(model_name);
        for name in names.iter().filter(|it| !it.is_empty()) {
            let legal = name
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || "_-".contains(it));
            assert!(legal && name.len() <= MAX_MODEL_NAME, "{name}");
        }
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
        assert_eq!(model_name("a.b"), "a_b_2e7336dc");
    }
}
