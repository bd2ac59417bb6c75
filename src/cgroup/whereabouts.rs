//! In which groups a process is, for those who look before anything is moved.

use std::io;
use std::path::Path;

use super::mounts::{Hierarchy, Mount, Mounts};
use super::obstacle::{self, Obstacle};
use super::process::{Membership, is_within};
use super::{CgroupError, files};
use crate::units::Pid;

/// Tells where processes are, in the hierarchies LRS would move them in. Reads only.
#[derive(Clone, Debug)]
pub struct Whereabouts {
    /// The one with the cpu controller first.
    hierarchies: Vec<Hierarchy>,
}

/// The groups of one process: equal for two processes that are together everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places(Vec<Option<String>>);

/// The groups of this process, for judging mounts by them.
#[derive(Debug)]
pub(crate) struct OwnGroups(Membership);

impl OwnGroups {
    /// From a file with the form of `/proc/self/cgroup` (cgroups(7)).
    pub(crate) fn read_file(path: &Path) -> Result<OwnGroups, CgroupError> {
        let found = Membership::read_file(path)?;
        let gone = || files::failed("read", path, None, io::ErrorKind::NotFound.into());
        found.map(OwnGroups).ok_or_else(gone)
    }

    /// Whether `mount` shows the group of this process: else that of no other process is where its
    /// path says.
    pub(crate) fn in_sight(&self, mount: &Mount) -> Result<(), Obstacle> {
        match self.0.path_below(mount) {
            Some(_) => Ok(()),
            None => Err(obstacle::out_of_sight(&mount.point, &mount.root)),
        }
    }
}

impl Whereabouts {
    /// Finds the hierarchies mounted now.
    pub fn open() -> Result<Whereabouts, CgroupError> {
        Ok(Whereabouts::below(&Mounts::read()?))
    }

    fn below(mounts: &Mounts) -> Whereabouts {
        let mut hierarchies = mounts.v1();
        let has_cpu = hierarchies.first().is_some_and(|first| first.has("cpu"));
        let at = if has_cpu { hierarchies.len() } else { 0 };
        hierarchies.splice(at..at, mounts.unified());
        hierarchies.extend(mounts.systemd());
        Whereabouts { hierarchies }
    }

    /// Where `pid` is; `None` when it is gone. Who `pid` is must be checked before and after.
    pub fn of(&self, pid: Pid) -> Result<Option<Places>, CgroupError> {
        let Some(membership) = Membership::read(pid)? else { return Ok(None) };
        Ok(Some(self.places(&membership)))
    }

    fn places(&self, membership: &Membership) -> Places {
        let path = |hierarchy| membership.path_in(hierarchy).map(str::to_owned);
        Places(self.hierarchies.iter().map(path).collect())
    }
}

impl Places {
    /// The path below the mount of the hierarchy with the cpu controller, with a leading slash;
    /// `None` where the mount does not show it.
    pub fn cpu(&self) -> Option<&str> {
        self.0.first()?.as_deref()
    }

    /// Whether its cpu group is `root` or below it.
    pub fn within(&self, root: &str) -> bool {
        self.cpu().is_some_and(|path| is_within(path, root))
    }

    #[cfg(test)]
    pub(crate) fn made_up(cpu: &str) -> Places {
        Places(vec![Some(cpu.to_owned())])
    }

    /// The content of `/proc/<pid>/cgroup` on a node with these lines in `/proc/self/mountinfo`.
    #[cfg(test)]
    pub(crate) fn recorded(mounts: &str, cgroup: &str) -> Places {
        let membership = Membership::parse(cgroup.as_bytes());
        Whereabouts::below(&Mounts::parse(mounts.as_bytes())).places(&membership)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_child_are_together() {
        let whereabouts = Whereabouts::open().unwrap();
        let of = |pid: u32| whereabouts.of(Pid::new(pid as i32).unwrap()).unwrap();
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (own, its) = (of(std::process::id()), of(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(own.is_some());
        assert_eq!(own, its);
        assert_eq!(of(child.id()), None);
    }

    #[test]
    fn a_group_is_within_whole_names() {
        let places = Places::made_up("/lrs/a");
        assert!(places.within("/lrs") && !places.within("/lr") && !places.within("/lrs/ab"));
        assert_eq!(places.cpu(), Some("/lrs/a"));
    }
}
