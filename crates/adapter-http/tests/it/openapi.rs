//! OpenAPI documents, and what the tools made of them send.

use crate::service::{Service, TOKEN, call, client, json as answer_json, secrets, structured};
use adapter_http::{
    FixedHeaders, Mode,
    openapi::{self, MAX_OPERATIONS, OpenApiError, Selection, ServiceOptions},
};
use adapter_tools::{Tool, ToolCx, ToolError, ToolSet};
use serde_json::{Value, json};

const PETS: &str = r##"
openapi: 3.0.3
info: {title: Pets, version: "1"}
servers: [{url: "https://pets.example.com/v1/"}]
paths:
  /pets:
    parameters:
      - {name: X-Tenant, in: header, schema: {type: string}}
    get:
      operationId: listPets
      tags: [read]
      summary: Lists pets.
      description: All of them, by page.
      parameters:
        - {name: limit, in: query, schema: {type: integer, minimum: 0, exclusiveMinimum: true}}
        - {name: tag, in: query, schema: {type: array, items: {type: string}}}
        - {name: ids, in: query, explode: false, schema: {type: array, items: {type: integer}}}
        - {name: filter, in: query, style: deepObject, schema: {type: object}}
        - {name: where, in: query, content: {application/json: {schema: {type: object}}}}
        - {name: session, in: cookie, schema: {type: string}}
      responses: {200: {description: x, content: {application/json: {schema: {type: array, items: {}}}}}}
    post:
      operationId: create pet!
      tags: [write]
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: "#/components/schemas/NewPet"}}}
      responses: {201: {$ref: "#/components/responses/Pet"}}
  /pets/{id}:
    parameters:
      - {$ref: "#/components/parameters/Id"}
    get:
      tags: [read]
      responses: {200: {$ref: "#/components/responses/Pet"}}
    put:
      operationId: replacePet
      parameters: [{name: id, in: query, schema: {type: string}}]
      requestBody:
        required: true
        content: {application/merge-patch+json: {schema: {oneOf: [{$ref: "#/components/schemas/NewPet"}, {type: "string"}]}}}
      responses: {200: {description: x}}
    delete:
      operationId: removePet
      deprecated: true
      responses: {204: {description: x}}
  /pets/{id}/photo:
    parameters:
      - {$ref: "#/components/parameters/Id"}
    post:
      operationId: upload
      requestBody:
        required: true
        content: {multipart/form-data: {schema: {type: object}}}
      responses: {200: {description: x}}
  /login:
    post:
      operationId: login
      requestBody:
        required: true
        content: {application/x-www-form-urlencoded: {schema: {type: object, properties: {user: {type: string}, roles: {type: array, items: {type: string}}}}}}
      responses: {200: {description: x}}
  /pets/{id}#adopt:
    parameters:
      - {$ref: "#/components/parameters/Id"}
    post: {operationId: adoptPet, responses: {200: {description: x, content: {application/json: {schema: {type: object, patternProperties: {"(": {}}}}}}}}
  /strange/{undeclared}:
    get: {operationId: strange, responses: {200: {description: x}}}
  /secret:
    get:
      operationId: cookies
      parameters: [{name: session, in: cookie, required: true, schema: {type: string}}]
      responses: {200: {description: x}}
components:
  parameters:
    Id: {name: id, in: path, required: true, schema: {type: string, nullable: true}}
  responses:
    Pet: {description: x, content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}}
  schemas:
    NewPet:
      type: object
      required: [id, name]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string, example: Rex}
        nick: {type: string, nullable: true}
        mother: {$ref: "#/components/schemas/NewPet"}
    Pet:
      type: object
      required: [name]
      properties: {name: {type: string}, born: {type: string, nullable: true}}
"##;

