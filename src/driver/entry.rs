//! What the loop keeps about a task beside what decisions need: its processes, its cgroup,
//! its measurements.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::booked::{Booked, Unattached};
use super::watch::Key;
use crate::cgroup::{Attachment, Group, KernelView, Kin};
use crate::command::Reply;
use crate::core::model::{TaskId, Tier};
use crate::core::rate::{Interval, LONGEST_OPEN, RateMeter, TaskRates};
use crate::core::state::Task;
use crate::proto;
use crate::sample::TaskSample;
use crate::state::record::{FoundRecord, RecordPhase, ReservationRecord, TaskRecord};
use crate::systemd::unit::UnitRecord;
use crate::units::{BootTime, Pid, ProcessRef};

/// Repairs within [`CONTEST_WINDOW`] after which LRS stops fighting over a task.
pub const CONTEST_REPAIRS: usize = 3;

/// See [`CONTEST_REPAIRS`].
pub const CONTEST_WINDOW: Duration = Duration::from_secs(60);

/// A task as the loop knows it.
#[derive(Debug, Default)]
pub struct Entry {
    /// Main process; `None`: a damaged state file lost it.
    pub process: Option<ProcessRef>,
    /// Uid of the caller that admitted it.
    pub admitted_by: Option<u32>,
    /// How it was found, if nobody admitted it.
    pub found: Option<FoundRecord>,
    /// The finder waits for it to be in place.
    pub found_replies: Vec<Reply<TaskId>>,
    /// The group it was found in, until that is taken in place.
    pub found_in: Option<Box<Group>>,
    /// Whether that was with an admin's rights, its own or granted; else all the task's processes
    /// have to be that uid's when they are moved.
    pub as_admin: bool,
    /// Whether the main process has ended.
    pub main_exited: bool,
    /// Watched processes.
    pub watched: BTreeMap<Pid, Key>,
    /// Pins the main process until it is watched.
    pub pinned: Option<OwnedFd>,
    /// Its cgroup, once it is in place.
    pub group: Option<Arc<Group>>,
    /// The group in which its weights compete, as long as they are counted there.
    pub competes_in: Option<String>,
    /// The unit of systemd's whose cgroup that is.
    pub unit: Option<UnitRecord>,
    /// Tiers that systemd was told of and has not confirmed.
    pub telling: u32,
    /// systemd did not take the present tier.
    pub untold: bool,
    /// Where its main process was before, per hierarchy.
    pub origin: Vec<(String, String)>,
    /// How far its admission is.
    pub phase: Placement,
    /// It is from observe mode and being attached.
    pub booked: Option<Booked>,
    /// Why it is from observe mode and not attached.
    pub unattached: Option<Unattached>,
    /// Clients that wait for the admission.
    pub replies: Vec<Reply<proto::Task>>,
    /// Clients that wait for the release.
    pub release_replies: Vec<Reply<()>>,
    /// Whether its present cgroup is to be managed as it is.
    pub in_place: bool,
    /// The group of its unit in which its own is to be made.
    pub below: Option<String>,
    /// What it would have lost by leaving the unit it was started in.
    pub stays_because: Option<String>,
    /// The reservation its admission uses.
    pub used: Option<ReservationRecord>,
    /// Its time, split.
    pub meter: RateMeter,
    /// The newest reading.
    pub last: Option<(BootTime, TaskSample)>,
    /// The reading the meter's open interval began with.
    pub opened: Option<(BootTime, TaskSample)>,
    /// The coming reading ends that interval.
    pub due: bool,
    /// Counters at admission of a group that had a life before.
    pub baseline: Option<TaskSample>,
    /// CPU time since admission that other counters had, before it was attached.
    pub cpu_before: Duration,
    /// Over the last cycle.
    pub rates: TaskRates,
    /// What was read back.
    pub kernel: KernelView,
    /// The tier whose weights were written last, and when.
    pub written: Option<(Tier, BootTime)>,
    /// Its main process is being moved back; what is seen of it meanwhile does not count.
    pub moving_back: bool,
    /// When it was last put in place.
    pub placed_at: BootTime,
    /// When foreign changes were repaired.
    pub repairs: VecDeque<BootTime>,
    /// Foreign changes repaired since admission.
    pub repaired_in_all: u64,
    /// LRS stopped fighting a foreign writer.
    pub contested: bool,
    /// A damaged state file lost who it is.
    pub lost: bool,
}

/// How far an admission is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The worker puts its processes in place.
    #[default]
    Attaching,
    /// In its slot.
    Placed,
    /// The worker gives its processes back.
    Releasing,
}

