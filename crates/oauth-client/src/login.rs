//! Sign-ins of people: a browser, and the port of this machine where its answer comes back.

use crate::{
    AuthorizationError, Pending,
    address::{Address, parameter},
    token,
};
use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_client::{Client, ClientOptions, Reach};
use std::{
    collections::BTreeMap, error::Error, fmt, io, net::Ipv4Addr, process::Stdio, sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Mutex, mpsc},
    task::JoinSet,
    time::timeout,
};

/// Path of the address that answers come back to.
pub(crate) const CALLBACK: &str = "/callback";
/// Connections of browsers that are open at once.
const MAX_CONNECTIONS: usize = 16;
/// Connections in all, for one sign-in.
const MAX_REQUESTS: usize = 256;
/// Most bytes of a browser's request.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Time for a browser's request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects that the headless browser follows.
const MAX_REDIRECTS: usize = 20;

/// Reason why an address cannot be shown.
pub type BrowserError = Box<dyn Error + Send + Sync>;

/// Shows a person the address where to sign in.
pub trait Browser: Send + Sync + fmt::Debug + 'static {
    /// Show `url`. The answer is waited for meanwhile; an error ends the sign-in.
    fn open<'a>(&'a self, url: &'a str) -> Pending<'a, Result<(), BrowserError>>;
}

/// The browser of the system: `xdg-open`, `open` or `rundll32`. Where none can be started, the address is
/// only told.
#[derive(Clone)]
pub struct SystemBrowser {
    tell: Arc<dyn Fn(&str) + Send + Sync>,
}

impl SystemBrowser {
    /// A browser that also has `tell` show each address, for people who see no window open.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            tell: Arc::new(tell),
        }
    }
}

impl fmt::Debug for SystemBrowser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemBrowser").finish_non_exhaustive()
    }
}

impl Browser for SystemBrowser {
    fn open<'a>(&'a self, url: &'a str) -> Pending<'a, Result<(), BrowserError>> {
        (self.tell)(url);
        let (program, first) = match std::env::consts::OS {
            "macos" => ("open", None),
            "windows" => ("rundll32", Some("url.dll,FileProtocolHandler")),
            _ => ("xdg-open", None),
        };
        let started = tokio::process::Command::new(program)
            .args(first)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if let Err(error) = started {
            tracing::debug!(%error, program, "no browser can be started; its user has the address");
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Only tells the address, for machines without a screen.
#[derive(Clone)]
pub struct ShownUrl {
    tell: Arc<dyn Fn(&str) + Send + Sync>,
}

impl ShownUrl {
    /// A browser that has `tell` show each address.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            tell: Arc::new(tell),
        }
    }
}

impl fmt::Debug for ShownUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShownUrl").finish_non_exhaustive()
    }
}

