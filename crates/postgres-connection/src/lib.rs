//! Addresses of `PostgreSQL` databases, and connections to them.
//!
//! A connection to another machine is encrypted, and the server proves its name, unless the address says
//! `sslmode=disable`. A connection to this machine (a Unix socket, `localhost`, a loopback address) is not
//! encrypted unless the address asks for it.
//!
//! ```
//! use postgres_connection::Address;
//!
//! let address = Address::new("postgres://mary:secret@db.example/ledger")?;
//! assert!(address.is_encrypted());
//! assert_eq!(address.to_string(), "postgres://mary@db.example:5432/ledger");
//!
//! let address = Address::new("postgres://mary:secret@localhost/ledger")?;
//! assert!(!address.is_encrypted());
//! # Ok::<(), postgres_connection::AddressError>(())
//! ```

mod address;
mod error;
mod tls;

pub use self::{
    address::Address,
    error::{AddressError, ConnectError},
};
