//! What has to be known about a process before and while it is moved: is it still the same
//! one, what kind is it, where is it, who descends from it.
//!
//! `/proc/PID/stat` and `/proc/PID/cgroup` are read by hand because the walk over descendants
//! reads them for every process of the node on kernels without CONFIG_PROC_CHILDREN; only six
//! fields of fifty are needed.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use super::CgroupError;
use super::files;
use super::mounts::{Hierarchy, UNIFIED};
use crate::units::{Pid, ProcessRef};

/// A process held by a pidfd whose start time was checked: until [`Pinned::alive`] says no,
/// the number means this process and no other.
#[derive(Debug)]
pub(super) struct Pinned {
    fd: OwnedFd,
    /// Which process.
    pub(super) process: ProcessRef,
}

impl Pinned {
    /// Fails with `ProcessGone` when it ended or the number belongs to another one now, and
    /// with `Refused` for the id of a thread.
    pub(super) fn new(process: ProcessRef) -> Result<Pinned, CgroupError> {
        let pid = process.pid;
        refuse_thread(pid)?;
        let raw = rustix::process::Pid::from_raw(pid.raw()).ok_or(CgroupError::ProcessGone(pid))?;
        let fd = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Err(CgroupError::ProcessGone(pid)),
            Err(rustix::io::Errno::NOSYS) => {
                return Err(CgroupError::Unsupported(
                    "this kernel has no pidfd_open; Linux 5.4 or newer is needed".to_owned(),
                ));
            }
            Err(errno) => {
                return Err(files::failed(
                    "open a pidfd of",
                    &proc_file(pid, ""),
                    None,
                    errno.into(),
                ));
            }
        };
        match Facts::read(pid)? {
            Some(facts) if facts.start_ticks == process.start_ticks && !facts.ended() => {
                Ok(Pinned { fd, process })
            }
            _ => Err(CgroupError::ProcessGone(pid)),
        }
    }

    /// Whether it has not exited yet: a pidfd turns readable when it has (pidfd_open(2)).
    pub(super) fn alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }
}

/// The fields of `/proc/PID/stat` (proc_pid_stat(5)) that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) session: i32,
    pub(super) flags: u64,
    pub(super) threads: u32,
    pub(super) start_ticks: u64,
    /// Scheduling policy (sched(7)) of the main thread.
    pub(super) policy: u32,
}

/// `PF_KTHREAD` of include/linux/sched.h; part of the stat file's ABI since 2.6.
const PF_KTHREAD: u64 = 0x0020_0000;

/// `PF_EXITING`, likewise.
const PF_EXITING: u64 = 0x4;

/// A file of /proc in two read(2): such files tell no size, and what fs::read does then (asking
/// for it, growing from 32 bytes on) is four system calls more.
fn read_proc(path: &Path) -> io::Result<Vec<u8>> {
    const ROOM: usize = 4096;
    // A limit beyond any such file: with it the size is not asked for.
    const MOST: u64 = 1 << 20;
    let mut text = Vec::with_capacity(ROOM);
    fs::File::open(path)?.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

impl Facts {
    /// `None` when the process is gone.
    pub(super) fn read(pid: Pid) -> Result<Option<Facts>, CgroupError> {
        let path = proc_file(pid, "stat");
        match read_proc(&path) {
            Ok(text) => match Facts::parse(&text) {
                Some(facts) => Ok(Some(facts)),
                None => Err(files::failed("read", &path, None, io::ErrorKind::InvalidData.into())),
            },
            Err(error) if vanished(&error) => Ok(None),
            Err(error) => Err(files::failed("read", &path, None, error)),
        }
    }

    /// The command name may hold anything, also `)` and blanks: fields count from the last `)`.
    pub(super) fn parse(stat: &[u8]) -> Option<Facts> {
        let end = stat.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // fields[0] is field 3 of the manual page.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Facts {
            state: *field(3)?.as_bytes().first()?,
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            flags: field(9)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
            policy: field(41)?.parse().ok()?,
        })
    }

    /// A thread of the kernel.
    pub(super) fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// The main thread has ended or is about to: the kernel takes no orders to move it.
    pub(super) fn main_thread_ends(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') || self.flags & PF_EXITING != 0
    }

    /// All of it ends; a process whose main thread alone ended still runs.
    pub(super) fn ended(&self) -> bool {
        self.main_thread_ends() && self.threads <= 1
    }
}

