//! The Skills extension (`io.modelcontextprotocol/skills`), for 2026-07-28 and later.

use super::{CacheHint, Resource, objects, present, raw_object};
use jsonrpc_core::RawJson;
use serde::{Deserialize, Serialize};

/// The extension's name among a server's capabilities.
pub const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";

/// The extension's setting that says whether directories can be read; false without it.
pub const DIRECTORY_READ: &str = "directoryRead";

/// The media type of a directory among resources.
pub const DIRECTORY_MIME_TYPE: &str = "inode/directory";

/// One skill, as `skills/list` and `skills/get` tell of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillEntry {
    /// Where its `SKILL.md` can be read, and what names the skill.
    pub uri: String,
    /// The front matter of its `SKILL.md`: an object with every field of it, as it is.
    #[serde(deserialize_with = "raw_object")]
    pub frontmatter: RawJson,
    /// Every file, each once, that named by [`uri`](Self::uri) included.
    #[serde(deserialize_with = "objects")]
    pub resources: Vec<SkillResource>,
}

/// One file of a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillResource {
    /// Where it can be read.
    pub uri: String,
    /// `sha256:` and 64 lower-case hexadecimal digits, over its bytes.
    pub digest: String,
    /// How many bytes it has.
    pub size: u64,
}

/// One page of skills.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListSkillsResult {
    /// The page, in an order that only depends on who asks.
    pub skills: Vec<SkillEntry>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
    /// How long the client may keep it.
    pub cache: CacheHint,
}

/// One skill.
#[derive(Clone, Debug, PartialEq)]
pub struct GetSkillResult {
    /// The skill.
    pub skill: SkillEntry,
    /// How long the client may keep it.
    pub cache: CacheHint,
}

/// `resources/directory/read`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadDirectory {
    /// Which, without a slash at its end.
    pub uri: String,
    /// Where to go on; opaque.
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
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
}
