//! What a request is while it is on its way ([`super::admission`]): who asked, for what, and who waits for
//! the answer.

use std::sync::Arc;

use super::keeping::LeavingDecision;
use super::tickets::Place;
use super::world::Pin;
use crate::command::{AdmitRequest, Caller, CommandError, Reply};
use crate::group::{Group, Reach};
use lrs_api::proto;
use lrs_core::model::TaskId;
use lrs_core::unit::UnitRecord;
use lrs_core::units::ProcessRef;

/// A client's request that was found fit: what is looked at again before its process is moved.
#[derive(Debug)]
pub struct Claim {
    /// Who asked.
    pub caller: Caller,
    /// For what.
    pub request: AdmitRequest,
    /// The process.
    pub process: ProcessRef,
    /// If it waits.
    pub(super) place: Place,
    /// The unit, where it is that unit's main process.
    pub unit: Option<UnitRecord>,
    /// Who holds it, and what was decided about that.
    pub(super) kept: Option<LeavingDecision>,
}

/// A task on its way into its place, from the question to the core until it is there and those who
/// asked are answered. It is with the other [`Requester`]s first, and with its [`Entry`](super::entry::Entry) once it has a slot.
#[derive(Debug, Default)]
pub struct Admission {
    /// What a client asked for; `None`: a finder found the task, or it is from observe mode.
    pub claim: Option<Claim>,
    /// Clients that wait for the answer.
    pub replies: Vec<Reply<proto::Task>>,
    /// Finders that do.
    pub found_replies: Vec<Reply<TaskId>>,
    /// Pins the main process until it is watched.
    pub pin: Option<Pin>,
    /// Whether it had to wait for its slot.
    pub waited: bool,
    /// How often it was judged anew, since it had been moved meanwhile.
    pub judged_anew: u8,
    /// Whether its present cgroup is to be managed as it is.
    pub in_place: bool,
    /// The group it was found in, until that is taken in place.
    pub found_in: Option<Group>,
    /// In which hierarchies its processes are moved.
    pub reach: Reach,
    /// The group it had in observe mode.
    pub booked: Option<Arc<Group>>,
    /// Why it came to nothing, until those who asked have their answer.
    pub failed: Option<CommandError>,
}

/// Who has asked the core for something.
#[derive(Debug)]
pub enum Requester {
    /// A client or a finder, for a task.
    Task(Box<Admission>),
    /// A client, for a reservation.
    Promise(Reply<proto::Reservation>),
}
