//! A failure of a whole command or server, and its causes as text.

use std::error::Error;

/// A failure of a whole command, shown to the operator with its causes.
pub type Failure = Box<dyn Error + Send + Sync>;

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
