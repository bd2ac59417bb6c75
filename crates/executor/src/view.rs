//! From what is to what clients read.

use std::time::Duration;

use super::Executor;
use super::entry::Entry;
use super::world::World;
use crate::group::{Attachment, CpuQuota, CpuTiers, IoTiers};
use crate::publish::{class, exit};
use lrs_api::proto;
use lrs_api::wire::proto_time;
use lrs_config::{Classify, DiskTiers, Mode, Version};
use lrs_core::bound::Bound;
use lrs_core::hint::Hint;
use lrs_core::jobs::Jobs;
use lrs_core::memory::Memory;
use lrs_core::model::{Class, Level, TaskId, Tier};
use lrs_core::name;
use lrs_core::rate::{NodeRates, class_of};
use lrs_core::shaper::Shaper;
use lrs_core::slots::Seat;
use lrs_core::task::{Halt, Task};
use lrs_core::units::{BootTime, Share};

/// After how long without a report an integration counts as away: it is to report at least every
/// 30 s.
const REPORT_EXPECTED: Duration = Duration::from_secs(60);

/// The wire's word for a tier.
pub fn tier(tier: Tier) -> proto::Tier {
    match tier {
        Tier::Active => proto::Tier::Active,
        Tier::Passive => proto::Tier::Passive,
    }
}

fn attachment(attachment: Attachment) -> proto::Attachment {
    match attachment {
        Attachment::Own => proto::Attachment::Own,
        Attachment::InPlace => proto::Attachment::InPlace,
        Attachment::None => proto::Attachment::None,
    }
}

/// One task.
pub fn task(
    core: &Shaper,
    task: &Task,
    entry: &Entry,
    classify: &Classify,
    now: BootTime,
) -> proto::Task {
    let (labels, loans) = (&task.labels, core.loans());
    let level = core.level(task.id).unwrap_or(task.tier().into());
    let text = |label: &Option<lrs_core::model::Label>| label.as_ref().map(|l| l.to_string());
    let path = task.group.as_ref().map(|group| name::shown(&group.path).into_owned());
    let path = path.filter(|path| !path.is_empty());
    let counts = &task.counts;
    let (used, rates) = (counts.since_admission(), counts.rates);
    let (exit_status, exit_signal) = exit(task.exit);
    let elapsed = (!task.lost).then(|| now.since(task.admitted_at.boot));
    let hint = core.hint(labels, task.uid).filter(|_| counts.meter.computing_rate().is_none());
    let class_of = counts.meter.class(classify.io_below, classify.cpu_above);
    let class_of = class_of.or_else(|| Some(hinted_class(hint?, classify)));
    proto::Task {
        id: task.id.to_string(),
        name: text(&labels.name),
        command: text(&labels.command),
        index: labels.name.as_ref().and_then(|name| lrs_api::words::index(name.as_str())),
        job: text(&labels.job),
        kind: text(&labels.kind),
        group: text(&labels.group),
        pid: task.who.process.map(|process| process.pid.raw()),
        uid: task.uid,
        tier: tier(level.tier()).into(),
        priority: (!task.lost).then_some(task.priority.0),
        class: class(class_of).into(),
        computing_rate: counts.meter.computing_rate().map(Share::value),
        computing_rate_raw: counts.meter.computing_rate_raw().map(Share::value),
        cpu_seconds: used.cpu.map(|cpu| cpu.as_secs_f64()),
        cpu_share: rates.cpu_share.map(Share::value),
        write_bytes_per_sec: rates.write_per_sec,
        read_bytes_per_sec: rates.read_per_sec,
        elapsed_seconds: elapsed.map(|elapsed| elapsed.as_secs_f64()),
        expected_remaining_seconds: remaining(task, core.jobs(), now),
        admitted_at: (!task.lost).then(|| proto_time(task.admitted_at.wall)),
        promoted_at: task.promoted_at.map(proto_time),
        attachment: attachment(task.attachment()).into(),
        overflow: task.seat == Seat::Overflow,
        slotless: task.seat == Seat::Slotless,
        frozen: task.halted == Some(Halt::Frozen)
            || task.frozen && entry.kernel.frozen.unwrap_or(true),
        stopped: task.halted == Some(Halt::Stopped),
        contested: task.is_contested(),
        main_exited: task.main_exited,
        exit_status,
        exit_signal,
        ratio_group: path.as_deref().map(parent),
        cgroup: path,
        kernel: Some(proto::Kernel {
            cpu_weight: entry.kernel.cpu_weight,
            cpu_idle: entry.kernel.cpu_idle,
            io_weight: entry.kernel.io_weight,
        }),
        resident_bytes: used.resident.map(|bytes| bytes.0),
        unit: task.who.unit.as_ref().map(|unit| unit.name.to_string()),
        found_by: task.who.found.as_ref().map(|found| found.by.to_string()),
        opportunistic: task.opportunistic,
        cpu_quota: entry.kernel.cpu_quota.map(CpuQuota::cpus),
        repaired: task.repaired,
        stays_because: task.who.stays_because.clone(),
        lost_by_move: task.who.lost_by_move.clone(),
        cpu_lane: match level {
            Level::Lane => Some("io".to_owned()),
            Level::SlowLane => Some("slow".to_owned()),
            Level::Active | Level::Passive => None,
        },
        loan: loans.has(task.id),
        lends: loans.lends(task.id),
        cpus: core.pinned(task.id).map(|cpus| cpus.to_string()),
        hinted: hint.is_some(),
    }
}

