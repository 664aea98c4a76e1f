//! Tools that are held back or not on offer, and rules that are about nothing: told in the log when
//! they become so, and in `/health` for as long as they are.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adapter_skills::{SkillCatalog, SkillMemory};
use adapter_tools::{Tool, ToolSet};
use mcp_server::{Component, ComponentState};

use crate::Failure;
use config::{Config, Origin, Problem, Severity, UnmatchedRules};
use mcp_server::NotOffered;

/// Name of the component of `/health` for the offer.
pub(super) const COMPONENT: &str = "offer";

/// `/health` shows at most so many problems.
const MAX_SHOWN: usize = 5;

/// Problems of the tools and resources on offer, and of rules for them.
#[derive(Debug)]
pub(super) struct Standing(Mutex<State>);

#[derive(Debug)]
struct State {
    offer: Vec<Problem>,
    /// Settings of the application that do not hold here, and do elsewhere.
    unheeded: Vec<Problem>,
    /// Rules that match nothing.
    unmatched: Vec<Problem>,
    /// Tools and resources that are new, and held back since a rule may have been about them.
    news: Vec<Problem>,
    lost: Vec<NotOffered>,
    memory: SkillMemory,
    /// The problem of a memory that cannot be written.
    forgetful: Vec<Problem>,
}

impl Standing {
    pub(super) fn new(memory: SkillMemory) -> Self {
        Self(Mutex::new(State {
            offer: Vec::new(),
            unheeded: Vec::new(),
            unmatched: Vec::new(),
            news: Vec::new(),
            lost: Vec::new(),
            memory,
            forgetful: Vec::new(),
        }))
    }

    /// Remembers, for the next process, which tools have a skill.
    pub(super) fn remember(&self, catalog: &SkillCatalog, tools: &ToolSet) {
        let names: BTreeSet<&str> = tools.iter().map(Tool::own_name).collect();
        let mut state = self.state();
        let kept = state.memory.keep(catalog, |name| names.contains(name));
        let forgetful = kept.err().map(|error| {
            let path = state.memory.path().display();
            let message = format!(
                "{path} cannot be written ({error}): a tool whose skill is deleted before the next start \
                 can be called without that skill's rules then"
            );
            Problem::warning(Origin::Default, message)
                .hint("let the server write beside `ledger.path`, also with `ledger.url`")
        });
        let forgetful = Vec::from_iter(forgetful);
        tell(&state.forgetful, &forgetful);
        state.forgetful = forgetful;
    }

    /// Notes the problems of the present offer, and returns those that are new. A difference that
    /// the operator has asked for is no problem.
    pub(super) fn offered(
        &self,
        config: &Config,
        catalog: &SkillCatalog,
        tools: &ToolSet,
        mut lost: Vec<NotOffered>,
    ) {
        lost.retain(|it| !config.switches.off.contains_key(&it.tool));
        let problems = problems(config, catalog, tools, lost.clone());
        let mut state = self.state();
        tell(&state.offer, &problems);
        state.offer = problems;
        state.lost = lost;
    }

    /// Notes the new and held back tools and resources, and returns those that were not so before.
    pub(super) fn news(&self, news: Vec<Problem>) {
        let mut state = self.state();
        tell(&state.news, &news);
        state.news = news;
    }

    /// The tools that cannot be offered.
    pub(super) fn lost(&self) -> Vec<NotOffered> {
        self.state().lost.clone()
    }

    /// Notes the settings of the application that do not hold here, and the rules that match nothing.
    pub(super) fn rules(&self, unheeded: Vec<Problem>, unmatched: Vec<Problem>) {
        let mut state = self.state();
        tell(&state.unheeded, &unheeded);
        tell(&state.unmatched, &unmatched);
        (state.unheeded, state.unmatched) = (unheeded, unmatched);
    }

