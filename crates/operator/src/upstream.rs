//! The commands `upstream …`: what a running server knows of its upstreams, or what is stored of them; and
//! changes of the configuration file.

mod credential;
mod pins;
mod shown;

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use gateway::Gateway;
use http::Method;
use serde_json::{Value, json};

pub use self::credential::CredentialRow;
pub use self::pins::{pin_awaited, pin_changes, pin_decision, pin_state};

use crate::client::check_url;
use crate::edit;
use crate::inspect::ServerNames;
use crate::output::{Stop, load_for, print, print_json};
use crate::request::{ListFormat, One, ReportFormat, RunningServer, UpstreamCommand};
use crate::running::{self, Place, Unasked, encoded};
use crate::terminal::remark;
use config::{Config, Loaded, Transport};
use server::Failure;

/// Parts of the configuration that say which upstreams there are, where the server is, and what is stored.
const NEEDED: &[&str] = &[
    "gateway",
    "governance",
    "http",
    "ledger.path",
    "transport",
    "upstreams",
    "upstreams_files",
];

/// Looks at upstreams, connects one anew, or changes which there are.
///
/// # Errors
///
/// When the configuration cannot be used, the command fails, or standard output cannot be written.
pub fn upstream(command: UpstreamCommand) -> Result<ExitCode, Stop> {
    match command {
        UpstreamCommand::List { server, format } => {
            let told = all(server)?;
            match format {
                ListFormat::Json => print_json(&told),
                ListFormat::Table => print(&shown::list(&told)),
            }
        }
        UpstreamCommand::Status {
            server,
            name,
            format,
        } => {
            let mut told = all(server)?;
            if let Some(name) = name {
                keep(&mut told, &name)?;
            }
            match format {
                ListFormat::Json => print_json(&told),
                ListFormat::Table => print(&shown::status(&told)),
            }
        }
        UpstreamCommand::Why { one } => why(one),
        UpstreamCommand::Recheck { one } => recheck(one),
        UpstreamCommand::Logs { one } => logs(one),
        UpstreamCommand::Pins {
            settings,
            name,
            held,
            format,
        } => pins::list(settings, name.as_deref(), held, format),
        UpstreamCommand::Diff {
            settings,
            name,
            item,
            format,
        } => pins::diff(settings, &name, item.as_deref(), format),
        UpstreamCommand::Approve(approve) => pins::approve(approve),
        UpstreamCommand::Hold(hold) => pins::hold(hold),
        UpstreamCommand::Credential(command) => credential::credential(command),
        UpstreamCommand::Login(login) => credential::login(login),
        UpstreamCommand::Logout {
            settings,
            name,
            client,
        } => credential::logout(settings, &name, client.as_deref()),
        UpstreamCommand::Add(add) => edit::add(add),
        UpstreamCommand::Remove {
            settings,
            name,
            manner,
        } => edit::remove(settings, &name, manner),
        UpstreamCommand::Import {
            settings,
            file,
            only,
            vault,
            published,
            manner,
        } => match is_bundle(&file) {
            true => crate::registry::import_bundle(settings, &file, published, manner),
            false if !published.is_empty() => Err(Stop::Wrong(
                "--as, --set, --signed-by and --yes are for bundles (.mcpb), and this is none"
                    .into(),
            )),
            false => edit::import(settings, &file, &only, vault, manner),
        },
    }
}

/// True for an archive of zip, as bundles are.
fn is_bundle(path: &Path) -> bool {
    let mut beginning = [0; 2];
    let read = regular_file::open(path).and_then(|mut file| file.read_exact(&mut beginning));
    read.is_ok() && beginning == *b"PK"
}

/// The configuration, and a server that may run with it.
struct Asking {
    loaded: Loaded,
    url: Option<String>,
    ca: Option<std::path::PathBuf>,
}

impl Asking {
    fn of(server: RunningServer) -> Result<Self, Stop> {
        if let Some(url) = &server.url {
            check_url(url)?;
        }
        Ok(Self {
            loaded: load_for(server.settings, NEEDED)?,
            url: server.url,
            ca: server.ca,
        })
    }

    fn config(&self) -> &Config {
        &self.loaded.config
    }

    /// The answer of the running server; `None` if there is none to ask, which is told.
    fn running(
        &self,
        method: &Method,
        path: &str,
        within: Option<Duration>,
    ) -> Result<Option<Value>, Stop> {
        let config = self.config();
        if self.url.is_none() && config.transport == Transport::Stdio {
            remark(
                "note: servers on standard input and output are not asked (transport: stdio); this is what is \
                 stored of their upstreams",
            );
            return Ok(None);
        }
        let place = Place {
            url: self.url.as_deref(),
            ca: self.ca.as_deref(),
            within,
        };
        match running::ask(config, place, method, path) {
            Ok(told) => Ok(Some(told)),
            Err(Unasked::NoServer(why)) if self.url.is_none() => {
                remark(&format!(
                    "note: no running server could be asked; this is what is stored of its upstreams\n\
                     note: {}",
                    config::printable(&why)
                ));
                Ok(None)
            }
            Err(unasked) => Err(Stop::Failed(unasked.into_failure())),
        }
    }

