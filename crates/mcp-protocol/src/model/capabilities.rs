use super::{
    APP_MEDIA_TYPE, APPS_EXTENSION, TASKS_EXTENSION, TasksCapability, object_or_null, or_default,
};
use crate::{Era, ProtocolVersion};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Capabilities that a client declares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientCapabilities {
    /// The client can list its roots.
    pub roots: bool,
    /// The client announces changes of its roots; legacy revisions alone have it.
    pub roots_list_changed: bool,
    /// The client can sample from its model.
    pub sampling: Option<SamplingCapability>,
    /// The client can ask its user.
    pub elicitation: Option<ElicitationCapability>,
    /// Extensions by name, with their settings.
    pub extensions: BTreeMap<String, Value>,
    /// Capabilities that no revision has standardised, by name.
    pub experimental: BTreeMap<String, Value>,
}

impl ClientCapabilities {
    /// Capabilities that a client must have declared to be given a task (2026-07-28, Tasks
    /// extension).
    pub fn of_tasks() -> Self {
        Self {
            extensions: [(TASKS_EXTENSION.to_owned(), json!({}))].into(),
            ..Self::default()
        }
    }

    /// Capabilities of a host that shows pages of apps.
    pub fn of_apps() -> Self {
        let settings = json!({ "mimeTypes": [APP_MEDIA_TYPE] });
        Self {
            extensions: [(APPS_EXTENSION.to_owned(), settings)].into(),
            ..Self::default()
        }
    }

    /// Part of these capabilities that revision `version` has. A client may declare more, as one
    /// that speaks newer revisions does, but there is no such message to ask it with.
    #[must_use]
    pub fn shaped_for(&self, version: ProtocolVersion) -> Self {
        let mut shaped = self.clone();
        if version < ProtocolVersion::V2025_06_18 {
            shaped.elicitation = None;
        } else if version < ProtocolVersion::V2025_11_25
            && let Some(modes) = &mut shaped.elicitation
        {
            *modes = ElicitationCapability {
                form: true,
                url: false,
            };
        }
        if version < ProtocolVersion::V2025_11_25
            && let Some(sampling) = &mut shaped.sampling
        {
            *sampling = SamplingCapability::default();
        }
        if version.era() == Era::Modern {
            shaped.roots_list_changed = false;
        }
        shaped
    }

    /// Returns true if the client can be given a task.
    pub fn has_tasks(&self) -> bool {
        self.extensions
            .get(TASKS_EXTENSION)
            .is_some_and(Value::is_object)
    }

    /// Returns true if the client shows pages of apps.
    pub fn has_apps(&self) -> bool {
        let declared = self.extensions.get(APPS_EXTENSION);
        declared
            .and_then(Value::as_object)
            .is_some_and(|it| match it.get("mimeTypes") {
                Some(Value::Array(types)) => types.iter().any(|it| it == APP_MEDIA_TYPE),
                other => other.is_none(),
            })
    }
}

/// Kinds of sampling that a client supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SamplingCapability {
    /// With context of servers.
    #[serde(deserialize_with = "flag")]
    pub context: bool,
    /// With tools.
    #[serde(deserialize_with = "flag")]
    pub tools: bool,
}

/// Kinds of questions that a client can put to its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElicitationCapability {
    /// By a form.
    pub form: bool,
    /// By sending the user to a URL.
    pub url: bool,
}

impl<'de> Deserialize<'de> for ClientCapabilities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(default, deserialize_with = "object_or_null")]
            roots: Option<Roots>,
            #[serde(default, deserialize_with = "object_or_null")]
            sampling: Option<SamplingCapability>,
            #[serde(default, deserialize_with = "elicitation")]
            elicitation: Option<ElicitationCapability>,
            #[serde(default)]
            extensions: BTreeMap<String, Value>,
            #[serde(default, deserialize_with = "or_default")]
            experimental: BTreeMap<String, Value>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Roots {
            #[serde(default, deserialize_with = "or_default")]
            list_changed: bool,
        }
        let wire = Wire::deserialize(deserializer)?;
        Ok(Self {
            roots: wire.roots.is_some(),
            roots_list_changed: wire.roots.is_some_and(|roots| roots.list_changed),
            sampling: wire.sampling,
            elicitation: wire.elicitation,
            extensions: wire.extensions,
            experimental: wire.experimental,
        })
    }
}

/// A capability is declared by an object; its absence, or null, declares nothing.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<Map<String, Value>>::deserialize(deserializer).map(|declared| declared.is_some())
}

fn elicitation<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ElicitationCapability>, D::Error> {
    let Some(modes) = Option::<Map<String, Value>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let declared = |mode| modes.get(mode).is_some_and(Value::is_object);
    let url = declared("url");
    // 2025-11-25: an empty object means the form mode, the only one there was before.
    let form = declared("form") || !url;
    Ok(Some(ElicitationCapability { form, url }))
}

