//! A build without CEL refuses what it could not enforce. Run by
//! `cargo test -p governance --no-default-features`.
#![cfg(not(feature = "cel"))]

use governance::{
    Condition, ConditionError, Effect, ExpressionError, Policy, PolicyError, PolicySpec, RoleRules,
    RulesOf,
};

#[test]
fn a_policy_with_a_condition_is_refused() {
    let condition = Condition {
        name: "large".to_owned(),
        capability: "tool/pay".to_owned(),
        when: "args.amount > 500".to_owned(),
        effect: Effect::Deny,
    };
    let mut spec = PolicySpec::default();
    assert!(Policy::new(spec.clone()).is_ok());
    spec.roles.insert(
        "clerk".to_owned(),
        RoleRules {
            conditions: vec![condition],
            ..RoleRules::default()
        },
    );
    let expected = PolicyError::Condition {
        rules: RulesOf::Role("clerk".to_owned()),
        name: "large".to_owned(),
        source: ConditionError::Expression(ExpressionError::NoCel),
    };
    assert_eq!(Policy::new(spec).map(drop), Err(expected));
}
