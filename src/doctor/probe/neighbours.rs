//! The busy groups beside the LRS root: their CPU time is read twice, a moment apart.
//!
//! Limits: a service that is quiet at that moment is not seen, and neither are processes in the
//! mount's own group, as all are on cgroup v1 without systemd.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::reading::Reading;
use crate::kernfs::parse;

const SECOND_LOOK: Duration = Duration::from_millis(300);

/// From so many CPUs on a neighbour counts as busy.
const BUSY_CPUS: f64 = 0.05;

/// A control group beside the LRS root, and the CPUs that it kept busy.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::doctor) struct Neighbour {
    pub(in crate::doctor) name: String,
    pub(in crate::doctor) cpus: f64,
}

/// The groups in `mount` beside `own`, the topmost group of LRS, that are busy; the busiest first.
pub(in crate::doctor) fn read(mount: &Path, own: &Path) -> Reading<Vec<Neighbour>> {
    let first = usages(mount, own)?;
    let began = crate::clock::boot_time();
    std::thread::sleep(SECOND_LOOK);
    let second = usages(mount, own)?;
    let elapsed = crate::clock::boot_time().0.saturating_sub(began.0).max(SECOND_LOOK);
    let mut busy: Vec<_> = second
        .into_iter()
        .filter_map(|(path, usage)| {
            let used = usage.checked_sub(*first.get(&path)?)?;
            let cpus = used.as_secs_f64() / elapsed.as_secs_f64();
            let name = path.file_name()?.to_string_lossy().into_owned();
            (cpus >= BUSY_CPUS).then_some(Neighbour { name, cpus })
        })
        .collect();
    busy.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
    match unread(mount, own)? {
        Some(group) if busy.is_empty() => Err(format!(
            "{} has processes, and no file of it says how much CPU they use (cpuacct is another mount)",
            group.display()
        )),
        _ => Ok(busy),
    }
}

/// CPU time of each group; one that ends meanwhile is left out.
fn usages(mount: &Path, own: &Path) -> Reading<BTreeMap<PathBuf, Duration>> {
    let all = groups(mount, own)?.into_iter();
    Ok(all.filter_map(|group| usage(&group).map(|usage| (group, usage))).collect())
}

/// A group with processes of which the CPU time is not known.
fn unread(mount: &Path, own: &Path) -> Reading<Option<PathBuf>> {
    let has_processes = |group: &Path| {
        std::fs::read(group.join("cgroup.procs")).is_ok_and(|processes| !processes.is_empty())
    };
    let mut all = groups(mount, own)?.into_iter();
    Ok(all.find(|group| usage(group).is_none() && has_processes(group)))
}

/// The groups beside those of LRS.
fn groups(mount: &Path, own: &Path) -> Reading<Vec<PathBuf>> {
    let failed = |error| format!("cannot list {}: {error}", mount.display());
    let mut groups = Vec::new();
    for entry in std::fs::read_dir(mount).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path != own && !path.ends_with("lrsd.slice") {
            groups.push(path);
        }
    }
    Ok(groups)
}

fn usage(group: &Path) -> Option<Duration> {
    let read = |file: &str| std::fs::read(group.join(file)).ok();
    let v1 = read("cpuacct.usage").and_then(|text| parse::cpuacct_usage(&text));
    v1.or_else(|| parse::cpu_stat_usage(&read("cpu.stat")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_beside_the_root_are_read_and_its_own_is_not() {
        let mount = tempfile::tempdir().unwrap();
        for (group, file, text) in [
            ("system.slice", "cpu.stat", "usage_usec 2000000\nuser_usec 1\n"),
            ("yarn", "cpuacct.usage", "3000000000\n"),
            ("lrs.slice", "cpu.stat", "usage_usec 9\n"),
            ("empty", "cgroup.procs", ""),
        ] {
            let dir = mount.path().join(group);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join(file), text).unwrap();
        }
        let found = usages(mount.path(), &mount.path().join("lrs.slice")).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(path, usage)| (path.file_name().unwrap().to_str().unwrap(), usage.as_secs()))
            .collect();
        assert_eq!(found, [("system.slice", 2), ("yarn", 3)]);
        assert_eq!(read(mount.path(), mount.path()).unwrap(), [], "none of them moves");
        std::fs::write(mount.path().join("empty/cgroup.procs"), "17\n").unwrap();
        assert!(read(mount.path(), mount.path()).unwrap_err().contains("empty has processes"));
    }
}
