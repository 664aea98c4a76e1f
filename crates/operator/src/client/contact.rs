//! The way to a server: its address or program, the headers and tokens, and what is told when it fails.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_client::SendError;
use mcp_client::{Bounds, ChildProgram, Dial, Error, HttpTransport, Options, Speak, UrlDial};
use mcp_protocol::ProtocolVersion;
use mcp_protocol::client::ServerError;
use mcp_protocol::model::{Implementation, LoggingLevel};
use oauth_client::{Authorizer, FileStore, Grant, TokenStore};

use super::{bad_url, desk::Desk, quoted, sign_in};
use crate::request::{AnyServer, Identity, Place, Severity, UrlTransport};
use crate::terminal::remark;
use config::printable;
use server::Failure;

/// A longer file with headers or a token is refused.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The way to one server, and how it is spoken to.
#[derive(Debug)]
pub(crate) struct Contact {
    dial: Dial,
    pub(super) options: Options,
    /// The server in words.
    name: String,
    /// Advice for a server that wants to know who is asking.
    credentials: String,
    /// Place of tokens that were got by signing in; none where the command line names another proof.
    tokens: Option<PathBuf>,
    /// Settings for getting tokens.
    authorization: oauth_client::Options,
}

impl Contact {
    /// The way to the server that a command line names.
    pub(super) fn of(server: &AnyServer) -> Result<Self, Failure> {
        let options = options(server)?;
        let (url, command) = match &server.place {
            Place { url: Some(url), .. } => (url, None),
            Place { command, .. } => (&String::new(), command.split_first()),
        };
        if let Some((program, arguments)) = command {
            if server.identity != Identity::default() {
                return Err(
                    "a client and its tokens are for servers with an address: --url".into(),
                );
            }
            let child = ChildProgram {
                program: program.clone(),
                arguments: arguments.to_vec(),
                environment: variables(&server.variables)?,
                ..ChildProgram::default()
            };
            return Ok(Self {
                dial: Dial::Child(child),
                options,
                name: printable(&program.to_string_lossy()),
                credentials: String::new(),
                tokens: None,
                authorization: oauth_client::Options::default(),
            });
        }
        check_url(url)?;
        let mut headers = headers(&server.headers)?;
        let token = secret(
            server.token_env.as_deref(),
            server.token_file.as_deref(),
            "--token-env",
        )?;
        if let Some(token) = token {
            bearer(&mut headers, &token, "the token")?;
        }
        let has_proof = headers.contains_key(header::AUTHORIZATION);
        if has_proof && is_plain(url) {
            remark("warning: the key or token is sent over a connection that is not encrypted");
        }
        let mut dial = UrlDial::new(url);
        dial.transport = match server.transport {
            UrlTransport::Detect => HttpTransport::Detect,
            UrlTransport::Http => HttpTransport::Streamable,
            UrlTransport::Sse => HttpTransport::Sse,
        };
        dial.headers = headers;
        dial.authorities = authorities(server.ca.as_deref())?;
        let name = printable(url);
        let mut authorization = sign_in::options(&server.identity)?;
        authorization.authorities.clone_from(&dial.authorities);
        let mut tokens = None;
        if server.client_credentials {
            if has_proof {
                return Err(
                    "there is a header Authorization and --client-credentials; give one of them"
                        .into(),
                );
            }
            authorization.grant = Grant::ClientCredentials;
            authorization.scopes.clone_from(&server.scopes);
            let authorizer = Authorizer::new(url, authorization.clone());
            dial.authorize = Some(Arc::new(authorizer?));
        } else if !has_proof {
            Authorizer::new(url, authorization.clone())?;
            // Where no tokens can be kept, none are.
            tokens = sign_in::directory(&server.identity).ok();
        }
        Ok(Self {
            dial: Dial::Url(dial),
            options,
            credentials: match server.client_credentials {
                true => "the client's identifier (--client-id), its secret or key and --scope must be those that the \
                         authorization server has for it; --issuer names that server"
                    .to_owned(),
                false => format!(
                    "sign in with `owlclaw-mcp client login --url {name}`, or show a key or token of yours with \
                     --token-env or --token-file"
                ),
            },
            name,
            tokens,
            authorization,
        })
    }

    /// The way to a server of ours: with these headers, and the key or token `proof`.
    pub(crate) fn ours(
        url: &str,
        mut headers: HeaderMap,
        proof: Option<&str>,
        ca: Option<&Path>,
        timeout: u64,
    ) -> Result<Self, Failure> {
        if let Some(proof) = proof {
            bearer(&mut headers, proof, "OWLCLAW_API_KEY")?;
        }
        check_url(url)?;
        let mut dial = UrlDial::new(url);
        dial.headers = headers;
        dial.authorities = authorities(ca)?;
        Ok(Self {
            dial: Dial::Url(dial),
            options: Options {
                bounds: bounds(timeout),
                handlers: Arc::new(Desk::new(Vec::new(), None)),
                ..Options::default()
            },
            name: printable(url),
            credentials: "put a key or a token into OWLCLAW_API_KEY".to_owned(),
            tokens: None,
            authorization: oauth_client::Options::default(),
        })
    }

