//! Freezing the group of a task: `cgroup.freeze` of the cgroup2 group or twin (Linux 5.2), else
//! `freezer.state` of cgroup v1 (cgroup-v2.rst, freezer-subsystem.rst).
//!
//! The cgroup2 file comes first, since a task frozen by it can be killed; one frozen by v1 dies only when
//! it is thawed. The kernel freezes behind the write: the `frozen` of a reading says when it is done.
//! What others froze is neither frozen again nor thawed.

use std::path::PathBuf;

use crate::cgroup::mounts::Hierarchy;
use crate::cgroup::{CgroupError, Group, dirs, files};

/// The file, and what is written into it.
struct Switch {
    file: PathBuf,
    on: &'static str,
    off: &'static str,
}

fn switch(hierarchies: &[Hierarchy], group: &Group) -> Option<Switch> {
    let unified = group.dirs.unified.as_ref().map(|dir| dir.join("cgroup.freeze"));
    if let Some(file) = unified.filter(|file| file.exists()) {
        return Some(Switch { file, on: "1", off: "0" });
    }
    let freezer =
        dirs::in_use(hierarchies, &group.record).find(|hierarchy| hierarchy.has("freezer"))?;
    let file = freezer.dir(&group.record.path).join("freezer.state");
    Some(Switch { file, on: "FROZEN", off: "THAWED" })
}

/// Freezes the group.
pub(in crate::cgroup) fn freeze(
    hierarchies: &[Hierarchy],
    group: &Group,
) -> Result<(), CgroupError> {
    let path = &group.record.path;
    let Some(switch) = switch(hierarchies, group) else {
        return Err(CgroupError::Unsupported(format!(
            "{path} has neither cgroup.freeze nor freezer.state; mount cgroup2 or the freezer \
             controller"
        )));
    };
    match files::read_value_if_there(&switch.file)? {
        Some(state) if state == switch.off => files::write_value(&switch.file, switch.on),
        Some(_) => Err(CgroupError::Refused(format!("{path} is frozen by other software"))),
        None => Err(CgroupError::Refused(format!("{path} is gone"))),
    }
}

/// Thaws a group that LRS froze; nothing to do for one that is not frozen, or gone.
pub(in crate::cgroup) fn thaw(hierarchies: &[Hierarchy], group: &Group) -> Result<(), CgroupError> {
    let Some(switch) = switch(hierarchies, group) else { return Ok(()) };
    match files::read_value_if_there(&switch.file)? {
        Some(state) if state != switch.off => files::write_value(&switch.file, switch.off),
        _ => Ok(()),
    }
}
