//! Readings ahead of the cycle, while a request waits for a slot ([`crate::core::ramp`]).

use std::time::Duration;

use super::Driver;
use super::reader::{Ahead, ReadRequest};
use crate::clock;
use crate::core::ramp::Ramp;
use crate::core::step::Input;
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

impl Ramping {
    /// What the last one said is decided and published; without effect if none was asked for.
    pub(super) fn took(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.core.took(clock::cpu_time().saturating_sub(asked));
        }
    }
}

impl Driver {
    /// Asks the reading thread for the node and the sizes of the tasks if they are due.
    pub(super) fn follow_ramp(&mut self, now: BootTime) {
        self.ramping.due = self.ramping.core.next(self.core.ramps_from(), now);
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
    pub(super) fn read_ahead(&mut self, ahead: Ahead, now: Moment) {
        self.reading = false;
        let Ahead { at, node, sizes } = ahead;
        if let Some(node) = self.ramping.core.read(at, node) {
            let resident = Bytes::mean(sizes.into_iter());
            self.feed(Input::Ramp { node, resident }, now);
            self.replan(now);
        }
    }
}
