use crate::{
    OpenError, SessionRecord, SetAside,
    aside::set_aside,
    schema, table,
    writer::{Desk, Writer},
};
use rusqlite::{Connection, ErrorCode};
use sqlite_file::{FileLock, Unusable};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};

/// Sessions in a `SQLite` file, which only this process may have open.
///
/// While the disk fails what is asked for waits, up to [`MAX_WAITING`](crate::MAX_WAITING) sessions.
/// Dropping it writes what waits, and waits for that: then the file may be opened again.
pub struct SessionStore {
    path: PathBuf,
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

/// A store, and what it holds.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SessionStore,
    /// Sessions found in the file, the last used one first.
    pub sessions: Vec<SessionRecord>,
    /// The store that was there before, if it could not be used.
    pub set_aside: Option<SetAside>,
}

impl SessionStore {
    /// Opens the store at `path`; makes it and its directories if there is none, for their owner
    /// alone. It blocks while the file is read. A lock file beside it, named like it with `.lock`
    /// at the end, shows other processes that it is in use.
    ///
    /// A store that is damaged, or was written by a newer version, is moved aside, to its name with
    /// `.set-aside` at the end, and another is begun.
    ///
    /// # Errors
    ///
    /// [`OpenError`]. A file that was never a store is left as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Opened, OpenError> {
        let (path, mut lock) = schema::take(path.as_ref())?;
        let mut moved = None;
        let (connection, sessions) = match read(&path) {
            Ok(read) => read,
            Err(unusable) => {
                moved = Some(set_aside(&path, may_be_moved(unusable, &path, &lock)?)?);
                let path = schema::create(&path)?;
                read(&path).map_err(|error| database(&path, error.into()))?
            }
        };
        schema::note_store(&mut lock).map_err(|source| OpenError::File {
            path: path.clone(),
            source,
        })?;
        let writer = Writer {
            path: path.clone(),
            connection: Some(connection),
            _lock: lock,
        };
        let desk = Arc::new(Desk::new());
        let thread = thread::Builder::new()
            .name("session-store".to_owned())
            .spawn({
                let desk = Arc::clone(&desk);
                move || writer.run(&desk)
            })
            .map_err(OpenError::Thread)?;
        Ok(Opened {
            store: Self {
                path,
                desk,
                thread: Some(thread),
            },
            sessions,
            set_aside: moved,
        })
    }

    /// Keeps a session, instead of what was known of it.
    pub fn put(&self, session: SessionRecord) {
        self.desk.ask(|waiting| waiting.put(session));
    }

    /// Keeps when a session was last used, if it is kept.
    pub fn touch(&self, id: &str, last_used_ms: u64) {
        self.desk.ask(|waiting| waiting.touch(id, last_used_ms));
    }

    /// Keeps a session no longer.
    pub fn remove(&self, id: &str) {
        self.desk.ask(|waiting| waiting.remove(id));
    }

    /// Resolves once everything asked for so far is written; not while the disk fails. What has ended
    /// survives the machine from then on, everything else the process.
    pub async fn settled(&self) {
        let asked = self.desk.asked();
        let mut written = self.desk.written.subscribe();
        // The sender lives as long as `self`.
        let _ = written.wait_for(|written| asked <= *written).await;
    }

    /// Reason why nothing can be written at the moment.
    pub fn trouble(&self) -> Option<String> {
        self.desk.trouble()
    }
}

impl fmt::Debug for SessionStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SessionStore")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Drop for SessionStore {
    fn drop(&mut self) {
        self.desk.close();
        if let Some(thread) = self.thread.take() {
            // A panic of it has been reported where it happened.
            let _ = thread.join();
        }
    }
}

fn read(path: &Path) -> Result<(Connection, Vec<SessionRecord>), Unusable> {
    let connection = schema::open(path)?;
    schema::check(&connection)?;
    let sessions = match table::all(&connection) {
        Ok(sessions) => sessions,
        Err(error) => match Unusable::from(error) {
            // What we have not written, or would not write.
            Unusable::Database(error)
                if matches!(error.sqlite_error_code(), None | Some(ErrorCode::Unknown)) =>
            {
                return Err(Unusable::Damaged(error.to_string()));
            }
            unusable => return Err(unusable),
        },
    };
    Ok((connection, sessions))
}

/// Reason for moving a file aside, if it may be moved.
fn may_be_moved(unusable: Unusable, path: &Path, lock: &FileLock) -> Result<String, OpenError> {
    match unusable {
        Unusable::Newer { .. } | Unusable::Damaged(_) => Ok(unusable.to_string()),
        // Only that there was a store tells what is left of one from something else.
        Unusable::NotADatabase if schema::was_a_store(lock) => Ok(unusable.to_string()),
        Unusable::NotADatabase | Unusable::Foreign => {
            Err(OpenError::NotASessionStore(path.to_owned()))
        }
        Unusable::Busy(_) => Err(OpenError::Locked(path.to_owned())),
        Unusable::Database(error) => Err(database(path, error.into())),
    }
}

fn database(path: &Path, source: Box<dyn std::error::Error + Send + Sync>) -> OpenError {
    OpenError::Database {
        path: path.to_owned(),
        source,
    }
}
