//! The workflow of a task, whose one activity is the call.

use crate::activity::Activities;
use std::time::Duration;
use temporalio_common::RetryPolicy;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{ActivityCancellationType, ActivityOptions, WorkflowContext, WorkflowResult};

/// Time without a heartbeat after which a worker is taken for dead.
const SILENCE: Duration = Duration::from_secs(30);

/// The longest that the activity of a task may take: the workflow has the limit that counts.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// Pauses between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

#[workflow]
#[derive(Default)]
pub(crate) struct CarryOut;

#[workflow_methods]
impl CarryOut {
    /// Has a worker carry the task out. An attempt more does no harm: each asks the task store what is left to
    /// be done, and that decides if the call may be made again.
    #[run(name = "owlclaw-task")]
    pub(crate) async fn run(
        ctx: &mut WorkflowContext<Self>,
        task: String,
    ) -> WorkflowResult<String> {
        let (first, most) = PAUSES;
        let again = RetryPolicy::builder()
            .initial_interval(first)
            .maximum_interval(most)
            .build();
        let options = ActivityOptions::with_schedule_to_close_timeout(LONGEST)
            .heartbeat_timeout(SILENCE)
            .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
            .retry_policy(again)
            .build();
        let end = ctx
            .execute_activity(Activities::call, task, options)
            .await?;
        Ok(end)
    }
}
