//! The words that look into the ledger, explain rules and decide approvals.

use std::path::PathBuf;
use std::sync::Arc;

use age_format::Recipient;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use ledger::{ApprovalId, Cursor};

use super::Settings;
use crate::request::When;

const VERIFY_CODES: &str = "\
Exit codes:
  0  the ledger is sound, and sealed by checkpoints to its end
  1  it is damaged: the first wrong entry is named
  2  it cannot be read, or wrong usage, or a configuration that is not valid
  3  it is sound, but its last entries are not sealed yet, as beside a server that runs or after a
     crash, or the file of checkpoints is not there or lacks lines, or segments are encrypted and no
     identity opens them";

/// Configuration, and what opens encrypted segments of the archive.
#[derive(Debug, Args)]
pub struct Looking {
    #[command(flatten)]
    pub settings: Settings,
    /// The file of an identity of age, which opens encrypted segments of the archive
    /// [default: ledger.archive.identity]
    #[arg(long, value_name = "PATH")]
    pub identity: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Lists calls, the newest first
    #[command(after_help = super::EXIT_CODES)]
    Query {
        #[command(flatten)]
        settings: Looking,
        #[command(flatten)]
        filter: CallFilter,
        #[command(flatten)]
        page: Page,
    },
    /// Prints the last entries, and with --follow new ones
    #[command(after_help = super::EXIT_CODES)]
    Tail {
        #[command(flatten)]
        settings: Looking,
        #[command(flatten)]
        filter: CallFilter,
        /// Number of entries to begin with
        #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
        lines: u64,
        /// Print new entries until interrupted
        #[arg(long, short = 'f')]
        follow: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: LinesFormat,
    },
    /// Shows everything about a call, an approval or an entry
    #[command(after_help = super::EXIT_CODES)]
    Show {
        #[command(flatten)]
        settings: Looking,
        /// The name of a call (a UUID) or of an approval (apr_…), or the number of an entry
        #[arg(value_name = "ID")]
        id: String,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: super::ReportFormat,
    },
    /// Checks that no entry was changed, removed, inserted or cut off, and how far checkpoints prove that
    #[command(after_help = VERIFY_CODES)]
    Verify {
        #[command(flatten)]
        settings: Looking,
        /// A public key that checkpoints may be signed with [default: that of ledger.checkpoint.key]
        #[arg(long = "key", value_name = "PATH")]
        keys: Vec<PathBuf>,
        /// The file of checkpoints [default: ledger.checkpoint.file, else the one beside the ledger]
        #[arg(long, value_name = "PATH")]
        checkpoints: Option<PathBuf>,
        /// Treat a ledger that is not sealed to its end as damaged: exit code 1 instead of 3
        #[arg(long)]
        require_sealed: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: super::ReportFormat,
    },
    /// Exports calls, and without a filter notes too, in the order of the ledger
    #[command(after_help = super::EXIT_CODES)]
    Export {
        #[command(flatten)]
        settings: Looking,
        #[command(flatten)]
        filter: CallFilter,
        /// File to write [default: standard output]
        #[arg(long, short = 'o', value_name = "PATH")]
        output: Option<PathBuf>,
        /// Output format: one JSON object a line, CSV, which has calls only, or a plain audit log of calls of tools
        #[arg(long, value_enum, default_value_t)]
        format: ExportFormat,
    },
    /// Lists calls without an end, because their server ended first
    #[command(after_help = super::EXIT_CODES)]
    Unresolved {
        #[command(flatten)]
        settings: Looking,
        #[command(flatten)]
        page: Page,
    },
    /// Moves the oldest entries into archive files, also beside a running server; all other commands find
    /// them there
    #[command(after_help = super::EXIT_CODES)]
    Archive {
        #[command(flatten)]
        settings: Looking,
        /// Archive what began before: RFC 3339, a date, or how long ago (90d); two days at least
        /// [default: ledger.archive.after_days ago]
        #[arg(long, value_name = "TIME")]
        before: Option<When>,
        /// Archive all entries but those of the last days
        #[arg(long, value_name = "DAYS", conflicts_with = "before", value_parser = clap::value_parser!(u64).range(2..))]
        keep: Option<u64>,
        /// A recipient of age to encrypt segments for, age1…; can be repeated [default: ledger.archive.recipients]
        #[arg(long = "recipient", value_name = "RECIPIENT")]
        recipients: Vec<Recipient>,
        /// Also delete segments that are older than ledger.archive.delete_after_days and that no hold keeps
        #[arg(long, requires = "by")]
        delete: bool,
        /// Name of the operator who deletes, for the ledger
        #[arg(long, value_name = "NAME", requires = "delete")]
        by: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: super::ReportFormat,
    },
    /// Copies the ledger to a new file, also beside a running server, and its checkpoint to FILE.checkpoint
    #[command(after_help = super::EXIT_CODES)]
    Backup {
        #[command(flatten)]
        settings: Settings,
        /// File to make; an existing file is left as it is
        #[arg(value_name = "FILE")]
        output: PathBuf,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: super::ReportFormat,
    },
    /// Restores a backup where no ledger exists, and adds its end to the file of checkpoints
    #[command(after_help = super::EXIT_CODES)]
    Restore {
        #[command(flatten)]
        settings: Settings,
        /// The backup; FILE.checkpoint must be beside it
        #[arg(value_name = "FILE")]
        backup: PathBuf,
        /// Name of the operator who accepts a backup that lacks entries sealed by the file of checkpoints; recorded in
        /// the ledger
        #[arg(long, value_name = "NAME", requires = "reason")]
        by: Option<String>,
        /// Reason, for the ledger
        #[arg(long, value_name = "TEXT", requires = "by")]
        reason: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: super::ReportFormat,
    },
    /// Sets a legal hold: segments of the archive with a call that meets all conditions are not deleted
    #[command(after_help = super::EXIT_CODES)]
    Hold {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        who: Whose,
        /// Only calls from when on: RFC 3339, a date, or how long ago (90d)
        #[arg(long, value_name = "TIME")]
        since: Option<When>,
        /// Only calls until when, as above
        #[arg(long, value_name = "TIME")]
        until: Option<When>,
        /// Name of the operator who sets the hold, for the ledger
        #[arg(long, value_name = "NAME")]
        by: String,
        /// Reason, for the ledger
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Lists legal holds
    #[command(after_help = super::EXIT_CODES)]
    Holds {
        #[command(flatten)]
        settings: Settings,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: RowsFormat,
    },
    /// Lifts a legal hold
    #[command(after_help = super::EXIT_CODES)]
    LiftHold {
        #[command(flatten)]
        settings: Looking,
        /// Number of the hold
        #[arg(value_name = "NUMBER")]
        number: u64,
        /// Name of the operator who lifts it, for the ledger
        #[arg(long, value_name = "NAME")]
        by: String,
        /// Reason, for the ledger
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Accepts a ledger that its file of checkpoints contradicts, which a server refuses: records that
    /// in the ledger, and sets the file aside
    #[command(after_help = super::EXIT_CODES)]
    AcceptRollback {
        #[command(flatten)]
        settings: Settings,
        /// Name of the operator who accepts the rollback, for the ledger
        #[arg(long, value_name = "NAME")]
        by: String,
        /// Reason, for the ledger
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Makes a key that signs checkpoints, in two files: the private one, and its public one (.pub)
    #[command(after_help = super::EXIT_CODES)]
    Keygen {
        /// File for the private key; an existing file is left as it is
        #[arg(long, short = 'o', value_name = "PATH")]
        output: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum GovernanceCommand {
    /// Sums up calls, refusals, costs and durations
    #[command(after_help = super::EXIT_CODES)]
    Stats {
        #[command(flatten)]
        settings: Looking,
        #[command(flatten)]
        who: Whose,
        /// From when on: RFC 3339, a date, or how long ago (90m, 12h, 7d) [default: 7d]
        #[arg(long, value_name = "TIME")]
        since: Option<When>,
        /// Until when, as above [default: now]
        #[arg(long, value_name = "TIME")]
        until: Option<When>,
        /// A row for each day, or one for all the time
        #[arg(long, value_enum, default_value_t)]
        by: Stretch,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: RowsFormat,
    },
    /// Explains the decision about a call and the rules behind it; uses up no quota
    #[command(after_help = super::EXIT_CODES)]
    Explain {
        #[command(flatten)]
        settings: Settings,
        /// Principal of the call
        #[arg(long = "as", value_name = "CLIENT")]
        client: String,
        /// Role that its token or certificate would carry, besides its configured roles; can be
        /// repeated
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<Arc<str>>,
        #[command(flatten)]
        what: What,
        /// The arguments, a JSON object
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: super::ListFormat,
    },
}

#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// Lists approvals, the latest first
    #[command(after_help = super::EXIT_CODES)]
    List {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        who: Whose,
        /// Only those in this state
        #[arg(long, value_enum, default_value_t)]
        state: StateName,
        /// The most to list
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: RowsFormat,
    },
    /// Shows the call of an approval
    #[command(after_help = super::EXIT_CODES)]
    Show {
        #[command(flatten)]
        settings: Settings,
        /// Id of the approval, apr_…
        #[arg(value_name = "ID")]
        id: ApprovalId,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: super::ReportFormat,
    },
    /// Allows the call once
    #[command(after_help = super::EXIT_CODES)]
    Approve(Deciding),
    /// Refuses the call
    #[command(after_help = super::EXIT_CODES)]
    Deny(Deciding),
    /// Withdraws a decision that no call has used; the same call then needs another approval
    #[command(after_help = super::EXIT_CODES)]
    Revoke(Deciding),
}

/// Arguments of a decision.
#[derive(Debug, Args)]
pub struct Deciding {
    #[command(flatten)]
    pub settings: Settings,
    /// The name of the approval, apr_…
    #[arg(value_name = "ID")]
    pub id: ApprovalId,
    /// Name of the operator who decides, for the ledger
    #[arg(long, value_name = "NAME")]
    pub by: String,
    /// Reason, for the ledger
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: super::ReportFormat,
}

/// Of whom and of what.
#[derive(Debug, Args)]
pub struct Whose {
    /// Only of this client
    #[arg(long, value_name = "CLIENT")]
    pub client: Option<String>,
    /// Only of this tool
    #[arg(long, value_name = "NAME", conflicts_with = "resource")]
    pub tool: Option<String>,
    /// Only of this resource
    #[arg(long, value_name = "URI")]
    pub resource: Option<String>,
}

/// A tool, a resource or a prompt.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct What {
    /// The tool
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// The resource
    #[arg(long, value_name = "URI")]
    pub resource: Option<String>,
    /// The prompt, or a version of it (NAME@VERSION)
    #[arg(long, value_name = "NAME")]
    pub prompt: Option<String>,
}

/// Filter for calls.
#[derive(Debug, Args)]
pub struct CallFilter {
    #[command(flatten)]
    pub who: Whose,
    /// Only those with this outcome
    #[arg(long, value_name = "OUTCOME", value_parser = PossibleValuesParser::new(OUTCOMES))]
    pub outcome: Option<String>,
    /// Only those refused for this reason
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// From when on: RFC 3339, a date, or how long ago (90m, 12h, 7d)
    #[arg(long, value_name = "TIME")]
    pub since: Option<When>,
    /// Until when, as above
    #[arg(long, value_name = "TIME")]
    pub until: Option<When>,
    /// Only those of this W3C trace
    #[arg(long, value_name = "TRACE")]
    pub trace: Option<String>,
    /// Only those whose request had this id
    #[arg(long, value_name = "ID")]
    pub request: Option<String>,
    /// Only those that named this approval
    #[arg(long, value_name = "ID")]
    pub approval: Option<ApprovalId>,
    /// Only those that took at least so many milliseconds
    #[arg(long, value_name = "N")]
    pub longer_than: Option<u64>,
}

/// Outcomes of calls; the names are the ledger's.
/// Outcomes by which calls can be looked for.
pub const OUTCOMES: [&str; 9] = [
    "succeeded",
    "failed",
    "denied",
    "invalid",
    "timed_out",
    "cancelled",
    "abandoned",
    "unknown",
    ledger::OPEN_CALLS,
];

/// Number of calls, the place to start from, and the output format.
#[derive(Debug, Args)]
pub struct Page {
    /// The most to list
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Continue after a page
    #[arg(long, value_name = "CURSOR")]
    pub before: Option<Cursor>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: RowsFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum RowsFormat {
    /// For people
    #[default]
    Table,
    /// For programs: one array
    Json,
    /// For spreadsheets
    Csv,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LinesFormat {
    /// For people
    #[default]
    Text,
    /// For programs: an object a line
    Json,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// An object a line
    #[default]
    Json,
    /// A row a call
    Csv,
    /// An object a call of a tool: timestamp, server, tool, agent, args, duration_ms, and how it ended
    Audit,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Stretch {
    /// All the time that was asked for
    #[default]
    Whole,
    /// Days, UTC
    Day,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum StateName {
    /// No decision yet
    #[default]
    Pending,
    /// The call may be made
    Approved,
    /// The call may not be made
    Denied,
    /// The call has been made
    Used,
    /// Past its time limit
    Expired,
    /// The decision was taken back
    Revoked,
    /// All of these
    All,
}
