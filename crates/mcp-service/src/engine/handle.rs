//! Carrying requests out: in a place, by the service, and whatever becomes of it with an answer.

use crate::{
    context::RequestCx,
    engine::exchange::{Handled, Reply},
    error::McpError,
    service::McpService,
    session::connection::Connection,
};
use bytes::Bytes;
use futures_util::{FutureExt, future::Either};
use jsonrpc_core::{ErrorCode, ErrorObject, RawJson};
use mcp_protocol::model::ClientRequest;
use std::{any::Any, panic::AssertUnwindSafe, pin::Pin, sync::Arc};
use {
    super::{Engine, handled, too_many},
    crate::engine::ticket::Ticket,
};

impl<S> Engine<S>
where
    S: McpService,
{
    /// Answers a request that has been read and has a place, whatever it is.
    ///
    /// Boxed, each kind by itself: what answers a call is many kilobytes large, most of which a
    /// subscription would hold for as long as it lives.
    pub(super) fn answer(
        self: Arc<Self>,
        cx: RequestCx,
        request: ClientRequest,
        place: Ticket<S>,
        connection: Option<Arc<Connection>>,
    ) -> Handled {
        match request {
            ClientRequest::Listen(filter) => {
                // It would hold its place for as long; it has a bound of its own.
                drop(place);
                Box::pin(async move { Reply::One(self.listen(&cx, filter).await) })
            }
            request => {
                let asked = Box::new(Asked {
                    cx,
                    request,
                    place,
                    connection,
                });
                in_place(|| self.handle(asked))
            }
        }
    }

    async fn handle(self: Arc<Self>, asked: Box<Asked<S>>) -> Reply {
        // Waiting for a task would hold its place for as long as that takes; services bound it.
        if let ClientRequest::AwaitTask(_) = asked.request {
            drop(asked.place);
            let connection = asked.connection.as_ref();
            let outcome = self.caught(&asked.cx, asked.request, connection).await;
            return Reply::One(handled(&asked.cx, outcome));
        }
        // The quick way first: awaiting costs a turn of the runtime's cooperation budget, and a
        // connection takes hundreds of requests in one turn.
        let permit = match self.places.try_acquire() {
            Ok(permit) => Either::Left(Ok(permit)),
            Err(_) => match self.reserved_places.take(&asked.cx.principal) {
                Some(kept) => Either::Right(kept),
                None => Either::Left(self.places.acquire().await),
            },
        };
        let connection = asked.connection.as_ref();
        let outcome = self.caught(&asked.cx, asked.request, connection).await;
        drop((permit, asked.place));
        Reply::One(handled(&asked.cx, outcome))
    }

    /// Calls the service; a handler that panics has failed, and nothing else has.
    async fn caught(
        &self,
        cx: &RequestCx,
        request: ClientRequest,
        connection: Option<&Arc<Connection>>,
    ) -> Result<(RawJson, Option<Bytes>), ErrorObject> {
        let called = AssertUnwindSafe(self.call(cx, request, connection)).catch_unwind();
        crate::unsaid::outcome(match called.await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(McpError(error))) => Err(error),
            Err(panic) => Err(panicked(cx, &*panic)),
        })
    }

    async fn call(
        &self,
        cx: &RequestCx,
        request: ClientRequest,
        connection: Option<&Arc<Connection>>,
    ) -> Result<(RawJson, Option<Bytes>), McpError> {
        let watched = match &request {
            ClientRequest::Subscribe(uri) => Some((uri.clone(), true)),
            ClientRequest::Unsubscribe(uri) => Some((uri.clone(), false)),
            _ => None,
        };
        let result = self.service.call(cx, request).await?;
        if let (Some((uri, watch)), Some(connection)) = (watched, connection) {
            if let Some(subscription) = &*connection.subscription() {
                if watch {
                    subscription
                        .watch(uri)
                        .map_err(|error| McpError(too_many(error)))?;
                } else {
                    subscription.unwatch(&uri);
                }
            }
            connection.watcher.tell();
        }
        self.encoder
            .response(cx.version, &result, &cx.id)
            .map_err(|error| McpError::internal(&error))
    }
}

/// Input from which a request is answered.
struct Asked<S> {
    cx: RequestCx,
    request: ClientRequest,
    place: Ticket<S>,
    connection: Option<Arc<Connection>>,
}

/// Boxes what `make` makes. Its place is there before it, and if it is made of nothing but pointers,
/// the compiler writes these there. Otherwise it would make all of a future elsewhere and copy it,
/// of which hardly anything means something before it is polled.
fn in_place<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

/// The error of a request whose handler has panicked, which the log tells.
pub(super) fn panicked(cx: &RequestCx, panic: &(dyn Any + Send)) -> ErrorObject {
    tracing::error!(
        id = %cx.id,
        principal = %cx.principal,
        panic = panic_text(panic),
        "a handler panicked"
    );
    ErrorObject::new(ErrorCode::INTERNAL_ERROR, "internal error")
}

/// Message of a panic, for logs.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
