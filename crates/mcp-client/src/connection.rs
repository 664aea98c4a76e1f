//! One connection: opening it, closing it, and what its parts share.

mod lists;
mod methods;
mod negotiate;
mod requests;
mod session;
mod skills;
pub(crate) mod subscription;
mod tasks;

use crate::{
    Dial, Error, Options, Speak,
    wire::shared::{Agreed, Shared},
};
use mcp_protocol::{
    Era, MirroredParams, ProtocolVersion, client::LeftOut, model::ClientCapabilities,
};
use session::Session;
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::Mutex as AsyncMutex;

/// A connection to one server. Cheap to clone; it is closed when the last clone is dropped, and a child
/// is then ended in the background.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: Options,
    /// Facts of the last list of tools that calls depend on.
    listed: Mutex<Listed>,
    /// Items that do not fit, of each list as it was last read.
    left_out: Mutex<BTreeMap<&'static str, Vec<LeftOut>>>,
    /// State that a new legacy session must be told again.
    session: AsyncMutex<Session>,
    /// Declaration of the last modern request, beside the capabilities that it was made of.
    declared: Mutex<Option<(ClientCapabilities, Arc<ClientCapabilities>)>>,
}

/// Facts of a list of tools.
#[derive(Debug, Default)]
struct Listed {
    /// Headers that repeat arguments, by tool (2026-07-28).
    mirrored: HashMap<String, MirroredParams>,
    /// Tools that can be called as tasks alone (2025-11-25).
    tasks: HashSet<String>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close("it was closed");
    }
}

impl Connection {
    /// Connects: opens the way, finds out which revision the server speaks, and opens a session if that
    /// is a legacy one.
    ///
    /// # Errors
    ///
    /// [`Error`] when the server cannot be reached, or no revision can be agreed on.
    pub async fn open(dial: &Dial, options: Options) -> Result<Self, Error> {
        match Self::over(dial, options.clone()).await {
            Err(error) => match dial.falls_back(&error) {
                Some(dial) => {
                    let opened = Self::over(&dial, options).await;
                    opened.map_err(|of_old| error.beside_old(of_old))
                }
                None => Err(error),
            },
            opened => opened,
        }
    }

    /// Opens the way and agrees on a revision. A server that ends because of the probe is started or dialled anew,
    /// once, and sent `initialize` at once.
    async fn over(dial: &Dial, mut options: Options) -> Result<Self, Error> {
        if dial.is_legacy() && options.speak == Speak::Probe {
            options.speak = Speak::Only(ProtocolVersion::NEWEST_LEGACY);
        }
        let mut connection = Self::dialled(dial, options).await?;
        if let Err(error) = connection.negotiate().await {
            let version = connection.lost_by_probing(&error);
            let Some(version) = version.filter(|_| dial.is_renewable()) else {
                return Err(error);
            };
            tracing::debug!(%error, "the server has ended at the probe, and is begun with anew");
            let mut options = connection.options().clone();
            options.speak = Speak::Only(version);
            // Two of a program at once could be in each other's way.
            connection.close().await;
            let Ok(anew) = Self::dialled(dial, options).await else {
                return Err(error);
            };
            connection = anew;
            connection.negotiate().await?;
        }
        let agreed = connection.agreed();
        if let Some(level) = connection.options().log_level
            && agreed.version.era() == Era::Legacy
            && agreed.offer.logging.is_some()
        {
            match connection.set_level(level).await {
                // Some declare `logging` and refuse it; all else that they offer can be used.
                Err(error @ Error::Server { .. }) => {
                    tracing::warn!(%error, "the server does not take the severity of log messages");
                }
                taken => taken?,
            }
        }
        Ok(connection)
    }

    /// Opens the way; nothing is agreed on yet.
    async fn dialled(dial: &Dial, options: Options) -> Result<Self, Error> {
        let shared = Shared::new(options.bounds.clone(), Arc::clone(&options.handlers));
        let link = dial.open(&shared).await?;
        if shared.link.set(link).is_err() {
            return Err(Error::closed("it was opened twice"));
        }
        Ok(Self(Arc::new(Inner {
            shared,
            options,
            listed: Mutex::default(),
            left_out: Mutex::default(),
            session: AsyncMutex::default(),
            declared: Mutex::default(),
        })))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    /// The agreement on how client and server speak, and what the server has said about itself.
    #[must_use]
    pub fn agreed(&self) -> Arc<Agreed> {
        self.0.shared.agreed()
    }

    /// True once the connection has ended. An ended connection stays so; dial again.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.shared.is_closed()
    }

    /// Number of requests that are under way, and of subscriptions of a modern server.
    #[must_use]
    pub fn requests_under_way(&self) -> usize {
        self.0.shared.under_way()
    }

    /// The last lines that a child has written to standard error; empty for other servers.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.0.shared.link().stderr()
    }

    /// Closes the connection as the protocol says, and waits until that is done: the server was told of calls that
    /// were given up (for [`Bounds::close_patience`](crate::Bounds) at most), a child has ended, a legacy session was
    /// given back. Requests that are under way fail.
    pub async fn close(self) {
        let shared = Arc::clone(&self.0.shared);
        let patience = shared.bounds.close_patience;
        // What is still to be said belongs to the session, and means nothing after its end.
        let _ = tokio::time::timeout(patience, shared.errands_done()).await;
        shared.close("it was closed");
        shared.link().closed(&shared).await;
    }

    pub(crate) fn capabilities(
        &self,
        of_request: Option<&ClientCapabilities>,
    ) -> Arc<ClientCapabilities> {
        let base = match of_request {
            Some(of_request) => Cow::Borrowed(of_request),
            None => Cow::Owned(self.options().handlers.capabilities()),
        };
        let mut declared = self
            .0
            .declared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((of, all)) = &*declared
            && *of == *base
        {
            return Arc::clone(all);
        }
        let mut all = base.clone().into_owned();
        if self.options().tasks {
            all.extensions
                .extend(ClientCapabilities::of_tasks().extensions);
        }
        let all = Arc::new(all);
        *declared = Some((base.into_owned(), Arc::clone(&all)));
        all
    }
}