    /// The way with the tokens that are kept for the server, if there are any.
    pub(super) async fn dial(&self) -> Result<Dial, Failure> {
        let (Dial::Url(url), Some(directory)) = (&self.dial, &self.tokens) else {
            return Ok(self.dial.clone());
        };
        let store = Arc::new(FileStore::at(directory));
        let options = oauth_client::Options {
            store: Arc::clone(&store) as Arc<dyn TokenStore>,
            ..self.authorization.clone()
        };
        let mut url = url.clone();
        let authorizer = Authorizer::new(&url.url, options)?;
        let kept = store.load(authorizer.server()).await;
        let kept = kept.map_err(|error| format!("the kept tokens cannot be used: {error}"))?;
        if kept.iter().any(|it| it.tokens.is_some()) {
            url.authorize = Some(Arc::new(authorizer));
        }
        Ok(Dial::Url(url))
    }

    /// True for an address of HTTP without TLS.
    fn is_plain_http(&self) -> bool {
        matches!(&self.dial, Dial::Url(it) if it.url.starts_with("http://"))
    }

    /// The reason in words, with the server's name and with advice.
    pub(super) fn failure(&self, error: &Error) -> Failure {
        let why = quoted(&server::with_causes(error), "  ");
        let advice = match error {
            Error::AuthorizationMisconfigured { cure, .. } => cure,
            Error::Unauthorized { .. } => self.credentials.as_str(),
            Error::AuthorizationUnavailable { .. } => {
                "tokens that are kept stay, and are used again as soon as the authorization server answers as it should"
            }
            Error::Status { status: 404, .. } => {
                "the path of the address may be wrong; most servers answer at /mcp"
            }
            Error::Start { .. } => {
                "the program must be installed, and in PATH unless named by a path"
            }
            Error::TimedOut { .. } | Error::Http(SendError::TimedOut) => {
                "--timeout gives it more time"
            }
            Error::Http(SendError::Unreachable(_)) => {
                "the server must be running, at the host and port of --url; --ca names the authority of a \
                 certificate that the system does not know"
            }
            Error::Broken { cause, .. } if cause.is_hang_up() && self.is_plain_http() => {
                "the log of the server may say why it has ended the connection; if its port speaks TLS, write https:// in --url"
            }
            Error::NoCommonVersion { .. } => {
                "--revision names the one to speak; a newer version of this program may know theirs"
            }
            Error::Closed { .. } | Error::NotSent { .. } if matches!(self.dial, Dial::Child(_)) => {
                "the program must speak MCP over its standard streams until its input ends; run it by hand \
                 to see what it prints"
            }
            Error::Closed { .. } | Error::NotSent { .. } => {
                "the log of the server, or of a proxy in front of it, may say why it has ended the connection"
            }
            Error::Server {
                meaning: ServerError::MissingClientCapability { .. },
                ..
            }
            | Error::Unanswered(_) => UNANSWERED,
            Error::Protocol(why) if why.contains("which was not declared") => UNANSWERED,
            _ => "",
        };
        let hint = if advice.is_empty() { "" } else { "\nhint: " };
        format!("{} gives no answer: {why}{hint}{advice}", self.name).into()
    }
}

/// Advice for a question of the server's that nobody answered.
const UNANSWERED: &str = "forms are answered on a terminal or by --answers, addresses on a terminal, roots by --root, requests for \
     a model's text by --sampled";

pub(super) fn check_url(url: &str) -> Result<(), Failure> {
    let read = http_client::parse_url(url, &["http", "https", "ws", "wss"]);
    read.map(drop).map_err(bad_url)
}

fn options(server: &AnyServer) -> Result<Options, Failure> {
    let version = match &server.revision {
        None => Speak::Probe,
        Some(date) => {
            let known = ProtocolVersion::ALL.into_iter();
            let known: Vec<_> = known.map(|it| (it, it.as_str())).collect();
            let found = known.iter().find(|(_, name)| name == date);
            let (version, _) = found.ok_or_else(|| {
                let names: Vec<_> = known.iter().map(|(_, name)| *name).collect();
                format!("--revision must be one of {}", names.join(", "))
            })?;
            Speak::Only(*version)
        }
    };
    let answers = match &server.answers {
        Some(words) if words == "-" => {
            return Err("--answers cannot come from standard input: name a file with @FILE".into());
        }
        Some(words) => Some(crate::arguments::members(Some(words), "--answers")?),
        None => None,
    };
    let sampled = match &server.sampled {
        Some(words) => Some(match words.strip_prefix('@') {
            Some(path) => text(Path::new(path))?,
            None => words.clone(),
        }),
        None => None,
    };
    Ok(Options {
        client_info: Implementation {
            name: "owlclaw-mcp client".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Implementation::default()
        },
        handlers: Arc::new(
            Desk::new(roots(&server.roots)?, answers)
                .sampling(sampled)
                .logging(server.log.map(level)),
        ),
        bounds: bounds(server.timeout),
        speak: version,
        log_level: server.log.map(level),
        ..Options::default()
    })
}

