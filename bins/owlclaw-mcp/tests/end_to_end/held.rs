//! Broken skills, misspelt rules and names that cannot be offered leave no tool without its rules.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpClient, HttpRequest, HttpServer, MODERN};
use tokio::time::{Instant, sleep};

use crate::support::{Said, Site, call, run};

const SKILL: &str = "skills/shop/echo/SKILL.md";

/// The rules that a skill states, which each call of `echo` meets as long as they are known.
const CRITICAL: &str = "owlclaw: {risk_level: critical}\n";

/// Contents of a skill's file that make it unfit for use, each with its description.
const UNFIT: [(&str, &str); 20] = [
    ("a typing error", "---\nname: echo\ndescription: [\n---\n"),
    ("no description", "---\nname: echo\n---\n"),
    ("no name", "---\ndescription: Echoes.\n---\n"),
    (
        "no tool of its name",
        "---\nname: ecko\ndescription: Echoes.\n---\n",
    ),
    ("not ended", "---\nname: echo\ndescription: Echoes.\n"),
    ("no front matter", "# Echo\n"),
    ("empty", ""),
    (
        "unmet prerequisites",
        "---\nname: echo\ndescription: Echoes.\nowlclaw: {prerequisites: {env: [NOBODY_SETS_IT]}}\n---\n",
    ),
    (
        "a limit that is no number",
        "---\nname: echo\ndescription: Echoes.\nowlclaw: {constraints: {max_daily_calls: ten}}\n---\n",
    ),
    (
        "a negative limit",
        "---\nname: echo\ndescription: Echoes.\nowlclaw: {constraints: {cooldown_seconds: -1}}\n---\n",
    ),
    (
        "a package that is not installed",
        "---\nname: echo\ndescription: Echoes.\nowlclaw: {prerequisites: {python_packages: [no_such_package]}}\n---\n",
    ),
    (
        "a setting that is not there",
        "---\nname: echo\ndescription: Echoes.\nprerequisites: {config: [no.such.key]}\n---\n",
    ),
    (
        "a misspelt kind of prerequisite",
        "---\nname: echo\ndescription: Echoes.\nprerequisites: {bin: [no-such-program]}\n---\n",
    ),
    (
        "misspelt prerequisites",
        "---\nname: echo\ndescription: Echoes.\nPrerequisite: {bins: [no-such-program]}\n---\n",
    ),
    (
        "a misspelt rule",
        "---\nname: echo\ndescription: Echoes.\nowlclaw: {requires_confirmaton: true}\n---\n",
    ),
    (
        "perhaps",
        "---\nname: echo\ndescription: Echoes.\nowlclaw: {requires_confirmation: maybe}\n---\n",
    ),
    (
        "a rule without a value",
        "---\nname: echo\ndescription: Echoes.\nowlclaw: {requires_confirmation: }\n---\n",
    ),
    (
        "rules without a value",
        "---\nname: echo\ndescription: Echoes.\nowlclaw:\n---\n",
    ),
    (
        "a rule in another place",
        "---\nname: echo\ndescription: Echoes.\nowlclaw: {max_daily_calls: 1}\n---\n",
    ),
    (
        "rules by another name",
        "---\nname: echo\ndescription: Echoes.\nowlclow: {risk_level: critical}\n---\n",
    ),
];

/// Reason why a call was refused, in whatever form; `ran` if it was not. However refusals are told.
fn reason(answer: &Value) -> &str {
    let error = &answer["error"]["data"];
    let meta = &answer["result"]["_meta"]["io.owlclaw/error"];
    let told = [error, meta, &meta["data"]].map(|it| it["reason"].as_str());
    let unknown = answer["error"]["message"].as_str();
    let unknown = unknown.filter(|it| it.starts_with("unknown tool"));
    told.into_iter()
        .flatten()
        .next()
        .or(unknown.map(|_| "unknown"))
        .unwrap_or(match answer["result"]["isError"] == true {
            true => "failed",
            false => "ran",
        })
}

async fn fate(client: &mut impl Conversation, tool: &str) -> String {
    let params = call(tool, json!({"text": "x"}));
    let answer = client.request("tools/call", params).await;
    reason(&answer.response).to_owned()
}

