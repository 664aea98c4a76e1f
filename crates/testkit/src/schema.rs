//! The official schemas of all five revisions, as a judge of messages.
//!
//! A schema's `JSONRPCMessage` admits nearly anything. So each message is held against the
//! definition that is meant: the request of its method, the result of the method it answers, the
//! notification it says it is. Beyond what a schema can say, it is checked that
//!
//! * an error code is one of this project's for that revision,
//! * a legacy result has none of the members that came with the modern revision,
//! * the schemas of listed tools are themselves valid JSON Schema.

mod explain;
mod revision;

use std::sync::LazyLock;

use serde_json::{Value, json};

use revision::{Revision, Side};

/// The dated revisions, oldest first. `"1.0"`, where a version is taken, means the first.
pub const REVISIONS: [&str; 5] = [
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    MODERN,
];

/// The stateless revision.
pub const MODERN: &str = "2026-07-28";

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;

/// Codes that JSON-RPC reserves; a code beyond is an application's own.
const RESERVED_CODES: std::ops::RangeInclusive<i64> = -32768..=-32000;

const STANDARD_CODES: [i64; 5] = [PARSE_ERROR, INVALID_REQUEST, -32601, -32602, -32603];
const LEGACY_CODES: [i64; 5] = [-32001, -32002, -32003, -32004, -32005];
const MODERN_CODES: [i64; 6] = [-32003, -32004, -32005, -32020, -32021, -32022];
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Members of results that legacy revisions do not have.
const MODERN_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// The schemas, parsed when first needed; a definition is compiled once in a process.
#[derive(Debug)]
pub struct Schemas {
    revisions: [LazyLock<Revision>; 5],
}

static SCHEMAS: Schemas = Schemas {
    revisions: [
        LazyLock::new(|| Revision::parse(REVISIONS[0], revision::V2024_11_05, None)),
        LazyLock::new(|| Revision::parse(REVISIONS[1], revision::V2025_03_26, None)),
        LazyLock::new(|| Revision::parse(REVISIONS[2], revision::V2025_06_18, None)),
        LazyLock::new(|| Revision::parse(REVISIONS[3], revision::V2025_11_25, None)),
        LazyLock::new(|| {
            let extensions = Some(revision::EXTENSIONS_2026_07_28);
            Revision::parse(MODERN, revision::V2026_07_28, extensions)
        }),
    ],
};

impl Schemas {
    /// The schemas of this process.
    #[must_use]
    pub fn load() -> &'static Self {
        &SCHEMAS
    }

    /// Judges what a server said. `request_method` is the method that `message` answers, if it is
    /// a response; without it a result is only held against the general form. Every element of a
    /// batch is judged on its own.
    ///
    /// # Errors
    ///
    /// The JSON pointer of the first thing wrong, what is wrong, and the definition that says so.
    pub fn check_server_message(
        &self,
        version: &str,
        request_method: Option<&str>,
        message: &Value,
    ) -> Result<(), String> {
        self.check(Side::Server, version, request_method, message)
    }

    /// Judges what a client said; `request_method` is the method of the server's request that
    /// `message` answers, if it does.
    ///
    /// # Errors
    ///
    /// As [`Schemas::check_server_message`].
    pub fn check_client_message(
        &self,
        version: &str,
        request_method: Option<&str>,
        message: &Value,
    ) -> Result<(), String> {
        self.check(Side::Client, version, request_method, message)
    }

    /// Judges `value` by one definition of the schema, such as `Tool`.
    ///
    /// # Errors
    ///
    /// As [`Schemas::check_server_message`], and if there is no such revision or definition.
    pub fn check_definition(
        &self,
        version: &str,
        definition: &str,
        value: &Value,
    ) -> Result<(), String> {
        self.revision(version)?.check(definition, value, "")
    }

    /// The names of all definitions of a revision's schema, in alphabetical order.
    ///
    /// # Errors
    ///
    /// If there is no such revision.
    pub fn definitions(&self, version: &str) -> Result<Vec<&str>, String> {
        Ok(self.revision(version)?.definitions())
    }

    fn revision(&self, version: &str) -> Result<&Revision, String> {
        let version = if version == "1.0" {
            REVISIONS[0]
        } else {
            version
        };
        let index = REVISIONS.iter().position(|known| *known == version);
        index
            .map(|index| &*self.revisions[index])
            .ok_or_else(|| format!("there is no revision {version:?}"))
    }

    fn check(
        &self,
        speaker: Side,
        version: &str,
        request_method: Option<&str>,
        message: &Value,
    ) -> Result<(), String> {
        let revision = self.revision(version)?;
        let Value::Array(batch) = message else {
            return check_single(revision, speaker, request_method, message);
        };
        if !revision.allows_batches() {
            return Err(format!("{} has no batches", revision.version));
        }
        if batch.is_empty() {
            return Err("a batch is never empty".to_owned());
        }
        for (index, element) in batch.iter().enumerate() {
            check_single(revision, speaker, request_method, element)
                .map_err(|wrong| format!("/{index}{wrong}"))?;
        }
        Ok(())
    }
}

