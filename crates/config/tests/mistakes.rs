//! Reports of an operator's mistakes: every one at once, with its place and a way out.

use std::path::Path;

use config::{Environment, Origin, Overrides, Problem, Severity, load};

/// `severity place: message | hint`, one for each problem.
fn problems(file: &str, environment: Environment, overrides: Overrides) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("mcp-server.yaml"), file).expect("it can be written");
    match load(&overrides, &environment, directory.path()) {
        Ok(loaded) => loaded.warnings.iter().map(shown).collect(),
        Err(rejected) => rejected.problems.iter().map(shown).collect(),
    }
}

fn shown(problem: &Problem) -> String {
    let severity = match problem.severity {
        Severity::Error => "",
        Severity::Warning => "warning ",
    };
    let place = match &problem.origin {
        Origin::Environment(name) => name.clone(),
        Origin::CommandLine(flag) => flag.clone(),
        other => other.to_string(),
    };
    let hint = problem.hint.as_deref().unwrap_or("-");
    format!("{severity}{place}: {} | {hint}", problem.message)
}

#[track_caller]
fn check(file: &str, expected: &[&str]) {
    let found = problems(file, Environment::default(), Overrides::default());
    assert_eq!(found, expected, "\n{file}");
}

/// A line below `mcp_server:`, so it is line 2 and begins at column 3.
#[track_caller]
fn check_line(line: &str, expected: &str) {
    check(&format!("mcp_server:\n  {line}\n"), &[expected]);
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    let rows = [
        (
            "transprt: http",
            "2:3: unknown key `transprt` | did you mean `transport`?",
        ),
        (
            "http: {prot: 1}",
            "2:10: unknown key `http.prot` | did you mean `http.port`?",
        ),
        (
            "portt: 1",
            "2:3: unknown key `portt` | did you mean one of `desk.port`, `http.port`?",
        ),
        (
            "skillsDir: x",
            "2:3: unknown key `skillsDir` | did you mean `resources.skills_dir`?",
        ),
        (
            "http: {cors: {origins: []}}",
            "2:17: unknown key `http.cors.origins` | did you mean `http.cors.allowed_origins`?",
        ),
        (
            "logging: {zebra: 1}",
            "2:13: unknown key `logging.zebra` | known keys here are `format`, `level`, `output`, `requests`",
        ),
        (
            "governance: {clients: {ci: {quotas: {}}}}",
            "2:31: unknown key `governance.clients.ci.quotas` \
             | did you mean `governance.clients.ci.quota`?",
        ),
        (
            "governance: {clients: {ci: {tools: {confirm: [pay]}}}}",
            "2:39: unknown key `governance.clients.ci.tools.confirm` \
             | did you mean `governance.clients.ci.confirm`?",
        ),
        (
            "governance: {clients: {'a.b': {quota: {max_calls: 1}}}}",
            "2:42: unknown key `governance.clients.\"a.b\".quota.max_calls` \
             | did you mean `governance.clients.\"a.b\".quota.max_calls_per_minute`?",
        ),
        (
            "http: {pass_headers: [x-tenant, Authorization]}",
            "2:24: `http.pass_headers`: `Authorization` identifies callers, and is not passed on \
             | leave it out; handlers are told who calls by `owlclaw_worker.caller()`",
        ),
    ];
    for (line, expected) in rows {
        check_line(line, &format!("mcp-server.yaml:{expected}"));
    }
}

#[test]
fn values_that_do_not_fit_say_what_would() {
    let rows = [
        (
            "transport: htp",
            "2:14: `transport` must be one of `stdio`, `http`, found `htp` | did you mean `http`?",
        ),
        (
            "transport: 1",
            "2:14: `transport` must be one of `stdio`, `http`, found `1` | -",
        ),
        (
            "transport:",
            "2:12: `transport` must be one of `stdio`, `http`, found nothing | leave the key out for its default",
        ),
        (
            "transport: [http]",
            "2:14: `transport` must be one of `stdio`, `http`, found a list | -",
        ),
        (
            "http: 8080",
            "2:9: `http` must be a section, found `8080` | -",
        ),
        (
            "governance:",
            "2:13: `governance` must be a section, found nothing | write what it holds below it, indented; or `{}`, if that is nothing",
        ),
        (
            "governance: {clients: {ana: }}",
            "2:29: `governance.clients.ana` must be a section, found nothing | write what it holds below it, indented; or `{}`, if that is nothing",
        ),
        (
            "identity:",
            "2:11: `identity` must be a section, found nothing | write what it holds below it, indented; or `{}`, if that is nothing",
        ),
        (
            "http: {port: 65536}",
            "2:16: `http.port` must be an integer from 0 to 65535, found `65536` | -",
        ),
        (
            "http: {port: 80.5}",
            "2:16: `http.port` must be an integer from 0 to 65535, found `80.5` | -",
        ),
        (
            "http: {host: mcp.example.com}",
            "2:16: `http.host` must be an IP address or `localhost`, found `mcp.example.com` | use 0.0.0.0 or [::] to listen on every address",
        ),
        (
            "http: {allowed_origins: ['*']}",
            "2:28: `http.allowed_origins[0]` must be an origin such as `https://app.example.com`, found `*` | name each origin: any page could call the server otherwise",
        ),
        (
            "http: {allowed_origins: https://x.org}",
            "2:27: `http.allowed_origins` must be a list, found `https://x.org` | write `[https://x.org]`",
        ),
        (
            "http: {cors: {allowed_origins: ['https://x.org/']}}",
            "2:35: `http.cors.allowed_origins[0]` must be `*` or an origin such as `https://app.example.com`, found `https://x.org/` | scheme, host and port only: no path, no slash at the end",
        ),
        (
            "http: {max_sessions: 0}",
            "2:24: `http.max_sessions` must be an integer from 1 to 1000000, found `0` | leave the key out for its default",
        ),
        (
            "http: {max_session_replay_events: 1000001}",
            "2:37: `http.max_session_replay_events` must be an integer from 0 to 1000000, found `1000001` | -",
        ),
        (
            "http: {max_session_replay_bytes: 1 mega}",
            "2:36: `http.max_session_replay_bytes` must be an integer from 0 to 1073741824, found `1 mega` | write a whole number of bytes, or one with its unit: B, kB, MB, GB, KiB, MiB, GiB",
        ),
        (
            "http: {max_replay_bytes: 1099511627777}",
            "2:28: `http.max_replay_bytes` must be an integer from 0 to 1099511627776, found `1099511627777` | -",
        ),
        (
            "http: {stream_retry_milliseconds: 0}",
            "2:37: `http.stream_retry_milliseconds` must be an integer from 1 to 600000, found `0` | leave the key out for its default",
        ),
        (
            "http: {stream_after_milliseconds: 0.5}",
            "2:37: `http.stream_after_milliseconds` must be an integer from 0 to 600000, found `0.5` | write a whole number of milliseconds, or one with its unit: ms, s, min, m, h, d",
        ),
        (
            "tasks: {after_seconds: -1}",
            "2:26: `tasks.after_seconds` must be an integer from 0 to 86400, found `-1` | -",
        ),
        (
            "tasks: {max_running: 0}",
            "2:24: `tasks.max_running` must be an integer from 1 to 100000, found `0` | leave the key out for its default",
        ),
        (
            "tasks: {path: ''}",
            "2:17: `tasks.path` must be a path, found an empty text | -",
        ),
        (
            "http: {old_sse: off}",
            "2:19: `http.old_sse` must be `true` or `false`, found `off` | write `false`",
        ),
        (
            "http: {max_replay_bytes: 1000000}",
            "2:28: one session may keep 1048576 bytes (`http.max_session_replay_bytes`), and all of them together only 1000000 (`http.max_replay_bytes`) | one could take the room of all others: lower the one or raise the other",
        ),
        (
            "http: {max_session_replay_bytes: 67108865}",
            "2:36: one session may keep 67108865 bytes (`http.max_session_replay_bytes`), and all of them together only 67108864 (`http.max_replay_bytes`) | one could take the room of all others: lower the one or raise the other",
        ),
        (
            "ledger: {url: 'postgres://db/owlclaw', archive: {after_days: 90}}",
            "2:64: `ledger.archive.after_days` needs `ledger.archive.directory` where `ledger.url` names a database | name a directory that all servers of this ledger reach by the same path",
        ),
        (
            "ledger: {archive: {recipients: [age1wkrmk6p6a08gggzkkpqj7p5vdu05mw7dhxav990fujg05l7hf39qax5xpr, age1wkrmk6p6a08gggzkkpqj7p5vdu05mw7dhxav990fujg05l7hf39qax5xpq]}}",
            "2:34: `ledger.archive.recipients[1]` is no recipient: it is misspelt, or cut off, or of another kind than X25519: its checksum or its length is wrong | write it as `age-keygen -y` prints it: `age1…`, 62 letters and digits",
        ),
        (
            "ledger: {archive: {recipients: [AGE-SECRET-KEY-1ZX3KDKR08W0UY2MXZNYJNM095QZTAAUFV2R64LNUDR32QKGFPQJSWP8XCS]}}",
            "2:34: `ledger.archive.recipients[0]` is no recipient: it is an identity, which is secret, and not a recipient, which begins with `age1`: `age-keygen -y` tells the recipient of an identity | write it as `age-keygen -y` prints it: `age1…`, 62 letters and digits",
        ),
        (
            "ledger: {archive: {identity: /run/secrets/archive.key}}",
            "2:32: `ledger.archive.identity` cannot be used: line 1 is no identity of age with an X25519 key, `AGE-SECRET-KEY-1…`, nor a comment: it is misspelt, cut off or of another kind | keep it in the vault or in a file: `${vault:archive}`, `${file:/run/secrets/archive.key}`",
        ),
        (
            "ledger: {archive: {after_days: 90, delete_after_days: 900, recipients: [age1wkrmk6p6a08gggzkkpqj7p5vdu05mw7dhxav990fujg05l7hf39qax5xpr]}}",
            "2:57: `ledger.archive.delete_after_days` needs `ledger.archive.identity` where `ledger.archive.recipients` encrypt what is deleted: whether a hold keeps a segment is known to who reads it | set it, or delete by `ledger archive --delete --identity FILE`",
        ),
        (
            "http: {sessions_path: ./data/ledger.db}",
            "2:25: `http.sessions_path` is the file of `ledger.path` | give sessions a file of their own, or leave the key out for its default",
        ),
        (
            "workers: {count: 3, max_count: 2}",
            "2:34: there would be 3 workers (`workers.count`), and at most 2 (`workers.max_count`) | raise `workers.max_count`, or leave it out",
        ),
        (
            "development: yes",
            "2:16: `development` must be `true` or `false`, found `yes` | write `true`",
        ),
        (
            "app: 'my app'",
            "2:8: `app` must be `module[:attribute]` or `path.py[:attribute]`, found `my app` | -",
        ),
        (
            "logging: {level: WARN}",
            "2:20: `logging.level` must be one of `DEBUG`, `INFO`, `WARNING`, `ERROR`, found `WARN` | did you mean `WARNING`?",
        ),
        (
            "logging: {output: stdout}",
            "2:21: `logging.output` must be `stderr`, found `stdout` | standard output belongs to the protocol",
        ),
        (
            "ledger: {path: ''}",
            "2:18: `ledger.path` must be a path, found an empty text | -",
        ),
        (
            "tools: {include_skill: everything}",
            "2:26: `tools.include_skill` must be one of `full`, `excerpt`, `link`, `none`, found `everything` | -",
        ),
    ];
    for (line, expected) in rows {
        check_line(line, &format!("mcp-server.yaml:{expected}"));
    }
}

