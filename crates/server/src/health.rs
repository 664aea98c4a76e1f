//! `/health` and what is like it: for balancers, and for people who look what is wrong.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use mcp_server::Health;
use serde_json::json;
use transport_http::PlainResponse;

use super::{
    application, archives, host_dialect, identity, prompts, rules, sessions, standing, store, tls,
    verification, witness,
};

/// Parts without which every request is served as well.
const SPARED: [&str; 19] = [
    application::CODE,
    archives::COMPONENT,
    host_dialect::COMPONENT,
    identity::COMPONENT,
    identity::KEYS,
    prompts::COMPONENT,
    rules::COMPONENT,
    sessions::COMPONENT,
    standing::COMPONENT,
    store::CLIENTS,
    tls::COMPONENT,
    gateway::COMPONENT,
    ::resources::COMPONENT,
    ::resources::DATABASES_COMPONENT,
    ::resources::SEARCH_COMPONENT,
    ::resources::SERVICES_COMPONENT,
    verification::COMPONENT,
    verification::INTEGRITY,
    witness::COMPONENT,
];

/// Answer about the server's health, in full only for an authorized reader.
///
/// 503 while a component does not work, so that a load balancer looks elsewhere; 200 again when it
/// does. A wrong configuration is reported and is no reason to look elsewhere: calls are judged by
/// the rules before it, and an operator's mistake is on all servers. The same holds for
/// certificates and for files of keys; and an issuer that is down is down for all servers, whose
/// other clients would be turned away with its own. New clients that are refused because too many
/// are counted must not keep those who are counted from being served.
/// An upstream that cannot be reached takes no other tool along, a directory that is gone no other resource, and what
/// cannot be archived, witnessed or verified no call. A ledger that is damaged is damaged for all servers that share it.
pub(super) fn told(health: &Health, is_draining: bool, in_full: bool) -> PlainResponse {
    let status = if is_draining || !is_fit(health) {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    let mut body = match in_full {
        true => serde_json::to_value(health).unwrap_or_default(),
        false => {
            let broken = health.components.iter().filter(|it| !it.ok);
            let broken: Vec<_> = broken
                .map(|it| json!({ "name": it.name, "ok": false }))
                .collect();
            json!({ "status": health.status, "components": broken })
        }
    };
    if is_draining {
        // New requests had better go elsewhere, although they would still be answered.
        body["status"] = json!("draining");
    }
    answer(status, body.to_string())
}

/// Answer that the process lives, whatever works.
pub(super) fn alive() -> PlainResponse {
    answer(StatusCode::OK, json!({ "status": "ok" }).to_string())
}

/// Returns true if a load balancer should send new requests here.
pub(super) fn is_fit(health: &Health) -> bool {
    let mut parts = health.components.iter();
    parts.all(|part| part.ok || SPARED.contains(&part.name))
}

fn answer(status: StatusCode, body: String) -> PlainResponse {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcp_server::ComponentState;

    fn health(broken: &'static str) -> Health {
        let part = |name: &'static str| ComponentState {
            name,
            ok: name != broken,
            detail: Some(format!("about {name}")),
        };
        Health {
            status: if broken.is_empty() { "ok" } else { "degraded" },
            version: "1.2.3".to_owned(),
            components: ["ledger", identity::COMPONENT, rules::COMPONENT]
                .map(part)
                .into(),
        }
    }

    #[test]
    fn only_what_keeps_calls_from_being_answered_sends_balancers_elsewhere() {
        for (broken, draining, expected) in [
            ("", false, 200),
            ("", true, 503),
            ("ledger", false, 503),
            (rules::COMPONENT, false, 200),
            (identity::COMPONENT, false, 200),
        ] {
            let answer = told(&health(broken), draining, true);
            assert_eq!(answer.status(), expected, "{broken} {draining}");
        }
    }

    #[test]
    fn strangers_learn_what_is_broken_and_nothing_about_it() {
        let body = |in_full| {
            let body = told(&health("ledger"), false, in_full).into_body();
            String::from_utf8(body.to_vec()).unwrap()
        };
        let told = body(false);
        assert!(
            told.contains("degraded") && told.contains("ledger"),
            "{told}"
        );
        for secret in ["about", "1.2.3", rules::COMPONENT] {
            assert!(!told.contains(secret), "{told}");
            assert!(body(true).contains(secret));
        }
    }
}
