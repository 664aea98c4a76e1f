//! Errors of opening a ledger in PostgreSQL.

use std::error::Error;

/// Why a ledger in PostgreSQL could not be opened. No password shows.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// Nobody answers there, or not in time.
    #[error("the database {address} cannot be reached")]
    Unreachable {
        /// Where, without the password.
        address: String,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The user, the password or the name of the database is wrong.
    #[error("the database {address} lets nobody in like this")]
    Refused {
        /// Where, without the password.
        address: String,
        /// What it said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The user may not do what must be done.
    #[error(
        "the user of the database {address} lacks a right: a ledger needs CREATE on the database, \
         or its schema owlclaw_ledger, and the rights to read and to write the tables in there"
    )]
    NotPermitted {
        /// Where, without the password.
        address: String,
        /// What it said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// There is no ledger in this database.
    #[error("there is no ledger in the database {address}")]
    Missing {
        /// Where, without the password.
        address: String,
    },
    /// An older version of this program has written it, and a server of this version must bring it
    /// up to date first.
    #[error(
        "the ledger in the database {address} has version {found}; a server must bring it to \
         version {known} before it can be read"
    )]
    Older {
        /// Where, without the password.
        address: String,
        /// Its version.
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
        /// Where, without the password.
        address: String,
        /// Its version.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
    /// Anything else the database says.
    #[error("the ledger in the database {address} cannot be used")]
    Database {
        /// Where, without the password.
        address: String,
        /// What it said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The thread that takes care of the ledger could not be started.
    #[error("a thread for the ledger cannot be started")]
    Thread(#[source] std::io::Error),
}
