//! Programs that fetch and run packages: their command lines, and which arguments of strangers they are not given.

use crate::input::{Piece, Words};
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
    /// All that a stranger may tell the programs, by the words as they are written. Anything else is refused: what decides
    /// which code is run has many names (abbreviations, letters that stand together, positions), and gets new ones.
    flags: &'static [Flag],
}

/// A flag that a stranger may set.
#[derive(Debug)]
struct Flag {
    names: &'static [&'static str],
    value: Takes,
    /// True if it gives the program something of the machine, which an operator should see.
    is_warned: bool,
}

/// Value of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    /// Any text.
    Text,
    /// Numbers with points between them, such as a version or a size.
    Number,
    /// `SOURCE:TARGET`, as `--volume` takes it.
    Volume,
    /// `type=…,src=…,dst=…`, as `--mount` takes it.
    Mount,
    /// A network by its name.
    Network,
}

const fn flag(names: &'static [&'static str], value: Takes) -> Flag {
    Flag {
        names,
        value,
        is_warned: false,
    }
}

const fn warned(names: &'static [&'static str], value: Takes) -> Flag {
    Flag {
        names,
        value,
        is_warned: true,
    }
}

const NPM: Kind = Kind {
    name: "npm",
    programs: &["npx", "bunx"],
    hosts: &[
        concat!("registry.npmjs", ".org"),
        concat!("registry.npmjs", ".com"),
    ],
    registry_flag: Some("--registry"),
    flags: &[
        flag(&["-y", "--yes"], Takes::Nothing),
        flag(&["-q", "--quiet", "--silent"], Takes::Nothing),
        flag(&["--prefer-offline", "--prefer-online"], Takes::Nothing),
    ],
};
const PYPI: Kind = Kind {
    name: "pypi",
    programs: &["uvx"],
    hosts: &[
        concat!("pypi", ".org"),
        concat!("files.python", "hosted.org"),
    ],
    registry_flag: Some("--default-index"),
    flags: &[
        flag(&["-q", "--quiet", "-v", "--verbose"], Takes::Nothing),
        flag(&["-n", "--no-cache", "--refresh"], Takes::Nothing),
        flag(
            &["--no-config", "--no-progress", "--isolated"],
            Takes::Nothing,
        ),
        flag(&["-p", "--python"], Takes::Number),
    ],
};
const OCI: Kind = Kind {
    name: "oci",
    programs: &["docker", "podman"],
    hosts: &["docker.io", "registry-1.docker.io", "index.docker.io"],
    registry_flag: None,
    flags: &[
        flag(&["-i", "--interactive", "--rm", "--init"], Takes::Nothing),
        flag(&["--read-only"], Takes::Nothing),
        flag(&["-e", "--env"], Takes::Text),
        flag(&["--name", "-w", "--workdir"], Takes::Text),
        flag(&["--cap-drop", "--platform"], Takes::Text),
        flag(&["-m", "--memory", "--cpus", "--pids-limit"], Takes::Number),
        warned(&["-v", "--volume"], Takes::Volume),
        warned(&["--mount"], Takes::Mount),
        warned(&["--network", "--net"], Takes::Network),
        warned(&["-p", "--publish", "--add-host"], Takes::Text),
        warned(&["-P", "--publish-all"], Takes::Nothing),
    ],
};
const NUGET: Kind = Kind {
    name: "nuget",
    programs: &["dnx"],
    hosts: &["api.nuget.org", "www.nuget.org", "nuget.org"],
    registry_flag: Some("--source"),
    flags: &[
        flag(&["-y", "--yes"], Takes::Nothing),
        warned(&["--allow-roll-forward", "--prerelease"], Takes::Nothing),
    ],
};

/// Words that each container is run with.
const OURS: [&str; 3] = ["run", "-i", "--rm"];
const SOCKET: &str = "the socket of docker is the whole machine";

impl Kind {
    /// The flags that a stranger may set, for people.
    fn known(&self) -> String {
        let names = self.flags.iter().flat_map(|it| it.names);
        let names: Vec<_> = names.copied().collect();
        names.join(", ")
    }
}

/// A value without the characters that its flag has in the same word.
fn without(words: &Words, characters: usize) -> Words {
    let mut rest = characters;
    let mut pieces = words.0.clone();
    for piece in &mut pieces {
        if let Piece::Theirs(text) | Piece::Yours(text) = piece {
            let taken = rest.min(text.len());
            *text = text.split_off(taken);
            rest -= taken;
        }
    }
    Words(pieces)
}