#[test]
fn rules_are_checked_as_strictly_as_anything() {
    let rows = [
        (
            "{currency: usd}",
            "26: `governance.currency` must be three capital letters such as `USD`, found `usd` | -",
        ),
        (
            "{default_quota: {monthly_budget: 0}}",
            "48: `governance.default_quota.monthly_budget` must be more than zero, found `0` | to forbid calls, use `deny` or `hide`",
        ),
        (
            "{default_quota: {monthly_budget: -5}}",
            "48: `governance.default_quota.monthly_budget` must be an amount such as 12.50, found `-5` | an amount cannot be negative",
        ),
        (
            "{default_quota: {monthly_budget: 1e3}}",
            "48: `governance.default_quota.monthly_budget` must be an amount such as 12.50, found `1e3` | write digits with at most one decimal point",
        ),
        (
            "{default_quota: {monthly_budget: .inf}}",
            "48: `governance.default_quota.monthly_budget` must be an amount such as 12.50, found `.inf` | write digits with at most one decimal point",
        ),
        (
            "{default_quota: {max_cost_per_call: 0.0000001}}",
            "51: `governance.default_quota.max_cost_per_call` must be an amount such as 12.50, found `0.0000001` | an amount has at most six digits after the decimal point",
        ),
        (
            "{default_quota: {max_calls_per_minute: 0}}",
            "54: `governance.default_quota.max_calls_per_minute` must be an integer from 1 to 1000000000, found `0` | leave the key out for its default",
        ),
        (
            "{default_quota: {max_calls_per_day: -1}}",
            "51: `governance.default_quota.max_calls_per_day` must be an integer from 1 to 1000000000, found `-1` | -",
        ),
        (
            "{default: {tools: {deny: ['']}}}",
            "41: `governance.default.tools.deny[0]` must be a pattern that is not empty, found an empty text | -",
        ),
        (
            "{default: {tools: {deny: }}}",
            "38: `governance.default.tools.deny` must be a list, found nothing | each element is a pattern that is not empty",
        ),
        (
            "{clients: {'': {}}}",
            "26: a name under `governance.clients` must be a text that is not empty | -",
        ),
        (
            "{clients: {'team-*': {}}}",
            "26: `governance.clients.\"team-*\"` is a name and cannot hold `*` | patterns go into the lists `allow`, `deny` and `hide`",
        ),
        (
            "{tools: {refund: {estimated_cost: cheap}}}",
            "49: `governance.tools.refund.estimated_cost` must be an amount such as 12.50, found `cheap` | write digits with at most one decimal point",
        ),
    ];
    for (rules, expected) in rows {
        check_line(
            &format!("governance: {rules}"),
            &format!("mcp-server.yaml:2:{expected}"),
        );
    }
}

#[test]
fn files_that_are_no_configuration_say_so() {
    let rows: [(&str, &[&str]); 16] = [
        ("", &[]),
        ("# nothing yet\n", &[]),
        ("mcp_server: {}\n", &[]),
        (
            "mcp_server:\n",
            &[
                "1:11: `mcp_server` must be a section, found nothing | write what it holds below it, indented; or `{}`, if that is nothing",
            ],
        ),
        (
            "mcp_server:\n  http: [1\n",
            &[
                "2:9: this is not valid YAML: unclosed bracket '[' | look for brackets, quotes and indentation at this place and before it",
            ],
        ),
        (
            "mcp_server:\n  governance: {confirm: [*]}\n",
            &[
                "2:26: `*` without quotes is a reference in YAML, and refers to nothing | put quotes around it: `\"*\"`",
            ],
        ),
        (
            "mcp_server:\n  governance: {confirm: [a, !x]}\n",
            &[
                "2:31: `governance.confirm[1]` must be a pattern that is not empty, found nothing | put quotes around it: `\"!x\"`; without them `!x` is a tag in YAML",
            ],
        ),
        (
            "mcp_server:\n  development: yes\n  governance: {enabled: Off}\n",
            &[
                "2:16: `development` must be `true` or `false`, found `yes` | write `true`",
                "3:25: `governance.enabled` must be `true` or `false`, found `Off` | write `false`",
            ],
        ),
        (
            "mcp_server:\n  http: {cors: true}\n",
            &[
                "2:16: `http.cors` must be a section, found `true` | write below it what it holds, indented: allowed_headers, allowed_methods, allowed_origins, enabled, max_age",
            ],
        ),
        (
            "mcp_server:\n  governance: {confirm: [a, *-b]}\n",
            &[
                "2:29: `*-b` without quotes is a reference in YAML, and refers to nothing | put quotes around it: `\"*-b\"`",
            ],
        ),
        (
            "mcp_server: &a [*a]\n",
            &[
                "1:17: a reference stands inside of what it refers to | no configuration needs that; look for references (`*name`) here",
            ],
        ),
        (
            "mcp_server:\n governance:\n  conditions:\n    a: {tool: x, when: args.amount + 1}\n",
            &[
                "4:24: `governance.conditions.a.when`: it is neither true nor false, whatever a call is like; compare it with something | write an expression such as `args.amount > 1000`",
            ],
        ),
        (
            "- mcp_server\n",
            &["1:1: the file must begin with `mcp_server:`, found a list | -"],
        ),
        (
            "mcp-server: {}\n",
            &[
                "1:1: unknown key `mcp-server` | the only key at the top of the file is `mcp_server`",
            ],
        ),
        (
            "transport: http\n",
            &["1:1: unknown key `transport` | move `transport` under `mcp_server:`"],
        ),
        (
            "mcp_server: {}\n---\nmcp_server: {}\n",
            &[
                "3:1: the file holds more than one YAML document | remove the line `---` and what belongs to the other document",
            ],
        ),
    ];
    for (file, expected) in rows {
        let expected: Vec<String> = expected
            .iter()
            .map(|expected| format!("mcp-server.yaml:{expected}"))
            .collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(file, &expected);
    }
}

