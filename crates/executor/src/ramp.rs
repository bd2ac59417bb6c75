//! Readings ahead of the cycle, while a request waits for a slot ([`lrs_core::ramp`]).

use super::Executor;
use super::job::{CycleRequest, ReadRequest};
use super::message::Ahead;
use super::world::World;
use lrs_core::step::Input;
use lrs_core::units::{BootTime, Bytes};

impl<W: World> Executor<'_, W> {
    /// Asks the reading thread for the node and the sizes of the tasks if they are due.
    pub(super) fn follow_ramp(&mut self, now: BootTime) {
        let due = self.state.ramp.next(self.core.ramps_from(), now);
        if !self.state.reading && due.is_some_and(|due| due <= now) {
            self.read(None);
        }
    }

    /// Asks the reading thread for a cycle, or for what is read ahead of one.
    pub(super) fn read(&mut self, cycle: Option<CycleRequest>) {
        let watch = std::mem::take(&mut self.state.sources_new).into_iter().collect();
        let forget = std::mem::take(&mut self.state.sources_gone);
        self.state.reading = true;
        self.begin(ReadRequest { watch, forget, cycle });
    }

    /// Takes such a reading.
    pub(super) fn read_ahead(&mut self, ahead: Ahead) {
        self.state.reading = false;
        let Ahead { at, node, sizes, cost } = ahead;
        if let Some(node) = self.state.ramp.read(at, node, cost) {
            let resident = Bytes::mean(sizes.into_iter());
            self.push(Input::Ramp { node, resident });
        }
    }
}
