//! Layers of files, in the form of this program and in that of founding document 003.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use config::{Environment, Loaded, Overrides, Rejected};

struct Site(tempfile::TempDir);

impl Site {
    fn new(files: &[(&str, &str)]) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = site.0.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        site
    }

    fn load(&self, main: &str, environment: &Environment) -> Result<Loaded, Rejected> {
        let overrides = Overrides {
            config: Some(PathBuf::from(main)),
            ..Overrides::default()
        };
        config::load(&overrides, environment, self.0.path())
    }

    fn told(&self, main: &str) -> Vec<String> {
        let rejected = self.load(main, &Environment::default()).unwrap_err();
        let place = self.0.path().display().to_string() + "/";
        let line = |it: &config::Problem| format!("{}: {}", it.origin, it.message);
        let problems = rejected.problems.iter().map(line);
        problems.map(|it| it.replace(&place, "")).collect()
    }
}

/// The files of document 003, §5.3 and §5.4, as they are written there.
const SYSTEM: &str = r#"
version: "1.0"
schema: "mcp-config-v5"

servers:
  qdrant-knowledge:
    type: custom
    module: src.runtime.mcp.servers.knowledge.qdrant_server
    class: QdrantMCPServer
    transport: stdio                    # 显式声明 Transport
    config:
      url: "${QDRANT_URL:-http://localhost:6333}"
      collection: "default"
    permissions:
      read: true
      write: false
    tools:
      - semantic_search
      - similar_docs

  filesystem:
    type: external
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem"]
    transport: stdio
    permissions:
      read: true
      write: true
      allowed_paths:
        - "Artifacts_Vault/"
        - "reports/"
      denied_paths:
        - ".env"
        - "secrets/"

  sellersprite:
    type: external
    command: sellersprite-mcp
    enabled: false
"#;
const DOMAIN: &str = r#"
inherit: ../../../runtime/mcp/config/default.yaml

servers:
  qdrant-knowledge:
    enabled: true
    override:
      collection: "amazon_kb_production"

  sellersprite:
    enabled: true
    # Domain 可启用 System 未启用的服务器
"#;
const SYSTEM_PATH: &str = "src/runtime/mcp/config/default.yaml";
const DOMAIN_PATH: &str = "src/domain/amazon-growth/config/mcp_servers.yaml";

#[test]
fn the_files_of_the_document_are_read_as_they_are_written_there() {
    let site = Site::new(&[(SYSTEM_PATH, SYSTEM), (DOMAIN_PATH, DOMAIN)]);
    let system = site.load(SYSTEM_PATH, &Environment::default()).unwrap();
    let upstreams = &system.config.upstreams;
    assert_eq!(upstreams.len(), 3);
    let filesystem = &upstreams["filesystem"];
    assert_eq!(filesystem.command.as_deref(), Some("npx"));
    assert_eq!(
        filesystem.args,
        ["-y", "@modelcontextprotocol/server-filesystem"]
    );
    // What cannot be enforced, or run, is held and says so.
    let why = |name: &str| upstreams[name].unresolved.clone().unwrap_or_default();
    assert!(
        why("filesystem").contains("restricts paths"),
        "{}",
        why("filesystem")
    );
    assert!(
        why("qdrant-knowledge").contains("a class of another runtime"),
        "{}",
        why("qdrant-knowledge")
    );
    assert!(why("sellersprite").is_empty() && !upstreams["sellersprite"].enabled);
    // Whoever checks the file is told, too, with the place and the cure.
    let told = system.warnings.iter().map(|it| {
        let hint = it.hint.as_deref().unwrap_or_default();
        format!("{}: {} | {hint}", it.origin, it.message)
    });
    let told: Vec<_> = told.collect();
    for expected in [
        "default.yaml:7:11: `servers.qdrant-knowledge.type` is `custom`, and a class of another runtime cannot be run here; \
         the upstream `qdrant-knowledge` is held | give the server a `command`, or a `url`, with `type: external`",
        "default.yaml:14:5: `servers.qdrant-knowledge.permissions` restricts writing, which is not enforced here; the \
         upstream `qdrant-knowledge` is held | state it under `governance`, and leave it out",
        "default.yaml:26:5: `servers.filesystem.permissions` restricts paths, which is not enforced here; the upstream \
         `filesystem` is held | state it under `governance`, and leave it out",
    ] {
        assert!(
            told.iter().any(|it| it.ends_with(expected)),
            "{expected}: {told:#?}"
        );
    }
    let qdrant = &upstreams["qdrant-knowledge"];
    assert_eq!(qdrant.allow, ["semantic_search", "similar_docs"]);
    assert_eq!(qdrant.env["collection"], "default");
    assert_eq!(qdrant.env["url"], "${QDRANT_URL:-http://localhost:6333}");

    let loaded = site.load(DOMAIN_PATH, &Environment::default()).unwrap();
    let upstreams = &loaded.config.upstreams;
    assert!(upstreams["sellersprite"].enabled);
    assert_eq!(
        upstreams["qdrant-knowledge"].env["collection"],
        "amazon_kb_production"
    );
    assert_eq!(
        upstreams["qdrant-knowledge"].allow,
        ["semantic_search", "similar_docs"]
    );
    let origin = |key: &str| {
        let settings = loaded.settings();
        let found = settings.iter().find(|it| it.key == key);
        found
            .unwrap_or_else(|| panic!("no {key}"))
            .origin
            .to_string()
    };
    let collection = origin("upstreams.qdrant-knowledge.env.collection");
    assert!(
        collection.ends_with("mcp_servers.yaml:8:19"),
        "{collection}"
    );
    let command = origin("upstreams.filesystem.command");
    assert!(command.ends_with("config/default.yaml:23:14"), "{command}");
    let known = |path: &Path| path.ends_with("default.yaml");
    assert!(
        loaded.others.iter().any(|it| known(it)),
        "{:?}",
        loaded.others
    );
}

