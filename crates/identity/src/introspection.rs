//! Tokens that only their issuer can read (RFC 7662).

use crate::{
    Identity, IssuerOptions, Means, Rejection,
    api_key::digest_of,
    claims,
    compact::{MAX_TOKEN_BYTES, claimed_issuer},
    fetch::with_causes,
    remembered::Remembered,
};
use serde_json::Value;
use std::{
    collections::HashMap,
    error::Error,
    fmt, mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{OnceCell, Semaphore},
    time::timeout,
};

/// Longest time a request waits for the issuer's answer, its turn included.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Questions that are open at once.
const MAX_OPEN: usize = 32;
/// Time after a failure in which the issuer is asked nothing.
const REST: Duration = Duration::from_secs(1);

/// Asks the issuer's introspection endpoint.
pub trait AskIssuer: Send + Sync + 'static {
    /// The answer to a question about `token`, which consists of characters of RFC 6750 §2.1: the body of a
    /// response with status 200, or `None` if the issuer finds fault with the question (status 400), as some do with
    /// tokens that they cannot tell anything of. Anything else is an error, after which others are not asked about
    /// for a moment.
    fn ask<'a>(&'a self, token: &'a str) -> Asked<'a>;
}

/// An answer on its way.
pub type Asked<'a> = Pin<
    Box<dyn Future<Output = Result<Option<Vec<u8>>, Box<dyn Error + Send + Sync>>> + Send + 'a>,
>;

/// An issuer that is asked about its tokens, and what is made of its answers.
#[derive(Clone, Debug)]
pub struct IntrospectionOptions {
    /// The issuer, audiences, claims and scopes, as for tokens with a signature. Its `keys`, its `algorithms` and
    /// the times of its keys have no meaning here.
    pub issuer: IssuerOptions,
    /// Time for which an answer is used again. A token that its issuer has taken back is accepted for so long.
    pub remember: Duration,
}

/// Options that would let in tokens for any service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` has no audience")]
pub struct BadIntrospection(Arc<str>);

/// Verifier of tokens whose issuer is asked about them.
///
/// Several requests with one token ask once. While the issuer does not answer, no token is accepted but those whose
/// answer is remembered.
pub struct Introspection {
    options: IntrospectionOptions,
    ask: Box<dyn AskIssuer>,
    remembered: Remembered<Answer>,
    /// Questions that are open, by the digests of their tokens.
    open: Mutex<HashMap<[u8; 32], Arc<OnceCell<Verdict>>>>,
    turns: Semaphore,
    failure: Mutex<Option<Failure>>,
}

type Verdict = Result<Arc<Identity>, Rejection>;

/// Verdict of an answer, and the time at which it was given.
#[derive(Clone, Debug)]
struct Answer {
    verdict: Verdict,
    given: SystemTime,
}

#[derive(Debug)]
struct Failure {
    why: String,
    at: SystemTime,
}

impl Introspection {
    /// Verifier that asks by `ask`.
    ///
    /// # Errors
    ///
    /// [`BadIntrospection`].
    pub fn new(
        options: IntrospectionOptions,
        ask: impl AskIssuer,
    ) -> Result<Self, BadIntrospection> {
        let issuer = &options.issuer;
        if issuer.audiences.is_empty() && issuer.resource.is_none() {
            return Err(BadIntrospection(Arc::clone(&issuer.name)));
        }
        Ok(Self {
            options,
            ask: Box::new(ask),
            remembered: Remembered::default(),
            open: Mutex::default(),
            turns: Semaphore::new(MAX_OPEN),
            failure: Mutex::default(),
        })
    }

    /// Identity that `token` belongs to, if the issuer was asked a short time ago; `None` if it is to be asked, which
    /// [`verify_later`](Self::verify_later) does.
    #[must_use]
    pub fn verify(&self, token: &str, now: SystemTime) -> Option<Verdict> {
        let answer = self.remembered.find(&digest_of(token))?;
        let age = now.duration_since(answer.given).ok()?;
        if self.options.remember <= age {
            return None;
        }
        Some(answer.verdict.and_then(|identity| {
            match identity.expires.is_none_or(|expires| expires <= now) {
                true => Rejection::invalid("the token has expired"),
                false => Ok(identity),
            }
        }))
    }

    /// Returns true if `token` was accepted when its issuer was last asked.
    #[must_use]
    pub fn is_known(&self, token: &str) -> bool {
        let answer = self.remembered.find(&digest_of(token));
        answer.is_some_and(|it| it.verdict.is_ok())
    }

    /// Identity that `token` belongs to, by the issuer's answer, for which it waits five seconds at most.
    ///
    /// # Errors
    ///
    /// See [`Rejection`].
    pub async fn verify_later(&self, token: &str, clock: fn() -> SystemTime) -> Verdict {
        if MAX_TOKEN_BYTES < token.len() {
            return Rejection::malformed("the token is too long");
        }
        if claimed_issuer(token).is_some_and(|issuer| issuer != self.options.issuer.issuer) {
            // It is no business of this issuer, and good at another.
            return Rejection::invalid("the token is of an issuer that is not accepted here");
        }
        if let Some(verdict) = self.verify(token, clock()) {
            return verdict;
        }
        let digest = digest_of(token);
        let open = self.open(digest);
        let ask = || async {
            let asked = timeout(MAX_WAIT, self.ask_issuer(token, clock)).await;
            let verdict = asked.unwrap_or_else(|_| {
                let seconds = MAX_WAIT.as_secs();
                self.failed(format!("there was no answer for {seconds} s"), clock());
                Err(UNAVAILABLE)
            });
            if verdict != Err(UNAVAILABLE) {
                let answer = Answer {
                    verdict: verdict.clone(),
                    given: clock(),
                };
                self.remembered.insert(digest, answer);
            }
            verdict
        };
        open.question.get_or_init(ask).await.clone()
    }

