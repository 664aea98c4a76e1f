//! Rules that look at arguments: which of them apply, and what they decide together.

use crate::{
    Ask, Condition, Denial, Effect,
    expression::{Expression, ExpressionError},
    pattern::PatternSet,
    prepared::{PreparedRules, single},
    values,
};
use cel::Context;
use std::sync::Arc;

/// Why a condition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// It has no name to be called by.
    #[error("it has no name")]
    Name,
    /// Its pattern of capabilities is empty.
    #[error("its pattern of capabilities is empty")]
    Pattern,
    /// Its expression.
    #[error("its expression cannot be used")]
    Expression(#[from] ExpressionError),
}

/// A condition that has been understood.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) spec: Condition,
    /// The spec's, to keep.
    name: Arc<str>,
    capability: PatternSet,
    expression: Expression,
}

/// What a condition says of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// Its expression is true or false.
    Bool(bool),
    /// It failed, or is neither.
    Nothing,
}

impl Prepared {
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

    /// Whether it is about `capability`.
    pub(crate) fn applies_to(&self, capability: &str) -> bool {
        self.capability.matches(capability)
    }

    /// Whether its effect takes place. Whatever it cannot say is held against the caller.
    pub(crate) fn takes_effect(&self, says: Says) -> bool {
        match self.spec.effect {
            Effect::Deny | Effect::Confirm => says != Says::Bool(false),
            Effect::AllowOnly => says != Says::Bool(true),
        }
    }

    pub(crate) fn says(&self, context: &Context<'_, '_>) -> Says {
        match self.expression.evaluate(context) {
            Some(truth) => Says::Bool(truth),
            None => Says::Nothing,
        }
    }
}

/// What conditions are asked about: made once for a call, if any applies to it. `None` if the
/// arguments cannot be read, so that no condition can say anything.
pub(crate) fn context_of(
    rules: &PreparedRules,
    ask: &Ask<'_>,
) -> Option<Context<'static, 'static>> {
    values::context(
        ask.arguments,
        ask.principal,
        ask.capability,
        rules.roles.iter().map(String::as_str),
    )
}

/// The name of the condition by which a call has to be confirmed, if there is one.
///
/// # Errors
///
/// The denial by the first condition that denies it.
pub(crate) fn decide(rules: &PreparedRules, ask: &Ask<'_>) -> Result<Option<Arc<str>>, Denial> {
    let mut applicable = rules
        .conditions
        .iter()
        .filter(|condition| condition.applies_to(ask.capability))
        .peekable();
    if applicable.peek().is_none() {
        return Ok(None);
    }
    let context = context_of(rules, ask);
    let mut confirmed_by = None;
    for condition in applicable {
        if condition.spec.effect == Effect::Confirm && confirmed_by.is_some() {
            continue;
        }
        let says = context
            .as_ref()
            .map_or(Says::Nothing, |context| condition.says(context));
        if condition.takes_effect(says) {
            if condition.spec.effect != Effect::Confirm {
                return Err(Denial::by_condition(&condition.spec.name));
            }
            confirmed_by = Some(Arc::clone(&condition.name));
        }
    }
    Ok(confirmed_by)
}
