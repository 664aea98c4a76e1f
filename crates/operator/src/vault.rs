//! Secrets in the vault: set, listed, removed, sealed anew, and taken out of files of others. No command prints one.

mod content;
mod import;
mod spans;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use config::{KeySource, Loaded, Needs, Reference, VaultPlace};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;
use server::Failure;
use vault::{Key, MAX_VALUE_BYTES, Name, Secret, Vault, VaultError};

use crate::on_record::RecordedVault;
use crate::output::{Stop, print, print_json, try_load};
use crate::request::{ReportFormat, Settings, VaultCommand};
use crate::secrets::Secrets;
use crate::table::table;
use crate::terminal::remark;

use self::content::may_remove;
pub(crate) use self::content::time;
pub use self::content::{
    SecretProblem, SecretRow, SetSecret, may_set, remove_secret, secret_rows, set_secret,
};

/// The part of the configuration that says where the vault is.
const NEEDED: &[&str] = &["vault"];

fn failed(error: impl Into<Failure>) -> Stop {
    Stop::Failed(error.into())
}

/// Carries out a command on the vault.
///
/// # Errors
///
/// When the configuration cannot be used, the vault cannot be opened, or standard output cannot be written.
pub fn vault(command: VaultCommand) -> Result<ExitCode, Stop> {
    match command {
        VaultCommand::Init { settings } => {
            let (loaded, place) = place(settings)?;
            let config = &loaded.config;
            if config.vault.path.is_none() && config.environment.home().is_none() {
                return Err(failed(
                    "HOME is no absolute path, so that there is no usual place for the vault: set HOME, or `vault.path`",
                ));
            }
            init(&place)
        }
        VaultCommand::Set {
            settings,
            name,
            file,
        } => set(&RecordedVault::of(settings)?, &name, file.as_deref()),
        VaultCommand::List { settings, format } => {
            let (loaded, place) = place(settings)?;
            list(&loaded, &place, format)
        }
        VaultCommand::Rotate {
            settings,
            new_key_file,
        } => rotate(&RecordedVault::of(settings)?, new_key_file.as_deref()),
        VaultCommand::Remove { settings, name } => {
            // The address of the ledger may refer to what is not there: then nothing is known of references.
            let references = place(settings.clone())
                .map_or_else(|_| Vec::new(), |(loaded, _)| all_references(&loaded));
            let vault = RecordedVault::of(settings)?;
            may_remove(&vault.place, &name).map_err(failed)?;
            vault.will("secret_remove", [name.as_str()])?;
            remove_secret(&vault.place, &name).map_err(failed)?;
            let reference = format!("vault:{name}");
            let used = references
                .iter()
                .filter(|(_, it)| it.reference == reference);
            let used: Vec<_> = used.map(|(key, _)| key.as_str()).collect();
            if !used.is_empty() {
                remark(&format!(
                    "warning: it is referred to still, by {}",
                    used.join(", ")
                ));
            }
            print(&format!("`{name}` is removed from {}", shown(&vault.place)))
        }
        VaultCommand::Import {
            settings,
            file,
            write,
            format,
        } => import::import(RecordedVault::of(settings)?, &file, write, format),
    }
}

/// The configuration, whatever else of it is wrong, and the vault that it names.
fn place(settings: Settings) -> Result<(Loaded, VaultPlace), Stop> {
    let loaded = try_load(settings, Needs::Keys(NEEDED))?.map_err(Stop::Rejected)?;
    let place = loaded.config.vault_place();
    Ok((loaded, place))
}

fn shown(place: &VaultPlace) -> String {
    place.path.display().to_string()
}

pub(crate) fn open(place: &VaultPlace) -> Result<Vault, Stop> {
    place.open().map_err(failed)
}

pub(crate) fn edit<T>(
    place: &VaultPlace,
    change: impl FnOnce(&mut Vault) -> Result<T, VaultError>,
) -> Result<T, Stop> {
    if !place.path.exists() {
        return Err(failed(VaultError::Missing(place.path.clone())));
    }
    vault::edit(&place.path, || place.key(), change).map_err(failed)
}

