//! How the main process of a task ended, which a promotion never waits for. Where the status is found is
//! in `node/exits.rs`.

use std::collections::BTreeMap;

use super::Executor;
use super::world::{HowEnded, World};
use lrs_core::exit::Exit;
use lrs_core::model::{Labels, TaskId};
use lrs_core::step::Input;
use lrs_core::task::Task;
use lrs_core::units::{Pid, ProcessRef};

/// A main process that has ended, and what its task was: that may be over by the time the status
/// is found.
#[derive(Debug)]
struct Main {
    process: ProcessRef,
    uid: Option<u32>,
    labels: Labels,
    /// The world was asked how it ended.
    asked: bool,
}

/// Main processes that have ended, as long as their status is not known.
#[derive(Debug, Default)]
pub(super) struct Mains(BTreeMap<TaskId, Main>);

impl Mains {
    /// The process that just ended may be the main one of `task`.
    pub(super) fn ended(&mut self, task: &Task, pid: Pid) -> bool {
        let main = task.who.process.filter(|main| main.pid == pid && !task.main_exited);
        let Some(process) = main else { return false };
        let (uid, labels) = (task.uid, task.labels.clone());
        self.0.insert(task.id, Main { process, uid, labels, asked: false });
        true
    }
}

impl<W: World> Executor<'_, W> {
    /// Asks how main processes ended. Call after the promotions that followed from their ends.
    pub(super) fn tell_exits(&mut self) {
        let unasked = self.state.mains_ended.0.iter_mut().filter(|(_, main)| !main.asked);
        let new: Vec<(TaskId, ProcessRef)> = unasked
            .map(|(id, main)| {
                main.asked = true;
                (*id, main.process)
            })
            .collect();
        for (id, process) in new {
            match self.state.world.how_ended(id, process) {
                HowEnded::Known(exit) => self.exit_found(id, process, Some(exit)),
                HowEnded::Later => {}
                HowEnded::Never => self.exit_found(id, process, None),
            }
        }
    }

    /// The answer to that.
    pub(super) fn exit_found(&mut self, id: TaskId, process: ProcessRef, exit: Option<Exit>) {
        let mains = &mut self.state.mains_ended.0;
        if mains.get(&id).is_none_or(|main| main.process != process) {
            return;
        }
        let main = mains.remove(&id);
        // A status that is not found is a state that clients know, and the task is over.
        if let (Some(Main { uid, labels, .. }), Some(exit)) = (main, exit) {
            self.push(Input::Exited { task: id, uid, labels, exit });
        }
    }
}