/// See [`super::has_ended`].
pub(super) fn has_ended(process: ProcessRef) -> bool {
    match Facts::read(process.pid) {
        Ok(Some(facts)) => facts.start_ticks != process.start_ticks || facts.ended(),
        Ok(None) => true,
        // Not known to have ended: its pidfd or the next look tells.
        Err(_) => false,
    }
}

/// Whether any thread runs under SCHED_FIFO, SCHED_RR or SCHED_DEADLINE (sched(7)).
pub(super) fn has_realtime_thread(pid: Pid) -> bool {
    const REALTIME: [u32; 3] = [1, 2, 6];
    // A process that goes away while it is looked at has no such thread.
    let Ok(threads) = fs::read_dir(proc_file(pid, "task")) else { return false };
    threads
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("stat")).ok())
        .filter_map(|stat| Facts::parse(&stat))
        .any(|facts| REALTIME.contains(&facts.policy))
}

/// `/proc/TID` exists for threads although it is not listed.
fn refuse_thread(pid: Pid) -> Result<(), CgroupError> {
    let path = proc_file(pid, "status");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if vanished(&error) => return Err(CgroupError::ProcessGone(pid)),
        Err(error) => return Err(files::failed("read", &path, None, error)),
    };
    let leader = text.lines().find_map(|line| line.strip_prefix("Tgid:")).map(str::trim);
    match leader {
        Some(leader) if leader != pid.to_string() => Err(CgroupError::Refused(format!(
            "{pid} is a thread of process {leader}; give the process id {leader}"
        ))),
        _ => Ok(()),
    }
}

/// ENOENT: no such process; ESRCH: it went while the file was open.
pub(super) fn vanished(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// `/proc/PID/FILE`.
pub(super) fn proc_file(pid: Pid, file: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
}

/// `/proc/PID/cgroup` (cgroups(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership(Vec<(String, String)>);

impl Membership {
    /// `None` when the process is gone.
    pub(super) fn read(pid: Pid) -> Result<Option<Membership>, CgroupError> {
        Membership::read_file(&proc_file(pid, "cgroup"))
    }

    /// That of the process, whichever of its threads lives.
    pub(super) fn of_process(pid: Pid) -> Result<Option<Membership>, CgroupError> {
        let Some(facts) = Facts::read(pid)? else { return Ok(None) };
        Membership::of_living_thread(pid, &facts)
    }

    /// Like [`Membership::read`], of another thread where the main one has ended: the kernel
    /// leaves that one behind when it moves a process.
    pub(super) fn of_living_thread(
        pid: Pid,
        facts: &Facts,
    ) -> Result<Option<Membership>, CgroupError> {
        if !facts.main_thread_ends() {
            return Membership::read(pid);
        }
        let Ok(threads) = fs::read_dir(proc_file(pid, "task")) else { return Ok(None) };
        for thread in threads.flatten() {
            let living = fs::read(thread.path().join("stat"))
                .ok()
                .and_then(|stat| Facts::parse(&stat))
                .is_some_and(|facts| !facts.main_thread_ends());
            if living {
                return Membership::read_file(&thread.path().join("cgroup"));
            }
        }
        Ok(None)
    }

    /// Of this process.
    pub(super) fn own() -> Result<Membership, CgroupError> {
        let path = Path::new("/proc/self/cgroup");
        Membership::read_file(path)?
            .ok_or_else(|| files::failed("read", path, None, io::ErrorKind::NotFound.into()))
    }

    pub(super) fn read_file(path: &Path) -> Result<Option<Membership>, CgroupError> {
        match read_proc(path) {
            Ok(text) => Ok(Some(Membership::parse(&String::from_utf8_lossy(&text)))),
            Err(error) if vanished(&error) => Ok(None),
            Err(error) => Err(files::failed("read", path, None, error)),
        }
    }

    /// Lines are `ID:CONTROLLERS:PATH`; the path may hold colons.
    pub(super) fn parse(text: &str) -> Membership {
        Membership(
            text.lines()
                .filter_map(|line| {
                    let (_, rest) = line.split_once(':')?;
                    let (controllers, path) = rest.split_once(':')?;
                    Some((controllers.to_owned(), path.to_owned()))
                })
                .collect(),
        )
    }

    /// Path from the hierarchy's mount, with a leading slash. `None`: the process is outside
    /// of what the mount shows (another cgroup namespace or container), or the hierarchy is
    /// not listed.
    pub(super) fn path_in(&self, hierarchy: &Hierarchy) -> Option<&str> {
        let path = self.0.iter().find_map(|(controllers, path)| {
            let here = if hierarchy.name == UNIFIED {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|name| name == hierarchy.name)
            };
            here.then_some(path.as_str())
        })?;
        below(path, &hierarchy.mount.root)
    }
}

