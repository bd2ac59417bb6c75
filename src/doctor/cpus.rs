//! The CPUs of LRS's tasks, by the same reading as the daemon's ([`crate::sample::CpuReader`]).

use std::path::{Path, PathBuf};

use super::Check;
use super::probe::{Cgroups, Reading, Socket};
use crate::cgroup::mounts::Mounts;
use crate::config::{Auto, Config, Mode};
use crate::core::cpus::UsableCpus;
use crate::core::sample::NodeSample;
use crate::kernfs::files::Descriptors;
use crate::sample::{CpuReader, CpuReading, QuotaDirs, Settings};

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cpus {
    /// Their numbers, as the kernel writes a list.
    pub(super) list: String,
    pub(super) usable: UsableCpus,
    /// What could not be read or does not count, one sentence each.
    pub(super) problems: Vec<String>,
}

/// Reads below `proc` and `sys`. `root`: the LRS root, below its mounts.
pub(super) fn read(
    (proc, sys): (&Path, &Path),
    config: &Config,
    root: &str,
    cgroups: &Reading<Cgroups>,
    socket: &Socket,
) -> Reading<Cpus> {
    // Of the daemon, where it can be seen: tasks live in its cpuset on v1.
    let daemon = match socket {
        Socket::Served { pid: Some(pid), .. } => Some(proc.join(pid.to_string())),
        _ => None,
    };
    let lrsd = daemon.unwrap_or_else(|| proc.join("self")).join("cgroup");
    let mounts = Mounts::read_file(&proc.join("self/mountinfo")).map_err(|e| e.to_string())?;
    let mut problems = Vec::new();
    let cpusets = crate::cgroup::cpus::cpuset_dirs(&mounts, root, &lrsd).unwrap_or_else(|error| {
        problems.push(format!("no cpuset counts: {error}"));
        Vec::new()
    });
    let below_sys =
        |dir: PathBuf| dir.strip_prefix("/sys").map(|rest| sys.join(rest)).unwrap_or(dir);
    let settings = Settings {
        proc: proc.to_owned(),
        sys: sys.to_owned(),
        quota_dirs: quota_dirs(config, root, cgroups),
        cpuset_dirs: cpusets.into_iter().map(below_sys).collect(),
        ..Settings::of_this_machine(0)
    };
    let reading =
        CpuReader::new(&settings).read(&Descriptors::new(0), &mut Vec::new(), &mut problems);
    let CpuReading { cpus, quotas, .. } = reading;
    let node = NodeSample { cpus, quotas, ..NodeSample::default() };
    match UsableCpus::of(&node).zip(node.cpus) {
        Some((usable, cpus)) => Ok(Cpus { list: cpus.to_string(), usable, problems }),
        None => Err(problems.join("; ")),
    }
}

/// As [`crate::cgroup::TierTree::quota_dirs`].
fn quota_dirs(config: &Config, root: &str, cgroups: &Reading<Cgroups>) -> Vec<QuotaDirs> {
    let Ok(cgroups) = cgroups else { return Vec::new() };
    let carrier = super::cgroups::carrier(cgroups, config);
    let Some(carrier) = carrier.filter(|_| config.daemon.mode == Mode::Enforce) else {
        return Vec::new();
    };
    let cpu = carrier.hierarchy();
    let accounting = cgroups.v1_with("cpuacct").filter(|_| !cpu.controllers.is_empty());
    let depth = Path::new(root)
        .components()
        .filter(|part| matches!(part, std::path::Component::Normal(_)))
        .count();
    let quota = cpu.root.path.ancestors();
    let usage = accounting.unwrap_or(cpu).root.path.ancestors();
    let dirs = quota.zip(usage).take(depth + 1);
    dirs.map(|(quota, usage)| QuotaDirs { quota: quota.into(), usage: usage.into() }).collect()
}

/// Whether active slots and CPUs fit.
pub(super) fn check(cpus: &Reading<Cpus>, config: &Config) -> Check {
    const ID: &str = "cpus";
    let cpus = match (config.slots.active, cpus) {
        (_, Ok(cpus)) => cpus,
        (Auto::Auto, Err(reason)) => {
            return Check::unknown(ID, reason, "set slots.active to a number");
        }
        (Auto::Fixed(active), Err(reason)) => {
            return Check::ok(ID, format!("slots.active = {active}; {reason}"));
        }
    };
    let (list, slots) = (&cpus.list, cpus.usable.slots());
    let mut found = format!("{} to be used ({list})", cpus.usable.spread());
    if let Some(quota) = cpus.usable.binding_quota() {
        found += &format!(", of which a quota above the tasks allows {quota:.2}");
    }
    if !cpus.problems.is_empty() {
        return Check::warn(
            ID,
            format!("{found}; {}", cpus.problems.join("; ")),
            "make the file readable, or put right what it says; until then it does not count",
        );
    }
    match config.slots.active {
        Auto::Auto => Check::ok(ID, format!("{found}, so {slots} active slots")),
        Auto::Fixed(active) if active > slots => Check::warn(
            ID,
            format!("{found}, but slots.active = {active}: active tasks share CPUs"),
            "set slots.active = \"auto\"",
        ),
        Auto::Fixed(active) => Check::ok(ID, format!("{found}, slots.active = {active}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Reading<Cpus>) {
        let dir = tempfile::tempdir().unwrap();
        let stat = "cpu  0 0\ncpu0 1 0 0 10\ncpu1 1 0 0 10\n";
        let mountinfo = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let always = [
            ("proc/stat", stat),
            ("proc/self/mountinfo", mountinfo),
            ("proc/self/cgroup", "0::/lrsd.slice\n"),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
        ];
        for (path, text) in always.iter().chain(files) {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let (proc, sys) = (dir.path().join("proc"), dir.path().join("sys"));
        let config = Config::default();
        let services = super::super::services::Services {
            systemd: true,
            unit: None,
            yarn_unit: None,
            bus: Ok(()),
            policy: None,
        };
        let root = super::super::probe::root_name(&config, &services);
        let cgroups = super::super::probe::cgroups(&proc, &sys, &config, &services);
        let cpus = read((&proc, &sys), &config, root, &cgroups, &Socket::Absent);
        (dir, cpus)
    }

    fn found(files: &[(&str, &str)]) -> String {
        let (_dir, cpus) = machine(files);
        check(&cpus, &Config::default()).found
    }

    #[test]
    fn cpuset_and_quota_of_the_tasks_count_and_those_of_lrsd_do_not() {
        assert_eq!(found(&[]), "2 to be used (0-1), so 2 active slots");
        let slice = "sys/fs/cgroup/lrs/";
        assert_eq!(
            found(&[(&format!("{slice}cpuset.cpus.effective"), "1\n")]),
            "1 to be used (1), so 1 active slots"
        );
        assert_eq!(
            found(&[
                (&format!("{slice}cpu.max"), "100000 100000\n"),
                (&format!("{slice}cpu.stat"), "usage_usec 5\n")
            ]),
            "2 to be used (0-1), of which a quota above the tasks allows 1.00, so 1 active slots"
        );
        assert_eq!(
            found(&[("sys/fs/cgroup/lrsd.slice/cpuset.cpus.effective", "1\n")]),
            "2 to be used (0-1), so 2 active slots"
        );
    }

    #[test]
    fn what_cannot_be_read_is_a_warning() {
        let text = found(&[("sys/devices/system/cpu/online", "many\n")]);
        assert!(text.starts_with("2 to be used (0-1); ") && text.contains("cpu/online"), "{text}");
    }
}
