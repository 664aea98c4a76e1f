//! The catalogue: a directory with a file for each version of each server that an operator has taken in.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::reading::Unfit;
use crate::server_json::{MAX_BYTES, ServerJson};

/// Most entries of a catalogue.
pub const MAX_ENTRIES: usize = 10_000;
/// Ending of the names of its files.
const ENDING: &str = ".server.json";

/// A version of a server in the catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The entry as it was published.
    pub server: ServerJson,
    /// Time at which the version was first taken in.
    pub added: Timestamp,
    /// Time at which it was last changed.
    pub updated: Timestamp,
    /// File, address or registry that it came from.
    pub source: String,
    /// SHA-256 of the entry in JSON, in hexadecimal digits.
    pub sha256: String,
    /// True for the highest version of its server.
    pub is_latest: bool,
}

/// A directory of entries.
#[derive(Debug, Clone)]
pub struct Catalogue {
    directory: PathBuf,
}

/// A catalogue that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The directory, or a file in it.
    #[error("{} cannot be used: {source}", path.display())]
    Io {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file that is no entry.
    #[error("{} is no entry of a catalogue: {why}", path.display())]
    Unfit {
        /// Path.
        path: PathBuf,
        /// First mistake.
        why: String,
    },
    /// More entries than a catalogue can have.
    #[error("{} has more than {MAX_ENTRIES} entries", .0.display())]
    TooMany(PathBuf),
    /// Another text under a version that is there. A published version does not change.
    #[error(
        "{name} {version} is in the catalogue already, with another text: a version does not change once it is published"
    )]
    Changed {
        /// Name of the server.
        name: String,
        /// Version.
        version: String,
    },
}

impl Catalogue {
    /// The catalogue in a directory, which need not exist.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    fn io(&self, path: &Path) -> impl Fn(io::Error) -> CatalogueError {
        let path = path.to_owned();
        move |source| CatalogueError::Io {
            path: path.clone(),
            source,
        }
    }

    /// All entries, by name and then version, the lowest first.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if the directory cannot be read, or a file of it is no entry.
    pub fn entries(&self) -> Result<Vec<Entry>, CatalogueError> {
        let listed = match fs::read_dir(&self.directory) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.io(&self.directory)(error)),
        };
        let mut entries = Vec::new();
        for file in listed {
            let path = file.map_err(self.io(&self.directory))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !name.ends_with(ENDING) || name.starts_with('.') {
                continue;
            }
            if entries.len() == MAX_ENTRIES {
                return Err(CatalogueError::TooMany(self.directory.clone()));
            }
            entries.push(self.read(&path)?);
        }
        entries.sort_by(|a, b| {
            let names = a.server.name.cmp(&b.server.name);
            names.then_with(|| compare(&a.server.version, &b.server.version))
        });
        let names: Vec<_> = entries.iter().map(|it| it.server.name.clone()).collect();
        for (at, entry) in entries.iter_mut().enumerate() {
            entry.is_latest = names.get(at + 1) != Some(&entry.server.name);
        }
        Ok(entries)
    }

    fn read(&self, path: &Path) -> Result<Entry, CatalogueError> {
        let unfit = |why: String| CatalogueError::Unfit {
            path: path.to_owned(),
            why,
        };
        // Twice, since it is indented here.
        let text = regular_file::read_text(path, 4 * MAX_BYTES as u64).map_err(self.io(path))?;
        let kept: Value = serde_json::from_str(&text).map_err(|error| unfit(error.to_string()))?;
        let time = |name: &str| {
            let time = kept[name]
                .as_str()
                .and_then(|it| it.parse::<Timestamp>().ok());
            time.ok_or_else(|| unfit(format!("`{name}` is no time")))
        };
        let first =
            |found: Vec<Unfit>| unfit(found.first().map(ToString::to_string).unwrap_or_default());
        let server = ServerJson::of(kept["server"].clone()).map_err(first)?;
        Ok(Entry {
            added: time("added")?,
            updated: time("updated")?,
            source: kept["source"].as_str().unwrap_or_default().to_owned(),
            sha256: digest(&server.raw),
            is_latest: false,
            server,
        })
    }

    /// Takes a version in. One that is there with the same text stays as it is.
    ///
    /// # Errors
    ///
    /// [`CatalogueError::Changed`] if the version is there with another text, others if it cannot be written.
    pub fn add(
        &self,
        server: &ServerJson,
        source: &str,
        now: Timestamp,
    ) -> Result<(), CatalogueError> {
        let name = format!("{}@{}{ENDING}", flat(&server.name), flat(&server.version));
        let path = self.directory.join(&name);
        if path.exists() {
            let there = self.read(&path)?;
            return match there.sha256 == digest(&server.raw) {
                true => Ok(()),
                false => Err(CatalogueError::Changed {
                    name: server.name.clone(),
                    version: server.version.clone(),
                }),
            };
        }
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&self.directory);
        made.map_err(self.io(&self.directory))?;
        let now = now.to_string();
        let kept = json!({ "server": server.raw, "source": source, "added": now, "updated": now });
        let text = serde_json::to_string_pretty(&kept).unwrap_or_default() + "\n";
        regular_file::replace_private(&path, text.as_bytes()).map_err(self.io(&path))
    }

    /// The entries of one server, the lowest version first.
    ///
    /// # Errors
    ///
    /// As for [`Catalogue::entries`].
    pub fn versions(&self, name: &str) -> Result<Vec<Entry>, CatalogueError> {
        let mut entries = self.entries()?;
        entries.retain(|it| it.server.name == name);
        Ok(entries)
    }
}

