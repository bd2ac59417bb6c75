//! The linear sum assignment problem: which row gets which column, so that the sum of the costs is
//! least.
//!
//! Solved by `lapjv` (Jonker and Volgenant, Computing 38, 1987). On costs as they occur here, few
//! values many times, it took 0.06 s for 1,000 rows and 0.28 s for 2,900, where `pathfinding`'s
//! Kuhn-Munkres took 5.2 s and 63 s; on random costs 0.24 s and 0.83 s against 0.36 s and 4.6 s.
//!
//! The costs are checked where they come in, and rounded to whole numbers such that all sums and
//! differences in the solver are whole numbers that a double holds exactly: it ends, and the result
//! does not depend on the order of additions. One cost that is far beyond the others, of a dead link, would
//! leave these no digits. But no best assignment has a cost above the sum of any assignment that is known. So
//! costs are cut off at twice the sum that came out, and solved again, until that changes little. What is
//! rounded away is then at most `n^2 2^-46` of the sum for a square of `n` rows, 6e-6 at [`MOST`]; where pairs
//! are forbidden `2 n` times that.
//!
//! A pair may be forbidden. It then costs more than all others together, so that as many rows as possible get
//! a column, and those that would get a forbidden one get none.
//!
//! Where there are more rows than columns, only those can be in a best assignment that are among the cheapest of
//! some column, as many as there are columns: a column with another row could take one of these, as the other
//! columns cannot use them all. The others are left out before the matrix is made; columns likewise.
//!
//! Limits. The matrix is dense and square, 8 bytes a field: 67 MB at 2,900, 3.2 GB at [`MOST`]. A second pass takes
//! as long as the first; ordinary costs need none.

use lapjv::{Matrix, lapjv};

/// Most rows, and most columns.
pub const MOST: usize = 20_000;

/// The largest cost of a square of this size, as a whole number: a sum over all rows fits into a double
/// three times.
fn scale(size: usize) -> f64 {
    ((1_u64 << 50) as f64 / size.max(1) as f64).floor()
}

/// By how much a cut must be better than the one before for another pass.
const BETTER: f64 = 16.0;

/// Why a matrix of costs cannot be solved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CostFault {
    /// It is too large.
    #[error("{rows} rows of {columns} columns; at most {MOST} of each can be solved")]
    Size {
        /// Rows as given.
        rows: usize,
        /// Columns as given.
        columns: usize,
    },
    /// A cost is none.
    #[error("cost {cost} in row {row}, column {column}; a cost is a finite number from 0 on")]
    Cost {
        /// From 0.
        row: usize,
        /// From 0.
        column: usize,
        /// As given.
        cost: f64,
    },
    /// The solver gave up.
    #[error("the solver failed: {0}")]
    Solver(String),
}