fn options(service: Option<&Service>) -> ServiceOptions {
    let headers = [("Authorization", "Bearer ${TOKEN}")];
    ServiceOptions {
        base_url: service.map(|service| service.url("/v1/")),
        prefix: "pets_".to_owned(),
        headers: FixedHeaders::resolve(headers, &secrets).unwrap(),
        ..ServiceOptions::default()
    }
}

fn names(options: &ServiceOptions) -> Vec<String> {
    let (tools, ..) = openapi::tools(PETS, options, &client()).unwrap();
    tools.iter().map(|tool| tool.name().to_owned()).collect()
}

fn find<'t>(tools: &'t [Tool], name: &str) -> &'t Tool {
    tools.iter().find(|tool| tool.name() == name).unwrap()
}

#[test]
fn operations_are_tools_and_what_cannot_be_called_is_told() {
    let (tools, warnings, _) = openapi::tools(PETS, &options(None), &client()).unwrap();
    let (set, problems) = ToolSet::collect(tools);
    assert!(problems.is_empty(), "{problems:?}");
    let names: Vec<_> = set.iter().map(Tool::name).collect();
    let expected = [
        "pets_login",
        "pets_listPets",
        "pets_create_pet",
        "pets_get_pets_id",
        "pets_replacePet",
        "pets_removePet",
        "pets_adoptPet",
    ];
    assert_eq!(names, expected);
    let told = warnings.join("\n");
    for named in [
        "POST /pets/{id}/photo is left out: its body is `multipart/form-data`",
        "GET /strange/{undeclared} is left out",
        "GET /secret is left out: its parameter `session` is a cookie",
        "GET /pets: the parameter `session` is not offered",
    ] {
        assert!(told.contains(named), "{told}");
    }
    assert_eq!(warnings.len(), 4, "{told}");

    let list = set.get("pets_listPets").unwrap();
    assert_eq!(list.description(), "Lists pets.\n\nAll of them, by page.");
    assert_eq!(list.source(), Some("GET https://pets.example.com/v1/pets"));
    let adopt = set.get("pets_adoptPet").unwrap();
    // No server sees a fragment.
    let source = "POST https://pets.example.com/v1/pets/{id}";
    assert_eq!(adopt.source(), Some(source));
    let limit = json!({"type": "integer", "exclusiveMinimum": 0});
    assert_eq!(list.input_schema()["properties"]["limit"], limit);
    let create = set.get("pets_create_pet").unwrap();
    let nick = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    assert_eq!(
        create.input_schema()["$defs"]["NewPet"]["properties"]["nick"],
        nick
    );
    assert_eq!(create.input_schema()["required"], json!(["body"]));
    let hints = |name: &str| {
        let hints = set.get(name).unwrap().annotations();
        (
            hints.read_only.unwrap(),
            hints.idempotent.unwrap(),
            hints.destructive,
        )
    };
    assert_eq!(hints("pets_listPets"), (true, true, None));
    assert_eq!(hints("pets_create_pet"), (false, false, Some(false)));
    assert_eq!(hints("pets_replacePet"), (false, true, Some(false)));
    assert_eq!(hints("pets_removePet"), (false, true, Some(true)));
    assert!(
        set.get("pets_removePet")
            .unwrap()
            .description()
            .starts_with("Deprecated.")
    );
}

