//! What top has seen: the node for an hour, tasks and queue as far as there is room.
//!
//! A moment has a number that stays, so that whoever looks at one goes on doing so while later ones come and
//! the oldest go. Limit: [`MOST_ROWS`] rows, some 35 MB, which is an hour of 160 tasks every two seconds and five
//! minutes of 2,000; of what is older the figures of the node are left.

use std::collections::VecDeque;

use crate::figures::{Node, Row, Waiting};

/// How far back the node is kept.
const KEPT_MICROS: i64 = 3_600_000_000;

/// Tasks and requests kept, of all moments together.
const MOST_ROWS: usize = 300_000;

/// All that was seen at once.
#[derive(Debug)]
pub struct Moment {
    /// The node.
    pub node: Node,
    /// Tasks by serial, and the queue; `None`: not kept any more.
    pub rows: Option<(Vec<Row>, Vec<Waiting>)>,
}

impl Moment {
    fn count(&self) -> usize {
        self.rows.as_ref().map_or(0, |(tasks, queue)| tasks.len() + queue.len())
    }

    /// The tasks that are kept.
    pub fn tasks(&self) -> &[Row] {
        self.rows.as_ref().map_or(&[], |(tasks, _)| tasks)
    }

    /// What waits, as far as it is kept.
    pub fn queue(&self) -> &[Waiting] {
        self.rows.as_ref().map_or(&[], |(_, queue)| queue)
    }

    fn cpu_of(&self, serial: u64) -> Option<f32> {
        let index = self.tasks().binary_search_by_key(&serial, |row| row.who.serial).ok()?;
        self.tasks().get(index)?.cpu
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct History {
    moments: VecDeque<Moment>,
    /// The number of the first that is kept.
    first: usize,
    rows: usize,
    /// Where the rows begin that are kept.
    with_rows: usize,
}

impl History {
    /// Adds what was seen last.
    pub fn push(&mut self, moment: Moment) {
        self.push_bounded(moment, MOST_ROWS);
    }

    fn push_bounded(&mut self, moment: Moment, most_rows: usize) {
        let until = moment.node.at.unix_micros().saturating_sub(KEPT_MICROS);
        self.rows += moment.count();
        self.moments.push_back(moment);
        while self.rows > most_rows && self.with_rows < self.last() {
            let index = self.with_rows.saturating_sub(self.first);
            if let Some(moment) = self.moments.get_mut(index) {
                self.rows = self.rows.saturating_sub(moment.count());
                moment.rows = None;
            }
            self.with_rows += 1;
        }
        while self.moments.len() > 1
            && self.moments.front().is_some_and(|first| first.node.at.unix_micros() < until)
        {
            let gone = self.moments.pop_front();
            self.rows = self.rows.saturating_sub(gone.map_or(0, |gone| gone.count()));
            self.first += 1;
            self.with_rows = self.with_rows.max(self.first);
        }
    }

    /// The number of the last moment.
    pub fn last(&self) -> usize {
        (self.first + self.moments.len()).saturating_sub(1)
    }

    /// The moment of a number; of one that is not kept any more the first that is.
    pub fn at(&self, number: usize) -> Option<&Moment> {
        self.moments.get(number.saturating_sub(self.first))
    }

    /// The number of the moment that was there `seconds` before `number`, or of the first; negative: after.
    pub fn before(&self, number: usize, seconds: i64) -> usize {
        let Some(now) = self.at(number) else { return number };
        let at = |moment: &Moment| moment.node.at.unix_micros();
        let wanted = at(now).saturating_sub(seconds.saturating_mul(1_000_000));
        let index = self.moments.partition_point(|moment| at(moment) < wanted);
        (self.first + index).min(self.last())
    }

    /// The last `count` moments up to `number`, the oldest first.
    pub fn nodes(&self, number: usize, count: usize) -> impl Iterator<Item = &Node> {
        let end = (number + 1).saturating_sub(self.first).min(self.moments.len());
        self.moments.range(end.saturating_sub(count)..end).map(|moment| &moment.node)
    }

    /// What a task used of the CPUs in these.
    pub fn cpu_of(&self, serial: u64, number: usize, count: usize) -> Vec<Option<f64>> {
        let end = (number + 1).saturating_sub(self.first).min(self.moments.len());
        let moments = self.moments.range(end.saturating_sub(count)..end);
        moments.map(|moment| moment.cpu_of(serial).map(f64::from)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lrs_core::units::WallTime;

    use super::*;
    use crate::figures::Who;

    fn moment(second: i64, tasks: u64) -> Moment {
        let row = |serial| Row {
            who: Arc::new(Who { serial, ..Who::default() }),
            flags: "".into(),
            active: None,
            priority: None,
            class: 0,
            hinted: false,
            rate: None,
            cpu: Some(second as f32),
            write: None,
            read: None,
            resident: None,
            elapsed: None,
        };
        let at = WallTime::from_unix_micros(second * 1_000_000);
        let rows = Some(((0..tasks).map(row).collect(), Vec::new()));
        Moment { node: Node { at, ..Node::default() }, rows }
    }

    #[test]
    fn an_hour_of_the_node_is_kept_and_as_many_rows_as_fit() {
        let mut history = History::default();
        for second in 0..4_000 {
            history.push_bounded(moment(second, 3), 30);
        }
        assert_eq!(history.last(), 3_999);
        assert_eq!(history.moments.len(), 3_601, "an hour");
        assert_eq!((history.rows, history.at(3_990).map(|m| m.tasks().len())), (30, Some(3)));
        assert!(history.at(3_989).is_some_and(|moment| moment.rows.is_none()));
        assert_eq!(history.at(0).map(|moment| moment.node.at), history.at(399).map(|m| m.node.at));
        assert_eq!(history.cpu_of(1, 3_991, 4), [None, None, Some(3_990.0), Some(3_991.0)]);
        assert_eq!(history.cpu_of(7, 3_991, 1), [None]);
        assert_eq!(history.before(3_999, 60), 3_939);
        assert_eq!(history.before(3_939, -60), 3_999);
        assert_eq!(history.before(3_999, 1 << 40), 399);
        assert_eq!(history.nodes(3_999, 10_000).count(), 3_601);
    }

    #[test]
    fn one_moment_with_more_than_fits_and_a_clock_set_back_are_kept() {
        let mut history = History::default();
        history.push_bounded(moment(9_000, 50), 30);
        assert_eq!(history.at(0).map(|moment| moment.tasks().len()), Some(50));
        history.push_bounded(moment(10, 50), 30);
        assert_eq!(history.at(1).map(|moment| moment.tasks().len()), Some(50));
        assert_eq!(history.rows, 50);
        history.push_bounded(moment(20, 0), 30);
        assert_eq!((history.last(), history.rows), (2, 0));
    }
}
