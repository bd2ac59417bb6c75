//! Times as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::known;
use crate::clock;
use crate::units::WallTime;
use crate::wire::wall_time;

/// How times are written.
#[derive(Clone, Debug)]
pub(crate) enum Times {
    /// `14:03:05.123` of today, `2026-01-02 14:03:05` of another day, in this zone.
    Local(TimeZone),
    /// `2026-01-02 03:04:05.000006Z`.
    Utc,
}

impl Times {
    /// Exact with `--utc`, else in the zone of this process (TZ, /etc/localtime).
    pub(crate) fn new(utc: bool) -> Times {
        if utc { Times::Utc } else { Times::Local(TimeZone::system()) }
    }

    /// Without fractions, for where it changes all the time.
    pub(crate) fn clock(&self, time: WallTime) -> String {
        let text = self.write(Some(&crate::wire::proto_time(time)));
        text.split('.').next().unwrap_or_default().to_owned()
    }

    /// A time of the contract's.
    pub(crate) fn write(&self, timestamp: Option<&prost_types::Timestamp>) -> String {
        known(timestamp, |timestamp| {
            let exact = wall_time(timestamp);
            let at = Timestamp::from_microsecond(exact.unix_micros());
            match (self, at) {
                (Times::Local(zone), Ok(at)) => {
                    let now = Timestamp::from_microsecond(clock::now().wall.unix_micros());
                    let at = at.to_zoned(zone.clone());
                    let today = now.is_ok_and(|now| now.to_zoned(zone.clone()).date() == at.date());
                    let form = if today { "%H:%M:%S%.3f" } else { "%Y-%m-%d %H:%M:%S" };
                    at.strftime(form).to_string()
                }
                _ => exact.to_string().replacen('T', " ", 1),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_local_and_short_or_exact() {
        let old = prost_types::Timestamp { seconds: 1_767_323_045, nanos: 6_000 };
        let east = TimeZone::fixed(jiff::tz::offset(9));
        assert_eq!(Times::Local(east.clone()).write(Some(&old)), "2026-01-02 12:04:05");
        assert_eq!(Times::Utc.write(Some(&old)), "2026-01-02 03:04:05.000006Z");
        let now = crate::wire::proto_time(clock::now().wall);
        assert_eq!(Times::Local(east).write(Some(&now)).len(), "12:04:05.123".len());
        assert_eq!(Times::Utc.write(None), "-");
    }
}
