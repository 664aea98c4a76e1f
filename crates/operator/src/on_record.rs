//! Changes of secrets by commands, on record before they are made.

use std::future::Future;

use config::{Config, Needs, Severity, VaultPlace};
use serde_json::Value;
use server::{Act, Failure, WayToLedger};

use crate::inspect::os_user;
use crate::output::{Stop, try_load};
use crate::request::Settings;
use crate::terminal::remark;

/// Key of the configuration whose value may be a secret of the vault that is about to be changed.
const ADDRESS: &str = "ledger.url";

/// Name of the operating system's user that runs this command, and the proof of it, in words.
pub(crate) fn who() -> (String, String) {
    let (user, uid) = os_user();
    let user = user.unwrap_or_else(|| format!("uid-{uid}"));
    let proof = format!("command line, OS user {user}, uid {uid}");
    (user, proof)
}

/// Waits until something is on record.
pub(crate) fn put<T>(recording: impl Future<Output = Result<T, Failure>>) -> Result<T, Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::Failed(error.into()))?;
    runtime.block_on(recording).map_err(|failure| {
        let why = server::with_causes(&*failure);
        let why = format!("nothing is changed, since it cannot be put on record: {why}");
        Stop::Failed(why.into())
    })
}

/// A vault that is to be changed, with the ledger that has its changes.
#[derive(Debug)]
pub(crate) struct RecordedVault {
    pub(crate) place: VaultPlace,
    config: Config,
    way: WayToLedger,
}

impl RecordedVault {
    /// The vault of the configuration that `settings` name.
    pub(crate) fn of(settings: Settings) -> Result<Self, Stop> {
        let needed = Needs::Keys(&["vault", "ledger"]);
        let (loaded, way) = match try_load(settings.clone(), needed)? {
            Ok(loaded) => {
                let is_circle = loaded
                    .references()
                    .any(|(key, it)| key == ADDRESS && it.reference.starts_with("vault:"));
                let way = match is_circle {
                    true => WayToLedger::LedgerOrFile,
                    false => WayToLedger::Ledger,
                };
                (loaded, way)
            }
            // What is to be set may be what it refers to.
            Err(rejected) => {
                let mut problems = rejected.problems.iter();
                let is_of_address = problems
                    .all(|it| it.severity != Severity::Error || it.key.as_deref() == Some(ADDRESS));
                if !is_of_address {
                    return Err(Stop::Rejected(rejected));
                }
                let loaded = try_load(settings, Needs::Keys(&["vault"]))?;
                (loaded.map_err(Stop::Rejected)?, WayToLedger::File)
            }
        };
        Ok(Self {
            place: loaded.config.vault_place(),
            config: loaded.config,
            way,
        })
    }

    /// Puts on record what is about to be done with each of these, as the desk does.
    pub(crate) fn will<'a>(
        &self,
        what: &str,
        subjects: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Stop> {
        let (by, proof) = who();
        let acts = subjects.into_iter().map(|subject| Act {
            by: &by,
            what,
            subject,
            proof: &proof,
            more: &Value::Null,
        });
        let acts: Vec<_> = acts.collect();
        if acts.is_empty() {
            return Ok(());
        }
        if let Some(file) = put(server::record_command(&self.config, self.way, &acts))? {
            remark(&format!(
                "the ledger cannot be reached: {} has what is done, and the server records it when it starts",
                file.display()
            ));
        }
        Ok(())
    }
}
