//! Checks and handling of a request, by method.

pub(crate) mod body;
pub(crate) mod connection_cx;
pub(crate) mod cors;
pub(crate) mod header_match;
pub(crate) mod host_origin;
pub(crate) mod post;
pub(crate) mod upgrade;
