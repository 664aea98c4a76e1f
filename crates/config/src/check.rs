//! Checks that need the whole configuration.

pub(crate) mod family;
pub(crate) mod needs;
pub(crate) mod owlclaw;
mod pointers;
mod rules;
pub(crate) mod unmatched;

use redaction::{BadSpec, Redactor};

use crate::environment::Environment;
use crate::layer::{Origins, child, origin_near};
use crate::problem::{Origin, Problem, Severity};
use crate::sections::{Config, Transport};

/// Variable with the token that OwlClaw's own server requires of every client.
const OWLCLAW_TOKEN: &str = "OWLCLAW_MCP_TOKEN";

/// Refuses `OWLCLAW_MCP_TOKEN` where no proof is configured: its author expects the token to be
/// checked.
pub(crate) fn owlclaw_token(
    config: &Config,
    environment: &Environment,
    problems: &mut Vec<Problem>,
) {
    let is_set = environment
        .get(OWLCLAW_TOKEN)
        .is_some_and(|token| !token.is_empty());
    if !is_set || config.transport != Transport::Http {
        return;
    }
    let message = format!("{OWLCLAW_TOKEN} is set, and this server does not check that token");
    let hint = "have clients send a key instead (`identity: {api_keys: {}}`, `owlclaw-mcp keys create`), \
                and unset the variable";
    let origin = Origin::Environment(OWLCLAW_TOKEN.to_owned());
    let problem = Problem::error(origin, message).hint(hint);
    problems.push(match config.identity.is_configured() {
        // Nobody gets in without proof, of another kind.
        true => Problem {
            severity: Severity::Warning,
            ..problem
        },
        false => problem,
    });
}

