//! Expressions in a build without the feature `cel`: none can be used, so a policy that has a
//! condition is refused.

use crate::error::ExpressionError;

/// An expression, of which there are none.
#[derive(Debug)]
pub(crate) enum Expression {}

/// Texts that an expression compares with names.
#[derive(Debug, Default)]
pub(crate) struct Compared<'a> {
    pub(crate) capabilities: std::collections::BTreeSet<(&'a str, bool)>,
    pub(crate) roles: std::collections::BTreeSet<&'a str>,
}

/// The variables of expressions, of which there are none.
#[derive(Debug)]
pub(crate) enum Variables {}

impl Expression {
    pub(crate) fn new(_: &str) -> Result<Self, ExpressionError> {
        Err(ExpressionError::NoCel)
    }

    pub(crate) fn about_result(_: &str) -> Result<Self, ExpressionError> {
        Err(ExpressionError::NoCel)
    }

    pub(crate) fn arguments(&self) -> std::collections::BTreeSet<&str> {
        match *self {}
    }

    pub(crate) fn compared(&self) -> Compared<'_> {
        match *self {}
    }

    pub(crate) fn evaluate(&self, _: &Variables) -> Option<bool> {
        match *self {}
    }
}

/// Never called, likewise.
pub(crate) fn with_result(variables: Variables, _: &str, _: bool) -> Option<Variables> {
    Some(variables)
}

/// Never called: without expressions no condition applies to a call.
pub(crate) fn variables<'a>(
    _arguments: Option<&str>,
    _principal: &str,
    _capability: &str,
    _roles: impl Iterator<Item = &'a str>,
) -> Option<Variables> {
    None
}
