//! Requests that a binding sends, and answers that it returns.

use crate::service::{
    Service, TOKEN, answer, bound, bound_with, call, call_as, client, json as answer_json, secrets,
    structured, text,
};
use adapter_http::{BindingError, BoundTool, Bounds, UrlError};
use adapter_tools::{InvalidArguments, ToolCx, ToolError};
use http_client::{AllowPrivate, Client, ClientOptions, HostError, HostList, Reach};
use serde_json::{Value, json};
use std::error::Error;

#[tokio::test]
async fn a_read_is_one_request_and_its_part_of_the_answer() {
    let service = Service::start(|_| {
        answer_json(200, json!({"data": {"status": "paid", "n": 1}, "more": []}))
    })
    .await;
    let binding = json!({
        "type": "http", "method": "get", "url": service.url("/orders/{order_id}?expand={expand}"),
        "headers": {"Authorization": "Bearer ${TOKEN}", "X-Plain": "a"},
        "response_mapping": {"path": "$.data"},
    });
    let tool = bound(&client(), &binding);
    assert_eq!(tool.kind().as_str(), "http");
    assert_eq!(tool.annotations().read_only, Some(true));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let cx = ToolCx::new("anna", "call-7").with_trace(trace, Some("a=1"));
    let output = call_as(&tool, cx, json!({"order_id": "A/1"}))
        .await
        .unwrap();
    assert_eq!(structured(&output), json!({"status": "paid", "n": 1}));
    let [seen] = service.seen().try_into().unwrap();
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("GET", "/orders/A%2F1")
    );
    assert_eq!(seen.header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(seen.header("x-plain"), "a");
    assert_eq!(seen.header("x-request-id"), "call-7");
    assert_eq!(seen.header("traceparent"), trace);
    assert_eq!(seen.header("tracestate"), "a=1");
    assert_eq!(seen.header("accept-encoding"), "identity");
    assert!(seen.header("user-agent").starts_with("owlclaw-mcp/"));
    assert_eq!(
        (seen.header("content-length"), seen.body.as_str()),
        ("", "")
    );

    call(&tool, json!({"order_id": 7, "expand": ["a", "b&c"]}))
        .await
        .unwrap();
    assert_eq!(service.seen()[1].target, "/orders/7?expand=a&expand=b%26c");
    // `{order_id}` alone is needed, as the guessed schema says; and it cannot lead elsewhere.
    tool.check(json!({"expand": "x"}).to_string().into())
        .unwrap_err();
    for elsewhere in [
        json!(".."),
        json!("a/../../b"),
        json!(""),
        json!(null),
        json!({"a": 1}),
    ] {
        let refused = call(&tool, json!({"order_id": elsewhere}))
            .await
            .unwrap_err();
        assert!(matches!(refused, ToolError::Failed(_)), "{refused:?}");
    }
    assert_eq!(service.seen().len(), 2);
}

#[tokio::test]
async fn a_write_has_its_template_or_what_is_left_of_the_arguments() {
    let service = Service::start(|_| answer_json(201, json!({"id": 1}))).await;
    let client = client();
    let mut binding = json!({"type": "http", "method": "POST", "url": service.url("/orders")});
    let parameters =
        json!({"type": "object", "properties": {"order_id": {}, "amount": {}, "lines": {}}});
    let arguments = r#"{"order_id": "a", "amount": 12345678901234567890123, "lines": [{"x": 1}]}"#;
    let try_to_send = async |binding: &Value, arguments: &'static str| {
        let tool = bound_with(&client, binding, Some(&parameters), Bounds::default());
        let arguments = tool.check(arguments.into()).unwrap();
        tool.execute(ToolCx::new("anna", "1"), arguments).await
    };
    let send = async |binding: &Value, arguments: &'static str| {
        try_to_send(binding, arguments).await.unwrap();
        service.seen().pop().unwrap()
    };
    let seen = send(&binding, arguments).await;
    assert_eq!(seen.body, arguments);
    assert_eq!(seen.header("content-type"), "application/json");
    binding["url"] = json!(service.url("/orders/{order_id}"));
    // Written anew it would be another number than the one that was approved.
    let refused = try_to_send(&binding, arguments).await.unwrap_err();
    let told = refused.source().unwrap();
    let told = told
        .downcast_ref::<InvalidArguments>()
        .unwrap()
        .violations();
    assert!(
        told[0].to_string().contains("12345678901234567890123"),
        "{told:?}"
    );
    assert_eq!(service.seen().len(), 1);
    let arguments = r#"{"order_id": "a", "amount": 1234567890123456789, "lines": [{"x": 1}]}"#;
    let send = async |binding: &Value| send(binding, arguments).await;
    let seen = send(&binding).await;
    assert_eq!(seen.json()["amount"], 1_234_567_890_123_456_789_u64);
    assert_eq!(seen.target, "/orders/a");
    assert!(seen.json().get("order_id").is_none() && seen.json()["lines"] == json!([{"x": 1}]));
    binding["body_template"] = json!({"lines": "{lines}", "note": "for {order_id}", "fixed": 1});
    let seen = send(&binding).await;
    assert_eq!(
        seen.json(),
        json!({"lines": [{"x": 1}], "note": "for a", "fixed": 1})
    );
}

