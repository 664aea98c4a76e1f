//! Calls that must be confirmed do not begin without, and a confirmation is for one call (D5).

use crate::house::reason_of;
use crate::{
    house::{Bench, Client, House, Setup, now_us, offer, pass, policy},
    tasks_house::{LEGACY, created, reaches, setup as with_tasks},
};
use adapter_tools::{Elicited, Needed, Tool, ToolCx, ToolError};
use data_encoding::HEXLOWER;
use governance::{CapabilityFacts, Confirmation, Micros, Policy, PolicySpec, Quota, Risk, Rules};
use ledger::{ApprovalId, Decision, Event, NoteKind, Outcome, Verdict};
use mcp_server::{NoResources, StaticResources};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use testkit::{MODERN, failure_of};

const KEY: &str = "io.owlclaw/confirm";

fn tools(bench: &Bench) -> Vec<Tool> {
    let money = json!({ "to": { "type": "string" }, "amount": { "type": "integer" } });
    let done = |name: &'static str| {
        bench.tool(name, money.clone(), &["to"], |_, it| async move {
            Ok(format!("done for {}", it["to"]).into())
        })
    };
    let order = bench.tool("order", json!({}), &[], |cx: ToolCx, _| async move {
        let schema = json!({
            "type": "object",
            "properties": { "size": { "type": "string" } },
        });
        let asked = Needed::form("size", "Which size?", schema);
        match cx.answers().elicited("size", &asked) {
            Some(Elicited::Accepted(content)) => {
                Ok(format!("ordered {} after {:?}", content["size"], cx.answers().state).into())
            }
            _ => Err(ToolError::NeedsInput(
                asked.with_state(json!({ "asked": 1 })),
            )),
        }
    });
    vec![
        done("transfer").with_estimated_cost_micros(5_000_000),
        done("refund"),
        done("wipe"),
        order,
    ]
}

fn rules() -> PolicySpec {
    let facts = |risk, confirmation| CapabilityFacts {
        risk,
        confirmation,
        ..CapabilityFacts::default()
    };
    let financial = Risk {
        financial: true,
        ..Risk::default()
    };
    let capabilities = [
        ("tool/transfer", facts(financial, None)),
        ("tool/refund", facts(financial, None)),
        ("tool/order", facts(financial, None)),
        (
            "tool/wipe",
            facts(Risk::default(), Some(Confirmation::Operator)),
        ),
    ];
    PolicySpec {
        capabilities: capabilities
            .into_iter()
            .map(|(name, facts)| (name.to_owned(), facts))
            .collect(),
        ..policy(Rules::default())
    }
}

fn bank_setup() -> Setup {
    let bench = Bench::new();
    Setup {
        policy: rules(),
        more_tools: tools(&bench),
        bench,
        ..Setup::default()
    }
}

fn bank() -> House {
    bank_setup().build()
}

/// A client whose user can be asked.
async fn asked(house: &House, principal: &str, version: &str) -> Client {
    let mut client = house.join(principal, Duration::ZERO);
    client.voice.capabilities = json!({ "elicitation": {} });
    client.open(version).await;
    client
}

fn to(whom: &str) -> Value {
    json!({ "to": whom, "amount": 7 })
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "confirm": true } })
}

/// The state that goes with the question that an answer is.
fn state_of(answer: &Value) -> String {
    let result = &answer["result"];
    assert_eq!(result["resultType"], "input_required", "{answer}");
    result["requestState"].as_str().expect("a state").to_owned()
}

fn answered(tool: &str, arguments: &Value, state: &str, key: &str, response: Value) -> Value {
    json!({
        "name": tool,
        "arguments": arguments,
        "inputResponses": { key: response },
        "requestState": state,
    })
}

async fn confirm(client: &mut Client, tool: &str, arguments: &Value, state: &str) -> Value {
    let params = answered(tool, arguments, state, KEY, yes());
    client.ask("tools/call", params).await
}

fn is_done(answer: &Value) -> bool {
    answer["result"]["resultType"] != "input_required"
        && answer["result"]["content"][0]["text"].is_string()
        && answer["result"]["isError"] != true
}

/// The approval that a refusal names.
fn pending(answer: &Value) -> ApprovalId {
    let data = &failure_of(answer)["data"];
    assert_eq!(failure_of(answer)["code"], -32003, "{answer}");
    assert_eq!(data["reason"], "confirmation", "{answer}");
    assert_eq!(data["approval"]["state"], "pending", "{answer}");
    let id = data["approval"]["id"].as_str().expect("an id");
    id.parse().expect("an approval's")
}

