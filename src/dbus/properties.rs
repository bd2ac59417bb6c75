//! Properties of the manager and of tasks: one table each, from the messages of the contract.
//!
//! Get, GetAll, introspection, InterfacesAdded and PropertiesChanged all walk these tables.
//! D-Bus has no null: a text that is not there is "", a number that is not known is absent
//! (GetAll leaves it out, Get answers an error), so that nobody takes a 0 for a fact.
//!
//! What changes with every reading stands in `Measured` and is never announced: whoever wants
//! it asks, at a pace of his own.

use std::collections::HashMap;

use serde_json::{Value as Json, json};
use zbus::zvariant::Value;

use super::value;
use crate::{proto, wire};

/// A property of `T`.
pub(super) struct Property<T: 'static> {
    pub name: &'static str,
    pub signature: &'static str,
    /// Whether a change is announced.
    pub announced: bool,
    pub doc: &'static str,
    /// `None`: not known.
    pub value: fn(&T) -> Option<Value<'static>>,
}

/// Names and values; those not known are left out.
pub(super) type Values = HashMap<&'static str, Value<'static>>;

/// All properties that are known.
pub(super) fn all<T>(table: &[Property<T>], of: &T) -> Values {
    table.iter().filter_map(|property| Some((property.name, (property.value)(of)?))).collect()
}

/// Properties to announce that differ: the new values, and the names of those not known any
/// more.
pub(super) fn changed<T>(
    table: &[Property<T>],
    old: &T,
    new: &T,
) -> Option<(Values, Vec<&'static str>)> {
    let mut values = Values::new();
    let mut unknown = Vec::new();
    for property in table.iter().filter(|property| property.announced) {
        match ((property.value)(old), (property.value)(new)) {
            (old, new) if old == new => {}
            (_, Some(new)) => drop(values.insert(property.name, new)),
            (_, None) => unknown.push(property.name),
        }
    }
    (!values.is_empty() || !unknown.is_empty()).then_some((values, unknown))
}

const fn announced<T>(
    name: &'static str,
    signature: &'static str,
    doc: &'static str,
    value: fn(&T) -> Option<Value<'static>>,
) -> Property<T> {
    Property { name, signature, announced: true, doc, value }
}

const fn measured<T>(doc: &'static str, value: fn(&T) -> Option<Value<'static>>) -> Property<T> {
    Property { name: "Measured", signature: "a{sv}", announced: false, doc, value }
}

fn text(text: Option<&str>) -> Option<Value<'static>> {
    Some(Value::from(text.unwrap_or_default().to_owned()))
}

fn texts(texts: &[String]) -> Option<Value<'static>> {
    Some(Value::from(texts.to_vec()))
}

fn time(time: &Option<prost_types::Timestamp>) -> Option<Value<'static>> {
    text(rfc3339(time).as_deref())
}

fn rfc3339(time: &Option<prost_types::Timestamp>) -> Option<String> {
    time.as_ref().map(|time| wire::wall_time(time).to_string())
}

fn node(status: &proto::Status) -> Option<&proto::Node> {
    status.node.as_ref()
}

fn active(status: &proto::Status) -> Option<&proto::ActiveSlots> {
    status.slots.as_ref()?.active.as_ref()
}

fn passive(status: &proto::Status) -> Option<&proto::PassiveSlots> {
    status.slots.as_ref()?.passive.as_ref()
}

fn guard(status: &proto::Status) -> Option<&proto::Guard> {
    status.guard.as_ref()
}

fn cgroup(status: &proto::Status) -> Option<&proto::CgroupStatus> {
    status.cgroup.as_ref()
}

