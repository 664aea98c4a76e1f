//! Keys and changes that this server shares with others over the ledger's database.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Changed, Cluster, Key, News};
use mcp_service::Change;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::store::ServedMcpServer;
use crate::Failure;

/// The most changes that wait to be told to other servers.
const MAX_WAITING: usize = 1_024;

/// The most changes that are told at once.
const MAX_AT_ONCE: usize = 64;

/// Pause before other servers are told again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Follows what other servers change, and tells them, until it is dropped.
#[derive(Debug)]
pub(super) struct Sharing(Vec<JoinHandle<()>>);

impl Sharing {
    /// Takes the keys that servers share, and follows what changes from then on.
    pub(super) async fn begin(
        cluster: &Cluster,
        mcp: &Arc<ServedMcpServer>,
    ) -> Result<Self, Failure> {
        // Before anything is sealed with a key that no other server has.
        mcp.seal_with(&cluster.sealing_keys(random()).await?);
        Ok(Self(vec![
            follow_keys(cluster, mcp),
            tell_others(cluster, mcp),
            hear_of_others(cluster, mcp),
        ]))
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

fn follow_keys(cluster: &Cluster, mcp: &Arc<ServedMcpServer>) -> JoinHandle<()> {
    let (cluster, mcp) = (cluster.clone(), Arc::downgrade(mcp));
    tokio::spawn(async move {
        let told = |keys: Vec<Key>| {
            if let Some(mcp) = mcp.upgrade() {
                mcp.seal_with(&keys);
            }
        };
        cluster.follow_keys(random, told).await;
    })
}

/// Tells other servers of changes of lists and resources. What changes many times meanwhile is told once.
fn tell_others(cluster: &Cluster, mcp: &Arc<ServedMcpServer>) -> JoinHandle<()> {
    let (sender, mut waiting) = mpsc::channel(MAX_WAITING);
    mcp.tell_others_by(move |change| {
        let changed = match change {
            Change::Tools => Changed::Tools,
            Change::Prompts => Changed::Prompts,
            Change::Resources => Changed::Resources,
            Change::Resource(uri) => Changed::Resource(uri.as_str().into()),
            // The store of tasks says so itself.
            Change::Task(..) => return,
        };
        if sender.try_send(changed).is_err() {
            tracing::warn!("subscribers on other servers are not told of a change: too many wait");
        }
    });
    let cluster = cluster.clone();
    tokio::spawn(async move {
        let mut changes = Vec::with_capacity(MAX_AT_ONCE);
        while 0 < waiting.recv_many(&mut changes, MAX_AT_ONCE).await {
            let changed: HashSet<_> = changes.drain(..).collect();
            let mut is_failing = false;
            while let Err(error) = cluster.tell_changed(&changed).await {
                if error.is_lasting() {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "other servers cannot be told of a change");
                    break;
                }
                if !std::mem::replace(&mut is_failing, true) {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "other servers are not told of changes; it is tried again"
                    );
                }
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    })
}

fn hear_of_others(cluster: &Cluster, mcp: &Arc<ServedMcpServer>) -> JoinHandle<()> {
    let (mut news, mcp) = (cluster.news(), Arc::downgrade(mcp));
    tokio::spawn(async move {
        loop {
            let told = news.recv().await;
            let Some(mcp) = mcp.upgrade() else { return };
            let resources = || {
                let listened = mcp.engine().subscriptions().resources();
                listened.into_iter().map(Change::Resource)
            };
            let lists = [Change::Tools, Change::Prompts, Change::Resources];
            let changes: Vec<_> = match told {
                Ok(News::Changed(changed)) => match changed {
                    Changed::Tools => vec![Change::Tools],
                    Changed::Prompts => vec![Change::Prompts],
                    Changed::Resources => vec![Change::Resources],
                    Changed::Resource(uri) => vec![Change::Resource((*uri).to_owned())],
                    Changed::AnyResource => resources().collect(),
                },
                // Whatever may have changed is announced, as to a client that comes back.
                Ok(News::Missed) | Err(RecvError::Lagged(_)) => {
                    lists.into_iter().chain(resources()).collect()
                }
                Ok(_) => Vec::new(),
                Err(RecvError::Closed) => return,
            };
            changes
                .iter()
                .for_each(|change| mcp.changed_elsewhere(change));
        }
    })
}

fn random() -> Key {
    let mut key = [0; 32];
    // Without randomness there is no key, and without a key nothing may be sealed.
    getrandom::fill(&mut key).expect("the system gives random bytes");
    key
}
