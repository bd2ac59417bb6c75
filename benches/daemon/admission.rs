//! What a slot costs the caller, and how long a status takes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lrs::clock::boot_time;
use lrs_bench::stats::Spread;
use lrs_testbed::groups::cpu_mount;

use crate::client::Rpc;
use crate::node::Node;
use crate::{Effort, cpus, section, work};

pub fn run(effort: Effort) {
    let count = effort.pick(100, 20);
    section(&format!("Admission, idle node, {count} runs each"));
    println!("| what | median ms | p99 ms |\n|---|---|---|");
    let node = Node::start("");
    let procs = own_group();
    let rows: [(&str, &dyn Fn() -> Command); 6] = [
        ("`true`", &|| Command::new("true")),
        ("`true` by way of this program", &|| work::command(&["exec", "true"])),
        ("the same after a bare write to cgroup.procs", &|| {
            work::command(&["join", &procs.to_string_lossy(), "true"])
        }),
        ("`lrsctl --version`: no daemon", &|| node.ctl(&["--version"])),
        ("`lrsctl status`: one call", &|| node.ctl(&["status"])),
        ("`lrsctl run -- true`", &|| node.ctl(&["run", "--", "true"])),
    ];
    // One of each in turn, so that all see the same node.
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..count {
        for (row, (_, command)) in rows.iter().enumerate() {
            times[row].push(wall(command()));
        }
    }
    for ((name, _), times) in rows.iter().zip(&times) {
        let spread = Spread::millis(times).expect("readings");
        println!("| {name} | {:.2} | {:.2} |", spread.median(), spread.quantile(0.99));
    }
    admit_alone(&node, count);
    std::fs::remove_dir(procs.parent().expect("a group")).expect("the group is empty");
    drop(node);
    if Path::new("/run/systemd/system").exists() {
        let times: Vec<_> = (0..count)
            .map(|_| {
                let mut command = Command::new("systemd-run");
                command.args(["--quiet", "--scope", "--", "true"]);
                wall(command)
            })
            .collect();
        let spread = Spread::millis(&times).expect("readings");
        let (median, p99) = (spread.median(), spread.quantile(0.99));
        println!("| `systemd-run --scope -- true` | {median:.2} | {p99:.2} |");
    } else {
        println!("\nNo systemd here: `systemd-run --scope` not measured.");
    }
    status(effort);
}

/// A group of our own for the bare write, in the hierarchy with the cpu controller.
fn own_group() -> std::path::PathBuf {
    let (mount, _) = cpu_mount().expect("cgroups");
    let dir = mount.join(crate::node::bare_name(crate::supervisor()));
    std::fs::create_dir(&dir).expect("a group of our own");
    dir.join("cgroup.procs")
}

fn wall(mut command: Command) -> Duration {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = boot_time();
    let status = command.status().expect("the command runs");
    assert!(status.success(), "{command:?}: {status}");
    boot_time().since(begun)
}

/// The call alone, on a connection that stands.
fn admit_alone(node: &Node, count: usize) {
    let mut times = Vec::new();
    for _ in 0..count {
        let mut child = work::start(&["sleep"]);
        let begun = boot_time();
        node.rpc().admit(child.id() as i32);
        times.push(boot_time().since(begun));
        child.kill().expect("kill");
        child.wait().expect("wait");
        node.until(|node| node.rpc().tasks().is_empty());
    }
    let spread = Spread::millis(&times).expect("readings");
    let (median, p99) = (spread.median(), spread.quantile(0.99));
    println!("| Admit alone, on a standing connection | {median:.2} | {p99:.2} |");
}

fn status(effort: Effort) {
    let calls = effort.pick(2000, 200);
    section(&format!("Status call on a standing connection, {calls} calls each"));
    println!("| node | client | p50 ms | p99 ms | max ms |\n|---|---|---|---|---|");
    for saturated in [false, true] {
        let mut node =
            Node::start(&format!("slots.expand = false\nslots.passive = {}", 4 * cpus()));
        if saturated {
            (0..5 * cpus()).for_each(|_| drop(node.task(&["hog"])));
        }
        for real_time in [false, true] {
            let socket = node.socket();
            let spread = Spread::millis(&status_times(socket, calls, real_time)).expect("readings");
            println!(
                "| {} | {} | {:.3} | {:.3} | {:.3} |",
                if saturated { "both tiers full of CPU hogs" } else { "idle" },
                if real_time { "SCHED_FIFO" } else { "ordinary" },
                spread.median(),
                spread.quantile(0.99),
                spread.max()
            );
        }
        node.end_all();
    }
}

/// Times of `calls` calls, by a thread of its own: the policy goes with it.
fn status_times(socket: PathBuf, calls: usize, real_time: bool) -> Vec<Duration> {
    let client = std::thread::spawn(move || {
        if real_time {
            crate::promotion::become_real_time();
        }
        let rpc = Rpc::connect(&socket).expect("lrsd serves");
        let mut times = Vec::new();
        for call in 0..calls {
            std::thread::sleep(Duration::from_micros(200 + (call as u64 * 7919) % 1800));
            let begun = boot_time();
            rpc.status();
            times.push(boot_time().since(begun));
        }
        times
    });
    client.join().expect("the client")
}

/// What the servers' thread would answer in with more weight; its slice stays as it is. One round
/// of each after the other, so that all see the same node.
pub fn by_nice(effort: Effort) {
    const NICE: [i32; 4] = [0, -5, -10, -20];
    let (rounds, calls) = effort.pick((10, 400), (5, 200));
    section(&format!(
        "Status on a saturated node by nice value of the servers, {rounds} x {calls}"
    ));
    let mut node = Node::start(&format!("slots.expand = false\nslots.passive = {}", 4 * cpus()));
    (0..5 * cpus()).for_each(|_| drop(node.task(&["hog"])));
    let servers = rustix::process::Pid::from_raw(node.pid() as i32);
    let mut times = [const { Vec::new() }; NICE.len()];
    for _ in 0..rounds {
        for (nice, times) in NICE.into_iter().zip(&mut times) {
            rustix::process::setpriority_process(servers, nice).expect("setpriority");
            times.extend(status_times(node.socket(), calls, true));
        }
    }
    println!("| nice | p50 ms | p99 ms | max ms |\n|---|---|---|---|");
    for (nice, times) in NICE.iter().zip(&times) {
        let spread = Spread::millis(times).expect("readings");
        let (median, p99, max) = (spread.median(), spread.quantile(0.99), spread.max());
        println!("| {nice} | {median:.3} | {p99:.3} | {max:.3} |");
    }
    node.end_all();
}
