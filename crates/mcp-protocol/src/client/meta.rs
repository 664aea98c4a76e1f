use crate::{
    Era, ProtocolVersion,
    model::{ClientCapabilities, Implementation, LoggingLevel, ResultMeta},
};
use jsonrpc_core::{Id, RawJson};
use serde::{Serialize, Serializer, ser::SerializeMap};

/// Metadata that a client sends with a request in its `_meta`.
///
/// A modern request says there what a legacy session has agreed on once and for all; in legacy
/// revisions only the progress token and the entries of the caller's own are sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutgoingMeta {
    /// Name and version of the client. Recommended, not required.
    pub client_info: Option<Implementation>,
    /// Capabilities that the server may use while this one request is handled.
    pub capabilities: ClientCapabilities,
    /// From which severity on log messages about the request are wanted. None are without it. A
    /// legacy server is told by [`SetLevel`](crate::model::ClientRequest::SetLevel) instead.
    pub log_level: Option<LoggingLevel>,
    /// Asks for progress notifications; unique among the requests that are under way.
    pub progress_token: Option<Id>,
    /// Other entries, such as `traceparent`. Those of a name that is reserved for the members
    /// above are not sent.
    pub entries: ResultMeta,
}

pub(super) const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(super) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(super) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub(super) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(super) const PROGRESS_TOKEN: &str = "progressToken";
pub(super) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub(super) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

const RESERVED: [&str; 5] = [
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
];

/// The `_meta` as revision `0` has it.
pub(super) struct View<'a>(pub(super) ProtocolVersion, pub(super) &'a OutgoingMeta);

impl View<'_> {
    fn own(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        let entries = self.1.entries.iter();
        entries.filter(|(key, _)| !RESERVED.contains(key))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.era() == Era::Legacy
            && self.1.progress_token.is_none()
            && self.own().next().is_none()
    }
}

impl Serialize for View<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(version, meta) = self;
        let mut map = serializer.serialize_map(None)?;
        if version.era() == Era::Modern {
            map.serialize_entry(PROTOCOL_VERSION, version.as_str())?;
            if let Some(client_info) = &meta.client_info {
                map.serialize_entry(CLIENT_INFO, &client_info.shaped_for(*version))?;
            }
            let capabilities = meta.capabilities.shaped_for(*version);
            map.serialize_entry(CLIENT_CAPABILITIES, &capabilities)?;
            if let Some(level) = meta.log_level {
                map.serialize_entry(LOG_LEVEL, &level)?;
            }
        }
        if let Some(token) = &meta.progress_token {
            map.serialize_entry(PROGRESS_TOKEN, token)?;
        }
        for (key, value) in self.own() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
