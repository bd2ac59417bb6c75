//! What others did to a group, so that nothing in it can run.
//!
//! Frozen is a group that is frozen itself, or by one above it, in the cgroup2 hierarchy
//! (`cgroup.freeze`, cgroup-v2.rst; `cgroup.events` says so a moment longer than it is) or in the freezer
//! of v1, where `freezer.state` says `FROZEN` or `FREEZING` also for the sake of a group above
//! (freezer-subsystem.rst); and one with all its processes in groups below that are. Stopped are
//! threads in state `T` or `t` (proc_pid_stat(5)).
//!
//! A group in place is looked at where the process was found in each hierarchy.
//!
//! Limit. Processes that are frozen partly by one hierarchy and partly by the other count as running.

use std::path::{Path, PathBuf};

use super::mounts::{Hierarchy, UNIFIED};
use super::walk::{child_groups, processes_below};
use super::{Attachment, CgroupError, Group, files};
use crate::core::task::Halt;
use crate::kernfs::process::{Stat, proc_file, read_proc};
use crate::units::ProcessRef;

/// Threads looked at of one task; beyond, it counts as running.
const MOST_THREADS: usize = 4096;

/// Whether all of the group is halted. `main` is looked at first, since it runs as a rule.
pub(super) fn of(
    hierarchies: &[Hierarchy],
    group: &Group,
    main: Option<ProcessRef>,
) -> Result<Option<Halt>, CgroupError> {
    let v1 = freezer_dir(hierarchies, group);
    for (dir, is_frozen) in [
        (group.dirs.unified.as_ref(), is_frozen_by_v2 as fn(&Path) -> Result<bool, CgroupError>),
        (v1.as_ref(), is_frozen_by_v1),
    ] {
        let Some(dir) = dir else { continue };
        if is_frozen(dir)? || has_groups(dir) && all_below(dir, is_frozen)? == Some(true) {
            return Ok(Some(Halt::Frozen));
        }
    }
    Ok(is_stopped(group, main)?.then_some(Halt::Stopped))
}

/// The file by which the group at `path`, or one above it, is frozen.
pub(super) fn frozen_upwards(
    hierarchies: &[Hierarchy],
    path: &str,
) -> Result<Option<PathBuf>, CgroupError> {
    for hierarchy in hierarchies {
        let file = match (&*hierarchy.name, hierarchy.has("freezer")) {
            (_, true) => "freezer.self_freezing",
            (UNIFIED, false) => "cgroup.freeze",
            (_, false) => continue,
        };
        let mut path = path.trim_end_matches('/');
        while !path.is_empty() {
            let file = hierarchy.dir(path).join(file);
            if files::read_value_if_there(&file)?.as_deref() == Some("1") {
                return Ok(Some(file));
            }
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    Ok(None)
}

/// The group in the freezer hierarchy of v1. The root of that cannot be frozen.
fn freezer_dir(hierarchies: &[Hierarchy], group: &Group) -> Option<PathBuf> {
    let record = &group.record;
    let freezer = hierarchies.iter().find(|h| h.name != UNIFIED && h.has("freezer"))?;
    if record.attachment == Attachment::Own {
        return Some(freezer.dir(&record.path));
    }
    let (_, path) = record.origin.iter().find(|(name, _)| *name == freezer.name)?;
    (path != "/").then(|| freezer.dir(path))
}

fn is_frozen_by_v2(dir: &Path) -> Result<bool, CgroupError> {
    for dir in dir.ancestors() {
        match files::read_value_if_there(&dir.join("cgroup.freeze"))?.as_deref() {
            Some("1") => return Ok(true),
            Some(_) => {}
            // The root of the hierarchy, or a kernel before 5.2.
            None => break,
        }
    }
    Ok(false)
}

fn is_frozen_by_v1(dir: &Path) -> Result<bool, CgroupError> {
    let state = files::read_value_if_there(&dir.join("freezer.state"))?;
    Ok(state.is_some_and(|state| state != "THAWED"))
}

/// kernfs counts subdirectories in the link count: 2 means none.
fn has_groups(dir: &Path) -> bool {
    rustix::fs::stat(dir).is_ok_and(|stat| stat.st_nlink > 2)
}

/// Whether every group with processes is frozen; `None`: there are no processes.
fn all_below(
    dir: &Path,
    is_frozen: fn(&Path) -> Result<bool, CgroupError>,
) -> Result<Option<bool>, CgroupError> {
    let mut found = None;
    let mut next = vec![dir.to_owned()];
    while let Some(dir) = next.pop() {
        next.extend(child_groups(&dir)?);
        let file = dir.join("cgroup.procs");
        let procs = match read_proc(&file) {
            Ok(procs) => procs,
            Err(error) if files::is_gone(&error) => continue,
            Err(error) => return Err(files::failed("read", &file, None, error)),
        };
        if procs.is_empty() {
            continue;
        }
        if !is_frozen(&dir)? {
            return Ok(Some(false));
        }
        found = Some(true);
    }
    Ok(found)
}

fn is_stopped(group: &Group, main: Option<ProcessRef>) -> Result<bool, CgroupError> {
    let runs = |state: u8| !matches!(state, b'T' | b't' | b'Z' | b'X' | b'x');
    if let Some(main) = main
        && let Some((state, start_ticks)) = state_of(&proc_file(main.pid, "stat"))
        && start_ticks == main.start_ticks
        && runs(state)
    {
        return Ok(false);
    }
    let Some(dir) = &group.dirs.cpu else { return Ok(false) };
    let mut threads = 0;
    let mut stopped = false;
    for pid in processes_below(dir)? {
        // One that ends meanwhile says nothing.
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten() {
            threads += 1;
            let Some((state, _)) = state_of(&task.path().join("stat")) else { continue };
            if runs(state) || threads > MOST_THREADS {
                return Ok(false);
            }
            stopped |= matches!(state, b'T' | b't');
        }
    }
    Ok(stopped)
}

/// State and start; `None`: it has ended, or cannot be read.
fn state_of(path: &Path) -> Option<(u8, u64)> {
    let stat = Stat::parse(&read_proc(path).ok()?)?;
    Some((stat.state, stat.start_ticks))
}