/// Puts the secrets that are to come into the vault there. One that has come meanwhile with another value stays.
/// Returns what takes those that are new out again.
pub(crate) fn keep(recorded: RecordedVault, secrets: &Secrets) -> Result<Kept, Stop> {
    let before = open(&recorded.place)?;
    let names = secrets.moved().map(|(name, ..)| name.as_str());
    let names: BTreeSet<_> = names.filter(|it| before.get(it).is_none()).collect();
    recorded.will("secret_set", names)?;
    let mut new = Vec::new();
    edit(&recorded.place, |vault| {
        for (name, value, _) in secrets.moved() {
            match vault.get(name.as_str()) {
                Some(there) if there == value => {}
                Some(_) => {
                    let why = format!("`{name}` has come into the vault meanwhile: try again");
                    return Err(VaultError::TooMuch(why));
                }
                None => {
                    vault.set(name, value.clone())?;
                    new.push((name.clone(), value.clone()));
                }
            }
        }
        Ok(())
    })?;
    Ok(Kept { recorded, new })
}

/// Secrets that a command has put into the vault for what it does next.
#[must_use]
pub(crate) struct Kept {
    recorded: RecordedVault,
    new: Vec<(Name, Secret)>,
}

impl Kept {
    /// Takes the secrets out again if what needs them failed. One that has another value meanwhile stays.
    pub(crate) fn unless<T>(self, outcome: Result<T, Stop>) -> Result<T, Stop> {
        let Err(stop) = outcome else {
            return outcome;
        };
        if self.new.is_empty() {
            return Err(stop);
        }
        let names: Vec<&str> = self.new.iter().map(|(name, _)| name.as_str()).collect();
        if self
            .recorded
            .will("secret_remove", names.iter().copied())
            .is_err()
        {
            remark("the ledger does not say that they are taken out again");
        }
        let place = &self.recorded.place;
        let taken = edit(place, |vault| {
            for (name, value) in &self.new {
                if vault.get(name.as_str()) == Some(value) {
                    vault.remove(name.as_str());
                }
            }
            Ok(())
        });
        if taken.is_err() {
            remark(&format!(
                "these are in {} now, and could not be taken out again: {}",
                shown(place),
                names.join(", ")
            ));
        }
        Err(stop)
    }
}

fn init(place: &VaultPlace) -> Result<ExitCode, Stop> {
    if place.path.exists() {
        return Err(failed(VaultError::Exists(place.path.clone())));
    }
    let key = match &place.key {
        KeySource::File(file) if !file.exists() => {
            let key = vault::write_new_key(file).map_err(failed)?;
            remark(&format!(
                "{} has the key; keep a copy of it in another place: without it the vault cannot be opened",
                file.display()
            ));
            key
        }
        KeySource::Variable(name, None) => {
            return Err(failed(format!(
                "the variable {name} is not set: set it to a new key (`openssl rand -base64 32`), and keep it"
            )));
        }
        _ => place.key().map_err(failed)?,
    };
    Vault::create(&place.path, &key).map_err(failed)?;
    print(&format!("{} is made", shown(place)))
}

fn set(vault: &RecordedVault, name: &str, file: Option<&Path>) -> Result<ExitCode, Stop> {
    let place = &vault.place;
    // Before anything is asked.
    let name = may_set(place, name, None).map_err(failed)?;
    let value = given(name.as_str(), file)?;
    may_set(place, name.as_str(), Some(&value)).map_err(failed)?;
    vault.will("secret_set", [name.as_str()])?;
    let SetSecret {
        was_there,
        is_short,
    } = set_secret(place, name.as_str(), value).map_err(failed)?;
    if is_short {
        warn_of_short();
    }
    let place = shown(place);
    print(&match was_there {
        true => format!("`{name}` is replaced in {place}"),
        false => format!("`{name}` is in {place}; write `${{vault:{name}}}` where it belongs"),
    })
}

