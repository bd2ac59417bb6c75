//! Which processes a caller without an admin's rights (a member) may have shaped: its own, by all
//! four uids of every thread.
//!
//! lrsd moves processes and writes weights with its own rights, so the kernel does not check the
//! caller. The rule is LRS's own and the same on v1 and v2: real, effective, saved and file system
//! uid are the caller's. A daemon of root's that has a user's effective uid for a moment stays
//! root's, and so does a setuid program. Every thread counts, since threads of a process may have
//! different uids (raw system calls, setfsuid(2)), and the kernel's own check of a move sees one.
//!
//! The rule holds for each process that moves, descendants included. A program can become another
//! user's between the check and the move, so a pidfd holds it, and it is checked before the move
//! and after it. One that fails refuses the admission, and everything that moved goes back. What
//! becomes another user's later, inside the task (`sudo`), belongs to the task, but is not moved
//! back once it was moved out: the task is then what is left inside. A member's process or a found
//! one that others move into a group with a limit stays there too.
//!
//! In place the rule holds for every process in the group and below, and on v2 its `cgroup.procs`
//! has to be the member's to write. Every cycle checks new processes there. Once another user has
//! entered, the group gets its weights back and is no task any more (`contested`, then
//! `released`). The record says whether an admin admitted it.
//!
//! Limits. A process with more than [`MOST_THREADS`] threads is refused to a member. A setuid
//! program (sudo, fusermount) that is there at a check ends a member's task in place, as any other
//! user's process does: only its descent would distinguish it. A group in place counts as writable
//! by its owner or by everybody; the caller's groups are not looked at.

use std::path::{Path, PathBuf};

use super::process::{Pinned, proc_file, vanished};
use super::walk::child_groups;
use super::{CgroupError, Group, denied, files};
use crate::kernfs::parse::{number, status_field};
use crate::kernfs::process::read_proc;
use crate::units::{Pid, ProcessRef, Uids};

/// Processes, and groups, of a member's group in place; to look at as many takes some 50 ms.
const MOST: usize = 1000;

/// Threads of one process; to look at as many takes some 50 ms.
const MOST_THREADS: usize = 4096;

/// A process that is held while it is moved on behalf of one user.
pub(super) struct Owned {
    pinned: Pinned,
    owner: u32,
}