impl Entry {
    /// Whose cgroup it is in.
    pub fn attachment(&self) -> Attachment {
        self.group.as_ref().map_or(Attachment::None, |group| group.record.attachment)
    }

    /// Which processes belong to its main one.
    pub fn kin(&self) -> Kin {
        self.found.as_ref().map_or_else(Kin::default, |found| found.kin)
    }

    /// CPU time and bytes since admission.
    pub fn since_admission(&self) -> TaskSample {
        let Some((_, now)) = self.last else { return TaskSample::default() };
        let counted = match self.baseline {
            None => now.cpu,
            Some(base) => now.cpu.zip(base.cpu).and_then(|(now, base)| now.checked_sub(base)),
        };
        TaskSample { cpu: counted.map(|cpu| cpu + self.cpu_before), ..now }
    }

    /// Notes a repair at `now`; answers whether it was one too many.
    pub fn repaired(&mut self, now: BootTime) -> bool {
        while self.repairs.front().is_some_and(|first| now.since(*first) > CONTEST_WINDOW) {
            self.repairs.pop_front();
        }
        self.repairs.push_back(now);
        self.contested = self.repairs.len() > CONTEST_REPAIRS;
        self.contested
    }

    /// Whether it was repaired so lately that the next repair may be the one too many; the few
    /// cycles between two looks at other tasks would hide a foreign writer's perseverance.
    pub fn repaired_lately(&self, now: BootTime) -> bool {
        !self.contested
            && self.repairs.back().is_some_and(|last| now.since(*last) <= CONTEST_WINDOW)
    }

    /// Begins to count with `sample`, or goes on with what an earlier daemon read.
    pub fn begin(&mut self, at: BootTime, sample: TaskSample) {
        self.last = Some((at, sample));
        self.opened = self.last;
    }

    /// Whether the coming reading, asked for at `now`, ends the meter's interval; it is
    /// remembered until [`Entry::advance`].
    pub fn ends_interval(&mut self, now: BootTime) -> bool {
        self.due = match (&self.opened, &self.last) {
            (Some((begun, before)), Some((_, last))) => {
                let used_cpu = before.cpu.is_none() || before.cpu != last.cpu;
                self.meter.is_due(now.since(*begun), used_cpu)
            }
            _ => true,
        };
        self.due
    }

    /// Takes the next reading. `cpus`: those the tasks may use; `spread`: those they may be
    /// spread over, quota aside.
    pub fn advance(&mut self, at: BootTime, sample: TaskSample, cpus: u32, spread: u32) {
        if let Some(look) = sample.look() {
            self.meter.saw(look);
        }
        if let Some((earlier, before)) = &self.last {
            self.rates = TaskRates::between((*earlier, before), (at, &sample), cpus);
        }
        if let Some(base) = &mut self.baseline
            && base.cpu.is_none()
        {
            // Its group counts none; the first reading of its processes stands for the baseline.
            base.cpu = sample.cpu;
        }
        // Resident memory is read more seldom than the rest; the last known value stands.
        let resident = sample.resident.or(self.last.and_then(|(_, before)| before.resident));
        self.last = Some((at, TaskSample { resident, ..sample }));
        if std::mem::take(&mut self.due) && !self.is_torn(at, &sample) {
            self.end_interval(at, &sample, spread);
        }
    }

    /// Takes the last reading, which ends the interval whatever it lacks.
    pub fn finish(&mut self, at: BootTime, sample: TaskSample, cpus: u32, spread: u32) {
        self.due = false;
        self.advance(at, sample, cpus, spread);
        self.end_interval(at, &sample, spread);
    }

    /// Whether a reading lacks what the interval began with: it failed, and the interval goes on to
    /// the next. Not for ever, for what is gone for good has to be done without.
    fn is_torn(&self, at: BootTime, sample: &TaskSample) -> bool {
        self.opened.is_some_and(|(begun, before)| {
            let lacks_cpu = before.cpu.is_some() && sample.cpu.is_none();
            let lacks_pressure = before.pressure.is_some() && sample.pressure.is_none();
            (lacks_cpu || lacks_pressure) && at.since(begun) < 2 * LONGEST_OPEN
        })
    }

    /// Where counters went backwards there is no interval, but the next one begins here.
    fn end_interval(&mut self, at: BootTime, sample: &TaskSample, spread: u32) {
        if let Some((begun, before)) = &self.opened
            && let Some(interval) = Interval::between((*begun, before), (at, sample), spread)
        {
            self.meter.advance(&interval);
        }
        self.opened = self.last;
    }

