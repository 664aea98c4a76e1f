//! Rules together with roles that a caller brings along, prepared when they are first asked for.

use crate::{
    error::RulesOf,
    prepared::{PreparedRoles, PreparedRules, ViewId},
    spec::{PolicySpec, Rules},
};
use arc_swap::ArcSwap;
use std::{
    borrow::Cow,
    collections::HashMap,
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The most combinations of rules and roles that are kept prepared. What has no room is prepared
/// again when it is asked for: that takes longer and decides the same.
pub(crate) const MAX_COMBINATIONS: usize = 1_024;

/// The most roles that are looked up without allocating; few callers have more.
const FEW: usize = 16;

/// The rules for a caller.
#[derive(Debug)]
pub(crate) enum RulesFor<'a> {
    /// Rules of its name alone.
    OfName(&'a PreparedRules),
    /// Rules of its name with those of the roles that it brings along.
    Combined(Arc<PreparedRules>),
}

impl Deref for RulesFor<'_> {
    type Target = PreparedRules;

    fn deref(&self) -> &PreparedRules {
        match self {
            Self::OfName(rules) => rules,
            Self::Combined(rules) => rules,
        }
    }
}

/// Prepared rules, by the number of the rules and the sorted numbers of the roles.
type Table = HashMap<Arc<[u32]>, Arc<PreparedRules>>;

/// Combinations of rules and roles. Read without a lock; adding one copies the table.
#[derive(Debug)]
pub(crate) struct Combinations {
    prepared: ArcSwap<Table>,
    adding: Mutex<()>,
    next_view: AtomicU64,
}

impl Combinations {
    /// Views from `next_view` on belong to nobody yet.
    pub(crate) fn new(next_view: u64) -> Self {
        Self {
            prepared: ArcSwap::default(),
            adding: Mutex::default(),
            next_view: AtomicU64::new(next_view),
        }
    }

    /// The rules `base` together with those `roles` that the policy knows; `make` puts them
    /// together, and `alike` finds other rules that look like some.
    pub(crate) fn of<'a>(
        &self,
        base: &'a PreparedRules,
        roles: &[Arc<str>],
        known: &PreparedRoles,
        make: impl FnOnce(&[u32]) -> PreparedRules,
        alike: impl FnOnce(&PreparedRules) -> Option<ViewId>,
    ) -> RulesFor<'a> {
        let mut few = [0; FEW + 1];
        let mut many = Vec::new();
        let key = if roles.len() <= FEW {
            let mut len = 1;
            for number in roles.iter().filter_map(|role| known.number(role)) {
                few[len] = number;
                len += 1;
            }
            &mut few[..len]
        } else {
            many.push(0);
            many.extend(roles.iter().filter_map(|role| known.number(role)));
            &mut many[..]
        };
        let (first, numbers) = key.split_first_mut().expect("it has one place at least");
        if numbers.is_empty() {
            return RulesFor::OfName(base);
        }
        *first = base.number;
        numbers.sort_unstable();
        if let Some(rules) = self.prepared.load().get(&*key) {
            return RulesFor::Combined(Arc::clone(rules));
        }
        RulesFor::Combined(self.add(key, make, alike))
    }

    fn add(
        &self,
        key: &[u32],
        make: impl FnOnce(&[u32]) -> PreparedRules,
        alike: impl FnOnce(&PreparedRules) -> Option<ViewId>,
    ) -> Arc<PreparedRules> {
        let mut rules = make(&key[1..]);
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.prepared.load();
        if let Some(rules) = before.get(key) {
            return Arc::clone(rules); // somebody else was quicker
        }
        let among_these = || before.values().find(|it| it.looks_like(&rules));
        rules.view = alike(&rules)
            .or_else(|| among_these().map(|it| it.view))
            .unwrap_or_else(|| ViewId(self.next_view.fetch_add(1, Ordering::Relaxed)));
        let rules = Arc::new(rules);
        // Half of them go at once, whichever come last in a table that is in no order: nobody can
        // have each new one push out the next that is wanted.
        let kept = match before.len() < MAX_COMBINATIONS {
            true => before.len(),
            false => MAX_COMBINATIONS / 2,
        };
        let mut after: Table = before
            .iter()
            .take(kept)
            .map(|(key, rules)| (Arc::clone(key), Arc::clone(rules)))
            .collect();
        after.insert(key.into(), Arc::clone(&rules));
        self.prepared.store(Arc::new(after));
        rules
    }
}

/// The rules as they are configured that `principal` has by its name, and whose those are.
pub(crate) fn rules_by_name<'a>(spec: &'a PolicySpec, principal: &str) -> (&'a Rules, RulesOf) {
    match spec.principals.get(principal) {
        Some(rules) => (rules, RulesOf::Principal(principal.to_owned())),
        None => (&spec.default, RulesOf::Default),
    }
}

/// `rules` for a caller that brings roles along.
pub(crate) fn beside_roles(rules: &Rules) -> Cow<'_, Rules> {
    match &rules.beside_roles {
        None => Cow::Borrowed(rules),
        Some(access) => {
            let access = access.clone();
            Cow::Owned(Rules {
                visible: access.visible,
                hidden: access.hidden,
                allow: access.allow,
                deny: access.deny,
                ..rules.clone()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, Policy, RoleRules};

    #[test]
    fn no_more_than_some_are_kept() {
        let role = |bit: u32| (format!("r{bit:02}"), RoleRules::default());
        let policy = Policy::new(PolicySpec {
            roles: (0..11).map(role).collect(),
            ..PolicySpec::default()
        });
        let policy = policy.expect("it is sound");
        let kept = || policy.combinations.prepared.load().len();
        for set in 0..2_u32.pow(11) {
            let brought = (0..11).filter(|bit| set & (1 << bit) != 0);
            let roles: Vec<Arc<str>> = brought.map(|bit| role(bit).0.into()).collect();
            let caller = Caller {
                principal: "anna",
                roles: &roles,
            };
            assert!(policy.visible(caller, "tool/x"));
            assert!(kept() <= MAX_COMBINATIONS);
        }
        assert!(MAX_COMBINATIONS / 2 <= kept(), "nor are all forgotten");
    }

    #[test]
    fn what_nobody_knows_takes_no_room() {
        let policy = Policy::new(PolicySpec::default()).expect("it is sound");
        for number in 0..100 {
            let caller = Caller {
                principal: "anna",
                roles: &[Arc::from(format!("{number}"))],
            };
            assert!(policy.visible(caller, "tool/x"));
        }
        assert_eq!(policy.combinations.prepared.load().len(), 0);
    }
}
