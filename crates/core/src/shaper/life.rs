//! The life of a task between its admission and its end: who decides what becomes of it.
//!
//! ```text
//!  Request ─► Attaching ─► Placed ─► Ended, Figures ─► gone
//!                 │          │ ▲
//!                 ▼          ▼ │
//!               gone      Releasing ─► gone
//! ```
//!
//! The durable steps are in docs/architecture.md, "The life of a task". An attach that fails leaves
//! nothing; a release that fails leaves the task as it was. What others
//! do to a task's place and weights is in `drift.rs`.
//!
//! A release stores the record as `releasing`, then the placing thread moves the processes to where
//! they came from (in place: writes back the values found), then `released`, then the record goes. A
//! daemon killed in between finishes it. An in-place task gets its weights back however it ends. Where
//! they came from may be gone: then they go to a scope of their own or above the root.
//!
//! Limits. A weight that could not be written is not in here: the executor finds it when it
//! compares, and the next comparison tries again.

use serde_json::{Map, json};

use super::{Shaper, insert_labels};
use crate::event::{COMMAND, EventKind};
use crate::exit::Exit;
use crate::jobs::End;
use crate::model::{Labels, Priority, Standing, TaskId};
use crate::restore::Due;
use crate::sample::TaskSample;
use crate::slots::Seat;
use crate::step::{FoundAgain, Job, Last, Ready, Record};
use crate::task::{
    Attaching, Attachment, Booked, GroupRecord, Halt, Hold, Kin, Life, Origin, Task,
};
use crate::units::{Moment, Share};

impl Shaper {
    /// What an admission needs is known. The promise it used is kept by its record from now on.
    pub(crate) fn prepared(&mut self, id: TaskId, ready: Ready) {
        let waiter = self.parking.task_mut(id);
        let task = waiter.or_else(|| self.tasks.get_mut(&id).map(Box::as_mut));
        let Some(task) = task else { return };
        let Life::Attaching(Attaching { used, recorded, .. }) = &mut task.life else { return };
        *recorded = recorded.saturating_add(1);
        if let Some(promise) = used {
            self.step.forget(Record::Reservation(promise.0));
        }
        let Ready { origin, group, baseline, unit } = ready;
        if let Some(origin) = origin {
            task.who.origin = origin;
        }
        task.group = group.or(task.group.take());
        task.counts.baseline = baseline.or(task.counts.baseline);
        task.who.unit = unit.or(task.who.unit.take());
        self.step.store(Record::Task(id));
        self.step.jobs.push(Job::Attach(id));
    }

    /// Its record could not be written; without one it is not attached.
    pub(crate) fn not_recorded(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(&id)
            && let Life::Attaching(Attaching { recorded, .. }) = &mut task.life
        {
            *recorded = recorded.saturating_sub(1);
        }
    }