/// A name as a part of the name of a file.
fn flat(name: &str) -> String {
    let legal = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    let letters = name.chars().map(|it| match legal(it) {
        true => it.to_string(),
        false => format!("%{:02X}", u32::from(it)),
    });
    letters.collect()
}

fn digest(value: &Value) -> String {
    // Members have one order, that of their names.
    let ordered: BTreeMap<&String, &Value> = value.as_object().into_iter().flatten().collect();
    let text = serde_json::to_string(&ordered).unwrap_or_default();
    HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
}

/// The order of versions: numbers by number, and one without a part behind `-` above those with one.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let split = |version: &str| {
        let version = version.strip_prefix('v').unwrap_or(version);
        let version = version.split('+').next().unwrap_or_default().to_owned();
        match version.split_once('-') {
            Some((main, pre)) => (main.to_owned(), Some(pre.to_owned())),
            None => (version, None),
        }
    };
    let ((a_main, a_pre), (b_main, b_pre)) = (split(a), split(b));
    let main = parts(&a_main, &b_main);
    main.then_with(|| match (a_pre, b_pre) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => parts(&a, &b),
    })
    .then_with(|| a.cmp(b))
}

fn parts(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                // A number is below a word.
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_the_order_of_semantic_versioning() {
        let ordered = [
            "0.9",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.2",
            "1.0.10",
            "v1.1.0",
            "2.0.0",
        ];
        for pair in ordered.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
        }
    }

    #[test]
    fn a_version_is_kept_once_and_never_changed() {
        let directory = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::at(&directory.path().join("registry"));
        assert!(catalogue.entries().unwrap().is_empty());
        let server = |version: &str, description: &str| {
            let raw =
                json!({"name": "com.example/a", "version": version, "description": description});
            ServerJson::of(raw).unwrap()
        };
        let now = Timestamp::UNIX_EPOCH;
        for version in ["1.2.0", "1.10.0", "1.2.0"] {
            catalogue.add(&server(version, "d"), "x", now).unwrap();
        }
        let changed = catalogue.add(&server("1.2.0", "e"), "x", now);
        assert!(matches!(changed, Err(CatalogueError::Changed { .. })));
        let entries = catalogue.entries().unwrap();
        let told: Vec<_> = entries
            .iter()
            .map(|it| (it.server.version.as_str(), it.is_latest))
            .collect();
        assert_eq!(told, [("1.2.0", false), ("1.10.0", true)]);
        std::fs::write(directory.path().join("registry/x.server.json"), "{}").unwrap();
        assert!(matches!(
            catalogue.entries(),
            Err(CatalogueError::Unfit { .. })
        ));
    }
}
