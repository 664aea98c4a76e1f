//! Changes of `upstreams` in the configuration file. What is written is the text as it was, with an entry more
//! or less; it is read and compared before it takes the place of the file.

pub(crate) mod section;
mod yaml;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use config::{Config, Environment, Rejected, Text, printable};
use gateway::{HostFile, Reach, UpstreamSpec, hosts::legal_name};
use serde_json::{Map, Value, json};
use server::Failure;

use crate::on_record::RecordedVault;
use crate::output::{Stop, print, print_json};
use crate::request::{Add, Manner, ReportFormat, Settings};
use crate::rewrite::{Lock, rewrite};
use crate::secrets::{self, Secrets, remarks};
use crate::vault::Kept;

/// The configuration file, as it is.
pub(crate) struct File {
    /// Name, as the operator has written it.
    name: String,
    /// The path, without links.
    path: PathBuf,
    text: String,
    is_new: bool,
    /// From before the text is read until another one is in its place.
    lock: Lock,
}

fn failed(error: impl Into<Failure>) -> Stop {
    Stop::Failed(error.into())
}

impl File {
    pub(crate) fn of(settings: Settings) -> Result<Self, Stop> {
        let named = settings.into_overrides().config;
        let name = named.unwrap_or_else(|| PathBuf::from(config::DEFAULT_FILE));
        let shown = name.display().to_string();
        let absolute = std::path::absolute(&name).map_err(failed)?;
        // A link stays one: the file that it leads to is replaced.
        let path = absolute.canonicalize().unwrap_or_else(|_| absolute.clone());
        let lock = Lock::of(&shown, &path).map_err(failed)?;
        match regular_file::read_text(&absolute, regular_file::MAX_BYTES) {
            Ok(text) => Ok(Self {
                name: shown,
                path,
                text,
                is_new: false,
                lock,
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self {
                name: shown,
                path,
                text: String::new(),
                is_new: true,
                lock,
            }),
            Err(error) => Err(failed(format!("{shown} cannot be read: {error}"))),
        }
    }

    /// The configuration that `text` in the place of the file would be.
    fn read(&self, text: &str, environment: &Environment) -> Result<Config, Rejected> {
        self.read_all(&[text], environment)
    }

    /// The same of several texts, each over the one before.
    fn read_all(&self, texts: &[&str], environment: &Environment) -> Result<Config, Rejected> {
        let text = |text: &&str| Text {
            name: self.name.clone(),
            text: (*text).to_owned(),
        };
        let texts: Vec<_> = texts.iter().map(text).collect();
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        config::load_texts(&texts, environment, directory).map(|it| it.config)
    }

    /// Checks that `text` says the same as the file, but for the upstreams that are `added` and `removed`.
    fn check(
        &self,
        text: &str,
        environment: &Environment,
        added: &BTreeMap<String, Value>,
        removed: Option<&str>,
    ) -> Result<(), Stop> {
        let before = self.read(&self.text, environment).map_err(Stop::Rejected)?;
        let after = self.read(text, environment).map_err(Stop::Rejected)?;
        let wanted = json!({ "mcp_server": { "upstreams": added } }).to_string();
        // Over the file, whose vault its references are about.
        let texts: &[&str] = match added.is_empty() {
            true => &[&self.text],
            false => &[&self.text, &wanted],
        };
        let wanted = self.read_all(texts, environment);
        let mut expected = wanted.map_err(Stop::Rejected)?;
        if let Some(name) = removed {
            expected.upstreams.remove(name);
        }
        let rest = Config {
            upstreams: expected.upstreams.clone(),
            ..after.clone()
        };
        let others = before.changes_to(&Config {
            upstreams: before.upstreams.clone(),
            ..rest
        });
        let is_rest_same = others.live.is_empty() && others.at_restart.is_empty();
        if after.upstreams != expected.upstreams || !is_rest_same {
            return Err(failed(format!(
                "{} is written in a way that cannot be edited safely; it was left as it is: edit `upstreams` \
                 by hand",
                self.name
            )));
        }
        Ok(())
    }

    /// Looks at an entry by itself. The error has all that is wrong with it, without places: it stands in no file yet.
    fn fits(&self, name: &str, entry: &Value, secrets: &Secrets) -> Result<(), String> {
        let upstreams = json!({ "mcp_server": { "upstreams": { name: entry } } });
        let (text, environment) = standing_in(&upstreams.to_string(), secrets);
        let Err(rejected) = self.read_all(&[&self.text, &text], &environment) else {
            return Ok(());
        };
        let wrong = rejected.problems.iter();
        let wrong = wrong.filter(|it| it.severity == config::Severity::Error);
        let wrong = wrong.map(|it| printable(&it.message));
        Err(wrong.collect::<Vec<_>>().join("; "))
    }

    /// Puts `text` in the place of the file, whole or not at all.
    fn write(&self, text: &str) -> Result<(), Stop> {
        rewrite(&self.lock, &self.name, &self.path, &self.text, text).map_err(failed)
    }
}

/// Adds an upstream.
pub(crate) fn add(add: Add) -> Result<ExitCode, Stop> {
    let file = File::of(add.settings())?;
    let mut secrets = Secrets::default();
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| {
        entry.insert(key.to_owned(), value);
    };
    match (&add.url, add.command.split_first()) {
        (Some(url), _) => {
            put("url", json!(secrets.url(&add.name, url)));
            let mut headers = Map::new();
            for header in &add.headers {
                let (name, value) = header.split_once(':').ok_or_else(|| {
                    failed(format!(
                        "`--header {}` is not `Name: value`",
                        printable(header)
                    ))
                })?;
                let value = secrets.header(&add.name, name.trim(), value.trim());
                headers.insert(name.trim().to_owned(), json!(value));
            }
            if !headers.is_empty() {
                put("headers", Value::Object(headers));
            }
        }
        (None, Some((program, arguments))) => {
            put("command", json!(program));
            let arguments = secrets.arguments(&add.name, arguments);
            if !arguments.is_empty() {
                put("args", json!(arguments));
            }
            let mut variables = Map::new();
            for variable in &add.env {
                let (name, value) = variable.split_once('=').ok_or_else(|| {
                    failed(format!("`--env {}` is not NAME=value", printable(variable)))
                })?;
                let value = secrets.variable(&add.name, name, value);
                variables.insert(name.to_owned(), json!(value));
            }
            if !variables.is_empty() {
                put("env", Value::Object(variables));
            }
            if let Some(cwd) = &add.cwd {
                put("cwd", json!(cwd));
            }
        }
        (None, None) => return Err(failed("name a program behind `--`, or --url")),
    }
    for (key, patterns) in [("allow", &add.allow), ("deny", &add.deny)] {
        if !patterns.is_empty() {
            put(key, json!(patterns));
        }
    }
    let entries = vec![(add.name.clone(), Value::Object(entry))];
    put_in(&file, entries, &secrets, Vec::new(), add.manner, None, None)
}

/// Adds the servers of a host's file.
pub(crate) fn import(
    settings: Settings,
    path: &Path,
    only: &[String],
    uses_vault: bool,
    manner: Manner,
) -> Result<ExitCode, Stop> {
    let file = File::of(settings.clone())?;
    let text = regular_file::read_text(path, regular_file::MAX_BYTES)
        .map_err(|error| failed(format!("{} cannot be read: {error}", path.display())))?;
    // References stay references, in our form.
    let referred = |name: &str| {
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        match name.strip_prefix("input:") {
            Some(input) => Some(format!("${{{}}}", secrets::as_variable(input))),
            None if name.is_empty() || !name.chars().all(is_name) => None,
            None => Some(format!("${{{name}}}")),
        }
    };
    let environment = Environment::of_process();
    let found = HostFile::parse_as(&text, referred, |name| {
        environment.value_of(name).and_then(|_| referred(name))
    });
    let mut told: Vec<String> = found
        .warnings
        .into_iter()
        // They are not copied, and told below.
        .filter(|it| !it.contains("looks like a secret"))
        .collect();
    let mut entries = Vec::new();
    let before = file
        .read(&file.text, &environment)
        .map_err(Stop::Rejected)?;
    let place = uses_vault.then(|| before.vault_place());
    let mut secrets = match &place {
        Some(place) => Secrets::into_vault(&crate::vault::open(place)?),
        None => Secrets::default(),
    };
    let names: Vec<&str> = found.specs.iter().map(|it| it.name.as_str()).collect();
    let is_wanted =
        |name: &str| only.is_empty() || only.iter().any(|it| legal_name(it) == legal_name(name));
    if found.is_broken || found.left_out.iter().any(|it| is_wanted(it)) {
        return Err(failed(format!(
            "nothing is written: {}: {}",
            path.display(),
            printable(&told.join("; "))
        )));
    }
    for wanted in only {
        if !names.contains(&legal_name(wanted).as_str()) {
            let meant = config::nearest(wanted, names.iter().copied());
            let hint = meant.map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
            let wanted = printable(wanted);
            return Err(failed(format!(
                "{} has no server `{wanted}` that can be used{}",
                path.display(),
                printable(&hint)
            )));
        }
    }
    for spec in &found.specs {
        if !is_wanted(&spec.name) {
            continue;
        }
        let name = spec.name.clone();
        let is_taken = |it: &(String, Value)| it.0 == name;
        if before.upstreams.contains_key(&name) || entries.iter().any(is_taken) {
            told.push(format!(
                "`{name}` is left out: there is an upstream of this name"
            ));
            continue;
        }
        let entry = of_spec(&name, spec, &mut secrets).map_err(failed)?;
        if let Err(why) = file.fits(&name, &entry, &secrets) {
            return Err(failed(format!(
                "nothing is written: {}: `{}` cannot be an upstream: {why}",
                path.display(),
                printable(&spec.name)
            )));
        }
        entries.push((name, entry));
    }
    let kept = match uses_vault && !manner.dry_run {
        // Before the file has references to them.
        true => Some(crate::vault::keep(RecordedVault::of(settings)?, &secrets)?),
        false => None,
    };
    put_in(&file, entries, &secrets, told, manner, None, kept)
}

fn of_spec(name: &str, spec: &UpstreamSpec, secrets: &mut Secrets) -> Result<Value, Failure> {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| {
        entry.insert(key.to_owned(), value);
    };
    match &spec.reach {
        Reach::Child {
            program,
            arguments,
            environment,
            directory,
        } => {
            put("command", json!(program));
            let arguments = secrets.arguments(name, arguments);
            if !arguments.is_empty() {
                put("args", json!(arguments));
            }
            let mut variables = Map::new();
            for (variable, value) in environment {
                let value = secrets.variable(name, variable, value);
                variables.insert(variable.clone(), json!(value));
            }
            if !variables.is_empty() {
                put("env", Value::Object(variables));
            }
            if let Some(directory) = directory {
                put("cwd", json!(directory));
            }
        }
        Reach::Url {
            url,
            headers,
            transport,
        } => {
            put("url", json!(secrets.url(name, url)));
            let mut all = Map::new();
            for (header, value) in headers {
                let value = secrets.header(name, header.as_str(), value.to_str()?);
                all.insert(header.as_str().to_owned(), json!(value));
            }
            if !all.is_empty() {
                put("headers", Value::Object(all));
            }
            if *transport == mcp_client::HttpTransport::Sse {
                put("transport", json!("sse"));
            }
        }
    }
    for (key, patterns) in [("allow", &spec.allow), ("deny", &spec.deny)] {
        if !patterns.is_empty() {
            // A name of a tool refers to nothing here.
            let patterns = patterns.iter().map(|it| it.replace("${", "$${"));
            put(key, json!(patterns.collect::<Vec<_>>()));
        }
    }
    if !spec.enabled {
        put("enabled", json!(false));
    }
    let seconds = spec.timeout.as_secs_f64().ceil();
    let usual = config::Upstream::default().timeout_seconds;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 1 to 86400, as the file was read"
    )]
    let seconds = seconds as u64;
    if seconds != usual {
        put("timeout_seconds", json!(seconds));
    }
    Ok(Value::Object(entry))
}