#[tokio::test]
async fn shadow_sends_reads_and_tells_of_writes() {
    let service = Service::start(|_| answer_json(200, json!({"ok": true}))).await;
    let mut binding = json!({
        "type": "http", "method": "POST", "mode": "shadow", "url": service.url("/orders"),
        "headers": {"X-API-Key": "${TOKEN}"},
        "body_template": {"order_id": "{order_id}"},
    });
    let tool = bound(&client(), &binding);
    let output = call(&tool, json!({"order_id": 5})).await.unwrap();
    let told = structured(&output);
    let expected = json!({
        "status": "shadow", "mode": "shadow", "method": "POST", "url": service.url("/orders"),
        "headers": {"x-api-key": "${TOKEN}"}, "body": {"order_id": 5}, "sent": false,
    });
    assert_eq!(told, expected);
    assert_eq!(service.seen().len(), 0);
    binding["method"] = json!("GET");
    call(&bound(&client(), &binding), json!({})).await.unwrap();
    assert_eq!(service.seen().len(), 1);
}

#[tokio::test]
async fn statuses_are_what_the_binding_calls_them() {
    let service = Service::start(|seen| {
        let status = seen.target.trim_start_matches('/').parse().unwrap();
        answer_json(
            status,
            json!({"message": format!("said {}", seen.header("x-key"))}),
        )
    })
    .await;
    let binding = json!({
        "type": "http", "method": "GET", "url": service.url("/{status}"), "headers": {"X-Key": "${TOKEN}"},
        "response_mapping": {"status_codes": {"404": "not_found", "409": "success", "200": "odd"}},
        "retry": {"max_attempts": 1},
    });
    let tool = bound(&client(), &binding);
    let error = call(&tool, json!({"status": 404})).await.unwrap_err();
    // A service that repeats what it was sent tells nobody our secret.
    assert_eq!(error.to_string(), "not_found (404): said ***");
    let ToolError::Failed(failure) = error else {
        panic!()
    };
    let details =
        json!({"error_type": "not_found", "status": 404, "body": {"message": "said ***"}});
    assert_eq!(failure.details, Some(details));
    let output = call(&tool, json!({"status": 409})).await.unwrap();
    assert_eq!(structured(&output), json!({"message": "said ***"}));
    assert!(call(&tool, json!({"status": 200})).await.is_err());
    let error = call(&tool, json!({"status": 400})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the service answered 400 Bad Request: said ***"
    );
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Service::start(|_| answer(200, "text/plain", "secret")).await;
    let target = elsewhere.url("/");
    let service = Service::start(move |_| {
        let mut redirect = answer(302, "text/plain", "");
        redirect
            .headers_mut()
            .insert("location", target.parse().unwrap());
        redirect
    })
    .await;
    let binding = json!({"type": "http", "method": "GET", "url": service.url("/")});
    let error = call(&bound(&client(), &binding), json!({}))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("redirects are not followed"),
        "{error}"
    );
    assert_eq!((service.seen().len(), elsewhere.seen().len()), (1, 0));
}

#[tokio::test]
async fn text_is_text() {
    let service = Service::start(|_| answer(200, "text/plain", "two\nlines")).await;
    let mut binding = json!({"type": "http", "method": "GET", "url": service.url("/")});
    let output = call(&bound(&client(), &binding), json!({})).await.unwrap();
    assert_eq!(text(&output), "two\nlines");
    binding["response_mapping"] = json!({"path": "$.a"});
    call(&bound(&client(), &binding), json!({}))
        .await
        .unwrap_err();
}

