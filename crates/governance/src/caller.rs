//! Identity of a caller.

use std::sync::Arc;

/// A caller: a name, and the roles that the authentication vouches for.
///
/// Rules belong to the name; see [`Rules`](crate::Rules) for what roles add to them, wherever they
/// come from. What is counted belongs to the name alone. A name by itself has no such roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller<'a> {
    /// The name.
    pub principal: &'a str,
    /// The roles that are vouched for, besides those that the policy gives to the name. In any
    /// order; those that the policy does not know say nothing.
    pub roles: &'a [Arc<str>],
}

impl<'a> From<&'a str> for Caller<'a> {
    fn from(principal: &'a str) -> Self {
        Self {
            principal,
            roles: &[],
        }
    }
}

impl<'a> From<&'a String> for Caller<'a> {
    fn from(principal: &'a String) -> Self {
        principal.as_str().into()
    }
}
