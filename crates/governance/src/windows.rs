//! Hours of the week.

use crate::time::{Timestamp, Zone};
use jiff::{ToSpan, civil};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

/// The hours in which something may be used: any of several windows, all in one time zone.
///
/// Without a window it may never be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWindows {
    /// Time zone of the hours.
    pub zone: Zone,
    /// The windows.
    pub windows: Vec<TimeWindow>,
}

/// The same hours on some days of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeWindow {
    /// The days on which it begins.
    pub days: Days,
    /// Beginning.
    pub from: TimeOfDay,
    /// End: on the next day, unless that is later than `from`.
    pub to: TimeOfDay,
}

/// A window with its time zone, as it is written in a policy file:
/// `Mon-Fri 09:30-15:00 Asia/Shanghai`.
///
/// Without days, every day; without a zone, UTC. A window that ends before it begins ends on the
/// next day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonedWindow {
    /// Time zone of the hours.
    pub zone: Zone,
    /// Days and hours.
    pub window: TimeWindow,
}

/// Text that is not a window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseWindowError {
    /// The parts are others than days, hours and zone.
    #[error("write `Mon-Fri 09:30-15:00 Asia/Shanghai`")]
    Form,
    /// A day that the week does not have.
    #[error("`{0}` is no day: write Mon, Tue, Wed, Thu, Fri, Sat or Sun")]
    Day(String),
    /// No time of the day, from 00:00 to 24:00.
    #[error("`{0}` is no time of the day: write 09:30")]
    Time(String),
    /// No time zone.
    #[error("`{0}` is no time zone: write one such as Europe/Berlin or UTC")]
    Zone(String),
    /// A window that begins when it ends.
    #[error("the hours are empty: for a whole day write 00:00-24:00")]
    Empty,
}

/// Days of the week, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Days(u8);

/// A minute of a day, as a clock on the wall shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay {
    minute: u16,
}

/// A time that no clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a time of day is from 00:00 to 23:59")]
pub struct TimeOfDayError;

/// Names of the days, Monday first.
const DAY_NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The end of a day, which is the beginning of the next.
const MIDNIGHT: &str = "24:00";

const MINUTES_OF_HOUR: u16 = 60;

impl TimeWindows {
    /// Mondays to Fridays from 09:30 to 15:00 in Shanghai: the default meaning of `trading_hours_only`
    /// of a skill.
    ///
    /// # Panics
    ///
    /// Never: the zone is built in.
    #[must_use]
    pub fn trading_hours() -> Self {
        Self {
            zone: Zone::iana("Asia/Shanghai").expect("a zone that is built in"),
            windows: vec![TimeWindow {
                days: Days::WORKING,
                from: TimeOfDay {
                    minute: 9 * 60 + 30,
                },
                to: TimeOfDay { minute: 15 * 60 },
            }],
        }
    }

    /// Tests if `now` is in one of them.
    #[must_use]
    pub fn contains(&self, now: Timestamp) -> bool {
        let local = self.zone.local(now);
        self.windows.iter().any(|window| window.contains(local))
    }

    /// Windows of a policy file, which are all in the zone of the first. `None` without any.
    pub(crate) fn of(windows: &[ZonedWindow]) -> Option<Self> {
        Some(Self {
            zone: windows.first()?.zone.clone(),
            windows: windows.iter().map(|it| it.window).collect(),
        })
    }

    /// Time until one of them begins; zero inside of one, `None` if none ever does.
    #[must_use]
    pub fn wait(&self, now: Timestamp) -> Option<Duration> {
        if self.contains(now) {
            return Some(Duration::ZERO);
        }
        let today = self.zone.local(now).date();
        let dates = (0..=8_i32).filter_map(|days| today.checked_add(days.days()).ok());
        let starts = dates.flat_map(|date| {
            let on_this_day = move |window: &&TimeWindow| window.days.contains(date.weekday());
            let start = move |window: &TimeWindow| self.zone.instant(window.from.on(date));
            self.windows.iter().filter(on_this_day).filter_map(start)
        });
        // Where the clock is put forward, a window of an hour that does not exist does not begin.
        let next = starts
            .filter(|&start| now < start && self.contains(start))
            .min()?;
        Some(Duration::from_millis(next.0 - now.0))
    }
}

