//! The commands `registry …`, and bundles for `upstream import`: servers that others publish, looked at before
//! anything of them is written or started.

mod fetch;
mod preview;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use config::{Config, printable};
use gateway::hosts::legal_name;
use jiff::Timestamp;
use registry::bundle::{Bundle, Places, Signature};
use registry::{
    Answers, Catalogue, Described, Entry, Launch, Plan, ServerJson, Way, Words, described, plan,
};
use serde_json::{Map, Value, json};

use crate::edit::{self, File};
use crate::on_record::RecordedVault;
use crate::output::{Stop, load_for, print, print_json};
use crate::request::{
    Export, ListFormat, Manner, Published, RegistryCommand, ReportFormat, Settings,
};
use crate::secrets::Secrets;
use crate::table::table;
use fetch::{Found, Source};

/// Parts of the configuration that say where the catalogue is, and which upstreams there are.
const NEEDED: &[&str] = &["gateway", "ledger.path", "registry", "upstreams", "vault"];
/// Directory of bundles in that of the catalogue.
const BUNDLES: &str = "bundles";

fn failed(why: impl Into<server::Failure>) -> Stop {
    Stop::Failed(why.into())
}

/// Carries out a command on the catalogue of published servers.
///
/// # Errors
///
/// When the configuration cannot be used, the command fails, or standard output cannot be written.
pub fn registry(command: RegistryCommand) -> Result<ExitCode, Stop> {
    match command {
        RegistryCommand::Import {
            settings,
            sources,
            way,
            only_catalogue,
            without_hash,
            published,
            manner,
        } => {
            let wanted = Wanted {
                way: way.map_or(Way::First, Way::Kind),
                only_catalogue,
                without_hash,
                published,
                manner,
            };
            import(settings, &sources, &wanted)
        }
        RegistryCommand::List {
            settings,
            search,
            format,
        } => {
            let config = load_for(settings, NEEDED)?.config;
            list(&config, search.as_deref(), format)
        }
        RegistryCommand::Show {
            settings,
            name,
            format,
        } => {
            let config = load_for(settings, NEEDED)?.config;
            let entry = entry_named(&config, &name)?;
            match format {
                ReportFormat::Json => print_json(&entry.server.raw),
                ReportFormat::Text => print(&preview::entry(&entry)),
            }
        }
        RegistryCommand::Export(asked) => export(asked),
    }
}

/// Adds the server of a bundle, for `upstream import`.
pub(crate) fn import_bundle(
    settings: Settings,
    path: &Path,
    published: Published,
    manner: Manner,
) -> Result<ExitCode, Stop> {
    let wanted = Wanted {
        way: Way::First,
        only_catalogue: false,
        without_hash: false,
        published,
        manner,
    };
    import(settings, &[path.display().to_string()], &wanted)
}

/// Wishes for an import.
struct Wanted {
    way: Way,
    only_catalogue: bool,
    without_hash: bool,
    published: Published,
    manner: Manner,
}

/// A published server that was looked at.
struct Taken {
    /// Name that the upstream gets.
    name: String,
    source: String,
    /// Entry of a registry, if it is one.
    server: Option<ServerJson>,
    bundle: Option<Bundle>,
    plan: Plan,
}

