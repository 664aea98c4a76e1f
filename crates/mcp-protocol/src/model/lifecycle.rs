use super::{CacheHint, ClientCapabilities, Icon, ServerCapabilities, object, objects};
use crate::ProtocolVersion;
use serde::{Deserialize, Serialize};

/// Name and version that a peer gives of itself. Never a credential, and never a reason to behave
/// differently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Implementation {
    /// The program's name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Name for people; since 2025-06-18.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description for people; since 2025-11-25.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Address at which people read more about it; since 2025-11-25.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_url: Option<String>,
    /// Pictures that stand for it; since 2025-11-25.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "objects"
    )]
    pub icons: Vec<Icon>,
}

impl Implementation {
    /// As revision `version` has it.
    #[must_use]
    pub fn shaped_for(&self, version: ProtocolVersion) -> Self {
        let mut shaped = self.clone();
        if version < ProtocolVersion::V2025_11_25 {
            shaped.description = None;
            shaped.website_url = None;
            shaped.icons.clear();
        }
        if version < ProtocolVersion::V2025_06_18 {
            shaped.title = None;
        }
        shaped
    }
}

/// `initialize`: opens a legacy session.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialize {
    /// The version the client would like to speak.
    pub protocol_version: String,
    /// Capabilities of the client. Required by the schema; clients exist that leave them out.
    #[serde(default, deserialize_with = "object_or_default")]
    pub capabilities: ClientCapabilities,
    /// Name and version of the client. Required by the schema; clients exist that leave them out.
    #[serde(default, deserialize_with = "object_or_default")]
    pub client_info: Implementation,
}

fn object_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    object(deserializer).map(Option::unwrap_or_default)
}

/// The answer to `initialize`.
#[derive(Clone, Debug, PartialEq)]
pub struct InitializeResult {
    /// The version in force from now on.
    pub protocol_version: &'static str,
    /// Capabilities of the server.
    pub capabilities: ServerCapabilities,
    /// Instructions for the model on how to use the server.
    pub instructions: Option<String>,
}

/// The answer to `server/discover`.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoverResult {
    /// Capabilities of the server.
    pub capabilities: ServerCapabilities,
    /// Instructions for the model on how to use the server.
    pub instructions: Option<String>,
    /// Time for which the client may keep this result.
    pub cache: CacheHint,
}