#[test]
fn a_path_of_the_document_begins_at_the_root_of_the_repository() {
    // As 003, §5.4, has it: the path of the system, as it is named from the root.
    let domain =
        "inherit: src/runtime/mcp/config/default.yaml\nservers: {sellersprite: {enabled: true}}\n";
    let site = Site::new(&[
        ("repository/src/runtime/mcp/config/default.yaml", SYSTEM),
        ("repository/src/domain/a/config/mcp_servers.yaml", domain),
    ]);
    let path = "repository/src/domain/a/config/mcp_servers.yaml";
    let loaded = site.load(path, &Environment::default()).unwrap();
    assert!(loaded.config.upstreams["sellersprite"].enabled);
    // A file beside it goes before, and nothing is looked for further up.
    let beside = SYSTEM.replace("sellersprite-mcp", "other-mcp");
    let site = Site::new(&[
        ("repository/src/runtime/mcp/config/default.yaml", SYSTEM),
        ("a/config/src/runtime/mcp/config/default.yaml", &beside),
        ("a/config/mcp_servers.yaml", domain),
        ("a/src/x/mcp_servers.yaml", domain),
        ("src/runtime/mcp/config/default.yaml", SYSTEM),
    ]);
    let loaded = site
        .load("a/config/mcp_servers.yaml", &Environment::default())
        .unwrap();
    let command = loaded.config.upstreams["sellersprite"].command.clone();
    assert_eq!(command.as_deref(), Some("other-mcp"));
    let told = site.told("a/src/x/mcp_servers.yaml");
    assert!(
        told[0].contains("a/src/runtime/mcp/config/default.yaml")
            && told[0].contains("cannot be read"),
        "{told:#?}"
    );
}

const OURS: &str = "mcp_server:\n  governance:\n    clients:\n      a: {tools: {allow: [\"*\"]}}\n  upstreams:\n    time: {command: uvx, \
                    args: [mcp-server-time], deny: [set_*], env: {ZONE: UTC}}\n";

