//! Keys and changes that this server shares with others over the ledger's database.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Changed, Cluster, Key, News, NodeSign};
use data_encoding::HEXLOWER;
use mcp_service::Change;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::sessions::LiveSessions;
use super::store::ServedMcpServer;
use crate::Failure;

/// The most changes that wait to be told to other servers.
const MAX_WAITING: usize = 1_024;

/// The most changes that are told at once.
const MAX_AT_ONCE: usize = 64;

/// Interval of signs of life, and the time without one after which a server is silent: as long as a lease lasts.
const BEAT: Duration = Duration::from_secs(10);
const SILENT: Duration = Duration::from_secs(30);

/// Pause before other servers are told again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Follows what other servers change, and tells them, until it is dropped.
#[derive(Debug)]
pub(super) struct Sharing {
    following: Vec<JoinHandle<()>>,
    cluster: Cluster,
    /// Name under which this server owns tasks.
    node: String,
}

impl Sharing {
    /// Takes the keys that servers share, and follows what changes from then on.
    pub(super) async fn begin(
        cluster: &Cluster,
        mcp: &Arc<ServedMcpServer>,
        version: &str,
        sessions: &Arc<LiveSessions>,
    ) -> Result<Self, Failure> {
        // Before anything is sealed with a key that no other server has.
        mcp.seal_with(&cluster.sealing_keys(random()).await?);
        let node = match mcp.tasks() {
            Some(tasks) => tasks.owner().to_owned(),
            None => HEXLOWER.encode(&random()[..16]),
        };
        Ok(Self {
            following: vec![
                follow_keys(cluster, mcp),
                tell_others(cluster, mcp),
                hear_of_others(cluster, mcp),
                show_life(
                    cluster,
                    node.clone(),
                    version.to_owned(),
                    Arc::clone(sessions),
                ),
            ],
            cluster: cluster.clone(),
            node,
        })
    }

    /// The servers that share the database, this one among them.
    pub(super) async fn nodes(&self) -> Result<Vec<ServerNode>, Failure> {
        let nodes = self.cluster.nodes().await?;
        let node = |it: cluster::Node| ServerNode {
            is_this: it.id == self.node,
            state: match (it.has_stopped, Duration::from_micros(it.silent_us)) {
                (true, _) => NodeState::Stopped,
                (false, silent) if silent < SILENT => NodeState::Alive,
                (false, _) => NodeState::Silent,
            },
            id: it.id,
            name: it.name,
            version: it.version,
            sessions: it.sessions,
            tasks: it.tasks,
            age: Some(Duration::from_micros(it.age_us)),
            silent: Duration::from_micros(it.silent_us),
        };
        Ok(nodes.into_iter().map(node).collect())
    }

    /// Says that this server stops.
    pub(super) async fn leave(&self) {
        if let Some(life) = self.following.last() {
            life.abort();
        }
        if let Err(error) = self.cluster.end_node(&self.node).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "other servers are not told that this one stops");
        }
    }
}

/// Name of this process for people.
pub(super) fn node_name() -> String {
    let process = std::process::id();
    match std::fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) => format!("process {process} on {}", host.trim()),
        Err(_) => format!("process {process}"),
    }
}

/// State of a server among those that share a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// Heard of in time.
    Alive,
    /// Not heard of for as long as a lease lasts: the server was killed, or cannot reach the database.
    Silent,
    /// Stopped in good order.
    Stopped,
}

/// A server among those that share a database, or the only one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerNode {
    /// Name under which it owns tasks.
    pub id: String,
    /// Name for people: process and host.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// State.
    pub state: NodeState,
    /// True for the server that is asked.
    pub is_this: bool,
    /// Number of sessions of legacy clients, at its last sign of life; `None` where there can be none.
    pub sessions: Option<u64>,
    /// Number of tasks that it owns.
    pub tasks: u64,
    /// Time since its first sign of life, if there are any.
    pub age: Option<Duration>,
    /// Time since its last sign of life.
    pub silent: Duration,
}

/// Shows now and then that this server is alive.
fn show_life(
    cluster: &Cluster,
    node: String,
    version: String,
    sessions: Arc<LiveSessions>,
) -> JoinHandle<()> {
    let (cluster, name) = (cluster.clone(), node_name());
    tokio::spawn(async move {
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_failing = false;
        loop {
            beat.tick().await;
            let sign = NodeSign {
                id: &node,
                name: &name,
                version: &version,
                sessions: sessions.get().map(|it| it.overview().open),
            };
            match cluster.show_node(sign).await {
                Ok(()) => is_failing = false,
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(
                            error,
                            "other servers do not hear that this one is alive; it is tried again"
                        );
                    }
                }
            }
        }
    })
}

impl Drop for Sharing {
    fn drop(&mut self) {
        for task in &self.following {
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
