//! From messages to samples. Pure.

use lrs_api::words::{cpus, starves};
use lrs_api::{proto, wire};
use lrs_core::units::WallTime;

use crate::definitions as of;
use crate::text::{Samples, Value};
use crate::{Options, Reading, jobs};

/// The word for a class, tier or reason that this release does not know.
const UNKNOWN: &str = "unknown";

/// All samples of a reading.
pub fn gather(reading: &Reading, options: Options) -> Samples {
    let mut samples = Samples::default();
    let to = &mut samples;
    let status = &reading.status;
    to.add(&of::UP, &[], 1.0);
    daemon(status, to);
    slots(status, to);
    tasks(&reading.tasks, cpus(status), to);
    queue(status, reading, to);
    counters(status, to);
    shaping(status, to);
    if let Some(node) = &status.node {
        node_use(node, to);
    }
    yarn(&reading.yarn, reading.now, to);
    jobs::add(reading, options, to);
    to.add(&of::COLLECTION, &[], reading.took.as_secs_f64());
    samples
}

fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// A number of bytes or the like; above 2^53 it is rounded.
#[allow(clippy::cast_precision_loss)]
fn number(count: u64) -> f64 {
    count as f64
}

/// Seconds between two times; a clock that was set back makes none negative.
fn seconds_since(then: &prost_types::Timestamp, now: WallTime) -> f64 {
    let micros = now.unix_micros().saturating_sub(wire::wall_time(then).unix_micros());
    number(u64::try_from(micros).unwrap_or(0)) / 1e6
}

fn daemon(status: &proto::Status, to: &mut Samples) {
    if !status.version.is_empty() {
        to.count(&of::BUILD, &[&status.version], 1);
    }
    if let Some(at) = &status.started_at {
        // As a time since 1970: the age of what began then.
        to.add(
            &of::START_TIME,
            &[],
            seconds_since(&prost_types::Timestamp::default(), wire::wall_time(at)),
        );
    }
    to.add_known(&of::LAST_TURN_AGE, &[], status.last_turn_seconds);
    to.add(&of::WARNINGS, &[], number(status.warnings.len() as u64));
    for state in
        [proto::NodeState::Accepting, proto::NodeState::Holding, proto::NodeState::Draining]
    {
        if let Some(word) = wire::node_state_word(state as i32) {
            to.add(&of::STATE, &[word], truth(status.state == state as i32));
        }
    }
    for mode in [proto::Mode::Enforce, proto::Mode::Observe] {
        if let Some(word) = wire::mode_word(mode as i32) {
            to.add(&of::MODE, &[word], truth(status.mode == mode as i32));
        }
    }
    let Some(daemon) = &status.daemon else { return };
    if let Some(cpu) = daemon.cpu_seconds.filter(|cpu| cpu.is_finite()) {
        to.put(&of::DAEMON_CPU, &[], Value::Number(cpu));
    }
    to.add_known(&of::DAEMON_RESIDENT, &[], daemon.resident_bytes.map(number));
    to.add_known(&of::CYCLE, &[], daemon.cycle_seconds);
    if let Some(lost) = daemon.history_lost {
        to.count(&of::HISTORY_LOST, &[], lost);
    }
    for (of, times) in
        [(&of::PROMOTION, &daemon.promotion_seconds), (&of::SLOT_GAP, &daemon.slot_gap_seconds)]
    {
        if let Some(times) = times.as_ref().and_then(histogram) {
            to.put(of, &[], times);
        }
    }
}

/// `None`: it has no shape of a histogram.
fn histogram(of: &proto::Histogram) -> Option<Value> {
    let ascends = of.bounds.windows(2).all(|pair| pair[0] < pair[1]);
    let fits = of.counts.len() == of.bounds.len() + 1;
    let is_finite = of.sum.is_finite() && of.bounds.iter().all(|bound| bound.is_finite());
    let whole = of.counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
    (ascends && fits && is_finite && whole.is_some()).then(|| {
        let bounds = of.bounds.iter().copied().chain([f64::INFINITY]);
        Value::Histogram { buckets: bounds.zip(of.counts.iter().copied()).collect(), sum: of.sum }
    })
}

