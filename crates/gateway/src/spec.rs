use crate::{
    ChangeKind, Credentials, PinKind, SealedTokens,
    credentials::Filled,
    names::digits,
    pins::Terms,
    tokens::{Known, Unless},
};
use adapter_tools::RiskClass;
use http::HeaderMap;
use mcp_client::{Authorize, ChildProgram, Dial, HttpTransport, UrlDial};
use mcp_protocol::model::ToolAnnotations;
use oauth_client::{
    AuthorizationError, Authorizer, ClientIdentity, FileStore, Grant, Landing, Login, MemoryStore,
    Options, Secret, TokenStore,
};
use std::{collections::BTreeSet, ffi::OsString, path::PathBuf, sync::Arc, time::Duration};
use vault::ClientSecrets;

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
    /// Tokens for requests to an address.
    pub tokens: Tokens,
    /// Owner of the credentials that it is shown.
    pub credentials: Credentials,
    /// Clients that share a connection.
    pub isolation: Isolation,
    /// Time without calls after which the connection is closed; zero: never.
    pub idle: Duration,
    /// Time without a connection after which its lists are read again while something of it is held, or it offers
    /// nothing: no call of a client leads there. Each time twice as long, up to fifteen minutes.
    pub look_again: Duration,
    /// Time for connecting, and for reading the lists.
    pub connect_timeout: Duration,
    /// The longest message that it may send, in bytes.
    pub max_message: usize,
    /// Time of one call.
    pub timeout: Duration,
    /// Changes of its definitions that are not held.
    pub accept_changes: BTreeSet<ChangeKind>,
    /// True if its word on what its tools do (`readOnlyHint` and so on) is believed.
    pub trust_annotations: bool,
    /// True if texts of results are passed on without what nobody sees.
    pub cleans_results: bool,
    /// Class of its tools of which neither `risks` nor trusted annotations say another.
    pub risk: RiskClass,
    /// Patterns of tools, by their own names, with their class; of several that fit, the gravest counts.
    pub risks: Vec<(String, RiskClass)>,
    /// Patterns of tools, by their own names, with what a call is expected to cost, in millionths; of several that fit,
    /// the highest counts.
    pub costs: Vec<(String, u64)>,
    /// Patterns of tools whose calls are refused, by their own names. One of stars alone is the whole upstream, with its
    /// resources and prompts.
    pub hold: Vec<String>,
    /// Reason why it cannot be used as it is configured, such as a secret that is missing: it is held, and neither
    /// connected nor called.
    pub unresolved: Option<String>,
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

