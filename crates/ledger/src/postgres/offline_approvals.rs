//! Deciding approvals beside running servers.

use super::{
    PostgresOpenError, PostgresOptions,
    blocking::Blocking,
    chain::{self, Locked},
    migrations,
    rows::Rows,
    session::{Session, SessionError, within},
};
use crate::{
    record::{
        approval::{Approval, ApprovalId, Verdict},
        operation::{Operation, OperationOutcome},
    },
    sqlite::offline_approvals::OfflineApprovalsError,
    store::{claims, claims::Applied},
};
use uuid::Uuid;

/// Decides approvals in a ledger in PostgreSQL, beside the servers that write to it, and puts the
/// decision on record in the same transaction. It blocks, and may be used inside of a runtime.
#[derive(Debug)]
pub struct PostgresOfflineApprovals {
    blocking: Blocking,
    options: PostgresOptions,
    session: Option<Session>,
}

impl PostgresOfflineApprovals {
    /// Opens the ledger in this database.
    ///
    /// # Errors
    ///
    /// [`PostgresOpenError`], also when there is none or one of another version.
    pub fn open(options: &PostgresOptions) -> Result<Self, PostgresOpenError> {
        let blocking = Blocking::new()?;
        let session = blocking.wait(async || {
            let explain = |error: SessionError| error.explain(options);
            let mut session = Session::connect(options).await.map_err(explain)?;
            migrations::check(&mut session, options).await?;
            migrations::expect_sound(&mut session, options).await?;
            Ok(session)
        })?;
        Ok(Self {
            blocking,
            options: options.clone(),
            session: Some(session),
        })
    }

    /// Decides a pending approval, or takes a decision back.
    ///
    /// # Errors
    ///
    /// [`OfflineApprovalsError`]: it stays as it was, or, if the database did not answer, nobody can say.
    pub fn decide(
        &mut self,
        approval: ApprovalId,
        verdict: &Verdict,
    ) -> Result<Approval, OfflineApprovalsError> {
        let operation = Operation::DecideApproval {
            approval,
            verdict: verdict.clone(),
        };
        let Self {
            blocking,
            options,
            session,
        } = self;
        let decided = blocking.wait(async || {
            let session = match session {
                Some(session) if !session.is_closed() => session,
                empty => empty.insert(Session::connect(options).await?),
            };
            within(options.max_attempt, carry_out(session, operation)).await
        });
        match decided {
            Ok(Some(OperationOutcome::Approval(approval))) => Ok(*approval),
            Ok(Some(OperationOutcome::ApprovalRefused(problem))) => {
                Err(OfflineApprovalsError::Refused(problem))
            }
            Ok(_) => Err(OfflineApprovalsError::Store(
                "the decision came to nothing".into(),
            )),
            Err(error) => {
                self.session = None;
                Err(OfflineApprovalsError::Store(Box::new(error)))
            }
        }
    }
}

async fn carry_out(
    session: &mut Session,
    operation: Operation,
) -> Result<Option<OperationOutcome>, SessionError> {
    let Locked { end, .. } = chain::lock(session, Uuid::nil(), true).await?;
    let Applied {
        mut outcomes,
        body,
        count,
    } = claims::apply(&mut Rows(session), &[operation]).await?;
    chain::write(session, Uuid::nil(), Uuid::new_v4(), (&body, count), end).await?;
    Ok(outcomes.pop())
}
