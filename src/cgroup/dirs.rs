//! Directories of groups: made in every hierarchy in use or in none, and removed.
//!
//! Beside v1 the group in the cgroup2 mount, the twin, is an extra: a task goes on without it where
//! the kernel does not make it. Everything else then finds no directory and does without.
//!
//! cgroups-rs creates on v1, in exactly the chosen hierarchies; the rest is mkdir(2) and rmdir(2),
//! because its own delete sleeps and its errors do not name the directory.

use std::io;
use std::path::{Path, PathBuf};

use cgroups_rs::fs::Cgroup;
use cgroups_rs::fs::hierarchies::V1;

use super::mounts::{Hierarchy, V1_CONTROLLERS};
use super::obstacle::{self, Obstacle};
use super::{Attachment, CgroupError, GroupDirs, GroupRecord, Version, files, walk};

/// Makes `path` in every hierarchy; where it was there before, nothing is touched. Answers why there
/// is no twin, where only that could not be made.
pub(super) fn make(
    hierarchies: &[Hierarchy],
    path: &str,
    v1: &V1,
) -> Result<Option<Obstacle>, CgroupError> {
    let dirs: Vec<PathBuf> = hierarchies.iter().map(|hierarchy| hierarchy.dir(path)).collect();
    if let Some(dir) = dirs.iter().find(|dir| dir.exists()) {
        return Err(CgroupError::Refused(format!(
            "the cgroup {} exists already and is not LRS's to take; remove it",
            dir.display()
        )));
    }
    let made = make_v1(hierarchies, path, &dirs, v1).and_then(|()| {
        let mut without = None;
        for (index, (hierarchy, dir)) in hierarchies.iter().zip(&dirs).enumerate() {
            match std::fs::create_dir(dir) {
                Ok(()) => {}
                // By cgroups-rs just now: that none was there was asked before.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if index > 0 && hierarchy.is_unified() => {
                    without = Some(obstacle::not_made(dir, &error));
                }
                Err(error) => return Err(not_made(dir, error)),
            }
        }
        Ok(without)
    });
    made.map_err(|error| undo_making(&dirs, error))
}

fn not_made(dir: &Path, error: io::Error) -> CgroupError {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOSPC | libc::EROFS) => obstacle::not_made(dir, &error).into(),
        _ => files::failed("create", dir, None, error),
    }
}

/// cgroups-rs creates in exactly the named controllers; its default touches them all.
fn make_v1(
    hierarchies: &[Hierarchy],
    path: &str,
    dirs: &[PathBuf],
    v1: &V1,
) -> Result<(), CgroupError> {
    let controllers: Vec<String> = hierarchies
        .iter()
        .map(|hierarchy| hierarchy.name.clone())
        .filter(|name| V1_CONTROLLERS.contains(&name.as_str()))
        .collect();
    if controllers.is_empty() {
        return Ok(());
    }
    let path = path.trim_start_matches('/');
    Cgroup::new_with_specified_controllers(Box::new(v1.clone()), path, Some(controllers))
        .map_or_else(
            |error| {
                // It does not name the directory: the first one missing is where it stopped.
                let missing = dirs.iter().find(|dir| !dir.exists()).or(dirs.first());
                let dir = missing.map_or(Path::new(path), PathBuf::as_path);
                Err(not_made(dir, cause(error)))
            },
            |_| Ok(()),
        )
}

/// The hierarchies in which the group is the task's: all for an own one, else the primary and
/// those where the process was found under the same path.
pub(super) fn in_use<'a>(
    hierarchies: &'a [Hierarchy],
    record: &'a GroupRecord,
) -> impl Iterator<Item = &'a Hierarchy> {
    hierarchies.iter().enumerate().filter_map(move |(index, hierarchy)| {
        let same = || {
            let mut origin = record.origin.iter();
            origin.any(|(name, path)| *name == hierarchy.name && *path == record.path)
        };
        let used = match record.attachment {
            Attachment::Own => !record.elsewhere.contains(&hierarchy.name),
            Attachment::InPlace => index == 0 || same(),
            Attachment::None => false,
        };
        used.then_some(hierarchy)
    })
}

/// The directories of a group: those of the hierarchies in which it is the task's.
pub(super) fn of_group(
    hierarchies: &[Hierarchy],
    version: Version,
    record: &GroupRecord,
) -> GroupDirs {
    let with = |accepts: &dyn Fn(&Hierarchy) -> bool| {
        let hierarchy = in_use(hierarchies, record).find(|hierarchy| accepts(hierarchy))?;
        Some(hierarchy.dir(&record.path))
    };
    match version {
        Version::V1 => GroupDirs {
            cpu: with(&|hierarchy| hierarchy.has("cpu")),
            cpuacct: with(&|hierarchy| hierarchy.has("cpuacct")),
            io: with(&|hierarchy| hierarchy.has("blkio")),
            memory: None,
            // The kernel may not have made it.
            unified: with(&Hierarchy::is_unified).filter(|dir| dir.exists()),
        },
        Version::V2 => {
            let dir = hierarchies[0].dir(&record.path);
            // Its files say which controllers act: in a group of others, and where an
            // earlier daemon with another tiers.io enabled one.
            let with = |file: &str| dir.join(file).exists().then(|| dir.clone());
            GroupDirs {
                cpu: Some(dir.clone()),
                cpuacct: Some(dir.clone()),
                io: with("io.stat"),
                memory: with("memory.current"),
                unified: Some(dir),
            }
        }
    }
}