#[test]
fn all_mistakes_are_reported_at_once_a_duplicate_key_included() {
    check(
        "mcp_server:\n  http: {port: x, prot: 1}\n  development: maybe\n  http: {}\n  \
         ledger: {path: a, path: b}\n",
        &[
            "mcp-server.yaml:4:3: the key `http` stands here a second time | keep one of the two",
            "mcp-server.yaml:5:21: the key `path` stands here a second time | keep one of the two",
            "mcp-server.yaml:2:16: `http.port` must be an integer from 0 to 65535, found `x` | -",
            "mcp-server.yaml:2:19: unknown key `http.prot` | did you mean `http.port`?",
            "mcp-server.yaml:3:16: `development` must be `true` or `false`, found `maybe` | -",
        ],
    );
}

#[test]
fn an_address_that_others_can_reach_needs_a_decision() {
    let refused = "other machines can reach `http.host` 0.0.0.0, and clients are not authenticated \
                   | configure `identity` (`api_keys: {}` is the shortest), listen on 127.0.0.1, or \
                   set `http.allow_anonymous: true` to serve anybody";
    check(
        "mcp_server:\n  transport: http\n  http:\n    host: 0.0.0.0\n",
        &[&format!("mcp-server.yaml:4:11: {refused}")],
    );
    check(
        "mcp_server:\n  transport: http\n  http: {host: '::1'}\n",
        &[],
    );
    check(
        "mcp_server:\n  transport: http\n  http: {host: '::', allow_anonymous: true}\n",
        &[],
    );
    // Nothing listens under stdio; the flag that changes that is what gets the blame's place.
    check("mcp_server:\n  http: {host: 0.0.0.0}\n", &[]);
    let overrides = Overrides {
        host: Some("0.0.0.0".into()),
        transport: Some(config::Transport::Http),
        ..Overrides::default()
    };
    let found = problems("", Environment::default(), overrides);
    assert_eq!(found, [format!("--host: {refused}")]);
}

#[test]
fn encryption_that_would_not_happen_is_refused() {
    let rows = [
        (
            "http: {tls: {enabled: true}}",
            "2:25: `http.tls.enabled: true` needs `http.tls.cert_file` and `http.tls.key_file` \
             | both are files in PEM: the chain of certificates, and the private key",
        ),
        (
            "http: {tls: {enabled: true, cert_file: c.pem}}",
            "2:25: `http.tls.enabled: true` needs `http.tls.key_file` \
             | both are files in PEM: the chain of certificates, and the private key",
        ),
        (
            "http: {tls: {verify_client: true}}",
            "2:31: `http.tls.verify_client: true` has no effect: `http.tls.enabled` is false \
             | set `http.tls.enabled: true`",
        ),
        (
            "http: {tls: {enabled: true, cert_file: c, key_file: k, verify_client: true}}",
            "2:73: `http.tls.verify_client: true` needs `http.tls.client_ca_file` \
             | name a file in PEM with the authorities that issue client certificates",
        ),
        (
            "http: {tls: {enabled: true, cert_file: c, key_file: k, client_crl_file: r}}",
            "2:75: `http.tls.client_crl_file` needs `http.tls.client_ca_file` \
             | name a file in PEM with the authorities that issue client certificates",
        ),
        (
            "http: {tcp: false, unix_socket: s, tls: {enabled: true, cert_file: c, key_file: k}}",
            "2:53: `http.tls.enabled: true` encrypts nothing: `http.tcp` is false \
             | a Unix socket is not encrypted; leave out one of the two",
        ),
    ];
    for (line, expected) in rows {
        check_line(line, &format!("mcp-server.yaml:{expected}"));
    }
    check_line(
        "http: {tls: {cert_file: c.pem, key_file: k.pem}}",
        "warning mcp-server.yaml:2:27: certificates are named, and `http.tls.enabled` is false \
         | set `http.tls.enabled: true` to encrypt",
    );
    check("mcp_server:\n  http: {tls: {enabled: false}}\n", &[]);
    let optional = "{enabled: true, cert_file: c, key_file: k, client_ca_file: a}";
    check(&format!("mcp_server:\n  http: {{tls: {optional}}}\n"), &[]);
}

#[test]
fn a_desk_that_others_could_reach_or_that_gives_rights_to_nobody_is_refused() {
    for (line, expected) in [
        (
            "desk: {enabled: true, host: 0.0.0.0}",
            "2:31: other machines can reach `desk.host` 0.0.0.0, and what they send is not encrypted or proves \
             nothing | listen on 127.0.0.1 (a proxy or `ssh -L` brings others there), or configure `identity` and \
             `http.tls` with `transport: http`",
        ),
        (
            "desk: {enabled: true, clients: {ana: viewer}}",
            "2:40: `desk.clients.ana` has no effect: clients are not authenticated here | configure `identity` \
             (`api_keys: {}` is the shortest), or leave it out: `owlclaw-mcp desk` signs the user of this machine \
             in",
        ),
    ] {
        check_line(line, &format!("mcp-server.yaml:{expected}"));
    }
    // What is off is asked nothing.
    check("mcp_server:\n  desk: {host: 0.0.0.0}\n", &[]);
    // Browsers are led to nothing that does more than show a page, and nothing that looks like another.
    let spaced = "its address has a space or an invisible character, or more than 2000 bytes";
    for (url, why) in [
        (
            "javascript:alert(1)",
            "its address must begin with http:// or https://",
        ),
        (
            "data:text/html,x",
            "its address must begin with http:// or https://",
        ),
        (
            "//grafana.example.com/",
            "its address must begin with http:// or https://",
        ),
        ("https://", "of its address, it names no host"),
        (
            "https://ana:hunter2@h/",
            "its address has a user or a password in front of the host",
        ),
        (
            "https://h:99999/",
            "of its address, its port is no number from 1 to 65535",
        ),
        ("https://h/a b", spaced),
        ("https://h/\u{202e}gpj", spaced),
        (
            "https://h\\\\@evil.example/",
            "of its address, it is no URL",
        ),
    ] {
        let line = format!("desk: {{enabled: true, links: {{Grafana: \"{url}\"}}}}");
        let expected = format!(
            "mcp-server.yaml:2:42: a link of `desk.links` cannot be used: {why} | write one such as `Grafana: \
             https://grafana.example.com/d/owlclaw`"
        );
        check_line(&line, &expected);
    }
    check(
        "mcp_server:\n  desk:\n    enabled: true\n    links: {Grafana: 'https://h:3000/d/x?a=b#c', logs: 'http://l/'}\n",
        &[],
    );
    let long = "x".repeat(41);
    for name in [" ", &long, "a\\u200bb"] {
        let line = format!("desk: {{enabled: true, links: {{\"{name}\": \"https://h/\"}}}}");
        let file = format!("mcp_server:\n  {line}\n");
        let told = problems(&file, Environment::default(), Overrides::default()).join("\n");
        assert!(
            told.contains("its name must have 1 to 40 characters"),
            "{told}"
        );
    }
}

#[test]
fn a_server_that_would_listen_nowhere_or_trust_nobody_in_particular_is_refused() {
    let rows = [
        (
            "http: {tcp: false}",
            "2:15: the server would listen nowhere: `http.tcp` is false \
             | set `http.unix_socket` to the path of a socket, or leave out `http.tcp`",
        ),
        (
            "http: {unix_socket: s, unix_socket_mode: rw}",
            "2:44: `http.unix_socket_mode` must be permissions in octal digits, found `rw` \
             | write \"0600\" for the server's user alone, \"0660\" for its group too",
        ),
        (
            "http: {trusted_proxies: [unix, 10.0.0.1/8]}",
            "2:27: `http.trusted_proxies`: `10.0.0.1/8`: this address is not the first of its \
             network; that is 10.0.0.0 \
             | name addresses of proxies, networks such as 10.0.0.0/8, or `unix`",
        ),
    ];
    for (line, expected) in rows {
        check_line(line, &format!("mcp-server.yaml:{expected}"));
    }
    // On a socket alone, no other machine can reach it.
    check(
        "mcp_server:\n  transport: http\n  http: {host: 0.0.0.0, tcp: false, unix_socket: s}\n",
        &[],
    );
}

#[test]
fn references_to_the_environment_are_followed_or_reported() {
    let file = "mcp_server:\n  http: {port: \"${PORT}\"}\n  app: ${HOME_OF_APP}/app.py\n";
    let environment = |port| Environment::from([("PORT", port), ("HOME_OF_APP", "/srv")]);
    assert_eq!(
        problems(file, environment("81"), Overrides::default()),
        [""; 0]
    );
    // What the variable holds is not repeated: it may be a secret.
    assert_eq!(
        problems(file, environment("s3cret"), Overrides::default()),
        [
            "mcp-server.yaml:2:16: `http.port` must be an integer from 0 to 65535, \
             found what `${PORT}` stands for | -"
        ]
    );
    assert_eq!(
        problems(file, Environment::default(), Overrides::default()),
        [
            "mcp-server.yaml:2:16: `http.port` refers to the environment variable `PORT`, \
             which is not set | set it, or write `${PORT:-default}`",
            "mcp-server.yaml:3:8: `app` refers to the environment variable `HOME_OF_APP`, \
             which is not set | set it, or write `${HOME_OF_APP:-default}`"
        ]
    );
    check_line(
        "app: ${X",
        "mcp-server.yaml:2:8: `app` has a malformed reference: it is `${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${vault:NAME}`, `${file:PATH}` or `${cmd:PROGRAM}` | write `$${` where `${` refers to nothing",
    );
}

