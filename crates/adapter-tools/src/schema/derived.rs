//! Schemas of Rust types.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// The schema of `T` in one piece, without what only schemars would need.
pub(crate) fn schema_of<T: JsonSchema>(direction: fn(SchemaSettings) -> SchemaSettings) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = direction(settings)
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    if let Value::Object(root) = &mut schema {
        // The name of the Rust type.
        root.remove("title");
        // An enum of structs is an object whichever variant it is, and the protocol wants that said.
        let branches = root
            .get("oneOf")
            .or_else(|| root.get("anyOf"))
            .and_then(Value::as_array);
        let is_object =
            |branch: &Value| branch.get("type").and_then(Value::as_str) == Some("object");
        if !root.contains_key("type")
            && branches.is_some_and(|all| !all.is_empty() && all.iter().all(is_object))
        {
            root.insert("type".to_owned(), "object".into());
        }
    }
    schema
}
