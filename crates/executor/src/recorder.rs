//! Records what the core decides, for a client that asked for it: each input and its step as they are,
//! into a queue that the loop never waits for.
//!
//! The queue is bounded by what is in it, about [`ROOM`] KiB by [`Decided::weight`]: where whoever writes it out is
//! behind, the recording ends with a sentence rather than with a gap, since nothing can be played
//! beyond one. The state at its beginning comes beside that; to copy it takes longer the more tasks there are.
//! While no client records a step costs one comparison.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use lrs_core::recording::{Decided, Entry};
use lrs_core::shaper::Shaper;
use lrs_core::step::{Input, Step};
use lrs_core::units::Moment;

/// KiB that may wait to be written, as the weights estimate them.
const ROOM: u32 = 16 << 10;

/// An entry, and the room that it takes until it is dropped.
pub type Recorded = (Entry, Option<OwnedSemaphorePermit>);

/// The loop's end of a recording.
#[derive(Debug)]
pub struct Recorder {
    entries: UnboundedSender<Recorded>,
    room: Arc<Semaphore>,
}

impl Recorder {
    /// With the end that is read.
    pub fn new() -> (Recorder, UnboundedReceiver<Recorded>) {
        let (entries, written) = unbounded_channel();
        (Recorder { entries, room: Arc::new(Semaphore::new(ROOM as usize)) }, written)
    }

    /// Whether a client still reads it.
    pub(super) fn is_read(&self) -> bool {
        !self.entries.is_closed()
    }

    /// What the first step is going to follow from.
    pub(super) fn begin(&self, core: &Shaper, now: Moment) {
        self.send(Entry::Core(Box::new(core.clone()), now), None);
    }

    /// The next step; `false`: the recording is over.
    pub(super) fn step(&self, at: Moment, input: Input, step: &Step) -> bool {
        let decided = Decided { at, input, step: step.clone() };
        let weight = u32::try_from(decided.weight()).unwrap_or(u32::MAX);
        match Arc::clone(&self.room).try_acquire_many_owned(weight) {
            Ok(room) => self.send(Entry::Decided(Box::new(decided)), Some(room)),
            Err(_) => {
                let why = "the client that recorded was too slow; what came next is not in it";
                self.send(Entry::End(why.to_owned()), None);
                false
            }
        }
    }

    fn send(&self, entry: Entry, room: Option<OwnedSemaphorePermit>) -> bool {
        self.entries.send((entry, room)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lrs_core::state::{Policy, Restored};

    #[test]
    fn a_reader_that_is_behind_ends_the_recording_and_one_that_is_gone_too() {
        let core = Shaper::new(Policy::simulated(), 1, Restored::default());
        let (recorder, mut written) = Recorder::new();
        recorder.begin(&core, Moment::default());
        let step = || recorder.step(Moment::default(), Input::Tick, &Step::default());
        for _ in 0..ROOM {
            assert!(step());
        }
        assert!(written.try_recv().is_ok(), "the core takes no room");
        drop(written.try_recv().expect("the first step"));
        assert!(step(), "what was read makes room");
        assert!(!step(), "it is over");
        let mut last = None;
        while let Ok((entry, _)) = written.try_recv() {
            last = Some(entry);
        }
        assert!(matches!(last, Some(Entry::End(why)) if why.contains("too slow")));
        assert!(recorder.is_read());
        drop(written);
        assert!(!recorder.is_read() && !step());
    }
}