/// The variables of a server that has those that entries refer to.
fn with_unset(secrets: &Secrets) -> Environment {
    let unset = secrets.unset().into_iter();
    unset.fold(Environment::of_process(), |it, name| it.with(name, "x"))
}

/// A text whose references to secrets that the vault does not have yet are to variables, and these variables.
fn standing_in(text: &str, secrets: &Secrets) -> (String, Environment) {
    let (mut text, mut environment) = (text.to_owned(), with_unset(secrets));
    for (name, ..) in secrets.moved() {
        environment = environment.with(name.as_str(), "x");
        text = text.replace(&format!("${{vault:{name}}}"), &format!("${{{name}}}"));
    }
    (text, environment)
}

/// Writes entries into the file, once all is well with it; returns true if it did.
fn write_in(
    file: &File,
    entries: &[(String, Value)],
    added: &BTreeMap<String, Value>,
    secrets: &Secrets,
    manner: Manner,
) -> Result<bool, Stop> {
    let environment = with_unset(secrets);
    let before = file
        .read(&file.text, &environment)
        .map_err(Stop::Rejected)?;
    let mut text = file.text.clone();
    for (name, entry) in entries {
        if before.upstreams.contains_key(name) {
            return Err(failed(format!(
                "there is an upstream `{name}` already; `owlclaw-mcp upstream remove {name}` takes it out"
            )));
        }
        text = yaml::with_entry(&text, name, entry).map_err(|why| {
            let snippet = yaml::entry(name, entry, 4);
            failed(format!(
                "{}: {why}; it was left as it is: put this below `mcp_server: upstreams:` by hand\n{snippet}",
                file.name
            ))
        })?;
    }
    if manner.dry_run {
        let (text, environment) = standing_in(&text, secrets);
        let (added, _) = standing_in(&json!(added).to_string(), secrets);
        let added = serde_json::from_str(&added).map_err(|error| failed(error.to_string()))?;
        file.check(&text, &environment, &added, None)?;
    } else {
        file.check(&text, &environment, added, None)?;
    }
    let is_written = !manner.dry_run && !entries.is_empty();
    if is_written {
        file.write(&text)?;
    }
    Ok(is_written)
}