#[test]
fn a_secret_of_several_lines_is_one_of_programs_and_holds_any_other_upstream() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("it can be written");
    };
    write("key.pem", "-----BEGIN KEY-----\nMIIB\n-----END KEY-----\n");
    write(
        "mcp-server.yaml",
        "mcp_server:\n  upstreams:\n    a: {command: cat, env: {KEY: '${file:key.pem}'}}\n    \
         b: {url: 'https://b.example', headers: {x-key: '${file:key.pem}'}}\n    \
         c: {url: 'https://c.example', headers: {x-key: plain}}\n",
    );
    let loaded = load(
        &Overrides::default(),
        &Environment::default(),
        directory.path(),
    );
    let loaded = loaded.expect("one upstream is no reason to stop the others");
    let upstreams = &loaded.config.upstreams;
    assert_eq!(upstreams["a"].unresolved, None);
    assert_eq!(upstreams["c"].unresolved, None);
    let why = upstreams["b"].unresolved.as_deref().unwrap_or_default();
    assert!(
        why.contains("`upstreams.b.headers.x-key` must be a text"),
        "{why}"
    );
    assert!(!why.contains("MIIB"), "{why}");
}

#[test]
fn references_to_files_are_followed_or_reported() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("it can be written");
    };
    write("port", "81\n");
    write("password", "hunter2\n");
    write(
        "mcp-server.yaml",
        "mcp_server:\n  http: {port: '${file:port}'}\n  \
         ledger: {url: 'postgres://u:${file:password}@h/d'}\n",
    );
    let load = || {
        load(
            &Overrides::default(),
            &Environment::default(),
            directory.path(),
        )
    };
    let config = load().expect("it is right").config;
    assert_eq!(config.http.port, 81);
    let url = config.ledger.url.expect("it is there");
    let revealed = url.reveal(&Environment::default());
    assert_eq!(revealed.as_deref(), Some("postgres://u:hunter2@h/d"));
    write("port", "hunter2\n");
    std::fs::remove_file(directory.path().join("password")).expect("it was there");
    let found: Vec<String> = load().unwrap_err().problems.iter().map(shown).collect();
    let place = directory.path().display();
    assert_eq!(
        found,
        [
            "mcp-server.yaml:2:16: `http.port` must be an integer from 0 to 65535, \
             found what `${file:port}` stands for | -"
                .to_owned(),
            format!(
                "mcp-server.yaml:3:17: `ledger.url` refers to the file `{place}/password`, which \
                 cannot be read: No such file or directory (os error 2) | a path that begins nowhere \
                 begins at the directory of the configuration"
            ),
        ]
    );
}

#[test]
fn owlclaw_mcp_token_without_identity_is_an_error() {
    let token = || Environment::from([("OWLCLAW_MCP_TOKEN", "s3cret")]);
    let told = |file| problems(file, token(), Overrides::default());
    let open = told("mcp_server: {transport: http}\n");
    assert_eq!(open.len(), 1, "{open:?}");
    let expected = "OWLCLAW_MCP_TOKEN: OWLCLAW_MCP_TOKEN is set, and this server does not check that token | have clients send a key instead";
    assert!(open[0].contains(expected), "{open:?}");
    assert!(!open[0].contains("s3cret"));
    let with_keys = told("mcp_server: {transport: http, identity: {api_keys: {}}}\n");
    assert!(with_keys[0].starts_with("warning"), "{with_keys:?}");
    assert_eq!(told("mcp_server: {transport: stdio}\n"), [""; 0]);
}

#[test]
fn variables_are_checked_like_keys() {
    let rows = [
        (
            ("MCP_SERVER_HTTP_PORT", "http"),
            "MCP_SERVER_HTTP_PORT: `http.port` must be an integer from 0 to 65535, found `http` | -",
        ),
        (
            ("MCP_SERVER_HTTP__CORS__ALLOWED_METHODS", "GET,,POST"),
            "MCP_SERVER_HTTP__CORS__ALLOWED_METHODS: `http.cors.allowed_methods` must be a name without spaces or separators, found `GET,,POST` | -",
        ),
        (
            ("MCP_SERVER_HTTP_PROT", "1"),
            "warning MCP_SERVER_HTTP_PROT: the environment variable `MCP_SERVER_HTTP_PROT` is unknown and ignored | did you mean `MCP_SERVER_HTTP_PORT`?",
        ),
        (
            ("MCP_SERVER_GOVERNANCE__DEFAULT__TOOLS__DENI", "pay"),
            "MCP_SERVER_GOVERNANCE__DEFAULT__TOOLS__DENI: the environment variable `MCP_SERVER_GOVERNANCE__DEFAULT__TOOLS__DENI` is unknown | did you mean `MCP_SERVER_GOVERNANCE__DEFAULT__TOOLS__DENY`?",
        ),
        (
            ("MCP_SERVER_GOVERNANCE_CONFIRM", "pay"),
            "MCP_SERVER_GOVERNANCE_CONFIRM: the environment variable `MCP_SERVER_GOVERNANCE_CONFIRM` is unknown | did you mean `MCP_SERVER_GOVERNANCE__CONFIRM`?",
        ),
        (
            ("mcp_server_governance__confirm", "pay"),
            "mcp_server_governance__confirm: the environment variable `mcp_server_governance__confirm` is unknown | did you mean `MCP_SERVER_GOVERNANCE__CONFIRM`?",
        ),
        (
            ("Mcp_Server_Governance__Clients__Ci", "x"),
            "Mcp_Server_Governance__Clients__Ci: `governance.clients` cannot be set in the environment | write it into the file",
        ),
        (
            ("MCP_SERVER_GOVERNENCE__CONFIRM", "pay"),
            "MCP_SERVER_GOVERNENCE__CONFIRM: the environment variable `MCP_SERVER_GOVERNENCE__CONFIRM` is unknown | did you mean `MCP_SERVER_GOVERNANCE__CONFIRM`?",
        ),
        (
            ("MCP_SERVER_LOGGING_LEVEL", "INFO"),
            "warning MCP_SERVER_LOGGING_LEVEL: the environment variable `MCP_SERVER_LOGGING_LEVEL` is unknown and ignored | did you mean `MCP_SERVER_LOGGING__LEVEL`?",
        ),
        (
            ("MCP_SERVER_GOVERNANCE__CLIENTS__CI__TOOLS__DENY", "x"),
            "MCP_SERVER_GOVERNANCE__CLIENTS__CI__TOOLS__DENY: `governance.clients` cannot be set in the environment | write it into the file",
        ),
        (
            ("MCP_SERVER_SKILLS_DIR", "${HOME}/skills"),
            "MCP_SERVER_SKILLS_DIR: `resources.skills_dir` must be written out here, since references are followed in the file alone, found `${HOME}/skills` | write the value itself, or put the reference into the file",
        ),
        (
            (
                "MCP_SERVER_HTTP__CORS__ALLOWED_ORIGINS",
                "https://a.example,${B}",
            ),
            "MCP_SERVER_HTTP__CORS__ALLOWED_ORIGINS: `http.cors.allowed_origins` must be written out here, since references are followed in the file alone, found `https://a.example,${B}` | write the value itself, or put the reference into the file",
        ),
        (
            ("MCP_SERVER_GOVERNANCE__TOOLS", "x"),
            "MCP_SERVER_GOVERNANCE__TOOLS: `governance.tools` cannot be set in the environment, found `x` | write it into the file",
        ),
    ];
    for (variable, expected) in rows {
        let found = problems("", Environment::from([variable]), Overrides::default());
        assert_eq!(found, [expected]);
    }
    let both = [
        ("MCP_SERVER_HTTP_PORT", "1"),
        ("MCP_SERVER_HTTP__PORT", "2"),
    ];
    assert_eq!(
        problems("", Environment::from(both), Overrides::default()),
        [
            "MCP_SERVER_HTTP__PORT: `http.port` is set by `MCP_SERVER_HTTP_PORT` and, differently, by \
          `MCP_SERVER_HTTP__PORT` | unset one of the two"
        ]
    );
    // An empty variable is an absent one.
    let empty = Environment::from([("MCP_SERVER_HTTP_PORT", ""), ("MCP_SERVER_X", "")]);
    assert_eq!(problems("", empty, Overrides::default()), [""; 0]);
}

