//! Readings ahead of the cycle, while a request waits for a slot ([`crate::core::ramp`]).

use super::Driver;
use super::reader::{Ahead, ReadRequest};
use crate::core::ramp::Ramp;
use crate::core::step::Input;
use crate::units::{BootTime, Bytes, Moment};

/// Where the readings stand.
#[derive(Debug, Default)]
pub(super) struct Ramping {
    core: Ramp,
    /// When the next is due.
    pub(super) due: Option<BootTime>,
}

impl Driver {
    /// Asks the reading thread for the node and the sizes of the tasks if they are due.
    pub(super) fn follow_ramp(&mut self, now: BootTime) {
        self.ramping.due = self.ramping.core.next(self.core.ramps_from(), now);
        if self.reading || self.ramping.due.is_none_or(|due| due > now) {
            return;
        }
        self.reading = true;
        self.workers.read(ReadRequest::Ahead {
            watch: std::mem::take(&mut self.sources_new).into_iter().collect(),
            forget: std::mem::take(&mut self.sources_gone),
        });
    }

    /// Takes such a reading.
    pub(super) fn read_ahead(&mut self, ahead: Ahead, now: Moment) {
        self.reading = false;
        let Ahead { at, node, sizes, cost } = ahead;
        if let Some(node) = self.ramping.core.read(at, node, cost) {
            let resident = Bytes::mean(sizes.into_iter());
            self.feed(Input::Ramp { node, resident }, now);
            self.replan(now);
        }
    }
}
