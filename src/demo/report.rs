//! The settings side by side, and what they say: also when they speak against LRS.

use std::time::Duration;

use lrs_term::{Column, Columns, Failure, Output, wrap};

use super::stage::Outcome;

/// A setting and what it brought.
pub(super) struct Measured {
    /// Head of the column.
    pub(super) head: &'static str,
    pub(super) outcome: Outcome,
    /// Mean over the first task on each core: its time over its time alone.
    pub(super) slowdown: Option<f64>,
}

/// The mean of the times over those alone. Unknown if one of them is not known.
pub(super) fn slowdown(
    times: impl Iterator<Item = (Option<Duration>, Option<Duration>)>,
) -> Option<f64> {
    let ratio = |(time, alone): (Option<Duration>, Option<Duration>)| {
        let alone = alone?.as_secs_f64();
        (alone > 0.0).then_some(time?.as_secs_f64() / alone)
    };
    let ratios: Vec<f64> = times.map(ratio).collect::<Option<_>>()?;
    (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
}

/// The table and the sentences below it.
pub(super) fn report(
    statics: &[Measured; 2],
    shaped: &Measured,
    out: &mut Output,
) -> Result<(), Failure> {
    let columns = [&statics[0], &statics[1], shaped];
    let mut table = Columns::new(&[
        ("", Column::Text),
        (columns[0].head, Column::Figure),
        (columns[1].head, Column::Figure),
        (columns[2].head, Column::Figure),
    ]);
    let mut row = |name: &str, cell: &dyn Fn(&Measured) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(columns.map(cell));
        table.row(cells);
    };
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0))
    };
    row("makespan", &|one| makespan(&one.outcome));
    if columns.iter().any(|one| !one.outcome.complete()) {
        row("tasks finished", &|one| {
            format!("{} of {}", one.outcome.finished(), one.outcome.times.len())
        });
    }
    row("effective CPU", &|one| percent(one.outcome.node.effective));
    row("  of it not the tasks'", &|one| percent(one.outcome.node.others));
    row("iowait", &|one| percent(one.outcome.node.iowait));
    row("first task on each core, against alone", &|one| {
        one.slowdown.map_or_else(|| "-".to_owned(), |slowdown| format!("{slowdown:.2} x"))
    });
    out.table(&table)?;
    out.line("")?;
    for sentence in verdict(statics, shaped) {
        let width = out.width();
        out.line(wrap("", 0, &sentence, width))?;
    }
    Ok(())
}

/// `12.3 s`, or that the limit came first.
pub(super) fn makespan(outcome: &Outcome) -> String {
    let beyond = if outcome.complete() { "" } else { "over " };
    format!("{beyond}{:.1} s", outcome.lasted.as_secs_f64())
}

/// From which share of the CPU other work counts as a distortion.
const BUSY: f64 = 0.1;

fn verdict(statics: &[Measured; 2], shaped: &Measured) -> Vec<String> {
    let mut sentences = vec![if statics.iter().chain([shaped]).all(|one| one.outcome.complete()) {
        makespans(statics, shaped)
    } else {
        "Not every setting finished within its time, so compare the tasks finished; the whole \
         demo has to end in two minutes."
            .to_owned()
    }];
    if let (Some(ours), Some(one), Some(two)) =
        (shaped.slowdown, statics[0].slowdown, statics[1].slowdown)
    {
        sentences.push(format!(
            "The first task on each core took {ours:.2} x its time alone under LRS, {one:.2} x \
             with one slot per core and {two:.2} x with two.{}",
            if ours > two { " LRS lost here too: it was to be below the latter." } else { "" }
        ));
    }
    sentences.push(format!(
        "LRS promoted {} tasks and had up to {} passive slots open.",
        shaped.outcome.promoted, shaped.outcome.most_passive
    ));
    let others = statics.iter().chain([shaped]).filter_map(|one| one.outcome.node.others);
    let most = others.fold(0.0, f64::max);
    if most > BUSY {
        sentences.push(format!(
            "Other work took up to {:.0}% of this machine's CPU meanwhile: the figures are \
             distorted by it.",
            most * 100.0
        ));
    }
    sentences
}

fn makespans(statics: &[Measured; 2], shaped: &Measured) -> String {
    let best = if statics[1].outcome.lasted < statics[0].outcome.lasted {
        &statics[1]
    } else {
        &statics[0]
    };
    let ours = shaped.outcome.lasted.as_secs_f64();
    let theirs = best.outcome.lasted.as_secs_f64();
    let change = (ours / theirs.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
    match change {
        change if change <= -1.0 => format!(
            "Makespan: LRS needed {:.0}% less time than the better static setting ({}).",
            -change, best.head
        ),
        change if change < 1.0 => {
            format!("Makespan: LRS and the better static setting ({}) are level.", best.head)
        }
        change => format!(
            "Makespan: LRS lost; it needed {change:.0}% more time than the better static setting \
             ({}).",
            best.head
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lrs_testbed::node::Use;

    fn measured(head: &'static str, seconds: u64, slowdown: f64) -> Measured {
        let outcome = Outcome {
            lasted: Duration::from_secs(seconds),
            node: Use { effective: Some(0.5), others: Some(0.02), ..Use::default() },
            times: vec![Some(Duration::from_secs(1))],
            promoted: 3,
            most_passive: 4,
        };
        Measured { head, outcome, slowdown: Some(slowdown) }
    }

    #[test]
    fn a_loss_is_called_a_loss() {
        let statics = [measured("1 per core", 20, 1.0), measured("2 per core", 15, 1.8)];
        let win = verdict(&statics, &measured("LRS", 12, 1.05)).join("\n");
        assert!(win.contains("20% less time") && win.contains("2 per core"), "{win}");
        assert!(!win.contains("lost"), "{win}");
        let loss = verdict(&statics, &measured("LRS", 18, 1.9)).join("\n");
        assert!(loss.contains("LRS lost; it needed 20% more"), "{loss}");
        assert!(loss.contains("lost here too"), "{loss}");
    }
    #[test]
    fn a_setting_that_did_not_finish_is_not_compared_by_its_time() {
        let statics = [measured("1 per core", 20, 1.0), measured("2 per core", 15, 1.8)];
        let mut cut = measured("LRS", 12, 1.05);
        cut.outcome.times.push(None);
        cut.outcome.node.others = Some(0.4);
        assert_eq!(makespan(&cut.outcome), "over 12.0 s");
        let text = verdict(&statics, &cut).join("\n");
        assert!(!text.contains("less time") && text.contains("tasks finished"), "{text}");
        assert!(text.contains("up to 40%"), "{text}");
    }
}
