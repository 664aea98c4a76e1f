//! The manifest of a bundle, of the versions 0.1 to 0.4.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::script::{self, Script};
use crate::input::{Answers, Asking, Input, Piece, Variable, Words};
use crate::launch::{Launch, Plan, Steering, finished, steers};
use crate::reading::{Reader, Unfit, repeats, shown};
use crate::server_json::is_variable;

/// Versions that are read.
const VERSIONS: [&str; 4] = ["0.1", "0.2", "0.3", "0.4"];
/// Most arguments, variables and settings.
const MAX_INPUTS: usize = 128;
/// Programs that a bundle may be run by, if it is not run by a file of its own.
const RUNTIMES: [&str; 6] = ["bun", "deno", "node", "python", "python3", "uv"];
/// Variables that say where code is loaded from: a bundle may name places of its own.
const LOADING: [&str; 4] = [
    "DYLD_LIBRARY_PATH",
    "LD_LIBRARY_PATH",
    "NODE_PATH",
    "PYTHONPATH",
];

/// A manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Name for programs.
    pub name: String,
    /// Title for people.
    pub title: Option<String>,
    /// Version of the bundle.
    pub version: String,
    /// Description.
    pub description: String,
    /// Name of the author, as the author has written it.
    pub author: String,
    /// Kind of the server: `node`, `python`, `binary` or `uv`.
    pub kind: String,
    /// File that is run.
    pub entry_point: String,
    /// Platforms that it is made for; empty for all.
    pub platforms: Vec<String>,
    /// Tools that it names.
    pub tools: Vec<String>,
    command: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    settings: Vec<Setting>,
}

/// A setting that is left to the user.
#[derive(Debug, Clone, PartialEq)]
struct Setting {
    name: String,
    input: Input,
    is_multiple: bool,
    defaults: Vec<String>,
    min: Option<f64>,
    max: Option<f64>,
}

/// Directories of the user that a manifest may name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Places {
    /// Home directory; the others are `Desktop`, `Documents` and `Downloads` in it.
    pub home: Option<PathBuf>,
}

impl Manifest {
    /// Reads a manifest.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<Unfit>> {
        let raw: Value = serde_json::from_str(text)
            .map_err(|error| vec![Unfit::new("", format!("it is no JSON: {error}"))])?;
        if let Some(why) = repeats(text) {
            return Err(vec![Unfit::new("", why)]);
        }
        let mut reader = Reader::default();
        let found = read(&raw, &mut reader);
        match (found, reader.found.is_empty()) {
            (Some(manifest), true) => Ok(manifest),
            _ => Err(reader.found),
        }
    }

    pub(super) fn plan(
        &self,
        directory: &Path,
        places: &Places,
        answers: &Answers,
        has: &dyn Fn(&str) -> bool,
    ) -> Plan {
        let mut filling = Filling {
            directory,
            places,
            settings: &self.settings,
            asking: Asking::new(answers),
            refused: Vec::new(),
        };
        let here = platform();
        if !self.platforms.is_empty() && !self.platforms.iter().any(|it| it == here) {
            let made = self.platforms.iter().map(|it| shown(it));
            let made: Vec<_> = made.collect();
            let why = format!("it is made for {}, and this is {here}", made.join(", "));
            filling.refused.push(why);
        }
        let program = filling.program(&self.command, has);
        if program == self.command && RUNTIMES.contains(&program.as_str()) {
            let loading = self.environment.iter();
            let loading = loading.filter(|(name, _)| name == "PYTHONPATH");
            let python_path: Vec<_> = loading
                .filter_map(|(_, text)| script::own(text))
                .map(str::to_owned)
                .collect();
            let script = Script {
                has,
                python_path: &python_path,
            };
            if let Err(why) = script.check(&program, &self.arguments) {
                filling.refused.push(why);
            }
        }
        let mut arguments = Vec::new();
        for argument in &self.arguments {
            arguments.extend(filling.words(argument));
        }
        let (mut environment, mut warnings) = (Vec::new(), Vec::new());
        for (name, text) in &self.environment {
            let is_own = LOADING.contains(&name.as_str())
                && text.starts_with("${__dirname}")
                && !text.contains([':', ';'])
                && !text.contains("..");
            let is_loading = LOADING.contains(&name.as_str());
            let mut words = filling.words(text);
            if words.len() > 1 {
                filling.refused.push(format!(
                    "the variable `{name}` would have several values: give one"
                ));
            }
            let Some(words) = words.pop() else {
                continue;
            };
            match steers(name, &words).filter(|_| !is_own) {
                Some(_) if is_loading => filling.refused.push(format!(
                    "the variable `{name}` decides which code is run, and leads out of the bundle"
                )),
                Some(Steering::Refused(why)) => filling.refused.push(why),
                Some(Steering::Yours(why)) => warnings.push(why),
                None => {}
            }
            environment.push((name.clone(), words));
        }
        // What no command has is asked for all the same.
        for setting in &self.settings {
            let _ = filling.setting(setting);
        }
        let launch = Launch::Program {
            program,
            arguments,
            environment,
            directory: Some(directory.to_owned()),
        };
        let Filling {
            asking, refused, ..
        } = filling;
        finished(launch, "manifest", asking, (refused, warnings), None)
    }
}

