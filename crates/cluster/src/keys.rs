//! Keys that all servers have.

use crate::{database::Cluster, error::Failed, news::News};
use std::time::Duration;
use tokio::{sync::broadcast::error::RecvError, time};

/// Interval at which keys are read. A new one seals after twice this.
const READ_EVERY: Duration = Duration::from_secs(60 * 60);

/// Pause before keys are read again that could not be read.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// A key: 256 random bits.
pub type Key = [u8; 32];

impl Cluster {
    /// The keys, the one to seal with first. `candidate` becomes one of them if there is none of the last day.
    ///
    /// # Errors
    ///
    /// [`Failed`].
    pub async fn sealing_keys(&self, candidate: Key) -> Result<Vec<Key>, Failed> {
        let sql = "SELECT owlclaw_cluster.sealing_keys($1)";
        let rows = self.shared.query(sql, &[&&candidate[..]]).await?;
        let keys = rows.iter().map(|row| {
            let key: &[u8] = row.try_get(0)?;
            key.try_into()
                .map_err(|_| Failed::Row("a key has no 32 bytes"))
        });
        match keys.collect::<Result<Vec<_>, Failed>>()? {
            keys if keys.is_empty() => Err(Failed::Row("there is no key")),
            keys => Ok(keys),
        }
    }

    /// Gives the keys to `told` whenever they may have changed, for as long as it is awaited. `random` makes
    /// candidates.
    pub async fn follow_keys(&self, random: impl Fn() -> Key, told: impl Fn(Vec<Key>)) {
        let mut news = self.news();
        loop {
            let pause = match self.sealing_keys(random()).await {
                Ok(keys) => {
                    told(keys);
                    READ_EVERY
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "keys that servers share cannot be read; it is tried again"
                    );
                    TRY_AGAIN
                }
            };
            let changed = async {
                loop {
                    match news.recv().await {
                        Ok(News::Keys | News::Missed) | Err(RecvError::Lagged(_)) => return,
                        Ok(_) => {}
                        // It never is as long as `self` is there.
                        Err(RecvError::Closed) => std::future::pending().await,
                    }
                }
            };
            let _ = time::timeout(pause, changed).await;
        }
    }
}
