//! Ru et al., DLAforBT (section II, Alg. 1, Fig. 1), with its prediction; dominant resource fairness,
//! by the example of Ghodsi et al. that its reference 5 builds on.

use super::*;

fn cpus(cpus: f64) -> Resources {
    Resources { cpus, ..Resources::default() }
}

/// Nodes of two slots and as many CPUs as given, and one job of tasks that want `demand` CPUs.
fn busy(of_nodes: [f64; 4], demand: f64, tasks: &[(&str, &str)]) -> ClusterInput {
    let mut input = four_nodes([3; 4], vec![job("j", 0, tasks)]);
    input.jobs[0].tasks.iter_mut().for_each(|task| task.demand = cpus(demand));
    for (node, of_node) in input.nodes.iter_mut().zip(of_nodes) {
        node.capacity = Some(cpus(of_node));
    }
    input
}

/// A task of a CPU that ends after so many seconds runs on a node.
fn until(input: &mut ClusterInput, name: &str, node: &str, seconds: Option<f64>) {
    let running = Some(RunningInput { remaining_seconds: seconds, ..on(node) });
    input.jobs[0].tasks.push(TaskInput { running, demand: cpus(1.0), ..task(name, "") });
}

#[test]
fn of_the_nodes_with_the_input_the_idlest_is_taken() {
    // section II: the preferred node with the maximum weight, 1 - its utilisation
    let mut input = busy([4.0; 4], 1.0, &[("m0", "ab")]);
    until(&mut input, "m9", "a", None);
    assert_eq!(together("dla", &input), ["j/m0@b+"]);
}

#[test]
fn a_task_makes_its_node_less_idle_for_the_next() {
    // Fig. 1, steps 2 to 4: task 1 on DataNode 1, task 2 on DataNode 2, though both hold both inputs
    let input = busy([4.0; 4], 1.0, &[("m0", "ab"), ("m1", "ab")]);
    let plan = planned("dla", &check(input).unwrap());
    assert_ne!(plan.assigned[0].node, plan.assigned[1].node);
    assert_eq!(plan.summary.node_local, 2);
}

#[test]
fn waiting_and_moving_are_decided_by_the_predicted_release() {
    // Alg. 1, lines 20 to 28: the input is on a alone and moves to b in 1 s
    for (release, expected) in
        [(Some(0.9), None), (Some(1.1), Some("j/m0@b+")), (None, Some("j/m0@b+"))]
    {
        let mut input = busy([1.0; 4], 1.0, &[("m0", "a")]);
        until(&mut input, "m9", "a", release);
        assert_eq!(together("dla", &input), Vec::from_iter(expected), "{release:?}");
    }
}

#[test]
fn the_release_is_that_of_enough_resources() {
    // Fig. 1, step 5: the time until enough is released: of two CPUs the second, after 2 s
    for (second, expected) in [(0.9, None), (2.0, Some("j/m0@b+"))] {
        let mut input = busy([2.0; 4], 2.0, &[("m0", "a")]);
        until(&mut input, "m8", "a", Some(0.5));
        until(&mut input, "m9", "a", Some(second));
        assert_eq!(together("dla", &input), Vec::from_iter(expected), "{second}");
    }
}

#[test]
fn the_smallest_dominant_share_is_next() {
    // 9 CPUs and 18 GB; tasks of <1 CPU, 4 GB> and <3 CPUs, 1 GB>: three of the one, two of the other
    let gigabytes = |cpus, gb| Resources { cpus, memory_bytes: gb * 1e9, disk_bytes: 0.0 };
    let names = ["m0", "m1", "m2", "m3", "m4"].map(|name| (name, ""));
    let mut input = four_nodes([9, 0, 0, 0], vec![job("A", 0, &names), job("B", 0, &names)]);
    for (job, demand) in input.jobs.iter_mut().zip([gigabytes(1.0, 4.0), gigabytes(3.0, 1.0)]) {
        job.tasks.iter_mut().for_each(|task| task.demand = demand);
    }
    for (index, node) in input.nodes.iter_mut().enumerate() {
        node.capacity = Some(if index == 0 { gigabytes(9.0, 18.0) } else { gigabytes(0.0, 0.0) });
    }
    let starts = together("dla", &input);
    assert_eq!(starts, ["A/m0@a+", "A/m1@a+", "A/m2@a+", "B/m0@a+", "B/m1@a+"]);
}

#[test]
fn dominant_is_the_largest_share_of_any_resource() {
    // of 4 CPUs and 100 GB of disk: A has half of the CPUs, B three quarters of the disk
    let of = |cpus, disk| Resources { cpus, memory_bytes: 0.0, disk_bytes: disk * 1e9 };
    let jobs = [job("A", 0, &[("m9", ""), ("m0", "")]), job("B", 0, &[("m9", ""), ("m0", "")])];
    let mut input = four_nodes([3, 0, 0, 0], jobs.map(|job| runs(job, "m9", "a")).to_vec());
    for (job, demand) in input.jobs.iter_mut().zip([of(2.0, 1.0), of(1.0, 75.0)]) {
        job.tasks[0].demand = demand;
        job.tasks[1].demand = of(0.5, 1.0);
    }
    for (index, node) in input.nodes.iter_mut().enumerate() {
        node.capacity = Some(if index == 0 { of(4.0, 100.0) } else { of(0.0, 0.0) });
    }
    assert_eq!(together("dla", &input), ["A/m0@a+"]);
}

#[test]
fn an_idle_task_that_fits_is_admitted_though_a_poorer_job_does_not_fit() {
    // section I: as many jobs as possible
    let mut input = busy([2.0, 0.0, 0.0, 0.0], 3.0, &[("m0", "")]);
    let mut small = job("k", 0, &[("m0", "")]);
    small.tasks[0].demand = cpus(1.0);
    input.jobs.push(small);
    assert_eq!(together("dla", &input), ["k/m0@a+"]);
}
