//! The active tier's share of the CPU time both tiers use, when both want all of it.

use std::time::Duration;

use lrs::clock::boot_time;
use lrs_bench::stats::Spread;

use crate::node::{Files, Node};
use crate::{Effort, cpus, section};

pub fn run(effort: Effort) {
    let windows = effort.pick(5, 2);
    let window = effort.pick(Duration::from_secs(2), Duration::from_millis(500));
    section(&format!(
        "Active share of CPU, {} active hogs, {windows} windows of {} s each",
        cpus(),
        window.as_secs_f64()
    ));
    println!("| tiers by | passive hogs | median | worst window | CPUs used by both tiers |");
    println!("|---|---|---|---|---|");
    for how in ["idle", "weight"] {
        let most = 4 * cpus();
        let mut node = Node::start(&format!(
            "slots.expand = false\nslots.passive = {most}\ntiers.passive_cpu = {how:?}"
        ));
        let active: Vec<Files> = (0..cpus()).map(|_| Files::of(&node.task(&["hog"]))).collect();
        let mut passive = Vec::new();
        for number in 1..=most {
            passive.push(Files::of(&node.task(&["hog"])));
            std::thread::sleep(Duration::from_millis(300));
            let (shares, used): (Vec<f64>, Vec<f64>) =
                (0..windows).map(|_| share(&active, &passive, window)).unzip();
            let [shares, used] =
                [shares, used].map(|values| Spread::new(values).expect("readings"));
            println!(
                "| {how} | {number} | {:.4} | {:.4} | {:.2} |",
                shares.median(),
                shares.min(),
                used.median()
            );
        }
    }
}

fn share(active: &[Files], passive: &[Files], window: Duration) -> (f64, f64) {
    let read = |files: &[Files]| files.iter().map(|files| files.cpu().as_secs_f64()).sum::<f64>();
    let (begun, before) = (boot_time(), (read(active), read(passive)));
    std::thread::sleep(window);
    let (ended, after) = (boot_time(), (read(active), read(passive)));
    let (active, passive) = (after.0 - before.0, after.1 - before.1);
    (active / (active + passive), (active + passive) / ended.since(begun).as_secs_f64())
}
