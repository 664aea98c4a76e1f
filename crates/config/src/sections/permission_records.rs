//! Permission records of founding document 004 (rows 36 and 37), as rules of clients.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ::governance::Effect;
use ::governance::file::{AccessRules, Client, Condition};
use gateway::{NameTable, NameTemplate, offered_uri, scheme_key};
use serde::Deserialize;

use crate::environment;
use crate::layer::{Origins, child, origin_near};
use crate::nearest::nearest;
use crate::problem::{Problem, quoted};
use crate::sections::Config;

/// Name of this server among its upstreams.
const OWN: &str = "owlclaw";
/// The longest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// A record in either form, of which it has one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// Of no meaning: sessions come and go, and the record is a client's.
    #[serde(rename = "session_id")]
    _session: Option<String>,
    permissions: Option<Vec<ByPath>>,
    servers: Option<Vec<ByPattern>>,
}

/// Permissions at one server, by types and paths (row 36).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ByPath {
    server: String,
    #[serde(default)]
    resources: Vec<Typed>,
    #[serde(default)]
    tools: Vec<Tool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    r#type: String,
    path: String,
    operations: Vec<Operation>,
}

/// Permissions at one server, by patterns (row 37).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ByPattern {
    id: String,
    /// Methods that may be used at all; those of tools and resources that are named, unless given.
    methods: Option<Vec<String>>,
    #[serde(default)]
    resources: Vec<Patterned>,
    #[serde(default)]
    tools: Vec<Tool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Patterned {
    pattern: String,
    operations: Vec<Operation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    name: String,
    operations: Vec<Invoke>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Invoke {
    Invoke,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Operation {
    Read,
    List,
    Search,
    Watch,
    Write,
    Create,
    Update,
    Delete,
}

impl Operation {
    /// The method of the document that does it.
    fn method(self) -> &'static [&'static str] {
        match self {
            Self::Read => &["read_resource"],
            Self::List => &["list_resources"],
            Self::Search => &["search_resources"],
            Self::Watch => &["watch_resources"],
            Self::Write => &["create_resource", "update_resource"],
            Self::Create => &["create_resource"],
            Self::Update => &["update_resource"],
            Self::Delete => &["delete_resource"],
        }
    }
}

const METHODS: [&str; 9] = [
    "read_resource",
    "list_resources",
    "search_resources",
    "watch_resources",
    "create_resource",
    "update_resource",
    "delete_resource",
    "discover_tools",
    "invoke_tool",
];

/// A resource of a record: a pattern over addresses at its server, and what may be done.
struct Granted {
    patterns: Vec<String>,
    operations: Vec<Operation>,
}

/// Permissions at one server, whichever form they are written in.
struct AtServer {
    server: String,
    methods: Option<Vec<String>>,
    resources: Vec<Granted>,
    tools: Vec<Tool>,
}

impl From<ByPattern> for AtServer {
    fn from(it: ByPattern) -> Self {
        let resources = it.resources.into_iter().map(|it| Granted {
            patterns: vec![it.pattern],
            operations: it.operations,
        });
        Self {
            server: it.id,
            methods: it.methods,
            resources: resources.collect(),
            tools: it.tools,
        }
    }
}

impl From<ByPath> for AtServer {
    fn from(it: ByPath) -> Self {
        let is_own = it.server == OWN;
        let resources = it.resources.into_iter().map(|it| {
            // As the dialect calls them; what is below is meant as well, and what only begins alike is not.
            let path = it.path.trim_end_matches('/');
            let place = match (it.r#type.as_str(), is_own) {
                ("file", true) => format!("files://{}", path.trim_start_matches('/')),
                ("kb", true) => format!("skill://{}", path.trim_start_matches('/')),
                ("context", true) => format!("state://{}", path.trim_start_matches('/')),
                (other, true) => format!("{other}://{}", path.trim_start_matches('/')),
                (other, false) => format!("{other}://{path}"),
            };
            let patterns = match is_own && place.ends_with("://") {
                // All of them.
                true => vec![format!("{place}*")],
                false => vec![format!("{place}/*"), place],
            };
            Granted {
                patterns,
                operations: it.operations,
            }
        });
        Self {
            server: it.server,
            methods: None,
            resources: resources.collect(),
            tools: it.tools,
        }
    }
}

/// Names under which things of a server are offered.
struct Offered<'c> {
    config: &'c Config,
    template: NameTemplate,
}

