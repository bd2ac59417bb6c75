//! Hierarchies, rights in them, and what the CPU tiers can promise.

use super::node::CPU_IDLE_SINCE;
use super::probe::cgroups::{Carrier, carrier, wanted};
use super::probe::{Cgroups, Facts, Hierarchy, Unified};
use super::{Check, Verdict};
use crate::cgroup::mounts::V1_CONTROLLERS;
use crate::cgroup::obstacle::{self, Obstacle};
use crate::cgroup::{DiskTiers, PassiveCpu};
use crate::config::{Auto, Config, Mode};

/// What is bad in enforce mode does not matter to a daemon that only observes.
fn unless_observing(config: &Config, check: Check) -> Check {
    if config.daemon.mode == Mode::Enforce || check.verdict == Verdict::Ok {
        return check;
    }
    Check::ok(check.id, format!("{}; not needed: daemon.mode = \"observe\"", check.found))
}

pub(super) fn hierarchy(facts: &Facts, config: &Config) -> Check {
    unless_observing(config, judge_hierarchy(facts, config))
}

fn judge_hierarchy(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "cgroup";
    let cgroups = match &facts.cgroups {
        Ok(cgroups) => cgroups,
        Err(reason) => return Check::unknown(ID, reason, "mount procfs at /proc"),
    };
    let carrier = carrier(cgroups, config);
    if let Some(check) = carrier.as_ref().and_then(|found| out_of_sight(found.hierarchy())) {
        return check;
    }
    match carrier {
        Some(Carrier::V2(unified)) => judge_v2(unified, config),
        Some(Carrier::V1(cpu)) => judge_v1(cpu, cgroups),
        None => {
            let unified = cgroups.v2.as_ref().map(|unified| unified.hierarchy.point.as_path());
            let Obstacle { found, remedy } = obstacle::no_cpu(wanted(config), unified);
            Check::fail(ID, found, remedy)
        }
    }
}

/// A hierarchy that tasks need shows a part that is not ours: lrsd does not start then.
fn out_of_sight(hierarchy: &Hierarchy) -> Option<Check> {
    let Obstacle { found, remedy } = hierarchy.in_sight.as_ref().err()?;
    Some(Check::fail("cgroup", found, remedy))
}

/// What keeps lrsd from using a hierarchy that tasks can do without.
fn not_used(hierarchy: &Hierarchy) -> Option<&Obstacle> {
    hierarchy.in_sight.as_ref().err().or(hierarchy.usable.as_ref().err())
}

fn judge_v2(unified: &Unified, config: &Config) -> Check {
    const ID: &str = "cgroup";
    let found =
        format!("v2 at {}: {}", unified.hierarchy.point.display(), unified.available.join(" "));
    let enabled = |name: &str| unified.enabled.iter().any(|enabled| enabled == name);
    let wanted =
        [("io", config.tiers.io != DiskTiers::Off), ("memory", config.cgroup.memory_controller)];
    let missing = wanted
        .into_iter()
        .filter_map(|(name, wanted)| wanted.then_some(name))
        .filter(|name| !unified.available.iter().any(|available| available == name))
        .collect::<Vec<_>>();
    if !enabled("cpu") && unified.internal_processes {
        return Check::warn(
            ID,
            format!("{found}; cpu is not enabled below, and processes live in that group itself"),
            "start lrsd as the only process of that group, or enable cpu in its \
             cgroup.subtree_control from outside",
        );
    }
    if !missing.is_empty() {
        return Check::warn(
            ID,
            format!("{found}; without {}", missing.join(" and ")),
            "delegate the io and memory controllers too: disk tiers need both, and figures of memory \
             the second",
        );
    }
    Check::ok(ID, found)
}

