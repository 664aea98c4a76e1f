use std::time::Duration;

use serde_json::json;

use super::*;

const ENGLISH: &str = r#"---
name: reorder-decision
description: >
  Decides whether an item is ordered again,
  and how much of it.
title: Reorder decision
license: MIT
industry: retail
tags: [inventory, procurement]
metadata:
  author: supply-team
  version: 1.0
  tags: [retail, inventory]
  tools_schema:
    reorder-decision:
      description: Decides on one item.
      parameters:
        item_id: string
        on_hand: integer
owlclaw:
  spec_version: "1.0"
  task_type: decision
  risk_level: medium
  trigger: cron("0 9 * * 1-5")
  focus: [stock, suppliers]
  constraints:
    max_daily_calls: 20
    cooldown_seconds: 300
    estimated_cost: 0.10
    requires_confirmation: true
  prerequisites:
    env: [ERP_TOKEN]
    python_packages: [numpy]
---
# Reorder decision
"#;

const CHINESE: &str = "\u{feff}---\r\n\
name: entry-monitor\r\n\
description: 监控入场机会，并在满足条件时提醒\r\n\
tags:\r\n  - 交易\r\n  - 监控\r\n\
owlclaw:\r\n\
\x20 task_type: trading_decision\r\n\
\x20 trigger: cron(\"*/60 * * * * *\")\r\n\
\x20 focus: 入场\r\n\
\x20 risk_level: high\r\n\
\x20 constraints: {trading_hours_only: yes, max_daily_calls: 50}\r\n\
---\r\n# 入场监控\r\n";

fn parse(text: &str) -> (Frontmatter, Vec<String>) {
    let (frontmatter, complaints) = Frontmatter::parse(text).unwrap();
    let complaints = complaints.iter().map(ToString::to_string).collect();
    (frontmatter, complaints)
}

fn with(fields: &str) -> String {
    format!("---\nname: a\ndescription: b\n{fields}\n---\n")
}

