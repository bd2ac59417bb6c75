//! How long the solver takes: a figure that needs no cluster.

use std::time::Duration;

use crate::placement::solver::{Answer, CostFault, Costs, MOST_STEPS};
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
        figures.warn(objection(&solved, rows).into_iter());
        done(round + 1);
    }
    figures.set("solve_ms", took.as_secs_f64() * 1e3 / scenario.rounds.max(1) as f64);
    figures
}

/// Why the time is not that of a solution.
fn objection(solved: &Result<Answer, CostFault>, rows: usize) -> Option<String> {
    match solved {
        Ok(answer) if answer.hasty == 0 => None,
        Ok(answer) => Some(format!(
            "the solver was stopped with {} of {rows} tasks left, so solve_ms is the time until then",
            answer.hasty
        )),
        Err(fault) => Some(fault.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_until_the_solver_was_stopped_is_marked() {
        let of = |hasty| objection(&Ok(Answer { hasty, ..Answer::default() }), 9);
        assert_eq!(of(0), None);
        assert!(of(3).unwrap().contains("with 3 of 9 tasks left"), "{:?}", of(3));
        assert!(objection(&Err(CostFault { row: 0, cost: -1.0 }), 9).is_some());
    }

    #[test]
    fn more_tasks_than_memory_is_for_are_refused_with_the_key() {
        for (rows, faults) in [(0, 1), (1, 0), (1_000_000, 0), (10_000_000_000, 1)] {
            let found = Scenario { solver: Some(rows), ..Scenario::default() }.check();
            assert_eq!(found.len(), faults, "{found:?}");
            assert!(found.iter().all(|fault| fault.at == "solver"), "{found:?}");
        }
    }
}
