//! Settings of authentication.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_client::BadUrl;
use identity::{
    BadIssuers, CertificateName, CertificateOptions, IntrospectionOptions, IssuerOptions, Issuers,
    KeySource, canonical_resource,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;
use crate::sections::secret::{Secret, url_fault};
use crate::sections::{Config, Transport};

/// Schemes of addresses of issuers, of their keys and of the endpoint.
const SCHEMES: &[&str] = &["https", "http"];

/// Authentication of clients. If any means is configured, every client must authenticate; several
/// means may be configured at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Identity {
    /// The address of the endpoint as clients know it, such as `https://tools.example.com/mcp`:
    /// what tokens must be made for, and what clients are told to ask for. Needed for `jwt` and
    /// `introspection`.
    pub resource: Option<String>,
    /// Keys that `keys create` makes.
    pub api_keys: Option<ApiKeys>,
    /// Issuers of tokens (OAuth 2, OpenID Connect) that are believed, by a name of the operator's
    /// choice.
    pub jwt: BTreeMap<String, Jwt>,
    /// An issuer of tokens that only it can read, and that is asked about them (RFC 7662).
    pub introspection: Option<Introspection>,
    /// Tokens that are bound to a key of their client (RFC 9449).
    pub dpop: Dpop,
    /// Client certificates, which `http.tls.client_ca_file` must vouch for.
    pub certificates: Option<ClientCertificates>,
    /// Allow a token or a certificate to name the principal of an API key. Without this, the
    /// prefixes of their names must keep them apart: a name that its bearer has chosen could be
    /// that of a key.
    pub shared_principals: bool,
    /// Roles that may look at statistics and decide approvals over HTTP.
    pub operator_roles: Vec<String>,
    /// Roles that may read metrics and the details of health.
    pub metrics_roles: Vec<String>,
    /// Need for the client that starts the server on stdio to authenticate, with a key in the
    /// variable `OWLCLAW_API_KEY`.
    pub stdio: StdioIdentity,
    /// Authorities that certificates of issuers may come from besides the system's, PEM.
    #[schemars(extend("format" = "path"))]
    pub ca_file: Option<PathBuf>,
}

impl Default for Identity {
    fn default() -> Self {
        let roles = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            resource: None,
            api_keys: None,
            jwt: BTreeMap::new(),
            introspection: None,
            dpop: Dpop::default(),
            certificates: None,
            shared_principals: false,
            operator_roles: roles(&["operator"]),
            metrics_roles: roles(&["operator", "metrics"]),
            stdio: StdioIdentity::default(),
            ca_file: None,
        }
    }
}

/// Keys that `keys create` makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApiKeys {
    /// The file with their digests. It is read again when it changes.
    #[schemars(extend("format" = "path"))]
    pub file: PathBuf,
}

impl Default for ApiKeys {
    fn default() -> Self {
        Self {
            file: "./data/api-keys.json".into(),
        }
    }
}

/// An issuer of tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Jwt {
    /// Required value of a token's `iss`, compared character for character; clients also get their
    /// tokens there.
    pub issuer: String,
    /// Accepted values of a token's `aud`, compared character for character. Empty:
    /// `identity.resource`.
    pub audience: Vec<String>,
    /// Address of its public keys, `https://…`. Without this and `jwks_file`, the address that the
    /// issuer's metadata gives.
    pub jwks_url: Option<String>,
    /// The same as a file, read again when it changes.
    #[schemars(extend("format" = "path"))]
    pub jwks_file: Option<PathBuf>,
    /// Accepted signature algorithms of its tokens. Shared secrets and unsigned tokens are never
    /// accepted.
    pub algorithms: Vec<Algorithm>,
    /// The claim with the name of the principal; a path with dots leads into objects.
    pub principal_claim: String,
    /// Prefix of that name. Two issuers need two prefixes.
    pub principal_prefix: String,
    /// The claim with roles, such as `roles` or `realm_access.roles`.
    pub roles_claim: Option<String>,
    /// Roles that scopes give, by the name of the scope.
    pub scopes: BTreeMap<String, Vec<String>>,
    /// Scopes without which no client is served.
    pub required_scopes: Vec<String>,
    /// By how many seconds clocks may differ.
    #[schemars(range(max = 600))]
    pub leeway_seconds: u64,
    /// After how many seconds the keys are fetched again.
    #[schemars(range(min = 10, max = 86_400))]
    pub refresh_seconds: u64,
    /// Shortest time in seconds between two fetches, also when tokens name keys that are not known.
    #[schemars(range(min = 1, max = 3_600))]
    pub min_refetch_seconds: u64,
    /// For how many seconds keys are believed that cannot be fetched again.
    #[schemars(range(min = 60, max = 2_592_000))]
    pub max_stale_seconds: u64,
    /// Signing in at this issuer in a browser (OpenID Connect), on the desk and on the pages where users of clients give
    /// credentials for upstreams.
    pub sign_in: Option<OpenIdClient>,
}

