//! Printed reports of the mistakes that people make: the place, the line, and a cure. To change a
//! sentence, run `INSTA_UPDATE=always cargo test -p config --test mistakes_shown` and read the
//! differences.
//! -p config --test mistakes_shown`, and then the differences.

use std::fmt::Write as _;

use config::{Environment, Overrides, Severity, load};

/// The mistakes of one kind, each with a name for what was done.
type Mistakes = [(&'static str, &'static str)];

fn shown(file: &str, environment: &Environment, overrides: &Overrides) -> String {
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("mcp-server.yaml"), file).expect("it can be written");
    let problems = match load(overrides, environment, directory.path()) {
        Ok(loaded) => loaded.warnings,
        Err(rejected) => rejected.problems,
    };
    assert!(!problems.is_empty(), "this is no mistake: {file}");
    for problem in &problems {
        // A message without a way out needs to say by itself what would do.
        let says_what = ["must be", "refers to", "cannot", "neither", "wants"];
        let is_clear = says_what.iter().any(|it| problem.message.contains(it));
        assert!(problem.hint.is_some() || is_clear, "{problem}");
        assert!(
            problem.origin != config::Origin::Default || problem.severity == Severity::Warning,
            "nobody is told where: {problem}"
        );
    }
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let place = directory.path().display().to_string();
    let text = problems.join("\n\n");
    assert!(!text.contains("hunter2"), "a secret is shown: {text}");
    text.replace(&place, "DIRECTORY")
}

#[track_caller]
fn told(kind: &str, text: String) {
    insta::assert_snapshot!(kind, text, "what is printed");
}

/// Each mistake with what is printed, under headings.
fn report(mistakes: &Mistakes) -> String {
    let mut text = String::new();
    for (name, lines) in mistakes {
        let file = format!("mcp_server:\n{}\n", lines.trim_matches('\n'));
        let shown = shown(&file, &Environment::default(), &Overrides::default());
        // Writing to a text cannot fail.
        let _ = write!(text, "== {name}\n\n{shown}\n\n");
    }
    text
}

#[test]
fn in_the_file_as_a_whole() {
    let files = [
        ("no section at the top", "transport: http\n"),
        (
            "the wrong section at the top",
            "mcp-server: {transport: http}\n",
        ),
        ("a list at the top", "- transport\n"),
        ("a bracket that is not closed", "mcp_server:\n  http: [1\n"),
        ("a tab for indentation", "mcp_server:\n\thttp: {}\n"),
        ("two documents", "mcp_server: {}\n---\nmcp_server: {}\n"),
        (
            "a key twice",
            "mcp_server:\n  http: {port: 1}\n  http: {port: 2}\n",
        ),
    ];
    let mut text = String::new();
    for (name, file) in files {
        let shown = shown(file, &Environment::default(), &Overrides::default());
        let _ = write!(text, "== {name}\n\n{shown}\n\n");
    }
    told("file", text);
}

#[test]
fn in_keys_and_values() {
    told(
        "keys_and_values",
        report(&[
            ("a key misspelt", "  transprt: http"),
            ("a key in another place", "  skills_dir: ./skills"),
            ("a key in another spelling", "  http: {maxSessions: 5}"),
            ("a section with one value", "  http: 8080"),
            (
                "a value for a list",
                "  http:\n    allowed_origins: https://x.example",
            ),
            ("a choice misspelt", "  transport: htpp"),
            ("a port that is none", "  http: {port: 80800}"),
            ("a unit behind a number", "  http: {max_body_bytes: 4 mega}"),
            ("nothing where something is wanted", "  app:"),
            ("yes for true", "  development: yes"),
            ("a level of another program", "  logging: {level: WARN}"),
            ("the log on standard output", "  logging: {output: stdout}"),
            ("an empty path", "  ledger: {path: ''}"),
            ("a variable that is not set", "  app: ${APP_HOME}/app.py"),
            ("a reference that does not end", "  app: ${APP_HOME"),
            (
                "a file that is not there",
                "  ledger: {url: 'postgres://u:${file:password}@h/d'}",
            ),
            ("an application that is none", "  app: 'my app'"),
        ]),
    );
}