    /// Component of `/health` for the offer. A rule that matches nothing is a failure: what it was to
    /// guard is free, whether it was misspelt before the start or since.
    pub(super) fn component(standing: &Arc<Self>) -> Component {
        let standing = Arc::clone(standing);
        Component::new(move || {
            let state = standing.state();
            let all = state.forgetful.iter().chain(&state.offer);
            let all = all.chain(&state.news).chain(&state.unmatched);
            let all = all.chain(&state.unheeded);
            let mut shown: Vec<String> = all.map(said).collect();
            let more = shown.len().saturating_sub(MAX_SHOWN);
            shown.truncate(MAX_SHOWN);
            if 0 < more {
                shown.push(format!("and {more} more"));
            }
            ComponentState {
                name: COMPONENT,
                ok: [
                    &state.offer,
                    &state.news,
                    &state.forgetful,
                    &state.unmatched,
                ]
                .iter()
                .all(|it| it.is_empty()),
                detail: (!shown.is_empty()).then(|| shown.join("; ")),
            }
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every tool whose skill cannot be used or is gone, every one that is not on offer, and every skill whose
/// name another one has.
pub(super) fn problems(
    config: &Config,
    catalog: &SkillCatalog,
    tools: &ToolSet,
    lost: Vec<NotOffered>,
) -> Vec<Problem> {
    let warning = |message: String| Problem::warning(Origin::Default, message);
    let is_strict = config.governance.unmatched_rules == UnmatchedRules::Error;
    let incomplete = catalog.incomplete().map(|hold| {
        warning(format!(
            "{}: rules of skills that were known stay in force, and each tool without one is held back",
            hold.problem
        ))
        .hint(hold.hint)
    });
    let held = mcp_server::held(catalog, tools, is_strict).map(|(tool, hold)| {
        let name = tool.name();
        warning(format!("the tool `{name}` is held back: {}", hold.problem)).hint(hold.hint)
    });
    let gone = catalog.gone().filter(|(name, _)| {
        let mut tools = tools.iter();
        tools.any(|tool| tool.own_name() == *name)
    });
    let gone = gone.map(|(name, path)| {
        let path = path.display();
        warning(format!(
            "no skill is about the tool `{name}` any more, as {path} was; the rules that it stated \
             stay in force"
        ))
        .hint(match catalog.incomplete() {
            None => {
                "put it back; or send SIGHUP to have them forgotten; after a restart the tool is held back"
            }
            Some(_) => "put it back; nothing is forgotten before all skills can be read",
        })
    });
    let lost = lost.into_iter().map(|lost| {
        let place = lost.place.map(|place| format!(" ({place})"));
        let place = place.unwrap_or_default();
        let NotOffered { tool, why, .. } = lost;
        warning(format!("the tool `{tool}`{place} cannot be offered: {why}"))
            .hint("correct it where the tool is defined")
    });
    let duplicates = catalog.duplicates().iter();
    let duplicates = duplicates.map(|it| warning(it.problem.clone()).hint(it.hint));
    let all = incomplete.into_iter().chain(held).chain(duplicates);
    all.chain(gone).chain(lost).collect()
}

/// Rules that cannot do what they say, so that the configuration is invalid, although only what is on offer shows it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRules(String);

/// # Errors
///
/// [`InvalidRules`]: all problems that are errors, with their places.
pub(super) fn refuse(problems: &[Problem]) -> Result<(), Failure> {
    let errors = problems.iter().filter(|it| it.severity == Severity::Error);
    let errors: Vec<String> = errors.map(said).collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(InvalidRules(errors.join("\n")).into()),
    }
}

fn tell(before: &[Problem], now: &[Problem]) {
    let known: BTreeSet<&str> = before.iter().map(|it| it.message.as_str()).collect();
    for problem in now {
        if !known.contains(problem.message.as_str()) {
            tracing::warn!(
                problem = problem.message,
                origin = %problem.origin,
                hint = problem.hint,
                "a tool, resource or prompt, or a rule for one, has a fault"
            );
        }
    }
}

fn said(problem: &Problem) -> String {
    let place = match &problem.origin {
        Origin::Default => String::new(),
        origin => format!("{origin}: "),
    };
    let hint = problem.hint.as_ref();
    let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{place}{}{hint}", problem.message)
}
