//! The contract's messages as text for people: what an operator asks first comes first, and
//! what is unknown is a dash, never a zero.

pub(super) mod events;
pub(crate) mod history;
pub(super) mod status;
pub(crate) mod table;
pub(super) mod tasks;
pub(super) mod when;
pub(super) mod yarn;

use std::time::Duration;

use crate::proto;
use crate::units::Bytes;

/// Unknown.
const DASH: &str = "-";

/// `active`, `passive` or a dash.
pub(crate) fn tier_word(tier: i32) -> &'static str {
    match proto::Tier::try_from(tier) {
        Ok(proto::Tier::Active) => "active",
        Ok(proto::Tier::Passive) => "passive",
        Ok(proto::Tier::Unspecified) | Err(_) => DASH,
    }
}

fn known<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| DASH.to_owned(), show)
}

/// A share as a percentage.
pub(crate) fn percent(share: Option<f64>) -> String {
    // The sum of no shares is -0.0.
    known(share, |share| format!("{:.0}%", share * 100.0 + 0.0))
}

fn rate(rate: Option<f64>) -> String {
    known(rate, |rate| format!("{rate:.2}"))
}

fn bytes(count: u64) -> String {
    Bytes(count).to_string()
}

fn bytes_per_sec(rate: Option<f64>) -> String {
    // a rate beyond u64 saturates, a negative or NaN one is 0: `as` does both
    known(rate, |rate| format!("{}/s", Bytes(rate as u64)))
}

/// A rate in at most five columns, for tables: `512`, `1.5M`, `1023K` bytes a second.
fn brief_rate(rate: Option<f64>) -> String {
    known(rate, |rate| {
        let mut value = rate.max(0.0);
        let mut units = ["", "K", "M", "G", "T", "P"].into_iter();
        let mut unit = units.next().unwrap_or_default();
        while value >= 1023.5 {
            let Some(next) = units.next() else { break };
            (value, unit) = (value / 1024.0, next);
        }
        if value < 9.95 && !unit.is_empty() {
            format!("{value:.1}{unit}")
        } else {
            format!("{value:.0}{unit}")
        }
    })
}

/// Two units at most: `45s`, `3m12s`, `5h04m`, `12d07h`.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

pub(super) fn seconds_age(seconds: Option<f64>) -> String {
    known(seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()), age)
}

/// How long something took: `0.25s`, and from a second on as an age.
pub(super) fn duration(seconds: Option<f64>) -> String {
    match seconds {
        Some(short) if short > 0.0 && short < 1.0 => format!("{short:.2}s"),
        _ => seconds_age(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_well() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (192, "3m12s"), (18_240, "5h04m"), (1_062_000, "12d07h")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn table_rates_stay_short() {
        for (rate, text) in
            [(0.0, "0"), (1023.0, "1023"), (1024.0, "1.0K"), (1.5e6, "1.4M"), (1e9, "954M")]
        {
            assert_eq!(brief_rate(Some(rate)), text);
        }
        assert_eq!(brief_rate(None), "-");
    }

    #[test]
    fn unknown_is_a_dash() {
        assert_eq!(percent(None), "-");
        assert_eq!(percent(Some(0.0)), "0%");
        assert_eq!(bytes_per_sec(Some(f64::NAN)), "0 B/s");
        assert_eq!(seconds_age(Some(-1.0)), "-");
        let durations = [Some(0.254), Some(0.0), Some(1.9), Some(192.0), None].map(duration);
        assert_eq!(durations, ["0.25s", "0s", "1s", "3m12s", "-"]);
        assert_eq!(tier_word(99), "-");
    }
}