pub(crate) fn whole(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let error = |key: &str, message: String| {
        let origin = origins.get(key).cloned().unwrap_or(Origin::Default);
        Problem::error(origin, message).key(key)
    };
    let http = &config.http;
    let is_open = config.transport == Transport::Http && http.tcp && !http.host.is_loopback();
    if is_open && !http.allow_anonymous && !config.identity.is_configured() {
        let message = format!(
            "other machines can reach `http.host` {}, and clients are not authenticated",
            http.host
        );
        let hint = "configure `identity` (`api_keys: {}` is the shortest), listen on 127.0.0.1, or \
                    set `http.allow_anonymous: true` to serve anybody";
        problems.push(error("http.host", message).hint(hint));
    }
    if http.max_replay_bytes < http.max_session_replay_bytes && http.max_replay_bytes > 0 {
        let (one, all) = ("http.max_session_replay_bytes", "http.max_replay_bytes");
        let message = format!(
            "one session may keep {} bytes (`{one}`), and all of them together only {} (`{all}`)",
            http.max_session_replay_bytes, http.max_replay_bytes
        );
        // Where the operator can see it, and not at a default.
        let key = if origins.contains_key(one) { one } else { all };
        let hint = "one could take the room of all others: lower the one or raise the other";
        problems.push(error(key, message).hint(hint));
    }
    let workers = &config.workers;
    if let Some(most) = workers.max_count.filter(|most| *most < workers.count) {
        let count = workers.count;
        let message = format!(
            "there would be {count} workers (`workers.count`), and at most {most} (`workers.max_count`)"
        );
        let hint = "raise `workers.max_count`, or leave it out";
        problems.push(error("workers.max_count", message).hint(hint));
    }
    let command = "vault.key_command";
    if config.vault.key_command.is_empty() && origins.contains_key(command) {
        let message = format!("`{command}` names no program");
        let hint = "write the program and its arguments, or leave the key out";
        problems.push(error(command, message).hint(hint));
    }
    if let [first, .., last] = config.vault.sources()[..] {
        let message = format!("`vault.{first}` and `vault.{last}` are two sources of one key");
        problems.push(error(&format!("vault.{last}"), message).hint("keep one of the two"));
    }
    let ledger = &config.ledger;
    let sessions = config.sessions_path();
    for (path, of) in [
        (&ledger.path, "ledger.path"),
        (&config.tasks_path(), "tasks.path"),
    ] {
        if http.keep_sessions && sessions == *path {
            let message = format!("`http.sessions_path` is the file of `{of}`");
            let hint = "give sessions a file of their own, or leave the key out for its default";
            problems.push(error("http.sessions_path", message).hint(hint));
        }
    }
    let archive = &ledger.archive;
    if archive.after_days.is_some() && archive.directory.is_none() && ledger.url.is_some() {
        let key = "ledger.archive.after_days";
        let message =
            format!("`{key}` needs `ledger.archive.directory` where `ledger.url` names a database");
        let hint = "name a directory that all servers of this ledger reach by the same path";
        problems.push(error(key, message).hint(hint));
    }
    if let Some(deleted) = archive.delete_after_days
        && archive.after_days.is_none_or(|after| deleted <= after)
    {
        let key = "ledger.archive.delete_after_days";
        let message =
            format!("`{key}` is {deleted}, and only what is archived before can be deleted");
        let hint = "set `ledger.archive.after_days` to less";
        problems.push(error(key, message).hint(hint));
    }
    for (index, recipient) in archive.recipients.iter().enumerate() {
        let list = "ledger.archive.recipients";
        let key = format!("{list}[{index}]");
        // What was written may be an identity.
        if let Err(why) = recipient.parse::<age_format::Recipient>() {
            let message = format!("`{key}` is no recipient: {why}");
            let hint = "write it as `age-keygen -y` prints it: `age1…`, 62 letters and digits";
            problems.push(error(list, message).without_line().hint(hint));
        }
    }
    if let Some(identity) = &archive.identity
        && let Some(why) = identity.identity_fault()
    {
        let key = "ledger.archive.identity";
        let message = format!("`{key}` cannot be used: {why}");
        let hint = "keep it in the vault or in a file: `${vault:archive}`, `${file:/run/secrets/archive.key}`";
        problems.push(error(key, message).without_line().hint(hint));
    }
    if archive.delete_after_days.is_some()
        && !archive.recipients.is_empty()
        && archive.identity.is_none()
    {
        let key = "ledger.archive.delete_after_days";
        let message = format!(
            "`{key}` needs `ledger.archive.identity` where `ledger.archive.recipients` encrypt what is deleted: whether a hold keeps a segment is known to who reads it"
        );
        let hint = "set it, or delete by `ledger archive --delete --identity FILE`";
        problems.push(error(key, message).hint(hint));
    }
    let witness = &ledger.witness;
    if let Some(url) = &witness.url {
        const SCHEMES: &[&str] = &["https", "http"];
        let key = "ledger.witness.url";
        let error = |message: String| error(key, message).without_line();
        if !url.may_begin_with(&["https://", "http://"]) {
            let message = format!("`{key}` must begin with https:// or http://");
            problems.push(error(message).hint("write `https://witness.example/ledger`"));
        } else if let Some(why) = url.url_fault(SCHEMES) {
            problems.push(error(format!("`{key}` cannot be used: {why}")));
        }
    } else if witness.token.is_some() {
        let key = "ledger.witness.token";
        let message = format!("`{key}` is for a witness, and there is no `ledger.witness.url`");
        problems.push(error(key, message).hint("set `ledger.witness.url`, or leave the token out"));
    }
    if let Some(file) = &witness.file {
        let key = "ledger.witness.file";
        let others = [
            (&ledger.path, "the ledger"),
            (&ledger.checkpoints_file(), "the file of checkpoints"),
        ];
        for (_, what) in others.into_iter().filter(|(path, _)| *path == file) {
            let message = format!("`{key}` is {what} itself");
            let hint = "name a file on another volume, such as `/mnt/witness/shop`";
            problems.push(error(key, message).hint(hint));
        }
    }
    let stamps = &ledger.timestamps;
    if let Some(url) = &stamps.url {
        const SCHEMES: &[&str] = &["https", "http"];
        let key = "ledger.timestamps.url";
        let error = |key: &str, message: String| error(key, message).without_line();
        if !url.may_begin_with(&["https://", "http://"]) {
            let message = format!("`{key}` must begin with https:// or http://");
            problems.push(error(key, message).hint("write `https://stamps.example/tsr`"));
        } else if let Some(why) = url.url_fault(SCHEMES) {
            problems.push(error(key, format!("`{key}` cannot be used: {why}")));
        }
        if stamps.certificates.is_none() {
            let message = format!("`{key}` names an authority, and no certificate is believed");
            let hint = "name the file of its root: `ledger.timestamps.certificates`";
            problems.push(error(key, message).hint(hint));
        }
        if ledger.url.is_some() && stamps.file.is_none() {
            let message =
                "a ledger in PostgreSQL has no place for time-stamps beside it".to_owned();
            problems.push(error(key, message).hint("name a file: `ledger.timestamps.file`"));
        }
    } else if stamps.file.is_some() && stamps.certificates.is_none() {
        let key = "ledger.timestamps.file";
        let message = format!("`{key}` is for time-stamps, and no certificate is believed");
        problems.push(error(key, message).hint("set `ledger.timestamps.certificates`"));
    }
    if let Some(url) = &ledger.url {
        // The line may hold a password.
        let error = |key: &str, message: String| error(key, message).without_line();
        if origins.contains_key("ledger.path") {
            let message = "`ledger.url` and `ledger.path` are two ledgers".to_owned();
            problems.push(error("ledger.url", message).hint("keep one of the two"));
        }
        if !url.may_begin_with(&["postgres://", "postgresql://"]) {
            let message = "`ledger.url` must be the address of a PostgreSQL database".to_owned();
            let hint = "write `postgres://user:${PASSWORD}@host/database`";
            problems.push(error("ledger.url", message).hint(hint));
        } else if url.has_bad_port() {
            let message =
                "`ledger.url` cannot be used: its port is no number from 1 to 65535".to_owned();
            let hint = "write `postgres://user:${PASSWORD}@host:5432/database`";
            problems.push(error("ledger.url", message).hint(hint));
        }
    }
    if let Err(why) = Redactor::new(&config.redaction.spec(), [0; 32]) {
        let key = match &why {
            BadSpec::Key(_) => "redaction.keys".to_owned(),
            BadSpec::Pointer { capability, .. } => {
                let tool = capability.strip_prefix("tool/").unwrap_or(capability);
                child("redaction.pointers", tool)
            }
            BadSpec::Pattern => "redaction.pointers".to_owned(),
        };
        let message = format!("`{key}`: {why}");
        problems.push(error(&key, message));
    }
    rules::check(&config.governance, origins, problems);
    unmatched::check_addresses(config, origins, problems);
    crate::sections::commands::check(&config.commands, origins, problems);
    crate::sections::services::check(&config.services, origins, problems);
    crate::sections::databases::check(&config.resources.databases, origins, problems);
    crate::sections::service_resources::check(config, origins, problems);
    crate::sections::files::check(config, origins, problems);
    crate::sections::registry::check(&config.registry, origins, problems);
    crate::sections::results::check(config, origins, problems);
    search_view(config, origins, problems);
    crate::sections::upstreams::check(config, origins, problems);
    crate::sections::upstreams::warn_of_secrets(config, origins, problems);
    crate::sections::alerts::check(&config.alerts, origins, problems);
    crate::sections::costs::check(config, origins, problems);
    crate::sections::desk::check(config, origins, problems);
    crate::sections::filters::check(config, origins, problems);
    crate::sections::temporal::check(config, origins, problems);
    crate::sections::telemetry::check(&config.telemetry, origins, problems);
    crate::sections::identity::check(config, origins, problems);
    crate::sections::tls::check(http, origins, problems);
}

/// Adds warnings about a search view that nobody has, or that roles have which nobody describes.
fn search_view(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let (view, key) = (&config.tools.search_view, "tools.search_view");
    if view.clients.is_empty() && view.roles.is_empty() && origins.contains_key(key) {
        let message = format!("`{key}` is nobody's: it has neither `clients` nor `roles`");
        let problem = Problem::warning(origin_near(origins, key), message).key(key);
        problems.push(problem.hint("name the clients that have it, or leave it out"));
    }
    config
        .governance
        .warn_of_unknown(&view.roles, &child(key, "roles"), origins, problems);
}
