//! Rules as they would be with another text in the configuration file, and the file read again at once.

use std::path::PathBuf;
use std::sync::Arc;

use governance::Policy;

use super::build::Server;
use super::reading::Reading;
use super::upstreams::Declared;
use super::{application, offering, policy, upstreams};
use config::{Change, Config, Loaded, Origin, Problem, Rejected, Severity};

/// Section of the rules.
const SECTION: &str = "governance";

/// Rules that a text of the configuration file would put in force.
#[derive(Debug)]
pub struct Draft {
    /// The rules, as they decide.
    pub policy: Arc<Policy>,
    /// Settings that differ from those that the file has now.
    pub changes: Vec<Change>,
    /// Keys of those that take effect at the next start.
    pub at_restart: Vec<String>,
    /// Oddities with which the rules can be used.
    pub warnings: Vec<Problem>,
}

/// Parts of a configuration that are put in force.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) policy: Policy,
    pub(super) declared: Declared,
    /// Rules that the application does not heed, as warnings.
    pub(super) unheeded: Vec<Problem>,
    /// Rules that match nothing on offer, as warnings.
    pub(super) unmatched: Vec<Problem>,
}

impl Server {
    /// The configuration file, absolute; `None` where the configuration is given in code.
    pub fn file(&self) -> Option<PathBuf> {
        self.reading.source.path()
    }

    /// True if rules stand in that file, and not in one that it inherits from.
    pub fn has_own_rules(&self) -> bool {
        self.reading.at_start.has_own_rules()
    }

    /// Rules as they would be in force with `text` in the place of the configuration file, checked like those of a
    /// file that has changed. Reads files.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with places in `text`. A text that changes anything else than rules is refused.
    pub fn draft(&self, text: &str) -> Result<Draft, Rejected> {
        let Reading {
            source, at_start, ..
        } = &self.reading;
        let present = source.load().ok();
        let loaded = source.reload_as(text, present.as_ref().unwrap_or(at_start))?;
        if loaded.has_secret_rules() {
            let message = "`governance.approvals.http_token` would be written out in the file";
            let hint = "write a reference to a variable, such as `${HTTP_TOKEN}`";
            return Err(rejected(
                Problem::error(Origin::Default, message).hint(hint),
            ));
        }
        let before = match present {
            Some(present) => present.config,
            // It has mistakes, which may be those that the text mends.
            None => Config {
                governance: self.governance(),
                ..self.config.clone()
            },
        };
        let found = before.changes_to(&loaded.config);
        let is_rule = |key: &str| {
            let rest = key.strip_prefix(SECTION);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let live = found.live.iter().map(|it| it.key.as_str());
        let mut keys = live.chain(found.at_restart.iter().map(String::as_str));
        if let Some(key) = keys.find(|key| !is_rule(key)) {
            let message = format!("this would change `{key}`, which is no rule");
            return Err(rejected(Problem::error(Origin::Default, message)));
        }
        let config = self.config.with_live_settings_of(&loaded.config);
        let prepared = self.prepared(&config, &loaded);
        let prepared = prepared.map_err(|problems| Rejected { problems })?;
        let told = prepared.unheeded.into_iter().chain(prepared.unmatched);
        Ok(Draft {
            policy: Arc::new(prepared.policy),
            changes: found.live,
            at_restart: found.at_restart,
            warnings: loaded.warnings.into_iter().chain(told).collect(),
        })
    }

    /// Reads the configuration file and the decisions on definitions of upstreams again, and waits until what they
    /// say is in force.
    ///
    /// # Errors
    ///
    /// The first reason why what the configuration file says is not.
    pub async fn look_again(&self) -> Result<(), String> {
        self.reading.again().await
    }

    /// Parts of `config`, which `loaded` gives, as they would be put in force.
    ///
    /// # Errors
    ///
    /// The reasons why they cannot be.
    pub(super) fn prepared(
        &self,
        config: &Config,
        loaded: &Loaded,
    ) -> Result<Prepared, Vec<Problem>> {
        let catalog = Arc::clone(&self.skills.borrow());
        let offer = self.mcp.offer();
        let unheeded = loaded.unheeded(&application::governed_elsewhere(self.sources.app()));
        let unmatched = loaded.unmatched(&offering::on_offer(
            &offer,
            &catalog,
            &self.sources,
            &self.filters,
            &self.standing.lost(),
        ));
        let mut all = unheeded.iter().chain(&unmatched);
        if all.any(|it| it.severity == Severity::Error) {
            return Err([unheeded, unmatched].concat());
        }
        let policy = policy::policy(config, &catalog, &offer)
            .map_err(|error| vec![Problem::error(Origin::Default, crate::with_causes(&error))])?;
        let declared = upstreams::declared_after(config, &self.declared())
            .map_err(|error| vec![Problem::error(Origin::Default, error.to_string())])?;
        Ok(Prepared {
            policy,
            declared,
            unheeded,
            unmatched,
        })
    }
}

fn rejected(problem: Problem) -> Rejected {
    Rejected {
        problems: vec![problem],
    }
}