pub(super) const MANAGER: &[Property<proto::Status>] = &[
    announced("Version", "s", "Of lrsd.", |s| text(Some(&s.version))),
    announced("StartedAt", "s", "RFC 3339.", |s| time(&s.started_at)),
    announced("Hostname", "s", "", |s| text(Some(&node(s)?.hostname))),
    announced("Cores", "u", "CPUs the tasks of LRS may use.", |s| Some(node(s)?.cores.into())),
    announced("State", "s", "accepting, holding or draining.", |s| {
        text(wire::node_state_word(s.state))
    }),
    announced("Mode", "s", "enforce or observe.", |s| text(wire::mode_word(s.mode))),
    announced("ActiveCapacity", "u", "", |s| Some(active(s)?.capacity.into())),
    announced("ActiveUsed", "u", "", |s| Some(active(s)?.used.into())),
    announced("ActiveReserved", "u", "", |s| Some(active(s)?.reserved.into())),
    announced("ActiveFree", "u", "What Reserve would grant now.", |s| Some(active(s)?.free.into())),
    announced("PassiveCapacity", "u", "", |s| Some(passive(s)?.capacity.into())),
    announced("PassiveBase", "u", "Before any expansion.", |s| Some(passive(s)?.base.into())),
    announced("PassiveMax", "u", "The base included.", |s| Some(passive(s)?.max.into())),
    announced("PassiveUsed", "u", "", |s| Some(passive(s)?.used.into())),
    announced("PassiveReserved", "u", "", |s| Some(passive(s)?.reserved.into())),
    announced("PassiveFree", "u", "What Reserve would grant now.", |s| {
        Some(passive(s)?.free.into())
    }),
    announced(
        "PassiveOverflow",
        "u",
        "Discovered tasks beyond capacity, not in PassiveUsed.",
        |s| Some(passive(s)?.overflow.into()),
    ),
    announced("Waiting", "u", "Requests waiting for a slot.", |s| Some(s.waiting.into())),
    announced("LowestActivePriority", "ai", "Empty while the active tier is.", |s| {
        Some(Value::from(s.lowest_active_priority.into_iter().collect::<Vec<i32>>()))
    }),
    announced("GuardStage", "u", "0: nothing held.", |s| Some(guard(s)?.stage.into())),
    announced("GuardReason", "s", "Empty at stage 0.", |s| text(guard(s)?.reason.as_deref())),
    announced("CgroupVersion", "u", "0: no hierarchy in use.", |s| Some(cgroup(s)?.version.into())),
    announced("CgroupRoot", "s", "Below the controller's mount.", |s| text(Some(&cgroup(s)?.root))),
    announced("CpuTiers", "s", "idle, weight or none.", |s| text(Some(&cgroup(s)?.cpu_tiers))),
    announced("IoTiers", "s", "bfq, iocost, ioprio or none.", |s| text(Some(&cgroup(s)?.io_tiers))),
    announced("TiersReason", "s", "Why the tiers are what they are.", |s| {
        text(Some(&cgroup(s)?.reason))
    }),
    announced("Warnings", "as", "What an operator should know now.", |s| texts(&s.warnings)),
    announced("Totals", "a{st}", "Since the state directory was made.", |s| {
        let totals = s.totals.as_ref()?;
        let Ok(Json::Object(object)) = serde_json::to_value(totals) else { return None };
        let counts: HashMap<String, u64> =
            object.into_iter().filter_map(|(name, count)| Some((name, count.as_u64()?))).collect();
        Some(Value::from(counts))
    }),
    measured("CPU, disk, pressure and memory over the last cycle.", |s| {
        let node = node(s)?;
        Some(value::dict(&json!({
            "cpu": node.cpu,
            "disk": node.disk,
            "pressure": node.pressure,
            "memory": node.memory,
            "sampled_at": rfc3339(&node.sampled_at),
            "period_ms": node.period_ms,
        })))
    }),
];

pub(super) const TASK: &[Property<proto::Task>] = &[
    announced("Id", "s", "", |t| text(Some(&t.id))),
    announced("Name", "s", "Empty: none given.", |t| text(t.name.as_deref())),
    announced("Job", "s", "Empty: none given.", |t| text(t.job.as_deref())),
    announced("Kind", "s", "Empty: none given.", |t| text(t.kind.as_deref())),
    announced("Pid", "i", "The main process; absent if not known.", |t| Some(t.pid?.into())),
    announced("Uid", "u", "The owner; absent if not known.", |t| Some(t.uid?.into())),
    announced("Tier", "s", "active or passive.", |t| text(wire::tier_word(t.tier))),
    announced("Priority", "i", "Higher runs sooner; absent if not known.", |t| {
        Some(t.priority?.into())
    }),
    announced("Class", "s", "cpu, moderate, io or unknown.", |t| {
        text(Some(wire::class_word(t.class)))
    }),
    announced("AdmittedAt", "s", "RFC 3339; empty if not known.", |t| time(&t.admitted_at)),
    announced("PromotedAt", "s", "RFC 3339; empty: never.", |t| time(&t.promoted_at)),
    announced("Attachment", "s", "own, in_place or none.", |t| {
        text(wire::attachment_word(t.attachment))
    }),
    announced("Cgroup", "s", "Below the controller's mount; empty: none.", |t| {
        text(t.cgroup.as_deref())
    }),
    announced("RatioGroup", "s", "The tiers' ratio holds within it; empty: none.", |t| {
        text(t.ratio_group.as_deref())
    }),
    announced("Unit", "s", "The unit of systemd's whose cgroup it is; empty: none.", |t| {
        text(t.unit.as_deref())
    }),
    announced(
        "StaysBecause",
        "s",
        "What it would lose by leaving its unit; empty: it left.",
        |t| text(t.stays_because.as_deref()),
    ),
    announced("FoundBy", "s", "yarn, or rule and its name; empty: admitted by a client.", |t| {
        text(t.found_by.as_deref())
    }),
    announced("Opportunistic", "b", "Behind every task that is not.", |t| {
        Some(t.opportunistic.into())
    }),
    announced("CpuQuota", "d", "CPUs its owner caps it at; absent: no cap.", |t| {
        Some(t.cpu_quota?.into())
    }),
    announced("Repaired", "t", "Changes by others that were put right.", |t| {
        Some(t.repaired.into())
    }),
    announced("Overflow", "b", "Found running beyond capacity.", |t| Some(t.overflow.into())),
    announced("Slotless", "b", "Never passive, holds no slot.", |t| Some(t.slotless.into())),
    announced("Frozen", "b", "", |t| Some(t.frozen.into())),
    announced("Contested", "b", "Somebody else keeps changing its weights.", |t| {
        Some(t.contested.into())
    }),
    announced("MainExited", "b", "The main process has ended, others run on.", |t| {
        Some(t.main_exited.into())
    }),
    measured("CPU, I/O and memory since admission, rates, weights read back.", |t| {
        Some(value::dict(&json!({
            "computing_rate": t.computing_rate,
            "computing_rate_raw": t.computing_rate_raw,
            "cpu_seconds": t.cpu_seconds,
            "cpu_share": t.cpu_share,
            "write_bytes_per_sec": t.write_bytes_per_sec,
            "read_bytes_per_sec": t.read_bytes_per_sec,
            "elapsed_seconds": t.elapsed_seconds,
            "kernel": t.kernel,
            "resident_bytes": t.resident_bytes,
        })))
    }),
];