async fn becomes(client: &mut HttpClient, expected: &str, about: &str) {
    let end = Instant::now() + GENEROUS;
    loop {
        let fate = fate(client, "echo").await;
        if fate == expected {
            return;
        }
        // Whatever the file is on its way there, the call is never free.
        assert!(expected == "ran" || fate != "ran", "{about}");
        assert!(Instant::now() < end, "{about}: {fate}, never {expected}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits as [`becomes`] does, where the tool may run until then.
async fn turns(client: &mut HttpClient, expected: &str) {
    let end = Instant::now() + GENEROUS;
    while fate(client, "echo").await != expected {
        assert!(Instant::now() < end, "never {expected}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn offer_health(server: &HttpServer) -> Value {
    let health = server.client().exchange(&HttpRequest::get("/health")).await;
    assert_eq!(health.status, 200);
    let body = health.json();
    let parts = body["components"].as_array().unwrap();
    parts
        .iter()
        .find(|it| it["name"] == "offer")
        .unwrap()
        .clone()
}

#[tokio::test]
async fn a_skill_that_breaks_while_the_server_runs_keeps_its_rules() {
    let site = Site::new(json!({}));
    // A directory that becomes empty is another matter.
    site.write("skills/README.md", "skills");
    site.skill("shop", "echo", CRITICAL);
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    becomes(&mut client, "confirmation", "at first").await;
    assert_eq!(offer_health(&server).await["ok"], true);
    for (about, text) in UNFIT {
        site.write(SKILL, text);
        becomes(&mut client, "held", about).await;
        let health = offer_health(&server).await;
        assert_eq!(health["ok"], false, "{about}");
        let detail = health["detail"].as_str().unwrap();
        assert!(
            detail.contains("`echo`") && detail.contains(SKILL),
            "{detail}"
        );
        site.skill("shop", "echo", CRITICAL);
        becomes(&mut client, "confirmation", about).await;
    }
    // Those from before it broke stay, until they are forgotten on purpose.
    site.write(SKILL, UNFIT[UNFIT.len() - 1].1);
    becomes(&mut client, "held", UNFIT[UNFIT.len() - 1].0).await;
    fs::remove_dir_all(site.path("skills/shop")).unwrap();
    let end = Instant::now() + GENEROUS;
    loop {
        assert_ne!(fate(&mut client, "echo").await, "ran");
        let health = offer_health(&server).await;
        if health["detail"]
            .as_str()
            .is_some_and(|it| it.contains("no skill is about"))
        {
            break;
        }
        assert!(Instant::now() < end, "nobody is told: {health}");
        sleep(Duration::from_millis(20)).await;
    }
    becomes(&mut client, "confirmation", "gone").await;
    // Nor are they forgotten with the next change.
    site.skill("shop", "other", "");
    sleep(Duration::from_millis(500)).await;
    assert_eq!(fate(&mut client, "echo").await, "confirmation");
    server.process().signal("HUP").await;
    becomes(&mut client, "ran", "forgotten").await;
}

#[tokio::test]
async fn a_tool_whose_skill_is_broken_at_start_is_refused() {
    for (about, text) in UNFIT {
        let site = Site::new(json!({}));
        site.write(SKILL, text);
        let mut server = site.stdio();
        server.open("2025-06-18").await;
        assert_eq!(fate(&mut server, "echo").await, "held", "{about}");
    }
}

#[tokio::test]
async fn prerequisites_are_looked_for_where_the_application_runs() {
    let site = Site::new(json!({}));
    site.write("beside_the_application.py", "");
    site.write("owlclaw.yaml", "shop: {vat: 20, open: yes}\n");
    let wants = |config: &str| {
        format!(
            "owlclaw: {{prerequisites: {{python_packages: [beside_the_application], config: {config}}}}}\n"
        )
    };
    site.skill("shop", "echo", &wants("[shop.vat]"));
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    becomes(&mut client, "ran", "both are there").await;
    site.skill("shop", "echo", &wants("{shop.vat: 19}"));
    turns(&mut client, "held").await;
    let health = offer_health(&server).await;
    let detail = health["detail"].as_str().unwrap();
    assert!(detail.contains("`20` for `shop.vat`, not `19`"), "{detail}");
}

#[tokio::test]
async fn a_skill_that_is_deleted_between_two_starts_holds_its_tool_back() {
    let site = Site::new(json!({}));
    // A directory that becomes empty is another matter.
    site.write("skills/README.md", "skills");
    site.skill("shop", "echo", CRITICAL);
    for expected in ["confirmation", "held", "held"] {
        let mut server = site.stdio();
        server.open("2025-06-18").await;
        assert_eq!(fate(&mut server, "echo").await, expected);
        // Of a tool that never had one nothing is missed.
        assert_ne!(fate(&mut server, "append").await, "held");
        drop(server);
        let _ = fs::remove_dir_all(site.path("skills/shop"));
    }
    let doctor = run(site.command(&["doctor"])).await;
    let list = run(site.command(&["tools", "list"])).await;
    for said in [&doctor.output, &list.messages] {
        let said: String = said.split_whitespace().collect();
        for word in [SKILL, "isgone", "-skills.jsonl", "SIGHUP"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    assert!(list.output.contains("held back"), "{}", list.output);
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    assert_eq!(fate(&mut client, "echo").await, "held");
    assert_eq!(offer_health(&server).await["ok"], false);
    // Forgotten on purpose, for good.
    server.process().signal("HUP").await;
    becomes(&mut client, "ran", "forgotten").await;
    drop(server);
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    assert_eq!(fate(&mut server, "echo").await, "ran");
}

#[tokio::test]
async fn by_a_setting_calls_of_a_tool_with_a_broken_skill_are_confirmed() {
    let site = Site::new(json!({
        "tools": {"broken_skill": "confirm"},
        "governance": {"tools": {"echo": {"confirmation": "none"}}},
    }));
    site.write(SKILL, UNFIT[0].1);
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    assert_eq!(fate(&mut server, "echo").await, "confirmation");
}

#[tokio::test]
async fn tools_held_back_are_reported_with_file_and_line() {
    let site = Site::new(json!({}));
    site.write(SKILL, UNFIT[8].1);
    site.write(
        "skills/shop/append/SKILL.md",
        "---\nname: append\ndescription: A.\nowlclaw:\n  constraints:\n    max_daily_call: 3\n---\n",
    );
    let doctor = run(site.command(&["doctor"])).await;
    let list = run(site.command(&["tools", "list"])).await;
    let explain = [
        "governance",
        "explain",
        "--as",
        "ana",
        "--tool",
        "echo",
        "--format",
        "json",
    ];
    let explained = run(site.command(&explain)).await;
    for said in [&doctor.output, &list.messages, &explained.output] {
        // A narrow table breaks lines.
        let said: String = said.split_whitespace().collect();
        assert!(said.contains("echo/SKILL.md:4"), "{said}");
        assert!(said.contains("max_daily_calls"), "{said}");
    }
    assert!(list.output.contains("held back"), "{}", list.output);
    let unknown =
        "append/SKILL.md:6: `owlclaw.constraints.max_daily_call` should be `max_daily_calls`";
    assert!(doctor.output.contains(unknown), "{}", doctor.output);
    // By a setting, a key that limits nothing is a mistake.
    let strict = Site::new(json!({"governance": {"unmatched_rules": "error"}}));
    strict.write(
        "skills/shop/append/SKILL.md",
        site.read("skills/shop/append/SKILL.md"),
    );
    let Said { messages, code, .. } = run(strict.command(&["start"])).await;
    assert_eq!(code, Some(2), "{messages}");
    assert!(messages.contains("max_daily_call`"), "{messages}");
}

/// A pattern in another syntax than ours would forbid nothing, whatever comes to be on offer.
#[tokio::test]
async fn patterns_that_can_match_no_tool_are_errors() {
    let rows = [
        ("append?", "`*` is the only wildcard"),
        ("appen[de]", "`*` is the only wildcard"),
        ("^append$", "did you mean `append`?"),
        ("!echo", "did you mean `echo`?"),
        ("{append,echo}", "`*` is the only wildcard"),
        ("tool/append", "write `append`"),
    ];
    for (pattern, cure) in rows {
        let site = Site::new(json!({"governance": {"default": {"tools": {"deny": [pattern]}}}}));
        let place = format!("`governance.default.tools.deny[0]`: `{pattern}` can match no tool");
        // It is seen without looking at what is on offer, too.
        let said = run(site.command(&["config", "validate"])).await;
        assert_eq!(said.code, Some(2), "{pattern}: {}", said.messages);
        assert!(said.messages.contains(&place), "{}", said.messages);
        let said = run(site.command(&["start"])).await;
        assert_eq!(said.code, Some(2), "{pattern}: {}", said.messages);
        assert!(said.messages.contains(&place), "{}", said.messages);
        assert!(said.messages.contains(cure), "{}", said.messages);
    }
}

/// Rules with a misspelt name in each place where there can be one.
fn misspelt() -> Value {
    json!({"governance": {
        "default": {"tools": {"deny": ["appennd"], "hide": ["linger*r"]}, "resources": {"deny": ["skill://shop/eco"]}},
        "roles": {"teller": {"tools": {"allow": ["ecoh"]}}},
        "clients": {"ana": {"confirm": ["ehco"]}},
        "confirm": ["nois"],
        "conditions": {
            "large": {"tool": "lrage", "when": "args.megabytes > 1"},
            "guarded": {"tool": "large", "when": "has(args.megabites) && args.megabytes > 1"},
        },
        "tools": {"spned": {"risk": ["financial"]}},
    }, "redaction": {"pointers": {"looc-up": ["/what"], "append": ["/mark", "/mrak"]}}, "filters": {"big": {
        "tools": ["large"], "on": "arguments", "action": "refuse", "when": "has(args.megabtes)",
    }}})
}

const MISSPELT: [(&str, &str); 12] = [
    ("governance.default.tools.deny[0]", "append"),
    ("governance.default.tools.hide[0]", "linger"),
    ("governance.default.resources.deny[0]", "skill://shop/echo"),
    ("governance.roles.teller.tools.allow[0]", "echo"),
    ("governance.clients.ana.confirm[0]", "echo"),
    ("governance.confirm[0]", "noisy"),
    ("governance.conditions.large.tool", "large"),
    ("governance.conditions.guarded.when", "megabytes"),
    ("filters.big.when", "megabytes"),
    ("governance.tools.spned", "spend"),
    ("redaction.pointers.looc-up", "look-up"),
    ("redaction.pointers.append[1]", "/mark"),
];

#[tokio::test]
async fn a_rule_that_matches_nothing_is_reported_with_the_nearest_name() {
    let site = Site::new(misspelt());
    site.skill("shop", "echo", "");
    let validated = run(site.command(&["config", "validate", "--import"])).await;
    assert_eq!(validated.code, Some(0), "{}", validated.messages);
    let doctor = run(site.command(&["doctor"])).await;
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    server.process().wait_stderr("looc-up").await;
    let started = server.stderr();
    for (key, meant) in MISSPELT {
        for said in [&validated.messages, &doctor.output, &started] {
            assert!(said.contains(&format!("`{key}`")), "{key}: {said}");
            assert!(
                said.contains(&format!("did you mean `{meant}`?")),
                "{meant}: {said}"
            );
        }
    }
    // The file has one line.
    assert!(
        validated.messages.contains("mcp-server.yaml:1:"),
        "{}",
        validated.messages
    );
    // What is right is not among it.
    assert_eq!(
        started.matches("did you mean").count(),
        MISSPELT.len(),
        "{started}"
    );
}

#[tokio::test]
async fn by_a_setting_a_rule_that_matches_nothing_is_an_error() {
    let mut settings = misspelt();
    settings["governance"]["unmatched_rules"] = json!("error");
    let site = Site::new(settings);
    site.skill("shop", "echo", "");
    for words in [
        &["start"][..],
        &["config", "validate", "--import"],
        &["doctor"],
    ] {
        let said = run(site.command(words)).await;
        assert_ne!(said.code, Some(0), "{words:?}");
        let all = said.output + &said.messages;
        for (key, _) in MISSPELT {
            assert!(all.contains(key), "{words:?}: {key}: {all}");
        }
    }
    // While it runs, such rules are not taken over.
    let right = Site::new(json!({"governance": {"unmatched_rules": "error", "confirm": ["echo"]}}));
    let server = right.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    assert_eq!(fate(&mut client, "echo").await, "confirmation");
    let wrong = right
        .read("mcp-server.yaml")
        .replace("[\"echo\"]", "[\"ecko\"]");
    right.write("mcp-server.yaml", wrong);
    server.process().wait_stderr("did you mean `echo`?").await;
    assert_eq!(fate(&mut client, "echo").await, "confirmation");
}

/// Without that setting the tool is free, which whoever looks after the server has to hear of.
#[tokio::test]
async fn a_rule_that_is_misspelt_while_the_server_runs_degrades_its_health_until_it_is_mended() {
    let site = Site::new(json!({"governance": {"confirm": ["echo"]}}));
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    assert_eq!(fate(&mut client, "echo").await, "confirmation");
    assert_eq!(offer_health(&server).await["ok"], true);
    let right = site.read("mcp-server.yaml");
    site.write("mcp-server.yaml", right.replace("[\"echo\"]", "[\"ecko\"]"));
    turns(&mut client, "ran").await;
    let told = health_of_offer_becomes(&server, false).await;
    for said in ["`governance.confirm[0]`", "did you mean `echo`?"] {
        assert!(told.contains(said), "{told}");
    }
    site.write("mcp-server.yaml", right);
    becomes_governed(&mut client).await;
    health_of_offer_becomes(&server, true).await;
}

async fn becomes_governed(client: &mut HttpClient) {
    turns(client, "confirmation").await;
}

/// Waits until `/health` says so of the offer, and returns what it says.
async fn health_of_offer_becomes(server: &HttpServer, ok: bool) -> String {
    let end = Instant::now() + GENEROUS;
    loop {
        let health = offer_health(server).await;
        if health["ok"] == ok {
            return health["detail"].as_str().unwrap_or_default().to_owned();
        }
        assert!(Instant::now() < end, "never {ok}: {health}");
        sleep(Duration::from_millis(20)).await;
    }
}

const FAMILIES: &str = "
import os
from owlclaw_worker import FastMCP
app = FastMCP('families')

@app.tool
def echo(text: str) -> str:
    return text

@app.resource('data://{name}')
def data(name: str) -> str:
    return 'about ' + name

@app.prompt
def greet() -> str:
    return 'hello'
";

/// A rule may be about some addresses of a family, which no list has one by one.
#[tokio::test]
async fn a_pattern_matches_the_addresses_that_a_template_can_have() {
    let rules = |resource: &str, prompt: &str| {
        json!({"governance": {
            "unmatched_rules": "error",
            "default": {
                "resources": {"deny": [resource]},
                "prompts": {"deny": [prompt]},
            },
        }})
    };
    let site = Site::new(rules("data://secret*", "gr*t"));
    site.write("app.py", FAMILIES);
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    for (uri, is_refused) in [("data://open", false), ("data://secret-1", true)] {
        let read = server
            .request("resources/read", json!({ "uri": uri }))
            .await;
        let refused = read.response["error"]["data"]["reason"] == "permission";
        assert_eq!(refused, is_refused, "{uri}: {}", read.response);
    }
    for (resource, prompt, key) in [
        ("date://secret*", "greet", "resources.deny"),
        ("data://secret/*", "greet", "resources.deny"),
        ("data://secret*", "grete", "prompts.deny"),
    ] {
        let site = Site::new(rules(resource, prompt));
        site.write("app.py", FAMILIES);
        let said = run(site.command(&["start"])).await;
        assert_eq!(said.code, Some(2), "{resource} {prompt}: {}", said.messages);
        assert!(said.messages.contains(key), "{}", said.messages);
    }
}

const PETS: &str = "
openapi: 3.0.3
servers: [{url: 'http://127.0.0.1:9/v1'}]
paths:
  /pets: {get: {operationId: listPets, tags: [pets]}}
  /admin: {delete: {operationId: wipeAll, tags: [admin]}}
";

#[tokio::test]
async fn filters_that_match_nothing_are_reported() {
    let settings = |unmatched: &str| {
        json!({
            "services": {"allow_private": ["127.0.0.1"], "openapi": {"pets": {
                "document": "pets.yaml", "include": {"methods": ["GET", "DELETE"]},
                "exclude": {"operations": ["wipeAl"], "paths": ["/admn*"], "tags": ["admin", "*"]},
            }}},
            "governance": {"unmatched_rules": unmatched},
        })
    };
    let site = |unmatched: &str| {
        let site = Site::new(settings(unmatched));
        site.write("pets.yaml", PETS);
        site.write(
            "owlclaw.yaml",
            "skills: {entries: {eccho: {enabled: false}, append: {enabled: false}}}\n",
        );
        site
    };
    let warned = site("warn");
    let mut server = warned.stdio();
    server.open("2025-06-18").await;
    server.process().wait_stderr("eccho").await;
    let all = [
        run(warned.command(&["config", "validate", "--import"])).await,
        run(warned.command(&["doctor"])).await,
    ];
    let mut all: Vec<String> = all.map(|it| it.output + &it.messages).into();
    all.push(server.stderr());
    let expected = [
        ("services.openapi.pets.exclude.operations[0]", "wipeAll"),
        ("services.openapi.pets.exclude.paths[0]", "/admin"),
        ("skills.entries.eccho", "echo"),
    ];
    for said in &all {
        for (key, meant) in expected {
            assert!(said.contains(key), "{key}: {said}");
            assert!(said.contains(&format!("did you mean `{meant}`?")), "{said}");
        }
        for key in ["exclude.tags", "include.methods", "skills.entries.append"] {
            assert!(
                !said.contains(&format!("{key}[")) && !said.contains(&format!("{key}`")),
                "{said}"
            );
        }
    }
    let strict = site("error");
    for words in [
        &["start"][..],
        &["config", "validate", "--import"],
        &["doctor"],
    ] {
        let said = run(strict.command(words)).await;
        assert_ne!(said.code, Some(0), "{words:?}");
        let all = said.output + &said.messages;
        assert!(expected.iter().all(|(key, _)| all.contains(key)), "{all}");
    }
}

#[tokio::test]
async fn a_key_that_limits_nothing_holds_its_tool_back_by_a_setting() {
    let site = Site::new(json!({"governance": {"unmatched_rules": "error"}}));
    site.skill("shop", "echo", "");
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    assert_eq!(fate(&mut client, "echo").await, "ran");
    let unread = "owlclaw: {constraints: {at_most_each_week: 1}}\n";
    site.skill("shop", "echo", unread);
    turns(&mut client, "held").await;
    let health = offer_health(&server).await;
    assert!(
        health["detail"]
            .as_str()
            .unwrap()
            .contains("max_daily_calls"),
        "{health}"
    );
    // The setting can be changed while it runs, too.
    let config = site.read("mcp-server.yaml");
    site.write("mcp-server.yaml", config.replace("\"error\"", "\"warn\""));
    turns(&mut client, "ran").await;
    site.write("mcp-server.yaml", config);
    turns(&mut client, "held").await;
}

const RULED: &str = r#"
from owlclaw import OwlClaw

app = OwlClaw("shop")
app.mount_skills("skills")


def tool(name, **attributes):
    async def handler(text: str):
        return text
    for key, value in attributes.items():
        setattr(handler, key, value)
    app.handler(name)(handler)


tool("plain")
tool("risky", risk_level="critical")
tool("asked", requires_confirmation=True)
tool("once", constraints={"max_daily_calls": 1, "estimated_cost": 0.25})
tool("slowly", constraints={"cooldown_seconds": 3600})
tool("looser", risk_level="low", requires_confirmation=False, constraints={"max_daily_calls": 9})
tool("unclear", risk_level="hihg")
tool("unknown", constraints={"max_weekly_calls": 1})
tool("dynamic", requires_confirmation=lambda arguments: False)
"#;

#[tokio::test]
async fn rules_of_handlers_hold_beside_those_of_skills() {
    let site = Site::with_app(RULED);
    site.skill(
        "shop",
        "looser",
        "owlclaw: {risk_level: medium, constraints: {max_daily_calls: 1}}\n",
    );
    site.skill(
        "shop",
        "once",
        "owlclaw: {constraints: {max_daily_calls: 9}}\n",
    );
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    assert_eq!(fate(&mut server, "plain").await, "ran");
    for tool in ["risky", "asked"] {
        assert_eq!(fate(&mut server, tool).await, "confirmation", "{tool}");
    }
    for tool in ["once", "slowly", "looser"] {
        assert_eq!(fate(&mut server, tool).await, "ran", "{tool}");
        assert_ne!(fate(&mut server, tool).await, "ran", "{tool}");
    }
    for tool in ["unclear", "unknown", "dynamic"] {
        assert_eq!(fate(&mut server, tool).await, "unknown", "{tool}");
    }
    drop(server);
    let list = run(site.command(&["tools", "list", "--format", "json"])).await;
    let rows: Vec<Value> = serde_json::from_str(&list.output).unwrap();
    let of = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(of("risky")["risk"], "critical");
    assert_eq!(of("looser")["risk"], "medium");
    assert_eq!(of("once")["estimated_cost"], "0.25");
    for (tool, why) in [
        ("unclear", "`risk_level`"),
        ("unknown", "`constraints.max_weekly_calls`"),
        ("dynamic", "`requires_confirmation`"),
    ] {
        let told = format!("the tool `{tool}` (app.py:");
        assert!(
            list.messages.contains(&told) && list.messages.contains(why),
            "{}",
            list.messages
        );
    }
}

#[tokio::test]
async fn limits_of_owlclaws_own_agent_are_errors_at_start() {
    let configured = |what: &str| {
        Site::with_app(&RULED.replace(
            "app.mount_skills",
            &format!("app.configure(governance={what})\napp.mount_skills"),
        ))
    };
    for (what, own) in [
        (
            "{'visibility': {'budget': {'budget_limits': {'me': '10'}}}}",
            "`governance.clients`",
        ),
        (
            "{'monthly_budget': 5}",
            "`governance.default_quota.monthly_budget`",
        ),
        (
            "{'rate_limit': {'max_calls_per_minute': 3}}",
            "`governance.default_quota.max_calls_per_minute`",
        ),
        (
            "{'visibility': {'circuit_breaker': {'failure_threshold': 2}}}",
            "`governance.breaker`",
        ),
        (
            "{'visibility': {'risk_confirmation': {'enabled': True}}}",
            "`governance.confirm`",
        ),
        ("{'something': {'new': 1}}", "`governance`"),
    ] {
        let site = configured(what);
        // What is said here takes its place, and these tests always say how often tools may be called.
        let is_set = own.ends_with("per_minute`") || own == "`governance`";
        for words in [&["start"][..], &["doctor"]] {
            let said = match (is_set, words) {
                (true, ["start"]) => {
                    let mut server = site.stdio();
                    server.open("2025-06-18").await;
                    server.process().wait_stderr("does not hold here").await;
                    server.stderr()
                }
                _ => {
                    let said = run(site.command(words)).await;
                    assert_eq!(
                        said.code == Some(0),
                        is_set,
                        "{what} {words:?}: {}",
                        said.output
                    );
                    said.output + &said.messages
                }
            };
            assert!(
                said.contains("app.configure(governance=...)") && said.contains(own),
                "{said}"
            );
        }
    }
    // Where it keeps its records, and what it is told of, limits nothing.
    let site = configured(
        "{'use_inmemory_ledger': True, 'visibility': {'budget': {'high_cost_threshold': '0.1'}}}",
    );
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    assert_eq!(fate(&mut server, "plain").await, "ran");
    assert!(
        !server.stderr().contains("app.configure"),
        "{}",
        server.stderr()
    );
}

#[tokio::test]
async fn the_skills_directory_of_the_application_is_the_default() {
    let site = Site::new(json!({"resources": null}));
    site.skill("shop", "echo", CRITICAL);
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    assert_eq!(fate(&mut server, "echo").await, "confirmation");
    drop(server);
    // Two directories are a mistake, and so is one that is not there.
    for (other, expected) in [
        ("others", "the application mounts "),
        ("nowhere", "there is no directory "),
    ] {
        let site = Site::new(json!({"resources": {"skills_dir": other}}));
        fs::create_dir(site.path("others")).unwrap();
        for words in [&["start"][..], &["tools", "list"], &["doctor"]] {
            let said = run(site.command(words)).await;
            assert_eq!(said.code, Some(1), "{words:?}");
            let all = said.output + &said.messages;
            assert!(
                all.contains(expected) && all.contains(other),
                "{words:?}: {all}"
            );
        }
    }
}

#[tokio::test]
async fn a_directory_of_skills_that_is_lost_frees_no_tool() {
    // As it is named by the application, and not there when the server starts.
    for kind in ["missing", "a file", "a dangling link"] {
        let site = Site::new(json!({"resources": null}));
        fs::remove_dir(site.path("skills")).unwrap();
        match kind {
            "a file" => site.write("skills", "x"),
            "a dangling link" => std::os::unix::fs::symlink("away", site.path("skills")).unwrap(),
            _ => {}
        }
        for words in [&["start"][..], &["tools", "list"], &["doctor"]] {
            let said = run(site.command(words)).await;
            assert_eq!(said.code, Some(1), "{kind}: {words:?}");
            let all: String = (said.output + &said.messages).split_whitespace().collect();
            assert!(
                all.contains("app.mount_skills:"),
                "{kind}: {words:?}: {all}"
            );
        }
    }
    // While it runs: what is known stays, also on SIGHUP, and what is not known is held back.
    let site = Site::new(json!({"resources": null}));
    site.skill("shop", "echo", CRITICAL);
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    assert_eq!(fate(&mut client, "append").await, "failed");
    fs::rename(site.path("skills"), site.path("away")).unwrap();
    for is_file in [false, true] {
        if is_file {
            site.write("skills", "x");
        }
        server.process().signal("HUP").await;
        let end = Instant::now() + GENEROUS;
        while fate(&mut client, "append").await != "held" {
            assert_eq!(fate(&mut client, "echo").await, "confirmation");
            assert!(Instant::now() < end);
            sleep(Duration::from_millis(20)).await;
        }
        server.process().wait_stderr("is forgotten").await;
        sleep(Duration::from_millis(500)).await;
        assert_eq!(fate(&mut client, "echo").await, "confirmation");
        let health = offer_health(&server).await;
        assert_eq!(health["ok"], false);
        let detail = health["detail"].as_str().unwrap();
        assert!(
            detail.contains("the skills directory cannot be opened"),
            "{detail}"
        );
    }
    fs::remove_file(site.path("skills")).unwrap();
    fs::rename(site.path("away"), site.path("skills")).unwrap();
    let end = Instant::now() + GENEROUS;
    while offer_health(&server).await["ok"] == false || fate(&mut client, "append").await == "held"
    {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(fate(&mut client, "append").await, "failed");
    assert_eq!(fate(&mut client, "echo").await, "confirmation");
}

#[tokio::test]
async fn a_skill_with_rules_for_no_tool_is_told_and_holds_the_tool_of_nearly_its_name() {
    let site = Site::new(json!({}));
    site.skill("shop", "Echo", CRITICAL);
    site.skill("shop", "look_up", CRITICAL);
    site.skill("shop", "apend", CRITICAL);
    site.skill("shop", "prose", "");
    let validated = run(site.command(&["config", "validate", "--import"])).await;
    assert_eq!(validated.code, Some(0), "{}", validated.messages);
    let doctor = run(site.command(&["doctor"])).await;
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    for (tool, expected) in [("echo", "held"), ("look-up", "held"), ("append", "failed")] {
        assert_eq!(fate(&mut client, tool).await, expected, "{tool}");
    }
    let health = offer_health(&server).await["detail"].to_string();
    let started = server.process().stderr();
    for said in [&validated.messages, &doctor.output, &health, &started] {
        let said: String = said.split_whitespace().collect();
        for (name, tool) in [
            ("Echo", "echo"),
            ("look_up", "look-up"),
            ("apend", "append"),
        ] {
            assert!(
                said.contains(&format!("rulesfor`{name}`")),
                "{name}: {said}"
            );
            assert!(
                said.contains(&format!("didyoumean`{tool}`?")),
                "{tool}: {said}"
            );
        }
        assert!(!said.contains("`prose`"), "{said}");
    }
    drop(server);
    let site = Site::new(json!({"governance": {"unmatched_rules": "error"}}));
    site.skill("shop", "apend", CRITICAL);
    for words in [
        &["start"][..],
        &["config", "validate", "--import"],
        &["doctor"],
    ] {
        let said = run(site.command(words)).await;
        assert_ne!(said.code, Some(0), "{words:?}");
        let all: String = (said.output + &said.messages).split_whitespace().collect();
        assert!(all.contains("didyoumean`append`?"), "{words:?}: {all}");
    }
}

/// Two handlers, one of them by this name.
fn renamed(name: &str) -> String {
    format!(
        r#"
from owlclaw import OwlClaw

app = OwlClaw("shop")
app.mount_skills("skills")


@app.handler("{name}")
def refund(text: str):
    return text


@app.handler("echo")
def echo(text: str):
    return text
"#
    )
}

#[tokio::test]
async fn by_a_setting_a_handler_that_escapes_its_rule_is_held_back() {
    let site =
        Site::new(json!({"governance": {"unmatched_rules": "error", "confirm": ["refund"]}}));
    site.write("app.py", renamed("refund"));
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    assert_eq!(fate(&mut client, "refund").await, "confirmation");
    site.write("app.py", renamed("refunds"));
    let end = Instant::now() + GENEROUS;
    while fate(&mut client, "refunds").await != "held" {
        assert_ne!(fate(&mut client, "refunds").await, "ran");
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(fate(&mut client, "echo").await, "ran");
    server
        .process()
        .wait_stderr("tool/refunds is held back")
        .await;
    let health = offer_health(&server).await;
    let detail = health["detail"].as_str().unwrap();
    assert_eq!(health["ok"], false);
    assert!(
        detail.contains("tool/refunds is held back") && detail.contains("governance.confirm[0]"),
        "{detail}"
    );
    // Other changes do not free it.
    site.skill("shop", "echo", "");
    sleep(Duration::from_millis(500)).await;
    assert_eq!(fate(&mut client, "refunds").await, "held");
    // The rule with the new name does.
    let rules = site
        .read("mcp-server.yaml")
        .replace("[\"refund\"]", "[\"refunds\"]");
    site.write("mcp-server.yaml", rules);
    let end = Instant::now() + GENEROUS;
    while fate(&mut client, "refunds").await != "confirmation" {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(offer_health(&server).await["ok"], true);
}

#[tokio::test]
async fn by_a_setting_a_handler_whose_parameter_escapes_a_condition_is_held_back() {
    let condition =
        json!({"tool": "refund", "when": "has(args.text) && args.text == 'y'", "effect": "deny"});
    let site = Site::new(
        json!({"governance": {"unmatched_rules": "error", "conditions": {"c": condition}}}),
    );
    site.write("app.py", renamed("refund"));
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    assert_eq!(fate(&mut client, "refund").await, "ran");
    let of_refund = renamed("refund").replacen("text", "note", 2);
    site.write("app.py", of_refund);
    let end = Instant::now() + GENEROUS;
    while fate(&mut client, "refund").await != "held" {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(fate(&mut client, "echo").await, "ran");
    server
        .process()
        .wait_stderr("tool/refund is held back: its arguments have changed")
        .await;
    assert_eq!(offer_health(&server).await["ok"], false);
    // The parameter's old name frees it, under the condition.
    site.write("app.py", renamed("refund"));
    let end = Instant::now() + GENEROUS;
    while fate(&mut client, "refund").await != "ran" {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(offer_health(&server).await["ok"], true);
}

const CHINESE: &str = r#"
from owlclaw import OwlClaw

app = OwlClaw("shop")
app.mount_skills("skills")


@app.handler("退款")
def refund(text: str):
    return text


@app.handler("unusable")
def unusable():
    return 1
"#;

#[tokio::test]
async fn a_tool_with_a_name_that_clients_refuse_is_offered_and_governed_under_a_derived_one() {
    let site = Site::with_app(CHINESE);
    site.write(
        "skills/shop/refund/SKILL.md",
        "---\nname: 退款\ndescription: Pays back.\nowlclaw: {risk_level: critical}\n---\n",
    );
    site.write(
        "skills/shop/unusable/SKILL.md",
        "---\nname: unusable\ndescription: U.\nmetadata:\n  tools_schema:\n    unusable:\n      \
         parameters: {type: object, properties: {x: {$ref: 'https://example.com/x'}}}\n---\n",
    );
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    let list = server.request("tools/list", Value::Null).await;
    let tools = list.result()["tools"].as_array().unwrap().clone();
    let [tool] = tools.as_slice() else {
        panic!("{tools:?}")
    };
    let name = tool["name"].as_str().unwrap();
    assert!(name.starts_with("tui-kuan-"), "{name}");
    assert_eq!(tool["title"], "退款");
    assert!(tool["description"].as_str().unwrap().contains("Pays back."));
    assert_eq!(fate(&mut server, name).await, "confirmation");
    let log = server.stderr();
    let told = log.lines().find(|it| it.contains("under another name"));
    assert!(
        told.is_some_and(|it| it.contains("退款") && it.contains(name)),
        "{log}"
    );
    drop(server);
    for words in [&["tools", "list"][..], &["doctor"]] {
        let said = run(site.command(words)).await;
        let all = said.output + &said.messages;
        assert!(all.contains("the tool `unusable` (app.py:"), "{all}");
        assert!(all.contains("cannot be offered: "), "{all}");
    }
    // A rule that names it as its author does would forbid nothing.
    let config = site.read("mcp-server.yaml");
    let config: Value = serde_json::from_str(&config).unwrap();
    let mut config = config.clone();
    config["mcp_server"]["governance"]["default"] = json!({"tools": {"deny": ["退款"]}});
    site.write("mcp-server.yaml", config.to_string());
    let said = run(site.command(&["start"])).await;
    assert_eq!(said.code, Some(2), "{}", said.messages);
    assert!(
        said.messages.contains(&format!("is offered as `{name}`")),
        "{}",
        said.messages
    );
}

#[tokio::test]
async fn governance_explain_agrees_with_the_server() {
    let site = Site::new(json!({"governance": {"conditions": {
        "long": {"tool": "echo", "when": "size(args.text) > 3", "effect": "deny"},
    }}}));
    let explain = async |tool: &str, args: Value| {
        let args = args.to_string();
        let words = [
            "governance",
            "explain",
            "--as",
            "ana",
            "--tool",
            tool,
            "--args",
            &args,
            "--format",
            "json",
        ];
        let said = run(site.command(&words)).await;
        serde_json::from_str::<Value>(&said.output)
            .unwrap_or_else(|error| panic!("{error}: {}{}", said.output, said.messages))
    };
    let rows = [
        ("echo", json!({"text": "x"}), "allowed", Value::Null),
        (
            "echo",
            json!({"text": "xxxx"}),
            "refused",
            json!("permission"),
        ),
        ("echo", json!({"text": 1}), "refused", json!("permission")),
        ("append", json!({"mark": 1}), "refused", json!("arguments")),
        ("append", json!({}), "refused", json!("arguments")),
        ("eco", json!({}), "unknown", json!("unknown")),
    ];
    for (tool, args, verdict, reason) in rows {
        let explained = explain(tool, args.clone()).await;
        assert_eq!(explained["verdict"], verdict, "{tool} {args}: {explained}");
        assert_eq!(explained["reason"], reason, "{tool} {args}: {explained}");
    }
    assert_eq!(explain("eco", json!({})).await["meant"], "echo");
}

#[tokio::test]
async fn switches_of_owlclaw_yaml_are_honoured_and_its_budgets_reported() {
    let site = Site::new(json!({}));
    site.write(
        "owlclaw.yaml",
        "skills:\n  entries:\n    echo: false\n    append: {enabled: no}\n    linger: {migration_weight: 0}\n    \
         spend: {migration_weight: 40}\n    fail: {enabled: true, migration_weight: 100}\n",
    );
    site.skill("shop", "nan", "owlclaw: {migration_weight: 0}\n");
    site.skill("shop", "die", "owlclaw: {migration_weight: 250}\n");
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let rows = [
        ("echo", "unknown"),
        ("append", "unknown"),
        ("linger", "held"),
        ("nan", "held"),
        ("die", "held"),
        ("spend", "confirmation"),
        ("fail", "failed"),
    ];
    for (tool, expected) in rows {
        let arguments = match tool {
            "fail" => json!({"why": "so"}),
            "spend" => json!({"usd": "1"}),
            _ => json!({"text": "x"}),
        };
        let answer = server.request("tools/call", call(tool, arguments)).await;
        assert_eq!(reason(&answer.response), expected, "{tool}: {answer:?}");
    }
    drop(server);
    let list = run(site.command(&["tools", "list"])).await;
    assert!(
        list.messages.contains("skills.entries.echo"),
        "{}",
        list.messages
    );
    // Limits that nothing would keep.
    let budget = "governance:\n  monthly_budget: 100\n  rate_limit: {max_calls_per_minute: 7}\n";
    site.write("owlclaw.yaml", budget);
    for words in [&["start"][..], &["config", "validate"], &["doctor"]] {
        let said = run(site.command(words)).await;
        assert_ne!(said.code, Some(0), "{words:?}");
        let all = said.output + &said.messages;
        assert!(
            all.contains("owlclaw.yaml:2:")
                && all.contains("governance.default_quota.monthly_budget"),
            "{all}"
        );
        assert!(
            !all.contains("`governance.rate_limit.max_calls_per_minute`"),
            "{all}"
        );
    }
    for wrong in [
        "skills: {entries: {echo: perhaps}}",
        "skills: {entries: {echo: {enabled: 3}}}",
        "skills: {entries: {echo: {enabeld: false}}}",
        "skills: {entries: {echo: {Enabled: false}}}",
        "skills: {entries: {echo: {disabled: true}}}",
        "skills: {entries: [{name: echo, enabled: false}]}",
        "governance: {budget: {monthly: 1}}",
        "governance: {visibility: {deny: [echo]}}",
        "skills: [",
    ] {
        site.write("owlclaw.yaml", wrong);
        let said = run(site.command(&["start"])).await;
        assert_eq!(said.code, Some(2), "{wrong}: {}", said.messages);
    }
    // Under a name that is not read, and behind a link that leads nowhere.
    let path = site.path("owlclaw.yaml");
    std::fs::remove_file(&path).unwrap();
    site.write("owlclaw.yml", "skills: {entries: {echo: false}}");
    assert_eq!(run(site.command(&["start"])).await.code, Some(2));
    std::fs::remove_file(site.path("owlclaw.yml")).unwrap();
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    assert_eq!(run(site.command(&["start"])).await.code, Some(2));
}
