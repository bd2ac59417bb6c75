//! What is measured of one task: its readings, and the meter that splits its time.
//!
//! A reading is taken every cycle; an interval of the meter may span several. The counters of
//! another owner's group count from before the task: the baseline is what they read at its admission.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cpus::UsableCpus;
use super::guard::interference;
use super::rate::{Interval, LONGEST_OPEN, RateMeter, TaskRates};
use super::sample::TaskSample;
use super::{lane, loan, neighbours};
use crate::units::{BootTime, Bytes};

/// The first reading of memory tells how fast it grows, if so much time has passed since the admission.
const STARTS: Duration = Duration::from_secs(1);

/// The measurements of a task. Only what outlives a daemon is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Its time, split.
    pub meter: RateMeter,
    /// The reading the meter's open interval began with.
    #[serde(rename = "measured")]
    pub opened: Option<(BootTime, TaskSample)>,
    /// The newest reading.
    #[serde(skip)]
    pub last: Option<(BootTime, TaskSample)>,
    /// Counters at admission of a group that had a life before.
    pub baseline: Option<TaskSample>,
    /// CPU time since admission that other counters had, before it was attached.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub cpu_before: Duration,
    /// The most resident memory that a reading found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_resident: Option<Bytes>,
    /// Bytes a second by which its resident memory grew between its last two readings; up to the first since
    /// its admission. `None`: not known.
    #[serde(skip)]
    pub growth: Option<f64>,
    /// When its resident memory was read last, which is not with every reading.
    #[serde(skip)]
    pub resident_at: Option<BootTime>,
    /// Over the last cycle.
    #[serde(skip)]
    pub rates: TaskRates,
    /// CPU time per voluntary switch over the meter's last interval; `None`: not known.
    #[serde(skip)]
    pub burst: Option<Duration>,
    /// CPUs it used and waited for over the last cycle; `None`: not known.
    #[serde(skip)]
    pub demand: Option<f64>,
    /// Whether it hardly wanted a CPU or a disk in the last cycle; `None`: not known.
    #[serde(skip)]
    pub idle: Option<bool>,
    /// Part of the last cycle that it waited for CPUs and disks; `None`: not known.
    #[serde(skip)]
    pub lost: Option<f64>,
}

impl Counts {
    /// CPU time and bytes since admission.
    pub fn since_admission(&self) -> TaskSample {
        let Some((_, now)) = self.last else { return TaskSample::default() };
        let counted = match self.baseline {
            None => now.cpu,
            Some(base) => now.cpu.zip(base.cpu).and_then(|(now, base)| now.checked_sub(base)),
        };
        TaskSample { cpu: counted.map(|cpu| cpu + self.cpu_before), ..now }
    }

    /// Bytes read from and written to disks since admission; `None`: not read yet, or not read at the
    /// admission of a group that was there before.
    pub fn bytes_since_admission(&self) -> (Option<Bytes>, Option<Bytes>) {
        match (&self.last, &self.baseline) {
            (Some((_, now)), None) => (now.read, now.written),
            _ => (None, None),
        }
    }

    /// CPU time by which its counter has grown to `sample` since the last reading: nothing where one of
    /// the two is not known, or another group took the name.
    pub fn grown_to(&self, sample: &TaskSample) -> Duration {
        let before = self.last.and_then(|(_, last)| last.cpu);
        let grown = before.zip(sample.cpu).and_then(|(before, now)| now.checked_sub(before));
        grown.unwrap_or_default()
    }

    /// How many processes of the task the kernel killed for want of memory, by a reading at its end.
    /// `None`: nothing counts that, or it was not read at the admission of a group with a life before.
    pub fn oom_kills(&self, last: &TaskSample) -> Option<u64> {
        let before = self.baseline.map_or(Some(0), |base| base.oom_kills)?;
        last.oom_kills?.checked_sub(before)
    }

    /// Begins to count with `sample`, or goes on with what an earlier daemon read.
    pub fn begin(&mut self, at: BootTime, sample: TaskSample) {
        self.last = Some((at, sample));
        self.opened = self.last;
        (self.growth, self.resident_at) = (None, None);
    }

    /// Other counters are read from now on; what the ones before have counted is kept.
    /// `baseline`: the one of those.
    pub fn count_on(&mut self, baseline: Option<TaskSample>) {
        let new = std::mem::replace(&mut self.baseline, baseline);
        self.cpu_before = self.since_admission().cpu.unwrap_or(self.cpu_before);
        self.baseline = new;
    }

    /// Whether the reading asked for at `now` ends the meter's interval.
    pub fn is_due(&self, now: BootTime) -> bool {
        match (&self.opened, &self.last) {
            (Some((begun, before)), Some((_, last))) => {
                let used_cpu = before.cpu.is_none() || before.cpu != last.cpu;
                self.meter.is_due(now.since(*begun), used_cpu)
            }
            _ => true,
        }
    }

