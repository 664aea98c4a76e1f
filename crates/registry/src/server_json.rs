//! `server.json`, as its schema of 2025-12-11 has it, read from a text that a stranger has written.

use serde_json::{Map, Value};

use crate::input::{Input, Variable};
use crate::reading::{Reader, Unfit};

/// The schema that is read and written.
pub const SCHEMA: &str =
    "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";
/// Member of `_meta` with what the registry says of an entry.
const OFFICIAL: &str = "io.modelcontextprotocol.registry/official";
/// The longest text of an entry, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;
/// Most packages, and most remotes, of an entry.
const MAX_WAYS: usize = 32;
/// Most arguments, variables or headers of one way to run a server.
const MAX_INPUTS: usize = 128;
/// Version of the schema in which members are named as they are now; before, they were `registry_type` and the like.
const FIRST_SCHEMA: &str = "2025-09-16";
/// Version of [`SCHEMA`].
const LAST_SCHEMA: &str = "2025-12-11";

/// A server as its publisher describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerJson {
    /// Name with its namespace, such as `io.github.user/weather`.
    pub name: String,
    /// Description, of at most 100 characters.
    pub description: String,
    /// Version of the entry, which is no range.
    pub version: String,
    /// Title for people.
    pub title: Option<String>,
    /// Ways to run it here.
    pub packages: Vec<Package>,
    /// Addresses at which it is served.
    pub remotes: Vec<Remote>,
    /// Remarks on what was read, for the operator.
    pub remarks: Vec<String>,
    /// The entry as it was published.
    pub raw: Value,
}

/// A package that is run here.
#[derive(Debug, Clone, PartialEq)]
pub struct Package {
    /// Kind of its registry: `npm`, `pypi`, `oci`, `nuget`, `mcpb` or another.
    pub kind: String,
    /// Address of its registry, if it is not the public one of its kind.
    pub base_url: Option<String>,
    /// Name, image or address.
    pub identifier: String,
    /// Version, which is no range.
    pub version: Option<String>,
    /// SHA-256 of its file, 64 hexadecimal digits.
    pub sha256: Option<String>,
    /// Program that the publisher would have run it.
    pub runtime: Option<String>,
    /// Transport of the server that it is.
    pub transport: Transport,
    /// Arguments of that program.
    pub runtime_arguments: Vec<Argument>,
    /// Arguments of the server.
    pub arguments: Vec<Argument>,
    /// Variables of its environment, by name.
    pub environment: Vec<(String, Variable)>,
}

/// An argument of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// Flag with its dashes; `None` for an argument that is known by its place.
    pub flag: Option<String>,
    /// Name by which an operator gives the value.
    pub key: String,
    /// True if it may be there more than once.
    pub is_repeated: bool,
    /// Value.
    pub value: Variable,
    /// True if nothing is said of a value: a flag that is there or not.
    pub is_bare: bool,
}

/// Transport of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Standard input and output.
    Stdio,
    /// Streamable HTTP, which the package serves by itself.
    StreamableHttp,
    /// HTTP with SSE, likewise.
    Sse,
}

/// An address at which a server is served.
#[derive(Debug, Clone, PartialEq)]
pub struct Remote {
    /// True for the transport of 2024-11-05, HTTP with SSE.
    pub is_sse: bool,
    /// Address, with variables.
    pub url: Variable,
    /// Headers, by name.
    pub headers: Vec<(String, Variable)>,
}

impl ServerJson {
    /// Reads an entry: a `server.json`, or the answer of a registry that has one under `server`.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, each with its place.
    pub fn parse(text: &str) -> Result<Self, Vec<Unfit>> {
        let whole = |why: String| vec![Unfit::new("", why)];
        if text.len() > MAX_BYTES {
            return Err(whole(format!("it is longer than {MAX_BYTES} bytes")));
        }
        let value: Value =
            serde_json::from_str(text).map_err(|error| whole(format!("it is no JSON: {error}")))?;
        if let Some(why) = crate::reading::repeats(text) {
            return Err(whole(why));
        }
        let remark = remark_on_status(&value).map_err(whole)?;
        let mut server = match value {
            Value::Object(mut members) if members.get("server").is_some_and(Value::is_object) => {
                Self::of(members.remove("server").unwrap_or_default())
            }
            value => Self::of(value),
        }?;
        server.remarks.extend(remark);
        Ok(server)
    }

