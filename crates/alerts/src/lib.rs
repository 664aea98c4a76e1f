//! Sends operators alerts of failures by signed webhooks, once, and again when a failure is over.
//!
//! Whoever looks after the server says again and again all that is wrong now ([`Alerts::observe`]).
//! A `Board` compares that with what was wrong before and makes notices of the difference: something
//! has failed, is still failing after a while, or is over. Each webhook has a queue and a task of its
//! own, so that one that hangs holds up nobody.
//!
//! # What holds
//!
//! * **Once.** A [`Condition`] is told when it has lasted for a while, and not again before it is
//!   over, gets worse, or was forgotten for as long as [`Timing::repeat`] says.
//! * **Signed.** Each request carries when it was sent, and an HMAC over that and its body
//!   ([`sign`]).
//! * **Tried again** while the receiver fails, with growing pauses; the order is kept.
//! * **In nobody's way.** Nothing here waits but the tasks of webhooks; queues are bounded, and what
//!   does not fit or could not be delivered is counted and logged ([`Alerts::webhooks`]).
//!
//! Deliberately absent: where what is wrong is known from, and any memory beyond the process. What
//! is still wrong after a restart is told again, under the same [key](Condition::key).

mod alerts;
mod board;
mod condition;
mod notice;
mod queue;
mod signature;
mod webhook;

pub use alerts::{Alerts, StartError};
pub use board::{MAX_CONDITIONS, Moment, Timing};
pub use condition::{Condition, Event, Observation, Severity};
pub use notice::{Notice, State};
pub use queue::MAX_WAITING;
pub use signature::sign;
pub use webhook::{WebhookOptions, WebhookState};
