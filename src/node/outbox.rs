//! What the threads beside the loop send to it, and their way there.

use std::sync::mpsc::Sender;

use super::watch::{Ended, Waker};
use crate::core::exit::Exit;
use crate::executor::message::Message;
use crate::units::ProcessRef;

/// What comes from other threads.
#[derive(Debug)]
pub(super) enum Inward {
    /// To the loop.
    Loop(Message),
    /// From `lrs-ends`.
    Exit {
        /// What was looked at.
        unknown: Unknown,
        /// How it ended.
        found: ExitLookup,
    },
    /// The loop is to end.
    Stop,
}

impl From<Message> for Inward {
    fn from(message: Message) -> Inward {
        Inward::Loop(message)
    }
}

/// An end, where the pidfd does not have the status, for [`super::exits::serve`].
#[derive(Debug)]
pub(super) struct Unknown {
    /// The main process of a task.
    pub(super) process: ProcessRef,
    /// Its end.
    pub(super) ended: Ended,
}

/// How a main process ended, as far as /proc and its pidfd tell.
#[derive(Debug)]
pub(super) enum ExitLookup {
    /// How it ended.
    Exit(Exit),
    /// Its parent has not waited for it, and it may not be read.
    NotYet,
    /// Its parent has, and the kernel did not keep it.
    Never,
}

/// The threads' way to the loop.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    pub(super) messages: Sender<Inward>,
    pub(super) waker: Waker,
}

impl Outbox {
    pub(super) fn send(&self, message: impl Into<Inward>) {
        // There is no receiver once the loop has ended; there is nothing left to do then.
        let _ = self.messages.send(message.into());
        self.waker.wake();
    }
}