    /// The same of a value.
    ///
    /// # Errors
    ///
    /// As for [`ServerJson::parse`].
    pub fn of(raw: Value) -> Result<Self, Vec<Unfit>> {
        let mut reader = Reader::default();
        let found = read(&raw, &mut reader);
        match (found, reader.found.is_empty()) {
            (Some(server), true) => Ok(Self { raw, ..server }),
            _ => Err(reader.found),
        }
    }

    /// Reason why this is another server than the one called `name`, or another version of it; every version is right
    /// where none is given.
    #[must_use]
    pub fn differs_from(&self, name: &str, version: Option<&str>) -> Option<String> {
        let is_right = self.name == name && version.is_none_or(|it| self.version == it);
        (!is_right).then(|| {
            let asked = version.map_or_else(|| name.to_owned(), |it| format!("{name}@{it}"));
            format!(
                "it is `{}@{}`, and `{}` was asked for",
                crate::shown(&self.name),
                crate::shown(&self.version),
                crate::shown(&asked)
            )
        })
    }

    /// The last part of the name.
    #[must_use]
    pub fn short_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }
}

/// Remark on the status that a registry gives an entry; the error says that the entry is deleted.
fn remark_on_status(answer: &Value) -> Result<Option<String>, String> {
    // Some registries have it within the entry.
    let metas = [&answer["_meta"], &answer["server"]["_meta"]].map(|it| &it[OFFICIAL]);
    let plain = [&answer["server"]["status"], &answer["status"]];
    let found = metas.into_iter().find(|it| !it["status"].is_null());
    let status = found.map(|it| &it["status"]);
    let status = status.or_else(|| plain.into_iter().find(|it| !it.is_null()));
    let Some(status) = status else {
        return Ok(None);
    };
    let status = status
        .as_str()
        .map_or_else(|| status.to_string(), str::to_owned);
    let why = found.and_then(|it| it["statusMessage"].as_str());
    let why = why.map_or_else(String::new, |it| format!(": {}", crate::reading::shown(it)));
    match status.as_str() {
        "active" => Ok(None),
        "deleted" => Err(format!("its registry says that it is deleted{why}")),
        "deprecated" => Ok(Some(format!(
            "its registry says that it is deprecated{why}"
        ))),
        other => {
            let other = crate::reading::shown(other);
            Ok(Some(format!(
                "its registry gives it the status `{other}`, which is not known here{why}"
            )))
        }
    }
}

fn read(raw: &Value, reader: &mut Reader) -> Option<ServerJson> {
    let Some(members) = raw.as_object() else {
        reader.wrong("", "it is no object");
        return None;
    };
    let mut remarks = Vec::new();
    if !is_schema_known(members, reader, &mut remarks) {
        return None;
    }
    let name = reader.text(members, "", "name", 200);
    if let Some(name) = &name
        && !is_name(name)
    {
        let why = "must be a namespace, one `/` and a name, such as `io.github.user/weather`";
        reader.wrong("name", why);
    }
    let description = reader.text(members, "", "description", 100);
    let version = reader.text(members, "", "version", 255);
    if let Some(version) = &version
        && let Err(why) = is_specific(version)
    {
        reader.wrong("version", &why);
    }
    let title = reader.optional_text(members, "", "title", 100);
    let packages = reader.list(members, "", "packages", MAX_WAYS);
    let packages = packages
        .iter()
        .filter_map(|(place, value)| package(value, place, reader))
        .collect();
    let remotes = reader.list(members, "", "remotes", MAX_WAYS);
    let remotes = remotes
        .iter()
        .filter_map(|(place, value)| remote(value, place, reader))
        .collect();
    Some(ServerJson {
        name: name?,
        description: description?,
        version: version?,
        title,
        packages,
        remotes,
        remarks,
        raw: Value::Null,
    })
}