impl Takes {
    /// Reason why a flag cannot have a value. What the operator has given is the operator's choice.
    fn misfit(self, value: &Words) -> Option<String> {
        // In the place of what is not the publisher's.
        const GIVEN: char = '\u{1}';
        let pieces = value.0.iter().map(|piece| match piece {
            Piece::Theirs(text) => text.clone(),
            Piece::Yours(_) | Piece::Secret { .. } => GIVEN.to_string(),
        });
        let text: String = pieces.collect();
        let is_given = text.starts_with(GIVEN);
        let name = |text: &str| {
            let legal = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
            text.starts_with(|it: char| it.is_ascii_alphanumeric()) && text.chars().all(legal)
        };
        let source = |source: &str| match source.starts_with(GIVEN) {
            true if !source.contains("..") => None,
            false if name(source) => None,
            _ => Some(format!(
                "leads to `{}` of this machine, which the publisher has chosen: a path is the operator's to give",
                shown(&source.replace(GIVEN, "…"))
            )),
        };
        match self {
            Self::Nothing | Self::Text => None,
            Self::Number if is_given && text.chars().count() == 1 => None,
            Self::Number => {
                let legal = |it: char| it.is_ascii_digit() || ".kmgKMG".contains(it);
                let is_number = text.starts_with(|it: char| it.is_ascii_digit());
                (!is_number || !text.chars().all(legal))
                    .then(|| "must be a number or a version".to_owned())
            }
            Self::Volume => match text.split_once(':') {
                Some((from, _)) => source(from),
                // All of it is given, or a directory of the container alone.
                None if is_given || text.starts_with('/') => None,
                None => source(&text),
            },
            Self::Mount => text.split(',').find_map(|field| {
                match field.split_once('=').unwrap_or((field, "")) {
                    ("src" | "source", from) => source(from),
                    ("type", "bind" | "volume" | "tmpfs")
                    | ("dst" | "destination" | "target" | "readonly" | "ro", _) => None,
                    _ => Some(format!(
                        "has `{}`, which is not known",
                        shown(&field.replace(GIVEN, "…"))
                    )),
                }
            }),
            Self::Network if is_given && text.chars().count() == 1 => None,
            Self::Network => (!name(&text)).then(|| "is no name of a network".to_owned()),
        }
    }
}

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
    /// Looks at arguments for the runtime that a stranger wants, and returns those that are not there anyway.
    pub(crate) fn judge(
        &self,
        words: Vec<Words>,
        refused: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) -> Vec<Words> {
        let is_container = self.kind.name == "oci";
        let mut kept = Vec::new();
        let mut words = words.into_iter().enumerate();
        while let Some((at, word)) = words.next() {
            let text = word.plain();
            if text.contains("docker.sock") {
                refused.push(SOCKET.to_owned());
            }
            if is_container && (at == 0 && text == "run" || OURS[1..].contains(&text.as_str())) {
                continue;
            }
            let (name, attached) = match text.split_once('=') {
                Some((name, _)) => (name.to_owned(), Some(without(&word, name.len() + 1))),
                None => (text.clone(), None),
            };
            let mut flags = self.kind.flags.iter();
            let Some(flag) = flags.find(|it| it.names.contains(&name.as_str())) else {
                let it = match name.starts_with('-') {
                    true => "argument",
                    false => "word",
                };
                refused.push(format!(
                    "the {it} `{}` for {} is none of those that are known not to decide which code is run, where it comes \
                     from, or what of the machine it reaches ({}): set it yourself with `upstream add`, if it is meant",
                    shown(&text),
                    self.program,
                    self.kind.known()
                ));
                kept.push(word);
                continue;
            };
            kept.push(word);
            let value = match (flag.value, attached) {
                (Takes::Nothing, None) => None,
                (Takes::Nothing, Some(_)) => {
                    refused.push(format!("`{}` takes no value", shown(&name)));
                    None
                }
                (_, Some(value)) => Some(value),
                (_, None) => match words.next() {
                    Some((_, value)) => {
                        if value.plain().contains("docker.sock") {
                            refused.push(SOCKET.to_owned());
                        }
                        kept.push(value.clone());
                        Some(value)
                    }
                    None => {
                        refused.push(format!(
                            "`{}` would take the package for its value: it has none",
                            shown(&name)
                        ));
                        None
                    }
                },
            };
            let value = value.as_ref();
            if let Some(why) = value.and_then(|it| flag.value.misfit(it)) {
                refused.push(format!("the value of `{}` {why}", shown(&name)));
            }
            if flag.is_warned {
                let text = match value {
                    Some(value) if !text.contains('=') => format!("{text} {}", value.plain()),
                    _ => text,
                };
                warnings.push(format!(
                    "`{}` gives it something of this machine: {} is told so by the publisher",
                    shown(&text),
                    self.program
                ));
            }
        }
        kept
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
                all.extend(OURS.map(Words::theirs));
                for name in variables {
                    all.push(Words::theirs("-e"));
                    all.push(Words::theirs(*name));
                }
                all.extend(of_runtime);
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
