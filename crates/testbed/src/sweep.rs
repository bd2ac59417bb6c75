//! What is done at the end, whichever way it came: every process below this one, every cgroup
//! of the private root, the modelled disk of a bench, the working directory.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid};
use procfs::process::all_processes;

use crate::groups::{remove_groups, root_dirs};

/// How long killed processes may take to vanish: one in uninterruptible I/O waits for its disk.
const VANISH: Duration = Duration::from_secs(5);

/// The file of the working directory with the daemon's own word for its cgroup root.
pub const ROOT_NOTE: &str = "cgroup-root";

/// What a sweep does beyond its own: a bench takes its modelled disk down.
#[derive(Clone, Copy, Default)]
pub struct Extra {
    /// Before the processes are killed.
    pub first: Option<fn(&Path)>,
    /// Before the working directory is removed; answers what it could not take away.
    pub last: Option<fn(&Path) -> Vec<String>>,
}

/// What is to go.
pub struct Sweep<'a> {
    /// The working directory.
    pub workdir: &'a Path,
    /// Name of the private cgroup root.
    pub cgroup_root: &'a str,
    /// What else there is.
    pub extra: Extra,
}

impl Sweep<'_> {
    /// Removes everything; answers what it could not.
    pub fn everything(&self) -> Vec<String> {
        if let Some(first) = self.extra.first {
            first(self.workdir);
        }
        let mut left = end_processes(&[]);
        left.extend(self.groups());
        left.extend(self.extra.last.into_iter().flat_map(|last| last(self.workdir)));
        if let Err(error) = std::fs::remove_dir_all(self.workdir)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            left.push(format!("{} ({error})", self.workdir.display()));
        }
        left
    }

    /// cgroups below every mount. The name is our own, so no other can match.
    fn groups(&self) -> Vec<String> {
        let noted = std::fs::read_to_string(self.workdir.join(ROOT_NOTE)).unwrap_or_default();
        let noted = noted.trim().trim_start_matches('/');
        let ours = noted.ends_with(self.cgroup_root) && !noted.contains("..");
        let mut below: Vec<&str> = vec![self.cgroup_root];
        if ours && noted != self.cgroup_root {
            below.push(noted);
        }
        let places = below.into_iter().flat_map(root_dirs);
        places.filter_map(|place| remove_groups(&place).err()).collect()
    }
}

/// Ends the processes below this one but for the children `kept`, round by round: whoever is
/// orphaned by one round is a child in the next, because this process is a subreaper. Answers
/// who is still there after 5 s.
pub fn end_processes(kept: &[u32]) -> Vec<String> {
    let children = || {
        let mut children = children();
        children
            .retain(|child| !kept.iter().any(|&kept| i64::from(kept) == i64::from(child.as_raw())));
        children
    };
    let attempts = VANISH.as_millis() / 10;
    for _ in 0..attempts {
        let children = children();
        for child in &children {
            let _ = kill(*child, Signal::SIGKILL);
            let _ = waitpid(*child, Some(WaitPidFlag::WNOHANG));
        }
        if children.is_empty() {
            return Vec::new();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    children().into_iter().map(|pid| format!("process {pid}")).collect()
}

/// The processes directly below this one.
pub fn child_ids() -> Vec<u32> {
    children().into_iter().filter_map(|child| u32::try_from(child.as_raw()).ok()).collect()
}

/// The same as numbers of nix.
pub fn children() -> Vec<Pid> {
    let me = getpid().as_raw();
    let stats = all_processes().into_iter().flatten().flatten().filter_map(|p| p.stat().ok());
    stats.filter(|stat| stat.ppid == me).map(|stat| Pid::from_raw(stat.pid)).collect()
}