impl Browser for ShownUrl {
    fn open<'a>(&'a self, url: &'a str) -> Pending<'a, Result<(), BrowserError>> {
        (self.tell)(url);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Follows redirects, keeps cookies, and has no screen: for tests with authorization servers that sign
/// everybody in. It goes to any host, so it is nothing for production.
#[derive(Clone, Debug)]
pub struct HeadlessBrowser(Client);

impl HeadlessBrowser {
    /// A browser without a screen.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError::Options`] where TLS cannot be set up.
    pub fn new() -> Result<Self, AuthorizationError> {
        let client = Client::new(ClientOptions {
            reach: Reach::Any,
            ..ClientOptions::default()
        });
        let client = client
            .map_err(|error| AuthorizationError::Options(crate::error::with_causes(&error)))?;
        Ok(Self(client))
    }

    async fn visit(&self, url: &str) -> Result<(), BrowserError> {
        let mut address = Address::parse(url).ok_or("there is no such address")?;
        let mut cookies: BTreeMap<(String, String), String> = BTreeMap::new();
        for _ in 0..MAX_REDIRECTS {
            let mut request = Request::get(address.to_string()).header(header::ACCEPT, "text/html");
            let origin = address.origin();
            let known = cookies.iter().filter(|((from, _), _)| *from == origin);
            let known: Vec<_> = known
                .map(|((_, name), value)| format!("{name}={value}"))
                .collect();
            if !known.is_empty() {
                request = request.header(header::COOKIE, known.join("; "));
            }
            let response = self.0.send(request.body(Bytes::new())?).await?;
            keep_cookies(&mut cookies, &origin, response.headers());
            let status = response.status();
            let location = response.headers().get(header::LOCATION);
            match location.filter(|_| status.is_redirection()) {
                Some(location) => {
                    let next = address.join(location.to_str()?);
                    address = next.ok_or("a redirect leads nowhere")?;
                }
                None if status.is_success() => return Ok(()),
                None => return Err(format!("{} answers {status}", address.without_query()).into()),
            }
        }
        Err("there are too many redirects".into())
    }
}

fn keep_cookies(
    cookies: &mut BTreeMap<(String, String), String>,
    origin: &str,
    headers: &HeaderMap,
) {
    for cookie in headers.get_all(header::SET_COOKIE) {
        let cookie = cookie.to_str().unwrap_or_default();
        let cookie = cookie.split(';').next().unwrap_or_default();
        if let Some((name, value)) = cookie.split_once('=') {
            let key = (origin.to_owned(), name.trim().to_owned());
            cookies.insert(key, value.trim().to_owned());
        }
    }
}

impl Browser for HeadlessBrowser {
    fn open<'a>(&'a self, url: &'a str) -> Pending<'a, Result<(), BrowserError>> {
        Box::pin(self.visit(url))
    }
}

/// A port of 127.0.0.1 where the answer to one sign-in comes back.
pub(crate) struct Callback {
    listener: TcpListener,
    pub(crate) redirect_uri: String,
}

/// An address of an embedder's own server where the answer to one sign-in comes back, in place of a port of this machine.
///
/// The server of the address must know the browser that brings the answer for the one that it has sent to sign in: by
/// `state` alone, a person who was handed the address of a sign-in cannot be told from the one who began it, and would
/// sign in for that one.
#[derive(Clone)]
pub struct Landing {
    redirect_uri: String,
    answers: Arc<Mutex<mpsc::Receiver<String>>>,
}

/// The hand that gives answers to a [`Landing`]. Dropped, it ends the sign-in.
#[derive(Debug)]
pub struct Arrivals(mpsc::Sender<String>);

impl Landing {
    /// A landing at `redirect_uri`, and the hand that gives it what comes there.
    pub fn new(redirect_uri: impl Into<String>) -> (Self, Arrivals) {
        let (sender, answers) = mpsc::channel(MAX_CONNECTIONS);
        let landing = Self {
            redirect_uri: redirect_uri.into(),
            answers: Arc::new(Mutex::new(answers)),
        };
        (landing, Arrivals(sender))
    }

    /// The address.
    #[must_use]
    pub fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    /// Shows `url`, and waits for the answer that has `state`.
    pub(crate) async fn answer(
        &self,
        browser: &dyn Browser,
        url: &str,
        state: &str,
        within: Duration,
    ) -> Result<Answer, AuthorizationError> {
        let failed = |why: String| AuthorizationError::Login(why);
        let waiting = async {
            let opened = browser.open(url).await;
            opened.map_err(|error| failed(crate::error::with_causes(&*error)))?;
            let mut answers = self.answers.lock().await;
            while let Some(query) = answers.recv().await {
                if let Ok((Some(given), answer)) = Answer::read(&query)
                    && is_same(&given, state)
                {
                    return Ok(answer);
                }
            }
            Err(failed("it was given up".to_owned()))
        };
        let answered = timeout(within, waiting).await;
        answered.unwrap_or_else(|_| {
            let seconds = within.as_secs();
            Err(failed(format!("no answer came within {seconds} s")))
        })
    }
}

impl fmt::Debug for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Landing").field(&self.redirect_uri).finish()
    }
}

impl Arrivals {
    /// Gives the query of a request that came to the landing. An answer to another sign-in is left out there. Returns
    /// false if nobody waits for one any more.
    #[must_use]
    pub fn arrived(&self, query: &str) -> bool {
        self.0.try_send(query.to_owned()).is_ok()
    }
}

/// Answer of the authorization server, brought by the browser.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: Option<String>,
    pub(crate) iss: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) error_description: Option<String>,
}

impl Answer {
    /// The answer in a query, with its `state`. A member that is there twice is an error.
    pub(crate) fn read(query: &str) -> Result<(Option<String>, Self), ()> {
        Ok((
            parameter(query, "state")?,
            Self {
                code: parameter(query, "code")?,
                iss: parameter(query, "iss")?,
                error: parameter(query, "error")?,
                error_description: parameter(query, "error_description")?,
            },
        ))
    }
}

/// The authorization server that an answer is expected from.
#[derive(Clone, Debug)]
pub(crate) struct Issuer {
    pub(crate) name: String,
    /// True if its answers say who they are from.
    pub(crate) is_named: bool,
}

impl Issuer {
    /// Reason why an answer is not from it (RFC 9207): then it says nothing, not even that there is an error.
    pub(crate) fn fault(&self, answer: &Answer) -> Option<AuthorizationError> {
        let why = match &answer.iss {
            Some(iss) if *iss != self.name => {
                let (iss, name) = (crate::error::said(iss), &self.name);
                format!("is from `{iss}` and not from `{name}`")
            }
            None if self.is_named => "does not say which server it is from".to_owned(),
            _ => return None,
        };
        Some(AuthorizationError::WrongAnswer {
            why,
            expected: self.name.clone(),
        })
    }