impl TimeWindow {
    fn contains(&self, local: civil::DateTime) -> bool {
        let time = TimeOfDay::of(local.time());
        let today = local.weekday();
        if self.from < self.to {
            return self.days.contains(today) && self.from <= time && time < self.to;
        }
        self.days.contains(today) && self.from <= time
            || self.days.contains(today.previous()) && time < self.to
    }
}

impl Days {
    /// All seven.
    pub const ALL: Self = Self(0b111_1111);
    /// Monday to Friday.
    pub const WORKING: Self = Self(0b001_1111);

    /// Set of these days, by number: 0 is Monday, 6 is Sunday. Other numbers are ignored.
    #[must_use]
    pub fn new(days: impl IntoIterator<Item = u8>) -> Self {
        let known = days.into_iter().filter(|&day| day < 7);
        Self(known.fold(0, |set, day| set | 1 << day))
    }

    /// The number of a day by its name, of which the first three letters count: `mon`, `Sunday`.
    #[must_use]
    pub fn number(name: &str) -> Option<u8> {
        let first = name.get(..3)?;
        let position = DAY_NAMES
            .iter()
            .position(|day| day.eq_ignore_ascii_case(first))?;
        u8::try_from(position).ok()
    }

    fn contains(self, day: civil::Weekday) -> bool {
        self.0 & 1 << day.to_monday_zero_offset() != 0
    }
}

impl TimeOfDay {
    /// A time.
    ///
    /// # Errors
    ///
    /// [`TimeOfDayError`] unless it is from 00:00 to 23:59.
    pub const fn new(hour: u8, minute: u8) -> Result<Self, TimeOfDayError> {
        if hour < 24 && minute < 60 {
            let minute = hour as u16 * MINUTES_OF_HOUR + minute as u16;
            Ok(Self { minute })
        } else {
            Err(TimeOfDayError)
        }
    }

    fn of(time: civil::Time) -> Self {
        let minutes = i32::from(time.hour()) * 60 + i32::from(time.minute());
        Self {
            minute: u16::try_from(minutes).expect("a day has 1,440 minutes"),
        }
    }

    fn on(self, date: civil::Date) -> civil::DateTime {
        let part = |number: u16| i8::try_from(number).expect("an hour or a minute");
        let (hour, minute) = (
            part(self.minute / MINUTES_OF_HOUR),
            part(self.minute % MINUTES_OF_HOUR),
        );
        date.at(hour, minute, 0, 0)
    }
}

impl std::str::FromStr for TimeOfDay {
    type Err = TimeOfDayError;

    /// Reads `09:30`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (hour, minute) = text.split_once(':').ok_or(TimeOfDayError)?;
        let number = |digits: &str| {
            let is_number =
                matches!(digits.len(), 1 | 2) && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        };
        match (number(hour), number(minute)) {
            (Some(hour), Some(minute)) => Self::new(hour, minute),
            _ => Err(TimeOfDayError),
        }
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute) = (self.minute / MINUTES_OF_HOUR, self.minute % MINUTES_OF_HOUR);
        write!(f, "{hour:02}:{minute:02}")
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = (0..)
            .zip(DAY_NAMES)
            .filter(|(day, _)| self.0 & 1 << day != 0);
        if let Some((_, first)) = names.next() {
            f.write_str(&first.to_ascii_lowercase())?;
        }
        names.try_for_each(|(_, name)| write!(f, ",{}", name.to_ascii_lowercase()))
    }
}

impl fmt::Display for TimeWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}-{}", self.days, self.from, self.to)
    }
}

