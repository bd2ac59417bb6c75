//! A task of the cluster: what it reads and takes, and where it stands.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::placement::ids::{JobId, NodeId};
use crate::placement::input::Kind;
use crate::placement::resources::Resources;

/// A task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Its name within the job.
    pub name: String,
    /// Its job.
    pub job: JobId,
    /// Map or reduce.
    pub kind: Kind,
    /// Size of its input.
    pub bytes: u64,
    /// The nodes that hold its input; none: it runs equally well anywhere.
    pub replicas: Vec<NodeId>,
    /// What it takes.
    pub demand: Resources,
    /// In what time it is predicted to end, if it runs.
    pub remaining: Option<Duration>,
    pub(crate) state: State,
}

impl Task {
    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// In the queue.
    Waiting,
    /// On this node since then.
    Running(NodeId, Duration),
    /// Over.
    Ended,
}