#[test]
fn a_domain_enables_and_overrides_and_declares_nothing() {
    let domain = |text: &str| format!("inherit: system.yaml\nmcp_server:\n  {text}\n");
    let load = |text: &str| {
        Site::new(&[("system.yaml", OURS), ("domain.yaml", &domain(text))])
            .load("domain.yaml", &Environment::default())
    };
    let loaded = load("upstreams: {time: {enabled: false, env: {ZONE: Asia/Tokyo}}}").unwrap();
    let time = &loaded.config.upstreams["time"];
    assert!(!time.enabled && time.env["ZONE"] == "Asia/Tokyo" && time.deny == ["set_*"]);
    let rows = [
        (
            "upstreams: {tme: {command: x}}",
            "domain.yaml:3:20: the domain cannot set `upstreams.tme`: it is not declared by the system, and no other layer \
             can declare a server (system: system.yaml:6:",
        ),
        (
            "upstreams: {time: {deny: []}}",
            "domain.yaml:3:28: the domain cannot set `upstreams.time.deny`: a domain can set `enabled` and `env` of servers \
             and nothing else (system: system.yaml:6:",
        ),
        (
            "governance: {clients: {a: {tools: {allow: [x]}}}}",
            "the domain cannot set `governance`: a domain can set `enabled` and `env` of servers and nothing else (system: \
             system.yaml:3:",
        ),
        (
            "vault: {allow_commands: true}",
            "the domain cannot set `vault`",
        ),
        (
            "upstreams: {time: {env: {LD_PRELOAD: /tmp/x.so}}}",
            "domain.yaml:3:40: the domain cannot set `upstreams.time.env.LD_PRELOAD`: this variable decides which code the \
             server runs, where it comes from, or by which way, and so it is the system's (system: system.yaml:",
        ),
        (
            "upstreams: {time: {env: {Path: /tmp}}}",
            "the domain cannot set `upstreams.time.env.Path`",
        ),
        (
            "upstreams: {time: {env: {ZONE: '${file:/etc/hostname}'}}}",
            "the domain cannot refer to a file: ",
        ),
    ];
    for (text, expected) in rows {
        let site = Site::new(&[("system.yaml", OURS), ("domain.yaml", &domain(text))]);
        let told = site.told("domain.yaml");
        assert!(
            told.iter().any(|it| it.contains(expected)),
            "{expected}: {told:#?}"
        );
    }
    let site = Site::new(&[
        (
            "system.yaml",
            &format!("{OURS}  vault: {{allow_commands: true}}\n"),
        ),
        (
            "domain.yaml",
            &domain(
                "upstreams: {time: {env: {ZONE: '${ZONE:-${cmd:touch ran}}', A: '${cmd:touch ran}'}}}",
            ),
        ),
    ]);
    let ran = site.0.path().join("ran");
    let touch = format!("touch {}", ran.display());
    let text = std::fs::read_to_string(site.0.path().join("domain.yaml")).unwrap();
    let text = text.replace("touch ran", &touch);
    std::fs::write(site.0.path().join("domain.yaml"), text).unwrap();
    let told = site.told("domain.yaml");
    let refused = told
        .iter()
        .filter(|it| it.contains("cannot refer to the output of a program"));
    assert_eq!(refused.count(), 2, "{told:#?}");
    assert!(!ran.exists());
    for (system, expected) in [
        ("inherit: other.yaml\n", "inherits itself"),
        (
            "mcp_server: {upstreams: {time: {comand: x}}}",
            "unknown key `upstreams.time.comand`",
        ),
    ] {
        let site = Site::new(&[
            ("system.yaml", system),
            ("domain.yaml", &domain("upstreams: {}")),
        ]);
        let told = site.told("domain.yaml");
        assert!(
            told.iter().any(|it| it.contains(expected)),
            "{expected}: {told:#?}"
        );
    }
    let site = Site::new(&[("domain.yaml", &domain("upstreams: {}"))]);
    assert!(site.told("domain.yaml")[0].contains("cannot be read"));
}