/// Registration of this server as a client of an issuer of OpenID Connect, where people sign in in their browsers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenIdClient {
    /// Name by which this server is registered with the issuer.
    pub client_id: String,
    /// Secret that belongs to the name, such as `${vault:sign-in}`. Without it the client is a public one, whose codes PKCE
    /// protects.
    pub client_secret: Option<Secret>,
    /// Scopes to ask for besides `openid` and `required_scopes`.
    pub scopes: Vec<String>,
}

impl Default for Jwt {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            audience: Vec::new(),
            jwks_url: None,
            jwks_file: None,
            algorithms: vec![
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
                Algorithm::ES256,
                Algorithm::ES384,
                Algorithm::EdDSA,
            ],
            principal_claim: "sub".to_owned(),
            principal_prefix: String::new(),
            roles_claim: None,
            scopes: BTreeMap::new(),
            required_scopes: Vec::new(),
            leeway_seconds: 30,
            refresh_seconds: 900,
            min_refetch_seconds: 10,
            max_stale_seconds: 86_400,
            sign_in: None,
        }
    }
}

/// An issuer that is asked about its tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Introspection {
    /// The issuer, where clients get their tokens; if an answer has an `iss`, it must be this one.
    pub issuer: String,
    /// Address of its introspection endpoint, `https://…`.
    pub url: String,
    /// Name by which this server is known to the issuer.
    pub client_id: String,
    /// Secret that belongs to the name, such as `${INTROSPECTION_SECRET}`.
    pub client_secret: Secret,
    /// Accepted values of `aud` in an answer, compared character for character. Empty: `identity.resource`.
    pub audience: Vec<String>,
    /// The member of an answer with the name of the principal; a path with dots leads into objects.
    pub principal_claim: String,
    /// Prefix of that name. Two issuers need two prefixes.
    pub principal_prefix: String,
    /// The member with roles, such as `roles` or `realm_access.roles`.
    pub roles_claim: Option<String>,
    /// Roles that scopes give, by the name of the scope.
    pub scopes: BTreeMap<String, Vec<String>>,
    /// Scopes without which no client is served.
    pub required_scopes: Vec<String>,
    /// By how many seconds clocks may differ.
    #[schemars(range(max = 600))]
    pub leeway_seconds: u64,
    /// For how many seconds an answer is used again. A token that its issuer has taken back is accepted for so
    /// long.
    #[schemars(range(max = 3_600))]
    pub remember_seconds: u64,
}

impl Default for Introspection {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            url: String::new(),
            client_id: String::new(),
            client_secret: Secret::new(""),
            audience: Vec::new(),
            principal_claim: "sub".to_owned(),
            principal_prefix: String::new(),
            roles_claim: None,
            scopes: BTreeMap::new(),
            required_scopes: Vec::new(),
            leeway_seconds: 30,
            remember_seconds: 30,
        }
    }
}

/// Tokens that are bound to a key of their client (RFC 9449). They are taken with a proof of the key, and refused without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dpop {
    /// Refuse tokens that are bound to no key.
    pub required: bool,
    /// Take proofs with a nonce of this server alone: none can be made in advance, and none that another server behind the same
    /// name has taken is good here.
    pub nonces: bool,
}

