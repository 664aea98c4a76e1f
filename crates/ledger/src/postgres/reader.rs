//! Asking a ledger in PostgreSQL.

mod calls;
mod notes;
mod scan;
mod sums;

use super::{
    PostgresOpenError, PostgresOptions,
    blocking::Blocking,
    index::{self, IndexError},
    migrations,
    session::{Session, SessionError},
};
use crate::{
    fault::Fault,
    query::{
        ApprovalFilter, ApprovalRow, CallRecord, Counts, Extent, Filter, IndexedCall, IndexedNote,
        KeyHeld, NoteFilter, NoteRecord, QueryError, ReadLedger, StoredGroup, Usage,
        statistics::{Statistics, StatisticsQuery},
    },
    record::{
        approval::{Approval, ApprovalId},
        entry::Digest,
        id::CallId,
    },
};
use std::{ops::Range, time::Duration};
use tokio_postgres::{Error, config::TargetSessionAttrs, error::SqlState};

/// Longest time of a query, as a multiple of that of an attempt to store.
const PATIENCE: u32 = 12;

/// Reads a ledger in PostgreSQL, also while servers write to it. It blocks, and may be used inside
/// of a runtime.
///
/// What no server has indexed yet it indexes before it answers, if its user may; one that may only
/// read sees calls a moment later.
#[derive(Debug)]
pub struct PostgresReader {
    blocking: Blocking,
    options: PostgresOptions,
    /// `None` after a failure: it is opened anew.
    session: Option<Session>,
}

impl PostgresReader {
    /// Opens the ledger in this database.
    ///
    /// # Errors
    ///
    /// [`PostgresOpenError`], also when there is none or one of another version.
    pub fn open(options: &PostgresOptions) -> Result<Self, PostgresOpenError> {
        let mut options = options.clone();
        // A copy of the database will do.
        options.address = options.address.with(|config| {
            config.target_session_attrs(TargetSessionAttrs::Any);
        });
        let blocking = Blocking::new()?;
        let session = blocking.wait(async || {
            let explain = |error: SessionError| error.explain(&options);
            let mut session = Session::connect(&options).await.map_err(explain)?;
            migrations::check(&mut session, &options).await?;
            Ok(session)
        })?;
        Ok(Self {
            blocking,
            options,
            session: Some(session),
        })
    }

    /// Asks of the ledger as it is now, indexed as far as may be.
    fn ask<T: Send>(
        &mut self,
        question: impl AsyncFnOnce(&mut Session) -> Result<T, QueryError> + Send,
    ) -> Result<T, QueryError> {
        self.ask_as_it_is(async move |session| {
            catch_up(session).await?;
            question(session).await
        })
    }

    /// Asks without indexing anything.
    fn ask_as_it_is<T: Send>(
        &mut self,
        question: impl AsyncFnOnce(&mut Session) -> Result<T, QueryError> + Send,
    ) -> Result<T, QueryError> {
        let Self {
            blocking,
            options,
            session,
        } = self;
        let limit = options.max_attempt * PATIENCE;
        let answer = blocking.wait(async || {
            let session = match session {
                Some(session) if !session.is_closed() => session,
                empty => {
                    let connected = Session::connect(options).await;
                    empty.insert(connected.map_err(|error| QueryError::Store(Box::new(error)))?)
                }
            };
            tokio::time::timeout(limit, question(session))
                .await
                .unwrap_or_else(|_| Err(QueryError::Store(Box::new(SessionError::Silent(limit)))))
        });
        if answer.is_err() {
            self.session = None;
        }
        answer
    }
}

/// Indexes what has not been, unless the user may not.
async fn catch_up(session: &mut Session) -> Result<(), QueryError> {
    while index::is_behind(session).await? {
        match index::index(session).await {
            Ok(_) => {}
            Err(IndexError::Session(error)) if may_not(&error) => {
                session.run("ROLLBACK").await?;
                return Ok(());
            }
            Err(error) => return Err(QueryError::Store(error.boxed())),
        }
    }
    Ok(())
}

fn may_not(error: &SessionError) -> bool {
    matches!(
        error.state(),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE | &SqlState::READ_ONLY_SQL_TRANSACTION)
    )
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        Self::Store(Box::new(SessionError::from(error)))
    }
}

impl ReadLedger for PostgresReader {
    fn recent(&mut self, limit: usize, filter: Filter<'_>) -> Result<Vec<CallRecord>, QueryError> {
        self.ask(async |session| calls::recent(session, limit, &filter).await)
    }

    fn open_calls(&mut self) -> Result<Vec<CallRecord>, QueryError> {
        self.ask(async |session| calls::open(session).await)
    }

    fn notes(
        &mut self,
        limit: usize,
        filter: NoteFilter<'_>,
    ) -> Result<Vec<NoteRecord>, QueryError> {
        self.ask(async |session| notes::notes(session, limit, &filter).await)
    }

    fn approvals(
        &mut self,
        limit: usize,
        filter: ApprovalFilter<'_>,
    ) -> Result<Vec<Approval>, QueryError> {
        self.ask_as_it_is(async |session| notes::approvals(session, limit, &filter).await)
    }

    fn usage_between(
        &mut self,
        range: Range<u64>,
        bucket: Duration,
    ) -> Result<Vec<Usage>, QueryError> {
        self.ask(async |session| sums::usage(session, range, bucket).await)
    }

    fn statistics(&mut self, query: StatisticsQuery<'_>) -> Result<Vec<Statistics>, QueryError> {
        self.ask(async |session| sums::statistics(session, &query).await)
    }

    fn count(&mut self) -> Result<Counts, QueryError> {
        self.ask(async |session| sums::count(session).await)
    }

    fn extent(&mut self) -> Result<Extent, QueryError> {
        self.ask_as_it_is(async |session| scan::extent(session).await)
    }

    fn groups(&mut self, from: u64) -> Result<Vec<StoredGroup>, QueryError> {
        self.ask_as_it_is(async |session| scan::groups(session, from).await)
    }

    fn hash_after(&mut self, sequence: u64) -> Result<Option<Digest>, QueryError> {
        self.ask_as_it_is(async |session| scan::hash_after(session, sequence).await)
    }

    fn indexed_calls(&mut self, from: u64) -> Result<Vec<IndexedCall>, QueryError> {
        self.ask_as_it_is(async |session| scan::indexed_calls(session, from).await)
    }

    fn indexed_call(&mut self, call: CallId) -> Result<Option<IndexedCall>, QueryError> {
        self.ask_as_it_is(async |session| scan::indexed_call(session, call).await)
    }
    fn indexed_notes(&mut self, from: u64) -> Result<Vec<IndexedNote>, QueryError> {
        self.ask_as_it_is(async |session| scan::indexed_notes(session, from).await)
    }

    fn holds_key(&mut self, call: CallId) -> Result<bool, QueryError> {
        self.ask_as_it_is(async |session| scan::holds_key(session, call).await)
    }

    fn keys_held(&mut self, from: Option<(&str, &str)>) -> Result<Vec<KeyHeld>, QueryError> {
        self.ask_as_it_is(async |session| scan::keys_held(session, from).await)
    }

    fn fault(&mut self) -> Result<Option<Fault>, QueryError> {
        self.ask_as_it_is(async |session| Ok(migrations::fault(session).await?))
    }

    fn approval_rows(&mut self, after: Option<ApprovalId>) -> Result<Vec<ApprovalRow>, QueryError> {
        self.ask_as_it_is(async |session| scan::approval_rows(session, after).await)
    }
}
