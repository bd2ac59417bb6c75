//! The thread of the loop: it waits, gives the loop a turn, and ends it.

use std::io;

use super::Node;
use super::outbox::Inward;
use crate::clock;
use crate::core::pace::TURN;
use crate::executor::Loop;
use crate::publish::LastTurn;
use crate::systemd::notify::Watchdog;

/// What ends the loop other than a request to stop.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
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

/// Turns until it is to stop, then leaves the node as it is for the next daemon. Each turn
/// that has ended is a sign of life for `watchdog`, and in `last_turn`.
///
/// # Errors
/// What ended it.
pub fn run(
    mut daemon: Loop<Node>,
    last_turn: &LastTurn,
    mut watchdog: Option<Watchdog>,
) -> Result<(), LoopError> {
    // The time of the recovery is none in which it hung.
    last_turn.ended(clock::boot_time());
    loop {
        let now = clock::now();
        let mut timeout = daemon.until_next(now).min(TURN);
        if let Some(watchdog) = &watchdog {
            timeout = timeout.min(watchdog.patience(now.boot));
        }
        let happened = match daemon.world().wait(timeout) {
            Ok(happened) => happened,
            Err(error) => {
                daemon.abandon(now);
                return Err(LoopError::Wait(error));
            }
        };
        let now = clock::now();
        let before = daemon.core().totals().promoted;
        daemon.turn(happened, now);
        let promoted = daemon.core().totals().promoted.saturating_sub(before);
        let done = clock::boot_time();
        if promoted > 0 {
            last_turn.promoted(promoted, done.since(now.boot));
        }
        for free in daemon.began() {
            last_turn.began(done.since(*free));
        }
        daemon.turned(clock::cpu_time());
        last_turn.ended(now.boot);
        if let Some(watchdog) = &mut watchdog {
            watchdog.turned(now.boot);
        }
        if daemon.world().workers.broken() {
            daemon.abandon(now);
            return Err(LoopError::WorkerPanicked);
        }
        if daemon.world().stop {
            return stop(daemon);
        }
    }
}

fn stop(mut daemon: Loop<Node>) -> Result<(), LoopError> {
    let now = clock::now();
    daemon.world().commands.close();
    daemon.begin_end(now);
    daemon.world().workers.stop();
    // What the threads finished meanwhile counts.
    let mut messages = Vec::new();
    while let Ok(inward) = daemon.world().inbox.try_recv() {
        match inward {
            Inward::Loop(message) => messages.push(message),
            Inward::Exit { unknown, found } => {
                messages.extend(daemon.world().exit_found(unknown, found));
            }
            Inward::Stop => {}
        }
    }
    daemon.end(messages, now);
    daemon.world().tree.close().map_err(LoopError::Close)
}
