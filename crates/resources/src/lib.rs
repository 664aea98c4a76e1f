//! Resources that are neither skills nor of an application: files of directories, watched while they change.
//!
//! ```
//! use mcp_server::ToolSource;
//! use resources::{Files, FolderOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! std::fs::write(directory.path().join("may.csv"), "day,sum\n")?;
//! let reports = FolderOptions {
//!     include: vec!["*.csv".to_owned()],
//!     ..FolderOptions::new(directory.path())
//! };
//! let files = Files::open([("reports".to_owned(), reports)].into(), &directory.path().join("kept.db"), 0)?;
//! let offered = files.resources().ok_or("nothing is offered")?;
//! assert_eq!(offered.entries()[0].resource.uri, "files://reports/may.csv");
//! assert_eq!(offered.canonical("files://reports/../etc/passwd"), None);
//! # Ok(())
//! # }
//! ```
//!
//! No string of a client becomes a path: an address is names, and each name is opened in the directory that the one
//! before has led to, without following links. Directories are configured by operators, who also say what clients may
//! do with them; that they may is decided by the rules of the server, for each address.

mod files;
mod store;

pub use crate::files::{COMPONENT, Files, FolderError, FolderOptions, OpenError, SCHEME};
pub use crate::store::StoreError;
