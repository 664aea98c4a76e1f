//! Connections that are kept, by host.

use crate::{
    SendError,
    connect::{Connector, connect_error},
};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_rustls::HttpsConnector;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tower_service::Service as _;

/// Most hosts that are remembered; beyond it, hosts without connections are forgotten.
const MAX_REMEMBERED_HOSTS: usize = 1024;

/// Connections to hosts, of which each has a bounded number.
pub(crate) struct Pool {
    connector: HttpsConnector<Connector>,
    builder: Builder,
    max_connections: usize,
    idle_timeout: Duration,
    hosts: Mutex<Hosts>,
}

#[derive(Default)]
struct Hosts {
    /// By scheme and authority.
    by_name: HashMap<String, Arc<Host>>,
    /// True while a task closes what is not used.
    is_tidied: bool,
}

/// One host.
struct Host {
    places: Arc<Semaphore>,
    /// The header `Host`.
    name: HeaderValue,
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(
        connector: HttpsConnector<Connector>,
        builder: Builder,
        max_connections: usize,
        idle_timeout: Duration,
    ) -> Self {
        Self {
            connector,
            builder,
            max_connections: max_connections.max(1),
            idle_timeout,
            hosts: Mutex::default(),
        }
    }

    pub(crate) fn connector(&self) -> HttpsConnector<Connector> {
        self.connector.clone()
    }

    /// Sends a request to an absolute URL that was checked, once a connection to its host is free.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Lease), SendError> {
        let host = self.host(request.uri())?;
        let place = Arc::clone(&host.places).acquire_owned().await;
        let place = place.expect("nobody closes the semaphore");
        let headers = request.headers_mut();
        headers
            .entry(header::HOST)
            .or_insert_with(|| host.name.clone());
        let address = std::mem::take(request.uri_mut());
        let path = address.path_and_query();
        *request.uri_mut() = path.cloned().map_or_else(Uri::default, Uri::from);
        loop {
            let kept = host.take(self.idle_timeout);
            let is_kept = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect(address.clone()).await?,
            };
            if let Err(error) = sender.ready().await {
                match is_kept {
                    true => continue,
                    false => return Err(send_error(error)),
                }
            }
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let lease = Lease {
                        pool: Arc::downgrade(self),
                        host,
                        sender: Some(sender),
                        _place: place,
                    };
                    return Ok((response, lease));
                }
                Err(mut failed) => match failed.take_message() {
                    // It had been closed; nothing was sent.
                    Some(unsent) if is_kept => request = unsent,
                    _ => return Err(send_error(failed.into_error())),
                },
            }
        }
    }

    fn host(&self, uri: &Uri) -> Result<Arc<Host>, SendError> {
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().map_or("", |it| it.as_str());
        let mut key = String::with_capacity(scheme.len() + 3 + authority.len());
        key.extend([scheme, "://", authority]);
        let mut hosts = locked(&self.hosts);
        if let Some(host) = hosts.by_name.get(&key) {
            return Ok(Arc::clone(host));
        }
        if MAX_REMEMBERED_HOSTS <= hosts.by_name.len() {
            hosts.by_name.retain(|_, host| 1 < Arc::strong_count(host));
        }
        let default_port = if scheme == "https" { 443 } else { 80 };
        let name = match uri.port_u16() {
            Some(port) if port != default_port => authority,
            _ => uri.host().unwrap_or_default(),
        };
        let name = HeaderValue::from_str(name);
        let host = Arc::new(Host {
            places: Arc::new(Semaphore::new(self.max_connections)),
            name: name.map_err(|_| SendError::BadAddress(crate::BadUrl::Host))?,
            idle: Mutex::default(),
        });
        hosts.by_name.insert(key, Arc::clone(&host));
        Ok(host)
    }

    async fn connect(&self, address: Uri) -> Result<SendRequest<Full<Bytes>>, SendError> {
        let stream = self.connector().call(address).await;
        let stream = stream.map_err(connect_error)?;
        let (sender, connection) = self.builder.handshake(stream).await.map_err(send_error)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection has ended");
            }
        });
        Ok(sender)
    }

    /// Has a task close what is not used, until nothing is kept.
    fn tidy_later(self: &Arc<Self>) {
        let mut hosts = locked(&self.hosts);
        if hosts.is_tidied {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        hosts.is_tidied = true;
        // A runtime that is ending drops the task at once, which needs the lock.
        drop(hosts);
        let pause = self.idle_timeout;
        let tidying = Tidying(Arc::downgrade(self));
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let is_kept = tidying.0.upgrade().is_some_and(|pool| pool.tidy());
                if !is_kept {
                    return tidying.end();
                }
            }
        });
    }

    /// Closes what is not used; true if anything is still kept.
    fn tidy(&self) -> bool {
        let mut hosts = locked(&self.hosts);
        let mut is_kept = false;
        for host in hosts.by_name.values() {
            let mut idle = locked(&host.idle);
            idle.retain(|it| it.is_fit(self.idle_timeout));
            is_kept |= !idle.is_empty();
        }
        hosts.is_tidied = is_kept;
        is_kept
    }
}

/// The task that closes what is not used. One that ends with its runtime must be begun anew.
struct Tidying(Weak<Pool>);

impl Tidying {
    /// Ends the task, which the pool knows.
    fn end(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Tidying {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            locked(&pool.hosts).is_tidied = false;
        }
    }
}

impl Host {
    /// A connection that is kept, the last used first.
    fn take(&self, idle_timeout: Duration) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = locked(&self.idle);
        while let Some(it) = idle.pop() {
            if it.is_fit(idle_timeout) {
                return Some(it.sender);
            }
        }
        None
    }
}

impl Idle {
    fn is_fit(&self, idle_timeout: Duration) -> bool {
        !self.sender.is_closed() && self.since.elapsed() < idle_timeout
    }
}

/// A connection that an answer comes on; it counts as one of its host's until this is dropped.
pub(crate) struct Lease {
    pool: Weak<Pool>,
    host: Arc<Host>,
    sender: Option<SendRequest<Full<Bytes>>>,
    _place: OwnedSemaphorePermit,
}

impl Lease {
    /// Keeps the connection for another request: the answer has been read to its end.
    pub(crate) fn give_back(&mut self) {
        let (Some(sender), Some(pool)) = (self.sender.take(), self.pool.upgrade()) else {
            return;
        };
        if sender.is_closed() {
            return;
        }
        let mut idle = locked(&self.host.idle);
        if pool.max_connections <= idle.len() {
            idle.remove(0);
        }
        let since = Instant::now();
        idle.push(Idle { sender, since });
        drop(idle);
        pool.tidy_later();
    }
}

fn send_error(error: hyper::Error) -> SendError {
    match error.is_canceled() {
        // hyper says so of requests that no connection has taken.
        true => SendError::Unsent(error.into()),
        false => SendError::Broken(error.into()),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
