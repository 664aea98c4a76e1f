//! Identity of a caller.

use futures_util::future::{Either, pending, select, select_all};
use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    pin::pin,
    sync::Arc,
    time::SystemTime,
};
use tokio::{sync::watch, time::sleep};

/// Expiry of a revocable credential, as its owner states it now; `None` for no end. The credential is
/// revoked when the owner drops the sender.
pub type Revocation = watch::Receiver<Option<SystemTime>>;

/// Caller, as the transport established it. Never taken from a message (decision D7).
///
/// Equality, order and hash are those of the name alone: quotas, sessions and tasks belong to the
/// name, whatever roles it has at the moment.
#[derive(Clone)]
pub struct Principal {
    name: Arc<str>,
    /// Sorted, each once, and never empty.
    roles: Option<Arc<[Arc<str>]>>,
    expires: Option<SystemTime>,
    revocations: Option<Arc<[Revocation]>>,
    headers: Option<Arc<Vec<Header>>>,
    token: Option<Arc<str>>,
}

/// Name of a header, in lower case, and its value.
pub type Header = (Arc<str>, Box<str>);

impl Principal {
    /// The most bytes in a principal's name.
    pub const MAX_LENGTH: usize = 256;

    /// The principal `name`, without roles and without expiry.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            roles: None,
            expires: None,
            revocations: None,
            headers: None,
            token: None,
        }
    }

    /// The same principal with `roles`, as its authentication proves them, and no others. It costs
    /// least if they are sorted and each is there once.
    #[must_use]
    pub fn with_roles(self, roles: Arc<[Arc<str>]>) -> Self {
        let roles = if roles.is_empty() {
            None
        } else if roles.is_sorted_by(|one, next| one < next) {
            Some(roles)
        } else {
            let mut sorted = roles.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            Some(sorted.into())
        };
        Self { roles, ..self }
    }

    /// The same one until `expires`: what has proved who it is proves nothing afterwards. Requests
    /// are looked at when they come; what goes on for long ends then.
    #[must_use]
    pub fn until(self, expires: SystemTime) -> Self {
        Self {
            expires: Some(expires),
            ..self
        }
    }

    /// The same principal for as long as each of `revocations` is good. As with
    /// [`until`](Self::until), this is for what goes on for long.
    #[must_use]
    pub fn while_valid(self, revocations: Arc<[Revocation]>) -> Self {
        let revocations = (!revocations.is_empty()).then_some(revocations);
        Self {
            revocations,
            ..self
        }
    }

    /// The same principal with headers of this very request, for handlers. They prove nothing.
    #[must_use]
    pub fn with_headers(self, headers: Vec<Header>) -> Self {
        let headers = (!headers.is_empty()).then(|| Arc::new(headers));
        Self { headers, ..self }
    }

    /// The same principal with the token of this very request that has proved who it is: for an authorization server that
    /// exchanges it for another, and for nobody else.
    #[must_use]
    pub fn with_token(self, token: Arc<str>) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    /// The token of its request, where something is to be got in exchange for it.
    pub fn token(&self) -> Option<&Arc<str>> {
        self.token.as_ref()
    }

    /// Headers of its request for handlers, if there are any.
    pub fn shared_headers(&self) -> Option<&Arc<Vec<Header>>> {
        self.headers.as_ref()
    }

    /// Name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Name, to keep.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Roles that its authentication proves, sorted, each once. Those that the policy gives to its
    /// name are not among them.
    pub fn roles(&self) -> &[Arc<str>] {
        self.roles.as_deref().unwrap_or_default()
    }

    /// The same roles, to keep; `None` if there are none.
    pub fn shared_roles(&self) -> Option<&Arc<[Arc<str>]>> {
        self.roles.as_ref()
    }

    /// Time at which the proof of its identity expires.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    /// Resolves when what has proved who it is proves nothing any more, because it has expired or was
    /// taken back. `None` if that cannot come to pass.
    pub fn end(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (expires, revocations) = (self.expires, self.revocations.clone());
        let can_end = expires.is_some() || revocations.is_some();
        can_end.then_some(async move {
            let expired = pin!(until(expires));
            let revocations = revocations.iter().flat_map(|it| it.iter());
            let mut taken_back: Vec<_> = revocations
                .cloned()
                .map(|it| Box::pin(taken_back(it)))
                .collect();
            if taken_back.is_empty() {
                return expired.await;
            }
            select(expired, select_all(&mut taken_back)).await;
        })
    }

    /// Returns true if the roles and the expiry are the same as well.
    pub(crate) fn is_exactly(&self, other: &Self) -> bool {
        let same_roles = match (&self.roles, &other.roles) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
            _ => false,
        };
        let same_keeper = match (&self.revocations, &other.revocations) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        same_roles && same_keeper && self.expires == other.expires && self == other
    }
}

