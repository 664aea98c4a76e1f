//! Subscriptions to resources of upstreams.

use std::{sync::Arc, time::Duration};

use mcp_client::{CallOptions, Connection, Subscription};
use mcp_protocol::{ProtocolVersion, model::SubscriptionFilter};
use serde_json::json;
use testkit::{GENEROUS, wait_until};
use tokio::time::sleep;

use super::gateway::{UPSTREAM, site};
use super::gateway_matrix::{Heard, client, next_update};
use crate::support::Site;

const A: &str = "mcp.up+file:///a.txt";

async fn subscribed(client: &Connection, uri: &str) -> Result<Subscription, mcp_client::Error> {
    let filter = SubscriptionFilter {
        resource_subscriptions: vec![uri.to_owned()],
        ..SubscriptionFilter::default()
    };
    client.listen(filter).await
}

async fn call(client: &Connection, tool: &str, text: &str) {
    let arguments = mcp_client::json(&json!({ "text": text })).unwrap();
    let options = CallOptions::default();
    let _ = client
        .call(format!("mcp_up_{tool}"), arguments, &options)
        .await;
}

fn upstream(revision: ProtocolVersion) -> Site {
    let spec = json!({
        "command": "python3", "args": [UPSTREAM, "stdio", "up"],
        "env": {"REVISION": revision.as_str()}, "idle_seconds": 1,
    });
    let waiting = json!({"gateway": {"first_start_seconds": 60}});
    let site = site(json!({ "up": spec }), waiting);
    site.write("up/.keep", "");
    site
}

#[tokio::test]
async fn clients_of_both_eras_share_one_subscription_which_survives_the_upstream_and_ends_with_the_last()
 {
    for revision in [ProtocolVersion::V2025_06_18, ProtocolVersion::V2026_07_28] {
        let site = upstream(revision);
        let server = site.http().await;
        let url = format!("http://{}/mcp", server.address());
        let heard = Arc::<Heard>::default();
        let old = client(&url, ProtocolVersion::V2025_03_26, &heard).await;
        let new = client(&url, ProtocolVersion::V2026_07_28, &heard).await;
        let mut by_old = subscribed(&old, A).await.unwrap();
        let mut by_new = subscribed(&new, A).await.unwrap();
        assert_eq!(by_new.accepted().resource_subscriptions, [A]);
        let begun = || {
            let noted = site.read("up/subscribed");
            let begun = noted.lines().filter(|it| !it.starts_with('-'));
            begun.filter(|it| it.ends_with("file:///a.txt")).count()
        };
        assert_eq!(begun(), 1, "{}", site.read("up/subscribed"));
        call(&old, "touch", "file:///a.txt").await;
        assert_eq!(next_update(&mut by_old).await.unwrap(), A);
        assert_eq!(next_update(&mut by_new).await.unwrap(), A);

        // The upstream is started and subscribed to again without a call, and what may have been missed is told.
        call(&old, "die", "").await;
        wait_until("it is subscribed to again", GENEROUS, || begun() == 2).await;
        assert_eq!(next_update(&mut by_old).await.unwrap(), A);
        assert_eq!(next_update(&mut by_new).await.unwrap(), A);

        let started = site.read("up/started");
        // What the upstream refuses is refused.
        let deaf = "mcp.up+file:///deaf.txt";
        let refused = subscribed(&old, deaf).await.unwrap_err().to_string();
        assert!(
            refused.contains("upstream `up` does not take it"),
            "{refused}"
        );
        let left_out = subscribed(&new, deaf).await.unwrap();
        assert!(left_out.accepted().resource_subscriptions.is_empty());
        drop(left_out);

        drop(by_new);
        call(&old, "touch", "file:///a.txt").await;
        assert_eq!(next_update(&mut by_old).await.unwrap(), A);
        assert!(!site.read("up/subscribed").contains("-file:///a.txt"));
        // It is not idle as long as somebody listens.
        sleep(Duration::from_millis(2200)).await;
        assert_eq!(site.read("up/started"), started);
        drop(by_old);
        if revision < ProtocolVersion::V2026_07_28 {
            wait_until("it is unsubscribed from", GENEROUS, || {
                site.read("up/subscribed").contains("-file:///a.txt")
            })
            .await;
        }
        let last = site.read("up/started").lines().last().unwrap().to_owned();
        wait_until("it is idle", GENEROUS, || !super::gateway::is_alive(&last)).await;
    }
}
