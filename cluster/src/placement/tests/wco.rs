//! WCO: computing beside I/O, samples, the pool.

use super::*;
use crate::placement::wco::Wco;

/// Jobs `c` and `i` of rates 1 and 0, three tasks each, one of `c` running on a, one of `i` on b.
fn computing_and_io() -> Vec<JobInput> {
    let of = |name: &str, rate, node: &str| {
        let mut job = job(name, 0, &[("m0", ""), ("m1", ""), ("m2", "")]);
        job.computing_rate = Some(rate);
        job.tasks[0].running = Some(on(node));
        job
    };
    vec![of("c", 1.0, "a"), of("i", 0.0, "b")]
}

#[test]
fn wco_puts_computing_beside_io() {
    let cluster = cluster(&[(2, 0), (2, 0)], computing_and_io());
    assert_eq!(starts("wco", &cluster), ["i/m1@a+", "c/m1@b+"]);
    let plan = planned("wco", &cluster);
    assert_eq!(plan.assigned[0].reason, "suits, mean rate there 0.50");
}

#[test]
fn wco_keeps_one_kind_apart_until_slots_outnumber_tasks() {
    let mut jobs = computing_and_io();
    jobs[1].tasks.truncate(1);
    let tight = cluster(&[(2, 0), (1, 0)], jobs.clone());
    let plan = planned("wco", &tight);
    assert!(plan.assigned.is_empty(), "a second computing task would not suit a");
    assert_eq!(plan.waiting[0].reason, "the nodes with free slots would be bound by one resource");
    let plan = planned("wco", &cluster(&[(4, 0), (1, 0)], jobs));
    assert_eq!(plan.assigned[1].reason, "more free slots than tasks");
}

#[test]
fn wco_measures_a_job_by_one_task_first() {
    let mut jobs = computing_and_io();
    jobs.insert(0, job("new", 0, &[("m0", ""), ("m1", ""), ("m2", "")]));
    jobs[0].arrived = 5.0;
    let plan = planned("wco", &cluster(&[(3, 0), (2, 0)], jobs));
    let samples = plan.assigned.iter().filter(|task| task.job == "new");
    let reasons: Vec<&str> = samples.map(|task| task.reason.as_str()).collect();
    assert_eq!(reasons, ["sample, its job has no rate"]);
}

#[test]
fn wco_looks_at_the_first_jobs_only() {
    let mut cluster = cluster(&[(2, 0), (1, 0)], computing_and_io());
    let nodes: Vec<_> = cluster.nodes().collect();
    let mut wco = Wco { pool: 1, ..Wco::default() };
    let mut turn = Turn::new(&mut cluster, Duration::ZERO);
    wco.assign(&nodes, &mut turn);
    assert!(turn.choices.is_empty(), "i would suit a, but c is first: {:?}", turn.choices);
}

#[test]
fn a_rate_is_the_mean_of_the_tasks_that_ended() {
    let mut cluster = cluster(&[(1, 0), (1, 0)], computing_and_io());
    let job = cluster.jobs().next().unwrap();
    for (rate, mean) in [(0.4, 0.4), (0.8, 0.6), (0.0, 0.4)] {
        cluster.learn(job, lrs_core::units::Share::clamped(rate));
        assert!((cluster[job].rate.unwrap().value() - mean).abs() < 1e-12);
    }
}