fn judge_v1(cpu: &Hierarchy, cgroups: &Cgroups) -> Check {
    const ID: &str = "cgroup";
    let missing: Vec<&str> =
        V1_CONTROLLERS.into_iter().filter(|name| cgroups.v1_with(name).is_none()).collect();
    let mut found = format!("v1 at {}", cpu.point.display());
    match &cgroups.v2 {
        Some(twin) => {
            found.push_str(&format!(", cgroup2 at {} beside it", twin.hierarchy.point.display()));
        }
        None => found.push_str(", no cgroup2 mount beside it"),
    }
    if !missing.is_empty() {
        return Check::warn(
            ID,
            format!("{found}; not mounted: {}", missing.join(", ")),
            format!("mount -t cgroup -o {0} {0} /sys/fs/cgroup/{0}", missing[0]),
        );
    }
    if cgroups.v2.is_none() {
        return Check::warn(
            ID,
            format!("{found}: no notice of empty groups, no pressure of single tasks"),
            "mkdir /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified",
        );
    }
    Check::ok(ID, found)
}

pub(super) fn rights(facts: &Facts, config: &Config) -> Check {
    unless_observing(config, judge_rights(facts, config))
}

fn judge_rights(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "rights";
    let Ok(cgroups) = &facts.cgroups else {
        return Check::unknown(ID, "the cgroup mounts are not known", "mount procfs at /proc");
    };
    let Some(carrier) = carrier(cgroups, config) else {
        return Check::unknown(
            ID,
            "no hierarchy to make groups in",
            "see the check \"cgroup\", or set daemon.mode = \"observe\"",
        );
    };
    let hierarchy = carrier.hierarchy();
    let root = &hierarchy.root;
    let mut refused: Vec<Obstacle> = hierarchy.usable.clone().err().into_iter().collect();
    if let Carrier::V2(unified) = &carrier
        && !unified.enabled.iter().any(|name| name == "cpu")
        && let Err(reason) = &unified.delegable
    {
        refused.push(Obstacle { found: reason.clone(), remedy: DELEGATE.to_owned() });
    }
    let who = if facts.uid == 0 { String::from("root") } else { format!("uid {}", facts.uid) };
    let Some(Obstacle { found, remedy }) = refused.first() else {
        let how = if root.exists { "there is a group" } else { "may make the group" };
        let found = format!("{who}: {how} {}", root.path.display());
        let v1_used = |h: &&Hierarchy| {
            let uses = |name: &&str| h.controllers.iter().any(|controller| controller == *name);
            h.point != hierarchy.point && V1_CONTROLLERS.iter().any(uses)
        };
        let twin = cgroups.v2.iter().map(|unified| &unified.hierarchy);
        let twin = twin.filter(|_| matches!(carrier, Carrier::V1(_)));
        let others = match carrier {
            Carrier::V1(_) => cgroups.v1.iter().filter(v1_used).chain(twin).collect(),
            Carrier::V2(_) => Vec::new(),
        };
        let mut left = others.into_iter().filter_map(|other| Some((other, not_used(other)?)));
        return match left.next() {
            None => Check::ok(ID, found),
            Some((other, why)) => Check::warn(
                ID,
                format!("{found}; tasks get no group in {}: {}", other.point.display(), why.found),
                &why.remedy,
            ),
        };
    };
    let more = match refused.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let found = format!("{who}: {found}{more}");
    if facts.uid == 0 {
        return Check::fail(ID, found, remedy);
    }
    Check::unknown(
        ID,
        found,
        "run doctor as the user that runs lrsd, mostly root; without rights set daemon.mode = \
         \"observe\"",
    )
}

/// What helps where controllers cannot be enabled.
const DELEGATE: &str = "mount the cgroup tree read-write (in a container: ask for a writable cgroup \
                        namespace), or set daemon.mode = \"observe\"";

/// Whether `cpu.idle` is there; `None`: not known before a group is made.
fn idle(facts: &Facts, carrier: &Carrier<'_>) -> Option<bool> {
    let hierarchy = carrier.hierarchy();
    let recent = facts.kernel.as_ref().ok().map(|kernel| kernel.version >= CPU_IDLE_SINCE);
    let group_to_see = hierarchy.child_has("cpu.shares") || hierarchy.child_has("cpu.weight");
    match (hierarchy.has("cpu.idle"), group_to_see) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        // The root of v2 never has the file, so an empty tree says nothing.
        (false, false) => recent.filter(|recent| !recent),
    }
}