fn import(settings: Settings, sources: &[String], wanted: &Wanted) -> Result<ExitCode, Stop> {
    let config = load_for(settings.clone(), NEEDED)?.config;
    let given = &wanted.published;
    if sources.len() > 1 && (given.name.is_some() || !given.set.is_empty()) {
        let why = "--as and --set are of one server: import the others by themselves";
        return Err(Stop::Wrong(why.into()));
    }
    let answers = answers(&given.set)?;
    let mut taken = Vec::new();
    for source in sources {
        taken.push(look(&config, source, wanted, &answers)?);
    }
    let file = File::of(settings.clone())?;
    let mut secrets = Secrets::default();
    let mut entries = Vec::new();
    let place = config.vault_place();
    if taken.iter().any(|it| gives_secrets(&it.plan)) {
        secrets = Secrets::into_vault(&crate::vault::open(&place)?);
    }
    for one in &taken {
        if !wanted.only_catalogue {
            if config.upstreams.contains_key(&one.name) {
                return Err(failed(format!(
                    "there is an upstream `{}` already: give another name by --as, or take it out by `owlclaw-mcp upstream \
                     remove {}`",
                    one.name, one.name
                )));
            }
            if entries
                .iter()
                .any(|(it, _): &(String, Value)| *it == one.name)
            {
                return Err(failed(format!(
                    "two of them would be named `{}`: import one by --as",
                    one.name
                )));
            }
            entries.push((
                one.name.clone(),
                upstream_of(&one.name, &one.plan, &mut secrets),
            ));
        }
    }
    let previews: Vec<Value> = taken.iter().map(preview::json).collect();
    let is_json = matches!(wanted.manner.format, ReportFormat::Json);
    if !is_json {
        let shown: Vec<String> = taken.iter().map(preview::text).collect();
        print(&shown.join("\n\n"))?;
    }
    let faults: Vec<String> = taken.iter().flat_map(|it| faults(it, wanted)).collect();
    if !faults.is_empty() {
        if is_json {
            print_json(&json!({ "servers": previews, "written": false, "refused": faults }))?;
        }
        return Err(failed(format!("nothing is written: {}", faults.join("; "))));
    }
    let is_confirmed = !wanted.manner.dry_run && (given.yes || (!is_json && is_agreed()?));
    if !is_confirmed && !wanted.manner.dry_run {
        if is_json {
            print_json(&json!({ "servers": previews, "written": false }))?;
        }
        return Err(failed(
            "nothing is written: look at what would be run, and confirm it by --yes",
        ));
    }
    let mut told = Vec::new();
    let mut kept = None;
    if is_confirmed {
        keep(&config, &mut taken, &mut told)?;
        if secrets.moved().next().is_some() {
            kept = Some(crate::vault::keep(RecordedVault::of(settings)?, &secrets)?);
        }
    }
    for name in secrets.awaited() {
        told.push(match place.path.exists() {
            true => format!("the server is held until the vault has `{name}`: owlclaw-mcp vault set {name}"),
            false => format!(
                "the server is held until the vault has `{name}`: owlclaw-mcp vault init, and then owlclaw-mcp vault set {name}"
            ),
        });
    }
    if wanted.only_catalogue {
        return match is_json {
            true => print_json(&json!({ "servers": previews, "written": is_confirmed })),
            false => print("the catalogue has it; no upstream was added"),
        };
    }
    let manner = Manner {
        dry_run: !is_confirmed,
        ..wanted.manner
    };
    edit::put_in(&file, entries, &secrets, told, manner, Some(previews), kept)
}

/// `NAME=VALUE`, several times.
fn answers(given: &[String]) -> Result<Answers, Stop> {
    let mut answers = Answers::new();
    for text in given {
        // Flags have dashes and no `=`.
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Stop::Wrong(format!("`--set {}` is not NAME=VALUE", printable(text)).into())
        })?;
        let values = answers.entry(name.to_owned()).or_default();
        values.push(value.to_owned());
    }
    Ok(answers)
}

/// Reads what a source has, and makes a plan of it.
fn look(config: &Config, source: &str, wanted: &Wanted, answers: &Answers) -> Result<Taken, Stop> {
    let source = Source::of(source, config)?;
    let shown = source.to_string();
    let about = |why: String| failed(format!("{}: {why}", printable(&shown)));
    let name = wanted.published.name.clone();
    let file = match source.read()? {
        Found::Bundle(file) => {
            let bundle = Bundle::read(file).map_err(|error| about(server::with_causes(&error)))?;
            let plan = plan_of(config, &bundle, answers);
            return Ok(Taken {
                name: name.unwrap_or_else(|| legal_name(&bundle.manifest.name)),
                source: shown,
                server: None,
                bundle: Some(bundle),
                plan,
            });
        }
        Found::Entry(text) => text,
    };
    let server = ServerJson::parse(&file).map_err(|found| {
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        about(format!(
            "it is no server.json that can be used: {}",
            found.join("; ")
        ))
    })?;
    if let Some(why) = source.refuses(&server) {
        return Err(about(why));
    }
    let mut plan = plan(&server, &wanted.way, answers).map_err(|error| about(error.to_string()))?;
    let mut bundle = None;
    if let Launch::Bundle { url, sha256 } = &plan.launch {
        let file = fetch::bundle(url).map_err(about)?;
        let read = Bundle::read(file).map_err(|error| about(server::with_causes(&error)))?;
        if read.sha256 != *sha256 {
            return Err(about(format!(
                "{url} has the SHA-256 {}, and {sha256} was published: it is another file",
                read.sha256
            )));
        }
        plan = Plan {
            from: plan.from,
            ..plan_of(config, &read, answers)
        };
        bundle = Some(read);
    }
    plan.warnings.extend(server.remarks.iter().cloned());
    Ok(Taken {
        name: name.unwrap_or_else(|| legal_name(server.short_name())),
        source: shown,
        server: Some(server),
        bundle,
        plan,
    })
}

