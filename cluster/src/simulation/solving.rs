//! How long the solver takes: a figure that needs no cluster.

use std::time::Duration;

use crate::placement::solver::{MOST, solve};
use rand::RngExt;

use crate::simulation::Clock;
use crate::simulation::figures::Figures;
use crate::simulation::scenario::Scenario;
use crate::simulation::workload::random;

/// `solve_ms`: how long the solver takes for as many tasks as slots, where a task is at its input on a
/// few slots and costs anything elsewhere.
pub fn solver_time(rows: usize, scenario: &Scenario, clock: Clock, done: &dyn Fn(u64)) -> Figures {
    let rows = rows.min(MOST);
    let (mut figures, mut took) = (Figures::default(), Duration::ZERO);
    for round in 0..scenario.rounds {
        let mut rng = random(scenario.seed.wrapping_add(round), 6, 0);
        let mut homes: Vec<[usize; 3]> = Vec::with_capacity(rows);
        let mut costs: Vec<u16> = Vec::with_capacity(rows);
        for _ in 0..rows {
            homes.push([(); 3].map(|()| rng.random_range(0..rows)));
            costs.push(rng.random_range(1..1000));
        }
        let cost = |row: usize, slot: usize| {
            let far = homes[row].iter().all(|home| *home != slot);
            Some(if far { f64::from(costs[row]) + f64::from(costs[slot]) } else { 0.0 })
        };
        let before = clock();
        let solved = solve(rows, rows, cost);
        took += clock().saturating_sub(before);
        debug_assert!(solved.is_ok(), "costs are finite");
        done(round + 1);
    }
    figures.set("solve_ms", took.as_secs_f64() * 1e3 / scenario.rounds.max(1) as f64);
    figures
}
