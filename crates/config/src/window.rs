//! Hours in which something may be done.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use governance::Zone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MINUTES_OF_A_DAY: u16 = 24 * 60;
/// Where nothing else is said.
const DEFAULT_ZONE: &str = "UTC";

/// `[days] HH:MM-HH:MM [zone]`: the hours of some days of the week, in a time zone.
///
/// Without days, every day; without a zone, UTC. What ends before it begins ends on the next day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Monday first.
    pub days: [bool; 7],
    /// Minutes from midnight, below 1,440.
    pub from: u16,
    /// Minutes from midnight, at most 1,440; what is said is not in the window any more.
    pub to: u16,
    /// The name of a time zone, `Asia/Shanghai`.
    pub zone: String,
}

/// Why a text is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// It begins when it ends.
    #[error("the hours are empty: for a whole day write 00:00-24:00")]
    Empty,
}

impl FromStr for Window {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Self, ParseWindowError> {
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let begins_with_digit = |part: &&str| part.starts_with(|c: char| c.is_ascii_digit());
        let (days, hours, zone) = match parts.as_slice() {
            [hours] if begins_with_digit(hours) => (None, hours, DEFAULT_ZONE),
            [hours, zone] if begins_with_digit(hours) => (None, hours, *zone),
            [days, hours] if begins_with_digit(hours) => (Some(*days), hours, DEFAULT_ZONE),
            [days, hours, zone] if begins_with_digit(hours) => (Some(*days), hours, *zone),
            _ => return Err(ParseWindowError::Form),
        };
        let (from, to) = hours.split_once('-').ok_or(ParseWindowError::Form)?;
        let (from, to) = (time(from)?, time(to)?);
        if from == to || from == MINUTES_OF_A_DAY {
            return Err(ParseWindowError::Empty);
        }
        if Zone::iana(zone).is_err() {
            return Err(ParseWindowError::Zone(zone.to_owned()));
        }
        Ok(Self {
            days: days.map_or(Ok([true; 7]), days_of)?,
            from,
            to,
            zone: zone.to_owned(),
        })
    }
}

fn days_of(text: &str) -> Result<[bool; 7], ParseWindowError> {
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        // `Sat-Mon` goes over the end of the week.
        loop {
            days[at] = true;
            if at == last {
                break;
            }
            at = (at + 1) % DAYS.len();
        }
    }
    Ok(days)
}

fn day(text: &str) -> Result<usize, ParseWindowError> {
    DAYS.iter()
        .position(|day| day.eq_ignore_ascii_case(text))
        .ok_or_else(|| ParseWindowError::Day(text.to_owned()))
}

fn time(text: &str) -> Result<u16, ParseWindowError> {
    let minutes = || {
        let (hours, minutes) = text.split_once(':')?;
        let is_digits = |part: &str, most: usize| {
            (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_digits(hours, 2) || minutes.len() != 2 || !is_digits(minutes, 2) {
            return None;
        }
        let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
        let total = hours * 60 + minutes;
        (minutes < 60 && total <= MINUTES_OF_A_DAY).then_some(total)
    };
    minutes().ok_or_else(|| ParseWindowError::Time(text.to_owned()))
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != [true; 7] {
            f.write_str(&shown_days(&self.days))?;
            f.write_str(" ")?;
        }
        let time = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        write!(f, "{}-{} {}", time(self.from), time(self.to), self.zone)
    }
}

/// Runs of three days and more as `Mon-Fri`, others one by one.
fn shown_days(days: &[bool; 7]) -> String {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < days.len() {
        let length = days[at..].iter().take_while(|is_in| **is_in).count();
        match length {
            0 => at += 1,
            1 | 2 => parts.extend(DAYS[at..at + length].iter().map(|day| (*day).to_owned())),
            _ => parts.push(format!("{}-{}", DAYS[at], DAYS[at + length - 1])),
        }
        at += length;
    }
    parts.join(",")
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Window {
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
            let window: Window = text.parse().unwrap();
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
            ("10:60-11:00", ParseWindowError::Time("10:60".into())),
            (
                "10:00-11:00 Mars/Base",
                ParseWindowError::Zone("Mars/Base".into()),
            ),
            ("10:00-10:00", ParseWindowError::Empty),
            ("24:00-10:00", ParseWindowError::Empty),
        ];
        for (text, why) in rows {
            assert_eq!(text.parse::<Window>(), Err(why), "{text}");
        }
    }
}
