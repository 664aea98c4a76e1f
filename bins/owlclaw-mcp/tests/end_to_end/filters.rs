//! Filters of calls: rules with expressions, and a real HTTP service that hangs, dies and answers rubbish.

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpClient, HttpServer, MODERN, failure_of, wait_until};

use crate::support::{Site, call, run, text};

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/end_to_end/filter_service.py"
);

/// A filter service in the directory of a site, killed when dropped.
struct Service<'a> {
    site: &'a Site,
    process: std::process::Child,
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl<'a> Service<'a> {
    async fn start(site: &'a Site, port: u16) -> Self {
        let file = site.path("service");
        let _ = std::fs::remove_file(&file);
        let process = std::process::Command::new("python3")
            .arg(SCRIPT)
            .arg(&file)
            .env("PORT", port.to_string())
            .spawn()
            .unwrap();
        wait_until("the service listens", GENEROUS, || file.exists()).await;
        Self { site, process }
    }

    fn does(&self, mode: &str) {
        self.site.write("service.mode", mode);
    }

    fn asked(&self) -> Vec<Value> {
        let asked = self.site.read("service.asked");
        asked
            .lines()
            .map(|it| serde_json::from_str(it).unwrap())
            .collect()
    }
}

async fn client(server: &HttpServer, name: &str) -> HttpClient {
    let mut client = server.client().with_header("x-mcp-client-id", name);
    client.open(MODERN).await;
    client
}

async fn ask(client: &mut HttpClient, tool: &str, arguments: Value) -> Value {
    client
        .request("tools/call", call(tool, arguments))
        .await
        .response
}

/// The messages with which calls of a tool ended, the oldest first.
fn messages(site: &Site, tool: &str) -> Vec<String> {
    let capability = format!("tool/{tool}");
    let calls = site.calls().into_iter();
    let of_tool = calls.filter(|it| it.started.capability == capability);
    of_tool
        .map(|it| it.ended.and_then(|it| it.message).unwrap_or_default())
        .collect()
}

#[tokio::test]
async fn a_service_that_fails_in_any_way_refuses_and_one_that_answers_decides() {
    let port = testkit::free_port();
    let url = format!("http://127.0.0.1:{port}/check");
    let site = Site::new(json!({
        "filters": {
            "guard": {"url": url, "tools": ["append"], "timeout_milliseconds": 700,
                      "headers": {"Authorization": "Bearer x"}},
        },
    }));
    let server = site.http().await;
    let mut ana = client(&server, "ana").await;
    // No service is there yet.
    let refused = ask(&mut ana, "append", json!({"mark": "a"})).await;
    let failure = failure_of(&refused);
    assert_eq!(failure["code"], -32003, "{refused}");
    assert_eq!(failure["data"]["filter"], "guard");
    let service = Service::start(&site, port).await;
    for mode in [
        "hang", "close", "rubbish", "both", "error", "other", "list", "nothing",
    ] {
        service.does(mode);
        let refused = ask(&mut ana, "append", json!({"mark": "a"})).await;
        let failure = failure_of(&refused);
        assert_eq!(failure["data"]["reason"], "filter", "{mode}: {refused}");
    }
    assert_eq!(site.read("executed"), "");
    assert!(
        messages(&site, "append")
            .iter()
            .all(|it| it.contains("filter guard: failed"))
    );
    service.does("refuse");
    let refused = ask(&mut ana, "append", json!({"mark": "a"})).await;
    let said = failure_of(&refused)["message"].to_string();
    assert!(
        said.contains("`guard`") && said.contains("not that"),
        "{said}"
    );

    service.does("pass");
    let done = ask(&mut ana, "append", json!({"mark": "secret"})).await;
    assert_eq!(text(&done["result"]), "secret");
    service.does("change");
    let done = ask(&mut ana, "append", json!({"mark": "secret"})).await;
    assert_eq!(text(&done["result"]), "public");
    assert_eq!(site.read("executed"), "secret\npublic\n");
    let last = messages(&site, "append").pop().unwrap();
    assert!(
        last.contains("filter guard: changed the arguments, sha256 "),
        "{last}"
    );
    let calls = site.calls();
    let arguments = &calls.last().unwrap().started.arguments;
    assert!(format!("{arguments:?}").contains("public"), "{arguments:?}");
    let asked = service.asked().pop().unwrap();
    assert_eq!(asked["event"], "tools/call");
    assert_eq!(asked["phase"], "request");
    assert_eq!(
        asked["payload"],
        json!({"name": "append", "arguments": {"mark": "secret"}})
    );
    assert_eq!(asked["context"]["principal"]["id"], "ana");
    assert_eq!(asked["authorization"], "Bearer x");
    // What it is not about costs no question.
    let before = service.asked().len();
    ask(&mut ana, "echo", json!({"text": "x"})).await;
    assert_eq!(service.asked().len(), before);
    // It dies.
    drop(service);
    let refused = ask(&mut ana, "append", json!({"mark": "a"})).await;
    assert_eq!(failure_of(&refused)["data"]["reason"], "filter");
    assert_eq!(site.read("executed"), "secret\npublic\n");
}

