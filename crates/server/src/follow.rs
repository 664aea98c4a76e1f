//! Changes while the server runs: skills, handlers and rules.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use adapter_skills::SkillCatalog;
use mcp_server::Offer;

use super::build::{self, Server};
use super::draft::Prepared;
use super::file_watch::FileWatch;
use super::notes::{self, PolicyChange};
use super::prompts::InForce;
use super::rules::{Cause, Found, Rules, summary};
use super::{application, offering, policy, upstreams};
use config::{Change, Config, Origin, Problem, Severity};

impl Server {
    /// Puts on offer what has changed, skills on disk and sources of tools, and rules in force. Does not end by
    /// itself.
    pub(super) async fn follow_changes(&self, mut rules: Rules) {
        let mut skills = self.skills.clone();
        let mut sources = self.sources.changes();
        let subscriptions = Arc::clone(self.mcp.engine().subscriptions());
        let mut listened = subscriptions.resources_changed();
        listened.mark_changed();
        let gateway = self.sources.gateway();
        let mut updates = gateway.updates();
        let mut prompts = self.sources.prompts_in_force();
        let mut pins = gateway.pins_path().map(FileWatch::start);
        let mut requests = self.reading.requests();
        let mut unread = None;
        let mut is_watching = true;
        self.note_unread_skills(&skills.borrow(), &mut unread, "skills");
        // What has changed since the server read it and before it watched.
        let _ = self.reload(&mut rules, Cause::File).await;
        gateway.pins_changed();
        self.note_pins();
        loop {
            let pins_changed = async {
                match &mut pins {
                    Some(pins) => pins.changed().await,
                    None => pending().await,
                }
            };
            let skills_changed = async {
                match is_watching {
                    true => skills.changed().await.is_ok(),
                    false => pending().await,
                }
            };
            let cause = tokio::select! {
                goes_on = skills_changed => if goes_on {
                    "skills"
                } else {
                    is_watching = false;
                    tracing::error!(
                        hint = "restart the server; what else it reads is followed all the same",
                        "skills are not followed any more"
                    );
                    continue;
                },
                () = sources.next() => "offer",
                () = pins_changed => {
                    gateway.pins_changed();
                    self.note_pins();
                    continue;
                }
                cause = rules.changed() => {
                    // The log, health and the ledger tell of a file that is wrong.
                    let _ = self.reload(&mut rules, cause).await;
                    continue;
                }
                Ok(()) = requests.changed() => {
                    let request = *requests.borrow_and_update();
                    gateway.pins_changed();
                    self.note_pins();
                    let outcome = self.reload(&mut rules, Cause::Desk).await;
                    self.reading.meet(request, outcome);
                    continue;
                }
                changed = self.sources.changed_resources() => {
                    changed.iter().for_each(|uri| self.mcp.resource_changed(uri));
                    continue;
                }
                _ = listened.changed() => {
                    self.sources.listen_to(self.mcp.heard_resources());
                    continue;
                }
                updated = updates.recv() => {
                    match updated {
                        Ok(uri) => self.mcp.resource_changed(&uri),
                        // Which ones it was is not known any more.
                        Err(_) => subscriptions
                            .resources()
                            .iter()
                            .for_each(|uri| self.mcp.resource_changed(uri)),
                    }
                    continue;
                }
            };
            let catalog = Arc::clone(&skills.borrow_and_update());
            self.note_prompts(&mut prompts);
            self.note_unread_skills(&catalog, &mut unread, "skills");
            self.refresh(&catalog, &rules, cause);
            self.note_pins();
        }
    }

    /// Records which prompts have another version or text in force than `before`.
    fn note_prompts(&self, before: &mut InForce) {
        let now = self.sources.prompts_in_force();
        let names: BTreeSet<_> = before.keys().chain(now.keys()).collect();
        for name in names {
            let (from, to) = (before.get(name), now.get(name));
            if from != to {
                notes::prompt_changed(self.mcp.recorder(), self.policy_version(), name, from, to);
            }
        }
        *before = now;
    }

    /// Records that not all skills can be read, once for each reason.
    fn note_unread_skills(&self, catalog: &SkillCatalog, before: &mut Option<String>, cause: &str) {
        let now = catalog.incomplete().map(|hold| hold.problem.clone());
        if let Some(problem) = now.as_ref().filter(|_| now != *before) {
            let problems = [Problem::error(Origin::Default, problem.clone())];
            let version = self.policy_version();
            notes::policy_rejected(
                self.mcp.recorder(),
                version,
                cause,
                Path::new("skills"),
                &problems,
            );
        }
        *before = now;
    }

