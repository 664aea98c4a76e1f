use postgres_connection::{AddressError, ConnectError};

/// Reason why the shared tables cannot be used. No error shows the address or a part of it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address of the database cannot be used.
    #[error(transparent)]
    Address(AddressError),
    /// The database cannot be reached, or refuses the user.
    #[error("the database that servers share cannot be reached")]
    Reach(#[source] Failed),
    /// The user may not make or use the tables.
    #[error(
        "the user of the database lacks a right: what servers share needs CREATE on the database, or a schema \
         owlclaw_cluster that the user owns"
    )]
    NotPermitted(#[source] tokio_postgres::Error),
    /// The tables cannot be made or brought up to date.
    #[error("the tables that servers share cannot be made or brought up to date")]
    Prepare(#[source] tokio_postgres::Error),
    /// A newer version of this program has changed the tables.
    #[error(
        "the tables that servers share have version {found}, and this program knows up to {known}"
    )]
    Newer {
        /// Version found.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
}

impl OpenError {
    pub(crate) fn prepare(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE) => {
                Self::NotPermitted(error)
            }
            _ => Self::Prepare(error),
        }
    }
}

impl Failed {
    /// Returns true if the values of the statement are to blame: it will fail again.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        // Data exceptions, and limits of the program.
        let class = error.code().and_then(|code| code.code().get(..2));
        matches!(class, Some("22" | "54"))
    }
}

/// Reason why a statement was not carried out, or why it is unknown whether it was.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// There is no connection.
    #[error("there is no connection to the database")]
    Connect(#[from] ConnectError),
    /// The database reports an error.
    #[error("the database failed")]
    Database(#[from] tokio_postgres::Error),
    /// The database does not answer.
    #[error("the database did not answer in time")]
    Silent,
    /// A row that this program did not write.
    #[error("a row of the database cannot be read: {0}")]
    Row(&'static str),
}