impl Offered<'_> {
    fn template_of(&self, server: &str) -> NameTemplate {
        let upstream = self.config.upstreams.get(server);
        match upstream.and_then(|it| it.prefix.as_deref()) {
            Some(prefix) => NameTemplate::with_prefix(prefix),
            None => self.template.clone(),
        }
    }

    /// Returns true if an open pattern over tools of a server fits names of another server's as well.
    fn tool_reaches_others(&self, server: &str, name: &str) -> bool {
        if !name.ends_with('*') {
            return false;
        }
        let offered = self.tool(server, name);
        let fixed = offered.trim_end_matches('*');
        let is_bare = server != OWN && self.template_of(server).beginning(server).is_empty();
        let mut others = self.config.upstreams.keys().filter(|it| *it != server);
        is_bare
            || others.any(|it| {
                let theirs = self.template_of(it).beginning(it);
                theirs.starts_with(fixed) || fixed.starts_with(&*theirs)
            })
    }

    /// The same of an open pattern over addresses of resources.
    fn resource_reaches_others(&self, server: &str, pattern: &str) -> bool {
        let Some(fixed) = pattern.strip_suffix('*') else {
            return false;
        };
        let upstream = self.config.upstreams.get(server);
        let is_raw = server == OWN
            || upstream.is_some_and(|it| it.uris == crate::sections::upstreams::Uris::AsIs);
        let meets = |it: &str| it.starts_with(fixed) || fixed.starts_with(it);
        is_raw
            && !self.config.upstreams.is_empty()
            && (meets("mcp.") || meets("ui://mcp.") || (server != OWN && meets("files://")))
    }

    /// Names of a tool; a `*` at its end stands for any text.
    fn tool(&self, server: &str, name: &str) -> String {
        if server == OWN {
            return name.to_owned();
        }
        let template = self.template_of(server);
        match name.strip_suffix('*') {
            Some(beginning) => format!("{}{beginning}*", template.beginning(server)),
            None => NameTable::default().assign(&template, server, name),
        }
    }

    fn resource(&self, server: &str, pattern: &str) -> Vec<String> {
        if server == OWN {
            return vec![pattern.to_owned()];
        }
        let prefixed = offered_uri(&scheme_key(server), pattern);
        let upstream = self.config.upstreams.get(server);
        match upstream.is_some_and(|it| it.uris == crate::sections::upstreams::Uris::AsIs) {
            true => vec![pattern.to_owned(), prefixed],
            false => vec![prefixed],
        }
    }
}

/// A pattern is an address or the beginning of some, before a `*`.
fn check_pattern(pattern: &str) -> Result<(), String> {
    let exact = pattern.strip_suffix('*').unwrap_or(pattern);
    match exact.contains('*') || pattern.is_empty() {
        true => Err(format!(
            "`{pattern}` is no pattern of a record: a `*` stands at the end alone"
        )),
        false => Ok(()),
    }
}