/// Writes entries to the file, or shows what would be written; `servers` is what is known of them besides, for programs.
pub(crate) fn put_in(
    file: &File,
    entries: Vec<(String, Value)>,
    secrets: &Secrets,
    told: Vec<String>,
    manner: Manner,
    servers: Option<Vec<Value>>,
    kept: Option<Kept>,
) -> Result<ExitCode, Stop> {
    let added: BTreeMap<String, Value> = entries.iter().cloned().collect();
    let written = write_in(file, &entries, &added, secrets, manner);
    let is_written = match kept {
        Some(kept) => kept.unless(written)?,
        None => written?,
    };
    let variables: Vec<Value> = secrets
        .all()
        .map(|it| {
            json!({
                "variable": it.variable,
                "used_in": it.place,
                "is_set": it.is_set,
                "was_written_out": it.was_written_out,
            })
        })
        .collect();
    let moved = secrets
        .moved()
        .map(|(name, _, place)| json!({ "name": name.as_str(), "stood_in": place }));
    let moved: Vec<Value> = moved.collect();
    let mut report = json!({
        "file": file.path,
        "written": is_written,
        "is_new": file.is_new,
        "in_vault": moved,
        "added": added,
        "variables": variables,
        "kept": secrets.kept(),
        "too_short": secrets.short(),
        "told": told,
    });
    if let Some(servers) = servers {
        report["servers"] = servers.into();
    }
    match manner.format {
        ReportFormat::Json => print_json(&report),
        ReportFormat::Text => print(&added_text(file, &entries, secrets, &told, is_written)),
    }
}