/// `path` seen from `root`: "/a/b" from "/a" is "/b". `None`: not below it.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    if path.starts_with("/..") {
        return None;
    }
    if root == "/" {
        return Some(path);
    }
    match path.strip_prefix(root)? {
        "" => Some("/"),
        rest if rest.starts_with('/') => Some(rest),
        _ => None,
    }
}

/// Whether `path` is `group` or below it.
pub(crate) fn is_within(path: &str, group: &str) -> bool {
    let below = path.strip_prefix(group.trim_end_matches('/'));
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Largest family that is moved. Beyond it a fork bomb is outgrowing the walk.
const FAMILY_MAX: usize = 65_536;

/// See [`descendants`].
#[derive(Debug)]
pub(super) struct Family {
    pub(super) pids: Vec<Pid>,
    /// Whether the walk came to its end.
    pub(super) whole: bool,
}

/// The living descendants of `root`, parents before children, until `give_up` says so.
///
/// Reads `task/TID/children` where the kernel has it (CONFIG_PROC_CHILDREN), which costs as
/// much as the family is large; else `/proc/PID/stat` of every process.
pub(super) fn descendants(root: Pid, give_up: &dyn Fn() -> bool) -> Result<Family, CgroupError> {
    let mut family = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        if give_up() {
            return Ok(Family { pids: family, whole: false });
        }
        match children(parent)? {
            Some(children) => {
                family.extend_from_slice(&children);
                next.extend(children);
                if family.len() > FAMILY_MAX {
                    return Err(CgroupError::Refused(format!(
                        "process {root} has more than {FAMILY_MAX} descendants; stop it first"
                    )));
                }
            }
            None => return descendants_by_scan(root, give_up),
        }
    }
    Ok(Family { pids: family, whole: true })
}

/// `None`: this kernel has no such file.
fn children(parent: Pid) -> Result<Option<Vec<Pid>>, CgroupError> {
    let mut found = Vec::new();
    let Ok(threads) = fs::read_dir(proc_file(parent, "task")) else {
        return Ok(Some(found)); // the parent is gone; orphans are looked for elsewhere
    };
    for thread in threads.flatten() {
        let path = thread.path().join("children");
        match fs::read_to_string(&path) {
            Ok(list) => found.extend(
                list.split_ascii_whitespace().filter_map(|pid| Pid::new(pid.parse().ok()?)),
            ),
            // The thread may just have ended; without the main thread's file there is none.
            Err(error) if vanished(&error) => {
                if thread.path().join("stat").exists() && !path.exists() {
                    return Ok(None);
                }
            }
            Err(error) => return Err(files::failed("read", &path, None, error)),
        }
    }
    Ok(Some(found))
}

fn descendants_by_scan(root: Pid, give_up: &dyn Fn() -> bool) -> Result<Family, CgroupError> {
    let mut children: HashMap<i32, Vec<Pid>> = HashMap::new();
    for (pid, facts) in all(give_up)? {
        children.entry(facts.parent).or_default().push(pid);
    }
    let mut family = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        // Taken out, so that a parent number recycled during the scan cannot make a circle.
        for child in children.remove(&parent.raw()).unwrap_or_default() {
            family.push(child);
            next.push(child);
        }
    }
    Ok(Family { pids: family, whole: !give_up() })
}

