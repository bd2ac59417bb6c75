//! Limits a process would leave behind by being moved.
//!
//! A user below a finite `memory.max` or `cpu.max` could shed it by asking for a slot, and
//! whoever is found by being found. The groups above the LRS root limit the task there as well
//! and do not count. On v1 only those hierarchies matter that LRS moves in: it leaves `memory`,
//! `pids` and `cpuset` alone. The process asked about speaks for all that would move with it: those
//! are in the same groups ([`super::attach`]).
//!
//! Limits. `pids.max` is ignored: systemd gives every unit one (DefaultTasksMax=), so heeding it
//! would refuse all there is on v2, and the LRS root can be given one of its own. So is
//! `cpu.rt_runtime_us` of v1: every group has a finite one, and one that LRS makes has 0, so that
//! no process gains real-time budget by a move. The rarer maxima of v2 (hugetlb, misc, rdma, dmem)
//! are not looked at.

use std::path::Path;

use super::mounts::Hierarchy;
use super::mover::Mover;
use super::process::{Membership, is_within};
use super::{CgroupError, Origin, files};
use crate::units::ProcessRef;

/// The first limit that would be escaped, in a sentence; also when it cannot be read. `home`: where
/// the process was, by hierarchy, if that is not where it is.
pub(super) fn escaped(
    mover: &Mover<'_>,
    process: ProcessRef,
    home: Option<&Origin>,
) -> Option<String> {
    match find(mover, process, home) {
        Ok(found) => found,
        Err(error) => Some(format!(
            "cannot tell whether process {} would escape a limit: {error}",
            process.pid
        )),
    }
}

/// v2, where all controllers are in one hierarchy, or in the one beside those of v1
/// (cgroup-v2.rst).
const LIMITS: &[&str] = &[
    "memory.max",
    "memory.high",
    "memory.swap.max",
    "memory.swap.high",
    "memory.zswap.max",
    "cpu.max",
    "io.max",
    "cpuset.cpus",
    "cpuset.mems",
];

/// v1 (sched-bwc.rst).
const CPU_LIMITS: &[&str] = &["cpu.cfs_quota_us"];

/// v1 (blkio-controller.rst).
const BLKIO_LIMITS: &[&str] = &[
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];

fn limits_of(hierarchy: &Hierarchy) -> Vec<&'static str> {
    if hierarchy.is_unified() {
        return LIMITS.to_vec();
    }
    let of = |controller: &str, files: &'static [&'static str]| {
        if hierarchy.has(controller) { files } else { &[] }
    };
    [of("cpu", CPU_LIMITS), of("blkio", BLKIO_LIMITS)].concat()
}

fn find(
    mover: &Mover<'_>,
    process: ProcessRef,
    home: Option<&Origin>,
) -> Result<Option<String>, CgroupError> {
    // Refuses a process in a place that cannot be seen.
    mover.present_group(process.pid)?;
    let membership = Membership::read(process.pid)?.ok_or(CgroupError::ProcessGone(process.pid))?;
    for hierarchy in mover.hierarchies {
        let path = match home {
            None => membership.path_in(hierarchy),
            Some(home) => {
                let place = home.iter().find(|(name, _)| *name == hierarchy.name);
                place.map(|(_, path)| path.as_str())
            }
        };
        let Some(path) = path else { continue };
        let limits = limits_of(hierarchy);
        // A text that stands for bytes is cut at its slashes like any other.
        let groups = Path::new(path).ancestors().filter_map(Path::to_str);
        for name in groups.take_while(|name| *name != "/" && !is_within(mover.root, name)) {
            for limit in &limits {
                let file = hierarchy.dir(name).join(limit);
                let Some(value) = files::read_value_if_there(&file)? else { continue };
                if !is_unlimited(limit, &value) {
                    return Ok(Some(format!(
                        "process {} is limited by {} = {}, which a move would lift",
                        process.pid,
                        file.display(),
                        value
                    )));
                }
            }
        }
    }
    Ok(None)
}

/// `max`, `max 100000` (v2), `-1` (v1); a list of devices or CPUs that names none.
fn is_unlimited(file: &str, value: &str) -> bool {
    match file {
        "cpuset.cpus" | "cpuset.mems" => value.is_empty(),
        // A line for each device: `8:0 rbps=1048576 wbps=max riops=max wiops=max`.
        "io.max" => value
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .all(|(_, v)| v == "max"),
        throttle if throttle.starts_with("blkio.") => value.is_empty(),
        _ => matches!(value.split(' ').next(), Some("max" | "-1")),
    }
}

#[cfg(test)]
mod tests {
    use super::is_unlimited;

    #[test]
    fn words_for_no_limit() {
        for value in ["max", "max 100000", "-1"] {
            assert!(is_unlimited("cpu.max", value), "{value}");
        }
        for value in ["0", "1073741824", "50000 100000", ""] {
            assert!(!is_unlimited("memory.high", value), "{value}");
        }
        for (file, none, some) in [
            ("cpuset.cpus", "", "0-3"),
            ("cpuset.mems", "", "0"),
            ("io.max", "8:0 rbps=max wbps=max", "8:0 rbps=max wbps=max\n8:16 rbps=1 wbps=max"),
            ("io.max", "", "8:0 riops=100"),
            ("blkio.throttle.read_bps_device", "", "8:0 1048576"),
        ] {
            assert!(is_unlimited(file, none), "{file}: {none}");
            assert!(!is_unlimited(file, some), "{file}: {some}");
        }
    }
}