/// Removes `path` from every hierarchy.
pub(super) fn remove_everywhere(hierarchies: &[Hierarchy], path: &str) -> Result<(), CgroupError> {
    hierarchies.iter().try_for_each(|hierarchy| remove_group(&hierarchy.dir(path)))
}

/// The inode of a directory; `None` when there is none.
pub(super) fn inode(dir: &Path) -> Result<Option<u64>, CgroupError> {
    match rustix::fs::stat(dir) {
        Ok(stat) => Ok(Some(stat.st_ino)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(errno) => Err(files::failed("stat", dir, None, errno.into())),
    }
}

/// The kernel's error inside one of cgroups-rs.
fn cause(error: cgroups_rs::fs::error::Error) -> io::Error {
    let errno = std::error::Error::source(&error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error);
    errno.map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

/// Makes a group that should be there, and logs that it was missing.
pub(super) fn make_if_missing(dir: &Path) -> Result<(), CgroupError> {
    match std::fs::create_dir(dir) {
        Ok(()) => {
            tracing::warn!(cgroup = %dir.display(), "the cgroup {} of a running task was removed; made it anew", dir.display());
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(files::failed("create", dir, None, error)),
    }
}

/// None of `dirs` existed before: removes those that do now.
fn undo_making(dirs: &[PathBuf], error: CgroupError) -> CgroupError {
    let left: Vec<String> = dirs
        .iter()
        .filter_map(|dir| remove_group(dir).err())
        .map(|error| error.to_string())
        .collect();
    if left.is_empty() {
        error
    } else {
        CgroupError::Refused(format!("{error}; and undoing failed: {}", left.join("; ")))
    }
}

/// Removes an empty group and the empty groups the task made below it; fine when gone.
///
/// The kernel may report the last process gone a moment before its group counts as empty
/// (a process unlinks from its group after its exit is announced), so EBUSY with no process
/// listed is tried again for a few milliseconds.
pub(super) fn remove_group(dir: &Path) -> Result<(), CgroupError> {
    const TRIES: u32 = 5;
    let mut tries = 0;
    loop {
        for child in walk::child_groups(dir)? {
            remove_group(&child)?;
        }
        match std::fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if files::is_gone(&error) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < TRIES => {
                if !walk::processes_below(dir)?.is_empty() {
                    return Err(files::failed("remove", dir, None, error));
                }
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(error) => return Err(files::failed("remove", dir, None, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::mounts::{Mounts, UNIFIED};

    fn record(attachment: Attachment, path: &str) -> GroupRecord {
        GroupRecord {
            attachment,
            path: path.to_owned(),
            inode: 1,
            origin: Default::default(),
            found: Vec::new(),
            elsewhere: Vec::new(),
            for_member: false,
        }
    }

    #[test]
    fn a_foreign_group_is_used_only_where_its_path_is_the_same() {
        let mounts = Mounts::parse(b"1 1 0:2 / /c/unified rw - cgroup2 cgroup2 rw\n");
        let unified = mounts.unified().unwrap();
        let cpu = Hierarchy {
            name: "cpu".to_owned(),
            controllers: vec!["cpu".to_owned()],
            mount: unified.mount.clone(),
        };
        let all = [cpu, unified];
        let names = |record: &GroupRecord| -> Vec<String> {
            in_use(&all, record).map(|hierarchy| hierarchy.name.clone()).collect()
        };
        let mut own = record(Attachment::Own, "/lrs/a");
        assert_eq!(names(&own), ["cpu", UNIFIED]);
        own.elsewhere = vec![UNIFIED.to_owned()];
        assert_eq!(names(&own), ["cpu"], "another manager's there");
        assert_eq!(names(&record(Attachment::None, "/lrs/a")), Vec::<String>::new());
        let mut foreign = record(Attachment::InPlace, "/unit");
        assert_eq!(names(&foreign), ["cpu"]);
        foreign.origin = [(UNIFIED.to_owned(), "/".to_owned())].into();
        assert_eq!(names(&foreign), ["cpu"]);
        foreign.origin = [(UNIFIED.to_owned(), "/unit".to_owned())].into();
        assert_eq!(names(&foreign), ["cpu", UNIFIED]);
    }
}
