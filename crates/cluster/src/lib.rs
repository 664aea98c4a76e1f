//! State that several servers share in one PostgreSQL, so that any of them can answer any request.
//!
//! A [`Cluster`] is this server's place among them: a connection for statements, and one on which it hears
//! what the others have changed (`LISTEN`). News say what has changed and nothing more, so they stay small;
//! what it is now is read from the tables. News may be lost with their connection: then
//! [`News::Missed`] has everybody read again what they follow.
//!
//! * [`Cluster::tasks`]: calls whose results are fetched later ([`task_store::TaskStore`]).
//! * [`Cluster::sealing_keys`]: keys that seal what travels through clients, of which there is another every day.
//! * [`Cluster::tell_changed`]: changes of lists and resources, for subscribers anywhere.
//! * [`Cluster::take_session_up`] and the functions beside it: sessions that any server goes on with.
//! * [`Cluster::nodes`]: which servers there are, and when each was heard of last.
//!
//! Leases and their ends go by the clock of the database, whatever the clocks of the servers say. No lease is
//! taken for over by a server that could not reach the database for as long as one lasts: after an outage
//! every server can renew its own first.

mod database;
mod error;
mod keys;
mod migrations;
mod news;
mod nodes;
mod sessions;
mod tasks;

pub use crate::{
    database::{Cluster, ClusterOptions, TimeSource},
    error::{Failed, OpenError},
    keys::Key,
    news::{Changed, News},
    nodes::{Node, NodeSign},
    sessions::{Difference, MAX_PASSED_ON_LISTED, PASSED_ON_KEPT, SharedSession},
    tasks::PostgresTaskStore,
};
