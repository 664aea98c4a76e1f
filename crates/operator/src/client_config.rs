//! `client-config`: the entry for the configuration file of a client.
//!
//! Nothing that is secret is ever printed: where a key belongs, the client's own way to refer to one
//! is printed, or a place to be filled in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::client::check_url;
use crate::output::Stop;
use crate::request::{ClientConfig, ClientName};
use config::{Config, KeySource, Loaded, Origin, Transport};

/// Name of the variable with the key, for clients that start the server and for those that send it.
const KEY: &str = "OWLCLAW_API_KEY";
/// Name of the variable by which the interpreter of the application is found, unless it is configured.
const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
/// Placeholder that a person has to replace by the key.
const OPEN: &str = "<the key that `owlclaw-mcp keys create` has printed>";

/// Text to print.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    /// The part of the client's file, in its format.
    pub text: String,
    /// Remarks, a line each: the path of the client's file, and other advice.
    pub remarks: Vec<String>,
}

/// The program as a client would start it.
#[derive(Debug, Clone)]
pub struct Executable {
    /// Absolute.
    pub path: PathBuf,
    /// The words before `start`.
    pub words: Vec<&'static str>,
}

/// Entry for the file of the client that `asked` names.
///
/// # Errors
///
/// When the client would have to start a server without a file to go by.
pub fn client_config(
    asked: &ClientConfig,
    loaded: &Loaded,
    program: &Executable,
) -> Result<Printed, Stop> {
    let url = match &asked.url {
        Some(url) => {
            check_url(url)?;
            Some(url.clone())
        }
        None => (loaded.config.transport == Transport::Http).then(|| own_url(&loaded.config)),
    };
    let mut remarks = vec![format!("put this into {}", place(asked.client))];
    let (entry, inputs) = match &url {
        Some(url) => remote(asked, url),
        None => {
            let file = loaded.file.as_deref().ok_or_else(|| {
                let why = "there is no configuration file, and clients start servers from anywhere: write \
                           one (`owlclaw-mcp config init`), name it (--config), or name a server (--url)";
                Stop::Failed(why.into())
            })?;
            remarks.extend(needed_variables(file, &loaded.config));
            remarks.extend(whose_rules(asked, &loaded.config));
            let active = virtual_environment(&loaded.config);
            remarks.extend(surroundings(loaded, active.as_deref()));
            started(asked, program, file, active)
        }
    };
    if asked.with_key && asked.client == ClientName::Inspector && url.is_some() {
        remarks.push("the key goes into the Authentication field of the Inspector".to_owned());
    }
    if url.is_some() && asked.client == ClientName::ClaudeDesktop {
        remarks.push(
            "Claude Desktop starts mcp-remote, a program of others, to reach a URL; it needs Node.js"
                .to_owned(),
        );
    }
    let name = asked.name.as_str();
    let text = match asked.client {
        ClientName::Vscode if inputs.is_empty() => pretty(&json!({"servers": {name: entry}})),
        ClientName::Vscode => pretty(&json!({"inputs": inputs, "servers": {name: entry}})),
        ClientName::Codex => toml(&format!("mcp_servers.{}", json!(name)), &entry),
        ClientName::Goose => yaml(&[("extensions", 0), (name, 2)], &entry),
        _ => pretty(&json!({"mcpServers": {name: entry}})),
    };
    Ok(Printed { text, remarks })
}

fn pretty(json: &Value) -> String {
    serde_json::to_string_pretty(json).unwrap_or_default()
}

/// A table of TOML. Strings and lists are written as in JSON; objects become tables below it.
fn toml(name: &str, entry: &Value) -> String {
    let mut text = format!("[{name}]");
    let mut tables = String::new();
    for (key, value) in entry.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => {
                tables.push_str("\n\n");
                tables.push_str(&toml(&format!("{name}.{}", json!(key)), value));
            }
            value => text.push_str(&format!("\n{} = {value}", json!(key))),
        }
    }
    text + &tables
}

/// An entry of a block of YAML below these keys, each with its indentation. JSON is YAML.
fn yaml(above: &[(&str, usize)], entry: &Value) -> String {
    let mut lines = Vec::new();
    let mut indent = 0;
    for &(key, before) in above {
        lines.push(format!("{:before$}{}:", "", json!(key)));
        indent = before + 2;
    }
    for (key, value) in entry.as_object().into_iter().flatten() {
        lines.push(format!("{:indent$}{}: {value}", "", json!(key)));
    }
    lines.join("\n")
}