/// Signature algorithm of a token, as RFC 7518 and RFC 8037 name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Algorithm {
    /// RSA as PKCS #1 has it, SHA-256.
    RS256,
    /// The same with SHA-384.
    RS384,
    /// The same with SHA-512.
    RS512,
    /// RSA-PSS, SHA-256.
    PS256,
    /// The same with SHA-384.
    PS384,
    /// The same with SHA-512.
    PS512,
    /// ECDSA over P-256.
    ES256,
    /// ECDSA over P-384.
    ES384,
    /// Ed25519.
    EdDSA,
}

impl Algorithm {
    fn real(self) -> identity::Algorithm {
        match self {
            Self::RS256 => identity::Algorithm::RS256,
            Self::RS384 => identity::Algorithm::RS384,
            Self::RS512 => identity::Algorithm::RS512,
            Self::PS256 => identity::Algorithm::PS256,
            Self::PS384 => identity::Algorithm::PS384,
            Self::PS512 => identity::Algorithm::PS512,
            Self::ES256 => identity::Algorithm::ES256,
            Self::ES384 => identity::Algorithm::ES384,
            Self::EdDSA => identity::Algorithm::EdDSA,
        }
    }
}

/// Mapping of client certificates to principals.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientCertificates {
    /// Kind of name that becomes the principal's. A certificate must have exactly one of the kind.
    pub principal: NameIn,
    /// Prefix of the principal's name.
    pub principal_prefix: String,
    /// Roles, by patterns over principals in which `*` stands for any text. All that fit count.
    #[schemars(extend("x-patterns" = true))]
    pub roles: BTreeMap<String, Vec<String>>,
}

/// Kind of name in a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NameIn {
    /// The URI among the alternative names, such as a SPIFFE id.
    #[default]
    SanUri,
    /// The DNS name among the alternative names.
    SanDns,
    /// The mail address among the alternative names.
    SanEmail,
    /// The common name of the subject.
    Cn,
}

/// Need for the client that starts the server on stdio to authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StdioIdentity {
    /// A key that is given must be valid; without one the name is taken from the environment.
    #[default]
    Optional,
    /// Without a good key the server does not start.
    Required,
}

impl Identity {
    /// Returns true if clients over HTTP have to authenticate.
    pub fn is_configured(&self) -> bool {
        self.api_keys.is_some() || self.takes_tokens() || self.certificates.is_some()
    }

    /// Returns true if tokens of issuers are accepted.
    pub fn takes_tokens(&self) -> bool {
        !self.jwt.is_empty() || self.introspection.is_some()
    }

    /// Addresses of the issuers, where clients get tokens.
    pub fn authorization_servers(&self) -> Vec<String> {
        let asked = self.introspection.iter().map(|it| &it.issuer);
        let signing = self.jwt.values().map(|it| &it.issuer);
        signing.chain(asked).cloned().collect()
    }

    /// The issuer that is asked about tokens, for the crate that judges its answers.
    pub fn introspection(&self) -> Option<IntrospectionOptions> {
        let introspection = self.introspection.as_ref()?;
        Some(introspection.options(self.resource.as_deref()))
    }

    /// The issuers, for the crate that judges their tokens.
    pub fn issuers(&self) -> Vec<IssuerOptions> {
        let entries = self.jwt.iter();
        entries
            .map(|(name, jwt)| jwt.options(name, self.resource.as_deref()))
            .collect()
    }

    /// Name, prefix of principals and place of each issuer of tokens.
    fn prefixes(&self) -> Vec<(&str, &str, String)> {
        let signing = self.jwt.iter().map(|(name, it)| {
            (
                name.as_str(),
                it.principal_prefix.as_str(),
                child("identity.jwt", name),
            )
        });
        let asked = self.introspection.iter().map(|it| {
            (
                ASKED,
                it.principal_prefix.as_str(),
                "identity.introspection".to_owned(),
            )
        });
        signing.chain(asked).collect()
    }

