//! Argument values: durations, labels.

use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;

use crate::core::event::EventKind;
use crate::core::model::Label;

/// `--wait[=DUR]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// At most this long.
    For(Duration),
    /// Until a slot is free.
    Forever,
}

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Patience, String> {
        if text == "forever" {
            return Ok(Patience::Forever);
        }
        duration(text).map(Patience::For)
    }
}

/// Where `events --since` begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// With this number.
    Seq(u64),
    /// This long ago.
    Ago(Duration),
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Since, String> {
        text.parse().map(Since::Seq).or_else(|_| duration(text).map(Since::Ago)).map_err(|_| {
            "expected the number of an event, or how long ago: 500ms, 10s, 5m, 2h, 1d".to_owned()
        })
    }
}

/// The rate that a class is expected to have: the middle of its range with the settings as they are shipped.
pub(crate) fn class_rate() -> impl TypedValueParser<Value = f64> {
    PossibleValuesParser::new(["io", "moderate", "cpu"]).map(|class| match &*class {
        "io" => 0.1,
        "moderate" => 0.5,
        _ => 0.9,
    })
}

/// A computing rate.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
    rate.ok_or_else(|| "expected a computing rate, 0 to 1".to_owned())
}

/// A duration as people write it: `500ms`, `10s`, `1.5m`, `2h`, `1d`. Only 0 may go without
/// a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wanted = "expected a number and a unit: 500ms, 10s, 5m, 2h, 1d";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unit_at =
        text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(|| wanted.to_owned())?;
    let (number, unit) = text.split_at(unit_at);
    let seconds_per_unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(wanted.to_owned()),
    };
    if !number.starts_with(|c: char| c.is_ascii_digit()) || number.ends_with('.') {
        return Err(wanted.to_owned());
    }
    let number: f64 = number.parse().map_err(|_| wanted.to_owned())?;
    let duration = Duration::try_from_secs_f64(number * seconds_per_unit)
        .map_err(|_| "the duration is too long".to_owned())?;
    // milliseconds are what the wire carries
    Ok(Duration::from_millis(millis(duration)))
}

/// A [`duration`] in which something can happen.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|duration| match duration {
        Duration::ZERO => Err("nothing is answered in no time; give at least 1ms".to_owned()),
        duration => Ok(duration),
    })
}

/// A [`duration`] between two readings that a node does not notice.
pub(crate) fn delay(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(500);
    duration(text).and_then(|duration| match duration >= least {
        true => Ok(duration),
        false => Err("lrsd is not asked more often than that; give 500ms or more".to_owned()),
    })
}

/// A [`duration`] that a recording may last.
pub(crate) fn recorded(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(24 * 3600);
    some_time(text).and_then(|duration| match duration <= most {
        true => Ok(duration),
        false => Err("a recording lasts 24h at most".to_owned()),
    })
}

/// A key that decides, and a value of it.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("give KEY=VALUE, as slots.passive_max=4")?;
    let (key, value) = (key.trim(), value.trim());
    match lrs_config::keys::key(key).filter(|key| DECIDING.contains(&key.section())) {
        Some(_) => Ok((key.to_owned(), value.to_owned())),
        None => {
            Err(format!("{key:?} is no key of [slots], [tiers] or [guard]; lrs.toml(5) has them"))
        }
    }
}

/// Sections of the settings that decide, of [`crate::executor::settings::policy`].
pub(crate) const DECIDING: [&str; 3] = ["slots", "tiers", "guard"];

/// Milliseconds of the wire, rounded to the nearest.
pub(crate) fn millis(duration: Duration) -> u64 {
    let rounded = duration.as_nanos().saturating_add(500_000) / 1_000_000;
    u64::try_from(rounded).unwrap_or(u64::MAX)
}

/// The type of an event; the error names all.
pub(crate) fn event_type(text: &str) -> Result<String, String> {
    EventKind::deserialize(text.into_deserializer())
        .map(|kind| kind.as_str().to_owned())
        .map_err(|error: serde::de::value::Error| error.to_string())
}

/// A user, by name or number.
pub(crate) fn user(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err("no such user; give a name or a uid".to_owned()),
        Err(error) => Err(format!("the users cannot be looked up: {error}; give the uid")),
    }
}

/// Name, job or kind.
pub(crate) fn label(text: &str) -> Result<String, String> {
    Label::new(text).map(|label| label.as_str().to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_stay_exact() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1.5s", 1_500),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0", 0),
            ("0s", 0),
            ("0.1s", 100),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1e3s", "1.s", ".5s", "10 s", "1.2.3s", "5y", "nans"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
        assert!(duration(&format!("{}d", "9".repeat(40))).is_err());
    }

    #[test]
    fn types_of_events_are_those_there_are() {
        assert_eq!(event_type("offer_failed"), Ok("offer_failed".to_owned()));
        assert!(event_type("promotd").unwrap_err().contains("`promoted`"));
        assert!(delay("499ms").is_err() && delay("500ms").is_ok());
        assert!(some_time("0").is_err() && some_time("1ms").is_ok());
    }

    #[test]
    fn patience_is_a_duration_or_endless() {
        assert_eq!("forever".parse(), Ok(Patience::Forever));
        assert_eq!("2s".parse(), Ok(Patience::For(Duration::from_secs(2))));
        assert!("".parse::<Patience>().is_err());
    }
}
