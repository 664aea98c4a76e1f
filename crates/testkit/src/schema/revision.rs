//! One revision's schema: which definition a message is meant to fit.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use jsonschema::{Registry, Validator};
use serde_json::{Map, Value, json};

use super::{MODERN, explain};

pub(super) const V2024_11_05: &str = include_str!("../../mcp-schema/2024-11-05/schema.json");
pub(super) const V2025_03_26: &str = include_str!("../../mcp-schema/2025-03-26/schema.json");
pub(super) const V2025_06_18: &str = include_str!("../../mcp-schema/2025-06-18/schema.json");
pub(super) const V2025_11_25: &str = include_str!("../../mcp-schema/2025-11-25/schema.json");
pub(super) const V2026_07_28: &str = include_str!("../../mcp-schema/2026-07-28/schema.json");
pub(super) const EXTENSIONS_2026_07_28: &str =
    include_str!("../../extension-schema/2026-07-28.json");

/// Side that sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// Method to definition.
type Table = HashMap<String, String>;

/// A parsed schema and its compiled definitions.
pub(super) struct Revision {
    pub(super) version: &'static str,
    /// The definition of a response that carries a result.
    pub(super) result_response: &'static str,
    /// The definition of a response that carries an error.
    pub(super) error_response: &'static str,
    /// True if an error for an unreadable request has no id.
    pub(super) error_id_optional: bool,
    definitions: Map<String, Value>,
    /// `definitions` or `$defs`.
    section: &'static str,
    dialect: Value,
    client_requests: Table,
    server_requests: Table,
    client_notifications: Table,
    server_notifications: Table,
    /// Code to definition, for codes whose `data` has a form.
    errors: HashMap<i64, String>,
    registry: Registry<'static>,
    compiled: Mutex<HashMap<String, Arc<Validator>>>,
}

impl fmt::Debug for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Revision({})", self.version)
    }
}

impl Revision {
    /// Parses an official schema, and adds the definitions of `extensions` to it.
    pub(super) fn parse(version: &'static str, schema: &str, extensions: Option<&str>) -> Self {
        let mut document: Value = serde_json::from_str(schema).expect("official schemas are JSON");
        let section = if document.get("$defs").is_some() {
            "$defs"
        } else {
            "definitions"
        };
        let extensions: Value = extensions.map_or(Value::Null, |text| {
            serde_json::from_str(text).expect("it is JSON")
        });
        if let Some(added) = extensions["$defs"].as_object() {
            let definitions = document[section]
                .as_object_mut()
                .expect("definitions are a map");
            for (name, definition) in added {
                let before = definitions.insert(name.clone(), definition.clone());
                assert!(before.is_none(), "the extension redefines {name}");
            }
        }
        let definitions = document[section]
            .as_object()
            .expect("definitions are a map")
            .clone();
        let union = |name: &str, more: &Value| table(&definitions, name, more);
        let none = Value::Null;
        let error_response = ["JSONRPCErrorResponse", "JSONRPCError"]
            .into_iter()
            .find(|name| definitions.contains_key(*name))
            .expect("one of both names is used");
        Self {
            version,
            result_response: ["JSONRPCResultResponse", "JSONRPCResponse"]
                .into_iter()
                .find(|name| definitions.contains_key(*name))
                .expect("one of both names is used"),
            error_response,
            error_id_optional: !definitions[error_response]["required"]
                .as_array()
                .is_some_and(|required| required.contains(&json!("id"))),
            client_requests: union("ClientRequest", &extensions["clientRequests"]),
            server_requests: union("ServerRequest", &none),
            client_notifications: union("ClientNotification", &none),
            server_notifications: union("ServerNotification", &extensions["serverNotifications"]),
            errors: errors(&definitions),
            dialect: document["$schema"].clone(),
            section,
            definitions,
            registry: Registry::new()
                .add(address(version), document)
                .and_then(|builder| builder.prepare())
                .expect("official schemas are valid"),
            compiled: Mutex::default(),
        }
    }

    /// Batches came undefined with the first revision, were required by the second, and left.
    pub(super) fn allows_batches(&self) -> bool {
        matches!(self.version, "2024-11-05" | "2025-03-26")
    }

