//! Tasks that end at a rate of 1,000 a second: is any end lost, and how late is the successor?

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use lrs::clock::{boot_time, now};
use lrs::proto::event_stream_item::Item;
use rustix::process::Signal;

use crate::client::Rpc;
use crate::harness::signal;
use crate::node::Node;
use crate::{Effort, cost, section};
use lrs_bench::stats::Spread;

/// Between two ends.
const APART: Duration = Duration::from_millis(1);

pub fn run(effort: Effort) {
    let tasks = effort.pick(5_000, 200);
    section(&format!("{tasks} tasks that end 1 ms after each other, the oldest first"));
    let mut node = Node::start("slots.expand = false\nslots.passive = 20000");
    let pids = node.nest(tasks);
    let numbers: HashMap<String, i32> =
        node.rpc().tasks().into_iter().filter_map(|task| Some((task.id, task.pid?))).collect();
    let (opened, open) = channel();
    let socket = node.socket();
    let follower = std::thread::spawn(move || follow(&socket, tasks, &opened));
    open.recv().expect("the events are followed");
    let cpu = cost::cpu_of(node.pid());
    let mut killed = Vec::with_capacity(tasks);
    let begun = boot_time();
    for (number, pid) in (0u32..).zip(&pids) {
        std::thread::sleep((APART * number).saturating_sub(boot_time().since(begun)));
        killed.push(now().wall.unix_micros());
        signal(*pid, Signal::KILL);
    }
    let took = boot_time().since(begun);
    node.until(|node| node.rpc().tasks().is_empty());
    let cpu = (cost::cpu_of(node.pid()) - cpu).as_secs_f64() * 1e6 / tasks as f64;

    let ended: HashMap<i32, i64> = pids.iter().copied().zip(killed.iter().copied()).collect();
    let (mut completed, mut lost, mut late, mut after) = (0, 0, Vec::new(), Vec::new());
    // Ends of active tasks with a slot that is free yet, in the order of the events: an end is
    // reported before the promotion that follows from it.
    let mut freed = VecDeque::new();
    let mut promoted = 0;
    for item in follower.join().expect("the events") {
        match item {
            Item::Lost(count) => lost += count,
            Item::Event(event) => {
                let at =
                    event.at.map_or(0, |at| at.seconds * 1_000_000 + i64::from(at.nanos) / 1000);
                match event.r#type.as_str() {
                    "completed" => {
                        completed += 1;
                        let pid = event.task.and_then(|id| numbers.get(&id).copied());
                        let end = pid.and_then(|pid| ended.get(&pid)).copied();
                        late.extend(end.map(|end| at - end));
                        if event.from.as_deref() == Some("active") {
                            freed.push_back(end);
                        }
                    }
                    "promoted" => {
                        after.extend(freed.pop_front().flatten().map(|end| at - end));
                        promoted += 1;
                    }
                    _ => {}
                }
            }
        }
    }
    println!("| | |\n|---|---|");
    println!("| ends a second | {:.0} |", tasks as f64 / took.as_secs_f64());
    println!("| events lost | {lost} |");
    println!("| completed / promoted | {completed} / {promoted} of {tasks} |");
    for (name, micros) in [("kill to completed", late), ("kill to promoted", after)] {
        let spread = Spread::new(micros.iter().map(|micros| *micros as f64 / 1e3).collect())
            .expect("readings");
        let (median, p99, max) = (spread.median(), spread.quantile(0.99), spread.max());
        println!("| {name}, ms: p50, p99, max | {median:.2}, {p99:.2}, {max:.2} |");
    }
    println!("| daemon CPU per end, us | {cpu:.0} |");
    node.end_all();
}

/// Follows the events until `tasks` have completed.
fn follow(socket: &Path, tasks: usize, opened: &Sender<()>) -> Vec<Item> {
    let rpc = Rpc::connect(socket).expect("lrsd serves");
    let mut completed = 0;
    let opened = || opened.send(()).expect("the benchmark waits");
    rpc.events(opened, |item| {
        if let Item::Event(event) = item {
            completed += usize::from(event.r#type == "completed");
        }
        completed == tasks
    })
}