impl Serialize for ClientCapabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let modes = |pairs: &[(&str, bool)]| {
            let declared = pairs.iter().filter(|(_, declared)| *declared);
            Value::Object(
                declared
                    .map(|(mode, _)| ((*mode).to_owned(), json!({})))
                    .collect(),
            )
        };
        let mut map = serializer.serialize_map(None)?;
        if self.roots {
            let declared = match self.roots_list_changed {
                true => json!({ "listChanged": true }),
                false => json!({}),
            };
            map.serialize_entry("roots", &declared)?;
        }
        if let Some(sampling) = self.sampling {
            let declared = modes(&[("context", sampling.context), ("tools", sampling.tools)]);
            map.serialize_entry("sampling", &declared)?;
        }
        if let Some(elicitation) = self.elicitation {
            // No mode at all means forms, and is what revisions before modes understand.
            let form = elicitation.form && elicitation.url;
            let declared = modes(&[("form", form), ("url", elicitation.url)]);
            map.serialize_entry("elicitation", &declared)?;
        }
        if !self.extensions.is_empty() {
            map.serialize_entry("extensions", &self.extensions)?;
        }
        if !self.experimental.is_empty() {
            map.serialize_entry("experimental", &self.experimental)?;
        }
        map.end()
    }
}

/// Capabilities of a server. A method that belongs to a capability it does not have does not exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerCapabilities {
    /// The server has tools, and announces changes of their list.
    pub tools: bool,
    /// The server has resources.
    pub resources: Option<ResourcesCapability>,
    /// The server has prompts, and announces changes of their list.
    pub prompts: bool,
    /// The server completes arguments of prompts and resource templates; since 2025-03-26 it
    /// declares so.
    pub completions: bool,
    /// The server sends log messages.
    pub logging: bool,
    /// Calls of the server can be tasks: of 2025-11-25, and of the extension.
    pub tasks: Option<TasksCapability>,
    /// Extensions by name, with their settings.
    pub extensions: BTreeMap<String, Value>,
    /// Capabilities that no revision has standardised, by name.
    pub experimental: BTreeMap<String, Value>,
}

/// Capabilities of a server for its resources, besides announcing changes of their list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourcesCapability {
    /// Clients can subscribe to single resources.
    pub subscribe: bool,
}

impl ServerCapabilities {
    /// As revision `version` has it: 2025-11-25 has tasks of its own, and extensions came with
    /// 2026-07-28, which has tasks as one of them. Apps are older than that.
    #[must_use]
    pub fn shaped_for(&self, version: ProtocolVersion) -> Self {
        let mut shaped = self.clone();
        if version != ProtocolVersion::V2025_11_25 {
            shaped.tasks = None;
        }
        if version.era() == Era::Legacy {
            shaped.extensions.retain(|name, _| name == APPS_EXTENSION);
        } else if self.tasks.is_some() {
            let name = TASKS_EXTENSION.to_owned();
            shaped.extensions.insert(name, json!({}));
        }
        shaped
    }
}

impl Serialize for ServerCapabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.tools {
            map.serialize_entry("tools", &json!({ "listChanged": true }))?;
        }
        if let Some(resources) = self.resources {
            let declared = json!({ "listChanged": true, "subscribe": resources.subscribe });
            map.serialize_entry("resources", &declared)?;
        }
        if self.prompts {
            map.serialize_entry("prompts", &json!({ "listChanged": true }))?;
        }
        if self.completions {
            map.serialize_entry("completions", &json!({}))?;
        }
        if self.logging {
            map.serialize_entry("logging", &json!({}))?;
        }
        if let Some(tasks) = self.tasks {
            let mut declared = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
            if tasks.list {
                declared["list"] = json!({});
            }
            map.serialize_entry("tasks", &declared)?;
        }
        if !self.extensions.is_empty() {
            map.serialize_entry("extensions", &self.extensions)?;
        }
        if !self.experimental.is_empty() {
            map.serialize_entry("experimental", &self.experimental)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elicitation_without_modes_means_forms() {
        let read = |text| {
            serde_json::from_str::<ClientCapabilities>(text)
                .unwrap()
                .elicitation
        };
        let mode = |form, url| Some(ElicitationCapability { form, url });
        assert_eq!(read("{}"), None);
        assert_eq!(read(r#"{"elicitation":{}}"#), mode(true, false));
        assert_eq!(read(r#"{"elicitation":{"url":{}}}"#), mode(false, true));
        assert_eq!(
            read(r#"{"elicitation":{"form":{},"url":{}}}"#),
            mode(true, true)
        );
        assert!(serde_json::from_str::<ClientCapabilities>(r#"{"roots":true}"#).is_err());
    }
}
