//! `org.lrs.Shaper1.Task`: one task, by its own object. What [`super::manager`] says of texts and
//! of properties that are not known holds here too.

use std::sync::Arc;

use serde_json::json;
use zbus::fdo;

use super::call::Call;
use super::error::CallError;
use super::manager::{known, text, time};
use super::value::{self, Dict};
use crate::{proto, wire};

/// A task, as one call or one announcement sees it.
pub(super) struct Task {
    pub task: Arc<proto::Task>,
    /// `None` in announcements, which read properties alone.
    pub call: Option<Call>,
}

impl Task {
    fn call(&self) -> Result<&Call, CallError> {
        self.call.as_ref().ok_or_else(|| CallError::internal("a call without a caller"))
    }
}

// By hand, so that the properties are a table.
#[rustfmt::skip]
#[zbus::interface(name = "org.lrs.Shaper1.Task")]
impl Task {
    /// Gives the task back to where it came from; its processes go on.
    async fn release(&self) -> Result<(), CallError> {
        self.call()?.release(&self.task.id).await
    }

    /// Gives the task another priority; higher runs sooner.
    async fn set_priority(&self, priority: i32) -> Result<(), CallError> {
        self.call()?.set_priority(&self.task.id, priority).await
    }

    /// Every kept decision that touched the task, with its inputs; as Explain of the manager.
    #[zbus(out_args("events", "truncated"))]
    fn explain(&self) -> Result<(Vec<Dict>, bool), CallError> {
        self.call()?.explain(&self.task.id)
    }