/// The column of each row, so that the sum of `cost(row, column)` is least; `None` for the rows that
/// stay without one where there are more of them than columns, or where it has to be. A cost of `None`
/// says that a row can not have a column. Or every fault of the costs.
///
/// Padded to a square with rows or columns that cost nothing: any constant would do, since each of
/// them is used exactly once (Guo, Fox, Zhou, MapReduce'12, section 3).
pub fn solve(
    rows: usize,
    columns: usize,
    cost: impl Fn(usize, usize) -> Option<f64>,
) -> Result<Vec<Option<usize>>, Vec<CostFault>> {
    if rows == 0 || columns == 0 {
        return Ok(vec![None; rows]);
    }
    let mut faults = Vec::new();
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let Some(cost) = cost(row, column) else { continue };
        if !(cost.is_finite() && cost >= 0.0) {
            faults.push(CostFault::Cost { row, column, cost });
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let or_none = |row: usize, column: usize| cost(row, column).unwrap_or(f64::INFINITY);
    let kept_rows = needed(rows, columns, columns, or_none);
    let kept_columns = needed(columns, rows, rows, |column, row| or_none(row, column));
    let size = kept_rows.len().max(kept_columns.len());
    if size > MOST {
        return Err(vec![CostFault::Size { rows, columns }]);
    }
    let field = |row: usize, column: usize| {
        let kept = kept_rows.get(row).zip(kept_columns.get(column));
        kept.map_or(0.0, |(row, column)| or_none(*row, *column))
    };
    let found = least(size, field).map_err(|fault| vec![fault])?;
    let mut assigned = vec![None; rows];
    for (row, column) in kept_rows.into_iter().zip(found) {
        let column = kept_columns.get(column).copied();
        assigned[row] = column.filter(|column| cost(row, *column).is_some());
    }
    Ok(assigned)
}

/// The column of each row of a square at the least sum; infinite is forbidden.
fn least(size: usize, field: impl Fn(usize, usize) -> f64) -> Result<Vec<usize>, CostFault> {
    let all = || (0..size).flat_map(|row| (0..size).map(move |column| (row, column)));
    let costs = || all().map(|(row, column)| field(row, column));
    let mut cut = costs().filter(|cost| cost.is_finite()).fold(0.0, f64::max);
    let forbids = costs().any(f64::is_infinite);
    loop {
        // In parts of the cut, so that the largest number there is does not overflow.
        let forbidden = 2.0 * size as f64;
        let scale = scale(size) / if forbids { forbidden } else { 1.0 };
        let matrix =
            Matrix::from_shape_fn((size, size), |(row, column)| match field(row, column) {
                cost if cost.is_infinite() => (forbidden * scale).round(),
                cost if cut > 0.0 => (cost.min(cut) / cut * scale).round(),
                _ => 0.0,
            });
        let found = lapjv(&matrix).map_err(|error| CostFault::Solver(error.to_string()))?.0;
        let taken = found.iter().enumerate().map(|(row, column)| field(row, *column));
        let sum: f64 = taken.filter(|cost| cost.is_finite()).sum();
        if sum == 0.0 || 2.0 * sum * BETTER > cut {
            return Ok(found);
        }
        cut = 2.0 * sum;
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
    let mut order: Vec<usize> = (0..all).collect();
    for other in 0..others {
        order.select_nth_unstable_by(slots - 1, |a, b| {
            cost(*a, other).total_cmp(&cost(*b, other)).then(a.cmp(b))
        });
        order[..slots].iter().for_each(|cheap| is_needed[*cheap] = true);
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
mod tests {
    use super::*;

    /// The least sum of all assignments of `size` rows to as many columns: over every set of columns
    /// taken, the last row that took one of them.
    fn exhaustive(size: usize, cost: impl Fn(usize, usize) -> f64) -> f64 {
        let mut least = vec![f64::INFINITY; 1 << size];
        least[0] = 0.0;
        for taken in 0_usize..(1 << size) - 1 {
            let row = taken.count_ones() as usize;
            for column in (0..size).filter(|column| taken & (1 << column) == 0) {
                let with = taken | (1 << column);
                least[with] = least[with].min(least[taken] + cost(row, column));
            }
        }
        least[(1 << size) - 1]
    }

    fn random(random: &mut fastrand::Rng, kind: usize) -> f64 {
        match kind {
            0 => random.f64(),
            1 => f64::from(random.u8(0..4)),
            2 => [0.0, 1.0, 4.0][random.usize(0..3)] * 1e-9,
            _ => f64::from(random.u32(0..1_000_000)) * 1e12,
        }
    }

    #[test]
    fn the_optimum_is_that_of_all_assignments() {
        let mut rng = fastrand::Rng::with_seed(15);
        // 10,000 are square.
        for round in 0..20_000 {
            let (rows, columns) = [(8, 8), (8, 8), (8, 2), (3, 8)][round % 4];
            let costs: Vec<f64> = (0..64).map(|_| random(&mut rng, round / 4 % 4)).collect();
            let cost = |row: usize, column: usize| costs[row * 8 + column];
            let padded =
                |row, column| if row < rows && column < columns { cost(row, column) } else { 0.0 };
            let found = solve(rows, columns, |row, column| Some(cost(row, column))).unwrap();
            let taken: std::collections::BTreeSet<usize> =
                found.iter().flatten().copied().collect();
            assert_eq!(taken.len(), rows.min(columns), "round {round}");
            let sum: f64 = found
                .iter()
                .enumerate()
                .filter_map(|(row, column)| column.map(|column| cost(row, column)))
                .sum();
            let best = exhaustive(8, padded);
            assert!((sum - best).abs() <= best * 1e-9, "round {round}: {sum} is not {best}");
        }
    }

    /// One dead link left the others no digits.
    #[test]
    fn costs_of_any_size_beside_each_other_are_solved() {
        let mut rng = fastrand::Rng::with_seed(17);
        for round in 0..2_000 {
            let cost = |_| rng.f64() * 10_f64.powi(rng.i32(-3..15));
            let costs: Vec<f64> = (0..64).map(cost).collect();
            let cost = |row: usize, column: usize| costs[row * 8 + column];
            let found = solve(8, 8, |row, column| Some(cost(row, column))).unwrap();
            let taken = found.iter().enumerate();
            let sum: f64 = taken.filter_map(|(row, column)| Some(cost(row, (*column)?))).sum();
            let best = exhaustive(8, cost);
            assert!(sum <= best * (1.0 + 1e-9), "round {round}: {sum} is not {best}");
        }
    }

    #[test]
    fn what_is_forbidden_is_not_assigned_and_costs_no_other_its_place() {
        let mut rng = fastrand::Rng::with_seed(18);
        let mut without = 0;
        for round in 0..2_000 {
            let costs: Vec<Option<f64>> = (0..64)
                .map(|_| (rng.u8(0..4) == 0).then(|| rng.f64() * 10_f64.powi(rng.i32(0..6))))
                .collect();
            let cost = |row: usize, column: usize| costs[row * 8 + column];
            let found = solve(8, 8, cost).unwrap();
            let dear = 1e9;
            let best = exhaustive(8, |row, column| cost(row, column).unwrap_or(dear));
            let taken = found.iter().enumerate();
            let taken = taken.map(|(row, column)| column.map(|column| cost(row, column).unwrap()));
            let sum: f64 = taken.map(|cost| cost.unwrap_or(dear)).sum();
            assert!((sum - best).abs() <= best * 1e-9, "round {round}: {sum} is not {best}");
            without += found.iter().filter(|column| column.is_none()).count();
        }
        assert!(without > 100, "{without}");
        assert_eq!(solve(2, 2, |_, _| None), Ok(vec![None, None]));
    }

    /// A dense square of the larger side would take 3.2 GB here.
    #[test]
    fn a_few_of_many_are_assigned_without_a_large_matrix() {
        let mut rng = fastrand::Rng::with_seed(16);
        let costs: Vec<f64> = (0..MOST).map(|_| rng.f64()).collect();
        let mut sorted: Vec<usize> = (0..MOST).collect();
        sorted.sort_by(|a, b| costs[*a].total_cmp(&costs[*b]));
        let mut rows = solve(MOST, 3, |row, _| Some(costs[row])).unwrap();
        let taken = |of: &usize| rows[*of].is_some();
        assert!(sorted[..3].iter().all(taken) && rows.iter().flatten().count() == 3);
        rows = solve(3, MOST, |_, column| Some(costs[column])).unwrap();
        let mut columns: Vec<usize> = rows.into_iter().flatten().collect();
        columns.sort_unstable();
        sorted.truncate(3);
        sorted.sort_unstable();
        assert_eq!(columns, sorted);
    }

    #[test]
    fn costs_that_are_none_are_all_named() {
        let bad = [1.0, -1.0, f64::NAN, f64::INFINITY];
        let faults = solve(2, 2, |row, column| Some(bad[row * 2 + column])).unwrap_err();
        let places: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(places.len(), 3, "{places:?}");
        assert!(places[0].starts_with("cost -1 in row 0, column 1"), "{places:?}");
        assert_eq!(solve(MOST + 1, 1, |_, _| Some(0.0)).map(|found| found.len()), Ok(MOST + 1));
    }

    /// By hand: the third row saves 3 with a second middle column; with a second left one the second row goes
    /// there for 1 and the third takes its place. A new right one saves nothing.
    #[test]
    fn a_price_is_what_one_more_column_saves() {
        let costs = [[0.0, 2.0, 9.0], [1.0, 0.0, 5.0], [9.0, 0.0, 3.0]];
        let found = solve(3, 3, |row, column| Some(costs[row][column])).unwrap();
        assert_eq!(found, [Some(0), Some(1), Some(2)]);
        let of =
            |taken: &[usize], waiting: &[f64]| prices(taken, waiting, |row, kind| costs[row][kind]);
        assert_eq!(of(&[0, 1, 2], &[f64::INFINITY; 3]), [2.0, 3.0, 0.0]);
        assert_eq!(of(&[], &[1.0, f64::INFINITY]), [0.0, 0.0], "nothing runs, nothing is saved");
        // The first row has the left column for 0. Another would start with the right one for 2: no gain.
        assert_eq!(of(&[0], &[4.0, 2.0, 9.0]), [0.0, 0.0, 0.0]);
        // The second row has the right column for 5. Another would take the middle one for 2 in its place.
        assert_eq!(of(&[0, 2], &[4.0, 2.0, 9.0]), [4.0, 5.0, 0.0]);
    }

    #[test]
    fn prices_are_the_differences_of_least_sums() {
        let mut rng = fastrand::Rng::with_seed(19);
        for round in 0..500 {
            let (rows, kinds) = (rng.usize(1..7), 3);
            let costs: Vec<[f64; 3]> =
                (0..rows).map(|_| std::array::from_fn(|_| f64::from(rng.u8(0..20)))).collect();
            let columns: Vec<usize> = (0..rng.usize(1..5)).map(|_| rng.usize(0..kinds)).collect();
            let solved = |columns: &[usize]| {
                solve(rows, columns.len(), |row, column| Some(costs[row][columns[column]])).unwrap()
            };
            let (mut taken, mut of_rows, mut waiting) =
                (Vec::new(), Vec::new(), [f64::INFINITY; 3]);
            for (row, column) in solved(&columns).into_iter().enumerate() {
                match column {
                    Some(column) => {
                        taken.push(columns[column]);
                        of_rows.push(row);
                    }
                    None => {
                        (0..3).for_each(|kind| waiting[kind] = waiting[kind].min(costs[row][kind]))
                    }
                }
            }
            let sum: f64 = taken.iter().zip(&of_rows).map(|(kind, row)| costs[*row][*kind]).sum();
            let found = prices(&taken, &waiting, |row, kind| costs[of_rows[row]][kind]);
            // The least sum with one more column and as many rows: of all sets of rows and columns.
            for (kind, price) in found.into_iter().enumerate() {
                let more = [&columns[..], &[kind]].concat();
                let least = least_of(&costs, &more, taken.len(), 0);
                assert_eq!(sum - price, least, "round {round}, {costs:?}, {columns:?}, {kind}");
            }
        }
    }

    /// The least sum of `left` of the rows from `row` on, each with another of the columns.
    fn least_of(costs: &[[f64; 3]], columns: &[usize], left: usize, row: usize) -> f64 {
        if left == 0 {
            return 0.0;
        }
        if row == costs.len() {
            return f64::INFINITY;
        }
        let with = (0..columns.len()).map(|index| {
            let mut others = columns.to_vec();
            let kind = others.remove(index);
            costs[row][kind] + least_of(costs, &others, left - 1, row + 1)
        });
        with.fold(least_of(costs, columns, left, row + 1), f64::min)
    }

    #[test]
    fn nothing_to_assign_is_no_fault() {
        assert_eq!(solve(0, 3, |_, _| Some(f64::NAN)), Ok(vec![]));
        assert_eq!(solve(2, 0, |_, _| Some(f64::NAN)), Ok(vec![None, None]));
        assert_eq!(solve(1, 1, |_, _| Some(0.0)), Ok(vec![Some(0)]));
        assert_eq!(solve(2, 2, |_, _| Some(f64::MAX)).map(|found| found.len()), Ok(2));
    }
}
