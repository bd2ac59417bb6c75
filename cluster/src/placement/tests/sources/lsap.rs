//! Guo, Fox and Zhou, MapReduce'12: dl-sched (3.1), lsap-sched (3.2, eq. 1 to 3), the uniform costs of
//! its reference 14, lsap-fair-sched (3.3, eq. 4 to 9 and the listing).

use super::*;
use crate::placement::cluster::TaskId;

/// Figure 1: T1 on A and B, T2 on A.
fn figure_1() -> ClusterInput {
    four_nodes([1, 1, 0, 0], vec![job("j", 0, &[("T1", "ab"), ("T2", "a")])])
}

#[test]
fn dl_sched_is_not_optimal() {
    // Fig. 1 (b)
    assert_eq!(together("data-local", &figure_1()), ["j/T1@a+", "j/T2@b+"]);
}

#[test]
fn dl_sched_searches_the_node_then_the_rack_over_all_jobs() {
    let node = vec![job("j", 0, &[("m0", "d")]), job("k", 0, &[("m0", "b"), ("m1", "a")])];
    assert_eq!(together("data-local", &four_nodes([1, 0, 0, 0], node)), ["k/m1@a+"]);
    let rack = vec![job("j", 0, &[("m0", "d")]), job("k", 0, &[("m0", "b")])];
    assert_eq!(together("data-local", &four_nodes([1, 0, 0, 0], rack)), ["k/m0@a+"]);
}

#[test]
fn lsap_is_optimal_where_dl_sched_is_not() {
    // Fig. 1 (c)
    for policy in ["lsap", "lsap-uniform"] {
        assert_eq!(together(policy, &figure_1()), ["j/T1@b+", "j/T2@a+"]);
    }
}

#[test]
fn lsap_costs_size_by_the_best_bandwidth() {
    // eq. 1: 1 MB from b at 1 MB/s and not from c at 0.1 MB/s
    let input = four_nodes([1, 0, 0, 0], vec![job("j", 0, &[("m0", "bc")])]);
    let plan = planned("lsap", &check(input).unwrap());
    assert_eq!(plan.summary.transfer_seconds, Some(1.0));
}

#[test]
fn lsap_drops_the_dearest_where_slots_are_few() {
    // Fig. 2 (b): costs of 10, 1 and 0 on one slot; with two slots of one rack 0 + 1
    let jobs = vec![job("j", 0, &[("m0", "d"), ("m1", "b"), ("m2", "a")])];
    assert_eq!(together("lsap", &four_nodes([1, 0, 0, 0], jobs.clone())), ["j/m2@a+"]);
    assert_eq!(together("lsap", &four_nodes([2, 0, 0, 0], jobs)), ["j/m1@a+", "j/m2@a+"]);
}

#[test]
fn uniform_costs_count_starts_away_from_their_input_whatever_their_size() {
    let mut jobs = vec![job("j", 0, &[("m0", "d"), ("m1", "a"), ("m2", "b")])];
    jobs[0].tasks[0].bytes = 1_000_000_000;
    let input = four_nodes([1, 1, 0, 0], jobs);
    assert_eq!(together("lsap-uniform", &input), ["j/m1@a+", "j/m2@b+"]);
    // a chain: each slot has one task that can only be there
    let jobs = vec![job("j", 0, &[("m0", "ab"), ("m1", "ac"), ("m2", "a")])];
    let chain = together("lsap-uniform", &four_nodes([1, 1, 1, 0], jobs));
    assert_eq!(chain, ["j/m0@b+", "j/m1@c+", "j/m2@a+"]);
}

/// Groups of weights 1 and 1 with a job each.
fn two_groups(slots: [u32; 4], jobs: [JobInput; 2]) -> ClusterInput {
    let jobs = jobs.map(|job| JobInput { group: Some(job.name.clone()), ..job });
    let groups = vec![group("g", 1.0), group("h", 1.0)];
    ClusterInput { groups, ..four_nodes(slots, jobs.to_vec()) }
}

/// The starts with this weight of a second of transfer; a task beyond its share costs 400 (1 - w).
fn fair(alpha: f64, input: ClusterInput) -> Vec<String> {
    let mut cluster = check(input).unwrap();
    let nodes: Vec<_> = cluster.nodes().collect();
    let mut turn = Turn::new(&mut cluster, Duration::ZERO);
    Lsap::Fair { alpha, beta: 400.0 }.assign(&nodes, &mut turn);
    let choices = turn.into_choices();
    let name = |task: TaskId| format!("{}/{}", cluster[cluster[task].job].name, cluster[task].name);
    let mut starts: Vec<String> =
        choices.iter().map(|one| name(one.task) + "@" + &cluster[one.node].name).collect();
    starts.sort();
    starts
}

#[test]
fn lsap_fair_serves_the_group_that_lacks_slots() {
    // eq. 9: g has its two of four slots, h may take two: GFC 0 against 400 x 0.5
    let g = job("g", 0, &[("m0", ""), ("m1", ""), ("m2", ""), ("m3", "")]);
    let g = runs(runs(g, "m0", "c"), "m1", "d");
    let h = job("h", 0, &[("m0", ""), ("m1", "")]);
    let input = two_groups([1, 1, 1, 1], [g, h]);
    assert_eq!(fair(1.0, input).iter().filter(|start| start.starts_with("h/")).count(), 2);
}

#[test]
fn lsap_fair_prefers_tasks_that_can_be_local_among_those_of_a_share() {
    // listing, lines 22 to 27: sto is 1 for each; of g's it is m1, which can be local, and not m0
    let g = runs(job("g", 0, &[("m9", ""), ("m0", "d"), ("m1", "a")]), "m9", "c");
    let h = runs(job("h", 0, &[("m9", ""), ("m0", "b")]), "m9", "d");
    assert_eq!(fair(0.001, two_groups([1, 1, 1, 1], [g, h])), ["g/m1@a", "h/m0@b"]);
}

#[test]
fn lsap_fair_trades_by_alpha() {
    // g has used up its share and is at its input, h lacks slots and is 10 s away: 200 against 10 alpha
    let input = || {
        let g = job("g", 0, &[("m0", ""), ("m1", ""), ("m2", "a")]);
        let g = runs(runs(g, "m0", "c"), "m1", "d");
        two_groups([1, 0, 1, 1], [g, job("h", 0, &[("m0", "c")])])
    };
    assert_eq!(fair(19.0, input()), ["h/m0@a"]);
    assert_eq!(fair(21.0, input()), ["g/m2@a"]);
}
