//! One wake-up per thread instead of one per waiter.
//!
//! A group that has been stored is waited for by up to hundreds of calls, all on a few runtime
//! threads. To wake a task from another thread costs a system call, and the thread a round through
//! its event loop; to wake one from its own thread costs next to nothing. So each runtime thread
//! has a task of its own, the relay, which is all that is woken from elsewhere.

use std::{
    cell::RefCell,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};
use tokio::runtime::{Handle, Id};

/// Task that waits for a group.
#[derive(Debug)]
pub(crate) struct Waiter {
    waker: Waker,
    /// The relay of the thread that polled it last; none outside of a runtime.
    relay: Option<Arc<Relay>>,
}

#[derive(Debug)]
struct Relay {
    runtime: Id,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    due: Vec<Waker>,
    /// Wakes the relay's own task.
    bell: Option<Waker>,
    /// The task has gone, with its runtime.
    gone: bool,
}

thread_local! {
    static HERE: RefCell<Option<Arc<Relay>>> = const { RefCell::new(None) };
}

impl Waiter {
    pub(crate) fn new(cx: &Context<'_>) -> Self {
        Self {
            waker: cx.waker().clone(),
            relay: Relay::here(),
        }
    }

    pub(crate) fn is_woken_by(&self, waker: &Waker) -> bool {
        self.waker.will_wake(waker)
    }
}

/// Wakes all waiting tasks, each relay once.
pub(crate) fn wake(waiters: Vec<Waiter>) {
    // As many as there are runtime threads: a search is quicker than a table.
    let mut relays: Vec<(Arc<Relay>, Vec<Waker>)> = Vec::new();
    for Waiter { waker, relay } in waiters {
        let Some(relay) = relay else {
            waker.wake();
            continue;
        };
        match relays
            .iter_mut()
            .find(|(known, _)| Arc::ptr_eq(known, &relay))
        {
            Some((_, wakers)) => wakers.push(waker),
            None => relays.push((relay, vec![waker])),
        }
    }
    for (relay, wakers) in relays {
        relay.pass_on(wakers);
    }
}

impl Relay {
    /// The relay of this thread, started if there is none for the runtime it runs in now.
    fn here() -> Option<Arc<Self>> {
        let runtime = Handle::try_current().ok()?;
        HERE.with_borrow_mut(|here| {
            if let Some(relay) = here
                && relay.runtime == runtime.id()
                && !relay.lock().gone
            {
                return Some(Arc::clone(relay));
            }
            let relay = Arc::new(Self {
                runtime: runtime.id(),
                state: Mutex::default(),
            });
            runtime.spawn(Task(Arc::clone(&relay)));
            *here = Some(Arc::clone(&relay));
            Some(relay)
        })
    }

    fn pass_on(&self, wakers: Vec<Waker>) {
        let mut state = self.lock();
        if state.gone {
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            return;
        }
        state.due.extend(wakers);
        let bell = state.bell.take();
        drop(state);
        if let Some(bell) = bell {
            bell.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs for as long as its runtime does.
struct Task(Arc<Relay>);

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        let due = std::mem::take(&mut state.due);
        state.bell = Some(cx.waker().clone());
        drop(state);
        due.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.gone = true;
        let due = std::mem::take(&mut state.due);
        drop(state);
        due.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    }

    #[test]
    fn everybody_on_a_thread_is_woken_through_one() {
        runtime().block_on(async {
            let relay = Relay::here().unwrap();
            let mut tasks = Vec::new();
            let (sender, mut waiting) = tokio::sync::mpsc::unbounded_channel();
            for _ in 0..10 {
                let sender = sender.clone();
                let mut polled = false;
                tasks.push(tokio::spawn(poll_fn(move |cx| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    sender.send(Waiter::new(cx)).unwrap();
                    Poll::Pending
                })));
            }
            let mut waiters = Vec::new();
            for _ in 0..10 {
                waiters.push(waiting.recv().await.unwrap());
            }
            assert!(
                waiters
                    .iter()
                    .all(|it| Arc::ptr_eq(it.relay.as_ref().unwrap(), &relay))
            );
            std::thread::spawn(move || wake(waiters)).join().unwrap();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }

    #[test]
    fn a_relay_that_is_gone_loses_nobody() {
        #[derive(Default)]
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let waiter = || Waiter::new(&Context::from_waker(&waker));
        let (before, pending) = runtime().block_on(async { (waiter(), waiter()) });
        wake(vec![before]); // the relay's task never ran, and went with its runtime
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        wake(vec![pending]);
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        // On the same thread, another runtime has another relay.
        runtime().block_on(async {
            wake(vec![waiter()]);
            tokio::task::yield_now().await
        });
        assert_eq!(count.0.load(Ordering::SeqCst), 3);
        wake(vec![waiter()]); // outside of any runtime
        assert_eq!(count.0.load(Ordering::SeqCst), 4);
    }
}
