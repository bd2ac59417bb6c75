//! A user without rights that asks for thousands of streams and reads nothing: what root's
//! `status` takes meanwhile, and the daemon's memory. `LRS_BENCH_LRSD` names another lrsd to
//! compare with.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use lrs::clock::boot_time;
use lrs::proto;
use lrs_bench::stats::Spread;
use prost::Message as _;
use rustix::process::Signal;

use crate::client::Rpc;
use crate::flood::{HUGE, ask, connect_as, memory};
use crate::harness::signal;
use crate::node::Node;
use crate::{Effort, section};

/// The account `nobody`, where there is one; it needs no name.
const USER: u32 = 65_534;

pub fn run(effort: Effort) {
    let (history, attack) = effort.pick((10_200, 8), (1_000, 3));
    let attack = Duration::from_secs(attack);
    section(&format!(
        "{} s of unread streams of one user, {history} events kept",
        attack.as_secs()
    ));
    println!(
        "| attack | status p50 ms | p99 ms | max ms | RSS before MiB | peak | 10 s after | SIGTERM under it s |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, connections, calls) in
        [("none", 0, 0), ("2 connections x 2,040", 2, 2_040), ("200 connections x 100", 200, 100)]
    {
        let mut node = Node::start("slots.expand = false");
        let task = node.task(&["threads", "1"]);
        for turn in 0..history {
            let request = proto::SetPriorityRequest { id: task.id.clone(), priority: turn % 2 + 1 };
            node.rpc().call(async |mut client| client.set_priority(request).await);
        }
        open_to_everybody(&node);
        let before = mib(&node, "VmRSS");
        let mut times = Vec::new();
        let flood = || -> Vec<_> {
            (0..connections)
                .filter_map(|_| {
                    let mut connection = connect_as(USER, &node.socket()).ok()?;
                    let watch = proto::WatchEventsRequest { since: Some(0), no_follow: false };
                    // The daemon may close on whom it has enough of.
                    let _ = ask(
                        &mut connection,
                        "/lrs.v1.Shaper/WatchEvents",
                        &watch.encode_to_vec(),
                        calls,
                        HUGE,
                    );
                    Some(connection)
                })
                .collect()
        };
        let begun = boot_time();
        while boot_time().since(begun) < attack {
            let held = flood();
            let round = boot_time();
            while boot_time().since(round) < Duration::from_secs(4) {
                let asked = boot_time();
                Rpc::connect(&node.socket()).expect("lrsd answers").status();
                times.push(boot_time().since(asked));
                std::thread::sleep(Duration::from_millis(2));
            }
            drop(held);
        }
        let peak = mib(&node, "VmHWM");
        std::thread::sleep(Duration::from_secs(10));
        let after = mib(&node, "VmRSS");
        let held = flood();
        let begun = boot_time();
        signal(node.pid() as i32, Signal::TERM);
        node.ended();
        let end = boot_time().since(begun);
        drop(held);
        let spread = Spread::millis(&times).expect("readings");
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {before:.1} | {peak:.1} | {after:.1} | {:.2} |",
            spread.median(),
            spread.quantile(0.99),
            spread.quantile(1.0),
            end.as_secs_f64()
        );
    }
}

fn mib(node: &Node, field: &str) -> f64 {
    memory(node.pid(), field) as f64 / 1024.0
}

/// The directories of a benchmark are its own; an attacker has to find the socket in them.
fn open_to_everybody(node: &Node) {
    let socket = node.socket();
    for dir in socket.ancestors().skip(1).take_while(|dir| dir.starts_with(crate::scratch())) {
        set_permissions(dir, Permissions::from_mode(0o755)).expect("a directory of ours");
    }
}
