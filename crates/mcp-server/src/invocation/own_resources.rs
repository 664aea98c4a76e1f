//! Resources of the server, for handlers that read them on behalf of their callers.

use crate::{
    invocation::{Invocation, Invoked, failure::InvocationError},
    offer::Offer,
};
use adapter_tools::ReadResources;
use futures_util::future::BoxFuture;
use jsonrpc_core::RawJson;
use mcp_protocol::model::ReadResource;
use mcp_service::{RequestCx, Service};
use serde_json::{Value, json};
use std::sync::Arc;

/// Reads resources as the caller of a tool: each read is an invocation like any other.
pub(crate) struct OwnResources<S> {
    invocations: Arc<S>,
    offer: Arc<Offer>,
    cx: RequestCx,
}

impl<S> OwnResources<S>
where
    S: Service<Invocation, Response = Invoked, Error = InvocationError> + Send + Sync + 'static,
{
    /// Gives `invocation` a way to read resources, if its tool takes the context of its calls.
    pub(crate) fn for_call(
        invocations: &Arc<S>,
        cx: &RequestCx,
        mut invocation: Invocation,
    ) -> Invocation {
        let tool = invocation.tool.as_ref();
        if tool.is_some_and(|it| it.tool.takes_context()) {
            invocation.reads = Some(Arc::new(Self {
                invocations: Arc::clone(invocations),
                offer: Arc::clone(&invocation.offer),
                cx: cx.within(),
            }));
        }
        invocation
    }
}

impl<S> ReadResources for OwnResources<S>
where
    S: Service<Invocation, Response = Invoked, Error = InvocationError> + Send + Sync + 'static,
{
    fn read(self: Arc<Self>, uri: String) -> BoxFuture<'static, Result<Value, String>> {
        Box::pin(async move {
            let asked = RawJson::from_value(&json!({ "uri": uri }));
            let asked = asked.map_err(|error| error.to_string())?;
            let read = ReadResource {
                uri: uri.clone(),
                ..ReadResource::default()
            };
            let invocation = Invocation::resource(Arc::clone(&self.offer), read, asked);
            match self.invocations.call(&self.cx, invocation).await {
                Ok(Invoked::Resource(result)) => Ok(json!({ "contents": result.contents })),
                Ok(_) => Err(format!("{uri} cannot be read here: it asks for something")),
                Err(InvocationError::Unknown) => Err(format!("there is no resource {uri}")),
                Err(error) => Err(format!("{uri} was not read: {error}")),
            }
        })
    }
}
