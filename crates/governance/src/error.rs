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
        /// Where it is.
        rules: RulesOf,
        /// What is wrong with it.
        #[source]
        source: PatternError,
    },
    /// A role that nothing is said of.
    #[error("{rules} have the role {role:?}, which is not defined")]
    UnknownRole {
        /// Who has it.
        rules: RulesOf,
        /// The role.
        role: String,
    },
    /// A condition.
    #[error("the condition {name:?} of {rules} cannot be used")]
    Condition {
        /// Where it is.
        rules: RulesOf,
        /// What it is called.
        name: String,
        /// What is wrong with it.
        #[source]
        source: ConditionError,
    },
}

/// Which rules of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RulesOf {
    /// Those for everybody who has none.
    Default,
    /// Those of a principal.
    Principal(String),
    /// Those of a role.
    Role(String),
}

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

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// It is not CEL.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What the parser says.
        message: String,
    },
    /// It is too long.
    #[error("it has more than {MAX_EXPRESSION_BYTES} bytes")]
    TooLong,
    /// Its parts are too deep inside of one another.
    #[error("its parts are too deep inside of one another")]
    TooDeep,
    /// A variable that there is not.
    #[error("there is no variable {0:?}; there are `args`, `principal`, `roles` and `capability`")]
    UnknownVariable(String),
    /// A function that there is not.
    #[error("there is no function {0:?}")]
    UnknownFunction(String),
    /// A loop (`all`, `exists`, `filter`) inside of another: the time it takes could grow with the
    /// square of what a caller sends.
    #[error("a loop inside of another loop could take too long")]
    NestedLoop,
    /// `map`, which makes values that can be larger than what a caller has sent.
    #[error("`map` could take too much room; use `all`, `exists` or `filter`")]
    Map,
    /// It never is a condition.
    #[error("it is neither true nor false, whatever a call is like; compare it with something")]
    NotBoolean,
    /// It makes values of a kind that nobody has declared.
    #[error("there are no types with fields here")]
    Message,
    /// This build has no CEL.
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