    /// A task of observe mode is to be attached.
    pub(crate) fn attach_booked(&mut self, id: TaskId, origin: Origin, kin: Kin, followed: bool) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.is_booked()) else { return };
        let Some(group) = task.group.take() else { return };
        let booked = Booked { group, baseline: task.counts.baseline.take(), followed };
        let booked = Some(Box::new(booked));
        task.life = Life::Attaching(Attaching { booked, ..Attaching::default() });
        task.who.origin = origin;
        if let Some(found) = &mut task.who.found {
            found.kin = kin;
        }
        self.step.jobs.push(Job::PrepareBooked(id));
    }

    /// The processes of the task are in place. One that was found gets its seat now.
    pub(crate) fn in_place(
        &mut self,
        id: TaskId,
        group: GroupRecord,
        born: TaskSample,
        now: Moment,
    ) {
        if self.parked_in(id, &group) {
            return;
        }
        self.arrive(id, now);
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.is_attaching()) else { return };
        let Life::Attaching(Attaching { reason, booked, .. }) =
            std::mem::replace(&mut task.life, Life::Placed(Hold::Kept))
        else {
            return;
        };
        if let Some(booked) = &booked {
            task.counts.count_on(booked.baseline);
        }
        // Counting starts at admission, not at the birth of another owner's group.
        task.counts.begin(now.boot, task.counts.baseline.unwrap_or(born));
        self.step.store(Record::Task(id));
        self.step.jobs.push(Job::Watch(id));
        if let Some(booked) = booked {
            let mut inputs = Map::new();
            inputs.insert("cgroup".into(), json!(group.path));
            inputs.insert("in_place".into(), json!(group.attachment == Attachment::InPlace));
            task.group = Some(group);
            let reason = match booked.followed {
                true => {
                    "its last process went into this group, made after the task's admission, which \
                     holds nothing else"
                }
                false => "it was booked in observe mode, and this lrsd enforces",
            };
            return self.note(EventKind::Attached, Some(id), reason.to_owned(), inputs, now);
        }
        task.group = Some(group);
        self.admitted(id, reason, now);
    }

    fn admitted(&mut self, id: TaskId, reason: String, now: Moment) {
        let Some(task) = self.tasks.get(&id) else { return };
        let (tier, priority, standing) = (task.tier(), task.priority, task.standing());
        let (labels, found, uid) = (task.labels.clone(), task.who.found.clone(), task.uid);
        let process = task.who.process;
        self.totals.admitted += 1;
        let inputs = self.slot_inputs();
        self.record(now, EventKind::Admitted, Some(id.to_string()), |event| {
            event.to = Some(tier.to_string());
            event.reason = Some(reason);
            event.inputs = inputs;
            event.inputs.insert("priority".into(), json!(priority));
            event.inputs.insert("uid".into(), json!(uid));
            insert_labels(&mut event.inputs, &labels);
            if let Some(process) = process {
                event.inputs.insert("pid".into(), json!(process.pid.raw()));
            }
            if let Some(found) = found {
                event.inputs.insert("found_by".into(), json!(found.by.to_string()));
                event.inputs.insert("standing".into(), json!(standing.to_string()));
            }
        });
    }

    /// [`Input::Restored`](crate::step::Input::Restored). No task is stored here: its record knows
    /// which promise it used until that is forgotten.
    pub(crate) fn restored(&mut self, due: Due, now: Moment) {
        for id in due.unrecorded {
            let reason = "its admission was finished after a restart of lrsd".to_owned();
            self.admitted(id, reason, now);
        }
        for id in due.adopted {
            let reason = "its state file was lost or damaged; it goes on with what its cgroup and \
                          the history tell; its main process and its place in the order are lost";
            self.note(EventKind::Recovered, Some(id), reason.to_owned(), Map::new(), now);
        }
        self.thaw_found(now);
        // Before the record that remembered it goes, or forgets it.
        due.called_off.into_iter().for_each(|id| self.step.store(Record::Task(id)));
        due.given_back.into_iter().for_each(|id| self.step.store(Record::Reservation(id)));
        due.used.into_iter().for_each(|id| self.step.forget(Record::Reservation(id)));
    }

    /// The processes could not be put in place: the slot is free again, and a reservation that
    /// was used is back with what is left of its time. What was found, and not asked for, is
    /// no refused request, however often its finder tries. A task of observe mode is one again.
    pub(crate) fn attach_failed(&mut self, id: TaskId, reason: &str, now: Moment) {
        if self.not_parked(id) {
            return;
        }
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if !task.is_attaching() {
            return;
        }
        if let Some(booked) = task.booked() {
            // It left for a group in which it cannot go on.
            let followed = booked.followed.then(|| booked.group.path.clone());
            task.unattach();
            task.left_for = followed;
            self.step.store(Record::Task(id));
            self.step.jobs.push(Job::Refuse { task: id, process: task.who.process });
            return;
        }
        let Some(mut task) = self.remove_task(id) else { return };
        self.step.jobs.push(Job::Refuse { task: id, process: task.who.process });
        if let Some(key) = task.job_key() {
            self.jobs.left(key);
        }
        let (seat, owes, parked) = (task.seat, task.owes_unit(), task.is_from_parking());
        let uid = task.uid;
        if let Life::Attaching(Attaching { used, .. }) = &mut task.life
            && let Some(promise) = used.take()
        {
            let (rid, mut reservation) = *promise;
            reservation.tier = task.seat.tier();
            self.keep_reservation(rid, reservation);
            self.step.store(Record::Reservation(rid));
        }
        if parked {
            self.park_failed(task);
        } else if owes {
            // Its record stays until systemd has back what it says, and has no promise any more.
            self.vacated.insert(id, task);
            self.step.store(Record::Task(id));
        } else {
            self.step.forget(Record::Task(id));
        }
        if !matches!(seat, Seat::Arriving | Seat::Slotless) {
            self.count_refusal(reason, uid, now);
        }
        self.rearrange(now);
    }

    /// The finder says of a known task what it says now. A finder that began anew, or lost its
    /// scheduler, knows less than was known: that takes nothing back.
    pub(crate) fn found_again(&mut self, id: TaskId, found: FoundAgain, now: Moment) {
        let FoundAgain { by, labels, priority, standing, presumed_slotless } = found;
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some(known) = &mut task.who.found else { return };
        known.by = by;
        let presumed =
            (presumed_slotless && known.standing.is_none()).then_some(Standing::Slotless);
        let priority: Option<Priority> = priority.filter(|new| known.priority != Some(*new));
        let standing = standing.or(presumed).filter(|new| known.standing != Some(*new));
        known.priority = priority.or(known.priority);
        known.standing = standing.or(known.standing);
        if priority.is_some() || standing.is_some() {
            self.step.store(Record::Task(id));
        }
        self.add_labels(id, labels);
        if let Some(priority) = priority {
            self.set_priority(id, priority, now);
        }
        if let Some(standing) = standing {
            self.set_standing(id, standing, now);
        }
    }

    /// The owner of a group in place wrote into it: that is what it gets back.
    pub(crate) fn owner_wrote(&mut self, id: TaskId, group: GroupRecord) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.group = Some(group);
        self.step.store(Record::Task(id));
    }

    /// Tasks without a process leave their slots; answers which of `ids` were tasks. Their
    /// figures follow: reading them takes longer than the next task should wait.
    pub(crate) fn vacate(&mut self, ids: &[TaskId], now: Moment) -> Vec<TaskId> {
        let mut vacated = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(task) = self.remove_task(*id) {
                self.opening.ended += u32::from(task.seat != Seat::Slotless);
                self.vacated.insert(*id, task);
                vacated.push(*id);
            }
        }
        self.rearrange(now);
        vacated
    }

    /// How the main process ended, for the history and the counts of its job.
    pub(crate) fn exited(
        &mut self,
        id: TaskId,
        uid: Option<u32>,
        labels: &Labels,
        exit: Exit,
        now: Moment,
    ) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.exit = Some(exit);
            self.step.store(Record::Task(id));
        } else if let Some(task) = self.vacated.get_mut(&id) {
            task.exit = Some(exit);
        }
        if let Some(key) = labels.job_key(uid).filter(|_| exit.failed()) {
            self.jobs.failed(key);
        }
        self.record(now, EventKind::Exit, Some(id.to_string()), |event| {
            event.reason = Some(format!("its main process {exit}"));
            exit.note(&mut event.inputs);
            event.inputs.insert("uid".into(), json!(uid));
            insert_labels(&mut event.inputs, labels);
        });
    }

    /// Ends of tasks that were vacated; their events come before what followed from them.
    pub(crate) fn completed(&mut self, endings: Vec<(TaskId, Last)>, now: Moment) {
        let followed = std::mem::take(&mut self.step.events);
        let mut of_unknown_job = false;
        for (id, last) in endings {
            let Some(mut task) = self.vacated.remove(&id) else { continue };
            // The last reading has neither of a group that had a life before.
            let (mut read, mut written) = task.counts.bytes_since_admission();
            let (mut peak, mut oom_kills) = (None, None);
            if let Last::Read(sample) = last {
                peak = sample.memory_peak;
                oom_kills = task.counts.oom_kills(&sample);
                if task.counts.baseline.is_none() {
                    (read, written) = (sample.read.or(read), sample.written.or(written));
                }
                self.usage.add(id, task.is_below_root(), task.counts.grown_to(&sample));
                task.counts.finish(now.boot, sample, self.cpus);
            }
            let away = last == Last::Away;
            let at = (!away).then_some(now.wall);
            let rate = task.counts.meter.computing_rate().filter(|_| !away);
            let elapsed = now.boot.since(task.admitted_at.boot).as_secs_f64();
            let elapsed = (!task.lost && !away).then_some(elapsed);
            self.totals.completed += 1;
            if !away && task.seat != Seat::Slotless {
                self.ahead.ended += 1;
            }
            let mut inputs = Map::new();
            inputs.insert("uid".into(), json!(task.uid));
            let cpu = task.counts.since_admission().cpu;
            inputs.insert("cpu_seconds".into(), json!(cpu.map(|cpu| cpu.as_secs_f64())));
            inputs.insert("elapsed_seconds".into(), json!(elapsed));
            inputs.insert("read_bytes".into(), json!(read));
            inputs.insert("write_bytes".into(), json!(written));
            inputs.insert("peak_memory_bytes".into(), json!(peak.or(task.counts.peak_resident)));
            inputs.insert("peak_memory_sampled".into(), json!(peak.is_none()));
            inputs.insert("oom_kills".into(), json!(oom_kills));
            if let Some(exit) = task.exit {
                exit.note(&mut inputs);
            }
            inputs.insert("computing_rate".into(), json!(rate));
            inputs.insert("ended_at".into(), json!(at));
            if !away {
                let raw = task.counts.meter.computing_rate_raw().map(Share::value);
                inputs.insert("computing_rate_raw".into(), json!(raw));
                let spent = task.counts.meter.spent();
                inputs.insert("blocked_seconds".into(), json!(spent.map(|spent| spent.blocked)));
                inputs.insert("disk_wait_seconds".into(), json!(spent.map(|spent| spent.disk)));
                // Not the peak of the group, which has the file pages that it read.
                inputs.insert("resident_bytes".into(), json!(task.counts.peak_resident));
            }
            if let Some(key) = task.job_key() {
                of_unknown_job |= self.jobs.mean_rate(&key).is_none();
                self.jobs.ended(key, End::noted(&inputs, now.wall));
            }
            let kind = if task.left_for.is_some() { EventKind::Left } else { EventKind::Completed };
            self.totals.left += u64::from(task.left_for.is_some());
            self.record(now, kind, Some(id.to_string()), |event| {
                event.from = Some(task.tier().to_string());
                event.inputs = inputs;
                insert_labels(&mut event.inputs, &task.labels);
                if let Some(command) = &task.labels.command {
                    event.inputs.insert(COMMAND.into(), json!(command));
                }
                if away {
                    event.reason = Some("ended while lrsd was away".into());
                }
                if let Some(killed) = oom_kills.filter(|killed| *killed > 0) {
                    event.reason = Some(format!(
                        "the kernel killed {killed} of its processes for want of memory"
                    ));
                }
                if let Some(group) = &task.left_for {
                    event.reason = Some(format!(
                        "its last process went into {group}, made after the task's admission, and \
                         is left there"
                    ));
                }
            });
            self.step.jobs.push(Job::Remove { task, leave_alone: false });
        }
        self.step.events.extend(followed);
        // Its job may be known now, or may have another sample.
        if of_unknown_job && self.waiting() > 0 {
            self.rearrange(now);
        }
    }

    /// The processes of a task are to be given back.
    pub(crate) fn release(&mut self, id: TaskId, now: Moment) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Life::Placed(hold) = task.life else { return };
        if task.group.is_none() {
            return self.released(id, now);
        }
        task.life = Life::Releasing(hold);
        // A daemon killed from here on finishes the release.
        self.step.store(Record::Task(id));
        self.step.jobs.push(Job::Release(id));
    }

    /// They could not be: what was undone half has its tier's weights again.
    pub(crate) fn release_failed(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Life::Releasing(hold) = task.life else { return };
        task.life = Life::Placed(hold);
        self.step.store(Record::Task(id));
        if let Some(level) = self.level(id) {
            self.step.set_level(id, level);
        }
    }

    /// A task was given back; its processes go on elsewhere. It may have left its slot before.
    pub(crate) fn released(&mut self, id: TaskId, now: Moment) {
        let task = self.remove_task(id).or_else(|| self.vacated.remove(&id));
        if let Some(mut task) = task {
            self.leaves_halted(&task, now);
            // Its group and the word of systemd went with the release.
            (task.group, task.who.unit) = (None, None);
            self.finish_release(task, now);
        }
    }

    /// A task of LRS's own that others froze or stopped was not moved.
    pub(super) fn leaves_halted(&mut self, task: &Task, now: Moment) {
        let (Some(halt), Some(group)) = (task.halted, &task.group) else { return };
        if group.attachment != Attachment::Own {
            return;
        }
        let word = match halt {
            Halt::Frozen => "frozen",
            Halt::Stopped => "stopped",
        };
        let mut inputs = Map::new();
        inputs.insert("cgroup".into(), json!(group.path));
        let reason = format!(
            "it is {word} by others: its processes stay in {}, with neutral weights",
            group.path
        );
        self.note(EventKind::Drift, Some(task.id), reason, inputs, now);
    }

    /// The end of a release: the history has it, and what the task has of others is given back.
    pub(super) fn finish_release(&mut self, task: Box<Task>, now: Moment) {
        if let Some(key) = task.job_key() {
            self.jobs.left(key);
        }
        self.totals.released += 1;
        self.record(now, EventKind::Released, Some(task.id.to_string()), |event| {
            event.from = Some(task.tier().to_string());
            insert_labels(&mut event.inputs, &task.labels);
        });
        let leave_alone = task.who.found.is_some() && !task.main_exited;
        self.step.jobs.push(Job::Remove { task, leave_alone });
        self.rearrange(now);
    }
}

#[cfg(test)]
mod tests;