    /// Records which definitions of upstreams are held now, and which were approved.
    fn note_pins(&self) {
        for event in self.sources.gateway().take_pin_events() {
            notes::pin_changed(self.mcp.recorder(), self.policy_version(), &event);
        }
    }

    /// Puts rules in force that have changed, all at once.
    ///
    /// # Errors
    ///
    /// The first reason why what the file says is not in force.
    async fn reload(&self, rules: &mut Rules, cause: Cause) -> Result<(), String> {
        if cause == Cause::Signal {
            // Somebody has looked, and means it.
            self.watching.forget();
            // That nothing is forgotten is on record as well.
            self.note_unread_skills(&self.skills.borrow(), &mut None, cause.as_str());
        }
        if cause == Cause::HostFile {
            self.reload_host_files(rules).await;
            return Ok(());
        }
        let changed = match rules.look().await {
            Found::Same => {
                if cause == Cause::Signal {
                    self.reload_host_files(rules).await;
                }
                rules.same(cause);
                return Ok(());
            }
            Found::Wrong(problems) => return self.reject(rules, cause, &problems),
            Found::Changed(changed) => changed,
        };
        let prepared = match self.prepared(&changed.config, changed.loaded()) {
            Ok(prepared) => prepared,
            Err(problems) => return self.reject(rules, cause, &problems),
        };
        let Prepared {
            policy,
            declared,
            unheeded,
            unmatched,
        } = prepared;
        let versions = (self.policy_version(), policy.version());
        let noted: Vec<_> = changed
            .live
            .iter()
            .filter(|it| is_rule(it))
            .map(shown)
            .collect();
        if !noted.is_empty() {
            let change = PolicyChange {
                versions,
                cause: cause.as_str(),
                file: &rules.path(),
                changes: &noted,
            };
            notes::policy_changed(self.mcp.recorder(), &change);
        }
        if versions.0 != versions.1 {
            self.mcp.replace_policy(policy);
        }
        {
            let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
            *in_force = in_force.with_live_settings_of(&changed.config);
        }
        // What this changes of the offer is followed like any other change of a source.
        self.apply_upstreams(rules, declared, cause);
        self.sources.gateway().first_look(Duration::ZERO).await;
        self.level.set(changed.config.logging.level);
        self.mcp
            .log_requests(build::request_log(&changed.config.logging));
        tracing::info!(
            cause = cause.as_str(),
            policy_version = versions.1,
            settings = changed.live.len(),
            "the rules have changed"
        );
        rules.accept(*changed);
        self.reading.is_in_force(rules.loaded());
        self.standing.rules(unheeded, unmatched);
        self.settle(&self.mcp.offer());
        Ok(())
    }

    /// Uses the upstreams that files of hosts have now. A file that is there and cannot be read changes nothing:
    /// it may be half written.
    async fn reload_host_files(&self, rules: &Rules) {
        let declared = match upstreams::declared_after(rules.config(), &self.declared()) {
            Ok(declared) => declared,
            Err(error) => {
                tracing::error!(error = &*error, "upstreams stay as they are");
                return;
            }
        };
        if !self.apply_upstreams(rules, declared, Cause::HostFile) {
            return;
        }
        let version = self.policy_version();
        let change = PolicyChange {
            versions: (version, version),
            cause: Cause::HostFile.as_str(),
            file: &rules.path(),
            changes: &[Change {
                key: "upstreams_files".to_owned(),
                from: None,
                to: None,
            }],
        };
        notes::policy_changed(self.mcp.recorder(), &change);
        self.sources.gateway().first_look(Duration::ZERO).await;
        tracing::info!("the upstreams of a host's file have changed");
    }

    /// Uses these upstreams. Health and the ledger tell of a file of a host that cannot be read, whose upstreams are those
    /// of before. True if any are others than before.
    fn apply_upstreams(&self, rules: &Rules, declared: upstreams::Declared, cause: Cause) -> bool {
        for warning in &declared.warnings {
            tracing::warn!(warning, "a part of a host's file is of no use");
        }
        let problems = declared.broken.iter().map(|reason| {
            tracing::error!(
                reason,
                "a host's file cannot be read; its upstreams stay as they are"
            );
            Problem::error(Origin::Default, reason.clone())
        });
        let problems: Vec<_> = problems.collect();
        if !problems.is_empty() {
            let (recorder, version) = (self.mcp.recorder(), self.policy_version());
            notes::policy_rejected(recorder, version, cause.as_str(), &rules.path(), &problems);
        }
        rules.set_broken_host_files(declared.broken.clone());
        let mut known = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone_from(&declared.upstreams);
        drop(known);
        self.sources.gateway().apply(declared.specs())
    }

