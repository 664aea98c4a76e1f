//! Resources for those who speak no MCP (decision D20): read like any other.

use crate::{
    house::{Setup, policy},
    resources::{REFUNDS, URI, skills},
};
use governance::{RateLimits, Rules};
use ledger::{Kind, Outcome};
use mcp_server::{PlainContent, PlainRead, PlainRefusal};
use mcp_service::{Principal, TransportKind};

#[tokio::test]
async fn a_plain_read_is_a_read_like_any_other() {
    let (_directory, resources) = skills();
    let house = Setup {
        resources,
        ..Setup::default()
    }
    .build();
    let anna = Principal::new("anna");
    let read = house.mcp_server.read_plainly(&anna, URI, None, None).await;
    let Ok(PlainRead::Content(PlainContent {
        bytes,
        mime_type,
        etag: Some(etag),
    })) = read
    else {
        panic!("{read:?}");
    };
    assert_eq!(bytes, REFUNDS);
    assert_eq!(mime_type.as_deref(), Some("text/markdown"));
    let last = house.record().await.pop().unwrap();
    assert_eq!(last.started.capability, format!("resource/{URI}"));
    assert_eq!(last.started.kind, Kind::Resource);
    assert_eq!(last.started.principal, "anna");
    assert_eq!(last.started.transport, TransportKind::Http.as_str());
    assert_eq!(last.ended.outcome, Outcome::Succeeded);
    let usage = house.usage_of("anna").await.unwrap();
    assert_eq!((usage.reads_total, usage.calls_total), (1, 0));

    for known in [format!("\"{etag}\""), format!("\"old\", W/\"{etag}\"")] {
        let read = house
            .mcp_server
            .read_plainly(&anna, URI, Some(&known), None)
            .await;
        assert_eq!(read, Ok(PlainRead::NotModified(etag.clone())), "{known}");
    }
    let logo = "skill://shop/refunds/logo.png";
    let read = house.mcp_server.read_plainly(&anna, logo, None, None).await;
    let Ok(PlainRead::Content(content)) = read else {
        panic!("{read:?}");
    };
    assert_eq!(&*content.bytes, [0x89, b'P', 0, 255]);
    assert_eq!(house.record().await.len(), 4, "each of them");
}

/// Refusal that a client gets for this read under these rules.
async fn refused(rules: Rules, uri: &str, reads: usize) -> (PlainRefusal, String) {
    let (_directory, resources) = skills();
    let house = Setup {
        policy: policy(rules),
        resources,
        ..Setup::default()
    }
    .build();
    let anna = Principal::new("anna");
    let mut last = None;
    for _ in 0..reads {
        last = house
            .mcp_server
            .read_plainly(&anna, uri, Some("*"), None)
            .await
            .err();
    }
    let reason = house.record().await.pop().unwrap();
    (
        last.expect("it is refused"),
        reason.reason().unwrap().to_owned(),
    )
}

#[tokio::test]
async fn a_plain_read_is_refused_like_any_other() {
    let (missing, reason) = refused(Rules::default(), "skill://shop/nothing", 1).await;
    assert_eq!((missing.status, reason.as_str()), (404, "unknown"));
    let hidden = Rules {
        hidden: vec![format!("resource/{URI}")],
        ..Rules::default()
    };
    let (hidden, reason) = refused(hidden, URI, 1).await;
    assert_eq!((hidden.status, reason.as_str()), (404, "not_visible"));
    let text = |refusal: &PlainRefusal| format!("{refusal:?}");
    assert_eq!(
        text(&hidden).replace(URI, "it"),
        text(&missing).replace("skill://shop/nothing", "it"),
        "one cannot be told from the other"
    );
    let denied = Rules {
        deny: vec![format!("resource/{URI}")],
        ..Rules::default()
    };
    for uri in [
        URI,
        "skill://shop/%72efunds",
        "skill://shop/refunds/logo.png",
    ] {
        let (denied, reason) = refused(denied.clone(), uri, 1).await;
        assert_eq!(
            (denied.status, reason.as_str()),
            (403, "permission"),
            "{uri}"
        );
        assert_eq!(denied.retry_after, None);
    }
    let limited = Rules {
        reads: RateLimits {
            per_minute: Some(1),
            per_day: None,
        },
        ..Rules::default()
    };
    let (limited, reason) = refused(limited, URI, 2).await;
    assert_eq!((limited.status, reason.as_str()), (429, "rate_minute"));
    assert!(limited.retry_after.is_some_and(|it| 0 < it && it <= 61));
}
