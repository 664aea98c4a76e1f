//! Explanation of what is wrong with a value, in one short line.

use jsonschema::{ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;

/// Most characters of an explanation.
const MAX_LENGTH: usize = 240;

/// The most telling thing that is wrong with `value`, which stands at the pointer `at`.
pub(super) fn first(validator: &Validator, value: &Value, at: &str) -> Option<String> {
    if validator.is_valid(value) {
        return None;
    }
    let errors: Vec<_> = validator.iter_errors(value).collect();
    errors.first().map(|error| one(error, at))
}

/// One error, led by the JSON pointer of what it is about.
pub(super) fn one(error: &ValidationError<'_>, at: &str) -> String {
    let cause = likeliest(error);
    // Masked: the value itself is in the failing test's message already, and may be large.
    let mut text = format!("{at}{}: {}", cause.instance_path(), cause.masked());
    if text.chars().count() > MAX_LENGTH {
        text = text.chars().take(MAX_LENGTH).collect();
        text.push('…');
    }
    text
}

/// Follows a failed choice into the alternative that was meant, as far as one can tell: that
/// whose constants fit, and of those the one with the fewest faults.
fn likeliest<'a, 'b>(error: &'b ValidationError<'a>) -> &'b ValidationError<'a> {
    let branches = match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            context
        }
        _ => return error,
    };
    let misfits = |branch: &&Vec<ValidationError<'_>>| {
        let elsewhere = branch
            .iter()
            .filter(|fault| matches!(fault.kind(), ValidationErrorKind::Constant { .. }))
            .count();
        (elsewhere, branch.len())
    };
    branches
        .iter()
        .filter(|branch| !branch.is_empty())
        .min_by_key(misfits)
        .and_then(|branch| branch.first())
        .map_or(error, likeliest)
}