/// Every process of the node that could be read, or those read before `give_up` said so.
pub(super) fn all(give_up: &dyn Fn() -> bool) -> Result<Vec<(Pid, Facts)>, CgroupError> {
    let proc = Path::new("/proc");
    let entries = fs::read_dir(proc).map_err(|error| files::failed("list", proc, None, error))?;
    Ok(entries
        .flatten()
        .take_while(|_| !give_up())
        .filter_map(|entry| Pid::new(entry.file_name().to_str()?.parse().ok()?))
        .filter_map(|pid| Some((pid, Facts::read(pid).ok()??)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::mounts::Mounts;

    #[test]
    fn stat_with_a_nasty_command_name() {
        let stat = b"42 (a) R 1 (b) S 7 42 41 0 -1 4194560 1 0 0 0 2 3 0 0 -11 0 5 0 1234 1 1 1 \
            1 1 1 1 1 0 0 0 0 0 0 0 17 1 0 2 0 0 0\n";
        let facts = Facts::parse(stat).unwrap();
        assert_eq!((facts.state, facts.parent, facts.session), (b'S', 7, 41));
        assert_eq!((facts.threads, facts.start_ticks, facts.policy), (5, 1234, 2));
        assert!(!facts.is_kernel_thread() && !facts.ended());
        assert_eq!(Facts::parse(b"42 (a) S 7"), None);
        assert_eq!(Facts::parse(b""), None);
    }

    #[test]
    fn a_zombie_leader_with_threads_left_has_not_ended() {
        let facts = Facts {
            state: b'Z',
            parent: 1,
            session: 1,
            flags: 0,
            threads: 3,
            start_ticks: 1,
            policy: 0,
        };
        assert!(!facts.ended());
        assert!(Facts { threads: 1, ..facts }.ended());
        // In do_exit(): out of its cgroup, still `R`, its pidfd not readable yet.
        let exiting = Facts { state: b'R', flags: PF_EXITING, ..facts };
        assert!(!exiting.ended());
        assert!(Facts { threads: 1, ..exiting }.ended());
        assert!(!Facts { threads: 1, state: b'R', ..facts }.ended());
    }

    #[test]
    fn membership_is_seen_from_the_mount() {
        let mounts = Mounts::parse(
            "1 1 0:1 /docker/abc /c/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             1 1 0:2 / /c/unified rw - cgroup2 cgroup2 rw\n",
        );
        let unified = mounts.unified().unwrap();
        let membership = Membership::parse("2:cpu,cpuacct:/docker/abc/x:y\n0::/../other\n");
        assert_eq!(membership.path_in(&unified), None, "another namespace");
        assert_eq!(Membership::parse("0::/a\n").path_in(&unified), Some("/a"));
        assert_eq!(below("/docker/abc/x:y", "/docker/abc"), Some("/x:y"));
        assert_eq!(below("/docker/abc", "/docker/abc"), Some("/"));
        assert_eq!(below("/docker/abcd", "/docker/abc"), None);
    }

    #[test]
    fn within_counts_whole_components() {
        assert!(is_within("/lrs", "/lrs"));
        assert!(is_within("/lrs/a", "/lrs") && is_within("/lrs/a", "/"));
        assert!(!is_within("/lrsx", "/lrs"));
    }

    #[test]
    fn descendants_are_found_by_either_way() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo started; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(out), &mut line).unwrap();
        let pid = Pid::new(child.id() as i32).unwrap();
        let walked = descendants(pid, &|| false).unwrap();
        let scanned = descendants_by_scan(pid, &|| false).unwrap();
        let cut = [descendants(pid, &|| true), descendants_by_scan(pid, &|| true)];
        assert!(walked.whole && scanned.whole && cut.iter().all(|f| !f.as_ref().unwrap().whole));
        let (walked, scanned) = (walked.pids, scanned.pids);
        for sleep in &scanned {
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(sleep.raw()).unwrap(),
                rustix::process::Signal::KILL,
            )
            .unwrap();
        }
        child.wait().unwrap();
        assert_eq!((walked.len(), scanned.len()), (1, 1));
        assert_eq!(walked, scanned);
    }

    #[test]
    fn an_ended_or_other_process_cannot_be_pinned() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::new(child.id() as i32).unwrap();
        let start_ticks = Facts::read(pid).unwrap().unwrap().start_ticks;
        let recycled = ProcessRef { pid, start_ticks: start_ticks + 1 };
        assert!(matches!(Pinned::new(recycled), Err(CgroupError::ProcessGone(p)) if p == pid));
        let pinned = Pinned::new(ProcessRef { pid, start_ticks }).unwrap();
        assert!(pinned.alive());
        assert!(has_ended(recycled) && !has_ended(pinned.process));
        child.kill().unwrap();
        // Readable before it is reaped: a zombie.
        let mut fds = [PollFd::new(&pinned.fd, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        assert!(has_ended(pinned.process), "a zombie has ended");
        child.wait().unwrap();
        assert!(has_ended(pinned.process) && !pinned.alive());
        assert!(Pinned::new(ProcessRef { pid, start_ticks }).is_err());
    }
}
