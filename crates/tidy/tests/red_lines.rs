//! Red lines of founding document 003, §9, as far as a look at the sources can hold them. What types and tests of
//! behaviour hold is in `docs/requirements.md`.

use std::path::Path;

use tidy::{files, packages, text};

/// Places outside of `config` that read the environment of the process, each with the number of lines and its reason.
/// What a server is *configured* with comes from `config` alone.
const READERS: &[(&str, usize, &str)] = &[
    (
        "crates/adapter-skills/src/host.rs",
        2,
        "what a skill needs of the machine: programs and variables, of which only the names are kept",
    ),
    (
        "crates/adapter-tools/src/command/mod.rs",
        1,
        "`PATH`, where programs are found",
    ),
    (
        "crates/adapter-tools/src/python/launcher/process.rs",
        1,
        "`PYTHONPATH`, which a worker inherits",
    ),
    (
        "crates/gateway/src/manager.rs",
        1,
        "founding document 002: a manager without our configuration",
    ),
    (
        "crates/mcp-client/src/wire/child.rs",
        1,
        "what children inherit",
    ),
    (
        "crates/oauth-client/src/options.rs",
        1,
        "a client's secret, which the embedder has named",
    ),
    (
        "crates/oauth-client/src/store.rs",
        1,
        "home of a user whose logins are kept",
    ),
    (
        "crates/operator/src/calling.rs",
        1,
        "the operator's own key",
    ),
    (
        "crates/operator/src/client/contact.rs",
        2,
        "credentials that the command line names",
    ),
    (
        "crates/operator/src/running.rs",
        1,
        "the operator's own key",
    ),
    (
        "crates/operator/src/secrets.rs",
        1,
        "whether a variable is set, to tell the operator",
    ),
    ("crates/operator/src/terminal.rs", 1, "colours"),
    (
        "crates/operator/src/edit.rs",
        1,
        "`PATH`, to tell whether a program is there",
    ),
    (
        "crates/server/src/application.rs",
        2,
        "`PYTHONPATH` and `VIRTUAL_ENV` of the application",
    ),
    (
        "crates/server/src/identity.rs",
        1,
        "the proof of the client that started the server",
    ),
    (
        "crates/server/src/stdio.rs",
        1,
        "the name of the client that started the server",
    ),
    (
        "crates/server/src/supervisor.rs",
        2,
        "the socket of systemd",
    ),
    (
        "crates/server/src/upstreams.rs",
        1,
        "references of hosts' files, which are not our configuration",
    ),
];

