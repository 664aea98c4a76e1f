//! `registry …`, bundles, and the catalogue over HTTP: servers that others publish.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Conversation as _, HttpRequest};

use crate::support::{Said, Site, call, run, text};

const LEAKY: &str = include_str!("../support/leaky.py");
const CANARY: &str = "qzx/published+7c4n4ry=81";

/// A site whose configuration is written in lines, so that commands can change it.
fn site(settings: &str) -> Site {
    let site = Site::new(json!({}));
    let vault = "  vault:\n    path: vault\n    key_file: vault.key\n  ledger:\n    path: ledger.db\n  http:\n    port: 0\n";
    site.write("mcp-server.yaml", format!("mcp_server:\n{vault}{settings}"));
    site
}

async fn say(site: &Site, words: &[&str]) -> Said {
    run(site.command(words)).await
}

fn entry(version: &str, package: &Value) -> Value {
    json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.example/weather",
        "description": "Weather of any place",
        "version": version,
        "packages": [package],
    })
}

/// Writes a bundle with the archiver of Python.
async fn bundle(site: &Site, manifest: &Value) {
    site.write("b/manifest.json", manifest.to_string());
    site.write("b/server/main.py", LEAKY);
    let mut command = tokio::process::Command::new("python3");
    let words = [
        "-m",
        "zipfile",
        "-c",
        "../weather.mcpb",
        "manifest.json",
        "server",
    ];
    command
        .args(words)
        .current_dir(site.path("b"))
        .stdin(Stdio::null());
    assert!(command.status().await.unwrap().success());
}

#[tokio::test]
async fn a_bundle_is_shown_confirmed_unpacked_and_served_with_its_secret_in_the_vault() {
    let site = site("  upstreams: {}\n");
    let manifest = json!({
        "manifest_version": "0.3",
        "name": "weather",
        "version": "1.0.0",
        "description": "Weather of any place",
        "author": { "name": "Ana" },
        "server": {
            "type": "python",
            "entry_point": "server/main.py",
            "mcp_config": {
                "command": "python3",
                "args": ["${__dirname}/server/main.py", "${user_config.mode}"],
                "env": { "LEAK_A": "${user_config.api_key}" },
            },
        },
        "user_config": {
            "mode": { "type": "string", "title": "Mode", "default": "stdio" },
            "api_key": { "type": "string", "title": "Key", "sensitive": true, "required": true },
        },
    });
    bundle(&site, &manifest).await;
    let before = site.read("mcp-server.yaml");
    let set = format!("api_key={CANARY}");
    let importing = ["upstream", "import", "weather.mcpb", "--set", &set];

    // Without a vault there is no place for the secret.
    let said = say(&site, &[&importing[..], &["--yes"]].concat()).await;
    assert_eq!(said.code, Some(1), "{}", said.output);
    assert!(said.messages.contains("vault init"), "{}", said.messages);
    assert_eq!(say(&site, &["vault", "init"]).await.code, Some(0));

    // It is shown, and not confirmed.
    let said = say(&site, &importing).await;
    assert_eq!(said.code, Some(1), "{}", said.output);
    for part in [
        "would run   python3 ",
        "/server/main.py stdio",
        "with        LEAK_A=<secret api_key>",
        "signature   not signed",
        "asks for    api_key, required, secret, given: Key",
        "Ana (not verified)",
    ] {
        assert!(said.output.contains(part), "{part}: {}", said.output);
    }
    assert!(
        said.messages.contains("confirm it by --yes"),
        "{}",
        said.messages
    );
    assert!(!site.path("registry").exists());
    assert_eq!(site.read("mcp-server.yaml"), before);

    let said = say(&site, &[&importing[..], &["--yes"]].concat()).await;
    assert_eq!(said.code, Some(0), "{}{}", said.output, said.messages);
    let file = site.read("mcp-server.yaml");
    assert!(file.contains("LEAK_A: ${vault:WEATHER_API_KEY}"), "{file}");
    assert!(!format!("{file}{}{}", said.output, said.messages).contains("7c4n4ry"));
    let mode = std::fs::metadata(site.path("registry/bundles"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);

    // The same name again, and under another name without the secret.
    let said = say(&site, &[&importing[..], &["--yes"]].concat()).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages
            .contains("there is an upstream `weather` already"),
        "{}",
        said.messages
    );
    let other = [
        "upstream",
        "import",
        "weather.mcpb",
        "--as",
        "other",
        "--yes",
    ];
    let said = say(&site, &other).await;
    assert_eq!(said.code, Some(0), "{}{}", said.output, said.messages);
    assert!(
        said.output.contains("vault set OTHER_API_KEY"),
        "{}",
        said.output
    );
    let signed = [
        "upstream",
        "import",
        "weather.mcpb",
        "--as",
        "third",
        "--yes",
        "--signed-by",
        "ab",
    ];
    let said = say(&site, &signed).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages.contains("not signed with the certificate ab"),
        "{}",
        said.messages
    );

    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let answer = server
        .request("tools/call", call("mcp_weather_plain", json!({})))
        .await;
    assert_eq!(text(answer.result()), "[redacted secret]");
    let listed = server
        .request("tools/list", json!({}))
        .await
        .result()
        .to_string();
    assert!(!listed.contains("mcp_other_plain"), "{listed}");
}