#[tokio::test]
async fn results_are_filtered_before_they_are_recorded_and_answered() {
    let port = testkit::free_port();
    let url = format!("http://127.0.0.1:{port}/");
    let site = Site::new(json!({
        "filters": {
            "dlp": {"url": url, "on": "results", "tools": ["echo"], "timeout_milliseconds": 5000},
            "marks": {"action": "spotlight", "on": "results", "tools": ["append"], "order": 1},
            "stop": {"action": "refuse", "on": "results", "tools": ["append"], "order": 0,
                     "when": "result.text.contains('forbidden')"},
        },
    }));
    let server = site.http().await;
    let service = Service::start(&site, port).await;
    let mut ana = client(&server, "ana").await;
    service.does("change");
    let done = ask(&mut ana, "echo", json!({"text": "a secret"})).await;
    assert_eq!(
        done["result"]["structuredContent"]["text"], "a public",
        "{done}"
    );
    assert!(text(&done["result"]).contains("a public"));
    let kept = site.calls().pop().unwrap().ended.unwrap();
    assert!(
        !format!("{:?}", kept.result).contains("a secret"),
        "{kept:?}"
    );
    assert!(
        kept.message
            .unwrap()
            .contains("filter dlp: changed the result")
    );
    for mode in ["rubbish", "refuse"] {
        service.does(mode);
        let withheld = ask(&mut ana, "echo", json!({"text": "a secret"})).await;
        let failure = failure_of(&withheld);
        assert_eq!(failure["code"], -32005, "{withheld}");
        assert!(failure["message"].to_string().contains("was carried out"));
        assert!(!withheld.to_string().contains("a secret"), "{withheld}");
    }
    let last = site.calls().pop().unwrap().ended.unwrap();
    assert_eq!(last.outcome.to_string(), "failed");

    let withheld = ask(&mut ana, "append", json!({"mark": "forbidden"})).await;
    assert_eq!(failure_of(&withheld)["data"]["filter"], "stop");
    let marked = ask(&mut ana, "append", json!({"mark": "fine"})).await;
    let marked = text(&marked["result"]).to_owned();
    assert!(
        marked.starts_with("<<data ") && marked.contains("\nfine\n<<end of data "),
        "{marked}"
    );
    assert_eq!(site.read("executed"), "forbidden\nfine\n");
}

