//! Errors. None shows the URL or a part of it.

use postgres_connection::{AddressError, ConnectError};

/// Reason why counting cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address of the database cannot be used.
    #[error(transparent)]
    Address(AddressError),
    /// The database cannot be reached, or refuses the user.
    #[error("the quota database cannot be reached")]
    Reach(#[source] ConnectError),
    /// The database failed while a connection was made ready.
    #[error("the quota database cannot be reached")]
    Connect(#[source] tokio_postgres::Error),
    /// A database that did not answer in time.
    #[error("the quota database does not answer")]
    Silent,
    /// A database whose text is not UTF-8, so that names could not be stored.
    #[error("the quota database has the encoding {0:?}, and needs UTF8")]
    Encoding(String),
    /// A newer version of this program has changed the tables.
    #[error("the quota tables have version {found}, and this program knows up to {known}")]
    Newer {
        /// Theirs.
        found: i32,
        /// Ours.
        known: i32,
    },
    /// The tables cannot be made or changed.
    #[error("the quota tables cannot be prepared")]
    Prepare(#[source] tokio_postgres::Error),
    /// The counters cannot be compared with the record of calls, or not be raised.
    #[error("the counters cannot be compared with the record of calls")]
    Compare(#[source] tokio_postgres::Error),
    /// The record of calls cannot be read.
    #[error("the record of calls cannot be read")]
    Record(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The counters were emptied, and there is no record to raise them by.
    #[error("the counters were emptied, and this node has no record of calls to raise them by")]
    Emptied,
    /// No thread can be started.
    #[error("the thread that counts cannot be started")]
    Thread(#[source] std::io::Error),
}

/// Reason why one request could not be decided.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the database did not answer in time")]
    Late,
    #[error("the database has been away for a while")]
    Away,
    #[error("{max_open} reservations are open on this node")]
    Full { max_open: usize },
    #[error("the store has been closed")]
    Closed,
    #[error("a name is longer than {max} bytes, or has a NUL in it")]
    Name { max: usize },
    #[error("the clocks of this node and of the database differ by more than a month")]
    Clock,
    #[error("the database refused: {0}")]
    Refused(String),
    #[error("the database gave no answer that is one")]
    Nonsense,
}
