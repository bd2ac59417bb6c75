//! How long the solver takes: a figure that needs no cluster.

use std::time::Duration;

use crate::placement::solver::{Costs, MOST_STEPS};
use rand::RngExt;

use crate::simulation::Clock;
use crate::simulation::figures::Figures;
use crate::simulation::scenario::Scenario;
use crate::simulation::workload::random;

/// `solve_ms`: how long the solver takes for as many tasks as slots, where a task is at its input on a
/// few slots and costs something of its own elsewhere.
pub fn solver_time(rows: usize, scenario: &Scenario, clock: Clock, done: &dyn Fn(u64)) -> Figures {
    let (mut figures, mut took) = (Figures::default(), Duration::ZERO);
    for round in 0..scenario.rounds {
        let mut rng = random(scenario.seed.wrapping_add(round), 6, 0);
        let mut costs = Costs::new(vec![1; rows], vec![(0..rows).collect()]);
        for _ in 0..rows {
            let homes = [(); 3].map(|()| (rng.random_range(0..rows), Some(0.0)));
            costs.add(homes, [(0, rng.random_range(1.0..1000.0))]);
        }
        let before = clock();
        let solved = costs.solve(None, MOST_STEPS);
        took += clock().saturating_sub(before);
        debug_assert!(solved.is_ok(), "costs are finite");
        done(round + 1);
    }
    figures.set("solve_ms", took.as_secs_f64() * 1e3 / scenario.rounds.max(1) as f64);
    figures
}
