//! Legacy sessions, and requests that continue while their clients are away.

pub(crate) mod detached;
pub(crate) mod expiry;
pub(crate) mod in_flight;
pub(crate) mod replay;
pub(crate) mod resumable;
pub(crate) mod sessions;