fn bundles(config: &Config) -> PathBuf {
    config.registry_directory().join(BUNDLES)
}

fn plan_of(config: &Config, bundle: &Bundle, answers: &Answers) -> Plan {
    let places = Places {
        home: config.environment.home(),
    };
    bundle.plan(
        &bundles(config).join(bundle.directory_name()),
        &places,
        answers,
    )
}

/// Reasons why a server cannot be taken.
fn faults(taken: &Taken, wanted: &Wanted) -> Vec<String> {
    let plan = &taken.plan;
    let mut faults = plan.refused.clone();
    if !wanted.only_catalogue {
        let missing = plan.missing.iter();
        faults.extend(missing.map(|it| format!("`{it}` must be given: --set '{it}=…'")));
    }
    if let Some(sha256) = &plan.unchecked_sha256
        && !wanted.without_hash
        && !wanted.only_catalogue
    {
        faults.push(format!(
            "its SHA-256 is published ({sha256}) and cannot be compared, since the runtime fetches the package by itself: \
             --without-hash goes without"
        ));
    }
    if let Some(digits) = &wanted.published.signed_by {
        let signature = taken.bundle.as_ref().map(|it| &it.signature);
        let is_signed = match signature {
            Some(Signature::Fits(signer)) => signer.fingerprint == digits.to_ascii_lowercase(),
            _ => false,
        };
        if !is_signed {
            faults.push(format!(
                "it is not signed with the certificate {}",
                printable(digits)
            ));
        }
    }
    faults
}

fn words_of(plan: &Plan) -> Vec<&Words> {
    match &plan.launch {
        Launch::Program {
            arguments,
            environment,
            ..
        } => {
            let variables = environment.iter().map(|(_, words)| words);
            arguments.iter().chain(variables).collect()
        }
        Launch::Address { url, headers, .. } => {
            let headers = headers.iter().map(|(_, words)| words);
            std::iter::once(url).chain(headers).collect()
        }
        Launch::Bundle { .. } => Vec::new(),
    }
}

/// True if a secret has a value that must go into the vault.
fn gives_secrets(plan: &Plan) -> bool {
    let given = |it: &registry::Piece| matches!(it, registry::Piece::Secret { value: Some(_), .. });
    words_of(plan).into_iter().any(|it| it.0.iter().any(given))
}

/// The entry of `upstreams` for a plan.
fn upstream_of(name: &str, plan: &Plan, secrets: &mut Secrets) -> Value {
    let mut entry = Map::new();
    let mut write =
        |words: &Words| words.written(|secret, value| secrets.published(name, secret, value));
    let mut pairs = |all: &[(String, Words)]| {
        let pairs = all
            .iter()
            .map(|(name, words)| (name.clone(), json!(write(words))));
        Value::Object(pairs.collect())
    };
    match &plan.launch {
        Launch::Program {
            program,
            arguments,
            environment,
            directory,
        } => {
            if !environment.is_empty() {
                entry.insert("env".to_owned(), pairs(environment));
            }
            let arguments: Vec<String> = arguments.iter().map(&mut write).collect();
            entry.insert("command".to_owned(), json!(program));
            if !arguments.is_empty() {
                entry.insert("args".to_owned(), json!(arguments));
            }
            if let Some(directory) = directory {
                entry.insert("cwd".to_owned(), json!(directory));
            }
        }
        Launch::Address {
            url,
            headers,
            is_sse,
        } => {
            if !headers.is_empty() {
                entry.insert("headers".to_owned(), pairs(headers));
            }
            entry.insert("url".to_owned(), json!(write(url)));
            if *is_sse {
                entry.insert("transport".to_owned(), json!("sse"));
            }
        }
        Launch::Bundle { .. } => {}
    }
    Value::Object(entry)
}

/// Unpacks bundles, and takes entries into the catalogue.
fn keep(config: &Config, taken: &mut [Taken], told: &mut Vec<String>) -> Result<(), Stop> {
    let catalogue = Catalogue::at(&config.registry_directory());
    for one in taken {
        if let Some(server) = &one.server {
            let added = catalogue.add(server, &one.source, Timestamp::now());
            added.map_err(|error| failed(server::with_causes(&error)))?;
        }
        if let Some(bundle) = &mut one.bundle {
            let place = bundle.unpack(&bundles(config));
            let place = place.map_err(|error| failed(server::with_causes(&error)))?;
            told.push(format!("`{}` is unpacked to {}", one.name, place.display()));
        }
    }
    Ok(())
}

