use jiff::{ToSpan, tz::TimeZone};

/// Milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// One calendar month as an interval of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Month {
    /// Its first millisecond.
    pub start: Timestamp,
    /// The first millisecond of the month after it.
    pub end: Timestamp,
}

/// Where months begin: a time zone.
///
/// The zone is data, because this crate reads no files: give a POSIX rule or the bytes of a
/// compiled zone file.
#[derive(Clone, Debug)]
pub struct Calendar {
    zone: TimeZone,
}

/// A time zone that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("the time zone cannot be understood")]
pub struct CalendarError(#[source] jiff::Error);

impl Default for Calendar {
    fn default() -> Self {
        Self::utc()
    }
}

impl Calendar {
    /// Months begin at midnight UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self {
            zone: TimeZone::UTC,
        }
    }

    /// Months begin at midnight of a zone given as a POSIX rule, such as `CET-1CEST,M3.5.0,M10.5.0/3`.
    ///
    /// # Errors
    ///
    /// [`CalendarError`] when it is no such rule.
    pub fn posix(rule: &str) -> Result<Self, CalendarError> {
        TimeZone::posix(rule)
            .map(|zone| Self { zone })
            .map_err(CalendarError)
    }

    /// Months begin at midnight of a zone given as the content of a compiled zone file (TZif).
    ///
    /// # Errors
    ///
    /// [`CalendarError`] when the bytes are no such file.
    pub fn tzif(name: &str, content: &[u8]) -> Result<Self, CalendarError> {
        TimeZone::tzif(name, content)
            .map(|zone| Self { zone })
            .map_err(CalendarError)
    }

    /// The month that `now` lies in. Total: beyond the year 9999 time stands still.
    #[must_use]
    pub fn month_of(&self, now: Timestamp) -> Month {
        let instant = i64::try_from(now.0)
            .ok()
            .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
            .unwrap_or(jiff::Timestamp::MAX);
        let first = instant.to_zoned(self.zone.clone()).date().first_of_month();
        let edge = |date: jiff::civil::Date| {
            let zoned = date.to_zoned(self.zone.clone()).ok()?;
            u64::try_from(zoned.timestamp().as_millisecond()).ok()
        };
        // A month that begins before the epoch begins at it; one that never ends ends at the end.
        Month {
            start: Timestamp(edge(first).unwrap_or(0)),
            end: Timestamp(
                first
                    .checked_add(1.month())
                    .ok()
                    .and_then(edge)
                    .unwrap_or(u64::MAX),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let instant: jiff::Timestamp = text.parse().unwrap();
        Timestamp(u64::try_from(instant.as_millisecond()).unwrap())
    }

    #[test]
    fn a_month_begins_at_local_midnight() {
        let berlin = Calendar::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let rows = [
            (
                Calendar::utc(),
                "2026-01-31T23:59:59.999Z",
                "2026-01-01T00:00:00Z",
                "2026-02-01T00:00:00Z",
            ),
            (
                Calendar::utc(),
                "2026-12-05T00:00:00Z",
                "2026-12-01T00:00:00Z",
                "2027-01-01T00:00:00Z",
            ),
            (
                berlin.clone(),
                "2026-01-31T23:00:00Z",
                "2026-01-31T23:00:00Z",
                "2026-02-28T23:00:00Z",
            ),
            // March has a change to summer time in it, so it ends an hour earlier in UTC.
            (
                berlin,
                "2026-03-10T00:00:00Z",
                "2026-02-28T23:00:00Z",
                "2026-03-31T22:00:00Z",
            ),
        ];
        for (calendar, now, start, end) in rows {
            let expected = Month {
                start: at(start),
                end: at(end),
            };
            assert_eq!(calendar.month_of(at(now)), expected, "{now}");
        }
    }

    #[test]
    fn no_time_is_too_strange() {
        let behind = Calendar::posix("AAA12").unwrap();
        assert_eq!(behind.month_of(Timestamp(0)).start, Timestamp(0));
        for now in [0, i64::MAX as u64, u64::MAX] {
            let month = Calendar::utc().month_of(Timestamp(now));
            assert!(month.start < month.end, "{now}: {month:?}");
        }
        assert!(Calendar::posix("nonsense").is_err());
        assert!(Calendar::tzif("x", b"nonsense").is_err());
    }
}