#[test]
fn an_inherit_that_leads_to_no_system_is_refused() {
    let rest = "mcp_server: {commands: {danger: {run: [id], description: d}}}\n";
    let servers = "servers: {a: {command: x}}\n";
    for (inherit, expected) in [
        (
            "inherit:\n",
            "`inherit` must be the path of one file, that of the system, found nothing",
        ),
        (
            "inherit: [system.yaml]\n",
            "`inherit` must be the path of one file, that of the system, found a list",
        ),
        (
            "inherit: {path: system.yaml}\n",
            "`inherit` must be the path of one file, that of the system, found a section",
        ),
        ("inherit: \"\"\n", "`inherit` must be the path of one file"),
        ("inherit: true\n", "cannot be read"),
        // The key, and a file that has more than it may.
        (
            "\"\\x69nherit\": system.yaml\n",
            "the domain cannot set `commands`",
        ),
    ] {
        for rest in [rest, servers] {
            let domain = format!("{inherit}{rest}");
            let site = Site::new(&[("system.yaml", OURS), ("domain.yaml", &domain)]);
            let told = site.told("domain.yaml");
            let expected = match rest == servers {
                true => expected.replace("`commands`", "`upstreams.a`"),
                false => expected.to_owned(),
            };
            assert!(
                told.iter().any(|it| it.contains(&expected)),
                "{expected}: {told:#?}"
            );
        }
    }
    for (system, session, expected) in [
        (
            "inherit: [other.yaml]\n",
            "mcp_server: {}\n",
            "inherits itself",
        ),
        (
            OURS,
            "inherit: system.yaml\n",
            "`inherit` cannot stand in the file of a session",
        ),
    ] {
        let site = Site::new(&[
            ("system.yaml", system),
            ("domain.yaml", "inherit: system.yaml\nmcp_server: {}\n"),
            ("domain.local.yaml", session),
        ]);
        let told = site.told("domain.yaml");
        assert!(
            told.iter().any(|it| it.contains(expected)),
            "{expected}: {told:#?}"
        );
    }
    // Of a text that is given in code nothing is inherited, either.
    let text = config::Text {
        name: "text".to_owned(),
        text: "inherit: system.yaml\nmcp_server: {}\n".to_owned(),
    };
    let directory = Path::new("/");
    let rejected = config::load_texts(&[text], &Environment::default(), directory).unwrap_err();
    assert!(
        rejected.problems[0]
            .message
            .contains("leads to another file")
    );
}

#[test]
fn a_session_overrides_and_changes_no_rule() {
    let files = |session: &str| {
        Site::new(&[
            ("system.yaml", OURS),
            (
                "domain.yaml",
                "inherit: system.yaml\nmcp_server: {upstreams: {time: {env: {ZONE: Asia/Tokyo}}}}\n",
            ),
            ("domain.local.yaml", session),
        ])
    };
    let site = files(
        "mcp_server: {logging: {level: debug}, upstreams: {time: {enabled: false, timeout_seconds: 7}}}\n",
    );
    let loaded = site.load("domain.yaml", &Environment::default()).unwrap();
    let time = &loaded.config.upstreams["time"];
    assert!(!time.enabled && time.timeout_seconds == 7);
    assert_eq!(time.env["ZONE"], "Asia/Tokyo");
    let settings = loaded.settings();
    let level = settings
        .iter()
        .find(|it| it.key == "logging.level")
        .unwrap();
    assert!(
        level.origin.to_string().contains("domain.local.yaml:1:"),
        "{}",
        level.origin
    );
    for (session, expected) in [
        (
            "mcp_server: {governance: {clients: {a: {tools: {deny: []}}}}}",
            "the session cannot set `governance`: a session file cannot change permissions (system: \
             system.yaml:3:",
        ),
        (
            "mcp_server: {upstreams: {time: {deny: []}}}",
            "the session cannot set `upstreams.time.deny`: a session file cannot change permissions (system: \
             system.yaml:6:",
        ),
        (
            "mcp_server: {upstreams: {mine: {command: x}}}",
            "the session cannot set `upstreams.mine`: it is not declared",
        ),
        (
            "mcp_server: {vault: {allow_commands: true}}",
            "the session cannot set `vault`",
        ),
        (
            "mcp_server: {identity: {}}",
            "the session cannot set `identity`",
        ),
        (
            "mcp_server: {upstreams: {time: {enabled: true}}}",
            "the session cannot set `upstreams.time.enabled`: a session can set it to `false` alone",
        ),
        (
            "servers: {time: {command: ./mine, config: {ZONE: UTC}}}",
            "the session cannot set `upstreams.time.env`",
        ),
    ] {
        let told = files(session).told("domain.yaml");
        assert!(
            told.iter().any(|it| it.contains(expected)),
            "{expected}: {told:#?}"
        );
    }
}

