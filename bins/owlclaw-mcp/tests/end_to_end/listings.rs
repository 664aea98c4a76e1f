//! `tools list` and `resources list`: what clients would see, on the command line.

use serde_json::{Value, json};
use testkit::{Conversation, HttpClient, HttpRequest, REVISIONS};

use crate::support::{Said, Site, run};

fn shop() -> Site {
    let site = Site::new(json!({"governance": {
        "clients": {"reader": {
            "tools": {"allow": ["echo", "spend"], "deny": ["spend"]},
            "resources": {"allow": ["skill://stock/*"]},
        }},
        "tools": {"spend": {"estimated_cost": "0.40", "max_calls_per_day": 7}},
    }}));
    site.skill("stock", "counting", "tags: [daily]\n");
    site.skill("sales", "report", "tags: [monthly]\n");
    site
}

fn rows(said: &Said) -> Vec<Value> {
    assert_eq!(said.code, Some(0), "{}", said.messages);
    serde_json::from_str(&said.output).unwrap_or_else(|error| panic!("{error}: {}", said.output))
}

fn column<'a>(rows: &'a [Value], key: &str) -> Vec<&'a str> {
    rows.iter().map(|row| row[key].as_str().unwrap()).collect()
}

/// The first word of each line below the heads.
fn first_words(said: &Said) -> Vec<&str> {
    assert_eq!(said.code, Some(0), "{}", said.messages);
    let lines = said.output.lines().skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap())
        .collect()
}

#[tokio::test]
async fn tools_are_listed_with_their_rules() {
    let site = shop();
    let all = rows(&run(site.command(&["tools", "list", "--format", "json"])).await);
    assert!(10 < all.len());
    let spend = all.iter().find(|row| row["name"] == "spend").unwrap();
    assert_eq!(
        (&spend["estimated_cost"], &spend["max_calls_per_day"]),
        (&json!("0.40"), &json!(7))
    );
    assert_eq!(spend["input_schema"]["required"], json!(["usd"]));
    assert_eq!(spend["kind"], "python");
    let tokens = all
        .iter()
        .map(|row| row["estimated_tokens"].as_u64().unwrap());
    let total: u64 = tokens
        .inspect(|tokens| assert!((5..2_000).contains(tokens)))
        .sum();

    let table = run(site.command(&["tools", "list"])).await;
    let heads = table.output.lines().next().unwrap().trim_start();
    assert!(
        heads.starts_with("NAME") && heads.contains("PER DAY"),
        "{heads}"
    );
    assert_eq!(first_words(&table), column(&all, "name"));
    let last = format!(
        "{} tools, about {total} tokens of a model's context",
        all.len()
    );
    assert_eq!(table.output.lines().last(), Some(last.as_str()));
    let echo = table
        .output
        .lines()
        .find(|line| line.trim_start().starts_with("echo"))
        .unwrap();
    assert!(echo.contains("Gives back what it is given."), "{echo}");
}

#[tokio::test]
async fn listings_show_what_one_client_may_see() {
    let site = shop();
    let words = ["tools", "list", "--as", "reader", "--format", "json"];
    let tools = rows(&run(site.command(&words)).await);
    assert_eq!(column(&tools, "name"), ["echo", "spend"]);
    let resources = run(site.command(&["resources", "list", "--as", "reader"])).await;
    assert_eq!(first_words(&resources), ["skill://stock/counting"]);
}

#[tokio::test]
async fn resources_are_listed_and_filtered() {
    let site = shop();
    let list = async |more: &[&str]| {
        let words = [&["resources", "list", "--format", "json"], more].concat();
        rows(&run(site.command(&words)).await)
    };
    let all = list(&[]).await;
    assert_eq!(
        column(&all, "uri"),
        ["skill://sales/report", "skill://stock/counting"]
    );
    let counting = &all[1];
    let size = site.read("skills/stock/counting/SKILL.md").len();
    assert_eq!(
        (&counting["size"], &counting["mime_type"]),
        (&json!(size), &json!("text/markdown"))
    );
    assert_eq!(counting["tags"], json!(["daily"]));
    assert!(counting["last_modified"].as_str().unwrap().ends_with('Z'));
    for (filter, expected) in [
        (["--category", "stock"], vec!["skill://stock/counting"]),
        (["--tag", "monthly"], vec!["skill://sales/report"]),
        (["--tag", "no-such"], vec![]),
    ] {
        assert_eq!(column(&list(&filter).await, "uri"), expected, "{filter:?}");
    }
    let table = run(site.command(&["resources", "list"])).await;
    assert_eq!(first_words(&table), column(&all, "uri"));
}

