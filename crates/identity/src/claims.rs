//! Verification of the claims of a token whose signature is valid.

use crate::{
    ExpectedIdToken, Identity, IssuerOptions, Means, Rejection,
    identity::{MAX_PRINCIPAL, MAX_ROLES, is_decent_name},
};
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The identity that `claims` make at `now`, by the rules for their issuer.
pub(crate) fn identity(
    claims: &Value,
    options: &IssuerOptions,
    now: SystemTime,
) -> Result<Identity, Rejection> {
    let expires = times(claims, options, now)?;
    if !audiences(claims).any(|audience| options.accepts_audience(audience)) {
        return Rejection::invalid("the token is for another audience");
    }
    let scopes: Vec<&str> = words(claims.get("scope"))
        .chain(words(claims.get("scp")))
        .collect();
    Ok(Identity {
        expires: Some(expires),
        ..named(claims, options, &scopes)?
    })
}

/// The identity of the person whom an ID token is about (OpenID Connect Core, section 3.1.3.7), once its signature is
/// verified. `scopes` are those that were granted with it. Its end says how long it may be presented, and not how long
/// the person is the one it names.
pub(crate) fn id_token(
    claims: &Value,
    options: &IssuerOptions,
    expected: &ExpectedIdToken<'_>,
    now: SystemTime,
) -> Result<Identity, Rejection> {
    times(claims, options, now)?;
    if claims.get("iat").is_none_or(Value::is_null) {
        return Rejection::invalid("the ID token does not say when it was made");
    }
    let mut audiences: Vec<&str> = audiences(claims).collect();
    audiences.dedup();
    if !audiences.contains(&expected.client_id) {
        return Rejection::invalid("the ID token is for another client");
    }
    let party = claims.get("azp").filter(|it| !it.is_null());
    match party {
        Some(party) if party.as_str() != Some(expected.client_id) => {
            return Rejection::invalid("the ID token was made for another client");
        }
        None if 1 < audiences.len() => {
            return Rejection::invalid(
                "the ID token is for several, and does not say for which it was made",
            );
        }
        _ => {}
    }
    if claims.get("nonce").and_then(Value::as_str) != Some(expected.nonce) {
        return Rejection::invalid("the ID token belongs to another sign-in");
    }
    named(claims, options, expected.scopes)
}

/// The identity without its end.
fn named(claims: &Value, options: &IssuerOptions, scopes: &[&str]) -> Result<Identity, Rejection> {
    let bound_to = bound_to(claims)?;
    let has_scope = |scope: &String| scopes.contains(&scope.as_str());
    if !options.required_scopes.iter().all(has_scope) {
        let needed = options.required_scopes.join(" ").into();
        return Err(Rejection::InsufficientScope { needed });
    }
    let Some(Value::String(name)) = at(claims, &options.principal_claim) else {
        return Rejection::invalid("the token does not say whose it is");
    };
    let principal = format!("{}{name}", options.principal_prefix);
    if !is_decent_name(name) || MAX_PRINCIPAL < principal.len() {
        return Rejection::invalid("the name in the token cannot be a principal's");
    }
    let asserted = options.roles_claim.as_ref().and_then(|it| at(claims, it));
    let mut roles: Vec<Arc<str>> = words(asserted).map(Arc::from).collect();
    for scope in scopes {
        roles.extend(options.scopes.get(*scope).into_iter().flatten().cloned());
    }
    roles.sort();
    roles.dedup();
    if MAX_ROLES < roles.len() || !roles.iter().all(|role| is_decent_name(role)) {
        return Rejection::invalid("the roles in the token are too many, or no names");
    }
    Ok(Identity {
        principal: principal.into(),
        roles: roles.into(),
        means: Means::Jwt {
            issuer: Arc::clone(&options.name),
        },
        expires: None,
        revocation: None,
        bound_to,
    })
}

/// Thumbprint of the key that a token is bound to. Whoever only has the token must not be let in with it, so that any other
/// binding than this one (RFC 8705, section 3) is refused.
fn bound_to(claims: &Value) -> Result<Option<Arc<str>>, Rejection> {
    let confirmation = match claims.get("cnf") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(confirmation)) if confirmation.len() == 1 => confirmation,
        Some(_) => return Rejection::invalid(OTHER_BINDING),
    };
    match confirmation.get("jkt") {
        Some(Value::String(thumbprint)) => Ok(Some(thumbprint.as_str().into())),
        _ => Rejection::invalid(OTHER_BINDING),
    }
}

const OTHER_BINDING: &str = "the token is bound to something that is not checked here";

/// Time at which the token expires, leeway included, if it is valid at `now`.
fn times(
    claims: &Value,
    options: &IssuerOptions,
    now: SystemTime,
) -> Result<SystemTime, Rejection> {
    let Some(expires) = claims.get("exp").and_then(time) else {
        return Rejection::invalid("the token does not say when it expires");
    };
    let Some(expires) = expires.checked_add(options.leeway) else {
        return Rejection::invalid("the token does not say when it expires");
    };
    if expires <= now {
        return Rejection::invalid("the token has expired");
    }
    let latest = now.checked_add(options.leeway).unwrap_or(now);
    for name in ["nbf", "iat"] {
        match claims.get(name) {
            None | Some(Value::Null) => {}
            Some(claim) if time(claim).is_some_and(|time| time <= latest) => {}
            Some(_) => return Rejection::invalid("the token is not good yet"),
        }
    }
    Ok(expires)
}

/// Seconds since the epoch, with a fraction or without (RFC 7519 §2).
fn time(value: &Value) -> Option<SystemTime> {
    let seconds = value.as_f64().filter(|it| it.is_finite() && 0.0 <= *it)?;
    let since = Duration::try_from_secs_f64(seconds).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

fn audiences(claims: &Value) -> impl Iterator<Item = &str> {
    let (one, several) = match claims.get("aud") {
        Some(Value::String(one)) => (Some(one.as_str()), None),
        Some(Value::Array(several)) => (None, Some(several)),
        _ => (None, None),
    };
    let several = several.into_iter().flatten().filter_map(Value::as_str);
    one.into_iter().chain(several)
}

/// The texts of a list, or the words of a text. A list in which something is no text has none.
fn words(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let (text, list) = match value {
        Some(Value::String(text)) => (Some(text.as_str()), None),
        Some(Value::Array(list)) if list.iter().all(Value::is_string) => (None, Some(list)),
        _ => (None, None),
    };
    let words = text
        .into_iter()
        .flat_map(|text| text.split_ascii_whitespace());
    words.chain(list.into_iter().flatten().filter_map(Value::as_str))
}

/// The claim of this name; else where it leads as a path with dots.
fn at<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| {
        let mut parts = name.split('.');
        parts.try_fold(claims, |value, part| value.get(part))
    })
}