/// Refuses schemas of before, whose members have other names.
fn is_schema_known(
    members: &Map<String, Value>,
    reader: &mut Reader,
    remarks: &mut Vec<String>,
) -> bool {
    let old = "its members have the names of before 2025-09-16 (`registry_type` and the like), which are not read; ask its \
               publisher for a newer one";
    let packages = members.get("packages").and_then(Value::as_array);
    let mut packages = packages.into_iter().flatten();
    if packages.any(|it| it.get("registry_type").is_some() || it.get("registry_name").is_some()) {
        reader.wrong("packages", old);
        return false;
    }
    let Some(schema) = members.get("$schema") else {
        return true;
    };
    let version = schema
        .as_str()
        .and_then(|it| it.strip_suffix("/server.schema.json"))
        .and_then(|it| it.rsplit('/').next());
    match version {
        Some("draft") => remarks.push(format!(
            "its schema is a draft; it is read by {LAST_SCHEMA}"
        )),
        Some(version) if !version.starts_with(|it: char| it.is_ascii_digit()) => {
            reader.wrong("$schema", "is no schema of server.json");
            return false;
        }
        Some(version) if version < FIRST_SCHEMA => {
            reader.wrong("$schema", old);
            return false;
        }
        Some(version) if version > LAST_SCHEMA => remarks.push(format!(
            "its schema {} is newer than {LAST_SCHEMA}, by which it is read",
            crate::reading::shown(version)
        )),
        Some(_) => {}
        None => {
            reader.wrong("$schema", "is no schema of server.json");
            return false;
        }
    }
    true
}

/// True for a namespace, one `/` and a name.
pub(crate) fn is_name(name: &str) -> bool {
    let Some((namespace, short)) = name.split_once('/') else {
        return false;
    };
    let legal = |text: &str, more: &str| {
        let mut letters = text.chars();
        !text.is_empty() && letters.all(|it| it.is_ascii_alphanumeric() || more.contains(it))
    };
    (3..=200).contains(&name.len())
        && legal(namespace, ".-")
        && legal(short, "._-")
        && !matches!(short, "." | "..")
        && !matches!(namespace, "." | "..")
}

/// Refuses ranges and names of moving versions.
pub(crate) fn is_specific(version: &str) -> Result<(), String> {
    let bare = version.strip_prefix('v').unwrap_or(version);
    let is_plain = |it: char| it.is_ascii_alphanumeric() || ".+-_!".contains(it);
    let is_wild = bare
        .split(['.', '-'])
        .any(|part| matches!(part, "x" | "X" | "*"));
    if !bare.starts_with(|it: char| it.is_ascii_digit())
        || !version.chars().all(is_plain)
        || is_wild
    {
        let version = crate::reading::shown(version);
        return Err(format!(
            "`{version}` is no single version: ranges and `latest` name another one each day"
        ));
    }
    Ok(())
}

