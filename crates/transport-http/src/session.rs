//! Legacy sessions, and requests that continue while their clients are away.

pub(crate) mod connected;
pub(crate) mod expiry;
pub(crate) mod leftovers;
pub(crate) mod replay;
pub(crate) mod running;
pub(crate) mod sessions;
