//! The linear sum assignment problem: which row gets which column, so that as many rows as possible get one
//! and the sum of the costs is least. A column has slots, each for one row.
//!
//! Solved by shortest augmenting paths (Jonker and Volgenant, Computing 38, 1987): the rows come one after
//! the other, and a row moves others on where that is the cheapest; prices of the columns keep what is left
//! of each cost above 0, so that each path is one search of Dijkstra's.
//!
//! Sparse: a row says what it costs on few columns of its own, and what on all columns of a *set*, such as
//! a rack (the equivalence classes of Firmament, Gog et al., OSDI'16). A set is kept in the order of
//! prices, so a search takes from it one column after the other, cheapest first, and ends at the first that
//! is free. What a row costs on a column of its own counts, be it more or less than in a set; it may be
//! forbidden there.
//!
//! Costs are whole numbers in here, parts of the dearest by a power of two: all sums are exact, so it ends,
//! and the result does not depend on the order of additions. What is lost is below 2^-76 of the dearest
//! cost for each row. One cost far beyond the others, of a dead link, would make that too much. But no best
//! assignment has a cost above the sum of any assignment that is known. So where it could be 1e-9 of the
//! sum, costs are cut off at twice the sum that came out, and solved again; where the steps are too few for
//! that, the first answer stays.
//!
//! A search counts its steps: each cost of a row and each column of a set that it looks at. When there have
//! been more than the caller allows it is given up, and each row that is left takes the cheapest column
//! that is free, and the answer has the sum below which no assignment of as many rows can be: the prices
//! are a dual solution at any time. Steps and not seconds, so that the same costs have the same answer.
//!
//! Where there are more rows than slots, those come first that cost least away from their own columns: few
//! of them are taken off again. Among equal rows an earlier one keeps its column, and among equal columns
//! the first is taken.
//!
//! Written here: of the crates, `mcmf` (LEMON in C++) is not kept since 2018, `rs-graph` is GPL,
//! `ac-library-rs` and `petgraph` have no sets and look at every edge for each path, and `pathfinding` and
//! `lapjv` are dense: the tests have `lapjv` to compare with.
//!
//! Limits. A search visits columns of equal price one by one, so where most rows want the same few of many
//! columns it is stopped. A row that is forbidden on a column of one of its sets, or costs more there, is
//! searched for by itself, so with many such rows it is stopped early.

mod search;

use std::ops::Range;

use search::Search;

/// Steps that are allowed unless the caller says otherwise: one to five seconds.
pub const MOST_STEPS: u64 = 100_000_000;

/// Steps for a place in a set, which takes that much longer.
const LOOK_UP: usize = 4;

/// The dearest cost is below two to this, as a whole number.
const BITS: i32 = 76;

/// Part of the sum that rounding may change.
const PRECISION: f64 = 1e-9;

/// A cost that is none: not finite, or below 0.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("cost {cost} in row {row}; a cost is a finite number from 0 on")]
pub struct CostFault {
    /// From 0.
    pub row: usize,
    /// As given.
    pub cost: f64,
}

/// Columns with their slots, sets of columns, and what each row costs there.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    slots: Vec<u32>,
    sets: Vec<Vec<u32>>,
    /// Columns of rows; infinite is forbidden.
    own: Vec<(u32, f64)>,
    /// Sets of rows.
    shared: Vec<(u32, f64)>,
    /// Where the columns and sets of a row end.
    ends: Vec<(usize, usize)>,
}

/// Which row has which column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The column of each row; `None` for those that stay without one.
    pub columns: Vec<Option<usize>>,
    /// The sum of the costs of the rows that have one.
    pub cost: f64,
    /// No assignment of as many rows costs less than this. It is the cost, but for rounding, unless there
    /// were too many steps.
    pub bound: f64,
    /// Rows that took what was free, as there were too many steps.
    pub hasty: usize,
    /// The steps that are left.
    pub steps_left: u64,
}

impl Costs {
    /// No rows as yet. The columns by their slots; the sets by their columns, each once.
    pub fn new(slots: Vec<u32>, sets: Vec<Vec<usize>>) -> Costs {
        let sets = sets.into_iter().map(|set| set.into_iter().map(|of| of as u32).collect());
        Costs { slots, sets: sets.collect(), ..Costs::default() }
    }

    /// One more row: its columns with what it costs there, `None` where it cannot be, and its sets.
    pub fn add(
        &mut self,
        own: impl IntoIterator<Item = (usize, Option<f64>)>,
        shared: impl IntoIterator<Item = (usize, f64)>,
    ) {
        let own = own.into_iter().map(|(of, cost)| (of as u32, cost.unwrap_or(f64::INFINITY)));
        self.own.extend(own);
        self.shared.extend(shared.into_iter().map(|(of, cost)| (of as u32, cost)));
        self.ends.push((self.own.len(), self.shared.len()));
    }

    /// What is kept: a cost of a row on a column, or on a set.
    pub(crate) fn entries(&self) -> usize {
        self.own.len() + self.shared.len()
    }