    pub(super) fn definitions(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.definitions.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn request(&self, speaker: Side, method: &str) -> Option<&str> {
        let table = match speaker {
            Side::Client => &self.client_requests,
            Side::Server => &self.server_requests,
        };
        table.get(method).map(String::as_str)
    }

    pub(super) fn notification(&self, speaker: Side, method: &str) -> Option<&str> {
        let table = match speaker {
            Side::Client => &self.client_notifications,
            Side::Server => &self.server_notifications,
        };
        table.get(method).map(String::as_str)
    }

    pub(super) fn error_of(&self, code: i64) -> Option<&str> {
        self.errors.get(&code).map(String::as_str)
    }

    /// The definition that `result` is meant to fit, as an answer to the request `request`.
    pub(super) fn result_of(&self, request: &str, result: &Value) -> &str {
        let own = format!("{}Result", request.trim_end_matches("Request"));
        let own = self
            .definitions
            .get_key_value(&own)
            .map_or("EmptyResult", |(name, _)| name);
        if self.version == MODERN {
            let kind = result["resultType"].as_str();
            if kind == Some("input_required") && self.may_ask_back(own) {
                return "InputRequiredResult";
            }
            if kind == Some("task") && own == "CallToolResult" {
                return "CreateTaskResult";
            }
        } else if result.get("task").is_some()
            && self.definitions.contains_key("CreateTaskResult")
            && matches!(
                own,
                "CallToolResult" | "CreateMessageResult" | "ElicitResult"
            )
        {
            return "CreateTaskResult";
        }
        own
    }

    /// Returns true if the schema lets this result's response carry an `InputRequiredResult`
    /// instead.
    fn may_ask_back(&self, result: &str) -> bool {
        let choices = self
            .definitions
            .get(&format!("{result}Response"))
            .and_then(|response| response.pointer("/properties/result/anyOf"))
            .and_then(Value::as_array);
        choices
            .into_iter()
            .flatten()
            .any(|choice| target(choice) == Some("InputRequiredResult"))
    }

    /// Holds `value`, which stands at the pointer `at` of its message, against a definition.
    pub(super) fn check(&self, definition: &str, value: &Value, at: &str) -> Result<(), String> {
        let validator = self.compile(definition)?;
        explain::first(&validator, value, at).map_or(Ok(()), |wrong| {
            Err(format!("{wrong}, of {definition} {}", self.version))
        })
    }

    fn compile(&self, definition: &str) -> Result<Arc<Validator>, String> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = compiled.get(definition) {
            return Ok(Arc::clone(validator));
        }
        if !self.definitions.contains_key(definition) {
            return Err(format!("{} has no definition {definition}", self.version));
        }
        let root = json!({
            "$schema": self.dialect,
            "$ref": format!("{}#/{}/{definition}", address(self.version), self.section),
        });
        let validator = jsonschema::options()
            .with_registry(&self.registry)
            .should_validate_formats(true)
            .build(&root)
            .map_err(|error| format!("{definition} of {} is no schema: {error}", self.version))?;
        let validator = Arc::new(validator);
        compiled.insert(definition.to_owned(), Arc::clone(&validator));
        Ok(validator)
    }
}

/// A name for the document within the registry; nothing is ever fetched from it.
fn address(version: &str) -> String {
    format!("urn:mcp:{version}")
}

/// The messages of one side: the members of a union, and `more` of them, by their method.
fn table(definitions: &Map<String, Value>, union: &str, more: &Value) -> Table {
    let Some(definition) = definitions.get(union) else {
        return Table::new();
    };
    // A union of one is written out in place.
    let members: Vec<&str> = match definition["anyOf"].as_array() {
        Some(choices) => choices.iter().filter_map(target).collect(),
        None => vec![union],
    };
    let more = more
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    members
        .into_iter()
        .chain(more)
        .map(|name| {
            let method = definitions[name]["properties"]["method"]["const"].as_str();
            (
                method.expect("every message names its method").to_owned(),
                name.to_owned(),
            )
        })
        .collect()
}

/// The error responses that are defined for one code each.
fn errors(definitions: &Map<String, Value>) -> HashMap<i64, String> {
    let with_code = definitions.iter().filter_map(|(name, definition)| {
        let parts = definition.pointer("/properties/error/allOf")?.as_array()?;
        let code = parts
            .iter()
            .find_map(|part| part.pointer("/properties/code/const")?.as_i64())?;
        Some((code, name.clone()))
    });
    with_code.collect()
}

/// The definition that a `$ref` names.
fn target(reference: &Value) -> Option<&str> {
    reference["$ref"].as_str()?.rsplit('/').next()
}