    /// Takes the next reading. `due`: it was to end the interval. `cpus`: those the tasks may use.
    /// Answers whether it gave the baseline, without which the next daemon would count from its own
    /// first reading on.
    pub fn advance(
        &mut self,
        at: BootTime,
        sample: TaskSample,
        due: bool,
        cpus: UsableCpus,
    ) -> bool {
        let spread = cpus.spread();
        if let Some(look) = sample.look() {
            self.meter.saw(look);
        }
        if let Some((earlier, before)) = &self.last {
            self.rates = TaskRates::between((*earlier, before), (at, &sample), cpus.total());
            let cycle = Interval::between((*earlier, before), (at, &sample), spread);
            self.demand = cycle.as_ref().and_then(neighbours::demand);
            self.idle = cycle.as_ref().and_then(loan::is_idle);
            self.lost = cycle.as_ref().and_then(interference::lost);
        }
        self.grow(at, sample.resident);
        // Its group counts none; the first reading of its processes stands for the baseline.
        let first =
            self.baseline.as_mut().filter(|base| base.cpu.is_none() && sample.cpu.is_some());
        let is_baseline = first.map(|base| base.cpu = sample.cpu).is_some();
        // Resident memory is read more seldom than the rest; the last known value stands.
        let resident = sample.resident.or(self.last.and_then(|(_, before)| before.resident));
        self.peak_resident = self.peak_resident.max(resident);
        self.last = Some((at, TaskSample { resident, ..sample }));
        if due && !self.is_torn(at, &sample) {
            self.end_interval(at, &sample, spread);
        }
        is_baseline
    }

    fn grow(&mut self, at: BootTime, resident: Option<Bytes>) {
        let (Some(resident), Some((earlier, last))) = (resident, self.last) else { return };
        let elapsed = at.since(self.resident_at.unwrap_or(earlier));
        // What a program takes as it starts says nothing of the time after.
        let least = if last.resident.is_some() { Duration::ZERO } else { STARTS };
        self.growth = (!elapsed.is_zero() && elapsed >= least).then(|| {
            let grown = resident.0.saturating_sub(last.resident.unwrap_or_default().0);
            grown as f64 / elapsed.as_secs_f64()
        });
        self.resident_at = Some(at);
    }

    /// Takes the last reading, which ends the interval whatever it lacks.
    pub fn finish(&mut self, at: BootTime, sample: TaskSample, cpus: UsableCpus) {
        // A group that counts no CPU time would unsay what was read of its processes.
        if sample.cpu.is_none() && self.last.is_some_and(|(_, last)| last.cpu.is_some()) {
            return;
        }
        self.advance(at, sample, false, cpus);
        self.end_interval(at, &sample, cpus.spread());
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
            self.burst = lane::burst(&interval);
            self.meter.advance(&interval);
        }
        self.opened = self.last;
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
    fn a_failed_reading_does_not_end_an_interval() {
        let sample = |cpu: Option<u64>, pressure: Option<u64>| TaskSample {
            cpu: cpu.map(Duration::from_secs),
            pressure: pressure.map(|seconds| TaskPressure {
                cpu_some: Duration::from_secs(seconds),
                io_some: Duration::ZERO,
            }),
            ..TaskSample::default()
        };
        let mut counts = Counts::default();
        counts.begin(at(0), sample(Some(10), Some(0)));
        let mut read = |second, sample| {
            counts.advance(at(second), sample, true, 2.into());
            let begun = counts.opened.map(|(begun, _)| begun);
            (begun, counts.meter.cpu_seconds())
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
        let mut counts = Counts::default();
        counts.begin(at(0), sample(1, Some(TaskPressure::default())));
        counts.finish(at(5), sample(4, None), 2.into());
        assert_eq!(counts.meter.cpu_seconds(), 3.0);
    }

    #[test]
    fn a_group_with_a_life_before_counts_from_its_admission() {
        let sample = |seconds| TaskSample {
            cpu: Some(Duration::from_secs(seconds)),
            ..TaskSample::default()
        };
        let mut counts = Counts { baseline: Some(sample(100)), ..Counts::default() };
        assert_eq!(counts.since_admission().cpu, None, "not read yet");
        assert!(!counts.advance(at(1), sample(103), false, 2.into()));
        assert_eq!(counts.since_admission().cpu, Some(Duration::from_secs(3)));

        // A group that counts none: its processes do, from the first reading of them on.
        let unread = Some(TaskSample::default());
        let mut counts = Counts { baseline: unread, ..Counts::default() };
        assert!(counts.advance(at(1), sample(103), false, 2.into()), "to be stored");
        assert!(!counts.advance(at(2), sample(104), false, 2.into()));
        assert_eq!(counts.since_admission().cpu, Some(Duration::from_secs(1)));
        let stored = serde_json::to_string(&counts).unwrap();
        let mut next: Counts = serde_json::from_str(&stored).unwrap();
        next.advance(at(9), sample(110), false, 2.into());
        assert_eq!(next.since_admission().cpu, Some(Duration::from_secs(7)));
    }
}
