//! Readings ahead of the cycle, while a request waits for a slot ([`crate::core::ramp`]).

use std::time::Duration;

use super::Driver;
use super::reader::ReadRequest;
use crate::clock;
use crate::core::ramp::Ramp;
use crate::core::step::Input;
use crate::sample::Sample;
use crate::units::{BootTime, Bytes, Moment};

/// Where the readings stand.
#[derive(Debug, Default)]
pub(super) struct Ramping {
    core: Ramp,
    /// When the next is due.
    pub(super) due: Option<BootTime>,
    /// CPU time of this process when the one under way was asked for.
    asked: Option<Duration>,
}

impl Driver {
    /// Asks the reading thread for the node and the sizes of the tasks if they are due.
    pub(super) fn follow_ramp(&mut self, now: BootTime) {
        let may = self.core.may_ramp();
        self.ramping.due = self.ramping.core.next(may, now);
        if self.reading || self.ramping.due.is_none_or(|due| due > now) {
            return;
        }
        self.ramping.asked = Some(clock::cpu_time());
        self.reading = true;
        self.workers.read(ReadRequest::Ahead {
            watch: std::mem::take(&mut self.sources_new).into_iter().collect(),
            forget: std::mem::take(&mut self.sources_gone),
        });
    }

    /// Takes such a reading.
    pub(super) fn read_ahead(&mut self, sample: Sample, now: Moment) {
        self.reading = false;
        let sizes = sample.tasks.iter().filter_map(|(_, task)| task.resident);
        let resident = Bytes::mean(sizes);
        let saturation = self.config.slots.cpu_saturation;
        // Nobody may be waiting any more; then it is compared with nothing, and so is the next.
        if let Some(node) = self.ramping.core.read(sample.at, sample.node, saturation) {
            self.feed(Input::Ramp { node, resident }, now);
            self.replan(now);
        }
        if let Some(asked) = self.ramping.asked.take() {
            self.ramping.core.took(clock::cpu_time().saturating_sub(asked));
        }
    }
}
