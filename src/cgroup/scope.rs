//! The root of a daemon that systemd started: the delegated scope `lrs-tasks.scope`.
//!
//! The scope is systemd's, and what is below it is ours (Delegate=, systemd.resource-control(5)).
//! Its first process, an anchor, makes it and keeps it; a daemon that comes back joins it if
//! systemd says that it is active, and by its path if tasks run in it and systemd does not answer
//! at once. In a unified hierarchy a group with children has no processes, so the anchor moves into
//! a leaf.
//!
//! The weight against the rest of the node belongs to the slice and is systemd's to write: its
//! next daemon-reload would undo ours.
//!
//! Limits. `systemctl stop lrs-tasks.scope` ends all tasks; until the slowest of them has
//! ended nothing can be admitted, because a task put into a scope that is being stopped would be
//! killed with it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::mounts::{Hierarchy, SYSTEMD, UNIFIED};
use super::{CgroupError, dirs, files, walk};
use crate::clock;
use crate::core::model::TaskId;
use crate::systemd::anchor::Anchor;
use crate::systemd::manager::{Manager, ManagerError, NewScope};
use crate::systemd::{SCOPE, SCOPE_PATH as PATH, SLICE};
use crate::units::{BootTime, Pid};

/// Leaf of the anchor.
pub(super) const LEAF: &str = "anchor";

/// What `systemctl status` calls it.
const DESCRIPTION: &str = "Tasks of the Local Resource Shaper";

/// What the scope needs beside `Delegate=yes` where there are v1 hierarchies. Without it systemd
/// keeps blkio for the slice only as long as a unit in it asks for it, and then moves all
/// processes below the slice to the root of that hierarchy (*measured* on 252: the removal of a
/// unit file with IOWeight= and a daemon-reload).
const V1_CONTROLLERS: &[&str] = &["cpuacct", "blkio"];

/// How long a scope may take to go away, and systemd to answer, while the daemon starts: a storm of
/// daemon-reload keeps systemd busy for tens of seconds. TimeoutStartSec= is 60 s.
const PATIENCE_AT_START: Duration = Duration::from_secs(45);

/// After so long the wait at the start is logged.
const WORTH_A_WORD: Duration = Duration::from_secs(5);

/// The same, and for any answer of systemd's, once there are tasks that wait for their turn.
const PATIENCE: Duration = Duration::from_millis(1500);

/// How long systemd is waited for where tasks run in the scope already and a daemon comes back to
/// them. systemd answers within a few milliseconds; without it they are taken over all the same.
const PATIENCE_WITH_TASKS: Duration = Duration::from_millis(500);

/// Before systemd is asked once more for what contradicts a job that it has queued. That a job is over it
/// tells (`JobRemoved`) only who has subscribed before, and each of these connections lives for one call.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Between two checks of a scope that is going away.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest wait for the anchor's end when the daemon stops.
const FAREWELL: Duration = Duration::from_millis(200);

/// The result of a try to hold the scope.
enum Attempt {
    /// The anchor is in.
    Holds(Anchor),
    /// There is no scope to be in now; the anchor is where it was.
    Outside(Anchor),
    /// The anchor joined a scope that was going away.
    Spent(Anchor),
}

/// This daemon's hold on the scope.
#[derive(Debug, Default)]
pub(super) struct Scope {
    anchor: Option<Anchor>,
    started: bool,
}

impl Scope {
    /// How long a scope may take to go away, and any answer of systemd's.
    fn patience(&self) -> Duration {
        if self.started { PATIENCE } else { PATIENCE_AT_START }
    }

    /// Whether the anchor still runs.
    pub(super) fn held(&mut self) -> bool {
        self.anchor.as_mut().is_some_and(Anchor::alive)
    }