fn check_single(
    revision: &Revision,
    speaker: Side,
    request_method: Option<&str>,
    message: &Value,
) -> Result<(), String> {
    if let Some(method) = message.get("method") {
        let method = method
            .as_str()
            .ok_or("/method: a method is a string".to_owned())?;
        let definition = if message.get("id").is_some() {
            revision.request(speaker, method)
        } else {
            revision.notification(speaker, method)
        };
        let definition = definition.ok_or_else(|| {
            let kind = if message.get("id").is_some() {
                "request"
            } else {
                "notification"
            };
            let version = revision.version;
            format!("/method: in {version} a {speaker} has no {kind} {method:?}")
        })?;
        let general = if message.get("id").is_some() {
            "JSONRPCRequest"
        } else {
            "JSONRPCNotification"
        };
        // The older schemas leave the envelope out of the specific definition.
        return revision
            .check(general, message, "")
            .and_then(|()| revision.check(definition, message, ""));
    }
    match (message.get("result"), message.get("error")) {
        (Some(_), Some(_)) => Err("/error: a response has a result or an error, not both".into()),
        (Some(result), None) => {
            revision.check(revision.result_response, message, "")?;
            check_result(revision, speaker, request_method, result)
        }
        (None, Some(_)) => check_error(revision, speaker, message),
        (None, None) => Err(": neither a method nor a result nor an error".to_owned()),
    }
}

fn check_result(
    revision: &Revision,
    speaker: Side,
    request_method: Option<&str>,
    result: &Value,
) -> Result<(), String> {
    if speaker == Side::Server && revision.version != MODERN {
        for member in MODERN_MEMBERS {
            if result.get(member).is_some() {
                return Err(format!("/result/{member}: {} has none", revision.version));
            }
        }
    }
    let Some(method) = request_method else {
        return Ok(());
    };
    let request = revision.request(speaker.other(), method).ok_or_else(|| {
        let version = revision.version;
        format!("/result: {version} has no method {method:?}, which deserves an error")
    })?;
    let definition = revision.result_of(request, result);
    revision.check(definition, result, "/result")?;
    if definition == "ListToolsResult" {
        check_tool_schemas(result)?;
    }
    Ok(())
}

fn check_tool_schemas(result: &Value) -> Result<(), String> {
    let tools = result["tools"].as_array().into_iter().flatten();
    for (index, tool) in tools.enumerate() {
        for member in ["inputSchema", "outputSchema"] {
            let Some(schema) = tool.get(member) else {
                continue;
            };
            if let Err(error) = jsonschema::draft202012::meta::validate(schema) {
                let at = format!("/result/tools/{index}/{member}");
                return Err(format!("{}, of JSON Schema", explain::one(&error, &at)));
            }
        }
    }
    Ok(())
}

fn check_error(revision: &Revision, speaker: Side, message: &Value) -> Result<(), String> {
    let code = message.pointer("/error/code").and_then(Value::as_i64);
    let unreadable = matches!(code, Some(PARSE_ERROR | INVALID_REQUEST));
    let anonymous = message.get("id").is_none_or(Value::is_null);
    if anonymous && unreadable && !revision.error_id_optional {
        // Where no id could be read JSON-RPC demands a null one and newer schemas none at all.
        // The older ones forgot the case; whoever has not yet negotiated cannot tell them apart.
        let mut readable = message.clone();
        readable["id"] = json!(0);
        revision.check(revision.error_response, &readable, "")?;
    } else {
        revision.check(revision.error_response, message, "")?;
    }
    let Some(code) = code else {
        return Err("/error/code: a code is a 64-bit integer".to_owned());
    };
    if let Some(definition) = revision.error_of(code) {
        revision.check(definition, message, "")?;
    }
    let project = match revision.version {
        MODERN => MODERN_CODES.as_slice(),
        _ => LEGACY_CODES.as_slice(),
    };
    let known = STANDARD_CODES.contains(&code)
        || project.contains(&code)
        || !RESERVED_CODES.contains(&code)
        || (code == URL_ELICITATION_REQUIRED && revision.version == "2025-11-25");
    if speaker == Side::Server && !known {
        return Err(format!(
            "/error/code: {code} is no code of {}",
            revision.version
        ));
    }
    Ok(())
}