/// A server that runs already.
fn remote(asked: &ClientConfig, url: &str) -> (Value, Vec<Value>) {
    let has_key = asked.with_key;
    let with_header = |mut entry: Value, key: String| {
        if has_key {
            entry["headers"] = json!({"Authorization": format!("Bearer {key}")});
        }
        entry
    };
    match asked.client {
        ClientName::ClaudeCode => {
            let entry = json!({"type": "http", "url": url});
            (with_header(entry, format!("${{{KEY}}}")), Vec::new())
        }
        ClientName::Codex => {
            let mut entry = json!({ "url": url });
            if has_key {
                entry["bearer_token_env_var"] = json!(KEY);
            }
            (entry, Vec::new())
        }
        ClientName::Gemini => {
            let entry = json!({ "httpUrl": url });
            (with_header(entry, format!("${{{KEY}}}")), Vec::new())
        }
        ClientName::Goose => {
            let mut entry = json!({"type": "streamable_http", "uri": url});
            if has_key {
                entry["env_keys"] = json!([KEY]);
            }
            let entry = with_header(entry, format!("${{{KEY}}}"));
            (goose(&asked.name, entry), Vec::new())
        }
        ClientName::ClaudeDesktop => {
            let mut entry = json!({"command": "npx", "args": ["-y", "mcp-remote", url]});
            if has_key {
                // Its arguments cannot hold a space everywhere, so the value goes by the environment.
                let header = "Authorization:${OWLCLAW_AUTHORIZATION}";
                entry["args"] = json!(["-y", "mcp-remote", url, "--header", header]);
                entry["env"] = json!({"OWLCLAW_AUTHORIZATION": format!("Bearer {OPEN}")});
            }
            (entry, Vec::new())
        }
        ClientName::Cursor => {
            let entry = with_header(json!({ "url": url }), format!("${{env:{KEY}}}"));
            (entry, Vec::new())
        }
        ClientName::Kiro => {
            let entry = with_header(json!({ "url": url }), format!("${{{KEY}}}"));
            (entry, Vec::new())
        }
        ClientName::Inspector => (json!({"type": "streamable-http", "url": url}), Vec::new()),
        ClientName::Vscode => {
            let entry = json!({"type": "http", "url": url});
            let entry = with_header(entry, "${input:owlclaw-key}".to_owned());
            (
                entry,
                if has_key {
                    vec![key_input()]
                } else {
                    Vec::new()
                },
            )
        }
    }
}

/// A server that the client starts for itself.
fn started(
    asked: &ClientConfig,
    program: &Executable,
    file: &Path,
    virtual_environment: Option<String>,
) -> (Value, Vec<Value>) {
    let mut words: Vec<String> = program.words.iter().map(|it| (*it).to_owned()).collect();
    words.extend(["start", "--transport", "stdio", "--config"].map(str::to_owned));
    words.push(file.display().to_string());
    let command = match asked.client {
        ClientName::Goose => "cmd",
        _ => "command",
    };
    let mut entry = json!({command: program.path.display().to_string(), "args": words});
    let mut variables = json!({});
    if let Some(principal) = &asked.principal {
        variables["MCP_CLIENT_ID"] = json!(principal);
    }
    if let Some(active) = virtual_environment {
        variables[VIRTUAL_ENV] = json!(active);
    }
    let mut inputs = Vec::new();
    if asked.with_key {
        match asked.client {
            // These hand on what is named, from their own environment and from a keyring.
            ClientName::Codex => entry["env_vars"] = json!([KEY]),
            ClientName::Goose => entry["env_keys"] = json!([KEY]),
            ClientName::Cursor => variables[KEY] = json!(format!("${{env:{KEY}}}")),
            ClientName::ClaudeCode | ClientName::Gemini | ClientName::Kiro => {
                variables[KEY] = json!(format!("${{{KEY}}}"));
            }
            ClientName::Vscode => {
                variables[KEY] = json!("${input:owlclaw-key}");
                inputs.push(key_input());
            }
            ClientName::ClaudeDesktop | ClientName::Inspector => variables[KEY] = json!(OPEN),
        }
    }
    if variables.as_object().is_some_and(|it| !it.is_empty()) {
        let name = match asked.client {
            ClientName::Goose => "envs",
            _ => "env",
        };
        entry[name] = variables;
    }
    match asked.client {
        ClientName::ClaudeCode | ClientName::Vscode => entry["type"] = json!("stdio"),
        ClientName::Goose => {
            entry["type"] = json!("stdio");
            entry = goose(&asked.name, entry);
        }
        _ => {}
    }
    (entry, inputs)
}

/// Adds the members that goose requires of every extension. Its timeout for a call is that of this
/// server.
fn goose(name: &str, mut entry: Value) -> Value {
    entry["enabled"] = json!(true);
    entry["name"] = json!(name);
    entry["timeout"] = json!(300);
    entry
}

/// Visual Studio Code asks for it once and keeps it where secrets are kept.
fn key_input() -> Value {
    json!({
        "type": "promptString",
        "id": "owlclaw-key",
        "description": "Key for the OwlClaw MCP server",
        "password": true,
    })
}

