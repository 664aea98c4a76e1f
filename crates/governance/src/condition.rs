//! Rules that look at the arguments of a call.

use crate::{
    error::ConditionError,
    expression::{Expression, Variables},
    pattern::{PatternSet, single},
    spec::{Condition, Effect},
};
use std::sync::Arc;

/// A condition whose expression has been parsed.
#[derive(Debug)]
pub(crate) struct PreparedCondition {
    pub(crate) spec: Condition,
    /// The spec's, to keep.
    pub(crate) name: Arc<str>,
    capability: PatternSet,
    expression: Expression,
}

/// The value of a condition for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// A true or false expression.
    Bool(bool),
    /// An expression that failed, or is neither.
    Nothing,
    /// The arguments cannot be read.
    Unreadable,
}

impl PreparedCondition {
    pub(crate) fn new(condition: &Condition) -> Result<Self, ConditionError> {
        if condition.name.is_empty() {
            return Err(ConditionError::Name);
        }
        if condition.capability.is_empty() {
            return Err(ConditionError::Pattern);
        }
        Ok(Self {
            capability: single(&condition.capability),
            expression: Expression::new(&condition.when)?,
            name: condition.name.as_str().into(),
            spec: condition.clone(),
        })
    }

    /// Tests if it is about `capability`.
    pub(crate) fn applies_to(&self, capability: &str) -> bool {
        self.capability.matches(capability)
    }

    /// Tests if its effect takes place. What it cannot say is held against the caller.
    pub(crate) fn takes_effect(&self, says: Says) -> bool {
        match self.spec.effect {
            Effect::Deny | Effect::Confirm => says != Says::Bool(false),
            Effect::AllowOnly => says != Says::Bool(true),
        }
    }

    /// Evaluates it, with `None` for arguments that cannot be read.
    pub(crate) fn says(&self, variables: Option<&Variables>) -> Says {
        match variables.map(|variables| self.expression.evaluate(variables)) {
            Some(Some(truth)) => Says::Bool(truth),
            Some(None) => Says::Nothing,
            None => Says::Unreadable,
        }
    }

    /// Words for its value.
    pub(crate) fn words(&self, says: Says) -> String {
        let says = match says {
            Says::Bool(true) => "is true",
            Says::Bool(false) => "is false",
            Says::Nothing => "fails, or is neither true nor false",
            Says::Unreadable => "cannot read the arguments",
        };
        format!("the condition {:?} {says}", self.spec.name)
    }
}
