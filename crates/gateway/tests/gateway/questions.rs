//! Questions of upstreams to the clients of calls.

use crate::support::{ALL, GENEROUS, Site, asking, call, call_as, speaking, spec, text, until};
use adapter_tools::{Answers, Askable, Needed, Question, ToolCx, ToolError};
use gateway::Reach;
use serde_json::{Value, json, value::RawValue};
use std::sync::Arc;

fn answers(needed: &Needed, answer: &Value) -> Answers {
    let keys = needed.questions.keys();
    let raw = RawValue::from_string(answer.to_string()).unwrap();
    Answers {
        responses: keys.map(|it| (it.clone(), raw.clone())).collect(),
        state: needed.state.clone(),
    }
}

#[tokio::test]
async fn questions_of_an_upstream_are_the_callers_to_answer() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    let rows = [
        (
            "mcp_up_ask",
            json!({"action": "accept", "content": {"name": "Ana"}}),
            "Ana",
        ),
        (
            "mcp_up_roots",
            json!({"roots": [{"uri": "file:///home"}]}),
            "file:///home",
        ),
        (
            "mcp_up_sample",
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello"}}),
            "Hello",
        ),
    ];
    for (name, answer, expected) in rows {
        let asked = call_as(&gateway, asking(ALL, None), name, json!({})).await;
        let Err(ToolError::NeedsInput(needed)) = asked else {
            panic!("{asked:?}")
        };
        // As for a client that asks again by another request.
        needed.waiting.as_ref().unwrap().go_on();
        let [question] = &needed.questions.values().cloned().collect::<Vec<_>>()[..] else {
            panic!()
        };
        if name == "mcp_up_ask" {
            assert!(matches!(question, Question::Form { message, .. } if message == "Who?"));
        }
        let cx = asking(ALL, Some(answers(&needed, &answer)));
        let meter = Arc::clone(cx.meter());
        let answered = call_as(&gateway, cx, name, json!({})).await.unwrap();
        assert!(text(&answered).contains(expected), "{}", text(&answered));
        // On record as that of the call that has asked.
        let place = format!("upstream up, tool {}, revision", &name["mcp_up_".len()..]);
        assert!(meter.told().unwrap_or_default().starts_with(&place));
        // The same answers a second time go on with nothing.
        let cx = asking(ALL, Some(answers(&needed, &answer)));
        let again = call_as(&gateway, cx, name, json!({})).await;
        assert!(matches!(again, Err(ToolError::Lost { .. })), "{again:?}");
    }
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_call_that_nobody_goes_on_with_is_cancelled_there() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    let asked = call_as(&gateway, asking(ALL, None), "mcp_up_ask", json!({})).await;
    assert!(matches!(&asked, Err(ToolError::NeedsInput(_))), "{asked:?}");
    assert_eq!(gateway.status()[0].calls_under_way, 1);
    drop(asked);
    until("it is told", || !site.read("cancelled").is_empty()).await;
    assert_eq!(gateway.status()[0].calls_under_way, 0);
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_question_that_its_caller_cannot_answer_is_refused() {
    let site = Site::new();
    let gateway = site.gateway(vec![spec("up", site.upstream.path())]);
    gateway.first_look(GENEROUS).await;
    let cx = asking(Askable::default(), None);
    let refused = call_as(&gateway, cx, "mcp_up_ask", json!({}))
        .await
        .unwrap();
    assert!(
        text(&refused).contains("has not declared"),
        "{}",
        text(&refused)
    );
    // Whose question it is cannot be told while two calls are under way.
    let slow = call(&gateway, "mcp_up_slow", json!({"n": 3}));
    let ask = async {
        until("it has begun", || !site.read("begun").is_empty()).await;
        call_as(&gateway, asking(ALL, None), "mcp_up_ask", json!({})).await
    };
    let (slow, asked) = tokio::join!(slow, ask);
    slow.unwrap();
    assert!(text(&asked.unwrap()).contains("isolation: per-client"));
    gateway.shut_down().await;
}

#[tokio::test]
async fn an_address_that_nobody_should_visit_is_not_passed_on() {
    for revision in ["2025-11-25", "2026-07-28"] {
        let site = Site::new();
        let gateway = site.gateway(vec![speaking(spec("up", site.upstream.path()), revision)]);
        gateway.first_look(GENEROUS).await;
        for (url, why) in [
            ("javascript:alert(1)", "http or https"),
            ("data:text/html,x", "http or https"),
            ("file:///etc/passwd", "http or https"),
            ("not a url", "a space"),
            ("", "http or https"),
            ("https://good.example:x@evil.example/", "a user"),
            ("https://a.example/\u{202e}b", "invisible"),
            ("https://a.example/\u{7}b", "invisible"),
            ("https://ok.example/\u{e9}?a=b", ""),
        ] {
            // Asked for in the call, and as a reason not to begin it.
            for n in [1, 2] {
                if n == 2 && revision == "2026-07-28" {
                    continue;
                }
                let arguments = json!({"text": url, "n": n});
                let cx = asking(ALL, None);
                let asked = call_as(&gateway, cx, "mcp_up_ask_url", arguments).await;
                let told = match &asked {
                    Err(ToolError::NeedsInput(needed)) if why.is_empty() => {
                        let question = needed.questions.values().next().unwrap();
                        assert!(matches!(question, Question::Url { url: it, .. } if it == url));
                        continue;
                    }
                    // What the upstream was answered.
                    Ok(output) => text(output),
                    Err(ToolError::Failed(failure)) => &failure.message,
                    Err(other) => panic!("{revision} {url}: {other:?}"),
                };
                assert!(
                    told.contains("is not passed on") && told.contains(why),
                    "{revision} {url}: {told}"
                );
            }
        }
        gateway.shut_down().await;
    }
}

#[tokio::test]
async fn a_question_under_a_key_of_the_gateways_own_is_not_passed_on() {
    let site = Site::new();
    let mut spec = spec("up", site.upstream.path());
    let Reach::Child { environment, .. } = &mut spec.reach else {
        unreachable!()
    };
    environment.push(("REVISION".to_owned(), "2026-07-28".to_owned()));
    environment.push(("KEY".to_owned(), "io.owlclaw/confirm".to_owned()));
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    let cx = ToolCx::new("ana", "1").with_answers(ALL, None);
    let Err(ToolError::Failed(failure)) = call_as(&gateway, cx, "mcp_up_ask", json!({})).await
    else {
        panic!()
    };
    assert!(
        failure
            .message
            .contains("under the key `io.owlclaw/confirm`"),
        "{}",
        failure.message
    );
    gateway.shut_down().await;
}

#[tokio::test]
async fn a_modern_upstream_that_asks_what_was_not_declared_is_not_passed_on() {
    let site = Site::new();
    let mut spec = spec("up", site.upstream.path());
    let Reach::Child { environment, .. } = &mut spec.reach else {
        panic!()
    };
    environment.push(("REVISION".to_owned(), "2026-07-28".to_owned()));
    let gateway = site.gateway(vec![spec]);
    gateway.first_look(GENEROUS).await;
    let only_forms = Askable {
        form: true,
        ..Askable::default()
    };
    let cx = asking(only_forms, None);
    match call_as(&gateway, cx, "mcp_up_ask_url", json!({"n": 1})).await {
        Err(ToolError::Failed(failure)) => {
            assert!(failure.message.contains("has not declared"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    gateway.shut_down().await;
}