/// The class that is expected.
pub(super) fn hinted_class(hint: Hint, classify: &Classify) -> Class {
    class_of(hint.rate(), None, classify.io_below, classify.cpu_above)
}

/// How long a task has yet to run, by those of its job that finished.
fn remaining(task: &Task, jobs: &Jobs, now: BootTime) -> Option<f64> {
    let key = task.job_key().filter(|_| !task.lost)?;
    jobs.remaining(&key, now.since(task.admitted_at.boot))
}

fn bound_view(bound: Option<Bound>) -> proto::Bound {
    match bound {
        None => proto::Bound::Unspecified,
        Some(Bound::Off) => proto::Bound::Off,
        Some(Bound::Max) => proto::Bound::Max,
        Some(Bound::Memory) => proto::Bound::Memory,
        Some(Bound::ActiveTier) => proto::Bound::ActiveTier,
        Some(Bound::Throughput) => proto::Bound::Throughput,
        Some(Bound::Compute) => proto::Bound::Compute,
    }
}

fn parent(path: &str) -> String {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/".to_owned(),
        Some((parent, _)) => parent.to_owned(),
    }
}

impl<W: World> Executor<'_, W> {
    /// A task of the core as clients see it.
    pub(super) fn task_view(&self, id: TaskId, now: BootTime) -> Option<proto::Task> {
        let entry = self.state.entries.get(&id)?;
        Some(task(self.core, self.core.task(id)?, entry, &self.state.config.classify, now))
    }

    pub(super) fn status_view(&self) -> proto::Status {
        let core = &self.core;
        let slots = core.slots();
        let totals = core.totals();
        proto::Status {
            node: Some(self.node_view()),
            slots: Some(proto::Slots {
                active: Some(proto::ActiveSlots {
                    capacity: slots.active_capacity,
                    used: slots.active_used(),
                    reserved: slots.active_reserved(),
                    free: core.active_offered(),
                }),
                passive: Some(proto::PassiveSlots {
                    capacity: slots.passive_capacity,
                    base: slots.base,
                    max: slots.passive_max,
                    used: slots.passive_used(),
                    reserved: slots.passive_reserved(),
                    free: core.passive_offered(),
                    overflow: slots.overflow(),
                    bound: bound_view(core.bound()).into(),
                }),
            }),
            lowest_active_priority: core.lowest_active_priority().map(|priority| priority.0),
            state: if core.draining() {
                proto::NodeState::Draining
            } else if core.holding() {
                proto::NodeState::Holding
            } else {
                proto::NodeState::Accepting
            }
            .into(),
            mode: match self.state.config.daemon.mode {
                Mode::Enforce => proto::Mode::Enforce,
                Mode::Observe => proto::Mode::Observe,
            }
            .into(),
            guard: Some(self.guard_view()),
            cgroup: Some(self.cgroup_view()),
            totals: Some(proto::Totals {
                admitted: totals.admitted,
                completed: totals.completed,
                left: totals.left,
                released: totals.released,
                refused: totals.refused,
                promoted: totals.promoted,
                demoted: totals.demoted,
            }),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            waiting: u32::try_from(core.waiting()).unwrap_or(u32::MAX),
            warnings: self.warnings(),
            started_at: Some(proto_time(self.state.started_at)),
            running: Some(self.state.running),
            // As of the answer, not of the snapshot.
            last_turn_seconds: None,
            // What else is in it is as of the answer too.
            daemon: Some(proto::Daemon {
                cycle_seconds: self.state.reading_took.map(|took| took.as_secs_f64()),
                ..proto::Daemon::default()
            }),
        }
    }

    fn node_view(&self) -> proto::Node {
        let NodeRates { effective, iowait, steal, idle, .. } = self.state.node_rates;
        let sample = self.state.node_last.as_ref().map(|(_, node)| node);
        let memory = sample.and_then(|node| node.memory);
        let reserve = self.core.policy().memory_reserve;
        let room = sample
            .and_then(|node| Memory::of(node.memory, &node.memory_limits))
            .map(|memory| memory.least_above(|total| reserve.of(total)).0.clone());
        let pressure = self.state.node_rates.pressure;
        proto::Node {
            hostname: self.state.hostname.clone(),
            cores: self.state.cpus.slots(),
            cpu_quota: self.state.cpus.binding_quota(),
            cpu: Some(proto::CpuUse {
                effective: effective.map(Share::value),
                iowait: iowait.map(Share::value),
                idle: idle.map(Share::value),
                steal: steal.map(Share::value),
                tasks: self.core.usage().share().map(Share::value),
            }),
            disk: Some(proto::DiskUse {
                write_bytes_per_sec: self.state.node_rates.disk_write_per_sec,
                read_bytes_per_sec: self.state.node_rates.disk_read_per_sec,
            }),
            pressure: Some(proto::Pressure {
                cpu_some: pressure.and_then(|p| p.cpu_some).map(Share::value),
                memory_some: pressure.and_then(|p| p.memory_some).map(Share::value),
                memory_full: pressure.and_then(|p| p.memory_full).map(Share::value),
                io_some: pressure.and_then(|p| p.io_some).map(Share::value),
                io_full: pressure.and_then(|p| p.io_full).map(Share::value),
            }),
            memory: Some(proto::MemoryUse {
                total_bytes: room.as_ref().map(|room| room.total.0),
                available_bytes: room.as_ref().map(|room| room.available.0),
                swap_used_bytes: memory.and_then(|m| Some(m.swap_used?.0)),
                limit_file: room.and_then(|room| room.limit).map(|file| file.to_string()),
                node_total_bytes: memory.map(|m| m.total.0),
                node_available_bytes: memory.map(|m| m.available.0),
            }),
            sampled_at: self.state.sampled_at.map(proto_time),
            period_ms: millis(self.period()),
            labels: self.labels(),
        }
    }

    fn labels(&self) -> std::collections::BTreeMap<String, String> {
        let labels = self.state.config.node.labels.iter();
        labels.map(|(name, text)| (name.clone(), text.to_string())).collect()
    }

    fn guard_view(&self) -> proto::Guard {
        let policy = self.core.policy().guard;
        let entered = self.core.guard().entered();
        let node = self.state.node_last.as_ref().map(|(_, node)| node).filter(|_| policy.is_some());
        let missing = node.into_iter().flat_map(|node| {
            let memory = node.memory.is_none().then_some("MemAvailable and swap of /proc/meminfo");
            let pressure = node.pressure.is_none().then_some("memory pressure of /proc/pressure");
            memory.into_iter().chain(pressure)
        });
        let mut active = self.core.slots().active_tier().filter_map(|id| {
            let (_, last) = self.core.task(id)?.counts.last?;
            Some(last.pressure.is_some())
        });
        // One that has it is enough: the others may have begun just now.
        let blind = policy.is_some()
            && active.next().is_some_and(|first| !first && !active.any(|known| known));
        let missing = missing.chain(blind.then_some("pressure of the cgroups of active tasks"));
        let ladder = self.core.ladder();
        let first = entered.map(|entered| entered.reason.clone());
        let (stage, dry_run, reason) = match (ladder.stage(), self.core.freeze_policy()) {
            (2, Some(freeze)) => (2, freeze.headroom_dry_run, Some(ladder.reason().to_owned())),
            (3, Some(freeze)) => (3, freeze.freeze_dry_run, Some(ladder.reason().to_owned())),
            _ => (u32::from(entered.is_some()), policy.is_some_and(|policy| policy.dry_run), first),
        };
        proto::Guard {
            enabled: policy.is_some(),
            stage,
            dry_run,
            reason,
            frozen: ladder.frozen().map(|id| id.to_string()).collect(),
            since: entered.map(|entered| proto_time(entered.since)),
            missing_signals: missing.map(str::to_owned).collect(),
        }
    }

    pub(super) fn cgroup_view(&self) -> proto::CgroupStatus {
        let found = &self.state.world.facts().capabilities;
        self.with_effects(proto::CgroupStatus {
            version: match found.version {
                Some(Version::V1) => 1,
                Some(Version::V2) => 2,
                None => 0,
            },
            root: found.root.clone(),
            cpu_tiers: match found.cpu_tiers {
                CpuTiers::Idle => "idle",
                CpuTiers::Weight => "weight",
                CpuTiers::None => "none",
            }
            .to_owned(),
            io_tiers: match found.io_tiers {
                IoTiers::Bfq => "bfq",
                IoTiers::IoCost => "iocost",
                IoTiers::IoPrio => "ioprio",
                IoTiers::None => "none",
            }
            .to_owned(),
            reason: found.reason.clone(),
            root_weight: self.shown_root(),
            ..proto::CgroupStatus::default()
        })
    }

    /// That what speaks for YARN has not done so for a while.
    fn integration_away(&self) -> Option<String> {
        let silent = self.now.boot.since(self.state.yarn_reported);
        // Without Hadoop's files no report is expected; `lrsctl yarn status` says what is wrong there.
        let expected =
            self.state.config.yarn.enabled && self.state.view.yarn_found.problem.is_none();
        (expected && silent >= REPORT_EXPECTED).then(|| {
            format!(
                "lrs-yarn, which speaks to the ResourceManager, has not reported for {} s: what \
                 YARN was offered, priorities and queues stay as they are; `systemctl status lrs-yarn` \
                 says more, `systemctl start lrs-yarn` starts it where yarn.enabled is new",
                silent.as_secs()
            )
        })
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.state.world.warnings(&self.state.plan);
        let wanted = self.state.config.tiers.io == DiskTiers::Idle;
        if self.state.world.facts().capabilities.io_tiers == IoTiers::None && wanted {
            warnings.push(
                "tiers.io = \"idle\" has no effect on this node; `lrsctl doctor` says what to change"
                    .to_owned(),
            );
        }
        warnings.extend(self.test_warning());
        if let Some(problem) = self.state.root_weight.problem() {
            warnings.push(format!(
                "the weight of the LRS root was not written, so tasks compete with other groups \
                 as before; it is tried again: {problem}"
            ));
        }
        if let Some(problem) = &self.state.store_problem {
            warnings.push(format!("state is not being stored: {problem}"));
        }
        if let Some(why) = self.core.why_root_frozen() {
            warnings.push(format!("{why}: no task runs, and none is admitted; thaw it"));
        }
        warnings.extend(self.state.finder_trouble.clone());
        warnings.extend(self.integration_away());
        warnings.extend(self.unattached_warning());
        if let Some((_, node)) = &self.state.node_last {
            warnings.extend(node.problems.iter().cloned());
        }
        let capped =
            self.state.entries.values().filter(|entry| entry.kernel.cpu_quota.is_some()).count();
        if capped > 0 {
            warnings.push(format!(
                "{capped} tasks in groups of others are capped by quota, so spare CPU above it \
                 stays unused; on a YARN node turn strict-resource-usage off"
            ));
        }
        if self.state.ratio_groups.len() > 1 {
            warnings.push(format!(
                "tasks are spread over {} ratio groups; the ratio of the tiers holds within \
                 each, not between them",
                self.state.ratio_groups.len()
            ));
        }
        warnings
    }

    /// What runs, for schedulers.
    pub(super) fn running_view(&self, now: BootTime) -> proto::Running {
        let mut running = proto::Running {
            slots_freed_per_second: self.core.slots_freed_per_second(),
            ..proto::Running::default()
        };
        let jobs = self.core.jobs();
        for (_, task) in self.core.tasks().filter(|(_, task)| !task.is_new()) {
            running.tasks += 1;
            let of_job = || jobs.mean_rate(&task.job_key()?);
            if let Some(rate) = task.counts.meter.computing_rate().or_else(of_job) {
                running.rated += 1;
                running.rate_sum += rate.value();
            }
            if matches!(task.seat, Seat::Active | Seat::Passive) {
                let known = running.next_free_slot_seconds.into_iter();
                let left = known.chain(remaining(task, jobs, now)).min_by(f64::total_cmp);
                running.next_free_slot_seconds = left;
            }
        }
        running
    }

    pub(super) fn jobs_view(&self) -> Vec<proto::Job> {
        let classify = &self.state.config.classify;
        // Sums of rates and shares of disk waits, and of how many.
        let mut sampled = std::collections::BTreeMap::<_, (f64, f64, f64)>::new();
        let mut hinted = std::collections::BTreeMap::<_, (f64, f64)>::new();
        for (_, task) in self.core.tasks() {
            let meter = &task.counts.meter;
            let rates = meter.computing_rate().zip(meter.disk_share());
            if let (Some(key), Some(hint)) =
                (task.job_key(), self.core.hint(&task.labels, task.uid))
            {
                let (rates, count) = hinted.entry(key).or_default();
                *rates += hint.rate().value();
                *count += 1.0;
            }
            if let (Some(key), Some((rate, disk))) = (task.job_key(), rates) {
                let (rates, disks, count) = sampled.entry(key).or_default();
                *rates += rate.value();
                *disks += disk.value();
                *count += 1.0;
            }
        }
        self.core
            .jobs()
            .iter()
            .map(|(key, running, finished)| {
                // Until a task has finished, those that run are the sample of the job.
                let sampled = || {
                    let (rates, disks, count) = *sampled.get(key)?;
                    Some((Share::of(rates, count)?, Share::of(disks, count)))
                };
                let learnt = finished.mean_rate().map(|rate| (rate, finished.mean_disk()));
                let (rate, disk) = learnt.or_else(sampled).unzip();
                let class_of =
                    |rate| class_of(rate, disk.flatten(), classify.io_below, classify.cpu_above);
                let expected = hinted.get(key).filter(|_| rate.is_none());
                let expected = expected.and_then(|(rates, count)| Share::of(*rates, *count));
                let found = rate.or(expected).map(class_of);
                proto::Job {
                    job: key.job.to_string(),
                    kind: key.kind.as_ref().map(|kind| kind.to_string()),
                    group: finished.group.as_ref().map(|group| group.to_string()),
                    running,
                    finished: finished.count,
                    failed: finished.failed,
                    computing_rate: rate.map(Share::value),
                    class: class(found).into(),
                    uid: key.uid,
                    computing_rate_spread: finished.rate_spread(),
                    duration_seconds: finished.seconds.mean(),
                    duration_spread_seconds: finished.seconds.spread(),
                    last_timed_at: finished.last_timed.map(proto_time),
                    hinted: expected.is_some(),
                }
            })
            .collect()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_group_is_the_parent() {
        assert_eq!(parent("/lrs/t1"), "/lrs");
        assert_eq!(parent("/t1"), "/");
    }
}
