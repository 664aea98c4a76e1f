use crate::{Connection, Error, connection::Flight, wire::shared::Listener};
use mcp_protocol::model::{ServerNotification, SubscriptionFilter};
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};
use tokio::{sync::mpsc, time::timeout};

/// Changes that a server tells of, until it is dropped.
pub struct Subscription {
    connection: Connection,
    listener: Arc<Listener>,
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
            self.connection.shared().unlisten(&self.listener);
            let uris = self.listener.filter.resource_subscriptions.clone();
            self.connection.unsubscribe(uris);
        }
    }
}

impl Subscription {
    /// Waits for the acknowledgement.
    pub(crate) async fn modern(
        connection: Connection,
        flight: Flight,
        listener: Arc<Listener>,
        heard: mpsc::Receiver<ServerNotification>,
    ) -> Result<Self, Error> {
        let mut subscription = Self {
            accepted: SubscriptionFilter::default(),
            connection,
            listener,
            heard,
            flight: Some(flight),
        };
        let within = subscription.connection.options().bounds.timeout;
        match timeout(within, subscription.next()).await {
            Ok(Ok(Some(ServerNotification::SubscriptionsAcknowledged { accepted }))) => {
                subscription.accepted = accepted;
                Ok(subscription)
            }
            Ok(Ok(_)) => Err(Error::Protocol(
                "it does not acknowledge the subscription".to_owned(),
            )),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::TimedOut {
                method: "subscriptions/listen",
                within,
                note: subscription.connection.shared().note(),
            }),
        }
    }

    pub(crate) fn legacy(
        connection: Connection,
        listener: Arc<Listener>,
        heard: mpsc::Receiver<ServerNotification>,
    ) -> Self {
        Self {
            accepted: listener.filter.clone(),
            connection,
            listener,
            heard,
            flight: None,
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
        self.listener.dropped.load(Ordering::Relaxed)
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
            None => loop {
                // A legacy connection that ends drops its listeners, but this one holds its own.
                let pause = std::time::Duration::from_millis(500);
                match timeout(pause, self.heard.recv()).await {
                    Ok(change) => return Ok(change),
                    Err(_) if self.connection.is_closed() => {
                        return Err(Error::closed("it was closed"));
                    }
                    Err(_) => {}
                }
            },
        }
    }
}
