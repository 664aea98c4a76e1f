use crate::{Condition, Severity};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use std::time::SystemTime;
use uuid::Uuid;

/// State of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The condition has begun, or has got worse.
    Raised,
    /// The condition still holds.
    Repeated,
    /// The condition is over.
    Recovered,
}

/// One message to operators.
#[derive(Clone, Debug)]
pub struct Notice {
    /// Of this message; the same however often it is sent.
    pub id: Uuid,
    /// Of what it is about, from its going wrong until it is over.
    pub alert: Uuid,
    /// Condition that the notice is about.
    pub condition: Condition,
    /// State of the condition.
    pub state: State,
    /// Severity of the condition.
    pub severity: Severity,
    /// Time at which the condition began.
    pub since: SystemTime,
    /// Time of the notice.
    pub at: SystemTime,
    /// Details for an operator.
    pub detail: String,
}

impl Notice {
    /// A longer detail is cut.
    pub const MAX_DETAIL_BYTES: usize = 2048;

    /// As receivers get it, JSON. `server` is who says so, `version` what it is.
    #[must_use]
    pub fn body(&self, server: &str, version: &str) -> String {
        let end = self.detail.floor_char_boundary(Self::MAX_DETAIL_BYTES);
        let detail = &self.detail[..end];
        json!({
            "id": self.id.to_string(),
            "alert": self.alert.to_string(),
            "key": self.condition.key(),
            "event": self.condition.event,
            "subject": self.condition.subject,
            "state": self.state,
            "severity": self.severity,
            "since": rfc3339(self.since),
            "at": rfc3339(self.at),
            "detail": detail,
            "server": { "name": server, "version": version },
        })
        .to_string()
    }
}

/// With milliseconds. What no calendar knows is the epoch.
fn rfc3339(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use std::time::Duration;

    #[test]
    fn a_body_says_everything() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_789_000_000_250);
        let mut notice = Notice {
            id: Uuid::nil(),
            alert: Uuid::max(),
            condition: Condition::about(Event::Budget80, "alice"),
            state: State::Raised,
            severity: Severity::Warning,
            since: time,
            at: time + Duration::from_secs(10),
            detail: format!("x{}", "é".repeat(Notice::MAX_DETAIL_BYTES)),
        };
        let body = |notice: &Notice| -> serde_json::Value {
            serde_json::from_str(&notice.body("here", "1.2.3")).unwrap()
        };
        let cut = body(&notice)["detail"].as_str().unwrap().to_owned();
        assert_eq!(cut.len(), Notice::MAX_DETAIL_BYTES - 1);
        notice.detail = "spent".to_owned();
        assert_eq!(
            body(&notice),
            json!({
                "id": Uuid::nil().to_string(),
                "alert": Uuid::max().to_string(),
                "key": "budget_80:alice",
                "event": "budget_80",
                "subject": "alice",
                "state": "raised",
                "severity": "warning",
                "since": "2026-09-10T00:26:40.250Z",
                "at": "2026-09-10T00:26:50.250Z",
                "detail": "spent",
                "server": { "name": "here", "version": "1.2.3" },
            })
        );
    }

    #[test]
    fn events_have_the_names_that_they_are_written_with() {
        for event in Event::ALL {
            assert_eq!(serde_json::to_value(event).unwrap(), event.as_str());
        }
    }
}
