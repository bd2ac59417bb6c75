//! Figures as people read them: short, and a dash for what is not known, never a zero.

use std::time::Duration;

/// Unknown.
pub const DASH: &str = "-";

/// `value` as `show` writes it, or [`DASH`].
pub fn known<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| DASH.to_owned(), show)
}

/// A share as a percentage.
pub fn percent(share: Option<f64>) -> String {
    // The sum of no shares is -0.0.
    known(share, |share| format!("{:.0}%", share * 100.0 + 0.0))
}

/// A rate in at most five columns, for tables: `512`, `1.5M`, `1023K` bytes, a second or not.
pub fn brief_rate(rate: Option<f64>) -> String {
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
pub fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The same of seconds.
pub fn seconds_age(seconds: Option<f64>) -> String {
    known(seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()), age)
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
        assert_eq!(seconds_age(Some(-1.0)), "-");
    }
}
