//! The Skills extension (`io.modelcontextprotocol/skills`), for 2026-07-28 and later.

use super::{CacheHint, Resource, objects, present, raw_object};
use jsonrpc_core::RawJson;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::value::RawValue;

/// The extension's name among a server's capabilities.
pub const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";

/// The extension's setting that says whether directories can be read; false without it.
pub const DIRECTORY_READ: &str = "directoryRead";

/// The media type of a directory among resources.
pub const DIRECTORY_MIME_TYPE: &str = "inode/directory";

/// One skill, as `skills/list` and `skills/get` tell of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillEntry {
    /// Address at which its `SKILL.md` can be read, and which names the skill.
    pub uri: String,
    /// The front matter of its `SKILL.md`: an object with every field of it, as it is.
    #[serde(deserialize_with = "raw_object")]
    pub frontmatter: RawJson,
    /// Every file, each once, that named by [`uri`](Self::uri) included.
    /// Empty if the server makes them up as they are read (`"dynamic"`).
    #[serde(deserialize_with = "files")]
    pub resources: Vec<SkillResource>,
}

fn files<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SkillResource>, D::Error> {
    let files = Box::<RawValue>::deserialize(deserializer)?;
    match files.get() {
        "\"dynamic\"" => Ok(Vec::new()),
        files => objects(&mut serde_json::Deserializer::from_str(files)).map_err(Error::custom),
    }
}

/// One file of a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillResource {
    /// Address at which it can be read.
    pub uri: String,
    /// `sha256:` and 64 lower-case hexadecimal digits, over its bytes.
    pub digest: String,
    /// Size in bytes.
    pub size: u64,
}

/// One page of skills.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListSkillsResult {
    /// The page, in an order that only depends on who asks.
    pub skills: Vec<SkillEntry>,
    /// Cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
    /// Time for which the client may keep it.
    pub cache: CacheHint,
}

/// One skill.
#[derive(Clone, Debug, PartialEq)]
pub struct GetSkillResult {
    /// The skill.
    pub skill: SkillEntry,
    /// Time for which the client may keep it.
    pub cache: CacheHint,
}

/// `resources/directory/read`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadDirectory {
    /// URI of the directory, without a slash at its end.
    pub uri: String,
    /// Cursor to continue at; opaque.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub cursor: Option<String>,
}

/// One page of what is in a directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadDirectoryResult {
    /// Files and directories directly in it; the latter are of [`DIRECTORY_MIME_TYPE`].
    pub resources: Vec<Resource>,
    /// Cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
}
