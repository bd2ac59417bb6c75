//! What an owner's quota lets a group in place have of the CPU.
//!
//! YARN's strict mode (`...cgroups.strict-resource-usage`) gives each container a quota of its
//! vcores. Weights still decide who comes first, but spare CPU above the quota stays unused, so
//! it has to be seen.

use super::{Attachment, CgroupError, CpuQuota, Group, files};
use crate::kernfs::parse;

/// The quota of the group itself. `None`: unlimited, or a group of LRS.
pub(super) fn read(group: &Group) -> Result<Option<CpuQuota>, CgroupError> {
    let (Attachment::InPlace, Some(dir)) = (group.record.attachment, &group.dirs.cpu) else {
        return Ok(None);
    };
    if let Some(text) = files::read_value_if_there(&dir.join("cpu.max"))? {
        return Ok(v2(&text));
    }
    let quota = files::read_value_if_there(&dir.join("cpu.cfs_quota_us"))?;
    let period = files::read_value_if_there(&dir.join("cpu.cfs_period_us"))?;
    Ok(quota.zip(period).and_then(|(quota, period)| v1(&quota, &period)))
}

/// `50000 100000`, or `max 100000` (cgroup-v2.rst).
fn v2(text: &str) -> Option<CpuQuota> {
    let (quota, period) = text.split_once(' ')?;
    v1(quota, period)
}

/// Two files; -1 is unlimited (sched-bwc.rst).
fn v1(quota: &str, period: &str) -> Option<CpuQuota> {
    let number = |text: &str| parse::number(text.trim().as_bytes());
    number(quota).zip(number(period)).map(|(quota, period)| CpuQuota { quota, period })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_the_same() {
        let half = Some(CpuQuota { quota: 50_000, period: 100_000 });
        assert_eq!(v2("50000 100000"), half);
        assert_eq!(v1("50000", "100000\n"), half);
        assert_eq!(half.map(CpuQuota::cpus), Some(0.5));
        for text in ["max 100000", "", "50000", "x y"] {
            assert_eq!(v2(text), None, "{text:?}");
        }
        assert_eq!(v1("-1", "100000"), None);
    }
}
