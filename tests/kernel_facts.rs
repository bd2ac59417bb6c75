//! Facts about the kernel that the tiers and the completion watch are built on (spec 4).
//!
//! Each was measured once on one machine; here they are asserted on the machine at hand, on
//! whichever hierarchy it has: cgroup v2, v1, or hybrid. A kernel that differs fails here,
//! by name, before it fails somewhere less obvious. Needs root, and makes (and removes)
//! groups below `/lrs-facts-PID-TEST` only.

#![allow(clippy::unwrap_used)] // tests, helpers included

use std::fs;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Long enough for an emulated CPU; every wait ends with its event, not with this.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
#[ignore = "needs root and cgroups"]
fn an_idle_group_refuses_weights_and_forgets_them() {
    let cpu = Hierarchy::with_cpu();
    let group = TestGroup::new(&cpu, "idle");
    let dir = &group.leaf;
    let weight = dir.join(cpu.weight_file());
    // (neutral, one that is not neutral, what an idle group reads as)
    let (neutral, other, while_idle) = match cpu.version {
        Version::V1 => ("1024", "4096", "3"),
        Version::V2 => ("100", "400", "0"),
    };
    assert_eq!(read(&weight), neutral, "{} of a new group", weight.display());

    write(&weight, other).unwrap();
    assert_eq!(read(&weight), other, "{} as written", weight.display());

    write(&dir.join("cpu.idle"), "1").unwrap();
    assert_eq!(read(&dir.join("cpu.idle")), "1");
    assert_eq!(read(&weight), while_idle, "{} of an idle group", weight.display());
    let refused = write(&weight, other).expect_err("an idle group took a weight");
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "{refused}");

    write(&dir.join("cpu.idle"), "0").unwrap();
    assert_eq!(
        read(&weight),
        neutral,
        "{}: leaving idle resets it; it held {other} before",
        weight.display()
    );
    write(&weight, other).unwrap();
    assert_eq!(read(&weight), other, "{} after idle", weight.display());
}

#[test]
#[ignore = "needs root and cgroups"]
fn tiers_change_under_a_running_process() {
    let cpu = Hierarchy::with_cpu();
    let group = TestGroup::new(&cpu, "inplace");
    let member = Member::start(&group.leaf);

    for idle in ["1", "0", "1"] {
        write(&group.leaf.join("cpu.idle"), idle).unwrap();
        assert_eq!(read(&group.leaf.join("cpu.idle")), idle);
        assert_eq!(read(&group.leaf.join("cgroup.procs")), member.pid().to_string());
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_pidfd_becomes_readable_when_its_process_ends() {
    let member = Member::outside();
    let pidfd = pidfd_open(member.rustix_pid(), PidfdFlags::empty()).unwrap();
    assert!(!readable(&pidfd, Duration::ZERO), "readable while the process runs");

    // Not reaped yet: the notice is of the exit, so it does not depend on the parent.
    let zombie = member.close_stdin();
    assert!(readable(&pidfd, PATIENCE), "no notice of the exit");
    drop(zombie);
}

#[test]
#[ignore = "needs root and cgroups"]
fn cgroup_events_tells_when_the_last_process_leaves() {
    let Some(unified) = Hierarchy::cgroup2() else {
        // A machine with v1 alone: completion rests on pidfds there. What makes that so is
        // the absence of the file, so that is what is asserted.
        let cpu = Hierarchy::with_cpu();
        let group = TestGroup::new(&cpu, "events");
        assert!(
            !group.leaf.join("cgroup.events").exists(),
            "cgroup.events in a v1 group: {}",
            group.leaf.display()
        );
        return;
    };
    let group = TestGroup::new(&unified, "events");
    let events = group.leaf.join("cgroup.events");
    let watch =
        inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &events, inotify::WatchFlags::MODIFY).unwrap();
    assert!(read(&events).contains("populated 0"), "{}", read(&events));

    // The kernel sends notices from a work queue: one may come after the file was read, so a
    // notice says "look again", never what is to be seen. The first has to be taken before
    // its absence can mean anything.
    let first = Member::start(&group.leaf);
    assert!(modified(&watch), "no notice of the first process");
    let last = Member::start(&group.leaf);
    assert!(read(&events).contains("populated 1"), "{}", read(&events));

    drop(first.close_stdin());
    assert!(read(&events).contains("populated 1"), "empty with a process left");
    assert!(!readable(&watch, Duration::ZERO), "a notice although a process is left");

    let zombie = last.close_stdin();
    assert!(modified(&watch), "no notice of the last exit");
    assert!(read(&events).contains("populated 0"), "{}", read(&events));
    drop(zombie);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

#[derive(Debug)]
struct Hierarchy {
    version: Version,
    mount: PathBuf,
}

impl Hierarchy {
    /// The one that carries the cpu controller; fails the test where none does.
    fn with_cpu() -> Hierarchy {
        let v1 = mounts().into_iter().find(|mount| {
            mount.kind == "cgroup" && mount.options.split(',').any(|option| option == "cpu")
        });
        if let Some(mount) = v1 {
            return Hierarchy { version: Version::V1, mount: mount.path };
        }
        let unified = Hierarchy::cgroup2().expect("this test needs a cgroup mount; there is none");
        let controllers = read(&unified.mount.join("cgroup.controllers"));
        assert!(
            controllers.split(' ').any(|controller| controller == "cpu"),
            "this test needs the cpu controller; {} has {controllers:?}",
            unified.mount.display()
        );
        unified
    }

    fn cgroup2() -> Option<Hierarchy> {
        let mount = mounts().into_iter().find(|mount| mount.kind == "cgroup2")?;
        Some(Hierarchy { version: Version::V2, mount: mount.path })
    }

    fn weight_file(&self) -> &'static str {
        match self.version {
            Version::V1 => "cpu.shares",
            Version::V2 => "cpu.weight",
        }
    }
}

struct Mount {
    path: PathBuf,
    kind: String,
    options: String,
}

/// proc_pid_mountinfo(5): `id parent dev root path options [tags] - kind source options`.
fn mounts() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    text.lines()
        .map(|line| {
            let (left, right) = line.split_once(" - ").unwrap();
            let mut right = right.split(' ');
            Mount {
                path: left.split(' ').nth(4).unwrap().into(),
                kind: right.next().unwrap().to_owned(),
                options: right.nth(1).unwrap().to_owned(),
            }
        })
        .collect()
}

