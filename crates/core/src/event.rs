//! Decisions and changes, as operators read them: what happened, to whom, from what to
//! what, why, and on which inputs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::units::WallTime;

/// One line of `lrsctl events`. Sequence numbers start at 1 and never restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Position in the history of this node's daemon.
    pub seq: u64,
    /// When it was decided; for a completion when it was noticed.
    pub at: WallTime,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// Id of the task or reservation it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// State before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// State after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// One sentence for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The figures the decision was taken on.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub inputs: Map<String, Value>,
}

/// The input that no client reads in an event: only the user of the task and admins may.
pub const COMMAND: &str = "command";

/// The input that stands for the job of a task that named none ([`Labels::program`]); no client reads it in an
/// event either.
///
/// [`Labels::program`]: crate::model::Labels::program
pub const PROGRAM: &str = "program";

/// A change outside the core that belongs into the history; it becomes an [`Event`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What happened.
    pub kind: EventKind,
    /// State before.
    pub from: Option<String>,
    /// State after.
    pub to: Option<String>,
    /// One sentence for a person.
    pub reason: String,
    /// The figures it was decided on.
    pub inputs: Map<String, Value>,
}

/// The types of [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // each variant is the word itself
pub enum EventKind {
    Admitted,
    /// A task from observe mode got its cgroup.
    Attached,
    Promoted,
    Demoted,
    Completed,
    /// It ended for LRS: what was left of it went into a group that it made or asked for.
    Left,
    /// The main process of a task ended, and how is known. Before or after the task's end.
    Exit,
    Released,
    Refused,
    Priority,
    /// A discovered task became opportunistic or slotless, or is so no more.
    Standing,
    Reserved,
    Cancelled,
    Expired,
    /// A reservation yielded to others who wait.
    Withdrawn,
    Expanded,
    Shrunk,
    /// Slots on trial are kept or taken back.
    Probe,
    /// A passive task computes promptly now.
    #[serde(rename = "lane_in")]
    LaneIn,
    /// It does not any more.
    #[serde(rename = "lane_out")]
    LaneOut,
    /// A passive task has an active slot on loan.
    Loan,
    /// It has not any more.
    #[serde(rename = "loan_end")]
    LoanEnd,
    /// The active tier or the base followed the node's CPUs or the settings.
    Resized,
    Guard,
    Drift,
    Contested,
    Draining,
    Resumed,
    Started,
    Stopped,
    Reloaded,
    /// Something of the stored state was damaged and rebuilt.
    Recovered,
    /// Another scheduler was sent what the node has for its tasks, and shows it.
    Offered,
    /// It could not be sent.
    #[serde(rename = "offer_failed")]
    OfferFailed,
}

impl EventKind {
    /// Whether it is about how many slots there are.
    pub fn is_about_capacity(self) -> bool {
        use EventKind::{Expanded, Guard, Probe, Resized, Shrunk};
        matches!(self, Expanded | Shrunk | Probe | Resized | Guard)
    }

    /// The word used in JSON and gRPC.
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::Admitted => "admitted",
            EventKind::Attached => "attached",
            EventKind::Promoted => "promoted",
            EventKind::Demoted => "demoted",
            EventKind::Completed => "completed",
            EventKind::Left => "left",
            EventKind::Exit => "exit",
            EventKind::Released => "released",
            EventKind::Refused => "refused",
            EventKind::Priority => "priority",
            EventKind::Standing => "standing",
            EventKind::Reserved => "reserved",
            EventKind::Cancelled => "cancelled",
            EventKind::Expired => "expired",
            EventKind::Withdrawn => "withdrawn",
            EventKind::Expanded => "expanded",
            EventKind::Shrunk => "shrunk",
            EventKind::Probe => "probe",
            EventKind::LaneIn => "lane_in",
            EventKind::LaneOut => "lane_out",
            EventKind::Loan => "loan",
            EventKind::LoanEnd => "loan_end",
            EventKind::Resized => "resized",
            EventKind::Guard => "guard",
            EventKind::Drift => "drift",
            EventKind::Contested => "contested",
            EventKind::Draining => "draining",
            EventKind::Resumed => "resumed",
            EventKind::Started => "started",
            EventKind::Stopped => "stopped",
            EventKind::Reloaded => "reloaded",
            EventKind::Recovered => "recovered",
            EventKind::Offered => "offered",
            EventKind::OfferFailed => "offer_failed",
        }
    }
}
