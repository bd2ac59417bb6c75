//! What a scheduler says of its containers, on its way from a client to the finders.
//!
//! The loop checks who says it and passes it on; it waits for nobody, so the queue is short and
//! what does not fit is refused: a finder that hangs must not fill memory.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use crate::core::model::Priority;

/// Requests that may wait for the finder, each with a thousand hints at most.
const QUEUED: usize = 16;

/// What a scheduler says of a container, found or not yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// `container_e01_1700000000000_0001_01_000002`, or the id of a rule's task.
    pub container: String,
    /// Higher is sooner; `None`: not known.
    pub priority: Option<Priority>,
    /// Whether it is opportunistic; `None`: not known.
    pub opportunistic: Option<bool>,
    /// Queue of its application.
    pub queue: Option<String>,
    /// Where its application's master is; `None`: not known.
    pub master: Option<Master>,
}

/// Where an application's master is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Master {
    /// In this container.
    Container(String),
    /// In none: YARN's unmanaged application.
    Outside,
}

/// The loop's end.
pub type HintSender = mpsc::Sender<Vec<Hint>>;

/// The finder's end; it outlives a finder that has to be started again.
pub type HintReceiver = Arc<Mutex<mpsc::Receiver<Vec<Hint>>>>;

/// A new queue.
pub fn hint_queue() -> (HintSender, HintReceiver) {
    let (sender, receiver) = mpsc::channel(QUEUED);
    (sender, Arc::new(Mutex::new(receiver)))
}
