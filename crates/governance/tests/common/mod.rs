//! What the tests share.
#![allow(dead_code, reason = "not every test file needs all of it")]

pub(crate) mod made;

use governance::{
    Ask, Denial, Governor, Kind, MemoryQuota, Micros, Permit, Policy, PolicySpec, Quota, Rules,
    Timestamp,
};
use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const DAY: u64 = 24 * 60 * MINUTE;

/// 2026-01-15T00:00:00Z.
pub(crate) const JANUARY: u64 = 1_768_435_200_000;
/// 2026-02-01T00:00:00Z.
pub(crate) const FEBRUARY: u64 = 1_769_904_000_000;

pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the memory store never waits"),
    }
}

pub(crate) fn ask(principal: &str, now: u64) -> Ask<'_> {
    Ask {
        principal,
        roles: &[],
        capability: "tool/x",
        kind: Kind::Tool,
        estimate: Some(Micros(10)),
        now: Timestamp(now),
        arguments: None,
    }
}

pub(crate) fn spec(quota: Quota) -> PolicySpec {
    PolicySpec {
        default: Rules {
            quota,
            ..Rules::default()
        },
        ..PolicySpec::default()
    }
}

pub(crate) fn governor(spec: PolicySpec) -> Governor<MemoryQuota> {
    Governor::new(
        Policy::new(spec).expect("the policy is sound"),
        Arc::default(),
    )
}

pub(crate) fn admit(
    governor: &Governor<MemoryQuota>,
    ask: Ask<'_>,
) -> Result<Permit<MemoryQuota>, Denial> {
    ready(governor.admit(ask))
}