/// The rules that a record says.
fn rules(record: Record, offered: &Offered<'_>) -> Result<Client, String> {
    let servers: Vec<AtServer> = match (record.permissions, record.servers) {
        (Some(by_path), None) => by_path.into_iter().map(Into::into).collect(),
        (None, Some(by_pattern)) => by_pattern.into_iter().map(Into::into).collect(),
        _ => {
            return Err("a record has either `permissions` or `servers`".to_owned());
        }
    };
    let mut tools = BTreeSet::new();
    let mut resources = BTreeSet::new();
    let mut written: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for it in servers {
        let known = offered.config.upstreams.keys().map(String::as_str);
        if it.server != OWN && !offered.config.upstreams.contains_key(&it.server) {
            let meant = nearest(&it.server, known.chain([OWN]));
            let meant = meant.map(|it| format!("; did you mean `{it}`?"));
            let (server, meant) = (&it.server, meant.unwrap_or_default());
            return Err(format!(
                "there is no server `{server}`{meant} This one is `{OWN}`; others are under `upstreams`"
            ));
        }
        if let Some(unknown) = it
            .methods
            .iter()
            .flatten()
            .find(|it| !METHODS.contains(&it.as_str()))
        {
            let meant = nearest(unknown, METHODS).map(|it| format!(": did you mean `{it}`?"));
            return Err(format!(
                "`{unknown}` is no method that a record can permit{}",
                meant.unwrap_or_default()
            ));
        }
        let has = |method: &&str| {
            let methods = it.methods.as_ref();
            methods.is_none_or(|all| all.iter().any(|it| it == method))
        };
        for tool in &it.tools {
            check_pattern(&tool.name)?;
            if offered.tool_reaches_others(&it.server, &tool.name) {
                return Err(format!(
                    "`{}` of `{}` fits tools of other servers as well: name them",
                    tool.name, it.server
                ));
            }
            if tool.operations.contains(&Invoke::Invoke) && has(&"invoke_tool") {
                tools.insert(offered.tool(&it.server, &tool.name));
            }
        }
        for granted in &it.resources {
            for pattern in &granted.patterns {
                check_pattern(pattern)?;
                if it.server == OWN
                    && let Some(right) = offered.config.resources.right_spelling(pattern)
                {
                    return Err(format!(
                        "`{pattern}` can match no address, since none is spelt so: write `{right}`"
                    ));
                }
                if offered.resource_reaches_others(&it.server, pattern) {
                    return Err(format!(
                        "`{pattern}` of `{}` fits resources of other servers as well: write more of it",
                        it.server
                    ));
                }
            }
            let permitted = granted.operations.iter().flat_map(|it| it.method());
            let permitted: Vec<_> = permitted.filter(|it| has(it)).collect();
            let can_be_known = |it: &&&&str| {
                matches!(
                    ***it,
                    "list_resources" | "search_resources" | "watch_resources"
                )
            };
            if let Some(method) = permitted.iter().find(can_be_known)
                && !permitted.contains(&&"read_resource")
            {
                return Err(format!(
                    "{} of `{}` can be reached by `{method}` only where it can be read: permit `read` as well, or leave \
                     the other out",
                    quoted(&granted.patterns, ", "),
                    it.server
                ));
            }
            for operation in &granted.operations {
                let methods = operation.method().iter().filter(|it| has(it));
                for method in methods {
                    let tool = match *method {
                        "create_resource" => "resource-create",
                        "update_resource" => "resource-write",
                        "delete_resource" => "resource-delete",
                        method => {
                            let patterns = granted.patterns.iter();
                            let addresses =
                                patterns.flat_map(|pattern| offered.resource(&it.server, pattern));
                            resources.extend(addresses);
                            if method == "search_resources" {
                                tools.insert(method.to_owned());
                            }
                            continue;
                        }
                    };
                    if it.server != OWN {
                        let server = &it.server;
                        return Err(format!(
                            "resources of `{server}` cannot be written to by `{method}`: permit the tools that \
                             write there"
                        ));
                    }
                    tools.insert(tool.to_owned());
                    written
                        .entry(tool)
                        .or_default()
                        .extend(granted.patterns.clone());
                }
            }
        }
    }
    let allow = |allow: BTreeSet<String>| {
        Some(AccessRules {
            allow: allow.into_iter().collect(),
            ..AccessRules::default()
        })
    };
    let conditions = written.into_iter().map(|(tool, patterns)| {
        let each = patterns.iter().map(|it| match it.strip_suffix('*') {
            Some(beginning) => format!("args.uri.startsWith({})", literal(beginning)),
            None => format!("args.uri == {}", literal(it)),
        });
        let condition = Condition {
            tool: tool.to_owned(),
            when: each.collect::<Vec<_>>().join(" || "),
            effect: Effect::AllowOnly,
        };
        (format!("record-{tool}"), condition)
    });
    Ok(Client {
        conditions: conditions.collect(),
        tools: allow(tools),
        resources: allow(resources),
        // Records say nothing of prompts, and permit none.
        prompts: allow(BTreeSet::new()),
        ..Client::default()
    })
}

