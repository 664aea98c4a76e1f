//! The application's states as resources, for whoever wants them so.

use std::error::Error;
use std::sync::Arc;

use adapter_tools::ToolCx;
use adapter_tools::python::PythonApp;
use futures_util::future::BoxFuture;
use jsonrpc_core::RawJson;
use mcp_server::{Resources, StateResources, States};

/// Whom the application is told to be asking; clients are told apart before it is asked.
const READER: &str = "resources/read";

/// An application's states.
#[derive(Debug)]
struct AppStates(Arc<PythonApp>);

impl States for AppStates {
    fn read<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<RawJson, Box<dyn Error + Send + Sync>>> {
        Box::pin(async move {
            let output = self.0.read_state(name, ToolCx::new(READER, name)).await?;
            let state = output.structured.ok_or("the state is not an object")?;
            Ok(RawJson::from_value(&state)?)
        })
    }
}

/// The states that `app` has now.
pub(super) fn resources(app: &Arc<PythonApp>) -> Arc<dyn Resources> {
    let names = app.state_names();
    Arc::new(StateResources::new(
        Arc::new(AppStates(Arc::clone(app))),
        names,
    ))
}
