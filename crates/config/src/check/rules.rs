//! Mistakes in rules that only all of them show, with the place of each.

use crate::environment::Environment;
use crate::layer::{Origins, origin_near};
use crate::nearest::nearest;
use crate::problem::Problem;
use crate::sections::governance::{Governance, MIN_TOKEN_CHARS};

pub(crate) fn check(governance: &Governance, origins: &Origins, problems: &mut Vec<Problem>) {
    let mut error = |key: String, message: String, hint: String| {
        // What did not fit was left out, and is not missing.
        let is_known =
            |problem: &Problem| problem.key.as_ref().is_some_and(|it| it.starts_with(&key));
        if !problems.iter().any(is_known) {
            let origin = origin_near(origins, &key);
            problems.push(Problem::error(origin, message).key(key).hint(hint));
        }
    };
    // What it refers to is looked at by the server that needs it.
    let token = governance.approvals.http_token.as_ref();
    let written = token.and_then(|token| token.reveal(&Environment::default()));
    if written.is_some_and(|token| token.trim().chars().count() < MIN_TOKEN_CHARS) {
        let key = "governance.approvals.http_token";
        let message = format!("`{key}` must have {MIN_TOKEN_CHARS} characters at least");
        let hint = "a shorter one could be guessed; `openssl rand -hex 32` makes a good one";
        error(key.to_owned(), message, hint.to_owned());
    }
    for mistake in governance.rules.mistakes("governance") {
        let roles = governance.rules.roles.keys().map(String::as_str);
        let meant = mistake
            .unknown_role
            .and_then(|role| nearest(&role, roles))
            .map(|role| format!("did you mean `{role}`?"));
        error(mistake.key, mistake.message, meant.unwrap_or(mistake.cure));
    }
}
