//! Helpers that the tests of the recorder share.
#![allow(dead_code, reason = "no test needs all of it")]

pub(crate) mod aged;

use ledger::{
    Appended, Approval, ApprovalId, Approver, CallId, Claim, Digest, Ended, Entry, Event, Group,
    KeyClaim, Kind, LedgerStore, MemoryLedger, NewApproval, Noted, Start, Started, StoreError,
    Tail,
};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A store that stores a group only when a permit says so.
pub(crate) struct Held(pub(crate) MemoryLedger, pub(crate) Arc<Semaphore>);

impl LedgerStore for Held {
    fn tail(&self) -> Tail {
        self.0.tail()
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        self.1
            .acquire()
            .await
            .map_err(|error| StoreError(error.into()))?
            .forget();
        self.0.append(group).await
    }
}

pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future)
        .await
        .expect("it takes too long")
}

pub(crate) async fn until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "it never became true");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Output of a future if it is ready at its first poll.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

pub(crate) fn start(at_us: u64) -> Start<'static> {
    Start {
        estimated_cost_micros: 70,
        ..Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/pay")
    }
}

pub(crate) fn new_approval(binding: u8, at_us: u64) -> NewApproval {
    NewApproval {
        id: ApprovalId::random(),
        binding: digest(binding),
        principal: "alice".to_owned(),
        capability: "tool/pay".to_owned(),
        arguments: r#"{"to":"bob"}"#.to_owned(),
        policy_version: 7,
        reason: "financial".to_owned(),
        needs: Approver::Operator,
        requested_us: at_us,
        expires_us: at_us + 1_000,
    }
}

pub(crate) fn digest(number: u8) -> Digest {
    [number; 32]
}

pub(crate) fn of_approval(approval: &Approval) -> Claim {
    Claim::Approval {
        approval: approval.id,
        binding: approval.binding,
    }
}

pub(crate) fn of_key(arguments: u8, at_us: u64) -> KeyClaim {
    KeyClaim {
        principal: "alice".to_owned(),
        key: "k-1".to_owned(),
        capability: "tool/pay".to_owned(),
        digest: digest(arguments),
        call: CallId::new(at_us),
        at_us,
        until_us: at_us + 1_000,
    }
}

pub(crate) fn starts(entries: &[Entry]) -> Vec<(CallId, Started)> {
    let started = |entry: &Entry| match &entry.event {
        Event::Started(started) => Some((entry.call, started.clone())),
        _ => None,
    };
    entries.iter().filter_map(started).collect()
}

pub(crate) fn ends(entries: &[Entry]) -> Vec<(CallId, Ended)> {
    let ended = |entry: &Entry| match &entry.event {
        Event::Ended(ended) => Some((entry.call, ended.clone())),
        _ => None,
    };
    entries.iter().filter_map(ended).collect()
}

pub(crate) fn notes(entries: &[Entry]) -> Vec<Noted> {
    let noted = |entry: &Entry| match &entry.event {
        Event::Noted(noted) => Some(noted.clone()),
        _ => None,
    };
    entries.iter().filter_map(noted).collect()
}
