//! Why not there: verdicts, costs and prices of small cases, by hand.

use crate::placement::cluster::{NodeId, TaskId};
use crate::placement::explain::{Explanation, Verdict, explain, find_task};
use crate::placement::input::{NetworkInput, PairInput};
use crate::placement::turn::{Policy, Weight};

use super::*;

fn of(policy: &str, cluster: &Cluster, task: &str) -> Explanation {
    let task = find_task(cluster, task).unwrap();
    explain(Entry::find(policy).unwrap(), cluster, task).unwrap()
}

fn costs(explanation: &Explanation) -> Vec<(Option<f64>, Option<f64>)> {
    explanation.nodes.iter().map(|node| (node.cost, node.price)).collect()
}

fn verdicts(explanation: &Explanation) -> Vec<(bool, &str)> {
    explanation.nodes.iter().map(|node: &Verdict| (node.feasible, node.verdict.as_str())).collect()
}

/// Input of 10 MB and of 4 MB on a, which moves at 1 MB/s; c has no slot, d is not connected with a.
fn two_for_one_slot() -> Cluster {
    let mut tasks = vec![task("m0", "a"), task("m1", "a")];
    (tasks[0].bytes, tasks[1].bytes) = (10_000_000, 4_000_000);
    let mut nodes = nodes(&[(1, 0), (1, 0), (0, 0), (1, 0)]);
    nodes[3].capacity = Some(Resources { cpus: 9.0, ..Resources::default() });
    let pairs = vec![PairInput { from: "a".into(), to: "d".into(), bytes_per_sec: None }];
    let network =
        NetworkInput { within_rack_bytes_per_sec: 1e6, between_racks_bytes_per_sec: 1e6, pairs };
    let jobs = vec![JobInput { tasks, ..job("j", 0, &[]) }];
    check(ClusterInput { nodes, network: Some(network), jobs, ..ClusterInput::default() }).unwrap()
}

#[test]
fn the_price_says_why_a_task_is_not_at_its_input() {
    // m0 on a and m1 on b: 4 s. One more slot on a would take these away, one more on b nothing.
    let cluster = two_for_one_slot();
    let small = of("lsap", &cluster, "m1");
    assert_eq!(small.outcome, "starts on b: least sum of costs, its own 4.00");
    assert_eq!(
        costs(&small),
        [(Some(0.0), Some(4.0)), (Some(4.0), Some(0.0)), (Some(4.0), None), (None, Some(0.0))]
    );
    assert_eq!(
        verdicts(&small),
        [
            (true, "feasible, but its free slots go to other tasks"),
            (true, "it starts here: least sum of costs, its own 4.00"),
            (false, "no slot is free"),
            (false, "the node is not connected with its input"),
        ]
    );
    // With the price both are as good, and so the one that was chosen is the best.
    assert_eq!((small.best.as_deref(), small.second_best.as_deref()), (Some("b"), Some("a")));
    let large = of("lsap", &cluster, "j/m0");
    assert_eq!(costs(&large)[..2], [(Some(0.0), Some(4.0)), (Some(10.0), Some(0.0))]);
    assert_eq!((large.best.as_deref(), large.second_best.as_deref()), (Some("a"), Some("b")));
    assert_eq!(serde_json::to_value(&large).unwrap()["nodes"][0]["price"], 4.0);
}

#[test]
fn a_policy_without_prices_has_costs_and_verdicts() {
    let explained = of("data-local", &two_for_one_slot(), "m1");
    assert_eq!(explained.outcome, "starts on b: no input in the rack; first in queue");
    assert_eq!(
        costs(&explained),
        [(Some(0.0), None), (Some(4.0), None), (Some(4.0), None), (None, None)]
    );
    assert_eq!(
        (explained.best.as_deref(), explained.second_best.as_deref()),
        (Some("a"), Some("b"))
    );
    let uniform = of("lsap-uniform", &two_for_one_slot(), "m1");
    assert_eq!(costs(&uniform)[..2], [(Some(0.0), Some(1.0)), (Some(1.0), Some(0.0))]);
}

#[test]
fn what_is_lacking_is_named_for_each_node() {
    let mut busy = task("m0", "a");
    busy.running = Some(on("a"));
    let taking = |cpus, mut task: TaskInput| {
        task.demand = Resources { cpus, ..Resources::default() };
        task
    };
    let tasks = vec![taking(1.0, busy), taking(2.0, task("m1", "a")), taking(9.0, task("m2", "a"))];
    let mut nodes = nodes(&[(2, 0), (1, 0)]);
    nodes[0].capacity = Some(Resources { cpus: 2.0, ..Resources::default() });
    nodes[1].capacity = Some(Resources { cpus: 1.0, ..Resources::default() });
    let network = two_racks(vec![]).network;
    let jobs = vec![JobInput { tasks, ..job("j", 0, &[]) }];
    let cluster = check(ClusterInput { nodes, network, jobs, ..ClusterInput::default() }).unwrap();
    let waits = of("dla", &cluster, "m1");
    assert_eq!(waits.outcome, "waits: the policy starts none of its tasks on the free slots");
    assert_eq!(
        verdicts(&waits),
        [
            (false, "it takes 2 CPUs, and 1 are idle there"),
            (false, "it takes 2 CPUs, the node has 1"),
        ]
    );
    assert_eq!((waits.best, waits.second_best), (None, None));
    assert!(verdicts(&of("fifo", &cluster, "m1"))[0].0, "fifo asks for no room");
    let runs = of("fifo", &cluster, "m0");
    assert_eq!(
        (runs.outcome.as_str(), runs.nodes[0].verdict.as_str()),
        ("runs on a", "it runs here")
    );
    let never = of("fifo", &cluster, "m2").outcome;
    assert_eq!(never, "waits, and can run on no node: no node has 9 CPUs, the largest has 2");
}

#[test]
fn a_task_is_found_by_its_name_or_by_that_of_its_job_too() {
    let jobs = vec![job("j", 0, &[("m0", ""), ("m1", "")]), job("k", 0, &[("m0", "")])];
    let cluster = cluster(&[(1, 0)], jobs);
    let found = |named| find_task(&cluster, named).map(|task| task.number());
    assert_eq!((found("m1"), found("k/m0")), (Ok(1), Ok(2)));
    let what = |named| found(named).unwrap_err().what;
    assert_eq!(what("m0"), "\"m0\" is \"j/m0\" and \"k/m0\"; name it as JOB/TASK");
    assert_eq!(what("m2"), "there is no task \"m2\"; name it as JOB/TASK");
}

#[test]
fn the_outcome_says_why_there_are_no_prices() {
    struct Unpriced;
    impl Policy for Unpriced {
        fn assign(&mut self, _: &[NodeId], _: &mut Turn<'_>) {}
        fn weigh(&self, _: &Cluster, nodes: &[NodeId], _: TaskId) -> Vec<Weight> {
            vec![Weight { unpriced: Some("so many"), ..Weight::default() }; nodes.len()]
        }
    }
    let entry = Entry { make: |_| Box::new(Unpriced), ..*Entry::find("fifo").unwrap() };
    let cluster = two_for_one_slot();
    let explained = explain(&entry, &cluster, find_task(&cluster, "m0").unwrap()).unwrap();
    assert!(explained.outcome.ends_with("; no prices: so many"), "{}", explained.outcome);
}