/// The lines of a source that are shipped: those before the tests at its foot, and no comments.
fn shipped(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.lines().enumerate();
    let lines = lines.take_while(|(_, line)| *line != "#[cfg(test)]");
    let lines = lines.map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Sources of what is shipped.
fn sources() -> Vec<std::path::PathBuf> {
    let mut found = files(&[".rs"]);
    found.retain(|path| {
        let path = path.to_string_lossy();
        let is_ours = path.starts_with("crates/") || path.starts_with("bins/");
        let is_for_tests = path.starts_with("crates/testkit") || path.starts_with("crates/tidy");
        is_ours && !is_for_tests && path.contains("/src/") && !path.ends_with("tests.rs")
    });
    assert!(found.len() > 300, "only {} sources", found.len());
    found
}

fn reads_environment(line: &str) -> bool {
    let calls = ["env::var(", "env::var_os(", "env::vars(", "env::vars_os("];
    calls.iter().any(|it| line.contains(it))
}

/// Lines of shipped sources that a check finds, with their places.
fn found(check: impl Fn(&Path, &str) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for path in sources() {
        for (line, source) in shipped(&text(&path)) {
            if check(&path, source) {
                places.push(format!("{}:{line}: {}", path.display(), source.trim()));
            }
        }
    }
    places
}

#[test]
fn the_environment_is_read_by_config_alone() {
    let places = found(|path, line| !path.starts_with("crates/config") && reads_environment(line));
    for (file, count, why) in READERS {
        let here = places
            .iter()
            .filter(|it| it.starts_with(&format!("{file}:")));
        assert_eq!(
            here.count(),
            *count,
            "{file} ({why}): change the number, or take the line out"
        );
    }
    let is_known = |place: &&String| {
        READERS
            .iter()
            .all(|(file, ..)| !place.starts_with(&format!("{file}:")))
    };
    let strangers: Vec<_> = places.iter().filter(is_known).collect();
    assert!(
        strangers.is_empty(),
        "these read the environment; take the value from `config`, where it has a place and a redaction:\n{strangers:#?}"
    );
}

#[test]
fn no_transport_is_chosen_in_code() {
    // It is read from the configuration and the command line, and compared everywhere else.
    let chooses = |path: &Path, line: &str| {
        let line = line.replace(' ', "");
        let is_named = line.contains("Transport::Http") || line.contains("Transport::Stdio");
        let is_set = line.contains("transport=Transport::")
            || line.contains("transport:Transport::")
            || line.contains("transport=config::Transport::")
            || line.contains("transport:config::Transport::");
        is_named && is_set && !path.starts_with("crates/config")
    };
    assert!(chooses(
        Path::new("crates/server/src/x.rs"),
        "    transport: Transport::Http,"
    ));
    assert!(!chooses(
        Path::new("crates/server/src/x.rs"),
        "if config.transport == Transport::Http {"
    ));
    let places = found(chooses);
    assert!(
        places.is_empty(),
        "these choose a transport, which is for the configuration:\n{places:#?}"
    );
}

#[test]
fn agents_instantiate_no_server() {
    // What an agent is given reaches servers by their addresses: nothing that makes one is within its reach.
    let makers = ["gateway", "mcp-server", "server", "mcp-service"];
    for name in ["agent", "mcp-client"] {
        let packages = packages();
        let package = packages.iter().find(|it| it["name"] == name);
        let package = package.unwrap_or_else(|| panic!("there is no package `{name}`"));
        let dependencies = package["dependencies"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let shipped = dependencies.iter().filter(|it| it["kind"].is_null());
        for dependency in shipped {
            let used = dependency["name"].as_str().unwrap_or_default();
            assert!(
                !makers.contains(&used),
                "`{name}` could make a server by `{used}`"
            );
        }
    }
    let python = files(&[".py"]);
    let python: Vec<_> = python
        .into_iter()
        .filter(|path| path.starts_with("python/owlclaw_tools/owlclaw_tools"))
        .collect();
    assert!(!python.is_empty(), "the package for agents has moved");
    for path in python {
        for word in [
            "subprocess",
            "os.system",
            "os.exec",
            "os.spawn",
            "multiprocessing",
            "pty",
        ] {
            let text = text(&path);
            let imports =
                text.contains(&format!("import {word}")) || text.contains(&format!("{word}("));
            assert!(
                !imports,
                "{} could start a server by `{word}`",
                path.display()
            );
        }
    }
}

#[test]
fn no_call_passes_the_record_by() {
    // One layer lets calls through, and one runs them; what else runs a tool has no server around it.
    let admits = found(|_, line| line.contains("Admitted(Box::new("));
    let places: Vec<_> = admits
        .iter()
        .filter_map(|it| it.split(':').next())
        .collect();
    assert_eq!(places, ["crates/mcp-server/src/pipeline/governed.rs"]);
    let runs = found(|path, line| {
        let is_tool = line.contains("tool.execute(") || line.contains("executor.execute(");
        is_tool && !path.starts_with("crates/adapter-tools")
    });
    let places: Vec<_> = runs.iter().filter_map(|it| it.split(':').next()).collect();
    assert_eq!(
        places,
        [
            // The manager of document 002, for agents without a server.
            "crates/gateway/src/manager.rs",
            "crates/mcp-server/src/pipeline/runner.rs",
        ]
    );
    let uses =
        found(|path, line| line.contains("McpManager") && !path.starts_with("crates/gateway"));
    assert!(
        uses.is_empty(),
        "the program must not call without its record:\n{uses:#?}"
    );
    let layers = text("crates/mcp-server/src/lib.rs");
    assert!(
        layers.contains("Governed<Confirmed<Recorded<"),
        "the layers around a call are not where they were: is it on record before it runs?"
    );
}
