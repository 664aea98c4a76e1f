//! State that a server keeps for a legacy session, and subscriptions of both eras.

use crate::{
    CallOptions, Connection, Error, Subscription, connection::requests::Deadline, wire::http::Lost,
    wire::link::Link, wire::shared::Listener,
};
use mcp_protocol::{
    Era, ProtocolError, ProtocolVersion,
    model::{ClientNotification, ClientRequest, LoggingLevel, SubscriptionFilter},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;

#[derive(Debug, Default)]
pub(super) struct Session {
    level: Option<LoggingLevel>,
    subscribed: Vec<String>,
}

impl Connection {
    /// Opens a new legacy session in place of `lost`, and tells it what the old one was told. However many
    /// requests find the session lost, one is opened. Until there is one, the lost one stays the session,
    /// so that the next request finds it lost again.
    pub(super) async fn reopen(&self, lost: Option<http::HeaderValue>) -> Result<(), Error> {
        let Link::Http(link) = self.shared().link() else {
            return Err(Error::SessionLost);
        };
        let mut session = self.0.session.lock().await;
        if link.session() != lost {
            return Ok(());
        }
        let before = self.agreed();
        let opened = match self.initialize(before.version).await {
            // Another server may have taken its place.
            Err(error) if error.is_disagreement() => self.probe().await,
            opened => opened,
        };
        if let Err(error) = opened {
            self.shared().agree((*before).clone());
            return Err(error);
        }
        let version = self.shared().version();
        if version.era() == Era::Modern {
            link.forget_session();
            link.shut();
            self.shared().end_listeners(|_| true);
            session.subscribed.clear();
            return Ok(());
        }
        let options = CallOptions::default();
        if let Some(level) = session.level {
            let request = ClientRequest::SetLevel(level);
            let sent = self.once(version, &request, &options, self.deadline(&options));
            if let Err(error) = sent.await {
                tracing::warn!(%error, "the new session does not take the severity of log messages");
            }
        }
        for uri in std::mem::take(&mut session.subscribed) {
            let request = ClientRequest::Subscribe(uri.clone());
            let sent = self.once(version, &request, &options, self.deadline(&options));
            match sent.await {
                Ok(_) => session.subscribed.push(uri),
                // A subscription that hears of nothing must say so.
                Err(error) => {
                    tracing::warn!(uri, %error, "the new session does not take a subscription");
                    let about = |it: &Listener| it.filter.resource_subscriptions.contains(&uri);
                    self.shared().end_listeners(about);
                }
            }
        }
        Ok(())
    }

    /// True if `error` is one of a server that has taken the place of another one, which spoke `version`.
    /// A child and a socket stay with the server that they began with.
    pub(super) fn may_speak_otherwise(&self, version: ProtocolVersion, error: &Error) -> bool {
        let refused = match (version.era(), error) {
            (_, Error::Server { error, .. })
                if error.code == ProtocolError::UNSUPPORTED_VERSION =>
            {
                true
            }
            // Legacy servers that miss a session say so.
            (Era::Modern, Error::Server { error, .. }) => matches!(error.code.0, -32000 | -32600),
            (Era::Modern, Error::Status { status, .. }) => matches!(status, 400 | 404 | 405),
            _ => false,
        };
        refused && self.shared().link().http().is_some()
    }

    /// Finds out anew what the server speaks, which has refused `spoken`; true if it is something else.
    pub(super) async fn renegotiate(&self, spoken: ProtocolVersion) -> bool {
        let _session = self.0.session.lock().await;
        let before = self.agreed();
        if before.version != spoken {
            return true;
        }
        if let Err(error) = self.probe().await {
            tracing::debug!(%error, "the server does not say what it speaks now");
            self.shared().agree((*before).clone());
            return false;
        }
        self.shared().version() != spoken
    }

    /// Has the stream on which a legacy server sends what belongs to no request read, if there is one.
    pub(super) fn hear(&self) {
        let Some(link) = self.shared().link().http() else {
            return;
        };
        let connection = Arc::downgrade(&self.0);
        let lost: Lost = Arc::new(move |lost| {
            let connection = connection.upgrade().map(super::Connection);
            Box::pin(async move {
                let Some(connection) = connection else {
                    return;
                };
                if let Err(error) = connection.reopen(Some(lost)).await {
                    tracing::debug!(%error, "no session was opened in place of a lost one");
                }
            })
        });
        link.listen(self.shared(), lost);
    }

    /// Tells the server that the roots have changed. Modern servers ask anew each time, and are not told.
    ///
    /// # Errors
    ///
    /// [`Error`] when it cannot be sent.
    pub async fn roots_changed(&self) -> Result<(), Error> {
        match self.shared().version().era() {
            Era::Modern => Ok(()),
            Era::Legacy => self.notify(&ClientNotification::RootsListChanged).await,
        }
    }

    /// Tells a legacy server from which severity on log messages are wanted, instead of that in
    /// [`Options::log_level`](crate::Options::log_level). Modern servers are told that one with each request.
    ///
    /// # Errors
    ///
    /// [`Error`] when the server does not take it.
    pub async fn set_level(&self, level: LoggingLevel) -> Result<(), Error> {
        let request = ClientRequest::SetLevel(level);
        self.request(request, &CallOptions::default()).await?;
        self.0.session.lock().await.level = Some(level);
        Ok(())
    }

    /// Subscribes to changes, in whichever way the server's revision has.
    ///
    /// # Errors
    ///
    /// [`Error`] when the server does not agree.
    pub async fn listen(&self, filter: SubscriptionFilter) -> Result<Subscription, Error> {
        let (changes, heard) = mpsc::channel(self.options().bounds.max_waiting_changes.max(1));
        let listener = Arc::new(Listener {
            filter: filter.clone(),
            changes,
            dropped: Arc::default(),
        });
        let shared = self.shared();
        let version = shared.version();
        if version.era() == Era::Modern {
            let options = CallOptions::default();
            let request = ClientRequest::Listen(filter);
            let subscription = Subscription::new(self, &listener, heard);
            let flight = self
                .start(
                    version,
                    &request,
                    &options,
                    Deadline::within(Duration::MAX),
                    Some(listener),
                )
                .await?;
            return subscription.acknowledged(flight).await;
        }
        let subscription = Subscription::new(self, &listener, heard);
        shared.listen(listener);
        for uri in filter.resource_subscriptions {
            let request = ClientRequest::Subscribe(uri.clone());
            self.request(request, &CallOptions::default()).await?;
            self.0.session.lock().await.subscribed.push(uri);
        }
        Ok(subscription)
    }

    /// Forgets subscriptions of a legacy session's; the server is told in the background.
    pub(crate) fn unsubscribe(&self, uris: Vec<String>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if uris.is_empty() || self.is_closed() {
            return;
        }
        let connection = self.clone();
        runtime.spawn(async move {
            for uri in uris {
                let mut session = connection.0.session.lock().await;
                if let Some(at) = session.subscribed.iter().position(|it| *it == uri) {
                    session.subscribed.swap_remove(at);
                }
                let is_wanted = session.subscribed.contains(&uri);
                drop(session);
                if !is_wanted {
                    let request = ClientRequest::Unsubscribe(uri);
                    let sent = connection.request(request, &CallOptions::default()).await;
                    if let Err(error) = sent {
                        tracing::debug!(%error, "a subscription was not ended");
                    }
                }
            }
        });
    }
}
