//! Responses and the bodies that they stream.

pub(crate) mod body;
pub(crate) mod respond;