/// A parent and a leaf below it, removed when dropped. Two levels, so that systemd, which
/// takes unused controllers off the root again, finds the parent's in use.
struct TestGroup {
    parent: PathBuf,
    leaf: PathBuf,
}

impl TestGroup {
    fn new(hierarchy: &Hierarchy, name: &str) -> TestGroup {
        let parent = hierarchy.mount.join(format!("lrs-facts-{}-{name}", std::process::id()));
        let leaf = parent.join("task");
        let controllers = hierarchy.mount.join("cgroup.controllers");
        let wants_cpu = hierarchy.version == Version::V2 && read(&controllers).contains("cpu");
        if wants_cpu {
            write(&hierarchy.mount.join("cgroup.subtree_control"), "+cpu").unwrap();
        }
        fs::create_dir(&parent).unwrap_or_else(|error| {
            panic!("cannot make {} (this test needs root): {error}", parent.display())
        });
        // From here on the drop cleans up.
        let group = TestGroup { parent, leaf };
        if wants_cpu {
            write(&group.parent.join("cgroup.subtree_control"), "+cpu").unwrap();
        }
        fs::create_dir(&group.leaf).unwrap();
        group
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        for dir in [&self.leaf, &self.parent] {
            if let Err(error) = fs::remove_dir(dir)
                && !std::thread::panicking()
            {
                panic!("cannot remove {}: {error}", dir.display());
            }
        }
    }
}

/// A process that lives until its standard input closes; killed and reaped when dropped.
struct Member(Child);

impl Member {
    /// In `group` from its first instruction.
    fn start(group: &Path) -> Member {
        let procs = fs::OpenOptions::new().write(true).open(group.join("cgroup.procs")).unwrap();
        let mut command = Member::command();
        // SAFETY: one write to an open descriptor, nothing that allocates or locks.
        unsafe {
            command.pre_exec(move || (&procs).write_all(b"0"));
        }
        let member = Member(command.spawn().unwrap());
        assert!(
            read(&group.join("cgroup.procs")).lines().any(|pid| pid == member.pid().to_string()),
            "process {} is not in {}",
            member.pid(),
            group.display()
        );
        member
    }

    /// In the cgroup of the test.
    fn outside() -> Member {
        Member(Member::command().spawn().unwrap())
    }

    fn command() -> Command {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn rustix_pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Lets it end; it stays a zombie until the result is dropped.
    fn close_stdin(mut self) -> Member {
        drop(self.0.stdin.take());
        self
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // With its input closed it ends by itself; without, a failed test must not hang.
        if self.0.stdin.is_some() {
            self.0.kill().unwrap();
        }
        self.0.wait().unwrap();
    }
}

/// Waits for a notice of the one file watched, and takes it.
fn modified(watch: &OwnedFd) -> bool {
    if !readable(watch, PATIENCE) {
        return false;
    }
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    let event = reader.next().unwrap();
    event.events().contains(inotify::ReadFlags::MODIFY)
}

fn readable(fd: &OwnedFd, patience: Duration) -> bool {
    let timeout = Timespec::try_from(patience).unwrap();
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).unwrap();
    fds[0].revents().contains(PollFlags::IN)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
        .trim_end()
        .to_owned()
}

/// Opens without creating, so that a file the kernel lacks is an error.
fn write(path: &Path, value: &str) -> std::io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}