    /// The means, in a few words.
    pub(crate) fn summary(&self) -> String {
        let mut means = Vec::new();
        if self.api_keys.is_some() {
            means.push("API keys".to_owned());
        }
        for name in self.jwt.keys() {
            means.push(format!("tokens of {name}"));
        }
        if let Some(introspection) = &self.introspection {
            means.push(format!(
                "tokens that {} is asked about",
                introspection.issuer
            ));
        }
        if self.certificates.is_some() {
            means.push("client certificates".to_owned());
        }
        match means.is_empty() {
            true => "none: names are what clients claim".to_owned(),
            false => means.join(", "),
        }
    }

    /// The scopes that mean something, those that are needed first.
    pub fn scopes(&self) -> Vec<String> {
        let asked = || self.introspection.iter();
        let needed = self.jwt.values().flat_map(|jwt| &jwt.required_scopes);
        let needed = needed.chain(asked().flat_map(|it| &it.required_scopes));
        let others = self.jwt.values().flat_map(|jwt| jwt.scopes.keys());
        let others = others.chain(asked().flat_map(|it| it.scopes.keys()));
        let mut scopes: Vec<String> = Vec::new();
        for scope in needed.chain(others) {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        scopes
    }
}

impl Jwt {
    fn options(&self, name: &str, resource: Option<&str>) -> IssuerOptions {
        let keys = match (&self.jwks_file, &self.jwks_url) {
            (Some(path), _) => KeySource::File(path.clone()),
            (None, Some(url)) => KeySource::Url(url.clone()),
            (None, None) => KeySource::Issuer,
        };
        let roles = |roles: &Vec<String>| roles.iter().map(|it| Arc::from(it.as_str())).collect();
        let seconds = Duration::from_secs;
        IssuerOptions {
            audiences: self.audience.clone(),
            // What is written out replaces what goes without saying.
            resource: resource
                .filter(|_| self.audience.is_empty())
                .map(str::to_owned),
            algorithms: self.algorithms.iter().map(|it| it.real()).collect(),
            principal_claim: self.principal_claim.clone(),
            principal_prefix: self.principal_prefix.clone(),
            roles_claim: self.roles_claim.clone(),
            scopes: self
                .scopes
                .iter()
                .map(|(scope, given)| (scope.clone(), roles(given)))
                .collect(),
            required_scopes: self.required_scopes.clone(),
            leeway: seconds(self.leeway_seconds),
            refresh: seconds(self.refresh_seconds),
            min_interval: seconds(self.min_refetch_seconds),
            max_stale: seconds(self.max_stale_seconds),
            ..IssuerOptions::new(name, self.issuer.as_str(), keys)
        }
    }
}

/// Name of the issuer that is asked, in messages, in the log and in `/health`.
const ASKED: &str = "introspection";

impl Introspection {
    fn options(&self, resource: Option<&str>) -> IntrospectionOptions {
        let roles = |roles: &Vec<String>| roles.iter().map(|it| Arc::from(it.as_str())).collect();
        let issuer = IssuerOptions {
            audiences: self.audience.clone(),
            resource: resource
                .filter(|_| self.audience.is_empty())
                .map(str::to_owned),
            principal_claim: self.principal_claim.clone(),
            principal_prefix: self.principal_prefix.clone(),
            roles_claim: self.roles_claim.clone(),
            scopes: self
                .scopes
                .iter()
                .map(|(scope, given)| (scope.clone(), roles(given)))
                .collect(),
            required_scopes: self.required_scopes.clone(),
            leeway: Duration::from_secs(self.leeway_seconds),
            ..IssuerOptions::new(ASKED, self.issuer.as_str(), KeySource::Issuer)
        };
        IntrospectionOptions {
            issuer,
            remember: Duration::from_secs(self.remember_seconds),
        }
    }
}

impl ClientCertificates {
    /// The same for the crate that reads certificates.
    pub fn options(&self) -> CertificateOptions {
        let role = |role: &String| Arc::from(role.as_str());
        CertificateOptions {
            name: match self.principal {
                NameIn::SanUri => CertificateName::SanUri,
                NameIn::SanDns => CertificateName::SanDns,
                NameIn::SanEmail => CertificateName::SanEmail,
                NameIn::Cn => CertificateName::CommonName,
            },
            principal_prefix: self.principal_prefix.clone(),
            roles: self
                .roles
                .iter()
                .map(|(pattern, roles)| (pattern.clone(), roles.iter().map(role).collect()))
                .collect(),
        }
    }
}

/// Adds the problems of authentication that can be found without reading files or connecting.
pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let identity = &config.identity;
    let mut error = |key: &str, message: String, hint: &str| {
        let problem = Problem::error(origin_near(origins, key), message);
        problems.push(problem.key(key).hint(hint));
    };
    let says_something = origins.keys().find(|key| key.starts_with("identity."));
    if let Some(key) = says_something.filter(|_| !identity.is_configured()) {
        let message = "`identity` has no method of authentication".to_owned();
        let hint =
            "add `api_keys: {}`, `jwt`, `introspection` or `certificates`, or remove the section";
        error(key, message, hint);
    }
    if identity.stdio == StdioIdentity::Required && identity.api_keys.is_none() {
        let message = "`identity.stdio: required` needs keys".to_owned();
        let hint = "add `api_keys: {}` and make a key with `owlclaw-mcp keys create`";
        error("identity.stdio", message, hint);
    }
    if identity.dpop != Dpop::default() && !identity.takes_tokens() {
        let message = "`identity.dpop` is of no use without `jwt` or `introspection`".to_owned();
        error(
            "identity.dpop",
            message,
            "configure one of them, or take it out",
        );
    }
    let resource = identity.resource.as_deref();
    if let Some(resource) = resource {
        let fault = url_fault(resource, SCHEMES);
        if fault.is_some() || canonical_resource(resource).is_none() {
            let mut message = "`identity.resource` must be the address of the endpoint".to_owned();
            message.extend(fault.map(|why| format!(": {why}")));
            let hint = "write it as clients do, such as `https://tools.example.com/mcp`";
            error("identity.resource", message, hint);
        }
    } else if identity.takes_tokens() {
        let section = match identity.jwt.is_empty() {
            true => "introspection",
            false => "jwt",
        };
        let message = format!("`identity.{section}` needs `identity.resource`");
        let hint = "write the address of the endpoint, such as `https://tools.example.com/mcp`";
        error("identity.resource", message, hint);
    }
    for (name, jwt) in &identity.jwt {
        let path = child("identity.jwt", name);
        check_issuer(jwt, &path, &mut error);
        if let Some(client) = &jwt.sign_in {
            check_sign_in(name, jwt, client, &child(&path, "sign_in"), &mut error);
        }
    }
    if let Some(introspection) = &identity.introspection {
        check_introspection(introspection, &mut error);
    }
    let asked = identity.introspection().map(|it| it.issuer);
    if let Err(why) = Issuers::new(identity.issuers().into_iter().chain(asked).collect())
        && !matches!(why, BadIssuers::NoAudience(_) | BadIssuers::NoAlgorithms(_))
    {
        let (BadIssuers::Same(_, name)
        | BadIssuers::SamePrincipals(_, name)
        | BadIssuers::NoAudience(name)
        | BadIssuers::NoAlgorithms(name)) = &why;
        let path = match identity.jwt.contains_key(&**name) {
            true => child("identity.jwt", name),
            false => "identity.introspection".to_owned(),
        };
        let (key, hint) = match &why {
            BadIssuers::SamePrincipals(..) => {
                ("principal_prefix", "such as `corp:` and `partner:`")
            }
            _ => ("issuer", "keep one of the two"),
        };
        error(
            &child(&path, key),
            format!("of the issuers in `identity`, {why}"),
            hint,
        );
    }
    if let Some(certificates) = &identity.certificates {
        let prefix = &certificates.principal_prefix;
        let other = identity
            .prefixes()
            .into_iter()
            .find(|(_, other, _)| prefix.starts_with(*other) || other.starts_with(prefix.as_str()));
        if let Some((name, ..)) = other {
            let message =
                format!("certificates and the tokens of `{name}` could make the same principal");
            let hint = "give each a `principal_prefix`, neither the beginning of the other";
            error("identity.certificates.principal_prefix", message, hint);
        }
        if config.http.tls.client_ca_file.is_none() {
            let message = "`identity.certificates` needs `http.tls.client_ca_file`".to_owned();
            let hint = "name the authorities that client certificates must come from";
            error("identity.certificates", message, hint);
        }
    }
    if identity.api_keys.is_some() && !identity.shared_principals {
        let certificates = identity.certificates.iter();
        let certificates = certificates.map(|it| {
            let prefix = it.principal_prefix.as_str();
            (
                prefix,
                "certificates".to_owned(),
                "identity.certificates".to_owned(),
            )
        });
        let tokens = identity.prefixes().into_iter().map(|(name, prefix, path)| {
            (
                prefix,
                format!("the tokens of `{name}`"),
                child(&path, "principal_prefix"),
            )
        });
        for (_, who, path) in certificates.chain(tokens).filter(|(it, ..)| it.is_empty()) {
            let message = format!("{who} and API keys could make the same principal");
            let hint = "give them a `principal_prefix` such as `corp:`, or say \
                        `identity.shared_principals: true` if who has the name there is to be who \
                        has the key";
            error(&path, message, hint);
        }
    }
    if config.transport == Transport::Http && identity.is_configured() {
        warn(config, origins, problems);
    }
}

