//! Commands of operators beside a running server: on the ledger, the rules, and approvals.
//!
//! At three in the morning a mistake elsewhere in the configuration is no reason not to look.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use config::{Config, Secret};
use governance::Caller;
use ledger::{Cursor, Decision, SigningKey};

use server::with_causes;

use crate::inspect::{self, Verified};
use crate::output::{CALL, FAILED, Stop, UNUSABLE, load_for, print};
use crate::request::{
    ApprovalsCommand, Deciding, ExportFormat, GovernanceCommand, LedgerCommand, Looking,
};
use crate::terminal::remark;
use crate::terminal::tell;
use server::Failure;

/// The ledger is sound as far as it goes, and not sealed to its end, or not all of it could be read.
const UNSEALED: u8 = 3;
/// The part of the configuration that says where the ledger is.
const NEEDED: &[&str] = &["ledger"];
/// The same, with what says which upstream a tool is of.
const NEEDED_FOR_AUDIT: &[&str] = &["gateway", "ledger", "upstreams", "upstreams_files"];

impl Looking {
    /// Loads what the configuration says under these keys, with the identity of the command.
    fn load(self, keys: &'static [&'static str]) -> Result<Config, Stop> {
        let mut config = load_for(self.settings, keys)?.config;
        if let Some(path) = self.identity {
            let text = std::fs::read_to_string(&path).map_err(|error| refused(&path, &error))?;
            age_format::identities(&text).map_err(|why| refused(&path, &why))?;
            config.ledger.archive.identity = Some(Secret::new(text));
        }
        Ok(config)
    }
}

fn refused(path: &Path, why: &dyn std::fmt::Display) -> Stop {
    Stop::Failed(format!("the identity {} cannot be used: {why}", path.display()).into())
}

/// Carries out a command on the ledger.
///
/// # Errors
///
/// When the configuration cannot be used, the command fails, or standard output cannot be written.
pub fn ledger(command: LedgerCommand) -> Result<ExitCode, Stop> {
    match command {
        LedgerCommand::Query {
            settings,
            filter,
            page,
        } => {
            let config = settings.load(NEEDED)?;
            print_page(inspect::query(&config, filter, &page).map_err(Stop::Failed)?)
        }
        LedgerCommand::Unresolved { settings, page } => {
            let config = settings.load(NEEDED)?;
            print_page(inspect::unresolved(&config, &page).map_err(Stop::Failed)?)
        }
        LedgerCommand::Tail {
            settings,
            filter,
            lines,
            follow,
            format,
        } => {
            let config = settings.load(NEEDED)?;
            inspect::tail(&config, filter, lines, follow, format)?;
            Ok(ExitCode::SUCCESS)
        }
        LedgerCommand::Show {
            settings,
            id,
            format,
        } => {
            let config = settings.load(NEEDED)?;
            print(&inspect::show(&config, &id, format).map_err(Stop::Failed)?)
        }
        LedgerCommand::Verify {
            settings,
            keys,
            checkpoints,
            require_sealed,
            format,
        } => {
            let config = settings.load(NEEDED)?;
            match inspect::verify(&config, &keys, checkpoints.as_deref(), format) {
                Ok(Verified {
                    is_sound,
                    is_sealed,
                    is_read,
                    text,
                }) => {
                    print(&text)?;
                    Ok(match (is_sound, is_sealed) {
                        (true, true) if is_read => ExitCode::SUCCESS,
                        (true, true) => UNSEALED.into(),
                        (true, false) if require_sealed => FAILED.into(),
                        (true, false) => UNSEALED.into(),
                        (false, _) => FAILED.into(),
                    })
                }
                // That it cannot be read says nothing about it.
                Err(failure) => {
                    tell(&format!("error: {}", with_causes(&*failure)));
                    Ok(UNUSABLE.into())
                }
            }
        }
        LedgerCommand::Export {
            settings,
            filter,
            output,
            format,
        } => {
            let (needed, is_audit) = match format {
                ExportFormat::Audit => (NEEDED_FOR_AUDIT, true),
                _ => (NEEDED, false),
            };
            let config = settings.load(needed)?;
            let servers = match is_audit {
                true => crate::upstream::names_offered(&config)?,
                false => HashMap::new(),
            };
            inspect::export(&config, filter, output.as_deref(), format, servers)?;
            Ok(ExitCode::SUCCESS)
        }
        LedgerCommand::Archive {
            settings,
            before,
            keep,
            recipients,
            delete,
            by,
            format,
        } => {
            let mut config = settings.load(NEEDED)?;
            if !recipients.is_empty() {
                let recipients = recipients.iter().map(ToString::to_string);
                config.ledger.archive.recipients = recipients.collect();
            }
            let by = by.filter(|_| delete);
            let archived = inspect::archive(&config, (before, keep), by.as_deref(), format);
            print(&archived.map_err(Stop::Failed)?)
        }
        LedgerCommand::Backup {
            settings,
            output,
            format,
        } => {
            let config = load_for(settings, NEEDED)?.config;
            print(&inspect::backup(&config, &output, format).map_err(Stop::Failed)?)
        }
        LedgerCommand::Restore {
            settings,
            backup,
            by,
            reason,
            format,
        } => {
            let config = load_for(settings, NEEDED)?.config;
            let accepted = by.as_deref().zip(reason.as_deref());
            print(&inspect::restore(&config, &backup, accepted, format).map_err(Stop::Failed)?)
        }
        LedgerCommand::Hold {
            settings,
            who,
            since,
            until,
            by,
            reason,
        } => {
            let config = load_for(settings, NEEDED)?.config;
            let set = inspect::hold(&config, &who, (since, until), &by, &reason);
            print(&set.map_err(Stop::Failed)?)
        }
        LedgerCommand::Holds { settings, format } => {
            let config = load_for(settings, NEEDED)?.config;
            print(&inspect::holds(&config, format).map_err(Stop::Failed)?)
        }
        LedgerCommand::LiftHold {
            settings,
            number,
            by,
            reason,
        } => {
            let config = settings.load(NEEDED)?;
            let lifted = inspect::lift_hold(&config, number, &by, &reason);
            print(&lifted.map_err(Stop::Failed)?)
        }
        LedgerCommand::AcceptRollback {
            settings,
            by,
            reason,
        } => {
            let config = load_for(settings, NEEDED)?.config;
            print(&inspect::accept_rollback(&config, &by, &reason).map_err(Stop::Failed)?)
        }
        LedgerCommand::Keygen { output } => {
            SigningKey::generate(&output).map_err(|error| Stop::Failed(error.into()))?;
            let public = SigningKey::public_path(&output);
            print(&format!("{}\n{}", output.display(), public.display()))
        }
    }
}