async fn until(end: Option<SystemTime>) {
    match end {
        Some(end) => {
            let left = end.duration_since(SystemTime::now());
            sleep(left.unwrap_or_default()).await;
        }
        None => pending().await,
    }
}

async fn taken_back(mut revocation: Revocation) {
    loop {
        let end = *revocation.borrow_and_update();
        let over = match select(pin!(until(end)), pin!(revocation.changed())).await {
            Either::Left(((), _)) => true,
            Either::Right((changed, _)) => changed.is_err(),
        };
        if over {
            return;
        }
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.name, &other.name) || self.name == other.name
    }
}

impl Eq for Principal {}

impl PartialOrd for Principal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Principal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)?;
        match &self.roles {
            Some(roles) => write!(f, " with {roles:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        collections::HashSet,
        task::{Context, Waker},
        time::Duration,
    };
    use tokio::time::Instant;

    fn revocable(end: Option<SystemTime>) -> (watch::Sender<Option<SystemTime>>, Revocation) {
        watch::channel(end)
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_it_is_taken_back_or_ends_sooner() {
        let hour = Duration::from_secs(3_600);
        assert!(Principal::new("anna").end().is_none());
        assert!(
            Principal::new("anna")
                .while_valid(Arc::new([]))
                .end()
                .is_none()
        );

        let (one, other) = (revocable(None), revocable(None));
        let both = Principal::new("anna").while_valid([one.1, other.1].into());
        let mut ends = pin!(both.end().unwrap());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(ends.as_mut().poll(cx).is_pending());
        drop(one.0);
        assert!(ends.as_mut().poll(cx).is_ready(), "one is enough");
        assert!(
            pin!(both.end().unwrap()).poll(cx).is_ready(),
            "and it stays so"
        );

        // What its keeper says last counts.
        let began = Instant::now();
        let (keeper, it) = revocable(Some(SystemTime::now() + 48 * hour));
        let anna = Principal::new("anna").while_valid([it].into());
        let mut ends = pin!(anna.end().unwrap());
        assert!(ends.as_mut().poll(cx).is_pending());
        keeper.send_replace(Some(SystemTime::now() + hour));
        assert!(ends.as_mut().poll(cx).is_pending());
        ends.await;
        let lasted = began.elapsed();
        assert!(lasted <= 2 * hour && hour / 2 < lasted, "{lasted:?}");
    }

    fn roles(names: &[&str]) -> Arc<[Arc<str>]> {
        names.iter().map(|&name| Arc::from(name)).collect()
    }

    #[test]
    fn the_name_alone_says_who_it_is() {
        let plain = Principal::new("anna");
        let clerk = Principal::new("anna").with_roles(roles(&["clerk"]));
        let soon = clerk
            .clone()
            .until(SystemTime::UNIX_EPOCH + Duration::from_secs(1));
        assert_eq!(plain, clerk);
        assert_eq!(plain.cmp(&clerk), Ordering::Equal);
        assert_eq!(HashSet::from([plain.clone(), clerk.clone()]).len(), 1);
        assert_ne!(plain, Principal::new("bert"));
        assert!(!plain.is_exactly(&clerk) && !clerk.is_exactly(&soon));
        assert!(clerk.is_exactly(&Principal::new("anna").with_roles(roles(&["clerk"]))));
        assert!(!plain.is_exactly(&Principal::new("bert")));
    }

    #[test]
    fn roles_are_sorted_and_each_is_there_once() {
        let mixed = Principal::new("anna").with_roles(roles(&["b", "a", "b"]));
        assert_eq!(mixed.roles(), &*roles(&["a", "b"]));
        let sorted = roles(&["a", "b"]);
        let kept = Principal::new("anna").with_roles(Arc::clone(&sorted));
        assert!(std::ptr::eq(kept.roles(), &*sorted), "and not copied");
        assert_eq!(kept.with_roles(roles(&[])).roles(), []);
    }
}
