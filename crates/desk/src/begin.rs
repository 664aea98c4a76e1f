//! The desk as it is served: its listener, its files, and the way of a request to a route.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use config::Config;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use server::{Beside, Failure, ServedBeside, Server};
use transport_http::{
    Authenticate, Authentication, HttpLimits, HttpOptions, NoEndpoint, Peer, RunningServer,
    SideBody, SideRequest, SideResponse, SideRoutes, refusal, serve_routes,
};

use crate::call::{Call, ROOT};
use crate::inner::Inner;
use crate::openapi::document;
use crate::page;
use crate::place::Place;
use crate::reply::{Problem, Reply};
use crate::routes::{matched, routes};
use crate::sign_in::SignIn;

/// The most bytes of a request's body.
const MAX_BODY: usize = 256 * 1024;
/// Connections at once, of which browsers have a few each.
const MAX_CONNECTIONS: usize = 256;
/// Connections of one address, so that none can have all.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 128;
/// Time within which a connection has to send a request: one that sends none takes the place of another.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// The desk, to be served beside the clients of a server.
#[derive(Debug, Clone, Copy)]
pub struct Desk;

/// The desk, if the configuration asks for it.
#[must_use]
pub fn beside(config: &Config) -> Option<Arc<dyn Beside>> {
    config
        .desk
        .enabled
        .then(|| Arc::new(Desk) as Arc<dyn Beside>)
}

impl Beside for Desk {
    fn begin(&self, server: &Arc<Server>) -> Result<Box<dyn ServedBeside>, Failure> {
        let config = server.config();
        let tls = server.tls();
        let authenticate: Arc<dyn Authenticate> =
            server.authentication().unwrap_or_else(|| Arc::new(Nobody));
        let options = HttpOptions {
            authenticate,
            // Pages pass the transport, and are compared with the host by every request; no page of others
            // is told that it may read an answer.
            cors: false,
            allowed_origins: vec!["*".to_owned()],
            allowed_hosts: config.desk.allowed_hosts.clone(),
            tls: tls.clone(),
            limits: HttpLimits {
                max_connections: MAX_CONNECTIONS,
                max_connections_per_address: MAX_CONNECTIONS_PER_ADDRESS,
                header_timeout: HEAD_WITHIN,
                ..HttpLimits::default()
            },
            ..HttpOptions::default()
        };
        let routes = Arc::new(Routes(OnceLock::new()));
        let address = SocketAddr::new(config.desk.host, config.desk.port);
        let running = serve_routes(Arc::clone(&routes) as _, options, address)?;
        let address = running.address();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let place = Place::new(format!("{scheme}://{address}"));
        let path = Place::path(config);
        place
            .write(&path)
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        let sign_in = SignIn::new(config, &place.secret, address.port(), tls.is_some());
        let inner = Arc::new(Inner::new(Arc::clone(server), sign_in, document()));
        // Set once, before anybody can know the address.
        let _ = routes.0.set(Arc::clone(&inner));
        tracing::info!(
            url = place.url,
            hint = "`owlclaw-mcp desk` signs in",
            "the desk is served"
        );
        Ok(Box::new(Served {
            running: Some(running),
            inner,
            files: [path, Place::way(config)],
        }))
    }
}

/// A desk that is served.
struct Served {
    running: Option<RunningServer<NoEndpoint>>,
    inner: Arc<Inner>,
    /// Files that lead to it.
    files: [PathBuf; 2],
}

impl ServedBeside for Served {
    fn stop(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            if let Some(running) = self.running.take() {
                self.inner.stopping.send_replace(true);
                running.stop();
                running.stopped().await;
            }
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for path in &self.files {
            // A file that is gone already leads nobody astray.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Authentication where clients prove nothing: nobody is let in by a name.
struct Nobody;

impl Authenticate for Nobody {
    fn authenticate<'a>(&'a self, _: &'a Parts, _: &'a Peer) -> Authentication<'a> {
        let why = "clients are not authenticated here";
        Authentication::Done(Err(Box::new(refusal(StatusCode::UNAUTHORIZED, why))))
    }
}

/// Routes of the desk, once it is ready.
struct Routes(OnceLock<Arc<Inner>>);

impl SideRoutes for Routes {
    fn max_body(&self, parts: &Parts) -> usize {
        match parts.method.is_safe() {
            true => 0,
            false => MAX_BODY,
        }
    }

    fn handle<'a>(&'a self, request: SideRequest<'a>) -> Option<SideResponse<'a>> {
        let inner = self.0.get()?;
        Some(Box::pin(async move {
            let path = request.parts().uri.path();
            let Reply(response) = match path.strip_prefix(ROOT) {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                    let answered = answer(inner, request, rest).await;
                    answered.unwrap_or_else(|problem| problem.reply())
                }
                _ => page::answer(request.parts()),
            };
            let mut response = secured(response);
            if request.parts().method == Method::HEAD {
                *response.body_mut() = SideBody::Whole(Bytes::new());
            }
            response
        }))
    }
}

/// The same with the headers by which browsers keep others away. Answers of the API have them too, so that
/// none of them is ever taken for a page.
fn secured(mut response: Response<SideBody>) -> Response<SideBody> {
    let headers = response.headers_mut();
    for (name, value) in page::SECURITY {
        let value = HeaderValue::from_static(value);
        headers.insert(http::HeaderName::from_static(name), value);
    }
    response
}

/// Answer of the API to a request for `path` below its root.
async fn answer(
    inner: &Arc<Inner>,
    request: SideRequest<'_>,
    path: &str,
) -> Result<Reply, Problem> {
    let method = match &request.parts().method {
        &Method::HEAD => Method::GET,
        other => other.clone(),
    };
    let here = routes()
        .iter()
        .filter_map(|route| Some((route, matched(route.path, path)?)));
    let here: Vec<_> = here.collect();
    // Whoever is nobody is not told which paths there are.
    let establishes = here
        .iter()
        .any(|(it, _)| it.role.is_none() && it.method == method);
    let sender = match establishes {
        true => None,
        false => Some(inner.sign_in.who(request).await?),
    };
    if here.is_empty() {
        return Err(Problem::missing("there is nothing here"));
    }
    let Some((route, names)) = here.iter().find(|(it, _)| it.method == method) else {
        let methods: Vec<_> = here.iter().map(|(it, _)| it.method.as_str()).collect();
        let why = "this method is not allowed here";
        let reply = Problem::new(StatusCode::METHOD_NOT_ALLOWED, why).reply();
        let allowed = HeaderValue::try_from(methods.join(", "));
        return Ok(reply.with(header::ALLOW, allowed.expect("methods are ASCII")));
    };
    if let (Some(needed), Some(who)) = (route.role, &sender)
        && who.role < needed
    {
        tracing::warn!(
            principal = &*who.name,
            role = who.role.as_str(),
            route = ?route,
            "a request to the desk was refused"
        );
        let why = format!(
            "this takes the right `{}`; yours is `{}`",
            needed.as_str(),
            who.role.as_str()
        );
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    let asked = request.parts().uri.query().unwrap_or_default();
    if route.query.is_none() && !asked.is_empty() {
        return Err(Problem::bad("this takes no query"));
    }
    (route.handle)(Call {
        desk: inner,
        request,
        names: names.clone(),
        sender,
    })
    .await
}
