//! Rules that look at arguments.

use crate::{
    Ask, Condition, Denial, Effect,
    pattern::PatternSet,
    prepared::{PreparedRules, single},
};

/// Why a condition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The pattern of capabilities is empty.
    #[error("the pattern of capabilities is empty")]
    Pattern,
    /// Nothing here can evaluate it.
    #[error("conditions cannot be evaluated yet")]
    Unsupported,
}

/// A condition that has been understood.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) spec: Condition,
    capability: PatternSet,
}

impl Prepared {
    pub(crate) fn new(condition: &Condition) -> Result<Self, ConditionError> {
        let _ = Self {
            spec: condition.clone(),
            capability: single(&condition.capability),
        };
        Err(ConditionError::Unsupported)
    }
}

/// The name of the condition by which the call has to be confirmed.
pub(crate) fn decide<'a>(
    rules: &'a PreparedRules,
    ask: &Ask<'_>,
) -> Result<Option<&'a str>, Denial> {
    let mut applicable = rules
        .conditions
        .iter()
        .filter(|it| it.capability.matches(ask.capability));
    match applicable.next() {
        Some(condition) if condition.spec.effect == Effect::Confirm => {
            Ok(Some(&condition.spec.name))
        }
        Some(condition) => Err(Denial::by_condition(&condition.spec.name)),
        None => Ok(None),
    }
}