#[test]
fn in_what_strangers_can_reach() {
    told(
        "reach",
        report(&[
            (
                "open to all by mistake",
                "  transport: http\n  http: {host: 0.0.0.0}",
            ),
            ("a name to listen on", "  http: {host: mcp.example.com}"),
            ("every origin", "  http: {allowed_origins: ['*']}"),
            (
                "an origin with a path",
                "  http: {cors: {allowed_origins: ['https://x.example/app']}}",
            ),
            ("encryption without files", "  http: {tls: {enabled: true}}"),
            (
                "files without encryption",
                "  http: {tls: {cert_file: c.pem, key_file: k.pem}}",
            ),
            (
                "clients to be verified by nobody",
                "  http: {tls: {enabled: true, cert_file: c.pem, key_file: k.pem, verify_client: true}}",
            ),
            (
                "verifying without encryption",
                "  http: {tls: {verify_client: true}}",
            ),
            ("nowhere to listen", "  http: {tcp: false}"),
            (
                "permissions that are none",
                "  http: {unix_socket: x.sock, unix_socket_mode: 'rw'}",
            ),
            (
                "a proxy by name",
                "  http: {trusted_proxies: [proxy.internal]}",
            ),
            ("room for less than one", "  http: {max_replay_bytes: 1000}"),
        ]),
    );
}

#[test]
fn in_who_is_who() {
    told(
        "identity",
        report(&[
            (
                "identity without means",
                "  identity: {resource: 'https://x.example/mcp'}",
            ),
            (
                "a key required and none possible",
                "  identity: {stdio: required, jwt: {a: {issuer: 'https://i.example', jwks_file: j.json}}, resource: 'https://x.example/mcp'}",
            ),
            (
                "tokens for no resource",
                "  identity: {jwt: {a: {issuer: 'https://i.example', jwks_file: j.json}}}",
            ),
            (
                "an issuer without keys",
                "  identity: {resource: 'https://x.example/mcp', jwt: {a: {issuer: 'http://i.example'}}}",
            ),
            (
                "keys by way of strangers",
                "  identity: {resource: 'https://x.example/mcp', jwt: {a: {issuer: 'https://i.example', jwks_url: 'http://i.example/keys'}}}",
            ),
            (
                "an algorithm that proves nothing",
                "  identity: {resource: 'https://x.example/mcp', jwt: {a: {issuer: 'https://i.example', jwks_file: j.json, algorithms: [HS256]}}}",
            ),
            (
                "two issuers, one name",
                "  identity: {resource: 'https://x.example/mcp', jwt: {a: {issuer: 'https://i.example', jwks_file: j.json}, b: {issuer: 'https://j.example', jwks_file: j.json}}}",
            ),
            (
                "a name of a key for whoever takes it",
                "  identity: {resource: 'https://x.example/mcp', api_keys: {}, jwt: {a: {issuer: 'https://i.example', jwks_file: j.json}}}",
            ),
            (
                "a time in a unit that is none",
                "  tools: {default_timeout_seconds: 60x}",
            ),
            (
                "a program with its arguments in one text",
                "  commands: {greet: {run: 'echo hi'}}",
            ),
            ("certificates of nobody", "  identity: {certificates: {}}"),
            (
                "a token that everybody who verifies can make",
                "  identity: {jwt: {corp: {issuer: 'https://i.example', audience: [a], algorithms: [HS256]}}}",
            ),
        ]),
    );
}

#[test]
fn in_rules() {
    told(
        "rules",
        report(&[
            ("a currency in words", "  governance: {currency: euro}"),
            (
                "a budget below zero",
                "  governance: {default_quota: {monthly_budget: -5}}",
            ),
            (
                "a budget of nothing",
                "  governance: {default_quota: {monthly_budget: 0}}",
            ),
            (
                "a limit misspelt",
                "  governance: {clients: {ci: {quota: {max_calls: 5}}}}",
            ),
            (
                "a pattern for a client",
                "  governance: {clients: {'team-*': {}}}",
            ),
            (
                "a role that nobody has described",
                "  governance: {clients: {ana: {roles: [tellr]}}, roles: {teller: {}}}",
            ),
            (
                "a condition without one",
                "  governance: {conditions: {large: {tool: pay}}}",
            ),
            (
                "a condition that cannot be read",
                "  governance: {conditions: {large: {when: 'args.amount >'}}}",
            ),
            (
                "a variable that no condition has",
                "  governance: {conditions: {large: {when: 'argz.amount > 1'}}}",
            ),
            (
                "a day that is none",
                "  governance: {tools: {pay: {windows: ['Mon-Fry 10:00-12:00']}}}",
            ),
            (
                "a zone that is none",
                "  governance: {trading_hours: ['9:00-10:00 Mars/Base']}",
            ),
            (
                "money without confirmation",
                "  governance: {tools: {pay: {risk: [financial], confirmation: none}}}",
            ),
        ]),
    );
}