    /// As stored.
    pub fn record(&self, id: TaskId, task: &Task) -> TaskRecord {
        TaskRecord {
            id,
            phase: match self.phase {
                Placement::Attaching => RecordPhase::Attaching,
                Placement::Placed => RecordPhase::Placed,
                Placement::Releasing => RecordPhase::Releasing,
            },
            process: self.process,
            uid: task.uid,
            admitted_by: self.admitted_by,
            as_admin: self.as_admin,
            found: self.found.clone(),
            repaired: self.repaired_in_all,
            labels: task.labels.clone(),
            priority: task.priority,
            opportunistic: task.opportunistic,
            order: task.order,
            seat: task.seat,
            admitted_at: task.admitted_at.wall,
            admitted_boot: task.admitted_at.boot,
            promoted_at: task.promoted_at,
            group: self.group.as_ref().map(|group| group.record.clone()),
            booked: self.booked.as_ref().map(|booked| booked.group.record.clone()),
            unit: self.unit.clone(),
            stays_because: self.stays_because.clone(),
            origin: self.origin.clone(),
            meter: self.meter.clone(),
            measured: self.opened,
            baseline: self.baseline,
            cpu_before: self.cpu_before,
            used: self.used.clone(),
            lost: self.lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::TaskPressure;

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(seconds))
    }

    #[test]
    fn the_fourth_repair_within_a_minute_is_one_too_many() {
        let mut entry = Entry::default();
        assert!(!entry.repaired(at(0)));
        assert!(!entry.repaired(at(10)));
        assert!(!entry.repaired(at(20)));
        assert!(!entry.repaired(at(61)), "the first has left the window");
        assert!(entry.repaired(at(62)));
        assert!(entry.contested);
    }

    #[test]
    fn who_was_repaired_is_watched_until_the_window_is_over() {
        let mut entry = Entry::default();
        assert!(!entry.repaired_lately(at(0)));
        entry.repaired(at(10));
        assert!(entry.repaired_lately(at(70)));
        assert!(!entry.repaired_lately(at(71)));
        for second in 100..104 {
            entry.repaired(at(second));
        }
        assert!(!entry.repaired_lately(at(104)), "contested: nothing more is repaired");
    }

    #[test]
    fn a_failed_reading_does_not_end_an_interval() {
        let sample = |cpu: Option<u64>, pressure: Option<u64>| TaskSample {
            cpu: cpu.map(Duration::from_secs),
            pressure: pressure.map(|seconds| TaskPressure {
                cpu_some: Duration::from_secs(seconds),
                io_some: Duration::ZERO,
            }),
            ..TaskSample::default()
        };
        let mut entry = Entry::default();
        entry.begin(at(0), sample(Some(10), Some(0)));
        let mut read = |second, sample| {
            entry.due = true;
            entry.advance(at(second), sample, 2, 2);
            let begun = entry.opened.map(|(begun, _)| begun);
            (begun, entry.meter.cpu_seconds())
        };
        assert_eq!(read(3, sample(None, Some(0))), (Some(at(0)), 0.0));
        assert_eq!(read(6, sample(Some(14), None)), (Some(at(0)), 0.0));
        assert_eq!(read(9, sample(Some(16), Some(0))), (Some(at(9)), 6.0));
        // Another group took the name.
        assert_eq!(read(12, sample(Some(1), Some(0))), (Some(at(12)), 6.0));
        // Pressure is gone for good.
        let longest = 2 * LONGEST_OPEN.as_secs();
        assert_eq!(read(11 + longest, sample(Some(2), None)), (Some(at(12)), 6.0));
        assert_eq!(read(12 + longest, sample(Some(3), None)), (Some(at(12 + longest)), 8.0));
        assert_eq!(read(15 + longest, sample(Some(4), None)), (Some(at(15 + longest)), 9.0));
    }

    #[test]
    fn the_last_reading_ends_the_interval_whatever_it_lacks() {
        let sample = |seconds, pressure| TaskSample {
            cpu: Some(Duration::from_secs(seconds)),
            pressure,
            ..TaskSample::default()
        };
        let mut entry = Entry::default();
        entry.begin(at(0), sample(1, Some(TaskPressure::default())));
        entry.finish(at(5), sample(4, None), 2, 2);
        assert_eq!(entry.meter.cpu_seconds(), 3.0);
    }

    #[test]
    fn a_group_with_a_life_before_counts_from_its_admission() {
        let sample = |seconds| TaskSample {
            cpu: Some(Duration::from_secs(seconds)),
            ..TaskSample::default()
        };
        let mut entry = Entry { baseline: Some(sample(100)), ..Entry::default() };
        assert_eq!(entry.since_admission().cpu, None, "not read yet");
        entry.advance(at(1), sample(103), 2, 2);
        assert_eq!(entry.since_admission().cpu, Some(Duration::from_secs(3)));
    }
}
