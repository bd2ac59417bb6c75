//! WCO: computing beside I/O, samples, the pool.

use super::*;
use crate::placement::wco::{MeanOf, Wco};

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

#[test]
fn wco_has_three_readings_of_the_mean_that_it_compares_with() {
    // one task of rate 0.9 runs on a, twice as many of 0.6 on b, none of 0; a free slot of a
    let of = |name: &str, rate, tasks: &[&str], running: &[(&str, &str)]| {
        let named: Vec<(&str, &str)> = tasks.iter().map(|task| (*task, "")).collect();
        let mut job = job(name, 0, &named);
        job.computing_rate = Some(rate);
        for (at, (_, node)) in running.iter().enumerate() {
            job.tasks[at].running = Some(on(node));
        }
        job
    };
    let jobs = || {
        vec![
            of("c", 0.9, &["m0"], &[("m0", "a")]),
            of("b", 0.6, &["m0", "m1"], &[("m0", "b"), ("m1", "b")]),
            of("w", 0.85, &["m0", "m1", "m2", "m3"], &[]),
            of("i", 0.0, &["m0", "m1"], &[]),
        ]
    };
    let started = |mean: MeanOf| {
        let mut cluster = cluster(&[(2, 0), (2, 0)], jobs());
        let nodes: Vec<_> = cluster.nodes().collect();
        let mut wco = Wco { mean, threshold: 0.13, ..Wco::default() };
        let mut turn = Turn::new(&mut cluster, Duration::ZERO);
        wco.assign(&nodes, &mut turn);
        let first = turn.choices.first().map(|choice| choice.task);
        let of = first.map(|task| cluster[cluster[task].job].name.clone());
        of.unwrap_or_default()
    };
    // w would bring a to 0.875: beside 0.5875 + 0.13, 0.75 + 0.13 and 0.7 + 0.13
    assert_eq!(started(MeanOf::Pool), "i");
    assert_eq!(started(MeanOf::RunningJobs), "w");
    assert_eq!(started(MeanOf::RunningTasks), "i");
}
