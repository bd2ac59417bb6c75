//! The thread of the loop: it waits, gives the loop a turn, and ends it.

use std::io;

use super::Node;
use super::worker::Inward;
use crate::clock;
use crate::core::pace::TURN;
use crate::driver::Driver;
use crate::publish::LastTurn;
use crate::systemd::notify::Watchdog;

/// What ends the loop other than a request to stop.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Without its threads the loop can neither admit nor measure.
    #[error("a worker thread panicked; the tasks keep running, a restart takes them up again")]
    WorkerPanicked,
    /// epoll failed; nothing can be noticed any more.
    #[error("cannot wait for events: {0}")]
    Wait(io::Error),
    /// The cgroup root could not be left in order.
    #[error("the cgroup root could not be closed: {0}")]
    Close(crate::cgroup::CgroupError),
}

impl Driver<Node> {
    /// Turns until it is to stop, then leaves the node as it is for the next daemon. Each turn
    /// that has ended is a sign of life for `watchdog`, and in `last_turn`.
    ///
    /// # Errors
    /// What ended it.
    pub fn run(
        mut self,
        last_turn: &LastTurn,
        mut watchdog: Option<Watchdog>,
    ) -> Result<(), DriverError> {
        // The time of the recovery is none in which it hung.
        last_turn.ended(clock::boot_time());
        loop {
            let now = clock::now();
            let mut timeout = self.until_next(now).min(TURN);
            if let Some(watchdog) = &watchdog {
                timeout = timeout.min(watchdog.patience(now.boot));
            }
            let happened = match self.world().wait(timeout) {
                Ok(happened) => happened,
                Err(error) => {
                    self.abandon(now);
                    return Err(DriverError::Wait(error));
                }
            };
            let now = clock::now();
            self.turn(happened, now);
            self.turned(clock::cpu_time());
            last_turn.ended(now.boot);
            if let Some(watchdog) = &mut watchdog {
                watchdog.turned(now.boot);
            }
            if self.world().workers.broken() {
                self.abandon(now);
                return Err(DriverError::WorkerPanicked);
            }
            if self.world().stop {
                return self.stop();
            }
        }
    }

    fn stop(mut self) -> Result<(), DriverError> {
        let now = clock::now();
        self.world().commands.close();
        self.begin_end(now);
        self.world().workers.stop();
        // What the threads finished meanwhile counts.
        let mut messages = Vec::new();
        while let Ok(inward) = self.world().inbox.try_recv() {
            match inward {
                Inward::Loop(message) => messages.push(message),
                Inward::Exit { unknown, found } => {
                    messages.extend(self.world().exit_found(unknown, found));
                }
                Inward::Stop => {}
            }
        }
        self.end(messages, now);
        self.world().tree.close().map_err(DriverError::Close)
    }
}
