//! Programs that fetch and run packages: their command lines, and which arguments of strangers they are not given.

use crate::input::Words;
use crate::reading::shown;
use crate::server_json::{Package, is_sha256, is_specific};

/// A program that fetches a package and runs it.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) program: &'static str,
    kind: &'static Kind,
}

/// A kind of package.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    /// Programs that can run it, the usual one first.
    programs: &'static [&'static str],
    /// Hosts of the public registry, in parts.
    hosts: &'static [&'static str],
    /// Flag by which the program is told of another registry.
    registry_flag: Option<&'static str>,
    /// Flags that decide which code is run, where it comes from, or what of the machine it has.
    refused: &'static [&'static str],
    /// Flags that an operator should see.
    warned: &'static [&'static str],
}

const NPM: Kind = Kind {
    name: "npm",
    programs: &["npx", "bunx"],
    hosts: &[
        concat!("registry.npmjs", ".org"),
        concat!("registry.npmjs", ".com"),
    ],
    registry_flag: Some("--registry"),
    refused: &[
        "-c",
        "--call",
        "-p",
        "--package",
        "--registry",
        "--userconfig",
        "--globalconfig",
        "--shell",
        "--script-shell",
        "--prefix",
        "--node-options",
        "--workspace",
        "-w",
        "--ignore-existing",
    ],
    warned: &[],
};
const PYPI: Kind = Kind {
    name: "pypi",
    programs: &["uvx"],
    hosts: &[
        concat!("pypi", ".org"),
        concat!("files.python", "hosted.org"),
    ],
    registry_flag: Some("--default-index"),
    refused: &[
        "--from",
        "--with",
        "--with-editable",
        "--with-requirements",
        "--index",
        "--index-url",
        "-i",
        "--default-index",
        "--extra-index-url",
        "--find-links",
        "-f",
        "--config-file",
        "--directory",
        "--project",
        "--env-file",
        "--overrides",
        "--constraints",
        "-c",
        "--build-constraints",
        "-b",
    ],
    warned: &[],
};
const OCI: Kind = Kind {
    name: "oci",
    programs: &["docker", "podman"],
    hosts: &["docker.io", "registry-1.docker.io", "index.docker.io"],
    registry_flag: None,
    refused: &[
        "--privileged",
        "--cap-add",
        "--device",
        "--device-cgroup-rule",
        "--security-opt",
        "--pid",
        "--ipc",
        "--userns",
        "--uts",
        "--cgroupns",
        "--entrypoint",
        "--env-file",
        "--env-host",
        "--volumes-from",
        "--runtime",
        "--cgroup-parent",
        "--group-add",
        "--gpus",
        "-H",
        "--host",
        "--config",
        "--context",
    ],
    warned: &[
        "-v",
        "--volume",
        "--mount",
        "--network",
        "--net",
        "-p",
        "--publish",
        "-P",
        "--add-host",
    ],
};
const NUGET: Kind = Kind {
    name: "nuget",
    programs: &["dnx"],
    hosts: &["api.nuget.org", "www.nuget.org", "nuget.org"],
    registry_flag: Some("--source"),
    refused: &[
        "--source",
        "--add-source",
        "--configfile",
        "--tool-manifest",
    ],
    warned: &["--allow-roll-forward", "--prerelease"],
};

/// The runtime of a package.
pub(crate) fn of(package: &Package) -> Result<Runtime, String> {
    let kinds = [&NPM, &PYPI, &OCI, &NUGET];
    let Some(kind) = kinds.into_iter().find(|it| it.name == package.kind) else {
        return Err(format!(
            "packages of the kind `{}` cannot be run here; those of npm, pypi, oci, nuget and mcpb can",
            shown(&package.kind)
        ));
    };
    let hint = package.runtime.as_deref();
    let known = kind.programs.iter().find(|it| Some(**it) == hint);
    let program = match (known, hint) {
        (Some(program), _) => program,
        (None, Some(hint)) if !package.runtime_arguments.is_empty() => {
            return Err(format!(
                "its runtime `{}` is none by which a package of {} is run here ({}), and it has arguments for it",
                shown(hint),
                kind.name,
                kind.programs.join(", ")
            ));
        }
        _ => kind.programs[0],
    };
    if !is_identifier(kind.name, &package.identifier) {
        return Err(format!(
            "`{}` is no name of a package of {}: paths, addresses and options are none",
            shown(&package.identifier),
            kind.name
        ));
    }
    Ok(Runtime { program, kind })
}

/// True for a name that its program takes for a package of its registry and for nothing else.
fn is_identifier(kind: &str, name: &str) -> bool {
    let begins = name.starts_with(|it: char| it.is_ascii_alphanumeric());
    let all = |text: &str, more: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || more.contains(it))
    };
    match kind {
        "npm" => match name.strip_prefix('@').map(|it| it.split_once('/')) {
            Some(Some((scope, name))) => {
                all(scope, "._~-") && all(name, "._~-") && !name.starts_with(['.', '-'])
            }
            Some(None) => false,
            None => begins && all(name, "._~-"),
        },
        "pypi" => {
            let (name, extras) = match name.split_once('[') {
                Some((name, extras)) => (name, extras.strip_suffix(']')),
                None => (name, Some("none")),
            };
            begins && all(name, "._-") && extras.is_some_and(|it| all(it, "._-,"))
        }
        "oci" => begins && all(name, "._-/:@") && !name.contains("//") && !name.contains(".."),
        _ => begins && all(name, "._-"),
    }
}

