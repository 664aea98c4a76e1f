//! Errors of opening a ledger in PostgreSQL.

use crate::fault::Fault;
use std::error::Error;

/// Reason why a ledger in PostgreSQL could not be opened. No password shows.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// No answer from the address, or not in time.
    #[error("the database {address} cannot be reached")]
    Unreachable {
        /// Address, without the password.
        address: String,
        /// Error of the connection.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The user, the password or the name of the database is wrong.
    #[error("the database {address} does not accept this user, password or database name")]
    Refused {
        /// Address, without the password.
        address: String,
        /// Error of the database.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The user may not do what must be done.
    #[error(
        "the user of the database {address} lacks a right: a ledger needs CREATE on the database, \
         or its schema owlclaw_ledger, and the rights to read and to write the tables in there"
    )]
    NotPermitted {
        /// Address, without the password.
        address: String,
        /// Error of the database.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// There is no ledger in this database.
    #[error("there is no ledger in the database {address}")]
    Missing {
        /// Address, without the password.
        address: String,
    },
    /// An older version of this program has written it, and a server of this version must bring it
    /// up to date first.
    #[error(
        "the ledger in the database {address} has version {found}; a server must bring it to \
         version {known} before it can be read"
    )]
    Older {
        /// Address, without the password.
        address: String,
        /// Version found.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
    /// A newer version of this program has written it.
    #[error(
        "the ledger in the database {address} has version {found}; this program knows versions \
         up to {known}"
    )]
    Newer {
        /// Address, without the password.
        address: String,
        /// Version found.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
    /// Tables that do not fit the entries, or do not do what they are told to.
    #[error(
        "the ledger in the database {address} must not be gone on with: {fault} (docs/postgres.md#what-a-start-refuses)"
    )]
    Unsound {
        /// Address, without the password.
        address: String,
        /// Fault that was found.
        fault: Fault,
    },
    /// Any other error of the database.
    #[error("the ledger in the database {address} cannot be used")]
    Database {
        /// Address, without the password.
        address: String,
        /// Error of the database.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The thread that takes care of the ledger could not be started.
    #[error("a thread for the ledger cannot be started")]
    Thread(#[source] std::io::Error),
}