#[test]
fn a_named_file_must_exist_and_be_text() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("latin.yaml"), b"mcp_server:\n  app: caf\xe9\n").expect("writable");
    std::fs::write(path("long.yaml"), vec![b'#'; 2 * 1024 * 1024]).expect("writable");
    let rows = [
        (
            "absent.yaml",
            "the configuration file cannot be read: No such file or directory (os error 2)",
        ),
        (
            ".",
            "the configuration file cannot be read: it is a directory, and no regular file: put a file in its place",
        ),
        (
            "latin.yaml",
            "the configuration file is not UTF-8: see line 2",
        ),
        (
            "long.yaml",
            "the configuration file cannot be read: it has more than 1048576 bytes",
        ),
    ];
    for (name, expected) in rows {
        let overrides = Overrides {
            config: Some(name.into()),
            ..Overrides::default()
        };
        let rejected = load(&overrides, &Environment::default(), directory.path()).unwrap_err();
        let found: Vec<String> = rejected.problems.iter().map(shown).collect();
        let hint = match name {
            "absent.yaml" => {
                "name the file that is there, or write one: owlclaw-mcp config init --output absent.yaml"
            }
            _ => "-",
        };
        assert_eq!(found, [format!("{name}: {expected} | {hint}")]);
    }
}

#[test]
fn paths_begin_where_they_were_written() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let etc = directory.path().join("etc");
    std::fs::create_dir(&etc).expect("it can be made");
    let file = "mcp_server:\n  resources: {skills_dir: ./skills}\n  python: .venv/bin/python\n";
    std::fs::write(etc.join("owl.yaml"), file).expect("it can be written");
    let overrides = Overrides {
        config: Some("etc/owl.yaml".into()),
        app: Some("src/app.py:app".into()),
        ..Overrides::default()
    };
    let load = |environment| {
        load(&overrides, &environment, directory.path())
            .expect("it is a good configuration")
            .config
    };
    let config = load(Environment::default());
    assert_eq!(config.resources.skills_dir, Some(etc.join("skills")));
    assert_eq!(config.ledger.path, etc.join("data/ledger.db"));
    assert_eq!(
        config.python.as_deref().map(Path::new),
        Some(&*etc.join(".venv/bin/python"))
    );
    let app = directory.path().join("src/app.py:app");
    assert_eq!(config.app.as_deref().map(Path::new), Some(&*app));
    let config = load(Environment::from([("MCP_SERVER_SKILLS_DIR", "here")]));
    assert_eq!(
        config.resources.skills_dir,
        Some(directory.path().join("here"))
    );
}

#[test]
fn commands_are_checked_before_anything_runs() {
    let schema = "input_schema: {type: object, properties: {warehouse: {type: string}}}";
    let run = |words: &str| format!("{{run: {words}, {schema}}}");
    let rows = [
        (
            "{description: x}".to_owned(),
            "36: `commands.export.run`: no program is named | write `run: [program, argument, ...]`",
        ),
        (
            run("export"),
            "28: `commands.export.run` must be a list, found `export` | write the program and its arguments as a list, `[export]`: no shell is asked",
        ),
        (
            run("['{warehouse}']"),
            "28: `commands.export.run`: the caller would choose the program: `{warehouse}` | name the program itself",
        ),
        (
            run("[x, '{warehose}']"),
            "28: `commands.export.run`: `{warehose}` is none of the tool's arguments | did you mean `{warehouse}`?",
        ),
        (
            run("[x, ['--to', '{where...}']]"),
            "28: `commands.export.run`: `{where}` is none of the tool's arguments | the properties are `warehouse`",
        ),
        (
            run("[x, '--{warehouse}']"),
            "28: `commands.export.run`: the caller would choose the option: `--{warehouse}` | write the option's name, as in `--name={name}`",
        ),
        (
            run("[x, '{warehouse']"),
            "28: `commands.export.run`: `{warehouse` has a brace that belongs to no placeholder | write `{name}`, `{name...}` or `{name?}`, and `{{` or `}}` for a brace",
        ),
        (
            run("[x, '{warehouse?}']"),
            "28: `commands.export.run`: `{warehouse?}` wants the type boolean, and `warehouse` has the type string | -",
        ),
        (
            run("[x, [[y]]]"),
            "33: `commands.export.run[1][0]` must be a text, found a list | -",
        ),
        (
            "{run: [x], success_exit_codes: [256]}".to_owned(),
            "54: `commands.export.success_exit_codes[0]` must be an integer from 0 to 255, found `256` | -",
        ),
        (
            "{run: [x], success_exit_codes: []}".to_owned(),
            "53: `commands.export.success_exit_codes` must not be empty | -",
        ),
        (
            "{run: [x], input_schema: 7}".to_owned(),
            "47: `commands.export.input_schema` must be a JSON Schema or a map of names | -",
        ),
        (
            "{run: [x], output: lines, output_schema: {type: object}}".to_owned(),
            "63: `commands.export.output_schema` describes JSON, and `output` is not | -",
        ),
        (
            "{run: [x], env: {TOKEN: '${NO_SUCH}'}}".to_owned(),
            "46: `commands.export.env.TOKEN` refers to the environment variable `NO_SUCH`, which is not set | set it, or write `${NO_SUCH:-default}`",
        ),
        (
            "{run: [x], stdn: json}".to_owned(),
            "33: unknown key `commands.export.stdn` | did you mean `commands.export.stdin`?",
        ),
    ];
    for (command, expected) in rows {
        check_line(
            &format!("commands: {{export: {command}}}"),
            &format!("mcp-server.yaml:2:{expected}"),
        );
    }
    check_line(
        "commands: {'stock export': {run: [x]}}",
        "mcp-server.yaml:2:36: `commands.\"stock export\"` is no name for a tool \
         | a name is 1 to 128 of the characters A-Z a-z 0-9 _ . -",
    );
    // Parameters in short.
    check_line_is_fine("commands: {x: {run: [x, '{a}'], input_schema: {a: string}}}");
}

#[track_caller]
fn check_line_is_fine(line: &str) {
    check(&format!("mcp_server:\n  {line}\n"), &[]);
}

#[test]
fn rules_are_checked_as_a_whole() {
    let rows = [
        (
            "roles: {teller: {tool: {}}}",
            "33: unknown key `governance.roles.teller.tool` | did you mean `governance.roles.teller.tools`?",
        ),
        (
            "clients: {ana: {roles: [tellr]}}, roles: {teller: {}}",
            "39: `governance.clients.ana.roles`: there is no role `tellr` | did you mean `teller`?",
        ),
        (
            "clients: {ana: {roles: [boss]}}",
            "39: `governance.clients.ana.roles`: there is no role `boss` | roles are described under `governance.roles`",
        ),
        (
            "conditions: {large: {tool: pay}}",
            "43: `governance.conditions.large` has no `when` | write an expression such as `when: args.amount > 1000`",
        ),
        (
            "roles: {teller: {conditions: {large: {effect: deny}}}}",
            "62: `governance.roles.teller.conditions.large` has no `when` | write an expression such as `when: args.amount > 1000`",
        ),
        (
            "conditions: {large: {when: 'true', effect: denied}}",
            "59: `governance.conditions.large.effect` must be one of `deny`, `confirm`, `allow_only`, found `denied` | -",
        ),
        (
            "tools: {pay: {risk: [finacial]}}",
            "37: `governance.tools.pay.risk[0]` must be one of `read_only`, `mutating`, `external`, `financial`, found `finacial` | did you mean `financial`?",
        ),
        (
            "tools: {pay: {risk: [read_only, mutating]}}",
            "36: `governance.tools.pay.risk`: what is `read_only` changes nothing | leave out `read_only` or the other",
        ),
        (
            "tools: {pay: {risk: [financial], confirmation: none}}",
            "63: `governance.tools.pay.confirmation`: what moves money must be confirmed | take `financial` out of `risk`, if it does not move any",
        ),
        (
            "tools: {pay: {windows: ['Mon-Fry 10:00-12:00']}}",
            "40: `governance.tools.pay.windows[0]` must be days, hours and a time zone, found `Mon-Fry 10:00-12:00` | `Fry` is no day: write Mon, Tue, Wed, Thu, Fri, Sat or Sun",
        ),
        (
            "tools: {pay: {windows: [always]}}",
            "40: `governance.tools.pay.windows[0]` must be days, hours and a time zone, found `always` | write `Mon-Fri 09:30-15:00 Asia/Shanghai`",
        ),
        (
            "trading_hours: ['25:00-26:00']",
            "32: `governance.trading_hours[0]` must be days, hours and a time zone, found `25:00-26:00` | `25:00` is no time of the day: write 09:30",
        ),
        (
            "conditions: {x: {when: 'args.amount >'}}",
            "39: `governance.conditions.x.when`: line 1, column 14: Syntax error: mismatched input '<EOF>' expecting expression | write an expression such as `args.amount > 1000`",
        ),
        (
            "conditions: {x: {when: 'argz.amount > 1'}}",
            "39: `governance.conditions.x.when`: there is no variable \"argz\"; there are `args`, `principal`, `roles` and `capability` | write an expression such as `args.amount > 1000`",
        ),
        (
            "clients: {ana: {conditions: {x: {when: '1 +'}}}}",
            "55: `governance.clients.ana.conditions.x.when`: line 1, column 4: Syntax error: mismatched input '<EOF>' expecting expression | write an expression such as `args.amount > 1000`",
        ),
        (
            "tools: {pay: {windows: []}}",
            "39: `governance.tools.pay.windows` must not be empty | to forbid calls, use `deny` or `hide`",
        ),
        (
            "trading_hours: ['9:00-10:00 Mars/Base']",
            "32: `governance.trading_hours[0]` must be days, hours and a time zone, found `9:00-10:00 Mars/Base` | `Mars/Base` is no time zone: write one such as Europe/Berlin or UTC",
        ),
        (
            "trading_hours: ['9:00-10:00 UTC', '9:00-10:00 Asia/Tokyo']",
            "31: `governance.trading_hours`: the hours are in several time zones | write all of them in one",
        ),
        (
            "tools: {pay: {breaker: {failure: 3}}}",
            "40: unknown key `governance.tools.pay.breaker.failure` | did you mean `governance.tools.pay.breaker.failures`?",
        ),
        (
            "tools: {pay: {cooldown_seconds: 0}}",
            "48: `governance.tools.pay.cooldown_seconds` must be an integer from 1 to 31536000, found `0` | leave the key out for its default",
        ),
        (
            "approvals: {expire_seconds: 0}",
            "44: `governance.approvals.expire_seconds` must be an integer from 1 to 2592000, found `0` | leave the key out for its default",
        ),
        (
            "approvals: {http_token: fifteen-letters}",
            "40: `governance.approvals.http_token` must have 16 characters at least | a shorter one could be guessed; `openssl rand -hex 32` makes a good one",
        ),
        (
            "approvals: {http_token: '${NO_SUCH}'}",
            "40: `governance.approvals.http_token` refers to the environment variable `NO_SUCH`, which is not set | set it, or write `${NO_SUCH:-default}`",
        ),
        (
            "idempotency: {keep: 3}",
            "30: unknown key `governance.idempotency.keep` | did you mean `governance.idempotency.keep_seconds`?",
        ),
    ];
    for (rules, expected) in rows {
        check_line(
            &format!("governance: {{{rules}}}"),
            &format!("mcp-server.yaml:2:{expected}"),
        );
    }
}

