//! The connection to a Temporal server, and what it says of a task.

use mcp_server::Standing;
use std::{error::Error, fmt, time::Duration};
use temporalio_client::{
    Client, ClientOptions, ClientTlsOptions, Connection, ConnectionOptions, TlsOptions,
    UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus,
    errors::WorkflowInteractionError,
};
use tokio::sync::OnceCell;

/// Time that connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Address of a Temporal server, and how to connect to it.
#[derive(Clone)]
pub struct TemporalOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub address: String,
    /// Namespace, which must exist.
    pub namespace: String,
    /// API key that is sent along.
    pub api_key: Option<String>,
    /// Certificates of the authority of the server, PEM; those of the system without them.
    pub ca: Option<Vec<u8>>,
    /// Certificate and key of this client, PEM.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for TemporalOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemporalOptions")
            .field("address", &self.address)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

pub(crate) type Failed = Box<dyn Error + Send + Sync>;

/// A connection that is made when it is first needed, and then kept.
#[derive(Debug)]
pub(crate) struct Lazy {
    options: TemporalOptions,
    client: OnceCell<Connected>,
}

struct Connected(Client);

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connected")
    }
}

impl Lazy {
    pub(crate) fn new(options: TemporalOptions) -> Self {
        Self {
            options,
            client: OnceCell::new(),
        }
    }

    /// The client; it connects unless an attempt before has succeeded.
    pub(crate) async fn client(&self) -> Result<&Client, Failed> {
        let connected = self.client.get_or_try_init(|| async {
            let client = connect(&self.options).await?;
            Ok::<_, Failed>(Connected(client))
        });
        Ok(&connected.await?.0)
    }

    pub(crate) fn options(&self) -> &TemporalOptions {
        &self.options
    }
}

/// Connects.
pub(crate) async fn connect(options: &TemporalOptions) -> Result<Client, Failed> {
    let tls = options.address.starts_with("https:").then(|| {
        let client = options.client.clone().map(|(certificate, key)| {
            ClientTlsOptions::builder()
                .client_cert(certificate)
                .client_private_key(key)
                .build()
        });
        TlsOptions::builder()
            .maybe_server_root_ca_cert(options.ca.clone())
            .maybe_client_tls_options(client)
            .build()
    });
    let connection = ConnectionOptions::new(options.address.parse::<temporalio_client::Url>()?)
        .identity(format!("owlclaw-mcp {}", std::process::id()))
        .maybe_tls_options(tls)
        .maybe_api_key(options.api_key.clone())
        .connect_timeout(CONNECT)
        .build();
    let connection = Connection::connect(connection).await?;
    let client = ClientOptions::new(options.namespace.clone()).build();
    Ok(Client::new(connection, client)?)
}

/// State of the workflow of a task.
pub(crate) async fn standing(server: &Lazy, task: &str) -> Result<Standing, Failed> {
    let client = server.client().await?;
    let handle = client.get_workflow_handle::<UntypedWorkflow>(task);
    let found = match handle.describe(WorkflowDescribeOptions::default()).await {
        Ok(found) => found,
        // Its history is gone: it ended long ago.
        Err(WorkflowInteractionError::NotFound(_)) => return Ok(Standing::GivenUp),
        Err(error) => return Err(error.into()),
    };
    let is_cancelled = found
        .raw()
        .workflow_extended_info
        .as_ref()
        .is_some_and(|it| it.cancel_requested);
    Ok(match found.status() {
        WorkflowExecutionStatus::Canceled | WorkflowExecutionStatus::Terminated => {
            Standing::Cancelled
        }
        WorkflowExecutionStatus::Completed
        | WorkflowExecutionStatus::Failed
        | WorkflowExecutionStatus::TimedOut => Standing::GivenUp,
        _ if is_cancelled => Standing::Cancelled,
        _ => Standing::Queued,
    })
}
