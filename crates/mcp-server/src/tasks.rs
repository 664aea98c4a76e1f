//! Calls that go on after they were answered: their clients fetch what comes of them later.
//!
//! A call becomes a task when its tool says so, when it takes long, or, in revision 2025-11-25,
//! because its client wants it to. It is the same invocation, under way or not yet begun: it was let
//! through, counted and recorded like any other, and so is every time it is called again with
//! answers. A client that cancels a task cancels that invocation.
//!
//! What a task has come to is in the store before anybody is told of it. What it asks meanwhile is
//! in memory, and, where several servers share the store, shown to the others. A task that its process did not end is begun again by the next one, from the start and
//! through everything that a call passes, if its tool says that this does no harm; otherwise it is
//! [failed](TaskState::Failed). Where and when calls are carried out is up to a [`TaskRunner`].

pub(crate) mod convert;
pub(crate) mod found;
pub(crate) mod oversight;
pub(crate) mod recovery;
pub(crate) mod registry;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod running;
pub(crate) mod sharing;
pub(crate) mod status;
pub(crate) mod stored_call;