#[test]
fn rules_over_addresses_have_the_spelling_of_addresses() {
    let file = |rules: &str| {
        format!(
            "mcp_server:\n  resources:\n    files: {{a: {{path: .}}}}\n    databases: {{d: {{path: ./d.db}}}}\n  \
             {rules}\n"
        )
    };
    for (written, right) in [
        ("files://a/\u{e9}.txt", "files://a/%C3%A9.txt"),
        ("files://a/ sp .txt", "files://a/%20sp%20.txt"),
        ("files://a/%70riv/*", "files://a/priv/*"),
        ("files://*/%c3%a9.txt", "files://*/%C3%A9.txt"),
        ("files://a/x/../priv/*", "files://a/priv/*"),
        ("files://a/priv/", "files://a/priv/*"),
        ("db://d/queries/q?a=1", "db://d/queries/q"),
    ] {
        for (rules, key) in [
            (
                "governance: {default: {resources: {deny: [R]}}}",
                "governance.default.resources.deny[0]",
            ),
            (
                "governance: {roles: {r: {resources: {allow: [R]}}}}",
                "governance.roles.r.resources.allow[0]",
            ),
            (
                "governance: {clients: {c: {resources: {hide: [R]}}}}",
                "governance.clients.c.resources.hide[0]",
            ),
            (
                "filters: {f: {resources: [R], action: deny}}",
                "filters.f.resources[0]",
            ),
        ] {
            let file = file(&rules.replace('R', &format!("\"{written}\"")));
            let found = problems(&file, Environment::default(), Overrides::default());
            let expected = format!(
                "`{key}`: `{written}` can match no address, since none is spelt so | write `{right}`"
            );
            assert!(
                found.iter().any(|it| it.contains(&expected)),
                "{file}: {found:?}"
            );
        }
    }
    for right in [
        "files://a/{+path}",
        "files://*",
        "files://b/\u{e9}",
        "doc://a/../b",
        "db://d/tables/{table}{?offset}",
    ] {
        let rules = format!("governance: {{default: {{resources: {{hide: [\"{right}\"]}}}}}}");
        let found = problems(&file(&rules), Environment::default(), Overrides::default());
        assert!(
            !found.iter().any(|it| it.contains("spelt so")),
            "{right}: {found:?}"
        );
    }
}

#[test]
fn media_types_of_files_are_by_pattern() {
    check_line_is_fine("resources: {files: {a: {path: logs, types: {\"*.log\": text/x-log}}}}");
}

#[test]
fn directories_of_files_share_nothing_and_have_nothing_of_the_server() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let directory = directory.path();
    for path in ["notes", "capabilities/shop", "data"] {
        std::fs::create_dir_all(directory.join(path)).expect("it can be made");
    }
    std::fs::write(directory.join("data/ledger.db"), "").expect("it can be written");
    let found = |files: &str| {
        let file = format!("mcp_server:\n  resources:\n    files:\n      {files}\n");
        std::fs::write(directory.join("mcp-server.yaml"), file).expect("it can be written");
        match load(&Overrides::default(), &Environment::default(), directory) {
            Ok(loaded) => loaded.warnings.iter().map(shown).collect::<Vec<_>>(),
            Err(rejected) => rejected.problems.iter().map(shown).collect(),
        }
    };
    let one = |files: &str, expected: &str| {
        let found = found(files);
        assert!(
            found.iter().any(|it| it.contains(expected)),
            "{files}: {found:?}"
        );
    };
    let both = "notes: {path: notes}\n      all: {path: ., writable: true}";
    one(
        both,
        "mcp-server.yaml:4:21: `resources.files.notes.path`: its directory is `notes` of `all`",
    );
    one(
        both,
        "exclude it there: `resources.files.all.exclude: [\"notes/**\"]`",
    );
    one(
        "all: {path: .}",
        "warning mcp-server.yaml:4:19: `resources.files.all.path`: `capabilities` and `data/ledger.db` and `mcp-server.yaml` are",
    );
    one(
        "a: {path: capabilities/shop}",
        "`resources.files.a.path` is, or lies in, ",
    );
    assert_eq!(found("notes: {path: notes}"), Vec::<String>::new());
    let apart = "all: {path: ., exclude: [\"notes/**\", \"capabilities/**\", \"data/**\", \"mcp-server.yaml\"]}";
    assert_eq!(found(apart), Vec::<String>::new());
}

#[test]
fn the_ledger_is_one_and_redaction_knows_its_pointers() {
    let rows = [
        (
            "ledger: {url: 'mysql://db/owl'}",
            "17: `ledger.url` must be the address of a PostgreSQL database | write `postgres://user:${PASSWORD}@host/database`",
        ),
        (
            "ledger: {url: 'hunter2'}",
            "17: `ledger.url` must be the address of a PostgreSQL database | write `postgres://user:${PASSWORD}@host/database`",
        ),
        (
            "ledger: {url: 'postgres://u:hunter2@db/owl', path: x.db}",
            "17: `ledger.url` and `ledger.path` are two ledgers | keep one of the two",
        ),
        (
            "ledger: {checkpoint: {entry: 1}}",
            "25: unknown key `ledger.checkpoint.entry` | did you mean `ledger.checkpoint.entries`?",
        ),
        (
            "ledger: {max_wait_seconds: 0}",
            "30: `ledger.max_wait_seconds` must be an integer from 1 to 600, found `0` | leave the key out for its default",
        ),
        (
            "redaction: {pointers: {'pay-*': [card]}}",
            "36: `redaction.pointers.\"pay-*\"[0]` must be a JSON Pointer such as `/customer/name`, found `card` | each part begins with `/`; `*` is any element",
        ),
        (
            "redaction: {detectors: {card: false}}",
            "27: unknown key `redaction.detectors.card` | did you mean `redaction.detectors.cards`?",
        ),
        (
            "redaction: {key: [x]}",
            "15: unknown key `redaction.key` | did you mean `redaction.keys`?",
        ),
    ];
    let more = [
        (
            "redaction: {keys: ['--']}",
            "21: `redaction.keys`: the name \"--\" cannot be used: it needs a letter or a digit, and all of them together must not be too long | -",
        ),
        (
            "redaction: {pointers: {'pay-*': ['/a~3']}}",
            "35: `redaction.pointers.\"pay-*\"`: the pointer \"/a~3\" for \"tool/pay-*\" is not a JSON pointer: a `~` must be followed by `0` or `1` | -",
        ),
    ];
    for (line, expected) in rows.into_iter().chain(more) {
        check_line(line, &format!("mcp-server.yaml:2:{expected}"));
    }
    check_line_is_fine("redaction: {pointers: {'pay-*': ['/card/*/number']}}");
}