/// The platform, in the words of a manifest.
fn platform() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    }
}

/// Puts values in the places of references of a manifest.
struct Filling<'a> {
    directory: &'a Path,
    places: &'a Places,
    settings: &'a [Setting],
    asking: Asking<'a>,
    refused: Vec<String>,
}

impl Filling<'_> {
    /// The program: a file of the bundle, or one of those that run scripts.
    fn program(&mut self, command: &str, has: &dyn Fn(&str) -> bool) -> String {
        let own = command.strip_prefix("${__dirname}/").unwrap_or(command);
        if has(own) {
            let own = own.strip_prefix("./").unwrap_or(own);
            return self.directory.join(own).display().to_string();
        }
        if !RUNTIMES.contains(&command) {
            self.refused.push(format!(
                "its command `{}` is neither a file of the bundle nor one of {}",
                shown(command),
                RUNTIMES.join(", ")
            ));
        }
        command.to_owned()
    }

    /// The words that one text becomes: several, if it is a setting with several values; none, if it has none.
    fn words(&mut self, text: &str) -> Vec<Words> {
        if let Some(name) = text
            .strip_prefix("${user_config.")
            .and_then(|it| it.strip_suffix('}'))
            && let Some(setting) = self.settings.iter().find(|it| it.name == name)
        {
            return self.setting(setting);
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            pieces.push(Piece::Theirs(rest[..at].to_owned()));
            let Some((name, after)) = rest[at + 2..].split_once('}') else {
                break;
            };
            let Some(piece) = self.piece(name) else {
                // `--config=` without a file says something else than nothing.
                return Vec::new();
            };
            pieces.extend(piece);
            rest = after;
        }
        pieces.push(Piece::Theirs(rest.to_owned()));
        pieces.retain(|it| *it != Piece::Theirs(String::new()));
        vec![Words(pieces)]
    }

    /// The value of a reference; `None` for a setting that has none.
    fn piece(&mut self, name: &str) -> Option<Vec<Piece>> {
        if let Some(place) = self.place(name) {
            return Some(vec![Piece::Theirs(place)]);
        }
        let setting = name.strip_prefix("user_config.");
        let setting = setting.and_then(|name| self.settings.iter().find(|it| it.name == name));
        let Some(setting) = setting else {
            self.refused.push(format!(
                "`${{{}}}` is nothing that a manifest can refer to",
                shown(name)
            ));
            return Some(Vec::new());
        };
        let mut values = self.setting(setting);
        if values.len() > 1 {
            self.refused.push(format!(
                "`{}` has several values within one argument",
                shown(name)
            ));
        }
        match values.pop() {
            Some(words) => Some(words.0),
            // It is told as missing.
            None if setting.input.is_required => Some(Vec::new()),
            None => None,
        }
    }

    fn place(&self, name: &str) -> Option<String> {
        let home = || self.places.home.as_deref();
        let of_home = |name: &str| Some(home()?.join(name).display().to_string());
        match name {
            "__dirname" => Some(self.directory.display().to_string()),
            "HOME" => Some(home()?.display().to_string()),
            "DESKTOP" => of_home("Desktop"),
            "DOCUMENTS" => of_home("Documents"),
            "DOWNLOADS" => of_home("Downloads"),
            "pathSeparator" | "/" => Some(std::path::MAIN_SEPARATOR.to_string()),
            _ => None,
        }
    }

    fn setting(&mut self, setting: &Setting) -> Vec<Words> {
        let variable = Variable {
            input: setting.input.clone(),
            variables: Vec::new(),
        };
        let name = setting.name.as_str();
        let values = self.asking.values(name, &variable, setting.is_multiple);
        let is_given = self
            .asking
            .asked
            .iter()
            .any(|it| it.name == name && it.is_given);
        if !is_given {
            if setting.defaults.is_empty() {
                return values;
            }
            let defaults = setting.defaults.iter();
            let filled: Vec<Words> = defaults.map(|it| self.default(it)).collect();
            return filled;
        }
        for number in values
            .iter()
            .filter_map(|it| it.plain().parse::<f64>().ok())
        {
            let is_below = setting.min.is_some_and(|min| number < min);
            let is_above = setting.max.is_some_and(|max| number > max);
            if is_below || is_above {
                let bound = |it: Option<f64>| it.map_or("any".to_owned(), |it| it.to_string());
                let why = format!(
                    "`{name}` must be from {} to {}",
                    bound(setting.min),
                    bound(setting.max)
                );
                if !self.refused.contains(&why) {
                    self.refused.push(why);
                }
            }
        }
        values
    }

    /// A default, in which places of the user may stand.
    fn default(&self, text: &str) -> Words {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            out.push_str(&rest[..at]);
            match rest[at + 2..].split_once('}') {
                Some((name, after)) => {
                    match self.place(name) {
                        Some(place) => out.push_str(&place),
                        None => out.push_str(&rest[at..at + name.len() + 3]),
                    }
                    rest = after;
                }
                None => break,
            }
        }
        out.push_str(rest);
        Words::theirs(out)
    }
}

