//! Readings ahead of the cycle, while a request waits for a slot ([`crate::core::ramp`]).

use super::Driver;
use super::reader::{Ahead, CycleRequest, ReadRequest};
use crate::core::step::Input;
use crate::units::{BootTime, Bytes, Moment};

impl Driver {
    /// Asks the reading thread for the node and the sizes of the tasks if they are due.
    pub(super) fn follow_ramp(&mut self, now: BootTime) {
        let due = self.ramp.next(self.core.ramps_from(), now);
        if !self.reading && due.is_some_and(|due| due <= now) {
            self.read(None);
        }
    }

    /// Asks the reading thread for a cycle, or for what is read ahead of one.
    pub(super) fn read(&mut self, cycle: Option<CycleRequest>) {
        let watch = std::mem::take(&mut self.sources_new).into_iter().collect();
        let forget = std::mem::take(&mut self.sources_gone);
        self.reading = true;
        self.workers.read(ReadRequest { watch, forget, cycle });
    }

    /// Takes such a reading.
    pub(super) fn read_ahead(&mut self, ahead: Ahead, now: Moment) {
        self.reading = false;
        let Ahead { at, node, sizes, cost } = ahead;
        if let Some(node) = self.ramp.read(at, node, cost) {
            let resident = Bytes::mean(sizes.into_iter());
            self.feed(Input::Ramp { node, resident }, now);
            self.replan(now);
        }
    }
}