fn refused(client: &Client, change: Value) -> BindingError {
    let mut binding = json!({"type": "http", "method": "GET", "url": "https://api.example.com/"});
    binding
        .as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    let bound = BoundTool {
        name: "t",
        description: "",
        parameters: None,
        binding: &binding,
    };
    adapter_http::bind(bound, client, Bounds::default(), &secrets).unwrap_err()
}

#[test]
fn what_cannot_be_bound_is_told_before_anybody_calls_it() {
    let options = ClientOptions {
        reach: Reach::Named(
            HostList::new(["example.com", "127.0.0.1", "localhost"])
                .of_setting("services.allowed_hosts"),
            AllowPrivate::default().of_setting("services.allow_private"),
        ),
        ..ClientOptions::default()
    };
    let client = Client::new(options).unwrap();
    let rows = [
        (json!({"type": "sql"}), "`sql`"),
        (json!({"type": null}), "``"),
        (json!({"method": "TRACE"}), "`method`"),
        (json!({"method": null}), "`method`"),
        (json!({"url": 1}), "`url`"),
        (json!({"mode": "dry"}), "`mode`"),
        (json!({"timeout_ms": 0}), "`timeout_ms`"),
        (json!({"timeout_ms": "5"}), "`timeout_ms`"),
        (json!({"retry": []}), "`retry`"),
        (json!({"retry": {"max_attempts": 0}}), "retry.max_attempts"),
        (
            json!({"retry": {"backoff_multiplier": 0.5}}),
            "retry.backoff_multiplier",
        ),
        (json!({"headers": []}), "`headers`"),
        (
            json!({"response_mapping": {"path": "data"}}),
            "response_mapping.path",
        ),
        (json!({"allowed_hosts": "x"}), "`allowed_hosts`"),
        (json!({"idempotency_header": "a b"}), "`idempotency_header`"),
    ];
    for (change, named) in rows {
        let error = refused(&client, change.clone()).to_string();
        assert!(error.contains(named), "{change}: {error}");
    }
    assert_eq!(
        refused(&client, json!({"url": "https://{host}/"})),
        BindingError::Url(UrlError::HostNotLiteral)
    );
    let header = refused(&client, json!({"headers": {"X-Key": "${NOT_SET}"}}));
    assert!(
        header
            .source()
            .unwrap()
            .to_string()
            .contains("`NOT_SET`, which is not set"),
        "{header:?}"
    );
    let not_in =
        |host: &str, list| BindingError::Host(HostError::NotAllowed(host.to_owned(), list));
    assert_eq!(
        refused(&client, json!({"url": "https://evil.example/"})),
        not_in("evil.example", "services.allowed_hosts")
    );
    assert_eq!(
        refused(&client, json!({"allowed_hosts": ["b.example.com"]})),
        not_in("api.example.com", "allowed_hosts")
    );
    for private in ["127.0.0.1", "localhost"] {
        let url = format!("http://{private}:8008/orders");
        // What a skill says of itself opens nothing.
        let error = refused(
            &client,
            json!({"url": url, "allow_private_network": true, "allowed_hosts": [private]}),
        );
        assert_eq!(
            error,
            BindingError::Host(HostError::Private {
                host: private.to_owned(),
                setting: Some("services.allow_private"),
            })
        );
    }
}

#[test]
fn what_is_odd_is_warned_about_by_name() {
    let binding = json!({
        "type": "http", "method": "GET", "url": "https://api.example.com/{a}", "querry": {}, "retry": {"tries": 1},
        "response_mapping": {"paths": ""},
    });
    let parameters = json!({"type": "object", "properties": {"a": {}, "b": {}}});
    let client = Client::new(ClientOptions::default()).unwrap();
    let tool = |binding| BoundTool {
        name: "t",
        description: "",
        parameters: Some(&parameters),
        binding,
    };
    let (_, warnings) =
        adapter_http::bind(tool(&binding), &client, Bounds::default(), &secrets).unwrap();
    let told = warnings.join("\n");
    for named in [
        "`b` is sent nowhere",
        "`querry`",
        "`retry.tries`",
        "`response_mapping.paths`",
    ] {
        assert!(told.contains(named), "{told}");
    }
    let undeclared = json!({"type": "http", "method": "GET", "url": "https://api.example.com/{c}"});
    let error =
        adapter_http::bind(tool(&undeclared), &client, Bounds::default(), &secrets).unwrap_err();
    assert_eq!(error, BindingError::UndeclaredArgument("c".to_owned()));
}
