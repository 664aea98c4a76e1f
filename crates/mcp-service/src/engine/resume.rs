//! Legacy sessions of an earlier process, continued by this one.

use crate::{
    engine::Engine,
    outgoing::subscriptions::{Change, TooManySubscriptions},
    service::McpService,
    session::{connection::Connection, state::SessionState},
};
use mcp_protocol::{Session, model::SubscriptionFilter};
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
}