    #[zbus(property)] fn id(&self) -> String { self.task.id.clone() }
    /// Empty: none given.
    #[zbus(property)] fn name(&self) -> String { text(self.task.name.as_deref()) }
    /// Empty: none given.
    #[zbus(property)] fn job(&self) -> String { text(self.task.job.as_deref()) }
    /// Empty: none given.
    #[zbus(property)] fn kind(&self) -> String { text(self.task.kind.as_deref()) }
    /// Its scheduler's pool or queue; empty: none given.
    #[zbus(property)] fn group(&self) -> String { text(self.task.group.as_deref()) }
    /// The main process; absent if not known.
    #[zbus(property)] fn pid(&self) -> fdo::Result<i32> { known(self.task.pid) }
    /// The owner; absent if not known.
    #[zbus(property)] fn uid(&self) -> fdo::Result<u32> { known(self.task.uid) }
    /// active or passive.
    #[zbus(property)] fn tier(&self) -> String { text(wire::tier_word(self.task.tier)) }
    /// Higher runs sooner; absent if not known.
    #[zbus(property)] fn priority(&self) -> fdo::Result<i32> { known(self.task.priority) }
    /// cpu, moderate, io or unknown.
    #[zbus(property)] fn class(&self) -> String { text(Some(wire::class_word(self.task.class))) }
    /// The class is expected, not measured.
    #[zbus(property)] fn hinted(&self) -> bool { self.task.hinted }
    /// RFC 3339; empty if not known.
    #[zbus(property)] fn admitted_at(&self) -> String { time(self.task.admitted_at.as_ref()) }
    /// RFC 3339; empty: never.
    #[zbus(property)] fn promoted_at(&self) -> String { time(self.task.promoted_at.as_ref()) }
    /// own, in_place or none.
    #[zbus(property)] fn attachment(&self) -> String { text(wire::attachment_word(self.task.attachment)) }
    /// Below the controller's mount; empty: none.
    #[zbus(property)] fn cgroup(&self) -> String { text(self.task.cgroup.as_deref()) }
    /// The tiers' ratio holds within it; empty: none.
    #[zbus(property)] fn ratio_group(&self) -> String { text(self.task.ratio_group.as_deref()) }
    /// The systemd unit that has this cgroup; empty: none.
    #[zbus(property)] fn unit(&self) -> String { text(self.task.unit.as_deref()) }
    /// What it lost by leaving its unit; empty: nothing.
    #[zbus(property)] fn lost_by_move(&self) -> String { text(self.task.lost_by_move.as_deref()) }
    /// What it would lose by leaving its group; empty: it left.
    #[zbus(property)] fn stays_because(&self) -> String { text(self.task.stays_because.as_deref()) }
    /// io: passive, and computes promptly in short bursts; empty: not so.
    #[zbus(property)] fn cpu_lane(&self) -> String { text(self.task.cpu_lane.as_deref()) }
    /// It has the active slot of one that sleeps, on loan, and holds a passive one.
    #[zbus(property)] fn loan(&self) -> bool { self.task.loan }
    /// It sleeps in its active slot, which is on loan while another can use it.
    #[zbus(property)] fn lends(&self) -> bool { self.task.lends }
    /// The CPUs it may use, "0-3,5"; empty: all that tasks may.
    #[zbus(property)] fn cpus(&self) -> String { text(self.task.cpus.as_deref()) }
    /// yarn, or rule and its name; empty: admitted by a client.
    #[zbus(property)] fn found_by(&self) -> String { text(self.task.found_by.as_deref()) }
    /// Behind every task that is not.
    #[zbus(property)] fn opportunistic(&self) -> bool { self.task.opportunistic }
    /// CPUs its owner caps it at; absent: no cap.
    #[zbus(property)] fn cpu_quota(&self) -> fdo::Result<f64> { known(self.task.cpu_quota) }
    /// Changes by others that were put right.
    #[zbus(property)] fn repaired(&self) -> u64 { self.task.repaired }
    /// Found running beyond capacity.
    #[zbus(property)] fn overflow(&self) -> bool { self.task.overflow }
    /// Never passive, holds no slot.
    #[zbus(property)] fn slotless(&self) -> bool { self.task.slotless }
    #[zbus(property)] fn frozen(&self) -> bool { self.task.frozen }
    /// All its threads are stopped by a signal or by a debugger.
    #[zbus(property)] fn stopped(&self) -> bool { self.task.stopped }
    /// Other software keeps changing its weights.
    #[zbus(property)] fn contested(&self) -> bool { self.task.contested }
    /// The main process has ended, others run on.
    #[zbus(property)] fn main_exited(&self) -> bool { self.task.main_exited }
    /// Of the main process; absent: it runs, a signal killed it, or not known.
    #[zbus(property)] fn exit_status(&self) -> fdo::Result<i32> { known(self.task.exit_status) }
    /// The signal that killed the main process; absent: none, or not known.
    #[zbus(property)] fn exit_signal(&self) -> fdo::Result<i32> { known(self.task.exit_signal) }
    /// CPU, I/O and memory since admission, rates, weights read back.
    #[zbus(property(emits_changed_signal = "false"))]
    fn measured(&self) -> Dict {
        let task = &self.task;
        value::dict(json!({
            "computing_rate": task.computing_rate,
            "computing_rate_raw": task.computing_rate_raw,
            "cpu_seconds": task.cpu_seconds,
            "cpu_share": task.cpu_share,
            "write_bytes_per_sec": task.write_bytes_per_sec,
            "read_bytes_per_sec": task.read_bytes_per_sec,
            "elapsed_seconds": task.elapsed_seconds,
            "expected_remaining_seconds": task.expected_remaining_seconds,
            "kernel": task.kernel,
            "resident_bytes": task.resident_bytes,
        }))
    }
}

/// Whether nothing of a task changed that is announced: all but what `Measured` holds. Every
/// field is named, so that a new one has to be decided on. It is asked for every task in each
/// cycle, for which two tables of values would be too much.
pub(super) fn same(old: &proto::Task, new: &proto::Task) -> bool {
    macro_rules! same {
        ($($announced:ident)* ; $($measured:ident)*) => {{
            let proto::Task { $($announced,)* $($measured: _,)* } = old;
            $(*$announced == new.$announced)&&*
        }};
    }
    same!(
        id name job kind group pid uid tier priority class hinted admitted_at promoted_at attachment overflow
        slotless frozen stopped contested main_exited cgroup ratio_group unit found_by stays_because
        lost_by_move command index loan lends cpus cpu_lane opportunistic cpu_quota repaired
        exit_status exit_signal;
        computing_rate computing_rate_raw cpu_seconds cpu_share write_bytes_per_sec
        read_bytes_per_sec elapsed_seconds expected_remaining_seconds kernel resident_bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_values_alone_are_no_change() {
        let old = proto::Task { priority: Some(1), ..Default::default() };
        assert!(same(&old, &proto::Task { cpu_seconds: Some(2.0), ..old.clone() }));
        assert!(!same(&old, &proto::Task { priority: None, ..old.clone() }));
    }
}
