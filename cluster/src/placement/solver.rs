//! The linear sum assignment problem: which row gets which column, so that as many rows as possible get one and
//! the sum of the costs is least. A column has slots, each for one row.
//!
//! Solved by shortest augmenting paths (Jonker and Volgenant, Computing 38, 1987): the rows come one after the other, and a
//! row moves others on where that is the cheapest; prices of the columns keep what is left of each cost above 0, so that
//! each path is one search of Dijkstra's.
//!
//! Sparse: a row says what it costs on few columns of its own, and what on all columns of a *set*, such as a rack (the
//! equivalence classes of Firmament, Gog et al., OSDI'16). A set is kept in the order of prices, so a search takes from it
//! one column after the other, cheapest first, and ends at the first that is free. What a row costs on a column of its
//! own counts, be it more or less than in a set; it may be forbidden there.
//!
//! Costs are whole numbers in here, parts of the dearest by a power of two: all sums are exact, so it ends, and the
//! result does not depend on the order of additions. What is lost is below 2^-76 of the dearest cost for each row. One
//! cost far beyond the others, of a dead link, would make that too much. But no best assignment has a cost above the sum of
//! any assignment that is known. So where it could be 1e-9 of the sum, costs are cut off at twice the sum that came
//! out, and solved again; where the steps are too few for that, the first answer stays.
//!
//! A search counts its steps: each cost of a row and each column of a set that it looks at. When there have been more than the
//! caller allows it is given up, and each row that is left takes the cheapest column that is free, and the answer has the sum below which no assignment of as many rows can be: the prices are a dual
//! solution at any time. Steps and not seconds, so that the same costs have the same answer.
//!
//! Where there are more rows than slots, those come first that cost least away from their own columns: few of them
//! are taken off again. Among equal rows an earlier one keeps its column, and among equal columns the first is taken.
//!
//! Written here: of the crates, `mcmf` (LEMON in C++) is not kept since 2018, `rs-graph` is GPL, `ac-library-rs` and
//! `petgraph` have no sets and look at every edge for each path, and `pathfinding` and `lapjv` are dense: the tests have
//! `lapjv` to compare with.
//!
//! Limits. A search visits columns of equal price one by one, so where most rows want the same few of many columns
//! it is stopped. A row that is forbidden on a column of one of its sets, or costs more there, is searched for by itself,
//! so with many such rows it is stopped early.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::{Bound, Range};

/// Steps that are allowed unless the caller says otherwise: one to five seconds.
pub const MOST_STEPS: u64 = 100_000_000;

/// Steps for a place in a set, which takes that much longer.
const LOOK_UP: usize = 4;

/// The dearest cost is below two to this, as a whole number.
const BITS: i32 = 76;

/// Part of the sum that rounding may change.
const PRECISION: f64 = 1e-9;

/// No row, no set.
const NONE: u32 = u32::MAX;

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
    /// No assignment of as many rows costs less than this. It is the cost, but for rounding, unless there were too many steps.
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

/// A column that a search has a way to, the nearest first, of equals one with a free slot.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    distance: i128,
    is_full: bool,
    column: u32,
    row: u32,
    /// Of the row there.
    cost: i128,
    /// The set that it is from, of which the next column comes after it.
    set: u32,
}

/// Rows assigned so far, prices, and one search.
struct Search<'a> {
    costs: &'a Costs,
    scale: f64,
    /// As in the costs, as whole numbers; the largest is forbidden.
    own: Vec<(u32, i128)>,
    shared: Vec<(u32, i128)>,
    leave: i128,
    steps: Cell<u64>,
    hasty: usize,
    prices: Vec<i128>,
    free: Vec<u32>,
    /// The rows of each column.
    rows: Vec<Vec<u32>>,
    /// The column of each row, and its cost there.
    taken: Vec<(u32, i128)>,
    plain: Vec<bool>,
    /// The columns of `own`, those of each row in order.
    own_columns: Vec<u32>,
    /// The columns of each set: cheapest first, of equals free ones.
    order: Vec<BTreeSet<(i128, bool, u32)>>,
    sets_of: Vec<Vec<u32>>,
    ways: BinaryHeap<Reverse<Way>>,
    /// Those at the distance that the search has got to, and the first of them to a free slot.
    level: i128,
    level_ways: Vec<Way>,
    level_end: Option<Way>,
    /// The columns that are reached, with the distance.
    reached: Vec<(u32, i128)>,
    /// The row by which each of them is reached, and its cost there.
    from: Vec<Option<(u32, i128)>>,
    /// The shortest distance at which a set has been entered, in which search.
    entered: Vec<(u32, i128)>,
    round: u32,
    /// The least distance at which a row stays without a column, and that row.
    left: (i128, u32),
}

