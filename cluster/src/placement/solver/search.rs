//! One solution by shortest augmenting paths: the rows in their order, with the prices of the columns and the steps
//! that it takes. What and why is on the page of [`crate::placement::solver`].

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;

use crate::placement::solver::{Answer, BITS, Costs, LOOK_UP};

/// No row, no set.
const NONE: u32 = u32::MAX;

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
pub(super) struct Search<'a> {
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
    pub(super) fn new(costs: &'a Costs, cut: f64, leave: Option<f64>, steps: u64) -> Search<'a> {
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

    pub(super) fn run(&mut self) {
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

    /// Assigns one more row, by the shortest way to a free slot or to a row that stays without. `false` and
    /// nothing done where the steps do not reach.
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

    /// The cheapest column of a set after another; not one that has a cost of its own, where that may be
    /// more.
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

    /// A row takes a free slot where it costs least, if that is less than to stay without. Right only while
    /// no column has a price.
    fn take_least(&mut self, row: u32) -> bool {
        let (own, sets) = self.costs.spans(row as usize);
        let all = self.own[own].iter().chain(&self.shared[sets]);
        let least = all.map(|of| of.1).fold(self.leave, i128::min);
        self.take(row, least)
    }

    /// A row takes its cheapest free slot. Only what is full has a price, so a set has its free columns
    /// first.
    fn take(&mut self, row: u32, most: i128) -> bool {
        let free = self.cheapest(row).filter(|(cost, is_full, ..)| !is_full && *cost <= most);
        let Some((_, _, column, cost)) = free.min() else { return false };
        self.taken[row as usize] = (column, cost);
        self.rows[column as usize].push(row);
        self.fill(column);
        true
    }

    pub(super) fn answer(&self) -> Answer {
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
