//! `lrsctl history --node`: a line a cycle, minute or longer.

use super::when::Times;
use super::{DASH, known, percent};
use crate::cli::failure::Failure;
use crate::cli::output::{Column, Columns, Output, say};
use crate::proto::NodeFigures;

/// Lines that fit on a screen, or nearly.
const LINES: usize = 60;

/// A column: the head, from which width on it is shown, its text.
struct Field(&'static str, usize, fn(&NodeFigures) -> String);

const FIELDS: &[Field] = &[
    Field("ACTIVE", 0, |row| of(row.active_used, row.active_slots)),
    Field("PASSIVE", 0, |row| of(row.passive_used, row.passive_slots)),
    Field("QUEUE", 60, |row| count(row.waiting)),
    Field("TASKS", 0, |row| share(row.cpu_tasks)),
    Field("OTHERS", 0, |row| share(row.cpu_others)),
    Field("IOWAIT", 80, |row| share(row.cpu_iowait)),
    Field("IDLE", 0, |row| share(row.cpu_idle)),
    Field("CPU-STALL", 100, |row| share(row.cpu_pressure)),
    Field("MEM-STALL", 100, |row| share(row.memory_pressure)),
    Field("IO-STALL", 100, |row| share(row.io_pressure)),
    Field("GUARD", 60, |row| match row.guard_stage {
        0 => DASH.to_owned(),
        stage => stage.to_string(),
    }),
    Field("BEGAN", 80, |row| row.admitted.to_string()),
    Field("ENDED", 60, |row| row.completed.to_string()),
    Field("PROMOTED", 120, |row| row.promoted.to_string()),
    Field("REFUSED", 120, |row| row.refused.to_string()),
];

/// The table; of many rows means.
pub(crate) fn table(
    rows: Vec<NodeFigures>,
    no_header: bool,
    times: &Times,
    out: &mut Output,
) -> Result<(), Failure> {
    if rows.is_empty() {
        say(format_args!(
            "nothing is kept of the node for that time, or at all (history.directory in lrsctl config show)"
        ));
        return Ok(());
    }
    let fields: Vec<&Field> = FIELDS.iter().filter(|field| out.width() >= field.1).collect();
    let heads = fields.iter().map(|field| (field.0, Column::Figure));
    let heads: Vec<_> = std::iter::once(("UNTIL", Column::Text)).chain(heads).collect();
    let mut table = Columns::new(&heads);
    for row in lrs_api::figures::steps(rows, LINES) {
        let at = known(row.at.as_ref(), |at| times.clock(crate::wire::wall_time(at)));
        table.row(std::iter::once(at).chain(fields.iter().map(|field| field.2(&row))).collect());
    }
    out.table(&if no_header { table.without_heads() } else { table })
}

fn share(share: Option<f32>) -> String {
    percent(share.map(f64::from))
}

/// A mean count: whole numbers without a point.
fn count(count: f32) -> String {
    if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.1}") }
}

fn of(used: f32, slots: f32) -> String {
    format!("{}/{}", count(used), count(slots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_a_digit_and_whole_numbers_none() {
        assert_eq!((of(2.0, 4.0), of(1.25, 2.0)), ("2/4".into(), "1.2/2".into()));
        assert_eq!((share(Some(0.5)), share(None)), ("50%".into(), "-".into()));
    }
}
