//! What the daemons of a pretended node decide, from the first step of each: for tests of replay.

#![allow(clippy::disallowed_types)] // a test shares it with the node; nothing is decided by it

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedReceiver;

use lrs_core::recording::Entry;
use lrs_executor::recorder::{Recorded, Recorder};

/// A recording that goes on with the next daemon.
#[derive(Clone, Default)]
pub struct Tape(Arc<Mutex<Vec<UnboundedReceiver<Recorded>>>>);

impl Tape {
    /// For a daemon that starts.
    pub(super) fn recorder(&self) -> Recorder {
        let (recorder, recorded) = Recorder::new();
        self.add(recorded);
        recorder
    }

    /// Goes on with this one.
    pub fn add(&self, recorded: UnboundedReceiver<Recorded>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
    }

    /// What has been recorded since the last call.
    pub fn take(&self) -> Vec<Entry> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let each = |recorded: &mut UnboundedReceiver<Recorded>| {
            std::iter::from_fn(|| recorded.try_recv().ok())
                .map(|(entry, _)| entry)
                .collect::<Vec<_>>()
        };
        all.iter_mut().flat_map(each).collect()
    }
}
