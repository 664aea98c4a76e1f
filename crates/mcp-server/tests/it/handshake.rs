//! Handshake before all other requests (R1.3, decision D1).

use crate::house::{SPOKEN, Setup};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Conversation, MODERN, succeeded};

#[tokio::test]
async fn each_revision_is_agreed_on_and_told_what_there_is() {
    for version in SPOKEN {
        let house = Setup::default().build();
        let mut client = house.join("anna", Duration::ZERO);
        let told = Conversation::open(&mut *client, version).await;
        let info = if version == MODERN {
            let versions = told["supportedVersions"].as_array().unwrap();
            assert!(versions.contains(&json!(MODERN)), "{told}");
            &told["_meta"]["io.modelcontextprotocol/serverInfo"]
        } else {
            assert_eq!(told["protocolVersion"], version);
            &told["serverInfo"]
        };
        assert_eq!(*info, json!({ "name": "house", "version": "1" }));
        assert_eq!(told["capabilities"]["tools"]["listChanged"], true, "{told}");
        let resources = &told["capabilities"]["resources"];
        assert_eq!(
            *resources,
            json!({ "listChanged": true, "subscribe": true })
        );
    }
}

#[tokio::test]
async fn whoever_asks_for_something_unknown_is_offered_the_newest_with_a_handshake() {
    for requested in ["2099-01-01", "0.9", "", MODERN] {
        let house = Setup::default().build();
        let mut client = house.join("anna", Duration::ZERO);
        client.speak("2025-11-25");
        let params = json!({
            "protocolVersion": requested,
            "capabilities": {},
            "clientInfo": { "name": "x", "version": "1" },
        });
        let answer = client.ask("initialize", params).await;
        assert_eq!(
            answer["result"]["protocolVersion"], "2025-11-25",
            "{requested}"
        );
    }
}

#[tokio::test]
async fn a_handshake_happens_once() {
    let house = Setup::default().build();
    let mut client = house.connect("anna", "2025-06-18").await;
    let params = json!({
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": { "name": "x", "version": "1" },
    });
    let again = client.ask("initialize", params).await;
    assert_eq!(again["error"]["code"], -32600, "{again}");
    assert_eq!(
        client.ask("tools/list", Value::Null).await["error"],
        Value::Null
    );
}

#[tokio::test]
async fn a_client_that_never_shakes_hands_is_served() {
    let house = Setup::default().build();
    let mut client = house.join("anna", Duration::ZERO);
    client.speak("2025-03-26");
    assert!(client.tool_names().await.contains(&"add".to_owned()));
    let answer = client.call("add", json!({ "a": 1, "b": 2 })).await;
    assert!(succeeded(&answer), "{answer}");
}
