//! Commands of operators beside a server or without one: reports of its ledger and its rules,
//! decisions on approvals, keys, sessions, examinations and calls; and of a client of any server.

mod answer;
mod arguments;
mod calling;
mod client;
mod client_config;
mod doctor;
mod edit;
mod exact;
mod inspect;
mod keys;
mod listing;
mod on_record;
mod operator;
mod output;
mod prompts;
mod registry;
#[allow(
    missing_docs,
    reason = "the command line shows comments of these types as its help"
)]
pub mod request;
mod rewrite;
mod rules_file;
mod running;
mod secrets;
mod sessions;
mod table;
pub mod terminal;
mod upstream;
mod vault;

/// Plain data that operators look at: the same that commands print.
pub mod look {
    pub use crate::inspect::{
        ApprovalRow, CallRow, Cell, Happening, Happenings, KeyRow, NoteRow, ServerNames, UsageRow,
        What, approvals, calls, explanation, export_to, keys, os_user, usage, verified,
    };
    pub use crate::request::when::shown;
    pub use crate::upstream::CredentialRow;
    pub use crate::vault::{SecretRow, secret_rows};
}

pub use answer::Answer;
pub use calling::{call, call_frame};
pub use client::{client, finish};
pub use client_config::{Executable, Printed, client_config};
pub use doctor::{Report, cures, examine};
pub use inspect::Interrupted;
pub use keys::keys;
pub use listing::{origins_table, resources_table, tools_table, views_table};
pub use operator::{approvals, governance, ledger};
pub use output::{
    CALL, FAILED, SIGNALLED, Stop, UNUSABLE, complain, load, load_for, print, print_bytes,
    print_json, source, try_load, usable,
};
pub use prompts::prompts;
pub use registry::registry;
pub use rules_file::RulesFile;
pub use sessions::sessions;
pub use upstream::{pin_awaited, pin_changes, pin_decision, pin_state, upstream};
pub use vault::{SecretProblem, SetSecret, may_set, remove_secret, set_secret, vault};