    /// The least sum. `leave` is what a row without a column costs; `None`: as many as possible get one.
    ///
    /// # Errors
    /// With the first cost that is none.
    pub fn solve(&self, leave: Option<f64>, most_steps: u64) -> Result<Answer, CostFault> {
        let mut dearest = leave.unwrap_or(0.0);
        for row in 0..self.ends.len() {
            let own = self.own(row).iter().map(|of| of.1).filter(|cost| *cost != f64::INFINITY);
            for cost in own.chain(self.shared(row).iter().map(|of| of.1)) {
                if !(cost.is_finite() && cost >= 0.0) {
                    return Err(CostFault { row, cost });
                }
                dearest = dearest.max(cost);
            }
        }
        let (mut steps, mut before) = (most_steps, None);
        loop {
            let mut search = Search::new(self, dearest, leave, steps);
            search.run();
            let mut answer = search.answer();
            if let Some(coarse) = before.take().filter(|_| answer.hasty > 0) {
                // All rows have had their search there.
                return Ok(Answer { steps_left: answer.steps_left, ..coarse });
            }
            answer.cost = self.sum(&answer.columns);
            let without = answer.columns.iter().filter(|column| column.is_none()).count();
            let sum = answer.cost + leave.map_or(0.0, |cost| cost * without as f64);
            let lost = dearest * 2_f64.powi(-BITS) * self.ends.len() as f64;
            if answer.hasty > 0 || sum == 0.0 || lost <= sum * PRECISION || 2.0 * sum >= dearest {
                return Ok(answer);
            }
            dearest = 2.0 * sum;
            steps = answer.steps_left;
            before = Some(answer);
        }
    }

    /// What the rows cost where they are.
    fn sum(&self, columns: &[Option<usize>]) -> f64 {
        let mut sets_of = vec![Vec::new(); self.slots.len()];
        for (set, of) in self.sets.iter().enumerate() {
            of.iter().for_each(|column| sets_of[*column as usize].push(set as u32));
        }
        let cost = |(row, column): (usize, &Option<usize>)| {
            let column = (*column)?;
            let own = self.own(row).iter().filter(|of| of.0 as usize == column);
            let in_set = |of: &&(u32, f64)| sets_of[column].binary_search(&of.0).is_ok();
            let shared = self.shared(row).iter().filter(in_set).map(|of| of.1);
            own.map(|of| of.1).reduce(f64::min).or_else(|| shared.reduce(f64::min))
        };
        columns.iter().enumerate().filter_map(cost).sum()
    }

    /// Where the columns and the sets of a row are.
    fn spans(&self, row: usize) -> (Range<usize>, Range<usize>) {
        let (own, shared) = row.checked_sub(1).map_or((0, 0), |before| self.ends[before]);
        (own..self.ends[row].0, shared..self.ends[row].1)
    }

    fn own(&self, row: usize) -> &[(u32, f64)] {
        &self.own[self.spans(row).0]
    }

    fn shared(&self, row: usize) -> &[(u32, f64)] {
        &self.shared[self.spans(row).1]
    }

    /// Whether no column of its own is dearer than in its sets.
    fn is_plain(&self, row: usize) -> bool {
        let cheapest = self.shared(row).iter().map(|of| of.1).fold(f64::INFINITY, f64::min);
        self.own(row).iter().all(|of| of.1 <= cheapest && of.1 < f64::INFINITY)
    }

    /// What it costs away from its own columns.
    fn far(&self, row: usize) -> f64 {
        let dearest = |of: &[(u32, f64)]| of.iter().map(|of| of.1).fold(0.0, f64::max);
        if self.shared(row).is_empty() { dearest(self.own(row)) } else { dearest(self.shared(row)) }
    }
}

/// Of `all` rows those that a best assignment can need where each of `others` columns is one of `slots`
/// in all; or of columns to rows.
pub(crate) fn needed(
    all: usize,
    others: usize,
    slots: usize,
    cost: impl Fn(usize, usize) -> f64,
) -> Vec<usize> {
    if all <= slots || slots == 0 {
        return (0..all).collect();
    }
    let mut is_needed = vec![false; all];
    for other in 0..others {
        let costs = (0..all).map(|index| (cost(index, other), index));
        let mut order: Vec<(f64, usize)> = costs.collect();
        order.select_nth_unstable_by(slots - 1, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        order[..slots].iter().for_each(|(_, cheap)| is_needed[*cheap] = true);
    }
    (0..all).filter(|index| is_needed[*index]).collect()
}

/// What one more column of each kind would take off the least sum, with as many rows assigned: dual
/// variables of an assignment, the least ones. `taken` has the kind of each row that is assigned, `cost`
/// what a row costs with a kind, infinite where it cannot have it; `waiting` is the least cost of the rows
/// without a column, by kind.
///
/// A row moves to the new column, another one to the one that is free then, and so on: the longest path in
/// what the moves save, which has no circle since the sum is least (Bellman and Ford). Rounds are bounded,
/// as the solver rounds.
pub fn prices(taken: &[usize], waiting: &[f64], cost: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let mut prices = vec![0.0; waiting.len()];
    for _ in 0..=waiting.len() {
        let own = |prices: &[f64], row: usize| prices[taken[row]] + cost(row, taken[row]);
        let dearest = (0..taken.len()).map(|row| own(&prices, row)).fold(0.0, f64::max);
        let mut changed = false;
        let mut raise = |prices: &mut [f64], kind: usize, price: f64| {
            if price > prices[kind] + dearest * 1e-12 {
                prices[kind] = price;
                changed = true;
            }
        };
        for row in 0..taken.len() {
            let own = own(&prices, row);
            (0..waiting.len()).for_each(|kind| raise(&mut prices, kind, own - cost(row, kind)));
        }
        for (kind, waiting) in waiting.iter().enumerate() {
            raise(&mut prices, kind, dearest - waiting);
        }
        if !changed {
            break;
        }
    }
    prices
}

#[cfg(test)]
mod tests;
