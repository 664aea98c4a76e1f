//! A failure of a whole command or server, and its causes as text.

use std::error::Error;

/// A failure of a whole command, shown to the operator with its causes.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Advice for the operator about a failure, where its causes do not say so.
pub fn cure(failure: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut cause = Some(failure);
    let mut is_no_ledger = false;
    while let Some(error) = cause {
        is_no_ledger |= matches!(error.downcast_ref(), Some(ledger::OpenError::Missing(_)));
        cause = error.source();
    }
    is_no_ledger.then_some(
        "a server makes the ledger when it starts; if one runs with another configuration, \
         name that with `--config FILE`",
    )
}

/// The failure and its causes as one text, the nearest cause first.
pub fn with_causes(failure: &(dyn Error + 'static)) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