/// Keys that a session can set to whatever they can have. One that is added to the configuration is refused until it is
/// listed, in `OF_SESSIONS` and here, with the reason why it widens nothing.
const OF_SESSIONS: [&str; 16] = [
    "desk.port",
    "gateway.first_start_seconds",
    "http.port",
    "logging.format",
    "logging.level",
    "logging.output",
    "logging.requests",
    "resources.page_size",
    "shutdown.drain_seconds",
    "shutdown.ready_delay_seconds",
    "tools.async_threshold_seconds",
    "tools.error_style",
    "tools.page_size",
    "upstreams.time.connect_timeout_seconds",
    "upstreams.time.idle_seconds",
    "upstreams.time.timeout_seconds",
];

#[test]
fn a_session_can_set_what_is_listed_and_nothing_else() {
    let site = Site::new(&[
        ("system.yaml", OURS),
        ("domain.yaml", "inherit: system.yaml\nmcp_server: {}\n"),
    ]);
    let reference = config::reference();
    let rows = reference.lines().filter_map(|it| it.strip_prefix("| `"));
    let keys = rows.filter_map(|it| it.split_once('`')).map(|(key, _)| {
        let key = key.replace("upstreams.NAME", "upstreams.time");
        key.replace("NAME", "some")
    });
    let keys: Vec<String> = keys.collect();
    // All of them at once: of a section in which none can be set, the section is told.
    let mut all = serde_json::json!({});
    for key in &keys {
        all["mcp_server"] = with(all["mcp_server"].take(), key.split('.'));
    }
    std::fs::write(site.0.path().join("domain.local.yaml"), all.to_string()).unwrap();
    let told = site.told("domain.yaml").join("\n");
    let refused: Vec<_> = told.split("the session cannot set `").skip(1).collect();
    let refused: Vec<_> = refused
        .iter()
        .filter_map(|it| Some(it.split_once('`')?.0))
        .collect();
    let is_within = |key: &str, section: &str| {
        let rest = key.strip_prefix(section);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_refused = |key: &String| refused.iter().any(|it| is_within(key, it));
    let mut permitted: Vec<_> = keys.iter().filter(|it| !is_refused(it)).collect();
    permitted.sort();
    assert!(keys.len() > 400, "{}", keys.len());
    assert_eq!(permitted, OF_SESSIONS);
}

/// `section` with a text at the end of a path.
fn with<'a>(
    section: serde_json::Value,
    mut path: impl Iterator<Item = &'a str>,
) -> serde_json::Value {
    let Some(key) = path.next() else {
        return "x".into();
    };
    let mut section = match section {
        serde_json::Value::Object(members) => members,
        _ => serde_json::Map::new(),
    };
    let below = section.remove(key).unwrap_or_default();
    section.insert(key.to_owned(), with(below, path));
    section.into()
}

#[test]
fn each_value_says_which_layer_and_line_set_it_and_what_it_overrides() {
    let site = Site::new(&[
        ("system.yaml", OURS),
        (
            "domain.yaml",
            "inherit: system.yaml\nmcp_server: {upstreams: {time: {enabled: true, env: {ZONE: Asia/Tokyo}}}}\n",
        ),
        (
            "domain.local.yaml",
            "mcp_server:\n  logging: {level: debug}\n  upstreams: {time: {enabled: false}}\n",
        ),
    ]);
    let environment = Environment::default().with("MCP_SERVER_LOGGING__LEVEL", "error");
    let loaded = site.load("domain.yaml", &environment).unwrap();
    let place = site.0.path().display().to_string() + "/";
    let told = |key: &str| {
        let found = loaded.settings_of(key);
        let it = found.iter().find(|it| it.key == key).unwrap();
        let overrides: Vec<_> = it.overrides.iter().map(ToString::to_string).collect();
        format!("{} < {}", it.set_by(), overrides.join(" < ")).replace(&place, "")
    };
    assert_eq!(
        told("upstreams.time.env.ZONE"),
        "domain domain.yaml:2:60 < system system.yaml:6:78"
    );
    assert_eq!(
        told("upstreams.time.enabled"),
        "session domain.local.yaml:3:31 < domain domain.yaml:2:42"
    );
    assert_eq!(
        told("logging.level"),
        "environment MCP_SERVER_LOGGING__LEVEL < session domain.local.yaml:2:20"
    );
    assert_eq!(told("http.port"), "default < ");
    let below = loaded.settings_of("upstreams.time");
    assert!(below.iter().all(|it| it.key.starts_with("upstreams.time.")));
    assert!(loaded.settings_of("upstreams.tim").is_empty());
}

