//! How much one task does on this machine: fitted once, before anything is compared, so that
//! the demo takes about as long on a laptop as on a server and on a disk as on flash.

use std::path::Path;
use std::time::Duration;

use super::data::Data;
use super::load::{Kind, Work};
use super::stage::{Setting, run};
use crate::cli::{Failure, Output, say};

/// What one task is to take alone.
pub(super) const TASK: Duration = Duration::from_millis(1_500);

/// How long a trial may take; a kind that needs longer for it is left out.
const TRIAL: Duration = Duration::from_secs(6);

/// The round with its amounts; kinds too slow here are left out, and said.
pub(super) async fn fit(
    round: &[Kind],
    data: &Data,
    workdir: &Path,
    out: &mut Output,
) -> Result<Vec<Work>, Failure> {
    let mut fitted: Vec<(Kind, Option<u32>)> = Vec::new();
    for &kind in round {
        if fitted.iter().any(|(known, _)| *known == kind) {
            continue;
        }
        let units = kind.trial();
        let trial = [Work { kind, units }.task(format!("{}-trial", kind.word()), data)];
        let outcome = run("sizing", &trial, Setting::Static(1), workdir, TRIAL, out).await?;
        let taken = outcome.complete().then_some(outcome.lasted);
        if taken.is_none() {
            say(format_args!(
                "left out: {} takes more than {} s for a first trial here",
                kind.word(),
                TRIAL.as_secs()
            ));
        }
        fitted.push((kind, taken.map(|taken| units_for(TASK, units, taken, kind.most()))));
    }
    let units =
        |kind| fitted.iter().find(|(known, _)| *known == kind).and_then(|(_, units)| *units);
    Ok(round.iter().filter_map(|&kind| units(kind).map(|units| Work { kind, units })).collect())
}

/// Units that take `wanted`, when `units` took `taken`.
fn units_for(wanted: Duration, units: u32, taken: Duration, most: u32) -> u32 {
    let each = taken.as_secs_f64() / f64::from(units);
    // `as` saturates
    ((wanted.as_secs_f64() / each.max(1e-9)).round() as u32).clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_follows_the_speed_of_the_machine() {
        let ms = Duration::from_millis;
        assert_eq!(units_for(ms(1_500), 10, ms(300), 1_000), 50);
        assert_eq!(units_for(ms(1_500), 10, ms(0), 1_000), 1_000);
        assert_eq!(units_for(ms(1_500), 1, ms(6_000), 1_000), 1);
    }
}
