//! What a full passive tier of CPU hogs costs A active tasks.
//!
//! A round is three runs of the same fixed work in A active slots: beside an empty passive
//! tier, beside a full one, and beside an empty one again, in an order that changes from round
//! to round. Full over empty is the slowdown, empty over empty the noise floor. The active
//! tasks keep their slots until all have finished, so that no task is promoted meanwhile.

use lrs_bench::stats::{Interval, Spread, median_interval};

use crate::node::Node;
use crate::work::Timed;
use crate::{Effort, cpus, section};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    Empty,
    Full,
    EmptyAgain,
}

pub fn run(effort: Effort) {
    let pairs = effort.pick(15, 3);
    section(&format!(
        "Slowdown of {} active tasks beside {} passive CPU hogs, {pairs} interleaved rounds",
        cpus(),
        4 * cpus()
    ));
    println!("| work | tiers by | run s | full / empty (95 %) | empty / empty (95 %) | target |");
    println!("|---|---|---|---|---|---|");
    for how in ["idle", "weight"] {
        measure("CPU-bound", how, pairs, "1.03", |_| {
            vec!["cpu".into(), effort.pick(1_200_000_000u64, 300_000_000).to_string()]
        });
        measure("sort and fdatasync", how, pairs, "1.08", |number| {
            let file = crate::scratch_on_disk().join(number.to_string());
            let rounds = effort.pick(600, 100).to_string();
            vec!["fsync".into(), rounds, file.to_string_lossy().into_owned()]
        });
    }
}

fn measure(name: &str, how: &str, pairs: usize, target: &str, work: impl Fn(u32) -> Vec<String>) {
    let most = 4 * cpus();
    let mut node = Node::start(&format!(
        "slots.expand = false\nslots.passive = {most}\ntiers.passive_cpu = {how:?}"
    ));
    let (mut slower, mut floor, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let mut order = [Tier::Empty, Tier::Full, Tier::EmptyAgain];
        order.rotate_left(pair % 3);
        let mut seconds = [0.0; 3];
        for tier in order {
            seconds[tier as usize] = one_run(&mut node, tier, &work);
        }
        slower.push(seconds[Tier::Full as usize] / seconds[Tier::Empty as usize]);
        floor.push(seconds[Tier::EmptyAgain as usize] / seconds[Tier::Empty as usize]);
        alone.push(seconds[Tier::Empty as usize]);
    }
    for number in 0..cpus() {
        if let [_, _, file] = &work(number)[..] {
            std::fs::remove_file(file).expect("the file of a worker");
        }
    }
    let [slower, floor, alone] =
        [slower, floor, alone].map(|values| Spread::new(values).expect("readings"));
    let (ratio, Interval { low, high }) = (slower.median(), median_interval(&slower));
    let (noise, of_noise) = (floor.median(), median_interval(&floor));
    println!(
        "| {name} | {how} | {:.2} | {ratio:.3} ({low:.3} to {high:.3}) | {noise:.3} \
         ({:.3} to {:.3}) | {target} |",
        alone.median(),
        of_noise.low,
        of_noise.high
    );
}

/// Mean time of the active tasks, in seconds.
fn one_run(node: &mut Node, tier: Tier, work: &impl Fn(u32) -> Vec<String>) -> f64 {
    let mut active: Vec<Timed> = (0..cpus())
        .map(|number| {
            let words = work(number);
            let worker = Timed::start(&words.iter().map(String::as_str).collect::<Vec<_>>());
            node.rpc().admit(worker.pid());
            worker
        })
        .collect();
    if tier == Tier::Full {
        (0..4 * cpus()).for_each(|_| drop(node.task(&["hog"])));
    }
    active.iter_mut().for_each(Timed::go);
    let total: f64 = active.iter_mut().map(|worker| worker.took().as_secs_f64()).sum();
    // The hogs first: none is to be promoted into a slot that has just come free.
    node.end_hogs();
    active.into_iter().for_each(Timed::end);
    node.end_all();
    total / f64::from(cpus())
}
