//! Groups that somebody else owns (YARN's, Slurm's, a systemd unit's): LRS edits their weights,
//! remembers what it found, and gives that back. It never moves processes there, adds children
//! or writes `cpu.idle`, except to leave an idle state its owner set, when the task is active.
//!
//! Of the other hierarchies only those are used where the process's group has the same path: a
//! different one (often the root, or a group of many tasks) would count and shape strangers.

use super::attach::Mover;
use super::mounts::{Hierarchy, UNIFIED};
use super::process::{Membership, is_within};
use super::tiers::CPU_IDLE;
use super::tree::inode;
use super::weights::Scale;
use super::{Attachment, CgroupError, Group, GroupDirs, GroupRecord, Version, files};
use crate::units::ProcessRef;

/// cgroup-v2.rst "IO Priority".
pub(super) const IO_PRIO_CLASS: &str = "io.prio.class";

/// What the owner had in `file`.
pub(super) fn found_number(record: &GroupRecord, file: &str) -> Option<u64> {
    let (_, value) = record.found.iter().find(|(name, _)| name == file)?;
    files::number(value)
}

/// See [`super::TierTree::find_in_place`].
pub(super) fn find(
    mover: &Mover<'_>,
    version: Version,
    cpu: Scale,
    io: impl Iterator<Item = Scale>,
    process: ProcessRef,
) -> Result<Group, CgroupError> {
    let pinned = mover.pin(process)?;
    let path = mover.present_group(process.pid)?;
    refuse(mover, &path, process)?;
    let primary = &mover.hierarchies[0];
    let dir = primary.dir(&path);
    let inode = inode(&dir)?.ok_or(CgroupError::ProcessGone(process.pid))?;
    let membership = Membership::read(process.pid)?.ok_or(CgroupError::ProcessGone(process.pid))?;
    let origin = mover
        .hierarchies
        .iter()
        .filter_map(|h| Some((h.name.clone(), membership.path_in(h)?.to_owned())))
        .collect();
    let mut record =
        GroupRecord { attachment: Attachment::InPlace, path, inode, origin, found: Vec::new() };
    let dirs = dirs(mover.hierarchies, version, &record);

    let Some(weight) = files::read_value_if_there(&dir.join(cpu.file))? else {
        return Err(CgroupError::Refused(format!(
            "the group {} of process {} has no {}: its parent does not enable the cpu \
             controller; enable it there, or admit the process into a group of LRS's",
            dir.display(),
            process.pid,
            cpu.file
        )));
    };
    if let Some(idle) = files::read_value_if_there(&dir.join(CPU_IDLE))? {
        record.found.push((CPU_IDLE.to_owned(), idle));
    }
    record.found.push((cpu.file.to_owned(), weight));
    if let Some(io_dir) = &dirs.io {
        for scale in io {
            if let Some(value) = files::read_value_if_there(&io_dir.join(scale.file))? {
                record.found.push((scale.file.to_owned(), value));
            }
        }
    }
    if pinned.alive() {
        Ok(Group { record, dirs })
    } else {
        Err(CgroupError::ProcessGone(process.pid))
    }
}

fn refuse(mover: &Mover<'_>, path: &str, process: ProcessRef) -> Result<(), CgroupError> {
    let pid = process.pid;
    let refused = |reason: String| {
        Err(CgroupError::Refused(format!("process {pid} cannot be managed in place: {reason}")))
    };
    if path == "/" {
        return refused(
            "it is in the root group, which has no weight; admit it without \
                        in_place"
                .to_owned(),
        );
    }
    if is_within(path, mover.root) {
        return refused(format!("its group {path} is below the LRS root {}", mover.root));
    }
    if is_within(mover.root, path) {
        return refused(format!("its group {path} holds the LRS root {}", mover.root));
    }
    let own = Membership::own()?;
    match own.path_in(&mover.hierarchies[0]) {
        Some(own) if is_within(own, path) => {
            refused(format!("its group {path} holds this daemon; start lrsd elsewhere"))
        }
        _ => Ok(()),
    }
}

/// Directories of an in-place group: where the path is the same as in the primary hierarchy.
pub(super) fn dirs(hierarchies: &[Hierarchy], version: Version, record: &GroupRecord) -> GroupDirs {
    let dir = hierarchies[0].dir(&record.path);
    let same = |accepts: &dyn Fn(&Hierarchy) -> bool| {
        let hierarchy = hierarchies.iter().find(|hierarchy| accepts(hierarchy))?;
        record
            .origin
            .iter()
            .any(|(name, path)| *name == hierarchy.name && *path == record.path)
            .then(|| hierarchy.dir(&record.path))
    };
    match version {
        Version::V1 => GroupDirs {
            cpu: Some(dir),
            cpuacct: same(&|hierarchy| hierarchy.has("cpuacct")),
            io: same(&|hierarchy| hierarchy.has("blkio")),
            memory: None,
            unified: same(&|hierarchy| hierarchy.name == UNIFIED),
        },
        Version::V2 => {
            // Which controllers act there is the owner's choice: its files say.
            let with = |file: &str| dir.join(file).exists().then(|| dir.clone());
            GroupDirs {
                cpu: Some(dir.clone()),
                cpuacct: Some(dir.clone()),
                io: with("io.stat"),
                memory: with("memory.current"),
                unified: Some(dir.clone()),
            }
        }
    }
}

/// Writes back what was found, where it differs. Fine when the group is gone.
pub(super) fn restore(group: &Group) -> Result<(), CgroupError> {
    let Some(cpu) = &group.dirs.cpu else { return Ok(()) };
    if inode(cpu)? != Some(group.record.inode) {
        return Ok(());
    }
    let was_idle = found_number(&group.record, CPU_IDLE) == Some(1);
    // `cpu.idle` comes first in the record: the weight of an idle group cannot be written, and
    // what is found as its weight (0, or 3 shares) is none.
    for (file, value) in &group.record.found {
        if was_idle && file.starts_with("cpu.") && file != CPU_IDLE {
            continue;
        }
        let dir = if file.starts_with("cpu.") { Some(cpu) } else { group.dirs.io.as_ref() };
        let Some(dir) = dir else { continue };
        let path = dir.join(file);
        if files::read_value_if_there(&path)?.is_some_and(|present| present != *value) {
            files::write_value(&path, value)?;
        }
    }
    Ok(())
}
