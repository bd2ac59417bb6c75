//! The CPUs of LRS's tasks, by the same reading as the daemon's ([`crate::sample::CpuReader`]).

use std::path::Path;

use super::cgroups::{Cgroups, below_sys, carrier};
use super::reading::Reading;
use super::socket::Socket;
use crate::cgroup::mounts::Mounts;
use crate::config::{Config, Mode};
use crate::core::cpus::UsableCpus;
use crate::core::sample::NodeSample;
use crate::kernfs::files::Descriptors;
use crate::sample::{CpuReader, CpuReading, QuotaDirs, Settings};

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::doctor) struct Cpus {
    /// Their numbers, as the kernel writes a list.
    pub(in crate::doctor) list: String,
    pub(in crate::doctor) usable: UsableCpus,
    /// What could not be read or does not count, one sentence each.
    pub(in crate::doctor) problems: Vec<String>,
}

/// Reads below `proc` and `sys`. `root`: the LRS root, below its mounts.
pub(in crate::doctor) fn read(
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
    let settings = Settings {
        proc: proc.to_owned(),
        sys: sys.to_owned(),
        quota_dirs: quota_dirs(config, root, cgroups),
        cpuset_dirs: cpusets.iter().map(|dir| below_sys(dir, sys)).collect(),
        ..Settings::of_this_machine(0)
    };
    let reading =
        CpuReader::new(&settings).read(&Descriptors::new(0), &mut Vec::new(), &mut problems);
    let CpuReading { cpus, quotas, .. } = reading;
    let node = NodeSample { cpus, quotas, ..NodeSample::default() };
    match node.usable_cpus().zip(node.cpus) {
        Some((usable, cpus)) => Ok(Cpus { list: cpus.to_string(), usable, problems }),
        None => Err(problems.join("; ")),
    }
}

/// As [`crate::cgroup::TierTree::quota_dirs`].
fn quota_dirs(config: &Config, root: &str, cgroups: &Reading<Cgroups>) -> Vec<QuotaDirs> {
    let Ok(cgroups) = cgroups else { return Vec::new() };
    let carrier = carrier(cgroups, config);
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
