use crate::{Connection, Error, connection::requests::Flight, wire::shared::Listener};
use mcp_protocol::model::{ServerNotification, SubscriptionFilter};
use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{sync::mpsc, time::timeout};

/// Changes that a server tells of, until it is dropped.
pub struct Subscription {
    connection: Connection,
    /// For comparison alone: the one that is held by the connection has the other end of `heard`.
    listener: Weak<Listener>,
    dropped: Arc<AtomicU64>,
    heard: mpsc::Receiver<ServerNotification>,
    flight: Option<Flight>,
    accepted: SubscriptionFilter,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("accepted", &self.accepted)
            .finish_non_exhaustive()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.flight.is_none() {
            self.connection
                .shared()
                .end_listeners(|it| std::ptr::eq(it, self.listener.as_ptr()));
            let uris = std::mem::take(&mut self.accepted.resource_subscriptions);
            self.connection.unsubscribe(uris);
        }
    }
}

impl Subscription {
    /// Subscription for `listener`; all that was asked for counts as accepted.
    pub(crate) fn new(
        connection: &Connection,
        listener: &Arc<Listener>,
        heard: mpsc::Receiver<ServerNotification>,
    ) -> Self {
        Self {
            accepted: listener.filter.clone(),
            connection: connection.clone(),
            dropped: Arc::clone(&listener.dropped),
            listener: Arc::downgrade(listener),
            heard,
            flight: None,
        }
    }

    /// Waits for the acknowledgement of a modern server.
    pub(crate) async fn acknowledged(mut self, flight: Flight) -> Result<Self, Error> {
        self.flight = Some(flight);
        let within = self.connection.options().bounds.timeout;
        match timeout(within, self.told()).await {
            Ok(Ok(Some(ServerNotification::SubscriptionsAcknowledged { accepted }))) => {
                self.accepted = accepted;
                Ok(self)
            }
            Ok(Ok(_)) => Err(Error::Protocol(
                "it does not acknowledge the subscription".to_owned(),
            )),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::TimedOut {
                method: "subscriptions/listen",
                within,
                note: self.connection.shared().note(),
            }),
        }
    }

    /// Changes that the server tells of; a legacy server says nothing about it, and what was asked for is told.
    #[must_use]
    pub fn accepted(&self) -> &SubscriptionFilter {
        &self.accepted
    }

    /// Changes that were not kept, because too many waited to be read.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The next change; `None` when the server has ended the subscription.
    ///
    /// # Errors
    ///
    /// [`Error`] when the connection has ended.
    ///
    /// # Cancel safety
    ///
    /// No change is lost.
    pub async fn next(&mut self) -> Result<Option<ServerNotification>, Error> {
        loop {
            match self.told().await {
                // A second one is about nothing.
                Ok(Some(ServerNotification::SubscriptionsAcknowledged { .. })) => {}
                told => return told,
            }
        }
    }

    async fn told(&mut self) -> Result<Option<ServerNotification>, Error> {
        if let Ok(change) = self.heard.try_recv() {
            return Ok(Some(change));
        }
        match &mut self.flight {
            Some(flight) => tokio::select! {
                biased;
                Some(change) = self.heard.recv() => Ok(Some(change)),
                outcome = &mut flight.answer => match outcome {
                    // What was told before the end is told first.
                    Ok(Ok(Ok(_))) => Ok(self.heard.try_recv().ok()),
                    Ok(Ok(Err(error))) => Err(Error::Server {
                        meaning: mcp_protocol::client::ServerError::of(
                            mcp_protocol::ProtocolVersion::NEWEST, &error),
                        error,
                    }),
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(Error::closed("it was closed")),
                },
            },
            None => match self.heard.recv().await {
                Some(change) => Ok(Some(change)),
                None => match self.connection.shared().reason() {
                    Some(ended) => Err(ended),
                    None => Ok(None),
                },
            },
        }
    }
}
