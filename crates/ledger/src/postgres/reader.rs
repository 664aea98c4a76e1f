//! Asking a ledger in PostgreSQL, and the segments of its archive.

mod calls;
mod notes;
pub(super) mod scan;
mod sums;

use super::{
    PostgresOpenError, PostgresOptions,
    archive::reading,
    blocking::Blocking,
    index::{self, IndexError},
    migrations,
    session::{Session, SessionError},
};
use crate::{
    fault::Fault,
    query::{
        ApprovalFilter, ApprovalRow, CallRecord, Counts, Extent, Filter, Gap, HashAfter,
        IndexedCall, IndexedNote, KeyHeld, NoteFilter, NoteRecord, QueryError, ReadLedger,
        StoredGroup, Usage,
        statistics::{Statistics, StatisticsQuery},
    },
    record::{
        approval::{Approval, ApprovalId},
        entry::Digest,
        id::CallId,
        seal::Seal,
    },
    sqlite::reader::{Held, ReadHolds, Segments, Sums, View, gaps},
};
use age_format::Identity;
use std::{
    ops::{ControlFlow, Range},
    path::PathBuf,
    time::Duration,
};
use tokio_postgres::{Error, config::TargetSessionAttrs, error::SqlState};

/// Longest time of a query, as a multiple of that of an attempt to store.
const PATIENCE: u32 = 12;

