use crate::{ChangeKind, names::digits};
use http::HeaderMap;
use mcp_client::{ChildProgram, Dial, HttpTransport, UrlDial};
use std::{collections::BTreeSet, ffi::OsString, path::PathBuf, time::Duration};

/// An upstream: another MCP server whose tools, resources and prompts are offered.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamSpec {
    /// Name, which is part of the names of its tools.
    pub name: String,
    /// The way to it.
    pub reach: Reach,
    /// False if it is configured, and not to be used.
    pub enabled: bool,
    /// Patterns of what is offered, by the names of tools and prompts and the URIs of resources and templates at the
    /// upstream; empty: all.
    pub allow: Vec<String>,
    /// Patterns of what is not offered; they go before `allow`.
    pub deny: Vec<String>,
    /// Beginning of the names of its tools, in place of the form that all others have.
    pub prefix: Option<String>,
    /// Form of the URIs of its resources.
    pub uris: Uris,
    /// Clients that share a connection.
    pub isolation: Isolation,
    /// Time without calls after which the connection is closed; zero: never.
    pub idle: Duration,
    /// Time for connecting, and for reading the lists.
    pub connect_timeout: Duration,
    /// Time of one call.
    pub timeout: Duration,
    /// Changes of its definitions that are not held.
    pub accept_changes: BTreeSet<ChangeKind>,
    /// True if its word on what its tools do (`readOnlyHint` and so on) is believed.
    pub trust_annotations: bool,
}

/// The way to an upstream.
#[derive(Clone, PartialEq)]
pub enum Reach {
    /// A program that is started.
    Child {
        /// The program.
        program: String,
        /// Arguments of the program.
        arguments: Vec<String>,
        /// Environment variables besides the few that every child inherits.
        environment: Vec<(String, String)>,
        /// The directory it is started in.
        directory: Option<PathBuf>,
    },
    /// An address.
    Url {
        /// The address: `http`, `https`, `ws` or `wss`.
        url: String,
        /// Headers of each request.
        headers: HeaderMap,
        /// The transport behind it.
        transport: HttpTransport,
    },
}

impl std::fmt::Debug for Reach {
    /// Without what may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Child { program, .. } => f.debug_tuple("Child").field(program).finish(),
            Self::Url { url, .. } => f.debug_tuple("Url").field(&without_query(url)).finish(),
        }
    }
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// Form of the URIs under which resources of an upstream are offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uris {
    /// `mcp.{server}+{its URI}`, which leads to one upstream.
    #[default]
    Prefixed,
    /// The upstream's own. Any URI that no other source has is this upstream's; so one upstream of a gateway can have
    /// this form, and of several the first by name has it.
    AsIs,
}

/// Clients that share a connection to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All clients.
    #[default]
    Shared,
    /// The connections and requests of one client.
    PerClient,
}

impl UpstreamSpec {
    /// An upstream with the defaults of the configuration.
    #[must_use]
    pub fn new(name: impl Into<String>, reach: Reach) -> Self {
        Self {
            name: name.into(),
            reach,
            enabled: true,
            allow: Vec::new(),
            deny: Vec::new(),
            prefix: None,
            uris: Uris::default(),
            isolation: Isolation::default(),
            idle: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(60),
            accept_changes: [ChangeKind::New].into(),
            trust_annotations: false,
        }
    }

    /// True if a tool or prompt of this name, or a resource or template of this URI, is offered.
    #[must_use]
    pub fn offers(&self, tool: &str) -> bool {
        self.left_out_by(tool).is_none()
    }

    /// The key of the list that leaves a tool out: `deny`, or `allow`, which does not have it.
    #[must_use]
    pub fn left_out_by(&self, tool: &str) -> Option<&'static str> {
        let is_in = |patterns: &[String]| patterns.iter().any(|it| fits(it, tool));
        match () {
            () if is_in(&self.deny) => Some("deny"),
            () if self.allow.is_empty() || is_in(&self.allow) => None,
            () => Some("allow"),
        }
    }

    pub(crate) fn dial(&self) -> Dial {
        match &self.reach {
            Reach::Child {
                program,
                arguments,
                environment,
                directory,
            } => Dial::Child(ChildProgram {
                program: OsString::from(program),
                arguments: arguments.iter().map(OsString::from).collect(),
                environment: environment
                    .iter()
                    .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                    .collect(),
                directory: directory.clone(),
            }),
            Reach::Url {
                url,
                headers,
                transport,
            } => Dial::Url(UrlDial {
                headers: headers.clone(),
                transport: *transport,
                ..UrlDial::new(url)
            }),
        }
    }

    /// Digits that change when the upstream may have become another server. Without secrets.
    pub(crate) fn identity(&self) -> String {
        match &self.reach {
            Reach::Child {
                program, arguments, ..
            } => {
                let mut parts = vec![self.name.as_str(), program];
                parts.extend(arguments.iter().map(String::as_str));
                digits(&parts)
            }
            Reach::Url { url, .. } => digits(&[&self.name, without_query(url)]),
        }
    }

    /// Text for operators on the way to it, without what may be secret.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.reach {
            Reach::Child { program, .. } => program.clone(),
            Reach::Url { url, .. } => {
                let url = without_query(url);
                match url
                    .split_once("://")
                    .and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1)))
                {
                    Some((scheme, rest)) => format!("{scheme}://{rest}"),
                    None => url.to_owned(),
                }
            }
        }
    }
}

/// True if `text` fits `pattern`, in which `*` stands for any text.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_is_not_offered_and_what_is_allowed_alone_is() {
        let reach = Reach::Child {
            program: "x".to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
        };
        let mut spec = UpstreamSpec::new("s", reach);
        assert!(spec.offers("delete_all"));
        spec.allow = vec!["get_*".to_owned(), "*_list".to_owned()];
        spec.deny = vec!["get_secret*".to_owned()];
        for (tool, is_offered) in [
            ("get_a", true),
            ("user_list", true),
            ("get_secrets", false),
            ("delete", false),
            ("get", false),
        ] {
            assert_eq!(spec.offers(tool), is_offered, "{tool}");
        }
        for (pattern, text, is_fit) in [
            ("a*b*c", "abc", true),
            ("a*b*c", "ac", false),
            ("*", "", true),
            ("", "a", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(fits(pattern, text), is_fit, "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_shown_has_no_secrets() {
        let reach = Reach::Url {
            url: "https://u:hunter2@h/mcp?key=hunter2".to_owned(),
            headers: [(
                http::header::AUTHORIZATION,
                "Bearer hunter2".parse().unwrap(),
            )]
            .into_iter()
            .collect(),
            transport: HttpTransport::Detect,
        };
        let spec = UpstreamSpec::new("s", reach);
        assert_eq!(spec.place(), "https://h/mcp");
        assert!(!format!("{:?}", spec.place()).contains("hunter2"));
    }
}