/// Asks on the terminal; without one, nobody agrees.
fn is_agreed() -> Result<bool, Stop> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    let mut stderr = io::stderr();
    let asked = write!(stderr, "Add it? [y/N] ").and_then(|()| stderr.flush());
    asked.map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn entries(config: &Config) -> Result<Vec<Entry>, Stop> {
    let entries = Catalogue::at(&config.registry_directory()).entries();
    entries.map_err(|error| failed(server::with_causes(&error)))
}

fn list(config: &Config, search: Option<&str>, format: ListFormat) -> Result<ExitCode, Stop> {
    let search = search.unwrap_or_default().to_lowercase();
    let mut found = entries(config)?;
    found.retain(|it| it.server.name.to_lowercase().contains(&search));
    match format {
        ListFormat::Json => {
            let rows = found.iter().map(|it| {
                json!({
                    "name": it.server.name,
                    "version": it.server.version,
                    "is_latest": it.is_latest,
                    "ways": registry::ways(&it.server),
                    "source": it.source,
                    "added": it.added.to_string(),
                    "sha256": it.sha256,
                })
            });
            print_json(&rows.collect::<Vec<_>>())
        }
        ListFormat::Table => {
            let rows = found.iter().map(|it| {
                vec![
                    it.server.name.clone(),
                    it.server.version.clone(),
                    if it.is_latest { "yes" } else { "no" }.to_owned(),
                    registry::ways(&it.server).join(", "),
                    it.added.to_string(),
                    it.source.clone(),
                ]
            });
            let heads = ["NAME", "VERSION", "LATEST", "RUN BY", "ADDED", "SOURCE"];
            print(&table(&heads, rows.collect()))
        }
    }
}

/// An entry of the catalogue by `NAME`, its latest version, or `NAME@VERSION`.
fn entry_named(config: &Config, name: &str) -> Result<Entry, Stop> {
    let (wanted, version) = match name.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (name, None),
    };
    let all = entries(config)?;
    let names: Vec<String> = all.iter().map(|it| it.server.name.clone()).collect();
    let is_wanted = |it: &Entry| {
        it.server.name == wanted
            && version.map_or(it.is_latest, |version| it.server.version == version)
    };
    all.into_iter().find(is_wanted).ok_or_else(|| {
        let meant = config::nearest(wanted, names.iter().map(String::as_str));
        let hint = match meant {
            Some(meant) if meant != wanted => format!("did you mean `{}`?", printable(meant)),
            _ => "`owlclaw-mcp registry list` shows what there is".to_owned(),
        };
        failed(format!(
            "the catalogue has no `{}`; {hint}",
            printable(name)
        ))
    })
}

fn export(asked: Export) -> Result<ExitCode, Stop> {
    let config = load_for(asked.settings, NEEDED)?.config;
    let value = match config.upstreams.get(&asked.name) {
        Some(upstream) => {
            let name = asked.publish_as.as_deref().ok_or_else(|| {
                let name = printable(&asked.name);
                Stop::Wrong(format!("name the entry: --publish-as com.example/{name}").into())
            })?;
            let command = upstream.command.as_deref();
            let environment: Vec<_> = upstream.env.clone().into_iter().collect();
            let headers = upstream.headers.iter();
            let headers: Vec<_> = headers
                .map(|(name, value)| (name.clone(), value.to_string()))
                .collect();
            let is_sse = upstream.transport == config::UpstreamTransport::Sse;
            let described = described(&Described {
                name,
                version: &asked.publish_version,
                description: asked.description.as_deref().unwrap_or(&asked.name),
                command: command.map(|it| (it, &upstream.args[..])),
                environment: &environment,
                url: upstream.url.as_deref().map(|it| (it, is_sse)),
                headers: &headers,
            });
            described.map_err(failed)?
        }
        None => entry_named(&config, &asked.name)?.server.raw,
    };
    let Some(path) = asked.output else {
        return print_json(&value);
    };
    let text = serde_json::to_string_pretty(&value).map_err(failed)? + "\n";
    let mut options = std::fs::OpenOptions::new();
    let written = options
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| failed(format!("{} cannot be made: {error}", path.display())))?;
    print(&format!("{} is written", path.display()))
}
