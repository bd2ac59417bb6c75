//! What is kept of a node over time: a row for each cycle, and means of rows.
//!
//! Pure. lrsd makes rows and those of minutes; whoever shows a longer time makes means of these again, so
//! that both are made by one rule.

use crate::proto::{self, NodeFigures};

/// What a cycle measured. `before`: the totals when the one before was over; without them nothing is known to
/// have happened. `None`: nothing was measured yet.
pub fn of(status: &proto::Status, before: Option<&proto::Totals>) -> Option<NodeFigures> {
    let node = status.node.as_ref()?;
    let at = node.sampled_at?;
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    let cpu = node.cpu.unwrap_or_default();
    let others = cpu.effective.zip(cpu.tasks).map(|(all, tasks)| (all - tasks).max(0.0));
    let pressure = node.pressure.unwrap_or_default();
    let memory = node.memory.as_ref().and_then(|memory| memory.available_bytes);
    let (now, before) = (status.totals.unwrap_or_default(), before.copied());
    let before = before.unwrap_or(now);
    let happened =
        |now: u64, before: u64| u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
    Some(NodeFigures {
        at: Some(at),
        seconds: single(node.period_ms as f64 / 1e3),
        active_slots: single(active.capacity.into()),
        active_used: single(active.used.into()),
        passive_slots: single(passive.capacity.into()),
        passive_used: single(f64::from(passive.used) + f64::from(passive.overflow)),
        waiting: single(status.waiting.into()),
        guard_stage: status.guard.as_ref().map_or(0, |guard| guard.stage),
        cpu_tasks: cpu.tasks.map(single),
        cpu_others: others.map(single),
        cpu_iowait: cpu.iowait.map(single),
        cpu_idle: cpu.idle.map(single),
        cpu_pressure: pressure.cpu_some.map(single),
        memory_pressure: pressure.memory_some.map(single),
        io_pressure: pressure.io_some.map(single),
        memory_available_bytes: memory.map(|bytes| single(bytes as f64)),
        admitted: happened(now.admitted, before.admitted),
        completed: happened(now.completed, before.completed),
        promoted: happened(now.promoted, before.promoted),
        demoted: happened(now.demoted, before.demoted),
        refused: happened(now.refused, before.refused),
    })
}

/// Seven digits are enough for what is looked at.
#[allow(clippy::cast_possible_truncation)]
fn single(figure: f64) -> f32 {
    figure as f32
}

/// One row of several: means by how long each is, sums of what happened, the highest stage of the guard; it
/// ends when the last one does. `None` of none.
pub fn mean(rows: &[NodeFigures]) -> Option<NodeFigures> {
    let last = rows.last()?;
    let weight = |row: &NodeFigures| f64::from(row.seconds).max(f64::MIN_POSITIVE);
    // Of the rows in which it is known.
    let known = |figure: fn(&NodeFigures) -> Option<f32>| {
        let known = rows.iter().filter_map(|row| Some((f64::from(figure(row)?), weight(row))));
        let (sum, of) = known
            .fold((0.0, 0.0), |(sum, of), (figure, weight)| (sum + figure * weight, of + weight));
        (of > 0.0).then(|| single(sum / of))
    };
    let sum = |count: fn(&NodeFigures) -> u32| rows.iter().map(count).fold(0, u32::saturating_add);
    Some(NodeFigures {
        at: last.at,
        seconds: rows.iter().map(|row| row.seconds).sum(),
        active_slots: known(|row| Some(row.active_slots)).unwrap_or_default(),
        active_used: known(|row| Some(row.active_used)).unwrap_or_default(),
        passive_slots: known(|row| Some(row.passive_slots)).unwrap_or_default(),
        passive_used: known(|row| Some(row.passive_used)).unwrap_or_default(),
        waiting: known(|row| Some(row.waiting)).unwrap_or_default(),
        guard_stage: rows.iter().map(|row| row.guard_stage).max().unwrap_or(0),
        cpu_tasks: known(|row| row.cpu_tasks),
        cpu_others: known(|row| row.cpu_others),
        cpu_iowait: known(|row| row.cpu_iowait),
        cpu_idle: known(|row| row.cpu_idle),
        cpu_pressure: known(|row| row.cpu_pressure),
        memory_pressure: known(|row| row.memory_pressure),
        io_pressure: known(|row| row.io_pressure),
        memory_available_bytes: known(|row| row.memory_available_bytes),
        admitted: sum(|row| row.admitted),
        completed: sum(|row| row.completed),
        promoted: sum(|row| row.promoted),
        demoted: sum(|row| row.demoted),
        refused: sum(|row| row.refused),
    })
}

