use crate::{
    Era, ProtocolVersion,
    model::{ClientCapabilities, Implementation, LoggingLevel, ResultMeta},
};
use jsonrpc_core::{Id, RawJson, put_text};
use std::borrow::Cow;

/// Metadata that a client sends with a request in its `_meta`.
///
/// A modern request says there what a legacy session has agreed on once and for all; in legacy
/// revisions only the progress token and the entries of the caller's own are sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutgoingMeta<'a> {
    /// Name and version of the client. Recommended, not required.
    pub client_info: Option<Cow<'a, Implementation>>,
    /// Capabilities that the server may use while this one request is handled.
    pub capabilities: Cow<'a, ClientCapabilities>,
    /// From which severity on log messages about the request are wanted. None are without it. A
    /// legacy server is told by [`SetLevel`](crate::model::ClientRequest::SetLevel) instead.
    pub log_level: Option<LoggingLevel>,
    /// Asks for progress notifications; unique among the requests that are under way.
    pub progress_token: Option<Id>,
    /// Other entries, such as `traceparent`. Those of a name that is reserved for the members
    /// above are not sent.
    pub entries: Cow<'a, ResultMeta>,
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
pub(super) struct View<'a>(pub(super) ProtocolVersion, pub(super) &'a OutgoingMeta<'a>);

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

impl View<'_> {
    /// Appends it as JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let Self(version, meta) = self;
        let begin = out.len() + 1;
        out.push(b'{');
        let name = |name: &str, out: &mut Vec<u8>| {
            if begin < out.len() {
                out.push(b',');
            }
            put_text(name, out);
            out.push(b':');
        };
        if version.era() == Era::Modern {
            name(PROTOCOL_VERSION, out);
            put_text(version.as_str(), out);
            // Modern revisions have all of it.
            if let Some(client_info) = &meta.client_info {
                name(CLIENT_INFO, out);
                serde_json::to_writer(&mut *out, client_info)?;
            }
            name(CLIENT_CAPABILITIES, out);
            let capabilities = match meta.capabilities.roots_list_changed {
                // Legacy revisions alone have it.
                true => Cow::Owned(meta.capabilities.shaped_for(*version)),
                false => Cow::Borrowed(&*meta.capabilities),
            };
            serde_json::to_writer(&mut *out, &*capabilities)?;
            if let Some(level) = meta.log_level {
                name(LOG_LEVEL, out);
                serde_json::to_writer(&mut *out, &level)?;
            }
        }
        if let Some(token) = &meta.progress_token {
            name(PROGRESS_TOKEN, out);
            serde_json::to_writer(&mut *out, token)?;
        }
        for (key, value) in self.own() {
            name(key, out);
            out.extend_from_slice(value.as_bytes());
        }
        out.push(b'}');
        Ok(())
    }
}