/// Adds a problem if the address of an issuer is none; gives the fault.
fn check_address(
    issuer: &str,
    path: &str,
    error: &mut impl FnMut(&str, String, &str),
) -> Option<BadUrl> {
    let fault = url_fault(issuer, SCHEMES)?;
    let key = child(path, "issuer");
    let message = format!("`{key}` must be the address of the issuer: {fault}");
    let hint =
        "write what its tokens say in `iss`, such as `https://login.example.com/realms/corp`";
    error(&key, message, hint);
    Some(fault)
}

/// Adds a problem if others could change what is asked and answered at `url`.
fn check_safe(url: &str, key: &str, hint: &str, error: &mut impl FnMut(&str, String, &str)) {
    if is_safe(url) {
        return;
    }
    let message = match url_fault(url, SCHEMES) {
        None | Some(BadUrl::Scheme) => format!("`{key}` must begin with `https://`"),
        Some(why) => format!("`{key}` cannot be used: {why}"),
    };
    error(key, message, hint);
}

fn check_introspection(it: &Introspection, error: &mut impl FnMut(&str, String, &str)) {
    const PATH: &str = "identity.introspection";
    check_address(&it.issuer, PATH, error);
    let hint = "the issuer's `/.well-known/oauth-authorization-server` has it as \
                `introspection_endpoint`; who can change answers on their way can be anybody";
    check_safe(&it.url, &child(PATH, "url"), hint, error);
    let missing = [
        ("client_id", it.client_id.is_empty()),
        ("client_secret", it.client_secret == Secret::new("")),
    ];
    for (key, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
        let key = child(PATH, key);
        let message = format!("`{key}` is missing: issuers answer known clients alone");
        let hint = "register this server with the issuer as a client that may introspect tokens";
        error(&key, message, hint);
    }
}

