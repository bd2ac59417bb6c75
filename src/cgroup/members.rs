//! Looking at a group and its processes without writing: is a process still in it, are they
//! frozen.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::dirs::in_use;
use super::mounts::{Hierarchy, UNIFIED};
use super::process::{Membership, Stat, is_within};
use super::walk::{processes_below, processes_below_except};
use super::{Attachment, CgroupError, Group, GroupRecord, dirs, files};
use crate::kernfs::name;
use crate::units::{Pid, ProcessRef};

/// See [`super::TierTree::holds`].
pub(super) fn holds(
    hierarchies: &[Hierarchy],
    record: &GroupRecord,
    process: ProcessRef,
) -> Result<Option<bool>, CgroupError> {
    if record.attachment == Attachment::None {
        return Ok(None);
    }
    let Some(mut membership) = Membership::read(process.pid)? else { return Ok(None) };
    // Asked afterwards: the number was that process's all the time, and was not exiting (v1
    // then shows it in the root group).
    match Stat::read(process.pid)? {
        Some(facts) if facts.start_ticks == process.start_ticks && !facts.ended() => {
            if facts.main_thread_ends() {
                let living = Membership::of_living_thread(process.pid, &facts)?;
                let Some(living) = living else { return Ok(None) };
                membership = living;
            }
        }
        _ => return Ok(None),
    }
    let inside = in_use(hierarchies, record).enumerate().all(|(index, hierarchy)| {
        match membership.path_in(hierarchy) {
            Some(path) if is_within(path, &record.path) => true,
            // In another hierarchy than that of the weights it may have a group of its own making.
            Some(path) => index > 0 && is_younger(hierarchy, path, &record.path),
            // Where a mount does not show the process, an attach could not put it either.
            None => index > 0,
        }
    });
    Ok(Some(inside))
}

/// See [`super::TierTree::went_to`]. `root`: where LRS's own groups are.
pub(super) fn went_to(
    hierarchies: &[Hierarchy],
    root: &str,
    record: &GroupRecord,
    process: ProcessRef,
) -> Result<Option<String>, CgroupError> {
    let gone = CgroupError::ProcessGone(process.pid);
    let Some(membership) = Membership::of_process(process.pid)? else { return Err(gone) };
    // Asked afterwards: the number was that process's all the time.
    if Stat::read(process.pid)?.is_none_or(|facts| facts.start_ticks != process.start_ticks) {
        return Err(gone);
    }
    let weighed = hierarchies.first().and_then(|primary| membership.path_in(primary));
    Ok(in_use(hierarchies, record).find_map(|hierarchy| {
        let path = membership.path_in(hierarchy)?;
        // One of its own making from before says nothing of where others have moved it since.
        let goes_there = weighed.is_none_or(|weighed| is_within(path, weighed));
        let went =
            goes_there && !is_within(path, root) && is_younger(hierarchy, path, &record.path);
        went.then(|| path.to_owned())
    }))
}

/// Whether the group `path` was made after `own`, of the same hierarchy: kernfs numbers its directories
/// in the order in which they are made (`__kernfs_new_node`, fs/kernfs/dir.c; 5.5+). What cannot be
/// read is not.
fn is_younger(hierarchy: &Hierarchy, path: &str, own: &str) -> bool {
    let number = |path: &str| dirs::inode(&hierarchy.dir(path)).ok().flatten();
    path != "/" && number(path).zip(number(own)).is_some_and(|(there, own)| there > own)
}

/// Whether every process of the group is frozen, by the cgroup2 group or the v1 freezer, be it
/// by LRS or by others. `None` where neither is there.
pub(super) fn frozen(
    hierarchies: &[Hierarchy],
    group: &Group,
) -> Result<Option<bool>, CgroupError> {
    let unified = match &group.dirs.unified {
        Some(dir) => events_frozen(dir)?,
        None => None,
    };
    let freezer = in_use(hierarchies, &group.record)
        .find(|hierarchy| hierarchy.name != UNIFIED && hierarchy.has("freezer"));
    let state = match freezer {
        Some(freezer) => {
            let dir = freezer.dir(&group.record.path);
            files::read_value_if_there(&dir.join("freezer.state"))?
        }
        None => None,
    };
    // Frozen in one of two hierarchies is frozen (freezer-subsystem.rst: FREEZING is not yet).
    let states = [unified, state.map(|state| state == "FROZEN")];
    Ok(states.into_iter().flatten().reduce(|a, b| a || b))
}

/// The `frozen` line of `cgroup.events` (cgroup-v2.rst; 5.2+).
fn events_frozen(dir: &Path) -> Result<Option<bool>, CgroupError> {
    let path = dir.join("cgroup.events");
    match fs::read_to_string(&path) {
        Ok(text) => {
            Ok(text.lines().find_map(|line| line.strip_prefix("frozen ")).map(|v| v == "1"))
        }
        Err(error) if files::is_gone(&error) => Ok(None),
        Err(error) => Err(files::failed("read", &path, None, error)),
    }
}

/// Every process of an open group; see [`super::TierTree::processes`].
pub(super) fn processes(group: &Group) -> Result<Vec<Pid>, CgroupError> {
    group.dirs.cpu.as_ref().map_or(Ok(Vec::new()), |dir| processes_below(dir))
}

/// See [`super::TierTree::processes_except`].
pub(super) fn processes_except(
    group: &Group,
    excepted: &dyn Fn(&[u8]) -> bool,
) -> Result<Vec<Pid>, CgroupError> {
    let Some(top) = &group.dirs.cpu else { return Ok(Vec::new()) };
    let top_path = name::bytes(&group.record.path);
    processes_below_except(top, &|dir| {
        let below = dir.strip_prefix(top).unwrap_or(Path::new(""));
        let mut path = top_path.to_vec();
        if !below.as_os_str().is_empty() {
            path.push(b'/');
            path.extend_from_slice(below.as_os_str().as_bytes());
        }
        excepted(&path)
    })
}
