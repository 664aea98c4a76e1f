use super::input;
use crate::{
    Era, ProtocolError, ProtocolVersion, RequestedVersion,
    model::{ClientCapabilities, InputRequest, Object, raw_object},
};
use jsonrpc_core::{ErrorCode, ErrorObject, RawJson};
use serde::{Deserialize, de::DeserializeOwned};

/// What an error of a server's means to its client.
///
/// What an error says beyond its code is told as far as it can be read: an error must not fail for
/// its trimmings.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerError {
    /// The server could not read the message.
    Parse,
    /// The server took the message for no request.
    InvalidRequest,
    /// The server has no such method, or does not offer what it belongs to.
    MethodNotFound,
    /// The server has the method, and the parameters do not fit it. Also what modern servers say
    /// of a resource that does not exist.
    InvalidParams,
    /// Something has gone wrong in the server.
    Internal,
    /// The headers say something else than the body (2026-07-28). Where they repeat a tool's
    /// arguments, its schema may have changed: list the tools, and try again.
    HeaderMismatch,
    /// The client would have to declare more (2026-07-28).
    MissingClientCapability {
        /// What it would have to declare.
        required: ClientCapabilities,
    },
    /// The server does not speak the revision (2026-07-28).
    UnsupportedVersion {
        /// Those it does speak.
        supported: Vec<RequestedVersion>,
        /// The one it was spoken to in.
        requested: Option<String>,
    },
    /// There is no such resource (legacy revisions).
    ResourceNotFound {
        /// Which.
        uri: Option<String>,
    },
    /// The user must go to these URLs first; then the request is to be repeated (2025-11-25).
    UrlElicitationRequired {
        /// Each an [`InputRequest::ElicitUrl`].
        elicitations: Vec<InputRequest>,
    },
    /// An error of the server's own, or one that is not of this revision.
    Other(ErrorCode),
}

/// Revisions before 2026-07-28 have it.
const RESOURCE_NOT_FOUND: ErrorCode = ErrorCode(-32002);
/// Revision 2025-11-25 alone has it.
const URL_ELICITATION_REQUIRED: ErrorCode = ErrorCode(-32042);

impl ServerError {
    /// What `error` means, as the answer to a request in revision `version`.
    pub fn of(version: ProtocolVersion, error: &ErrorObject) -> Self {
        let modern = version.era() == Era::Modern;
        match error.code {
            ErrorCode::PARSE_ERROR => Self::Parse,
            ErrorCode::INVALID_REQUEST => Self::InvalidRequest,
            ErrorCode::METHOD_NOT_FOUND => Self::MethodNotFound,
            ErrorCode::INVALID_PARAMS => Self::InvalidParams,
            ErrorCode::INTERNAL_ERROR => Self::Internal,
            ProtocolError::HEADER_MISMATCH if modern => Self::HeaderMismatch,
            ProtocolError::MISSING_CLIENT_CAPABILITY if modern => Self::MissingClientCapability {
                required: member(error, "requiredCapabilities")
                    .map(|Object(required)| required)
                    .unwrap_or_default(),
            },
            ProtocolError::UNSUPPORTED_VERSION if modern => Self::UnsupportedVersion {
                supported: member::<Vec<String>>(error, "supported")
                    .unwrap_or_default()
                    .iter()
                    .map(|version| version.as_str().into())
                    .collect(),
                requested: member(error, "requested"),
            },
            RESOURCE_NOT_FOUND if !modern => Self::ResourceNotFound {
                uri: member(error, "uri"),
            },
            URL_ELICITATION_REQUIRED if version == ProtocolVersion::V2025_11_25 => {
                Self::UrlElicitationRequired {
                    elicitations: elicitations(version, error),
                }
            }
            code => Self::Other(code),
        }
    }

    /// Whether only a modern server says this, so that one that was asked in the modern revision
    /// and answers with it need not be asked to `initialize`.
    pub fn is_modern(&self) -> bool {
        matches!(
            self,
            Self::HeaderMismatch
                | Self::MissingClientCapability { .. }
                | Self::UnsupportedVersion { .. }
        )
    }
}

/// A member of the error's data, if it is there and fits.
fn member<T: DeserializeOwned>(error: &ErrorObject, name: &str) -> Option<T> {
    let data: serde_json::Value = error.data.as_ref()?.parse().ok()?;
    T::deserialize(data.get(name)?).ok()
}

fn elicitations(version: ProtocolVersion, error: &ErrorObject) -> Vec<InputRequest> {
    #[derive(Deserialize)]
    struct Params(#[serde(deserialize_with = "raw_object")] RawJson);
    let params: Vec<Params> = member(error, "elicitations").unwrap_or_default();
    params
        .iter()
        .filter_map(|Params(params)| input::read(version, "elicitation/create", params).ok()?)
        .filter(|request| matches!(request, InputRequest::ElicitUrl { .. }))
        .collect()
}