fn slots(status: &proto::Status, to: &mut Samples) {
    let Some(slots) = &status.slots else { return };
    if let Some(active) = &slots.active {
        to.add(&of::CAPACITY, &["active"], active.capacity.into());
        to.add(&of::SLOTS, &["active", "used"], active.used.into());
        to.add(&of::SLOTS, &["active", "reserved"], active.reserved.into());
        to.add(&of::SLOTS, &["active", "free"], active.free.into());
    }
    if let Some(passive) = &slots.passive {
        to.add(&of::CAPACITY, &["passive"], passive.capacity.into());
        to.add(&of::SLOTS, &["passive", "used"], passive.used.into());
        to.add(&of::SLOTS, &["passive", "reserved"], passive.reserved.into());
        to.add(&of::SLOTS, &["passive", "free"], passive.free.into());
        to.add(&of::PASSIVE_BASE, &[], passive.base.into());
        to.add(&of::PASSIVE_MAX, &[], passive.max.into());
    }
}

/// A sum of what is known; `None` where there is something and nothing of it is known.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (mut all, mut known, mut sum) = (0, 0, 0.0);
    for value in values {
        all += 1;
        if let Some(value) = value {
            known += 1;
            sum += value;
        }
    }
    (all == 0 || known > 0).then_some(sum)
}

/// What a flag is of.
type Is<'a> = &'a dyn Fn(&proto::Task) -> bool;