fn added_text(
    file: &File,
    entries: &[(String, Value)],
    secrets: &Secrets,
    told: &[String],
    is_written: bool,
) -> String {
    let mut out = String::new();
    for line in told {
        let _ = writeln!(out, "note: {}", printable(line));
    }
    let verb = match (is_written, file.is_new) {
        (true, true) => "is written",
        (true, false) => "has been changed",
        (false, _) if entries.is_empty() => "is as it was: there is nothing to add",
        (false, _) => "would get this; nothing is written (--dry-run)",
    };
    let _ = writeln!(out, "{} {verb}", file.name);
    for (name, entry) in entries {
        out.push('\n');
        for line in yaml::entry(name, entry, 4).lines() {
            let _ = writeln!(out, "{}", printable(line));
        }
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        match entry["command"].is_string() {
            true => {
                let words = entry["args"].as_array().into_iter().flatten();
                let words = words.filter_map(Value::as_str);
                let words: Vec<_> = std::iter::once(text("command")).chain(words).collect();
                let _ = writeln!(out, "it runs        {}", printable(&words.join(" ")));
                let named = entry["env"].as_object().into_iter().flatten();
                let named: Vec<_> = named.map(|(name, _)| name.as_str()).collect();
                let named = match named.is_empty() {
                    true => String::new(),
                    false => format!(", and {}", named.join(", ")),
                };
                let _ = writeln!(
                    out,
                    "with           PATH, HOME and eight others of the server's variables{}",
                    printable(&named)
                );
                if !is_there(text("command")) {
                    let _ = writeln!(
                        out,
                        "warning        `{}` is no program that can be found here",
                        printable(text("command"))
                    );
                }
            }
            false => {
                let _ = writeln!(out, "it asks        {}", printable(text("url")));
            }
        }
    }
    let needed: Vec<_> = secrets.all().collect();
    if !needed.is_empty() {
        out.push_str("\nsecrets and settings that the environment of the server is to have:\n");
        for it in &needed {
            let is_set = if it.is_set {
                "set here"
            } else {
                "not set here"
            };
            let why = match it.was_written_out {
                true => "; it was written out, and is not in the file now",
                false => "",
            };
            let _ = writeln!(
                out,
                "  {}  for {}, {is_set}{why}",
                printable(&it.variable),
                printable(&it.place)
            );
        }
    }
    let mut moved = secrets.moved().peekable();
    if moved.peek().is_some() {
        out.push_str(match is_written {
            true => "\nsecrets that are in the vault now:\n",
            false => "\nsecrets that would go into the vault:\n",
        });
    }
    for (name, _, place) in moved {
        let _ = writeln!(out, "  {name}  for {}", printable(place));
    }
    out.push_str(&remarks(secrets));
    if is_written {
        out.push_str(match needed.is_empty() {
            true => "\na server that runs takes it up at once; `owlclaw-mcp upstream list` shows it",
            false => {
                "\na server that runs takes it up at once; what it was not started with the variables of is held, \
                 until it is started again with them"
            }
        });
    }
    out.trim_end().to_owned()
}