    /// The error that an answer of it has, without what was `sent`.
    pub(crate) fn denial(&self, answer: &Answer, sent: &[&str]) -> Option<AuthorizationError> {
        let code = answer.error.as_deref()?;
        Some(AuthorizationError::Denied {
            issuer: self.name.clone(),
            code: token::explain(code, None, sent),
            why: token::explain(code, answer.error_description.as_deref(), sent),
        })
    }
}

impl Callback {
    pub(crate) async fn bind(port: Option<u16>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).await?;
        let port = listener.local_addr()?.port();
        Ok(Self {
            listener,
            redirect_uri: format!("http://127.0.0.1:{port}{CALLBACK}"),
        })
    }

    /// Shows `url`, and waits for the answer that has `state`. Others are refused and do not end the
    /// wait: any page in any browser can send them.
    pub(crate) async fn answer(
        self,
        browser: &dyn Browser,
        url: &str,
        state: &str,
        issuer: &Issuer,
        within: Duration,
    ) -> Result<Answer, AuthorizationError> {
        let failed = |why: String| AuthorizationError::Login(why);
        let mut strange = 0_usize;
        let waiting = async {
            let mut opening = browser.open(url);
            let mut is_open = false;
            let (sender, mut answers) = mpsc::channel(MAX_REQUESTS);
            let expected = Arc::new((state.to_owned(), issuer.clone()));
            let mut connections = JoinSet::new();
            let mut accepted = 0;
            loop {
                tokio::select! {
                    opened = &mut opening, if !is_open => {
                        let why = |error: BrowserError| crate::error::with_causes(&*error);
                        opened.map_err(|error| failed(why(error)))?;
                        is_open = true;
                    }
                    Some(answer) = answers.recv() => match answer {
                        Some(answer) => {
                            // The browser gets its page before the port is closed.
                            let rest = async { while connections.join_next().await.is_some() {} };
                            let _ = timeout(Duration::from_millis(500), rest).await;
                            return Ok(answer);
                        }
                        None => strange += 1,
                    },
                    Some(_) = connections.join_next(), if !connections.is_empty() => {}
                    connection = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                        accepted += 1;
                        if MAX_REQUESTS < accepted {
                            return Err(failed("too many connections came instead of an answer".to_owned()));
                        }
                        if let Ok((stream, _)) = connection {
                            connections.spawn(serve(stream, Arc::clone(&expected), sender.clone()));
                        }
                    }
                }
            }
        };
        let answered = timeout(within, waiting).await;
        answered.unwrap_or_else(|_| {
            let seconds = within.as_secs();
            let mut why = format!("no answer came within {seconds} s");
            if 0 < strange {
                why.push_str("; what came was no answer to this sign-in (its `state` is another)");
            }
            Err(failed(why))
        })
    }
}

/// Reads one request. `None` is sent for an answer with a state that is not ours.
async fn serve(
    mut stream: TcpStream,
    expected: Arc<(String, Issuer)>,
    answers: mpsc::Sender<Option<Answer>>,
) {
    let (state, issuer) = &*expected;
    let Ok(Some(target)) = timeout(HEAD_TIMEOUT, target(&mut stream)).await else {
        return;
    };
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (status, text, answer) = if path != CALLBACK {
        ("404 Not Found", "There is nothing here.", None)
    } else {
        match Answer::read(query) {
            Ok((Some(given), answer)) if is_same(&given, state) => {
                let is_good = answer.error.is_none()
                    && answer.code.as_ref().is_some_and(|it| !it.is_empty())
                    && issuer.fault(&answer).is_none();
                let text = match is_good {
                    true => "The answer has arrived. You can close this window.",
                    false => {
                        "Nobody is signed in: the answer was refused. The program that asked says why."
                    }
                };
                ("200 OK", text, Some(Some(answer)))
            }
            _ => {
                let text = "This is no answer to the sign-in that is waited for.";
                ("400 Bad Request", text, Some(None))
            }
        }
    };
    let length = text.len();
    let page = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Connection: close\r\n\r\n{text}"
    );
    if let Some(answer) = answer {
        // A second answer finds the first one waiting, or nobody.
        let _ = answers.try_send(answer);
    }
    let _ = stream.write_all(page.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Compares without telling by the time it takes where the difference is.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let differing = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differing == 0
}

/// The target of a GET, once the whole head has come.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 2_048];
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        let read = stream.read(&mut chunk).await.ok().filter(|it| *it != 0)?;
        head.extend_from_slice(&chunk[..read]);
        if MAX_HEAD_BYTES < head.len() {
            return None;
        }
    }
    let head = std::str::from_utf8(&head).ok()?;
    let mut words = head.lines().next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    (method == "GET" && target.starts_with('/')).then(|| target.to_owned())
}