/// A text as a literal of CEL, whose escapes are among those of JSON.
fn literal(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// Makes rules of clients of the permission records.
pub(crate) fn take(
    config: &mut Config,
    base: &Path,
    origins: &Origins,
    problems: &mut Vec<Problem>,
) {
    const KEY: &str = "governance.permission_records";
    let Ok(template) = NameTemplate::parse(&config.gateway.names) else {
        // That is told of elsewhere.
        return;
    };
    let mut made = BTreeMap::new();
    for path in config.governance.permission_records.values_mut() {
        *path = environment::absolute(base, &*path);
    }
    let offered = Offered { config, template };
    for (name, path) in &config.governance.permission_records {
        let key = child(KEY, name);
        let mut wrong = |message: String, hint: &str| {
            let origin = origin_near(origins, &key);
            problems.push(Problem::error(origin, message).key(&*key).hint(hint));
        };
        if config.governance.rules.clients.contains_key(name) {
            let message = format!("`{key}` and `governance.clients.{name}` are two sets of rules");
            wrong(message, "keep one of the two");
            continue;
        }
        let place = path.display();
        let read = regular_file::read(path, MAX_BYTES);
        let record = read.map_err(|error| error.to_string()).and_then(|it| {
            // The error says line and column.
            serde_json::from_slice::<Record>(&it).map_err(|error| error.to_string())
        });
        match record.and_then(|it| rules(it, &offered)) {
            Ok(client) => drop(made.insert(name.clone(), client)),
            Err(why) => wrong(
                format!("`{key}`: {place}: {why}"),
                "docs/host-dialect.md#permission-records has both forms",
            ),
        }
    }
    config.governance.rules.clients.extend(made);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn translated(record: serde_json::Value) -> Result<Client, String> {
        let mut config = Config::default();
        let upstream = crate::sections::upstreams::Upstream::default();
        config.upstreams.insert("file-server".to_owned(), upstream);
        let files = crate::sections::files::FileRoot::default();
        config.resources.files.insert("kept".to_owned(), files);
        let template = NameTemplate::parse(&config.gateway.names)?;
        let offered = Offered {
            config: &config,
            template,
        };
        let text = record.to_string();
        let record = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        rules(record, &offered)
    }

    #[test]
    fn an_open_pattern_permits_nothing_of_other_servers() {
        for grant in [
            json!({"server": "owlclaw", "tools": [{"name": "*", "operations": ["invoke"]}]}),
            json!({"server": "owlclaw", "tools": [{"name": "mcp_file*", "operations": ["invoke"]}]}),
        ] {
            let refused = translated(json!({"session_id": "s", "permissions": [grant]}));
            let why = refused.map(|_| ()).unwrap_err();
            assert!(why.contains("fits tools of other servers"), "{why}");
        }
        let own = json!({"server": "file-server", "tools": [{"name": "read*", "operations": ["invoke"]}]});
        translated(json!({"session_id": "s", "permissions": [own]})).unwrap();
    }

    fn allowed(rules: Option<AccessRules>) -> Vec<String> {
        rules.map(|it| it.allow).unwrap_or_default()
    }

    #[test]
    fn both_forms_become_rules_that_permit_what_they_say_and_nothing_else() {
        let by_path = json!({"session_id": "session-123", "permissions": [
            {"server": "owlclaw", "resources": [
                {"type": "file", "path": "/data", "operations": ["read", "list"]},
                {"type": "file", "path": "/tmp/", "operations": ["read", "write", "delete"]},
            ]},
            {"server": "file-server",
             "resources": [{"type": "file", "path": "/data", "operations": ["read"]}],
             "tools": [{"name": "calculator", "operations": ["invoke"]}]},
        ]});
        let rules = translated(by_path).unwrap();
        assert_eq!(
            allowed(rules.resources),
            [
                "files://data",
                "files://data/*",
                "files://tmp",
                "files://tmp/*",
                "mcp.file-server+file:///data",
                "mcp.file-server+file:///data/*",
            ]
        );
        assert_eq!(
            allowed(rules.tools),
            [
                "mcp_file_server_calculator",
                "resource-create",
                "resource-delete",
                "resource-write"
            ]
        );
        assert_eq!(allowed(rules.prompts), [""; 0]);
        let delete = &rules.conditions["record-resource-delete"];
        assert_eq!(delete.effect, Effect::AllowOnly);
        assert_eq!(
            delete.when,
            r#"args.uri == "files://tmp" || args.uri.startsWith("files://tmp/")"#
        );

        let by_pattern = json!({"servers": [
            {"id": "owlclaw", "methods": ["read_resource", "update_resource"],
             "resources": [{"pattern": "files://a\"b/*", "operations": ["read", "write"]}],
             "tools": [{"name": "echo", "operations": ["invoke"]}]},
            {"id": "file-server", "tools": [{"name": "read*", "operations": ["invoke"]}]},
        ]});
        let rules = translated(by_pattern).unwrap();
        assert_eq!(allowed(rules.resources), ["files://a\"b/*"]);
        // `echo` cannot be invoked, and nothing created, since no method permits it.
        assert_eq!(
            allowed(rules.tools),
            ["mcp_file_server_read*", "resource-write"]
        );
        assert_eq!(
            rules.conditions["record-resource-write"].when,
            r#"args.uri.startsWith("files://a\"b/")"#
        );
        let all = translated(json!({"permissions": [{"server": "owlclaw", "resources": [
            {"type": "file", "path": "/", "operations": ["read"]}]}]}));
        assert_eq!(allowed(all.unwrap().resources), ["files://*"]);
        let nothing = translated(json!({"servers": []})).unwrap();
        assert_eq!(nothing.tools.unwrap().allow, [""; 0], "fail closed");
    }

    #[test]
    fn what_a_record_cannot_say_is_told() {
        for (record, why) in [
            (json!({}), "either `permissions` or `servers`"),
            (json!({"servers": [], "permissions": []}), "either"),
            (json!({"server": []}), "unknown field `server`"),
            (
                json!({"servers": [{"id": "file-serve"}]}),
                "did you mean `file-server`?",
            ),
            (
                json!({"servers": [{"id": "owlclaw", "methods": ["read_resorce"]}]}),
                "`read_resource`",
            ),
            (
                json!({"servers": [{"id": "owlclaw", "resources": [
                {"pattern": "files://*/a", "operations": ["read"]}]}]}),
                "at the end alone",
            ),
            (
                json!({"servers": [{"id": "owlclaw", "resources": [
                {"pattern": "files://kept/\u{e9}*", "operations": ["read"]}]}]}),
                "write `files://kept/%C3%A9*`",
            ),
            (
                json!({"permissions": [{"server": "owlclaw", "resources": [
                {"type": "file", "path": "/kept/a b", "operations": ["read"]}]}]}),
                "write `files://kept/a%20b/*`",
            ),
            (
                json!({"servers": [{"id": "owlclaw", "resources": [
                {"pattern": "files://a", "operations": ["raed"]}]}]}),
                "line 1 column",
            ),
            (
                json!({"servers": [{"id": "file-server", "resources": [
                {"pattern": "file:///a", "operations": ["write"]}]}]}),
                "permit the tools",
            ),
            (
                json!({"servers": [{"id": "owlclaw", "resources": [
                {"pattern": "files://a", "operations": ["list"]}]}]}),
                "only where it can be read",
            ),
            (
                json!({"servers": [{"id": "owlclaw", "methods": ["watch_resources"], "resources": [
                {"pattern": "files://a", "operations": ["read", "watch"]}]}]}),
                "only where it can be read",
            ),
        ] {
            let told = translated(record.clone()).unwrap_err();
            assert!(told.contains(why), "{record}: {told}");
        }
    }
}
