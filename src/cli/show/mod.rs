//! The contract's messages as text for people: what an operator asks first comes first, and
//! what is unknown is a dash, never a zero.

pub(super) mod events;
pub(crate) mod history;
pub(super) mod node;
pub(super) mod status;
pub(crate) mod table;
pub(super) mod tasks;
pub(super) mod when;
pub(super) mod yarn;

use lrs_term::figures::{DASH, brief_rate, known};
pub(crate) use lrs_term::figures::{age, percent, seconds_age};

use crate::proto;
use crate::units::Bytes;

/// `active`, `passive` or a dash.
pub(crate) fn tier_word(tier: i32) -> &'static str {
    match proto::Tier::try_from(tier) {
        Ok(proto::Tier::Active) => "active",
        Ok(proto::Tier::Passive) => "passive",
        Ok(proto::Tier::Unspecified) | Err(_) => DASH,
    }
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
    fn unknown_is_a_dash() {
        assert_eq!(bytes_per_sec(Some(f64::NAN)), "0 B/s");
        let durations = [Some(0.254), Some(0.0), Some(1.9), Some(192.0), None].map(duration);
        assert_eq!(durations, ["0.25s", "0s", "1s", "3m12s", "-"]);
        assert_eq!(tier_word(99), "-");
    }
}
