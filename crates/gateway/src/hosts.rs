//! Files in which hosts keep their servers: `mcp.json` with `mcpServers` (Claude Desktop, Cursor, Kiro and
//! others), or with `servers` (VS Code). An entry that cannot be used is told of and left out.

mod entry;
mod json;

use self::{
    entry::{Variables, spec},
    json::{Unique, plain},
};
use crate::UpstreamSpec;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A longer file is no configuration.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Places of lists of servers in a file. All are read.
const LISTS: [&str; 4] = ["/mcpServers", "/servers", "/mcp/mcpServers", "/mcp/servers"];

/// Servers of a host's file, in order of their names, and what is wrong with it.
#[derive(Debug, Default, PartialEq)]
pub struct HostFile {
    /// Entries that can be used.
    pub specs: Vec<UpstreamSpec>,
    /// Entries that were left out, and secrets that stand in the file.
    pub warnings: Vec<String>,
    /// Names of entries that were left out.
    pub left_out: Vec<String>,
    /// True if the file is there and no list of servers can be read from it.
    pub is_broken: bool,
}

/// The file with the servers of a host, by document 002: the first that exists of the one that the variable
/// `OWLCLAW_MCP_CONFIG` names, `given`, `mcp.json` in the workspace and `.owlclaw/mcp.json` in the home directory.
pub fn find(
    given: Option<&Path>,
    workspace: Option<&Path>,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<PathBuf> {
    let named = variable("OWLCLAW_MCP_CONFIG").filter(|it| !it.is_empty());
    let home = variable("HOME").map(|it| Path::new(&it).join(".owlclaw/mcp.json"));
    let candidates = [
        named.map(PathBuf::from),
        given.map(Path::to_owned),
        workspace.map(|it| it.join("mcp.json")),
        home,
    ];
    candidates.into_iter().flatten().find(|it| it.is_file())
}

impl HostFile {
    /// Reads a file. One that is not there has no servers; one that cannot be read has none either, and says so.
    pub fn read(path: &Path, variable: impl Fn(&str) -> Option<String>) -> Self {
        let told = |why: String| Self {
            specs: Vec::new(),
            warnings: vec![format!("{}: {why}", path.display())],
            left_out: Vec::new(),
            is_broken: true,
        };
        let text = match regular_file::read_text(path, MAX_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::default(),
            Err(error) => return told(error.to_string()),
        };
        let mut file = Self::parse(&text, variable);
        for warning in &mut file.warnings {
            *warning = format!("{}: {warning}", path.display());
        }
        file
    }

    /// Reads the text of a file: JSON, in which comments and commas at the end may stand, as editors have it.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Self {
        Self::parse_as(text, &variable, &variable)
    }

    /// The same with values of their own for `$NAME`: as hosts have it, that is one only where `bare` has a value, and a text
    /// otherwise, such as a part of a password.
    pub fn parse_as(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
        bare: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let variables = Variables {
            braced: &variable,
            bare: &bare,
        };
        let mut file = Self::default();
        let root: Value = match serde_json::from_str(&plain(text)) {
            Ok(Unique(root)) => root,
            Err(error) => {
                file.warnings
                    .push(format!("it is no JSON, and has no servers: {error}"));
                file.is_broken = true;
                return file;
            }
        };
        let lists = LISTS
            .iter()
            .filter_map(|path| Some((*path, root.pointer(path)?)));
        let mut servers = BTreeMap::new();
        let mut has_list = false;
        for (path, list) in lists {
            let key = path[1..].replace('/', ".");
            let Value::Object(list) = list else {
                file.warnings
                    .push(format!("`{key}` is no list of servers: it is no object"));
                continue;
            };
            has_list = true;
            for (name, entry) in list {
                if servers.contains_key(name) {
                    file.warnings.push(format!(
                        "`{name}` of `{key}` is left out: another list of the file has a server of this name"
                    ));
                } else {
                    servers.insert(name, entry);
                }
            }
        }
        if !has_list {
            if file.warnings.is_empty() {
                let why = "it has no `mcpServers` and no `servers`";
                file.warnings.push(why.to_owned());
            }
            file.is_broken = true;
            return file;
        }
        let legal: Vec<_> = servers.keys().map(|it| legal_name(it)).collect();
        for (name, entry) in servers {
            let read = offered_name(name, &legal).and_then(|offered| {
                let spec = spec(name, entry, &variables, &mut file.warnings)?;
                Ok((offered, spec))
            });
            match read {
                Ok((offered, mut spec)) => {
                    if offered != *name {
                        file.warnings
                            .push(format!("`{name}` is named `{offered}` here"));
                    }
                    spec.name = offered;
                    file.specs.push(spec);
                }
                Err(why) => {
                    file.warnings.push(format!("`{name}` is left out: {why}"));
                    file.left_out.push(name.clone());
                }
            }
        }
        file
    }
}

