//! The solver against the dense one and against what must hold of any answer.

use super::*;

impl Costs {
    /// What a row costs on a column; infinite where it cannot be.
    pub(crate) fn at(&self, row: usize, column: usize) -> f64 {
        let own = self.own(row).iter().filter(|of| of.0 as usize == column);
        let sets = self.shared(row).iter();
        let in_set = |of: &&(u32, f64)| self.sets[of.0 as usize].contains(&(column as u32));
        let least = |costs: &mut dyn Iterator<Item = f64>| costs.reduce(f64::min);
        let shared = least(&mut sets.filter(in_set).map(|of| of.1)).unwrap_or(f64::INFINITY);
        least(&mut own.map(|of| of.1)).unwrap_or(shared)
    }
}

/// The column of each row where each pair has a cost or is forbidden.
fn solve(
    rows: usize,
    columns: usize,
    cost: impl Fn(usize, usize) -> Option<f64>,
) -> Result<Vec<Option<usize>>, CostFault> {
    let mut costs = Costs::new(vec![1; columns], Vec::new());
    (0..rows).for_each(|row| costs.add((0..columns).map(|column| (column, cost(row, column))), []));
    costs.solve(None, MOST_STEPS).map(|answer| answer.columns)
}

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
        let taken: std::collections::BTreeSet<usize> = found.iter().flatten().copied().collect();
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

#[test]
fn a_cost_that_is_none_is_named() {
    for cost in [-1.0, f64::NAN, f64::NEG_INFINITY] {
        let mut costs = Costs::new(vec![1, 1], vec![vec![0, 1]]);
        costs.add([(0, Some(1.0))], []);
        costs.add([(1, Some(1.0))], [(0, cost)]);
        let fault = costs.solve(None, MOST_STEPS).unwrap_err();
        assert!(fault.to_string().starts_with(&format!("cost {cost} in row 1;")), "{fault}");
    }
}

/// Racks of columns, rows with columns of their own, cheaper, dearer and forbidden.
fn sparse(rng: &mut fastrand::Rng) -> Costs {
    let (rows, columns, racks) = (rng.usize(1..40), rng.usize(1..12), rng.usize(1..4));
    let rack = |rack: usize| (0..columns).filter(|column| column % racks == rack).collect();
    let sets = std::iter::once((0..columns).collect()).chain((0..racks).map(rack)).collect();
    let mut costs = Costs::new((0..columns).map(|_| rng.u32(0..5)).collect(), sets);
    let plain = rng.bool();
    let few = rng.bool();
    let cost = |rng: &mut fastrand::Rng| match few {
        true => f64::from(rng.u8(0..4)),
        false => rng.f64() * 100.0,
    };
    for _ in 0..rows {
        let mut own = Vec::new();
        for column in rng.choose_multiple(0..columns, 3) {
            let dear = if plain { Some(0.0) } else { Some(cost(rng) * 2.0) };
            own.push((column, dear.filter(|_| plain || rng.u8(0..5) > 0)));
        }
        let mut shared = Vec::new();
        if rng.u8(0..6) > 0 {
            shared.push((0, 50.0 + cost(rng)));
        }
        if rng.bool() {
            shared.push((1 + rng.usize(0..racks), cost(rng)));
        }
        costs.add(own, shared);
    }
    costs
}

/// How many rows can have a column, and the least sum of that.
fn dense(costs: &Costs) -> (usize, f64) {
    let slots = costs.slots.iter().enumerate();
    let slots: Vec<usize> =
        slots.flat_map(|(of, slots)| std::iter::repeat_n(of, *slots as usize)).collect();
    let (rows, forbidden) = (costs.ends.len(), 1e6);
    let size = rows.max(slots.len());
    let at = |(row, slot): (usize, usize)| match slots.get(slot) {
        Some(column) if row < rows => costs.at(row, *column).min(forbidden),
        _ => 0.0,
    };
    let found = lapjv::lapjv(&lapjv::Matrix::from_shape_fn((size, size), at)).unwrap().0;
    let taken = found
        .into_iter()
        .enumerate()
        .filter(|(row, slot)| *row < rows && *slot < slots.len() && at((*row, *slot)) < forbidden);
    let taken: Vec<f64> = taken.map(at).collect();
    (taken.len(), taken.iter().sum())
}

fn starts(answer: &Answer) -> usize {
    answer.columns.iter().flatten().count()
}

