//! Checks of the machine, and of file permissions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::{Config, Loaded, Transport};
use server::Finding;
use server::private;

/// Earliest plausible time, 2026-01-01: this program is younger, so an earlier clock is wrong.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// Sockets, files of the ledger, pipes of workers.
const OTHER_FILES: u64 = 256;

/// The files of the configuration itself.
pub(super) fn files(loaded: &Loaded) -> Vec<Finding> {
    let Some(file) = &loaded.file else {
        return Vec::new();
    };
    // A reference is not worth hiding.
    match loaded.has_written_secrets() {
        true => {
            let found = private("secrets", file).map(|it| {
                let message = format!("{}, and there is a secret in it", it.message);
                Finding { message, ..it }
            });
            found.into_iter().collect()
        }
        false => Vec::new(),
    }
}

pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    if now < EARLIEST {
        let finding = Finding::error("clock", "the clock is years behind");
        findings.push(finding.hint("set it right: budgets, tokens and certificates go by it"));
    }
    if config.transport == Transport::Http {
        findings.extend(open_files(config));
    }
    findings
}

/// A connection takes a file of the process.
fn open_files(config: &Config) -> Option<Finding> {
    const AREA: &str = "open files";
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let limit = soft_limit(&limits, "Max open files")?;
    let sessions = u64::try_from(config.http.max_sessions).unwrap_or(u64::MAX);
    let wanted = sessions.min(4_096) + OTHER_FILES;
    Some(match limit {
        limit if wanted <= limit => Finding::ok(AREA, format!("{limit} may be open")),
        limit => Finding::warning(AREA, format!("only {limit} may be open at once")).hint(format!(
            "ulimit -n {wanted}, or LimitNOFILE={wanted} in the unit"
        )),
    })
}

fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 524288               files\n\
                      Max locked memory         unlimited            8388608              bytes\n";
        assert_eq!(soft_limit(limits, "Max open files"), Some(1_024));
        assert_eq!(soft_limit(limits, "Max locked memory"), Some(u64::MAX));
        assert_eq!(soft_limit(limits, "Max processes"), None);
    }
}