/// Tokens for requests to an address (OAuth).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tokens {
    /// None.
    #[default]
    None,
    /// Tokens that are kept in this directory since somebody has signed in; they are renewed.
    Kept(PathBuf),
    /// Tokens that an authorization server gives to this client (client credentials).
    Client {
        /// Identifier of the client.
        id: String,
        /// Secret of the client.
        secret: Secret,
        /// Scopes to ask for.
        scopes: Vec<String>,
    },
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
    /// The connections and requests of one client, as far as the same can be asked of it.
    PerClient,
    /// The requests of one session of a client. Where there are no sessions, in revision 2026-07-28, as `PerClient`.
    PerSession,
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
            tokens: Tokens::default(),
            credentials: Credentials::default(),
            isolation: Isolation::default(),
            idle: Duration::from_secs(600),
            look_again: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(60),
            max_message: mcp_client::Bounds::default().max_message,
            timeout: Duration::from_secs(60),
            accept_changes: [ChangeKind::New].into(),
            trust_annotations: false,
            cleans_results: true,
            risk: RiskClass::Mutating,
            risks: Vec::new(),
            costs: Vec::new(),
            hold: Vec::new(),
            unresolved: None,
        }
    }

    /// Class of a tool that says this of itself.
    #[must_use]
    pub fn risk_of(&self, tool: &str, hints: Option<&ToolAnnotations>) -> RiskClass {
        let fitting = self.risks.iter().filter(|(it, _)| fits(it, tool));
        let configured = fitting.map(|(_, class)| *class).max();
        let trusted = hints.filter(|_| self.trust_annotations);
        // One word of a tool makes it less grave than its upstream, that it only reads; others make it graver.
        let said = trusted.and_then(|it| match it.read_only_hint {
            _ if it.open_world_hint == Some(true) => Some(self.risk.max(RiskClass::External)),
            Some(true) if it.destructive_hint != Some(true) => Some(RiskClass::ReadOnly),
            Some(_) => Some(self.risk.max(RiskClass::Mutating)),
            None => None,
        });
        configured.or(said).unwrap_or(self.risk)
    }

    /// Expected cost of a call of a tool, in millionths.
    #[must_use]
    pub fn cost_of(&self, tool: &str) -> Option<u64> {
        let fitting = self.costs.iter().filter(|(it, _)| fits(it, tool));
        fitting.map(|(_, cost)| *cost).max()
    }

    /// The pattern by which a tool is held back.
    #[must_use]
    pub fn holds(&self, tool: &str) -> Option<&str> {
        self.hold
            .iter()
            .map(String::as_str)
            .find(|it| fits(it, tool))
    }

    /// Reason why the whole upstream is held back.
    #[must_use]
    pub fn held_by(&self) -> Option<String> {
        let name = &self.name;
        match &self.unresolved {
            Some(why) => Some(why.clone()),
            None => {
                let all = self.hold.iter().find(|it| is_all(it))?;
                Some(format!("upstreams.{name}.hold has `{all}`"))
            }
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

    /// Source of the tokens that all clients share; `None` if there are none to be got.
    pub(crate) async fn authorizer(
        &self,
        secrets: Option<&Arc<ClientSecrets>>,
    ) -> Result<Option<Authorizer>, AuthorizationError> {
        let Tokens::Kept(directory) = &self.tokens else {
            return self.client_authorizer();
        };
        let files = FileStore::at(directory);
        let Some(secrets) = secrets else {
            return self.stored(Arc::new(files)).await;
        };
        let sealed = SealedTokens::new(Arc::clone(secrets), &self.name, None);
        match self.stored(Arc::new(sealed.clone())).await? {
            Some(found) => Ok(Some(found)),
            None => self.stored(Arc::new(Unless { sealed, files })).await,
        }
    }

    /// Source of the tokens of one client that has signed in; `None` if it has not.
    pub(crate) async fn authorizer_of(
        &self,
        secrets: &Arc<ClientSecrets>,
        client: &str,
    ) -> Result<Option<Authorizer>, AuthorizationError> {
        let sealed = SealedTokens::new(Arc::clone(secrets), &self.name, Some(client));
        self.stored(Arc::new(sealed)).await
    }

    /// Settings for somebody who signs in at its authorization server; `None` if it is no address.
    ///
    /// # Errors
    ///
    /// As [`Authorizer::new`].
    pub fn sign_in(
        &self,
        store: SealedTokens,
        login: Login,
        authorities: Vec<u8>,
    ) -> Result<Option<Authorizer>, AuthorizationError> {
        let Reach::Url { url, .. } = &self.reach else {
            return Ok(None);
        };
        let (client, scopes) = self.identity_of_client();
        let store = store.signing_in(login.landing.as_ref().map(Landing::redirect_uri));
        let options = Options {
            client,
            scopes,
            grant: Grant::Login(login),
            store: Arc::new(Known(Arc::new(store))),
            authorities,
            ..Options::default()
        };
        Authorizer::new(url, options).map(Some)
    }

    /// The client as the authorization server knows it, and scopes to ask for.
    pub(crate) fn identity_of_client(&self) -> (ClientIdentity, Vec<String>) {
        match &self.tokens {
            Tokens::Client { id, secret, scopes } => {
                let client = ClientIdentity {
                    id: Some(id.clone()),
                    secret: Some(secret.clone()),
                    ..ClientIdentity::default()
                };
                (client, scopes.clone())
            }
            Tokens::None | Tokens::Kept(_) => (ClientIdentity::default(), Vec::new()),
        }
    }

    /// Source of tokens that are in the store; `None` if there are none in it.
    async fn stored(
        &self,
        store: Arc<dyn TokenStore>,
    ) -> Result<Option<Authorizer>, AuthorizationError> {
        let Reach::Url { url, .. } = &self.reach else {
            return Ok(None);
        };
        let store: Arc<dyn TokenStore> = Arc::new(Known(store));
        let (client, scopes) = self.identity_of_client();
        let options = Options {
            client,
            scopes,
            grant: Grant::Stored,
            store: Arc::clone(&store),
            ..Options::default()
        };
        let authorizer = Authorizer::new(url, options)?;
        let kept = store.load(authorizer.server()).await;
        let kept = kept.map_err(|error| AuthorizationError::Store(error.to_string()))?;
        let has_tokens = kept.iter().any(|it| it.tokens.is_some());
        Ok(has_tokens.then_some(authorizer))
    }

    /// Source of tokens that the authorization server gives to a client that is configured.
    fn client_authorizer(&self) -> Result<Option<Authorizer>, AuthorizationError> {
        let (Reach::Url { url, .. }, Tokens::Client { .. }) = (&self.reach, &self.tokens) else {
            return Ok(None);
        };
        let (client, scopes) = self.identity_of_client();
        let options = Options {
            client,
            scopes,
            grant: Grant::ClientCredentials,
            store: Arc::new(Known(Arc::new(MemoryStore::default()))),
            ..Options::default()
        };
        Authorizer::new(url, options).map(Some)
    }

    /// The way to it, with the credentials of one client if it is for that alone.
    pub(crate) fn dial(&self, authorize: Option<Arc<dyn Authorize>>, own: Option<&Filled>) -> Dial {
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
                    .chain(own.iter().flat_map(|it| &it.environment))
                    .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                    .collect(),
                directory: directory.clone(),
            }),
            Reach::Url {
                url,
                headers,
                transport,
            } => Dial::Url(UrlDial {
                headers: {
                    let mut headers = headers.clone();
                    headers.extend(own.iter().flat_map(|it| it.headers.iter().cloned()));
                    headers
                },
                transport: *transport,
                authorize,
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

/// True for a pattern that fits every text.
pub(crate) fn is_all(pattern: &str) -> bool {
    !pattern.is_empty() && pattern.bytes().all(|it| it == b'*')
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

impl Terms for UpstreamSpec {
    fn accepted(&self) -> &BTreeSet<ChangeKind> {
        &self.accept_changes
    }

    fn frees(&self, kind: PinKind, item: &str, new: &str) -> Option<String> {
        let is_tool = kind == PinKind::Tool;
        let is_graver = || {
            let is_named = self.risks.iter().any(|(it, _)| fits(it, item));
            is_named && self.risk_of(new, None) < self.risk_of(item, None)
        };
        let key = match () {
            () if self.left_out_by(item) == Some("deny") && self.offers(new) => "deny",
            () if !is_tool => return None,
            () if self.holds(item).is_some() && self.holds(new).is_none() => "hold",
            () if is_graver() => "risks",
            () => return None,
        };
        Some(format!("upstreams.{}.{key}", self.name))
    }
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
    fn the_gravest_pattern_goes_before_trusted_annotations_and_these_before_the_default() {
        let reach = Reach::Child {
            program: "x".to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
        };
        let mut spec = UpstreamSpec::new("s", reach);
        let reads = ToolAnnotations {
            read_only_hint: Some(true),
            ..ToolAnnotations::default()
        };
        let reaches = ToolAnnotations {
            open_world_hint: Some(true),
            ..reads.clone()
        };
        assert_eq!(spec.risk_of("get", Some(&reads)), RiskClass::Mutating);
        spec.trust_annotations = true;
        assert_eq!(spec.risk_of("get", Some(&reads)), RiskClass::ReadOnly);
        assert_eq!(spec.risk_of("get", Some(&reaches)), RiskClass::External);
        assert_eq!(spec.risk_of("get", None), RiskClass::Mutating);
        let writes = ToolAnnotations {
            read_only_hint: Some(false),
            ..ToolAnnotations::default()
        };
        spec.risk = RiskClass::Financial;
        assert_eq!(spec.risk_of("get", Some(&writes)), RiskClass::Financial);
        assert_eq!(spec.risk_of("get", Some(&reaches)), RiskClass::Financial);
        assert_eq!(spec.risk_of("get", Some(&reads)), RiskClass::ReadOnly);
        spec.risk = RiskClass::Mutating;
        spec.risks = vec![
            ("pay*".to_owned(), RiskClass::Financial),
            ("*".to_owned(), RiskClass::ReadOnly),
        ];
        assert_eq!(spec.risk_of("pay_all", Some(&reads)), RiskClass::Financial);
        assert_eq!(spec.risk_of("get", None), RiskClass::ReadOnly);
        spec.costs = vec![("pay*".to_owned(), 5), ("*".to_owned(), 7)];
        assert_eq!(spec.cost_of("pay_all"), Some(7));
        spec.costs.pop();
        assert_eq!(
            (spec.cost_of("pay_all"), spec.cost_of("get")),
            (Some(5), None)
        );
        spec.hold = vec!["pay*".to_owned()];
        assert_eq!(spec.holds("pay_all"), Some("pay*"));
        assert!(spec.holds("get").is_none() && spec.held_by().is_none());
        for all in ["*", "**", "***"] {
            spec.hold = vec!["pay*".to_owned(), all.to_owned()];
            let why = format!("upstreams.{}.hold has `{all}`", spec.name);
            assert_eq!(spec.held_by(), Some(why));
        }
        spec.hold = vec![String::new()];
        assert_eq!(spec.held_by(), None);
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
