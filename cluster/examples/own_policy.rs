//! A policy of one's own: planned for a file, and compared with the shipped ones on the same jobs.
//!
//! `cargo run -p lrs-place --example own_policy`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use lrs_place::placement::catalogue::Entry;
use lrs_place::placement::check::parse;
use lrs_place::placement::cluster::{JobId, Locality, NodeId};
use lrs_place::placement::input::Kind;
use lrs_place::placement::plan::plan;
use lrs_place::placement::turn::{Policy, Reason, Turn};
use lrs_place::simulation::report::tables;
use lrs_place::simulation::suite::{Suite, outcome};

/// The job with the fewest waiting tasks first: small jobs do not wait for large ones.
struct SmallestFirst;

impl Policy for SmallestFirst {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        for node in nodes {
            while let Some(tier) = turn.cluster()[*node].next_free() {
                let cluster = turn.cluster();
                let mut jobs: Vec<JobId> = cluster.queue().collect();
                jobs.sort_by_key(|job| cluster[*job].waiting_tasks());
                let next = jobs.into_iter().find_map(|job| {
                    let of = |kind| cluster.first(job, kind, *node, Locality::Remote);
                    of(Kind::Map).or_else(|| of(Kind::Reduce))
                });
                let Some(task) = next else { break };
                turn.start(task, *node, tier, Reason::Own("of the smallest job"));
            }
        }
    }
}

/// How it is asked for.
const SMALLEST_FIRST: Entry = Entry {
    name: "smallest-first",
    about: "the job with the fewest waiting tasks first",
    source: "this example",
    needs: &[],
    together: false,
    make: |_| Box::new(SmallestFirst),
};

const SUITE: &str = r#"
title = "Small jobs beside large ones"
figures = ["job_mean:small", "job_mean:large", "makespan"]
seeds = 6
policies = ["fifo", "delay", "smallest-first"]
job = [
    { name = "small", jobs = 6, maps = 3, map = { seconds = 10, bytes = 1000000 } },
    { name = "large", jobs = 2, maps = 200, map = { seconds = 10, bytes = 1000000 } },
]
"#;

/// A plan for a file, and the table of a suite.
pub fn run() -> Result<String, Box<dyn Error>> {
    let plan = plan(&SMALLEST_FIRST, &parse(include_bytes!("two-racks.json"))?)?;
    let suite = Suite::with_own(SUITE, &[SMALLEST_FIRST])?;
    // The clock measures how long deciding takes; this one measures nothing.
    let found = outcome(&suite, || Duration::ZERO);
    let first = plan.assigned.first().map_or("nothing", |task| &task.reason);
    let starts = plan.summary.assigned;
    Ok(format!(
        "{starts} tasks of two-racks.json start, the first: {first}\n\n{}",
        tables(&suite, &found)
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run()?);
    Ok(())
}
