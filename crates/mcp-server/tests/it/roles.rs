//! Roles that are vouched for count in everything that is told and done; without them, what they
//! open is as unknown as what does not exist.

use crate::{
    house::{Client, House, SPOKEN, Setup},
    tasks_house::{self, LEGACY},
};
use governance::{PolicySpec, RoleRules, Rules};
use jsonrpc_core::RawJson;
use mcp_protocol::model::{GetPromptResult, Prompt};
use mcp_server::{Options, StaticPrompts, StaticResources};
use mcp_service::Principal;
use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{MODERN, succeeded};

/// Every principal has `add` and `doc://open`; clerks have `priced`, `doc://stock` and the prompt
/// too.
fn shop() -> PolicySpec {
    let names = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
    let (open, clerk) = (
        names(&["tool/add", "resource/doc://open"]),
        names(&[
            "tool/priced",
            "resource/doc://stock",
            "prompt/count",
            "tool/mirrored",
        ]),
    );
    PolicySpec {
        default: Rules {
            visible: open.clone(),
            allow: open,
            ..Rules::default()
        },
        roles: [(
            "clerk".to_owned(),
            RoleRules {
                visible: clerk.clone(),
                allow: clerk,
                ..RoleRules::default()
            },
        )]
        .into(),
        ..PolicySpec::default()
    }
}

fn setup(setup: Setup) -> Setup {
    let resources = StaticResources::new()
        .text("doc://open", "open", "text/plain", "for all".to_owned())
        .text(
            "doc://stock",
            "stock",
            "text/plain",
            "for clerks".to_owned(),
        );
    let count = Prompt {
        name: "count".to_owned(),
        ..Prompt::default()
    };
    Setup {
        policy: shop(),
        resources: Arc::new(resources),
        prompts: Arc::new(StaticPrompts::new().prompt(count, |_| Ok(GetPromptResult::default()))),
        // One on a page, so that cursors count.
        options: Options {
            tools_page: 1,
            resources_page: 1,
            ..setup.options
        },
        ..setup
    }
}

const CLERK: &[&str] = &["clerk", "another server's"];

/// Asks for something by its name, and for what does not exist in the same way; both answers, the
/// second as if it were about the first.
async fn and_absent(
    client: &mut Client,
    method: &str,
    params: Value,
    name: &str,
) -> (Value, Value) {
    let absent = params.to_string().replace(name, "absent-one");
    let mut told = client.ask(method, params).await;
    let untold = client.ask(method, absent.parse().unwrap()).await;
    let mut untold: Value = untold
        .to_string()
        .replace("absent-one", name)
        .parse()
        .unwrap();
    for answer in [&mut told, &mut untold] {
        answer["id"] = Value::Null;
    }
    (told, untold)
}

#[tokio::test]
async fn without_its_role_everything_that_it_opens_is_unknown() {
    for version in SPOKEN {
        let house = setup(Setup::default()).build();
        let mut clerk = house.connect_with("anna", CLERK, version).await;
        let mut plain = house
            .connect_with("anna", &["another server's"], version)
            .await;
        // Twice, and in turns: lists are kept for whoever sees the same.
        for _ in 0..2 {
            assert_eq!(clerk.tool_names().await, ["add", "priced"]);
            assert_eq!(plain.tool_names().await, ["add"]);
            assert_eq!(clerk.resource_uris().await, ["doc://open", "doc://stock"]);
            assert_eq!(plain.resource_uris().await, ["doc://open"]);
            assert_eq!(clerk.list("prompts/list", "prompts").await.len(), 1);
            assert_eq!(plain.list("prompts/list", "prompts").await.len(), 0);
        }
        // Where one list goes on, the other does not.
        let first = clerk.ask("tools/list", json!({})).await;
        let cursor = json!({ "cursor": first["result"]["nextCursor"] });
        let rest = plain.ask("tools/list", cursor).await;
        assert_eq!(rest["result"]["tools"], json!([]), "{rest}");

        let asked = [
            (
                "tools/call",
                json!({ "name": "priced", "arguments": {} }),
                "priced",
            ),
            (
                "resources/read",
                json!({ "uri": "doc://stock" }),
                "doc://stock",
            ),
            ("prompts/get", json!({ "name": "count" }), "count"),
        ];
        for (method, params, name) in asked {
            let answer = clerk.ask(method, params.clone()).await;
            assert!(succeeded(&answer), "{answer}");
            let (told, untold) = and_absent(&mut plain, method, params, name).await;
            assert!(told["error"].is_object(), "{told}");
            assert_eq!(told, untold, "{version} {method}");
        }
        assert_eq!(house.bench.runs(), 1);
        let record = house.record().await;
        let refused = record.iter().filter_map(|call| call.reason());
        let hidden = refused.filter(|it| *it == "not_visible").count();
        assert_eq!((record.len(), hidden), (9, 3));
    }
}

