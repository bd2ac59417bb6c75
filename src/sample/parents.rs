//! The groups right above those of tasks in place, which have in their counters for good what groups used
//! that are gone ([`crate::core::usage`] has the rule).

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ParentSample;
use super::group::{Context, GroupReader};
use crate::cgroup::GroupDirs;
use crate::core::model::TaskId;
use crate::kernfs::files::read_once;

/// Cycles for which one is read on that has no task in it: the next one may be as short.
const KEPT_EMPTY: u32 = 20;

/// All that have or had tasks in them.
#[derive(Debug, Default)]
pub(super) struct Parents(BTreeMap<Arc<Path>, Parent>);

#[derive(Debug)]
struct Parent {
    reader: GroupReader,
    tasks: BTreeMap<TaskId, Known>,
    empty: u32,
}

/// A task that was in it since the last reading.
#[derive(Debug)]
struct Known {
    name: Arc<OsStr>,
    has_ended: bool,
}

/// Where CPU time of a group is counted.
fn counted_in(dirs: &GroupDirs) -> Option<&Path> {
    dirs.cpuacct.as_ref().or(dirs.unified.as_ref()).map(PathBuf::as_path)
}

impl Parents {
    /// A task is read in `dirs`. `root`: the LRS root, which is read as a whole; without one tasks have no
    /// groups.
    pub fn enter(&mut self, id: TaskId, dirs: &GroupDirs, root: Option<&Path>) {
        let dir = counted_in(dirs);
        let Some((parent, name)) = dir.and_then(|dir| dir.parent().zip(dir.file_name())) else {
            return;
        };
        if root.is_none_or(|root| root == parent) {
            return;
        }
        let known = Known { name: name.into(), has_ended: false };
        let parent = self.0.entry(parent.into()).or_insert_with_key(|parent| {
            let dirs = GroupDirs { cpuacct: Some(parent.to_path_buf()), ..GroupDirs::default() };
            Parent { reader: GroupReader::new(dirs, 0), tasks: BTreeMap::new(), empty: 0 }
        });
        parent.tasks.insert(id, known);
    }

    /// It is read no more.
    pub fn leave(&mut self, id: TaskId, dirs: &GroupDirs) {
        let parent = counted_in(dirs).and_then(Path::parent).and_then(|dir| self.0.get_mut(dir));
        if let Some(known) = parent.and_then(|parent| parent.tasks.get_mut(&id)) {
            known.has_ended = true;
        }
    }

    /// One reading. A group that cannot be read is left out: its tasks say why.
    pub fn read(&mut self, context: &mut Context<'_>) -> Vec<ParentSample> {
        self.0.retain(|_, parent| {
            parent.empty = if parent.tasks.is_empty() { parent.empty + 1 } else { 0 };
            parent.empty <= KEPT_EMPTY
        });
        let read = |(dir, parent): (&Arc<Path>, &mut Parent)| {
            let tasks: Vec<_> =
                parent.tasks.iter().map(|(id, known)| (*id, Arc::clone(&known.name))).collect();
            parent.tasks.retain(|_, known| !known.has_ended);
            let cpu = parent.reader.read_cpu(context)?.cpu?;
            let others = others(dir, &tasks, context);
            Some(ParentSample { group: Arc::clone(dir), cpu, tasks, others })
        };
        self.0.iter_mut().filter_map(read).collect()
    }
}

/// [`ParentSample::others`].
fn others(
    dir: &Path,
    tasks: &[(TaskId, Arc<OsStr>)],
    context: &mut Context<'_>,
) -> Option<Vec<Arc<OsStr>>> {
    let processes = read_once(&dir.join("cgroup.procs"), context.buffer).ok()?;
    if !processes.is_empty() {
        return None;
    }
    let names: HashSet<&OsStr> = tasks.iter().map(|(_, name)| &**name).collect();
    let mut others = Vec::new();
    for entry in std::fs::read_dir(dir).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name();
        if entry.file_type().ok()?.is_dir() && !names.contains(name.as_os_str()) {
            others.push(name.into());
        }
    }
    Some(others)
}