#[tokio::test]
async fn the_founding_words_work() {
    let site = shop();
    let words = [
        "mcp-server",
        "tools",
        "list",
        "--config",
        "mcp-server.yaml",
        "--format",
        "json",
    ];
    let tools = rows(&run(site.owlclaw(&words)).await);
    assert!(column(&tools, "name").contains(&"echo"));
    let words = ["mcp-server", "resources", "list"];
    let resources = run(site.owlclaw(&words)).await;
    assert_eq!(first_words(&resources).len(), 2);
    let said = run(site.owlclaw(&["mcp-server", "start"])).await;
    assert_eq!(
        (said.code, said.output.as_str()),
        (Some(0), ""),
        "{}",
        said.messages
    );
}

#[tokio::test]
async fn a_listing_is_possible_while_the_server_runs() {
    let site = shop();
    let mut server = site.stdio();
    testkit::Conversation::open(&mut server, "2025-06-18").await;
    let tools = rows(&run(site.command(&["tools", "list", "--format", "json"])).await);
    assert!(!tools.is_empty());
}

#[tokio::test]
async fn a_skill_whose_name_another_one_has_is_told_of() {
    let site = shop();
    site.skill("copies", "counting", "");
    let said = run(site.command(&["resources", "list"])).await;
    assert_eq!(said.code, Some(0));
    assert!(
        !said.output.contains("skill://stock/counting"),
        "{}",
        said.output
    );
    let told = "stock/counting/SKILL.md: not served, because the name `counting` is taken by";
    assert!(said.messages.contains(told), "{}", said.messages);
    assert!(
        said.messages.contains("rename or remove one of the two"),
        "{}",
        said.messages
    );
    let server = site.http().await;
    let answer = HttpClient::new(server.address())
        .exchange(&HttpRequest::get("/health"))
        .await;
    assert_eq!(answer.status, 200, "no reason to look elsewhere");
    let health = answer.json();
    let parts = health["components"].as_array().unwrap();
    let offer = parts.iter().find(|it| it["name"] == "offer").unwrap();
    assert_eq!(offer["ok"], false, "{health}");
    assert!(offer["detail"].as_str().unwrap().contains(told), "{offer}");
}

const PRICES: &str = r#"
from typing import List, TypedDict

from owlclaw import OwlClaw

app = OwlClaw("prices")
app.mount_skills("skills")

class Price(TypedDict):
    cents: int

@app.handler("price")
def price(item: str) -> Price:
    """Says what something costs."""
    return {"cents": 450}

@app.handler("items")
def items() -> List[str]:
    """Lists what there is."""
    return ["tea"]
"#;

#[tokio::test]
async fn result_types_are_published_where_the_revision_has_them() {
    let site = Site::with_app(PRICES);
    for version in REVISIONS {
        let mut server = site.stdio();
        server.open(version).await;
        let listed = server.request("tools/list", Value::Null).await;
        let tools = listed.result()["tools"].as_array().unwrap().clone();
        let of = |name: &str| tools.iter().find(|it| it["name"] == name).unwrap().clone();
        let price = &of("price")["outputSchema"];
        match version >= "2025-06-18" {
            true => assert_eq!(price["properties"]["cents"]["type"], "integer", "{version}"),
            false => assert!(price.is_null(), "{version} has no member for it"),
        }
        for tool in ["price", "items"] {
            let tool = of(tool);
            assert!(
                tool["name"].is_string() && tool["inputSchema"].is_object(),
                "{tool}"
            );
            assert!(!tool["description"].as_str().unwrap().is_empty(), "{tool}");
        }
    }
}