#[tokio::test]
async fn arguments_go_where_the_document_says() {
    let service = Service::start(|_| answer_json(200, json!({"name": "Rex"}))).await;
    let (tools, ..) = openapi::tools(PETS, &options(Some(&service)), &client()).unwrap();
    let sent = async |name: &str, arguments: Value| {
        call(find(&tools, name), arguments).await.unwrap();
        service.seen().pop().unwrap()
    };
    let query = json!({
        "limit": 2, "tag": ["a", "b&c"], "ids": [1, 2], "filter": {"k": "v"}, "where": {"a": [1]}, "X-Tenant": "t1",
    });
    let seen = sent("pets_listPets", query).await;
    let expected =
        "/v1/pets?limit=2&tag=a&tag=b%26c&ids=1%2C2&filter%5Bk%5D=v&where=%7B%22a%22%3A%5B1%5D%7D";
    assert_eq!(seen.target, expected);
    assert_eq!(seen.header("x-tenant"), "t1");
    assert_eq!(seen.header("authorization"), format!("Bearer {TOKEN}"));

    let seen = sent("pets_get_pets_id", json!({"id": "a/b"})).await;
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("GET", "/v1/pets/a%2Fb")
    );
    let pet = json!({"name": "Rex", "mother": {"name": "Ada"}});
    let seen = sent("pets_create_pet", json!({"body": pet})).await;
    assert_eq!(
        (seen.json(), seen.header("content-type")),
        (pet, "application/json")
    );
    let seen = sent(
        "pets_replacePet",
        json!({"id": "7", "id_query": "q", "body": "x"}),
    )
    .await;
    assert_eq!(seen.target, "/v1/pets/7?id=q");
    assert_eq!(
        (seen.json(), seen.header("content-type")),
        (json!("x"), "application/merge-patch+json")
    );
    let seen = sent("pets_login", json!({"user": "a b&c", "roles": ["x", "y"]})).await;
    assert_eq!(seen.body, "roles=x&roles=y&user=a%20b%26c");
    assert_eq!(
        seen.header("content-type"),
        "application/x-www-form-urlencoded"
    );

    // A number that would be another one is not sent.
    let create = find(&tools, "pets_create_pet");
    let raw = r#"{"body": {"name": "Rex", "weight": 0.12345678901234567890}}"#;
    let arguments = create.check(raw.into()).unwrap();
    let sent = create.execute(ToolCx::new("anna", "1"), arguments).await;
    assert!(matches!(sent, Err(ToolError::Rejected(_))), "{sent:?}");

    let login = find(&tools, "pets_login");
    login
        .check(json!({"stranger": 1}).to_string().into())
        .unwrap_err();
    let list = find(&tools, "pets_listPets");
    for unfit in [json!({"X-Tenant": "a\r\nb: c"}), json!({"tag": [["a"]]})] {
        let result = match list.check(unfit.to_string().into()) {
            Ok(_) => call(list, unfit.clone()).await,
            Err(_) => continue,
        };
        assert!(matches!(result, Err(ToolError::Failed(_))), "{unfit}");
    }
}

#[tokio::test]
async fn answers_keep_promises_only_if_that_was_asked_for() {
    let service = Service::start(|_| answer_json(200, json!({"named": "Rex"}))).await;
    let mut options = options(Some(&service));
    let (tools, ..) = openapi::tools(PETS, &options, &client()).unwrap();
    let get = find(&tools, "pets_get_pets_id");
    assert!(get.output_schema().is_none());
    let output = call(get, json!({"id": "1"})).await.unwrap();
    assert_eq!(structured(&output), json!({"named": "Rex"}));
    options.output_schemas = true;
    let (tools, warnings, _) = openapi::tools(PETS, &options, &client()).unwrap();
    let get = find(&tools, "pets_get_pets_id");
    let born = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    assert_eq!(get.output_schema().unwrap()["properties"]["born"], born);
    call(get, json!({"id": "1"})).await.unwrap_err();
    // A promise that nobody could keep is not made.
    assert!(find(&tools, "pets_adoptPet").output_schema().is_none());
    let told = "POST /pets/{id}#adopt: nothing is promised of its answers";
    assert!(
        warnings.iter().any(|it| it.starts_with(told)),
        "{warnings:?}"
    );
    // A list is no object.
    assert!(find(&tools, "pets_listPets").output_schema().is_none());
}