/// Address at which a server with this configuration is reached from its own machine.
fn own_url(config: &Config) -> String {
    let http = &config.http;
    let scheme = if http.tls.enabled { "https" } else { "http" };
    let host = match http.host {
        host if !host.is_unspecified() => host,
        std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    let address = std::net::SocketAddr::new(host, http.port);
    format!("{scheme}://{address}/mcp")
}

/// The file of each client, as its makers say.
fn place(client: ClientName) -> &'static str {
    match client {
        ClientName::ClaudeCode => ".mcp.json in the project",
        ClientName::Codex => "~/.codex/config.toml",
        ClientName::Gemini => ".gemini/settings.json in the project, or ~/.gemini/settings.json",
        ClientName::Goose => "~/.config/goose/config.yaml, below the `extensions` that are there",
        ClientName::ClaudeDesktop => {
            "claude_desktop_config.json (Settings > Developer > Edit Config), and start it again"
        }
        ClientName::Cursor => ".cursor/mcp.json in the project, or ~/.cursor/mcp.json",
        ClientName::Inspector => {
            "mcp.json, and run: npx @modelcontextprotocol/inspector --config mcp.json"
        }
        ClientName::Kiro => ".kiro/settings/mcp.json in the project, or ~/.kiro/settings/mcp.json",
        ClientName::Vscode => ".vscode/mcp.json in the workspace",
    }
}

/// Hint for an entry that names no client where rules do: the rules for all other clients apply to
/// it.
fn whose_rules(asked: &ClientConfig, config: &Config) -> Option<String> {
    let clients: Vec<&str> = config
        .governance
        .rules
        .clients
        .keys()
        .map(String::as_str)
        .collect();
    let is_named = asked.principal.is_some() || asked.with_key;
    (!is_named && !clients.is_empty()).then(|| {
        let clients = clients.join(", ");
        format!(
            "without --as the client is `stdio-client`, and sees what the rules allow everybody; they name \
             {clients}"
        )
    })
}

/// The virtual environment that is active, if the application runs with its interpreter.
fn virtual_environment(config: &Config) -> Option<String> {
    let is_used = config.app.is_some() && config.python.is_none();
    let active = config.environment.value_of(VIRTUAL_ENV);
    active.filter(|it| is_used && !it.is_empty())
}

/// Hints at what the present environment decides and that of the client does not.
fn surroundings(loaded: &Loaded, virtual_environment: Option<&str>) -> Vec<String> {
    let config = &loaded.config;
    let mut hints = Vec::new();
    if config.app.is_some() {
        let program = config.python.as_deref().unwrap_or("python3");
        if let Some(active) = virtual_environment {
            hints.push(format!(
                "the entry sets {VIRTUAL_ENV}, so that the application has the interpreter of this \
                 environment, {active}/bin/python; `python` in the configuration would name one for all clients"
            ));
        } else if !program.contains('/') {
            hints.push(format!(
                "the client looks `{program}` up in its own PATH; a path in `python` of the configuration names \
                 the interpreter for all clients"
            ));
        }
        let path = config.environment.value_of("PYTHONPATH");
        if path.is_some_and(|it| !it.is_empty()) {
            hints.push(
                "PYTHONPATH is set here and is not in the entry: if the application needs it, name its \
                 directories in `workers.python_path`"
                    .to_owned(),
            );
        }
    }
    // The entry names the transport.
    let settings = loaded.settings().into_iter();
    let settings = settings.filter(|it| it.key != "transport");
    let names: BTreeSet<String> = settings
        .filter_map(|it| match it.origin {
            Origin::Environment(name) | Origin::CommandLine(name) => Some(name),
            Origin::Default | Origin::File(_) => None,
        })
        .collect();
    if !names.is_empty() {
        let names: Vec<String> = names.into_iter().collect();
        hints.push(format!(
            "{} decide settings here and are not in the entry: write these settings into the configuration file",
            names.join(", ")
        ));
    }
    hints
}

/// Variables that clients hand on to servers they start, according to the official SDKs.
const HANDED_ON: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];

/// A hint at the variables of the configuration that clients do not hand on.
fn needed_variables(file: &Path, config: &Config) -> Option<String> {
    let text = regular_file::read_text(file, regular_file::MAX_BYTES).ok()?;
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let key = match config.vault_place().key {
        KeySource::Variable(name, _) if config.environment.vault_used().is_some() => Some(name),
        _ => None,
    };
    let names = lines.flat_map(referred_to).chain(key.as_deref());
    let names: BTreeSet<&str> = names.filter(|name| !HANDED_ON.contains(name)).collect();
    let names: Vec<&str> = names.into_iter().collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!("the configuration refers to {names}, which the client has to set in `env`")
    })
}

/// The names in `${NAME}`.
fn referred_to(line: &str) -> Vec<&str> {
    let parts = line.split("${").skip(1);
    let names = parts.filter_map(|part| part.split_once('}').map(|(name, _)| name));
    let is_name = |name: &&str| {
        let mut bytes = name.bytes();
        !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    names.filter(is_name).collect()
}
