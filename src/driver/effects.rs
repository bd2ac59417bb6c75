//! Carrying out what the core decided: weights first, then records, then everything else.

use std::sync::Arc;

use super::Driver;
use super::entry::Placement;
use super::log::log;
use super::worker::Job;
use crate::cgroup::{Attachment, Drift, Group};
use crate::command::{CommandError, ErrorKind};
use crate::core::event::{Event, EventKind};
use crate::core::model::{TaskId, Tier};
use crate::core::state::Effect;
use crate::state::StateError;
use crate::state::record::ReservationRecord;
use crate::units::Moment;

impl Driver {
    /// Carries out everything the core has decided so far.
    pub(super) fn carry_out(&mut self, now: Moment) {
        loop {
            self.write_tiers(now);
            let effects = self.core.take_effects();
            if effects.is_empty() {
                break;
            }
            self.changed_status = true;
            for effect in effects {
                self.carry_out_one(effect, now);
            }
        }
        for id in std::mem::take(&mut self.retiered) {
            // What is shown is what the kernel says now, not what was written.
            self.read_back(id);
            self.changed.insert(id);
        }
        self.unwritten.clear();
    }

    /// Gives every task whose tier changed its weights, before anything else is done.
    pub(super) fn write_tiers(&mut self, now: Moment) {
        for (task, tier) in self.core.take_tiers() {
            if let Err(error) = self.write_tier(task, tier, now) {
                self.unwritten.insert(task.to_string(), error);
            }
            self.retiered.push(task);
        }
    }

    fn carry_out_one(&mut self, effect: Effect, now: Moment) {
        match effect {
            Effect::Retier { task, tier } => {
                // Taken by write_tiers; one that came since is due now.
                if let Err(error) = self.write_tier(task, tier, now) {
                    self.unwritten.insert(task.to_string(), error);
                }
                self.retiered.push(task);
            }
            Effect::Attach { task, waiter } => self.start_attach(task, waiter, now),
            Effect::StoreTask(id) => {
                self.changed.insert(id);
                self.store_task(id);
            }
            Effect::StoreReservation(id) => {
                if let Some(reservation) = self.core.reservation(id) {
                    let record = ReservationRecord::new(id, reservation);
                    let stored = self.store.put_reservation(&record);
                    self.noted(stored);
                }
            }
            Effect::DropReservation(id) => {
                let removed = self.store.remove_reservation(id);
                self.noted(removed);
            }
            Effect::WaiterTimedOut(waiter) => {
                if let Some(admission) = self.waiting.remove(&waiter) {
                    let error = CommandError::new(
                        ErrorKind::WaitTimedOut,
                        "no slot came free within the time given; wait longer (--wait=DUR) or try again later",
                    );
                    self.answer_all(admission.replies, Err(error));
                }
            }
            Effect::Record(mut event) => {
                let failed = event.task.as_ref().and_then(|id| self.unwritten.get(id));
                if let (Some(error), EventKind::Promoted | EventKind::Demoted) =
                    (failed, event.kind)
                {
                    event.inputs.insert("weights_not_written".into(), error.clone().into());
                }
                if event.kind == EventKind::Admitted {
                    self.tell_how_found(&mut event);
                }
                self.record(event);
            }
        }
    }

    /// Adds an event to the history, the ring and the log.
    fn record(&mut self, event: Event) {
        let task = event.task.as_deref().and_then(|id| id.parse().ok());
        let labels = task.and_then(|id| self.core.task(id)).map(|task| &task.labels);
        log(&event, labels);
        if matches!(event.kind, EventKind::Admitted | EventKind::Completed | EventKind::Released) {
            self.changed_jobs = true;
        }
        let appended = self.store.append(&event);
        self.noted(appended);
        self.events.push(event);
    }

    /// Stores what is known of a task.
    pub(super) fn store_task(&mut self, id: TaskId) {
        let (Some(task), Some(entry)) = (self.core.task(id), self.entries.get(&id)) else { return };
        let stored = self.store.put_task(&entry.record(id, task));
        self.noted(stored);
    }

    /// A write of state that may fail without stopping the work: the task runs on, status says
    /// so, and every cycle tries again. (An admission or reservation is refused instead.) One
    /// write that succeeds proves nothing for the others: on a full disk removals always do.
    pub(super) fn noted(&mut self, result: Result<(), StateError>) {
        let Err(error) = result else { return };
        if self.store_problem.is_none() {
            tracing::warn!(%error, "state is not being stored, a restart would lose it: {error}");
            self.changed_status = true;
        }
        self.store_problem = Some(error.to_string());
    }

    /// Stores everything anew after a write has failed, until all of it succeeds: nobody knows
    /// which records on the disk are old.
    pub(super) fn store_again(&mut self) {
        if self.store_problem.is_none() {
            return;
        }
        let stored = self.try_to_store_all();
        match stored {
            Ok(()) => {
                self.store_problem = None;
                tracing::info!("state can be stored again");
            }
            Err(error) => self.store_problem = Some(error.to_string()),
        }
        self.changed_status = true;
    }

    fn try_to_store_all(&mut self) -> Result<(), StateError> {
        self.store.resume()?;
        for (id, entry) in &self.entries {
            if let Some(task) = self.core.task(*id) {
                self.store.put_task(&entry.record(*id, task))?;
            }
        }
        for (id, reservation) in self.core.reservations() {
            self.store.put_reservation(&ReservationRecord::new(id, reservation))?;
        }
        Ok(())
    }

