//! All loads under all schedulers together: what a number of containers costs that was chosen once
//! and for all, and what LRS costs in its place.

use std::fmt::Write as _;

use lrs_bench::stats::{LEAST_FOR_INTERVAL, Spread, geometric_mean, median_interval};

use crate::runs::{LoadRuns, settings};
use crate::settings::Setting;

/// A line for each setting; nothing where only one thing was measured.
pub fn table(text: &mut String, groups: &[LoadRuns<'_>]) -> std::fmt::Result {
    if groups.len() < 2 {
        return Ok(());
    }
    writeln!(
        text,
        "\n#### All of the above\n\n\
         | setting | over the best static setting of each, geometric mean | at worst \
         | LRS over it, of the same round |\n|---|---|---|---|"
    )?;
    for setting in settings() {
        let losses: Option<Vec<f64>> = groups.iter().map(|group| group.loss(setting)).collect();
        // Not all of it has run yet.
        let Some((mean, losses)) =
            losses.and_then(|l| Some((geometric_mean(&l)?, Spread::new(l)?)))
        else {
            continue;
        };
        let against = if setting == Setting::LRS { "-".to_owned() } else { ratio(groups, setting) };
        writeln!(text, "| {setting} | {mean:.3} | {:.3} | {against} |", losses.max())?;
    }
    Ok(())
}

/// LRS over a static setting, each pair of the same load, scheduler and round.
fn ratio(groups: &[LoadRuns<'_>], setting: &str) -> String {
    let pairs = groups.iter().flat_map(|group| group.pairs(|round| group.seconds(setting, round)));
    let Some(ratios) = Spread::new(pairs.collect()) else { return "-".to_owned() };
    let (median, count) = (ratios.median(), ratios.count());
    if count < LEAST_FOR_INTERVAL {
        return format!("{median:.3}, {count} pairs");
    }
    let interval = median_interval(&ratios);
    format!("{median:.3} ({:.3} to {:.3}), {count} pairs", interval.low, interval.high)
}