#[test]
fn a_sparse_answer_costs_as_much_as_the_dense_one() {
    let mut rng = fastrand::Rng::with_seed(19);
    for round in 0..2_000 {
        let costs = sparse(&mut rng);
        let answer = costs.solve(None, MOST_STEPS).unwrap();
        let (count, best) = dense(&costs);
        assert_eq!(starts(&answer), count, "round {round}");
        let taken = answer.columns.iter().enumerate();
        let sum: f64 = taken.filter_map(|(row, of)| Some(costs.at(row, (*of)?))).sum();
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * best.max(1.0);
        assert!(near(sum, best) && near(answer.cost, best), "round {round}: {sum}, {best}");
        assert!(near(answer.bound, best), "round {round}: the prices prove {}", answer.bound);
        let taken = |column: usize| answer.columns.iter().filter(move |of| **of == Some(column));
        let slots = costs.slots.iter().enumerate();
        assert!(slots.into_iter().all(|(of, slots)| taken(of).count() <= *slots as usize));
    }
}

#[test]
fn a_search_that_is_stopped_says_how_far_it_may_be_off() {
    let mut rng = fastrand::Rng::with_seed(20);
    let (mut stopped, mut worse) = (0, 0);
    for round in 0..500 {
        let costs = sparse(&mut rng);
        let answer = costs.solve(None, rng.u64(0..40)).unwrap();
        let (count, best) = dense(&costs);
        stopped += usize::from(answer.hasty > 0);
        if starts(&answer) == count {
            worse += usize::from(answer.cost > best * 1.01);
            let (low, high) = (answer.bound - 1e-6, answer.cost + 1e-6);
            assert!((low..=high).contains(&best), "round {round}: {low} {best} {high}");
        }
    }
    assert!(stopped > 100 && worse > 20, "{stopped}, {worse}");
}

/// One cost far beyond the others, of which there is a second pass without it, or a part of one.
#[test]
fn whatever_the_steps_the_cost_is_that_of_the_answer_and_more_steps_do_not_make_it_worse() {
    let mut rng = fastrand::Rng::with_seed(22);
    let mut gained = 0;
    for round in 0..100 {
        let mut costs = Costs::new(vec![1; 8], Vec::new());
        for row in 0..8 {
            let cost = |column| if (row, column) == (0, 0) { 1e30 } else { rng.f64() };
            let own: Vec<f64> = (0..8).map(cost).collect();
            costs.add(own.into_iter().enumerate().map(|(column, cost)| (column, Some(cost))), []);
        }
        let mut least = f64::INFINITY;
        for steps in 0..600 {
            let answer = costs.solve(None, steps).unwrap();
            let taken = answer.columns.iter().enumerate();
            let sum: f64 = taken.filter_map(|(row, of)| Some(costs.at(row, (*of)?))).sum();
            assert!((answer.cost - sum).abs() <= 1e-12 * sum, "{round} {steps}: {answer:?}, {sum}");
            if answer.hasty == 0 {
                assert!(sum <= least * (1.0 + 1e-12), "{round} {steps}: {sum} after {least}");
                gained += usize::from(sum < least);
                least = sum;
            }
        }
        assert!(least.is_finite(), "{round}");
    }
    // The first pass of each round, and the second one.
    assert!(gained > 150, "{gained}");
}

/// Most columns are forbidden to each row, so that a search walks over them again and again.
#[test]
fn columns_that_a_search_walks_over_are_steps() {
    let (columns, forbidden) = (200, 150);
    let mut costs = Costs::new(vec![1; columns], vec![(0..columns).collect()]);
    for _ in 0..columns {
        costs.add((0..forbidden).map(|column| (column, None)), [(0, 1.0)]);
    }
    // The first look at each row takes three quarters of them.
    let answer = costs.solve(None, 40_000).unwrap();
    assert!(answer.hasty > 100, "{}", answer.hasty);
    assert_eq!(starts(&answer), columns - forbidden);
    assert_eq!(costs.solve(None, MOST_STEPS).unwrap().hasty, 0);
}

/// Each row moves to the next column, so that the last one can have the first.
#[test]
fn one_long_search_is_given_up_and_leaves_the_others_as_they_are() {
    let rows = 2000;
    let mut costs = Costs::new(vec![1; rows + 1], Vec::new());
    (0..rows).for_each(|row| costs.add([(row, Some(0.0)), (row + 1, Some(1.0))], []));
    costs.add([(0, Some(0.0))], []);
    let own: Vec<Option<usize>> = (0..rows).map(Some).collect();
    let answer = costs.solve(None, 1000).unwrap();
    assert_eq!((answer.hasty, answer.columns), (1, [&own[..], &[None]].concat()));
    let moved: Vec<Option<usize>> = (1..=rows).map(Some).collect();
    let answer = costs.solve(None, MOST_STEPS).unwrap();
    assert_eq!((answer.hasty, answer.columns), (0, [&moved[..], &[Some(0)]].concat()));
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
        let (mut taken, mut of_rows, mut waiting) = (Vec::new(), Vec::new(), [f64::INFINITY; 3]);
        for (row, column) in solved(&columns).into_iter().enumerate() {
            match column {
                Some(column) => {
                    taken.push(columns[column]);
                    of_rows.push(row);
                }
                None => (0..3).for_each(|kind| waiting[kind] = waiting[kind].min(costs[row][kind])),
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
