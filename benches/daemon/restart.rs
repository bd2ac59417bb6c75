//! From the start of a daemon that was killed to its first answered status.

use std::time::Duration;

use lrs_bench::stats::Spread;

use crate::node::Node;
use crate::{Effort, section};

pub fn run(effort: Effort) {
    let (tasks, runs) = effort.pick((1000, 10), (100, 3));
    section(&format!("Restart after kill -9 with {tasks} tasks, {runs} runs"));
    let mut node = Node::start("slots.expand = false\nslots.passive = 2000");
    for _ in 0..tasks {
        node.task(&["sleep"]);
    }
    let mut times = Vec::new();
    for _ in 0..runs {
        node.kill();
        times.push(node.launch());
        assert_eq!(node.rpc().tasks().len(), tasks, "no task is forgotten");
        // A cycle, so that each run starts from the same state.
        std::thread::sleep(Duration::from_secs(4));
    }
    let spread = Spread::millis(&times).expect("readings");
    println!("| median ms | slowest of {} ms |\n|---|---|", spread.count());
    println!("| {:.0} | {:.0} |", spread.median(), spread.max());
    node.end_all();
}
