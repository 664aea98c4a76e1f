//! Bounds on WebSockets and on the memory of their messages.

use crate::WebSocketOptions;
use mcp_service::{Floods, Principal};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use uuid::Uuid;

/// The WebSockets of a server.
#[derive(Debug)]
pub struct WebSockets {
    options: WebSocketOptions,
    open: Mutex<HashMap<Principal, usize>>,
    total: AtomicUsize,
    refused: AtomicU64,
    unfinished: AtomicUsize,
    floods: Floods,
}

/// Figures of all WebSockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of open connections.
    pub open: usize,
    /// Number of connections refused, because there were too many.
    pub refused: u64,
    /// Number of connections that were closed because of too many frames without payload.
    pub flooded: u64,
}

/// Reason why no further connection may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// In all.
    #[error("too many WebSockets; at most {0} are open at once")]
    InAll(usize),
    /// Of one principal.
    #[error("too many WebSockets; at most {0} per client are open at once")]
    OfPrincipal(usize),
}

/// One that is open, until it is dropped.
#[derive(Debug)]
pub struct Place {
    sockets: Arc<WebSockets>,
    principal: Principal,
    session: Arc<str>,
}

impl WebSockets {
    /// None yet.
    pub fn new(options: WebSocketOptions) -> Arc<Self> {
        Arc::new(Self {
            options,
            open: Mutex::default(),
            total: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            unfinished: AtomicUsize::new(0),
            floods: Floods::default(),
        })
    }

    /// Options.
    pub fn options(&self) -> &WebSocketOptions {
        &self.options
    }

    /// Figures.
    pub fn figures(&self) -> Figures {
        Figures {
            open: self.total.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            flooded: self.floods.count(),
        }
    }

    /// A place for one of `principal`.
    ///
    /// # Errors
    ///
    /// [`Full`], and it is to be refused.
    pub fn enter(self: &Arc<Self>, principal: &Principal) -> Result<Place, Full> {
        let mut open = self.open();
        let own = open.get(principal).copied().unwrap_or_default();
        let total = self.total.load(Ordering::Relaxed);
        let full = if self.options.max_open <= total {
            Full::InAll(self.options.max_open)
        } else if self.options.max_open_per_principal <= own {
            Full::OfPrincipal(self.options.max_open_per_principal)
        } else {
            open.insert(principal.clone(), own + 1);
            self.total.store(total + 1, Ordering::Relaxed);
            return Ok(Place {
                sockets: Arc::clone(self),
                principal: principal.clone(),
                session: Uuid::new_v4().to_string().into(),
            });
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(full)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Principal, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Principal that the connection belongs to.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Name of the connection in the ledger and in logs.
    pub fn session(&self) -> &Arc<str> {
        &self.session
    }

    pub(crate) fn options(&self) -> &WebSocketOptions {
        &self.sockets.options
    }

    /// Holds `bytes` more of an unfinished message of at most `max_message`; whether there is room.
    pub(crate) fn hold(&self, bytes: usize, max_message: usize) -> bool {
        let max = self.sockets.options.max_unfinished.max(max_message);
        let before = self.sockets.unfinished.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= max;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    /// Marks that its client has sent too many frames without content.
    pub(crate) fn flooded(&self) {
        self.sockets.floods.ended("websocket", &self.principal);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.sockets.unfinished.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.sockets.open();
        self.sockets.total.fetch_sub(1, Ordering::Relaxed);
        if let Some(own) = open.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_in_all_and_of_one_and_room_comes_back() {
        let sockets = WebSockets::new(WebSocketOptions {
            max_open: 3,
            max_open_per_principal: 2,
            max_unfinished: 100,
            ..WebSocketOptions::default()
        });
        let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
        let first = sockets.enter(&ann).unwrap();
        let second = sockets.enter(&ann).unwrap();
        assert_eq!(sockets.enter(&ann).unwrap_err(), Full::OfPrincipal(2));
        let third = sockets.enter(&bob).unwrap();
        assert_eq!(sockets.enter(&bob).unwrap_err(), Full::InAll(3));
        assert_eq!(
            sockets.figures(),
            Figures {
                open: 3,
                refused: 2,
                flooded: 0
            }
        );
        drop(first);
        let again = sockets.enter(&bob).unwrap();
        drop((second, third, again));
        assert_eq!(sockets.figures().open, 0);
        assert!(
            sockets.open().is_empty(),
            "nobody is remembered for nothing"
        );
    }

    #[test]
    fn what_is_held_is_held_of_all_together() {
        let sockets = WebSockets::new(WebSocketOptions {
            max_unfinished: 100,
            ..WebSocketOptions::default()
        });
        let ann = sockets.enter(&Principal::new("ann")).unwrap();
        let bob = sockets.enter(&Principal::new("bob")).unwrap();
        assert!(ann.hold(60, 50) && bob.hold(40, 50));
        assert!(!bob.hold(1, 50), "not one byte more");
        assert!(bob.hold(1, 101), "a whole message always fits by itself");
        ann.give_back(60);
        assert!(bob.hold(59, 50) && !bob.hold(1, 50));
    }
}
