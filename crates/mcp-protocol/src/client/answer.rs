use super::EncodeError;
use crate::{
    ProtocolVersion,
    model::{Content, FormValue, InputResponse, SamplingContent},
};
use jsonrpc_core::RawJson;

/// Writes what a client answers to an [`InputRequest`](crate::model::InputRequest): the result of
/// a legacy server's request, or one of a retry's
/// [`responses`](crate::model::InputRetry::responses).
///
/// # Errors
///
/// [`EncodeError::NotInRevision`] for content that the revision does not have. The client has
/// promised its user's or its model's very words, so nothing is made of it that it does have.
pub fn encode_input_response(
    version: ProtocolVersion,
    response: &InputResponse,
) -> Result<RawJson, EncodeError> {
    let missing = |what| Err(EncodeError::NotInRevision { what, version });
    if version < ProtocolVersion::V2025_11_25 && response.has_tools() {
        return missing("message of several blocks, or of tools");
    }
    match response {
        InputResponse::Elicit(_) if version < ProtocolVersion::V2025_06_18 => {
            missing("elicitation")
        }
        InputResponse::Elicit(result) => {
            let mut values = result.content.iter().flatten();
            let many = values.any(|(_, value)| matches!(value, FormValue::Many(_)));
            if many && version < ProtocolVersion::V2025_11_25 {
                return missing("field of several values");
            }
            Ok(RawJson::from_value(result)?)
        }
        InputResponse::CreateMessage(result) => {
            let mut blocks = result.content.iter();
            let sound =
                |block: &_| matches!(block, SamplingContent::Content(Content::Audio { .. }));
            if version < ProtocolVersion::V2025_03_26 && blocks.any(sound) {
                return missing("sound");
            }
            Ok(RawJson::from_value(result)?)
        }
        InputResponse::ListRoots(result) => Ok(RawJson::from_value(result)?),
    }
}