/// Whether nothing of a task changed that is announced. Exhaustive, so that a new field has to
/// be decided on; much cheaper than two tables of values, and asked for every task each cycle.
pub(super) fn same_task(old: &proto::Task, new: &proto::Task) -> bool {
    #[derive(PartialEq)]
    struct Announced<'a>(
        [Option<&'a str>; 9],
        [i32; 3],
        (Option<i32>, Option<u32>, Option<i32>),
        [Option<&'a prost_types::Timestamp>; 2],
        [bool; 6],
        (Option<f64>, u64),
    );
    fn announced(task: &proto::Task) -> Announced<'_> {
        let proto::Task {
            id,
            name,
            job,
            kind,
            pid,
            uid,
            tier,
            priority,
            class,
            admitted_at,
            promoted_at,
            attachment,
            overflow,
            slotless,
            frozen,
            contested,
            main_exited,
            cgroup,
            ratio_group,
            unit,
            found_by,
            stays_because,
            opportunistic,
            cpu_quota,
            repaired,
            computing_rate: _,
            computing_rate_raw: _,
            cpu_seconds: _,
            cpu_share: _,
            write_bytes_per_sec: _,
            read_bytes_per_sec: _,
            elapsed_seconds: _,
            kernel: _,
            resident_bytes: _,
        } = task;
        Announced(
            [
                Some(id.as_str()),
                name.as_deref(),
                job.as_deref(),
                kind.as_deref(),
                cgroup.as_deref(),
                ratio_group.as_deref(),
                unit.as_deref(),
                found_by.as_deref(),
                stays_because.as_deref(),
            ],
            [*tier, *class, *attachment],
            (*pid, *uid, *priority),
            [admitted_at.as_ref(), promoted_at.as_ref()],
            [*overflow, *slotless, *opportunistic, *frozen, *contested, *main_exited],
            (*cpu_quota, *repaired),
        )
    }
    announced(old) == announced(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits<T>(table: &[Property<T>], of: &T) {
        for property in table {
            if let Some(value) = (property.value)(of) {
                let found = value.value_signature().to_string();
                assert_eq!(found, property.signature, "{}", property.name);
            }
        }
    }

    fn status() -> proto::Status {
        proto::Status {
            node: Some(proto::Node {
                cpu: Some(proto::CpuUse { effective: Some(0.5), ..Default::default() }),
                ..Default::default()
            }),
            slots: Some(proto::Slots {
                active: Some(proto::ActiveSlots { capacity: 2, ..Default::default() }),
                passive: Some(proto::PassiveSlots::default()),
            }),
            guard: Some(proto::Guard::default()),
            cgroup: Some(proto::CgroupStatus::default()),
            totals: Some(proto::Totals { admitted: 3, ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn values_have_the_types_that_are_announced() {
        fits(MANAGER, &status());
        fits(TASK, &proto::Task { pid: Some(1), uid: Some(2), ..Default::default() });
        assert_eq!(all(MANAGER, &status()).len(), MANAGER.len());
    }

    #[test]
    fn only_what_changed_is_announced() {
        let old = status();
        let mut new = old.clone();
        new.node.as_mut().unwrap().cpu.as_mut().unwrap().effective = Some(0.9);
        assert_eq!(changed(MANAGER, &old, &new), None, "measured values are not");
        new.slots.as_mut().unwrap().active.as_mut().unwrap().free = 1;
        let (values, unknown) = changed(MANAGER, &old, &new).unwrap();
        assert_eq!(values, Values::from([("ActiveFree", Value::from(1u32))]));
        assert!(unknown.is_empty());
    }

    #[test]
    fn what_is_not_known_any_more_is_said_by_name() {
        let old = proto::Task { priority: Some(1), ..Default::default() };
        let new = proto::Task { priority: None, cpu_seconds: Some(1.0), ..old.clone() };
        assert_eq!(changed(TASK, &old, &new), Some((Values::new(), vec!["Priority"])));
        assert!(!same_task(&old, &new));
        assert!(same_task(&old, &proto::Task { cpu_seconds: Some(2.0), ..old.clone() }));
        assert!(!all(TASK, &new).contains_key("Pid"));
    }
}