fn package(value: &Value, place: &str, reader: &mut Reader) -> Option<Package> {
    let members = reader.object(value, place)?;
    let kind = reader.text(members, place, "registryType", 64);
    let identifier = reader.text(members, place, "identifier", 2_048);
    let version = reader.optional_text(members, place, "version", 255);
    let sha256 = reader.optional_text(members, place, "fileSha256", 64);
    if let Some(digits) = &sha256
        && !is_sha256(digits)
    {
        let place = format!("{place}.fileSha256");
        reader.wrong(&place, "must be 64 hexadecimal digits in lower case");
    }
    let transport = match members.get("transport") {
        Some(transport) => {
            let place = format!("{place}.transport");
            transport_of(transport, &place, reader)
        }
        None => {
            reader.wrong(place, "lacks `transport`");
            None
        }
    };
    let arguments = |name: &str, reader: &mut Reader| -> Vec<Argument> {
        let found = reader.list(members, place, name, MAX_INPUTS);
        let found = found.iter().enumerate();
        found
            .filter_map(|(at, (place, value))| argument(value, place, at, reader))
            .collect()
    };
    let runtime_arguments = arguments("runtimeArguments", reader);
    let package_arguments = arguments("packageArguments", reader);
    let environment = pairs(members, place, "environmentVariables", reader);
    for (name, _) in &environment {
        if !is_variable(name) {
            let place = format!("{place}.environmentVariables");
            let name = crate::reading::shown(name);
            reader.wrong(&place, &format!("`{name}` is no name of a variable"));
        }
    }
    Some(Package {
        kind: kind?,
        base_url: reader.optional_text(members, place, "registryBaseUrl", 2_048),
        identifier: identifier?,
        version,
        sha256,
        runtime: reader.optional_text(members, place, "runtimeHint", 64),
        transport: transport?,
        runtime_arguments,
        arguments: package_arguments,
        environment,
    })
}

/// True for a name that a variable of an environment can have.
pub(crate) fn is_variable(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|it| it.is_ascii_alphabetic() || it == '_')
        && letters.all(|it| it.is_ascii_alphanumeric() || it == '_')
}

/// True for a SHA-256 as it is written in an entry.
pub(crate) fn is_sha256(digits: &str) -> bool {
    let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
    digits.len() == 64 && digits.bytes().all(is_digit)
}

fn transport_of(value: &Value, place: &str, reader: &mut Reader) -> Option<Transport> {
    let members = reader.object(value, place)?;
    match reader.text(members, place, "type", 64)?.as_str() {
        "stdio" => Some(Transport::Stdio),
        "streamable-http" => Some(Transport::StreamableHttp),
        "sse" => Some(Transport::Sse),
        other => {
            let other = crate::reading::shown(other);
            let why = format!("`{other}` is none of `stdio`, `streamable-http` and `sse`");
            reader.wrong(&format!("{place}.type"), &why);
            None
        }
    }
}

fn argument(value: &Value, place: &str, at: usize, reader: &mut Reader) -> Option<Argument> {
    let members = reader.object(value, place)?;
    let variable = variable(members, place, reader);
    let is_repeated = members.get("isRepeated") == Some(&Value::Bool(true));
    let hint = reader.optional_text(members, place, "valueHint", 200);
    match reader.text(members, place, "type", 64)?.as_str() {
        "named" => {
            let flag = reader.text(members, place, "name", 200)?;
            let is_flag = |it: char| it.is_ascii_alphanumeric() || "-_.=:+/".contains(it);
            if !flag.chars().all(is_flag) {
                let place = format!("{place}.name");
                reader.wrong(&place, "must be the flag alone, with its dashes");
            }
            let says = [
                "default",
                "choices",
                "placeholder",
                "format",
                "isRequired",
                "isSecret",
                "value",
            ];
            let is_bare = hint.is_none() && !says.iter().any(|it| members.contains_key(*it));
            Some(Argument {
                key: flag.trim_end_matches('=').to_owned(),
                flag: Some(flag),
                is_repeated,
                value: variable,
                is_bare,
            })
        }
        "positional" => {
            if hint.is_none() && variable.input.value.is_none() {
                reader.wrong(place, "lacks `value` or `valueHint`");
            }
            Some(Argument {
                flag: None,
                key: hint.unwrap_or_else(|| format!("argument {}", at + 1)),
                is_repeated,
                value: variable,
                is_bare: false,
            })
        }
        other => {
            let other = crate::reading::shown(other);
            let why = format!("`{other}` is neither `positional` nor `named`");
            reader.wrong(&format!("{place}.type"), &why);
            None
        }
    }
}