/// Which step of so many seconds a row belongs to: that in which it ends.
fn step(row: &NodeFigures, seconds: i64) -> i64 {
    row.at.map_or(0, |at| at.seconds.div_euclid(seconds.max(1)))
}

/// Rows in the order of their time, those that belong together as one: the shortest steps that are no more
/// than `most` (at least 1).
pub fn steps(mut rows: Vec<NodeFigures>, most: usize) -> Vec<NodeFigures> {
    const STEPS: [i64; 10] = [10, 30, 60, 300, 600, 1_800, 3_600, 3 * 3_600, 6 * 3_600, 86_400];
    rows.sort_by_key(|row| row.at.map(|at| (at.seconds, at.nanos)));
    let chunks = |seconds| rows.chunk_by(move |a, b| step(a, seconds) == step(b, seconds));
    if rows.len() <= most {
        return rows;
    }
    let fits = STEPS.into_iter().find(|seconds| chunks(*seconds).count() <= most);
    chunks(fits.unwrap_or(86_400)).filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Option<prost_types::Timestamp> {
        Some(prost_types::Timestamp { seconds, nanos: 0 })
    }

    fn row(seconds: i64, idle: Option<f32>) -> NodeFigures {
        NodeFigures {
            at: at(seconds),
            seconds: 3.0,
            cpu_idle: idle,
            completed: 1,
            ..Default::default()
        }
    }

    #[test]
    fn a_row_is_what_happened_since_the_one_before() {
        let cpu = proto::CpuUse { effective: Some(0.75), tasks: Some(0.5), ..Default::default() };
        let node = proto::Node {
            sampled_at: at(7),
            cpu: Some(cpu),
            period_ms: 3_000,
            ..Default::default()
        };
        let totals = proto::Totals { completed: 9, ..Default::default() };
        let mut status =
            proto::Status { node: Some(node), totals: Some(totals), ..Default::default() };
        let first = of(&status, None).unwrap();
        assert_eq!((first.completed, first.cpu_others, first.seconds), (0, Some(0.25), 3.0));
        assert_eq!((first.cpu_idle, first.memory_pressure), (None, None));
        let before = proto::Totals { completed: 4, promoted: 1, ..Default::default() };
        let next = of(&status, Some(&before)).unwrap();
        assert_eq!((next.completed, next.promoted), (5, 0));
        status.node.as_mut().unwrap().sampled_at = None;
        assert_eq!(of(&status, None), None);
    }

    #[test]
    fn a_mean_is_of_what_is_known_and_by_time() {
        let long = NodeFigures { seconds: 9.0, guard_stage: 2, ..row(20, Some(0.1)) };
        let mean = mean(&[row(8, Some(0.5)), row(11, None), long]).unwrap();
        assert!((mean.cpu_idle.unwrap() - 0.2).abs() < 1e-6, "{mean:?}");
        assert_eq!((mean.at, mean.seconds, mean.completed), (at(20), 15.0, 3));
        assert_eq!((mean.guard_stage, mean.cpu_tasks), (2, None));
        assert_eq!(super::mean(&[]), None);
    }

    #[test]
    fn steps_are_the_shortest_that_fit_and_in_order() {
        let rows: Vec<_> = (0..1_200).map(|nth| row(nth * 3, Some(1.0))).rev().collect();
        let shown = steps(rows.clone(), 60);
        assert_eq!(shown.len(), 60);
        assert_eq!((shown[0].at, shown[0].completed, shown[59].completed), (at(57), 20, 20));
        assert_eq!(steps(rows.clone(), 5_000).len(), 1_200);
        assert_eq!(steps(rows, 1).len(), 1);
    }
}
