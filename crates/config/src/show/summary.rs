//! The configuration in a few lines, for the operator who starts the server.

use std::net::SocketAddr;

use serde::Serialize;

use crate::Loaded;
use crate::problem::printable;
use crate::sections::governance::Governance;
use crate::sections::{Config, Transport};

impl Config {
    /// Settings that matter at the start, one line each, without the name of the file.
    pub fn summary(&self) -> Vec<String> {
        let line = |name: &str, value: String| printable(&format!("{name:<14} {value}"));
        let mut lines = Vec::new();
        match self.transport {
            Transport::Stdio => lines.push(line("transport", "stdio".to_owned())),
            Transport::Http => {
                lines.push(line("transport", "http".to_owned()));
                if self.http.tcp {
                    let address = SocketAddr::new(self.http.host, self.http.port);
                    let scheme = if self.http.tls.enabled {
                        "https"
                    } else {
                        "http"
                    };
                    lines.push(line("address", format!("{scheme}://{address}/mcp")));
                }
                if let Some(path) = &self.http.unix_socket {
                    lines.push(line("unix socket", path.display().to_string()));
                }
                lines.push(line("identity", self.identity.summary()));
                if self.http.allow_anonymous && !self.identity.is_configured() {
                    lines.push(line(
                        "anonymous",
                        "clients are served unauthenticated".to_owned(),
                    ));
                }
            }
        }
        lines.push(line("application", self.application_summary()));
        if !self.commands.is_empty() {
            let names: Vec<&str> = self.commands.keys().map(String::as_str).collect();
            lines.push(line("commands", names.join(", ")));
        }
        if !self.services.openapi.is_empty() {
            let names: Vec<&str> = self.services.openapi.keys().map(String::as_str).collect();
            lines.push(line("services", names.join(", ")));
        }
        if !self.resources.files.is_empty() {
            let names: Vec<&str> = self.resources.files.keys().map(String::as_str).collect();
            lines.push(line("files", names.join(", ")));
        }
        if !self.resources.databases.is_empty() {
            let names: Vec<&str> = self
                .resources
                .databases
                .keys()
                .map(String::as_str)
                .collect();
            lines.push(line("databases", names.join(", ")));
        }
        if !self.resources.services.is_empty() {
            let names: Vec<&str> = self.resources.services.keys().map(String::as_str).collect();
            lines.push(line("services as resources", names.join(", ")));
        }
        if self.resources.search.enabled {
            lines.push(line("search", self.search_path().display().to_string()));
        }
        if !self.upstreams.is_empty() {
            let names: Vec<&str> = self.upstreams.keys().map(String::as_str).collect();
            lines.push(line("upstreams", names.join(", ")));
        }
        lines.push(line(
            "skills",
            match &self.resources.skills_dir {
                Some(directory) => directory.display().to_string(),
                None if self.app.is_some() => "those of the application".to_owned(),
                None => self.resources.default_dir().display().to_string(),
            },
        ));
        lines.push(line("tools", self.tools_summary()));
        lines.push(line("governance", self.governance.summary()));
        let durability = spelled(&self.ledger.durability);
        let ledger = match self.ledger.url {
            // The address may hold a password.
            Some(_) => "PostgreSQL, by ledger.url".to_owned(),
            None => self.ledger.path.display().to_string(),
        };
        lines.push(line("ledger", format!("{ledger} ({durability})")));
        let (level, format) = (spelled(&self.logging.level), spelled(&self.logging.format));
        let output = spelled(&self.logging.output);
        lines.push(line("logging", format!("{level} as {format} to {output}")));
        if self.development {
            lines.push(line(
                "development",
                "on: error answers carry stack traces".to_owned(),
            ));
        }
        lines
    }

    fn application_summary(&self) -> String {
        let workers = match (self.workers.count, self.workers.max_count) {
            (count, Some(most)) if count < most => format!("{count} to {most} workers"),
            (1, _) => "1 worker".to_owned(),
            (count, _) => format!("{count} workers"),
        };
        match (&self.app, &self.python) {
            (None, _) => "none".to_owned(),
            (Some(app), None) => format!("{app}, {workers}"),
            (Some(app), Some(python)) => format!("{app}, run by {python} in {workers}"),
        }
    }

    fn tools_summary(&self) -> String {
        format!(
            "timeout {} s, progress after {} s",
            self.tools.default_timeout_seconds, self.tools.async_threshold_seconds
        )
    }
}

/// A choice as the file spells it.
fn spelled(choice: &impl Serialize) -> String {
    match serde_json::to_value(choice) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a choice is a text, not {other:?}"),
    }
}

impl Governance {
    fn summary(&self) -> String {
        let rules = &self.rules;
        if !rules.enabled {
            return "off: every call is allowed".to_owned();
        }
        let quota = rules.default_quota;
        format!(
            "{:#} {currency} a month, {:#} {currency} a call, {} calls a minute, {} a day; \
             clients with rules: {}, tools with rules: {}",
            quota.monthly_budget,
            quota.max_cost_per_call,
            quota.max_calls_per_minute,
            quota.max_calls_per_day,
            rules.clients.len(),
            rules.tools.len(),
            currency = rules.currency,
        )
    }
}

impl Loaded {
    /// [`Config::summary`], with the files in front.
    pub fn summary(&self) -> Vec<String> {
        let file = match &self.file {
            Some(file) => printable(&file.display().to_string()),
            None => "no file, defaults only".to_owned(),
        };
        let first = format!("{:<14} {file}", "configuration");
        let others = self.others.iter().filter(|it| it.exists()).map(|it| {
            let path = it.display().to_string();
            let rank = self.ranks.get(&path).map_or("file", |it| it.name());
            format!("{rank:<14} {}", printable(&path))
        });
        let lines = [first].into_iter().chain(others);
        lines.chain(self.config.summary()).collect()
    }
}