impl fmt::Display for TimeWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for window in &self.windows {
            write!(f, "{window}; ")?;
        }
        f.write_str(self.zone.as_str())
    }
}

impl FromStr for ZonedWindow {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Self, ParseWindowError> {
        const ANYWHERE: &str = "UTC";
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let begins_with_digit = |part: &&str| part.starts_with(|c: char| c.is_ascii_digit());
        let (days, hours, zone) = match parts.as_slice() {
            [hours] if begins_with_digit(hours) => (None, hours, ANYWHERE),
            [hours, zone] if begins_with_digit(hours) => (None, hours, *zone),
            [days, hours] if begins_with_digit(hours) => (Some(*days), hours, ANYWHERE),
            [days, hours, zone] if begins_with_digit(hours) => (Some(*days), hours, *zone),
            _ => return Err(ParseWindowError::Form),
        };
        let (from, to) = hours.split_once('-').ok_or(ParseWindowError::Form)?;
        let time = |text: &str| match text {
            MIDNIGHT => Ok(TimeOfDay::default()),
            // `10:5` could be meant for 10:50.
            _ if text.bytes().rev().position(|byte| byte == b':') != Some(2) => {
                Err(ParseWindowError::Time(text.to_owned()))
            }
            _ => text
                .parse()
                .map_err(|TimeOfDayError| ParseWindowError::Time(text.to_owned())),
        };
        let window = TimeWindow {
            days: days.map_or(Ok(Days::ALL), days_of)?,
            from: time(from)?,
            to: time(to)?,
        };
        let is_whole_day = to == MIDNIGHT && window.from == window.to;
        if from == MIDNIGHT || window.from == window.to && !is_whole_day {
            return Err(ParseWindowError::Empty);
        }
        Ok(Self {
            zone: Zone::iana(zone).map_err(|_| ParseWindowError::Zone(zone.to_owned()))?,
            window,
        })
    }
}

/// `Mon-Fri`, `Sat-Mon` over the end of the week, `Mon,Wed`.
fn days_of(text: &str) -> Result<Days, ParseWindowError> {
    let day = |text: &str| {
        let known = DAY_NAMES
            .iter()
            .position(|day| day.eq_ignore_ascii_case(text));
        known.ok_or_else(|| ParseWindowError::Day(text.to_owned()))
    };
    let mut days = Days::default();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        loop {
            days.0 |= 1 << at;
            if at == last {
                break;
            }
            at = (at + 1) % DAY_NAMES.len();
        }
    }
    Ok(days)
}

impl fmt::Display for ZonedWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TimeWindow { days, from, to } = self.window;
        if days != Days::ALL {
            write!(f, "{} ", shown_days(days))?;
        }
        match to.minute {
            0 => write!(f, "{from}-{MIDNIGHT} {}", self.zone),
            _ => write!(f, "{from}-{to} {}", self.zone),
        }
    }
}

/// Runs of three days and more as `Mon-Fri`, others one by one.
fn shown_days(days: Days) -> String {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < DAY_NAMES.len() {
        let length = (at..DAY_NAMES.len())
            .take_while(|day| days.0 & 1 << day != 0)
            .count();
        match length {
            0 => at += 1,
            1 | 2 => parts.extend(DAY_NAMES[at..at + length].iter().map(ToString::to_string)),
            _ => parts.push(format!("{}-{}", DAY_NAMES[at], DAY_NAMES[at + length - 1])),
        }
        at += length;
    }
    parts.join(",")
}