    /// Gives a placed task the weights of `tier`. One on its way gets them when it arrives.
    fn write_tier(&mut self, id: TaskId, tier: Tier, now: Moment) -> Result<(), String> {
        self.heed_owner(id);
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(()) };
        let (Placement::Placed, Some(group)) = (entry.phase, &entry.group) else { return Ok(()) };
        match self.tree.write_tier(group, tier, &self.plan) {
            Ok(_) => {
                entry.written = Some((tier, now.boot));
                let group = Arc::clone(group);
                self.write_io(&group, tier);
                self.tell_unit(id, tier);
                Ok(())
            }
            Err(error) => {
                entry.written = None;
                // Its group may be about to go with its last process; the check of the next
                // cycle tells the two apart and tries again.
                tracing::warn!(task = %id, %tier, %error, "task {id} did not get the weights of the {tier} tier: {error}");
                Err(error.to_string())
            }
        }
    }

    /// Takes over what the owner of an in-place group wrote into it since LRS did, and stores it
    /// before it is written over. A unit's weights are in a record of their own, which systemd
    /// told.
    fn heed_owner(&mut self, id: TaskId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (Placement::Placed, None, Some(group)) = (entry.phase, &entry.unit, &entry.group)
        else {
            return;
        };
        if group.record.attachment != Attachment::InPlace {
            return;
        }
        match self.tree.heed_owner(group) {
            Ok(Some(record)) => {
                entry.group = Some(Arc::new(Group { record, dirs: group.dirs.clone() }));
                self.store_task(id);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(task = %id, %error, "what the owner of the cgroup of task {id} wrote cannot be read: {error}");
            }
        }
    }

    /// Gives the threads their I/O priority, where disk tiers are made that way: a walk, so not
    /// on this thread.
    pub(super) fn write_io(&self, group: &Arc<Group>, tier: Tier) {
        if self.tree.capabilities().io_by_thread {
            self.workers.place(Job::Io { group: Arc::clone(group), tier });
        }
    }

    /// Has the disk tier of a task made as this daemon makes it, and what an earlier one with
    /// another `tiers.io` left taken back.
    pub(super) fn renew_disk_tier(&self, id: TaskId) {
        let group = self.entries.get(&id).and_then(|entry| entry.group.clone());
        let tier = self.core.task(id).map(|task| task.tier());
        if let (Some(group), Some(tier)) = (group, tier) {
            self.workers.place(Job::Io { group, tier });
        }
    }

    /// Writes the weights of a task that just arrived, where they differ from its tier. `true`:
    /// what was read back before may be old.
    pub(super) fn align(&mut self, id: TaskId, has: Option<Tier>, now: Moment) -> bool {
        let Some(wanted) = self.core.task(id).map(|task| task.tier()) else { return false };
        if has != Some(wanted) {
            // Recorded by write_tier; the next cycle tries again.
            let _ = self.write_tier(id, wanted, now);
            return true;
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.written = Some((wanted, now.boot));
        }
        false
    }

    /// Reads a group's weights back for the snapshot.
    pub(super) fn read_back(&mut self, id: TaskId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Some(group) = entry.group.clone() else { return };
        match self.tree.read_back(&group) {
            Ok(view) => entry.kernel = view,
            Err(error) => {
                tracing::debug!(task = %id, %error, "the weights of task {id} cannot be read back: {error}")
            }
        }
    }

    /// Puts a foreign change right, or stops doing so.
    pub(super) fn repair(&mut self, id: TaskId, tier: Tier, drifts: &[Drift], now: Moment) {
        if self.entries.get(&id).is_none_or(|entry| entry.contested) || drifts.is_empty() {
            return;
        }
        self.heed_owner(id);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Some(group) = entry.group.clone() else { return };
        // What its owner wants may be what the tier beside it is.
        let fits = group.record.attachment == Attachment::InPlace
            && self.tree.drift(&group, tier, &self.plan).is_ok_and(|left| left.is_empty());
        let contested = !fits && entry.repaired(now.boot);
        let found: Vec<String> = drifts
            .iter()
            .map(|drift| format!("{} is {}, should be {}", drift.file, drift.found, drift.expected))
            .collect();
        let mut inputs = serde_json::Map::new();
        inputs.insert("cgroup".into(), group.record.path.clone().into());
        inputs.insert("found".into(), found.clone().into());
        inputs.insert("repairs".into(), entry.repairs.len().into());
        let found = found.join("; ");
        let (kind, reason) = if contested {
            let reason = format!(
                "{found}; repaired {} times within a minute, left alone from now on",
                super::entry::CONTEST_REPAIRS
            );
            (EventKind::Contested, reason)
        } else if fits {
            (EventKind::Drift, format!("{found}; its owner's word fits the tier and stays"))
        } else {
            let outcome = match self.tree.write_tier(&group, tier, &self.plan) {
                Ok(_) => {
                    entry.repaired_in_all += 1;
                    // Else systemd's next daemon-reload writes the foreign value again.
                    self.tell_unit(id, tier);
                    "repaired".to_owned()
                }
                Err(error) => format!("not repaired: {error}"),
            };
            (EventKind::Drift, format!("{found}; {outcome}"))
        };
        self.core.note(kind, Some(id), reason, inputs, now);
        self.changed.insert(id);
    }
}
