use std::{io, path::PathBuf};

/// Reason why an address cannot be used. The address itself is not part of any message: it may hold a
/// password.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// Text that is not the address of a database.
    #[error(
        "the database's address must be like postgres://USER@HOST:PORT/DATABASE, with parameters behind a `?` that \
         PostgreSQL knows, such as sslmode; a password stands behind USER and a colon, its special characters as %XX"
    )]
    Malformed,
    /// An address without a host.
    #[error("the database's address names no host")]
    NoHost,
    /// A value of `sslmode` that promises nothing, or does not exist.
    #[error(
        "`sslmode` of the database's address must be verify-full (the default for other machines), verify-ca, or \
         disable for a network that is trusted; require is taken for verify-full, and the others of libpq promise \
         nothing"
    )]
    Mode,
    /// A parameter about certificates beside `sslmode=disable`.
    #[error(
        "`{0}` of the database's address has no effect on a connection that is not encrypted: give `sslmode` too"
    )]
    NotEncrypted(&'static str),
    /// A parameter that is given twice.
    #[error("`{0}` is in the database's address twice")]
    Twice(&'static str),
    /// A relative path.
    #[error("`{0}` of the database's address must be an absolute path")]
    Relative(&'static str),
    /// One of `sslcert` and `sslkey` without the other.
    #[error("`sslcert` and `sslkey` of the database's address need each other")]
    Half,
    /// A file that cannot be read.
    #[error("`{key}` of the database's address: {} cannot be read", path.display())]
    File {
        /// Parameter that names the file.
        key: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file without what is looked for in it.
    #[error("`{key}` of the database's address: there is no {what} in PEM in {}", path.display())]
    Pem {
        /// Parameter that names the file.
        key: &'static str,
        /// Kind of the missing item.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
    },
    /// A private key that other users of the machine can read.
    #[error("`sslkey` of the database's address: other users can read {}; do `chmod 600`", .0.display())]
    OpenKey(PathBuf),
    /// A machine without certificate authorities of its own.
    #[error(
        "no certificate authority of this system can be read: install them (Debian: ca-certificates), or name the \
         database's own in `sslrootcert`"
    )]
    NoAuthorities,
    /// Certificates or a key that cannot be used.
    #[error("the certificates or the key of the database's address cannot be used")]
    Certificates(#[source] rustls::Error),
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A server that offers no encryption, or whose certificate is not accepted.
    #[error(
        "there can be no encrypted connection to the database; name the authority of its certificate by \
         `sslrootcert=/path` in the address, or write `sslmode=disable` if the network is trusted"
    )]
    Encryption(#[source] tokio_postgres::Error),
    /// Any other reason: no answer, or a refusal of the database.
    #[error(transparent)]
    Database(tokio_postgres::Error),
}

impl ConnectError {
    /// Error of the database, if that is the reason.
    #[must_use]
    pub fn database(&self) -> Option<&tokio_postgres::Error> {
        match self {
            Self::Database(error) => Some(error),
            Self::Encryption(_) => None,
        }
    }
}

impl From<tokio_postgres::Error> for ConnectError {
    fn from(error: tokio_postgres::Error) -> Self {
        // The library says it in no other way.
        match error
            .to_string()
            .starts_with("error performing TLS handshake")
        {
            true => Self::Encryption(error),
            false => Self::Database(error),
        }
    }
}