pub(super) fn cpu_tiers(facts: &Facts, config: &Config) -> Check {
    unless_observing(config, judge_cpu_tiers(facts, config))
}

fn judge_cpu_tiers(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "cpu_tiers";
    let carrier = facts.cgroups.as_ref().ok().and_then(|cgroups| carrier(cgroups, config));
    let Some(carrier) = carrier else {
        return Check::unknown(ID, "no cpu controller was found", "see the check \"cgroup\"");
    };
    if let Some(scheduler) = &facts.sched_ext {
        let Obstacle { found, remedy } = crate::cgroup::probe::under_sched_ext(scheduler);
        return Check::warn(ID, found, remedy);
    }
    const NEWER: &str = "boot Linux 5.15 or later with CONFIG_FAIR_GROUP_SCHED";
    match (config.tiers.passive_cpu, idle(facts, &carrier)) {
        (PassiveCpu::Weight, _) => Check::ok(ID, "weights, as tiers.passive_cpu says"),
        (_, Some(true)) => Check::ok(ID, "idle: passive tasks run under cpu.idle"),
        (PassiveCpu::Idle, Some(false)) => Check::fail(
            ID,
            "tiers.passive_cpu = \"idle\", but groups have no cpu.idle",
            format!("{NEWER}, or set tiers.passive_cpu = \"auto\""),
        ),
        (PassiveCpu::Auto, Some(false)) => Check::warn(
            ID,
            "weights: groups have no cpu.idle, active tasks that wake wait longer",
            NEWER,
        ),
        (_, None) if facts.kernel.is_ok() => {
            Check::ok(ID, "no group with the cpu controller to look at; this kernel has cpu.idle")
        }
        (_, None) => Check::unknown(ID, "neither kernel nor groups tell", "mount procfs at /proc"),
    }
}

/// Largest quotient of two kernel weights: cpu.shares 262144 over 2, cpu.weight 10000 over 1
/// (kernel/sched/sched.h, cgroup-v2.rst).
const V1_WEIGHTS: u64 = 262_144 / 2;
const V2_WEIGHTS: u64 = 10_000;

/// The same against an idle group, which the scheduler counts as 3 where 1024 is neutral
/// (WEIGHT_IDLEPRIO): 262144 / 3, and 10000 * 1024 / 100 / 3.
const V1_IDLE: u64 = 262_144 / 3;
const V2_IDLE: u64 = 10_000 * 1024 / 100 / 3;

pub(super) fn promise(facts: &Facts, config: &Config) -> Check {
    unless_observing(config, judge_promise(facts, config))
}

fn judge_promise(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "cpu_ratio";
    let carrier = facts.cgroups.as_ref().ok().and_then(|cgroups| carrier(cgroups, config));
    let (Some(carrier), Some((active, passive_max))) = (carrier, capacity(facts, config)) else {
        return Check::unknown(
            ID,
            "the cpu controller or the number of CPUs is not known",
            "see the checks \"cgroup\" and \"cpus\"",
        );
    };
    let idle = config.tiers.passive_cpu != PassiveCpu::Weight
        && idle(facts, &carrier).unwrap_or(facts.kernel.is_ok());
    let range = match (&carrier, idle) {
        (Carrier::V1(_), false) => V1_WEIGHTS,
        (Carrier::V1(_), true) => V1_IDLE,
        (Carrier::V2(_), false) => V2_WEIGHTS,
        (Carrier::V2(_), true) => V2_IDLE,
    };
    let per_active = u64::from(passive_max).div_ceil(u64::from(active.max(1))).max(1);
    let needed = u64::from(config.tiers.ratio) * per_active;
    let found = format!(
        "tiers.ratio = {} with up to {per_active} passive tasks for an active one needs \
         {needed}:1 a task; the kernel's weights allow {range}:1",
        config.tiers.ratio
    );
    if needed > range {
        return Check::warn(
            ID,
            found,
            format!(
                "lower tiers.ratio to {} or less, or lower slots.passive_max",
                range / per_active
            ),
        );
    }
    Check::ok(ID, found)
}

