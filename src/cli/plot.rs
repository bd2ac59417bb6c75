//! `lrsctl plot`: what the node did as a picture, drawn by what draws the pages of `lrsctl demo`.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use lrs_bench::{Figures, node_picture};

use super::args::PlotArgs;
use super::client::{Lrsd, ask};
use super::failure::{Failure, Purpose};
use super::output::{Output, printable, say};
use super::past;
use super::show::when::Times;
use super::window::Window;
use crate::units::WallTime;
use crate::{clock, proto, wire};

/// Rows that a picture shows one beside the other.
const ROWS: usize = 800;

/// `lrsctl plot`
pub(super) fn plot(
    lrsd: &Lrsd,
    args: &PlotArgs,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    let window = Window::of(Some(&args.since), args.until.as_ref(), times)?;
    let rows = lrs_api::figures::steps(past::node(lrsd, window)?, ROWS);
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return Err(Failure::failed("nothing is kept of the node for that time")
            .hint("`lrsctl config show` has history.directory; \"\" keeps nothing"));
    };
    let host = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        let status = lrsd.get_status(proto::GetStatusRequest {}).await?.into_inner();
        Ok(status.node.map(|node| node.hostname).unwrap_or_default())
    })?;
    // Before the history begins there is nothing to show.
    // `as` saturates
    let lasted = (f64::from(first.seconds) * 1e6) as i64;
    let kept = ended(first).unix_micros().saturating_sub(lasted);
    let begin = window.since.map_or(kept, |since| since.unix_micros().max(kept));
    let begin = WallTime::from_unix_micros(begin);
    let end = window.until.unwrap_or(clock::now().wall).max(begin);
    let axis = Axis::of(begin, end, times)?;
    let figures: Vec<Figures<'_>> = rows
        .iter()
        .map(|row| {
            let end = axis.at(ended(row));
            (end - f64::from(row.seconds) / axis.unit, end, row)
        })
        .collect();
    let title = format!("{host}, {} to {}", times.clock(begin), times.clock(ended(last)));
    let picture =
        node_picture(&figures, &(axis.at(begin)..axis.at(end)), &title, &|at| axis.label(at));
    if args.output.as_os_str() == "-" {
        return out.text(picture);
    }
    let file = args.output.display().to_string();
    std::fs::write(&args.output, picture)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", printable(&file))))?;
    say(format_args!("{}", printable(&file)));
    Ok(())
}

fn ended(row: &proto::NodeFigures) -> WallTime {
    row.at.as_ref().map(wire::wall_time).unwrap_or_default()
}

/// The axis of time: hours since the midnight before the beginning, days where it is long, so that round
/// numbers are times that people know. Limit: where a clock changes in between, what follows is off by that.
struct Axis {
    midnight: jiff::Zoned,
    /// In seconds.
    unit: f64,
    /// How a time is written.
    form: &'static str,
}

impl Axis {
    fn of(begin: WallTime, end: WallTime, times: &Times) -> Result<Axis, Failure> {
        let zone = match times {
            Times::Local(zone) => zone.clone(),
            Times::Utc => TimeZone::UTC,
        };
        let beyond = |error| Failure::usage(format!("--since is no time: {error}"));
        let begin_at = Timestamp::from_microsecond(begin.unix_micros()).map_err(beyond)?;
        let midnight = begin_at.to_zoned(zone).start_of_day().map_err(beyond)?;
        let (unit, form) = match end.unix_micros().saturating_sub(begin.unix_micros()) / 1_000_000 {
            ..600 => (3_600.0, "%H:%M:%S"),
            600..172_800 => (3_600.0, "%H:%M"),
            _ => (86_400.0, "%m-%d %H:%M"),
        };
        Ok(Axis { midnight, unit, form })
    }

    fn at(&self, time: WallTime) -> f64 {
        let micros = time.unix_micros().saturating_sub(self.midnight.timestamp().as_microsecond());
        micros as f64 / 1e6 / self.unit
    }

    fn label(&self, at: f64) -> String {
        let seconds = (at * self.unit).round() as i64;
        let time = self.midnight.checked_add(jiff::SignedDuration::from_secs(seconds));
        time.map_or_else(|_| String::new(), |time| time.strftime(self.form).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers_of_the_axis_are_times_of_day() {
        let at = |seconds: i64| WallTime::from_unix_micros(seconds * 1_000_000);
        let east = Times::Local(TimeZone::fixed(jiff::tz::offset(2)));
        // 2026-01-02 05:04:05 in that zone.
        let begin = 1_767_323_045;
        let axis = Axis::of(at(begin), at(begin + 3_600), &east).unwrap();
        assert_eq!((axis.label(5.0), axis.label(25.5)), ("05:00".into(), "01:30".into()));
        assert!((axis.at(at(begin)) - 5.068_055).abs() < 1e-3);
        let axis = Axis::of(at(begin), at(begin + 7 * 86_400), &east).unwrap();
        assert_eq!(axis.label(3.0), "01-05 00:00");
    }
}
