//! The thread that talks to systemd about units that are tasks.
//!
//! systemd answers in milliseconds, in seconds while it reloads, and not at all while it hangs;
//! none of that may keep a promotion or another admission waiting. So the loop and the placing
//! thread write files, and this thread tells systemd afterwards. Jobs on one unit stay in
//! order ([`super::unit_queue`]); a tier that was followed by another before systemd heard of it
//! is not told. After a call that ran out systemd is left alone for a while, and what is due
//! fails at once ([`super::unit_calls`]); every cycle tries again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use super::unit_calls::{AskError, Systemd};
use super::unit_queue::UnitQueue;
use super::worker::{Message, Outbox, remove};
use crate::cgroup::{Group, TierTree, WeightPlan};
use crate::command::{AdmitRequest, Caller, CommandError, ErrorKind, Reply};
use crate::core::leaving::Stop;
use crate::core::model::TaskId;
use crate::proto;
use crate::systemd::unit::{Setting, UnitRecord};
use crate::units::{Pid, ProcessRef};

/// An admission on its way to be looked up, with everything needed to go on.
#[derive(Debug)]
pub struct Asking {
    /// Who asks.
    pub caller: Caller,
    /// For what.
    pub request: AdmitRequest,
    /// Who waits for the answer.
    pub reply: Reply<proto::Task>,
}

/// An admission that is called off: its clients, and why. They hear of it once nothing of it is
/// left.
#[derive(Debug)]
pub struct CalledOff {
    /// Who waits for the answer.
    pub replies: Vec<Reply<proto::Task>>,
    /// The answer.
    pub error: CommandError,
}

/// Work that needs systemd.
#[derive(Debug)]
pub enum UnitJob {
    /// Find the unit of an admission: by its name, or that of a process to be managed in place.
    Look(Box<Asking>),
    /// Give the root its weight among its siblings, which may be systemd's to write.
    ShapeRoot {
        /// What the weights promise.
        plan: WeightPlan,
    },
    /// Let systemd give the unit weight files of its own, and open them.
    Prepare {
        /// The task.
        task: TaskId,
        /// Its main process.
        process: ProcessRef,
        /// Its unit, as recorded.
        unit: UnitRecord,
    },
    /// Tell systemd the weights that the files have.
    Tell {
        /// The task.
        task: TaskId,
        /// Its unit, as recorded.
        unit: UnitRecord,
        /// In systemd's words.
        settings: Vec<Setting>,
    },
    /// Give files and properties back: the task is released.
    Release {
        /// The task.
        task: TaskId,
        /// Its group.
        group: Arc<Group>,
        /// Its unit.
        unit: UnitRecord,
    },
    /// The same for a task that is over.
    Restore {
        /// The task.
        task: TaskId,
        /// Its group, if its files are to be given back too.
        group: Option<Arc<Group>>,
        /// Its unit.
        unit: UnitRecord,
        /// Set when it never became a task.
        called_off: Option<CalledOff>,
    },
}

/// What [`UnitJob::Look`] found.
#[derive(Debug)]
pub struct Looked {
    /// The process: of a unit, what it calls its main process, else its oldest.
    pub process: Pid,
    /// Whose its cgroup is.
    pub whose: Whose,
    /// What a stop of its unit ends.
    pub stop: Stop,
}

/// Whose the weights of a process's cgroup are.
#[derive(Debug)]
pub enum Whose {
    /// systemd has no say in them.
    Nobody,
    /// A unit's, and systemd has to be told.
    Unit(UnitRecord),
    /// A unit's that cannot be a task now: one that is ending, or that is delegated and writes
    /// what is below, not its own weights.
    Unfit,
    /// A unit's by its name, and systemd was not asked.
    Unknown(AskError),
}

/// What [`UnitJob::Prepare`] came to.
#[derive(Debug)]
pub enum Prepared {
    /// Its files.
    Group(Box<Group>),
    /// Its owner has changed its weights since they were recorded: to be recorded anew, before
    /// they are touched.
    Changed(UnitRecord),
}

/// A unit that systemd did not take back as it was.
#[derive(Debug)]
pub struct Unrestored {
    /// Which, and how it was.
    pub unit: Box<UnitRecord>,
    /// Why.
    pub error: AskError,
}

/// What [`UnitJob::Tell`] came to.
#[derive(Debug)]
pub enum Told {
    /// systemd knows, or the unit is gone.
    Known,
    /// Not told, because another tier is about to be.
    Overtaken,
    /// Not told: its owner has set weights since. To be recorded, and told again.
    OwnerSaid(Box<UnitRecord>),
}

pub(super) fn serve_units(
    tree: &dyn TierTree,
    jobs: &Receiver<UnitJob>,
    outbox: &Outbox,
    stopping: &AtomicBool,
) {
    let mut systemd = Systemd::new(tree);
    let mut queue = UnitQueue::default();
    loop {
        if queue.is_empty() {
            let Ok(job) = jobs.recv() else { return };
            queue.push(job);
        }
        // All that is known, so that an overtaken one is seen.
        while let Ok(job) = jobs.try_recv() {
            queue.push(job);
        }
        let Some(job) = queue.pop() else { continue };
        let restores = matches!(job, UnitJob::Restore { .. });
        if stopping.load(Ordering::Relaxed) && (!restores || systemd.is_unreachable()) {
            // The records are left: the next daemon tells, rolls back and restores.
            continue;
        }
        let message = match job {
            UnitJob::Look(asking) => {
                let result = if asking.reply.is_closed() {
                    Err(CommandError::new(ErrorKind::Unavailable, "the client went away"))
                } else {
                    systemd.look(&asking.request.subject)
                };
                Message::UnitLooked { asking, result }
            }
            UnitJob::ShapeRoot { plan } => Message::RootShaped { result: tree.shape_root(&plan) },
            UnitJob::Prepare { task, process, unit } => {
                let result = systemd.prepare(process, unit);
                Message::UnitPrepared { task, result }
            }
            UnitJob::Tell { task, unit, settings } => {
                let result = if queue.has_tier_of(task) {
                    Ok(Told::Overtaken)
                } else {
                    systemd.tell(unit, &settings)
                };
                Message::UnitTold { task, result }
            }
            UnitJob::Release { task, group, unit } => {
                let result = tree.release(&group);
                if result.is_ok() {
                    // Told first: without it the record would go with the release.
                    let restored = systemd.restore(unit);
                    let called_off = None;
                    outbox.send(Message::UnitRestored { task, result: restored, called_off });
                }
                Message::Released { task, result }
            }
            UnitJob::Restore { task, group, unit, called_off } => {
                if let Some(group) = group
                    && let Err(error) = remove(tree, &group)
                {
                    let cgroup = &group.record.path;
                    tracing::warn!(%task, cgroup, %error, "the weights found in {cgroup} were not given back at the end of task {task}: {error}");
                }
                let result = systemd.restore(unit);
                Message::UnitRestored { task, result, called_off }
            }
        };
        outbox.send(message);
    }
}
