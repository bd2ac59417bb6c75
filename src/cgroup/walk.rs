//! The groups below a group, and the processes in them.

use std::path::{Path, PathBuf};

use super::{CgroupError, files};
use crate::kernfs::parse::ids;
use crate::kernfs::process::read_proc;
use crate::units::Pid;

/// Every process in `dir` and below; nothing when it is gone. Processes of another pid
/// namespace, which the kernel lists as 0, cannot be named and are left out.
pub(super) fn processes_below(dir: &Path) -> Result<Vec<Pid>, CgroupError> {
    processes_below_except(dir, &|_| false)
}

/// The same without those directly in groups that are `excepted`.
pub(super) fn processes_below_except(
    dir: &Path,
    excepted: &dyn Fn(&Path) -> bool,
) -> Result<Vec<Pid>, CgroupError> {
    let mut found = Vec::new();
    let mut next = vec![dir.to_owned()];
    while let Some(dir) = next.pop() {
        if excepted(&dir) {
            next.extend(child_groups(&dir)?);
            continue;
        }
        let procs = dir.join("cgroup.procs");
        match read_proc(&procs) {
            Ok(text) => found.extend(ids(&text).filter_map(Pid::new)),
            Err(error) if files::is_gone(&error) => continue,
            // A threaded group below: its processes are listed by the domain above it.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => return Err(files::failed("read", &procs, None, error)),
        }
        next.extend(child_groups(&dir)?);
    }
    Ok(found)
}

/// Directories in `dir`; nothing when it is gone.
pub(super) fn child_groups(dir: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    // kernfs counts subdirectories in the link count: 2 means none, and saves the listing.
    match rustix::fs::stat(dir) {
        Ok(stat) if stat.st_nlink == 2 => return Ok(Vec::new()),
        Ok(_) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(files::failed("stat", dir, None, errno.into())),
    }
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if files::is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(files::failed("list", dir, None, error)),
    };
    let mut groups = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| files::failed("list", dir, None, error))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            groups.push(entry.path());
        }
    }
    Ok(groups)
}
