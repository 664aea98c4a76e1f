//! Output of handlers, and the calls it belongs to.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use adapter_tools::ToolCx;
use common::{App, Running, app_with, eventually};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

type Entry = BTreeMap<&'static str, String>;

/// Keeps what the application said.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Entry>>>);

struct Fields(Entry);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "python"
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Entry::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Log {
    fn entry(&self, message: &str) -> Option<Entry> {
        let entries = self.0.lock().unwrap();
        let mut entries = entries.iter();
        entries.find(|entry| entry["message"] == message).cloned()
    }
}

#[tokio::test]
async fn what_is_printed_is_the_requests_in_which_it_was() {
    let log = Log::default();
    let _log = tracing::subscriber::set_default(log.clone());
    let app = App::pool_shop();
    let shop = Running::start(app.pool(2)).await;
    shop.has_workers(2).await;
    let later = shop.call_with(
        ToolCx::new("anna", "request-1"),
        "speak_later",
        json!({"file": "go"}),
    );
    let others = async {
        app.wait_for("inside", 1).await;
        let cx = ToolCx::new("anna", "request-2");
        shop.call_with(cx, "speak", json!({})).await.unwrap();
        shop.pid().await;
        app.touch("go");
    };
    let (later, ()) = tokio::join!(later, others);
    later.unwrap();
    for (message, request) in [
        ("from python", Some("request-2")),
        ("from afar", Some("request-1")),
    ] {
        eventually(message, || log.entry(message).is_some()).await;
        let entry = log.entry(message).unwrap();
        assert_eq!(entry["stream"], "stdout");
        assert_eq!(
            entry.get("request_id").map(String::as_str),
            request,
            "{entry:?}"
        );
        assert!(entry["worker"].parse::<u64>().is_ok(), "{entry:?}");
    }
    // This one says nothing of a call, and may be read when the call is over.
    eventually("from below", || log.entry("from below").is_some()).await;
}

#[tokio::test]
async fn what_is_logged_is_cut_into_printable_lines_too() {
    let log = Log::default();
    let _log = tracing::subscriber::set_default(log.clone());
    let app = App::new(&app_with(
        "import owlclaw_worker\n@app.handler('log')\nasync def log():\n    \
        owlclaw_worker.log('said\\n2026-01-01 ERROR forged\\x1b[31m')\n",
    ));
    let shop = Running::start(app.options()).await;
    let cx = ToolCx::new("anna", "request-1");
    shop.call_with(cx, "log", json!({})).await.unwrap();
    for message in ["said", "2026-01-01 ERROR forged\u{fffd}[31m"] {
        let entry = log.entry(message).unwrap();
        assert_eq!(entry["request_id"], "request-1");
    }
}
