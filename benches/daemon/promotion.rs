//! From the last exit of an active task to the changed weight of the promoted one.
//!
//! Seen from outside, by two threads of this process under SCHED_FIFO that sleep until the
//! kernel wakes them: one polls a pidfd of the task that is going to be killed, the other
//! reads an inotify watch on the weight file of the task that is going to be promoted (write(2)
//! to a file of kernfs reaches inotify like any other). Neither runs in between, so the
//! daemon is disturbed by two wake-ups and nothing else. Both stamps are late by one wake-up of
//! such a thread, which is measured too: the difference is off by the difference of two
//! wake-ups.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use lrs::clock::boot_time;
use lrs::proto;
use lrs::units::BootTime;
use lrs_bench::stats::Spread;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify;
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use crate::harness::signal;
use crate::node::{Files, Node};
use crate::{Effort, cpus, section, work};

pub fn run(effort: Effort) {
    let count = effort.pick(500, 50);
    section(&format!("Promotion latency, {count} promotions each"));
    println!("| node | p50 ms | p99 ms | max ms | measuring thread's wake-up p50 / p99 ms |");
    println!("|---|---|---|---|---|");
    measure("idle: sleeping tasks", &["sleep"], 0, count);
    measure("saturated: both tiers full of CPU hogs", &["hog"], 0, count);
    measure("the same, and A hogs outside LRS", &["hog"], cpus(), count);
}

fn measure(name: &str, worker: &[&str], outside: u32, count: usize) {
    let mut node = Node::start("slots.expand = false\nslots.passive = 8\nslots.passive_max = 8");
    let mut hogs: Vec<_> = (0..outside).map(|_| work::start(&["hog"])).collect();
    let mut active: VecDeque<proto::Task> = (0..cpus()).map(|_| node.task(worker)).collect();
    let ends = Exits::start();
    let weights = Weights::start();
    let wake_ups = Spread::millis(&wake_ups(200.min(count))).expect("readings");
    let mut passive: VecDeque<(proto::Task, i32)> = VecDeque::new();
    let add = |node: &mut Node, passive: &mut VecDeque<_>| {
        let task = node.task(worker);
        let watch = weights.watch(&Files::of(&task));
        passive.push_back((task, watch));
    };
    for _ in 0..8 {
        add(&mut node, &mut passive);
    }
    let mut latencies = Vec::new();
    for round in 0..count {
        let ending = active.pop_front().expect("an active task");
        let (promoted, watch) = passive.pop_front().expect("a passive task");
        let files = Files::of(&promoted);
        let before = (files.is_idle(), files.weight());
        let pid = ending.pid.expect("a pid");
        ends.arm(pid);
        // Not in step with anything: the daemon is asleep again, or in whatever it does then.
        std::thread::sleep(Duration::from_micros(1000 + (round as u64 * 7919) % 4000));
        weights.discard();
        signal(pid, Signal::KILL);
        let ended = ends.ended();
        let changed = weights.changed(watch);
        let after = (files.is_idle(), files.weight());
        assert!(before != after && !after.0, "{before:?} became {after:?}");
        latencies.push(changed.since(ended));
        node.disown(pid).wait().expect("wait");
        active.push_back(promoted);
        add(&mut node, &mut passive);
    }
    let spread = Spread::millis(&latencies).expect("readings");
    println!(
        "| {name} | {:.3} | {:.3} | {:.3} | {:.3} / {:.3} |",
        spread.median(),
        spread.quantile(0.99),
        spread.max(),
        wake_ups.median(),
        wake_ups.quantile(0.99)
    );
    for hog in &mut hogs {
        hog.kill().expect("kill");
        hog.wait().expect("wait");
    }
}

/// Puts the calling thread before all ordinary ones.
pub fn become_real_time() {
    let parameters = libc::sched_param { sched_priority: 50 };
    // SAFETY: `parameters` lives over the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) };
    assert_eq!(result, 0, "SCHED_FIFO: {}", std::io::Error::last_os_error());
}

/// Tells when a process ended.
pub struct Exits {
    arm: Sender<OwnedFd>,
    armed: Receiver<()>,
    ended: Receiver<BootTime>,
}

impl Exits {
    pub fn start() -> Exits {
        let (arm, fds) = channel::<OwnedFd>();
        let (tell_armed, armed) = channel();
        let (tell, ended) = channel();
        std::thread::spawn(move || {
            become_real_time();
            for fd in fds {
                tell_armed.send(()).expect("the benchmark listens");
                let mut fds = [PollFd::new(&fd, PollFlags::IN)];
                poll(&mut fds, None).expect("poll");
                tell.send(boot_time()).expect("the benchmark listens");
            }
        });
        Exits { arm, armed, ended }
    }

    pub fn arm(&self, pid: i32) {
        let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
        let fd = pidfd_open(pid, PidfdFlags::empty()).expect("a pidfd");
        self.arm.send(fd).expect("the thread listens");
        self.armed.recv().expect("the thread answers");
    }

    pub fn ended(&self) -> BootTime {
        self.ended.recv().expect("the thread answers")
    }
}

/// Tells when weight files were written.
pub struct Weights {
    inotify: std::sync::Arc<OwnedFd>,
    written: Receiver<(i32, BootTime)>,
}

impl Weights {
    pub fn start() -> Weights {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let fd = std::sync::Arc::new(inotify::init(flags).expect("inotify"));
        let (tell, written) = channel();
        let inotify = std::sync::Arc::clone(&fd);
        std::thread::spawn(move || {
            become_real_time();
            let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
            loop {
                let mut fds = [PollFd::new(&fd, PollFlags::IN)];
                poll(&mut fds, None).expect("poll");
                let at = boot_time();
                let mut reader = inotify::Reader::new(fd.as_fd(), &mut buffer);
                while let Ok(event) = reader.next() {
                    let modified = event.events().contains(inotify::ReadFlags::MODIFY);
                    if modified && tell.send((event.wd(), at)).is_err() {
                        return;
                    }
                }
            }
        });
        Weights { inotify, written }
    }

    pub fn watch(&self, files: &Files) -> i32 {
        inotify::add_watch(&*self.inotify, &files.weight, inotify::WatchFlags::MODIFY)
            .expect("a watch on the weight")
    }

    fn discard(&self) {
        while self.written.try_recv().is_ok() {}
    }

    pub fn changed(&self, watch: i32) -> BootTime {
        loop {
            let patience = Duration::from_secs(20);
            let (found, at) = self.written.recv_timeout(patience).expect("a promotion");
            if found == watch {
                return at;
            }
        }
    }
}

/// How late a measuring thread is: from just before it is woken to its own stamp.
fn wake_ups(count: usize) -> Vec<Duration> {
    let bell = std::sync::Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"));
    let heard = std::sync::Arc::clone(&bell);
    let (tell, times) = channel();
    let thread = std::thread::spawn(move || {
        become_real_time();
        for _ in 0..count {
            rustix::io::read(&*heard, &mut [0u8; 8]).expect("the bell");
            tell.send(boot_time()).expect("the benchmark listens");
        }
    });
    let late = (0..count)
        .map(|round| {
            std::thread::sleep(Duration::from_micros(500 + (round as u64 * 7919) % 1500));
            let rung = boot_time();
            rustix::io::write(&*bell, &1u64.to_ne_bytes()).expect("the bell");
            times.recv().expect("the thread answers").since(rung)
        })
        .collect();
    thread.join().expect("the thread ends");
    late
}
