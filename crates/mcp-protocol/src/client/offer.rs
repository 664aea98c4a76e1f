use crate::{
    RequestedVersion,
    model::{CacheHint, Implementation, object_or_null, or_default},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Capabilities that a server declares.
///
/// [`ServerCapabilities`](crate::model::ServerCapabilities) is what our own server says, and always
/// announces changes; other servers do not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerOffer {
    /// Tools.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub tools: Option<ListOffer>,
    /// Resources.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub resources: Option<ResourcesOffer>,
    /// Prompts.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub prompts: Option<ListOffer>,
    /// Completion of arguments. Servers of 2024-11-05 may have it and cannot say so.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub completions: Option<Map<String, Value>>,
    /// Log messages.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub logging: Option<Map<String, Value>>,
    /// The tasks of 2025-11-25, as it is written. Those of later revisions are an extension.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object_or_null"
    )]
    pub tasks: Option<Map<String, Value>>,
    /// Extensions by name, with their settings.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "or_default"
    )]
    pub extensions: BTreeMap<String, Value>,
    /// Capabilities that no revision has standardised, by name.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "or_default"
    )]
    pub experimental: BTreeMap<String, Value>,
}

impl ServerOffer {
    /// Returns true if calls of `tools/call` can be tasks of 2025-11-25.
    pub fn has_legacy_tasks(&self) -> bool {
        let requests = self.tasks.as_ref().and_then(|it| it.get("requests"));
        requests
            .and_then(|it| it.get("tools")?.get("call"))
            .is_some_and(Value::is_object)
    }
}

/// Capability of a server for one of its lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListOffer {
    /// True if the server announces changes of the list.
    #[serde(
        skip_serializing_if = "std::ops::Not::not",
        deserialize_with = "or_default"
    )]
    pub list_changed: bool,
}

/// Capability of a server for its resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcesOffer {
    /// True if the server announces changes of the list.
    #[serde(
        skip_serializing_if = "std::ops::Not::not",
        deserialize_with = "or_default"
    )]
    pub list_changed: bool,
    /// True if the server announces changes of single resources.
    #[serde(
        skip_serializing_if = "std::ops::Not::not",
        deserialize_with = "or_default"
    )]
    pub subscribe: bool,
}

/// The answer to `initialize`.
#[derive(Clone, Debug, PartialEq)]
pub struct Initialized {
    /// The version the server wants to speak. A client that does not know it must leave.
    pub protocol_version: RequestedVersion,
    /// Capabilities of the server.
    pub offer: ServerOffer,
    /// Name and version of the server. Required by the schema; servers exist that leave them out.
    pub server_info: Option<Implementation>,
    /// Instructions for the model on how to use the server. A client that passes them on trusts the
    /// server.
    pub instructions: Option<String>,
}

/// The answer to `server/discover`.
#[derive(Clone, Debug, PartialEq)]
pub struct Discovered {
    /// The versions that requests can be written in.
    pub supported_versions: Vec<RequestedVersion>,
    /// Capabilities of the server.
    pub offer: ServerOffer,
    /// Instructions for the model on how to use the server. A client that passes them on trusts the
    /// server.
    pub instructions: Option<String>,
    /// Time for which this result may be kept.
    pub cache: CacheHint,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitializedWire {
    protocol_version: String,
    #[serde(default, deserialize_with = "object_or_null")]
    capabilities: Option<ServerOffer>,
    #[serde(default, deserialize_with = "object_or_null")]
    server_info: Option<Implementation>,
    #[serde(default)]
    instructions: Option<String>,
}

impl InitializedWire {
    pub(super) fn read(self) -> Initialized {
        Initialized {
            protocol_version: self.protocol_version.as_str().into(),
            offer: self.capabilities.unwrap_or_default(),
            server_info: self.server_info,
            instructions: self.instructions,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiscoveredWire {
    supported_versions: Vec<String>,
    #[serde(default, deserialize_with = "object_or_null")]
    capabilities: Option<ServerOffer>,
    #[serde(default)]
    instructions: Option<String>,
}

impl DiscoveredWire {
    pub(super) fn read(self, cache: CacheHint) -> Discovered {
        let versions = self.supported_versions.iter();
        Discovered {
            supported_versions: versions.map(|it| it.as_str().into()).collect(),
            offer: self.capabilities.unwrap_or_default(),
            instructions: self.instructions,
            cache,
        }
    }
}
