//! Counters of use that several nodes share in PostgreSQL.
//!
//! [`PostgresQuota`] is a [`QuotaStore`](governance::QuotaStore) whose limits hold over any number
//! of nodes, exactly: what was admitted is committed before anybody is told of it.
//!
//! * **One statement decides.** All that wait at the same moment share one call of a function in
//!   the database (`owlclaw_quota_decide` in `sql/0002_settlement.sql`), which is one transaction and one round trip. Locks are
//!   held while that function runs and its commit is written, never while a node thinks.
//! * **One clock.** The database's says when it is, for windows, months and cooldowns
//!   ([`TimeSource::Database`]), so that it does not matter how much the clocks of nodes differ; a
//!   node contributes where its months begin. As in memory, time never runs backwards for a
//!   principal: a clock that is set back stops it.
//! * **A reservation lives as long as its node.** A node shows every third of its lease that it
//!   lives. When another one has seen no sign of it for a whole lease, by its own monotonic clock,
//!   the node's calls run no longer, while what they were expected to cost stays counted. A node
//!   that was silent for that long registers anew; what it settles of before changes nothing.
//! * **Costs are settled with the record of the call's end.** A record that can
//!   ([`SETTLEMENTS`], [`QuotaStore::name`](governance::QuotaStore::name)) says in the transaction
//!   that stores the end what the call has cost, and whoever decides next about the principal, on
//!   whichever node, counts that first. It does not matter what becomes of the node in between.
//! * **Connections are fenced.** Each has a number, and the database refuses the numbers before the
//!   last. So when an answer was lost with its connection, the next connection can release what may
//!   or may not have been reserved, and nothing can come after it.
//! * **Endings are not lost.** Settling and releasing go into a queue, and from there with the next
//!   transaction. While the database is away they are kept: each reservation has its place in the
//!   queue from the beginning, so there is always room ([`QuotaOptions::max_open`]).
//! * **The record of calls has the last word.** Counters are compared with it ([`UseRecord`]) when a node
//!   begins and every hour, and raised where they are lower. Once they were emptied, nothing is admitted
//!   on any node until one has raised them (`sql/0003_comparison.sql`).
//! * **Without the database nothing is admitted.** Callers are told within
//!   [`QuotaOptions::max_wait`] that use cannot be counted; once it has been away for that long, at
//!   once. It is looked for until it is back.
//!
//! Connections to other machines are encrypted ([`postgres_connection::Address`]).
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use governance::{Governor, Policy, PolicySpec};
//! use quota_postgres::{PostgresQuota, QuotaOptions};
//! use std::sync::Arc;
//!
//! let url = "postgres://owlclaw:secret@127.0.0.1/owlclaw";
//! let quota = Arc::new(PostgresQuota::open(url, QuotaOptions::default()).await?);
//! let governor = Governor::new(Policy::new(PolicySpec::default())?, Arc::clone(&quota));
//! // … calls are admitted …
//! quota.close().await;
//! # Ok(())
//! # }
//! ```

mod options;
mod record;
mod store;

mod answer;
mod batch;
mod queue;
mod request;

mod connection;
mod error;
mod node;
mod schema;

pub use crate::{
    error::OpenError,
    options::{QuotaOptions, TimeSource},
    queue::PostgresReservation,
    record::{Comparison, LowerCounter, Recorded, RecordedUse, SLACK, UseRecord, compare},
    store::{ORPHANS, PostgresQuota, SETTLEMENTS},
};
