//! Messages that the server sends without having been asked, and what holds them back.

pub(crate) mod outbox;
pub(crate) mod questions;
pub(crate) mod subscriptions;