#[tokio::test]
async fn a_catalogue_is_a_registry_for_others() {
    let shelf = site("  transport: http\n  registry:\n    serve: true\n");
    let package = |more: Value| {
        let mut package = json!({
            "registryType": "npm", "identifier": "@example/weather", "version": "1.0.0",
            "transport": {"type": "stdio"},
            "environmentVariables": [
                {"name": "WEATHER_KEY", "isSecret": true, "isRequired": true},
                {"name": "PLACE", "isRequired": true},
            ],
        });
        for (name, value) in more.as_object().unwrap() {
            package[name] = value.clone();
        }
        package
    };
    for version in ["1.0.0", "1.10.0", "1.9.0"] {
        let entry = entry(version, &package(json!({ "version": version })));
        shelf.write("server.json", entry.to_string());
        let import = [
            "registry",
            "import",
            "server.json",
            "--only-catalogue",
            "--yes",
        ];
        let said = say(&shelf, &import).await;
        assert_eq!(said.code, Some(0), "{}{}", said.output, said.messages);
    }
    // A version that is there does not change.
    shelf.write(
        "server.json",
        entry("1.0.0", &package(json!({ "version": "6.6.6" }))).to_string(),
    );
    let said = say(
        &shelf,
        &[
            "registry",
            "import",
            "server.json",
            "--only-catalogue",
            "--yes",
        ],
    )
    .await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages.contains("a version does not change"),
        "{}",
        said.messages
    );
    let listed = say(&shelf, &["registry", "list", "--format", "json"]).await;
    let listed: Value = serde_json::from_str(&listed.output).unwrap();
    let versions: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["version"].clone())
        .collect();
    assert_eq!(versions, ["1.0.0", "1.9.0", "1.10.0"]);

    let server = shelf.http().await;
    let client = server.client();
    let get = async |path: &str| {
        let response = client.exchange(&HttpRequest::get(path)).await;
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        (response.status, body)
    };
    let (status, page) = get("/v0.1/servers?limit=2").await;
    assert_eq!((status, page["metadata"]["count"].as_u64()), (200, Some(2)));
    let next = page["metadata"]["nextCursor"]
        .as_str()
        .unwrap()
        .replace('/', "%2F");
    let (_, rest) = get(&format!("/v0.1/servers?limit=2&cursor={next}")).await;
    assert_eq!(rest["servers"][0]["server"]["version"], "1.10.0");
    let (_, one) = get("/v0.1/servers/io.github.example%2Fweather/versions/latest").await;
    assert_eq!(one["server"]["version"], "1.10.0");
    assert_eq!(
        get("/v0.1/servers/io.github.example%2Fnone/versions")
            .await
            .0,
        404
    );
    assert_eq!(get("/v0.1/servers?sort=x").await.0, 400);
    let posted = HttpRequest::post("/v0.1/publish", "{}");
    assert_eq!(client.exchange(&posted).await.status, 404);

    // Another one takes a server from it by name.
    let url = format!("http://{}", server.address());
    let site = site(&format!("  registry:\n    url: {url}\n"));
    let name = "io.github.example/weather";
    let said = say(&site, &["registry", "import", name, "--yes"]).await;
    assert_eq!(said.code, Some(1), "{}", said.output);
    assert!(
        said.messages
            .contains("`PLACE` must be given: --set 'PLACE=…'"),
        "{}",
        said.messages
    );
    let import = [
        "registry",
        "import",
        "io.github.example/weather@1.9.0",
        "--set",
        "PLACE=Rome",
        "--yes",
    ];
    let said = say(&site, &import).await;
    assert_eq!(said.code, Some(0), "{}{}", said.output, said.messages);
    for part in [
        "would run   npx -y @example/weather@1.9.0",
        "vault init, and then owlclaw-mcp vault set WEATHER_WEATHER_KEY",
    ] {
        assert!(said.output.contains(part), "{part}: {}", said.output);
    }
    let file = site.read("mcp-server.yaml");
    for part in [
        "command: npx",
        "args: [\"-y\", \"@example/weather@1.9.0\"]",
        "WEATHER_KEY: ${vault:WEATHER_WEATHER_KEY}",
        "PLACE: Rome",
    ] {
        assert!(file.contains(part), "{part}: {file}");
    }
    let shown = say(&site, &["registry", "show", name]).await.output;
    assert!(
        shown.contains(&url) && shown.contains("PLACE, required"),
        "{shown}"
    );
    let out = [
        "registry",
        "export",
        "weather",
        "--publish-as",
        "com.example/mine",
        "-o",
        "out.json",
    ];
    assert_eq!(say(&site, &out).await.code, Some(0));
    let exported: Value = serde_json::from_str(&site.read("out.json")).unwrap();
    assert_eq!(exported["packages"][0]["identifier"], "@example/weather");
    assert_eq!(
        exported["packages"][0]["environmentVariables"],
        json!([
            {"name": "PLACE", "default": "Rome"},
            {"name": "WEATHER_KEY", "isRequired": true, "isSecret": true},
        ])
    );

    // A digest that nobody compares is not passed over in silence.
    let hashed = entry(
        "2.0.0",
        &package(json!({ "fileSha256": "ab".repeat(32), "environmentVariables": [] })),
    );
    site.write("hashed.json", hashed.to_string());
    let import = [
        "registry",
        "import",
        "hashed.json",
        "--as",
        "hashed",
        "--yes",
    ];
    let said = say(&site, &import).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages.contains("--without-hash goes without"),
        "{}",
        said.messages
    );
    let said = say(&site, &[&import[..], &["--without-hash"]].concat()).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
}