#[tokio::test]
async fn who_loses_a_role_hears_nothing_more_of_what_it_opens() {
    for version in &SPOKEN[1..] {
        if *version == MODERN {
            continue; // each request to listen is its own
        }
        let house = setup(Setup::default()).build();
        let mut clerk = house.connect_with("anna", CLERK, version).await;
        let mut plain = house.connect("anna", version).await;
        let uri = json!({ "uri": "doc://stock" });
        let subscribed = clerk.ask("resources/subscribe", uri.clone()).await;
        assert!(succeeded(&subscribed), "{subscribed}");
        let (told, untold) =
            and_absent(&mut plain, "resources/subscribe", uri, "doc://stock").await;
        assert!(told["error"].is_object(), "{told}");
        assert_eq!(told, untold);
        house.mcp_server.resource_changed("doc://stock");
        assert_eq!(clerk.settle().await.len(), 1);
        assert_eq!(plain.settle().await.len(), 0);
    }
}

#[tokio::test]
async fn headers_are_compared_for_whoever_may_see_the_tool() {
    let house = setup(Setup::default()).build();
    let schema = json!({
        "region": { "type": "string", "x-mcp-header": "Region" },
    });
    let mirrored = house.bench.tool(
        "mirrored",
        schema,
        &[],
        |_, _| async move { Ok("done".into()) },
    );
    let resources = Arc::new(StaticResources::new());
    house
        .mcp_server
        .replace_offer(crate::house::offer(vec![mirrored], resources));
    let params = json!({ "name": "mirrored", "arguments": { "region": "north" } });
    let params = RawJson::from_value(&params).unwrap();
    let compare = |principal: Principal| {
        let other = |_: &str| vec![&b"south"[..]];
        house
            .mcp_server
            .compare_headers(&principal, "mirrored", &params, other)
    };
    let clerk = Principal::new("anna").with_roles(["clerk".into()].into());
    assert!(compare(clerk).is_err());
    assert!(compare(Principal::new("anna")).is_ok(), "it is unknown");
}

async fn shop_with_tasks() -> House {
    setup(tasks_house::setup(tasks_house::options()).await).build()
}

#[tokio::test]
async fn a_task_is_unknown_without_the_role_that_its_tool_takes() {
    let house = shop_with_tasks().await;
    let mut policy = shop();
    let clerk = policy.roles.get_mut("clerk").unwrap();
    for patterns in [&mut clerk.visible, &mut clerk.allow] {
        patterns.push("tool/*".to_owned());
    }
    let policy = governance::Policy::new(policy).unwrap();
    house.mcp_server.replace_policy(policy);
    let mut clerk = house.connect_with("anna", CLERK, LEGACY).await;
    let mut plain = house.connect("anna", LEGACY).await;
    let listed = clerk.ask("tools/list", json!({})).await;
    let mut all = clerk.list("tools/list", "tools").await;
    all.retain(|tool| tool["execution"]["taskSupport"] == "optional");
    assert!(!all.is_empty(), "{listed}");
    let params = json!({ "name": "long", "arguments": {}, "task": {} });
    let created = clerk.ask("tools/call", params.clone()).await;
    let id = &created["result"]["task"]["taskId"];
    assert!(id.is_string(), "{created}; {all:?}");
    let refused = plain.ask("tools/call", params).await;
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let unknown = plain.ask(method, json!({ "taskId": id })).await;
        assert_eq!(unknown["error"]["code"], -32602, "{method}: {unknown}");
    }
    let has = async |client: &mut Client| client.list("tasks/list", "tasks").await.len();
    assert_eq!((has(&mut clerk).await, has(&mut plain).await), (1, 0));
    let known = clerk.ask("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(known["result"]["taskId"], *id, "{known}");
    house.bench.begun().await;
    house.bench.gate.notify_waiters();
    let result = clerk.ask("tasks/result", json!({ "taskId": id })).await;
    assert!(succeeded(&result), "{result}");
}