    /// Does something with the gateway as it is stored.
    fn stored<T>(&self, look: impl AsyncFnOnce(&Gateway) -> T) -> Result<T, Stop> {
        with_stored(self.config(), look)
    }
}

fn with_stored<T>(config: &Config, look: impl AsyncFnOnce(&Gateway) -> T) -> Result<T, Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::Failed(error.into()))?;
    runtime.block_on(async {
        let gateway = server::upstreams_stored(config).map_err(Stop::Failed)?;
        let found = look(&gateway).await;
        gateway.shut_down().await;
        Ok(found)
    })
}

/// Upstreams and their own names of tools, by the names under which the tools are offered, as far as lists are stored.
pub(crate) fn names_offered(config: &Config) -> Result<ServerNames, Stop> {
    with_stored(config, async |gateway| {
        let mut names = ServerNames::new();
        for upstream in gateway.status() {
            for (tool, offered) in gateway.tools_named(&upstream.name) {
                if let Some(offered) = offered {
                    names.insert(offered, (upstream.name.clone(), tool));
                }
            }
        }
        names
    })
}

/// All upstreams, and which source knows it.
fn all(server: RunningServer) -> Result<Value, Stop> {
    let asking = Asking::of(server)?;
    if let Some(told) = asking.running(&Method::GET, "/upstreams", None)? {
        return Ok(json!({ "source": "server", "upstreams": told["upstreams"] }));
    }
    let status = asking.stored(async |gateway| gateway.status())?;
    Ok(json!({ "source": "stored", "upstreams": status }))
}

/// Keeps the upstream of this name alone.
fn keep(told: &mut Value, name: &str) -> Result<(), Stop> {
    let Some(all) = told["upstreams"].as_array_mut() else {
        return Err(Stop::Failed(
            "the server does not list its upstreams".into(),
        ));
    };
    let names: Vec<String> = all
        .iter()
        .filter_map(|it| it["name"].as_str())
        .map(str::to_owned)
        .collect();
    all.retain(|it| it["name"] == name);
    match all.is_empty() {
        true => Err(Stop::Failed(absent(name, names.iter().map(String::as_str)))),
        false => Ok(()),
    }
}

fn absent<'a>(name: &str, names: impl Iterator<Item = &'a str> + Clone) -> Failure {
    let name = config::printable(name);
    let hint = match config::nearest(&name, names.clone()) {
        Some(meant) => format!("did you mean `{}`?", config::printable(meant)),
        None if names.clone().next().is_none() => {
            "none is configured: `owlclaw-mcp upstream add`".to_owned()
        }
        None => "`owlclaw-mcp upstream list` shows which there are".to_owned(),
    };
    format!("there is no upstream `{name}`; {hint}").into()
}

/// The stored facts about one upstream, in the form of a running server's.
fn stored_one(gateway: &Gateway, name: &str) -> Result<Value, Failure> {
    let status = gateway.status();
    let Some(one) = status.iter().find(|it| it.name == name) else {
        return Err(absent(name, status.iter().map(|it| it.name.as_str())));
    };
    let tools = gateway.tools_named(name).into_iter();
    let tools = tools.map(|(tool, offered)| json!({ "tool": tool, "offered_as": offered }));
    Ok(json!({
        "upstream": one,
        "tools": tools.collect::<Vec<_>>(),
        "stderr": gateway.stderr(name),
    }))
}

fn path_of(name: &str) -> String {
    format!("/upstreams/{}", encoded(name))
}

fn why(one: One) -> Result<ExitCode, Stop> {
    let One {
        server,
        name,
        format,
    } = one;
    let asking = Asking::of(server)?;
    let mut told = match asking.running(&Method::GET, &path_of(&name), None)? {
        Some(mut told) => {
            told["source"] = json!("server");
            told
        }
        None => {
            let found = asking.stored(async |gateway| stored_one(gateway, &name))?;
            let mut told = found.map_err(Stop::Failed)?;
            told["source"] = json!("stored");
            told
        }
    };
    explain(&asking.loaded, &name, &mut told);
    match format {
        ReportFormat::Json => print_json(&told),
        ReportFormat::Text => print(&shown::why(&told)),
    }
}