    /// Makes sure that the scope is there, with an anchor of ours in it.
    pub(super) fn hold(&mut self, hierarchies: &[Hierarchy]) -> Result<(), CgroupError> {
        let patience = self.patience();
        let give_up = clock::boot_time().after(patience);
        let mut anchor = None;
        loop {
            let held = match anchor.take() {
                Some(anchor) => self.try_hold(hierarchies, anchor, give_up)?,
                None => self.try_hold(hierarchies, new_anchor()?, give_up)?,
            };
            match held {
                Attempt::Holds(anchor) => {
                    self.anchor = Some(anchor);
                    self.started = true;
                    return Ok(());
                }
                Attempt::Outside(unused) => anchor = Some(unused),
                // It went down with the scope, or must not keep it up.
                Attempt::Spent(spent) => drop(spent.end(FAREWELL)),
            }
            if clock::boot_time() >= give_up {
                return Err(CgroupError::Refused(format!(
                    "systemd has been taking down {SCOPE} for {patience:?}; see `systemctl \
                     status {SCOPE}`, and ask again when it is gone"
                )));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn try_hold(
        &self,
        hierarchies: &[Hierarchy],
        anchor: Anchor,
        give_up: BootTime,
    ) -> Result<Attempt, CgroupError> {
        let is_back = !self.started && has_others(hierarchies, anchor.pid())?;
        let left = if is_back { PATIENCE_WITH_TASKS } else { left(give_up) };
        let state = match patiently(left, |manager| manager.active_state(SCOPE)) {
            Ok(state) => state,
            // Without systemd's word: a scope with tasks in it is not going away by itself.
            Err(error) if has_others(hierarchies, anchor.pid())? => {
                tracing::warn!(%error, "systemd does not say how {SCOPE} is, its tasks are taken over: {error}");
                return take_over(hierarchies, anchor);
            }
            Err(error) => return Err(unusable(&error)),
        };
        match state.as_deref() {
            // Joining one that is going away would only keep it from going.
            Some("active") => {
                if !join(hierarchies, anchor.pid())? {
                    return Ok(Attempt::Outside(anchor));
                }
                // systemd hears of an empty group before it answers: if the scope was empty a
                // moment ago, and is to end for that, it says so now. With tasks it was not.
                match Manager::within(left).active_state(SCOPE) {
                    Ok(Some(still)) if still == "active" => Ok(Attempt::Holds(anchor)),
                    Ok(_) => Ok(Attempt::Spent(anchor)),
                    Err(_) if has_others(hierarchies, anchor.pid())? => Ok(Attempt::Holds(anchor)),
                    Err(error) => Err(unusable(&error)),
                }
            }
            Some(_) => Ok(Attempt::Outside(anchor)),
            None if has_others(hierarchies, anchor.pid())? => {
                tracing::warn!(
                    "systemd has lost {SCOPE} while its tasks still run; they are taken over, and the scope is made anew after them"
                );
                take_over(hierarchies, anchor)
            }
            None => {
                clear(hierarchies)?;
                self.start(hierarchies, anchor, give_up)
            }
        }
    }

    fn start(
        &self,
        hierarchies: &[Hierarchy],
        anchor: Anchor,
        give_up: BootTime,
    ) -> Result<Attempt, CgroupError> {
        let scope = NewScope {
            name: SCOPE,
            slice: SLICE,
            description: DESCRIPTION,
            delegated: true,
            also_delegated: if is_unified(hierarchies) { &[] } else { V1_CONTROLLERS },
        };
        match Manager::within(left(give_up)).start_scope(&scope, &[anchor.pid()]) {
            Ok(()) => {}
            Err(error) if error.unit_exists() => return Ok(Attempt::Outside(anchor)),
            Err(error) => return Err(unusable(&error)),
        }
        // Out of the scope's own group and into the leaf.
        if join(hierarchies, anchor.pid())? {
            return Ok(Attempt::Holds(anchor));
        }
        Err(CgroupError::Unsupported(format!(
            "systemd started {SCOPE}, but not as /{PATH}; set cgroup.root to a group that lrsd \
             may use"
        )))
    }

    /// Releases the scope; systemd ends a scope in which nothing is left.
    pub(super) fn release(&mut self) {
        if let Some(anchor) = self.anchor.take()
            && !anchor.end(FAREWELL)
        {
            tracing::debug!("the anchor of {SCOPE} has not ended yet");
        }
    }
}

/// Gives the slice `weight` (cpu.weight) among its siblings, unless it has it.
pub(super) fn set_weight(weight: u64) -> Result<(), CgroupError> {
    Manager::within(PATIENCE).set_slice_weight(SLICE, weight).map_err(|error| {
        CgroupError::Refused(format!("CPUWeight={weight} of {SLICE} is not set: {error}"))
    })
}

/// Gives processes that were the task `id`, or waited to be it, a scope of their own: where they came
/// from, a session perhaps, is gone. It is in the slice that `origin` was in (a cgroup of systemd's
/// hierarchy), so that a user's processes stay below that user's limits. They are then systemd's like
/// any other. A slice that is about to go is waited for, [`PATIENCE`] at most.
pub(super) fn rehome(id: TaskId, origin: &str, processes: &[Pid]) -> Result<(), ManagerError> {
    let name = format!("lrs-released-{id}.scope");
    let description = format!("Released by LRS: was task {id}");
    let scope = NewScope {
        name: &name,
        slice: slice_of(origin),
        description: &description,
        delegated: false,
        also_delegated: &[],
    };
    // One that was waited for in vain is enough: as lrsd stops, with the node perhaps, there may be many.
    static IN_VAIN: AtomicBool = AtomicBool::new(false);
    let patience = if IN_VAIN.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
    let give_up = clock::boot_time().after(patience);
    loop {
        let answer = Manager::within(left(give_up)).start_scope(&scope, processes);
        let contradicts = answer.as_ref().is_err_and(ManagerError::contradicts_a_job);
        // The slice is about to go, as with the last session of its user; then it can be made anew.
        if contradicts && clock::boot_time() < give_up {
            std::thread::sleep(BETWEEN_TRIES);
            continue;
        }
        IN_VAIN.store(contradicts, Ordering::Relaxed);
        return answer;
    }
}

/// The innermost slice of the system's manager around `origin`. Slices below a service are those of a
/// user's own manager, which may be gone.
fn slice_of(origin: &str) -> &str {
    let parts = origin.trim_start_matches('/').split('/');
    parts.take_while(|part| part.ends_with(".slice")).last().unwrap_or("system.slice")
}

/// What is left of the time in which the scope has to be held; a moment at the least.
fn left(give_up: BootTime) -> Duration {
    give_up.since(clock::boot_time()).max(PATIENCE_WITH_TASKS)
}

/// Asks, and says so where the answer takes long.
fn patiently<T>(
    patience: Duration,
    ask: impl Fn(Manager) -> Result<T, ManagerError>,
) -> Result<T, ManagerError> {
    match ask(Manager::within(patience.min(WORTH_A_WORD))) {
        Err(ManagerError::Timeout { .. }) if patience > WORTH_A_WORD => {
            let more = patience - WORTH_A_WORD;
            tracing::warn!(
                "systemd has not answered for {WORTH_A_WORD:?}: it is busy, as with daemon-reload, or hangs; lrsd asks for {more:?} more"
            );
            ask(Manager::within(more))
        }
        answer => answer,
    }
}

fn unusable(error: &ManagerError) -> CgroupError {
    let busy = match error {
        ManagerError::Timeout { .. } => {
            "; it is busy, as with daemon-reload, or hangs (`systemctl list-jobs`): start lrsd again \
             when it answers"
        }
        _ => "",
    };
    CgroupError::Unsupported(format!(
        "cannot keep tasks in {SCOPE}: {error}{busy}; or set cgroup.root = \"lrs\" to do without \
         systemd"
    ))
}

/// Where systemd looks whether the scope is empty: the unified hierarchy, on v1 its own, on
/// hybrid machines both.
pub(super) fn tracked(hierarchies: &[Hierarchy]) -> impl Iterator<Item = &Hierarchy> {
    hierarchies.iter().filter(|h| h.name == UNIFIED || h.name == SYSTEMD)
}

fn new_anchor() -> Result<Anchor, CgroupError> {
    Anchor::start().map_err(|error| {
        CgroupError::Unsupported(format!("cannot start the anchor of {SCOPE}: {error}"))
    })
}

fn is_unified(hierarchies: &[Hierarchy]) -> bool {
    hierarchies.iter().all(Hierarchy::is_unified)
}

/// Moves `anchor` into the scope: into a leaf where groups with children cannot have processes.
/// `Ok(false)`: there is no scope.
fn join(hierarchies: &[Hierarchy], anchor: Pid) -> Result<bool, CgroupError> {
    let leaf = is_unified(hierarchies);
    let mut found = false;
    for hierarchy in tracked(hierarchies) {
        let scope = hierarchy.dir(PATH);
        let group = if leaf { scope.join(LEAF) } else { scope };
        if let Err(error) = enter(&group, leaf, anchor) {
            if files::is_gone(&error) {
                return Ok(false);
            }
            return Err(files::failed("move the anchor into", &group, None, error));
        }
        found = true;
    }
    Ok(found)
}

/// Joins a scope with running tasks, whatever systemd reports of it.
fn take_over(hierarchies: &[Hierarchy], anchor: Anchor) -> Result<Attempt, CgroupError> {
    let joined = join(hierarchies, anchor.pid())?;
    Ok(if joined { Attempt::Holds(anchor) } else { Attempt::Outside(anchor) })
}

/// The scope itself is never made here: that is systemd's to do.
fn enter(group: &Path, leaf: bool, anchor: Pid) -> io::Result<()> {
    if leaf {
        match std::fs::create_dir(group) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    files::write_raw(&group.join("cgroup.procs"), &anchor.to_string())
}

/// Removes what is left of a scope that systemd does not know any more: groups without any
/// process, in which it could not start a new one.
fn clear(hierarchies: &[Hierarchy]) -> Result<(), CgroupError> {
    dirs::remove_everywhere(hierarchies, PATH)
}

/// Whether processes other than `anchor` are in the scope: then it is not going away.
fn has_others(hierarchies: &[Hierarchy], anchor: Pid) -> Result<bool, CgroupError> {
    for hierarchy in tracked(hierarchies) {
        if walk::processes_below(&hierarchy.dir(PATH))?.iter().any(|pid| *pid != anchor) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_of_a_session_stays_below_its_user() {
        for (origin, slice) in [
            ("/user.slice/user-1000.slice/session-3.scope", "user-1000.slice"),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope",
                "user-1000.slice",
            ),
            ("/system.slice/cron.service", "system.slice"),
            ("/batch.slice/batch-night.slice/job.service", "batch-night.slice"),
            ("/init.scope", "system.slice"),
            ("/docker/5f00", "system.slice"),
            ("/", "system.slice"),
            ("", "system.slice"),
        ] {
            assert_eq!(slice_of(origin), slice, "{origin}");
        }
    }

    #[test]
    fn a_systemd_that_is_busy_at_the_start_is_asked_once_more() {
        let asked = std::cell::Cell::new(0);
        let busy = || ManagerError::Timeout { what: "GetUnit".into(), patience: WORTH_A_WORD };
        let ask = |answers_at: u32| {
            asked.set(0);
            patiently(PATIENCE_AT_START, |_| {
                asked.set(asked.get() + 1);
                if asked.get() >= answers_at { Ok(asked.get()) } else { Err(busy()) }
            })
        };
        assert_eq!((ask(1).unwrap(), ask(2).unwrap()), (1, 2));
        let text = unusable(&ask(3).unwrap_err()).to_string();
        assert!(text.contains("daemon-reload") && asked.get() == 2, "{text}");
        // A promotion waits behind no second question.
        asked.set(0);
        let short = patiently(PATIENCE, |_| -> Result<(), _> {
            asked.set(asked.get() + 1);
            Err(busy())
        });
        assert!(short.is_err() && asked.get() == 1);
    }
}
