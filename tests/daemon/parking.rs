//! Requests that wait do so in the groups of the tasks they are going to be.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use rustix::net::{Shutdown, SocketAddrUnix, getpeername, shutdown};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open,
};

use crate::harness::Daemon;

/// Two tasks fill it. A cycle comes too late to be what does anything here.
const TWO: &str =
    "daemon.sample_period = \"60s\"\n[slots]\nactive = 1\npassive = 1\nexpand = false\n";

/// Within this a process that waits no longer is where it was, and its group is gone. A second is
/// promised; an emulated machine takes longer.
const AT_ONCE: Duration = Duration::from_secs(5);

fn pid(raw: i32) -> Pid {
    Pid::from_raw(raw).unwrap()
}

fn places(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap()
}

/// Cuts the connections of `process` to the socket at `path`; answers how many.
fn cut(process: i32, path: &Path) -> usize {
    let pidfd = pidfd_open(pid(process), PidfdFlags::empty()).unwrap();
    let fds = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let fds = fds.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let fds = fds.filter_map(|fd| pidfd_getfd(&pidfd, fd, PidfdGetfdFlags::empty()).ok());
    let ours = fds.filter(|fd| {
        let peer = getpeername(fd).ok().and_then(|peer| SocketAddrUnix::try_from(peer?).ok());
        peer.is_some_and(|peer| {
            peer.path().is_some_and(|to| to.to_bytes() == path.as_os_str().as_bytes())
        })
    });
    ours.map(|fd| shutdown(fd, Shutdown::Both).unwrap()).count()
}

/// Sees groups go.
struct Groups(OwnedFd);

impl Groups {
    fn of(daemon: &Daemon) -> Groups {
        let fd = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        for root in daemon.root_dirs() {
            inotify::add_watch(&fd, &root, inotify::WatchFlags::DELETE).unwrap();
        }
        Groups(fd)
    }

    /// Until `is_so`, which is asked again when a group goes.
    fn until(&self, begun: Instant, is_so: impl Fn() -> bool, daemon: &Daemon) {
        while !is_so() {
            let left = AT_ONCE.saturating_sub(begun.elapsed());
            let left = Timespec::try_from(left).unwrap();
            let events = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)).unwrap();
            assert!(events > 0, "not within {AT_ONCE:?}\n{}", daemon.log());
            let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&self.0, &mut buffer);
            while reader.next().is_ok() {}
        }
    }
}

/// A full node, and `count` that wait; where they were before they did.
struct Queue {
    daemon: Daemon,
    tasks: Vec<i32>,
    waiting: Vec<i32>,
    home: String,
}

impl Queue {
    fn new(name: &str, options: &[&str], count: usize) -> Queue {
        let mut daemon = Daemon::start(name, TWO);
        let tasks: Vec<i32> = (0..2).map(|_| daemon.run(&[], &["cat"])).collect();
        daemon.eventually("two tasks", |daemon| (daemon.tasks().len() == 2).then_some(()));
        let home = places(std::process::id() as i32);
        let mut queue = Queue { daemon, tasks, waiting: Vec::new(), home };
        for _ in 0..count {
            let wait = if options.is_empty() { &["--wait"] } else { options };
            let child = queue.daemon.run(wait, &["cat"]);
            queue.waiting.push(child);
            // One after the other, so that they come in this order.
            queue.parked();
        }
        queue
    }

    fn is_parked(&self, pid: i32) -> bool {
        places(pid).contains(&self.daemon.root)
            && self.daemon.tasks().iter().all(|task| task["pid"] != pid)
    }

    /// Until all that wait are in groups of their own.
    fn parked(&self) {
        self.daemon.eventually("all parked", |_| {
            self.waiting.iter().all(|pid| self.is_parked(*pid)).then_some(())
        });
        self.untouched();
    }

    /// They are no tasks.
    fn untouched(&self) {
        let status = self.daemon.status();
        assert_eq!(self.daemon.tasks().len(), self.tasks.len());
        assert_eq!(status["slots"]["active"]["used"], 1);
        assert_eq!(status["slots"]["passive"]["used"], 1);
        let ratio_groups: std::collections::BTreeSet<String> =
            self.daemon.tasks().iter().map(|task| task["ratio_group"].to_string()).collect();
        assert_eq!(ratio_groups.len(), 1);
    }

    /// Until `pid` is where it was and the groups of `left` tasks are all there are.
    fn back(&self, pids: &[i32], begun: Instant) {
        let is_so = || {
            let home = pids.iter().all(|pid| places(*pid) == self.home);
            let names = self.daemon.groups_in_roots().into_iter();
            let names: std::collections::BTreeSet<_> =
                names.filter_map(|group| group.file_name().map(|name| name.to_owned())).collect();
            home && names.len() == self.tasks.len() + self.waiting.len() - pids.len()
        };
        Groups::of(&self.daemon).until(begun, is_so, &self.daemon);
    }

    /// The first task ends; the first that waits becomes one.
    fn next(&mut self) -> i32 {
        let ended = self.tasks.remove(0);
        self.daemon.finish(ended);
        self.daemon.join(ended);
        let next = self.waiting.remove(0);
        self.daemon.task_of(next);
        self.tasks.push(next);
        next
    }