impl<'a> Search<'a> {
    fn new(costs: &'a Costs, cut: f64, leave: Option<f64>, steps: u64) -> Search<'a> {
        let columns = costs.slots.len();
        // A power of two, so that scaling is exact.
        let exponent = if cut > 0.0 { cut.log2().floor() as i32 + 1 } else { 0 };
        let scale = 2_f64.powi((BITS - exponent).min(1000));
        let mut sets_of = vec![Vec::new(); columns];
        for (set, of) in costs.sets.iter().enumerate() {
            of.iter().for_each(|column| sets_of[*column as usize].push(set as u32));
        }
        // Up, so that only nothing is 0.
        let whole = |cost: f64| (cost.min(cut) * scale).ceil() as i128;
        let all = |of: &[(u32, f64)]| {
            let whole = |cost| if cost == f64::INFINITY { i128::MAX } else { whole(cost) };
            of.iter().map(|(of, cost)| (*of, whole(*cost))).collect()
        };
        let key = |column: &u32| (0, costs.slots[*column as usize] == 0, *column);
        let slots: usize = costs.slots.iter().map(|slots| *slots as usize).sum();
        let longest = slots.min(costs.ends.len()) as i128 + 2;
        let mut own_columns: Vec<u32> = costs.own.iter().map(|of| of.0).collect();
        for row in 0..costs.ends.len() {
            own_columns[costs.spans(row).0].sort_unstable();
        }
        Search {
            costs,
            scale,
            own: all(&costs.own),
            shared: all(&costs.shared),
            // More than any row can cost the others.
            leave: leave.map_or(longest << (BITS + 2), whole),
            steps: Cell::new(steps),
            hasty: 0,
            prices: vec![0; columns],
            free: costs.slots.clone(),
            rows: vec![Vec::new(); columns],
            taken: vec![(NONE, 0); costs.ends.len()],
            plain: (0..costs.ends.len()).map(|row| costs.is_plain(row)).collect(),
            own_columns,
            order: costs.sets.iter().map(|set| set.iter().map(key).collect()).collect(),
            sets_of,
            ways: BinaryHeap::new(),
            level: 0,
            level_ways: Vec::new(),
            level_end: None,
            reached: Vec::new(),
            from: vec![None; columns],
            entered: vec![(0, 0); costs.sets.len()],
            round: 0,
            left: (0, NONE),
        }
    }

    fn run(&mut self) {
        // A row that can be where it costs least is there first: most are, and need no search.
        let rows = 0..self.taken.len() as u32;
        let mut order: Vec<u32> = rows.filter(|row| !self.take_least(*row)).collect();
        let slots: usize = self.costs.slots.iter().map(|slots| *slots as usize).sum();
        if self.taken.len() > slots {
            let far = |row: &u32| self.costs.far(*row as usize);
            order.sort_by(|a, b| far(a).total_cmp(&far(b)));
        }
        for row in order {
            if !self.insert(row) {
                self.hasty += 1;
                self.take(row, self.leave);
            }
        }
    }

    /// Assigns one more row, by the shortest way to a free slot or to a row that stays without. `false` and nothing done where
    /// the steps do not reach.
    fn insert(&mut self, row: u32) -> bool {
        if self.steps.get() == 0 {
            return false;
        }
        self.round += 1;
        self.left = (self.leave, row);
        self.level = 0;
        self.scan(row, 0);
        let mut end = None;
        while let Some(way) = self.nearest().filter(|_| self.steps.get() > 0) {
            let Way { distance, is_full, column, row, cost, set } = way;
            self.level = distance;
            if (distance, is_full) >= (self.left.0, true) {
                break;
            }
            let is_known = self.from[column as usize].is_some();
            if !is_known {
                self.from[column as usize] = Some((row, cost));
            }
            if set != NONE && is_full {
                self.enter(row, distance - self.prices[column as usize], cost, set, Some(column));
            }
            if is_known {
                continue;
            }
            if !is_full {
                end = Some((column, distance));
                break;
            }
            self.reached.push((column, distance));
            let price = self.prices[column as usize];
            for at in 0..self.rows[column as usize].len() {
                let row = self.rows[column as usize][at];
                let begins = distance - price - self.taken[row as usize].1;
                if begins + self.leave < self.left.0 {
                    self.left = (begins + self.leave, row);
                }
                self.scan(row, begins);
            }
        }
        self.ways.clear();
        self.level_ways.clear();
        self.level_end = None;
        if self.steps.get() == 0 {
            self.forget(end.map(|(column, _)| column));
            return false;
        }
        let length = end.map_or(self.left.0, |(_, distance)| distance);
        let reached = std::mem::take(&mut self.reached);
        for (column, distance) in reached.iter().filter(|(_, distance)| *distance < length) {
            let before = self.prices[*column as usize];
            self.prices[*column as usize] += length - distance;
            self.sort_anew(*column, (before, true));
        }
        match end {
            Some((column, _)) => {
                self.move_to(column);
                self.fill(column);
            }
            None => {
                let column = std::mem::replace(&mut self.taken[self.left.1 as usize], (NONE, 0)).0;
                if column != NONE {
                    self.rows[column as usize].retain(|other| *other != self.left.1);
                    self.move_to(column);
                }
            }
        }
        self.reached = reached;
        self.forget(end.map(|(column, _)| column));
        true
    }

    /// A search is over: what it has reached is as before it.
    fn forget(&mut self, end: Option<u32>) {
        let reached = self.reached.drain(..).map(|(column, _)| column);
        reached.chain(end).for_each(|column| self.from[column as usize] = None);
    }

    /// It has looked at so much.
    fn count(&self, looked_at: usize) {
        self.steps.set(self.steps.get().saturating_sub(looked_at as u64));
    }

    fn nearest(&mut self) -> Option<Way> {
        let here = self.level_end.take().or_else(|| self.level_ways.pop());
        here.or_else(|| self.ways.pop().map(|Reverse(way)| way))
    }

    /// The ways from a row that would leave its column, at this distance less its cost there.
    fn scan(&mut self, row: u32, begins: i128) {
        let (own, shared) = self.costs.spans(row as usize);
        self.count(own.len() + shared.len());
        for at in own {
            let (column, cost) = self.own[at];
            if cost < i128::MAX && self.from[column as usize].is_none() {
                self.find(column, row, begins + cost, cost, NONE);
            }
        }
        for at in shared {
            let (set, cost) = self.shared[at];
            let base = begins + cost;
            let entered = &mut self.entered[set as usize];
            if base > self.left.0 || entered.0 == self.round && entered.1 <= base {
                continue;
            }
            if self.plain[row as usize] {
                *entered = (self.round, base);
            }
            self.enter(row, base, cost, set, None);
        }
    }

    /// The way to the next column of a set, in the order of prices, that has not been reached.
    fn enter(&mut self, row: u32, base: i128, cost: i128, set: u32, after: Option<u32>) {
        let next = self.next(row, set, after, |column| self.from[column as usize].is_none());
        if let Some(column) = next {
            self.find(column, row, base, cost, set);
        }
    }

    /// The cheapest column of a set after another; not one that has a cost of its own, where that may be more.
    fn next(
        &self,
        row: u32,
        set: u32,
        after: Option<u32>,
        wanted: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let from = after.map_or(Bound::Unbounded, |column| {
            let is_full = self.free[column as usize] == 0;
            Bound::Excluded((self.prices[column as usize], is_full, column))
        });
        let own = if self.plain[row as usize] { 0..0 } else { self.costs.spans(row as usize).0 };
        self.count(LOOK_UP);
        let own = &self.own_columns[own];
        let columns = self.order[set as usize].range((from, Bound::Unbounded));
        let mut columns = columns.map(|(_, _, column)| *column).inspect(|_| self.count(1));
        columns.find(|column| wanted(*column) && own.binary_search(column).is_err())
    }

    fn find(&mut self, column: u32, row: u32, base: i128, cost: i128, set: u32) {
        let distance = base + self.prices[column as usize];
        let is_full = self.free[column as usize] == 0;
        let way = Way { distance, is_full, column, row, cost, set };
        match (distance, is_full) {
            at if at >= (self.left.0, true) => {}
            (at, false) if at == self.level => {
                self.level_end.get_or_insert(way);
            }
            (at, true) if at == self.level => self.level_ways.push(way),
            _ => self.ways.push(Reverse(way)),
        }
    }

    /// A column has a place: the rows on the way to it move on, each to where the next one was.
    fn move_to(&mut self, mut column: u32) {
        while let Some((row, cost)) = self.from[column as usize] {
            let before = std::mem::replace(&mut self.taken[row as usize], (column, cost)).0;
            self.rows[column as usize].push(row);
            if before == NONE {
                return;
            }
            self.rows[before as usize].retain(|other| *other != row);
            column = before;
        }
    }

    /// A row has got a free slot of a column.
    fn fill(&mut self, column: u32) {
        self.free[column as usize] -= 1;
        if self.free[column as usize] == 0 {
            self.sort_anew(column, (self.prices[column as usize], false));
        }
    }

    fn sort_anew(&mut self, column: u32, (price, was_full): (i128, bool)) {
        for set in &self.sets_of[column as usize] {
            let order = &mut self.order[*set as usize];
            order.remove(&(price, was_full, column));
            let is_full = self.free[column as usize] == 0;
            order.insert((self.prices[column as usize], is_full, column));
        }
    }

    /// The cheapest columns of a row, with price and cost together: its own, and one of each of its sets.
    fn cheapest(&self, row: u32) -> impl Iterator<Item = (i128, bool, u32, i128)> {
        let (own, sets) = self.costs.spans(row as usize);
        let own = self.own[own].iter().filter(|of| of.1 < i128::MAX).copied();
        let next = move |set: u32| self.next(row, set, None, |_| true);
        let sets = self.shared[sets].iter();
        let sets = sets.filter_map(move |(set, cost)| Some((next(*set)?, *cost)));
        own.chain(sets).map(|(column, cost)| {
            let is_full = self.free[column as usize] == 0;
            (cost + self.prices[column as usize], is_full, column, cost)
        })
    }

    /// A row takes a free slot where it costs least, if that is less than to stay without. Right only while no column has
    /// a price.
    fn take_least(&mut self, row: u32) -> bool {
        let (own, sets) = self.costs.spans(row as usize);
        let all = self.own[own].iter().chain(&self.shared[sets]);
        let least = all.map(|of| of.1).fold(self.leave, i128::min);
        self.take(row, least)
    }

    /// A row takes its cheapest free slot. Only what is full has a price, so a set has its free columns first.
    fn take(&mut self, row: u32, most: i128) -> bool {
        let free = self.cheapest(row).filter(|(cost, is_full, ..)| !is_full && *cost <= most);
        let Some((_, _, column, cost)) = free.min() else { return false };
        self.taken[row as usize] = (column, cost);
        self.rows[column as usize].push(row);
        self.fill(column);
        true
    }

    fn answer(&self) -> Answer {
        let steps_left = self.steps.get();
        let rows = 0..self.taken.len() as u32;
        let least = |row| self.cheapest(row).map(|of| of.0).fold(self.leave, i128::min);
        let prices = self.prices.iter().zip(&self.costs.slots);
        let prices: i128 = prices.map(|(price, slots)| price * i128::from(*slots)).sum();
        let without = self.taken.iter().filter(|(column, _)| *column == NONE).count();
        let bound = rows.map(least).sum::<i128>() - prices - self.leave * without as i128;
        let columns = self.taken.iter().map(|(column, _)| *column);
        Answer {
            columns: columns.map(|of| (of != NONE).then_some(of as usize)).collect(),
            cost: 0.0,
            bound: bound.max(0) as f64 / self.scale,
            hasty: self.hasty,
            steps_left,
        }
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

/// What one more column of each kind would take off the least sum, with as many rows assigned: dual variables
/// of an assignment, the least ones. `taken` has the kind of each row that is assigned, `cost` what a row costs
/// with a kind, infinite where it cannot have it; `waiting` is the least cost of the rows without a column, by kind.
///
/// A row moves to the new column, another one to the one that is free then, and so on: the longest path in what the moves
/// save, which has no circle since the sum is least (Bellman and Ford). Rounds are bounded, as the solver rounds.
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