#[test]
fn headers_of_the_transport_are_none_of_an_upstreams() {
    for header in ["Mcp-Session-Id", "content-type", "Last-Event-ID"] {
        let line = format!("upstreams: {{a: {{url: 'https://h', headers: {{{header}: x}}}}}}");
        let file = format!("mcp_server:\n  {line}\n");
        let mut found = problems(&file, Environment::default(), Overrides::default());
        // One of them is written out like a secret, which is beside the point.
        found.retain(|it| !it.starts_with("warning"));
        let expected = format!("`upstreams.a.headers.{header}` is set by the transport");
        assert!(
            found.len() == 1 && found[0].contains(&expected),
            "{found:?}"
        );
    }
}

#[test]
fn a_url_whose_port_does_not_fit_is_refused_wherever_one_is_written() {
    let port = "port is no number from 1 to 65535";
    let rows = [
        ("ledger: {url: 'postgres://u@h:99999/d'}", "`ledger.url`"),
        (
            "alerts: {webhooks: {a: {secret: s, url: 'https://h:99999/x'}}}",
            "`alerts.webhooks.a.url`",
        ),
        (
            "alerts: {webhooks: {a: {secret: s, url: 'https://${H}:0/x'}}}",
            "`alerts.webhooks.a.url`",
        ),
        (
            "telemetry: {otlp: {endpoint: 'http://h:99999'}}",
            "`telemetry.otlp.endpoint`",
        ),
        (
            "upstreams: {a: {url: 'wss://h:70000'}}",
            "`upstreams.a.url`",
        ),
        (
            "identity: {resource: 'https://r:99999/mcp'}",
            "`identity.resource`",
        ),
        (
            "identity: {resource: 'https://r/mcp', jwt: {a: {issuer: 'https://i:99999'}}}",
            "`identity.jwt.a.issuer`",
        ),
        (
            "identity: {resource: 'https://r/mcp', jwt: {a: {issuer: 'https://i', jwks_url: 'https://i:99999'}}}",
            "`identity.jwt.a.jwks_url`",
        ),
    ];
    for (line, place) in rows {
        let file = format!("mcp_server:\n  {line}\n");
        let problems = problems(&file, Environment::from([("H", "h")]), Overrides::default());
        let is_told = |it: &String| it.contains(place) && it.contains(port);
        assert!(problems.iter().any(is_told), "{line}: {problems:?}");
    }
}

#[test]
fn keys_of_langfuse_are_sent_only_to_an_address_that_can_take_them() {
    let of = |url: &str| {
        let line = format!("costs: {{langfuse: {{url: '{url}', public_key: p, secret_key: s}}}}");
        let environment = Environment::from([("HOST", "langfuse.example"), ("URL", "http://h")]);
        let file = format!("mcp_server:\n  {line}\n");
        let mut found = problems(&file, environment, Overrides::default());
        found.retain(|it| it.contains("`costs.langfuse.url`"));
        found.join("; ")
    };
    let fine = [
        "https://cloud.langfuse.com",
        "https://${HOST}/",
        "http://localhost:3000",
        "http://127.0.0.1:3000",
        "http://[::1]:3000",
    ];
    for url in fine {
        assert_eq!(of(url), "", "{url}");
    }
    for url in ["http://langfuse.example", "http://${HOST}:3000", "${URL}"] {
        assert!(
            of(url).contains("is plain http to another machine"),
            "{url}"
        );
    }
    for url in ["https://h/api", "https://${HOST}/?a=b"] {
        assert!(of(url).contains("has a path"), "{url}");
    }
    assert!(of("ftp://h").contains("must begin with https:// or http://"));
    let alone = "mcp_server:\n  costs: {langfuse: {secret_key: s}}\n";
    let found = problems(alone, Environment::default(), Overrides::default());
    let is_told = |it: &String| it.contains("there is no `costs.langfuse.url`");
    assert!(found.iter().any(is_told), "{found:?}");
}

#[test]
fn identity_that_would_prove_nothing_is_refused() {
    let issuer = "issuer: https://i.example, jwks_url: https://i.example/keys";
    let rows = [
        (
            "identity: {operator_roles: [boss]}".to_owned(),
            "`identity` has no method of authentication | add `api_keys: {}`, \
             `jwt`, `introspection` or `certificates`, or remove the section",
        ),
        (
            format!("identity: {{jwt: {{a: {{{issuer}}}}}}}"),
            "`identity.jwt` needs `identity.resource` | write the address of the endpoint, such as \
             `https://tools.example.com/mcp`",
        ),
        (
            format!("identity: {{resource: /mcp, jwt: {{a: {{{issuer}}}}}}}"),
            "`identity.resource` must be the address of the endpoint: it begins with none of the \
             schemes that are supported here | write it as clients do, such \
             as `https://tools.example.com/mcp`",
        ),
        (
            "identity: {resource: 'https://r.example/mcp', jwt: {a: {issuer: 'https://i.example', \
             jwks_url: 'http://i.example/keys'}}}"
                .to_owned(),
            "`identity.jwt.a.jwks_url` must begin with `https://` | an attacker who can change the \
             keys in transit can claim any identity",
        ),
        (
            "identity: {resource: 'https://r.example/mcp', jwt: {a: {issuer: 'http://i.example'}}}"
                .to_owned(),
            "`identity.jwt.a` does not say where the issuer's keys are | an issuer whose address \
             begins with `https://` and has no query is asked itself; else name `jwks_url` or \
             `jwks_file`",
        ),
        (
            format!(
                "identity: {{resource: 'https://r.example/mcp', jwt: {{a: {{{issuer}, \
                 jwks_file: j.json}}}}}}"
            ),
            "`identity.jwt.a.jwks_url` and `jwks_file` are two sets of keys | the issuer's \
             `/.well-known/openid-configuration` has it as `jwks_uri`",
        ),
        (
            format!(
                "identity: {{resource: 'https://r.example/mcp', jwt: {{a: {{{issuer}, algorithms: [HS256]}}}}}}"
            ),
            "`identity.jwt.a.algorithms[0]` must be one of `RS256`, `RS384`, `RS512`, `PS256`, \
             `PS384`, `PS512`, `ES256`, `ES384`, `EdDSA`, found `HS256` | tokens must be signed with a key whose public half is published: whoever can verify an HS token can make one, and `none` is no signature",
        ),
        (
            format!(
                "identity: {{resource: 'https://r.example/mcp', jwt: {{a: {{{issuer}}}, \
                 b: {{issuer: 'https://j.example', jwks_file: j.json, principal_prefix: x}}}}}}"
            ),
            "of the issuers in `identity`, `a` and `b` could make the same principal: give each a \
             `principal_prefix`, neither the beginning of the other | such as `corp:` and `partner:`",
        ),
        (
            "identity: {resource: 'https://r.example/mcp', introspection: {issuer: 'https://i.example', \
             url: 'http://i.example/ask', client_id: x, client_secret: '${X}'}}"
                .to_owned(),
            "`identity.introspection.url` must begin with `https://` | the issuer's \
             `/.well-known/oauth-authorization-server` has it as `introspection_endpoint`; who can change answers \
             on their way can be anybody",
        ),
        (
            "identity: {resource: 'https://r.example/mcp', introspection: {issuer: 'https://i.example', \
             url: 'https://i.example/ask', client_id: x}}"
                .to_owned(),
            "`identity.introspection.client_secret` is missing: issuers answer known clients alone | register this \
             server with the issuer as a client that may introspect tokens",
        ),
        (
            format!(
                "identity: {{resource: 'https://r.example/mcp', jwt: {{a: {{{issuer}}}}}, introspection: \
                 {{issuer: 'https://j.example', url: 'https://j.example/ask', client_id: x, client_secret: '${{X}}'}}}}"
            ),
            "of the issuers in `identity`, `a` and `introspection` could make the same principal: give each a \
             `principal_prefix`, neither the beginning of the other | such as `corp:` and `partner:`",
        ),
        (
            "identity: {stdio: required, certificates: {}}".to_owned(),
            "`identity.stdio: required` needs keys | add `api_keys: {}` and make a key with \
             `owlclaw-mcp keys create`",
        ),
        (
            format!(
                "identity: {{resource: 'https://r.example/mcp', api_keys: {{}}, jwt: {{a: {{{issuer}}}}}}}"
            ),
            "the tokens of `a` and API keys could make the same principal | give them a \
             `principal_prefix` such as `corp:`, or say `identity.shared_principals: true` if who has \
             the name there is to be who has the key",
        ),
        (
            "identity: {api_keys: {}, certificates: {}}".to_owned(),
            "certificates and API keys could make the same principal | give them a \
             `principal_prefix` such as `corp:`, or say `identity.shared_principals: true` if who has \
             the name there is to be who has the key",
        ),
    ];
    for (line, expected) in rows {
        let found = problems(
            &format!("mcp_server:\n  {line}\n"),
            Environment::default(),
            Overrides::default(),
        );
        // In its line; the column is that of the key, or of what stands beside it.
        let is_it =
            |found: &String| found.starts_with("mcp-server.yaml:2:") && found.ends_with(expected);
        assert!(found.iter().any(is_it), "{line}\n{expected}\n{found:#?}");
    }
}