    /// The first task ends; one of those that wait becomes one.
    fn next_of_any(&mut self) {
        let ended = self.tasks.remove(0);
        self.daemon.finish(ended);
        self.daemon.join(ended);
        let next = self.daemon.eventually("a task of one that waits", |daemon| {
            let tasks = daemon.tasks();
            self.waiting.iter().position(|pid| tasks.iter().any(|task| task["pid"] == *pid))
        });
        self.tasks.push(self.waiting.remove(next));
    }

    /// All get a slot in turn, and nothing is left.
    fn finish(mut self) {
        while !self.waiting.is_empty() {
            self.next();
        }
        for task in self.tasks {
            self.daemon.finish(task);
        }
        self.daemon.nothing_left();
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn who_waits_is_in_its_group_and_counts_from_its_slot_on() {
    let mut queue = Queue::new("parked", &[], 2);
    let waiter = queue.waiting[0];
    let group = places(waiter);
    assert_eq!(queue.next(), waiter);
    assert_eq!(places(waiter), group, "it was not moved");
    let task = queue.daemon.task_of(waiter);
    assert!(task["cpu_seconds"].as_f64().unwrap() < 1.0);
    assert!(task["elapsed_seconds"].as_f64().unwrap() < 30.0);
    let tier = task["tier"].as_str().unwrap() == "passive";
    assert_eq!(task["kernel"]["cpu_idle"], tier, "{task}");
    queue.finish();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_daemon_killed_with_parked_requests_runs_none_without_a_slot() {
    let mut queue = Queue::new("killed", &[], 3);
    queue.daemon.kill();
    queue.daemon.launch();
    queue.parked();
    queue.daemon.kill();
    // Nothing is to happen, so there is nothing to wait for.
    std::thread::sleep(Duration::from_millis(300));
    assert!(queue.waiting.iter().all(|pid| places(*pid).contains(&queue.daemon.root)));
    queue.daemon.launch();
    queue.parked();
    queue.finish();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_parked_request_with_its_socket_cut_is_the_same_request() {
    let mut queue = Queue::new("cut", &[], 2);
    for waiter in &queue.waiting {
        assert!(cut(*waiter, &queue.daemon.socket()) > 0);
    }
    // Whoever asks again first may get the slot that is free by then.
    queue.next_of_any();
    queue.next_of_any();
    queue.finish();
}

#[test]
#[ignore = "needs root and cgroups"]
fn who_waits_no_longer_is_where_it_was() {
    let mut queue = Queue::new("leaves", &[], 2);
    // Ctrl-C.
    let begun = Instant::now();
    let waiter = queue.waiting.remove(0);
    kill_process(pid(waiter), Signal::INT).unwrap();
    queue.daemon.join(waiter);
    queue.back(&[], begun);
    // Drained, and offered again.
    let begun = Instant::now();
    queue.daemon.ok(&["drain"]);
    queue.back(&queue.waiting, begun);
    queue.daemon.ok(&["resume"]);
    queue.parked();
    // Its time is over.
    let begun = Instant::now();
    let late = queue.daemon.run(&["--wait=300ms"], &["cat"]);
    assert_eq!(queue.daemon.join(late).code(), Some(124));
    queue.back(&[], begun);
    // The daemon stops, and comes back.
    assert_eq!(queue.daemon.stop().0, Some(0));
    let waiters = queue.waiting.clone();
    assert!(waiters.iter().all(|pid| places(*pid) == queue.home));
    queue.daemon.launch();
    queue.parked();
    queue.finish();
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_removal_of_lrs_after_a_kill_leaves_no_process_parked() {
    let mut queue = Queue::new("removed", &[], 2);
    queue.daemon.kill();
    let (code, text) = queue.daemon.give_back();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("back where they were").count(), 2, "{text}");
    assert_eq!(text.matches("runs on in its cgroup").count(), 2, "{text}");
    assert!(queue.waiting.iter().all(|pid| places(*pid) == queue.home));
    let (code, text) = queue.daemon.give_back();
    assert_eq!((code, text.contains("back where")), (Some(0), false), "{text}");
    queue.daemon.launch();
    queue.parked();
    queue.finish();
}

#[test]
#[ignore = "needs root and cgroups"]
fn who_loses_its_place_is_where_it_was() {
    let mut queue = Queue::new("place", &[], 9);
    let last = *queue.waiting.last().unwrap();
    let begun = Instant::now();
    let before = queue.daemon.run(&["--wait", "--priority", "1"], &["cat"]);
    queue.waiting.insert(0, before);
    queue.daemon.eventually("it is parked", |_| queue.is_parked(before).then_some(()));
    queue.back(&[last], begun);
    queue.finish();
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_observing_daemon_after_a_kill_leaves_no_process_parked() {
    let mut queue = Queue::new("observed", &[], 1);
    queue.daemon.kill();
    queue.daemon.configure(&format!("daemon.mode = \"observe\"\n{TWO}"));
    queue.daemon.launch();
    let waiter = queue.waiting[0];
    assert_eq!(places(waiter), queue.home);
    assert!(queue.daemon.groups_in_roots().is_empty());
    assert_eq!(queue.next(), waiter);
}
