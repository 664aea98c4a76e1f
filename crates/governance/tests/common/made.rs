//! Rules to test with.
#![allow(dead_code, reason = "not every test file needs all of it")]

use governance::{Condition, Effect, Quota, RoleRules, Rules};
use proptest::prelude::*;

pub(crate) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

pub(crate) fn condition(name: &str, capability: &str, when: &str, effect: Effect) -> Condition {
    Condition {
        name: name.to_owned(),
        capability: capability.to_owned(),
        when: when.to_owned(),
        effect,
    }
}

pub(crate) fn pattern() -> impl Strategy<Value = String> {
    prop_oneof!["tool/[ab]", Just("tool/*".to_owned()), Just("*".to_owned())]
}

pub(crate) fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        Just(Effect::Deny),
        Just(Effect::Confirm),
        Just(Effect::AllowOnly)
    ]
}

pub(crate) fn rules() -> impl Strategy<Value = Rules> {
    let list = || proptest::collection::vec(pattern(), 0..3);
    let when = prop_oneof![r"args\.n [<>] [0-3]", Just("has(args.n)".to_owned())];
    let conditions = proptest::collection::vec(
        (pattern(), when, effect())
            .prop_map(|(pattern, when, effect)| condition(&when, &pattern, &when, effect)),
        0..3,
    );
    let limit = || proptest::option::of(0..3_u32);
    (
        list(),
        list(),
        list(),
        list(),
        list(),
        conditions,
        limit(),
        limit(),
    )
        .prop_map(
            |(visible, hidden, allow, deny, confirm, conditions, per_minute, max_running)| Rules {
                visible,
                hidden,
                allow,
                deny,
                confirm,
                conditions,
                quota: Quota {
                    max_calls_per_minute: per_minute,
                    ..Quota::default()
                },
                max_running,
                ..Rules::default()
            },
        )
}

pub(crate) fn role_of(rules: Rules) -> RoleRules {
    RoleRules {
        visible: rules.visible,
        hidden: rules.hidden,
        allow: rules.allow,
        deny: rules.deny,
        confirm: rules.confirm,
        conditions: rules.conditions,
        quota: rules.quota,
        reads: rules.reads,
        max_running: rules.max_running,
    }
}