fn bounds(timeout: u64) -> Bounds {
    let timeout = Duration::from_secs(timeout);
    let bounds = Bounds::default();
    Bounds {
        probe: bounds.probe.min(timeout),
        probe_http: bounds.probe_http.min(timeout),
        timeout,
        ..bounds
    }
}

fn level(severity: Severity) -> LoggingLevel {
    match severity {
        Severity::Debug => LoggingLevel::Debug,
        Severity::Info => LoggingLevel::Info,
        Severity::Notice => LoggingLevel::Notice,
        Severity::Warning => LoggingLevel::Warning,
        Severity::Error => LoggingLevel::Error,
        Severity::Critical => LoggingLevel::Critical,
        Severity::Alert => LoggingLevel::Alert,
        Severity::Emergency => LoggingLevel::Emergency,
    }
}

fn roots(directories: &[std::path::PathBuf]) -> Result<Vec<mcp_protocol::model::Root>, Failure> {
    let root = |directory: &std::path::PathBuf| {
        let place = directory.display();
        let path = std::fs::canonicalize(directory)
            .map_err(|error| format!("--root {place} cannot be used: {error}"))?;
        let path = path
            .to_str()
            .ok_or_else(|| format!("--root {place} is not UTF-8"))?;
        Ok(mcp_protocol::model::Root {
            uri: format!(
                "file://{}",
                percent_encoding::utf8_percent_encode(path, PATH)
            ),
            ..mcp_protocol::model::Root::default()
        })
    };
    directories.iter().map(root).collect()
}

/// Characters of a path that mean something else in a URI.
const PATH: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

fn variables(words: &[String]) -> Result<Vec<(OsString, OsString)>, Failure> {
    let variable = |word: &String| {
        let (name, value): (&str, OsString) = match word.split_once('=') {
            Some((name, value)) => (name, value.into()),
            None => match std::env::var_os(word) {
                Some(value) => (word, value),
                None => return Err(format!("--env {word}: the variable is not set here").into()),
            },
        };
        // The program may repeat it in a message or in an answer.
        if redaction::is_secret_name(name)
            && let Some(value) = value.to_str()
        {
            redaction::know([value]);
        }
        Ok((name.into(), value))
    };
    words.iter().map(variable).collect()
}

fn headers(words: &[String]) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for word in words {
        let (lines, place) = match word.strip_prefix('@') {
            Some(path) => (text(Path::new(path))?, format!("`{path}`")),
            None => (word.clone(), "--header".to_owned()),
        };
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            // A header may be a secret, so it is not repeated.
            let unfit = || format!("{place} has a line that is no header: write NAME: VALUE");
            let (name, value) = line.split_once(':').ok_or_else(unfit)?;
            let name = HeaderName::try_from(name.trim()).map_err(|_| unfit())?;
            if mcp_client::is_of_transport(&name) {
                let why = "is set by the transport and cannot be given";
                return Err(format!("{place}: the header `{name}` {why}").into());
            }
            let mut value = HeaderValue::try_from(value.trim()).map_err(|_| unfit())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
    }
    Ok(headers)
}

fn bearer(headers: &mut HeaderMap, token: &str, what: &str) -> Result<(), Failure> {
    let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| format!("{what} cannot be sent in a header"))?;
    value.set_sensitive(true);
    match headers.insert(header::AUTHORIZATION, value) {
        Some(_) => Err("there is a header Authorization and a token; give one of them".into()),
        None => Ok(()),
    }
}

/// A secret from an environment variable or a file.
pub(super) fn secret(
    variable: Option<&str>,
    path: Option<&Path>,
    flag: &str,
) -> Result<Option<String>, Failure> {
    let text = match (variable, path) {
        (Some(name), _) => {
            let value = std::env::var(name);
            value.map_err(|_| format!("{flag} {name}: the variable is not set, or is not UTF-8"))?
        }
        (None, Some(path)) => text(path)?,
        (None, None) => return Ok(None),
    };
    match text.trim() {
        "" => Err(format!("{flag}, or the file in its place, is empty").into()),
        text => Ok(Some(text.to_owned())),
    }
}

pub(super) fn text(path: &Path) -> Result<String, Failure> {
    let place = path.display();
    let unfit = |why: &dyn std::fmt::Display| format!("`{place}` cannot be read: {why}");
    Ok(regular_file::read_text(path, MAX_FILE_BYTES).map_err(|error| unfit(&error))?)
}

pub(crate) fn authorities(ca: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let Some(path) = ca else {
        return Ok(Vec::new());
    };
    let read = regular_file::read(path, regular_file::MAX_BYTES);
    Ok(read.map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?)
}

/// True for an address whose connections others on the way may read.
fn is_plain(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else {
        return false;
    };
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|it| it.is_loopback());
    matches!(url.scheme_str(), Some("http" | "ws")) && !is_here
}
