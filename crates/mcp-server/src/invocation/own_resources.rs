//! Resources of the server, for handlers that read them on behalf of their callers.

use crate::{
    invocation::{Invocation, Invoked, Target, failure::InvocationError},
    names::{caller_of, resource_capability},
    offer::Offer,
};
use adapter_tools::ReadResources;
use futures_util::future::BoxFuture;
use governance::{Governor, QuotaStore};
use jsonrpc_core::RawJson;
use mcp_protocol::model::ReadResource;
use mcp_service::{RequestCx, Service};
use serde_json::{Value, json};
use std::sync::Arc;

/// Most reads one within another.
const MAX_DEPTH: u8 = 8;

/// Reads resources as the caller of a tool, a resource or a prompt: each read is an invocation like any other.
pub(crate) struct OwnResources<S, Q> {
    invocations: Arc<S>,
    governor: Arc<Governor<Q>>,
    offer: Arc<Offer>,
    cx: RequestCx,
    /// Number of reads that this one would be within.
    depth: u8,
}

impl<S, Q> OwnResources<S, Q>
where
    S: Service<Invocation, Response = Invoked, Error = InvocationError> + Send + Sync + 'static,
    Q: QuotaStore,
{
    /// Resources as the caller of a request has them.
    pub(crate) fn of(
        invocations: &Arc<S>,
        governor: &Arc<Governor<Q>>,
        cx: &RequestCx,
        offer: &Arc<Offer>,
    ) -> Arc<Self> {
        Arc::new(Self {
            invocations: Arc::clone(invocations),
            governor: Arc::clone(governor),
            offer: Arc::clone(offer),
            cx: cx.within(),
            depth: 0,
        })
    }

    /// Gives `invocation` a way to read resources, if its handler takes the context of its calls.
    pub(crate) fn for_call(
        invocations: &Arc<S>,
        governor: &Arc<Governor<Q>>,
        cx: &RequestCx,
        mut invocation: Invocation,
    ) -> Invocation {
        if takes_context(&invocation) {
            invocation.reads = Some(Self::of(invocations, governor, cx, &invocation.offer));
        }
        invocation
    }
}

fn takes_context(invocation: &Invocation) -> bool {
    match &invocation.target {
        Target::Tool(_) => {
            let tool = invocation.tool.as_ref();
            tool.is_some_and(|it| it.tool.takes_context())
        }
        Target::Resource(read) => invocation.offer.resources().takes_context(&read.uri),
        Target::Prompt(name, _) => invocation.offer.prompts().takes_context(name),
    }
}

impl<S, Q> ReadResources for OwnResources<S, Q>
where
    S: Service<Invocation, Response = Invoked, Error = InvocationError> + Send + Sync + 'static,
    Q: QuotaStore,
{
    fn permits(&self, uri: &str) -> bool {
        let capability = resource_capability(uri);
        let policy = self.governor.policy();
        let caller = caller_of(&self.cx.principal);
        policy.permitted(caller, &capability) && policy.held(&capability).is_none()
    }

    fn read(self: Arc<Self>, uri: String) -> BoxFuture<'static, Result<Value, String>> {
        Box::pin(async move {
            let asked = RawJson::from_value(&json!({ "uri": uri }));
            let asked = asked.map_err(|error| error.to_string())?;
            let read = ReadResource {
                uri: uri.clone(),
                ..ReadResource::default()
            };
            let mut invocation = Invocation::resource(Arc::clone(&self.offer), read, asked);
            if takes_context(&invocation) {
                if MAX_DEPTH <= self.depth {
                    return Err(format!(
                        "{uri} was not read: resources that read one another may do so {MAX_DEPTH} deep"
                    ));
                }
                invocation.reads = Some(Arc::new(Self {
                    invocations: Arc::clone(&self.invocations),
                    governor: Arc::clone(&self.governor),
                    offer: Arc::clone(&self.offer),
                    cx: self.cx.within(),
                    depth: self.depth + 1,
                }));
            }
            match self.invocations.call(&self.cx, invocation).await {
                Ok(Invoked::Resource(result)) => Ok(json!({ "contents": result.contents })),
                Ok(_) => Err(format!("{uri} cannot be read here: it asks for something")),
                Err(InvocationError::Unknown) => Err(format!("there is no resource {uri}")),
                Err(error) => Err(format!("{uri} was not read: {error}")),
            }
        })
    }
}
