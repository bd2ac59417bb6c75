//! What has to be known about a process before and while it is moved: is it still the same
//! one, what kind is it, where is it, who descends from it.
//!
//! All of it is read as bytes ([`crate::kernfs::process`]); a path of a cgroup that is no UTF-8 is
//! kept as [`crate::kernfs::name`] has it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::CgroupError;
use super::files;
use super::mounts::{Hierarchy, Mount, UNIFIED};
use crate::kernfs::process::{PinError, has_exited, pin, read_proc};
pub(super) use crate::kernfs::process::{Stat, proc_file, vanished};
use crate::kernfs::{name, parse};
use crate::units::{Pid, ProcessRef};

/// A process held by a pidfd, with its start time checked: until [`Pinned::alive`] says no,
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
        match pin(process.pid) {
            Ok((fd, stat)) if stat.start_ticks == process.start_ticks => Ok(Pinned { fd, process }),
            Ok(_) => Err(CgroupError::ProcessGone(process.pid)),
            Err(error) => Err(not_pinned(error)),
        }
    }

    /// Whether it has not exited yet: a pidfd turns readable when it has (pidfd_open(2)).
    pub(super) fn alive(&self) -> bool {
        !has_exited(&self.fd)
    }
}

fn not_pinned(error: PinError) -> CgroupError {
    match error {
        PinError::Absent(pid) | PinError::Ended(pid) => CgroupError::ProcessGone(pid),
        PinError::NoPidfd => CgroupError::Unsupported(error.to_string()),
        PinError::Failed { action, pid, source } => {
            files::failed(action, &proc_file(pid, ""), None, source)
        }
        other => CgroupError::Refused(other.to_string()),
    }
}

impl Stat {
    /// `None` when the process is gone.
    pub(super) fn read(pid: Pid) -> Result<Option<Stat>, CgroupError> {
        Stat::of(pid).map_err(|error| files::failed("read", &proc_file(pid, "stat"), None, error))
    }
}