#[tokio::test]
async fn shadow_holds_for_a_whole_service() {
    let service = Service::start(|_| answer_json(200, json!({}))).await;
    let mut options = options(Some(&service));
    options.mode = Mode::Shadow;
    let (tools, ..) = openapi::tools(PETS, &options, &client()).unwrap();
    let output = call(find(&tools, "pets_removePet"), json!({"id": "1"}))
        .await
        .unwrap();
    assert_eq!(structured(&output)["status"], "shadow");
    assert_eq!(
        structured(&output)["headers"]["authorization"],
        "Bearer ${TOKEN}"
    );
    assert_eq!(service.seen().len(), 0);
}

#[test]
fn operations_are_selected() {
    let select = |operations: &[&str], tags: &[&str], methods: &[&str], paths: &[&str]| {
        let list = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect();
        Selection {
            operations: list(operations),
            tags: list(tags),
            methods: list(methods),
            paths: list(paths),
        }
    };
    let rows = [
        (
            select(&["*Pet*"], &[], &[], &[]),
            Selection::default(),
            vec![
                "pets_listPets",
                "pets_replacePet",
                "pets_removePet",
                "pets_adoptPet",
            ],
        ),
        (
            select(&[], &["read"], &[], &[]),
            Selection::default(),
            vec!["pets_listPets", "pets_get_pets_id"],
        ),
        (
            select(&[], &["read"], &[], &["/pets/*"]),
            Selection::default(),
            vec!["pets_get_pets_id"],
        ),
        (
            select(&[], &[], &["GET"], &["/pets*"]),
            select(&["listPets"], &[], &[], &[]),
            vec!["pets_get_pets_id"],
        ),
        (
            Selection::default(),
            select(&["login"], &["read"], &["put", "Delete"], &[]),
            vec!["pets_create_pet", "pets_adoptPet"],
        ),
        (
            select(&["nothing"], &[], &[], &[]),
            Selection::default(),
            vec![],
        ),
    ];
    for (include, exclude, expected) in rows {
        let options = ServiceOptions {
            include,
            exclude,
            ..options(None)
        };
        assert_eq!(names(&options), expected);
    }
    let options = ServiceOptions {
        include: select(&["*Pet*", "nothing"], &[], &["GET", "gte"], &[]),
        exclude: select(&[], &["raed", "read"], &[], &["/pets/*", "/pet/*"]),
        ..options(None)
    };
    let (_, _, unmatched) = openapi::tools(PETS, &options, &client()).unwrap();
    let unmatched = unmatched.iter();
    let unmatched: Vec<_> = unmatched.map(|it| (&*it.key, &*it.pattern)).collect();
    let expected = [
        ("include.operations[1]", "nothing"),
        ("include.methods[1]", "gte"),
        ("exclude.tags[0]", "raed"),
        ("exclude.paths[1]", "/pet/*"),
    ];
    assert_eq!(unmatched, expected);
}

#[test]
fn names_are_legal_and_unique() {
    let path = |id: &str| json!({"get": {"operationId": id, "responses": {}}});
    let long = "x".repeat(100);
    let document = json!({
        "openapi": "3.1.0", "servers": [{"url": "https://h.example"}],
        "paths": {"/1": path("a.b/c"), "/2": path("a b c"), "/3": path(&long), "/4": path(&long), "/5": path("订单"), "/6": path("")},
    });
    let (tools, warnings, _) =
        openapi::tools(&document.to_string(), &ServiceOptions::default(), &client()).unwrap();
    let (set, problems) = ToolSet::collect(tools);
    assert!(
        problems.is_empty() && warnings.is_empty(),
        "{problems:?} {warnings:?}"
    );
    let names: Vec<_> = set.iter().map(Tool::name).collect();
    assert_eq!(&names[..2], ["a_b_c", "a_b_c_2"]);
    assert!(names[2].len() == 64 && names[3].ends_with("_2") && names[3].len() == 64);
    assert_eq!(names[4..], ["get_5", "get_6"]);
}