fn remote(value: &Value, place: &str, reader: &mut Reader) -> Option<Remote> {
    let members = reader.object(value, place)?;
    let is_sse = match reader.text(members, place, "type", 64)?.as_str() {
        "streamable-http" => false,
        "sse" => true,
        other => {
            let other = crate::reading::shown(other);
            let why = format!("`{other}` is neither `streamable-http` nor `sse`");
            reader.wrong(&format!("{place}.type"), &why);
            return None;
        }
    };
    let url = reader.text(members, place, "url", 2_048)?;
    let is_address =
        url.starts_with("https://") || url.starts_with("http://") || url.starts_with('{');
    if !is_address || url.contains(char::is_whitespace) {
        let place = format!("{place}.url");
        reader.wrong(
            &place,
            "must begin with `https://`, `http://` or a variable in braces",
        );
    }
    let headers = pairs(members, place, "headers", reader);
    for (name, _) in &headers {
        if let Err(why) = is_header(name) {
            reader.wrong(&format!("{place}.headers"), &why);
        }
    }
    Some(Remote {
        is_sse,
        url: Variable {
            input: Input {
                value: Some(url),
                ..Input::default()
            },
            variables: variables(members, place, reader),
        },
        headers,
    })
}

/// Refuses headers that belong to the connection or to the protocol.
fn is_header(name: &str) -> Result<(), String> {
    let shown = crate::reading::shown(name);
    let is_token = |it: char| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err(format!("`{shown}` is no name of a header"));
    }
    const OURS: [&str; 12] = [
        "accept",
        "connection",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    match OURS.contains(&name.to_ascii_lowercase().as_str()) {
        true => Err(format!("`{shown}` is for the client to set")),
        false => Ok(()),
    }
}

fn pairs(
    members: &Map<String, Value>,
    place: &str,
    name: &str,
    reader: &mut Reader,
) -> Vec<(String, Variable)> {
    let found = reader.list(members, place, name, MAX_INPUTS);
    let mut pairs: Vec<(String, Variable)> = Vec::new();
    for (place, value) in &found {
        let Some(members) = reader.object(value, place) else {
            continue;
        };
        let Some(name) = reader.text(members, place, "name", 200) else {
            continue;
        };
        if pairs.iter().any(|(it, _)| it.eq_ignore_ascii_case(&name)) {
            let name = crate::reading::shown(&name);
            reader.wrong(place, &format!("`{name}` is there twice"));
            continue;
        }
        let variable = variable(members, place, reader);
        pairs.push((name, variable));
    }
    pairs
}

fn variable(members: &Map<String, Value>, place: &str, reader: &mut Reader) -> Variable {
    Variable {
        input: input(members, place, reader),
        variables: variables(members, place, reader),
    }
}

fn variables(
    members: &Map<String, Value>,
    place: &str,
    reader: &mut Reader,
) -> Vec<(String, Input)> {
    let Some(value) = members.get("variables") else {
        return Vec::new();
    };
    let place = format!("{place}.variables");
    let Some(found) = reader.object(value, &place) else {
        return Vec::new();
    };
    if found.len() > MAX_INPUTS {
        reader.wrong(&place, &format!("has more than {MAX_INPUTS}"));
        return Vec::new();
    }
    let mut variables = Vec::new();
    for (name, value) in found {
        let place = format!("{place}.{}", crate::reading::shown(name));
        if let Some(members) = reader.object(value, &place) {
            variables.push((name.clone(), input(members, &place, reader)));
        }
    }
    variables
}

fn input(members: &Map<String, Value>, place: &str, reader: &mut Reader) -> Input {
    let is_set = |name: &str| members.get(name) == Some(&Value::Bool(true));
    let choices = reader.list(members, place, "choices", 256);
    let choices = choices.iter().filter_map(|(_, it)| it.as_str());
    Input {
        description: reader.optional_text(members, place, "description", 4_096),
        is_required: is_set("isRequired"),
        is_secret: is_set("isSecret"),
        format: reader.optional_text(members, place, "format", 32),
        value: reader.optional_text(members, place, "value", 8_192),
        default: reader.optional_text(members, place, "default", 8_192),
        choices: choices.map(str::to_owned).collect(),
    }
}