#[test]
fn a_full_front_matter_is_read() {
    let (read, complaints) = parse(ENGLISH);
    assert_eq!(complaints, [""; 0]);
    assert_eq!(read.name, "reorder-decision");
    assert_eq!(
        read.description,
        "Decides whether an item is ordered again, and how much of it."
    );
    assert_eq!(read.title.as_deref(), Some("Reorder decision"));
    assert_eq!(read.author.as_deref(), Some("supply-team"));
    assert_eq!(read.version.as_deref(), Some("1.0"));
    assert_eq!(read.license.as_deref(), Some("MIT"));
    assert_eq!(read.industry.as_deref(), Some("retail"));
    assert_eq!(read.tags, ["retail", "inventory", "procurement"]);
    assert_eq!(
        read.tools["reorder-decision"].parameters,
        Some(json!({
            "type": "object",
            "properties": {"item_id": {"type": "string"}, "on_hand": {"type": "integer"}},
            "required": ["item_id", "on_hand"],
        }))
    );
    let block = &read.owlclaw;
    assert_eq!(block.task_type.as_deref(), Some("decision"));
    assert_eq!(block.trigger.as_deref(), Some(r#"cron("0 9 * * 1-5")"#));
    assert_eq!(block.focus, ["stock", "suppliers"]);
    assert_eq!(block.risk_level, RiskLevel::Medium);
    assert!(block.requires_confirmation);
    let constraints = Constraints {
        trading_hours_only: false,
        max_daily_calls: Some(20),
        cooldown: Some(Duration::from_secs(300)),
        estimated_cost: Some("0.1".to_owned()),
    };
    assert_eq!(block.constraints, constraints);
    assert_eq!(block.prerequisites.env, ["ERP_TOKEN"]);
    assert_eq!(block.prerequisites.python_packages, ["numpy"]);
    assert_eq!(read.raw["owlclaw"]["constraints"]["max_daily_calls"], 20);
    assert_eq!(read.raw["metadata"]["version"], json!(1.0));
}

#[test]
fn a_chinese_file_with_windows_line_ends_is_read() {
    let (read, complaints) = parse(CHINESE);
    assert_eq!(complaints, [""; 0]);
    assert_eq!(read.description, "监控入场机会，并在满足条件时提醒");
    assert_eq!(read.tags, ["交易", "监控"]);
    assert_eq!(read.owlclaw.focus, ["入场"]);
    assert!(read.owlclaw.constraints.trading_hours_only);
    // High risk, and nothing said about it.
    assert!(read.owlclaw.requires_confirmation);
}

#[test]
fn without_an_owlclaw_block_nothing_is_guessed() {
    let (read, complaints) = parse("---\nname: a\ndescription: \"b: c\"\n---\n");
    assert_eq!(complaints, [""; 0]);
    assert_eq!(read.owlclaw, OwlclawBlock::default());
}

#[test]
fn bad_front_matter_says_where_and_why() {
    let rows = [
        ("# A skill\n", Some((1, None)), "`---` line"),
        ("---\nname: a\n", None, "not closed"),
        ("---\n- a\n---\n", None, "not a map"),
        ("---\n\n---\n", None, "not a map"),
        ("---\ndescription: b\n---\n", None, "`name` is missing"),
        ("---\nname: a\n---\n", None, "`description` is missing"),
        (
            "---\nname: a\ndescription:\n---\n",
            Some((3, None)),
            "empty",
        ),
        (
            "---\nname: '  '\ndescription: b\n---\n",
            Some((2, None)),
            "empty",
        ),
        (
            "---\nname: 7\ndescription: b\n---\n",
            Some((2, None)),
            "not a text",
        ),
        (
            "---\nname: \"a\\n\"\ndescription: [b]\n---\n",
            Some((3, None)),
            "not a text",
        ),
        (
            "---\nname: \"a\\x07b\"\ndescription: b\n---\n",
            Some((2, None)),
            "control",
        ),
        (
            "---\nname: a\ndescription: b: c\n---\n",
            Some((3, Some(15))),
            "cannot be read",
        ),
        (
            "---\r\nname: a\r\ntags: [x\r\n---\r\n",
            Some((3, Some(7))),
            "cannot be read",
        ),
        (
            "---\nname: a\nname: b\ndescription: c\n---\n",
            Some((3, Some(1))),
            "name",
        ),
    ];
    for (text, position, message) in rows {
        let error = Frontmatter::parse(text).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(message), "{text:?}: {said}");
        assert_eq!(error.position(), position, "{text:?}: {said}");
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn confirmation_is_asked_for_in_either_place() {
    let rows = [
        ("{}", false),
        ("{risk_level: low}", false),
        ("{risk_level: HIGH}", true),
        ("{risk_level: critical}", true),
        (
            "{risk_level: critical, requires_confirmation: false}",
            false,
        ),
        ("{requires_confirmation: on}", true),
        ("{constraints: {requires_confirmation: true}}", true),
        (
            "{requires_confirmation: false, constraints: {requires_confirmation: true}}",
            true,
        ),
        (
            "{requires_confirmation: true, constraints: {requires_confirmation: false}}",
            true,
        ),
        (
            "{risk_level: high, constraints: {requires_confirmation: no}}",
            false,
        ),
    ];
    for (block, expected) in rows {
        let (read, complaints) = parse(&with(&format!("owlclaw: {block}")));
        assert_eq!(read.owlclaw.requires_confirmation, expected, "{block}");
        assert_eq!(complaints, [""; 0], "{block}");
    }
}

#[test]
fn what_governs_and_cannot_be_read_is_taken_as_the_strictest() {
    for block in [
        "{risk_level: hihg}",
        "{risk_level: 3, requires_confirmation: false}",
        "{requires_confirmation: perhaps}",
        "{requires_confirmation: perhaps, constraints: {requires_confirmation: false}}",
        "{constraints: none}",
        "{constraints: {max_daily_calls: lots}}",
        "{constraints: {max_daily_calls: -1}}",
        "{constraints: {cooldown_seconds: 1.5}}",
        "{constraints: {estimated_cost: -0.1}, requires_confirmation: false}",
        "{constraints: {estimated_cost: .inf}}",
        "{constraints: {trading_hours_only: 1}}",
        "[risk_level, low]",
        // Without a value.
        "",
        "{requires_confirmation: }",
        "{risk_level: null}",
        "{constraints: ~}",
        "{constraints: {max_daily_calls: }}",
        "{constraints: {requires_confirmation: }, requires_confirmation: false}",
        "{migration_weight: }",
        "{read_only: }",
        // In another place, or in the words of the configuration.
        "{max_daily_calls: 1}",
        "{requires_confirmation: false, cooldown_seconds: 1}",
        "{risk: [financial]}",
        "{max_calls_per_minute: 1}",
        "{constraints: {risk_level: high}, requires_confirmation: false}",
        "{constraints: {max_calls_per_day: 1}}",
    ] {
        let (read, complaints) = parse(&with(&format!("owlclaw: {block}")));
        assert!(read.owlclaw.requires_confirmation, "{block}");
        assert_eq!(complaints.len(), 1, "{block}: {complaints:?}");
    }
    let (read, _) = parse(&with("owlclaw: {constraints: {trading_hours_only: 1}}"));
    assert!(read.owlclaw.constraints.trading_hours_only);
    let (read, _) = parse(&with("owlclaw: {risk_level: hihg}"));
    assert_eq!(read.owlclaw.risk_level, RiskLevel::Critical);
}

#[test]
fn a_skill_says_what_calls_of_its_tool_do() {
    let block = "owlclaw: {idempotent: true, read_only: no, destructive: false, open_world: on,
                           task: Required, timeout_seconds: 900}";
    let (read, complaints) = parse(&with(block));
    assert_eq!(complaints, [""; 0]);
    let hints = ToolHints {
        idempotent: Some(true),
        read_only: Some(false),
        destructive: Some(false),
        open_world: Some(true),
        task: Some(TaskHint::Required),
        timeout: Some(Duration::from_secs(900)),
    };
    assert_eq!(read.owlclaw.hints, hints);
    for (word, hint) in [
        ("forbidden", TaskHint::Forbidden),
        ("optional", TaskHint::Optional),
    ] {
        let (read, _) = parse(&with(&format!("owlclaw: {{task: {word}}}")));
        assert_eq!(read.owlclaw.hints.task, Some(hint));
    }
    for block in ["{}", "{idempotent: null, task: ~}"] {
        let (read, complaints) = parse(&with(&format!("owlclaw: {block}")));
        assert_eq!(complaints, [""; 0]);
        assert_eq!(read.owlclaw.hints, ToolHints::default());
    }
}

#[test]
fn what_is_said_of_a_tool_and_cannot_be_read_is_not_said() {
    for field in [
        "idempotent: perhaps",
        "read_only: 1",
        "destructive: [true]",
        "open_world: {}",
        "task: sometimes",
        "task: true",
        "timeout_seconds: 0",
        "timeout_seconds: 86401",
        "timeout_seconds: 1.5",
        "timeout_seconds: -1",
        "timeout_seconds: soon",
    ] {
        let (read, complaints) = parse(&with(&format!("owlclaw: {{{field}}}")));
        assert_eq!(read.owlclaw.hints, ToolHints::default(), "{field}");
        assert_eq!(complaints.len(), 1, "{field}: {complaints:?}");
        let is_told_only = field.starts_with("idempotent") || field.starts_with("task");
        let consequence = match is_told_only {
            true => "it is ignored",
            false => "its tool is held back until it is",
        };
        assert!(complaints[0].ends_with(consequence), "{complaints:?}");
    }
}

#[test]
fn unknown_constraint_keys_are_reported_with_the_nearest_known_one() {
    let rows = [
        (
            "owlclaw:\n  constraints:\n    max_daily_call: 3",
            "`owlclaw.constraints.max_daily_call` should be `max_daily_calls`; it is not known, and its tool is held back until it is",
            Some(6),
        ),
        (
            "owlclaw:\n  constraints: {budget: 3}",
            "`owlclaw.constraints.budget` should be one of `trading_hours_only`, `max_daily_calls`, `cooldown_seconds`, `estimated_cost`, `requires_confirmation`; it is not known, and limits nothing",
            Some(5),
        ),
        (
            "owlclaw:\n  require_confirmation: true",
            "`owlclaw.require_confirmation` should be `requires_confirmation`; it is not known, and its tool is held back until it is",
            Some(5),
        ),
        (
            "owlclaw:\nrisk_level: critical",
            "`risk_level` should be under `owlclaw`, as `owlclaw.risk_level`; its tool is held back until it is",
            Some(5),
        ),
        (
            "owlclaw: {risk_level: low}\nmax_daily_calls: 1",
            "`max_daily_calls` should be under `owlclaw.constraints`, as `owlclaw.constraints.max_daily_calls`; its tool is held back until it is",
            Some(5),
        ),
        (
            "owlclaw:\n  max_daily_calls: 1",
            "`owlclaw.max_daily_calls` should be under `owlclaw.constraints`, as `owlclaw.constraints.max_daily_calls`; its tool is held back until it is",
            Some(5),
        ),
        (
            "owlclaw:\n  risk: [financial]",
            "`owlclaw.risk` should be `risk_level`, or `governance.tools.<name>.risk` in the server's configuration; its tool is held back until it is",
            Some(5),
        ),
        (
            "owlclaw:\n  breaker: {}",
            "`owlclaw.breaker` should be under `governance.tools.<name>` in the server's configuration; its tool is held back until it is",
            Some(5),
        ),
        (
            "owlclaw:\n  constraints:\n    max_daily_calls:",
            "`owlclaw.constraints.max_daily_calls` should be given a value, or left out; its tool is held back until it is",
            Some(6),
        ),
        (
            "owlclaw:",
            "`owlclaw` should be given a value, or left out; its tool is held back until it is",
            Some(4),
        ),
        (
            "metadata:\n  owlclaw:\n    risk_level: high",
            "`metadata.owlclaw` should be `owlclaw`, beside `metadata`; its tool is held back until it is",
            Some(5),
        ),
        (
            "metadata:\n  owlclaw:\n    risk_levle: high",
            "`metadata.owlclaw` should be `owlclaw`, beside `metadata`; its tool is held back until it is",
            Some(5),
        ),
        (
            "metadata:\n  requires_confirmation: true",
            "`metadata.requires_confirmation` should be under `owlclaw`, as `owlclaw.requires_confirmation`; its tool is held back until it is",
            Some(5),
        ),
        (
            "metadata:\n  max_daily_calls: 3",
            "`metadata.max_daily_calls` should be under `owlclaw.constraints`, as `owlclaw.constraints.max_daily_calls`; its tool is held back until it is",
            Some(5),
        ),
        (
            "prerequisites:\n  env:",
            "`prerequisites.env` should be given a value, or left out; its tool is held back until it is",
            Some(5),
        ),
        (
            "owclaw: {risk_level: critical}",
            "`owclaw` should be `owlclaw`; its tool is held back until it is",
            Some(4),
        ),
    ];
    for (text, expected, line) in rows {
        let text = format!("---\nname: x\ndescription: X.\n{text}\n---\n");
        let (_, complaints) = Frontmatter::parse(&text).unwrap();
        let [complaint] = complaints.as_slice() else {
            panic!("{complaints:?}")
        };
        assert_eq!(
            (complaint.to_string().as_str(), complaint.line),
            (expected, line)
        );
    }
    for known in [
        "owlclaw: {env: [A], spec_version: 1, risk: {impact: low}}",
        "owlclaw: {}",
        "owlclaw: {constraints: {}}",
        "metadata: {owlclaw: {emoji: x}}",
        "metadata: {openclaw: {}, team: x}",
        "openclaw: 1",
    ] {
        let (_, complaints) = parse(&with(known));
        assert!(complaints.is_empty(), "{known}: {complaints:?}");
    }
}

#[test]
fn rules_in_another_spelling_or_place_hold_the_tool_back() {
    for (text, field, expected) in [
        (
            "requires-confirmation: true",
            "requires-confirmation",
            "owlclaw.requires_confirmation",
        ),
        (
            "requiresConfirmation: true",
            "requiresConfirmation",
            "owlclaw.requires_confirmation",
        ),
        (
            "max-daily-call: 1",
            "max-daily-call",
            "owlclaw.constraints.max_daily_calls",
        ),
        (
            "owlclaw.requires_confirmation: true",
            "owlclaw.requires_confirmation",
            "owlclaw.requires_confirmation",
        ),
        (
            "Owlclaw.constraints.max_daily_calls: 1",
            "Owlclaw.constraints.max_daily_calls",
            "owlclaw.constraints.max_daily_calls",
        ),
        (
            "owlclaw_risk_level: high",
            "owlclaw_risk_level",
            "owlclaw.risk_level",
        ),
        (
            "metadata: {owlclaw.requires_confirmation: true}",
            "metadata.owlclaw.requires_confirmation",
            "owlclaw.requires_confirmation",
        ),
        (
            "metadata: {owlclaw-requires-confirmation: 'true'}",
            "metadata.owlclaw-requires-confirmation",
            "owlclaw.requires_confirmation",
        ),
        (
            "metadata: {requiresConfirmation: true}",
            "metadata.requiresConfirmation",
            "owlclaw.requires_confirmation",
        ),
        (
            "metadata: {owlclaw: 'requires_confirmation: true'}",
            "metadata.owlclaw",
            "`owlclaw`, beside `metadata`",
        ),
        (
            "metadata: {owlclaw: [risk-level high]}",
            "metadata.owlclaw",
            "`owlclaw`, beside `metadata`",
        ),
        (
            "owlclaw: {constraints: {cooldown: 3600}}",
            "owlclaw.constraints.cooldown",
            "`cooldown_seconds`",
        ),
        (
            "owlclaw: {constraints: {cooldown_minutes: 60}}",
            "owlclaw.constraints.cooldown_minutes",
            "`cooldown_seconds`",
        ),
        (
            "owlclaw: {constraints: {cost: 3}}",
            "owlclaw.constraints.cost",
            "`estimated_cost`",
        ),
        (
            "owlclaw: {constraints: {max_calls: 3}}",
            "owlclaw.constraints.max_calls",
            "`max_daily_calls`",
        ),
        (
            "owlclaw: {timeout: 3}",
            "owlclaw.timeout",
            "`timeout_seconds`",
        ),
        (
            "owlclaw: {weight: 0}",
            "owlclaw.weight",
            "`migration_weight`",
        ),
    ] {
        let (_, complaints) = Frontmatter::parse(&with(text)).unwrap();
        let [complaint] = complaints.as_slice() else {
            panic!("{text}: {complaints:?}")
        };
        assert!(complaint.holds(), "{text}");
        assert_eq!(complaint.field, field, "{text}");
        assert!(complaint.expected.contains(expected), "{text}: {complaint}");
        // A key with dots is looked for as a path, which leads nowhere.
        assert!(
            complaint.line.is_some() || field.to_lowercase().contains("owlclaw."),
            "{text}"
        );
    }
    for known in [
        "allowed-tools: none\ncompatibility: any",
        "metadata: {owlclaw: hello, version: 1.0, author: x, short-description: y}",
    ] {
        let (_, complaints) = Frontmatter::parse(&with(known)).unwrap();
        let held: Vec<_> = complaints.iter().filter(|it| it.holds()).collect();
        assert!(held.is_empty(), "{known}: {held:?}");
    }
}

#[test]
fn rules_at_any_depth_hold_the_tool_back_with_their_place() {
    const CONFIRMED: &str = "under `owlclaw`, as `owlclaw.requires_confirmation`";
    const DAILY: &str = "under `owlclaw.constraints`, as `owlclaw.constraints.max_daily_calls`";
    for (text, field, expected) in [
        (
            "governance:\n  requires_confirmation: true",
            "governance.requires_confirmation",
            CONFIRMED,
        ),
        (
            "governance:\n  constraints:\n    max_daily_calls: 0",
            "governance.constraints.max_daily_calls",
            DAILY,
        ),
        (
            "policy: {requires_confirmation: true}",
            "policy.requires_confirmation",
            CONFIRMED,
        ),
        (
            "rules:\n- requiresConfirmation: true",
            "rules.requiresConfirmation",
            CONFIRMED,
        ),
        (
            "rules:\n- 'requires_confirmation: true'",
            "rules",
            CONFIRMED,
        ),
        (
            "metadata: {governance: {requires_confirmation: true}}",
            "metadata.governance.requires_confirmation",
            CONFIRMED,
        ),
        (
            "metadata: {a: {b: [{max-daily-call: 3}]}}",
            "metadata.a.b.max-daily-call",
            DAILY,
        ),
        (
            "mcp_server: {governance: {confirm: [pay]}}",
            "mcp_server.governance.confirm",
            "`owlclaw.requires_confirmation`",
        ),
        (
            "governance: {tools: {pay: {confirmation: operator}}}",
            "governance.tools.pay.confirmation",
            "`owlclaw.requires_confirmation`",
        ),
        (
            "owlclaw: {governance: {requires_confirmation: true}}",
            "owlclaw.governance.requires_confirmation",
            CONFIRMED,
        ),
        (
            "owlclaw: {limits: {max_daily_calls: 1}}",
            "owlclaw.limits.max_daily_calls",
            DAILY,
        ),
        (
            "owlclaw: {constraints: {limits: {max_calls: 1}}}",
            "owlclaw.constraints.limits.max_calls",
            DAILY,
        ),
        (
            "owlclaw: {risk: {requires_confirmation: true}}",
            "owlclaw.risk.requires_confirmation",
            CONFIRMED,
        ),
        (
            "limits: {cost: 5}",
            "limits.cost",
            "under `owlclaw.constraints`, as `owlclaw.constraints.estimated_cost`",
        ),
        (
            "tools: {pay: {description: Pays., requires_confirmation: true}}",
            "tools.pay.requires_confirmation",
            CONFIRMED,
        ),
        (
            "owlclaw: {confirm: true}",
            "owlclaw.confirm",
            "`owlclaw.requires_confirmation`",
        ),
        (
            "confirm: true",
            "confirm",
            "`owlclaw.requires_confirmation`",
        ),
        (
            "enabled: false",
            "enabled",
            "`skills.entries.<name>.enabled`",
        ),
        (
            "disabled: yes",
            "disabled",
            "`skills.entries.<name>.enabled`",
        ),
        (
            "owlclaw: {enabled: false}",
            "owlclaw.enabled",
            "`skills.entries.<name>.enabled`",
        ),
        (
            "owlclaw: {constraints: {max_cost_per_call: 0.1}}",
            "owlclaw.constraints.max_cost_per_call",
            "`governance.default_quota`",
        ),
    ] {
        let (_, complaints) = Frontmatter::parse(&with(text)).unwrap();
        let [complaint] = complaints.as_slice() else {
            panic!("{text}: {complaints:?}")
        };
        assert!(complaint.holds(), "{text}");
        assert_eq!(complaint.field, field, "{text}");
        assert!(complaint.expected.contains(expected), "{text}: {complaint}");
        assert!(complaint.line.is_some(), "{text}");
    }
    let many = (0..100).map(|it| format!("  a{it}: {{risk_level: high}}\n"));
    let many = format!("x:\n{}", many.collect::<String>());
    let (_, complaints) = parse(&with(&many));
    assert_eq!(complaints.len(), 16);
}

/// Front matter of skills as other products and people write it.
const OF_OTHERS: &[&str] = &[
    "license: Apache-2.0\nallowed-tools: Bash(git:*) Read\ncompatibility: Requires Python 3.14",
    "disable-model-invocation: true\nuser-invocable: false\nmodel: opus\ncontext: fork\nagent: Explore",
    "metadata: {openclaw: {emoji: x, requires: {bins: [gh], env: [GH_TOKEN]}, install: [{id: brew, kind: brew}]}}",
    "metadata: {cost: low, enabled: true, limits: none, rules: be kind, roles: [analyst], risk: none}",
    "metadata: {database: {read_only: true, timeout_seconds: 30, enabled: false, cost: 3, limits: {max: 5}}}",
    "metadata: {estimated_time: 10 minutes, max_tokens: 100, confirmation: by mail, constraint_solver: z3}",
    "policy: Ask before large payments.\nrules: [Be brief., Mind the constraints.]\nlimits: see below",
    "enabled: true\ndisabled: false\ncost: 5",
    "tools: {pay: {description: Pays., risk_level: string, max_daily_calls: How many calls a day.}}",
    "tools_schema: {pay: {parameters: {requires_confirmation: boolean, cooldown_seconds: 5}}}",
    "tools: [{name: pay, parameters: {type: object, properties: {risk_level: {default: high}}}}]",
    "tools: {pay: {binding: {type: sql, read_only: true, timeout_ms: 500, headers: {risk_level: high}}}}",
    "prerequisites: {config: {governance.requires_confirmation: true}}",
    "owlclaw: {risk: {impact: low, reversibility: full}, trigger: cron(\"0 9 * * *\"), task_type: x}",
    // What an alias brings into the block is in force.
    "base: &base {requires_confirmation: true}\nowlclaw: *base",
];

#[test]
fn skills_of_others_hold_nothing_back() {
    for text in OF_OTHERS {
        let (_, complaints) = Frontmatter::parse(&with(text)).unwrap();
        let held: Vec<_> = complaints.iter().filter(|it| it.holds()).collect();
        assert!(held.is_empty(), "{text}: {held:?}");
    }
}

#[test]
fn an_unknown_key_of_the_block_is_told() {
    let (_, complaints) = parse(&with("owlclaw: {enabled: true}"));
    assert!(complaints[0].ends_with("limits nothing"), "{complaints:?}");

    let (_, complaints) = parse(&with("owlclaw: {colour: red}"));
    let [complaint] = complaints.as_slice() else {
        panic!("{complaints:?}")
    };
    let said = complaint.to_string();
    assert!(
        said.starts_with("`owlclaw.colour` should be one of `spec_version`, "),
        "{said}"
    );
    assert!(
        said.ends_with("; it is not known, and limits nothing"),
        "{said}"
    );
    // What is advised can be written.
    assert!(
        said.contains("`risk_level`, ") && !said.contains("`risk`"),
        "{said}"
    );
}

#[test]
fn words_of_rules_in_the_wrong_part_of_the_block_hold_the_tool_back() {
    const CONFIRMED: &str = "requires_confirmation";
    for (text, expected) in [
        ("owlclaw: {max_calls: 1}", "max_daily_calls"),
        ("owlclaw: {cooldown: 60}", "cooldown_seconds"),
        ("owlclaw: {cooldown_minutes: 5}", "cooldown_seconds"),
        ("owlclaw: {cost: 5}", "estimated_cost"),
        ("owlclaw: {max_daily_call: 1}", "max_daily_calls"),
        ("owlclaw: {constraints: {risk_levle: high}}", "risk_level"),
        ("owlclaw: {needs_approval: true}", CONFIRMED),
        ("owlclaw: {mustConfirm: true}", CONFIRMED),
        (
            "owlclaw: {constraints: {approval-required: true}}",
            CONFIRMED,
        ),
        ("owlclaw: {limits: {needs_approval: true}}", CONFIRMED),
        ("needs_approval: true", CONFIRMED),
    ] {
        let (front, complaints) = Frontmatter::parse(&with(text)).unwrap();
        let [complaint] = complaints.as_slice() else {
            panic!("{text}: {complaints:?}")
        };
        assert!(complaint.holds(), "{text}: {complaint}");
        assert!(complaint.expected.contains(expected), "{text}: {complaint}");
        assert!(complaint.line.is_some(), "{text}");
        assert!(
            front.owlclaw.requires_confirmation || !text.starts_with("owlclaw: {m"),
            "{text}"
        );
    }
}

#[test]
fn words_that_say_that_somebody_has_agreed_ask_for_nothing() {
    for (keys, asks) in [
        (
            [
                "approval",
                "needs_approval",
                "mustConfirm",
                "requiresUserConsent",
            ],
            true,
        ),
        (
            ["approved", "approved_by", "approval_timeout", "confirmed"],
            false,
        ),
    ] {
        for key in keys {
            assert_eq!(super::fields::asks_for_approval(key), asks, "{key}");
        }
    }
}

#[test]
fn needs_under_the_words_of_others_are_told() {
    for (text, holds) in [
        ("requires: {env: [X]}", true),
        ("requirements: {bins: [x]}", true),
        ("metadata: {openclaw: {requires: {env: [X]}}}", false),
    ] {
        let (_, complaints) = Frontmatter::parse(&with(text)).unwrap();
        let [complaint] = complaints.as_slice() else {
            panic!("{text}: {complaints:?}")
        };
        assert!(complaint.expected.starts_with("`prerequisites`"), "{text}");
        assert_eq!(complaint.holds(), holds, "{text}");
        assert!(!complaint.is_unknown(), "{text}");
    }
    let (_, complaints) = parse(&with("requires: python 3.12"));
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn the_name_is_found_in_front_matter_that_is_not_yaml() {
    let rows = [
        ("---\nname: refund\ndescription: [\n---\n", vec!["refund"]),
        ("---\n  Name : \"refund\" # so\n", vec!["refund"]),
        ("---\n{name: refund, description: x\n---\n", vec!["refund"]),
        ("name: refund\n\nBody", vec!["refund"]),
        (
            "---\rname: refund\rdescription: Refunds.\rowlclaw: {}\r---\rx\r",
            vec!["refund"],
        ),
        (
            "---\u{2028}name: refund\u{2028}description: x",
            vec!["refund"],
        ),
        (
            "---\nfilename: x\nname_of: y\nname:\n---\nname: body\n",
            vec![],
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(super::names_in(text), expected, "{text:?}");
    }
}

#[test]
fn costs_are_decimal_digits() {
    for (written, expected) in [
        ("0.05", "0.05"),
        ("1e-6", "0.000001"),
        ("3", "3"),
        ("'0.10'", "0.10"),
        ("123456789.123", "123456789.123"),
    ] {
        let block = format!("owlclaw: {{constraints: {{estimated_cost: {written}}}}}");
        let (read, _) = parse(&with(&block));
        let cost = read.owlclaw.constraints.estimated_cost;
        assert_eq!(cost.as_deref(), Some(expected), "{written}");
    }
}

#[test]
fn fields_that_only_describe_are_ignored_when_bad() {
    let (read, complaints) = parse(&with("license: {a: b}\ntags: [1, [x], y]\nmetadata: 3"));
    assert_eq!(
        (read.license, read.tags),
        (None, vec!["1".to_owned(), "y".to_owned()])
    );
    assert_eq!(complaints.len(), 3, "{complaints:?}");
    let (read, _) = parse(&with("tags: 交易, b,\n"));
    assert_eq!(read.tags, ["交易", "b"]);
}

#[test]
fn prerequisites_may_stand_at_the_top() {
    let (read, _) = parse(&with("prerequisites: {bins: git, os: [linux]}"));
    assert_eq!(read.owlclaw.prerequisites.bins, ["git"]);
    assert_eq!(read.owlclaw.prerequisites.os, ["linux"]);
}