#[test]
fn in_what_is_recorded_and_told() {
    told(
        "recorded",
        report(&[
            (
                "two ledgers",
                "  ledger: {url: 'postgres://u:hunter2@h/d', path: x.db}",
            ),
            (
                "a database of another make",
                "  ledger: {url: 'mysql://u:hunter2@h/d'}",
            ),
            (
                "a witness in the ledger's own file",
                "  ledger: {witness: {file: ./data/ledger.db}}",
            ),
            (
                "time-stamps that nobody could believe",
                "  ledger: {timestamps: {url: 'https://stamps.example/tsr'}}",
            ),
            (
                "time-stamps by mail",
                "  ledger: {timestamps: {url: 'mailto:stamps@x.example', certificates: ca.pem}}",
            ),
            (
                "a verification without end",
                "  ledger: {verification: {every_seconds: 0, cpu_percent: 200}}",
            ),
            (
                "sessions in the ledger's file",
                "  ledger: {path: x.db}\n  http: {sessions_path: x.db}",
            ),
            (
                "a pointer that is none",
                "  redaction: {pointers: {'pay-*': [card]}}",
            ),
            (
                "a webhook to nowhere",
                "  alerts: {webhooks: {pager: {secret: hunter2}}}",
            ),
            (
                "a webhook that anybody could call",
                "  alerts: {webhooks: {pager: {url: 'https://x.example/hunter2'}}}",
            ),
            (
                "a webhook by mail",
                "  alerts: {webhooks: {pager: {url: 'mailto:ana@x.example', secret: hunter2-hunter2}}}",
            ),
            (
                "an event that does not happen",
                "  alerts: {webhooks: {pager: {url: 'https://x.example', secret: hunter2-hunter2, events: [ledger_full]}}}",
            ),
            ("a drain without end", "  shutdown: {drain_seconds: 999999}"),
        ]),
    );
}

#[test]
fn in_tools() {
    told(
        "tools",
        report(&[
            ("no program", "  commands: {export: {description: x}}"),
            (
                "a program chosen by the caller",
                "  commands: {export: {run: ['{program}'], input_schema: {program: string}}}",
            ),
            (
                "a placeholder misspelt",
                "  commands: {export: {run: [x, '{warehose}'], input_schema: {warehouse: string}}}",
            ),
            (
                "an option chosen by the caller",
                "  commands: {export: {run: [x, '--{w}'], input_schema: {w: string}}}",
            ),
            (
                "a tool with a space in its name",
                "  commands: {'stock export': {run: [x]}}",
            ),
            (
                "a service without a document",
                "  services: {openapi: {pets: {prefix: pets_}}}",
            ),
            (
                "a host with a port",
                "  services: {allowed_hosts: ['pets.example:8080']}",
            ),
            (
                "a network that is none",
                "  services: {allow_private: ['10.0.0.0/99']}",
            ),
        ]),
    );
}

#[test]
fn in_variables_and_flags() {
    let variables = [
        ("MCP_SERVER_HTTP_PORT", "http"),
        ("MCP_SERVER_HTTP_PROT", "1"),
        ("MCP_SERVER_SKILLS_DIR", "${HOME}/skills"),
        ("MCP_SERVER_GOVERNANCE__CLIENTS__CI__TOOLS__DENY", "x"),
    ];
    let mut text = String::new();
    for variable in variables {
        let environment = Environment::from([variable]);
        let shown = shown("", &environment, &Overrides::default());
        let _ = write!(text, "== {}={}\n\n{shown}\n\n", variable.0, variable.1);
    }
    let flags = Overrides {
        host: Some("mcp.example.com".to_owned()),
        skills_dir: Some("${HOME}/skills".to_owned()),
        ..Overrides::default()
    };
    let shown = shown("", &Environment::default(), &flags);
    let _ = write!(text, "== --host and --skills-dir\n\n{shown}\n");
    told("variables_and_flags", text);
}
