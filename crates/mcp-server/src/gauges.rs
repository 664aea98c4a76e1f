//! Gauges scraped from the ledger, the engine, the governor and the tasks.

use crate::{
    mcp_server::McpServer,
    observe::pull_collector::{Buckets, Kind},
};
use governance::QuotaStore;
use ledger::COMMIT_BUCKETS;
use std::{sync::Arc, time::SystemTime};

/// A number of the ledger's: its name, what it says, and where it is.
type Figure<N> = (&'static str, &'static str, fn(&ledger::Health) -> N);

impl<Q: QuotaStore> McpServer<Q> {
    /// Registers the gauges. Whatever they read lives as long as the server.
    pub(crate) fn add_readings(&self) {
        self.read_process();
        self.read_requests();
        self.read_ledger();
        self.read_health();
    }

    fn read_process(&self) {
        let metrics = self.metrics();
        let version = self.health().version;
        metrics.read(
            Kind::Gauge,
            "owlclaw_mcp_build_info",
            "Always 1; its label says which version runs.",
            &["version"],
            move |samples| samples.push(&[&version], 1.0),
        );
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started = started.unwrap_or_default().as_secs_f64();
        metrics.read_one(
            Kind::Gauge,
            "owlclaw_mcp_start_time_seconds",
            "When the server started, in seconds since the epoch.",
            move || started,
        );
        let governor = Arc::clone(self.governor());
        metrics.read_one(
            Kind::Gauge,
            "owlclaw_mcp_policy_version",
            "The version of the policy in force; it goes up with every change of it.",
            move || number(governor.policy().version()),
        );
    }

    fn read_requests(&self) {
        let metrics = self.metrics();
        let engine = Arc::downgrade(self.engine());
        metrics.read_one(
            Kind::Gauge,
            "owlclaw_mcp_requests_accepted",
            "Requests that were accepted and not yet answered: those being handled, and those that \
             wait for a place.",
            move || engine.upgrade().map_or(0.0, |it| count(it.in_flight())),
        );
        let subscriptions = Arc::clone(self.engine().subscriptions());
        metrics.read_one(
            Kind::Gauge,
            "owlclaw_mcp_subscriptions",
            "Who is told of changes: sessions, and streams of `subscriptions/listen`.",
            move || count(subscriptions.len()),
        );
        if let Some(tasks) = self.tasks() {
            let tasks = Arc::clone(tasks);
            metrics.read_one(
                Kind::Gauge,
                "owlclaw_mcp_tasks_running",
                "Tasks whose calls are under way here.",
                move || count(tasks.running()),
            );
        }
    }

    fn read_ledger(&self) {
        let metrics = self.metrics();
        let gauges: [Figure<f64>; 4] = [
            (
                "owlclaw_mcp_ledger_up",
                "1 while calls can be recorded, and so begin; 0 while they cannot.",
                |health| f64::from(u8::from(health.is_ok())),
            ),
            (
                "owlclaw_mcp_ledger_open_calls",
                "Calls that have begun and not ended, as the ledger has it.",
                |health| count(health.open_calls),
            ),
            (
                "owlclaw_mcp_ledger_unwritten_entries",
                "Entries that wait to be stored.",
                |health| number(health.unwritten_entries),
            ),
            (
                "owlclaw_mcp_ledger_lag_seconds",
                "How long the oldest entry has waited that is not yet stored.",
                |health| health.lag.as_secs_f64(),
            ),
        ];
        for (name, help, value) in gauges {
            let recorder = self.recorder().clone();
            metrics.read_one(Kind::Gauge, name, help, move || value(&recorder.health()));
        }
        let counters: [Figure<u64>; 3] = [
            (
                "owlclaw_mcp_ledger_entries_total",
                "Entries stored by this server.",
                |health| health.committed_entries,
            ),
            (
                "owlclaw_mcp_ledger_commits_total",
                "Groups of entries stored by this server, each in one transaction.",
                |health| health.committed_groups,
            ),
            (
                "owlclaw_mcp_ledger_failures_total",
                "Attempts to store a group that have failed.",
                |health| health.failures,
            ),
        ];
        for (name, help, value) in counters {
            let recorder = self.recorder().clone();
            metrics.read_one(Kind::Counter, name, help, move || {
                number(value(&recorder.health()))
            });
        }
        let recorder = self.recorder().clone();
        metrics.read_histogram(
            "owlclaw_mcp_ledger_commit_seconds",
            "How long a group of entries took to be stored, in seconds.",
            move || {
                let commits = recorder.health().commits;
                Buckets {
                    bounds: &COMMIT_BUCKETS,
                    counts: commits.counts.to_vec(),
                    sum: commits.sum.as_secs_f64(),
                }
            },
        );
    }

    fn read_health(&self) {
        let components = Arc::clone(self.components());
        self.metrics().read(
            Kind::Gauge,
            "owlclaw_mcp_component_up",
            "1 while a part of the server works, as `/health` has it; 0 while it does not.",
            &["component"],
            move |samples| {
                for component in &*components {
                    let state = component.state();
                    samples.push(&[state.name], f64::from(u8::from(state.ok)));
                }
            },
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a diagram")]
fn number(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "for a diagram")]
fn count(value: usize) -> f64 {
    value as f64
}
