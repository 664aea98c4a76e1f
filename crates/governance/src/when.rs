//! Expressions about calls and their results, for what filters them.

use crate::{
    caller::Caller,
    error::ExpressionError,
    expression::{self, Expression},
};
use std::collections::BTreeSet;

/// An expression that is true or false of a call, or of its result.
#[derive(Debug)]
pub struct When {
    expression: Expression,
}

/// A call, or its result, of which an expression may be true.
#[derive(Clone, Copy, Debug)]
pub struct WhenOf<'a> {
    /// The caller.
    pub caller: Caller<'a>,
    /// All roles of the caller ([`Policy::roles_of`](crate::Policy::roles_of)).
    pub roles: &'a [String],
    /// Name of what is called, such as `tool/NAME`.
    pub capability: &'a str,
    /// Arguments of the call, as JSON text.
    pub arguments: &'a str,
    /// Text of the result, and true if that is an error; `None` before there is one.
    pub result: Option<(&'a str, bool)>,
}

impl When {
    /// Reads an expression about a call, and with `about_result` about its result.
    ///
    /// # Errors
    ///
    /// [`ExpressionError`], if it cannot be used.
    pub fn new(text: &str, about_result: bool) -> Result<Self, ExpressionError> {
        let expression = match about_result {
            true => Expression::about_result(text)?,
            false => Expression::new(text)?,
        };
        Ok(Self { expression })
    }

    /// Names of the arguments that it reads or asks for, as far as it has them in its text.
    #[must_use]
    pub fn arguments(&self) -> BTreeSet<&str> {
        self.expression.arguments()
    }

    /// Texts that it compares with the capability, each with whether it is the beginning of one: `capability == 'tool/pay'`,
    /// `capability.startsWith('tool/delete-')`.
    #[must_use]
    pub fn capabilities(&self) -> BTreeSet<(&str, bool)> {
        self.expression.compared().capabilities
    }

    /// Roles that it asks for: `'teller' in roles`.
    #[must_use]
    pub fn roles(&self) -> BTreeSet<&str> {
        self.expression.compared().roles
    }

    /// True or false; `None` where the expression fails, is neither, or is about more than can be looked at.
    #[must_use]
    pub fn holds(&self, of: WhenOf<'_>) -> Option<bool> {
        let roles = of.roles.iter().map(String::as_str);
        let variables = expression::variables(
            Some(of.arguments),
            of.caller.principal,
            of.capability,
            roles,
        )?;
        let variables = match of.result {
            Some((text, is_error)) => expression::with_result(variables, text, is_error)?,
            None => variables,
        };
        self.expression.evaluate(&variables)
    }
}