/// Active slots, and most passive ones, as the configuration makes them on this node (spec 3).
pub(super) fn capacity(facts: &Facts, config: &Config) -> Option<(u32, u32)> {
    let active = match config.slots.active {
        Auto::Fixed(active) => active,
        Auto::Auto => facts.cpus.as_ref().ok()?.usable.slots(),
    };
    let base = match config.slots.passive {
        Auto::Fixed(base) => base,
        Auto::Auto => active,
    };
    let most = match config.slots.passive_max {
        Auto::Fixed(most) => most,
        Auto::Auto => base.max(active.saturating_mul(4)),
    };
    Some((active, most))
}

/// Whether the groups of tasks have the memory controller, and what is not known without it.
pub(super) fn task_memory(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "task_memory";
    const WITHOUT: &str = "the most memory a task had is what the cycles saw, and a kill by the kernel \
                           for want of memory is not known";
    let carrier = facts.cgroups.as_ref().ok().and_then(|cgroups| carrier(cgroups, config));
    match carrier {
        _ if config.daemon.mode == Mode::Observe => {
            Check::ok(ID, format!("not used: daemon.mode = \"observe\"; {WITHOUT}"))
        }
        None => Check::unknown(ID, "no cpu controller was found", "see the check \"cgroup\""),
        Some(Carrier::V1(_)) => Check::ok(
            ID,
            format!("not used on cgroup v1, where a move would escape limits; {WITHOUT}"),
        ),
        Some(Carrier::V2(_))
            if !config.cgroup.memory_controller && config.tiers.io != DiskTiers::Off =>
        {
            Check::warn(
                ID,
                format!(
                    "off, as cgroup.memory_controller says, but tiers.io is not, and the io controller \
                     keeps the groups of ended tasks in the kernel all the same; {WITHOUT}"
                ),
                "set tiers.io = false too, or leave cgroup.memory_controller = true, which costs little more",
            )
        }
        Some(Carrier::V2(_)) if !config.cgroup.memory_controller => {
            Check::ok(ID, format!("off, as cgroup.memory_controller says; {WITHOUT}"))
        }
        Some(Carrier::V2(unified)) if unified.available.iter().any(|name| name == "memory") => {
            Check::ok(ID, "in the groups of tasks")
        }
        // The check of the hierarchy says what to do.
        Some(Carrier::V2(_)) => Check::ok(ID, format!("not available here; {WITHOUT}")),
    }
}

pub(super) fn task_pressure(facts: &Facts) -> Check {
    const ID: &str = "task_pressure";
    let Ok(cgroups) = &facts.cgroups else {
        return Check::unknown(ID, "the cgroup mounts are not known", "mount procfs at /proc");
    };
    const LESS: &str = "the class of passive tasks is then judged by less evidence";
    match &cgroups.v2 {
        None => Check::warn(
            ID,
            format!("no cgroup2 mount; {LESS}"),
            "mkdir /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified",
        ),
        Some(unified) if unified.hierarchy.has("cpu.pressure") => {
            let point = unified.hierarchy.point.display();
            Check::ok(ID, format!("groups in {point} have pressure files"))
        }
        // Old kernels have them in groups below the root only, and there may be none yet.
        Some(_) if facts.pressure.is_ok() => {
            Check::ok(ID, "no group to look at; the kernel keeps pressure figures")
        }
        Some(_) => Check::warn(
            ID,
            format!("groups have no pressure files; {LESS}"),
            "boot with psi=1 on a kernel with CONFIG_PSI",
        ),
    }
}
