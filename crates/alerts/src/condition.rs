use serde::Serialize;
use std::fmt;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Calls cannot be recorded, so none is carried out.
    LedgerUnavailable,
    /// Use cannot be counted, so no call is admitted.
    QuotaStoreUnavailable,
    /// Processes of the application end again and again, or do not start.
    WorkerCrashLoop,
    /// Somebody has spent four fifths of a month's budget.
    #[serde(rename = "budget_80")]
    Budget80,
    /// Somebody has spent all of a month's budget.
    #[serde(rename = "budget_100")]
    Budget100,
    /// A certificate expires soon, or has.
    CertificateExpiry,
    /// What the configuration says now is not in force, because it is wrong.
    PolicyRejected,
    /// Nobody can be authenticated who should be.
    IdentityUnavailable,
    /// Something else that the server depends on does not work; the subject says which.
    ComponentFailed,
}

impl Event {
    /// Every one there is.
    pub const ALL: [Self; 9] = [
        Self::LedgerUnavailable,
        Self::QuotaStoreUnavailable,
        Self::WorkerCrashLoop,
        Self::Budget80,
        Self::Budget100,
        Self::CertificateExpiry,
        Self::PolicyRejected,
        Self::IdentityUnavailable,
        Self::ComponentFailed,
    ];

    /// Its name, as receivers and the configuration have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LedgerUnavailable => "ledger_unavailable",
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

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Somebody should look at it in working hours.
    Warning,
    /// Calls are refused, or are about to be.
    Critical,
}

/// Something that is wrong or not: an event, and whom or what it is about where there are several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Condition {
    /// What.
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

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What.
    pub condition: Condition,
    /// How bad it is.
    pub severity: Severity,
    /// How far it has come: it is told again when this rises. Zero where there are no degrees.
    pub stage: u32,
    /// What an operator wants to know of it. Receivers get its first
    /// [2 KiB](crate::Notice::MAX_DETAIL_BYTES).
    pub detail: String,
}