fn check_sign_in(
    name: &str,
    jwt: &Jwt,
    client: &OpenIdClient,
    path: &str,
    error: &mut impl FnMut(&str, String, &str),
) {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    if !name.chars().all(is_plain) {
        let message = format!(
            "`{name}` cannot be part of the address to which the issuer sends browsers back"
        );
        let hint = "give the issuer a name of letters, digits, `.`, `_` and `-`";
        error(path, message, hint);
    }
    if client.client_id.trim().is_empty() {
        let key = child(path, "client_id");
        let message =
            format!("`{key}` is missing: issuers let people sign in for known clients alone");
        let hint =
            "register this server with the issuer as a client of the authorization code flow";
        error(&key, message, hint);
    }
    if !KeySource::can_be_found(&jwt.issuer) && url_fault(&jwt.issuer, SCHEMES).is_none() {
        let message = format!("`{path}` needs an issuer that says where people sign in");
        let hint = "its address begins with `https://` and has no query";
        error(path, message, hint);
    }
    if client
        .scopes
        .iter()
        .any(|it| it.is_empty() || it.contains(char::is_whitespace))
    {
        let key = child(path, "scopes");
        let message = format!("`{key}` has a scope that is empty or has a space in it");
        error(&key, message, "write each scope by itself");
    }
}

