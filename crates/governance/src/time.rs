//! Times, months and time zones, without a clock.

use jiff::{
    ToSpan,
    tz::{TimeZone, TimeZoneDatabase},
};
use std::fmt;

/// Milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// A calendar month as an interval of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Month {
    /// First millisecond.
    pub start: Timestamp,
    /// First millisecond of the month after it.
    pub end: Timestamp,
}

/// A time zone.
///
/// It is data, because this crate reads no files: a name in the copy of the IANA database that is
/// built in, a POSIX rule, or the bytes of a compiled zone file. Two zones are equal when they were
/// given in the same words.
#[derive(Clone, PartialEq, Eq)]
pub struct Zone {
    source: Box<str>,
    zone: TimeZone,
}

/// A calendar whose months begin at midnight of a time zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    zone: Zone,
}

/// A time zone that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("the time zone cannot be understood")]
pub struct CalendarError(#[source] jiff::Error);

impl Zone {
    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Self {
        Self {
            source: "UTC".into(),
            zone: TimeZone::UTC,
        }
    }

    /// A zone by its name in the IANA database: `Asia/Shanghai`. The names are those of the copy
    /// that is built in, so that a name means the same on every machine.
    ///
    /// # Errors
    ///
    /// [`CalendarError`] when there is no zone of this name.
    pub fn iana(name: &str) -> Result<Self, CalendarError> {
        let zone = TimeZoneDatabase::bundled()
            .get(name)
            .map_err(CalendarError)?;
        Ok(Self {
            // As the database spells it: `asia/shanghai` is the same zone.
            source: zone.iana_name().unwrap_or(name).into(),
            zone,
        })
    }

    /// A zone as a POSIX rule, such as `CET-1CEST,M3.5.0,M10.5.0/3`.
    ///
    /// # Errors
    ///
    /// [`CalendarError`] when it is no such rule.
    pub fn posix(rule: &str) -> Result<Self, CalendarError> {
        let zone = TimeZone::posix(rule).map_err(CalendarError)?;
        Ok(Self {
            source: format!("posix:{rule}").into(),
            zone,
        })
    }

    /// A zone as the content of a compiled zone file (TZif). Its name stands for the content
    /// wherever two zones are compared.
    ///
    /// # Errors
    ///
    /// [`CalendarError`] when the bytes are no such file.
    pub fn tzif(name: &str, content: &[u8]) -> Result<Self, CalendarError> {
        let zone = TimeZone::tzif(name, content).map_err(CalendarError)?;
        Ok(Self {
            source: format!("tzif:{name}").into(),
            zone,
        })
    }

    /// Source of the zone: a name, or a rule after `posix:`, or the name of a file after `tzif:`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// The date and the time on the wall at `now`. Total: beyond the year 9999 time stands still.
    pub(crate) fn local(&self, now: Timestamp) -> jiff::civil::DateTime {
        instant(now).to_zoned(self.zone.clone()).datetime()
    }

    /// Instant at which the wall shows `local`: the first, where it does so twice, and as much later as
    /// the clock is put forward, where it never does. `None` before the epoch and beyond 9999.
    pub(crate) fn instant(&self, local: jiff::civil::DateTime) -> Option<Timestamp> {
        let zoned = local.to_zoned(self.zone.clone()).ok()?;
        u64::try_from(zoned.timestamp().as_millisecond())
            .ok()
            .map(Timestamp)
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::utc()
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.source).finish()
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn instant(now: Timestamp) -> jiff::Timestamp {
    i64::try_from(now.0)
        .ok()
        .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
        .unwrap_or(jiff::Timestamp::MAX)
}

impl Calendar {
    /// Months begin at midnight UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self::default()
    }

    /// Months begin at midnight of `zone`.
    #[must_use]
    pub fn new(zone: Zone) -> Self {
        Self { zone }
    }

    /// Months begin at midnight of [`Zone::posix`].
    ///
    /// # Errors
    ///
    /// [`CalendarError`] when it is no such rule.
    pub fn posix(rule: &str) -> Result<Self, CalendarError> {
        Zone::posix(rule).map(Self::new)
    }

    /// Months begin at midnight of [`Zone::tzif`].
    ///
    /// # Errors
    ///
    /// [`CalendarError`] when the bytes are no such file.
    pub fn tzif(name: &str, content: &[u8]) -> Result<Self, CalendarError> {
        Zone::tzif(name, content).map(Self::new)
    }

    /// The zone at whose midnight months begin.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The month that `now` lies in. Total: beyond the year 9999 time stands still.
    #[must_use]
    pub fn month_of(&self, now: Timestamp) -> Month {
        let first = self.zone.local(now).date().first_of_month();
        let edge = |date: jiff::civil::Date| {
            self.zone
                .instant(date.to_datetime(jiff::civil::Time::midnight()))
        };
        // A month that begins before the epoch begins at it; one that never ends ends at the end.
        Month {
            start: edge(first).unwrap_or(Timestamp(0)),
            end: first
                .checked_add(1.month())
                .ok()
                .and_then(edge)
                .unwrap_or(Timestamp(u64::MAX)),
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