fn read(raw: &Value, reader: &mut Reader) -> Option<Manifest> {
    let members = reader.object(raw, "it")?;
    let key = match members.contains_key("dxt_version") {
        true => "dxt_version",
        false => "manifest_version",
    };
    let form = reader.text(members, "", key, 16)?;
    if !VERSIONS.contains(&form.as_str()) {
        let why = format!("`{}` is none of {}", shown(&form), VERSIONS.join(", "));
        reader.wrong(key, &why);
        return None;
    }
    let name = reader.text(members, "", "name", 200);
    let version = reader.text(members, "", "version", 100);
    let description = reader.text(members, "", "description", 4_096);
    let author = members.get("author").unwrap_or(&Value::Null);
    let author = reader.object(author, "author");
    let author = author.and_then(|it| reader.text(it, "author", "name", 200));
    let server = members.get("server").unwrap_or(&Value::Null);
    let server = reader.object(server, "server")?;
    let kind = reader.text(server, "server", "type", 16);
    if let Some(kind) = &kind
        && !["node", "python", "binary", "uv"].contains(&kind.as_str())
    {
        let why = format!(
            "`{}` is none of `node`, `python`, `binary` and `uv`",
            shown(kind)
        );
        reader.wrong("server.type", &why);
    }
    let entry_point = reader.text(server, "server", "entry_point", 512);
    // `uv` knows how to run a project.
    let entry = entry_point.as_deref().unwrap_or_default();
    let of_uv = json!({ "command": "uv", "args": ["run", "--directory", "${__dirname}", entry] });
    let of_uv = Some(&of_uv).filter(|_| kind.as_deref() == Some("uv"));
    let Some(run) = server.get("mcp_config").or(of_uv) else {
        reader.wrong("server", "lacks `mcp_config`, which says how it is run");
        return None;
    };
    let run = reader.object(run, "server.mcp_config")?;
    let over = run
        .get("platform_overrides")
        .and_then(|it| it.get(platform()));
    let over = over.and_then(|it| reader.object(it, "server.mcp_config.platform_overrides"));
    let place = "server.mcp_config";
    let of = |name: &str| over.filter(|it| it.contains_key(name)).unwrap_or(run);
    let command = reader.text(of("command"), place, "command", 512);
    let arguments = texts(of("args"), place, "args", reader);
    let mut environment: Vec<(String, String)> = Vec::new();
    for members in [Some(run), over].into_iter().flatten() {
        // Variables of the platform stand beside the others.
        for (name, value) in variables(members, place, reader) {
            environment.retain(|(it, _)| *it != name);
            environment.push((name, value));
        }
    }
    let platforms = match members.get("compatibility").and_then(Value::as_object) {
        Some(it) => texts(it, "compatibility", "platforms", reader),
        None => Vec::new(),
    };
    let tools = reader.list(members, "", "tools", 10_000);
    let tools = tools.iter().filter_map(|(_, it)| it["name"].as_str());
    let tools = tools.map(shown).collect();
    let settings = settings(members, reader);
    Some(Manifest {
        name: name?,
        title: reader.optional_text(members, "", "display_name", 200),
        version: version?,
        description: description?,
        author: author?,
        kind: kind?,
        entry_point: entry_point?,
        platforms,
        tools,
        command: command?,
        arguments,
        environment,
        settings,
    })
}