    /// Reason why the issuer could not be asked the last time, if it could not.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map(|it| it.why.clone())
    }

    /// Name that the operator gave the issuer.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.options.issuer.name
    }

    fn open(&self, digest: [u8; 32]) -> Open<'_> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        Open {
            introspection: self,
            digest,
            question: Arc::clone(open.entry(digest).or_default()),
        }
    }

    async fn ask_issuer(&self, token: &str, clock: fn() -> SystemTime) -> Verdict {
        let Ok(_turn) = self.turns.acquire().await else {
            return Err(UNAVAILABLE);
        };
        if self.rests(clock()) {
            return Err(UNAVAILABLE);
        }
        let answer = match self.ask.ask(token).await {
            Ok(Some(answer)) => serde_json::from_slice::<Value>(&answer).ok(),
            Ok(None) => {
                return Rejection::invalid(
                    "the issuer finds fault with the question about the token",
                );
            }
            Err(error) => {
                self.failed(with_causes(&*error), clock());
                return Err(UNAVAILABLE);
            }
        };
        let active = answer.as_ref().and_then(|it| it.get("active")?.as_bool());
        let (Some(claims), Some(active)) = (answer, active) else {
            self.failed("its answer has no `active` (RFC 7662)".to_owned(), clock());
            return Err(UNAVAILABLE);
        };
        self.answered();
        match active {
            true => self.identity(&claims, clock()).map(Arc::new),
            false => Rejection::invalid("the token is not active"),
        }
    }

    fn identity(&self, claims: &Value, now: SystemTime) -> Result<Identity, Rejection> {
        let options = &self.options.issuer;
        match claims.get("iss") {
            None | Some(Value::Null) => {}
            Some(Value::String(iss)) if *iss == options.issuer => {}
            Some(_) => {
                return Rejection::invalid("the token is of an issuer that is not accepted here");
            }
        }
        // Some issuers call refresh and identity tokens active, too.
        let is_other = |name: &str, accepted: &[&str]| match claims.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::String(kind)) => !accepted.iter().any(|it| it.eq_ignore_ascii_case(kind)),
            Some(_) => true,
        };
        if is_other("token_type", &["bearer", "access_token", "dpop"])
            || is_other("typ", &["bearer", "jwt", "at+jwt", "dpop"])
        {
            return Rejection::invalid("the token is of another kind than access tokens");
        }
        let identity = claims::identity(claims, options, now)?;
        Ok(Identity {
            means: Means::Introspection {
                issuer: Arc::clone(&options.name),
            },
            ..identity
        })
    }

    fn rests(&self, now: SystemTime) -> bool {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let age = failure.as_ref().map(|it| now.duration_since(it.at));
        age.is_some_and(|age| age.is_ok_and(|age| age < REST))
    }

    fn failed(&self, why: String, at: SystemTime) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.as_ref().is_none_or(|before| before.why != why) {
            let issuer = &*self.options.issuer.name;
            tracing::warn!(
                issuer,
                error = why,
                "the issuer cannot be asked about tokens"
            );
        }
        *failure = Some(Failure { why, at });
    }

    fn answered(&self) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.take().is_some() {
            let issuer = &*self.options.issuer.name;
            tracing::info!(issuer, "the issuer answers questions about tokens again");
        }
    }
}

/// A request's share in a question, which leaves the list with the last request that waits for it.
struct Open<'a> {
    introspection: &'a Introspection,
    digest: [u8; 32],
    question: Arc<OnceCell<Verdict>>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // One is the list's, and one is this request's.
        const LAST: usize = 2;
        let mut open = self
            .introspection
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Given up while the list is locked: otherwise two requests that go at once would each count the other.
        let question = mem::take(&mut self.question);
        let is_over = question.initialized() || Arc::strong_count(&question) <= LAST;
        let is_ours = open
            .get(&self.digest)
            .is_some_and(|it| Arc::ptr_eq(it, &question));
        if is_over && is_ours {
            open.remove(&self.digest);
        }
        drop(question);
    }
}

impl fmt::Debug for Introspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introspection")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

const UNAVAILABLE: Rejection = Rejection::Unavailable {
    why: "the issuer of the token cannot be asked about it at present",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeySource;
    use std::{future, sync::Barrier, thread};

    struct Silent;

    impl AskIssuer for Silent {
        fn ask<'a>(&'a self, _: &'a str) -> Asked<'a> {
            Box::pin(future::pending())
        }
    }

    #[test]
    fn questions_that_several_requests_give_up_at_once_leave_nothing_behind() {
        let keys = KeySource::Issuer;
        let options = IntrospectionOptions {
            issuer: IssuerOptions {
                audiences: vec!["here".to_owned()],
                ..IssuerOptions::new("test", "https://issuer.example", keys)
            },
            remember: Duration::ZERO,
        };
        let introspection = Introspection::new(options, Silent).expect("it has an audience");
        for round in 0..2_000_u32 {
            let mut digest = [0; 32];
            digest[..4].copy_from_slice(&round.to_le_bytes());
            let both = Barrier::new(2);
            thread::scope(|scope| {
                for open in [introspection.open(digest), introspection.open(digest)] {
                    let both = &both;
                    scope.spawn(move || {
                        both.wait();
                        drop(open);
                    });
                }
            });
        }
        let left = introspection.open.lock().expect("nothing panicked").len();
        assert_eq!(left, 0);
    }
}
