//! What disk tiers can do, in all and for each disk.
//!
//! A disk honours a group's weight only under BFQ or iocost; under mq-deadline it honours the
//! class of I/O priorities since 5.14; under kyber and none it honours nothing (spec 4). The class
//! is used with `tiers.io = "idle"` alone; without it such disks are shared equally, which is no
//! fault.

use super::probe::cgroups::{Carrier, carrier};
use super::probe::{Disk, Facts};
use super::{Check, Verdict};
use crate::cgroup::DiskTiers;
use crate::config::Config;

/// First kernel with an mq-deadline that honours the classes of I/O priorities.
const DEADLINE_PRIORITIES_SINCE: (u32, u32) = (5, 14);

/// What passive tasks feel on one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    BfqWeights,
    IoCost,
    /// Order only: no ratio is kept.
    Priorities,
    None,
}

/// What the node's controllers allow, before a disk is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Controllers {
    v2: bool,
    /// v2 io or v1 blkio.
    io: bool,
    /// Groups have no weight for BFQ: it is built without CONFIG_BFQ_GROUP_IOSCHED.
    bfq_without_groups: bool,
    priorities: bool,
    /// The idle I/O class is asked for.
    idle_class: bool,
}

fn controllers(facts: &Facts, config: &Config) -> Controllers {
    let priorities =
        facts.kernel.as_ref().is_ok_and(|kernel| kernel.version >= DEADLINE_PRIORITIES_SINCE);
    let cgroups = facts.cgroups.as_ref().ok();
    let carrier = cgroups.and_then(|cgroups| carrier(cgroups, config));
    let v2 = matches!(carrier, Some(Carrier::V2(_)));
    let (hierarchy, any, weight) = match carrier {
        Some(Carrier::V2(unified)) => {
            let io = unified.available.iter().any(|name| name == "io");
            (Some(&unified.hierarchy).filter(|_| io), "io.stat", "io.bfq.weight")
        }
        Some(Carrier::V1(_)) => {
            let blkio = cgroups.and_then(|cgroups| cgroups.v1_with("blkio"));
            (blkio, "blkio.throttle.io_serviced", "blkio.bfq.weight")
        }
        None => (None, "", ""),
    };
    // The root never has the weight, so without a group below nothing is known against it.
    let bfq_without_groups =
        hierarchy.is_some_and(|group| group.child_has(any) && !group.child_has(weight));
    let idle_class = config.tiers.io == DiskTiers::Idle;
    Controllers { v2, io: hierarchy.is_some(), bfq_without_groups, priorities, idle_class }
}

fn effect(disk: &Disk, facts: &Facts, controllers: Controllers) -> Effect {
    let scheduler = disk.scheduler.as_deref();
    let iocost = facts.cgroups.as_ref().ok().and_then(|cgroups| cgroups.v2.as_ref());
    let iocost = iocost.is_some_and(|unified| unified.iocost.contains(&disk.number));
    match scheduler {
        Some("bfq") if controllers.io && !controllers.bfq_without_groups => Effect::BfqWeights,
        _ if controllers.v2 && controllers.io && iocost => Effect::IoCost,
        // BFQ has always honoured them, with or without groups.
        Some("bfq") if controllers.idle_class => Effect::Priorities,
        Some("mq-deadline") if controllers.idle_class && controllers.priorities => {
            Effect::Priorities
        }
        _ => Effect::None,
    }
}

const V1_LIMIT: &str = "; on v1 for reads and direct or synchronous writes only";

