//! Checks and handling of a request, by method.

pub(crate) mod caller;
pub(crate) mod cors;
pub(crate) mod guard;
pub(crate) mod mirror;
pub(crate) mod post;
pub(crate) mod receive;
pub(crate) mod upgrade;
