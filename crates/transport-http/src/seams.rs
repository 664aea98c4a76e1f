//! Traits by which an embedder takes part: authentication, other routes and protocols, stored sessions.

pub(crate) mod authenticate;
pub(crate) mod header_params;
pub(crate) mod persistence;
pub(crate) mod side_routes;
pub(crate) mod upgrade;