/// True if a program can be found as it is named.
fn is_there(program: &str) -> bool {
    if program.contains('/') || program.contains("${") {
        return program.contains("${") || Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|it| it.join(program).is_file())
}

/// Takes an upstream out of the file.
pub(crate) fn remove(settings: Settings, name: &str, manner: Manner) -> Result<ExitCode, Stop> {
    let file = File::of(settings)?;
    let environment = Environment::of_process();
    let before = file
        .read(&file.text, &environment)
        .map_err(Stop::Rejected)?;
    if !before.upstreams.contains_key(name) {
        let names = before.upstreams.keys().map(String::as_str);
        let hint = match config::nearest(name, names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "those of `upstreams_files` are taken out there".to_owned(),
        };
        let name = printable(name);
        return Err(failed(format!(
            "{} has no upstream `{name}`; {hint}",
            file.name
        )));
    }
    let text = yaml::without_entry(&file.text, name).map_err(|why| {
        failed(format!(
            "{}: {why}; it was left as it is: take `upstreams.{name}` out by hand",
            file.name
        ))
    })?;
    file.check(&text, &environment, &BTreeMap::new(), Some(name))?;
    if !manner.dry_run {
        file.write(&text)?;
    }
    match manner.format {
        ReportFormat::Json => print_json(&json!({
            "file": file.path,
            "written": !manner.dry_run,
            "removed": name,
        })),
        ReportFormat::Text => print(&match manner.dry_run {
            true => format!(
                "{} would lose upstreams.{name}; nothing is written",
                file.name
            ),
            false => format!(
                "{} has no upstreams.{name} any more; a server that runs closes it, and what is stored of its \
                 names is freed",
                file.name
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_imported_server_offers_what_the_hosts_file_lets_it_offer() {
        let command = r#""command": "x""#;
        for (members, allow, deny) in [
            ("", &[][..], &[][..]),
            (r#", "includeTools": ["ls"]"#, &["ls"], &[]),
            (
                r#", "enabledTools": ["ls", "cat_*"]"#,
                &["ls", "cat_*"],
                &[],
            ),
            (r#", "allowedTools": ["a${HOME}"]"#, &["a${HOME}"], &[]),
            (r#", "excludeTools": ["rm"]"#, &[], &["rm"]),
            (
                r#", "disabledTools": ["rm"], "autoApprove": ["ls"]"#,
                &[],
                &["rm"],
            ),
        ] {
            let host = format!(r#"{{"mcpServers": {{"a": {{{command}{members}}}}}}}"#);
            let found = HostFile::parse(&host, |_| None);
            let entry = of_spec("a", &found.specs[0], &mut Secrets::default()).unwrap();
            let text = json!({ "mcp_server": { "upstreams": { "a": entry } } }).to_string();
            let name = "mcp-server.yaml".to_owned();
            let text = Text { name, text };
            let loaded = config::load_texts(&[text], &Environment::default(), Path::new("/"));
            let a = &loaded.unwrap().config.upstreams["a"];
            assert_eq!(
                (&a.allow[..], &a.deny[..]),
                (&strings(allow)[..], &strings(deny)[..]),
                "{host}"
            );
        }
    }

    #[test]
    fn a_mistake_in_a_hosts_file_is_refused_by_its_entry_unless_others_are_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let before = "mcp_server:\n  app: x\n";
        let imported = |entry: &str, only: &[&str]| {
            std::fs::write(path("mcp-server.yaml"), before).unwrap();
            let host =
                format!(r#"{{"mcpServers": {{"good": {{"command": "x"}}, "bad": {entry}}}}}"#);
            std::fs::write(path("host.json"), host).unwrap();
            let manner = Manner {
                dry_run: false,
                format: ReportFormat::Text,
            };
            let settings = Settings::of_file(Some(path("mcp-server.yaml")));
            let done = import(settings, &path("host.json"), &strings(only), false, manner);
            let written = std::fs::read_to_string(path("mcp-server.yaml")).unwrap();
            match done {
                Ok(_) => Ok(written),
                Err(Stop::Failed(why)) => {
                    assert_eq!(written, before);
                    Err(why.to_string())
                }
                Err(_) => panic!("{entry}"),
            }
        };
        for (entry, expected) in [
            (r#"{"command": 7}"#, "host.json: `bad` is left out: "),
            (
                r#"{"url": "https://h/mcp", "headers": {"Mcp-Session-Id": "x"}}"#,
                "host.json: `bad` ",
            ),
        ] {
            let why = imported(entry, &[]).unwrap_err();
            assert!(why.contains(expected), "{why}");
            assert!(!why.contains("mcp-server.yaml:"), "{why}");
            let written = imported(entry, &["good"]).unwrap();
            assert!(
                written.contains("good:") && !written.contains("bad:"),
                "{written}"
            );
        }
    }

    #[test]
    fn of_commands_at_once_none_undoes_what_another_has_done() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("mcp-server.yaml"), "mcp_server:\n  app: x\n").unwrap();
        let imported = |name: &str| {
            let host = format!(r#"{{"mcpServers": {{"{name}": {{"command": "x"}}}}}}"#);
            std::fs::write(path(name), host).unwrap();
            let settings = Settings::of_file(Some(path("mcp-server.yaml")));
            let manner = Manner {
                dry_run: false,
                format: ReportFormat::Text,
            };
            import(settings, &path(name), &[], false, manner).is_ok()
        };
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let done = std::thread::scope(|scope| {
            let threads = names.map(|name| scope.spawn(move || imported(name)));
            threads.map(|it| it.join().unwrap())
        });
        assert_eq!(done, [true; 8]);
        let written = std::fs::read_to_string(path("mcp-server.yaml")).unwrap();
        for name in names {
            assert!(written.contains(&format!("    {name}:\n")), "{written}");
        }
    }

    #[test]
    fn what_stays_in_plain_text_and_what_is_too_short_is_told() {
        let mut secrets = Secrets::into_vault(&vault::Vault::default());
        secrets.variable("a", "REGION", "eu-west");
        secrets.variable("a", "SHOP_PASS", "short");
        secrets.variable("a", "API_AUTH", "long enough");
        let told = remarks(&secrets);
        assert!(told.contains("not redacted: SHOP_PASS\n"), "{told}");
        assert!(
            told.contains("kept as they are: upstreams.a.env.REGION\n"),
            "{told}"
        );
        assert!(
            !told.contains("eu-west") && !told.contains("API_AUTH"),
            "{told}"
        );
    }

    fn strings(of: &[&str]) -> Vec<String> {
        of.iter().map(|it| (*it).to_owned()).collect()
    }
}
