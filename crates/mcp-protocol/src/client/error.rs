use super::input;
use crate::{
    Era, ProtocolError, ProtocolVersion, RequestedVersion,
    model::{ClientCapabilities, InputRequest, Object, raw_object},
};
use jsonrpc_core::{ErrorCode, ErrorObject, RawJson};
use serde::{Deserialize, de::DeserializeOwned};

/// Meaning of a server's error for its client.
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
    /// An internal error of the server.
    Internal,
    /// The headers say something else than the body (2026-07-28). Where they repeat a tool's
    /// arguments, its schema may have changed: list the tools, and try again.
    HeaderMismatch,
    /// The client would have to declare more (2026-07-28).
    MissingClientCapability {
        /// Capabilities that the client would have to declare.
        required: ClientCapabilities,
    },
    /// The server does not speak the revision (2026-07-28).
    UnsupportedVersion {
        /// Versions that the server speaks.
        supported: Vec<RequestedVersion>,
        /// The one it was spoken to in.
        requested: Option<String>,
    },
    /// There is no such resource (legacy revisions).
    ResourceNotFound {
        /// URI of the resource.
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
    /// Meaning of `error` as the answer to a request in revision `version`.
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

    /// Returns true for an error that only a modern server sends, so that a server that was asked
    /// in the modern revision and answers with it need not be asked to `initialize`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn view(version: ProtocolVersion, code: i32, data: &Value) -> ServerError {
        ServerError::of(version, &ErrorObject::new(ErrorCode(code), "").with(data))
    }

    #[test]
    fn a_code_means_what_its_revision_says() {
        let modern = ProtocolVersion::V2026_07_28;
        let legacy = ProtocolVersion::V2025_11_25;
        let nothing = json!({});
        assert_eq!(view(modern, -32020, &nothing), ServerError::HeaderMismatch);
        for code in [-32020, -32021, -32022] {
            assert!(view(modern, code, &nothing).is_modern());
            let other = ServerError::Other(ErrorCode(code));
            assert_eq!(view(legacy, code, &nothing), other);
        }
        let data = json!({ "uri": "a:b" });
        let uri = Some("a:b".to_owned());
        assert_eq!(
            view(legacy, -32002, &data),
            ServerError::ResourceNotFound { uri }
        );
        let other = ServerError::Other(ErrorCode(-32002));
        assert_eq!(view(modern, -32002, &data), other);
        assert!(!view(modern, -32601, &nothing).is_modern());
    }

    #[test]
    fn data_that_do_not_fit_do_not_hide_the_code() {
        let version = ProtocolVersion::V2026_07_28;
        for data in [
            json!(null),
            json!([1]),
            json!({ "supported": 7, "requested": [] }),
        ] {
            let expected = ServerError::UnsupportedVersion {
                supported: Vec::new(),
                requested: None,
            };
            assert_eq!(view(version, -32022, &data), expected, "{data}");
        }
    }

    #[test]
    fn urls_to_go_to_first_are_told() {
        let url = json!({ "mode": "url", "message": "m", "url": "u", "elicitationId": "e" });
        let form = json!({ "mode": "form", "message": "m", "requestedSchema": {} });
        let data = json!({ "elicitations": [url, form] });
        let expected = ServerError::UrlElicitationRequired {
            elicitations: vec![InputRequest::ElicitUrl {
                message: "m".to_owned(),
                url: "u".to_owned(),
                elicitation_id: "e".to_owned(),
            }],
        };
        assert_eq!(view(ProtocolVersion::V2025_11_25, -32042, &data), expected);
        let other = ServerError::Other(ErrorCode(-32042));
        assert_eq!(view(ProtocolVersion::V2025_06_18, -32042, &data), other);
    }
}
