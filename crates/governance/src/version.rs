//! The version of a policy: a digest of what it says.

use crate::{
    spec::{
        Access, BreakerSpec, CapabilityFacts, Condition, Confirmation, Effect, PolicySpec, Quota,
        RateLimits, Risk, RoleRules, Rules,
    },
    windows::TimeWindows,
};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// Beginning of the digest, so that another way of writing rules down gives other versions.
const FORMAT: &str = "governance policy 1";

/// Stands behind rules that have the default limits where they have none. Nothing else that can
/// stand there is as large, since numbers there are lengths; rules without it are written as they
/// were before there was any such thing.
const DEFAULT_LIMITS: u64 = u64::MAX;
/// Stands before what counts beside roles that are brought along, in the same way.
const BESIDE_ROLES: u64 = u64::MAX - 1;

/// Stands behind facts of what is held back, in the same way.
const HELD: u64 = u64::MAX - 2;

/// Bits of a version. A number has 53 in JSON wherever that is read; with these it has twelve digits at
/// the most besides, so that redaction takes none for the number of a payment card.
const BITS: u32 = 39;

/// The first bits of SHA-256 over everything in the spec, in an order that does not depend on how it
/// was written. Lists of patterns, roles and conditions are sets.
pub(crate) fn version_of(spec: &PolicySpec) -> u64 {
    let PolicySpec {
        default,
        principals,
        roles,
        capabilities,
        default_estimated_cost,
        default_breaker,
        calendar,
    } = spec;
    let mut form = Form(Sha256::new());
    form.text(FORMAT);
    form.rules(default);
    form.number(principals.len() as u64);
    for (name, rules) in principals {
        form.text(name);
        form.rules(rules);
    }
    form.number(roles.len() as u64);
    for (name, rules) in roles {
        form.text(name);
        form.role(rules);
    }
    form.number(capabilities.len() as u64);
    for (name, facts) in capabilities {
        form.text(name);
        form.facts(facts);
    }
    form.number(default_estimated_cost.0);
    form.breaker(*default_breaker);
    form.text(calendar.zone().as_str());
    let digest = form.0.finalize();
    let first = digest.first_chunk().expect("a digest has 32 bytes");
    u64::from_be_bytes(*first) >> (u64::BITS - BITS)
}

/// A digest being made. Whatever has no fixed length is preceded by its length, so that no two
/// different specs are written alike.
struct Form(Sha256);

impl Form {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }

    fn optional(&mut self, number: Option<u64>) {
        self.0.update([u8::from(number.is_some())]);
        self.number(number.unwrap_or(0));
    }

    fn duration(&mut self, duration: Option<Duration>) {
        self.optional(duration.map(|duration| duration.as_secs()));
        self.number(duration.map_or(0, |duration| u64::from(duration.subsec_nanos())));
    }

    fn set(&mut self, texts: &[String]) {
        let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        texts.sort_unstable();
        texts.dedup();
        self.number(texts.len() as u64);
        for text in texts {
            self.text(text);
        }
    }

    fn rules(&mut self, rules: &Rules) {
        let Rules {
            visible,
            hidden,
            allow,
            deny,
            confirm,
            conditions,
            roles,
            quota,
            reads,
            max_running,
            default_limits,
            beside_roles,
        } = rules;
        for patterns in [visible, hidden, allow, deny, confirm, roles] {
            self.set(patterns);
        }
        self.conditions(conditions);
        self.quota(quota);
        self.rates(reads);
        self.optional(max_running.map(u64::from));
        if *default_limits {
            self.number(DEFAULT_LIMITS);
        }
        if let Some(Access {
            visible,
            hidden,
            allow,
            deny,
        }) = beside_roles
        {
            self.number(BESIDE_ROLES);
            for patterns in [visible, hidden, allow, deny] {
                self.set(patterns);
            }
        }
    }

    fn role(&mut self, rules: &RoleRules) {
        let RoleRules {
            visible,
            hidden,
            allow,
            deny,
            confirm,
            conditions,
            quota,
            reads,
            max_running,
        } = rules;
        for patterns in [visible, hidden, allow, deny, confirm] {
            self.set(patterns);
        }
        self.conditions(conditions);
        self.quota(quota);
        self.rates(reads);
        self.optional(max_running.map(u64::from));
    }

    fn conditions(&mut self, conditions: &[Condition]) {
        let mut conditions: Vec<&Condition> = conditions.iter().collect();
        conditions.sort_unstable();
        conditions.dedup();
        self.number(conditions.len() as u64);
        for condition in conditions {
            let Condition {
                name,
                capability,
                when,
                effect,
            } = condition;
            for text in [name, capability, when] {
                self.text(text);
            }
            self.number(match effect {
                Effect::Deny => 0,
                Effect::Confirm => 1,
                Effect::AllowOnly => 2,
            });
        }
    }

    fn quota(&mut self, quota: &Quota) {
        let Quota {
            monthly_budget,
            max_calls_per_minute,
            max_calls_per_day,
            max_cost_per_call,
        } = quota;
        self.optional(monthly_budget.map(|most| most.0));
        self.optional(max_calls_per_minute.map(u64::from));
        self.optional(max_calls_per_day.map(u64::from));
        self.optional(max_cost_per_call.map(|most| most.0));
    }

    fn rates(&mut self, rates: &RateLimits) {
        let RateLimits {
            per_minute,
            per_day,
        } = rates;
        self.optional(per_minute.map(u64::from));
        self.optional(per_day.map(u64::from));
    }

    fn facts(&mut self, facts: &CapabilityFacts) {
        let CapabilityFacts {
            held,
            estimated_cost,
            limits,
            risk,
            confirmation,
            cooldown,
            windows,
            max_running,
            breaker,
        } = facts;
        self.optional(estimated_cost.map(|cost| cost.0));
        self.rates(limits);
        let Risk {
            read_only,
            mutating,
            external,
            financial,
        } = *risk;
        self.0
            .update([read_only, mutating, external, financial].map(u8::from));
        self.optional(confirmation.map(|who| match who {
            Confirmation::User => 0,
            Confirmation::Operator => 1,
        }));
        self.duration(*cooldown);
        self.windows(windows.as_ref());
        self.optional(max_running.map(u64::from));
        self.0.update([u8::from(breaker.is_some())]);
        self.breaker(breaker.unwrap_or(BreakerSpec::OFF));
        if held.is_some() {
            self.number(HELD);
        }
    }

    fn windows(&mut self, windows: Option<&TimeWindows>) {
        let Some(TimeWindows { zone, windows }) = windows else {
            return self.0.update([0]);
        };
        self.0.update([1]);
        self.text(zone.as_str());
        let windows: Vec<String> = windows.iter().map(ToString::to_string).collect();
        self.set(&windows);
    }

    fn breaker(&mut self, breaker: BreakerSpec) {
        let BreakerSpec { failures, rest } = breaker;
        self.number(u64::from(failures));
        self.duration(Some(rest));
    }
}