pub(super) fn io_tiers(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "io_tiers";
    if config.tiers.io == DiskTiers::Off {
        return Check::ok(ID, "disks are shared equally, as tiers.io = false says");
    }
    let disks = match &facts.disks {
        Ok(disks) => disks,
        Err(reason) => return Check::unknown(ID, reason, "mount sysfs at /sys"),
    };
    if disks.is_empty() {
        return Check::unknown(
            ID,
            "no whole disk in /sys/block: on network or memory file systems the tiers have no \
             effect",
            "look at the node that has the disks",
        );
    }
    let controllers = controllers(facts, config);
    let effects: Vec<Effect> = disks.iter().map(|disk| effect(disk, facts, controllers)).collect();
    let on = |wanted: &[Effect]| effects.iter().filter(|effect| wanted.contains(effect)).count();
    let (all, weights) = (disks.len(), on(&[Effect::BfqWeights, Effect::IoCost]));
    let priorities = on(&[Effect::Priorities]);
    // The words of `cgroup.io_tiers` in status.
    let kind = match (on(&[Effect::BfqWeights]), weights, priorities) {
        (1.., _, _) => "bfq",
        (0, 1.., _) => "iocost",
        (0, 0, 1..) => "ioprio",
        (0, 0, 0) => "none",
    };
    if weights == all {
        let limit = if controllers.v2 { "" } else { V1_LIMIT };
        return Check::ok(ID, format!("{kind}: weights act on every disk ({all}){limit}"));
    }
    let none = all - weights - priorities;
    let disks = |count: usize| format!("{count} disk{}", if count == 1 { "" } else { "s" });
    let parts = [
        (weights, "weights act on"),
        (priorities, "I/O priorities act, without a ratio, on"),
        (none, "shared equally:"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<_> = parts.map(|(count, what)| format!("{what} {}", disks(*count))).collect();
    let found = format!("{kind}: {}", parts.join(", "));
    if config.tiers.io == DiskTiers::Weights {
        let how = "; with the BFQ scheduler passive tasks would come behind active ones there";
        return Check::ok(ID, found + how);
    }
    let remedy = if controllers.io {
        "see the checks of the single disks, or set tiers.io = false"
    } else {
        "make the io (v2) or blkio (v1) controller available, or set tiers.io = false"
    };
    Check::warn(ID, found, remedy)
}

pub(super) fn each(facts: &Facts, config: &Config) -> Vec<Check> {
    // `io_tiers` reports once why there are none.
    let Ok(disks) = &facts.disks else { return Vec::new() };
    let controllers = controllers(facts, config);
    disks.iter().map(|disk| judge(disk, facts, config, controllers)).collect()
}

fn judge(disk: &Disk, facts: &Facts, config: &Config, controllers: Controllers) -> Check {
    let id = format!("disk.{}", disk.name);
    let scheduler = disk.scheduler.as_deref().unwrap_or("no scheduler");
    let effect = effect(disk, facts, controllers);
    let found = match effect {
        Effect::BfqWeights if controllers.v2 => String::from("bfq: weights act"),
        Effect::BfqWeights => format!("bfq: weights act{V1_LIMIT}"),
        Effect::IoCost => format!("{scheduler} with iocost: weights act"),
        Effect::Priorities => {
            format!("{scheduler}: I/O priorities act, passive tasks come last without a ratio")
        }
        Effect::None => format!("{scheduler}: shared equally by active and passive tasks"),
    };
    let is_fine = matches!(effect, Effect::BfqWeights | Effect::IoCost);
    if config.tiers.io != DiskTiers::Idle || is_fine {
        return Check::ok(id, found);
    }
    let choose =
        format!("echo bfq > /sys/block/{}/queue/scheduler, and a udev rule to keep it", disk.name);
    let remedy = if !controllers.io {
        String::from("make the io (v2) or blkio (v1) controller available")
    } else if scheduler == "bfq" {
        String::from("boot a kernel with CONFIG_BFQ_GROUP_IOSCHED")
    } else if disk.schedulers.iter().any(|name| name == "bfq") {
        choose
    } else if disk.scheduler.is_some() {
        format!("modprobe bfq; {choose}")
    } else {
        String::from("none: the device's driver takes no scheduler")
    };
    Check::bad(Verdict::Warn, id, found, remedy)
}