/// Make a name that an upstream can have: 1 to 40 of the characters `A-Z a-z 0-9 _ . -`, if `name` has any of them.
#[must_use]
pub fn legal_name(name: &str) -> String {
    let legal = |it: char| match it {
        it if it.is_ascii_alphanumeric() || "_.-".contains(it) => it,
        _ => '-',
    };
    name.trim().chars().map(legal).take(40).collect()
}

/// Name of the server that a file calls `name`, where `legal` are the names that all servers of the file would have.
fn offered_name(name: &str, legal: &[String]) -> Result<String, String> {
    let offered = legal_name(name);
    if offered == name {
        return Ok(offered);
    }
    let why = match legal.iter().filter(|it| **it == offered).count() {
        0 | 1 if offered.contains(|it: char| it.is_ascii_alphanumeric()) => return Ok(offered),
        0 | 1 => "its name has no letter or digit that names can have".to_owned(),
        _ => format!("as `{offered}` it would have the name of another server"),
    };
    Err(format!(
        "{why}: rename it; a name is 1 to 40 of the characters A-Z a-z 0-9 _ . -"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reach;
    use http::HeaderValue;
    use mcp_client::HttpTransport;
    use proptest::prelude::*;
    use serde_json::json;
    use std::time::Duration;

    fn parsed(text: &str) -> HostFile {
        HostFile::parse(text, |name| (name == "SET").then(|| "value".to_owned()))
    }

    #[test]
    fn files_of_hosts_are_read_as_they_are() {
        let claude = r#"{"mcpServers": {"fs": {"command": "npx", "args": ["-y", "x", "/a"], "env": {"K": "${SET}"}}}}"#;
        let code = r#"{
            // what the editor writes
            "inputs": [],
            "servers": {
                "web": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${env:SET}"},},
                "local": {"type": "stdio", "command": "x", /* none */ "args": []},
            },
        }"#;
        let kiro = r#"{"mcpServers": {"a": {"command": "x", "disabled": true, "autoApprove": ["b"], "timeout": 7}}}"#;
        let document = r#"{"mcpServers": {"s": {"transport": "sse", "url": "http://localhost:8080/sse", "timeout": 60}}}"#;
        let nested = r#"{"mcp": {"servers": {"a": {"command": "x"}}}}"#;
        for text in [claude, code, kiro, document, nested] {
            let file = parsed(text);
            assert!(file.warnings.is_empty(), "{:?}", file.warnings);
            assert!(!file.specs.is_empty());
        }
        let Reach::Child { environment, .. } = &parsed(claude).specs[0].reach else {
            panic!()
        };
        assert_eq!(environment[..], [("K".to_owned(), "value".to_owned())]);
        let of_code = parsed(code).specs;
        let web = of_code.iter().find(|it| it.name == "web").unwrap();
        let Reach::Url {
            headers, transport, ..
        } = &web.reach
        else {
            panic!()
        };
        assert_eq!(
            (&headers["authorization"], *transport),
            (
                &HeaderValue::from_static("Bearer value"),
                HttpTransport::Streamable
            )
        );
        let kiro = &parsed(kiro).specs[0];
        assert_eq!(
            (kiro.enabled, kiro.timeout),
            (false, Duration::from_secs(7))
        );
    }

    /// Property 2 of document 002.
    #[test]
    fn an_entry_that_cannot_be_used_is_told_of_and_left_out() {
        let bad = [
            json!(7),
            json!({}),
            json!({"transport": "stdio"}),
            json!({"transport": "sse"}),
            json!({"transport": "pigeon", "command": "x"}),
            json!({"url": "ftp://h"}),
            json!({"command": "x", "args": "y"}),
            json!({"command": "x", "args": [7]}),
            json!({"command": "x", "env": {"A": "${UNSET}"}}),
            json!({"command": "x", "timeout": true}),
            json!({"command": "x", "timeout": 0}),
            json!({"url": "https://h", "headers": {"a b": "c"}}),
        ];
        for entry in bad {
            let text = json!({"mcpServers": {"bad": entry, "good": {"command": "x"}}}).to_string();
            let file = parsed(&text);
            let names: Vec<_> = file.specs.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, ["good"], "{entry}");
            assert!(file.warnings[0].contains("`bad`"), "{:?}", file.warnings);
        }
        for text in ["", "{", "[]", "{}", r#"{"mcpServers": 7}"#] {
            let file = parsed(text);
            assert_eq!((file.specs.len(), file.warnings.len()), (0, 1), "{text}");
        }
        for (entry, why) in [
            ("{}", "it has neither `command` nor `url`"),
            (r#"{"type": "http"}"#, "it has no `url`"),
            (r#"{"type": "stdio"}"#, "it has no `command`"),
        ] {
            let file = parsed(&format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#));
            assert_eq!(file.warnings, [format!("`a` is left out: {why}")]);
        }
        assert_eq!(
            HostFile::read(Path::new("/no/such"), |_| None),
            HostFile::default()
        );
    }

    #[test]
    fn members_that_restrict_a_server_are_heeded_or_the_server_is_left_out() {
        let file = parsed(
            r#"{"mcpServers": {"a": {"command": "x", "enabledTools": ["read_*"], "disabledTools": ["read_all"],
                "autoApprove": ["read_x"], "colour": "red"}}}"#,
        );
        assert_eq!(file.specs[0].allow, ["read_*"]);
        assert_eq!(file.specs[0].deny, ["read_all"]);
        assert!(
            matches!(&*file.warnings, [one] if one.contains("a.colour")),
            "{:?}",
            file.warnings
        );
        for (bad, named) in [
            (r#"{"command": "x", "toolFilter": {}}"#, "toolFilter"),
            (
                r#"{"command": "x", "dissabled": true}"#,
                "did you mean `disabled`?",
            ),
            (
                r#"{"command": "x", "enbaled": false}"#,
                "did you mean `enabled`?",
            ),
            (
                r#"{"command": "x", "permissions": {"deny": ["*"]}}"#,
                "permissions",
            ),
            (r#"{"command": "x", "readOnly": true}"#, "readOnly"),
            (r#"{"command": "x", "status": "disabled"}"#, "status"),
            (r#"{"command": "x", "suspended": true}"#, "suspended"),
            (r#"{"command": "x", "paused": true}"#, "paused"),
            (r#"{"command": "x", "available": false}"#, "available"),
            (r#"{"command": "x", "read_only": true}"#, "read_only"),
            (r#"{"command": "x", "hold": ["*"]}"#, "hold"),
            (r#"{"command": "x", "isActiv": false}"#, "`isActive`"),
            (r#"{"command": "x", "disabledTools": "y"}"#, "disabledTools"),
            (r#"{"command": "x", "disabled": "true"}"#, "disabled"),
            (r#"{"command": "x", "enabled": 0}"#, "enabled"),
            (r#"{"command": "x", "includeTools": []}"#, "includeTools"),
            (r#"{"command": "x", "includeTools": [7]}"#, "includeTools"),
            (r#"{"command": "x", "url": "https://h/mcp"}"#, "`url`"),
        ] {
            let file = parsed(&format!(r#"{{"mcpServers": {{"a": {bad}}}}}"#));
            assert!(file.specs.is_empty(), "{bad}");
            assert!(file.warnings[0].contains(named), "{:?}", file.warnings);
        }
        let real = parsed(
            r#"{"mcpServers": {
                "claude": {"command": "x", "oauth": {}, "headersHelper": "y", "alwaysLoad": true},
                "code": {"command": "x", "envFile": ".env", "dev": {"watch": "*"}, "gallery": true},
                "gemini": {"command": "x", "trust": true, "authProviderType": "none", "targetAudience": "a"},
                "roo": {"command": "x", "alwaysAllow": ["a"], "watchPaths": ["b"]},
                "cherry": {"command": "x", "isActive": false, "installSource": "manual", "logoUrl": "u"}
            }}"#,
        );
        let on: Vec<_> = real
            .specs
            .iter()
            .map(|it| (&*it.name, it.enabled))
            .collect();
        assert_eq!(
            on,
            [
                ("cherry", false),
                ("claude", true),
                ("code", true),
                ("gemini", true),
                ("roo", true)
            ],
            "{:?}",
            real.warnings
        );
        let twice = parsed(r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#);
        assert!(twice.specs.is_empty());
        assert!(twice.warnings[0].contains("twice"), "{:?}", twice.warnings);
    }

    #[test]
    fn two_lists_of_tools_that_may_be_used_hold_a_server() {
        let file = parsed(
            r#"{"mcpServers": {"a": {"command": "x", "includeTools": ["echo"], "allowedTools": ["*"]}}}"#,
        );
        assert_eq!(file.left_out, ["a"]);
        assert!(file.warnings[0].contains("`includeTools` and `allowedTools`"));
    }

    #[test]
    fn a_dollar_in_a_value_is_a_variable_only_where_one_is_set() {
        let text = r#"{"mcpServers": {"a": {"command": "x", "env": {
            "A": "Xk9$money42", "B": "${SET}$SET", "C": "pg pass$"}}}}"#;
        let braced = |name: &str| Some(format!("<{name}>"));
        let file = HostFile::parse_as(text, braced, |name| {
            Some(name).filter(|it| *it == "SET").and_then(braced)
        });
        let Reach::Child { environment, .. } = &file.specs[0].reach else {
            panic!("it is a program");
        };
        let values: Vec<_> = environment.iter().map(|(_, it)| it.as_str()).collect();
        assert_eq!(values, ["Xk9$money42", "<SET><SET>", "pg pass$"]);
    }

    #[test]
    fn all_lists_of_a_file_are_read() {
        let file = parsed(
            r#"{
                "mcpServers": {"a": {"command": "x"}, "both": {"command": "first"}},
                "servers": {"b": {"command": "y"}, "both": {"command": "second"}},
                "mcp": {"servers": {"c": {"command": "z"}}, "mcpServers": 7}
            }"#,
        );
        let program = |spec: &UpstreamSpec| match &spec.reach {
            Reach::Child { program, .. } => program.clone(),
            Reach::Url { url, .. } => url.clone(),
        };
        let specs = file.specs.iter();
        let found: Vec<_> = specs.map(|it| (&*it.name, program(it))).collect();
        let found: Vec<_> = found
            .iter()
            .map(|(name, it)| (*name, it.as_str()))
            .collect();
        assert_eq!(
            found,
            [("a", "x"), ("b", "y"), ("both", "first"), ("c", "z")]
        );
        assert!(
            matches!(&*file.warnings, [one, two] if one.contains("`both` of `servers`") && two.contains("`mcp.mcpServers`")),
            "{:?}",
            file.warnings
        );
    }

    #[test]
    fn names_are_those_that_upstreams_can_have() {
        let x = r#"{"command": "x"}"#;
        let long = "y".repeat(50);
        let file = parsed(&format!(
            r#"{{"mcpServers": {{"ok": {x}, "ok ": {x}, "My Server": {x}, "a/b": {x}, "a b": {x}, "服务器": {x}, "": {x}, "{long}": {x}}}}}"#
        ));
        let names: Vec<_> = file.specs.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["My-Server", "ok", &long[..40]]);
        for told in [
            "`My Server` is named `My-Server`",
            "`ok ` is left out: as `ok`",
            "`a/b` is left out: as `a-b`",
            "`a b` is left out: as `a-b`",
            "`服务器` is left out: its name has no letter",
            "`` is left out: it has no name",
        ] {
            let is_told = file.warnings.iter().any(|it| it.starts_with(told));
            assert!(is_told, "{told} {:?}", file.warnings);
        }
        assert!(file.warnings.iter().any(|it| it.contains("rename it")));
    }

    #[test]
    fn secrets_that_are_written_out_are_told_and_not_shown() {
        let file = parsed(
            r#"{"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "hunter2", "B": "c", "TOKEN": "$SET"}}}}"#,
        );
        assert_eq!(
            (file.specs.len(), file.warnings.len()),
            (1, 1),
            "{:?}",
            file.warnings
        );
        assert!(
            file.warnings[0].contains("a.env.API_KEY") && !file.warnings[0].contains("hunter2")
        );
    }

    #[test]
    fn the_first_file_that_exists_is_the_one() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at(".owlclaw")).unwrap();
        let home = directory.path().to_str().unwrap().to_owned();
        let named = at("named.json").to_str().unwrap().to_owned();
        let variable = |name: &str| match name {
            "HOME" => Some(home.clone()),
            "OWLCLAW_MCP_CONFIG" => Some(named.clone()),
            _ => None,
        };
        let found = || find(Some(&at("given.json")), Some(directory.path()), variable);
        assert_eq!(found(), None);
        for name in [".owlclaw/mcp.json", "mcp.json", "given.json", "named.json"] {
            std::fs::write(at(name), "{}").unwrap();
            assert_eq!(found(), Some(at(name)));
        }
    }

    proptest! {
        /// Property 1 of document 002: each field of each legal entry is there afterwards.
        #[test]
        fn each_field_of_a_legal_entry_is_kept(
            name in "[a-z][a-z0-9-]{0,12}",
            command in "[a-z/.]{1,12}",
            args in prop::collection::vec("[a-z /=-]{0,10}", 0..4),
            env in prop::collection::btree_map("[A-Z]{1,6}", "[a-z ]{0,8}", 0..4),
            timeout in 1_u64..3_600,
            is_url in any::<bool>(),
        ) {
            let entry = match is_url {
                true => json!({"transport": "sse", "url": format!("http://{name}/sse"), "timeout": timeout}),
                false => json!({"transport": "stdio", "command": command, "args": args, "env": env, "timeout": timeout}),
            };
            let file = parsed(&json!({"mcpServers": {name.clone(): entry}}).to_string());
            prop_assert_eq!(file.specs.len(), 1);
            let spec = &file.specs[0];
            prop_assert_eq!((&spec.name, spec.timeout), (&name, Duration::from_secs(timeout)));
            match &spec.reach {
                Reach::Child { program, arguments, environment, .. } => {
                    prop_assert!(!is_url);
                    prop_assert_eq!(program, &command);
                    prop_assert_eq!(arguments, &args);
                    prop_assert_eq!(environment, &env.into_iter().collect::<Vec<_>>());
                }
                Reach::Url { url, transport, .. } => {
                    prop_assert!(is_url);
                    prop_assert_eq!(url, &format!("http://{name}/sse"));
                    prop_assert_eq!(*transport, HttpTransport::Sse);
                }
            }
        }
    }
}
