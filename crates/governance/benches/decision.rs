//! Cost of a decision: of the policy alone, and with counters.
#![allow(missing_docs, reason = "criterion makes a public function")]

use criterion::{Criterion, criterion_group, criterion_main};
use governance::{
    Ask, BreakerSpec, CapabilityFacts, Condition, Effect, Ending, Governor, Kind, MemoryQuota,
    Micros, Policy, PolicySpec, Quota, RoleRules, Rules, Timestamp,
};
use std::{
    hint::black_box,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// 2026-01-15T00:00:00Z.
const JANUARY: u64 = 1_768_435_200_000;

const ARGUMENTS: &str = r#"{"order": "A-1001", "amount": 12.5, "to": ["a@example.com"]}"#;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// As a shop might have it: twenty clients with two roles each, and some patterns.
fn spec(conditions: Vec<Condition>) -> PolicySpec {
    let clerk = RoleRules {
        visible: names(&["tool/*"]),
        hidden: names(&["tool/internal.*"]),
        allow: names(&["tool/stock-*", "tool/order-*", "tool/refund-issue"]),
        deny: names(&["tool/*.delete", "tool/stock-write-off"]),
        confirm: names(&["tool/*-cancel"]),
        conditions,
        ..RoleRules::default()
    };
    let reader = RoleRules {
        visible: names(&["resource/skill://*"]),
        allow: names(&["resource/skill://*"]),
        ..RoleRules::default()
    };
    let client = Rules {
        visible: Vec::new(),
        allow: Vec::new(),
        roles: names(&["clerk", "reader"]),
        quota: Quota {
            monthly_budget: Some(Micros::MAX),
            max_calls_per_minute: Some(u32::MAX),
            max_calls_per_day: Some(u32::MAX),
            max_cost_per_call: Some(Micros::MAX),
        },
        max_running: Some(u32::MAX),
        ..Rules::default()
    };
    let facts = CapabilityFacts {
        estimated_cost: Some(Micros(10)),
        max_running: Some(u32::MAX),
        ..CapabilityFacts::default()
    };
    PolicySpec {
        principals: (0..20)
            .map(|index| (format!("client {index}"), client.clone()))
            .collect(),
        roles: [("clerk".to_owned(), clerk), ("reader".to_owned(), reader)].into(),
        capabilities: [("tool/order-refund".to_owned(), facts)].into(),
        default_breaker: BreakerSpec {
            failures: 5,
            rest: Duration::from_secs(30),
        },
        ..PolicySpec::default()
    }
}

fn condition(capability: &str) -> Condition {
    Condition {
        name: "large".to_owned(),
        capability: capability.to_owned(),
        when: "args.amount > 500.0 && !('audit' in roles)".to_owned(),
        effect: Effect::Confirm,
    }
}

fn ask(now: u64) -> Ask<'static> {
    Ask {
        principal: "client 7",
        roles: &[],
        capability: "tool/order-refund",
        kind: Kind::Tool,
        estimate: None,
        now: Timestamp(now),
        arguments: Some(ARGUMENTS),
    }
}

fn ready<F: Future>(future: F) -> F::Output {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the memory store never waits"),
    }
}

fn decision(criterion: &mut Criterion) {
    let rows = [
        ("without conditions", Vec::new()),
        ("a condition about another tool", vec![condition("tool/x")]),
        ("one condition", vec![condition("tool/order-*")]),
    ];
    for (name, conditions) in rows {
        let policy = Policy::new(spec(conditions)).expect("the policy is sound");
        assert!(policy.check(ask(JANUARY)).is_ok());
        criterion.bench_function(&format!("check, {name}"), |bencher| {
            bencher.iter(|| policy.check(black_box(ask(JANUARY))).is_ok());
        });
        let governor = Governor::new(policy, Arc::new(MemoryQuota::default()));
        let mut now = JANUARY;
        criterion.bench_function(&format!("admit and settle, {name}"), |bencher| {
            bencher.iter(|| {
                now += 1;
                let permit = ready(governor.admit(black_box(ask(now)))).expect("no limit is near");
                permit.settle(Micros(9), Ending::Succeeded, Timestamp(now))
            });
        });
    }
}

criterion_group!(benches, decision);
criterion_main!(benches);