    /// The upstreams that are in use, with the files of hosts that they stand in.
    pub(super) fn declared(&self) -> Vec<upstreams::DeclaredUpstream> {
        let known = self.declared.lock();
        known.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reject(&self, rules: &Rules, cause: Cause, problems: &[Problem]) -> Result<(), String> {
        rules.reject(problems);
        let recorder = self.mcp.recorder();
        let version = self.policy_version();
        notes::policy_rejected(recorder, version, cause.as_str(), &rules.path(), problems);
        Err(summary(problems))
    }

    fn refresh(&self, catalog: &Arc<SkillCatalog>, rules: &Rules, cause: &str) {
        let config: &Config = rules.config();
        let (offer, lost) = offering::offer(config, &self.sources, catalog);
        let on_offer = offering::on_offer(&offer, catalog, &self.sources, &self.filters, &lost);
        self.sources.offered(&offer);
        self.standing.offered(config, catalog, offer.tools(), lost);
        self.standing.remember(catalog, offer.tools());
        let loaded = rules.loaded();
        let unheeded = loaded.unheeded(&application::governed_elsewhere(self.sources.app()));
        let unmatched = loaded.unmatched(&on_offer);
        let error = unmatched.iter().find(|it| it.severity == Severity::Error);
        let held = match error {
            Some(error) => self.hold_news(&offer, error),
            None => {
                self.settle(&offer);
                BTreeMap::new()
            }
        };
        self.standing.rules(unheeded, unmatched);
        match policy::holding(config, catalog, &offer, &held) {
            Ok(policy) => {
                let versions = (self.policy_version(), policy.version());
                if versions.0 != versions.1 {
                    let change = PolicyChange {
                        versions,
                        cause,
                        file: &rules.path(),
                        changes: &[],
                    };
                    notes::policy_changed(self.mcp.recorder(), &change);
                }
                self.mcp.replace(offer, policy);
            }
            // The rules are those of the policy in force, so this cannot be; keep that one.
            Err(error) => {
                tracing::error!(%error, "the policy could not be made anew");
                self.mcp.replace_offer(offer);
            }
        }
        tracing::info!(skills = catalog.len(), "what is on offer has changed");
    }

    /// Notes that every rule matches something on offer.
    fn settle(&self, offer: &Offer) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        *settled = offering::capabilities(offer);
        self.standing.news(Vec::new());
    }

    /// Tools and resources that are new since every rule last matched something, and tools whose arguments are others, each
    /// with the reason to hold it back: a rule that matches nothing now may have been about it, under another name.
    fn hold_news(&self, offer: &Offer, error: &Problem) -> BTreeMap<String, String> {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let now = offering::capabilities(offer);
        let news = now.iter();
        let news = news.filter(|(name, definition)| settled.get(*name) != Some(definition));
        let news: Vec<_> = news.map(|(name, _)| name).collect();
        let told = news.iter().map(|name| {
            let what = match settled.contains_key(*name) {
                true => "its arguments have changed",
                false => "it is new",
            };
            let message = format!(
                "{name} is held back: {what}, and a rule matches nothing any more: {}",
                error.message
            );
            Problem::warning(error.origin.clone(), message).hint_if(error.hint.clone())
        });
        self.standing.news(told.collect());
        let why = |name: &&String| ((*name).clone(), error.message.clone());
        news.iter().map(why).collect()
    }

    pub(super) fn policy_version(&self) -> u64 {
        self.mcp.governor().policy().version()
    }
}

/// A change as it may be recorded: values of upstreams can be secrets that were written out.
fn shown(change: &Change) -> Change {
    match change.key.starts_with("upstreams.") {
        true => Change {
            key: change.key.clone(),
            from: None,
            to: None,
        },
        false => change.clone(),
    }
}

/// All that can change while the server runs belongs to the rules, but for how much it says.
fn is_rule(change: &Change) -> bool {
    !change.key.starts_with("logging.")
}
