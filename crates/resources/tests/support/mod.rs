//! A caller whose permissions are asked for.

use std::{future::ready, sync::Arc};

use adapter_tools::ReadResources;
use futures_util::future::BoxFuture;
use serde_json::Value;

/// A caller that may know of what begins with one of these texts. Nothing is read on its behalf.
pub(crate) struct MayRead(pub(crate) Vec<&'static str>);

impl ReadResources for MayRead {
    fn read(self: Arc<Self>, uri: String) -> BoxFuture<'static, Result<Value, String>> {
        Box::pin(ready(Err(format!("{uri} is not to be read"))))
    }

    fn permits(&self, uri: &str) -> bool {
        self.0.iter().any(|it| uri.starts_with(it))
    }
}
