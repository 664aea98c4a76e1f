use crate::{CallOptions, Connection, Dial, Error, Options, RawJson};
use futures_util::future::{join_all, try_join_all};
use mcp_protocol::model::{CallToolResult, Tool};

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

    fn find(&self, name: &str) -> Option<&(Tool, String, usize)> {
        self.tools.iter().find(|(tool, _, _)| tool.name == name)
    }

    /// Calls a tool, with arguments as the text of a JSON object.
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
