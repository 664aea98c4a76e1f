//! Tokens that upstreams are shown in exchange for those of callers.

use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use mcp_client::{Attempt, Authorize, Unauthorized};
use oauth_client::{AuthorizationError, ExchangedAttempt, ExchangedTokens, Verdict};
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Callers whose tokens are kept for reading lists.
const MAX_RECENT: usize = 8;

/// Authorization of a connection for one caller.
pub(crate) struct Exchanged(pub(crate) ExchangedTokens);

struct OneRequest(ExchangedAttempt);

impl Authorize for Exchanged {
    fn attempt(&self) -> Box<dyn Attempt> {
        Box::new(OneRequest(self.0.attempt()))
    }
}

impl Attempt for OneRequest {
    fn authorize<'a>(
        &'a mut self,
        _: &'a Method,
        url: &'a str,
        headers: &'a mut HeaderMap,
    ) -> BoxFuture<'a, Result<(), Unauthorized>> {
        Box::pin(async {
            let authorized = self.0.authorize(url, headers).await;
            authorized.map_err(of_caller)
        })
    }

    fn judge<'a>(
        &'a mut self,
        status: StatusCode,
        _: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<bool, Unauthorized>> {
        Box::pin(async move {
            let judged = self.0.judge(status).await.map_err(of_caller)?;
            Ok(judged == Verdict::Repeat)
        })
    }
}

/// Kind of an error of an exchange: what is asked for may be too much for one caller, and not for the next.
fn of_caller(error: AuthorizationError) -> Unauthorized {
    match (error.code(), Unauthorized::from(error.clone())) {
        (
            Some("invalid_scope" | "invalid_target" | "invalid_request"),
            Unauthorized::Misconfigured { reason, .. },
        ) => Unauthorized::Refused(reason),
        (_, other) => other,
    }
}

/// A caller's token, as part of what a connection belongs to.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject(pub(crate) Arc<str>);

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subject")
    }
}

/// Tokens by which callers have proved who they are, as long as an upstream wants others in exchange for them.
#[derive(Default)]
pub struct Subjects {
    is_wanted: AtomicBool,
    /// The last callers, with whose tokens lists can be read that nobody knows yet.
    recent: Mutex<VecDeque<(Arc<str>, Subject)>>,
}

impl fmt::Debug for Subjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subjects").finish_non_exhaustive()
    }
}

impl Subjects {
    /// True if tokens of callers are to be kept at hand.
    #[must_use]
    pub fn are_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub(crate) fn want(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
        if !is_wanted {
            self.recent().clear();
        }
    }

    /// Notes that a caller has proved who it is by a token.
    pub fn seen(&self, principal: &Arc<str>, token: &Arc<str>) {
        let mut recent = self.recent();
        if recent.iter().any(|(_, it)| it.0 == *token) {
            return;
        }
        // One of each caller is enough.
        recent.retain(|(it, _)| it != principal);
        if MAX_RECENT <= recent.len() {
            recent.pop_front();
        }
        recent.push_back((Arc::clone(principal), Subject(Arc::clone(token))));
    }

    /// The last callers and their tokens, the latest first.
    pub(crate) fn last(&self) -> Vec<(Arc<str>, Subject)> {
        self.recent().iter().rev().cloned().collect()
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, VecDeque<(Arc<str>, Subject)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