fn check_issuer(jwt: &Jwt, path: &str, error: &mut impl FnMut(&str, String, &str)) {
    let fault = check_address(&jwt.issuer, path, error);
    match (&jwt.jwks_url, &jwt.jwks_file) {
        (Some(url), None) => {
            let hint = "an attacker who can change the keys in transit can claim any identity";
            check_safe(url, &child(path, "jwks_url"), hint, error);
        }
        (None, Some(_)) => {}
        (Some(_), Some(_)) => {
            let key = child(path, "jwks_url");
            let message = format!("`{key}` and `jwks_file` are two sets of keys");
            let hint = "the issuer's `/.well-known/openid-configuration` has it as `jwks_uri`";
            error(&key, message, hint);
        }
        (None, None) if KeySource::can_be_found(&jwt.issuer) || fault.is_some() => {}
        (None, None) => {
            let key = child(path, "jwks_url");
            let message = format!("`{path}` does not say where the issuer's keys are");
            let hint = "an issuer whose address begins with `https://` and has no query is asked \
                        itself; else name `jwks_url` or `jwks_file`";
            error(&key, message, hint);
        }
    }
    if jwt.algorithms.is_empty() {
        let key = child(path, "algorithms");
        let message = format!("`{key}` must not be empty");
        error(&key, message, "leave the key out for its default");
    }
}

/// Adds warnings about settings that are legal and odd.
fn warn(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let http = &config.http;
    let mut warning = |key: &str, message: String, hint: &str| {
        let problem = Problem::warning(origin_near(origins, key), message);
        problems.push(problem.key(key).hint(hint));
    };
    if http.allow_anonymous {
        let message =
            "`http.allow_anonymous: true` has no effect: `identity` wants proofs".to_owned();
        warning("http.allow_anonymous", message, "remove it");
    }
    if http.tcp && !http.host.is_loopback() && !http.tls.enabled {
        let message = format!(
            "other machines reach `http.host` {} without encryption, and keys and tokens with it",
            http.host
        );
        let hint = "set `http.tls.enabled: true`, or let a proxy on the same machine end TLS";
        warning("http.host", message, hint);
    }
}

/// Returns true if nobody between here and `url` can change what it answers.
fn is_safe(url: &str) -> bool {
    url_fault(url, SCHEMES).is_none() && KeySource::is_safe(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_file_are_those_of_the_crate() {
        let jwt = Jwt {
            issuer: "https://i.example".to_owned(),
            jwks_url: Some("https://i.example/keys".to_owned()),
            ..Jwt::default()
        };
        let keys = KeySource::Url("https://i.example/keys".to_owned());
        let theirs = IssuerOptions {
            resource: Some("https://r.example/mcp".to_owned()),
            ..IssuerOptions::new("x", "https://i.example", keys)
        };
        let ours = jwt.options("x", Some("https://r.example/mcp"));
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn plain_text_is_for_this_machine() {
        for safe in [
            "https://i.example/keys",
            "http://127.0.0.1:9/keys",
            "http://localhost/keys",
            "http://[::1]:9/keys",
        ] {
            assert!(is_safe(safe), "{safe}");
        }
        for unsafe_one in [
            "http://i.example/keys",
            "http://127.0.0.1.evil.example/keys",
            "http://localhost@evil.example/keys",
            "file:///keys",
            "https://",
            "",
        ] {
            assert!(!is_safe(unsafe_one), "{unsafe_one}");
        }
    }
}
