//! Subscriptions of clients to changes.

use super::{Engine, answered, handle::panicked, too_many};
use crate::{
    context::RequestCx,
    engine::exchange::Answer,
    error::McpError,
    outgoing::{outbox::Outbox, subscriptions::Change},
    service::McpService,
};
use futures_util::FutureExt;
use jsonrpc_core::{ErrorCode, ErrorObject, Frame, Message};
use mcp_protocol::{
    encode_notification,
    model::{ClientRequest, Listening, ServerNotification, ServerResult, SubscriptionFilter, Task},
};
use serde_json::json;
use std::{
    future::{pending, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    task::Poll,
};

impl<S> Engine<S>
where
    S: McpService,
{
    /// `subscriptions/listen`: stays open until the client drops it, the server closes, or what has
    /// proved who the client is proves nothing any more.
    pub(super) async fn listen(&self, cx: &RequestCx, filter: SubscriptionFilter) -> Answer {
        let Some(outbox) = cx.outbox() else {
            let error =
                ErrorObject::new(ErrorCode::INTERNAL_ERROR, "this transport has no streams");
            return answered(cx, Err(error));
        };
        let offer = &self.identity.capabilities;
        let accepted = SubscriptionFilter {
            tools_list_changed: filter.tools_list_changed && offer.tools,
            prompts_list_changed: filter.prompts_list_changed && offer.prompts,
            resources_list_changed: filter.resources_list_changed && offer.resources.is_some(),
            resource_subscriptions: match offer.resources {
                Some(resources) if resources.subscribe => filter.resource_subscriptions,
                _ => Vec::new(),
            },
            task_ids: match offer.tasks {
                Some(_) => filter.task_ids,
                None => Vec::new(),
            },
        };
        // Registered first and acknowledged second: a change in between must not be missed. It
        // cannot overtake the acknowledgement either, which would be the first thing queued if
        // nothing had changed; so hold changes back until it is.
        let staging = Outbox::default();
        let subscription = self.subscriptions.add(
            cx.principal.clone(),
            accepted.clone(),
            cx.version,
            Some(cx.id.clone()),
            staging.clone(),
        );
        let subscription = match subscription {
            Ok(subscription) => subscription,
            Err(error) => return answered(cx, Err(too_many(error))),
        };
        let (accepted, tasks) = match self.agreed(cx, accepted).await {
            Ok(agreed) => agreed,
            Err(error) => return answered(cx, Err(error)),
        };
        subscription.narrow(accepted.clone());
        let acknowledged = encode_notification(
            cx.version,
            &ServerNotification::SubscriptionsAcknowledged { accepted },
            Some(&cx.id),
        );
        let frame = Frame::message(&Message::Notification(acknowledged)).into_bytes();
        if let Err(error) = outbox.push(frame) {
            tracing::debug!(%error, "a subscription could not be acknowledged");
            let error = ErrorObject::new(ErrorCode::INTERNAL_ERROR, error.to_string());
            return answered(cx, Err(error.with(&json!({ "retryable": true }))));
        }
        // What a task has come to meanwhile must not be missed either.
        for (changes, task) in tasks {
            subscription.tell(&Change::Task(changes, task));
        }
        let forward = poll_fn(|task| {
            while let Poll::Ready(Some(frame)) = staging.poll_next(task) {
                if let Err(error) = outbox.push_change(frame) {
                    tracing::debug!(%error, "a change was not announced");
                }
            }
            Poll::<()>::Pending
        });
        let over = async {
            match cx.connection() {
                Some(connection) => {
                    let wound_down = pin!(connection.wound_down());
                    futures_util::future::select(pin!(self.closed()), wound_down).await;
                }
                None => self.closed().await,
            }
        };
        let expired = async {
            match cx.principal.end() {
                Some(end) => end.await,
                None => pending().await,
            }
        };
        let (over, expired) = (pin!(over), pin!(expired));
        let ends = futures_util::future::select(over, expired);
        futures_util::future::select(pin!(forward), ends).await;
        answered(cx, Ok(self.encoder.listen_ended(&cx.id)))
    }

    /// Part of `wanted` that the server agrees to; the service decides of which resources it can tell,
    /// and which tasks the principal has. A service that answers `Empty` agrees to everything but tasks.
    async fn agreed(
        &self,
        cx: &RequestCx,
        wanted: SubscriptionFilter,
    ) -> Result<(SubscriptionFilter, Vec<(u64, Task)>), ErrorObject> {
        if wanted.task_ids.is_empty() && wanted.resource_subscriptions.is_empty() {
            return Ok((wanted, Vec::new()));
        }
        let without_tasks = SubscriptionFilter {
            task_ids: Vec::new(),
            ..wanted.clone()
        };
        // Boxed, or all of what serves calls would be held for as long as somebody listens.
        let agreed = Box::pin(self.service.call(cx, ClientRequest::Listen(wanted)));
        let agreed = match AssertUnwindSafe(agreed).catch_unwind().await {
            Ok(agreed) => agreed,
            Err(panic) => return Err(panicked(cx, &*panic)),
        };
        match agreed {
            Ok(ServerResult::Empty) => Ok((without_tasks, Vec::new())),
            Ok(ServerResult::Listening(Listening { accepted, tasks })) => Ok((accepted, tasks)),
            Ok(_) => Err(ErrorObject::new(
                ErrorCode::INTERNAL_ERROR,
                "internal error",
            )),
            Err(McpError(error)) => Err(error),
        }
    }
}