#[test]
fn a_document_that_cannot_be_used_says_why() {
    let with = |servers: Value, paths: Value| {
        let document = json!({"openapi": "3.1.0", "servers": servers, "paths": paths}).to_string();
        openapi::tools(&document, &ServiceOptions::default(), &client())
            .map(|(tools, ..)| tools.len())
            .unwrap_err()
    };
    assert_eq!(
        with(json!(null), json!({})),
        OpenApiError::NoBaseUrl("missing")
    );
    assert_eq!(
        with(json!([{"url": "/v1"}]), json!({})),
        OpenApiError::NoBaseUrl("relative")
    );
    assert_eq!(
        with(json!([{"url": "https://{r}.h"}]), json!({})),
        OpenApiError::NoBaseUrl("not literal")
    );
    assert!(matches!(
        with(json!([{"url": "ftp://h"}]), json!({})),
        OpenApiError::BaseUrl { .. }
    ));
    assert!(matches!(
        with(json!([{"url": "https://h?a=b"}]), json!({})),
        OpenApiError::BaseUrlParts(_)
    ));
    assert!(matches!(
        with(json!([{"url": "http://10.0.0.1"}]), json!({})),
        OpenApiError::Host(_)
    ));
    let many: serde_json::Map<String, Value> = (0..=MAX_OPERATIONS)
        .map(|n| (format!("/{n}"), json!({"get": {}})))
        .collect();
    let error = with(json!([{"url": "https://h.example"}]), many.into());
    assert_eq!(error, OpenApiError::TooMany(MAX_OPERATIONS + 1));
    assert!(error.to_string().contains("`include`"));
}

#[test]
fn no_path_changes_the_host() {
    for path in [
        ".evil.example/a",
        "@evil.example/a",
        ":8443/a",
        "8/a",
        "a",
        "",
    ] {
        let paths = json!({path: {"get": {}}, "/good": {"get": {}}});
        let servers = json!([{"url": "https://h.example"}]);
        let document = json!({"openapi": "3.1.0", "servers": servers, "paths": paths});
        let (tools, warnings, _) =
            openapi::tools(&document.to_string(), &ServiceOptions::default(), &client()).unwrap();
        let sources: Vec<_> = tools.iter().filter_map(Tool::source).collect();
        assert_eq!(sources, ["GET https://h.example/good"], "{path}");
        assert!(warnings[0].contains("begin with `/`"), "{warnings:?}");
    }
}

#[test]
fn the_key_of_repetitions_is_not_the_callers() {
    let key = json!({"name": "Idempotency-Key", "in": "header", "required": true, "schema": {}});
    let paths = json!({"/a": {"post": {"parameters": [key]}}});
    let servers = json!([{"url": "https://h.example"}]);
    let document = json!({"openapi": "3.1.0", "servers": servers, "paths": paths}).to_string();
    let offered = |header: Option<&str>| {
        let options = ServiceOptions {
            idempotency_header: header.map(|it| it.parse().unwrap()),
            ..ServiceOptions::default()
        };
        let (tools, ..) = openapi::tools(&document, &options, &client()).unwrap();
        tools[0].input_schema()["properties"].clone()
    };
    assert_eq!(offered(None), json!({"Idempotency-Key": {}}));
    assert_eq!(offered(Some("idempotency-key")), json!({}));
}

#[test]
fn nobody_fills_in_hundreds_of_parameters() {
    let offered = |many: usize| {
        let parameter = |n: usize| json!({"name": format!("p{n}"), "in": "query"});
        let all: Vec<_> = (0..many).map(parameter).collect();
        let paths = json!({"/a": {"parameters": all, "get": {"parameters": all}}});
        let servers = json!([{"url": "https://h.example"}]);
        let document = json!({"openapi": "3.1.0", "servers": servers, "paths": paths});
        openapi::tools(&document.to_string(), &ServiceOptions::default(), &client()).unwrap()
    };
    assert_eq!(offered(128).0.len(), 1);
    let (tools, warnings, _) = offered(129);
    assert!(
        tools.is_empty() && warnings[0].contains("256 parameters"),
        "{warnings:?}"
    );
}
