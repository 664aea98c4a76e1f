//! An entry for a server that is configured here, so that others can run it: without any value that is a secret.

use serde_json::{Map, Value, json};

use crate::server_json::{SCHEMA, ServerJson, is_name};

/// A server as a configuration has it, with references in the places of secrets.
#[derive(Debug, Clone, Copy)]
pub struct Described<'a> {
    /// Name with a namespace.
    pub name: &'a str,
    /// Version of the entry.
    pub version: &'a str,
    /// Description.
    pub description: &'a str,
    /// Program and its arguments, if it is one.
    pub command: Option<(&'a str, &'a [String])>,
    /// Variables of its environment.
    pub environment: &'a [(String, String)],
    /// Address, if it is one, and true for HTTP with SSE.
    pub url: Option<(&'a str, bool)>,
    /// Headers of its requests.
    pub headers: &'a [(String, String)],
}

/// The entry of a configured server.
///
/// # Errors
///
/// The reason why there can be none.
pub fn described(it: &Described<'_>) -> Result<Value, String> {
    if !is_name(it.name) {
        return Err(format!(
            "`{}` is no name of an entry: a namespace, one `/` and a name, such as `com.example/weather`",
            crate::shown(it.name)
        ));
    }
    let mut entry = json!({
        "$schema": SCHEMA,
        "name": it.name,
        "description": it.description,
        "version": it.version,
    });
    match (it.command, it.url) {
        (Some((program, arguments)), _) => {
            entry["packages"] = json!([package(it, program, arguments)?]);
        }
        (None, Some((url, is_sse))) => entry["remotes"] = json!([remote(it, url, is_sse)?]),
        (None, None) => return Err("it has neither a program nor an address".to_owned()),
    }
    match ServerJson::of(entry.clone()) {
        Ok(_) => Ok(entry),
        Err(found) => {
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            Err(found.join("; "))
        }
    }
}

fn remote(it: &Described<'_>, url: &str, is_sse: bool) -> Result<Value, String> {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("entries know addresses of HTTP alone".to_owned());
    }
    if url.contains("${") || url.contains('?') {
        return Err("its address has a reference or a query, which may be a secret".to_owned());
    }
    if let Some(part) = redaction::secret_parts("", url).first() {
        let what = match part.name.as_str() {
            "path" => "a part of the path",
            name => name,
        };
        return Err(format!(
            "its address has what looks like a secret ({what}): who runs the entry is to have their own address"
        ));
    }
    let headers = it.headers.iter();
    let headers: Vec<Value> = headers.map(|(name, value)| pair(name, value)).collect();
    let mut remote = json!({ "type": if is_sse { "sse" } else { "streamable-http" }, "url": url });
    if !headers.is_empty() {
        remote["headers"] = headers.into();
    }
    Ok(remote)
}

fn pair(name: &str, value: &str) -> Value {
    let mut pair = Map::new();
    pair.insert("name".to_owned(), name.into());
    if value.contains("${") || !redaction::secret_parts(name, value).is_empty() {
        pair.insert("isRequired".to_owned(), true.into());
        pair.insert("isSecret".to_owned(), true.into());
    } else {
        pair.insert("default".to_owned(), value.replace("$${", "${").into());
    }
    Value::Object(pair)
}

fn package(it: &Described<'_>, program: &str, arguments: &[String]) -> Result<Value, String> {
    let runtime = program.rsplit('/').next().unwrap_or(program);
    let (kind, skipped): (_, &[&str]) = match runtime {
        "npx" | "bunx" => ("npm", &["-y", "--yes"]),
        "uvx" => ("pypi", &[]),
        "docker" | "podman" => ("oci", &["run", "-i", "--rm", "--interactive"]),
        "dnx" => ("nuget", &["--yes", "-y"]),
        _ => {
            return Err(format!(
                "`{}` is a program of this machine and not a package, so other machines could not run it",
                crate::shown(program)
            ));
        }
    };
    let mut rest = arguments.iter().map(String::as_str).peekable();
    let mut identifier = None;
    while let Some(word) = rest.next() {
        match word {
            word if skipped.contains(&word) => {}
            // Variables are listed by themselves.
            "-e" if kind == "oci" => drop(rest.next()),
            word if word.starts_with('-') => {
                return Err(format!(
                    "`{}` is an argument of {runtime} that an entry cannot be made with",
                    crate::shown(word)
                ));
            }
            word => {
                identifier = Some(word);
                break;
            }
        }
    }
    let identifier = identifier.ok_or_else(|| format!("{runtime} is given no package"))?;
    let mut package = Map::new();
    let mut put = |name: &str, value: Value| package.insert(name.to_owned(), value);
    put("registryType", kind.into());
    match identifier
        .rsplit_once('@')
        .filter(|(name, _)| !name.is_empty())
    {
        _ if kind == "oci" => drop(put("identifier", identifier.into())),
        Some((name, version)) => {
            put("identifier", name.into());
            put("version", version.into());
        }
        None => {
            return Err(format!(
                "`{}` has no version: write it behind `@`",
                crate::shown(identifier)
            ));
        }
    }
    put("runtimeHint", runtime.into());
    put("transport", json!({ "type": "stdio" }));
    let rest: Vec<String> = rest
        .filter(|it| !(kind == "nuget" && *it == "--"))
        .map(str::to_owned)
        .collect();
    let secrets = redaction::secret_parts_of_arguments(&rest);
    let rest = rest.iter().zip(secrets).enumerate();
    let rest: Vec<Value> = rest
        .map(
            |(at, (word, secrets))| match word.contains("${") || !secrets.is_empty() {
                true => json!({
                    "type": "positional",
                    "valueHint": format!("argument_{}", at + 1),
                    "isRequired": true,
                    "isSecret": true,
                }),
                false => json!({ "type": "positional", "value": word }),
            },
        )
        .collect();
    if !rest.is_empty() {
        put("packageArguments", rest.into());
    }
    let variables = it.environment.iter();
    let variables: Vec<Value> = variables.map(|(name, value)| pair(name, value)).collect();
    if !variables.is_empty() {
        put("environmentVariables", variables.into());
    }
    Ok(Value::Object(package))
}
