//! Private networks, as they are met on real sockets.

use crate::service::{Service, answer, bound, call, client_with};
use adapter_tools::ToolError;
use http_client::{AllowPrivate, Reach};
use serde_json::json;

/// Names that lead to this machine; they are looked up only when somebody connects.
#[tokio::test]
async fn a_name_that_leads_into_a_private_network_is_not_connected_to() {
    let service = Service::start(|_| answer(200, "text/plain", "x")).await;
    let port = service.address.port();
    // Forms that a resolver takes for 127.0.0.1 although they are no addresses to a parser.
    for host in ["2130706433", "127.1", "0x7f.0.0.1", "0177.0.0.1"] {
        let client = client_with(|options| options.reach = Reach::default());
        let binding = json!({
            "type": "http", "method": "GET", "url": format!("http://{host}:{port}/"),
            "retry": {"max_attempts": 1},
        });
        let error = call(&bound(&client, &binding), json!({}))
            .await
            .unwrap_err();
        let is_refused = matches!(error, ToolError::Broken(_) | ToolError::Crashed { .. });
        assert!(is_refused, "{host}: {error:?}");
    }
    assert_eq!((service.seen().len(), service.connections()), (0, 0));
}

#[tokio::test]
async fn the_operator_can_name_what_may_be_reached() {
    let service = Service::start(|_| answer(200, "text/plain", "x")).await;
    let port = service.address.port();
    for allowed in ["127.0.0.0/8", "localhost"] {
        let client = client_with(|options| {
            options.reach = Reach::Public(AllowPrivate::parse([allowed, "::1"]).unwrap());
        });
        let binding = json!({
            "type": "http", "method": "GET", "url": format!("http://localhost:{port}/"),
        });
        call(&bound(&client, &binding), json!({})).await.unwrap();
    }
    assert_eq!(service.seen().len(), 2);
}

/// Only the operator is told of the address; the caller learns that the tool could not run.
#[tokio::test]
async fn the_refusal_names_the_address_to_the_operator() {
    let client = client_with(|options| {
        let none = AllowPrivate::default().of_setting("services.allow_private");
        options.reach = Reach::Public(none);
    });
    let binding = json!({
        "type": "http", "method": "GET", "url": "http://2130706433/",
        "retry": {"max_attempts": 1},
    });
    let error = call(&bound(&client, &binding), json!({}))
        .await
        .unwrap_err();
    let ToolError::Broken(cause) = error else {
        panic!("{error:?}")
    };
    let told = cause.source().unwrap().to_string();
    assert!(
        told.contains("127.0.0.1") && told.contains("services.allow_private"),
        "{told}"
    );
}