#[test]
fn keys_and_tokens_are_kept_apart_or_meant_to_be_one() {
    let token = "resource: 'https://r.example/mcp', jwt: {a: {issuer: 'https://i.example', \
                 jwks_file: j.json";
    check_line_is_fine(&format!("identity: {{{token}}}}}}}"));
    check_line_is_fine(&format!(
        "identity: {{api_keys: {{}}, {token}, principal_prefix: 'a:'}}}}}}"
    ));
    check_line_is_fine(&format!(
        "identity: {{api_keys: {{}}, shared_principals: true, {token}}}}}}}"
    ));
}

#[test]
fn secrets_of_upstreams_that_are_written_out_are_told_and_not_shown() {
    let file = "mcp_server:
  upstreams:
    a:
      command: x
      args: [--api-key, plainplain, --token=plainplain, 'postgres://u:plainplain@h/d', --port, '80']
      env: {DB_PASS: plainplain, REGION: eu, B: '${A_KEY:-plainplain}', C_KEY: '${C:-}'}
    b:
      url: 'https://h/mcp?key=plainplain&x=1'
      headers: {X-Auth: plainplain, Authorization: 'Bearer ${C:-}'}
";
    let told = problems(file, Environment::default(), Overrides::default());
    let keys = [
        "a.env.B",
        "a.env.DB_PASS",
        "a.args",
        "b.headers.X-Auth",
        "b.url",
    ];
    assert_eq!(told.len(), keys.len(), "{told:?}");
    for (told, key) in told.iter().zip(keys) {
        let message =
            format!("`upstreams.{key}` has what looks like a secret, and it is written out");
        assert!(
            told.starts_with("warning mcp-server.yaml:") && told.contains(&message),
            "{told}"
        );
    }
    let directory = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(directory.path().join("mcp-server.yaml"), file).expect("it can be written");
    let loaded = load(
        &Overrides::default(),
        &Environment::default(),
        directory.path(),
    )
    .unwrap();
    let shown: Vec<String> = loaded.settings().iter().map(ToString::to_string).collect();
    let shown = shown.join("\n");
    assert!(!shown.contains("plainplain"), "{shown}");
    for part in [
        r#"["--api-key","(secret)","--token=(secret)","postgres://u:(secret)@h/d","--port","80"]"#,
        "https://h/mcp?key=(secret)&x=1",
        "${A_KEY:-(secret)}",
        r#"REGION: "eu""#,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(loaded.has_written_secrets());
}

#[test]
fn what_is_for_roles_that_nobody_has_or_for_nobody_is_told() {
    let unknown = |key: &str| {
        let warned = format!(
            "`{key}` has `nosuch`, which is no role of `governance.roles`: only a key or token can bring it"
        );
        format!("{warned} | correct it, or add it to `governance.roles`")
    };
    let nobody = "`tools.search_view` is nobody's: it has neither `clients` nor `roles` | name the clients that have it, \
                  or leave it out";
    let no_limit = "`results.limits` has no limit: no result is shortened | name a limit under it, or leave it out";
    let rows = [
        (
            "results: {limits: {l: {roles: [nosuch], max_characters: 8000}}}",
            unknown("results.limits.l.roles"),
        ),
        (
            "tools: {search_view: {roles: [nosuch]}}",
            unknown("tools.search_view.roles"),
        ),
        (
            "filters: {f: {action: refuse, roles: [nosuch]}}",
            unknown("filters.f.roles"),
        ),
        ("tools: {search_view: {direct: [echo]}}", nobody.to_owned()),
        ("tools: {search_view: null}", nobody.to_owned()),
        ("results: {limits: null}", no_limit.to_owned()),
        ("results: {limits: {}}", no_limit.to_owned()),
    ];
    for (line, expected) in rows {
        let file = format!("mcp_server:\n  {line}\n");
        let found = problems(&file, Environment::default(), Overrides::default());
        let is_told = found
            .iter()
            .any(|it| it.starts_with("warning ") && it.ends_with(&expected));
        assert!(is_told, "{line}: {found:?}");
    }
    check_line_is_fine("tools: {search_view: {clients: [a]}}");
}

#[test]
fn a_reference_in_a_name_is_no_name() {
    let hint = "write the name itself: references stand in values alone";
    for (line, path) in [
        (
            r#"governance: {clients: {"${AGENT}": {}}}"#,
            "governance.clients",
        ),
        (
            r#"governance: {roles: {"${AGENT}": {}}}"#,
            "governance.roles",
        ),
        (r#"upstreams: {"${AGENT}": {command: x}}"#, "upstreams"),
        (
            r#"governance: {tools: {"${AGENT}": {}}}"#,
            "governance.tools",
        ),
    ] {
        let column = line.find('"').expect("it has a name") + 3;
        check_line(
            line,
            &format!(
                "mcp-server.yaml:2:{column}: `{path}.\"${{AGENT}}\"` is a name, and a reference in one refers to nothing | {hint}"
            ),
        );
    }
}

#[test]
fn a_program_that_prints_a_key_has_a_name() {
    check_line(
        "vault: {key_command: []}",
        "mcp-server.yaml:2:24: `vault.key_command` names no program | write the program and its arguments, or leave the key out",
    );
}

#[test]
fn a_pointer_to_nothing_that_its_tools_take_or_give_is_told() {
    use serde_json::json;
    use std::sync::Arc;

    let of = |names: &[&str]| {
        let members = names
            .iter()
            .map(|it| ((*it).to_owned(), json!({"type": "integer"})));
        let properties: serde_json::Map<_, _> = members.collect();
        Arc::new(json!({"type": "object", "properties": properties}))
    };
    let offered = config::OnOffer {
        tools: ["pay", "pay-in", "order"]
            .map(|it| (it.into(), it.into()))
            .into(),
        schemas: [
            ("pay".to_owned(), (of(&["note", "amount"]), None)),
            ("pay-in".to_owned(), (of(&["card"]), None)),
            ("order".to_owned(), (of(&["sum"]), Some(of(&["number"])))),
        ]
        .into(),
        ..config::OnOffer::default()
    };
    let told = |pointers: serde_json::Value, unheard: &[&str]| {
        let text = json!({"mcp_server": {"redaction": {"pointers": pointers}}}).to_string();
        let text = config::Text {
            name: "given".to_owned(),
            text,
        };
        let loaded = config::load_texts(&[text], &Environment::default(), Path::new("/"));
        let loaded = loaded.expect("it is right");
        let unheard = unheard.iter().map(|it| (*it).to_owned()).collect();
        let offered = config::OnOffer {
            unheard,
            ..offered.clone()
        };
        let problems = loaded.unmatched(&offered);
        let problems = problems
            .into_iter()
            .map(|it| format!("{} | {}", it.message, it.hint.unwrap_or_default()));
        problems.collect::<Vec<_>>()
    };
    assert_eq!(
        told(json!({"pay": ["/note", "/notte"]}), &[]),
        [
            "`redaction.pointers.pay[1]`: no tool that `pay` matches takes anything at `/notte` | did you mean `/note`?"
        ]
    );
    // A member of a result, perhaps.
    assert_eq!(
        told(json!({"pay": ["/receipt/iban", "/amount/x"]}), &[]),
        [""; 0]
    );
    // Nothing more is given.
    assert_eq!(
        told(
            json!({"order": ["/sum", "/number", "/nummber", "/xyz"]}),
            &[]
        ),
        [
            "`redaction.pointers.order[2]`: no tool that `order` matches takes or gives anything at `/nummber` | did you mean `/number`?",
            "`redaction.pointers.order[3]`: no tool that `order` matches takes or gives anything at `/xyz` | `tools list --format json` has the schemas of tools",
        ]
    );
    // One of several tools has it; another may have it.
    assert_eq!(told(json!({"pay*": ["/card", "/note"]}), &[]), [""; 0]);
    assert_eq!(told(json!({"pay*": ["/notte"]}), &[]).len(), 1);
    assert_eq!(told(json!({"pay*": ["/notte"]}), &["pay_"]), [""; 0]);
}