impl Runtime {
    /// Looks at arguments for the runtime that a stranger wants.
    pub(crate) fn judge(
        &self,
        words: &[Words],
        refused: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) {
        for words in words {
            let text = words.plain();
            let flag = text.split('=').next().unwrap_or_default();
            // A short flag may have its value behind it, as in `-v/:/host`.
            let is = |known: &&&str| {
                flag == **known
                    || (known.len() == 2 && !flag.starts_with("--") && flag.starts_with(**known))
            };
            if self.kind.refused.iter().find(is).is_some() {
                refused.push(format!(
                    "the argument `{}` for {} decides which code is run, where it comes from, or what of the machine it \
                     reaches: set it yourself with `upstream add`, if it is meant",
                    shown(&text),
                    self.program
                ));
            } else if self.kind.warned.iter().find(is).is_some() {
                warnings.push(format!(
                    "`{}` gives it something of this machine: {} is told so by the publisher",
                    shown(&text),
                    self.program
                ));
            }
            if text.contains("docker.sock") {
                refused.push("the socket of docker is the whole machine".to_owned());
            }
        }
    }

    /// Remarks on where the package comes from, and how it is pinned.
    pub(crate) fn warnings(&self, package: &Package) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(url) = self.other_registry(package) {
            warnings.push(format!(
                "the package comes from {}, which is not the public registry of {}",
                shown(url),
                self.kind.name
            ));
        }
        if self.kind.name == "oci" && !package.identifier.contains("@sha256:") {
            warnings.push(
                "the image is named by a tag, which its publisher can move to another one; a digest (`@sha256:…`) cannot be"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Address of a registry that is not the public one.
    fn other_registry<'a>(&self, package: &'a Package) -> Option<&'a str> {
        let url = package.base_url.as_deref()?;
        let host = url.strip_prefix("https://").unwrap_or(url);
        let host = host.split(['/', '?', '#']).next().unwrap_or_default();
        (!self.kind.hosts.contains(&host)).then_some(url)
    }

    /// The arguments of the program.
    pub(crate) fn arguments(
        &self,
        package: &Package,
        of_runtime: Vec<Words>,
        of_server: Vec<Words>,
        variables: &[&str],
    ) -> Result<Vec<Words>, String> {
        let mut all: Vec<Words> = Vec::new();
        let own = |all: &mut Vec<Words>, word: &str| {
            let is_there = of_runtime.iter().any(|it| it.plain() == word);
            if !is_there {
                all.push(Words::theirs(word));
            }
        };
        let other = self.other_registry(package);
        if let Some(url) = other
            && (!url.starts_with("https://") || url.contains(['@', ' ', '"', '\\']))
        {
            return Err(format!(
                "its registry `{}` is no `https://` address",
                shown(url)
            ));
        }
        match self.kind.name {
            "oci" => {
                let host =
                    other.map(|url| url.trim_start_matches("https://").trim_end_matches('/'));
                if let Some(host) = host
                    && !package.identifier.starts_with(&format!("{host}/"))
                {
                    return Err(format!(
                        "its registry `{}` stands beside the image: it must be the beginning of the image's name",
                        shown(host)
                    ));
                }
                const OURS: [&str; 3] = ["run", "-i", "--rm"];
                all.extend(OURS.map(Words::theirs));
                for name in variables {
                    all.push(Words::theirs("-e"));
                    all.push(Words::theirs(*name));
                }
                let more = of_runtime.into_iter();
                all.extend(more.filter(|it| !OURS.contains(&it.plain().as_str())));
                all.push(Words::theirs(image(package)?));
                all.extend(of_server);
                return Ok(all);
            }
            "nuget" => {
                all.push(Words::theirs(versioned(package)?));
                own(&mut all, "--yes");
            }
            "npm" if self.program == "npx" => own(&mut all, "-y"),
            _ => {}
        }
        if let (Some(flag), Some(url)) = (self.kind.registry_flag, other) {
            all.push(Words::theirs(format!("{flag}={url}")));
        }
        all.extend(of_runtime);
        match self.kind.name {
            "nuget" if of_server.is_empty() => {}
            "nuget" => all.push(Words::theirs("--")),
            _ => all.push(Words::theirs(versioned(package)?)),
        }
        all.extend(of_server);
        Ok(all)
    }
}

/// `NAME@VERSION`.
fn versioned(package: &Package) -> Result<String, String> {
    let Some(version) = &package.version else {
        return Err("it has no version: another package would be run each day".to_owned());
    };
    is_specific(version)?;
    let main = version.split(['-', '+']).next().unwrap_or_default();
    if package.kind == "npm" && main.split('.').count() != 3 {
        return Err(format!(
            "`{}` is a range for npm: a single version has three numbers",
            shown(version)
        ));
    }
    Ok(format!("{}@{version}", package.identifier))
}

/// An image with its tag or digest.
fn image(package: &Package) -> Result<String, String> {
    let name = &package.identifier;
    if let Some((_, digest)) = name.split_once("@sha256:") {
        return match is_sha256(digest) {
            true => Ok(name.clone()),
            false => Err("its digest is none".to_owned()),
        };
    }
    if name.contains('@') {
        return Err(format!("`{}` is no image", shown(name)));
    }
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), &package.version) {
        (Some((_, "" | "latest")), _) => Err("`latest` names another image each day".to_owned()),
        (Some(_), _) => Ok(name.clone()),
        (None, Some(version)) => {
            is_specific(version)?;
            Ok(format!("{name}:{version}"))
        }
        (None, None) => Err("it has neither a tag nor a digest".to_owned()),
    }
}
