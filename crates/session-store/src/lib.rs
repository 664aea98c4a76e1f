//! Sessions that outlive the process: which there are, whose they are, and when they were last used.
//!
//! A [`SessionStore`] is a file that one process has open. It knows nothing of what a session is: its
//! state is a text. What is asked of it is noted in memory and written by a thread of its own,
//! everything that has come in meanwhile in one transaction, so whoever asks never waits for a disk;
//! who wants to know that something would survive the process waits for
//! [`settled`](SessionStore::settled).
//!
//! A session is a convenience: without it a client begins a new one. So a file that cannot be used
//! any more is no reason not to start, see [`SessionStore::open`]. But what has ended must not come
//! back, so when more waits to be written than there is room for, everything is forgotten.
//!
//! ```
//! use session_store::{SessionRecord, SessionStore};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("sessions.db");
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let opened = SessionStore::open(&path)?;
//! assert!(opened.sessions.is_empty());
//! let session = SessionRecord {
//!     id: "5f2c".to_owned(),
//!     principal: "alice".to_owned(),
//!     state: "{}".to_owned(),
//!     lives: 0,
//!     last_used_ms: 1_790_000_000_000,
//! };
//! opened.store.put(session.clone());
//! opened.store.settled().await;
//! drop(opened);
//!
//! let opened = SessionStore::open(&path)?;
//! assert_eq!(opened.sessions, [session]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aside;
mod record;
mod schema;
mod store;
mod table;
mod waiting;
mod writer;

pub use crate::{
    aside::SetAside,
    record::{MAX_STATE_BYTES, SessionRecord},
    schema::OpenError,
    store::{Opened, SessionStore},
    waiting::{MAX_WAITING, MAX_WAITING_BYTES},
};
