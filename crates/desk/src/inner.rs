//! Parts of the desk that all requests share.

use std::sync::Arc;

use config::Config;
use ledger::ReadLedger;
use serde_json::Value;
use server::{Act, Failure, Server};
use tokio::sync::{Mutex, watch};

use crate::reply::Problem;
use crate::sign_in::{SignIn, Who};

/// Parts that all requests share.
pub(crate) struct Inner {
    pub(crate) server: Arc<Server>,
    pub(crate) sign_in: Arc<SignIn>,
    /// One request reads the ledger at a time: it serves calls as well.
    reading: Mutex<()>,
    /// One request changes the configuration file at a time.
    pub(crate) writing: Mutex<()>,
    /// True once the desk ends, for what streams.
    pub(crate) stopping: watch::Sender<bool>,
    /// Description of the API.
    pub(crate) document: &'static Value,
}

impl Inner {
    pub(crate) fn new(server: Arc<Server>, sign_in: SignIn, document: &'static Value) -> Self {
        Self {
            server,
            sign_in: Arc::new(sign_in),
            reading: Mutex::new(()),
            writing: Mutex::new(()),
            stopping: watch::Sender::new(false),
            document,
        }
    }

    /// Puts an act of a person on record, before it is done.
    pub(crate) async fn record(&self, who: &Who, what: &str, subject: &str) -> Result<(), Problem> {
        self.record_more(who, what, subject, &Value::Null).await
    }

    /// The same with more about the act, an object.
    pub(crate) async fn record_more(
        &self,
        who: &Who,
        what: &str,
        subject: &str,
        more: &Value,
    ) -> Result<(), Problem> {
        let act = Act {
            by: &who.name,
            what,
            subject,
            proof: &who.proof,
            more,
        };
        let recorded = self.server.record(act).await;
        recorded.map_err(|error| Problem::unrecorded(&error))
    }

    /// Looks into the ledger, on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut (dyn ReadLedger + Send), &Config) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Problem> {
        let _turn = self.reading.lock().await;
        let config = self.server.config().clone();
        let looked = move || {
            let mut reader = server::open_reader(&config)?;
            look(&mut *reader, &config)
        };
        self.block(looked).await
    }

    /// Does something on a thread that may block.
    pub(crate) async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Problem> {
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(failure)) => Err(Problem::unavailable(&*failure)),
            Err(error) => Err(Problem::unavailable(&error)),
        }
    }
}