impl Owned {
    /// Holds `process`; `None` when it has ended.
    ///
    /// # Errors
    /// `Denied` when it is not `owner`'s alone.
    pub(super) fn hold(process: ProcessRef, owner: u32) -> Result<Option<Owned>, CgroupError> {
        let owned = match Pinned::new(process) {
            Ok(pinned) => Owned { pinned, owner },
            Err(CgroupError::ProcessGone(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(owned.check()?.then_some(owned))
    }

    /// Looks whether it is the owner's alone; `false` when it has ended.
    pub(super) fn check(&self) -> Result<bool, CgroupError> {
        let mut left = MOST_THREADS;
        let found = check_threads(self.pinned.process.pid, self.owner, &mut left);
        // Asked afterwards: what was read is of this process, and of none that took its number.
        if self.pinned.alive() { found } else { Ok(false) }
    }
}

/// Looks whether all threads of a process are the owner's alone; `false` when it has ended. What is
/// listed in a threaded group of cgroup v2 is a thread, and looked at alone: the others are listed
/// where they are. `left`: so many threads may still be looked at.
///
/// # Errors
/// `Denied` when one is not, or there are too many.
fn check_threads(pid: Pid, owner: u32, left: &mut usize) -> Result<bool, CgroupError> {
    let path = proc_file(pid, "status");
    let Some(status) = read_if_there(&path)? else { return Ok(false) };
    let uids = uids_in(&status, &path)?;
    if !uids.all_are(owner) {
        return Err(denied(pid, uids, owner));
    }
    // A thread that is made meanwhile has the rights of the one that makes it.
    let alone = status_field(&status, b"Threads:").and_then(number) == Some(1);
    let leader = status_field(&status, b"Tgid:").and_then(number);
    if alone || leader.is_some_and(|leader| i64::try_from(leader) != Ok(pid.raw().into())) {
        return Ok(true);
    }
    let dir = proc_file(pid, "task");
    let failed = |error| files::failed("list", &dir, None, error);
    let threads = match std::fs::read_dir(&dir) {
        Ok(threads) => threads,
        Err(error) if vanished(&error) => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    for thread in threads {
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) if vanished(&error) => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        let Some(fewer) = left.checked_sub(1) else {
            return Err(CgroupError::Denied(format!(
                "process {pid}, with those of its cgroup, has more than {MOST_THREADS} threads, which \
                 is too many to look at for a caller without an admin's rights; ask root or a uid \
                 listed in [grpc] admins"
            )));
        };
        *left = fewer;
        let path = thread.path().join("status");
        let Some(status) = read_if_there(&path)? else { continue };
        let uids = uids_in(&status, &path)?;
        if !uids.all_are(owner) {
            let thread = thread.file_name();
            return Err(CgroupError::Denied(format!(
                "thread {} of process {pid} does not belong to uid {owner} alone (its uids: {uids}), \
                 and without an admin's rights only processes with all threads under that uid can be \
                 managed: ask root or a uid listed in [grpc] admins",
                thread.to_string_lossy()
            )));
        }
    }
    Ok(true)
}

/// The text of a file of a process or thread; `None` when that has ended.
fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, CgroupError> {
    match read_proc(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if vanished(&error) => Ok(None),
        Err(error) => Err(files::failed("read", path, None, error)),
    }
}

fn uids_in(status: &[u8], path: &Path) -> Result<Uids, CgroupError> {
    Uids::parse(status).ok_or_else(|| {
        files::failed("read the owner in", path, None, std::io::ErrorKind::InvalidData.into())
    })
}

/// See [`super::TierTree::sole_owner`].
pub(super) fn sole_owner(group: &Group) -> Option<u32> {
    let present = present(group).ok()?;
    let path = proc_file(*present.first()?, "status");
    let owner = uids_in(&read_if_there(&path).ok()??, &path).ok()?.real;
    // One that has ended meanwhile has no other owner.
    let mut left = MOST_THREADS;
    present.iter().all(|pid| check_threads(*pid, owner, &mut left).is_ok()).then_some(owner)
}

/// See [`super::TierTree::check_owner`].
pub(super) fn check_group(
    group: &Group,
    owner: u32,
    known: &mut Vec<Pid>,
) -> Result<(), CgroupError> {
    if let Some(dir) =
        group.dirs.cpu.as_ref().filter(|dir| Some(*dir) == group.dirs.unified.as_ref())
    {
        check_writable(dir, owner)?;
    }
    let present = present(group)?;
    let mut left = MOST_THREADS;
    for pid in present.iter().filter(|pid| known.binary_search(pid).is_err()) {
        if let Err(error) = check_threads(*pid, owner, &mut left)
            // The number may have changed hands since it was listed.
            && self::present(group)?.contains(pid)
        {
            return Err(error);
        }
    }
    *known = present;
    Ok(())
}

/// The processes in the group and below, sorted; bounded, because the loop waits for it and a
/// member may fill a group of its own.
fn present(group: &Group) -> Result<Vec<Pid>, CgroupError> {
    // The weights are edited in these; on v1 their processes need not be the same.
    let io = group.dirs.io.as_ref().filter(|io| Some(*io) != group.dirs.cpu.as_ref());
    let mut next: Vec<PathBuf> = group.dirs.cpu.iter().chain(io).cloned().collect();
    let (mut present, mut groups) = (Vec::new(), 0);
    while let Some(dir) = next.pop() {
        present.extend(listed(&dir)?);
        groups += 1;
        if present.len() > MOST || groups > MOST {
            return Err(CgroupError::Denied(format!(
                "more than {MOST} processes or groups are in {}, which is too many to look at for \
                 a caller without an admin's rights; ask root or a uid listed in [grpc] admins",
                group.record.path
            )));
        }
        next.extend(child_groups(&dir)?);
    }
    present.sort_unstable();
    present.dedup();
    Ok(present)
}

/// On v2 whoever may write this file may fill the group (cgroup-v2.rst "Delegation").
fn check_writable(dir: &Path, owner: u32) -> Result<(), CgroupError> {
    let file = dir.join("cgroup.procs");
    let stat = match rustix::fs::stat(&file) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => return Ok(()),
        Err(errno) => return Err(files::failed("stat", &file, None, errno.into())),
    };
    let by_owner = stat.st_uid == owner && stat.st_mode & libc::S_IWUSR != 0;
    if by_owner || stat.st_mode & libc::S_IWOTH != 0 {
        return Ok(());
    }
    Err(CgroupError::Denied(format!(
        "{} belongs to uid {} and is not uid {owner}'s to write, so the group and its weights are \
         not that user's either: have the group delegated (systemd: Delegate=yes), or ask root or a \
         uid listed in [grpc] admins",
        file.display(),
        stat.st_uid
    )))
}

/// The processes directly in `dir`; of a threaded group the threads (cgroup-v2.rst "Threads").
fn listed(dir: &Path) -> Result<Vec<Pid>, CgroupError> {
    let file = dir.join("cgroup.procs");
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if files::is_gone(&error) => return Ok(Vec::new()),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            files::read_text(&dir.join("cgroup.threads"))?
        }
        Err(error) => return Err(files::failed("read", &file, None, error)),
    };
    let pids = text.lines().map(|line| line.parse().ok().and_then(Pid::new));
    pids.collect::<Option<Vec<Pid>>>().ok_or_else(|| {
        CgroupError::Denied(format!(
            "{} holds processes of another pid namespace with an unknown owner; ask an \
             administrator, or run lrsd in the node's own pid namespace",
            dir.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_that_are_looked_at_are_bounded() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (send, tids) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            stopped.recv()
        });
        let tid = Pid::new(tids.recv().unwrap()).unwrap();
        let pid = Pid::new(std::process::id() as i32).unwrap();
        let me = rustix::process::geteuid().as_raw();
        let looked_at = |pid, most: usize| {
            let mut left = most;
            check_threads(pid, me, &mut left).map(|lives| (lives, most - left))
        };
        let (lives, threads) = looked_at(pid, MOST_THREADS).unwrap();
        assert!(lives && threads >= 2, "{threads}");
        let error = looked_at(pid, 1).unwrap_err().to_string();
        assert!(error.contains("threads, which is too many"), "{error}");
        assert_eq!(looked_at(tid, 0).unwrap(), (true, 0), "one in a threaded group is itself");
        let error = check_threads(tid, me + 1, &mut 1).unwrap_err().to_string();
        assert!(error.contains("does not belong to uid"), "{error}");
        drop(stop);
        assert!(thread.join().unwrap().is_err());
    }
}
