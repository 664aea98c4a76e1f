//! Node: this server among those that share a ledger.

use super::session::Session;
use crate::store::Tail;
use std::{
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio_postgres::Error;
use uuid::Uuid;

/// A server that appends. It has a name until another node declares it dead, and takes another
/// then: entries appended under the old one are settled.
#[derive(Debug)]
pub(super) struct Node {
    id: Mutex<Uuid>,
    /// The same for as long as the process runs.
    writer: Uuid,
    lease: Duration,
    /// End of the ledger after what this process last stored for good.
    stored: Mutex<Tail>,
}

impl Node {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            id: Mutex::new(Uuid::nil()),
            writer: Uuid::new_v4(),
            lease,
            stored: Mutex::default(),
        }
    }

    /// End of the ledger after what this process last stored for good; that of an empty ledger at first. Whoever
    /// appends has it in the ledger, unless an earlier copy has replaced that.
    pub(super) fn stored(&self) -> Tail {
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries have been stored, so that the ledger ended there, and a crash of the database leaves them there.
    pub(super) fn has_stored(&self, tail: Tail) {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.next_sequence < tail.next_sequence {
            *stored = tail;
        }
    }

    /// Id of the node.
    pub(super) fn id(&self) -> Uuid {
        *self.lock()
    }

    pub(super) fn writer(&self) -> Uuid {
        self.writer
    }

    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    /// Adds a row with a new name, and gives it; [`Node::took_name`] is for when that is committed.
    pub(super) async fn register(&self, session: &mut Session) -> Result<Uuid, Error> {
        let id = Uuid::new_v4();
        session
            .execute(
                "INSERT INTO owlclaw_ledger.node (id, name, lease_until)
                 VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second')",
                &[&id, &label(), &self.lease.as_secs_f64()],
            )
            .await?;
        Ok(id)
    }

    /// Takes this id from now on.
    pub(super) fn took_name(&self, id: Uuid) {
        let mut known = self.lock();
        if !known.is_nil() && *known != id {
            tracing::warn!(
                node = %id,
                "this server had been taken for dead; calls that it had open then are recorded as \
                 unknown until they end"
            );
        }
        *known = id;
    }

    /// Says that it lives; tells whether it is still taken to.
    pub(super) async fn renew(&self, session: &mut Session) -> Result<bool, Error> {
        let renewed = session
            .execute(
                "UPDATE owlclaw_ledger.node
                 SET lease_until = clock_timestamp() + $2 * interval '1 second'
                 WHERE id = $1 AND ended_at IS NULL",
                &[&self.id(), &self.lease.as_secs_f64()],
            )
            .await?;
        Ok(renewed == 1)
    }

    /// Says that it has ended.
    pub(super) async fn end(&self, session: &mut Session) -> Result<(), Error> {
        session
            .execute(
                "UPDATE owlclaw_ledger.node SET ended_at = clock_timestamp()
                 WHERE id = $1 AND ended_at IS NULL",
                &[&self.id()],
            )
            .await?;
        session
            .execute(
                "DELETE FROM owlclaw_ledger.operation_outcome WHERE writer = $1",
                &[&self.writer],
            )
            .await?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Uuid> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Label by which a person can recognise a server.
fn label() -> String {
    let process = std::process::id();
    match fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) => format!("process {process} on {}", host.trim()),
        Err(_) => format!("process {process}"),
    }
}
