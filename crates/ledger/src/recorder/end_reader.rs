//! Ends of calls, looked for in the ledger when an answer is given again.

use crate::{
    record::{entry::Outcome, id::CallId, kept},
    recorder::RecordError,
    store::FindEnd,
};
use std::{error::Error, fmt, sync::Arc, thread};
use tokio::sync::oneshot;

/// Looks for the ends of calls in the ledger.
#[derive(Clone)]
pub(crate) struct EndReader(pub(crate) FindEnd);

impl EndReader {
    /// Returns true if the call ended with this digest of `answer`.
    pub(crate) async fn has(
        &self,
        call: CallId,
        succeeded: bool,
        answer: &str,
    ) -> Result<bool, RecordError> {
        let digest = kept::digest(Some(answer));
        let find = Arc::clone(&self.0);
        let (tell, told) = oneshot::channel();
        // Reading blocks, and not everybody who waits is in a runtime.
        let look = move || {
            let _ = tell.send(find(call));
        };
        let started = thread::Builder::new().name("ledger-kept".to_owned());
        let started = started.spawn(look).map(drop);
        let found = match (started, told.await) {
            (Ok(()), Ok(Ok(found))) => found,
            (Ok(()), Ok(Err(error))) => return Err(unread(&*error)),
            (Err(error), _) => return Err(unread(&error)),
            (Ok(()), Err(error)) => return Err(unread(&error)),
        };
        let expected = match succeeded {
            true => Outcome::Succeeded,
            false => Outcome::Failed,
        };
        Ok(found.is_some_and(|ended| {
            ended.outcome.plain() == expected && kept::is_on_record(&ended, digest)
        }))
    }
}

fn unread(error: &(dyn Error + 'static)) -> RecordError {
    tracing::error!(
        error,
        "the end of a call cannot be looked for in the ledger"
    );
    RecordError::Unavailable
}

impl fmt::Debug for EndReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndReader").finish_non_exhaustive()
    }
}
