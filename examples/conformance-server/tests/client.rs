//! The fixture as the workspace's own client sees it, over each transport and in both eras.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use mcp_client::{
    CallOptions, Connection, Dial, Error, Handlers, Options, Progress, RawJson, Speak, json,
};
use mcp_protocol::{
    Era, ProtocolVersion,
    model::{
        ClientCapabilities, Content, ElicitAction, ElicitResult, ElicitationCapability, FormValue,
        InputRequest, InputResponse, ListRootsResult, Root, ServerNotification, SubscriptionFilter,
    },
};
use serde_json::{Value, json as value};
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use testkit::{HttpServer, Port};
use tokio::{process::Command, time::timeout};

const LONG: Duration = Duration::from_secs(60);
const SERVER: &str = env!("CARGO_BIN_EXE_conformance-server");
const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::V2025_11_25, ProtocolVersion::V2026_07_28];

/// Accepts forms with the values that they want, and has one root.
#[derive(Default)]
struct User {
    asked: AtomicUsize,
}

impl Handlers for User {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            elicitation: Some(ElicitationCapability {
                form: true,
                url: false,
            }),
            roots: true,
            ..ClientCapabilities::default()
        }
    }

    fn answer(
        &self,
        question: InputRequest,
    ) -> Pin<Box<dyn Future<Output = Result<InputResponse, String>> + Send + '_>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = match question {
            InputRequest::ElicitForm {
                requested_schema, ..
            } => {
                let schema: Value = requested_schema.parse().unwrap();
                let fields = schema["properties"].as_object().unwrap();
                let filled = fields.iter().map(|(name, field)| {
                    let value = match field["type"].as_str() {
                        Some("boolean") => value!(true),
                        _ => value!("Anna"),
                    };
                    (
                        name.clone(),
                        serde_json::from_value::<FormValue>(value).unwrap(),
                    )
                });
                Ok(InputResponse::Elicit(ElicitResult {
                    content: Some(filled.collect::<BTreeMap<_, _>>()),
                    ..ElicitResult::without_content(ElicitAction::Accept)
                }))
            }
            InputRequest::ListRoots => Ok(InputResponse::ListRoots(ListRootsResult {
                roots: vec![Root {
                    uri: "file:///home/anna".to_owned(),
                    ..Root::default()
                }],
                ..ListRootsResult::default()
            })),
            other => Err(format!("{} is not answered", other.method())),
        };
        Box::pin(async { answer })
    }
}

struct Open {
    connection: Connection,
    user: Arc<User>,
    version: ProtocolVersion,
    is_http: bool,
    /// Ends with the test.
    _server: Option<HttpServer>,
}

async fn open(http: bool, version: ProtocolVersion) -> Open {
    let (dial, server) = match http {
        false => (Dial::child(SERVER, [""; 0]), None),
        true => {
            let port = testkit::free_port();
            let mut command = Command::new(SERVER);
            command.args(["--port", &port.to_string()]);
            let server = HttpServer::spawn(command, Port::Fixed(port)).await;
            (
                Dial::url(format!("http://127.0.0.1:{port}/mcp")),
                Some(server),
            )
        }
    };
    let user = Arc::new(User::default());
    let options = Options {
        handlers: Arc::clone(&user) as Arc<dyn Handlers>,
        speak: Speak::Only(version),
        ..Options::default()
    };
    let connection = Connection::open(&dial, options).await.unwrap();
    assert_eq!(connection.agreed().version, version);
    Open {
        connection,
        user,
        version,
        is_http: http,
        _server: server,
    }
}

impl Open {
    async fn call(&self, tool: &str, arguments: Value) -> Result<String, Error> {
        let arguments = json(&arguments).unwrap();
        let options = CallOptions::default();
        let result = self.connection.call(tool, arguments, &options).await?;
        match result.content.as_slice() {
            [Content::Text { text, .. }, ..] => Ok(text.clone()),
            other => panic!("{other:?}"),
        }
    }
}

async fn everywhere(test: impl AsyncFn(Open)) {
    for http in [false, true] {
        for version in VERSIONS {
            test(open(http, version).await).await;
        }
    }
}

