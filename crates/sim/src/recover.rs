//! The start of the daemon: looks at records and groups, has the core judge them
//! ([`lrs_core::restore`]), and carries that out in the order of `driver/recover.rs`.

use lrs_core::model::TaskId;
use lrs_core::restore::{GroupUse, Observation, Restore};
use lrs_core::shaper::Shaper;
use lrs_core::state::Policy;
use lrs_core::step::{Input, Last};

use crate::daemon::{Daemon, give_back, remove_group};
use crate::outside::{Alive, Deed, LRS, Outside, TaskRecord, origin_of, own_group};
use crate::tree::{Inode, ROOT};

/// Starts the daemon.
///
/// # Errors
/// `Killed` on the way: the next start begins anew.
pub fn start(policy: Policy, out: &mut Outside) -> Alive<Daemon> {
    let now = out.node.now();
    if out.lrs().is_none() {
        out.fuse.burn(Deed::MakeGroup)?;
        // Below the root a group can always be made.
        let _ = out.node.tree.make(ROOT, LRS);
    }
    let (restore, remove) = find(out)?;
    let (restored, start) = restore.finish(now.boot);
    let held = restored.tasks.iter().map(|task| (task.id, Vec::new())).collect();
    let core = Shaper::new(policy, out.node.hardware.cpus, restored);
    let mut daemon = Daemon::new(core, held, (now.boot, out.node.sample()));
    daemon.feed(Input::Restored(start.due), out)?;
    for id in &start.ended {
        // Before its end is in the history: a record still on its way to its slot, of a task that
        // the history has no more, would be rolled back, and the promise it used given back.
        daemon.store(*id, out)?;
    }
    let gone = [start.ended.clone(), start.released.clone()].concat();
    daemon.feed(Input::Ended(gone), out)?;
    let endings = start.ended.iter().map(|id| (*id, Last::Away)).collect();
    daemon.feed(Input::Figures(endings), out)?;
    for id in &start.released {
        daemon.feed(Input::Released(*id), out)?;
    }
    let live: Vec<TaskId> = daemon.held.keys().copied().collect();
    for id in &live {
        daemon.align(*id, out)?;
        daemon.store(*id, out)?;
    }
    daemon.check_ended(&live, out)?;
    for id in start.forget {
        daemon.forget(id, out)?;
    }
    for group in remove {
        remove_group(group, out)?;
    }
    Ok(daemon)
}

/// Has everything that was left judged; with the groups that are of no more use.
fn find(out: &mut Outside) -> Alive<(Restore, Vec<Inode>)> {
    let store = &out.store;
    let records = store.tasks.values().map(|record| &record.task);
    let reservations = store.reservations.clone();
    let mut restore = Restore::new(store.history_state.clone(), false, records, reservations);
    let mut remove = Vec::new();
    let mut groups = out.task_groups();
    let records: Vec<TaskRecord> = out.store.tasks.values().cloned().collect();
    for TaskRecord { boot, task } in records {
        if boot != out.boot {
            restore.earlier_boot(task);
            continue;
        }
        let group = groups.remove(&task.id);
        let main = task.who.process;
        let seen = Observation {
            group: group.map(|group| own_group(group, task.who.origin.clone())),
            occupied: group.is_some_and(|group| out.node.tree.members(group).next().is_some()),
            main_lives: main.is_some_and(|main| out.node.tree.alive(main).is_some()),
        };
        let verdict = restore.judge(&task, &seen);
        if let Some(group) = group.filter(|_| verdict.gives_back()) {
            give_back(group, origin_of(&task), out)?;
        }
        if restore.take(task, seen, verdict, true) == GroupUse::Unneeded {
            remove.extend(group);
        }
    }
    for (id, group) in groups {
        let occupied = out.node.tree.members(group).next().is_some();
        // What cgroup and history would tell of it is not played.
        let (origin, known) = Default::default();
        if restore.group(id, own_group(group, origin), occupied, known) == GroupUse::Unneeded {
            remove.push(group);
        }
    }
    Ok((restore, remove))
}