/// Sums up usage, or explains a decision.
///
/// # Errors
///
/// When the configuration cannot be used, the command fails, or standard output cannot be written.
pub fn governance(command: GovernanceCommand) -> Result<ExitCode, Stop> {
    let text = match command {
        GovernanceCommand::Stats {
            settings,
            who,
            since,
            until,
            by,
            format,
        } => {
            let config = settings.load(NEEDED)?;
            inspect::stats(&config, &who, (since, until), by, format)
        }
        GovernanceCommand::Explain {
            settings,
            client,
            roles,
            what,
            args,
            format,
        } => {
            let config = load_for(settings, CALL)?.config;
            let caller = Caller {
                principal: &client,
                roles: &roles,
            };
            inspect::explain(&config, caller, &what, args.as_deref(), format)
        }
    };
    print(&text.map_err(Stop::Failed)?)
}

/// Lists approvals, shows one, or decides on one.
///
/// # Errors
///
/// When the configuration cannot be used, the command fails, or standard output cannot be written.
pub fn approvals(command: ApprovalsCommand) -> Result<ExitCode, Stop> {
    let text = match command {
        ApprovalsCommand::List {
            settings,
            who,
            state,
            limit,
            format,
        } => {
            let config = load_for(settings, NEEDED)?.config;
            inspect::list_approvals(&config, &who, state, limit, format)
        }
        ApprovalsCommand::Show {
            settings,
            id,
            format,
        } => {
            let config = load_for(settings, NEEDED)?.config;
            inspect::show_approval(&config, id, format)
        }
        ApprovalsCommand::Approve(deciding) => decide(deciding, Decision::Approve)?,
        ApprovalsCommand::Deny(deciding) => decide(deciding, Decision::Deny)?,
        ApprovalsCommand::Revoke(deciding) => decide(deciding, Decision::Revoke)?,
    };
    print(&text.map_err(Stop::Failed)?)
}

fn decide(deciding: Deciding, decision: Decision) -> Result<Result<String, Failure>, Stop> {
    let Deciding {
        settings,
        id,
        by,
        reason,
        format,
    } = deciding;
    let config = load_for(settings, NEEDED)?.config;
    let reason = reason.as_deref();
    Ok(inspect::decide(&config, id, decision, &by, reason, format))
}

/// Prints a page of rows, with the cursor of the next one on standard error.
fn print_page((text, next): (String, Option<Cursor>)) -> Result<ExitCode, Stop> {
    let code = print(&text)?;
    if let Some(next) = next {
        remark(&format!("for older ones: --before {next}"));
    }
    Ok(code)
}