async fn decide(house: &House, approval: ApprovalId, decision: Decision) {
    let recorder = house.mcp_server.recorder();
    let decided =
        recorder.decide_approval(approval, Verdict::new(decision, "operator:boss", now_us()));
    decided.await.expect("it can be decided");
}

fn notes(house: &House, kind: &NoteKind) -> Vec<(String, String)> {
    let entries = house.ledger.entries().into_iter();
    entries
        .filter_map(|entry| match entry.event {
            Event::Noted(noted) if noted.kind == *kind => Some((noted.actor, noted.subject)),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn a_modern_client_is_asked_by_a_result_and_its_users_yes_lets_one_call_through() {
    let house = bank();
    let mut client = asked(&house, "anna", MODERN).await;
    let arguments = to("bob");
    let answer = client.call("transfer", arguments.clone()).await;
    let state = state_of(&answer);
    let question = &answer["result"]["inputRequests"][KEY];
    assert_eq!(question["method"], "elicitation/create", "{answer}");
    let message = question["params"]["message"].as_str().unwrap();
    for said in ["`transfer`", r#""to":"bob""#, "5", "financial"] {
        assert!(message.contains(said), "{said} in {message}");
    }
    let confirm_field = &question["params"]["requestedSchema"]["properties"]["confirm"];
    assert_eq!(confirm_field["type"], "boolean");
    assert_eq!(house.bench.runs(), 0);
    let used = house.usage_of("anna").await.unwrap();
    assert_eq!(
        (used.calls_total, used.spent, used.running),
        (0, Micros::ZERO, 0)
    );

    let answer = confirm(&mut client, "transfer", &arguments, &state).await;
    assert!(is_done(&answer), "{answer}");
    assert_eq!(house.bench.runs(), 1);
    let [(_, requested)] = &notes(&house, &NoteKind::APPROVAL_REQUESTED)[..] else {
        panic!("one approval is asked for");
    };
    let [(by, decided)] = &notes(&house, &NoteKind::APPROVAL_DECIDED)[..] else {
        panic!("and decided once");
    };
    assert_eq!((by.as_str(), decided), ("user:anna", requested));
    let record = house.record().await;
    assert_eq!(record.len(), 1, "{record:?}");
    let approval = record[0].started.approval.expect("it says which it used");
    assert_eq!(approval.to_string(), *requested);
    assert_eq!(record[0].ended.outcome, Outcome::Succeeded);
    assert!(record[0].started.definition_digest.is_some());
}

#[tokio::test]
async fn a_legacy_client_is_asked_by_a_request() {
    for version in ["2025-06-18", LEGACY] {
        for (answer, runs) in [
            (yes(), 1),
            (json!({ "action": "decline" }), 0),
            (json!({ "action": "cancel" }), 0),
            (
                json!({ "action": "accept", "content": { "confirm": false } }),
                0,
            ),
        ] {
            let house = bank();
            let mut client = asked(&house, "anna", version).await;
            let params = json!({ "name": "transfer", "arguments": to("bob") });
            let call = client.begin("tools/call", params).await;
            let question = client.receive().await;
            assert_eq!(question["method"], "elicitation/create", "{question}");
            let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer });
            client.send(&reply).await;
            let said = client.receive_answer(&call).await;
            assert_eq!(house.bench.runs(), runs, "{version}: {said}");
            if runs == 0 {
                assert_eq!(failure_of(&said)["code"], -32003, "{said}");
                assert_eq!(failure_of(&said)["data"]["reason"], "confirmation");
                let record = house.record().await;
                assert_eq!(record.len(), 1);
                assert_eq!(record[0].reason(), Some("confirmation"));
            } else {
                assert!(is_done(&said), "{said}");
            }
        }
    }
}

#[tokio::test]
async fn a_confirmation_shows_every_member_and_cuts_nothing() {
    let house = bank();
    let mut client = asked(&house, "anna", MODERN).await;
    let message = |answer: &Value| {
        let question = &answer["result"]["inputRequests"][KEY];
        question["params"]["message"].as_str().unwrap().to_owned()
    };
    // Short texts are shown whole, long ones by size and digest: the amount is seen after both.
    for length in [1_200, 20_000] {
        let whom = format!("\u{202e}{}", "x".repeat(length));
        let text = json!(whom).to_string();
        let arguments = json!({ "a_to": 1, "to": whom, "z_amount": 7 });
        let refused = client.call("transfer", arguments).await;
        assert_eq!(
            refused["result"]["isError"], true,
            "they do not fit: {refused}"
        );
        let message = message(&client.call("transfer", to(&whom)).await);
        assert!(message.contains(r#""amount":7"#), "{message}");
        match length {
            1_200 => assert!(message.contains(&format!("\\u202e{}\"", "x".repeat(length)))),
            _ => {
                let digest = redaction::canonical_digest(&text).unwrap();
                let digest = HEXLOWER.encode(&digest);
                assert!(message.contains("[folded string of 20"), "{message}");
                assert!(message.contains(&digest), "{message}");
            }
        }
        assert!(!message.contains('\u{202e}'), "{message}");
    }
    let kept = house.ledger.approvals();
    assert!(
        kept.iter().all(|it| it.arguments.contains(r#""amount":7"#)),
        "{kept:?}"
    );
}

#[tokio::test]
async fn arguments_too_large_for_the_user_go_to_an_operator_or_are_refused() {
    let bench = Bench::new();
    let more = json!({ "more": { "type": "object" } });
    let open = bench.tool("transfer", more, &[], |_, _| async { Ok("done".into()) });
    let house = Setup {
        policy: rules(),
        more_tools: vec![open],
        bench,
        ..Setup::default()
    }
    .build();
    let mut client = asked(&house, "anna", MODERN).await;
    let members = |count: usize| {
        let members = (0..count).map(|it| (format!("member-{it}"), json!(it)));
        json!({ "more": Value::Object(members.collect()) })
    };
    let arguments = members(300);
    let answer = client.call("transfer", arguments.clone()).await;
    let id = pending(&answer);
    let failure = failure_of(&answer);
    let message = failure["message"].as_str().unwrap();
    assert!(
        message.contains("too long to be shown to the user"),
        "{message}"
    );
    decide(&house, id, Decision::Approve).await;
    assert!(is_done(&client.call("transfer", arguments).await));

    let asked_for = notes(&house, &NoteKind::APPROVAL_REQUESTED).len();
    let answer = client.call("transfer", members(3_000)).await;
    let failure = failure_of(&answer);
    assert_eq!(failure["data"]["reason"], "confirmation", "{answer}");
    let message = failure["message"].as_str().unwrap();
    assert!(
        message.contains("too long to be shown to anybody"),
        "{message}"
    );
    assert_eq!(failure["data"]["approval"], Value::Null);
    assert_eq!(
        notes(&house, &NoteKind::APPROVAL_REQUESTED).len(),
        asked_for
    );
    assert_eq!(house.bench.runs(), 1);
}

#[tokio::test]
async fn a_form_without_a_yes_refuses_this_call_and_decides_nothing() {
    let house = bank();
    let mut client = asked(&house, "anna", MODERN).await;
    let arguments = to("bob");
    for content in [json!({ "confirm": false }), json!({})] {
        let state = state_of(&client.call("transfer", arguments.clone()).await);
        let sent = json!({ "action": "accept", "content": content });
        let params = answered("transfer", &arguments, &state, KEY, sent);
        let refused = client.ask("tools/call", params).await;
        let reason = &failure_of(&refused)["data"]["reason"];
        assert_eq!(reason, "confirmation", "{refused}");
    }
    assert!(notes(&house, &NoteKind::APPROVAL_DECIDED).is_empty());
    // Another session of the same principal is asked, and may say yes.
    let mut other = asked(&house, "anna", MODERN).await;
    let state = state_of(&other.call("transfer", arguments.clone()).await);
    assert!(is_done(
        &confirm(&mut other, "transfer", &arguments, &state).await
    ));
    assert_eq!(house.bench.runs(), 1);
}

#[tokio::test]
async fn an_operator_can_revoke_a_users_denial() {
    let house = bank();
    let mut client = asked(&house, "anna", MODERN).await;
    let arguments = to("bob");
    let state = state_of(&client.call("transfer", arguments.clone()).await);
    let no = json!({ "action": "decline" });
    let params = answered("transfer", &arguments, &state, KEY, no);
    let refused = client.ask("tools/call", params).await;
    let state = &failure_of(&refused)["data"]["approval"]["state"];
    assert_eq!(state, "denied", "{refused}");
    let again = client.call("transfer", arguments.clone()).await;
    let state = &failure_of(&again)["data"]["approval"]["state"];
    assert_eq!(state, "denied", "{again}");
    let kept = house.ledger.approvals();
    let proof = kept[0].decided.as_ref().unwrap().proof.as_deref();
    assert_eq!(proof, Some("the client's user, by elicitation"));

    decide(&house, kept[0].id, Decision::Revoke).await;
    let state = state_of(&client.call("transfer", arguments.clone()).await);
    assert!(is_done(
        &confirm(&mut client, "transfer", &arguments, &state).await
    ));
    assert_eq!(notes(&house, &NoteKind::APPROVAL_REVOKED).len(), 1);
}

#[tokio::test]
async fn who_cannot_be_asked_is_told_what_to_have_approved_and_then_makes_the_same_call() {
    for (version, tool) in [
        ("2024-11-05", "transfer"),
        ("2025-03-26", "transfer"),
        (LEGACY, "transfer"),
        (MODERN, "transfer"),
        // For which the user's word does not count.
        (MODERN, "wipe"),
        (LEGACY, "wipe"),
    ] {
        let house = bank();
        let mut client = match tool {
            "wipe" => asked(&house, "anna", version).await,
            _ => house.connect("anna", version).await,
        };
        let first = client.call(tool, to("bob")).await;
        let id = pending(&first);
        let message = failure_of(&first)["message"].clone();
        let command = format!("approvals approve {id} --by");
        assert!(message.as_str().unwrap().contains(&command), "{message}");
        // Members in another order are the same call.
        let reordered = json!({ "amount": 7, "to": "bob" });
        let second = client.call(tool, reordered.clone()).await;
        assert_eq!(pending(&second), id, "no second one is asked for");
        assert_eq!(house.bench.runs(), 0);

        decide(&house, id, Decision::Approve).await;
        let done = client.call(tool, reordered).await;
        assert!(is_done(&done), "{version}: {done}");
        let again = client.call(tool, to("bob")).await;
        assert_ne!(pending(&again), id, "it was for one call");
        assert_eq!(house.bench.runs(), 1, "{version}, {tool}");
        let record = house.record().await;
        let ran: Vec<_> = record.iter().filter(|it| it.reason().is_none()).collect();
        assert_eq!(ran.len(), 1);
        assert_eq!(ran[0].started.approval, Some(id));
    }
}

#[tokio::test]
async fn a_denied_approval_refuses_until_it_has_expired() {
    let house = bank();
    let mut client = house.connect("anna", MODERN).await;
    let id = pending(&client.call("transfer", to("bob")).await);
    decide(&house, id, Decision::Deny).await;
    for _ in 0..2 {
        let answer = client.call("transfer", to("bob")).await;
        let data = &failure_of(&answer)["data"];
        assert_eq!(data["reason"], "confirmation", "{answer}");
        assert_eq!(data["approval"]["state"], "denied", "{answer}");
        assert_eq!(data["approval"]["id"], id.to_string());
    }
    // Something else is not.
    assert_ne!(pending(&client.call("transfer", to("eve")).await), id);
    pass(Duration::from_secs(24 * 60 * 60));
    assert_ne!(pending(&client.call("transfer", to("bob")).await), id);
    assert_eq!(house.bench.runs(), 0);
}

#[tokio::test]
async fn nobody_is_asked_about_arguments_that_do_not_fit() {
    let house = bank();
    for version in [MODERN, LEGACY] {
        let mut client = asked(&house, "anna", version).await;
        for arguments in [
            json!({}),
            json!({ "to": 7 }),
            json!({ "to": "x", "more": 1 }),
        ] {
            let answer = client.call("transfer", arguments).await;
            assert_eq!(answer["result"]["isError"], true, "{answer}");
        }
    }
    assert_eq!(house.bench.runs(), 0);
    assert!(notes(&house, &NoteKind::APPROVAL_REQUESTED).is_empty());
}

/// Origin of an approval.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// The client's user says yes, in the answer that the misuse repeats.
    User,
    /// An operator has approved it.
    Operator,
}

/// Use of an approval for another call than its own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Misuse {
    OtherArguments,
    OtherTool,
    OtherPrincipal,
    ChangedDefinition,
    ChangedPolicy,
    Expired,
    Twice,
    SixteenAtOnce,
    TwiceInABatch,
    AsATaskToo,
    ForgedState,
    StateOfAnother,
    NoState,
    Denied,
    WithAnotherKey,
    /// The user says yes to a call that an operator must decide.
    ByTheWrongOne,
    /// The same number, as another kind of it.
    NearlyTheSame,
}

const MISUSES: [Misuse; 17] = [
    Misuse::OtherArguments,
    Misuse::OtherTool,
    Misuse::OtherPrincipal,
    Misuse::ChangedDefinition,
    Misuse::ChangedPolicy,
    Misuse::Expired,
    Misuse::Twice,
    Misuse::SixteenAtOnce,
    Misuse::TwiceInABatch,
    Misuse::AsATaskToo,
    Misuse::ForgedState,
    Misuse::StateOfAnother,
    Misuse::NoState,
    Misuse::Denied,
    Misuse::WithAnotherKey,
    Misuse::ByTheWrongOne,
    Misuse::NearlyTheSame,
];

/// Misuses that begin with the use it is for.
fn rightful_uses(misuse: Misuse) -> usize {
    usize::from(matches!(
        misuse,
        Misuse::Twice
            | Misuse::SixteenAtOnce
            | Misuse::TwiceInABatch
            | Misuse::AsATaskToo
            | Misuse::WithAnotherKey
    ))
}

/// A call that could be made with an approval: its parameters.
struct Granted {
    params: Value,
}

/// Has `transfer` to bob approved for anna; the call that may be made then.
async fn grant(house: &House, client: &mut Client, by: By) -> Granted {
    let arguments = to("bob");
    let answer = client.call("transfer", arguments.clone()).await;
    match by {
        By::User => Granted {
            params: answered("transfer", &arguments, &state_of(&answer), KEY, yes()),
        },
        By::Operator => {
            decide(house, pending(&answer), Decision::Approve).await;
            Granted {
                params: json!({ "name": "transfer", "arguments": arguments }),
            }
        }
    }
}

async fn client_for(house: &House, principal: &str, by: By) -> Client {
    match by {
        By::User => asked(house, principal, MODERN).await,
        By::Operator => house.connect(principal, MODERN).await,
    }
}

/// Makes the misuse; the answers to all calls that were made of it.
async fn misuse(house: &House, misuse: Misuse, by: By) -> Option<Vec<Value>> {
    let mut client = client_for(house, "anna", by).await;
    let Granted { mut params } = grant(house, &mut client, by).await;
    let with_key = |params: &Value, key: &str| {
        let mut params = params.clone();
        params["_meta"]["io.owlclaw/idempotencyKey"] = json!(key);
        params
    };
    match misuse {
        Misuse::OtherArguments => params["arguments"]["to"] = json!("eve"),
        Misuse::NearlyTheSame => params["arguments"]["amount"] = json!(7.0),
        Misuse::OtherTool => params["name"] = json!("refund"),
        Misuse::OtherPrincipal => client = client_for(house, "eve", by).await,
        Misuse::ChangedDefinition => {
            let mut all = house.bench.tools();
            all.extend(tools(&house.bench).into_iter().map(|it| match it.name() {
                "transfer" => it.describe("Moves money. The fee is on you now."),
                _ => it,
            }));
            house
                .mcp_server
                .replace_offer(offer(all, Arc::new(NoResources)));
        }
        Misuse::ChangedPolicy => {
            let mut rules = rules();
            rules.default.quota.max_calls_per_day = Some(1_000);
            house.mcp_server.replace_policy(Policy::new(rules).unwrap());
        }
        Misuse::Expired => pass(Duration::from_secs(24 * 60 * 60)),
        Misuse::Twice => {
            let first = client.ask("tools/call", params.clone()).await;
            assert!(is_done(&first), "{first}");
        }
        Misuse::SixteenAtOnce => {
            let mut ids = Vec::new();
            for _ in 0..16 {
                ids.push(client.begin("tools/call", params.clone()).await);
            }
            let mut answers = Vec::new();
            for _ in &ids {
                answers.push(client.receive().await);
            }
            return Some(answers);
        }
        Misuse::TwiceInABatch => {
            if by == By::User {
                return None; // who can be asked by a request has no batches
            }
            let mut client = house.connect("anna", "2025-03-26").await;
            let batch = [(); 2].map(|()| client.voice.request("tools/call", params.clone()));
            client.send(&json!(batch)).await;
            let answers = client.receive().await;
            return Some(answers.as_array().expect("a batch").clone());
        }
        Misuse::AsATaskToo => {
            if by == By::User {
                return None; // such tasks ask for themselves, see below
            }
            let first = client.ask("tools/call", params.clone()).await;
            assert!(is_done(&first), "{first}");
            client = house.connect("anna", LEGACY).await;
            params["task"] = json!({});
        }
        Misuse::ForgedState => {
            let state = params["requestState"].as_str()?;
            let middle = state.len() / 2;
            let swapped = if &state[middle..=middle] == "A" {
                "B"
            } else {
                "A"
            };
            params["requestState"] = json!(format!(
                "{}{swapped}{}",
                &state[..middle],
                &state[middle + 1..]
            ));
        }
        Misuse::StateOfAnother => {
            params.get("requestState")?;
            let other = client.call("transfer", to("eve")).await;
            params["requestState"] = json!(state_of(&other));
        }
        Misuse::NoState => {
            params.get("requestState")?;
            params.as_object_mut().unwrap().remove("requestState");
        }
        Misuse::Denied => {
            let asked = notes(house, &NoteKind::APPROVAL_REQUESTED);
            let id = asked.last().unwrap().1.parse().unwrap();
            if by == By::Operator {
                return None; // what is decided is decided
            }
            decide(house, id, Decision::Deny).await;
        }
        Misuse::WithAnotherKey => {
            let first = client.ask("tools/call", with_key(&params, "one")).await;
            assert!(is_done(&first), "{first}");
            let replayed = client.ask("tools/call", with_key(&params, "one")).await;
            let replay = &replayed["result"]["_meta"]["io.owlclaw/replay"];
            assert!(replay["call"].is_string(), "{replayed}");
            params = with_key(&params, "two");
        }
        Misuse::ByTheWrongOne => {
            let state = params["requestState"].as_str()?.to_owned();
            params = answered("wipe", &to("bob"), &state, KEY, yes());
            let refused = client.ask("tools/call", params.clone()).await;
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
            params.as_object_mut().unwrap().remove("requestState");
        }
    }
    Some(vec![client.ask("tools/call", params).await])
}

#[tokio::test]
async fn an_approval_lets_nothing_through_but_what_it_is_for_and_that_once() {
    let mut tried = 0;
    for by in [By::User, By::Operator] {
        for kind in MISUSES {
            let house = Setup {
                policy: rules(),
                more_tools: Vec::new(),
                ..with_tasks(crate::tasks_house::options()).await
            };
            let bench = house.bench.clone();
            let house = Setup {
                more_tools: tools(&bench),
                ..house
            }
            .build();
            let Some(answers) = misuse(&house, kind, by).await else {
                continue;
            };
            tried += 1;
            let done = answers.iter().filter(|it| is_done(it)).count();
            let rightful = rightful_uses(kind);
            assert_eq!(
                house.bench.runs(),
                rightful,
                "{kind:?} by {by:?}: {answers:?}"
            );
            assert!(done <= rightful, "{kind:?} by {by:?}: {answers:?}");
            // Refused, or asked anew: nothing else.
            for answer in answers.iter().filter(|it| !is_done(it)) {
                let refused = reason_of(answer) == Some("confirmation");
                let asked = answer["result"]["resultType"] == "input_required";
                let invalid =
                    answer["error"]["code"] == -32602 || answer["result"]["isError"] == true;
                assert!(refused || asked || invalid, "{kind:?} by {by:?}: {answer}");
            }
            let record = house.record().await;
            let ran = record
                .iter()
                .filter(|it| it.ended.outcome == Outcome::Succeeded);
            assert_eq!(ran.count(), rightful, "{kind:?} by {by:?}");
        }
    }
    assert!(24 <= tried, "{tried}");
}

#[tokio::test]
async fn a_confirmed_call_that_asks_goes_on_once_without_a_second_question() {
    let house = bank();
    let mut client = asked(&house, "anna", MODERN).await;
    let none = json!({});
    let state = state_of(&client.call("order", none.clone()).await);
    let asks = confirm(&mut client, "order", &none, &state).await;
    let state = state_of(&asks);
    assert!(
        asks["result"]["inputRequests"]["size"].is_object(),
        "{asks}"
    );
    assert_eq!(house.bench.runs(), 1);
    let size = json!({ "action": "accept", "content": { "size": "M" } });
    let go_on = answered("order", &none, &state, "size", size);
    let done = client.ask("tools/call", go_on.clone()).await;
    let text = done["result"]["content"][0]["text"].as_str();
    assert_eq!(
        text,
        Some(r#"ordered "M" after Some(Object {"asked": Number(1)})"#),
        "{done}"
    );
    assert_eq!(house.bench.runs(), 2);
    for _ in 0..2 {
        let again = client.ask("tools/call", go_on.clone()).await;
        assert_eq!(
            failure_of(&again)["data"]["reason"],
            "confirmation",
            "{again}"
        );
    }
    assert_eq!(house.bench.runs(), 2);
    let record = house.record().await;
    let approvals: Vec<_> = record.iter().filter_map(|it| it.started.approval).collect();
    assert_eq!(approvals.len(), 4, "{record:?}");
    assert_ne!(approvals[0], approvals[1]);
}

#[tokio::test]
async fn the_record_links_a_call_that_asks_with_the_one_that_brings_the_answers() {
    for version in [LEGACY, MODERN] {
        let bench = Bench::new();
        let house = Setup {
            more_tools: tools(&bench),
            bench,
            ..Setup::default()
        }
        .build();
        let mut client = asked(&house, "anna", version).await;
        let none = json!({});
        let size = json!({ "action": "accept", "content": { "size": "M" } });
        if version == MODERN {
            let state = state_of(&client.call("order", none.clone()).await);
            let go_on = answered("order", &none, &state, "size", size);
            assert!(is_done(&client.ask("tools/call", go_on).await));
        } else {
            let params = json!({ "name": "order", "arguments": none });
            let call = client.begin("tools/call", params).await;
            let question = client.receive().await;
            let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": size });
            client.send(&reply).await;
            assert!(is_done(&client.receive_answer(&call).await));
        }
        let record = house.record().await;
        assert_eq!(record.len(), 2, "{record:?}");
        let entries = house.ledger.entries().into_iter();
        let calls: Vec<_> = entries
            .filter(|it| matches!(it.event, Event::Started(_)))
            .map(|it| it.call.to_string())
            .collect();
        let (asked, brought) = (&calls[0], &calls[1]);
        let noted = house
            .ledger
            .entries()
            .into_iter()
            .find_map(|it| match it.event {
                Event::Noted(noted) if noted.kind == NoteKind::QUESTION_ANSWERED => Some(noted),
                _ => None,
            });
        let noted = noted.expect("a note");
        assert_eq!((noted.actor.as_str(), &noted.subject), ("anna", brought));
        let detail: Value = serde_json::from_str(&noted.detail.text).unwrap();
        assert_eq!(
            detail,
            json!({ "asked": asked, "capability": "tool/order" })
        );
    }
}

/// A call that was confirmed is confirmed once, which only the ledger can tell.
#[tokio::test]
async fn no_outage_lets_a_confirmed_call_go_on_without_its_record() {
    let mut setup = bank_setup();
    setup.options.read_only_exempt = true;
    let facts = CapabilityFacts {
        risk: Risk {
            read_only: true,
            ..Risk::default()
        },
        confirmation: Some(Confirmation::User),
        ..CapabilityFacts::default()
    };
    let capabilities = &mut setup.policy.capabilities;
    capabilities.insert("tool/order".to_owned(), facts);
    let house = setup.build();
    let mut client = asked(&house, "anna", MODERN).await;
    let none = json!({});
    let state = state_of(&client.call("order", none.clone()).await);
    let state = state_of(&confirm(&mut client, "order", &none, &state).await);
    assert_eq!(house.bench.runs(), 1);
    house.ledger.set_failing(true);
    let size = json!({ "action": "accept", "content": { "size": "M" } });
    let go_on = answered("order", &none, &state, "size", size);
    for _ in 0..2 {
        let answer = client.ask("tools/call", go_on.clone()).await;
        let reason = &failure_of(&answer)["data"]["reason"];
        assert_eq!(reason, "ledger_unavailable", "{answer}");
    }
    assert_eq!(house.bench.runs(), 1);
}

#[tokio::test]
async fn what_goes_on_under_other_rules_is_confirmed_under_them() {
    let house = bank();
    let mut client = asked(&house, "anna", MODERN).await;
    let none = json!({});
    let state = state_of(&client.call("order", none.clone()).await);
    let state = state_of(&confirm(&mut client, "order", &none, &state).await);
    let mut other = rules();
    other.default.quota.max_calls_per_day = Some(1_000);
    house.mcp_server.replace_policy(Policy::new(other).unwrap());
    let size = json!({ "action": "accept", "content": { "size": "M" } });
    let go_on = answered("order", &none, &state, "size", size);
    let answer = client.ask("tools/call", go_on).await;
    assert!(
        answer["result"]["inputRequests"][KEY].is_object(),
        "{answer}"
    );
    assert_eq!(house.bench.runs(), 1);
}

#[tokio::test]
async fn a_question_does_not_hold_what_it_would_take() {
    let mut setup = bank_setup();
    setup.policy.default.quota = Quota {
        max_calls_per_minute: Some(1),
        monthly_budget: Some(Micros(5_000_000)),
        ..Quota::default()
    };
    let house = setup.build();
    let mut client = asked(&house, "anna", MODERN).await;
    for _ in 0..3 {
        state_of(&client.call("transfer", to("bob")).await);
    }
    let state = state_of(&client.call("transfer", to("bob")).await);
    let done = confirm(&mut client, "transfer", &to("bob"), &state).await;
    assert!(is_done(&done), "{done}");
    let refused = client.call("transfer", to("bob")).await;
    assert_eq!(
        failure_of(&refused)["data"]["reason"],
        "budget",
        "{refused}"
    );
}

#[tokio::test]
async fn a_task_asks_for_its_confirmation_and_runs_once_it_has_it() {
    for agrees in [true, false] {
        let setup = with_tasks(crate::tasks_house::options()).await;
        let bench = setup.bench.clone();
        let house = Setup {
            policy: rules(),
            more_tools: tools(&bench),
            ..setup
        }
        .build();
        let mut client = asked(&house, "anna", LEGACY).await;
        let params = json!({ "name": "transfer", "arguments": to("bob"), "task": {} });
        let answer = client.ask("tools/call", params).await;
        let id = created(&answer);
        reaches(&mut client, &id, "input_required").await;
        assert_eq!(house.bench.runs(), 0);
        let result = client.begin("tasks/result", json!({ "taskId": id })).await;
        let question = loop {
            let message = client.receive().await;
            if message["method"] != "notifications/tasks/status" {
                break message;
            }
        };
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let said = if agrees {
            yes()
        } else {
            json!({ "action": "decline" })
        };
        let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": said });
        client.send(&reply).await;
        let end = client.receive_answer(&result).await;
        assert_eq!(house.bench.runs(), usize::from(agrees), "{end}");
        if agrees {
            assert!(is_done(&end), "{end}");
            let record = house.record().await;
            let ran: Vec<_> = record
                .iter()
                .filter(|it| it.started.capability == "tool/transfer")
                .collect();
            assert_eq!(ran.len(), 1, "{record:?}");
            assert_eq!(ran[0].started.task.as_deref(), Some(id.as_str()));
        } else {
            assert_eq!(failure_of(&end)["data"]["reason"], "confirmation", "{end}");
        }
    }
}

#[tokio::test]
async fn what_is_read_can_be_confirmed_as_well() {
    for version in [MODERN, LEGACY] {
        let documents = StaticResources::new().text("doc://a", "a", "text/plain", "secret");
        let house = Setup {
            policy: policy(Rules {
                confirm: vec!["resource/*".to_owned()],
                ..Rules::default()
            }),
            resources: Arc::new(documents),
            ..Setup::default()
        }
        .build();
        let mut client = asked(&house, "anna", version).await;
        let mut params = json!({ "uri": "doc://a" });
        let read = if version == MODERN {
            let answer = client.ask("resources/read", params.clone()).await;
            params["requestState"] = json!(state_of(&answer));
            params["inputResponses"] = json!({ KEY: yes() });
            client.ask("resources/read", params.clone()).await
        } else {
            let id = client.begin("resources/read", params.clone()).await;
            let question = client.receive().await;
            let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": yes() });
            client.send(&reply).await;
            client.receive_answer(&id).await
        };
        assert_eq!(read["result"]["contents"][0]["text"], "secret", "{read}");
        if version == MODERN {
            let again = client.ask("resources/read", params).await;
            assert_eq!(
                failure_of(&again)["data"]["reason"],
                "confirmation",
                "{again}"
            );
        }
        // Who cannot be asked does not read it.
        let mut other = house.connect("bob", version).await;
        let refused = other
            .ask("resources/read", json!({ "uri": "doc://a" }))
            .await;
        pending(&refused);
        assert!(!refused.to_string().contains("secret"));
    }
}

#[tokio::test]
async fn clients_are_told_what_must_be_confirmed_and_what_it_does() {
    let house = bank();
    let mut client = house.connect("anna", MODERN).await;
    let tools = client.list("tools/list", "tools").await;
    for (name, who, risks) in [
        ("transfer", json!("user"), json!(["financial"])),
        ("wipe", json!("operator"), json!([])),
        ("add", Value::Null, json!([])),
    ] {
        let tool = tools.iter().find(|it| it["name"] == name).unwrap();
        let hints = &tool["_meta"]["io.owlclaw/governance"];
        assert_eq!(hints["requires_confirmation"], !who.is_null(), "{name}");
        assert_eq!(hints["confirmation"], who, "{name}");
        assert_eq!(hints["risks"], risks, "{name}");
    }
}
