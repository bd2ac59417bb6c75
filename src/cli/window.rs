//! `--since` and `--until`: how long ago, a time of day, a day, or a date with a time.
//!
//! A time of day is the last one there was; as an end the first after the beginning, so that
//! `--since 23:00 --until 02:00` is one night. Times are those of the zone in which times are shown.

use std::str::FromStr;
use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan as _, Zoned};

use super::failure::Failure;
use super::show::when::Times;
use super::values::duration;
use crate::clock;
use crate::units::WallTime;

/// A time as people write it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum When {
    /// This long ago.
    Ago(Duration),
    /// This time of a day.
    Clock(Time),
    /// The beginning of the day so many days ago.
    Day(i64),
    /// In the zone of the caller.
    Local(DateTime),
    /// With its own offset.
    Exact(Timestamp),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<When, String> {
        let day = match text {
            "today" => Some(0),
            "yesterday" => Some(1),
            _ => None,
        };
        let local =
            || text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from));
        day.map(When::Day)
            .or_else(|| duration(text).ok().map(When::Ago))
            .or_else(|| text.parse().ok().map(When::Exact))
            .or_else(|| local().ok().map(When::Local))
            .or_else(|| text.contains(':').then(|| text.parse().ok().map(When::Clock))?)
            .ok_or_else(|| {
                "expected how long ago (10m, 2h, 3d), a time (02:00), a day (yesterday, 2026-01-31) or \
                 both (2026-01-31T02:00)"
                    .to_owned()
            })
    }
}

/// From when to when something is asked for; `None`: not bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The beginning, included.
    pub(crate) since: Option<WallTime>,
    /// The end, not included.
    pub(crate) until: Option<WallTime>,
}

impl Window {
    /// By what was written, now and in the zone of `times`.
    pub(crate) fn of(
        since: Option<&When>,
        until: Option<&When>,
        times: &Times,
    ) -> Result<Window, Failure> {
        let zone = match times {
            Times::Local(zone) => zone.clone(),
            Times::Utc => TimeZone::UTC,
        };
        let now = Timestamp::from_microsecond(clock::now().wall.unix_micros()).map_err(beyond)?;
        Window::at(since, until, &now.to_zoned(zone))
    }

    fn at(since: Option<&When>, until: Option<&When>, now: &Zoned) -> Result<Window, Failure> {
        let since = since.map(|when| when.on(now, None)).transpose().map_err(beyond)?;
        let until = until.map(|when| when.on(now, since.as_ref())).transpose().map_err(beyond)?;
        if since.as_ref().zip(until.as_ref()).is_some_and(|(since, until)| until <= since) {
            return Err(Failure::usage("--until is not after --since"));
        }
        let wall = |at: Zoned| WallTime::from_unix_micros(at.timestamp().as_microsecond());
        Ok(Window { since: since.map(wall), until: until.map(wall) })
    }
}

fn beyond(error: jiff::Error) -> Failure {
    Failure::usage(format!("--since or --until is no time: {error}"))
}

impl When {
    /// As seen at `now`; of a time of day the first after `after`, or the last one.
    fn on(&self, now: &Zoned, after: Option<&Zoned>) -> Result<Zoned, jiff::Error> {
        let zone = now.time_zone().clone();
        Ok(match self {
            When::Ago(ago) => now.checked_sub(Span::new().try_milliseconds(millis(*ago))?)?,
            When::Day(days) => now.start_of_day()?.checked_sub(Span::new().try_days(*days)?)?,
            When::Local(at) => at.to_zoned(zone)?,
            When::Exact(at) => at.to_zoned(zone),
            When::Clock(time) => {
                let today = after.unwrap_or(now).date();
                let at = today.to_datetime(*time).to_zoned(zone.clone())?;
                let other = match after {
                    Some(after) if at <= *after => today.checked_add(1.day())?,
                    None if at > *now => today.checked_sub(1.day())?,
                    _ => return Ok(at),
                };
                other.to_datetime(*time).to_zoned(zone)?
            }
        })
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-26 01:30 in a zone two hours east.
    fn window(since: &str, until: Option<&str>) -> Result<(String, Option<String>), Failure> {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let now: DateTime = "2026-11-26T01:30".parse().unwrap();
        let until: Option<When> = until.map(|until| until.parse().unwrap());
        let since: When = since.parse().unwrap();
        let window = Window::at(Some(&since), until.as_ref(), &now.to_zoned(zone).unwrap())?;
        Ok((window.since.unwrap().to_string(), window.until.map(|until| until.to_string())))
    }

    #[test]
    fn a_time_of_day_is_the_last_and_as_an_end_the_next() {
        for (since, until, from, to) in [
            ("01:00", "02:00", "2026-11-25T23:00", "2026-11-26T00:00"),
            ("02:00", "03:00", "2026-11-25T00:00", "2026-11-25T01:00"),
            ("23:00", "02:00", "2026-11-25T21:00", "2026-11-26T00:00"),
            ("yesterday", "today", "2026-11-24T22:00", "2026-11-25T22:00"),
            ("2026-11-20", "06:30", "2026-11-19T22:00", "2026-11-20T04:30"),
            ("2026-11-20T10:00", "2026-11-20T12:00Z", "2026-11-20T08:00", "2026-11-20T12:00"),
            ("2h", "30m", "2026-11-25T21:30", "2026-11-25T23:00"),
        ] {
            let (since, until) = window(since, Some(until)).unwrap();
            assert!(since.starts_with(from), "{since} is not {from}");
            assert!(until.as_ref().unwrap().starts_with(to), "{until:?} is not {to}");
        }
        assert!(window("today", Some("yesterday")).is_err());
        assert!(window("10m", Some("10m")).is_err());
        assert!(window("99999999d", None).is_err());
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "25:00", "tomorrow", "10", "2026-13-01", "-1h"] {
            assert!(text.parse::<When>().unwrap_err().contains("02:00"), "{text}");
        }
    }
}
