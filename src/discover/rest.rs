//! What may outlive the thread `lrs-find`: `lrs-yarn`, which takes back what YARN was offered.
//!
//! It is told to stop by whoever stops `lrs-find`, or loses it. While `lrs-find` is there it waits
//! for that itself; once it panicked or hangs nobody is left who does, so its keeper holds this.
//!
//! Limit: what is said of an offer that stands is what the ledger has. Why `lrs-yarn` could not
//! take it back is a line of its own in the log.

use std::convert::Infallible;
use std::sync::mpsc;
use std::time::Duration;

use crate::clock;
use crate::units::BootTime;
use crate::yarn::rm::give_back::{Left, Witness};

/// Held by each thread that is waited for, until it has ended.
#[derive(Clone, Debug)]
pub struct Alive(#[expect(dead_code, reason = "its drop is what tells")] mpsc::Sender<Infallible>);

/// The other end of all clones of an [`Alive`].
#[derive(Debug)]
pub struct Rest {
    ended: mpsc::Receiver<Infallible>,
    within: Duration,
    /// `None`: nothing is offered to anybody.
    witness: Option<Witness>,
}

impl Rest {
    /// Begins with one thread. `within`: how long a stop waits for what is left.
    pub(crate) fn begin(within: Duration, witness: Option<Witness>) -> (Alive, Rest) {
        let (alive, ended) = mpsc::channel();
        (Alive(alive), Rest { ended, within, witness })
    }

    /// Whether all have ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended.try_recv() == Err(mpsc::TryRecvError::Disconnected)
    }

    /// How long a stop waits for it.
    pub(super) fn within(&self) -> Duration {
        self.within
    }

    /// Waits for the end of all, not beyond `deadline`.
    ///
    /// # Errors
    /// What was offered may still stand.
    pub(super) fn wait(self, deadline: BootTime) -> Result<(), Left> {
        let ended = self.ended.recv_timeout(deadline.since(clock::boot_time()));
        let Some(witness) = self.witness else { return Ok(()) };
        if ended == Err(mpsc::RecvTimeoutError::Timeout) {
            return witness.check_what_hangs(self.within);
        }
        witness.check("lrs-find was lost, and lrs-yarn ended without taking it back")
    }
}
