//! A ledger in PostgreSQL, which several servers share.

mod archive;
mod blocking;
mod chain;
mod error;
mod index;
mod maintenance;
mod migrations;
mod node;
mod offline_approvals;
mod options;
mod reader;
mod rows;
mod session;
mod text;

use crate::{
    query::ReadLedger,
    recorder::Durability,
    store::{Appended, FindEnd, Group, LedgerStore, StoreError, Tail},
};
use std::sync::Arc;
use tokio_postgres::error::SqlState;
use {
    self::{
        chain::End,
        node::Node,
        rows::Rows,
        session::{Session, SessionError, within},
    },
    crate::postgres::maintenance::Maintenance,
};
pub use {
    self::{
        error::PostgresOpenError,
        options::{DEFAULT_LEASE, DEFAULT_MAX_ATTEMPT, PostgresOptions},
        reader::PostgresReader,
    },
    crate::postgres::offline_approvals::PostgresOfflineApprovals,
};

/// A ledger in PostgreSQL. Any number of servers append to it, each through a value of its own, and
/// all of them make one chain.
///
/// Everything is in the schema `owlclaw_ledger`. Each server has a row with a lease, which a thread
/// renews; that thread also indexes calls, and ends the calls of servers whose lease has run out,
/// as unknown. A server that was taken for dead and is not goes on under another name; the ends of
/// its calls take the place of the unknown ones.
///
/// Its oldest entries may be in the segments of an archive (`docs/ledger.md`).
///
/// While the database is away nothing can be appended. It is connected to again with the next
/// attempt; a group whose fate is not known is looked for by its name before it is stored.
#[derive(Debug)]
pub struct PostgresLedger {
    options: PostgresOptions,
    node: Arc<Node>,
    /// `None` after a failure: it is opened anew.
    session: Option<Session>,
    /// End of the ledger if no other server has appended; `None` if one is likely to have, or an
    /// attempt has failed.
    end: Option<End>,
    tail: Tail,
    _maintenance: Maintenance,
}

impl PostgresLedger {
    /// Opens the ledger in this database; makes its tables if there are none, or brings them up to
    /// date. It blocks, and may be called inside of a runtime.
    ///
    /// # Errors
    ///
    /// [`PostgresOpenError`].
    pub fn open(options: &PostgresOptions) -> Result<Self, PostgresOpenError> {
        let node = Arc::new(Node::new(options.lease));
        let (maintenance, end) = Maintenance::start(options.clone(), Arc::clone(&node))?;
        Ok(Self {
            options: options.clone(),
            node,
            session: None,
            end: Some(end),
            tail: end.tail,
            _maintenance: maintenance,
        })
    }

    async fn store(&mut self, group: &Group<'_>) -> Result<Appended, SessionError> {
        let expected = self.end.take();
        let session = match &mut self.session {
            Some(session) if !session.is_closed() => session,
            empty => empty.insert(Session::connect(&self.options).await?),
        };
        let charges = self.options.charges.clone();
        let charges = charges.as_deref();
        let commits_early = group.durable && self.options.durability == Durability::Relaxed;
        let corrects = group.charges.iter().any(|it| it.corrects.is_some());
        if group.operations.is_empty()
            && !commits_early
            && !corrects
            && let Some(end) = expected
        {
            match chain::append_at(session, self.node.id(), group, end, charges).await {
                Ok(Some(end)) => {
                    self.end = Some(end);
                    self.has_stored(group, end.tail);
                    return Ok(Appended::at(end.tail));
                }
                // Somebody else was faster.
                Ok(None) => {}
                // It has been stored already, which is found out below.
                Err(error) if error.state() == Some(&SqlState::UNIQUE_VIOLATION) => {}
                Err(error) => return Err(error),
            }
        }
        let (appended, end) = chain::append(session, &self.node, group, charges).await?;
        self.end = end;
        self.has_stored(group, appended.tail);
        Ok(appended)
    }

    /// Remembers what is to be in the ledger from now on. What is not waited for may be gone after a crash of the database.
    fn has_stored(&self, group: &Group<'_>, tail: Tail) {
        if group.durable || self.options.durability == Durability::Strict {
            self.node.has_stored(tail);
        }
    }
}

impl LedgerStore for PostgresLedger {
    fn tail(&self) -> Tail {
        self.tail
    }

    fn find_end(&self) -> Option<FindEnd> {
        let options = self.options.clone();
        Some(Arc::new(move |call| {
            let found = PostgresReader::open(&options)?.call(call)?;
            Ok(found.and_then(|record| record.ended))
        }))
    }

    fn takes_charges(&self) -> bool {
        self.options.charges.is_some()
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        let limit = self.options.max_attempt;
        match within(limit, self.store(&group)).await {
            Ok(appended) => {
                self.tail = appended.tail;
                Ok(appended)
            }
            Err(error) => {
                // What the connection was in the middle of, nobody needs to know: closing it ends
                // that one way or the other.
                self.session = None;
                self.end = None;
                Err(StoreError(Box::new(error)))
            }
        }
    }

    async fn tidy(&mut self, now_us: u64) -> Result<bool, StoreError> {
        let (node, end) = (&self.node, &mut self.end);
        let tidied = within(self.options.max_attempt, async {
            // Looked after every second while nothing comes, so that it is known by then whether the
            // database is there.
            let session = match &mut self.session {
                Some(session) if !session.is_closed() => session,
                empty => empty.insert(Session::connect(&self.options).await?),
            };
            // So that one which is put back while nobody calls is noticed, too.
            chain::expect_stored(session, node).await?;
            if !Rows::any_due(session, now_us).await? {
                return Ok(false);
            }
            // It will be another one.
            *end = None;
            maintenance::tidy(session, node, now_us).await
        });
        let more = tidied.await.inspect_err(|_| self.session = None);
        more.map_err(|error| StoreError(Box::new(error)))
    }
}