#[tokio::test]
async fn the_catalogue_asks_for_the_credentials_of_the_server_and_is_off_by_default() {
    let settings = |more: Value| {
        let mut settings =
            json!({"app": null, "python": null, "identity": {"api_keys": {"file": "keys.json"}}});
        for (name, value) in more.as_object().unwrap() {
            settings[name] = value.clone();
        }
        Site::new(settings)
    };
    let site = settings(json!({"registry": {"serve": true}}));
    let create = ["keys", "create", "--principal", "ana", "--format", "json"];
    let made = say(&site, &create).await;
    let made: Value =
        serde_json::from_str(&made.output).unwrap_or_else(|_| panic!("{}", made.messages));
    let key = made["key"].as_str().unwrap();
    let server = site.http().await;
    let client = server.client();
    let path = HttpRequest::get("/v0.1/servers");
    assert_eq!(client.exchange(&path).await.status, 401);
    let path = path.header("authorization", &format!("Bearer {key}"));
    let response = client.exchange(&path).await;
    assert_eq!(response.status, 200);
    let body: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(body, json!({"servers": [], "metadata": {"count": 0}}));

    let site = Site::new(json!({"app": null, "python": null}));
    let server = site.http().await;
    let path = HttpRequest::get("/v0.1/servers");
    assert_eq!(server.client().exchange(&path).await.status, 404);
}
