//! A request for a decision.

use crate::{caller::Caller, money::Micros, spec::Kind, time::Timestamp};
use std::sync::Arc;

/// A request to use one capability now.
///
/// ```
/// use governance::{Ask, Kind, Timestamp};
///
/// let ask = Ask::new("alice", "tool/transfer", Timestamp(0)).with_arguments(r#"{"amount": 5}"#);
/// assert_eq!(ask.kind, Kind::Tool);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Name of the principal.
    pub principal: &'a str,
    /// Roles that the authentication vouches for; see [`Caller`].
    pub roles: &'a [Arc<str>],
    /// Capability, as `kind/name`: `tool/transfer`, `resource/skill://shop/refunds`.
    pub capability: &'a str,
    /// Kind of use, which selects the limits that count.
    pub kind: Kind,
    /// Expected cost, where the policy does not say one.
    pub estimate: Option<Micros>,
    /// Time of the request.
    pub now: Timestamp,
    /// Arguments as JSON text. They are read only where a condition depends on them; `None` is to
    /// conditions an empty object.
    pub arguments: Option<&'a str>,
}

impl<'a> Ask<'a> {
    /// A request without roles, estimate and arguments. What is named `resource/…` or `prompt/…` is
    /// read, and everything else is called.
    #[must_use]
    pub fn new(principal: &'a str, capability: &'a str, now: Timestamp) -> Self {
        let is_read = ["resource/", "prompt/"]
            .iter()
            .any(|kind| capability.starts_with(kind));
        Self {
            principal,
            roles: &[],
            capability,
            kind: match is_read {
                true => Kind::Resource,
                false => Kind::Tool,
            },
            estimate: None,
            now,
            arguments: None,
        }
    }

    /// The same with the arguments of the call, as JSON text.
    #[must_use]
    pub fn with_arguments(self, arguments: &'a str) -> Self {
        Self {
            arguments: Some(arguments),
            ..self
        }
    }

    /// The same with roles that the authentication vouches for.
    #[must_use]
    pub fn with_roles(self, roles: &'a [Arc<str>]) -> Self {
        Self { roles, ..self }
    }

    /// The same with an expected cost.
    #[must_use]
    pub fn with_estimate(self, estimate: Micros) -> Self {
        Self {
            estimate: Some(estimate),
            ..self
        }
    }

    /// Name and roles of the caller.
    #[must_use]
    pub fn caller(&self) -> Caller<'a> {
        Caller {
            principal: self.principal,
            roles: self.roles,
        }
    }
}
