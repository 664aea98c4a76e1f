//! Messages that the server sends without having been asked, and what holds them back.

pub(crate) mod outbox;
pub(crate) mod server_requests;
pub(crate) mod subscriptions;
