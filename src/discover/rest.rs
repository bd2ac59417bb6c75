//! What may outlive the thread `lrs-find`: `lrs-yarn`, which takes back what YARN was offered.
//!
//! It is told to stop by whoever stops `lrs-find`, or loses it. While `lrs-find` is there it waits
//! for that itself; once it panicked or hangs nobody is left who does, so its keeper holds this.
//! Why `lrs-yarn` could not take the offer back comes this way too ([`Alive::left`]): what it tells
//! `lrs-find` reaches nobody then.

use std::sync::mpsc;
use std::time::Duration;

use crate::clock;
use crate::units::BootTime;
use crate::yarn::rm::give_back::{Left, Witness};

/// Held by each thread that is waited for, until it has ended.
#[derive(Clone, Debug)]
pub struct Alive(mpsc::Sender<String>);

/// The other end of all clones of an [`Alive`].
#[derive(Debug)]
pub struct Rest {
    ended: mpsc::Receiver<String>,
    within: Duration,
    /// `None`: nothing is offered to anybody.
    witness: Option<Witness>,
    /// The last that was said of an offer that was not taken back.
    left: Option<String>,
}

impl Alive {
    /// Why what was offered was not taken back.
    pub(crate) fn left(&self, why: &str) {
        // Nobody listens any more: whoever started the thread ended in order, which heard of this
        // itself, or the time to stop was up.
        let _ = self.0.send(why.to_owned());
    }
}

impl Rest {
    /// Begins with one thread. `within`: how long a stop waits for what is left.
    pub(crate) fn begin(within: Duration, witness: Option<Witness>) -> (Alive, Rest) {
        let (alive, ended) = mpsc::channel();
        (Alive(alive), Rest { ended, within, witness, left: None })
    }

    /// Whether all have ended.
    pub(super) fn is_over(&mut self) -> bool {
        loop {
            match self.ended.try_recv() {
                Ok(why) => self.left = Some(why),
                Err(mpsc::TryRecvError::Empty) => return false,
                Err(mpsc::TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// What was not taken back, as far as that was said by the last look whether this is over.
    pub(super) fn left(&self) -> Option<Left> {
        self.witness.as_ref()?.check(self.left.as_deref()?).err()
    }

    /// How long a stop waits for it.
    pub(super) fn within(&self) -> Duration {
        self.within
    }

    /// Waits for the end of all, not beyond `deadline`.
    ///
    /// # Errors
    /// What was offered may still stand.
    pub(crate) fn wait(mut self, deadline: BootTime) -> Result<(), Left> {
        let ended = loop {
            match self.ended.recv_timeout(deadline.since(clock::boot_time())) {
                Ok(why) => self.left = Some(why),
                Err(mpsc::RecvTimeoutError::Timeout) => break false,
                Err(mpsc::RecvTimeoutError::Disconnected) => break true,
            }
        };
        let Some(witness) = self.witness else { return Ok(()) };
        match self.left {
            Some(why) => witness.check(&why),
            None if !ended => witness.check_what_hangs(self.within),
            None => witness.check("the thread that talks to YARN ended without taking it back"),
        }
    }
}
