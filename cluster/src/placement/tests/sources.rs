//! What each algorithm starts in small cases, as the sources' listings and sentences have it: the
//! expected starts were written from the sources, before the code was read. Each case names its place.

mod delay;
mod dla;
mod lsap;
mod thesis;

use super::*;

/// A task of a job runs on an active slot.
fn runs(mut job: JobInput, task: &str, node: &str) -> JobInput {
    let found = job.tasks.iter_mut().find(|one| one.name == task).unwrap();
    found.running = Some(on(node));
    job
}

/// A task of a million bytes moves within a rack in 1 s, between the racks `ab` and `cd` in 10 s.
fn four_nodes(slots: [u32; 4], jobs: Vec<JobInput>) -> ClusterInput {
    let mut input = two_racks(jobs);
    for (node, active) in input.nodes.iter_mut().zip(slots) {
        node.slots.active = active;
    }
    input
}

/// The starts in the order of their names, for what decides all of them at once.
fn together(policy: &str, input: &ClusterInput) -> Vec<String> {
    let mut starts = starts(policy, &check(input.clone()).unwrap());
    starts.sort();
    starts
}