#[test]
fn the_order_of_members_of_a_server_of_the_document_decides_nothing() {
    let told = |members: &str| {
        let text = format!("schema: mcp-config-v5\nservers:\n  t: {{command: x, {members}}}\n");
        let site = Site::new(&[("a.yaml", &text)]);
        site.told("a.yaml").join("\n")
    };
    for (one, other, expected) in [
        (
            "tools: [echo]",
            r#"allow: ["*"]"#,
            "`servers.t.tools` and `servers.t.allow` both say which tools may be used",
        ),
        (
            "config: {Z: Rome}",
            "override: {Z: Tokyo}",
            ".Z` are the same variable",
        ),
        (
            "env: {Z: Rome}",
            "config: {Z: Tokyo}",
            ".Z` are the same variable",
        ),
    ] {
        for members in [format!("{one}, {other}"), format!("{other}, {one}")] {
            let told = told(&members);
            assert!(told.contains(expected), "{members}: {told}");
        }
    }
    let above = Site::new(&[(
        "a.yaml",
        "schema: mcp-config-v5\nservers: {t: {command: x}}\noverride: {Z: a}\n",
    )]);
    let rejected = above.load("a.yaml", &Environment::default()).unwrap_err();
    assert_eq!(
        rejected.problems[0].hint.as_deref(),
        Some("it belongs to one server: `servers.NAME.override`")
    );
}

#[test]
fn an_empty_list_of_the_document_leaves_nothing() {
    for members in ["tools: []", "permissions: {allowed_paths: []}"] {
        let text = format!("schema: mcp-config-v5\nservers:\n  t: {{command: x, {members}}}\n");
        let site = Site::new(&[("a.yaml", &text)]);
        let loaded = site.load("a.yaml", &Environment::default()).unwrap();
        let told: Vec<_> = loaded
            .warnings
            .iter()
            .map(|it| it.message.as_str())
            .collect();
        assert!(
            told.iter()
                .any(|it| it.contains("the upstream `t` is held")),
            "{members}: {told:?}"
        );
    }
}

/// Makes a pipe that nobody writes into.
fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    let text = "mcp_server:\n  app: ${file:secret}\n";
    for (main, in_place, expected) in [
        (
            "pipe.yaml",
            "pipe.yaml",
            "the configuration file cannot be read: it is a pipe",
        ),
        (
            "a.yaml",
            "a.local.yaml",
            "the configuration file cannot be read: it is a pipe",
        ),
        ("a.yaml", "secret", "which cannot be read: it is a pipe"),
        (
            "b.yaml",
            "system.yaml",
            "the configuration file cannot be read: it is a pipe",
        ),
    ] {
        let site = Site::new(&[("a.yaml", text), ("b.yaml", "inherit: system.yaml\n")]);
        pipe(&site.0.path().join(in_place));
        let told = site.told(main).join("\n");
        assert!(told.contains(expected), "{in_place}: {told}");
    }
}

#[test]
fn a_file_with_nothing_in_it_is_no_secret() {
    let site = Site::new(&[
        ("a.yaml", "mcp_server:\n  app: ${file:secret}\n"),
        ("secret", " \n"),
    ]);
    let told = site.told("a.yaml").join("\n");
    assert!(
        told.contains("secret`, which cannot be read: it is empty"),
        "{told}"
    );
}

#[test]
fn the_place_of_a_sessions_file_is_known_before_there_is_one() {
    let site = Site::new(&[("a.yaml", "mcp_server: {}\n")]);
    let loaded = site.load("a.yaml", &Environment::default()).unwrap();
    assert_eq!(loaded.others, [site.0.path().join("a.local.yaml")]);
}

#[test]
fn references_to_the_vault_are_known_where_a_value_cannot_be_resolved() {
    let text =
        "mcp_server:\n  upstreams:\n    t: {command: x, env: {A: \"${vault:PG_PASS}${unset}\"}}\n";
    let site = Site::new(&[("a.yaml", text)]);
    let loaded = site.load("a.yaml", &Environment::default()).unwrap();
    let told: Vec<_> = loaded
        .references()
        .map(|(key, it)| format!("{key} {}", it.reference))
        .collect();
    assert_eq!(told, ["upstreams.t.env.A vault:PG_PASS"]);
}
