//! Skills, prompts and sessions.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::session::Ended;
use crate::call::Call;
use crate::reply::{Problem, Reply};

/// Skills.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Skills {
    /// Skills, by their addresses.
    skills: Vec<Skill>,
}

/// A skill.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Skill {
    /// Address.
    uri: String,
    /// Name.
    name: String,
    /// Description.
    description: String,
    /// Category.
    category: String,
    /// Tags.
    tags: Vec<String>,
    /// Length of the document in bytes.
    size: u64,
    /// Number of other files.
    files: usize,
}

pub(crate) async fn skills(call: Call<'_>) -> Result<Reply, Problem> {
    let catalog = call.desk.server.skills();
    let skills = catalog.iter().map(|it| Skill {
        uri: it.uri().to_string(),
        name: it.name().to_owned(),
        description: it.description().to_owned(),
        category: it.category(),
        tags: it.tags().to_vec(),
        size: it.size(),
        files: it.files().len(),
    });
    let skills = skills.collect();
    Ok(Reply::json(&Skills { skills }))
}

/// Prompts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Prompts {
    /// Prompts, in the order in which clients are listed them.
    prompts: Vec<Prompt>,
}

/// A prompt.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Prompt {
    /// Name.
    name: String,
    /// Title.
    title: Option<String>,
    /// Description.
    description: Option<String>,
    /// Names of its arguments; those that are required have an asterisk.
    arguments: Vec<String>,
}

pub(crate) async fn prompts(call: Call<'_>) -> Result<Reply, Problem> {
    let offer = call.desk.server.offer();
    let prompts = offer.prompts().entries().iter().map(|it| Prompt {
        name: it.name.clone(),
        title: it.title.clone(),
        description: it.description.clone(),
        arguments: {
            let arguments = it.arguments.iter();
            let mark = |required| if required { "*" } else { "" };
            arguments
                .map(|it| format!("{}{}", it.name, mark(it.required)))
                .collect()
        },
    });
    let prompts = prompts.collect();
    Ok(Reply::json(&Prompts { prompts }))
}

/// Sessions of legacy clients over HTTP.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Sessions {
    /// Number that are open; `null` where there can be none, or not yet.
    open: Option<usize>,
    /// Number that may be.
    max: Option<usize>,
    /// Sessions, those first that are idle longest.
    sessions: Vec<Session>,
}

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Session {
    /// Name by which it is ended; no client can use it.
    id: String,
    /// Client.
    client: String,
    /// Revision of the protocol.
    version: String,
    /// Seconds since it was last used.
    idle_seconds: u64,
    /// True if its client listens.
    streaming: bool,
    /// Requests under way.
    requests: usize,
}

pub(crate) async fn sessions(call: Call<'_>) -> Result<Reply, Problem> {
    let Some(desk) = call.desk.server.sessions() else {
        return Ok(Reply::json(&Sessions {
            open: None,
            max: None,
            sessions: Vec::new(),
        }));
    };
    let overview = desk.overview();
    let rows = desk.rows(None);
    let sessions = rows.iter().map(|it| Session {
        id: it.id.to_string(),
        client: it.principal.to_string(),
        version: it.version.to_owned(),
        idle_seconds: it.idle.as_secs(),
        streaming: it.is_streaming,
        requests: it.in_flight,
    });
    Ok(Reply::json(&Sessions {
        open: Some(overview.open),
        max: Some(overview.max),
        sessions: sessions.collect(),
    }))
}

pub(crate) async fn end_session(call: Call<'_>) -> Result<Reply, Problem> {
    let Some(desk) = call.desk.server.sessions() else {
        let why = "there are no sessions without HTTP";
        return Err(Problem::new(StatusCode::NOT_FOUND, why));
    };
    let id = call.name();
    call.desk.record(call.who(), "session_end", id).await?;
    match desk.end(id) {
        true => Ok(Reply::json(&Ended { ended: 1 })),
        false => Err(Problem::missing("there is no such session")),
    }
}
