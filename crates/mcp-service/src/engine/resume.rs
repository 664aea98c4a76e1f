//! Legacy sessions of an earlier process, continued by this one.

use crate::{
    engine::{Engine, on_notification},
    outgoing::subscriptions::{Change, TooManySubscriptions},
    service::McpService,
    session::{connection::Connection, state::SessionState},
};
use bytes::Bytes;
use jsonrpc_core::{Message, Payload, Response};
use mcp_protocol::{Received, Session, model::SubscriptionFilter};
use std::sync::Arc;

impl<S> Engine<S>
where
    S: McpService,
{
    /// Continues a legacy session on `connection`, which has no session yet. Changes that the
    /// client may have missed in between are announced again.
    ///
    /// # Errors
    ///
    /// [`TooManySubscriptions`], and the connection is as it was.
    pub fn resume(
        &self,
        connection: &Arc<Connection>,
        state: SessionState,
    ) -> Result<(), TooManySubscriptions> {
        let filter = SubscriptionFilter {
            resource_subscriptions: state.resources,
            task_ids: state.tasks,
            ..self.legacy_filter()
        };
        let lists = [Change::Tools, Change::Prompts, Change::Resources];
        let resources = filter.resource_subscriptions.clone();
        let resources = resources.into_iter().map(Change::Resource);
        let missed = lists.into_iter().chain(resources);
        let subscription = self.subscriptions().add(
            connection.principal().clone(),
            filter,
            state.version,
            None,
            connection.outbox().clone(),
        )?;
        for change in missed {
            subscription.tell(&change);
        }
        *connection.session() = Session::Legacy {
            version: state.version,
            is_founding: state.is_founding,
            capabilities: state.capabilities,
        };
        connection.set_log_level(state.log_level);
        *connection.subscription() = Some(subscription);
        Ok(())
    }

    /// Takes over what another process has changed of a session that is here as well. What was agreed on at
    /// its beginning never changes.
    pub fn align(&self, connection: &Connection, state: SessionState) {
        connection.align_log_level(state.log_level);
        let filter = SubscriptionFilter {
            resource_subscriptions: state.resources,
            task_ids: state.tasks,
            ..self.legacy_filter()
        };
        if let Some(subscription) = &*connection.subscription() {
            subscription.narrow(filter);
        }
    }

    /// Takes what the client of a session has sent to another process: an answer, or a cancellation. What
    /// concerns nothing here is passed over.
    pub fn said_elsewhere(&self, connection: &Connection, message: &Bytes) {
        let received = Received::decode(message, self.limits().frames);
        let Ok(Received {
            payload: Payload::Single(Ok(message)),
            ..
        }) = received
        else {
            return;
        };
        match message {
            Message::Response(Response {
                id: Some(id),
                outcome,
            }) => {
                connection.questions().answer(&id, outcome);
            }
            Message::Notification(notification) => {
                on_notification(connection, &notification);
            }
            Message::Response(_) | Message::Request(_) => {}
        }
    }
}