/// Adds where an upstream is declared, and which rules of the configuration are about its tools.
fn explain(loaded: &Loaded, name: &str, told: &mut Value) {
    let declared = server::declared_upstreams(&loaded.config);
    let found = declared
        .ok()
        .and_then(|all| all.upstreams.into_iter().find(|it| it.spec.name == name));
    let key = config::upstream_key(name);
    told["declared"] = match &found {
        Some(it) => match &it.file {
            Some(file) => json!({ "file": file, "line": line_of(file, name) }),
            None => json!({ "key": key, "place": loaded.place(&key).to_string() }),
        },
        None => Value::Null,
    };
    let set = loaded.settings_of(&key).into_iter();
    let set = set.filter(|it| !matches!(it.origin, config::Origin::Default));
    told["settings"] = set
        .map(|it| {
            json!({
                "key": it.key,
                "value": it.value,
                "layer": it.layer,
                "place": it.origin.to_string(),
                "overrides": it.overrides.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        })
        .collect();
    for tool in told["tools"].as_array_mut().into_iter().flatten() {
        let mut rules = Vec::new();
        let own = tool["tool"].as_str().unwrap_or_default();
        if let Some(list) = found.as_ref().and_then(|it| it.spec.left_out_by(own)) {
            let key = format!("{key}.{list}");
            rules.push(json!({ "key": key, "place": loaded.place(&key).to_string() }));
        }
        if let Some(offered) = tool["offered_as"].as_str() {
            rules.extend(loaded.rules_about(offered).into_iter().map(|rule| {
                json!({
                    "key": rule.key,
                    "pattern": rule.pattern,
                    "place": rule.origin.to_string(),
                })
            }));
        }
        tool["rules"] = json!(rules);
    }
}

/// The line of a host's file in which an entry begins, as far as the text shows it.
fn line_of(file: &std::path::Path, name: &str) -> Option<usize> {
    let text = regular_file::read_text(file, regular_file::MAX_BYTES).ok()?;
    let key = Value::from(name).to_string();
    let is_key = |line: &str| {
        line.find(&key)
            .is_some_and(|at| line[at + key.len()..].trim_start().starts_with(':'))
    };
    text.lines().position(is_key).map(|at| at + 1)
}

fn recheck(one: One) -> Result<ExitCode, Stop> {
    let One {
        server,
        name,
        format,
    } = one;
    let asking = Asking::of(server)?;
    let upstream = asking.config().upstreams.get(&name);
    let within = upstream.map_or(60, |it| it.connect_timeout_seconds);
    // Connecting and reading the lists have this time each.
    let within = Duration::from_secs(within * 2 + 5);
    let path = format!("{}?action=recheck", path_of(&name));
    let told = match asking.running(&Method::POST, &path, Some(within))? {
        Some(told) => told,
        None => {
            remark("note: it is connected from here instead, and what it lists is stored");
            let found = asking.stored(async |gateway| {
                let failure = match stored_one(gateway, &name) {
                    Ok(_) => gateway.recheck(&name).await.err(),
                    Err(absent) => return Err(absent),
                };
                let mut told = stored_one(gateway, &name)?;
                told["failure"] = json!(failure);
                Ok(told)
            })?;
            found.map_err(Stop::Failed)?
        }
    };
    match format {
        ReportFormat::Json => print_json(&told)?,
        ReportFormat::Text => print(&shown::rechecked(&told))?,
    };
    Ok(match told["failure"].is_null() {
        true => ExitCode::SUCCESS,
        false => crate::output::FAILED.into(),
    })
}

fn logs(one: One) -> Result<ExitCode, Stop> {
    let One {
        server,
        name,
        format,
    } = one;
    let asking = Asking::of(server)?;
    let Some(told) = asking.running(&Method::GET, &path_of(&name), None)? else {
        // The name is looked at first.
        asking
            .stored(async |gateway| stored_one(gateway, &name))?
            .map_err(Stop::Failed)?;
        let why = format!(
            "what `{}` writes to standard error is kept by the server that runs it, and none could be asked; \
             `owlclaw-mcp upstream recheck` starts it from here and says what is wrong",
            config::printable(&name)
        );
        return Err(Stop::Failed(why.into()));
    };
    if matches!(format, ReportFormat::Json) {
        return print_json(&json!({ "name": name, "stderr": told["stderr"] }));
    }
    match told["stderr"].as_str() {
        None => Err(Stop::Failed(
            format!(
                "`{}` is no program that the server starts: look into its own log",
                config::printable(&name)
            )
            .into(),
        )),
        Some("") => {
            remark("note: it has written nothing");
            Ok(ExitCode::SUCCESS)
        }
        Some(text) => print(&shown::lines(text, "")),
    }
}