fn tasks(tasks: &[proto::Task], cpus: Option<f64>, to: &mut Samples) {
    let count = |is: Is<'_>| number(tasks.iter().filter(|task| is(task)).count() as u64);
    for (tier, word) in [(proto::Tier::Active, "active"), (proto::Tier::Passive, "passive")] {
        let tier = tier as i32;
        for class in ["cpu", "moderate", "io", "idle", UNKNOWN] {
            let is =
                |task: &proto::Task| task.tier == tier && wire::class_word(task.class) == class;
            to.add(&of::TASKS, &[word, class], count(&is));
        }
        let shares = tasks.iter().filter(|task| task.tier == tier).map(|task| task.cpu_share);
        to.add_known(&of::TIER_CPU, &[word], sum(shares));
    }
    let flags: [(&str, Is<'_>); 9] = [
        ("starving", &|task| starves(task, cpus)),
        ("frozen", &|task| task.frozen),
        ("stopped", &|task| task.stopped),
        ("contested", &|task| task.contested),
        ("overflow", &|task| task.overflow),
        ("loan", &|task| task.loan),
        ("slotless", &|task| task.slotless),
        ("opportunistic", &|task| task.opportunistic),
        ("capped", &|task| task.cpu_quota.is_some()),
    ];
    for (flag, is) in flags {
        to.add(&of::FLAGGED, &[flag], count(is));
    }
    for lane in ["io", "slow"] {
        let is = |task: &proto::Task| task.cpu_lane.as_deref() == Some(lane);
        to.add(&of::LANE_TASKS, &[lane], count(&is));
    }
    let in_lane = tasks.iter().filter(|task| task.cpu_lane.is_some());
    to.add_known(&of::LANE_CPU, &[], sum(in_lane.map(|task| task.cpu_share)));
}

fn queue(status: &proto::Status, reading: &Reading, to: &mut Samples) {
    to.add(&of::QUEUE, &[], status.waiting.into());
    let waiting = || reading.queue.iter().filter(|queued| queued.place.is_some());
    for reason in ["full", "holding", "draining", "starting", "order"] {
        let of_it = waiting().filter(|queued| queued.reason == reason).count();
        to.add(&of::QUEUE_REASON, &[reason], number(of_it as u64));
    }
    let ages =
        waiting().filter_map(|queued| Some(seconds_since(queued.since.as_ref()?, reading.now)));
    to.add_known(&of::OLDEST_WAIT, &[], ages.max_by(f64::total_cmp));
    let reserved = reading.queue.len() - waiting().count();
    to.add(&of::RESERVATIONS, &[], number(reserved as u64));
}

fn counters(status: &proto::Status, to: &mut Samples) {
    if let Some(totals) = &status.totals {
        to.count(&of::ADMITTED, &[], totals.admitted);
        to.count(&of::COMPLETED, &[], totals.completed);
        to.count(&of::LEFT, &[], totals.left);
        to.count(&of::RELEASED, &[], totals.released);
        to.count(&of::PROMOTIONS, &[], totals.promoted);
        to.count(&of::DEMOTIONS, &[], totals.demoted);
        to.count(&of::REFUSALS, &[], totals.refused);
    }
    let Some(daemon) = &status.daemon else { return };
    // It comes with the events.
    let Some(failed) = daemon.failed else { return };
    to.count(&of::FAILED, &[], failed);
    // From 0 on, so that the first one is a step that rate() sees.
    for kind in EVENTS {
        to.count(&of::EVENTS, &[kind], daemon.events.get(*kind).copied().unwrap_or(0));
    }
}

/// Types of events with a series; those of a later lrsd are left out. What has a counter of its own
/// (admitted, completed ...) is not among them.
const EVENTS: &[&str] = &[
    "expanded",
    "shrunk",
    "probe",
    "resized",
    "lane_in",
    "lane_out",
    "guard",
    "drift",
    "contested",
    "recovered",
    "reloaded",
    "reserved",
    "expired",
    "withdrawn",
    "offered",
    "offer_failed",
];

fn shaping(status: &proto::Status, to: &mut Samples) {
    if let Some(guard) = &status.guard {
        to.add(&of::GUARD_ENABLED, &[], truth(guard.enabled));
        to.add(&of::GUARD_STAGE, &[], guard.stage.into());
        to.add(&of::GUARD_DRY_RUN, &[], truth(guard.dry_run));
        to.add(&of::GUARD_FROZEN, &[], number(guard.frozen.len() as u64));
        to.add(&of::GUARD_MISSING, &[], number(guard.missing_signals.len() as u64));
    }
    if let Some(cgroup) = &status.cgroup {
        for (resource, mechanism, effect) in [
            ("cpu", &cgroup.cpu_tiers, &cgroup.cpu_effect),
            ("io", &cgroup.io_tiers, &cgroup.io_effect),
        ] {
            if !mechanism.is_empty() {
                let labels = [resource, mechanism.as_str()];
                let has_effect = mechanism != "none" && effect != "without effect";
                to.add(&of::TIER_EFFECT, &labels, truth(has_effect));
                to.add(&of::TIER_VERIFIED, &[resource], truth(effect == "verified"));
            }
        }
        to.add_known(&of::ROOT_WEIGHT, &[], cgroup.root_weight.map(f64::from));
    }
}

fn node_use(node: &proto::Node, to: &mut Samples) {
    to.add(&of::CPUS, &[], node.cores.into());
    to.add_known(&of::CPU_QUOTA, &[], node.cpu_quota);
    to.add(&of::PERIOD, &[], number(node.period_ms) / 1e3);
    if let Some(cpu) = &node.cpu {
        let others = cpu.effective.zip(cpu.tasks).map(|(all, tasks)| (all - tasks).max(0.0));
        to.add_known(&of::CPU, &["tasks"], cpu.tasks);
        to.add_known(&of::CPU, &["others"], others);
        to.add_known(&of::CPU, &["iowait"], cpu.iowait);
        to.add_known(&of::CPU, &["idle"], cpu.idle);
        to.add_known(&of::CPU, &["steal"], cpu.steal);
    }
    if let Some(pressure) = &node.pressure {
        to.add_known(&of::PRESSURE, &["cpu", "some"], pressure.cpu_some);
        to.add_known(&of::PRESSURE, &["memory", "some"], pressure.memory_some);
        to.add_known(&of::PRESSURE, &["memory", "full"], pressure.memory_full);
        to.add_known(&of::PRESSURE, &["io", "some"], pressure.io_some);
        to.add_known(&of::PRESSURE, &["io", "full"], pressure.io_full);
    }
    if let Some(disk) = &node.disk {
        to.add_known(&of::DISK, &["read"], disk.read_bytes_per_sec);
        to.add_known(&of::DISK, &["write"], disk.write_bytes_per_sec);
    }
    if let Some(memory) = &node.memory {
        to.add_known(&of::MEMORY_TOTAL, &[], memory.total_bytes.map(number));
        to.add_known(&of::MEMORY_AVAILABLE, &[], memory.available_bytes.map(number));
        to.add_known(&of::SWAP, &[], memory.swap_used_bytes.map(number));
    }
}

fn yarn(yarn: &proto::YarnStatus, now: WallTime, to: &mut Samples) {
    to.add(&of::YARN_ENABLED, &[], truth(yarn.enabled));
    if !yarn.enabled {
        return;
    }
    let reported = yarn.reported_at.as_ref().map(|at| seconds_since(at, now));
    to.add_known(&of::YARN_REPORT_AGE, &[], reported);
    for (figure, resource) in [
        ("configured", &yarn.configured),
        ("advertised", &yarn.advertised),
        ("offered", &yarn.offered),
    ] {
        if let Some(resource) = resource {
            let bytes = number(resource.memory_mib) * f64::from(1 << 20);
            to.add(&of::YARN_MEMORY, &[figure], bytes);
            to.add(&of::YARN_VCORES, &[figure], resource.vcores.into());
        }
    }
    to.add(&of::YARN_CONTAINERS, &[], number(yarn.containers.len() as u64));
    to.add(&of::YARN_ERROR, &[], truth(yarn.last_error.is_some()));
}
