use serde::Serialize;
use std::fmt;

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Calls cannot be recorded, so none is carried out.
    LedgerUnavailable,
    /// Verification has found the ledger to be damaged.
    LedgerDamaged,
    /// Use cannot be counted, so no call is admitted.
    QuotaStoreUnavailable,
    /// Processes of the application end again and again, or do not start.
    WorkerCrashLoop,
    /// A client has spent four fifths of a month's budget.
    #[serde(rename = "budget_80")]
    Budget80,
    /// A client has spent all of a month's budget.
    #[serde(rename = "budget_100")]
    Budget100,
    /// A certificate expires soon, or has.
    CertificateExpiry,
    /// The changed configuration is not in force, because it is wrong.
    PolicyRejected,
    /// Clients cannot be authenticated, because keys or certificates they need are unavailable.
    IdentityUnavailable,
    /// Another component that the server depends on does not work; the subject names it.
    ComponentFailed,
}

impl Event {
    /// Every one there is.
    pub const ALL: [Self; 10] = [
        Self::LedgerUnavailable,
        Self::LedgerDamaged,
        Self::QuotaStoreUnavailable,
        Self::WorkerCrashLoop,
        Self::Budget80,
        Self::Budget100,
        Self::CertificateExpiry,
        Self::PolicyRejected,
        Self::IdentityUnavailable,
        Self::ComponentFailed,
    ];

    /// Name of the event for receivers and in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LedgerUnavailable => "ledger_unavailable",
            Self::LedgerDamaged => "ledger_damaged",
            Self::QuotaStoreUnavailable => "quota_store_unavailable",
            Self::WorkerCrashLoop => "worker_crash_loop",
            Self::Budget80 => "budget_80",
            Self::Budget100 => "budget_100",
            Self::CertificateExpiry => "certificate_expiry",
            Self::PolicyRejected => "policy_rejected",
            Self::IdentityUnavailable => "identity_unavailable",
            Self::ComponentFailed => "component_failed",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Severity of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// An operator should look at it in working hours.
    Warning,
    /// Calls are refused, or are about to be.
    Critical,
}

/// Condition that holds or not: an event, and its subject where there are several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Condition {
    /// Kind of failure.
    pub event: Event,
    /// Of whom or what.
    pub subject: Option<Box<str>>,
}

impl Condition {
    /// One of which there is one.
    #[must_use]
    pub fn of(event: Event) -> Self {
        Self {
            event,
            subject: None,
        }
    }

    /// One that is about `subject`.
    #[must_use]
    pub fn about(event: Event, subject: impl Into<Box<str>>) -> Self {
        Self {
            event,
            subject: Some(subject.into()),
        }
    }

    /// The same for the same condition, in any process at any time: what receivers tell by that two
    /// notices are about one thing.
    #[must_use]
    pub fn key(&self) -> String {
        match &self.subject {
            Some(subject) => format!("{}:{subject}", self.event),
            None => self.event.to_string(),
        }
    }
}

/// Observation of a condition that holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Condition observed.
    pub condition: Condition,
    /// Severity.
    pub severity: Severity,
    /// Stage of the condition: a notice is sent again when it rises. Zero where there are no
    /// degrees.
    pub stage: u32,
    /// Details for an operator. Receivers get its first [2 KiB](crate::Notice::MAX_DETAIL_BYTES).
    pub detail: String,
}
