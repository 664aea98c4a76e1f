//! Mistakes in a policy.

use crate::pattern::PatternError;
use std::fmt;

/// The longest expression, in bytes.
pub(crate) const MAX_EXPRESSION_BYTES: usize = 2_048;

/// A policy that cannot be put in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A pattern.
    #[error("a pattern of {rules} cannot be used")]
    Pattern {
        /// Rules with the mistake.
        rules: RulesOf,
        /// Mistake.
        #[source]
        source: PatternError,
    },
    /// A role that is not defined.
    #[error("{rules} have the role {role:?}, which is not defined")]
    UnknownRole {
        /// Rules that name the role.
        rules: RulesOf,
        /// The role.
        role: String,
    },
    /// A condition.
    #[error("the condition {name:?} of {rules} cannot be used")]
    Condition {
        /// Rules with the mistake.
        rules: RulesOf,
        /// Name of the condition.
        name: String,
        /// Mistake.
        #[source]
        source: ConditionError,
    },
}

/// Rules of a policy, by their owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RulesOf {
    /// Rules for principals without rules of their own.
    Default,
    /// Rules of a principal.
    Principal(String),
    /// Rules of a role.
    Role(String),
}

/// Mistake in a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The name is empty.
    #[error("it has no name")]
    Name,
    /// The pattern of capabilities is empty.
    #[error("its pattern of capabilities is empty")]
    Pattern,
    /// The expression cannot be used.
    #[error("its expression cannot be used")]
    Expression(#[from] ExpressionError),
}

/// Mistake in an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The text is not CEL.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// Message of the parser.
        message: String,
    },
    /// The expression is too long.
    #[error("it has more than {MAX_EXPRESSION_BYTES} bytes")]
    TooLong,
    /// The parts are too deep inside of one another.
    #[error("its parts are too deep inside of one another")]
    TooDeep,
    /// An unknown variable.
    #[error("there is no variable {0:?}; there are `args`, `principal`, `roles` and `capability`")]
    UnknownVariable(String),
    /// An unknown function.
    #[error("there is no function {0:?}")]
    UnknownFunction(String),
    /// A loop (`all`, `exists`, `filter`) inside of another: the time it takes could grow with the
    /// square of what a caller sends.
    #[error("a loop inside of another loop could take too long")]
    NestedLoop,
    /// `map`, which makes values that can be larger than what a caller has sent.
    #[error("`map` could take too much room; use `all`, `exists` or `filter`")]
    Map,
    /// The expression can be neither true nor false.
    #[error("it is neither true nor false, whatever a call is like; compare it with something")]
    NotBoolean,
    /// The expression makes values of a type that is not declared.
    #[error("there are no types with fields here")]
    Message,
    /// A build without CEL.
    #[error("this build reads no conditions: build the crate `governance` with its feature `cel`")]
    NoCel,
}

impl fmt::Display for RulesOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default rules"),
            Self::Principal(name) => write!(f, "the rules for {name:?}"),
            Self::Role(name) => write!(f, "the rules of the role {name:?}"),
        }
    }
}
