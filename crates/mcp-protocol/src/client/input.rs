use crate::{
    Era, ProtocolVersion,
    model::{CreateMessage, InputRequest, Object, or_default, raw_object, raw_object_or_null},
};
use jsonrpc_core::RawJson;
use serde::{Deserialize, de::Error};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Reads what a result or a task asks its client, by key.
///
/// # Errors
///
/// What does not fit, or is no question of revision `version`.
pub fn decode_input_requests(
    version: ProtocolVersion,
    requests: &RawJson,
) -> Result<BTreeMap<String, InputRequest>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Wire {
        method: String,
        #[serde(default, deserialize_with = "raw_object_or_null")]
        params: Option<RawJson>,
    }
    let requests: BTreeMap<String, Object<Wire>> = requests.parse()?;
    let requests = requests.into_iter().map(|(key, Object(wire))| {
        let params = wire.params.unwrap_or(RawJson::EMPTY_OBJECT);
        let request = read(version, &wire.method, &params)?
            .ok_or_else(|| serde_json::Error::custom("clients cannot be asked this"))?;
        Ok((key, request))
    });
    requests.collect()
}

/// Reads a question; `None` if revision `version` has none of this name.
pub(super) fn read(
    version: ProtocolVersion,
    method: &str,
    params: &RawJson,
) -> Result<Option<InputRequest>, serde_json::Error> {
    let request = match method {
        "elicitation/create" if ProtocolVersion::V2025_06_18 <= version => elicit(version, params)?,
        "sampling/createMessage" => {
            let Object(CreateMessage { .. }) = params.parse()?;
            let mut params: Map<String, Value> = params.parse()?;
            if version.era() == Era::Legacy {
                // What the request says about itself, not about the message.
                params.remove("_meta");
            }
            InputRequest::CreateMessage(Value::Object(params))
        }
        "roots/list" => InputRequest::ListRoots,
        _ => return Ok(None),
    };
    Ok(Some(request))
}

fn elicit(version: ProtocolVersion, params: &RawJson) -> Result<InputRequest, serde_json::Error> {
    #[derive(Deserialize)]
    struct Mode {
        #[serde(default)]
        mode: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Form {
        message: String,
        #[serde(deserialize_with = "raw_object")]
        requested_schema: RawJson,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Url {
        message: String,
        url: String,
        #[serde(default, deserialize_with = "or_default")]
        elicitation_id: String,
    }
    let has_modes = ProtocolVersion::V2025_11_25 <= version;
    let Object(Mode { mode }) = params.parse()?;
    match mode.as_deref().filter(|_| has_modes) {
        None | Some("form") => {
            let form: Form = params.parse()?;
            Ok(InputRequest::ElicitForm {
                message: form.message,
                requested_schema: form.requested_schema,
            })
        }
        Some("url") => {
            let url: Url = params.parse()?;
            Ok(InputRequest::ElicitUrl {
                message: url.message,
                url: url.url,
                elicitation_id: url.elicitation_id,
            })
        }
        Some(_) => Err(serde_json::Error::custom("users cannot be asked that way")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{encode_input_request, encode_input_requests};

    #[test]
    fn the_fields_of_a_form_stay_in_their_order() {
        let schema =
            r#"{"type":"object","properties":{"zip":{"type":"string"},"name":{"type":"string"}}}"#;
        let params = format!(r#"{{"message":"Where?","requestedSchema":{schema}}}"#);
        let params = RawJson::from_bytes(params.into()).unwrap();
        let version = ProtocolVersion::V2025_11_25;
        let form = read(version, "elicitation/create", &params)
            .unwrap()
            .unwrap();
        let InputRequest::ElicitForm {
            requested_schema, ..
        } = &form
        else {
            panic!("{form:?}");
        };
        let fields = crate::model::Form::of(requested_schema).unwrap().fields;
        assert_eq!(
            fields.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
            ["zip", "name"]
        );
        let legacy = encode_input_request(version, 1.into(), &form, None).params;
        assert!(legacy.as_str().contains(schema), "{}", legacy.as_str());
        let modern = encode_input_requests(&[("k".to_owned(), form)].into());
        assert!(modern.as_str().contains(schema), "{}", modern.as_str());
    }
}