#[tokio::test]
async fn a_rule_sees_all_ways_in_and_what_it_makes_of_arguments_is_governed() {
    let port = testkit::free_port();
    let url = format!("http://127.0.0.1:{port}/");
    let site = Site::new(json!({
        "tools": {"search_view": {"clients": ["finder"]}},
        "filters": {
            "words": {"action": "refuse", "tools": ["append"], "when": "args.mark.startsWith('no')"},
            "boss": {"action": "refuse", "tools": ["append"], "roles": ["clerk"]},
            "seen": {"action": "refuse", "mode": "audit", "tools": ["echo"], "when": "args.text == 'x'"},
            "change": {"url": url, "tools": ["append"], "order": 1, "timeout_milliseconds": 5000},
        },
        "governance": {
            "roles": {"clerk": {"tools": {"allow": ["*"]}}},
            "clients": {
                "carl": {"roles": ["clerk"]},
                "dora": {"tools": {"deny": ["append"]}},
            },
            "conditions": {"public": {"tool": "append", "when": "args.mark == 'public'", "effect": "deny"}},
        },
    }));
    let server = site.http().await;
    let service = Service::start(&site, port).await;
    service.does("change");
    let mut ana = client(&server, "ana").await;
    let refused = ask(&mut ana, "append", json!({"mark": "no"})).await;
    assert_eq!(failure_of(&refused)["data"]["filter"], "words");
    // An argument that the expression wants and that is not there counts against the call.
    let refused = ask(&mut ana, "append", json!({})).await;
    assert_eq!(failure_of(&refused)["data"]["filter"], "words");
    let mut finder = client(&server, "finder").await;
    let through = json!({"name": "append", "arguments": {"mark": "no"}});
    let refused = ask(&mut finder, "call_tool_destructive", through).await;
    assert_eq!(failure_of(&refused)["data"]["filter"], "words");
    // A role that the configuration gives counts, and so does one behind a task.
    let mut carl = client(&server, "carl").await;
    let refused = ask(&mut carl, "append", json!({"mark": "yes"})).await;
    assert_eq!(failure_of(&refused)["data"]["filter"], "boss");
    ana.voice.capabilities = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let refused = ask(&mut ana, "append", json!({"mark": "no"})).await;
    assert_eq!(failure_of(&refused)["data"]["filter"], "words");
    // A condition decides on what the filter has made of the arguments.
    let refused = ask(&mut ana, "append", json!({"mark": "secret"})).await;
    let said = failure_of(&refused)["message"].as_str().unwrap().to_owned();
    assert!(said.contains("condition \"public\""), "{said}");
    assert_eq!(site.read("executed"), "");
    // Nobody but governance sees the arguments of who may not call.
    let before = service.asked().len();
    let mut dora = client(&server, "dora").await;
    let refused = ask(&mut dora, "append", json!({"mark": "yes"})).await;
    assert_eq!(failure_of(&refused)["data"]["reason"], "permission");
    assert_eq!(service.asked().len(), before);
    // An audit is on record, and changes nothing.
    let done = ask(&mut ana, "echo", json!({"text": "x"})).await;
    assert_eq!(done["result"]["isError"], Value::Null, "{done}");
    let last = messages(&site, "echo").pop().unwrap();
    assert!(
        last.contains("filter seen: would have refused the arguments"),
        "{last}"
    );
}

#[tokio::test]
async fn a_failure_that_is_allowed_is_on_record_and_secrets_are_redacted() {
    let site = Site::new(json!({
        "filters": {
            "away": {"url": "http://127.0.0.1:9/", "on_failure": "allow", "on": "both", "tools": ["echo"],
                     "timeout_milliseconds": 300},
            "clean": {"action": "redact", "on": "results", "tools": ["append"]},
        },
    }));
    let server = site.http().await;
    let mut ana = client(&server, "ana").await;
    let done = ask(&mut ana, "echo", json!({"text": "x"})).await;
    assert_eq!(done["result"]["structuredContent"]["text"], "x", "{done}");
    let last = messages(&site, "echo").pop().unwrap();
    assert_eq!(last.matches("filter away: failed").count(), 2, "{last}");
    assert!(last.contains("the call goes on"));
    let key = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghij-klmnopqrAA";
    let done = ask(&mut ana, "append", json!({"mark": key})).await;
    assert!(!done.to_string().contains(key), "{done}");
    assert!(done["result"]["isError"].is_null(), "{done}");
}

#[tokio::test]
async fn mistakes_in_filters_are_told_before_anything_is_served() {
    for (filter, word) in [
        (json!({}), "does nothing"),
        (
            json!({"action": "refuse", "url": "https://example.com/"}),
            "both",
        ),
        (json!({"action": "refuse", "when": "args."}), "when"),
        (
            json!({"action": "refuse", "when": "result.text == 'a'"}),
            "result",
        ),
        (json!({"action": "spotlight"}), "looks at arguments"),
        (json!({"url": "ftp://example.com/"}), "must begin"),
        (
            json!({"url": "https://example.com/", "when": "true"}),
            "when",
        ),
        (json!({"action": "refuse", "mod": "audit"}), "mod"),
    ] {
        let site = Site::new(json!({"filters": {"f": filter}}));
        let said = run(site.command(&["config", "validate"])).await;
        assert_ne!(said.code, Some(0), "{filter}");
        assert!(said.messages.contains(word), "{filter}: {}", said.messages);
    }
    let site = Site::new(json!({"filters": {"f": {
        "action": "refuse", "tools": ["apend", "echo"], "prompts": ["greet"], "roles": ["clerc"],
    }}}));
    let server = site.http().await;
    server.process().wait_stderr("filters.f.tools").await;
    for words in [&["config", "validate", "--import"][..], &["doctor"]] {
        let said = run(site.command(words)).await;
        let said = said.output + &said.messages;
        assert!(
            said.contains("filters.f.tools") && said.contains("did you mean `append`?"),
            "{said}"
        );
        assert!(
            said.contains("filters.f.prompts") && said.contains("clerc"),
            "{said}"
        );
        assert!(!said.contains("`echo`"), "{said}");
    }
}