fn texts(
    members: &Map<String, Value>,
    place: &str,
    name: &str,
    reader: &mut Reader,
) -> Vec<String> {
    let found = reader.list(members, place, name, MAX_INPUTS);
    let mut texts = Vec::new();
    for (place, value) in found {
        let mut one = Map::new();
        one.insert("it".to_owned(), value.clone());
        let before = reader.found.len();
        match reader.optional_text(&one, "", "it", 8_192) {
            Some(text) => texts.push(text),
            None => {
                // The place is that of the element.
                reader.found.truncate(before);
                reader.wrong(&place, "is no text that can be used");
            }
        }
    }
    texts
}

fn variables(
    members: &Map<String, Value>,
    place: &str,
    reader: &mut Reader,
) -> Vec<(String, String)> {
    let Some(found) = members.get("env") else {
        return Vec::new();
    };
    let place = format!("{place}.env");
    let Some(found) = reader.object(found, &place) else {
        return Vec::new();
    };
    if found.len() > MAX_INPUTS {
        reader.wrong(&place, &format!("has more than {MAX_INPUTS}"));
        return Vec::new();
    }
    let mut variables = Vec::new();
    for name in found.keys() {
        if !is_variable(name) {
            let name = shown(name);
            reader.wrong(&place, &format!("`{name}` is no name of a variable"));
        } else if let Some(text) = reader.optional_text(found, &place, name, 8_192) {
            variables.push((name.clone(), text));
        }
    }
    variables
}

fn settings(members: &Map<String, Value>, reader: &mut Reader) -> Vec<Setting> {
    let Some(found) = members.get("user_config") else {
        return Vec::new();
    };
    let Some(found) = reader.object(found, "user_config") else {
        return Vec::new();
    };
    if found.len() > MAX_INPUTS {
        reader.wrong("user_config", &format!("has more than {MAX_INPUTS}"));
        return Vec::new();
    }
    let mut settings = Vec::new();
    for (name, value) in found {
        let place = format!("user_config.{}", shown(name));
        let is_legal = |it: char| it.is_ascii_alphanumeric() || "_-.".contains(it);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_legal) {
            reader.wrong(&place, "is no name of a setting");
            continue;
        }
        let Some(members) = reader.object(value, &place) else {
            continue;
        };
        let is_set = |name: &str| members.get(name) == Some(&Value::Bool(true));
        let form = reader.text(members, &place, "type", 16);
        let form = form.unwrap_or_default();
        if !["string", "number", "boolean", "directory", "file", ""].contains(&form.as_str()) {
            let why = format!("`{}` is no type of a setting", shown(&form));
            reader.wrong(&format!("{place}.type"), &why);
        }
        let defaults = match members.get("default") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(all)) => all.iter().filter_map(as_text).collect(),
            Some(one) => as_text(one).into_iter().collect(),
        };
        let title = reader.optional_text(members, &place, "title", 200);
        let description = reader.optional_text(members, &place, "description", 4_096);
        let number = |name: &str| members.get(name).and_then(Value::as_f64);
        settings.push(Setting {
            name: name.clone(),
            is_multiple: is_set("multiple"),
            min: number("min"),
            max: number("max"),
            input: Input {
                description: match (title, description) {
                    (Some(title), Some(text)) => Some(format!("{title}: {text}")),
                    (title, text) => title.or(text),
                },
                is_required: is_set("required"),
                is_secret: is_set("sensitive"),
                format: matches!(form.as_str(), "number" | "boolean").then_some(form),
                value: None,
                default: (!defaults.is_empty()).then(|| defaults.join(", ")),
                choices: Vec::new(),
            },
            defaults,
        });
    }
    settings
}

/// A default as a text.
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(it) => Some(it.to_string()),
        Value::Number(it) => Some(it.to_string()),
        _ => None,
    }
}
