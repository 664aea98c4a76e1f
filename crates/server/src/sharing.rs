//! What this server shares with others over the ledger's database, beside tasks.

use std::sync::Arc;

use cluster::{Cluster, Key};
use tokio::task::JoinHandle;

use super::store::ServedMcpServer;
use crate::Failure;

/// Follows what other servers change, until it is dropped.
#[derive(Debug)]
pub(super) struct Sharing {
    keys: JoinHandle<()>,
}

impl Sharing {
    /// Takes the keys that servers share, and follows their changes.
    pub(super) async fn begin(
        cluster: &Cluster,
        mcp: &Arc<ServedMcpServer>,
    ) -> Result<Self, Failure> {
        // Before anything is sealed with a key that no other server has.
        mcp.seal_with(&cluster.sealing_keys(random()).await?);
        let (cluster, mcp) = (cluster.clone(), Arc::downgrade(mcp));
        let keys = tokio::spawn(async move {
            let told = |keys: Vec<Key>| {
                if let Some(mcp) = mcp.upgrade() {
                    mcp.seal_with(&keys);
                }
            };
            cluster.follow_keys(random, told).await;
        });
        Ok(Self { keys })
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.keys.abort();
    }
}

fn random() -> Key {
    let mut key = [0; 32];
    // Without randomness there is no key, and without a key nothing may be sealed.
    getrandom::fill(&mut key).expect("the system gives random bytes");
    key
}
