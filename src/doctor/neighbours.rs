//! Whether busy services run beside LRS while its root has a fixed weight.
//!
//! Passive tasks are idle only among LRS's own tasks. With `tiers.root_weight = "auto"` the root
//! follows what active tasks want, and passive work alone is behind all other groups. With a number
//! passive tasks have that weight against the rest of the node, whether or not an active task wants
//! the CPU (docs/experiments/services.md has what that takes from a service).
//!
//! The CPU time of the groups beside the root is read twice, a moment apart.
//!
//! Limits: a service that is quiet at that moment is not seen, and neither are processes in the
//! mount's own group, as all are on cgroup v1 without systemd.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Check;
use super::probe::{Facts, Reading};
use crate::config::{Auto, Config};
use crate::kernfs::parse;

const SECOND_LOOK: Duration = Duration::from_millis(300);

/// From so many CPUs on a neighbour counts as busy.
const BUSY_CPUS: f64 = 0.05;

/// A control group beside the LRS root, and the CPUs that it kept busy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Neighbour {
    pub(super) name: String,
    pub(super) cpus: f64,
}

/// The groups in `mount` beside `own`, the topmost group of LRS, that are busy; the busiest first.
pub(super) fn read(mount: &Path, own: &Path) -> Reading<Vec<Neighbour>> {
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
    Ok(busy)
}

/// CPU time of each group; one that ends meanwhile is left out.
fn usages(mount: &Path, own: &Path) -> Reading<BTreeMap<PathBuf, Duration>> {
    let failed = |error| format!("cannot list {}: {error}", mount.display());
    let mut usages = BTreeMap::new();
    for entry in std::fs::read_dir(mount).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path != own
            && !path.ends_with("lrsd.slice")
            && let Some(usage) = usage(&path)
        {
            usages.insert(path, usage);
        }
    }
    Ok(usages)
}

fn usage(group: &Path) -> Option<Duration> {
    let read = |file: &str| std::fs::read(group.join(file)).ok();
    let v1 = read("cpuacct.usage").and_then(|text| parse::cpuacct_usage(&text));
    v1.or_else(|| parse::cpu_stat_usage(&read("cpu.stat")?))
}

/// `None`: there is nothing to compare.
pub(super) fn check(facts: &Facts, config: &Config) -> Option<Check> {
    const ID: &str = "neighbours";
    let busy = match facts.neighbours.as_ref()? {
        Ok(busy) if busy.is_empty() => {
            return Some(Check::ok(ID, "no group beside LRS's uses the CPU at the moment"));
        }
        Ok(busy) => busy,
        Err(reason) => return Some(Check::unknown(ID, reason, "run doctor as root")),
    };
    let names = busy.iter().take(3).map(|group| format!("{} {:.2}", group.name, group.cpus));
    let names = names.collect::<Vec<_>>().join(", ");
    Some(match config.tiers.root_weight {
        Auto::Auto => Check::ok(
            ID,
            format!(
                "beside LRS's tasks other groups use CPUs ({names}); passive tasks are behind them \
                 while no active task wants a CPU"
            ),
        ),
        Auto::Fixed(weight) => Check::warn(
            ID,
            format!(
                "beside LRS's tasks other groups use CPUs ({names}), and with tiers.root_weight = \
                 {weight} passive tasks have that weight against each of them"
            ),
            "set tiers.root_weight = \"auto\" if these services come before passive tasks",
        ),
    })
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
    }
}
