//! Questions that calls put to their clients, and the state that travels with them.

pub(crate) mod request_state;
pub(crate) mod rounds;