/// The value of a secret: what the file has, or what is typed on the terminal, or what standard input has.
pub(crate) fn given(name: &str, file: Option<&Path>) -> Result<Secret, Stop> {
    match file {
        Some(path) => {
            let file = std::fs::File::open(path);
            file.and_then(read)
                .map_err(|error| failed(format!("{}: {error}", path.display())))
        }
        None if io::stdin().is_terminal() => typed(name).map_err(failed),
        None => {
            read(io::stdin().lock()).map_err(|error| failed(format!("standard input: {error}")))
        }
    }
}

pub(crate) fn warn_of_short() {
    remark(&format!(
        "warning: it has fewer than {} bytes: in logs and answers it is not recognised, and not redacted",
        redaction::MIN_KNOWN_BYTES
    ));
}

/// A text without its last line end.
fn read(source: impl io::Read) -> io::Result<Secret> {
    let mut text = String::new();
    let most = MAX_VALUE_BYTES as u64 + 3;
    source.take(most).read_to_string(&mut text)?;
    let end = text
        .strip_suffix('\n')
        .map_or(text.len(), |it| it.strip_suffix('\r').unwrap_or(it).len());
    text.truncate(end);
    Ok(Secret::new(text))
}

/// A line of the terminal, which does not show it.
fn typed(name: &str) -> io::Result<Secret> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    let mut output = io::stderr().lock();
    write!(output, "value of {name} (not shown): ")?;
    output.flush()?;
    tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    let mut line = String::new();
    let read = stdin.read_line(&mut line);
    let restored = tcsetattr(&stdin, OptionalActions::Flush, &before);
    read?;
    restored?;
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    Ok(Secret::new(line))
}

/// The references of the configuration and of the files of hosts that it names.
fn all_references(loaded: &Loaded) -> Vec<(String, Reference)> {
    let own = loaded.references();
    let own = own.map(|(key, it)| (key.to_owned(), it.clone()));
    own.chain(server::references_of_hosts(&loaded.config))
        .collect()
}

fn list(loaded: &Loaded, place: &VaultPlace, format: ReportFormat) -> Result<ExitCode, Stop> {
    let references = all_references(loaded);
    let references = references.iter().map(|(key, it)| (key.as_str(), it));
    let rows = secret_rows(&open(place)?, references);
    match format {
        ReportFormat::Json => print_json(&json!({ "vault": place.path, "secrets": rows })),
        ReportFormat::Text if rows.is_empty() => print(&format!("{} is empty", shown(place))),
        ReportFormat::Text => {
            let rows = rows.into_iter();
            let rows = rows.map(|it| vec![it.name, it.changed_at, it.used_in.join(", ")]);
            print(&table(&["NAME", "SET", "USED IN"], rows.collect()))
        }
    }
}

fn rotate(vault: &RecordedVault, new_key_file: Option<&Path>) -> Result<ExitCode, Stop> {
    let place = &vault.place;
    open(place)?;
    let key_file = match &place.key {
        KeySource::File(file) => Some(file.as_path()),
        KeySource::Variable(..) | KeySource::Command(_) => None,
    };
    let new = match (new_key_file, key_file) {
        (Some(path), _) => Key::read(path).map_err(failed)?,
        (None, Some(_)) => Key::generate().map_err(failed)?,
        (None, None) => {
            return Err(failed(
                "the key is in no file: put a new one into a file that you alone can read (`umask 077; openssl rand \
                 -base64 32 > PATH`), name it with --new-key-file, and then give it to the server as the old one was \
                 given",
            ));
        }
    };
    vault.will("vault_rotate", [shown(place).as_str()])?;
    vault::rotate(&place.path, || place.key(), &new, key_file).map_err(failed)?;
    let place = shown(place);
    print(&match key_file {
        Some(file) => format!(
            "{place} is sealed with a new key, which is in {}",
            file.display()
        ),
        None => format!(
            "{place} is sealed with the new key; a server that has the old one cannot open it at its next start"
        ),
    })
}
