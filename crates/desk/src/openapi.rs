//! The OpenAPI document, of the table of routes and the types that they answer with.

use std::sync::LazyLock;

use http::Method;
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::call::ROOT;
use crate::reply::ProblemBody;
use crate::routes::{Route, routes};

/// The OpenAPI 3.1 document of the API.
pub fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(make);
    &DOCUMENT
}

fn make() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|it| {
        it.definitions_path = "/components/schemas".into();
        it.meta_schema = None;
    });
    let mut generator = SchemaGenerator::new(settings);
    let mut paths: Map<String, Value> = Map::new();
    for route in routes() {
        let path = paths
            .entry(format!("{ROOT}{}", route.path))
            .or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route, &mut generator);
    }
    let problem = generator.subschema_for::<ProblemBody>();
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "OwlClaw MCP admin API",
            "version": "1",
            "description": "What the desk of operators asks and has done. Rights are those of `desk` in the \
                            configuration; each act of a person is in the ledger before it is done.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Problem": {
                    "description": "Nothing was done.",
                    "content": { "application/json": { "schema": problem } },
                },
            },
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            },
        },
        "security": [{ "bearer": [] }, { "key": [] }],
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
        })
        .collect();
    if let Some(query) = route.query {
        let schema = resolved(query(generator), generator);
        let properties = schema["properties"].as_object().cloned();
        for (name, schema) in properties.unwrap_or_default() {
            parameters.push(json!({
                "name": name,
                "in": "query",
                "description": schema["description"],
                "schema": schema,
            }));
        }
    }
    if route.method == Method::PUT {
        parameters.push(json!({
            "name": "If-Match",
            "in": "header",
            "required": true,
            "description": "The `ETag` of what was looked at.",
            "schema": { "type": "string" },
        }));
    }
    let answer = (route.answer)(generator);
    let mut operation = json!({
        "summary": route.about,
        "operationId": format!("{} {}", route.method.as_str().to_lowercase(), route.path),
        "x-role": route.role.map(config::DeskRole::as_str),
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "Done.",
                "content": { route.media_type: { "schema": answer } },
            },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    });
    if let Some(body) = route.body {
        operation["requestBody"] =
            json!({ "content": { "application/json": { "schema": body(generator) } } });
    }
    operation
}

/// The schema itself, where it is referred to.
fn resolved(schema: Schema, generator: &SchemaGenerator) -> Value {
    let value = schema.to_value();
    let name = value["$ref"].as_str().and_then(|it| it.rsplit('/').next());
    match name.and_then(|name| generator.definitions().get(name)) {
        Some(definition) => definition.clone(),
        None => value,
    }
}
