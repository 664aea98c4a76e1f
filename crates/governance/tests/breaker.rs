//! Tools that fail again and again rest, and then one call is tried.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{JANUARY, SECOND, Shared, admit, ask, governor, ready};
use governance::{
    Ask, BreakerPhase, BreakerSpec, BreakerState, CapabilityFacts, Ending, Governor, Kind,
    MemoryQuota, Micros, Permit, Policy, PolicySpec, Quota, Reason, Rules, StepOutcome, Timestamp,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

const REST: u64 = 30 * SECOND;

fn breaking(failures: u32) -> Governor<MemoryQuota> {
    governor(PolicySpec {
        default_breaker: BreakerSpec {
            failures,
            rest: Duration::from_millis(REST),
        },
        ..PolicySpec::default()
    })
}

fn begin(governor: &Governor<MemoryQuota>, now: u64) -> Permit<MemoryQuota> {
    admit(governor, ask("a", now)).unwrap()
}

fn end(permit: Permit<MemoryQuota>, ending: Ending, now: u64) {
    permit.settle(Micros(1), ending, Timestamp(now));
}

fn call(governor: &Governor<MemoryQuota>, ending: Ending, now: u64) {
    end(begin(governor, now), ending, now);
}

fn phase(governor: &Governor<MemoryQuota>, now: u64) -> BreakerPhase {
    match governor.breaker_states(Timestamp(now)).as_slice() {
        [] => BreakerPhase::Closed { failures: 0 },
        [BreakerState { capability, phase }] => {
            assert_eq!(capability, "tool/x");
            *phase
        }
        more => panic!("{more:?}"),
    }
}

fn refused(governor: &Governor<MemoryQuota>, now: u64) -> Option<Duration> {
    let denial = admit(governor, ask("b", now)).unwrap_err();
    assert_eq!(denial.reason, Reason::CircuitOpen);
    assert!(denial.is_retryable());
    denial.retry_after
}

#[test]
fn only_failures_one_after_another_count() {
    let governor = breaking(3);
    for _ in 0..2 {
        call(&governor, Ending::Failed, JANUARY);
        call(&governor, Ending::NotRun, JANUARY);
        call(&governor, Ending::GivenUp, JANUARY);
        call(&governor, Ending::Failed, JANUARY);
        drop(begin(&governor, JANUARY));
        begin(&governor, JANUARY).release();
        assert_eq!(
            phase(&governor, JANUARY),
            BreakerPhase::Closed { failures: 2 }
        );
        call(&governor, Ending::Succeeded, JANUARY);
        assert_eq!(
            phase(&governor, JANUARY),
            BreakerPhase::Closed { failures: 0 }
        );
    }
    for _ in 0..3 {
        call(&governor, Ending::Failed, JANUARY);
    }
    let rest = Duration::from_millis(REST);
    assert_eq!(phase(&governor, JANUARY), BreakerPhase::Open { rest });
    assert_eq!(refused(&governor, JANUARY), Some(rest));
    assert_eq!(
        refused(&governor, JANUARY + REST - 1),
        Some(Duration::from_millis(1))
    );
    let other = Ask {
        capability: "tool/y",
        ..ask("a", JANUARY)
    };
    assert!(admit(&governor, other).is_ok(), "others go on");
}

#[test]
fn one_call_tries_and_decides() {
    let rows = [
        (Ending::Succeeded, BreakerPhase::Closed { failures: 0 }),
        (
            Ending::Failed,
            BreakerPhase::Open {
                rest: Duration::from_millis(REST),
            },
        ),
        // Nothing is known any better, so another may try at once.
        (Ending::NotRun, BreakerPhase::HalfOpen { trying: false }),
        (Ending::GivenUp, BreakerPhase::HalfOpen { trying: false }),
    ];
    for (ending, expected) in rows {
        let governor = breaking(1);
        call(&governor, Ending::Failed, JANUARY);
        let later = JANUARY + REST;
        assert_eq!(
            phase(&governor, later),
            BreakerPhase::HalfOpen { trying: false }
        );
        let trial = begin(&governor, later);
        assert_eq!(
            phase(&governor, later),
            BreakerPhase::HalfOpen { trying: true }
        );
        assert_eq!(refused(&governor, later + 100 * REST), None);
        end(trial, ending, later);
        assert_eq!(phase(&governor, later), expected, "{ending:?}");
    }
}

#[test]
fn a_trial_that_comes_to_nothing_is_given_back() {
    let governor = governor(PolicySpec {
        default: Rules {
            quota: Quota {
                monthly_budget: Some(Micros(10)),
                ..Quota::default()
            },
            ..Rules::default()
        },
        default_breaker: BreakerSpec {
            failures: 1,
            rest: Duration::from_millis(REST),
        },
        ..PolicySpec::default()
    });
    end(begin(&governor, JANUARY), Ending::Failed, JANUARY);
    let later = JANUARY + REST;
    let dear = Ask {
        estimate: Some(Micros(10)),
        ..ask("a", later)
    };
    assert_eq!(admit(&governor, dear).unwrap_err().reason, Reason::Budget);
    drop(admit(&governor, ask("b", later)).unwrap());
    begin_for(&governor, "c", later).release();
    let trial = begin_for(&governor, "d", later);
    assert_eq!(refused_reason(&governor, "e", later), Reason::CircuitOpen);
    end(trial, Ending::Succeeded, later);
    assert!(governor.breaker_states(Timestamp(later)).is_empty());
}

fn begin_for(governor: &Governor<MemoryQuota>, who: &str, now: u64) -> Permit<MemoryQuota> {
    admit(governor, ask(who, now)).unwrap()
}

fn refused_reason(governor: &Governor<MemoryQuota>, who: &str, now: u64) -> Reason {
    admit(governor, ask(who, now)).unwrap_err().reason
}

#[test]
fn a_caller_that_gives_up_while_it_is_counted_gives_the_trial_back() {
    let policy = breaking(1).policy();
    let quota = Arc::new(Shared::default());
    let spec = PolicySpec {
        default_breaker: policy.check(ask("a", JANUARY)).unwrap().breaker,
        ..PolicySpec::default()
    };
    let governor = Governor::new(Policy::new(spec).unwrap(), Arc::clone(&quota));
    let failing = ready(governor.admit(ask("a", JANUARY))).unwrap();
    failing.settle(Micros(1), Ending::Failed, Timestamp(JANUARY));
    let later = JANUARY + REST;
    let is_trying = || {
        let states = governor.breaker_states(Timestamp(later));
        states[0].phase == BreakerPhase::HalfOpen { trying: true }
    };
    quota.is_silent.store(true, Ordering::Relaxed);
    {
        let mut trial = std::pin::pin!(governor.admit(ask("a", later)));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(trial.as_mut().poll(&mut cx).is_pending());
        assert!(is_trying());
    }
    assert!(!is_trying());
}

#[test]
fn calls_from_before_it_rested_say_nothing_afterwards() {
    let governor = breaking(1);
    let early: Vec<_> = (0..3).map(|_| begin(&governor, JANUARY)).collect();
    call(&governor, Ending::Failed, JANUARY);
    let mut early = early.into_iter();
    end(early.next().unwrap(), Ending::Succeeded, JANUARY + 1);
    end(early.next().unwrap(), Ending::Failed, JANUARY + REST - 1);
    let rest = Duration::from_millis(1);
    assert_eq!(
        phase(&governor, JANUARY + REST - 1),
        BreakerPhase::Open { rest }
    );
    let trial = begin(&governor, JANUARY + REST);
    end(early.next().unwrap(), Ending::Succeeded, JANUARY + REST);
    let trying = BreakerPhase::HalfOpen { trying: true };
    assert_eq!(phase(&governor, JANUARY + REST), trying);
    end(trial, Ending::Succeeded, JANUARY + REST);
}

#[test]
fn a_clock_set_back_makes_nothing_rest_for_longer_than_it_does() {
    let governor = breaking(1);
    call(&governor, Ending::Failed, JANUARY);
    let back = JANUARY - 1_000 * REST;
    assert_eq!(refused(&governor, back), Some(Duration::from_millis(REST)));
    assert!(admit(&governor, ask("a", back + REST)).is_ok());
}

#[test]
fn breakers_can_be_off_and_of_a_tools_own_and_reads_have_none() {
    let off = breaking(0);
    for _ in 0..100 {
        call(&off, Ending::Failed, JANUARY);
    }
    assert!(off.breaker_states(Timestamp(JANUARY)).is_empty());
    let mut spec = PolicySpec {
        default_breaker: BreakerSpec {
            failures: 1,
            rest: Duration::from_millis(REST),
        },
        ..PolicySpec::default()
    };
    let patient = CapabilityFacts {
        breaker: Some(BreakerSpec::OFF),
        ..CapabilityFacts::default()
    };
    spec.capabilities.insert("tool/x".to_owned(), patient);
    let governor = governor(spec);
    call(&governor, Ending::Failed, JANUARY);
    assert!(governor.breaker_states(Timestamp(JANUARY)).is_empty());
    for name in 0..100 {
        let uri = format!("resource/{name}");
        let read = Ask {
            capability: &uri,
            kind: Kind::Resource,
            ..ask("a", JANUARY)
        };
        end(admit(&governor, read).unwrap(), Ending::Failed, JANUARY);
    }
    assert!(governor.breaker_states(Timestamp(JANUARY)).is_empty());
}

#[test]
fn an_explanation_knows_of_breakers_and_starts_no_trial() {
    let governor = breaking(1);
    call(&governor, Ending::Failed, JANUARY);
    let explain = |now| ready(governor.explain(ask("a", now))).unwrap();
    assert_eq!(explain(JANUARY).reason(), Some(Reason::CircuitOpen));
    for _ in 0..2 {
        let explained = explain(JANUARY + REST);
        assert_eq!(explained.reason(), None);
        assert!(explained.steps.iter().any(|step| {
            step.outcome == StepOutcome::Passed && step.rule.contains("the next call tries")
        }));
    }
    let _trial = begin(&governor, JANUARY + REST);
    assert_eq!(explain(JANUARY + REST).reason(), Some(Reason::CircuitOpen));
}
