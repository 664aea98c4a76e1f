use crate::{
    Moment, Observation, Severity, State, Timing, WebhookOptions, WebhookState, board::Board,
    webhook::Webhook,
};
use http_client::ClientError;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::task::JoinSet;

/// Reason why alerts cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("the webhook `{name}` cannot be used")]
pub struct StartError {
    /// Name of the webhook.
    pub name: String,
    /// Description of what is wrong with it.
    pub source: ClientError,
}

/// Sends alerts of failures to webhooks.
#[derive(Debug)]
pub struct Alerts {
    board: Mutex<Board>,
    webhooks: Vec<Arc<Webhook>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Alerts {
    /// Has notices sent to `webhooks` from now on, by tasks of the current runtime. `server` is who
    /// says so, `version` what it is.
    ///
    /// # Errors
    ///
    /// [`StartError`] for the first webhook whose authorities are no certificates.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(
        webhooks: Vec<WebhookOptions>,
        timing: Timing,
        server: &str,
        version: &str,
    ) -> Result<Self, StartError> {
        let webhooks = webhooks.into_iter().map(|options| {
            let name = options.name.clone();
            let webhook = Webhook::new(options, server.to_owned(), version.to_owned());
            webhook
                .map(Arc::new)
                .map_err(|source| StartError { name, source })
        });
        let webhooks = webhooks.collect::<Result<Vec<_>, _>>()?;
        let mut tasks = JoinSet::new();
        for webhook in &webhooks {
            tasks.spawn(Arc::clone(webhook).run());
        }
        Ok(Self {
            board: Mutex::new(Board::new(timing)),
            webhooks,
            tasks: Mutex::new(tasks),
        })
    }

    /// Takes all that is wrong at this moment: what was wrong before and is not in it is right again.
    /// Never waits.
    pub fn observe(&self, now: Moment, wrong: impl IntoIterator<Item = Observation>) {
        let notices = self.board().look(now, wrong);
        for notice in notices {
            let alert = notice.condition.key();
            let detail = &notice.detail;
            match (notice.state, notice.severity) {
                (State::Recovered, _) => tracing::info!(alert, detail, "an alert is over"),
                (_, Severity::Warning) => tracing::warn!(alert, detail, "an alert is raised"),
                (_, Severity::Critical) => tracing::error!(alert, detail, "an alert is raised"),
            }
            let notice = Arc::new(notice);
            for webhook in &self.webhooks {
                webhook.push(&notice);
            }
        }
    }

    /// State of each webhook.
    #[must_use]
    pub fn webhooks(&self) -> Vec<WebhookState> {
        self.webhooks.iter().map(|it| it.state()).collect()
    }

    /// Number of conditions that were reported and are not over.
    #[must_use]
    pub fn raised(&self) -> usize {
        self.board().raised()
    }

    /// Number of conditions there was no room for at the last observation; see
    /// [`MAX_CONDITIONS`](crate::MAX_CONDITIONS).
    #[must_use]
    pub fn untold(&self) -> usize {
        self.board().untold()
    }

    /// Takes nothing more, and gives what waits so long to be delivered, each at the first attempt.
    pub async fn close(&self, within: Duration) {
        for webhook in &self.webhooks {
            webhook.close();
        }
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(within, all).await;
        tasks.shutdown().await;
        for webhook in &self.webhooks {
            webhook.give_up_rest().await;
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