#[tokio::test]
async fn calls_that_go_on_as_tasks() {
    everywhere(async |open| {
        let computed = open.call("slow_compute", value!({ "seconds": 1, "label": "it" }));
        assert_eq!(computed.await.unwrap(), "it: 42");
        let failed = open.call("failing_job", value!({})).await.unwrap();
        assert!(failed.contains("the job has failed"), "{failed}");
        let broken = open.call("protocol_error_job", value!({})).await;
        match broken {
            Err(Error::Server { .. }) => {}
            other => panic!("{}: {other:?}", open.version),
        }
        let deleted = open.call("confirm_delete", value!({ "filename": "a.txt" }));
        assert_eq!(
            deleted.await.unwrap(),
            "a.txt is deleted.",
            "{}",
            open.version
        );
        let both = open.call("multi_input", value!({})).await.unwrap();
        assert_eq!(both, "Both have been answered.");
        let worked = open.call("test_tool_with_task", value!({})).await.unwrap();
        assert_eq!(worked, "Worked for Anna.");
        assert_eq!(
            open.user.asked.load(Ordering::SeqCst),
            4,
            "{}",
            open.version
        );
        assert_eq!(open.connection.requests_under_way(), 0);
        open.connection.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_task_that_takes_too_long_is_cancelled() {
    everywhere(async |open| {
        let options = CallOptions {
            timeout: Some(Duration::from_millis(1500)),
            ..CallOptions::default()
        };
        let started = Instant::now();
        let arguments = json(&value!({ "seconds": 100 })).unwrap();
        let call = open.connection.call("slow_compute", arguments, &options);
        let error = call.await.unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(error.to_string().contains("within 1.5s"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(20));
        // The request that cancels it is sent in the background.
        timeout(LONG, async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            while 0 < open.connection.requests_under_way() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap();
        open.connection.close().await;
    })
    .await;
}

#[tokio::test]
async fn questions_are_answered_in_either_era() {
    everywhere(async |open| {
        let greeted = open.call("test_streaming_elicitation", value!({})).await;
        assert_eq!(greeted.unwrap(), "Hello, Anna!");
        let roots = open.call("test_input_required_result_list_roots", value!({}));
        assert_eq!(
            roots.await.unwrap(),
            "The client's roots: file:///home/anna"
        );
        let state = open.call("test_input_required_result_request_state", value!({}));
        assert!(state.await.unwrap().starts_with("state-ok"));
        let rounds = open.call("test_input_required_result_multi_round", value!({}));
        assert_eq!(rounds.await.unwrap(), "Anna likes Anna.");
        let sampled = open.call("test_input_required_result_sampling", value!({}));
        let refused = match sampled.await {
            Ok(text) => text,
            Err(error) => error.to_string(),
        };
        assert!(
            !refused.contains("Paris"),
            "sampling was not declared: {refused}"
        );
        open.connection.close().await;
    })
    .await;
}

#[tokio::test]
async fn changes_progress_and_the_arguments_that_are_mirrored() {
    everywhere(async |open| {
        let connection = &open.connection;
        let reported = Arc::<Mutex<Vec<f64>>>::default();
        let reports = Arc::clone(&reported);
        let options = CallOptions {
            progress: Some(Progress::new(move |progress, _, _| {
                reports.lock().unwrap().push(progress);
            })),
            ..CallOptions::default()
        };
        let call = connection.call("test_tool_with_progress", RawJson::EMPTY_OBJECT, &options);
        call.await.unwrap();
        assert_eq!(*reported.lock().unwrap(), [0.0, 50.0, 100.0]);

        let mut subscription = connection
            .listen(SubscriptionFilter {
                tools_list_changed: true,
                ..SubscriptionFilter::default()
            })
            .await
            .unwrap();
        let before = connection.tools().await.unwrap();
        if open.is_http && open.version.era() == Era::Legacy {
            // The stream of changes is opened in the background.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        open.call("test_trigger_tool_change", value!({}))
            .await
            .unwrap();
        let heard = timeout(LONG, subscription.next()).await.unwrap().unwrap();
        assert_eq!(heard, Some(ServerNotification::ToolsListChanged));
        let after = connection.tools().await.unwrap();
        assert_eq!(before.len() + 1, after.len());

        // The server refuses a call whose headers do not say what its arguments say.
        for text in ["plain", "für 9 €", "a\tb", " around ", ""] {
            let said = open
                .call("test_custom_header", value!({ "value": text }))
                .await;
            assert_eq!(said.unwrap(), format!("The value is {text:?}."));
        }
        drop(subscription);
        open.connection.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_header_that_was_not_known_is_sent_after_the_list_was_read() {
    let open = open(true, ProtocolVersion::V2026_07_28).await;
    let said = open
        .call("test_custom_header", value!({ "value": "x" }))
        .await;
    assert_eq!(said.unwrap(), "The value is \"x\".");
}

#[tokio::test]
async fn a_call_whose_stream_is_closed_is_answered_on_the_next_one() {
    let open = open(true, ProtocolVersion::V2025_11_25).await;
    let answered = open.call("test_reconnection", value!({})).await;
    assert_eq!(answered.unwrap(), "The client has come back.");
}

#[tokio::test]
async fn skills_are_listed_and_their_files_verified() {
    for http in [false, true] {
        let open = open(http, ProtocolVersion::V2026_07_28).await;
        let skills = open.connection.skills().await.unwrap();
        assert!(!skills.is_empty());
        for skill in &skills {
            let file = open.connection.skill_file(skill, &skill.uri).await.unwrap();
            assert!(file.starts_with(b"---"));
            let mut other = skill.clone();
            for resource in &mut other.resources {
                resource.digest = format!("sha256:{}", "0".repeat(64));
            }
            if !other.resources.is_empty() {
                let error = open.connection.skill_file(&other, &skill.uri).await;
                assert!(
                    error
                        .unwrap_err()
                        .to_string()
                        .contains("its digest differs")
                );
            }
        }
    }
}
