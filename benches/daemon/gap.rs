//! How long a slot that comes free stays empty while requests wait: from the pidfd of the task that
//! ended to the answer, and to the first instruction of a command.
//!
//! The end is stamped by a thread under SCHED_FIFO that polls the pidfd, the rest by the waiting
//! program itself, which is an ordinary one: its own wake-up is part of the gap.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lrs::units::BootTime;
use lrs_bench::stats::Spread;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use crate::harness::signal;
use crate::node::Node;
use crate::promotion::Exits;
use crate::{Effort, cpus, section, work};

/// Requests that wait at a time.
const WAITING: usize = 3;

pub fn run(effort: Effort) {
    let count = effort.pick(100, 50);
    section(&format!("A freed slot with {WAITING} requests waiting, {count} ends each"));
    println!("| from the end of a task to | median ms | p90 ms | max ms |\n|---|---|---|---|");
    measure("the answer, on a connection that stands", count, |node| {
        work::command(&["wait", &node.socket().to_string_lossy()])
    });
    measure("the first instruction of `lrsctl run --wait -- COMMAND`", count, |node| {
        let me = std::env::current_exe().expect("the path of this benchmark");
        node.ctl(&["run", "--wait", "--", &me.to_string_lossy(), work::WORD, "stamp"])
    });
}

fn measure(name: &str, count: usize, waiter: impl Fn(&Node) -> Command) {
    // On a busy machine an idle root would be part of the gap.
    let mut node = Node::start("slots.expand = false\nslots.passive = 2\ntiers.root_weight = 1000");
    let mut running: VecDeque<Child> = VecDeque::new();
    for _ in 0..cpus() + 2 {
        let task = node.task(&["sleep"]);
        running.push_back(node.disown(task.pid.expect("a pid")));
    }
    let mut waiting: VecDeque<Child> = VecDeque::new();
    let ends = Exits::start();
    let mut gaps = Vec::new();
    for round in 0..count {
        while waiting.len() < WAITING {
            let mut command = waiter(&node);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            waiting.push_back(command.spawn().expect("a client starts"));
        }
        // Until they are all waiting, and not in step with anything.
        std::thread::sleep(Duration::from_millis(150 + (round as u64 * 7919) % 100));
        let mut ending = running.pop_front().expect("a task");
        let pid = ending.id() as i32;
        ends.arm(pid);
        signal(pid, Signal::KILL);
        let ended = ends.ended();
        let (answered, next) = first_answer(&mut waiting);
        gaps.push(answered.since(ended));
        running.push_back(next);
        ending.wait().expect("wait");
    }
    for mut child in waiting.into_iter().chain(running) {
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
    let spread = Spread::millis(&gaps).expect("readings");
    println!(
        "| {name} | {:.2} | {:.2} | {:.2} |",
        spread.median(),
        spread.quantile(0.9),
        spread.max()
    );
}

/// The client that got the slot: those that started together are not in a known order.
fn first_answer(waiting: &mut VecDeque<Child>) -> (BootTime, Child) {
    let mut polled: Vec<_> = waiting
        .iter()
        .map(|client| PollFd::new(client.stdout.as_ref().expect("piped"), PollFlags::IN))
        .collect();
    poll(&mut polled, None).expect("poll");
    let at = polled.iter().position(|one| !one.revents().is_empty()).expect("one that answers");
    let mut client = waiting.remove(at).expect("a client");
    (stamp(&mut client), client)
}

/// What [`work`] says with `wait` and `stamp`.
fn stamp(child: &mut Child) -> BootTime {
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    BootTime(Duration::from_micros(line.trim().parse().expect("a number")))
}