/// See [`super::has_ended`].
pub(super) fn has_ended(process: ProcessRef) -> bool {
    match Stat::read(process.pid) {
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
        .filter_map(|entry| read_proc(&entry.path().join("stat")).ok())
        .filter_map(|stat| Stat::parse(&stat))
        .any(|facts| facts.policy.is_some_and(|policy| REALTIME.contains(&policy)))
}

/// `/proc/PID/cgroup` (cgroups(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership(Vec<(String, String)>);

impl Membership {
    /// `None` when the process is gone.
    pub(super) fn read(pid: Pid) -> Result<Option<Membership>, CgroupError> {
        Membership::read_file(&proc_file(pid, "cgroup"))
    }

    /// That of the process, whichever of its threads lives.
    pub(super) fn of_process(pid: Pid) -> Result<Option<Membership>, CgroupError> {
        let Some(facts) = Stat::read(pid)? else { return Ok(None) };
        Membership::of_living_thread(pid, &facts)
    }

    /// Like [`Membership::read`], of another thread where the main one has ended: the kernel
    /// leaves that one behind when it moves a process.
    pub(super) fn of_living_thread(
        pid: Pid,
        facts: &Stat,
    ) -> Result<Option<Membership>, CgroupError> {
        if !facts.main_thread_ends() {
            return Membership::read(pid);
        }
        let Ok(threads) = fs::read_dir(proc_file(pid, "task")) else { return Ok(None) };
        for thread in threads.flatten() {
            let living = read_proc(&thread.path().join("stat"))
                .ok()
                .and_then(|stat| Stat::parse(&stat))
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
            Ok(text) => Ok(Some(Membership::parse(&text))),
            Err(error) if vanished(&error) => Ok(None),
            Err(error) => Err(files::failed("read", path, None, error)),
        }
    }

    /// Lines are `ID:CONTROLLERS:PATH`; the path may hold colons, and any bytes.
    pub(crate) fn parse(text: &[u8]) -> Membership {
        Membership(
            name::text(text)
                .split('\n')
                .filter_map(|line| {
                    let (_, rest) = line.split_once(':')?;
                    let (controllers, path) = rest.split_once(':')?;
                    Some((controllers.to_owned(), path.to_owned()))
                })
                .collect(),
        )
    }

    /// Every path.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, path)| path.as_str())
    }

    /// The path in the hierarchy with the cpu controller: the one that lists it (v1), else the
    /// unified one (v2).
    pub(crate) fn with_cpu(&self) -> Option<&str> {
        let find = |wanted: &dyn Fn(&str) -> bool| self.0.iter().find(|(names, _)| wanted(names));
        find(&|names| names.split(',').any(|name| name == "cpu"))
            .or_else(|| find(&|names| names.is_empty()))
            .map(|(_, path)| path.as_str())
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

    /// The same of a mount with one or more controllers of v1, or of cgroup2.
    pub(super) fn path_below(&self, mount: &Mount) -> Option<&str> {
        let (_, path) = self.0.iter().find(|(controllers, _)| match &mount.controllers {
            None => controllers.is_empty(),
            Some(names) => controllers.split(',').any(|name| names.iter().any(|it| it == name)),
        })?;
        below(path, &mount.root)
    }
}

/// See [`super::paths()`].
pub(super) fn paths(pid: Pid) -> Result<Vec<String>, CgroupError> {
    let membership = Membership::read(pid)?.ok_or(CgroupError::ProcessGone(pid))?;
    Ok(membership.paths().map(str::to_owned).collect())
}

/// `path` seen from `root`: "/a/b" from "/a" is "/b". `None`: not below it.
pub(crate) fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
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

pub(super) use super::is_within;

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
        match read_proc(&path) {
            Ok(list) => found.extend(
                parse::words(&list)
                    .filter_map(parse::number)
                    .filter_map(|pid| Pid::new(i32::try_from(pid).ok()?)),
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

/// Every process of the node that could be read, or those read before `give_up` returned true.
pub(super) fn all(give_up: &dyn Fn() -> bool) -> Result<Vec<(Pid, Stat)>, CgroupError> {
    let proc = Path::new("/proc");
    let entries = fs::read_dir(proc).map_err(|error| files::failed("list", proc, None, error))?;
    Ok(entries
        .flatten()
        .take_while(|_| !give_up())
        .filter_map(|entry| Pid::new(entry.file_name().to_str()?.parse().ok()?))
        .filter_map(|pid| Some((pid, Stat::read(pid).ok()??)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::mounts::Mounts;

    #[test]
    fn membership_is_seen_from_the_mount() {
        let mounts = Mounts::parse(
            b"1 1 0:1 /docker/abc /c/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             1 1 0:2 / /c/unified rw - cgroup2 cgroup2 rw\n",
        );
        let unified = mounts.unified().unwrap();
        let membership = Membership::parse(b"2:cpu,cpuacct:/docker/abc/x:y\n0::/../other\n");
        assert_eq!(membership.path_in(&unified), None, "another namespace");
        assert_eq!(Membership::parse(b"0::/a\r\n").path_in(&unified), Some("/a\r"));
        let bytes = Membership::parse(b"0::/a\xc3\n");
        let kept = bytes.path_in(&unified).unwrap();
        assert_eq!(unified.dir(kept).as_os_str().as_encoded_bytes(), b"/c/unified/a\xc3");
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
        let start_ticks = Stat::read(pid).unwrap().unwrap().start_ticks;
        let recycled = ProcessRef { pid, start_ticks: start_ticks + 1 };
        assert!(matches!(Pinned::new(recycled), Err(CgroupError::ProcessGone(p)) if p == pid));
        let pinned = Pinned::new(ProcessRef { pid, start_ticks }).unwrap();
        assert!(pinned.alive());
        assert!(has_ended(recycled) && !has_ended(pinned.process));
        child.kill().unwrap();
        // Readable before it is reaped: a zombie.
        use rustix::event::{PollFd, PollFlags, poll};
        poll(&mut [PollFd::new(&pinned.fd, PollFlags::IN)], None).unwrap();
        assert!(has_ended(pinned.process), "a zombie has ended");
        child.wait().unwrap();
        assert!(has_ended(pinned.process) && !pinned.alive());
        assert!(Pinned::new(ProcessRef { pid, start_ticks }).is_err());
    }
}