impl Serialize for ZonedWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ZonedWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for ZonedWindow {
    fn schema_name() -> Cow<'static, str> {
        "Window".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "window" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        let instant: jiff::Timestamp = text.parse().unwrap();
        Timestamp(u64::try_from(instant.as_millisecond()).unwrap())
    }

    fn window(days: Days, from: &str, to: &str) -> TimeWindow {
        TimeWindow {
            days,
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
        }
    }

    #[test]
    fn windows_are_read_and_shown() {
        let rows = [
            ("Mon-Fri 09:30-15:00 Asia/Shanghai", None),
            ("mon-fri 9:30-15:00", Some("Mon-Fri 09:30-15:00 UTC")),
            ("00:00-24:00", Some("00:00-24:00 UTC")),
            ("Mon,Wed,Fri 22:00-06:00 Europe/Berlin", None),
            (
                "Sat-Mon 10:00-11:00 UTC",
                Some("Mon,Sat,Sun 10:00-11:00 UTC"),
            ),
            ("10:00-11:00 Asia/Tokyo", None),
        ];
        for (text, shown) in rows {
            let window: ZonedWindow = text.parse().unwrap();
            assert_eq!(window.to_string(), shown.unwrap_or(text));
            assert_eq!(window.to_string().parse(), Ok(window));
        }
    }

    #[test]
    fn what_is_no_window_says_why() {
        let rows = [
            ("", ParseWindowError::Form),
            ("always", ParseWindowError::Form),
            ("Mon 10:00", ParseWindowError::Form),
            ("Mon 10:00-11:00 UTC x", ParseWindowError::Form),
            ("Mon-Fry 10:00-11:00", ParseWindowError::Day("Fry".into())),
            ("10:00-24:01", ParseWindowError::Time("24:01".into())),
            ("10:0-11:00", ParseWindowError::Time("10:0".into())),
            ("10:5-11:00", ParseWindowError::Time("10:5".into())),
            ("10:60-11:00", ParseWindowError::Time("10:60".into())),
            (
                "10:00-11:00 Mars/Base",
                ParseWindowError::Zone("Mars/Base".into()),
            ),
            ("10:00-10:00", ParseWindowError::Empty),
            ("24:00-10:00", ParseWindowError::Empty),
        ];
        for (text, why) in rows {
            assert_eq!(text.parse::<ZonedWindow>(), Err(why), "{text}");
        }
    }

    #[test]
    fn trading_hours_are_those_of_shanghai() {
        // 2026-11-20 is a Friday; Shanghai is eight hours ahead.
        let rows = [
            ("2026-11-20T01:29:59.999Z", false, Some(1)),
            ("2026-11-20T01:30:00Z", true, Some(0)),
            ("2026-11-20T06:59:59.999Z", true, Some(0)),
            ("2026-11-20T07:00:00Z", false, Some((66 * 60 + 30) * 60_000)),
            ("2026-11-22T23:00:00Z", false, Some(150 * 60_000)),
        ];
        let hours = TimeWindows::trading_hours();
        for (now, inside, wait) in rows {
            assert_eq!(hours.contains(at(now)), inside, "{now}");
            assert_eq!(
                hours.wait(at(now)),
                wait.map(Duration::from_millis),
                "{now}"
            );
        }
        assert_eq!(
            hours.to_string(),
            "mon,tue,wed,thu,fri 09:30-15:00; Asia/Shanghai"
        );
    }

    #[test]
    fn a_night_belongs_to_the_day_it_begins_on() {
        let friday = Days::new([Days::number("Friday").unwrap()]);
        let nights = TimeWindows {
            zone: Zone::utc(),
            windows: vec![window(friday, "22:00", "06:00")],
        };
        let rows = [
            ("2026-11-20T05:00:00Z", false),
            ("2026-11-20T22:00:00Z", true),
            ("2026-11-21T05:59:00Z", true),
            ("2026-11-21T06:00:00Z", false),
            ("2026-11-21T23:00:00Z", false),
        ];
        for (now, inside) in rows {
            assert_eq!(nights.contains(at(now)), inside, "{now}");
        }
        let never = TimeWindows {
            zone: Zone::utc(),
            windows: vec![window(Days::default(), "00:00", "00:00")],
        };
        assert_eq!(never.wait(at("2026-11-20T05:00:00Z")), None);
    }

    #[test]
    fn a_window_from_a_time_to_the_same_is_a_whole_day() {
        let friday = Days::new([4]);
        let day = TimeWindows {
            zone: Zone::utc(),
            windows: vec![window(friday, "12:00", "12:00")],
        };
        let rows = [
            ("2026-11-20T11:59:59.999Z", false),
            ("2026-11-20T12:00:00Z", true),
            ("2026-11-21T11:59:59.999Z", true),
            ("2026-11-21T12:00:00Z", false),
        ];
        for (now, inside) in rows {
            assert_eq!(day.contains(at(now)), inside, "{now}");
        }
    }

    #[test]
    fn a_window_in_an_hour_that_is_left_out_does_not_begin() {
        // On 2026-03-29 the clocks of Berlin go from 02:00 to 03:00.
        let hours = TimeWindows {
            zone: Zone::iana("Europe/Berlin").unwrap(),
            windows: vec![window(Days::new([6]), "02:15", "02:45")],
        };
        let now = at("2026-03-28T12:00:00Z");
        let begins =
            Timestamp(now.0 + u64::try_from(hours.wait(now).unwrap().as_millis()).unwrap());
        assert_eq!(begins, at("2026-04-05T00:15:00Z"));
    }

    #[test]
    fn there_are_seven_days() {
        assert_eq!(Days::new(0..7), Days::ALL);
        assert_eq!(Days::new([7, 8, 255]), Days::default());
        assert_eq!(Days::new(0..5), Days::WORKING);
        for (day, name) in (0..).zip(DAY_NAMES) {
            assert_eq!(Days::number(name), Some(day));
            assert_eq!(Days::new([day]).to_string(), name.to_ascii_lowercase());
        }
        assert_eq!(Days::new([0, 6]).to_string(), "mon,sun");
        assert_eq!(Days::default().to_string(), "");
    }

    #[test]
    fn the_first_and_the_last_minute_are_times() {
        for (hour, minute, text) in [(0, 0, "00:00"), (0, 59, "00:59"), (23, 59, "23:59")] {
            let time = TimeOfDay::new(hour, minute).unwrap();
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse(), Ok(time));
        }
        for (hour, minute) in [(24, 0), (0, 60), (24, 60)] {
            assert_eq!(TimeOfDay::new(hour, minute), Err(TimeOfDayError));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "24:00", "12:60", "12", "", ":", "-1:00", "+1:00", "1:000", "001:00",
        ] {
            assert_eq!(text.parse::<TimeOfDay>(), Err(TimeOfDayError), "{text}");
        }
        assert_eq!("9:05".parse::<TimeOfDay>().unwrap().to_string(), "09:05");
        assert_eq!(Days::number("so"), None);
        assert_eq!(Days::number("xyz"), None);
        assert!(Zone::iana("Asia/Nowhere").is_err());
        assert_eq!(
            Zone::iana("asia/shanghai").unwrap(),
            Zone::iana("Asia/Shanghai").unwrap()
        );
    }

    proptest! {
        /// Also where the clock is put forward or back: after the wait it is open, and it was
        /// never open before.
        #[test]
        fn the_wait_ends_where_a_window_begins(
            minutes in 0..800 * 24 * 60_u64,
            days in 0..128_u8,
            from in 0..1_440_u16,
            to in 0..1_440_u16,
        ) {
            let hours = TimeWindows {
                zone: Zone::iana("Europe/Berlin").unwrap(),
                windows: vec![TimeWindow {
                    days: Days(days),
                    from: TimeOfDay { minute: from },
                    to: TimeOfDay { minute: to },
                }],
            };
            let now = Timestamp(1_768_435_200_000 + minutes * 60_000);
            match hours.wait(now) {
                None => prop_assert_eq!(days, 0),
                Some(wait) => {
                    let then = Timestamp(now.0 + u64::try_from(wait.as_millis()).unwrap());
                    prop_assert!(hours.contains(then));
                }
            }
        }
    }
}