/// Reads a ledger in PostgreSQL, also while servers write to it. It blocks, and may be used inside
/// of a runtime.
///
/// What no server has indexed yet it indexes before it answers, if its user may; one that may only
/// read sees calls a moment later. What has been archived is found in the segments of the archive, once each entry at any
/// moment; of those that a question does not concern none is opened.
#[derive(Debug)]
pub struct PostgresReader {
    blocking: Blocking,
    options: PostgresOptions,
    /// `None` after a failure: it is opened anew.
    session: Option<Session>,
    segments: Segments,
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
            segments: Segments::default(),
        })
    }

    /// Looks for the segments of the archive in this directory, wherever they were written.
    #[must_use]
    pub fn with_archive(mut self, directory: Option<PathBuf>) -> Self {
        self.segments.directory = directory;
        self
    }

    /// Opens encrypted segments with these identities.
    #[must_use]
    pub fn with_identities(mut self, identities: Vec<Identity>) -> Self {
        self.segments.identities = identities;
        self
    }

    /// Asks of the ledger as it is now, indexed as far as may be; tells what is archived then.
    fn ask<T: Send>(
        &mut self,
        question: impl AsyncFnOnce(&mut Session, &View) -> Result<T, QueryError> + Send,
    ) -> Result<(T, View), QueryError> {
        let (answer, view) = self.ask_as_it_is(async move |session| {
            catch_up(session).await?;
            in_snapshot(session, question).await
        })?;
        Ok((answer, self.segments.seen(view)?))
    }

    /// Asks of the ledger as it is stored, and tells what is archived then.
    fn look<T: Send>(
        &mut self,
        question: impl AsyncFnOnce(&mut Session, &View) -> Result<T, QueryError> + Send,
    ) -> Result<(T, View), QueryError> {
        let (answer, view) =
            self.ask_as_it_is(async move |session| in_snapshot(session, question).await)?;
        Ok((answer, self.segments.seen(view)?))
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
            ..
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

/// Asks when nothing changes between what is archived and the answer.
async fn in_snapshot<T>(
    session: &mut Session,
    question: impl AsyncFnOnce(&mut Session, &View) -> Result<T, QueryError>,
) -> Result<(T, View), QueryError> {
    let view = reading::begin_view(session).await?;
    let answer = question(session, &view).await?;
    session.run("COMMIT").await?;
    Ok((answer, view))
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

impl ReadHolds for PostgresReader {
    fn held(&mut self) -> Result<Held, QueryError> {
        let (holds, view) = self.look(async |session, _| Ok(reading::holds(session).await?))?;
        Ok(Held {
            holds,
            // What is done beside a server is on record at once.
            unsaid: Vec::new(),
            has_gaps: view.has_gaps(),
            unread_until_us: view.unread_until_us(),
        })
    }
}

impl PostgresReader {
    /// Names a table that differs from the segments of which it has what stays.
    fn differing_archive(&mut self) -> Result<Option<&'static str>, QueryError> {
        let mut day = Some(i64::MIN);
        while let Some(after) = day {
            let (found, view) =
                self.look(async |session, _| Ok(reading::next_day(session, after).await?))?;
            let Some((next, carried)) = found else { break };
            // Of what was deleted nothing is left to compare it with.
            if view.has_gaps() {
                break;
            }
            let differing = self.segments.differing_day(&view, next, carried.as_ref())?;
            if differing.is_some() {
                return Ok(differing);
            }
            day = Some(next);
        }
        let (carried, view) = self.look(async |session, view| {
            let calls = reading::calls_taken_out(session).await?;
            let starts = reading::carried_starts(session).await?;
            let is_whole = reading::has_starts(session).await?;
            let quarters = match view.has_gaps() {
                true => None,
                false => Some(reading::quarters(session).await?),
            };
            Ok((calls, starts, is_whole, quarters))
        })?;
        let (calls, starts, is_whole, quarters) = carried;
        if !is_whole {
            return Ok(Some("carried_start"));
        }
        if let Some(quarters) = quarters.filter(|_| !view.has_gaps()) {
            if self.segments.count(&view)? != calls {
                return Ok(Some("archived"));
            }
            let differing = self.segments.differing_quarters(&view, quarters)?;
            if differing.is_some() {
                return Ok(differing);
            }
        }
        self.segments.differing(&view, &starts)
    }
}

impl ReadLedger for PostgresReader {
    fn recent(&mut self, limit: usize, filter: Filter<'_>) -> Result<Vec<CallRecord>, QueryError> {
        let asked = self.ask(async |session, _| calls::recent(session, limit, &filter).await);
        let (records, view) = asked?;
        self.segments.add_recent(&view, records, limit, &filter)
    }

    fn open_calls(&mut self) -> Result<Vec<CallRecord>, QueryError> {
        Ok(self.ask(async |session, _| calls::open(session).await)?.0)
    }

    fn notes(
        &mut self,
        limit: usize,
        filter: NoteFilter<'_>,
    ) -> Result<Vec<NoteRecord>, QueryError> {
        let asked = self.ask(async |session, _| notes::notes(session, limit, &filter).await);
        let (records, view) = asked?;
        self.segments.add_notes(&view, records, limit, &filter)
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
        let asked = self.ask(async |session, view| {
            sums::usage(session, view.through() != 0, range, bucket).await
        });
        Ok(asked?.0)
    }

    fn statistics(&mut self, query: StatisticsQuery<'_>) -> Result<Vec<Statistics>, QueryError> {
        let mut sums = Sums::new(&query);
        let ((), view) =
            self.ask(async |session, _| sums::statistics(session, &query, &mut sums).await)?;
        self.segments.add_edges(&view, &mut sums)?;
        Ok(sums.into_rows())
    }

    fn count(&mut self) -> Result<Counts, QueryError> {
        Ok(self.ask(async |session, _| sums::count(session).await)?.0)
    }

    fn extent(&mut self) -> Result<Extent, QueryError> {
        self.ask_as_it_is(async |session| scan::extent(session).await)
    }

    fn groups(&mut self, mut from: u64) -> Result<Vec<StoredGroup>, QueryError> {
        loop {
            let (live, view) = self.look(async |session, view| {
                Ok(match view.from(from) {
                    None => Some(scan::groups(session, from).await?),
                    Some(_) => None,
                })
            })?;
            if let Some(groups) = live {
                return Ok(groups);
            }
            if let Some(groups) = self.segments.groups(&view, from)? {
                return Ok(groups);
            }
            from = view.through() + 1;
        }
    }

    fn hash_after(&mut self, sequence: u64) -> Result<Option<Digest>, QueryError> {
        let (hash, view) =
            self.look(async |session, _| scan::hash_after(session, sequence).await)?;
        self.segments.hash_after(&view, sequence, hash)
    }

    fn hashes_after(&mut self, sequences: &[u64]) -> Result<Vec<HashAfter>, QueryError> {
        let (hashes, view) =
            self.look(async |session, _| scan::hashes_after(session, sequences).await)?;
        let both = sequences.iter().zip(hashes);
        Ok(both.map(|(it, live)| view.hash_after(*it, live)).collect())
    }

    fn indexed_calls(&mut self, mut from: u64) -> Result<Vec<IndexedCall>, QueryError> {
        loop {
            let (page, view) =
                self.look(async |session, _| scan::indexed_calls(session, from).await)?;
            match self.segments.indexed_calls(&view, from, page)? {
                ControlFlow::Break(page) => return Ok(page),
                ControlFlow::Continue(next) => from = next,
            }
        }
    }

    fn indexed_call(&mut self, call: CallId) -> Result<Option<IndexedCall>, QueryError> {
        let (row, view) = self.look(async |session, _| scan::indexed_call(session, call).await)?;
        self.segments.indexed_call(&view, call, row)
    }

    fn indexed_notes(&mut self, mut from: u64) -> Result<Vec<IndexedNote>, QueryError> {
        loop {
            let (live, view) = self.look(async |session, view| {
                Ok(match view.from(from) {
                    None => Some(scan::indexed_notes(session, from).await?),
                    Some(_) => None,
                })
            })?;
            if let Some(page) = live {
                return Ok(page);
            }
            if let Some(page) = self.segments.indexed_notes(&view, from)? {
                return Ok(page);
            }
            from = view.through() + 1;
        }
    }

    fn holds_key(&mut self, call: CallId) -> Result<bool, QueryError> {
        self.ask_as_it_is(async |session| scan::holds_key(session, call).await)
    }

    fn keys_held(&mut self, from: Option<(&str, &str)>) -> Result<Vec<KeyHeld>, QueryError> {
        self.ask_as_it_is(async |session| scan::keys_held(session, from).await)
    }

    fn segments(&mut self) -> Result<Vec<Seal>, QueryError> {
        let ((), view) = self.look(async |_, _| Ok(()))?;
        self.segments.seals(&view)
    }

    fn damage(&mut self) -> Result<Option<Fault>, QueryError> {
        let ((), view) = self.look(async |_, _| Ok(()))?;
        self.segments.damage(&view)
    }

    fn leave_unread(&mut self) {
        self.segments.leaves_unread = true;
    }

    fn expect_sealed(&mut self, seal: &Seal) -> Result<(), QueryError> {
        let ((), view) = self.look(async |_, _| Ok(()))?;
        self.segments.expect_sealed(&view, seal)
    }

    fn gaps(&mut self) -> Result<Vec<Gap>, QueryError> {
        let ((), view) = self.look(async |_, _| Ok(()))?;
        Ok(gaps(&view, |_| false))
    }

    fn differing_sums(&mut self) -> Result<Option<&'static str>, QueryError> {
        match self.holds_differ()? {
            true => Ok(Some("legal_hold")),
            false => self.differing_archive(),
        }
    }

    fn fault(&mut self) -> Result<Option<Fault>, QueryError> {
        self.ask_as_it_is(async |session| Ok(migrations::fault(session).await?))
    }

    fn approval_rows(&mut self, after: Option<ApprovalId>) -> Result<Vec<ApprovalRow>, QueryError> {
        self.ask_as_it_is(async |session| scan::approval_rows(session, after).await)
    }
}
